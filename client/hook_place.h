/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * hook_place.h - the hook's hands: files of the pool in a domain's directory, and out of it again. The
 * directory is QEMU's, so nothing in it is believed and no link in it is followed; everything is done by
 * descriptors and by names of one component.
 */
#ifndef HPZ_HOOK_PLACE_H
#define HPZ_HOOK_PLACE_H

#include "hook_state.h"
#include "lease_key.h"

/* The backing directory. A descriptor or negative errno. */
int hook_place_open_base(const char *backing_dir);
/* A domain's directory in it, and nowhere else. A descriptor or negative errno. */
int hook_place_open_directory(int base, const char *name);

/*
 * A text for this start of the domain that the directory is of: it is new at each start, and two libvirtds of
 * one host, between which a domain may move, do not share it. The next directory may get the inode of the
 * last one, whose leases need not have ended: when it was made counts, too, where the file system knows.
 */
void hook_place_get_start(int directory, char ret_start[LEASE_KEY_START_SIZE]);

/* Page size of the hugetlbfs that a descriptor is on; 0: it is on none. */
uint64_t hook_place_get_page_size(int fd);

/* Gives a file of the pool to the user QEMU runs as. For files that hpzd has not given yet. */
int hook_place_give(const char *path, uint32_t uid, uint32_t gid);

/*
 * Makes a file for the user QEMU runs as, mode 0600, that has no name yet and goes with its last descriptor.
 * A descriptor or negative errno.
 */
int hook_place_make_file(int directory, uint32_t uid, uint32_t gid, const char *label);
/* Gives it one; what had that name is removed. 0 or negative errno. */
int hook_place_link_file(int directory, const char *alias, int fd);

/*
 * Puts a file of the pool, which has at least `size` bytes, under its alias into a directory: as a link where
 * both are on one mount, else mounted over an empty file, else as a symbolic link. What had that name is
 * removed. A label is SELinux's, "" none. 0 or negative errno; -EUCLEAN: it is no such file.
 */
int hook_place_add(int directory, const char *alias, const char *path, uint64_t size, const char *label,
	enum hook_way *ret_way);
/* Takes it out again; directory -1: it is gone, or moved. What is not there is fine. 0 or negative errno. */
int hook_place_remove(int directory, const struct hook_file *file);

/*
 * From now on nobody can open a file who has it not open: owner root, mode 0. 0 or negative errno.
 */
int hook_place_close_door(const char *path);

/* Mounts ordinary memory of any size over a directory, by that source, which is no path. 0 or negative errno.
 */
int hook_place_add_ordinary(int directory, const char *source, uint32_t uid, uint32_t gid, const char *label);

#endif
