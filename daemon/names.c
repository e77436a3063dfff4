/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* names.c - numbers of users and groups, by name. */
#include "names.h"

#include <grp.h>
#include <pwd.h>
#include <stdio.h>

#define NAMES_USERS  "/etc/passwd"
#define NAMES_GROUPS "/etc/group"

/* A user of the file by name, or, without one, by number; NULL: there is none. */
static const struct passwd *names_find_local(const char *name, uint32_t uid)
{
	_cleanup_file_ FILE *file = fopen(NAMES_USERS, "re");
	const struct passwd *user;

	while (file && (user = fgetpwent(file))) {
		if (name ? strcmp(user->pw_name, name) == 0 : user->pw_uid == uid)
			return user;
	}
	return NULL;
}

int names_find_user(const char *name, enum names_where where, uint32_t *ret_uid, uint32_t *ret_gid)
{
	const struct passwd *user = names_find_local(name, 0);

	if (!user && where == NAMES_ANYWHERE)
		user = getpwnam(name);
	if (!user)
		return -ENOENT;
	*ret_uid = user->pw_uid;
	*ret_gid = user->pw_gid;
	return 0;
}

int names_find_group_of(uint32_t uid, enum names_where where, uint32_t *ret_gid)
{
	const struct passwd *user = names_find_local(NULL, uid);

	if (!user && where == NAMES_ANYWHERE)
		user = getpwuid(uid);
	if (!user)
		return -ENOENT;
	*ret_gid = user->pw_gid;
	return 0;
}

int names_find_group(const char *name, enum names_where where, uint32_t *ret_gid)
{
	_cleanup_file_ FILE *file = fopen(NAMES_GROUPS, "re");
	const struct group *group = NULL;

	do
		group = file ? fgetgrent(file) : NULL;
	while (group && strcmp(group->gr_name, name) != 0);
	if (!group && where == NAMES_ANYWHERE)
		group = getgrnam(name);
	if (!group)
		return -ENOENT;
	*ret_gid = group->gr_gid;
	return 0;
}
