/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_metrics.c - counters and histograms: the table keeps its own rules, and each number goes where it
 * belongs. */
#include "temp.h"
#include "metrics.h"
#include "proto.h"

#include <ctype.h>

static int reset(void **state)
{
	metrics_reset();
	return 0;
}

/* The series of that name and label value. */
static struct metrics_series find(const char *name, const char *value)
{
	struct metrics_series series;
	for (size_t i = 0; metrics_get_series(i, &series); i++) {
		if (strcmp(series.name, name) == 0 && strcmp(series.label_value, value) == 0)
			return series;
	}
	fail_msg("there is no %s of %s", name, value);
	return series;
}

static bool ends_with(const char *text, const char *end)
{
	size_t length = strlen(text);
	return length >= strlen(end) && strcmp(text + length - strlen(end), end) == 0;
}

static void expect_name(const char *name, size_t capacity)
{
	assert_true(strlen(name) < capacity);
	for (const char *c = name; *c; c++)
		assert_true(islower((unsigned char)*c) || isdigit((unsigned char)*c) || *c == '_');
}

/* As OpenMetrics wants them: the unit ends the name, and what is counted gets its _total from who prints. */
static void test_table(void **state)
{
	static const char *const units[] = {[HPZ_METRIC_BYTES] = "_bytes",
		[HPZ_METRIC_NS] = "_seconds",
		[HPZ_METRIC_BYTES_PER_S] = "_bytes_per_second"};
	struct metrics_series series, before = {.name = ""};
	size_t count = 0, families = 0;
	for (; metrics_get_series(count, &series); count++) {
		bool is_same = strcmp(series.name, before.name) == 0;
		families += !is_same;
		assert_true(strncmp(series.name, "hpz_", 4) == 0 && !ends_with(series.name, "_total"));
		expect_name(series.name, HPZ_WIRE_NAME);
		expect_name(series.label, HPZ_WIRE_NAME);
		expect_name(series.label_value, HPZ_WIRE_NAME);
		assert_true(series.help[0] && strlen(series.help) < HPZ_WIRE_METRIC_HELP);
		assert_true(!series.label[0] == !series.label_value[0]);
		if (series.unit != HPZ_METRIC_NONE)
			assert_true(ends_with(series.name, units[series.unit]));
		assert_true(!series.histogram == (series.kind == HPZ_METRIC_COUNTER));
		if (series.histogram)
			assert_in_range(series.bucket_count, 2, HPZ_METRIC_BUCKETS);
		assert_int_equal(series.value, 0);
		if (is_same)
			assert_string_not_equal(series.label_value, before.label_value);
		before = series;
	}
	assert_int_equal(families, METRICS_FAMILY_COUNT);
	/* Nothing here grows with the host or its tenants. */
	assert_in_range(count, families, 200);
	assert_false(metrics_get_series(count + 1, &series));
	assert_false(metrics_get_series(SIZE_MAX, &series));
}

static void test_counters(void **state)
{
	metrics_add(METRICS_REQUESTS, HPZ_OP_LEASE, 1);
	metrics_add(METRICS_REQUESTS, HPZ_OP_LEASE, 2);
	metrics_add(METRICS_LEASES_ENDED, METRICS_NO_LABEL, 5);
	assert_int_equal(find("hpz_requests", "lease").value, 3);
	assert_int_equal(find("hpz_requests", "status").value, 0);
	assert_int_equal(find("hpz_leases_ended", "").value, 5);
	/* What there is no word for is counted nowhere, and nowhere else. */
	metrics_add(METRICS_REQUESTS, HPZ_OP_LAST + 1, 1);
	metrics_add(METRICS_REQUESTS, UINT32_MAX, 1);
	metrics_add(METRICS_REQUESTS, 0, 1);
	metrics_observe(METRICS_LEASE_LATENCY, METRICS_CANCELLED, 1);
	metrics_observe(METRICS_REQUESTS, HPZ_OP_LEASE, 7); /* is no histogram */
	struct metrics_series series;
	uint64_t sum = 0;
	for (size_t i = 0; metrics_get_series(i, &series); i++)
		sum += series.value;
	assert_int_equal(sum, 8);
}

static void expect_bucket(uint64_t ns, size_t bucket)
{
	metrics_reset();
	metrics_observe(METRICS_LEASE_LATENCY, METRICS_GRANTED, ns);
	struct metrics_series series = find("hpz_lease_latency_seconds", "granted");
	assert_int_equal(series.value, 1);
	assert_int_equal(series.histogram->sum, ns);
	assert_int_equal(series.histogram->buckets[bucket], 1);
	assert_int_equal(find("hpz_lease_latency_seconds", "refused").value, 0);
}

static void test_buckets(void **state)
{
	expect_bucket(0, 0);
	expect_bucket(1023, 0);
	expect_bucket(1024, 1);
	expect_bucket(2047, 1);
	expect_bucket(2048, 2);
	expect_bucket(((uint64_t)1 << 40) - 1, 30);
	expect_bucket((uint64_t)1 << 40, 31);
	expect_bucket(UINT64_MAX, 31);
}

static void test_work(void **state)
{
	metrics_add_work(METRICS_CLEAR, (uint64_t)1 << 30, NS_PER_S / 8);
	metrics_add_work(METRICS_CLEAR, 4096, 1000); /* too little to say how fast */
	metrics_add_work(METRICS_FILL, (uint64_t)1 << 30, 0);
	assert_int_equal(find("hpz_worker_bytes", "clear").value, ((uint64_t)1 << 30) + 4096);
	assert_int_equal(find("hpz_worker_busy_seconds", "clear").value, NS_PER_S / 8 + 1000);
	struct metrics_series series = find("hpz_worker_rate_bytes_per_second", "clear");
	assert_int_equal(series.value, 1);
	assert_int_equal(series.histogram->sum, (uint64_t)8 << 30);
	assert_int_equal(series.histogram->buckets[33 + 1 - series.shift], 1);
	assert_int_equal(find("hpz_worker_rate_bytes_per_second", "fill").value, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_table, reset),
		cmocka_unit_test_setup(test_counters, reset),
		cmocka_unit_test_setup(test_buckets, reset),
		cmocka_unit_test_setup(test_work, reset),
	};
	return cmocka_run_group_tests_name("metrics", tests, NULL, NULL);
}
