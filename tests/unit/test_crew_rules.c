/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * test_crew_rules.c - what living workers (HPZ_TEST_HPZD) are told: CPUs, off, the cap, pauses. The pressure
 * is of a stand-in /proc.
 */
#include "temp.h"
#include "crew.h"
#include "crew_rules.h"
#include "log.h"

#include <sched.h>
#include <sys/mman.h>

#define PAGE    ((uint64_t)4096)
#define MIB     ((uint64_t)1 << 20)
#define SECONDS 30 /* for anything to happen, on a busy machine */

static uv_loop_t loop;
static struct crew *crew;
static struct host host = {.root = (char *)""};
static struct config config;
static char dir[TEMP_PATH];
static struct worker_done answers[8];
static size_t answer_count;
static bool is_stopped;

static int setup(void **state)
{
	char error[256];

	log_set_level((enum log_level)0);
	temp_make(dir);
	answer_count = 0;
	is_stopped = false;
	assert_int_equal(config_read("/nonexistent", true, &config, error, sizeof error), 0);
	assert_int_equal(host_init(&host, NULL), 0);
	assert_int_equal(uv_loop_init(&loop), 0);
	assert_int_equal(crew_init(&loop, getenv("HPZ_TEST_HPZD"), &crew), 0);
	assert_int_equal(crew_open_list(crew, dir), 0);
	crew_set_hold(crew, false);
	return 0;
}

static void on_stopped(void *user)
{
	is_stopped = true;
}

static int teardown(void **state)
{
	crew_stop(crew, on_stopped, NULL);
	assert_int_equal(uv_run(&loop, UV_RUN_DEFAULT), 0);
	assert_true(is_stopped);
	crew_free(crew);
	assert_int_equal(uv_loop_close(&loop), 0);
	host_deinit(&host);
	temp_remove(dir);
	return 0;
}

/* ---- the loop ---- */

static void on_tick(uv_timer_t *timer)
{
}

static void wait_for(bool (*condition)(uint64_t number), uint64_t number)
{
	uint64_t end = clock_get_ns(CLOCK_MONOTONIC) + SECONDS * NS_PER_S;
	uv_timer_t tick;

	uv_timer_init(&loop, &tick);
	uv_timer_start(&tick, on_tick, 5, 5);
	while (!condition(number) && clock_get_ns(CLOCK_MONOTONIC) < end)
		uv_run(&loop, UV_RUN_ONCE);
	uv_close((uv_handle_t *)&tick, NULL);
	uv_run(&loop, UV_RUN_NOWAIT);
	assert_true(condition(number));
}

static struct crew_node_state get_node(void)
{
	struct crew_node_state state;
	assert_true(crew_get_node_state(crew, 0, &state));
	return state;
}

static bool has_answers(uint64_t count)
{
	return answer_count >= count;
}

static bool has_touched(uint64_t bytes)
{
	return atomic_load(&get_node().rules->bytes) >= bytes;
}

static bool is_paused(uint64_t paused)
{
	return atomic_load(&get_node().rules->paused) == paused;
}

static bool is_past(uint64_t at_ns)
{
	return clock_get_ns(CLOCK_MONOTONIC) >= at_ns;
}

static void run_for(uint64_t ms)
{
	wait_for(is_past, clock_get_ns(CLOCK_MONOTONIC) + ms * NS_PER_MS);
}

static void on_done(struct crew_job *job, const struct worker_done *done, void *user)
{
	assert_true(answer_count < ARRAY_SIZE(answers));
	answers[answer_count++] = *done;
}

static struct crew_job *submit_fill(uint64_t bytes)
{
	struct crew_job *job = crew_new_job(WORKER_MEMORY, WORKER_FILL);

	assert_non_null(job);
	job->fds[WORKER_FD_SEGMENT] = memfd_create("test", MFD_CLOEXEC);
	job->wire.page_size = PAGE;
	job->wire.length = bytes / PAGE;
	job->done = on_done;
	crew_submit(crew, job);
	return job;
}

static void set_rules(void)
{
	crew_set_rules(crew, &host, &config.clear);
}

static pid_t get_pid(void)
{
	char *text = temp_read(dir, "workers", NULL);
	pid_t pid = atoi(text);

	free(text);
	assert_true(pid > 1);
	return pid;
}

/* ---- CPUs ---- */

static void expect_cpus(int32_t node, const char *cpus, const char *expected)
{
	struct host_cpus found, wanted;

	crew_rules_find_cpus(&host, node, cpus, &found);
	assert_int_equal(host_parse_cpulist(expected, &wanted), 0);
	assert_memory_equal(&found, &wanted, sizeof found);
}

static void test_find_cpus(void **state)
{
	host_deinit(&host);
	temp_put(dir, "sys/devices/system/node/node0/cpulist", "0-3\n");
	temp_put(dir, "sys/devices/system/node/node1/cpulist", "4-7\n");
	temp_put(dir, "sys/devices/system/node/node2/cpulist", "\n"); /* memory only */
	assert_int_equal(host_init(&host, dir), 0);
	expect_cpus(0, "all", "0-3");
	expect_cpus(1, "all", "4-7");
	expect_cpus(2, "all", "");
	expect_cpus(0, "2-5", "2-3");
	expect_cpus(1, "2-5", "4-5");
	/* Rather far away than where the operator does not want them. */
	expect_cpus(1, "0,2", "0,2");
	expect_cpus(2, "0,2", "0,2");
	expect_cpus(77, "all", "");
}

static void expect_on(pid_t pid, int cpu)
{
	cpu_set_t set;

	assert_int_equal(sched_getaffinity(pid, sizeof set, &set), 0);
	assert_int_equal(CPU_COUNT(&set), 1);
	assert_true(CPU_ISSET(cpu, &set));
}

/* In mid-job, and those that are started later. */
static void test_moved_live(void **state)
{
	cpu_set_t ours;
	int first = -1, last = -1;

	assert_int_equal(sched_getaffinity(0, sizeof ours, &ours), 0);
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		if (!CPU_ISSET(cpu, &ours))
			continue;
		first = first < 0 ? cpu : first;
		last = cpu;
	}
	config.clear.rate_bytes_per_s = MIB;
	snprintf(config.clear.cpus, sizeof config.clear.cpus, "%d", first);
	set_rules();
	submit_fill(64 * MIB);
	wait_for(has_touched, WORKER_FILL_BATCH);
	expect_on(get_pid(), first);
	snprintf(config.clear.cpus, sizeof config.clear.cpus, "%d", last);
	set_rules();
	expect_on(get_pid(), last);
	assert_int_equal(answer_count, 0);
	config.clear.rate_bytes_per_s = 0;
	set_rules();
	wait_for(has_answers, 1);
	assert_int_equal(answers[0].error, 0);
}

/* ---- off and the cap ---- */

static void test_off(void **state)
{
	config.clear.is_enabled = false;
	set_rules();
	struct crew_job *job = submit_fill(8 * MIB);
	run_for(300);
	assert_int_equal(atomic_load(&get_node().rules->bytes), 0);
	assert_int_equal(get_node().workers, 1);
	/* Stopped without having been begun; the next is done once it may be. */
	crew_cancel(crew, job);
	wait_for(has_answers, 1);
	assert_int_equal(answers[0].error, -ECANCELED);
	submit_fill(8 * MIB);
	run_for(100);
	assert_int_equal(answer_count, 1);
	config.clear.is_enabled = true;
	set_rules();
	wait_for(has_answers, 2);
	assert_int_equal(answers[1].error, 0);
	assert_int_equal(atomic_load(&get_node().rules->bytes), 8 * MIB);
}

static void test_cap(void **state)
{
	uint64_t start_ns = clock_get_ns(CLOCK_MONOTONIC);

	config.clear.rate_bytes_per_s = 64 * MIB;
	set_rules();
	submit_fill(PRESSURE_BURST_BYTES + 32 * MIB);
	wait_for(has_answers, 1);
	assert_int_equal(answers[0].error, 0);
	assert_true(clock_get_ns(CLOCK_MONOTONIC) - start_ns >= NS_PER_S / 2 - 50 * NS_PER_MS);
	/* What was waited for at a low rate is not waited for at a high one. */
	config.clear.rate_bytes_per_s = MIB;
	set_rules();
	submit_fill(1024 * MIB);
	wait_for(has_touched, PRESSURE_BURST_BYTES + 34 * MIB);
	run_for(100);
	config.clear.rate_bytes_per_s = 0;
	set_rules();
	wait_for(has_answers, 2);
	assert_int_equal(answers[1].error, 0);
}

/* Held up by whatever it may be, hpzd's end is not. */
static void test_stop_while_held(void **state)
{
	config.clear.is_enabled = false;
	set_rules();
	submit_fill(8 * MIB);
	run_for(100);
	/* teardown() stops the crew, with the job under way */
}

/* ---- pressure ---- */

static void put_pressure(const char *resource, uint64_t total_us)
{
	char name[64], text[256];

	snprintf(name, sizeof name, "proc/pressure/%s", resource);
	snprintf(text, sizeof text, "some avg10=0.00 avg60=0.00 avg300=0.00 total=%llu\n",
		(unsigned long long)total_us);
	temp_put(dir, name, text);
}

static uint64_t total_us;
static const char *rising;

/* The stand-in rises with time, as that of a machine whose processes wait all the time. */
static bool is_paused_by_rise(uint64_t paused)
{
	total_us = clock_get_ns(CLOCK_MONOTONIC) / 1000;
	put_pressure(rising, total_us);
	return is_paused(paused);
}

static void check_psi(const char *resource, uint32_t paused)
{
	double cpu, memory;

	rising = resource;
	set_rules();
	wait_for(is_paused_by_rise, paused);
	crew_get_psi(crew, &cpu, &memory);
	assert_true((paused == PRESSURE_PAUSE_CPU ? cpu : memory) > 40);
	run_for(50); /* the batch under way */
	uint64_t bytes = atomic_load(&get_node().rules->bytes);
	rising = NULL;
	/* It rises no more: on again. */
	wait_for(is_paused, 0);
	wait_for(has_touched, bytes + WORKER_FILL_BATCH);
}

static void test_psi(void **state)
{
	host_deinit(&host);
	temp_put(dir, "sys/devices/system/cpu/online", "0-63\n");
	temp_put(dir, "proc/stat", "cpu  100 0 0 0 0 0 0 0 0 0\n");
	put_pressure("cpu", 0);
	put_pressure("memory", 0);
	assert_int_equal(host_init(&host, dir), 0);
	config.clear.rate_bytes_per_s = 8 * MIB;
	config.clear.psi_cpu = (struct config_psi){true, 40, 20};
	set_rules();
	struct crew_job *job = submit_fill(4096 * MIB);
	wait_for(has_touched, WORKER_FILL_BATCH);
	check_psi("cpu", PRESSURE_PAUSE_CPU);
	config.clear.psi_cpu.is_on = false;
	config.clear.psi_memory = (struct config_psi){true, 40, 20};
	check_psi("memory", PRESSURE_PAUSE_MEMORY);
	/* A rule that is gone holds nothing up. */
	rising = "memory";
	wait_for(is_paused_by_rise, PRESSURE_PAUSE_MEMORY);
	config.clear.psi_memory.is_on = false;
	set_rules();
	assert_true(is_paused(0));
	/* A kernel that does not count: nothing is held up. */
	temp_remove(dir);
	assert_int_equal(mkdir(dir, 0700), 0);
	config.clear.psi_memory.is_on = true;
	set_rules();
	run_for(600);
	assert_true(is_paused(0));
	crew_cancel(crew, job);
	wait_for(has_answers, 1);
	/* Without work nobody looks: the loop has nothing to wake up for but its workers. */
	run_for(600);
	assert_int_equal(uv_loop_alive(&loop), 1);
	assert_int_equal(uv_backend_timeout(&loop), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_find_cpus, setup, teardown),
		cmocka_unit_test_setup_teardown(test_moved_live, setup, teardown),
		cmocka_unit_test_setup_teardown(test_off, setup, teardown),
		cmocka_unit_test_setup_teardown(test_cap, setup, teardown),
		cmocka_unit_test_setup_teardown(test_stop_while_held, setup, teardown),
		cmocka_unit_test_setup_teardown(test_psi, setup, teardown),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
