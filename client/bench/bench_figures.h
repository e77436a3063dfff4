/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* bench_figures.h - mean, deviation, median and spread of what was measured. Pure. */
#ifndef HPZ_BENCH_FIGURES_H
#define HPZ_BENCH_FIGURES_H

#include <stddef.h>

/* Sorted in place; the median, and how far the middle half of the rounds spreads around it, as a part of it.
 */
double bench_get_median(double *figures, size_t count);
double bench_get_spread(const double *sorted, size_t count);
/* Of sorted figures; NAN: of none. */
double bench_get_percentile(const double *sorted, size_t count, unsigned percent);

/* As many as come. */
struct bench_figures {
	double *values;
	size_t count, capacity;
};

/* A figure that is missing (NAN) is not added. */
void bench_figures_add(struct bench_figures *figures, double value);
void bench_figures_deinit(struct bench_figures *figures);

/* NAN: of none. The deviation is that of a sample: NAN also of one. */
double bench_figures_get_mean(const struct bench_figures *figures);
double bench_figures_get_deviation(const struct bench_figures *figures);
/* These sort; NAN: of none. The quarter: below it a fourth of them, with 3 three fourths. */
double bench_figures_get_median(struct bench_figures *figures);
double bench_figures_get_spread(struct bench_figures *figures);
double bench_figures_get_quarter(struct bench_figures *figures, size_t quarter);

/* The median of those from `first` on, in their order. */
double bench_figures_get_median_from(const struct bench_figures *figures, size_t first);

#endif
