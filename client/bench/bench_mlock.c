/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * bench_mlock.c - how long it takes until a region of huge pages is mapped and locked: memory that the kernel
 * zeroes for it, and a lease of an hpzd of the benchmark's own, whose pages exist and are zero.
 *
 * What is timed is the mapping, which is empty, and mlock(), which fills it: for the kernel's side mmap() and
 * the zeroing, for ours hpz_map() and an entry in the page tables for each page. (Of a mapping that is filled
 * already mlock() has nothing to do with huge pages, which are never swapped.) The lease itself is a figure
 * of its own. Afterwards each page is looked at: there, and zero. A round does both, in turn, and every lease
 * goes back and is cleared before the next. The pages are warm: such that are new to the kernel would take it
 * seconds more.
 */
#include "bench.h"

#include <inttypes.h>
#include <math.h>
#include <sys/mman.h>

#include "bench_memory.h"
#include "options.h"
#include "output.h"
#include "size.h"

#define BENCH_MLOCK_ROUNDS   20
#define BENCH_MLOCK_WARM_UPS 1 /* hpzd measures its methods on the first large segment that comes back */
#define BENCH_MLOCK_WAIT_MS  120000
#define BENCH_MLOCK_MIB      ((uint64_t)1 << 20)
#define BENCH_MLOCK_GIB      ((uint64_t)1 << 30)
#define BENCH_MLOCK_SMALL    4096 /* what mincore() counts in, at least */

static const uint64_t bench_mlock_page_sizes[] = {2 * BENCH_MLOCK_MIB, BENCH_MLOCK_GIB};
#define PAGE_SIZES ARRAY_SIZE(bench_mlock_page_sizes)

/* Milliseconds per GiB, by round. */
struct bench_mlock_side {
	double all[BENCH_ROUNDS_MAX], map[BENCH_ROUNDS_MAX], lock[BENCH_ROUNDS_MAX];
};

struct bench_mlock_row {
	uint64_t page_size, bytes;
	size_t rounds; /* 0: not measured, which has been said */
	struct bench_mlock_side kernel, hpz;
	double lease_ms[BENCH_ROUNDS_MAX]; /* not per GiB: it does not depend on the size */
	double ratio[BENCH_ROUNDS_MAX], lease_ratio[BENCH_ROUNDS_MAX]; /* the second with the lease */
	double ratio_median, lease_ratio_median, spread;
};

struct bench_mlock {
	uint64_t bytes, only_page_size, rounds_asked;
	struct host host;
	int32_t node;
	struct bench_mlock_row rows[PAGE_SIZES];
};

/* One side of one round. */
struct bench_mlock_sample {
	uint64_t lease_ns, map_ns, lock_ns;
};

/* ---- one region ---- */

static int bench_mlock_fail(const char *what, int error)
{
	hpzctl_say("bench mlock: %s: %s", what, strerror(error));
	return -error;
}

/* Each page has an entry in our page tables, and is zero. Of all bytes others see to that. */
static int bench_mlock_check(const struct bench_mlock_row *row, char *start)
{
	for (uint64_t at = 0; at < row->bytes; at += row->page_size) {
		unsigned char is_there = 0;
		if (mincore(start + at, BENCH_MLOCK_SMALL, &is_there) < 0)
			return bench_mlock_fail("mincore", errno);
		if (!(is_there & 1) || *(volatile uint64_t *)(start + at) != 0) {
			hpzctl_say("bench mlock: page %" PRIu64 " is %s", at / row->page_size,
				is_there & 1 ? "not zero" : "not mapped");
			return -EIO;
		}
	}
	return 0;
}

static int bench_mlock_lock(
	const struct bench_mlock_row *row, char *start, uint64_t start_ns, struct bench_mlock_sample *sample)
{
	uint64_t mapped_ns = clock_get_ns(CLOCK_MONOTONIC);

	if (mlock(start, row->bytes) < 0)
		return bench_mlock_fail("mlock", errno);
	sample->map_ns = mapped_ns - start_ns;
	sample->lock_ns = clock_get_ns(CLOCK_MONOTONIC) - mapped_ns;
	return bench_mlock_check(row, start);
}

static int bench_mlock_measure_kernel(const struct bench_mlock_row *row, struct bench_mlock_sample *sample)
{
	uint64_t start_ns = clock_get_ns(CLOCK_MONOTONIC);
	char *start = bench_memory_map_kernel(row->page_size, row->bytes, 0);

	if (!start)
		return bench_mlock_fail("mmap", errno);
	int r = bench_mlock_lock(row, start, start_ns, sample);
	munmap(start, row->bytes);
	return r;
}

static int bench_mlock_map_lease(const struct bench_mlock_row *row, struct hpz *hpz, struct hpz_lease *lease,
	struct bench_mlock_sample *sample)
{
	void *start;
	size_t length;

	uint64_t start_ns = clock_get_ns(CLOCK_MONOTONIC);
	if (hpz_map(hpz, lease, &start, &length)) {
		hpzctl_say("bench mlock: hpz_map: %s", hpz_get_error_text(hpz));
		return -EIO;
	}
	return bench_mlock_lock(row, start, start_ns, sample);
}

static int bench_mlock_measure_hpz(
	const struct bench_mlock_row *row, struct hpz *hpz, struct bench_mlock_sample *sample)
{
	struct hpz_lease_request request = HPZ_LEASE_REQUEST_INIT;
	struct hpz_lease *lease = NULL;

	request.size = row->bytes;
	request.page_size = row->page_size;
	request.label = "bench mlock";
	request.timeout_ms = BENCH_MLOCK_WAIT_MS;
	uint64_t start_ns = clock_get_ns(CLOCK_MONOTONIC);
	int error = hpz_lease(hpz, &request, &lease);
	sample->lease_ns = clock_get_ns(CLOCK_MONOTONIC) - start_ns;
	if (error) {
		hpzctl_say("bench mlock: no lease: %s", hpz_get_error_text(hpz));
		return -EIO;
	}
	int r = bench_mlock_map_lease(row, hpz, lease, sample);
	uint64_t id = hpz_lease_get_id(lease);
	hpz_lease_free(lease);
	/* Clean again: nobody clears while we measure. */
	if (hpz_release(hpz, id, HPZ_RELEASE_WAIT, BENCH_MLOCK_WAIT_MS) && r == 0) {
		hpzctl_say("bench mlock: the lease does not come back: %s", hpz_get_error_text(hpz));
		return -EIO;
	}
	return r;
}

/* ---- rounds ---- */

static void bench_mlock_note(const struct bench_mlock_row *row, const struct bench_mlock_sample *sample,
	struct bench_mlock_side *side)
{
	double gib = (double)row->bytes / (double)BENCH_MLOCK_GIB;

	side->map[row->rounds] = (double)sample->map_ns / NS_PER_MS / gib;
	side->lock[row->rounds] = (double)sample->lock_ns / NS_PER_MS / gib;
	side->all[row->rounds] = side->map[row->rounds] + side->lock[row->rounds];
}

static int bench_mlock_run_round(struct bench_mlock_row *row, struct hpz *hpz, size_t number)
{
	struct bench_mlock_sample kernel = {0}, ours = {0};
	int r = 0;

	if (number % 2)
		r = bench_mlock_measure_hpz(row, hpz, &ours);
	if (r == 0)
		r = bench_mlock_measure_kernel(row, &kernel);
	if (r == 0 && number % 2 == 0)
		r = bench_mlock_measure_hpz(row, hpz, &ours);
	if (r < 0 || number < BENCH_MLOCK_WARM_UPS)
		return r;
	double kernel_ns = (double)(kernel.map_ns + kernel.lock_ns),
	       hpz_ns = (double)(ours.map_ns + ours.lock_ns);
	bench_mlock_note(row, &kernel, &row->kernel);
	bench_mlock_note(row, &ours, &row->hpz);
	row->lease_ms[row->rounds] = (double)ours.lease_ns / NS_PER_MS;
	row->ratio[row->rounds] = kernel_ns / hpz_ns;
	row->lease_ratio[row->rounds++] = kernel_ns / (hpz_ns + (double)ours.lease_ns);
	return 0;
}

/* Whether we may lock so much at all, before anything is taken for it. 0 or -EPERM, of which it has spoken.
 */
static int bench_mlock_try(uint64_t bytes)
{
	void *start = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (start == MAP_FAILED)
		return bench_mlock_fail("mmap", errno);
	int error = mlock2(start, bytes, MLOCK_ONFAULT) < 0 ? errno : 0;
	munmap(start, bytes);
	if (error)
		hpzctl_say("bench mlock: %" PRIu64
			   " MiB cannot be locked: %s: it needs CAP_IPC_LOCK, or a higher limit (ulimit -l)",
			bytes / BENCH_MLOCK_MIB, strerror(error));
	return error ? -EPERM : 0;
}

static int bench_mlock_run_row(const struct bench_mlock *bench, struct bench_mlock_row *row)
{
	struct bench_memory memory = {0};
	char name[BENCH_DAEMON_NAME], stock[64];

	snprintf(name, sizeof(name), "mlock-%" PRIu64, row->page_size / BENCH_MLOCK_MIB);
	snprintf(stock, sizeof(stock), "%" PRIu64 "M*1", row->bytes / BENCH_MLOCK_MIB);
	const struct bench_memory_wish wish = {.name = name,
		.host = &bench->host,
		.node = bench->node,
		.page_size = row->page_size,
		.kernel_bytes = row->bytes,
		.hpz_bytes = row->bytes,
		.stock = stock};
	int r = bench_mlock_try(row->bytes);
	if (r == 0)
		r = bench_memory_open(&wish, &memory);
	for (size_t i = 0; r == 0 && i < bench->rounds_asked + BENCH_MLOCK_WARM_UPS && !bench_get_signal();
		i++)
		r = bench_mlock_run_round(row, memory.daemon.hpz, i);
	bench_memory_close(&memory);
	return r;
}

/* Pages of one size; that there are none, or not so many, is a failure only of what was asked for by name. */
static int bench_mlock_run_pages(struct bench_mlock *bench, size_t index)
{
	struct bench_mlock_row *row = &bench->rows[index];

	row->page_size = bench_mlock_page_sizes[index];
	row->bytes = size_pages(bench->bytes, row->page_size) * row->page_size;
	if (bench->only_page_size && bench->only_page_size != row->page_size)
		return 0;
	if (!host_has_page_size(&bench->host, row->page_size)) {
		hpzctl_say("bench mlock: the kernel has no pages of %" PRIu64 " MiB",
			row->page_size / BENCH_MLOCK_MIB);
		return 0;
	}
	int r = bench_mlock_run_row(bench, row);
	/* What a machine has left is rarely in pieces of 1 GiB, and one may be more than we may lock. */
	bool is_optional = index > 0 && !bench->only_page_size;
	return is_optional && (r == -ENOSPC || r == -EPERM) ? 0 : r;
}

static int bench_mlock_run(struct bench_mlock *bench)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < PAGE_SIZES && !bench_get_signal(); i++)
		r = bench_mlock_run_pages(bench, i);
	return r;
}

/* ---- what came of it ---- */

/* Whether it counts; if not, that is said. */
static bool bench_mlock_conclude(struct bench_mlock_row *row)
{
	char page_size[SIZE_TEXT];

	if (row->rounds == 0)
		return true;
	row->ratio_median = bench_get_median(row->ratio, row->rounds);
	row->spread = bench_get_spread(row->ratio, row->rounds);
	row->lease_ratio_median = bench_get_median(row->lease_ratio, row->rounds);
	if (row->rounds < BENCH_ROUNDS_MIN)
		hpzctl_say("bench mlock: a median of so few rounds says little: --rounds %d at least",
			BENCH_ROUNDS_MIN);
	else if (row->spread > BENCH_SPREAD_MAX)
		hpzctl_say(
			"bench mlock: pages of %s: the middle half of the rounds spreads over %.0f %%: the "
			"machine is busy",
			size_format_exact(row->page_size, page_size), row->spread * 100);
	else
		return true;
	return false;
}

/* The median; NAN: of nothing. */
static double bench_mlock_get(const double *figures, const struct bench_mlock_row *row)
{
	double copy[BENCH_ROUNDS_MAX];

	if (row->rounds == 0)
		return NAN;
	memcpy(copy, figures, row->rounds * sizeof(*copy));
	return bench_get_median(copy, row->rounds);
}

static void bench_mlock_print_scalars(struct output_json *json, const struct bench_mlock_row *row)
{
	output_json_number(json, "page_size", row->page_size);
	output_json_decimal(json, "gib", (double)row->bytes / (double)BENCH_MLOCK_GIB, 3);
	output_json_decimal(json, "kernel_ms_per_gib", bench_mlock_get(row->kernel.all, row), 4);
	output_json_decimal(json, "hpz_ms_per_gib", bench_mlock_get(row->hpz.all, row), 4);
	output_json_decimal(json, "ratio", row->rounds ? row->ratio_median : NAN, 2);
}

static void bench_mlock_print_row(struct output_json *json, const struct bench_mlock_row *row)
{
	output_json_open_object(json, NULL);
	bench_mlock_print_scalars(json, row);
	output_json_decimal(json, "kernel_map_ms_per_gib", bench_mlock_get(row->kernel.map, row), 4);
	output_json_decimal(json, "kernel_mlock_ms_per_gib", bench_mlock_get(row->kernel.lock, row), 4);
	output_json_decimal(json, "hpz_map_ms_per_gib", bench_mlock_get(row->hpz.map, row), 4);
	output_json_decimal(json, "hpz_mlock_ms_per_gib", bench_mlock_get(row->hpz.lock, row), 4);
	output_json_decimal(json, "lease_ms", bench_mlock_get(row->lease_ms, row), 4);
	output_json_decimal(json, "ratio_with_lease", row->lease_ratio_median, 2);
	output_json_number(json, "rounds", row->rounds);
	output_json_decimal(json, "spread", row->spread, 3);
	output_json_close(json);
}

static void bench_mlock_print_json(const struct bench_mlock *bench, bool is_complete)
{
	const struct bench_mlock_row *first = &bench->rows[0];
	struct output_json json;

	for (size_t i = 0; i < PAGE_SIZES && first->rounds == 0; i++)
		first = &bench->rows[i];
	output_json_init(&json, stdout);
	output_json_open_object(&json, NULL);
	output_json_text(&json, "schema", "hpz-bench-mlock-1");
	bench_mlock_print_scalars(&json, first);
	output_json_number(&json, "rounds", first->rounds);
	output_json_decimal(&json, "spread", first->spread, 3);
	output_json_bool(&json, "complete", is_complete);
	output_json_open_list(&json, "rows");
	for (size_t i = 0; i < PAGE_SIZES; i++)
		if (bench->rows[i].rounds > 0)
			bench_mlock_print_row(&json, &bench->rows[i]);
	output_json_close(&json);
	output_json_close(&json);
}

static void bench_mlock_print_text(const struct bench_mlock *bench)
{
	static const char *const headings[] = {
		"PAGES", ">OF", "SIDE", ">MAP", ">MLOCK", ">BOTH", "MS PER GIB"};
	char size[SIZE_TEXT], page_size[SIZE_TEXT];
	struct output_table table;

	output_table_init(&table, headings, ARRAY_SIZE(headings));
	for (size_t i = 0; i < 2 * PAGE_SIZES; i++) {
		const struct bench_mlock_row *row = &bench->rows[i / 2];
		const struct bench_mlock_side *side = i % 2 ? &row->hpz : &row->kernel;
		if (row->rounds == 0)
			continue;
		output_table_add(&table, "%s", size_format_exact(row->page_size, page_size));
		output_table_add(&table, "%s", size_format(row->bytes, size));
		output_table_add(&table, "%s", i % 2 ? "hpz" : "kernel");
		output_table_add(&table, "%.3f", bench_mlock_get(side->map, row));
		output_table_add(&table, "%.3f", bench_mlock_get(side->lock, row));
		output_table_add(&table, "%.3f", bench_mlock_get(side->all, row));
		output_table_add(&table, "%s", i % 2 ? "pages of a lease" : "pages that are zeroed then");
	}
	output_table_print(&table, stdout);
	output_table_deinit(&table);
	for (size_t i = 0; i < PAGE_SIZES; i++) {
		const struct bench_mlock_row *row = &bench->rows[i];
		if (row->rounds > 0)
			printf("pages of %s: %.1f times as fast, with the lease (%.3f ms) %.1f times; "
			       "medians of %zu "
			       "rounds\n",
				size_format_exact(row->page_size, page_size), row->ratio_median,
				bench_mlock_get(row->lease_ms, row), row->lease_ratio_median, row->rounds);
		else if (row->page_size && !bench->only_page_size)
			printf("pages of %s: not measured\n", size_format_exact(row->page_size, page_size));
	}
}

static int bench_mlock_print(const struct hpzctl *ctl, struct bench_mlock *bench)
{
	bool is_complete = true;

	for (size_t i = 0; i < PAGE_SIZES; i++)
		is_complete = bench_mlock_conclude(&bench->rows[i]) && is_complete;
	if (ctl->json)
		bench_mlock_print_json(bench, is_complete);
	else
		bench_mlock_print_text(bench);
	return is_complete ? HPZCTL_DONE : HPZCTL_LATER;
}

/* ---- start ---- */

static int bench_mlock_measure(const struct hpzctl *ctl, struct bench_mlock *bench, const char *program)
{
	if (bench_daemon_prepare(program) < 0)
		return HPZCTL_FAILED;
	if (host_init(&bench->host, NULL) < 0) {
		hpzctl_say("bench mlock: this machine's nodes cannot be read");
		return HPZCTL_FAILED;
	}
	bench_catch_signals();
	int r = bench_mlock_run(bench);
	host_deinit(&bench->host);
	if (bench_get_signal())
		bench_die_of_signal();
	if (r < 0)
		return r == -ENOSPC ? HPZCTL_LATER : HPZCTL_FAILED;
	size_t rounds = 0;
	for (size_t i = 0; i < PAGE_SIZES; i++)
		rounds += bench->rows[i].rounds;
	return rounds ? bench_mlock_print(ctl, bench) : HPZCTL_FAILED;
}

int bench_mlock(struct hpzctl *ctl, int argc, char **argv)
{
	static struct bench_mlock bench;
	const char *program = NULL;
	bench = (struct bench_mlock){.bytes = 2 * BENCH_MLOCK_GIB, .rounds_asked = BENCH_MLOCK_ROUNDS};
	const struct options_row rows[] = {
		{"size", OPTIONS_SIZE, &bench.bytes, "SIZE", "of the region (default: 2G)"},
		{"page-size", OPTIONS_SIZE, &bench.only_page_size, "SIZE", "2M or 1G (default: both)"},
		{"node", OPTIONS_NODE, &bench.node, "N", "NUMA node (default: 0)"},
		{"rounds", OPTIONS_COUNT, &bench.rounds_asked, "N", "how often (default: 20)"},
		{"hpzd", OPTIONS_TEXT, &program, "FILE", "the hpzd to measure (default: the installed one)"},
	};
	char **operands;
	int count;

	int status = options_parse(ctl, rows, ARRAY_SIZE(rows), argc, argv, false, &operands, &count);
	if (status == OPTIONS_GO)
		status = options_refuse_operands(ctl, operands, count);
	if (status != OPTIONS_GO)
		return status;
	if (bench.rounds_asked > BENCH_ROUNDS_MAX)
		return hpzctl_fail_usage(ctl, "--rounds is at most %d", BENCH_ROUNDS_MAX);
	if (bench.only_page_size && bench.only_page_size != 2 * BENCH_MLOCK_MIB &&
		bench.only_page_size != BENCH_MLOCK_GIB)
		return hpzctl_fail_usage(ctl, "--page-size is 2M or 1G");
	if (bench.node < 0 || bench.bytes > (uint64_t)1 << 46)
		return hpzctl_fail_usage(ctl, "--node is one node, --size what a machine can have");
	return bench_mlock_measure(ctl, &bench, program);
}
