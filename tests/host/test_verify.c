/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * test_verify.c - clean memory is read by a real worker before it is handed out, and all of it when the
 * operator asks: what is zero stays, what is not is retired and told of. On huge pages, as a worker reads
 * nothing else; the machine's counters are the test's own, so that nothing is filled meanwhile.
 */
#define MACHINE_PAGE "2048kB"
#include "machine.h"

#include "huge.h"
#include <sys/mman.h>

#define SEGMENTS      3
#define SEGMENT_PAGES ((uint64_t)4)
#define PAGES         (SEGMENTS * SEGMENT_PAGES)

static struct pool *pool;
static struct verify verify;
static int request; /* only its address counts */
static const struct config_pool config = {
	.name = "p",
	.page_size = HUGE_PAGE,
	.pages = PAGES,
	.max_pages = PAGES,
	.stock = {{SEGMENT_PAGES * HUGE_PAGE, SEGMENTS}},
	.stock_count = 1,
	.verify = CONFIG_VERIFY_FULL,
};

static int setup(void **state)
{
	machine_open(PAGES);
	machine_put("free_hugepages", 0);
	harness_mount = huge.dir;
	harness_open(NULL);
	pool = harness_add_pool(&config);
	harness_put_clean(pool, SEGMENTS, SEGMENT_PAGES);
	harness_release();
	verify_init(&verify, &harness.reconcile);
	return 0;
}

/* Of the mount, not the mount. */
static void remove_files(void)
{
	char path[PATH_MAX];

	snprintf(path, sizeof path, "%s/hpz", huge.dir);
	temp_remove(path);
	snprintf(path, sizeof path, "%s/hpz-out", huge.dir);
	temp_remove(path);
}

static int teardown(void **state)
{
	harness_close();
	harness_mount = NULL;
	machine_close();
	remove_files();
	return 0;
}

/* The n-th clean segment. */
static struct pool_segment *get_clean(unsigned n)
{
	struct list *at = pool_find_clean(pool, 4)->class->segments[SEGMENT_CLEAN].next;

	while (n-- > 0)
		at = at->next;
	return CONTAINER_OF(at, struct pool_segment, link);
}

/* One byte, by a name that nobody watches. */
static void spoil(const struct pool_segment *segment, uint64_t offset)
{
	char name[SEGMENT_NAME_MAX], own[PATH_MAX];

	pool_get_segment_name(segment, name);
	temp_path(huge.dir, "own", own);
	assert_int_equal(linkat(pool->dirs.fds[SEGMENT_CLEAN], name, AT_FDCWD, own, 0), 0);
	int fd = open(own, O_RDWR | O_CLOEXEC);
	assert_true(fd >= 0);
	char *bytes = mmap(NULL, segment->pages * HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_true(bytes != MAP_FAILED);
	bytes[offset] = '\x80';
	munmap(bytes, segment->pages * HUGE_PAGE);
	close(fd);
	assert_int_equal(unlink(own), 0);
}

static bool is_read(void *user)
{
	const struct pool_segment *segment = user;
	return !segment->is_busy;
}

static bool has_hit(void *user)
{
	return pool->verify_hits > 0;
}

/* ---- before it is handed out ---- */

/* While it is read it is nobody else's, and afterwards only whose it was to be. */
static struct pool_segment *get_kept(void)
{
	struct pool_segment *kept[2];

	assert_int_equal(pool_list_kept(pool, &request, kept, ARRAY_SIZE(kept)), 1);
	return kept[0];
}

static void test_zero(void **state)
{
	struct pool_segment *segment = get_clean(0);

	assert_int_equal(verify_segment(&verify, segment), 0);
	assert_ptr_equal(segment->keeper, &verify);
	assert_ptr_not_equal(pool_find_clean(pool, 4), segment);
	pool_keep(segment, &request); /* a request wants it */
	harness_run_until(is_read, segment);
	assert_ptr_equal(get_kept(), segment);
	assert_true(pool->verified_pages == 4 && pool->verify_hits == 0);
	pool_keep(segment, NULL);
	/* And if nobody wants it any more, it is anybody's. */
	assert_int_equal(verify_segment(&verify, segment), 0);
	harness_run_until(is_read, segment);
	assert_null(segment->keeper);
	assert_int_equal(pool->segments[SEGMENT_CLEAN], 3);
	assert_int_equal(pool->pages[SEGMENT_CLEAN], 12);
}

static void test_not_zero(void **state)
{
	struct pool_segment *segment = get_clean(1);
	char name[SEGMENT_NAME_MAX];

	spoil(segment, 3 * HUGE_PAGE + 5);
	pool_get_segment_name(segment, name);
	assert_int_equal(verify_segment(&verify, segment), 0);
	pool_keep(segment, &request);
	harness_run_until(has_hit, NULL);
	assert_int_equal(pool->verify_hits, 1);
	assert_int_equal(pool->retired_pages, 4);
	struct pool_segment *kept[1];
	assert_int_equal(pool_list_kept(pool, &request, kept, 1), 0); /* the request finds nothing */
	assert_int_equal(pool->segments[SEGMENT_CLEAN], 2);
	assert_false(store_has(huge.dir, "clean", name));
	assert_non_null(strstr(pool->alarm, "NOT ZERO at offset 6291461"));
}

static void test_dropped(void **state)
{
	struct pool_segment *segment = get_clean(0);

	assert_int_equal(verify_segment(&verify, segment), 0);
	pool_keep(segment, &request);
	verify_drop(&verify, segment); /* the request has gone */
	harness_run_until(is_read, segment);
	assert_null(segment->keeper);
	/* Read already, only kept. */
	pool_keep(segment, &request);
	verify_drop(&verify, segment);
	assert_null(segment->keeper);
	assert_int_equal(pool->segments[SEGMENT_CLEAN], 3);
}

/* Somebody opens it just when it is to be read: it is not read, and not handed out. */
static void test_opened(void **state)
{
	struct pool_segment *segment = get_clean(0);
	char name[SEGMENT_NAME_MAX];

	pool_get_segment_name(segment, name);
	int fd = openat(pool->dirs.fds[SEGMENT_CLEAN], name, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_true(verify_segment(&verify, segment) < 0);
	assert_int_equal(segment->state, SEGMENT_DIRTY);
	assert_null(segment->keeper);
	close(fd);
}

/* ---- all of it ---- */

static bool is_over(void *user)
{
	struct verify_run *run = user;
	verify_step(&verify);
	return run->is_over;
}

static void test_run(void **state)
{
	struct verify_run run = {.pool = "p"}, all = {0}, other = {.pool = "q"};

	verify_start_run(&verify, &run);
	verify_start_run(&verify, &all);
	verify_start_run(&verify, &other);
	harness_run_until(is_over, &run);
	assert_false(all.is_over); /* one after the other */
	assert_true(run.segments == 3 && run.pages == PAGES && run.bytes == PAGES * HUGE_PAGE &&
		    run.hits == 0 && run.left == 0);
	harness_run_until(is_over, &all);
	assert_true(all.segments == 3 && all.hits == 0);
	harness_run_until(is_over, &other);
	assert_int_equal(other.segments, 0);
	assert_int_equal(pool->verified_pages, 24);
	assert_int_equal(pool->segments[SEGMENT_CLEAN], 3);
	assert_null(get_clean(0)->keeper);
	assert_false(verify_step(&verify));
}

static void test_run_with_hits(void **state)
{
	struct verify_run run = {.pool = "p"};
	uint64_t id = get_clean(1)->id;

	spoil(get_clean(1), 2 * HUGE_PAGE);
	spoil(get_clean(2), 4095);
	verify_start_run(&verify, &run);
	harness_run_until(is_over, &run);
	assert_true(run.segments == 3 && run.hits == 2 && run.left == 0);
	assert_int_equal(run.pages, 4 + 2); /* up to the first byte */
	assert_true(run.hit_segment == id && run.hit_offset == 2 * HUGE_PAGE);
	assert_string_equal(run.hit_pool, "p");
	assert_true(pool->verify_hits == 2 && pool->retired_pages == 8);
	assert_int_equal(pool->segments[SEGMENT_CLEAN], 1);
}

/* What leaves while it goes on is not waited for. */
static void test_run_and_lease(void **state)
{
	struct verify_run run = {0};

	/* In a request's hands, or reserved: as good as handed out, and for how long nobody knows. */
	pool_keep(get_clean(2), &request);
	verify_start_run(&verify, &run);
	verify_step(&verify);
	harness_run_until(is_over, &run);
	assert_true(run.segments == 2 && run.left == 1);
	struct pool_segment *segment = get_kept();
	assert_ptr_equal(segment->keeper, &request);
	assert_int_equal(pool_set_state(segment, SEGMENT_DIRTY), 0);
}

/* Whoever needs the very segment that is read for the operator gets it; the run goes on with it later. */
static void test_yield(void **state)
{
	struct verify_run run = {0};

	assert_false(verify_yield(&verify, pool, 1, 0));
	verify_start_run(&verify, &run);
	verify_step(&verify);
	assert_non_null(verify.segment);
	assert_false(verify_yield(&verify, pool, 5, 0)); /* too small */
	assert_false(verify_yield(&verify, pool, 1, 4)); /* too large */
	struct pool_segment *segment = verify.segment;
	assert_true(verify_yield(&verify, pool, 4, 0)); /* what is not begun ends at once */
	harness_run_until(is_read, segment);
	assert_null(segment->keeper);
	harness_run_until(is_over, &run);
	assert_true(run.segments == 3 && run.left == 0);
}

static void test_cancelled(void **state)
{
	struct verify_run run = {0}, next = {0}, never = {0};

	verify_start_run(&verify, &run);
	verify_start_run(&verify, &never);
	verify_start_run(&verify, &next);
	verify_step(&verify);
	verify_cancel_run(&verify, &run);   /* in the middle */
	verify_cancel_run(&verify, &never); /* not begun */
	harness_run_until(is_over, &next);
	assert_true(next.segments == 3 && next.left == 0);
	assert_false(run.is_over || never.is_over);
	verify_cancel_run(&verify, &next); /* over: nothing happens */
	assert_true(list_is_empty(&verify.runs));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_zero),
		TEST(test_not_zero),
		TEST(test_dropped),
		TEST(test_opened),
		TEST(test_run),
		TEST(test_run_with_hits),
		TEST(test_run_and_lease),
		TEST(test_yield),
		TEST(test_cancelled),
	};
	huge_open(PAGES, PAGES);
	return cmocka_run_group_tests_name("verify", tests, NULL, NULL);
}
