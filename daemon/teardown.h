/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * teardown.h - what the ends of leases cost: one record a lease that has ended, and how long all of them
 * took.
 *
 * Theory of operation
 *
 * Four things happen when a VM ends, in this order or another: its process exits (exits.h sees it), the lease
 * ends (it is returning from then on), its memory is proven free, it is clean again. Whoever makes them
 * happen tells us, and each is a time on CLOCK_MONOTONIC in the lease's record. A process may live on, be one
 * of several, or not be seen; the memory may go to the kernel instead: then that time is missing, and stays
 * missing. It is never made up.
 *
 *   add_exit    a holder's address space is gone; before the lease ends, or even after all of it is back
 *   begin       the lease ends; from here on the record is shown
 *   add_back    a segment of it is not leased any more: dirty, or the kernel's
 *   set_over    all of them are; proven free, unless a part went to the kernel while somebody had it
 *   set_mended  a dirty segment is clean, or the kernel's
 *
 * A record is complete when the lease is over and nothing of it is dirty. Only then it counts in the
 * histograms, gets its sequence number (1, 2, 3, ...: whoever follows sees whether it missed one) and is one
 * of the last TEARDOWN_KEPT that are kept. An exit that is heard of later is still added to it.
 *
 * What a batch of events changed is written to the journal once, after it (teardown_save()): the whole record
 * as it is then. A reader replays them: a record counts in a histogram when `stages` says so and the one
 * before did not. A compaction writes the records, and then the histograms as sums, which replace whatever
 * was counted before them. Records have times of this boot's clock, and so has the journal. After a restart
 * the lease's segments that were dirty have lost where they came from (their names do not say it): those
 * records are complete without a time for clean.
 *
 * A revision is given to each record that a batch changed: to ask for what is new is to ask for the larger
 * ones. Histograms are per page size, regime and label. At most TEARDOWN_KEYS are kept: the label that was
 * seen least recently becomes part of the rest of its page size and regime.
 *
 * Cost: one record a lease that ends, a few appends to the journal, nothing a page, no timer.
 */
#ifndef HPZ_TEARDOWN_H
#define HPZ_TEARDOWN_H

#include "exits.h"
#include "handoff.h"

#define TEARDOWN_KEPT    256 /* records that are complete */
#define TEARDOWN_KEYS    64
#define TEARDOWN_BUCKETS 32
#define TEARDOWN_STAGES  4
#define TEARDOWN_REGIME  64

struct teardown_record {
	struct list link;      /* teardown.records, by revision; of its own: nobody was told yet */
	struct list hash_link; /* by lease */
	struct list over_link; /* teardown.complete, by sequence */
	struct list save_link; /* teardown.changed */
	uint64_t revision, sequence;
	uint64_t lease, part_of;
	uint64_t bytes, page_size, kernel_bytes, orphan_bytes;
	uint64_t ended_ns, proven_ns, clean_ns; /* EXITS_NONE: not yet, or never */
	struct exits_seen exit;                 /* of the holder that ended last */
	enum hpz_teardown_how how;
	uint32_t holders; /* whose end was seen */
	uint32_t uid;
	uint32_t dirty;   /* segments that are being cleared */
	uint32_t stages;  /* bit N: counted in histograms[N] */
	bool is_over;     /* all of it is back */
	bool is_complete; /* and clean, or the kernel's */
	bool is_forced;
	bool was_restarted; /* not all of it was seen */
	char label[HPZ_LABEL_MAX + 1];
	char comm[17];
	char regime[TEARDOWN_REGIME];
};

struct teardown_histogram {
	uint64_t count, sum_ns, max_ns;
	uint32_t buckets[TEARDOWN_BUCKETS];
};

struct teardown_key {
	uint64_t page_size;
	bool is_rest; /* of labels that have no key of their own any more */
	char label[HPZ_LABEL_MAX + 1];
	char regime[TEARDOWN_REGIME];
	uint64_t used;                                         /* the higher, the more recently */
	struct teardown_histogram histograms[TEARDOWN_STAGES]; /* by enum hpz_teardown_stage - 1 */
};

struct teardown_fact {
	const char *name, *value, *where;
};

struct teardown {
	struct list records;  /* that are shown, by revision */
	struct list complete; /* by sequence */
	struct list changed;  /* by this batch */
	struct list *hash;
	size_t record_count, complete_count;
	uint64_t revision, sequence;
	struct teardown_key keys[TEARDOWN_KEYS];
	size_t key_count;
	uint64_t uses;
	char regime[TEARDOWN_REGIME]; /* "": not known yet */
	const struct teardown_fact *facts;
	size_t fact_count;
	struct journal *journal; /* borrowed; NULL: not yet */
	bool is_failing;         /* the last append did */
	void (*on_change)(void *user);
	void *user;
};

/* changed: something is to be saved, and may be news to somebody who waits. May be NULL. */
int teardown_init(struct teardown *teardown, void (*changed)(void *user), void *user);
void teardown_deinit(struct teardown *teardown);
/* What holds on this host from now on; the name is copied, the facts are borrowed. */
void teardown_set_regime(
	struct teardown *teardown, const char *name, const struct teardown_fact *facts, size_t count);

/* ---- at start ---- */

/* One record of the journal, in order. Other types are ignored. */
void teardown_read_record(
	struct teardown *teardown, enum journal_type type, const void *payload, size_t bytes);
/* All leases are there: of those that are not, what was not seen never will be. Writes from now on. */
void teardown_finish_adoption(
	struct teardown *teardown, const struct lease_table *leases, struct journal *journal);
/* Everything, for a compaction; and how long that is, roughly. */
void teardown_write_all(struct teardown *teardown, struct journal *journal);
uint64_t teardown_get_journal_bytes(const struct teardown *teardown);

/* ---- events, see above; times are CLOCK_MONOTONIC ---- */

/* lease: NULL if all of it is back already. */
void teardown_add_exit(
	struct teardown *teardown, uint64_t id, const struct lease *lease, const struct exits_seen *seen);
void teardown_begin(struct teardown *teardown, const struct lease *lease, uint64_t now_ns);
void teardown_add_back(struct teardown *teardown, const struct lease *lease,
	const struct pool_segment *segment, enum handoff_back how);
void teardown_set_over(struct teardown *teardown, const struct lease *lease, bool lives_on, uint64_t now_ns);
/* Of what was dirty; segment->lease says whose it was. */
void teardown_set_mended(
	struct teardown *teardown, const struct pool_segment *segment, bool is_clean, uint64_t now_ns);
/* After a batch of events: what they changed gets its revision and goes into the journal. */
void teardown_save(struct teardown *teardown);

/* ---- questions ---- */

/* The first record that has changed after that revision, of that uid (-1: of anybody); NULL. */
const struct teardown_record *teardown_find_news(
	const struct teardown *teardown, uint64_t revision, int64_t uid);
/* The record of a lease; NULL. */
const struct teardown_record *teardown_find(const struct teardown *teardown, uint64_t lease);
/* What a complete record's stage took. False: that was not seen. */
bool teardown_get_stage(
	const struct teardown_record *record, enum hpz_teardown_stage stage, uint64_t *ret_ns);
/* The bucket of a time, as hpz.h has them. */
unsigned teardown_get_bucket(uint64_t ns);

#endif
