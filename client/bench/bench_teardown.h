/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* bench_teardown.h - what is measured by `hpzctl bench teardown`: the cases, each on each kind of memory. */
#ifndef HPZ_BENCH_TEARDOWN_H
#define HPZ_BENCH_TEARDOWN_H

#include "bench_figures.h"
#include "bench_holder.h"

#define BENCH_TEARDOWN_PUDS 4096 /* as in the thread of 2017 */
#define BENCH_TEARDOWN_PUD                                                                                   \
	((uint64_t)1 << 30) /* bytes that an entry of that level is for, on x86 and with 4K on ARM */
#define BENCH_TEARDOWN_MUCH     ((uint64_t)1 << 40)
#define BENCH_TEARDOWN_ROWS_MAX 96

enum bench_method {
	BENCH_METHOD_PUDS,   /* one page in each of many GiB: nearly all of it is tables */
	BENCH_METHOD_MIDDLE, /* much is mapped, one page in its middle */
	BENCH_METHOD_WHOLE,  /* every page of `size`, as a guest's memory is */
	BENCH_METHODS
};

struct bench_row {
	enum bench_method method;
	struct bench_holder_wish wish;
	char kind[16], backing[24]; /* as "puds/exit" and "2M-shared-8" */
	char missing[BENCH_HOLDER_WHY];
	unsigned repeats; /* a round */
	double cost_s;    /* of its last round, all of it */
	bool has_run;     /* in this round */
	uint64_t table_bytes;
	struct bench_figures seconds, kernel_s; /* of all runs */
	struct bench_figures round_s, cycle_s;  /* medians of the rounds */
	size_t round_start;                     /* in seconds */
};

/* What memory there is for them. */
struct bench_teardown_plan {
	uint64_t size;                           /* that one case may take */
	uint64_t page_size, thp_size, huge_size; /* the smallest; what THP makes; 2M */
	uint64_t gigantic_size;                  /* 1G */
};

/* The rows, in the order in which they are printed; returns how many. */
size_t bench_teardown_plan_rows(
	const struct bench_teardown_plan *plan, struct bench_row rows[BENCH_TEARDOWN_ROWS_MAX]);

struct hpzctl;
struct output_json;
struct paravirt;

void bench_regime_print(struct output_json *json, const struct paravirt *regime);

/* What watching costs, by `source`, which is hpzd's key `teardown`; size 0, rounds 0: as many as there should
 * be. Returns the exit status. */
struct bench_statistics_wish {
	const char *source, *program;
	uint64_t size, rounds;
};
int bench_statistics(const struct hpzctl *ctl, const struct bench_statistics_wish *wish);

const char *bench_end_get_name(enum bench_end end);
const char *bench_method_get_name(enum bench_method method);

#endif
