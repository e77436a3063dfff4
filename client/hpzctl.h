/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* hpzctl.h - what the verbs of hpzctl share: global options, errors for people, the exit status. */
#ifndef HPZ_HPZCTL_H
#define HPZ_HPZCTL_H

#include <stdbool.h>

#include "hpz.h"
#include "util.h"

/* Exit status. `run` has its own below, as timeout(1) and the shells have them. */
enum hpzctl_exit {
	HPZCTL_DONE = 0,
	HPZCTL_FAILED = 1,
	HPZCTL_USAGE = 2,
	HPZCTL_LATER = 75, /* EX_TEMPFAIL: the same command may succeed later */
	HPZCTL_RUN_FAILED = 125,
	HPZCTL_RUN_NOT_EXECUTABLE = 126,
	HPZCTL_RUN_NOT_FOUND = 127,
};

struct hpzctl {
	const char *socket_path; /* NULL: as the library chooses */
	bool json;
	const struct hpzctl_verb *verb;
};

struct hpzctl_verb {
	const char *name;
	int (*run)(struct hpzctl *ctl, int argc,
		char **argv); /* argv begins behind the verb; returns the exit status */
	const char *operands; /* of the usage line */
	const char *help;     /* one line */
};

int cmd_status(struct hpzctl *ctl, int argc, char **argv);
int cmd_lease(struct hpzctl *ctl, int argc, char **argv);
int cmd_release(struct hpzctl *ctl, int argc, char **argv);
int cmd_leases(struct hpzctl *ctl, int argc, char **argv);
int cmd_doctor(struct hpzctl *ctl, int argc, char **argv);
int cmd_events(struct hpzctl *ctl, int argc, char **argv);
int cmd_metrics(struct hpzctl *ctl, int argc, char **argv);
int cmd_top(struct hpzctl *ctl, int argc, char **argv);
int cmd_wait(struct hpzctl *ctl, int argc, char **argv);
int cmd_check(struct hpzctl *ctl, int argc, char **argv);
int cmd_drain(struct hpzctl *ctl, int argc, char **argv);
int cmd_grow(struct hpzctl *ctl, int argc, char **argv);
int cmd_shrink(struct hpzctl *ctl, int argc, char **argv);
int cmd_reserve(struct hpzctl *ctl, int argc, char **argv);
int cmd_unreserve(struct hpzctl *ctl, int argc, char **argv);
int cmd_plan(struct hpzctl *ctl, int argc, char **argv);
int cmd_demand(struct hpzctl *ctl, int argc, char **argv);
int cmd_teardown(struct hpzctl *ctl, int argc, char **argv);
int cmd_calibrate(struct hpzctl *ctl, int argc, char **argv);
int cmd_simulate(struct hpzctl *ctl, int argc, char **argv);
int cmd_demote(struct hpzctl *ctl, int argc, char **argv);
int cmd_resize(struct hpzctl *ctl, int argc, char **argv);
int cmd_set(struct hpzctl *ctl, int argc, char **argv);
int cmd_verify(struct hpzctl *ctl, int argc, char **argv);
int cmd_bench(struct hpzctl *ctl, int argc, char **argv);
int cmd_domain(struct hpzctl *ctl, int argc, char **argv);
int cmd_run(struct hpzctl *ctl, int argc, char **argv);

/* "hpzctl: ..." on stderr. */
void hpzctl_say(const char *format, ...) PRINTF(1, 2);

/* Says that the command line is wrong and how to learn more; returns HPZCTL_USAGE. */
int hpzctl_fail_usage(const struct hpzctl *ctl, const char *format, ...) PRINTF(2, 3);

/*
 * Says what failed, why, what hpzd said about it and what can be done; returns the exit status for `error`.
 * `hpz` is the handle the error comes from, or NULL when there is none because the connection failed.
 */
int hpzctl_fail(const struct hpzctl *ctl, const struct hpz *hpz, int error, const char *format, ...)
	PRINTF(4, 5);

/* Connects, or says why not. Returns 0 or the exit status. */
int hpzctl_connect(const struct hpzctl *ctl, struct hpz **ret_hpz);

void hpzctl_cleanup_hpz(struct hpz **hpz);
#define _cleanup_hpz_ __attribute__((cleanup(hpzctl_cleanup_hpz)))

#endif
