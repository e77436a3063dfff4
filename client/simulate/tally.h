/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* tally.h - what became of the starts of a trace, counted; how long they waited, in a bounded table. */
#ifndef HPZ_SIMULATE_TALLY_H
#define HPZ_SIMULATE_TALLY_H

#include <stddef.h>
#include <stdint.h>

/*
 * Durations by their upper five bits: what comes out of it is too long by at most a sixteenth. No table of
 * all of them: there may be a hundred million.
 */
#define TALLY_STEPS   16
#define TALLY_BUCKETS (TALLY_STEPS * 61)
struct tally_waits {
	uint64_t count;
	double sum_s;
	uint64_t most_ns;
	uint64_t buckets[TALLY_BUCKETS];
};

void tally_add_wait(struct tally_waits *waits, uint64_t ns);
/* So many percent waited at most so long; 0 if nobody did. */
uint64_t tally_get_percentile(const struct tally_waits *waits, double percent);

/* What became of a start. */
enum tally_outcome {
	TALLY_EXACT,      /* at once, one clean segment */
	TALLY_TRIMMED,    /* at once, of a larger one */
	TALLY_SEVERAL,    /* at once, several clean ones */
	TALLY_EXTENDED,   /* as soon as the rest was zeroed for it */
	TALLY_WAITED,     /* later */
	TALLY_REFUSED,    /* nothing came in time */
	TALLY_IMPOSSIBLE, /* no pool is large enough, or none has that node */
	TALLY_OUTCOMES,
};

struct tally {
	uint64_t starts;
	uint64_t counts[TALLY_OUTCOMES];
	struct tally_waits all;      /* of those that were served, most of them 0 */
	struct tally_waits extended; /* while the rest was zeroed */
	struct tally_waits waited;
	double asked_bytes, zeroed_bytes; /* of those that were served: zeroed while they waited for it */

	/* The same starts without hpz: the kernel zeroes all of it. */
	struct tally_waits kernel;
	uint64_t kernel_refused; /* not so many free pages, or no such node */
	/* Worse with hpz than without it. */
	uint64_t lost;   /* not served, but would have been */
	uint64_t slower; /* served, but later */
};

/* How a start ended: with hpz (wait of those that were served), and without (kernel_ns UINT64_MAX: refused).
 */
struct tally_start {
	enum tally_outcome outcome;
	uint64_t wait_ns, kernel_ns;
	double bytes, zeroed_bytes;
};

void tally_add(struct tally *tally, const struct tally_start *start);
/* Clean memory alone served so many: the first three. */
uint64_t tally_get_clean(const struct tally *tally);
/* The better, the less: first whoever got nothing, then the time that was waited. <0, 0, >0 as strcmp(). */
int tally_compare(const struct tally *a, const struct tally *b);

#endif
