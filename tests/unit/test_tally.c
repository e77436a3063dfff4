/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_tally.c - starts are counted once, and a bounded table of waits is off by a sixteenth at most. */
#include "temp.h"
#include "dice.h"
#include "tally.h"

#define WAITS 1000

static int arg_count;
static char **args;

static void test_counts(void **state)
{
	static const struct tally_start starts[] = {
		{TALLY_EXACT, 0, 100, 8, 0},
		{TALLY_TRIMMED, 0, UINT64_MAX, 8, 0},
		{TALLY_EXTENDED, 50, 100, 8, 4},
		{TALLY_WAITED, 200, 100, 8, 0},
		{TALLY_REFUSED, 0, 100, 8, 0},
		{TALLY_REFUSED, 0, UINT64_MAX, 8, 0},
		{TALLY_IMPOSSIBLE, 0, UINT64_MAX, 8, 0},
	};
	struct tally tally = {0};

	for (size_t i = 0; i < ARRAY_SIZE(starts); i++)
		tally_add(&tally, &starts[i]);
	assert_int_equal(tally.starts, 7);
	assert_int_equal(tally_get_clean(&tally), 2);
	assert_int_equal(tally.all.count, 4);
	assert_int_equal(tally.all.most_ns, 200);
	assert_int_equal(tally.extended.count, 1);
	assert_int_equal(tally.waited.count, 1);
	assert_int_equal(tally.kernel.count, 4);
	assert_int_equal(tally.kernel_refused, 3);
	assert_int_equal(tally.lost, 1);
	assert_int_equal(tally.slower, 1);
	assert_true(tally.asked_bytes == 32 && tally.zeroed_bytes == 4);
}

static void test_compare(void **state)
{
	struct tally good = {0}, bad = {0};

	tally_add(&good, &(struct tally_start){TALLY_WAITED, 1000, 0, 0, 0});
	tally_add(&bad, &(struct tally_start){TALLY_WAITED, 2000, 0, 0, 0});
	assert_true(tally_compare(&good, &bad) < 0);
	assert_true(tally_compare(&bad, &good) > 0);
	assert_int_equal(tally_compare(&good, &good), 0);
	/* Nothing is worse than nothing. */
	tally_add(&good, &(struct tally_start){TALLY_REFUSED, 0, 0, 0, 0});
	assert_true(tally_compare(&good, &bad) > 0);
}

static int compare_ns(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
	return (x > y) - (x < y);
}

static void check_percentiles(uint64_t seed, void *user)
{
	static const double percents[] = {0, 1, 50, 90, 99, 100};
	struct tally_waits waits = {0};
	static uint64_t ns[WAITS];
	struct dice dice;

	dice_init(&dice, seed);
	for (size_t i = 0; i < WAITS; i++) {
		ns[i] = dice_next(&dice) >> dice_roll(&dice, 64);
		tally_add_wait(&waits, ns[i]);
	}
	qsort(ns, WAITS, sizeof *ns, compare_ns);
	for (size_t i = 0; i < ARRAY_SIZE(percents); i++) {
		size_t rank = MAX((size_t)(percents[i] * WAITS / 100), 1) - 1;
		uint64_t found = tally_get_percentile(&waits, percents[i]);
		if (found < ns[rank] || found - ns[rank] > ns[rank] / 16)
			fail_msg("seed %" PRIu64 ": %f %% is %" PRIu64 ", not %" PRIu64, seed, percents[i],
				found, ns[rank]);
	}
	assert_int_equal(waits.most_ns, ns[WAITS - 1]);
}

static void test_percentiles(void **state)
{
	struct tally_waits none = {0};

	assert_int_equal(tally_get_percentile(&none, 99), 0);
	dice_for_each_seed(arg_count, args, 50, check_percentiles, NULL);
}

int main(int argc, char **argv)
{
	arg_count = argc;
	args = argv;
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_counts),
		cmocka_unit_test(test_compare),
		cmocka_unit_test(test_percentiles),
	};
	return cmocka_run_group_tests_name("tally", tests, NULL, NULL);
}
