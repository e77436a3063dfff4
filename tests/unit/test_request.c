/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * test_request.c - what a client may ask, without a socket: bytes in, reply out. With no pool, and with one
 * on tmpfs, which can hand out paths. What needs real pages is in tests/host/test_handoff.c.
 */
#include "harness.h"
#include "dice.h"

#include <inttypes.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

/* Sessions are pointers that requests.c compares and gives back. */
#define SESSION(n) ((struct session *)(uintptr_t)((n)*16))

static struct message in, out;
static uint64_t unread_lease, capabilities;

/* Replies of requests that waited. */
static struct {
	size_t count;
	struct session *sessions[16];
	struct message replies[16];
} sent;

static const struct request_peer root = {.uid = 0, .gid = 0, .pid = 1, .pidfd = -1};
static const struct request_peer user = {.uid = 1000, .gid = 1000, .pid = 1, .pidfd = -1};

static void on_send(struct session *session, struct request_reply *reply)
{
	assert_true(sent.count < ARRAY_SIZE(sent.replies));
	sent.sessions[sent.count] = session;
	sent.replies[sent.count].length = reply->length;
	memcpy(sent.replies[sent.count].bytes, reply->bytes, reply->length);
	sent.count++;
	desk_close_fds(reply);
}

static int setup(void **state)
{
	unread_lease = 0;
	sent.count = 0;
	harness_open(on_send);
	return 0;
}

static int teardown(void **state)
{
	harness_close();
	return 0;
}

static void take_reply(void)
{
	out.length = harness.requests.reply.length;
	memcpy(out.bytes, harness.requests.reply.bytes, out.length);
	desk_close_fds(&harness.requests.reply);
}

static enum request_outcome ask_as(
	struct session *session, const struct request_peer *peer, const struct message *message)
{
	/* Exactly as long as it is: a byte read beyond is found. */
	void *bytes = malloc(MAX(message->length, 1));
	assert_non_null(bytes);
	memcpy(bytes, message->bytes, message->length);
	enum request_outcome outcome =
		request_handle(&harness.requests, session, peer, bytes, message->length, unread_lease);
	free(bytes);
	if (outcome == REQUEST_REPLIED || outcome == REQUEST_BROKEN)
		take_reply();
	return outcome;
}

static enum request_outcome ask(const struct message *message)
{
	return ask_as(SESSION(1), &root, message);
}

static bool has_sent(void *wanted)
{
	return sent.count >= *(size_t *)wanted;
}

static const struct message *wait_reply(size_t number)
{
	harness_run_until(has_sent, &number);
	return &sent.replies[number - 1];
}

/* ---- hello ---- */

static enum request_outcome greet(const struct message *message)
{
	enum request_outcome outcome =
		request_handle_hello(&harness.requests, message->bytes, message->length, &capabilities);
	take_reply();
	return outcome;
}

static struct hpz_wire_hello *get_hello(void)
{
	return HARNESS_PAYLOAD(harness_make_hello(&in));
}

static void test_hello(void **state)
{
	get_hello();
	assert_int_equal(greet(&in), REQUEST_REPLIED);
	harness_expect_ok(&out, HPZ_OP_HELLO, 1);
	const struct hpz_wire_hello *hello = HARNESS_PAYLOAD(&out);
	assert_int_equal(out.length, sizeof(struct hpz_wire_head) + sizeof *hello);
	assert_true(hello->size == sizeof *hello && hello->magic == HPZ_WIRE_MAGIC &&
		    hello->version == HPZ_WIRE_VERSION && hello->compat == HPZ_WIRE_COMPAT &&
		    hello->capabilities == 0 && hello->max_message == HPZ_WIRE_MAX_MESSAGE &&
		    hello->max_request == HPZ_WIRE_MAX_REQUEST && hello->max_descriptors == HPZ_WIRE_MAX_FDS);
	assert_string_equal(hello->program, HPZ_VERSION);
	/* What the client says it can is remembered, known or not. */
	assert_int_equal(capabilities, 0);
	get_hello()->capabilities = HPZ_WIRE_CAN_ZEROED | 1u << 31;
	assert_int_equal(greet(&in), REQUEST_REPLIED);
	assert_int_equal(capabilities, HPZ_WIRE_CAN_ZEROED | 1u << 31);
	/* Somebody newer who still speaks our version. */
	get_hello()->version = HPZ_WIRE_VERSION + 5;
	assert_int_equal(greet(&in), REQUEST_REPLIED);
}

static void test_wrong_hello(void **state)
{
	get_hello()->magic++;
	assert_int_equal(greet(&in), REQUEST_BROKEN);
	harness_expect_error(&out, HPZ_OP_HELLO, 1, HPZ_ERR_PROTOCOL);
	struct hpz_wire_hello *hello = get_hello();
	hello->version = hello->compat = HPZ_WIRE_VERSION + 1;
	assert_int_equal(greet(&in), REQUEST_BROKEN);
	harness_expect_error(&out, HPZ_OP_HELLO, 1, HPZ_ERR_VERSION);
	get_hello()->reserved = 1;
	assert_int_equal(greet(&in), REQUEST_BROKEN);
	harness_expect_error(&out, HPZ_OP_HELLO, 1, HPZ_ERR_UNSUPPORTED);
	/* Another request is no hello, and nor is half of one. */
	assert_int_equal(greet(harness_make_empty(&in, HPZ_OP_STATUS, 5)), REQUEST_BROKEN);
	harness_expect_error(&out, HPZ_OP_STATUS, 5, HPZ_ERR_PROTOCOL);
	assert_int_equal(greet(harness_make_empty(&in, 77, 5)), REQUEST_BROKEN);
	for (size_t length = 0; length < sizeof(struct hpz_wire_head) + sizeof *hello; length++) {
		get_hello();
		in.length = length;
		assert_int_equal(greet(&in), REQUEST_BROKEN);
		assert_int_not_equal(harness_get_head(&out).error, 0);
	}
}

/* ---- every operation, cut, grown and filled with noise ---- */

/* A request of each operation that is well-formed; false: the operation has none here. */
static bool make_request(uint16_t op, struct message *message)
{
	const struct hpz_wire_lease lease = harness_get_lease(1, 0);
	const struct hpz_wire_lease reserve = {.size = sizeof reserve,
		.bytes = 1,
		.node = -1,
		.owner_uid = -1,
		.owner_gid = -1,
		.ttl_ms = 1};
	const struct hpz_wire_ack ack = {sizeof ack, 0, 5};
	const struct hpz_wire_release release = {.size = sizeof release, .id = 5};
	const struct hpz_wire_adopt adopt = {.size = sizeof adopt, .id = 5};
	const struct hpz_wire_change change = {.size = sizeof change, .id = 5, .bytes = 1};
	const struct hpz_wire_list list = {.size = sizeof list};
	const struct hpz_wire_wait wait = {.size = sizeof wait};
	const struct hpz_wire_drain drain = {.size = sizeof drain};
	const struct hpz_wire_verify verify = {.size = sizeof verify};
	const struct hpz_wire_calibrate calibrate = {.size = sizeof calibrate};
	const struct hpz_wire_check check = {.size = sizeof check};
	const struct hpz_wire_demand demand = {.size = sizeof demand};
	const struct hpz_wire_set set = {.size = sizeof set, .key = "rate", .value = "2G"};
	const struct hpz_wire_empty empty = {.size = sizeof empty};
	const struct hpz_wire_resize resize = {
		.size = sizeof resize, .kind = HPZ_RESIZE_TO, .pages = 1, .pool = "p"};

	switch ((enum hpz_wire_op)op) {
	case HPZ_OP_HELLO:
		return false;
	case HPZ_OP_STATUS:
		harness_make(message, op, 9, &empty, sizeof empty);
		return true;
	case HPZ_OP_LEASE:
	case HPZ_OP_PLAN:
		harness_make(message, op, 9, &lease, sizeof lease);
		return true;
	case HPZ_OP_ACK:
		harness_make(message, op, 9, &ack, sizeof ack);
		return true;
	case HPZ_OP_RESERVE:
		harness_make(message, op, 9, &reserve, sizeof reserve);
		return true;
	case HPZ_OP_CHANGE:
		harness_make(message, op, 9, &change, sizeof change);
		return true;
	case HPZ_OP_UNRESERVE:
	case HPZ_OP_RELEASE:
		harness_make(message, op, 9, &release, sizeof release);
		return true;
	case HPZ_OP_ADOPT:
		harness_make(message, op, 9, &adopt, sizeof adopt);
		return true;
	case HPZ_OP_LIST:
		harness_make(message, op, 9, &list, sizeof list);
		return true;
	case HPZ_OP_WAIT:
		harness_make(message, op, 9, &wait, sizeof wait);
		return true;
	case HPZ_OP_DRAIN:
		harness_make(message, op, 9, &drain, sizeof drain);
		return true;
	case HPZ_OP_RESIZE:
		harness_make(message, op, 9, &resize, sizeof resize);
		return true;
	case HPZ_OP_CHECK:
		harness_make(message, op, 9, &check, sizeof check);
		return true;
	case HPZ_OP_VERIFY:
		harness_make(message, op, 9, &verify, sizeof verify);
		return true;
	case HPZ_OP_CALIBRATE:
		harness_make(message, op, 9, &calibrate, sizeof calibrate);
		return true;
	case HPZ_OP_SET:
		harness_make(message, op, 9, &set, sizeof set);
		return true;
	case HPZ_OP_CLEARING:
		harness_make(message, op, 9, &empty, sizeof empty);
		return true;
	case HPZ_OP_DEMAND:
		harness_make(message, op, 9, &demand, sizeof demand);
		return true;
	}
	return false;
}

static void expect_well_formed(uint16_t op)
{
	struct hpz_wire_head head = harness_get_head(&out);

	assert_int_equal(head.op, op);
	if (head.error)
		harness_expect_error(&out, op, head.id, (int)head.error);
}

static void test_truncated(void **state)
{
	for (uint16_t op = HPZ_OP_HELLO; op <= HPZ_OP_LAST; op++) {
		if (!make_request(op, &in))
			continue;
		size_t whole = in.length;
		for (size_t length = 0; length < whole; length++) {
			/* As it was sent, and with a head that says so. */
			make_request(op, &in);
			in.length = length;
			assert_int_equal(ask(&in), REQUEST_BROKEN);
			assert_int_not_equal(harness_get_head(&out).error, 0);
			if (length < sizeof(struct hpz_wire_head))
				continue;
			make_request(op, &in);
			proto_set_head(in.bytes, op, 9, false, 0, 0, length - sizeof(struct hpz_wire_head));
			in.length = length;
			enum request_outcome outcome = ask(&in);
			assert_int_equal(outcome, op == HPZ_OP_ACK ? REQUEST_BROKEN : REQUEST_REPLIED);
			harness_expect_error(&out, op, 9, HPZ_ERR_PROTOCOL);
		}
	}
}

static void test_tail(void **state)
{
	for (uint16_t op = HPZ_OP_HELLO; op <= HPZ_OP_LAST; op++) {
		for (unsigned char tail = 0; tail < 2; tail++) {
			if (!make_request(op, &in) || op == HPZ_OP_WAIT || op == HPZ_OP_DRAIN ||
				op == HPZ_OP_CHECK || op == HPZ_OP_VERIFY ||
				op == HPZ_OP_CALIBRATE) /* they wait */
				continue;
			/* Of somebody newer: its struct is 8 bytes longer. Zero means as before. */
			size_t size = in.length - sizeof(struct hpz_wire_head);
			uint32_t longer = (uint32_t)size + 8;
			memcpy(HARNESS_PAYLOAD(&in), &longer, sizeof longer);
			memset(in.bytes + in.length, 0, 8);
			in.bytes[in.length + 7] = tail;
			in.length = proto_set_head(in.bytes, op, 9, false, 0, 0, size + 8);
			enum request_outcome outcome = ask(&in);
			if (op == HPZ_OP_ACK) {
				assert_int_equal(outcome, tail ? REQUEST_BROKEN : REQUEST_NO_REPLY);
				continue;
			}
			assert_int_equal(outcome, REQUEST_REPLIED);
			expect_well_formed(op);
			if (tail)
				harness_expect_error(&out, op, 9, HPZ_ERR_UNSUPPORTED);
			else
				assert_int_not_equal(harness_get_head(&out).error, HPZ_ERR_UNSUPPORTED);
		}
	}
}

/* Whatever comes, there is an answer that can be read, and afterwards all is as before. */
static void throw_noise(uint64_t seed, void *unused)
{
	struct dice dice;

	dice_init(&dice, seed);
	for (int i = 0; i < 400; i++) {
		uint16_t op = (uint16_t)dice_between(&dice, 1, HPZ_OP_LAST);
		if (!make_request(op, &in))
			continue;
		for (uint64_t flips = dice_roll(&dice, 4); flips > 0; flips--)
			in.bytes[dice_roll(&dice, in.length)] ^= (unsigned char)(1u << dice_roll(&dice, 8));
		if (dice_chance(&dice, 20))
			in.length = dice_roll(&dice, in.length + 60);
		enum request_outcome outcome =
			ask_as(SESSION(2), dice_chance(&dice, 50) ? &root : &user, &in);
		if (outcome == REQUEST_REPLIED || outcome == REQUEST_BROKEN)
			harness_get_head(&out);
		if (outcome == REQUEST_WAITS)
			request_cancel_session(&harness.requests, SESSION(2));
	}
	harness_turn();
	assert_true(list_is_empty(&harness.requests.waiting));
	assert_int_equal(harness.leases.count, 0);
}

static int arg_count;
static char **args;

static void test_noise(void **state)
{
	dice_for_each_seed(arg_count, args, 20, throw_noise, NULL);
}

static void test_head(void **state)
{
	/* Id 0 is the server's. */
	harness_make_empty(&in, HPZ_OP_STATUS, 0);
	assert_int_equal(ask(&in), REQUEST_BROKEN);
	assert_int_equal(harness_get_head(&out).error, HPZ_ERR_PROTOCOL);
	/* An operation of somebody newer is refused, and the connection goes on. */
	static const uint16_t unknown[] = {0, HPZ_OP_LAST + 1, 77, UINT16_MAX};
	for (size_t i = 0; i < ARRAY_SIZE(unknown); i++) {
		assert_int_equal(ask(harness_make_empty(&in, unknown[i], 9)), REQUEST_REPLIED);
		harness_expect_error(&out, unknown[i], 9, HPZ_ERR_UNSUPPORTED);
	}
	get_hello();
	assert_int_equal(ask(&in), REQUEST_BROKEN);
	harness_expect_error(&out, HPZ_OP_HELLO, 1, HPZ_ERR_PROTOCOL);
	/* Flags, errors and descriptors are a reply's. */
	for (size_t at = 6; at < sizeof(struct hpz_wire_head); at++) {
		harness_make_empty(&in, HPZ_OP_STATUS, 9);
		if (at >= 8 && at < 16)
			continue; /* the id */
		in.bytes[at] ^= 0x80;
		assert_int_equal(ask(&in), REQUEST_BROKEN);
		assert_int_equal(harness_get_head(&out).error, HPZ_ERR_PROTOCOL);
	}
}

/* ---- who may ---- */

static void test_denied(void **state)
{
	for (uint16_t op = HPZ_OP_HELLO; op <= HPZ_OP_LAST; op++) {
		if (!make_request(op, &in))
			continue;
		enum request_outcome outcome = ask_as(SESSION(1), &user, &in);
		switch ((enum hpz_wire_op)op) {
		case HPZ_OP_STATUS:
		case HPZ_OP_LIST:
		case HPZ_OP_CLEARING:
		case HPZ_OP_DEMAND:
			assert_int_equal(outcome, REQUEST_REPLIED);
			harness_expect_ok(&out, op, 9);
			break;
		case HPZ_OP_PLAN: /* whoever may read status may ask, and here is nothing to plan with */
			assert_int_equal(outcome, REQUEST_REPLIED);
			harness_expect_error(&out, op, 9, HPZ_ERR_NO_POOL);
			break;
		case HPZ_OP_WAIT:
			assert_int_equal(outcome, REQUEST_WAITS);
			break;
		case HPZ_OP_ACK:
			assert_int_equal(outcome, REQUEST_NO_REPLY);
			break;
		case HPZ_OP_HELLO:
		case HPZ_OP_LEASE:
		case HPZ_OP_CHANGE:
		case HPZ_OP_RESERVE:
		case HPZ_OP_UNRESERVE:
		case HPZ_OP_RELEASE:
		case HPZ_OP_ADOPT:
		case HPZ_OP_DRAIN:
		case HPZ_OP_VERIFY:
		case HPZ_OP_CALIBRATE:
		case HPZ_OP_CHECK:
		case HPZ_OP_SET:
		case HPZ_OP_RESIZE:
			assert_int_equal(outcome, REQUEST_REPLIED);
			assert_non_null(
				strstr(harness_expect_error(&out, op, 9, HPZ_ERR_DENIED), "uid 1000"));
			break;
		}
	}
	request_cancel_session(&harness.requests, SESSION(1));
}

static void test_unread_descriptors(void **state)
{
	unread_lease = 4711;
	assert_int_equal(ask(harness_make_lease(&in, 9, 1, 0)), REQUEST_REPLIED);
	assert_non_null(strstr(harness_expect_error(&out, HPZ_OP_LEASE, 9, HPZ_ERR_BUSY), "4711"));
	make_request(HPZ_OP_ADOPT, &in);
	assert_int_equal(ask(&in), REQUEST_REPLIED);
	harness_expect_error(&out, HPZ_OP_ADOPT, 9, HPZ_ERR_BUSY);
	make_request(HPZ_OP_LIST, &in);
	assert_int_equal(ask(&in), REQUEST_REPLIED);
	harness_expect_ok(&out, HPZ_OP_LIST, 9);
}

/* ---- rules of clearing ---- */

static struct config_clear set_to;
static unsigned set_count;

static int take_clear(const struct config_clear *clear, char *ret_why, size_t capacity, void *context)
{
	if (strcmp(clear->method, "odd") == 0) {
		snprintf(ret_why, capacity, "there is no such method");
		return -EINVAL;
	}
	set_to = *clear;
	set_count++;
	return 0;
}

static const char *set_rule(const char *key, const char *value, int error)
{
	struct hpz_wire_set wire = {.size = sizeof wire};
	proto_set_text(wire.key, sizeof wire.key, key);
	proto_set_text(wire.value, sizeof wire.value, value);
	harness_make(&in, HPZ_OP_SET, 9, &wire, sizeof wire);
	assert_int_equal(ask(&in), REQUEST_REPLIED);
	if (error)
		return harness_expect_error(&out, HPZ_OP_SET, 9, error);
	harness_expect_ok(&out, HPZ_OP_SET, 9);
	return "";
}

static void test_set(void **state)
{
	set_count = 0;
	assert_non_null(strstr(set_rule("rate", "1G", HPZ_ERR_INVALID), "cannot be set"));
	harness.requests.set_clear = take_clear;
	set_rule("rate", "1G", 0);
	assert_int_equal(set_count, 1);
	assert_int_equal(set_to.rate_bytes_per_s, (uint64_t)1 << 30);
	/* What is refused, here or above, changes nothing. */
	assert_non_null(strstr(set_rule("rate", "12", HPZ_ERR_INVALID), "rate = 12, neither"));
	assert_non_null(strstr(set_rule("ratio", "1G", HPZ_ERR_INVALID), "no key `ratio`"));
	assert_non_null(strstr(set_rule("stock", "auto", HPZ_ERR_INVALID), "no key `stock`"));
	assert_non_null(strstr(set_rule("method", "odd", HPZ_ERR_INVALID), "no such method"));
	assert_int_equal(set_count, 1);
	harness.requests.set_clear = NULL;
}

/* Every record of the answer, one behind the other, and nothing behind them. */
static void test_clearing(void **state)
{
	assert_int_equal(ask(harness_make_empty(&in, HPZ_OP_CLEARING, 3)), REQUEST_REPLIED);
	harness_expect_ok(&out, HPZ_OP_CLEARING, 3);
	const struct hpz_wire_clearing *clearing = HARNESS_PAYLOAD(&out);
	assert_int_equal(clearing->rules, CONFIG_CLEAR_KEYS);
	assert_int_equal(clearing->psi_cpu, HPZ_WIRE_PSI_NONE);
	const struct hpz_wire_rule *rule = (const struct hpz_wire_rule *)(clearing + 1);
	for (uint32_t i = 0; i < clearing->rules; i++, rule++) {
		assert_int_equal(rule->record, HPZ_RECORD_RULE);
		assert_true(rule->key[0]);
	}
	const struct hpz_wire_node *node = (const struct hpz_wire_node *)rule;
	for (uint32_t i = 0; i < clearing->nodes; i++, node++)
		assert_int_equal(node->record, HPZ_RECORD_NODE);
	const struct hpz_wire_method *method = (const struct hpz_wire_method *)node;
	for (uint32_t i = 0; i < clearing->methods; i++, method++)
		assert_int_equal(method->record, HPZ_RECORD_METHOD);
	assert_ptr_equal(method, out.bytes + out.length);
}

/* ---- no pool ---- */

static void test_status(void **state)
{
	harness.requests.connections = 7;
	assert_int_equal(ask(harness_make_empty(&in, HPZ_OP_STATUS, 3)), REQUEST_REPLIED);
	harness.requests.connections = 0;
	harness_expect_ok(&out, HPZ_OP_STATUS, 3);
	const struct hpz_wire_status *status = HARNESS_PAYLOAD(&out);
	assert_int_equal(out.length, sizeof(struct hpz_wire_head) + sizeof *status);
	assert_true(status->size == sizeof *status && status->pools == 0 && status->leases == 0 &&
		    status->connections == 7 && status->uptime_ms < 60000);
	assert_string_equal(status->version, HPZ_VERSION);
	assert_string_equal(status->proof, "f_setlease");
	assert_non_null(strstr(status->message, "no pool is configured"));
}

static void test_list(void **state)
{
	static const uint64_t cursors[] = {0, 1, UINT64_MAX};

	for (size_t i = 0; i < ARRAY_SIZE(cursors); i++) {
		struct hpz_wire_list list = {sizeof list, 0, cursors[i]};
		assert_int_equal(ask(harness_make(&in, HPZ_OP_LIST, 3, &list, sizeof list)), REQUEST_REPLIED);
		harness_expect_ok(&out, HPZ_OP_LIST, 3);
		const struct hpz_wire_listed *listed = HARNESS_PAYLOAD(&out);
		assert_true(listed->records == 0 && listed->cursor == 0);
		assert_int_equal(out.length, sizeof(struct hpz_wire_head) + sizeof *listed);
	}
}

static void test_lease_without_pool(void **state)
{
	struct hpz_wire_lease lease = harness_get_lease(1, -1);

	assert_int_equal(ask(harness_make(&in, HPZ_OP_LEASE, 3, &lease, sizeof lease)), REQUEST_REPLIED);
	assert_string_equal(harness_expect_error(&out, HPZ_OP_LEASE, 3, HPZ_ERR_NO_POOL), "there is no pool");
	lease.page_size = 2 << 20;
	ask(harness_make(&in, HPZ_OP_LEASE, 3, &lease, sizeof lease));
	assert_string_equal(harness_expect_error(&out, HPZ_OP_LEASE, 3, HPZ_ERR_NO_POOL),
		"there is no pool with pages of 2M");
	lease.node = 3;
	ask(harness_make(&in, HPZ_OP_LEASE, 3, &lease, sizeof lease));
	assert_string_equal(harness_expect_error(&out, HPZ_OP_LEASE, 3, HPZ_ERR_NO_POOL),
		"there is no pool on node 3 with pages of 2M");
}

static void test_unknown_lease(void **state)
{
	struct hpz_wire_release release = {.size = sizeof release, .id = 5};
	struct hpz_wire_adopt adopt = {.size = sizeof adopt, .id = 5};

	ask(harness_make(&in, HPZ_OP_RELEASE, 3, &release, sizeof release));
	harness_expect_error(&out, HPZ_OP_RELEASE, 3, HPZ_ERR_UNKNOWN_LEASE);
	ask(harness_make(&in, HPZ_OP_ADOPT, 3, &adopt, sizeof adopt));
	harness_expect_error(&out, HPZ_OP_ADOPT, 3, HPZ_ERR_UNKNOWN_LEASE);
	/* One that was given, and is over: success, as often as one likes. */
	struct journal_range range = {sizeof range, 0, 5, 6};
	lease_read_record(&harness.leases, JOURNAL_RANGE, &range, sizeof range);
	for (uint32_t flags = 0; flags <= HPZ_RELEASE_WAIT; flags++) {
		release.flags = flags;
		release.timeout_ms = -1;
		assert_int_equal(
			ask(harness_make(&in, HPZ_OP_RELEASE, 3, &release, sizeof release)), REQUEST_REPLIED);
		harness_expect_ok(&out, HPZ_OP_RELEASE, 3);
		const struct hpz_wire_released *released = HARNESS_PAYLOAD(&out);
		assert_true(released->id == 5 && released->state == HPZ_STATE_ENDED);
	}
	ask(harness_make(&in, HPZ_OP_ADOPT, 3, &adopt, sizeof adopt));
	harness_expect_error(&out, HPZ_OP_ADOPT, 3, HPZ_ERR_ENDED);
	release.id = 0;
	ask(harness_make(&in, HPZ_OP_RELEASE, 3, &release, sizeof release));
	harness_expect_error(&out, HPZ_OP_RELEASE, 3, HPZ_ERR_INVALID);
	/* A confirmation of what is not there is nobody's business. */
	make_request(HPZ_OP_ACK, &in);
	assert_int_equal(ask(&in), REQUEST_NO_REPLY);
}

static void test_wait(void **state)
{
	struct hpz_wire_wait wait = {.size = sizeof wait, .timeout_ms = -1};

	assert_int_equal(ask(harness_make(&in, HPZ_OP_WAIT, 3, &wait, sizeof wait)), REQUEST_WAITS);
	assert_int_equal(sent.count, 0);
	harness_expect_ok(wait_reply(1), HPZ_OP_WAIT, 3);
	assert_ptr_equal(sent.sessions[0], SESSION(1));
	/* 0: is it so now? It is. */
	wait.timeout_ms = 0;
	assert_int_equal(ask(harness_make(&in, HPZ_OP_WAIT, 4, &wait, sizeof wait)), REQUEST_WAITS);
	harness_expect_ok(wait_reply(2), HPZ_OP_WAIT, 4);
	/* What can never be is said at once. */
	wait.clean = 1;
	assert_int_equal(ask(harness_make(&in, HPZ_OP_WAIT, 5, &wait, sizeof wait)), REQUEST_REPLIED);
	harness_expect_error(&out, HPZ_OP_WAIT, 5, HPZ_ERR_TOO_LARGE);
	wait.clean = 0;
	memcpy(wait.pool, "q", 1);
	assert_int_equal(ask(harness_make(&in, HPZ_OP_WAIT, 6, &wait, sizeof wait)), REQUEST_REPLIED);
	assert_string_equal(
		harness_expect_error(&out, HPZ_OP_WAIT, 6, HPZ_ERR_NO_POOL), "there is no pool q");
	wait.timeout_ms = -2;
	ask(harness_make(&in, HPZ_OP_WAIT, 7, &wait, sizeof wait));
	harness_expect_error(&out, HPZ_OP_WAIT, 7, HPZ_ERR_INVALID);
}

static void test_drain(void **state)
{
	for (uint32_t flags = 0; flags <= HPZ_DRAIN_GIVE_BACK; flags++) {
		struct hpz_wire_drain drain = {
			.size = sizeof drain, .flags = flags, .timeout_ms = flags ? 0 : -1};
		assert_int_equal(
			ask(harness_make(&in, HPZ_OP_DRAIN, 3, &drain, sizeof drain)), REQUEST_WAITS);
		harness_expect_ok(wait_reply(flags + 1), HPZ_OP_DRAIN, 3);
	}
}

static void test_resize_nothing(void **state)
{
	make_request(HPZ_OP_RESIZE, &in);
	assert_int_equal(ask(&in), REQUEST_REPLIED);
	assert_string_equal(
		harness_expect_error(&out, HPZ_OP_RESIZE, 9, HPZ_ERR_NO_POOL), "there is no pool p");
}

/* The session is gone: nobody is answered any more. */
static void test_cancel(void **state)
{
	struct hpz_wire_wait wait = {.size = sizeof wait, .timeout_ms = 1};

	ask_as(SESSION(1), &root, harness_make(&in, HPZ_OP_WAIT, 3, &wait, sizeof wait));
	ask_as(SESSION(2), &root, harness_make(&in, HPZ_OP_WAIT, 4, &wait, sizeof wait));
	request_cancel_session(&harness.requests, SESSION(1));
	request_cancel_session(&harness.requests, SESSION(3));
	wait_reply(1);
	harness_run_ms(20);
	assert_int_equal(sent.count, 1);
	assert_ptr_equal(sent.sessions[0], SESSION(2));
}

/* ---- with a pool: one segment of 8 pages and four of 1 are its stock ---- */

static struct pool *pool;
static const struct config_pool config = {
	.name = "p",
	.page_size = STORE_PAGE,
	.pages = 12,
	.max_pages = 12,
	.stock = {{8 * STORE_PAGE, 1}, {STORE_PAGE, 4}},
	.stock_count = 2,
};

static int setup_pool(void **state)
{
	setup(state);
	pool = harness_add_pool(&config);
	return 0;
}

static uint64_t expect_leased(const struct message *message, uint64_t id, uint64_t pages)
{
	harness_expect_ok(message, HPZ_OP_LEASE, id);
	const struct hpz_wire_leased *leased = HARNESS_PAYLOAD(message);
	const struct hpz_wire_segment *segment = (const struct hpz_wire_segment *)(leased + 1);
	struct stat st;

	assert_int_equal(message->length,
		sizeof(struct hpz_wire_head) + sizeof *leased + leased->segments * sizeof *segment);
	assert_true(leased->segments == 1 && leased->given == pages * STORE_PAGE &&
		    leased->deliver == HPZ_DELIVER_PATH);
	assert_true(segment->bytes == leased->given && segment->descriptor == -1 && segment->node == 0 &&
		    segment->page_size == STORE_PAGE);
	assert_int_equal(strncmp(segment->path, harness.dir, strlen(harness.dir)), 0);
	assert_int_equal(stat(segment->path, &st), 0);
	assert_int_equal(st.st_mode, S_IFREG | 0600);
	assert_true((uint64_t)st.st_size >= leased->given);
	return leased->id;
}

static void test_lease(void **state)
{
	harness_put_clean(pool, 1, 8);
	harness_put_clean(pool, 2, 1);
	struct hpz_wire_lease lease = harness_get_lease(1, 0);
	lease.bytes -= 5; /* rounded up */
	memcpy(lease.label, "vm", 2);
	assert_int_equal(ask(harness_make(&in, HPZ_OP_LEASE, 3, &lease, sizeof lease)), REQUEST_REPLIED);
	uint64_t id = expect_leased(&out, 3, 1);
	const struct hpz_wire_leased *leased = HARNESS_PAYLOAD(&out);
	assert_int_equal(leased->asked, STORE_PAGE - 5);
	assert_int_equal(leased->ready, STORE_PAGE);
	assert_string_equal(lease_find(&harness.leases, id)->label, "vm");
	/* It is in the list as it is. */
	make_request(HPZ_OP_LIST, &in);
	ask(&in);
	harness_expect_ok(&out, HPZ_OP_LIST, 9);
	const struct hpz_wire_listed *listed = HARNESS_PAYLOAD(&out);
	const struct hpz_wire_lease_record *record = (const void *)(listed + 1);
	assert_true(listed->records == 2 && listed->cursor == 0 && record->id == id &&
		    record->segments == 1 && record->state == HPZ_STATE_OFFERED && record->holders == 0 &&
		    record->holes == 0);
	assert_string_equal(record->label, "vm");
	/* Larger than the pool may be: not now, not ever. */
	ask(harness_make_lease(&in, 4, 13, -1));
	assert_non_null(strstr(harness_expect_error(&out, HPZ_OP_LEASE, 4, HPZ_ERR_TOO_LARGE), "48 KiB"));
	/* 2 pages: nothing exact, the larger one's tail goes back. */
	assert_int_equal(ask(harness_make_lease(&in, 5, 2, 0)), REQUEST_REPLIED);
	expect_leased(&out, 5, 2);
	/* Nothing that large is left, and nobody wants to wait. */
	assert_int_equal(ask(harness_make_lease(&in, 6, 2, 0)), REQUEST_REPLIED);
	harness_expect_error(&out, HPZ_OP_LEASE, 6, HPZ_ERR_NO_MEMORY);
	lease = harness_get_lease(1, 0);
	lease.page_size = 2 * STORE_PAGE;
	ask(harness_make(&in, HPZ_OP_LEASE, 7, &lease, sizeof lease));
	harness_expect_error(&out, HPZ_OP_LEASE, 7, HPZ_ERR_NO_POOL);
}

static void test_lease_errors(void **state)
{
	struct hpz_wire_lease lease = harness_get_lease(1, 0);

	harness_put_clean(pool, 1, 1);
	lease.owner_pid = INT32_MAX;
	ask(harness_make(&in, HPZ_OP_LEASE, 3, &lease, sizeof lease));
	assert_non_null(strstr(
		harness_expect_error(&out, HPZ_OP_LEASE, 3, HPZ_ERR_INVALID), "no process 2147483647"));
	/* Nothing was taken for it, and nothing is left under hpz-out. */
	assert_int_equal(pool->segments[SEGMENT_CLEAN], 1);
	char path[PATH_MAX];
	temp_path(harness.dir, "hpz-out", path);
	assert_int_equal(rmdir(path), 0);
	/* Now not even a token can be made. */
	lease.owner_pid = 0;
	ask(harness_make(&in, HPZ_OP_LEASE, 3, &lease, sizeof lease));
	harness_expect_error(&out, HPZ_OP_LEASE, 3, HPZ_ERR_INTERNAL);
	assert_int_equal(pool->segments[SEGMENT_CLEAN], 1);
	assert_int_equal(mkdir(path, 0711), 0);
}

/* What was removed or spoilt behind our back costs itself, not the request. */
static void test_lease_of_what_vanished(void **state)
{
	char name[SEGMENT_NAME_MAX], path[PATH_MAX];

	harness_put_clean(pool, 4, 1);
	struct pool_segment *segment = pool_find_clean(pool, 1);
	pool_get_segment_name(segment, name);
	assert_int_equal(segment_unlink(&pool->dirs, SEGMENT_CLEAN, name), 0);
	struct pool_segment *next = CONTAINER_OF(segment->link.next, struct pool_segment, link);
	pool_get_segment_name(next, name);
	snprintf(path, sizeof path, "%s/hpz/1/node0/clean/%s", harness.dir, name);
	assert_int_equal(chmod(path, 0600), 0);
	next = CONTAINER_OF(next->link.next, struct pool_segment, link);
	pool_get_segment_name(next, name);
	snprintf(path, sizeof path, "%s/hpz/1/node0/clean/%s", harness.dir, name);
	assert_int_equal(chmod(path, 0600), 0);
	assert_int_equal(truncate(path, 0), 0);
	assert_int_equal(chmod(path, 0), 0);
	assert_int_equal(ask(harness_make_lease(&in, 3, 1, 0)), REQUEST_REPLIED);
	expect_leased(&out, 3, 1);
	assert_int_equal(pool->segments[SEGMENT_CLEAN], 0);
	/* One is on its way back; the sentry has seen what was done to the other, which is no stock any more.
	 */
	assert_int_equal(pool->segments[SEGMENT_LEASED], 2);
	assert_int_equal(pool->segments[SEGMENT_DIRTY], 1);
	assert_int_equal(harness.leases.count, 2);
}

static void test_key(void **state)
{
	struct hpz_wire_lease lease = harness_get_lease(1, 0);

	harness_put_clean(pool, 4, 1);
	memcpy(lease.key, "key", 3);
	ask(harness_make(&in, HPZ_OP_LEASE, 3, &lease, sizeof lease));
	uint64_t id = expect_leased(&out, 3, 1);
	/* The answer was lost, so it is asked again, from another connection too: the same. */
	for (unsigned session = 1; session < 4; session++) {
		assert_int_equal(ask_as(SESSION(session), &root,
					 harness_make(&in, HPZ_OP_LEASE, 4, &lease, sizeof lease)),
			REQUEST_REPLIED);
		assert_int_equal(expect_leased(&out, 4, 1), id);
	}
	assert_int_equal(harness.leases.count, 1);
	lease.bytes++;
	ask(harness_make(&in, HPZ_OP_LEASE, 5, &lease, sizeof lease));
	harness_expect_error(&out, HPZ_OP_LEASE, 5, HPZ_ERR_KEY_MISMATCH);
	/* Released, the key is free again. */
	struct hpz_wire_release release = {.size = sizeof release, .id = id};
	ask(harness_make(&in, HPZ_OP_RELEASE, 6, &release, sizeof release));
	harness_expect_ok(&out, HPZ_OP_RELEASE, 6);
	const struct hpz_wire_released *released = HARNESS_PAYLOAD(&out);
	assert_int_equal(released->state, HPZ_STATE_RETURNING);
	lease.bytes--;
	ask(harness_make(&in, HPZ_OP_LEASE, 7, &lease, sizeof lease));
	assert_int_not_equal(expect_leased(&out, 7, 1), id);
}

static void test_lease_waits(void **state)
{
	assert_int_equal(ask_as(SESSION(1), &root, harness_make_lease(&in, 3, 2, -1)), REQUEST_WAITS);
	harness_turn();
	assert_int_equal(pool->waiting, 1);
	assert_int_equal(pool->waiting_pages, 2);
	assert_int_equal(pool->plan.level, POLICY_URGENT);
	harness_put_clean(pool, 1, 1); /* not enough */
	harness_turn();
	assert_int_equal(sent.count, 0);
	harness_put_clean(pool, 1, 8);
	expect_leased(wait_reply(1), 3, 2);
	assert_ptr_equal(sent.sessions[0], SESSION(1));
	const struct hpz_wire_leased *leased = HARNESS_PAYLOAD(&sent.replies[0]);
	assert_int_equal(leased->ready, 0);
	assert_int_equal(pool->waiting, 0);
}

/* In order of arrival; one that asks for less may pass, but not with what another waits for. */
static void test_lease_order(void **state)
{
	assert_int_equal(ask_as(SESSION(1), &root, harness_make_lease(&in, 1, 8, -1)), REQUEST_WAITS);
	assert_int_equal(ask_as(SESSION(2), &root, harness_make_lease(&in, 2, 1, -1)), REQUEST_WAITS);
	assert_int_equal(ask_as(SESSION(3), &root, harness_make_lease(&in, 3, 1, -1)), REQUEST_WAITS);
	harness_turn();
	assert_int_equal(pool->waiting, 3);
	assert_int_equal(pool->waiting_pages, 8);
	harness_put_clean(pool, 1, 1);
	expect_leased(wait_reply(1), 2, 1);
	/* A newcomer does not pass those who wait for the same. */
	assert_int_equal(ask_as(SESSION(4), &root, harness_make_lease(&in, 4, 1, 0)), REQUEST_REPLIED);
	harness_expect_error(&out, HPZ_OP_LEASE, 4, HPZ_ERR_NO_MEMORY);
	harness_put_clean(pool, 1, 8);
	expect_leased(wait_reply(2), 1, 8);
	assert_int_equal(sent.count, 2);
	harness_put_clean(pool, 1, 1);
	expect_leased(wait_reply(3), 3, 1);
}

/* ---- priority ---- */

static enum request_outcome ask_priority(
	unsigned session, const struct request_peer *peer, uint64_t id, int32_t priority, int64_t timeout_ms)
{
	struct hpz_wire_lease lease = harness_get_lease(1, timeout_ms);
	lease.priority = priority;
	if (peer == &user) /* who gets nothing here: a chown is root's */
		lease.owner_uid = lease.owner_gid = -1;
	return ask_as(SESSION(session), peer, harness_make(&in, HPZ_OP_LEASE, id, &lease, sizeof lease));
}

/* The highest first, in order of arrival within one. */
static void test_priority(void **state)
{
	static const int32_t priorities[] = {0, -5, 7, 7, 1000, 0};
	static const uint64_t order[] = {5, 3, 4, 1, 6, 2};

	for (size_t i = 0; i < ARRAY_SIZE(priorities); i++)
		assert_int_equal(
			ask_priority((unsigned)i + 1, &root, i + 1, priorities[i], -1), REQUEST_WAITS);
	for (size_t i = 0; i < ARRAY_SIZE(order); i++) {
		harness_put_clean(pool, 1, 1);
		expect_leased(wait_reply(i + 1), order[i], 1);
	}
	assert_int_equal(pool->waiting, 0);
}

/* One that has just come is before those of a lower priority, not before its like. */
static void test_priority_newcomer(void **state)
{
	assert_int_equal(ask_priority(1, &root, 1, 3, -1), REQUEST_WAITS);
	harness_put_clean(pool, 1, 1);
	assert_int_equal(ask_priority(2, &root, 2, 3, 0), REQUEST_REPLIED);
	harness_expect_error(&out, HPZ_OP_LEASE, 2, HPZ_ERR_NO_MEMORY);
	assert_int_equal(ask_priority(2, &root, 3, 4, 0), REQUEST_REPLIED);
	expect_leased(&out, 3, 1);
	harness_put_clean(pool, 1, 1);
	expect_leased(wait_reply(1), 1, 1);
}

/* A low one is not passed for ever: neither by who comes and is served at once, nor by who waits. */
static void test_priority_ages(void **state)
{
	assert_int_equal(ask_priority(1, &root, 1, -1, -1), REQUEST_WAITS);
	for (unsigned i = 0; i < 8; i++) {
		harness_put_clean(pool, 1, 1);
		assert_int_equal(ask_priority(2, &root, 2, 9, 0), REQUEST_REPLIED);
		expect_leased(&out, 2, 1);
	}
	for (unsigned i = 0; i < 8; i++) {
		assert_int_equal(ask_priority(2, &root, 3, 9, -1), REQUEST_WAITS);
		harness_put_clean(pool, 1, 1);
		expect_leased(wait_reply(i + 1), 3, 1);
	}
	assert_int_equal(ask_priority(3, &root, 4, 1000, -1), REQUEST_WAITS);
	harness_put_clean(pool, 1, 1);
	assert_int_equal(ask_priority(2, &root, 5, 1000, 0), REQUEST_REPLIED);
	harness_expect_error(&out, HPZ_OP_LEASE, 5, HPZ_ERR_NO_MEMORY);
	expect_leased(wait_reply(9), 1, 1);
	harness_put_clean(pool, 1, 1);
	expect_leased(wait_reply(10), 4, 1);
}

static void test_priority_allowed(void **state)
{
	struct config_access *section = &harness.config.access[0];

	*section = (struct config_access){.name = "a",
		.allow = CONFIG_ALLOW_LEASE,
		.users = {.is_all = true},
		.quota_bytes = CONFIG_NO_LIMIT,
		.quota_leases = CONFIG_NO_LIMIT,
		.max_connections = CONFIG_NO_LIMIT,
		.max_requests = CONFIG_NO_LIMIT};
	harness.config.access_count = 1;
	assert_int_equal(ask_priority(1, &user, 1, 1, -1), REQUEST_REPLIED);
	assert_non_null(
		strstr(harness_expect_error(&out, HPZ_OP_LEASE, 1, HPZ_ERR_DENIED), "at most 0, not 1"));
	section->max_priority = 5;
	assert_int_equal(ask_priority(1, &user, 2, 6, -1), REQUEST_REPLIED);
	harness_expect_error(&out, HPZ_OP_LEASE, 2, HPZ_ERR_DENIED);
	assert_int_equal(ask_priority(1, &user, 3, 5, -1), REQUEST_WAITS);
	assert_int_equal(ask_priority(2, &user, 4, -1000, -1), REQUEST_WAITS);
	section->max_priority = 0;
	section->allow |= CONFIG_ALLOW_ADMIN;
	assert_int_equal(ask_priority(3, &user, 5, 1000, -1), REQUEST_WAITS);
}

static void test_lease_newcomer(void **state)
{
	/* Somebody waits for one page; the one that comes is not for whoever asks next. */
	assert_int_equal(ask_as(SESSION(1), &root, harness_make_lease(&in, 1, 1, -1)), REQUEST_WAITS);
	harness_put_clean(pool, 1, 1);
	assert_int_equal(ask_as(SESSION(2), &root, harness_make_lease(&in, 2, 1, 0)), REQUEST_REPLIED);
	harness_expect_error(&out, HPZ_OP_LEASE, 2, HPZ_ERR_NO_MEMORY);
	expect_leased(wait_reply(1), 1, 1);
	assert_ptr_equal(sent.sessions[0], SESSION(1));
}

static void test_lease_timeout(void **state)
{
	assert_int_equal(ask_as(SESSION(1), &root, harness_make_lease(&in, 1, 1, 30)), REQUEST_WAITS);
	assert_int_equal(ask_as(SESSION(2), &root, harness_make_lease(&in, 2, 1, 5)), REQUEST_WAITS);
	assert_non_null(
		strstr(harness_expect_error(wait_reply(1), HPZ_OP_LEASE, 2, HPZ_ERR_TIMEOUT), "4 KiB asked"));
	harness_expect_error(wait_reply(2), HPZ_OP_LEASE, 1, HPZ_ERR_TIMEOUT);
	assert_int_equal(pool->waiting, 0);
	harness_turn();
	assert_int_not_equal(pool->plan.level, POLICY_URGENT);
}

static void test_lease_cancelled(void **state)
{
	assert_int_equal(ask_as(SESSION(1), &root, harness_make_lease(&in, 1, 1, -1)), REQUEST_WAITS);
	assert_int_equal(ask_as(SESSION(2), &root, harness_make_lease(&in, 2, 1, -1)), REQUEST_WAITS);
	request_cancel_session(&harness.requests, SESSION(1));
	assert_int_equal(pool->waiting, 1);
	harness_put_clean(pool, 1, 1);
	expect_leased(wait_reply(1), 2, 1);
	assert_ptr_equal(sent.sessions[0], SESSION(2));
}

/* ---- more than one clean segment has ---- */

static const struct request_peer knower = {
	.uid = 0, .gid = 0, .pid = 1, .pidfd = -1, .capabilities = HPZ_WIRE_CAN_ZEROED};

static enum request_outcome ask_flags(
	const struct request_peer *peer, uint16_t op, uint64_t pages, uint32_t flags, int64_t timeout_ms)
{
	struct hpz_wire_lease lease = harness_get_lease(pages, timeout_ms);
	lease.flags = flags;
	return ask_as(SESSION(1), peer, harness_make(&in, op, 3, &lease, sizeof lease));
}

/* The kernel has nothing here: pages come from clean segments of the wrong size, which are unlinked. */
static void test_lease_extended(void **state)
{
	for (size_t i = 0; i < 2; i++) {
		harness_put_clean(pool, 4 - i, 1);
		crew_set_hold(harness.crew, true);
		assert_int_equal(ask_flags(i ? &root : &knower, HPZ_OP_LEASE, 3, 0, 0), REQUEST_WAITS);
		assert_int_equal(pool->segments[SEGMENT_CLEAN], 1);
		assert_int_equal(pool->segments[SEGMENT_FILLING], 1);
		harness_release();
		expect_leased(wait_reply(i + 1), 3, 3);
		const struct hpz_wire_leased *leased = HARNESS_PAYLOAD(&sent.replies[i]);
		assert_int_equal(leased->ready, STORE_PAGE);
		/* Somebody older could not read it. */
		assert_int_equal(leased->zeroed, i ? 0 : 2 * STORE_PAGE);
		assert_int_equal(pool->segments[SEGMENT_FILLING], 0);
	}
}

static bool is_nothing_filling(void *unused)
{
	return pool->segments[SEGMENT_FILLING] == 0;
}

/* Whoever asked is gone, or the pool is drained, while its memory is being zeroed. */
static void test_extended_for_nobody(void **state)
{
	struct hpz_wire_drain drain = {.size = sizeof drain, .timeout_ms = -1};

	harness_put_clean(pool, 4, 1);
	assert_int_equal(ask_flags(&root, HPZ_OP_LEASE, 3, 0, 0), REQUEST_WAITS);
	request_cancel_session(&harness.requests, SESSION(1));
	assert_int_equal(pool->segments[SEGMENT_FILLING], 1);
	harness_release();
	harness_run_until(is_nothing_filling, NULL);
	assert_int_equal(harness.leases.count, 0);
	harness_put_clean(pool, 3, 1);
	crew_set_hold(harness.crew, true);
	assert_int_equal(ask_flags(&root, HPZ_OP_LEASE, 4, 0, 0), REQUEST_WAITS);
	assert_int_equal(ask_as(SESSION(2), &root, harness_make(&in, HPZ_OP_DRAIN, 4, &drain, sizeof drain)),
		REQUEST_WAITS);
	harness_release();
	harness_expect_error(wait_reply(1), HPZ_OP_LEASE, 3, HPZ_ERR_DRAINED);
	harness_expect_ok(wait_reply(2), HPZ_OP_DRAIN, 4);
	assert_true(is_nothing_filling(NULL) && pool->segments[SEGMENT_CLEAN] == 0);
}

static enum request_outcome ask_resize(
	uint64_t id, uint32_t kind, uint32_t flags, uint64_t pages, uint64_t bytes, int64_t timeout_ms)
{
	const struct hpz_wire_resize wire = {.size = sizeof wire,
		.kind = kind,
		.flags = flags,
		.pages = pages,
		.bytes = bytes,
		.timeout_ms = timeout_ms,
		.pool = "p"};

	return ask(harness_make(&in, HPZ_OP_RESIZE, id, &wire, sizeof wire));
}

static const struct hpz_wire_resized *expect_resized(const struct message *message, uint64_t id)
{
	harness_expect_ok(message, HPZ_OP_RESIZE, id);
	const struct hpz_wire_resized *resized = HARNESS_PAYLOAD(message);
	assert_int_equal(message->length, sizeof(struct hpz_wire_head) + sizeof *resized);
	assert_true(resized->page_size == STORE_PAGE && resized->configured == 12);
	return resized;
}

static void test_resize(void **state)
{
	harness_put_clean(pool, 4, 1);
	harness_put_clean(pool, 1, 8);
	/* Said after the look that has begun it: what was clean and wanted no more is gone. */
	assert_int_equal(ask_resize(3, HPZ_RESIZE_SHRINK, 0, 4, 0, 0), REQUEST_WAITS);
	const struct hpz_wire_resized *resized = expect_resized(wait_reply(1), 3);
	assert_true(resized->before == 12 && resized->target == 8 && resized->total == 8);
	assert_true(resized->done == 1 && resized->grow + resized->shrink + resized->give_back == 0);
	assert_int_equal(pool->pages[SEGMENT_CLEAN], 8);
	/* In bytes, and never above max_pages. */
	assert_int_equal(ask_resize(4, HPZ_RESIZE_GROW, 0, 0, 5 * STORE_PAGE, 0), REQUEST_REPLIED);
	assert_non_null(strstr(harness_expect_error(&out, HPZ_OP_RESIZE, 4, HPZ_ERR_TOO_LARGE), "max_pages"));
	assert_int_equal(ask_resize(5, HPZ_RESIZE_GROW, 0, 0, STORE_PAGE + 1, 0), REQUEST_REPLIED);
	harness_expect_error(&out, HPZ_OP_RESIZE, 5, HPZ_ERR_INVALID);
	assert_int_equal(ask_resize(6, HPZ_RESIZE_SHRINK, 0, 9, 0, 0), REQUEST_REPLIED);
	harness_expect_error(&out, HPZ_OP_RESIZE, 6, HPZ_ERR_INVALID);
	assert_int_equal(pool->target, 8);
	assert_int_equal(ask_resize(7, HPZ_RESIZE_GROW, 0, 0, 2 * STORE_PAGE, 0), REQUEST_WAITS);
	resized = expect_resized(wait_reply(2), 7);
	assert_true(
		resized->before == 8 && resized->target == 10 && resized->done == 0 && resized->grow == 2);
	/* The kernel has nothing: it is waited for, or not so long. */
	assert_int_equal(ask_resize(8, HPZ_RESIZE_TO, HPZ_RESIZE_WAIT, 10, 0, 1), REQUEST_WAITS);
	assert_non_null(
		strstr(harness_expect_error(wait_reply(3), HPZ_OP_RESIZE, 8, HPZ_ERR_TIMEOUT), "2 pages"));
	assert_int_equal(ask_resize(9, HPZ_RESIZE_TO, HPZ_RESIZE_WAIT, 10, 0, -1), REQUEST_WAITS);
	harness_put_clean(pool, 2, 1);
	resized = expect_resized(wait_reply(4), 9);
	assert_true(resized->done == 1 && resized->total == 10 && resized->target == 10);
}

/* Below what is leased: what is clean goes at once, the rest is remembered, whoever asked. */
static void test_resize_below_leased(void **state)
{
	harness_put_clean(pool, 4, 1);
	harness_put_clean(pool, 1, 8);
	harness_release();
	assert_int_equal(ask(harness_make_lease(&in, 3, 8, 0)), REQUEST_REPLIED);
	expect_leased(&out, 3, 8);
	assert_int_equal(ask_resize(4, HPZ_RESIZE_TO, 0, 2, 0, 0), REQUEST_WAITS);
	const struct hpz_wire_resized *resized = expect_resized(wait_reply(1), 4);
	assert_true(
		resized->target == 2 && resized->done == 0 && resized->shrink == 6 && resized->total == 8);
	assert_int_equal(ask_resize(5, HPZ_RESIZE_TO, HPZ_RESIZE_WAIT, 2, 0, -1), REQUEST_WAITS);
	harness_run_ms(20);
	assert_int_equal(sent.count, 1);
	request_cancel_session(&harness.requests, SESSION(1));
	assert_int_equal(pool->target, 2);
}

static void test_resize_drained(void **state)
{
	assert_int_equal(ask_resize(2, HPZ_RESIZE_TO, HPZ_RESIZE_WAIT, 11, 0, -1), REQUEST_WAITS);
	pool->is_draining = true;
	assert_int_equal(ask_resize(3, HPZ_RESIZE_TO, 0, 2, 0, 0), REQUEST_REPLIED);
	harness_expect_error(&out, HPZ_OP_RESIZE, 3, HPZ_ERR_DRAINED);
	harness_expect_error(wait_reply(1), HPZ_OP_RESIZE, 2, HPZ_ERR_DRAINED);
}

static void test_lease_in_several(void **state)
{
	harness_put_clean(pool, 4, 1);
	harness_put_clean(pool, 1, 8);
	assert_int_equal(ask_flags(&knower, HPZ_OP_LEASE, 10, HPZ_LEASE_SEGMENTS, 0), REQUEST_REPLIED);
	harness_expect_ok(&out, HPZ_OP_LEASE, 3);
	const struct hpz_wire_leased *leased = HARNESS_PAYLOAD(&out);
	const struct hpz_wire_segment *segments = (const struct hpz_wire_segment *)(leased + 1);
	assert_true(leased->segments == 3 && leased->given == 10 * STORE_PAGE &&
		    leased->ready == leased->given && leased->zeroed == 0);
	assert_true(segments[0].bytes == 8 * STORE_PAGE && segments[1].bytes == STORE_PAGE &&
		    segments[2].bytes == STORE_PAGE);
	for (size_t i = 0; i < 3; i++)
		assert_int_equal(access(segments[i].path, F_OK), 0);
	assert_int_equal(pool->segments[SEGMENT_CLEAN], 2);
	assert_int_equal(lease_find(&harness.leases, leased->id)->segments_out, 3);
}

/* ---- many at once ---- */

static enum request_outcome ask_many(uint64_t pages, uint32_t count, int64_t timeout_ms)
{
	struct hpz_wire_lease lease = harness_get_lease(pages, timeout_ms);
	lease.count = count;
	return ask_as(SESSION(1), &knower, harness_make(&in, HPZ_OP_LEASE, 3, &lease, sizeof lease));
}

/* Ids follow one another, each has a file of its own; the first id. */
static uint64_t expect_bulk(const struct message *message, uint64_t pages, uint32_t count, uint64_t ready)
{
	const unsigned char *at = HARNESS_PAYLOAD(message);
	uint64_t first = 0, sum_ready = 0, sum_zeroed = 0;
	struct stat st;

	harness_expect_ok(message, HPZ_OP_LEASE, 3);
	for (uint32_t i = 0; i < count; i++) {
		const struct hpz_wire_leased *leased = (const void *)at;
		const struct hpz_wire_segment *segment = (const void *)(leased + 1);
		first = i ? first : leased->id;
		assert_true(leased->id == first + i && leased->segments == 1 &&
			    leased->given == pages * STORE_PAGE && segment->bytes == leased->given);
		assert_int_equal(stat(segment->path, &st), 0);
		assert_int_equal(lease_find(&harness.leases, leased->id)->segments[0]->index, 0);
		sum_ready += leased->ready;
		sum_zeroed += leased->zeroed;
		at = (const unsigned char *)(segment + 1);
	}
	assert_ptr_equal(at, message->bytes + message->length);
	assert_int_equal(sum_ready, ready * STORE_PAGE);
	assert_int_equal(sum_zeroed, (count * pages - ready) * STORE_PAGE);
	return first;
}

static void expect_states(uint64_t first, const enum hpz_lease_state *states, size_t count)
{
	for (size_t i = 0; i < count; i++)
		assert_int_equal(lease_find(&harness.leases, first + i)->state, states[i]);
}

static void test_bulk(void **state)
{
	struct hpz_wire_ack ack = {.size = sizeof ack, .count = 2};

	harness_put_clean(pool, 3, 1);
	harness_put_clean(pool, 1, 8);
	assert_int_equal(ask_many(1, 3, 0), REQUEST_REPLIED);
	ack.id = expect_bulk(&out, 1, 3, 3);
	assert_int_equal(harness.requests.reply.lease, ack.id);
	/* Confirmed are those that are; the others end with their connection. */
	assert_int_equal(ask(harness_make(&in, HPZ_OP_ACK, 4, &ack, sizeof ack)), REQUEST_NO_REPLY);
	request_cancel_session(&harness.requests, SESSION(1));
	expect_states(
		ack.id, (enum hpz_lease_state[]){HPZ_STATE_LEASED, HPZ_STATE_LEASED, HPZ_STATE_RETURNING}, 3);
	assert_int_equal(pool->segments[SEGMENT_CLEAN], 1);
}

/* All or none: what is missing is zeroed, or nothing is taken at all. */
static void test_bulk_is_whole(void **state)
{
	harness_put_clean(pool, 1, 1);
	harness_put_clean(pool, 1, 3);
	harness_put_clean(pool, 1, 8);
	crew_set_hold(harness.crew, true);
	assert_int_equal(ask_many(3, 3, 0), REQUEST_REPLIED);
	harness_expect_error(&out, HPZ_OP_LEASE, 3, HPZ_ERR_NO_MEMORY);
	assert_int_equal(pool->segments[SEGMENT_CLEAN], 3);
	assert_int_equal(harness.leases.count, 0);
	harness_put_clean(pool, 3, 1);
	assert_int_equal(ask_many(3, 3, 0), REQUEST_WAITS);
	harness_release();
	expect_bulk(wait_reply(1), 3, 3, 6);
	assert_int_equal(ask_many(5, 3, 0), REQUEST_REPLIED);
	harness_expect_error(&out, HPZ_OP_LEASE, 3, HPZ_ERR_TOO_LARGE);
}

/* One waits for all its memory, in the queue like any other. */
static void test_bulk_waits(void **state)
{
	assert_int_equal(ask_many(1, 3, -1), REQUEST_WAITS);
	harness_put_clean(pool, 2, 1);
	harness_turn();
	assert_int_equal(sent.count, 0);
	assert_int_equal(ask_as(SESSION(2), &root, harness_make_lease(&in, 4, 1, 0)), REQUEST_REPLIED);
	harness_expect_error(&out, HPZ_OP_LEASE, 4, HPZ_ERR_NO_MEMORY);
	harness_put_clean(pool, 1, 1);
	harness_run_until(has_sent, &(size_t){1});
	harness_expect_ok(&sent.replies[0], HPZ_OP_LEASE, 3);
	assert_int_equal(harness.leases.count, 3);
}

/* The last of them vanished from the disk: none is handed out. */
static void test_bulk_of_what_vanished(void **state)
{
	harness_put_clean(pool, 3, 1);
	struct pool_segment *segments[3];
	size_t count = 0;
	POOL_FOR_EACH (pos, pool) {
		struct pool_class *class = CONTAINER_OF(pos, struct pool_class, link);
		LIST_FOR_EACH (at, &class->segments[SEGMENT_CLEAN])
			segments[count++] = CONTAINER_OF(at, struct pool_segment, link);
	}
	char name[SEGMENT_NAME_MAX];
	assert_int_equal(count, 3);
	pool_get_segment_name(segments[2], name);
	assert_int_equal(segment_unlink(&pool->dirs, SEGMENT_CLEAN, name), 0);
	assert_int_equal(ask_many(1, 3, 0), REQUEST_REPLIED);
	harness_expect_error(&out, HPZ_OP_LEASE, 3, HPZ_ERR_NO_MEMORY);
	LIST_FOR_EACH (pos, &harness.leases.leases)
		assert_int_equal(LEASE_OF(pos)->state, HPZ_STATE_RETURNING);
	assert_int_equal(harness.leases.count, 2);
}

static void test_bulk_quota(void **state)
{
	struct hpz_wire_lease lease = harness_get_lease(1, 0);
	struct config_access *section = &harness.config.access[0];

	*section = (struct config_access){.name = "a",
		.allow = CONFIG_ALLOW_LEASE,
		.users = {.is_all = true},
		.quota_bytes = 3 * STORE_PAGE,
		.quota_leases = 2,
		.max_connections = CONFIG_NO_LIMIT,
		.max_requests = CONFIG_NO_LIMIT};
	harness.config.access_count = 1;
	harness_put_clean(pool, 4, 1);
	lease.owner_uid = lease.owner_gid = -1;
	lease.count = 3;
	ask_as(SESSION(1), &user, harness_make(&in, HPZ_OP_LEASE, 3, &lease, sizeof lease));
	assert_non_null(strstr(harness_expect_error(&out, HPZ_OP_LEASE, 3, HPZ_ERR_QUOTA), "quota_leases"));
	section->quota_leases = 4;
	lease.count = 4;
	ask_as(SESSION(1), &user, harness_make(&in, HPZ_OP_LEASE, 3, &lease, sizeof lease));
	assert_non_null(strstr(harness_expect_error(&out, HPZ_OP_LEASE, 3, HPZ_ERR_QUOTA), "quota_bytes"));
	assert_int_equal(harness.leases.count, 0);
}

static void expect_plan(uint64_t pages, uint32_t flags, int64_t timeout_ms, uint32_t kind, uint64_t ready)
{
	assert_int_equal(ask_flags(&root, HPZ_OP_PLAN, pages, flags, timeout_ms), REQUEST_REPLIED);
	harness_expect_ok(&out, HPZ_OP_PLAN, 3);
	const struct hpz_wire_planned *planned = HARNESS_PAYLOAD(&out);
	bool is_given = kind < HPZ_PLAN_WAIT;
	assert_int_equal(planned->size, sizeof *planned);
	assert_int_equal(planned->kind, kind);
	assert_int_equal(planned->asked, pages * STORE_PAGE);
	assert_int_equal(planned->given, is_given ? pages * STORE_PAGE : 0);
	assert_int_equal(planned->ready, ready * STORE_PAGE);
	assert_int_equal(planned->ready + planned->zeroed, planned->given);
	assert_int_equal(planned->from_free + planned->from_dirty + planned->from_clean, planned->zeroed);
	assert_int_equal(planned->error, kind == HPZ_PLAN_REFUSE ? HPZ_ERR_NO_MEMORY : 0);
	assert_true(strcmp(planned->pool, "p") == 0 && planned->text[0] != '\0');
}

static void test_plan(void **state)
{
	harness_put_clean(pool, 4, 1);
	harness_put_clean(pool, 1, 6);
	expect_plan(1, 0, 0, HPZ_PLAN_EXACT, 1);
	expect_plan(5, 0, 0, HPZ_PLAN_TRIM, 5);
	expect_plan(9, 0, 0, HPZ_PLAN_EXTEND, 6);
	expect_plan(9, HPZ_LEASE_SEGMENTS, 0, HPZ_PLAN_SEVERAL, 9);
	expect_plan(11, 0, 0, HPZ_PLAN_REFUSE, 0);
	expect_plan(11, 0, 5, HPZ_PLAN_WAIT, 0);
	/* Nothing was done, and nobody waits. */
	assert_int_equal(pool->segments[SEGMENT_CLEAN], 5);
	assert_int_equal(pool->waiting, 0);
	assert_true(list_is_empty(&harness.requests.waiting));
	ask_flags(&root, HPZ_OP_PLAN, 13, 0, 0);
	harness_expect_error(&out, HPZ_OP_PLAN, 3, HPZ_ERR_TOO_LARGE);
}

/* A large one that waits is passed by small ones, but not for ever. */
static void test_passed(void **state)
{
	unsigned passed = 0;
	assert_int_equal(ask_as(SESSION(2), &root, harness_make_lease(&in, 1, 8, -1)), REQUEST_WAITS);
	for (unsigned i = 0; i < 20; i++) {
		harness_put_clean(pool, 1, 1);
		ask(harness_make_lease(&in, 3, 1, 0));
		passed += harness_get_head(&out).error == 0;
	}
	assert_int_equal(passed, 16);
	harness_expect_error(&out, HPZ_OP_LEASE, 3, HPZ_ERR_NO_MEMORY);
	/* What has come together meanwhile is the large one's. */
	harness_put_clean(pool, 4, 1);
	harness_release();
	expect_leased(wait_reply(1), 1, 8);
}

/* ---- two nodes: 12 pages on each ---- */

static struct pool *nodes[2];

static const struct host *get_two_nodes(void)
{
	static int32_t numbers[] = {0, 1};
	static uint64_t page_size = STORE_PAGE;
	static const struct host host = {.root = (char *)"/nonexistent",
		.nodes = numbers,
		.node_count = 2,
		.page_sizes = &page_size,
		.page_size_count = 1};
	return &host;
}

static int setup_nodes_of(void **state, uint64_t pages)
{
	struct config_pool of_node = config;

	harness_host = get_two_nodes();
	setup(state);
	of_node.pages = of_node.max_pages = pages;
	of_node.stock[0].count = pages / 8;
	for (int32_t node = 0; node < 2; node++) {
		of_node.node = node;
		of_node.name[0] = (char)('p' + node);
		nodes[node] = harness_add_pool(&of_node);
	}
	return 0;
}

static int setup_nodes(void **state)
{
	return setup_nodes_of(state, 12);
}

static int setup_large_nodes(void **state)
{
	return setup_nodes_of(state, 44);
}

static int teardown_nodes(void **state)
{
	teardown(state);
	harness_host = NULL;
	return 0;
}

static const struct request_peer cell_knower = {
	.uid = 0, .gid = 0, .pid = 1, .pidfd = -1, .capabilities = HPZ_WIRE_CAN_ZEROED | HPZ_WIRE_CAN_CELLS};

struct piece {
	uint64_t pages;
	int32_t node;
};

static struct hpz_wire_lease make_cells(const struct piece *pieces, size_t count, int64_t timeout_ms)
{
	struct hpz_wire_lease lease = harness_get_lease(0, timeout_ms);
	for (size_t i = 0; i < count; i++) {
		lease.cell[i] = (struct hpz_wire_cell){pieces[i].pages * STORE_PAGE, pieces[i].node, 0};
		lease.bytes += lease.cell[i].bytes;
	}
	lease.cells = (uint32_t)count;
	return lease;
}

#define CELLS(timeout, ...)                                                                                  \
	make_cells((const struct piece[]){__VA_ARGS__},                                                      \
		sizeof((const struct piece[]){__VA_ARGS__}) / sizeof(struct piece), timeout)

static enum request_outcome ask_wire(unsigned session, uint16_t op, uint64_t id, struct hpz_wire_lease wire)
{
	return ask_as(SESSION(session), &cell_knower, harness_make(&in, op, id, &wire, sizeof wire));
}

/* Segments of these pages, each on its node, and with cells each of its own. */
static uint64_t expect_pieces(
	const struct message *message, uint64_t id, bool are_cells, const struct piece *pieces, size_t count)
{
	harness_expect_ok(message, HPZ_OP_LEASE, id);
	const struct hpz_wire_leased *leased = HARNESS_PAYLOAD(message);
	const struct hpz_wire_segment *segments = (const struct hpz_wire_segment *)(leased + 1);
	assert_int_equal(leased->segments, count);
	for (size_t i = 0; i < count; i++) {
		assert_int_equal(segments[i].bytes, pieces[i].pages * STORE_PAGE);
		assert_int_equal(segments[i].node, pieces[i].node);
		assert_int_equal(segments[i].cell, are_cells ? i : 0);
		assert_int_equal(access(segments[i].path, F_OK), 0);
	}
	return leased->id;
}
#define EXPECT_PIECES(message, id, are_cells, ...)                                                           \
	expect_pieces(message, id, are_cells, (const struct piece[]){__VA_ARGS__},                           \
		sizeof((const struct piece[]){__VA_ARGS__}) / sizeof(struct piece))

static void test_cells(void **state)
{
	harness_put_clean(nodes[0], 2, 1);
	harness_put_clean(nodes[1], 1, 8);
	assert_int_equal(ask_wire(1, HPZ_OP_LEASE, 3, CELLS(0, {1, 0}, {6, 1}, {1, 0})), REQUEST_REPLIED);
	uint64_t id = EXPECT_PIECES(&out, 3, true, {1, 0}, {6, 1}, {1, 0});
	const struct hpz_wire_leased *leased = HARNESS_PAYLOAD(&out);
	assert_true(leased->given == 8 * STORE_PAGE && leased->ready == leased->given && !leased->zeroed);
	assert_true(nodes[0]->segments[SEGMENT_CLEAN] == 0 && nodes[1]->segments[SEGMENT_CLEAN] == 0);
	/* The list says which is which, to whoever can know. */
	for (int knows = 0; knows < 2; knows++) {
		make_request(HPZ_OP_LIST, &in);
		ask_as(SESSION(1), knows ? &cell_knower : &root, &in);
		const struct hpz_wire_listed *listed = HARNESS_PAYLOAD(&out);
		const struct hpz_wire_lease_record *record = (const void *)(listed + 1);
		const struct hpz_wire_segment *segments = (const void *)(record + 1);
		assert_true(record->id == id && record->segments == 3);
		assert_int_equal(segments[1].cell, knows ? 1 : 0);
		assert_int_equal(segments[2].cell, knows ? 2 : 0);
	}
}

static bool are_tails_gone(void *unused)
{
	return nodes[0]->pages[SEGMENT_LEASED] == 8 && nodes[1]->pages[SEGMENT_LEASED] == 5;
}

/* The tails of all cells go back, not only that of the last. */
static void test_cells_trimmed(void **state)
{
	harness_put_clean(nodes[0], 2, 8);
	harness_put_clean(nodes[1], 1, 8);
	assert_int_equal(ask_wire(1, HPZ_OP_LEASE, 3, CELLS(0, {6, 0}, {5, 1}, {2, 0})), REQUEST_REPLIED);
	EXPECT_PIECES(&out, 3, true, {6, 0}, {5, 1}, {2, 0});
	assert_true(nodes[0]->pages[SEGMENT_LEASED] == 16 && nodes[1]->pages[SEGMENT_LEASED] == 8);
	harness_release();
	harness_run_until(are_tails_gone, NULL);
}

/* Cells of one node are planned on what the earlier ones leave. */
static void test_cells_all_or_none(void **state)
{
	harness_put_clean(nodes[0], 1, 4);
	harness_put_clean(nodes[1], 4, 1);
	assert_int_equal(ask_wire(1, HPZ_OP_LEASE, 3, CELLS(0, {4, 0}, {4, 0})), REQUEST_REPLIED);
	const char *text = harness_expect_error(&out, HPZ_OP_LEASE, 3, HPZ_ERR_NO_MEMORY);
	assert_non_null(
		strstr(text, "cell 1 of 2: pool p, node 0, pages of 4K: 16 KiB asked; 16 KiB is clean"));
	assert_int_equal(ask_wire(1, HPZ_OP_LEASE, 4, CELLS(0, {1, 1}, {5, 0}, {1, 1})), REQUEST_REPLIED);
	text = harness_expect_error(&out, HPZ_OP_LEASE, 4, HPZ_ERR_NO_MEMORY);
	assert_non_null(strstr(text, "cell 1 of 3: pool p, node 0"));
	assert_non_null(strstr(text, "0 requests wait"));
	/* Nothing was taken or is kept. */
	assert_true(nodes[0]->segments[SEGMENT_CLEAN] == 1 && nodes[1]->segments[SEGMENT_CLEAN] == 4);
	assert_int_equal(harness.leases.count, 0);
	EXPECT_PIECES((ask_wire(1, HPZ_OP_LEASE, 5, CELLS(0, {1, 1}, {4, 0}, {1, 1})), &out), 5, true, {1, 1},
		{4, 0}, {1, 1});
	/* Larger than its node's pool, alone or together; a node without a pool. */
	ask_wire(1, HPZ_OP_LEASE, 6, CELLS(-1, {7, 1}, {6, 1}));
	text = harness_expect_error(&out, HPZ_OP_LEASE, 6, HPZ_ERR_TOO_LARGE);
	assert_non_null(strstr(text, "52 KiB asked"));
	assert_non_null(strstr(text, "node 1"));
	ask_wire(1, HPZ_OP_LEASE, 7, CELLS(-1, {1, 1}, {1, 2}));
	text = harness_expect_error(&out, HPZ_OP_LEASE, 7, HPZ_ERR_NO_POOL);
	assert_non_null(strstr(text, "there is no pool on node 2; there is one on node 0, 1"));
}

/* Two that want the same of two nodes, in opposite order: one after the other gets all. */
static void test_cells_wait(void **state)
{
	assert_int_equal(ask_wire(1, HPZ_OP_LEASE, 1, CELLS(-1, {8, 0}, {8, 1})), REQUEST_WAITS);
	assert_int_equal(ask_wire(2, HPZ_OP_LEASE, 2, CELLS(-1, {8, 1}, {8, 0})), REQUEST_WAITS);
	assert_int_equal(ask_as(SESSION(3), &root, harness_make_lease(&in, 3, 8, -1)), REQUEST_WAITS);
	assert_true(nodes[0]->waiting + nodes[1]->waiting == 5);
	harness_put_clean(nodes[0], 1, 8);
	harness_run_ms(20);
	/* The first lacks its other node: nobody takes this from it, and it does not take it alone. */
	assert_int_equal(sent.count, 0);
	assert_int_equal(nodes[0]->segments[SEGMENT_CLEAN], 1);
	harness_put_clean(nodes[1], 1, 8);
	EXPECT_PIECES(wait_reply(1), 1, true, {8, 0}, {8, 1});
	harness_put_clean(nodes[1], 1, 8);
	harness_run_ms(20);
	assert_int_equal(sent.count, 1);
	harness_put_clean(nodes[0], 1, 8);
	EXPECT_PIECES(wait_reply(2), 2, true, {8, 1}, {8, 0});
	assert_ptr_equal(sent.sessions[1], SESSION(2));
	/* Who would take any node takes the one that comes. */
	harness_put_clean(nodes[1], 1, 8);
	EXPECT_PIECES(wait_reply(3), 3, false, {8, 1});
	assert_true(nodes[0]->waiting == 0 && nodes[1]->waiting == 0);
}

static void test_cells_cancelled(void **state)
{
	assert_int_equal(ask_wire(1, HPZ_OP_LEASE, 1, CELLS(-1, {8, 0}, {8, 1})), REQUEST_WAITS);
	assert_int_equal(ask_wire(2, HPZ_OP_LEASE, 2, CELLS(30, {8, 1}, {8, 0})), REQUEST_WAITS);
	request_cancel_session(&harness.requests, SESSION(1));
	harness_put_clean(nodes[0], 1, 8);
	const char *text = harness_expect_error(wait_reply(1), HPZ_OP_LEASE, 2, HPZ_ERR_TIMEOUT);
	assert_non_null(strstr(text, "cell 0 of 2: pool q, node 1"));
	assert_int_equal(nodes[0]->segments[SEGMENT_CLEAN], 1);
	assert_true(nodes[0]->waiting == 0 && nodes[1]->waiting == 0);
}

/* One cell is zeroed for the request; until that is done the other is kept for it, and for nobody else. */
static void test_cells_extended(void **state)
{
	harness_put_clean(nodes[0], 1, 1);
	harness_put_clean(nodes[1], 4, 1);
	crew_set_hold(harness.crew, true);
	assert_int_equal(ask_wire(1, HPZ_OP_LEASE, 3, CELLS(0, {1, 0}, {3, 1})), REQUEST_WAITS);
	struct hpz_wire_lease one = harness_get_lease(1, 0);
	one.node = 0;
	ask_wire(2, HPZ_OP_LEASE, 4, one);
	harness_expect_error(&out, HPZ_OP_LEASE, 4, HPZ_ERR_NO_MEMORY);
	harness_release();
	EXPECT_PIECES(wait_reply(1), 3, true, {1, 0}, {3, 1});
	const struct hpz_wire_leased *leased = HARNESS_PAYLOAD(&sent.replies[0]);
	assert_true(leased->ready == 2 * STORE_PAGE && leased->zeroed == 2 * STORE_PAGE);
}

/* The key of a set gives the same set, and is no other's. */
static void test_cells_key(void **state)
{
	struct hpz_wire_lease wire = CELLS(0, {1, 0}, {1, 1}), other = CELLS(0, {1, 1}, {1, 0});

	harness_put_clean(nodes[0], 2, 1);
	harness_put_clean(nodes[1], 2, 1);
	memcpy(wire.key, "key", 3);
	memcpy(other.key, "key", 3);
	ask_wire(1, HPZ_OP_LEASE, 3, wire);
	uint64_t id = EXPECT_PIECES(&out, 3, true, {1, 0}, {1, 1});
	ask_wire(2, HPZ_OP_LEASE, 4, wire);
	assert_int_equal(EXPECT_PIECES(&out, 4, true, {1, 0}, {1, 1}), id);
	ask_wire(2, HPZ_OP_LEASE, 5, other);
	harness_expect_error(&out, HPZ_OP_LEASE, 5, HPZ_ERR_KEY_MISMATCH);
}

static void test_preferred(void **state)
{
	struct hpz_wire_lease wire = harness_get_lease(2, 0);

	wire.node = 1;
	harness_put_clean(nodes[0], 2, 2);
	ask_wire(1, HPZ_OP_LEASE, 3, wire);
	const char *text = harness_expect_error(&out, HPZ_OP_LEASE, 3, HPZ_ERR_NO_MEMORY);
	assert_non_null(strstr(text, "pool q, node 1"));
	assert_non_null(strstr(text, "node 0 could serve it (--node-policy preferred)"));
	wire.policy = HPZ_NODES_PREFERRED;
	ask_wire(1, HPZ_OP_LEASE, 4, wire);
	EXPECT_PIECES(&out, 4, false, {2, 0});
	/* Also where the preferred one has to be trimmed. */
	harness_put_clean(nodes[1], 1, 8);
	ask_wire(1, HPZ_OP_LEASE, 5, wire);
	EXPECT_PIECES(&out, 5, false, {2, 1});
	ask_wire(1, HPZ_OP_LEASE, 6, wire);
	EXPECT_PIECES(&out, 6, false, {2, 0});
	ask_wire(1, HPZ_OP_LEASE, 7, wire);
	text = harness_expect_error(&out, HPZ_OP_LEASE, 7, HPZ_ERR_NO_MEMORY);
	assert_non_null(strstr(text, "pool q, node 1"));
	/* A node without a pool is no reason to refuse. */
	wire.node = 5;
	wire.timeout_ms = -1;
	assert_int_equal(ask_wire(1, HPZ_OP_LEASE, 8, wire), REQUEST_WAITS);
	harness_put_clean(nodes[1], 1, 2);
	EXPECT_PIECES(wait_reply(1), 8, false, {2, 1});
}

static void test_interleave(void **state)
{
	struct hpz_wire_lease wire = harness_get_lease(4, 0);

	wire.policy = HPZ_NODES_INTERLEAVE;
	wire.node_mask = 3;
	harness_put_clean(nodes[0], 4, 1);
	harness_put_clean(nodes[1], 4, 1);
	ask_wire(1, HPZ_OP_PLAN, 2, wire);
	harness_expect_ok(&out, HPZ_OP_PLAN, 2);
	const struct hpz_wire_planned *planned = HARNESS_PAYLOAD(&out);
	assert_true(planned->kind == HPZ_PLAN_SEVERAL && planned->segments == 4 && planned->node == -1 &&
		    planned->ready == 4 * STORE_PAGE && planned->given == planned->ready);
	ask_wire(1, HPZ_OP_LEASE, 3, wire);
	EXPECT_PIECES(&out, 3, false, {1, 0}, {1, 1}, {1, 0}, {1, 1});
	/* As equal as there is enough. */
	harness_put_clean(nodes[1], 1, 1);
	wire.bytes = 5 * STORE_PAGE;
	ask_wire(1, HPZ_OP_LEASE, 4, wire);
	EXPECT_PIECES(&out, 4, false, {1, 0}, {1, 1}, {1, 0}, {1, 1}, {1, 1});
	harness_put_clean(nodes[1], 1, 4);
	wire.bytes = 3 * STORE_PAGE;
	ask_wire(1, HPZ_OP_LEASE, 5, wire);
	EXPECT_PIECES(&out, 5, false, {3, 1});
	ask_wire(1, HPZ_OP_LEASE, 6, wire);
	const char *text = harness_expect_error(&out, HPZ_OP_LEASE, 6, HPZ_ERR_NO_MEMORY);
	assert_non_null(strstr(text, "pool p, node 0"));
	wire.node_mask = 5;
	ask_wire(1, HPZ_OP_LEASE, 7, wire);
	assert_non_null(strstr(harness_expect_error(&out, HPZ_OP_LEASE, 7, HPZ_ERR_NO_POOL), "node 2"));
	wire.node_mask = 3;
	wire.bytes = 25 * STORE_PAGE;
	ask_wire(1, HPZ_OP_LEASE, 8, wire);
	harness_expect_error(&out, HPZ_OP_LEASE, 8, HPZ_ERR_TOO_LARGE);
}

/* ---- another size ---- */

static uint64_t make_confirmed(uint64_t pages)
{
	struct hpz_wire_ack ack = {.size = sizeof ack};

	assert_int_equal(ask(harness_make_lease(&in, 3, pages, 0)), REQUEST_REPLIED);
	ack.id = expect_leased(&out, 3, pages);
	assert_int_equal(ask(harness_make(&in, HPZ_OP_ACK, 4, &ack, sizeof ack)), REQUEST_NO_REPLY);
	return ack.id;
}

static enum request_outcome change_to(
	const struct request_peer *peer, uint64_t id, uint64_t pages, uint32_t known, int64_t timeout_ms)
{
	struct hpz_wire_change change = {.size = sizeof change,
		.id = id,
		.bytes = pages * STORE_PAGE,
		.known = known,
		.timeout_ms = timeout_ms};
	return ask_as(SESSION(1), peer, harness_make(&in, HPZ_OP_CHANGE, 5, &change, sizeof change));
}

static const struct hpz_wire_changed *expect_changed(
	const struct message *message, uint64_t id, uint64_t pages, uint32_t total, uint32_t segments)
{
	const struct hpz_wire_changed *changed = HARNESS_PAYLOAD(message);
	const struct hpz_wire_segment *segment = (const void *)(changed + 1);
	struct stat st;

	harness_expect_ok(message, HPZ_OP_CHANGE, 5);
	assert_true(changed->id == id && changed->given == pages * STORE_PAGE && changed->total == total &&
		    changed->segments == segments);
	assert_int_equal(
		message->length, sizeof(struct hpz_wire_head) + sizeof *changed + segments * sizeof *segment);
	for (uint32_t i = 0; i < segments; i++)
		assert_int_equal(stat(segment[i].path, &st), 0);
	return changed;
}

static void test_grow(void **state)
{
	harness_put_clean(pool, 1, 1);
	harness_put_clean(pool, 1, 8);
	uint64_t id = make_confirmed(1);
	assert_int_equal(change_to(&knower, id, 3, 1, 0), REQUEST_REPLIED);
	const struct hpz_wire_changed *changed = expect_changed(&out, id, 3, 2, 1);
	assert_true(changed->ready == 2 * STORE_PAGE && changed->zeroed == 0 && changed->returning == 0);
	/* The answer was lost: the same again; and whoever has nothing gets all of it. */
	assert_int_equal(change_to(&knower, id, 3, 1, 0), REQUEST_REPLIED);
	assert_int_equal(expect_changed(&out, id, 3, 2, 1)->ready, 0);
	assert_int_equal(change_to(&knower, id, 3, 0, 0), REQUEST_REPLIED);
	expect_changed(&out, id, 3, 2, 2);
	assert_int_equal(change_to(&knower, id, 3, 77, 0), REQUEST_REPLIED);
	expect_changed(&out, id, 3, 2, 0);
	assert_int_equal(harness.leases.count, 1);
	assert_int_equal(lease_find(&harness.leases, id)->asked, 3 * STORE_PAGE);
	/* Nothing is clean, and it does not wait: it has what it had. */
	assert_int_equal(change_to(&root, id, 9, 2, 0), REQUEST_REPLIED);
	harness_expect_error(&out, HPZ_OP_CHANGE, 5, HPZ_ERR_NO_MEMORY);
	assert_int_equal(change_to(&root, id, 3, 77, 0), REQUEST_REPLIED);
	expect_changed(&out, id, 3, 2, 0);
}

static void test_grow_waits(void **state)
{
	struct hpz_wire_release release = {.size = sizeof release};

	harness_put_clean(pool, 1, 1);
	uint64_t id = make_confirmed(1);
	assert_int_equal(change_to(&root, id, 3, 1, -1), REQUEST_WAITS);
	assert_int_equal(pool->waiting, 1);
	harness_put_clean(pool, 1, 2);
	expect_changed(wait_reply(1), id, 3, 2, 1);
	/* It gets another size while it waits for more; then it ends. */
	assert_int_equal(change_to(&root, id, 6, 2, -1), REQUEST_WAITS);
	assert_int_equal(change_to(&root, id, 2, 2, 0), REQUEST_REPLIED);
	expect_changed(&out, id, 2, 2, 0);
	harness_put_clean(pool, 1, 3);
	harness_expect_error(wait_reply(2), HPZ_OP_CHANGE, 5, HPZ_ERR_BUSY);
	assert_int_equal(change_to(&root, id, 6, 2, -1), REQUEST_WAITS);
	release.id = id;
	assert_int_equal(
		ask_as(SESSION(2), &root, harness_make(&in, HPZ_OP_RELEASE, 6, &release, sizeof release)),
		REQUEST_REPLIED);
	harness_put_clean(pool, 1, 4);
	harness_expect_error(wait_reply(3), HPZ_OP_CHANGE, 5, HPZ_ERR_ENDED);
	assert_int_equal(lease_find(&harness.leases, id)->segment_count, 2);
}

/* What is to be added vanished from the disk. */
static void test_grow_by_what_vanished(void **state)
{
	char name[SEGMENT_NAME_MAX];

	harness_put_clean(pool, 2, 1);
	uint64_t id = make_confirmed(1);
	pool_get_segment_name(pool_find_clean(pool, 1), name);
	assert_int_equal(segment_unlink(&pool->dirs, SEGMENT_CLEAN, name), 0);
	assert_int_equal(change_to(&root, id, 2, 1, 0), REQUEST_REPLIED);
	harness_expect_error(&out, HPZ_OP_CHANGE, 5, HPZ_ERR_NO_MEMORY);
	assert_int_equal(lease_find(&harness.leases, id)->segment_count, 1);
	assert_int_equal(lease_find(&harness.leases, id)->firm, 0);
}

static bool is_cut(void *id)
{
	return !lease_find(&harness.leases, *(uint64_t *)id)->segments[0]->is_busy;
}

static void test_shrink(void **state)
{
	harness_put_clean(pool, 3, 1);
	harness_put_clean(pool, 1, 8);
	uint64_t id = make_confirmed(8);
	assert_int_equal(change_to(&root, id, 9, 1, 0), REQUEST_REPLIED);
	expect_changed(&out, id, 9, 2, 1);
	assert_int_equal(change_to(&root, id, 10, 2, 0), REQUEST_REPLIED);
	expect_changed(&out, id, 10, 3, 1);
	/* Two segments and the end of the first. */
	assert_int_equal(change_to(&root, id, 3, 3, 0), REQUEST_REPLIED);
	uint64_t rest_id = expect_changed(&out, id, 3, 1, 0)->returning;
	struct lease *rest = lease_find(&harness.leases, rest_id);
	assert_true(rest && rest->state == HPZ_STATE_RETURNING && rest->segment_count == 2);
	assert_int_equal(lease_find(&harness.leases, id)->segments[0]->given, 3);
	assert_int_equal(lease_get_given(rest), 2 * STORE_PAGE);
	/* Its links would be in the way. */
	assert_int_equal(change_to(&root, id, 4, 1, 0), REQUEST_REPLIED);
	harness_expect_error(&out, HPZ_OP_CHANGE, 5, HPZ_ERR_BUSY);
	/* Only its end: nothing that returns. A tail that is being cut is left alone. */
	assert_int_equal(change_to(&root, id, 2, 1, 0), REQUEST_REPLIED);
	harness_expect_error(&out, HPZ_OP_CHANGE, 5, HPZ_ERR_BUSY);
	harness_release();
	harness_run_until(is_cut, &id);
	assert_int_equal(change_to(&root, id, 2, 1, 0), REQUEST_REPLIED);
	assert_int_equal(expect_changed(&out, id, 2, 1, 0)->returning, 0);
}

static void test_change_refused(void **state)
{
	struct config_access *section = &harness.config.access[0];

	harness_put_clean(pool, 2, 1);
	assert_int_equal(change_to(&root, 4711, 1, 0, 0), REQUEST_REPLIED);
	harness_expect_error(&out, HPZ_OP_CHANGE, 5, HPZ_ERR_UNKNOWN_LEASE);
	assert_int_equal(change_to(&root, 4711, 0, 0, 0), REQUEST_REPLIED);
	harness_expect_error(&out, HPZ_OP_CHANGE, 5, HPZ_ERR_INVALID);
	assert_int_equal(ask(harness_make_lease(&in, 3, 1, 0)), REQUEST_REPLIED);
	assert_int_equal(change_to(&root, expect_leased(&out, 3, 1), 2, 0, 0), REQUEST_REPLIED);
	harness_expect_error(&out, HPZ_OP_CHANGE, 5, HPZ_ERR_BUSY);
	uint64_t id = make_confirmed(1);
	*section =
		(struct config_access){.name = "a", .allow = CONFIG_ALLOW_LEASE, .users = {.is_all = true}};
	harness.config.access_count = 1;
	for (uint64_t pages = 1; pages < 4; pages++) {
		assert_int_equal(change_to(&user, id, pages, 0, 0), REQUEST_REPLIED);
		assert_non_null(
			strstr(harness_expect_error(&out, HPZ_OP_CHANGE, 5, HPZ_ERR_DENIED), "uid 0"));
	}
	assert_int_equal(change_to(&root, id, 14, 1, 0), REQUEST_REPLIED);
	harness_expect_error(&out, HPZ_OP_CHANGE, 5, HPZ_ERR_TOO_LARGE);
	assert_int_equal(lease_find(&harness.leases, id)->segment_count, 1);
}

static void test_adopt(void **state)
{
	struct hpz_wire_lease lease = harness_get_lease(1, 0);
	struct hpz_wire_adopt adopt = {.size = sizeof adopt};

	harness_put_clean(pool, 1, 1);
	lease.owner_pid = getpid();
	ask(harness_make(&in, HPZ_OP_LEASE, 3, &lease, sizeof lease));
	adopt.id = expect_leased(&out, 3, 1);
	assert_int_equal(lease_find(&harness.leases, adopt.id)->pid, getpid());
	adopt.owner_pid = INT32_MAX;
	ask(harness_make(&in, HPZ_OP_ADOPT, 4, &adopt, sizeof adopt));
	harness_expect_error(&out, HPZ_OP_ADOPT, 4, HPZ_ERR_INVALID);
	assert_int_equal(lease_find(&harness.leases, adopt.id)->pid, getpid());
	/* From owner to owner, several times in one turn of the loop, and back to none. */
	const int32_t owners[] = {getppid(), 1, getpid(), getpid(), getppid(), 0, 0, getpid(), 0};
	for (size_t i = 0; i < ARRAY_SIZE(owners); i++) {
		adopt.owner_pid = owners[i];
		ask(harness_make(&in, HPZ_OP_ADOPT, 5, &adopt, sizeof adopt));
		harness_expect_ok(&out, HPZ_OP_ADOPT, 5);
		assert_int_equal(lease_find(&harness.leases, adopt.id)->pid, owners[i]);
		if (i % 3 == 2)
			harness_turn();
	}
	harness_run_ms(5);
	assert_int_equal(lease_find(&harness.leases, adopt.id)->state, HPZ_STATE_OFFERED);
	struct hpz_wire_ack ack = {sizeof ack, 0, adopt.id};
	ask(harness_make(&in, HPZ_OP_ACK, 6, &ack, sizeof ack));
	assert_int_equal(lease_find(&harness.leases, adopt.id)->state, HPZ_STATE_LEASED);
}

/* The owner dies, before and after an adoption. */
static bool is_returning(void *id)
{
	return lease_find(&harness.leases, *(uint64_t *)id)->state == HPZ_STATE_RETURNING;
}

static pid_t start_sleeper(void)
{
	pid_t pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			pause();
	}
	return pid;
}

static void test_owner_dies(void **state)
{
	struct hpz_wire_lease lease = harness_get_lease(1, 0);
	struct hpz_wire_adopt adopt = {.size = sizeof adopt};
	uint64_t ids[2];

	harness_put_clean(pool, 2, 1);
	pid_t first = start_sleeper(), second = start_sleeper();
	lease.owner_pid = first;
	for (size_t i = 0; i < 2; i++) {
		ask(harness_make(&in, HPZ_OP_LEASE, 3, &lease, sizeof lease));
		ids[i] = expect_leased(&out, 3, 1);
	}
	adopt.id = ids[1];
	adopt.owner_pid = second;
	ask(harness_make(&in, HPZ_OP_ADOPT, 5, &adopt, sizeof adopt));
	harness_expect_ok(&out, HPZ_OP_ADOPT, 5);
	kill(first, SIGKILL);
	harness_run_until(is_returning, &ids[0]);
	harness_run_ms(20);
	assert_false(is_returning(&ids[1]));
	kill(second, SIGKILL);
	harness_run_until(is_returning, &ids[1]);
	waitpid(first, NULL, 0);
	waitpid(second, NULL, 0);
}

static void test_wait_with_pool(void **state)
{
	struct hpz_wire_wait wait = {.size = sizeof wait, .clean = 2 * STORE_PAGE};

	ask(harness_make(&in, HPZ_OP_WAIT, 3, &wait, sizeof wait));
	harness_expect_error(wait_reply(1), HPZ_OP_WAIT, 3, HPZ_ERR_TIMEOUT);
	wait.timeout_ms = -1;
	memcpy(wait.pool, "p", 1);
	ask(harness_make(&in, HPZ_OP_WAIT, 4, &wait, sizeof wait));
	harness_put_clean(pool, 1, 1);
	harness_run_ms(5);
	assert_int_equal(sent.count, 1);
	harness_put_clean(pool, 1, 1);
	harness_expect_ok(wait_reply(2), HPZ_OP_WAIT, 4);
	wait.clean = 13 * STORE_PAGE;
	ask(harness_make(&in, HPZ_OP_WAIT, 5, &wait, sizeof wait));
	harness_expect_error(&out, HPZ_OP_WAIT, 5, HPZ_ERR_TOO_LARGE);
	/* Idle it is not: the stock is not full. */
	wait.clean = 0;
	wait.timeout_ms = 5;
	ask(harness_make(&in, HPZ_OP_WAIT, 6, &wait, sizeof wait));
	harness_expect_error(wait_reply(3), HPZ_OP_WAIT, 6, HPZ_ERR_TIMEOUT);
	harness_put_clean(pool, 2, 1);
	harness_put_clean(pool, 1, 8);
	wait.timeout_ms = -1;
	ask(harness_make(&in, HPZ_OP_WAIT, 7, &wait, sizeof wait));
	harness_expect_ok(wait_reply(4), HPZ_OP_WAIT, 7);
}

static void test_drain_with_pool(void **state)
{
	struct hpz_wire_drain drain = {.size = sizeof drain, .timeout_ms = -1};

	harness_put_clean(pool, 3, 1);
	ask(harness_make_lease(&in, 2, 1, 0));
	uint64_t id = expect_leased(&out, 2, 1);
	ask_as(SESSION(2), &root, harness_make_lease(&in, 3, 8, -1));
	harness_turn();
	ask(harness_make(&in, HPZ_OP_DRAIN, 4, &drain, sizeof drain));
	/* Whoever waited hears it, and so does the one who drains: a lease is out. */
	harness_expect_error(wait_reply(1), HPZ_OP_LEASE, 3, HPZ_ERR_DRAINED);
	harness_expect_error(wait_reply(2), HPZ_OP_DRAIN, 4, HPZ_ERR_IN_USE);
	const struct hpz_wire_error *error = HARNESS_PAYLOAD(&sent.replies[1]);
	assert_int_equal(error->leases, 1);
	assert_int_equal(pool->segments[SEGMENT_CLEAN], 0);
	assert_int_equal(pool->segments[SEGMENT_LEASED], 1);
	ask(harness_make_lease(&in, 5, 1, -1));
	harness_expect_error(&out, HPZ_OP_LEASE, 5, HPZ_ERR_DRAINED);
	assert_non_null(lease_find(&harness.leases, id));
	assert_non_null(strstr(pool->message, "drained"));
}

static void count_turn(uv_prepare_t *prepare)
{
	if (harness.books.run)
		++*(unsigned *)prepare->data;
}

/* Whoever asks meanwhile waits for one slice: the loop turns between two of them. */
static void test_check_in_slices(void **state)
{
	static const struct config_pool large = {.name = "p",
		.page_size = STORE_PAGE,
		.pages = 1500,
		.max_pages = 1500,
		.stock = {{STORE_PAGE, 1500}},
		.stock_count = 1};
	static uv_prepare_t prepare;
	unsigned turns = 0;

	harness_put_clean(harness_add_pool(&large), 1500, 1);
	uv_prepare_init(&harness.loop, &prepare);
	prepare.data = &turns;
	uv_prepare_start(&prepare, count_turn);
	assert_int_equal(books_check(&harness.books, false), 0);
	while (harness.books.run)
		uv_run(&harness.loop, UV_RUN_ONCE);
	uv_close((uv_handle_t *)&prepare, NULL);
	assert_int_equal(harness.books.segments, 1500);
	/* Two passes, since the machine here has no counters; each more than ten slices of files. */
	assert_true(turns > 20);
}

/* hpzd stops while requests wait. */
static void test_stop_while_waiting(void **state)
{
	struct hpz_wire_wait wait = {.size = sizeof wait, .timeout_ms = 100000};

	ask_as(SESSION(1), &root, harness_make_lease(&in, 1, 1, -1));
	ask_as(SESSION(2), &root, harness_make(&in, HPZ_OP_WAIT, 2, &wait, sizeof wait));
	/* teardown() checks that nothing is left. */
}

#define TEST(name)       cmocka_unit_test_setup_teardown(name, setup, teardown)
#define TEST_POOL(name)  cmocka_unit_test_setup_teardown(name, setup_pool, teardown)
#define TEST_NODES(name) cmocka_unit_test_setup_teardown(name, setup_nodes, teardown_nodes)

int main(int argc, char **argv)
{
	arg_count = argc;
	args = argv;
	const struct CMUnitTest tests[] = {
		TEST(test_hello),
		TEST(test_wrong_hello),
		TEST(test_truncated),
		TEST(test_tail),
		TEST(test_noise),
		TEST(test_head),
		TEST(test_denied),
		TEST(test_unread_descriptors),
		TEST(test_set),
		TEST(test_clearing),
		TEST(test_status),
		TEST(test_list),
		TEST(test_lease_without_pool),
		TEST(test_unknown_lease),
		TEST(test_wait),
		TEST(test_drain),
		TEST(test_cancel),
		TEST(test_resize_nothing),
		TEST_POOL(test_lease),
		TEST_POOL(test_lease_errors),
		TEST_POOL(test_lease_of_what_vanished),
		TEST_POOL(test_key),
		TEST_POOL(test_lease_waits),
		TEST_POOL(test_lease_order),
		TEST_POOL(test_priority),
		TEST_POOL(test_priority_newcomer),
		TEST_POOL(test_priority_ages),
		TEST_POOL(test_priority_allowed),
		TEST_POOL(test_lease_newcomer),
		TEST_POOL(test_lease_timeout),
		TEST_POOL(test_lease_cancelled),
		TEST_POOL(test_lease_extended),
		TEST_POOL(test_extended_for_nobody),
		TEST_POOL(test_lease_in_several),
		TEST_POOL(test_bulk),
		TEST_POOL(test_bulk_is_whole),
		TEST_POOL(test_bulk_waits),
		TEST_POOL(test_bulk_of_what_vanished),
		TEST_POOL(test_bulk_quota),
		TEST_POOL(test_resize),
		TEST_POOL(test_resize_below_leased),
		TEST_POOL(test_resize_drained),
		TEST_POOL(test_plan),
		TEST_POOL(test_passed),
		TEST_NODES(test_cells),
		cmocka_unit_test_setup_teardown(test_cells_trimmed, setup_large_nodes, teardown_nodes),
		TEST_NODES(test_cells_all_or_none),
		cmocka_unit_test_setup_teardown(test_cells_wait, setup_large_nodes, teardown_nodes),
		TEST_NODES(test_cells_cancelled),
		TEST_NODES(test_cells_extended),
		TEST_NODES(test_cells_key),
		TEST_NODES(test_preferred),
		TEST_NODES(test_interleave),
		TEST_POOL(test_grow),
		TEST_POOL(test_grow_waits),
		TEST_POOL(test_grow_by_what_vanished),
		TEST_POOL(test_shrink),
		TEST_POOL(test_change_refused),
		TEST_POOL(test_adopt),
		TEST_POOL(test_owner_dies),
		TEST_POOL(test_wait_with_pool),
		TEST_POOL(test_drain_with_pool),
		TEST(test_check_in_slices),
		TEST_POOL(test_stop_while_waiting),
	};
	return cmocka_run_group_tests_name("request", tests, NULL, NULL);
}
