/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * hook_state.h - what the hook did for a domain, for its later calls: one small file for each domain that
 * runs, below hpzd's run directory. Without it nothing is lost but time: a lease that nobody has open ends by
 * itself.
 */
#ifndef HPZ_HOOK_STATE_H
#define HPZ_HOOK_STATE_H

#include "domain_xml.h"
#include "hook_settings.h"

/* How QEMU finds a file under its alias. */
enum hook_way {
	HOOK_WAY_LINK,    /* another name of it */
	HOOK_WAY_BIND,    /* mounted over an empty file */
	HOOK_WAY_SYMLINK, /* a symbolic link to it */
	HOOK_WAY_OWN,     /* no file of the pool: one of the domain's own, of the kernel's pages */
};

struct hook_file {
	char alias[DOMAIN_ALIAS_MAX + 1];
	enum hook_way way;
	char path[HOOK_PATH_MAX]; /* in the pool, where only root can change names; "" of an own file */
};

struct hook_state {
	char directory[DOMAIN_DIRECTORY_MAX]; /* of the domain, below the backing directory */
	uint64_t lease;                       /* 0: none */
	bool is_taken;                        /* the lease is one that hpzd does not know of yet */
	bool is_ordinary;                     /* ordinary memory is mounted over the directory */
	size_t file_count;
	struct hook_file files[DOMAIN_FILES_MAX];
};

/*
 * The name of the file: of the uuid, and of the backing directory by device and inode, because two libvirtds
 * of one host may have the same domain while it moves from one to the other.
 */
#define HOOK_STATE_NAME_MAX 96
void hook_state_get_name(const char *uuid, uint64_t dev, uint64_t ino, char ret_name[HOOK_STATE_NAME_MAX]);

/*
 * 0; -ENOENT: there is none; -ESTALE: it is of an earlier boot, of which nothing is left, and whose numbers
 * mean others now; -EBADMSG: it is not understood; or another negative errno.
 */
int hook_state_read(const char *run_dir, const char *name, struct hook_state *ret_state);
/* Replaces what was there, at once or not at all. 0 or negative errno. */
int hook_state_write(const char *run_dir, const char *name, const struct hook_state *state);
void hook_state_remove(const char *run_dir, const char *name);

#endif
