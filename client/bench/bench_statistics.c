/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * bench_statistics.c - what hpzd's teardown statistics cost those they watch, and those they do not: the same
 * processes end beside an hpzd with them and beside one without, in turn. Each block starts an hpzd of its
 * own, so that a block without them has none of them in the kernel; a round is one block of each, another one
 * first each time. What such pairs cannot resolve on a busy machine, the kernel's own account of the programs
 * says: in one more block, of leased holders only, all that they ran from a signal to the end, whoever they
 * ran for.
 */
#include "bench_teardown.h"

#include <dirent.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>

#include "bench.h"
#include "bench_daemon.h"
#include "bench_pages.h"
#include "bench_programs.h"
#include "options.h"
#include "output.h"
#include "paravirt.h"
#include "size.h"

#define BENCH_STATISTICS_ROUNDS       20
#define BENCH_STATISTICS_ENDS         10 /* of each holder in a block */
#define BENCH_STATISTICS_WARM_UPS     2
#define BENCH_STATISTICS_PROGRAM_ENDS 40
#define BENCH_STATISTICS_SIZE         ((uint64_t)64 << 20)
#define BENCH_STATISTICS_OWN          ((uint64_t)16 << 20) /* as a QEMU whose guest has hardly any memory */
#define BENCH_STATISTICS_PAGE         ((uint64_t)2 << 20)
#define BENCH_STATISTICS_PERCENT      100
#define BENCH_STATISTICS_WAIT_MS      20000 /* for what hpzd loads once it serves */
#define BENCH_STATISTICS_LOOK_MS      20

enum bench_statistics_arm { BENCH_STATISTICS_OFF, BENCH_STATISTICS_ON, BENCH_STATISTICS_ARMS };
enum bench_statistics_holder { BENCH_STATISTICS_LEASED, BENCH_STATISTICS_OTHER, BENCH_STATISTICS_HOLDERS };

/* What hpzd has open while it watches that way: pidfds are nothing that others could feel. */
static const struct {
	const char *source, *file;
} bench_statistics_sources[] = {
	{"bpf", "anon_inode:bpf_link"}, {"perf", "anon_inode:[perf_event]"}, {"pidfd", NULL}};

static const char *const bench_statistics_names[] = {
	[BENCH_STATISTICS_LEASED] = "leased", [BENCH_STATISTICS_OTHER] = "other"};

struct bench_statistics_row {
	struct bench_figures seconds[BENCH_STATISTICS_ARMS]; /* medians of the blocks */
	struct bench_figures ratio;
	size_t runs;
};

struct bench_statistics {
	const struct bench_statistics_wish *wish;
	const char *file; /* of bench_statistics_sources */
	uint64_t size, rounds_asked, rounds;
	size_t blocks; /* so far: each hpzd has a name of its own */
	struct host host;
	struct bench_pages pages;
	struct paravirt regime;
	struct bench_trace no_trace; /* never opened: it would cost on the same tracepoints */
	struct bench_statistics_row rows[BENCH_STATISTICS_HOLDERS];
	double program_s; /* of an end of a leased holder; NAN: there are none, or the kernel does not count
			   */
};

/* ---- a block ---- */

/* The other one has small pages, of which the kernel has to flush more, and no others. */
static struct bench_holder_wish bench_statistics_make_wish(const struct bench_statistics *bench,
	enum bench_statistics_holder holder, const struct bench_daemon *daemon)
{
	uint64_t small = (uint64_t)sysconf(_SC_PAGESIZE);

	if (holder == BENCH_STATISTICS_OTHER)
		return (struct bench_holder_wish){.backing = BENCH_BACKING_4K,
			.end = BENCH_END_KILL,
			.page_size = small,
			.mapped = BENCH_STATISTICS_OWN,
			.step = small,
			.touches = BENCH_STATISTICS_OWN / small};
	return (struct bench_holder_wish){.backing = BENCH_BACKING_LEASED,
		.end = BENCH_END_KILL,
		.page_size = BENCH_STATISTICS_PAGE,
		.mapped = bench->size,
		.step = BENCH_STATISTICS_PAGE,
		.touches = bench->size / BENCH_STATISTICS_PAGE,
		.own = BENCH_STATISTICS_OWN,
		.socket = daemon->socket};
}

struct bench_statistics_account {
	struct bench_programs programs;
	uint64_t before_ns, sum_ns; /* sum: of the ends so far */
	int error;
};

static void bench_statistics_begin_account(void *user)
{
	struct bench_statistics_account *account = user;

	account->error = bench_programs_get_ns(&account->programs, &account->before_ns);
}

static int bench_statistics_end_account(struct bench_statistics_account *account)
{
	uint64_t now_ns = 0;
	int r = account->error ? account->error : bench_programs_get_ns(&account->programs, &now_ns);

	account->sum_ns += now_ns - account->before_ns;
	return r;
}

static int bench_statistics_run_holder(struct bench_statistics *bench, enum bench_statistics_holder holder,
	const struct bench_daemon *daemon, struct bench_statistics_account *account, double *ret_seconds)
{
	struct bench_holder_wish wish = bench_statistics_make_wish(bench, holder, daemon);
	struct bench_holder_end end;
	char why[BENCH_HOLDER_WHY] = "";

	if (bench_get_signal())
		return -EINTR;
	wish.before_end = account ? bench_statistics_begin_account : NULL;
	wish.user = account;
	int r = bench_holder_run(&wish, &bench->no_trace, &end, why);
	if (r == 0 && account)
		r = bench_statistics_end_account(account);
	/* Nobody clears while we measure. */
	if (r == 0 && holder == BENCH_STATISTICS_LEASED && bench_daemon_settle(daemon)) {
		snprintf(why, sizeof(why), "what came back does not get clean");
		r = -ETIMEDOUT;
	}
	if (r != 0 && !bench_get_signal())
		hpzctl_say("bench teardown: %s: %s", bench_statistics_names[holder], why);
	if (r == 0)
		*ret_seconds = end.seconds;
	return r > 0 ? -EOPNOTSUPP : r;
}

/* Unlike in the pairs, nobody waits for the clock: what counts is the kernel's. */
static int bench_statistics_run_programs(
	struct bench_statistics *bench, enum bench_statistics_arm arm, const struct bench_daemon *daemon)
{
	struct bench_statistics_account account = {0};
	double seconds;

	int r = bench_programs_open(daemon->pid, &account.programs);
	if (r < 0) /* what it ran is not known then */
		return 0;
	for (size_t i = 0; r == 0 && i < BENCH_STATISTICS_PROGRAM_ENDS; i++)
		r = bench_statistics_run_holder(bench, BENCH_STATISTICS_LEASED, daemon, &account, &seconds);
	if (r == 0)
		bench->program_s = (double)account.sum_ns / NS_PER_S / BENCH_STATISTICS_PROGRAM_ENDS;
	bench_programs_close(&account.programs);
	return r;
}

static int bench_statistics_run_ends(
	struct bench_statistics *bench, enum bench_statistics_arm arm, const struct bench_daemon *daemon)
{
	struct bench_figures figures[BENCH_STATISTICS_HOLDERS] = {{0}};
	double seconds = NAN;
	int r = 0;

	for (size_t i = 0; r == 0 && i < BENCH_STATISTICS_WARM_UPS + BENCH_STATISTICS_ENDS; i++)
		for (unsigned holder = 0; r == 0 && holder < BENCH_STATISTICS_HOLDERS; holder++) {
			r = bench_statistics_run_holder(
				bench, (enum bench_statistics_holder)holder, daemon, NULL, &seconds);
			if (r == 0 && i >= BENCH_STATISTICS_WARM_UPS)
				bench_figures_add(&figures[holder], seconds);
		}
	for (size_t holder = 0; holder < BENCH_STATISTICS_HOLDERS; holder++) {
		struct bench_statistics_row *row = &bench->rows[holder];
		if (r == 0) {
			bench_figures_add(&row->seconds[arm], bench_figures_get_median(&figures[holder]));
			row->runs += figures[holder].count;
		}
		bench_figures_deinit(&figures[holder]);
	}
	return r;
}

/* ---- is it on, or off? ---- */

static bool bench_statistics_has_file(pid_t pid, const char *file)
{
	char path[64], target[PATH_MAX];
	bool is_found = false;

	snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
	DIR *directory = opendir(path);
	for (struct dirent *entry; directory && !is_found && (entry = readdir(directory));) {
		ssize_t length = readlinkat(dirfd(directory), entry->d_name, target, sizeof(target) - 1);
		target[MAX(length, 0)] = '\0';
		is_found = strcmp(target, file) == 0;
	}
	if (directory)
		closedir(directory);
	return is_found;
}

/* Of an hpzd that cannot do what it was told nothing would be measured. */
static int bench_statistics_check(const struct bench_statistics *bench, enum bench_statistics_arm arm,
	const struct bench_daemon *daemon)
{
	const char *file = bench->file;
	unsigned waited_ms = 0;

	if (!file)
		return 0;
	bool is_wanted = arm == BENCH_STATISTICS_ON;
	while (bench_statistics_has_file(daemon->pid, file) != is_wanted &&
		waited_ms < BENCH_STATISTICS_WAIT_MS) {
		nanosleep(&(struct timespec){.tv_nsec = BENCH_STATISTICS_LOOK_MS * NS_PER_MS}, NULL);
		waited_ms += BENCH_STATISTICS_LOOK_MS;
	}
	if (waited_ms < BENCH_STATISTICS_WAIT_MS)
		return 0;
	hpzctl_say("bench teardown: hpzd %s", is_wanted ? "does not read that source on this machine"
							: "reads a source of its statistics that is off");
	return -EOPNOTSUPP;
}

static int bench_statistics_run_block(struct bench_statistics *bench, enum bench_statistics_arm arm,
	int (*run)(struct bench_statistics *, enum bench_statistics_arm, const struct bench_daemon *))
{
	struct bench_daemon daemon = {0};
	char stock[SIZE_TEXT + 4], size[SIZE_TEXT], keys[64], name[BENCH_DAEMON_NAME];

	snprintf(stock, sizeof(stock), "%s*1", size_format_exact(bench->size, size));
	snprintf(keys, sizeof(keys), "teardown = %s\n",
		arm == BENCH_STATISTICS_ON ? bench->wish->source : "off");
	snprintf(name, sizeof(name), "statistics%zu", bench->blocks++);
	const struct bench_daemon_wish wish = {
		.name = name, .bytes = bench->size, .stock = stock, .cpu = -1, .is_real = true, .keys = keys};
	int r = bench_daemon_start(&wish, &daemon);
	if (r == 0)
		r = bench_statistics_check(bench, arm, &daemon);
	if (r == 0)
		r = run(bench, arm, &daemon);
	bench_daemon_stop(&daemon);
	return r;
}

/* ---- rounds ---- */

static int bench_statistics_run_round(struct bench_statistics *bench, size_t number)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < BENCH_STATISTICS_ARMS; i++)
		r = bench_statistics_run_block(bench,
			(enum bench_statistics_arm)((number + i) % BENCH_STATISTICS_ARMS),
			bench_statistics_run_ends);
	for (size_t i = 0; r == 0 && i < BENCH_STATISTICS_HOLDERS; i++) {
		struct bench_statistics_row *row = &bench->rows[i];
		bench_figures_add(&row->ratio, row->seconds[BENCH_STATISTICS_ON].values[number] /
						       row->seconds[BENCH_STATISTICS_OFF].values[number]);
	}
	bench->rounds += r == 0;
	return r;
}

static int bench_statistics_run(struct bench_statistics *bench)
{
	if (!host_has_page_size(&bench->host, BENCH_STATISTICS_PAGE)) {
		hpzctl_say("bench teardown: the kernel offers no pages of 2 MiB");
		return -ENODEV;
	}
	int r = bench_daemon_prepare(bench->wish->program);
	if (r == 0)
		r = bench_pages_take(&bench->host, 0, BENCH_STATISTICS_PAGE,
			bench->size / BENCH_STATISTICS_PAGE, &bench->pages);
	if (r == 0)
		r = bench_pages_punch(&bench->pages, 0, bench->pages.bytes);
	if (r == 0)
		paravirt_read("", paravirt_run_cpuid, &bench->regime);
	for (size_t i = 0; r == 0 && i < bench->rounds_asked; i++)
		r = bench_statistics_run_round(bench, i);
	if (r == 0)
		r = bench_statistics_run_block(bench, BENCH_STATISTICS_ON, bench_statistics_run_programs);
	return r;
}

static void bench_statistics_deinit(struct bench_statistics *bench)
{
	bench_pages_give(&bench->pages);
	host_deinit(&bench->host);
	for (size_t i = 0; i < BENCH_STATISTICS_HOLDERS; i++) {
		bench_figures_deinit(&bench->rows[i].seconds[BENCH_STATISTICS_ON]);
		bench_figures_deinit(&bench->rows[i].seconds[BENCH_STATISTICS_OFF]);
		bench_figures_deinit(&bench->rows[i].ratio);
	}
}

/* ---- what came of it ---- */

static bool bench_statistics_judge(struct bench_statistics *bench)
{
	bool is_complete = bench->rounds >= BENCH_ROUNDS_MIN;

	if (!is_complete)
		hpzctl_say("bench teardown: a median of so few rounds says little: --rounds %d at least",
			BENCH_ROUNDS_MIN);
	for (size_t i = 0; i < BENCH_STATISTICS_HOLDERS; i++) {
		double spread = bench_figures_get_spread(&bench->rows[i].ratio);
		if (spread <= BENCH_SPREAD_MAX)
			continue;
		hpzctl_say("bench teardown: %s: the middle half of the rounds spreads over %.0f %%: the "
			   "machine is "
			   "busy",
			bench_statistics_names[i], spread * 100);
		is_complete = false;
	}
	return is_complete;
}

static double bench_statistics_get_percent(double ratio)
{
	return (ratio - 1) * BENCH_STATISTICS_PERCENT;
}

/* Of the end that it is in; NAN: not known. */
static double bench_statistics_get_program_percent(struct bench_statistics *bench)
{
	double off_s =
		bench_figures_get_median(&bench->rows[BENCH_STATISTICS_LEASED].seconds[BENCH_STATISTICS_OFF]);

	return bench->program_s / off_s * BENCH_STATISTICS_PERCENT;
}

static void bench_statistics_print_json(struct bench_statistics *bench, bool is_complete)
{
	struct output_json json;

	output_json_init(&json, stdout);
	output_json_open_object(&json, NULL);
	output_json_text(&json, "schema", "hpz-bench-teardown-statistics-1");
	bench_regime_print(&json, &bench->regime);
	output_json_text(&json, "source", bench->wish->source);
	output_json_open_list(&json, "rows");
	for (size_t i = 0; i < BENCH_STATISTICS_HOLDERS; i++) {
		struct bench_statistics_row *row = &bench->rows[i];
		double ratio = bench_figures_get_median(&row->ratio);
		output_json_open_object(&json, NULL);
		output_json_text(&json, "holder", bench_statistics_names[i]);
		output_json_decimal(
			&json, "on_s", bench_figures_get_median(&row->seconds[BENCH_STATISTICS_ON]), 9);
		output_json_decimal(
			&json, "off_s", bench_figures_get_median(&row->seconds[BENCH_STATISTICS_OFF]), 9);
		output_json_decimal(&json, "ratio", ratio, 4);
		output_json_decimal(&json, "overhead_pct", bench_statistics_get_percent(ratio), 2);
		output_json_decimal(&json, "overhead_pct_low",
			bench_statistics_get_percent(bench_figures_get_quarter(&row->ratio, 1)), 2);
		output_json_decimal(&json, "overhead_pct_high",
			bench_statistics_get_percent(bench_figures_get_quarter(&row->ratio, 3)), 2);
		output_json_decimal(&json, "spread", bench_figures_get_spread(&row->ratio), 4);
		output_json_number(&json, "runs", row->runs);
		output_json_close(&json);
	}
	output_json_close(&json);
	output_json_decimal(&json, "program_s", bench->program_s, 9);
	output_json_decimal(&json, "program_pct", bench_statistics_get_program_percent(bench), 2);
	output_json_number(&json, "size", bench->size);
	output_json_number(&json, "rounds", bench->rounds);
	output_json_bool(&json, "complete", is_complete);
	output_json_close(&json);
}

static void bench_statistics_print_text(struct bench_statistics *bench)
{
	static const char *const headings[] = {
		"HOLDER", ">ON MS", ">OFF MS", ">MORE", ">MIDDLE HALF", ">RUNS"};
	struct output_table table;
	char size[SIZE_TEXT];

	printf("%s leased, 16M of their own, killed, %" PRIu64 " rounds; on: teardown = %s\n",
		size_format(bench->size, size), bench->rounds, bench->wish->source);
	output_table_init(&table, headings, ARRAY_SIZE(headings));
	for (size_t i = 0; i < BENCH_STATISTICS_HOLDERS; i++) {
		struct bench_statistics_row *row = &bench->rows[i];
		output_table_add(&table, "%s", bench_statistics_names[i]);
		output_table_add(
			&table, "%.3f", bench_figures_get_median(&row->seconds[BENCH_STATISTICS_ON]) * 1000);
		output_table_add(
			&table, "%.3f", bench_figures_get_median(&row->seconds[BENCH_STATISTICS_OFF]) * 1000);
		output_table_add(&table, "%+.2f %%",
			bench_statistics_get_percent(bench_figures_get_median(&row->ratio)));
		output_table_add(&table, "%+.2f to %+.2f",
			bench_statistics_get_percent(bench_figures_get_quarter(&row->ratio, 1)),
			bench_statistics_get_percent(bench_figures_get_quarter(&row->ratio, 3)));
		output_table_add(&table, "%zu", row->runs);
	}
	output_table_print(&table, stdout);
	output_table_deinit(&table);
	if (!isnan(bench->program_s))
		printf("programs, by the kernel's account: %.1f us in a leased holder's end, %.2f %% of it\n",
			bench->program_s * 1e6, bench_statistics_get_program_percent(bench));
}

static int bench_statistics_find_source(struct bench_statistics *bench)
{
	for (size_t i = 0; i < ARRAY_SIZE(bench_statistics_sources); i++) {
		if (strcmp(bench_statistics_sources[i].source, bench->wish->source) != 0)
			continue;
		bench->file = bench_statistics_sources[i].file;
		return 0;
	}
	return -EINVAL;
}

int bench_statistics(const struct hpzctl *ctl, const struct bench_statistics_wish *wish)
{
	static struct bench_statistics bench;
	int status;

	bench = (struct bench_statistics){.wish = wish,
		.size = wish->size ? size_pages(wish->size, BENCH_STATISTICS_PAGE) * BENCH_STATISTICS_PAGE
				   : BENCH_STATISTICS_SIZE,
		.program_s = NAN,
		.rounds_asked = wish->rounds ? wish->rounds : BENCH_STATISTICS_ROUNDS};
	if (bench_statistics_find_source(&bench) < 0)
		return hpzctl_fail_usage(ctl, "--statistics is bpf, perf or pidfd");
	if (host_init(&bench.host, NULL) < 0) {
		hpzctl_say("bench teardown: /sys cannot be read");
		return HPZCTL_FAILED;
	}
	bench_catch_signals();
	int r = bench_statistics_run(&bench);
	if (r == 0) {
		bool is_complete = bench_statistics_judge(&bench);
		if (ctl->json)
			bench_statistics_print_json(&bench, is_complete);
		else
			bench_statistics_print_text(&bench);
		status = is_complete ? HPZCTL_DONE : HPZCTL_LATER;
	} else {
		status = r == -ENOSPC ? HPZCTL_LATER : HPZCTL_FAILED;
	}
	bench_statistics_deinit(&bench);
	if (bench_get_signal())
		bench_die_of_signal();
	return status;
}
