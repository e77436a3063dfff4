/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_change.c - a lease gets another size. */
#include "asker.h"

#include <sys/stat.h>

static uint64_t make_confirmed(uint64_t pages)
{
	struct hpz_wire_ack ack = {.size = sizeof ack};

	assert_int_equal(ask(harness_make_lease(&in, 3, pages, 0)), REQUEST_REPLIED);
	ack.id = expect_leased(&out, 3, pages);
	assert_int_equal(ask(harness_make(&in, HPZ_OP_ACK, 4, &ack, sizeof ack)), REQUEST_NO_REPLY);
	return ack.id;
}

static enum request_outcome change_to(
	const struct request_peer *peer, uint64_t id, uint64_t pages, uint32_t known, int64_t timeout_ms)
{
	struct hpz_wire_change change = {.size = sizeof change,
		.id = id,
		.bytes = pages * STORE_PAGE,
		.known = known,
		.timeout_ms = timeout_ms};
	return ask_as(SESSION(1), peer, harness_make(&in, HPZ_OP_CHANGE, 5, &change, sizeof change));
}

static const struct hpz_wire_changed *expect_changed(
	const struct message *message, uint64_t id, uint64_t pages, uint32_t total, uint32_t segments)
{
	const struct hpz_wire_changed *changed = HARNESS_PAYLOAD(message);
	const struct hpz_wire_segment *segment = (const void *)(changed + 1);
	struct stat st;

	harness_expect_ok(message, HPZ_OP_CHANGE, 5);
	assert_true(changed->id == id && changed->given == pages * STORE_PAGE && changed->total == total &&
		    changed->segments == segments);
	assert_int_equal(
		message->length, sizeof(struct hpz_wire_head) + sizeof *changed + segments * sizeof *segment);
	for (uint32_t i = 0; i < segments; i++)
		assert_int_equal(stat(segment[i].path, &st), 0);
	return changed;
}

static void test_grow(void **state)
{
	harness_put_clean(pool, 1, 1);
	harness_put_clean(pool, 1, 8);
	uint64_t id = make_confirmed(1);
	assert_int_equal(change_to(&knower, id, 3, 1, 0), REQUEST_REPLIED);
	const struct hpz_wire_changed *changed = expect_changed(&out, id, 3, 2, 1);
	assert_true(changed->ready == 2 * STORE_PAGE && changed->zeroed == 0 && changed->returning == 0);
	/* The answer was lost: the same again; and whoever has nothing gets all of it. */
	assert_int_equal(change_to(&knower, id, 3, 1, 0), REQUEST_REPLIED);
	assert_int_equal(expect_changed(&out, id, 3, 2, 1)->ready, 0);
	assert_int_equal(change_to(&knower, id, 3, 0, 0), REQUEST_REPLIED);
	expect_changed(&out, id, 3, 2, 2);
	assert_int_equal(change_to(&knower, id, 3, 77, 0), REQUEST_REPLIED);
	expect_changed(&out, id, 3, 2, 0);
	assert_int_equal(harness.leases.count, 1);
	assert_int_equal(lease_find(&harness.leases, id)->asked, 3 * STORE_PAGE);
	/* Nothing is clean, and it does not wait: it has what it had. */
	assert_int_equal(change_to(&root, id, 9, 2, 0), REQUEST_REPLIED);
	harness_expect_error(&out, HPZ_OP_CHANGE, 5, HPZ_ERR_NO_MEMORY);
	assert_int_equal(change_to(&root, id, 3, 77, 0), REQUEST_REPLIED);
	expect_changed(&out, id, 3, 2, 0);
}

static void test_grow_waits(void **state)
{
	struct hpz_wire_release release = {.size = sizeof release};

	harness_put_clean(pool, 1, 1);
	uint64_t id = make_confirmed(1);
	assert_int_equal(change_to(&root, id, 3, 1, -1), REQUEST_WAITS);
	assert_int_equal(pool->waiting, 1);
	harness_put_clean(pool, 1, 2);
	expect_changed(wait_reply(1), id, 3, 2, 1);
	/* It gets another size while it waits for more; then it ends. */
	assert_int_equal(change_to(&root, id, 6, 2, -1), REQUEST_WAITS);
	assert_int_equal(change_to(&root, id, 2, 2, 0), REQUEST_REPLIED);
	expect_changed(&out, id, 2, 2, 0);
	harness_put_clean(pool, 1, 3);
	harness_expect_error(wait_reply(2), HPZ_OP_CHANGE, 5, HPZ_ERR_BUSY);
	assert_int_equal(change_to(&root, id, 6, 2, -1), REQUEST_WAITS);
	release.id = id;
	assert_int_equal(
		ask_as(SESSION(2), &root, harness_make(&in, HPZ_OP_RELEASE, 6, &release, sizeof release)),
		REQUEST_REPLIED);
	harness_put_clean(pool, 1, 4);
	harness_expect_error(wait_reply(3), HPZ_OP_CHANGE, 5, HPZ_ERR_ENDED);
	assert_int_equal(lease_find(&harness.leases, id)->segment_count, 2);
}

/* What is to be added vanished from the disk. */
static void test_grow_by_what_vanished(void **state)
{
	char name[SEGMENT_NAME_MAX];

	harness_put_clean(pool, 2, 1);
	uint64_t id = make_confirmed(1);
	pool_get_segment_name(pool_find_clean(pool, 1), name);
	assert_int_equal(segment_unlink(&pool->dirs, SEGMENT_CLEAN, name), 0);
	assert_int_equal(change_to(&root, id, 2, 1, 0), REQUEST_REPLIED);
	harness_expect_error(&out, HPZ_OP_CHANGE, 5, HPZ_ERR_NO_MEMORY);
	assert_int_equal(lease_find(&harness.leases, id)->segment_count, 1);
	assert_int_equal(lease_find(&harness.leases, id)->firm, 0);
}

static bool is_cut(void *id)
{
	return !lease_find(&harness.leases, *(uint64_t *)id)->segments[0]->is_busy;
}

static void test_shrink(void **state)
{
	harness_put_clean(pool, 3, 1);
	harness_put_clean(pool, 1, 8);
	uint64_t id = make_confirmed(8);
	assert_int_equal(change_to(&root, id, 9, 1, 0), REQUEST_REPLIED);
	expect_changed(&out, id, 9, 2, 1);
	assert_int_equal(change_to(&root, id, 10, 2, 0), REQUEST_REPLIED);
	expect_changed(&out, id, 10, 3, 1);
	/* Two segments and the end of the first. */
	assert_int_equal(change_to(&root, id, 3, 3, 0), REQUEST_REPLIED);
	uint64_t rest_id = expect_changed(&out, id, 3, 1, 0)->returning;
	struct lease *rest = lease_find(&harness.leases, rest_id);
	assert_true(rest && rest->state == HPZ_STATE_RETURNING && rest->segment_count == 2);
	assert_int_equal(lease_find(&harness.leases, id)->segments[0]->given, 3);
	assert_int_equal(lease_get_given(rest), 2 * STORE_PAGE);
	/* Its links would be in the way. */
	assert_int_equal(change_to(&root, id, 4, 1, 0), REQUEST_REPLIED);
	harness_expect_error(&out, HPZ_OP_CHANGE, 5, HPZ_ERR_BUSY);
	/* Only its end: nothing that returns. A tail that is being cut is left alone. */
	assert_int_equal(change_to(&root, id, 2, 1, 0), REQUEST_REPLIED);
	harness_expect_error(&out, HPZ_OP_CHANGE, 5, HPZ_ERR_BUSY);
	harness_release();
	harness_run_until(is_cut, &id);
	assert_int_equal(change_to(&root, id, 2, 1, 0), REQUEST_REPLIED);
	assert_int_equal(expect_changed(&out, id, 2, 1, 0)->returning, 0);
}

static void test_change_refused(void **state)
{
	struct config_access *section = &harness.config.access[0];

	harness_put_clean(pool, 2, 1);
	assert_int_equal(change_to(&root, 4711, 1, 0, 0), REQUEST_REPLIED);
	harness_expect_error(&out, HPZ_OP_CHANGE, 5, HPZ_ERR_UNKNOWN_LEASE);
	assert_int_equal(change_to(&root, 4711, 0, 0, 0), REQUEST_REPLIED);
	harness_expect_error(&out, HPZ_OP_CHANGE, 5, HPZ_ERR_INVALID);
	assert_int_equal(ask(harness_make_lease(&in, 3, 1, 0)), REQUEST_REPLIED);
	assert_int_equal(change_to(&root, expect_leased(&out, 3, 1), 2, 0, 0), REQUEST_REPLIED);
	harness_expect_error(&out, HPZ_OP_CHANGE, 5, HPZ_ERR_BUSY);
	uint64_t id = make_confirmed(1);
	*section =
		(struct config_access){.name = "a", .allow = CONFIG_ALLOW_LEASE, .users = {.is_all = true}};
	harness.config.access_count = 1;
	for (uint64_t pages = 1; pages < 4; pages++) {
		assert_int_equal(change_to(&somebody, id, pages, 0, 0), REQUEST_REPLIED);
		assert_non_null(
			strstr(harness_expect_error(&out, HPZ_OP_CHANGE, 5, HPZ_ERR_DENIED), "uid 0"));
	}
	assert_int_equal(change_to(&root, id, 14, 1, 0), REQUEST_REPLIED);
	harness_expect_error(&out, HPZ_OP_CHANGE, 5, HPZ_ERR_TOO_LARGE);
	assert_int_equal(lease_find(&harness.leases, id)->segment_count, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST_POOL(test_grow),
		TEST_POOL(test_grow_waits),
		TEST_POOL(test_grow_by_what_vanished),
		TEST_POOL(test_shrink),
		TEST_POOL(test_change_refused),
	};
	return cmocka_run_group_tests_name("change", tests, NULL, NULL);
}
