/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * zero_methods.c - the ways this CPU can make bytes zero: the table, and a function a row.
 * What is common to them (self-test, calibration) is zero.c and knows no instruction. A row clears whole
 * lines, in their order; clear_in_groups() gives it those, and what is odd at either end goes by plain
 * stores. Nothing here is fenced, reads what it clears, or writes beyond it.
 */
#include "zero.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <x86intrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

static bool always_supported(void)
{
	return true;
}

/* volatile: compilers make a call of memset of any other loop like these. */
static void clear_plain(void *start, size_t bytes)
{
	typedef volatile uint64_t __attribute__((may_alias)) word;
	char *p = start, *end = p + bytes;

	for (; p < end && ((uintptr_t)p & 7); p++)
		*(volatile char *)p = 0;
	for (; end - p >= 8; p += 8)
		*(word *)(void *)p = 0;
	for (; p < end; p++)
		*(volatile char *)p = 0;
}

static void clear_memset(void *start, size_t bytes)
{
	memset(start, 0, bytes);
	/* The compiler must not drop the stores, nor move them past what the caller does next. */
	__asm__ volatile("" : : "r"(start) : "memory");
}

#if defined(__x86_64__) || defined(__aarch64__)

#define SMALL_PAGE ((size_t)4096)
#define GROUP      (4 * SMALL_PAGE)

/*
 * Has the CPU look up where the next group's pages lie, while it clears the group before. A huge page of a
 * guest is one only for the guest: the host below may back it by pages of 4 KiB, and then each of these
 * costs a walk through both kernels' tables, for which streaming stores stand still. Here (Zen 5 guest,
 * batches of 2 MiB all over a GiB) avx512nt made 26 GB/s without this and 72 with it, clzero 26 and 72; on
 * memory whose translations are known already both reach 72 either way, so it costs nothing. One page ahead
 * to eight come to the same; stores in four or eight streams, without it, get to 41 and 48.
 *
 * A prefetch reads a line a page (1/64 of the traffic), into the cache with the hint that it is not needed
 * again, and the store that follows takes it out. It never faults, and a line that memory reports as broken
 * is not consumed by it: the store or the kernel's own handler finds out as without.
 */
static void look_up_pages(const char *start, size_t from, size_t bytes)
{
#if defined(__x86_64__)
	for (size_t at = from; at < MIN(from + GROUP, bytes); at += SMALL_PAGE)
		_mm_prefetch(start + at, _MM_HINT_NTA);
#endif
}

/* Whole lines: start and bytes are multiples of the line. */
typedef void (*clear_lines_fn)(char *start, size_t bytes);

static void clear_in_groups(void *start, size_t bytes, size_t line, clear_lines_fn clear_lines)
{
	size_t head = MIN(-(uintptr_t)start & (line - 1), bytes), whole = (bytes - head) & ~(line - 1);
	char *p = (char *)start + head;

	clear_plain(start, head);
	look_up_pages(p, 0, whole);
	for (size_t at = 0; at < whole; at += GROUP) {
		look_up_pages(p, at + GROUP, whole);
		clear_lines(p + at, MIN(GROUP, whole - at));
	}
	clear_plain(p + whole, bytes - head - whole);
}

#endif

#if defined(__x86_64__)

#define LINE 64

static void stosb_lines(char *p, size_t bytes)
{
	__asm__ volatile("rep stosb" : "+D"(p), "+c"(bytes) : "a"(0) : "memory");
}

static void clear_stosb(void *start, size_t bytes)
{
	clear_in_groups(start, bytes, LINE, stosb_lines);
}

/* One cache line a round: a line that is not stored in one go costs a read and a partial write of memory. */
static void movnti_lines(char *p, size_t bytes)
{
	for (char *end = p + bytes; p < end; p += LINE)
		for (int i = 0; i < 8; i++)
			_mm_stream_si64((long long *)(void *)p + i, 0);
}

static void clear_movnti(void *start, size_t bytes)
{
	clear_in_groups(start, bytes, LINE, movnti_lines);
}

static bool avx2_is_supported(void)
{
	return __builtin_cpu_supports("avx2"); /* false, too, when the OS does not save the registers */
}

__attribute__((target("avx2"))) static void avx2_lines(char *p, size_t bytes)
{
	const __m256i zero = _mm256_setzero_si256();

	for (char *end = p + bytes; p < end; p += LINE) {
		_mm256_stream_si256((__m256i *)(void *)p, zero);
		_mm256_stream_si256((__m256i *)(void *)p + 1, zero);
	}
}

static void clear_avx2(void *start, size_t bytes)
{
	clear_in_groups(start, bytes, LINE, avx2_lines);
}

static bool avx512_is_supported(void)
{
	return __builtin_cpu_supports("avx512f");
}

__attribute__((target("avx512f"))) static void avx512_lines(char *p, size_t bytes)
{
	const __m512i zero = _mm512_setzero_si512();

	for (char *end = p + bytes; p < end; p += LINE)
		_mm512_stream_si512((void *)p, zero);
}

static void clear_avx512(void *start, size_t bytes)
{
	clear_in_groups(start, bytes, LINE, avx512_lines);
}

/* The registers it uses are the general ones: nothing for the OS to enable. */
static bool movdir64b_is_supported(void)
{
	unsigned eax, ebx, ecx, edx;

	return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) && (ecx & 1u << 28);
}

__attribute__((target("movdir64b"))) static void movdir64b_lines(char *p, size_t bytes)
{
	static const char zero[LINE] __attribute__((aligned(LINE)));

	for (char *end = p + bytes; p < end; p += LINE)
		_movdir64b(p, zero);
}

static void clear_movdir64b(void *start, size_t bytes)
{
	clear_in_groups(start, bytes, LINE, movdir64b_lines);
}

/* It clears a line of the cache, whatever that is: the one that CLFLUSH has, which must be ours. */
static bool clzero_is_supported(void)
{
	unsigned eax, ebx, ecx, edx, line;

	if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx))
		return false;
	line = (ebx >> 8 & 0xff) * 8;
	return line == LINE && __get_cpuid(0x80000008, &eax, &ebx, &ecx, &edx) && (ebx & 1);
}

__attribute__((target("clzero"))) static void clzero_lines(char *p, size_t bytes)
{
	for (char *end = p + bytes; p < end; p += LINE)
		_mm_clzero(p);
}

static void clear_clzero(void *start, size_t bytes)
{
	clear_in_groups(start, bytes, LINE, clzero_lines);
}

#elif defined(__aarch64__)

/* DCZID_EL0: log2 of the block in words of 4 bytes, and bit 4: the instruction is forbidden here. */
static size_t get_zva_block(void)
{
	uint64_t dczid;

	__asm__("mrs %0, dczid_el0" : "=r"(dczid));
	return dczid & 1u << 4 ? 0 : (size_t)4 << (dczid & 15);
}

static bool zva_is_supported(void)
{
	size_t block = get_zva_block();

	return block >= 16 && block <= GROUP; /* 2 KiB is the most there can be */
}

static void zva_lines(char *p, size_t bytes)
{
	size_t block = get_zva_block();

	for (char *end = p + bytes; p < end; p += block)
		__asm__ volatile("dc zva, %0" : : "r"(p) : "memory");
}

static void clear_zva(void *start, size_t bytes)
{
	clear_in_groups(start, bytes, get_zva_block(), zva_lines);
}

#define LINE 64

static void stnp_lines(char *p, size_t bytes)
{
	const uint64x2_t zero = vdupq_n_u64(0);

	for (char *end = p + bytes; p < end; p += LINE)
		__asm__ volatile("stnp %q1, %q1, [%0]\n\tstnp %q1, %q1, [%0, #32]"
				 :
				 : "r"(p), "w"(zero)
				 : "memory");
}

static void clear_stnp(void *start, size_t bytes)
{
	clear_in_groups(start, bytes, LINE, stnp_lines);
}

#endif

/*
 * is_nontemporal: movdir64b and clzero are weakly ordered stores that leave no line behind, as `hpzctl bench
 * clear` shows with a neighbour. DC ZVA may go through the caches, and on most cores does at first.
 */
const struct zero_method zero_methods[] = {
#if defined(__x86_64__)
	{"avx512nt", true, avx512_is_supported, clear_avx512},
	{"clzero", true, clzero_is_supported, clear_clzero},
	{"movdir64b", true, movdir64b_is_supported, clear_movdir64b},
	{"avx2nt", true, avx2_is_supported, clear_avx2},
	{"movnti", true, always_supported, clear_movnti},
	{"stosb", false, always_supported, clear_stosb},
#elif defined(__aarch64__)
	{"stnp", true, always_supported, clear_stnp},
	{"dczva", false, zva_is_supported, clear_zva},
#endif
	{"memset", false, always_supported, clear_memset},
	{"plain", false, always_supported, clear_plain},
};
const size_t zero_method_count = ARRAY_SIZE(zero_methods);
_Static_assert(ARRAY_SIZE(zero_methods) <= ZERO_METHODS_MAX, "a result a method");

void zero_fence(void)
{
#if defined(__x86_64__)
	/* Non-temporal stores, movdir64b and clzero are ordered by nothing else, not by an unlock either. */
	_mm_sfence();
	__asm__ volatile("" : : : "memory");
#elif defined(__aarch64__)
	/* Of the whole system: what comes next may be a device that reads the memory. */
	__asm__ volatile("dmb sy" : : : "memory");
#else
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
}

void zero_evict(const void *start, size_t bytes)
{
#if defined(__x86_64__)
	for (size_t at = 0; at < bytes; at += LINE)
		_mm_clflush((const char *)start + at);
	_mm_mfence();
#elif defined(__aarch64__)
	uint64_t ctr;
	size_t line;

	__asm__("mrs %0, ctr_el0" : "=r"(ctr));
	line = (size_t)4 << (ctr >> 16 & 15);
	for (size_t at = 0; at < bytes; at += line)
		__asm__ volatile("dc civac, %0" : : "r"((const char *)start + at) : "memory");
	__asm__ volatile("dsb sy" : : : "memory");
#endif
}
