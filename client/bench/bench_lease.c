/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * bench_lease.c - what a lease and a release cost, against the bare floor: one packet there and one with a
 * descriptor back, between two processes.
 *
 * Each round measures everything, kind by kind: floor, lease and release on all CPUs, then the same with
 * everything on one, for several sizes and several pools. Each kind has a first few pairs that do not count,
 * so that no row pays for caches that another daemon has filled. What the releases set going is over before
 * the next few pairs: it is not what anybody waits for. Only the clients that lease at the same time, at the
 * end, meet all of it. The pools are simulated (bench_daemon.h): what is missing is the look at the kernel's
 * counts before a hand-over.
 */
#include "bench.h"

#include <inttypes.h>
#include <math.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "bench_daemon.h"
#include "bench_pages.h"
#include "frame.h"
#include "options.h"
#include "output.h"
#include "size.h"

#define BENCH_LEASE_ROUNDS  20
#define BENCH_LEASE_PAIRS   25  /* of each kind in a round: their median is what the round says */
#define BENCH_LEASE_BATCH   5   /* in a row: they are over before hpzd begins to take back the first */
#define BENCH_LEASE_LOAD    640 /* leases of all clients together */
#define BENCH_LEASE_BULK    64  /* leases in one exchange */
#define BENCH_LEASE_WAIT_MS 60000
#define BENCH_LEASE_SAMPLES (BENCH_ROUNDS_MAX * BENCH_LEASE_PAIRS + BENCH_LEASE_BATCH)

#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)

_Static_assert(BENCH_LEASE_PAIRS % BENCH_LEASE_BATCH == 0, "whole batches");

static const uint64_t bench_lease_sizes[] = {2 * MIB, 16 * MIB, 128 * MIB, GIB, 8 * GIB};
static const unsigned bench_lease_segments[] = {10, 100, 1000, 10000};
#define BENCH_LEASE_CLIENTS_MAX 64
static const unsigned bench_lease_clients[] = {1, 2, 4, 8, 16, 32, BENCH_LEASE_CLIENTS_MAX};

#define SIZES    ARRAY_SIZE(bench_lease_sizes)
#define SEGMENTS ARRAY_SIZE(bench_lease_segments)
#define CLIENTS  ARRAY_SIZE(bench_lease_clients)

/* The other side of the floor. */
struct bench_echo {
	int sock;
	pid_t pid;
};

/* Pairs of one kind. */
struct bench_series {
	size_t count;
	double *floor_us, *lease_us, *release_us; /* of each pair */
	size_t rounds;
	double ratio[BENCH_ROUNDS_MAX]; /* of each round: the medians' */
};

struct bench_lease {
	uint64_t rounds_asked, rounds;
	const char *program;
	int cpu; /* everything is on it while that is measured */
	cpu_set_t all;
	struct bench_daemon open, mixed, pools[SEGMENTS];
	struct bench_echo open_echo, pinned_echo;
	struct bench_series unpinned, pinned, by_size[SIZES], by_segments[SEGMENTS];
	double bulk_us[BENCH_ROUNDS_MAX]; /* of each lease, by round */
	double client_p50[CLIENTS], client_p99[CLIENTS];
};

static double bench_lease_get_us(uint64_t since_ns)
{
	return (double)(clock_get_ns(CLOCK_MONOTONIC) - since_ns) / 1000.0;
}

/* ---- the floor ---- */

static void bench_echo_serve(int sock, int fd)
{
	char packet[64];
	size_t length;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	while (frame_receive(sock, packet, sizeof(packet), &length, NULL, 0, NULL) == FRAME_OK)
		frame_send(sock, packet, length, &fd, 1);
	_exit(0);
}

static int bench_lease_pin(pid_t pid, int cpu)
{
	cpu_set_t cpus;

	CPU_ZERO(&cpus);
	CPU_SET((size_t)cpu, &cpus);
	return sched_setaffinity(pid, sizeof(cpus), &cpus) < 0 ? -errno : 0;
}

static int bench_echo_start(struct bench_echo *echo, int cpu)
{
	int socks[2];
	_cleanup_fd_ int fd = memfd_create("floor", MFD_CLOEXEC);

	if (fd < 0 || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, socks) < 0)
		return -errno;
	echo->sock = socks[0];
	echo->pid = fork();
	if (echo->pid == 0) {
		close(socks[0]);
		bench_echo_serve(socks[1], fd);
	}
	int error = echo->pid < 0 ? -errno : 0;
	close(socks[1]);
	return error < 0 ? error : cpu < 0 ? 0 : bench_lease_pin(echo->pid, cpu);
}

static void bench_echo_stop(struct bench_echo *echo)
{
	echo->sock = close_fd(echo->sock);
	if (echo->pid <= 0)
		return;
	kill(echo->pid, SIGKILL);
	waitpid(echo->pid, NULL, 0);
}

/* Microseconds; NAN: it failed. */
static double bench_echo_measure(const struct bench_echo *echo)
{
	char packet[8] = "floor";
	size_t length, count = 0;
	int fd;
	uint64_t start_ns = clock_get_ns(CLOCK_MONOTONIC);

	if (frame_send(echo->sock, packet, sizeof(packet), NULL, 0) < 0 ||
		frame_receive(echo->sock, packet, sizeof(packet), &length, &fd, 1, &count) != FRAME_OK)
		return NAN;
	double us = bench_lease_get_us(start_ns);
	if (count == 1)
		close(fd);
	return us;
}

/* ---- a lease and its release ---- */

/* Both in microseconds. An error of the library. */
static int bench_lease_measure(struct hpz *hpz, uint64_t bytes, double *ret_lease_us, double *ret_release_us)
{
	struct hpz_lease_request request = HPZ_LEASE_REQUEST_INIT;
	struct hpz_lease *lease = NULL;

	request.size = bytes;
	request.label = "bench lease";
	request.timeout_ms = BENCH_LEASE_WAIT_MS;
	uint64_t start_ns = clock_get_ns(CLOCK_MONOTONIC);
	int error = hpz_lease(hpz, &request, &lease);
	if (error)
		return error;
	*ret_lease_us = bench_lease_get_us(start_ns);
	uint64_t id = hpz_lease_get_id(lease);
	hpz_lease_free(lease);
	start_ns = clock_get_ns(CLOCK_MONOTONIC);
	error = hpz_release(hpz, id, 0, 0);
	*ret_release_us = bench_lease_get_us(start_ns);
	return error;
}

/* A few pairs, and what follows them. */
static int bench_lease_run_batch(const struct bench_echo *echo, const struct bench_daemon *daemon,
	uint64_t bytes, struct bench_series *series)
{
	int error = HPZ_OK;

	for (size_t i = 0; !error && i < BENCH_LEASE_BATCH; i++) {
		size_t at = series->count + i;
		series->floor_us[at] = bench_echo_measure(echo);
		error = isnan(series->floor_us[at]) ? HPZ_ERR_SYSTEM
						    : bench_lease_measure(daemon->hpz, bytes,
							      &series->lease_us[at], &series->release_us[at]);
	}
	return error ? error : bench_daemon_settle(daemon);
}

/* The pairs of one kind that a round has. */
static int bench_lease_run_kind(const struct bench_echo *echo, const struct bench_daemon *daemon,
	uint64_t bytes, struct bench_series *series)
{
	int error = bench_lease_run_batch(echo, daemon, bytes, series); /* written over by the next */

	for (size_t i = 0; !error && i < BENCH_LEASE_PAIRS; i += BENCH_LEASE_BATCH) {
		error = bench_lease_run_batch(echo, daemon, bytes, series);
		series->count += error ? 0 : BENCH_LEASE_BATCH;
	}
	return error;
}

/* Many in one exchange, and for each of them what it takes. */
static int bench_lease_measure_bulk(const struct bench_daemon *daemon, double *ret_us_each)
{
	struct hpz_lease_request request = HPZ_LEASE_REQUEST_INIT;
	struct hpz_lease *leases[BENCH_LEASE_BULK];

	request.size = bench_lease_sizes[0];
	request.label = "bench lease";
	request.timeout_ms = BENCH_LEASE_WAIT_MS;
	uint64_t start_ns = clock_get_ns(CLOCK_MONOTONIC);
	int error = hpz_lease_many(daemon->hpz, &request, ARRAY_SIZE(leases), leases);
	if (error)
		return error;
	*ret_us_each = bench_lease_get_us(start_ns) / ARRAY_SIZE(leases);
	for (size_t i = 0; i < ARRAY_SIZE(leases); i++) {
		uint64_t id = hpz_lease_get_id(leases[i]);
		hpz_lease_free(leases[i]);
		if (!error)
			error = hpz_release(daemon->hpz, id, 0, 0);
	}
	return error ? error : bench_daemon_settle(daemon);
}

/* ---- rounds ---- */

static int bench_series_init(struct bench_series *series)
{
	double **arrays[] = {&series->floor_us, &series->lease_us, &series->release_us};

	for (size_t i = 0; i < ARRAY_SIZE(arrays); i++) {
		*arrays[i] = calloc(BENCH_LEASE_SAMPLES, sizeof(double));
		if (!*arrays[i])
			return -ENOMEM;
	}
	return 0;
}

static void bench_series_deinit(struct bench_series *series)
{
	free(series->floor_us);
	free(series->lease_us);
	free(series->release_us);
}

/* What its last pairs say together. */
static void bench_series_close_round(struct bench_series *series, size_t pairs)
{
	double floors[BENCH_LEASE_PAIRS], leases[BENCH_LEASE_PAIRS];
	size_t first = series->count - pairs;

	memcpy(floors, series->floor_us + first, pairs * sizeof(*floors));
	memcpy(leases, series->lease_us + first, pairs * sizeof(*leases));
	series->ratio[series->rounds++] = bench_get_median(leases, pairs) / bench_get_median(floors, pairs);
}

static int bench_lease_run_round(struct bench_lease *bench)
{
	sched_setaffinity(0, sizeof(bench->all), &bench->all);
	int error =
		bench_lease_run_kind(&bench->open_echo, &bench->open, bench_lease_sizes[0], &bench->unpinned);
	if (!error)
		error = bench_lease_measure_bulk(&bench->open, &bench->bulk_us[bench->rounds]);
	bench_lease_pin(0, bench->cpu);
	if (!error)
		error = bench_lease_run_kind(
			&bench->pinned_echo, &bench->mixed, bench_lease_sizes[0], &bench->pinned);
	for (size_t k = 0; !error && k < SIZES; k++)
		error = bench_lease_run_kind(
			&bench->pinned_echo, &bench->mixed, bench_lease_sizes[k], &bench->by_size[k]);
	for (size_t k = 0; !error && k < SEGMENTS; k++)
		error = bench_lease_run_kind(
			&bench->pinned_echo, &bench->pools[k], bench_lease_sizes[0], &bench->by_segments[k]);
	if (error)
		return error;
	bench_series_close_round(&bench->unpinned, BENCH_LEASE_PAIRS);
	bench_series_close_round(&bench->pinned, BENCH_LEASE_PAIRS);
	bench->rounds++;
	return HPZ_OK;
}

/* ---- many at the same time ---- */

struct bench_load {
	unsigned clients;
	size_t each;
	int gate[2]; /* closed when all have connected */
	int ready[2];
	double *lease_us; /* shared; of all */
};

static void bench_load_be_client(
	const struct bench_lease *bench, const struct bench_load *load, unsigned number)
{
	struct hpz *hpz = NULL;
	double release_us;
	char byte = 0;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	close(load->gate[1]);
	int error = hpz_connect(bench->open.socket, &hpz);
	if (write(load->ready[1], &byte, 1) != 1 || read(load->gate[0], &byte, 1) != 0)
		error = HPZ_ERR_SYSTEM;
	for (size_t i = 0; !error && i < load->each; i++)
		error = bench_lease_measure(
			hpz, bench_lease_sizes[0], &load->lease_us[number * load->each + i], &release_us);
	hpz_close(hpz);
	_exit(error ? 1 : 0);
}

/* How many of them came to the end. */
static unsigned bench_load_run(const struct bench_lease *bench, struct bench_load *load)
{
	unsigned started = 0, good = 0;
	pid_t pids[BENCH_LEASE_CLIENTS_MAX];
	char byte;

	for (pid_t pid = 1; started < load->clients && pid > 0; started += pid > 0) {
		pid = pids[started] = fork();
		if (pid == 0)
			bench_load_be_client(bench, load, started);
	}
	load->ready[1] = close_fd(load->ready[1]);
	load->gate[0] = close_fd(load->gate[0]);
	for (unsigned i = 0; i < started && read(load->ready[0], &byte, 1) == 1; i++)
		;
	load->gate[1] = close_fd(load->gate[1]);
	for (unsigned i = 0; i < started; i++) {
		int status = 1;
		/* Not an hpzd that has died: bench_daemon_stop() would then signal a process that is none. */
		if (waitpid(pids[i], &status, 0) > 0 && status == 0)
			good++;
	}
	return good;
}

static int bench_load_measure(struct bench_lease *bench, size_t index)
{
	struct bench_load load = {.clients = bench_lease_clients[index], .gate = {-1, -1}, .ready = {-1, -1}};
	int r = -ECHILD;

	load.each = MAX(BENCH_LEASE_LOAD / load.clients, 1u);
	size_t count = load.each * load.clients;
	load.lease_us =
		mmap(NULL, count * sizeof(double), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (load.lease_us == MAP_FAILED)
		return -ENOMEM;
	if (pipe2(load.gate, O_CLOEXEC) == 0 && pipe2(load.ready, O_CLOEXEC) == 0 &&
		bench_load_run(bench, &load) == load.clients) {
		double median = bench_get_median(load.lease_us, count);
		bench->client_p50[index] = median;
		bench->client_p99[index] = bench_get_percentile(load.lease_us, count, 99);
		r = 0;
	}
	for (size_t i = 0; i < 2; i++) {
		close_fd(load.gate[i]);
		close_fd(load.ready[i]);
	}
	munmap(load.lease_us, count * sizeof(double));
	return r;
}

static int bench_lease_run_loads(struct bench_lease *bench)
{
	sched_setaffinity(0, sizeof(bench->all), &bench->all);
	for (size_t i = 0; i < CLIENTS && !bench_get_signal(); i++) {
		if (bench_load_measure(bench, i) < 0 || bench_daemon_settle(&bench->open)) {
			hpzctl_say("bench lease: %u clients at the same time: not all came to the end",
				bench_lease_clients[i]);
			return -ECHILD;
		}
	}
	return 0;
}

/* ---- start and stop ---- */

/* The last one we may use: the first has most of the interrupts. */
static int bench_lease_choose_cpu(const cpu_set_t *all)
{
	int chosen = 0;

	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
		chosen = CPU_ISSET((size_t)cpu, all) ? cpu : chosen;
	return chosen;
}

static int bench_lease_start_daemons(struct bench_lease *bench)
{
	struct bench_daemon_wish open = {"open", 20000 * MIB, "2M*rest", -1};
	struct bench_daemon_wish mixed = {"mixed", 300 * GIB, "8G*16 1G*16 128M*16 16M*16 2M*16", bench->cpu};
	int r = bench_daemon_start(&open, &bench->open);

	if (r == 0)
		r = bench_daemon_start(&mixed, &bench->mixed);
	for (size_t i = 0; r == 0 && i < SEGMENTS; i++) {
		char name[BENCH_DAEMON_NAME];
		snprintf(name, sizeof(name), "pool%u", bench_lease_segments[i]);
		struct bench_daemon_wish wish = {
			name, bench_lease_segments[i] * bench_lease_sizes[0], "2M*rest", bench->cpu};
		r = bench_daemon_start(&wish, &bench->pools[i]);
	}
	return r;
}

static int bench_lease_start(struct bench_lease *bench)
{
	struct bench_series *series[] = {&bench->unpinned, &bench->pinned};
	int r = 0;

	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(series); i++)
		r = bench_series_init(series[i]);
	for (size_t i = 0; r == 0 && i < SIZES; i++)
		r = bench_series_init(&bench->by_size[i]);
	for (size_t i = 0; r == 0 && i < SEGMENTS; i++)
		r = bench_series_init(&bench->by_segments[i]);
	if (r == 0)
		r = bench_echo_start(&bench->open_echo, -1);
	if (r == 0)
		r = bench_echo_start(&bench->pinned_echo, bench->cpu);
	if (r < 0) {
		hpzctl_say("bench lease: cannot begin: %s", strerror(-r));
		return r;
	}
	r = bench_daemon_prepare(bench->program);
	return r < 0 ? r : bench_lease_start_daemons(bench);
}

static void bench_lease_stop(struct bench_lease *bench)
{
	bench_daemon_stop(&bench->open);
	bench_daemon_stop(&bench->mixed);
	for (size_t i = 0; i < SEGMENTS; i++) {
		bench_daemon_stop(&bench->pools[i]);
		bench_series_deinit(&bench->by_segments[i]);
	}
	for (size_t i = 0; i < SIZES; i++)
		bench_series_deinit(&bench->by_size[i]);
	bench_series_deinit(&bench->unpinned);
	bench_series_deinit(&bench->pinned);
	bench_echo_stop(&bench->open_echo);
	bench_echo_stop(&bench->pinned_echo);
}

/* ---- what came of it ---- */

static double bench_lease_get_p50(struct bench_series *series)
{
	return bench_get_median(series->lease_us, series->count);
}

struct bench_lease_result {
	double floor_us, lease_p50, lease_p99, release_p50, release_p99, ratio;
	double pinned_floor_us, pinned_lease_us;
	double bulk_us;
	double size_p50[SIZES], segments_p50[SEGMENTS];
	bool is_complete;
};

/* Says what keeps the figures from counting. */
static bool bench_lease_is_complete(struct bench_lease *bench)
{
	struct bench_series *series[] = {&bench->unpinned, &bench->pinned};
	bool is_complete = bench->rounds >= BENCH_ROUNDS_MIN;

	if (!is_complete)
		hpzctl_say("bench lease: %" PRIu64
			   " rounds are too few to mean anything: --rounds %d at least",
			bench->rounds, BENCH_ROUNDS_MIN);
	for (size_t i = 0; i < ARRAY_SIZE(series); i++) {
		bench_get_median(series[i]->ratio, series[i]->rounds); /* sorts */
		double spread = bench_get_spread(series[i]->ratio, series[i]->rounds);
		if (spread <= BENCH_SPREAD_MAX)
			continue;
		hpzctl_say(
			"bench lease: the middle half of the rounds%s spreads over %.0f %%: the machine is "
			"busy",
			i ? " on one CPU" : "", spread * 100);
		is_complete = false;
	}
	return is_complete;
}

static void bench_lease_conclude(struct bench_lease *bench, struct bench_lease_result *result)
{
	struct bench_series *open = &bench->unpinned, *pinned = &bench->pinned;

	result->is_complete = bench_lease_is_complete(bench);
	result->floor_us = bench_get_median(open->floor_us, open->count);
	result->lease_p50 = bench_lease_get_p50(open);
	result->lease_p99 = bench_get_percentile(open->lease_us, open->count, 99);
	result->release_p50 = bench_get_median(open->release_us, open->count);
	result->release_p99 = bench_get_percentile(open->release_us, open->count, 99);
	result->ratio = bench_get_median(open->ratio, open->rounds);
	result->bulk_us = bench_get_median(bench->bulk_us, bench->rounds);
	result->pinned_floor_us = bench_get_median(pinned->floor_us, pinned->count);
	result->pinned_lease_us = bench_lease_get_p50(pinned);
	for (size_t i = 0; i < SIZES; i++)
		result->size_p50[i] = bench_lease_get_p50(&bench->by_size[i]);
	for (size_t i = 0; i < SEGMENTS; i++)
		result->segments_p50[i] = bench_lease_get_p50(&bench->by_segments[i]);
}

static void bench_lease_print_percentiles(struct output_json *json, double p50, double p99)
{
	output_json_decimal(json, "p50", p50, 2);
	output_json_decimal(json, "p99", p99, 2);
}

static void bench_lease_print_rows(
	struct output_json *json, const struct bench_lease *bench, const struct bench_lease_result *result)
{
	output_json_open_list(json, "by_size");
	for (size_t i = 0; i < SIZES; i++) {
		output_json_open_object(json, NULL);
		output_json_number(json, "size", bench_lease_sizes[i]);
		output_json_decimal(json, "p50", result->size_p50[i], 2);
		output_json_close(json);
	}
	output_json_close(json);
	output_json_open_list(json, "by_segments");
	for (size_t i = 0; i < SEGMENTS; i++) {
		output_json_open_object(json, NULL);
		output_json_number(json, "segments", bench_lease_segments[i]);
		output_json_decimal(json, "p50", result->segments_p50[i], 2);
		output_json_close(json);
	}
	output_json_close(json);
	output_json_open_list(json, "by_clients");
	for (size_t i = 0; i < CLIENTS; i++) {
		output_json_open_object(json, NULL);
		output_json_number(json, "clients", bench_lease_clients[i]);
		bench_lease_print_percentiles(json, bench->client_p50[i], bench->client_p99[i]);
		output_json_close(json);
	}
	output_json_close(json);
}

static void bench_lease_print_json(const struct bench_lease *bench, const struct bench_lease_result *result)
{
	struct output_json json;

	output_json_init(&json, stdout);
	output_json_open_object(&json, NULL);
	output_json_text(&json, "schema", "hpz-bench-lease-1");
	output_json_decimal(&json, "floor_us", result->floor_us, 2);
	output_json_open_object(&json, "lease_us");
	bench_lease_print_percentiles(&json, result->lease_p50, result->lease_p99);
	output_json_close(&json);
	output_json_open_object(&json, "release_us");
	bench_lease_print_percentiles(&json, result->release_p50, result->release_p99);
	output_json_close(&json);
	output_json_decimal(&json, "ratio", result->ratio, 3);
	output_json_open_object(&json, "pinned");
	output_json_decimal(&json, "floor_us", result->pinned_floor_us, 2);
	output_json_decimal(&json, "lease_us", result->pinned_lease_us, 2);
	output_json_decimal(&json, "added_us", result->pinned_lease_us - result->pinned_floor_us, 2);
	output_json_close(&json);
	bench_lease_print_rows(&json, bench, result);
	output_json_open_object(&json, "bulk");
	output_json_number(&json, "count", BENCH_LEASE_BULK);
	output_json_decimal(&json, "us_each", result->bulk_us, 2);
	output_json_close(&json);
	output_json_close(&json);
}

static void bench_lease_print_text(const struct bench_lease *bench, const struct bench_lease_result *result)
{
	char size[SIZE_TEXT];

	printf("floor %.1f us, lease %.1f us (99 %%: %.1f), release %.1f us (99 %%: %.1f): %.2f times the "
	       "floor\n",
		result->floor_us, result->lease_p50, result->lease_p99, result->release_p50,
		result->release_p99, result->ratio);
	printf("on one CPU: floor %.1f us, lease %.1f us: %.1f us more\n", result->pinned_floor_us,
		result->pinned_lease_us, result->pinned_lease_us - result->pinned_floor_us);
	for (size_t i = 0; i < SIZES; i++)
		printf("  %s: %.1f us\n", size_format_exact(bench_lease_sizes[i], size), result->size_p50[i]);
	for (size_t i = 0; i < SEGMENTS; i++)
		printf("  of %u segments: %.1f us\n", bench_lease_segments[i], result->segments_p50[i]);
	printf("%d in one exchange: %.1f us each\n", BENCH_LEASE_BULK, result->bulk_us);
	for (size_t i = 0; i < CLIENTS; i++)
		printf("%u client%s: %.1f us (99 %%: %.1f)\n", bench_lease_clients[i],
			bench_lease_clients[i] == 1 ? "" : "s at the same time", bench->client_p50[i],
			bench->client_p99[i]);
}

static int bench_lease_print(const struct hpzctl *ctl, struct bench_lease *bench)
{
	struct bench_lease_result result;

	bench_lease_conclude(bench, &result);
	if (ctl->json)
		bench_lease_print_json(bench, &result);
	else
		bench_lease_print_text(bench, &result);
	return result.is_complete ? HPZCTL_DONE : HPZCTL_LATER;
}

static int bench_lease_run(const struct hpzctl *ctl, struct bench_lease *bench)
{
	if (bench_lease_start(bench) < 0)
		return HPZCTL_FAILED;
	int error = HPZ_OK;
	while (!error && bench->rounds < bench->rounds_asked && !bench_get_signal())
		error = bench_lease_run_round(bench);
	if (error && !bench_get_signal())
		hpzctl_say("bench lease: %s", hpz_strerror(error));
	if (error)
		return HPZCTL_FAILED;
	if (bench_lease_run_loads(bench) < 0)
		return HPZCTL_FAILED;
	return bench_get_signal() ? HPZCTL_FAILED : bench_lease_print(ctl, bench);
}

int bench_lease(struct hpzctl *ctl, int argc, char **argv)
{
	static struct bench_lease bench;
	uint64_t rounds = BENCH_LEASE_ROUNDS;
	const char *program = NULL;
	const struct options_row rows[] = {
		{"rounds", OPTIONS_COUNT, &rounds, "N", "how often (default: 20)"},
		{"hpzd", OPTIONS_TEXT, &program, "FILE", "the hpzd to measure (default: the installed one)"},
	};
	char **operands;
	int count;

	int status = options_parse(ctl, rows, ARRAY_SIZE(rows), argc, argv, false, &operands, &count);
	if (status == OPTIONS_GO)
		status = options_refuse_operands(ctl, operands, count);
	if (status != OPTIONS_GO)
		return status;
	if (rounds > BENCH_ROUNDS_MAX)
		return hpzctl_fail_usage(ctl, "--rounds is at most %d", BENCH_ROUNDS_MAX);
	bench = (struct bench_lease){.rounds_asked = rounds,
		.program = program,
		.open_echo = {.sock = -1},
		.pinned_echo = {.sock = -1}};
	sched_getaffinity(0, sizeof(bench.all), &bench.all);
	bench.cpu = bench_lease_choose_cpu(&bench.all);
	bench_catch_signals();
	status = bench_lease_run(ctl, &bench);
	bench_lease_stop(&bench);
	if (bench_get_signal())
		bench_die_of_signal();
	return status;
}
