/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * test_demote.c - pages of one pool become smaller ones of another, whoever dies in between. On a stand-in
 * for sysfs: a kernel of a few lines holds a lease on `demote`, and when somebody is about to write there it
 * changes the counters first. The real one is met in a guest with pages of 1 GiB.
 */
#include "machine.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>

#define LARGE_COUNTERS "sys/kernel/mm/hugepages/hugepages-8kB/"

static struct nr nr;
static uv_loop_t loop;
static struct pool large, small;
static struct pool *pools[] = {&large, &small};
static struct journal *journal;
static char dir[TEMP_PATH];

/* ---- the kernel ---- */

static void put_large(const char *counter, uint64_t number)
{
	char name[128], text[32], from[PATH_MAX], to[PATH_MAX];

	snprintf(name, sizeof name, LARGE_COUNTERS "%s", counter);
	snprintf(text, sizeof text, "%" PRIu64 "\n", number);
	temp_put(machine.root, "large-number", text);
	temp_path(machine.root, "large-number", from);
	temp_path(machine.root, name, to);
	assert_int_equal(rename(from, to), 0);
}

static void put_kernel(uint64_t larges, uint64_t smalls)
{
	put_large("nr_hugepages", larges);
	put_large("free_hugepages", larges);
	machine_put("nr_hugepages", smalls);
	machine_put("free_hugepages", smalls);
	host_get_counters(&machine.host, 0, 8192, &large.kernel);
	host_get_counters(&machine.host, 0, 4096, &small.kernel);
}

struct kernel {
	pthread_t thread;
	int fd;
	uint64_t larges, smalls; /* as it leaves them */
};

static void *be_kernel(void *user)
{
	struct kernel *kernel = user;

	while (fcntl(kernel->fd, F_GETLEASE) == F_RDLCK)
		usleep(1000);
	put_large("nr_hugepages", kernel->larges);
	put_large("free_hugepages", kernel->larges);
	machine_put("nr_hugepages", kernel->smalls);
	machine_put("free_hugepages", kernel->smalls);
	fcntl(kernel->fd, F_SETLEASE, F_UNLCK);
	return NULL;
}

static void start_kernel(struct kernel *kernel, uint64_t larges, uint64_t smalls)
{
	char path[PATH_MAX];

	temp_path(machine.root, LARGE_COUNTERS "demote", path);
	*kernel = (struct kernel){.larges = larges, .smalls = smalls};
	kernel->fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(kernel->fd >= 0);
	assert_int_equal(fcntl(kernel->fd, F_SETLEASE, F_RDLCK), 0);
	assert_int_equal(pthread_create(&kernel->thread, NULL, be_kernel, kernel), 0);
}

static void end_kernel(struct kernel *kernel)
{
	assert_int_equal(pthread_join(kernel->thread, NULL), 0);
	close(kernel->fd);
}

/* ---- set up ---- */

static void on_changed(void *user)
{
}

static void init_pool(struct pool *pool, const char *name, uint64_t page_size, uint64_t pages, uint64_t most)
{
	const struct config_pool config = {.page_size = page_size, .pages = pages, .max_pages = most};

	memset(pool, 0, sizeof *pool);
	snprintf(pool->name, sizeof pool->name, "%s", name);
	list_init(&pool->classes);
	pool_set_config(pool, &config);
}

static int setup(void **state)
{
	signal(SIGIO, SIG_IGN); /* the lease is broken */
	machine_open(10);
	temp_put(machine.root, LARGE_COUNTERS "demote", "");
	temp_put(machine.root, LARGE_COUNTERS "demote_size", "4kB\n");
	put_large("resv_hugepages", 0);
	put_large("surplus_hugepages", 0);
	put_large("nr_hugepages", 8);
	put_large("free_hugepages", 8);
	host_deinit(&machine.host);
	assert_int_equal(host_init(&machine.host, machine.root), 0);
	temp_make(dir);
	init_pool(&large, "large", 8192, 8, 8);
	init_pool(&small, "small", 4096, 10, 13);
	put_kernel(8, 10);
	assert_int_equal(uv_loop_init(&loop), 0);
	assert_int_equal(journal_open(dir, MACHINE_BOOT_ID, NULL, NULL, NULL, &journal), 0);
	nr_init(&nr, &loop, &machine.host, on_changed, NULL);
	nr.journal = journal;
	return 0;
}

static int teardown(void **state)
{
	for (size_t i = 0; i < ARRAY_SIZE(pools); i++) {
		const struct config_pool none = {.page_size = 4096};
		pool_set_config(pools[i], &none); /* forgets the classes */
	}
	assert_int_equal(uv_loop_close(&loop), 0);
	journal_close(journal);
	temp_remove(dir);
	machine_close();
	return 0;
}

static void on_record(enum journal_type type, const void *payload, size_t bytes, void *user)
{
	for (size_t i = 0; i < ARRAY_SIZE(pools); i++)
		resize_read_record(pools[i], type, payload, bytes);
	demote_read_record(&machine.host, pools, ARRAY_SIZE(pools), type, payload, bytes);
	nr_read_record(&nr, pools, ARRAY_SIZE(pools), type, payload, bytes);
}

/* What whoever starts after us reads of the first `bytes` (0: all). */
static void start_anew(int fd, uint64_t bytes)
{
	int own = -1;

	for (size_t i = 0; i < ARRAY_SIZE(pools); i++) {
		pool_set_size(pools[i], &(struct pool_size){0});
		pools[i]->raised = pools[i]->give_back = 0;
	}
	if (fd < 0) {
		assert_int_equal(journal_dup(journal, &own, &bytes), 0);
		fd = own;
	}
	assert_int_equal(journal_read(fd, bytes, MACHINE_BOOT_ID, on_record, NULL), 0);
	close_fd(own);
}

static int order(uint64_t pages)
{
	char why[256] = "";
	int r = demote_order(&nr, &large, pools, ARRAY_SIZE(pools), pages, why, sizeof why);

	assert_true((r < 0) == (why[0] != 0));
	return r;
}

static void step(uint64_t usable)
{
	large.plan.usable_pages = usable;
	demote_step(&nr, &large, pools, ARRAY_SIZE(pools));
}

static void expect_pools(
	uint64_t large_target, uint64_t large_raised, uint64_t small_target, uint64_t small_raised)
{
	if (large.target != large_target || large.raised != large_raised || small.target != small_target ||
		small.raised != small_raised)
		fail_msg("%" PRIu64 " pages, raised %" PRIu64 "; %" PRIu64 " pages, raised %" PRIu64,
			large.target, large.raised, small.target, small.raised);
}

/* ---- tests ---- */

static void test_refused(void **state)
{
	assert_int_equal(order(0), -EINVAL);
	assert_int_equal(order(9), -EINVAL);
	assert_int_equal(order(2), 0);
	assert_int_equal(large.target, 6);
	assert_int_equal(order(1), -EBUSY);
	large.size.demoting = 0;
	small.config.node = 1; /* no pool for what comes of it */
	assert_int_equal(order(1), -ENOENT);
	small.config.node = 0;
	char path[PATH_MAX];
	temp_path(machine.root, LARGE_COUNTERS "demote_size", path);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(order(1), -ENOENT);
}

static void test_bad_sizes(void **state)
{
	static const char *const texts[] = {"", "kB\n", "4\n", "8kB\n", "16kB\n", "0kB\n", "-4kB\n", "4MB\n"};
	uint64_t size;

	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		temp_put(machine.root, LARGE_COUNTERS "demote_size", texts[i]);
		assert_int_equal(host_get_demote_size(&machine.host, 8192, &size), -EBADMSG);
	}
	temp_put(machine.root, LARGE_COUNTERS "demote_size", "4kB\n");
	assert_int_equal(host_get_demote_size(&machine.host, 8192, &size), 0);
	assert_int_equal(size, 4096);
	assert_int_equal(host_get_demote_size(&machine.host, 4096, &size), -ENOENT);
}

/* Two go; one of them had been raised by us. The smaller pool takes what its most allows, what was raised is
 * raised there. */
static void test_splits(void **state)
{
	struct kernel kernel;

	large.raised = 1;
	small.raised = 5;
	start_kernel(&kernel, 6, 14);
	assert_int_equal(order(2), 0);
	step(8);
	assert_true(large.is_raising && small.is_raising);
	step(8); /* not twice */
	uv_run(&loop, UV_RUN_DEFAULT);
	end_kernel(&kernel);
	assert_false(large.is_raising || small.is_raising);
	char *text = temp_read(machine.root, LARGE_COUNTERS "demote", NULL);
	assert_string_equal(text, "2\n");
	free(text);
	expect_pools(6, 0, 13, 7);
	assert_int_equal(large.demoted, 2);
	assert_int_equal(large.size.demoting, 0);
	start_anew(-1, 0);
	expect_pools(6, 0, 13, 7);
	/* Whatever becomes of the numbers later, the records after the intent say it. */
	put_kernel(1, 99);
	start_anew(-1, 0);
	expect_pools(6, 0, 13, 7);
}

static void test_splits_fewer(void **state)
{
	struct kernel kernel;

	large.raised = 8;
	start_kernel(&kernel, 7, 12);
	assert_int_equal(order(4), 0);
	assert_int_equal(large.target, 4);
	step(3); /* no more are free */
	uv_run(&loop, UV_RUN_DEFAULT);
	end_kernel(&kernel);
	assert_int_equal(large.demoted, 1);
	expect_pools(7, 7, 12, 2);
}

static void test_splits_none(void **state)
{
	struct kernel kernel;

	start_kernel(&kernel, 8, 10);
	assert_int_equal(order(2), 0);
	step(2);
	uv_run(&loop, UV_RUN_DEFAULT);
	end_kernel(&kernel);
	expect_pools(8, 0, 10, 0);
	assert_int_equal(large.demoted, 0);
	/* Nothing free, or not before what is clean is gone. */
	assert_int_equal(order(2), 0);
	large.plan.actions[0] = (struct policy_action){POLICY_DISCARD, 1, 2};
	large.plan.action_count = 1;
	step(2);
	assert_int_equal(large.size.demoting, 2);
	large.plan.action_count = 0;
	step(0);
	assert_int_equal(large.size.demoting, 0);
	expect_pools(8, 0, 10, 0);
	/* Nor of a pool that is drained meanwhile. */
	assert_int_equal(order(2), 0);
	large.is_draining = true;
	step(2);
	assert_int_equal(large.size.demoting, 0);
	assert_false(large.is_raising);
}

/* The kernel does not let us write. */
static void test_fails(void **state)
{
	char path[PATH_MAX];

	temp_path(machine.root, LARGE_COUNTERS "demote", path);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(mkdir(path, 0700), 0);
	assert_int_equal(order(2), 0);
	step(2);
	uv_run(&loop, UV_RUN_DEFAULT);
	expect_pools(8, 0, 10, 0);
	assert_int_equal(large.size.demoting, 0);
}

/* Killed when the intent is written and before anything else is: what the kernel came to is found. */
static void test_dies(void **state)
{
	struct kernel kernel;
	uint64_t bytes;
	int fd;

	large.raised = 8;
	small.raised = 1;
	start_kernel(&kernel, 6, 14);
	assert_int_equal(order(2), 0);
	step(8);
	assert_int_equal(journal_dup(journal, &fd, &bytes), 0);
	uv_run(&loop, UV_RUN_DEFAULT);
	end_kernel(&kernel);
	put_kernel(8, 10); /* it had not begun */
	start_anew(fd, bytes);
	expect_pools(8, 8, 10, 1);
	put_kernel(7, 12);
	start_anew(fd, bytes);
	expect_pools(7, 7, 12, 3);
	put_kernel(6, 14);
	start_anew(fd, bytes);
	expect_pools(6, 6, 13, 5);
	put_kernel(2, 14); /* somebody else took some, too */
	start_anew(fd, bytes);
	expect_pools(6, 6, 13, 5);
	/* The configuration says something else by now: that counts, what was raised stays ours. */
	large.config.pages = 7;
	start_anew(fd, bytes);
	expect_pools(7, 6, 13, 5);
	close(fd);
}

/* A compaction meanwhile keeps the intent. */
static void write_all(struct journal *into, void *user)
{
	nr_write_all(&nr, into, pools, ARRAY_SIZE(pools));
	for (size_t i = 0; i < ARRAY_SIZE(pools); i++)
		resize_write(into, pools[i]);
	for (size_t i = 0; i < ARRAY_SIZE(pools); i++)
		demote_write(into, pools[i]);
}

static void test_compacted(void **state)
{
	struct kernel kernel;
	uint64_t bytes;
	int fd;

	large.raised = 8;
	start_kernel(&kernel, 6, 14);
	assert_int_equal(order(2), 0);
	step(8);
	assert_int_equal(journal_compact(journal, write_all, NULL), 0);
	assert_int_equal(journal_dup(journal, &fd, &bytes), 0);
	uv_run(&loop, UV_RUN_DEFAULT);
	end_kernel(&kernel);
	start_anew(fd, bytes);
	expect_pools(6, 6, 13, 4);
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_refused, setup, teardown),
		cmocka_unit_test_setup_teardown(test_bad_sizes, setup, teardown),
		cmocka_unit_test_setup_teardown(test_splits, setup, teardown),
		cmocka_unit_test_setup_teardown(test_splits_fewer, setup, teardown),
		cmocka_unit_test_setup_teardown(test_splits_none, setup, teardown),
		cmocka_unit_test_setup_teardown(test_fails, setup, teardown),
		cmocka_unit_test_setup_teardown(test_dies, setup, teardown),
		cmocka_unit_test_setup_teardown(test_compacted, setup, teardown),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
