/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_events.c - the earliest first, and of the same time in the order they were asked for. */
#include "temp.h"
#include "dice.h"
#include "events.h"

#define EVENTS 200

static int arg_count;
static char **args;

static void test_order(void **state)
{
	struct events events = {0};
	struct event event;
	int places[4];

	assert_false(events_take(&events, UINT64_MAX, &event));
	for (int i = 0; i < 4; i++)
		assert_int_equal(events_add(&events, (uint64_t)(i == 3 ? 1 : 5), i, &places[i]), 0);
	assert_false(events_take(&events, 0, &event));
	static const int order[] = {3, 0, 1, 2};
	for (size_t i = 0; i < ARRAY_SIZE(order); i++) {
		assert_true(events_take(&events, 5, &event));
		assert_int_equal(event.kind, order[i]);
		assert_ptr_equal(event.what, &places[order[i]]);
		assert_int_equal(event.time_ns, order[i] == 3 ? 1 : 5);
	}
	assert_false(events_take(&events, UINT64_MAX, &event));
	events_deinit(&events);
}

/* Nothing is lost, nothing comes too early or out of order. */
static void check_random(uint64_t seed, void *user)
{
	struct events events = {0};
	struct event event, last = {0};
	struct dice dice;
	uint64_t now_ns = 0;
	size_t added = 0, taken = 0;

	dice_init(&dice, seed);
	while (taken < EVENTS) {
		for (uint64_t n = dice_roll(&dice, 4); n > 0 && added < EVENTS; n--, added++)
			assert_int_equal(events_add(&events, now_ns + dice_roll(&dice, 50), 0, NULL), 0);
		now_ns += dice_roll(&dice, 10);
		while (events_take(&events, now_ns, &event)) {
			if (event.time_ns > now_ns || event.time_ns < last.time_ns ||
				(taken > 0 && event.time_ns == last.time_ns && event.number < last.number))
				fail_msg("seed %" PRIu64 ": out of order", seed);
			last = event;
			taken++;
		}
	}
	assert_int_equal(events.count, 0);
	events_deinit(&events);
}

static void test_random(void **state)
{
	dice_for_each_seed(arg_count, args, 50, check_random, NULL);
}

int main(int argc, char **argv)
{
	arg_count = argc;
	args = argv;
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_order),
		cmocka_unit_test(test_random),
	};
	return cmocka_run_group_tests_name("events", tests, NULL, NULL);
}
