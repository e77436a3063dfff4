/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_wants.c - which segments a pool is to hold: as its config says, or as demand proposes. */
#include "temp.h"
#include "wants.h"

#define PAGE ((uint64_t)2 << 20)

static struct config_pool make_pool(const char *stock)
{
	struct config_pool pool;
	char why[256];

	config_init_pool(&pool, PAGE, 0, 256);
	assert_int_equal(config_set_stock(&pool, stock, why, sizeof why), 0);
	return pool;
}

static struct demand *new_demand(const struct config_pool *pool)
{
	struct demand *demand = calloc(1, sizeof *demand);
	struct demand_rules rules;

	assert_non_null(demand);
	wants_get_rules(pool, pool->pages, &rules);
	demand_init(demand, &rules, 0);
	return demand;
}

static uint64_t count(const struct config_pool *pool, const struct demand *demand, uint64_t pages)
{
	struct demand_class classes[WANTS_MAX];
	uint64_t found = 0, sum = 0;
	size_t classes_count = wants_list(pool, pool->pages, demand, classes);

	for (size_t i = 0; i < classes_count; i++) {
		assert_true(i == 0 || classes[i].segment_pages < classes[i - 1].segment_pages);
		found += classes[i].segment_pages == pages ? classes[i].count : 0;
		sum += classes[i].segment_pages * classes[i].count;
	}
	assert_in_range(sum, 1, pool->pages);
	return found;
}

static void test_configured(void **state)
{
	const struct config_pool pool = make_pool("64M*2 6M*rest"), mixed = make_pool("mixed");

	assert_int_equal(count(&pool, NULL, 32), 2);
	assert_int_equal(count(&pool, NULL, 3), 64);
	assert_int_equal(count(&mixed, NULL, 128), 1);
	assert_int_equal(count(&mixed, NULL, 32), 2);
}

static void test_learned(void **state)
{
	const struct config_pool pool = make_pool("64M*2 auto");
	_cleanup_free_ struct demand *demand = new_demand(&pool);
	uint64_t now_ns = 1;

	assert_int_equal(demand->rules.fixed_count, 1);
	assert_int_equal(demand->rules.pages, 256);
	assert_int_equal(demand->rules.piece_pages, 32);
	assert_true(count(&pool, demand, 32) >= 2);
	assert_int_equal(count(&pool, demand, 5), 0);
	for (int i = 0; i < 4; i++)
		demand_ask(demand, now_ns++, 5, DEMAND_ZEROED);
	demand_plan(demand, now_ns);
	assert_true(count(&pool, demand, 5) > 0);
	assert_true(count(&pool, demand, 32) >= 2);
}

/* Its default, and what it would be were it learned. */
static void test_rules(void **state)
{
	const struct config_pool pool = make_pool("64M*2"), empty = {.page_size = (uint64_t)1 << 30};
	struct demand_rules rules;

	wants_get_rules(&pool, pool.pages, &rules);
	assert_int_equal(rules.fixed_count, 0);
	assert_int_equal(rules.share_percent, 80);
	assert_int_equal(rules.half_life_ns, 86400 * NS_PER_S);
	wants_get_rules(&empty, empty.pages, &rules);
	assert_int_equal(rules.half_life_ns, NS_PER_S);
	assert_int_equal(rules.piece_pages, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_configured),
		cmocka_unit_test(test_learned),
		cmocka_unit_test(test_rules),
	};
	return cmocka_run_group_tests_name("wants", tests, NULL, NULL);
}
