/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_suspects.c - a lease is released after two looks a grace time apart, and never for one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "suspects.h"

#define OLD (1000 * NS_PER_S)

static struct suspects suspects;

static int setup(void **state)
{
	suspects = (struct suspects){.grace_ns = 10 * NS_PER_S};
	return 0;
}

static int teardown(void **state)
{
	suspects_deinit(&suspects);
	return 0;
}

static enum suspects_verdict look(uint64_t lease, uint64_t age_ns, bool is_used, uint64_t now_s)
{
	suspects_begin(&suspects);
	enum suspects_verdict verdict = suspects_judge(&suspects, lease, age_ns, is_used, now_s * NS_PER_S);
	suspects_end(&suspects);
	return verdict;
}

static void test_two_looks(void **state)
{
	assert_int_equal(look(1, OLD, false, 100), SUSPECTS_WATCH);
	assert_int_equal(look(1, OLD, false, 109), SUSPECTS_WATCH);
	assert_int_equal(look(1, OLD, false, 110), SUSPECTS_RELEASE);
	/* Who could not release it tries again. */
	assert_int_equal(look(1, OLD, false, 111), SUSPECTS_RELEASE);
}

static void test_used_in_between(void **state)
{
	assert_int_equal(look(1, OLD, false, 100), SUSPECTS_WATCH);
	assert_int_equal(look(1, OLD, true, 105), SUSPECTS_KEEP);
	assert_int_equal(suspects.count, 0);
	assert_int_equal(look(1, OLD, false, 111), SUSPECTS_WATCH);
	assert_int_equal(look(1, OLD, false, 120), SUSPECTS_WATCH);
	assert_int_equal(look(1, OLD, false, 121), SUSPECTS_RELEASE);
}

/* A start that is under way: the time before the lease is a grace time old does not count. */
static void test_young(void **state)
{
	assert_int_equal(look(1, 0, false, 100), SUSPECTS_WATCH);
	assert_int_equal(look(1, 10 * NS_PER_S - 1, false, 109), SUSPECTS_WATCH);
	assert_int_equal(look(1, 10 * NS_PER_S, false, 110), SUSPECTS_WATCH);
	assert_int_equal(look(1, 20 * NS_PER_S, false, 120), SUSPECTS_RELEASE);
}

/* Gone from the list and back under the same id: it was not seen in between. */
static void test_forgotten(void **state)
{
	assert_int_equal(look(1, OLD, false, 100), SUSPECTS_WATCH);
	assert_int_equal(look(2, OLD, false, 105), SUSPECTS_WATCH);
	assert_int_equal(suspects.count, 1);
	assert_int_equal(look(1, OLD, false, 120), SUSPECTS_WATCH);
}

static void test_many(void **state)
{
	for (unsigned round = 0; round < 3; round++) {
		suspects_begin(&suspects);
		for (uint64_t lease = 1; lease <= 100; lease++)
			assert_int_equal(
				suspects_judge(&suspects, lease, OLD, lease % 2, round * 10 * NS_PER_S),
				lease % 2    ? SUSPECTS_KEEP
				: round == 0 ? SUSPECTS_WATCH
					     : SUSPECTS_RELEASE);
		suspects_end(&suspects);
		assert_int_equal(suspects.count, 50);
	}
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_two_looks),
		TEST(test_used_in_between),
		TEST(test_young),
		TEST(test_forgotten),
		TEST(test_many),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
