/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* change.c - a lease gets another size. */
#include <inttypes.h>

#include "change.h"
#include "size.h"

static uint64_t count_pages_given(const struct lease *lease)
{
	uint64_t pages = 0;
	for (size_t i = 0; i < lease->segment_count; i++)
		pages += lease->segments[i] ? lease->segments[i]->given : 0;
	return pages;
}

static enum request_outcome grow_lease(struct requests *requests, struct session *session,
	const struct request_peer *peer, const struct hpz_wire_head *head,
	const struct hpz_wire_change *change, struct lease *lease)
{
	struct access_rule rule;
	/* Behind the last one, and of its cell: of its node, too. */
	struct pool *pool = lease->segments[lease->segment_count - 1]->pool;
	uint64_t given = lease_get_given(lease);
	desk_find_rule(requests, peer, &rule);
	if (change->priority > access_get_priority(&rule))
		return desk_refuse_priority(requests, head, &rule, change->priority);
	if (lease->segment_count >= HPZ_WIRE_MAX_FDS)
		return desk_refuse(requests, head, HPZ_ERR_TOO_LARGE,
			"lease %" PRIu64 " has %zu segments already", lease->id, lease->segment_count);
	if (lease_has_rest(requests->leases, lease))
		return desk_refuse(requests, head, HPZ_ERR_BUSY,
			"what lease %" PRIu64 " gave back is not back yet", lease->id);
	struct hpz_wire_lease wire = {
		.size = sizeof wire,
		.bytes = change->bytes - given,
		.page_size = pool->config.page_size,
		.node = pool->config.node,
		.timeout_ms = change->timeout_ms,
		.priority = change->priority,
		.owner_uid = lease->file_uid,
		.owner_gid = lease->file_gid,
	};
	supply_forget(&requests->supply);
	if (choose_get_most(pool) < size_pages(wire.bytes, pool->config.page_size))
		return choose_refuse(requests, head, &wire);
	requests->shares.count = 1;
	requests->shares.list[0] =
		(struct request_share){.pool = pool, .pages = size_pages(wire.bytes, pool->config.page_size)};
	return ask_shares(requests, session, peer, head, &wire, change);
}

static enum request_outcome shrink_lease(struct requests *requests, const struct request_peer *peer,
	const struct hpz_wire_head *head, const struct hpz_wire_change *change, struct lease *lease)
{
	uint64_t left = size_pages(change->bytes, lease->segments[0]->pool->config.page_size);
	struct lease *rest = NULL;
	size_t kept = 0;
	for (size_t i = 0; i < lease->segment_count; i++) {
		if (lease->segments[i]->is_busy) /* its tail is being punched, for a moment */
			return desk_refuse(requests, head, HPZ_ERR_BUSY,
				"lease %" PRIu64 " is being cut already", lease->id);
	}
	while (left > lease->segments[kept]->given)
		left -= lease->segments[kept++]->given;
	struct pool_segment *last = lease->segments[kept];
	bool is_cut = left < last->given;
	int r = lease_split(requests->leases, lease, kept + 1, left, change->bytes, &rest);
	if (r < 0)
		return desk_refuse(requests, head, HPZ_ERR_INTERNAL, "lease %" PRIu64 " cannot be shrunk: %s",
			lease->id, strerror(-r));
	handoff_split(requests->handoff, lease, rest, "its holder wants less");
	if (is_cut)
		handoff_trim(requests->handoff, last);
	reconcile_mark(requests->reconcile);
	requests->reply.fd_count = 0;
	return answer_changed(requests, peer, head, lease, HPZ_WIRE_MAX_FDS,
		&(struct hpz_wire_changed){.returning = rest ? rest->id : 0});
}

/* It has that size already: what of it the client does not have. */
static enum request_outcome answer_change(struct requests *requests, const struct request_peer *peer,
	const struct hpz_wire_head *head, const struct hpz_wire_change *change, struct lease *lease)
{
	int r = grant_deliver_from(requests, lease, change->known, lease->segment_count);
	if (r < 0)
		return desk_refuse(requests, head, r == -EWOULDBLOCK ? HPZ_ERR_BUSY : HPZ_ERR_INTERNAL,
			"lease %" PRIu64 " cannot be opened again: %s", lease->id, strerror(-r));
	return answer_changed(requests, peer, head, lease, change->known, &(struct hpz_wire_changed){0});
}

enum request_outcome change_handle(struct requests *requests, struct session *session,
	const struct request_peer *peer, const struct hpz_wire_head *head, const void *payload)
{
	const struct hpz_wire_change *wire = payload;
	struct access_rule rule;
	struct lease *lease = lease_find(requests->leases, wire->id);
	if (!lease || lease->state == HPZ_STATE_RETURNING) {
		bool is_known = lease || lease_is_known_id(requests->leases, wire->id);
		return desk_refuse(requests, head, is_known ? HPZ_ERR_ENDED : HPZ_ERR_UNKNOWN_LEASE,
			is_known ? "lease %" PRIu64 " has ended" : "lease %" PRIu64 " was never given",
			wire->id);
	}
	desk_find_rule(requests, peer, &rule);
	if (!access_may_touch(&rule, lease->uid))
		return desk_refuse_foreign(requests, head, &rule, lease);
	if (lease->state != HPZ_STATE_LEASED || lease->is_unknown)
		return desk_refuse(requests, head, HPZ_ERR_BUSY, "lease %" PRIu64 " is %s", lease->id,
			lease->is_unknown ? "known by its name only" : "not confirmed yet");
	uint64_t now = count_pages_given(lease);
	uint64_t wanted = size_pages(wire->bytes, lease->segments[0]->pool->config.page_size);
	if (wanted > now)
		return grow_lease(requests, session, peer, head, wire, lease);
	return wanted < now ? shrink_lease(requests, peer, head, wire, lease)
			    : answer_change(requests, peer, head, wire, lease);
}
