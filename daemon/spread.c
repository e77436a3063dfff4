/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* spread.c - a request in several pieces: what each gets, all or none. Pure. */
#include "spread.h"
#include "util.h"

static uint64_t count_pages(const struct planner_take *takes, size_t count)
{
	uint64_t pages = 0;
	for (size_t i = 0; i < count; i++)
		pages += takes[i].segment_pages * takes[i].count;
	return pages;
}

struct spread_piece spread_sum(const struct planner_plan *plan)
{
	struct spread_piece piece = {
		.kind = plan->kind,
		.reason = plan->reason,
		.passes = plan->passes,
		.parts = plan->parts,
		.ready_pages = plan->ready_pages,
		.zeroed_pages = plan->zeroed_pages,
		.lacking_pages = plan->lacking_pages,
	};
	if (plan->kind == PLANNER_WAIT)
		return piece;
	piece.dirty_pages = count_pages(plan->dirty, plan->dirty_count);
	piece.clean_pages = count_pages(plan->clean, plan->clean_count);
	if (plan->kind == PLANNER_TRIM)
		piece.tail_pages = plan->takes[0].segment_pages - plan->ready_pages;
	return piece;
}

/* ---- one after the other ---- */

static struct planner_class *find_class(
	struct planner_class *classes, const struct planner_input *input, uint64_t segment_pages)
{
	size_t i = 0;
	while (i < input->class_count - 1 && classes[i].segment_pages != segment_pages)
		i++;
	return &classes[i];
}

void spread_deduct(
	struct planner_input *input, struct planner_class *classes, const struct planner_plan *plan)
{
	if (plan->kind == PLANNER_WAIT)
		return;
	for (size_t i = 0; i < plan->take_count; i++)
		find_class(classes, input, plan->takes[i].segment_pages)->clean -= plan->takes[i].count;
	for (size_t i = 0; i < plan->clean_count; i++)
		find_class(classes, input, plan->clean[i].segment_pages)->clean -= plan->clean[i].count;
	for (size_t i = 0; i < plan->dirty_count; i++) {
		struct planner_class *class = find_class(classes, input, plan->dirty[i].segment_pages);
		class->dirty -= plan->dirty[i].count;
		class->coming -= plan->dirty[i].count;
	}
	/* Unlinked pages come free, and those that are zeroed are not any more. */
	uint64_t freed =
		count_pages(plan->dirty, plan->dirty_count) + count_pages(plan->clean, plan->clean_count);
	input->usable_pages += freed - plan->zeroed_pages;
	input->room_pages += freed - plan->zeroed_pages;
}

void spread_plan(struct planner_input *input, struct planner_class *classes,
	const struct planner_request *requests, size_t count, struct planner_plan *scratch,
	struct spread_piece *ret_pieces)
{
	for (size_t i = 0; i < count; i++) {
		planner_plan(input, &requests[i], scratch);
		ret_pieces[i] = spread_sum(scratch);
		spread_deduct(input, classes, scratch);
	}
}

/* ---- how much of each ---- */

static bool can_give(const struct planner_input *input, struct planner_request request, uint64_t pages,
	bool is_ready, struct planner_plan *scratch)
{
	request.pages = pages;
	planner_plan(input, &request, scratch);
	return scratch->kind != PLANNER_WAIT && !(is_ready && scratch->zeroed_pages > 0);
}

uint64_t spread_get_most(const struct planner_input *input, const struct planner_request *request,
	bool is_ready, struct planner_plan *scratch)
{
	uint64_t least = 0, most = request->pages;
	while (least < most) {
		uint64_t middle = most - (most - least) / 2;
		if (can_give(input, *request, middle, is_ready, scratch))
			least = middle;
		else
			most = middle - 1;
	}
	return least;
}

bool spread_divide(const uint64_t *most, size_t count, uint64_t pages, uint64_t *ret_pages)
{
	bool is_all[SPREAD_PIECES_MAX] = {false};
	size_t open = count;
	for (size_t i = 0; i < count; i++)
		ret_pages[i] = 0;
	/* Whoever has no more than an equal part gives all of it, and the part of the others grows. */
	for (bool is_same = false; !is_same && open > 0;) {
		uint64_t level = pages / open;
		is_same = true;
		for (size_t i = 0; i < count; i++) {
			if (is_all[i] || most[i] > level)
				continue;
			is_all[i] = true;
			ret_pages[i] = most[i];
			pages -= most[i];
			open--;
			is_same = false;
		}
	}
	if (open == 0)
		return pages == 0;
	uint64_t level = pages / open, rest = pages % open;
	for (size_t i = 0; i < count; i++) {
		if (is_all[i])
			continue;
		ret_pages[i] = level + (rest > 0);
		rest -= rest > 0;
	}
	return true;
}

void spread_take_turns(const size_t *counts, size_t count, size_t *ret_order)
{
	size_t left = 0, done = 0;
	for (size_t i = 0; i < count; i++)
		left += counts[i];
	for (size_t round = 0; done < left; round++) {
		size_t first = 0;
		for (size_t i = 0; i < count; first += counts[i++]) {
			if (round < counts[i])
				ret_order[done++] = first + round;
		}
	}
}
