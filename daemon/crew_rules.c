/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* crew_rules.c - what hpzd tells all memory workers of a node. */
#include <inttypes.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "crew_rules.h"
#include "log.h"

int crew_rules_open(struct crew_rules *rules)
{
	_cleanup_fd_ int fd = memfd_create("hpzd-rules", MFD_CLOEXEC);
	if (fd < 0)
		return -errno;
	if (ftruncate(fd, sizeof *rules->page) < 0)
		return -errno;
	void *page = mmap(NULL, sizeof *rules->page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (page == MAP_FAILED)
		return -errno;
	*rules = (struct crew_rules){.fd = steal_fd(&fd), .page = page};
	return 0;
}

void crew_rules_close(struct crew_rules *rules)
{
	if (rules->page)
		munmap(rules->page, sizeof *rules->page);
	rules->page = NULL;
	rules->fd = close_fd(rules->fd);
}

/* ---- CPUs ---- */

void crew_rules_find_cpus(const struct host *host, int32_t node, const char *cpus, struct host_cpus *ret_cpus)
{
	char list[4096] = "";
	struct host_cpus wanted = {{0}}, of_node = {{0}};
	if (host_get_cpulist(host, node, list, sizeof list) < 0 || host_parse_cpulist(list, &of_node) < 0)
		of_node = (struct host_cpus){{0}};
	*ret_cpus = of_node;
	if (strcmp(cpus, "all") == 0 || host_parse_cpulist(cpus, &wanted) < 0)
		return;
	host_and_cpus(&wanted, &of_node, ret_cpus);
	/* A node without CPUs, or all of its are for others: the operator's word counts more than nearness.
	 */
	if (host_count_cpus(ret_cpus) == 0)
		*ret_cpus = wanted;
}

/* Two nearly fill a node's memory bus, four do. */
#define AUTO_WORKERS_MAX 4u

unsigned crew_rules_count_workers(const struct crew_rules *rules, const struct config_clear *clear)
{
	unsigned cpus = (unsigned)host_count_cpus(&rules->cpus);
	return clear->workers ? clear->workers : MIN(MAX(cpus, 1u), AUTO_WORKERS_MAX);
}

void crew_rules_place(const struct crew_rules *rules, pid_t pid)
{
	if (host_count_cpus(&rules->cpus) == 0)
		return;
	if (sched_setaffinity(pid, sizeof rules->cpus.bits, (const cpu_set_t *)rules->cpus.bits) < 0)
		log_warning("worker %d cannot be moved to its CPUs: %s; it stays where it is", (int)pid,
			strerror(errno));
}

/* ---- scheduling class ---- */

void crew_rules_set_class(pid_t pid, enum worker_level level)
{
	struct sched_param none = {0};
	int policy = SCHED_OTHER, nice_value = 0;
	switch (level) {
	case WORKER_LEVEL_IDLE:
		policy = SCHED_IDLE;
		break;
	case WORKER_LEVEL_REFILL:
		/*
		 * Beside one busy process on its CPU a worker gets its weight's share of it: 1.4 % at nice
		 * 19, 24.6 at 5, 34 at 3. Below the low watermark it has to get at least a quarter of what it
		 * does alone.
		 */
		policy = SCHED_BATCH;
		nice_value = 3;
		break;
	case WORKER_LEVEL_URGENT:
		break;
	}
	if (sched_setscheduler(pid, policy, &none) < 0 ||
		setpriority(PRIO_PROCESS, (id_t)pid, nice_value) < 0)
		log_debug("cannot set the class of worker %d: %s", (int)pid, strerror(errno));
}

/* ---- the page ---- */

void crew_rules_set(
	struct crew_rules *rules, int32_t node, const struct host *host, const struct config_clear *clear)
{
	struct pressure_rules *page = rules->page;
	atomic_store(&page->is_off, !clear->is_enabled);
	atomic_store(&page->is_scavenger, clear->is_scavenger);
	if (!clear->is_scavenger)
		atomic_store(&page->backoff, 0);
	if (atomic_exchange(&page->rate_bytes_per_s, clear->rate_bytes_per_s) != clear->rate_bytes_per_s)
		atomic_store(&page->next_ns, 0); /* what was promised at the old rate */
	if (host)
		crew_rules_find_cpus(host, node, clear->cpus, &rules->cpus);
	pressure_bump(page);
}

void crew_rules_set_paused(struct crew_rules *rules, uint32_t paused)
{
	if (atomic_exchange(&rules->page->paused, paused) != paused)
		pressure_bump(rules->page);
}
