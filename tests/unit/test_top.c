/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_top.c - the page of hpzctl top. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "top.h"

#define GIB (1024ull * 1024 * 1024)

static struct top_view *make_view(size_t pools, size_t leases)
{
	struct top_view *view = calloc(1, sizeof(*view));

	assert_non_null(view);
	view->pools = calloc(pools + 1, sizeof(*view->pools));
	view->leases = calloc(leases + 1, sizeof(*view->leases));
	assert_non_null(view->pools);
	assert_non_null(view->leases);
	view->pool_count = pools;
	view->lease_count = leases;
	top_set_text(view->version, sizeof(view->version), "1.2");
	top_set_text(view->proof, sizeof(view->proof), "bpf");
	top_set_text(view->method, sizeof(view->method), "avx512nt");
	view->uptime_ms = 61000;
	view->seen_ms = 5000;
	for (size_t i = 0; i < pools; i++)
		view->pools[i] = (struct top_pool){.name = "main",
			.page_size = 2 << 20,
			.target = 28 * GIB,
			.leased = 7 * GIB,
			.dirty = 7 * GIB,
			.filling = 7 * GIB,
			.clean = 7 * GIB};
	for (size_t i = 0; i < leases; i++)
		view->leases[i] = (struct top_lease){.id = 100 + i,
			.size = (i + 1) * GIB,
			.age_ms = 5000,
			.pid = 7,
			.state = "leased",
			.label = "vm",
			.comm = "qemu"};
	return view;
}

static void expect_line(const struct top_page *page, unsigned row, const char *expected)
{
	char line[512];

	assert_true(page->columns < sizeof(line));
	strcpy(line, top_page_get_line(page, row));
	assert_int_equal(strlen(line), page->columns);
	for (size_t end = page->columns; end && line[end - 1] == ' '; end--)
		line[end - 1] = '\0';
	assert_string_equal(line, expected);
}

static void test_page(void **state)
{
	struct top_view *view = make_view(1, 2);
	struct top_page page;

	view->has_rates = true;
	view->clear_rate = 3 * GIB;
	view->workers = 2;
	view->busy = 1;
	view->granted = 9;
	top_sort_leases(view);
	assert_int_equal(top_page_draw(&page, view, 80, 24, 0, 5500), 0);
	expect_line(&page, 0, "hpzd 1.2, up 1m01s; proof: bpf; clears with: avx512nt");
	expect_line(&page, 1, "leases: 2, 9 granted; waiting: 0; connections: 0");
	expect_line(&page, 2, "clearing 3 GiB/s, filling 0 B/s; workers: 1 of 2 busy");
	expect_line(&page, 3, "");
	expect_line(
		&page, 5, "main           0  2M [#######~~~~~~~>>>>>>>++++++]     7 GiB     7 GiB    28 GiB");
	expect_line(&page, 8, "101            leased        2 GiB       5s vm                   7 qemu");
	expect_line(&page, 9, "100            leased        1 GiB       5s vm                   7 qemu");
	assert_int_equal(page.used, 10);
	top_page_free(&page);
	/* The first is scrolled away. */
	assert_int_equal(top_page_draw(&page, view, 80, 24, 1, 5500), 0);
	expect_line(&page, 8, "100            leased        1 GiB       5s vm                   7 qemu");
	top_page_free(&page);
	top_view_free(view);
}

/* What is there at all is seen; what is missing to the target is a dot. */
static void test_bars(void **state)
{
	static const struct {
		uint64_t target, leased, dirty, filling, clean;
		const char *bar;
	} rows[] = {
		{0, 0, 0, 0, 0, "[...........................]"},
		{100, 0, 0, 0, 100, "[+++++++++++++++++++++++++++]"},
		{100, 1, 1, 1, 1, "[#~>+.......................]"},
		{100, 50, 0, 0, 0, "[##############.............]"},
		{10, 90, 0, 0, 10, "[########################+++]"},
		{1ull << 62, 1ull << 61, 0, 0, 1ull << 61, "[##############+++++++++++++]"},
	};
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct top_view *view = make_view(1, 0);
		struct top_page page;
		struct top_pool *pool = view->pools;
		pool->target = rows[i].target;
		pool->leased = rows[i].leased;
		pool->dirty = rows[i].dirty;
		pool->filling = rows[i].filling;
		pool->clean = rows[i].clean;
		assert_int_equal(top_page_draw(&page, view, 80, 24, 0, 5000), 0);
		assert_non_null(strstr(top_page_get_line(&page, 5), rows[i].bar));
		top_page_free(&page);
		top_view_free(view);
	}
}

/* Every size of a terminal: lines are as wide as it, and never more of them. */
static void test_sizes(void **state)
{
	struct top_view *view = make_view(3, 50);

	top_set_text(view->message, sizeof(view->message), "it is late");
	for (unsigned columns = 0; columns < 400; columns += 7)
		for (unsigned rows = 0; rows < 70; rows += 3) {
			struct top_page page;
			assert_int_equal(top_page_draw(&page, view, columns, rows, rows, 5000), 0);
			assert_true(page.used <= rows);
			for (unsigned row = 0; row < rows; row++)
				assert_int_equal(strlen(top_page_get_line(&page, row)), page.columns);
			top_page_free(&page);
		}
	struct top_page page;
	assert_int_equal(top_page_draw(&page, view, 80, top_count_rows(view), 0, 5000), 0);
	assert_non_null(strstr(top_page_get_line(&page, page.used - 1), "149 "));
	top_page_free(&page);
	top_view_free(view);
}

static void test_text(void **state)
{
	char text[6];

	top_set_text(text, sizeof(text), "a\x1b[2Jz");
	assert_string_equal(text, "a?[2~");
	top_set_text(text, sizeof(text), "\xc3\xa9\n\xff.");
	assert_string_equal(text, "???.");
	top_set_text(text, sizeof(text), "12345");
	assert_string_equal(text, "12345");
	top_set_text(text, sizeof(text), "");
	assert_string_equal(text, "");
}

/* What is not new is said to be old, and hpzd's own words are shown. */
static void test_age(void **state)
{
	struct top_view *view = make_view(1, 0);
	struct top_page page;

	top_set_text(view->message, sizeof(view->message), "it is late");
	assert_int_equal(top_page_draw(&page, view, 80, 24, 0, 5000), 0);
	expect_line(&page, 3, "hpzd: it is late");
	top_page_free(&page);
	assert_int_equal(top_page_draw(&page, view, 80, 24, 0, 15000), 0);
	expect_line(&page, 3, "hpzd does not answer; as it was 10s ago");
	top_page_free(&page);
	top_set_text(view->error, sizeof(view->error), "the connection is gone");
	top_set_text(view->pools[0].message, sizeof(view->pools[0].message), "5 pages are missing");
	view->pools[0].waiting = 3;
	view->pools[0].lost = GIB;
	assert_int_equal(top_page_draw(&page, view, 80, 24, 0, 6000), 0);
	expect_line(&page, 1, "leases: 0, 0 granted; waiting: 3; connections: 0");
	expect_line(&page, 3, "the connection is gone; as it was 1s ago");
	expect_line(&page, 7, "main: 3 wait for memory");
	expect_line(&page, 8, "main: 1 GiB is lost to it: see hpzctl status");
	expect_line(&page, 9, "main: 5 pages are missing");
	expect_line(&page, 11, "No leases.");
	top_page_free(&page);
	view->pool_count = 0;
	assert_int_equal(top_page_draw(&page, view, 80, 24, 0, 6000), 0);
	expect_line(&page, 5, "No pools: /etc/hpz/hpzd.conf makes them.");
	top_page_free(&page);
	top_view_free(view);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_page),
		cmocka_unit_test(test_bars),
		cmocka_unit_test(test_sizes),
		cmocka_unit_test(test_text),
		cmocka_unit_test(test_age),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
