/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * hook_settings.h - what the hook must know of the host: [libvirt] of hpzd.conf, where hpzd is and has its
 * memory, and where libvirt makes its directories.
 */
#ifndef HPZ_HOOK_SETTINGS_H
#define HPZ_HOOK_SETTINGS_H

#include "util.h"

#define HOOK_PATH_MAX  256
#define HOOK_POOLS_MAX 64

/* Without a memory_backing_dir libvirt has a directory for each domain right below this. */
#define HOOK_DEFAULT_BACKING_DIR "/var/lib/libvirt/qemu/ram"

struct hook_pool {
	char mount[HOOK_PATH_MAX];
	uint64_t page_size;
	int32_t node;
	bool may_reuse; /* what has been handed out before may go to anybody */
};

struct hook_settings {
	bool is_enabled;
	bool refuses; /* on_failure */
	unsigned deadline_ms;
	char socket[HOOK_PATH_MAX], run_dir[HOOK_PATH_MAX];
	char backing_dir[HOOK_PATH_MAX]; /* the one with a directory for each domain */
	bool is_for_ram;                 /* of [qemu], for hpzctl domain check */
	bool has_user;
	uint32_t uid, gid;
	size_t pool_count;
	struct hook_pool pools[HOOK_POOLS_MAX];
	char mistake[512]; /* why these are the defaults; "" they are not */
};

/*
 * Always gives settings: a configuration that cannot be read must keep no domain from starting. config_path
 * NULL: $HPZ_CONFIG, else hpzd's own.
 */
void hook_settings_read(const char *config_path, struct hook_settings *ret_settings);

/* Whether hpzd has pages of that size. */
bool hook_settings_has_pool(const struct hook_settings *settings, uint64_t page_size);

/* What a key of the text of a qemu.conf is, without quotes; "" it does not say. */
void hook_settings_find_value(FILE *qemu_conf, const char *key, char *ret_value, size_t capacity);
/* What memory_backing_dir is in the text of a qemu.conf; "" it does not say. For hook_settings_read() and its
 * test. */
void hook_settings_find_backing_dir(FILE *qemu_conf, char *ret_path, size_t capacity);

#endif
