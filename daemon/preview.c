/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* preview.c - what would come of a request for memory. */
#include <inttypes.h>

#include "preview.h"
#include "size.h"

/* For people: what of a share is clean, and where the rest comes from. Returns the length of all. */
static size_t explain_share(struct requests *requests, size_t used, const struct request_share *share,
	const struct spread_piece *piece)
{
	char *text = requests->text;
	const size_t size = sizeof requests->text;
	char ready[SIZE_TEXT], zeroed[SIZE_TEXT], from[3][SIZE_TEXT];
	uint64_t page_size = share->pool->config.page_size;
	uint64_t dirty = MIN(piece->dirty_pages, piece->zeroed_pages);
	uint64_t clean = MIN(piece->clean_pages, piece->zeroed_pages - dirty);
	used += (size_t)snprintf(text + used, size - used,
		"%spool %s, node %" PRId32 ": %s is clean, in %zu segment%s", used ? "; " : "",
		share->pool->name, share->pool->config.node,
		size_format(piece->ready_pages * page_size, ready), piece->parts,
		piece->parts == 1 ? "" : "s");
	if (used < size && piece->tail_pages > 0)
		used += (size_t)snprintf(text + used, size - used,
			"; %" PRIu64 " pages behind it go back to the kernel", piece->tail_pages);
	if (used < size && piece->zeroed_pages > 0)
		used += (size_t)snprintf(text + used, size - used,
			"; %s is zeroed first, on pages that are free (%s), of dirty segments (%s), of clean "
			"ones of another size (%s)",
			size_format(piece->zeroed_pages * page_size, zeroed),
			size_format((piece->zeroed_pages - dirty - clean) * page_size, from[0]),
			size_format(dirty * page_size, from[1]), size_format(clean * page_size, from[2]));
	return MIN(used, size - 1);
}

/* What a share gives. */
static void add_given(const struct spread_piece *piece, uint64_t page_size, struct hpz_wire_planned *planned)
{
	/* Of what is unlinked more may come free than is needed. */
	uint64_t dirty = MIN(piece->dirty_pages, piece->zeroed_pages);
	uint64_t clean = MIN(piece->clean_pages, piece->zeroed_pages - dirty);
	planned->segments += (uint32_t)piece->parts;
	planned->given += (piece->ready_pages + piece->zeroed_pages) * page_size;
	planned->ready += piece->ready_pages * page_size;
	planned->zeroed += piece->zeroed_pages * page_size;
	planned->from_dirty += dirty * page_size;
	planned->from_clean += clean * page_size;
	planned->from_free += (piece->zeroed_pages - dirty - clean) * page_size;
}

static uint32_t get_plan_kind(const struct request_shares *shares, const struct spread_piece *pieces)
{
	static const uint32_t kinds[] = {
		[PLANNER_WAIT] = HPZ_PLAN_WAIT,
		[PLANNER_EXACT] = HPZ_PLAN_EXACT,
		[PLANNER_TRIM] = HPZ_PLAN_TRIM,
		[PLANNER_EXTEND] = HPZ_PLAN_EXTEND,
		[PLANNER_SEVERAL] = HPZ_PLAN_SEVERAL,
	};
	return shares->count == 1 ? kinds[pieces[0].kind] : HPZ_PLAN_SEVERAL;
}

/* What is given, and the text of it. */
static void fill_given(struct requests *requests, const struct request_shares *shares,
	const struct spread_piece *pieces, struct hpz_wire_planned *planned)
{
	size_t used = 0;
	planned->kind = get_plan_kind(shares, pieces);
	requests->text[0] = '\0';
	for (size_t i = 0; i < shares->count; i++) {
		if (shares->list[i].pages == 0)
			continue;
		add_given(&pieces[i], shares->list[i].pool->config.page_size, planned);
		used = explain_share(requests, used, &shares->list[i], &pieces[i]);
	}
}

static void refuse_plan(struct hpz_wire_planned *planned, int error)
{
	*planned = (struct hpz_wire_planned){
		.size = sizeof *planned,
		.kind = HPZ_PLAN_REFUSE,
		.error = (uint32_t)error,
		.asked = planned->asked,
		.page_size = planned->page_size,
		.node = planned->node,
		.waiting = planned->waiting,
	};
}

/* The text is in requests->text afterwards. */
static void plan_lease(struct requests *requests, struct attempt *attempt, struct hpz_wire_planned *planned)
{
	struct request_shares *shares = attempt->shares;
	struct spread_piece pieces[SPREAD_PIECES_MAX];
	if (attempt->wire->policy == HPZ_NODES_INTERLEAVE)
		hold_divide(requests, attempt);
	size_t lacking = hold_plan(requests, attempt, pieces);
	if (desk_is_draining(shares)) {
		refuse_plan(planned, HPZ_ERR_DRAINED);
		snprintf(requests->text, sizeof requests->text, "pool %s is drained",
			shares->list[0].pool->name);
	} else if (!desk_has_quota(requests, attempt->peer, desk_get_leases(attempt->wire),
			   grant_get_bytes(attempt), NULL)) {
		refuse_plan(planned, HPZ_ERR_QUOTA);
	} else if (lacking < shares->count) {
		planned->kind = HPZ_PLAN_WAIT;
		if (attempt->wire->timeout_ms == 0)
			refuse_plan(planned, HPZ_ERR_NO_MEMORY);
		answer_explain_short(requests, attempt, lacking, pieces[lacking].reason);
	} else {
		fill_given(requests, shares, pieces, planned);
	}
}

enum request_outcome preview_handle(struct requests *requests, struct session *session,
	const struct request_peer *peer, const struct hpz_wire_head *head, const void *payload)
{
	const struct hpz_wire_lease *wire = payload;
	struct attempt attempt = {
		.shares = &requests->shares, .wire = wire, .peer = peer, .session = session};
	if (wire->reservation)
		return desk_refuse(requests, head, HPZ_ERR_INVALID,
			"what a reservation keeps needs no plan: it is there, or comes");
	supply_forget(&requests->supply);
	if (!choose_shares(requests, head, wire, peer))
		return REQUEST_REPLIED;
	const struct pool *pool = requests->shares.list[0].pool;
	struct hpz_wire_planned *planned = desk_get_payload(requests);
	*planned = (struct hpz_wire_planned){
		.size = sizeof *planned,
		.asked = wire->bytes,
		.page_size = pool->config.page_size,
		.node = pool->config.node,
	};
	bool is_one = true;
	for (size_t i = 0; i < requests->shares.count; i++) {
		const struct request_share *share = &requests->shares.list[i];
		planned->waiting = MAX(planned->waiting, share->pool->waiting);
		is_one = is_one && share->pool == pool;
	}
	if (!is_one)
		planned->node = HPZ_WIRE_NODE_ANY;
	plan_lease(requests, &attempt, planned);
	proto_set_text(planned->pool, sizeof planned->pool, is_one ? pool->name : "");
	proto_set_text(planned->text, sizeof planned->text, requests->text);
	return desk_finish_reply(requests, head->op, head->id, sizeof *planned);
}
