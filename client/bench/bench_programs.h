/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* bench_programs.h - how long the kernel ran a process's BPF programs, by the kernel's own account. */
#ifndef HPZ_BENCH_PROGRAMS_H
#define HPZ_BENCH_PROGRAMS_H

#include "util.h"

#define BENCH_PROGRAMS_MAX 16

struct bench_programs {
	int stats_fd; /* -1: the kernel does not count */
	int fds[BENCH_PROGRAMS_MAX];
	size_t count;
};

/*
 * Has the kernel count from now on, which costs each run some tens of ns more. The programs are those that
 * pid has attached by links. 0; -ENOENT: it has none; -EOPNOTSUPP: built without libbpf; else negative errno.
 */
int bench_programs_open(pid_t pid, struct bench_programs *ret_programs);
/* Of all of them together, up to now. */
int bench_programs_get_ns(const struct bench_programs *programs, uint64_t *ret_ns);
/* Also of one that is all zero. */
void bench_programs_close(struct bench_programs *programs);

#endif
