/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_bench_figures.c - mean, deviation, median and spread, also of nothing and of one. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "bench_figures.h"

static void fill(struct bench_figures *figures, const double *values, size_t count)
{
	*figures = (struct bench_figures){0};
	for (size_t i = 0; i < count; i++)
		bench_figures_add(figures, values[i]);
}

static void test_none(void **state)
{
	struct bench_figures figures = {0};

	(void)state;
	bench_figures_add(&figures, NAN);
	assert_int_equal(figures.count, 0);
	assert_true(isnan(bench_figures_get_mean(&figures)));
	assert_true(isnan(bench_figures_get_deviation(&figures)));
	assert_true(isnan(bench_figures_get_median(&figures)));
	assert_true(isnan(bench_figures_get_spread(&figures)));
	assert_true(isnan(bench_figures_get_quarter(&figures, 1)));
	assert_true(isnan(bench_figures_get_median_from(&figures, 0)));
	bench_figures_deinit(&figures);
}

static void test_one(void **state)
{
	struct bench_figures figures;

	(void)state;
	fill(&figures, (const double[]){3}, 1);
	assert_true(bench_figures_get_mean(&figures) == 3);
	assert_true(isnan(bench_figures_get_deviation(&figures)));
	assert_true(bench_figures_get_median(&figures) == 3);
	assert_true(bench_figures_get_spread(&figures) == 0);
	bench_figures_deinit(&figures);
}

static void test_some(void **state)
{
	struct bench_figures figures;

	(void)state;
	fill(&figures, (const double[]){9, 4, 2, 5, 4, 7, 5, 4}, 8);
	/* In the order in which they came: the last three. */
	assert_true(bench_figures_get_median_from(&figures, 5) == 5);
	assert_true(bench_figures_get_mean(&figures) == 5);
	assert_true(fabs(bench_figures_get_deviation(&figures) - sqrt(32.0 / 7)) < 1e-12);
	assert_true(bench_figures_get_median(&figures) == 4.5);
	assert_true(bench_figures_get_quarter(&figures, 1) == 4);
	assert_true(bench_figures_get_quarter(&figures, 3) == 7);
	assert_true(fabs(bench_figures_get_spread(&figures) - 3.0 / 5) < 1e-12);
	bench_figures_deinit(&figures);
	assert_null(figures.values);
}

static void test_many(void **state)
{
	struct bench_figures figures = {0};

	(void)state;
	for (int i = 1000; i >= 0; i--)
		bench_figures_add(&figures, i);
	assert_int_equal(figures.count, 1001);
	assert_true(bench_figures_get_median(&figures) == 500);
	assert_true(bench_figures_get_spread(&figures) == 1);
	bench_figures_deinit(&figures);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_none),
		cmocka_unit_test(test_one),
		cmocka_unit_test(test_some),
		cmocka_unit_test(test_many),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
