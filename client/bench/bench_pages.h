/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * bench_pages.h - huge pages on loan for a benchmark, and undisturbed times.
 * What the kernel's pool lacks is added to it for the while, and taken from it again: also after SIGINT,
 * SIGTERM and SIGHUP, which only end the measuring.
 */
#ifndef HPZ_BENCH_PAGES_H
#define HPZ_BENCH_PAGES_H

#include "host.h"

struct bench_pages {
	const struct host *host;
	int32_t node;
	uint64_t page_size, pages;
	uint64_t raised; /* pages that the kernel's pool has more because of us */
	uint64_t bytes;  /* of them all */
	int *fds;        /* hugetlb memfds of segment_bytes each, as segments are */
	uint64_t segment_bytes;
	char *start; /* the mapping of them all, one after the other */
	void *reserved;
};
#define BENCH_SEGMENT_BYTES                                                                                  \
	((uint64_t)256 << 20) /* or one page, if that is more; or what goes into the bytes */

/*
 * Takes `pages` of a node, all allocated, mapped and touched: warm. 0, -ENOSPC (there are fewer, and the
 * kernel finds no more; said), or negative errno (said). On failure nothing is left.
 */
int bench_pages_take(const struct host *host, int32_t node, uint64_t page_size, uint64_t pages,
	struct bench_pages *ret_pages);
/* Gives them back; a zeroed struct is nothing to give. */
void bench_pages_give(struct bench_pages *pages);

/* What the machine has for programs, in bytes; 0: not known. */
uint64_t bench_get_available(const struct host *host);

/* From now on the signals that would end us only set a flag. */
void bench_catch_signals(void);
/* The number of the signal that came; 0: none. */
int bench_get_signal(void);
/* What was caught to clean up first ends us now as it would have. */
void bench_die_of_signal(void);

/* Allocates or punches a range; in one segment, or whole ones. */
int bench_pages_allocate(const struct bench_pages *pages, uint64_t offset, uint64_t bytes);
int bench_pages_punch(const struct bench_pages *pages, uint64_t offset, uint64_t bytes);

/*
 * A time during which this thread was not made to give up its CPU: what another program did on it is no
 * figure of ours.
 */
struct bench_watch {
	uint64_t start_ns;
	long switches;
};
void bench_watch_start(struct bench_watch *watch);
/* False: disturbed. */
bool bench_watch_stop(const struct bench_watch *watch, uint64_t *ret_ns);

/* What was done undisturbed, and the time it took. */
struct bench_rate {
	uint64_t bytes, ns;
};
void bench_rate_add(struct bench_rate *rate, const struct bench_watch *watch, uint64_t bytes);

#endif
