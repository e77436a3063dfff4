/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * zero.c - how bytes become zero.
 * A row of the table is a CPU test and a function; what is common (self-test, calibration) knows no
 * instruction. Must not read what it clears: the page may be poisoned, and the caches belong to the
 * neighbours.
 */
#include "zero.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

static bool always_supported(void)
{
	return true;
}

static void clear_memset(void *start, size_t bytes)
{
	memset(start, 0, bytes);
	/* The compiler must not drop the stores, nor move them past what the caller does next. */
	__asm__ volatile("" : : "r"(start) : "memory");
}

#if defined(__x86_64__)

/* Plain stores up to the next multiple of `align`, or to the end: moves *start and *bytes on. */
static void clear_head(char **start, size_t *bytes, size_t align)
{
	size_t head = MIN(-(uintptr_t)*start & (align - 1), *bytes);

	if (head)
		clear_memset(*start, head);
	*start += head;
	*bytes -= head;
}

static void clear_stosb(void *start, size_t bytes)
{
	__asm__ volatile("rep stosb" : "+D"(start), "+c"(bytes) : "a"(0) : "memory");
}

/* One cache line a round: a line that is not stored in one go costs a read and a partial write of memory. */
static void clear_movnti(void *start, size_t bytes)
{
	char *p = start;

	clear_head(&p, &bytes, 64);
	for (; bytes >= 64; p += 64, bytes -= 64)
		for (int i = 0; i < 8; i++)
			_mm_stream_si64((long long *)(void *)p + i, 0);
	clear_memset(p, bytes);
}

static bool avx2_is_supported(void)
{
	return __builtin_cpu_supports("avx2"); /* false, too, when the OS does not save the registers */
}

__attribute__((target("avx2"))) static void clear_avx2nt(void *start, size_t bytes)
{
	const __m256i zero = _mm256_setzero_si256();
	char *p = start;

	clear_head(&p, &bytes, 64);
	for (; bytes >= 128; p += 128, bytes -= 128)
		for (int i = 0; i < 4; i++)
			_mm256_stream_si256((__m256i *)(void *)p + i, zero);
	clear_memset(p, bytes);
}

static bool avx512_is_supported(void)
{
	return __builtin_cpu_supports("avx512f");
}

__attribute__((target("avx512f"))) static void clear_avx512nt(void *start, size_t bytes)
{
	const __m512i zero = _mm512_setzero_si512();
	char *p = start;

	clear_head(&p, &bytes, 64);
	for (; bytes >= 256; p += 256, bytes -= 256)
		for (int i = 0; i < 4; i++)
			_mm512_stream_si512((void *)(p + 64 * i), zero);
	clear_memset(p, bytes);
}

#endif

const struct zero_method zero_methods[] = {
#if defined(__x86_64__)
	{"avx512nt", true, avx512_is_supported, clear_avx512nt},
	{"avx2nt", true, avx2_is_supported, clear_avx2nt},
	{"movnti", true, always_supported, clear_movnti},
	{"stosb", false, always_supported, clear_stosb},
#endif
	{"memset", false, always_supported, clear_memset},
};
const size_t zero_method_count = ARRAY_SIZE(zero_methods);
_Static_assert(ARRAY_SIZE(zero_methods) <= ZERO_METHODS_MAX, "a result a method");

const struct zero_method *zero_find_method(const char *name)
{
	for (size_t i = 0; i < zero_method_count; i++)
		if (strcmp(zero_methods[i].name, name) == 0)
			return &zero_methods[i];
	return NULL;
}

void zero_fence(void)
{
#if defined(__x86_64__)
	/* Non-temporal stores are ordered by nothing else, not even by the unlock of a lock. */
	_mm_sfence();
	__asm__ volatile("" : : : "memory");
#else
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
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
	size_t base = GUARD + (-(uintptr_t)scratch & 63);
	size_t most = MIN(bytes, 2 * ZERO_BATCH);

	if (bytes < ZERO_TEST_MIN)
		return false;
	for (size_t i = 0; i < ARRAY_SIZE(offsets); i++)
		for (size_t j = 0; j < ARRAY_SIZE(lengths); j++)
			if (!test_range(method, scratch, base + offsets[i], lengths[j]))
				return false;
	/* Whole lines as in earnest, and the same with odd ends. */
	most -= base + GUARD;
	return test_range(method, scratch, base, most & ~(size_t)4095) &&
	       test_range(method, scratch, base + 1, most - 2);
}

/* ---- calibration ---- */

#define ROUNDS_MIN 3

/*
 * Out of all caches when its turn comes again: what comes back from a VM is cold, and a scratch that fits the
 * last cache flatters stores through it. A small scratch flatters all methods still, because the TLB stays
 * warm (here, GB/s of avx512nt: 16 MiB 71, 64 MiB 46, a whole GiB in a row 22); their order is the same.
 */
static void make_cold(const char *start, size_t bytes)
{
#if defined(__x86_64__)
	for (size_t i = 0; i < bytes; i += 64)
		_mm_clflush(start + i);
	_mm_mfence();
#endif
}

static uint64_t time_batch(const struct zero_method *method, char *batch)
{
	uint64_t start = clock_get_ns(CLOCK_MONOTONIC), end;

	method->clear(batch, ZERO_BATCH);
	zero_fence();
	end = clock_get_ns(CLOCK_MONOTONIC);
	make_cold(batch, ZERO_BATCH);
	return MAX(end - start, (uint64_t)1);
}

/* One batch a method and round, so that a disturbance meets all alike. */
static void time_methods(struct zero_result *results, char *scratch, size_t bytes, uint64_t budget_ns)
{
	uint64_t end = clock_get_ns(CLOCK_MONOTONIC) + budget_ns;
	size_t batches = bytes / ZERO_BATCH, at = 0;

	for (unsigned round = 0; round < ROUNDS_MIN || clock_get_ns(CLOCK_MONOTONIC) < end; round++)
		for (size_t i = 0; i < zero_method_count; i++) {
			struct zero_result *r = &results[i];
			uint64_t ns;
			if (!r->is_usable)
				continue;
			ns = time_batch(r->method, scratch + at++ % batches * ZERO_BATCH);
			r->batch_ns = r->batch_ns ? MIN(r->batch_ns, ns) : ns;
		}
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
 * A store through the caches throws out the neighbours' data (a 1 MiB walk beside it: 580 us instead of 95,
 * design.md 5), so it must be worth more than a quarter of the time to be taken.
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

int zero_calibrate(
	void *scratch, size_t bytes, uint64_t budget_ns, struct zero_result ret_results[ZERO_METHODS_MAX])
{
	struct zero_result results[ZERO_METHODS_MAX] = {0};
	int best;

	for (size_t i = 0; i < zero_method_count; i++) {
		struct zero_result *r = &results[i];
		r->method = &zero_methods[i];
		if (!r->method->is_supported())
			r->why = "this CPU or its kernel cannot do it";
		else if (bytes < ZERO_BATCH || !zero_test_method(r->method, scratch, bytes))
			r->why = "failed its self-test";
		else
			r->is_usable = true;
	}
	if (bytes >= ZERO_BATCH)
		time_methods(results, scratch, bytes, budget_ns);
	best = zero_find_best(results, zero_method_count);
	for (size_t i = 0; i < zero_method_count; i++) {
		struct zero_result *r = &results[i];
		if (!r->is_usable)
			continue;
		r->gb_per_s = (double)ZERO_BATCH / (double)r->batch_ns;
		r->why = explain(results, (int)i, best);
	}
	memcpy(ret_results, results, sizeof results);
	return best;
}
