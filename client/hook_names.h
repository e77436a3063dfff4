/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * hook_names.h - the names the hook gave files of the pool, wherever they are now: the directories are QEMU's
 * user's, who may have renamed them meanwhile, and a file with a name that is left does not come back.
 */
#ifndef HPZ_HOOK_NAMES_H
#define HPZ_HOOK_NAMES_H

#include "util.h"

/*
 * Removes the names of a file of the pool in `base` and in its directories, one level deep as libvirt makes
 * them, until no more than `names` are left, which are hpz's own. A file that is gone is fine. 0 or negative
 * errno, -EBUSY: one is elsewhere, or moved faster than it can be found.
 */
int hook_names_remove(int base, const char *path, uint64_t names);

#endif
