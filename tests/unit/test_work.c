/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_work.c - segments become clean in parts, go on where they were, and come to one verdict; on real
 * workers.
 */
#include "harness.h"

#include <signal.h>
#include <sys/wait.h>

#define MIB   ((uint64_t)1 << 20)
#define PAGES (300 * MIB / STORE_PAGE) /* two parts */

static struct pool *pool;

static int setup(void **state)
{
	harness_open(NULL);
	/* Of another length they would not be cleared. */
	pool = harness_add_pool(&(struct config_pool){.name = "p",
		.page_size = STORE_PAGE,
		.pages = 2 * PAGES,
		.max_pages = 4 * PAGES,
		.stock = {{PAGES * STORE_PAGE, 2}},
		.stock_count = 1});
	return 0;
}

static int teardown(void **state)
{
	harness_close();
	return 0;
}

static struct pool_segment *put_dirty(void)
{
	harness_put_clean(pool, 1, PAGES);
	struct pool_segment *segment = pool_find_clean(pool, PAGES);
	int fd = pool_open_segment(segment);
	static char dirt[MIB]; /* by single pages it is the longest part of these tests */

	memset(dirt, 0x5a, sizeof dirt);
	for (uint64_t at = 0; at < PAGES * STORE_PAGE; at += sizeof dirt)
		assert_int_equal(pwrite(fd, dirt, sizeof dirt, (off_t)at), sizeof dirt);
	close(fd);
	assert_int_equal(pool_set_state(segment, SEGMENT_DIRTY), 0);
	reconcile_mark(&harness.reconcile);
	return segment;
}

static bool is_clean(void *user)
{
	return pool->segments[SEGMENT_CLEAN] == 1;
}

static bool is_empty(void *user)
{
	return pool->segments[SEGMENT_CLEAN] + pool->segments[SEGMENT_DIRTY] == 0;
}

static bool is_under_way(void *user)
{
	return pool->jobs > 0 && !pool->is_calibrating;
}

static bool has_method(void *user)
{
	return work_get_method(&harness.reconcile.work, pool) >= 0;
}

static void expect_zero(void)
{
	struct pool_segment *segment = pool_find_clean(pool, PAGES);
	int fd = pool_open_segment(segment);
	static char bytes[MIB];

	for (uint64_t at = 0; at < PAGES * STORE_PAGE; at += sizeof bytes) {
		assert_int_equal(pread(fd, bytes, sizeof bytes, (off_t)at), sizeof bytes);
		assert_true(zero_is_clear(bytes, sizeof bytes, NULL));
	}
	close(fd);
	assert_int_equal(pool->jobs, 0);
	assert_int_equal(pool->clear_jobs, 0);
	assert_true(list_is_empty(&pool->active));
}

/* Both parts at once; it was measured on it before. */
static void test_parts(void **state)
{
	if (geteuid() != 0)
		return; /* only root opens a file of mode 0 again */
	crew_set_size(harness.crew, 0, 2);
	put_dirty();
	harness_release();
	harness_run_until(is_clean, NULL);
	expect_zero();
	const struct work_calibration *calibration =
		work_find_calibration(&harness.reconcile.work, 0, STORE_PAGE);
	assert_int_equal(calibration->page_size, STORE_PAGE);
	assert_true(harness.reconcile.work.bytes_cleared >= PAGES * STORE_PAGE);
}

static void keep_waiting(void *user)
{
}

/* Of two, the one that somebody waits for is urgent; when nobody does any more, none is. */
static void test_wanted(void **state)
{
	if (geteuid() != 0)
		return; /* only root opens a file of mode 0 again */
	harness_release();
	harness_run_until(has_method, NULL);
	crew_set_hold(harness.crew, true);
	pool->is_calibrated = true;
	struct pool_segment *segments[] = {put_dirty(), put_dirty()};
	harness_turn();
	assert_true(segments[0]->is_busy || segments[1]->is_busy);
	assert_false(segments[0]->is_wanted || segments[1]->is_wanted);
	pool->waiting = 1;
	pool->waiting_pages = PAGES;
	harness.reconcile.callbacks.serve = keep_waiting;
	reconcile_mark(&harness.reconcile);
	harness_turn();
	assert_int_equal(segments[0]->is_wanted + segments[1]->is_wanted, 1);
	struct pool_segment *wanted = segments[segments[1]->is_wanted];
	assert_true(wanted->is_busy);
	pool->waiting = 0;
	reconcile_mark(&harness.reconcile);
	harness_turn();
	assert_false(segments[0]->is_wanted || segments[1]->is_wanted);
}

static pid_t find_worker(void)
{
	char path[64];
	int pid = 0;

	snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
	FILE *file = fopen(path, "re");
	while (file && fscanf(file, "%d", &pid) == 1)
		;
	if (file)
		fclose(file);
	return pid;
}

/* A worker's death costs its part; the third ends the segment. */
static void test_deaths(void **state)
{
	if (geteuid() != 0)
		return; /* only root opens a file of mode 0 again */
	harness_release();
	harness_run_until(has_method, NULL);
	pool->is_calibrated = true;
	for (unsigned i = 0; i < 2; i++) {
		put_dirty();
		harness_run_until(is_under_way, NULL);
		pid_t pid = find_worker();
		assert_true(pid > 1);
		assert_int_equal(kill(pid, SIGKILL), 0);
		harness_run_until(is_clean, NULL);
		expect_zero();
		assert_int_equal(pool_discard(pool_find_clean(pool, PAGES)), 0);
	}
}

/* Drained meanwhile: it stops, and goes back to the kernel. */
static void test_drain(void **state)
{
	if (geteuid() != 0)
		return; /* only root opens a file of mode 0 again */
	harness_release();
	harness_run_until(has_method, NULL);
	pool->is_calibrated = true;
	put_dirty();
	harness_run_until(is_under_way, NULL);
	pool->is_draining = true;
	reconcile_mark(&harness.reconcile);
	harness_run_until(is_empty, NULL);
	assert_int_equal(pool->jobs, 0);
	assert_int_equal(pool->clear_jobs, 0);
}

static bool is_measured(void *user)
{
	return !reconcile_is_calibrating(&harness.reconcile, "");
}

/* On request a clean one is made dirty for it, and comes back. */
static void test_calibrate(void **state)
{
	if (geteuid() != 0)
		return; /* only root opens a file of mode 0 again */
	harness_release();
	harness_run_until(has_method, NULL);
	assert_int_equal(reconcile_calibrate(&harness.reconcile, ""), 0); /* nothing to measure on */
	assert_false(reconcile_is_calibrating(&harness.reconcile, ""));
	harness_put_clean(pool, 1, PAGES);
	assert_int_equal(work_find_calibration(&harness.reconcile.work, 0, STORE_PAGE)->page_size, 0);
	assert_int_equal(reconcile_calibrate(&harness.reconcile, "q"), 0);
	assert_int_equal(reconcile_calibrate(&harness.reconcile, "p"), 1);
	harness_run_until(is_measured, NULL);
	assert_int_equal(
		work_find_calibration(&harness.reconcile.work, 0, STORE_PAGE)->page_size, STORE_PAGE);
	harness_run_until(is_clean, NULL);
	expect_zero();
}

/* The operator's method, and what is used where it does not work. */
static void test_method(void **state)
{
	struct work *work = &harness.reconcile.work;

	harness_release();
	harness_run_until(has_method, NULL);
	work_set_method(work, "memset");
	assert_string_equal(zero_methods[work_get_method(work, pool)].name, "memset");
	work_set_method(work, "auto");
	int best = work_get_method(work, pool);
	for (size_t i = 0; i < zero_method_count; i++) {
		bool is_usable = work->calibrations[0].done.gb_per_s[i] > 0;
		work_set_method(work, zero_methods[i].name);
		assert_int_equal(work_get_method(work, pool), is_usable ? (int)i : best);
	}
}

/* The pool lacks the rest of its stock: reconcile, which asks only at rest, does not. */
static bool is_put_off(void *user)
{
	work_zero_free(&harness.reconcile.work, pool);
	return pool->zero_free_retry_ns > 0;
}

/*
 * A stand-in for the kernel's zeroable_hugepages: five pages could be zeroed, and after what was written one.
 * One is always left, so it is not asked for ever.
 */
static void test_zero_free(void **state)
{
	char root[TEMP_PATH];
	struct host host = *store_get_host();

	temp_make(root);
	temp_put(root, "sys/kernel/mm/hugepages/hugepages-4kB/zeroable_hugepages", "5\n");
	host.root = root;
	harness_release();
	harness_run_until(has_method, NULL);
	harness_put_clean(pool, 1, PAGES);
	harness.reconcile.work.host = &host;
	work_zero_free(&harness.reconcile.work, pool);
	harness_run_until(is_put_off, NULL);
	assert_int_equal(harness.reconcile.work.bytes_zeroed_free / STORE_PAGE, 6);
	assert_false(pool->is_zeroing_free);
	harness.reconcile.work.may_zero_free = false;
	pool->zero_free_retry_ns = 0;
	work_zero_free(&harness.reconcile.work, pool);
	assert_false(pool->is_zeroing_free);
	harness.reconcile.work.host = store_get_host();
	temp_remove(root);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_parts),
		TEST(test_wanted),
		TEST(test_deaths),
		TEST(test_drain),
		TEST(test_calibrate),
		TEST(test_method),
		TEST(test_zero_free),
	};
	char dir[TEMP_PATH];

	if (!store_make_dir(dir)) /* st_blocks means nothing elsewhere */
		return 77;
	temp_remove(dir);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
