/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * reserve.h - clean memory that is kept for leases to come, for some time.
 * Owns the reservations, their time limits and their records; keeps their segments through supply. Grants no
 * lease and answers nobody (request does).
 *
 * What a reservation promises is pages of one pool, not certain segments: whichever are kept for it count.
 * When some of them are lost to it (a segment had to be cut for a lease, was found unfit, or hpzd was
 * restarted) it is filled up again, before anybody who waits. It ends when its pages are used up, its time is
 * over (by the clock that counts suspended time, too), its owner says so, or its pool is drained.
 */
#ifndef HPZ_RESERVE_H
#define HPZ_RESERVE_H

#include "proto.h"
#include "supply.h"

struct reservation {
	struct list link; /* reserves.list, by id */
	uint64_t id;      /* of the leases' */
	struct pool *pool;
	uint64_t pages; /* left */
	uint64_t asked; /* bytes, at first */
	uint64_t granted_boot_ns, expires_boot_ns;
	uint32_t uid;
	uint32_t flags;  /* HPZ_LEASE_SEGMENTS: may be kept in several segments */
	unsigned failed; /* extensions for it that came to nothing */
	char label[HPZ_LABEL_MAX + 1];
	char pool_name[64];
};

struct reserves {
	struct list list;
	struct supply *supply;
	struct lease_table *leases; /* gives ids, has the journal */
	uv_timer_t timer;           /* the next end */
};

void reserve_init(
	struct reserves *reserves, uv_loop_t *loop, struct supply *supply, struct lease_table *leases);
/* Forgets everything; the journal keeps it. */
void reserve_deinit(struct reserves *reserves);

/* ---- at start ---- */

/* A record of the journal, in order; other types are ignored. */
void reserve_read_record(
	struct reserves *reserves, enum journal_type type, const void *payload, size_t bytes);
/* The pools are adopted: each reservation finds its own, and clean memory is kept for it before anybody asks.
 */
void reserve_finish_adoption(struct reserves *reserves);
/* Everything alive, for a compaction. */
void reserve_write_all(const struct reserves *reserves, struct journal *journal);

/* ---- life ---- */

/*
 * A new one of pool, pages, asked, uid, flags and label of `draft`, for ttl_ms. What is kept for `keeper` is
 * its own from now on. 0, or a negative errno; then it is still the keeper's.
 */
int reserve_make(struct reserves *reserves, const struct reservation *draft, uint64_t ttl_ms, void *keeper,
	struct reservation **ret_reservation);
/*
 * Memory for a lease of so many pages, in at most parts_max segments, out of what is kept: from now on it is
 * kept for `keeper`. The lease has still to be taken off the reservation: reserve_use(). `may_swap`: a
 * segment of the right length that nobody has may go instead of a longer one that would have to be cut. 0;
 * -EINPROGRESS: what is kept is being read or zeroed; -EAGAIN: there is not so much in one piece, or not yet.
 */
int reserve_take(struct reserves *reserves, struct reservation *reservation, uint64_t pages, size_t parts_max,
	uint32_t uid, bool may_swap, void *keeper);
/* So many pages of it are leased now. Used up, it ends. */
void reserve_use(struct reserves *reserves, struct reservation *reservation, uint64_t pages);
void reserve_end(struct reserves *reserves, struct reservation *reservation, const char *why);
void reserve_end_all(struct reserves *reserves, const struct pool *pool, const char *why);
/* Once a batch of events, before anybody is served: ends those whose time is over, fills up the others. */
void reserve_look(struct reserves *reserves);
/* What was extended for that keeper is not to be had. */
void reserve_note_failed(struct reserves *reserves, const void *keeper);

/* ---- questions ---- */

struct reservation *reserve_find(const struct reserves *reserves, uint64_t id);
uint64_t reserve_get_bytes(const struct reservation *reservation);
uint64_t reserve_get_ttl_ms(const struct reservation *reservation); /* left */
/* Of those kept for it, pages that are ready. */
uint64_t reserve_get_ready(const struct reservation *reservation);
/*
 * Records of those with an id of at least `first` behind what is in `listed`; its cursor is set when there is
 * no room for all. Returns the bytes used.
 */
size_t reserve_report(const struct reserves *reserves, uint64_t first, struct hpz_wire_listed *listed,
	size_t used, size_t capacity);
#define RESERVE_CURSOR ((uint64_t)1 << 62)

#define RESERVATION_OF(pos) CONTAINER_OF(pos, struct reservation, link)

#endif
