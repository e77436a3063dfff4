/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * bench_recycle.c - how long a running hpzd takes from the release of a lease until its memory is clean,
 * against the time that a bare program needs for it with the same method and as many threads: map, clear, let
 * go (the floor). Each round leases the same size, clears it here, with and without the mapping, lets go of
 * it and releases it. All clear the same warm pages, one after the other, so that a disturbance meets all.
 */
#include "bench.h"

#include <inttypes.h>
#include <pthread.h>
#include <sys/mman.h>

#include "options.h"
#include "output.h"
#include "size.h"
#include "zero.h"

#define BENCH_RECYCLE_GIB        8
#define BENCH_RECYCLE_WARM_UPS   1 /* hpzd measures its methods on the first large segment that comes back */
#define BENCH_RECYCLE_ROUNDS     5
#define BENCH_RECYCLE_SPREAD_MAX 0.2
#define BENCH_RECYCLE_THREADS    64
#define BENCH_RECYCLE_WAIT_MS    120000
#define BENCH_RECYCLE_WINDOW     ((uint64_t)512 << 20) /* a worker maps so much at a time */

struct bench_recycle {
	uint64_t bytes, rounds_asked;
	struct hpz *hpz;
	unsigned workers;
	const struct zero_method *method;
	size_t rounds;
	double recycle_s[BENCH_ROUNDS_MAX], floor_s[BENCH_ROUNDS_MAX], mapped_s[BENCH_ROUNDS_MAX],
		ratio[BENCH_ROUNDS_MAX];
};

/* ---- the floor ---- */

struct bench_recycle_thread {
	pthread_t thread;
	pthread_barrier_t *barrier;
	const struct zero_method *method;
	int fd; /* of the lease; -1: it is mapped already, at `memory` */
	char *memory;
	uint64_t offset, bytes;
};

static void bench_recycle_clear_window(const struct zero_method *method, char *start, uint64_t bytes)
{
	for (uint64_t at = 0; at < bytes; at += ZERO_BATCH)
		method->clear(start + at, MIN(ZERO_BATCH, bytes - at));
	zero_fence();
}

static void bench_recycle_map_and_clear(const struct bench_recycle_thread *thread)
{
	for (uint64_t at = 0; at < thread->bytes; at += BENCH_RECYCLE_WINDOW) {
		uint64_t bytes = MIN(BENCH_RECYCLE_WINDOW, thread->bytes - at);
		char *start = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, thread->fd,
			(off_t)(thread->offset + at));
		if (start == MAP_FAILED) {
			hpzctl_say("bench recycle: cannot map the lease: %s", strerror(errno));
			exit(HPZCTL_FAILED);
		}
		bench_recycle_clear_window(thread->method, start, bytes);
		munmap(start, bytes);
	}
}

static void *bench_recycle_clear(void *user)
{
	const struct bench_recycle_thread *thread = user;

	pthread_barrier_wait(thread->barrier);
	if (thread->fd < 0)
		bench_recycle_clear_window(thread->method, thread->memory + thread->offset, thread->bytes);
	else
		bench_recycle_map_and_clear(thread);
	pthread_barrier_wait(thread->barrier);
	return NULL;
}

/* Seconds; fd as in struct bench_recycle_thread. */
static double bench_recycle_measure(const struct bench_recycle *bench, int fd, char *memory)
{
	struct bench_recycle_thread threads[BENCH_RECYCLE_THREADS];
	pthread_barrier_t barrier;
	uint64_t share = bench->bytes / bench->workers / ZERO_BATCH * ZERO_BATCH;

	pthread_barrier_init(&barrier, NULL, bench->workers + 1);
	for (unsigned i = 0; i < bench->workers; i++) {
		threads[i] = (struct bench_recycle_thread){.barrier = &barrier,
			.method = bench->method,
			.fd = fd,
			.memory = memory,
			.offset = i * share,
			.bytes = i + 1 < bench->workers ? share : bench->bytes - i * share};
		if (pthread_create(&threads[i].thread, NULL, bench_recycle_clear, &threads[i]) != 0) {
			hpzctl_say("bench recycle: no thread");
			exit(HPZCTL_FAILED); /* those that wait at the barrier go with us, and so does the
						lease */
		}
	}
	pthread_barrier_wait(&barrier);
	uint64_t start_ns = clock_get_ns(CLOCK_MONOTONIC);
	pthread_barrier_wait(&barrier);
	uint64_t spent_ns = clock_get_ns(CLOCK_MONOTONIC) - start_ns;
	for (unsigned i = 0; i < bench->workers; i++)
		pthread_join(threads[i].thread, NULL);
	pthread_barrier_destroy(&barrier);
	return (double)spent_ns / NS_PER_S;
}

/* ---- rounds ---- */

/* What hpzd's workers are, as far as it knows; after a round it does. */
static int bench_recycle_look(struct bench_recycle *bench)
{
	struct hpz_clearing *clearing = NULL;
	struct hpz_clearing_info info = {.struct_size = sizeof(info)};
	int error = hpz_get_clearing(bench->hpz, &clearing);

	if (error)
		return error;
	hpz_clearing_get_info(clearing, &info);
	for (uint32_t i = 0; i < info.node_count; i++) {
		struct hpz_clearing_node node = {.struct_size = sizeof(node)};
		hpz_clearing_get_node(clearing, i, &node);
		bench->workers = MAX(bench->workers, node.worker_count);
	}
	bench->workers = MIN(MAX(bench->workers, 1u), BENCH_RECYCLE_THREADS);
	for (uint32_t i = 0; i < info.method_count; i++) {
		struct hpz_clearing_method method = {.struct_size = sizeof(method)};
		hpz_clearing_get_method(clearing, i, &method);
		const struct zero_method *ours = zero_find_method(method.name);
		/* What was found on the pool's own pages stands behind what was found on others. */
		if ((method.flags & HPZ_METHOD_CHOSEN) && ours && ours->is_supported())
			bench->method = ours;
	}
	hpz_clearing_free(clearing);
	return HPZ_OK;
}

static int bench_recycle_run_round(struct bench_recycle *bench, bool is_measured)
{
	struct hpz_lease_request request = HPZ_LEASE_REQUEST_INIT;
	struct hpz_lease *lease = NULL;
	void *memory = NULL;
	size_t length = 0;
	double floor_s = 0, mapped_s = 0;

	request.size = bench->bytes;
	request.label = "bench recycle";
	request.timeout_ms = BENCH_RECYCLE_WAIT_MS;
	int error = hpz_lease(bench->hpz, &request, &lease);
	if (error)
		return error;
	error = hpz_map(bench->hpz, lease, &memory, &length);
	if (!error && length >= bench->bytes) {
		memset(memory, 0x5a, bench->bytes);
		mapped_s = bench->method ? bench_recycle_measure(bench, -1, memory) : 0;
		int fd = hpz_lease_steal_fd(lease, 0);
		floor_s = bench->method ? bench_recycle_measure(bench, fd, NULL) : 0;
		close_fd(fd);
	}
	uint64_t id = hpz_lease_get_id(lease);
	hpz_lease_free(lease); /* unmapped and closed: the end of an address space is not measured */
	uint64_t start_ns = clock_get_ns(CLOCK_MONOTONIC);
	if (!error)
		error = hpz_release(bench->hpz, id, HPZ_RELEASE_WAIT, BENCH_RECYCLE_WAIT_MS);
	double recycle_s = (double)(clock_get_ns(CLOCK_MONOTONIC) - start_ns) / NS_PER_S;
	if (error || !is_measured)
		return error;
	bench->recycle_s[bench->rounds] = recycle_s;
	bench->floor_s[bench->rounds] = floor_s;
	bench->mapped_s[bench->rounds] = mapped_s;
	bench->ratio[bench->rounds++] = recycle_s / floor_s;
	return HPZ_OK;
}

static int bench_recycle_run(struct bench_recycle *bench)
{
	int error = HPZ_OK;

	for (size_t i = 0; !error && i < BENCH_RECYCLE_WARM_UPS + bench->rounds_asked; i++) {
		error = bench_recycle_look(bench);
		if (!error)
			error = bench_recycle_run_round(bench, i >= BENCH_RECYCLE_WARM_UPS);
	}
	return error;
}

static int bench_recycle_print(const struct hpzctl *ctl, struct bench_recycle *bench)
{
	double ratio = bench_get_median(bench->ratio, bench->rounds);
	double spread = bench_get_spread(bench->ratio, bench->rounds);
	double recycle_s = bench_get_median(bench->recycle_s, bench->rounds);
	double floor_s = bench_get_median(bench->floor_s, bench->rounds);
	double mapped_s = bench_get_median(bench->mapped_s, bench->rounds);
	bool is_wide = spread > BENCH_RECYCLE_SPREAD_MAX;
	double gib = (double)bench->bytes / (double)((uint64_t)1 << 30);

	if (is_wide)
		hpzctl_say("bench recycle: the middle half of the rounds spreads over %.0f %%: the machine "
			   "is busy",
			spread * 100);
	if (ctl->json)
		printf("{\"schema\":\"hpz-bench-recycle-1\",\"gib\":%.3f,\"workers\":%u,\"method\":\"%s\","
		       "\"rounds\":%zu,\"recycle_s\":%.4f,\"floor_s\":%.4f,\"mapped_s\":%.4f,\"ratio\":%.3f,"
		       "\"ratio_min\":%.3f,"
		       "\"ratio_max\":%.3f,\"spread\":%.3f,\"complete\":%s}\n",
			gib, bench->workers, bench->method->name, bench->rounds, recycle_s, floor_s, mapped_s,
			ratio, bench->ratio[0], bench->ratio[bench->rounds - 1], spread,
			is_wide ? "false" : "true");
	else
		printf("%.3f GiB, %u worker%s, %s: clean %.4f s after the release, bare %.4f s (%.4f s if it "
		       "is "
		       "mapped already): %.3f times (median of %zu rounds; %.3f to %.3f)\n",
			gib, bench->workers, bench->workers == 1 ? "" : "s", bench->method->name, recycle_s,
			floor_s, mapped_s, ratio, bench->rounds, bench->ratio[0],
			bench->ratio[bench->rounds - 1]);
	return is_wide ? HPZCTL_LATER : HPZCTL_DONE;
}

int bench_recycle(struct hpzctl *ctl, int argc, char **argv)
{
	_cleanup_hpz_ struct hpz *hpz = NULL;
	static struct bench_recycle bench;
	uint64_t gib = BENCH_RECYCLE_GIB, rounds = BENCH_RECYCLE_ROUNDS;
	const struct options_row rows[] = {
		{"gib", OPTIONS_COUNT, &gib, "N", "how much memory to lease (default: 8)"},
		{"rounds", OPTIONS_COUNT, &rounds, "N", "measured ones, at least 5 (default: 5)"},
	};
	char **operands;
	int count;

	int status = options_parse(ctl, rows, ARRAY_SIZE(rows), argc, argv, false, &operands, &count);
	if (status == OPTIONS_GO)
		status = options_refuse_operands(ctl, operands, count);
	if (status != OPTIONS_GO)
		return status;
	if (gib == 0 || gib > 1024 || rounds < BENCH_RECYCLE_ROUNDS || rounds > BENCH_ROUNDS_MAX)
		return hpzctl_fail_usage(
			ctl, "--gib is 1 to 1024, --rounds %d to %d", BENCH_RECYCLE_ROUNDS, BENCH_ROUNDS_MAX);
	status = hpzctl_connect(ctl, &hpz);
	if (status)
		return status;
	bench = (struct bench_recycle){.bytes = gib << 30, .rounds_asked = rounds, .hpz = hpz};
	int error = bench_recycle_run(&bench);
	if (error)
		return hpzctl_fail(ctl, hpz, error, "bench recycle");
	if (!bench.method) {
		hpzctl_say("bench recycle: hpzd clears by a method that does not work here");
		return HPZCTL_FAILED;
	}
	return bench_recycle_print(ctl, &bench);
}
