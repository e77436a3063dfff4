/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* bench_machine.h - what a report says of the machine: what it has, under which regime, and how busy it was.
 */
#ifndef HPZ_BENCH_MACHINE_H
#define HPZ_BENCH_MACHINE_H

#include <jansson.h>

#include "host.h"

/* CPU, caches, memory, nodes, page sizes, kernel. A figure that is missing is null. The caller's. */
json_t *bench_machine_describe(const struct host *host);
/* Its name and facts (paravirt.h). The caller's. */
json_t *bench_machine_get_regime(void);
/* Bytes that programs could have; 0: not known. */
uint64_t bench_machine_get_available(void);

/* The time of all CPUs until now, in ticks. */
struct bench_busy {
	uint64_t all, idle, steal;
};
void bench_busy_take(struct bench_busy *ret_busy);
/* Parts of the time since then; NAN: not known. What another guest of the host below took is steal. */
double bench_busy_get_used(const struct bench_busy *since, const struct bench_busy *until);
double bench_busy_get_steal(const struct bench_busy *since, const struct bench_busy *until);
double bench_busy_get_load(void); /* of the last minute */

#endif
