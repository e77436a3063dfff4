/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* report.h - puts what hpzd has and does into wire structs. Reads everything, changes nothing. */
#ifndef HPZ_REPORT_H
#define HPZ_REPORT_H

#include "proto.h"
#include "access.h"
#include "books.h"

/*
 * One segment of a lease that is still out; zero pages when it is back already. with_cells: says which cell
 * it is of, which an older client would not understand.
 */
void report_segment(const struct lease *lease, size_t index, int32_t descriptor, bool with_cells,
	struct hpz_wire_segment *ret_record);

/* What of a list a client gets: an older one would not understand the rest. */
struct report_view {
	const struct orphans *orphans;      /* NULL: neither them nor reasons */
	const struct access_rule *keys_for; /* the keys of what it may touch; NULL: none */
	bool with_cells;
};

/*
 * A page of the list from the lease `cursor` on: struct hpz_wire_listed and its records. Returns the bytes
 * used.
 */
size_t report_list(struct lease_table *leases, const struct report_view *view, uint64_t cursor, void *buffer,
	size_t capacity);

/* A page of what the last check found, from the finding `index` on. Returns the bytes used. */
size_t report_check(const struct books *books, size_t index, void *buffer, size_t capacity);

/* struct hpz_wire_status and one record per pool, as a client with these HPZ_WIRE_CAN_* knows them; uptime
 * and connections are left zero. Returns the bytes used. */
size_t report_status(struct reconcile *reconcile, const struct books *books, uint64_t capabilities,
	struct hpz_wire_status *ret_status);

/* struct hpz_wire_clearing and its records. Returns the bytes used. */
size_t report_clearing(const struct reconcile *reconcile, const struct config_clear *clear, void *buffer);

/* One page of what was learned, from that pool on; returns its length. At least one pool fits. */
size_t report_demand(const struct reconcile *reconcile, size_t index, void *buffer, size_t capacity);

/* One page of what was counted, from that series on. Returns the bytes used. At least one series fits. */
/*
 * Behind `since`, what a peer may read: of `uid` alone, or with -1 all of it.
 */
bool report_has_events(uint64_t since, int64_t uid);
size_t report_events(uint64_t since, int64_t uid, void *buffer, size_t capacity);
size_t report_metrics(uint64_t index, void *buffer, size_t capacity);

/*
 * A page of what the ends of leases cost, of the kind and from the cursor on that is asked for; of that uid's
 * leases only (-1: of all). Returns the bytes used.
 */
size_t report_teardown(const struct teardown *teardown, const struct exits *exits,
	const struct hpz_wire_teardown *wire, int64_t uid, void *buffer, size_t capacity);

#endif
