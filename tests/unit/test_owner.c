/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_owner.c - one watch a process, however many leases it has; and each hears of its end once. */
#include "temp.h"
#include "owner.h"

#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define SHARES 40

struct listener {
	struct owner_share share;
	unsigned gone;
};

static uv_loop_t loop;
static struct owners owners;
static struct listener listeners[SHARES];
static bool is_closed;

static void on_gone(struct owner_share *share)
{
	CONTAINER_OF(share, struct listener, share)->gone++;
}

static void on_closed(void *user)
{
	is_closed = true;
}

static int setup(void **state)
{
	uv_loop_init(&loop);
	assert_int_equal(owner_init(&owners, &loop), 0);
	memset(listeners, 0, sizeof listeners);
	for (size_t i = 0; i < SHARES; i++) {
		list_init(&listeners[i].share.link);
		listeners[i].share.gone = on_gone;
	}
	is_closed = false;
	return 0;
}

static int teardown(void **state)
{
	for (size_t i = 0; i < SHARES; i++)
		owner_leave(&listeners[i].share);
	owner_close_all(&owners, on_closed, NULL);
	uv_run(&loop, UV_RUN_DEFAULT);
	assert_true(is_closed);
	assert_int_equal(owners.open, 0);
	assert_int_equal(uv_loop_close(&loop), 0);
	return 0;
}

/* A process that only waits for its end. */
static pid_t start_process(int *ret_pidfd)
{
	pid_t pid = fork();
	if (pid == 0) {
		pause();
		_exit(0);
	}
	*ret_pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	assert_true(*ret_pidfd >= 0);
	return pid;
}

static void end_process(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

static void run_until_gone(const struct listener *listener)
{
	while (listener->gone == 0)
		uv_run(&loop, UV_RUN_ONCE);
}

static void test_one_watch(void **state)
{
	int pidfd;
	pid_t pid = start_process(&pidfd);
	for (size_t i = 0; i < SHARES; i++)
		assert_int_equal(owner_join(&owners, pid, 7, pidfd, &listeners[i].share), 0);
	assert_int_equal(owners.open, 1);
	close(pidfd); /* it was borrowed */
	owner_leave(&listeners[3].share);
	owner_leave(&listeners[3].share); /* is none any more */
	end_process(pid);
	run_until_gone(&listeners[0]);
	for (size_t i = 0; i < SHARES; i++)
		assert_int_equal(listeners[i].gone, i != 3);
}

/* Another that began at another time, or nobody knows when. */
static void test_same_id(void **state)
{
	int pidfd;
	pid_t pid = start_process(&pidfd);
	static const uint64_t starts[] = {7, 8, 0, 0, 7};
	for (size_t i = 0; i < ARRAY_SIZE(starts); i++)
		assert_int_equal(owner_join(&owners, pid, starts[i], pidfd, &listeners[i].share), 0);
	assert_int_equal(owners.open, 4);
	close(pidfd);
	end_process(pid);
	for (size_t i = 0; i < ARRAY_SIZE(starts); i++)
		run_until_gone(&listeners[i]);
}

/* Who leases again and again: no new watch, and none that lasts longer than the process. */
static void test_again(void **state)
{
	int pidfd;
	pid_t pid = start_process(&pidfd);
	for (size_t i = 0; i < SHARES; i++) {
		assert_int_equal(owner_join(&owners, pid, 7, pidfd, &listeners[i].share), 0);
		assert_int_equal(owners.idle, 0);
		owner_leave(&listeners[i].share);
		uv_run(&loop, UV_RUN_NOWAIT);
		assert_int_equal(owners.open, 1);
		assert_int_equal(owners.idle, 1);
	}
	close(pidfd);
	end_process(pid);
	while (owners.open > 0)
		uv_run(&loop, UV_RUN_ONCE);
	assert_int_equal(owners.idle, 0);
}

/* Many who leased once: not each of them is kept. */
static void test_few_are_kept(void **state)
{
	pid_t pids[SHARES];
	int pidfd;
	for (size_t i = 0; i < SHARES; i++) {
		pids[i] = start_process(&pidfd);
		assert_int_equal(owner_join(&owners, pids[i], 7, pidfd, &listeners[i].share), 0);
		close(pidfd);
		owner_leave(&listeners[i].share);
	}
	uv_run(&loop, UV_RUN_NOWAIT);
	assert_in_range(owners.open, 1, SHARES / 2);
	assert_int_equal(owners.open, owners.idle);
	for (size_t i = 0; i < SHARES; i++)
		end_process(pids[i]);
}

/* What is gone at once is heard of, and is never taken for one that runs. */
static void test_gone_before(void **state)
{
	int pidfd;
	pid_t pid = start_process(&pidfd);
	assert_true(owner_is_alive(pidfd));
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	assert_false(owner_is_alive(pidfd));
	assert_int_equal(owner_join(&owners, pid, 7, pidfd, &listeners[0].share), 0);
	assert_int_equal(owner_join(&owners, pid, 7, pidfd, &listeners[1].share), 0);
	assert_int_equal(owners.open, 2);
	close(pidfd);
	run_until_gone(&listeners[0]);
	run_until_gone(&listeners[1]);
}

static void test_no_descriptor(void **state)
{
	assert_int_equal(owner_join(&owners, 1, 7, -1, &listeners[0].share), -EBADF);
	assert_null(listeners[0].share.owner);
	assert_int_equal(owners.open, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_one_watch, setup, teardown),
		cmocka_unit_test_setup_teardown(test_same_id, setup, teardown),
		cmocka_unit_test_setup_teardown(test_again, setup, teardown),
		cmocka_unit_test_setup_teardown(test_few_are_kept, setup, teardown),
		cmocka_unit_test_setup_teardown(test_gone_before, setup, teardown),
		cmocka_unit_test_setup_teardown(test_no_descriptor, setup, teardown),
	};
	return cmocka_run_group_tests_name("owner", tests, NULL, NULL);
}
