/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_reserve.c - memory kept for leases to come: who gets it, when it ends, what the journal makes of it.
 */
#include "harness.h"

#include <inttypes.h>

#define SESSION(n) ((struct session *)(uintptr_t)((n)*16))

static struct message in, out;
static struct pool *pool;
static struct {
	size_t count;
	struct message replies[16];
} sent;

static const struct request_peer root = {
	.uid = 0, .gid = 0, .pid = 1, .pidfd = -1, .capabilities = HPZ_WIRE_CAN_ZEROED};
static const struct request_peer alice = {.uid = 1000, .gid = 1000, .pid = 1, .pidfd = -1};
static const struct request_peer bob = {.uid = 1001, .gid = 1001, .pid = 1, .pidfd = -1};

static const struct config_pool config = {
	.name = "p",
	.page_size = STORE_PAGE,
	.pages = 12,
	.max_pages = 12,
	.stock = {{8 * STORE_PAGE, 1}, {STORE_PAGE, 4}},
	.stock_count = 2,
};

static void on_send(struct session *session, struct request_reply *reply)
{
	assert_true(sent.count < ARRAY_SIZE(sent.replies));
	sent.replies[sent.count].length = reply->length;
	memcpy(sent.replies[sent.count++].bytes, reply->bytes, reply->length);
	desk_close_fds(reply);
}

static int setup(void **state)
{
	sent.count = 0;
	harness_open(on_send);
	pool = harness_add_pool(&config);
	harness.config.access[0] = (struct config_access){.name = "a",
		.allow = CONFIG_ALLOW_LEASE,
		.users = {.is_all = true},
		.quota_bytes = 8 * STORE_PAGE,
		.quota_leases = 3,
		.max_connections = CONFIG_NO_LIMIT,
		.max_requests = CONFIG_NO_LIMIT};
	harness.config.access_count = 1;
	return 0;
}

static int teardown(void **state)
{
	harness_close();
	return 0;
}

static enum request_outcome ask(
	const struct request_peer *peer, uint16_t op, const void *payload, size_t size)
{
	const struct message *message = harness_make(&in, op, 3, payload, size);
	enum request_outcome outcome =
		request_handle(&harness.requests, SESSION(1), peer, message->bytes, message->length, 0);
	if (outcome != REQUEST_REPLIED)
		return outcome;
	out.length = harness.requests.reply.length;
	memcpy(out.bytes, harness.requests.reply.bytes, out.length);
	desk_close_fds(&harness.requests.reply);
	return outcome;
}

static enum request_outcome ask_reserve(
	const struct request_peer *peer, uint64_t pages, uint32_t flags, uint64_t ttl_ms, int64_t timeout_ms)
{
	struct hpz_wire_lease wire = {.size = sizeof wire,
		.bytes = pages * STORE_PAGE,
		.node = -1,
		.flags = flags,
		.owner_uid = -1,
		.owner_gid = -1,
		.ttl_ms = ttl_ms,
		.timeout_ms = timeout_ms,
		.label = "arriving"};
	return ask(peer, HPZ_OP_RESERVE, &wire, sizeof wire);
}

static uint64_t expect_reserved(const struct message *message, uint64_t pages)
{
	harness_expect_ok(message, HPZ_OP_RESERVE, 3);
	const struct hpz_wire_reserved *reserved = HARNESS_PAYLOAD(message);
	assert_int_equal(message->length, sizeof(struct hpz_wire_head) + sizeof *reserved);
	assert_int_equal(reserved->given, pages * STORE_PAGE);
	assert_int_equal(reserved->page_size, STORE_PAGE);
	assert_string_equal(reserved->pool, "p");
	return reserved->id;
}

static uint64_t make_reserved(const struct request_peer *peer, uint64_t pages, uint32_t flags)
{
	assert_int_equal(ask_reserve(peer, pages, flags, 60000, 0), REQUEST_REPLIED);
	return expect_reserved(&out, pages);
}

/* A path for whoever runs the test, so that it needs no rights. */
static enum request_outcome ask_lease(const struct request_peer *peer, uint64_t pages, uint64_t reservation,
	uint32_t flags, int64_t timeout_ms)
{
	struct hpz_wire_lease wire = harness_get_lease(pages, timeout_ms);
	wire.reservation = reservation;
	wire.flags = flags;
	return ask(peer, HPZ_OP_LEASE, &wire, sizeof wire);
}

static void expect_lease(const struct message *message, uint64_t pages, uint32_t segments)
{
	harness_expect_ok(message, HPZ_OP_LEASE, 3);
	const struct hpz_wire_leased *leased = HARNESS_PAYLOAD(message);
	assert_int_equal(leased->given, pages * STORE_PAGE);
	assert_int_equal(leased->segments, segments);
}

static void expect_refused(enum request_outcome outcome, uint16_t op, int error, const char *word)
{
	assert_int_equal(outcome, REQUEST_REPLIED);
	const char *text = harness_expect_error(&out, op, 3, error);
	if (!strstr(text, word))
		fail_msg("\"%s\" is not in \"%s\"", word, text);
}

static enum request_outcome ask_unreserve(const struct request_peer *peer, uint64_t id)
{
	struct hpz_wire_release wire = {.size = sizeof wire, .id = id};
	return ask(peer, HPZ_OP_UNRESERVE, &wire, sizeof wire);
}

static bool has_sent(void *wanted)
{
	return sent.count >= *(size_t *)wanted;
}

/* ---- what it keeps ---- */

static void test_kept(void **state)
{
	harness_put_clean(pool, 1, 8);
	uint64_t id = make_reserved(&root, 8, 0);
	assert_int_equal(pool->reserved_pages, 8);
	/* Nobody else gets it, and whoever asks for it does. */
	expect_refused(ask_lease(&root, 1, 0, 0, 0), HPZ_OP_LEASE, HPZ_ERR_NO_MEMORY, "");
	assert_int_equal(ask_lease(&root, 8, id, 0, 0), REQUEST_REPLIED);
	expect_lease(&out, 8, 1);
	assert_int_equal(pool->reserved_pages, 0);
	assert_true(list_is_empty(&harness.requests.reserves.list));
	expect_refused(ask_lease(&root, 1, id, 0, 0), HPZ_OP_LEASE, HPZ_ERR_ENDED, "has ended");
}

/* Several leases until it is used up; the ordinary stock goes before a long segment is cut. */
static void test_partly_used(void **state)
{
	harness_put_clean(pool, 1, 8);
	harness_put_clean(pool, 1, 1);
	uint64_t id = make_reserved(&root, 8, 0);
	assert_int_equal(ask_lease(&root, 1, id, 0, 0), REQUEST_REPLIED);
	expect_lease(&out, 1, 1);
	assert_int_equal(pool->segments[SEGMENT_CLEAN], 1);
	assert_int_equal(pool->reserved_pages, 7);
	expect_refused(ask_lease(&root, 8, id, 0, 0), HPZ_OP_LEASE, HPZ_ERR_TOO_LARGE, "28 KiB left");
	assert_int_equal(ask_lease(&root, 7, id, 0, 0), REQUEST_REPLIED);
	expect_lease(&out, 7, 1);
	assert_true(list_is_empty(&harness.requests.reserves.list));
}

/* Where a segment has to be cut, the rest is made ready again, before anybody who waits. */
static void test_filled_up_again(void **state)
{
	harness_put_clean(pool, 1, 8);
	uint64_t id = make_reserved(&root, 8, 0);
	assert_int_equal(ask_lease(&root, 1, 0, 0, -1), REQUEST_WAITS);
	assert_int_equal(ask_lease(&root, 2, id, 0, 0), REQUEST_REPLIED);
	expect_lease(&out, 2, 1);
	harness_put_clean(pool, 1, 6);
	harness_turn();
	assert_int_equal(sent.count, 0);
	assert_int_equal(ask_lease(&root, 6, id, 0, 0), REQUEST_REPLIED);
	expect_lease(&out, 6, 1);
	harness_put_clean(pool, 1, 1);
	harness_run_until(has_sent, &(size_t){1});
	expect_lease(&sent.replies[0], 1, 1);
}

static void test_in_pieces(void **state)
{
	harness_put_clean(pool, 1, 8);
	harness_put_clean(pool, 4, 1);
	uint64_t id = make_reserved(&root, 10, HPZ_LEASE_SEGMENTS);
	expect_refused(ask_lease(&root, 9, id, 0, 0), HPZ_OP_LEASE, HPZ_ERR_NO_MEMORY, "in several pieces");
	assert_int_equal(ask_lease(&root, 9, id, HPZ_LEASE_SEGMENTS, 0), REQUEST_REPLIED);
	expect_lease(&out, 9, 2);
	assert_int_equal(pool->reserved_pages, 1);
	/* What is not reserved is anybody's all the while. */
	assert_int_equal(ask_lease(&root, 1, 0, 0, 0), REQUEST_REPLIED);
	expect_lease(&out, 1, 1);
	assert_int_equal(ask_lease(&root, 1, id, 0, 0), REQUEST_REPLIED);
	expect_lease(&out, 1, 1);
	assert_int_equal(ask_lease(&root, 1, 0, 0, 0), REQUEST_REPLIED);
	expect_lease(&out, 1, 1);
}

/* It waits in the queue as a lease would, and a lease waits for what is not ready of it. */
static void test_waits(void **state)
{
	expect_refused(ask_reserve(&root, 1, 0, 1000, 0), HPZ_OP_RESERVE, HPZ_ERR_NO_MEMORY, "");
	assert_int_equal(ask_reserve(&root, 2, 0, 60000, -1), REQUEST_WAITS);
	assert_int_equal(pool->waiting, 1);
	harness_put_clean(pool, 1, 2);
	expect_refused(ask_lease(&root, 1, 0, 0, 0), HPZ_OP_LEASE, HPZ_ERR_NO_MEMORY, "");
	harness_run_until(has_sent, &(size_t){1});
	uint64_t id = expect_reserved(&sent.replies[0], 2);
	/* Its memory is lost: somebody removed the file. */
	struct pool_segment *segment = NULL;
	assert_int_equal(pool_list_kept(pool, reserve_find(&harness.requests.reserves, id), &segment, 1), 1);
	assert_int_equal(pool_discard(segment), 0);
	expect_refused(ask_lease(&root, 2, id, 0, 0), HPZ_OP_LEASE, HPZ_ERR_NO_MEMORY, "0 B of it ready");
	assert_int_equal(ask_lease(&root, 2, id, 0, -1), REQUEST_WAITS);
	harness_put_clean(pool, 1, 2);
	harness_run_until(has_sent, &(size_t){2});
	expect_lease(&sent.replies[1], 2, 1);
}

/* ---- how it ends ---- */

static void test_time(void **state)
{
	harness_put_clean(pool, 1, 1);
	assert_int_equal(ask_reserve(&root, 1, 0, 30, 0), REQUEST_REPLIED);
	uint64_t id = expect_reserved(&out, 1);
	assert_int_equal(ask_lease(&root, 1, 0, 0, -1), REQUEST_WAITS);
	harness_run_until(has_sent, &(size_t){1});
	expect_lease(&sent.replies[0], 1, 1);
	expect_refused(ask_lease(&root, 1, id, 0, 0), HPZ_OP_LEASE, HPZ_ERR_ENDED, "has ended");
}

static void test_unreserved(void **state)
{
	struct hpz_wire_release release = {.size = sizeof release};

	harness_put_clean(pool, 1, 1);
	uint64_t id = make_reserved(&root, 1, 0);
	/* A lease that waits for more of it hears that it ended. */
	struct pool_segment *segment = NULL;
	pool_list_kept(pool, reserve_find(&harness.requests.reserves, id), &segment, 1);
	assert_int_equal(pool_discard(segment), 0);
	assert_int_equal(ask_lease(&root, 1, id, 0, -1), REQUEST_WAITS);
	release.id = id;
	expect_refused(ask(&root, HPZ_OP_RELEASE, &release, sizeof release), HPZ_OP_RELEASE, HPZ_ERR_INVALID,
		"unreserve");
	for (int i = 0; i < 2; i++) { /* once more is success */
		assert_int_equal(ask_unreserve(&root, id), REQUEST_REPLIED);
		harness_expect_ok(&out, HPZ_OP_UNRESERVE, 3);
	}
	harness_run_until(has_sent, &(size_t){1});
	harness_expect_error(&sent.replies[0], HPZ_OP_LEASE, 3, HPZ_ERR_ENDED);
	expect_refused(
		ask_unreserve(&root, id + 1000), HPZ_OP_UNRESERVE, HPZ_ERR_UNKNOWN_LEASE, "never given");
	expect_refused(ask_lease(&root, 1, id + 1000, 0, 0), HPZ_OP_LEASE, HPZ_ERR_UNKNOWN_LEASE, "never");
	harness_put_clean(pool, 1, 1);
	assert_int_equal(ask_lease(&root, 1, 0, 0, 0), REQUEST_REPLIED);
	expect_lease(&out, 1, 1);
	const struct hpz_wire_leased *leased = HARNESS_PAYLOAD(&out);
	uint64_t lease = leased->id;
	expect_refused(ask_unreserve(&root, lease), HPZ_OP_UNRESERVE, HPZ_ERR_INVALID, "is a lease");
	expect_refused(ask_lease(&root, 1, lease, 0, 0), HPZ_OP_LEASE, HPZ_ERR_INVALID, "is a lease");
}

static void test_drained(void **state)
{
	struct hpz_wire_drain drain = {.size = sizeof drain, .timeout_ms = -1};

	harness_put_clean(pool, 1, 8);
	make_reserved(&root, 8, 0);
	assert_int_equal(ask(&root, HPZ_OP_DRAIN, &drain, sizeof drain), REQUEST_WAITS);
	assert_true(list_is_empty(&harness.requests.reserves.list));
	harness_run_until(has_sent, &(size_t){1});
	harness_expect_ok(&sent.replies[0], HPZ_OP_DRAIN, 3);
}

/* ---- whose it is ---- */

static void test_foreign(void **state)
{
	harness_put_clean(pool, 4, 1);
	uint64_t id = make_reserved(&alice, 2, HPZ_LEASE_SEGMENTS);
	expect_refused(ask_unreserve(&bob, id), HPZ_OP_UNRESERVE, HPZ_ERR_DENIED, "uid 1000");
	struct hpz_wire_lease wire = harness_get_lease(1, 0);
	wire.reservation = id;
	wire.owner_uid = wire.owner_gid = -1;
	expect_refused(ask(&bob, HPZ_OP_LEASE, &wire, sizeof wire), HPZ_OP_LEASE, HPZ_ERR_DENIED, "uid 1000");
	assert_int_equal(pool->reserved_pages, 2);
	/* Root's may be anybody's. */
	assert_int_equal(ask_lease(&root, 1, id, 0, 0), REQUEST_REPLIED);
	expect_lease(&out, 1, 1);
	assert_int_equal(ask_unreserve(&alice, id), REQUEST_REPLIED);
	harness_expect_ok(&out, HPZ_OP_UNRESERVE, 3);
}

/* Beside a lease that leaves some of it, the reservation goes on to count; one that uses it up takes its
 * place. */
static void test_quota_partly_used(void **state)
{
	struct hpz_wire_lease wire = harness_get_lease(1, 0);
	harness_put_clean(pool, 4, 1);
	wire.owner_uid = wire.owner_gid = -1;
	wire.flags = HPZ_LEASE_SEGMENTS;
	wire.reservation = make_reserved(&bob, 2, HPZ_LEASE_SEGMENTS);
	make_reserved(&bob, 1, 0);
	make_reserved(&bob, 1, 0);
	expect_refused(
		ask(&bob, HPZ_OP_LEASE, &wire, sizeof wire), HPZ_OP_LEASE, HPZ_ERR_QUOTA, "quota_leases");
	assert_int_equal(pool->reserved_pages, 4);
	wire.bytes = 2 * STORE_PAGE; /* as far as we may: to give it to bob is root's */
	assert_int_equal(ask(&bob, HPZ_OP_LEASE, &wire, sizeof wire), REQUEST_REPLIED);
	assert_int_not_equal(harness_get_head(&out).error, HPZ_ERR_QUOTA);
}

static void test_quota(void **state)
{
	harness_put_clean(pool, 1, 8);
	harness_put_clean(pool, 4, 1);
	make_reserved(&alice, 8, 0);
	expect_refused(ask_reserve(&alice, 1, 0, 1000, 0), HPZ_OP_RESERVE, HPZ_ERR_QUOTA, "quota_bytes");
	make_reserved(&bob, 1, 0);
	make_reserved(&bob, 1, 0);
	make_reserved(&bob, 1, 0);
	expect_refused(ask_reserve(&bob, 1, 0, 1000, 0), HPZ_OP_RESERVE, HPZ_ERR_QUOTA, "quota_leases");
}

static void test_senseless(void **state)
{
	harness_put_clean(pool, 1, 8);
	expect_refused(ask_reserve(&root, 1, 0, 0, 0), HPZ_OP_RESERVE, HPZ_ERR_INVALID, "to a day");
	expect_refused(
		ask_reserve(&root, 1, 0, HPZ_RESERVE_MAX_MS + 1, 0), HPZ_OP_RESERVE, HPZ_ERR_INVALID, "day");
	expect_refused(ask_reserve(&root, 1, 0, UINT64_MAX, 0), HPZ_OP_RESERVE, HPZ_ERR_INVALID, "day");
	expect_refused(ask_reserve(&root, 13, 0, 1000, 0), HPZ_OP_RESERVE, HPZ_ERR_TOO_LARGE, "");
	expect_refused(
		ask_reserve(&root, 1, HPZ_LEASE_UNBOUND, 1000, 0), HPZ_OP_RESERVE, HPZ_ERR_INVALID, "");
	uint64_t id = make_reserved(&root, 8, 0);
	struct hpz_wire_lease wire = harness_get_lease(1, 0);
	wire.reservation = id;
	wire.page_size = 2 * STORE_PAGE;
	expect_refused(
		ask(&root, HPZ_OP_LEASE, &wire, sizeof wire), HPZ_OP_LEASE, HPZ_ERR_INVALID, "page size");
	expect_refused(ask(&root, HPZ_OP_PLAN, &wire, sizeof wire), HPZ_OP_PLAN, HPZ_ERR_INVALID, "no plan");
	assert_int_equal(pool->reserved_pages, 8);
}

/* ---- lists ---- */

static void test_listed(void **state)
{
	struct hpz_wire_list list = {.size = sizeof list, .flags = HPZ_WIRE_LIST_MORE};
	struct hpz_wire_empty empty = {.size = sizeof empty};
	struct request_peer knower = root;

	harness_put_clean(pool, 2, 1);
	uint64_t id = make_reserved(&alice, 1, 0);
	assert_int_equal(ask(&root, HPZ_OP_LIST, &list, sizeof list), REQUEST_REPLIED);
	const struct hpz_wire_listed *listed = HARNESS_PAYLOAD(&out);
	assert_int_equal(listed->records, 0);
	list.flags = HPZ_WIRE_LIST_FLAGS;
	assert_int_equal(ask(&root, HPZ_OP_LIST, &list, sizeof list), REQUEST_REPLIED);
	assert_true(listed->records == 1 && listed->cursor == 0);
	const struct hpz_wire_lease_record *record = (const void *)(listed + 1);
	assert_true(record->id == id && record->state == HPZ_STATE_RESERVED && record->uid == 1000 &&
		    record->given == STORE_PAGE && record->ttl_ms > 50000 && record->ttl_ms <= 60000);
	assert_string_equal(record->label, "arriving");
	/* Who knows the field gets it. */
	for (int knows = 0; knows < 2; knows++) {
		knower.capabilities = knows ? HPZ_WIRE_CAN_RESERVED : 0;
		assert_int_equal(ask(&knower, HPZ_OP_STATUS, &empty, sizeof empty), REQUEST_REPLIED);
		const struct hpz_wire_status *status = HARNESS_PAYLOAD(&out);
		const struct hpz_wire_pool *record_pool = (const void *)(status + 1);
		assert_int_equal(record_pool->reserved_pages, knows);
	}
}

/* ---- the journal ---- */

static void on_record(enum journal_type type, const void *payload, size_t bytes, void *user)
{
	reserve_read_record(user, type, payload, bytes);
}

static void read_journal(struct reserves *reserves)
{
	_cleanup_fd_ int fd = -1;
	uint64_t bytes;

	reserve_init(reserves, &harness.loop, &harness.requests.supply, &harness.leases);
	assert_int_equal(journal_dup(harness.journal, &fd, &bytes), 0);
	assert_int_equal(journal_read(fd, bytes, HARNESS_BOOT_ID, on_record, reserves), 0);
}

/* What a new hpzd knows of them, from single records and from a compacted journal. */
static void test_remembered(void **state)
{
	harness_put_clean(pool, 4, 1);
	uint64_t used = make_reserved(&root, 3, HPZ_LEASE_SEGMENTS), ended = make_reserved(&root, 1, 0);
	assert_int_equal(ask_lease(&root, 1, used, 0, 0), REQUEST_REPLIED);
	expect_lease(&out, 1, 1);
	assert_int_equal(ask_unreserve(&root, ended), REQUEST_REPLIED);
	for (int compacted = 0; compacted < 2; compacted++) {
		static struct reserves later;
		read_journal(&later);
		const struct reservation *found = reserve_find(&later, used);
		assert_non_null(found);
		assert_null(reserve_find(&later, ended));
		assert_true(found->pages == 2 && found->asked == 3 * STORE_PAGE && found->uid == 0 &&
			    found->flags == HPZ_LEASE_SEGMENTS);
		assert_string_equal(found->label, "arriving");
		assert_string_equal(found->pool_name, "p");
		reserve_deinit(&later);
		harness_turn();
		assert_int_equal(reconcile_compact(&harness.reconcile), 0);
	}
}

/* After a restart: its pool and clean memory are found again, its id is not given to anybody else. */
static void test_adopted(void **state)
{
	static struct reserves later;

	harness_put_clean(pool, 1, 8);
	uint64_t id = make_reserved(&root, 8, 0);
	read_journal(&later);
	struct pool_segment *segment = NULL;
	struct reservation *old = reserve_find(&harness.requests.reserves, id);
	assert_int_equal(pool_list_kept(pool, old, &segment, 1), 1);
	pool_keep(segment, NULL);
	reserve_finish_adoption(&later);
	assert_int_equal(reserve_get_ready(reserve_find(&later, id)), 8);
	assert_ptr_equal(segment->keeper, reserve_find(&later, id));
	assert_int_equal(pool->reserved_pages, 16);
	pool_keep(segment, NULL);
	pool->reserved_pages = 8;
	reserve_deinit(&later);
	harness_turn();
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(test_kept),
		TEST(test_partly_used),
		TEST(test_filled_up_again),
		TEST(test_in_pieces),
		TEST(test_waits),
		TEST(test_time),
		TEST(test_unreserved),
		TEST(test_drained),
		TEST(test_foreign),
		TEST(test_quota),
		TEST(test_quota_partly_used),
		TEST(test_senseless),
		TEST(test_listed),
		TEST(test_remembered),
		TEST(test_adopted),
	};
	return cmocka_run_group_tests_name("reserve", tests, NULL, NULL);
}
