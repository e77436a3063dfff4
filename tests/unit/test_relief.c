/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_relief.c - pools get smaller while others wait for memory. /proc is a stand-in of the test's own. */
#include "machine.h"

static struct nr nr;
static struct relief relief;
static uv_loop_t loop;
static struct pool pool;
static struct pool *pools[] = {&pool};
static struct journal *journal;
static struct config_pool config;
static unsigned changes;
static uint64_t now_s, waited_us;
static char dir[TEMP_PATH];

static void on_changed(void *user)
{
	changes++;
}

static int setup(void **state)
{
	config = (struct config_pool){.name = "p",
		.page_size = 4096,
		.pages = 32,
		.max_pages = 40,
		.min_pages = 27,
		.give_back = CONFIG_GIVE_BACK_PRESSURE};
	machine_open(32);
	temp_make(dir);
	memset(&pool, 0, sizeof pool);
	snprintf(pool.name, sizeof pool.name, "p");
	list_init(&pool.classes);
	pool_set_config(&pool, &config);
	pool.raised = 20;
	assert_int_equal(uv_loop_init(&loop), 0);
	assert_int_equal(journal_open(dir, MACHINE_BOOT_ID, NULL, NULL, NULL, &journal), 0);
	nr_init(&nr, &loop, &machine.host, on_changed, NULL);
	nr.journal = journal;
	relief_init(&relief, &nr, on_changed, NULL);
	relief_set_pools(&relief, pools, 1);
	changes = 0;
	now_s = 1000;
	waited_us = 5000000;
	return 0;
}

static int teardown(void **state)
{
	config.pages = config.stock_count = 0;
	pool_set_config(&pool, &config); /* forgets the classes */
	relief_close(&relief);
	uv_run(&loop, UV_RUN_DEFAULT);
	assert_int_equal(uv_loop_close(&loop), 0);
	journal_close(journal);
	temp_remove(dir);
	machine_close();
	return 0;
}

/* So long somebody waits, so much of the time. */
static void pass(uint64_t seconds, uint64_t percent)
{
	char text[256];

	for (uint64_t i = 0; i < seconds; i += 2) {
		now_s += 2;
		waited_us += 2 * 10000 * percent;
		snprintf(text, sizeof text,
			"some avg10=0.00 avg60=0.00 avg300=0.00 total=%" PRIu64
			"\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=1\n",
			waited_us);
		temp_put(machine.root, "proc/pressure/memory", text);
		relief_look(&relief, now_s * NS_PER_S);
	}
}

static void expect(uint64_t target, uint64_t withheld, uint64_t give_back)
{
	if (pool.target != target || pool.size.withheld != withheld || pool.give_back != give_back)
		fail_msg("%" PRIu64 " pages, %" PRIu64 " withheld, %" PRIu64 " to be given back", pool.target,
			pool.size.withheld, pool.give_back);
}

static void test_gives_and_takes(void **state)
{
	pass(2, 50); /* how it was before nobody knows */
	expect(32, 0, 0);
	pass(2, 50);
	expect(30, 2, 2);
	pass(2, 5);
	expect(30, 2, 2);
	pass(20, 50);
	expect(27, 5, 5); /* the least */
	assert_int_equal(changes, 3);
	pass(58, 0);
	expect(27, 5, 5);
	pass(4, 0);
	expect(29, 3, 3);
	pass(40, 0);
	expect(32, 0, 0);
}

/* What hpzd did not raise is not its to give. */
static void test_only_what_is_ours(void **state)
{
	pool.raised = 3;
	pass(20, 50);
	expect(29, 3, 3);
	pool.raised = 0;
	pool.give_back = 0;
	pass(20, 50);
	expect(29, 3, 0);
}

static void test_not_configured(void **state)
{
	pass(4, 50);
	expect(30, 2, 2);
	config.give_back = CONFIG_GIVE_BACK_NO; /* by a reload: what was given up comes back */
	resize_set_config(&nr, &pool, &config);
	relief_set_pools(&relief, pools, 1);
	expect(32, 0, 0);
	assert_false(uv_is_active((uv_handle_t *)&relief.timer));
	assert_int_equal(pool.target, 32);
	pass(20, 50);
	assert_int_equal(pool.target, 32);
}

/* A kernel that does not count it. */
static void test_no_psi(void **state)
{
	for (int i = 0; i < 3; i++)
		relief_look(&relief, (1 + (uint64_t)i) * NS_PER_S);
	assert_true(relief.was_missed);
	expect(32, 0, 0);
	pass(2, 99);
	expect(32, 0, 0); /* it has just begun */
	pass(2, 99);
	expect(30, 2, 2);
}

static void on_record(enum journal_type type, const void *payload, size_t bytes, void *user)
{
	resize_read_record(&pool, type, payload, bytes);
	nr_read_record(&nr, pools, 1, type, payload, bytes);
}

/* After a restart it is as small as before; an operator's order is one of the whole size. */
static void test_outlives(void **state)
{
	uint64_t bytes;
	int fd;

	pass(4, 50);
	expect(30, 2, 2);
	pool_set_size(&pool, &(struct pool_size){0});
	pool.give_back = pool.raised = 0;
	assert_int_equal(journal_dup(journal, &fd, &bytes), 0);
	assert_int_equal(journal_read(fd, bytes, MACHINE_BOOT_ID, on_record, NULL), 0);
	close(fd);
	expect(30, 2, 2);
	assert_int_equal(pool.raised, 20);
	assert_int_equal(resize_set(&nr, &pool, 31), 0);
	expect(31, 0, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_gives_and_takes, setup, teardown),
		cmocka_unit_test_setup_teardown(test_only_what_is_ours, setup, teardown),
		cmocka_unit_test_setup_teardown(test_not_configured, setup, teardown),
		cmocka_unit_test_setup_teardown(test_no_psi, setup, teardown),
		cmocka_unit_test_setup_teardown(test_outlives, setup, teardown),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
