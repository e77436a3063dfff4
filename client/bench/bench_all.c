/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * bench_all.c - hpzctl bench all: runs every benchmark and makes a report of them.
 * Each is a child process that prints JSON, with a limit of time; one that fails, is refused or hangs costs
 * only its own part of the report, which says so. What needs a running hpzd gets one of its own, in a child
 * as well, so that whatever that leaves goes with it.
 */
#include "bench.h"

#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "bench_gnuplot.h"
#include "bench_machine.h"
#include "bench_memory.h"
#include "bench_report.h"
#include "options.h"
#include "output.h"
#include "size.h"

#define BENCH_ALL_LIMIT_MS  ((int64_t)900 * 1000)
#define BENCH_ALL_EVER_MS   ((int64_t)365 * 86400 * 1000)
#define BENCH_ALL_CLEAN_MS  ((uint64_t)60000) /* what was told to end gives its pages back first */
#define BENCH_ALL_SAMPLE_MS 200               /* of what others do before each */
#define BENCH_ALL_WORDS     24
#define BENCH_ALL_WHY       512
/* Of what is free for programs, so much is taken: the other side takes as much again. */
#define BENCH_ALL_PART  8
#define BENCH_ALL_MOST  ((uint64_t)8 << 30)
#define BENCH_ALL_VM    ((uint64_t)1 << 30)
#define BENCH_ALL_PROOF ((uint64_t)4 << 30)
#define BENCH_ALL_QUICK ((uint64_t)16 << 20)
#define BENCH_ALL_PAGE  ((uint64_t)2 << 20)
#define GIB             ((uint64_t)1 << 30)

struct bench_all {
	struct hpzctl *ctl;
	const char *markdown, *hpzd, *program, *from;
	bool is_quick;
	int64_t limit_ms;
	char **names;
	int name_count;
	struct host host;
	json_t *report;
};

/* One benchmark's run. */
struct bench_all_run {
	const struct report_benchmark *benchmark;
	const char *words[BENCH_ALL_WORDS + 1]; /* NULL behind the last */
	char size[SIZE_TEXT];
	uint64_t bytes;
	int out, err; /* memfds: what it printed */
	int status;   /* of wait(2) */
	bool is_late;
	double seconds;
};

/* ---- the command line ---- */

static void bench_all_add(struct bench_all_run *run, const char *word)
{
	size_t count = 0;

	while (run->words[count])
		count++;
	if (count < BENCH_ALL_WORDS)
		run->words[count] = word;
}

/* How much memory, by what the machine has. */
static void bench_all_choose_size(const struct bench_all *all, struct bench_all_run *run)
{
	uint64_t part = size_floor_pow2(bench_machine_get_available() / BENCH_ALL_PART);
	bool is_gib = strcmp(run->benchmark->size, "--gib") == 0;
	uint64_t most = is_gib ? BENCH_ALL_MOST : run->benchmark->needs_hpzd ? BENCH_ALL_VM : BENCH_ALL_PROOF;

	run->bytes = all->is_quick ? BENCH_ALL_QUICK : MIN(MAX(part, BENCH_ALL_QUICK), most);
	if (is_gib)
		run->bytes = MAX(run->bytes, GIB);
	if (is_gib)
		snprintf(run->size, sizeof(run->size), "%" PRIu64, run->bytes / GIB);
	else
		size_format_exact(run->bytes, run->size);
	bench_all_add(run, run->benchmark->size);
	bench_all_add(run, run->size);
}

static void bench_all_prepare(const struct bench_all *all, struct bench_all_run *run)
{
	const struct report_benchmark *benchmark = run->benchmark;
	const char *const *arguments = all->is_quick ? benchmark->quick : benchmark->full;

	bench_all_add(run, "hpzctl");
	bench_all_add(run, "bench");
	bench_all_add(run, benchmark->name);
	bench_all_add(run, "--json");
	for (size_t i = 0; i < REPORT_ARGUMENTS && arguments[i]; i++)
		bench_all_add(run, arguments[i]);
	if (benchmark->size)
		bench_all_choose_size(all, run);
	if (benchmark->takes_hpzd && all->hpzd) {
		bench_all_add(run, "--hpzd");
		bench_all_add(run, all->hpzd);
	}
	if (benchmark->needs_hpzd && all->ctl->socket_path) {
		bench_all_add(run, "--socket");
		bench_all_add(run, all->ctl->socket_path);
	}
}

/* ---- waiting for one ---- */

/* Until it is over, so long at most; false: it is not, or a signal came if that counts. */
static bool bench_all_wait_for(int pidfd, uint64_t limit_ms, bool until_signal)
{
	uint64_t until_ns = clock_get_ns(CLOCK_MONOTONIC) + limit_ms * NS_PER_MS;
	struct pollfd poll_fd = {.fd = pidfd, .events = POLLIN};

	while (!until_signal || !bench_get_signal()) {
		uint64_t now_ns = clock_get_ns(CLOCK_MONOTONIC);
		if (now_ns >= until_ns)
			return false;
		int n = poll(&poll_fd, 1, (int)MIN((until_ns - now_ns) / NS_PER_MS + 1, (uint64_t)1000));
		if (n > 0)
			return true;
		if (n < 0 && errno != EINTR)
			return false;
	}
	return false;
}

/*
 * When its time is over, or a signal to us comes, it is told to end, and gives back its pages first: no
 * second signal hurries that. *ret_status is wait(2)'s. 0 or a negative errno.
 */
static int bench_all_see_off(
	pid_t pid, int64_t limit_ms, uint64_t clean_ms, int *ret_status, bool *ret_is_late)
{
	uint64_t limit = limit_ms < 0 || limit_ms > BENCH_ALL_EVER_MS ? (uint64_t)BENCH_ALL_EVER_MS
								      : (uint64_t)limit_ms;
	_cleanup_fd_ int pidfd = pidfd_open(pid, 0);

	*ret_is_late = false;
	if (pidfd < 0 || !bench_all_wait_for(pidfd, limit, true)) {
		*ret_is_late = pidfd >= 0 && !bench_get_signal();
		kill(pid, SIGTERM);
		if (pidfd < 0 || !bench_all_wait_for(pidfd, clean_ms, false))
			kill(pid, SIGKILL);
	}
	while (waitpid(pid, ret_status, 0) < 0) {
		if (errno != EINTR)
			return -errno;
	}
	return 0;
}

/* ---- in the child ---- */

static void bench_all_exec(const struct bench_all *all, const struct bench_all_run *run)
{
	const char *program = all->program ? all->program : "/proc/self/exe";

	execv(program, (char *const *)run->words);
	hpzctl_say("bench all: %s: %s", program, strerror(errno));
	_exit(HPZCTL_FAILED);
}

/* A child that ends when its parent does, however that ends. */
static pid_t bench_all_fork(void)
{
	pid_t parent = getpid(), pid = fork();

	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGTERM);
		if (getppid() != parent)
			_exit(HPZCTL_FAILED);
	}
	return pid;
}

/* With an hpzd of its own, which has one clean segment of that size. Returns the exit status. */
static int bench_all_run_with_hpzd(const struct bench_all *all, struct bench_all_run *run)
{
	struct bench_memory memory;
	char stock[SIZE_TEXT + 4], size[SIZE_TEXT];
	struct bench_memory_wish wish = {.name = "bench-all",
		.host = &all->host,
		.node = all->host.nodes[0],
		.page_size = BENCH_ALL_PAGE,
		.hpz_bytes = run->bytes,
		.stock = stock};

	snprintf(stock, sizeof(stock), "%s*1", size_format_exact(run->bytes, size));
	bench_catch_signals();
	if (bench_daemon_prepare(all->hpzd) < 0)
		return HPZCTL_LATER;
	int r = bench_memory_open(&wish, &memory);
	if (r < 0)
		return r == -ENOSPC ? HPZCTL_LATER : HPZCTL_FAILED;
	bench_all_add(run, "--socket");
	bench_all_add(run, memory.daemon.socket);
	pid_t pid = bench_all_fork();
	if (pid == 0)
		bench_all_exec(all, run);
	/* Who waits for us minds the limit. */
	bool is_late;
	int status;
	r = pid < 0 ? -errno : bench_all_see_off(pid, HPZ_FOREVER, BENCH_ALL_CLEAN_MS, &status, &is_late);
	bench_memory_close(&memory);
	return r == 0 && WIFEXITED(status) ? WEXITSTATUS(status) : HPZCTL_FAILED;
}

static void bench_all_be_child(const struct bench_all *all, struct bench_all_run *run)
{
	if (dup2(run->out, STDOUT_FILENO) < 0 || dup2(run->err, STDERR_FILENO) < 0)
		_exit(HPZCTL_FAILED);
	if (run->benchmark->needs_hpzd && !all->ctl->socket_path)
		_exit(bench_all_run_with_hpzd(all, run));
	bench_all_exec(all, run);
}

/* ---- around it ---- */

static int bench_all_run_child(const struct bench_all *all, struct bench_all_run *run)
{
	uint64_t start_ns = clock_get_ns(CLOCK_MONOTONIC);
	pid_t pid = bench_all_fork();

	if (pid < 0)
		return -errno;
	if (pid == 0)
		bench_all_be_child(all, run);
	int r = bench_all_see_off(pid, all->limit_ms, 2 * BENCH_ALL_CLEAN_MS, &run->status, &run->is_late);
	if (r < 0)
		return r;
	run->seconds = (double)(clock_get_ns(CLOCK_MONOTONIC) - start_ns) / (double)NS_PER_S;
	return 0;
}

/* The last line that it said, without our name; and all of it on our own stderr. What befell it goes before.
 */
static void bench_all_get_why(
	const struct bench_all *all, const struct bench_all_run *run, char ret_why[BENCH_ALL_WHY])
{
	_cleanup_free_ char *line = NULL;
	size_t size = 0;

	ret_why[0] = 0;
	lseek(run->err, 0, SEEK_SET);
	_cleanup_file_ FILE *file = fdopen(dup(run->err), "r");
	while (file && getline(&line, &size, file) >= 0) {
		line[strcspn(line, "\n")] = 0;
		if (!*line)
			continue;
		output_print_text(stderr, line);
		fputc('\n', stderr);
		snprintf(ret_why, BENCH_ALL_WHY, "%s", strncmp(line, "hpzctl: ", 8) == 0 ? line + 8 : line);
	}
	if (run->is_late)
		snprintf(ret_why, BENCH_ALL_WHY, "it was not over after %.3g s", (double)all->limit_ms / 1e3);
	else if (WIFSIGNALED(run->status))
		snprintf(ret_why, BENCH_ALL_WHY, "it was ended by signal %d (%s)", WTERMSIG(run->status),
			strsignal(WTERMSIG(run->status)));
}

/* ---- the report ---- */

static const char *bench_all_get_outcome(const struct bench_all_run *run, const json_t *result)
{
	int status = WIFEXITED(run->status) ? WEXITSTATUS(run->status) : -1;

	if (run->is_late)
		return "timeout";
	if (status == HPZCTL_DONE && result)
		return "done";
	if (status == HPZCTL_LATER)
		return result ? "incomplete" : "refused";
	return "failed";
}

static json_t *bench_all_make_real(double value)
{
	return isfinite(value) ? json_real(value) : json_null();
}

static json_t *bench_all_make_words(const char *const *words)
{
	json_t *list = json_array();

	for (; *words; words++)
		json_array_append_new(list, json_string(*words));
	return list;
}

static json_t *bench_all_describe(const struct bench_all *all, const struct bench_all_run *run, double before,
	double load, const struct bench_busy *since)
{
	json_t *entry = json_object(), *busy = json_object(), *result;
	struct bench_busy until;
	char why[BENCH_ALL_WHY];

	bench_busy_take(&until);
	lseek(run->out, 0, SEEK_SET);
	result = json_loadfd(run->out, 0, NULL);
	bench_all_get_why(all, run, why);
	json_object_set_new(entry, "name", json_string(run->benchmark->name));
	json_object_set_new(entry, "command", bench_all_make_words(run->words));
	json_object_set_new(entry, "outcome", json_string(bench_all_get_outcome(run, result)));
	json_object_set_new(entry, "status",
		WIFEXITED(run->status) ? json_integer(WEXITSTATUS(run->status)) : json_null());
	json_object_set_new(entry, "signal",
		WIFSIGNALED(run->status) ? json_integer(WTERMSIG(run->status)) : json_null());
	json_object_set_new(entry, "why", *why && output_is_text(why) ? json_string(why) : json_null());
	json_object_set_new(entry, "seconds", json_real(run->seconds));
	json_object_set_new(busy, "before", bench_all_make_real(before));
	json_object_set_new(busy, "load", bench_all_make_real(load));
	json_object_set_new(busy, "steal", bench_all_make_real(bench_busy_get_steal(since, &until)));
	json_object_set_new(entry, "busy", busy);
	json_object_set_new(entry, "result", result ? result : json_null());
	return entry;
}

static int bench_all_run_one(struct bench_all *all, const struct report_benchmark *benchmark)
{
	struct bench_all_run run = {.benchmark = benchmark,
		.out = memfd_create("out", MFD_CLOEXEC),
		.err = memfd_create("err", MFD_CLOEXEC)};
	_cleanup_fd_ int out = run.out, err = run.err;
	struct bench_busy idle, since;
	double load = bench_busy_get_load();

	if (out < 0 || err < 0)
		return -errno;
	bench_busy_take(&idle);
	poll(NULL, 0, BENCH_ALL_SAMPLE_MS);
	bench_busy_take(&since);
	bench_all_prepare(all, &run);
	hpzctl_say("bench all: %s ...", benchmark->name);
	int r = bench_all_run_child(all, &run);
	if (r < 0)
		return r;
	json_array_append_new(json_object_get(all->report, "benchmarks"),
		bench_all_describe(all, &run, bench_busy_get_used(&idle, &since), load, &since));
	return 0;
}

static bool bench_all_is_wanted(const struct bench_all *all, const char *name)
{
	for (int i = 0; i < all->name_count; i++) {
		if (strcmp(all->names[i], name) == 0)
			return true;
	}
	return all->name_count == 0;
}

static int bench_all_run_wanted(struct bench_all *all)
{
	uint64_t start_ns = clock_get_ns(CLOCK_MONOTONIC);

	for (size_t i = 0; i < report_benchmark_count && !bench_get_signal(); i++) {
		const struct report_benchmark *benchmark = &report_benchmarks[i];
		int r = bench_all_is_wanted(all, benchmark->name) ? bench_all_run_one(all, benchmark) : 0;
		if (r < 0) {
			hpzctl_say("bench all: %s: %s", benchmark->name, strerror(-r));
			return r;
		}
	}
	json_object_set_new(all->report, "seconds",
		json_real((double)(clock_get_ns(CLOCK_MONOTONIC) - start_ns) / (double)NS_PER_S));
	return 0;
}

static void bench_all_start_report(struct bench_all *all, const char *const *words)
{
	time_t now = time(NULL);
	char date[64];
	struct tm utc;

	strftime(date, sizeof(date), "%Y-%m-%d %H:%M UTC", gmtime_r(&now, &utc));
	all->report = json_object();
	json_object_set_new(all->report, "schema", json_string("hpz-bench-all-1"));
	json_object_set_new(all->report, "version", json_string(HPZ_VERSION));
	json_object_set_new(all->report, "date", json_string(date));
	json_object_set_new(all->report, "command", bench_all_make_words(words));
	json_object_set_new(all->report, "quick", json_boolean(all->is_quick));
	json_object_set_new(all->report, "machine", bench_machine_describe(&all->host));
	json_object_set_new(all->report, "regime", bench_machine_get_regime());
	json_object_set_new(all->report, "benchmarks", json_array());
}

/* Nothing that one of them says hides another: the worst decides. */
static int bench_all_judge(const struct bench_all *all)
{
	int status = json_is_true(json_object_get(all->report, "quick")) ? HPZCTL_LATER : HPZCTL_DONE;
	size_t index;
	json_t *run;

	json_array_foreach (json_object_get(all->report, "benchmarks"), index, run) {
		const char *outcome = json_string_value(json_object_get(run, "outcome"));
		if (!outcome || strcmp(outcome, "failed") == 0)
			return HPZCTL_FAILED;
		if (strcmp(outcome, "done") != 0)
			status = HPZCTL_LATER;
	}
	return status;
}

static void bench_all_print(const struct bench_all *all)
{
	static const char *const headings[] = {"BENCHMARK", "OUTCOME", ">SECONDS", "WHY"};
	struct output_table table;
	size_t index;
	json_t *run;

	output_table_init(&table, headings, ARRAY_SIZE(headings));
	json_array_foreach (json_object_get(all->report, "benchmarks"), index, run) {
		const char *why = json_string_value(json_object_get(run, "why"));
		output_table_add(&table, "%s", json_string_value(json_object_get(run, "name")));
		output_table_add(&table, "%s", json_string_value(json_object_get(run, "outcome")));
		output_table_add(&table, "%.1f", json_number_value(json_object_get(run, "seconds")));
		output_table_add(&table, "%s", why ? why : "-");
	}
	output_table_print(&table, stdout);
	output_table_deinit(&table);
}

static int bench_all_finish(struct bench_all *all)
{
	int status = bench_all_judge(all);

	json_object_set_new(all->report, "complete", json_boolean(status == HPZCTL_DONE));
	if (all->markdown && bench_report_write(all->report, all->markdown) < 0)
		status = HPZCTL_FAILED;
	if (all->ctl->json) {
		json_dumpf(all->report, stdout, JSON_COMPACT | JSON_REAL_PRECISION(9));
		putchar('\n');
	} else {
		bench_all_print(all);
	}
	return status;
}

/* What an earlier run printed. */
static int bench_all_load(struct bench_all *all)
{
	json_error_t error;

	all->report = json_load_file(all->from, 0, &error);
	const char *schema = json_string_value(json_object_get(all->report, "schema"));
	if (schema && strcmp(schema, "hpz-bench-all-1") == 0)
		return 0;
	hpzctl_say(
		"bench all: --from: %s: %s", all->from, all->report ? "no report of bench all" : error.text);
	return -EINVAL;
}

static int bench_all_go(struct bench_all *all, const char *const *words)
{
	int r = all->markdown ? bench_gnuplot_find("bench all: --markdown") : 0;

	if (r == 0 && all->from) {
		r = bench_all_load(all);
	} else if (r == 0) {
		bench_catch_signals();
		bench_all_start_report(all, words);
		r = bench_all_run_wanted(all);
	}
	/* A part of a report would be taken for a whole one. */
	if (bench_get_signal())
		bench_die_of_signal();
	return r < 0 ? HPZCTL_FAILED : bench_all_finish(all);
}

static int bench_all_check_names(const struct bench_all *all)
{
	for (int i = 0; i < all->name_count; i++) {
		if (!report_find_benchmark(all->names[i]))
			return hpzctl_fail_usage(all->ctl, "there is no benchmark '%s'", all->names[i]);
	}
	return OPTIONS_GO;
}

int bench_all(struct hpzctl *ctl, int argc, char **argv)
{
	struct bench_all all = {.ctl = ctl, .limit_ms = BENCH_ALL_LIMIT_MS};
	const struct options_row rows[] = {
		{"markdown", OPTIONS_TEXT, &all.markdown, "FILE",
			"write the report, and pictures beside it (gnuplot)"},
		{"quick", OPTIONS_FLAG, &all.is_quick, NULL,
			"as little as possible, to see that all works: exits 75"},
		{"limit", OPTIONS_SECONDS, &all.limit_ms, "SECONDS", "for each benchmark (default: 900)"},
		{"hpzd", OPTIONS_TEXT, &all.hpzd, "FILE", "the hpzd to measure (default: the installed one)"},
		{"program", OPTIONS_TEXT, &all.program, "FILE",
			"the hpzctl whose benchmarks are run (default: this one)"},
		{"from", OPTIONS_TEXT, &all.from, "FILE", "report what an earlier run printed with --json"},
	};
	const char **words = calloc((size_t)argc + 4, sizeof(*words));

	if (!words)
		abort();
	/* As it was written: reading the options moves them. */
	memcpy(words, (const char *const[]){"hpzctl", "bench", "all"}, 3 * sizeof(*words));
	memcpy(words + 3, argv, (size_t)argc * sizeof(*words));
	int status =
		options_parse(ctl, rows, ARRAY_SIZE(rows), argc, argv, false, &all.names, &all.name_count);
	if (status == OPTIONS_GO)
		status = bench_all_check_names(&all);
	if (status == OPTIONS_GO && host_init(&all.host, NULL) < 0) {
		hpzctl_say("bench all: /sys cannot be read");
		status = HPZCTL_FAILED;
	}
	if (status == OPTIONS_GO)
		status = bench_all_go(&all, words);
	host_deinit(&all.host);
	json_decref(all.report);
	free(words);
	return status;
}
