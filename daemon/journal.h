/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * journal.h - the append-only file under the run directory that remembers leases and raised pages.
 *
 * Each record: length, crc32c, version, type, boot id, payload (a fixed struct that begins with its size; a
 * shorter one of an older hpzd is filled up with zero). A record is written before the rename it announces.
 * Reading stops at the first record that is short or whose checksum is wrong (a torn tail is expected after a
 * crash: it is cut off and said); records of another boot are ignored; a whole record that is newer than this
 * hpzd (version, type, bytes beyond the struct that are not zero) makes the whole open fail with -EPROTO and
 * nothing is touched or called back. Compacted at start and whenever it is both over 1 MiB and four times
 * what is alive: a new file is written next to it, fsynced, renamed over it.
 *
 * Knows bytes and files, not leases: the owner of the state gives it records and a callback.
 */
#ifndef HPZ_JOURNAL_H
#define HPZ_JOURNAL_H

#include "util.h"

enum journal_type {
	JOURNAL_LEASE = 1,   /* journal_lease, followed by `segments` journal_segment; a later one of the same
				id replaces it, but not its state */
	JOURNAL_STATE = 2,   /* journal_state */
	JOURNAL_OWNER = 3,   /* journal_owner */
	JOURNAL_END = 4,     /* journal_end: lease is closed and none of its segments is leased any more */
	JOURNAL_RAISE = 5,   /* journal_raise */
	JOURNAL_RANGE = 6,   /* journal_range */
	JOURNAL_FACTS = 7,   /* journal_facts */
	JOURNAL_WEAK = 8,    /* journal_weak */
	JOURNAL_ORPHAN = 9,  /* journal_orphan */
	JOURNAL_DEMAND = 10, /* journal_demand */
	JOURNAL_RESIZE = 11, /* journal_resize */
	JOURNAL_DEMOTE = 12, /* journal_demote */
	JOURNAL_RESERVE = 13,   /* journal_reserve */
	JOURNAL_TEARDOWN = 14,  /* journal_teardown */
	JOURNAL_HISTOGRAM = 15, /* journal_histogram */
};

#define JOURNAL_SEGMENTS_MAX 253

struct journal_segment {
	uint64_t segment;    /* id on its mount */
	uint64_t generation; /* after this hand-out */
	uint64_t page_size;
	uint64_t pages;  /* given */
	uint64_t length; /* of the file, pages */
	int32_t node;
	uint32_t cell; /* of the request; 0 also where it has none, or from an older hpzd */
};

struct journal_lease {
	uint32_t size; /* of this struct, without the segments */
	uint32_t segments;
	uint64_t id;
	uint64_t asked;           /* bytes */
	uint64_t granted_boot_ns; /* CLOCK_BOOTTIME */
	uint32_t uid, gid;        /* of the asker */
	int32_t pid;              /* owner process, 0 none */
	uint32_t flags;           /* HPZ_LEASE_* */
	uint64_t pid_start;       /* ticks */
	uint32_t deliver;
	uint32_t file_uid, file_gid, file_mode; /* of the file in the owner's hands */
	int64_t open_timeout_ms;
	char label[128];
	char key[128];
	char token[32]; /* name of the directory under hpz-out, not terminated; zero: none */
	char comm[16];
	/* Split off from that lease: names and links of its segments are still that one's, from first_index
	 * on. 0: its own. */
	uint64_t split_from;
	uint32_t first_index;
	uint32_t firm; /* so many segments it has; what follows is about to be given to it. 0: all */
};

struct journal_state {
	uint32_t size;
	uint32_t state; /* enum hpz_lease_state */
	uint64_t id;
	uint32_t opened; /* path: was opened once */
	uint32_t reserved;
};

struct journal_owner {
	uint32_t size;
	int32_t pid;
	uint64_t id;
	uint64_t pid_start;
	uint32_t flags;
	uint32_t reserved;
	char comm[16];
};

struct journal_end {
	uint32_t size;
	uint32_t reserved;
	uint64_t id;
};

/*
 * nr_hugepages of a node: `raised` pages are ours so far. is_intent: about to go from `before` by `delta`,
 * result not known: a reader after a crash counts max(0, min(delta, nr now - before)) as ours.
 */
struct journal_raise {
	uint32_t size;
	int32_t node;
	uint64_t page_size;
	uint64_t raised;
	uint64_t before;
	int64_t delta;
	uint32_t is_intent;
	uint32_t reserved;
	uint64_t give_back;     /* of `raised`: to be lowered as they come free */
	uint64_t awaited;       /* of `raised`: for somebody who waited, beyond what the pool is to have */
	uint64_t delta_awaited; /* of `delta`, the same */
};

/*
 * Pages of one pool are about to be split into those of another: what both were before. What came of it a
 * reader sees from what the kernel keeps of the larger ones now; later records of these pools say it, too.
 */
struct journal_demote {
	uint32_t size;
	int32_t node;
	uint64_t from_page_size, to_page_size;
	uint64_t pages;
	uint64_t from_kept; /* nr_hugepages - surplus */
	uint64_t from_raised, to_raised;
	uint64_t from_pages, to_pages; /* which the pools were to have */
	uint64_t from_configured, to_configured;
};

/* A pool is to be of another size than configured, as long as the configuration says what it said then. */
struct journal_resize {
	uint32_t size;
	int32_t node;
	uint64_t page_size;
	uint64_t configured; /* pages, then */
	uint64_t pages;
	uint32_t is_resized; /* 0: as configured again */
	uint32_t reserved;
	uint64_t withheld; /* pages, because others wait for memory */
};

/*
 * Lease ids of one run of hpzd: first to next - 1. Written at start with next == first; a later JOURNAL_LEASE
 * of the same run moves next on, a compaction writes what it is by then.
 */
struct journal_range {
	uint32_t size;
	uint32_t reserved;
	uint64_t first;
	uint64_t next;
};

/* What the proof learned about files of one page size (proof.h); true for this boot. */
struct journal_facts {
	uint32_t size;
	uint32_t stride;
	uint64_t page_size;
	int32_t writes, reads, inodes, names;
	int32_t base;
	int32_t unlinked_names; /* 0: an older hpzd did not learn it; then all of it is learned again */
};

/* Memory of this pool was reused with the weak proof only: what is there cannot serve as proven. */
struct journal_weak {
	uint32_t size;
	int32_t node;
	uint64_t page_size;
};

/*
 * A segment whose name is about to go, or gone, while somebody may hold its pages. Lease, segment, page size
 * and node together say which; a later record of the same one replaces it.
 */
struct journal_orphan {
	uint32_t size;
	int32_t node;
	uint64_t lease;
	uint64_t segment;
	uint64_t page_size;
	uint64_t pages; /* 0: it is none any more */
	uint64_t asked;
	uint64_t granted_boot_ns;
	uint32_t uid;
	uint32_t reserved;
	char label[128];
	char pool[64];
};

/*
 * What was learned of one size that is asked for in a pool, as it was at saved_boot_ns; a later record of the
 * same one replaces it. Written a second after it changed: a death costs what came in between.
 */
struct journal_demand {
	uint32_t size;
	int32_t node;
	uint64_t page_size;
	uint64_t pages;
	uint64_t saved_boot_ns; /* CLOCK_BOOTTIME */
	uint64_t peak;          /* as struct demand_size has it */
	uint64_t served[8];     /* by enum demand_served */
	uint64_t wanted, proposed;
	uint64_t large_pages; /* of the pool: struct demand */
	uint32_t is_known;
	uint32_t reserved;
};

/* Memory kept for leases to come; a later record of the same id replaces it. */
struct journal_reserve {
	uint32_t size;
	int32_t node;
	uint64_t id; /* of the leases' ids */
	uint64_t page_size;
	uint64_t pages;                            /* left; 0: it is over */
	uint64_t asked;                            /* bytes */
	uint64_t granted_boot_ns, expires_boot_ns; /* CLOCK_BOOTTIME */
	uint32_t uid;
	uint32_t flags; /* HPZ_LEASE_SEGMENTS or 0 */
	char label[128];
	char pool[64];
};

/*
 * What the end of a lease cost, as far as that was known; a later record of the same lease replaces it.
 * UINT64_MAX: not seen, or has not come about. Times are of CLOCK_MONOTONIC.
 */
struct journal_teardown {
	uint32_t size;
	uint32_t flags;    /* of teardown.c */
	uint64_t revision; /* 0: nobody was told of it yet */
	uint64_t sequence; /* 0: it is not over */
	uint64_t lease, part_of;
	uint64_t bytes, page_size, kernel_bytes, orphan_bytes;
	uint64_t ended_ns, proven_ns, clean_ns;
	uint64_t begun_ns, gone_ns;
	uint64_t table_bytes, table_age_ns;
	uint64_t steal_ns;
	uint64_t flushes[8];
	uint64_t pid_start;
	int32_t pid, code;
	uint32_t source, how;
	uint32_t holders;
	uint32_t uid;
	uint32_t dirty;  /* segments that were being cleared */
	uint32_t stages; /* bit N: histogram N has it */
	char label[128];
	char comm[16];
	char regime[64];
};

/*
 * How long one stage took so far, of one label: replaces what there is of that stage. is_first: of all
 * histograms, those of records before it included, only these that follow hold.
 */
struct journal_histogram {
	uint32_t size;
	uint32_t is_first;
	uint64_t page_size;
	uint32_t stage;
	uint32_t is_rest; /* of labels that have none of their own any more */
	uint64_t count, sum_ns, max_ns;
	uint32_t buckets[32];
	char label[128];
	char regime[64];
};

struct journal;

/*
 * `payload` is the struct of its type as this hpzd knows it, its size set so, valid during the call;
 * payload_bytes is that of the struct, or for JOURNAL_LEASE with its journal_segments, of which there are as
 * many as it says.
 */
typedef void (*journal_read_cb)(
	enum journal_type type, const void *payload, size_t payload_bytes, void *user);

/*
 * Opens (makes, mode 0600) DIR/journal, reads what is there and calls back for each record of this boot in
 * order. 0, -EPROTO (newer format), -EBUSY (another process has the journal of DIR open), or another negative
 * errno. *ret_cut (may be NULL): bytes of a torn tail dropped.
 */
int journal_open(const char *dir, const char *boot_id, journal_read_cb callback, void *user,
	uint64_t *ret_cut, struct journal **ret_journal);
void journal_close(struct journal *journal);
/*
 * Whether journal_open() would find nothing newer than this hpzd in DIR; makes, locks and cuts nothing. 0: it
 * would, or there is no journal; -EPROTO; or another negative errno.
 */
int journal_check_format(const char *dir);

/*
 * Appends one record in one write. 0 or negative errno; after a failure the file is truncated back, so that
 * the next append finds a whole file. `extra` (may be NULL) follows the payload in the same record: a lease's
 * segments.
 */
int journal_append(struct journal *journal, enum journal_type type, const void *payload, size_t bytes,
	const void *extra, size_t extra_bytes);

/*
 * Writes a new file from what `writer` appends through journal_append() while it runs, then replaces the old
 * one. On failure the old file stays in force. 0 or negative errno.
 */
int journal_compact(struct journal *journal, void (*writer)(struct journal *journal, void *user), void *user);

/*
 * For a reader of its own, in another thread if need be: a descriptor of the file as it is now and the bytes
 * that are whole. What is appended later, or compacted, does not disturb it.
 */
int journal_dup(const struct journal *journal, int *ret_fd, uint64_t *ret_bytes);
/* Calls back for each record of this boot in the first `bytes` of it. Changes nothing. 0 or negative errno,
 * -EBADMSG: they are not whole records. */
int journal_read(int fd, uint64_t bytes, const char *boot_id, journal_read_cb callback, void *user);

/* Over 1 MiB and four times `live_bytes`. */
bool journal_wants_compaction(const struct journal *journal, uint64_t live_bytes);
uint64_t journal_get_bytes(const struct journal *journal);
/* Whether the directory is on tmpfs (a hand-over waits for the append). */
bool journal_is_on_tmpfs(const struct journal *journal);

/* Begins with crc 0; goes on with what it returned. The second is the one for CPUs without the instruction.
 */
uint32_t journal_crc32c(uint32_t crc, const void *bytes, size_t length);
uint32_t journal_crc32c_plain(uint32_t crc, const void *bytes, size_t length);

#endif
