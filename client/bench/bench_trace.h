/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * bench_trace.h - when the kernel begins and ends to take an address space apart, by its own tracepoints:
 * sched_process_exit and exit_mmap, on all CPUs. Needs CAP_PERFMON, and tracefs (which it mounts for itself
 * alone, where nobody else sees it) for their numbers.
 */
#ifndef HPZ_BENCH_TRACE_H
#define HPZ_BENCH_TRACE_H

#include "util.h"

enum bench_trace_point { BENCH_TRACE_BEGUN, BENCH_TRACE_GONE, BENCH_TRACE_POINTS };

struct bench_trace {
	size_t count; /* of CPUs; 0: not open */
	struct bench_trace_ring *rings;
};

/* 0 or a negative errno; *ret_why is static and says what failed. */
int bench_trace_open(struct bench_trace *trace, const char **ret_why);
void bench_trace_close(struct bench_trace *trace);

/* Forgets what was seen. */
void bench_trace_reset(struct bench_trace *trace);

/*
 * Seconds from the first thread's exit of this process to the end of its address space, both since the
 * reset. NAN: not open, not seen, or this kernel tells of the exit only when the address space is gone
 * (before 6.16).
 */
double bench_trace_get_seconds(struct bench_trace *trace, pid_t pid);

/* ---- pure: what is in a ring ---- */

struct bench_trace_seen {
	uint64_t ns[BENCH_TRACE_POINTS]; /* CLOCK_MONOTONIC; 0: not seen */
};

/*
 * Reads records of `bytes` bytes at `data` of a ring of `size` bytes, a power of two, from position `tail`
 * on. Records of other processes, and of other kinds, are passed over; a broken one ends it.
 */
void bench_trace_read(const char *data, uint64_t size, uint64_t tail, uint64_t head, pid_t pid,
	const uint64_t ids[BENCH_TRACE_POINTS], struct bench_trace_seen *seen);

#endif
