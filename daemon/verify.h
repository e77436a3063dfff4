/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * verify.h - reads clean memory to see that it is zero: one segment before it is handed out (verify = sample
 * or full), or all there are when the operator asks (hpzctl verify).
 * Owns the jobs that read, and while they run keeps their segments (pool_keep), so that nothing is handed out
 * that is being looked at. Whoever needs one that is only read for the operator asks for it (verify_yield)
 * and has it after the batch the worker is in. What is not zero is retired, never handed out.
 */
#ifndef HPZ_VERIFY_H
#define HPZ_VERIFY_H

#include "reconcile.h"

/* All clean segments there are when it begins. Runs of several come one after the other. */
struct verify_run {
	struct list link;
	char pool[65]; /* "": all */
	uint64_t round;
	uint64_t todo; /* segments, at the beginning */
	uint64_t segments, pages, bytes, hits;
	uint64_t left; /* handed out, or gone, before they were read */
	char hit_pool[64];
	uint64_t hit_segment, hit_offset;
	bool has_begun, is_over;
};

struct verify {
	struct reconcile *reconcile;
	struct list runs;
	uint64_t last_round;
	struct pool_segment *segment; /* read for the first of the runs; NULL: none */
	uint64_t resumed_id, resume;  /* where a job for it was stopped */
};

void verify_init(struct verify *verify, struct reconcile *reconcile);

/*
 * Reads a clean segment that nobody keeps, as its pool's configuration says. It is kept by `verify` (or by
 * whoever pool_keep() names meanwhile) and busy until that is done, then kept only, if it was zero. If not it
 * is gone. 0 or negative errno.
 */
int verify_segment(struct verify *verify, struct pool_segment *segment);
/* Nobody wants a kept segment any more. */
void verify_drop(struct verify *verify, struct pool_segment *segment);

void verify_start_run(struct verify *verify, struct verify_run *run);
void verify_cancel_run(struct verify *verify, struct verify_run *run);
/* After every batch of events: goes on with the runs. Whether one of them is over now. */
bool verify_step(struct verify *verify);
/*
 * Whether a run reads a segment of that pool with at least `pages` and, unless it is 0, less than
 * below_pages: it is let go, and reconcile looks again when it is.
 */
bool verify_yield(struct verify *verify, const struct pool *pool, uint64_t pages, uint64_t below_pages);

#endif
