/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * listener.h - the socket clients connect to, and all their sessions.
 * Owns the listening socket (made here, or given by systemd) and the limits on connections.
 */
#ifndef HPZ_LISTENER_H
#define HPZ_LISTENER_H

#include "session.h"

struct listener;

/*
 * `passed` >= 0: a listening socket of systemd, consumed. Else one is made at `path` (with `mode`, `group` or
 * root's; a dead predecessor's socket is replaced: the caller holds the run directory's lock). -errno,
 * *ret_why a sentence.
 */
int listener_open(struct requests *requests, uv_loop_t *loop, const char *path, const char *group,
	mode_t mode, int passed, struct listener **ret_listener, const char **ret_why);
/* Closes the socket and every session; the memory goes with the last of them. */
void listener_close(struct listener *listener);

#endif
