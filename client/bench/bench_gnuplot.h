/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* bench_gnuplot.h - pictures (SVG), drawn by gnuplot from what a benchmark tells it. */
#ifndef HPZ_BENCH_GNUPLOT_H
#define HPZ_BENCH_GNUPLOT_H

#include "hpzctl.h"

/* Writes what gnuplot shall do, with data and all. */
typedef void (*bench_gnuplot_writer)(FILE *file, const void *user);

/* Is there one? 0, or a negative errno, said in the name of `who`. */
int bench_gnuplot_find(const char *who);

/* The picture appears when it is whole, over an older one. The same errors. */
int bench_gnuplot_draw(const char *who, const char *picture, bench_gnuplot_writer write, const void *user);

#endif
