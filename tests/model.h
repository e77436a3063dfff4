/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * model.h - a pool and its leases beside a simple model of them, and random steps through both.
 * After every step journal, directories, st_blocks and books must agree with the model, page by page (design
 * 3, invariant C); where the pages are real, memory that is clean is read in full and must be zero (invariant
 * A).
 */
#ifndef HPZ_TEST_MODEL_H
#define HPZ_TEST_MODEL_H

#include "host.h"
#include "segment.h"

struct model_place {
	const struct host *host;
	uint64_t page_size;
	uint64_t pages_max;  /* of all files together */
	bool is_real;        /* hugetlbfs: worker_run_job() fills and clears, and bytes are looked at */
	const char *run_dir; /* for the journal */
	struct segment_store *(*open_store)(void *user);
	void *user;
};

/* So many random steps from one seed; fails the test that calls it. */
void model_run(const struct model_place *place, uint64_t seed, unsigned steps);

#endif
