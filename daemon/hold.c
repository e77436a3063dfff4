/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* hold.c - memory for a request, planned and kept. */
#include "hold.h"
#include "size.h"

#define FAILED_MAX 2 /* extensions that came to nothing: then it waits for clean memory */

/* Segments that one share may have. */
static size_t get_parts_max(const struct hpz_wire_lease *wire)
{
	if (wire->policy == HPZ_NODES_INTERLEAVE)
		return PLANNER_PARTS_MAX / (size_t)__builtin_popcountll(wire->node_mask);
	return wire->flags & HPZ_LEASE_SEGMENTS ? PLANNER_PARTS_MAX / MAX(wire->cells, 1u) : 1;
}

struct supply_ask hold_make_ask(struct requests *requests, struct pool *pool, uint64_t pages,
	const struct hpz_wire_lease *wire, const struct request_peer *peer, struct request *self)
{
	struct supply_ask ask = {
		.pool = pool,
		.request =
			{
				.pages = pages,
				.parts_max = get_parts_max(wire),
				.is_patient = wire->timeout_ms != 0,
				.leases = desk_get_leases(wire),
			},
		.uid = desk_get_file_uid(wire, peer),
		.may_zero = !self || self->failed < FAILED_MAX,
	};
	queue_get_ahead(requests, self, wire->priority, &ask);
	return ask;
}

static int collect_share(struct requests *requests, struct request_share *share, size_t leases,
	struct hold_collection *all, size_t *ret_count)
{
	struct pool_segment *segments[PLANNER_PARTS_MAX];
	uint64_t given[PLANNER_PARTS_MAX];
	*ret_count = 0;
	if (share->pages == 0)
		return 0;
	int r = supply_collect(
		&requests->supply, share->pool, share, share->pages, leases, segments, given, ret_count);
	if (r < 0)
		return r;
	if (*ret_count > PLANNER_PARTS_MAX - all->count)
		return -EAGAIN;
	for (size_t i = 0; i < *ret_count; i++) {
		segments[i]->cell = share->cell;
		all->segments[all->count] = segments[i];
		all->given[all->count++] = given[i];
	}
	return 0;
}

static void put_in_turn(struct hold_collection *all, size_t share_count)
{
	struct hold_collection before = *all;
	size_t order[PLANNER_PARTS_MAX];
	spread_take_turns(all->counts, share_count, order);
	for (size_t i = 0; i < all->count; i++) {
		all->segments[i] = before.segments[order[i]];
		all->given[i] = before.given[order[i]];
	}
}

/* Out of what its reservation keeps. Nobody who waits stands back for that: they had not what it kept. */
static int take_reserved(struct requests *requests, struct attempt *attempt)
{
	const struct hpz_wire_lease *wire = attempt->wire;
	struct request_share *share = &attempt->shares->list[0];
	int r = reserve_take(&requests->reserves, attempt->reservation, share->pages,
		wire->flags & HPZ_LEASE_SEGMENTS ? PLANNER_PARTS_MAX : 1,
		desk_get_file_uid(wire, attempt->peer), share->pool->waiting == 0, share);
	share->ready_pages = share->pages;
	attempt->is_held = r == 0;
	return r;
}

static struct supply_ask make_share_ask(
	struct requests *requests, const struct attempt *attempt, const struct request_share *share)
{
	struct supply_ask ask = hold_make_ask(
		requests, share->pool, share->pages, attempt->wire, attempt->peer, attempt->request);
	ask.keeper = (void *)share;
	return ask;
}

void hold_divide(struct requests *requests, struct attempt *attempt)
{
	struct request_shares *shares = attempt->shares;
	uint64_t most[SPREAD_PIECES_MAX], pages[SPREAD_PIECES_MAX];
	uint64_t all = size_pages(attempt->wire->bytes, desk_get_page_size(attempt));
	bool is_enough = false;
	for (int is_ready = 1; is_ready >= 0 && !is_enough; is_ready--) {
		for (size_t i = 0; i < shares->count; i++) {
			struct supply_ask ask = hold_make_ask(requests, shares->list[i].pool, all,
				attempt->wire, attempt->peer, attempt->request);
			most[i] = supply_get_most(&requests->supply, &ask, is_ready, &requests->plan);
		}
		is_enough = spread_divide(most, shares->count, all, pages);
	}
	if (!is_enough)
		desk_set_equal_pages(shares, all);
	for (size_t i = 0; i < shares->count && is_enough; i++)
		shares->list[i].pages = pages[i];
}

/* The pieces of one pool, from the share `first` on: each on what is left by the earlier ones. */
static void plan_pool(struct requests *requests, const struct attempt *attempt, size_t first,
	struct spread_piece *pieces, bool *is_planned)
{
	const struct request_shares *shares = attempt->shares;
	struct planner_request asked[SPREAD_PIECES_MAX];
	struct spread_piece planned[SPREAD_PIECES_MAX];
	size_t places[SPREAD_PIECES_MAX] = {first}, count = 1;
	struct supply_ask ask = make_share_ask(requests, attempt, &shares->list[first]);
	asked[0] = ask.request;
	for (size_t i = first + 1; i < shares->count; i++) {
		if (shares->list[i].pool != ask.pool || shares->list[i].pages == 0)
			continue;
		asked[count] = ask.request;
		asked[count].pages = shares->list[i].pages;
		places[count++] = i;
	}
	supply_plan_pieces(&requests->supply, &ask, asked, count, &requests->plan, planned);
	for (size_t i = 0; i < count; i++) {
		pieces[places[i]] = planned[i];
		is_planned[places[i]] = true;
	}
}

size_t hold_plan(struct requests *requests, const struct attempt *attempt, struct spread_piece *ret_pieces)
{
	const struct request_shares *shares = attempt->shares;
	bool is_planned[SPREAD_PIECES_MAX] = {false};
	size_t lacking = shares->count;
	for (size_t i = 0; i < shares->count; i++) {
		if (shares->list[i].pages == 0)
			ret_pieces[i] = (struct spread_piece){.kind = PLANNER_EXACT};
		else if (!is_planned[i])
			plan_pool(requests, attempt, i, ret_pieces, is_planned);
		if (ret_pieces[i].kind == PLANNER_WAIT)
			lacking = MIN(lacking, i);
	}
	return lacking;
}

/* Some that are only read for the operator are let go, and there in a moment. */
static bool are_yielded(
	struct requests *requests, const struct attempt *attempt, const struct spread_piece *pieces)
{
	for (size_t i = 0; i < attempt->shares->count; i++) {
		const struct request_share *share = &attempt->shares->list[i];
		if (pieces[i].kind != PLANNER_WAIT && pieces[i].zeroed_pages == 0)
			continue;
		struct supply_ask ask = make_share_ask(requests, attempt, share);
		if (verify_yield(&requests->verify, share->pool, share->pages, ask.bound_pages))
			return true;
	}
	return false;
}

/* With several the plan is made anew on what the earlier ones have left. 0, -EINPROGRESS or another errno. */
static int take_share(struct requests *requests, const struct attempt *attempt, struct request_share *share)
{
	struct planner_plan *plan = &requests->plan;
	struct supply_ask ask = make_share_ask(requests, attempt, share);
	if (attempt->shares->count > 1)
		supply_plan(&requests->supply, &ask, plan);
	if (plan->kind == PLANNER_WAIT)
		return -EUCLEAN;
	int r = supply_take(&requests->supply, &ask, plan);
	share->ready_pages = plan->ready_pages;
	share->zeroed_pages = plan->zeroed_pages;
	return r;
}

/* What the kernel lacks for each share, as its plan has found. */
static void note_lacking(struct request_shares *shares, const struct spread_piece *pieces)
{
	for (size_t i = 0; i < shares->count; i++) {
		bool is_short = pieces[i].kind == PLANNER_WAIT && pieces[i].reason == PLANNER_SHORT;
		shares->list[i].lacking_pages = is_short ? pieces[i].lacking_pages : 0;
	}
}

int hold_take(struct requests *requests, struct attempt *attempt)
{
	struct request_shares *shares = attempt->shares;
	struct spread_piece pieces[SPREAD_PIECES_MAX];
	int result = 0;
	if (attempt->reservation)
		return take_reserved(requests, attempt);
	if (attempt->wire->policy == HPZ_NODES_INTERLEAVE)
		hold_divide(requests, attempt);
	size_t lacking = hold_plan(requests, attempt, pieces);
	note_lacking(shares, pieces);
	if (are_yielded(requests, attempt, pieces))
		return -EINPROGRESS;
	if (lacking < shares->count)
		return -EAGAIN;
	for (size_t i = 0; i < shares->count; i++) {
		if (shares->list[i].pages == 0)
			continue;
		int r = take_share(requests, attempt, &shares->list[i]);
		if (r < 0 && r != -EINPROGRESS) {
			desk_drop_shares(requests, shares);
			return r == -ENOSPC ? -EUCLEAN : r;
		}
		result = r < 0 ? r : result;
	}
	attempt->is_held = true;
	queue_note_passed(requests, attempt, pieces);
	return result;
}

int hold_collect(struct requests *requests, const struct attempt *attempt, struct hold_collection *ret_all)
{
	const struct request_shares *shares = attempt->shares;
	int r = 0;
	ret_all->count = 0;
	for (size_t i = 0; i < shares->count && r == 0; i++)
		r = collect_share(requests, &attempt->shares->list[i], desk_get_leases(attempt->wire),
			ret_all, &ret_all->counts[i]);
	if (r == 0 && attempt->wire->policy == HPZ_NODES_INTERLEAVE)
		put_in_turn(ret_all, shares->count);
	return r;
}
