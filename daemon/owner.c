/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* owner.c - notices the end of processes that own leases: see owner.h. */
#include <fcntl.h>
#include <poll.h>

#include "owner.h"

#define IDLE_MAX 16 /* who leases again and again costs no new watch each time */

struct owner {
	struct list link; /* owners.buckets; unlinked: no further share is to come */
	struct owners *owners;
	pid_t pid;
	uint64_t pid_start;
	int pidfd;
	uv_poll_t poll;
	bool is_gone;
	struct list shares;
};

void owner_init(struct owners *owners, uv_loop_t *loop)
{
	*owners = (struct owners){.loop = loop};
	for (size_t i = 0; i < OWNER_HASH; i++)
		list_init(&owners->buckets[i]);
}

bool owner_is_alive(int pidfd)
{
	struct pollfd look = {.fd = pidfd, .events = POLLIN};
	return poll(&look, 1, 0) == 0;
}

/* ---- the end of a watch ---- */

static void on_closed(uv_handle_t *handle)
{
	struct owner *owner = handle->data;
	struct owners *owners = owner->owners;
	close_fd(owner->pidfd);
	free(owner);
	owners->open--;
	if (owners->is_closing && owners->open == 0)
		owners->closed(owners->user);
}

static void close_owner(struct owner *owner)
{
	list_remove(&owner->link);
	uv_close((uv_handle_t *)&owner->poll, on_closed);
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
	if (owners->open == 0)
		closed(user);
}

/* ---- the end of a process ---- */

static void on_gone(uv_poll_t *poll, int status, int events)
{
	struct owner *owner = poll->data;
	uv_poll_stop(poll);
	owner->is_gone = true;
	list_remove(&owner->link);
	if (list_is_empty(&owner->shares)) {
		owner->owners->idle--;
		close_owner(owner);
		return;
	}
	/* Whoever is told may leave, but takes nobody else's share with it. */
	LIST_FOR_EACH_SAFE (pos, &owner->shares) {
		struct owner_share *share = CONTAINER_OF(pos, struct owner_share, link);
		share->gone(share);
	}
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
	int r = owner->pidfd < 0 ? -errno : uv_poll_init(owners->loop, &owner->poll, owner->pidfd);
	if (r < 0) {
		close_fd(owner->pidfd);
		free(owner);
		return r;
	}
	owner->poll.data = owner;
	owners->open++;
	owners->idle++; /* until its first share */
	uv_poll_start(&owner->poll, UV_READABLE, on_gone);
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
		close_owner(owner);
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
