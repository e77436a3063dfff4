/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_sentry.c - whoever opens or cuts clean memory is seen before it is handed out, and nobody else is. */
#include "harness.h"

static struct pool *pool;
static const struct config_pool config = {
	.name = "p",
	.page_size = STORE_PAGE,
	.pages = 12,
	.max_pages = 12,
	.stock = {{4 * STORE_PAGE, 3}},
	.stock_count = 1,
};

static int setup(void **state)
{
	harness_open(NULL);
	pool = harness_add_pool(&config);
	harness_put_clean(pool, 3, 4);
	harness_turn();
	assert_non_null(harness.reconcile.sentry);
	return 0;
}

static int teardown(void **state)
{
	harness_close();
	return 0;
}

/* So that any user may open it: that alone is no event. */
static struct pool_segment *get_open_to_all(char ret_name[SEGMENT_NAME_MAX])
{
	struct pool_segment *segment = pool_find_clean(pool, 4);

	pool_get_segment_name(segment, ret_name);
	assert_int_equal(fchmodat(pool->dirs.fds[SEGMENT_CLEAN], ret_name, 0600, 0), 0);
	return segment;
}

static void open_and_close(int dir, const char *name, int flags)
{
	int fd = openat(dir, name, flags | O_CLOEXEC);

	assert_true(fd >= 0);
	close(fd);
}

static void look(void)
{
	sentry_look(harness.reconcile.sentry);
}

static void expect_dirty(const struct pool_segment *segment, bool is_dirty)
{
	assert_int_equal(segment->is_suspect, is_dirty);
	assert_int_equal(segment->state, is_dirty ? SEGMENT_DIRTY : SEGMENT_CLEAN);
	assert_int_equal(pool->segments[SEGMENT_DIRTY], is_dirty);
}

static void test_nobody(void **state)
{
	char name[SEGMENT_NAME_MAX];
	struct stat st;
	struct pool_segment *segment = get_open_to_all(name);

	assert_int_equal(fstatat(pool->dirs.fds[SEGMENT_CLEAN], name, &st, 0), 0);
	pool_refresh(segment);
	look();
	expect_dirty(segment, false);
	/* The directory, and what is no segment. */
	open_and_close(pool->dirs.fds[SEGMENT_CLEAN], ".", O_RDONLY | O_DIRECTORY);
	temp_put(harness.dir, "hpz/1/node0/clean/stranger", "text");
	temp_put(harness.dir, "hpz/1/node0/clean/777.1", "text");
	look();
	expect_dirty(segment, false);
}

static void test_opened(void **state)
{
	char name[SEGMENT_NAME_MAX];
	struct pool_segment *segment = get_open_to_all(name);

	harness.reconcile.is_marked = false;
	open_and_close(pool->dirs.fds[SEGMENT_CLEAN], name, O_RDONLY);
	look();
	expect_dirty(segment, true);
	assert_true(harness.reconcile.is_marked);
	assert_true(store_has(harness.dir, "dirty", name)); /* the disk knows it, too */
	assert_int_equal(pool->segments[SEGMENT_CLEAN], 2);
	look(); /* once */
	expect_dirty(segment, true);
}

/* Nobody calls sentry_look(): the loop hears of it. */
static bool is_suspect(void *user)
{
	return ((struct pool_segment *)user)->is_suspect;
}

static void test_heard(void **state)
{
	char name[SEGMENT_NAME_MAX];
	struct pool_segment *segment = get_open_to_all(name);

	open_and_close(pool->dirs.fds[SEGMENT_CLEAN], name, O_RDWR);
	harness_run_until(is_suspect, segment);
	assert_int_equal(segment->state, SEGMENT_DIRTY);
}

/* Whoever truncates by path opens nothing. */
static void test_cut(void **state)
{
	char name[SEGMENT_NAME_MAX], path[PATH_MAX], file[SEGMENT_NAME_MAX + 32];
	struct pool_segment *segment = get_open_to_all(name);

	snprintf(file, sizeof file, "hpz/1/node0/clean/%s", name);
	temp_path(harness.dir, file, path);
	assert_int_equal(truncate(path, STORE_PAGE), 0);
	look();
	expect_dirty(segment, true);
}

static void test_ourselves(void **state)
{
	char name[SEGMENT_NAME_MAX];
	struct pool_segment *segment = get_open_to_all(name);

	segment->is_opening = true;
	open_and_close(pool->dirs.fds[SEGMENT_CLEAN], name, O_RDWR);
	look();
	segment->is_opening = false;
	expect_dirty(segment, false);
	open_and_close(pool->dirs.fds[SEGMENT_CLEAN], name, O_RDWR);
	look();
	expect_dirty(segment, true);
}

/* Handed out between the open and our hearing of it: still known, so that it does not leave. */
static void test_on_its_way_out(void **state)
{
	char name[SEGMENT_NAME_MAX];
	struct pool_segment *segment = get_open_to_all(name);

	open_and_close(pool->dirs.fds[SEGMENT_CLEAN], name, O_RDWR);
	segment->lease = 7;
	segment->given = 4;
	assert_int_equal(pool_set_state(segment, SEGMENT_LEASED), 0);
	assert_true(reconcile_was_opened(&harness.reconcile, segment));
	assert_int_equal(segment->state, SEGMENT_LEASED);
	assert_int_equal(pool_set_state(segment, SEGMENT_DIRTY), 0);
}

/* In the holder's hands it is the holder's to open. */
static void test_leased(void **state)
{
	char name[SEGMENT_NAME_MAX];
	struct pool_segment *segment = get_open_to_all(name);

	segment->lease = 7;
	segment->given = 4;
	assert_int_equal(pool_set_state(segment, SEGMENT_LEASED), 0);
	pool_get_segment_name(segment, name);
	open_and_close(pool->dirs.fds[SEGMENT_LEASED], name, O_RDWR);
	look();
	assert_false(segment->is_suspect);
	assert_int_equal(pool_set_state(segment, SEGMENT_DIRTY), 0);
}

/* More than the kernel keeps for us: whatever was opened then is not known, so all may have been. */
static void test_lost_events(void **state)
{
	char names[2][SEGMENT_NAME_MAX];
	FILE *file = fopen("/proc/sys/fs/inotify/max_queued_events", "re");
	unsigned most = 0;

	assert_non_null(file);
	assert_int_equal(fscanf(file, "%u", &most), 1);
	fclose(file);
	if (most > 100000)
		return; /* would take too long */
	/* Of files that are no segments: only what was lost can be meant. Two, because the same is told once.
	 */
	for (int i = 0; i < 2; i++) {
		char path[64];
		snprintf(names[i], sizeof names[i], "stranger%d", i);
		snprintf(path, sizeof path, "hpz/1/node0/clean/stranger%d", i);
		temp_put(harness.dir, path, "");
	}
	for (unsigned i = 0; i < most + 10; i++)
		open_and_close(pool->dirs.fds[SEGMENT_CLEAN], names[i % 2], O_RDONLY);
	look();
	assert_int_equal(pool->segments[SEGMENT_CLEAN], 0);
	assert_int_equal(pool->segments[SEGMENT_DIRTY], 3);
}

static void test_removed(void **state)
{
	char name[SEGMENT_NAME_MAX];
	struct pool_segment *segment = get_open_to_all(name);

	sentry_remove_pool(harness.reconcile.sentry, pool);
	open_and_close(pool->dirs.fds[SEGMENT_CLEAN], name, O_RDWR);
	look();
	expect_dirty(segment, false);
	sentry_add_pool(harness.reconcile.sentry, pool);
	open_and_close(pool->dirs.fds[SEGMENT_CLEAN], name, O_RDWR);
	look();
	expect_dirty(segment, true);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_nobody),
		TEST(test_opened),
		TEST(test_heard),
		TEST(test_cut),
		TEST(test_ourselves),
		TEST(test_on_its_way_out),
		TEST(test_leased),
		TEST(test_lost_events),
		TEST(test_removed),
	};
	return cmocka_run_group_tests_name("sentry", tests, NULL, NULL);
}
