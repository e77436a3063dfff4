/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * hook_ask.h - what the hook asks hpzd, each time in a process of its own with a deadline: an hpzd that has
 * stopped must not hold up libvirt, and libhpz waits for it longer than the hook may.
 */
#ifndef HPZ_HOOK_ASK_H
#define HPZ_HOOK_ASK_H

#include "hook_settings.h"
#include "domain_xml.h"

/* Memory for the files of a plan, in their order. */
struct hook_memory {
	uint64_t lease;
	size_t count;
	char paths[DOMAIN_FILES_MAX][HOOK_PATH_MAX]; /* of files that only root can rename */
};

struct hook_answer {
	int error; /* enum hpz_error; HPZ_ERR_TIMEOUT also when there was none in time */
	char text[512];
	struct hook_memory memory;
};

struct hook_order {
	const struct domain_plan *plan;
	uint64_t page_size; /* 0: any */
	const char *label, *key;
	uint32_t uid, gid; /* of the files */
};

/*
 * Leases the files of a plan, all or none, waiting for clean memory as long as there is time. deadline_ns is
 * of CLOCK_MONOTONIC.
 */
void hook_ask_lease(const struct hook_settings *settings, const struct hook_order *order,
	uint64_t deadline_ns, struct hook_answer *ret_answer);
/* Ends a lease; one that has ended already is success. */
void hook_ask_release(const struct hook_settings *settings, uint64_t lease, uint64_t deadline_ns,
	struct hook_answer *ret_answer);
/*
 * hpzd knows this lease; one whose owner it has forgotten becomes ours again. UNKNOWN_LEASE and ENDED: it
 * does not.
 */
void hook_ask_adopt(const struct hook_settings *settings, uint64_t lease, uint64_t deadline_ns,
	struct hook_answer *ret_answer);

/* In a child of the hook, which is of use to nobody without `parent`: it dies with it. */
void hook_ask_follow(int32_t parent);

#endif
