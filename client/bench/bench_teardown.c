/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * bench_teardown.c - what the end of a process costs that holds much memory, by kind of memory and of end.
 * Each round runs the rows, one after the other, another one first each time: a process of its own maps,
 * writes and ends (bench_holder.h). Huge pages are raised and warm before, for the kernel's side and for an
 * hpzd of its own, whose leases are one of the kinds.
 *
 * Unless a number of rounds is asked for, a row runs until what its rounds say lies close together, and no
 * round of it begins for which there is no time left: the dear ones end first then, and what each has run is
 * said with it. A row and its other half (the kernel's pages, leased ones) go on together.
 */
#include "bench_teardown.h"

#include <inttypes.h>
#include <math.h>

#include "bench.h"
#include "bench_memory.h"
#include "options.h"
#include "output.h"
#include "paravirt.h"
#include "size.h"

#define BENCH_TEARDOWN_ROUNDS   25  /* at most, unless so many are asked for */
#define BENCH_TEARDOWN_SECONDS  200 /* and what is raised before and given back after takes some, too */
#define BENCH_TEARDOWN_CLOSE    0.1 /* spread of a row's rounds that is enough */
#define BENCH_TEARDOWN_WARM_UPS 1
#define BENCH_TEARDOWN_SIZE     ((uint64_t)1 << 30)
#define BENCH_TEARDOWN_PART     8 /* of what the machine has: so much is taken at most, if nothing is said */
#define BENCH_TEARDOWN_REPEATS  5 /* of a row that takes no longer than a repeat may */
#define BENCH_TEARDOWN_REPEAT_S 0.05
#define BENCH_TEARDOWN_HUGE     ((uint64_t)2 << 20)
#define BENCH_TEARDOWN_GIGANTIC ((uint64_t)1 << 30)
#define BENCH_TEARDOWN_SAID     6 /* rows that spread too far are named, so many */

struct bench_teardown {
	uint64_t size_asked, rounds_asked, rounds, repeats; /* rounds_asked 0: as many as it takes */
	int64_t limit_ms;
	uint64_t start_ns;
	struct options_texts only_cases, only_memories; /* none: all */
	const char *program;
	struct bench_teardown_plan plan;
	struct host host;
	struct bench_memory memory;
	struct bench_pages gigantic;
	struct paravirt regime;
	struct bench_trace trace;
	const char *trace_why; /* NULL: it is open */
	char gigantic_why[96];
	struct bench_row rows[BENCH_TEARDOWN_ROWS_MAX];
	size_t row_count;
	struct bench_figures ratios[BENCH_ENDS]; /* of the kernel's 2M pages to leased ones, whole */
};

/* ---- memory ---- */

static uint64_t bench_teardown_get_thp_size(void)
{
	uint64_t size = 0;
	_cleanup_file_ FILE *file = fopen("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size", "re");

	return file && fscanf(file, "%" SCNu64, &size) == 1 && size > 0 ? size : BENCH_TEARDOWN_HUGE;
}

/* 0: as much as the machine has some times over. */
static uint64_t bench_teardown_choose_size(const struct host *host, uint64_t asked)
{
	uint64_t most = size_floor_pow2(bench_get_available(host) / BENCH_TEARDOWN_PART);
	uint64_t size = asked ? asked : MIN(BENCH_TEARDOWN_SIZE, most);

	return MAX(size / BENCH_TEARDOWN_HUGE * BENCH_TEARDOWN_HUGE, BENCH_TEARDOWN_HUGE);
}

static int bench_teardown_take_gigantic(struct bench_teardown *bench)
{
	uint64_t pages = MAX(bench->plan.size / BENCH_TEARDOWN_GIGANTIC, (uint64_t)1);
	struct host_counters counters;

	if (!host_has_page_size(&bench->host, BENCH_TEARDOWN_GIGANTIC)) {
		snprintf(bench->gigantic_why, sizeof(bench->gigantic_why),
			"the kernel offers no pages of 1 GiB");
		return -ENODEV;
	}
	/* Only such as there are: the kernel can hardly make new ones once memory is in use. */
	int r = host_get_counters(&bench->host, 0, BENCH_TEARDOWN_GIGANTIC, &counters);
	if (r == 0 && counters.free < counters.resv + pages)
		r = -ENOSPC;
	if (r < 0) {
		snprintf(bench->gigantic_why, sizeof(bench->gigantic_why),
			"%" PRIu64 " free pages of 1 GiB are needed, and there are fewer", pages);
		return r;
	}
	r = bench_pages_take(&bench->host, 0, BENCH_TEARDOWN_GIGANTIC, pages, &bench->gigantic);
	if (r == 0)
		r = bench_pages_punch(&bench->gigantic, 0, bench->gigantic.bytes);
	return r;
}

/* For the kernel's side, and as much for hpzd. */
static int bench_teardown_take(struct bench_teardown *bench)
{
	char stock[SIZE_TEXT + 4], size[SIZE_TEXT];

	if (!host_has_page_size(&bench->host, BENCH_TEARDOWN_HUGE)) {
		hpzctl_say("bench teardown: the kernel offers no pages of 2 MiB");
		return -ENODEV;
	}
	snprintf(stock, sizeof(stock), "%s*1", size_format_exact(bench->plan.size, size));
	const struct bench_memory_wish wish = {.name = "teardown",
		.host = &bench->host,
		.page_size = BENCH_TEARDOWN_HUGE,
		.kernel_bytes = bench->plan.size,
		.hpz_bytes = bench->plan.size,
		.stock = stock};
	int r = bench_daemon_prepare(bench->program);
	if (r == 0)
		r = bench_memory_open(&wish, &bench->memory);
	if (r == 0)
		bench_teardown_take_gigantic(bench);
	return r;
}

/* ---- rounds ---- */

static double bench_teardown_get_seconds(uint64_t since_ns)
{
	return (double)(clock_get_ns(CLOCK_MONOTONIC) - since_ns) / NS_PER_S;
}

static int bench_teardown_run_once(struct bench_teardown *bench, struct bench_row *row, double *ret_cycle_s)
{
	struct bench_holder_end end;
	char why[BENCH_HOLDER_WHY] = "";

	row->wish.socket = bench->memory.daemon.socket;
	int r = bench_holder_run(&row->wish, &bench->trace, &end, why);
	/* Nobody clears while we measure. */
	if (r == 0 && row->wish.backing == BENCH_BACKING_LEASED && bench_daemon_settle(&bench->memory.daemon))
		r = -ETIMEDOUT;
	if (r == BENCH_HOLDER_NOT_HERE) {
		snprintf(row->missing, sizeof(row->missing), "%s", why);
		return 0;
	}
	if (r < 0) {
		if (!bench_get_signal())
			hpzctl_say("bench teardown: %s, %s: %s", row->kind, row->backing, why);
		return r;
	}
	row->table_bytes = end.table_bytes;
	*ret_cycle_s = end.cycle_s;
	bench_figures_add(&row->seconds, end.seconds);
	bench_figures_add(&row->kernel_s, end.kernel_s);
	return 0;
}

/* Short ones are repeated: the median of some says more than one. */
static void bench_teardown_end_warm_up(struct bench_row *row, double cycle_s, unsigned repeats)
{
	bench_figures_deinit(&row->seconds);
	bench_figures_deinit(&row->kernel_s);
	if (cycle_s < BENCH_TEARDOWN_REPEAT_S)
		row->repeats = repeats;
}

static int bench_teardown_run_row(struct bench_teardown *bench, struct bench_row *row, bool is_measured)
{
	size_t start = row->seconds.count;
	uint64_t start_ns = clock_get_ns(CLOCK_MONOTONIC);
	double cycle_s = NAN;
	int r = 0;

	for (unsigned i = 0; r == 0 && i < row->repeats && !row->missing[0]; i++)
		r = bench_get_signal() ? -EINTR : bench_teardown_run_once(bench, row, &cycle_s);
	if (r < 0 || row->missing[0])
		return r;
	row->cost_s = bench_teardown_get_seconds(start_ns);
	if (!is_measured) {
		bench_teardown_end_warm_up(row, cycle_s, (unsigned)bench->repeats);
		row->cost_s *= row->repeats;
		return 0;
	}
	row->has_run = true;
	bench_figures_add(&row->round_s, bench_figures_get_median_from(&row->seconds, start));
	bench_figures_add(&row->cycle_s, cycle_s);
	return 0;
}

static struct bench_row *bench_teardown_find_row(
	struct bench_teardown *bench, enum bench_backing backing, enum bench_end end)
{
	for (size_t i = 0; i < bench->row_count; i++) {
		struct bench_row *row = &bench->rows[i];
		if (row->method == BENCH_METHOD_WHOLE && row->wish.backing == backing &&
			row->wish.end == end && row->wish.page_size == BENCH_TEARDOWN_HUGE)
			return row;
	}
	return NULL;
}

/* Both of this round. */
static void bench_teardown_add_ratios(struct bench_teardown *bench)
{
	for (unsigned end = 0; end < BENCH_ENDS; end++) {
		const struct bench_row *kernel = bench_teardown_find_row(
					       bench, BENCH_BACKING_HUGE, (enum bench_end)end),
				       *hpz = bench_teardown_find_row(
					       bench, BENCH_BACKING_LEASED, (enum bench_end)end);
		if (!kernel || !hpz || !kernel->has_run || !hpz->has_run)
			continue;
		bench_figures_add(&bench->ratios[end], kernel->round_s.values[kernel->round_s.count - 1] /
							       hpz->round_s.values[hpz->round_s.count - 1]);
	}
}

static bool bench_teardown_has_word(const struct options_texts *words, const char *word)
{
	bool has_word = words->count == 0;

	for (uint32_t i = 0; i < words->count; i++)
		has_word = has_word || strcmp(words->texts[i], word) == 0;
	return has_word;
}

/* Those that were asked for. */
static void bench_teardown_plan(struct bench_teardown *bench)
{
	size_t count = bench_teardown_plan_rows(&bench->plan, bench->rows);

	for (size_t i = 0; i < count; i++) {
		const struct bench_row *row = &bench->rows[i];
		if (bench_teardown_has_word(&bench->only_cases, bench_method_get_name(row->method)) &&
			bench_teardown_has_word(&bench->only_memories, row->backing))
			bench->rows[bench->row_count++] = *row;
	}
}

static bool bench_teardown_is_settled(const struct bench_row *row)
{
	struct bench_figures sorted = {0};

	if (row->round_s.count < BENCH_ROUNDS_MIN || row->round_s.count >= BENCH_TEARDOWN_ROUNDS)
		return row->round_s.count >= BENCH_TEARDOWN_ROUNDS;
	for (size_t i = 0; i < row->round_s.count; i++) /* which round was the last must stay known */
		bench_figures_add(&sorted, row->round_s.values[i]);
	double spread = bench_figures_get_spread(&sorted);
	bench_figures_deinit(&sorted);
	return spread <= BENCH_TEARDOWN_CLOSE;
}

/* The same of leased pages, or of the kernel's; NULL: it has none. */
static const struct bench_row *bench_teardown_find_half(
	struct bench_teardown *bench, const struct bench_row *row)
{
	enum bench_backing backing =
		row->wish.backing == BENCH_BACKING_HUGE ? BENCH_BACKING_LEASED : BENCH_BACKING_HUGE;

	if (bench_teardown_find_row(bench, row->wish.backing, row->wish.end) != row ||
		(row->wish.backing != BENCH_BACKING_HUGE && row->wish.backing != BENCH_BACKING_LEASED))
		return NULL;
	return bench_teardown_find_row(bench, backing, row->wish.end);
}

/* What the rows that are quicker still need for their first rounds: no dear one takes it from them. */
static double bench_teardown_get_owed(const struct bench_teardown *bench, const struct bench_row *row)
{
	double seconds = 0;

	for (size_t i = 0; i < bench->row_count; i++) {
		const struct bench_row *other = &bench->rows[i];
		if (!other->missing[0] && other->cost_s < row->cost_s &&
			other->round_s.count < BENCH_ROUNDS_MIN)
			seconds += other->cost_s * (double)(BENCH_ROUNDS_MIN - other->round_s.count);
	}
	return seconds;
}

/* Whether it is worth another round, and there is the time. */
static bool bench_teardown_wants_round(
	struct bench_teardown *bench, const struct bench_row *row, size_t round)
{
	const struct bench_row *half = bench_teardown_find_half(bench, row);

	if (row->missing[0])
		return false;
	if (round < BENCH_TEARDOWN_WARM_UPS)
		return true;
	if (bench->rounds_asked)
		return round < bench->rounds_asked + BENCH_TEARDOWN_WARM_UPS;
	if (bench_teardown_is_settled(row) && (!half || bench_teardown_is_settled(half)))
		return false;
	double end_s = bench_teardown_get_seconds(bench->start_ns) + row->cost_s +
		       bench_teardown_get_owed(bench, row);
	return bench->limit_ms == HPZ_FOREVER || end_s <= (double)bench->limit_ms / 1000;
}

/* How many rows ran; negative: a failure. */
static int bench_teardown_run_round(struct bench_teardown *bench, size_t round)
{
	int r = 0, count = 0;

	for (size_t i = 0; i < bench->row_count; i++)
		bench->rows[i].has_run = false;
	for (size_t i = 0; r == 0 && i < bench->row_count; i++) {
		struct bench_row *row = &bench->rows[(round * 7 + i) % bench->row_count];
		if (!bench_teardown_wants_round(bench, row, round))
			continue;
		r = bench_teardown_run_row(bench, row, round >= BENCH_TEARDOWN_WARM_UPS);
		count++;
	}
	if (r == 0)
		bench_teardown_add_ratios(bench);
	return r < 0 ? r : count;
}

/* The fewest of a row that is there. */
static size_t bench_teardown_count_rounds(const struct bench_teardown *bench)
{
	size_t rounds = SIZE_MAX;

	for (size_t i = 0; i < bench->row_count; i++)
		if (!bench->rows[i].missing[0])
			rounds = MIN(rounds, bench->rows[i].round_s.count);
	return rounds == SIZE_MAX ? 0 : rounds;
}

static int bench_teardown_run_rounds(struct bench_teardown *bench)
{
	int r = 1;

	for (size_t i = 0; i < bench->row_count; i++)
		if (bench->rows[i].wish.page_size == BENCH_TEARDOWN_GIGANTIC)
			snprintf(bench->rows[i].missing, sizeof(bench->rows[i].missing), "%s",
				bench->gigantic_why);
	bench->start_ns = clock_get_ns(CLOCK_MONOTONIC);
	for (size_t round = 0; r > 0; round++)
		r = bench_teardown_run_round(bench, round);
	bench->rounds = bench_teardown_count_rounds(bench);
	return r;
}

static int bench_teardown_run(struct bench_teardown *bench)
{
	int r = bench_teardown_take(bench);

	if (r < 0)
		return r;
	paravirt_read("", paravirt_run_cpuid, &bench->regime);
	if (bench_trace_open(&bench->trace, &bench->trace_why) < 0)
		hpzctl_say("bench teardown: what the kernel itself needs is not seen: %s", bench->trace_why);
	else
		bench->trace_why = NULL;
	return bench_get_signal() ? -EINTR : bench_teardown_run_rounds(bench);
}

static void bench_teardown_deinit(struct bench_teardown *bench)
{
	bench_trace_close(&bench->trace);
	bench_pages_give(&bench->gigantic);
	bench_memory_close(&bench->memory);
	host_deinit(&bench->host);
	for (size_t i = 0; i < bench->row_count; i++) {
		bench_figures_deinit(&bench->rows[i].seconds);
		bench_figures_deinit(&bench->rows[i].kernel_s);
		bench_figures_deinit(&bench->rows[i].round_s);
		bench_figures_deinit(&bench->rows[i].cycle_s);
	}
	for (size_t end = 0; end < BENCH_ENDS; end++)
		bench_figures_deinit(&bench->ratios[end]);
}

/* ---- what came of it ---- */

/* Says which rows spread too far. */
static size_t bench_teardown_count_wide(struct bench_teardown *bench)
{
	size_t wide = 0;

	for (size_t i = 0; i < bench->row_count; i++) {
		struct bench_row *row = &bench->rows[i];
		double spread = bench_figures_get_spread(&row->round_s);
		if (!(spread > BENCH_SPREAD_MAX))
			continue;
		if (wide++ < BENCH_TEARDOWN_SAID)
			hpzctl_say(
				"bench teardown: %s, %s: the middle half of the rounds spreads over %.0f %%",
				row->kind, row->backing, spread * 100);
	}
	if (wide > 0)
		hpzctl_say(
			"bench teardown: %zu of %zu rows spread over more than %.0f %%: the machine is busy",
			wide, bench->row_count, BENCH_SPREAD_MAX * 100);
	return wide;
}

/* Each reason once, with the first row that it keeps away. */
static void bench_teardown_say_missing(const struct bench_teardown *bench)
{
	const char *last = "";

	for (size_t i = 0; i < bench->row_count; i++) {
		const struct bench_row *row = &bench->rows[i];
		if (row->missing[0] && strcmp(row->missing, last) != 0 && row->wish.end == BENCH_END_EXIT)
			hpzctl_say("bench teardown: nothing of %s, %s: %s", row->kind, row->backing,
				row->missing);
		if (row->missing[0])
			last = row->missing;
	}
}

static bool bench_teardown_judge(struct bench_teardown *bench)
{
	size_t measured = 0, few = 0;

	for (size_t i = 0; i < bench->row_count; i++) {
		measured += !bench->rows[i].missing[0];
		few += !bench->rows[i].missing[0] && bench->rows[i].round_s.count < BENCH_ROUNDS_MIN;
	}
	bool is_few = bench->rounds < BENCH_ROUNDS_MIN;
	bench_teardown_say_missing(bench);
	if (is_few && bench->rounds_asked)
		hpzctl_say("bench teardown: a median of so few rounds says little: --rounds %d at least",
			BENCH_ROUNDS_MIN);
	else if (few > 0)
		hpzctl_say("bench teardown: of %zu of %zu rows there was time for fewer than %d rounds: a "
			   "longer --time, or a smaller --size",
			few, measured, BENCH_ROUNDS_MIN);
	/* What few rounds spread over says nothing either. */
	return !is_few && measured > 0 && bench_teardown_count_wide(bench) == 0;
}

static void bench_teardown_print_row(struct output_json *json, struct bench_row *row)
{
	output_json_open_object(json, NULL);
	output_json_text(json, "case", row->kind);
	output_json_text(json, "backing", row->backing);
	if (row->table_bytes)
		output_json_number(json, "table_bytes", row->table_bytes);
	else
		output_json_null(json, "table_bytes");
	output_json_decimal(json, "mean_s", bench_figures_get_mean(&row->seconds), 9);
	output_json_decimal(json, "stddev_s", bench_figures_get_deviation(&row->seconds), 9);
	output_json_number(json, "runs", row->seconds.count);
	output_json_number(json, "rounds", row->round_s.count);
	output_json_decimal(json, "median_s", bench_figures_get_median(&row->round_s), 9);
	output_json_decimal(json, "spread", bench_figures_get_spread(&row->round_s), 3);
	output_json_decimal(json, "exit_mmap_s", bench_figures_get_median(&row->kernel_s), 9);
	output_json_decimal(json, "cycle_s", bench_figures_get_median(&row->cycle_s), 9);
	output_json_text(json, "method", bench_method_get_name(row->method));
	output_json_text(json, "end", bench_end_get_name(row->wish.end));
	output_json_number(json, "page_size", row->wish.page_size);
	output_json_number(json, "sharers", MAX(row->wish.sharers, 1u));
	output_json_number(json, "mapped", row->wish.mapped);
	output_json_number(json, "touched", row->wish.touches);
	output_json_close(json);
}

static void bench_teardown_print_missing(struct output_json *json, const struct bench_teardown *bench)
{
	output_json_open_list(json, "missing");
	for (size_t i = 0; i < bench->row_count; i++) {
		if (!bench->rows[i].missing[0])
			continue;
		output_json_open_object(json, NULL);
		output_json_text(json, "case", bench->rows[i].kind);
		output_json_text(json, "backing", bench->rows[i].backing);
		output_json_text(json, "why", bench->rows[i].missing);
		output_json_close(json);
	}
	output_json_close(json);
}

static void bench_teardown_print_ratios(struct output_json *json, struct bench_teardown *bench)
{
	output_json_open_list(json, "pairs");
	for (unsigned end = 0; end < BENCH_ENDS; end++) {
		struct bench_row *kernel = bench_teardown_find_row(
					 bench, BENCH_BACKING_HUGE, (enum bench_end)end),
				 *hpz = bench_teardown_find_row(
					 bench, BENCH_BACKING_LEASED, (enum bench_end)end);
		if (!kernel || !hpz)
			continue;
		output_json_open_object(json, NULL);
		output_json_text(json, "case", kernel->kind);
		output_json_decimal(json, "kernel_s", bench_figures_get_median(&kernel->round_s), 9);
		output_json_decimal(json, "hpz_s", bench_figures_get_median(&hpz->round_s), 9);
		output_json_decimal(json, "ratio", bench_figures_get_median(&bench->ratios[end]), 3);
		output_json_decimal(json, "spread", bench_figures_get_spread(&bench->ratios[end]), 3);
		output_json_close(json);
	}
	output_json_close(json);
}

void bench_regime_print(struct output_json *json, const struct paravirt *regime)
{
	output_json_open_object(json, "regime");
	output_json_text(json, "name", paravirt_get_name(regime));
	output_json_open_list(json, "facts");
	for (size_t i = 0; i < regime->fact_count; i++) {
		output_json_open_object(json, NULL);
		output_json_text(json, "name", regime->facts[i].name);
		output_json_text_or_null(json, "value", regime->facts[i].value);
		output_json_text(json, "where", regime->facts[i].where);
		output_json_close(json);
	}
	output_json_close(json);
	output_json_close(json);
}

static void bench_teardown_print_json(struct bench_teardown *bench, bool is_complete)
{
	struct output_json json;

	output_json_init(&json, stdout);
	output_json_open_object(&json, NULL);
	output_json_text(&json, "schema", "hpz-bench-teardown-1");
	bench_regime_print(&json, &bench->regime);
	output_json_open_list(&json, "rows");
	for (size_t i = 0; i < bench->row_count; i++)
		if (!bench->rows[i].missing[0])
			bench_teardown_print_row(&json, &bench->rows[i]);
	output_json_close(&json);
	bench_teardown_print_missing(&json, bench);
	bench_teardown_print_ratios(&json, bench);
	output_json_number(&json, "size", bench->plan.size);
	output_json_number(&json, "rounds", bench->rounds);
	output_json_text_or_null(&json, "exit_mmap_why", bench->trace_why ? bench->trace_why : "");
	output_json_bool(&json, "complete", is_complete);
	output_json_close(&json);
}

/* Milliseconds, or that there is none. */
static void bench_teardown_add_ms(struct output_table *table, double seconds)
{
	if (isnan(seconds))
		output_table_add(table, "-");
	else
		output_table_add(table, "%.3f", seconds * 1000);
}

static void bench_teardown_print_text(struct bench_teardown *bench)
{
	static const char *const headings[] = {"CASE", "MEMORY", ">WRITTEN", ">TABLES", ">MEAN MS", ">STDDEV",
		">MEDIAN", ">KERNEL", ">RUNS"};
	struct output_table table;
	char size[SIZE_TEXT];

	printf("%s a case, %" PRIu64
	       " rounds at least, regime %s; from exit or kill to the end of the process, or munmap() "
	       "itself\n",
		size_format(bench->plan.size, size), bench->rounds, paravirt_get_name(&bench->regime));
	output_table_init(&table, headings, ARRAY_SIZE(headings));
	for (size_t i = 0; i < bench->row_count; i++) {
		struct bench_row *row = &bench->rows[i];
		if (row->missing[0])
			continue;
		output_table_add(&table, "%s", row->kind);
		output_table_add(&table, "%s", row->backing);
		output_table_add(&table, "%" PRIu64, row->wish.touches);
		if (row->table_bytes)
			output_table_add(&table, "%s", size_format(row->table_bytes, size));
		else
			output_table_add(&table, "-");
		bench_teardown_add_ms(&table, bench_figures_get_mean(&row->seconds));
		bench_teardown_add_ms(&table, bench_figures_get_deviation(&row->seconds));
		bench_teardown_add_ms(&table, bench_figures_get_median(&row->round_s));
		bench_teardown_add_ms(&table, bench_figures_get_median(&row->kernel_s));
		output_table_add(&table, "%zu", row->seconds.count);
	}
	output_table_print(&table, stdout);
	output_table_deinit(&table);
	for (unsigned end = 0; end < BENCH_ENDS; end++)
		if (bench->ratios[end].count > 0)
			printf("whole/%s of the kernel's 2M pages: %.2f times as long as of leased ones\n",
				bench_end_get_name((enum bench_end)end),
				bench_figures_get_median(&bench->ratios[end]));
}

static int bench_teardown_print(const struct hpzctl *ctl, struct bench_teardown *bench)
{
	bool is_complete = bench_teardown_judge(bench);

	if (ctl->json)
		bench_teardown_print_json(bench, is_complete);
	else
		bench_teardown_print_text(bench);
	return is_complete ? HPZCTL_DONE : HPZCTL_LATER;
}

/* ---- start ---- */

static int bench_teardown_init(struct bench_teardown *bench, const struct hpzctl *ctl)
{
	if (host_init(&bench->host, NULL) < 0) {
		hpzctl_say("bench teardown: /sys cannot be read");
		return HPZCTL_FAILED;
	}
	bench->plan = (struct bench_teardown_plan){
		.size = bench_teardown_choose_size(&bench->host, bench->size_asked),
		.page_size = (uint64_t)sysconf(_SC_PAGESIZE),
		.thp_size = bench_teardown_get_thp_size(),
		.huge_size = BENCH_TEARDOWN_HUGE,
		.gigantic_size = BENCH_TEARDOWN_GIGANTIC};
	bench_teardown_plan(bench);
	if (bench->row_count > 0)
		return OPTIONS_GO;
	host_deinit(&bench->host);
	return hpzctl_fail_usage(ctl, "there is no such row: --case %s, --memory %s",
		bench->only_cases.count ? bench->only_cases.texts[0] : "any",
		bench->only_memories.count ? bench->only_memories.texts[0] : "any");
}

static int bench_teardown_run_all(struct hpzctl *ctl, struct bench_teardown *bench)
{
	int status = bench_teardown_init(bench, ctl);

	if (status != OPTIONS_GO)
		return status;
	bench_catch_signals();
	int r = bench_teardown_run(bench);
	status = r == 0 ? bench_teardown_print(ctl, bench) : r == -ENOSPC ? HPZCTL_LATER : HPZCTL_FAILED;
	bench_teardown_deinit(bench);
	if (bench_get_signal())
		bench_die_of_signal();
	return status;
}

int bench_teardown(struct hpzctl *ctl, int argc, char **argv)
{
	static struct bench_teardown bench;
	const char *source = NULL;
	const struct options_row rows[] = {
		{"size", OPTIONS_SIZE, &bench.size_asked, "SIZE",
			"memory of a case (default: 1G, or an eighth of what there is; of the statistics "
			"64M)"},
		{"rounds", OPTIONS_COUNT, &bench.rounds_asked, "N",
			"how many count (default: until a row's times lie close together; of the statistics "
			"20)"},
		{"time", OPTIONS_SECONDS, &bench.limit_ms, "SECONDS",
			"without --rounds, no round begins that would end after it (default: 200)"},
		{"repeats", OPTIONS_COUNT, &bench.repeats, "N",
			"how often short rows run in a round (default: 5)"},
		{"case", OPTIONS_TEXTS, &bench.only_cases, "NAME",
			"only this, each time one more: puds, middle or whole"},
		{"memory", OPTIONS_TEXTS, &bench.only_memories, "NAME",
			"only this, each time one more, as 4K, THP, 2M-shared-2 or 2M-hpz"},
		{"statistics", OPTIONS_TEXT, &source, "SOURCE",
			"instead, what hpzd's own statistics of it cost: bpf, perf or pidfd, against off"},
		{"hpzd", OPTIONS_TEXT, &bench.program, "FILE",
			"the hpzd to lease from (default: the installed one)"},
	};
	char **operands;
	int count;

	bench = (struct bench_teardown){
		.repeats = BENCH_TEARDOWN_REPEATS, .limit_ms = BENCH_TEARDOWN_SECONDS * 1000};
	int status = options_parse(ctl, rows, ARRAY_SIZE(rows), argc, argv, false, &operands, &count);
	if (status == OPTIONS_GO)
		status = options_refuse_operands(ctl, operands, count);
	if (status != OPTIONS_GO)
		return status;
	if (bench.rounds_asked > BENCH_ROUNDS_MAX || bench.repeats > BENCH_ROUNDS_MAX)
		return hpzctl_fail_usage(ctl, "--rounds and --repeats are at most %d", BENCH_ROUNDS_MAX);
	if (source) {
		const struct bench_statistics_wish wish = {
			source, bench.program, bench.size_asked, bench.rounds_asked};
		return bench_statistics(ctl, &wish);
	}
	return bench_teardown_run_all(ctl, &bench);
}
