/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * host.h - what the machine has: nodes, page sizes, the kernel's page pools and their counters.
 * Reads and writes sysfs below a root path given at init, so that a test can show it another machine. Blocks
 * only in host_add_nr() and host_compact(): call that from libuv's pool.
 */
#ifndef HPZ_HOST_H
#define HPZ_HOST_H

#include "util.h"

#define HOST_NODES_MAX 1024

struct host {
	char *root;        /* "" for the real one */
	bool has_numa;     /* false: one node 0, counters of the whole machine */
	bool is_simulated; /* counters are made up: pages without end */
	int32_t *nodes;
	size_t node_count;
	uint64_t *page_sizes; /* bytes, ascending */
	size_t page_size_count;
};

/*
 * One kernel page pool of a node. nr includes surplus: what the kernel keeps by order is nr - surplus. resv
 * is known for the whole machine only and stands in full for every node.
 */
struct host_counters {
	uint64_t nr, free, resv, surplus; /* pages */
};

/*
 * root NULL: "". 0 or negative errno. A kernel without NUMA has node 0 and the machine-wide counters; one
 * without huge pages has no page sizes, which is no error.
 */
int host_init(struct host *host, const char *root);
void host_deinit(struct host *host);

bool host_has_node(const struct host *host, int32_t node);
bool host_has_page_size(const struct host *host, uint64_t page_size);

/* -ENOENT: no such node, or none of that page size on it (a node without memory). */
int host_get_counters(
	const struct host *host, int32_t node, uint64_t page_size, struct host_counters *ret_counters);

/*
 * Raises or lowers nr_hugepages of a node by a number of pages relative to what it is now, in one write;
 * reads back. *ret_before, *ret_after tell what really happened, in pages kept by order (nr - surplus:
 * raising first makes these of surplus ones, so that nr alone would hide it). Lowering stops at what is free
 * and not reserved: a page in use never becomes surplus because of us. 0, also for partial success; or
 * negative errno (-ENOENT, -EINVAL, -EACCES, ...). Thread-safe: touches only its arguments.
 */
int host_add_nr(const struct host *host, int32_t node, uint64_t page_size, int64_t pages,
	uint64_t *ret_before, uint64_t *ret_after);

/* Moves what can be moved, so that memory is free in larger pieces: blocks, for seconds on a large node. 0 or
 * negative errno (-ENOENT: a kernel without it). Thread-safe: touches only its arguments. */
int host_compact(const struct host *host, int32_t node);

/*
 * What the kernel splits pages of that size into. -ENOENT: it does not. And has it split free pages of a
 * node; *ret_done is how many it were. Thread-safe: touches only its arguments.
 */
int host_get_demote_size(const struct host *host, uint64_t page_size, uint64_t *ret_page_size);
int host_demote(
	const struct host *host, int32_t node, uint64_t page_size, uint64_t pages, uint64_t *ret_done);

/*
 * Some kernels zero free pages when they are told to (zeroable_hugepages in sysfs: read, how many could be;
 * write N, zero so many now, in the writer's context). How many of a node could be; -ENOENT: this kernel does
 * not offer that. And the file to write to, the caller's.
 */
int host_get_zeroable(const struct host *host, int32_t node, uint64_t page_size, uint64_t *ret_pages);
int host_open_zeroable(const struct host *host, int32_t node, uint64_t page_size);

/* The CPUs of a node for its workers: a list "0-3,8" as sysfs has it; "" when the node has none. -ENOBUFS:
 * too long. */
int host_get_cpulist(const struct host *host, int32_t node, char *ret_list, size_t capacity);

/* A set of CPUs; those with greater numbers cannot be named. */
#define HOST_CPUS_MAX 8192
struct host_cpus {
	unsigned long bits[HOST_CPUS_MAX / (8 * sizeof(unsigned long))];
};
/* "0-3,8" as sysfs and people write it; "" is the empty set. -EINVAL: no such list. */
int host_parse_cpulist(const char *text, struct host_cpus *ret_cpus);
unsigned host_count_cpus(const struct host_cpus *cpus);
/* What is in both. */
void host_and_cpus(const struct host_cpus *a, const struct host_cpus *b, struct host_cpus *ret_cpus);

/* boot_id of the kernel, 36 characters and NUL. */
int host_get_boot_id(const struct host *host, char ret_id[37]);

/* Start time of a process in clock ticks since boot (field 22 of stat), never through its mmap_lock. -ESRCH:
 * gone. */
int host_get_start_time(const struct host *host, pid_t pid, uint64_t *ret_ticks);
/* Command name of a process (comm); what is not printable ASCII (the kernel cuts UTF-8 anywhere) becomes '?'.
 */
int host_get_comm(const struct host *host, pid_t pid, char ret_comm[17]);
/* The real user of a process: whose it is, also while it runs a set-uid program. -ESRCH: gone. */
int host_get_process_uid(const struct host *host, pid_t pid, uint32_t *ret_uid);

#endif
