/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * test_reconcile.c - pools come to their stock: with real workers on tmpfs, and a machine whose counters are
 * files of the test's own. A kernel of a few lines keeps them: what is allocated is not free.
 */
#include "machine.h"

#include <sys/file.h>

static struct pool *pool;
static uint64_t others; /* pages that other programs have, or that the kernel does not give */
static bool is_exact;   /* no worker fills while counters are looked at */
static struct config_pool config;

/* ---- the kernel ---- */

static int count_file(const char *name, void *user)
{
	struct stat st;
	const struct segment_dirs *dirs = &pool->dirs;

	for (size_t state = 0; state < SEGMENT_STATE_COUNT; state++) {
		if (fstatat(dirs->fds[state], name, &st, 0) < 0)
			continue;
		/* Workers go on filling while somebody reads the counters: as if it were over already. */
		*(uint64_t *)user += state == SEGMENT_FILLING && !is_exact
					     ? (uint64_t)st.st_size / STORE_PAGE
					     : (uint64_t)st.st_blocks * 512 / STORE_PAGE;
	}
	return 0;
}

static uint64_t count_used(void)
{
	uint64_t used = 0;

	for (size_t state = 0; state < SEGMENT_STATE_COUNT; state++)
		segment_scan(&pool->dirs, (enum segment_state)state, count_file, &used);
	return used;
}

static void keep_counters(void)
{
	uint64_t nr = machine_get("nr_hugepages"), used = others + (pool ? count_used() : 0);

	machine_put("free_hugepages", nr > used ? nr - used : 0);
}

static void set_nr(uint64_t nr)
{
	machine_put("nr_hugepages", nr);
	keep_counters();
	reconcile_mark(&harness.reconcile);
}

/* ---- set up ---- */

static int setup(void **state)
{
	config = (struct config_pool){.name = "p",
		.page_size = STORE_PAGE,
		.pages = 12,
		.max_pages = 12,
		.stock = {{4 * STORE_PAGE, 2}, {STORE_PAGE, 4}},
		.stock_count = 2};
	pool = NULL;
	others = 0;
	is_exact = false;
	machine_open(0);
	harness_before_look = keep_counters;
	harness_open(NULL);
	return 0;
}

static int teardown(void **state)
{
	harness_before_look = NULL;
	harness_close();
	machine_close();
	return 0;
}

static void add_pool(uint64_t nr)
{
	machine_put("nr_hugepages", nr);
	machine_put("free_hugepages", nr);
	pool = harness_add_pool(&config);
}

static bool is_measured(void)
{
	return harness.reconcile.work.calibration_count > 0 && harness.reconcile.work.calibrations[0].is_over;
}

static bool is_idle(void *user)
{
	return is_measured() && !harness.reconcile.is_marked && reconcile_is_idle(pool, &harness.leases);
}

/* Nothing happens any more, whether all is there or not. */
static bool is_at_rest(void *user)
{
	return is_measured() && !harness.reconcile.is_marked && pool->segments[SEGMENT_FILLING] == 0 &&
	       pool->segments[SEGMENT_DIRTY] == 0 && !pool->is_raising;
}

static void wait_idle(void)
{
	harness_run_until(is_idle, NULL);
}

static void wait_rest(void)
{
	harness_run_until(is_at_rest, NULL);
	harness_run_ms(20);
	harness_run_until(is_at_rest, NULL);
}

static uint64_t count_class(uint64_t pages, enum segment_state state)
{
	POOL_FOR_EACH (pos, pool) {
		const struct pool_class *class = CONTAINER_OF(pos, struct pool_class, link);
		if (class->pages == pages)
			return class->counts[state];
	}
	return 0;
}

static void expect_clean(uint64_t of_4, uint64_t of_1)
{
	assert_int_equal(count_class(4, SEGMENT_CLEAN), of_4);
	assert_int_equal(count_class(1, SEGMENT_CLEAN), of_1);
	assert_int_equal(pool->pages[SEGMENT_CLEAN], of_4 * 4 + of_1);
}

/* ---- filling ---- */

static void test_fills(void **state)
{
	add_pool(12);
	harness_release();
	wait_idle();
	expect_clean(2, 4);
	assert_int_equal(harness.reconcile.work.bytes_filled, 12 * STORE_PAGE);
	assert_string_equal(pool->message, "");
	assert_int_equal(pool->plan.missing_pages, 0);
	/* And stays so. */
	uint64_t next = pool->next_id;
	for (int i = 0; i < 5; i++) {
		reconcile_mark(&harness.reconcile);
		harness_run_ms(2);
	}
	assert_int_equal(pool->next_id, next);
	expect_clean(2, 4);
}

static void test_fills_what_there_is(void **state)
{
	add_pool(6);
	harness_release();
	wait_rest();
	expect_clean(1, 2);
	assert_int_equal(pool->plan.short_pages, 6);
	assert_non_null(strstr(pool->message, "6 pages of 4K (24 KiB) are missing on node 0"));
	assert_non_null(strstr(pool->message, "the kernel has 0 free"));
	assert_false(reconcile_is_idle(pool, &harness.leases));
	/* More comes: it goes on by itself. */
	set_nr(12);
	wait_idle();
	expect_clean(2, 4);
	assert_string_equal(pool->message, "");
}

static void test_no_pages_at_all(void **state)
{
	add_pool(0);
	harness_release();
	wait_rest();
	expect_clean(0, 0);
	assert_int_equal(pool->plan.short_pages, 12);
	set_nr(12);
	wait_idle();
}

/* What the kernel promised others is theirs. */
static void test_reserved(void **state)
{
	machine_put("resv_hugepages", 5);
	add_pool(12);
	harness_release();
	wait_rest();
	expect_clean(1, 3);
	assert_non_null(strstr(pool->message, "5 free, 5 of them reserved"));
	machine_put("resv_hugepages", 0);
	reconcile_mark(&harness.reconcile);
	wait_idle();
}

/* The counters cannot be read: nothing is done, and it goes on when they can. */
static void test_no_counters(void **state)
{
	char path[PATH_MAX];

	add_pool(12);
	harness_before_look = NULL;
	temp_path(machine.root, MACHINE_COUNTERS "free_hugepages", path);
	assert_int_equal(unlink(path), 0);
	harness_release();
	wait_rest();
	expect_clean(0, 0);
	harness_before_look = keep_counters;
	keep_counters();
	reconcile_mark(&harness.reconcile);
	wait_idle();
	expect_clean(2, 4);
}

/* ---- the stock changes ---- */

static void test_new_stock(void **state)
{
	add_pool(12);
	harness_release();
	wait_idle();
	config.stock[0].count = 1;
	config.stock[1].count = 8;
	pool_set_config(pool, &config);
	reconcile_mark(&harness.reconcile);
	wait_idle();
	expect_clean(1, 8);
	config.pages = 5;
	config.stock[1].count = 1;
	pool_set_config(pool, &config);
	reconcile_mark(&harness.reconcile);
	wait_idle();
	expect_clean(1, 1);
	assert_int_equal(count_used(), 5);
}

static void test_drain(void **state)
{
	add_pool(12);
	harness_release();
	wait_idle();
	assert_int_equal(pool_set_state(pool_find_clean(pool, 4), SEGMENT_DIRTY), 0);
	pool->is_draining = true;
	reconcile_mark(&harness.reconcile);
	wait_rest();
	assert_true(reconcile_is_drained(pool));
	assert_int_equal(count_used(), 0);
	assert_non_null(strstr(pool->message, "drained"));
	pool->is_draining = false;
	reconcile_mark(&harness.reconcile);
	wait_idle();
	expect_clean(2, 4);
}

/* In the middle of its fills. */
static void test_drain_while_filling(void **state)
{
	add_pool(12);
	harness_turn(); /* planned, but no worker has it */
	assert_int_equal(pool->fill_jobs, 2);
	pool->is_draining = true;
	reconcile_mark(&harness.reconcile);
	harness_turn();
	assert_int_equal(pool->fill_jobs, 0);
	assert_true(reconcile_is_drained(pool));
	assert_int_equal(count_used(), 0);
	harness_release();
	wait_rest();
	expect_clean(0, 0);
}

/* ---- clearing ---- */

static void make_dirty(uint64_t pages, uint64_t keep)
{
	struct pool_segment *segment = pool_find_clean(pool, pages);
	char name[SEGMENT_NAME_MAX];

	assert_int_equal(pool_set_state(segment, SEGMENT_DIRTY), 0);
	pool_get_segment_name(segment, name);
	int dir = pool->dirs.fds[SEGMENT_DIRTY];
	assert_int_equal(fchmodat(dir, name, 0600, 0), 0);
	int fd = openat(dir, name, O_RDWR | O_CLOEXEC);
	assert_true(fd >= 0);
	unsigned char bytes[STORE_PAGE];
	memset(bytes, 0xa5, sizeof bytes);
	for (uint64_t i = 0; i < pages; i++)
		assert_int_equal(pwrite(fd, bytes, sizeof bytes, (off_t)(i * STORE_PAGE)), sizeof bytes);
	if (keep < pages)
		assert_int_equal(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
					 (off_t)(keep * STORE_PAGE), (off_t)((pages - keep) * STORE_PAGE)),
			0);
	/* Only root opens a file of mode 0; whoever else runs this lets hpzd open it, and then it is not fit.
	 */
	assert_int_equal(fchmod(fd, geteuid() == 0 ? 0 : 0600), 0);
	close(fd);
	pool_refresh(segment);
	reconcile_mark(&harness.reconcile);
}

static bool is_nothing_dirty(void *user)
{
	return pool->segments[SEGMENT_DIRTY] == 0 && !harness.reconcile.is_marked;
}

static void test_clears(void **state)
{
	add_pool(12);
	harness_release();
	wait_idle();
	uint64_t next = pool->next_id;
	make_dirty(4, 4);
	make_dirty(1, 1);
	harness_run_until(is_nothing_dirty, NULL);
	wait_idle();
	expect_clean(2, 4);
	if (geteuid() != 0)
		return;
	/* Cleared, not thrown away. */
	assert_int_equal(pool->next_id, next);
	assert_int_equal(harness.reconcile.work.bytes_cleared, 5 * STORE_PAGE);
	make_dirty(4, 1); /* with holes, for which there are pages */
	harness_run_until(is_nothing_dirty, NULL);
	expect_clean(2, 4);
	assert_int_equal(pool->next_id, next);
}

/* A hole is worth nothing when there is no page for it: what is left goes back, and what fits is made of it.
 */
static void test_clears_what_can_be_mended(void **state)
{
	add_pool(12);
	harness_release();
	wait_idle();
	make_dirty(4, 1);
	others = 3;
	keep_counters();
	wait_rest();
	expect_clean(1, 4);
	others = 0;
	reconcile_mark(&harness.reconcile);
	wait_idle();
	expect_clean(2, 4);
}

static void test_no_method(void **state)
{
	add_pool(12);
	harness_release();
	wait_idle();
	uint64_t next = pool->next_id;
	harness.reconcile.work.calibrations[0].method = -1;
	make_dirty(4, 4);
	harness_run_until(is_nothing_dirty, NULL);
	wait_idle();
	expect_clean(2, 4);
	assert_true(pool->next_id > next); /* given to the kernel, which zeroes what it gives again */
}

/* What was promised in one look, to mending and to filling together, is there: holes owed are never spent. */
static void test_promises(void **state)
{
	add_pool(12);
	harness_release();
	wait_idle();
	crew_set_hold(harness.crew, true);
	make_dirty(4, 1);                                            /* wants 3 */
	assert_int_equal(pool_discard(pool_find_clean(pool, 4)), 0); /* wants 4 */
	others = 3;                                                  /* 4 are there */
	reconcile_mark(&harness.reconcile);
	harness_turn();
	uint64_t promised = 0;
	POOL_FOR_EACH (pos, pool) {
		const struct pool_class *class = CONTAINER_OF(pos, struct pool_class, link);
		LIST_FOR_EACH (at, &class->segments[SEGMENT_FILLING])
			promised += class->pages - CONTAINER_OF(at, struct pool_segment, link)->allocated;
		LIST_FOR_EACH (at, &class->segments[SEGMENT_DIRTY])
			promised += class->pages - CONTAINER_OF(at, struct pool_segment, link)->allocated;
	}
	assert_true(promised > 0 && promised <= 4);
	harness_release();
	wait_rest();
}

/* ---- behind our back ---- */

static void test_vanished(void **state)
{
	char name[SEGMENT_NAME_MAX];

	add_pool(12);
	harness_release();
	wait_idle();
	struct pool_segment *segment = pool_find_clean(pool, 4);
	assert_int_equal(pool_set_state(segment, SEGMENT_DIRTY), 0);
	pool_get_segment_name(segment, name);
	assert_int_equal(segment_unlink(&pool->dirs, SEGMENT_DIRTY, name), 0);
	reconcile_mark(&harness.reconcile);
	wait_idle();
	expect_clean(2, 4);
	/* One that is to be filled. */
	segment = pool_find_clean(pool, 1);
	assert_int_equal(pool_set_state(segment, SEGMENT_FILLING), 0);
	pool_get_segment_name(segment, name);
	assert_int_equal(segment_unlink(&pool->dirs, SEGMENT_FILLING, name), 0);
	reconcile_mark(&harness.reconcile);
	wait_idle();
	expect_clean(2, 4);
}

/* Broken memory: told of with where and what, counted, replaced. */
static void test_retired(void **state)
{
	const struct worker_done cut = {.error = -EFAULT, .fault = 2 * STORE_PAGE},
				 soiled = {.error = -EUCLEAN, .fault = 0};

	add_pool(12);
	harness_release();
	wait_idle();
	uint64_t next = pool->next_id;
	work_retire(pool_find_clean(pool, 4), &cut, "the test says so");
	assert_int_equal(count_used(), 8);
	assert_true(pool->retired_pages == 4 && pool->sigbus == 1);
	assert_non_null(strstr(pool->alarm, "cut or punched"));
	assert_non_null(strstr(pool->alarm, "offset 8192"));
	work_retire(pool_find_clean(pool, 1), &soiled, "the test says so");
	assert_true(pool->retired_pages == 5 && pool->sigbus == 1); /* a fault is counted as a fault only */
	wait_idle();
	expect_clean(2, 4);
	assert_int_equal(pool->next_id, next + 2);
}

/* Whoever opens clean memory is seen, before it is handed out; we ourselves are not taken for him. */
static void test_opened_while_clean(void **state)
{
	char name[SEGMENT_NAME_MAX];

	add_pool(12);
	harness_release();
	wait_idle();
	if (geteuid() != 0 || !harness.reconcile.sentry)
		return; /* nobody else opens a file of mode 0 */
	uint64_t next = pool->next_id;
	struct pool_segment *segment = pool_find_clean(pool, 4);
	int fd = reconcile_open_clean(&harness.reconcile, segment);
	assert_true(fd >= 0);
	close(fd);
	assert_false(reconcile_was_opened(&harness.reconcile, segment));
	pool_get_segment_name(segment, name);
	fd = openat(pool->dirs.fds[SEGMENT_CLEAN], name, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_true(reconcile_was_opened(&harness.reconcile, segment));
	assert_int_equal(segment->state, SEGMENT_DIRTY);
	assert_int_equal(reconcile_open_clean(&harness.reconcile, segment), -EBUSY);
	/* No counts can be read here, so it is not proven free, whatever is closed: the kernel gets it. */
	close(fd);
	reconcile_mark(&harness.reconcile);
	harness_run_until(is_nothing_dirty, NULL);
	wait_idle();
	expect_clean(2, 4);
	assert_int_equal(pool->next_id, next + 1);
	assert_int_equal(harness.reconcile.work.bytes_cleared, 0);
}

static uint64_t adopt_with_a_past(bool was_weak)
{
	const struct journal_weak weak = {sizeof weak, 0, STORE_PAGE};

	segment_close_store(store_open(harness.dir));
	close(store_open_dir(harness.dir, "hpz/1/node0"));
	close(store_open_dir(harness.dir, "hpz/1/node0/clean"));
	store_put(harness.dir, "clean", "9.3", 4, 4);
	add_pool(12);
	if (was_weak)
		reconcile_read_record(&harness.reconcile, JOURNAL_WEAK, &weak, sizeof weak);
	assert_int_equal(count_class(4, SEGMENT_CLEAN), 1);
	harness_release();
	wait_idle();
	expect_clean(2, 4);
	return harness.reconcile.work.bytes_filled / STORE_PAGE;
}

/* Lent before, by an hpzd that is gone: as good as the proof that was in force all the time. */
static void test_past_proven(void **state)
{
	assert_int_equal(adopt_with_a_past(false), 8);
	assert_true(store_has(harness.dir, "clean", "9.3"));
}

static void test_past_weak(void **state)
{
	assert_int_equal(adopt_with_a_past(true), 12);
	assert_false(store_has(harness.dir, "clean", "9.3"));
}

/* Something of ours that is left from another life. */
static void test_adopted(void **state)
{
	if (geteuid() != 0)
		return; /* only root opens a file of mode 0 again */
	machine_put("nr_hugepages", 12);
	segment_close_store(store_open(harness.dir));
	store_put(harness.dir, "filling", "1.0", 4, 2);
	store_put(harness.dir, "filling", "2.0", 4, 4);
	store_put(harness.dir, "filling", "3.0", 3, 0);
	store_put(harness.dir, "dirty", "4.7", 1, 0);
	add_pool(12);
	harness_release();
	wait_idle();
	expect_clean(2, 4);
	assert_int_equal(count_class(3, SEGMENT_CLEAN), 0); /* a size that nobody wants any more */
}

/* ---- workers ---- */

static struct segment_store *get_store(void)
{
	return pool->store;
}

/* A worker of a dead hpzd lives on: nothing is begun. Also when the pool comes with a reload. */
static void test_leftovers(void **state)
{
	segment_close_store(store_open(harness.dir));
	int lock = store_open_dir(harness.dir, "hpz/1");
	assert_int_equal(flock(lock, LOCK_SH), 0);
	machine_put("nr_hugepages", 12);
	machine_put("free_hugepages", 12);
	struct segment_store *store = store_open(harness.dir);
	char error[256];
	list_append(&harness.stores, &store->link);
	assert_int_equal(pool_open(&config, "f", &machine.host, store, &pool, error, sizeof error), 0);
	segment_close_store(store);
	assert_int_equal(reconcile_add_pool(&harness.reconcile, pool), 0);
	assert_true(harness.reconcile.has_leftovers);
	harness_run_ms(150);
	assert_int_equal(pool->segments[SEGMENT_FILLING], 0);
	assert_int_equal(count_used(), 0);
	assert_non_null(strstr(pool->message, "earlier hpzd"));
	close(lock);
	wait_idle();
	assert_false(harness.reconcile.has_leftovers);
	expect_clean(2, 4);
	/* And the next one will see ours. */
	lock = store_open_dir(harness.dir, "hpz/1");
	assert_int_equal(flock(lock, LOCK_EX | LOCK_NB), -1);
	close(lock);
	assert_true(get_store()->workers_fd >= 0);
}

/* ---- nr_hugepages ---- */

static bool is_not_raising(void *user)
{
	return !pool->is_raising;
}

static bool has_raised(void *user)
{
	return !pool->is_raising && machine_get("nr_hugepages") >= 12;
}

/* Raises first, fills then: the counters are files, and no worker must change what they say while they are
 * read. */
static void add_raising_pool(uint64_t nr)
{
	config.raise = true;
	is_exact = true;
	add_pool(nr);
	harness_run_until(has_raised, NULL);
	harness_release();
	wait_idle();
}

static void test_raises(void **state)
{
	add_raising_pool(5);
	expect_clean(2, 4);
	assert_int_equal(machine_get("nr_hugepages"), 12); /* the difference, no more */
	assert_int_equal(pool->raised, 7);
	/* Given back by the difference: what others raised meanwhile is theirs. */
	set_nr(20);
	pool->is_draining = true;
	reconcile_mark(&harness.reconcile);
	wait_rest();
	assert_int_equal(reconcile_give_back(&harness.reconcile, pool), -EAGAIN);
	assert_int_equal(reconcile_give_back(&harness.reconcile, pool), -EAGAIN); /* under way */
	harness_run_until(is_not_raising, NULL);
	assert_int_equal(machine_get("nr_hugepages"), 13);
	assert_int_equal(pool->raised, 0);
	keep_counters();
	assert_int_equal(reconcile_give_back(&harness.reconcile, pool), 0);
}

/* Half of it is in somebody's hands: the rest goes when it comes. */
static void test_gives_back_what_is_free(void **state)
{
	add_raising_pool(0);
	assert_int_equal(pool->raised, 12);
	pool->is_draining = true;
	others = 9;
	reconcile_mark(&harness.reconcile);
	wait_rest();
	assert_int_equal(reconcile_give_back(&harness.reconcile, pool), -EAGAIN);
	harness_run_until(is_not_raising, NULL);
	assert_int_equal(machine_get("nr_hugepages"), 9);
	assert_int_equal(pool->raised, 9);
	keep_counters();
	assert_int_equal(reconcile_give_back(&harness.reconcile, pool), 0);
	others = 0;
	keep_counters();
	assert_int_equal(reconcile_give_back(&harness.reconcile, pool), -EAGAIN);
	harness_run_until(is_not_raising, NULL);
	assert_int_equal(machine_get("nr_hugepages"), 0);
	assert_int_equal(pool->raised, 0);
}

static bool has_failed(void *user)
{
	return pool->raise_failures > 0 && !pool->is_raising;
}

/* It may not: tried once, and not again at once. What can be had without is had when it can be seen. */
static void test_raise_fails(void **state)
{
	char path[PATH_MAX];

	config.raise = true;
	add_pool(5);
	harness_before_look = NULL;
	temp_path(machine.root, MACHINE_COUNTERS "nr_hugepages", path);
	assert_int_equal(unlink(path), 0);
	temp_path(machine.root, MACHINE_COUNTERS "nr_hugepages/", path); /* a directory: cannot be written */
	harness_release();
	harness_run_until(has_failed, NULL);
	for (int i = 0; i < 10; i++) {
		reconcile_mark(&harness.reconcile);
		harness_run_ms(5);
	}
	assert_int_equal(pool->raised, 0);
	assert_int_equal(pool->raise_failures, 1);
	assert_int_equal(rmdir(path), 0);
	set_nr(5);
	harness_before_look = keep_counters;
	wait_rest();
	assert_int_equal(pool->pages[SEGMENT_CLEAN], 5);
	assert_int_equal(pool->raise_failures, 1);
}

/* ---- what the journal says of it ---- */

static struct journal_raise last_raise;
static unsigned weak_records;

static void on_record(enum journal_type type, const void *payload, size_t bytes, void *user)
{
	weak_records += type == JOURNAL_WEAK;
	if (type == JOURNAL_RAISE)
		memcpy(&last_raise, payload, sizeof last_raise);
}

static void read_journal(void)
{
	size_t length;
	struct journal *copy = NULL;
	char path[PATH_MAX];
	char *bytes = temp_read(harness.dir, "journal", &length);

	temp_write(machine.root, "copy/journal", bytes, length);
	free(bytes);
	temp_path(machine.root, "copy", path);
	last_raise = (struct journal_raise){0};
	weak_records = 0;
	assert_int_equal(journal_open(path, MACHINE_BOOT_ID, on_record, NULL, NULL, &copy), 0);
	journal_close(copy);
}

static void test_intent(void **state)
{
	config.raise = true;
	is_exact = true;
	add_pool(5);
	harness_turn();
	/* Whatever the other thread has done by now: this is what a successor would read. */
	if (pool->is_raising) {
		read_journal();
		assert_true(last_raise.is_intent && last_raise.before == 5 && last_raise.delta == 7 &&
			    last_raise.raised == 0 && last_raise.page_size == STORE_PAGE);
	}
	harness_run_until(has_raised, NULL);
	harness_release();
	wait_idle();
	read_journal();
	assert_true(!last_raise.is_intent && last_raise.raised == 7);
	/* Lowering: should hpzd die over it, it must not lower again what is lowered already. */
	pool->is_draining = true;
	reconcile_mark(&harness.reconcile);
	wait_rest();
	assert_int_equal(reconcile_give_back(&harness.reconcile, pool), -EAGAIN);
	read_journal();
	assert_true(!last_raise.is_intent && last_raise.raised == 0);
	harness_run_until(is_not_raising, NULL);
	read_journal();
	assert_int_equal(last_raise.raised, 0);
}

static uint64_t read_back(uint64_t nr, uint64_t raised, uint64_t before, int64_t delta, bool is_intent)
{
	struct journal_raise record = {.size = sizeof record,
		.page_size = STORE_PAGE,
		.raised = raised,
		.before = before,
		.delta = delta,
		.is_intent = is_intent};

	machine_put("nr_hugepages", nr);
	pool->raised = 77;
	reconcile_read_record(&harness.reconcile, JOURNAL_RAISE, &record, sizeof record);
	return pool->raised;
}

static void test_read_back(void **state)
{
	add_pool(0);
	harness_before_look = NULL;
	assert_int_equal(read_back(50, 9, 0, 0, false), 9);
	assert_int_equal(read_back(50, 9, 40, 10, true), 19); /* all of it was got */
	assert_int_equal(read_back(45, 9, 40, 10, true), 14); /* a part */
	assert_int_equal(read_back(40, 9, 40, 10, true), 9);  /* nothing */
	assert_int_equal(read_back(30, 9, 40, 10, true), 9);  /* somebody lowered it */
	assert_int_equal(read_back(99, 9, 40, 10, true), 19); /* somebody else raised it, too */
	struct journal_raise other = {.size = sizeof other, .page_size = 2 << 20, .raised = 5};
	reconcile_read_record(&harness.reconcile, JOURNAL_RAISE, &other, sizeof other);
	other.page_size = STORE_PAGE;
	other.node = 1;
	reconcile_read_record(&harness.reconcile, JOURNAL_RAISE, &other, sizeof other);
	reconcile_read_record(&harness.reconcile, JOURNAL_END, &other, sizeof other);
	assert_int_equal(pool->raised, 19);
	pool->raised = 0;
}

/* What a successor must know is in the journal that is written anew, too. */
static void test_compaction(void **state)
{
	add_pool(0);
	pool->raised = 3;
	assert_int_equal(reconcile_compact(&harness.reconcile), 0);
	read_journal();
	assert_true(last_raise.raised == 3 && !last_raise.is_intent && weak_records == 0);
	pool->was_weak = true;
	assert_int_equal(reconcile_compact(&harness.reconcile), 0);
	read_journal();
	assert_true(last_raise.raised == 3 && weak_records == 1);
	pool->raised = 0;
}

/* ---- methods ---- */

static bool is_calibrated(void *user)
{
	return is_measured();
}

static void test_method(void **state)
{
	add_pool(0);
	assert_string_equal(reconcile_get_method(&harness.reconcile), "");
	harness_release();
	harness_run_until(is_calibrated, NULL);
	char best[32];
	snprintf(best, sizeof best, "%s", reconcile_get_method(&harness.reconcile));
	assert_true(best[0] != '\0');
	work_set_method(&harness.reconcile.work, "memset");
	assert_string_equal(reconcile_get_method(&harness.reconcile), "memset");
	work_set_method(&harness.reconcile.work, "auto");
	assert_string_equal(reconcile_get_method(&harness.reconcile), best);
	/* One that does not work here: the best that does. */
	harness.reconcile.work.calibrations[0].done.gb_per_s[zero_find_method("memset") - zero_methods] = 0;
	work_set_method(&harness.reconcile.work, "memset");
	assert_string_equal(reconcile_get_method(&harness.reconcile), best);
	harness.reconcile.work.calibrations[0].done.error = -ENOTSUP;
	work_set_method(&harness.reconcile.work, "auto");
	assert_string_equal(reconcile_get_method(&harness.reconcile), "");
}

/* ---- a pool goes ---- */

static void test_remove_pool(void **state)
{
	add_pool(12);
	harness_release();
	wait_idle();
	pool->is_draining = true;
	reconcile_mark(&harness.reconcile);
	wait_rest();
	reconcile_remove_pool(&harness.reconcile, pool);
	pool_close(pool);
	pool = NULL;
	assert_int_equal(harness.reconcile.pool_count, 0);
	assert_true(list_is_empty(&harness.stores));
	reconcile_mark(&harness.reconcile);
	harness_run_ms(10);
	/* And comes again. */
	add_pool(12);
	harness_release();
	wait_idle();
	expect_clean(2, 4);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_fills),
		TEST(test_fills_what_there_is),
		TEST(test_no_pages_at_all),
		TEST(test_reserved),
		TEST(test_no_counters),
		TEST(test_new_stock),
		TEST(test_drain),
		TEST(test_drain_while_filling),
		TEST(test_clears),
		TEST(test_clears_what_can_be_mended),
		TEST(test_no_method),
		TEST(test_promises),
		TEST(test_vanished),
		TEST(test_retired),
		TEST(test_opened_while_clean),
		TEST(test_past_proven),
		TEST(test_past_weak),
		TEST(test_adopted),
		TEST(test_leftovers),
		TEST(test_raises),
		TEST(test_gives_back_what_is_free),
		TEST(test_raise_fails),
		TEST(test_intent),
		TEST(test_read_back),
		TEST(test_compaction),
		TEST(test_method),
		TEST(test_remove_pool),
	};
	return cmocka_run_group_tests_name("reconcile", tests, NULL, NULL);
}
