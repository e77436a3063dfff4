/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* tracer_args.h - what hpzd and the program in bpf/tracer.bpf.c tell each other. */
#ifndef HPZ_TRACER_ARGS_H
#define HPZ_TRACER_ARGS_H

#define TRACER_KINDS 8 /* of TLB flushes; kernels know five or six */

/* A process, as hpzd's pid namespace knows it: written by hpzd, one for each it watches. */
struct tracer_key {
	__s32 pid;
	__u32 zero;
	__u64 start_ticks; /* as in /proc/PID/stat */
};

/* What became of it: all zero from hpzd, the rest is the program's. */
struct tracer_state {
	__u64 begun_ns, gone_ns; /* CLOCK_MONOTONIC; 0: not yet, or not seen */
	__u64 mm;                /* identifies the address space; 0: not seen yet */
	__u64 table_bytes;       /* when begun */
	__u64 begun_steal_ns, gone_steal_ns;
	__u64 flushes[TRACER_KINDS];
	__s32 code; /* as wait() has it */
	__u32 has_code;
};

#endif
