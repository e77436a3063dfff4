/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* hook_place.c - files of the pool in a domain's directory, and out of it again. */
#include "hook_place.h"

#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <sys/xattr.h>

#include "hook_mounts.h"

#define PROC_FD_MAX 40

/* A path that leads to what a descriptor is of, whatever it is called now. */
static const char *hook_place_get_proc_path(int fd, char path[PROC_FD_MAX])
{
	snprintf(path, PROC_FD_MAX, "/proc/self/fd/%d", fd);
	return path;
}

int hook_place_open_base(const char *backing_dir)
{
	int fd = open(backing_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

int hook_place_open_directory(int base, const char *name)
{
	const struct open_how how = {.flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC,
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS};

	if (!*name || strchr(name, '/'))
		return -EINVAL;
	int fd = (int)syscall(SYS_openat2, base, name, &how, sizeof(how));
	return fd < 0 ? -errno : fd;
}

void hook_place_get_start(int directory, char ret_start[LEASE_KEY_START_SIZE])
{
	struct stat st = {0};
	struct statx made = {0};

	fstat(directory, &st);
	if (statx(directory, "", AT_EMPTY_PATH, STATX_BTIME, &made) < 0 || !(made.stx_mask & STATX_BTIME))
		made.stx_btime = (struct statx_timestamp){0};
	snprintf(ret_start, LEASE_KEY_START_SIZE, "%" PRIx64 "-%" PRIx64 "-%" PRIx64 ".%" PRIx32,
		(uint64_t)st.st_dev, (uint64_t)st.st_ino, (uint64_t)made.stx_btime.tv_sec,
		(uint32_t)made.stx_btime.tv_nsec);
}

uint64_t hook_place_get_page_size(int fd)
{
	struct statfs fs;

	return fstatfs(fd, &fs) == 0 && fs.f_type == HUGETLBFS_MAGIC ? (uint64_t)fs.f_bsize : 0;
}

/* ---- files of the pool ---- */

/* Opens one without opening what is in it: no watch sees it. A descriptor or negative errno. */
static int hook_place_open_file(const char *path, struct stat *ret_stat)
{
	_cleanup_fd_ int fd = open(path, O_PATH | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0 || fstat(fd, ret_stat) < 0)
		return -errno;
	if (!S_ISREG(ret_stat->st_mode) || !hook_place_get_page_size(fd))
		return -EUCLEAN;
	return steal_fd(&fd);
}

static int hook_place_set_mode(int fd, mode_t mode)
{
	char path[PROC_FD_MAX];

	return chmod(hook_place_get_proc_path(fd, path), mode) < 0 ? -errno : 0;
}

int hook_place_give(const char *path, uint32_t uid, uint32_t gid)
{
	struct stat st;
	_cleanup_fd_ int fd = hook_place_open_file(path, &st);

	if (fd < 0)
		return fd;
	if (fchownat(fd, "", uid, gid, AT_EMPTY_PATH) < 0)
		return -errno;
	return hook_place_set_mode(fd, 0600);
}

int hook_place_close_door(const char *path)
{
	/* A change of owner would make it look as if nobody had opened it since, to an hpzd that was away. */
	struct timespec now, times[2] = {{.tv_nsec = 0}, {.tv_nsec = UTIME_OMIT}};
	char proc_path[PROC_FD_MAX];
	struct stat st;
	_cleanup_fd_ int fd = hook_place_open_file(path, &st);

	if (fd < 0)
		return fd;
	/* In this order: see the shields of hpzd. */
	if (fchownat(fd, "", 0, 0, AT_EMPTY_PATH) < 0)
		return -errno;
	int r = hook_place_set_mode(fd, 0);
	if (r < 0)
		return r;
	clock_gettime(CLOCK_REALTIME, &now);
	times[0].tv_sec = now.tv_sec + 1;
	if (utimensat(AT_FDCWD, hook_place_get_proc_path(fd, proc_path), times, 0) < 0)
		return -errno;
	return 0;
}

/* Where SELinux is off there are no labels, and the kernel says so. */
static int hook_place_set_label(int fd, const char *label)
{
	char path[PROC_FD_MAX];

	if (!*label || access("/sys/fs/selinux/enforce", F_OK) < 0)
		return 0;
	if (setxattr(hook_place_get_proc_path(fd, path), "security.selinux", label, strlen(label) + 1, 0) ==
			0 ||
		errno == EOPNOTSUPP)
		return 0;
	return -errno;
}

/* ---- the ways ---- */

int hook_place_make_file(int directory, uint32_t uid, uint32_t gid, const char *label)
{
	_cleanup_fd_ int fd = openat(directory, ".", O_RDWR | O_TMPFILE | O_CLOEXEC, 0600);

	if (fd < 0 || fchown(fd, uid, gid) < 0)
		return -errno;
	int r = hook_place_set_label(fd, label);
	return r < 0 ? r : steal_fd(&fd);
}

static int hook_place_unlink(int directory, const char *alias)
{
	return unlinkat(directory, alias, 0) < 0 && errno != ENOENT ? -errno : 0;
}

int hook_place_link_file(int directory, const char *alias, int fd)
{
	int r = hook_place_unlink(directory, alias);

	if (r == 0 && linkat(fd, "", directory, alias, AT_EMPTY_PATH) < 0)
		r = -errno;
	return r;
}

/* The name, if it still is what we put there. A descriptor or negative errno. */
static int hook_place_find_file(int directory, const char *alias, int file)
{
	struct stat st, found;
	_cleanup_fd_ int fd = openat(directory, alias, O_PATH | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0 || fstat(fd, &found) < 0 || fstat(file, &st) < 0)
		return -errno;
	if (found.st_dev != st.st_dev || found.st_ino != st.st_ino)
		return -EBUSY;
	return steal_fd(&fd);
}

static int hook_place_mount(int fd, int place)
{
	_cleanup_fd_ int tree = open_tree(fd, "", AT_EMPTY_PATH | OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);

	if (tree < 0 ||
		move_mount(tree, "", place, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) < 0)
		return -errno;
	return 0;
}

/*
 * Over an empty file: without page of its own, also where files are huge. It is QEMU's as any that QEMU
 * makes, so that a domain can start on it when we die before the mount.
 */
static int hook_place_bind(int directory, const char *alias, int fd, const struct stat *st, const char *label)
{
	_cleanup_fd_ int empty = hook_place_make_file(directory, st->st_uid, st->st_gid, label);
	int r = empty < 0 ? empty : hook_place_link_file(directory, alias, empty);

	if (r < 0)
		return r;
	_cleanup_fd_ int place = hook_place_find_file(directory, alias, empty);
	r = place < 0 ? place : hook_place_mount(fd, place);
	if (r < 0)
		hook_place_unlink(directory, alias);
	return r;
}

static int hook_place_symlink(int directory, const char *alias, const char *path)
{
	return symlinkat(path, directory, alias) < 0 ? -errno : 0;
}

int hook_place_add(int directory, const char *alias, const char *path, uint64_t size, const char *label,
	enum hook_way *ret_way)
{
	struct stat st;
	_cleanup_fd_ int fd = hook_place_open_file(path, &st);

	if (fd < 0)
		return fd;
	if ((uint64_t)st.st_size < size || !domain_xml_is_alias(alias))
		return -EUCLEAN;
	int r = hook_place_set_label(fd, label);
	if (r < 0)
		return r;
	*ret_way = HOOK_WAY_LINK;
	r = hook_place_link_file(directory, alias, fd);
	if (r != -EXDEV)
		return r;
	*ret_way = HOOK_WAY_BIND;
	r = hook_place_bind(directory, alias, fd, &st, label);
	if (r == 0)
		return 0;
	*ret_way = HOOK_WAY_SYMLINK;
	return hook_place_symlink(directory, alias, path) == 0 ? 0 : r;
}

/* Of the mount on top only; who has it open keeps it. */
static int hook_place_unmount(int directory, const char *alias)
{
	char path[PROC_FD_MAX];
	_cleanup_fd_ int fd = openat(directory, alias, O_PATH | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0)
		return errno == ENOENT ? 0 : -errno;
	/* EINVAL: no mount, only the empty file. */
	if (umount2(hook_place_get_proc_path(fd, path), MNT_DETACH) < 0 && errno != EINVAL)
		return -errno;
	return 0;
}

int hook_place_remove(int directory, const struct hook_file *file)
{
	int r = 0;

	if (file->way == HOOK_WAY_BIND && directory >= 0)
		r = hook_place_unmount(directory, file->alias);
	/* It need not be where it was. */
	if (file->way == HOOK_WAY_BIND && r == 0)
		r = hook_mounts_remove_file(file->path);
	if (r < 0)
		return r;
	return directory < 0 ? 0 : hook_place_unlink(directory, file->alias);
}

/* ---- ordinary memory ---- */

static int hook_place_set_number(int fs, const char *key, uint32_t number)
{
	char text[16];

	snprintf(text, sizeof(text), "%u", number);
	return fsconfig(fs, FSCONFIG_SET_STRING, key, text, 0) < 0 ? -errno : 0;
}

int hook_place_add_ordinary(int directory, const char *source, uint32_t uid, uint32_t gid, const char *label)
{
	_cleanup_fd_ int fs = fsopen("tmpfs", FSOPEN_CLOEXEC);

	if (fs < 0)
		return -errno;
	/* The guest's size is the lid. */
	int r = fsconfig(fs, FSCONFIG_SET_STRING, "source", source, 0) < 0 ||
				fsconfig(fs, FSCONFIG_SET_STRING, "size", "0", 0) < 0 ||
				fsconfig(fs, FSCONFIG_SET_STRING, "mode", "0700", 0) < 0
			? -errno
			: 0;
	if (r == 0)
		r = hook_place_set_number(fs, "uid", uid);
	if (r == 0)
		r = hook_place_set_number(fs, "gid", gid);
	if (r == 0 && fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
		r = -errno;
	if (r < 0)
		return r;
	_cleanup_fd_ int tree =
		fsmount(fs, FSMOUNT_CLOEXEC, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC);
	if (tree < 0)
		return -errno;
	r = hook_place_set_label(tree, label);
	if (r == 0 &&
		move_mount(tree, "", directory, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) < 0)
		r = -errno;
	return r;
}
