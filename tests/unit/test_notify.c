/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_notify.c - what systemd is told, read from a NOTIFY_SOCKET of the test's own; and the socket it
 * passes. */
#include "temp.h"
#include "notify.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

static char dir[TEMP_PATH];
static int sock = -1;

static int setup(void **state)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	temp_make(dir);
	snprintf(address.sun_path, sizeof address.sun_path, "%.90s/notify", dir);
	sock = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	assert_int_equal(bind(sock, (struct sockaddr *)&address, sizeof address), 0);
	setenv("NOTIFY_SOCKET", address.sun_path, 1);
	return 0;
}

static int teardown(void **state)
{
	unsetenv("NOTIFY_SOCKET");
	close(sock);
	temp_remove(dir);
	return 0;
}

static const char *receive(void)
{
	static char text[1024];
	ssize_t length = recv(sock, text, sizeof text - 1, 0);

	text[length > 0 ? length : 0] = '\0';
	return text;
}

static void test_states(void **state)
{
	notify_ready();
	assert_string_equal(receive(), "READY=1");
	notify_reloading();
	assert_int_equal(strncmp(receive(), "RELOADING=1\nMONOTONIC_USEC=", 27), 0);
	notify_stopping();
	assert_int_equal(strncmp(receive(), "STOPPING=1\nSTATUS=", 18), 0);
	notify_watchdog();
	assert_string_equal(receive(), "WATCHDOG=1");
	assert_string_equal(receive(), "");
}

static void test_status(void **state)
{
	char longest[600];

	notify_status("one");
	assert_string_equal(receive(), "STATUS=one");
	notify_status("one"); /* nothing new */
	assert_string_equal(receive(), "");
	notify_status("two %s %n");
	assert_string_equal(receive(), "STATUS=two %s %n");
	notify_status("one");
	assert_string_equal(receive(), "STATUS=one");
	memset(longest, 'x', sizeof longest);
	longest[sizeof longest - 1] = '\0';
	notify_status(longest);
	assert_int_equal(strncmp(receive(), "STATUS=xxx", 10), 0);
}

/* Nobody asked: nothing happens, and nothing is changed. */
static void test_no_systemd(void **state)
{
	unsetenv("NOTIFY_SOCKET");
	notify_ready();
	notify_reloading();
	notify_status("three");
	notify_watchdog();
	notify_stopping();
	assert_string_equal(receive(), "");
	setenv("NOTIFY_SOCKET", "/nonexistent/notify", 1);
	notify_ready();
	notify_status("four");
}

static void test_watchdog(void **state)
{
	char pid[16];

	unsetenv("WATCHDOG_USEC");
	unsetenv("WATCHDOG_PID");
	assert_int_equal(notify_get_watchdog_ms(), 0);
	snprintf(pid, sizeof pid, "%d", (int)getpid());
	setenv("WATCHDOG_PID", pid, 1);
	setenv("WATCHDOG_USEC", "20000000", 1);
	assert_int_equal(notify_get_watchdog_ms(), 10000); /* twice as often as asked */
	setenv("WATCHDOG_USEC", "100", 1);
	assert_int_equal(notify_get_watchdog_ms(), 1);
	setenv("WATCHDOG_USEC", "nonsense", 1);
	assert_int_equal(notify_get_watchdog_ms(), 0);
	setenv("WATCHDOG_USEC", "20000000", 1);
	setenv("WATCHDOG_PID", "1", 1); /* somebody else's */
	assert_int_equal(notify_get_watchdog_ms(), 0);
	unsetenv("WATCHDOG_USEC");
	unsetenv("WATCHDOG_PID");
}

/* ---- the socket: always descriptor 3, so in a process of its own ---- */

enum passed {
	PASSED_NOTHING,
	PASSED_SOCKET,
	PASSED_STREAM,
	PASSED_NOT_LISTENING,
	PASSED_FILE,
	PASSED_TWO,
	PASSED_TO_OTHER
};

static int take_in_child(enum passed passed)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	char pid[16];
	int type = passed == PASSED_STREAM ? SOCK_STREAM : SOCK_SEQPACKET;
	int fd = passed == PASSED_FILE ? open("/dev/null", O_RDWR) : socket(AF_UNIX, type, 0);

	snprintf(address.sun_path, sizeof address.sun_path, "%.90s/listen", dir);
	unlink(address.sun_path);
	if (passed != PASSED_FILE && bind(fd, (struct sockaddr *)&address, sizeof address) < 0)
		return 100;
	if (passed != PASSED_FILE && passed != PASSED_NOT_LISTENING && listen(fd, 5) < 0)
		return 101;
	if (passed == PASSED_NOTHING) {
		unsetenv("LISTEN_FDS");
		unsetenv("LISTEN_PID");
		return notify_take_socket() == -1 ? 0 : 1;
	}
	dup2(fd, 3);
	dup2(fd, 4);
	snprintf(pid, sizeof pid, "%d", passed == PASSED_TO_OTHER ? 1 : (int)getpid());
	setenv("LISTEN_PID", pid, 1);
	setenv("LISTEN_FDS", passed == PASSED_TWO ? "2" : "1", 1);
	int r = notify_take_socket();
	/* A child of ours must not believe that it was meant. */
	if (getenv("LISTEN_FDS") && passed != PASSED_TO_OTHER)
		return 102;
	if (passed == PASSED_SOCKET)
		return r == 3 && (fcntl(3, F_GETFD) & FD_CLOEXEC) ? 0 : 1;
	if (passed == PASSED_TO_OTHER)
		return r == -1 ? 0 : 1;
	return r == -EINVAL ? 0 : 1;
}

static void test_socket(void **state)
{
	for (enum passed passed = PASSED_NOTHING; passed <= PASSED_TO_OTHER; passed++) {
		int status;
		pid_t child = fork();
		if (child == 0)
			_exit(take_in_child(passed));
		assert_int_equal(waitpid(child, &status, 0), child);
		if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
			fail_msg("case %d: status %d", passed, status);
	}
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_states),
		TEST(test_status),
		TEST(test_no_systemd),
		TEST(test_watchdog),
		TEST(test_socket),
	};
	return cmocka_run_group_tests_name("notify", tests, NULL, NULL);
}
