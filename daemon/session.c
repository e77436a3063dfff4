/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* session.c - one connection: reads requests one at a time, sends replies, notices its end. */
#include <inttypes.h>
#include <sys/socket.h>

#include "frame.h"
#include "log.h"
#include "metrics.h"
#include "owner.h"
#include "session.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77 /* 6.5 */
#endif

#define BATCH_MAX 16 /* requests of one client before others have their turn */

static void on_events(uv_poll_t *poll, int status, int events);

/* ---- the peer ---- */

/* Supplementary groups it had when it connected. */
static int get_groups(int sock, struct request_peer *peer)
{
	socklen_t length = 0;
	if (getsockopt(sock, SOL_SOCKET, SO_PEERGROUPS, NULL, &length) == 0)
		return 0; /* none */
	if (errno != ERANGE)
		return errno == ENOPROTOOPT || errno == ENODATA ? 0 : -errno;
	gid_t *groups = malloc(length);
	if (!groups)
		return -ENOMEM;
	if (getsockopt(sock, SOL_SOCKET, SO_PEERGROUPS, groups, &length) < 0) {
		int error = -errno;
		free(groups);
		return error;
	}
	peer->groups = groups;
	peer->group_count = length / sizeof *groups;
	return 0;
}

int session_get_user(int sock, struct request_peer *ret_peer)
{
	struct ucred credentials;
	socklen_t length = sizeof credentials;
	if (getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &credentials, &length) < 0)
		return -errno;
	struct request_peer peer = {
		.uid = credentials.uid, .gid = credentials.gid, .pid = credentials.pid, .pidfd = -1};
	int r = get_groups(sock, &peer);
	if (r == 0)
		*ret_peer = peer;
	return r;
}

static void get_process(int sock, struct request_peer *peer)
{
	int pidfd = -1;
	socklen_t length = sizeof pidfd;
	/* Before 6.5 the number is all there is: the process may have gone and another come since it
	 * connected. */
	if (getsockopt(sock, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &length) == 0)
		peer->pidfd = pidfd;
	else if (errno == ENOPROTOOPT && peer->pid > 0)
		peer->pidfd = handoff_open_process(peer->pid, 0);
	struct host host = {.root = (char *)""};
	host_get_comm(&host, peer->pid, peer->comm);
	if (peer->pidfd >= 0)
		host_get_start_time(&host, peer->pid, &peer->pid_start);
	if (peer->pidfd >= 0 && !owner_is_alive(peer->pidfd))
		peer->pid_start = 0; /* it may be that of one with the same id */
}

/* ---- the end ---- */

static void on_closed(uv_handle_t *handle)
{
	struct session *session = handle->data;
	close_fd(session->sock);
	close_fd(session->peer.pidfd);
	for (size_t i = 0; i < session->pending_fd_count; i++)
		close_fd(session->pending_fds[i]);
	free(session->pending);
	free(session->peer.groups);
	session->closed(session, session->user);
	free(session);
}

void session_close(struct session *session)
{
	if (session->is_closing)
		return;
	session->is_closing = true;
	request_cancel_session(session->requests, session);
	if (session->pending_lease)
		request_take_back(session->requests, session->pending_lease);
	uv_close((uv_handle_t *)&session->poll, on_closed);
}

/* ---- sending ---- */

/* What the loop should tell us: nothing is read while a reply or a request is under way, but an end always
 * is. */
static void update_poll(struct session *session)
{
	int events = UV_DISCONNECT;
	if (session->is_closing)
		return;
	if (session->pending)
		events |= UV_WRITABLE;
	else if (!session->is_waiting)
		events |= UV_READABLE;
	if (events == session->events) /* libuv would take it out and in again: two system calls */
		return;
	session->events = events;
	uv_poll_start(&session->poll, events, on_events);
}

static void keep_pending(struct session *session, struct request_reply *reply)
{
	session->pending = malloc(reply->length);
	if (!session->pending) {
		if (reply->lease)
			request_take_back(session->requests, reply->lease);
		session_close(session);
		return;
	}
	memcpy(session->pending, reply->bytes, reply->length);
	session->pending_length = reply->length;
	memcpy(session->pending_fds, reply->fds, reply->fd_count * sizeof *reply->fds);
	session->pending_fd_count = reply->fd_count;
	session->pending_lease = reply->lease;
	reply->fd_count = 0;
}

/* Who is gone does not miss it. */
static void tell_unanswered(const struct session *session, int error)
{
	if (error != -EPIPE && error != -ECONNRESET)
		log_warning("a client of uid %" PRIu32 " cannot be answered: %s", session->peer.uid,
			strerror(-error));
}

static void send_reply(struct session *session, struct request_reply *reply)
{
	int r = frame_send(session->sock, reply->bytes, reply->length, reply->fds, reply->fd_count);
	if (r == 0) {
		if (reply->fd_count > 0)
			session->unread_lease = reply->lease;
	} else if (r == -EAGAIN) {
		keep_pending(session, reply);
	} else {
		/* ETOOMANYREFS: too many descriptors are in flight; EPIPE: it is gone. The lease has reached
		 * nobody. */
		tell_unanswered(session, r);
		if (reply->lease)
			request_take_back(session->requests, reply->lease);
		session_close(session);
	}
	desk_close_fds(reply);
}

static void flush_pending(struct session *session)
{
	int r = frame_send(session->sock, session->pending, session->pending_length, session->pending_fds,
		session->pending_fd_count);
	if (r == -EAGAIN)
		return;
	if (r < 0) {
		tell_unanswered(session, r);
		session_close(session);
		return;
	}
	for (size_t i = 0; i < session->pending_fd_count; i++)
		close_fd(session->pending_fds[i]);
	if (session->pending_fd_count > 0)
		session->unread_lease = session->pending_lease;
	session->pending_fd_count = 0;
	session->pending_lease = 0;
	free(steal_pointer(&session->pending));
	if (session->closes_when_sent)
		session_close(session);
}

void session_send(struct session *session, struct request_reply *reply)
{
	session->is_waiting = false;
	if (session->is_closing) {
		desk_close_fds(reply);
		return;
	}
	send_reply(session, reply);
	update_poll(session);
}

/* ---- receiving ---- */

/* A confirmation is the one message that concerns the session as well. */
static void note_ack(struct session *session, const void *message, size_t length)
{
	struct hpz_wire_head head;
	struct hpz_wire_ack ack;
	if (proto_get_head(message, length, false, &head) == 0 && head.op == HPZ_OP_ACK &&
		proto_get_payload(message, length, &ack, sizeof ack) == 0 && ack.id == session->unread_lease)
		session->unread_lease = 0;
}

/* Whether it was answered. */
static bool handle(struct session *session, const void *message, size_t length)
{
	struct requests *requests = session->requests;
	enum request_outcome outcome;
	if (!session->has_hello) {
		outcome = request_handle_hello(requests, message, length, &session->peer.capabilities);
		session->has_hello = outcome == REQUEST_REPLIED;
	} else {
		note_ack(session, message, length);
		outcome = request_handle(
			requests, session, &session->peer, message, length, session->unread_lease);
	}
	switch (outcome) {
	case REQUEST_REPLIED:
		send_reply(session, &requests->reply);
		break;
	case REQUEST_WAITS:
		session->is_waiting = true;
		break;
	case REQUEST_NO_REPLY:
		break;
	case REQUEST_BROKEN:
		metrics_add(METRICS_CONNECTIONS, METRICS_BROKEN, 1);
		session->closes_when_sent = true;
		send_reply(session, &requests->reply);
		if (!session->pending)
			session_close(session);
		break;
	}
	return outcome == REQUEST_REPLIED;
}

static void refuse_message(struct session *session, const char *why)
{
	metrics_add(METRICS_CONNECTIONS, METRICS_BROKEN, 1);
	desk_make_error(session->requests, HPZ_OP_HELLO, 0, HPZ_ERR_PROTOCOL, 0, why);
	session->closes_when_sent = true;
	send_reply(session, &session->requests->reply);
	if (!session->pending)
		session_close(session);
}

static void receive(struct session *session)
{
	static unsigned char message[HPZ_WIRE_MAX_REQUEST];
	bool is_answered = false;
	/* Who waited for an answer has sent nothing more yet, as a rule: to look for it would only keep
	 * others waiting, that one too if we have its CPU. */
	for (int i = 0; i < BATCH_MAX && !is_answered; i++) {
		size_t length;
		int r = frame_receive(session->sock, message, sizeof message, &length, NULL, 0, NULL);
		if (r == -EAGAIN)
			return;
		if (r == FRAME_OK)
			is_answered = handle(session, message, length);
		else if (r == FRAME_TOO_LONG)
			refuse_message(session, "the message is longer than any request");
		else if (r == FRAME_WITHHELD)
			refuse_message(session, "clients send no descriptors");
		else
			session_close(session);
		if (session->is_closing || session->is_waiting || session->pending)
			return;
	}
}

static void on_events(uv_poll_t *poll, int status, int events)
{
	struct session *session = poll->data;
	if (status < 0) {
		session_close(session);
		return;
	}
	if (!session->is_closing && (events & UV_WRITABLE) && session->pending)
		flush_pending(session);
	if (!session->is_closing && (events & UV_READABLE))
		receive(session);
	/* What was sent before the end was read above; an end while something is under way ends that, too. */
	if (!session->is_closing && (events & UV_DISCONNECT) && (session->is_waiting || session->pending))
		session_close(session);
	update_poll(session);
}

int session_open(struct requests *requests, int sock_take, const struct request_peer *user_take,
	void (*closed)(struct session *session, void *user), void *user, struct session **ret_session)
{
	_cleanup_fd_ int sock = sock_take;
	struct request_peer peer = *user_take;
	get_process(sock, &peer);
	struct session *session = calloc(1, sizeof *session);
	if (!session || uv_poll_init(requests->loop, &session->poll, sock) < 0) {
		close_fd(peer.pidfd);
		free(peer.groups);
		free(session);
		return -ENOMEM;
	}
	list_init(&session->link);
	session->requests = requests;
	session->sock = steal_fd(&sock);
	session->peer = peer;
	session->poll.data = session;
	session->closed = closed;
	session->user = user;
	update_poll(session);
	*ret_session = session;
	return 0;
}
