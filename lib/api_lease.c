/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * api_lease.c - memory in our hands: lease, adopt, release, and what a lease handle knows.
 * A lease handle owns its descriptors and its mapping, never the lease itself: that is hpzd's.
 */
#include "api.h"

#define API_LARGEST_ID (1ull << 53) /* exact in a double */

/* What a request had in the first version of the library. */
#define API_LEASE_FIRST offsetof(struct hpz_lease_request, priority)

/* What hpzd may need to zero 256 MiB for us, in ms: memory new in the kernel's pool costs up to 3 s a GiB. */
#define API_ZERO_SHIFT 28
#define API_ZERO_MS    1000

/* ---- the reply ---- */

/* Gives each segment its descriptor. */
static bool api_take_fds(struct hpz_lease *lease, const int32_t *descriptors, struct api_reply *reply)
{
	for (size_t i = 0; i < lease->segment_count; i++) {
		int32_t index = descriptors[i];
		if (lease->deliver == HPZ_DELIVER_PATH) {
			if (index != -1)
				return false;
			continue;
		}
		if (index < 0 || (size_t)index >= reply->fd_count || reply->fds[index] < 0)
			return false;
		lease->segments[i].fd = steal_fd(&reply->fds[index]);
	}
	return true;
}

/* The reply is read: every descriptor is somebody's, and nothing follows. */
static bool api_is_used_up(const struct api_reply *reply)
{
	for (size_t i = 0; i < reply->fd_count; i++) {
		if (reply->fds[i] >= 0)
			return false;
	}
	return reply->payload.left == 0;
}

/* Descriptors and paths are never mixed, and the segments make up what is given. */
static bool api_check_segments(const struct hpz_lease *lease)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < lease->segment_count; i++) {
		const struct api_segment *segment = &lease->segments[i];
		if ((segment->path[0] != '\0') != (lease->deliver == HPZ_DELIVER_PATH))
			return false;
		if (__builtin_add_overflow(sum, segment->bytes, &sum))
			return false;
	}
	return sum == lease->given;
}

static bool api_check_leased(const struct hpz_wire_leased *leased)
{
	return leased->id && leased->id < API_LARGEST_ID && leased->segments && leased->asked &&
	       leased->given >= leased->asked && !leased->reserved && leased->ready <= leased->given &&
	       leased->zeroed <= leased->given - leased->ready &&
	       (leased->deliver == HPZ_DELIVER_FD || leased->deliver == HPZ_DELIVER_PATH);
}

/* Reads the segments behind `leased` and gives them their descriptors. NULL with errno 0: malformed. */
static struct hpz_lease *api_read_lease(const struct hpz_wire_leased *leased, struct api_reply *reply)
{
	_cleanup_free_ int32_t *descriptors = NULL;

	errno = 0;
	/* The count is a stranger's: believed only when so many records can be there. */
	if (leased->segments > reply->payload.left / sizeof(uint32_t))
		return NULL;
	descriptors = calloc(leased->segments, sizeof(*descriptors));
	struct hpz_lease *lease = calloc(1, sizeof(*lease) + leased->segments * sizeof(lease->segments[0]));
	if (!descriptors || !lease) {
		free(lease);
		errno = ENOMEM;
		return NULL;
	}
	lease->id = leased->id;
	lease->asked = leased->asked;
	lease->given = leased->given;
	lease->ready = leased->ready;
	lease->zeroed = leased->zeroed;
	lease->deliver = leased->deliver;
	bool good = true;
	while (good && lease->segment_count < leased->segments) {
		size_t i = lease->segment_count++;
		lease->segments[i].fd = -1;
		good = api_read_segment(&reply->payload, &lease->segments[i], &descriptors[i]);
	}
	if (!good || !api_check_segments(lease) || !api_take_fds(lease, descriptors, reply)) {
		hpz_lease_free(lease);
		errno = 0;
		return NULL;
	}
	return lease;
}

/* Tells hpzd that they have arrived; until then they are only offered, and end with the connection. */
static int api_acknowledge(struct hpz *hpz, uint64_t id, size_t count)
{
	struct hpz_wire_ack ack = {.size = sizeof(ack), .id = id, .count = count > 1 ? (uint32_t)count : 0};
	uint64_t request_id;

	return api_send(hpz, HPZ_OP_ACK, &ack, sizeof(ack), &request_id);
}

/*
 * The descriptors were sent and the kernel kept them back. New leases are given back, so that nobody waits
 * for memory that nobody has; an adopted one is somebody's and stays.
 */
static int api_fail_withheld(struct hpz *hpz, uint16_t op, uint64_t id, size_t count)
{
	int error = api_acknowledge(hpz, id, count);

	for (size_t i = 0; !error && op == HPZ_OP_LEASE && i < count; i++)
		error = hpz_release(hpz, id + i, 0, 0);
	if (error == HPZ_ERR_LOST)
		return error;
	return api_fail(hpz, HPZ_ERR_WITHHELD,
		"a descriptor was withheld by a security module or the limit on open files (ulimit -n)%s",
		error || op != HPZ_OP_LEASE ? "" : "; the lease was given back");
}

/* Each cell in its order, whole and where it was to be; without cells nothing is of another one. */
static bool api_check_cells(const struct hpz_lease *lease, const struct hpz_wire_lease *asked)
{
	uint64_t bytes = 0;
	uint32_t at = 0;

	for (size_t i = 0; i < lease->segment_count; i++) {
		const struct api_segment *segment = &lease->segments[i];
		if (segment->cell != at && segment->cell == at + 1 && at < asked->cells &&
			bytes >= asked->cell[at].bytes) {
			at++;
			bytes = 0;
		}
		if (segment->cell != at || at >= MAX(asked->cells, 1u) ||
			(asked->cells && segment->node != asked->cell[at].node))
			return false;
		bytes += segment->bytes;
	}
	return asked->cells == 0 || (at + 1 == asked->cells && bytes >= asked->cell[at].bytes);
}

/* The ids of a bulk follow one another. `asked` NULL: it is an ADOPT, and may be anything. */
static int api_read_leases(struct hpz *hpz, uint16_t op, const struct hpz_wire_lease *asked, size_t count,
	struct api_reply *reply, struct hpz_lease **leases)
{
	struct hpz_wire_leased leased;

	for (size_t i = 0; i < count; i++) {
		if (!api_read(&reply->payload, &leased, sizeof(leased)) || !api_check_leased(&leased) ||
			(asked && (leased.given < asked->bytes || leased.deliver != asked->deliver)) ||
			(i > 0 && leased.id != leases[0]->id + i))
			return api_fail_protocol(hpz, "a lease that was not asked for");
		if (reply->is_withheld)
			return api_fail_withheld(hpz, op, leased.id, count);
		leases[i] = api_read_lease(&leased, reply);
		if (!leases[i])
			return errno ? api_fail_system(hpz, "no memory for the lease")
				     : api_fail_protocol(hpz, "a malformed lease");
		if (asked && !api_check_cells(leases[i], asked))
			return api_fail_protocol(hpz, "cells that were not asked for");
	}
	return api_is_used_up(reply) ? HPZ_OK : api_fail_protocol(hpz, "more than the leases");
}

/* LEASE and ADOPT are answered alike. On failure ret_leases is untouched. */
static int api_call_leases(struct hpz *hpz, uint16_t op, const void *payload, size_t size, int64_t waits_ms,
	const struct hpz_wire_lease *asked, size_t count, struct hpz_lease **ret_leases)
{
	_cleanup_api_reply_ struct api_reply reply = {0};
	struct hpz_lease *leases[HPZ_WIRE_MAX_FDS] = {NULL};

	int error = api_call(hpz, op, payload, size, waits_ms, &reply);
	if (!error)
		error = api_read_leases(hpz, op, asked, count, &reply, leases);
	if (!error)
		error = api_acknowledge(hpz, leases[0]->id, count);
	for (size_t i = 0; i < count; i++) {
		if (error)
			hpz_lease_free(leases[i]);
		else
			ret_leases[i] = leases[i];
	}
	return error;
}

/* ---- requests ---- */

/* proto_set_text() would cut or repair what it is given; a caller hears of it instead. */
static int api_set_string(struct hpz *hpz, char *to, size_t capacity, const char *string, const char *what)
{
	size_t length = string ? strlen(string) : 0;

	if (length > capacity)
		return api_fail(hpz, HPZ_ERR_INVALID, "the %s is longer than %zu bytes", what, capacity);
	if (!proto_is_text(string ? string : "", length))
		return api_fail(hpz, HPZ_ERR_INVALID, "the %s is not UTF-8 without control characters", what);
	memset(to, 0, capacity);
	memcpy(to, string ? string : "", length);
	return HPZ_OK;
}

static int api_fail_struct(struct hpz *hpz, int error)
{
	return api_fail(hpz, error,
		error == HPZ_ERR_INVALID ? "the request is NULL, or its struct_size is not set"
					 : "the request uses a field that libhpz " HPZ_VERSION
					   " does not know");
}

static int api_set_cells(
	struct hpz *hpz, const struct hpz_lease_request *request, struct hpz_wire_lease *ret_wire)
{
	uint64_t sum = 0;

	if (request->cell_count > HPZ_CELLS_MAX || (request->cell_count && !request->cells))
		return api_fail(
			hpz, HPZ_ERR_INVALID, "from 0 to %d cells, and where they are", HPZ_CELLS_MAX);
	for (uint32_t i = 0; i < request->cell_count; i++) {
		const struct hpz_cell *cell = &request->cells[i];
		ret_wire->cell[i] = (struct hpz_wire_cell){cell->size, cell->node, cell->reserved};
		if (__builtin_add_overflow(sum, cell->size, &sum))
			sum = UINT64_MAX;
	}
	ret_wire->cells = request->cell_count;
	/* No more than is used: an older server takes a request without cells. */
	ret_wire->size = (uint32_t)offsetof(struct hpz_wire_lease, cell[request->cell_count]);
	if (request->cell_count && request->size == 0)
		ret_wire->bytes = sum;
	return HPZ_OK;
}

static int api_set_lease(struct hpz *hpz, const struct hpz_lease_request *request, uint32_t count,
	struct hpz_wire_lease *ret_wire)
{
	struct hpz_wire_lease wire = {
		.flags = request->flags,
		.bytes = request->size,
		.page_size = request->page_size,
		.node = request->node,
		.deliver = request->deliver,
		.mode = request->mode,
		.timeout_ms = request->timeout_ms,
		.owner_uid = request->owner_uid,
		.owner_gid = request->owner_gid,
		.owner_pid = request->owner_pid,
		.open_timeout_ms = request->open_timeout_ms,
		.priority = request->priority,
		.reservation = request->reservation,
		.count = count,
		.policy = request->node_policy,
		.node_mask = request->node_mask,
	};
	const char *why;

	int error = api_set_cells(hpz, request, &wire);
	if (!error)
		error = api_set_string(hpz, wire.label, sizeof(wire.label), request->label, "label");
	if (!error)
		error = api_set_string(hpz, wire.key, sizeof(wire.key), request->key, "key");
	if (error)
		return error;
	error = proto_check_lease(&wire, &why);
	if (error)
		return api_fail(hpz, error, "%s", why);
	*ret_wire = wire;
	return HPZ_OK;
}

/* How long hpzd may take over it: as long as it may wait, and while it zeroes. */
static int64_t api_get_patience(const struct hpz_wire_lease *wire)
{
	uint64_t bytes = wire->bytes * MAX(wire->count, 1u);
	int64_t waits_ms = wire->timeout_ms;

	if (waits_ms != HPZ_FOREVER &&
		__builtin_add_overflow(waits_ms, (int64_t)(bytes >> API_ZERO_SHIFT) * API_ZERO_MS, &waits_ms))
		waits_ms = INT64_MAX;
	return waits_ms;
}

/* count 0: one, asked for as before there were bulks. */
static int api_lease(struct hpz *hpz, const struct hpz_lease_request *request, uint32_t count,
	struct hpz_lease **ret_leases)
{
	struct hpz_lease_request known;
	struct hpz_wire_lease wire;

	int error = api_begin_call(hpz);
	if (error)
		return error;
	if (!ret_leases)
		return api_fail(hpz, HPZ_ERR_INVALID, "there is no place for the lease");
	error = api_get_struct(request, &known, sizeof(known), API_LEASE_FIRST);
	if (error)
		return api_fail_struct(hpz, error);
	error = api_set_lease(hpz, &known, count, &wire);
	if (error)
		return error;
	return api_call_leases(hpz, HPZ_OP_LEASE, &wire, wire.size, api_get_patience(&wire), &wire,
		MAX(count, 1u), ret_leases);
}

int hpz_lease(struct hpz *hpz, const struct hpz_lease_request *request, struct hpz_lease **ret_lease)
{
	return api_lease(hpz, request, 0, ret_lease);
}

int hpz_lease_many(struct hpz *hpz, const struct hpz_lease_request *request, size_t count,
	struct hpz_lease *ret_leases[])
{
	int error = api_begin_call(hpz);
	if (error)
		return error;
	if (count == 0 || count > HPZ_MANY_MAX)
		return api_fail(hpz, HPZ_ERR_INVALID, "1 to %u leases at once", HPZ_MANY_MAX);
	return api_lease(hpz, request, (uint32_t)count, ret_leases);
}

/* ---- what a lease would get ---- */

static bool api_check_planned(const struct hpz_wire_planned *planned, const struct hpz_wire_lease *wire)
{
	bool is_given = planned->kind >= HPZ_PLAN_EXACT && planned->kind <= HPZ_PLAN_SEVERAL;

	if (planned->asked != wire->bytes || planned->kind == 0 || planned->kind > HPZ_PLAN_REFUSE ||
		(planned->error != 0) != (planned->kind == HPZ_PLAN_REFUSE))
		return false;
	if (!is_given)
		return planned->given == 0 && planned->segments == 0;
	return planned->given >= planned->asked && planned->segments > 0 &&
	       planned->ready <= planned->given && planned->zeroed <= planned->given - planned->ready;
}

int hpz_plan(struct hpz *hpz, const struct hpz_lease_request *request, struct hpz_plan_result *result)
{
	_cleanup_api_reply_ struct api_reply reply = {0};
	struct hpz_lease_request known;
	struct hpz_wire_lease wire;
	struct hpz_wire_planned planned;

	int error = api_begin_call(hpz);
	if (error)
		return error;
	if (!result)
		return api_fail(hpz, HPZ_ERR_INVALID, "there is no place for the result");
	error = api_get_struct(request, &known, sizeof(known), API_LEASE_FIRST);
	if (error)
		return api_fail_struct(hpz, error);
	error = api_set_lease(hpz, &known, 0, &wire);
	if (!error)
		error = api_call(hpz, HPZ_OP_PLAN, &wire, wire.size, 0, &reply);
	if (error)
		return error;
	if (!api_read(&reply.payload, &planned, sizeof(planned)) || reply.payload.left ||
		!api_check_planned(&planned, &wire))
		return api_fail_protocol(hpz, "a malformed plan");
	struct hpz_plan_result ours = {
		.kind = planned.kind,
		.error = planned.error,
		.asked = planned.asked,
		.size = planned.given,
		.ready = planned.ready,
		.zeroed = planned.zeroed,
		.from_free = planned.from_free,
		.from_dirty = planned.from_dirty,
		.from_clean = planned.from_clean,
		.page_size = planned.page_size,
		.segment_count = planned.segments,
		.node = planned.node,
		.waiting = planned.waiting,
	};
	proto_get_text(planned.pool, sizeof(planned.pool), ours.pool);
	proto_get_text(planned.text, sizeof(planned.text), ours.text);
	return api_put_struct(result, &ours, sizeof(ours));
}

/* ---- change ---- */

static bool api_check_changed(const struct hpz_wire_changed *changed, const struct hpz_wire_change *wire)
{
	uint32_t known = MIN(wire->known, changed->total);

	return changed->id == wire->id && changed->given >= wire->bytes && changed->total &&
	       changed->total <= HPZ_WIRE_MAX_FDS &&
	       (changed->segments == 0 || changed->segments == changed->total - known) &&
	       changed->ready <= changed->given && changed->zeroed <= changed->given - changed->ready &&
	       (changed->deliver == HPZ_DELIVER_FD || changed->deliver == HPZ_DELIVER_PATH);
}

/* The segments that are new to us, as a lease's. `given` of them is what the records say. */
static int api_read_added(struct hpz *hpz, const struct hpz_wire_changed *changed, struct api_reply *reply,
	struct hpz_lease **ret_added)
{
	struct api_reader ahead = reply->payload;
	struct hpz_wire_leased leased = {.segments = changed->segments,
		.id = changed->id,
		.ready = changed->ready,
		.zeroed = changed->zeroed,
		.deliver = changed->deliver};
	struct api_segment segment;
	int32_t descriptor;

	for (uint32_t i = 0; i < changed->segments; i++) {
		if (!api_read_segment(&ahead, &segment, &descriptor) ||
			__builtin_add_overflow(leased.given, segment.bytes, &leased.given))
			return api_fail_protocol(hpz, "a malformed segment");
	}
	leased.asked = leased.given;
	*ret_added = api_read_lease(&leased, reply);
	if (!*ret_added)
		return errno ? api_fail_system(hpz, "no memory for the lease")
			     : api_fail_protocol(hpz, "malformed segments");
	return HPZ_OK;
}

/* The lease stays as large as it is: whoever has room for its descriptors asks again. */
static int api_fail_change_withheld(struct hpz *hpz, uint64_t id)
{
	int error = api_acknowledge(hpz, id, 1);

	return error ? error
		     : api_fail(hpz, HPZ_ERR_WITHHELD,
			       "a descriptor was withheld by a security module or the limit on open files "
			       "(ulimit -n)");
}

static int api_call_change(struct hpz *hpz, const struct hpz_wire_change *wire,
	struct hpz_change_result *result, struct hpz_lease **ret_added)
{
	_cleanup_api_reply_ struct api_reply reply = {0};
	struct hpz_wire_lease zeroed = {.bytes = wire->bytes, .timeout_ms = wire->timeout_ms};
	struct hpz_wire_changed changed;
	struct hpz_lease *added = NULL;

	int error = api_call(hpz, HPZ_OP_CHANGE, wire, sizeof(*wire), api_get_patience(&zeroed), &reply);
	if (error)
		return error;
	if (!api_read(&reply.payload, &changed, sizeof(changed)) || !api_check_changed(&changed, wire))
		return api_fail_protocol(hpz, "a malformed answer to a change");
	if (reply.is_withheld)
		return api_fail_change_withheld(hpz, changed.id);
	if (changed.segments > 0)
		error = api_read_added(hpz, &changed, &reply, &added);
	if (!error && !api_is_used_up(&reply))
		error = api_fail_protocol(hpz, "more than the change");
	if (!error && reply.fd_count > 0)
		error = api_acknowledge(hpz, changed.id, 1);
	if (error) {
		hpz_lease_free(added);
		return error;
	}
	*ret_added = added;
	struct hpz_change_result ours = {.size = changed.given,
		.ready = changed.ready,
		.zeroed = changed.zeroed,
		.returning = changed.returning,
		.segment_count = changed.total};
	return api_put_struct(result, &ours, sizeof(ours));
}

int hpz_change(struct hpz *hpz, uint64_t id, const struct hpz_change_request *request,
	struct hpz_change_result *result, struct hpz_lease **ret_added)
{
	struct hpz_change_request known;
	const char *why;

	int error = api_begin_call(hpz);
	if (error)
		return error;
	if (!result || !ret_added)
		return api_fail(hpz, HPZ_ERR_INVALID, "there is no place for the result");
	error = api_get_struct(request, &known, sizeof(known), sizeof(known));
	if (error)
		return api_fail_struct(hpz, error);
	struct hpz_wire_change wire = {.size = sizeof(wire),
		.known = known.known,
		.id = id,
		.bytes = known.size,
		.timeout_ms = known.timeout_ms,
		.priority = known.priority};
	error = proto_check_change(&wire, &why);
	return error ? api_fail(hpz, error, "%s", why) : api_call_change(hpz, &wire, result, ret_added);
}

/* ---- reservations ---- */

static bool api_check_reserved(const struct hpz_wire_reserved *reserved, const struct hpz_wire_lease *wire)
{
	return reserved->id && reserved->id < API_LARGEST_ID && reserved->asked == wire->bytes &&
	       reserved->given >= reserved->asked && reserved->ready <= reserved->given &&
	       reserved->zeroed <= reserved->given - reserved->ready && reserved->page_size &&
	       reserved->node >= 0;
}

static int api_call_reserve(
	struct hpz *hpz, const struct hpz_wire_lease *wire, struct hpz_reservation *ret_reservation)
{
	_cleanup_api_reply_ struct api_reply reply = {0};
	struct hpz_wire_reserved reserved;

	int error = api_call(hpz, HPZ_OP_RESERVE, wire, wire->size, api_get_patience(wire), &reply);
	if (error)
		return error;
	if (!api_read(&reply.payload, &reserved, sizeof(reserved)) || reply.payload.left ||
		!api_check_reserved(&reserved, wire))
		return api_fail_protocol(hpz, "a malformed reservation");
	struct hpz_reservation ours = {
		.id = reserved.id,
		.size = reserved.given,
		.ready = reserved.ready,
		.zeroed = reserved.zeroed,
		.page_size = reserved.page_size,
		.ttl_ms = reserved.ttl_ms,
		.node = reserved.node,
	};
	proto_get_text(reserved.pool, sizeof(reserved.pool), ours.pool);
	return api_put_struct(ret_reservation, &ours, sizeof(ours));
}

int hpz_reserve(struct hpz *hpz, const struct hpz_lease_request *request, uint64_t ttl_ms,
	struct hpz_reservation *reservation)
{
	struct hpz_lease_request known;
	struct hpz_wire_lease wire;
	const char *why;

	int error = api_begin_call(hpz);
	if (error)
		return error;
	if (!reservation)
		return api_fail(hpz, HPZ_ERR_INVALID, "there is no place for the reservation");
	error = api_get_struct(request, &known, sizeof(known), API_LEASE_FIRST);
	if (error)
		return api_fail_struct(hpz, error);
	error = api_set_lease(hpz, &known, 0, &wire);
	if (error)
		return error;
	wire.ttl_ms = ttl_ms;
	error = proto_check_reserve(&wire, &why);
	return error ? api_fail(hpz, error, "%s", why) : api_call_reserve(hpz, &wire, reservation);
}

int hpz_unreserve(struct hpz *hpz, uint64_t id)
{
	_cleanup_api_reply_ struct api_reply reply = {0};
	struct hpz_wire_release wire = {.size = sizeof(wire), .id = id};
	struct hpz_wire_empty empty;
	const char *why;

	int error = api_begin_call(hpz);
	if (error)
		return error;
	error = proto_check_unreserve(&wire, &why);
	if (error)
		return api_fail(hpz, error, "%s", why);
	error = api_call(hpz, HPZ_OP_UNRESERVE, &wire, sizeof(wire), 0, &reply);
	if (error)
		return error;
	if (!api_read(&reply.payload, &empty, sizeof(empty)) || empty.reserved || reply.payload.left)
		return api_fail_protocol(hpz, "a malformed answer to an unreserve");
	return HPZ_OK;
}

int hpz_adopt(
	struct hpz *hpz, uint64_t id, const struct hpz_adopt_request *request, struct hpz_lease **ret_lease)
{
	struct hpz_adopt_request known;
	const char *why;

	int error = api_begin_call(hpz);
	if (error)
		return error;
	if (!ret_lease)
		return api_fail(hpz, HPZ_ERR_INVALID, "there is no place for the lease");
	error = api_get_struct(request, &known, sizeof(known), sizeof(known));
	if (error)
		return api_fail_struct(hpz, error);
	struct hpz_wire_adopt wire = {
		.size = sizeof(wire), .flags = known.flags, .id = id, .owner_pid = known.owner_pid};
	error = proto_check_adopt(&wire, &why);
	if (error)
		return api_fail(hpz, error, "%s", why);
	return api_call_leases(hpz, HPZ_OP_ADOPT, &wire, sizeof(wire), 0, NULL, 1, ret_lease);
}

int hpz_release(struct hpz *hpz, uint64_t id, unsigned flags, int64_t timeout_ms)
{
	_cleanup_api_reply_ struct api_reply reply = {0};
	struct hpz_wire_release wire = {
		.size = sizeof(wire), .flags = flags, .id = id, .timeout_ms = timeout_ms};
	struct hpz_wire_released released;
	const char *why;

	int error = api_begin_call(hpz);
	if (error)
		return error;
	error = proto_check_release(&wire, &why);
	if (error)
		return api_fail(hpz, error, "%s", why);
	error = api_call(
		hpz, HPZ_OP_RELEASE, &wire, sizeof(wire), flags & HPZ_RELEASE_WAIT ? timeout_ms : 0, &reply);
	if (error)
		return error;
	if (!api_read(&reply.payload, &released, sizeof(released)) || reply.payload.left ||
		released.id != id ||
		(released.state != HPZ_STATE_RETURNING && released.state != HPZ_STATE_ENDED))
		return api_fail_protocol(hpz, "a malformed answer to a release");
	return HPZ_OK;
}

/* ---- the handle of a lease ---- */

void hpz_lease_free(struct hpz_lease *lease)
{
	if (!lease)
		return;
	hpz_unmap(lease);
	for (size_t i = 0; i < lease->segment_count; i++)
		close_fd(lease->segments[i].fd);
	free(lease);
}

uint64_t hpz_lease_get_id(const struct hpz_lease *lease)
{
	return lease ? lease->id : 0;
}

uint64_t hpz_lease_get_size(const struct hpz_lease *lease)
{
	return lease ? lease->given : 0;
}

uint64_t hpz_lease_get_asked(const struct hpz_lease *lease)
{
	return lease ? lease->asked : 0;
}

uint64_t hpz_lease_get_ready(const struct hpz_lease *lease)
{
	return lease ? lease->ready : 0;
}

uint64_t hpz_lease_get_zeroed(const struct hpz_lease *lease)
{
	return lease ? lease->zeroed : 0;
}

size_t hpz_lease_get_segment_count(const struct hpz_lease *lease)
{
	return lease ? lease->segment_count : 0;
}

void api_put_segment(const struct api_segment *from, struct hpz_segment *ret_segment)
{
	*ret_segment = (struct hpz_segment){
		.page_size = from->page_size,
		.size = from->bytes,
		.generation = from->generation,
		.node = from->node,
		.fd = from->fd,
		.path = from->path,
		.cell = from->cell,
	};
}

int hpz_lease_get_segment(const struct hpz_lease *lease, size_t index, struct hpz_segment *segment)
{
	struct hpz_segment ours;

	if (!lease || index >= lease->segment_count)
		return HPZ_ERR_INVALID;
	api_put_segment(&lease->segments[index], &ours);
	return api_put_struct(segment, &ours, sizeof(ours));
}

int hpz_lease_steal_fd(struct hpz_lease *lease, size_t index)
{
	if (!lease || index >= lease->segment_count)
		return -1;
	return steal_fd(&lease->segments[index].fd);
}
