/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * bench_report.h - the report of `hpzctl bench all`: which benchmarks there are and what their figures mean,
 * and Markdown and pictures of what was measured. A function of the JSON of the run.
 */
#ifndef HPZ_BENCH_REPORT_H
#define HPZ_BENCH_REPORT_H

#include <jansson.h>

#include "hpzctl.h"

enum report_unit {
	REPORT_TEXT,
	REPORT_COUNT,
	REPORT_BYTES,
	REPORT_S,
	REPORT_MS,
	REPORT_US,
	REPORT_DECIMAL, /* a ratio or a rate, four digits of it */
	REPORT_PART,    /* of 1: in percent */
	REPORT_PERCENT,
};

struct report_column {
	const char *heading, *path; /* "kernel_us.p50": of the row; or of the result where there is no list */
	enum report_unit unit;
};

#define REPORT_COLUMNS 12
#define REPORT_ROWS    4
struct report_table {
	const char *title; /* NULL: none */
	const char *list; /* of the result, a line for each; NULL: figures of the result itself, one a line */
	struct report_column columns[REPORT_COLUMNS];
	/* Or lines of their own: the first column has the label, and in the paths of the others '*' is the
	 * word. */
	struct {
		const char *label, *word;
	} rows[REPORT_ROWS];
};

#define REPORT_SERIES 3
struct report_series {
	const char *name, *path, *color; /* of gnuplot */
};
#define REPORT_BARS 4
struct report_picture {
	const char *title, *axis;
	bool is_logarithmic;
	/* Bars of each row of a list, named by one or two of its texts or numbers... */
	const char *list;
	const char *only_key, *only_value; /* of those rows; NULL: all */
	struct report_column labels[2];
	struct report_series series[REPORT_SERIES];
	/* ... or these ones; in the path of each series '*' is the word. */
	struct {
		const char *label, *word;
	} bars[REPORT_BARS];
};

#define REPORT_ARGUMENTS 6
#define REPORT_TABLES    4
struct report_benchmark {
	const char *name, *about;
	const char *full[REPORT_ARGUMENTS], *quick[REPORT_ARGUMENTS];
	bool takes_hpzd;  /* it has the option --hpzd: it starts some of its own */
	bool needs_hpzd;  /* one that runs */
	const char *size; /* the option that says how much memory; NULL: it knows by itself */
	struct report_table tables[REPORT_TABLES];
	struct report_picture picture;
};

extern const struct report_benchmark report_benchmarks[];
extern const size_t report_benchmark_count;
const struct report_benchmark *report_find_benchmark(const char *name);

/*
 * The report as Markdown, and a picture for each benchmark that has figures, beside it: FILE less its ".md",
 * then "-NAME.svg". 0, or a negative errno, of which it has spoken.
 */
int bench_report_write(const json_t *report, const char *path);

#endif
