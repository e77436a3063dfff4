/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * pressure_psi.h - how long others wait for a CPU or for memory, as the kernel counts it (/proc/pressure).
 * Reads below the host's root; what follows from the numbers is pure.
 */
#ifndef HPZ_PRESSURE_PSI_H
#define HPZ_PRESSURE_PSI_H

#include "config.h"
#include "host.h"

struct pressure_psi {
	bool is_paused;
	uint64_t total_us, at_ns; /* of the last look; at_ns 0: there was none */
	double percent;           /* of the time between the last two looks, without our own */
};

/* `some total=` of /proc/pressure/RESOURCE. -ENOENT, -EOPNOTSUPP: this kernel does not count it. */
int pressure_read_psi(const struct host *host, const char *resource, uint64_t *ret_total_us);
/* Time since boot that CPUs were not idle, all together. */
int pressure_read_busy(const struct host *host, uint64_t *ret_busy_ns);

/* What a process did since its start: on a CPU, and waiting for one (until it got it). */
struct pressure_sched {
	uint64_t ran_ns, waited_ns;
};
int pressure_read_sched(const struct host *host, pid_t pid, struct pressure_sched *ret_sched);

/*
 * How long a worker waited for a CPU in a window. The kernel counts a wait when it is over, so the one under
 * way is found by what is left of the window: neither on a CPU nor resting (worker.h).
 */
uint64_t pressure_get_wait_ns(uint64_t window_ns, uint64_t ran_ns, uint64_t waited_ns, uint64_t rested_ns);

/*
 * What `some` would have been without our workers' waits. Linux weighs each CPU's share by how busy it is: a
 * wait on one of N busy CPUs makes 1/N of it. Time in which both waited counts as ours: a lower bound while
 * our workers run, exact while they are paused.
 */
uint64_t pressure_subtract_own_us(uint64_t some_us, uint64_t own_ns, double busy_cpus);

/* The next look: share of time since the last, pause or go on. Returns psi->is_paused. */
bool pressure_judge_psi(struct pressure_psi *psi, const struct config_psi *limits, uint64_t total_us,
	uint64_t own_ns, double busy_cpus, uint64_t now_ns);

#endif
