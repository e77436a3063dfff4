/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_bench_trace.c - the records of a perf ring: those of one process, across its end, and broken ones. */
#include <linux/perf_event.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "bench_trace.h"

#define RING 256
#define PID  42

static const uint64_t ids[BENCH_TRACE_POINTS] = {[BENCH_TRACE_BEGUN] = 7, [BENCH_TRACE_GONE] = 9};

struct sample {
	struct perf_event_header header;
	uint64_t id;
	uint32_t pid, tid;
	uint64_t ns;
};

struct ring {
	char data[RING];
	uint64_t head;
};

static void put(struct ring *ring, const void *bytes, size_t size)
{
	for (size_t i = 0; i < size; i++)
		ring->data[(ring->head + i) % RING] = ((const char *)bytes)[i];
	ring->head += size;
}

static void put_sample(struct ring *ring, enum bench_trace_point point, uint32_t pid, uint64_t ns)
{
	struct sample sample = {.header = {.type = PERF_RECORD_SAMPLE, .size = sizeof(sample)},
		.id = ids[point],
		.pid = pid,
		.tid = pid,
		.ns = ns};

	put(ring, &sample, sizeof(sample));
}

static struct bench_trace_seen read_all(const struct ring *ring, uint64_t tail)
{
	struct bench_trace_seen seen = {{0}};

	bench_trace_read(ring->data, RING, tail, ring->head, PID, ids, &seen);
	return seen;
}

static void test_one_process(void **state)
{
	struct ring ring = {.head = 0};

	(void)state;
	put_sample(&ring, BENCH_TRACE_BEGUN, 41, 100);
	put_sample(&ring, BENCH_TRACE_BEGUN, PID, 200);
	put_sample(&ring, BENCH_TRACE_BEGUN, PID, 250); /* another thread */
	put_sample(&ring, BENCH_TRACE_GONE, 41, 300);
	put_sample(&ring, BENCH_TRACE_GONE, PID, 400);
	struct bench_trace_seen seen = read_all(&ring, 0);
	assert_int_equal(seen.ns[BENCH_TRACE_BEGUN], 200);
	assert_int_equal(seen.ns[BENCH_TRACE_GONE], 400);
	/* Only what came since. */
	seen = read_all(&ring, 3 * sizeof(struct sample));
	assert_int_equal(seen.ns[BENCH_TRACE_BEGUN], 0);
	assert_int_equal(seen.ns[BENCH_TRACE_GONE], 400);
}

/* Positions only grow; records lie across the end of the ring. */
static void test_wraps(void **state)
{
	(void)state;
	for (uint64_t start = 0; start < 2 * RING; start += 8) {
		struct ring ring = {.head = start};
		put_sample(&ring, BENCH_TRACE_BEGUN, PID, 1000);
		put_sample(&ring, BENCH_TRACE_GONE, PID, 2000);
		struct bench_trace_seen seen = read_all(&ring, start);
		assert_int_equal(seen.ns[BENCH_TRACE_BEGUN], 1000);
		assert_int_equal(seen.ns[BENCH_TRACE_GONE], 2000);
	}
}

static void test_other_records(void **state)
{
	struct ring ring = {.head = 0};
	struct perf_event_header lost = {.type = PERF_RECORD_LOST, .size = 24},
				 tiny = {.type = PERF_RECORD_SAMPLE, .size = 8};

	(void)state;
	put(&ring, &lost, sizeof(lost));
	put(&ring, (char[16]){0}, 16);
	put(&ring, &tiny, sizeof(tiny)); /* not ours: it has no fields */
	put_sample(&ring, BENCH_TRACE_BEGUN, PID, 5);
	assert_int_equal(read_all(&ring, 0).ns[BENCH_TRACE_BEGUN], 5);
}

/* A size of 0 must not keep us, and none may lead beyond the head. */
static void test_broken(void **state)
{
	struct ring ring = {.head = 0};
	struct perf_event_header nothing = {.type = PERF_RECORD_SAMPLE, .size = 0},
				 large = {.type = PERF_RECORD_SAMPLE, .size = 4096};

	(void)state;
	put(&ring, &nothing, sizeof(nothing));
	put_sample(&ring, BENCH_TRACE_BEGUN, PID, 5);
	assert_int_equal(read_all(&ring, 0).ns[BENCH_TRACE_BEGUN], 0);
	ring = (struct ring){.head = 0};
	put(&ring, &large, sizeof(large));
	assert_int_equal(read_all(&ring, 0).ns[BENCH_TRACE_BEGUN], 0);
	ring.head = 3;
	assert_int_equal(read_all(&ring, 0).ns[BENCH_TRACE_BEGUN], 0);
}

/* One that is not open sees nothing, and says so. */
static void test_not_open(void **state)
{
	struct bench_trace trace = {0};

	(void)state;
	bench_trace_reset(&trace);
	assert_true(isnan(bench_trace_get_seconds(&trace, PID)));
	bench_trace_close(&trace);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_one_process),
		cmocka_unit_test(test_wraps),
		cmocka_unit_test(test_other_records),
		cmocka_unit_test(test_broken),
		cmocka_unit_test(test_not_open),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
