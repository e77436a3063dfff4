/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * fuzz_request.c - a message of a client, as hpzd reads it: head, payload, what its operation demands.
 * The first byte is the operation, and the payload follows; 0: the message follows, head and all.
 */
#include "fuzz.h"

#include "hpz.h"
#include "request.h"

/* The same request of a client that is newer than us, and knows fields that we do not: it leaves them zero.
 */
static void check_newer(const struct hpz_wire_head *head, const union request_payload *payload)
{
	static unsigned char message[HPZ_WIRE_MAX_REQUEST];
	struct hpz_wire_head again;
	union request_payload read;
	uint32_t size = sizeof message - sizeof *head;
	const char *why = NULL;

	memset(message, 0, sizeof message);
	memset(&read, 0, sizeof read);
	proto_set_head(message, head->op, head->id, false, 0, 0, size);
	memcpy(message + sizeof *head, payload, size);
	memcpy(message + sizeof *head, &size, sizeof size);
	FUZZ_CHECK(proto_get_head(message, sizeof message, false, &again) == HPZ_OK);
	FUZZ_CHECK(again.op == head->op && again.id == head->id);
	FUZZ_CHECK(request_read_payload(&again, message, sizeof message, &read, &why) == HPZ_OK);
	memcpy(&read, payload, sizeof size); /* the size alone differs */
	FUZZ_CHECK(memcmp(&read, payload, sizeof read) == 0);
}

/* A text that is taken comes out as it was. */
static void check_text(const char *bytes, size_t capacity)
{
	char string[HPZ_WIRE_VALUE + 1], again[HPZ_WIRE_VALUE];

	FUZZ_CHECK(capacity <= sizeof again && proto_is_text(bytes, capacity));
	proto_get_text(bytes, capacity, string);
	proto_set_text(again, capacity, string);
	FUZZ_CHECK(memcmp(again, bytes, capacity) == 0);
}

static void check_lease(const struct hpz_wire_lease *lease)
{
	uint64_t sum = 0;

	check_text(lease->label, sizeof lease->label);
	check_text(lease->key, sizeof lease->key);
	FUZZ_CHECK(lease->bytes > 0 && lease->bytes <= INT64_MAX && lease->timeout_ms >= -1);
	FUZZ_CHECK(lease->count <= HPZ_WIRE_MAX_FDS && lease->cells <= HPZ_WIRE_CELLS);
	FUZZ_CHECK(lease->count == 0 || lease->bytes <= (uint64_t)INT64_MAX / lease->count);
	FUZZ_CHECK(lease->owner_pid >= 0 && lease->node >= HPZ_WIRE_NODE_ANY);
	for (uint32_t i = 0; i < lease->cells; i++)
		sum += lease->cell[i].bytes;
	FUZZ_CHECK(lease->cells == 0 || sum == lease->bytes);
}

static void check_taken(const struct hpz_wire_head *head, const union request_payload *payload)
{
	switch ((enum hpz_wire_op)head->op) {
	case HPZ_OP_LEASE:
	case HPZ_OP_PLAN:
	case HPZ_OP_RESERVE:
		check_lease(&payload->lease);
		break;
	case HPZ_OP_SET:
		check_text(payload->set.key, sizeof payload->set.key);
		check_text(payload->set.value, sizeof payload->set.value);
		break;
	case HPZ_OP_WAIT:
		check_text(payload->wait.pool, sizeof payload->wait.pool);
		break;
	case HPZ_OP_VERIFY:
		check_text(payload->verify.pool, sizeof payload->verify.pool);
		break;
	case HPZ_OP_CALIBRATE:
		check_text(payload->calibrate.pool, sizeof payload->calibrate.pool);
		break;
	case HPZ_OP_RESIZE:
		check_text(payload->resize.pool, sizeof payload->resize.pool);
		break;
	case HPZ_OP_RELEASE:
	case HPZ_OP_UNRESERVE:
		FUZZ_CHECK(payload->release.id != 0);
		break;
	default: /* the others have nothing that could be large or text */
		break;
	}
	check_newer(head, payload);
}

static void read_hello(const void *message, size_t length)
{
	struct hpz_wire_hello hello;
	const char *why = NULL;

	if (proto_get_payload(message, length, &hello, sizeof hello) == 0 &&
		proto_check_hello(&hello, &why) == 0)
		check_text(hello.program, sizeof hello.program);
}

static void read_message(const void *message, size_t length)
{
	struct hpz_wire_head head = {0};
	union request_payload payload;
	const char *why = NULL;

	memset(&payload, 0, sizeof payload);
	int r = proto_get_head(message, length, false, &head);
	FUZZ_CHECK(r == HPZ_OK || r == HPZ_ERR_PROTOCOL || r == HPZ_ERR_UNSUPPORTED);
	if (r)
		return;
	FUZZ_CHECK(head.op >= HPZ_OP_HELLO && head.op <= HPZ_OP_LAST && head.id != 0);
	if (head.op == HPZ_OP_HELLO) {
		read_hello(message, length);
		return;
	}
	r = request_read_payload(&head, message, length, &payload, &why);
	FUZZ_CHECK(why); /* a refused client is told */
	if (r == HPZ_OK)
		check_taken(&head, &payload);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
	struct fuzz_input input = {bytes, length};
	uint8_t op = fuzz_take_byte(&input);
	size_t payload_length;
	_cleanup_free_ uint8_t *payload = fuzz_take_bytes(&input, HPZ_WIRE_MAX_REQUEST, &payload_length);

	if (op == 0) {
		read_message(payload, payload_length);
		return 0;
	}
	size_t size = sizeof(struct hpz_wire_head) + payload_length;
	_cleanup_free_ uint8_t *message = malloc(size);
	FUZZ_CHECK(message);
	memcpy(message + sizeof(struct hpz_wire_head), payload, payload_length);
	/* As its sender knows it: all that is there. */
	if (payload_length >= sizeof(uint32_t))
		memcpy(message + sizeof(struct hpz_wire_head), &(uint32_t){(uint32_t)payload_length},
			sizeof(uint32_t));
	proto_set_head(message, op, 1, false, 0, 0, payload_length);
	read_message(message, size);
	return 0;
}
