/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_prover.c - what is known of the proof, from the journal and before a lesson: which source is in force.
 */
#include "temp.h"
#include "prover.h"

#define PAGE ((uint64_t)2 << 20)

static uv_loop_t loop;
static struct crew *crew;
static struct prover *prover;
static unsigned changes;

static void note_change(void *user)
{
	changes++;
}

static int set_up(void **state)
{
	changes = 0;
	uv_loop_init(&loop);
	assert_int_equal(crew_init(&loop, "/bin/false", &crew), 0);
	prover = prover_new(crew, note_change, NULL);
	assert_non_null(prover);
	return 0;
}

static void ignore(void *user)
{
}

static int tear_down(void **state)
{
	prover_close(prover);
	crew_stop(crew, ignore, NULL);
	uv_run(&loop, UV_RUN_DEFAULT);
	prover_free(prover);
	crew_free(crew);
	assert_int_equal(uv_loop_close(&loop), 0);
	return 0;
}

static void test_nothing_known(void **state)
{
	int program = 5;

	assert_int_equal(prover_get_lesson(prover, PAGE), PROVER_LESSON_DUE);
	assert_true(prover_needs_page(prover, PAGE));
	assert_null(prover_find(prover, PAGE, &program));
	assert_int_equal(program, -1);
	assert_string_equal(prover_get_source(prover), "f_setlease");
	assert_string_equal(prover_get_gap(prover), "");
	prover_note_no_lease(prover);
	assert_string_equal(prover_get_source(prover), "none");
}

/* Facts of this boot save the page, but prove nothing without the program. */
static void test_facts_of_the_journal(void **state)
{
	struct journal_facts facts = {sizeof facts, 512, PAGE, 1, 0, 1, 2, 512, 0};
	int program;

	/* Of an hpzd that did not learn all. */
	prover_read_record(prover, JOURNAL_FACTS, &facts, sizeof facts);
	assert_true(prover_needs_page(prover, PAGE));
	facts.unlinked_names = 1;
	prover_read_record(prover, JOURNAL_FACTS, &facts, sizeof facts - 1);
	assert_true(prover_needs_page(prover, PAGE));
	prover_read_record(prover, JOURNAL_STATE, &facts, sizeof facts);
	assert_true(prover_needs_page(prover, PAGE));
	prover_read_record(prover, JOURNAL_FACTS, &facts, sizeof facts);
	assert_false(prover_needs_page(prover, PAGE));
	assert_true(prover_needs_page(prover, PAGE * 512));
	assert_int_equal(prover_get_lesson(prover, PAGE), PROVER_LESSON_DUE);
	assert_null(prover_find(prover, PAGE, &program));
	assert_int_equal(program, -1);
	assert_string_equal(prover_get_source(prover), "f_setlease");
}

/* More page sizes than there is room for cost nothing but their own proof. */
static void test_many_page_sizes(void **state)
{
	for (uint64_t i = 0; i < 20; i++) {
		struct journal_facts facts = {sizeof facts, 1, PAGE << i, 1, 0, 1, 2, 1, 1};
		prover_read_record(prover, JOURNAL_FACTS, &facts, sizeof facts);
	}
	assert_false(prover_needs_page(prover, PAGE));
	assert_true(prover_needs_page(prover, PAGE << 19));
}

static void run_lesson(const struct segment_store *store)
{
	unsigned before = changes;

	prover_learn(prover, store);
	assert_int_equal(prover_get_lesson(prover, PAGE), PROVER_LESSON_RUNNING);
	while (changes == before)
		uv_run(&loop, UV_RUN_ONCE);
}

/* The helper dies over it: that is told, and tried again later. */
static void test_lesson_that_fails(void **state)
{
	struct segment_store store = {
		.page_size = PAGE, .format_fd = open("/", O_RDONLY | O_CLOEXEC), .workers_fd = -1};

	run_lesson(&store);
	assert_int_equal(prover_get_lesson(prover, PAGE), PROVER_LESSON_DUE);
	/* Not at once. */
	prover_learn(prover, &store);
	assert_int_equal(prover_get_lesson(prover, PAGE), PROVER_LESSON_DUE);
	close_fd(store.format_fd);
}

static void test_lesson_goes_on(void **state)
{
	struct segment_store store = {
		.page_size = PAGE, .format_fd = open("/", O_RDONLY | O_CLOEXEC), .workers_fd = -1};

	for (int failure = 1; failure <= 5; failure++) {
		assert_int_equal(prover_get_delay_ms(prover, PAGE), UINT64_MAX);
		assert_string_equal(prover_get_gap(prover), "");
		assert_int_equal(prover_get_lesson(prover, PAGE), PROVER_LESSON_DUE);
		prover_skip_time(prover);
		run_lesson(&store);
	}
	/* Nobody waits for it, status says why, and it is due again by itself: slower each time. */
	for (unsigned failure = 5; failure < 14; failure++) {
		char text[64];
		uint64_t delay_ms = prover_get_delay_ms(prover, PAGE),
			 limit_s = MIN(30ull << (failure - 5), 600ull);

		assert_int_equal(prover_get_lesson(prover, PAGE), PROVER_LESSON_OVER);
		assert_in_range(delay_ms, (limit_s - 20) * 1000, limit_s * 1000 + 1);
		snprintf(text, sizeof text, "failed %u times, tried again in %llu s: ", failure,
			(unsigned long long)limit_s);
		assert_memory_equal(prover_get_gap(prover), text, strlen(text));
		prover_learn(prover, &store);
		assert_int_equal(prover_get_lesson(prover, PAGE), PROVER_LESSON_OVER);
		prover_skip_time(prover);
		assert_int_equal(prover_get_lesson(prover, PAGE), PROVER_LESSON_DUE);
		run_lesson(&store);
	}
	close_fd(store.format_fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_nothing_known, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_facts_of_the_journal, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_many_page_sizes, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_lesson_that_fails, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_lesson_goes_on, set_up, tear_down),
	};

	return cmocka_run_group_tests_name("prover", tests, NULL, NULL);
}
