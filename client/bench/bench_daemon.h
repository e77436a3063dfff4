/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * bench_daemon.h - hpzd's of a benchmark's own, in a mount namespace and on a tmpfs of ours, so that nothing
 * of them outlives us and no other hpzd meets them. Simulated ones take no page; real ones take those that
 * are free in the kernel's pool (see bench_pages.h) and leave them there when they are stopped.
 */
#ifndef HPZ_BENCH_DAEMON_H
#define HPZ_BENCH_DAEMON_H

#include "hpzctl.h"

#define BENCH_DAEMON_NAME 32

struct bench_daemon {
	char name[BENCH_DAEMON_NAME]; /* of its directory */
	pid_t pid;                    /* 0: does not run */
	bool is_real;
	char socket[96];
	struct hpz *hpz;
};

struct bench_daemon_wish {
	const char *name;
	uint64_t bytes;     /* of its pool */
	const char *stock;  /* as in hpzd.conf */
	int cpu;            /* for it and its workers; -1: all */
	bool is_real;       /* on memory, which somebody has made free before */
	uint64_t page_size; /* 0: 2M */
	int32_t node;       /* of the pool of a real one */
	const char *keys;   /* more lines of [hpzd], each with its end; NULL: none */
};

/*
 * Finds hpzd (`program` NULL: beside hpzctl in a build tree, else where it is installed) and leaves the
 * mounts of others. Once, before the first start. 0 or a negative errno, of which it has spoken.
 */
int bench_daemon_prepare(const char *program);

/*
 * Starts it, connects and waits until its stock is full and its workers rest. The same errors. The pages of a
 * real one are free again when it has been stopped: then they may be given back.
 */
int bench_daemon_start(const struct bench_daemon_wish *wish, struct bench_daemon *ret_daemon);
void bench_daemon_stop(struct bench_daemon *daemon);

/* Until all that came back is clean. An error of the library. */
int bench_daemon_settle(const struct bench_daemon *daemon);

#endif
