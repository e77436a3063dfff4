/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * proto.h - the bytes on the socket.
 *
 * Theory of operation
 *
 * One SOCK_SEQPACKET UNIX socket; one message is one packet. Everything is little-endian and fixed in layout.
 * A message is a struct hpz_wire_head, then one payload struct of the operation, then (only where the
 * operation says so) records. Every payload and record begins with its own size in bytes, as its sender knows
 * it. A receiver that knows less takes what it knows and demands that the rest is zero: an unknown field that
 * is used is an error, not something to overlook. A receiver that knows more reads the missing part as zero.
 * So a struct only ever grows at its end, and zero always means "as before". No request may be shorter than
 * it was in version 1: a part that was always there and is missing is not zero but malformed (no owner is not
 * root).
 *
 * The client speaks first: HELLO. The server answers with its own HELLO or with an error, and closes if the
 * magic is wrong or no common version exists (client.version < server.compat or the other way round). Then
 * each request gets exactly one reply with the same op, the request's id and HPZ_WIRE_REPLY set. A client may
 * send its next request before the reply; requests of one connection are carried out one after the other.
 * Request ids are the client's business but never 0: id 0 is for what the server says unasked. So far that is
 * one thing: a server that does not take a connection (a limit is reached) sends an error with op HELLO and
 * id 0, and closes without having read anything. A client whose hello could not be sent finds it there.
 *
 * A failed request is answered with head.error != 0 and a struct hpz_wire_error. Error numbers are enum
 * hpz_error.
 *
 * Descriptors go only from server to client, in one message with the reply to LEASE, ADOPT or CHANGE;
 * head.descriptors says how many, so that a receiver sees when the kernel withheld some. The client confirms
 * every LEASE or ADOPT with ACK, which has no reply; until then the lease is "offered" and ends with the
 * connection, so that a lost reply loses no memory. While descriptors are not confirmed, a further request
 * for descriptors on this connection is refused with BUSY: one unread descriptor message per connection is
 * the most there is. A client that sends descriptors is disconnected.
 *
 * A LEASE with a count asks for so many leases of the same kind, each of one segment: all of them or none.
 * The reply has one struct hpz_wire_leased for each, with its segment behind it; their ids follow one
 * another, and one ACK with the first id and the count confirms them all. From then on each is a lease like
 * any other.
 *
 * RESERVE, whose payload is a struct hpz_wire_lease, has clean memory kept for ttl_ms: it is found and waited
 * for as for a LEASE, but no descriptors come. LEASEs of the same user, or of an admin, that name the
 * reservation get their memory from it, until it is used up. It ends with the time, with UNRESERVE (whose
 * payload is a struct hpz_wire_release without flags; one that has ended is success), or when its pool is
 * drained; LEASEs that have their memory by then are leases like any others. Its id is of the leases' ids. It
 * counts as a lease of its size in its owner's quota. With HPZ_WIRE_LIST_RESERVED reservations come behind
 * all else in LIST: LEASE records of state RESERVED, without segments; `given` is what is left of `asked`.
 * With HPZ_WIRE_LIST_KEYS the records of leases that the client may end have their keys.
 *
 * CHECK with cursor 0 compares the books with the disk and the kernel and answers when that is done; its
 * findings come in pages as those of LIST do: a cursor asks for the next page of what that check found, and
 * is INVALID once a later check has begun.
 *
 * LIST comes in pages: the reply says the cursor to ask with for the next page, 0 at the end. A lease's
 * records (one LEASE, then its SEGMENTs and HOLDERs) are never split over two pages. With HPZ_WIRE_LIST_MORE
 * a LEASE record of one that is returning says why (`reason`), and after the leases come orphans: LEASE
 * records of state ORPHANED, without segments and holders; several may have the same id, that of the lease
 * they were part of, and `given` is what is still held.
 *
 * RELEASE with HPZ_RELEASE_FORCE does not wait for who still holds the memory: its names are removed, its
 * pages are orphans until the kernel has them back.
 *
 * A LEASE that asks for it (HPZ_LEASE_SEGMENTS) may be answered with several segments, in order, at most
 * HPZ_WIRE_MAX_FDS. `ready` and `zeroed` of the reply say what was clean already and what the kernel zeroed
 * for it; the rest had to be waited for. PLAN asks what a LEASE would get, and takes nothing.
 *
 * Of the LEASEs that wait for memory of a pool those of a higher priority are served first, those of one
 * priority in order of arrival; one that was passed by sixteen that came later is passed by nobody any more.
 * A priority above 0 is for root, admins, and whom the configuration allows it.
 *
 * A LEASE may ask for a set of cells, each of its own size and node: all of them or none. Their segments
 * follow each other in the order of the cells, and each record says which cell it is of. One that is
 * interleaved (`policy`, `node_mask`) has its segments in turn from the nodes of the mask.
 *
 * VERIFY reads all clean memory of a pool, or of all, and is answered when that is done: how much was read,
 * and what was not zero.
 *
 * SET changes one rule of clearing (a key of [clear]) until hpzd reloads or restarts; CLEARING says which are
 * in force, what each node's workers do, and how fast each method of clearing is.
 *
 * DEMAND says what each pool has learned of the sizes that are asked for, and the stock that would serve
 * them. It comes in pages as LIST does; a pool's records (one DEMAND_POOL, then its DEMAND_SIZEs) are never
 * split.
 *
 * TEARDOWN says what the ends of leases cost: the last ones (TEARDOWN records, those that changed least
 * recently first), how long all of them took (HISTOGRAMs), or under which regime that was (FACTs). It comes
 * in pages as LIST does; the cursor of records is a revision, which counts the changes of all of them: so it
 * is also how to ask for what is new, and with a time limit the answer waits for that. `sequence` numbers
 * those that are over without a gap: one that is missing was forgotten before it was asked for. Who may not
 * read status gets its own records and no histograms.
 *
 * EVENTS says what happened behind a number, or waits for the next: who reads too slowly is told how many it
 * has missed. Who may not read status gets what is of its own uid.
 *
 * METRICS says what hpzd has counted since it began, in pages as LIST does: each record is one counter or
 * histogram, with its name, unit and meaning, so that a client can show those of a newer server.
 *
 * CALIBRATE measures the methods of clearing anew, on pages of a pool or of each, and is answered when that
 * is done; CLEARING says what came of it.
 *
 * RESIZE changes how large a pool is to be, between nothing and its max_pages, until the configuration says
 * another number of pages; it is answered with what is left to be done, or, with HPZ_RESIZE_WAIT, when that
 * is nothing. How much it is about is said in pages or in bytes. Of the kind DEMOTE it has free pages split
 * into those of another pool, and is answered when that is done.
 *
 * CHANGE gives a confirmed lease another size, in whole pages. It grows by one segment behind those it has,
 * found and waited for as for a LEASE. It shrinks by whole segments at its end and by the end of the last one
 * that stays; its holder must have unmapped and closed them. They become a lease of their own, `returning`,
 * and come back as all memory does. `known` says how many segments the client has: those behind them come
 * with the reply, with their descriptors, so that a client that lost a reply asks again for the same.
 * Descriptors are confirmed with ACK, of the lease's id.
 *
 * Strings are UTF-8 in fixed arrays, padded with zero bytes; one that fills its array has no NUL.
 */
#ifndef HPZ_PROTO_H
#define HPZ_PROTO_H

#include <assert.h>
#include <endian.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the wire is little-endian and its structs are read in place: this host needs conversion first"
#endif

#define HPZ_WIRE_MAGIC       0x315a5048u /* "HPZ1" */
#define HPZ_WIRE_VERSION     1u
#define HPZ_WIRE_COMPAT      1u
#define HPZ_WIRE_MAX_MESSAGE 196608u /* below what a socket with default buffers takes (212,960) */
#define HPZ_WIRE_MAX_REQUEST 4096u   /* no request is longer */
#define HPZ_WIRE_MAX_FDS     253u    /* SCM_MAX_FD of Linux */
#define HPZ_WIRE_MAX_HOLDERS 16u
#define HPZ_WIRE_LABEL       128u
#define HPZ_WIRE_KEY         128u
#define HPZ_WIRE_PATH        256u
#define HPZ_WIRE_NAME        64u
#define HPZ_WIRE_TEXT        512u
#define HPZ_WIRE_VALUE       256u

enum hpz_wire_op {
	HPZ_OP_HELLO = 1,
	HPZ_OP_STATUS = 2,
	HPZ_OP_LEASE = 3,
	HPZ_OP_ACK = 4,
	HPZ_OP_RELEASE = 5,
	HPZ_OP_ADOPT = 6,
	HPZ_OP_LIST = 7,
	HPZ_OP_WAIT = 8,
	HPZ_OP_DRAIN = 9,
	HPZ_OP_CHECK = 10,
	HPZ_OP_VERIFY = 11,
	HPZ_OP_SET = 12,
	HPZ_OP_CALIBRATE = 13,
	HPZ_OP_CLEARING = 14,
	HPZ_OP_PLAN = 15,
	HPZ_OP_RESIZE = 16,
	HPZ_OP_RESERVE = 17,
	HPZ_OP_UNRESERVE = 18,
	HPZ_OP_CHANGE = 19,
	HPZ_OP_DEMAND = 20,
	HPZ_OP_TEARDOWN = 21,
	HPZ_OP_EVENTS = 22,
	HPZ_OP_METRICS = 23,
};
#define HPZ_OP_LAST HPZ_OP_METRICS

#define HPZ_WIRE_REPLY 1u /* head.flags */

struct hpz_wire_head {
	uint32_t size; /* of the whole message */
	uint16_t op;
	uint16_t flags;
	uint64_t id;
	uint32_t error;       /* replies: enum hpz_error */
	uint32_t descriptors; /* replies: how many come along */
};
static_assert(sizeof(struct hpz_wire_head) == 24, "wire");

#define HPZ_WIRE_CAN_ZEROED   1u  /* client: knows hpz_wire_leased.zeroed; others get 0 there */
#define HPZ_WIRE_CAN_CELLS    2u  /* client: knows hpz_wire_segment.cell; others get 0 there */
#define HPZ_WIRE_CAN_RESERVED 4u  /* client: knows hpz_wire_pool.reserved_pages; others get 0 there */
#define HPZ_WIRE_CAN_RESIZE   16u /* client: knows hpz_wire_pool.configured and what follows it */

struct hpz_wire_hello {
	uint32_t size;
	uint32_t magic;
	uint16_t version; /* what the sender speaks */
	uint16_t compat;  /* the oldest it still speaks */
	uint32_t reserved;
	uint64_t capabilities; /* HPZ_WIRE_CAN_*; those that are not known mean nothing */
	uint32_t max_message;
	uint32_t max_request;
	uint32_t max_descriptors;
	uint32_t reserved2;
	char program[HPZ_WIRE_NAME]; /* version of the sender's software, for people */
};
static_assert(sizeof(struct hpz_wire_hello) == 104, "wire");

struct hpz_wire_error {
	uint32_t size;
	uint32_t leases; /* IN_USE: how many are out */
	char text[HPZ_WIRE_TEXT];
};
static_assert(sizeof(struct hpz_wire_error) == 520, "wire");

/* A request without arguments: STATUS. A reply that says no more than "done": WAIT, DRAIN. */
struct hpz_wire_empty {
	uint32_t size;
	uint32_t reserved;
};
static_assert(sizeof(struct hpz_wire_empty) == 8, "wire");

#define HPZ_WIRE_LEASE_FLAGS 15u /* HPZ_LEASE_* of hpz.h, same values */
#define HPZ_WIRE_NODE_ANY    (-1)
#define HPZ_WIRE_PRIORITY    1000 /* HPZ_PRIORITY_MAX of hpz.h */
#define HPZ_WIRE_CELLS       64u

struct hpz_wire_cell {
	uint64_t bytes;
	int32_t node;
	uint32_t reserved;
};
static_assert(sizeof(struct hpz_wire_cell) == 16, "wire");

struct hpz_wire_lease {
	uint32_t size;
	uint32_t flags; /* HPZ_LEASE_* */
	uint64_t bytes;
	uint64_t page_size; /* 0: any */
	int32_t node;       /* -1: any */
	uint32_t deliver;
	uint32_t mode; /* path; 0: 0600 */
	uint32_t reserved;
	int64_t timeout_ms; /* 0 do not wait, -1 for ever */
	int64_t owner_uid;  /* path; -1: the peer's */
	int64_t owner_gid;
	int32_t owner_pid; /* 0: the peer (fd), nobody (path) */
	uint32_t reserved2;
	int64_t open_timeout_ms;
	char label[HPZ_WIRE_LABEL];
	char key[HPZ_WIRE_KEY];
	/* the following: zero until used */
	uint32_t count;       /* a bulk of so many leases, at most HPZ_WIRE_MAX_FDS; 0: one */
	int32_t priority;     /* among those that wait for a pool's memory: the higher, the sooner */
	uint64_t ttl_ms;      /* RESERVE: how long it stands */
	uint64_t reservation; /* LEASE: out of what this one keeps; 0: none */
	/* where it comes from: */
	uint32_t policy;    /* enum hpz_node_policy */
	uint32_t cells;     /* so many of `cell` are used, and `bytes` is their sum; 0: it has none */
	uint64_t node_mask; /* interleave: bit N is node N */
	struct hpz_wire_cell cell[HPZ_WIRE_CELLS];
};
static_assert(sizeof(struct hpz_wire_lease) == 376 + HPZ_WIRE_CELLS * 16, "wire");

/* Reply to LEASE and ADOPT; `segments` records of struct hpz_wire_segment follow. Of a bulk there are
 * several.
 */
struct hpz_wire_leased {
	uint32_t size;
	uint32_t segments;
	uint64_t id;
	uint64_t asked; /* bytes */
	uint64_t given; /* bytes */
	uint64_t ready; /* bytes of it that were clean when asked; a request that had to wait: 0 */
	uint32_t deliver;
	uint32_t reserved;
	uint64_t zeroed; /* bytes of it that the kernel zeroed for this request */
};
static_assert(sizeof(struct hpz_wire_leased) == 56, "wire");

/* Reply to RESERVE. */
struct hpz_wire_reserved {
	uint32_t size;
	int32_t node;
	uint64_t id;
	uint64_t asked; /* bytes */
	uint64_t given; /* bytes that are kept */
	uint64_t ready; /* as in hpz_wire_leased */
	uint64_t zeroed;
	uint64_t page_size;
	uint64_t ttl_ms;
	char pool[HPZ_WIRE_NAME];
};
static_assert(sizeof(struct hpz_wire_reserved) == 128, "wire");

enum hpz_wire_record {
	HPZ_RECORD_LEASE = 1,
	HPZ_RECORD_SEGMENT = 2,
	HPZ_RECORD_HOLDER = 3,
	HPZ_RECORD_POOL = 4,
	HPZ_RECORD_FINDING = 5,
	HPZ_RECORD_RULE = 6,
	HPZ_RECORD_NODE = 7,
	HPZ_RECORD_METHOD = 8,
	HPZ_RECORD_DEMAND_POOL = 9,
	HPZ_RECORD_DEMAND_SIZE = 10,
	HPZ_RECORD_TEARDOWN = 11,
	HPZ_RECORD_HISTOGRAM = 12,
	HPZ_RECORD_FACT = 13,
	HPZ_RECORD_METRIC = 14,
	HPZ_RECORD_EVENT = 15
};

struct hpz_wire_segment {
	uint32_t size;
	uint32_t record; /* HPZ_RECORD_SEGMENT */
	uint64_t page_size;
	uint64_t bytes;
	uint64_t generation;
	int32_t node;
	int32_t descriptor; /* index into the message's descriptors, -1 none */
	char path[HPZ_WIRE_PATH];
	uint32_t cell; /* of the request; 0 also where it has none */
	uint32_t reserved;
};
static_assert(sizeof(struct hpz_wire_segment) == 304, "wire");

struct hpz_wire_ack {
	uint32_t size;
	uint32_t count; /* a bulk: so many, from this id on; 0: one */
	uint64_t id;
};
static_assert(sizeof(struct hpz_wire_ack) == 16, "wire");

#define HPZ_WIRE_RELEASE_FLAGS 3u

struct hpz_wire_release {
	uint32_t size;
	uint32_t flags; /* HPZ_RELEASE_* */
	uint64_t id;
	int64_t timeout_ms;
};
static_assert(sizeof(struct hpz_wire_release) == 24, "wire");

/* Reply to RELEASE. */
struct hpz_wire_released {
	uint32_t size;
	uint32_t state; /* HPZ_STATE_RETURNING or HPZ_STATE_ENDED */
	uint64_t id;
};
static_assert(sizeof(struct hpz_wire_released) == 16, "wire");

struct hpz_wire_change {
	uint32_t size;
	uint32_t known; /* segments */
	uint64_t id;
	uint64_t bytes; /* of all of it, afterwards */
	int64_t timeout_ms;
	int32_t priority;
	uint32_t reserved;
};
static_assert(sizeof(struct hpz_wire_change) == 40, "wire");

/* Reply to CHANGE; `segments` records of struct hpz_wire_segment follow: from `known` on. */
struct hpz_wire_changed {
	uint32_t size;
	uint32_t segments;
	uint64_t id;
	uint64_t given; /* bytes, of all of it */
	uint64_t ready; /* of what it grew by, as in hpz_wire_leased */
	uint64_t zeroed;
	uint64_t returning; /* the lease that has what it gave back; 0: none */
	uint32_t total;     /* segments of all of it */
	uint32_t deliver;
};
static_assert(sizeof(struct hpz_wire_changed) == 56, "wire");

#define HPZ_WIRE_ADOPT_FLAGS 2u /* HPZ_LEASE_UNBOUND */

struct hpz_wire_adopt {
	uint32_t size;
	uint32_t flags;
	uint64_t id;
	int32_t owner_pid;
	uint32_t reserved;
};
static_assert(sizeof(struct hpz_wire_adopt) == 24, "wire");

#define HPZ_WIRE_LIST_MORE     1u /* orphans and reasons, too */
#define HPZ_WIRE_LIST_RESERVED 2u /* reservations, too; goes with MORE */
#define HPZ_WIRE_LIST_KEYS     4u /* keys, too; goes with the other two */
#define HPZ_WIRE_LIST_FLAGS    7u

struct hpz_wire_list {
	uint32_t size;
	uint32_t flags;  /* HPZ_WIRE_LIST_* */
	uint64_t cursor; /* 0: from the start */
};
static_assert(sizeof(struct hpz_wire_list) == 16, "wire");

/* Reply to LIST; `records` records follow, of all three kinds together. */
struct hpz_wire_listed {
	uint32_t size;
	uint32_t records;
	uint64_t cursor; /* for the next page; 0: this was the last */
};
static_assert(sizeof(struct hpz_wire_listed) == 16, "wire");

/* `segments` SEGMENT and `holders` HOLDER records of this lease follow. */
struct hpz_wire_lease_record {
	uint32_t size;
	uint32_t record; /* HPZ_RECORD_LEASE */
	uint64_t id;
	uint64_t given;
	uint64_t asked;
	uint64_t age_ms;
	uint64_t holes; /* pages */
	uint64_t grown; /* pages */
	uint32_t state;
	uint32_t deliver;
	uint32_t flags;
	uint32_t uid;
	int32_t pid;
	uint32_t segments;
	uint32_t holders;
	uint32_t reserved;
	char label[HPZ_WIRE_LABEL];
	char comm[16];
	char reason[HPZ_WIRE_NAME]; /* returning, orphaned: what holds the memory; "": nothing known */
	uint64_t ttl_ms;            /* reserved: how long it still stands */
	char key[HPZ_WIRE_KEY];     /* LIST_KEYS; "": none, or not the client's to see */
};
static_assert(sizeof(struct hpz_wire_lease_record) == 432, "wire");

struct hpz_wire_holder {
	uint32_t size;
	uint32_t record; /* HPZ_RECORD_HOLDER */
	int32_t pid;
	int32_t fd; /* -1: mapping */
	char comm[16];
};
static_assert(sizeof(struct hpz_wire_holder) == 32, "wire");

/* Reply to STATUS; `pools` records of struct hpz_wire_pool follow. */
struct hpz_wire_status {
	uint32_t size;
	uint32_t pools;
	uint64_t uptime_ms;
	uint64_t leases_granted;
	uint64_t bytes_cleared;
	uint64_t bytes_filled;
	uint64_t worker_deaths;
	uint32_t leases;
	uint32_t workers;
	uint32_t connections;
	uint32_t reserved;
	char version[HPZ_WIRE_NAME];
	char proof[HPZ_WIRE_NAME];
	char method[HPZ_WIRE_NAME];
	char message[HPZ_WIRE_TEXT];
	uint64_t book_alarms; /* a server that does not have it yet: 0 */
};
static_assert(sizeof(struct hpz_wire_status) == 776, "wire");

struct hpz_wire_pool {
	uint32_t size;
	uint32_t record; /* HPZ_RECORD_POOL */
	uint64_t page_size;
	int32_t node;
	uint32_t waiting;
	uint64_t target;
	uint64_t total;
	uint64_t clean;
	uint64_t leased;
	uint64_t returning;
	uint64_t dirty;
	uint64_t filling;
	uint64_t holes;
	uint64_t raised;
	uint64_t kernel_nr;
	uint64_t kernel_free;
	uint64_t kernel_resv;
	uint64_t largest_clean; /* bytes */
	uint32_t clean_segments;
	uint32_t idle;
	char name[HPZ_WIRE_NAME];
	char mount[HPZ_WIRE_PATH];
	char message[HPZ_WIRE_TEXT];
	/* pages of files that are gone, held by somebody; beside `total` */
	uint64_t orphan_pages;
	/* since start */
	uint64_t retired_pages; /* of segments given up for faulty memory or a byte that was not zero */
	uint64_t verified_pages;
	uint32_t orphans;     /* files */
	uint32_t verify_hits; /* clean segments with a byte that was not zero */
	uint32_t sigbus;      /* faults in memory that workers met */
	uint32_t reserved;
	uint64_t
		reserved_pages; /* promised by reservations, most of them among the clean; see CAN_RESERVED */
	/* HPZ_WIRE_CAN_RESIZE; pages */
	uint64_t configured;
	uint64_t give_back; /* nr_hugepages is to be lowered by so much, as pages come free */
};
static_assert(sizeof(struct hpz_wire_pool) == 1032, "wire");

struct hpz_wire_wait {
	uint32_t size;
	uint32_t reserved;
	uint64_t clean; /* bytes; 0: until idle */
	int64_t timeout_ms;
	char pool[HPZ_WIRE_NAME]; /* "": all */
};
static_assert(sizeof(struct hpz_wire_wait) == 88, "wire");

#define HPZ_WIRE_DRAIN_FLAGS 1u

struct hpz_wire_drain {
	uint32_t size;
	uint32_t flags; /* HPZ_DRAIN_* */
	int64_t timeout_ms;
};
static_assert(sizeof(struct hpz_wire_drain) == 16, "wire");

struct hpz_wire_verify {
	uint32_t size;
	uint32_t reserved;
	int64_t timeout_ms;
	char pool[HPZ_WIRE_NAME]; /* "": all */
};
static_assert(sizeof(struct hpz_wire_verify) == 80, "wire");

/* Reply to VERIFY. */
struct hpz_wire_verified {
	uint32_t size;
	uint32_t reserved;
	uint64_t segments; /* read to their end, or to what was not zero */
	uint64_t pages;    /* read */
	uint64_t bytes;    /* read */
	uint64_t hits;     /* segments that were not zero */
	uint64_t left;     /* segments that were handed out, or gone, before they were read */
	/* of the first hit: */
	uint64_t hit_segment;
	uint64_t hit_offset;          /* bytes */
	char hit_pool[HPZ_WIRE_NAME]; /* "": none */
};
static_assert(sizeof(struct hpz_wire_verified) == 128, "wire");
#define HPZ_WIRE_CHECK_FLAGS 1u

struct hpz_wire_check {
	uint32_t size;
	uint32_t flags;  /* HPZ_CHECK_* */
	uint64_t cursor; /* 0: check now */
	int64_t timeout_ms;
};
static_assert(sizeof(struct hpz_wire_check) == 24, "wire");

/* Reply to CHECK; `records` records of struct hpz_wire_finding follow. */
struct hpz_wire_checked {
	uint32_t size;
	uint32_t records;
	uint64_t cursor;   /* for the next page; 0: this was the last */
	uint64_t segments; /* looked at */
	uint64_t leases;
	uint64_t dropped; /* found beyond what is kept */
};
static_assert(sizeof(struct hpz_wire_checked) == 40, "wire");

/*
 * Reply to PLAN, whose payload is a struct hpz_wire_lease: what a LEASE like that would be answered, without
 * doing it.
 */
struct hpz_wire_planned {
	uint32_t size;
	uint32_t kind;     /* enum hpz_plan_kind */
	uint32_t error;    /* REFUSE: enum hpz_error */
	uint32_t segments; /* of the lease */
	uint64_t asked;    /* this and the following: bytes */
	uint64_t given;
	uint64_t ready;
	uint64_t zeroed;
	uint64_t from_free;  /* of zeroed: of the kernel's free pages, */
	uint64_t from_dirty; /* of dirty segments, */
	uint64_t from_clean; /* of clean ones that are too small */
	uint64_t page_size;
	int32_t node;             /* -1: several */
	uint32_t waiting;         /* requests that wait in this pool, or the most in one of several */
	char pool[HPZ_WIRE_NAME]; /* "": several */
	char text[HPZ_WIRE_TEXT]; /* for people */
};
static_assert(sizeof(struct hpz_wire_planned) == 664, "wire");

struct hpz_wire_demand {
	uint32_t size;
	uint32_t reserved;
	uint64_t cursor; /* 0: from the first pool on */
};
static_assert(sizeof(struct hpz_wire_demand) == 16, "wire");

/* Reply to DEMAND; `records` records follow. */
struct hpz_wire_demanded {
	uint32_t size;
	uint32_t records;
	uint64_t cursor; /* for the next page; 0: this was the last */
};
static_assert(sizeof(struct hpz_wire_demanded) == 16, "wire");

struct hpz_wire_demand_pool {
	uint32_t size;
	uint32_t record; /* HPZ_RECORD_DEMAND_POOL */
	uint32_t sizes;  /* records of struct hpz_wire_demand_size that follow */
	int32_t node;
	uint64_t page_size;
	uint64_t target;  /* this and the following: bytes */
	uint64_t fixed;   /* of entries that are not learned */
	uint64_t learned; /* proposed by what was learned */
	uint64_t most;    /* that may be */
	uint64_t large;   /* the large segment of what is left */
	uint64_t half_life_ms;
	uint32_t learns; /* 1: the stock follows it; 0: it says what would be */
	uint32_t reserved;
	char pool[HPZ_WIRE_NAME];
};
static_assert(sizeof(struct hpz_wire_demand_pool) == 144, "wire");

/* What fades is in thousandths: of a request, of a lease. */
struct hpz_wire_demand_size {
	uint32_t size;
	uint32_t record; /* HPZ_RECORD_DEMAND_SIZE */
	uint64_t bytes;
	uint64_t out; /* leases now */
	uint64_t peak_milli;
	uint64_t exact_milli, larger_milli, zeroed_milli, waited_milli, refused_milli;
	uint64_t wanted;   /* segments, those that are lent included */
	uint64_t fixed;    /* kept anyhow */
	uint64_t proposed; /* beyond these */
	uint64_t there;    /* segments of that length, in whatever state */
	uint64_t clean;
	uint32_t reason; /* enum hpz_demand_reason */
	uint32_t reserved;
};
static_assert(sizeof(struct hpz_wire_demand_size) == 120, "wire");

#define HPZ_WIRE_REGIME     64u
#define HPZ_WIRE_FACT       128u
#define HPZ_WIRE_TEARDOWNS  256u /* records that are kept of leases that are over */
#define HPZ_WIRE_HISTOGRAMS 256u
#define HPZ_WIRE_BUCKETS    32u /* HPZ_TEARDOWN_BUCKETS of hpz.h */
#define HPZ_WIRE_FLUSHES    8u  /* HPZ_TEARDOWN_FLUSHES of hpz.h */
#define HPZ_WIRE_STAGES     4u
#define HPZ_WIRE_NONE       UINT64_MAX

struct hpz_wire_teardown {
	uint32_t size;
	uint32_t record;    /* which are asked for: HPZ_RECORD_TEARDOWN, _HISTOGRAM, _FACT */
	uint64_t cursor;    /* records: only what has changed after that revision; 0: from the start */
	int64_t timeout_ms; /* records: wait so long for the first; 0: answer with what there is */
};
static_assert(sizeof(struct hpz_wire_teardown) == 24, "wire");

/* Reply to TEARDOWN; `records` records of the kind follow. */
struct hpz_wire_torn_down {
	uint32_t size;
	uint32_t records;
	uint64_t cursor;              /* for the next page; 0: this was the last */
	uint64_t revision;            /* changes so far */
	uint64_t sequence;            /* leases that are over, so far */
	uint64_t now_ns;              /* CLOCK_MONOTONIC */
	uint32_t source;              /* enum hpz_teardown_source */
	uint32_t own;                 /* 1: only records of the client's own leases */
	char regime[HPZ_WIRE_REGIME]; /* "": not known yet */
	char gap[HPZ_WIRE_TEXT];      /* what the source cannot see, for people; "": nothing */
};
static_assert(sizeof(struct hpz_wire_torn_down) == 624, "wire");

/* Times are of CLOCK_MONOTONIC. HPZ_WIRE_NONE: that was not seen, or has not happened. */
struct hpz_wire_teardown_record {
	uint32_t size;
	uint32_t record;   /* HPZ_RECORD_TEARDOWN */
	uint64_t revision; /* of its last change */
	uint64_t sequence; /* 0: it is not over */
	uint64_t lease;
	uint64_t part_of; /* the lease it was split off from; 0: none */
	uint64_t bytes;
	uint64_t page_size;
	uint64_t kernel_bytes; /* of it, given to the kernel instead of kept */
	uint64_t orphan_bytes; /* of it, given to the kernel while somebody had it, or may have */
	uint64_t begun_ns, gone_ns, ended_ns, proven_ns, clean_ns;
	uint64_t table_bytes, table_age_ns;
	uint64_t steal_ns;
	uint64_t flushes[HPZ_WIRE_FLUSHES];
	uint64_t stages[HPZ_WIRE_STAGES]; /* ns; by enum hpz_teardown_stage - 1 */
	uint32_t source;                  /* enum hpz_teardown_source */
	uint32_t how;                     /* enum hpz_teardown_how */
	int32_t code;
	int32_t pid; /* 0: none */
	uint32_t holders;
	uint32_t uid;
	uint32_t flags; /* HPZ_TEARDOWN_* */
	uint32_t reserved;
	char label[HPZ_WIRE_LABEL];
	char comm[16];
	char regime[HPZ_WIRE_REGIME];
};
static_assert(sizeof(struct hpz_wire_teardown_record) == 472, "wire");

struct hpz_wire_histogram {
	uint32_t size;
	uint32_t record; /* HPZ_RECORD_HISTOGRAM */
	uint32_t stage;  /* enum hpz_teardown_stage */
	uint32_t rest;   /* 1: of all labels that are not kept one by one any more */
	uint64_t page_size;
	uint64_t count;
	uint64_t sum_ns, max_ns;
	uint32_t buckets[HPZ_WIRE_BUCKETS];
	char label[HPZ_WIRE_LABEL];
	char regime[HPZ_WIRE_REGIME];
};
static_assert(sizeof(struct hpz_wire_histogram) == 368, "wire");

struct hpz_wire_fact {
	uint32_t size;
	uint32_t record; /* HPZ_RECORD_FACT */
	char name[HPZ_WIRE_NAME];
	char value[HPZ_WIRE_FACT]; /* "": not known */
	char where[HPZ_WIRE_FACT]; /* it was read, or why it was not */
};
static_assert(sizeof(struct hpz_wire_fact) == 328, "wire");

#define HPZ_WIRE_EVENT_TEXT 256u

struct hpz_wire_events {
	uint32_t size;
	uint32_t reserved;
	uint64_t cursor;    /* only what happened behind that number; 0: from the first that is kept */
	int64_t timeout_ms; /* wait so long for the first; 0: answer with what there is */
};
static_assert(sizeof(struct hpz_wire_events) == 24, "wire");

/* Reply to EVENTS; `records` records of struct hpz_wire_event follow. */
struct hpz_wire_happened {
	uint32_t size;
	uint32_t records;
	uint64_t cursor; /* to go on from */
	uint64_t last;   /* the number of the last event there is */
	uint64_t missed; /* behind the request's cursor, and forgotten */
};
static_assert(sizeof(struct hpz_wire_happened) == 32, "wire");

struct hpz_wire_event {
	uint32_t size;
	uint32_t record; /* HPZ_RECORD_EVENT */
	uint64_t sequence;
	uint64_t time_ns; /* CLOCK_REALTIME */
	uint32_t kind;    /* enum hpz_event_kind */
	uint32_t level;   /* LOG: as syslog(3) has it */
	uint64_t lease;   /* 0: none */
	uint64_t bytes;
	uint32_t uid; /* 4294967295: of nobody in particular */
	uint32_t pid; /* 0: none */
	char label[HPZ_WIRE_LABEL];
	char text[HPZ_WIRE_EVENT_TEXT];
};
static_assert(sizeof(struct hpz_wire_event) == 440, "wire");

#define HPZ_WIRE_METRIC_BUCKETS 32u /* HPZ_METRIC_BUCKETS of hpz.h */
#define HPZ_WIRE_METRIC_HELP    128u

struct hpz_wire_metrics {
	uint32_t size;
	uint32_t reserved;
	uint64_t cursor; /* 0: from the first on */
};
static_assert(sizeof(struct hpz_wire_metrics) == 16, "wire");

/* Reply to METRICS; `records` records of struct hpz_wire_metric follow. */
struct hpz_wire_measured {
	uint32_t size;
	uint32_t records;
	uint64_t cursor; /* for the next page; 0: this was the last */
};
static_assert(sizeof(struct hpz_wire_measured) == 16, "wire");

/* One series: a family's records follow each other, each with another label_value. */
struct hpz_wire_metric {
	uint32_t size;
	uint32_t record;       /* HPZ_RECORD_METRIC */
	uint32_t kind;         /* enum hpz_metric_kind */
	uint32_t unit;         /* enum hpz_metric_unit */
	uint64_t value;        /* of a histogram: how many there were */
	uint64_t sum;          /* this and the following: of a histogram */
	uint32_t shift;        /* bucket 0: less than 2^shift, bucket i: less than 2^(shift + i) */
	uint32_t bucket_count; /* the last one: all that is more */
	uint64_t buckets[HPZ_WIRE_METRIC_BUCKETS];
	char name[HPZ_WIRE_NAME];
	char label[HPZ_WIRE_NAME]; /* its name; "": none */
	char label_value[HPZ_WIRE_NAME];
	char help[HPZ_WIRE_METRIC_HELP]; /* for people */
};
static_assert(sizeof(struct hpz_wire_metric) == 616, "wire");

#define HPZ_WIRE_RESIZE_FLAGS 1u /* HPZ_RESIZE_* of hpz.h, same values */

struct hpz_wire_resize {
	uint32_t size;
	uint32_t flags; /* HPZ_RESIZE_* */
	uint32_t kind;  /* enum hpz_resize_kind */
	uint32_t reserved;
	uint64_t pages;
	uint64_t bytes; /* if `pages` is 0; whole pages */
	int64_t timeout_ms;
	char pool[HPZ_WIRE_NAME];
};
static_assert(sizeof(struct hpz_wire_resize) == 104, "wire");

/* Reply to RESIZE. */
struct hpz_wire_resized {
	uint32_t size;
	uint32_t done; /* 1: nothing is left to be done */
	uint64_t page_size;
	/* pages */
	uint64_t before; /* the target before it */
	uint64_t target;
	uint64_t configured;
	uint64_t total;
	uint64_t grow;      /* still missing, or not clean yet */
	uint64_t shrink;    /* held beyond the target: in leases, mostly */
	uint64_t give_back; /* nr_hugepages is to be lowered by so much */
	uint64_t demoted;   /* HPZ_RESIZE_DEMOTE: so many were split */
};
static_assert(sizeof(struct hpz_wire_resized) == 80, "wire");

struct hpz_wire_finding {
	uint32_t size;
	uint32_t record;   /* HPZ_RECORD_FINDING */
	uint32_t kind;     /* enum hpz_finding_kind */
	uint32_t severity; /* enum hpz_severity */
	uint32_t repaired; /* 0 or 1 */
	uint32_t reserved;
	char pool[HPZ_WIRE_NAME]; /* "": no one pool's */
	char text[HPZ_WIRE_TEXT];
};
static_assert(sizeof(struct hpz_wire_finding) == 600, "wire");

/* Reply: empty. INVALID says why in its text, and nothing has changed. */
struct hpz_wire_set {
	uint32_t size;
	uint32_t reserved;
	char key[HPZ_WIRE_NAME];
	char value[HPZ_WIRE_VALUE];
};
static_assert(sizeof(struct hpz_wire_set) == 328, "wire");

struct hpz_wire_calibrate {
	uint32_t size;
	uint32_t reserved;
	int64_t timeout_ms;
	char pool[HPZ_WIRE_NAME]; /* "": all */
};
static_assert(sizeof(struct hpz_wire_calibrate) == 80, "wire");

/* Reply to CALIBRATE. */
struct hpz_wire_calibrated {
	uint32_t size;
	uint32_t pools; /* on whose pages it was measured */
};
static_assert(sizeof(struct hpz_wire_calibrated) == 8, "wire");

#define HPZ_WIRE_PSI_NONE (-1)

/* Reply to CLEARING; `rules` records of struct hpz_wire_rule, then `nodes`, then `methods` of theirs follow.
 */
struct hpz_wire_clearing {
	uint32_t size;
	uint32_t rules;
	uint32_t nodes;
	uint32_t methods;
	int32_t psi_cpu; /* tenths of a percent of time that others wait; HPZ_WIRE_PSI_NONE: nobody looks */
	int32_t psi_memory;
};
static_assert(sizeof(struct hpz_wire_clearing) == 24, "wire");

struct hpz_wire_rule {
	uint32_t size;
	uint32_t record; /* HPZ_RECORD_RULE */
	char key[HPZ_WIRE_NAME];
	char value[HPZ_WIRE_VALUE];
};
static_assert(sizeof(struct hpz_wire_rule) == 328, "wire");

struct hpz_wire_node {
	uint32_t size;
	uint32_t record; /* HPZ_RECORD_NODE */
	int32_t node;
	uint32_t holds;   /* HPZ_HOLD_* */
	uint32_t workers; /* processes */
	uint32_t queued;  /* jobs that no worker has yet */
	/* workers with a job, by their level */
	uint32_t idle;
	uint32_t refill;
	uint32_t urgent;
	uint32_t backoff;          /* it sleeps so many times as long as it works */
	uint64_t rate_bytes_per_s; /* now */
	uint64_t bytes;            /* since start, touched: cleared, filled, read */
	uint64_t batches;
	uint64_t batch_ns; /* of a batch at the scavenger's last look; 0: none */
	uint64_t base_ns;  /* what it takes undisturbed */
};
static_assert(sizeof(struct hpz_wire_node) == 80, "wire");

/* What calibration found. */
struct hpz_wire_method {
	uint32_t size;
	uint32_t record; /* HPZ_RECORD_METHOD */
	int32_t node;
	uint32_t flags;     /* HPZ_METHOD_* */
	uint64_t page_size; /* 0: memory without huge pages */
	uint64_t batch_ns;  /* CPU time of a batch of 2 MiB */
	uint64_t bytes_per_s;
	char name[HPZ_WIRE_NAME];
};
static_assert(sizeof(struct hpz_wire_method) == 104, "wire");

/*
 * ---- proto.c: looks at bytes, does no I/O; every function returns 0 or enum hpz_error ----
 * PROTOCOL: malformed. UNSUPPORTED: a reserved field, unknown flag or tail is used. INVALID: understood and
 * senseless.
 */

/*
 * The head of a message of `length` bytes: size is right, op is known, id and flags fit the direction. For a
 * request whose op is not known it is HPZ_ERR_UNSUPPORTED, and *ret_head is set all the same, so that it can
 * be answered.
 */
int proto_get_head(const void *message, size_t length, bool is_reply, struct hpz_wire_head *ret_head);

/*
 * Copies one sized struct that begins at `bytes` (`available` bytes to the end of the message) into
 * ret_struct of known_size bytes: a shorter one is filled up with zero, of a longer one the unknown tail must
 * be zero. Sets *ret_used to the bytes it takes in the message.
 */
int proto_get_struct(
	const void *bytes, size_t available, void *ret_struct, size_t known_size, size_t *ret_used);

/* The bytes a request's payload had in version 1, and so the least it has; 0: no such operation. */
size_t proto_get_least_size(uint16_t op);

/* The one payload struct of a request: nothing may follow it, and nothing of version 1 may be missing. */
int proto_get_payload(const void *message, size_t length, void *ret_struct, size_t known_size);

/* Fills in a head and returns the message's length. `payload_size` counts records, too. */
size_t proto_set_head(void *message, uint16_t op, uint64_t id, bool is_reply, uint32_t error,
	uint32_t descriptors, size_t payload_size);

/* What each request must be; *ret_why points to a static sentence when it is not. */
int proto_check_hello(const struct hpz_wire_hello *hello, const char **ret_why);
int proto_check_lease(const struct hpz_wire_lease *lease, const char **ret_why);
int proto_check_reserve(const struct hpz_wire_lease *lease, const char **ret_why);
int proto_check_unreserve(const struct hpz_wire_release *unreserve, const char **ret_why);
int proto_check_release(const struct hpz_wire_release *release, const char **ret_why);
int proto_check_adopt(const struct hpz_wire_adopt *adopt, const char **ret_why);
int proto_check_change(const struct hpz_wire_change *change, const char **ret_why);
int proto_check_list(const struct hpz_wire_list *list, const char **ret_why);
int proto_check_wait(const struct hpz_wire_wait *wait, const char **ret_why);
int proto_check_drain(const struct hpz_wire_drain *drain, const char **ret_why);
int proto_check_verify(const struct hpz_wire_verify *verify, const char **ret_why);
int proto_check_set(const struct hpz_wire_set *set, const char **ret_why);
int proto_check_calibrate(const struct hpz_wire_calibrate *calibrate, const char **ret_why);
int proto_check_demand(const struct hpz_wire_demand *demand, const char **ret_why);
int proto_check_teardown(const struct hpz_wire_teardown *teardown, const char **ret_why);
int proto_check_events(const struct hpz_wire_events *events, const char **ret_why);
int proto_check_metrics(const struct hpz_wire_metrics *metrics, const char **ret_why);
int proto_check_resize(const struct hpz_wire_resize *resize, const char **ret_why);
int proto_check_check(const struct hpz_wire_check *check, const char **ret_why);
int proto_check_ack(const struct hpz_wire_ack *ack, const char **ret_why);
int proto_check_empty(const struct hpz_wire_empty *empty, const char **ret_why);

/* A string of a fixed array: valid UTF-8, no control characters (C0, DEL, C1), zero bytes only as padding. */
bool proto_is_text(const char *bytes, size_t capacity);
/* Copies such an array to a NUL-terminated string of capacity + 1 bytes; bytes that are not text become '?'.
 */
void proto_get_text(const char *bytes, size_t capacity, char *ret_string);
/*
 * Puts a string into such an array, padded with zeros; cut at a character's border when too long, and what is
 * not text becomes '?' (a newline or tab a space): the result always satisfies proto_is_text().
 */
void proto_set_text(char *bytes, size_t capacity, const char *string);

#endif
