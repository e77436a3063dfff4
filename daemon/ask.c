/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* ask.c - requests for memory. */
#include <inttypes.h>

#include "ask.h"
#include "size.h"

static enum request_outcome let_wait(struct requests *requests, const struct hpz_wire_head *head,
	const struct attempt *attempt, bool is_impatient)
{
	const struct hpz_wire_lease *wire = attempt->wire;
	struct request *request = desk_make_waiting(
		requests, attempt->session, attempt->peer, head, is_impatient ? -1 : wire->timeout_ms);
	if (!request) {
		desk_drop_shares(requests, attempt->shares);
		return desk_refuse_waiting(requests, head);
	}
	request->is_impatient = is_impatient;
	request->lease = *wire;
	request->shares = *attempt->shares;
	request->target = attempt->target;
	request->target_bytes = attempt->target_bytes;
	request->known = attempt->known;
	request->is_held = attempt->is_held;
	request->has_waited = !attempt->is_held && !is_impatient;
	request->arrival = ++requests->arrivals;
	queue_insert(requests, request);
	for (size_t i = 0; i < request->shares.count; i++) {
		struct request_share *share = &request->shares.list[i];
		supply_pass(&requests->supply, share->pool, &attempt->shares->list[i], share);
	}
	queue_count(requests);
	return REQUEST_WAITS;
}

enum request_outcome ask_shares(struct requests *requests, struct session *session,
	const struct request_peer *peer, const struct hpz_wire_head *head, const struct hpz_wire_lease *wire,
	const struct hpz_wire_change *change)
{
	struct attempt attempt = {
		.shares = &requests->shares, .wire = wire, .peer = peer, .session = session, .op = head->op};
	if (change) {
		attempt.target = change->id;
		attempt.target_bytes = change->bytes - wire->bytes;
		attempt.known = change->known;
	}
	bool is_drained = desk_is_draining(attempt.shares);
	int r = is_drained ? -EAGAIN : grant_lease(requests, &attempt);
	reconcile_mark(requests->reconcile);
	if (r == 0)
		return answer_granted(requests, head, &attempt, false);
	if (r != -EAGAIN && r != -EINPROGRESS)
		return answer_refused(requests, head, r, &attempt);
	bool is_impatient = r == -EINPROGRESS && wire->timeout_ms == 0;
	if ((wire->timeout_ms == 0 && !is_impatient) || is_drained)
		return answer_short(requests, head, HPZ_ERR_NO_MEMORY, &attempt);
	return let_wait(requests, head, &attempt, is_impatient);
}

/* A lease or a reservation of what is nobody's. */
static enum request_outcome ask_for_memory(struct requests *requests, struct session *session,
	const struct request_peer *peer, const struct hpz_wire_head *head, const struct hpz_wire_lease *wire)
{
	struct access_rule rule;
	desk_find_rule(requests, peer, &rule);
	if (wire->priority > access_get_priority(&rule))
		return desk_refuse_priority(requests, head, &rule, wire->priority);
	supply_forget(&requests->supply);
	if (!choose_shares(requests, head, wire, peer))
		return REQUEST_REPLIED;
	return ask_shares(requests, session, peer, head, wire, NULL);
}

static enum request_outcome refuse_foreign_reservation(struct requests *requests,
	const struct hpz_wire_head *head, const struct access_rule *rule,
	const struct reservation *reservation)
{
	char what[96];
	snprintf(what, sizeof what, "touch reservation %" PRIu64 ", which belongs to uid %" PRIu32,
		reservation->id, reservation->uid);
	return desk_refuse_denied(requests, head, rule, what);
}

/* No reservation of that id. */
static enum request_outcome refuse_unknown(
	struct requests *requests, const struct hpz_wire_head *head, uint64_t id)
{
	if (lease_find(requests->leases, id))
		return desk_refuse(
			requests, head, HPZ_ERR_INVALID, "%" PRIu64 " is a lease, not a reservation", id);
	if (lease_is_known_id(requests->leases, id))
		return desk_refuse(requests, head, HPZ_ERR_ENDED, "reservation %" PRIu64 " has ended", id);
	return desk_refuse(
		requests, head, HPZ_ERR_UNKNOWN_LEASE, "reservation %" PRIu64 " was never given", id);
}

/* A lease out of what a reservation keeps. */
static enum request_outcome lease_reserved(struct requests *requests, struct session *session,
	const struct request_peer *peer, const struct hpz_wire_head *head, const struct hpz_wire_lease *wire)
{
	struct access_rule rule;
	struct reservation *reservation = reserve_find(&requests->reserves, wire->reservation);
	if (!reservation)
		return refuse_unknown(requests, head, wire->reservation);
	desk_find_rule(requests, peer, &rule);
	if (!access_may_touch(&rule, reservation->uid))
		return refuse_foreign_reservation(requests, head, &rule, reservation);
	struct pool *pool = reservation->pool;
	if (!choose_fits_node(pool, wire->node) ||
		(wire->page_size && wire->page_size != pool->config.page_size))
		return desk_refuse(requests, head, HPZ_ERR_INVALID,
			"reservation %" PRIu64 " is of pool %s, which has another node or page size",
			reservation->id, pool->name);
	supply_forget(&requests->supply);
	requests->shares.count = 1;
	requests->shares.list[0] = (struct request_share){
		.pool = pool, .pages = size_pages(wire->bytes, pool->config.page_size)};
	return ask_shares(requests, session, peer, head, wire, NULL);
}

enum request_outcome ask_handle_lease(struct requests *requests, struct session *session,
	const struct request_peer *peer, const struct hpz_wire_head *head, const void *payload)
{
	const struct hpz_wire_lease *wire = payload;
	char key[HPZ_WIRE_KEY + 1];
	proto_get_text(wire->key, sizeof wire->key, key);
	struct lease *lease = lease_find_key(requests->leases, peer->uid, key);
	if (lease)
		return answer_key(requests, session, peer, head, wire, lease);
	struct access_rule rule;
	struct lease draft = {0};
	desk_find_rule(requests, peer, &rule);
	grant_fill_draft(wire, peer, &draft);
	if (!access_may_give(&rule, draft.file_uid, draft.file_gid))
		return desk_refuse_denied(requests, head, &rule, "give memory to another user or group");
	if (wire->reservation)
		return lease_reserved(requests, session, peer, head, wire);
	return ask_for_memory(requests, session, peer, head, wire);
}

enum request_outcome ask_handle_reserve(struct requests *requests, struct session *session,
	const struct request_peer *peer, const struct hpz_wire_head *head, const void *payload)
{
	return ask_for_memory(requests, session, peer, head, payload);
}

enum request_outcome ask_handle_unreserve(struct requests *requests, struct session *session,
	const struct request_peer *peer, const struct hpz_wire_head *head, const void *payload)
{
	const struct hpz_wire_release *wire = payload;
	struct access_rule rule;
	struct reservation *reservation = reserve_find(&requests->reserves, wire->id);
	bool has_ended = !reservation && !lease_find(requests->leases, wire->id) &&
			 lease_is_known_id(requests->leases, wire->id);
	if (has_ended)
		return desk_reply_empty(requests, head);
	if (!reservation)
		return refuse_unknown(requests, head, wire->id);
	desk_find_rule(requests, peer, &rule);
	if (!access_may_touch(&rule, reservation->uid))
		return refuse_foreign_reservation(requests, head, &rule, reservation);
	reserve_end(&requests->reserves, reservation, "its owner does not want it any more");
	return desk_reply_empty(requests, head);
}

/* What came of a request that waited. */
static void answer_attempt(
	struct requests *requests, struct request *request, const struct attempt *attempt, int r)
{
	struct hpz_wire_head head = desk_make_head(request);
	if (r == 0)
		answer_granted(requests, &head, attempt, request->has_waited);
	else if (r == -EPERM)
		answer_short(requests, &head, HPZ_ERR_DRAINED, attempt);
	else if (r == -EAGAIN)
		answer_short(requests, &head, HPZ_ERR_NO_MEMORY, attempt);
	else
		answer_refused(requests, &head, r, attempt);
	desk_answer(request);
}

/* Asked twice with one key, and served once already. */
static bool answer_same(struct requests *requests, struct request *request)
{
	char key[HPZ_WIRE_KEY + 1];
	struct hpz_wire_head head = desk_make_head(request);
	proto_get_text(request->lease.key, sizeof request->lease.key, key);
	struct lease *same = lease_find_key(requests->leases, request->peer.uid, key);
	if (!same)
		return false;
	answer_key(requests, request->session, &request->peer, &head, &request->lease, same);
	desk_answer(request);
	return true;
}

struct attempt ask_make_attempt(struct request *request)
{
	return (struct attempt){
		.shares = &request->shares,
		.wire = &request->lease,
		.peer = &request->peer,
		.session = request->session,
		.request = request,
		.op = request->op,
		.target = request->target,
		.target_bytes = request->target_bytes,
		.known = request->known,
		.is_held = request->is_held,
	};
}

static void serve_lease(struct requests *requests, struct request *request)
{
	if (answer_same(requests, request))
		return;
	choose_again(requests, request);
	struct attempt attempt = ask_make_attempt(request);
	int r = desk_is_draining(&request->shares) ? -EPERM : grant_lease(requests, &attempt);
	request->is_held = attempt.is_held;
	if (r == -EAGAIN && !request->is_impatient)
		request->has_waited = true;
	else if (r != -EINPROGRESS)
		answer_attempt(requests, request, &attempt, r);
}

void ask_serve(struct requests *requests)
{
	supply_forget(&requests->supply);
	reserve_look(&requests->reserves);
	LIST_FOR_EACH_SAFE (pos, &requests->waiting) {
		struct request *request = CONTAINER_OF(pos, struct request, link);
		if (queue_is_for_memory(request))
			serve_lease(requests, request);
	}
	queue_count(requests);
}
