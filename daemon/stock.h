/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * stock.h - keeps what was learned of demand: the stock follows it, and the journal remembers it over a
 * restart. Pools own the demand (pool.h), demand.c knows what it means; here is when it is looked at and
 * written down. Starts no work.
 */
#ifndef HPZ_STOCK_H
#define HPZ_STOCK_H

#include "journal.h"
#include "pool.h"

/*
 * Once a look: a stock that is learned becomes what is proposed now, and what changed is written down if the
 * last time was long enough ago (a lease does not wait for it). Returns when to look again at the latest, in
 * ms; UINT64_MAX: no matter. now_ns: CLOCK_BOOTTIME. `journal` NULL: not open yet.
 */
uint64_t stock_look(struct pool *pool, struct journal *journal, uint64_t now_ns);
/* What changed, now: before a stop. A failure is logged, and costs what was learned. */
void stock_save(struct pool *pool, struct journal *journal, uint64_t now_ns);
/* All that is known, for a compaction. */
void stock_write_all(struct pool *pool, struct journal *journal);
uint64_t stock_get_journal_bytes(const struct pool *pool);
/* A record of the journal, while it is read. The pools exist already, leases are not counted yet. */
void stock_read_record(
	struct pool **pools, size_t pool_count, enum journal_type type, const void *payload, size_t bytes);

#endif
