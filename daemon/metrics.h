/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * metrics.h - what has happened since hpzd began: counters and histograms.
 *
 * One set a process, as the log is: whoever sees something counts it at the place where it does. That is an
 * addition to a number in a table; nothing is allocated, nothing is asked of the kernel, and times are given.
 * A worker counts in its own process, where nobody reads it: what workers do is counted where hpzd hears of
 * it.
 *
 * A family has one label, or none. What a label may say is a list in the table, so that there are never more
 * series than in it. Every series is there from the start, with 0: who reads a rate sees the first event.
 */
#ifndef HPZ_METRICS_H
#define HPZ_METRICS_H

#include "hpz.h"
#include "util.h"

/* In the order they are told. The label is of the enum that stands behind it. */
enum metrics_family {
	METRICS_REQUESTS,        /* enum hpz_wire_op */
	METRICS_REQUEST_ERRORS,  /* enum hpz_error */
	METRICS_LEASE_REFUSALS,  /* enum hpz_error */
	METRICS_GRANTED_BYTES,   /* enum metrics_source */
	METRICS_LEASE_LATENCY,   /* enum metrics_outcome; histogram */
	METRICS_LEASE_WAIT,      /* enum metrics_outcome; histogram */
	METRICS_LEASES_ENDED,    /* none */
	METRICS_LEASES_FORCED,   /* none */
	METRICS_RETURNED_BYTES,  /* enum metrics_place */
	METRICS_PROOFS,          /* enum metrics_proof */
	METRICS_WORKER_BYTES,    /* enum metrics_work */
	METRICS_WORKER_BUSY,     /* enum metrics_work */
	METRICS_WORKER_RATE,     /* enum metrics_work; histogram */
	METRICS_PAUSES,          /* enum metrics_resource */
	METRICS_DEMOTED_PAGES,   /* none */
	METRICS_CONNECTIONS,     /* enum metrics_connection */
	METRICS_JOURNAL_RECORDS, /* none */
	METRICS_JOURNAL_ERRORS,  /* none */
	METRICS_LOG_MESSAGES,    /* enum metrics_message */
	METRICS_RELOADS,         /* enum metrics_reload */
	METRICS_FAMILY_COUNT,
};

#define METRICS_NO_LABEL 0 /* of a family that has none */

enum metrics_source { METRICS_CLEAN, METRICS_ZEROED, METRICS_WAITED };
enum metrics_outcome { METRICS_GRANTED, METRICS_REFUSED, METRICS_CANCELLED };
enum metrics_place { METRICS_POOL, METRICS_KERNEL, METRICS_ORPHAN };
enum metrics_proof {
	METRICS_PROOF_FREE,
	METRICS_PROOF_OPEN,
	METRICS_PROOF_OPEN_READ,
	METRICS_PROOF_NAME,
	METRICS_PROOF_LINK,
	METRICS_PROOF_PIN,
	METRICS_PROOF_POISON,
	METRICS_PROOF_UNKNOWN,
};
enum metrics_work { METRICS_FILL, METRICS_CLEAR, METRICS_EXTEND, METRICS_VERIFY };
enum metrics_resource { METRICS_CPU, METRICS_MEMORY };
enum metrics_connection { METRICS_ACCEPTED, METRICS_TURNED_AWAY, METRICS_BROKEN };
enum metrics_message { METRICS_ERROR, METRICS_WARNING };
enum metrics_reload { METRICS_APPLIED, METRICS_RELOAD_REFUSED };

#define METRICS_LABELS 32 /* a label says one of at most so many things */

/* Bucket 0 counts what is less than 2^shift, bucket i what is less than 2^(shift + i) and not in one before
 * it; the last one all that is more. */
struct metrics_histogram {
	uint64_t sum;
	uint64_t buckets[HPZ_METRIC_BUCKETS];
};

void metrics_add(enum metrics_family family, unsigned label, uint64_t more);
/* Of a family that is a histogram: ns, or bytes a second. */
void metrics_observe(enum metrics_family family, unsigned label, uint64_t value);
/* Work that took so long: bytes, busy time and, of 16 MiB and more, how fast that was. */
void metrics_add_work(enum metrics_work work, uint64_t bytes, uint64_t ns);

/* ---- questions ---- */

/* One series; what it says is static, but for `histogram`, which is as of now. */
struct metrics_series {
	const char *name; /* without _total */
	const char *help;
	enum hpz_metric_kind kind;
	enum hpz_metric_unit unit;
	const char *label, *label_value;           /* "": none */
	uint64_t value;                            /* of a histogram: how many there were */
	unsigned shift, bucket_count;              /* of a histogram */
	const struct metrics_histogram *histogram; /* NULL: it is a counter */
};

/* By index, those of one family together; false: there are no more. */
bool metrics_get_series(size_t index, struct metrics_series *ret_series);
/* For tests: nothing has happened yet. */
void metrics_reset(void);

#endif
