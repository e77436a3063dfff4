/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * test_cgroup.c - what the manager is asked for the workers' cgroup, by a FAKE manager: a bus peer in this
 * process that notes each call and answers as it is told. The real one is in tests/systemd.
 */
#include "temp.h"
#include "cgroup.h"
#include "log.h"

#include <inttypes.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <systemd/sd-bus.h>

#define SECONDS   20 /* for anything to happen, on a busy machine */
#define CALLS     64
#define SCOPE0    "hpz-workers-node0.scope"
#define MANAGER   "org.freedesktop.systemd1"
#define NO_WEIGHT UINT64_MAX

static uv_loop_t loop;
static struct cgroup *cgroup;
static char dir[TEMP_PATH], address[128];

static struct {
	int listener;
	sd_bus *peer;
	unsigned connections;
	bool is_mute;       /* reads, never answers */
	bool is_hanging_up; /* at each call */
	bool is_before_252; /* refuses CPUWeight=0, as they do */
	const char *error;  /* of start and attach; NULL: good */
	unsigned errors;    /* so many times */
	size_t count;
	struct call {
		char method[32], unit[48], properties[256];
		uint64_t weight;
		uint32_t pids[8];
		size_t pid_count;
	} calls[CALLS];
} fake;

/* ---- the fake manager ---- */

static void read_property(sd_bus_message *m, struct call *call)
{
	const char *name, *contents, *text;
	char type;
	const void *pids;
	size_t size, used = strlen(call->properties);

	assert_true(sd_bus_message_enter_container(m, 'r', "sv") > 0);
	assert_true(sd_bus_message_read(m, "s", &name) > 0);
	assert_true(sd_bus_message_peek_type(m, &type, &contents) > 0);
	assert_true(sd_bus_message_enter_container(m, 'v', contents) > 0);
	if (strcmp(name, "CPUWeight") == 0) {
		assert_true(sd_bus_message_read(m, "t", &call->weight) > 0);
	} else if (strcmp(name, "PIDs") == 0) {
		assert_true(sd_bus_message_read_array(m, 'u', &pids, &size) > 0);
		assert_true(size <= sizeof call->pids);
		memcpy(call->pids, pids, size);
		call->pid_count = size / sizeof call->pids[0];
	} else {
		if (strcmp(contents, "as") == 0)
			assert_true(sd_bus_message_read(m, "as", 1, &text) > 0);
		else
			assert_true(sd_bus_message_read(m, "s", &text) > 0);
		snprintf(call->properties + used, sizeof call->properties - used, "%s=%s\n", name, text);
	}
	assert_true(sd_bus_message_exit_container(m) >= 0);
	assert_true(sd_bus_message_exit_container(m) >= 0);
}

static void read_call(sd_bus_message *m, struct call *call)
{
	const char *unit, *text;
	const void *pids;
	size_t size;
	int is_runtime;

	*call = (struct call){.weight = NO_WEIGHT};
	snprintf(call->method, sizeof call->method, "%s", sd_bus_message_get_member(m));
	assert_true(sd_bus_message_read(m, "s", &unit) > 0);
	snprintf(call->unit, sizeof call->unit, "%s", unit);
	if (strcmp(call->method, "AttachProcessesToUnit") == 0) {
		assert_true(sd_bus_message_read(m, "s", &text) > 0);
		assert_string_equal(text, "");
		assert_true(sd_bus_message_read_array(m, 'u', &pids, &size) > 0);
		assert_true(size <= sizeof call->pids);
		memcpy(call->pids, pids, size);
		call->pid_count = size / sizeof call->pids[0];
		return;
	}
	if (strcmp(call->method, "SetUnitProperties") == 0) {
		assert_true(sd_bus_message_read(m, "b", &is_runtime) > 0);
		assert_true(is_runtime);
	} else {
		assert_string_equal(call->method, "StartTransientUnit");
		assert_true(sd_bus_message_read(m, "s", &text) > 0);
		assert_string_equal(text, "fail");
	}
	assert_true(sd_bus_message_enter_container(m, 'a', "(sv)") > 0);
	while (!sd_bus_message_at_end(m, false))
		read_property(m, call);
	assert_true(sd_bus_message_exit_container(m) >= 0);
}

static int on_call(sd_bus_message *m, void *user, sd_bus_error *ret_error)
{
	if (!sd_bus_message_is_method_call(m, NULL, NULL))
		return 0;
	assert_string_equal(sd_bus_message_get_path(m), "/org/freedesktop/systemd1");
	assert_string_equal(sd_bus_message_get_interface(m), MANAGER ".Manager");
	assert_true(fake.count < CALLS);
	struct call *call = &fake.calls[fake.count++];
	read_call(m, call);
	if (fake.is_mute || fake.is_hanging_up)
		return 1;
	if (call->weight == 0 && fake.is_before_252)
		return sd_bus_reply_method_errorf(
			m, SD_BUS_ERROR_INVALID_ARGS, "Value specified in CPUWeight is out of range");
	if (fake.errors > 0 && call->pid_count > 0) {
		fake.errors--;
		return sd_bus_reply_method_errorf(m, fake.error, "as the test says");
	}
	if (strcmp(call->method, "StartTransientUnit") == 0)
		return sd_bus_reply_method_return(m, "o", "/org/freedesktop/systemd1/job/1");
	return sd_bus_reply_method_return(m, "");
}

static void drop_peer(void)
{
	if (!fake.peer)
		return;
	sd_bus_close(fake.peer);
	sd_bus_unref(fake.peer);
	fake.peer = NULL;
}

static void accept_peer(void)
{
	int fd = accept4(fake.listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	sd_id128_t id = {.qwords = {1, 2}};

	if (fd < 0)
		return;
	drop_peer(); /* the last one has gone */
	fake.connections++;
	assert_true(sd_bus_new(&fake.peer) >= 0);
	assert_true(sd_bus_set_fd(fake.peer, fd, fd) >= 0);
	assert_true(sd_bus_set_server(fake.peer, 1, id) >= 0);
	assert_true(sd_bus_add_filter(fake.peer, NULL, on_call, NULL) >= 0);
	assert_true(sd_bus_start(fake.peer) >= 0);
}

static void serve(void)
{
	int r = 1;
	size_t before = fake.count;

	accept_peer();
	while (fake.peer && r > 0)
		r = sd_bus_process(fake.peer, NULL);
	if (r < 0 || (fake.is_hanging_up && fake.count > before))
		drop_peer();
}

static void listen_at(const char *path)
{
	struct sockaddr_un name = {.sun_family = AF_UNIX};

	snprintf(name.sun_path, sizeof name.sun_path, "%.100s", path);
	fake.listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	assert_int_equal(bind(fake.listener, (struct sockaddr *)&name, sizeof name), 0);
	assert_int_equal(listen(fake.listener, 8), 0);
}

/* ---- the loop ---- */

static void turn(void)
{
	serve();
	uv_run(&loop, UV_RUN_NOWAIT);
	nanosleep(&(struct timespec){.tv_nsec = NS_PER_MS}, NULL);
}

static void wait_calls(size_t count)
{
	uint64_t until = clock_get_ns(CLOCK_MONOTONIC) + SECONDS * NS_PER_S;

	while (fake.count < count) {
		turn();
		if (clock_get_ns(CLOCK_MONOTONIC) > until)
			fail_msg("%zu of %zu calls in %d s", fake.count, count, SECONDS);
	}
}

/* Its handles are closed and nothing waits: only the timer that was never started is left. */
static bool is_quiet(void)
{
	return !uv_loop_alive(&loop);
}

static void wait_quiet(void)
{
	uint64_t until = clock_get_ns(CLOCK_MONOTONIC) + SECONDS * NS_PER_S;

	while (!is_quiet()) {
		turn();
		if (clock_get_ns(CLOCK_MONOTONIC) > until)
			fail_msg("it is still at it after %d s", SECONDS);
	}
	serve();
}

static const struct call *get_call(size_t index, const char *method, const char *unit)
{
	assert_true(index < fake.count);
	assert_string_equal(fake.calls[index].method, method);
	assert_string_equal(fake.calls[index].unit, unit);
	return &fake.calls[index];
}

static void check_weight(size_t index, const char *unit, uint64_t weight)
{
	assert_int_equal(get_call(index, "SetUnitProperties", unit)->weight, weight);
}

static struct cgroup_bus buses[2];

static int setup(void **state)
{
	log_set_level(LOG_LEVEL_ERROR);
	memset(&fake, 0, sizeof fake);
	temp_make(dir);
	snprintf(address, sizeof address, "unix:path=%.90s/bus", dir);
	buses[0] = buses[1] = (struct cgroup_bus){address, false};
	listen_at(address + strlen("unix:path="));
	assert_int_equal(uv_loop_init(&loop), 0);
	assert_int_equal(cgroup_open(&loop, "hpzd.service", buses, 2, &cgroup), 0);
	return 0;
}

static int teardown(void **state)
{
	cgroup_close(cgroup);
	uv_run(&loop, UV_RUN_DEFAULT);
	assert_int_equal(uv_loop_close(&loop), 0);
	drop_peer();
	close(fake.listener);
	temp_remove(dir);
	return 0;
}

/* A worker with something to do. */
static void start_worker(int32_t node, pid_t pid, enum worker_level level)
{
	cgroup_join(cgroup, node, pid);
	cgroup_set_level(cgroup, node, (int)level);
}

/* ---- tests ---- */

static void test_nobody(void **state)
{
	cgroup_join(NULL, 0, 1000);
	cgroup_set_level(NULL, 0, WORKER_LEVEL_URGENT);
	cgroup_leave(NULL, 0, 1000);
	cgroup_close(NULL);
	/* Nobody to say it of. */
	cgroup_set_level(cgroup, 0, WORKER_LEVEL_URGENT);
	cgroup_set_level(cgroup, 0, CGROUP_AT_REST);
	cgroup_leave(cgroup, 0, 1000);
	assert_true(is_quiet());
	assert_int_equal(fake.connections, 0);
}

/* Whoever started the test may be one, hpzd's child is none. */
static void test_unit(void **state)
{
	char pid[16];

	unsetenv("SYSTEMD_EXEC_PID");
	assert_null(cgroup_find_unit());
	snprintf(pid, sizeof pid, "%d", (int)getppid());
	setenv("SYSTEMD_EXEC_PID", pid, 1);
	assert_null(cgroup_find_unit());
	setenv("SYSTEMD_EXEC_PID", "nonsense", 1);
	assert_null(cgroup_find_unit());
	unsetenv("SYSTEMD_EXEC_PID");
}

static void test_start(void **state)
{
	start_worker(0, 1000, WORKER_LEVEL_REFILL);
	wait_calls(3);
	check_weight(0, "hpz.slice", 50);
	const struct call *call = get_call(1, "StartTransientUnit", SCOPE0);
	assert_int_equal(call->pid_count, 1);
	assert_int_equal(call->pids[0], 1000);
	assert_string_equal(call->properties, "Description=hpzd's workers of node 0\n"
					      "Slice=hpz.slice\n"
					      "CollectMode=inactive-or-failed\n"
					      "DevicePolicy=closed\n"
					      "DelegateControllers=cpu\n"
					      "Before=hpzd.service\n");
	check_weight(2, SCOPE0, 50);
	wait_quiet();
	assert_int_equal(fake.count, 3);
	assert_int_equal(fake.connections, 1);
	/* Nothing has changed. */
	cgroup_set_level(cgroup, 0, CGROUP_AT_REST);
	cgroup_set_level(cgroup, 0, WORKER_LEVEL_REFILL);
	assert_true(is_quiet());
	assert_int_equal(fake.connections, 1);
}

static void test_more_workers(void **state)
{
	start_worker(0, 1000, WORKER_LEVEL_REFILL);
	wait_calls(3);
	wait_quiet();
	cgroup_join(cgroup, 0, 1001);
	cgroup_join(cgroup, 0, 1002);
	wait_quiet();
	/* The second came while the first was under way. */
	assert_int_equal(get_call(3, "AttachProcessesToUnit", SCOPE0)->pids[0], 1001);
	const struct call *call = get_call(4, "AttachProcessesToUnit", SCOPE0);
	assert_int_equal(call->pid_count, 1);
	assert_int_equal(call->pids[0], 1002);
	assert_int_equal(fake.count, 5);
	/* The last one takes the scope with it. */
	for (pid_t pid = 1000; pid <= 1002; pid++)
		cgroup_leave(cgroup, 0, pid);
	start_worker(0, 1003, WORKER_LEVEL_REFILL);
	wait_quiet();
	assert_int_equal(get_call(5, "StartTransientUnit", SCOPE0)->pids[0], 1003);
	check_weight(6, SCOPE0, 50);
	assert_int_equal(fake.count, 7);
}

static void test_levels(void **state)
{
	start_worker(0, 1000, WORKER_LEVEL_REFILL);
	wait_calls(3);
	wait_quiet();
	cgroup_set_level(cgroup, 0, WORKER_LEVEL_URGENT);
	wait_quiet();
	check_weight(3, "hpz.slice", 100);
	check_weight(4, SCOPE0, 100);
	/* A moment's idleness is nothing to tell. */
	cgroup_set_level(cgroup, 0, WORKER_LEVEL_IDLE);
	cgroup_set_level(cgroup, 0, WORKER_LEVEL_URGENT);
	wait_quiet();
	assert_int_equal(fake.count, 5);
	/* What lasts is, even if it is over by then. */
	cgroup_set_level(cgroup, 0, WORKER_LEVEL_IDLE);
	cgroup_set_level(cgroup, 0, CGROUP_AT_REST);
	assert_false(is_quiet());
	wait_quiet();
	check_weight(5, "hpz.slice", 0);
	check_weight(6, SCOPE0, 0);
	assert_int_equal(fake.count, 7);
}

/* The slice is as heavy as the heaviest of those that work. */
static void test_nodes(void **state)
{
	start_worker(0, 1000, WORKER_LEVEL_IDLE);
	start_worker(1, 1100, WORKER_LEVEL_URGENT);
	wait_quiet();
	uint64_t slice = NO_WEIGHT, scopes[2] = {NO_WEIGHT, NO_WEIGHT};
	for (size_t i = 0; i < fake.count; i++) {
		const struct call *call = &fake.calls[i];
		if (call->weight != NO_WEIGHT)
			*(strcmp(call->unit, "hpz.slice") == 0    ? &slice
				: strcmp(call->unit, SCOPE0) == 0 ? &scopes[0]
								  : &scopes[1]) = call->weight;
	}
	assert_int_equal(slice, 100);
	assert_int_equal(scopes[0], 0);
	assert_int_equal(scopes[1], 100);
	size_t before = fake.count;
	cgroup_set_level(cgroup, 1, CGROUP_AT_REST);
	wait_quiet();
	check_weight(before, "hpz.slice", 0);
	assert_int_equal(fake.count, before + 1);
}

static void test_no_idle_weight(void **state)
{
	fake.is_before_252 = true;
	start_worker(0, 1000, WORKER_LEVEL_IDLE);
	wait_quiet();
	check_weight(0, "hpz.slice", 0);
	check_weight(1, "hpz.slice", 1);
	get_call(2, "StartTransientUnit", SCOPE0);
	check_weight(3, SCOPE0, 1);
	assert_int_equal(fake.count, 4);
}

/* A worker of the last hpzd that cannot die holds the scope: ours go there, too. */
static void test_scope_is_there(void **state)
{
	fake.errors = 1;
	fake.error = MANAGER ".UnitExists";
	start_worker(0, 1000, WORKER_LEVEL_REFILL);
	wait_quiet();
	get_call(1, "StartTransientUnit", SCOPE0);
	assert_int_equal(get_call(2, "AttachProcessesToUnit", SCOPE0)->pids[0], 1000);
	check_weight(3, SCOPE0, 50);
	assert_int_equal(fake.count, 4);
}

/* It has gone between two looks, or is not there yet: again, later. */
static void test_scope_is_gone(void **state)
{
	start_worker(0, 1000, WORKER_LEVEL_REFILL);
	wait_calls(3);
	wait_quiet();
	fake.errors = 1;
	fake.error = SD_BUS_ERROR_INVALID_ARGS;
	cgroup_join(cgroup, 0, 1001);
	wait_calls(4);
	cgroup_leave(cgroup, 0, 1000);
	wait_quiet();
	get_call(3, "AttachProcessesToUnit", SCOPE0);
	const struct call *call = get_call(4, "StartTransientUnit", SCOPE0);
	assert_int_equal(call->pid_count, 1);
	assert_int_equal(call->pids[0], 1001);
	check_weight(5, SCOPE0, 50);
}

/* It died before its turn: its number is nobody's. */
static void test_dead_worker(void **state)
{
	cgroup_join(cgroup, 0, 1000);
	cgroup_join(cgroup, 0, 1001);
	cgroup_leave(cgroup, 0, 1000);
	cgroup_set_level(cgroup, 0, WORKER_LEVEL_REFILL);
	wait_quiet();
	const struct call *call = get_call(1, "StartTransientUnit", SCOPE0);
	assert_int_equal(call->pid_count, 1);
	assert_int_equal(call->pids[0], 1001);
}

static void test_refused(void **state)
{
	fake.errors = UINT32_MAX;
	fake.error = SD_BUS_ERROR_ACCESS_DENIED;
	start_worker(0, 1000, WORKER_LEVEL_REFILL);
	wait_quiet(); /* it gives up */
	size_t count = fake.count;
	assert_in_range(count, 3, CALLS / 2);
	/* Another worker, another try. */
	fake.errors = 0;
	cgroup_join(cgroup, 0, 1001);
	wait_quiet();
	assert_int_equal(get_call(count, "StartTransientUnit", SCOPE0)->pids[0], 1001);
}

/* The manager hangs up at every call, or nobody is there. */
static void test_lost(void **state)
{
	fake.is_hanging_up = true;
	start_worker(0, 1000, WORKER_LEVEL_REFILL);
	wait_quiet();
	assert_in_range(fake.connections, 2, CALLS);
	fake.is_hanging_up = false;
	close(fake.listener);
	fake.listener = -1;
	size_t count = fake.count;
	start_worker(0, 1001, WORKER_LEVEL_URGENT);
	wait_quiet();
	assert_int_equal(fake.count, count);
}

static void test_second_bus(void **state)
{
	char other[160];

	snprintf(other, sizeof other, "%s-of-nobody", address);
	buses[0].address = other;
	start_worker(0, 1000, WORKER_LEVEL_REFILL);
	wait_quiet();
	assert_int_equal(fake.count, 3);
}

/* Closed with a call under way, by teardown: nothing waits for the answer. */
static void test_closed_early(void **state)
{
	fake.is_mute = true;
	start_worker(0, 1000, WORKER_LEVEL_REFILL);
	wait_calls(1);
	cgroup_join(cgroup, 0, 1001);
	cgroup_leave(cgroup, 0, 1000);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_nobody),
		TEST(test_unit),
		TEST(test_start),
		TEST(test_more_workers),
		TEST(test_levels),
		TEST(test_nodes),
		TEST(test_no_idle_weight),
		TEST(test_scope_is_there),
		TEST(test_scope_is_gone),
		TEST(test_dead_worker),
		TEST(test_refused),
		TEST(test_lost),
		TEST(test_second_bus),
		TEST(test_closed_early),
	};
	return cmocka_run_group_tests_name("cgroup", tests, NULL, NULL);
}
