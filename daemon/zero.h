/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * zero.h - how bytes become zero.
 * A table of methods, each with a CPU test and a self-test; calibration picks one. Works on memory it is
 * given, knows nothing of files, batches or pools.
 */
#ifndef HPZ_ZERO_H
#define HPZ_ZERO_H

#include "util.h"

struct zero_method {
	const char *name;
	bool is_nontemporal;        /* leaves the caches alone */
	bool (*is_supported)(void); /* by this CPU and its OS (XCR0) */
	/* Stores zero to every byte; any alignment, any length. Not fenced. */
	void (*clear)(void *start, size_t bytes);
};

/*
 * The one table, in order of preference among equals. The last two rows, "memset" (the C library's) and
 * "plain" (64-bit stores, one after the other), are there on every machine.
 */
extern const struct zero_method zero_methods[];
extern const size_t zero_method_count;

const struct zero_method *zero_find_method(const char *name); /* NULL: no such row */

/* Makes the stores visible to whoever learns of them from this thread; before anything is published. */
void zero_fence(void);

/* Takes the range out of all caches, so that its next use finds it cold. For measurements. */
void zero_evict(const void *start, size_t bytes);

/*
 * Poison, clear, verify, with odd offsets and lengths, and that no byte outside is touched. True: may be
 * used. False also when scratch is smaller than ZERO_TEST_MIN. Does not ask is_supported().
 */
#define ZERO_TEST_MIN ((size_t)64 << 10)
bool zero_test_method(const struct zero_method *method, void *scratch, size_t bytes);

/* Whether every byte is zero; *ret_offset (may be NULL) is the first that is not. */
bool zero_is_clear(const void *start, size_t bytes, size_t *ret_offset);

struct zero_result {
	const struct zero_method *method;
	bool is_usable;    /* supported and self-test passed */
	uint64_t batch_ns; /* of one batch of ZERO_BATCH, fence included: see zero_calibrate() */
	double gb_per_s;   /* 10^9 bytes */
	const char *why;   /* static: why it is not usable, or why it was or was not picked */
};
#define ZERO_METHODS_MAX 16
#define ZERO_BATCH       ((size_t)2 << 20)

/* The picking rule of zero_calibrate() alone, over results already measured: an index, or -1. */
int zero_find_best(const struct zero_result *results, size_t count);

/*
 * Tests and times every method on `scratch` (touched, of any page size; at least one batch, better 16 MiB or
 * more), interleaved, in about budget_ns, the tests included; not less than three rounds of batches, nor more
 * than 64. Fills one result a method, returns the index of the one to use: the fastest non-temporal one
 * unless a temporal one is more than a quarter faster; -1 when none passed. Notes why in the results.
 *
 * A time is the lower quartile of the rounds by the clock on the wall: that of an undisturbed CPU. CPU time
 * would not do: the kernel subtracts from it what a hypervisor says it stole, and then batches of 29 us seem
 * to take 10. The methods look up addresses ahead (zero_methods.c), so that they are as fast on memory
 * somewhere as on a small scratch: the time is that of sustained work, fit as a base to compare batches with.
 * "memset" and "plain" do not, and are slower in earnest than on a scratch below 64 MiB.
 */
int zero_calibrate(
	void *scratch, size_t bytes, uint64_t budget_ns, struct zero_result ret_results[ZERO_METHODS_MAX]);

/* The same with another table, of at most ZERO_METHODS_MAX rows: a test brings methods that fail. */
int zero_calibrate_methods(const struct zero_method *methods, size_t count, void *scratch, size_t bytes,
	uint64_t budget_ns, struct zero_result *ret_results);

#endif
