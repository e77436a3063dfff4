/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * spread.h - a request that is served by several pools, or by one in several pieces: guest cells, nodes in
 * turn. Plans each piece on what the earlier ones leave, so that all of them can be taken or none is; says
 * how much of it each node gives. Pure, as the planner is, which it asks.
 */
#ifndef HPZ_SPREAD_H
#define HPZ_SPREAD_H

#include "planner.h"

#define SPREAD_PIECES_MAX 64

/* What the plan of a piece comes to. */
struct spread_piece {
	enum planner_kind kind;
	enum planner_reason reason;
	bool passes;
	size_t parts;
	uint64_t ready_pages, zeroed_pages;
	uint64_t dirty_pages, clean_pages; /* of segments that are unlinked for it */
	uint64_t tail_pages;               /* TRIM: given back afterwards */
	uint64_t lacking_pages;            /* WAIT: at least so many are not to be had */
};

struct spread_piece spread_sum(const struct planner_plan *plan);

/* What is left when a plan has been carried out. `classes` are those of the input. */
void spread_deduct(
	struct planner_input *input, struct planner_class *classes, const struct planner_plan *plan);

/*
 * Pieces that all come from one pool, in order, each on what the earlier ones leave; what cannot be given
 * (PLANNER_WAIT) leaves everything. Uses up the input. `scratch` is the caller's.
 */
void spread_plan(struct planner_input *input, struct planner_class *classes,
	const struct planner_request *requests, size_t count, struct planner_plan *scratch,
	struct spread_piece *ret_pieces);

/* The most pages up to those of the request that can be given now; is_ready: without zeroing any. */
uint64_t spread_get_most(const struct planner_input *input, const struct planner_request *request,
	bool is_ready, struct planner_plan *scratch);

/* As equally as `most` of each allows, the first ones a page more. False: together it is less. */
bool spread_divide(const uint64_t *most, size_t count, uint64_t pages, uint64_t *ret_pages);

/* `counts` things of each stand one behind the other: ret_order has their places in turn. */
void spread_take_turns(const size_t *counts, size_t count, size_t *ret_order);

#endif
