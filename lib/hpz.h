/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * hpz.h - lease huge-page memory that is already zero from hpzd.
 *
 * Conventions, unless a function says otherwise:
 * - Every function that returns int returns 0 (HPZ_OK) or one of enum hpz_error; what is written through a
 *   `ret_` parameter is untouched on failure.
 * - Sizes are bytes, times are milliseconds.
 * - A handle belongs to one thread at a time; different handles may be used by different threads at once. The
 *   library has no global state, installs no signal handlers and starts no threads. SIGPIPE is never raised.
 * - A handle is invalid in a forked child: calls there return HPZ_ERR_FORKED. hpz_close() in the child only
 * frees memory and closes the child's copies of descriptors; the parent's leases are unharmed.
 * - Every descriptor handed out has close-on-exec set.
 * - Structures the caller fills begin with struct_size; initialise them with the macro of their name.
 * Structures the library fills have struct_size set by the caller, too: an older caller gets the part it
 * knows.
 *
 * Everything here is since 0.1 unless it says otherwise. hpz_get_fd and hpz_dispatch are reserved names.
 */
#ifndef HPZ_H
#define HPZ_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define HPZ_PUBLIC __attribute__((visibility("default")))
#else
#define HPZ_PUBLIC
#endif

/* Where hpzd listens unless $HPZ_SOCKET or an argument says otherwise. */
#define HPZ_DEFAULT_SOCKET "/run/hpz/hpzd.sock"

/* Labels and keys are at most this many bytes, without the terminating NUL. */
#define HPZ_LABEL_MAX 128
#define HPZ_KEY_MAX   128

#define HPZ_NODE_ANY      (-1)
#define HPZ_PAGE_SIZE_ANY ((uint64_t)0)
#define HPZ_FOREVER       ((int64_t)-1)

/* Numbers are stable; new ones may be added. hpz_strerror() has a sentence for each. */
enum hpz_error {
	HPZ_OK = 0,
	HPZ_ERR_SYSTEM = 1,         /* a system call failed: hpz_get_errno() */
	HPZ_ERR_INVALID = 2,        /* an argument makes no sense */
	HPZ_ERR_PROTOCOL = 3,       /* the peer sent something that is not the protocol */
	HPZ_ERR_VERSION = 4,        /* peer too old or too new */
	HPZ_ERR_LOST = 5,           /* the connection is gone; hpz_reconnect() */
	HPZ_ERR_NOT_RUNNING = 6,    /* nobody listens at the socket */
	HPZ_ERR_DENIED = 7,         /* you may not do this */
	HPZ_ERR_NO_MEMORY = 8,      /* not enough clean memory now; later it may succeed */
	HPZ_ERR_TOO_LARGE = 9,      /* more than the pool can ever give */
	HPZ_ERR_NO_POOL = 10,       /* no pool of that node and page size (or name) */
	HPZ_ERR_UNKNOWN_LEASE = 11, /* an id that was never given */
	HPZ_ERR_ENDED = 12,         /* the lease has ended */
	HPZ_ERR_TIMEOUT = 13,       /* the deadline passed; later it may succeed */
	HPZ_ERR_BUSY = 14,          /* a limit is reached; later it may succeed */
	HPZ_ERR_IN_USE = 15,        /* leases are still out */
	HPZ_ERR_DRAINED = 16,       /* the pool was drained by its operator */
	HPZ_ERR_WITHHELD = 17,     /* the kernel withheld a descriptor: security module or descriptor limit */
	HPZ_ERR_UNSUPPORTED = 18,  /* the peer does not know this request */
	HPZ_ERR_KEY_MISMATCH = 19, /* the key belongs to a lease of another shape */
	HPZ_ERR_FORKED = 20,       /* the handle belongs to the parent process */
	HPZ_ERR_INTERNAL = 21,     /* hpzd could not do it; its log says why */
	HPZ_ERR_QUOTA = 22         /* you have as much as you may have; after a release it may succeed */
};

struct hpz;            /* a connection */
struct hpz_lease;      /* memory in our hands, with its descriptors */
struct hpz_lease_list; /* a copy of what hpz_list() saw */
struct hpz_status;     /* a copy of what hpz_get_status() saw */

/* ---- connection ---- */

/*
 * Connects to hpzd and exchanges hellos. socket_path NULL: $HPZ_SOCKET, else HPZ_DEFAULT_SOCKET.
 * The caller owns *ret_hpz: hpz_close(). When it fails with HPZ_ERR_SYSTEM, errno is set.
 * Errors: NOT_RUNNING (also: it does not answer), DENIED (the socket's mode), VERSION, BUSY, PROTOCOL,
 * SYSTEM, INVALID (path too long).
 */
HPZ_PUBLIC int hpz_connect(const char *socket_path, struct hpz **ret_hpz);

/* Closes the connection. Leases bound to it end. NULL is fine. */
HPZ_PUBLIC void hpz_close(struct hpz *hpz);

/* Connects again after HPZ_ERR_LOST. Leases survive if a dead hpzd lost them, not if a living one saw us go.
 */
HPZ_PUBLIC int hpz_reconnect(struct hpz *hpz);

/* A sentence about an error; static storage, never NULL. */
HPZ_PUBLIC const char *hpz_strerror(int error);

/* What hpzd (or the library) said about the last failed call; "" if nothing. Valid until the next call. */
HPZ_PUBLIC const char *hpz_get_error_text(const struct hpz *hpz);

/* errno of the last call that failed with HPZ_ERR_SYSTEM; else 0. */
HPZ_PUBLIC int hpz_get_errno(const struct hpz *hpz);

/* hpzd's version, as "0.1.0"; valid as long as the handle. */
HPZ_PUBLIC const char *hpz_get_server_version(const struct hpz *hpz);

/* The library's version, as "0.1.0"; static storage. */
HPZ_PUBLIC const char *hpz_get_version(void);

/* ---- lease ---- */

enum hpz_deliver {
	HPZ_DELIVER_FD = 0,  /* descriptors over the socket, opened read-write for us alone */
	HPZ_DELIVER_PATH = 1 /* a path below hpzd's mount that the named owner can open */
};

/* Flags of a request. */
#define HPZ_LEASE_REOPENABLE                                                                                 \
	1u /* fd: the file may be opened again through /proc/self/fd (owner: our uid, 0600) */
#define HPZ_LEASE_UNBOUND 2u /* fd: outlives this connection; ends with its owner process */
#define HPZ_LEASE_KEEP    4u /* path: does not end by itself once nobody has it open any more */
/*
 * May be given as several segments, in order, where no single one is clean; at most 253. hpz_map() maps them
 * one after the other. Without it a lease has one segment.
 */
#define HPZ_LEASE_SEGMENTS 8u

/* Priorities are from -HPZ_PRIORITY_MAX to HPZ_PRIORITY_MAX. */
#define HPZ_PRIORITY_MAX 1000

/* Which nodes serve a request. Since 0.1. */
enum hpz_node_policy {
	HPZ_NODES_STRICT = 0,    /* `node` or none; HPZ_NODE_ANY: the one that serves it best */
	HPZ_NODES_PREFERRED = 1, /* `node` if it can serve at once, else the one that serves it best */
	/*
	 * Several segments, as with HPZ_LEASE_SEGMENTS, in turn from the nodes of `node_mask`, from each as
	 * much as from the others as far as there is enough.
	 */
	HPZ_NODES_INTERLEAVE = 2
};

#define HPZ_CELLS_MAX 64

/* The memory of one node of a guest. Since 0.1. */
struct hpz_cell {
	uint64_t size; /* bytes, rounded up to whole pages */
	int32_t node;  /* of the host, and no other */
	uint32_t reserved;
};

struct hpz_lease_request {
	size_t struct_size;
	uint64_t size;      /* bytes, rounded up to whole pages; 0 is an error. With cells 0 or their sum */
	uint64_t page_size; /* bytes, or HPZ_PAGE_SIZE_ANY: the largest that wastes at most an eighth */
	int32_t node;       /* NUMA node, or HPZ_NODE_ANY: the one with most clean memory */
	uint32_t flags;     /* HPZ_LEASE_* */
	uint32_t deliver;   /* enum hpz_deliver */
	uint32_t mode;      /* path: mode of the file, 0 means 0600; read and write bits only */
	int64_t timeout_ms; /* how long to wait for clean memory: 0 not at all, HPZ_FOREVER */
	const char *label;  /* VM name or UUID for people; UTF-8 without control characters; NULL: none */
	const char *key;    /* idempotency: the same key of the same uid returns the same lease; NULL: none */
	int64_t owner_uid;  /* path: owner of the file; -1: our own. Another's only for root */
	int64_t owner_gid;  /* path: group of the file; -1: our own */
	int32_t owner_pid;  /* process whose death ends the lease; 0: ours (fd), none (path) */
	int64_t open_timeout_ms; /* path: ends unless opened within this; 0: no limit */
	/*
	 * If it waits: before those of a lower one that wait for the same pool, though none of them is passed
	 * for ever. Above 0 only for root, admins and whom hpzd's configuration allows it.
	 */
	int32_t priority;
	/* Out of what hpz_reserve() keeps, at most what is left of it; 0: out of what is nobody's. */
	uint64_t reservation;
	uint32_t node_policy; /* enum hpz_node_policy */
	uint32_t cell_count;  /* at most HPZ_CELLS_MAX; 0: no cells */
	uint64_t node_mask;   /* HPZ_NODES_INTERLEAVE: bit N is node N; else 0 */
	/*
	 * All of them or none, each in one segment (HPZ_LEASE_SEGMENTS: in several), with pages of one size;
	 * then `node` and `node_policy` stay as they are initialised. hpz_lease_get_segment() says which cell
	 * a segment is of.
	 */
	const struct hpz_cell *cells;
};
#define HPZ_LEASE_REQUEST_INIT                                                                               \
	{                                                                                                    \
		sizeof(struct hpz_lease_request), 0, HPZ_PAGE_SIZE_ANY, HPZ_NODE_ANY, 0, HPZ_DELIVER_FD, 0,  \
			0, NULL, NULL, -1, -1, 0, 0, 0, 0, HPZ_NODES_STRICT, 0, 0, NULL                      \
	}

/*
 * Asks for memory that is zero. Of cells it gives all or none. The caller owns *ret_lease: hpz_lease_free()
 * drops the handle and its descriptors, hpz_release() ends the lease. Errors: NO_MEMORY, TIMEOUT, TOO_LARGE,
 * NO_POOL, DRAINED, BUSY, DENIED, KEY_MISMATCH, WITHHELD, INVALID, LOST ...
 */
HPZ_PUBLIC int hpz_lease(
	struct hpz *hpz, const struct hpz_lease_request *request, struct hpz_lease **ret_lease);

#define HPZ_MANY_MAX 253u

/*
 * The same for `count` leases of this kind in one exchange, 1 to HPZ_MANY_MAX: all of them or none. Each has
 * one segment, so HPZ_LEASE_SEGMENTS is refused, as is a key, which is one lease's. `ready` and `zeroed` add
 * up over all of them; which lease had which is not told. The caller owns every ret_leases[i]. Errors: as
 * hpz_lease(), and UNSUPPORTED (an older hpzd). Since 0.1.
 */
HPZ_PUBLIC int hpz_lease_many(struct hpz *hpz, const struct hpz_lease_request *request, size_t count,
	struct hpz_lease *ret_leases[]);

/* Frees the handle, closes its descriptors and unmaps what hpz_map() mapped. The lease itself goes on. */
HPZ_PUBLIC void hpz_lease_free(struct hpz_lease *lease);

/* Unique for the boot, never reused, exact in a double. */
HPZ_PUBLIC uint64_t hpz_lease_get_id(const struct hpz_lease *lease);
/* Bytes given: what was asked for, rounded up to whole pages. */
HPZ_PUBLIC uint64_t hpz_lease_get_size(const struct hpz_lease *lease);
/* Bytes asked for. */
HPZ_PUBLIC uint64_t hpz_lease_get_asked(const struct hpz_lease *lease);

/*
 * Bytes of it that were clean when hpz_lease() asked, and bytes that the kernel zeroed for it then. What is
 * neither had to be waited for: 0 and 0 for a request that was served from what came back. An adopted lease
 * is ready. A server that does not say has zeroed 0.
 */
HPZ_PUBLIC uint64_t hpz_lease_get_ready(const struct hpz_lease *lease);
HPZ_PUBLIC uint64_t hpz_lease_get_zeroed(const struct hpz_lease *lease);

struct hpz_segment {
	size_t struct_size;
	uint64_t page_size;  /* bytes */
	uint64_t size;       /* bytes given of this segment; the file may be longer */
	uint64_t generation; /* how often the segment has been handed out; informative */
	int32_t node;
	int32_t fd;       /* borrowed from the lease; -1 for a path lease or after hpz_lease_steal_fd() */
	const char *path; /* borrowed; "" unless delivered as a path */
	uint32_t cell;    /* index of the request's cell; 0 also where it has none */
	uint32_t reserved;
};

/* A lease has one or more segments, in order. */
HPZ_PUBLIC size_t hpz_lease_get_segment_count(const struct hpz_lease *lease);
/* Fills *segment, whose struct_size is set. Errors: INVALID (no such index). */
HPZ_PUBLIC int hpz_lease_get_segment(
	const struct hpz_lease *lease, size_t index, struct hpz_segment *segment);
/* Gives the descriptor of a segment to the caller, who closes it; -1 if there is none. */
HPZ_PUBLIC int hpz_lease_steal_fd(struct hpz_lease *lease, size_t index);

/*
 * Maps all segments one after the other, shared, read-write, at an address aligned to 1 GiB. The mapping
 * belongs to the lease handle and goes with it; hpz_unmap() does it earlier. A path lease is opened first (by
 * its path). Mapping twice returns the same address. Errors: SYSTEM, INVALID.
 */
HPZ_PUBLIC int hpz_map(struct hpz *hpz, struct hpz_lease *lease, void **ret_address, size_t *ret_length);
HPZ_PUBLIC void hpz_unmap(struct hpz_lease *lease);

/* ---- reservations ---- */

#define HPZ_RESERVE_MAX_MS ((uint64_t)86400000) /* a day */

struct hpz_reservation {
	size_t struct_size;
	uint64_t id;
	/* bytes */
	uint64_t size;   /* kept: what was asked for, rounded up to whole pages */
	uint64_t ready;  /* of it, clean when it was asked for */
	uint64_t zeroed; /* of it, zeroed for it */
	uint64_t page_size;
	uint64_t ttl_ms;
	int32_t node;
	char pool[72];
};

/*
 * Has clean memory kept for ttl_ms (1 to HPZ_RESERVE_MAX_MS), as for a VM that is about to arrive: for leases
 * of our uid, or an admin's, that name its id in `reservation`, several of them until it is used up. `size`,
 * `page_size`, `node`, `timeout_ms`, `label`, `priority` and HPZ_LEASE_SEGMENTS (it may be kept in several
 * pieces: then a lease without that flag gets no more than one of them) count as for hpz_lease(), the others
 * must not be used. It outlives this connection and hpzd, counts as a lease in our quota, and ends by itself.
 * Errors: as hpz_lease(), and UNSUPPORTED (an older hpzd). Since 0.1.
 */
HPZ_PUBLIC int hpz_reserve(struct hpz *hpz, const struct hpz_lease_request *request, uint64_t ttl_ms,
	struct hpz_reservation *reservation);
/*
 * Ends a reservation: what is left of it is anybody's again. One that has ended is success. Errors:
 * UNKNOWN_LEASE (an id that was never given), INVALID (a lease's), DENIED, LOST ... Since 0.1.
 */
HPZ_PUBLIC int hpz_unreserve(struct hpz *hpz, uint64_t id);

enum hpz_plan_kind {
	HPZ_PLAN_EXACT = 1,   /* one clean segment of that size */
	HPZ_PLAN_TRIM = 2,    /* a larger clean one, whose tail goes back to the kernel */
	HPZ_PLAN_EXTEND = 3,  /* a smaller clean one, or none, and pages that the kernel zeroes for it */
	HPZ_PLAN_SEVERAL = 4, /* several segments, of which the kernel zeroes `zeroed` */
	HPZ_PLAN_WAIT = 5,    /* it would wait */
	HPZ_PLAN_REFUSE = 6   /* it would be refused with `error` */
};

struct hpz_plan_result {
	size_t struct_size;
	uint32_t kind;  /* enum hpz_plan_kind; there may be new ones */
	uint32_t error; /* REFUSE: enum hpz_error */
	/* bytes */
	uint64_t asked;
	uint64_t size;       /* what would be given; 0 when nothing */
	uint64_t ready;      /* of it, clean now */
	uint64_t zeroed;     /* of it, zeroed by the kernel before the answer: */
	uint64_t from_free;  /* on pages it has free, */
	uint64_t from_dirty; /* on pages of segments that wait to be cleared, and are unlinked for it, */
	uint64_t from_clean; /* on pages of clean segments of the wrong size, unlinked, too */
	uint64_t page_size;
	uint32_t segment_count;
	int32_t node;     /* HPZ_NODE_ANY: several */
	uint32_t waiting; /* requests that wait for memory of this pool, or the most in one of several */
	char pool[72];    /* the pool it would be taken from; "" several */
	char text[520];   /* the same for people */
};

/*
 * What hpz_lease() with this request would be answered now, without doing it: nothing is taken, and a moment
 * later it may be otherwise. Needs the right to read status or to lease. Errors: NO_POOL, TOO_LARGE, DENIED,
 * UNSUPPORTED (an older hpzd), INVALID, LOST ...
 */
HPZ_PUBLIC int hpz_plan(
	struct hpz *hpz, const struct hpz_lease_request *request, struct hpz_plan_result *result);

/* Flags of hpz_release(). */
#define HPZ_RELEASE_WAIT 1u /* wait until every segment is clean again or given back to the kernel */
/*
 * Do not wait for whoever still holds the memory: it is never reused, its names are removed, and its pages
 * are orphans until the kernel has them back. The holder is not disturbed. Also for a lease that is returning
 * already.
 */
#define HPZ_RELEASE_FORCE 2u

/*
 * Ends a lease. Success says that it is closed, not that its memory is proven free: for that HPZ_RELEASE_WAIT
 * and a time limit. An id that has already ended is success. Errors: UNKNOWN_LEASE, DENIED, TIMEOUT (ended,
 * but still held), LOST ...
 */
HPZ_PUBLIC int hpz_release(struct hpz *hpz, uint64_t id, unsigned flags, int64_t timeout_ms);

struct hpz_adopt_request {
	size_t struct_size;
	uint32_t flags;    /* HPZ_LEASE_UNBOUND or 0: bound to this connection */
	int32_t owner_pid; /* the new owner process; 0: ours */
};
#define HPZ_ADOPT_REQUEST_INIT                                                                               \
	{                                                                                                    \
		sizeof(struct hpz_adopt_request), 0u, 0                                                      \
	}

/*
 * Rebinds a lease to this connection or to another owner process, and returns it with fresh descriptors (fd)
 * or its paths. For its owner and root. Errors: UNKNOWN_LEASE, ENDED, DENIED, BUSY (somebody's file lease is
 * in the way) ...
 */
HPZ_PUBLIC int hpz_adopt(
	struct hpz *hpz, uint64_t id, const struct hpz_adopt_request *request, struct hpz_lease **ret_lease);

/* ---- change ---- */

struct hpz_change_request {
	size_t struct_size;
	uint64_t size;      /* of all of it afterwards, bytes, rounded up to whole pages; 0 is an error */
	int64_t timeout_ms; /* how long to wait for clean memory: 0 not at all, HPZ_FOREVER */
	uint32_t known;     /* segments that we have: those behind them are in *ret_added */
	int32_t priority;   /* as in struct hpz_lease_request */
};
#define HPZ_CHANGE_REQUEST_INIT                                                                              \
	{                                                                                                    \
		sizeof(struct hpz_change_request), 0, 0, 0, 0                                                \
	}

struct hpz_change_result {
	size_t struct_size;
	uint64_t size;          /* bytes, of all of it now */
	uint64_t ready, zeroed; /* of what it grew by */
	uint64_t returning;     /* id of the lease that has what was given back; 0: none */
	uint32_t segment_count; /* of all of it now */
};

/*
 * Gives a lease of ours, or root any, another size.
 * It grows by one segment behind those it has, which may be had as any lease; *ret_added is a handle of its
 * own with the segments from `known` on, to be mapped and freed like any other (NULL: there are none), whose
 * id is the lease's. Who lost an answer asks again for the same. It shrinks by whole segments at its end, and
 * by the end of the last one that stays: unmap and close them first. What was given back is a lease of its
 * own that is returning until nobody can reach it; the end of a segment goes to the kernel at once, and
 * whoever still touches it takes new pages or dies of SIGBUS. Growing again is BUSY until it is back. Errors:
 * as hpz_lease(), and ENDED, UNKNOWN_LEASE. Since 0.1.
 */
HPZ_PUBLIC int hpz_change(struct hpz *hpz, uint64_t id, const struct hpz_change_request *request,
	struct hpz_change_result *result, struct hpz_lease **ret_added);

/* ---- list ---- */

enum hpz_lease_state {
	HPZ_STATE_OFFERED = 1, /* sent, receipt not confirmed, not yet opened */
	HPZ_STATE_LEASED = 2,
	HPZ_STATE_RETURNING = 3, /* ended, but its memory is not proven free */
	HPZ_STATE_ENDED = 4,
	/* Its lease has ended and its file is gone, but somebody holds its pages. */
	HPZ_STATE_ORPHANED = 5,
	HPZ_STATE_RESERVED = 6 /* no lease, but memory kept for leases to come: hpz_reserve() */
};

struct hpz_lease_info {
	size_t struct_size;
	uint64_t id;
	uint64_t size;    /* bytes given */
	uint64_t asked;   /* bytes asked for */
	uint64_t age_ms;  /* since it was granted */
	uint64_t holes;   /* pages its holder punched out and may touch again */
	uint64_t grown;   /* pages its holder took beyond what was given */
	uint32_t state;   /* enum hpz_lease_state */
	uint32_t deliver; /* enum hpz_deliver */
	uint32_t flags;   /* HPZ_LEASE_* */
	uint32_t uid;     /* of the owner; UINT32_MAX when it is not known any more */
	int32_t pid;      /* owner process; 0: none */
	uint32_t segment_count;
	uint32_t holder_count; /* at most 16 are listed */
	const char *label;     /* "" none, "?" lost; borrowed from the list */
	const char *comm;      /* owner's command name when it was granted; borrowed */
	const char *reason;    /* returning, orphaned: what holds the memory, as "a pinned page"; "" when that
				  is not known; borrowed */
	uint64_t ttl_ms;       /* reserved: how long it still stands */
	const char *key;       /* of the request; "" none, a lease that is not ours to end, an older hpzd;
				  borrowed */
};

struct hpz_holder {
	size_t struct_size;
	int32_t pid;
	int32_t fd;       /* descriptor number; -1: a mapping */
	const char *comm; /* command name; borrowed */
};

/*
 * Every lease that has not ended, behind them the orphans, of which several may have the same id, and the
 * reservations, whose `size` is what is left. The caller owns *ret_list: hpz_list_free().
 */
HPZ_PUBLIC int hpz_list(struct hpz *hpz, struct hpz_lease_list **ret_list);
HPZ_PUBLIC void hpz_list_free(struct hpz_lease_list *list);
HPZ_PUBLIC size_t hpz_list_get_count(const struct hpz_lease_list *list);
/* Each fills a struct whose struct_size is set; strings are borrowed from the list. Errors: INVALID (no such
 * index). */
HPZ_PUBLIC int hpz_list_get_lease(
	const struct hpz_lease_list *list, size_t index, struct hpz_lease_info *info);
HPZ_PUBLIC int hpz_list_get_segment(
	const struct hpz_lease_list *list, size_t index, size_t segment_index, struct hpz_segment *segment);
HPZ_PUBLIC int hpz_list_get_holder(
	const struct hpz_lease_list *list, size_t index, size_t holder_index, struct hpz_holder *holder);

/* ---- status ---- */

struct hpz_daemon_status {
	size_t struct_size;
	const char *version; /* borrowed, like all strings here */
	const char *proof;   /* what proves that returned memory is free: "bpf", "f_setlease", "none" */
	const char *method;  /* how memory is cleared, as "avx512nt"; "" before calibration */
	const char *message; /* what the operator should know; "" if nothing */
	uint64_t uptime_ms;
	uint32_t pool_count;
	uint32_t lease_count;  /* leases not ended */
	uint32_t worker_count; /* processes that touch memory */
	uint32_t connection_count;
	uint64_t leases_granted; /* since start */
	uint64_t bytes_cleared;  /* since start, by workers */
	uint64_t bytes_filled;   /* since start, zeroed by the kernel */
	uint64_t worker_deaths;  /* since start, unexpected */
	uint64_t book_alarms;    /* since start: differences in hpzd's books; see hpz_check() */
};

struct hpz_pool_status {
	size_t struct_size;
	const char *name;
	const char *message; /* what is missing and how to get it; "" if nothing */
	const char *mount;
	uint64_t page_size; /* bytes */
	int32_t node;
	uint32_t waiting; /* requests waiting for memory of this pool */
	/* pages */
	uint64_t target; /* what is wanted */
	uint64_t total;  /* what hpz holds: clean + leased + dirty + filling, holes not counted */
	uint64_t clean;
	uint64_t leased;    /* offered, leased and returning */
	uint64_t returning; /* of these, ended but not proven free */
	uint64_t dirty;
	uint64_t filling;
	uint64_t holes;  /* owed to holders who punched */
	uint64_t raised; /* what hpzd raised nr_hugepages by */
	uint64_t kernel_nr, kernel_free, kernel_resv;
	uint64_t largest_clean; /* bytes of the largest clean segment */
	uint32_t clean_segments;
	uint32_t idle;         /* 1: stock full, nothing returning, nobody waiting */
	uint64_t orphan_pages; /* of files that are gone, held by somebody; beside `total` */
	/* since start */
	uint64_t retired_pages;  /* of segments given up for faulty memory or a byte that was not zero */
	uint64_t verified_pages; /* read to see that they are zero */
	uint32_t orphans;        /* files of orphan_pages */
	uint32_t verify_hits;    /* clean segments with a byte that was not zero */
	uint32_t sigbus;         /* faults in memory that workers met */
	uint64_t reserved_pages; /* promised by reservations, most of them among `clean` */
	/* pages; 0 from an older hpzd */
	uint64_t configured; /* `pages` of the configuration; `target` is otherwise after hpz_resize() */
	uint64_t give_back;  /* of `raised`, what nr_hugepages is lowered by as pages come free */
};

/* What hpzd has and does. The caller owns *ret_status: hpz_status_free(). */
HPZ_PUBLIC int hpz_get_status(struct hpz *hpz, struct hpz_status **ret_status);
HPZ_PUBLIC void hpz_status_free(struct hpz_status *status);
/* Each fills a struct whose struct_size is set; strings are borrowed. Errors: INVALID (no such index). */
HPZ_PUBLIC int hpz_status_get_daemon(const struct hpz_status *status, struct hpz_daemon_status *daemon);
HPZ_PUBLIC int hpz_status_get_pool(
	const struct hpz_status *status, size_t index, struct hpz_pool_status *pool);

/* ---- operator ---- */

struct hpz_wait_request {
	size_t struct_size;
	const char *pool;   /* name; NULL: all pools */
	uint64_t clean;     /* bytes that must be clean; 0: until idle (full stock, nothing returning, nobody
			       waiting) */
	int64_t timeout_ms; /* 0: only look; HPZ_FOREVER */
};
#define HPZ_WAIT_REQUEST_INIT                                                                                \
	{                                                                                                    \
		sizeof(struct hpz_wait_request), NULL, 0, HPZ_FOREVER                                        \
	}

/* Waits until so much is clean. Errors: TIMEOUT, NO_POOL, TOO_LARGE, LOST ... */
HPZ_PUBLIC int hpz_wait(struct hpz *hpz, const struct hpz_wait_request *request);

#define HPZ_DRAIN_GIVE_BACK 1u /* also lower nr_hugepages by what hpzd raised it by */

/*
 * Empties every pool: clean and dirty memory goes back to the kernel now, leased memory when it comes back;
 * new leases are refused until hpzd reloads or restarts. Waits until the work is done or timeout_ms is over.
 * *ret_leases (may be NULL, also written when it fails with IN_USE) is the number of leases still out.
 * Errors: IN_USE (leases are out), TIMEOUT, DENIED, LOST ...
 */
HPZ_PUBLIC int hpz_drain(struct hpz *hpz, unsigned flags, int64_t timeout_ms, uint32_t *ret_leases);

enum hpz_resize_kind {
	HPZ_RESIZE_TO = 1,   /* so much; 0 is allowed */
	HPZ_RESIZE_GROW = 2, /* so much more than now */
	HPZ_RESIZE_SHRINK = 3,
	/*
	 * So many of its pages become smaller ones (1 GiB: 2 MiB), in the pool of these on the same node:
	 * free and clean ones only. It is as much smaller afterwards, and the other one larger, up to its
	 * max_pages. Returns when that is done; `demoted` may be less than was asked for.
	 */
	HPZ_RESIZE_DEMOTE = 4
};

#define HPZ_RESIZE_WAIT 1u /* wait until nothing is left to be done */

struct hpz_resize_request {
	size_t struct_size;
	const char *pool; /* name */
	uint32_t kind;    /* enum hpz_resize_kind */
	uint32_t flags;   /* HPZ_RESIZE_* */
	uint64_t pages;   /* either so many pages, */
	uint64_t size;    /* or so many bytes, which are whole pages */
	int64_t timeout_ms;
};
#define HPZ_RESIZE_REQUEST_INIT                                                                              \
	{                                                                                                    \
		sizeof(struct hpz_resize_request), NULL, HPZ_RESIZE_TO, 0u, 0, 0, HPZ_FOREVER                \
	}

struct hpz_resize_result {
	size_t struct_size;
	uint64_t page_size; /* bytes */
	/* pages */
	uint64_t before;     /* the target before the call */
	uint64_t target;     /* since */
	uint64_t configured; /* what the configuration wants */
	uint64_t total;      /* what hpz holds now */
	uint64_t grow;       /* left to be done: missing, or not clean yet; */
	uint64_t shrink;     /* held beyond the target, mostly by leases, until they end; */
	uint64_t give_back;  /* nr_hugepages not lowered yet, of what hpzd raised it by */
	uint64_t demoted;    /* HPZ_RESIZE_DEMOTE: so many were split */
	uint32_t done;       /* 1: nothing is left */
	uint32_t reserved;
};

/*
 * Changes how large a pool is to be, up to its max_pages, also below what is leased: then the rest goes as
 * leases end. It holds at once and outlives a restart of hpzd, until the configuration says another number of
 * pages. *result (may be NULL) is what is done and what is left, a moment after, or with HPZ_RESIZE_WAIT at
 * the end. Errors: TIMEOUT (it goes on), TOO_LARGE (more than max_pages), NO_MEMORY (DEMOTE: no page was
 * free), BUSY (DEMOTE: others are being split), NO_POOL, INVALID, DENIED, DRAINED, UNSUPPORTED (an older
 * hpzd; DEMOTE: this kernel cannot, or there is no pool for them), LOST ... Since 0.1.
 */
HPZ_PUBLIC int hpz_resize(
	struct hpz *hpz, const struct hpz_resize_request *request, struct hpz_resize_result *result);

struct hpz_verify_result {
	size_t struct_size;
	uint64_t segments;    /* read to their end, or to what was not zero */
	uint64_t pages;       /* read */
	uint64_t bytes;       /* read */
	uint64_t hits;        /* segments that were not zero: retired, they are handed out to nobody */
	uint64_t left;        /* segments that were handed out, or gone, before they were read */
	uint64_t hit_segment; /* of the first hit: its segment, its offset in bytes, its pool */
	uint64_t hit_offset;
	char hit_pool[72]; /* "" none */
};

/*
 * Has hpzd's workers read all clean memory of a pool (NULL: of all) and waits for that, up to timeout_ms. A
 * lease that needs the memory meanwhile gets it. A hit is no error of the call. Errors: NO_POOL, TIMEOUT,
 * DENIED, LOST ...
 */
HPZ_PUBLIC int hpz_verify(
	struct hpz *hpz, const char *pool, int64_t timeout_ms, struct hpz_verify_result *result);

/* ---- how memory is cleared ---- */

/*
 * Changes one rule of clearing, a key of [clear] in hpzd.conf(5), as `rate` to "2G". It holds for everything
 * that is under way, until hpzd reloads or restarts. Errors: INVALID (no such key, or not a value for it: see
 * hpz_get_error_text()), DENIED, LOST ... Since 0.1.
 */
HPZ_PUBLIC int hpz_set(struct hpz *hpz, const char *key, const char *value);

/*
 * Has the methods of clearing measured anew, on pages of a pool (NULL: of each): a clean segment of 64 MiB or
 * more is dirty for it and cleared afterwards, unless one is dirty anyway. Waits for that, up to timeout_ms.
 * *ret_pools (may be NULL) is how many pools had memory to measure on; 0 is no error. hpz_get_clearing() has
 * the result. Errors: NO_POOL, TIMEOUT, DENIED, LOST ... Since 0.1.
 */
HPZ_PUBLIC int hpz_calibrate(struct hpz *hpz, const char *pool, int64_t timeout_ms, uint32_t *ret_pools);

struct hpz_clearing; /* a copy of the rules in force and of what workers do */

struct hpz_clearing_info {
	size_t struct_size;
	uint32_t rule_count, node_count, method_count;
	/* Tenths of a percent of the time that others wait for it; -1: no rule asks for that. */
	int32_t psi_cpu, psi_memory;
};

struct hpz_clearing_rule {
	size_t struct_size;
	const char *key;   /* of [clear]; borrowed, like all strings here */
	const char *value; /* in force, as one would write it */
};

/* Why a node's workers stand still. Urgent work goes on but for OFF. */
#define HPZ_HOLD_OFF        1u /* `enabled = no` */
#define HPZ_HOLD_PSI_CPU    2u /* others wait for a CPU */
#define HPZ_HOLD_PSI_MEMORY 4u /* others wait for memory */

struct hpz_clearing_node {
	size_t struct_size;
	int32_t node;
	uint32_t holds;        /* HPZ_HOLD_* */
	uint32_t worker_count; /* processes that fill and clear */
	uint32_t queued;       /* jobs that none of them has yet */
	/* Workers with a job, by how much it matters. */
	uint32_t idle, refill, urgent;
	uint32_t backoff;          /* the scavenger rule: it sleeps so many times as long as it works */
	uint64_t rate_bytes_per_s; /* about now */
	uint64_t bytes, batches;   /* touched since hpzd's start */
	uint64_t batch_ns;         /* what a batch took at the scavenger rule's last look; 0: none */
	uint64_t base_ns;          /* what that takes undisturbed; 0: not known */
};

#define HPZ_METHOD_USABLE 1u /* this machine has it, and it passed its test */
#define HPZ_METHOD_CHOSEN 2u

struct hpz_clearing_method {
	size_t struct_size;
	int32_t node;
	uint32_t flags;     /* HPZ_METHOD_* */
	uint64_t page_size; /* bytes; 0: measured on memory without huge pages */
	uint64_t batch_ns;  /* CPU time of 2 MiB */
	uint64_t bytes_per_s;
	const char *name;
};

/* The caller owns *ret_clearing: hpz_clearing_free(). Since 0.1. */
HPZ_PUBLIC int hpz_get_clearing(struct hpz *hpz, struct hpz_clearing **ret_clearing);
HPZ_PUBLIC void hpz_clearing_free(struct hpz_clearing *clearing);
/* Each fills a struct whose struct_size is set; strings are borrowed. Errors: INVALID (no such index). */
HPZ_PUBLIC int hpz_clearing_get_info(const struct hpz_clearing *clearing, struct hpz_clearing_info *info);
HPZ_PUBLIC int hpz_clearing_get_rule(
	const struct hpz_clearing *clearing, size_t index, struct hpz_clearing_rule *rule);
HPZ_PUBLIC int hpz_clearing_get_node(
	const struct hpz_clearing *clearing, size_t index, struct hpz_clearing_node *node);
HPZ_PUBLIC int hpz_clearing_get_method(
	const struct hpz_clearing *clearing, size_t index, struct hpz_clearing_method *method);

/* ---- demand: which sizes are asked for, and the stock that would serve them ---- */

/* Why no more segments of a size are proposed. A newer hpzd may have more. */
enum hpz_demand_reason {
	HPZ_DEMAND_ENOUGH = 1,   /* as many as were out at once lately, and some to spare */
	HPZ_DEMAND_RARE = 2,     /* it is asked for too seldom */
	HPZ_DEMAND_CROWDED = 3,  /* others that are asked for more often need the pages */
	HPZ_DEMAND_TOO_LARGE = 4 /* a single one is more than may follow what was learned */
};

struct hpz_demand_pool {
	size_t struct_size;
	const char *pool; /* borrowed */
	int32_t node;
	uint32_t learns;    /* 1: the stock follows demand; 0: it is fixed, and this is what it would be */
	uint64_t page_size; /* this and the following: bytes */
	uint64_t target;
	uint64_t fixed;   /* of entries that are not learned */
	uint64_t learned; /* proposed by what was learned */
	uint64_t most;    /* that may be */
	uint64_t large;   /* the large segment of what is left; 0: none */
	uint64_t half_life_ms;
	size_t size_count;
};

/* What fades is in thousandths: 2500 is two and a half requests. */
struct hpz_demand_size {
	size_t struct_size;
	uint64_t bytes;
	uint64_t out;        /* leases now */
	uint64_t peak_milli; /* most that were wanted at once lately */
	/* Requests lately: served at once by a segment of that length, by a larger one, zeroed first, after
	 * waiting, not at all. */
	uint64_t exact_milli, larger_milli, zeroed_milli, waited_milli, refused_milli;
	uint64_t wanted;   /* segments, those that are lent included, were there pages enough */
	uint64_t fixed;    /* of these, kept anyhow */
	uint64_t proposed; /* beyond these, there is a place for */
	uint64_t there;    /* segments of that length now, in whatever state */
	uint64_t clean;
	uint32_t reason; /* enum hpz_demand_reason */
};

struct hpz_demand; /* a copy of what hpzd has learned */

/* The caller owns *ret_demand: hpz_demand_free(). Errors: DENIED, UNSUPPORTED (an older hpzd), LOST. Since
 * 0.1. */
HPZ_PUBLIC int hpz_get_demand(struct hpz *hpz, struct hpz_demand **ret_demand);
HPZ_PUBLIC void hpz_demand_free(struct hpz_demand *demand);
HPZ_PUBLIC size_t hpz_demand_get_pool_count(const struct hpz_demand *demand);
/* Each fills a struct whose struct_size is set; strings are borrowed. Errors: INVALID (no such index). */
HPZ_PUBLIC int hpz_demand_get_pool(
	const struct hpz_demand *demand, size_t index, struct hpz_demand_pool *pool);
HPZ_PUBLIC int hpz_demand_get_size(
	const struct hpz_demand *demand, size_t pool, size_t index, struct hpz_demand_size *size);

/* ---- teardown: what the ends of leases cost ---- */

#define HPZ_TEARDOWN_NONE    UINT64_MAX /* a figure that was not seen, or has not come about */
#define HPZ_TEARDOWN_BUCKETS 32
#define HPZ_TEARDOWN_FLUSHES 8
#define HPZ_TEARDOWN_STAGES  4

/* How a holder let go. */
enum hpz_teardown_how {
	HPZ_TEARDOWN_UNKNOWN = 0,
	HPZ_TEARDOWN_EXIT = 1, /* it ended by itself; code: exit status */
	HPZ_TEARDOWN_KILL = 2, /* by a signal; code: which */
	HPZ_TEARDOWN_UNMAP = 3 /* it gave its memory back, and lives on */
};

/* What sees the end of an address space. A newer hpzd may have more. */
enum hpz_teardown_source {
	HPZ_TEARDOWN_NOTHING = 0,
	HPZ_TEARDOWN_BPF = 1,
	HPZ_TEARDOWN_PERF = 2,
	HPZ_TEARDOWN_PIDFD = 3
};

/* What is timed, and counted in histograms. */
enum hpz_teardown_stage {
	HPZ_TEARDOWN_STAGE_EXIT = 1,  /* from the beginning of the exit until the address space is gone */
	HPZ_TEARDOWN_STAGE_PROOF = 2, /* from then, or from the end of the lease where no exit was seen, until
					 the memory is proven free */
	HPZ_TEARDOWN_STAGE_CLEAR = 3, /* from then until it is clean */
	HPZ_TEARDOWN_STAGE_TOTAL = 4  /* from the beginning of the first stage seen until it is clean */
};

#define HPZ_TEARDOWN_FORCED  1u /* ended by force: nobody was waited for */
#define HPZ_TEARDOWN_RESTART 2u /* hpzd was restarted meanwhile: it did not see all of it */

#define HPZ_TEARDOWN_RECORDS    1u
#define HPZ_TEARDOWN_HISTOGRAMS 2u
#define HPZ_TEARDOWN_FACTS      4u

struct hpz_teardown_request {
	size_t struct_size;
	uint32_t flags; /* what is asked for: HPZ_TEARDOWN_RECORDS ... */
	uint32_t reserved;
	uint64_t since;     /* only records that have changed after that revision; 0: all that are kept */
	int64_t timeout_ms; /* wait so long for the first of them; 0: do not, HPZ_FOREVER */
};
#define HPZ_TEARDOWN_REQUEST_INIT                                                                            \
	{                                                                                                    \
		sizeof(struct hpz_teardown_request),                                                         \
			HPZ_TEARDOWN_RECORDS | HPZ_TEARDOWN_HISTOGRAMS | HPZ_TEARDOWN_FACTS, 0, 0, 0         \
	}

struct hpz_teardown_info {
	size_t struct_size;
	uint64_t revision;  /* changes of records so far, this boot: what to ask `since` next */
	uint64_t sequence;  /* leases that are over so far, this boot */
	uint64_t now_ns;    /* CLOCK_MONOTONIC */
	uint32_t source;    /* enum hpz_teardown_source: what is in force now */
	uint32_t is_own;    /* 1: who asks may read no more than records of its own leases */
	const char *gap;    /* what it cannot see, for people; "" nothing; borrowed */
	const char *regime; /* of this host, in short; "" not known yet; borrowed */
	size_t record_count, histogram_count, fact_count;
};

/*
 * The end of one lease, or of a part it gave back. Times are nanoseconds of CLOCK_MONOTONIC, and any of them
 * may be HPZ_TEARDOWN_NONE.
 */
struct hpz_teardown_record {
	size_t struct_size;
	uint64_t revision; /* of its last change */
	uint64_t sequence; /* of those that are over, from 1 on without a gap; 0: it is not */
	uint64_t lease;
	uint64_t part_of; /* the lease that gave it back; 0: it is a lease's end */
	uint64_t bytes;
	uint64_t page_size;
	uint64_t kernel_bytes; /* of it, given to the kernel instead of kept */
	uint64_t orphan_bytes; /* of these, while somebody had them, or may have */
	uint64_t begun_ns;     /* the holder's exit began, */
	uint64_t gone_ns;      /* its address space was gone */
	uint64_t ended_ns;     /* the lease ended */
	uint64_t proven_ns;    /* all memory was proven free, */
	uint64_t clean_ns;     /* and clean */
	uint64_t table_bytes;  /* of page tables when the exit began, */
	uint64_t table_age_ns; /* or so long before */
	uint64_t steal_ns;     /* of all CPUs, while the address space ended */
	/* TLB flushes meanwhile, by kind, as the kernel's enum tlb_flush_reason counts them; each may be
	 * HPZ_TEARDOWN_NONE. */
	uint64_t flushes[HPZ_TEARDOWN_FLUSHES];
	uint64_t stages[HPZ_TEARDOWN_STAGES]; /* how long each took; by enum hpz_teardown_stage - 1 */
	uint32_t source;                      /* enum hpz_teardown_source */
	uint32_t how;                         /* enum hpz_teardown_how */
	int32_t code;                         /* exit status or signal; -1: not seen */
	int32_t pid;                          /* of the holder that ended last; 0: none was seen */
	uint32_t holders;                     /* whose end was seen */
	uint32_t uid;                         /* the lease's */
	uint32_t flags;                       /* HPZ_TEARDOWN_FORCED ... */
	const char *label;                    /* this and the following: borrowed */
	const char *comm;                     /* of the lease's owner, or of who asked for it */
	const char *regime;                   /* "" not known */
};

/* Bucket 0 counts what took less than 2^10 ns, bucket i what took 2^(9+i) ns and less than twice that; the
 * last one all that took longer. */
struct hpz_teardown_histogram {
	size_t struct_size;
	uint64_t page_size;
	uint32_t stage;     /* enum hpz_teardown_stage */
	uint32_t is_rest;   /* 1: of labels that are not kept one by one any more; `label` is "" */
	const char *label;  /* this and the following: borrowed */
	const char *regime; /* "" not known */
	uint64_t count, sum_ns, max_ns;
	uint32_t buckets[HPZ_TEARDOWN_BUCKETS];
};

/* Something that decides what the end of an address space costs here. */
struct hpz_teardown_fact {
	size_t struct_size;
	const char *name;  /* this and the following: borrowed */
	const char *value; /* "" not known */
	const char *where; /* it was read, or why it was not */
};

struct hpz_teardown; /* a copy of what hpzd has */

/*
 * What the ends of leases cost, oldest change first. Who may not read status gets the records of its own
 * leases and no histograms. The caller owns *ret_teardown: hpz_teardown_free(). Errors: INVALID, TIMEOUT
 * (nothing new within the time), DENIED, UNSUPPORTED (an older hpzd), LOST. Since 0.1.
 */
HPZ_PUBLIC int hpz_get_teardown(
	struct hpz *hpz, const struct hpz_teardown_request *request, struct hpz_teardown **ret_teardown);
HPZ_PUBLIC void hpz_teardown_free(struct hpz_teardown *teardown);
/* Each fills a struct whose struct_size is set. Errors: INVALID (no such index). */
HPZ_PUBLIC int hpz_teardown_get_info(const struct hpz_teardown *teardown, struct hpz_teardown_info *info);
HPZ_PUBLIC int hpz_teardown_get_record(
	const struct hpz_teardown *teardown, size_t index, struct hpz_teardown_record *record);
HPZ_PUBLIC int hpz_teardown_get_histogram(
	const struct hpz_teardown *teardown, size_t index, struct hpz_teardown_histogram *histogram);
HPZ_PUBLIC int hpz_teardown_get_fact(
	const struct hpz_teardown *teardown, size_t index, struct hpz_teardown_fact *fact);

/* ---- metrics: what hpzd has counted since it began ---- */

#define HPZ_METRIC_BUCKETS 32

enum hpz_metric_kind {
	HPZ_METRIC_COUNTER = 1, /* only grows, from 0 at hpzd's start */
	HPZ_METRIC_HISTOGRAM = 2
};

/* Of `value`, or of what a histogram is of. A newer hpzd may have more. */
enum hpz_metric_unit {
	HPZ_METRIC_NONE = 0,
	HPZ_METRIC_BYTES = 1,
	HPZ_METRIC_NS = 2, /* its name says seconds */
	HPZ_METRIC_BYTES_PER_S = 3
};

/* One series. Those of one name follow each other, with one value of the label each. */
struct hpz_metric {
	size_t struct_size;
	uint32_t kind;     /* enum hpz_metric_kind */
	uint32_t unit;     /* enum hpz_metric_unit */
	const char *name;  /* of letters, digits and _, without _total; this and the following: borrowed */
	const char *help;  /* for people */
	const char *label; /* its name; "" none */
	const char *label_value;
	uint64_t value; /* of a histogram: how many there were */
	uint64_t sum;   /* this and the following: of a histogram */
	uint32_t shift;
	uint32_t bucket_count; /* at most HPZ_METRIC_BUCKETS */
	/* Bucket 0 counts what was less than 2^shift, bucket i what was less than 2^(shift + i) and not in
	 * one before it; the last one all that was more. */
	uint64_t buckets[HPZ_METRIC_BUCKETS];
};

struct hpz_metrics; /* a copy of what hpzd has counted */

/* The caller owns *ret_metrics: hpz_metrics_free(). Errors: DENIED, UNSUPPORTED (an older hpzd), LOST. Since
 * 0.1. */
HPZ_PUBLIC int hpz_get_metrics(struct hpz *hpz, struct hpz_metrics **ret_metrics);
HPZ_PUBLIC void hpz_metrics_free(struct hpz_metrics *metrics);
HPZ_PUBLIC size_t hpz_metrics_get_count(const struct hpz_metrics *metrics);
/* Fills a struct whose struct_size is set; strings are borrowed. Errors: INVALID (no such index). */
HPZ_PUBLIC int hpz_metrics_get_metric(
	const struct hpz_metrics *metrics, size_t index, struct hpz_metric *metric);

/* ---- events: what happens ---- */

enum hpz_event_kind {
	HPZ_EVENT_LOG = 1,     /* a line of hpzd's log: `text`, `level` */
	HPZ_EVENT_GRANTED = 2, /* a lease was given; this and the following: `lease`, `label`, `bytes` */
	HPZ_EVENT_WAITING = 3, /* somebody waits for memory; no `lease` */
	HPZ_EVENT_REFUSED = 4, /* somebody got none: `text`; no `lease` */
	HPZ_EVENT_ENDED = 5,   /* a lease has ended: `text` why; its memory is on its way back */
	HPZ_EVENT_HELD = 6,    /* somebody still holds its memory: `text` how */
	HPZ_EVENT_RETURNED = 7 /* all of its memory is back, or with `text` not all */
};

/* A newer hpzd may have more kinds. */
struct hpz_event {
	size_t struct_size;
	uint64_t sequence; /* they are numbered without a gap; begins anew with hpzd */
	uint64_t time_ns;  /* CLOCK_REALTIME */
	uint64_t lease;    /* 0: none */
	uint64_t bytes;
	uint32_t kind;     /* enum hpz_event_kind */
	uint32_t level;    /* LOG: as syslog(3) has it, 3 error, 4 warning, 6 information */
	uint32_t uid;      /* UINT32_MAX: of nobody in particular */
	int32_t pid;       /* 0: none */
	const char *label; /* this and the following: borrowed */
	const char *text;
};

struct hpz_events_info {
	size_t struct_size;
	uint64_t cursor; /* to go on from */
	uint64_t last;   /* number of the last event that there is */
	uint64_t missed; /* that were forgotten before they could be read */
	size_t count;
};

struct hpz_events; /* a copy of some */

/*
 * What happened behind event number `since` (0: from the first that is kept, of which there are 1024; one of
 * an earlier hpzd: the same), waiting up to timeout_ms for the first; not all of it at once. Who may not read
 * status gets what is of its own uid, without the log. The caller owns *ret_events: hpz_events_free().
 * Errors: TIMEOUT (nothing happened), DENIED, BUSY, UNSUPPORTED (an older hpzd), LOST ... Since 0.1.
 */
HPZ_PUBLIC int hpz_get_events(
	struct hpz *hpz, uint64_t since, int64_t timeout_ms, struct hpz_events **ret_events);
HPZ_PUBLIC void hpz_events_free(struct hpz_events *events);
/* Each fills a struct whose struct_size is set; strings are borrowed. Errors: INVALID (no such index). */
HPZ_PUBLIC int hpz_events_get_info(const struct hpz_events *events, struct hpz_events_info *info);
HPZ_PUBLIC int hpz_events_get_event(const struct hpz_events *events, size_t index, struct hpz_event *event);

/* ---- check ---- */

#define HPZ_CHECK_REPAIR 1u /* also put right what can be, without touching memory that somebody has */

enum hpz_finding_kind {
	HPZ_FINDING_FOREIGN = 1, /* a file in hpzd's directories that it does not know */
	HPZ_FINDING_MISSING = 2, /* a file it counts is gone */
	HPZ_FINDING_WRONG = 3,   /* owner, mode, links or length of a file are not what they must be */
	HPZ_FINDING_BLOCKS = 4,  /* a file has more or fewer pages than hpzd counts */
	HPZ_FINDING_COUNTS = 5,  /* hpzd's counts contradict each other */
	HPZ_FINDING_JOURNAL = 6, /* the journal says something else of a lease */
	HPZ_FINDING_OUT = 7,     /* a hand-over directory or link without its lease, or the other way round */
	HPZ_FINDING_KERNEL = 8   /* the kernel's counters contradict hpzd's */
};

enum hpz_severity {
	HPZ_SEVERITY_NOTICE = 1,    /* what a holder may do, or what is known and goes away by itself */
	HPZ_SEVERITY_DIFFERENCE = 2 /* the books do not balance */
};

struct hpz_finding {
	size_t struct_size;
	uint32_t kind;     /* enum hpz_finding_kind */
	uint32_t severity; /* enum hpz_severity */
	uint32_t repaired; /* 1: put right */
	const char *pool;  /* "" when it is no one pool's; borrowed */
	const char *text;  /* for people; borrowed */
};

struct hpz_check_result; /* a copy of what hpz_check() found */

/*
 * Compares hpzd's books with its journal, its directories and the kernel's counters; what was found is found
 * twice. Waits at most timeout_ms. The caller owns *ret_result: hpz_check_free(). Errors: BUSY (another check
 * is under way), TIMEOUT, DENIED, LOST ...
 */
HPZ_PUBLIC int hpz_check(
	struct hpz *hpz, unsigned flags, int64_t timeout_ms, struct hpz_check_result **ret_result);
HPZ_PUBLIC void hpz_check_free(struct hpz_check_result *result);
/* How many were found; at most 4096 are kept. */
HPZ_PUBLIC size_t hpz_check_get_count(const struct hpz_check_result *result);
/* Segments and leases that were looked at, and what was found beyond those kept; each may be NULL. */
HPZ_PUBLIC void hpz_check_get_totals(const struct hpz_check_result *result, uint64_t *ret_segments,
	uint64_t *ret_leases, uint64_t *ret_dropped);
/* Fills a struct whose struct_size is set; strings are borrowed from the result. Errors: INVALID (no such
 * index). */
HPZ_PUBLIC int hpz_check_get_finding(
	const struct hpz_check_result *result, size_t index, struct hpz_finding *finding);

#ifdef __cplusplus
}
#endif
#endif
