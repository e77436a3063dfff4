/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_zero.c - every method clears all it is given and nothing else, and a method that does not is found
 * out. */
#include "temp.h"
#include "zero.h"

#include <sys/mman.h>

#define SCRATCH ((size_t)16 << 20)

static unsigned char *scratch;

static int setup(void **state)
{
	scratch = mmap(NULL, SCRATCH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	return scratch == MAP_FAILED ? -1 : 0;
}

static int teardown(void **state)
{
	return munmap(scratch, SCRATCH);
}

/* ---- the table ---- */

static void test_table(void **state)
{
	static const char *const everywhere[] = {"memset", "plain"};

	assert_true(zero_method_count >= 2 && zero_method_count <= ZERO_METHODS_MAX);
	for (size_t i = 0; i < ARRAY_SIZE(everywhere); i++) {
		const struct zero_method *method = &zero_methods[zero_method_count - 2 + i];
		assert_string_equal(method->name, everywhere[i]);
		assert_false(method->is_nontemporal);
		assert_true(method->is_supported());
		assert_ptr_equal(zero_find_method(method->name), method);
	}
	assert_null(zero_find_method("auto"));
	assert_null(zero_find_method(""));
#if defined(__x86_64__)
	assert_non_null(zero_find_method("stosb"));
	assert_true(zero_find_method("movnti")->is_nontemporal);
	assert_true(zero_find_method("movnti")->is_supported());
	assert_non_null(zero_find_method("avx2nt"));
	assert_non_null(zero_find_method("avx512nt"));
	assert_true(zero_find_method("movdir64b")->is_nontemporal);
	assert_true(zero_find_method("clzero")->is_nontemporal);
	assert_false(zero_find_method("stosb")->is_nontemporal);
#elif defined(__aarch64__)
	assert_true(zero_find_method("stnp")->is_nontemporal);
	assert_true(zero_find_method("stnp")->is_supported());
	assert_false(zero_find_method("dczva")->is_nontemporal);
#endif
	for (size_t i = 0; i < zero_method_count; i++)
		assert_ptr_equal(zero_find_method(zero_methods[i].name), &zero_methods[i]);
}

/* Not the self-test of zero.c: own poison, every offset in a line, every length up to a few lines. */
static void expect_clears(const struct zero_method *method, size_t offset, size_t length)
{
	const size_t around = 600;

	memset(scratch, 0xa5, around + offset + length + around);
	method->clear(scratch + around + offset, length);
	zero_fence();
	for (size_t i = 0; i < around + offset + length + around; i++) {
		bool is_inside = i >= around + offset && i < around + offset + length;
		if (scratch[i] != (is_inside ? 0 : 0xa5))
			fail_msg("%s, offset %zu, length %zu: byte %zu is 0x%02x", method->name, offset,
				length, i, scratch[i]);
	}
}

static void test_every_method(void **state)
{
	static const size_t lengths[] = {
		511, 512, 513, 767, 768, 1023, 1024, 4095, 4096, 16383, 16384, 16447, 65536, 65537};

	for (size_t i = 0; i < zero_method_count; i++) {
		const struct zero_method *method = &zero_methods[i];
		if (!method->is_supported()) {
			print_message("# %s: not on this CPU\n", method->name);
			continue;
		}
		for (size_t offset = 0; offset < 64; offset++) {
			for (size_t length = 0; length < 400; length += length < 140 ? 1 : 13)
				expect_clears(method, offset, length);
			for (size_t j = 0; j < ARRAY_SIZE(lengths); j++)
				expect_clears(method, offset, lengths[j]);
		}
		assert_true(zero_test_method(method, scratch, SCRATCH));
		assert_true(zero_test_method(method, scratch + 1, ZERO_TEST_MIN));
		assert_false(zero_test_method(method, scratch, ZERO_TEST_MIN - 1));
	}
}

/* ---- methods that do not do what they say ---- */

static void clear_nothing(void *start, size_t bytes)
{
}

static void skip_last_byte(void *start, size_t bytes)
{
	if (bytes)
		memset(start, 0, bytes - 1);
}

static void skip_first_byte(void *start, size_t bytes)
{
	if (bytes)
		memset((char *)start + 1, 0, bytes - 1);
}

static void write_beyond(void *start, size_t bytes)
{
	memset(start, 0, bytes + 1);
}

static void write_before(void *start, size_t bytes)
{
	memset((char *)start - 1, 0, bytes + 1);
}

/* Does nothing wrong but with no bytes at all. */
static void write_when_empty(void *start, size_t bytes)
{
	memset(start, 0, MAX(bytes, (size_t)1));
}

static void skip_line_in_the_middle(void *start, size_t bytes)
{
	unsigned char line[64], *middle = (unsigned char *)start + bytes / 2 / 64 * 64;

	if (bytes < 8192) {
		memset(start, 0, bytes);
		return;
	}
	memcpy(line, middle, 64);
	memset(start, 0, bytes);
	memcpy(middle, line, 64);
}

/* Only long ranges, as a loop with a wrong count leaves it. */
static void skip_end_of_long(void *start, size_t bytes)
{
	memset(start, 0, bytes > ((size_t)1 << 20) ? bytes - 64 : bytes);
}

/* Rounds what is not aligned down to a line: writes before the start. */
static void align_down(void *start, size_t bytes)
{
	uintptr_t from = (uintptr_t)start & ~(uintptr_t)63;

	memset((void *)from, 0, bytes + ((uintptr_t)start - from));
}

/* Rounds up to a line: an aligned start with an odd length goes beyond. */
static void round_up(void *start, size_t bytes)
{
	memset(start, 0, (bytes + 63) & ~(size_t)63);
}

static void skip_unaligned_tail(void *start, size_t bytes)
{
	memset(start, 0, bytes & ~(size_t)7);
}

static void write_one(void *start, size_t bytes)
{
	memset(start, 0, bytes);
	if (bytes > 4096)
		((unsigned char *)start)[bytes / 3] = 1;
}

static bool yes(void)
{
	return true;
}

static void test_broken_methods(void **state)
{
	static const struct zero_method broken[] = {
		{"nothing", true, yes, clear_nothing},
		{"last byte", true, yes, skip_last_byte},
		{"first byte", true, yes, skip_first_byte},
		{"beyond", true, yes, write_beyond},
		{"before", true, yes, write_before},
		{"empty", true, yes, write_when_empty},
		{"middle line", true, yes, skip_line_in_the_middle},
		{"long end", true, yes, skip_end_of_long},
		{"align down", true, yes, align_down},
		{"round up", true, yes, round_up},
		{"tail", true, yes, skip_unaligned_tail},
		{"one", true, yes, write_one},
	};

	for (size_t i = 0; i < ARRAY_SIZE(broken); i++)
		if (zero_test_method(&broken[i], scratch, SCRATCH))
			fail_msg("the self-test lets `%s` pass", broken[i].name);
}

/*
 * A table of fakes: what is broken is reported and left out, however fast it is, what this CPU lacks is not
 * even tried, and the one that does what it says is taken.
 */
static bool no(void)
{
	return false;
}

static void clear_honestly(void *start, size_t bytes)
{
	memset(start, 0, bytes);
}

static void never_called(void *start, size_t bytes)
{
	fail_msg("a method was tried that this CPU does not have");
}

static void test_broken_method_is_left_out(void **state)
{
	static const struct zero_method fakes[] = {
		{"fake: lacking", true, no, never_called},
		{"fake: nothing", true, yes, clear_nothing},
		{"fake: honest", false, yes, clear_honestly},
		{"fake: beyond", true, yes, write_beyond},
	};
	struct zero_result results[ARRAY_SIZE(fakes)];

	assert_int_equal(zero_calibrate_methods(fakes, ARRAY_SIZE(fakes), scratch, SCRATCH, 0, results), 2);
	for (size_t i = 0; i < ARRAY_SIZE(fakes); i++) {
		assert_ptr_equal(results[i].method, &fakes[i]);
		assert_int_equal(results[i].is_usable, i == 2);
		assert_int_equal(results[i].batch_ns > 0, i == 2);
		assert_int_equal(results[i].gb_per_s > 0, i == 2);
	}
	assert_string_equal(results[0].why, "this CPU or its kernel cannot do it");
	assert_string_equal(results[1].why, "failed its self-test");
	assert_string_equal(results[3].why, "failed its self-test");
	assert_non_null(strstr(results[2].why, "picked"));
	/* Nothing but broken ones: none. */
	assert_int_equal(zero_calibrate_methods(fakes, 2, scratch, SCRATCH, 0, results), -1);
}

/* ---- is it zero? ---- */

static void test_is_clear(void **state)
{
	size_t at = 77;

	memset(scratch, 0, 8192);
	assert_true(zero_is_clear(scratch, 0, &at));
	assert_true(zero_is_clear(NULL, 0, NULL));
	for (size_t offset = 0; offset < 70; offset++)
		for (size_t length = 1; length < 1100; length += length < 300 ? 1 : 37) {
			unsigned char *p = scratch + 256 + offset;
			size_t places[] = {0, length / 2, length - 1};
			assert_true(zero_is_clear(p, length, &at));
			assert_int_equal(at, 77);
			for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
				size_t found;
				p[places[i]] = 0x80;
				assert_false(zero_is_clear(p, length, &found));
				assert_int_equal(found, places[i]);
				assert_false(zero_is_clear(p, length, NULL));
				p[places[i]] = 0;
			}
			/* What lies around is not looked at. */
			p[-1] = p[length] = 1;
			assert_true(zero_is_clear(p, length, NULL));
			p[-1] = p[length] = 0;
		}
}

/* Up to the last byte before memory that is not there. */
static void test_is_clear_at_the_edge(void **state)
{
	long page = sysconf(_SC_PAGESIZE);
	unsigned char *map =
		mmap(NULL, (size_t)page * 3, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	unsigned char *middle = map + page;

	assert_ptr_not_equal(map, MAP_FAILED);
	assert_int_equal(mprotect(map, (size_t)page, PROT_NONE), 0);
	assert_int_equal(mprotect(middle + page, (size_t)page, PROT_NONE), 0);
	for (size_t length = 0; length < 600; length++) {
		assert_true(zero_is_clear(middle, length, NULL));
		assert_true(zero_is_clear(middle + page - length, length, NULL));
	}
	for (size_t i = 0; i < zero_method_count; i++)
		if (zero_methods[i].is_supported())
			for (size_t length = 0; length < 600; length++) {
				zero_methods[i].clear(middle, length);
				zero_methods[i].clear(middle + page - length, length);
			}
	munmap(map, (size_t)page * 3);
}

/* ---- calibration ---- */

static const struct zero_method nt = {"nt", true, yes, clear_nothing};
static const struct zero_method temporal = {"temporal", false, yes, clear_nothing};

static void test_find_best(void **state)
{
	struct zero_result r[4] = {{&nt, true, 100}, {&nt, true, 90}, {&temporal, true, 80}, {&nt, true, 90}};

	assert_int_equal(zero_find_best(r, 0), -1);
	assert_int_equal(zero_find_best(r, 4), 1); /* the first of equals */
	r[2].batch_ns = 72;                        /* exactly a quarter */
	assert_int_equal(zero_find_best(r, 4), 1);
	r[2].batch_ns = 71;
	assert_int_equal(zero_find_best(r, 4), 2);
	r[2].is_usable = false;
	assert_int_equal(zero_find_best(r, 4), 1);
	r[0].is_usable = r[1].is_usable = r[3].is_usable = false;
	assert_int_equal(zero_find_best(r, 4), -1);
	r[2].is_usable = true;
	assert_int_equal(zero_find_best(r, 4), 2);
}

static void test_calibrate(void **state)
{
	struct zero_result results[ZERO_METHODS_MAX];
	int best;

	memset(scratch, 1, SCRATCH);
	best = zero_calibrate(scratch, SCRATCH, 20 * NS_PER_MS, results);
	assert_true(best >= 0 && (size_t)best < zero_method_count);
	for (size_t i = 0; i < zero_method_count; i++) {
		const struct zero_result *r = &results[i];
		assert_ptr_equal(r->method, &zero_methods[i]);
		assert_non_null(r->why);
		assert_int_equal(r->is_usable, r->method->is_supported());
		if (r->is_usable)
			assert_true(r->batch_ns > 0 && r->gb_per_s > 0);
		print_message("# %-9s %6.1f GB/s  %s\n", r->method->name, r->gb_per_s, r->why);
	}
	assert_true(results[best].is_usable);
	assert_int_equal(zero_find_best(results, zero_method_count), best);
	assert_int_equal(strncmp(results[best].why, "picked", 6), 0);
	/* Too little memory to try anything. */
	assert_int_equal(zero_calibrate(scratch, 4096, 0, results), -1);
	assert_false(results[0].is_usable);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_table),
		cmocka_unit_test(test_every_method),
		cmocka_unit_test(test_broken_methods),
		cmocka_unit_test(test_broken_method_is_left_out),
		cmocka_unit_test(test_is_clear),
		cmocka_unit_test(test_is_clear_at_the_edge),
		cmocka_unit_test(test_find_best),
		cmocka_unit_test(test_calibrate),
	};
	return cmocka_run_group_tests_name("zero", tests, setup, teardown);
}
