/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* exits_pidfd.h - how a process ended, of one that is no child of ours. Used by exits.c only. */
#ifndef HPZ_EXITS_PIDFD_H
#define HPZ_EXITS_PIDFD_H

#include "exits.h"

/*
 * Of one that its pidfd says is over: from /proc while its parent has not waited for it, then from the pidfd
 * itself (Linux 6.15). Else `how` stays as it is.
 */
void exits_pidfd_look(pid_t pid, uint64_t pid_start, int pidfd, struct exits_seen *seen);

/* The exit code out of a line of /proc/PID/stat. 0, -ESRCH: it is of another process; -EINVAL. */
int exits_parse_stat(const char *line, uint64_t pid_start, int *ret_code);

#endif
