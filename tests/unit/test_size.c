/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_size.c - sizes as people write and read them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "size.h"
#include "util.h"

#define KI 1024ull
#define MI (1024ull * KI)
#define GI (1024ull * MI)
#define TI (1024ull * GI)

static void test_parse_takes(void **state)
{
	static const struct {
		const char *text;
		uint64_t bytes;
	} rows[] = {
		{"0", 0},
		{"1", 1},
		{"4096", 4096},
		{"2097152B", 2 * MI},
		{"16k", 16 * KI},
		{"16K", 16 * KI},
		{"512M", 512 * MI},
		{"512m", 512 * MI},
		{"64MiB", 64 * MI},
		{"64 MiB", 64 * MI},
		{"2G", 2 * GI},
		{"1.5G", GI + GI / 2},
		{"0.5K", 512},
		{"1.000001K", 1025}, /* never less than asked for */
		{"1.999999T", 2199022156041},
		{"1T", TI},
		{"16777215T", 16777215 * TI},
		{"18446744073709551615", UINT64_MAX},
		{"00012", 12},
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		uint64_t bytes = 77;
		assert_int_equal(size_parse(rows[i].text, &bytes), 0);
		assert_int_equal(bytes, rows[i].bytes);
	}
}

static void test_parse_refuses(void **state)
{
	static const struct {
		const char *text;
		int error;
	} rows[] = {
		{"", -EINVAL},
		{" ", -EINVAL},
		{"M", -EINVAL},
		{"-1", -EINVAL},
		{"+1", -EINVAL},
		{" 1", -EINVAL},
		{"1MB", -EINVAL}, /* a million or a mebibyte? */
		{"1Mi", -EINVAL},
		{"1iB", -EINVAL},
		{"1X", -EINVAL},
		{"1P", -EINVAL},
		{"1MM", -EINVAL},
		{"1M ", -EINVAL},
		{"0x10", -EINVAL},
		{"1e3", -EINVAL},
		{"1.", -EINVAL},
		{"1.M", -EINVAL},
		{".5G", -EINVAL},
		{"1.5", -EINVAL}, /* half a byte */
		{"1.5B", -EINVAL},
		{"1.1234567G", -EINVAL},
		{"1.2.3G", -EINVAL},
		{"1,5G", -EINVAL},
		{"nan", -EINVAL},
		{"18446744073709551616", -ERANGE},
		{"99999999999999999999999", -ERANGE},
		{"16777216T", -ERANGE},
		{"16777215.999999T", 0},
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		uint64_t bytes = 77;
		assert_int_equal(size_parse(rows[i].text, &bytes), rows[i].error);
		if (rows[i].error)
			assert_int_equal(bytes, 77);
	}
}

static void test_format(void **state)
{
	static const struct {
		uint64_t bytes;
		const char *text;
	} rows[] = {
		{0, "0 B"},
		{1, "1 B"},
		{1023, "1023 B"},
		{1024, "1 KiB"},
		{1536, "1.5 KiB"},
		{2 * MI, "2 MiB"},
		{GI + GI / 2, "1.5 GiB"},
		{GI - 1, "1 GiB"}, /* and not 1024 MiB */
		{MI - 1, "1 MiB"},
		{GI + 1, "1 GiB"},
		{1000 * GI, "1000 GiB"},
		{TI, "1 TiB"},
		{UINT64_MAX, "16 EiB"},
		{1ull << 60, "1 EiB"},
		{(1ull << 63) + (1ull << 59), "8.5 EiB"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		char text[SIZE_TEXT];
		assert_string_equal(size_format(rows[i].bytes, text), rows[i].text);
	}
}

static void test_format_exact_is_read_back(void **state)
{
	static const struct {
		uint64_t bytes;
		const char *text;
	} rows[] = {
		{0, "0"},
		{1, "1"},
		{1000, "1000"},
		{1024, "1K"},
		{1025, "1025"},
		{2 * MI, "2M"},
		{GI, "1G"},
		{1536 * MI, "1536M"},
		{5 * TI, "5T"},
		{1ull << 60, "1048576T"},
		{UINT64_MAX, "18446744073709551615"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		char text[SIZE_TEXT];
		uint64_t bytes = 77;
		assert_string_equal(size_format_exact(rows[i].bytes, text), rows[i].text);
		assert_int_equal(size_parse(text, &bytes), 0);
		assert_int_equal(bytes, rows[i].bytes);
	}
}

static void test_pages(void **state)
{
	assert_int_equal(size_pages(0, 2 * MI), 0);
	assert_int_equal(size_pages(1, 2 * MI), 1);
	assert_int_equal(size_pages(2 * MI, 2 * MI), 1);
	assert_int_equal(size_pages(2 * MI + 1, 2 * MI), 2);
	assert_int_equal(size_pages(UINT64_MAX, 2 * MI), 1ull << 43);
	assert_int_equal(size_pages(UINT64_MAX, 1), UINT64_MAX);
	assert_int_equal(size_pages(5, 0), 0);
}

static void test_floor_pow2(void **state)
{
	assert_int_equal(size_floor_pow2(0), 0);
	assert_int_equal(size_floor_pow2(1), 1);
	assert_int_equal(size_floor_pow2(3), 2);
	assert_int_equal(size_floor_pow2(4), 4);
	assert_int_equal(size_floor_pow2(UINT64_MAX), 1ull << 63);
	for (unsigned i = 1; i < 64; i++) {
		assert_int_equal(size_floor_pow2(1ull << i), 1ull << i);
		assert_int_equal(size_floor_pow2((1ull << i) - 1), 1ull << (i - 1));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_parse_takes),
		cmocka_unit_test(test_parse_refuses),
		cmocka_unit_test(test_format),
		cmocka_unit_test(test_format_exact_is_read_back),
		cmocka_unit_test(test_pages),
		cmocka_unit_test(test_floor_pow2),
	};

	return cmocka_run_group_tests_name("size", tests, NULL, NULL);
}
