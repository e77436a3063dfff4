/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* stocks.c - stocks worth trying for a trace. Pure. */
#include "stocks.h"

#include <inttypes.h>
#include <math.h>

#include "size.h"
#include "util.h"

const char *stocks_get_name(enum stocks_kind kind)
{
	static const char *const names[STOCKS_KINDS] = {
		[STOCKS_CONFIGURED] = "as configured",
		[STOCKS_LEARNED] = "learned",
		[STOCKS_MIXED] = "mixed",
		[STOCKS_IN_USE] = "in use at once",
		[STOCKS_SPREAD] = "in use, with spare ones",
		[STOCKS_BY_STARTS] = "as often as asked for",
		[STOCKS_POWERS] = "powers of two",
		[STOCKS_LARGE] = "one large size",
	};

	return names[kind];
}

/* How many segments of a size are wanted, if the pool could have as many as one likes. */
struct need {
	uint64_t pages;
	double count;
};

struct needs {
	struct need list[PROFILE_SIZES_MAX];
	size_t count;
};

/* ---- which sizes come to a pool ---- */

/* Pools of that node have so many page sizes; the request is for the one that fits best. */
static bool is_for(const struct config *config, const struct config_pool *pool, uint64_t bytes)
{
	uint64_t sizes[CONFIG_POOLS_MAX];
	size_t count = 0;

	for (size_t i = 0; i < config->pool_count; i++) {
		const struct config_pool *other = &config->pools[i];
		if (other->node != pool->node)
			continue;
		size_t at = count++;
		for (; at > 0 && sizes[at - 1] > other->page_size; at--)
			sizes[at] = sizes[at - 1];
		sizes[at] = other->page_size;
	}
	return policy_pick_page_size(sizes, count, bytes) == pool->page_size;
}

static double count_pools(const struct config *config, uint64_t page_size)
{
	double count = 0;

	for (size_t i = 0; i < config->pool_count; i++)
		count += config->pools[i].page_size == page_size;
	return count;
}

/* ---- what is needed ---- */

static double get_need(enum stocks_kind kind, const struct profile_size *size, double share)
{
	double mean = size->mean * share;

	switch (kind) {
	case STOCKS_IN_USE:
		return mean;
	case STOCKS_SPREAD:
	case STOCKS_POWERS:
		/* Arrivals that know nothing of each other: two standard deviations more. */
		return mean + 2 * sqrt(mean);
	case STOCKS_BY_STARTS:
	case STOCKS_LARGE:
		return (double)size->starts * share;
	case STOCKS_CONFIGURED:
	case STOCKS_LEARNED:
	case STOCKS_MIXED:
	case STOCKS_KINDS:
		break;
	}
	return 0;
}

static void add_need(struct needs *needs, uint64_t pages, double count)
{
	size_t at = 0;

	while (at < needs->count && needs->list[at].pages != pages)
		at++;
	if (at == needs->count)
		needs->list[needs->count++] = (struct need){.pages = pages};
	needs->list[at].count += count;
}

static uint64_t round_up(uint64_t pages)
{
	uint64_t power = size_floor_pow2(pages);
	return power == pages ? pages : power * 2;
}

/* All of them become the smallest that serves 95 % of the starts. */
static void make_one(struct needs *needs)
{
	double all = 0, seen = 0;

	for (size_t i = 0; i < needs->count; i++)
		all += needs->list[i].count;
	for (size_t i = 0; i < needs->count; i++) {
		seen += needs->list[i].count;
		if (seen < all * 0.95)
			continue;
		needs->list[0] = (struct need){needs->list[i].pages, all};
		needs->count = 1;
	}
}

static void list_needs(enum stocks_kind kind, const struct config *config, const struct config_pool *pool,
	const struct profile *profile, uint64_t hosts, struct needs *ret_needs)
{
	double share = 1 / ((double)MAX(hosts, 1) * count_pools(config, pool->page_size));

	ret_needs->count = 0;
	/* Ascending, as the profile is. */
	for (size_t i = 0; i < profile->count; i++) {
		const struct profile_size *size = &profile->sizes[i];
		uint64_t pages = size_pages(size->bytes, pool->page_size);
		if (!is_for(config, pool, size->bytes))
			continue;
		if (kind == STOCKS_POWERS && round_up(pages) <= pool->pages)
			pages = round_up(pages);
		if (pages <= pool->pages)
			add_need(ret_needs, pages, get_need(kind, size, share));
	}
	if (kind == STOCKS_LARGE)
		make_one(ret_needs);
}

/* ---- what the pool can have of it ---- */

static double get_pages(const struct need *need)
{
	return (double)need->pages * need->count;
}

static int compare_weight(const void *a, const void *b)
{
	double x = get_pages(a), y = get_pages(b);
	return (x < y) - (x > y);
}

static int compare_pages(const void *a, const void *b)
{
	uint64_t x = ((const struct need *)a)->pages, y = ((const struct need *)b)->pages;
	return (x < y) - (x > y);
}

/* Whole segments of each size, then one more where most was cut off, as long as one fits. */
static void fit(struct needs *needs, const struct config_pool *pool, struct fleet_stock *ret_stock)
{
	double all = 0;
	uint64_t counts[CONFIG_STOCK_MAX] = {0}, left = pool->pages;

	qsort(needs->list, needs->count, sizeof *needs->list, compare_weight);
	needs->count = MIN(needs->count, CONFIG_STOCK_MAX);
	qsort(needs->list, needs->count, sizeof *needs->list, compare_pages);
	for (size_t i = 0; i < needs->count; i++)
		all += get_pages(&needs->list[i]);
	for (size_t i = 0; i < needs->count; i++) {
		struct need *need = &needs->list[i];
		need->count *= (double)pool->pages / all;
		counts[i] = MIN((uint64_t)(need->count + 1e-9), left / need->pages);
		left -= counts[i] * need->pages;
	}
	while (1) {
		size_t best = needs->count;
		double most = 0;
		for (size_t i = 0; i < needs->count; i++) {
			double missing = needs->list[i].count - (double)counts[i];
			if (needs->list[i].pages > left || (best < needs->count && missing <= most))
				continue;
			best = i;
			most = missing;
		}
		if (best == needs->count)
			break;
		counts[best]++;
		left -= needs->list[best].pages;
	}
	for (size_t i = 0; i < needs->count; i++) {
		if (counts[i] > 0)
			ret_stock->entries[ret_stock->count++] =
				(struct config_stock){needs->list[i].pages * pool->page_size, counts[i]};
	}
}

static void make_stock(enum stocks_kind kind, const struct config *config, const struct config_pool *pool,
	const struct profile *profile, uint64_t hosts, struct fleet_stock *ret_stock)
{
	struct needs needs = {.count = 0};
	double all = 0;

	*ret_stock = (struct fleet_stock){.is_learned = kind == STOCKS_LEARNED};
	if (kind == STOCKS_LEARNED || kind == STOCKS_MIXED)
		return;
	if (kind != STOCKS_CONFIGURED)
		list_needs(kind, config, pool, profile, hosts, &needs);
	for (size_t i = 0; i < needs.count; i++)
		all += get_pages(&needs.list[i]);
	if (all > 0) {
		fit(&needs, pool, ret_stock);
		return;
	}
	memcpy(ret_stock->entries, pool->stock, sizeof ret_stock->entries);
	ret_stock->count = pool->stock_count;
	ret_stock->is_learned = pool->is_learning;
}

void stocks_make(enum stocks_kind kind, const struct config *config, const struct profile *profile,
	uint64_t hosts, struct fleet_stock ret_stocks[CONFIG_POOLS_MAX])
{
	for (size_t i = 0; i < config->pool_count; i++)
		make_stock(kind, config, &config->pools[i], profile, hosts, &ret_stocks[i]);
}

/* ---- text ---- */

const char *stocks_format(const struct fleet_stock *stock, char text[STOCKS_TEXT])
{
	size_t used = 0;

	for (size_t i = 0; i < stock->count && used < STOCKS_TEXT; i++) {
		const struct config_stock *entry = &stock->entries[i];
		char size[SIZE_TEXT], count[24] = "rest";
		if (entry->count != CONFIG_COUNT_REST)
			snprintf(count, sizeof count, "%" PRIu64, entry->count);
		size_format_exact(entry->bytes, size);
		used += (size_t)snprintf(
			text + used, STOCKS_TEXT - used, "%s%s*%s", used ? " " : "", size, count);
	}
	if (used < STOCKS_TEXT && (stock->is_learned || stock->count == 0))
		snprintf(text + used, STOCKS_TEXT - used, "%s%s", used ? " " : "",
			stock->is_learned ? "auto" : "mixed");
	return text;
}
