/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * bench_memory.h - warm memory for both sides of a benchmark: huge pages that are free in the kernel's pool,
 * for whoever has the kernel zero them, and others that are clean in an hpzd of the benchmark's own.
 */
#ifndef HPZ_BENCH_MEMORY_H
#define HPZ_BENCH_MEMORY_H

#include "bench_daemon.h"
#include "bench_pages.h"

struct bench_memory {
	struct bench_pages pages; /* all of them; none of them is in use by it */
	struct bench_daemon daemon;
};

struct bench_memory_wish {
	const char *name; /* of the daemon */
	const struct host *host;
	int32_t node;
	uint64_t page_size;
	uint64_t kernel_bytes, hpz_bytes; /* whole pages */
	const char *stock;                /* of hpz_bytes, as in hpzd.conf */
};

/*
 * bench_daemon_prepare() comes first, and bench_catch_signals(). From now on this thread and its children
 * allocate huge pages on that node. 0, -ENOSPC (the machine has not so many), or a negative errno; it has
 * been said, unless a signal came. On failure nothing is left.
 */
int bench_memory_open(const struct bench_memory_wish *wish, struct bench_memory *ret_memory);
/* Its leases have ended by then. A zeroed struct is nothing to close. */
void bench_memory_close(struct bench_memory *memory);

/*
 * A new anonymous mapping of the kernel's huge pages, which are not there yet: they are zeroed when they are
 * touched, or by MAP_POPULATE in `flags`. NULL: errno says why.
 */
void *bench_memory_map_kernel(uint64_t page_size, uint64_t bytes, int flags);

#endif
