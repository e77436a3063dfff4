/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_listener.c - the socket: how it is made, who may connect, how many, and what happens when nothing is
 * left. */
#include "harness.h"
#include "frame.h"

#include <grp.h>
#include <inttypes.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

static struct message in, out;
static struct listener *listener;
static char path[128];
static const char *why;

static int setup(void **state)
{
	harness_open(NULL);
	snprintf(path, sizeof path, "%.100s/sock", harness.dir);
	listener = NULL;
	why = NULL;
	return 0;
}

static bool has_no_connection(void *user)
{
	return harness.requests.connections == 0;
}

static int teardown(void **state)
{
	if (listener)
		listener_close(listener);
	harness_run_until(has_no_connection, NULL);
	harness_close();
	return 0;
}

static int listen_at(const char *where, const char *group)
{
	return listener_open(&harness.requests, &harness.loop, where, group, 0660, -1, &listener, &why);
}

static int connect_to(const char *where)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	assert_true(sock >= 0);
	snprintf(address.sun_path, sizeof address.sun_path, "%.100s", where);
	if (connect(sock, (struct sockaddr *)&address, sizeof address) < 0) {
		int error = -errno;
		close(sock);
		return error;
	}
	return sock;
}

static int greet(void)
{
	int sock = connect_to(path);

	assert_true(sock >= 0);
	harness_send(sock, harness_make_hello(&in));
	assert_true(harness_receive(sock, &out));
	harness_expect_ok(&out, HPZ_OP_HELLO, 1);
	return sock;
}

/* ---- making it ---- */

static void test_open(void **state)
{
	struct stat st;
	mode_t mask = umask(0);

	assert_int_equal(listen_at(path, ""), 0);
	umask(mask);
	assert_int_equal(lstat(path, &st), 0);
	assert_int_equal(st.st_mode, S_IFSOCK | 0660);
	assert_true(st.st_uid == geteuid() && st.st_gid == getegid());
	int sock = greet();
	assert_int_equal(harness.requests.connections, 1);
	close(sock);
	harness_run_until(has_no_connection, NULL);
	listener_close(listener);
	listener = NULL;
	assert_int_equal(lstat(path, &st), -1);
	assert_int_equal(connect_to(path), -ENOENT);
}

/* A dead hpzd's socket is replaced, and so is whatever else lies there that can be unlinked. */
static void test_stale(void **state)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int dead = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	snprintf(address.sun_path, sizeof address.sun_path, "%.100s", path);
	assert_int_equal(bind(dead, (struct sockaddr *)&address, sizeof address), 0);
	close(dead);
	assert_int_equal(connect_to(path), -ECONNREFUSED);
	assert_int_equal(listen_at(path, ""), 0);
	close(greet());
}

static void test_cannot_be_made(void **state)
{
	char longest[200];
	unsigned before = harness_count_fds();

	memset(longest, 'x', sizeof longest);
	longest[0] = '/';
	longest[sizeof longest - 1] = '\0';
	assert_int_equal(listen_at(longest, ""), -ENAMETOOLONG);
	assert_string_equal(why, "it cannot be made");
	assert_int_equal(listen_at(path, "no such group"), -ENOENT);
	assert_string_equal(why, "its group does not exist");
	assert_int_equal(listen_at(path, "4294967295"), -ERANGE);
	assert_string_equal(why, "its group does not exist");
	assert_int_equal(listen_at("/nonexistent/sock", ""), -ENOENT);
	assert_string_equal(why, "it cannot be made");
	assert_true(listen_at(harness.dir, "") < 0); /* a directory is there */
	assert_string_equal(why, "it cannot be made");
	assert_null(listener);
	assert_int_equal(harness_count_fds(), before);
}

static void test_group(void **state)
{
	struct group *own = getgrgid(getegid());
	/* Root may give it to any, also to one without a name. */
	gid_t other = geteuid() == 0 ? 64111 : getegid();
	char number[16];
	struct stat st;

	snprintf(number, sizeof number, "%u", other);
	assert_int_equal(listen_at(path, number), 0);
	assert_int_equal(lstat(path, &st), 0);
	assert_int_equal(st.st_gid, other);
	if (!own)
		return; /* a group without a name: nothing to ask for */
	listener_close(listener);
	listener = NULL;
	assert_int_equal(listen_at(path, own->gr_name), 0);
	assert_int_equal(lstat(path, &st), 0);
	assert_int_equal(st.st_gid, getegid());
}

/* systemd's socket is used as it is, and stays when we go. */
static void test_passed(void **state)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int passed = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), copy;

	snprintf(address.sun_path, sizeof address.sun_path, "%.100s", path);
	assert_int_equal(bind(passed, (struct sockaddr *)&address, sizeof address), 0);
	assert_int_equal(listen(passed, 100), 0);
	copy = fcntl(passed, F_DUPFD_CLOEXEC, 3);
	/* Somebody came before we were there. */
	int early = connect_to(path);
	harness_send(early, harness_make_hello(&in));
	assert_int_equal(
		listener_open(&harness.requests, &harness.loop, "/unused", "", 0, passed, &listener, &why),
		0);
	assert_true(harness_receive(early, &out));
	harness_expect_ok(&out, HPZ_OP_HELLO, 1);
	close(early);
	listener_close(listener);
	listener = NULL;
	harness_run_until(has_no_connection, NULL);
	harness_run_ms(5);
	assert_int_equal(fcntl(passed, F_GETFD), -1);
	assert_int_equal(access(path, F_OK), 0);
	int late = connect_to(path); /* waits in the backlog for the next hpzd */
	assert_true(late >= 0);
	close(late);
	close(copy);
}

/* ---- closing ---- */

static void test_close_with_clients(void **state)
{
	int socks[20];

	assert_int_equal(listen_at(path, ""), 0);
	for (size_t i = 0; i < ARRAY_SIZE(socks); i++)
		socks[i] = i % 2 ? greet() : connect_to(path);
	listener_close(listener);
	listener = NULL;
	for (size_t i = 0; i < ARRAY_SIZE(socks); i++) {
		harness_expect_end(socks[i]);
		close(socks[i]);
	}
}

/* ---- how many ---- */

static unsigned limit_connections(rlim_t nofile, struct rlimit *ret_before)
{
	struct rlimit limit;

	getrlimit(RLIMIT_NOFILE, ret_before);
	limit = *ret_before;
	limit.rlim_cur = nofile;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
	unsigned most = (unsigned)(nofile - 512) / 2;
	return geteuid() == 0 ? most : most / 2;
}

static void test_limit(void **state)
{
	struct rlimit before;
	unsigned most = limit_connections(600, &before);
	int socks[100];

	assert_int_equal(listen_at(path, ""), 0);
	for (unsigned i = 0; i < most; i++)
		socks[i] = greet();
	assert_int_equal(harness.requests.connections, most);
	/* One more is told why, and the others do not notice. */
	for (int i = 0; i < 3; i++) {
		int turned_away = connect_to(path);
		assert_true(turned_away >= 0);
		assert_true(harness_receive(turned_away, &out));
		harness_expect_error(&out, HPZ_OP_HELLO, 0, HPZ_ERR_BUSY);
		harness_expect_end(turned_away);
		close(turned_away);
	}
	assert_int_equal(harness.requests.connections, most);
	harness_send(socks[0], harness_make_empty(&in, HPZ_OP_STATUS, 2));
	assert_true(harness_receive(socks[0], &out));
	harness_expect_ok(&out, HPZ_OP_STATUS, 2);
	/* Room again. */
	close(socks[--most]);
	harness_send(socks[0], harness_make_empty(&in, HPZ_OP_STATUS, 3));
	assert_true(harness_receive(socks[0], &out));
	close(greet());
	while (most > 0)
		close(socks[--most]);
	setrlimit(RLIMIT_NOFILE, &before);
}

/* Not a descriptor is left: whoever comes waits, the loop rests, and then it goes on. */
static bool has_connection(void *user)
{
	return harness.requests.connections > 0;
}

static void test_out_of_descriptors(void **state)
{
	struct rlimit before, limit;
	struct timespec start, end;
	static int all[1100];
	size_t count = 0;

	getrlimit(RLIMIT_NOFILE, &before);
	limit = before;
	limit.rlim_cur = MIN(before.rlim_max, 1000);
	setrlimit(RLIMIT_NOFILE, &limit);
	assert_int_equal(listen_at(path, ""), 0);
	int sock = connect_to(path);
	harness_send(sock, harness_make_hello(&in));
	while ((all[count] = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0)
		count++;
	assert_int_equal(errno, EMFILE);
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &start);
	harness_run_ms(300);
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &end);
	assert_int_equal(harness.requests.connections, 0);
	double busy = (double)(end.tv_sec - start.tv_sec) + (double)(end.tv_nsec - start.tv_nsec) / 1e9;
	assert_true(busy < 0.15);
	while (count > 0)
		close(all[--count]);
	harness_run_until(has_connection, NULL);
	assert_true(harness_receive(sock, &out));
	harness_expect_ok(&out, HPZ_OP_HELLO, 1);
	close(sock);
	setrlimit(RLIMIT_NOFILE, &before);
}

static void test_many(void **state)
{
	assert_int_equal(listen_at(path, ""), 0);
	for (int i = 0; i < 1000; i++) {
		int sock = connect_to(path);
		assert_true(sock >= 0);
		if (i % 3 == 0)
			assert_int_equal(send(sock, "garbage", 7, MSG_NOSIGNAL), 7);
		if (i % 3 == 1)
			harness_send(sock, harness_make_hello(&in));
		if (i % 50 == 0)
			close(greet());
		close(sock);
		harness_turn();
	}
	harness_run_until(has_no_connection, NULL);
	close(greet());
}

/* ---- who: the kernel says it, not the client ---- */

static int talk_as_nobody(void)
{
	static struct message message;
	struct timeval patience = {HARNESS_SECONDS, 0};
	static const struct {
		uint16_t op;
		int error;
	} cases[] = {{HPZ_OP_STATUS, 0}, {HPZ_OP_LIST, 0}, {HPZ_OP_DRAIN, HPZ_ERR_DENIED},
		{HPZ_OP_LEASE, HPZ_ERR_DENIED}};

	if (geteuid() == 0 && (setgroups(0, NULL) < 0 || setgid(65534) < 0 || setuid(65534) < 0))
		return 1;
	int sock = connect_to(path);
	if (sock < 0)
		return 2;
	fcntl(sock, F_SETFL, 0);
	setsockopt(sock, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
	harness_send(sock, harness_make_hello(&message));
	if (recv(sock, message.bytes, sizeof message.bytes, 0) <= 0)
		return 3;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		const struct hpz_wire_list list = {.size = sizeof list};
		const struct hpz_wire_drain drain = {.size = sizeof drain};
		if (cases[i].op == HPZ_OP_LEASE)
			harness_make_lease(&message, 2, 1, 0);
		else if (cases[i].op == HPZ_OP_STATUS)
			harness_make_empty(&message, HPZ_OP_STATUS, 2);
		else if (cases[i].op == HPZ_OP_LIST)
			harness_make(&message, HPZ_OP_LIST, 2, &list, sizeof list);
		else
			harness_make(&message, HPZ_OP_DRAIN, 2, &drain, sizeof drain);
		harness_send(sock, &message);
		ssize_t length = recv(sock, message.bytes, sizeof message.bytes, 0);
		const struct hpz_wire_head *head = (const void *)message.bytes;
		if (length <= 0 || (int)head->error != cases[i].error)
			return 10 + (int)i;
	}
	return 0;
}

static bool has_ended(void *user)
{
	int *status = user;
	return waitpid(-1, status, WNOHANG) > 0;
}

static void test_not_root(void **state)
{
	int status = 0;

	assert_int_equal(chmod(harness.dir, 0755), 0);
	assert_int_equal(listen_at(path, ""), 0);
	assert_int_equal(chmod(path, 0666), 0);
	pid_t child = fork();
	if (child == 0)
		_exit(talk_as_nobody());
	harness_run_until(has_ended, &status);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_open),
		TEST(test_stale),
		TEST(test_cannot_be_made),
		TEST(test_group),
		TEST(test_passed),
		TEST(test_close_with_clients),
		TEST(test_limit),
		TEST(test_out_of_descriptors),
		TEST(test_many),
		TEST(test_not_root),
	};
	return cmocka_run_group_tests_name("listener", tests, NULL, NULL);
}
