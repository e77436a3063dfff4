/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * test_watcher.c - the service without hpzd, on libvirt's driver that needs no libvirtd: what it tells
 * systemd while it looks, as often as somebody asks for it, and how it ends. Also for the thread sanitizer:
 * looks run beside the loop.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "watcher.h"

#define LIMIT_MS 60000

static char directory[] = "/tmp/hpz-watcher.XXXXXX";
static struct sockaddr_un address = {.sun_family = AF_UNIX};
static int notices = -1;
static pid_t child;

static int setup(void **state)
{
	if (!mkdtemp(directory))
		return -1;
	snprintf(address.sun_path, sizeof(address.sun_path), "%s/notify", directory);
	notices = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	return bind(notices, (struct sockaddr *)&address, sizeof(address));
}

static int teardown(void **state)
{
	if (child > 0 && kill(child, SIGKILL) == 0)
		waitpid(child, NULL, 0);
	close(notices);
	unlink(address.sun_path);
	return rmdir(directory);
}

static void start(const char *uri)
{
	const struct watcher_options options = {
		.uri = uri, .socket_path = "/nonexistent/hpzd.sock", .grace_ms = 10};

	fflush(NULL);
	child = fork();
	assert_true(child >= 0);
	if (child > 0)
		return;
	setenv("NOTIFY_SOCKET", address.sun_path, 1);
	_exit(watcher_run(&options));
}

/* Until it tells that. */
static void expect_told(const char *words)
{
	struct pollfd told = {notices, POLLIN, 0};
	char text[1024];

	do {
		assert_int_equal(poll(&told, 1, LIMIT_MS), 1);
		ssize_t length = recv(notices, text, sizeof(text) - 1, 0);
		assert_true(length > 0);
		text[length] = '\0';
	} while (!strstr(text, words));
}

static void expect_end(void)
{
	int status;

	kill(child, SIGTERM);
	expect_told("STOPPING=1");
	assert_int_equal(waitpid(child, &status, 0), child);
	child = 0;
	assert_int_equal(status, 0);
}

static void test_without_hpzd(void **state)
{
	start("test:///default");
	expect_told("READY=1");
	expect_told("STATUS=0 leases of domains, 0 without a domain");
	for (int i = 0; i < 20; i++) {
		kill(child, SIGHUP);
		expect_told("STATUS=Waiting for hpzd: ");
	}
	expect_end();
}

static void test_without_libvirt(void **state)
{
	start("qemu+unix:///system?socket=/nonexistent/hpz");
	expect_told("READY=1");
	expect_told("STATUS=Waiting for libvirt at qemu+unix:///system?socket=/nonexistent/hpz");
	kill(child, SIGHUP);
	expect_end();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_without_hpzd),
		cmocka_unit_test(test_without_libvirt),
	};

	/* In the log a child's own words are no part of the results. */
	return cmocka_run_group_tests_name("watcher", tests, setup, teardown);
}
