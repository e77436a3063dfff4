/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * demote.h - free pages of one pool become smaller ones of another on the same node, by the kernel's
 * `demote`.
 *
 * The pool they leave is smaller from the order on: its clean segments go first, so that the kernel has the
 * pages free; then the kernel splits them. The other pool is larger by them, as far as its max_pages allow,
 * and what was raised is raised there. Pages in use are never touched. If we die in between, the journal and
 * the kernel's numbers say how far it came.
 */
#ifndef HPZ_DEMOTE_H
#define HPZ_DEMOTE_H

#include "resize.h"

/*
 * So many pages are to go. 0; -ENOENT: the kernel cannot split pages of that size, or there is no pool for
 * what comes of them; -EBUSY: others are on their way; -EINVAL: more than the pool is to have. ret_why says
 * it for people.
 */
int demote_order(const struct nr *nr, struct pool *pool, struct pool *const *pools, size_t pool_count,
	uint64_t pages, char *ret_why, size_t capacity);

/*
 * After each look at the pool, whose plan is of now: goes on with what was ordered. Over when
 * pool->size.demoting is 0; pool->demoted has grown by what it came to.
 */
void demote_step(struct nr *nr, struct pool *pool, struct pool *const *pools, size_t pool_count);

/* The journal: what an earlier hpzd was about to do. Before nr's and resize's later records. */
void demote_read_record(const struct host *host, struct pool *const *pools, size_t pool_count,
	enum journal_type type, const void *payload, size_t bytes);
/* After a compaction: what is under way. After the records of all pools. */
void demote_write(struct journal *journal, const struct pool *pool);

#endif
