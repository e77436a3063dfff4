/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* answer.c - what is said to a request for memory. */
#include <inttypes.h>

#include "answer.h"
#include "news.h"
#include "log.h"
#include "metrics.h"
#include "report.h"
#include "size.h"

/* What came of a share. Those that may come in several pieces teach nothing: any mixture serves them. */
static void count_demand(
	const struct request_share *share, const struct hpz_wire_lease *wire, enum demand_served how)
{
	bool is_any = (wire->flags & HPZ_LEASE_SEGMENTS) || wire->policy == HPZ_NODES_INTERLEAVE;
	if (!is_any && share->pages > 0)
		demand_ask(&share->pool->demand, clock_get_ns(CLOCK_BOOTTIME), share->pages, how);
}

static enum demand_served get_served(
	const struct lease *lease, uint32_t cell, uint64_t zeroed_pages, bool has_waited)
{
	if (has_waited)
		return DEMAND_WAITED;
	if (zeroed_pages > 0)
		return DEMAND_ZEROED;
	for (size_t i = 0; i < lease->segment_count; i++) {
		const struct pool_segment *segment = lease->segments[i];
		if (segment->cell == cell && segment->pages != segment->given)
			return DEMAND_LARGER;
	}
	return DEMAND_EXACT;
}

/*
 * Everything about a lease, at the end of a reply's payload; its descriptors are in the reply already, the
 * first at that index. Returns the bytes.
 */
static size_t put_leased(struct requests *requests, const struct request_peer *peer, size_t used,
	const struct lease *lease, size_t first_descriptor, uint64_t ready, uint64_t zeroed)
{
	struct hpz_wire_leased *payload = (void *)((unsigned char *)desk_get_payload(requests) + used);
	*payload = (struct hpz_wire_leased){
		.size = sizeof *payload,
		.segments = (uint32_t)lease->segment_count,
		.id = lease->id,
		.asked = lease->asked,
		.given = lease_get_given(lease),
		.ready = ready,
		.deliver = lease->deliver,
		.zeroed = zeroed,
	};
	struct hpz_wire_segment *records = (struct hpz_wire_segment *)(payload + 1);
	for (size_t i = 0; i < lease->segment_count; i++)
		report_segment(lease, i, requests->reply.fd_count > 0 ? (int32_t)(first_descriptor + i) : -1,
			peer->capabilities & HPZ_WIRE_CAN_CELLS, &records[i]);
	return sizeof *payload + lease->segment_count * sizeof *records;
}

enum request_outcome answer_leased(struct requests *requests, const struct hpz_wire_head *head,
	const struct request_peer *peer, const struct lease *lease, uint64_t ready, uint64_t zeroed)
{
	requests->reply.lease = lease->id;
	return desk_finish_reply(
		requests, head->op, head->id, put_leased(requests, peer, 0, lease, 0, ready, zeroed));
}

enum request_outcome answer_changed(struct requests *requests, const struct request_peer *peer,
	const struct hpz_wire_head *head, const struct lease *lease, uint32_t known,
	const struct hpz_wire_changed *news)
{
	struct hpz_wire_changed *payload = desk_get_payload(requests);
	size_t first = MIN(known, lease->segment_count);
	*payload = *news;
	payload->size = sizeof *payload;
	payload->segments = (uint32_t)(lease->segment_count - first);
	payload->id = lease->id;
	payload->given = lease_get_given(lease);
	payload->total = (uint32_t)lease->segment_count;
	payload->deliver = lease->deliver;
	struct hpz_wire_segment *records = (struct hpz_wire_segment *)(payload + 1);
	for (size_t i = first; i < lease->segment_count; i++)
		report_segment(lease, i, requests->reply.fd_count > 0 ? (int32_t)(i - first) : -1,
			peer->capabilities & HPZ_WIRE_CAN_CELLS, &records[i - first]);
	requests->reply.lease = lease->id;
	return desk_finish_reply(
		requests, head->op, head->id, sizeof *payload + payload->segments * sizeof *records);
}

/* What would help, by what the planner lacked. */
static const char *get_advice(enum planner_reason reason)
{
	switch (reason) {
	case PLANNER_QUEUE:
		return "others wait longer for it: wait, too (a time limit), or enlarge the pool";
	case PLANNER_COMING:
		return "wait for what is being cleared or filled (a time limit)";
	case PLANNER_LID:
		return "the pool may hold no more: raise its max_pages, end a lease, or wait (a time limit)";
	case PLANNER_BUSY:
		return "no memory can be zeroed for it now (hpzctl set enabled=yes, if that is off): wait (a "
		       "time "
		       "limit)";
	case PLANNER_SHORT:
		return "the kernel has no free pages for the rest: raise nr_hugepages of the node or the "
		       "pool's pages, end a lease, or wait (a time limit)";
	case PLANNER_NO_REASON:
	case PLANNER_DRAINED:
		break;
	}
	return "wait for it (a time limit), or enlarge the pool";
}

void answer_explain_short(
	struct requests *requests, const struct attempt *attempt, size_t index, enum planner_reason reason)
{
	char size[SIZE_TEXT], page[SIZE_TEXT], clean[SIZE_TEXT], largest[SIZE_TEXT], dirty[SIZE_TEXT],
		fill[SIZE_TEXT], set[64] = "", other[96] = "";
	const struct request_share *share = &attempt->shares->list[index];
	const struct hpz_wire_lease *wire = attempt->wire;
	const struct pool *pool = share->pool;
	uint64_t page_size = pool->config.page_size;
	uint64_t bytes =
		attempt->shares->count > 1 ? share->pages * page_size : wire->bytes * desk_get_leases(wire);
	int32_t node = choose_find_other(requests, attempt);
	if (wire->cells)
		snprintf(set, sizeof set, "cell %zu of %" PRIu32 ": ", index, wire->cells);
	else if (attempt->shares->count > 1)
		snprintf(set, sizeof set, "its part of %zu: ", attempt->shares->count);
	if (node >= 0)
		snprintf(other, sizeof other, "node %" PRId32 " could serve it (--node-policy preferred); ",
			node);
	snprintf(requests->text, sizeof requests->text,
		"%spool %s, node %" PRId32
		", pages of %s: %s asked; %s is clean, the largest piece %s; %s is being cleared, %s is "
		"being filled, %" PRIu32 " requests wait; %s%s",
		set, pool->name, pool->config.node, size_format_exact(page_size, page),
		size_format(bytes, size), size_format(pool->pages[SEGMENT_CLEAN] * page_size, clean),
		size_format(pool_get_largest_clean(pool) * page_size, largest),
		size_format(pool->pages[SEGMENT_DIRTY] * page_size, dirty),
		size_format(pool->pages[SEGMENT_FILLING] * page_size, fill), pool->waiting, other,
		get_advice(reason));
}

/* Why a reservation does not give what is asked, though it has as much left. */
static void explain_reserved(struct requests *requests, const struct hpz_wire_lease *wire)
{
	char size[SIZE_TEXT], left[SIZE_TEXT], ready[SIZE_TEXT];
	const struct reservation *reservation = reserve_find(&requests->reserves, wire->reservation);
	if (!reservation)
		return;
	snprintf(requests->text, sizeof requests->text,
		"%s asked of reservation %" PRIu64
		", which has %s left, %s of it ready%s; wait for it (a time "
		"limit), or take it in several segments",
		size_format(wire->bytes, size), reservation->id,
		size_format(reserve_get_bytes(reservation), left),
		size_format(reserve_get_ready(reservation) * reservation->pool->config.page_size, ready),
		reservation->flags & HPZ_LEASE_SEGMENTS ? " and in several pieces" : "");
}

enum request_outcome answer_short(
	struct requests *requests, const struct hpz_wire_head *head, int error, const struct attempt *attempt)
{
	struct spread_piece pieces[SPREAD_PIECES_MAX];
	for (size_t i = 0; i < attempt->shares->count; i++) {
		const struct pool *pool = attempt->shares->list[i].pool;
		if (pool->is_draining)
			return desk_refuse(requests, head, HPZ_ERR_DRAINED,
				"pool %s is drained: reload or restart hpzd to fill it again", pool->name);
	}
	for (size_t i = 0; i < attempt->shares->count; i++)
		count_demand(&attempt->shares->list[i], attempt->wire, DEMAND_REFUSED);
	size_t lacking = hold_plan(requests, attempt, pieces);
	if (lacking == attempt->shares->count) /* it has come this very moment */
		lacking = 0;
	answer_explain_short(requests, attempt, lacking, pieces[lacking].reason);
	if (attempt->wire->reservation)
		explain_reserved(requests, attempt->wire);
	return desk_make_error(requests, head->op, head->id, error, 0, requests->text);
}

enum request_outcome answer_no_owner(
	struct requests *requests, const struct hpz_wire_head *head, int r, int32_t pid)
{
	if (r == -EACCES)
		return desk_refuse(requests, head, HPZ_ERR_DENIED,
			"process %" PRId32 " belongs to another user, and only root or an admin may have it "
			"own a lease",
			pid);
	return desk_refuse(
		requests, head, HPZ_ERR_INVALID, "there is no process %" PRId32 " to own the lease", pid);
}

static enum request_outcome refuse_beyond(
	struct requests *requests, const struct hpz_wire_head *head, const struct hpz_wire_lease *wire)
{
	char size[SIZE_TEXT], left[SIZE_TEXT];
	const struct reservation *reservation = reserve_find(&requests->reserves, wire->reservation);
	return desk_refuse(requests, head, HPZ_ERR_TOO_LARGE,
		"%s asked of reservation %" PRIu64 ", which has %s left", size_format(wire->bytes, size),
		reservation->id, size_format(reserve_get_bytes(reservation), left));
}

enum request_outcome answer_refused(
	struct requests *requests, const struct hpz_wire_head *head, int r, const struct attempt *attempt)
{
	const struct hpz_wire_lease *wire = attempt->wire;
	if (r == -ESRCH || r == -EACCES)
		return answer_no_owner(requests, head, r, wire->owner_pid);
	if (r == -EDQUOT)
		return desk_make_error(requests, head->op, head->id, HPZ_ERR_QUOTA, 0, requests->text);
	if (r == -EALREADY)
		return desk_refuse(requests, head, HPZ_ERR_BUSY, "the lease got another size meanwhile");
	if (r == -ESTALE && head->op == HPZ_OP_CHANGE)
		return desk_refuse(requests, head, HPZ_ERR_ENDED, "the lease has ended");
	if (r == -ESTALE)
		return desk_refuse(requests, head, HPZ_ERR_ENDED, "reservation %" PRIu64 " has ended",
			wire->reservation);
	if (r == -EFBIG)
		return refuse_beyond(requests, head, wire);
	log_error("pool %s: a lease failed: %s", attempt->shares->list[0].pool->name, strerror(-r));
	return desk_refuse(
		requests, head, HPZ_ERR_INTERNAL, "hpzd could not hand out memory: %s", strerror(-r));
}

/* Whether its segments are of cells like these. */
static bool has_cells(const struct lease *lease, const struct hpz_wire_lease *wire)
{
	uint64_t bytes[HPZ_WIRE_CELLS] = {0};
	for (size_t i = 0; i < lease->segment_count; i++) {
		const struct pool_segment *segment = lease->segments[i];
		if (!segment || segment->cell >= MAX(wire->cells, 1u) ||
			(wire->cells && wire->cell[segment->cell].node != segment->pool->config.node))
			return false;
		bytes[segment->cell] += segment->given * segment->pool->config.page_size;
	}
	for (uint32_t i = 0; i < wire->cells; i++) {
		if (bytes[i] < wire->cell[i].bytes)
			return false;
	}
	return true;
}

enum request_outcome answer_key(struct requests *requests, struct session *session,
	const struct request_peer *peer, const struct hpz_wire_head *head, const struct hpz_wire_lease *wire,
	struct lease *lease)
{
	if (lease->asked != wire->bytes || lease->deliver != wire->deliver || !has_cells(lease, wire))
		return desk_refuse(requests, head, HPZ_ERR_KEY_MISMATCH,
			"the key belongs to lease %" PRIu64
			", which is of another size or delivered otherwise",
			lease->id);
	requests->reply.fd_count = 0;
	int r = grant_deliver(requests, lease, false);
	if (r < 0)
		return desk_refuse(requests, head, r == -EWOULDBLOCK ? HPZ_ERR_BUSY : HPZ_ERR_INTERNAL,
			"lease %" PRIu64 " cannot be opened again: %s", lease->id, strerror(-r));
	if (lease->state == HPZ_STATE_OFFERED || grant_is_bound(lease))
		lease->bound = session;
	return answer_leased(requests, head, peer, lease, lease_get_given(lease), 0);
}

static enum request_outcome reply_reserved(struct requests *requests, const struct hpz_wire_head *head,
	const struct reservation *reservation, uint64_t ready, uint64_t zeroed)
{
	struct hpz_wire_reserved *payload = desk_get_payload(requests);
	*payload = (struct hpz_wire_reserved){
		.size = sizeof *payload,
		.node = reservation->pool->config.node,
		.id = reservation->id,
		.asked = reservation->asked,
		.given = reserve_get_bytes(reservation),
		.ready = ready,
		.zeroed = zeroed,
		.page_size = reservation->pool->config.page_size,
		.ttl_ms = reserve_get_ttl_ms(reservation),
	};
	proto_set_text(payload->pool, sizeof payload->pool, reservation->pool->name);
	requests->reply.fd_count = 0;
	requests->reply.lease = 0;
	return desk_finish_reply(requests, head->op, head->id, sizeof *payload);
}

static void count_served(
	const struct attempt *attempt, const struct lease *lease, uint64_t zeroed_pages, bool has_waited)
{
	const struct request_shares *shares = attempt->shares;
	for (size_t i = 0; i < shares->count; i++) {
		const struct request_share *share = &shares->list[i];
		uint64_t zeroed = shares->count > 1 ? share->zeroed_pages : zeroed_pages;
		count_demand(share, attempt->wire, get_served(lease, share->cell, zeroed, has_waited));
	}
}

/* What it grew by; the lease's other segments were counted when they were given. */
static enum request_outcome reply_grown(struct requests *requests, const struct hpz_wire_head *head,
	const struct attempt *attempt, uint64_t ready, bool has_waited)
{
	const struct request_share *share = &attempt->shares->list[0];
	const struct lease *lease = attempt->leases[0];
	struct lease added = {.segments = &lease->segments[lease->segment_count - 1], .segment_count = 1};
	struct hpz_wire_changed news = {
		.ready = ready, .zeroed = share->zeroed_pages * share->pool->config.page_size};
	count_demand(share, attempt->wire,
		get_served(&added, added.segments[0]->cell, share->zeroed_pages, has_waited));
	return answer_changed(requests, attempt->peer, head, lease, attempt->known, &news);
}

/* What a reservation keeps counts when it is leased. */
static void count_granted(const struct attempt *attempt, uint64_t ready, uint64_t zeroed)
{
	uint64_t given = grant_get_bytes(attempt);
	if (attempt->op == HPZ_OP_RESERVE)
		return;
	for (size_t i = 0; i < attempt->lease_count; i++) {
		const struct lease *lease = attempt->leases[i];
		struct news event = {.kind = HPZ_EVENT_GRANTED,
			.lease = lease->id,
			.uid = lease->uid,
			.pid = lease->pid,
			.bytes = lease->counted_bytes};
		snprintf(event.label, sizeof event.label, "%s", lease->label);
		news_add(&event);
	}
	metrics_add(METRICS_GRANTED_BYTES, METRICS_CLEAN, ready);
	metrics_add(METRICS_GRANTED_BYTES, METRICS_ZEROED, zeroed);
	metrics_add(METRICS_GRANTED_BYTES, METRICS_WAITED, given - MIN(given, ready + zeroed));
}

enum request_outcome answer_granted(struct requests *requests, const struct hpz_wire_head *head,
	const struct attempt *attempt, bool has_waited)
{
	uint64_t page_size = desk_get_page_size(attempt), ready = 0, zeroed = 0;
	bool can_zeroed = attempt->peer->capabilities & HPZ_WIRE_CAN_ZEROED;
	for (size_t i = 0; i < attempt->shares->count; i++) {
		ready += has_waited ? 0 : attempt->shares->list[i].ready_pages * page_size;
		zeroed += attempt->shares->list[i].zeroed_pages * page_size;
	}
	count_granted(attempt, ready, zeroed);
	if (attempt->op == HPZ_OP_CHANGE)
		return reply_grown(requests, head, attempt, ready, has_waited);
	if (attempt->op == HPZ_OP_RESERVE)
		return reply_reserved(requests, head, attempt->reservation, ready, zeroed);
	size_t used = 0, descriptor = 0;
	for (size_t i = 0; i < attempt->lease_count; i++) {
		const struct lease *lease = attempt->leases[i];
		uint64_t its_ready = MIN(ready, lease_get_given(lease));
		uint64_t its_zeroed = MIN(zeroed, lease_get_given(lease) - its_ready);
		count_served(attempt, lease, its_zeroed / page_size, has_waited);
		used += put_leased(requests, attempt->peer, used, lease, descriptor, its_ready,
			can_zeroed ? its_zeroed : 0);
		descriptor += lease->segment_count;
		ready -= its_ready;
		zeroed -= its_zeroed;
	}
	requests->reply.lease = attempt->leases[0]->id;
	return desk_finish_reply(requests, head->op, head->id, used);
}
