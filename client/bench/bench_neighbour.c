/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * bench_neighbour.c - what somebody else feels of the clearing.
 *
 * On the same CPU: a walk from line to line of its set in a random order, interrupted by a batch of clearing
 * every so many lines, as the scheduler would. Only the walk is timed. On another CPU: copying as fast as it
 * goes, while a worker clears on ours, with and without the scavenger rule.
 */
#include "bench_clear.h"

#include <pthread.h>
#include <sys/mman.h>

#define LINE 64

static struct {
	char *set;   /* of BENCH_SET_LARGE; a smaller one is its beginning, chained anew */
	char *bulk;  /* what the one on the other CPU copies from and to */
	void *place; /* where the walk is */
} neighbour;

#define BULK_BYTES ((size_t)128 << 20) /* more than a last cache holds, twice */

int bench_neighbour_init(void)
{
	size_t bytes = BENCH_SET_LARGE + 2 * BULK_BYTES;
	char *start =
		mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

	if (start == MAP_FAILED)
		return -errno;
	neighbour.set = start;
	neighbour.bulk = start + BENCH_SET_LARGE;
	return 0;
}

void bench_neighbour_deinit(void)
{
	if (neighbour.set)
		munmap(neighbour.set, BENCH_SET_LARGE + 2 * BULK_BYTES);
	neighbour.set = NULL;
}

/* ---- on the same CPU ---- */

/* Each line points to the next of one random circle through all of them. */
static void chain_set(uint64_t bytes)
{
	size_t lines = bytes / LINE;
	uint32_t *order = calloc(lines, sizeof(*order)), random = 1;

	if (!order)
		abort();
	for (size_t i = 0; i < lines; i++)
		order[i] = (uint32_t)i;
	for (size_t i = lines - 1; i > 0; i--) {
		random = random * 1664525u + 1013904223u;
		size_t j = (size_t)((uint64_t)random * (i + 1) >> 32);
		uint32_t kept = order[i];
		order[i] = order[j];
		order[j] = kept;
	}
	for (size_t i = 0; i < lines; i++)
		*(void **)(void *)(neighbour.set + (size_t)LINE * order[i]) =
			neighbour.set + (size_t)LINE * order[(i + 1) % lines];
	neighbour.place = neighbour.set;
	free(order);
}

static void walk(size_t lines)
{
	void *volatile *at = neighbour.place;

	for (size_t i = 0; i < lines; i++)
		at = *at;
	neighbour.place = (void *)at;
}

enum manner { ALONE, LOOKUP, FALLOCATE, STOSB, HPZ };

/*
 * How often a batch comes, in passes over the small set: after each is more than a scheduler would do to
 * anybody, after every fourth still clears some GB/s.
 */
static const struct run {
	const char *name;
	enum manner manner;
	unsigned passes;
} runs[] = {
	{"alone", ALONE, 1},
	{"lookup", LOOKUP, 1},
	{"fallocate", FALLOCATE, 1},
	{"stosb", STOSB, 1},
	{"hpz", HPZ, 1},
	{"fallocate" BENCH_SELDOM, FALLOCATE, BENCH_SELDOM_PASSES},
	{"hpz" BENCH_SELDOM, HPZ, BENCH_SELDOM_PASSES},
};

/* Without looking up pages ahead, as our own method of that name. False: not on this CPU. */
static bool clear_as_kernels_do(char *start)
{
#if defined(__x86_64__)
	size_t bytes = ZERO_BATCH;

	__asm__ volatile("rep stosb" : "+D"(start), "+c"(bytes) : "a"(0) : "memory");
	return true;
#else
	return false;
#endif
}

/*
 * One line of every small page, and no store: the part of it that is translations, where the host below backs
 * a huge page by small ones.
 */
static void look_up(const char *start)
{
	for (size_t at = 0; at < ZERO_BATCH; at += BENCH_SMALL_PAGE)
		(void)*(const volatile char *)(start + at);
}

static bool clear_batch(struct bench_clear *bench, enum manner manner, uint64_t offset)
{
	char *start = bench->pages.start + offset;

	switch (manner) {
	case ALONE:
		return true;
	case LOOKUP:
		look_up(start);
		return true;
	case FALLOCATE: /* a page that the kernel clears anew */
		return bench_pages_punch(&bench->pages, offset, ZERO_BATCH) == 0 &&
		       bench_pages_allocate(&bench->pages, offset, ZERO_BATCH) == 0;
	case STOSB:
		return clear_as_kernels_do(start);
	case HPZ:
		bench->results[bench->chosen].method->clear(start, ZERO_BATCH);
		zero_fence();
		return true;
	}
	return false;
}

#define SEGMENT_LINES ((size_t)16384) /* 1 MiB: the small set once */
#define SEGMENTS      96

/* So many segments of the walk: the mean time of one in *ret_ns. False: disturbed. */
static bool walk_segments(unsigned count, double *ret_ns)
{
	bool is_undisturbed = true;
	uint64_t sum_ns = 0;

	for (unsigned i = 0; i < count; i++) {
		struct bench_watch watch;
		uint64_t ns;
		bench_watch_start(&watch);
		walk(SEGMENT_LINES);
		is_undisturbed = bench_watch_stop(&watch, &ns) && is_undisturbed;
		sum_ns += ns;
	}
	*ret_ns = (double)sum_ns / count;
	return is_undisturbed;
}

/* One round of one manner: the time of a pass over the whole set, from undisturbed segments of the walk. */
static void run_manner(struct bench_clear *bench, const struct run *run, uint64_t set)
{
	double times[SEGMENTS];
	size_t count = 0, batches = SEGMENTS / run->passes,
	       warm_ups = MAX(set / BENCH_SET_SMALL, (uint64_t)4);
	uint64_t offset = 0, begin_ns = 0, walked_ns = 0;
	bool is_clearing = run->manner != ALONE && run->manner != LOOKUP;

	for (size_t i = 0; i < warm_ups + batches && !bench_get_signal(); i++) {
		if (i == warm_ups)
			begin_ns = clock_get_ns(CLOCK_MONOTONIC);
		if (!clear_batch(bench, run->manner, offset))
			return;
		offset = (offset + ZERO_BATCH) % (bench->pages.bytes / ZERO_BATCH * ZERO_BATCH);
		if (walk_segments(run->passes, &times[count]) && i >= warm_ups)
			count++;
	}
	if (count < batches / 4)
		return;
	walked_ns = clock_get_ns(CLOCK_MONOTONIC) - begin_ns;
	bench_figure_add(bench_clear_get_figure(bench, "neighbour", run->name, bench->pages.page_size, set),
		bench_get_median(times, count) * (double)(set / BENCH_SET_SMALL) / 1e3,
		is_clearing ? (double)(batches * ZERO_BATCH) / (double)walked_ns : 0);
}

void bench_neighbour_run_round(struct bench_clear *bench)
{
	static const uint64_t sets[] = {BENCH_SET_SMALL, BENCH_SET_LARGE};

	for (size_t i = 0; i < ARRAY_SIZE(sets); i++) {
		chain_set(sets[i]);
		for (size_t j = 0; j < ARRAY_SIZE(runs); j++)
			run_manner(bench, &runs[j], sets[i]);
	}
	/* What a batch of fallocate left out of the mapping is mapped again. */
	madvise(bench->pages.start, bench->pages.bytes, MADV_POPULATE_WRITE);
}

/* ---- on another CPU ---- */

#define SAMPLE_MS 300
#define SETTLE_MS 1000 /* the scavenger's: it looks every 20 ms */

struct copier {
	_Atomic uint64_t bytes;
	_Atomic bool must_stop;
	int cpu;
};

static void *run_copier(void *user)
{
	struct copier *copier = user;

	bench_pin(copier->cpu);
	for (size_t at = 0; !atomic_load(&copier->must_stop); at = (at + ZERO_BATCH) % BULK_BYTES) {
		memcpy(neighbour.bulk + at, neighbour.bulk + BULK_BYTES + at, ZERO_BATCH);
		__asm__ volatile("" : : "r"(neighbour.bulk) : "memory");
		atomic_fetch_add(&copier->bytes, 2 * ZERO_BATCH); /* read and written */
	}
	return NULL;
}

struct clearer {
	struct bench_clear *bench;
	struct worker_control control;
	struct pressure_rules rules;
};

/* The engine as it is in a worker, job after job, until it is stopped. */
static void *run_clearer(void *user)
{
	struct clearer *clearer = user;
	int r = 0;

	bench_pin(clearer->bench->cpu);
	for (uint64_t at = 0; r == 0;
		at = (at + clearer->bench->pages.segment_bytes) % clearer->bench->pages.bytes)
		r = bench_clear_run_engine(clearer->bench, at, &clearer->control, &clearer->rules);
	return NULL;
}

static void sleep_ms(unsigned ms)
{
	struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * (long)NS_PER_MS};

	nanosleep(&t, NULL);
}

static void sample_bandwidth(struct bench_clear *bench, const char *name, struct copier *copier,
	const struct pressure_rules *rules)
{
	uint64_t copied = atomic_load(&copier->bytes), cleared = rules ? atomic_load(&rules->bytes) : 0,
		 start_ns = clock_get_ns(CLOCK_MONOTONIC);

	sleep_ms(SAMPLE_MS);
	double spent_ns = (double)(clock_get_ns(CLOCK_MONOTONIC) - start_ns);
	cleared = rules ? atomic_load(&rules->bytes) - cleared : 0;
	bench_figure_add(bench_clear_get_figure(bench, "bandwidth", name, bench->pages.page_size, 0),
		(double)(atomic_load(&copier->bytes) - copied) / spent_ns, (double)cleared / spent_ns);
}

static void run_beside_clearer(struct bench_clear *bench, struct copier *copier, bool is_scavenger)
{
	struct clearer clearer = {.bench = bench};
	pthread_t thread;

	atomic_store(&clearer.control.level, WORKER_LEVEL_REFILL);
	atomic_store(&clearer.rules.workers, 1);
	atomic_store(&clearer.rules.is_scavenger, is_scavenger);
	if (pthread_create(&thread, NULL, run_clearer, &clearer) != 0)
		return;
	if (is_scavenger)
		sleep_ms(SETTLE_MS);
	sample_bandwidth(bench, is_scavenger ? "scavenger" : "unlimited", copier, &clearer.rules);
	atomic_store(&clearer.control.stop, UINT64_MAX);
	pressure_bump(&clearer.rules);
	pthread_join(thread, NULL);
}

void bench_bandwidth_run_round(struct bench_clear *bench)
{
	struct copier copier = {.cpu = bench->other_cpu};
	pthread_t thread;

	if (bench->other_cpu < 0 || pthread_create(&thread, NULL, run_copier, &copier) != 0)
		return;
	sleep_ms(50);
	sample_bandwidth(bench, "alone", &copier, NULL);
	run_beside_clearer(bench, &copier, false);
	run_beside_clearer(bench, &copier, true);
	atomic_store(&copier.must_stop, true);
	pthread_join(thread, NULL);
}
