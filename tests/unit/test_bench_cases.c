/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_bench_cases.c - the rows of `hpzctl bench teardown`: all there, each one once, within its memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "bench_teardown.h"

#define KIB ((uint64_t)1 << 10)
#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)

static struct bench_row rows[BENCH_TEARDOWN_ROWS_MAX];

static size_t plan(uint64_t size)
{
	const struct bench_teardown_plan plan = {.size = size,
		.page_size = 4 * KIB,
		.thp_size = 2 * MIB,
		.huge_size = 2 * MIB,
		.gigantic_size = GIB};

	return bench_teardown_plan_rows(&plan, rows);
}

static const struct bench_row *find(size_t count, const char *kind, const char *backing)
{
	const struct bench_row *found = NULL;

	for (size_t i = 0; i < count; i++) {
		if (strcmp(rows[i].kind, kind) != 0 || strcmp(rows[i].backing, backing) != 0)
			continue;
		assert_null(found);
		found = &rows[i];
	}
	return found;
}

static void test_all_there(void **state)
{
	static const char *const methods[] = {"puds", "middle", "whole"},
				 *const ends[] = {"exit", "munmap", "kill"},
				 *const backings[] = {"4K", "THP", "2M", "1G", "2M-shared-1", "2M-shared-2",
					 "2M-shared-8", "2M-hpz"};
	size_t count = plan(GIB), found = 0;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(methods); i++)
		for (size_t k = 0; k < ARRAY_SIZE(ends); k++)
			for (size_t j = 0; j < ARRAY_SIZE(backings); j++) {
				char kind[32];
				snprintf(kind, sizeof(kind), "%s/%s", methods[i], ends[k]);
				/* A lease has a page for every address: nothing of it is sparse. */
				bool is_wanted = j + 1 < ARRAY_SIZE(backings) || i == 2;
				assert_true((find(count, kind, backings[j]) != NULL) == is_wanted);
				found += is_wanted;
			}
	assert_int_equal(found, count);
}

static void test_places(void **state)
{
	size_t count = plan(GIB);

	(void)state;
	for (size_t i = 0; i < count; i++) {
		const struct bench_holder_wish *wish = &rows[i].wish;
		assert_true(wish->touches > 0);
		assert_true(wish->first + (wish->touches - 1) * wish->step < wish->mapped);
		assert_int_equal(wish->mapped % wish->page_size, 0);
		assert_true(wish->touches * wish->page_size <= GIB);
	}
	assert_int_equal(find(count, "puds/exit", "4K")->wish.touches, 4096);
	assert_int_equal(find(count, "puds/exit", "4K")->wish.mapped, 4096 * GIB);
	assert_int_equal(find(count, "puds/kill", "2M")->wish.touches, 512);
	assert_int_equal(find(count, "puds/kill", "1G")->wish.touches, 1);
	assert_int_equal(find(count, "middle/munmap", "THP")->wish.touches, 1);
	assert_int_equal(find(count, "whole/exit", "4K")->wish.touches, 262144);
	assert_int_equal(find(count, "whole/exit", "2M-hpz")->wish.mapped, GIB);
}

static void test_little(void **state)
{
	size_t count = plan(6 * MIB);

	(void)state;
	/* With its tables a small page takes three. */
	assert_int_equal(find(count, "puds/exit", "4K")->wish.touches, 512);
	assert_int_equal(find(count, "puds/exit", "THP")->wish.touches, 3);
	assert_int_equal(find(count, "whole/exit", "2M")->wish.mapped, 6 * MIB);
	/* What is less than a table can map shares none. */
	assert_int_equal(find(count, "whole/exit", "2M-shared-2")->wish.mapped, GIB);
	assert_int_equal(find(count, "whole/exit", "2M-shared-2")->wish.touches, 3);
	assert_int_equal(find(count, "whole/exit", "2M-shared-2")->wish.sharers, 2);
	/* One page is the least there is. */
	assert_int_equal(find(count, "whole/exit", "1G")->wish.touches, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_all_there),
		cmocka_unit_test(test_places),
		cmocka_unit_test(test_little),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
