/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* exits_bpf.h - what the program in bpf/tracer.bpf.c has seen of the end of a process. Used by exits.c only.
 */
#ifndef HPZ_EXITS_BPF_H
#define HPZ_EXITS_BPF_H

#include "exits.h"

struct exits_bpf_source;

/*
 * Takes the descriptors of tracer_load(), also on failure. `ended` is called from exits_bpf_drain() for each
 * process whose state is final. 0 or negative errno.
 */
int exits_bpf_open_take(int fds[TRACER_FDS], uint32_t sees, void (*ended)(pid_t, uint64_t, void *user),
	void *user, struct exits_bpf_source **ret_source);
/* From now on it sees nobody any more. */
void exits_bpf_free(struct exits_bpf_source *source);
/* Readable when there is something to drain. */
int exits_bpf_get_fd(const struct exits_bpf_source *source);
void exits_bpf_drain(struct exits_bpf_source *source);

/* 0; -E2BIG: it watches as many as it can; or another negative errno. */
int exits_bpf_watch(struct exits_bpf_source *source, pid_t pid, uint64_t pid_start);
void exits_bpf_forget(struct exits_bpf_source *source, pid_t pid, uint64_t pid_start);

enum exits_look {
	EXITS_LOOK_NOTHING, /* of an end */
	EXITS_LOOK_BEGUN,   /* the address space is still there */
	EXITS_LOOK_GONE,    /* ret_seen is filled, all but who it is */
};
enum exits_look exits_bpf_look(
	const struct exits_bpf_source *source, pid_t pid, uint64_t pid_start, struct exits_seen *ret_seen);

#endif
