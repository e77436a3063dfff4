/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * crew_rules.h - what hpzd tells all memory workers of a node: the page of rules, and where and how they run.
 * All of it is done to them from outside; nothing is asked of a worker that may be caught in a low class.
 */
#ifndef HPZ_CREW_RULES_H
#define HPZ_CREW_RULES_H

#include "config.h"
#include "host.h"
#include "worker.h"

struct crew_rules {
	int fd; /* of the page, for workers to inherit */
	struct pressure_rules *page;
	struct host_cpus cpus; /* none: not known, workers run where hpzd does */
};

/* Rules that hold nothing up. 0 or negative errno. */
int crew_rules_open(struct crew_rules *rules);
void crew_rules_close(struct crew_rules *rules);

/*
 * The part of [clear] that is the workers': whoever waits sees it at once. host NULL: CPUs are left as they
 * are. Says in the log what cannot be had.
 */
void crew_rules_set(
	struct crew_rules *rules, int32_t node, const struct host *host, const struct config_clear *clear);
/* PRESSURE_PAUSE_* */
void crew_rules_set_paused(struct crew_rules *rules, uint32_t paused);

/* CPUs for a worker of the node: those of `cpus` that are the node's; if none is, those of `cpus` alone. */
void crew_rules_find_cpus(
	const struct host *host, int32_t node, const char *cpus, struct host_cpus *ret_cpus);

/* How many workers the node may have: as [clear] says, or as many as it has CPUs for them, at most 4. */
unsigned crew_rules_count_workers(const struct crew_rules *rules, const struct config_clear *clear);

/* Moves a worker to the node's CPUs, also in mid-job. */
void crew_rules_place(const struct crew_rules *rules, pid_t pid);
void crew_rules_set_class(pid_t pid, enum worker_level level);

#endif
