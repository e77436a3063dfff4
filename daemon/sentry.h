/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * sentry.h - notices when somebody else opens clean memory.
 * Owns one inotify watch on each pool's clean/ directory: hpzd and its workers open nothing there, and a
 * watch on the directory adds nothing to the files' counts. What was opened is marked suspect and, if it is
 * still clean, made dirty. Proves and clears nothing: reconcile does.
 */
#ifndef HPZ_SENTRY_H
#define HPZ_SENTRY_H

#include <uv.h>

#include "pool.h"

struct sentry;

/* `changed` is called when something was made dirty. 0 or negative errno. */
int sentry_init(uv_loop_t *loop, void (*changed)(void *user), void *user, struct sentry **ret_sentry);
/* Handles are closed; whoever runs the loop waits for that. */
void sentry_close(struct sentry *sentry);
void sentry_free(struct sentry *sentry);

void sentry_add_pool(struct sentry *sentry, struct pool *pool);
void sentry_remove_pool(struct sentry *sentry, struct pool *pool);

/* All that has happened until now: an open that has returned is known afterwards. */
void sentry_look(struct sentry *sentry);

#endif
