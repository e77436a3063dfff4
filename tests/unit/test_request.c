/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * test_request.c - what a client may ask, without a socket: bytes in, reply out. With no pool, and with one
 * on tmpfs, which can hand out paths. What needs real pages is in tests/host/test_handoff.c.
 */
#include "asker.h"
#include "dice.h"
#include "metrics.h"
#include "report.h"

static uint64_t capabilities;

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
			ask_as(SESSION(2), dice_chance(&dice, 50) ? &root : &somebody, &in);
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
		enum request_outcome outcome = ask_as(SESSION(1), &somebody, &in);
		switch ((enum hpz_wire_op)op) {
		case HPZ_OP_STATUS:
		case HPZ_OP_LIST:
		case HPZ_OP_CLEARING:
		case HPZ_OP_DEMAND:
		case HPZ_OP_METRICS:
		case HPZ_OP_EVENTS:
		case HPZ_OP_TEARDOWN:
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

/* ---- metrics ---- */

static const struct hpz_wire_measured *ask_metrics(uint64_t cursor)
{
	const struct hpz_wire_metrics wire = {.size = sizeof wire, .cursor = cursor};
	ask(harness_make(&in, HPZ_OP_METRICS, 9, &wire, sizeof wire));
	harness_expect_ok(&out, HPZ_OP_METRICS, 9);
	const struct hpz_wire_measured *measured = HARNESS_PAYLOAD(&out);
	assert_int_equal(out.length, sizeof(struct hpz_wire_head) + sizeof *measured +
					     measured->records * sizeof(struct hpz_wire_metric));
	return measured;
}

static uint64_t find_metric(const struct hpz_wire_measured *measured, const char *name, const char *value)
{
	const struct hpz_wire_metric *metric = (const void *)(measured + 1);
	for (uint32_t i = 0; i < measured->records; i++, metric++) {
		assert_true(metric->size == sizeof *metric && metric->record == HPZ_RECORD_METRIC);
		if (strcmp(metric->name, name) == 0 && strcmp(metric->label_value, value) == 0)
			return metric->value;
	}
	fail_msg("there is no %s of %s", name, value);
	return 0;
}

static void test_metrics(void **state)
{
	metrics_reset();
	ask(harness_make_empty(&in, HPZ_OP_STATUS, 9));
	ask(harness_make_lease(&in, 9, 1, 0)); /* of no pool */
	make_request(HPZ_OP_RELEASE, &in);
	ask_as(SESSION(1), &somebody, &in); /* may not */
	const struct hpz_wire_measured *measured = ask_metrics(0);
	assert_int_equal(measured->cursor, 0);
	assert_int_equal(find_metric(measured, "hpz_requests", "status"), 1);
	assert_int_equal(find_metric(measured, "hpz_requests", "metrics"), 1);
	assert_int_equal(find_metric(measured, "hpz_requests", "release"), 0);
	assert_int_equal(find_metric(measured, "hpz_request_errors", "no_pool"), 1);
	assert_int_equal(find_metric(measured, "hpz_request_errors", "denied"), 1);
	assert_int_equal(find_metric(measured, "hpz_lease_refusals", "no_pool"), 1);
	assert_int_equal(find_metric(measured, "hpz_lease_refusals", "denied"), 0);
	assert_int_equal(find_metric(measured, "hpz_lease_latency_seconds", "refused"), 1);
	assert_int_equal(find_metric(measured, "hpz_lease_latency_seconds", "granted"), 0);
	/* Whatever is asked for behind the last is nothing. */
	assert_int_equal(ask_metrics(UINT64_MAX)->records, 0);
}

/* In pages as small as they can be: the same series, each once. */
static void test_metrics_pages(void **state)
{
	static _Alignas(
		8) unsigned char page[sizeof(struct hpz_wire_measured) + sizeof(struct hpz_wire_metric) + 7];
	const struct hpz_wire_measured *head = (const void *)page;
	const struct hpz_wire_metric *metric = (const void *)(head + 1);
	struct metrics_series series;
	uint64_t cursor = 0, count = 0;
	do {
		assert_int_equal(report_metrics(cursor, page, sizeof page), sizeof *head + sizeof *metric);
		assert_true(metrics_get_series(count++, &series));
		assert_int_equal(head->records, 1);
		assert_string_equal(metric->name, series.name);
		assert_string_equal(metric->label_value, series.label_value);
		cursor = head->cursor;
	} while (cursor);
	assert_false(metrics_get_series(count, &series));
}

/* ---- teardown ---- */

static enum request_outcome ask_teardown(
	const struct request_peer *peer, uint32_t record, uint64_t cursor, int64_t timeout_ms)
{
	const struct hpz_wire_teardown wire = {
		.size = sizeof wire, .record = record, .cursor = cursor, .timeout_ms = timeout_ms};
	harness_make(&in, HPZ_OP_TEARDOWN, 9, &wire, sizeof wire);
	return ask_as(SESSION(1), peer, &in);
}

static const struct hpz_wire_torn_down *expect_torn_down(const struct message *message, uint32_t records)
{
	harness_expect_ok(message, HPZ_OP_TEARDOWN, 9);
	const struct hpz_wire_torn_down *head = HARNESS_PAYLOAD(message);
	assert_int_equal(head->records, records);
	return head;
}

/* A lease without memory ends. */
static void end_lease(uint64_t id, uint32_t uid)
{
	struct lease lease = {.id = id, .uid = uid, .state = HPZ_STATE_LEASED, .deliver = HPZ_DELIVER_FD};
	teardown_begin(&harness.teardown, &lease, 1000);
	teardown_set_over(&harness.teardown, &lease, true, 1010);
}

/* Who may only lease sees its own ends, and waits for these. */
static void test_teardown_of_own(void **state)
{
	harness.config.access[0] = (struct config_access){.name = "a",
		.allow = CONFIG_ALLOW_LEASE,
		.users = {.is_all = true},
		.max_connections = CONFIG_NO_LIMIT,
		.max_requests = CONFIG_NO_LIMIT};
	harness.config.access_count = 1;
	end_lease(1, 0);
	assert_int_equal(ask_teardown(&root, HPZ_RECORD_TEARDOWN, 0, 0), REQUEST_REPLIED);
	const struct hpz_wire_torn_down *head = expect_torn_down(&out, 1);
	const struct hpz_wire_teardown_record *record = (const void *)(head + 1);
	assert_true(record->lease == 1 && record->sequence == 1 && head->sequence == 1 && !head->own);
	assert_int_equal(ask_teardown(&somebody, HPZ_RECORD_HISTOGRAM, 0, 0), REQUEST_REPLIED);
	expect_torn_down(&out, 0);
	assert_int_equal(ask_teardown(&somebody, HPZ_RECORD_TEARDOWN, 0, -1), REQUEST_WAITS);
	end_lease(2, 0);
	teardown_save(&harness.teardown);
	request_settle(&harness.requests);
	assert_int_equal(sent.count, 0);
	end_lease(3, somebody.uid);
	teardown_save(&harness.teardown);
	request_settle(&harness.requests);
	assert_int_equal(sent.count, 1);
	head = expect_torn_down(&sent.replies[0], 1);
	record = (const void *)(head + 1);
	assert_true(record->lease == 3 && record->uid == somebody.uid && head->own);
	/* Another boot's revision: answered at once, with what it is now. */
	assert_int_equal(ask_teardown(&root, HPZ_RECORD_TEARDOWN, UINT64_MAX, -1), REQUEST_REPLIED);
	assert_int_equal(expect_torn_down(&out, 0)->revision, 3);
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

/* ---- with a pool ---- */

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
		TEST(test_metrics),
		TEST(test_metrics_pages),
		TEST(test_teardown_of_own),
		TEST(test_unread_descriptors),
		TEST(test_set),
		TEST(test_clearing),
		TEST(test_status),
		TEST(test_list),
		TEST(test_unknown_lease),
		TEST(test_wait),
		TEST(test_drain),
		TEST(test_cancel),
		TEST(test_resize_nothing),
		TEST_POOL(test_resize),
		TEST_POOL(test_resize_below_leased),
		TEST_POOL(test_resize_drained),
		TEST_POOL(test_adopt),
		TEST_POOL(test_wait_with_pool),
		TEST_POOL(test_drain_with_pool),
		TEST(test_check_in_slices),
		TEST_POOL(test_stop_while_waiting),
	};
	return cmocka_run_group_tests_name("request", tests, NULL, NULL);
}
