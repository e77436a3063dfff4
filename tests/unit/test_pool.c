/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * test_pool.c - names, books and adoption, and the model of tests/model.c: on tmpfs with pages of 4096 bytes.
 * The same model on real huge pages is tests/host/test_pool_model.c.
 */
#include "store.h"
#include "dice.h"
#include "log.h"
#include "model.h"
#include "pool.h"

#include <inttypes.h>

static int arg_count;
static char **args;
static char dir[TEMP_PATH];
static struct config_pool config = {.name = "p", .line = 3, .page_size = STORE_PAGE};

static int setup(void **state)
{
	if (!store_make_dir(dir)) {
		print_message("# no tmpfs to write to\n");
		return -1;
	}
	return 0;
}

static int teardown(void **state)
{
	temp_remove(dir);
	return 0;
}

static struct pool *open_pool(void)
{
	struct segment_store *store = store_open(dir);
	struct pool *pool = NULL;
	char error[256] = "";

	assert_int_equal(
		pool_open(&config, "hpzd.conf", store_get_host(), store, &pool, error, sizeof error), 0);
	assert_string_equal(error, "");
	segment_close_store(store);
	return pool;
}

static void put(const char *where, const char *name, uint64_t pages, uint64_t allocated)
{
	store_put(dir, where, name, pages, allocated);
}

static bool exists(const char *where, const char *name)
{
	return store_has(dir, where, name);
}

/* ---- opening ---- */

static void test_wrong_machine(void **state)
{
	struct config_pool bad = config;
	struct segment_store *store = store_open(dir);
	struct pool *pool = NULL;
	char error[256] = "";

	bad.page_size = 8192;
	bad.page_size_line = 4;
	assert_int_equal(
		pool_open(&bad, "a.conf", store_get_host(), store, &pool, error, sizeof error), -EINVAL);
	assert_string_equal(error, "a.conf:4: pool p: this kernel has no huge pages of that size");
	bad = config;
	bad.node = 1;
	assert_int_equal(
		pool_open(&bad, "a.conf", store_get_host(), store, &pool, error, sizeof error), -EINVAL);
	assert_string_equal(error, "a.conf:3: pool p: this machine has no NUMA node 1");
	bad.node_line = 5;
	assert_int_equal(
		pool_open(&bad, "a.conf", store_get_host(), store, &pool, error, sizeof error), -EINVAL);
	assert_string_equal(error, "a.conf:5: pool p: this machine has no NUMA node 1");
	assert_int_equal(store->references, 1);
	/* Something is where a directory should be: said, and nothing leaks. */
	temp_put(dir, "hpz/1/node0", "");
	assert_true(pool_open(&config, "a.conf", store_get_host(), store, &pool, error, sizeof error) < 0);
	assert_non_null(strstr(error, "a.conf:3: pool p: cannot adopt what is on "));
	assert_null(pool);
	assert_int_equal(store->references, 1);
	segment_close_store(store);
}

static unsigned leased_count;

static void on_leased(struct pool_segment *segment, void *user)
{
	assert_int_equal(segment->state, SEGMENT_LEASED);
	assert_int_equal(segment->given, segment->pages);
	leased_count++;
}

static void test_adoption(void **state)
{
	put("filling", "1.0", 4, 2);
	put("filling", "2.0", 0, 0); /* never got its length */
	put("clean", "3.1", 4, 4);
	put("clean", "4.1", 4, 3); /* not whole */
	put("clean", "5.1", 0, 0); /* somebody cut it */
	put("dirty", "6.9", 2, 1);
	put("dirty", "7.9", 0, 0);
	put("leased", "8.2.77.0", 2, 2);
	put("leased", "9.2.77.1", 0, 0); /* its holder cut it; it holds it all the same */
	put("leased", "10.2", 1, 1);     /* names in the wrong room */
	put("dirty", "11.2.5.0", 1, 1);
	put("clean", "garbage", 1, 1);
	struct pool *pool = open_pool();
	leased_count = 0;
	assert_int_equal(pool_adopt_leased(pool, on_leased, NULL), 0);
	assert_int_equal(leased_count, 2);
	assert_int_equal(pool->segments[SEGMENT_FILLING], 1);
	assert_int_equal(pool->segments[SEGMENT_CLEAN], 1);
	assert_int_equal(pool->segments[SEGMENT_DIRTY], 2);
	assert_int_equal(pool->segments[SEGMENT_LEASED], 2);
	assert_int_equal(pool->pages[SEGMENT_FILLING], 2);
	assert_int_equal(pool->pages[SEGMENT_CLEAN], 4);
	assert_int_equal(pool->pages[SEGMENT_DIRTY], 4);
	assert_int_equal(pool->foreign_files, 3);
	POOL_FOR_EACH (pos, pool) {
		struct pool_class *class = CONTAINER_OF(pos, struct pool_class, link);
		LIST_FOR_EACH (at, &class->segments[SEGMENT_DIRTY])
			assert_true(CONTAINER_OF(at, struct pool_segment, link)->is_suspect);
		LIST_FOR_EACH (at, &class->segments[SEGMENT_CLEAN])
			assert_false(CONTAINER_OF(at, struct pool_segment, link)->is_suspect);
	}
	assert_true(exists("dirty", "4.1") && !exists("clean", "4.1"));
	assert_false(exists("filling", "2.0") || exists("clean", "5.1") || exists("dirty", "7.9"));
	assert_true(exists("leased", "10.2") && exists("dirty", "11.2.5.0") && exists("clean", "garbage"));
	assert_true(exists("leased", "9.2.77.1"));
	pool_close(pool);
	pool_close(NULL);
}

/* A clean file that is not whole, and its name in dirty/ is taken: no reason not to start, and both files
 * live. */
static void test_adoption_collision(void **state)
{
	put("clean", "4.1", 4, 3);
	put("dirty", "4.1", 2, 2);
	struct pool *pool = open_pool();

	assert_int_equal(pool->segments[SEGMENT_CLEAN], 0);
	assert_int_equal(pool->segments[SEGMENT_DIRTY], 1);
	assert_int_equal(pool->foreign_files, 1);
	assert_true(exists("clean", "4.1") && exists("dirty", "4.1"));
	pool_close(pool);
}

/* Ids go on above what is there, so that a name never meets its predecessor. */
static void test_ids(void **state)
{
	char name[64];
	struct pool_segment *segment;
	int fd;
	uint64_t now_us = clock_get_ns(CLOCK_BOOTTIME) / 1000;
	struct pool *pool = open_pool();

	assert_true(pool->next_id >= now_us);
	pool_close(pool);
	snprintf(name, sizeof name, "%" PRIu64 ".3", now_us + 1000000000);
	put("dirty", name, 1, 1);
	pool = open_pool();
	assert_int_equal(pool_create(pool, 2, &segment, &fd), 0);
	assert_int_equal(segment->id, now_us + 1000000001);
	close(fd);
	/* The next name is taken: an error once, and the one after it is free. */
	snprintf(name, sizeof name, "%" PRIu64 ".0", now_us + 1000000002);
	put("filling", name, 1, 1);
	assert_int_equal(pool_create(pool, 2, &segment, &fd), -EEXIST);
	assert_int_equal(pool_create(pool, 2, &segment, &fd), 0);
	assert_int_equal(segment->id, now_us + 1000000003);
	close(fd);
	pool_close(pool);
}

/* ---- discards, lengths, classes ---- */

static void test_discard(void **state)
{
	struct pool *pool = open_pool();
	struct pool_segment *segment;
	char name[SEGMENT_NAME_MAX];
	int fd;

	assert_int_equal(pool_create(pool, 2, &segment, &fd), 0);
	close(fd);
	pool_get_segment_name(segment, name);
	assert_true(exists("filling", name));
	assert_int_equal(pool_discard(segment), 0);
	assert_false(exists("filling", name));
	/* Somebody was faster: that is what was wanted. */
	assert_int_equal(pool_create(pool, 2, &segment, &fd), 0);
	close(fd);
	pool_get_segment_name(segment, name);
	assert_int_equal(segment_unlink(&pool->dirs, SEGMENT_FILLING, name), 0);
	assert_int_equal(pool_discard(segment), 0);
	assert_int_equal(pool->segments[SEGMENT_FILLING], 0);
	pool_close(pool);
}

static void test_vanished(void **state)
{
	put("clean", "3.1", 4, 4);
	struct pool *pool = open_pool();
	struct pool_segment *segment = pool_find_clean(pool, 4);

	assert_int_equal(segment_unlink(&pool->dirs, SEGMENT_CLEAN, "3.1"), 0);
	assert_int_equal(pool_refresh(segment), -ENOENT);
	assert_int_equal(pool_publish(segment), -ENOENT);
	assert_int_equal(pool_open_segment(segment), -ENOENT);
	assert_int_equal(pool_set_state(segment, SEGMENT_LEASED), -ENOENT);
	assert_int_equal(segment->state, SEGMENT_CLEAN);
	assert_int_equal(segment->generation, 1);
	pool_forget(segment);
	assert_int_equal(pool_get_total(pool), 0);
	pool_close(pool);
}

static void test_classes(void **state)
{
	struct policy_class classes[POOL_CLASSES_MAX];
	put("clean", "3.1", 4, 4);
	put("clean", "4.1", 1, 1);
	put("clean", "5.1", 4, 4);
	struct pool *pool = open_pool();
	struct pool_segment *segment = pool_find_clean(pool, 4);

	assert_int_equal(pool_get_classes(pool, classes), 2);
	assert_int_equal(pool_get_largest_clean(pool), 4);
	assert_null(pool_find_clean(pool, 2));
	assert_int_equal(pool_set_length(segment, 7), 0);
	assert_int_equal(pool_get_classes(pool, classes), 3);
	assert_true(classes[0].segment_pages == 1 && classes[1].segment_pages == 4 &&
		    classes[2].segment_pages == 7);
	assert_true(classes[1].clean == 1 && classes[2].clean == 1);
	assert_int_equal(pool_set_length(segment, 4), 0);
	pool_sweep(pool); /* 7 is empty and not wanted */
	assert_int_equal(pool_get_classes(pool, classes), 2);
	/* A stock keeps its class without a segment, and loses it with the stock. */
	struct config_pool stock = config;
	stock.pages = 20;
	stock.stock_count = 1;
	stock.stock[0] = (struct config_stock){9 * STORE_PAGE, 2};
	pool_set_config(pool, &stock);
	assert_int_equal(pool_get_classes(pool, classes), 3);
	assert_int_equal(classes[2].want, 2);
	pool_set_config(pool, &config);
	assert_int_equal(pool_get_classes(pool, classes), 2);
	pool_close(pool);
}

static struct pool_segment *make_clean(struct pool *pool, uint64_t pages)
{
	struct pool_segment *segment;
	int fd;
	assert_int_equal(pool_create(pool, pages, &segment, &fd), 0);
	assert_int_equal(fallocate(fd, 0, 0, (off_t)(pages * STORE_PAGE)), 0);
	close(fd);
	assert_int_equal(pool_publish(segment), 0);
	return segment;
}

/* Longer, in filling/: the books follow, and it is not clean before it is whole. */
static void test_extend(void **state)
{
	if (geteuid() != 0)
		return; /* only root opens a file of mode 0 again */
	struct pool *pool = open_pool();
	uint64_t filling, mending;
	struct pool_segment *segment = make_clean(pool, 4);
	assert_int_equal(pool_extend(segment, 4), -EINVAL);
	assert_int_equal(pool_extend(segment, 7), 0);
	assert_true(segment->state == SEGMENT_FILLING && segment->pages == 7 && segment->allocated == 4);
	assert_true(pool->segments[SEGMENT_CLEAN] == 0 && pool->pages[SEGMENT_FILLING] == 4);
	assert_int_equal(pool_extend(segment, 9), -EINVAL);
	pool_count_promised(pool, &filling, &mending);
	assert_true(filling == 3 && mending == 0 && pool_get_held(pool) == 7 && pool_get_lengths(pool) == 7);
	assert_int_equal(pool_publish(segment), -EUCLEAN);
	int fd = pool_open_segment(segment);
	assert_int_equal(fallocate(fd, 0, 0, 7 * STORE_PAGE), 0);
	close(fd);
	assert_int_equal(pool_publish(segment), 0);
	assert_ptr_equal(pool_find_clean(pool, 7), segment);
	assert_null(pool_find_clean(pool, 4));
	/* Its name was taken away meanwhile: nothing happened. */
	char name[SEGMENT_NAME_MAX];
	pool_get_segment_name(segment, name);
	assert_int_equal(segment_unlink(&pool->dirs, SEGMENT_CLEAN, name), 0);
	assert_int_equal(pool_extend(segment, 9), -ENOENT);
	assert_true(segment->state == SEGMENT_CLEAN && segment->pages == 7);
	pool_close(pool);
}

/* Shorter, and clean all the same. */
static void test_cut(void **state)
{
	if (geteuid() != 0)
		return; /* only root opens a file of mode 0 again */
	struct pool *pool = open_pool();
	struct pool_segment *segment = make_clean(pool, 7);
	int fd = pool_open_segment(segment), keeper;
	assert_int_equal(pool_cut(segment, fd, 0), -EINVAL);
	assert_int_equal(pool_cut(segment, fd, 7), -EINVAL);
	pool_keep(segment, &keeper);
	assert_int_equal(pool_cut(segment, fd, 3), -EINVAL);
	pool_keep(segment, NULL);
	assert_int_equal(pool_cut(segment, -1, 3), -EBADF);
	assert_true(segment->pages == 7 && pool->pages[SEGMENT_CLEAN] == 7);
	assert_int_equal(pool_cut(segment, fd, 3), 0);
	assert_true(segment->pages == 4 && segment->given == 4 && segment->allocated == 4);
	assert_true(pool->pages[SEGMENT_CLEAN] == 4 && pool->segments[SEGMENT_CLEAN] == 1);
	assert_ptr_equal(pool_find_clean(pool, 4), segment);
	assert_null(pool_find_clean(pool, 7));
	assert_int_equal(pool_refresh(segment), 0);
	assert_int_equal(segment->allocated, 4);
	pool_close(pool);
	/* Dying right after the cut we leave a whole file. */
	pool = open_pool();
	segment = pool_find_clean(pool, 4);
	assert_non_null(segment);
	assert_int_equal(pool_set_state(segment, SEGMENT_DIRTY), 0);
	assert_int_equal(pool_cut(segment, fd, 1), -EINVAL);
	close(fd);
	pool_close(pool);
}

/* What is busy or suspect is not proven free. */
static void test_find_dirty(void **state)
{
	struct pool *pool = open_pool();
	struct pool_segment *segment = make_clean(pool, 3);
	assert_null(pool_find_dirty(pool, 3));
	assert_int_equal(pool_set_state(segment, SEGMENT_DIRTY), 0);
	assert_ptr_equal(pool_find_dirty(pool, 3), segment);
	assert_null(pool_find_dirty(pool, 2));
	segment->is_busy = true;
	assert_null(pool_find_dirty(pool, 3));
	segment->is_busy = false;
	segment->is_suspect = true;
	assert_null(pool_find_dirty(pool, 3));
	pool_close(pool);
}

static uint64_t get_want(const struct pool *pool, uint64_t pages)
{
	struct policy_class classes[POOL_CLASSES_MAX];
	size_t count = pool_get_classes(pool, classes);
	for (size_t i = 0; i < count; i++) {
		if (classes[i].segment_pages == pages)
			return classes[i].want;
	}
	return 0;
}

/* Before anything is learned `auto` is `mixed`, to the page. */
static void test_learning_begins_mixed(void **state)
{
	struct config_pool learning = config;
	struct pool *pool = open_pool();
	learning.is_learning = true;
	learning.stock_count = 0;
	learning.stock_share = 80;
	for (uint64_t pages = 0; pages < 300000; pages += pages < 700 ? 1 : 997) {
		struct config_class expected[CONFIG_STOCK_MAX + 3];
		learning.pages = pages;
		pool_set_config(pool, &learning);
		size_t count = config_get_stock(&learning, pages, expected);
		uint64_t wanted = 0;
		struct policy_class classes[POOL_CLASSES_MAX];
		for (size_t i = 0; i < count; i++)
			assert_int_equal(get_want(pool, expected[i].segment_pages), expected[i].count);
		for (size_t i = pool_get_classes(pool, classes); i-- > 0;)
			wanted += classes[i].want * classes[i].segment_pages;
		assert_int_equal(wanted, pages);
	}
	pool_close(pool);
}

/* A lease counts from its grant until its segment is not leased any more, however that ends. */
static void test_demand(void **state)
{
	struct config_pool learning = config;
	struct pool *pool = open_pool();
	uint64_t now_ns = clock_get_ns(CLOCK_BOOTTIME);
	learning.is_learning = true;
	learning.pages = 100;
	learning.stock_count = 1;
	learning.stock[0] = (struct config_stock){9 * STORE_PAGE, 2};
	learning.stock_share = 50;
	learning.stock_half_life_ns = 3600 * NS_PER_S;
	pool_set_config(pool, &learning);
	assert_false(pool_follow_demand(pool, now_ns));
	struct pool_segment *segments[3];
	for (size_t i = 0; i < ARRAY_SIZE(segments); i++) {
		segments[i] = make_clean(pool, 8);
		segments[i]->lease = i + 1;
		segments[i]->given = 7;
		assert_int_equal(pool_set_state(segments[i], SEGMENT_LEASED), 0);
		demand_ask(&pool->demand, now_ns, 7, DEMAND_LARGER);
		pool_count_lease(segments[i], 7);
		pool_count_lease(segments[i], 7);
	}
	assert_true(pool_follow_demand(pool, now_ns));
	assert_int_equal(pool->demand.size_count, 1);
	assert_int_equal(pool->demand.sizes[0].out, 3);
	assert_int_equal(get_want(pool, 7), 4);
	assert_int_equal(get_want(pool, 9), 2);
	/* A reload that changes nothing changes nothing. */
	pool_set_config(pool, &learning);
	assert_int_equal(get_want(pool, 7), 4);
	/* Fixed again: it goes on to learn, and says so only. */
	learning.is_learning = false;
	pool_set_config(pool, &learning);
	assert_int_equal(get_want(pool, 7), 0);
	assert_int_equal(pool->demand.sizes[0].proposed, 4);
	assert_int_equal(pool_set_state(segments[0], SEGMENT_DIRTY), 0);
	assert_int_equal(pool->demand.sizes[0].out, 2);
	pool_forget(segments[1]);
	assert_int_equal(pool->demand.sizes[0].out, 1);
	assert_int_equal(pool_set_length(segments[2], 9), 0);
	assert_int_equal(pool->demand.sizes[0].out, 1);
	pool_close(pool);
}

/* Died after the rename, before or after the new length: it is filled, whatever it is. */
static void test_extend_half_way(void **state)
{
	if (geteuid() != 0)
		return; /* only root opens a file of mode 0 again */
	for (uint64_t length = 4; length <= 7; length += 3) {
		struct pool *pool = open_pool();
		struct pool_segment *segment = make_clean(pool, 4);
		assert_int_equal(pool_set_state(segment, SEGMENT_FILLING), 0);
		int fd = pool_open_segment(segment);
		assert_int_equal(ftruncate(fd, (off_t)(length * STORE_PAGE)), 0);
		close(fd);
		pool_close(pool);
		pool = open_pool();
		assert_true(pool->segments[SEGMENT_FILLING] == 1 && pool_get_lengths(pool) == length);
		pool_close(pool);
		temp_remove(dir);
		assert_true(store_make_dir(dir));
	}
}

static void test_kept(void **state)
{
	struct pool *pool = open_pool();
	struct pool_segment *segments[4], *found[4];
	int someone, other;
	for (size_t i = 0; i < ARRAY_SIZE(segments); i++)
		segments[i] = make_clean(pool, i < 2 ? 1 : i);
	pool_keep(segments[0], &someone);
	pool_keep(segments[3], &someone);
	pool_keep(segments[2], &other);
	assert_int_equal(pool_list_kept(pool, &someone, found, 4), 2);
	assert_true(found[0] == segments[3] && found[1] == segments[0]);
	assert_int_equal(pool_list_kept(pool, &someone, found, 1), 1);
	assert_int_equal(pool_list_kept(pool, &found, found, 4), 0);
	assert_ptr_equal(pool_find_clean(pool, 1), segments[1]);
	assert_null(pool_find_clean(pool, 2));
	pool_close(pool);
}

/* More lengths than the policy takes: the rest is left out, nothing is written beyond. */
static void test_many_classes(void **state)
{
	struct policy_class classes[POOL_CLASSES_MAX];
	char name[32];
	for (unsigned i = 1; i <= POOL_CLASSES_MAX + 3; i++) {
		snprintf(name, sizeof name, "%u.0", i);
		put("dirty", name, i, 0);
	}
	struct pool *pool = open_pool();

	assert_int_equal(pool_get_classes(pool, classes), POOL_CLASSES_MAX);
	pool_close(pool);
}

/* ---- the model ---- */

static char store_dir[PATH_MAX], run_dir[PATH_MAX];

static struct segment_store *open_model_store(void *user)
{
	return store_open(store_dir);
}

static void run_model(uint64_t seed, void *user)
{
	const struct model_place place = {
		.host = store_get_host(),
		.page_size = STORE_PAGE,
		.pages_max = 60,
		.run_dir = run_dir,
		.open_store = open_model_store,
	};
	char name[64];

	snprintf(name, sizeof name, "%" PRIu64 "/store/", seed);
	temp_path(dir, name, store_dir);
	snprintf(name, sizeof name, "%" PRIu64 "/run/", seed);
	temp_path(dir, name, run_dir);
	model_run(&place, seed, 400);
}

static void test_model(void **state)
{
	log_set_level(LOG_LEVEL_ERROR);
	dice_for_each_seed(arg_count, args, 40, run_model, NULL);
	log_set_level(LOG_LEVEL_INFO);
}

int main(int argc, char **argv)
{
	arg_count = argc;
	args = argv;
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_wrong_machine, setup, teardown),
		cmocka_unit_test_setup_teardown(test_adoption, setup, teardown),
		cmocka_unit_test_setup_teardown(test_adoption_collision, setup, teardown),
		cmocka_unit_test_setup_teardown(test_ids, setup, teardown),
		cmocka_unit_test_setup_teardown(test_discard, setup, teardown),
		cmocka_unit_test_setup_teardown(test_vanished, setup, teardown),
		cmocka_unit_test_setup_teardown(test_classes, setup, teardown),
		cmocka_unit_test_setup_teardown(test_extend, setup, teardown),
		cmocka_unit_test_setup_teardown(test_cut, setup, teardown),
		cmocka_unit_test_setup_teardown(test_find_dirty, setup, teardown),
		cmocka_unit_test_setup_teardown(test_learning_begins_mixed, setup, teardown),
		cmocka_unit_test_setup_teardown(test_demand, setup, teardown),
		cmocka_unit_test_setup_teardown(test_extend_half_way, setup, teardown),
		cmocka_unit_test_setup_teardown(test_kept, setup, teardown),
		cmocka_unit_test_setup_teardown(test_many_classes, setup, teardown),
		cmocka_unit_test_setup_teardown(test_model, setup, teardown),
	};
	return cmocka_run_group_tests_name("pool", tests, NULL, NULL);
}
