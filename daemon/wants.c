/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* wants.c - which segments a pool is to hold. Pure. */
#include "wants.h"

#define PIECE_BYTES ((uint64_t)64 << 20)

void wants_get_rules(const struct config_pool *config, uint64_t pages, struct demand_rules *ret_rules)
{
	struct config_class fixed[CONFIG_STOCK_MAX + 3];
	/* Of a pool that was made smaller as much of it as there is. */
	size_t count =
		config->is_learning && config->stock_count > 0 ? config_get_stock(config, pages, fixed) : 0;
	*ret_rules = (struct demand_rules){
		/* hpzd.conf has a default for it; a test's may have none. */
		.half_life_ns = MAX(config->stock_half_life_ns, NS_PER_S),
		.pages = pages,
		.piece_pages = MAX(PIECE_BYTES / config->page_size, 1),
		.share_percent = config->stock_share,
	};
	_Static_assert(CONFIG_STOCK_MAX <= DEMAND_FIXED_MAX, "each has a place");
	for (size_t i = 0; i < count && i < DEMAND_FIXED_MAX; i++)
		ret_rules->fixed[ret_rules->fixed_count++] =
			(struct demand_class){fixed[i].segment_pages, fixed[i].count};
}

size_t wants_list(const struct config_pool *config, uint64_t pages, const struct demand *demand,
	struct demand_class ret_classes[WANTS_MAX])
{
	struct config_class configured[CONFIG_STOCK_MAX + 3];
	_Static_assert(ARRAY_SIZE(configured) <= WANTS_MAX, "each has a place");
	if (config->is_learning)
		return demand_get_stock(demand, ret_classes);
	size_t count = config_get_stock(config, pages, configured);
	if (pages != config->pages)
		count = config_add_rest(config, pages, configured, count);
	for (size_t i = 0; i < count; i++)
		ret_classes[i] = (struct demand_class){configured[i].segment_pages, configured[i].count};
	return count;
}
