/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* bench_figures.c - mean, deviation, median and spread: see bench_figures.h. */
#include "bench_figures.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "util.h"

static int bench_compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

double bench_get_median(double *figures, size_t count)
{
	qsort(figures, count, sizeof(*figures), bench_compare);
	return count % 2 ? figures[count / 2] : (figures[count / 2 - 1] + figures[count / 2]) / 2;
}

double bench_get_spread(const double *sorted, size_t count)
{
	return (sorted[count * 3 / 4] - sorted[count / 4]) / sorted[count / 2];
}

double bench_get_percentile(const double *sorted, size_t count, unsigned percent)
{
	return count ? sorted[MIN(count * percent / 100, count - 1)] : NAN;
}

void bench_figures_add(struct bench_figures *figures, double value)
{
	if (isnan(value))
		return;
	if (figures->count == figures->capacity) {
		figures->capacity = MAX(2 * figures->capacity, (size_t)16);
		figures->values = reallocarray(figures->values, figures->capacity, sizeof(*figures->values));
		if (!figures->values)
			abort();
	}
	figures->values[figures->count++] = value;
}

void bench_figures_deinit(struct bench_figures *figures)
{
	free(figures->values);
	*figures = (struct bench_figures){0};
}

double bench_figures_get_mean(const struct bench_figures *figures)
{
	double sum = 0;

	for (size_t i = 0; i < figures->count; i++)
		sum += figures->values[i];
	return figures->count ? sum / (double)figures->count : NAN;
}

double bench_figures_get_deviation(const struct bench_figures *figures)
{
	double mean = bench_figures_get_mean(figures), sum = 0;

	for (size_t i = 0; i < figures->count; i++)
		sum += (figures->values[i] - mean) * (figures->values[i] - mean);
	return figures->count > 1 ? sqrt(sum / (double)(figures->count - 1)) : NAN;
}

double bench_figures_get_median(struct bench_figures *figures)
{
	return figures->count ? bench_get_median(figures->values, figures->count) : NAN;
}

double bench_figures_get_quarter(struct bench_figures *figures, size_t quarter)
{
	if (figures->count == 0)
		return NAN;
	bench_get_median(figures->values, figures->count); /* sorts */
	return figures->values[figures->count * quarter / 4];
}

double bench_figures_get_spread(struct bench_figures *figures)
{
	if (figures->count == 0)
		return NAN;
	bench_get_median(figures->values, figures->count); /* sorts */
	return bench_get_spread(figures->values, figures->count);
}

double bench_figures_get_median_from(const struct bench_figures *figures, size_t first)
{
	struct bench_figures part = {0};

	for (size_t i = first; i < figures->count; i++)
		bench_figures_add(&part, figures->values[i]);
	double median = bench_figures_get_median(&part);
	bench_figures_deinit(&part);
	return median;
}
