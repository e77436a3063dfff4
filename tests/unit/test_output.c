/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_output.c - tables, JSON and texts as hpzctl prints them. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "output.h"

/* What is printed into `file` is compared when it ends. */
struct page {
	FILE *file;
	char *text;
	size_t size;
};

static void page_open(struct page *page)
{
	page->file = open_memstream(&page->text, &page->size);
	assert_non_null(page->file);
}

static void page_expect(struct page *page, const char *expected)
{
	fclose(page->file);
	assert_string_equal(page->text, expected);
	free(page->text);
}

static void test_is_text(void **state)
{
	assert_true(output_is_text(""));
	assert_true(output_is_text("vm-1 \xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"));
	assert_false(output_is_text("a\nb"));
	assert_false(output_is_text("\x1b[31m"));
	assert_false(output_is_text("\x7f"));
	assert_false(output_is_text("\xc2\x9b"));
	assert_false(output_is_text("\xc3"));
	assert_false(output_is_text("\xc0\xaf"));
	assert_false(output_is_text("\xed\xa0\x80"));
	assert_false(output_is_text("\xf4\x90\x80\x80"));
	assert_false(output_is_text("\xf8\x88\x80\x80\x80"));
}

static void test_print_text(void **state)
{
	struct page page;

	page_open(&page);
	output_print_text(page.file, "a\x1b[31mb\xff\xc3\xa9\xc2\x9b\n\xe2\x82");
	page_expect(&page, "a\\x1b[31mb\\xff\xc3\xa9\\xc2\\x9b\\x0a\\xe2\\x82");
}

static void test_duration(void **state)
{
	static const struct {
		uint64_t ms;
		const char *text;
	} rows[] = {
		{0, "0s"},
		{999, "0s"},
		{59999, "59s"},
		{60000, "1m00s"},
		{187000, "3m07s"},
		{3599999, "59m59s"},
		{3600000, "1h00m"},
		{86399000, "23h59m"},
		{86400000, "1d00h"},
		{9ull * 86400000 + 4 * 3600000, "9d04h"},
		{UINT64_MAX, "213503982334d14h"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		char text[OUTPUT_DURATION];
		assert_string_equal(output_format_duration(rows[i].ms, text), rows[i].text);
	}
}

static void test_json_shape(void **state)
{
	struct output_json json;
	struct page page;

	page_open(&page);
	output_json_init(&json, page.file);
	output_json_open_object(&json, NULL);
	output_json_text(&json, "schema", "s-1");
	output_json_number(&json, "most", UINT64_MAX);
	output_json_integer(&json, "least", INT64_MIN);
	output_json_decimal(&json, "part", 2.0 / 3, 3);
	output_json_decimal(&json, "whole", -4, 0);
	output_json_decimal(&json, "missing", NAN, 1);
	output_json_decimal(&json, "endless", INFINITY, 1);
	output_json_bool(&json, "yes", true);
	output_json_bool(&json, "no", false);
	output_json_null(&json, "none");
	output_json_text_or_null(&json, "empty", "");
	output_json_text_or_null(&json, "full", "x");
	output_json_open_list(&json, "empty list");
	output_json_close(&json);
	output_json_open_list(&json, "list");
	output_json_number(&json, NULL, 1);
	output_json_open_object(&json, NULL);
	output_json_close(&json);
	output_json_open_object(&json, NULL);
	output_json_text(&json, "a", "b");
	output_json_close(&json);
	output_json_close(&json);
	output_json_number(&json, "after", 2);
	output_json_close(&json);
	page_expect(&page, "{\"schema\":\"s-1\",\"most\":18446744073709551615,\"least\":-9223372036854775808,"
			   "\"part\":0.667,\"whole\":-4,\"missing\":null,\"endless\":null,\"yes\":true,"
			   "\"no\":false,\"none\":null,\"empty\":null,\"full\":\"x\",\"empty list\":[],"
			   "\"list\":[1,{},{\"a\":\"b\"}],\"after\":2}\n");
}

static void test_json_escapes(void **state)
{
	static const struct {
		const char *text, *json;
	} rows[] = {
		{"", "\"\"\n"},
		{"a\"b\\c/", "\"a\\\"b\\\\c/\"\n"},
		{"\b\f\n\r\t\x01\x1f", "\"\\u0008\\u000c\\u000a\\u000d\\u0009\\u0001\\u001f\"\n"},
		{"\x7f\xc2\x85\xc2\x9f", "\"\\u007f\\u0085\\u009f\"\n"},
		{"\xc2\xa0\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80",
			"\"\xc2\xa0\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\"\n"},
		{"\xff", "\"\\ufffd\"\n"},
		{"\xc3(", "\"\\ufffd(\"\n"},
		{"\xe2\x82", "\"\\ufffd\\ufffd\"\n"},
		{"\xed\xa0\x80", "\"\\ufffd\\ufffd\\ufffd\"\n"},
		{"<script>&'", "\"<script>&'\"\n"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct output_json json;
		struct page page;
		page_open(&page);
		output_json_init(&json, page.file);
		output_json_text(&json, NULL, rows[i].text);
		fputc('\n', page.file);
		page_expect(&page, rows[i].json);
	}
}

static void test_table(void **state)
{
	static const char *const headings[] = {"NAME", ">SIZE", "LAST"};
	struct output_table table;
	struct page page;

	output_table_init(&table, headings, ARRAY_SIZE(headings));
	page_open(&page);
	output_table_print(&table, page.file);
	page_expect(&page, "");

	output_table_add(&table, "%s", "a");
	output_table_add(&table, "%d MiB", 5);
	output_table_add(&table, "%s", "x");
	output_table_add(&table, "%s",
		"gr\xc3\xb6\xc3\x9f"
		"er");
	output_table_add(&table, "%s", "1000 MiB");
	output_table_add(&table, "%s", "evil\n");
	page_open(&page);
	output_table_print(&table, page.file);
	page_expect(&page, "NAME        SIZE  LAST\n"
			   "a          5 MiB  x\n"
			   "gr\xc3\xb6\xc3\x9f"
			   "er  1000 MiB  evil\\x0a\n");
	output_table_deinit(&table);
}

static void test_large_table(void **state)
{
	static const char *const headings[] = {"A", "B"};
	struct output_table table;
	struct page page;

	output_table_init(&table, headings, ARRAY_SIZE(headings));
	for (unsigned i = 0; i < 500; i++) {
		output_table_add(&table, "%u", i);
		output_table_add(&table, "x");
	}
	page_open(&page);
	output_table_print(&table, page.file);
	fclose(page.file);
	assert_int_equal(page.size, strlen("A    B\n") * 501);
	free(page.text);
	output_table_deinit(&table);
}

static void test_progress(void **state)
{
	char text[OUTPUT_PROGRESS];

	assert_string_equal(output_format_progress(0, 1 << 30, text),
		"[..............................]   0%  0 B of 1 GiB");
	assert_string_equal(output_format_progress(1 << 29, 1 << 30, text),
		"[###############...............]  50%  512 MiB of 1 GiB");
	assert_string_equal(output_format_progress((1 << 30) - 1, 1 << 30, text),
		"[#############################.]  99%  1 GiB of 1 GiB");
	assert_string_equal(output_format_progress(1 << 30, 1 << 30, text),
		"[##############################] 100%  1 GiB of 1 GiB");
	/* More than wanted, and nothing wanted. */
	assert_string_equal(
		output_format_progress(2, 1, text), "[##############################] 100%  2 B of 1 B");
	assert_string_equal(
		output_format_progress(0, 0, text), "[##############################] 100%  0 B of 0 B");
	output_format_progress(UINT64_MAX - 1, UINT64_MAX, text);
}

static void test_progress_is_for_terminals(void **state)
{
	FILE *file = tmpfile();

	assert_non_null(file);
	output_progress(file, 1, 2);
	output_progress_end(file);
	assert_int_equal(ftell(file), 0);
	fclose(file);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_is_text),
		cmocka_unit_test(test_print_text),
		cmocka_unit_test(test_duration),
		cmocka_unit_test(test_json_shape),
		cmocka_unit_test(test_json_escapes),
		cmocka_unit_test(test_table),
		cmocka_unit_test(test_large_table),
		cmocka_unit_test(test_progress),
		cmocka_unit_test(test_progress_is_for_terminals),
	};

	return cmocka_run_group_tests_name("output", tests, NULL, NULL);
}
