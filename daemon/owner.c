/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * owner.c - notices the end of processes that own leases: see owner.h.
 *
 * All pidfds are in an epoll of their own, which is one handle in the loop: a handle for each would take
 * libuv five system calls to begin and two to end, on the way of every lease of a new process.
 */
#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>

#include "owner.h"

#define IDLE_MAX 16 /* who leases again and again costs no new watch each time */

struct owner {
	struct list link; /* owners.buckets; unlinked: no further share is to come */
	struct owners *owners;
	pid_t pid;
	uint64_t pid_start;
	int pidfd;
	bool is_gone;
	bool is_telling; /* its shares of its end: it stays until all know */
	struct list shares;
};

static void on_readable(uv_poll_t *poll, int status, int events);

int owner_init(struct owners *owners, uv_loop_t *loop)
{
	*owners = (struct owners){.epoll_fd = epoll_create1(EPOLL_CLOEXEC)};
	for (size_t i = 0; i < OWNER_HASH; i++)
		list_init(&owners->buckets[i]);
	if (owners->epoll_fd < 0)
		return -errno;
	int r = uv_poll_init(loop, &owners->poll, owners->epoll_fd);
	if (r < 0) {
		owners->epoll_fd = close_fd(owners->epoll_fd);
		return r;
	}
	owners->poll.data = owners;
	uv_poll_start(&owners->poll, UV_READABLE, on_readable);
	return 0;
}

bool owner_is_alive(int pidfd)
{
	struct pollfd look = {.fd = pidfd, .events = POLLIN};
	return poll(&look, 1, 0) == 0;
}

/* ---- the end of a watch ---- */

static void close_owner(struct owner *owner)
{
	list_remove(&owner->link);
	/* Others may have the same description, and with it the place would stay. */
	epoll_ctl(owner->owners->epoll_fd, EPOLL_CTL_DEL, owner->pidfd, NULL);
	close_fd(owner->pidfd);
	owner->owners->open--;
	free(owner);
}

static void on_closed(uv_handle_t *handle)
{
	struct owners *owners = handle->data;
	close_fd(owners->epoll_fd);
	if (owners->closed)
		owners->closed(owners->user);
}

void owner_close_all(struct owners *owners, void (*closed)(void *user), void *user)
{
	owners->is_closing = true;
	owners->closed = closed;
	owners->user = user;
	for (size_t i = 0; i < OWNER_HASH; i++) {
		LIST_FOR_EACH_SAFE (pos, &owners->buckets[i])
			close_owner(CONTAINER_OF(pos, struct owner, link));
	}
	uv_close((uv_handle_t *)&owners->poll, on_closed);
}

/* ---- the end of a process ---- */

static void close_if_unused(struct owner *owner)
{
	if (list_is_empty(&owner->shares) && !owner->is_telling)
		close_owner(owner);
}

static void tell(struct owner *owner)
{
	owner->is_gone = owner->is_telling = true;
	list_remove(&owner->link);
	owner->owners->idle -= list_is_empty(&owner->shares);
	/* Whoever is told may leave, but takes nobody else's share with it. */
	LIST_FOR_EACH_SAFE (pos, &owner->shares) {
		struct owner_share *share = CONTAINER_OF(pos, struct owner_share, link);
		share->gone(share);
	}
	owner->is_telling = false;
	close_if_unused(owner);
}

static void on_readable(uv_poll_t *poll, int status, int events)
{
	const struct owners *owners = poll->data;
	struct epoll_event event;
	/* One at a time: what is told of one may close another. */
	while (!owners->is_closing && epoll_wait(owners->epoll_fd, &event, 1, 0) == 1)
		tell(event.data.ptr);
}

/* ---- shares ---- */

static struct list *find_bucket(struct owners *owners, pid_t pid)
{
	return &owners->buckets[(unsigned)pid % OWNER_HASH];
}

static struct owner *find_owner(struct owners *owners, pid_t pid, uint64_t pid_start)
{
	LIST_FOR_EACH (pos, find_bucket(owners, pid)) {
		struct owner *owner = CONTAINER_OF(pos, struct owner, link);
		if (owner->pid == pid && owner->pid_start == pid_start && pid_start > 0)
			return owner;
	}
	return NULL;
}

static int make_owner(
	struct owners *owners, pid_t pid, uint64_t pid_start, int pidfd, struct owner **ret_owner)
{
	struct owner *owner = calloc(1, sizeof *owner);
	if (!owner)
		return -ENOMEM;
	list_init(&owner->link);
	list_init(&owner->shares);
	owner->owners = owners;
	owner->pid = pid;
	owner->pid_start = pid_start;
	owner->pidfd = fcntl(pidfd, F_DUPFD_CLOEXEC, 3);
	struct epoll_event end = {.events = EPOLLIN | EPOLLONESHOT, .data.ptr = owner};
	if (owner->pidfd < 0 || epoll_ctl(owners->epoll_fd, EPOLL_CTL_ADD, owner->pidfd, &end) < 0) {
		int error = -errno;
		close_fd(owner->pidfd);
		free(owner);
		return error;
	}
	owners->open++;
	owners->idle++; /* until its first share */
	/* Of one that is gone already the time may be another's. */
	if (owner_is_alive(pidfd))
		list_append(find_bucket(owners, pid), &owner->link);
	*ret_owner = owner;
	return 0;
}

int owner_join(struct owners *owners, pid_t pid, uint64_t pid_start, int pidfd, struct owner_share *share)
{
	struct owner *owner = find_owner(owners, pid, pid_start);
	int r = owner ? 0 : make_owner(owners, pid, pid_start, pidfd, &owner);
	if (r < 0)
		return r;
	owners->idle -= list_is_empty(&owner->shares);
	list_append(&owner->shares, &share->link);
	share->owner = owner;
	return 0;
}

void owner_leave(struct owner_share *share)
{
	struct owner *owner = steal_pointer(&share->owner);
	if (!owner)
		return;
	list_remove(&share->link);
	if (!list_is_empty(&owner->shares))
		return;
	struct owners *owners = owner->owners;
	if (list_is_empty(&owner->link) || owners->is_closing || owners->idle >= IDLE_MAX)
		close_if_unused(owner);
	else
		owners->idle++;
}

bool owner_lives(const struct owner_share *share)
{
	return share->owner && !share->owner->is_gone && owner_is_alive(share->owner->pidfd);
}

bool owner_is_known(const struct owner_share *share)
{
	return share->owner && !list_is_empty(&share->owner->link);
}

int owner_get_pidfd(const struct owner_share *share)
{
	return share->owner ? share->owner->pidfd : -1;
}
