/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* pressure_psi.c - how long others wait for a CPU or for memory, as the kernel counts it. */
#include <inttypes.h>
#include <limits.h>

#include "pressure_psi.h"

int pressure_read_psi(const struct host *host, const char *resource, uint64_t *ret_total_us)
{
	char path[PATH_MAX], line[256];
	snprintf(path, sizeof path, "%s/proc/pressure/%s", host->root, resource);
	_cleanup_file_ FILE *file = fopen(path, "re");
	if (!file)
		return -errno;
	errno = 0;
	while (fgets(line, sizeof line, file)) {
		if (sscanf(line, "some avg10=%*f avg60=%*f avg300=%*f total=%" SCNu64, ret_total_us) == 1)
			return 0;
	}
	/* psi=0 on the kernel's command line: the file is there, and every read is EOPNOTSUPP. */
	return errno ? -errno : -EBADMSG;
}

int pressure_read_busy(const struct host *host, uint64_t *ret_busy_ns)
{
	char path[PATH_MAX], line[1024];
	snprintf(path, sizeof path, "%s/proc/stat", host->root);
	_cleanup_file_ FILE *file = fopen(path, "re");
	if (!file)
		return -errno;
	/* The first line sums up all CPUs: user nice system idle iowait irq softirq steal; guest is in user.
	 */
	uint64_t user, nice, system, idle, iowait, irq, softirq, steal;
	if (!fgets(line, sizeof line, file) ||
		sscanf(line,
			"cpu %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64
			" %" SCNu64,
			&user, &nice, &system, &idle, &iowait, &irq, &softirq, &steal) != 8)
		return -EBADMSG;
	long ticks = sysconf(_SC_CLK_TCK);
	*ret_busy_ns = (user + nice + system + irq + softirq + steal) * (NS_PER_S / (uint64_t)MAX(ticks, 1));
	return 0;
}

int pressure_read_sched(const struct host *host, pid_t pid, struct pressure_sched *ret_sched)
{
	char path[PATH_MAX], line[128];
	snprintf(path, sizeof path, "%s/proc/%d/schedstat", host->root, (int)pid);
	_cleanup_file_ FILE *file = fopen(path, "re");
	if (!file)
		return -errno;
	struct pressure_sched sched;
	if (!fgets(line, sizeof line, file) ||
		sscanf(line, "%" SCNu64 " %" SCNu64, &sched.ran_ns, &sched.waited_ns) != 2)
		return -EBADMSG;
	*ret_sched = sched;
	return 0;
}

uint64_t pressure_get_wait_ns(uint64_t window_ns, uint64_t ran_ns, uint64_t waited_ns, uint64_t rested_ns)
{
	uint64_t left_ns = window_ns - MIN(window_ns, ran_ns + rested_ns);
	return MIN(MAX(waited_ns, left_ns), window_ns);
}

uint64_t pressure_subtract_own_us(uint64_t some_us, uint64_t own_ns, double busy_cpus)
{
	uint64_t own_us = (uint64_t)((double)own_ns / 1000 / MAX(busy_cpus, 1.0));
	return some_us - MIN(some_us, own_us);
}

bool pressure_judge_psi(struct pressure_psi *psi, const struct config_psi *limits, uint64_t total_us,
	uint64_t own_ns, double busy_cpus, uint64_t now_ns)
{
	uint64_t window_us = (now_ns - MIN(now_ns, psi->at_ns)) / 1000;
	if (psi->at_ns > 0 && window_us > 0 && total_us >= psi->total_us) {
		uint64_t others_us = pressure_subtract_own_us(total_us - psi->total_us, own_ns, busy_cpus);
		psi->percent = MIN(100.0, 100.0 * (double)others_us / (double)window_us);
		if (psi->percent > limits->pause_percent)
			psi->is_paused = true;
		else if (psi->percent < limits->resume_percent)
			psi->is_paused = false;
	}
	psi->total_us = total_us;
	psi->at_ns = now_ns;
	return psi->is_paused;
}
