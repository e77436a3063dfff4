/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * zero.c - how bytes become zero: whether a method really does it, how fast, and which to take.
 * The methods themselves are zero_methods.c; here is what is common to them, which knows no instruction.
 */
#include "zero.h"

const struct zero_method *zero_find_method(const char *name)
{
	for (size_t i = 0; i < zero_method_count; i++)
		if (strcmp(zero_methods[i].name, name) == 0)
			return &zero_methods[i];
	return NULL;
}

/* ---- is it zero? ---- */

#define BLOCK 256

typedef uint64_t vector __attribute__((vector_size(32), aligned(1), may_alias));

/* Vectors of the compiler's: whatever registers the target has, and no branch inside a block. */
static inline bool block_is_clear(const unsigned char *p)
{
	const vector *v = (const vector *)(const void *)p;
	vector all = (v[0] | v[1]) | (v[2] | v[3]) | ((v[4] | v[5]) | (v[6] | v[7]));

	return (all[0] | all[1] | all[2] | all[3]) == 0;
}

bool zero_is_clear(const void *start, size_t bytes, size_t *ret_offset)
{
	const unsigned char *p = start;
	size_t at = 0;

	while (bytes - at >= BLOCK && block_is_clear(p + at))
		at += BLOCK;
	for (; at < bytes; at++)
		if (p[at]) {
			if (ret_offset)
				*ret_offset = at;
			return false;
		}
	return true;
}

/* ---- self-test ---- */

#define GUARD ((size_t)128) /* two lines: a stray line-sized store is seen on either side */

/* Never zero, and different from the byte a line or a vector further on. */
static unsigned char poison_at(size_t i)
{
	return (unsigned char)((i * 31 + i / 251) | 1);
}

static bool guard_is_whole(const unsigned char *scratch, size_t from, size_t to)
{
	for (size_t i = from; i < to; i++)
		if (scratch[i] != poison_at(i))
			return false;
	return true;
}

/* Clears `length` bytes at `offset` of freshly poisoned memory; looks at them and at what lies around. */
static bool test_range(const struct zero_method *method, unsigned char *scratch, size_t offset, size_t length)
{
	size_t from = offset - GUARD, end = offset + length, to = end + GUARD;

	for (size_t i = from; i < to; i++)
		scratch[i] = poison_at(i);
	__asm__ volatile("" : : "r"(scratch) : "memory");
	method->clear(scratch + offset, length);
	zero_fence();
	return guard_is_whole(scratch, from, offset) && zero_is_clear(scratch + offset, length, NULL) &&
	       guard_is_whole(scratch, end, to);
}

bool zero_test_method(const struct zero_method *method, void *scratch, size_t bytes)
{
	static const size_t offsets[] = {0, 1, 3, 7, 8, 15, 16, 31, 32, 33, 63};
	static const size_t lengths[] = {0, 1, 2, 7, 8, 9, 15, 16, 31, 32, 33, 63, 64, 65, 127, 128, 129, 191,
		255, 256, 257, 320, 511, 512, 1000, 4095, 4096, 4097, 8191};
	/* Around the 16 KiB that a method clears in one go. */
	static const size_t long_lengths[] = {16383, 16384, 16385, 32767, 32769};
	size_t base = GUARD + (-(uintptr_t)scratch & 63);
	size_t most = MIN(bytes, ZERO_BATCH);

	if (bytes < ZERO_TEST_MIN)
		return false;
	for (size_t i = 0; i < ARRAY_SIZE(offsets); i++)
		for (size_t j = 0; j < ARRAY_SIZE(lengths); j++)
			if (!test_range(method, scratch, base + offsets[i], lengths[j]))
				return false;
	for (size_t j = 0; j < ARRAY_SIZE(long_lengths); j++)
		if (!test_range(method, scratch, base + j, long_lengths[j]))
			return false;
	/* Whole lines as in earnest, and the same with odd ends. */
	most -= base + GUARD;
	return test_range(method, scratch, base, most & ~(size_t)4095) &&
	       test_range(method, scratch, base + 1, most - 2);
}

/* ---- calibration ---- */

#define ROUNDS_MIN 3
#define ROUNDS_MAX 64

struct calibration {
	const struct zero_method *methods;
	size_t count, next; /* the batch whose turn it is */
	char *scratch;
	size_t batches;
	uint64_t end_ns;
	unsigned rounds;
	uint64_t ns[ZERO_METHODS_MAX][ROUNDS_MAX];
};

/*
 * Each time another batch, so that it has been away for as long as the scratch allows: what comes back from a
 * VM is in no cache, and where it lies is not in the TLB. Evicted, because a scratch that fits the last cache
 * flatters stores through it.
 */
static uint64_t time_batch(struct calibration *c, const struct zero_method *method)
{
	char *batch = c->scratch + c->next++ % c->batches * ZERO_BATCH;
	uint64_t start = clock_get_ns(CLOCK_MONOTONIC), end;

	method->clear(batch, ZERO_BATCH);
	zero_fence();
	end = clock_get_ns(CLOCK_MONOTONIC);
	if (!method->is_nontemporal)
		zero_evict(batch, ZERO_BATCH);
	return MAX(end - start, (uint64_t)1);
}

/*
 * One batch a method and round, so that a disturbance meets all alike; another method first each round, so
 * that none has the same few batches all the time, whose place in memory would count for its speed.
 */
static void time_methods(struct calibration *c, const struct zero_result *results)
{
	while (c->rounds < ROUNDS_MAX &&
		(c->rounds < ROUNDS_MIN || clock_get_ns(CLOCK_MONOTONIC) < c->end_ns)) {
		for (size_t j = 0; j < c->count; j++) {
			size_t i = (j + c->rounds) % c->count;
			if (results[i].is_usable)
				c->ns[i][c->rounds] = time_batch(c, results[i].method);
		}
		c->rounds++;
	}
}

static int compare_ns(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

/*
 * The lower quartile: what the machine needs when nobody disturbs it. Not the very best, which is a fluke
 * (here 7 % below what half of the batches need), nor the middle, which on a busy machine is another's time.
 */
static uint64_t get_typical_ns(uint64_t *ns, unsigned count)
{
	qsort(ns, count, sizeof *ns, compare_ns);
	return ns[count / 4];
}

static int find_fastest(const struct zero_result *results, size_t count, bool is_nontemporal)
{
	int best = -1;

	for (size_t i = 0; i < count; i++) {
		const struct zero_result *r = &results[i];
		if (!r->is_usable || r->method->is_nontemporal != is_nontemporal)
			continue;
		if (best < 0 || r->batch_ns < results[best].batch_ns)
			best = (int)i;
	}
	return best;
}

/*
 * A store through the caches throws out the neighbours' data (a 1 MiB walk beside it: 580 us instead of 95),
 * so it must be worth more than a quarter of the time to be taken.
 */
int zero_find_best(const struct zero_result *results, size_t count)
{
	int nt = find_fastest(results, count, true), temporal = find_fastest(results, count, false);

	if (nt < 0 || temporal < 0)
		return MAX(nt, temporal);
	return results[temporal].batch_ns * 5 / 4 < results[nt].batch_ns ? temporal : nt;
}

static const char *explain(const struct zero_result *results, int index, int best)
{
	const struct zero_result *r = &results[index];

	if (index == best)
		return r->method->is_nontemporal
			       ? "picked: the fastest that leaves the caches alone"
			       : "picked: more than a quarter faster than any that leaves the "
				 "caches alone, or the only kind";
	if (r->batch_ns >= results[best].batch_ns)
		return "slower than the one picked";
	return "faster, but not by enough to go through the caches";
}

static const char *find_obstacle(const struct zero_method *method, void *scratch, size_t bytes)
{
	if (!method->is_supported())
		return "this CPU or its kernel cannot do it";
	return bytes < ZERO_BATCH || !zero_test_method(method, scratch, bytes) ? "failed its self-test"
									       : NULL;
}

int zero_calibrate_methods(const struct zero_method *methods, size_t count, void *scratch, size_t bytes,
	uint64_t budget_ns, struct zero_result *ret_results)
{
	struct zero_result results[ZERO_METHODS_MAX] = {0};
	struct calibration c = {.methods = methods,
		.count = MIN(count, (size_t)ZERO_METHODS_MAX),
		.scratch = scratch,
		.batches = bytes / ZERO_BATCH,
		.end_ns = clock_get_ns(CLOCK_MONOTONIC) + budget_ns};
	int best;

	for (size_t i = 0; i < c.count; i++) {
		results[i].method = &methods[i];
		results[i].why = find_obstacle(&methods[i], scratch, bytes);
		results[i].is_usable = !results[i].why;
	}
	if (c.batches > 0)
		time_methods(&c, results);
	for (size_t i = 0; i < c.count; i++)
		if (results[i].is_usable) {
			results[i].batch_ns = get_typical_ns(c.ns[i], c.rounds);
			results[i].gb_per_s = (double)ZERO_BATCH / (double)results[i].batch_ns;
		}
	best = zero_find_best(results, c.count);
	for (size_t i = 0; i < c.count; i++)
		if (results[i].is_usable)
			results[i].why = explain(results, (int)i, best);
	memcpy(ret_results, results, c.count * sizeof *results);
	return best;
}

int zero_calibrate(
	void *scratch, size_t bytes, uint64_t budget_ns, struct zero_result ret_results[ZERO_METHODS_MAX])
{
	memset(ret_results, 0, ZERO_METHODS_MAX * sizeof *ret_results);
	return zero_calibrate_methods(
		zero_methods, zero_method_count, scratch, bytes, budget_ns, ret_results);
}
