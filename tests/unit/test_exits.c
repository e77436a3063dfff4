/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * test_exits.c - the end of real processes: each is told of once, to everybody who shares the watch, with
 * what the source sees and nothing else. Any user: what BPF sees is tried where it loads.
 */
#include "temp.h"
#include "exits.h"
#include "exits_perf.h"
#include "exits_pidfd.h"
#include "host.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define SHARES    200
#define SECONDS   120 /* for anything to happen, on a busy machine */
#define THREADS   64
#define SHARERS   8
#define LINGERING (EXITS_LINGERING_MAX + 3)

struct listener {
	struct exits_share share;
	unsigned count;
	struct exits_seen seen;
};

static uv_loop_t loop;
static struct crew *crew;
static struct owners owners;
static struct exits *exits;
static struct listener listeners[SHARES];
static bool is_closed;

static void on_seen(struct exits_share *share, const struct exits_seen *seen)
{
	struct listener *listener = CONTAINER_OF(share, struct listener, share);
	assert_null(share->watch);
	listener->count++;
	listener->seen = *seen;
}

static void on_closed(void *user)
{
	is_closed = true;
}

static void on_exits_closed(void *user)
{
	owner_close_all(&owners, on_closed, NULL);
}

static void on_stopped(void *user)
{
	exits_close(exits, on_exits_closed, NULL);
}

static void on_tick(uv_timer_t *timer)
{
}

/* Turns the loop until then; what never happens is a failure. */
static void run_until(bool (*is_done)(void))
{
	uint64_t end = clock_get_ns(CLOCK_MONOTONIC) + SECONDS * NS_PER_S;
	uv_timer_t tick;
	uv_timer_init(&loop, &tick);
	uv_timer_start(&tick, on_tick, 20, 20);
	while (!is_done()) {
		assert_true(clock_get_ns(CLOCK_MONOTONIC) < end);
		uv_run(&loop, UV_RUN_ONCE);
	}
	uv_close((uv_handle_t *)&tick, NULL);
	uv_run(&loop, UV_RUN_NOWAIT);
}

static bool is_loaded(void)
{
	return exits_get_source(exits) == EXITS_BPF || !strstr(exits_get_gap(exits), "being loaded");
}

static bool is_first_told(void)
{
	return listeners[0].count > 0;
}

static bool is_second_told(void)
{
	return listeners[1].count > 0;
}

static bool is_third_told(void)
{
	return listeners[2].count > 0;
}

static void open_exits(enum config_teardown mode)
{
	uv_loop_init(&loop);
	is_closed = false;
	memset(listeners, 0, sizeof listeners);
	for (size_t i = 0; i < SHARES; i++) {
		list_init(&listeners[i].share.link);
		listeners[i].share.seen = on_seen;
	}
	log_set_level(LOG_LEVEL_ERROR);
	assert_int_equal(crew_init(&loop, getenv("HPZ_TEST_HPZD"), &crew), 0);
	assert_int_equal(owner_init(&owners, &loop), 0);
	assert_int_equal(exits_init(&loop, crew, &owners, &exits), 0);
	exits_set_mode(exits, mode);
	run_until(is_loaded);
	print_message("# exits %s; unknown: %s\n", exits_get_source_name(exits_get_source(exits)),
		exits_get_gap(exits));
}

static void close_exits(void)
{
	for (size_t i = 0; i < SHARES; i++)
		exits_leave(&listeners[i].share);
	crew_stop(crew, on_stopped, NULL);
	uv_run(&loop, UV_RUN_DEFAULT);
	assert_true(is_closed);
	assert_int_equal(owners.open, 0);
	crew_free(crew);
	exits_free(exits);
	assert_int_equal(uv_loop_close(&loop), 0);
}

/* ---- processes ---- */

struct process {
	pid_t pid;
	int pidfd;
	uint64_t start;
	int go; /* it goes on when this is closed */
};

/* Waits to be told to, and does what it is for; a process that comes back exits with 0. */
static struct process start_process(void (*act)(void))
{
	struct host host = {.root = (char *)""};
	struct process process;
	int pipe_fds[2];
	assert_int_equal(pipe2(pipe_fds, O_CLOEXEC), 0);
	process.pid = fork();
	if (process.pid == 0) {
		char byte;
		close(pipe_fds[1]);
		if (read(pipe_fds[0], &byte, 1) < 0)
			_exit(99);
		act();
		_exit(0);
	}
	close(pipe_fds[0]);
	process.go = pipe_fds[1];
	process.pidfd = (int)syscall(SYS_pidfd_open, process.pid, 0);
	assert_true(process.pidfd >= 0);
	assert_int_equal(host_get_start_time(&host, process.pid, &process.start), 0);
	return process;
}

static void join(const struct process *process, size_t index)
{
	assert_int_equal(
		exits_join(exits, process->pid, process->start, process->pidfd, &listeners[index].share), 0);
}

static void reap(struct process *process)
{
	close_fd(process->go);
	waitpid(process->pid, NULL, 0);
	close(process->pidfd);
}

static void act_pause(void)
{
	for (;;)
		pause();
}

static void act_exit(void)
{
	_exit(7);
}

static void act_abort(void)
{
	raise(SIGTERM);
}

/* Page tables for 256 MiB: half a MiB of them. */
static void act_exit_with_tables(void)
{
	size_t bytes = (size_t)256 << 20;
	uint8_t *memory =
		mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	madvise(memory, bytes, MADV_NOHUGEPAGE);
	for (size_t at = 0; memory != MAP_FAILED && at < bytes; at += (size_t)2 << 20)
		memory[at] = 1;
	kill(getpid(), SIGKILL);
}

static void act_exec(void)
{
	/* The address space it began with ends here, and the process does not. */
	execl("/bin/sh", "sh", "-c", "exit 5", NULL);
	_exit(98);
}

static int wait_for_go(void *argument)
{
	char byte;
	(void)!read(*(int *)argument, &byte, 1);
	_exit(0);
}

static int child_go[2];
static char child_stack[65536];

/* Its address space lives on in another process. */
static void act_leave_child(void)
{
	close(child_go[1]);
	clone(wait_for_go, child_stack + sizeof child_stack - 64, CLONE_VM, &child_go[0]);
	_exit(0);
}

static void *sleep_for_ever(void *argument)
{
	act_pause();
	return NULL;
}

static void act_threads(void)
{
	for (unsigned i = 0; i < THREADS; i++) {
		pthread_t thread;
		pthread_create(&thread, NULL, sleep_for_ever, NULL);
	}
	_exit(11);
}

static int late_go[2];

static void *exit_late(void *argument)
{
	char byte;
	(void)!read(late_go[0], &byte, 1);
	_exit(12);
}

/* The first thread ends, the process does not. */
static void act_leader_first(void)
{
	pthread_t thread;
	close(late_go[1]);
	pthread_create(&thread, NULL, exit_late, NULL);
	syscall(SYS_exit, 0); /* pthread_exit() would want libgcc */
}

/* ---- what is told ---- */

static void check_seen(
	const struct listener *listener, const struct process *process, enum exits_how how, int code)
{
	const struct exits_seen *seen = &listener->seen;
	uint64_t now = clock_get_ns(CLOCK_MONOTONIC);
	assert_int_equal(listener->count, 1);
	assert_int_equal(seen->pid, process->pid);
	assert_int_equal(seen->pid_start, process->start);
	assert_int_equal(seen->how, how);
	assert_int_equal(seen->code, code);
	assert_in_range(seen->gone_ns, 1, now);
	if (seen->begun_ns != EXITS_NONE)
		assert_in_range(seen->begun_ns, 1, seen->gone_ns);
	/* Those that others run for it. */
	assert_true(seen->flushes[0] == EXITS_NONE && seen->flushes[1] == EXITS_NONE);
	assert_true(seen->flushes[5] == EXITS_NONE && seen->flushes[7] == EXITS_NONE);
	if (seen->source == EXITS_BPF)
		return;
	assert_true(seen->steal_ns == EXITS_NONE && seen->flushes[3] == EXITS_NONE);
	assert_true(seen->source == EXITS_PERF || seen->begun_ns == EXITS_NONE);
}

static void end_and_check(void (*act)(void), enum exits_how how, int code)
{
	struct process process = start_process(act);
	memset(&listeners[0].seen, 0, sizeof listeners[0].seen);
	listeners[0].count = 0;
	join(&process, 0);
	process.go = close_fd(process.go);
	run_until(is_first_told);
	check_seen(&listeners[0], &process, how, code);
	reap(&process);
}

static void check_ends(void)
{
	end_and_check(act_exit, EXITS_EXIT, 7);
	end_and_check(act_abort, EXITS_KILL, SIGTERM);
	end_and_check(act_threads, EXITS_EXIT, 11);
	end_and_check(act_exec, EXITS_EXIT, 5);
	end_and_check(act_exit_with_tables, EXITS_KILL, SIGKILL);
}

static bool sees_begin(void)
{
	return exits_get_source(exits) == EXITS_BPF && !strstr(exits_get_gap(exits), "single thread");
}

static void test_best_source(void **state)
{
	open_exits(CONFIG_TEARDOWN_AUTO);
	check_ends();
	const struct exits_seen *seen = &listeners[0].seen; /* killed, with page tables */
	if (exits_get_source(exits) == EXITS_BPF) {
		assert_int_equal(seen->source, EXITS_BPF);
		assert_true(seen->begun_ns != EXITS_NONE);
		assert_int_equal(seen->table_age_ns, 0);
		assert_in_range(seen->table_bytes, 512 << 10, 4 << 20);
	}
	close_exits();
}

static void test_pidfd(void **state)
{
	open_exits(CONFIG_TEARDOWN_PIDFD);
	assert_int_equal(exits_get_source(exits), EXITS_PIDFD);
	check_ends();
	close_exits();
}

static void test_perf(void **state)
{
	open_exits(CONFIG_TEARDOWN_PERF);
	check_ends();
	if (exits_get_source(exits) == EXITS_PERF)
		assert_int_equal(listeners[0].seen.source, EXITS_PERF);
	close_exits();
}

static void test_off(void **state)
{
	open_exits(CONFIG_TEARDOWN_OFF);
	struct process process = start_process(act_pause);
	join(&process, 0);
	assert_null(listeners[0].share.watch);
	kill(process.pid, SIGKILL);
	reap(&process);
	close_exits();
	assert_int_equal(listeners[0].count, 0);
}

/* ---- watches ---- */

/* 200 leases of one process: one watch, and everybody hears of it. */
static void test_shares(void **state)
{
	open_exits(CONFIG_TEARDOWN_AUTO);
	struct process process = start_process(act_pause);
	for (size_t i = 0; i < SHARES; i++) {
		join(&process, i);
		assert_ptr_equal(listeners[i].share.watch, listeners[0].share.watch);
	}
	exits_leave(&listeners[SHARES - 1].share);
	kill(process.pid, SIGKILL);
	run_until(is_first_told);
	for (size_t i = 0; i < SHARES - 1; i++)
		check_seen(&listeners[i], &process, EXITS_KILL, SIGKILL);
	assert_int_equal(listeners[SHARES - 1].count, 0);
	reap(&process);
	close_exits();
}

/* Nobody wants to know any more: kept for the next lease, and told to nobody. */
static void test_left(void **state)
{
	open_exits(CONFIG_TEARDOWN_AUTO);
	struct process process = start_process(act_pause), other = start_process(act_pause);
	join(&process, 0);
	struct exits_watch *watch = listeners[0].share.watch;
	exits_leave(&listeners[0].share);
	join(&process, 0);
	assert_ptr_equal(listeners[0].share.watch, watch);
	exits_leave(&listeners[0].share);
	join(&other, 1);
	kill(process.pid, SIGKILL);
	kill(other.pid, SIGKILL);
	run_until(is_second_told);
	assert_int_equal(listeners[0].count, 0);
	reap(&process);
	reap(&other);
	close_exits();
}

/* It was over before anybody watched. */
static void test_too_late(void **state)
{
	open_exits(CONFIG_TEARDOWN_AUTO);
	struct process process = start_process(act_exit);
	process.go = close_fd(process.go);
	while (!exits_is_ending(&listeners[0].share) &&
		waitid(P_PID, (id_t)process.pid, &(siginfo_t){0}, WEXITED | WNOWAIT) != 0)
		;
	join(&process, 0);
	assert_true(exits_is_ending(&listeners[0].share));
	run_until(is_first_told);
	assert_int_equal(listeners[0].seen.source, EXITS_PIDFD);
	check_seen(&listeners[0], &process, EXITS_EXIT, 7);
	reap(&process);
	close_exits();
}

/* A child that shares the address space: gone is it when that child is, for whoever can see that. */
static void test_address_space_lives_on(void **state)
{
	open_exits(CONFIG_TEARDOWN_AUTO);
	assert_int_equal(pipe2(child_go, O_CLOEXEC), 0);
	struct process process = start_process(act_leave_child);
	close(child_go[0]);
	join(&process, 0);
	process.go = close_fd(process.go);
	assert_int_equal(waitid(P_PID, (id_t)process.pid, &(siginfo_t){0}, WEXITED | WNOWAIT), 0);
	for (unsigned i = 0; i < 20; i++)
		uv_run(&loop, UV_RUN_NOWAIT);
	if (sees_begin()) {
		assert_int_equal(listeners[0].count, 0);
		assert_true(exits_is_ending(&listeners[0].share));
	}
	uint64_t before = clock_get_ns(CLOCK_MONOTONIC);
	close(child_go[1]);
	run_until(is_first_told);
	check_seen(&listeners[0], &process, EXITS_EXIT, 0);
	if (sees_begin())
		assert_true(listeners[0].seen.begun_ns < before && listeners[0].seen.gone_ns >= before);
	reap(&process);
	close_exits();
}

static bool is_all_but_most_told(void)
{
	unsigned count = 0;
	for (size_t i = 0; i < SHARES; i++)
		count += listeners[i].count;
	return count >= LINGERING - EXITS_LINGERING_MAX;
}

static bool is_all_told(void)
{
	size_t i = 0;
	while (i < LINGERING && listeners[i].count > 0)
		i++;
	return i == LINGERING;
}

/* Others may have it for ever: hpzd waits for some of them only. */
static void test_many_live_on(void **state)
{
	struct process processes[LINGERING];
	open_exits(CONFIG_TEARDOWN_AUTO);
	assert_int_equal(pipe2(child_go, O_CLOEXEC), 0);
	for (size_t i = 0; i < LINGERING; i++) {
		processes[i] = start_process(act_leave_child);
		join(&processes[i], i);
		processes[i].go = close_fd(processes[i].go);
	}
	close(child_go[0]);
	run_until(is_all_but_most_told);
	close(child_go[1]);
	run_until(is_all_told);
	for (size_t i = 0; i < LINGERING; i++) {
		check_seen(&listeners[i], &processes[i], EXITS_EXIT, 0);
		reap(&processes[i]);
	}
	close_exits();
}

static bool is_all_but_one_told(void)
{
	unsigned count = 0;
	for (size_t i = 0; i < SHARERS; i++)
		count += listeners[i].count;
	return count >= SHARERS - 1;
}

static char stacks[SHARERS][16384];

/* Beside us in our own memory: nothing that a sanitizer keeps books of. */
__attribute__((no_sanitize("address", "thread"))) static int pause_for_ever(void *argument)
{
	for (;;)
		syscall(SYS_ppoll, NULL, 0, NULL, NULL, 0);
	return 0;
}

/* All in one address space, ours, which stays: of one it may be waited for, of the others nobody will hear.
 */
static void test_one_space_of_many(void **state)
{
	struct process processes[SHARERS];
	struct host host = {.root = (char *)""};
	open_exits(CONFIG_TEARDOWN_AUTO);
	for (size_t i = 0; i < SHARERS; i++) {
		struct process *process = &processes[i];
		process->pid =
			clone(pause_for_ever, stacks[i] + sizeof stacks[i] - 64, CLONE_VM | SIGCHLD, NULL);
		assert_true(process->pid > 0);
		process->go = -1;
		process->pidfd = (int)syscall(SYS_pidfd_open, process->pid, 0);
		assert_int_equal(host_get_start_time(&host, process->pid, &process->start), 0);
		join(process, i);
	}
	for (size_t i = 0; i < SHARERS; i++)
		kill(processes[i].pid, SIGKILL);
	run_until(is_all_but_one_told);
	for (size_t i = 0; i < SHARERS; i++) {
		if (listeners[i].count > 0)
			check_seen(&listeners[i], &processes[i], EXITS_KILL, SIGKILL);
		reap(&processes[i]);
	}
	close_exits();
}

/* Of an address space without anything in it the kernel's event of its end does not tell. */
static void act_unmap_all(void)
{
	/* All that x86-64 has; who has less refuses. */
	long r = syscall(SYS_munmap, 0, 0x7ffffffff000);
	_exit(r == 0 ? 96 : 97);
}

static void test_empty_space(void **state)
{
	open_exits(CONFIG_TEARDOWN_AUTO);
	struct process process = start_process(act_unmap_all);
	join(&process, 0);
	process.go = close_fd(process.go);
	run_until(is_first_told);
	if (listeners[0].seen.how == EXITS_EXIT) { /* some kernels seal a part of it */
		check_seen(&listeners[0], &process, EXITS_EXIT, 97);
	} else {
		check_seen(&listeners[0], &process, EXITS_KILL, SIGSEGV);
		assert_int_equal(listeners[0].seen.source, EXITS_PIDFD);
	}
	reap(&process);
	close_exits();
}

/* The first thread leaves long before the others: that is not the beginning of the end. */
static void test_leader_first(void **state)
{
	open_exits(CONFIG_TEARDOWN_AUTO);
	assert_int_equal(pipe2(late_go, O_CLOEXEC), 0);
	struct process process = start_process(act_leader_first);
	char path[64], status[64] = "";
	close(late_go[0]);
	join(&process, 0);
	process.go = close_fd(process.go);
	snprintf(path, sizeof path, "/proc/%d/stat", (int)process.pid);
	while (!strstr(status, ") Z")) {
		int fd = open(path, O_RDONLY | O_CLOEXEC);
		assert_true(fd >= 0 && read(fd, status, sizeof status - 1) > 0);
		close(fd);
		uv_run(&loop, UV_RUN_NOWAIT);
	}
	uint64_t before = clock_get_ns(CLOCK_MONOTONIC);
	assert_int_equal(listeners[0].count, 0);
	close(late_go[1]);
	run_until(is_first_told);
	check_seen(&listeners[0], &process, EXITS_EXIT, 12);
	if (listeners[0].seen.begun_ns != EXITS_NONE)
		assert_true(listeners[0].seen.begun_ns >= before);
	reap(&process);
	close_exits();
}

/* Another source while processes are watched: what they are told by is the new one. */
static void test_change_of_mode(void **state)
{
	open_exits(CONFIG_TEARDOWN_PIDFD);
	struct process process = start_process(act_pause);
	join(&process, 0);
	exits_set_mode(exits, CONFIG_TEARDOWN_AUTO);
	run_until(is_loaded);
	enum exits_source source = exits_get_source(exits);
	kill(process.pid, SIGKILL);
	run_until(is_first_told);
	assert_int_equal(listeners[0].seen.source, source);
	check_seen(&listeners[0], &process, EXITS_KILL, SIGKILL);
	reap(&process);

	struct process other = start_process(act_pause);
	join(&other, 1);
	exits_set_mode(exits, CONFIG_TEARDOWN_PIDFD);
	kill(other.pid, SIGKILL);
	run_until(is_second_told);
	assert_int_equal(listeners[1].seen.source, EXITS_PIDFD);
	reap(&other);

	/* Whoever shares a watch may wait for its end, however it is told. */
	struct process last = start_process(act_pause);
	join(&last, 2);
	exits_set_mode(exits, CONFIG_TEARDOWN_OFF);
	kill(last.pid, SIGKILL);
	run_until(is_third_told);
	assert_int_equal(listeners[2].seen.source, EXITS_PIDFD);
	reap(&last);
	close_exits();
}

/* ---- what needs no process ---- */

static void test_stat_line(void **state)
{
	const char *line =
		"12 (a) b) c) Z 1 12 12 0 -1 4227084 0 0 0 0 0 0 0 0 20 0 1 0 777 0 0 18446744073709551615 0 "
		"0 0 0 0 0 0 0 0 0 0 0 17 0 0 0 0 0 0 0 0 0 0 0 0 0 1792\n";
	int code = -1;
	assert_int_equal(exits_parse_stat(line, 777, &code), 0);
	assert_int_equal(code, 1792);
	assert_int_equal(exits_parse_stat(line, 778, &code), -ESRCH);
	assert_int_equal(exits_parse_stat("12 (a", 777, &code), -EINVAL);
	assert_int_equal(exits_parse_stat("12 (a)", 777, &code), -EINVAL);
	assert_int_equal(exits_parse_stat("12 (a) Z 1 2", 777, &code), -EINVAL);
	assert_int_equal(exits_parse_stat("", 0, &code), -EINVAL);
}

static void test_code(void **state)
{
	struct exits_seen seen = {0};
	exits_set_code(&seen, 7 << 8);
	assert_true(seen.how == EXITS_EXIT && seen.code == 7);
	exits_set_code(&seen, SIGKILL);
	assert_true(seen.how == EXITS_KILL && seen.code == SIGKILL);
	exits_set_code(&seen, SIGSEGV | 0x80);
	assert_true(seen.how == EXITS_KILL && seen.code == SIGSEGV);
}

static void test_events(void **state)
{
	static const struct {
		uint64_t exit, gone, exec; /* the latest; 0: none */
		bool is_early, is_told;
		uint64_t begun_ns;
	} cases[] = {
		{10, 20, 0, true, true, 10},
		{10, 20, 5, true, true, 10},
		{10, 4, 5, true, false, 0},           /* that of an execve() */
		{30, 20, 0, true, false, 0},          /* another one's: this one lives on */
		{30, 20, 0, false, true, EXITS_NONE}, /* a thread's end is told late */
		{30, 20, 25, false, false, 0},
		{10, 0, 0, true, false, 0},
		{0, 20, 0, true, true, EXITS_NONE}, /* overwritten */
		{0, 0, 0, false, false, 0},
	};
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct exits_latest latest = {0};
		uint64_t begun = 0, gone = 0;
		struct exits_event events[] = {{EXITS_EVENT_EXIT, 1, cases[i].exit},
			{EXITS_EVENT_GONE, 1, cases[i].gone}, {EXITS_EVENT_EXEC, 1, cases[i].exec},
			{EXITS_EVENT_EXIT, 1, cases[i].exit / 2}};
		for (size_t k = 0; k < ARRAY_SIZE(events); k++)
			exits_perf_add(&latest, &events[k]);
		assert_int_equal(
			exits_perf_judge(&latest, cases[i].is_early, &begun, &gone), cases[i].is_told);
		assert_true(begun == cases[i].begun_ns);
		assert_true(gone == (cases[i].is_told ? cases[i].gone : 0));
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_stat_line),
		cmocka_unit_test(test_code),
		cmocka_unit_test(test_events),
		cmocka_unit_test(test_off),
		cmocka_unit_test(test_pidfd),
		cmocka_unit_test(test_perf),
		cmocka_unit_test(test_best_source),
		cmocka_unit_test(test_shares),
		cmocka_unit_test(test_left),
		cmocka_unit_test(test_too_late),
		cmocka_unit_test(test_address_space_lives_on),
		cmocka_unit_test(test_many_live_on),
		cmocka_unit_test(test_one_space_of_many),
		cmocka_unit_test(test_empty_space),
		cmocka_unit_test(test_leader_first),
		cmocka_unit_test(test_change_of_mode),
	};
	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
