/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * lease.h - who holds what, and the journal that remembers it.
 * Owns the table of leases, their ids and their records. Does not open, link or probe a file (handoff does),
 * and does not decide (policy does).
 */
#ifndef HPZ_LEASE_H
#define HPZ_LEASE_H

#include "hpz.h"
#include "journal.h"
#include "pool.h"
#include "worker.h"

struct handoff_lease;

/* What a user has, kept so that no request has to look at all leases. */
struct lease_usage {
	struct list link; /* lease_table.usages, by uid */
	uint32_t uid;
	unsigned references; /* leases, those that are not in the table (yet) too */
	uint64_t leases, bytes;
};

struct lease {
	struct list link;           /* lease_table.leases, by id */
	struct list hash_link;      /* by id */
	struct list key_link;       /* by uid and key, if it has one */
	struct list returning_link; /* lease_table.returning, while it is */
	uint64_t id;
	enum hpz_lease_state state;
	char label[HPZ_LABEL_MAX + 1]; /* "?": owner unknown, the journal was lost */
	char key[HPZ_KEY_MAX + 1];
	char comm[17]; /* the owner's, or the asker's */
	uint32_t uid, gid;
	int32_t pid; /* owner process; 0: none */
	uint64_t pid_start;
	uint32_t flags;   /* HPZ_LEASE_* */
	uint32_t deliver; /* enum hpz_deliver */
	uint32_t file_uid, file_gid, file_mode;
	int64_t open_timeout_ms;
	uint64_t asked;           /* bytes */
	uint64_t granted_boot_ns; /* CLOCK_BOOTTIME */
	char token[SEGMENT_TOKEN];
	bool has_token;
	bool was_opened;          /* path */
	bool is_unknown;          /* no record of it: ends when proven unused */
	bool is_recovered;        /* granted by an hpzd that is gone */
	bool is_forced;           /* returning: is not waited for */
	enum proof_reason reason; /* returning: why the last look found it held */

	struct pool_segment **segments; /* in order; NULL: back already */
	size_t segment_count;
	size_t firm; /* while it grows, or adopting: the segments it has for certain; 0: all */
	/* Split off: its segments are in files and links of that lease's name, from that index on. 0: its
	 * own.
	 */
	uint64_t split_from;
	uint32_t first_index;
	size_t segments_out;
	struct journal_segment *recorded; /* while adopting: what the journal says of each */
	struct lease_usage *usage;        /* of its uid */
	uint64_t counted_bytes;           /* of it, in there */

	void *bound;                   /* the connection it ends with; NULL: none. Compared, never followed */
	struct handoff_lease *handoff; /* handoff's */

	struct worker_holder holders[WORKER_HOLDERS_MAX];
	size_t holder_count;
};

struct lease_table {
	struct list leases;
	struct list *hash, *keys, *usages;
	struct list returning; /* struct lease.returning_link */
	size_t count;
	uint64_t segments_out;   /* of all leases together, counted by itself: the pools must agree */
	struct journal *journal; /* borrowed */
	uint64_t next_id;
	struct lease_range {
		uint64_t first, next;
	} * ranges; /* ids of this boot; the last one is this run's */
	size_t range_count;
	uint64_t granted;
	struct pool_segment **misfits; /* while adopting */
	size_t misfit_count;
};

int lease_init_table(struct lease_table *table);
/* Forgets everything; journal and disk keep it. Leases' handoffs must be gone. */
void lease_deinit_table(struct lease_table *table);

/* ---- at start ---- */

/* One record of the journal, in order. Types that are not leases' are ignored. */
void lease_read_record(struct lease_table *table, enum journal_type type, const void *payload, size_t bytes);
/*
 * A name found in leased/: finds its lease, or makes one whose owner is unknown. What does not fit waits for
 * lease_adopt_misfits(): a place that is taken, or of another segment for the journal, or none of a lease; an
 * id that none can have. 0 or negative errno.
 */
int lease_adopt_segment(struct lease_table *table, struct pool_segment *segment);
/*
 * All names of a pool are in: what did not fit gets the place its name says if that is free, else a lease of
 * its own, whose owner is unknown, and a name to that effect: it ends when it is proven unused.
 */
void lease_adopt_misfits(struct lease_table *table);
/*
 * All names of all pools are in, misfits too: leases without any segment are dropped, incomplete ones are
 * marked returning. Starts this run's ids and writes to the journal from now on.
 */
int lease_finish_adoption(struct lease_table *table, struct journal *journal);
/* Everything alive, for a compaction. */
void lease_write_all(struct journal *journal, void *table);
/* Bytes a compacted journal would have, roughly. */
uint64_t lease_get_journal_bytes(const struct lease_table *table);

/* ---- life ---- */

/*
 * Takes the segments (all clean) into a new lease: journal first, then one rename each. `draft` has
 * everything but id and segments; the segments have their cells. On failure the segments that had been
 * renamed are dirty, or stranded (pool_strand), the others clean, and *draft is untouched. 0 or negative
 * errno.
 */
int lease_grant(struct lease_table *table, const struct lease *draft, struct pool_segment **segments,
	const uint64_t *given_pages, size_t count, struct lease **ret_lease);

/* An id that is no lease's; whoever takes it writes it to the journal. */
uint64_t lease_take_id(struct lease_table *table);

/* State and opened flag, to the journal as well; a failure there is logged and costs only what it would
 * remember. */
void lease_set_state(struct lease_table *table, struct lease *lease, enum hpz_lease_state state);
void lease_set_opened(struct lease_table *table, struct lease *lease);
int lease_set_owner(struct lease_table *table, struct lease *lease, int32_t pid, uint64_t pid_start,
	uint32_t flags, const char *comm);
/*
 * A lease grows by segments (all clean): journal first, then one rename each. They are not the lease's for
 * certain before lease_confirm(): a next hpzd takes them back. On failure they are as after a failed
 * lease_grant(), and the lease as before. 0 or negative errno.
 */
int lease_append(struct lease_table *table, struct lease *lease, struct pool_segment **segments,
	const uint64_t *given_pages, size_t count);
/* They are the lease's, which was asked to have so many bytes. 0 or negative errno; then they are not yet. */
int lease_confirm(struct lease_table *table, struct lease *lease, uint64_t asked);
/*
 * A lease keeps its first `kept` segments (not 0), and of the last of them `tail_pages`. The others become a
 * lease of their own, which is returning: *ret_rest, NULL if there are none. Its files keep their names. 0 or
 * negative errno; then nothing has changed.
 */
int lease_split(struct lease_table *table, struct lease *lease, size_t kept, uint64_t tail_pages,
	uint64_t asked, struct lease **ret_rest);
/* Part of it, split off before, is not back yet. */
bool lease_has_rest(const struct lease_table *table, const struct lease *lease);
/* A segment is back (or gone): the lease does not list it any more. */
void lease_drop_segment(struct lease_table *table, struct lease *lease, struct pool_segment *segment);
/* All segments are back: END to the journal, forget it. Its handoff must be gone. */
void lease_end(struct lease_table *table, struct lease *lease);

/* ---- questions ---- */

struct lease *lease_find(const struct lease_table *table, uint64_t id);
/* A living (not returning) lease of that uid and key; NULL. */
struct lease *lease_find_key(const struct lease_table *table, uint32_t uid, const char *key);
/* The lease that has this leased segment; NULL. */
struct lease *lease_find_of(const struct lease_table *table, const struct pool_segment *segment);
/* The first lease with an id of at least `id`; NULL. */
struct lease *lease_find_from(const struct lease_table *table, uint64_t id);
/* Whether an id was given this boot. */
bool lease_is_known_id(const struct lease_table *table, uint64_t id);
uint64_t lease_get_given(const struct lease *lease); /* bytes, of the segments it still has */
/* How many leases a user has, returning ones too, and how many bytes they still have. */
void lease_get_usage(
	const struct lease_table *table, uint32_t uid, uint64_t *ret_leases, uint64_t *ret_bytes);

#define LEASE_OF(pos) CONTAINER_OF(pos, struct lease, link)

#endif
