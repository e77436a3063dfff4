/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * nr.h - nr_hugepages: how many pages the kernel keeps by order, and how many of these by ours.
 *
 * Raises and lowers by differences, never to a number: others use the same pools of the kernel. The journal
 * knows of it first, so that whoever starts after a death in between finds out what came of it. Whatever
 * blocks (the kernel looks for memory, or compacts it) is done in libuv's pool. Decides nothing: when and by
 * how much is the policy's. What others do to the number is noticed here and said.
 */
#ifndef HPZ_NR_H
#define HPZ_NR_H

#include <uv.h>

#include "journal.h"
#include "pool.h"

struct nr {
	uv_loop_t *loop;
	const struct host *host;
	struct journal *journal;
	void (*changed)(void *user); /* something is over */
	void *user;
};

void nr_init(
	struct nr *nr, uv_loop_t *loop, const struct host *host, void (*changed)(void *user), void *user);

/*
 * Raises (pages > 0; pool->nr_awaited of them for somebody who waits) or lowers nr_hugepages of the pool's
 * node; where it cannot be raised so far, memory is compacted, once, and the rest asked for again.
 * pool->is_raising until it is over. 0 or negative errno; -EBUSY: something is under way.
 */
int nr_change(struct nr *nr, struct pool *pool, int64_t pages);

/*
 * So many of the pages we raised it by are wanted no more (pages > 0), or are wanted again: nr_change()
 * lowers it by them as they come free. Never more than what is ours.
 */
void nr_owe(struct nr *nr, struct pool *pool, int64_t pages);
/*
 * What was raised for somebody who waited, and who waits no more, is owed as his memory comes back and the
 * pool lacks nothing; its plan is of now. True: some of it is.
 */
bool nr_owe_awaited(struct nr *nr, struct pool *pool);

/*
 * Looks whether somebody else changed the number; pool->kernel has just been read. True: so it was, and what
 * is ours of it may be less now.
 */
bool nr_look(struct nr *nr, struct pool *pool);
/* What is to be done about it, for people. False: nothing. */
bool nr_explain(const struct pool *pool, char *ret_text, size_t capacity);

/* The journal: a record that is read, and all that must be known after a compaction. */
void nr_read_record(struct nr *nr, struct pool *const *pools, size_t pool_count, enum journal_type type,
	const void *payload, size_t bytes);
void nr_write_all(const struct nr *nr, struct journal *journal, struct pool *const *pools, size_t pool_count);

#endif
