/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* resize.c - how large a pool is to be while hpzd runs. */
#include <inttypes.h>

#include "hpz.h"
#include "log.h"
#include "resize.h"

uint64_t resize_get_base(const struct pool *pool)
{
	return pool->size.is_resized ? MIN(pool->size.pages, pool->config.max_pages) : pool->config.pages;
}

int resize_find_target(const struct pool *pool, const struct resize_order *order, uint64_t *ret_pages,
	char *ret_why, size_t capacity)
{
	uint64_t base = resize_get_base(pool), pages = order->pages;
	if (order->kind == HPZ_RESIZE_GROW) {
		pages = base + MIN(order->pages, UINT64_MAX - base);
	} else if (order->kind == HPZ_RESIZE_SHRINK) {
		if (order->pages > base) {
			snprintf(ret_why, capacity,
				"pool %s is to have %" PRIu64 " pages: it cannot have %" PRIu64 " fewer",
				pool->name, base, order->pages);
			return -EINVAL;
		}
		pages = base - order->pages;
	}
	if (pages > pool->config.max_pages) {
		snprintf(ret_why, capacity,
			"pool %s would have %" PRIu64 " pages, and may have %" PRIu64
			": raise its max_pages in the configuration",
			pool->name, pages, pool->config.max_pages);
		return -ERANGE;
	}
	*ret_pages = pages;
	return 0;
}

int resize_write(struct journal *journal, const struct pool *pool)
{
	const struct journal_resize record = {
		.size = sizeof record,
		.node = pool->config.node,
		.page_size = pool->config.page_size,
		.configured = pool->config.pages,
		.pages = pool->size.pages,
		.is_resized = pool->size.is_resized,
		.withheld = pool->size.withheld,
	};
	return journal_append(journal, JOURNAL_RESIZE, &record, sizeof record, NULL, 0);
}

/* Journal first; what is less then is owed. */
static int change(struct nr *nr, struct pool *pool, const struct pool_size *size)
{
	const struct pool_size before = pool->size;
	uint64_t target = pool->target;
	pool->size = *size;
	int r = resize_write(nr->journal, pool);
	if (r < 0) {
		pool->size = before;
		return r;
	}
	pool_set_size(pool, size);
	nr_owe(nr, pool, (int64_t)(target - pool->target));
	pool->raise_retry_ns = 0; /* somebody wants it now */
	return 0;
}

int resize_set(struct nr *nr, struct pool *pool, uint64_t pages)
{
	uint64_t before = resize_get_base(pool);
	const struct pool_size next = {
		.is_resized = pages != pool->config.pages, .pages = pages, .demoting = pool->size.demoting};
	int r = change(nr, pool, &next);
	if (r == 0)
		log_info("pool %s: resized from %" PRIu64 " to %" PRIu64 " pages%s", pool->name, before,
			pages, next.is_resized ? "" : ", as configured");
	return r;
}

void resize_set_config(struct nr *nr, struct pool *pool, const struct config_pool *config)
{
	struct pool_size before = pool->size;
	uint64_t target = pool->target;
	pool_set_config(pool, config);
	/* Wanted again, whether an order ended or the configuration says more. */
	if (pool->target > target)
		nr_owe(nr, pool, -(int64_t)(pool->target - target));
	if (before.is_resized == pool->size.is_resized && before.withheld == pool->size.withheld)
		return;
	if (resize_write(nr->journal, pool) < 0)
		log_error("journal: pool %s: a restart now would make it another size", pool->name);
}

int resize_withhold(struct nr *nr, struct pool *pool, uint64_t pages)
{
	struct pool_size next = pool->size;
	next.withheld = pages;
	return change(nr, pool, &next);
}

/* Pages that what is being filled or mended lacks. What is lent gets its own when it is back. */
static uint64_t count_holes(const struct pool *pool)
{
	uint64_t length = 0, there = pool->pages[SEGMENT_FILLING] + pool->pages[SEGMENT_DIRTY];
	POOL_FOR_EACH (pos, pool) {
		const struct pool_class *class = CONTAINER_OF(pos, struct pool_class, link);
		length += class->pages * (class->counts[SEGMENT_FILLING] + class->counts[SEGMENT_DIRTY]);
	}
	return length - MIN(length, there);
}

bool resize_get_left(const struct pool *pool, struct resize_left *ret_left)
{
	uint64_t held = pool_get_lengths(pool);
	*ret_left = (struct resize_left){
		.grow = pool->plan.missing_pages + count_holes(pool),
		.shrink = held - MIN(held, pool->target),
		.give_back = pool->give_back,
	};
	return ret_left->grow + ret_left->shrink + ret_left->give_back == 0 && !pool->is_raising &&
	       pool->segments[SEGMENT_FILLING] == 0;
}

void resize_read_record(struct pool *pool, enum journal_type type, const void *payload, size_t bytes)
{
	const struct journal_resize *record = payload;
	if (type != JOURNAL_RESIZE || bytes < sizeof *record || record->node != pool->config.node ||
		record->page_size != pool->config.page_size)
		return;
	/* Whoever wrote another number into the configuration since wants that one. */
	bool is_valid = record->configured == pool->config.pages;
	bool may_withhold = is_valid && pool->config.give_back == CONFIG_GIVE_BACK_PRESSURE;
	pool_set_size(pool, &(struct pool_size){.is_resized = is_valid && record->is_resized,
				    .pages = record->pages,
				    .withheld = may_withhold ? record->withheld : 0});
	/* What it was to be then. The debt stands in another record: reconcile_start() has both. */
	uint64_t before = record->is_resized ? record->pages : record->configured;
	before -= MIN(before, record->withheld);
	pool->wanted_again = pool->target - MIN(pool->target, before);
}
