/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * request.h - what a client may ask, as a table of handlers that return replies.
 * Owns requests that wait (for memory, for the end of a lease, for a full stock). Knows nothing of sockets: a
 * session is a pointer it compares and gives back.
 */
#ifndef HPZ_REQUEST_H
#define HPZ_REQUEST_H

#include "access.h"
#include "proto.h"
#include "books.h"
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

void request_init(struct requests *requests, uv_loop_t *loop, const struct host *host,
	const struct config *config, struct crew *crew, struct lease_table *leases, struct handoff *handoff,
	struct reconcile *reconcile, struct books *books,
	void (*send)(struct session *session, struct request_reply *reply));
void request_deinit(struct requests *requests);

/* What holds for a peer now. */
void request_find_rule(
	const struct requests *requests, const struct request_peer *peer, struct access_rule *ret_rule);

/* One message of a session whose hello is done or due. `unread_lease`: descriptors it has not confirmed; 0
 * none. */
enum request_outcome request_handle(struct requests *requests, struct session *session,
	const struct request_peer *peer, const void *message, size_t length, uint64_t unread_lease);
/* The hello, first of all messages; *ret_capabilities: what the client can, 0 if it is refused. */
enum request_outcome request_handle_hello(
	struct requests *requests, const void *message, size_t length, uint64_t *ret_capabilities);
/* An error reply for a message that cannot even be read. */
void request_make_error(struct requests *requests, uint16_t op, uint64_t id, int error, const char *text);
void request_close_fds(struct request_reply *reply);

/* The session is gone: its waiting requests are dropped, leases bound to it end. */
void request_cancel_session(struct requests *requests, struct session *session);
/* The reply with this lease's descriptors could not be sent: nobody has them. */
void request_take_back(struct requests *requests, uint64_t lease);

/* Events from below. */
void request_serve(struct requests *requests);   /* memory may have become clean */
void request_settle(struct requests *requests);  /* states are settled: who waits for a state? */
void request_checked(struct requests *requests); /* a check is over */
void request_lease_ended(struct requests *requests, uint64_t lease);

#endif
