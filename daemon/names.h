/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * names.h - numbers of users and groups, by name. The files of this machine come first: whatever else knows
 * names, as LDAP, may not answer for minutes, or never.
 */
#ifndef HPZ_NAMES_H
#define HPZ_NAMES_H

#include "util.h"

enum names_where {
	NAMES_LOCAL,    /* /etc/passwd and /etc/group: never waits for anybody */
	NAMES_ANYWHERE, /* what these do not have is asked of all that nsswitch.conf(5) names, without a limit
			 */
};

/* 0 with the user's number and its own group's; -ENOENT: there is none. */
int names_find_user(const char *name, enum names_where where, uint32_t *ret_uid, uint32_t *ret_gid);
/* The group of a user that is known by number only. */
int names_find_group_of(uint32_t uid, enum names_where where, uint32_t *ret_gid);
int names_find_group(const char *name, enum names_where where, uint32_t *ret_gid);

#endif
