/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * pool.h - all hpz pages of one (NUMA node, page size), and the state of every segment.
 *
 * Theory of operation
 *
 * The state of a segment is the directory its name is in. One rename is one transition; memory follows the
 * disk, never the other way round: pool_set_state() renames first and changes the books only when that
 * worked. So a daemon that dies at any instruction finds at its next start exactly what the last rename said.
 *
 *   filling   pages being allocated: zero pages and holes only (the kernel zeroes in fallocate)
 *   clean     every page allocated and zero, on the right node: may be handed out
 *   leased    handed out, or about to be, or returning
 *   dirty     back, reuse proven safe; waiting for or under clearing; may have holes
 *
 *   filling -> clean -> leased -> dirty -> clean; (unlink) from anywhere but leased, and from leased only by
 * name
 *
 * A name enters clean/ only after fill or clear finished and fenced, and leaves it before any descriptor or
 * link for an outsider exists. A name leaves leased/ only with the proof that nobody can reach the memory.
 * Between transitions the files of filling, clean and dirty are root's, mode 0, with one link.
 *
 * The pool owns names, lists and counts. It starts no work (reconcile does) and touches no byte. Only files
 * that nobody else can hold are renamed or unlinked here, so nothing here waits for a client.
 */
#ifndef HPZ_POOL_H
#define HPZ_POOL_H

#include "config.h"
#include "demand.h"
#include "host.h"
#include "policy.h"
#include "segment.h"

struct work_parts;

struct pool_class {
	struct list link;                          /* pool->classes, ascending by pages */
	struct list segments[SEGMENT_STATE_COUNT]; /* struct pool_segment.link */
	uint64_t counts[SEGMENT_STATE_COUNT];
	uint64_t kept; /* of the clean ones: pool_keep() */
	uint64_t pages;
	uint64_t want;
};

#define POOL_WEAK_UIDS 4 /* more than so many: the kernel gets it */

#define POOL_INDEX 4096 /* buckets: ids are nearly consecutive */

struct pool_segment {
	struct list link;       /* in its class, by state */
	struct list index_link; /* in its pool, by id */
	struct pool *pool;
	struct pool_class *class;
	enum segment_state state;
	uint64_t id;
	uint64_t generation;
	uint64_t pages;     /* length of the file */
	uint64_t allocated; /* pages the kernel has given it, when last looked at */

	/* leased; dirty: `lease` is whose it was */
	bool is_stranded; /* of no lease: pool_strand() */
	uint64_t lease;
	uint32_t index;
	uint32_t cell;     /* of the lease's request; 0 also where it has none */
	uint64_t given;    /* pages, at most `pages` */
	uint64_t demanded; /* of a lease that the demand counts: its size in pages; 0: it does not */

	/*
	 * How it was proven that its last holder cannot reach it. Found on disk: not known. With the weak
	 * proof it must not go to the same uid again, however many others had it meanwhile.
	 */
	enum pool_proof { POOL_PROOF_UNKNOWN, POOL_PROOF_WEAK, POOL_PROOF_FULL } proof;
	uint32_t weak_uids[POOL_WEAK_UIDS]; /* who had it since it was last proven, or new */
	unsigned weak_uid_count;

	/* work: set by work, reconcile and lease, cleared when it is done */
	bool is_busy;             /* a worker has it */
	void *job;                /* verify's; NULL: none */
	struct work_parts *parts; /* work's: how far each part of it is; NULL: nothing is. Freed with it, and
				     when its state changes */
	bool is_wanted;           /* somebody waits for it */
	uint64_t retry_ns;        /* no work on it before; CLOCK_MONOTONIC */
	unsigned deaths;          /* workers lost over it */

	/* clean, and for now nobody's but this one's: it is being read, or was for a request. NULL: anybody's
	 */
	void *keeper;
	uint64_t round; /* of verifying, that still is to read it; 0: none */
	/* Somebody else opened it while it was clean, or may have (found dirty at start): to be proven free
	 * before it is cleared. */
	bool is_opening; /* by ourselves */
	bool is_suspect;
	unsigned looks;         /* that found it held */
	uint64_t not_before_ns; /* the next look; CLOCK_MONOTONIC */
	uint64_t stamp;         /* books': when it last had its turn */
};

/* How large a pool is to be, if not as configured: resize's. */
struct pool_size {
	bool is_resized;
	uint64_t pages;    /* if so; instead of the configuration's */
	uint64_t withheld; /* less so many: others wait for memory */
	uint64_t demoting; /* less so many, which are about to become smaller pages */
};

struct pool {
	char name[64];
	struct config_pool config;
	struct pool_size size;
	uint64_t target; /* pages: what comes of both */
	struct segment_store *store;
	struct segment_dirs dirs;
	const struct host *host;
	void *owner; /* who works on it: struct work */

	struct list classes;
	struct list index[POOL_INDEX];
	uint64_t pages[SEGMENT_STATE_COUNT]; /* allocated, by state, when last looked at */
	uint64_t segments[SEGMENT_STATE_COUNT];
	uint64_t holes; /* of leased ones, when all were last looked at */
	uint64_t next_id;

	bool is_draining;
	bool is_past_known; /* clean segments of an unknown past were looked for, since start or reload */
	bool was_weak;      /* memory of it was reused with the weak proof, this boot */

	/*
	 * Which sizes are asked for. Leases are counted here, requests by whoever answers them. With `stock =
	 * auto` the stock follows it: pool_follow_demand().
	 */
	struct demand demand;
	uint64_t demand_saved_ns; /* CLOCK_BOOTTIME */

	/* set by request: who waits for memory of this pool */
	uint32_t waiting;
	uint64_t waiting_pages;  /* what the one who waits longest asked for */
	uint64_t reserved_pages; /* promised by reservations: reserve's */
	bool had_waiting;        /* at the last look */
	uint64_t lacking_pages;  /* and what the kernel lacks for it: nothing else serves it */

	/* work under way, kept by work */
	struct list active;             /* struct work_parts.link: segments that are worked on */
	unsigned jobs;                  /* given or queued */
	unsigned clear_jobs, fill_jobs; /* segments */
	unsigned proof_jobs;            /* reconcile's, of suspect memory */
	bool is_calibrating;            /* on a segment of it */
	bool is_calibrated;             /* that was done, or tried */
	bool wants_calibration;         /* again, on request */
	bool is_zeroing_free;           /* a worker has the kernel zero free pages */
	uint64_t zeroable_pages;        /* before it began */
	uint64_t zero_free_retry_ns;    /* not before; CLOCK_MONOTONIC */
	uint64_t fill_retry_ns;         /* not before; CLOCK_MONOTONIC */

	/* nr_hugepages: what we raised it by, and what is being done about it */
	uint64_t raised;
	uint64_t give_back;      /* of these, nobody wants any more: lowered as they come free */
	uint64_t raised_awaited; /* of `raised`: for somebody who waited, beyond what the pool is to have */
	uint64_t
		wanted_again; /* by a configuration that changed while no hpzd ran; until reconcile_start() */
	bool is_raising;
	uint64_t raise_retry_ns; /* not before; CLOCK_MONOTONIC */
	unsigned raise_failures;
	/* nr's: of the change under way; pages kept by order at the last look, and before somebody else
	 * lowered them (0: nobody did) */
	uint64_t nr_before;
	int64_t nr_delta;
	uint64_t nr_awaited; /* of nr_delta */
	uint64_t leaving;    /* free pages that are about to be lowered or split: nobody else's */
	bool has_known_nr;
	uint64_t known_nr, nr_expected;
	void *demotion;   /* demote's: under way; NULL: none */
	uint64_t demoted; /* pages, since start */
	struct policy_pressure pressure;

	struct policy_plan plan; /* the last one, for status */
	char message[512];       /* what is missing, for people */

	/* Told of a dirty segment that is clean now, or about to be forgotten; segment->lease is where it
	 * came from, 0: not known. NULL: nobody is. */
	void (*mended)(const struct pool_segment *segment, bool is_clean, void *user);
	void *mended_user;

	/* faults, since start */
	uint64_t retired_pages, verified_pages;
	uint32_t verify_hits, sigbus;
	char alarm[192];             /* the last of them, for people; "": none */
	struct host_counters kernel; /* when last counted */
	bool is_counted;             /* by this look */
	bool wants_count;            /* the kernel's numbers may have changed */
	uint64_t foreign_files;
	uint64_t stranded; /* segments: pool_strand() */
};

/*
 * Opens directories and adopts what is in them, except leased/: pool_adopt_leased(). A clean file that is not
 * whole, or that somebody was given, becomes dirty. What is dirty is suspect: whether it became so by a proof
 * or because somebody opened it only the hpzd that is gone knew. ret_error: FILE:LINE text. 0 or negative
 * errno.
 */
int pool_open(const struct config_pool *config, const char *config_path, const struct host *host,
	struct segment_store *store, struct pool **ret_pool, char *ret_error, size_t capacity);
/* Forgets everything; the disk keeps it. */
void pool_close(struct pool *pool);

/* Adopts every name in leased/: calls back with each segment (state leased, given unknown: its length). */
int pool_adopt_leased(
	struct pool *pool, void (*callback)(struct pool_segment *segment, void *user), void *user);

/* New target and stock, after a reload. What it was resized to stays, as long as the configured pages do. */
void pool_set_config(struct pool *pool, const struct config_pool *config);
/*
 * Lets the demand fade (now_ns: CLOCK_BOOTTIME) and proposes anew; where the stock is learned, it becomes
 * what is proposed. Whether that is another one than before.
 */
bool pool_follow_demand(struct pool *pool, uint64_t now_ns);
/* A leased segment is a lease of that size: counted in the demand until it is not leased any more. */
void pool_count_lease(struct pool_segment *segment, uint64_t pages);
void pool_set_size(struct pool *pool, const struct pool_size *size);

/* A new file in filling/ of that many pages; its descriptor in ret_fd, the caller's. 0 or negative errno. */
int pool_create(struct pool *pool, uint64_t pages, struct pool_segment **ret_segment, int *ret_fd);

/*
 * The one setter: renames, then keeps the books. For SEGMENT_LEASED the segment's lease, index, cell and
 * given are set before, and the generation counts up. On failure nothing changes. 0 or negative errno.
 */
int pool_set_state(struct pool_segment *segment, enum segment_state state);
/*
 * A leased segment whose lease came to nothing, and which could not become dirty: nobody outside has seen it.
 * It counts as leased until pool_take_back() has made it dirty. Returns how many are left.
 */
void pool_strand(struct pool_segment *segment);
uint64_t pool_take_back(struct pool *pool);
/* Another lease and place for a leased segment: its name changes. On failure nothing does. */
int pool_set_lease(struct pool_segment *segment, uint64_t lease, uint32_t index);
/* Whether the life of a segment knows this step. */
bool pool_is_transition(enum segment_state from, enum segment_state to);

/*
 * A clean segment is to become longer: back to filling/, then the new length. Every page beyond is a hole
 * until somebody fills it. 0; -EUCLEAN it was renamed and stays in filling/ at its old length; or another
 * negative errno, then it is clean as before.
 */
int pool_extend(struct pool_segment *segment, uint64_t pages);

/*
 * Looks at the file and makes it clean if it is whole, root's, mode 0, with one link. -EUCLEAN: it is not; or
 * another negative errno.
 */
int pool_publish(struct pool_segment *segment);

/*
 * A clean segment gives pages at its end back to the kernel, and stays clean. `fd` is of it, and stays the
 * caller's. 0; -EINVAL: not clean, kept, or nothing would be left; or another negative errno, then it is as
 * before.
 */
int pool_cut(struct pool_segment *segment, int fd, uint64_t pages);

/* Unlinks a segment that nobody outside can hold, and forgets it. On failure it stays. */
int pool_discard(struct pool_segment *segment);
/* Forgets a segment whose name is gone already. */
void pool_forget(struct pool_segment *segment);

/*
 * A clean segment is kept for somebody (NULL: for nobody any more): until then it is neither found nor handed
 * out. It counts as clean all the same.
 */
void pool_keep(struct pool_segment *segment, void *keeper);
/* Whose file is of this name, in that state; NULL. Borrowed. */
struct pool_segment *pool_find_named(const struct pool *pool, enum segment_state state, const char *name);
/* The segment of that id, in whatever state; NULL. Borrowed. */
struct pool_segment *pool_find_id(const struct pool *pool, uint64_t id);
/* The clean segments that are kept for somebody, at most `most`, the longest first; their number. Borrowed.
 */
size_t pool_list_kept(
	const struct pool *pool, const void *keeper, struct pool_segment *ret_segments[], size_t most);
/* The first clean segment of a class that is not kept; NULL. Borrowed. */
struct pool_segment *pool_find_clean(struct pool *pool, uint64_t segment_pages);
/* A dirty one that is proven free and that nobody works on; NULL. Borrowed. */
struct pool_segment *pool_find_dirty(struct pool *pool, uint64_t segment_pages);
/* The length a leased file has when it comes back whole: its holder may have changed it meanwhile. */
int pool_set_length(struct pool_segment *segment, uint64_t pages);
/* Forgets classes that have neither segments nor a place in the stock. Nothing else frees a class. */
void pool_sweep(struct pool *pool);
/* Looks at the file again: allocated pages. 0 or negative errno. */
int pool_refresh(struct pool_segment *segment);
/* For whatever may be held: never blocks (-EWOULDBLOCK), and has O_NONBLOCK. The descriptor or negative
 * errno. */
int pool_open_segment(const struct pool_segment *segment);
/* Only when nobody has it open, as is proven: might block on a file lease. Without O_NONBLOCK. */
int pool_open_unheld(const struct pool_segment *segment);
void pool_get_segment_name(const struct pool_segment *segment, char ret_name[SEGMENT_NAME_MAX]);

/*
 * All classes as the policy wants them, but those that are lent only and no stock: there may be one a lease.
 * `storage` is the caller's; returns the count.
 */
#define POOL_CLASSES_MAX 256
size_t pool_get_classes(const struct pool *pool, struct policy_class storage[POOL_CLASSES_MAX]);

/*
 * What holders punched (owed to them) and what they took beyond what was given, in pages, by looking at every
 * leased file. Read the kernel's counters before, never after: then a page punched meanwhile is counted as
 * owed but not yet as free.
 */
void pool_count_holders(struct pool *pool, uint64_t *ret_holes, uint64_t *ret_grown);

/*
 * What has been promised and is not yet taken from the kernel: to what is being filled, and to dirty segments
 * that are worked on, and what nr_hugepages is just being lowered by. Read before the kernel's counters: a
 * page taken in between is counted once too often, not once too little.
 */
void pool_count_promised(struct pool *pool, uint64_t *ret_filling, uint64_t *ret_mending);
/* Lengths of all segments, in pages. */
uint64_t pool_get_lengths(const struct pool *pool);
/* The most that its segments can come to have: lengths, but of a leased one what was given or taken. */
uint64_t pool_get_held(const struct pool *pool);

/* Allocated pages over all states. */
uint64_t pool_get_total(const struct pool *pool);
uint64_t pool_get_largest_clean(const struct pool *pool); /* pages */

#define POOL_FOR_EACH(class_, pool_) LIST_FOR_EACH (class_, &(pool_)->classes)

#endif
