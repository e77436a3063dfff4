/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_stocks.c - which stocks a trace suggests, by a table; and that none of them is more than the pool. */
#include "temp.h"
#include "dice.h"
#include "stocks.h"

#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)

static int arg_count;
static char **args;

static struct config *new_config(uint64_t pages)
{
	struct config *config = calloc(1, sizeof *config);

	assert_non_null(config);
	config->pool_count = 1;
	config->pools[0] = (struct config_pool){.page_size = 2 * MIB,
		.pages = pages,
		.max_pages = pages,
		.stock = {{8 * MIB, 2}},
		.stock_count = 1};
	return config;
}

/* Ten hosts. */
static const struct profile two_sizes = {
	.sizes =
		{
			{.bytes = 2 * MIB, .starts = 900, .mean = 40},
			{.bytes = 6 * MIB, .starts = 100, .mean = 10},
		},
	.count = 2,
};

static const struct {
	enum stocks_kind kind;
	uint64_t pages;
	const char *text;
} cases[] = {
	{STOCKS_CONFIGURED, 16, "8M*2"},
	{STOCKS_LEARNED, 16, "auto"},
	{STOCKS_MIXED, 16, "mixed"},
	/* four of one page and one of three: as many as 14 pages have of that, twice */
	{STOCKS_IN_USE, 14, "6M*2 2M*8"},
	{STOCKS_IN_USE, 7, "6M*1 2M*4"},
	/* four and two times two of one page, one and two of three: eight to nine pages */
	{STOCKS_SPREAD, 17, "6M*3 2M*8"},
	/* ninety to ten, of 120 pages */
	{STOCKS_BY_STARTS, 12, "6M*1 2M*9"},
	/* three pages become four, of which there are three; to eight of one */
	{STOCKS_POWERS, 20, "8M*3 2M*8"},
	/* 95 % of the starts are at most three pages */
	{STOCKS_LARGE, 10, "6M*3"},
};

static void test_table(void **state)
{
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		_cleanup_free_ struct config *config = new_config(cases[i].pages);
		struct fleet_stock stocks[CONFIG_POOLS_MAX];
		char text[STOCKS_TEXT];
		stocks_make(cases[i].kind, config, &two_sizes, 10, stocks);
		stocks_format(&stocks[0], text);
		if (strcmp(text, cases[i].text) != 0)
			fail_msg("%s, %" PRIu64 " pages: %s, not %s", stocks_get_name(cases[i].kind),
				cases[i].pages, text, cases[i].text);
	}
}

/* Each page size gets what fits it, each node its part; a pool of which nothing is wanted keeps its stock. */
static void test_pools(void **state)
{
	static const struct profile profile = {.sizes = {{.bytes = 6 * MIB, .starts = 1, .mean = 4},
						       {.bytes = 4 * GIB, .starts = 1, .mean = 2}},
		.count = 2};
	_cleanup_free_ struct config *config = new_config(12);
	struct fleet_stock stocks[CONFIG_POOLS_MAX];
	char text[STOCKS_TEXT];

	config->pool_count = 3;
	config->pools[1] = (struct config_pool){.node = 1, .page_size = 2 * MIB, .pages = 6, .max_pages = 6};
	config->pools[2] = (struct config_pool){.page_size = GIB, .pages = 8, .max_pages = 8};
	stocks_make(STOCKS_IN_USE, config, &profile, 1, stocks);
	assert_string_equal(stocks_format(&stocks[0], text), "6M*4");
	assert_string_equal(stocks_format(&stocks[1], text), "6M*2");
	assert_string_equal(stocks_format(&stocks[2], text), "4G*2");
	stocks_make(STOCKS_IN_USE, config, &(struct profile){.count = 0}, 1, stocks);
	assert_string_equal(stocks_format(&stocks[0], text), "8M*2");
}

/* What it makes can be put into hpzd.conf, and is what comes out again. */
static void check_random(uint64_t seed, void *user)
{
	struct profile profile = {.count = 0};
	struct dice dice;

	dice_init(&dice, seed);
	_cleanup_free_ struct config *config = new_config(dice_between(&dice, 16, 5000));
	for (uint64_t n = dice_roll(&dice, 60); n > 0; n--) {
		profile.sizes[profile.count] = (struct profile_size){
			.bytes = (profile.count ? profile.sizes[profile.count - 1].bytes : 0) +
				 dice_between(&dice, 1, 400) * MIB / 4,
			.starts = dice_between(&dice, 1, 1000),
			.mean = (double)dice_roll(&dice, 5000) / 100,
		};
		profile.count++;
	}
	for (int kind = 0; kind < STOCKS_KINDS; kind++) {
		struct fleet_stock stocks[CONFIG_POOLS_MAX];
		struct config_pool again = config->pools[0];
		char text[STOCKS_TEXT], why[256];
		uint64_t pages = 0;
		stocks_make((enum stocks_kind)kind, config, &profile, dice_between(&dice, 1, 20), stocks);
		stocks_format(&stocks[0], text);
		if (config_set_stock(&again, text, why, sizeof why) < 0)
			fail_msg("seed %" PRIu64 ", %s: `%s`: %s", seed,
				stocks_get_name((enum stocks_kind)kind), text, why);
		for (size_t i = 0; i < stocks[0].count; i++)
			pages += stocks[0].entries[i].bytes / (2 * MIB) * stocks[0].entries[i].count;
		assert_in_range(pages, 0, config->pools[0].pages);
		assert_int_equal(again.stock_count, stocks[0].count);
		assert_int_equal(again.is_learning, stocks[0].is_learned);
		assert_true(kind == STOCKS_LEARNED || kind == STOCKS_MIXED || pages > 0);
	}
}

static void test_random(void **state)
{
	dice_for_each_seed(arg_count, args, 200, check_random, NULL);
}

int main(int argc, char **argv)
{
	arg_count = argc;
	args = argv;
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_table),
		cmocka_unit_test(test_pools),
		cmocka_unit_test(test_random),
	};
	return cmocka_run_group_tests_name("stocks", tests, NULL, NULL);
}
