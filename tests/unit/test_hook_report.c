/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_hook_report.c - all that a worker says comes, also from one that dies or is late. */
#include "temp.h"

#include <syslog.h>

#include "hook_report.h"

static int fds[2];
static struct hook_report report;
static struct hook_result result;

static int setup(void **state)
{
	assert_int_equal(pipe(fds), 0);
	report = (struct hook_report){.fd = fds[1], .name = "web"};
	result = (struct hook_result){.count = 0};
	return 0;
}

static int teardown(void **state)
{
	close(fds[0]);
	close_fd(fds[1]);
	return 0;
}

static void test_whole(void **state)
{
	hook_report_configured(&report, 60000);
	hook_report_read(&report, true);
	hook_report_note(&report, LOG_INFO, "its memory is lease %d", 7);
	hook_report_note(&report, LOG_WARNING, "two\nlines");
	hook_report_done(&report);
	hook_report_receive(fds[0], clock_get_ns(CLOCK_MONOTONIC), 60000, &result);
	assert_true(result.is_configured && result.is_read && result.refuses && result.is_done);
	assert_false(result.is_failed);
	assert_int_equal(result.deadline_ms, 60000);
	assert_string_equal(result.name, "web");
	assert_int_equal(result.count, 2);
	assert_string_equal(result.notes[0].text, "domain web: its memory is lease 7");
	assert_int_equal(result.notes[0].priority, LOG_INFO);
	assert_string_equal(result.notes[1].text, "domain web: two lines");
	assert_int_equal(result.notes[1].priority, LOG_WARNING);
}

/* It dies in the middle: what it has said counts, and it is not done. */
static void test_dead(void **state)
{
	hook_report_read(&report, false);
	hook_report_refuse(&report, "hpz: no");
	fds[1] = close_fd(fds[1]);
	hook_report_receive(fds[0], clock_get_ns(CLOCK_MONOTONIC), 60000, &result);
	assert_false(result.is_done);
	assert_false(result.is_configured);
	assert_true(result.is_failed);
	assert_true(result.notes[0].is_refusal);
	assert_string_equal(result.notes[0].text, "hpz: no");
}

/* The deadline it names itself is the one that counts; that one is over. */
static void test_late(void **state)
{
	hook_report_configured(&report, 0);
	hook_report_receive(fds[0], clock_get_ns(CLOCK_MONOTONIC), 60000, &result);
	assert_true(result.is_configured);
	assert_false(result.is_done);
}

static void test_many(void **state)
{
	for (size_t i = 0; i < HOOK_REPORT_NOTES + 5; i++)
		hook_report_note(&report, LOG_INFO, "%zu", i);
	hook_report_done(&report);
	hook_report_receive(fds[0], clock_get_ns(CLOCK_MONOTONIC), 60000, &result);
	assert_true(result.is_done);
	assert_int_equal(result.count, HOOK_REPORT_NOTES);
	hook_report_add(&result, LOG_ERR, true, "one more");
	assert_true(result.is_failed); /* also without a place */
}

/* A name and a text as long as can be. */
static void test_long(void **state)
{
	char name[256], text[2000];

	memset(name, 'n', sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	memset(text, 't', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	report.name = name;
	hook_report_read(&report, false);
	hook_report_note(&report, LOG_INFO, "%s", text);
	hook_report_done(&report);
	hook_report_receive(fds[0], clock_get_ns(CLOCK_MONOTONIC), 60000, &result);
	assert_true(result.is_done);
	assert_string_equal(result.name, name);
	assert_int_equal(strncmp(result.notes[0].text, "domain nnn", 10), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_whole, setup, teardown),
		cmocka_unit_test_setup_teardown(test_dead, setup, teardown),
		cmocka_unit_test_setup_teardown(test_late, setup, teardown),
		cmocka_unit_test_setup_teardown(test_many, setup, teardown),
		cmocka_unit_test_setup_teardown(test_long, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
