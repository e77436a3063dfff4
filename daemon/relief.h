/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * relief.h - pools that say `give_back = pressure` are made smaller, a step at a time, while others wait for
 * memory, and larger again when that has been over for a while. Reads /proc/pressure/memory every two seconds
 * as long as there is such a pool; how a pool gets smaller is resize's and nr's.
 */
#ifndef HPZ_RELIEF_H
#define HPZ_RELIEF_H

#include "demote.h"

struct relief {
	struct nr *nr;
	uv_timer_t timer;
	struct pool *const *pools;
	size_t pool_count;
	uint64_t total_us, at_ns; /* of the last look; at_ns 0: there was none */
	bool was_missed;          /* the kernel does not count it, and that was said */
	void (*changed)(void *user);
	void *user;
};

/* Sizes of pools have changed: `changed`. */
void relief_init(struct relief *relief, struct nr *nr, void (*changed)(void *user), void *user);
void relief_close(struct relief *relief);

/* These are the pools from now on; their configuration may have changed. */
void relief_set_pools(struct relief *relief, struct pool *const *pools, size_t pool_count);

/* One look; CLOCK_MONOTONIC. By itself, and for tests. */
void relief_look(struct relief *relief, uint64_t now_ns);

#endif
