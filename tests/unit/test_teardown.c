/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_teardown.c - what the ends of leases cost: the life of a record, histograms, and what the journal
 * makes of both. */
#include "temp.h"
#include "teardown.h"

#define BOOT_ID "01234567-89ab-cdef-0123-456789abcdef"
#define PAGE    ((uint64_t)2 << 20)

static char dir[TEMP_PATH];
static struct journal *journal;
static struct lease_table leases;
static struct teardown teardown;
static unsigned changes;

static struct pool pool = {.config.page_size = PAGE};

/* A lease of two segments, of one page each. */
struct end {
	struct pool_segment segments[2], *places[2];
	struct lease lease;
};

static void note_change(void *user)
{
	changes++;
}

static void read_record(enum journal_type type, const void *payload, size_t bytes, void *user)
{
	teardown_read_record(&teardown, type, payload, bytes);
}

static void begin_run(void)
{
	assert_int_equal(teardown_init(&teardown, note_change, NULL), 0);
	teardown_set_regime(&teardown, "regime", NULL, 0);
	assert_int_equal(lease_init_table(&leases), 0);
	assert_int_equal(journal_open(dir, BOOT_ID, read_record, NULL, NULL, &journal), 0);
	teardown_finish_adoption(&teardown, &leases, journal);
}

static void end_run(void)
{
	teardown_deinit(&teardown);
	lease_deinit_table(&leases);
	journal_close(journal);
}

/* As SIGKILL and the next start do it; with a compaction as at a start, if wanted. */
static void write_all(struct journal *into, void *user)
{
	teardown_write_all(&teardown, into);
}

static void die_and_restart(bool compacts)
{
	end_run();
	begin_run();
	if (compacts)
		assert_int_equal(journal_compact(journal, write_all, NULL), 0);
}

static int set_up(void **state)
{
	changes = 0;
	temp_make(dir);
	begin_run();
	return 0;
}

static int tear_down(void **state)
{
	end_run();
	temp_remove(dir);
	return 0;
}

static void make_end(struct end *end, uint64_t id, const char *label)
{
	*end = (struct end){.lease = {.id = id, .uid = 7, .state = HPZ_STATE_LEASED, .segment_count = 2}};
	for (size_t i = 0; i < 2; i++) {
		end->segments[i] = (struct pool_segment){.pool = &pool, .lease = id, .pages = 1, .given = 1};
		end->places[i] = &end->segments[i];
	}
	end->lease.segments = end->places;
	end->lease.segments_out = 2;
	end->lease.deliver = HPZ_DELIVER_FD;
	snprintf(end->lease.label, sizeof end->lease.label, "%s", label);
}

static struct exits_seen make_exit(enum exits_how how, uint64_t begun_ns, uint64_t gone_ns)
{
	struct exits_seen seen = {.pid = 5,
		.source = EXITS_BPF,
		.how = how,
		.code = 9,
		.begun_ns = begun_ns,
		.gone_ns = gone_ns,
		.table_bytes = 4096,
		.steal_ns = EXITS_NONE};
	return seen;
}

/* From the end of the lease to clean memory: proven 10 later, clean 100 later. */
static void run_end(struct end *end, uint64_t now_ns, bool lives_on)
{
	teardown_begin(&teardown, &end->lease, now_ns);
	for (size_t i = 0; i < 2; i++)
		teardown_add_back(&teardown, &end->lease, &end->segments[i], HANDOFF_BACK_PROVEN);
	teardown_set_over(&teardown, &end->lease, lives_on, now_ns + 10);
	for (size_t i = 0; i < 2; i++)
		teardown_set_mended(&teardown, &end->segments[i], true, now_ns + 100);
}

static void run_one(uint64_t id, const char *label)
{
	struct end end;
	make_end(&end, id, label);
	run_end(&end, 1000, true);
	teardown_save(&teardown);
}

static uint64_t get_stage(const struct teardown_record *record, enum hpz_teardown_stage stage)
{
	uint64_t ns = EXITS_NONE;
	return teardown_get_stage(record, stage, &ns) ? ns : EXITS_NONE;
}

static uint64_t count_all(enum hpz_teardown_stage stage)
{
	uint64_t count = 0;
	for (size_t i = 0; i < teardown.key_count; i++)
		count += teardown.keys[i].histograms[stage - 1].count;
	return count;
}

/* ---- the life of a record ---- */

static void test_exit(void **state)
{
	struct end end;
	const struct exits_seen seen = make_exit(EXITS_KILL, 500, 900);
	make_end(&end, 1, "vm");
	teardown_add_exit(&teardown, 1, &end.lease, &seen);
	teardown_save(&teardown);
	assert_null(teardown_find_news(&teardown, 0, -1)); /* one of its holders may have gone */
	run_end(&end, 1000, false);
	assert_true(changes > 0);
	teardown_save(&teardown);
	const struct teardown_record *record = teardown_find_news(&teardown, 0, -1);
	assert_non_null(record);
	assert_ptr_equal(record, teardown_find(&teardown, 1));
	assert_true(record->is_complete && record->sequence == 1 && record->holders == 1);
	assert_int_equal(record->how, HPZ_TEARDOWN_KILL);
	assert_true(record->bytes == 2 * PAGE && record->page_size == PAGE && record->uid == 7);
	assert_int_equal(get_stage(record, HPZ_TEARDOWN_STAGE_EXIT), 400);
	assert_int_equal(get_stage(record, HPZ_TEARDOWN_STAGE_PROOF), 110);
	assert_int_equal(get_stage(record, HPZ_TEARDOWN_STAGE_CLEAR), 90);
	assert_int_equal(get_stage(record, HPZ_TEARDOWN_STAGE_TOTAL), 600);
	for (int stage = HPZ_TEARDOWN_STAGE_EXIT; stage <= HPZ_TEARDOWN_STAGE_TOTAL; stage++)
		assert_int_equal(count_all((enum hpz_teardown_stage)stage), 1);
	assert_string_equal(teardown.keys[0].label, "vm");
	assert_string_equal(teardown.keys[0].regime, "regime");
}

static void test_lives_on(void **state)
{
	struct end end;
	const struct exits_seen late = make_exit(EXITS_EXIT, 5000, 6000);
	make_end(&end, 1, "vm");
	run_end(&end, 1000, true);
	teardown_add_exit(&teardown, 1, NULL, &late); /* not the lease's end any more */
	teardown_save(&teardown);
	const struct teardown_record *record = teardown_find(&teardown, 1);
	assert_int_equal(record->how, HPZ_TEARDOWN_UNMAP);
	assert_int_equal(record->holders, 0);
	assert_int_equal(get_stage(record, HPZ_TEARDOWN_STAGE_EXIT), EXITS_NONE);
	assert_int_equal(get_stage(record, HPZ_TEARDOWN_STAGE_PROOF), 10);
	assert_int_equal(get_stage(record, HPZ_TEARDOWN_STAGE_TOTAL), 100);
	assert_int_equal(count_all(HPZ_TEARDOWN_STAGE_EXIT), 0);
}

/* Told after all memory was clean: it is added, and counted once. */
static void test_late_exit(void **state)
{
	struct end end;
	const struct exits_seen seen = make_exit(EXITS_EXIT, 500, 900);
	make_end(&end, 1, "vm");
	run_end(&end, 1000, false);
	teardown_save(&teardown);
	const struct teardown_record *record = teardown_find(&teardown, 1);
	uint64_t revision = record->revision;
	assert_int_equal(record->how, HPZ_TEARDOWN_UNKNOWN);
	for (int i = 0; i < 2; i++) {
		teardown_add_exit(&teardown, 1, NULL, &seen);
		teardown_save(&teardown);
	}
	assert_int_equal(record->how, HPZ_TEARDOWN_EXIT);
	assert_true(record->revision > revision && record->sequence == 1);
	assert_int_equal(count_all(HPZ_TEARDOWN_STAGE_EXIT), 1);
	assert_int_equal(count_all(HPZ_TEARDOWN_STAGE_PROOF), 1);
	teardown_add_exit(&teardown, 4711, NULL, &seen); /* of nobody that is known */
	assert_null(teardown_find(&teardown, 4711));
}

static void test_last_holder(void **state)
{
	struct end end;
	const struct exits_seen first = make_exit(EXITS_EXIT, 100, 200),
				last = make_exit(EXITS_KILL, 50, 300);
	make_end(&end, 1, "vm");
	teardown_add_exit(&teardown, 1, &end.lease, &last);
	teardown_add_exit(&teardown, 1, &end.lease, &first);
	run_end(&end, 1000, false);
	const struct teardown_record *record = teardown_find(&teardown, 1);
	assert_int_equal(record->holders, 2);
	assert_int_equal(record->how, HPZ_TEARDOWN_KILL);
	assert_int_equal(record->exit.gone_ns, 300);
}

static void test_kernel(void **state)
{
	struct end end;
	make_end(&end, 1, "vm");
	teardown_begin(&teardown, &end.lease, 1000);
	teardown_add_back(&teardown, &end.lease, &end.segments[0], HANDOFF_BACK_KERNEL);
	teardown_add_back(&teardown, &end.lease, &end.segments[1], HANDOFF_BACK_PROVEN);
	teardown_set_over(&teardown, &end.lease, true, 1010);
	const struct teardown_record *record = teardown_find(&teardown, 1);
	assert_true(!record->is_complete && record->kernel_bytes == PAGE);
	teardown_set_mended(&teardown, &end.segments[1], false, 1020);
	assert_true(record->is_complete && record->kernel_bytes == 2 * PAGE && record->orphan_bytes == 0);
	assert_int_equal(record->proven_ns, 1010);
	assert_int_equal(get_stage(record, HPZ_TEARDOWN_STAGE_CLEAR), EXITS_NONE);
}

static void test_orphan(void **state)
{
	struct end end;
	make_end(&end, 1, "vm");
	end.lease.is_forced = true;
	teardown_begin(&teardown, &end.lease, 1000);
	for (size_t i = 0; i < 2; i++)
		teardown_add_back(&teardown, &end.lease, &end.segments[i], HANDOFF_BACK_ORPHAN);
	teardown_set_over(&teardown, &end.lease, true, 1010);
	const struct teardown_record *record = teardown_find(&teardown, 1);
	assert_true(record->is_complete && record->is_forced && record->orphan_bytes == 2 * PAGE);
	assert_int_equal(record->proven_ns, EXITS_NONE);
}

static void test_part(void **state)
{
	struct end end;
	make_end(&end, 2, "vm");
	end.lease.state = HPZ_STATE_RETURNING;
	end.lease.split_from = 1;
	run_end(&end, 1000, false);
	const struct teardown_record *record = teardown_find(&teardown, 2);
	assert_int_equal(record->part_of, 1);
	assert_int_equal(record->how, HPZ_TEARDOWN_UNMAP);
}

static void test_nobody_had_it(void **state)
{
	struct end end;
	make_end(&end, 1, "vm");
	end.lease.state = HPZ_STATE_OFFERED;
	run_end(&end, 1000, true);
	assert_null(teardown_find(&teardown, 1));
	make_end(&end, 2, "vm");
	end.lease.deliver = HPZ_DELIVER_PATH;
	run_end(&end, 1000, false);
	assert_null(teardown_find(&teardown, 2));
	end.lease.was_opened = true;
	run_end(&end, 1000, false);
	assert_non_null(teardown_find(&teardown, 2));
}

static void test_strange_segment(void **state)
{
	struct pool_segment unknown = {.pool = &pool, .lease = 0}, gone = {.pool = &pool, .lease = 99};
	teardown_set_mended(&teardown, &unknown, true, 1);
	teardown_set_mended(&teardown, &gone, true, 1);
	run_one(1, "vm");
	gone.lease = 1; /* once too often */
	teardown_set_mended(&teardown, &gone, false, 5000);
	assert_int_equal(teardown_find(&teardown, 1)->kernel_bytes, 0);
	assert_int_equal(teardown_find(&teardown, 1)->clean_ns, 1100);
}

/* ---- histograms ---- */

static void test_buckets(void **state)
{
	assert_int_equal(teardown_get_bucket(0), 0);
	assert_int_equal(teardown_get_bucket(1023), 0);
	assert_int_equal(teardown_get_bucket(1024), 1);
	assert_int_equal(teardown_get_bucket(2047), 1);
	assert_int_equal(teardown_get_bucket(2048), 2);
	assert_int_equal(teardown_get_bucket((UINT64_C(1) << 40) - 1), 30);
	assert_int_equal(teardown_get_bucket(UINT64_C(1) << 40), 31);
	assert_int_equal(teardown_get_bucket(UINT64_C(1) << 41), 31);
	assert_int_equal(teardown_get_bucket(UINT64_MAX - 1), 31);
}

static const struct teardown_key *find_key(const char *label, bool is_rest)
{
	for (size_t i = 0; i < teardown.key_count; i++) {
		if (teardown.keys[i].is_rest == is_rest && strcmp(teardown.keys[i].label, label) == 0)
			return &teardown.keys[i];
	}
	return NULL;
}

/* As many labels as one likes: the one not seen for longest goes to the rest, and nothing is lost. */
static void fill_labels(unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		char label[16];
		snprintf(label, sizeof label, "l%u", i);
		run_one(i + 1, label);
		run_one(10000 + i, "always");
	}
}

static void expect_labels(unsigned count)
{
	assert_int_equal(teardown.key_count, TEARDOWN_KEYS);
	assert_int_equal(count_all(HPZ_TEARDOWN_STAGE_CLEAR), 2 * count);
	const struct teardown_key *always = find_key("always", false), *rest = find_key("", true);
	assert_non_null(always);
	assert_non_null(rest);
	assert_int_equal(always->histograms[HPZ_TEARDOWN_STAGE_CLEAR - 1].count, count);
	assert_int_equal(rest->histograms[HPZ_TEARDOWN_STAGE_CLEAR - 1].count, count - (TEARDOWN_KEYS - 2));
	assert_int_equal(
		rest->histograms[HPZ_TEARDOWN_STAGE_CLEAR - 1].buckets[0], count - (TEARDOWN_KEYS - 2));
	assert_null(find_key("l0", false));
	assert_non_null(find_key("l199", false));
}

static void test_labels_are_bounded(void **state)
{
	fill_labels(200);
	expect_labels(200);
	for (int compacts = 0; compacts <= 1; compacts++) {
		die_and_restart(compacts);
		expect_labels(200);
	}
	/* What was compacted is read again, with what came behind it. */
	run_one(20000, "l199");
	die_and_restart(false);
	assert_int_equal(count_all(HPZ_TEARDOWN_STAGE_CLEAR), 401);
}

/* ---- kept ---- */

static void test_last_are_kept(void **state)
{
	for (uint64_t id = 1; id <= TEARDOWN_KEPT + 10; id++)
		run_one(id, "vm");
	for (int compacts = 0; compacts <= 1; compacts++) {
		assert_int_equal(teardown.complete_count, TEARDOWN_KEPT);
		assert_int_equal(teardown.record_count, TEARDOWN_KEPT);
		assert_null(teardown_find(&teardown, 10));
		assert_int_equal(teardown_find(&teardown, 11)->sequence, 11);
		assert_int_equal(teardown.sequence, TEARDOWN_KEPT + 10);
		assert_int_equal(count_all(HPZ_TEARDOWN_STAGE_CLEAR), TEARDOWN_KEPT + 10);
		die_and_restart(compacts);
	}
}

static void test_restored(void **state)
{
	struct end end;
	struct exits_seen seen = make_exit(EXITS_KILL, 500, 900);
	seen.flushes[4] = 77;
	make_end(&end, 1, "vm");
	snprintf(end.lease.comm, sizeof end.lease.comm, "qemu");
	teardown_add_exit(&teardown, 1, &end.lease, &seen);
	run_end(&end, 1000, false);
	teardown_save(&teardown);
	struct teardown_record before = *teardown_find(&teardown, 1);
	for (int compacts = 0; compacts <= 1; compacts++) {
		die_and_restart(compacts);
		const struct teardown_record *after = teardown_find(&teardown, 1);
		assert_non_null(after);
		assert_int_equal(after->revision, before.revision);
		assert_int_equal(after->sequence, 1);
		assert_true(after->ended_ns == 1000 && after->proven_ns == 1010 && after->clean_ns == 1100);
		assert_true(after->exit.pid == 5 && after->exit.code == 9);
		assert_true(after->exit.source == EXITS_BPF && after->exit.how == EXITS_KILL);
		assert_true(after->exit.begun_ns == 500 && after->exit.gone_ns == 900);
		assert_true(after->exit.table_bytes == 4096 && after->exit.steal_ns == EXITS_NONE);
		assert_int_equal(after->exit.flushes[4], 77);
		assert_int_equal(after->how, HPZ_TEARDOWN_KILL);
		assert_true(after->holders == 1 && after->uid == 7 && after->bytes == 2 * PAGE);
		assert_true(after->is_complete && after->is_over && !after->was_restarted);
		assert_string_equal(after->label, "vm");
		assert_string_equal(after->comm, "qemu");
		assert_string_equal(after->regime, "regime");
		assert_int_equal(count_all(HPZ_TEARDOWN_STAGE_EXIT), 1);
	}
	run_one(2, "vm");
	assert_true(teardown_find(&teardown, 2)->revision > before.revision);
	assert_int_equal(teardown_find(&teardown, 2)->sequence, 2);
}

/* Its memory was being cleared: whose it was is lost, and so is when it was clean. */
static void test_death_while_clearing(void **state)
{
	struct end end;
	make_end(&end, 1, "vm");
	teardown_begin(&teardown, &end.lease, 1000);
	for (size_t i = 0; i < 2; i++)
		teardown_add_back(&teardown, &end.lease, &end.segments[i], HANDOFF_BACK_PROVEN);
	teardown_set_over(&teardown, &end.lease, true, 1010);
	teardown_set_mended(&teardown, &end.segments[0], true, 1050);
	teardown_save(&teardown);
	die_and_restart(false);
	const struct teardown_record *record = teardown_find(&teardown, 1);
	assert_true(record->is_complete && record->was_restarted && record->sequence == 1);
	assert_int_equal(record->proven_ns, 1010);
	assert_int_equal(get_stage(record, HPZ_TEARDOWN_STAGE_CLEAR), EXITS_NONE);
	assert_int_equal(count_all(HPZ_TEARDOWN_STAGE_PROOF), 1);
	assert_int_equal(count_all(HPZ_TEARDOWN_STAGE_CLEAR), 0);
	die_and_restart(true);
	assert_int_equal(count_all(HPZ_TEARDOWN_STAGE_PROOF), 1);
}

/* The journal holds no more than what is kept, however many ends there were. */
static void test_journal_is_bounded(void **state)
{
	for (uint64_t id = 1; id <= 8000; id++) {
		run_one(id, "vm");
		if (journal_wants_compaction(journal, teardown_get_journal_bytes(&teardown)))
			assert_int_equal(journal_compact(journal, write_all, NULL), 0);
	}
	assert_true(journal_get_bytes(journal) < UINT64_C(3) << 20);
	die_and_restart(true);
	assert_true(journal_get_bytes(journal) < teardown_get_journal_bytes(&teardown) * 2);
	assert_int_equal(count_all(HPZ_TEARDOWN_STAGE_CLEAR), 8000);
}

/* ---- news ---- */

static void test_news(void **state)
{
	struct end end;
	run_one(1, "a");
	uint64_t revision = teardown.revision;
	assert_null(teardown_find_news(&teardown, revision, -1));
	make_end(&end, 2, "b");
	end.lease.uid = 8;
	teardown_begin(&teardown, &end.lease, 1000);
	assert_null(teardown_find_news(&teardown, revision, -1)); /* not before it is saved */
	teardown_save(&teardown);
	assert_int_equal(teardown_find_news(&teardown, revision, -1)->lease, 2);
	assert_int_equal(teardown_find_news(&teardown, 0, -1)->lease, 1);
	assert_int_equal(teardown_find_news(&teardown, 0, 8)->lease, 2);
	assert_null(teardown_find_news(&teardown, revision, 7));
	assert_null(teardown_find_news(&teardown, UINT64_MAX, -1));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_exit, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_lives_on, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_late_exit, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_last_holder, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_kernel, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_orphan, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_part, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_nobody_had_it, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_strange_segment, set_up, tear_down),
		cmocka_unit_test(test_buckets),
		cmocka_unit_test_setup_teardown(test_labels_are_bounded, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_last_are_kept, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_restored, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_death_while_clearing, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_journal_is_bounded, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_news, set_up, tear_down),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
