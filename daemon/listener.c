/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* listener.c - the socket clients connect to, and all their sessions. */
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "config.h"
#include "frame.h"
#include "listener.h"
#include "log.h"
#include "metrics.h"

#define BACKLOG      256
#define IN_USE_MS    50
#define IN_USE_LOOKS 20
#define FDS_RESERVED 512 /* descriptors for everything that is not a connection */
#define FDS_EACH     2   /* socket and pidfd of a connection */
#define CONNECTIONS  4096
#define PAUSE_MS     200
#define ACCEPT_BATCH 64

struct listener {
	struct requests *requests;
	uv_loop_t *loop;
	int sock;
	uv_poll_t poll;
	uv_timer_t pause; /* after an accept that failed for want of descriptors */
	struct list sessions;
	unsigned count, max;
	unsigned handles;
	bool is_closing, is_complaining;
	char path[108]; /* "": systemd's */
};

static void on_connection(uv_poll_t *poll, int status, int events);

static void free_if_closed(struct listener *listener)
{
	if (listener->is_closing && listener->handles == 0 && listener->count == 0)
		free(listener);
}

static void on_session_closed(struct session *session, void *user)
{
	struct listener *listener = user;
	list_remove(&session->link);
	listener->count--;
	listener->requests->connections = listener->count;
	free_if_closed(listener);
}

/*
 * Root's own connections are never shut out by somebody else's, and no user has more than half of all,
 * whatever its section says. If not, *ret_text says why.
 */
static bool may_connect(
	struct listener *listener, const struct request_peer *peer, char ret_text[HPZ_WIRE_TEXT])
{
	struct access_rule rule;
	unsigned same = 0;
	snprintf(ret_text, HPZ_WIRE_TEXT, "hpzd has as many connections as it may have");
	if (peer->uid == 0)
		return listener->count < listener->max;
	LIST_FOR_EACH (pos, &listener->sessions)
		same += CONTAINER_OF(pos, struct session, link)->peer.uid == peer->uid;
	if (same >= listener->max / 2 || listener->count >= listener->max - listener->max / 8)
		return false;
	desk_find_rule(listener->requests, peer, &rule);
	if (access_may_connect(&rule, same))
		return true;
	access_explain_limit(
		&rule, "max_connections", rule.section->max_connections, ret_text, HPZ_WIRE_TEXT);
	return false;
}

static void turn_away(struct listener *listener, int sock, const char *why)
{
	struct requests *requests = listener->requests;
	desk_make_error(requests, HPZ_OP_HELLO, 0, HPZ_ERR_BUSY, 0, why);
	frame_send(sock, requests->reply.bytes, requests->reply.length, NULL, 0);
	close_fd(sock);
}

static void take_connection(struct listener *listener, int sock)
{
	struct session *session;
	struct request_peer peer;
	char why[HPZ_WIRE_TEXT];
	int r = session_get_user(sock, &peer);
	if (r == 0 && !may_connect(listener, &peer, why)) {
		metrics_add(METRICS_CONNECTIONS, METRICS_TURNED_AWAY, 1);
		turn_away(listener, sock, why);
		free(peer.groups);
		return;
	}
	if (r == 0)
		r = session_open(listener->requests, sock, &peer, on_session_closed, listener, &session);
	else
		close_fd(sock);
	if (r < 0) {
		log_warning("a connection cannot be served: %s", strerror(-r));
		return;
	}
	metrics_add(METRICS_CONNECTIONS, METRICS_ACCEPTED, 1);
	list_append(&listener->sessions, &session->link);
	listener->count++;
	listener->requests->connections = listener->count;
}

static void on_pause_over(uv_timer_t *timer)
{
	struct listener *listener = timer->data;
	uv_poll_start(&listener->poll, UV_READABLE, on_connection);
}

/* Out of descriptors or memory: the connection stays in the backlog, and the loop must not spin on it. */
static void pause_accepting(struct listener *listener, int error)
{
	if (!listener->is_complaining)
		log_error("cannot accept connections: %s", strerror(error));
	listener->is_complaining = true;
	uv_poll_stop(&listener->poll);
	uv_timer_start(&listener->pause, on_pause_over, PAUSE_MS, 0);
}

static void on_connection(uv_poll_t *poll, int status, int events)
{
	struct listener *listener = poll->data;
	for (int i = 0; i < ACCEPT_BATCH; i++) {
		int sock = accept4(listener->sock, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
		if (sock >= 0) {
			listener->is_complaining = false;
			take_connection(listener, sock);
		} else if (errno == EAGAIN) {
			return;
		} else if (errno != EINTR && errno != ECONNABORTED) {
			pause_accepting(listener, errno);
			return;
		}
	}
}

/* ---- the socket ---- */

static bool is_answered(const struct sockaddr_un *address)
{
	_cleanup_fd_ int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	return sock >= 0 && (connect(sock, (const struct sockaddr *)address, sizeof *address) == 0 ||
				    errno == EAGAIN || errno == EPROTOTYPE);
}

/* A child that a killed hpzd had just forked has its socket, too, until it becomes a worker. */
static bool is_in_use(const struct sockaddr_un *address)
{
	for (int looks = 0; looks < IN_USE_LOOKS; looks++) {
		if (!is_answered(address))
			return false;
		usleep(IN_USE_MS * 1000);
	}
	return true;
}

static int make_socket(const char *path, const char *group, mode_t mode, const char **ret_why)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	gid_t gid = getegid();
	*ret_why = "its group does not exist";
	int r = *group ? config_find_group(group, &gid) : 0;
	if (r < 0)
		return r;
	*ret_why = "it cannot be made";
	if (strlen(path) >= sizeof address.sun_path)
		return -ENAMETOOLONG;
	strcpy(address.sun_path, path);
	_cleanup_fd_ int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (sock < 0)
		return -errno;
	*ret_why = "somebody answers at it";
	if (is_in_use(&address))
		return -EADDRINUSE;
	*ret_why = "it cannot be made";
	if (unlink(path) < 0 && errno != ENOENT)
		return -errno;
	/* Nobody can connect before it listens, so its mode is right before anybody comes. */
	mode_t mask = umask(0177);
	r = bind(sock, (struct sockaddr *)&address, sizeof address) < 0 ? -errno : 0;
	umask(mask);
	if (r < 0)
		return r;
	if (chown(path, geteuid(), gid) < 0 || chmod(path, mode) < 0 || listen(sock, BACKLOG) < 0)
		return -errno;
	return steal_fd(&sock);
}

static unsigned get_connections_max(void)
{
	struct rlimit limit = {1024, 1024};
	getrlimit(RLIMIT_NOFILE, &limit);
	rlim_t room = limit.rlim_cur > FDS_RESERVED ? (limit.rlim_cur - FDS_RESERVED) / FDS_EACH : 16;
	return (unsigned)MIN(room, (rlim_t)CONNECTIONS);
}

int listener_open(struct requests *requests, uv_loop_t *loop, const char *path, const char *group,
	mode_t mode, int passed, struct listener **ret_listener, const char **ret_why)
{
	_cleanup_fd_ int sock = passed;
	if (sock < 0)
		sock = make_socket(path, group, mode, ret_why);
	if (sock < 0)
		return steal_fd(&sock);
	*ret_why = "it cannot be watched";
	if (fcntl(sock, F_SETFL, O_NONBLOCK) < 0)
		return -errno;
	struct listener *listener = calloc(1, sizeof *listener);
	if (!listener || uv_poll_init(loop, &listener->poll, sock) < 0) {
		free(listener);
		return -ENOMEM;
	}
	uv_timer_init(loop, &listener->pause);
	listener->requests = requests;
	listener->loop = loop;
	listener->sock = steal_fd(&sock);
	listener->poll.data = listener->pause.data = listener;
	listener->handles = 2;
	listener->max = get_connections_max();
	list_init(&listener->sessions);
	if (passed < 0)
		snprintf(listener->path, sizeof listener->path, "%s", path);
	uv_poll_start(&listener->poll, UV_READABLE, on_connection);
	*ret_listener = listener;
	return 0;
}

static void on_handle_closed(uv_handle_t *handle)
{
	struct listener *listener = handle->data;
	if (--listener->handles == 0)
		listener->sock = close_fd(listener->sock);
	free_if_closed(listener);
}

void listener_close(struct listener *listener)
{
	listener->is_closing = true;
	if (listener->path[0])
		unlink(listener->path);
	LIST_FOR_EACH_SAFE (pos, &listener->sessions)
		session_close(CONTAINER_OF(pos, struct session, link));
	uv_close((uv_handle_t *)&listener->poll, on_handle_closed);
	uv_close((uv_handle_t *)&listener->pause, on_handle_closed);
}
