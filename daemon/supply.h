/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * supply.h - carries out what the planner found for a request: takes an inventory, keeps the segments for
 * whoever asks, reads or zeroes what has to be, and gives them when all is ready.
 * Owns what is being extended. Grants no lease and answers nobody (request does).
 */
#ifndef HPZ_SUPPLY_H
#define HPZ_SUPPLY_H

#include "extend.h"
#include "spread.h"
#include "verify.h"

/* What is asked of a pool. */
struct supply_ask {
	struct pool *pool;
	struct planner_request request;
	uint32_t uid; /* who will have the files */
	uint64_t ahead_pages, bound_pages;
	bool may_pass; /* as in planner_input */
	bool may_zero;
	void *keeper; /* whom the segments are kept for. Compared, never followed */
};

/* What the kernel and the pool's lid still give. */
struct supply_stock {
	const struct pool *pool;
	uint64_t usable_pages, room_pages;
};

struct supply {
	struct reconcile *reconcile;
	struct handoff *handoff;
	struct verify *verify;
	struct list growths;
	struct supply_stock stocks[CONFIG_POOLS_MAX]; /* counted since supply_forget() */
	size_t stock_count;
	void (*failed)(void *keeper, void *user); /* what was extended for it is not to be had */
	void *user;
};

void supply_init(struct supply *supply, struct reconcile *reconcile, struct handoff *handoff,
	struct verify *verify, void (*failed)(void *keeper, void *user), void *user);

/* What was counted may not be so any more: once a batch of events, and after whatever takes pages. */
void supply_forget(struct supply *supply);

/* What would be given. Takes nothing. */
void supply_plan(struct supply *supply, const struct supply_ask *ask, struct planner_plan *ret_plan);
/*
 * The same for several pieces of one pool, each on what the earlier ones leave. `ask` is for all of them, but
 * for its request; the last plan is in *scratch.
 */
void supply_plan_pieces(struct supply *supply, const struct supply_ask *ask,
	const struct planner_request *requests, size_t count, struct planner_plan *scratch,
	struct spread_piece *ret_pieces);
/* The most pages, up to those asked for, that can be given now; is_ready: without zeroing any. */
uint64_t supply_get_most(
	struct supply *supply, const struct supply_ask *ask, bool is_ready, struct planner_plan *scratch);

/*
 * Carries a plan out. 0: everything is kept for the keeper, ready; -EINPROGRESS: kept, and being read or
 * zeroed; reconcile looks again when that is done; -EUCLEAN: something was not fit, plan again; or another
 * negative errno. Then nothing is kept. The plan must not be WAIT.
 */
int supply_take(struct supply *supply, const struct supply_ask *ask, const struct planner_plan *plan);

/*
 * What is kept for somebody, in order, with the pages to be given of each: together `pages`, or with `leases`
 * of more than one so many segments of `pages` each. 0; -EINPROGRESS: not ready yet;
 * -EAGAIN: it is not enough (any more), and nothing is kept now.
 */
int supply_collect(struct supply *supply, struct pool *pool, void *keeper, uint64_t pages, size_t leases,
	struct pool_segment *ret_segments[PLANNER_PARTS_MAX], uint64_t ret_given[PLANNER_PARTS_MAX],
	size_t *ret_count);

/* Whether something is being zeroed for it. */
bool supply_is_growing(const struct supply *supply, const void *keeper);
/* Nobody wants it any more. */
void supply_drop(struct supply *supply, struct pool *pool, void *keeper);
/* It is another's now. */
void supply_pass(struct supply *supply, struct pool *pool, void *from, void *to);

#endif
