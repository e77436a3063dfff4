/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* hook_names.c - the names the hook gave files of the pool, wherever they are now. */
#include "hook_names.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#define NAMES_ONCE 64 /* so many looks at most: who moves them faster than that wins */

/* Of one name in a directory; what it is called here is looked at, not where it leads to. */
typedef void (*hook_names_fn)(int directory, const char *name, const struct stat *wanted);

static void hook_names_each(int fd, const struct stat *wanted, hook_names_fn each)
{
	const struct dirent *entry;
	DIR *list = fdopendir(fd);

	if (!list) {
		close(fd);
		return;
	}
	while ((entry = readdir(list)))
		each(dirfd(list), entry->d_name, wanted);
	closedir(list);
}

/* Whoever puts another file there between these two calls loses a name of his own. */
static void hook_names_try(int directory, const char *name, const struct stat *wanted)
{
	struct stat st;

	if (fstatat(directory, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && st.st_dev == wanted->st_dev &&
		st.st_ino == wanted->st_ino)
		unlinkat(directory, name, 0);
}

static void hook_names_try_within(int base, const char *name, const struct stat *wanted)
{
	if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
		return;
	int fd = openat(base, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (fd >= 0)
		hook_names_each(fd, wanted, hook_names_try);
	else
		hook_names_try(base, name, wanted);
}

int hook_names_remove(int base, const char *path, uint64_t names)
{
	struct stat st, around;

	if (fstat(base, &around) < 0)
		return -errno;
	for (size_t i = 0; i < NAMES_ONCE; i++) {
		if (lstat(path, &st) < 0)
			return errno == ENOENT ? 0 : -errno;
		if (!S_ISREG(st.st_mode))
			return -EUCLEAN;
		if (st.st_nlink <= names)
			return 0;
		/* Names are of one file system. */
		if (st.st_dev != around.st_dev)
			return -EBUSY;
		int fd = openat(base, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (fd < 0)
			return -errno;
		hook_names_each(fd, &st, hook_names_try_within);
	}
	return -EBUSY;
}
