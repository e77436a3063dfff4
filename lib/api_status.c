/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * api_status.c - what hpzd has and does: status, list, wait, drain, verify.
 * Status and list are copies: what their getters hand out stays until they are freed.
 */
#include "api.h"

#define API_MOST_LEASES (1u << 20) /* a server that lists more is not ours */

/* ---- list ---- */

struct api_list_holder {
	int32_t pid, fd;
	char comm[17];
};

struct api_list_lease {
	struct hpz_lease_info info; /* its strings are set when it is handed out */
	struct api_segment *segments;
	struct api_list_holder *holders;
	char label[HPZ_WIRE_LABEL + 1];
	char comm[17];
	char reason[HPZ_WIRE_NAME + 1];
	char key[HPZ_WIRE_KEY + 1];
};

struct hpz_lease_list {
	struct api_list_lease *leases;
	size_t count, capacity;
};

void hpz_list_free(struct hpz_lease_list *list)
{
	if (!list)
		return;
	for (size_t i = 0; i < list->count; i++) {
		free(list->leases[i].segments);
		free(list->leases[i].holders);
	}
	free(list->leases);
	free(list);
}

static void cleanup_list(struct hpz_lease_list **list)
{
	hpz_list_free(*list);
}

/* Appends an empty lease; NULL: no memory. */
static struct api_list_lease *api_list_append(struct hpz_lease_list *list)
{
	if (list->count == list->capacity) {
		size_t capacity = list->capacity ? list->capacity * 2 : 16;
		struct api_list_lease *leases = reallocarray(list->leases, capacity, sizeof(*leases));
		if (!leases)
			return NULL;
		list->leases = leases;
		list->capacity = capacity;
	}
	struct api_list_lease *lease = &list->leases[list->count++];
	memset(lease, 0, sizeof(*lease));
	return lease;
}

static bool api_read_holder(struct api_reader *reader, struct api_list_holder *ret_holder)
{
	struct hpz_wire_holder record;

	if (!api_read(reader, &record, sizeof(record)) || record.record != HPZ_RECORD_HOLDER ||
		record.pid <= 0 || record.fd < -1)
		return false;
	ret_holder->pid = record.pid;
	ret_holder->fd = record.fd;
	proto_get_text(record.comm, sizeof(record.comm), ret_holder->comm);
	return true;
}

static bool api_check_lease_record(const struct hpz_wire_lease_record *record)
{
	return record->record == HPZ_RECORD_LEASE && record->id && record->state >= HPZ_STATE_OFFERED &&
	       record->state <= HPZ_STATE_RESERVED &&
	       (record->deliver == HPZ_DELIVER_FD || record->deliver == HPZ_DELIVER_PATH) &&
	       record->pid >= 0 && record->holders <= HPZ_WIRE_MAX_HOLDERS && !record->reserved;
}

/* Reads one lease with its segments and holders. False with errno 0: malformed. */
static bool api_read_list_lease(struct api_reader *reader, struct api_list_lease *lease)
{
	struct hpz_wire_lease_record record;
	int32_t descriptor;

	errno = 0;
	if (!api_read(reader, &record, sizeof(record)) || !api_check_lease_record(&record) ||
		record.segments > reader->left / sizeof(uint32_t))
		return false;
	lease->info = (struct hpz_lease_info){
		.id = record.id,
		.size = record.given,
		.asked = record.asked,
		.age_ms = record.age_ms,
		.holes = record.holes,
		.grown = record.grown,
		.state = record.state,
		.deliver = record.deliver,
		.flags = record.flags,
		.uid = record.uid,
		.pid = record.pid,
		.segment_count = record.segments,
		.holder_count = record.holders,
		.ttl_ms = record.ttl_ms,
	};
	proto_get_text(record.label, sizeof(record.label), lease->label);
	proto_get_text(record.comm, sizeof(record.comm), lease->comm);
	proto_get_text(record.reason, sizeof(record.reason), lease->reason);
	proto_get_text(record.key, sizeof(record.key), lease->key);
	lease->segments = calloc(record.segments + 1, sizeof(lease->segments[0]));
	lease->holders = calloc(record.holders + 1, sizeof(lease->holders[0]));
	if (!lease->segments || !lease->holders)
		return false;
	for (uint32_t i = 0; i < record.segments; i++) {
		if (!api_read_segment(reader, &lease->segments[i], &descriptor) || descriptor != -1)
			return false;
	}
	for (uint32_t i = 0; i < record.holders; i++) {
		if (!api_read_holder(reader, &lease->holders[i]))
			return false;
	}
	return true;
}

/* Reads the leases of one page. `listed->records` counts every record, so that each page can be checked by
 * itself. */
static int api_read_page(
	struct hpz *hpz, struct api_reader *reader, uint32_t records, struct hpz_lease_list *list)
{
	uint64_t seen = 0;

	while (seen < records) {
		struct api_list_lease *lease = list->count < API_MOST_LEASES ? api_list_append(list) : NULL;
		if (!lease)
			return api_fail_system(hpz, "no memory for the list");
		if (!api_read_list_lease(reader, lease))
			return errno ? api_fail_system(hpz, "no memory for the list")
				     : api_fail_protocol(hpz, "a malformed list");
		seen += 1 + lease->info.segment_count + lease->info.holder_count;
	}
	if (seen != records || reader->left)
		return api_fail_protocol(hpz, "a list of another length than it says");
	return HPZ_OK;
}

int hpz_list(struct hpz *hpz, struct hpz_lease_list **ret_list)
{
	__attribute__((cleanup(cleanup_list))) struct hpz_lease_list *list = NULL;
	struct hpz_wire_list wire = {.size = sizeof(wire), .flags = HPZ_WIRE_LIST_FLAGS};
	struct hpz_wire_listed listed;

	int error = api_begin_call(hpz);
	if (error)
		return error;
	if (!ret_list)
		return api_fail(hpz, HPZ_ERR_INVALID, "there is no place for the list");
	list = calloc(1, sizeof(*list));
	if (!list)
		return api_fail_system(hpz, "no memory for the list");
	do {
		struct api_reply reply = {0};
		error = api_call(hpz, HPZ_OP_LIST, &wire, sizeof(wire), 0, &reply);
		/* An older hpzd gives no keys, a still older one knows of no reservations, the first one of
		 * no orphans. */
		while (error == HPZ_ERR_UNSUPPORTED && wire.flags && !wire.cursor) {
			wire.flags >>= 1;
			hpz->text[0] = '\0';
			error = api_call(hpz, HPZ_OP_LIST, &wire, sizeof(wire), 0, &reply);
		}
		if (error)
			return error;
		/* A cursor that does not move would keep us here for ever. */
		if (!api_read(&reply.payload, &listed, sizeof(listed)) ||
			(listed.cursor && (listed.cursor == wire.cursor || !listed.records)))
			return api_fail_protocol(hpz, "a malformed list");
		error = api_read_page(hpz, &reply.payload, listed.records, list);
		if (error)
			return error;
		wire.cursor = listed.cursor;
	} while (wire.cursor);
	*ret_list = steal_pointer(&list);
	return HPZ_OK;
}

size_t hpz_list_get_count(const struct hpz_lease_list *list)
{
	return list ? list->count : 0;
}

int hpz_list_get_lease(const struct hpz_lease_list *list, size_t index, struct hpz_lease_info *info)
{
	if (!list || index >= list->count)
		return HPZ_ERR_INVALID;
	struct hpz_lease_info ours = list->leases[index].info;
	ours.label = list->leases[index].label;
	ours.comm = list->leases[index].comm;
	ours.reason = list->leases[index].reason;
	ours.key = list->leases[index].key;
	return api_put_struct(info, &ours, sizeof(ours));
}

int hpz_list_get_segment(
	const struct hpz_lease_list *list, size_t index, size_t segment_index, struct hpz_segment *segment)
{
	struct hpz_segment ours;

	if (!list || index >= list->count || segment_index >= list->leases[index].info.segment_count)
		return HPZ_ERR_INVALID;
	api_put_segment(&list->leases[index].segments[segment_index], &ours);
	return api_put_struct(segment, &ours, sizeof(ours));
}

int hpz_list_get_holder(
	const struct hpz_lease_list *list, size_t index, size_t holder_index, struct hpz_holder *holder)
{
	if (!list || index >= list->count || holder_index >= list->leases[index].info.holder_count)
		return HPZ_ERR_INVALID;
	const struct api_list_holder *from = &list->leases[index].holders[holder_index];
	struct hpz_holder ours = {.pid = from->pid, .fd = from->fd, .comm = from->comm};
	return api_put_struct(holder, &ours, sizeof(ours));
}

/* ---- status ---- */

struct api_pool {
	struct hpz_wire_pool wire;
	char name[HPZ_WIRE_NAME + 1];
	char mount[HPZ_WIRE_PATH + 1];
	char message[HPZ_WIRE_TEXT + 1];
};

struct hpz_status {
	struct hpz_wire_status wire;
	char version[HPZ_WIRE_NAME + 1];
	char proof[HPZ_WIRE_NAME + 1];
	char method[HPZ_WIRE_NAME + 1];
	char message[HPZ_WIRE_TEXT + 1];
	struct api_pool pools[];
};

void hpz_status_free(struct hpz_status *status)
{
	free(status);
}

static bool api_read_pool(struct api_reader *reader, struct api_pool *ret_pool)
{
	const struct hpz_wire_pool *wire = &ret_pool->wire;

	if (!api_read(reader, &ret_pool->wire, sizeof(ret_pool->wire)) || wire->record != HPZ_RECORD_POOL ||
		wire->page_size == 0 || wire->node < 0 || wire->idle > 1 || wire->reserved)
		return false;
	proto_get_text(wire->name, sizeof(wire->name), ret_pool->name);
	proto_get_text(wire->mount, sizeof(wire->mount), ret_pool->mount);
	proto_get_text(wire->message, sizeof(wire->message), ret_pool->message);
	return true;
}

static bool api_read_pools(struct api_reader *reader, struct hpz_status *status)
{
	for (uint32_t i = 0; i < status->wire.pools; i++) {
		if (!api_read_pool(reader, &status->pools[i]))
			return false;
	}
	return reader->left == 0;
}

int hpz_get_status(struct hpz *hpz, struct hpz_status **ret_status)
{
	_cleanup_api_reply_ struct api_reply reply = {0};
	_cleanup_free_ struct hpz_status *status = NULL;
	struct hpz_wire_empty empty = {.size = sizeof(empty)};
	struct hpz_wire_status wire;

	int error = api_begin_call(hpz);
	if (error)
		return error;
	if (!ret_status)
		return api_fail(hpz, HPZ_ERR_INVALID, "there is no place for the status");
	error = api_call(hpz, HPZ_OP_STATUS, &empty, sizeof(empty), 0, &reply);
	if (error)
		return error;
	if (!api_read(&reply.payload, &wire, sizeof(wire)) ||
		wire.pools > reply.payload.left / sizeof(uint32_t) || wire.reserved)
		return api_fail_protocol(hpz, "a malformed status");
	status = calloc(1, sizeof(*status) + wire.pools * sizeof(status->pools[0]));
	if (!status)
		return api_fail_system(hpz, "no memory for the status");
	status->wire = wire;
	proto_get_text(wire.version, sizeof(wire.version), status->version);
	proto_get_text(wire.proof, sizeof(wire.proof), status->proof);
	proto_get_text(wire.method, sizeof(wire.method), status->method);
	proto_get_text(wire.message, sizeof(wire.message), status->message);
	if (!api_read_pools(&reply.payload, status))
		return api_fail_protocol(hpz, "a malformed status");
	*ret_status = steal_pointer(&status);
	return HPZ_OK;
}

int hpz_status_get_daemon(const struct hpz_status *status, struct hpz_daemon_status *daemon)
{
	if (!status)
		return HPZ_ERR_INVALID;
	struct hpz_daemon_status ours = {
		.version = status->version,
		.proof = status->proof,
		.method = status->method,
		.message = status->message,
		.uptime_ms = status->wire.uptime_ms,
		.pool_count = status->wire.pools,
		.lease_count = status->wire.leases,
		.worker_count = status->wire.workers,
		.connection_count = status->wire.connections,
		.leases_granted = status->wire.leases_granted,
		.bytes_cleared = status->wire.bytes_cleared,
		.bytes_filled = status->wire.bytes_filled,
		.worker_deaths = status->wire.worker_deaths,
		.book_alarms = status->wire.book_alarms,
	};
	return api_put_struct(daemon, &ours, sizeof(ours));
}

int hpz_status_get_pool(const struct hpz_status *status, size_t index, struct hpz_pool_status *pool)
{
	if (!status || index >= status->wire.pools)
		return HPZ_ERR_INVALID;
	const struct api_pool *from = &status->pools[index];
	struct hpz_pool_status ours = {
		.name = from->name,
		.message = from->message,
		.mount = from->mount,
		.page_size = from->wire.page_size,
		.node = from->wire.node,
		.waiting = from->wire.waiting,
		.target = from->wire.target,
		.total = from->wire.total,
		.clean = from->wire.clean,
		.leased = from->wire.leased,
		.returning = from->wire.returning,
		.dirty = from->wire.dirty,
		.filling = from->wire.filling,
		.holes = from->wire.holes,
		.raised = from->wire.raised,
		.kernel_nr = from->wire.kernel_nr,
		.kernel_free = from->wire.kernel_free,
		.kernel_resv = from->wire.kernel_resv,
		.largest_clean = from->wire.largest_clean,
		.clean_segments = from->wire.clean_segments,
		.idle = from->wire.idle,
		.orphan_pages = from->wire.orphan_pages,
		.retired_pages = from->wire.retired_pages,
		.verified_pages = from->wire.verified_pages,
		.orphans = from->wire.orphans,
		.verify_hits = from->wire.verify_hits,
		.sigbus = from->wire.sigbus,
		.reserved_pages = from->wire.reserved_pages,
		.configured = from->wire.configured,
		.give_back = from->wire.give_back,
	};
	return api_put_struct(pool, &ours, sizeof(ours));
}

/* ---- wait and drain: done or not, nothing else comes back ---- */

static int api_call_empty(struct hpz *hpz, uint16_t op, const void *payload, size_t size, int64_t waits_ms,
	struct api_reply *ret_reply)
{
	struct hpz_wire_empty empty;

	int error = api_call(hpz, op, payload, size, waits_ms, ret_reply);
	if (error)
		return error;
	if (!api_read(&ret_reply->payload, &empty, sizeof(empty)) || empty.reserved ||
		ret_reply->payload.left)
		return api_fail_protocol(hpz, "an answer with something in it");
	return HPZ_OK;
}

int hpz_wait(struct hpz *hpz, const struct hpz_wait_request *request)
{
	struct hpz_wait_request known;
	struct api_reply reply = {0};
	struct hpz_wire_wait wire = {.size = sizeof(wire)};
	const char *why;

	int error = api_begin_call(hpz);
	if (error)
		return error;
	error = api_get_struct(request, &known, sizeof(known), sizeof(known));
	if (error)
		return api_fail(hpz, error, "the request is NULL, or its struct_size is not one we know");
	if (known.pool && (strlen(known.pool) > sizeof(wire.pool) || !*known.pool))
		return api_fail(hpz, HPZ_ERR_NO_POOL, "no pool can have this name");
	if (known.pool)
		memcpy(wire.pool, known.pool, strlen(known.pool));
	wire.clean = known.clean;
	wire.timeout_ms = known.timeout_ms;
	error = proto_check_wait(&wire, &why);
	if (error)
		return api_fail(hpz, error, "%s", why);
	return api_call_empty(hpz, HPZ_OP_WAIT, &wire, sizeof(wire), wire.timeout_ms, &reply);
}

int hpz_drain(struct hpz *hpz, unsigned flags, int64_t timeout_ms, uint32_t *ret_leases)
{
	struct hpz_wire_drain wire = {.size = sizeof(wire), .flags = flags, .timeout_ms = timeout_ms};
	struct api_reply reply = {0};
	const char *why;

	int error = api_begin_call(hpz);
	if (error)
		return error;
	error = proto_check_drain(&wire, &why);
	if (error)
		return api_fail(hpz, error, "%s", why);
	error = api_call_empty(hpz, HPZ_OP_DRAIN, &wire, sizeof(wire), timeout_ms, &reply);
	if (ret_leases && (error == HPZ_OK || error == HPZ_ERR_IN_USE))
		*ret_leases = error ? reply.leases : 0;
	return error;
}

/* ---- verify ---- */

int hpz_verify(struct hpz *hpz, const char *pool, int64_t timeout_ms, struct hpz_verify_result *result)
{
	struct hpz_wire_verify wire = {.size = sizeof(wire), .timeout_ms = timeout_ms};
	struct hpz_wire_verified verified;
	struct api_reply reply = {0};
	const char *why;

	int error = api_begin_call(hpz);
	if (error)
		return error;
	if (!result)
		return api_fail(hpz, HPZ_ERR_INVALID, "there is no place for the result");
	if (pool && (strlen(pool) > sizeof(wire.pool) || !*pool))
		return api_fail(hpz, HPZ_ERR_NO_POOL, "no pool can have this name");
	if (pool)
		memcpy(wire.pool, pool, strlen(pool));
	error = proto_check_verify(&wire, &why);
	if (error)
		return api_fail(hpz, error, "%s", why);
	error = api_call(hpz, HPZ_OP_VERIFY, &wire, sizeof(wire), HPZ_FOREVER, &reply);
	if (error)
		return error;
	if (!api_read(&reply.payload, &verified, sizeof(verified)) || verified.reserved || reply.payload.left)
		return api_fail_protocol(hpz, "a malformed answer to verify");
	struct hpz_verify_result ours = {
		.segments = verified.segments,
		.pages = verified.pages,
		.bytes = verified.bytes,
		.hits = verified.hits,
		.left = verified.left,
		.hit_segment = verified.hit_segment,
		.hit_offset = verified.hit_offset,
	};
	proto_get_text(verified.hit_pool, sizeof(verified.hit_pool), ours.hit_pool);
	return api_put_struct(result, &ours, sizeof(ours));
}
