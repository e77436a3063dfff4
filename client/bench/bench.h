/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* bench.h - what the benchmarks of hpzctl share. They measure parts of hpzd by themselves, or start one of
 * their own; recycle and vm need one that runs. */
#ifndef HPZ_BENCH_H
#define HPZ_BENCH_H

#include "bench_figures.h"
#include "hpzctl.h"

#define BENCH_ROUNDS_MAX 1000
/* A figure of fewer rounds, or of rounds that spread further, is not worth its name: exit status 75. */
#define BENCH_ROUNDS_MIN 5
#define BENCH_SPREAD_MAX 0.2

unsigned bench_count_cpus(void); /* that we may use */

int bench_all(struct hpzctl *ctl, int argc, char **argv);
int bench_alloc(struct hpzctl *ctl, int argc, char **argv);
int bench_clear(struct hpzctl *ctl, int argc, char **argv);
int bench_lease(struct hpzctl *ctl, int argc, char **argv);
int bench_mlock(struct hpzctl *ctl, int argc, char **argv);
int bench_recycle(struct hpzctl *ctl, int argc, char **argv);
int bench_proof(struct hpzctl *ctl, int argc, char **argv);
int bench_teardown(struct hpzctl *ctl, int argc, char **argv);
int bench_vm(struct hpzctl *ctl, int argc, char **argv);
int bench_write_seq(struct hpzctl *ctl, int argc, char **argv);

#endif
