/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * bench_neighbour.c - what somebody else feels of the clearing.
 *
 * On the same CPU: a walk from line to line of its set in a random order, interrupted by a batch of clearing
 * every so many lines, as the scheduler would. Only the walk is timed. A machine that others share drifts by
 * more than a batch costs, so each manner is compared with the walk alone right before and after it, some
 * milliseconds away. On another CPU: copying as fast as it goes, while a worker clears on ours, with and
 * without the scavenger rule.
 */
#include "bench_clear.h"

#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <sys/mman.h>

#define LINE 64

#define BULK_BYTES      ((size_t)128 << 20) /* more than a last cache holds, twice */
#define HUGE_PAGE_BYTES ((size_t)2 << 20)

static struct {
	char *mapping;
	char *set;   /* of BENCH_SET_LARGE; a smaller one is its beginning, chained anew */
	char *bulk;  /* what the one on the other CPU copies from and to */
	void *place; /* where the walk is */
} neighbour;

#define MAPPING_BYTES (HUGE_PAGE_BYTES + BENCH_SET_LARGE + 2 * BULK_BYTES)

int bench_neighbour_init(void)
{
	char *start = mmap(NULL, MAPPING_BYTES, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (start == MAP_FAILED)
		return -errno;
	neighbour.mapping = start;
	neighbour.set = start + (-(uintptr_t)start & (HUGE_PAGE_BYTES - 1));
	neighbour.bulk = neighbour.set + BENCH_SET_LARGE;
	/*
	 * A set on small pages lies wherever the kernel found them, and how many of its lines meet in the
	 * same place of a cache is luck: it differed by a quarter from run to run.
	 */
	madvise(neighbour.set, BENCH_SET_LARGE, MADV_HUGEPAGE);
	memset(neighbour.set, 0, BENCH_SET_LARGE + 2 * BULK_BYTES);
	return 0;
}

bool bench_neighbour_is_on_huge_pages(void)
{
	_cleanup_file_ FILE *file = fopen("/proc/self/smaps", "re");
	uint64_t start, end, kib;
	bool is_ours = false;
	char line[512];

	while (file && fgets(line, sizeof(line), file)) {
		if (sscanf(line, "%" SCNx64 "-%" SCNx64 " ", &start, &end) == 2)
			is_ours = start == (uintptr_t)neighbour.set;
		else if (is_ours && sscanf(line, "AnonHugePages: %" SCNu64, &kib) == 1)
			return kib << 10 >= BENCH_SET_LARGE;
	}
	return false;
}

void bench_neighbour_deinit(void)
{
	if (neighbour.mapping)
		munmap(neighbour.mapping, MAPPING_BYTES);
	neighbour.mapping = NULL;
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
 * anybody, after every fourth still clears some GB/s, and shows how long the neighbour feels it.
 */
static const struct run {
	const char *name;
	enum manner manner;
	unsigned passes;
	const char
		*after[BENCH_SELDOM_PASSES]; /* what the passes after a batch are called; NULL: not shown */
} runs[] = {
	{"alone", ALONE, 1, {NULL}},
	{"lookup", LOOKUP, 1, {NULL}},
	{"fallocate", FALLOCATE, 1, {NULL}},
	{"stosb", STOSB, 1, {NULL}},
	{"hpz", HPZ, 1, {NULL}},
	{"fallocate" BENCH_SELDOM, FALLOCATE, BENCH_SELDOM_PASSES,
		{"fallocate 1", "fallocate 2", "fallocate 3", "fallocate 4"}},
	{"hpz" BENCH_SELDOM, HPZ, BENCH_SELDOM_PASSES, {"hpz 1", "hpz 2", "hpz 3", "hpz 4"}},
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

#define PASS_LINES   ((size_t)16384) /* 1 MiB: the small set once, or a part of the large one */
#define SERIES_SMALL 16              /* a round; each takes some 40 ms for all manners */
#define SERIES_LARGE 2
#define BATCHES      12 /* a turn, and one before that does not count */
#define ALONE_PASSES 8  /* on either side of them */

struct mean {
	double sum_ns;
	unsigned count;
};

static double get_mean_us(const struct mean *mean)
{
	return mean->count ? mean->sum_ns / mean->count / 1e3 : NAN;
}

/* A pass during which somebody else had our CPU does not count. */
static void time_pass(struct mean *mean)
{
	struct bench_watch watch;
	uint64_t ns;

	bench_watch_start(&watch);
	walk(PASS_LINES);
	if (!bench_watch_stop(&watch, &ns))
		return;
	mean->sum_ns += (double)ns;
	mean->count++;
}

/* One manner's turn: passes alone, passes between its batches, passes alone again. */
struct turn {
	struct mean alone, between, after[BENCH_SELDOM_PASSES];
	double clearing; /* GB/s */
};

static void walk_alone(struct turn *turn, uint64_t set)
{
	walk(set / LINE); /* whatever was before: all that fits the caches is in them */
	for (unsigned i = 0; i < ALONE_PASSES; i++)
		time_pass(&turn->alone);
}

static bool walk_beside(struct bench_clear *bench, const struct run *run, uint64_t *offset, struct turn *turn)
{
	uint64_t begin_ns = 0;

	for (unsigned batch = 0; batch <= BATCHES; batch++) {
		struct mean unused = {0};
		if (batch == 1)
			begin_ns = clock_get_ns(CLOCK_MONOTONIC);
		if (!clear_batch(bench, run->manner, *offset))
			return false;
		*offset = (*offset + ZERO_BATCH) % (bench->pages.bytes / ZERO_BATCH * ZERO_BATCH);
		for (unsigned pass = 0; pass < run->passes; pass++)
			time_pass(batch > 0 ? &turn->after[pass] : &unused);
	}
	turn->clearing = (double)(BATCHES * ZERO_BATCH) / (double)(clock_get_ns(CLOCK_MONOTONIC) - begin_ns);
	for (unsigned pass = 0; pass < run->passes; pass++) {
		turn->between.sum_ns += turn->after[pass].sum_ns;
		turn->between.count += turn->after[pass].count;
	}
	return true;
}

/* False: this manner cannot be had, or somebody else had most of the CPU. */
static bool take_turn(struct bench_clear *bench, const struct run *run, uint64_t set, uint64_t *offset,
	struct turn *ret_turn)
{
	struct turn turn = {0};

	walk_alone(&turn, set);
	if (!walk_beside(bench, run, offset, &turn))
		return false;
	walk_alone(&turn, set);
	*ret_turn = turn;
	return turn.alone.count >= ALONE_PASSES && turn.between.count >= BATCHES * run->passes / 2;
}

static void add_sample(struct bench_clear *bench, const char *kind, const char *name, uint64_t set,
	const struct mean *mean, const struct turn *turn, bool is_clearing)
{
	/* The large one is walked in parts. */
	double passes = (double)(set / LINE / PASS_LINES), us = get_mean_us(mean);
	struct bench_sample sample = {
		us * passes, is_clearing ? turn->clearing : 0, us / get_mean_us(&turn->alone)};

	if (mean->count)
		bench_series_add(
			bench_clear_get_figure(bench, kind, name, bench->pages.page_size, set), sample);
}

static void add_turn(struct bench_clear *bench, const struct run *run, uint64_t set, const struct turn *turn)
{
	bool is_clearing = run->manner != ALONE && run->manner != LOOKUP;

	add_sample(bench, "neighbour", run->name, set, &turn->between, turn, is_clearing);
	for (unsigned i = 0; set == BENCH_SET_SMALL && i < run->passes; i++)
		if (run->after[i])
			add_sample(bench, "after", run->after[i], set, &turn->after[i], turn, false);
}

/* Another manner first each time. */
static void run_series(struct bench_clear *bench, uint64_t set, unsigned series, uint64_t *offset)
{
	for (size_t i = 0; i < ARRAY_SIZE(runs) && !bench_get_signal(); i++) {
		const struct run *run = &runs[(i + series) % ARRAY_SIZE(runs)];
		struct turn turn;
		if (take_turn(bench, run, set, offset, &turn))
			add_turn(bench, run, set, &turn);
	}
}

void bench_neighbour_run_round(struct bench_clear *bench)
{
	static const struct {
		uint64_t bytes;
		unsigned series;
	} sets[] = {{BENCH_SET_SMALL, SERIES_SMALL}, {BENCH_SET_LARGE, SERIES_LARGE}};
	uint64_t offset = 0;

	for (size_t i = 0; i < ARRAY_SIZE(sets); i++) {
		chain_set(sets[i].bytes);
		for (unsigned j = 0; j < sets[i].series; j++)
			run_series(bench, sets[i].bytes, j, &offset);
	}
	bench_close_series(bench);
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
		(struct bench_sample){(double)(atomic_load(&copier->bytes) - copied) / spent_ns,
			(double)cleared / spent_ns, NAN});
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
