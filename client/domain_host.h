/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * domain_host.h - what of this host's set-up for libvirt keeps domains from pooled memory, or is worth a
 * word. First it is read, below a root that a test may choose; then it is judged, which is pure.
 */
#ifndef HPZ_DOMAIN_HOST_H
#define HPZ_DOMAIN_HOST_H

#include "domain_xml.h"
#include "hook_settings.h"

#define DOMAIN_HOST_TEXT_MAX 512

enum domain_hook {
	DOMAIN_HOOK_NOWHERE, /* hpz was built to install none */
	DOMAIN_HOOK_MISSING,
	DOMAIN_HOOK_BROKEN, /* libvirt cannot run what is there */
	DOMAIN_HOOK_HIDDEN, /* who asks may not look: only root sees /etc/libvirt on some hosts */
	DOMAIN_HOOK_THERE,
};

struct domain_host {
	enum domain_hook hook;
	char hook_path[HOOK_PATH_MAX];
	bool has_conf;                   /* qemu.conf can be read */
	char backing_dir[HOOK_PATH_MAX]; /* memory_backing_dir of qemu.conf; "" not said */
	char user[64];                   /* of qemu.conf; "" not said */
	bool is_owner_kept;              /* dynamic_ownership = 0: libvirt gives QEMU no files */
	bool is_unconfined;              /* guests are, if their XML says nothing else */
	bool is_on_huge;                 /* the hook's directory is on a hugetlbfs, */
	bool is_on_pool;                 /* on that of a pool */
	bool is_the_mount;               /* memory_backing_dir is a pool's mount itself */
	bool is_apparmor_enforced;       /* for libvirtd */
	bool has_hook_rule, has_guest_rule;
	bool is_selinux_enforced;
	unsigned long version; /* libvirt's, as 9000000 is 9.0.0; 0: not known */
};

/* hook_path "": hpz installs none. What cannot be read is not there. */
void domain_host_read(const char *root, const char *hook_path, const struct hook_settings *settings,
	struct domain_host *ret_host);

/*
 * The next thing to be said of a domain on this host, from *at = 0 on, which moves; false: no more. A problem
 * keeps its memory from coming from a pool.
 */
bool domain_host_next(const struct domain_host *host, const struct hook_settings *settings,
	const struct domain *domain, bool is_wrapped, size_t *at, bool *ret_is_problem,
	char ret_text[DOMAIN_HOST_TEXT_MAX]);

#endif
