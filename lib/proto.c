/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * proto.c - looks at the bytes of the socket. No I/O, no allocation, no state.
 * Malformed is HPZ_ERR_PROTOCOL. Well-formed but not ours to understand (a reserved field, an unknown flag or
 * tail) is HPZ_ERR_UNSUPPORTED. Understood and senseless is HPZ_ERR_INVALID.
 */
#include "proto.h"

#include <string.h>

#include "hpz.h"
#include "util.h"

static_assert(HPZ_WIRE_LEASE_FLAGS ==
		      (HPZ_LEASE_REOPENABLE | HPZ_LEASE_UNBOUND | HPZ_LEASE_KEEP | HPZ_LEASE_SEGMENTS),
	"same values");
static_assert(HPZ_WIRE_RELEASE_FLAGS == (HPZ_RELEASE_WAIT | HPZ_RELEASE_FORCE), "same values");
static_assert(HPZ_WIRE_ADOPT_FLAGS == HPZ_LEASE_UNBOUND, "same values");
static_assert(HPZ_WIRE_DRAIN_FLAGS == HPZ_DRAIN_GIVE_BACK, "same values");
static_assert(HPZ_WIRE_RESIZE_FLAGS == HPZ_RESIZE_WAIT, "same values");
static_assert(HPZ_WIRE_LABEL == HPZ_LABEL_MAX && HPZ_WIRE_KEY == HPZ_KEY_MAX, "same values");
static_assert(HPZ_WIRE_NODE_ANY == HPZ_NODE_ANY, "same values");
static_assert(HPZ_WIRE_PRIORITY == HPZ_PRIORITY_MAX, "same values");
static_assert(HPZ_WIRE_CELLS == HPZ_CELLS_MAX, "same values");
static_assert(HPZ_WIRE_BUCKETS == HPZ_TEARDOWN_BUCKETS && HPZ_WIRE_FLUSHES == HPZ_TEARDOWN_FLUSHES &&
		      HPZ_WIRE_NONE == HPZ_TEARDOWN_NONE && HPZ_WIRE_STAGES == HPZ_TEARDOWN_STAGES,
	"same values");
static_assert(HPZ_WIRE_METRIC_BUCKETS == HPZ_METRIC_BUCKETS, "same values");

#define PROTO_SMALLEST_PAGE 4096u
#define PROTO_MODE_BITS     0666u

int proto_get_head(const void *message, size_t length, bool is_reply, struct hpz_wire_head *ret_head)
{
	struct hpz_wire_head head;

	if (length < sizeof(head))
		return HPZ_ERR_PROTOCOL;
	memcpy(&head, message, sizeof(head));
	if (head.size != length)
		return HPZ_ERR_PROTOCOL;
	/* Nobody asked: a server that turns us away. */
	if (head.id == 0 && !(is_reply && head.op == HPZ_OP_HELLO && head.error))
		return HPZ_ERR_PROTOCOL;
	if (is_reply) {
		if (head.flags != HPZ_WIRE_REPLY || head.descriptors > HPZ_WIRE_MAX_FDS ||
			(head.error && head.descriptors) || head.op == HPZ_OP_ACK)
			return HPZ_ERR_PROTOCOL;
	} else if (head.flags || head.error || head.descriptors) {
		return HPZ_ERR_PROTOCOL;
	}
	/* An unknown request can be answered, so its head is handed out; an unknown reply cannot. */
	bool known = head.op >= HPZ_OP_HELLO && head.op <= HPZ_OP_LAST;
	if (!known && is_reply)
		return HPZ_ERR_PROTOCOL;
	*ret_head = head;
	return known ? HPZ_OK : HPZ_ERR_UNSUPPORTED;
}

static bool proto_is_zero(const uint8_t *bytes, size_t length)
{
	for (size_t i = 0; i < length; i++) {
		if (bytes[i])
			return false;
	}
	return true;
}

int proto_get_struct(
	const void *bytes, size_t available, void *ret_struct, size_t known_size, size_t *ret_used)
{
	uint32_t size;

	if (available < sizeof(size))
		return HPZ_ERR_PROTOCOL;
	memcpy(&size, bytes, sizeof(size));
	if (size < sizeof(size) || size > available)
		return HPZ_ERR_PROTOCOL;
	if (size > known_size && !proto_is_zero((const uint8_t *)bytes + known_size, size - known_size))
		return HPZ_ERR_UNSUPPORTED;

	size_t taken = MIN(size, known_size);
	memcpy(ret_struct, bytes, taken);
	memset((uint8_t *)ret_struct + taken, 0, known_size - taken);
	*ret_used = size;
	return HPZ_OK;
}

/* Version 1's, for ever: the structs grow, these numbers do not. A later operation has its first size here.
 */
static const uint16_t proto_least[HPZ_OP_LAST + 1] = {
	[HPZ_OP_HELLO] = 104,
	[HPZ_OP_STATUS] = 8,
	[HPZ_OP_LEASE] = 376,
	[HPZ_OP_ACK] = 16,
	[HPZ_OP_RELEASE] = 24,
	[HPZ_OP_ADOPT] = 24,
	[HPZ_OP_LIST] = 16,
	[HPZ_OP_WAIT] = 88,
	[HPZ_OP_DRAIN] = 16,
	[HPZ_OP_CHECK] = 24,
	[HPZ_OP_VERIFY] = 80,
	[HPZ_OP_SET] = 328,
	[HPZ_OP_CALIBRATE] = 80,
	[HPZ_OP_CLEARING] = 8,
	[HPZ_OP_PLAN] = 376,
	[HPZ_OP_RESIZE] = 104,
	[HPZ_OP_RESERVE] = 376,
	[HPZ_OP_UNRESERVE] = 24,
	[HPZ_OP_CHANGE] = 40,
	[HPZ_OP_DEMAND] = 16,
	[HPZ_OP_TEARDOWN] = 24,
	[HPZ_OP_EVENTS] = 24,
	[HPZ_OP_METRICS] = 16,
};

size_t proto_get_least_size(uint16_t op)
{
	return op <= HPZ_OP_LAST ? proto_least[op] : 0;
}

int proto_get_payload(const void *message, size_t length, void *ret_struct, size_t known_size)
{
	const size_t head = sizeof(struct hpz_wire_head);
	uint32_t size;
	uint16_t op;
	size_t used;

	/* Looked at first, so that nothing is written when something follows or is missing. */
	if (length < head + sizeof(size))
		return HPZ_ERR_PROTOCOL;
	memcpy(&op, (const uint8_t *)message + offsetof(struct hpz_wire_head, op), sizeof(op));
	memcpy(&size, (const uint8_t *)message + head, sizeof(size));
	if (size != length - head || size < proto_get_least_size(op))
		return HPZ_ERR_PROTOCOL;
	return proto_get_struct(
		(const uint8_t *)message + head, length - head, ret_struct, known_size, &used);
}

size_t proto_set_head(void *message, uint16_t op, uint64_t id, bool is_reply, uint32_t error,
	uint32_t descriptors, size_t payload_size)
{
	struct hpz_wire_head head = {
		.size = (uint32_t)(sizeof(head) + payload_size),
		.op = op,
		.flags = is_reply ? HPZ_WIRE_REPLY : 0,
		.id = id,
		.error = error,
		.descriptors = descriptors,
	};

	memcpy(message, &head, sizeof(head));
	return head.size;
}

/* ---- what each request must be ---- */

static int proto_refuse(int error, const char *why, const char **ret_why)
{
	*ret_why = why;
	return error;
}

static int proto_refuse_reserved(const char **ret_why)
{
	return proto_refuse(
		HPZ_ERR_UNSUPPORTED, "a field or flag is used that this version does not know", ret_why);
}

static int proto_check_timeout(int64_t timeout_ms, const char **ret_why)
{
	if (timeout_ms < -1)
		return proto_refuse(
			HPZ_ERR_INVALID, "a time limit is negative, and not -1 for ever", ret_why);
	return HPZ_OK;
}

static int proto_check_priority(int32_t priority, const char **ret_why)
{
	if (priority < -HPZ_WIRE_PRIORITY || priority > HPZ_WIRE_PRIORITY)
		return proto_refuse(HPZ_ERR_INVALID, "a priority is from -1000 to 1000", ret_why);
	return HPZ_OK;
}

static int proto_check_id(uint64_t id, const char **ret_why)
{
	return id ? HPZ_OK : proto_refuse(HPZ_ERR_INVALID, "a lease id is never 0", ret_why);
}

int proto_check_hello(const struct hpz_wire_hello *hello, const char **ret_why)
{
	if (hello->magic != HPZ_WIRE_MAGIC)
		return proto_refuse(HPZ_ERR_PROTOCOL, "the peer does not speak hpz", ret_why);
	if (hello->compat > hello->version)
		return proto_refuse(HPZ_ERR_PROTOCOL, "the peer's versions contradict each other", ret_why);
	if (hello->version < HPZ_WIRE_COMPAT)
		return proto_refuse(HPZ_ERR_VERSION, "the peer is too old", ret_why);
	if (hello->compat > HPZ_WIRE_VERSION)
		return proto_refuse(HPZ_ERR_VERSION, "the peer is too new", ret_why);
	if (hello->reserved || hello->reserved2)
		return proto_refuse_reserved(ret_why);
	/* What version 1 promises is the least there is, so nobody has to cope with a smaller peer. */
	if (hello->max_message < HPZ_WIRE_MAX_MESSAGE || hello->max_request < HPZ_WIRE_MAX_REQUEST ||
		hello->max_descriptors < HPZ_WIRE_MAX_FDS)
		return proto_refuse(
			HPZ_ERR_PROTOCOL, "the peer's limits are below those of version 1", ret_why);
	if (!proto_is_text(hello->program, sizeof(hello->program)))
		return proto_refuse(HPZ_ERR_PROTOCOL, "the peer's program version is not text", ret_why);
	return HPZ_OK;
}

static int proto_check_lease_fd(const struct hpz_wire_lease *lease, const char **ret_why)
{
	if (lease->flags & HPZ_LEASE_KEEP)
		return proto_refuse(
			HPZ_ERR_INVALID, "a lease by descriptor cannot be kept: ask for a path", ret_why);
	if (lease->mode)
		return proto_refuse(HPZ_ERR_INVALID, "a mode goes with delivery as a path only", ret_why);
	if (lease->owner_uid != -1 || lease->owner_gid != -1)
		return proto_refuse(HPZ_ERR_INVALID, "an owner goes with delivery as a path only", ret_why);
	if (lease->open_timeout_ms)
		return proto_refuse(
			HPZ_ERR_INVALID, "an open time limit goes with delivery as a path only", ret_why);
	return HPZ_OK;
}

static int proto_check_lease_path(const struct hpz_wire_lease *lease, const char **ret_why)
{
	if (lease->flags & (HPZ_LEASE_REOPENABLE | HPZ_LEASE_UNBOUND))
		return proto_refuse(HPZ_ERR_INVALID,
			"re-openable and unbound go with delivery as a descriptor only", ret_why);
	if (lease->mode & ~PROTO_MODE_BITS)
		return proto_refuse(HPZ_ERR_INVALID, "a mode has read and write bits only", ret_why);
	/* UINT32_MAX is "leave it" to chown and so nobody's number. */
	if (lease->owner_uid < -1 || lease->owner_uid >= UINT32_MAX || lease->owner_gid < -1 ||
		lease->owner_gid >= UINT32_MAX)
		return proto_refuse(HPZ_ERR_INVALID, "the owner is not a user or group number", ret_why);
	if (lease->open_timeout_ms < 0)
		return proto_refuse(HPZ_ERR_INVALID, "the open time limit is negative", ret_why);
	return HPZ_OK;
}

static bool proto_is_lease_reserved_used(const struct hpz_wire_lease *lease)
{
	return lease->reserved || lease->reserved2;
}

static int proto_check_cells(const struct hpz_wire_lease *lease, const char **ret_why)
{
	uint64_t sum = 0;

	if (lease->cells > HPZ_WIRE_CELLS)
		return proto_refuse(HPZ_ERR_INVALID, "a lease has 64 cells at most", ret_why);
	for (uint32_t i = 0; i < HPZ_WIRE_CELLS; i++) {
		const struct hpz_wire_cell *cell = &lease->cell[i];
		if (cell->reserved || (i >= lease->cells && (cell->bytes || cell->node)))
			return proto_refuse_reserved(ret_why);
		if (i >= lease->cells)
			continue;
		if (cell->bytes == 0 || cell->node < 0)
			return proto_refuse(HPZ_ERR_INVALID, "a cell has a size and a node", ret_why);
		if (__builtin_add_overflow(sum, cell->bytes, &sum))
			return proto_refuse(
				HPZ_ERR_TOO_LARGE, "the cells are larger than any memory", ret_why);
	}
	if (lease->cells && sum != lease->bytes)
		return proto_refuse(HPZ_ERR_INVALID, "the size is not that of the cells together", ret_why);
	if (lease->cells && (lease->policy != HPZ_NODES_STRICT || lease->node != HPZ_WIRE_NODE_ANY))
		return proto_refuse(HPZ_ERR_INVALID,
			"cells have nodes of their own: no node and no node policy beside them", ret_why);
	return HPZ_OK;
}

/* Which nodes it is to come from. */
static int proto_check_nodes(const struct hpz_wire_lease *lease, const char **ret_why)
{
	bool is_interleaved = lease->policy == HPZ_NODES_INTERLEAVE;

	if (lease->policy > HPZ_NODES_INTERLEAVE)
		return proto_refuse(HPZ_ERR_UNSUPPORTED, "this node policy is not known", ret_why);
	if (lease->node < HPZ_WIRE_NODE_ANY)
		return proto_refuse(HPZ_ERR_INVALID, "the node is negative, and not -1 for any", ret_why);
	if (lease->policy == HPZ_NODES_PREFERRED && lease->node == HPZ_WIRE_NODE_ANY)
		return proto_refuse(HPZ_ERR_INVALID, "which node is preferred?", ret_why);
	if (is_interleaved && lease->node != HPZ_WIRE_NODE_ANY)
		return proto_refuse(HPZ_ERR_INVALID, "interleaving takes a set of nodes, not one", ret_why);
	if (is_interleaved != (lease->node_mask != 0))
		return proto_refuse(HPZ_ERR_INVALID, "interleaving and a set of nodes go together", ret_why);
	return proto_check_cells(lease, ret_why);
}

static int proto_check_bulk(const struct hpz_wire_lease *lease, const char **ret_why)
{
	if (lease->count > HPZ_WIRE_MAX_FDS)
		return proto_refuse(
			HPZ_ERR_INVALID, "more leases at once than a message carries, 253", ret_why);
	if (lease->count > 0 && lease->bytes > (uint64_t)INT64_MAX / lease->count)
		return proto_refuse(HPZ_ERR_TOO_LARGE, "nothing can be that large", ret_why);
	if (lease->count > 0 && lease->key[0])
		return proto_refuse(HPZ_ERR_INVALID, "a key is one lease's, not a bulk's", ret_why);
	bool is_spread = lease->cells || lease->policy == HPZ_NODES_INTERLEAVE;
	if (lease->count > 0 && (is_spread || (lease->flags & HPZ_LEASE_SEGMENTS)))
		return proto_refuse(HPZ_ERR_INVALID, "each lease of a bulk has one segment", ret_why);
	if (lease->reservation && (lease->cells || lease->policy != HPZ_NODES_STRICT))
		return proto_refuse(HPZ_ERR_INVALID, "a reservation is of one pool", ret_why);
	return HPZ_OK;
}

/* What a lease and a reservation have in common. */
static int proto_check_memory(const struct hpz_wire_lease *lease, const char **ret_why)
{
	if ((lease->flags & ~HPZ_WIRE_LEASE_FLAGS) || proto_is_lease_reserved_used(lease))
		return proto_refuse_reserved(ret_why);
	if (lease->deliver != HPZ_DELIVER_FD && lease->deliver != HPZ_DELIVER_PATH)
		return proto_refuse(HPZ_ERR_UNSUPPORTED, "this way of delivery is not known", ret_why);
	if (lease->bytes == 0)
		return proto_refuse(HPZ_ERR_INVALID, "the size is zero", ret_why);
	if (lease->bytes > INT64_MAX)
		return proto_refuse(HPZ_ERR_TOO_LARGE, "no file can be that large", ret_why);
	if (lease->page_size && (lease->page_size < PROTO_SMALLEST_PAGE ||
					lease->page_size != (lease->page_size & -lease->page_size)))
		return proto_refuse(HPZ_ERR_INVALID, "the page size is not a power of two", ret_why);
	if (lease->owner_pid < 0)
		return proto_refuse(HPZ_ERR_INVALID, "the owner is not a process number", ret_why);
	if (!proto_is_text(lease->label, sizeof(lease->label)))
		return proto_refuse(
			HPZ_ERR_INVALID, "the label is not UTF-8 without control characters", ret_why);
	if (!proto_is_text(lease->key, sizeof(lease->key)))
		return proto_refuse(
			HPZ_ERR_INVALID, "the key is not UTF-8 without control characters", ret_why);
	int r = proto_check_timeout(lease->timeout_ms, ret_why);
	if (!r)
		r = proto_check_priority(lease->priority, ret_why);
	if (!r)
		r = proto_check_bulk(lease, ret_why);
	if (!r)
		r = proto_check_nodes(lease, ret_why);
	if (r)
		return r;
	return lease->deliver == HPZ_DELIVER_FD ? proto_check_lease_fd(lease, ret_why)
						: proto_check_lease_path(lease, ret_why);
}

int proto_check_lease(const struct hpz_wire_lease *lease, const char **ret_why)
{
	if (lease->ttl_ms)
		return proto_refuse_reserved(ret_why);
	if (lease->reservation && lease->count > 1)
		return proto_refuse(
			HPZ_ERR_INVALID, "leases of a reservation are asked for one by one", ret_why);
	return proto_check_memory(lease, ret_why);
}

int proto_check_reserve(const struct hpz_wire_lease *lease, const char **ret_why)
{
	if (lease->count || lease->reservation)
		return proto_refuse_reserved(ret_why);
	if (lease->ttl_ms == 0 || lease->ttl_ms > HPZ_RESERVE_MAX_MS)
		return proto_refuse(
			HPZ_ERR_INVALID, "a reservation stands for a millisecond to a day", ret_why);
	if (lease->deliver != HPZ_DELIVER_FD || (lease->flags & ~HPZ_LEASE_SEGMENTS) || lease->owner_pid ||
		lease->key[0])
		return proto_refuse(HPZ_ERR_INVALID,
			"delivery, owner and key are the leases', not the reservation's", ret_why);
	if (lease->cells || lease->policy == HPZ_NODES_INTERLEAVE)
		return proto_refuse(HPZ_ERR_INVALID, "a reservation is of one pool", ret_why);
	return proto_check_memory(lease, ret_why);
}

int proto_check_unreserve(const struct hpz_wire_release *unreserve, const char **ret_why)
{
	if (unreserve->flags || unreserve->timeout_ms)
		return proto_refuse_reserved(ret_why);
	return proto_check_id(unreserve->id, ret_why);
}

int proto_check_release(const struct hpz_wire_release *release, const char **ret_why)
{
	if (release->flags & ~HPZ_WIRE_RELEASE_FLAGS)
		return proto_refuse_reserved(ret_why);
	int r = proto_check_id(release->id, ret_why);
	return r ? r : proto_check_timeout(release->timeout_ms, ret_why);
}

int proto_check_adopt(const struct hpz_wire_adopt *adopt, const char **ret_why)
{
	if ((adopt->flags & ~HPZ_WIRE_ADOPT_FLAGS) || adopt->reserved)
		return proto_refuse_reserved(ret_why);
	if (adopt->owner_pid < 0)
		return proto_refuse(HPZ_ERR_INVALID, "the owner is not a process number", ret_why);
	return proto_check_id(adopt->id, ret_why);
}

int proto_check_change(const struct hpz_wire_change *change, const char **ret_why)
{
	if (change->reserved)
		return proto_refuse_reserved(ret_why);
	if (change->bytes == 0)
		return proto_refuse(HPZ_ERR_INVALID, "a lease of nothing is none: release it", ret_why);
	if (change->bytes > INT64_MAX)
		return proto_refuse(HPZ_ERR_TOO_LARGE, "no memory can be that large", ret_why);
	if (change->known > HPZ_WIRE_MAX_FDS)
		return proto_refuse(HPZ_ERR_INVALID, "no lease has so many segments", ret_why);
	int r = proto_check_priority(change->priority, ret_why);
	if (!r)
		r = proto_check_id(change->id, ret_why);
	return r ? r : proto_check_timeout(change->timeout_ms, ret_why);
}

int proto_check_list(const struct hpz_wire_list *list, const char **ret_why)
{
	return list->flags & ~HPZ_WIRE_LIST_FLAGS ? proto_refuse_reserved(ret_why) : HPZ_OK;
}

int proto_check_demand(const struct hpz_wire_demand *demand, const char **ret_why)
{
	return demand->reserved ? proto_refuse_reserved(ret_why) : HPZ_OK;
}

int proto_check_events(const struct hpz_wire_events *events, const char **ret_why)
{
	if (events->reserved)
		return proto_refuse_reserved(ret_why);
	*ret_why = "its timeout is neither a time nor for ever";
	return events->timeout_ms < -1 ? HPZ_ERR_INVALID : HPZ_OK;
}

int proto_check_metrics(const struct hpz_wire_metrics *metrics, const char **ret_why)
{
	return metrics->reserved ? proto_refuse_reserved(ret_why) : HPZ_OK;
}

int proto_check_teardown(const struct hpz_wire_teardown *teardown, const char **ret_why)
{
	bool is_records = teardown->record == HPZ_RECORD_TEARDOWN;

	if (!is_records && teardown->record != HPZ_RECORD_HISTOGRAM && teardown->record != HPZ_RECORD_FACT)
		return proto_refuse(HPZ_ERR_UNSUPPORTED, "this kind of record is not known", ret_why);
	if (!is_records && teardown->timeout_ms)
		return proto_refuse(HPZ_ERR_INVALID, "a time limit goes with records only", ret_why);
	return proto_check_timeout(teardown->timeout_ms, ret_why);
}

int proto_check_wait(const struct hpz_wire_wait *wait, const char **ret_why)
{
	if (wait->reserved)
		return proto_refuse_reserved(ret_why);
	if (!proto_is_text(wait->pool, sizeof(wait->pool)))
		return proto_refuse(
			HPZ_ERR_INVALID, "the pool's name is not UTF-8 without control characters", ret_why);
	return proto_check_timeout(wait->timeout_ms, ret_why);
}

int proto_check_verify(const struct hpz_wire_verify *verify, const char **ret_why)
{
	if (verify->reserved)
		return proto_refuse_reserved(ret_why);
	if (!proto_is_text(verify->pool, sizeof(verify->pool)))
		return proto_refuse(
			HPZ_ERR_INVALID, "the pool's name is not UTF-8 without control characters", ret_why);
	return proto_check_timeout(verify->timeout_ms, ret_why);
}

int proto_check_calibrate(const struct hpz_wire_calibrate *calibrate, const char **ret_why)
{
	if (calibrate->reserved)
		return proto_refuse_reserved(ret_why);
	if (!proto_is_text(calibrate->pool, sizeof(calibrate->pool)))
		return proto_refuse(
			HPZ_ERR_INVALID, "the pool's name is not UTF-8 without control characters", ret_why);
	return proto_check_timeout(calibrate->timeout_ms, ret_why);
}

int proto_check_set(const struct hpz_wire_set *set, const char **ret_why)
{
	if (set->reserved)
		return proto_refuse_reserved(ret_why);
	if (!set->key[0] || !proto_is_text(set->key, sizeof(set->key)) ||
		!proto_is_text(set->value, sizeof(set->value)))
		return proto_refuse(HPZ_ERR_INVALID,
			"key and value are UTF-8 without control characters, and the key is not empty",
			ret_why);
	return HPZ_OK;
}

int proto_check_drain(const struct hpz_wire_drain *drain, const char **ret_why)
{
	if (drain->flags & ~HPZ_WIRE_DRAIN_FLAGS)
		return proto_refuse_reserved(ret_why);
	return proto_check_timeout(drain->timeout_ms, ret_why);
}

int proto_check_resize(const struct hpz_wire_resize *resize, const char **ret_why)
{
	if ((resize->flags & ~HPZ_WIRE_RESIZE_FLAGS) || resize->reserved)
		return proto_refuse_reserved(ret_why);
	if (resize->kind < HPZ_RESIZE_TO || resize->kind > HPZ_RESIZE_DEMOTE)
		return proto_refuse(HPZ_ERR_UNSUPPORTED, "this way of resizing is not known", ret_why);
	if (!resize->pool[0] || !proto_is_text(resize->pool, sizeof(resize->pool)))
		return proto_refuse(HPZ_ERR_INVALID,
			"the pool's name is empty, or not UTF-8 without control characters", ret_why);
	if (resize->pages && resize->bytes)
		return proto_refuse(HPZ_ERR_INVALID, "both pages and bytes are given", ret_why);
	return proto_check_timeout(resize->timeout_ms, ret_why);
}

int proto_check_check(const struct hpz_wire_check *check, const char **ret_why)
{
	if (check->flags & ~HPZ_WIRE_CHECK_FLAGS)
		return proto_refuse_reserved(ret_why);
	return proto_check_timeout(check->timeout_ms, ret_why);
}

int proto_check_ack(const struct hpz_wire_ack *ack, const char **ret_why)
{
	if (ack->count > HPZ_WIRE_MAX_FDS)
		return proto_refuse(HPZ_ERR_INVALID, "no reply has so many leases", ret_why);
	return proto_check_id(ack->id, ret_why);
}

int proto_check_empty(const struct hpz_wire_empty *empty, const char **ret_why)
{
	return empty->reserved ? proto_refuse_reserved(ret_why) : HPZ_OK;
}

/* ---- text ---- */

/* Length of the UTF-8 sequence a first byte announces and the bits it carries; 0 for none. */
static size_t proto_get_lead(uint8_t byte, uint32_t *ret_code)
{
	*ret_code = byte < 0x80   ? byte
		    : byte < 0xe0 ? byte & 0x1fu
		    : byte < 0xf0 ? byte & 0x0fu
				  : byte & 0x07u;
	return byte < 0x80 ? 1 : byte < 0xc2 ? 0 : byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : byte < 0xf5 ? 4 : 0;
}

/* Bytes of the printable character that begins here; 0 when there is none. */
static size_t proto_get_character(const uint8_t *bytes, size_t available)
{
	static const uint32_t smallest[] = {0, 0x20, 0x80, 0x800, 0x10000};
	uint32_t code;
	size_t length = proto_get_lead(bytes[0], &code);

	if (length == 0 || length > available)
		return 0;
	for (size_t i = 1; i < length; i++) {
		if ((bytes[i] & 0xc0) != 0x80)
			return 0;
		code = code << 6 | (bytes[i] & 0x3fu);
	}
	bool is_control = code < 0x20 || (code >= 0x7f && code < 0xa0);
	bool is_surrogate = code >= 0xd800 && code < 0xe000;
	if (code < smallest[length] || code > 0x10ffff || is_control || is_surrogate)
		return 0;
	return length;
}

bool proto_is_text(const char *bytes, size_t capacity)
{
	const uint8_t *at = (const uint8_t *)bytes;
	size_t i = 0;

	while (i < capacity && at[i]) {
		size_t length = proto_get_character(at + i, capacity - i);
		if (length == 0)
			return false;
		i += length;
	}
	return proto_is_zero(at + i, capacity - i);
}

/* Copies characters while they fit; a byte that belongs to none becomes a question mark. Returns bytes
 * written. */
static size_t proto_copy_text(char *to, size_t capacity, const char *from, size_t available)
{
	const uint8_t *at = (const uint8_t *)from;
	size_t in = 0, out = 0;

	while (in < available && at[in]) {
		size_t length = proto_get_character(at + in, available - in);
		size_t taken = length ? length : 1;
		if (taken > capacity - out)
			break;
		if (length)
			memcpy(to + out, at + in, length);
		else
			to[out] = at[in] == '\n' || at[in] == '\t' ? ' ' : '?';
		in += taken;
		out += taken;
	}
	return out;
}

void proto_get_text(const char *bytes, size_t capacity, char *ret_string)
{
	size_t length = proto_copy_text(ret_string, capacity, bytes, capacity);

	ret_string[length] = '\0';
}

void proto_set_text(char *bytes, size_t capacity, const char *string)
{
	size_t length = proto_copy_text(bytes, capacity, string, strlen(string));

	memset(bytes + length, 0, capacity - length);
}
