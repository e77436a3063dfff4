/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* desk.c - replies, access, and requests that wait. */
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>

#include "desk.h"
#include "news.h"
#include "metrics.h"

/* ---- replies ---- */

void *desk_get_payload(struct requests *requests)
{
	return requests->reply.bytes + sizeof(struct hpz_wire_head);
}

enum request_outcome desk_finish_reply(
	struct requests *requests, uint16_t op, uint64_t id, size_t payload_size)
{
	struct request_reply *reply = &requests->reply;
	reply->length =
		proto_set_head(reply->bytes, op, id, true, HPZ_OK, (uint32_t)reply->fd_count, payload_size);
	return REQUEST_REPLIED;
}

enum request_outcome desk_make_error(
	struct requests *requests, uint16_t op, uint64_t id, int error, uint32_t leases, const char *text)
{
	struct hpz_wire_error *payload = desk_get_payload(requests);
	*payload = (struct hpz_wire_error){.size = sizeof *payload, .leases = leases};
	proto_set_text(payload->text, sizeof payload->text, text);
	requests->reply.fd_count = 0;
	requests->reply.lease = 0;
	requests->reply.length =
		proto_set_head(requests->reply.bytes, op, id, true, (uint32_t)error, 0, sizeof *payload);
	return REQUEST_REPLIED;
}

enum request_outcome desk_refuse(
	struct requests *requests, const struct hpz_wire_head *head, int error, const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(requests->text, sizeof requests->text, format, arguments);
	va_end(arguments);
	return desk_make_error(requests, head->op, head->id, error, 0, requests->text);
}

enum request_outcome desk_reply_empty(struct requests *requests, const struct hpz_wire_head *head)
{
	struct hpz_wire_empty *payload = desk_get_payload(requests);
	*payload = (struct hpz_wire_empty){.size = sizeof *payload};
	return desk_finish_reply(requests, head->op, head->id, sizeof *payload);
}

void desk_close_fds(struct request_reply *reply)
{
	for (size_t i = 0; i < reply->fd_count; i++)
		close_fd(reply->fds[i]);
	reply->fd_count = 0;
}

static bool is_for_memory(uint16_t op)
{
	return op == HPZ_OP_LEASE || op == HPZ_OP_RESERVE || op == HPZ_OP_CHANGE;
}

/* Of a peer, about a lease that there is not. */
static void add_event(const struct request_peer *peer, enum hpz_event_kind kind, const char *text)
{
	struct news event = {.kind = kind, .uid = peer->uid, .pid = peer->pid};
	snprintf(event.text, sizeof event.text, "%.*s", NEWS_TEXT - 1, text);
	news_add(&event);
}

/* The reason that the reply gives. */
static void add_refusal(const struct requests *requests, const struct request_peer *peer)
{
	const struct hpz_wire_error *refusal =
		(const void *)(requests->reply.bytes + sizeof(struct hpz_wire_head));
	char text[HPZ_WIRE_TEXT + 1];
	proto_get_text(refusal->text, sizeof refusal->text, text);
	add_event(peer, HPZ_EVENT_REFUSED, text);
}

void desk_count_reply(
	const struct requests *requests, const struct request_peer *peer, uint64_t begun_ns, bool has_waited)
{
	struct hpz_wire_head head;
	memcpy(&head, requests->reply.bytes, sizeof head);
	if (head.error)
		metrics_add(METRICS_REQUEST_ERRORS, head.error, 1);
	if (!is_for_memory(head.op))
		return;
	uint64_t took_ns = clock_get_ns(CLOCK_MONOTONIC) - begun_ns;
	unsigned outcome = head.error ? METRICS_REFUSED : METRICS_GRANTED;
	metrics_observe(METRICS_LEASE_LATENCY, outcome, took_ns);
	if (has_waited)
		metrics_observe(METRICS_LEASE_WAIT, outcome, took_ns);
	if (head.error)
		metrics_add(METRICS_LEASE_REFUSALS, head.error, 1);
	if (head.error)
		add_refusal(requests, peer);
}

/* ---- access ---- */

void desk_find_rule(
	const struct requests *requests, const struct request_peer *peer, struct access_rule *ret_rule)
{
	struct access_peer who = {peer->uid, peer->gid, peer->groups, peer->group_count};
	access_find_rule(requests->config, &who, ret_rule);
}

enum request_outcome desk_refuse_denied(struct requests *requests, const struct hpz_wire_head *head,
	const struct access_rule *rule, const char *what)
{
	access_explain_denied(rule, what, requests->text, sizeof requests->text);
	return desk_make_error(requests, head->op, head->id, HPZ_ERR_DENIED, 0, requests->text);
}

enum request_outcome desk_refuse_priority(struct requests *requests, const struct hpz_wire_head *head,
	const struct access_rule *rule, int32_t priority)
{
	access_explain_priority(rule, priority, requests->text, sizeof requests->text);
	return desk_make_error(requests, head->op, head->id, HPZ_ERR_DENIED, 0, requests->text);
}

enum request_outcome desk_refuse_foreign(struct requests *requests, const struct hpz_wire_head *head,
	const struct access_rule *rule, const struct lease *lease)
{
	char what[96];
	if (lease->uid == UINT32_MAX)
		snprintf(what, sizeof what, "touch lease %" PRIu64 ", whose owner is not known any more",
			lease->id);
	else
		snprintf(what, sizeof what, "touch lease %" PRIu64 ", which belongs to uid %" PRIu32,
			lease->id, lease->uid);
	return desk_refuse_denied(requests, head, rule, what);
}

/* What is forced to its end goes on to count until its pages are let go. A reservation counts as a lease. */
static void count_usage(const struct requests *requests, uint32_t uid, struct access_usage *ret_usage)
{
	*ret_usage = (struct access_usage){0};
	lease_get_usage(requests->leases, uid, &ret_usage->leases, &ret_usage->bytes);
	LIST_FOR_EACH (pos, &requests->reserves.list) {
		if (RESERVATION_OF(pos)->uid != uid)
			continue;
		ret_usage->leases++;
		ret_usage->bytes += reserve_get_bytes(RESERVATION_OF(pos));
	}
	ret_usage->bytes += orphan_get_bytes(handoff_get_orphans(requests->handoff), uid);
}

bool desk_has_quota(struct requests *requests, const struct request_peer *peer, uint64_t more_leases,
	uint64_t more_bytes, const struct reservation *reservation)
{
	struct access_rule rule;
	struct access_usage usage;
	desk_find_rule(requests, peer, &rule);
	if (!rule.section)
		return true;
	count_usage(requests, peer->uid, &usage);
	if (reservation && reservation->uid == peer->uid) {
		uint64_t reserved = reserve_get_bytes(reservation);
		usage.leases -= more_bytes >= reserved; /* it ends: else it is there beside the lease */
		usage.bytes -= MIN(more_bytes, reserved);
	}
	enum access_limit limit = access_check_quota(&rule, &usage, more_leases, more_bytes);
	access_explain_quota(&rule, limit, &usage, more_bytes, requests->text, sizeof requests->text);
	return limit == ACCESS_FINE;
}

/* Whether one more request of the peer may wait; if not, what to say is in requests->text. */
static bool may_wait(struct requests *requests, const struct request_peer *peer)
{
	struct access_rule rule;
	uint64_t waiting = 0;
	desk_find_rule(requests, peer, &rule);
	if (!rule.section)
		return true;
	LIST_FOR_EACH (pos, &requests->waiting)
		waiting += CONTAINER_OF(pos, struct request, link)->peer.uid == peer->uid;
	if (access_may_wait(&rule, waiting))
		return true;
	access_explain_limit(
		&rule, "max_requests", rule.section->max_requests, requests->text, sizeof requests->text);
	return false;
}

/* ---- requests that wait ---- */

static int copy_fd(int fd)
{
	return fd >= 0 ? fcntl(fd, F_DUPFD_CLOEXEC, 3) : -1;
}

struct request *desk_make_waiting(struct requests *requests, struct session *session,
	const struct request_peer *peer, const struct hpz_wire_head *head, int64_t timeout_ms)
{
	if (!may_wait(requests, peer))
		return NULL;
	struct request *request = calloc(1, sizeof *request);
	if (!request) {
		snprintf(requests->text, sizeof requests->text,
			"hpzd has no memory for one more waiting request");
		return NULL;
	}
	request->requests = requests;
	request->session = session;
	request->peer = *peer;
	request->peer.pidfd = copy_fd(peer->pidfd);
	request->op = head->op;
	request->id = head->id;
	request->begun_ns = clock_get_ns(CLOCK_MONOTONIC);
	uv_timer_init(requests->loop, &request->timer);
	request->timer.data = request;
	if (timeout_ms >= 0)
		uv_timer_start(&request->timer, requests->on_timeout, (uint64_t)timeout_ms, 0);
	list_append(&requests->waiting, &request->link);
	if (is_for_memory(head->op))
		add_event(peer, HPZ_EVENT_WAITING, "");
	return request;
}

enum request_outcome desk_refuse_waiting(struct requests *requests, const struct hpz_wire_head *head)
{
	return desk_make_error(requests, head->op, head->id, HPZ_ERR_BUSY, 0, requests->text);
}

uint64_t desk_get_age_ns(const struct request *request)
{
	return clock_get_ns(CLOCK_MONOTONIC) - request->begun_ns;
}

struct hpz_wire_head desk_make_head(const struct request *request)
{
	return (struct hpz_wire_head){.op = request->op, .id = request->id};
}

static void free_request(uv_handle_t *handle)
{
	struct request *request = handle->data;
	close_fd(request->peer.pidfd);
	free(request);
}

void desk_drop_request(struct request *request)
{
	struct requests *requests = request->requests;
	list_remove(&request->link);
	if (request->shares.count > 0) {
		desk_drop_shares(requests, &request->shares);
		reconcile_mark(requests->reconcile);
	}
	if (request->op == HPZ_OP_VERIFY)
		verify_cancel_run(&requests->verify, &request->run);
	uv_close((uv_handle_t *)&request->timer, free_request);
}

void desk_answer(struct request *request)
{
	struct requests *requests = request->requests;
	struct session *session = request->session;
	desk_count_reply(requests, &request->peer, request->begun_ns, request->has_waited);
	desk_drop_request(request);
	requests->send(session, &requests->reply);
}

/* ---- shares ---- */

uint64_t desk_count_pages(const struct request_shares *shares, const struct pool *pool)
{
	uint64_t pages = 0;
	for (size_t i = 0; i < shares->count; i++)
		pages += !pool || shares->list[i].pool == pool ? shares->list[i].pages : 0;
	return pages;
}

void desk_set_equal_pages(struct request_shares *shares, uint64_t pages)
{
	for (size_t i = 0; i < shares->count; i++)
		shares->list[i].pages = pages / shares->count + (i < pages % shares->count);
}

bool desk_is_draining(const struct request_shares *shares)
{
	for (size_t i = 0; i < shares->count; i++) {
		if (shares->list[i].pool->is_draining)
			return true;
	}
	return false;
}

void desk_drop_shares(struct requests *requests, struct request_shares *shares)
{
	for (size_t i = 0; i < shares->count; i++)
		supply_drop(&requests->supply, shares->list[i].pool, &shares->list[i]);
}

/* ---- what is asked ---- */

size_t desk_get_leases(const struct hpz_wire_lease *wire)
{
	return MAX(wire->count, 1u);
}

uint32_t desk_get_file_uid(const struct hpz_wire_lease *wire, const struct request_peer *peer)
{
	return wire->owner_uid < 0 ? peer->uid : (uint32_t)wire->owner_uid;
}

uint64_t desk_get_page_size(const struct attempt *attempt)
{
	return attempt->shares->list[0].pool->config.page_size; /* all have the same */
}
