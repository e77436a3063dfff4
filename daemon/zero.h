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
 * The table, in order of preference among equals; the last row, "memset", is there on every machine. More
 * rows (movdir64b, clzero, dc zva, ...) are added here.
 */
extern const struct zero_method zero_methods[];
extern const size_t zero_method_count;

const struct zero_method *zero_find_method(const char *name); /* NULL: no such row */

/* Makes the stores visible to whoever learns of them from this thread; before anything is published. */
void zero_fence(void);

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
	uint64_t batch_ns; /* best time for one batch of ZERO_BATCH */
	double gb_per_s;   /* 10^9 bytes */
	const char *why;   /* static: why it is not usable, or why it was or was not picked */
};
#define ZERO_METHODS_MAX 16
#define ZERO_BATCH       ((size_t)2 << 20)

/* The picking rule of zero_calibrate() alone, over results already measured: an index, or -1. */
int zero_find_best(const struct zero_result *results, size_t count);

/*
 * Tests and times every method on `scratch` (touched; at least 16 MiB, at 64 the times come nearer to those
 * of real work), interleaved, best of several, in about budget_ns. Fills one result a method, returns the
 * index of the one to use: the fastest non-temporal one unless a temporal one is more than a quarter faster;
 * -1 when none passed. Notes why in ret_results.
 */
int zero_calibrate(
	void *scratch, size_t bytes, uint64_t budget_ns, struct zero_result ret_results[ZERO_METHODS_MAX]);

#endif
