/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* asker.c - a client without a socket. */
#include <sys/stat.h>

#include "asker.h"

struct message in, out;
uint64_t unread_lease;
struct sent sent;
const struct request_peer root = {.uid = 0, .gid = 0, .pid = 1, .pidfd = -1};
const struct request_peer somebody = {.uid = 1000, .gid = 1000, .pid = 1, .pidfd = -1};
const struct request_peer knower = {
	.uid = 0, .gid = 0, .pid = 1, .pidfd = -1, .capabilities = HPZ_WIRE_CAN_ZEROED};
struct pool *pool;
const struct config_pool config = {
	.name = "p",
	.page_size = STORE_PAGE,
	.pages = 12,
	.max_pages = 12,
	.stock = {{8 * STORE_PAGE, 1}, {STORE_PAGE, 4}},
	.stock_count = 2,
};

static void on_send(struct session *session, struct request_reply *reply)
{
	assert_true(sent.count < ARRAY_SIZE(sent.replies));
	sent.sessions[sent.count] = session;
	sent.replies[sent.count].length = reply->length;
	memcpy(sent.replies[sent.count].bytes, reply->bytes, reply->length);
	sent.count++;
	desk_close_fds(reply);
}

int setup(void **state)
{
	unread_lease = 0;
	sent.count = 0;
	harness_open(on_send);
	return 0;
}

int teardown(void **state)
{
	harness_close();
	return 0;
}

void take_reply(void)
{
	out.length = harness.requests.reply.length;
	memcpy(out.bytes, harness.requests.reply.bytes, out.length);
	desk_close_fds(&harness.requests.reply);
}

enum request_outcome ask_as(
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

enum request_outcome ask(const struct message *message)
{
	return ask_as(SESSION(1), &root, message);
}

bool has_sent(void *wanted)
{
	return sent.count >= *(size_t *)wanted;
}

const struct message *wait_reply(size_t number)
{
	harness_run_until(has_sent, &number);
	return &sent.replies[number - 1];
}

/* A request of each operation that is well-formed; false: the operation has none here. */
bool make_request(uint16_t op, struct message *message)
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
	const struct hpz_wire_events events = {.size = sizeof events};
	const struct hpz_wire_metrics metrics = {.size = sizeof metrics};
	const struct hpz_wire_teardown teardown = {.size = sizeof teardown, .record = HPZ_RECORD_TEARDOWN};
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
	case HPZ_OP_TEARDOWN:
		harness_make(message, op, 9, &teardown, sizeof teardown);
		return true;
	case HPZ_OP_EVENTS:
		harness_make(message, op, 9, &events, sizeof events);
		return true;
	case HPZ_OP_METRICS:
		harness_make(message, op, 9, &metrics, sizeof metrics);
		return true;
	case HPZ_OP_DEMAND:
		harness_make(message, op, 9, &demand, sizeof demand);
		return true;
	}
	return false;
}

int setup_pool(void **state)
{
	setup(state);
	pool = harness_add_pool(&config);
	return 0;
}

uint64_t expect_leased(const struct message *message, uint64_t id, uint64_t pages)
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

enum request_outcome ask_flags(
	const struct request_peer *peer, uint16_t op, uint64_t pages, uint32_t flags, int64_t timeout_ms)
{
	struct hpz_wire_lease lease = harness_get_lease(pages, timeout_ms);
	lease.flags = flags;
	return ask_as(SESSION(1), peer, harness_make(&in, op, 3, &lease, sizeof lease));
}
