/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * owner.h - notices the end of processes that own leases, or hold the memory of one: one watch each, however
 * many leases they have, and whoever wants to know (handoff.c ends leases, exits.c measures ends).
 * Owns a pidfd and its place in the loop per process. Ends no lease: whoever shares a watch is called.
 */
#ifndef HPZ_OWNER_H
#define HPZ_OWNER_H

#include <sys/types.h>
#include <uv.h>

#include "util.h"

#define OWNER_HASH 1024

struct owners {
	int epoll_fd; /* of all pidfds */
	uv_poll_t poll;
	struct list buckets[OWNER_HASH]; /* struct owner.link, by pid */
	unsigned open;                   /* not yet freed */
	unsigned idle;                   /* of nobody now, kept for their next lease */
	bool is_closing;
	void (*closed)(void *user);
	void *user;
};

/* One who wants to know of the end of a process; unused while `owner` is NULL. */
struct owner_share {
	struct list link;
	struct owner *owner;
	void (*gone)(struct owner_share *share);
};

/* 0 or negative errno; the struct stays where it is from then on. */
int owner_init(struct owners *owners, uv_loop_t *loop);
/* Calls back (`closed` may be NULL) when the handle is closed. Shares are left before. */
void owner_close_all(struct owners *owners, void (*closed)(void *user), void *user);

/*
 * The process of that id that began then (0: not known), which the pidfd (borrowed) holds on to. 0 or
 * negative errno: then it is not watched, and nobody will be called.
 */
int owner_join(struct owners *owners, pid_t pid, uint64_t pid_start, int pidfd, struct owner_share *share);
void owner_leave(struct owner_share *share);
/* Whether the process is watched and runs. */
bool owner_lives(const struct owner_share *share);
/* Whether it ran when it was first watched, so that its time is its own, and its end is not told yet. */
bool owner_is_known(const struct owner_share *share);
/* Borrowed, while it is watched. */
int owner_get_pidfd(const struct owner_share *share);

/* Whether it runs; what was read of its id before is then its own, and not that of one with the same id. */
bool owner_is_alive(int pidfd);

#endif
