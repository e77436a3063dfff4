/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_queue.c - whose turn it is. */
#include "asker.h"

/* In order of arrival; one that asks for less may pass, but not with what another waits for. */
static void test_lease_order(void **state)
{
	assert_int_equal(ask_as(SESSION(1), &root, harness_make_lease(&in, 1, 8, -1)), REQUEST_WAITS);
	assert_int_equal(ask_as(SESSION(2), &root, harness_make_lease(&in, 2, 1, -1)), REQUEST_WAITS);
	assert_int_equal(ask_as(SESSION(3), &root, harness_make_lease(&in, 3, 1, -1)), REQUEST_WAITS);
	harness_turn();
	assert_int_equal(pool->waiting, 3);
	assert_int_equal(pool->waiting_pages, 8);
	harness_put_clean(pool, 1, 1);
	expect_leased(wait_reply(1), 2, 1);
	/* A newcomer does not pass those who wait for the same. */
	assert_int_equal(ask_as(SESSION(4), &root, harness_make_lease(&in, 4, 1, 0)), REQUEST_REPLIED);
	harness_expect_error(&out, HPZ_OP_LEASE, 4, HPZ_ERR_NO_MEMORY);
	harness_put_clean(pool, 1, 8);
	expect_leased(wait_reply(2), 1, 8);
	assert_int_equal(sent.count, 2);
	harness_put_clean(pool, 1, 1);
	expect_leased(wait_reply(3), 3, 1);
}

static enum request_outcome ask_priority(
	unsigned session, const struct request_peer *peer, uint64_t id, int32_t priority, int64_t timeout_ms)
{
	struct hpz_wire_lease lease = harness_get_lease(1, timeout_ms);
	lease.priority = priority;
	if (peer == &somebody) /* who gets nothing here: a chown is root's */
		lease.owner_uid = lease.owner_gid = -1;
	return ask_as(SESSION(session), peer, harness_make(&in, HPZ_OP_LEASE, id, &lease, sizeof lease));
}

/* The highest first, in order of arrival within one. */
static void test_priority(void **state)
{
	static const int32_t priorities[] = {0, -5, 7, 7, 1000, 0};
	static const uint64_t order[] = {5, 3, 4, 1, 6, 2};

	for (size_t i = 0; i < ARRAY_SIZE(priorities); i++)
		assert_int_equal(
			ask_priority((unsigned)i + 1, &root, i + 1, priorities[i], -1), REQUEST_WAITS);
	for (size_t i = 0; i < ARRAY_SIZE(order); i++) {
		harness_put_clean(pool, 1, 1);
		expect_leased(wait_reply(i + 1), order[i], 1);
	}
	assert_int_equal(pool->waiting, 0);
}

/* One that has just come is before those of a lower priority, not before its like. */
static void test_priority_newcomer(void **state)
{
	assert_int_equal(ask_priority(1, &root, 1, 3, -1), REQUEST_WAITS);
	harness_put_clean(pool, 1, 1);
	assert_int_equal(ask_priority(2, &root, 2, 3, 0), REQUEST_REPLIED);
	harness_expect_error(&out, HPZ_OP_LEASE, 2, HPZ_ERR_NO_MEMORY);
	assert_int_equal(ask_priority(2, &root, 3, 4, 0), REQUEST_REPLIED);
	expect_leased(&out, 3, 1);
	harness_put_clean(pool, 1, 1);
	expect_leased(wait_reply(1), 1, 1);
}

/* A low one is not passed for ever: neither by who comes and is served at once, nor by who waits. */
static void test_priority_ages(void **state)
{
	assert_int_equal(ask_priority(1, &root, 1, -1, -1), REQUEST_WAITS);
	for (unsigned i = 0; i < 8; i++) {
		harness_put_clean(pool, 1, 1);
		assert_int_equal(ask_priority(2, &root, 2, 9, 0), REQUEST_REPLIED);
		expect_leased(&out, 2, 1);
	}
	for (unsigned i = 0; i < 8; i++) {
		assert_int_equal(ask_priority(2, &root, 3, 9, -1), REQUEST_WAITS);
		harness_put_clean(pool, 1, 1);
		expect_leased(wait_reply(i + 1), 3, 1);
	}
	assert_int_equal(ask_priority(3, &root, 4, 1000, -1), REQUEST_WAITS);
	harness_put_clean(pool, 1, 1);
	assert_int_equal(ask_priority(2, &root, 5, 1000, 0), REQUEST_REPLIED);
	harness_expect_error(&out, HPZ_OP_LEASE, 5, HPZ_ERR_NO_MEMORY);
	expect_leased(wait_reply(9), 1, 1);
	harness_put_clean(pool, 1, 1);
	expect_leased(wait_reply(10), 4, 1);
}

static void test_priority_allowed(void **state)
{
	struct config_access *section = &harness.config.access[0];

	*section = (struct config_access){.name = "a",
		.allow = CONFIG_ALLOW_LEASE,
		.users = {.is_all = true},
		.quota_bytes = CONFIG_NO_LIMIT,
		.quota_leases = CONFIG_NO_LIMIT,
		.max_connections = CONFIG_NO_LIMIT,
		.max_requests = CONFIG_NO_LIMIT};
	harness.config.access_count = 1;
	assert_int_equal(ask_priority(1, &somebody, 1, 1, -1), REQUEST_REPLIED);
	assert_non_null(
		strstr(harness_expect_error(&out, HPZ_OP_LEASE, 1, HPZ_ERR_DENIED), "at most 0, not 1"));
	section->max_priority = 5;
	assert_int_equal(ask_priority(1, &somebody, 2, 6, -1), REQUEST_REPLIED);
	harness_expect_error(&out, HPZ_OP_LEASE, 2, HPZ_ERR_DENIED);
	assert_int_equal(ask_priority(1, &somebody, 3, 5, -1), REQUEST_WAITS);
	assert_int_equal(ask_priority(2, &somebody, 4, -1000, -1), REQUEST_WAITS);
	section->max_priority = 0;
	section->allow |= CONFIG_ALLOW_ADMIN;
	assert_int_equal(ask_priority(3, &somebody, 5, 1000, -1), REQUEST_WAITS);
}

static void test_lease_newcomer(void **state)
{
	/* Somebody waits for one page; the one that comes is not for whoever asks next. */
	assert_int_equal(ask_as(SESSION(1), &root, harness_make_lease(&in, 1, 1, -1)), REQUEST_WAITS);
	harness_put_clean(pool, 1, 1);
	assert_int_equal(ask_as(SESSION(2), &root, harness_make_lease(&in, 2, 1, 0)), REQUEST_REPLIED);
	harness_expect_error(&out, HPZ_OP_LEASE, 2, HPZ_ERR_NO_MEMORY);
	expect_leased(wait_reply(1), 1, 1);
	assert_ptr_equal(sent.sessions[0], SESSION(1));
}

/* A large one that waits is passed by small ones, but not for ever. */
static void test_passed(void **state)
{
	if (geteuid() != 0)
		return; /* only root opens a file of mode 0 again */
	unsigned passed = 0;
	assert_int_equal(ask_as(SESSION(2), &root, harness_make_lease(&in, 1, 8, -1)), REQUEST_WAITS);
	for (unsigned i = 0; i < 20; i++) {
		harness_put_clean(pool, 1, 1);
		ask(harness_make_lease(&in, 3, 1, 0));
		passed += harness_get_head(&out).error == 0;
	}
	assert_int_equal(passed, 16);
	harness_expect_error(&out, HPZ_OP_LEASE, 3, HPZ_ERR_NO_MEMORY);
	/* What has come together meanwhile is the large one's. */
	harness_put_clean(pool, 4, 1);
	harness_release();
	expect_leased(wait_reply(1), 1, 8);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST_POOL(test_lease_order),
		TEST_POOL(test_priority),
		TEST_POOL(test_priority_newcomer),
		TEST_POOL(test_priority_ages),
		TEST_POOL(test_priority_allowed),
		TEST_POOL(test_lease_newcomer),
		TEST_POOL(test_passed),
	};
	return cmocka_run_group_tests_name("queue", tests, NULL, NULL);
}
