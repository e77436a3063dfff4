/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_profile.c - which sizes a trace asks for, and how many there are at once. */
#include "temp.h"
#include "profile.h"

#define S NS_PER_S

static void test_means(void **state)
{
	static struct profile profile;

	/* From 0 to 10: one of 7 all the time, one of 7 half of it, one of 3 for a second. */
	size_t a = profile_start(&profile, 7, 0), b = profile_start(&profile, 7, 0);
	profile_end(&profile, b, 0, 5 * S);
	size_t c = profile_start(&profile, 3, 9 * S);
	assert_int_equal(a, b);
	assert_int_not_equal(a, c);
	profile_finish(&profile, 0, 10 * S);
	assert_int_equal(profile.count, 2);
	assert_int_equal(profile.sizes[0].bytes, 3);
	assert_int_equal(profile.sizes[0].starts, 1);
	assert_true(profile.sizes[0].mean == 0.1);
	assert_int_equal(profile.sizes[1].bytes, 7);
	assert_int_equal(profile.sizes[1].starts, 2);
	assert_true(profile.sizes[1].mean == 1.5);
}

/* Without any time what lives is what there is. */
static void test_one_moment(void **state)
{
	static struct profile profile;

	profile_start(&profile, 7, 5 * S);
	profile_start(&profile, 7, 5 * S);
	profile_finish(&profile, 5 * S, 5 * S);
	assert_true(profile.sizes[0].mean == 2);
}

/* Once there are too many, the nearest larger one stands for a new one, or the largest. */
static void test_too_many(void **state)
{
	static struct profile profile;

	for (uint64_t i = 0; i < PROFILE_SIZES_MAX; i++)
		assert_int_equal(profile_start(&profile, (i + 1) * 10, 0), i);
	assert_int_equal(profile_start(&profile, 15, 0), 1);
	assert_int_equal(profile_start(&profile, 1, 0), 0);
	assert_int_equal(profile_start(&profile, UINT64_MAX, 0), PROFILE_SIZES_MAX - 1);
	assert_int_equal(profile_start(&profile, 30, 0), 2);
	assert_int_equal(profile.sizes[1].starts, 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_means),
		cmocka_unit_test(test_one_moment),
		cmocka_unit_test(test_too_many),
	};
	return cmocka_run_group_tests_name("profile", tests, NULL, NULL);
}
