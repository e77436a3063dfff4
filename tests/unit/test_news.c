/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_news.c - the last things that happened: numbers without a gap, what is forgotten, who hears of it. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "log.h"
#include "news.h"
#include "proto.h"
#include "report.h"

static unsigned heard;

static void on_added(void *user)
{
	heard++;
}

static int setup(void **state)
{
	heard = 0;
	news_start(on_added, NULL);
	return 0;
}

static int teardown(void **state)
{
	news_stop();
	return 0;
}

static void add(uint32_t kind, uint64_t lease, uint32_t uid)
{
	news_add(&(struct news){.kind = kind, .lease = lease, .uid = uid});
}

static void test_ring(void **state)
{
	struct news event;

	assert_false(news_get_next(0, &event));
	for (uint64_t i = 1; i <= NEWS_KEPT; i++)
		add(HPZ_EVENT_GRANTED, i, 5);
	assert_int_equal(news_get_last(), NEWS_KEPT);
	assert_int_equal(heard, NEWS_KEPT);
	assert_true(news_get_next(0, &event));
	assert_true(event.sequence == 1 && event.lease == 1 && event.time_ns > 0);
	/* One more: the first is forgotten. */
	add(HPZ_EVENT_ENDED, 7, 5);
	assert_true(news_get_next(0, &event));
	assert_int_equal(event.sequence, 2);
	assert_true(news_get_next(NEWS_KEPT, &event));
	assert_true(event.sequence == NEWS_KEPT + 1 && event.kind == HPZ_EVENT_ENDED);
	assert_false(news_get_next(NEWS_KEPT + 1, &event));
	assert_false(news_get_next(UINT64_MAX, &event));
}

static void *add_elsewhere(void *unused)
{
	log_warning("a line from elsewhere");
	return NULL;
}

/* Lines of the log are events, from any thread; whoever is to hear of it does in its own thread. */
static void test_lines(void **state)
{
	struct news event;
	pthread_t thread;

	log_info("a line, %d", 1);
	assert_true(news_get_next(0, &event));
	assert_true(event.kind == HPZ_EVENT_LOG && event.level == LOG_LEVEL_INFO && event.uid == UINT32_MAX);
	assert_string_equal(event.text, "a line, 1");
	assert_int_equal(heard, 1);
	news_hush(true);
	log_info("said otherwise");
	news_hush(false);
	log_debug("nobody asked");
	assert_int_equal(news_get_last(), 1);
	assert_int_equal(pthread_create(&thread, NULL, add_elsewhere, NULL), 0);
	pthread_join(thread, NULL);
	assert_int_equal(news_get_last(), 2);
	assert_int_equal(heard, 1);
	news_stop();
	log_info("nobody keeps it");
	assert_int_equal(news_get_last(), 0);
}

/* Pages, what is missed, and who may read what. */
static void test_report(void **state)
{
	static _Alignas(8) unsigned char
		page[sizeof(struct hpz_wire_happened) + 2 * sizeof(struct hpz_wire_event) + 9];
	const struct hpz_wire_happened *head = (const void *)page;
	const struct hpz_wire_event *events = (const void *)(head + 1);

	assert_false(report_has_events(0, -1));
	add(HPZ_EVENT_GRANTED, 11, 5);
	add(HPZ_EVENT_GRANTED, 12, 6);
	add(HPZ_EVENT_LOG, 0, 5);
	add(HPZ_EVENT_ENDED, 11, 5);
	assert_int_equal(report_events(0, -1, page, sizeof page), sizeof *head + 2 * sizeof *events);
	assert_true(head->cursor == 2 && head->last == 4 && head->missed == 0 && events[1].lease == 12);
	assert_int_equal(report_events(2, -1, page, sizeof page), sizeof *head + 2 * sizeof *events);
	assert_true(head->cursor == 4 && events[0].kind == HPZ_EVENT_LOG);
	/* Its own, without the log. */
	report_events(0, 5, page, sizeof page);
	assert_true(head->records == 2 && events[0].lease == 11 && events[1].kind == HPZ_EVENT_ENDED);
	assert_int_equal(head->cursor, 4);
	assert_true(report_has_events(1, 5));
	assert_false(report_has_events(4, 5));
	assert_false(report_has_events(2, 6));
	report_events(0, 7, page, sizeof page);
	assert_true(head->records == 0 && head->cursor == 4);
	/* A number of an earlier hpzd. */
	assert_true(report_has_events(99, -1));
	report_events(99, -1, page, sizeof page);
	assert_int_equal(events[0].sequence, 1);
	for (unsigned i = 0; i < NEWS_KEPT; i++)
		add(HPZ_EVENT_GRANTED, 1, 5);
	report_events(2, -1, page, sizeof page);
	assert_true(head->missed == 2 && events[0].sequence == 5);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_ring, setup, teardown),
		cmocka_unit_test_setup_teardown(test_lines, setup, teardown),
		cmocka_unit_test_setup_teardown(test_report, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
