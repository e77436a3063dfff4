/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * cgroup.h - under systemd: memory workers in a cgroup of their own, beside those of VMs, with a weight.
 * Asks the manager over its bus and never waits for it: a worker works before the answer, and as well where
 * it is when the answer is no. Touches no cgroup itself.
 */
#ifndef HPZ_CGROUP_H
#define HPZ_CGROUP_H

#include <uv.h>
#include "worker.h"

#define CGROUP_SLICE   "hpz.slice"
#define CGROUP_AT_REST (-1)

struct cgroup;

/* A way to the manager. */
struct cgroup_bus {
	const char *address;
	bool is_broker; /* others are on it, too: it wants to be greeted */
};

/* The system bus, which is the manager's API; its private socket, for a host without that bus. */
#define CGROUP_BUSES 2
extern const struct cgroup_bus cgroup_buses[CGROUP_BUSES];

/* The unit that hpzd is the main process of, as systemd's own processes know it; NULL: none. The caller's. */
char *cgroup_find_unit(void);

/*
 * `buses` are tried in order and must outlive it, `unit` is copied. Connects only while there is something to
 * say: an idle hpzd is not woken by what else happens on a bus. 0 or negative errno.
 */
int cgroup_open(uv_loop_t *loop, const char *unit, const struct cgroup_bus *buses, size_t bus_count,
	struct cgroup **ret_cgroup);
/* It frees itself from the loop. Workers stay where they are. */
void cgroup_close(struct cgroup *cgroup);

/* In all of these NULL is nobody to ask, and nothing happens. */

/* A worker of the node has started; has ended. */
void cgroup_join(struct cgroup *cgroup, int32_t node, pid_t pid);
void cgroup_leave(struct cgroup *cgroup, int32_t node, pid_t pid);
/* The highest level of what the node's workers do (enum worker_level), or CGROUP_AT_REST. */
void cgroup_set_level(struct cgroup *cgroup, int32_t node, int level);

#endif
