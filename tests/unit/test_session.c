/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_session.c - one connection, spoken to in raw bytes: what it takes, what it refuses, and how it ends.
 */
#include "harness.h"
#include "frame.h"

#include <inttypes.h>
#include <sys/socket.h>

static struct message in, out;
static unsigned fds_before;

static int setup(void **state)
{
	harness_open(NULL);
	harness_turn();
	fds_before = harness_count_fds();
	return 0;
}

static bool has_no_connection(void *user)
{
	return harness.requests.connections == 0;
}

static int teardown(void **state)
{
	harness_run_until(has_no_connection, NULL);
	assert_int_equal(harness_count_fds(), fds_before);
	harness_close();
	return 0;
}

static void send_bytes(int sock, const void *bytes, size_t length)
{
	assert_int_equal(send(sock, bytes, length, MSG_NOSIGNAL), length);
}

static const struct hpz_wire_wait for_ever = {
	.size = sizeof for_ever, .timeout_ms = -1, .clean = 5 * STORE_PAGE};

/* A request that waits: for more than is clean. */
static void wait_for_memory(int sock, uint64_t id)
{
	harness_send(sock, harness_make(&in, HPZ_OP_WAIT, id, &for_ever, sizeof for_ever));
}

static struct pool *add_pool(void)
{
	static const struct config_pool config = {.name = "p",
		.page_size = STORE_PAGE,
		.pages = 8,
		.max_pages = 8,
		.stock = {{STORE_PAGE, 8}},
		.stock_count = 1};
	unsigned before = harness_count_fds();
	struct pool *pool = harness_add_pool(&config);
	harness_turn();
	fds_before += harness_count_fds() - before;
	return pool;
}

/* ---- plain talk ---- */

static void test_talk(void **state)
{
	int sock = harness_greet();

	for (uint64_t id = 2; id < 10; id++) {
		harness_send(sock, harness_make_empty(&in, HPZ_OP_STATUS, id));
		assert_true(harness_receive(sock, &out));
		harness_expect_ok(&out, HPZ_OP_STATUS, id);
		assert_int_equal(((struct hpz_wire_status *)HARNESS_PAYLOAD(&out))->connections, 1);
	}
	close(sock);
}

/* All at once, the hello among them; answers come in order. */
static void test_pipeline(void **state)
{
	int sock = harness_connect();

	harness_send(sock, harness_make_hello(&in));
	for (uint64_t id = 2; id < 60; id++) /* more than one turn takes */
		harness_send(sock, harness_make_empty(&in, HPZ_OP_STATUS, id));
	assert_true(harness_receive(sock, &out));
	harness_expect_ok(&out, HPZ_OP_HELLO, 1);
	for (uint64_t id = 2; id < 60; id++) {
		assert_true(harness_receive(sock, &out));
		harness_expect_ok(&out, HPZ_OP_STATUS, id);
	}
	close(sock);
}

static unsigned count_received(int sock)
{
	unsigned count = 0;
	size_t length;

	while (frame_receive(sock, out.bytes, sizeof out.bytes, &length, NULL, 0, NULL) == FRAME_OK)
		count++;
	return count;
}

/* However much one has asked at once, another is answered before the second question of it. */
static void test_turns(void **state)
{
	int greedy = harness_greet(), other = harness_greet();

	for (uint64_t id = 2; id < 7; id++)
		harness_send(greedy, harness_make_empty(&in, HPZ_OP_STATUS, id));
	harness_send(other, harness_make_empty(&in, HPZ_OP_STATUS, 2));
	harness_turn();
	assert_int_equal(count_received(greedy), 1);
	assert_int_equal(count_received(other), 1);
	for (uint64_t id = 3; id < 7; id++) {
		assert_true(harness_receive(greedy, &out));
		harness_expect_ok(&out, HPZ_OP_STATUS, id);
	}
	close(greedy);
	close(other);
}

/* Said everything, then closed its side: it is answered, then let go. */
static void test_half_closed(void **state)
{
	int sock = harness_connect();

	harness_send(sock, harness_make_hello(&in));
	harness_send(sock, harness_make_empty(&in, HPZ_OP_STATUS, 2));
	assert_int_equal(shutdown(sock, SHUT_WR), 0);
	assert_true(harness_receive(sock, &out));
	harness_expect_ok(&out, HPZ_OP_HELLO, 1);
	assert_true(harness_receive(sock, &out));
	harness_expect_ok(&out, HPZ_OP_STATUS, 2);
	harness_expect_end(sock);
	close(sock);
}

static void test_gone_at_once(void **state)
{
	for (int i = 0; i < 20; i++) {
		int sock = harness_connect();
		if (i % 2)
			harness_send(sock, harness_make_hello(&in));
		close(sock);
	}
}

/* ---- not our protocol ---- */

static void expect_refused(int sock, uint16_t op, uint64_t id, int error)
{
	assert_true(harness_receive(sock, &out));
	harness_expect_error(&out, op, id, error);
	harness_expect_end(sock);
	close(sock);
}

static void test_no_hello(void **state)
{
	int sock = harness_connect();

	harness_send(sock, harness_make_empty(&in, HPZ_OP_STATUS, 5));
	expect_refused(sock, HPZ_OP_STATUS, 5, HPZ_ERR_PROTOCOL);
	sock = harness_connect();
	harness_make_hello(&in);
	((struct hpz_wire_hello *)HARNESS_PAYLOAD(&in))->magic = 0x20544547; /* "GET " */
	harness_send(sock, &in);
	expect_refused(sock, HPZ_OP_HELLO, 1, HPZ_ERR_PROTOCOL);
	/* Refused, it is not heard any more, whatever it had sent already. */
	sock = harness_connect();
	harness_send(sock, harness_make_empty(&in, HPZ_OP_STATUS, 5));
	harness_send(sock, harness_make_hello(&in));
	harness_run_until(has_no_connection, NULL);
	close(sock);
}

static void test_hello_twice(void **state)
{
	int sock = harness_greet();

	harness_send(sock, harness_make_hello(&in));
	expect_refused(sock, HPZ_OP_HELLO, 1, HPZ_ERR_PROTOCOL);
}

static void test_truncated(void **state)
{
	size_t whole = harness_make_hello(&in)->length;

	for (size_t length = 1; length < whole; length++) {
		int sock = harness_connect();
		send_bytes(sock, in.bytes, length);
		assert_true(harness_receive(sock, &out));
		assert_int_equal(harness_get_head(&out).error, HPZ_ERR_PROTOCOL);
		harness_expect_end(sock);
		close(sock);
	}
	whole = harness_make_lease(&in, 7, 1, 0)->length;
	for (size_t length = 1; length < whole; length += 7) {
		int sock = harness_greet();
		harness_make_lease(&in, 7, 1, 0);
		send_bytes(sock, in.bytes, length);
		assert_true(harness_receive(sock, &out));
		assert_int_equal(harness_get_head(&out).error, HPZ_ERR_PROTOCOL);
		harness_expect_end(sock);
		close(sock);
	}
}

/* SEQPACKET has empty packets; nobody who speaks the protocol sends one. */
static void test_empty_packet(void **state)
{
	int sock = harness_greet();

	assert_int_equal(send(sock, "", 0, MSG_NOSIGNAL), 0);
	harness_expect_end(sock);
	close(sock);
}

static void test_oversized(void **state)
{
	static unsigned char zeros[200000];
	int sock = harness_greet();

	/* As long as a request may be, but no longer than its struct says. */
	memset(&in, 0, sizeof in);
	proto_set_head(
		in.bytes, HPZ_OP_STATUS, 5, false, 0, 0, HPZ_WIRE_MAX_REQUEST - sizeof(struct hpz_wire_head));
	*(uint32_t *)HARNESS_PAYLOAD(&in) = HPZ_WIRE_MAX_REQUEST - sizeof(struct hpz_wire_head);
	send_bytes(sock, in.bytes, HPZ_WIRE_MAX_REQUEST);
	assert_true(harness_receive(sock, &out));
	harness_expect_ok(&out, HPZ_OP_STATUS, 5);
	/* One byte more. */
	send_bytes(sock, in.bytes, HPZ_WIRE_MAX_REQUEST + 1);
	assert_true(harness_receive(sock, &out));
	assert_non_null(strstr(
		harness_expect_error(&out, HPZ_OP_HELLO, 0, HPZ_ERR_PROTOCOL), "longer than any request"));
	harness_expect_end(sock);
	close(sock);
	/* As much as a packet can be, before the hello. */
	sock = harness_connect();
	send_bytes(sock, zeros, sizeof zeros);
	expect_refused(sock, HPZ_OP_HELLO, 0, HPZ_ERR_PROTOCOL);
}

static void test_descriptors(void **state)
{
	for (int is_greeted = 0; is_greeted < 2; is_greeted++) {
		int sock = is_greeted ? harness_greet() : harness_connect(), fds[253];
		for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
			fds[i] = sock;
		if (is_greeted)
			harness_make_empty(&in, HPZ_OP_STATUS, 5);
		else
			harness_make_hello(&in);
		assert_int_equal(frame_send(sock, in.bytes, in.length, fds, ARRAY_SIZE(fds)), 0);
		assert_true(harness_receive(sock, &out));
		assert_string_equal(harness_expect_error(&out, HPZ_OP_HELLO, 0, HPZ_ERR_PROTOCOL),
			"clients send no descriptors");
		harness_expect_end(sock);
		close(sock);
	}
}

static void test_id_0(void **state)
{
	int sock = harness_greet();

	harness_send(sock, harness_make_empty(&in, HPZ_OP_STATUS, 0));
	assert_true(harness_receive(sock, &out));
	assert_int_equal(harness_get_head(&out).error, HPZ_ERR_PROTOCOL);
	harness_expect_end(sock);
	close(sock);
}

/* Of somebody newer: refused, and the next request is served. */
static void test_unknown_op(void **state)
{
	int sock = harness_greet();

	harness_send(sock, harness_make_empty(&in, 200, 5));
	harness_send(sock, harness_make_empty(&in, HPZ_OP_STATUS, 6));
	assert_true(harness_receive(sock, &out));
	assert_non_null(strstr(harness_expect_error(&out, 200, 5, HPZ_ERR_UNSUPPORTED), "200"));
	assert_true(harness_receive(sock, &out));
	harness_expect_ok(&out, HPZ_OP_STATUS, 6);
	close(sock);
}

/* ---- one that never reads ---- */

static void test_never_reads(void **state)
{
	int sock = harness_greet(), other = harness_greet();
	uint64_t asked = 2;

	/* Until neither side takes any more: its questions stay with it. */
	for (int idle = 0; idle < 5;) {
		harness_make_empty(&in, HPZ_OP_STATUS, asked);
		int r = frame_send(sock, in.bytes, in.length, NULL, 0);
		assert_true(r == 0 || r == -EAGAIN);
		asked += r == 0;
		idle = r == 0 ? 0 : idle + 1;
		harness_turn();
		assert_true(asked < 100000);
	}
	assert_true(asked > 100);
	/* Others are served as before. */
	for (uint64_t id = 2; id < 10; id++) {
		harness_send(other, harness_make_empty(&in, HPZ_OP_STATUS, id));
		assert_true(harness_receive(other, &out));
		harness_expect_ok(&out, HPZ_OP_STATUS, id);
	}
	/* It wakes up: every answer is there, in order, none twice. */
	for (uint64_t id = 2; id < asked; id++) {
		assert_true(harness_receive(sock, &out));
		harness_expect_ok(&out, HPZ_OP_STATUS, id);
	}
	close(sock);
	close(other);
}

static void test_never_reads_and_goes(void **state)
{
	for (int i = 0; i < 3; i++) {
		int sock = harness_greet();
		for (uint64_t id = 2; id < 3000; id++) {
			harness_make_empty(&in, HPZ_OP_STATUS, id);
			if (frame_send(sock, in.bytes, in.length, NULL, 0) < 0)
				harness_turn();
		}
		harness_turn();
		close(sock);
	}
}

/* Nothing to do for it, and so nothing is done: the loop does not spin on a client that does not read. */
static void test_no_spinning(void **state)
{
	int sock = harness_greet();
	struct timespec before, after;

	for (uint64_t id = 2; id < 3000; id++) {
		harness_make_empty(&in, HPZ_OP_STATUS, id);
		if (frame_send(sock, in.bytes, in.length, NULL, 0) < 0)
			harness_turn();
	}
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
	harness_run_ms(200);
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
	double busy = (double)(after.tv_sec - before.tv_sec) + (double)(after.tv_nsec - before.tv_nsec) / 1e9;
	assert_true(busy < 0.1);
	close(sock);
}

/* ---- requests that wait ---- */

static bool is_waiting(void *count)
{
	size_t waiting = 0;
	LIST_FOR_EACH (pos, &harness.requests.waiting)
		waiting++;
	return waiting == *(size_t *)count;
}

static void expect_waiting(size_t count)
{
	harness_run_until(is_waiting, &count);
}

static void test_wait_is_in_order(void **state)
{
	struct pool *pool = add_pool();
	int sock = harness_greet(), other = harness_greet();

	wait_for_memory(sock, 2);
	harness_send(sock, harness_make_empty(&in, HPZ_OP_STATUS, 3));
	expect_waiting(1);
	/* The second question is not read before the first is answered; others' are. */
	harness_send(other, harness_make_empty(&in, HPZ_OP_STATUS, 2));
	assert_true(harness_receive(other, &out));
	harness_run_ms(20);
	assert_int_equal(recv(sock, out.bytes, sizeof out.bytes, MSG_DONTWAIT), -1);
	assert_int_equal(errno, EAGAIN);
	harness_put_clean(pool, 5, 1);
	assert_true(harness_receive(sock, &out));
	harness_expect_ok(&out, HPZ_OP_WAIT, 2);
	assert_true(harness_receive(sock, &out));
	harness_expect_ok(&out, HPZ_OP_STATUS, 3);
	close(sock);
	close(other);
}

static void test_gone_while_waiting(void **state)
{
	add_pool();
	int sock = harness_greet(), other = harness_greet();

	wait_for_memory(sock, 2);
	wait_for_memory(other, 2);
	expect_waiting(2);
	close(sock);
	expect_waiting(1);
	/* Closing its side of the talk is an end, too: nobody says what it waits for into the void. */
	assert_int_equal(shutdown(other, SHUT_WR), 0);
	expect_waiting(0);
	harness_expect_end(other);
	close(other);
}

/* More arrives while it waits: that does not wake anybody up. */
static void test_chatter_while_waiting(void **state)
{
	struct timespec before, after;
	add_pool();
	int sock = harness_greet();

	wait_for_memory(sock, 2);
	expect_waiting(1);
	for (uint64_t id = 3; id < 2000; id++) {
		harness_make_empty(&in, HPZ_OP_STATUS, id);
		if (frame_send(sock, in.bytes, in.length, NULL, 0) < 0)
			break;
	}
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
	harness_run_ms(200);
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
	double busy = (double)(after.tv_sec - before.tv_sec) + (double)(after.tv_nsec - before.tv_nsec) / 1e9;
	assert_true(busy < 0.1);
	close(sock);
	expect_waiting(0);
}

static void test_timeout(void **state)
{
	struct hpz_wire_wait wait = for_ever;
	add_pool();
	int sock = harness_greet();

	wait.timeout_ms = 20;
	harness_send(sock, harness_make(&in, HPZ_OP_WAIT, 2, &wait, sizeof wait));
	harness_send(sock, harness_make_empty(&in, HPZ_OP_STATUS, 3));
	assert_true(harness_receive(sock, &out));
	harness_expect_error(&out, HPZ_OP_WAIT, 2, HPZ_ERR_TIMEOUT);
	assert_true(harness_receive(sock, &out));
	harness_expect_ok(&out, HPZ_OP_STATUS, 3);
	close(sock);
}

/* Whoever closes in the very turn in which it is answered. */
static void test_gone_when_answered(void **state)
{
	struct pool *pool = add_pool();

	for (int i = 0; i < 4; i++) {
		int sock = harness_greet(), other = harness_greet();
		struct hpz_wire_wait wait = for_ever;
		wait.clean = (uint64_t)(i + 1) * STORE_PAGE;
		harness_send(sock, harness_make(&in, HPZ_OP_WAIT, 2, &wait, sizeof wait));
		harness_send(other, harness_make(&in, HPZ_OP_WAIT, 2, &wait, sizeof wait));
		expect_waiting(2);
		close(sock);
		harness_put_clean(pool, 1, 1);
		assert_true(harness_receive(other, &out));
		harness_expect_ok(&out, HPZ_OP_WAIT, 2);
		close(other);
		expect_waiting(0);
	}
}

/* ---- who it is ---- */

static void test_peer(void **state)
{
	struct request_peer peer;
	int pair[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair), 0);
	assert_int_equal(session_get_user(pair[1], &peer), 0);
	assert_true(peer.uid == geteuid() && peer.gid == getegid() && peer.pid == getpid());
	assert_int_equal(peer.pidfd, -1); /* not before there is a session */
	int groups = getgroups(0, NULL);
	assert_int_equal(peer.group_count, groups);
	free(peer.groups);
	close(pair[0]);
	close(pair[1]);
}

/* What is no connection is taken over, and closed; nothing comes of it. */
static void test_no_peer(void **state)
{
	struct session *session = NULL;
	struct request_peer peer = {.pidfd = -7};

	assert_int_equal(session_get_user(-1, &peer), -EBADF);
	int plain = open("/dev/null", O_RDWR | O_CLOEXEC);
	assert_int_equal(session_get_user(plain, &peer), -ENOTSOCK);
	assert_int_equal(peer.pidfd, -7); /* untouched */
	assert_int_equal(close(plain), 0);
	plain = open("/etc/passwd", O_RDONLY | O_CLOEXEC);
	peer = (struct request_peer){.pidfd = -1};
	assert_int_equal(session_open(&harness.requests, plain, &peer, NULL, NULL, &session), -ENOMEM);
	assert_null(session);
	assert_int_equal(fcntl(plain, F_GETFD), -1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_talk),
		TEST(test_pipeline),
		TEST(test_turns),
		TEST(test_half_closed),
		TEST(test_gone_at_once),
		TEST(test_no_hello),
		TEST(test_hello_twice),
		TEST(test_truncated),
		TEST(test_empty_packet),
		TEST(test_oversized),
		TEST(test_descriptors),
		TEST(test_id_0),
		TEST(test_unknown_op),
		TEST(test_never_reads),
		TEST(test_never_reads_and_goes),
		TEST(test_no_spinning),
		TEST(test_wait_is_in_order),
		TEST(test_gone_while_waiting),
		TEST(test_chatter_while_waiting),
		TEST(test_timeout),
		TEST(test_gone_when_answered),
		TEST(test_peer),
		TEST(test_no_peer),
	};
	return cmocka_run_group_tests_name("session", tests, NULL, NULL);
}
