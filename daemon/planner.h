/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * planner.h - from a request to segments: which are taken, what is zeroed for it now, what has to wait.
 * Pure: const inventory and request in, plan out. No clock, no system call, no memory of its own.
 */
#ifndef HPZ_PLANNER_H
#define HPZ_PLANNER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PLANNER_CLASSES_MAX 256
#define PLANNER_PARTS_MAX   253 /* segments of one lease: what one message carries */

/* All segments of one length. Counts are segments. */
struct planner_class {
	uint64_t segment_pages;
	uint64_t clean;  /* nobody's */
	uint64_t dirty;  /* whole, proven free, and nobody works on them: may be unlinked */
	uint64_t coming; /* these, and what is being filled or cleared: clean before long */
};

struct planner_input {
	const struct planner_class *classes; /* ascending by segment_pages, at most PLANNER_CLASSES_MAX */
	size_t class_count;
	uint64_t usable_pages; /* of the kernel's free ones, ours to take: holes owed are not among them */
	uint64_t room_pages;   /* what the pool may still grow by */
	bool may_zero;         /* workers may touch memory now, and the two above are known */
	bool is_draining;

	/* who waits longer for memory of this pool */
	uint64_t ahead_pages; /* all of them together; 0: nobody */
	uint64_t bound_pages; /* the least of them: no segment of so many is taken before it */
	bool may_pass;        /* none of them was passed too often */
};

struct planner_request {
	uint64_t pages;   /* not 0 */
	size_t parts_max; /* segments it may be made of, 1 to PLANNER_PARTS_MAX */
	bool is_patient;  /* would rather wait for what is coming than have it zeroed anew */
	size_t leases;    /* 2 to PLANNER_PARTS_MAX: so many of `pages` each, one segment a lease; 0: one */
};

enum planner_kind {
	PLANNER_WAIT,    /* nothing can be given now: wait, or be refused */
	PLANNER_EXACT,   /* one clean segment of that length */
	PLANNER_TRIM,    /* the smallest larger one, its tail given back afterwards */
	PLANNER_EXTEND,  /* the largest clean one (or a new one) and pages that are zeroed now */
	PLANNER_SEVERAL, /* several clean ones in order, the rest, if any, a new one that is zeroed now; of a
			    bulk one for each lease */
};

/* Why PLANNER_WAIT. */
enum planner_reason {
	PLANNER_NO_REASON,
	PLANNER_DRAINED,
	PLANNER_QUEUE,  /* what there is will be needed by who waits longer */
	PLANNER_COMING, /* one that serves it is being filled or cleared */
	PLANNER_SHORT,  /* not so many pages are clean, dirty or free */
	PLANNER_LID,    /* the kernel has the pages, but the pool may not hold more */
	PLANNER_BUSY,   /* no memory may be touched now */
};

/* So many segments of a class. */
struct planner_take {
	uint64_t segment_pages;
	uint64_t count;
};

struct planner_plan {
	enum planner_kind kind;
	enum planner_reason reason;
	bool passes; /* it is served before somebody who waits longer */

	/* Clean ones, in order; of the last no more is given than is missing, of a bulk's no more than a
	 * lease has. For EXTEND the one that grows. */
	struct planner_take takes[PLANNER_PARTS_MAX];
	size_t take_count;
	uint64_t grown_pages; /* length of the segment that is zeroed in part or whole; 0: none */
	size_t grown_count;   /* of such segments: one, but of a bulk what is missing */

	/* Unlinked first, so that the kernel has the pages. */
	struct planner_take dirty[PLANNER_CLASSES_MAX];
	size_t dirty_count;
	struct planner_take clean[PLANNER_CLASSES_MAX];
	size_t clean_count;

	size_t parts;           /* segments the lease has, or the bulk */
	uint64_t ready_pages;   /* of those asked for: clean already */
	uint64_t zeroed_pages;  /* zeroed now */
	uint64_t lacking_pages; /* WAIT: at least so many are not to be had */
};

void planner_plan(const struct planner_input *input, const struct planner_request *request,
	struct planner_plan *ret_plan);

#endif
