/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_proto.c - every rule about the bytes of the socket, kept and broken; truncation, unknown tails,
 * garbage. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "hpz.h"
#include "proto.h"
#include "util.h"

#define HEAD sizeof(struct hpz_wire_head)

/* ---- heads ---- */

static void test_head_round_trip(void **state)
{
	for (uint16_t op = HPZ_OP_HELLO; op <= HPZ_OP_LAST; op++) {
		uint8_t message[64] = {0};
		struct hpz_wire_head head;
		size_t length = proto_set_head(message, op, 7, false, 0, 0, 8);
		assert_int_equal(length, HEAD + 8);
		assert_int_equal(proto_get_head(message, length, false, &head), HPZ_OK);
		assert_int_equal(head.op, op);
		assert_int_equal(head.id, 7);
		assert_int_equal(head.size, length);
		/* A request is no reply. */
		assert_int_equal(proto_get_head(message, length, true, &head), HPZ_ERR_PROTOCOL);
		if (op == HPZ_OP_ACK)
			continue;
		length = proto_set_head(message, op, 7, true, 0, 3, 8);
		assert_int_equal(proto_get_head(message, length, true, &head), HPZ_OK);
		assert_int_equal(head.descriptors, 3);
		assert_int_equal(proto_get_head(message, length, false, &head), HPZ_ERR_PROTOCOL);
	}
}

static void test_head_truncated(void **state)
{
	uint8_t message[HEAD + 8] = {0};
	struct hpz_wire_head head = {.id = 99};

	size_t length = proto_set_head(message, HPZ_OP_STATUS, 1, false, 0, 0, 8);
	for (size_t i = 0; i < length; i++) {
		uint8_t *exact = malloc(i ? i : 1); /* so that a sanitizer sees what is read beyond */
		memcpy(exact, message, i);
		assert_int_equal(proto_get_head(exact, i, false, &head), HPZ_ERR_PROTOCOL);
		free(exact);
	}
	assert_int_equal(head.id, 99);
}

static void test_head_refuses(void **state)
{
	static const struct {
		bool is_reply;
		struct hpz_wire_head head;
		int error;
	} rows[] = {
		{false, {.size = HEAD, .op = HPZ_OP_STATUS, .id = 1}, HPZ_OK},
		{false, {.size = HEAD + 1, .op = HPZ_OP_STATUS, .id = 1}, HPZ_ERR_PROTOCOL},
		{false, {.size = HEAD - 1, .op = HPZ_OP_STATUS, .id = 1}, HPZ_ERR_PROTOCOL},
		{false, {.size = 0, .op = HPZ_OP_STATUS, .id = 1}, HPZ_ERR_PROTOCOL},
		{false, {.size = UINT32_MAX, .op = HPZ_OP_STATUS, .id = 1}, HPZ_ERR_PROTOCOL},
		{false, {.size = HEAD, .op = HPZ_OP_STATUS, .id = 0}, HPZ_ERR_PROTOCOL},
		/* id 0: only a server that turns us away */
		{true, {.size = HEAD, .op = HPZ_OP_HELLO, .flags = HPZ_WIRE_REPLY, .error = HPZ_ERR_BUSY},
			HPZ_OK},
		{true, {.size = HEAD, .op = HPZ_OP_HELLO, .flags = HPZ_WIRE_REPLY}, HPZ_ERR_PROTOCOL},
		{true, {.size = HEAD, .op = HPZ_OP_LIST, .flags = HPZ_WIRE_REPLY, .error = HPZ_ERR_BUSY},
			HPZ_ERR_PROTOCOL},
		{false, {.size = HEAD, .op = HPZ_OP_HELLO}, HPZ_ERR_PROTOCOL},
		{false, {.size = HEAD, .op = HPZ_OP_STATUS, .id = 1, .flags = HPZ_WIRE_REPLY},
			HPZ_ERR_PROTOCOL},
		{false, {.size = HEAD, .op = HPZ_OP_STATUS, .id = 1, .flags = 2}, HPZ_ERR_PROTOCOL},
		{false, {.size = HEAD, .op = HPZ_OP_STATUS, .id = 1, .error = 1}, HPZ_ERR_PROTOCOL},
		{false, {.size = HEAD, .op = HPZ_OP_STATUS, .id = 1, .descriptors = 1}, HPZ_ERR_PROTOCOL},
		{false, {.size = HEAD, .op = 0, .id = 1}, HPZ_ERR_UNSUPPORTED},
		{false, {.size = HEAD, .op = HPZ_OP_LAST + 1, .id = 1}, HPZ_ERR_UNSUPPORTED},
		{false, {.size = HEAD, .op = UINT16_MAX, .id = 1}, HPZ_ERR_UNSUPPORTED},
		/* Malformed as well as unknown: it is not answered. */
		{false, {.size = HEAD, .op = UINT16_MAX, .id = 0}, HPZ_ERR_PROTOCOL},
		{true, {.size = HEAD, .op = HPZ_OP_LEASE, .id = 1, .flags = HPZ_WIRE_REPLY}, HPZ_OK},
		{true, {.size = HEAD, .op = HPZ_OP_LEASE, .id = 1, .flags = HPZ_WIRE_REPLY, .error = 4000},
			HPZ_OK},
		{true,
			{.size = HEAD,
				.op = HPZ_OP_LEASE,
				.id = 1,
				.flags = HPZ_WIRE_REPLY,
				.descriptors = 253},
			HPZ_OK},
		{true,
			{.size = HEAD,
				.op = HPZ_OP_LEASE,
				.id = 1,
				.flags = HPZ_WIRE_REPLY,
				.descriptors = 254},
			HPZ_ERR_PROTOCOL},
		{true,
			{.size = HEAD,
				.op = HPZ_OP_LEASE,
				.id = 1,
				.flags = HPZ_WIRE_REPLY,
				.error = 1,
				.descriptors = 1},
			HPZ_ERR_PROTOCOL},
		{true, {.size = HEAD, .op = HPZ_OP_LEASE, .id = 0, .flags = HPZ_WIRE_REPLY},
			HPZ_ERR_PROTOCOL},
		{true, {.size = HEAD, .op = HPZ_OP_LEASE, .id = 1, .flags = HPZ_WIRE_REPLY | 2},
			HPZ_ERR_PROTOCOL},
		{true, {.size = HEAD, .op = HPZ_OP_LEASE, .id = 1}, HPZ_ERR_PROTOCOL},
		{true, {.size = HEAD, .op = HPZ_OP_ACK, .id = 1, .flags = HPZ_WIRE_REPLY}, HPZ_ERR_PROTOCOL},
		{true, {.size = HEAD, .op = HPZ_OP_LAST + 1, .id = 1, .flags = HPZ_WIRE_REPLY},
			HPZ_ERR_PROTOCOL},
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct hpz_wire_head head = {.size = 4711};
		assert_int_equal(proto_get_head(&rows[i].head, HEAD, rows[i].is_reply, &head), rows[i].error);
		/* An unknown request can be answered. */
		bool is_set = rows[i].error == HPZ_OK || rows[i].error == HPZ_ERR_UNSUPPORTED;
		assert_int_equal(head.size, is_set ? HEAD : 4711);
	}
}

/* ---- sized structs ---- */

struct sample {
	uint32_t size, a;
	uint64_t b;
};

static void test_struct_shorter_is_filled_up(void **state)
{
	struct sample sent = {.size = sizeof(sent), .a = UINT32_MAX, .b = UINT64_MAX}, got;
	size_t used;

	for (uint32_t size = 0; size <= sizeof(sent); size++) {
		sent.size = size;
		memset(&got, 0xaa, sizeof(got));
		used = 4711;
		int error = proto_get_struct(&sent, sizeof(sent), &got, sizeof(got), &used);
		if (size < sizeof(uint32_t)) {
			assert_int_equal(error, HPZ_ERR_PROTOCOL);
			assert_int_equal(used, 4711);
			assert_int_equal(got.a, 0xaaaaaaaa);
			continue;
		}
		struct sample expected = {0};
		memcpy(&expected, &sent, size);
		assert_int_equal(error, HPZ_OK);
		assert_int_equal(used, size);
		assert_memory_equal(&got, &expected, sizeof(got));
	}
}

static void test_struct_truncated_at_every_byte(void **state)
{
	struct sample sent = {.size = sizeof(sent), .a = 1, .b = 2}, got;
	size_t used = 4711;

	for (size_t available = 0; available < sizeof(sent); available++) {
		uint8_t *exact = malloc(available ? available : 1);
		memcpy(exact, &sent, available);
		assert_int_equal(
			proto_get_struct(exact, available, &got, sizeof(got), &used), HPZ_ERR_PROTOCOL);
		free(exact);
	}
	assert_int_equal(used, 4711);
}

static void test_struct_unknown_tail(void **state)
{
	uint8_t message[sizeof(struct sample) + 32] = {0};
	struct sample sent = {.size = sizeof(message), .a = 1, .b = 2}, got;
	size_t used = 4711;

	memcpy(message, &sent, sizeof(sent));
	assert_int_equal(proto_get_struct(message, sizeof(message), &got, sizeof(got), &used), HPZ_OK);
	assert_int_equal(used, sizeof(message));
	assert_int_equal(got.b, 2);
	for (size_t i = sizeof(sent); i < sizeof(message); i++) {
		message[i] = 1;
		assert_int_equal(proto_get_struct(message, sizeof(message), &got, sizeof(got), &used),
			HPZ_ERR_UNSUPPORTED);
		message[i] = 0;
	}
	/* What belongs to the next struct is not a tail. */
	sent.size = sizeof(sent);
	memcpy(message, &sent, sizeof(sent));
	memset(message + sizeof(sent), 0xff, sizeof(message) - sizeof(sent));
	assert_int_equal(proto_get_struct(message, sizeof(message), &got, sizeof(got), &used), HPZ_OK);
	assert_int_equal(used, sizeof(sent));
}

static void test_struct_needs_no_alignment(void **state)
{
	uint8_t message[64] = {0};
	struct sample sent = {.size = sizeof(sent), .a = 1, .b = 2}, got;
	size_t used;

	for (size_t at = 0; at < 16; at++) {
		memcpy(message + at, &sent, sizeof(sent));
		assert_int_equal(
			proto_get_struct(message + at, sizeof(sent), &got, sizeof(got), &used), HPZ_OK);
		assert_memory_equal(&got, &sent, sizeof(sent));
	}
}

static void test_payload_is_alone(void **state)
{
	uint8_t message[HEAD + sizeof(struct sample) + 8] = {0};
	struct sample sent = {.size = sizeof(sent), .a = 1, .b = 2}, got = {.a = 77};

	memcpy(message + HEAD, &sent, sizeof(sent));
	size_t length = HEAD + sizeof(sent);
	assert_int_equal(proto_get_payload(message, length, &got, sizeof(got)), HPZ_OK);
	assert_int_equal(got.b, 2);
	got.a = 77;
	for (size_t i = 0; i < length; i++) {
		uint8_t *exact = malloc(i ? i : 1);
		memcpy(exact, message, i);
		assert_int_equal(proto_get_payload(exact, i, &got, sizeof(got)), HPZ_ERR_PROTOCOL);
		free(exact);
	}
	for (size_t i = length + 1; i <= sizeof(message); i++)
		assert_int_equal(proto_get_payload(message, i, &got, sizeof(got)), HPZ_ERR_PROTOCOL);
	assert_int_equal(got.a, 77);
}

/* Every byte of version 1's struct must be there: what is missing of it is not zero. */
static void test_payload_is_not_cut(void **state)
{
	for (uint16_t op = HPZ_OP_HELLO; op <= HPZ_OP_LAST; op++) {
		const uint32_t least = (uint32_t)proto_get_least_size(op);
		uint8_t message[1024] = {0}, got[1024];

		if (least == 0)
			continue; /* a number that nothing has yet */
		assert_in_range(least, 8, sizeof(message) - HEAD);
		for (uint32_t size = 4; size <= least + 16; size++) {
			size_t length = proto_set_head(message, op, 1, false, 0, 0, size);
			memcpy(message + HEAD, &size, sizeof(size));
			assert_int_equal(proto_get_payload(message, length, got, least),
				size < least ? HPZ_ERR_PROTOCOL : HPZ_OK);
		}
	}
	assert_int_equal(proto_get_least_size(0), 0);
	assert_int_equal(proto_get_least_size(HPZ_OP_LAST + 1), 0);
}

/* ---- text ---- */

static void test_text(void **state)
{
	static const struct {
		const char *bytes; /* padded to 8 */
		bool is_text;
		const char *repaired;
	} rows[] = {
		{"", true, ""},
		{"abc", true, "abc"},
		{"abcdefgh", true, "abcdefgh"},
		{" ~", true, " ~"},
		{"a\nb", false, "a b"},
		{"a\tb", false, "a b"},
		{"\x1b[0m", false, "?[0m"},
		{"\x7f", false, "?"},
		{"\x1f", false, "?"},
		{"\xc2\x80", false, "??"}, /* C1 */
		{"\xc2\x9b", false, "??"}, /* CSI */
		{"\xc2\x9f", false, "??"},
		{"\xc2\xa0", true, "\xc2\xa0"},
		{"\xc3\xa9", true, "\xc3\xa9"},
		{"\xc3", false, "?"},
		{"\xc3x", false, "?x"},
		{"\xa9", false, "?"},
		{"\xc0\x80", false, "??"}, /* overlong NUL */
		{"\xc1\xbf", false, "??"},
		{"\xe0\x80\x80", false, "???"},
		{"\xe0\x9f\xbf", false, "???"},
		{"\xe0\xa0\x80", true, "\xe0\xa0\x80"},
		{"\xe2\x82\xac", true, "\xe2\x82\xac"},
		{"\xed\xa0\x80", false, "???"}, /* surrogates */
		{"\xed\xbf\xbf", false, "???"},
		{"\xed\x9f\xbf", true, "\xed\x9f\xbf"},
		{"\xee\x80\x80", true, "\xee\x80\x80"},
		{"\xf0\x80\x80\x80", false, "????"},
		{"\xf0\x8f\xbf\xbf", false, "????"},
		{"\xf0\x90\x80\x80", true, "\xf0\x90\x80\x80"},
		{"\xf4\x8f\xbf\xbf", true, "\xf4\x8f\xbf\xbf"},
		{"\xf4\x90\x80\x80", false, "????"},
		{"\xf5\x80\x80\x80", false, "????"},
		{"\xff", false, "?"},
		{"abcdefg\xc3", false, "abcdefg?"}, /* cut by the end of the array */
		{"abcdef\xc3\xa9", true, "abcdef\xc3\xa9"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		char bytes[8] = {0}, string[9];
		memcpy(bytes, rows[i].bytes, strlen(rows[i].bytes));
		assert_int_equal(proto_is_text(bytes, sizeof(bytes)), rows[i].is_text);
		proto_get_text(bytes, sizeof(bytes), string);
		assert_string_equal(string, rows[i].repaired);
		char again[8];
		proto_set_text(again, sizeof(again), rows[i].bytes);
		assert_true(proto_is_text(again, sizeof(again)));
	}
}

static void test_text_zero_is_padding_only(void **state)
{
	const char hidden[8] = {'a', 0, 'b'};
	char string[9];

	assert_false(proto_is_text(hidden, sizeof(hidden)));
	proto_get_text(hidden, sizeof(hidden), string);
	assert_string_equal(string, "a");
	assert_true(proto_is_text(hidden, 0));
}

static void test_text_is_cut_at_a_border(void **state)
{
	char bytes[4];

	memset(bytes, 0xff, sizeof(bytes));
	proto_set_text(bytes, sizeof(bytes), "ab\xe2\x82\xac");
	assert_memory_equal(bytes, "ab\0\0", 4);
	proto_set_text(bytes, sizeof(bytes), "a\xe2\x82\xac");
	assert_memory_equal(bytes, "a\xe2\x82\xac", 4);
	proto_set_text(bytes, sizeof(bytes), "abcdef");
	assert_memory_equal(bytes, "abcd", 4);
	proto_set_text(bytes, sizeof(bytes), "");
	assert_memory_equal(bytes, "\0\0\0\0", 4);
}

/* ---- requests: a good one, and one change each that makes it bad ---- */

/* Runs the check of `type` on a good struct with one field changed; `error` HPZ_OK means the change is
 * allowed. */
#define CHECK_WITH(check, type, good, field, value_, error)                                                  \
	do {                                                                                                 \
		struct hpz_wire_##type changed = good;                                                       \
		const char *why = NULL;                                                                      \
		changed.field = (value_);                                                                    \
		assert_int_equal(check(&changed, &why), error);                                              \
		if ((error) != HPZ_OK)                                                                       \
			assert_true(why != NULL && *why);                                                    \
		else                                                                                         \
			assert_null(why);                                                                    \
	} while (0)
#define CHECK(type, ...) CHECK_WITH(proto_check_##type, type, __VA_ARGS__)

static void test_check_hello(void **state)
{
	const struct hpz_wire_hello good = {
		.size = sizeof(good),
		.magic = HPZ_WIRE_MAGIC,
		.version = HPZ_WIRE_VERSION,
		.compat = HPZ_WIRE_COMPAT,
		.max_message = HPZ_WIRE_MAX_MESSAGE,
		.max_request = HPZ_WIRE_MAX_REQUEST,
		.max_descriptors = HPZ_WIRE_MAX_FDS,
		.program = "0.1.0",
	};

	CHECK(hello, good, size, sizeof(good), HPZ_OK);
	CHECK(hello, good, magic, 0, HPZ_ERR_PROTOCOL);
	CHECK(hello, good, magic, HPZ_WIRE_MAGIC + 1, HPZ_ERR_PROTOCOL);
	CHECK(hello, good, version, 0, HPZ_ERR_PROTOCOL); /* below its own compat */
	CHECK(hello, good, version, HPZ_WIRE_VERSION + 5, HPZ_OK);
	CHECK(hello, good, compat, 0, HPZ_OK);
	CHECK(hello, good, reserved, 1, HPZ_ERR_UNSUPPORTED);
	CHECK(hello, good, reserved2, 1, HPZ_ERR_UNSUPPORTED);
	CHECK(hello, good, capabilities, UINT64_MAX, HPZ_OK); /* what the peer can, not what it wants */
	CHECK(hello, good, max_message, HPZ_WIRE_MAX_MESSAGE - 1, HPZ_ERR_PROTOCOL);
	CHECK(hello, good, max_message, UINT32_MAX, HPZ_OK);
	CHECK(hello, good, max_request, HPZ_WIRE_MAX_REQUEST - 1, HPZ_ERR_PROTOCOL);
	CHECK(hello, good, max_descriptors, HPZ_WIRE_MAX_FDS - 1, HPZ_ERR_PROTOCOL);
	CHECK(hello, good, program[0], '\n', HPZ_ERR_PROTOCOL);
	CHECK(hello, good, program[40], 'x', HPZ_ERR_PROTOCOL);

	struct hpz_wire_hello other = good;
	const char *why;
	other.version = 0;
	other.compat = 0;
	assert_int_equal(proto_check_hello(&other, &why), HPZ_ERR_VERSION);
	other.version = other.compat = HPZ_WIRE_VERSION + 1;
	assert_int_equal(proto_check_hello(&other, &why), HPZ_ERR_VERSION);
	/* What a version we do not speak puts elsewhere is not ours to judge. */
	other.reserved = 1;
	assert_int_equal(proto_check_hello(&other, &why), HPZ_ERR_VERSION);
}

static const struct hpz_wire_lease good_fd = {
	.size = sizeof(good_fd),
	.bytes = 1 << 21,
	.node = HPZ_WIRE_NODE_ANY,
	.deliver = HPZ_DELIVER_FD,
	.owner_uid = -1,
	.owner_gid = -1,
	.label = "vm",
};

static const struct hpz_wire_lease good_path = {
	.size = sizeof(good_path),
	.bytes = 1 << 21,
	.node = HPZ_WIRE_NODE_ANY,
	.deliver = HPZ_DELIVER_PATH,
	.owner_uid = -1,
	.owner_gid = -1,
};

/* What does not depend on the delivery. */
static void check_lease_common(struct hpz_wire_lease good)
{
	CHECK(lease, good, size, sizeof(good), HPZ_OK);
	CHECK(lease, good, flags, HPZ_LEASE_SEGMENTS, HPZ_OK);
	CHECK(lease, good, flags, 16, HPZ_ERR_UNSUPPORTED);
	CHECK(lease, good, flags, 1u << 31, HPZ_ERR_UNSUPPORTED);
	CHECK(lease, good, bytes, 0, HPZ_ERR_INVALID);
	CHECK(lease, good, bytes, 1, HPZ_OK);
	CHECK(lease, good, bytes, INT64_MAX, HPZ_OK);
	CHECK(lease, good, bytes, 1ull << 63, HPZ_ERR_TOO_LARGE);
	CHECK(lease, good, bytes, UINT64_MAX, HPZ_ERR_TOO_LARGE);
	CHECK(lease, good, page_size, 1 << 21, HPZ_OK);
	CHECK(lease, good, page_size, 1 << 30, HPZ_OK);
	CHECK(lease, good, page_size, 1, HPZ_ERR_INVALID);
	CHECK(lease, good, page_size, 2048, HPZ_ERR_INVALID);
	CHECK(lease, good, page_size, 3 << 20, HPZ_ERR_INVALID);
	CHECK(lease, good, page_size, UINT64_MAX, HPZ_ERR_INVALID);
	CHECK(lease, good, node, 0, HPZ_OK);
	CHECK(lease, good, node, INT32_MAX, HPZ_OK);
	CHECK(lease, good, node, -2, HPZ_ERR_INVALID);
	CHECK(lease, good, deliver, 2, HPZ_ERR_UNSUPPORTED);
	CHECK(lease, good, timeout_ms, -1, HPZ_OK);
	CHECK(lease, good, timeout_ms, INT64_MAX, HPZ_OK);
	CHECK(lease, good, timeout_ms, -2, HPZ_ERR_INVALID);
	CHECK(lease, good, owner_pid, 1, HPZ_OK);
	CHECK(lease, good, owner_pid, -1, HPZ_ERR_INVALID);
	CHECK(lease, good, label[0], '\x1b', HPZ_ERR_INVALID);
	CHECK(lease, good, label[127], 'x', HPZ_ERR_INVALID);
	CHECK(lease, good, key[0], 'k', HPZ_OK);
	CHECK(lease, good, key[0], '\xff', HPZ_ERR_INVALID);
	CHECK(lease, good, key[1], 'k', HPZ_ERR_INVALID);
	CHECK(lease, good, reserved, 1, HPZ_ERR_UNSUPPORTED);
	CHECK(lease, good, reserved2, 1, HPZ_ERR_UNSUPPORTED);
	CHECK(lease, good, count, 1, HPZ_OK);
	CHECK(lease, good, count, 253, HPZ_OK);
	CHECK(lease, good, count, 254, HPZ_ERR_INVALID);
	CHECK(lease, good, count, UINT32_MAX, HPZ_ERR_INVALID);
	CHECK(lease, good, priority, -1000, HPZ_OK);
	CHECK(lease, good, priority, 1000, HPZ_OK);
	CHECK(lease, good, priority, -1001, HPZ_ERR_INVALID);
	CHECK(lease, good, priority, INT32_MAX, HPZ_ERR_INVALID);
	CHECK(lease, good, priority, INT32_MIN, HPZ_ERR_INVALID);
	CHECK(lease, good, ttl_ms, 1, HPZ_ERR_UNSUPPORTED);
	CHECK(lease, good, reservation, 1, HPZ_OK);
	CHECK(lease, good, policy, HPZ_NODES_PREFERRED, HPZ_ERR_INVALID);
	CHECK(lease, good, policy, HPZ_NODES_INTERLEAVE, HPZ_ERR_INVALID);
	CHECK(lease, good, policy, HPZ_NODES_INTERLEAVE + 1, HPZ_ERR_UNSUPPORTED);
	CHECK(lease, good, node_mask, 1, HPZ_ERR_INVALID);
	CHECK(lease, good, cells, 1, HPZ_ERR_INVALID); /* it has no size */
	CHECK(lease, good, cells, HPZ_WIRE_CELLS + 1, HPZ_ERR_INVALID);
	CHECK(lease, good, cell[0].bytes, 1, HPZ_ERR_UNSUPPORTED); /* and is not counted */
	CHECK(lease, good, cell[63].node, 1, HPZ_ERR_UNSUPPORTED);
}

/* Where it is to come from. */
static void test_check_lease_nodes(void **state)
{
	struct hpz_wire_lease good = good_fd;

	good.node = 3;
	good.policy = HPZ_NODES_PREFERRED;
	CHECK(lease, good, size, sizeof(good), HPZ_OK);
	CHECK(lease, good, node, HPZ_WIRE_NODE_ANY, HPZ_ERR_INVALID);
	CHECK(lease, good, node_mask, 8, HPZ_ERR_INVALID);
	good.node = HPZ_WIRE_NODE_ANY;
	good.policy = HPZ_NODES_INTERLEAVE;
	good.node_mask = 1ull << 63 | 1;
	CHECK(lease, good, size, sizeof(good), HPZ_OK);
	CHECK(lease, good, node, 0, HPZ_ERR_INVALID);
	CHECK(lease, good, node_mask, 0, HPZ_ERR_INVALID);

	good = good_fd;
	good.cells = 2;
	good.cell[0] = (struct hpz_wire_cell){1 << 20, 0, 0};
	good.cell[1] = (struct hpz_wire_cell){1 << 20, 1, 0};
	CHECK(lease, good, size, sizeof(good), HPZ_OK);
	CHECK(lease, good, flags, HPZ_LEASE_SEGMENTS, HPZ_OK);
	CHECK(lease, good, cell[1].node, 0, HPZ_OK);
	CHECK(lease, good, count, 2, HPZ_ERR_INVALID);
	CHECK(lease, good, reservation, 1, HPZ_ERR_INVALID);
	CHECK(lease, good, bytes, 1 << 20, HPZ_ERR_INVALID);
	CHECK(lease, good, node, 0, HPZ_ERR_INVALID);
	CHECK(lease, good, policy, HPZ_NODES_PREFERRED, HPZ_ERR_INVALID);
	CHECK(lease, good, node_mask, 3, HPZ_ERR_INVALID);
	CHECK(lease, good, cell[1].bytes, 0, HPZ_ERR_INVALID);
	CHECK(lease, good, cell[1].bytes, UINT64_MAX, HPZ_ERR_TOO_LARGE);
	CHECK(lease, good, cell[1].node, -1, HPZ_ERR_INVALID);
	CHECK(lease, good, cell[1].reserved, 1, HPZ_ERR_UNSUPPORTED);
	CHECK(lease, good, cell[2].bytes, 1, HPZ_ERR_UNSUPPORTED);
	CHECK(lease, good, cells, 1, HPZ_ERR_UNSUPPORTED);
}

static void test_check_lease_fd(void **state)
{
	check_lease_common(good_fd);
	CHECK(lease, good_fd, flags, HPZ_LEASE_REOPENABLE | HPZ_LEASE_UNBOUND, HPZ_OK);
	CHECK(lease, good_fd, flags, HPZ_LEASE_KEEP, HPZ_ERR_INVALID);
	CHECK(lease, good_fd, mode, 0600, HPZ_ERR_INVALID);
	CHECK(lease, good_fd, owner_uid, 0, HPZ_ERR_INVALID);
	CHECK(lease, good_fd, owner_gid, 0, HPZ_ERR_INVALID);
	CHECK(lease, good_fd, open_timeout_ms, 1, HPZ_ERR_INVALID);
}

static void test_check_lease_path(void **state)
{
	check_lease_common(good_path);
	CHECK(lease, good_path, flags, HPZ_LEASE_KEEP, HPZ_OK);
	CHECK(lease, good_path, flags, HPZ_LEASE_REOPENABLE, HPZ_ERR_INVALID);
	CHECK(lease, good_path, flags, HPZ_LEASE_UNBOUND, HPZ_ERR_INVALID);
	CHECK(lease, good_path, mode, 0666, HPZ_OK);
	CHECK(lease, good_path, mode, 0700, HPZ_ERR_INVALID);
	CHECK(lease, good_path, mode, 04600, HPZ_ERR_INVALID);
	CHECK(lease, good_path, mode, 010600, HPZ_ERR_INVALID);
	CHECK(lease, good_path, owner_uid, 0, HPZ_OK);
	CHECK(lease, good_path, owner_uid, UINT32_MAX - 1, HPZ_OK);
	CHECK(lease, good_path, owner_uid, UINT32_MAX, HPZ_ERR_INVALID);
	CHECK(lease, good_path, owner_uid, INT64_MAX, HPZ_ERR_INVALID);
	CHECK(lease, good_path, owner_uid, -2, HPZ_ERR_INVALID);
	CHECK(lease, good_path, owner_gid, 0, HPZ_OK);
	CHECK(lease, good_path, owner_gid, UINT32_MAX, HPZ_ERR_INVALID);
	CHECK(lease, good_path, owner_gid, -2, HPZ_ERR_INVALID);
	CHECK(lease, good_path, open_timeout_ms, 1, HPZ_OK);
	CHECK(lease, good_path, open_timeout_ms, -1, HPZ_ERR_INVALID);
}

static void test_check_others(void **state)
{
	const struct hpz_wire_release release = {.size = sizeof(release), .id = 1};
	CHECK(release, release, flags, HPZ_RELEASE_WAIT, HPZ_OK);
	CHECK(release, release, flags, HPZ_RELEASE_FORCE | HPZ_RELEASE_WAIT, HPZ_OK);
	CHECK(release, release, flags, 4, HPZ_ERR_UNSUPPORTED);
	CHECK(release, release, id, 0, HPZ_ERR_INVALID);
	CHECK(release, release, timeout_ms, -1, HPZ_OK);
	CHECK(release, release, timeout_ms, -2, HPZ_ERR_INVALID);

	const struct hpz_wire_adopt adopt = {.size = sizeof(adopt), .id = 1};
	CHECK(adopt, adopt, flags, HPZ_LEASE_UNBOUND, HPZ_OK);
	CHECK(adopt, adopt, flags, 1, HPZ_ERR_UNSUPPORTED);
	CHECK(adopt, adopt, flags, 4, HPZ_ERR_UNSUPPORTED);
	CHECK(adopt, adopt, id, 0, HPZ_ERR_INVALID);
	CHECK(adopt, adopt, owner_pid, 1, HPZ_OK);
	CHECK(adopt, adopt, owner_pid, -1, HPZ_ERR_INVALID);
	CHECK(adopt, adopt, reserved, 1, HPZ_ERR_UNSUPPORTED);

	const struct hpz_wire_list list = {.size = sizeof(list)};
	CHECK(list, list, cursor, UINT64_MAX, HPZ_OK);
	CHECK(list, list, flags, HPZ_WIRE_LIST_MORE, HPZ_OK);
	CHECK(list, list, flags, HPZ_WIRE_LIST_FLAGS, HPZ_OK);
	CHECK(list, list, flags, 8, HPZ_ERR_UNSUPPORTED);

	struct hpz_wire_lease reserve = good_fd;
	reserve.ttl_ms = 1;
	CHECK_WITH(proto_check_reserve, lease, reserve, bytes, 1, HPZ_OK);
	CHECK_WITH(proto_check_reserve, lease, reserve, flags, HPZ_LEASE_SEGMENTS, HPZ_OK);
	CHECK_WITH(proto_check_reserve, lease, reserve, flags, HPZ_LEASE_REOPENABLE, HPZ_ERR_INVALID);
	CHECK_WITH(proto_check_reserve, lease, reserve, ttl_ms, 0, HPZ_ERR_INVALID);
	CHECK_WITH(proto_check_reserve, lease, reserve, ttl_ms, HPZ_RESERVE_MAX_MS, HPZ_OK);
	CHECK_WITH(proto_check_reserve, lease, reserve, ttl_ms, HPZ_RESERVE_MAX_MS + 1, HPZ_ERR_INVALID);
	CHECK_WITH(proto_check_reserve, lease, reserve, count, 1, HPZ_ERR_UNSUPPORTED);
	CHECK_WITH(proto_check_reserve, lease, reserve, reservation, 1, HPZ_ERR_UNSUPPORTED);
	CHECK_WITH(proto_check_reserve, lease, reserve, deliver, HPZ_DELIVER_PATH, HPZ_ERR_INVALID);
	CHECK_WITH(proto_check_reserve, lease, reserve, owner_pid, 1, HPZ_ERR_INVALID);
	CHECK_WITH(proto_check_reserve, lease, reserve, key[0], 'k', HPZ_ERR_INVALID);
	CHECK_WITH(proto_check_reserve, lease, reserve, bytes, 0, HPZ_ERR_INVALID);

	const struct hpz_wire_change change = {.size = sizeof(change), .id = 1, .bytes = 1};
	CHECK(change, change, known, 253, HPZ_OK);
	CHECK(change, change, known, 254, HPZ_ERR_INVALID);
	CHECK(change, change, id, 0, HPZ_ERR_INVALID);
	CHECK(change, change, bytes, 0, HPZ_ERR_INVALID);
	CHECK(change, change, bytes, 1ull << 63, HPZ_ERR_TOO_LARGE);
	CHECK(change, change, timeout_ms, -2, HPZ_ERR_INVALID);
	CHECK(change, change, priority, 1001, HPZ_ERR_INVALID);
	CHECK(change, change, reserved, 1, HPZ_ERR_UNSUPPORTED);

	const struct hpz_wire_release unreserve = {.size = sizeof(unreserve), .id = 1};
	CHECK_WITH(proto_check_unreserve, release, unreserve, id, UINT64_MAX, HPZ_OK);
	CHECK_WITH(proto_check_unreserve, release, unreserve, id, 0, HPZ_ERR_INVALID);
	CHECK_WITH(proto_check_unreserve, release, unreserve, flags, 1, HPZ_ERR_UNSUPPORTED);
	CHECK_WITH(proto_check_unreserve, release, unreserve, timeout_ms, 1, HPZ_ERR_UNSUPPORTED);

	const struct hpz_wire_wait wait = {.size = sizeof(wait), .pool = "2m"};
	CHECK(wait, wait, clean, UINT64_MAX, HPZ_OK);
	CHECK(wait, wait, reserved, 1, HPZ_ERR_UNSUPPORTED);
	CHECK(wait, wait, timeout_ms, -1, HPZ_OK);
	CHECK(wait, wait, timeout_ms, INT64_MIN, HPZ_ERR_INVALID);
	CHECK(wait, wait, pool[0], '\x01', HPZ_ERR_INVALID);
	CHECK(wait, wait, pool[9], 'x', HPZ_ERR_INVALID);

	const struct hpz_wire_verify verify = {.size = sizeof(verify), .pool = "2m"};
	CHECK(verify, verify, reserved, 1, HPZ_ERR_UNSUPPORTED);
	CHECK(verify, verify, timeout_ms, -1, HPZ_OK);
	CHECK(verify, verify, timeout_ms, -2, HPZ_ERR_INVALID);
	CHECK(verify, verify, pool[0], '\x01', HPZ_ERR_INVALID);
	CHECK(verify, verify, pool[9], 'x', HPZ_ERR_INVALID);
	const struct hpz_wire_calibrate calibrate = {.size = sizeof(calibrate), .pool = "2m"};
	CHECK(calibrate, calibrate, reserved, 1, HPZ_ERR_UNSUPPORTED);
	CHECK(calibrate, calibrate, timeout_ms, -1, HPZ_OK);
	CHECK(calibrate, calibrate, timeout_ms, -2, HPZ_ERR_INVALID);
	CHECK(calibrate, calibrate, pool[0], '\x01', HPZ_ERR_INVALID);
	const struct hpz_wire_demand demand = {.size = sizeof(demand)};
	CHECK(demand, demand, cursor, UINT64_MAX, HPZ_OK);
	CHECK(demand, demand, reserved, 1, HPZ_ERR_UNSUPPORTED);
	const struct hpz_wire_metrics metrics = {.size = sizeof(metrics)};
	CHECK(metrics, metrics, cursor, UINT64_MAX, HPZ_OK);
	CHECK(metrics, metrics, reserved, 1, HPZ_ERR_UNSUPPORTED);

	const struct hpz_wire_teardown teardown = {.size = sizeof(teardown), .record = HPZ_RECORD_TEARDOWN};
	CHECK(teardown, teardown, cursor, UINT64_MAX, HPZ_OK);
	CHECK(teardown, teardown, timeout_ms, -1, HPZ_OK);
	CHECK(teardown, teardown, timeout_ms, -2, HPZ_ERR_INVALID);
	CHECK(teardown, teardown, record, HPZ_RECORD_HISTOGRAM, HPZ_OK);
	CHECK(teardown, teardown, record, HPZ_RECORD_FACT, HPZ_OK);
	CHECK(teardown, teardown, record, HPZ_RECORD_POOL, HPZ_ERR_UNSUPPORTED);
	const struct hpz_wire_teardown facts = {.size = sizeof(facts), .record = HPZ_RECORD_FACT};
	CHECK(teardown, facts, timeout_ms, 1, HPZ_ERR_INVALID);
	const struct hpz_wire_set set = {.size = sizeof(set), .key = "rate", .value = "1G"};
	CHECK(set, set, reserved, 1, HPZ_ERR_UNSUPPORTED);
	CHECK(set, set, value[0], '\0', HPZ_ERR_INVALID); /* something behind its end */
	CHECK(set, set, value[1], '\n', HPZ_ERR_INVALID);
	CHECK(set, set, key[0], '\0', HPZ_ERR_INVALID);
	CHECK(set, set, key[9], 'x', HPZ_ERR_INVALID);

	const struct hpz_wire_resize resize = {
		.size = sizeof(resize), .kind = HPZ_RESIZE_GROW, .pages = 5, .pool = "2m"};
	CHECK(resize, resize, flags, HPZ_RESIZE_WAIT, HPZ_OK);
	CHECK(resize, resize, flags, 2, HPZ_ERR_UNSUPPORTED);
	CHECK(resize, resize, reserved, 1, HPZ_ERR_UNSUPPORTED);
	CHECK(resize, resize, kind, 0, HPZ_ERR_UNSUPPORTED);
	CHECK(resize, resize, kind, HPZ_RESIZE_DEMOTE, HPZ_OK);
	CHECK(resize, resize, kind, HPZ_RESIZE_DEMOTE + 1, HPZ_ERR_UNSUPPORTED);
	CHECK(resize, resize, pages, 0, HPZ_OK);
	CHECK(resize, resize, bytes, 4096, HPZ_ERR_INVALID);
	CHECK(resize, resize, timeout_ms, -1, HPZ_OK);
	CHECK(resize, resize, timeout_ms, -2, HPZ_ERR_INVALID);
	CHECK(resize, resize, pool[0], '\0', HPZ_ERR_INVALID);
	CHECK(resize, resize, pool[9], 'x', HPZ_ERR_INVALID);

	const struct hpz_wire_drain drain = {.size = sizeof(drain)};
	CHECK(drain, drain, flags, HPZ_DRAIN_GIVE_BACK, HPZ_OK);
	CHECK(drain, drain, flags, 2, HPZ_ERR_UNSUPPORTED);
	CHECK(drain, drain, timeout_ms, -1, HPZ_OK);
	CHECK(drain, drain, timeout_ms, -2, HPZ_ERR_INVALID);
	const struct hpz_wire_check check = {.size = sizeof(check)};
	CHECK(check, check, flags, HPZ_CHECK_REPAIR, HPZ_OK);
	CHECK(check, check, flags, 2, HPZ_ERR_UNSUPPORTED);
	CHECK(check, check, cursor, UINT64_MAX, HPZ_OK);
	CHECK(check, check, timeout_ms, -1, HPZ_OK);
	CHECK(check, check, timeout_ms, -2, HPZ_ERR_INVALID);

	const struct hpz_wire_ack ack = {.size = sizeof(ack), .id = 1};
	CHECK(ack, ack, id, UINT64_MAX, HPZ_OK);
	CHECK(ack, ack, id, 0, HPZ_ERR_INVALID);
	CHECK(ack, ack, count, 253, HPZ_OK);
	CHECK(ack, ack, count, 254, HPZ_ERR_INVALID);

	const struct hpz_wire_empty empty = {.size = sizeof(empty)};
	CHECK(empty, empty, size, sizeof(empty), HPZ_OK);
	CHECK(empty, empty, reserved, 1, HPZ_ERR_UNSUPPORTED);
}

/* ---- garbage ---- */

static uint64_t random_state = 0x9e3779b97f4a7c15;

static uint64_t get_random(void)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return random_state;
}

/* Whatever the bytes: an error of the three kinds or success, and nothing read or written outside. */
static void test_garbage(void **state)
{
	for (unsigned round = 0; round < 200000; round++) {
		size_t length = get_random() % 500;
		uint8_t *message = malloc(length ? length : 1);
		bool is_sparse = round & 1;
		for (size_t i = 0; i < length; i++)
			message[i] = is_sparse && get_random() % 8 ? 0 : (uint8_t)get_random();
		if (length >= HEAD && round % 3)
			proto_set_head(message, (uint16_t)(get_random() % 12), get_random() % 3, round % 2, 0,
				0, length - HEAD);
		if (length >= HEAD + 4 && round % 5) {
			uint32_t size = (uint32_t)(length - HEAD);
			memcpy(message + HEAD, &size, sizeof(size));
		}

		struct hpz_wire_head head;
		struct hpz_wire_lease lease;
		struct hpz_wire_hello hello;
		const char *why = NULL;
		int error = proto_get_head(message, length, round & 1, &head);
		assert_true(error == HPZ_OK || error == HPZ_ERR_PROTOCOL || error == HPZ_ERR_UNSUPPORTED);
		if (proto_get_payload(message, length, &lease, sizeof(lease)) == HPZ_OK &&
			proto_check_lease(&lease, &why) == HPZ_OK)
			assert_true(lease.bytes > 0 && proto_is_text(lease.label, sizeof(lease.label)));
		if (proto_get_payload(message, length, &hello, sizeof(hello)) == HPZ_OK)
			proto_check_hello(&hello, &why);
		char *string = malloc(length + 1);
		proto_get_text((const char *)message, length, string);
		assert_true(proto_is_text(string, strlen(string)));
		assert_true(strlen(string) <= length);
		if (proto_is_text((const char *)message, length))
			assert_memory_equal(string, message, strlen(string));
		free(string);
		free(message);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_head_round_trip),
		cmocka_unit_test(test_head_truncated),
		cmocka_unit_test(test_head_refuses),
		cmocka_unit_test(test_struct_shorter_is_filled_up),
		cmocka_unit_test(test_struct_truncated_at_every_byte),
		cmocka_unit_test(test_struct_unknown_tail),
		cmocka_unit_test(test_struct_needs_no_alignment),
		cmocka_unit_test(test_payload_is_alone),
		cmocka_unit_test(test_payload_is_not_cut),
		cmocka_unit_test(test_text),
		cmocka_unit_test(test_text_zero_is_padding_only),
		cmocka_unit_test(test_text_is_cut_at_a_border),
		cmocka_unit_test(test_check_hello),
		cmocka_unit_test(test_check_lease_fd),
		cmocka_unit_test(test_check_lease_path),
		cmocka_unit_test(test_check_lease_nodes),
		cmocka_unit_test(test_check_others),
		cmocka_unit_test(test_garbage),
	};

	return cmocka_run_group_tests_name("proto", tests, NULL, NULL);
}
