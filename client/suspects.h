/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * suspects.h - which leases have lost their domain.
 * Pure: what is known of leases and domains in, a verdict out; no system call, no clock. A lease is released
 * only if two looks, a grace time apart, both find its domain neither in libvirt nor as a process: between
 * the hook's answer and the domain's start, and while a domain moves here, one look may be wrong.
 */
#ifndef HPZ_SUSPECTS_H
#define HPZ_SUSPECTS_H

#include "util.h"

enum suspects_verdict {
	SUSPECTS_KEEP,
	SUSPECTS_WATCH,   /* look again */
	SUSPECTS_RELEASE, /* the verdict stands until it is forgotten: who fails to release it tries again */
};

struct suspect {
	uint64_t lease;
	uint64_t since_ns;
	bool is_seen; /* in this look */
};

struct suspects {
	uint64_t grace_ns;
	struct suspect *items;
	size_t count, capacity;
};

void suspects_deinit(struct suspects *suspects);
/* A look: begin, one verdict for each lease of a domain, end. What is in no look is forgotten at its end. */
void suspects_begin(struct suspects *suspects);
/* `is_used`: its domain is active, or a process runs it. */
enum suspects_verdict suspects_judge(
	struct suspects *suspects, uint64_t lease, uint64_t age_ns, bool is_used, uint64_t now_ns);
void suspects_end(struct suspects *suspects);

#endif
