/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * daemon.h - puts hpzd together: start, reload, stop.
 * Owns the loop and every module's struct. Makes mounts where the configuration says so. Decides nothing
 * about memory.
 */
#ifndef HPZ_DAEMON_H
#define HPZ_DAEMON_H

/* Runs until a signal ends it; returns the exit status. `program`: what workers are started from. */
int daemon_run(const char *config_path, const char *program);

/* Reads a configuration and says what is wrong with it; returns the exit status. */
int daemon_check(const char *config_path);

#endif
