/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * policy.h - who gets what, when a pool grows, how urgent work is.
 * Pure: const input in, plan out. No clock, no system call, no memory of its own.
 */
#ifndef HPZ_POLICY_H
#define HPZ_POLICY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How urgent work is, ascending. */
enum policy_level {
	POLICY_IDLE,   /* the stock is well filled */
	POLICY_REFILL, /* it fell below the low watermark and is not at the high one again */
	POLICY_URGENT, /* a lease is waiting */
};

/* All segments of one length. Counts are segments. */
struct policy_class {
	uint64_t segment_pages;
	uint64_t want; /* the stock's */
	uint64_t clean, leased, dirty, filling;
	uint64_t kept; /* of the clean ones: for somebody else, or being read */
};

#define POLICY_LOW_PERCENT  50
#define POLICY_HIGH_PERCENT 75

struct policy_input {
	uint64_t target_pages;
	uint64_t lent_pages; /* of these, in somebody's hands */
	/*
	 * Percent of the target that is clean: below low it is refilled until high is reached. 0, 0: 50, 75.
	 * What is lent, and what the kernel does not have, does not count: no work would bring it.
	 */
	unsigned low_percent, high_percent;
	bool was_refilling; /* the last plan's is_refilling */
	bool is_draining;
	/*
	 * The stock is learned and changes by itself: clean memory of other lengths is rebuilt only where a
	 * missing segment can be made of it, while nobody waits, and never more than so many percent of what
	 * is clean or could be, are out of service at once. Otherwise it goes back to the kernel at once.
	 */
	bool is_gentle;
	unsigned reshape_percent;
	bool is_shrunk; /* what is held beyond the target is to go, stock or not */
	/* About to become pages of another size: so many are to be free, and nothing is made of them. */
	uint64_t leaving_pages;

	/* ours */
	const struct policy_class *classes; /* ascending by segment_pages */
	size_t class_count;
	uint64_t clean_pages;
	uint64_t held_pages;         /* lengths of all segments, of whatever class */
	uint64_t filling_todo_pages; /* promised to fills under way, not taken from the kernel yet */
	uint64_t mending_todo_pages; /* promised to dirty segments whose holes are being filled */

	/* others on the same kernel pool */
	uint64_t kernel_free, kernel_resv;
	uint64_t holes_owed_pages; /* punched by holders, who may touch them again */
	uint64_t grown_pages;      /* taken by holders beyond what was given */

	/* demand: what requests wait for, in pages; of these, what the kernel lacks for who waits longest, as
	 * the planner found; what the pool may still grow by */
	uint64_t waiting_pages, lacking_pages, room_pages;

	uint64_t give_back_pages; /* nr_hugepages is to be lowered by so much, as far as nobody needs them */

	bool may_raise;    /* configured, not running, not backing off */
	bool may_lower;    /* the same, but nobody must have configured it */
	bool is_raising;   /* nr_hugepages is being raised or lowered right now */
	size_t free_slots; /* fills that may be started now */
};

enum policy_kind {
	POLICY_CREATE,  /* count segments of segment_pages: fill them */
	POLICY_DISCARD, /* count clean segments of segment_pages go back to the kernel */
	POLICY_RAISE,   /* raise nr_hugepages by segment_pages * count */
	POLICY_DROP,  /* count dirty segments of segment_pages go back to the kernel: clearing them is in vain
		       */
	POLICY_CUT,   /* count pages of one clean segment of segment_pages go back to the kernel */
	POLICY_LOWER, /* lower it by as much */
};

struct policy_action {
	enum policy_kind kind;
	uint64_t segment_pages;
	uint64_t count;
};
#define POLICY_ACTIONS_MAX 96

struct policy_plan {
	struct policy_action actions[POLICY_ACTIONS_MAX];
	size_t action_count;
	enum policy_level level; /* of what is most urgent */
	bool is_refilling;       /* of all that nobody waits for: refill, else idle */
	uint64_t usable_pages;   /* of the kernel's free pages, ours to take */
	uint64_t missing_pages;  /* wanted by the stock, not there and not under way */
	uint64_t short_pages;    /* of these, what the kernel does not have either */
	uint64_t awaited_pages;  /* of RAISE: beyond what the pool is to have, for somebody who waits */
	uint64_t place_pages;    /* what the stock could still grow by, in segments of whatever length */
};

/* What to do now to come nearer to the stock. Called after every batch of events. */
void policy_plan(const struct policy_input *input, struct policy_plan *ret_plan);

/* What a pool does about others' wait for memory; zero at first. */
struct policy_pressure {
	uint64_t quiet_ns;  /* since when nobody waits; 0: somebody does */
	uint64_t step_ns;   /* of the last step; 0: none yet */
	uint64_t taken_ns;  /* of the last step that took memory back */
	unsigned doublings; /* of the time it has to be quiet: taking it back brought the pressure back */
};

enum policy_pressure_step {
	POLICY_PRESSURE_KEEP,
	POLICY_PRESSURE_GIVE, /* one step smaller */
	POLICY_PRESSURE_TAKE, /* one step larger again */
};

#define POLICY_PRESSURE_HIGH_PERCENT 10 /* of the time somebody waits: that is felt */
#define POLICY_PRESSURE_LOW_PERCENT  1
#define POLICY_PRESSURE_QUIET_S      60 /* it is over; at most 32 times as long */
#define POLICY_PRESSURE_TAKE_S       10 /* between two steps back */

/* After each look at the pressure. `has_given`: there is something to take back. */
enum policy_pressure_step policy_judge_pressure(
	struct policy_pressure *pressure, double percent, bool has_given, uint64_t now_ns);
/* Pages of a step, for a pool of so many. */
uint64_t policy_get_pressure_step(uint64_t pages);

/*
 * What a hole in a dirty segment may be filled with: usable pages as policy_plan counts them.
 */
uint64_t policy_get_usable(const struct policy_input *input);

/* The largest page size that wastes at most an eighth of `bytes`, else the smallest. `sizes` ascending, not
 * empty. */
uint64_t policy_pick_page_size(const uint64_t *sizes, size_t count, uint64_t bytes);

/* Delay before look number `attempt` (from 0) at memory that is still held, in ms. */
uint64_t policy_get_retry_ms(unsigned attempt);

#endif
