/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * desk.h - what the handlers of requests share: who asks, the reply that is being made, those that wait.
 * Owns the requests that wait, and knows nothing of what they wait for.
 */
#ifndef HPZ_DESK_H
#define HPZ_DESK_H

#include "access.h"
#include "books.h"
#include "proto.h"
#include "reserve.h"

struct session;

struct request_peer {
	uid_t uid;
	gid_t gid;
	pid_t pid;
	uint64_t pid_start;
	char comm[17]; /* when it connected */
	int pidfd;     /* borrowed by whoever reads this; -1: the process is gone or cannot be held on to */
	gid_t *groups; /* supplementary ones, the session's */
	size_t group_count;
	uint64_t capabilities; /* HPZ_WIRE_CAN_*, from its hello */
};

struct request_reply {
	size_t length;
	size_t fd_count;
	int fds[HPZ_WIRE_MAX_FDS]; /* owned by the reply: closed once it is sent, or given up */
	uint64_t lease;            /* whose descriptors these are */
	unsigned char bytes[HPZ_WIRE_MAX_MESSAGE];
};

/* What one pool gives to a request: all of it, or a cell, or a node's part. */
struct request_share {
	struct pool *pool;
	uint32_t cell;
	uint64_t pages; /* 0: nothing, for now */
	/* of what is kept: clean when it was taken, and zeroed for it */
	uint64_t ready_pages, zeroed_pages;
	uint64_t lacking_pages; /* in the kernel, when it was last tried */
};

/* In the order of the lease; what is kept for a share is kept for its address. */
struct request_shares {
	size_t count;
	struct request_share list[SPREAD_PIECES_MAX];
};

struct requests {
	uv_loop_t *loop;
	const struct host *host;
	const struct config *config; /* the one in force: a reload changes it in place */
	struct crew *crew;
	struct lease_table *leases;
	struct handoff *handoff;
	struct reconcile *reconcile;
	struct books *books;
	struct teardown *teardown; /* NULL: nobody keeps what ends cost */
	uint64_t started_ns;
	struct list waiting; /* struct request: those for memory of a pool in the order of their turns */
	uint64_t arrivals;   /* of requests that waited for memory */
	struct verify verify;
	struct supply supply;
	struct reserves reserves;
	struct planner_plan plan;     /* the one that is being made */
	struct request_shares shares; /* of the request that has just come */
	unsigned connections;         /* kept by the listener */
	/* [clear] as it shall be from now on. 0, or -EINVAL with the reason; NULL: nobody can change it. */
	int (*set_clear)(const struct config_clear *clear, char *ret_why, size_t capacity, void *user);
	void *set_user;
	/* A request that waited has waited as long as it may. */
	void (*on_timeout)(uv_timer_t *timer);
	/* A request that waited is answered; the reply is borrowed. */
	void (*send)(struct session *session, struct request_reply *reply);
	struct request_reply reply; /* the one that is being made */
	char text[HPZ_WIRE_TEXT];
};

enum request_outcome {
	REQUEST_REPLIED,  /* requests->reply is to be sent */
	REQUEST_WAITS,    /* `send` will be called, unless the session is cancelled */
	REQUEST_NO_REPLY, /* none is due */
	REQUEST_BROKEN,   /* reply, then close: not our protocol */
};

/* A request that could not be answered at once. */
struct request {
	struct list link;
	struct requests *requests;
	struct session *session;
	struct request_peer peer; /* pidfd is a copy of its own */
	uint16_t op;
	uint64_t id;
	uv_timer_t timer;
	uint64_t begun_ns; /* CLOCK_MONOTONIC */
	union {
		struct hpz_wire_lease lease;
		struct hpz_wire_release release;
		struct hpz_wire_wait wait;
		struct hpz_wire_drain drain;
		struct verify_run run;
		struct {
			char pool[HPZ_WIRE_NAME + 1];
			uint32_t pools; /* that have something to measure on */
		} calibration;
		struct hpz_wire_check check;
		struct hpz_wire_teardown teardown;
		struct hpz_wire_events events;
		struct {
			char pool[HPZ_WIRE_NAME + 1];
			uint64_t before;  /* its target */
			uint64_t demoted; /* pages of it, before */
			bool demotes;
			bool waits; /* until nothing is left to be done */
		} resize;
	};
	/* CHANGE: the lease that is to grow, its size by now, and segments of it that the client has */
	uint64_t target, target_bytes;
	uint32_t known;
	/* LEASE, RESERVE, CHANGE (whose `lease` asks for what it grows by) */
	struct request_shares shares; /* whose memory it waits for */
	uint64_t arrival;             /* the higher, the later it came */
	bool is_impatient;            /* waits only for what is kept for it: that is being read or zeroed */
	bool is_held;                 /* memory is kept for it */
	bool has_waited;              /* for memory that was not there */
	unsigned failed;              /* extensions */
	unsigned passed;              /* times somebody who came later was served first */
	bool has_given_back;          /* DRAIN: nr_hugepages is lowered as far as it goes */
};

/* What is asked for, by whom, and what came of it. */
struct attempt {
	struct request_shares *shares;
	const struct hpz_wire_lease *wire;
	const struct request_peer *peer;
	struct session *session;
	struct request *request; /* NULL: it has just come */
	uint16_t op;
	uint64_t target, target_bytes; /* CHANGE */
	uint32_t known;
	struct lease draft;
	int pidfd;
	/* results */
	bool is_held;
	struct lease *leases[PLANNER_PARTS_MAX];
	size_t lease_count;
	struct reservation *reservation; /* RESERVE: what came of it; LEASE: out of which it is taken */
};

/* ---- replies ---- */

/* Where the payload of the reply begins. */
void *desk_get_payload(struct requests *requests);
/* Its payload is there, its descriptors are in requests->reply. */
enum request_outcome desk_finish_reply(
	struct requests *requests, uint16_t op, uint64_t id, size_t payload_size);
/* A reply that gives the error instead; `leases`: those that are still out, where it is that. */
enum request_outcome desk_make_error(
	struct requests *requests, uint16_t op, uint64_t id, int error, uint32_t leases, const char *text);
enum request_outcome desk_refuse(struct requests *requests, const struct hpz_wire_head *head, int error,
	const char *format, ...) PRINTF(4, 5);
enum request_outcome desk_reply_empty(struct requests *requests, const struct hpz_wire_head *head);
void desk_close_fds(struct request_reply *reply);
/* What came of a request that began then, for the metrics: that is in requests->reply. */
void desk_count_reply(
	const struct requests *requests, const struct request_peer *peer, uint64_t begun_ns, bool has_waited);

/* ---- access ---- */

/* What holds for a peer now. */
void desk_find_rule(
	const struct requests *requests, const struct request_peer *peer, struct access_rule *ret_rule);
/* `what`: as in "may not ...". */
enum request_outcome desk_refuse_denied(struct requests *requests, const struct hpz_wire_head *head,
	const struct access_rule *rule, const char *what);
enum request_outcome desk_refuse_priority(struct requests *requests, const struct hpz_wire_head *head,
	const struct access_rule *rule, int32_t priority);
/* Somebody else's lease. */
enum request_outcome desk_refuse_foreign(struct requests *requests, const struct hpz_wire_head *head,
	const struct access_rule *rule, const struct lease *lease);
/*
 * Whether the peer may have so much more; if not, what to say is in requests->text. What is taken out of a
 * reservation of its own (NULL: none) counts already.
 */
bool desk_has_quota(struct requests *requests, const struct request_peer *peer, uint64_t more_leases,
	uint64_t more_bytes, const struct reservation *reservation);

/* ---- requests that wait ---- */

/* NULL: it may not wait, and why is in requests->text (desk_refuse_waiting()). */
struct request *desk_make_waiting(struct requests *requests, struct session *session,
	const struct request_peer *peer, const struct hpz_wire_head *head, int64_t timeout_ms);
/* The reply where desk_make_waiting() gave none. */
enum request_outcome desk_refuse_waiting(struct requests *requests, const struct hpz_wire_head *head);
/* Since it came. */
uint64_t desk_get_age_ns(const struct request *request);
/* What its reply answers. */
struct hpz_wire_head desk_make_head(const struct request *request);
/* Unanswered. What is kept for it is let go. */
void desk_drop_request(struct request *request);
/* What is in requests->reply answers it. */
void desk_answer(struct request *request);

/* ---- shares ---- */

/* Of one pool; NULL: of all of them. */
uint64_t desk_count_pages(const struct request_shares *shares, const struct pool *pool);
void desk_set_equal_pages(struct request_shares *shares, uint64_t pages);
/* Whether a pool of them is. */
bool desk_is_draining(const struct request_shares *shares);
/* Nothing is kept for any of them any more. */
void desk_drop_shares(struct requests *requests, struct request_shares *shares);

/* ---- what is asked ---- */

/* How many: one, or a bulk. */
size_t desk_get_leases(const struct hpz_wire_lease *wire);
/* Who is to have the files. */
uint32_t desk_get_file_uid(const struct hpz_wire_lease *wire, const struct request_peer *peer);
/* All of its shares have the same. */
uint64_t desk_get_page_size(const struct attempt *attempt);

#endif
