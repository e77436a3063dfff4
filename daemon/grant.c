/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* grant.c - memory changes hands. */
#include <inttypes.h>

#include "grant.h"
#include "log.h"
#include "owner.h"
#include "size.h"

#define TRIES_MAX 8 /* segments found unfit before a request is given up */

int grant_find_owner(const struct requests *requests, const struct hpz_wire_lease *wire,
	const struct request_peer *peer, struct lease *draft, int *ret_pidfd, int *ret_opened)
{
	struct host host = {.root = (char *)""};
	struct access_rule rule;
	uint32_t uid;
	*ret_pidfd = -1;
	if (wire->owner_pid)
		host_get_comm(&host, wire->owner_pid, draft->comm);
	else
		memcpy(draft->comm, peer->comm, sizeof draft->comm);
	if (wire->owner_pid == 0 && wire->deliver == HPZ_DELIVER_PATH)
		return 0;
	if (wire->owner_pid == 0) {
		draft->pid = peer->pid;
		draft->pid_start = peer->pid_start;
		*ret_pidfd = peer->pidfd;
		return *ret_pidfd < 0 ? -ESRCH : 0;
	}
	draft->pid = wire->owner_pid;
	*ret_pidfd = *ret_opened = handoff_open_process(wire->owner_pid, 0);
	if (*ret_pidfd < 0)
		return *ret_pidfd;
	int r = host_get_process_uid(&host, draft->pid, &uid);
	desk_find_rule(requests, peer, &rule);
	if (r == 0 && !access_may_give(&rule, uid, peer->gid))
		r = -EACCES;
	if (r == 0)
		r = host_get_start_time(&host, draft->pid, &draft->pid_start);
	return r < 0 || owner_is_alive(*ret_pidfd) ? r : -ESRCH;
}

void grant_fill_draft(const struct hpz_wire_lease *wire, const struct request_peer *peer, struct lease *draft)
{
	proto_get_text(wire->label, sizeof wire->label, draft->label);
	proto_get_text(wire->key, sizeof wire->key, draft->key);
	draft->uid = peer->uid;
	draft->gid = peer->gid;
	draft->flags = wire->flags | (wire->policy == HPZ_NODES_INTERLEAVE ? HPZ_LEASE_SEGMENTS : 0);
	draft->deliver = wire->deliver;
	draft->file_uid = desk_get_file_uid(wire, peer);
	draft->file_gid = wire->owner_gid < 0 ? peer->gid : (uint32_t)wire->owner_gid;
	draft->file_mode = wire->mode ? wire->mode : 0600;
	draft->open_timeout_ms = wire->open_timeout_ms;
	draft->asked = wire->bytes;
}

bool grant_is_bound(const struct lease *lease)
{
	return lease->deliver == HPZ_DELIVER_FD && !(lease->flags & HPZ_LEASE_UNBOUND);
}

int grant_deliver(struct requests *requests, struct lease *lease, bool is_new)
{
	struct request_reply *reply = &requests->reply;
	if (lease->deliver == HPZ_DELIVER_PATH)
		return is_new ? handoff_link(requests->handoff, lease) : 0;
	if (reply->fd_count + lease->segment_count > ARRAY_SIZE(reply->fds))
		return -EMFILE;
	int r = handoff_open(requests->handoff, lease, is_new, reply->fds + reply->fd_count);
	if (r == 0)
		reply->fd_count += lease->segment_count;
	return r;
}

/* Names that somebody removed behind our back. */
static void forget_vanished(struct pool_segment **segments, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		struct pool *pool = segments[i]->pool;
		if (segments[i]->state != SEGMENT_CLEAN || pool_refresh(segments[i]) != -ENOENT)
			continue;
		log_error("pool %s: segment %" PRIu64 " has vanished from %s", pool->name, segments[i]->id,
			pool->store->path);
		pool_forget(segments[i]);
	}
}

/* No memory for a watch: nobody has seen it, so it goes back as it came. */
static void undo_grant(struct requests *requests, struct lease *lease)
{
	handoff_drop_token(lease, lease->segments, lease->segment_count);
	for (size_t i = 0; i < lease->segment_count; i++) {
		struct pool_segment *segment = lease->segments[i];
		lease_drop_segment(requests->leases, lease, segment);
		if (pool_set_state(segment, SEGMENT_DIRTY) < 0)
			pool_strand(segment);
	}
	lease_end(requests->leases, lease);
}

static bool was_opened(struct requests *requests, const struct lease *lease)
{
	bool was_opened = false;
	for (size_t i = 0; i < lease->segment_count; i++)
		was_opened = reconcile_was_opened(requests->reconcile, lease->segments[i]) || was_opened;
	return was_opened;
}

/* The lease of clean segments, with its directory if it has one. -EUCLEAN: one of them is gone. */
static int make_lease(struct requests *requests, struct attempt *attempt, struct pool_segment **segments,
	const uint64_t *given, size_t count, struct lease **ret_lease)
{
	int r = 0;
	if (attempt->draft.deliver == HPZ_DELIVER_PATH)
		r = handoff_make_token(&attempt->draft, segments, count);
	if (r < 0)
		return r;
	struct lease *lease = NULL;
	r = lease_grant(requests->leases, &attempt->draft, segments, given, count, &lease);
	if (r < 0)
		handoff_drop_token(&attempt->draft, segments, count);
	if (r == -ENOENT) {
		forget_vanished(segments, count);
		return -EUCLEAN;
	}
	if (r < 0)
		return r;
	r = handoff_watch(requests->handoff, lease, attempt->pidfd);
	if (r < 0)
		undo_grant(requests, lease);
	else
		*ret_lease = lease;
	return r;
}

/* One lease, taken and delivered. -EUCLEAN: these were not fit, others may be. */
static int hand_out_one(struct requests *requests, struct attempt *attempt, struct pool_segment **segments,
	const uint64_t *given, size_t count)
{
	struct lease *lease;
	int r = make_lease(requests, attempt, segments, given, count, &lease);
	if (r < 0)
		return r;
	r = was_opened(requests, lease) ? -EUCLEAN : grant_deliver(requests, lease, true);
	if (r < 0) {
		log_warning("lease %" PRIu64 " of pool %s is not fit to be handed out: %s", lease->id,
			attempt->shares->list[0].pool->name, strerror(-r));
		handoff_return(requests->handoff, lease, "it could not be handed out");
		return r;
	}
	/* Until it is confirmed, a lost connection is a lost reply: nobody knows of the lease. */
	lease->bound = attempt->session;
	for (size_t i = 0; i < count; i++) {
		if (segments[i]->pages > given[i])
			handoff_trim(requests->handoff, segments[i]);
	}
	attempt->leases[attempt->lease_count++] = lease;
	return 0;
}

/* Nobody has heard of these yet. */
static void take_back_all(struct requests *requests, struct attempt *attempt)
{
	desk_close_fds(&requests->reply);
	while (attempt->lease_count > 0)
		handoff_return(requests->handoff, attempt->leases[--attempt->lease_count],
			"others of its bulk could not be handed out");
}

/* One lease of all segments, or a bulk: of each segment one. All or none. */
static int hand_out(struct requests *requests, struct attempt *attempt, struct pool_segment **segments,
	const uint64_t *given, size_t count)
{
	size_t leases = desk_get_leases(attempt->wire), each = leases > 1 ? 1 : count;
	attempt->lease_count = requests->reply.fd_count = 0;
	for (size_t i = 0; i < leases; i++) {
		int r = hand_out_one(requests, attempt, segments + i * each, given + i * each, each);
		if (r == 0)
			continue;
		take_back_all(requests, attempt);
		return r;
	}
	return 0;
}

int grant_deliver_from(struct requests *requests, struct lease *lease, size_t known, size_t first_new)
{
	struct request_reply *reply = &requests->reply;
	reply->fd_count = 0;
	if (lease->deliver == HPZ_DELIVER_PATH)
		return first_new < lease->segment_count
			       ? handoff_link_from(requests->handoff, lease, first_new)
			       : 0;
	if (known >= lease->segment_count)
		return 0;
	int r = handoff_open_from(requests->handoff, lease, known, first_new, reply->fds);
	if (r == 0)
		reply->fd_count = lease->segment_count - known;
	return r;
}

/* It could not be delivered, or not be written down: nobody has heard of it, and it comes back. */
static void undo_growth(struct requests *requests, struct lease *lease, size_t before)
{
	struct lease *rest = NULL;
	desk_close_fds(&requests->reply);
	int r = lease_split(
		requests->leases, lease, before, lease->segments[before - 1]->given, lease->asked, &rest);
	if (r < 0) /* it has more than its holder knows, until its end or a restart */
		log_error("lease %" PRIu64 " has grown in vain: %s", lease->id, strerror(-r));
	else
		handoff_split(requests->handoff, lease, rest, "it could not be handed out");
}

/* Again each time: it may have ended (-ESTALE), or got another size (-EALREADY), while this waited. -EAGAIN:
 * what it was to get before is not back yet. */
static int check_target(const struct requests *requests, const struct attempt *attempt)
{
	const struct lease *lease = lease_find(requests->leases, attempt->target);
	if (!lease || lease->state != HPZ_STATE_LEASED)
		return -ESTALE;
	if (lease_get_given(lease) != attempt->target_bytes)
		return -EALREADY;
	return lease_has_rest(requests->leases, lease) ? -EAGAIN : 0;
}

/*
 * By one segment. -EUCLEAN: it was not fit, another may be. The target was checked.
 */
static int grow(struct requests *requests, struct attempt *attempt, struct pool_segment **segments,
	const uint64_t *given)
{
	struct lease *lease = lease_find(requests->leases, attempt->target);
	size_t before = lease->segment_count;
	uint64_t asked = attempt->target_bytes + attempt->wire->bytes;
	segments[0]->cell = lease->segments[before - 1]->cell;
	int r = lease_append(requests->leases, lease, segments, given, 1);
	if (r == -ENOENT) {
		forget_vanished(segments, 1);
		return -EUCLEAN;
	}
	if (r < 0)
		return r;
	r = reconcile_was_opened(requests->reconcile, segments[0]) ? -EUCLEAN : 0;
	if (r == 0)
		r = grant_deliver_from(requests, lease, MIN(attempt->known, before), before);
	if (r == 0)
		r = lease_confirm(requests->leases, lease, asked);
	if (r < 0) {
		undo_growth(requests, lease, before);
		return r;
	}
	if (segments[0]->pages > given[0])
		handoff_trim(requests->handoff, segments[0]);
	attempt->leases[0] = lease;
	attempt->lease_count = 1;
	return 0;
}

/* What is kept for it is a reservation's from now on. */
static int reserve(struct requests *requests, struct attempt *attempt)
{
	const struct hpz_wire_lease *wire = attempt->wire;
	struct request_share *share = &attempt->shares->list[0];
	struct reservation draft = {
		.pool = share->pool,
		.pages = share->pages,
		.asked = wire->bytes,
		.uid = attempt->peer->uid,
		.flags = wire->flags & HPZ_LEASE_SEGMENTS,
	};
	proto_get_text(wire->label, sizeof wire->label, draft.label);
	return reserve_make(&requests->reserves, &draft, wire->ttl_ms, share, &attempt->reservation);
}

/* What is kept for it, if that is ready. -EAGAIN: it is not enough any more, and nothing is kept. */
static int hand_out_kept(struct requests *requests, struct attempt *attempt)
{
	struct hold_collection all;
	int r = hold_collect(requests, attempt, &all);
	if (r == -EINPROGRESS)
		return r;
	if (r == 0)
		r = attempt->op == HPZ_OP_RESERVE ? reserve(requests, attempt)
		    : attempt->op == HPZ_OP_CHANGE
			    ? grow(requests, attempt, all.segments, all.given)
			    : hand_out(requests, attempt, all.segments, all.given, all.count);
	if (r < 0)
		desk_drop_shares(requests, attempt->shares);
	else if (attempt->op == HPZ_OP_LEASE && attempt->reservation)
		reserve_use(&requests->reserves, attempt->reservation, attempt->shares->list[0].pages);
	return r;
}

uint64_t grant_get_bytes(const struct attempt *attempt)
{
	return desk_count_pages(attempt->shares, NULL) * desk_get_leases(attempt->wire) *
	       desk_get_page_size(attempt);
}

/* The one it names, again each time: it may have ended. -ESTALE: it has; -EFBIG: it has less left. */
static int find_reservation(struct requests *requests, struct attempt *attempt)
{
	uint64_t id = attempt->wire->reservation;
	attempt->reservation = id ? reserve_find(&requests->reserves, id) : NULL;
	if (id && !attempt->reservation)
		return -ESTALE;
	uint64_t pages = size_pages(attempt->wire->bytes, desk_get_page_size(attempt));
	return attempt->reservation && pages > attempt->reservation->pages ? -EFBIG : 0;
}

int grant_lease(struct requests *requests, struct attempt *attempt)
{
	_cleanup_fd_ int opened = -1;
	int r = find_reservation(requests, attempt);
	attempt->pidfd = -1;
	attempt->draft = (struct lease){0};
	grant_fill_draft(attempt->wire, attempt->peer, &attempt->draft);
	if (r == 0 && attempt->op == HPZ_OP_LEASE)
		r = grant_find_owner(
			requests, attempt->wire, attempt->peer, &attempt->draft, &attempt->pidfd, &opened);
	if (r < 0)
		return r;
	if (!desk_has_quota(requests, attempt->peer,
		    attempt->op == HPZ_OP_CHANGE ? 0 : desk_get_leases(attempt->wire),
		    grant_get_bytes(attempt), attempt->reservation))
		return -EDQUOT;
	for (int tries = 0; tries < TRIES_MAX; tries++) {
		r = attempt->op == HPZ_OP_CHANGE ? check_target(requests, attempt) : 0;
		if (r < 0)
			return r;
		r = attempt->is_held ? 0 : hold_take(requests, attempt);
		if (r == -EUCLEAN)
			continue;
		if (r < 0)
			return r;
		r = hand_out_kept(requests, attempt);
		if (r == -EINPROGRESS)
			return r;
		attempt->is_held = false;
		if (r != -EUCLEAN && r != -EAGAIN)
			return r;
	}
	return -EAGAIN;
}
