/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* stocks.h - stocks worth trying for a trace, and stocks as hpzd.conf has them. */
#ifndef HPZ_SIMULATE_STOCKS_H
#define HPZ_SIMULATE_STOCKS_H

#include "fleet.h"

/* How one is made of a trace. */
enum stocks_kind {
	STOCKS_CONFIGURED, /* the config's, whatever the trace is */
	STOCKS_LEARNED,    /* `auto`: on each host what it learns of its own starts */
	STOCKS_MIXED,      /* `mixed`: half, 64M pieces, single pages */
	STOCKS_IN_USE,     /* of each size as many as there are at once */
	STOCKS_SPREAD,     /* the same, and more of those that come in ones and twos */
	STOCKS_BY_STARTS,  /* of each size as often as it is asked for */
	STOCKS_POWERS,     /* as STOCKS_SPREAD, sizes rounded up to powers of two */
	STOCKS_LARGE,      /* one size, which 95 % of the starts fit in */
	STOCKS_KINDS,
};

/* As one reads it. */
const char *stocks_get_name(enum stocks_kind kind);

/*
 * The stock of every pool of the config. Those that come from a trace are scaled to the pool: what fits no
 * segment any more stays free. A pool for which the trace asks nothing keeps its configured one.
 */
void stocks_make(enum stocks_kind kind, const struct config *config, const struct profile *profile,
	uint64_t hosts, struct fleet_stock ret_stocks[CONFIG_POOLS_MAX]);

/* "4G*3 512M*16", as `stock =` of hpzd.conf has it. Returns `text`. */
#define STOCKS_TEXT 1024
const char *stocks_format(const struct fleet_stock *stock, char text[STOCKS_TEXT]);

#endif
