/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* hook_user.h - who a domain's QEMU runs as. */
#ifndef HPZ_HOOK_USER_H
#define HPZ_HOOK_USER_H

#include "util.h"

/*
 * The user and group of a dac label, as "+64055:+108" or "libvirt-qemu:kvm", by numbers and the files of this
 * machine alone. 0; -ENOENT: it has a name that these do not have; -EINVAL: it is no label.
 */
int hook_user_parse(const char *label, uint32_t *ret_uid, uint32_t *ret_gid);
/* The same, and asks whoever else knows names, that long at most. -ETIMEDOUT: they did not answer. */
int hook_user_ask(const char *label, uint64_t deadline_ns, uint32_t *ret_uid, uint32_t *ret_gid);

#endif
