/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* request.c - what a client may ask, as a table of handlers that return replies. */
#include <inttypes.h>

#include "change.h"
#include "log.h"
#include "metrics.h"
#include "preview.h"
#include "report.h"
#include "request.h"
#include "size.h"

/* ---- release, adopt, ack ---- */

static enum request_outcome reply_released(
	struct requests *requests, const struct hpz_wire_head *head, uint64_t id, enum hpz_lease_state state)
{
	struct hpz_wire_released *payload = desk_get_payload(requests);
	*payload = (struct hpz_wire_released){sizeof *payload, state, id};
	return desk_finish_reply(requests, head->op, head->id, sizeof *payload);
}

static bool is_lease_clean(const struct requests *requests, uint64_t id)
{
	if (lease_find(requests->leases, id))
		return false;
	for (size_t i = 0; i < requests->reconcile->pool_count; i++) {
		const struct pool *pool = requests->reconcile->pools[i];
		LIST_FOR_EACH (pos, &pool->classes) {
			struct pool_class *class = CONTAINER_OF(pos, struct pool_class, link);
			LIST_FOR_EACH (at, &class->segments[SEGMENT_DIRTY]) {
				if (CONTAINER_OF(at, struct pool_segment, link)->lease == id)
					return false;
			}
		}
	}
	return true;
}

static void force(struct requests *requests, struct lease *lease)
{
	metrics_add(METRICS_LEASES_FORCED, METRICS_NO_LABEL, !lease->is_forced);
	handoff_force(requests->handoff, lease, "released by force");
}

static enum request_outcome handle_release(struct requests *requests, struct session *session,
	const struct request_peer *peer, const struct hpz_wire_head *head, const void *payload)
{
	const struct hpz_wire_release *wire = payload;
	struct access_rule rule;
	struct lease *lease = lease_find(requests->leases, wire->id);
	if (!lease && !lease_is_known_id(requests->leases, wire->id))
		return desk_refuse(
			requests, head, HPZ_ERR_UNKNOWN_LEASE, "lease %" PRIu64 " was never given", wire->id);
	if (reserve_find(&requests->reserves, wire->id))
		return desk_refuse(requests, head, HPZ_ERR_INVALID,
			"%" PRIu64 " is a reservation: it ends by hpzctl unreserve", wire->id);
	desk_find_rule(requests, peer, &rule);
	if (lease && !access_may_touch(&rule, lease->uid))
		return desk_refuse_foreign(requests, head, &rule, lease);
	if (lease && (wire->flags & HPZ_RELEASE_FORCE))
		force(requests, lease);
	else if (lease && lease->state != HPZ_STATE_RETURNING)
		handoff_return(requests->handoff, lease, "released");
	enum hpz_lease_state state = lease ? HPZ_STATE_RETURNING : HPZ_STATE_ENDED;
	bool is_waiting = (wire->flags & HPZ_RELEASE_WAIT) && wire->timeout_ms != 0;
	if (!is_waiting || is_lease_clean(requests, wire->id))
		return reply_released(requests, head, wire->id, state);
	struct request *request = desk_make_waiting(requests, session, peer, head, wire->timeout_ms);
	if (!request)
		return reply_released(requests, head, wire->id, state);
	request->release = *wire;
	return REQUEST_WAITS;
}

void request_lease_ended(struct requests *requests, uint64_t lease)
{
	/* Its memory is proven free; clean it is when the pools say so (request_settle). */
	reconcile_mark(requests->reconcile);
}

static enum request_outcome handle_adopt(struct requests *requests, struct session *session,
	const struct request_peer *peer, const struct hpz_wire_head *head, const void *payload)
{
	const struct hpz_wire_adopt *wire = payload;
	struct lease *lease = lease_find(requests->leases, wire->id);
	if (!lease || lease->state == HPZ_STATE_RETURNING) {
		bool is_known = lease || lease_is_known_id(requests->leases, wire->id);
		return desk_refuse(requests, head, is_known ? HPZ_ERR_ENDED : HPZ_ERR_UNKNOWN_LEASE,
			is_known ? "lease %" PRIu64 " has ended" : "lease %" PRIu64 " was never given",
			wire->id);
	}
	struct access_rule rule;
	desk_find_rule(requests, peer, &rule);
	if (!access_may_touch(&rule, lease->uid))
		return desk_refuse_foreign(requests, head, &rule, lease);
	struct lease draft = {0};
	struct hpz_wire_lease owner = {.owner_pid = wire->owner_pid, .deliver = lease->deliver};
	_cleanup_fd_ int opened = -1;
	int pidfd, r = grant_find_owner(requests, &owner, peer, &draft, &pidfd, &opened);
	if (r < 0)
		return answer_no_owner(requests, head, r, wire->owner_pid);
	r = grant_deliver(requests, lease, false);
	if (r < 0)
		return desk_refuse(requests, head, r == -EWOULDBLOCK ? HPZ_ERR_BUSY : HPZ_ERR_INTERNAL,
			"lease %" PRIu64 " cannot be opened again: %s", lease->id, strerror(-r));
	uint32_t flags = (lease->flags & ~HPZ_LEASE_UNBOUND) | wire->flags;
	r = lease_set_owner(requests->leases, lease, draft.pid, draft.pid_start, flags, draft.comm);
	if (r < 0) {
		desk_close_fds(&requests->reply);
		return desk_refuse(requests, head, HPZ_ERR_INTERNAL,
			"lease %" PRIu64 " cannot change hands: %s", lease->id, strerror(-r));
	}
	handoff_set_owner(requests->handoff, lease, pidfd);
	lease->bound = grant_is_bound(lease) ? session : NULL;
	return answer_leased(requests, head, peer, lease, lease_get_given(lease), 0);
}

static enum request_outcome handle_ack(struct requests *requests, struct session *session,
	const struct request_peer *peer, const struct hpz_wire_head *head, const void *payload)
{
	const struct hpz_wire_ack *wire = payload;
	struct access_rule rule;
	desk_find_rule(requests, peer, &rule);
	for (uint64_t id = wire->id; id < wire->id + MAX(wire->count, 1u); id++) {
		struct lease *lease = lease_find(requests->leases, id);
		if (!lease || lease->state != HPZ_STATE_OFFERED || !access_may_touch(&rule, lease->uid))
			continue;
		lease_set_state(requests->leases, lease, HPZ_STATE_LEASED);
		if (lease->bound == session && !grant_is_bound(lease))
			lease->bound = NULL;
	}
	return REQUEST_NO_REPLY;
}

/* Of a bulk the first: the others are bound to the session, which is closed next. */
void request_take_back(struct requests *requests, uint64_t id)
{
	struct lease *lease = lease_find(requests->leases, id);
	if (lease && lease->state == HPZ_STATE_OFFERED)
		handoff_return(requests->handoff, lease, "its descriptors could not be sent");
}

/* ---- list, status ---- */

static enum request_outcome handle_list(struct requests *requests, struct session *session,
	const struct request_peer *peer, const struct hpz_wire_head *head, const void *payload)
{
	const struct hpz_wire_list *wire = payload;
	size_t capacity = sizeof requests->reply.bytes - sizeof(struct hpz_wire_head);
	struct hpz_wire_listed *listed = desk_get_payload(requests);
	size_t size = sizeof *listed;
	uint64_t first = 0;
	if (wire->cursor & RESERVE_CURSOR && !(wire->cursor >> 63)) {
		first = wire->cursor & ~RESERVE_CURSOR;
		*listed = (struct hpz_wire_listed){.size = sizeof *listed};
	} else {
		struct access_rule rule;
		desk_find_rule(requests, peer, &rule);
		const struct report_view view = {
			.orphans = wire->flags & HPZ_WIRE_LIST_MORE ? handoff_get_orphans(requests->handoff)
								    : NULL,
			.keys_for = wire->flags & HPZ_WIRE_LIST_KEYS ? &rule : NULL,
			.with_cells = peer->capabilities & HPZ_WIRE_CAN_CELLS,
		};
		size = report_list(requests->leases, &view, wire->cursor, listed, capacity);
	}
	if (wire->flags & HPZ_WIRE_LIST_RESERVED && !listed->cursor)
		size = reserve_report(&requests->reserves, first, listed, size, capacity);
	return desk_finish_reply(requests, head->op, head->id, size);
}

static enum request_outcome handle_status(struct requests *requests, struct session *session,
	const struct request_peer *peer, const struct hpz_wire_head *head, const void *payload)
{
	struct hpz_wire_status *status = desk_get_payload(requests);
	size_t size = report_status(requests->reconcile, requests->books, peer->capabilities, status);
	status->uptime_ms = (clock_get_ns(CLOCK_MONOTONIC) - requests->started_ns) / NS_PER_MS;
	status->connections = requests->connections;
	return desk_finish_reply(requests, head->op, head->id, size);
}

/* ---- wait, drain ---- */

static struct pool *find_pool_by_name(const struct requests *requests, const char *name)
{
	for (size_t i = 0; i < requests->reconcile->pool_count; i++) {
		if (strcmp(requests->reconcile->pools[i]->name, name) == 0)
			return requests->reconcile->pools[i];
	}
	return NULL;
}

/* Whether what a WAIT waits for is so; *ret_possible: the most that can ever be clean, in bytes. */
static bool is_awaited(
	const struct requests *requests, const struct hpz_wire_wait *wire, uint64_t *ret_possible)
{
	char name[HPZ_WIRE_NAME + 1];
	uint64_t clean = 0, possible = 0;
	bool is_idle = true;
	proto_get_text(wire->pool, sizeof wire->pool, name);
	for (size_t i = 0; i < requests->reconcile->pool_count; i++) {
		const struct pool *pool = requests->reconcile->pools[i];
		if (name[0] && strcmp(name, pool->name) != 0)
			continue;
		clean += pool->pages[SEGMENT_CLEAN] * pool->config.page_size;
		possible += pool->target * pool->config.page_size;
		is_idle = is_idle && reconcile_is_idle(pool, requests->leases);
	}
	*ret_possible = possible;
	return wire->clean > 0 ? clean >= wire->clean : is_idle;
}

static enum request_outcome handle_wait(struct requests *requests, struct session *session,
	const struct request_peer *peer, const struct hpz_wire_head *head, const void *payload)
{
	const struct hpz_wire_wait *wire = payload;
	char name[HPZ_WIRE_NAME + 1], size[SIZE_TEXT];
	uint64_t possible;
	proto_get_text(wire->pool, sizeof wire->pool, name);
	if (name[0] && !find_pool_by_name(requests, name))
		return desk_refuse(requests, head, HPZ_ERR_NO_POOL, "there is no pool %s", name);
	is_awaited(requests, wire, &possible);
	if (wire->clean > possible)
		return desk_refuse(requests, head, HPZ_ERR_TOO_LARGE, "no more than %s can ever be clean",
			size_format(possible, size));
	/* Answered once states are settled, not from the middle of a change. */
	struct request *request = desk_make_waiting(requests, session, peer, head, wire->timeout_ms);
	if (!request)
		return desk_refuse_waiting(requests, head);
	request->wait = *wire;
	reconcile_mark(requests->reconcile);
	return REQUEST_WAITS;
}

static enum request_outcome handle_drain(struct requests *requests, struct session *session,
	const struct request_peer *peer, const struct hpz_wire_head *head, const void *payload)
{
	struct request *request = desk_make_waiting(
		requests, session, peer, head, ((const struct hpz_wire_drain *)payload)->timeout_ms);
	if (!request)
		return desk_refuse_waiting(requests, head);
	request->drain = *(const struct hpz_wire_drain *)payload;
	for (size_t i = 0; i < requests->reconcile->pool_count; i++) {
		requests->reconcile->pools[i]->is_draining = true;
		reserve_end_all(&requests->reserves, requests->reconcile->pools[i], "its pool is drained");
	}
	log_info("drained by uid %u: pools take no memory until a reload or restart", (unsigned)peer->uid);
	reconcile_mark(requests->reconcile);
	return REQUEST_WAITS;
}

/* ---- rules of clearing ---- */

static enum request_outcome handle_set(struct requests *requests, struct session *session,
	const struct request_peer *peer, const struct hpz_wire_head *head, const void *payload)
{
	const struct hpz_wire_set *wire = payload;
	struct config_clear next = requests->config->clear;
	char key[HPZ_WIRE_NAME + 1], value[HPZ_WIRE_VALUE + 1], why[HPZ_WIRE_TEXT] = "it cannot be set here";
	proto_get_text(wire->key, sizeof wire->key, key);
	proto_get_text(wire->value, sizeof wire->value, value);
	int r = config_set_clear(&next, key, value, why, sizeof why);
	if (r == 0)
		r = requests->set_clear ? requests->set_clear(&next, why, sizeof why, requests->set_user)
					: -EINVAL;
	if (r < 0)
		return desk_refuse(requests, head, HPZ_ERR_INVALID, "%s", why);
	log_info("%s = %s, by uid %u, until a reload or restart", key, value, (unsigned)peer->uid);
	return desk_reply_empty(requests, head);
}

static enum request_outcome handle_clearing(struct requests *requests, struct session *session,
	const struct request_peer *peer, const struct hpz_wire_head *head, const void *payload)
{
	size_t length =
		report_clearing(requests->reconcile, &requests->config->clear, desk_get_payload(requests));
	return desk_finish_reply(requests, head->op, head->id, length);
}

static enum request_outcome handle_demand(struct requests *requests, struct session *session,
	const struct request_peer *peer, const struct hpz_wire_head *head, const void *payload)
{
	const struct hpz_wire_demand *wire = payload;
	size_t capacity = sizeof requests->reply.bytes - sizeof(struct hpz_wire_head);
	return desk_finish_reply(requests, head->op, head->id,
		report_demand(requests->reconcile, wire->cursor, desk_get_payload(requests), capacity));
}

static enum request_outcome handle_metrics(struct requests *requests, struct session *session,
	const struct request_peer *peer, const struct hpz_wire_head *head, const void *payload)
{
	const struct hpz_wire_metrics *wire = payload;
	size_t capacity = sizeof requests->reply.bytes - sizeof(struct hpz_wire_head);
	return desk_finish_reply(requests, head->op, head->id,
		report_metrics(wire->cursor, desk_get_payload(requests), capacity));
}

/* ---- teardown ---- */

/* Whose records a peer may read: -1: everybody's. */
static int64_t get_readable_uid(const struct requests *requests, const struct request_peer *peer)
{
	struct access_rule rule;
	desk_find_rule(requests, peer, &rule);
	return access_may(&rule, CONFIG_ALLOW_STATUS) ? -1 : (int64_t)peer->uid;
}

static enum request_outcome reply_teardown(struct requests *requests, const struct request_peer *peer,
	const struct hpz_wire_head *head, const struct hpz_wire_teardown *wire)
{
	size_t capacity = sizeof requests->reply.bytes - sizeof(struct hpz_wire_head);
	return desk_finish_reply(requests, head->op, head->id,
		report_teardown(requests->teardown, handoff_get_exits(requests->handoff), wire,
			get_readable_uid(requests, peer), desk_get_payload(requests), capacity));
}

static bool has_news(const struct requests *requests, const struct request_peer *peer,
	const struct hpz_wire_teardown *wire)
{
	/* Of an earlier boot's hpzd: what it asks for will not come for long. */
	return wire->cursor > requests->teardown->revision ||
	       teardown_find_news(requests->teardown, wire->cursor, get_readable_uid(requests, peer));
}

static enum request_outcome handle_teardown(struct requests *requests, struct session *session,
	const struct request_peer *peer, const struct hpz_wire_head *head, const void *payload)
{
	const struct hpz_wire_teardown *wire = payload;
	if (!requests->teardown)
		return desk_refuse(requests, head, HPZ_ERR_UNSUPPORTED, "nobody keeps what ends cost here");
	teardown_save(requests->teardown); /* what has just happened, too */
	if (wire->timeout_ms == 0 || has_news(requests, peer, wire))
		return reply_teardown(requests, peer, head, wire);
	struct request *request = desk_make_waiting(requests, session, peer, head, wire->timeout_ms);
	if (!request)
		return desk_refuse_waiting(requests, head);
	request->teardown = *wire;
	return REQUEST_WAITS;
}

static bool settle_teardown(struct requests *requests, struct request *request)
{
	struct hpz_wire_head head = desk_make_head(request);
	if (!has_news(requests, &request->peer, &request->teardown))
		return false;
	requests->reply.fd_count = 0;
	requests->reply.lease = 0;
	reply_teardown(requests, &request->peer, &head, &request->teardown);
	desk_answer(request);
	return true;
}

/* ---- events ---- */

static enum request_outcome reply_events(struct requests *requests, const struct request_peer *peer,
	const struct hpz_wire_head *head, const struct hpz_wire_events *wire)
{
	size_t capacity = sizeof requests->reply.bytes - sizeof(struct hpz_wire_head);
	return desk_finish_reply(requests, head->op, head->id,
		report_events(wire->cursor, get_readable_uid(requests, peer), desk_get_payload(requests),
			capacity));
}

static enum request_outcome handle_events(struct requests *requests, struct session *session,
	const struct request_peer *peer, const struct hpz_wire_head *head, const void *payload)
{
	const struct hpz_wire_events *wire = payload;
	if (wire->timeout_ms == 0 || report_has_events(wire->cursor, get_readable_uid(requests, peer)))
		return reply_events(requests, peer, head, wire);
	struct request *request = desk_make_waiting(requests, session, peer, head, wire->timeout_ms);
	if (!request)
		return desk_refuse_waiting(requests, head);
	request->events = *wire;
	return REQUEST_WAITS;
}

static bool settle_events(struct requests *requests, struct request *request)
{
	struct hpz_wire_head head = desk_make_head(request);
	if (!report_has_events(request->events.cursor, get_readable_uid(requests, &request->peer)))
		return false;
	requests->reply.fd_count = 0;
	requests->reply.lease = 0;
	reply_events(requests, &request->peer, &head, &request->events);
	desk_answer(request);
	return true;
}

bool request_is_followed(const struct requests *requests)
{
	LIST_FOR_EACH (pos, &requests->waiting) {
		if (CONTAINER_OF(pos, struct request, link)->op == HPZ_OP_EVENTS)
			return true;
	}
	return false;
}

/* ---- verify ---- */

static enum request_outcome handle_verify(struct requests *requests, struct session *session,
	const struct request_peer *peer, const struct hpz_wire_head *head, const void *payload)
{
	const struct hpz_wire_verify *wire = payload;
	char name[HPZ_WIRE_NAME + 1];
	proto_get_text(wire->pool, sizeof wire->pool, name);
	if (name[0] && !find_pool_by_name(requests, name))
		return desk_refuse(requests, head, HPZ_ERR_NO_POOL, "there is no pool %s", name);
	if (requests->reconcile->work.is_simulated)
		return desk_refuse(requests, head, HPZ_ERR_UNSUPPORTED, "simulated memory cannot be read");
	struct request *request = desk_make_waiting(requests, session, peer, head, wire->timeout_ms);
	if (!request)
		return desk_refuse_waiting(requests, head);
	snprintf(request->run.pool, sizeof request->run.pool, "%s", name);
	list_init(&request->run.link);
	verify_start_run(&requests->verify, &request->run);
	return REQUEST_WAITS;
}

static bool settle_verify(struct requests *requests, struct request *request)
{
	const struct verify_run *run = &request->run;
	if (!run->is_over)
		return false;
	struct hpz_wire_head head = desk_make_head(request);
	struct hpz_wire_verified *payload = desk_get_payload(requests);
	*payload = (struct hpz_wire_verified){
		.size = sizeof *payload,
		.segments = run->segments,
		.pages = run->pages,
		.bytes = run->bytes,
		.hits = run->hits,
		.left = run->left,
		.hit_segment = run->hit_segment,
		.hit_offset = run->hit_offset,
	};
	proto_set_text(payload->hit_pool, sizeof payload->hit_pool, run->hit_pool);
	requests->reply.fd_count = 0;
	requests->reply.lease = 0;
	desk_finish_reply(requests, head.op, head.id, sizeof *payload);
	desk_answer(request);
	return true;
}

/* ---- calibrate ---- */

static enum request_outcome handle_calibrate(struct requests *requests, struct session *session,
	const struct request_peer *peer, const struct hpz_wire_head *head, const void *payload)
{
	const struct hpz_wire_calibrate *wire = payload;
	char name[HPZ_WIRE_NAME + 1];
	proto_get_text(wire->pool, sizeof wire->pool, name);
	if (name[0] && !find_pool_by_name(requests, name))
		return desk_refuse(requests, head, HPZ_ERR_NO_POOL, "there is no pool %s", name);
	struct request *request = desk_make_waiting(requests, session, peer, head, wire->timeout_ms);
	if (!request)
		return desk_refuse_waiting(requests, head);
	snprintf(request->calibration.pool, sizeof request->calibration.pool, "%s", name);
	request->calibration.pools = (uint32_t)reconcile_calibrate(requests->reconcile, name);
	return REQUEST_WAITS;
}

static bool settle_calibrate(struct requests *requests, struct request *request)
{
	if (reconcile_is_calibrating(requests->reconcile, request->calibration.pool))
		return false;
	struct hpz_wire_head head = desk_make_head(request);
	struct hpz_wire_calibrated *payload = desk_get_payload(requests);
	*payload = (struct hpz_wire_calibrated){.size = sizeof *payload, .pools = request->calibration.pools};
	requests->reply.fd_count = 0;
	requests->reply.lease = 0;
	desk_finish_reply(requests, head.op, head.id, sizeof *payload);
	desk_answer(request);
	return true;
}

/* ---- resize ---- */

/* What is asked for, in pages. False: no whole ones. */
static bool get_order(
	const struct hpz_wire_resize *wire, const struct pool *pool, struct resize_order *ret_order)
{
	*ret_order = (struct resize_order){wire->kind, wire->pages};
	if (wire->bytes > 0)
		ret_order->pages = wire->bytes / pool->config.page_size;
	return wire->bytes % pool->config.page_size == 0;
}

static int demote(struct requests *requests, struct pool *pool, uint64_t pages)
{
	struct reconcile *reconcile = requests->reconcile;
	int r = demote_order(&reconcile->nr, pool, reconcile->pools, reconcile->pool_count, pages,
		requests->text, sizeof requests->text);
	if (r == -ENOENT)
		return HPZ_ERR_UNSUPPORTED;
	return r == -EBUSY ? HPZ_ERR_BUSY : r < 0 ? HPZ_ERR_INVALID : 0;
}

/* 0, or the error and why in requests->text. */
static int resize(struct requests *requests, struct pool *pool, const struct hpz_wire_resize *wire)
{
	struct resize_order order;
	uint64_t pages;
	char size[SIZE_TEXT];
	if (!get_order(wire, pool, &order)) {
		snprintf(requests->text, sizeof requests->text,
			"pool %s has pages of %s, and that is no number of them", pool->name,
			size_format_exact(pool->config.page_size, size));
		return HPZ_ERR_INVALID;
	}
	if (order.kind == HPZ_RESIZE_DEMOTE)
		return demote(requests, pool, order.pages);
	int r = resize_find_target(pool, &order, &pages, requests->text, sizeof requests->text);
	if (r < 0)
		return r == -ERANGE ? HPZ_ERR_TOO_LARGE : HPZ_ERR_INVALID;
	r = resize_set(&requests->reconcile->nr, pool, pages);
	if (r < 0) {
		snprintf(requests->text, sizeof requests->text, "it cannot be written to the journal: %s",
			strerror(-r));
		return HPZ_ERR_INTERNAL;
	}
	return 0;
}

static enum request_outcome handle_resize(struct requests *requests, struct session *session,
	const struct request_peer *peer, const struct hpz_wire_head *head, const void *payload)
{
	const struct hpz_wire_resize *wire = payload;
	char name[HPZ_WIRE_NAME + 1];
	proto_get_text(wire->pool, sizeof wire->pool, name);
	struct pool *pool = find_pool_by_name(requests, name);
	if (!pool)
		return desk_refuse(requests, head, HPZ_ERR_NO_POOL, "there is no pool %s", name);
	if (pool->is_draining)
		return desk_refuse(requests, head, HPZ_ERR_DRAINED, "pool %s is drained", name);
	uint64_t before = pool->target;
	struct request *request = desk_make_waiting(requests, session, peer, head,
		wire->flags & HPZ_RESIZE_WAIT || wire->kind == HPZ_RESIZE_DEMOTE ? wire->timeout_ms
										 : HPZ_FOREVER);
	if (!request)
		return desk_refuse_waiting(requests, head);
	request->resize.demoted = pool->demoted;
	request->resize.demotes = wire->kind == HPZ_RESIZE_DEMOTE;
	int r = resize(requests, pool, wire);
	if (r != 0) {
		desk_drop_request(request);
		return desk_make_error(requests, head->op, head->id, r, 0, requests->text);
	}
	snprintf(request->resize.pool, sizeof request->resize.pool, "%s", name);
	request->resize.before = before;
	request->resize.waits = wire->flags & HPZ_RESIZE_WAIT;
	reconcile_mark(requests->reconcile);
	return REQUEST_WAITS;
}

static void reply_resized(struct requests *requests, const struct request *request, const struct pool *pool,
	const struct resize_left *left, bool is_done)
{
	struct hpz_wire_resized *payload = desk_get_payload(requests);
	*payload = (struct hpz_wire_resized){
		.size = sizeof *payload,
		.done = is_done,
		.page_size = pool->config.page_size,
		.before = request->resize.before,
		.target = pool->target,
		.configured = pool->config.pages,
		.total = pool_get_total(pool),
		.grow = left->grow,
		.shrink = left->shrink,
		.give_back = left->give_back,
		.demoted = request->resize.demotes ? pool->demoted - request->resize.demoted : 0,
	};
	requests->reply.fd_count = 0;
	requests->reply.lease = 0;
	desk_finish_reply(requests, request->op, request->id, sizeof *payload);
}

/* The look that has just been has begun whatever can be done at once. */
static bool settle_resize(struct requests *requests, struct request *request)
{
	struct hpz_wire_head head = desk_make_head(request);
	struct pool *pool = find_pool_by_name(requests, request->resize.pool);
	struct resize_left left;
	if (!pool) {
		desk_refuse(requests, &head, HPZ_ERR_NO_POOL, "pool %s is gone", request->resize.pool);
		desk_answer(request);
		return true;
	}
	if (pool->is_draining) {
		desk_refuse(requests, &head, HPZ_ERR_DRAINED, "pool %s is drained", pool->name);
		desk_answer(request);
		return true;
	}
	bool is_done = resize_get_left(pool, &left);
	if (request->resize.demotes && pool->size.demoting > 0)
		return false;
	if (request->resize.demotes && pool->demoted == request->resize.demoted) {
		desk_refuse(requests, &head, HPZ_ERR_NO_MEMORY, "no page of pool %s was free or clean",
			pool->name);
		desk_answer(request);
		return true;
	}
	if (!is_done && request->resize.waits)
		return false;
	reply_resized(requests, request, pool, &left, is_done);
	desk_answer(request);
	return true;
}

static void refuse_resize_timeout(
	struct requests *requests, const struct hpz_wire_head *head, const struct request *request)
{
	struct resize_left left = {0};
	struct pool *pool = find_pool_by_name(requests, request->resize.pool);
	if (pool)
		resize_get_left(pool, &left);
	desk_refuse(requests, head, HPZ_ERR_TIMEOUT,
		"%" PRIu64 " pages are missing, %" PRIu64
		" more than wanted are held, and nr_hugepages is to be "
		"lowered by %" PRIu64 "; it goes on",
		left.grow, left.shrink, left.give_back);
}

/* ---- check ---- */

static enum request_outcome reply_check(
	struct requests *requests, const struct hpz_wire_head *head, size_t index)
{
	size_t capacity = sizeof requests->reply.bytes - sizeof(struct hpz_wire_head);
	return desk_finish_reply(requests, head->op, head->id,
		report_check(requests->books, index, desk_get_payload(requests), capacity));
}

static enum request_outcome handle_check(struct requests *requests, struct session *session,
	const struct request_peer *peer, const struct hpz_wire_head *head, const void *payload)
{
	const struct hpz_wire_check *wire = payload;
	size_t index = (size_t)(wire->cursor & UINT32_MAX);
	if (wire->cursor != 0) {
		if (wire->cursor >> 32 != requests->books->run_number ||
			index >= requests->books->results.count)
			return desk_refuse(
				requests, head, HPZ_ERR_INVALID, "a later check has begun: check again");
		return reply_check(requests, head, index);
	}
	struct request *request = desk_make_waiting(requests, session, peer, head, wire->timeout_ms);
	if (!request)
		return desk_refuse_waiting(requests, head);
	request->check = *wire;
	int r = books_check(requests->books, wire->flags & HPZ_CHECK_REPAIR);
	if (r == 0)
		return REQUEST_WAITS;
	desk_drop_request(request);
	return desk_refuse(requests, head, r == -EBUSY || r == -EAGAIN ? HPZ_ERR_BUSY : HPZ_ERR_INTERNAL,
		"%s",
		r == -EBUSY    ? "another check is under way"
		: r == -EAGAIN ? "workers of an earlier hpzd have not ended yet"
			       : strerror(-r));
}

void request_checked(struct requests *requests)
{
	LIST_FOR_EACH_SAFE (pos, &requests->waiting) {
		struct request *request = CONTAINER_OF(pos, struct request, link);
		struct hpz_wire_head head = desk_make_head(request);
		if (request->op != HPZ_OP_CHECK)
			continue;
		reply_check(requests, &head, 0);
		desk_answer(request);
	}
}

/* ---- drain, once it waits ---- */

static bool is_drain_done(struct requests *requests, struct request *request)
{
	bool is_done = true;
	for (size_t i = 0; i < requests->reconcile->pool_count; i++)
		is_done = is_done && reconcile_is_drained(requests->reconcile->pools[i]);
	if (!is_done || !(request->drain.flags & HPZ_DRAIN_GIVE_BACK) || request->has_given_back)
		return is_done;
	for (size_t i = 0; i < requests->reconcile->pool_count; i++) {
		if (reconcile_give_back(requests->reconcile, requests->reconcile->pools[i]) != 0)
			is_done = false;
	}
	request->has_given_back = true; /* once: what was not free then is in somebody's hands */
	return is_done;
}

static bool settle_drain(struct requests *requests, struct request *request)
{
	struct hpz_wire_head head = desk_make_head(request);
	if (!is_drain_done(requests, request))
		return false;
	if (requests->leases->count > 0) {
		snprintf(requests->text, sizeof requests->text,
			"leases still out: %zu; their memory goes back to the kernel as they end",
			requests->leases->count);
		desk_make_error(requests, head.op, head.id, HPZ_ERR_IN_USE, (uint32_t)requests->leases->count,
			requests->text);
	} else {
		desk_reply_empty(requests, &head);
	}
	desk_answer(request);
	return true;
}

static bool settle_wait(struct requests *requests, struct request *request)
{
	struct hpz_wire_head head = desk_make_head(request);
	uint64_t possible;
	if (!is_awaited(requests, &request->wait, &possible))
		return false;
	desk_reply_empty(requests, &head);
	desk_answer(request);
	return true;
}

static bool settle_release(struct requests *requests, struct request *request)
{
	struct hpz_wire_head head = desk_make_head(request);
	if (!is_lease_clean(requests, request->release.id))
		return false;
	reply_released(requests, &head, request->release.id, HPZ_STATE_ENDED);
	desk_answer(request);
	return true;
}

/* Answers a request that waits for a state, if it is so. */
static bool settle(struct requests *requests, struct request *request)
{
	if (request->op == HPZ_OP_RELEASE)
		return settle_release(requests, request);
	if (request->op == HPZ_OP_WAIT)
		return settle_wait(requests, request);
	if (request->op == HPZ_OP_VERIFY)
		return settle_verify(requests, request);
	if (request->op == HPZ_OP_CALIBRATE)
		return settle_calibrate(requests, request);
	if (request->op == HPZ_OP_RESIZE)
		return settle_resize(requests, request);
	if (request->op == HPZ_OP_TEARDOWN)
		return settle_teardown(requests, request);
	if (request->op == HPZ_OP_EVENTS)
		return settle_events(requests, request);
	return request->op == HPZ_OP_DRAIN && settle_drain(requests, request);
}

void request_settle(struct requests *requests)
{
	verify_step(&requests->verify);
	LIST_FOR_EACH_SAFE (pos, &requests->waiting) {
		struct request *request = CONTAINER_OF(pos, struct request, link);
		settle(requests, request);
	}
}

static void on_timeout(uv_timer_t *timer)
{
	struct request *request = timer->data;
	struct requests *requests = request->requests;
	struct hpz_wire_head head = desk_make_head(request);
	if (settle(requests, request)) /* a limit of 0 asks whether it is so now */
		return;
	supply_forget(&requests->supply);
	if (queue_is_for_memory(request)) {
		struct attempt attempt = ask_make_attempt(request);
		answer_short(requests, &head, HPZ_ERR_TIMEOUT, &attempt);
	} else if (request->op == HPZ_OP_RELEASE)
		desk_refuse(requests, &head, HPZ_ERR_TIMEOUT,
			"lease %" PRIu64 " has ended, but its memory is not clean yet", request->release.id);
	else if (request->op == HPZ_OP_DRAIN)
		desk_refuse(requests, &head, HPZ_ERR_TIMEOUT, "the pools are not empty yet; it goes on");
	else if (request->op == HPZ_OP_VERIFY)
		desk_refuse(requests, &head, HPZ_ERR_TIMEOUT,
			"%" PRIu64 " of %" PRIu64 " segments were read, %" PRIu64 " of them not zero",
			request->run.segments, request->run.todo, request->run.hits);
	else if (request->op == HPZ_OP_CALIBRATE)
		desk_refuse(requests, &head, HPZ_ERR_TIMEOUT,
			"it is not measured yet: that waits for memory to spare");
	else if (request->op == HPZ_OP_RESIZE)
		refuse_resize_timeout(requests, &head, request);
	else if (request->op == HPZ_OP_CHECK)
		desk_refuse(requests, &head, HPZ_ERR_TIMEOUT, "the check is not over yet");
	else if (request->op == HPZ_OP_TEARDOWN)
		desk_refuse(requests, &head, HPZ_ERR_TIMEOUT, "no lease has ended meanwhile");
	else if (request->op == HPZ_OP_EVENTS)
		desk_refuse(requests, &head, HPZ_ERR_TIMEOUT, "nothing has happened meanwhile");
	else
		desk_refuse(requests, &head, HPZ_ERR_TIMEOUT, "not so much is clean yet");
	desk_answer(request);
	queue_count(requests);
}

/* ---- the table ---- */

typedef enum request_outcome (*handler)(struct requests *requests, struct session *session,
	const struct request_peer *peer, const struct hpz_wire_head *head, const void *payload);
typedef int (*checker)(const void *payload, const char **ret_why);

#define CHECK(name)                                                                                          \
	static int check_##name(const void *payload, const char **ret_why)                                   \
	{                                                                                                    \
		return proto_check_##name(payload, ret_why);                                                 \
	}
CHECK(empty)
CHECK(lease)
CHECK(reserve)
CHECK(unreserve)
CHECK(change)
CHECK(ack)
CHECK(release)
CHECK(adopt)
CHECK(list)
CHECK(wait)
CHECK(drain)
CHECK(verify)
CHECK(calibrate)
CHECK(set)
CHECK(check)
CHECK(demand)
CHECK(teardown)
CHECK(metrics)
CHECK(events)
CHECK(resize)

#define NEEDS_OWN (CONFIG_ALLOW_LEASE | CONFIG_ALLOW_ADMIN) /* which lease it is decides the rest */

/* clang-format off */
static const struct {
	const char *name; /* as in "may not ..." */
	size_t size;
	checker check;
	handler handle;
	unsigned needs; /* one of these CONFIG_ALLOW_* */
	bool sends_descriptors;
} table[HPZ_OP_LAST + 1] = {
	[HPZ_OP_STATUS]  = {"read status", sizeof(struct hpz_wire_empty),   check_empty,   handle_status,  CONFIG_ALLOW_STATUS, false},
	[HPZ_OP_LEASE]   = {"lease",   sizeof(struct hpz_wire_lease),   check_lease,   ask_handle_lease,   CONFIG_ALLOW_LEASE,  true},
	[HPZ_OP_ACK]     = {"ack",     sizeof(struct hpz_wire_ack),     check_ack,     handle_ack,     NEEDS_OWN,  false},
	[HPZ_OP_RELEASE] = {"release", sizeof(struct hpz_wire_release), check_release, handle_release, NEEDS_OWN,  false},
	[HPZ_OP_ADOPT]   = {"adopt",   sizeof(struct hpz_wire_adopt),   check_adopt,   handle_adopt,   NEEDS_OWN,  true},
	[HPZ_OP_LIST]    = {"list leases", sizeof(struct hpz_wire_list),    check_list,    handle_list,    CONFIG_ALLOW_STATUS, false},
	[HPZ_OP_WAIT]    = {"wait",    sizeof(struct hpz_wire_wait),    check_wait,    handle_wait,    CONFIG_ALLOW_STATUS, false},
	[HPZ_OP_DRAIN]   = {"drain",   sizeof(struct hpz_wire_drain),   check_drain,   handle_drain,   CONFIG_ALLOW_ADMIN,  false},
	[HPZ_OP_CHECK]   = {"check",   sizeof(struct hpz_wire_check),   check_check,   handle_check,   CONFIG_ALLOW_ADMIN,  false},
	[HPZ_OP_PLAN]    = {"plan",    sizeof(struct hpz_wire_lease),   check_lease,   preview_handle,    CONFIG_ALLOW_STATUS | CONFIG_ALLOW_LEASE, false},
	[HPZ_OP_RESERVE] = {"reserve", sizeof(struct hpz_wire_lease), check_reserve, ask_handle_reserve, CONFIG_ALLOW_LEASE, false},
	[HPZ_OP_CHANGE] = {"change a lease", sizeof(struct hpz_wire_change), check_change, change_handle, NEEDS_OWN, true},
	[HPZ_OP_UNRESERVE] = {"unreserve", sizeof(struct hpz_wire_release), check_unreserve, ask_handle_unreserve, NEEDS_OWN, false},
	[HPZ_OP_VERIFY]  = {"verify",  sizeof(struct hpz_wire_verify),  check_verify,  handle_verify,  CONFIG_ALLOW_ADMIN,  false},
	[HPZ_OP_CALIBRATE] = {"calibrate", sizeof(struct hpz_wire_calibrate), check_calibrate, handle_calibrate, CONFIG_ALLOW_ADMIN, false},
	[HPZ_OP_SET]     = {"set rules of clearing", sizeof(struct hpz_wire_set), check_set, handle_set, CONFIG_ALLOW_ADMIN, false},
	[HPZ_OP_RESIZE]  = {"resize a pool", sizeof(struct hpz_wire_resize), check_resize, handle_resize, CONFIG_ALLOW_ADMIN, false},
	[HPZ_OP_CLEARING] = {"read status", sizeof(struct hpz_wire_empty), check_empty, handle_clearing, CONFIG_ALLOW_STATUS, false},
	[HPZ_OP_DEMAND] = {"read status", sizeof(struct hpz_wire_demand), check_demand, handle_demand, CONFIG_ALLOW_STATUS, false},
	[HPZ_OP_EVENTS] = {"read events", sizeof(struct hpz_wire_events), check_events, handle_events, CONFIG_ALLOW_STATUS | CONFIG_ALLOW_LEASE, false},
	[HPZ_OP_METRICS] = {"read status", sizeof(struct hpz_wire_metrics), check_metrics, handle_metrics, CONFIG_ALLOW_STATUS, false},
	[HPZ_OP_TEARDOWN] = {"read status", sizeof(struct hpz_wire_teardown), check_teardown, handle_teardown, CONFIG_ALLOW_STATUS | CONFIG_ALLOW_LEASE, false},
};
/* clang-format on */

static enum request_outcome refuse_broken(
	struct requests *requests, const struct hpz_wire_head *head, int error, const char *why)
{
	desk_make_error(requests, head->op, head->id, error, 0, why);
	return REQUEST_BROKEN;
}

int request_read_payload(const struct hpz_wire_head *head, const void *message, size_t length,
	union request_payload *ret_payload, const char **ret_why)
{
	*ret_why = "this hpzd does not know this request";
	if (!table[head->op].handle)
		return HPZ_ERR_UNSUPPORTED;
	*ret_why = "the message is not what its operation demands";
	int r = proto_get_payload(message, length, ret_payload, table[head->op].size);
	return r ? r : table[head->op].check(ret_payload, ret_why);
}

static enum request_outcome handle(struct requests *requests, struct session *session,
	const struct request_peer *peer, const void *message, size_t length, uint64_t unread_lease)
{
	union request_payload payload;
	struct hpz_wire_head head = {0};
	const char *why;
	int r = proto_get_head(message, length, false, &head);
	if (r == HPZ_ERR_UNSUPPORTED) /* of somebody newer, who may go on with what we know */
		return desk_refuse(
			requests, &head, r, "hpzd %s knows no operation %u", HPZ_VERSION, (unsigned)head.op);
	if (r)
		return refuse_broken(requests, &head, r, "the message has no valid head");
	if (head.op == HPZ_OP_HELLO)
		return refuse_broken(requests, &head, HPZ_ERR_PROTOCOL, "hello was said already");
	r = request_read_payload(&head, message, length, &payload, &why);
	if (r)
		return head.op == HPZ_OP_ACK ? refuse_broken(requests, &head, r, why)
					     : desk_make_error(requests, head.op, head.id, r, 0, why);
	struct access_rule rule;
	desk_find_rule(requests, peer, &rule);
	if (!access_may(&rule, table[head.op].needs))
		return head.op == HPZ_OP_ACK
			       ? REQUEST_NO_REPLY
			       : desk_refuse_denied(requests, &head, &rule, table[head.op].name);
	if (table[head.op].sends_descriptors && unread_lease)
		return desk_refuse(requests, &head, HPZ_ERR_BUSY,
			"confirm the descriptors of lease %" PRIu64 " before asking for more", unread_lease);
	metrics_add(METRICS_REQUESTS, head.op, 1);
	requests->reply.fd_count = 0;
	requests->reply.lease = 0;
	return table[head.op].handle(requests, session, peer, &head, &payload);
}

enum request_outcome request_handle(struct requests *requests, struct session *session,
	const struct request_peer *peer, const void *message, size_t length, uint64_t unread_lease)
{
	uint64_t begun_ns = clock_get_ns(CLOCK_MONOTONIC);
	enum request_outcome outcome = handle(requests, session, peer, message, length, unread_lease);
	if (outcome == REQUEST_REPLIED || outcome == REQUEST_BROKEN)
		desk_count_reply(requests, peer, begun_ns, false);
	return outcome;
}

enum request_outcome request_handle_hello(
	struct requests *requests, const void *message, size_t length, uint64_t *ret_capabilities)
{
	struct hpz_wire_head head = {.op = HPZ_OP_HELLO};
	struct hpz_wire_hello hello;
	const char *why = "the first message must be a hello";
	int r = proto_get_head(message, length, false, &head);
	if (r == 0 && head.op != HPZ_OP_HELLO)
		r = HPZ_ERR_PROTOCOL;
	if (r == 0)
		r = proto_get_payload(message, length, &hello, sizeof hello);
	if (r == 0)
		r = proto_check_hello(&hello, &why);
	*ret_capabilities = r ? 0 : hello.capabilities;
	if (r)
		return refuse_broken(requests, &head, r, why);
	struct hpz_wire_hello *reply = desk_get_payload(requests);
	*reply = (struct hpz_wire_hello){
		.size = sizeof *reply,
		.magic = HPZ_WIRE_MAGIC,
		.version = HPZ_WIRE_VERSION,
		.compat = HPZ_WIRE_COMPAT,
		.max_message = HPZ_WIRE_MAX_MESSAGE,
		.max_request = HPZ_WIRE_MAX_REQUEST,
		.max_descriptors = HPZ_WIRE_MAX_FDS,
	};
	proto_set_text(reply->program, sizeof reply->program, HPZ_VERSION);
	requests->reply.fd_count = 0;
	requests->reply.lease = 0;
	return desk_finish_reply(requests, HPZ_OP_HELLO, head.id, sizeof *reply);
}

/* ---- life ---- */

static void on_extension_failed(void *keeper, void *user)
{
	struct requests *requests = user;
	LIST_FOR_EACH (pos, &requests->waiting) {
		struct request *request = CONTAINER_OF(pos, struct request, link);
		for (size_t i = 0; i < request->shares.count; i++)
			request->failed += &request->shares.list[i] == keeper;
	}
	reserve_note_failed(&requests->reserves, keeper);
}

void request_cancel_session(struct requests *requests, struct session *session)
{
	LIST_FOR_EACH_SAFE (pos, &requests->waiting) {
		struct request *request = CONTAINER_OF(pos, struct request, link);
		if (request->session != session)
			continue;
		if (request->has_waited)
			metrics_observe(METRICS_LEASE_WAIT, METRICS_CANCELLED, desk_get_age_ns(request));
		desk_drop_request(request);
	}
	queue_count(requests);
	LIST_FOR_EACH (pos, &requests->leases->leases) {
		struct lease *lease = LEASE_OF(pos);
		if (lease->bound == session && lease->state != HPZ_STATE_RETURNING)
			handoff_return(requests->handoff, lease, "its connection was closed");
	}
}

void request_init(struct requests *requests, uv_loop_t *loop, const struct host *host,
	const struct config *config, struct crew *crew, struct lease_table *leases, struct handoff *handoff,
	struct reconcile *reconcile, struct books *books,
	void (*send)(struct session *session, struct request_reply *reply))
{
	memset(requests, 0, sizeof *requests);
	requests->loop = loop;
	requests->host = host;
	requests->config = config;
	requests->crew = crew;
	requests->leases = leases;
	requests->handoff = handoff;
	requests->reconcile = reconcile;
	requests->books = books;
	requests->send = send;
	requests->on_timeout = on_timeout;
	requests->started_ns = clock_get_ns(CLOCK_MONOTONIC);
	list_init(&requests->waiting);
	verify_init(&requests->verify, reconcile);
	supply_init(&requests->supply, reconcile, handoff, &requests->verify, on_extension_failed, requests);
	reserve_init(&requests->reserves, loop, &requests->supply, leases);
}

void request_deinit(struct requests *requests)
{
	LIST_FOR_EACH_SAFE (pos, &requests->waiting)
		desk_drop_request(CONTAINER_OF(pos, struct request, link));
	reserve_deinit(&requests->reserves);
	/* Connections end with us now, and not because a client wants its lease to end. */
	LIST_FOR_EACH (pos, &requests->leases->leases)
		LEASE_OF(pos)->bound = NULL;
}
