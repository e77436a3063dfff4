/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * bench_holder.h - a process that maps memory, writes to some of it and ends, and how long its end takes.
 * What is written to is never only read: reading private memory that nobody wrote maps the kernel's page of
 * zeros, a huge one under THP, and no memory of its own.
 */
#ifndef HPZ_BENCH_HOLDER_H
#define HPZ_BENCH_HOLDER_H

#include "bench_trace.h"

enum bench_backing {
	BENCH_BACKING_4K,     /* anonymous, no THP; whatever the machine's smallest page is */
	BENCH_BACKING_THP,    /* anonymous, madvise(MADV_HUGEPAGE) */
	BENCH_BACKING_HUGE,   /* anonymous huge pages */
	BENCH_BACKING_SHARED, /* huge pages of a file, MAP_SHARED, aligned so that page tables can be shared
			       */
	BENCH_BACKING_LEASED  /* the same, as hpz_map() maps a lease, by an hpzd */
};

enum bench_end { BENCH_END_EXIT, BENCH_END_MUNMAP, BENCH_END_KILL, BENCH_ENDS };

#define BENCH_SHARERS_MAX 8

struct bench_holder_wish {
	enum bench_backing backing;
	enum bench_end end;
	uint64_t page_size;   /* of HUGE, SHARED, LEASED; of THP what the kernel makes */
	uint64_t mapped;      /* bytes of addresses; LEASED: of the lease */
	uint64_t first, step; /* where it writes one byte: at first, first + step, ... */
	uint64_t touches;     /* so often */
	uint64_t own;     /* bytes of small pages that it writes to besides, as a VMM has memory of its own */
	unsigned sharers; /* SHARED: processes that hold the same when it ends, itself included */
	const char *socket; /* LEASED */
	/* Called right before the end begins; may be NULL. */
	void (*before_end)(void *user);
	void *user;
};

struct bench_holder_end {
	uint64_t table_bytes; /* of page tables before the end; 0: not known */
	double seconds;       /* the end: of the process, as its parent sees it, or of munmap() */
	double kernel_s;      /* from the exit to the end of the address space; NAN: not known, or munmap() */
	double cycle_s;       /* from fork() to the end */
};

#define BENCH_HOLDER_WHY 160

enum bench_holder_result {
	BENCH_HOLDER_DONE,
	BENCH_HOLDER_NOT_HERE /* this machine has no such memory: *why says what */
};

/*
 * Once through. 0, BENCH_HOLDER_NOT_HERE, or a negative errno; *why says more. Nothing of it is left. trace
 * may be one that is not open.
 */
int bench_holder_run(const struct bench_holder_wish *wish, struct bench_trace *trace,
	struct bench_holder_end *ret_end, char why[BENCH_HOLDER_WHY]);

#endif
