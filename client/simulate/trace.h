/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * trace.h - starts and ends of VMs from a CSV file, one row at a time.
 * Columns time, host, size, node and end: in that order, or as a first line names them (then others may stand
 * among them and are ignored). Rows stand in the order of their time. Blank lines and those that begin with
 * `#` are nothing.
 */
#ifndef HPZ_SIMULATE_TRACE_H
#define HPZ_SIMULATE_TRACE_H

#include <stddef.h>
#include <stdint.h>

#define TRACE_NEVER    UINT64_MAX
#define TRACE_NODE_ANY (-1)
#define TRACE_NODE_MAX 1023
#define TRACE_LINE_MAX 1024 /* bytes */
#define TRACE_ERROR    512

struct trace_row {
	uint64_t start_ns, end_ns; /* since whatever the trace counts from; end TRACE_NEVER: it outlives it */
	uint64_t bytes;            /* not 0 */
	int32_t node;
	const char *host; /* the trace's, until the next row; "": there is no such column */
	unsigned long line;
};

struct trace;

/* `path` "-": standard input. 0, or negative errno with a text. */
int trace_open(const char *path, struct trace **ret_trace, char ret_error[TRACE_ERROR]);
void trace_close(struct trace *trace);
/* 1: a row; 0: the end; -EINVAL "FILE:LINE: what, why", or another negative errno, also with a text. */
int trace_next(struct trace *trace, struct trace_row *ret_row, char ret_error[TRACE_ERROR]);

/* Bytes read so far, and all of them; 0: not known. */
uint64_t trace_get_position(const struct trace *trace);
uint64_t trace_get_length(const struct trace *trace);

static inline void trace_cleanup(struct trace **trace)
{
	trace_close(*trace);
}
#define _cleanup_trace_ __attribute__((cleanup(trace_cleanup)))

#endif
