/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_preview.c - what would come of a request. */
#include "asker.h"

static void expect_plan(uint64_t pages, uint32_t flags, int64_t timeout_ms, uint32_t kind, uint64_t ready)
{
	assert_int_equal(ask_flags(&root, HPZ_OP_PLAN, pages, flags, timeout_ms), REQUEST_REPLIED);
	harness_expect_ok(&out, HPZ_OP_PLAN, 3);
	const struct hpz_wire_planned *planned = HARNESS_PAYLOAD(&out);
	bool is_given = kind < HPZ_PLAN_WAIT;
	assert_int_equal(planned->size, sizeof *planned);
	assert_int_equal(planned->kind, kind);
	assert_int_equal(planned->asked, pages * STORE_PAGE);
	assert_int_equal(planned->given, is_given ? pages * STORE_PAGE : 0);
	assert_int_equal(planned->ready, ready * STORE_PAGE);
	assert_int_equal(planned->ready + planned->zeroed, planned->given);
	assert_int_equal(planned->from_free + planned->from_dirty + planned->from_clean, planned->zeroed);
	assert_int_equal(planned->error, kind == HPZ_PLAN_REFUSE ? HPZ_ERR_NO_MEMORY : 0);
	assert_true(strcmp(planned->pool, "p") == 0 && planned->text[0] != '\0');
}

static void test_plan(void **state)
{
	harness_put_clean(pool, 4, 1);
	harness_put_clean(pool, 1, 6);
	expect_plan(1, 0, 0, HPZ_PLAN_EXACT, 1);
	expect_plan(5, 0, 0, HPZ_PLAN_TRIM, 5);
	expect_plan(9, 0, 0, HPZ_PLAN_EXTEND, 6);
	expect_plan(9, HPZ_LEASE_SEGMENTS, 0, HPZ_PLAN_SEVERAL, 9);
	expect_plan(11, 0, 0, HPZ_PLAN_REFUSE, 0);
	expect_plan(11, 0, 5, HPZ_PLAN_WAIT, 0);
	/* Nothing was done, and nobody waits. */
	assert_int_equal(pool->segments[SEGMENT_CLEAN], 5);
	assert_int_equal(pool->waiting, 0);
	assert_true(list_is_empty(&harness.requests.waiting));
	ask_flags(&root, HPZ_OP_PLAN, 13, 0, 0);
	harness_expect_error(&out, HPZ_OP_PLAN, 3, HPZ_ERR_TOO_LARGE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST_POOL(test_plan),
	};
	return cmocka_run_group_tests_name("preview", tests, NULL, NULL);
}
