/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * fuzz_config.c - a configuration, as hpzd reads it. Users and groups are those of a machine that knows two
 * of each: whoever else knows names is not asked.
 */
#include "fuzz.h"

#include "config.h"
#include "names.h"

static int find(const char *name, uint32_t *ret_id)
{
	if (strcmp(name, "root") != 0 && strcmp(name, "alice") != 0)
		return -ENOENT;
	*ret_id = *name == 'r' ? 0 : 1000;
	return 0;
}

int names_find_user(const char *name, enum names_where where, uint32_t *ret_uid, uint32_t *ret_gid)
{
	int r = find(name, ret_uid);

	if (r == 0)
		*ret_gid = *ret_uid;
	return r;
}

int names_find_group_of(uint32_t uid, enum names_where where, uint32_t *ret_gid)
{
	*ret_gid = uid;
	return uid == 0 || uid == 1000 ? 0 : -ENOENT;
}

int names_find_group(const char *name, enum names_where where, uint32_t *ret_gid)
{
	return find(name, ret_gid);
}

/* ---- what must be true of one that is taken ---- */

static bool has_pages(const char *pool, void *user)
{
	return true;
}

static uint64_t count_pages(const struct config_class *classes, size_t count)
{
	uint64_t pages = 0;

	for (size_t i = 0; i < count; i++) {
		uint64_t sum;
		FUZZ_CHECK(classes[i].segment_pages > 0 && classes[i].count > 0);
		FUZZ_CHECK(i == 0 || classes[i].segment_pages < classes[i - 1].segment_pages);
		FUZZ_CHECK(!__builtin_mul_overflow(classes[i].segment_pages, classes[i].count, &sum));
		FUZZ_CHECK(!__builtin_add_overflow(pages, sum, &pages));
	}
	return pages;
}

static void check_stock(const struct config_pool *pool, uint64_t pages)
{
	struct config_class classes[CONFIG_STOCK_MAX + 3];
	size_t count = config_get_stock(pool, pages, classes);

	FUZZ_CHECK(count <= ARRAY_SIZE(classes) && count_pages(classes, count) <= pages);
	count = config_add_rest(pool, pages, classes, count);
	FUZZ_CHECK(count <= ARRAY_SIZE(classes) && count_pages(classes, count) <= pages);
}

static void check_pool(const struct config_pool *pool)
{
	FUZZ_CHECK(*pool->name && pool->line > 0 && pool->page_size > 0 && pool->node >= 0);
	FUZZ_CHECK(pool->pages <= pool->max_pages && pool->min_pages <= pool->max_pages);
	FUZZ_CHECK(pool->stock_count <= CONFIG_STOCK_MAX);
	FUZZ_CHECK(*pool->mount == '/' || strcmp(pool->mount, "auto") == 0);
	/* As large as it is to be, as it may be, and smaller than that. */
	check_stock(pool, pool->pages);
	check_stock(pool, pool->max_pages);
	check_stock(pool, pool->pages / 3);
}

/* Each rule of clearing, as it is shown, is one that can be set, and is the same then. */
static void check_clear(const struct config *config)
{
	static struct config_clear again;
	char value[320], shown[320], why[512];

	again = config->clear;
	for (size_t row = 0; row < CONFIG_CLEAR_KEYS; row++) {
		const char *key = config_get_clear(&config->clear, row, value, sizeof value);
		FUZZ_CHECK(key && config_set_clear(&again, key, value, why, sizeof why) == 0);
		FUZZ_CHECK(config_get_clear(&again, row, shown, sizeof shown) == key);
		FUZZ_CHECK(strcmp(value, shown) == 0);
	}
	FUZZ_CHECK(!config_get_clear(&config->clear, CONFIG_CLEAR_KEYS, value, sizeof value));
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
	static struct config config, again; /* some hundred KiB */
	char error[512] = "";
	const char *path = fuzz_make_file(bytes, length, NULL);

	int r = config_read(path, false, &config, error, sizeof error);
	if (r < 0) {
		/* Who is refused learns where. */
		FUZZ_CHECK(r == -EINVAL && strncmp(error, path, strlen(path)) == 0);
		FUZZ_CHECK(error[strlen(path)] == ':' && atoi(error + strlen(path) + 1) > 0);
		return 0;
	}
	FUZZ_CHECK(config.pool_count <= CONFIG_POOLS_MAX && config.access_count <= CONFIG_ACCESS_MAX);
	for (size_t i = 0; i < config.pool_count; i++)
		check_pool(&config.pools[i]);
	check_clear(&config);
	FUZZ_CHECK(config_read(path, false, &again, error, sizeof error) == 0);
	FUZZ_CHECK(memcmp(&config, &again, sizeof config) == 0);
	FUZZ_CHECK(config_check_reload(&config, &again, has_pages, NULL, error, sizeof error) == 0);
	return 0;
}
