/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * session.h - one connection: reads requests one at a time, sends replies, notices its end.
 * Holds at most one reply that the client does not read; while it does, or while a request waits, nothing
 * more is read from it. So a client costs a descriptor and at most one message, whatever it does.
 */
#ifndef HPZ_SESSION_H
#define HPZ_SESSION_H

#include "request.h"

struct session {
	struct list link; /* listener's */
	struct requests *requests;
	int sock;
	uv_poll_t poll;
	int events; /* that it waits for */
	struct request_peer peer;
	bool has_hello;
	bool is_waiting; /* a request of it waits */
	bool is_closing;
	bool closes_when_sent;
	uint64_t unread_lease;  /* descriptors sent, not confirmed */
	unsigned char *pending; /* a reply the client has not taken yet */
	size_t pending_length;
	int pending_fds[HPZ_WIRE_MAX_FDS];
	size_t pending_fd_count;
	uint64_t pending_lease;
	void (*closed)(struct session *session, void *user);
	void *user;
};

/* User and groups of a connected socket's other end, without its process; `groups` is the caller's. -errno.
 */
int session_get_user(int sock, struct request_peer *ret_peer);

/* Takes over a connected socket and what session_get_user() said of it. `closed` is called when it is gone
 * and may be freed memory afterwards. -errno. */
int session_open(struct requests *requests, int sock_take, const struct request_peer *user_take,
	void (*closed)(struct session *session, void *user), void *user, struct session **ret_session);
void session_close(struct session *session);
/* A reply of a request that waited. */
void session_send(struct session *session, struct request_reply *reply);

#endif
