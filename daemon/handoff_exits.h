/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * handoff_exits.h - whose ends belong to which lease. Used by handoff.c only.
 * An fd lease has its owner process. A path lease names none: once it is opened a helper looks who has it
 * open. Those found are watched for what their end costs, and for nothing else: the lease does not end with
 * them.
 */
#ifndef HPZ_HANDOFF_EXITS_H
#define HPZ_HANDOFF_EXITS_H

#include "exits.h"
#include "lease.h"

struct handoff_exits;

/* `seen`: the end of one that had this lease, which may be over (NULL). Also several times a lease. */
typedef void (*handoff_exits_cb)(
	uint64_t id, const struct lease *lease, const struct exits_seen *seen, void *user);

int handoff_exits_init(uv_loop_t *loop, struct crew *crew, struct owners *owners,
	const struct lease_table *leases, handoff_exits_cb seen, void *user,
	struct handoff_exits **ret_exits);
/* From now on, see exits_set_mode(). */
void handoff_exits_set_mode(struct handoff_exits *exits, enum config_teardown mode);
void handoff_exits_close(struct handoff_exits *exits, void (*closed)(void *user), void *user);
void handoff_exits_free(struct handoff_exits *exits);
const struct exits *handoff_exits_get(const struct handoff_exits *exits);

/* The lease has this owner process now (`pidfd` is borrowed), or with -1 none. */
void handoff_exits_set_owner(struct handoff_exits *exits, const struct lease *lease, int pidfd);
/* It was opened: by whom is found out, unless that is known. */
void handoff_exits_search(struct handoff_exits *exits, const struct lease *lease);
/* It begins to return. */
void handoff_exits_sample(struct handoff_exits *exits, const struct lease *lease);
/* It is over: what is known of its holders' ends is told first. */
void handoff_exits_hurry(struct handoff_exits *exits, const struct lease *lease);
/* It is forgotten. Of processes that are over already the end is still told. */
void handoff_exits_leave(struct handoff_exits *exits, const struct lease *lease);

#endif
