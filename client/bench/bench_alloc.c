/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * bench_alloc.c - how long threads wait for a huge page when several ask at the same time: mmap() of one that
 * the kernel zeroes for it, a lease of one page, and its share of a bulk of them; and what giving it back
 * takes.
 *
 * All get the same: an address at which a page lies, whose first word has been read, is zero, and has been
 * written. All give it back at once: munmap() for the kernel; unmapping, closing and the release for hpz. So
 * many pages pass in a round as half of the stock of the benchmark's own hpzd, which is whole again before
 * the next: no lease should wait for clearing, and those that did are counted. What hpzd does with the pages
 * that came back goes on meanwhile, on the same CPUs.
 */
#include "bench.h"

#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <sys/mman.h>

#include "bench_memory.h"
#include "options.h"
#include "output.h"
#include "size.h"

#define BENCH_ALLOC_ROUNDS     10
#define BENCH_ALLOC_ROUNDS_MAX 100
#define BENCH_ALLOC_WARM_UPS   1
#define BENCH_ALLOC_BULK       16
#define BENCH_ALLOC_PAGES      384 /* 24 threads' bulks */
#define BENCH_ALLOC_PAGES_MAX  10000
#define BENCH_ALLOC_STEP       48 /* the same for each, however many threads */
#define BENCH_ALLOC_PAGE       ((uint64_t)2 << 20)
#define BENCH_ALLOC_WAIT_MS    60000

static const unsigned bench_alloc_threads[] = {1, 2, 4, 8, 16, 24};
#define ROWS                    ARRAY_SIZE(bench_alloc_threads)
#define BENCH_ALLOC_THREADS_MAX 24

enum bench_alloc_way { BENCH_ALLOC_KERNEL, BENCH_ALLOC_HPZ, BENCH_ALLOC_MANY, BENCH_ALLOC_WAYS };

static const char *const bench_alloc_names[] = {
	[BENCH_ALLOC_KERNEL] = "kernel", [BENCH_ALLOC_HPZ] = "hpz", [BENCH_ALLOC_MANY] = "bulk"};

/* Of all rounds. */
struct bench_alloc_series {
	double *alloc_us, *free_us; /* of each page */
	size_t count;
	double pages_per_s[BENCH_ALLOC_ROUNDS_MAX];
	double ratio[BENCH_ALLOC_ROUNDS_MAX]; /* of that to the kernel's, in the same round */
	double alloc_p50, alloc_p99, free_p50, free_p99, rate, ratio_median, spread;
};

struct bench_alloc {
	uint64_t pages, rounds_asked;
	unsigned cpus;
	struct bench_memory memory;
	struct hpz *connections[BENCH_ALLOC_THREADS_MAX];
	size_t rounds;
	uint64_t waited; /* leases that were not all clean when they were asked for */
	struct bench_alloc_series rows[ROWS][BENCH_ALLOC_WAYS];
};

/* Where threads wait until all are there. */
struct bench_alloc_gate {
	pthread_mutex_t mutex;
	pthread_cond_t opened;
	bool is_open, is_void; /* void: they go home, for not all could be started */
};

struct bench_alloc_thread {
	pthread_t thread;
	struct bench_alloc_gate *gate;
	enum bench_alloc_way way;
	struct hpz *hpz;
	size_t pages;
	double *alloc_us, *free_us; /* of each of them */
	uint64_t begun_ns, ended_ns, waited;
	int error; /* which has been said */
};

/* ---- one page, or one bulk ---- */

static double bench_alloc_get_us(uint64_t since_ns, size_t pages)
{
	return (double)(clock_get_ns(CLOCK_MONOTONIC) - since_ns) / 1000.0 / (double)pages;
}

static int bench_alloc_fail(const char *what, const char *why)
{
	hpzctl_say("bench alloc: %s: %s", what, why);
	return -EIO;
}

/* What the user does with it first. */
static int bench_alloc_touch(void *start)
{
	volatile uint64_t *word = start;

	if (*word != 0)
		return bench_alloc_fail("a page", "it is not zero");
	*word = 1;
	return 0;
}

static int bench_alloc_pass_kernel(struct bench_alloc_thread *thread, size_t at, size_t count)
{
	uint64_t start_ns = clock_get_ns(CLOCK_MONOTONIC);
	void *start = bench_memory_map_kernel(BENCH_ALLOC_PAGE, count * BENCH_ALLOC_PAGE, MAP_POPULATE);

	if (!start)
		return bench_alloc_fail("mmap", strerror(errno));
	int r = bench_alloc_touch(start);
	thread->alloc_us[at] = bench_alloc_get_us(start_ns, count);
	start_ns = clock_get_ns(CLOCK_MONOTONIC);
	munmap(start, count * BENCH_ALLOC_PAGE);
	thread->free_us[at] = bench_alloc_get_us(start_ns, count);
	return r;
}

static int bench_alloc_ask(struct bench_alloc_thread *thread, size_t count, struct hpz_lease *leases[])
{
	struct hpz_lease_request request = HPZ_LEASE_REQUEST_INIT;

	request.size = BENCH_ALLOC_PAGE;
	request.label = "bench alloc";
	request.timeout_ms = BENCH_ALLOC_WAIT_MS;
	int error = thread->way == BENCH_ALLOC_HPZ ? hpz_lease(thread->hpz, &request, leases)
						   : hpz_lease_many(thread->hpz, &request, count, leases);
	return error ? bench_alloc_fail("no lease", hpz_get_error_text(thread->hpz)) : 0;
}

static int bench_alloc_use(struct bench_alloc_thread *thread, struct hpz_lease *lease)
{
	void *start;
	size_t length;

	if (hpz_map(thread->hpz, lease, &start, &length))
		return bench_alloc_fail("hpz_map", hpz_get_error_text(thread->hpz));
	return bench_alloc_touch(start);
}

static int bench_alloc_give(struct bench_alloc_thread *thread, struct hpz_lease *lease)
{
	uint64_t id = hpz_lease_get_id(lease);

	hpz_lease_free(lease);
	if (hpz_release(thread->hpz, id, 0, 0))
		return bench_alloc_fail("a release", hpz_get_error_text(thread->hpz));
	return 0;
}

static int bench_alloc_pass_hpz(struct bench_alloc_thread *thread, size_t at, size_t count)
{
	struct hpz_lease *leases[BENCH_ALLOC_BULK];
	uint64_t ready = 0;

	uint64_t start_ns = clock_get_ns(CLOCK_MONOTONIC);
	int r = bench_alloc_ask(thread, count, leases);
	if (r < 0)
		return r;
	for (size_t i = 0; i < count && r == 0; i++)
		r = bench_alloc_use(thread, leases[i]);
	double alloc_us = bench_alloc_get_us(start_ns, count);
	for (size_t i = 0; i < count; i++)
		ready += hpz_lease_get_ready(leases[i]);
	thread->waited += ready / BENCH_ALLOC_PAGE < count ? count - ready / BENCH_ALLOC_PAGE : 0;
	start_ns = clock_get_ns(CLOCK_MONOTONIC);
	for (size_t i = 0; i < count; i++) {
		int error = bench_alloc_give(thread, leases[i]);
		r = r ? r : error;
	}
	double free_us = bench_alloc_get_us(start_ns, count);
	for (size_t i = 0; i < count; i++) {
		thread->alloc_us[at + i] = alloc_us;
		thread->free_us[at + i] = free_us;
	}
	return r;
}

static bool bench_alloc_pass_gate(struct bench_alloc_gate *gate)
{
	pthread_mutex_lock(&gate->mutex);
	while (!gate->is_open)
		pthread_cond_wait(&gate->opened, &gate->mutex);
	pthread_mutex_unlock(&gate->mutex);
	return !gate->is_void;
}

static void bench_alloc_open_gate(struct bench_alloc_gate *gate, bool is_void)
{
	pthread_mutex_lock(&gate->mutex);
	gate->is_open = true;
	gate->is_void = is_void;
	pthread_cond_broadcast(&gate->opened);
	pthread_mutex_unlock(&gate->mutex);
}

static void *bench_alloc_run_thread(void *user)
{
	struct bench_alloc_thread *thread = user;
	size_t bulk = thread->way == BENCH_ALLOC_MANY ? BENCH_ALLOC_BULK : 1;

	if (!bench_alloc_pass_gate(thread->gate))
		return NULL;
	thread->begun_ns = clock_get_ns(CLOCK_MONOTONIC);
	for (size_t at = 0, count; at < thread->pages && !thread->error && !bench_get_signal(); at += count) {
		count = MIN(bulk, thread->pages - at);
		thread->error = thread->way == BENCH_ALLOC_KERNEL ? bench_alloc_pass_kernel(thread, at, count)
								  : bench_alloc_pass_hpz(thread, at, count);
	}
	thread->ended_ns = clock_get_ns(CLOCK_MONOTONIC);
	return NULL;
}

/* ---- rounds ---- */

/* Pages per second, or -1: it failed, which has been said. */
static double bench_alloc_join(struct bench_alloc *bench, struct bench_alloc_thread *threads, unsigned count)
{
	uint64_t begun_ns = UINT64_MAX, ended_ns = 0;
	bool is_good = true;

	for (unsigned i = 0; i < count; i++) {
		pthread_join(threads[i].thread, NULL);
		begun_ns = MIN(begun_ns, threads[i].begun_ns);
		ended_ns = MAX(ended_ns, threads[i].ended_ns);
		bench->waited += threads[i].waited;
		is_good = is_good && threads[i].error == 0;
	}
	return is_good ? (double)bench->pages * NS_PER_S / (double)MAX(ended_ns - begun_ns, (uint64_t)1) : -1;
}

static double bench_alloc_run_way(struct bench_alloc *bench, unsigned count, enum bench_alloc_way way,
	struct bench_alloc_series *series)
{
	struct bench_alloc_gate gate = {
		.mutex = PTHREAD_MUTEX_INITIALIZER, .opened = PTHREAD_COND_INITIALIZER};
	struct bench_alloc_thread threads[BENCH_ALLOC_THREADS_MAX];
	size_t each = bench->pages / count;
	unsigned started = 0;
	int error = 0;

	for (unsigned i = 0; i < count && !error; i++) {
		threads[i] = (struct bench_alloc_thread){.gate = &gate,
			.way = way,
			.hpz = bench->connections[i],
			.pages = each,
			.alloc_us = series->alloc_us + series->count + i * each,
			.free_us = series->free_us + series->count + i * each};
		error = pthread_create(&threads[i].thread, NULL, bench_alloc_run_thread, &threads[i]);
		started += !error;
	}
	bench_alloc_open_gate(&gate, error != 0);
	double pages_per_s = bench_alloc_join(bench, threads, started);
	if (error)
		bench_alloc_fail("a thread cannot be started", strerror(error));
	return error ? -1 : pages_per_s;
}

/* All ways with so many threads; each begins when hpzd is at rest. */
static int bench_alloc_run_row(struct bench_alloc *bench, size_t row, size_t number)
{
	struct bench_alloc_series *all = bench->rows[row];

	for (size_t i = 0; i < BENCH_ALLOC_WAYS; i++) {
		enum bench_alloc_way way = (enum bench_alloc_way)((number + i) % BENCH_ALLOC_WAYS);
		if (bench_daemon_settle(&bench->memory.daemon))
			return bench_alloc_fail(
				"hpzd does not come to rest", hpz_get_error_text(bench->memory.daemon.hpz));
		double rate = bench_alloc_run_way(bench, bench_alloc_threads[row], way, &all[way]);
		if (rate < 0 || bench_get_signal())
			return -EIO;
		all[way].pages_per_s[bench->rounds] = rate;
	}
	if (number < BENCH_ALLOC_WARM_UPS) /* written over by the next */
		return 0;
	for (size_t way = 0; way < BENCH_ALLOC_WAYS; way++) {
		all[way].count += bench->pages;
		all[way].ratio[bench->rounds] = all[way].pages_per_s[bench->rounds] /
						all[BENCH_ALLOC_KERNEL].pages_per_s[bench->rounds];
	}
	return 0;
}

static int bench_alloc_run_rounds(struct bench_alloc *bench)
{
	for (size_t number = 0; number < bench->rounds_asked + BENCH_ALLOC_WARM_UPS; number++) {
		for (size_t row = 0; row < ROWS; row++) {
			int r = bench_alloc_run_row(bench, row, number);
			if (r < 0)
				return r;
		}
		if (number < BENCH_ALLOC_WARM_UPS)
			bench->waited = 0;
		else
			bench->rounds++;
	}
	return 0;
}

static int bench_alloc_connect(struct bench_alloc *bench)
{
	for (size_t i = 0; i < BENCH_ALLOC_THREADS_MAX; i++) {
		int error = hpz_connect(bench->memory.daemon.socket, &bench->connections[i]);
		if (error)
			return bench_alloc_fail("no connection", hpz_strerror(error));
	}
	return 0;
}

static int bench_alloc_run(struct bench_alloc *bench, const struct host *host, int32_t node)
{
	const struct bench_memory_wish wish = {.name = "alloc",
		.host = host,
		.node = node,
		.page_size = BENCH_ALLOC_PAGE,
		.kernel_bytes = BENCH_ALLOC_THREADS_MAX * BENCH_ALLOC_PAGE,
		.hpz_bytes = 2 * bench->pages * BENCH_ALLOC_PAGE,
		.stock = "2M*rest"};

	if (!host_has_page_size(host, BENCH_ALLOC_PAGE)) {
		hpzctl_say("bench alloc: the kernel has no pages of 2 MiB");
		return -ENODEV;
	}
	int r = bench_memory_open(&wish, &bench->memory);
	if (r == 0)
		r = bench_alloc_connect(bench);
	if (r == 0)
		r = bench_alloc_run_rounds(bench);
	for (size_t i = 0; i < BENCH_ALLOC_THREADS_MAX; i++)
		hpz_close(steal_pointer(&bench->connections[i]));
	bench_memory_close(&bench->memory);
	return r;
}

/* ---- what came of it ---- */

static void bench_alloc_conclude_series(struct bench_alloc_series *series, size_t rounds)
{
	series->alloc_p50 = bench_get_median(series->alloc_us, series->count);
	series->alloc_p99 = bench_get_percentile(series->alloc_us, series->count, 99);
	series->free_p50 = bench_get_median(series->free_us, series->count);
	series->free_p99 = bench_get_percentile(series->free_us, series->count, 99);
	series->rate = bench_get_median(series->pages_per_s, rounds);
	series->ratio_median = bench_get_median(series->ratio, rounds);
	series->spread = bench_get_spread(series->ratio, rounds);
}

/* Whether the figures count; else says why not. */
static bool bench_alloc_judge(const struct bench_alloc *bench)
{
	unsigned wide = 0;
	double widest = 0;

	for (size_t i = 0; i < ROWS * BENCH_ALLOC_WAYS; i++) {
		const struct bench_alloc_series *series =
			&bench->rows[i / BENCH_ALLOC_WAYS][i % BENCH_ALLOC_WAYS];
		widest = MAX(widest, series->spread);
		wide += series->spread > BENCH_SPREAD_MAX;
	}
	if (bench->rounds < BENCH_ROUNDS_MIN)
		hpzctl_say("bench alloc: a median of so few rounds says little: --rounds %d at least",
			BENCH_ROUNDS_MIN);
	else if (wide)
		hpzctl_say("bench alloc: the middle half of the rounds of %u series spreads over more than "
			   "%.0f %%, at most %.0f %%: the machine is busy",
			wide, BENCH_SPREAD_MAX * 100, widest * 100);
	if (bench->waited)
		hpzctl_say("bench alloc: %" PRIu64 " leases had to wait for clearing", bench->waited);
	return bench->rounds >= BENCH_ROUNDS_MIN && !wide && !bench->waited;
}

static bool bench_alloc_conclude(struct bench_alloc *bench)
{
	for (size_t row = 0; row < ROWS; row++)
		for (size_t way = 0; way < BENCH_ALLOC_WAYS; way++)
			bench_alloc_conclude_series(&bench->rows[row][way], bench->rounds);
	return bench_alloc_judge(bench);
}

static void bench_alloc_print_series(
	struct output_json *json, const char *key, const struct bench_alloc_series *series)
{
	output_json_open_object(json, key);
	output_json_decimal(json, "p50", series->alloc_p50, 2);
	output_json_decimal(json, "p99", series->alloc_p99, 2);
	output_json_decimal(json, "free_p50", series->free_p50, 2);
	output_json_decimal(json, "free_p99", series->free_p99, 2);
	output_json_decimal(json, "pages_per_s", series->rate, 1);
	output_json_decimal(json, "ratio", series->ratio_median, 3);
	output_json_decimal(json, "spread", series->spread, 3);
	output_json_close(json);
}

static void bench_alloc_print_json(const struct bench_alloc *bench, bool is_complete)
{
	struct output_json json;

	output_json_init(&json, stdout);
	output_json_open_object(&json, NULL);
	output_json_text(&json, "schema", "hpz-bench-alloc-1");
	output_json_number(&json, "cpus", bench->cpus);
	output_json_number(&json, "page_size", BENCH_ALLOC_PAGE);
	output_json_number(&json, "pages", bench->pages);
	output_json_number(&json, "rounds", bench->rounds);
	output_json_number(&json, "waited", bench->waited);
	output_json_bool(&json, "complete", is_complete);
	output_json_open_list(&json, "rows");
	for (size_t row = 0; row < ROWS; row++) {
		unsigned threads = bench_alloc_threads[row];
		output_json_open_object(&json, NULL);
		output_json_number(&json, "threads", threads);
		output_json_bool(&json, "over_cpus", threads > bench->cpus);
		output_json_number(&json, "bulk", MIN(bench->pages / threads, (uint64_t)BENCH_ALLOC_BULK));
		bench_alloc_print_series(&json, "kernel_us", &bench->rows[row][BENCH_ALLOC_KERNEL]);
		bench_alloc_print_series(&json, "hpz_us", &bench->rows[row][BENCH_ALLOC_HPZ]);
		bench_alloc_print_series(&json, "bulk_us", &bench->rows[row][BENCH_ALLOC_MANY]);
		output_json_close(&json);
	}
	output_json_close(&json);
	output_json_close(&json);
}

static void bench_alloc_print_text(const struct bench_alloc *bench)
{
	static const char *const headings[] = {
		">THREADS", "PAGE", ">P50 US", ">P99", ">FREE P50", ">P99", ">PAGES/S", ">TO KERNEL"};
	struct output_table table;

	printf("A page of 2M, from asking to the first write, and giving it back; %u CPU%s, %" PRIu64
	       " pages a round, %zu rounds\n",
		bench->cpus, bench->cpus == 1 ? "" : "s", bench->pages, bench->rounds);
	output_table_init(&table, headings, ARRAY_SIZE(headings));
	for (size_t i = 0; i < ROWS * BENCH_ALLOC_WAYS; i++) {
		size_t way = i % BENCH_ALLOC_WAYS;
		unsigned threads = bench_alloc_threads[i / BENCH_ALLOC_WAYS];
		const struct bench_alloc_series *series = &bench->rows[i / BENCH_ALLOC_WAYS][way];
		output_table_add(&table, "%u%s", threads, threads > bench->cpus ? "*" : " ");
		output_table_add(&table, "%s", bench_alloc_names[way]);
		output_table_add(&table, "%.1f", series->alloc_p50);
		output_table_add(&table, "%.1f", series->alloc_p99);
		output_table_add(&table, "%.1f", series->free_p50);
		output_table_add(&table, "%.1f", series->free_p99);
		output_table_add(&table, "%.0f", series->rate);
		output_table_add(&table, "%.2f", series->ratio_median);
	}
	output_table_print(&table, stdout);
	output_table_deinit(&table);
	printf("* more threads than CPUs: they wait for each other, whoever gives them pages\n");
	printf("%" PRIu64 " leases had to wait for clearing\n", bench->waited);
}

/* ---- start ---- */

static void bench_alloc_set_series(struct bench_alloc *bench, bool is_wanted)
{
	size_t samples = (bench->rounds_asked + BENCH_ALLOC_WARM_UPS) * bench->pages;

	for (size_t i = 0; i < ROWS * BENCH_ALLOC_WAYS; i++) {
		struct bench_alloc_series *series = &bench->rows[i / BENCH_ALLOC_WAYS][i % BENCH_ALLOC_WAYS];
		free(series->alloc_us);
		free(series->free_us);
		series->alloc_us = is_wanted ? calloc(samples, sizeof(double)) : NULL;
		series->free_us = is_wanted ? calloc(samples, sizeof(double)) : NULL;
		if (is_wanted && (!series->alloc_us || !series->free_us))
			abort();
	}
}

static int bench_alloc_measure(
	const struct hpzctl *ctl, struct bench_alloc *bench, const char *program, int32_t node)
{
	struct host host;

	if (bench_daemon_prepare(program) < 0)
		return HPZCTL_FAILED;
	if (host_init(&host, NULL) < 0) {
		hpzctl_say("bench alloc: this machine's nodes cannot be read");
		return HPZCTL_FAILED;
	}
	bench_catch_signals();
	int r = bench_alloc_run(bench, &host, node);
	host_deinit(&host);
	if (bench_get_signal())
		bench_die_of_signal();
	if (r < 0)
		return r == -ENOSPC ? HPZCTL_LATER : HPZCTL_FAILED;
	bool is_complete = bench_alloc_conclude(bench);
	if (ctl->json)
		bench_alloc_print_json(bench, is_complete);
	else
		bench_alloc_print_text(bench);
	return is_complete ? HPZCTL_DONE : HPZCTL_LATER;
}

int bench_alloc(struct hpzctl *ctl, int argc, char **argv)
{
	static struct bench_alloc bench;
	const char *program = NULL;
	int32_t node = 0;
	bench = (struct bench_alloc){
		.pages = BENCH_ALLOC_PAGES, .rounds_asked = BENCH_ALLOC_ROUNDS, .cpus = bench_count_cpus()};
	const struct options_row rows[] = {
		{"pages", OPTIONS_COUNT, &bench.pages, "N", "in each round, rounded up to 48 (default: 384)"},
		{"node", OPTIONS_NODE, &node, "N", "NUMA node (default: 0)"},
		{"rounds", OPTIONS_COUNT, &bench.rounds_asked, "N", "how often (default: 10)"},
		{"hpzd", OPTIONS_TEXT, &program, "FILE", "the hpzd to measure (default: the installed one)"},
	};
	char **operands;
	int count;

	int status = options_parse(ctl, rows, ARRAY_SIZE(rows), argc, argv, false, &operands, &count);
	if (status == OPTIONS_GO)
		status = options_refuse_operands(ctl, operands, count);
	if (status != OPTIONS_GO)
		return status;
	if (bench.rounds_asked > BENCH_ALLOC_ROUNDS_MAX || bench.pages > BENCH_ALLOC_PAGES_MAX || node < 0)
		return hpzctl_fail_usage(ctl,
			"--rounds is at most %d, --pages at most %d, --node is one node",
			BENCH_ALLOC_ROUNDS_MAX, BENCH_ALLOC_PAGES_MAX);
	bench.pages = size_pages(bench.pages, BENCH_ALLOC_STEP) * BENCH_ALLOC_STEP;
	bench_alloc_set_series(&bench, true);
	status = bench_alloc_measure(ctl, &bench, program, node);
	bench_alloc_set_series(&bench, false);
	return status;
}
