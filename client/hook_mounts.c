/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* hook_mounts.c - the mounts the hook made, wherever they are now. */
#include "hook_mounts.h"

#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#define MOUNTS_LIST "/proc/self/mountinfo"
#define MOUNTS_ONCE 64 /* so many looks at most: who makes or moves them faster than that wins */

struct mounts_wanted {
	const char *source; /* NULL: the file */
	const char *path;   /* the file's */
	dev_t dev;
	ino_t ino;
};

/* Three octal digits behind a backslash; 0: no such thing. */
static char hook_mounts_get_escaped(const char *text)
{
	unsigned code = 0;

	for (int i = 1; i <= 3; i++) {
		if (text[i] < '0' || text[i] > '7')
			return 0;
		code = code << 3 | (unsigned)(text[i] - '0');
	}
	return (char)code;
}

/* "\040" is a blank; the text does not get longer. */
static void hook_mounts_unescape(char *text)
{
	char *to = text;

	for (const char *from = text; *from; to++) {
		char code = *from == '\\' ? hook_mounts_get_escaped(from) : 0;
		if (code) {
			*to = code;
			from += 4;
		} else {
			*to = *from++;
		}
	}
	*to = '\0';
}

bool hook_mounts_parse(const char *line, struct hook_mount *ret_mount)
{
	struct hook_mount mount;
	const char *end = strstr(line, " - ");

	if (!end ||
		sscanf(line, "%u %*u %u:%u %4095s %4095s", &mount.id, &mount.major, &mount.minor, mount.root,
			mount.path) != 5 ||
		sscanf(end, " - %*s %255s", mount.source) != 1)
		return false;
	hook_mounts_unescape(mount.root);
	hook_mounts_unescape(mount.path);
	hook_mounts_unescape(mount.source);
	*ret_mount = mount;
	return true;
}

/* A descriptor of what is mounted there, if it still is that mount; else negative errno. */
static int hook_mounts_open(const struct hook_mount *mount, struct stat *ret_stat)
{
	struct statx found;
	_cleanup_fd_ int fd = open(mount->path, O_PATH | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0 || fstat(fd, ret_stat) < 0 || statx(fd, "", AT_EMPTY_PATH, STATX_MNT_ID, &found) < 0)
		return -errno;
	if (found.stx_mask & STATX_MNT_ID && found.stx_mnt_id != mount->id)
		return -ENOENT;
	return steal_fd(&fd);
}

/* Whether it is one of those as far as the list says: a file's path ends with its place in its mount. */
static bool hook_mounts_is_named(const struct mounts_wanted *wanted, const struct hook_mount *mount)
{
	size_t length = wanted->path ? strlen(wanted->path) : 0, root_length = strlen(mount->root);

	return wanted->source ||
	       (root_length <= length && strcmp(wanted->path + length - root_length, mount->root) == 0);
}

/* 1: it is one of those, and is unmounted; 0: it is not; -EAGAIN: it has been moved, or negative errno. */
static int hook_mounts_try(const struct mounts_wanted *wanted, const struct hook_mount *mount)
{
	char path[40];
	struct stat st;

	if (wanted->source ? strcmp(mount->source, wanted->source) != 0
			   : makedev(mount->major, mount->minor) != wanted->dev)
		return 0;
	_cleanup_fd_ int fd = hook_mounts_open(mount, &st);
	if (fd < 0)
		return hook_mounts_is_named(wanted, mount) ? -EAGAIN : 0;
	if (!wanted->source && (st.st_dev != wanted->dev || st.st_ino != wanted->ino))
		return 0;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (umount2(path, MNT_DETACH) == 0)
		return 1;
	/* It went by itself, with the name it was mounted over. */
	return errno == EINVAL ? 0 : -errno;
}

/* The first of them in the list. 1, 0: there is none, -EAGAIN: one has been moved, or negative errno. */
static int hook_mounts_remove_one(const struct mounts_wanted *wanted)
{
	_cleanup_file_ FILE *list = fopen(MOUNTS_LIST, "re");
	_cleanup_free_ struct hook_mount *mount = malloc(sizeof(*mount));
	_cleanup_free_ char *line = NULL;
	size_t capacity = 0;
	bool is_moved = false;
	int r = 0;

	if (!list || !mount)
		return -ENOMEM;
	while ((r == 0 || r == -EAGAIN) && getline(&line, &capacity, list) > 0) {
		r = hook_mounts_parse(line, mount) ? hook_mounts_try(wanted, mount) : 0;
		is_moved |= r == -EAGAIN;
	}
	return r == 0 && is_moved ? -EAGAIN : r;
}

static int hook_mounts_remove(const struct mounts_wanted *wanted)
{
	int r = 1;

	for (size_t i = 0; (r > 0 || r == -EAGAIN) && i < MOUNTS_ONCE; i++)
		r = hook_mounts_remove_one(wanted);
	return r > 0 || r == -EAGAIN ? -EBUSY : r;
}

int hook_mounts_remove_file(const char *path)
{
	struct stat st;

	if (lstat(path, &st) < 0)
		return errno == ENOENT ? 0 : -errno;
	if (!S_ISREG(st.st_mode))
		return -EUCLEAN;
	return hook_mounts_remove(&(struct mounts_wanted){.path = path, .dev = st.st_dev, .ino = st.st_ino});
}

int hook_mounts_remove_source(const char *source)
{
	return hook_mounts_remove(&(struct mounts_wanted){.source = source});
}
