/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * openmetrics.h - writes metrics as Prometheus reads them: OpenMetrics 1.0, or the older text format 0.0.4,
 * which is the same but for names of counters, units and the end. Pure.
 */
#ifndef HPZ_OPENMETRICS_H
#define HPZ_OPENMETRICS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "util.h"

#define OPENMETRICS_TYPE "application/openmetrics-text; version=1.0.0; charset=utf-8"
#define OPENMETRICS_TEXT "text/plain; version=0.0.4; charset=utf-8"

struct openmetrics {
	FILE *file;
	bool is_text;     /* the older format */
	const char *name; /* the family that is open; this and the following: borrowed */
	const char *type;
};

struct openmetrics_label {
	const char *name, *value; /* the value is whatever somebody wrote */
};
#define OPENMETRICS_LABELS 4 /* at most, of one series */

/*
 * Begins a family: all samples of it follow before the next one begins. `name` is without _total; `unit` is
 * what it ends in, "" for none; `type`: "counter", "gauge", "histogram", "info".
 */
void openmetrics_begin(
	struct openmetrics *out, const char *name, const char *type, const char *unit, const char *help);

void openmetrics_add(
	struct openmetrics *out, const struct openmetrics_label *labels, size_t label_count, uint64_t value);
/* A value in ns, written as seconds, exactly. */
void openmetrics_add_ns(
	struct openmetrics *out, const struct openmetrics_label *labels, size_t label_count, uint64_t ns);

/*
 * Of a family that is a histogram: bucket i counts what is less than 2^(shift + i), in units or, with
 * `is_ns`, in ns, which are written as seconds; the last one all that is more.
 */
struct openmetrics_histogram {
	const uint64_t *buckets;
	size_t bucket_count;
	unsigned shift;
	bool is_ns;
	uint64_t sum;
};
void openmetrics_add_histogram(struct openmetrics *out, const struct openmetrics_label *labels,
	size_t label_count, const struct openmetrics_histogram *histogram);

/* The end of everything. */
void openmetrics_end(struct openmetrics *out);

#endif
