/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * look.h - one comparison of hpzd's leases with libvirt's domains; what has lost its domain is released.
 * Blocks: for a thread of its own. Keeps nothing but what it is given.
 */
#ifndef HPZ_LOOK_H
#define HPZ_LOOK_H

#include "suspects.h"
#include "virt.h"

enum look_outcome {
	LOOK_DONE,
	LOOK_NO_HPZD, /* this and the next: `text` says why, and later it may be otherwise */
	LOOK_NO_LIBVIRT,
	LOOK_NO_PROCESSES,
};

/* What it saw. */
struct look_report {
	enum look_outcome outcome;
	unsigned leases;   /* of domains */
	unsigned watched;  /* of these, whose domain is to be looked for once more */
	unsigned released; /* beside these */
	char text[256];
};

struct look {
	const char *socket_path;   /* hpzd's; NULL: as the library chooses */
	virConnectPtr connection;  /* to libvirt */
	struct suspects *suspects; /* what earlier looks saw */
	struct look_report report;
};

void look_run(struct look *look);

/* Whom it waits for, as an outcome says: "hpzd". */
const char *look_get_missing(enum look_outcome outcome);

/* "hpz-libvirt: ..." on stderr, in one line whatever was in it; for systemd's journal with its priority. */
enum look_level { LOOK_ERROR = 3, LOOK_WARNING = 4, LOOK_INFO = 6 };
void look_say(enum look_level level, const char *format, ...) PRINTF(2, 3);

#endif
