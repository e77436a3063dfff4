/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * tracer.h - loads the program that sees the end of address spaces (bpf/tracer.bpf.c), for exits.h.
 * Watches nobody itself: it hands over the tables through which that is done. What it loads works as long as
 * somebody has the descriptors.
 */
#ifndef HPZ_TRACER_H
#define HPZ_TRACER_H

#include "util.h"

/* What comes back. The others keep the program at its places in the kernel: one to four. */
enum tracer_fd {
	TRACER_STATES, /* table: struct tracer_key -> struct tracer_state */
	TRACER_ENDED,  /* ring of struct tracer_key: its state is final */
	TRACER_LINKS,
};
#define TRACER_FDS (TRACER_LINKS + 4)

#define TRACER_SEES_BEGIN   1u /* of everybody; else not of a single thread that exits by itself */
#define TRACER_SEES_FLUSHES 2u
#define TRACER_SEES_STEAL   4u

/*
 * Costs some MiB for the kernel's type information while it runs: not for hpzd's own process. How many
 * descriptors, the caller's, are in ret_fds; -EOPNOTSUPP: built without; or another negative errno, and
 * *ret_why a sentence.
 */
int tracer_load(int ret_fds[TRACER_FDS], uint32_t *ret_sees, const char **ret_why);

#endif
