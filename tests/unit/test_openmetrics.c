/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_openmetrics.c - metrics as Prometheus reads them, in both formats. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "openmetrics.h"

static const char *write_all(bool is_text)
{
	static char *text;
	size_t size;

	free(text);
	struct openmetrics out = {.file = open_memstream(&text, &size), .is_text = is_text};
	assert_non_null(out.file);
	const struct openmetrics_label labels[] = {{"pool", "a\"b\\c\nd"}, {"node", "0"}};
	const uint64_t buckets[] = {1, 0, 2, 3};
	openmetrics_begin(&out, "x_bytes", "counter", "bytes", "What \"is\"\nhere \\");
	openmetrics_add(&out, labels, 2, UINT64_MAX);
	openmetrics_begin(&out, "x_up", "gauge", "", "h");
	openmetrics_add(&out, NULL, 0, 1);
	openmetrics_begin(&out, "x_busy_seconds", "counter", "seconds", "h");
	openmetrics_add_ns(&out, labels + 1, 1, 1500000001);
	openmetrics_begin(&out, "x_build", "info", "", "h");
	openmetrics_add(&out, labels + 1, 1, 1);
	openmetrics_begin(&out, "x_seconds", "histogram", "seconds", "h");
	openmetrics_add_histogram(
		&out, labels + 1, 1, &(struct openmetrics_histogram){buckets, 4, 10, true, 3000000000});
	openmetrics_begin(&out, "y_bytes", "histogram", "bytes", "h");
	openmetrics_add_histogram(&out, NULL, 0, &(struct openmetrics_histogram){buckets, 2, 3, false, 9});
	openmetrics_end(&out);
	assert_int_equal(fclose(out.file), 0);
	return text;
}

#define HISTOGRAMS                                                                                           \
	"# HELP x_seconds h\n"                                                                               \
	"x_seconds_bucket{node=\"0\",le=\"0.000001024\"} 1\n"                                                \
	"x_seconds_bucket{node=\"0\",le=\"0.000002048\"} 1\n"                                                \
	"x_seconds_bucket{node=\"0\",le=\"0.000004096\"} 3\n"                                                \
	"x_seconds_bucket{node=\"0\",le=\"+Inf\"} 6\n"                                                       \
	"x_seconds_count{node=\"0\"} 6\n"                                                                    \
	"x_seconds_sum{node=\"0\"} 3.0\n"

#define LAST                                                                                                 \
	"# HELP y_bytes h\n"                                                                                 \
	"y_bytes_bucket{le=\"8.0\"} 1\n"                                                                     \
	"y_bytes_bucket{le=\"+Inf\"} 1\n"                                                                    \
	"y_bytes_count 1\n"                                                                                  \
	"y_bytes_sum 9\n"

static void test_openmetrics(void **state)
{
	assert_string_equal(write_all(false),
		"# TYPE x_bytes counter\n"
		"# UNIT x_bytes bytes\n"
		"# HELP x_bytes What \"is\"\\nhere \\\\\n"
		"x_bytes_total{pool=\"a\\\"b\\\\c\\nd\",node=\"0\"} 18446744073709551615\n"
		"# TYPE x_up gauge\n"
		"# HELP x_up h\n"
		"x_up 1\n"
		"# TYPE x_busy_seconds counter\n"
		"# UNIT x_busy_seconds seconds\n"
		"# HELP x_busy_seconds h\n"
		"x_busy_seconds_total{node=\"0\"} 1.500000001\n"
		"# TYPE x_build info\n"
		"# HELP x_build h\n"
		"x_build_info{node=\"0\"} 1\n"
		"# TYPE x_seconds histogram\n"
		"# UNIT x_seconds seconds\n" HISTOGRAMS "# TYPE y_bytes histogram\n"
		"# UNIT y_bytes bytes\n" LAST "# EOF\n");
}

static void test_text(void **state)
{
	assert_string_equal(write_all(true),
		"# TYPE x_bytes_total counter\n"
		"# HELP x_bytes_total What \"is\"\\nhere \\\\\n"
		"x_bytes_total{pool=\"a\\\"b\\\\c\\nd\",node=\"0\"} 18446744073709551615\n"
		"# TYPE x_up gauge\n"
		"# HELP x_up h\n"
		"x_up 1\n"
		"# TYPE x_busy_seconds_total counter\n"
		"# HELP x_busy_seconds_total h\n"
		"x_busy_seconds_total{node=\"0\"} 1.500000001\n"
		"# TYPE x_build_info gauge\n"
		"# HELP x_build_info h\n"
		"x_build_info{node=\"0\"} 1\n"
		"# TYPE x_seconds histogram\n" HISTOGRAMS "# TYPE y_bytes histogram\n" LAST);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_openmetrics),
		cmocka_unit_test(test_text),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
