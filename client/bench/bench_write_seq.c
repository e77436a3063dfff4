/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * bench_write_seq.c - processes that map memory, write to it from its start to its end and let go of it, as
 * vm-scalability's case-anon-w-seq-hugetlb does: anonymous huge pages that the kernel zeroes at their first
 * touch, against leases of an hpzd of the benchmark's own. A round does both, another one first each time,
 * when all that came back is clean. Taking the lease is part of it, and clearing it afterwards is not: what
 * that cost hpzd and its workers is a figure of its own.
 */
#include "bench.h"

#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "bench_memory.h"
#include "options.h"
#include "output.h"
#include "size.h"

#define BENCH_WRITE_ROUNDS    10
#define BENCH_WRITE_WARM_UPS  1 /* hpzd measures its methods on the first large segment that comes back */
#define BENCH_WRITE_SIZE      ((uint64_t)1 << 30)
#define BENCH_WRITE_PART      8 /* of what the machine has: so much is taken at most, if nothing is said */
#define BENCH_WRITE_PAGE      ((uint64_t)2 << 20)
#define BENCH_WRITE_TASKS_MAX 256
#define BENCH_WRITE_WAIT_MS   120000
#define BENCH_WRITE_WHY       128

enum bench_write_side { BENCH_WRITE_KERNEL, BENCH_WRITE_HPZ, BENCH_WRITE_SIDES };
enum bench_write_figure { BENCH_WRITE_STIME, BENCH_WRITE_UTIME, BENCH_WRITE_WALL, BENCH_WRITE_FIGURES };

static const char *const bench_write_names[] = {
	[BENCH_WRITE_STIME] = "stime", [BENCH_WRITE_UTIME] = "utime", [BENCH_WRITE_WALL] = "wall"};

/* What a task tells; shared. */
struct bench_write_note {
	double stime_s, utime_s;
	uint64_t ended_ns;    /* CLOCK_MONOTONIC; 0: it did not come so far */
	uint64_t ready_bytes; /* of a lease: clean when it was asked for */
	char why[BENCH_WRITE_WHY];
};

struct bench_write {
	uint64_t tasks, bytes, rounds_asked, rounds; /* bytes: of all of them */
	const char *program;
	struct host host;
	struct bench_memory memory;
	struct bench_write_note *notes;
	size_t unready; /* rounds in which a lease had to be waited for */
	struct bench_figures figures[BENCH_WRITE_SIDES][BENCH_WRITE_FIGURES];
	struct bench_figures change[BENCH_WRITE_FIGURES], wall_ratio, background_s;
};

static uint64_t bench_write_get_share(const struct bench_write *bench)
{
	return bench->bytes / bench->tasks;
}

/* ---- a task ---- */

static void bench_write_give_up(struct bench_write_note *note, const char *why)
{
	snprintf(note->why, sizeof(note->why), "%s", why);
	_exit(1);
}

static void bench_write_all(void *start, uint64_t bytes)
{
	volatile uint64_t *words = start;

	for (uint64_t i = 0; i < bytes / sizeof(*words); i++)
		words[i] = i;
}

static void bench_write_by_kernel(const struct bench_write *bench, struct bench_write_note *note)
{
	uint64_t bytes = bench_write_get_share(bench);
	void *start = bench_memory_map_kernel(BENCH_WRITE_PAGE, bytes, 0);

	if (!start)
		bench_write_give_up(note, strerror(errno));
	bench_write_all(start, bytes);
	munmap(start, bytes);
}

static void bench_write_by_hpz(
	const struct bench_write *bench, struct hpz *hpz, struct bench_write_note *note)
{
	struct hpz_lease_request request = HPZ_LEASE_REQUEST_INIT;
	struct hpz_lease *lease = NULL;
	void *start = NULL;
	size_t length = 0;

	request.size = bench_write_get_share(bench);
	request.page_size = BENCH_WRITE_PAGE;
	request.label = "bench write-seq";
	request.timeout_ms = BENCH_WRITE_WAIT_MS;
	int error = hpz_lease(hpz, &request, &lease);
	if (!error)
		error = hpz_map(hpz, lease, &start, &length);
	if (error)
		bench_write_give_up(note, hpz_strerror(error));
	bench_write_all(start, request.size);
	note->ready_bytes = hpz_lease_get_ready(lease);
	hpz_lease_free(lease);
}

static double bench_write_get_seconds(struct timeval from, struct timeval to)
{
	return (double)(to.tv_sec - from.tv_sec) + (double)(to.tv_usec - from.tv_usec) / 1e6;
}

static void bench_write_become(const struct bench_write *bench, enum bench_write_side side, const int gate[2],
	int ready, struct bench_write_note *note)
{
	struct hpz *hpz = NULL;
	struct rusage before, after;
	char byte = 0;

	/* It ends with us, however we end. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	close(gate[1]);
	if (side == BENCH_WRITE_HPZ && hpz_connect(bench->memory.daemon.socket, &hpz))
		bench_write_give_up(note, "it cannot connect to hpzd");
	bool is_waiting = write(ready, &byte, 1) == 1;
	/* So that whoever counts sees the end when one of the others is dead. */
	close(ready);
	if (!is_waiting || read(gate[0], &byte, 1) != 0)
		bench_write_give_up(note, "it was not told to begin");
	getrusage(RUSAGE_SELF, &before);
	if (side == BENCH_WRITE_HPZ)
		bench_write_by_hpz(bench, hpz, note);
	else
		bench_write_by_kernel(bench, note);
	note->ended_ns = clock_get_ns(CLOCK_MONOTONIC);
	getrusage(RUSAGE_SELF, &after);
	note->stime_s = bench_write_get_seconds(before.ru_stime, after.ru_stime);
	note->utime_s = bench_write_get_seconds(before.ru_utime, after.ru_utime);
	_exit(0); /* its lease ends with it */
}

/* ---- all of them ---- */

/* The gate opens when all of them wait at it; returns the time. 0: they do not. */
static uint64_t bench_write_open_gate(const struct bench_write *bench, int gate[2], int ready[2])
{
	uint64_t waiting = 0;
	char byte;

	ready[1] = close_fd(ready[1]);
	gate[0] = close_fd(gate[0]);
	while (waiting < bench->tasks && read(ready[0], &byte, 1) == 1)
		waiting++;
	uint64_t now_ns = clock_get_ns(CLOCK_MONOTONIC);
	gate[1] = close_fd(gate[1]);
	return waiting == bench->tasks ? now_ns : 0;
}

static int bench_write_start(
	struct bench_write *bench, enum bench_write_side side, pid_t *pids, const int gate[2], int ready)
{
	for (uint64_t i = 0; i < bench->tasks; i++) {
		pids[i] = fork();
		if (pids[i] == 0)
			bench_write_become(bench, side, gate, ready, &bench->notes[i]);
		if (pids[i] < 0)
			return -errno;
	}
	return 0;
}

/* Why one of them did not come to its end, if that is so. */
static int bench_write_collect(struct bench_write *bench, const pid_t *pids)
{
	int r = 0;

	for (uint64_t i = 0; i < bench->tasks && pids[i] > 0; i++) {
		int status = 0;
		waitpid(pids[i], &status, 0);
		const struct bench_write_note *note = &bench->notes[i];
		if (status == 0 && note->ended_ns)
			continue;
		if (r == 0 && !bench_get_signal())
			hpzctl_say("bench write-seq: a task did not come to its end: %s",
				note->why[0]                                        ? note->why
				: WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS ? "others took the pages"
										    : "it died");
		r = -ECHILD;
	}
	return r;
}

static int bench_write_run_side(struct bench_write *bench, enum bench_write_side side, uint64_t *ret_begun_ns)
{
	pid_t pids[BENCH_WRITE_TASKS_MAX] = {0};
	int gate[2] = {-1, -1}, ready[2] = {-1, -1};
	uint64_t begun_ns = 0;
	int r = 0;

	memset(bench->notes, 0, bench->tasks * sizeof(*bench->notes));
	if (pipe2(gate, O_CLOEXEC) < 0 || pipe2(ready, O_CLOEXEC) < 0)
		r = -errno;
	if (r == 0)
		r = bench_write_start(bench, side, pids, gate, ready[1]);
	if (r == 0)
		begun_ns = bench_write_open_gate(bench, gate, ready);
	/* Closed, it lets go those that wait, also after a failure. */
	for (size_t i = 0; i < 2; i++) {
		close_fd(gate[i]);
		close_fd(ready[i]);
	}
	int collected = bench_write_collect(bench, pids);
	if (r < 0)
		hpzctl_say("bench write-seq: tasks cannot be started: %s", strerror(-r));
	*ret_begun_ns = begun_ns;
	return r < 0 ? r : collected;
}

static void bench_write_sum_up(
	const struct bench_write *bench, uint64_t begun_ns, double sums[BENCH_WRITE_FIGURES])
{
	uint64_t ended_ns = begun_ns;

	sums[BENCH_WRITE_STIME] = sums[BENCH_WRITE_UTIME] = 0;
	for (uint64_t i = 0; i < bench->tasks; i++) {
		sums[BENCH_WRITE_STIME] += bench->notes[i].stime_s;
		sums[BENCH_WRITE_UTIME] += bench->notes[i].utime_s;
		ended_ns = MAX(ended_ns, bench->notes[i].ended_ns);
	}
	sums[BENCH_WRITE_WALL] = (double)(ended_ns - begun_ns) / NS_PER_S;
}

/* ---- what the clearing costs ---- */

/* CPU seconds of a process and of those it has waited for; 0: it is gone. */
static double bench_write_get_cpu(pid_t pid)
{
	char path[64], text[1024];
	unsigned long long ticks[4] = {0};

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	_cleanup_file_ FILE *file = fopen(path, "re");
	if (!file || !fgets(text, sizeof(text), file))
		return 0;
	/* The name may have blanks and brackets in it. */
	const char *rest = strrchr(text, ')');
	if (!rest || sscanf(rest + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu %llu %llu",
			     &ticks[0], &ticks[1], &ticks[2], &ticks[3]) != 4)
		return 0;
	return (double)(ticks[0] + ticks[1] + ticks[2] + ticks[3]) / (double)sysconf(_SC_CLK_TCK);
}

/* Of hpzd and its workers; NAN: this kernel does not tell who they are. */
static double bench_write_get_background(const struct bench_write *bench)
{
	char path[64];
	int pid = bench->memory.daemon.pid;
	double seconds = bench_write_get_cpu(pid);

	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", pid, pid);
	_cleanup_file_ FILE *file = fopen(path, "re");
	if (!file)
		return NAN;
	while (fscanf(file, "%d", &pid) == 1)
		seconds += bench_write_get_cpu(pid);
	return seconds;
}

/* ---- rounds ---- */

static int bench_write_measure(
	struct bench_write *bench, enum bench_write_side side, double sums[BENCH_WRITE_FIGURES])
{
	uint64_t begun_ns = 0, ready = 0;

	int r = bench_write_run_side(bench, side, &begun_ns);
	if (r < 0)
		return r;
	bench_write_sum_up(bench, begun_ns, sums);
	if (side == BENCH_WRITE_KERNEL)
		return 0;
	for (uint64_t i = 0; i < bench->tasks; i++)
		ready += bench->notes[i].ready_bytes;
	bench->unready += ready < bench->bytes;
	/* Nobody clears while we measure. */
	if (bench_daemon_settle(&bench->memory.daemon)) {
		hpzctl_say("bench write-seq: what came back does not get clean");
		return -ETIMEDOUT;
	}
	return 0;
}

static int bench_write_run_round(struct bench_write *bench, size_t number)
{
	double sums[BENCH_WRITE_SIDES][BENCH_WRITE_FIGURES];
	double background_s = bench_write_get_background(bench);
	int r = 0;

	for (size_t i = 0; r == 0 && i < BENCH_WRITE_SIDES; i++) {
		enum bench_write_side side = (enum bench_write_side)((number + i) % BENCH_WRITE_SIDES);
		r = bench_get_signal() ? -EINTR : bench_write_measure(bench, side, sums[side]);
	}
	if (r < 0)
		return r;
	if (number < BENCH_WRITE_WARM_UPS) {
		bench->unready = 0;
		return 0;
	}
	for (size_t i = 0; i < BENCH_WRITE_FIGURES; i++) {
		double kernel = sums[BENCH_WRITE_KERNEL][i], hpz = sums[BENCH_WRITE_HPZ][i];
		bench_figures_add(&bench->figures[BENCH_WRITE_KERNEL][i], kernel);
		bench_figures_add(&bench->figures[BENCH_WRITE_HPZ][i], hpz);
		/* A tick may be missing from what takes hardly one. */
		bench_figures_add(&bench->change[i], kernel > 0 ? (hpz - kernel) / kernel * 100 : NAN);
	}
	bench_figures_add(&bench->wall_ratio,
		sums[BENCH_WRITE_HPZ][BENCH_WRITE_WALL] / sums[BENCH_WRITE_KERNEL][BENCH_WRITE_WALL]);
	bench_figures_add(&bench->background_s, bench_write_get_background(bench) - background_s);
	bench->rounds++;
	return 0;
}

static int bench_write_take(struct bench_write *bench)
{
	char stock[SIZE_TEXT + 8], size[SIZE_TEXT];

	if (!host_has_page_size(&bench->host, BENCH_WRITE_PAGE)) {
		hpzctl_say("bench write-seq: the kernel offers no pages of 2 MiB");
		return -ENODEV;
	}
	snprintf(stock, sizeof(stock), "%s*%" PRIu64, size_format_exact(bench_write_get_share(bench), size),
		bench->tasks);
	const struct bench_memory_wish wish = {.name = "write-seq",
		.host = &bench->host,
		.page_size = BENCH_WRITE_PAGE,
		.kernel_bytes = bench->bytes,
		.hpz_bytes = bench->bytes,
		.stock = stock};
	void *notes = mmap(NULL, bench->tasks * sizeof(*bench->notes), PROT_READ | PROT_WRITE,
		MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (notes == MAP_FAILED)
		return -errno;
	bench->notes = notes;
	int r = bench_daemon_prepare(bench->program);
	return r < 0 ? r : bench_memory_open(&wish, &bench->memory);
}

static int bench_write_run(struct bench_write *bench)
{
	int r = bench_write_take(bench);

	for (size_t i = 0; r == 0 && i < bench->rounds_asked + BENCH_WRITE_WARM_UPS; i++)
		r = bench_write_run_round(bench, i);
	return r;
}

static void bench_write_deinit(struct bench_write *bench)
{
	bench_memory_close(&bench->memory);
	if (bench->notes)
		munmap(bench->notes, bench->tasks * sizeof(*bench->notes));
	host_deinit(&bench->host);
	for (size_t i = 0; i < BENCH_WRITE_FIGURES; i++) {
		bench_figures_deinit(&bench->figures[BENCH_WRITE_KERNEL][i]);
		bench_figures_deinit(&bench->figures[BENCH_WRITE_HPZ][i]);
		bench_figures_deinit(&bench->change[i]);
	}
	bench_figures_deinit(&bench->wall_ratio);
	bench_figures_deinit(&bench->background_s);
}

/* ---- what came of it ---- */

static bool bench_write_judge(struct bench_write *bench)
{
	double spread = bench_figures_get_spread(&bench->wall_ratio);

	if (bench->rounds < BENCH_ROUNDS_MIN)
		hpzctl_say("bench write-seq: a median of so few rounds says little: --rounds %d at least",
			BENCH_ROUNDS_MIN);
	else if (bench->unready)
		hpzctl_say("bench write-seq: in %zu rounds a lease was not clean when it was asked for",
			bench->unready);
	else if (spread > BENCH_SPREAD_MAX)
		hpzctl_say(
			"bench write-seq: the middle half of the rounds spreads over %.0f %%: the machine is "
			"busy",
			spread * 100);
	else
		return true;
	return false;
}

static void bench_write_print_side(
	struct output_json *json, const char *name, struct bench_figures figures[BENCH_WRITE_FIGURES])
{
	char key[32];

	output_json_open_object(json, name);
	for (size_t i = 0; i < BENCH_WRITE_FIGURES; i++) {
		snprintf(key, sizeof(key), "%s_s", bench_write_names[i]);
		output_json_decimal(json, key, bench_figures_get_median(&figures[i]), 6);
		snprintf(key, sizeof(key), "%s_stddev_s", bench_write_names[i]);
		output_json_decimal(json, key, bench_figures_get_deviation(&figures[i]), 6);
		snprintf(key, sizeof(key), "%s_spread", bench_write_names[i]);
		output_json_decimal(json, key, bench_figures_get_spread(&figures[i]), 3);
	}
	output_json_close(json);
}

static void bench_write_print_changes(
	struct output_json *json, struct bench_write *bench, const char *name, size_t quarter)
{
	char key[32];

	output_json_open_object(json, name);
	for (size_t i = 0; i < BENCH_WRITE_FIGURES; i++) {
		snprintf(key, sizeof(key), "%s_s", bench_write_names[i]);
		output_json_decimal(json, key,
			quarter == 2 ? bench_figures_get_median(&bench->change[i])
				     : bench_figures_get_quarter(&bench->change[i], quarter),
			2);
	}
	output_json_close(json);
}

static void bench_write_print_json(struct bench_write *bench, bool is_complete)
{
	struct output_json json;

	output_json_init(&json, stdout);
	output_json_open_object(&json, NULL);
	output_json_text(&json, "schema", "hpz-bench-write-seq-1");
	output_json_number(&json, "tasks", bench->tasks);
	output_json_number(&json, "cpus", (uint64_t)sysconf(_SC_NPROCESSORS_ONLN));
	output_json_number(&json, "bytes", bench->bytes);
	output_json_number(&json, "page_size", BENCH_WRITE_PAGE);
	bench_write_print_side(&json, "kernel", bench->figures[BENCH_WRITE_KERNEL]);
	bench_write_print_side(&json, "hpz", bench->figures[BENCH_WRITE_HPZ]);
	bench_write_print_changes(&json, bench, "change_pct", 2);
	bench_write_print_changes(&json, bench, "change_pct_low", 1);
	bench_write_print_changes(&json, bench, "change_pct_high", 3);
	output_json_decimal(&json, "background_s", bench_figures_get_mean(&bench->background_s), 4);
	output_json_number(&json, "rounds", bench->rounds);
	output_json_decimal(&json, "spread", bench_figures_get_spread(&bench->wall_ratio), 3);
	output_json_bool(&json, "complete", is_complete);
	output_json_close(&json);
}

static void bench_write_print_text(struct bench_write *bench)
{
	static const char *const headings[] = {
		"TIME", ">KERNEL S", ">SPREAD", ">HPZ S", ">SPREAD", ">CHANGE", ">MIDDLE HALF"};
	struct output_table table;
	char size[SIZE_TEXT];

	printf("%" PRIu64 " task%s write %s together, on %ld CPUs, medians of %" PRIu64 " rounds\n",
		bench->tasks, bench->tasks == 1 ? "" : "s", size_format(bench->bytes, size),
		sysconf(_SC_NPROCESSORS_ONLN), bench->rounds);
	output_table_init(&table, headings, ARRAY_SIZE(headings));
	for (size_t i = 0; i < BENCH_WRITE_FIGURES; i++) {
		output_table_add(&table, "%s", bench_write_names[i]);
		for (size_t side = 0; side < BENCH_WRITE_SIDES; side++) {
			output_table_add(&table, "%.4f", bench_figures_get_median(&bench->figures[side][i]));
			output_table_add(
				&table, "%.0f %%", bench_figures_get_spread(&bench->figures[side][i]) * 100);
		}
		output_table_add(&table, "%+.1f %%", bench_figures_get_median(&bench->change[i]));
		output_table_add(&table, "%+.1f to %+.1f", bench_figures_get_quarter(&bench->change[i], 1),
			bench_figures_get_quarter(&bench->change[i], 3));
	}
	output_table_print(&table, stdout);
	output_table_deinit(&table);
	printf("clearing it again, in the background: %.4f s of CPU time a round\n",
		bench_figures_get_mean(&bench->background_s));
}

/* ---- start ---- */

/* 0: as much as the machine has some times over. The same for each task, in whole pages. */
static void bench_write_choose_size(struct bench_write *bench)
{
	uint64_t most = size_floor_pow2(bench_get_available(&bench->host) / BENCH_WRITE_PART);
	uint64_t unit = bench->tasks * BENCH_WRITE_PAGE;

	if (!bench->bytes)
		bench->bytes = MIN(BENCH_WRITE_SIZE, most);
	bench->bytes = MAX(bench->bytes / unit * unit, unit);
}

int bench_write_seq(struct hpzctl *ctl, int argc, char **argv)
{
	static struct bench_write bench;
	uint64_t tasks = MIN(bench_count_cpus(), BENCH_WRITE_TASKS_MAX), bytes = 0,
		 rounds = BENCH_WRITE_ROUNDS;
	const char *program = NULL;
	const struct options_row rows[] = {
		{"tasks", OPTIONS_COUNT, &tasks, "N", "how many write at the same time (default: one a CPU)"},
		{"size", OPTIONS_SIZE, &bytes, "SIZE",
			"of all of it (default: 1G, or an eighth of what there is)"},
		{"rounds", OPTIONS_COUNT, &rounds, "N", "how many count (default: 10)"},
		{"hpzd", OPTIONS_TEXT, &program, "FILE",
			"the hpzd to lease from (default: the installed one)"},
	};
	char **operands;
	int count;

	int status = options_parse(ctl, rows, ARRAY_SIZE(rows), argc, argv, false, &operands, &count);
	if (status == OPTIONS_GO)
		status = options_refuse_operands(ctl, operands, count);
	if (status != OPTIONS_GO)
		return status;
	if (rounds > BENCH_ROUNDS_MAX || tasks > BENCH_WRITE_TASKS_MAX)
		return hpzctl_fail_usage(
			ctl, "--rounds is at most %d, --tasks %d", BENCH_ROUNDS_MAX, BENCH_WRITE_TASKS_MAX);
	bench = (struct bench_write){
		.tasks = tasks, .bytes = bytes, .rounds_asked = rounds, .program = program};
	if (host_init(&bench.host, NULL) < 0) {
		hpzctl_say("bench write-seq: /sys cannot be read");
		return HPZCTL_FAILED;
	}
	bench_write_choose_size(&bench);
	bench_catch_signals();
	int r = bench_write_run(&bench);
	if (r == 0) {
		bool is_complete = bench_write_judge(&bench);
		if (ctl->json)
			bench_write_print_json(&bench, is_complete);
		else
			bench_write_print_text(&bench);
		status = is_complete ? HPZCTL_DONE : HPZCTL_LATER;
	} else {
		status = r == -ENOSPC ? HPZCTL_LATER : HPZCTL_FAILED;
	}
	bench_write_deinit(&bench);
	if (bench_get_signal())
		bench_die_of_signal();
	return status;
}
