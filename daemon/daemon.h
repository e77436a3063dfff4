/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * daemon.h - puts hpzd together: start, reload, stop.
 * Owns the loop and every module's struct. Makes mounts where the configuration says so. Decides nothing
 * about memory.
 */
#ifndef HPZ_DAEMON_H
#define HPZ_DAEMON_H

#include <stdbool.h>

/*
 * Runs until a signal ends it; returns the exit status. `program`: what workers are started from. Simulated:
 * no page is ever allocated; for tests and benchmarks of everything else.
 */
int daemon_run(const char *config_path, const char *program, bool is_simulated);

/* Reads a configuration and says what is wrong with it; returns the exit status. */
int daemon_check(const char *config_path);

#endif
