/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * doctor.h - what can be wrong on a host. First it is read, below a root that a test may choose, and asked of
 * hpzd; then it is judged, which is pure: each check has a verdict, what it is based on, and a cure.
 */
#ifndef HPZ_DOCTOR_H
#define HPZ_DOCTOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "util.h"

#define DOCTOR_TEXT   320
#define DOCTOR_NAME   64
#define DOCTOR_PATH   256
#define DOCTOR_NODES  64
#define DOCTOR_POOLS  64
#define DOCTOR_MOUNTS 64
#define DOCTOR_SIZES  8
#define DOCTOR_LIMITS 32

/* Of what cannot be read. */
#define DOCTOR_UNKNOWN UINT64_MAX

enum doctor_verdict {
	DOCTOR_OK,
	DOCTOR_NOTE,   /* worth knowing */
	DOCTOR_WARN,   /* it will cost something */
	DOCTOR_FAIL,   /* something does not work */
	DOCTOR_UNSEEN, /* it could not be looked at */
};

/* ---- what was read ---- */

struct doctor_size {
	uint64_t page_size; /* bytes; the rest pages */
	uint64_t nr, free, reserved, surplus, overcommit;
};

struct doctor_node {
	int32_t id;
	uint64_t memory;  /* bytes; 0: none of its own */
	uint64_t free_2m; /* blocks of 2 MiB and more that are free, in pages of 2M */
	uint64_t nr_2m;
};

struct doctor_mount {
	char path[DOCTOR_PATH];
	uint64_t page_size; /* bytes; 0: the kernel's default */
	bool has_size;
};

struct doctor_limit {
	char group[DOCTOR_PATH]; /* the control group, below /sys/fs/cgroup */
	char file[DOCTOR_NAME];
	uint64_t bytes;
};

struct doctor_pool {
	char name[DOCTOR_NAME], mount[DOCTOR_PATH], message[DOCTOR_TEXT];
	uint64_t page_size, target, total; /* bytes */
	uint64_t orphans, retired;         /* bytes */
	uint32_t not_zero, faults;         /* times */
	int32_t node;
};

struct doctor_hpzd {
	bool is_up;
	char error[DOCTOR_TEXT]; /* why it is not */
	char version[DOCTOR_NAME], library[DOCTOR_NAME];
	char proof[DOCTOR_NAME], message[DOCTOR_TEXT];
	char unshare[DOCTOR_NAME]; /* of the kernel, as its regime has it: "affected", "fixed"; "" not known
				    */
	uint64_t returning, alarms, deaths;
	struct doctor_pool pools[DOCTOR_POOLS];
	size_t pool_count;
};

struct doctor_host {
	char release[DOCTOR_NAME]; /* of the kernel; "" not known */
	char cmdline[4096];
	bool has_1g_pages; /* the CPU has */
	bool has_btf;
	char lockdown[DOCTOR_NAME]; /* "none", "integrity", "confidentiality"; "" the kernel has none */
	char thp[DOCTOR_NAME];      /* "always", "madvise", "never"; "" not known */
	struct doctor_size sizes[DOCTOR_SIZES];
	struct doctor_node nodes[DOCTOR_NODES];
	struct doctor_mount mounts[DOCTOR_MOUNTS];
	struct doctor_limit limits[DOCTOR_LIMITS];
	size_t size_count, node_count, mount_count, limit_count;
	uint64_t memory;                          /* bytes of all */
	bool is_run_dir_there, is_run_dir_memory; /* /run/hpz; on a file system in memory */
	bool is_systemd, is_unit_there, is_unit_enabled;
	bool has_libvirt; /* its configuration is there */
	bool is_hook_there, is_hook_executable;
	char backing_dir[DOCTOR_PATH]; /* of qemu.conf; "" not said */
	uint64_t memlock; /* of libvirt's daemon, bytes; UNKNOWN: it does not run, or may not be looked at */
	bool is_memlock_unlimited;
	bool is_apparmor, has_apparmor_rule, is_selinux; /* enforced for libvirt's daemon */
};

/* root "": this host. What cannot be read is as if it were not there. */
void doctor_read(const char *root, struct doctor_host *ret_host);

/* ---- judgement ---- */

struct doctor_finding {
	const char *check;
	enum doctor_verdict verdict;
	char evidence[DOCTOR_TEXT];
	char cure[DOCTOR_TEXT]; /* "" nothing to do */
};

/* The finding of check number `index`; false: there are no more. */
bool doctor_judge(const struct doctor_host *host, const struct doctor_hpzd *hpzd, size_t index,
	struct doctor_finding *ret_finding);

/* "ok", "note", "warn", "fail", "unseen" */
const char *doctor_get_verdict(enum doctor_verdict verdict);

#endif
