/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * test_nr.c - nr_hugepages is raised and lowered by differences, others' changes are noticed, and the journal
 * knows. On a machine of the test's own: its sysfs is a directory (a stand-in: the numbers are only files).
 */
#include "machine.h"

static struct nr nr;
static uv_loop_t loop;
static struct pool pool;
static struct journal *journal;
static unsigned changes;
static char dir[TEMP_PATH];

static void on_changed(void *user)
{
	changes++;
}

static int setup(void **state)
{
	machine_open(10);
	temp_put(machine.root, "proc/sys/vm/compact_memory", "");
	temp_make(dir);
	memset(&pool, 0, sizeof pool);
	pool.config = (struct config_pool){.page_size = 4096, .pages = 8, .max_pages = 8};
	snprintf(pool.name, sizeof pool.name, "p");
	list_init(&pool.classes);
	assert_int_equal(uv_loop_init(&loop), 0);
	assert_int_equal(journal_open(dir, MACHINE_BOOT_ID, NULL, NULL, NULL, &journal), 0);
	nr_init(&nr, &loop, &machine.host, on_changed, NULL);
	nr.journal = journal;
	changes = 0;
	return 0;
}

static int teardown(void **state)
{
	assert_int_equal(uv_loop_close(&loop), 0);
	journal_close(journal);
	temp_remove(dir);
	machine_close();
	return 0;
}

static void read_kernel(void)
{
	assert_int_equal(host_get_counters(&machine.host, 0, 4096, &pool.kernel), 0);
}

static void change(int64_t pages)
{
	read_kernel();
	assert_int_equal(nr_change(&nr, &pool, pages), 0);
	assert_true(pool.is_raising);
	assert_int_equal(nr_change(&nr, &pool, pages), -EBUSY);
	unsigned before = changes;
	uv_run(&loop, UV_RUN_DEFAULT);
	assert_int_equal(changes, before + 1);
	assert_false(pool.is_raising);
	read_kernel();
}

static void on_record(enum journal_type type, const void *payload, size_t size, void *user)
{
	struct pool *pools[] = {&pool};

	nr_read_record(&nr, pools, 1, type, payload, size);
}

/* What whoever starts after us reads. */
static void read_back(void)
{
	uint64_t bytes;
	int fd;

	pool.raised = pool.give_back = 77;
	assert_int_equal(journal_dup(journal, &fd, &bytes), 0);
	assert_int_equal(journal_read(fd, bytes, MACHINE_BOOT_ID, on_record, NULL), 0);
	close(fd);
}

static bool was_compacted(void)
{
	char *text = temp_read(machine.root, "proc/sys/vm/compact_memory", NULL);
	bool is_one = strcmp(text, "1\n") == 0;

	free(text);
	return is_one;
}

/* ---- raising and lowering ---- */

static void test_raises_and_lowers(void **state)
{
	change(5);
	assert_int_equal(machine_get("nr_hugepages"), 15);
	assert_int_equal(pool.raised, 5);
	assert_false(was_compacted());
	read_back();
	assert_int_equal(pool.raised, 5);
	machine_put("free_hugepages", 15);
	change(-2);
	assert_int_equal(machine_get("nr_hugepages"), 13);
	assert_int_equal(pool.raised, 3);
	read_back();
	assert_int_equal(pool.raised, 3);
}

/* For somebody who waits, beyond what the pool is to have: owed as soon as he is gone and nothing is lent of
 * it.
 */
static void test_raised_for_who_waits(void **state)
{
	machine_put("surplus_hugepages", 3); /* these become ordered ones first: seven come */
	pool.nr_awaited = 6;
	change(10);
	assert_int_equal(pool.raised, 7);
	assert_int_equal(pool.raised_awaited, 3); /* the pool's own four came first */
	read_back();
	assert_int_equal(pool.raised, 7);
	assert_int_equal(pool.raised_awaited, 3);
	pool.give_back = 0;
	pool.waiting = 1;
	nr_owe_awaited(&nr, &pool);
	assert_int_equal(pool.give_back, 0);
	pool.waiting = 0;
	nr_owe_awaited(&nr, &pool);
	assert_int_equal(pool.give_back, 3);
	assert_int_equal(pool.raised_awaited, 0);
	read_back();
	assert_int_equal(pool.give_back, 3);
	assert_int_equal(pool.raised_awaited, 0);
}

/* The kernel gives less: memory is compacted and the rest asked for again, once, then later. Surplus pages of
 * others become ordered ones first, so three of five are not new. */
static void test_compacts(void **state)
{
	machine_put("surplus_hugepages", 3);
	change(5);
	assert_true(was_compacted());
	assert_int_equal(pool.raised, 2);
	assert_int_equal(pool.raise_failures, 1);
	assert_true(pool.raise_retry_ns > uv_now(&loop) * NS_PER_MS);
	/* Less compaction than memory: what cannot be compacted is no reason not to raise. */
	machine_put("surplus_hugepages", 0);
	change(2);
	assert_int_equal(pool.raised, 4);
	assert_int_equal(pool.raise_failures, 0);
}

/* A kernel or a sandbox without it. */
static void test_cannot_compact(void **state)
{
	char path[PATH_MAX];

	temp_path(machine.root, "proc/sys/vm/compact_memory", path);
	assert_int_equal(unlink(path), 0);
	machine_put("surplus_hugepages", 3);
	change(5);
	assert_int_equal(pool.raised, 2);
}

static void test_cannot_be_written(void **state)
{
	char path[PATH_MAX], away[PATH_MAX];

	read_kernel();
	temp_path(machine.root, MACHINE_COUNTERS "nr_hugepages", path);
	temp_path(machine.root, "away", away);
	assert_int_equal(rename(path, away), 0);
	assert_int_equal(nr_change(&nr, &pool, 5), 0);
	uv_run(&loop, UV_RUN_DEFAULT);
	assert_int_equal(pool.raised, 0);
	assert_int_equal(pool.raise_failures, 1);
	assert_int_equal(rename(away, path), 0);
	read_back();
	assert_int_equal(pool.raised, 0);
}

/* Pages in use are nobody's to take. */
static void test_lowers_what_is_free(void **state)
{
	change(5);
	machine_put("free_hugepages", 2);
	change(-5);
	assert_int_equal(machine_get("nr_hugepages"), 13);
	assert_int_equal(pool.raised, 3);
	assert_int_equal(pool.raise_failures, 1);
}

/* ---- what is owed ---- */

static void test_owes(void **state)
{
	nr_owe(&nr, &pool, 4); /* nothing is ours */
	assert_int_equal(pool.give_back, 0);
	change(5);
	nr_owe(&nr, &pool, 4);
	assert_int_equal(pool.give_back, 4);
	nr_owe(&nr, &pool, 4);
	assert_int_equal(pool.give_back, 5);
	nr_owe(&nr, &pool, -2);
	assert_int_equal(pool.give_back, 3);
	read_back();
	assert_int_equal(pool.give_back, 3);
	assert_int_equal(pool.raised, 5);
	machine_put("free_hugepages", 15);
	change(-1);
	assert_int_equal(pool.give_back, 2);
	read_back();
	assert_int_equal(pool.give_back, 2);
	assert_int_equal(pool.raised, 4);
}

/* Larger and smaller again before the kernel has answered: what it gives then goes back. */
static void test_owes_what_comes(void **state)
{
	read_kernel();
	assert_int_equal(nr_change(&nr, &pool, 5), 0);
	nr_owe(&nr, &pool, 9);
	assert_int_equal(pool.give_back, 5);
	read_back();
	assert_true(pool.raised <= 5 && pool.give_back <= pool.raised);
	pool.raised = 0;
	pool.give_back = 5;
	machine_put("surplus_hugepages", 2); /* and that is less */
	uv_run(&loop, UV_RUN_DEFAULT);
	assert_true(pool.give_back == pool.raised && pool.raised <= 5);
}

/* ---- death ---- */

/* Killed between the intent and what follows; a compaction in the middle keeps the intent. */
static void write_all(struct journal *into, void *user)
{
	struct pool *pools[] = {&pool};

	nr_write_all(&nr, into, pools, 1);
}

static void test_dies_while_raising(void **state)
{
	read_kernel();
	assert_int_equal(nr_change(&nr, &pool, 5), 0);
	assert_int_equal(journal_compact(journal, write_all, NULL), 0);
	uint64_t bytes;
	int fd;
	assert_int_equal(journal_dup(journal, &fd, &bytes), 0);
	uv_run(&loop, UV_RUN_DEFAULT); /* what the kernel does whether we live or not */
	assert_int_equal(machine_get("nr_hugepages"), 15);
	pool.raised = 77;
	assert_int_equal(journal_read(fd, bytes, MACHINE_BOOT_ID, on_record, NULL), 0);
	assert_int_equal(pool.raised, 5);
	/* Or it came to nothing, or to less. */
	machine_put("nr_hugepages", 10);
	assert_int_equal(journal_read(fd, bytes, MACHINE_BOOT_ID, on_record, NULL), 0);
	assert_int_equal(pool.raised, 0);
	machine_put("nr_hugepages", 12);
	assert_int_equal(journal_read(fd, bytes, MACHINE_BOOT_ID, on_record, NULL), 0);
	assert_int_equal(pool.raised, 2);
	close(fd);
}

static void test_dies_while_lowering(void **state)
{
	change(5);
	nr_owe(&nr, &pool, 3);
	machine_put("free_hugepages", 15);
	read_kernel();
	assert_int_equal(nr_change(&nr, &pool, -3), 0);
	uint64_t bytes;
	int fd;
	assert_int_equal(journal_dup(journal, &fd, &bytes), 0);
	uv_run(&loop, UV_RUN_DEFAULT);
	/* As if it had come to pass: rather a page too many kept than somebody else's taken. */
	assert_int_equal(journal_read(fd, bytes, MACHINE_BOOT_ID, on_record, NULL), 0);
	assert_int_equal(pool.raised, 2);
	assert_int_equal(pool.give_back, 0);
	close(fd);
}

/* All that was raised, as a drain gives it back: nothing is left that could be owed for who waited. */
static void test_dies_while_giving_back_awaited(void **state)
{
	pool.nr_awaited = 5;
	change(5);
	assert_int_equal(pool.raised_awaited, 5);
	machine_put("free_hugepages", 15);
	read_kernel();
	assert_int_equal(nr_change(&nr, &pool, -5), 0);
	uint64_t bytes;
	int fd;
	assert_int_equal(journal_dup(journal, &fd, &bytes), 0);
	uv_run(&loop, UV_RUN_DEFAULT);
	assert_int_equal(journal_read(fd, bytes, MACHINE_BOOT_ID, on_record, NULL), 0);
	assert_int_equal(pool.raised, 0);
	assert_int_equal(pool.raised_awaited, 0);
	close(fd);
}

/* ---- others ---- */

static void put_nr(uint64_t number, uint64_t surplus)
{
	machine_put("nr_hugepages", number);
	machine_put("surplus_hugepages", surplus);
	read_kernel();
}

static void test_others(void **state)
{
	char text[512];

	read_kernel();
	assert_false(nr_look(&nr, &pool)); /* the first look knows no better */
	assert_false(nr_look(&nr, &pool));
	change(5);
	assert_false(nr_look(&nr, &pool)); /* we ourselves */
	assert_false(nr_explain(&pool, text, sizeof text));
	put_nr(12, 0);
	assert_true(nr_look(&nr, &pool));
	assert_int_equal(pool.raised, 2);                   /* three of ours may be gone */
	assert_false(nr_explain(&pool, text, sizeof text)); /* nothing is missing: it does not matter */
	pool.plan.short_pages = 3;
	assert_true(nr_explain(&pool, text, sizeof text));
	assert_non_null(strstr(text, "from 15 to 12"));
	put_nr(11, 0);
	assert_true(nr_look(&nr, &pool));
	assert_true(nr_explain(&pool, text, sizeof text));
	assert_non_null(strstr(text, "from 15 to 11"));
	put_nr(15, 0);
	assert_true(nr_look(&nr, &pool));
	assert_false(nr_explain(&pool, text, sizeof text));
	assert_int_equal(pool.raised, 1); /* whose these are nobody knows */
	read_back();
	assert_int_equal(pool.raised, 1);
}

static void test_surplus(void **state)
{
	char text[512];

	pool.pages[SEGMENT_CLEAN] = 9;
	read_kernel();
	nr_look(&nr, &pool);
	put_nr(10, 3); /* somebody wrote 7 while 10 were in use */
	assert_true(nr_look(&nr, &pool));
	assert_true(nr_explain(&pool, text, sizeof text));
	assert_non_null(strstr(text, "is 7, but hpzd holds 9"));
	pool.pages[SEGMENT_CLEAN] = 7;
	assert_false(nr_explain(&pool, text, sizeof text)); /* others' */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_raises_and_lowers, setup, teardown),
		cmocka_unit_test_setup_teardown(test_raised_for_who_waits, setup, teardown),
		cmocka_unit_test_setup_teardown(test_compacts, setup, teardown),
		cmocka_unit_test_setup_teardown(test_cannot_compact, setup, teardown),
		cmocka_unit_test_setup_teardown(test_cannot_be_written, setup, teardown),
		cmocka_unit_test_setup_teardown(test_lowers_what_is_free, setup, teardown),
		cmocka_unit_test_setup_teardown(test_owes, setup, teardown),
		cmocka_unit_test_setup_teardown(test_owes_what_comes, setup, teardown),
		cmocka_unit_test_setup_teardown(test_dies_while_raising, setup, teardown),
		cmocka_unit_test_setup_teardown(test_dies_while_lowering, setup, teardown),
		cmocka_unit_test_setup_teardown(test_dies_while_giving_back_awaited, setup, teardown),
		cmocka_unit_test_setup_teardown(test_others, setup, teardown),
		cmocka_unit_test_setup_teardown(test_surplus, setup, teardown),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
