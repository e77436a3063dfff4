/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * hook_hold.h - huge pages of the kernel's for a domain that gets none of a pool. Between our look at the
 * free ones and QEMU's first touch anybody may take them, hpzd's refill first of all, and QEMU dies. So QEMU
 * finds its files made, with all of their pages promised: the kernel keeps a reservation with the file, not
 * with who mapped it, and gives it back when the file goes.
 */
#ifndef HPZ_HOOK_HOLD_H
#define HPZ_HOOK_HOLD_H

#include "domain_xml.h"

/*
 * Puts a file of a domain's own into its directory, which is on hugetlbfs, for its user. Of a file that may
 * come from some nodes only the pages are allocated, as a reservation is for pages of any node: deadline_ns
 * (CLOCK_MONOTONIC) is when that must be done. 0; -ENOMEM, -ENOSPC: the kernel, the mount or these nodes have
 * not so many; -ETIME: there is no time for it; or another negative errno. Then nothing is left of it.
 */
int hook_hold_add(int directory, const struct domain_file *file, uint32_t uid, uint32_t gid,
	const char *label, uint64_t deadline_ns);

/* Whether the kernel has the huge pages for all of a plan's files where the directory is, now. */
bool hook_hold_has_pages(int directory, const struct domain_plan *plan);
/* The same for so many bytes of any nodes. */
bool hook_hold_has_room(int directory, uint64_t bytes);

#endif
