/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * wants.h - which segments a pool is to hold: as its config says, and where that learns, as demand proposes.
 * Pure: const config and demand in, a list out. hpzctl simulate goes by it, too.
 */
#ifndef HPZ_WANTS_H
#define HPZ_WANTS_H

#include "config.h"
#include "demand.h"

#define WANTS_MAX DEMAND_STOCK_MAX

/*
 * What demand is to go by, in a pool that is to have so many pages. With a stock that is not learned it says
 * what would be.
 */
void wants_get_rules(const struct config_pool *config, uint64_t pages, struct demand_rules *ret_rules);

/* Largest first, each length once. `demand` is looked at only where the stock is learned. */
size_t wants_list(const struct config_pool *config, uint64_t pages, const struct demand *demand,
	struct demand_class ret_classes[WANTS_MAX]);

#endif
