/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * bench_clear.c - how fast memory becomes zero, by every method, by the kernel, by the engine; what a
 * neighbour feels of it; how soon it stops.
 *
 * Each round measures everything once, one after the other, so that a disturbance meets all alike; medians of
 * the rounds are printed. Rates are summed up from pieces during which nobody took the CPU from us. The
 * memory is warm: allocated, and cleared once before the first round.
 */
#include "bench_clear.h"

#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "options.h"
#include "output.h"
#include "size.h"

#define BENCH_CLEAR_GIB     1
#define BENCH_CLEAR_ROUNDS  7
#define CALIBRATE_BUDGET_NS (150 * NS_PER_MS)
#define PIECE               ((uint64_t)16 << 20) /* 0.2 ms of ours, 2 of the kernel's */
#define STOPS               100                  /* for a 99th percentile */

/* ---- figures ---- */

const struct bench_figure *bench_clear_find_figure(const struct bench_clear *bench, const char *kind,
	const char *name, uint64_t page_size, uint64_t bytes)
{
	for (size_t i = 0; i < bench->figure_count; i++) {
		const struct bench_figure *figure = &bench->figures[i];
		if (strcmp(figure->kind, kind) == 0 && (!name || strcmp(figure->name, name) == 0) &&
			figure->page_size == page_size && figure->bytes == bytes)
			return figure;
	}
	return NULL;
}

struct bench_figure *bench_clear_get_figure(
	struct bench_clear *bench, const char *kind, const char *name, uint64_t page_size, uint64_t bytes)
{
	const struct bench_figure *found = bench_clear_find_figure(bench, kind, name, page_size, bytes);
	struct bench_figure *figure;

	if (found)
		return &bench->figures[found - bench->figures];
	if (bench->figure_count == BENCH_FIGURES_MAX)
		abort(); /* a kind more than there was room for: the constant is wrong */
	figure = &bench->figures[bench->figure_count++];
	*figure = (struct bench_figure){.kind = kind,
		.name = name,
		.page_size = page_size,
		.bytes = bytes,
		.is_time = strcmp(kind, "neighbour") == 0 || strcmp(kind, "after") == 0,
		.median = {NAN, NAN, NAN},
		.spread = NAN};
	return figure;
}

void bench_figure_add(struct bench_figure *figure, struct bench_sample sample)
{
	figure->values[figure->count] = sample.value;
	figure->clearing[figure->count] = sample.clearing;
	figure->ratios[figure->count++] = sample.ratio;
}

void bench_series_add(struct bench_figure *figure, struct bench_sample sample)
{
	if (figure->series_count == BENCH_SERIES_MAX)
		abort();
	figure->series[figure->series_count++] = sample;
}

static void close_series(struct bench_figure *figure)
{
	double values[BENCH_SERIES_MAX], clearing[BENCH_SERIES_MAX], ratios[BENCH_SERIES_MAX];
	size_t count = figure->series_count;

	for (size_t i = 0; i < count; i++) {
		values[i] = figure->series[i].value;
		clearing[i] = figure->series[i].clearing;
		ratios[i] = figure->series[i].ratio;
	}
	bench_figure_add(figure, (struct bench_sample){bench_get_median(values, count),
					 bench_get_median(clearing, count), bench_get_median(ratios, count)});
	figure->series_count = 0;
}

void bench_close_series(struct bench_clear *bench)
{
	for (size_t i = 0; i < bench->figure_count; i++)
		if (bench->figures[i].series_count > 0)
			close_series(&bench->figures[i]);
}

static void close_figure(struct bench_figure *figure)
{
	if (figure->count == 0)
		return;
	figure->median.value = bench_get_median(figure->values, figure->count);
	figure->spread = bench_get_spread(figure->values, figure->count);
	if (figure->clearing[0] > 0)
		figure->median.clearing = bench_get_median(figure->clearing, figure->count);
	if (isnan(figure->ratios[0]))
		return;
	/* Paired: what the machine does to both in the meantime is no spread of theirs. */
	figure->median.ratio = bench_get_median(figure->ratios, figure->count);
	figure->spread = bench_get_spread(figure->ratios, figure->count);
}

/* ---- rates ---- */

/*
 * One way to clear, measured piece by piece until half of the memory was cleared undisturbed; NAN: it never
 * was. Each piece is another one, so that nothing is warm from a try before.
 */
typedef void (*piece_fn)(const struct bench_clear *bench, const struct zero_method *method, uint64_t offset,
	uint64_t bytes, uint64_t step);
#define PASSES_MAX 4

static double measure(const struct bench_clear *bench, piece_fn run, const struct zero_method *method,
	uint64_t piece, uint64_t step)
{
	struct bench_rate rate = {0};

	for (unsigned pass = 0; pass < PASSES_MAX && rate.bytes < bench->pages.bytes / 2; pass++)
		for (uint64_t at = 0; at < bench->pages.bytes && !bench_get_signal(); at += piece) {
			struct bench_watch watch;
			bench_watch_start(&watch);
			run(bench, method, at, piece, step);
			bench_rate_add(&rate, &watch, piece);
		}
	return rate.bytes < bench->pages.bytes / 4 ? NAN : (double)rate.bytes / (double)rate.ns;
}

static void clear_piece(const struct bench_clear *bench, const struct zero_method *method, uint64_t offset,
	uint64_t bytes, uint64_t step)
{
	char *start = bench->pages.start + offset;

	for (uint64_t at = 0; at < bytes; at += step) {
		method->clear(start + at, step);
		zero_fence();
	}
}

static double measure_method(const struct bench_clear *bench, const struct zero_method *method, uint64_t step)
{
	return measure(bench, clear_piece, method, MAX(PIECE, step), step);
}

/* The kernel clears pages when it allocates them. */
static void allocate_piece(const struct bench_clear *bench, const struct zero_method *method, uint64_t offset,
	uint64_t bytes, uint64_t step)
{
	bench_pages_allocate(&bench->pages, offset, bytes);
}

/* All are punched first: a page that has just been freed would be the next one allocated, and in the caches.
 */
static double measure_kernel(const struct bench_clear *bench)
{
	const struct bench_pages *pages = &bench->pages;
	struct bench_rate rate = {0};
	uint64_t piece = MAX(PIECE, pages->page_size);

	for (unsigned pass = 0; pass < PASSES_MAX && rate.bytes < pages->bytes / 2; pass++) {
		bench_pages_punch(pages, 0, pages->bytes);
		for (uint64_t at = 0; at < pages->bytes; at += piece) {
			struct bench_watch watch;
			bench_watch_start(&watch);
			allocate_piece(bench, NULL, at, piece, 0);
			bench_rate_add(&rate, &watch, piece);
		}
	}
	madvise(pages->start, pages->bytes, MADV_POPULATE_WRITE);
	return rate.bytes < pages->bytes / 4 ? NAN : (double)rate.bytes / (double)rate.ns;
}

int bench_clear_run_engine(const struct bench_clear *bench, uint64_t offset, struct worker_control *control,
	struct pressure_rules *rules)
{
	const struct bench_pages *pages = &bench->pages;
	int fds[WORKER_FDS] = {pages->fds[offset / pages->segment_bytes], -1, -1, -1, -1};
	struct worker_job job = {.id = 1,
		.op = WORKER_CLEAR,
		.method = bench->chosen,
		.page_size = pages->page_size,
		.length = pages->segment_bytes / pages->page_size,
		.base_ns = bench->batch_ns};
	struct worker_done done;

	worker_run_job(&job, fds, control, rules, &done, NULL, NULL);
	return done.error;
}

/* The whole job of a worker: look for holes, map, clear, let go. */
static void run_engine_piece(const struct bench_clear *bench, const struct zero_method *method,
	uint64_t offset, uint64_t bytes, uint64_t step)
{
	struct worker_control control = {0};
	struct pressure_rules rules = {0};

	bench_clear_run_engine(bench, offset, &control, &rules);
}

/* What no engine can do without: map, clear, let go. Never stops, asks nobody, catches nothing. */
static void run_bare_piece(const struct bench_clear *bench, const struct zero_method *method, uint64_t offset,
	uint64_t bytes, uint64_t step)
{
	char *start = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE,
		bench->pages.fds[offset / bench->pages.segment_bytes], 0);

	if (start == MAP_FAILED)
		return;
	for (uint64_t at = 0; at < bytes; at += step)
		method->clear(start + at, step);
	zero_fence();
	munmap(start, bytes);
}

static void add_rate(
	struct bench_clear *bench, const char *kind, const char *name, uint64_t bytes, double rate)
{
	if (!isnan(rate))
		bench_figure_add(bench_clear_get_figure(bench, kind, name, bench->pages.page_size, bytes),
			(struct bench_sample){rate, 0, NAN});
}

/* All that is done on pages of any size. Another method first each round. */
static void run_rates(struct bench_clear *bench, size_t round)
{
	const struct zero_method *chosen = bench->results[bench->chosen].method;
	uint64_t segment = bench->pages.segment_bytes;

	for (size_t i = 0; i < zero_method_count && !bench_get_signal(); i++) {
		const struct zero_result *result = &bench->results[(i + round) % zero_method_count];
		if (result->is_usable)
			add_rate(bench, "method", result->method->name, 0,
				measure_method(bench, result->method, ZERO_BATCH));
	}
	add_rate(bench, "kernel", "fallocate", 0, measure_kernel(bench));
	add_rate(bench, "bare", chosen->name, 0, measure(bench, run_bare_piece, chosen, segment, ZERO_BATCH));
	add_rate(bench, "engine", "hpz", 0, measure(bench, run_engine_piece, chosen, segment, ZERO_BATCH));
}

static void run_extents(struct bench_clear *bench)
{
	const uint64_t extents[] = {4096, ZERO_BATCH, bench->pages.segment_bytes};
	const struct zero_method *method = bench->results[bench->chosen].method;

	for (size_t i = 0; i < ARRAY_SIZE(extents) && !bench_get_signal(); i++)
		add_rate(
			bench, "extent", method->name, extents[i], measure_method(bench, method, extents[i]));
}

/* ---- stop ---- */

struct stopped {
	const struct bench_clear *bench;
	struct worker_control control;
	struct pressure_rules rules;
	_Atomic bool is_over;
	bool is_undisturbed;
};

static void *run_until_stopped(void *user)
{
	struct stopped *stopped = user;
	struct bench_watch watch;
	uint64_t ns;

	bench_pin(stopped->bench->other_cpu);
	bench_watch_start(&watch);
	while (bench_clear_run_engine(stopped->bench, 0, &stopped->control, &stopped->rules) == 0)
		;
	stopped->is_undisturbed = bench_watch_stop(&watch, &ns);
	atomic_store(&stopped->is_over, true);
	return NULL;
}

/*
 * From the order to the end of the last batch, and to the end of the job, which lets go of its mapping in
 * between. Watched from our CPU, which must have been ours all the time, too. False: disturbed.
 */
static bool watch_stop(struct stopped *stopped, double *ret_last_us, double *ret_end_us)
{
	struct bench_watch watch;
	uint64_t batches = atomic_load(&stopped->control.batches), last_ns, now_ns;

	bench_watch_start(&watch);
	last_ns = watch.start_ns;
	atomic_store(&stopped->control.stop, UINT64_MAX);
	pressure_bump(&stopped->rules);
	while (!atomic_load(&stopped->is_over)) {
		uint64_t seen = atomic_load_explicit(&stopped->control.batches, memory_order_relaxed);
		now_ns = clock_get_ns(CLOCK_MONOTONIC);
		if (seen != batches)
			last_ns = now_ns;
		batches = seen;
	}
	if (!bench_watch_stop(&watch, &now_ns))
		return false;
	*ret_last_us = (double)(last_ns - watch.start_ns) / 1e3;
	*ret_end_us = (double)now_ns / 1e3;
	return true;
}

static bool measure_stop(
	const struct bench_clear *bench, unsigned delay_us, double *ret_last_us, double *ret_end_us)
{
	struct stopped stopped = {.bench = bench};
	pthread_t thread;

	if (pthread_create(&thread, NULL, run_until_stopped, &stopped) != 0)
		return false;
	usleep(delay_us);
	bool is_undisturbed = watch_stop(&stopped, ret_last_us, ret_end_us);
	pthread_join(thread, NULL);
	return is_undisturbed && stopped.is_undisturbed;
}

/* Without a second CPU the order would wait for its turn, not for the worker. */
static void measure_stops(struct bench_clear *bench)
{
	double last_us[STOPS], end_us[STOPS];
	size_t count = 0;

	if (bench->other_cpu < 0)
		return;
	for (size_t i = 0; i < 20 * STOPS && count < STOPS && !bench_get_signal(); i++)
		if (measure_stop(bench, 1000 + (unsigned)(i * 7919 % 4000), &last_us[count], &end_us[count]))
			count++;
	if (count < STOPS)
		return;
	bench->stop.p50_us = bench_get_median(last_us, count); /* sorted now */
	bench->stop.p99_us = last_us[count * 99 / 100];
	bench->end.p50_us = bench_get_median(end_us, count);
	bench->end.p99_us = end_us[count * 99 / 100];
}

/* ---- the machine ---- */

void bench_pin(int cpu)
{
	size_t bytes = CPU_ALLOC_SIZE(cpu + 1);
	cpu_set_t *set = cpu < 0 ? NULL : CPU_ALLOC((size_t)cpu + 1);

	if (!set)
		return;
	CPU_ZERO_S(bytes, set);
	CPU_SET_S((size_t)cpu, bytes, set);
	sched_setaffinity(0, bytes, set);
	CPU_FREE(set);
}

/* The first two CPUs of the node that we may use. */
static void find_cpus(struct bench_clear *bench)
{
	char list[4096];
	struct host_cpus node;
	cpu_set_t allowed;
	bool is_known = host_get_cpulist(&bench->host, bench->node, list, sizeof(list)) == 0 &&
			host_parse_cpulist(list, &node) == 0;

	bench->cpu = bench->other_cpu = -1;
	if (sched_getaffinity(0, sizeof(allowed), &allowed) < 0)
		return; /* more CPUs than the set holds: wherever the kernel puts us */
	for (int i = 0; i < CPU_SETSIZE && bench->other_cpu < 0; i++) {
		size_t bits = 8 * sizeof(node.bits[0]);
		if (!CPU_ISSET(i, &allowed) ||
			(is_known && !(node.bits[(size_t)i / bits] & 1ul << ((size_t)i % bits))))
			continue;
		*(bench->cpu < 0 ? &bench->cpu : &bench->other_cpu) = i;
	}
}

static void be_incomplete(struct bench_clear *bench, const char *why)
{
	bench->is_complete = false;
	hpzctl_say("bench clear: %s", why);
}

/* ---- the run ---- */

/* Which method hpzd would take on these very pages, and what a batch takes. Clears all of them once. */
static int choose_method(struct bench_clear *bench)
{
	bench->chosen =
		zero_calibrate(bench->pages.start, bench->pages.bytes, CALIBRATE_BUDGET_NS, bench->results);
	if (bench->chosen < 0) {
		hpzctl_say("bench clear: no method clears what it is given");
		return -EIO;
	}
	bench->batch_ns = bench->results[bench->chosen].batch_ns;
	measure_method(bench, bench->results[bench->chosen].method, ZERO_BATCH);
	return 0;
}

static int run_rounds(struct bench_clear *bench, bool is_main)
{
	int r = choose_method(bench);

	for (size_t i = 0; r == 0 && i < bench->rounds; i++) {
		run_rates(bench, i);
		if (is_main) {
			run_extents(bench);
			bench_neighbour_run_round(bench);
			bench_bandwidth_run_round(bench);
		}
		if (bench_get_signal())
			r = -EINTR;
	}
	if (r == 0 && is_main)
		measure_stops(bench);
	return r;
}

/* Pages of another size that can be had: their rates only. Not to have them is no failure. */
static int run_other_size(struct bench_clear *bench, uint64_t page_size)
{
	struct bench_pages kept = bench->pages;
	struct zero_result results[ZERO_METHODS_MAX];
	int chosen = bench->chosen, r;
	uint64_t batch_ns = bench->batch_ns;

	memcpy(results, bench->results, sizeof(results));
	r = bench_pages_take(&bench->host, bench->node, page_size, bench->gib, &bench->pages);
	if (r == 0) {
		r = run_rounds(bench, false);
		bench_pages_give(&bench->pages);
	} else if (r != -EINTR) {
		be_incomplete(bench, "pages of 1G are left out");
		r = 0;
	}
	bench->pages = kept;
	memcpy(bench->results, results, sizeof(results));
	bench->chosen = chosen;
	bench->batch_ns = batch_ns;
	return r;
}

static int run_sizes(struct bench_clear *bench)
{
	const uint64_t small = (uint64_t)2 << 20, large = (uint64_t)1 << 30;
	int r;

	if (!host_has_page_size(&bench->host, small)) {
		hpzctl_say("bench clear: the kernel offers no pages of 2M");
		return -ENODEV;
	}
	r = bench_pages_take(&bench->host, bench->node, small, bench->gib * (large / small), &bench->pages);
	if (r == 0)
		r = run_rounds(bench, true);
	if (r == 0 && host_has_page_size(&bench->host, large))
		r = run_other_size(bench, large);
	return r;
}

static void judge(struct bench_clear *bench)
{
	char why[160];

	if (bench->rounds < BENCH_ROUNDS_MIN)
		be_incomplete(bench, "a median of so few rounds says little: --rounds 5 at least");
	if (bench->other_cpu < 0)
		be_incomplete(bench, "one CPU only: no stop latency, and no bandwidth of a neighbour");
	else if (isnan(bench->stop.p99_us))
		be_incomplete(bench, "the CPU is too busy to measure how soon the worker stops");
	for (size_t i = 0; i < bench->figure_count; i++) {
		struct bench_figure *figure = &bench->figures[i];
		close_figure(figure);
		snprintf(why, sizeof(why), "%s %s: ", figure->kind, figure->name);
		size_t used = strlen(why);
		if (figure->count < bench->rounds)
			snprintf(why + used, sizeof(why) - used,
				"%zu of %" PRIu64 " rounds, the others were disturbed", figure->count,
				bench->rounds);
		else if (figure->spread > BENCH_SPREAD_MAX)
			snprintf(why + used, sizeof(why) - used,
				"the middle half of the rounds spreads over %.0f %%: the machine is busy",
				figure->spread * 100);
		else
			continue;
		be_incomplete(bench, why);
	}
}

/* ---- output ---- */

static double get_median(const struct bench_clear *bench, const char *kind, const char *name, uint64_t bytes)
{
	const struct bench_figure *figure =
		bench_clear_find_figure(bench, kind, name, bench->pages.page_size, bytes);
	return figure ? figure->median.value : NAN;
}

static double get_best_rate(const struct bench_clear *bench)
{
	double best = NAN;

	for (size_t i = 0; i < zero_method_count; i++) {
		double rate = get_median(bench, "method", zero_methods[i].name, 0);
		if (!isnan(rate) && !(best >= rate))
			best = rate;
	}
	return best;
}

/*
 * What the engine reaches of what a bare program reaches with the best method: one that maps a segment,
 * clears it and lets go, and does nothing else.
 */
static double get_ratio_to_best(const struct bench_clear *bench)
{
	const char *chosen = bench->results[bench->chosen].method->name;

	return get_median(bench, "engine", "hpz", 0) / get_median(bench, "bare", chosen, 0) *
	       get_median(bench, "method", chosen, 0) / get_best_rate(bench);
}

static void print_json_methods(struct output_json *json, const struct bench_clear *bench)
{
	output_json_open_list(json, "methods");
	for (size_t i = 0; i < bench->figure_count; i++) {
		const struct bench_figure *figure = &bench->figures[i];
		if (strcmp(figure->kind, "method") != 0)
			continue;
		output_json_open_object(json, NULL);
		output_json_text(json, "name", figure->name);
		output_json_number(json, "page_size", figure->page_size);
		output_json_decimal(json, "gb_per_s", figure->median.value, 3);
		output_json_close(json);
	}
	/* What is not measured is named, too. */
	for (size_t i = 0; i < zero_method_count; i++) {
		if (bench->results[i].is_usable)
			continue;
		output_json_open_object(json, NULL);
		output_json_text(json, "name", zero_methods[i].name);
		output_json_number(json, "page_size", bench->pages.page_size);
		output_json_null(json, "gb_per_s");
		output_json_text(json, "why", bench->results[i].why);
		output_json_close(json);
	}
	output_json_close(json);
}

static const struct bench_sample *get_neighbour(
	const struct bench_clear *bench, const char *kind, const char *name)
{
	static const struct bench_sample none = {NAN, NAN, NAN};
	const struct bench_figure *figure =
		bench_clear_find_figure(bench, kind, name, bench->pages.page_size, BENCH_SET_SMALL);

	return figure ? &figure->median : &none;
}

static const char *const hpz_passes[BENCH_SELDOM_PASSES] = {"hpz 1", "hpz 2", "hpz 3", "hpz 4"},
			 *const kernel_passes[BENCH_SELDOM_PASSES] = {
				 "fallocate 1", "fallocate 2", "fallocate 3", "fallocate 4"};

static void print_json_passes(struct output_json *json, const struct bench_clear *bench, const char *key,
	const char *const names[BENCH_SELDOM_PASSES])
{
	output_json_open_list(json, key);
	for (size_t i = 0; i < BENCH_SELDOM_PASSES; i++)
		output_json_decimal(json, NULL, get_neighbour(bench, "after", names[i])->ratio, 3);
	output_json_close(json);
}

static void print_json_neighbour(struct output_json *json, const struct bench_clear *bench)
{
	const struct bench_sample *hpz = get_neighbour(bench, "neighbour", "hpz" BENCH_SELDOM),
				  *kernel = get_neighbour(bench, "neighbour", "fallocate" BENCH_SELDOM);

	output_json_open_object(json, "neighbour");
	output_json_decimal(json, "alone_us", get_neighbour(bench, "neighbour", "alone")->value, 2);
	output_json_decimal(json, "kernel_us", kernel->value, 2);
	output_json_decimal(json, "hpz_us", hpz->value, 2);
	output_json_decimal(json, "clearing_gb_per_s", hpz->clearing, 3);
	output_json_number(json, "passes", BENCH_SELDOM_PASSES);
	output_json_decimal(json, "kernel_ratio", kernel->ratio, 3);
	output_json_decimal(json, "hpz_ratio", hpz->ratio, 3);
	print_json_passes(json, bench, "kernel_after", kernel_passes);
	print_json_passes(json, bench, "hpz_after", hpz_passes);
	output_json_close(json);
}

static void print_json_rows(struct output_json *json, const struct bench_clear *bench)
{
	output_json_open_list(json, "rows");
	for (size_t i = 0; i < bench->figure_count; i++) {
		const struct bench_figure *figure = &bench->figures[i];
		output_json_open_object(json, NULL);
		output_json_text(json, "kind", figure->kind);
		output_json_text(json, "name", figure->name);
		output_json_number(json, "page_size", figure->page_size);
		if (figure->bytes)
			output_json_number(json, "bytes", figure->bytes);
		else
			output_json_null(json, "bytes");
		output_json_decimal(json, "gb_per_s", figure->is_time ? NAN : figure->median.value, 3);
		output_json_decimal(json, "us", figure->is_time ? figure->median.value : NAN, 2);
		output_json_decimal(json, "clearing_gb_per_s", figure->median.clearing, 3);
		output_json_decimal(json, "ratio", figure->median.ratio, 3);
		output_json_number(json, "rounds", figure->count);
		output_json_decimal(json, "spread", figure->spread, 3);
		output_json_close(json);
	}
	output_json_close(json);
}

static void print_json_latency(struct output_json *json, const char *key, const struct bench_latency *latency)
{
	output_json_open_object(json, key);
	output_json_decimal(json, "p50", latency->p50_us, 1);
	output_json_decimal(json, "p99", latency->p99_us, 1);
	output_json_close(json);
}

static void print_json(const struct bench_clear *bench)
{
	struct output_json json;
	double kernel = get_median(bench, "kernel", "fallocate", 0),
	       engine = get_median(bench, "engine", "hpz", 0);

	output_json_init(&json, stdout);
	output_json_open_object(&json, NULL);
	output_json_text(&json, "schema", "hpz-bench-clear-1");
	print_json_methods(&json, bench);
	output_json_text(&json, "chosen", bench->results[bench->chosen].method->name);
	output_json_decimal(&json, "kernel_gb_per_s", kernel, 3);
	output_json_decimal(&json, "engine_gb_per_s", engine, 3);
	output_json_decimal(&json, "ratio_to_best", get_ratio_to_best(bench), 3);
	output_json_decimal(&json, "ratio_to_mapped", engine / get_best_rate(bench), 3);
	output_json_decimal(&json, "ratio_to_kernel", engine / kernel, 3);
	print_json_neighbour(&json, bench);
	print_json_latency(&json, "stop_us", &bench->stop);
	print_json_latency(&json, "end_us", &bench->end);
	output_json_decimal(&json, "batch_us", (double)bench->batch_ns / 1e3, 1);
	output_json_number(&json, "rounds", bench->rounds);
	output_json_number(&json, "gib", bench->gib);
	output_json_bool(&json, "complete", bench->is_complete);
	print_json_rows(&json, bench);
	output_json_close(&json);
}

static void add_decimal(struct output_table *table, double value, const char *unit)
{
	if (isfinite(value))
		output_table_add(table, "%.1f %s", value, unit);
	else
		output_table_add(table, "-");
}

static void add_ratio(struct output_table *table, double value)
{
	if (isfinite(value))
		output_table_add(table, "%.3f", value);
	else
		output_table_add(table, "-");
}

static void print_passes(
	const struct bench_clear *bench, const char *what, const char *const names[BENCH_SELDOM_PASSES])
{
	printf("the passes after a batch of %s:", what);
	for (size_t i = 0; i < BENCH_SELDOM_PASSES; i++)
		printf(" %.3f", get_neighbour(bench, "after", names[i])->ratio);
	printf("\n");
}

static void print_neighbour(const struct bench_clear *bench)
{
	static const struct {
		const char *kernel, *hpz, *when;
	} rows[] = {
		{"fallocate" BENCH_SELDOM, "hpz" BENCH_SELDOM, "every fourth pass"},
		{"fallocate", "hpz", "every pass"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		const struct bench_sample *hpz = get_neighbour(bench, "neighbour", rows[i].hpz);
		if (isfinite(hpz->ratio))
			printf("beside %.1f GB/s of it (a batch after %s) a walk over 1 MiB takes %.3f of "
			       "what it takes alone, beside the kernel's clearing %.3f\n",
				hpz->clearing, rows[i].when, hpz->ratio,
				get_neighbour(bench, "neighbour", rows[i].kernel)->ratio);
	}
	double lookup = get_neighbour(bench, "neighbour", "lookup")->ratio;
	if (!isfinite(lookup))
		return;
	printf("of the latter %.3f is for looking up the pages of a batch, without any store\n", lookup);
	print_passes(bench, "hpz", hpz_passes);
	print_passes(bench, "the kernel", kernel_passes);
}

static void print_text(const struct bench_clear *bench)
{
	static const char *const headings[] = {
		"WHAT", "NAME", ">PAGES", ">BYTES", ">MEDIAN", ">CLEARING", ">TO ALONE", ">SPREAD"};
	double engine = get_median(bench, "engine", "hpz", 0);
	struct output_table table;
	char text[SIZE_TEXT];

	output_table_init(&table, headings, ARRAY_SIZE(headings));
	for (size_t i = 0; i < bench->figure_count; i++) {
		const struct bench_figure *figure = &bench->figures[i];
		output_table_add(&table, "%s", figure->kind);
		output_table_add(&table, "%s", figure->name);
		output_table_add(&table, "%s", size_format_exact(figure->page_size, text));
		output_table_add(&table, "%s", figure->bytes ? size_format_exact(figure->bytes, text) : "-");
		add_decimal(&table, figure->median.value, figure->is_time ? "us" : "GB/s");
		add_decimal(&table, figure->median.clearing, "GB/s");
		add_ratio(&table, figure->median.ratio);
		add_decimal(&table, figure->spread * 100, "%");
	}
	output_table_print(&table, stdout);
	output_table_deinit(&table);
	for (size_t i = 0; i < zero_method_count; i++)
		if (!bench->results[i].is_usable)
			printf("%s: %s\n", zero_methods[i].name, bench->results[i].why);
	printf("hpz clears with %s, a batch of 2 MiB in %.1f us: %.2f of a bare program with the best "
	       "method, %.1f times the kernel\n",
		bench->results[bench->chosen].method->name, (double)bench->batch_ns / 1e3,
		get_ratio_to_best(bench), engine / get_median(bench, "kernel", "fallocate", 0));
	print_neighbour(bench);
	if (isfinite(bench->stop.p99_us))
		printf("and stops within %.0f us (median of %d), %.0f us (99 %%); the job ends within %.0f "
		       "and "
		       "%.0f\n",
			bench->stop.p50_us, STOPS, bench->stop.p99_us, bench->end.p50_us, bench->end.p99_us);
}

/* ---- main ---- */

static int run(struct bench_clear *bench)
{
	int r = bench->picture ? bench_picture_find_tool() : 0;

	if (r == 0)
		r = bench_neighbour_init();
	if (r == 0 && !bench_neighbour_is_on_huge_pages())
		be_incomplete(bench,
			"the neighbour's memory is not on huge pages (transparent_hugepage): its times "
			"depend on where it lies");
	if (r == 0)
		r = run_sizes(bench);
	bench_neighbour_deinit();
	return r;
}

static int finish(const struct hpzctl *ctl, struct bench_clear *bench)
{
	judge(bench);
	if (ctl->json)
		print_json(bench);
	else
		print_text(bench);
	if (bench->picture && bench_picture_draw(bench) < 0)
		return HPZCTL_FAILED;
	return bench->is_complete ? HPZCTL_DONE : HPZCTL_LATER;
}

static int run_and_finish(const struct hpzctl *ctl, struct bench_clear *bench)
{
	int r, status = HPZCTL_FAILED;

	if (host_init(&bench->host, NULL) < 0) {
		hpzctl_say("bench clear: /sys cannot be read");
		return HPZCTL_FAILED;
	}
	find_cpus(bench);
	bench_pin(bench->cpu);
	setpriority(PRIO_PROCESS, 0, -20); /* if we may: fewer pieces are measured again */
	bench_catch_signals();
	r = run(bench);
	if (r == 0)
		status = finish(ctl, bench);
	else if (r == -ENOSPC)
		status = HPZCTL_LATER;
	bench_pages_give(&bench->pages);
	host_deinit(&bench->host);
	if (bench_get_signal())
		bench_die_of_signal();
	return status;
}

int bench_clear(struct hpzctl *ctl, int argc, char **argv)
{
	_cleanup_free_ struct bench_clear *bench = calloc(1, sizeof(*bench));
	char **operands;
	int count;

	if (!bench)
		abort();
	bench->gib = BENCH_CLEAR_GIB;
	bench->rounds = BENCH_CLEAR_ROUNDS;
	bench->is_complete = true;
	bench->stop = bench->end = (struct bench_latency){NAN, NAN};
	const struct options_row rows[] = {
		{"gib", OPTIONS_COUNT, &bench->gib, "N", "GiB of huge pages to clear (default: 1)"},
		{"rounds", OPTIONS_COUNT, &bench->rounds, "N", "how often (default: 7)"},
		{"svg", OPTIONS_TEXT, &bench->picture, "FILE",
			"draw rates and the neighbour's times (gnuplot)"},
	};
	int status = options_parse(ctl, rows, ARRAY_SIZE(rows), argc, argv, false, &operands, &count);
	if (status == OPTIONS_GO)
		status = options_refuse_operands(ctl, operands, count);
	if (status != OPTIONS_GO)
		return status;
	if (bench->rounds > BENCH_ROUNDS_MAX)
		return hpzctl_fail_usage(ctl, "--rounds: %d at most", BENCH_ROUNDS_MAX);
	return run_and_finish(ctl, bench);
}
