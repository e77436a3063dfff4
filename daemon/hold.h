/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * hold.h - memory for a request: planned, taken and kept for its shares, all of them or none.
 */
#ifndef HPZ_HOLD_H
#define HPZ_HOLD_H

#include "queue.h"

/* The segments of a lease, or a bulk, that is about to be. */
struct hold_collection {
	struct pool_segment *segments[PLANNER_PARTS_MAX];
	uint64_t given[PLANNER_PARTS_MAX];
	size_t count;
	size_t counts[SPREAD_PIECES_MAX]; /* of each share */
};

/* What the supply is asked for a part of it. `self` NULL: it has just come. */
struct supply_ask hold_make_ask(struct requests *requests, struct pool *pool, uint64_t pages,
	const struct hpz_wire_lease *wire, const struct request_peer *peer, struct request *self);

/* As much from each node as from the others, if that can be given now, and clean if that is enough. */
void hold_divide(struct requests *requests, struct attempt *attempt);

/* Takes nothing. The first share that cannot be given now; their number: all can. */
size_t hold_plan(struct requests *requests, const struct attempt *attempt, struct spread_piece *ret_pieces);

/* Looks for memory and takes it: all shares or none. 0: it is kept and ready. -EAGAIN: there is none. */
int hold_take(struct requests *requests, struct attempt *attempt);

/* What is kept for it, in the order of the lease. -EINPROGRESS: not ready yet; -EAGAIN: not enough now. */
int hold_collect(struct requests *requests, const struct attempt *attempt, struct hold_collection *ret_all);

#endif
