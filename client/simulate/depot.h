/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * depot.h - one pool of one host, on paper: counts of segments, the kernel's free pages, and one thing that
 * is being cleared or filled. What is given is for the planner to say, what is kept in stock for the policy;
 * here is what becomes of it and how long that takes. Pure but for its memory: time comes with each call.
 *
 * As a simulation it is simpler than hpzd: work goes one segment after the other at the node's whole rate,
 * what is proven free is so at once, and pages are promised the moment work on them is decided.
 */
#ifndef HPZ_SIMULATE_DEPOT_H
#define HPZ_SIMULATE_DEPOT_H

#include "config.h"
#include "planner.h"
#include "policy.h"
#include "wants.h"

#define DEPOT_NEVER UINT64_MAX

/* Bytes a second, of one node. */
struct depot_rates {
	uint64_t clear; /* workers, of what came back */
	uint64_t fill;  /* the kernel for a worker, of pages that are new to the pool */
	uint64_t zero;  /* the kernel while a start waits for it */
};

/* The same for this pool on every host. Borrowed, and not to be changed while a depot uses it. */
struct depot_rules {
	const struct config_pool *pool;
	const struct config_clear *clear;
	struct depot_rates rates;
	uint64_t work_limit; /* what nobody waits for: bytes a second at most; 0: none */
	uint64_t slots;      /* segments that may be filled at once */
};

/* All segments of one length. Counts are segments. */
struct depot_class {
	uint64_t segment_pages;
	uint64_t want;
	uint64_t clean, dirty, filling, leased;
	uint64_t torn; /* of the dirty ones: with holes, and nobody works on them */
};

/* A dirty segment with holes. */
struct depot_torn {
	uint64_t segment_pages, holes;
};

struct depot {
	const struct depot_rules *rules;
	struct depot_class *classes; /* ascending by segment_pages */
	size_t class_count, class_capacity;
	struct depot_torn *torn;
	size_t torn_count, torn_capacity;
	struct demand *demand;   /* NULL: the stock is not learned */
	bool is_demand_new;      /* since it was last looked at */
	uint64_t demand_seen_ns; /* when that was */
	uint64_t free_pages;     /* the kernel's */
	uint64_t length_pages;   /* of all segments */
	uint64_t held_pages;     /* the same, but of a leased one what was given */
	uint64_t lent_pages;     /* given */
	bool is_refilling;

	enum { DEPOT_IDLE, DEPOT_CLEARS, DEPOT_FILLS } job;
	uint64_t job_pages;       /* length of the segment it is about */
	uint64_t job_end_ns;      /* DEPOT_NEVER: there is none */
	uint64_t urgent_until_ns; /* the kernel zeroes for starts until then */
};

/* Of what one VM has. */
struct depot_piece {
	uint64_t segment_pages;
	uint64_t count;
};

struct depot_grant {
	struct depot_piece one, *more; /* more: if there are several */
	size_t count;
	uint64_t tail_pages; /* of the last one: given back to the kernel */
	uint64_t demanded;   /* pages, of one that the demand counts; 0: it does not */
};

/* Stock full and clean, as on a host that has been up for a while, and nothing learned. 0 or -ENOMEM. */
int depot_init(struct depot *depot, const struct depot_rules *rules, uint64_t now_ns);
void depot_deinit(struct depot *depot);

/* What the planner is to know of it; who waits longer is for the caller to add. `classes` is the caller's. */
void depot_get_input(const struct depot *depot, struct planner_class classes[PLANNER_CLASSES_MAX],
	struct planner_input *ret_input);

/*
 * Carries out a plan that is not PLANNER_WAIT; ret_ready_ns is when all of it is zero. 0 or -ENOMEM, then
 * nothing has changed.
 */
int depot_take(struct depot *depot, const struct planner_plan *plan, const struct planner_request *request,
	uint64_t now_ns, struct depot_grant *ret_grant, uint64_t *ret_ready_ns);
/* The VM is gone; the grant is empty then. 0 or -ENOMEM. */
int depot_give(struct depot *depot, struct depot_grant *grant, uint64_t now_ns);
/* A start for so many pages was answered: what a stock that learns goes by. */
void depot_note(struct depot *depot, uint64_t now_ns, uint64_t pages, enum demand_served how);

/* What job_end_ns was about is done. */
void depot_finish_job(struct depot *depot);
/*
 * As hpzd after each batch of events: brings the stock nearer to what it is to be, and begins the next thing
 * to do. `waiting` starts wait, the first of them for waiting_pages. 1: clean or free memory came of it,
 * whoever waits may be served; 0: not; or -ENOMEM.
 */
int depot_reconcile(struct depot *depot, uint64_t now_ns, uint64_t waiting, uint64_t waiting_pages);

/* More than so many pages can never be had in one lease. */
uint64_t depot_get_most_pages(const struct depot *depot);
uint64_t depot_get_clean_pages(const struct depot *depot);
/* ns for so many pages. */
uint64_t depot_get_duration(const struct depot_rules *rules, uint64_t pages, uint64_t bytes_per_s);

#endif
