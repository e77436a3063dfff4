/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * test_books.c - what is no difference is not found, what is one is found with its numbers, and repair
 * touches nothing that somebody has. On tmpfs, with a machine whose counters are files of the test's own.
 */
#include "machine.h"

#define NR 40

static struct pool *pool;
static const struct config_pool config = {
	.name = "p",
	.page_size = STORE_PAGE,
	.pages = 12,
	.max_pages = 12,
	.stock = {{4 * STORE_PAGE, 3}},
	.stock_count = 1,
};

/* ---- set up ---- */

static int setup(void **state)
{
	machine_open(NR);
	harness_open(NULL);
	pool = harness_add_pool(&config);
	harness_put_clean(pool, 3, 4);
	machine_put("free_hugepages", NR - 12);
	harness_turn();
	return 0;
}

static int teardown(void **state)
{
	harness_close();
	machine_close();
	return 0;
}

/* ---- a check ---- */

static bool is_over(void *user)
{
	return !harness.books.run;
}

static void wait_over(void)
{
	harness_run_until(is_over, NULL);
}

/* How many findings there are. */
static size_t check(bool repairs)
{
	uint64_t number = harness.books.run_number;

	assert_int_equal(books_check(&harness.books, repairs), 0);
	wait_over();
	assert_int_equal(harness.books.run_number, number + 1);
	return harness.books.results.count;
}

static const struct books_finding *find(uint32_t kind)
{
	const struct books_list *list = &harness.books.results;

	for (size_t i = 0; i < list->count; i++) {
		if (list->findings[i].kind == kind)
			return &list->findings[i];
	}
	for (size_t i = 0; i < list->count; i++)
		print_message("# %u: %s\n", list->findings[i].kind, list->findings[i].text);
	fail_msg("nothing of kind %u was found", kind);
	return NULL;
}

/* There is this, with these words, and nothing else; the alarm is up. */
static const struct books_finding *expect(uint32_t kind, uint32_t severity, const char *words)
{
	uint64_t alarms = harness.books.alarms;

	if (check(false) != 1)
		find(0); /* says what there is instead */
	const struct books_finding *finding = find(kind);
	if (!strstr(finding->text, words))
		fail_msg("\"%s\" is not in \"%s\"", words, finding->text);
	assert_int_equal(finding->severity, severity);
	assert_false(finding->is_repaired);
	bool is_difference = severity == HPZ_SEVERITY_DIFFERENCE;
	assert_int_equal(harness.books.alarms, alarms + is_difference);
	assert_int_equal(harness.books.message[0] != '\0', is_difference);
	return finding;
}

static void expect_repaired(uint32_t kind)
{
	check(true);
	assert_true(find(kind)->is_repaired);
	assert_string_equal(harness.books.message, "");
	assert_int_equal(check(false), 0);
}

static void expect_not_repaired(uint32_t kind)
{
	check(true);
	assert_false(find(kind)->is_repaired);
	assert_true(harness.books.message[0] != '\0');
}

static void test_balanced(void **state)
{
	assert_int_equal(books_check(&harness.books, false), 0);
	assert_int_equal(books_check(&harness.books, false), -EBUSY);
	wait_over();
	assert_int_equal(harness.books.results.count, 0);
	assert_true(harness.books.segments == 3 && harness.books.leases == 0);
	assert_int_equal(check(true), 0);
	assert_int_equal(harness.books.alarms, 0);
	assert_string_equal(harness.books.message, "");
	harness.reconcile.has_leftovers = true;
	assert_int_equal(books_check(&harness.books, false), -EAGAIN);
	harness.reconcile.has_leftovers = false;
}

/* ---- the cheap look ---- */

static void look(uint64_t alarms, const char *words)
{
	for (int i = 0; i < 3; i++)
		books_look(&harness.books); /* each difference is one alarm, however often it is seen */
	assert_int_equal(harness.books.alarms, alarms);
	if (words[0] && !strstr(harness.books.message, words))
		fail_msg("\"%s\" is not in \"%s\"", words, harness.books.message);
	if (!words[0])
		assert_string_equal(harness.books.message, "");
}

static void test_counts(void **state)
{
	look(0, "");
	pool->segments[SEGMENT_CLEAN]++;
	look(1, "pool p: 4 segments are clean, but its classes have 3");
	assert_int_equal(check(true), 1); /* and no repair of what is a mistake of ours */
	assert_false(find(HPZ_FINDING_COUNTS)->is_repaired);
	pool->segments[SEGMENT_CLEAN]--;
	uint64_t alarms = harness.books.alarms;
	look(alarms, "");
	pool->pages[SEGMENT_CLEAN]--;
	look(alarms + 1, "11 pages are clean in segments of 12");
	pool->pages[SEGMENT_CLEAN]++;
	harness.leases.segments_out++;
	look(alarms + 2, "0 segments are leased, but leases have 1");
	harness.leases.segments_out--;
	look(alarms + 2, "");
}

/* ---- names ---- */

static void test_foreign(void **state)
{
	harness_release();
	for (size_t state_ = 0; state_ < SEGMENT_STATE_COUNT; state_++) {
		const char *state_name = segment_get_state_name((enum segment_state)state_);
		char name[64], words[128];
		snprintf(name, sizeof name, "hpz/1/node0/%s/stranger", state_name);
		snprintf(words, sizeof words, "%s/stranger is in no book", state_name);
		temp_put(harness.dir, name, "");
		const struct books_finding *finding =
			expect(HPZ_FINDING_FOREIGN, HPZ_SEVERITY_DIFFERENCE, words);
		assert_string_equal(finding->pool, "p");
		assert_true(faccessat(pool->dirs.fds[state_], "stranger", F_OK, 0) == 0); /* not of itself */
		expect_repaired(HPZ_FINDING_FOREIGN);
		assert_int_equal(faccessat(pool->dirs.fds[state_], "stranger", F_OK, 0), -1);
	}
}

/* A name like ours is not ours: of another generation, or of a segment that is elsewhere. */
static void test_like_ours(void **state)
{
	const struct pool_segment *segment = pool_find_clean(pool, 4);
	char name[SEGMENT_NAME_MAX], other[SEGMENT_NAME_MAX + 32];

	pool_get_segment_name(segment, name);
	snprintf(other, sizeof other, "hpz/1/node0/dirty/%s", name);
	temp_put(harness.dir, other, "");
	expect(HPZ_FINDING_FOREIGN, HPZ_SEVERITY_DIFFERENCE, "dirty/");
	assert_int_equal(unlinkat(pool->dirs.fds[SEGMENT_DIRTY], name, 0), 0);
	snprintf(other, sizeof other, "hpz/1/node0/clean/%" PRIu64 ".77", segment->id);
	temp_put(harness.dir, other, "");
	expect(HPZ_FINDING_FOREIGN, HPZ_SEVERITY_DIFFERENCE, ".77 is in no book");
}

/* What was there at one look and not at the next was only on its way. */
static void test_passing(void **state)
{
	temp_put(harness.dir, "hpz/1/node0/clean/stranger", "");
	assert_int_equal(books_check(&harness.books, true), 0);
	harness_run_ms(100);
	assert_int_equal(unlinkat(pool->dirs.fds[SEGMENT_CLEAN], "stranger", 0), 0);
	wait_over();
	assert_int_equal(harness.books.results.count, 0);
	assert_int_equal(harness.books.alarms, 0);
}

static void test_vanished(void **state)
{
	struct pool_segment *segment = pool_find_clean(pool, 4);
	char name[SEGMENT_NAME_MAX];
	uint64_t id = segment->id;

	pool_get_segment_name(segment, name);
	assert_int_equal(unlinkat(pool->dirs.fds[SEGMENT_CLEAN], name, 0), 0);
	const struct books_finding *finding =
		expect(HPZ_FINDING_MISSING, HPZ_SEVERITY_DIFFERENCE, "is gone, but hpzd counts its 4 pages");
	assert_int_equal(finding->segment, id);
	assert_int_equal(pool->pages[SEGMENT_CLEAN], 12);
	check(true);
	assert_true(find(HPZ_FINDING_MISSING)->is_repaired);
	assert_int_equal(pool->pages[SEGMENT_CLEAN], 8);
}

/* ---- files ---- */

static void change_clean(mode_t mode, uint64_t keep, uint64_t length)
{
	char name[SEGMENT_NAME_MAX];

	/* Whoever is seen at it makes it dirty at once: this one is not seen. */
	sentry_remove_pool(harness.reconcile.sentry, pool);
	pool_get_segment_name(pool_find_clean(pool, 4), name);
	assert_int_equal(fchmodat(pool->dirs.fds[SEGMENT_CLEAN], name, 0600, 0), 0);
	int fd = openat(pool->dirs.fds[SEGMENT_CLEAN], name, O_RDWR | O_CLOEXEC);
	assert_true(fd >= 0);
	if (keep < 4)
		assert_int_equal(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
					 (off_t)(keep * STORE_PAGE), (off_t)((4 - keep) * STORE_PAGE)),
			0);
	assert_int_equal(ftruncate(fd, (off_t)(length * STORE_PAGE)), 0);
	assert_int_equal(fchmod(fd, mode), 0);
	close(fd);
}

/* Ours by name, but not as we left it: not clean, whatever it holds. */
static void expect_made_dirty(uint32_t kind)
{
	check(true);
	assert_true(find(kind)->is_repaired);
	assert_true(pool->segments[SEGMENT_CLEAN] == 2 && pool->segments[SEGMENT_DIRTY] == 1);
}

static void test_mode(void **state)
{
	change_clean(0644, 4, 4);
	expect(HPZ_FINDING_WRONG, HPZ_SEVERITY_DIFFERENCE, "mode 0644");
	expect_made_dirty(HPZ_FINDING_WRONG);
}

static void test_second_name(void **state)
{
	char name[SEGMENT_NAME_MAX], other[PATH_MAX];

	temp_path(harness.dir, "elsewhere", other);
	pool_get_segment_name(pool_find_clean(pool, 4), name);
	assert_int_equal(linkat(pool->dirs.fds[SEGMENT_CLEAN], name, AT_FDCWD, other, 0), 0);
	expect(HPZ_FINDING_WRONG, HPZ_SEVERITY_DIFFERENCE, "with 2");
	expect_made_dirty(HPZ_FINDING_WRONG);
}

static void test_blocks(void **state)
{
	change_clean(0, 1, 4);
	expect(HPZ_FINDING_BLOCKS, HPZ_SEVERITY_DIFFERENCE, "has 1 pages of the kernel, but hpzd counts 4");
	expect_made_dirty(HPZ_FINDING_BLOCKS);
	assert_int_equal(pool->pages[SEGMENT_DIRTY], 1);
}

static void test_length(void **state)
{
	change_clean(0, 4, 6);
	expect(HPZ_FINDING_WRONG, HPZ_SEVERITY_DIFFERENCE, "is to have 4 pages, but is 6 long");
}

/* A worker has it just now: it is not as it will be. */
static void test_busy(void **state)
{
	struct pool_segment *segment = pool_find_clean(pool, 4);

	change_clean(0, 1, 4);
	segment->is_busy = true;
	assert_int_equal(check(true), 0);
	segment->is_busy = false;
	assert_int_equal(check(false), 1);
}

/* ---- leases ---- */

static struct lease *grant(uint32_t deliver, bool with_link)
{
	struct lease draft = {.uid = geteuid(),
		.pid = 8,
		.deliver = deliver,
		.file_uid = geteuid(),
		.file_gid = getegid(),
		.file_mode = 0600,
		.label = "vm"};
	struct lease *lease = NULL;
	const uint64_t given = 4;
	struct pool_segment *segment = pool_find_clean(pool, 4);

	assert_non_null(segment);
	if (with_link)
		assert_int_equal(handoff_make_token(&draft, &segment, 1), 0);
	assert_int_equal(lease_grant(&harness.leases, &draft, &segment, &given, 1, &lease), 0);
	assert_int_equal(handoff_watch(harness.handoff, lease, -1), 0);
	/* A file that only root may open is linked where counts are looked at by its name. */
	if (with_link)
		assert_int_equal(handoff_link(harness.handoff, lease), 0);
	return lease;
}

static void change_leased(const struct lease *lease, uint64_t keep, uint64_t pages)
{
	char name[SEGMENT_NAME_MAX];
	int dir = pool->dirs.fds[SEGMENT_LEASED];

	pool_get_segment_name(lease->segments[0], name);
	assert_int_equal(fchmodat(dir, name, 0600, 0), 0);
	int fd = openat(dir, name, O_RDWR | O_CLOEXEC);
	assert_true(fd >= 0);
	if (keep < 4)
		assert_int_equal(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
					 (off_t)(keep * STORE_PAGE), (off_t)((4 - keep) * STORE_PAGE)),
			0);
	assert_int_equal(ftruncate(fd, (off_t)(pages * STORE_PAGE)), 0);
	close(fd);
}

/* What a holder may do to its own file. */
static void test_holder(void **state)
{
	struct lease *lease = grant(HPZ_DELIVER_PATH, true);

	assert_int_equal(check(true), 0);
	assert_int_equal(harness.books.leases, 1);
	change_leased(lease, 1, 4);
	assert_int_equal(check(true), 0); /* holes are its own affair */
	change_leased(lease, 4, 2);
	expect(HPZ_FINDING_WRONG, HPZ_SEVERITY_NOTICE, "was cut to 2 pages by its holder, who was given 4");
	change_leased(lease, 4, 9);
	expect(HPZ_FINDING_WRONG, HPZ_SEVERITY_NOTICE, "was grown to 9 pages by its holder");
	check(true);
	assert_false(find(HPZ_FINDING_WRONG)->is_repaired);
	lease_set_state(&harness.leases, lease, HPZ_STATE_RETURNING);
	assert_int_equal(check(true), 0); /* about to be cut */
}

/* A descriptor that was never to be opened again: its file stays root's, and nobody else can name it. */
static void test_private(void **state)
{
	struct lease *lease = grant(HPZ_DELIVER_FD, false);
	char name[SEGMENT_NAME_MAX];

	assert_int_equal(check(false), 0);
	pool_get_segment_name(lease->segments[0], name);
	assert_int_equal(fchmodat(pool->dirs.fds[SEGMENT_LEASED], name, 0666, 0), 0);
	expect(HPZ_FINDING_WRONG, HPZ_SEVERITY_DIFFERENCE, "mode 0666");
	expect_not_repaired(HPZ_FINDING_WRONG); /* somebody has it */
	assert_int_equal(pool->segments[SEGMENT_LEASED], 1);
}

static void test_lease_counts(void **state)
{
	struct lease *lease = grant(HPZ_DELIVER_FD, false);

	lease->segments[0]->index = 3;
	assert_int_equal(check(false), 3); /* its name is another one, too */
	assert_non_null(strstr(find(HPZ_FINDING_COUNTS)->text, "which is leased and of lease"));
	lease->segments[0]->index = 0;
	lease->segments_out = 2;
	expect(HPZ_FINDING_COUNTS, HPZ_SEVERITY_DIFFERENCE, "counts 2 segments, but has 1");
	lease->segments_out = 1;
}

/* Its record was lost: nothing is wrong with that, but the operator is told. */
static void test_unknown(void **state)
{
	struct lease *lease = grant(HPZ_DELIVER_FD, false);
	const struct journal_end end = {.size = sizeof end, .id = lease->id};

	assert_int_equal(journal_append(harness.journal, JOURNAL_END, &end, sizeof end, NULL, 0), 0);
	lease->is_unknown = true;
	expect(HPZ_FINDING_JOURNAL, HPZ_SEVERITY_NOTICE, "1 leases are in no journal");
}

/* ---- hand-over directories ---- */

static void test_out(void **state)
{
	struct lease *lease = grant(HPZ_DELIVER_PATH, true);
	char path[PATH_MAX], name[SEGMENT_TOKEN + 32];

	harness_release();
	/* Things of nobody. */
	temp_put(harness.dir, "hpz-out/stranger", "");
	expect(HPZ_FINDING_OUT, HPZ_SEVERITY_DIFFERENCE, "hpz-out/stranger is nothing of hpzd");
	expect_repaired(HPZ_FINDING_OUT);
	temp_path(harness.dir, "hpz-out/0123456789abcdef0123456789abcdef/", path);
	expect(HPZ_FINDING_OUT, HPZ_SEVERITY_DIFFERENCE, "belongs to no lease");
	expect_repaired(HPZ_FINDING_OUT);
	snprintf(name, sizeof name, "hpz-out/%.*s/1", SEGMENT_TOKEN, lease->token);
	temp_put(harness.dir, name, "");
	expect(HPZ_FINDING_OUT, HPZ_SEVERITY_DIFFERENCE, "is no link of lease");
	expect_repaired(HPZ_FINDING_OUT);
	assert_int_equal(pool->segments[SEGMENT_LEASED], 1);
	/* Things that are gone: its link, or all of it. Nothing puts these back. */
	name[strlen(name) - 1] = '0';
	temp_path(harness.dir, name, path);
	assert_int_equal(unlink(path), 0);
	expect(HPZ_FINDING_OUT, HPZ_SEVERITY_DIFFERENCE, "has 0 links of the 1 of lease");
	/* Another file by the right name. */
	temp_put(harness.dir, name, "");
	assert_int_equal(check(false), 2);
	assert_int_equal(unlink(path), 0);
	*strrchr(path, '/') = '\0';
	assert_int_equal(rmdir(path), 0);
	expect(HPZ_FINDING_OUT, HPZ_SEVERITY_DIFFERENCE, "is gone");
	expect_not_repaired(HPZ_FINDING_OUT);
	/* Returning, it is a helper's. */
	lease_set_state(&harness.leases, lease, HPZ_STATE_RETURNING);
	assert_int_equal(check(false), 0);
}

/* ---- the journal ---- */

static void test_journal(void **state)
{
	struct lease *lease = grant(HPZ_DELIVER_FD, false);
	const struct journal_end end = {.size = sizeof end, .id = lease->id};
	const struct journal_lease stranger = {.size = sizeof stranger, .id = 77};
	char words[64];

	assert_int_equal(check(false), 0);
	lease->state = HPZ_STATE_LEASED; /* and nobody wrote it down */
	expect(HPZ_FINDING_JOURNAL, HPZ_SEVERITY_DIFFERENCE, "but for the journal uid");
	expect_repaired(HPZ_FINDING_JOURNAL);
	assert_int_equal(
		journal_append(harness.journal, JOURNAL_LEASE, &stranger, sizeof stranger, NULL, 0), 0);
	expect(HPZ_FINDING_JOURNAL, HPZ_SEVERITY_DIFFERENCE, "the journal has lease 77");
	expect_repaired(HPZ_FINDING_JOURNAL);
	assert_int_equal(journal_append(harness.journal, JOURNAL_END, &end, sizeof end, NULL, 0), 0);
	snprintf(words, sizeof words, "lease %" PRIu64 " is not in the journal", lease->id);
	expect(HPZ_FINDING_JOURNAL, HPZ_SEVERITY_DIFFERENCE, words);
	expect_repaired(HPZ_FINDING_JOURNAL);
}

/* Bytes of it were lost: all that was written since cannot be read back. */
static void test_broken_journal(void **state)
{
	char path[PATH_MAX];

	grant(HPZ_DELIVER_FD, false);
	temp_path(harness.dir, "journal", path);
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(pwrite(fd, "broken", 6, 12), 6);
	close(fd);
	check(false);
	assert_int_equal(find(HPZ_FINDING_JOURNAL)->severity, HPZ_SEVERITY_DIFFERENCE);
	expect_repaired(HPZ_FINDING_JOURNAL);
}

/* ---- the kernel ---- */

static void test_kernel(void **state)
{
	machine_put("free_hugepages", NR - 11);
	expect(HPZ_FINDING_KERNEL, HPZ_SEVERITY_DIFFERENCE,
		"counts 12 pages, but of the kernel's 40 only 11 are in use");
	machine_put("free_hugepages", NR - 30); /* others use the rest */
	assert_int_equal(check(false), 0);
	struct lease *lease = grant(HPZ_DELIVER_PATH, true);
	change_leased(lease, 1, 4);
	assert_int_equal(check(false), 0);
	machine_put("resv_hugepages", NR - 30 - 2);
	machine_put("free_hugepages", NR - 30);
	expect(HPZ_FINDING_KERNEL, HPZ_SEVERITY_NOTICE,
		"punched 3 pages and may touch them again, but the kernel has only 2 free");
}

static void test_no_counters(void **state)
{
	char path[PATH_MAX];

	temp_path(machine.root, MACHINE_COUNTERS "free_hugepages", path);
	assert_int_equal(unlink(path), 0);
	expect(HPZ_FINDING_KERNEL, HPZ_SEVERITY_DIFFERENCE, "counters cannot be read");
}

/* ---- how it goes on and ends ---- */

/* More than there is room for is counted. */
static void test_dropped(void **state)
{
	for (int i = 0; i < BOOKS_FINDINGS_MAX + 5; i++) {
		char name[64];
		snprintf(name, sizeof name, "hpz/1/node0/dirty/stranger%d", i);
		temp_put(harness.dir, name, "");
	}
	assert_int_equal(check(false), BOOKS_FINDINGS_MAX);
	assert_int_equal(harness.books.results.dropped, 5);
	assert_int_equal(harness.books.alarms, BOOKS_FINDINGS_MAX);
}

/* A reload meanwhile: it begins anew, says the same, and what was to be repaired is not touched. */
static void test_restart(void **state)
{
	temp_put(harness.dir, "hpz/1/node0/clean/stranger", "");
	for (int turns = 0; turns < 6; turns++) {
		assert_int_equal(books_check(&harness.books, true), 0);
		for (int i = 0; i < turns; i++)
			harness_turn();
		books_restart(&harness.books);
		wait_over();
		assert_int_equal(harness.books.results.count, 1);
		assert_false(find(HPZ_FINDING_FOREIGN)->is_repaired);
	}
	assert_int_equal(faccessat(pool->dirs.fds[SEGMENT_CLEAN], "stranger", F_OK, 0), 0);
	books_restart(&harness.books); /* none is under way */
}

/* hpzd stops in the middle of it: at any step, the thread that reads the journal included. */
static void test_stopped(void **state)
{
	for (int turns = 0; turns < 12; turns++) {
		assert_int_equal(books_check(&harness.books, true), 0);
		for (int i = 0; i < turns; i++)
			harness_turn();
		teardown(NULL);
		setup(NULL);
	}
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_balanced),
		TEST(test_counts),
		TEST(test_foreign),
		TEST(test_like_ours),
		TEST(test_passing),
		TEST(test_vanished),
		TEST(test_mode),
		TEST(test_second_name),
		TEST(test_blocks),
		TEST(test_length),
		TEST(test_busy),
		TEST(test_holder),
		TEST(test_private),
		TEST(test_lease_counts),
		TEST(test_unknown),
		TEST(test_out),
		TEST(test_journal),
		TEST(test_broken_journal),
		TEST(test_kernel),
		TEST(test_no_counters),
		TEST(test_dropped),
		TEST(test_restart),
		TEST(test_stopped),
	};
	return cmocka_run_group_tests_name("books", tests, NULL, NULL);
}
