/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * resize.h - how large a pool is to be while hpzd runs: as an operator says, between nothing and max_pages.
 *
 * It holds at once for what is planned; memory follows as it can: pages come from the kernel, leased ones go
 * when their leases end, and nr_hugepages is lowered by what it was raised by for them. It outlives a
 * restart, and ends when the configuration says another number of pages.
 */
#ifndef HPZ_RESIZE_H
#define HPZ_RESIZE_H

#include "nr.h"

/* What an operator may say; values of enum hpz_resize_kind. */
struct resize_order {
	uint32_t kind;
	uint64_t pages;
};

/* What a pool was last told to be, whatever is taken off it for a while. */
uint64_t resize_get_base(const struct pool *pool);

/* The size a pool would have then. 0, or -EINVAL, -ERANGE (above max_pages), with the reason in ret_why. */
int resize_find_target(const struct pool *pool, const struct resize_order *order, uint64_t *ret_pages,
	char *ret_why, size_t capacity);

/* Journal first. 0 or negative errno, then nothing has changed. */
int resize_set(struct nr *nr, struct pool *pool, uint64_t pages);

/*
 * A reload: the configuration as it is now. Where that says another number of pages an order ends, for later
 * starts, too.
 */
void resize_set_config(struct nr *nr, struct pool *pool, const struct config_pool *config);

/* So many pages are withheld from it from now on. The same. */
int resize_withhold(struct nr *nr, struct pool *pool, uint64_t pages);

/* What is still to be done, in pages. */
struct resize_left {
	uint64_t grow;      /* of the stock, not there or not clean */
	uint64_t shrink;    /* held beyond the target: in leases, or about to go */
	uint64_t give_back; /* nr_hugepages is not lowered yet by so much */
};
/* True: nothing is. The pool's plan is of now. */
bool resize_get_left(const struct pool *pool, struct resize_left *ret_left);

/* The journal. */
void resize_read_record(struct pool *pool, enum journal_type type, const void *payload, size_t bytes);
int resize_write(struct journal *journal, const struct pool *pool);

#endif
