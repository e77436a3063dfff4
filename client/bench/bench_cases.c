/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* bench_cases.c - the rows of `hpzctl bench teardown`: how much is mapped and where it is written. Pure. */
#include "bench_teardown.h"

#include "size.h"

static const char *const bench_method_names[] = {
	[BENCH_METHOD_PUDS] = "puds", [BENCH_METHOD_MIDDLE] = "middle", [BENCH_METHOD_WHOLE] = "whole"};

static const char *const bench_end_names[] = {
	[BENCH_END_EXIT] = "exit", [BENCH_END_MUNMAP] = "munmap", [BENCH_END_KILL] = "kill"};

static const struct {
	enum bench_backing backing;
	bool is_gigantic;
	unsigned sharers;
} bench_cases_backings[] = {
	{BENCH_BACKING_4K, false, 0},
	{BENCH_BACKING_THP, false, 0},
	{BENCH_BACKING_HUGE, false, 0},
	{BENCH_BACKING_HUGE, true, 0},
	{BENCH_BACKING_SHARED, false, 1},
	{BENCH_BACKING_SHARED, false, 2},
	{BENCH_BACKING_SHARED, false, 8},
	{BENCH_BACKING_LEASED, false, 0},
};

const char *bench_end_get_name(enum bench_end end)
{
	return bench_end_names[end];
}

const char *bench_method_get_name(enum bench_method method)
{
	return bench_method_names[method];
}

static uint64_t bench_cases_round_up(uint64_t bytes, uint64_t unit)
{
	return (bytes + unit - 1) / unit * unit;
}

static void bench_cases_name(struct bench_row *row)
{
	char size[SIZE_TEXT];
	const struct bench_holder_wish *wish = &row->wish;

	snprintf(row->kind, sizeof(row->kind), "%s/%s", bench_method_names[row->method],
		bench_end_names[wish->end]);
	size_format_exact(wish->page_size, size);
	if (wish->backing == BENCH_BACKING_THP)
		snprintf(row->backing, sizeof(row->backing), "THP");
	else if (wish->backing == BENCH_BACKING_SHARED)
		snprintf(row->backing, sizeof(row->backing), "%.8s-shared-%u", size, wish->sharers);
	else
		snprintf(row->backing, sizeof(row->backing), "%.8s%s", size,
			wish->backing == BENCH_BACKING_LEASED ? "-hpz" : "");
}

/* As many as go into the plan's size: one at least. A small page needs two tables of its own to stand alone.
 */
static uint64_t bench_cases_count_touches(const struct bench_row *row, const struct bench_teardown_plan *plan)
{
	uint64_t bytes = row->wish.page_size;

	if (row->method == BENCH_METHOD_PUDS && row->wish.backing == BENCH_BACKING_4K)
		bytes += 2 * plan->page_size;
	return MAX(plan->size / bytes, (uint64_t)1);
}

static void bench_cases_place(struct bench_row *row, const struct bench_teardown_plan *plan)
{
	struct bench_holder_wish *wish = &row->wish;
	uint64_t pages = bench_cases_count_touches(row, plan);

	switch (row->method) {
	case BENCH_METHOD_PUDS:
		wish->touches = MIN(pages, (uint64_t)BENCH_TEARDOWN_PUDS);
		wish->step = BENCH_TEARDOWN_PUD;
		wish->mapped = wish->touches * wish->step;
		break;
	case BENCH_METHOD_MIDDLE:
		wish->touches = 1;
		wish->mapped = BENCH_TEARDOWN_MUCH;
		wish->first = wish->mapped / 2;
		break;
	case BENCH_METHOD_WHOLE:
		wish->touches = pages;
		wish->step = wish->page_size;
		wish->mapped = pages * wish->page_size;
		/* A table is shared only if all that it can map is mapped. */
		if (wish->backing == BENCH_BACKING_SHARED)
			wish->mapped = bench_cases_round_up(wish->mapped, BENCH_TEARDOWN_PUD);
		break;
	case BENCH_METHODS:
		break;
	}
}

static uint64_t bench_cases_get_page_size(const struct bench_teardown_plan *plan, size_t backing)
{
	if (bench_cases_backings[backing].backing == BENCH_BACKING_4K)
		return plan->page_size;
	if (bench_cases_backings[backing].backing == BENCH_BACKING_THP)
		return plan->thp_size;
	return bench_cases_backings[backing].is_gigantic ? plan->gigantic_size : plan->huge_size;
}

size_t bench_teardown_plan_rows(
	const struct bench_teardown_plan *plan, struct bench_row rows[BENCH_TEARDOWN_ROWS_MAX])
{
	size_t count = 0;

	for (unsigned method = 0; method < BENCH_METHODS; method++) {
		for (size_t i = 0; i < ARRAY_SIZE(bench_cases_backings); i++) {
			/* A lease has a page for every address. */
			if (bench_cases_backings[i].backing == BENCH_BACKING_LEASED &&
				method != BENCH_METHOD_WHOLE)
				continue;
			for (unsigned end = 0; end < BENCH_ENDS; end++) {
				struct bench_row *row = &rows[count++];
				*row = (struct bench_row){.method = (enum bench_method)method,
					.repeats = 1,
					.wish = {.backing = bench_cases_backings[i].backing,
						.end = (enum bench_end)end,
						.page_size = bench_cases_get_page_size(plan, i),
						.sharers = bench_cases_backings[i].sharers}};
				bench_cases_place(row, plan);
				bench_cases_name(row);
			}
		}
	}
	return count;
}
