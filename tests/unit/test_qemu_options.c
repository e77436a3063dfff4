/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_qemu_options.c - the syntax of QEMU's command line: words, pairs, sizes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "qemu_options.h"
#include "util.h"

static void test_names(void **state)
{
	assert_string_equal(qemu_options_get_name("-m"), "m");
	assert_string_equal(qemu_options_get_name("--object"), "object");
	assert_null(qemu_options_get_name("disk.img"));
	assert_null(qemu_options_get_name("-"));
	assert_null(qemu_options_get_name(""));
	assert_string_equal(qemu_options_get_name("--"), "");
}

/* What a command line is read as: "NAME=VALUE@WORD", "NAME!" for one that lacks its value. */
static void check_words(char *const argv[], const char *expected)
{
	char text[512] = "";
	struct qemu_option option;
	size_t at = 1;

	while (qemu_options_next(argv, &at, &option)) {
		size_t length = strlen(text);
		snprintf(text + length, sizeof(text) - length, "%s%s%s%s", length ? " " : "", option.name,
			option.value ? "=" : "", option.value ? option.value : "");
		if (option.value) {
			assert_ptr_equal(option.value, argv[option.word]);
		} else if (option.needs_value) {
			strcat(text, "!");
		}
	}
	assert_string_equal(text, expected);
	assert_null(argv[0] ? argv[at] : NULL);
}

#define WORDS(...)                                                                                           \
	(char *[])                                                                                           \
	{                                                                                                    \
		(char *)"qemu", __VA_ARGS__, NULL                                                            \
	}
#define W(text) ((char *)(text))

static void test_words(void **state)
{
	check_words(WORDS(NULL), "");
	check_words(WORDS(W("d.img"), W("-m"), W("1G")), "m=1G");
	check_words(WORDS(W("-S"), W("-object"), W("x,id=-m"), W("d.img")), "S object=x,id=-m");
	check_words(WORDS(W("--object"), W("--object")), "object=--object");
	check_words(WORDS(W("-append"), W("-quiet"), W("-m"), W("1")), "append=-quiet m=1");
	/* one of ours is not overlooked, even if it may be a value */
	check_words(WORDS(W("-append"), W("-m"), W("1")), "append m=1");
	check_words(WORDS(W("-new-flag"), W("-device"), W("pc-dimm")), "new-flag device=pc-dimm");
	check_words(WORDS(W("-nographic"), W("-object")), "nographic object!");
	check_words(WORDS(W("-help"), W("x")), "help");
	check_words((char *[]){NULL}, "");
}

/* "KEY:VALUE" or ":VALUE", two commas being one. */
static void check_pairs(const char *word, const char *expected)
{
	struct qemu_pairs pairs = QEMU_PAIRS_OF(word);
	struct qemu_pair pair;
	char text[256] = "", value[64], again[256] = "";

	while (qemu_pairs_next(&pairs, &pair)) {
		size_t length = strlen(text);
		assert_true(qemu_pair_get_value(&pair, value, sizeof(value)));
		assert_true(qemu_pair_has_value(&pair, value));
		snprintf(text + length, sizeof(text) - length, "%s%.*s:%s", length ? " " : "",
			(int)pair.key_length, pair.key ? pair.key : "", value);
		length = strlen(again);
		snprintf(again + length, sizeof(again) - length, "%s%.*s", length ? "," : "",
			(int)pair.length, pair.start);
		assert_false(qemu_pair_has_key(&pair, "no such key"));
	}
	assert_string_equal(text, expected);
	/* The pieces are the whole. */
	if (*word && *word != ',')
		assert_string_equal(again, word);
}

static void test_pairs(void **state)
{
	check_pairs("", ":");
	check_pairs("q35", ":q35");
	check_pairs("q35,accel=tcg", ":q35 accel:tcg");
	check_pairs("a=1,b=2", "a:1 b:2");
	check_pairs("a=1,flag,c=3", "a:1 flag: c:3");
	check_pairs("a=x,,y,b=,,", "a:x,y b:,");
	check_pairs("a=,b=", "a: b:");
	check_pairs("a=b=c", "a:b=c");
	check_pairs("x,,y,a=1", ":x,y a:1");
	check_pairs("a=1,", "a:1 :");
}

static void test_values_that_do_not_fit(void **state)
{
	struct qemu_pairs pairs = QEMU_PAIRS_OF("a=1234");
	struct qemu_pair pair;
	char text[5];

	assert_true(qemu_pairs_next(&pairs, &pair));
	assert_true(qemu_pair_get_value(&pair, text, 5));
	assert_string_equal(text, "1234");
	assert_false(qemu_pair_get_value(&pair, text, 4));
	assert_false(qemu_pair_get_value(&pair, text, 0));
	assert_false(qemu_pairs_next(&pairs, &pair));
}

static void test_sizes(void **state)
{
	static const struct {
		const char *text;
		unsigned shift;
		bool is_good;
		uint64_t bytes;
	} rows[] = {
		{"=1", 0, true, 1},
		{"=1", 20, true, 1 << 20},
		{"=4294967296", 0, true, 1ull << 32},
		{"=2M", 0, true, 2 << 20},
		{"=1.5g", 0, true, 3ull << 29},
		{"=1.5", 0, false, 0},
		{"=1.5", 20, true, 3 << 19},
		{"=", 0, false, 0},
		{"=0x100", 0, false, 0},
		{"=1e3", 0, false, 0},
		{"=-1", 0, false, 0},
		{"=1MB", 0, false, 0},
		{"=99999999999999999999", 0, false, 0},
		{"=9223372036854775807", 0, false, 0},
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct qemu_pairs pairs = QEMU_PAIRS_OF(rows[i].text);
		struct qemu_pair pair;
		uint64_t bytes = 0;
		assert_true(qemu_pairs_next(&pairs, &pair));
		bool is_good = qemu_pair_get_size(&pair, rows[i].shift, &bytes);
		if (is_good != rows[i].is_good || bytes != rows[i].bytes)
			fail_msg("%s: %d, %llu", rows[i].text, is_good, (unsigned long long)bytes);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_words),
		cmocka_unit_test(test_pairs),
		cmocka_unit_test(test_values_that_do_not_fit),
		cmocka_unit_test(test_sizes),
	};

	return cmocka_run_group_tests_name("qemu_options", tests, NULL, NULL);
}
