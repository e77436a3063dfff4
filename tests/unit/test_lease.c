/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * test_lease.c - leases, and what is left of them when hpzd dies between any two steps: on tmpfs with pages
 * of 4096 bytes.
 */
#include "store.h"
#include "lease.h"
#include "log.h"

#include <inttypes.h>
#include <signal.h>
#include <sys/resource.h>

#define BOOT_ID "01234567-89ab-cdef-0123-456789abcdef"

/* An hpzd, as far as leases go. */
struct hpzd {
	struct pool *pool;
	struct lease_table leases;
	struct journal *journal;
	int adopt_error; /* the last one */
};

static char dir[TEMP_PATH];

static int setup(void **state)
{
	log_set_level(LOG_LEVEL_ERROR);
	return store_make_dir(dir) ? 0 : -1;
}

static int teardown(void **state)
{
	temp_remove(dir);
	return 0;
}

static void on_record(enum journal_type type, const void *payload, size_t bytes, void *user)
{
	lease_read_record(&((struct hpzd *)user)->leases, type, payload, bytes);
}

static void on_leased(struct pool_segment *segment, void *user)
{
	struct hpzd *hpzd = user;
	int r = lease_adopt_segment(&hpzd->leases, segment);
	if (r < 0)
		hpzd->adopt_error = r;
}

/* What is kept is what a count says. */
static void check_usage(const struct lease_table *table)
{
	LIST_FOR_EACH (pos, &table->leases) {
		uint64_t leases = 0, bytes = 0, kept_leases, kept_bytes;
		LIST_FOR_EACH (at, &table->leases) {
			if (LEASE_OF(at)->uid != LEASE_OF(pos)->uid)
				continue;
			leases++;
			bytes += lease_get_given(LEASE_OF(at));
		}
		lease_get_usage(table, LEASE_OF(pos)->uid, &kept_leases, &kept_bytes);
		assert_int_equal(kept_leases, leases);
		assert_int_equal(kept_bytes, bytes);
	}
}

static void start_in(const char *where, struct hpzd *ret_hpzd)
{
	const struct config_pool config = {.name = "p", .line = 3, .page_size = STORE_PAGE};
	struct segment_store *store = store_open(where);
	char error[256];

	*ret_hpzd = (struct hpzd){0};
	assert_int_equal(
		pool_open(&config, "f", store_get_host(), store, &ret_hpzd->pool, error, sizeof error), 0);
	segment_close_store(store);
	assert_int_equal(lease_init_table(&ret_hpzd->leases), 0);
	assert_int_equal(journal_open(where, BOOT_ID, on_record, ret_hpzd, NULL, &ret_hpzd->journal), 0);
	assert_int_equal(pool_adopt_leased(ret_hpzd->pool, on_leased, ret_hpzd), 0);
	assert_int_equal(lease_finish_adoption(&ret_hpzd->leases, ret_hpzd->journal), 0);
	check_usage(&ret_hpzd->leases);
}

static void start(struct hpzd *ret_hpzd)
{
	start_in(dir, ret_hpzd);
}

/* As SIGKILL leaves it. */
static void die(struct hpzd *hpzd)
{
	check_usage(&hpzd->leases);
	lease_deinit_table(&hpzd->leases);
	journal_close(hpzd->journal);
	pool_close(hpzd->pool);
}

/* As reconcile_start does. */
static void compact(struct hpzd *hpzd)
{
	assert_int_equal(journal_compact(hpzd->journal, lease_write_all, &hpzd->leases), 0);
}

static void put_clean(unsigned count, uint64_t pages)
{
	char name[32];

	for (unsigned i = 1; i <= count; i++) {
		snprintf(name, sizeof name, "%u.0", i);
		store_put(dir, "clean", name, pages, pages);
	}
}

/* Grants `count` segments of that many pages, `given` of each. */
static struct lease *grant(
	struct hpzd *hpzd, const struct lease *draft, unsigned count, uint64_t pages, uint64_t given)
{
	struct pool_segment *segments[8];
	uint64_t given_pages[8];
	struct lease *lease = NULL;
	struct pool_class *class = NULL;

	POOL_FOR_EACH (pos, hpzd->pool) {
		if (CONTAINER_OF(pos, struct pool_class, link)->pages == pages)
			class = CONTAINER_OF(pos, struct pool_class, link);
	}
	assert_non_null(class);
	struct list *at = class->segments[SEGMENT_CLEAN].next;
	for (unsigned i = 0; i < count; i++, at = at->next) {
		assert_ptr_not_equal(at, &class->segments[SEGMENT_CLEAN]);
		segments[i] = CONTAINER_OF(at, struct pool_segment, link);
		given_pages[i] = given;
	}
	assert_int_equal(lease_grant(&hpzd->leases, draft, segments, given_pages, count, &lease), 0);
	return lease;
}

static void give_back(struct hpzd *hpzd, struct lease *lease, size_t index)
{
	struct pool_segment *segment = lease->segments[index];

	assert_int_equal(pool_set_state(segment, SEGMENT_DIRTY), 0);
	lease_drop_segment(&hpzd->leases, lease, segment);
}

/* ---- what users have ---- */

static void expect_usage(const struct hpzd *hpzd, uint32_t uid, uint64_t leases, uint64_t pages)
{
	uint64_t got_leases = 77, got_bytes = 77;
	lease_get_usage(&hpzd->leases, uid, &got_leases, &got_bytes);
	assert_int_equal(got_leases, leases);
	assert_int_equal(got_bytes, pages * STORE_PAGE);
}

/* Users whose numbers share a place in the hash, too; nothing is kept of one who has nothing. */
static void test_usage(void **state)
{
	struct lease mine = {.label = "a", .uid = 7}, other = {.label = "b", .uid = 7 + 256}, *rest = NULL;
	struct hpzd hpzd;

	put_clean(6, 4);
	start(&hpzd);
	expect_usage(&hpzd, 7, 0, 0);
	struct lease *first = grant(&hpzd, &mine, 2, 4, 3), *second = grant(&hpzd, &mine, 1, 4, 4);
	struct lease *third = grant(&hpzd, &other, 1, 4, 1);
	uint64_t ids[] = {first->id, second->id, third->id};
	lease_set_state(&hpzd.leases, first, HPZ_STATE_LEASED);
	expect_usage(&hpzd, 7, 2, 10);
	expect_usage(&hpzd, 7 + 256, 1, 1);
	die(&hpzd);
	start(&hpzd);
	expect_usage(&hpzd, 7, 2, 10);
	expect_usage(&hpzd, 7 + 256, 1, 1);
	/* What is split off is still the same user's, until it is back. */
	first = lease_find(&hpzd.leases, ids[0]);
	assert_int_equal(lease_split(&hpzd.leases, first, 1, 2, 2 * STORE_PAGE, &rest), 0);
	expect_usage(&hpzd, 7, 3, 9);
	give_back(&hpzd, rest, 0);
	expect_usage(&hpzd, 7, 3, 6);
	lease_end(&hpzd.leases, rest);
	expect_usage(&hpzd, 7, 2, 6);
	for (size_t i = 0; i < ARRAY_SIZE(ids); i++) {
		struct lease *lease = lease_find(&hpzd.leases, ids[i]);
		give_back(&hpzd, lease, 0);
		lease_end(&hpzd.leases, lease);
	}
	expect_usage(&hpzd, 7, 0, 0);
	expect_usage(&hpzd, 7 + 256, 0, 0);
	assert_true(list_is_empty(&hpzd.leases.usages[7]));
	die(&hpzd);
}

/* ---- granting ---- */

static void test_grant(void **state)
{
	struct hpzd hpzd;
	struct lease draft = {.label = "vm", .key = "k", .uid = 7, .asked = 5};
	uint64_t before_us = clock_get_ns(CLOCK_BOOTTIME) / 1000;
	char name[64];

	put_clean(3, 4);
	start(&hpzd);
	struct lease *lease = grant(&hpzd, &draft, 2, 4, 3), *next = grant(&hpzd, &draft, 1, 4, 4);
	assert_true(lease->id >= before_us && lease->id < (uint64_t)1 << 53);
	assert_int_equal(next->id, lease->id + 1);
	assert_int_equal(lease->state, HPZ_STATE_OFFERED);
	assert_int_equal(lease->segments_out, 2);
	assert_int_equal(lease_get_given(lease), 6 * STORE_PAGE);
	assert_true(lease->granted_boot_ns / 1000 >= before_us);
	assert_int_equal(hpzd.leases.count, 2);
	assert_int_equal(hpzd.leases.granted, 2);
	for (unsigned i = 0; i < 2; i++) {
		struct pool_segment *segment = lease->segments[i];
		assert_true(segment->state == SEGMENT_LEASED && segment->lease == lease->id &&
			    segment->index == i && segment->generation == 1 && segment->given == 3);
		snprintf(name, sizeof name, "%" PRIu64 ".1.%" PRIu64 ".%u", segment->id, lease->id, i);
		assert_true(store_has(dir, "leased", name));
	}
	assert_ptr_equal(lease_find(&hpzd.leases, lease->id), lease);
	assert_null(lease_find(&hpzd.leases, lease->id + 2));
	assert_null(lease_find(&hpzd.leases, lease->id + 4096)); /* the same bucket */
	assert_ptr_equal(lease_find_from(&hpzd.leases, 0), lease);
	assert_ptr_equal(lease_find_from(&hpzd.leases, lease->id), lease);
	assert_ptr_equal(lease_find_from(&hpzd.leases, lease->id + 1), next);
	assert_null(lease_find_from(&hpzd.leases, lease->id + 2));
	die(&hpzd);
}

/* The journal comes first: without it nothing is renamed and no id is spent. */
static void test_grant_without_journal(void **state)
{
	struct hpzd hpzd;
	struct lease draft = {.label = "vm"}, before = draft, *lease = NULL;
	struct rlimit limit, none;
	uint64_t given = 4;

	put_clean(1, 4);
	start(&hpzd);
	compact(&hpzd);
	uint64_t id = hpzd.leases.next_id, bytes = journal_get_bytes(hpzd.journal);
	struct pool_segment *segment = pool_find_clean(hpzd.pool, 4);
	void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
	getrlimit(RLIMIT_FSIZE, &limit);
	none = limit;
	none.rlim_cur = bytes;
	setrlimit(RLIMIT_FSIZE, &none);
	int r = lease_grant(&hpzd.leases, &draft, &segment, &given, 1, &lease);
	setrlimit(RLIMIT_FSIZE, &limit);
	signal(SIGXFSZ, handler);
	assert_int_equal(r, -EFBIG);
	assert_null(lease);
	assert_memory_equal(&before, &draft, sizeof draft);
	assert_int_equal(segment->state, SEGMENT_CLEAN);
	assert_int_equal(segment->generation, 0);
	assert_int_equal(hpzd.leases.next_id, id);
	assert_int_equal(hpzd.leases.count, 0);
	assert_false(lease_is_known_id(&hpzd.leases, id));
	assert_int_equal(lease_grant(&hpzd.leases, &draft, &segment, &given, 1, &lease), 0);
	assert_int_equal(lease->id, id);
	die(&hpzd);
}

/* Somebody removed a clean file: the grant says so, and what else it took is dirty. */
static void test_grant_of_what_vanished(void **state)
{
	struct hpzd hpzd;
	struct lease draft = {0}, *lease = NULL;
	uint64_t given[] = {4, 4};

	put_clean(2, 4);
	start(&hpzd);
	struct pool_class *class = CONTAINER_OF(hpzd.pool->classes.next, struct pool_class, link);
	struct list *first = class->segments[SEGMENT_CLEAN].next;
	struct pool_segment *segments[] = {CONTAINER_OF(first, struct pool_segment, link),
		CONTAINER_OF(first->next, struct pool_segment, link)};
	char name[SEGMENT_NAME_MAX];
	pool_get_segment_name(segments[1], name);
	assert_int_equal(segment_unlink(&hpzd.pool->dirs, SEGMENT_CLEAN, name), 0);
	assert_int_equal(lease_grant(&hpzd.leases, &draft, segments, given, 2, &lease), -ENOENT);
	assert_int_equal(segments[0]->state, SEGMENT_DIRTY);
	assert_int_equal(segments[1]->state, SEGMENT_CLEAN);
	assert_int_equal(hpzd.leases.count, 0);
	die(&hpzd);
	start(&hpzd);
	assert_int_equal(hpzd.leases.count, 0);
	assert_int_equal(hpzd.pool->segments[SEGMENT_DIRTY], 1);
	die(&hpzd);
}

/* The rename back fails, too: named, counted, and done as soon as it can be; or by the next hpzd. */
static void test_grant_fails_twice(void **state)
{
	for (int death = 0; death < 2; death++) {
		struct hpzd hpzd;
		struct lease draft = {0}, *lease = NULL;
		uint64_t given[] = {4, 4};
		char name[SEGMENT_NAME_MAX], taken[SEGMENT_NAME_MAX];
		struct pool_segment *segments[2];

		put_clean(2, 4);
		start(&hpzd);
		struct pool_class *class = CONTAINER_OF(hpzd.pool->classes.next, struct pool_class, link);
		struct list *first = class->segments[SEGMENT_CLEAN].next;
		segments[0] = CONTAINER_OF(first, struct pool_segment, link);
		segments[1] = CONTAINER_OF(first->next, struct pool_segment, link);
		pool_get_segment_name(segments[1], name);
		assert_int_equal(segment_unlink(&hpzd.pool->dirs, SEGMENT_CLEAN, name), 0);
		snprintf(taken, sizeof taken, "%" PRIu64 ".1", segments[0]->id);
		store_put(dir, "dirty", taken, 1, 1);
		assert_int_equal(lease_grant(&hpzd.leases, &draft, segments, given, 2, &lease), -ENOENT);
		assert_true(segments[0]->state == SEGMENT_LEASED && segments[0]->is_stranded);
		assert_int_equal(hpzd.pool->stranded, 1);
		assert_int_equal(hpzd.pool->pages[SEGMENT_LEASED], 4);
		assert_int_equal(pool_take_back(hpzd.pool), 1);
		pool_forget(segments[1]);
		uint64_t id = segments[0]->lease;
		if (death) {
			die(&hpzd);
			start(&hpzd);
			const struct lease *unknown = lease_find(&hpzd.leases, id);
			assert_true(unknown && unknown->is_unknown && unknown->segments_out == 1);
			die(&hpzd);
			continue;
		}
		assert_int_equal(segment_unlink(&hpzd.pool->dirs, SEGMENT_DIRTY, taken), 0);
		assert_int_equal(pool_take_back(hpzd.pool), 0);
		assert_int_equal(segments[0]->state, SEGMENT_DIRTY);
		assert_false(segments[0]->is_stranded);
		assert_int_equal(hpzd.pool->segments[SEGMENT_LEASED], 0);
		assert_int_equal(pool_discard(segments[0]), 0);
		die(&hpzd);
	}
}

/* ---- everything comes back after a restart ---- */

static void make_full_draft(struct lease *ret_draft)
{
	*ret_draft = (struct lease){.comm = "0123456789abcdef",
		.uid = 4000000000u,
		.gid = 4000000001u,
		.pid = 77,
		.pid_start = 1ull << 60,
		.flags = HPZ_LEASE_KEEP,
		.deliver = HPZ_DELIVER_PATH,
		.file_uid = 8,
		.file_gid = 9,
		.file_mode = 0640,
		.open_timeout_ms = 1ll << 60,
		.asked = 1ull << 61,
		.has_token = true};
	memset(ret_draft->label, 'l', HPZ_LABEL_MAX);
	memset(ret_draft->key, 'k', HPZ_KEY_MAX);
	memcpy(ret_draft->label, "\xc3\xa4", 2);
	memset(ret_draft->token, 'a', sizeof ret_draft->token);
}

static void expect_same(const struct lease *lease, const struct lease *draft)
{
	assert_string_equal(lease->label, draft->label);
	assert_string_equal(lease->key, draft->key);
	assert_string_equal(lease->comm, draft->comm);
	assert_true(lease->uid == draft->uid && lease->gid == draft->gid && lease->pid == draft->pid &&
		    lease->pid_start == draft->pid_start && lease->flags == draft->flags &&
		    lease->deliver == draft->deliver && lease->file_uid == draft->file_uid &&
		    lease->file_gid == draft->file_gid && lease->file_mode == draft->file_mode &&
		    lease->open_timeout_ms == draft->open_timeout_ms && lease->asked == draft->asked &&
		    lease->has_token == draft->has_token);
	assert_memory_equal(lease->token, draft->token, sizeof lease->token);
}

static void test_restart(void **state)
{
	struct hpzd hpzd;
	struct lease full, empty = {0};

	make_full_draft(&full);
	put_clean(3, 4);
	start(&hpzd);
	struct lease *lease = grant(&hpzd, &full, 2, 4, 3), *other = grant(&hpzd, &empty, 1, 4, 4);
	uint64_t id = lease->id, other_id = other->id, granted_ns = lease->granted_boot_ns;
	uint64_t ids[] = {lease->segments[0]->id, lease->segments[1]->id};
	for (int restart = 0; restart < 4; restart++) {
		die(&hpzd);
		start(&hpzd);
		if (restart > 1)
			compact(&hpzd);
		lease = lease_find(&hpzd.leases, id);
		other = lease_find(&hpzd.leases, other_id);
		assert_true(lease && other && hpzd.leases.count == 2);
		expect_same(lease, &full);
		expect_same(other, &empty);
		assert_true(lease->is_recovered && !lease->is_unknown && lease->state == HPZ_STATE_OFFERED);
		assert_int_equal(lease->granted_boot_ns, granted_ns);
		assert_true(lease->segment_count == 2 && lease->segments_out == 2);
		for (size_t i = 0; i < 2; i++) {
			assert_int_equal(lease->segments[i]->id, ids[i]);
			assert_int_equal(lease->segments[i]->given, 3);
			assert_int_equal(lease->segments[i]->pages, 4);
		}
		assert_null(lease->recorded);
	}
	die(&hpzd);
}

static void test_states_come_back(void **state)
{
	struct hpzd hpzd;
	struct lease draft = {.comm = "asker", .pid = 1};
	uint64_t ids[4];

	put_clean(4, 1);
	start(&hpzd);
	for (size_t i = 0; i < 4; i++)
		ids[i] = grant(&hpzd, &draft, 1, 1, 1)->id;
	lease_set_state(&hpzd.leases, lease_find(&hpzd.leases, ids[1]), HPZ_STATE_LEASED);
	lease_set_state(&hpzd.leases, lease_find(&hpzd.leases, ids[2]), HPZ_STATE_RETURNING);
	lease_set_opened(&hpzd.leases, lease_find(&hpzd.leases, ids[3]));
	assert_int_equal(lease_find(&hpzd.leases, ids[3])->state, HPZ_STATE_LEASED);
	assert_int_equal(lease_set_owner(&hpzd.leases, lease_find(&hpzd.leases, ids[1]), 4711, 1ull << 50,
				 HPZ_LEASE_UNBOUND, "a name longer than that"),
		0);
	/* Nothing new is nothing written. */
	uint64_t bytes = journal_get_bytes(hpzd.journal);
	lease_set_state(&hpzd.leases, lease_find(&hpzd.leases, ids[1]), HPZ_STATE_LEASED);
	lease_set_opened(&hpzd.leases, lease_find(&hpzd.leases, ids[3]));
	assert_int_equal(journal_get_bytes(hpzd.journal), bytes);
	for (int restart = 0; restart < 3; restart++) {
		die(&hpzd);
		start(&hpzd);
		if (restart)
			compact(&hpzd);
		static const enum hpz_lease_state states[] = {
			HPZ_STATE_OFFERED, HPZ_STATE_LEASED, HPZ_STATE_RETURNING, HPZ_STATE_LEASED};
		for (size_t i = 0; i < 4; i++) {
			const struct lease *lease = lease_find(&hpzd.leases, ids[i]);
			assert_int_equal(lease->state, states[i]);
			assert_int_equal(lease->was_opened, i == 3);
			assert_int_equal(lease->pid, i == 1 ? 4711 : 1);
			assert_string_equal(lease->comm, i == 1 ? "a name longer th" : "asker");
			assert_int_equal(lease->pid_start, i == 1 ? 1ull << 50 : 0);
			assert_int_equal(lease->flags, i == 1 ? HPZ_LEASE_UNBOUND : 0);
		}
	}
	die(&hpzd);
}

/* Of three segments the middle one is back already: the others keep their places. */
static void test_half_returned(void **state)
{
	struct hpzd hpzd;
	struct lease draft = {.label = "vm"};

	put_clean(3, 2);
	start(&hpzd);
	struct lease *lease = grant(&hpzd, &draft, 3, 2, 1);
	uint64_t id = lease->id, last = lease->segments[2]->id;
	lease_set_state(&hpzd.leases, lease, HPZ_STATE_RETURNING);
	give_back(&hpzd, lease, 1);
	for (int restart = 0; restart < 3; restart++) {
		die(&hpzd);
		start(&hpzd);
		compact(&hpzd);
		lease = lease_find(&hpzd.leases, id);
		assert_true(lease->segment_count == 3 && lease->segments_out == 2 && !lease->segments[1]);
		assert_int_equal(lease->segments[2]->id, last);
		assert_int_equal(lease->segments[2]->given, 1);
		assert_int_equal(lease->state, HPZ_STATE_RETURNING);
		assert_string_equal(lease->label, "vm");
		assert_int_equal(lease_get_given(lease), 2 * STORE_PAGE);
	}
	give_back(&hpzd, lease, 2);
	give_back(&hpzd, lease, 0);
	assert_int_equal(lease->segments_out, 0);
	lease_end(&hpzd.leases, lease);
	assert_true(lease_is_known_id(&hpzd.leases, id));
	die(&hpzd);
	start(&hpzd);
	assert_int_equal(hpzd.leases.count, 0);
	assert_true(lease_is_known_id(&hpzd.leases, id));
	die(&hpzd);
}

/* A holder cut and another grew its file: what was given is what the journal says. */
static void test_length_was_changed(void **state)
{
	struct hpzd hpzd;
	struct lease draft = {0};
	static const off_t lengths[] = {0, 1, 9};

	for (size_t i = 0; i < ARRAY_SIZE(lengths); i++) {
		char name[SEGMENT_NAME_MAX], path[PATH_MAX];
		snprintf(name, sizeof name, "%zu.0", i + 1);
		store_put(dir, "clean", name, 4, 4);
		start(&hpzd);
		struct lease *lease = grant(&hpzd, &draft, 1, 4, 3);
		uint64_t id = lease->id;
		pool_get_segment_name(lease->segments[0], name);
		snprintf(path, sizeof path, "%s/hpz/1/node0/leased/%s", dir, name);
		assert_int_equal(chmod(path, 0600), 0);
		assert_int_equal(truncate(path, lengths[i] * (off_t)STORE_PAGE), 0);
		die(&hpzd);
		start(&hpzd);
		lease = lease_find(&hpzd.leases, id);
		assert_int_equal(lease->segments[0]->pages, 4);
		assert_int_equal(lease->segments[0]->given, 3);
		assert_int_equal(lease->segments[0]->class->pages, 4);
		die(&hpzd);
	}
}

/* ---- death between two steps ---- */

static void copy_file(const char *from, const char *to, const char *name)
{
	size_t length;
	char *bytes = temp_read(from, name, &length);

	temp_write(to, name, bytes, length);
	free(bytes);
}

static void make_state(const char *where, const char *state_name, const char *name)
{
	store_put(where, state_name, name, 2, 2);
}

/* The tree of a grant of three segments that got as far as `renames` renames, with the journal of `dir`. */
static void make_half_grant(const char *where, unsigned renames, uint64_t lease)
{
	char name[SEGMENT_NAME_MAX];

	close(store_open_dir(where, ""));
	copy_file(dir, where, "journal");
	segment_close_store(store_open(where));
	for (unsigned i = 0; i < 3; i++) {
		bool is_out = i < renames;
		/* Last in, first out: segment 3 is the first of the lease. */
		segment_format_name(&(struct segment_name){3 - i, is_out, is_out, lease, i}, name);
		make_state(where, is_out ? "leased" : "clean", name);
	}
}

static void test_death_during_grant(void **state)
{
	struct hpzd hpzd;
	struct lease draft = {.label = "vm", .key = "k"};
	static char where[PATH_MAX];

	put_clean(3, 2);
	start(&hpzd);
	uint64_t id = grant(&hpzd, &draft, 3, 2, 2)->id;
	die(&hpzd);
	for (unsigned renames = 0; renames <= 3; renames++) {
		char name[16];
		snprintf(name, sizeof name, "at%u/", renames);
		temp_path(dir, name, where);
		where[strlen(where) - 1] = '\0';
		make_half_grant(where, renames, id);
		for (int restart = 0; restart < 2; restart++) {
			start_in(where, &hpzd);
			compact(&hpzd);
			const struct lease *lease = lease_find(&hpzd.leases, id);
			assert_int_equal(hpzd.adopt_error, 0);
			assert_int_equal(hpzd.leases.count, renames > 0);
			assert_int_equal(hpzd.pool->segments[SEGMENT_LEASED], renames);
			assert_int_equal(hpzd.pool->segments[SEGMENT_CLEAN], 3 - renames);
			/* In any case it was given: releasing it is no error. */
			assert_true(lease_is_known_id(&hpzd.leases, id));
			assert_true(hpzd.leases.next_id > id);
			if (lease) {
				assert_string_equal(lease->label, "vm");
				assert_int_equal(lease->segments_out, renames);
				assert_int_equal(lease->segment_count, 3);
				assert_int_equal(
					lease->state, renames < 3 ? HPZ_STATE_RETURNING : HPZ_STATE_OFFERED);
			}
			die(&hpzd);
		}
	}
}

/* Back: RETURNING, one rename each, END. */
static void test_death_during_return(void **state)
{
	struct hpzd hpzd;
	struct lease draft = {.label = "vm"};

	put_clean(2, 2);
	start(&hpzd);
	struct lease *lease = grant(&hpzd, &draft, 2, 2, 2);
	uint64_t id = lease->id;
	lease_set_state(&hpzd.leases, lease, HPZ_STATE_LEASED);
	lease_set_state(&hpzd.leases, lease, HPZ_STATE_RETURNING);
	for (size_t back = 0; back <= 2; back++) {
		die(&hpzd);
		start(&hpzd);
		lease = lease_find(&hpzd.leases, id);
		assert_int_equal(hpzd.pool->segments[SEGMENT_DIRTY], back);
		assert_int_equal(lease != NULL, back < 2);
		assert_true(lease_is_known_id(&hpzd.leases, id));
		if (lease) {
			assert_int_equal(lease->state, HPZ_STATE_RETURNING);
			assert_int_equal(lease->segments_out, 2 - back);
			give_back(&hpzd, lease, back); /* and dies before END */
		}
	}
	die(&hpzd);
}

/* ---- no record, or a wrong one ---- */

static void test_unknown_owner(void **state)
{
	struct hpzd hpzd;
	char path[PATH_MAX];

	store_put(dir, "leased", "1.1.500.0", 4, 4);
	store_put(dir, "leased", "2.1.500.1", 2, 1);
	store_put(dir, "leased", "3.1.700.2", 1, 1); /* the first two of it are gone */
	store_put(dir, "leased", "4.1.900.0", 0, 0); /* its holder cut it to nothing */
	for (int restart = 0; restart < 3; restart++) {
		start(&hpzd);
		assert_int_equal(hpzd.leases.count, 3);
		const struct lease *lease = lease_find(&hpzd.leases, 500);
		assert_true(lease->is_unknown && lease->is_recovered && lease->state == HPZ_STATE_LEASED);
		assert_string_equal(lease->label, "?");
		assert_int_equal(lease->uid, UINT32_MAX);
		assert_int_equal(lease->asked, 6 * STORE_PAGE);
		assert_int_equal(lease_get_given(lease), 6 * STORE_PAGE);
		lease = lease_find(&hpzd.leases, 700);
		assert_true(lease->segment_count == 3 && lease->segments_out == 1 && !lease->segments[0]);
		assert_int_equal(lease->state, HPZ_STATE_RETURNING);
		assert_int_equal(lease_find(&hpzd.leases, 900)->segments_out, 1);
		/* These were given; what lies between was perhaps, and is not claimed. */
		assert_true(lease_is_known_id(&hpzd.leases, 500));
		assert_true(lease_is_known_id(&hpzd.leases, 700));
		assert_false(lease_is_known_id(&hpzd.leases, 501));
		assert_false(lease_is_known_id(&hpzd.leases, 699));
		assert_false(lease_is_known_id(&hpzd.leases, 701));
		/* The planner gets along with a segment of no page. */
		struct policy_class classes[POOL_CLASSES_MAX];
		struct policy_plan plan;
		size_t count = pool_get_classes(hpzd.pool, classes);
		policy_plan(&(struct policy_input){.classes = classes, .class_count = count}, &plan);
		compact(&hpzd);
		if (restart == 1) {
			temp_path(dir, "journal", path);
			die(&hpzd);
			assert_int_equal(unlink(path), 0);
			continue;
		}
		die(&hpzd);
	}
}

/* An unknown lease among known ones: with the journal of a run that knew others. */
static void test_unknown_beside_known(void **state)
{
	struct hpzd hpzd;
	struct lease draft = {.label = "vm"};
	char name[SEGMENT_NAME_MAX];

	put_clean(1, 1);
	start(&hpzd);
	compact(&hpzd);
	uint64_t id = grant(&hpzd, &draft, 1, 1, 1)->id;
	die(&hpzd);
	snprintf(name, sizeof name, "77.3.%" PRIu64 ".0", id + 1000000000);
	store_put(dir, "leased", name, 1, 1);
	start(&hpzd);
	assert_false(lease_is_known_id(&hpzd.leases, id + 1));
	assert_true(lease_is_known_id(&hpzd.leases, id + 1000000000));
	/* Ids go on above it: it is never given again. */
	assert_true(hpzd.leases.next_id > id + 1000000000);
	die(&hpzd);
}

/* The one segment of a lease whose id is none of these, and that has no record. */
static const struct lease *find_own(const struct hpzd *hpzd, uint64_t id, uint64_t segment)
{
	const struct lease *found = NULL;

	LIST_FOR_EACH (pos, &hpzd->leases.leases) {
		const struct lease *lease = LEASE_OF(pos);
		if (lease->id == id || !lease->is_unknown || lease->segments[0]->id != segment)
			continue;
		assert_null(found);
		found = lease;
	}
	return found;
}

static void expect_own(const struct hpzd *hpzd, uint64_t id, uint64_t segment, uint64_t pages)
{
	const struct lease *lease = find_own(hpzd, id, segment);
	char name[SEGMENT_NAME_MAX];

	assert_non_null(lease);
	assert_true(lease->segment_count == 1 && lease->segments_out == 1 && lease->is_recovered);
	assert_int_equal(lease->state, HPZ_STATE_LEASED);
	assert_string_equal(lease->label, "?");
	assert_int_equal(lease_get_given(lease), pages * STORE_PAGE);
	assert_true(lease->id < 1ull << 53 && lease_is_known_id(&hpzd->leases, lease->id));
	assert_true(lease->id < hpzd->leases.next_id);
	snprintf(name, sizeof name, "%" PRIu64 ".1.%" PRIu64 ".0", segment, lease->id);
	assert_true(store_has(dir, "leased", name));
}

/* More than the record has, the same one twice, more than a lease can have, ids that none has: the good lease
 * does not notice, and each of them has one of its own, now and at the next start. */
static void test_wrong_index(void **state)
{
	struct hpzd hpzd;
	struct lease draft = {.label = "vm"};
	char name[SEGMENT_NAME_MAX];

	put_clean(1, 2);
	start(&hpzd);
	uint64_t id = grant(&hpzd, &draft, 1, 2, 1)->id;
	die(&hpzd);
	snprintf(name, sizeof name, "50.1.%" PRIu64 ".7", id);
	store_put(dir, "leased", name, 5, 5);
	snprintf(name, sizeof name, "51.1.%" PRIu64 ".0", id);
	store_put(dir, "leased", name, 6, 6);
	store_put(dir, "leased", "52.1.9.253", 1, 1);
	store_put(dir, "leased", "53.1.9.4294967295", 2, 2);
	store_put(dir, "leased", "54.1.18446744073709551615.0", 3, 3);
	store_put(dir, "leased", "55.1.0.0", 4, 4);
	store_put(dir, "leased", "56.1.8.0", 1, 1);
	store_put(dir, "leased", "57.1.8.0", 1, 1); /* one of the two has lease 8 */
	for (int restart = 0; restart < 3; restart++) {
		start(&hpzd);
		const struct lease *lease = lease_find(&hpzd.leases, id);
		assert_true(lease->segment_count == 1 && lease->segments_out == 1);
		assert_true(lease->state == HPZ_STATE_OFFERED && !lease->is_unknown);
		assert_int_equal(lease->segments[0]->given, 1);
		assert_int_equal(lease->segments[0]->id, 1);
		assert_null(lease_find(&hpzd.leases, 9));
		for (unsigned i = 0; i < 6; i++)
			expect_own(&hpzd, id, 50 + i, (const uint64_t[]){5, 6, 1, 2, 3, 4}[i]);
		assert_non_null(lease_find(&hpzd.leases, 8));
		assert_true(!find_own(&hpzd, 8, 56) != !find_own(&hpzd, 8, 57));
		assert_int_equal(hpzd.leases.count, 9);
		assert_int_equal(hpzd.leases.segments_out, hpzd.pool->segments[SEGMENT_LEASED]);
		assert_int_equal(hpzd.adopt_error, 0);
		die(&hpzd);
	}
}

/* The record is of another segment than the file with the lease's name: its own length is all that is known.
 */
static void test_record_of_another_segment(void **state)
{
	struct hpzd hpzd;
	struct lease draft = {.label = "vm"};
	char old[PATH_MAX], new[PATH_MAX], name[SEGMENT_NAME_MAX];

	put_clean(1, 2);
	start(&hpzd);
	struct lease *lease = grant(&hpzd, &draft, 1, 2, 1);
	uint64_t id = lease->id;
	pool_get_segment_name(lease->segments[0], name);
	die(&hpzd);
	snprintf(old, sizeof old, "%s/hpz/1/node0/leased/%s", dir, name);
	snprintf(new, sizeof new, "%s/hpz/1/node0/leased/99.1.%" PRIu64 ".0", dir, id);
	assert_int_equal(rename(old, new), 0);
	start(&hpzd);
	lease = lease_find(&hpzd.leases, id);
	assert_true(lease->segments[0]->given == 2 && lease->segments[0]->pages == 2);
	die(&hpzd);
}

/* ---- ids ---- */

static void test_ranges(void **state)
{
	struct hpzd hpzd;
	struct lease draft = {0};
	uint64_t ids[3][2];

	put_clean(2, 1);
	for (size_t run = 0; run < 3; run++) {
		start(&hpzd);
		compact(&hpzd);
		for (size_t i = 0; i < 2; i++) {
			struct lease *lease = grant(&hpzd, &draft, 1, 1, 1);
			struct pool_segment *segment = lease->segments[0];
			ids[run][i] = lease->id;
			give_back(&hpzd, lease, 0);
			lease_end(&hpzd.leases, lease);
			assert_int_equal(pool_publish(segment), 0);
		}
		assert_int_equal(ids[run][1], ids[run][0] + 1);
		assert_true(run == 0 || ids[run][0] > ids[run - 1][1]);
		die(&hpzd);
		usleep(2000); /* so that a gap is there */
	}
	for (int restart = 0; restart < 3; restart++) {
		start(&hpzd);
		for (size_t run = 0; run < 3; run++) {
			assert_true(lease_is_known_id(&hpzd.leases, ids[run][0]));
			assert_true(lease_is_known_id(&hpzd.leases, ids[run][1]));
			assert_false(lease_is_known_id(&hpzd.leases, ids[run][0] - 1));
			assert_false(lease_is_known_id(&hpzd.leases, ids[run][1] + 1));
		}
		assert_false(lease_is_known_id(&hpzd.leases, 0));
		assert_false(lease_is_known_id(&hpzd.leases, hpzd.leases.next_id));
		compact(&hpzd);
		die(&hpzd);
	}
}

/* A service that restarts all day and gives no lease must not remember each of its lives. */
static void test_empty_runs(void **state)
{
	struct hpzd hpzd;
	uint64_t bytes = 0;

	for (int restart = 0; restart < 50; restart++) {
		start(&hpzd);
		compact(&hpzd);
		assert_int_equal(hpzd.leases.range_count, 1);
		assert_true(bytes == 0 || journal_get_bytes(hpzd.journal) == bytes);
		bytes = journal_get_bytes(hpzd.journal);
		die(&hpzd);
	}
}

static void test_many(void **state)
{
	struct lease_table table;
	struct journal_lease record = {.size = sizeof record};

	assert_int_equal(lease_init_table(&table), 0);
	/* Not in order: as a compacted journal never has them, but a list must be. */
	for (uint64_t i = 0; i < 5000; i++) {
		record.id = 1000 + i * 2741 % 5000;
		lease_read_record(&table, JOURNAL_LEASE, &record, sizeof record);
		lease_read_record(&table, JOURNAL_LEASE, &record, sizeof record); /* twice is once */
	}
	assert_int_equal(table.count, 5000);
	uint64_t last = 0;
	LIST_FOR_EACH (pos, &table.leases) {
		assert_true(LEASE_OF(pos)->id > last);
		last = LEASE_OF(pos)->id;
		assert_ptr_equal(lease_find(&table, last), LEASE_OF(pos));
	}
	assert_int_equal(table.next_id, 6000);
	assert_true(lease_get_journal_bytes(&table) > 5000 * sizeof record);
	for (uint64_t id = 1000; id < 6000; id += 2) {
		struct journal_end end = {sizeof end, 0, id};
		lease_read_record(&table, JOURNAL_END, &end, sizeof end);
	}
	assert_int_equal(table.count, 2500);
	assert_null(lease_find(&table, 1000));
	assert_non_null(lease_find(&table, 1001));
	lease_deinit_table(&table);
}

/* Records of leases that are not there, or that make no sense, change nothing. */
static void test_senseless_records(void **state)
{
	struct lease_table table;
	struct journal_lease lease = {.size = sizeof lease, .id = 5, .segments = 3};
	struct journal_state st = {sizeof st, HPZ_STATE_RETURNING, 5, 1, 0};
	struct journal_owner owner = {.size = sizeof owner, .id = 5};
	struct journal_end end = {sizeof end, 0, 5};
	struct journal_raise raise = {.size = sizeof raise};

	assert_int_equal(lease_init_table(&table), 0);
	lease_read_record(&table, JOURNAL_LEASE, &lease, sizeof lease); /* its segments are missing */
	lease.segments = JOURNAL_SEGMENTS_MAX + 1;
	lease_read_record(&table, JOURNAL_LEASE, &lease, sizeof lease);
	lease_read_record(&table, JOURNAL_STATE, &st, sizeof st);
	lease_read_record(&table, JOURNAL_OWNER, &owner, sizeof owner);
	lease_read_record(&table, JOURNAL_END, &end, sizeof end);
	lease_read_record(&table, JOURNAL_RAISE, &raise, sizeof raise);
	assert_int_equal(table.count, 0);
	assert_int_equal(table.range_count, 0);
	lease.segments = 0;
	lease_read_record(&table, JOURNAL_LEASE, &lease, sizeof lease);
	assert_int_equal(table.count, 1);
	st.state = 77;
	lease_read_record(&table, JOURNAL_STATE, &st, sizeof st);
	assert_int_equal(lease_find(&table, 5)->state, HPZ_STATE_OFFERED);
	st.state = HPZ_STATE_ENDED;
	lease_read_record(&table, JOURNAL_STATE, &st, sizeof st);
	assert_int_equal(lease_find(&table, 5)->state, HPZ_STATE_OFFERED);
	lease_deinit_table(&table);
}

/* ---- keys ---- */

static void test_keys(void **state)
{
	struct hpzd hpzd;
	struct lease draft = {.uid = 7, .key = "k"};

	put_clean(2, 1);
	start(&hpzd);
	struct lease *lease = grant(&hpzd, &draft, 1, 1, 1);
	uint64_t id = lease->id;
	assert_ptr_equal(lease_find_key(&hpzd.leases, 7, "k"), lease);
	assert_null(lease_find_key(&hpzd.leases, 8, "k"));
	assert_null(lease_find_key(&hpzd.leases, 7, "K"));
	assert_null(lease_find_key(&hpzd.leases, 7, "kk"));
	assert_null(lease_find_key(&hpzd.leases, 7, ""));
	lease_set_state(&hpzd.leases, lease, HPZ_STATE_LEASED);
	die(&hpzd);
	start(&hpzd);
	lease = lease_find_key(&hpzd.leases, 7, "k");
	assert_int_equal(lease->id, id);
	lease_set_state(&hpzd.leases, lease, HPZ_STATE_RETURNING);
	assert_null(lease_find_key(&hpzd.leases, 7, "k")); /* over: the key is free again */
	struct lease *next = grant(&hpzd, &draft, 1, 1, 1);
	assert_ptr_equal(lease_find_key(&hpzd.leases, 7, "k"), next);
	die(&hpzd);
	/* Nobody's key is never anybody's: leases without one are not found by "". */
	draft.key[0] = '\0';
	store_put(dir, "clean", "90.0", 1, 1);
	start(&hpzd);
	grant(&hpzd, &draft, 1, 1, 1);
	assert_null(lease_find_key(&hpzd.leases, 7, ""));
	die(&hpzd);
}

/* ---- another size ---- */

static struct pool_segment *get_clean(struct hpzd *hpzd)
{
	struct pool_segment *segment = pool_find_clean(hpzd->pool, 4);
	assert_non_null(segment);
	return segment;
}

static void append(struct hpzd *hpzd, struct lease *lease, uint64_t given)
{
	struct pool_segment *segment = get_clean(hpzd);
	size_t before = lease->segment_count;

	assert_int_equal(lease_append(&hpzd->leases, lease, &segment, &given, 1), 0);
	assert_true(lease->segment_count == before + 1 && lease->firm == before &&
		    lease->segments[before] == segment && segment->lease == lease->id &&
		    segment->index == before && segment->given == given);
}

static void expect_segments(const struct lease *lease, size_t count, uint64_t pages)
{
	assert_non_null(lease);
	assert_int_equal(lease->segment_count, count);
	assert_int_equal(lease->segments_out, count);
	assert_int_equal(lease->firm, 0);
	assert_int_equal(lease_get_given(lease), pages * STORE_PAGE);
}

/* From one hpzd to the next, from single records and from a compacted journal. */
static void die_and_start(struct hpzd *hpzd, int round)
{
	if (round % 2)
		compact(hpzd);
	die(hpzd);
	start(hpzd);
	assert_int_equal(hpzd->adopt_error, 0);
}

static void test_change(void **state)
{
	struct lease draft = {.label = "vm", .key = "k", .uid = 7, .asked = 5}, *rest = NULL;
	struct hpzd hpzd;

	put_clean(4, 4);
	start(&hpzd);
	struct lease *lease = grant(&hpzd, &draft, 2, 4, 4);
	uint64_t id = lease->id;
	lease_set_state(&hpzd.leases, lease, HPZ_STATE_LEASED);
	append(&hpzd, lease, 3);
	assert_int_equal(lease_confirm(&hpzd.leases, lease, 11 * STORE_PAGE), 0);
	for (int round = 0; round < 3; round++, die_and_start(&hpzd, round)) {
		lease = lease_find(&hpzd.leases, id);
		expect_segments(lease, 3, 11);
		assert_true(lease->state == HPZ_STATE_LEASED && lease->asked == 11 * STORE_PAGE);
		assert_int_equal(hpzd.leases.count, 1);
		assert_int_equal(hpzd.leases.segments_out, 3);
	}
	/* Less: the rest keeps its names, and is nobody's key. */
	lease = lease_find(&hpzd.leases, id);
	assert_int_equal(lease_split(&hpzd.leases, lease, 1, 2, 2 * STORE_PAGE, &rest), 0);
	uint64_t rest_id = rest->id;
	assert_true(rest_id > id && lease_is_known_id(&hpzd.leases, rest_id));
	for (int round = 0; round < 3; round++, die_and_start(&hpzd, round)) {
		lease = lease_find(&hpzd.leases, id);
		rest = lease_find(&hpzd.leases, rest_id);
		expect_segments(lease, 1, 2);
		expect_segments(rest, 2, 7);
		assert_true(rest->state == HPZ_STATE_RETURNING && rest->split_from == id &&
			    rest->first_index == 1 && rest->uid == 7 && rest->pid == 0);
		assert_true(lease->state == HPZ_STATE_LEASED && lease_has_rest(&hpzd.leases, lease));
		assert_ptr_equal(lease_find_key(&hpzd.leases, 7, "k"), lease);
		assert_int_equal(rest->segments[1]->index, 2);
		assert_ptr_equal(lease_find_of(&hpzd.leases, rest->segments[1]), rest);
		assert_ptr_equal(lease_find_of(&hpzd.leases, lease->segments[0]), lease);
	}
	rest = lease_find(&hpzd.leases, rest_id);
	give_back(&hpzd, rest, 0);
	give_back(&hpzd, rest, 1);
	lease_end(&hpzd.leases, rest);
	assert_false(lease_has_rest(&hpzd.leases, lease_find(&hpzd.leases, id)));
	die_and_start(&hpzd, 0);
	expect_segments(lease_find(&hpzd.leases, id), 1, 2);
	assert_int_equal(hpzd.leases.count, 1);
	/* Its end and its growth at once: another segment at the place of one that was given back. */
	lease = lease_find(&hpzd.leases, id);
	append(&hpzd, lease, 4);
	assert_int_equal(lease_confirm(&hpzd.leases, lease, 6 * STORE_PAGE), 0);
	die_and_start(&hpzd, 0);
	expect_segments(lease_find(&hpzd.leases, id), 2, 6);
	die(&hpzd);
}

/* hpzd dies while a lease grows: what it was about to get is taken back, it is whole. */
static void test_death_during_growth(void **state)
{
	for (int is_renamed = 0; is_renamed < 2; is_renamed++) {
		struct lease draft = {.label = "vm", .uid = 7};
		struct hpzd hpzd;
		char from[TEMP_PATH + 64 + SEGMENT_NAME_MAX], to[TEMP_PATH + 64], name[SEGMENT_NAME_MAX];

		teardown(NULL);
		setup(NULL);
		put_clean(3, 4);
		start(&hpzd);
		struct lease *lease = grant(&hpzd, &draft, 2, 4, 4);
		uint64_t id = lease->id;
		lease_set_state(&hpzd.leases, lease, HPZ_STATE_LEASED);
		append(&hpzd, lease, 4);
		pool_get_segment_name(lease->segments[2], name);
		snprintf(from, sizeof from, "%s/hpz/1/node0/leased/%s", dir, name);
		snprintf(to, sizeof to, "%s/hpz/1/node0/clean/77.1", dir);
		if (!is_renamed)
			assert_int_equal(rename(from, to), 0);
		die_and_start(&hpzd, 0);
		expect_segments(lease_find(&hpzd.leases, id), 2, 8);
		assert_int_equal(lease_find(&hpzd.leases, id)->state, HPZ_STATE_LEASED);
		assert_int_equal(hpzd.leases.count, is_renamed ? 2 : 1);
		if (is_renamed) {
			struct lease *rest = lease_find_from(&hpzd.leases, id + 1);
			assert_true(rest && rest->state == HPZ_STATE_RETURNING && rest->split_from == id &&
				    rest->first_index == 2 && rest->segment_count == 1 && rest->uid == 7);
			die_and_start(&hpzd, 1);
			assert_int_equal(hpzd.leases.count, 2);
		}
		die(&hpzd);
	}
}

/* The journal takes so many bytes more, and not one beyond. */
static void limit_journal(const struct hpzd *hpzd, uint64_t more, struct rlimit *ret_before)
{
	struct rlimit limit;

	signal(SIGXFSZ, SIG_IGN);
	getrlimit(RLIMIT_FSIZE, ret_before);
	limit = *ret_before;
	limit.rlim_cur = journal_get_bytes(hpzd->journal) + more;
	setrlimit(RLIMIT_FSIZE, &limit);
}

/* What cannot be written is not done. */
static void test_change_without_journal(void **state)
{
	struct lease draft = {.label = "vm", .asked = 5}, *rest = NULL;
	struct rlimit before;
	struct hpzd hpzd;
	uint64_t given = 4;

	put_clean(4, 4);
	start(&hpzd);
	struct lease *lease = grant(&hpzd, &draft, 2, 4, 4);
	lease_set_state(&hpzd.leases, lease, HPZ_STATE_LEASED);
	struct pool_segment *segment = get_clean(&hpzd);
	limit_journal(&hpzd, 0, &before);
	assert_true(lease_append(&hpzd.leases, lease, &segment, &given, 1) < 0);
	assert_int_equal(segment->state, SEGMENT_CLEAN);
	assert_true(lease_split(&hpzd.leases, lease, 1, 2, 1, &rest) < 0);
	setrlimit(RLIMIT_FSIZE, &before);
	expect_segments(lease, 2, 8);
	assert_true(!rest && lease->asked == 5 && hpzd.leases.count == 1);
	append(&hpzd, lease, 4);
	limit_journal(&hpzd, 0, &before);
	assert_true(lease_confirm(&hpzd.leases, lease, 12) < 0);
	setrlimit(RLIMIT_FSIZE, &before);
	assert_int_equal(lease->firm, 2);
	/* As whoever could not confirm it does. */
	assert_int_equal(lease_split(&hpzd.leases, lease, 2, 4, 5, &rest), 0);
	expect_segments(lease, 2, 8);
	expect_segments(rest, 1, 4);
	die(&hpzd);
}

/* hpzd dies between the records of a split: the lease has all it had. */
static void test_death_during_split(void **state)
{
	struct lease draft = {.label = "vm", .uid = 7, .asked = 5}, *rest = NULL;
	struct rlimit before;
	struct hpzd hpzd;

	put_clean(2, 4);
	start(&hpzd);
	struct lease *lease = grant(&hpzd, &draft, 2, 4, 4);
	uint64_t id = lease->id;
	lease_set_state(&hpzd.leases, lease, HPZ_STATE_LEASED);
	/* Room for the record of the rest and its state, not for the lease's. */
	limit_journal(&hpzd,
		2 * 56 + sizeof(struct journal_lease) + sizeof(struct journal_segment) +
			sizeof(struct journal_state),
		&before);
	assert_true(lease_split(&hpzd.leases, lease, 1, 2, 1, &rest) < 0);
	setrlimit(RLIMIT_FSIZE, &before);
	assert_null(rest);
	expect_segments(lease, 2, 8);
	die_and_start(&hpzd, 0);
	expect_segments(lease_find(&hpzd.leases, id), 2, 8);
	assert_true(lease_find(&hpzd.leases, id)->state == HPZ_STATE_LEASED &&
		    lease_find(&hpzd.leases, id)->asked == 5);
	assert_int_equal(hpzd.leases.count, 1);
	assert_true(lease_is_known_id(&hpzd.leases, id + 1));
	die(&hpzd);
}

/* The journal is lost while a lease and what it gave back are out: every segment is some lease's, unknown. */
static void test_split_without_records(void **state)
{
	struct lease draft = {.label = "vm", .uid = 7}, *rest = NULL;
	char path[TEMP_PATH + 16];
	struct hpzd hpzd;

	put_clean(3, 4);
	start(&hpzd);
	struct lease *lease = grant(&hpzd, &draft, 2, 4, 4);
	lease_set_state(&hpzd.leases, lease, HPZ_STATE_LEASED);
	assert_int_equal(lease_split(&hpzd.leases, lease, 1, 4, 1, &rest), 0);
	die(&hpzd);
	snprintf(path, sizeof path, "%s/journal", dir);
	assert_int_equal(unlink(path), 0);
	start(&hpzd);
	assert_int_equal(hpzd.adopt_error, 0);
	assert_int_equal(hpzd.leases.segments_out, 2);
	LIST_FOR_EACH (pos, &hpzd.leases.leases)
		assert_true(LEASE_OF(pos)->is_unknown);
	die(&hpzd);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_usage),
		TEST(test_grant),
		TEST(test_grant_without_journal),
		TEST(test_grant_of_what_vanished),
		TEST(test_grant_fails_twice),
		TEST(test_restart),
		TEST(test_states_come_back),
		TEST(test_half_returned),
		TEST(test_length_was_changed),
		TEST(test_death_during_grant),
		TEST(test_death_during_return),
		TEST(test_unknown_owner),
		TEST(test_unknown_beside_known),
		TEST(test_wrong_index),
		TEST(test_record_of_another_segment),
		TEST(test_ranges),
		TEST(test_empty_runs),
		cmocka_unit_test(test_many),
		cmocka_unit_test(test_senseless_records),
		TEST(test_keys),
		TEST(test_change),
		TEST(test_death_during_growth),
		TEST(test_change_without_journal),
		TEST(test_death_during_split),
		TEST(test_split_without_records),
	};
	return cmocka_run_group_tests_name("lease", tests, NULL, NULL);
}
