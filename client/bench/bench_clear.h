/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* bench_clear.h - what the parts of `hpzctl bench clear` share: figures by name, and what they measure on. */
#ifndef HPZ_BENCH_CLEAR_H
#define HPZ_BENCH_CLEAR_H

#include "bench.h"
#include "bench_pages.h"
#include "worker.h"
#include "zero.h"

struct bench_sample {
	double value;
	double clearing; /* GB/s meanwhile; 0: nothing was cleared */
	double ratio;    /* of the value to the one it is compared with; NAN: to none */
};

#define BENCH_SERIES_MAX 32

/* One thing that was measured, once a round, or in some series a round: then the round's is their median. */
struct bench_figure {
	const char *kind, *name;
	uint64_t page_size, bytes; /* bytes: of the extent, or of the neighbour's set; 0: none */
	bool is_time;              /* microseconds; else GB/s */
	size_t count;              /* rounds */
	double values[BENCH_ROUNDS_MAX], clearing[BENCH_ROUNDS_MAX], ratios[BENCH_ROUNDS_MAX];
	size_t series_count; /* of this round */
	struct bench_sample series[BENCH_SERIES_MAX];
	struct bench_sample median; /* NAN: never measured, or nothing cleared, or nothing to compare with */
	double spread;              /* of the ratios where there are some */
};
#define BENCH_FIGURES_MAX 64

struct bench_latency {
	double p50_us, p99_us; /* NAN: not measured */
};

struct bench_clear {
	uint64_t gib, rounds;
	const char *picture; /* --svg; NULL: none */
	struct host host;
	int32_t node;
	int cpu, other_cpu; /* of the node and allowed to us; -1: there is none */
	struct bench_pages pages;
	struct zero_result results[ZERO_METHODS_MAX];
	int chosen; /* of results, for 2M pages or the only size; -1: none */
	uint64_t batch_ns;
	struct bench_latency stop, end; /* from the order to the last batch, to the end of the job */
	bool is_complete;               /* else something said why not */
	size_t figure_count;
	struct bench_figure figures[BENCH_FIGURES_MAX];
};

/* The figure of that name, made if it is new. Thereafter it is known by its place. */
struct bench_figure *bench_clear_get_figure(
	struct bench_clear *bench, const char *kind, const char *name, uint64_t page_size, uint64_t bytes);
/* NULL: there is none. name NULL: whatever it is called. */
const struct bench_figure *bench_clear_find_figure(const struct bench_clear *bench, const char *kind,
	const char *name, uint64_t page_size, uint64_t bytes);
void bench_figure_add(struct bench_figure *figure, struct bench_sample sample);
void bench_series_add(struct bench_figure *figure, struct bench_sample sample);
void bench_close_series(struct bench_clear *bench); /* the round's are over */

/* A worker's job, clearing the segment at `offset`; what it ended with. */
int bench_clear_run_engine(const struct bench_clear *bench, uint64_t offset, struct worker_control *control,
	struct pressure_rules *rules);

void bench_pin(int cpu); /* this thread; -1: as it is */

/* bench_neighbour.c: one round of somebody else beside the clearing; on this CPU, on another. */
#define BENCH_SET_SMALL     ((uint64_t)1 << 20)
#define BENCH_SELDOM        "/4" /* of the names of figures: a batch every so many passes */
#define BENCH_SELDOM_PASSES 4
#define BENCH_SMALL_PAGE    4096
#define BENCH_SET_LARGE     ((uint64_t)32 << 20)
int bench_neighbour_init(void); /* its memory; 0 or negative errno */
/* Else its times depend on where its pages lie. */
bool bench_neighbour_is_on_huge_pages(void);
void bench_neighbour_deinit(void);
void bench_neighbour_run_round(struct bench_clear *bench);
void bench_bandwidth_run_round(struct bench_clear *bench);

/* bench_picture.c: 0, or negative errno (said). */
int bench_picture_find_tool(void);
int bench_picture_draw(const struct bench_clear *bench);

#endif
