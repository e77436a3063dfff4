/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* exits_perf.h - ends of processes out of the kernel's trace events, where BPF is not to be had. Used by
 * exits.c only. */
#ifndef HPZ_EXITS_PERF_H
#define HPZ_EXITS_PERF_H

#include "util.h"

struct exits_perf_source;

/* Begins to record. 0, or negative errno and *ret_why a sentence. `root`: where /sys is; "". */
int exits_perf_open(const char *root, struct exits_perf_source **ret_source, const char **ret_why);
void exits_perf_free(struct exits_perf_source *source);

/* Whether a process's end is told when it begins: from 6.16 on. */
bool exits_perf_sees_begin(const struct exits_perf_source *source);

/*
 * When a process that is over began to end (EXITS_NONE: not told) and when its address space was gone. False:
 * it is not in the record, which keeps the latest only.
 */
bool exits_perf_find(const struct exits_perf_source *source, pid_t pid, uint64_t since_ns,
	uint64_t *ret_begun_ns, uint64_t *ret_gone_ns);

/* ---- for tests ---- */

enum exits_event_kind { EXITS_EVENT_EXIT, EXITS_EVENT_GONE, EXITS_EVENT_EXEC };
#define EXITS_EVENT_KINDS 3

struct exits_event {
	enum exits_event_kind kind;
	int32_t pid;
	uint64_t ns;
};

/* The latest of each kind of one process; 0: none. */
struct exits_latest {
	uint64_t ns[EXITS_EVENT_KINDS];
};
void exits_perf_add(struct exits_latest *latest, const struct exits_event *event);
/* is_early: a thread's end is told before it leaves its address space. */
bool exits_perf_judge(
	const struct exits_latest *latest, bool is_early, uint64_t *ret_begun_ns, uint64_t *ret_gone_ns);

#endif
