/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* profile.h - which sizes a trace asks for: how often, and how many VMs of each there are at once. */
#ifndef HPZ_SIMULATE_PROFILE_H
#define HPZ_SIMULATE_PROFILE_H

#include <stddef.h>
#include <stdint.h>

#define PROFILE_SIZES_MAX 256

struct profile_size {
	uint64_t bytes;
	uint64_t starts;
	double mean; /* VMs at once, on all hosts, from the first start to the last; after profile_finish() */

	uint64_t living;
	double lived_s; /* by those that are gone */
	double born_s;  /* sum of the starts of those that live */
};

/* Zero is empty. */
struct profile {
	struct profile_size
		sizes[PROFILE_SIZES_MAX]; /* in the order of their coming; finish() sorts by bytes */
	size_t count;
	uint64_t last_bytes;
	size_t last; /* the last one looked up: mostly it comes again */
};

/* Which of the sizes it is; once there are too many the nearest larger one stands for it, or the largest. */
size_t profile_start(struct profile *profile, uint64_t bytes, uint64_t now_ns);
void profile_end(struct profile *profile, size_t size, uint64_t start_ns, uint64_t end_ns);
/* The trace is over; whoever lives is counted until its last start. */
void profile_finish(struct profile *profile, uint64_t first_ns, uint64_t last_ns);

#endif
