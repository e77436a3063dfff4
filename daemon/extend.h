/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * extend.h - makes a clean segment longer, or a new one, for somebody who waits: the kernel zeroes what is
 * missing, several workers at a time.
 * Owns these jobs and, while they run, the segment in filling/. Chooses nothing (planner does). Whatever
 * becomes of hpzd meanwhile, the file has zero pages and holes only: the next one fills it and publishes it.
 */
#ifndef HPZ_EXTEND_H
#define HPZ_EXTEND_H

#include "reconcile.h"

struct extend;

/*
 * 0: the segment is clean and whole, nobody's yet. Else it is gone, or left to whoever fills; -ENOSPC: the
 * kernel had not enough pages after all. Called once, never from inside extend_start().
 */
typedef void (*extend_done_cb)(struct pool_segment *segment, int error, void *user);

/*
 * `segment` is clean and nobody's; NULL: a new one. -EUCLEAN: it is not fit (somebody opened it), another may
 * be; or another negative errno. Then nothing is under way, and the segment is clean, filling or gone.
 */
int extend_start(struct reconcile *reconcile, struct pool *pool, struct pool_segment *segment, uint64_t pages,
	extend_done_cb done, void *user, struct extend **ret_extend);
/* Nobody wants it any more: it is finished all the same, but not in a pool that is being drained. */
void extend_abandon(struct extend *extend);

#endif
