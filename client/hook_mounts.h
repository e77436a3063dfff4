/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * hook_mounts.h - the mounts the hook made, wherever they are now: the directories are QEMU's user's, who may
 * have renamed them meanwhile, and a mount that is left keeps a file of the pool from coming back.
 */
#ifndef HPZ_HOOK_MOUNTS_H
#define HPZ_HOOK_MOUNTS_H

#include "util.h"

/*
 * Unmounts a file of the pool; none is fine, and so is one that is gone. 0 or negative errno, -EBUSY: one is
 * moved faster than it can be found.
 */
int hook_mounts_remove_file(const char *path);
/* Unmounts the file systems of that source, which is no path. */
int hook_mounts_remove_source(const char *source);

/* A line of /proc/self/mountinfo; for the above and its test. false: it is none. */
struct hook_mount {
	unsigned id, major, minor;
	char root[4096]; /* what of its file system it shows; this and the others without escapes */
	char path[4096];
	char source[256];
};
bool hook_mounts_parse(const char *line, struct hook_mount *ret_mount);

#endif
