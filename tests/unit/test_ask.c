/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_ask.c - leases: asked for, waited for, many at once; with no pool, and with one on tmpfs. */
#include "asker.h"
#include "metrics.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

static void test_lease_without_pool(void **state)
{
	struct hpz_wire_lease lease = harness_get_lease(1, -1);

	assert_int_equal(ask(harness_make(&in, HPZ_OP_LEASE, 3, &lease, sizeof lease)), REQUEST_REPLIED);
	assert_string_equal(harness_expect_error(&out, HPZ_OP_LEASE, 3, HPZ_ERR_NO_POOL), "there is no pool");
	lease.page_size = 2 << 20;
	ask(harness_make(&in, HPZ_OP_LEASE, 3, &lease, sizeof lease));
	assert_string_equal(harness_expect_error(&out, HPZ_OP_LEASE, 3, HPZ_ERR_NO_POOL),
		"there is no pool with pages of 2M");
	lease.node = 3;
	ask(harness_make(&in, HPZ_OP_LEASE, 3, &lease, sizeof lease));
	assert_string_equal(harness_expect_error(&out, HPZ_OP_LEASE, 3, HPZ_ERR_NO_POOL),
		"there is no pool on node 3 with pages of 2M");
}

static void test_lease(void **state)
{
	harness_put_clean(pool, 1, 8);
	harness_put_clean(pool, 2, 1);
	struct hpz_wire_lease lease = harness_get_lease(1, 0);
	lease.bytes -= 5; /* rounded up */
	memcpy(lease.label, "vm", 2);
	assert_int_equal(ask(harness_make(&in, HPZ_OP_LEASE, 3, &lease, sizeof lease)), REQUEST_REPLIED);
	uint64_t id = expect_leased(&out, 3, 1);
	const struct hpz_wire_leased *leased = HARNESS_PAYLOAD(&out);
	assert_int_equal(leased->asked, STORE_PAGE - 5);
	assert_int_equal(leased->ready, STORE_PAGE);
	assert_string_equal(lease_find(&harness.leases, id)->label, "vm");
	/* It is in the list as it is. */
	make_request(HPZ_OP_LIST, &in);
	ask(&in);
	harness_expect_ok(&out, HPZ_OP_LIST, 9);
	const struct hpz_wire_listed *listed = HARNESS_PAYLOAD(&out);
	const struct hpz_wire_lease_record *record = (const void *)(listed + 1);
	assert_true(listed->records == 2 && listed->cursor == 0 && record->id == id &&
		    record->segments == 1 && record->state == HPZ_STATE_OFFERED && record->holders == 0 &&
		    record->holes == 0);
	assert_string_equal(record->label, "vm");
	/* Larger than the pool may be: not now, not ever. */
	ask(harness_make_lease(&in, 4, 13, -1));
	assert_non_null(strstr(harness_expect_error(&out, HPZ_OP_LEASE, 4, HPZ_ERR_TOO_LARGE), "48 KiB"));
	/* 2 pages: nothing exact, the larger one's tail goes back. */
	assert_int_equal(ask(harness_make_lease(&in, 5, 2, 0)), REQUEST_REPLIED);
	expect_leased(&out, 5, 2);
	/* Nothing that large is left, and nobody wants to wait. */
	assert_int_equal(ask(harness_make_lease(&in, 6, 2, 0)), REQUEST_REPLIED);
	harness_expect_error(&out, HPZ_OP_LEASE, 6, HPZ_ERR_NO_MEMORY);
	lease = harness_get_lease(1, 0);
	lease.page_size = 2 * STORE_PAGE;
	ask(harness_make(&in, HPZ_OP_LEASE, 7, &lease, sizeof lease));
	harness_expect_error(&out, HPZ_OP_LEASE, 7, HPZ_ERR_NO_POOL);
}

static void test_lease_errors(void **state)
{
	struct hpz_wire_lease lease = harness_get_lease(1, 0);

	harness_put_clean(pool, 1, 1);
	lease.owner_pid = INT32_MAX;
	ask(harness_make(&in, HPZ_OP_LEASE, 3, &lease, sizeof lease));
	assert_non_null(strstr(
		harness_expect_error(&out, HPZ_OP_LEASE, 3, HPZ_ERR_INVALID), "no process 2147483647"));
	/* Nothing was taken for it, and nothing is left under hpz-out. */
	assert_int_equal(pool->segments[SEGMENT_CLEAN], 1);
	char path[PATH_MAX];
	temp_path(harness.dir, "hpz-out", path);
	assert_int_equal(rmdir(path), 0);
	/* Now not even a token can be made. */
	lease.owner_pid = 0;
	ask(harness_make(&in, HPZ_OP_LEASE, 3, &lease, sizeof lease));
	harness_expect_error(&out, HPZ_OP_LEASE, 3, HPZ_ERR_INTERNAL);
	assert_int_equal(pool->segments[SEGMENT_CLEAN], 1);
	assert_int_equal(mkdir(path, 0711), 0);
}

/* What was removed or spoilt behind our back costs itself, not the request. */
static void test_lease_of_what_vanished(void **state)
{
	char name[SEGMENT_NAME_MAX], path[PATH_MAX];

	harness_put_clean(pool, 4, 1);
	struct pool_segment *segment = pool_find_clean(pool, 1);
	pool_get_segment_name(segment, name);
	assert_int_equal(segment_unlink(&pool->dirs, SEGMENT_CLEAN, name), 0);
	struct pool_segment *next = CONTAINER_OF(segment->link.next, struct pool_segment, link);
	pool_get_segment_name(next, name);
	snprintf(path, sizeof path, "%s/hpz/1/node0/clean/%s", harness.dir, name);
	assert_int_equal(chmod(path, 0600), 0);
	next = CONTAINER_OF(next->link.next, struct pool_segment, link);
	pool_get_segment_name(next, name);
	snprintf(path, sizeof path, "%s/hpz/1/node0/clean/%s", harness.dir, name);
	assert_int_equal(chmod(path, 0600), 0);
	assert_int_equal(truncate(path, 0), 0);
	assert_int_equal(chmod(path, 0), 0);
	assert_int_equal(ask(harness_make_lease(&in, 3, 1, 0)), REQUEST_REPLIED);
	expect_leased(&out, 3, 1);
	assert_int_equal(pool->segments[SEGMENT_CLEAN], 0);
	/* One is on its way back; the sentry has seen what was done to the other, which is no stock any more.
	 */
	assert_int_equal(pool->segments[SEGMENT_LEASED], 2);
	assert_int_equal(pool->segments[SEGMENT_DIRTY], 1);
	assert_int_equal(harness.leases.count, 2);
}

static void test_key(void **state)
{
	struct hpz_wire_lease lease = harness_get_lease(1, 0);

	harness_put_clean(pool, 4, 1);
	memcpy(lease.key, "key", 3);
	ask(harness_make(&in, HPZ_OP_LEASE, 3, &lease, sizeof lease));
	uint64_t id = expect_leased(&out, 3, 1);
	/* The answer was lost, so it is asked again, from another connection too: the same. */
	for (unsigned session = 1; session < 4; session++) {
		assert_int_equal(ask_as(SESSION(session), &root,
					 harness_make(&in, HPZ_OP_LEASE, 4, &lease, sizeof lease)),
			REQUEST_REPLIED);
		assert_int_equal(expect_leased(&out, 4, 1), id);
	}
	assert_int_equal(harness.leases.count, 1);
	lease.bytes++;
	ask(harness_make(&in, HPZ_OP_LEASE, 5, &lease, sizeof lease));
	harness_expect_error(&out, HPZ_OP_LEASE, 5, HPZ_ERR_KEY_MISMATCH);
	/* Released, the key is free again. */
	struct hpz_wire_release release = {.size = sizeof release, .id = id};
	ask(harness_make(&in, HPZ_OP_RELEASE, 6, &release, sizeof release));
	harness_expect_ok(&out, HPZ_OP_RELEASE, 6);
	const struct hpz_wire_released *released = HARNESS_PAYLOAD(&out);
	assert_int_equal(released->state, HPZ_STATE_RETURNING);
	lease.bytes--;
	ask(harness_make(&in, HPZ_OP_LEASE, 7, &lease, sizeof lease));
	assert_int_not_equal(expect_leased(&out, 7, 1), id);
}

static void test_lease_waits(void **state)
{
	assert_int_equal(ask_as(SESSION(1), &root, harness_make_lease(&in, 3, 2, -1)), REQUEST_WAITS);
	harness_turn();
	assert_int_equal(pool->waiting, 1);
	assert_int_equal(pool->waiting_pages, 2);
	assert_int_equal(pool->plan.level, POLICY_URGENT);
	harness_put_clean(pool, 1, 1); /* not enough */
	harness_turn();
	assert_int_equal(sent.count, 0);
	harness_put_clean(pool, 1, 8);
	expect_leased(wait_reply(1), 3, 2);
	assert_ptr_equal(sent.sessions[0], SESSION(1));
	const struct hpz_wire_leased *leased = HARNESS_PAYLOAD(&sent.replies[0]);
	assert_int_equal(leased->ready, 0);
	assert_int_equal(pool->waiting, 0);
}

static void test_lease_timeout(void **state)
{
	assert_int_equal(ask_as(SESSION(1), &root, harness_make_lease(&in, 1, 1, 30)), REQUEST_WAITS);
	assert_int_equal(ask_as(SESSION(2), &root, harness_make_lease(&in, 2, 1, 5)), REQUEST_WAITS);
	assert_non_null(
		strstr(harness_expect_error(wait_reply(1), HPZ_OP_LEASE, 2, HPZ_ERR_TIMEOUT), "4 KiB asked"));
	harness_expect_error(wait_reply(2), HPZ_OP_LEASE, 1, HPZ_ERR_TIMEOUT);
	assert_int_equal(pool->waiting, 0);
	harness_turn();
	assert_int_not_equal(pool->plan.level, POLICY_URGENT);
}

static void test_lease_cancelled(void **state)
{
	assert_int_equal(ask_as(SESSION(1), &root, harness_make_lease(&in, 1, 1, -1)), REQUEST_WAITS);
	assert_int_equal(ask_as(SESSION(2), &root, harness_make_lease(&in, 2, 1, -1)), REQUEST_WAITS);
	request_cancel_session(&harness.requests, SESSION(1));
	assert_int_equal(pool->waiting, 1);
	harness_put_clean(pool, 1, 1);
	expect_leased(wait_reply(1), 2, 1);
	assert_ptr_equal(sent.sessions[0], SESSION(2));
}

/* The kernel has nothing here: pages come from clean segments of the wrong size, which are unlinked. */
static void test_lease_extended(void **state)
{
	if (geteuid() != 0)
		return; /* only root opens a file of mode 0 again */
	for (size_t i = 0; i < 2; i++) {
		harness_put_clean(pool, 4 - i, 1);
		crew_set_hold(harness.crew, true);
		assert_int_equal(ask_flags(i ? &root : &knower, HPZ_OP_LEASE, 3, 0, 0), REQUEST_WAITS);
		assert_int_equal(pool->segments[SEGMENT_CLEAN], 1);
		assert_int_equal(pool->segments[SEGMENT_FILLING], 1);
		harness_release();
		expect_leased(wait_reply(i + 1), 3, 3);
		const struct hpz_wire_leased *leased = HARNESS_PAYLOAD(&sent.replies[i]);
		assert_int_equal(leased->ready, STORE_PAGE);
		/* Somebody older could not read it. */
		assert_int_equal(leased->zeroed, i ? 0 : 2 * STORE_PAGE);
		assert_int_equal(pool->segments[SEGMENT_FILLING], 0);
	}
}

static bool is_nothing_filling(void *unused)
{
	return pool->segments[SEGMENT_FILLING] == 0;
}

/* Whoever asked is gone, or the pool is drained, while its memory is being zeroed. */
static void test_extended_for_nobody(void **state)
{
	if (geteuid() != 0)
		return; /* only root opens a file of mode 0 again */
	struct hpz_wire_drain drain = {.size = sizeof drain, .timeout_ms = -1};

	harness_put_clean(pool, 4, 1);
	assert_int_equal(ask_flags(&root, HPZ_OP_LEASE, 3, 0, 0), REQUEST_WAITS);
	request_cancel_session(&harness.requests, SESSION(1));
	assert_int_equal(pool->segments[SEGMENT_FILLING], 1);
	harness_release();
	harness_run_until(is_nothing_filling, NULL);
	assert_int_equal(harness.leases.count, 0);
	harness_put_clean(pool, 3, 1);
	crew_set_hold(harness.crew, true);
	assert_int_equal(ask_flags(&root, HPZ_OP_LEASE, 4, 0, 0), REQUEST_WAITS);
	assert_int_equal(ask_as(SESSION(2), &root, harness_make(&in, HPZ_OP_DRAIN, 4, &drain, sizeof drain)),
		REQUEST_WAITS);
	harness_release();
	harness_expect_error(wait_reply(1), HPZ_OP_LEASE, 3, HPZ_ERR_DRAINED);
	harness_expect_ok(wait_reply(2), HPZ_OP_DRAIN, 4);
	assert_true(is_nothing_filling(NULL) && pool->segments[SEGMENT_CLEAN] == 0);
}

static void test_lease_in_several(void **state)
{
	harness_put_clean(pool, 4, 1);
	harness_put_clean(pool, 1, 8);
	assert_int_equal(ask_flags(&knower, HPZ_OP_LEASE, 10, HPZ_LEASE_SEGMENTS, 0), REQUEST_REPLIED);
	harness_expect_ok(&out, HPZ_OP_LEASE, 3);
	const struct hpz_wire_leased *leased = HARNESS_PAYLOAD(&out);
	const struct hpz_wire_segment *segments = (const struct hpz_wire_segment *)(leased + 1);
	assert_true(leased->segments == 3 && leased->given == 10 * STORE_PAGE &&
		    leased->ready == leased->given && leased->zeroed == 0);
	assert_true(segments[0].bytes == 8 * STORE_PAGE && segments[1].bytes == STORE_PAGE &&
		    segments[2].bytes == STORE_PAGE);
	for (size_t i = 0; i < 3; i++)
		assert_int_equal(access(segments[i].path, F_OK), 0);
	assert_int_equal(pool->segments[SEGMENT_CLEAN], 2);
	assert_int_equal(lease_find(&harness.leases, leased->id)->segments_out, 3);
}

static enum request_outcome ask_many(uint64_t pages, uint32_t count, int64_t timeout_ms)
{
	struct hpz_wire_lease lease = harness_get_lease(pages, timeout_ms);
	lease.count = count;
	return ask_as(SESSION(1), &knower, harness_make(&in, HPZ_OP_LEASE, 3, &lease, sizeof lease));
}

/* Ids follow one another, each has a file of its own; the first id. */
static uint64_t expect_bulk(const struct message *message, uint64_t pages, uint32_t count, uint64_t ready)
{
	const unsigned char *at = HARNESS_PAYLOAD(message);
	uint64_t first = 0, sum_ready = 0, sum_zeroed = 0;
	struct stat st;

	harness_expect_ok(message, HPZ_OP_LEASE, 3);
	for (uint32_t i = 0; i < count; i++) {
		const struct hpz_wire_leased *leased = (const void *)at;
		const struct hpz_wire_segment *segment = (const void *)(leased + 1);
		first = i ? first : leased->id;
		assert_true(leased->id == first + i && leased->segments == 1 &&
			    leased->given == pages * STORE_PAGE && segment->bytes == leased->given);
		assert_int_equal(stat(segment->path, &st), 0);
		assert_int_equal(lease_find(&harness.leases, leased->id)->segments[0]->index, 0);
		sum_ready += leased->ready;
		sum_zeroed += leased->zeroed;
		at = (const unsigned char *)(segment + 1);
	}
	assert_ptr_equal(at, message->bytes + message->length);
	assert_int_equal(sum_ready, ready * STORE_PAGE);
	assert_int_equal(sum_zeroed, (count * pages - ready) * STORE_PAGE);
	return first;
}

static void expect_states(uint64_t first, const enum hpz_lease_state *states, size_t count)
{
	for (size_t i = 0; i < count; i++)
		assert_int_equal(lease_find(&harness.leases, first + i)->state, states[i]);
}

static void test_bulk(void **state)
{
	struct hpz_wire_ack ack = {.size = sizeof ack, .count = 2};

	harness_put_clean(pool, 3, 1);
	harness_put_clean(pool, 1, 8);
	assert_int_equal(ask_many(1, 3, 0), REQUEST_REPLIED);
	ack.id = expect_bulk(&out, 1, 3, 3);
	assert_int_equal(harness.requests.reply.lease, ack.id);
	/* Confirmed are those that are; the others end with their connection. */
	assert_int_equal(ask(harness_make(&in, HPZ_OP_ACK, 4, &ack, sizeof ack)), REQUEST_NO_REPLY);
	request_cancel_session(&harness.requests, SESSION(1));
	expect_states(
		ack.id, (enum hpz_lease_state[]){HPZ_STATE_LEASED, HPZ_STATE_LEASED, HPZ_STATE_RETURNING}, 3);
	assert_int_equal(pool->segments[SEGMENT_CLEAN], 1);
}

/* All or none: what is missing is zeroed, or nothing is taken at all. */
static void test_bulk_is_whole(void **state)
{
	if (geteuid() != 0)
		return; /* only root opens a file of mode 0 again */
	harness_put_clean(pool, 1, 1);
	harness_put_clean(pool, 1, 3);
	harness_put_clean(pool, 1, 8);
	crew_set_hold(harness.crew, true);
	assert_int_equal(ask_many(3, 3, 0), REQUEST_REPLIED);
	harness_expect_error(&out, HPZ_OP_LEASE, 3, HPZ_ERR_NO_MEMORY);
	assert_int_equal(pool->segments[SEGMENT_CLEAN], 3);
	assert_int_equal(harness.leases.count, 0);
	harness_put_clean(pool, 3, 1);
	assert_int_equal(ask_many(3, 3, 0), REQUEST_WAITS);
	harness_release();
	expect_bulk(wait_reply(1), 3, 3, 6);
	assert_int_equal(ask_many(5, 3, 0), REQUEST_REPLIED);
	harness_expect_error(&out, HPZ_OP_LEASE, 3, HPZ_ERR_TOO_LARGE);
}

/* One waits for all its memory, in the queue like any other. */
static void test_bulk_waits(void **state)
{
	assert_int_equal(ask_many(1, 3, -1), REQUEST_WAITS);
	harness_put_clean(pool, 2, 1);
	harness_turn();
	assert_int_equal(sent.count, 0);
	assert_int_equal(ask_as(SESSION(2), &root, harness_make_lease(&in, 4, 1, 0)), REQUEST_REPLIED);
	harness_expect_error(&out, HPZ_OP_LEASE, 4, HPZ_ERR_NO_MEMORY);
	harness_put_clean(pool, 1, 1);
	harness_run_until(has_sent, &(size_t){1});
	harness_expect_ok(&sent.replies[0], HPZ_OP_LEASE, 3);
	assert_int_equal(harness.leases.count, 3);
}

/* The last of them vanished from the disk: none is handed out. */
static void test_bulk_of_what_vanished(void **state)
{
	harness_put_clean(pool, 3, 1);
	struct pool_segment *segments[3];
	size_t count = 0;
	POOL_FOR_EACH (pos, pool) {
		struct pool_class *class = CONTAINER_OF(pos, struct pool_class, link);
		LIST_FOR_EACH (at, &class->segments[SEGMENT_CLEAN])
			segments[count++] = CONTAINER_OF(at, struct pool_segment, link);
	}
	char name[SEGMENT_NAME_MAX];
	assert_int_equal(count, 3);
	pool_get_segment_name(segments[2], name);
	assert_int_equal(segment_unlink(&pool->dirs, SEGMENT_CLEAN, name), 0);
	assert_int_equal(ask_many(1, 3, 0), REQUEST_REPLIED);
	harness_expect_error(&out, HPZ_OP_LEASE, 3, HPZ_ERR_NO_MEMORY);
	LIST_FOR_EACH (pos, &harness.leases.leases)
		assert_int_equal(LEASE_OF(pos)->state, HPZ_STATE_RETURNING);
	assert_int_equal(harness.leases.count, 2);
}

static void test_bulk_quota(void **state)
{
	struct hpz_wire_lease lease = harness_get_lease(1, 0);
	struct config_access *section = &harness.config.access[0];

	*section = (struct config_access){.name = "a",
		.allow = CONFIG_ALLOW_LEASE,
		.users = {.is_all = true},
		.quota_bytes = 3 * STORE_PAGE,
		.quota_leases = 2,
		.max_connections = CONFIG_NO_LIMIT,
		.max_requests = CONFIG_NO_LIMIT};
	harness.config.access_count = 1;
	harness_put_clean(pool, 4, 1);
	lease.owner_uid = lease.owner_gid = -1;
	lease.count = 3;
	ask_as(SESSION(1), &somebody, harness_make(&in, HPZ_OP_LEASE, 3, &lease, sizeof lease));
	assert_non_null(strstr(harness_expect_error(&out, HPZ_OP_LEASE, 3, HPZ_ERR_QUOTA), "quota_leases"));
	section->quota_leases = 4;
	lease.count = 4;
	ask_as(SESSION(1), &somebody, harness_make(&in, HPZ_OP_LEASE, 3, &lease, sizeof lease));
	assert_non_null(strstr(harness_expect_error(&out, HPZ_OP_LEASE, 3, HPZ_ERR_QUOTA), "quota_bytes"));
	assert_int_equal(harness.leases.count, 0);
}

/* The owner dies, before and after an adoption. */
static bool is_returning(void *id)
{
	return lease_find(&harness.leases, *(uint64_t *)id)->state == HPZ_STATE_RETURNING;
}

static pid_t start_sleeper(void)
{
	pid_t pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			pause();
	}
	return pid;
}

static void test_owner_dies(void **state)
{
	struct hpz_wire_lease lease = harness_get_lease(1, 0);
	struct hpz_wire_adopt adopt = {.size = sizeof adopt};
	uint64_t ids[2];

	harness_put_clean(pool, 2, 1);
	pid_t first = start_sleeper(), second = start_sleeper();
	lease.owner_pid = first;
	for (size_t i = 0; i < 2; i++) {
		ask(harness_make(&in, HPZ_OP_LEASE, 3, &lease, sizeof lease));
		ids[i] = expect_leased(&out, 3, 1);
	}
	adopt.id = ids[1];
	adopt.owner_pid = second;
	ask(harness_make(&in, HPZ_OP_ADOPT, 5, &adopt, sizeof adopt));
	harness_expect_ok(&out, HPZ_OP_ADOPT, 5);
	kill(first, SIGKILL);
	harness_run_until(is_returning, &ids[0]);
	harness_run_ms(20);
	assert_false(is_returning(&ids[1]));
	kill(second, SIGKILL);
	harness_run_until(is_returning, &ids[1]);
	waitpid(first, NULL, 0);
	waitpid(second, NULL, 0);
}

/* ---- what is counted of them ---- */

static uint64_t get_count(const char *name, const char *value)
{
	struct metrics_series series;
	for (size_t i = 0; metrics_get_series(i, &series); i++) {
		if (strcmp(series.name, name) == 0 && strcmp(series.label_value, value) == 0)
			return series.value;
	}
	fail_msg("there is no %s of %s", name, value);
	return 0;
}

static void expect_waits(uint64_t granted, uint64_t refused, uint64_t cancelled)
{
	assert_int_equal(get_count("hpz_lease_wait_seconds", "granted"), granted);
	assert_int_equal(get_count("hpz_lease_wait_seconds", "refused"), refused);
	assert_int_equal(get_count("hpz_lease_wait_seconds", "cancelled"), cancelled);
}

static void test_metrics(void **state)
{
	metrics_reset();
	harness_put_clean(pool, 1, 3);
	ask(harness_make_lease(&in, 3, 3, 0));
	expect_leased(&out, 3, 3);
	ask(harness_make_lease(&in, 4, 2, 0));
	harness_expect_error(&out, HPZ_OP_LEASE, 4, HPZ_ERR_NO_MEMORY);
	assert_int_equal(get_count("hpz_granted_bytes", "clean"), 3 * STORE_PAGE);
	assert_int_equal(get_count("hpz_lease_latency_seconds", "granted"), 1);
	assert_int_equal(get_count("hpz_lease_refusals", "no_memory"), 1);
	expect_waits(0, 0, 0);
	/* One that is served in the end, one that waits too long, one whose client goes. */
	assert_int_equal(ask_as(SESSION(1), &root, harness_make_lease(&in, 5, 2, -1)), REQUEST_WAITS);
	harness_turn();
	harness_put_clean(pool, 1, 2);
	expect_leased(wait_reply(1), 5, 2);
	assert_int_equal(get_count("hpz_granted_bytes", "waited"), 2 * STORE_PAGE);
	expect_waits(1, 0, 0);
	assert_int_equal(ask_as(SESSION(1), &root, harness_make_lease(&in, 6, 1, 5)), REQUEST_WAITS);
	harness_expect_error(wait_reply(2), HPZ_OP_LEASE, 6, HPZ_ERR_TIMEOUT);
	expect_waits(1, 1, 0);
	assert_int_equal(ask_as(SESSION(1), &root, harness_make_lease(&in, 7, 1, -1)), REQUEST_WAITS);
	request_cancel_session(&harness.requests, SESSION(1));
	expect_waits(1, 1, 1);
	assert_int_equal(get_count("hpz_lease_latency_seconds", "granted"), 2);
	assert_int_equal(get_count("hpz_lease_latency_seconds", "refused"), 2);
	assert_int_equal(get_count("hpz_requests", "lease"), 5);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_lease_without_pool),
		TEST_POOL(test_lease),
		TEST_POOL(test_lease_errors),
		TEST_POOL(test_lease_of_what_vanished),
		TEST_POOL(test_key),
		TEST_POOL(test_lease_waits),
		TEST_POOL(test_lease_timeout),
		TEST_POOL(test_lease_cancelled),
		TEST_POOL(test_lease_extended),
		TEST_POOL(test_extended_for_nobody),
		TEST_POOL(test_lease_in_several),
		TEST_POOL(test_bulk),
		TEST_POOL(test_bulk_is_whole),
		TEST_POOL(test_bulk_waits),
		TEST_POOL(test_bulk_of_what_vanished),
		TEST_POOL(test_bulk_quota),
		TEST_POOL(test_owner_dies),
		TEST_POOL(test_metrics),
	};
	return cmocka_run_group_tests_name("ask", tests, NULL, NULL);
}
