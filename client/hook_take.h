/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * hook_take.h - clean memory without hpzd, when it is dead: the file system is the database. Whoever holds
 * the lock of a mount may rename what is clean to leased; hpzd finds such leases at its next start, with an
 * unknown owner, and takes them back when it has proven that nobody has them any more.
 */
#ifndef HPZ_HOOK_TAKE_H
#define HPZ_HOOK_TAKE_H

#include "hook_ask.h"

/*
 * Takes one clean segment for each file of the order's plan, all or none, and gives them to their user. 0;
 * -EBUSY: hpzd lives, or another hook is at it; -ENOENT: there is nothing that fits; or another negative
 * errno.
 */
int hook_take(
	const struct hook_settings *settings, const struct hook_order *order, struct hook_memory *ret_memory);

#endif
