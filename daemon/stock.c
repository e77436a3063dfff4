/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* stock.c - keeps what was learned of demand. */
#include <inttypes.h>

#include "log.h"
#include "stock.h"

#define SAVE_MS      1000 /* between two writings */
#define FADE_MIN_MS  1000
#define FADES_A_LIFE 16 /* looks in a half-life, when nothing happens */

static int write_size(struct pool *pool, struct journal *journal, struct demand_size *size, uint64_t now_ns)
{
	struct journal_demand record = {
		.size = sizeof record,
		.node = pool->config.node,
		.page_size = pool->config.page_size,
		.pages = size->pages,
		.saved_boot_ns = now_ns,
		.peak = size->peak,
		.wanted = size->wanted,
		.proposed = size->proposed,
		.large_pages = pool->demand.large_pages,
		.is_known = size->is_known,
	};
	_Static_assert(DEMAND_SERVED_COUNT <= ARRAY_SIZE(record.served), "each has a place");
	memcpy(record.served, size->served, sizeof size->served);
	int r = journal_append(journal, JOURNAL_DEMAND, &record, sizeof record, NULL, 0);
	if (r == 0)
		size->is_unsaved = false;
	return r;
}

static bool is_unsaved(const struct pool *pool)
{
	for (size_t i = 0; i < pool->demand.size_count; i++) {
		if (pool->demand.sizes[i].is_unsaved)
			return true;
	}
	return false;
}

void stock_save(struct pool *pool, struct journal *journal, uint64_t now_ns)
{
	int r = 0;
	pool->demand_saved_ns = now_ns;
	for (size_t i = 0; r == 0 && i < pool->demand.size_count; i++) {
		if (pool->demand.sizes[i].is_unsaved)
			r = write_size(pool, journal, &pool->demand.sizes[i], now_ns);
	}
	if (r < 0)
		log_error("journal: pool %s: %s; a restart now would not know what was asked for lately",
			pool->name, strerror(-r));
}

void stock_write_all(struct pool *pool, struct journal *journal)
{
	uint64_t now_ns = clock_get_ns(CLOCK_BOOTTIME);
	for (size_t i = 0; i < pool->demand.size_count; i++)
		write_size(pool, journal, &pool->demand.sizes[i], now_ns);
}

uint64_t stock_get_journal_bytes(const struct pool *pool)
{
	return pool->demand.size_count * sizeof(struct journal_demand);
}

static void tell(const struct pool *pool)
{
	char text[256] = "";
	size_t used = 0;
	for (size_t i = 0; i < pool->demand.size_count && used < sizeof text; i++) {
		const struct demand_size *size = &pool->demand.sizes[i];
		if (size->proposed > 0)
			used += (size_t)snprintf(text + used, sizeof text - used, "%s%" PRIu64 " of %" PRIu64,
				used ? ", " : "", size->proposed, size->pages);
	}
	log_info("pool %s: the stock follows demand: segments of so many pages: %s", pool->name,
		used ? text : "none in particular");
}

/* What nobody asks for fades also while nothing happens. */
static uint64_t get_fade_ms(const struct pool *pool)
{
	if (!pool->config.is_learning || pool->demand.size_count == 0)
		return UINT64_MAX;
	return MAX(pool->demand.rules.half_life_ns / NS_PER_MS / FADES_A_LIFE, FADE_MIN_MS);
}

uint64_t stock_look(struct pool *pool, struct journal *journal, uint64_t now_ns)
{
	if (pool_follow_demand(pool, now_ns))
		tell(pool);
	uint64_t fade_ms = get_fade_ms(pool);
	if (!journal || !is_unsaved(pool))
		return fade_ms;
	uint64_t age_ms = (now_ns - pool->demand_saved_ns) / NS_PER_MS;
	if (age_ms < SAVE_MS)
		return MIN(fade_ms, SAVE_MS - age_ms);
	stock_save(pool, journal, now_ns);
	return fade_ms;
}

static struct pool *find_pool(struct pool **pools, size_t count, const struct journal_demand *record)
{
	for (size_t i = 0; i < count; i++) {
		if (pools[i]->config.node == record->node && pools[i]->config.page_size == record->page_size)
			return pools[i];
	}
	return NULL;
}

void stock_read_record(
	struct pool **pools, size_t pool_count, enum journal_type type, const void *payload, size_t bytes)
{
	const struct journal_demand *record = payload;
	if (type != JOURNAL_DEMAND || bytes < sizeof *record || record->pages == 0)
		return;
	struct pool *pool = find_pool(pools, pool_count, record);
	if (!pool)
		return;
	struct demand_size size = {
		.pages = record->pages,
		.peak = record->peak,
		.is_known = record->is_known,
		.wanted = record->wanted,
		.proposed = record->proposed,
	};
	memcpy(size.served, record->served, sizeof size.served);
	demand_restore(&pool->demand, clock_get_ns(CLOCK_BOOTTIME), record->saved_boot_ns, &size);
	pool->demand.large_pages = record->large_pages;
}
