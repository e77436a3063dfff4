/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * orphan.h - files of ours that are gone while somebody still holds their pages.
 * The lease was forced to its end, or its memory is not to be reused: its name is removed, it is in no list
 * of a pool any more, and the kernel has the pages back when the last holder lets go. Until then each is
 * counted, told of, and looked at from time to time through a descriptor of ours, which is closed as soon as
 * nobody else holds the file. Only as long as the proof can tell that: else the descriptor would be what
 * keeps the pages.
 *
 * Descriptors end with hpzd; the journal remembers. An orphan is announced there before its name goes, so
 * that no death loses it. After a restart its pages cannot be looked at any more. What is known then is how
 * many pages the kernel has in use that are in no book of ours: no more than that can be orphaned still. When
 * that count says so, and says so again, the pages are back. Other programs' pages are in that count, too: it
 * is a limit, not the truth, and errs to the owner's disadvantage, never to that of the others.
 */
#ifndef HPZ_ORPHAN_H
#define HPZ_ORPHAN_H

#include "lease.h"
#include "prover.h"

/* Looks at the kernel's count of which the highest counts: a holder that punches and fills its memory all the
 * time may escape one of them. */
#define ORPHAN_UNSEEN_LOOKS 3

struct orphans;

struct orphan {
	struct list link; /* by lease, ascending */
	struct orphans *orphans;
	char pool[64]; /* name; the pool itself may be gone */
	uint64_t page_size;
	int32_t node;
	uint64_t lease, segment;
	uint32_t uid; /* of the file's owner while it was leased */
	char label[HPZ_LABEL_MAX + 1];
	uint64_t asked;           /* bytes, of the lease */
	uint64_t granted_boot_ns; /* CLOCK_BOOTTIME */
	uint64_t pages;           /* still allocated, when last looked at */
	enum proof_reason reason;

	int fd;                               /* -1: announced, or of an hpzd that is gone */
	bool is_recovered;                    /* of an hpzd that is gone: cannot be looked at */
	uint64_t unseen[ORPHAN_UNSEEN_LOOKS]; /* of an hpzd that is gone: what the kernel counted, last first
					       */
	uint64_t born_ns, due_ns;             /* CLOCK_MONOTONIC */
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

/* ---- the journal ---- */

/* One record, in order, while the journal is read. */
void orphan_read_record(struct orphans *orphans, enum journal_type type, const void *payload, size_t bytes);
/* Names are adopted: what still has one is no orphan. Writes to the journal from now on. */
void orphan_finish_adoption(
	struct orphans *orphans, const struct lease_table *leases, struct journal *journal);
void orphan_write_all(const struct orphans *orphans, struct journal *journal);
uint64_t orphan_get_journal_bytes(const struct orphans *orphans);

/* ---- coming and going ---- */

/* The name of this segment is about to be removed. Twice is fine. */
void orphan_announce(struct orphans *orphans, const struct lease *lease, const struct pool_segment *segment);
/* It is not, or nobody holds it, or nothing can tell. */
void orphan_cancel(struct orphans *orphans, const struct lease *lease, const struct pool_segment *segment);
/* A segment of this lease whose name is removed. Consumes the descriptor, our only one of the file. */
void orphan_add_take(struct orphans *orphans, const struct lease *lease, const struct pool_segment *segment,
	const struct worker_done *seen, int fd);

/* In pages, of one pool; *ret_files may be NULL. */
uint64_t orphan_get_pages(const struct orphans *orphans, const struct pool *pool, uint32_t *ret_files);
/* In bytes, of one owner: part of what a quota counts. */
uint64_t orphan_get_bytes(const struct orphans *orphans, uint32_t uid);
/* struct orphan.link, by lease. Borrowed. */
const struct list *orphan_get_list(const struct orphans *orphans);

/* "a pinned page", ..., or that nobody can know any more. */
const char *orphan_get_reason_text(const struct orphan *orphan);

/* ---- those of an hpzd that is gone ---- */

bool orphan_has_recovered(const struct orphans *orphans, const struct pool *pool);
/*
 * `ours`: pages of the kernel's that are in our pools' books, counted before `kernel` was read. Returns ms
 * until the next look is due; UINT64_MAX: nothing of that kind is left.
 */
uint64_t orphan_reconcile(
	struct orphans *orphans, const struct pool *pool, uint64_t ours, const struct host_counters *kernel);

#endif
