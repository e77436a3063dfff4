/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_frame.c - packets and descriptors over a real socket pair. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "frame.h"
#include "proto.h"
#include "util.h"

struct pair {
	int a, b;
};

static unsigned count_fds(void)
{
	DIR *dir = opendir("/proc/self/fd");
	unsigned count = 0;

	assert_non_null(dir);
	while (readdir(dir))
		count++;
	closedir(dir);
	return count;
}

static int setup(void **state)
{
	struct pair *pair = malloc(sizeof(*pair));
	int fds[2];

	assert_non_null(pair);
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds), 0);
	*pair = (struct pair){fds[0], fds[1]};
	*state = pair;
	return 0;
}

static int teardown(void **state)
{
	struct pair *pair = *state;

	close_fd(pair->a);
	close_fd(pair->b);
	free(pair);
	return 0;
}

static void test_packet(void **state)
{
	struct pair *pair = *state;
	char packet[16] = "";
	size_t length = 0, fd_count = 7;
	int fds[4];

	assert_int_equal(frame_send(pair->a, "hello", 5, NULL, 0), 0);
	assert_int_equal(frame_send(pair->a, "world!", 6, NULL, 0), 0);
	assert_int_equal(
		frame_receive(pair->b, packet, sizeof(packet), &length, fds, 4, &fd_count), FRAME_OK);
	assert_int_equal(length, 5);
	assert_int_equal(fd_count, 0);
	assert_memory_equal(packet, "hello", 5);
	/* Without a place for descriptors, too. */
	assert_int_equal(frame_receive(pair->b, packet, sizeof(packet), &length, NULL, 0, NULL), FRAME_OK);
	assert_int_equal(length, 6);
	/* Exactly as long as there is room. */
	assert_int_equal(frame_send(pair->a, "0123456789abcdef", 16, NULL, 0), 0);
	assert_int_equal(frame_receive(pair->b, packet, sizeof(packet), &length, NULL, 0, NULL), FRAME_OK);
	assert_int_equal(length, 16);
}

static void test_largest_message(void **state)
{
	struct pair *pair = *state;
	char *sent = malloc(HPZ_WIRE_MAX_MESSAGE), *got = malloc(HPZ_WIRE_MAX_MESSAGE);
	size_t length = 0;

	memset(sent, 'x', HPZ_WIRE_MAX_MESSAGE);
	assert_int_equal(frame_send(pair->a, sent, HPZ_WIRE_MAX_MESSAGE, NULL, 0), 0);
	assert_int_equal(frame_receive(pair->b, got, HPZ_WIRE_MAX_MESSAGE, &length, NULL, 0, NULL), FRAME_OK);
	assert_int_equal(length, HPZ_WIRE_MAX_MESSAGE);
	assert_memory_equal(sent, got, length);
	free(sent);
	free(got);
}

static void test_descriptors_arrive_close_on_exec(void **state)
{
	struct pair *pair = *state;
	_cleanup_fd_ int null = open("/dev/null", O_RDONLY), zero = -1;
	char packet[8];
	int fds[4] = {-1, -1, -1, -1};
	size_t length = 0, fd_count = 0;
	struct stat sent, got;

	zero = open("/dev/zero", O_RDONLY);
	assert_int_equal(frame_send(pair->a, "x", 1, (int[]){null, zero}, 2), 0);
	assert_int_equal(
		frame_receive(pair->b, packet, sizeof(packet), &length, fds, 4, &fd_count), FRAME_OK);
	assert_int_equal(fd_count, 2);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(fcntl(fds[i], F_GETFD), FD_CLOEXEC);
		assert_int_equal(fstat(fds[i], &got), 0);
		assert_int_equal(fstat(i ? zero : null, &sent), 0);
		assert_int_equal(got.st_rdev, sent.st_rdev);
		close(fds[i]);
	}
	assert_int_equal(fds[2], -1);
}

/* The soft limit of this process has room for so many descriptors more. */
static void need_fds(rlim_t count)
{
	struct rlimit limit;

	assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
	if (limit.rlim_cur < count) {
		limit.rlim_cur = MIN(limit.rlim_max, count);
		assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
	}
}

static void test_253_descriptors(void **state)
{
	struct pair *pair = *state;
	_cleanup_fd_ int null = open("/dev/null", O_RDONLY);
	int sent[HPZ_WIRE_MAX_FDS + 1], got[HPZ_WIRE_MAX_FDS];
	size_t length = 0, fd_count = 0;
	unsigned before = count_fds();
	char packet[8];

	need_fds(1024);
	for (size_t i = 0; i < ARRAY_SIZE(sent); i++)
		sent[i] = null;
	assert_int_equal(frame_send(pair->a, "x", 1, sent, ARRAY_SIZE(sent)), -EINVAL);
	assert_int_equal(frame_send(pair->a, "x", 1, sent, HPZ_WIRE_MAX_FDS), 0);
	assert_int_equal(
		frame_receive(pair->b, packet, sizeof(packet), &length, got, ARRAY_SIZE(got), &fd_count),
		FRAME_OK);
	assert_int_equal(fd_count, HPZ_WIRE_MAX_FDS);
	for (size_t i = 0; i < fd_count; i++)
		close(got[i]);
	assert_int_equal(count_fds(), before);
}

static void test_end(void **state)
{
	struct pair *pair = *state;
	char packet[8];
	size_t length = 4711;

	/* What was sent before the end is still there. */
	assert_int_equal(frame_send(pair->a, "x", 1, NULL, 0), 0);
	pair->a = close_fd(pair->a);
	assert_int_equal(frame_receive(pair->b, packet, sizeof(packet), &length, NULL, 0, NULL), FRAME_OK);
	length = 4711;
	assert_int_equal(frame_receive(pair->b, packet, sizeof(packet), &length, NULL, 0, NULL), FRAME_EOF);
	assert_int_equal(length, 4711);
	/* And no SIGPIPE. */
	assert_int_equal(frame_send(pair->b, "x", 1, NULL, 0), -EPIPE);
}

static void test_reset_is_an_end(void **state)
{
	struct pair *pair = *state;
	char packet[8];
	size_t length;

	assert_int_equal(frame_send(pair->b, "unread", 6, NULL, 0), 0);
	pair->a = close_fd(pair->a);
	assert_int_equal(frame_receive(pair->b, packet, sizeof(packet), &length, NULL, 0, NULL), FRAME_EOF);
}

static void test_empty_packet_is_an_end(void **state)
{
	struct pair *pair = *state;
	char packet[8];
	size_t length;

	assert_int_equal(send(pair->a, "", 0, 0), 0);
	assert_int_equal(frame_receive(pair->b, packet, sizeof(packet), &length, NULL, 0, NULL), FRAME_EOF);
}

static void test_empty_packet_leaks_no_descriptor(void **state)
{
	struct pair *pair = *state;
	_cleanup_fd_ int null = open("/dev/null", O_RDONLY);
	unsigned before = count_fds();
	char packet[8];
	size_t length, fd_count;
	int fds[4];

	assert_int_equal(frame_send(pair->a, "", 0, &null, 1), 0);
	assert_int_equal(
		frame_receive(pair->b, packet, sizeof(packet), &length, fds, 4, &fd_count), FRAME_EOF);
	assert_int_equal(count_fds(), before);
}

static void test_too_long(void **state)
{
	struct pair *pair = *state;
	_cleanup_fd_ int null = open("/dev/null", O_RDONLY);
	unsigned before = count_fds();
	char packet[8];
	size_t length = 4711, fd_count = 4711;
	int fds[4];

	assert_int_equal(frame_send(pair->a, "012345678", 9, &null, 1), 0);
	assert_int_equal(frame_send(pair->a, "next", 4, NULL, 0), 0);
	assert_int_equal(
		frame_receive(pair->b, packet, sizeof(packet), &length, fds, 4, &fd_count), FRAME_TOO_LONG);
	assert_int_equal(length, 4711);
	assert_int_equal(fd_count, 4711);
	assert_int_equal(count_fds(), before);
	/* The next packet is whole. */
	assert_int_equal(
		frame_receive(pair->b, packet, sizeof(packet), &length, fds, 4, &fd_count), FRAME_OK);
	assert_int_equal(length, 4);
}

static void test_withheld_without_room(void **state)
{
	struct pair *pair = *state;
	_cleanup_fd_ int null = open("/dev/null", O_RDONLY);
	unsigned before = count_fds();
	char packet[8];
	size_t length = 0, fd_count = 4711;
	int fds[3];

	/* No place at all. */
	assert_int_equal(frame_send(pair->a, "packet", 6, &null, 1), 0);
	assert_int_equal(
		frame_receive(pair->b, packet, sizeof(packet), &length, NULL, 0, NULL), FRAME_WITHHELD);
	assert_int_equal(length, 6);
	assert_memory_equal(packet, "packet", 6);
	/* One too few; what came is closed. Odd and even numbers are padded differently. */
	for (size_t room = 1; room <= 3; room++) {
		assert_int_equal(
			frame_send(pair->a, "packet", 6, (int[]){null, null, null, null}, room + 1), 0);
		assert_int_equal(
			frame_receive(pair->b, packet, sizeof(packet), &length, fds, room, &fd_count),
			FRAME_WITHHELD);
		assert_int_equal(fd_count, 0);
		assert_int_equal(count_fds(), before);
		assert_int_equal(frame_send(pair->a, "packet", 6, (int[]){null, null, null, null}, room), 0);
		assert_int_equal(
			frame_receive(pair->b, packet, sizeof(packet), &length, fds, room, &fd_count),
			FRAME_OK);
		assert_int_equal(fd_count, room);
		while (fd_count > 0)
			close(fds[--fd_count]);
	}
}

static void test_withheld_by_the_limit(void **state)
{
	struct pair *pair = *state;
	_cleanup_fd_ int null = open("/dev/null", O_RDONLY);
	struct rlimit limit, low;
	char packet[8];
	size_t length = 0, fd_count = 4711;
	int fds[4];

	assert_int_equal(frame_send(pair->a, "packet", 6, (int[]){null, null, null}, 3), 0);
	/* Room for one descriptor of three. */
	int next = dup(null);
	close(next);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
	low = limit;
	low.rlim_cur = (rlim_t)next + 1;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
	int result = frame_receive(pair->b, packet, sizeof(packet), &length, fds, 4, &fd_count);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
	assert_int_equal(result, FRAME_WITHHELD);
	assert_int_equal(length, 6);
	assert_int_equal(fd_count, 0);
	/* The one that came was closed again. */
	int again = dup(null);
	assert_int_equal(again, next);
	close(again);
}

static void test_full_socket(void **state)
{
	struct pair *pair = *state;
	char packet[4096] = {1};
	size_t length;
	int r;

	assert_int_equal(fcntl(pair->a, F_SETFL, O_NONBLOCK), 0);
	unsigned sent = 0;
	while ((r = frame_send(pair->a, packet, sizeof(packet), NULL, 0)) == 0)
		sent++;
	assert_int_equal(r, -EAGAIN);
	assert_true(sent > 0);
	assert_int_equal(fcntl(pair->b, F_SETFL, O_NONBLOCK), 0);
	while (sent-- > 0)
		assert_int_equal(
			frame_receive(pair->b, packet, sizeof(packet), &length, NULL, 0, NULL), FRAME_OK);
	assert_int_equal(frame_receive(pair->b, packet, sizeof(packet), &length, NULL, 0, NULL), -EAGAIN);
}

static void on_signal(int number)
{
}

/* Interrupts the thread that waits, several times, before it gets something. */
static void *interrupt(void *data)
{
	struct {
		pthread_t thread;
		int sock;
	} *other = data;

	for (unsigned i = 0; i < 20; i++) {
		pthread_kill(other->thread, SIGUSR1);
		usleep(1000);
	}
	frame_send(other->sock, "late", 4, NULL, 0);
	return NULL;
}

static void test_interrupted(void **state)
{
	struct pair *pair = *state;
	struct sigaction action = {.sa_handler = on_signal}; /* without SA_RESTART */
	struct {
		pthread_t thread;
		int sock;
	} self = {pthread_self(), pair->a};
	pthread_t thread;
	char packet[8];
	size_t length = 0;

	assert_int_equal(sigaction(SIGUSR1, &action, NULL), 0);
	assert_int_equal(pthread_create(&thread, NULL, interrupt, &self), 0);
	assert_int_equal(frame_receive(pair->b, packet, sizeof(packet), &length, NULL, 0, NULL), FRAME_OK);
	assert_int_equal(length, 4);
	pthread_join(thread, NULL);
	/* Who has a time limit to look at is told of each. */
	unsigned interrupts = 0;
	int r;
	assert_int_equal(pthread_create(&thread, NULL, interrupt, &self), 0);
	while ((r = frame_receive_once(pair->b, packet, sizeof(packet), &length, NULL, 0, NULL)) == -EINTR)
		interrupts++;
	assert_int_equal(r, FRAME_OK);
	assert_true(interrupts > 0);
	pthread_join(thread, NULL);
}

static void test_not_a_socket(void **state)
{
	_cleanup_fd_ int null = open("/dev/null", O_RDWR);
	char packet[8];
	size_t length;

	assert_int_equal(frame_send(null, "x", 1, NULL, 0), -ENOTSOCK);
	assert_int_equal(frame_receive(null, packet, sizeof(packet), &length, NULL, 0, NULL), -ENOTSOCK);
	assert_int_equal(frame_send(-1, "x", 1, NULL, 0), -EBADF);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_packet),
		TEST(test_largest_message),
		TEST(test_descriptors_arrive_close_on_exec),
		TEST(test_253_descriptors),
		TEST(test_end),
		TEST(test_reset_is_an_end),
		TEST(test_empty_packet_is_an_end),
		TEST(test_empty_packet_leaks_no_descriptor),
		TEST(test_too_long),
		TEST(test_withheld_without_room),
		TEST(test_withheld_by_the_limit),
		TEST(test_full_socket),
		TEST(test_interrupted),
		TEST(test_not_a_socket),
	};

	return cmocka_run_group_tests_name("frame", tests, NULL, NULL);
}
