/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * orphan.h - files of ours that are gone while somebody still holds their pages.
 * The lease was forced to its end, or its memory is not to be reused: its name is removed, it is in no list
 * of a pool any more, and the kernel has the pages back when the last holder lets go. Until then each is
 * counted, told of, and looked at from time to time through a descriptor of ours, which is closed as soon as
 * nobody else holds the file. Only as long as the proof can tell that: else the descriptor would be what
 * keeps the pages.
 *
 * Descriptors end with hpzd. After a restart nothing is known of an orphan but that the kernel has fewer free
 * pages than it should (orphan_say_unknown).
 */
#ifndef HPZ_ORPHAN_H
#define HPZ_ORPHAN_H

#include "lease.h"
#include "prover.h"

struct orphans;

struct orphan {
	struct list link; /* by lease, ascending */
	struct orphans *orphans;
	char pool[64]; /* name; the pool itself may be gone */
	uint64_t page_size;
	uint64_t lease;
	uint32_t uid; /* of the file's owner while it was leased */
	char label[HPZ_LABEL_MAX + 1];
	uint64_t asked;           /* bytes, of the lease */
	uint64_t granted_boot_ns; /* CLOCK_BOOTTIME */
	uint64_t pages;           /* still allocated, when last looked at */
	enum proof_reason reason;

	int fd;
	uint64_t born_ns, due_ns; /* CLOCK_MONOTONIC */
	unsigned attempts;
	bool was_alarmed; /* older than a minute, and said so */
	struct crew_job *job;
};
#define ORPHAN_OF(pos) CONTAINER_OF(pos, struct orphan, link)

/* `changed` is called when one is gone. */
int orphan_init(uv_loop_t *loop, struct crew *crew, struct prover *prover, void (*changed)(void *user),
	void *user, struct orphans **ret_orphans);
/* No look any more; whoever runs the loop waits for the handle. */
void orphan_close(struct orphans *orphans);
void orphan_free(struct orphans *orphans);

/* A segment of this lease whose name is removed. Consumes the descriptor, our only one of the file. */
void orphan_add_take(struct orphans *orphans, const struct lease *lease, const struct pool_segment *segment,
	const struct worker_done *seen, int fd);

/* In pages, of one pool; *ret_files may be NULL. */
uint64_t orphan_get_pages(const struct orphans *orphans, const struct pool *pool, uint32_t *ret_files);
/* In bytes, of one owner: part of what a quota counts. */
uint64_t orphan_get_bytes(const struct orphans *orphans, uint32_t uid);
/* struct orphan.link, by lease. Borrowed. */
const struct list *orphan_get_list(const struct orphans *orphans);

/* Says how many pages the kernel has in use that are not the pool's: orphans of an earlier hpzd, or others'.
 */
void orphan_say_unknown(const struct pool *pool, const struct host_counters *kernel);

#endif
