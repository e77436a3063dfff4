/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_resize.c - which size an order means, by a table; that it is kept, and until when. */
#include "machine.h"

#include <signal.h>
#include <sys/resource.h>

#include "hpz.h"

static struct nr nr;
static uv_loop_t loop;
static struct pool pool;
static struct journal *journal;
static struct config_pool config;
static char dir[TEMP_PATH];

static void on_changed(void *user)
{
}

static int setup(void **state)
{
	config = (struct config_pool){.name = "p",
		.page_size = 4096,
		.pages = 12,
		.max_pages = 40,
		.stock = {{4 * 4096, 2}, {4096, 4}},
		.stock_count = 2};
	machine_open(10);
	temp_make(dir);
	memset(&pool, 0, sizeof pool);
	snprintf(pool.name, sizeof pool.name, "p");
	list_init(&pool.classes);
	pool_set_config(&pool, &config);
	assert_int_equal(uv_loop_init(&loop), 0);
	assert_int_equal(journal_open(dir, MACHINE_BOOT_ID, NULL, NULL, NULL, &journal), 0);
	nr_init(&nr, &loop, &machine.host, on_changed, NULL);
	nr.journal = journal;
	return 0;
}

static int teardown(void **state)
{
	config.pages = config.stock_count = 0;
	pool_set_config(&pool, &config); /* forgets the classes */
	assert_true(list_is_empty(&pool.classes));
	assert_int_equal(uv_loop_close(&loop), 0);
	journal_close(journal);
	temp_remove(dir);
	machine_close();
	return 0;
}

static uint64_t get_want(uint64_t pages)
{
	POOL_FOR_EACH (pos, &pool) {
		const struct pool_class *class = CONTAINER_OF(pos, struct pool_class, link);
		if (class->pages == pages)
			return class->want;
	}
	return 0;
}

static uint64_t count_wanted(void)
{
	uint64_t pages = 0;

	POOL_FOR_EACH (pos, &pool) {
		const struct pool_class *class = CONTAINER_OF(pos, struct pool_class, link);
		pages += class->pages * class->want;
	}
	return pages;
}

static void on_record(enum journal_type type, const void *payload, size_t bytes, void *user)
{
	resize_read_record(&pool, type, payload, bytes);
}

/* As the next hpzd does, with this configuration. */
static void start_anew(void)
{
	uint64_t bytes;
	int fd;

	pool.config = config;
	pool_set_size(&pool, &(struct pool_size){0});
	assert_int_equal(journal_dup(journal, &fd, &bytes), 0);
	assert_int_equal(journal_read(fd, bytes, MACHINE_BOOT_ID, on_record, NULL), 0);
	close(fd);
}

/* ---- orders ---- */

static void test_orders(void **state)
{
	/* clang-format off */
	static const struct {
		uint64_t resized; /* before; 0: not */
		struct resize_order order;
		int result;
		uint64_t pages;
	} cases[] = {
		{0, {HPZ_RESIZE_TO, 20}, 0, 20},
		{0, {HPZ_RESIZE_TO, 0}, 0, 0},
		{0, {HPZ_RESIZE_TO, 40}, 0, 40},
		{0, {HPZ_RESIZE_TO, 41}, -ERANGE, 0},
		{0, {HPZ_RESIZE_TO, UINT64_MAX}, -ERANGE, 0},
		{0, {HPZ_RESIZE_GROW, 28}, 0, 40},
		{0, {HPZ_RESIZE_GROW, 29}, -ERANGE, 0},
		{0, {HPZ_RESIZE_GROW, UINT64_MAX}, -ERANGE, 0},
		{0, {HPZ_RESIZE_SHRINK, 12}, 0, 0},
		{0, {HPZ_RESIZE_SHRINK, 13}, -EINVAL, 0},
		{0, {HPZ_RESIZE_SHRINK, UINT64_MAX}, -EINVAL, 0},
		{30, {HPZ_RESIZE_GROW, 5}, 0, 35},
		{30, {HPZ_RESIZE_SHRINK, 5}, 0, 25},
		{30, {HPZ_RESIZE_SHRINK, 18}, 0, 12},
		{30, {HPZ_RESIZE_TO, 12}, 0, 12},
		{50, {HPZ_RESIZE_SHRINK, 5}, 0, 35}, /* max_pages was lowered since */
	};
	/* clang-format on */
	char why[256];

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		uint64_t pages = 4711;
		pool.size = (struct pool_size){.is_resized = cases[i].resized > 0, .pages = cases[i].resized};
		why[0] = '\0';
		int r = resize_find_target(&pool, &cases[i].order, &pages, why, sizeof why);
		if (r != cases[i].result || pages != (r == 0 ? cases[i].pages : 4711) ||
			(r < 0) != (why[0] != 0))
			fail_msg("case %zu: %d, %" PRIu64 " pages, '%s'", i, r, pages, why);
	}
	pool.size = (struct pool_size){0};
}

/* ---- the stock of another size ---- */

static void test_stock(void **state)
{
	assert_int_equal(resize_set(&nr, &pool, 40), 0);
	assert_int_equal(pool.target, 40);
	assert_int_equal(count_wanted(), 40);
	assert_int_equal(get_want(4), 2);
	assert_int_equal(get_want(14), 1); /* half of the 28 beyond it */
	assert_int_equal(resize_set(&nr, &pool, 7), 0);
	assert_int_equal(count_wanted(), 7);
	assert_int_equal(get_want(4), 1);
	assert_int_equal(resize_set(&nr, &pool, 0), 0);
	assert_int_equal(count_wanted(), 0);
	/* A stock that leaves something out goes on to. */
	config.stock_count = 1;
	pool_set_config(&pool, &config);
	assert_int_equal(resize_set(&nr, &pool, 20), 0);
	assert_int_equal(count_wanted(), 16);
	assert_int_equal(resize_set(&nr, &pool, 9), 0);
	assert_int_equal(count_wanted(), 8);
	/* One with a rest takes all. */
	config.stock[1] = (struct config_stock){2 * 4096, CONFIG_COUNT_REST};
	config.stock_count = 2;
	pool_set_config(&pool, &config);
	assert_int_equal(resize_set(&nr, &pool, 21), 0);
	assert_int_equal(get_want(4), 2);
	assert_int_equal(get_want(2), 6);
	assert_int_equal(get_want(1), 1);
}

/* ---- how long it holds ---- */

static void test_outlives(void **state)
{
	assert_int_equal(resize_set(&nr, &pool, 20), 0);
	assert_int_equal(resize_set(&nr, &pool, 30), 0);
	start_anew();
	assert_int_equal(pool.target, 30);
	assert_true(pool.size.is_resized);
	/* A reload with the same pages keeps it, whatever else changes. */
	config.max_pages = 25;
	pool_set_config(&pool, &config);
	assert_int_equal(pool.target, 25);
	config.max_pages = 40;
	pool_set_config(&pool, &config);
	assert_int_equal(pool.target, 30);
	/* With others it ends, also at a start. */
	config.pages = 13;
	start_anew();
	assert_int_equal(pool.target, 13);
	assert_false(pool.size.is_resized);
	config.pages = 12;
	start_anew();
	assert_int_equal(pool.target, 30);
	config.pages = 13;
	resize_set_config(&nr, &pool, &config);
	assert_int_equal(pool.target, 13);
	config.pages = 12;
	resize_set_config(&nr, &pool, &config);
	assert_int_equal(pool.target, 12);
	start_anew(); /* nor does it come back */
	assert_int_equal(pool.target, 12);
}

static void test_as_configured(void **state)
{
	assert_int_equal(resize_set(&nr, &pool, 20), 0);
	assert_int_equal(resize_set(&nr, &pool, 12), 0);
	assert_false(pool.size.is_resized);
	start_anew();
	assert_false(pool.size.is_resized);
	assert_int_equal(pool.target, 12);
}

/* Another pool's record is none of ours. */
static void test_foreign_record(void **state)
{
	struct journal_resize record = {
		.size = sizeof record, .page_size = 8192, .configured = 12, .pages = 5, .is_resized = 1};

	resize_read_record(&pool, JOURNAL_RESIZE, &record, sizeof record);
	assert_int_equal(pool.target, 12);
	record.page_size = 4096;
	record.node = 1;
	resize_read_record(&pool, JOURNAL_RESIZE, &record, sizeof record);
	assert_int_equal(pool.target, 12);
	record.node = 0;
	resize_read_record(&pool, JOURNAL_RAISE, &record, sizeof record);
	assert_int_equal(pool.target, 12);
	resize_read_record(&pool, JOURNAL_RESIZE, &record, sizeof record);
	assert_int_equal(pool.target, 5);
}

/* What cannot be remembered is not done. */
static void test_journal_is_full(void **state)
{
	struct rlimit limit, none;

	assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
	none = limit;
	none.rlim_cur = 0;
	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &none), 0);
	int r = resize_set(&nr, &pool, 20);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
	assert_true(r < 0);
	assert_int_equal(pool.target, 12);
	assert_false(pool.size.is_resized);
	assert_int_equal(count_wanted(), 12);
}

/* ---- what is owed and what is left ---- */

static void test_owes(void **state)
{
	pool.raised = 6;
	assert_int_equal(resize_set(&nr, &pool, 8), 0);
	assert_int_equal(pool.give_back, 4);
	assert_int_equal(resize_set(&nr, &pool, 10), 0);
	assert_int_equal(pool.give_back, 2);
	assert_int_equal(resize_set(&nr, &pool, 0), 0);
	assert_int_equal(pool.give_back, 6); /* no more than is ours */
	assert_int_equal(resize_set(&nr, &pool, 40), 0);
	assert_int_equal(pool.give_back, 0);
}

static void test_left(void **state)
{
	struct resize_left left;

	assert_true(resize_get_left(&pool, &left));
	pool.plan.missing_pages = 3;
	assert_false(resize_get_left(&pool, &left));
	assert_true(left.grow == 3 && left.shrink == 0 && left.give_back == 0);
	pool.plan.missing_pages = 0;
	pool.give_back = 2;
	assert_false(resize_get_left(&pool, &left));
	assert_int_equal(left.give_back, 2);
	pool.give_back = 0;
	pool.is_raising = true;
	assert_false(resize_get_left(&pool, &left));
	pool.is_raising = false;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_orders, setup, teardown),
		cmocka_unit_test_setup_teardown(test_stock, setup, teardown),
		cmocka_unit_test_setup_teardown(test_outlives, setup, teardown),
		cmocka_unit_test_setup_teardown(test_as_configured, setup, teardown),
		cmocka_unit_test_setup_teardown(test_foreign_record, setup, teardown),
		cmocka_unit_test_setup_teardown(test_journal_is_full, setup, teardown),
		cmocka_unit_test_setup_teardown(test_owes, setup, teardown),
		cmocka_unit_test_setup_teardown(test_left, setup, teardown),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
