/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* bench_vm.h - what bench vm measures with QEMU alone, and the same through libvirt. */
#ifndef HPZ_BENCH_VM_H
#define HPZ_BENCH_VM_H

#include <limits.h>

#include "bench.h"

#define BENCH_VM_REASON 256

enum bench_vm_way {
	BENCH_VM_PREALLOC, /* the kernel zeroes huge pages on all CPUs */
	BENCH_VM_HPZ,      /* on a lease */
	BENCH_VM_TINY,     /* hardly any memory: what QEMU itself takes */
	BENCH_VM_WAYS
};

struct bench_vm {
	struct hpz *hpz;
	uint64_t bytes, page_size, rounds_asked;
	int32_t node;
	unsigned threads;
	const char *uri;
	char hpzctl[PATH_MAX], qemu[PATH_MAX], wrapper[PATH_MAX];
	const char *socket_path; /* NULL: as the library chooses */
	size_t rounds, unready;  /* of them, those that found no clean memory of that size */
	double ms[BENCH_VM_WAYS][BENCH_ROUNDS_MAX], ratio[BENCH_ROUNDS_MAX], over_tiny[BENCH_ROUNDS_MAX];
	/* libvirt's; rounds 0: none, which the reason explains */
	size_t virsh_rounds;
	double virsh_ms[BENCH_VM_TINY][BENCH_ROUNDS_MAX];
	char virsh_reason[BENCH_VM_REASON];
};

/* Waits until what came back is clean, and notes whether the next lease will find it so. */
void bench_vm_settle(struct bench_vm *bench);

/* Fills virsh_*. Not to have libvirt is no failure. */
void bench_virsh_run(struct bench_vm *bench);

#endif
