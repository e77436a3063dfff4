/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_stock.c - when what was learned becomes the stock, and what of it survives hpzd. */
#include "store.h"
#include "stock.h"

#define BOOT_ID  "01234567-89ab-cdef-0123-456789abcdef"
#define OTHER_ID "11234567-89ab-cdef-0123-456789abcdef"
#define HOUR_NS  (3600 * NS_PER_S)

static char dir[TEMP_PATH], run_dir[TEMP_PATH];
static struct pool *pool;
static struct journal *journal;

static void read_record(enum journal_type type, const void *payload, size_t bytes, void *user)
{
	stock_read_record(&pool, 1, type, payload, bytes);
}

static void open_all(const char *boot_id)
{
	const struct config_pool config = {.name = "p",
		.page_size = STORE_PAGE,
		.pages = 100,
		.is_learning = true,
		.stock_share = 80,
		.stock_half_life_ns = 24 * HOUR_NS};
	char error[256];
	struct segment_store *store = store_open(dir);

	assert_int_equal(pool_open(&config, "/c", store_get_host(), store, &pool, error, sizeof error), 0);
	segment_close_store(store); /* the pool has it */
	assert_int_equal(journal_open(run_dir, boot_id, read_record, NULL, NULL, &journal), 0);
}

static void close_all(void)
{
	journal_close(journal);
	pool_close(pool);
}

static int setup(void **state)
{
	if (!store_make_dir(dir) || !store_make_dir(run_dir))
		return -1;
	open_all(BOOT_ID);
	return 0;
}

static int teardown(void **state)
{
	close_all();
	temp_remove(dir);
	temp_remove(run_dir);
	return 0;
}

static uint64_t now_ns(void)
{
	return clock_get_ns(CLOCK_BOOTTIME);
}

static void ask(uint64_t pages, unsigned times)
{
	for (unsigned i = 0; i < times; i++) {
		demand_ask(&pool->demand, now_ns(), pages, DEMAND_ZEROED);
		demand_take(&pool->demand, now_ns(), pages);
		demand_give(&pool->demand, now_ns(), pages);
	}
}

static uint64_t get_want(uint64_t pages)
{
	POOL_FOR_EACH (pos, pool) {
		const struct pool_class *class = CONTAINER_OF(pos, struct pool_class, link);
		if (class->pages == pages)
			return class->want;
	}
	return 0;
}

static void reopen(const char *boot_id)
{
	close_all();
	open_all(boot_id);
	stock_look(pool, journal, now_ns());
}

/* At once the first time, then not more often than every second; in between it says when. */
static void test_written_now_and_then(void **state)
{
	uint64_t begin = journal_get_bytes(journal), step_ms = 24 * HOUR_NS / NS_PER_MS / 16;
	assert_int_equal(stock_look(pool, journal, now_ns()), UINT64_MAX); /* nothing to fade */
	assert_int_equal(journal_get_bytes(journal), begin);
	ask(7, 2);
	assert_int_equal(stock_look(pool, journal, now_ns()), step_ms);
	uint64_t first = journal_get_bytes(journal);
	assert_true(first > begin);
	assert_int_equal(get_want(7), 2);
	ask(7, 2);
	uint64_t delay_ms = stock_look(pool, journal, now_ns());
	assert_in_range(delay_ms, 1, 1000);
	assert_int_equal(journal_get_bytes(journal), first);
	assert_int_equal(stock_look(pool, journal, now_ns() + 2 * NS_PER_S), step_ms);
	assert_true(journal_get_bytes(journal) > first);
	/* Without a journal nothing is written, and nothing lost. */
	ask(7, 1);
	assert_int_equal(stock_look(pool, NULL, now_ns() + 60 * NS_PER_S), step_ms);
	assert_true(pool->demand.sizes[0].is_unsaved);
}

/* A death right after the lease: what was written before is there. */
static void test_death(void **state)
{
	ask(7, 2);
	stock_look(pool, journal, now_ns());
	ask(7, 5);
	ask(9, 5);
	stock_look(pool, journal, now_ns());
	reopen(BOOT_ID);
	assert_int_equal(get_want(7), 2);
	assert_int_equal(get_want(9), 0);
	assert_int_equal(demand_get_asked(&pool->demand.sizes[0]), 2 * DEMAND_ONE);
}

/* A stop writes down all of it; a compaction keeps it; another boot begins anew. */
static void compact(struct journal *to, void *user)
{
	stock_write_all(pool, to);
}

static void test_stop(void **state)
{
	ask(7, 2);
	stock_look(pool, journal, now_ns());
	ask(9, 5);
	stock_save(pool, journal, now_ns());
	assert_false(pool->demand.sizes[0].is_unsaved || pool->demand.sizes[1].is_unsaved);
	uint64_t large = pool->demand.large_pages;
	reopen(BOOT_ID);
	assert_true(get_want(7) == 2 && get_want(9) == 2);
	assert_int_equal(pool->demand.large_pages, large);
	assert_int_equal(journal_compact(journal, compact, NULL), 0);
	assert_true(journal_get_bytes(journal) <= 2 * stock_get_journal_bytes(pool) + 256);
	reopen(BOOT_ID);
	assert_true(get_want(7) == 2 && get_want(9) == 2);
	reopen(OTHER_ID);
	assert_int_equal(pool->demand.size_count, 0);
	assert_true(get_want(7) == 0 && get_want(50) == 1);
}

/* What is not ours, or nonsense, is left alone. */
static void test_strange_records(void **state)
{
	struct journal_demand record = {
		.size = sizeof record, .page_size = STORE_PAGE, .pages = 7, .served = {9 * DEMAND_ONE}};
	const struct journal_demand good = record;
	record.saved_boot_ns = now_ns();
	record.node = 1;
	stock_read_record(&pool, 1, JOURNAL_DEMAND, &record, sizeof record);
	record.node = 0;
	record.page_size = 2 * STORE_PAGE;
	stock_read_record(&pool, 1, JOURNAL_DEMAND, &record, sizeof record);
	record.page_size = STORE_PAGE;
	record.pages = 0;
	stock_read_record(&pool, 1, JOURNAL_DEMAND, &record, sizeof record);
	record.pages = 7;
	stock_read_record(&pool, 1, JOURNAL_DEMAND, &record, sizeof record - 1);
	stock_read_record(&pool, 1, JOURNAL_WEAK, &record, sizeof record);
	/* So long ago that it has faded. */
	stock_read_record(&pool, 1, JOURNAL_DEMAND, &good, sizeof good);
	size_t count_then = pool->demand.size_count;
	stock_read_record(&pool, 1, JOURNAL_DEMAND, &record, sizeof record);
	assert_true(count_then <= 1);
	assert_int_equal(pool->demand.size_count, 1);
}

/* A pool that does not learn wants what it is told, and remembers all the same. */
static void test_fixed(void **state)
{
	struct config_pool fixed = pool->config;
	fixed.is_learning = false;
	pool_set_config(pool, &fixed);
	ask(7, 3);
	assert_int_equal(stock_look(pool, journal, now_ns()), UINT64_MAX);
	assert_int_equal(get_want(7), 0);
	assert_int_equal(pool->demand.sizes[0].proposed, 2);
	reopen(BOOT_ID);
	assert_int_equal(get_want(7), 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_written_now_and_then, setup, teardown),
		cmocka_unit_test_setup_teardown(test_death, setup, teardown),
		cmocka_unit_test_setup_teardown(test_stop, setup, teardown),
		cmocka_unit_test_setup_teardown(test_strange_records, setup, teardown),
		cmocka_unit_test_setup_teardown(test_fixed, setup, teardown),
	};
	return cmocka_run_group_tests_name("stock", tests, NULL, NULL);
}
