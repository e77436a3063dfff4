/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * watcher.h - the service: follows libvirt's events and has leases compared with domains when it matters.
 * Nothing happens while nothing ends: no timer is armed but systemd's watchdog, if it is asked for.
 */
#ifndef HPZ_WATCHER_H
#define HPZ_WATCHER_H

#include "util.h"

struct watcher_options {
	const char *uri;
	const char *socket_path; /* hpzd's; NULL: as the library chooses */
	uint64_t grace_ms;
};

/* Until SIGTERM or SIGINT; SIGHUP: looks now. Returns the exit status. */
int watcher_run(const struct watcher_options *options);

#endif
