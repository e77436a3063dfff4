/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * reconcile.h - brings pools nearer to their stock, once after each batch of events.
 * A handler only marks; here inventory and config go into policy_plan, and what comes out is started: fills,
 * clears, discards, raising nr_hugepages. It decides, work.h does. Serves no request (a callback does).
 */
#ifndef HPZ_RECONCILE_H
#define HPZ_RECONCILE_H

#include "handoff.h"
#include "relief.h"
#include "sentry.h"
#include "teardown.h"
#include "work.h"

struct reconcile_callbacks {
	/* Before the plan: whoever waits may be served from what is clean now. */
	void (*serve)(void *user);
	/* After it: states are settled until the next event. */
	void (*settled)(void *user);
	/* The journal is written anew: what is above. May be NULL. */
	void (*write)(struct journal *journal, void *user);
	void *user;
};

struct reconcile {
	uv_loop_t *loop;
	const struct host *host;
	struct crew *crew;
	struct work work; /* what it starts */
	struct nr nr;     /* and how it gets pages from the kernel */
	struct relief relief;
	struct prover *prover;
	struct handoff *handoff;
	struct lease_table *leases;
	struct sentry *sentry;     /* NULL: clean memory is not watched */
	struct teardown *teardown; /* NULL: nobody keeps what ends cost */
	struct journal *journal;
	struct reconcile_callbacks callbacks;

	struct pool **pools;
	size_t pool_count;
	struct list *stores; /* struct segment_store.link */

	uv_prepare_t prepare;
	uv_timer_t tick;     /* while something is short or being retried */
	struct list watches; /* files of sysfs */
	bool is_marked, is_stopping, is_started;
	bool has_leftovers; /* workers of a dead hpzd live on: nothing is started */
	bool is_off;        /* config: what is started stands still, whoever waits for it */

	unsigned low_percent, high_percent, reshape_percent; /* config: see struct policy_input */
};

/* Nothing runs yet; pools are added before reconcile_start() or later. */
void reconcile_init(struct reconcile *reconcile, uv_loop_t *loop, const struct host *host, struct crew *crew,
	struct prover *prover, struct handoff *handoff, struct lease_table *leases,
	const struct reconcile_callbacks *callbacks);
int reconcile_add_pool(struct reconcile *reconcile, struct pool *pool);
/* Takes a pool without work and without leases off. */
void reconcile_remove_pool(struct reconcile *reconcile, struct pool *pool);
/* Waits for leftovers of a dead hpzd, calibrates, then works. */
void reconcile_start(struct reconcile *reconcile, struct journal *journal);
/* [clear], as far as it is not the crew's: before the start, and whenever it changes. */
void reconcile_set_clear(struct reconcile *reconcile, const struct config_clear *clear);
/*
 * Measures the methods of clearing anew, on pages of every pool that `name` fits ("": all): a clean segment
 * becomes dirty for it and is cleared afterwards. How many pools that are; 0: none has pages to spare now.
 * Over when reconcile_is_calibrating() says no.
 */
size_t reconcile_calibrate(struct reconcile *reconcile, const char *name);
bool reconcile_is_calibrating(const struct reconcile *reconcile, const char *name);
/* Starts nothing any more. Handles are closed; whoever runs the loop waits for that. */
void reconcile_stop(struct reconcile *reconcile);
void reconcile_deinit(struct reconcile *reconcile);

/* Whether somebody else opened what has just left clean/: then it must not be handed out. */
bool reconcile_was_opened(struct reconcile *reconcile, const struct pool_segment *segment);
/* Opens clean memory without being taken for somebody else. -EBUSY: somebody else did. */
int reconcile_open_clean(struct reconcile *reconcile, struct pool_segment *segment);

/* Something changed: look before the loop waits again. */
void reconcile_mark(struct reconcile *reconcile);

/* A record of the journal, while it is read: what an earlier hpzd raised. The pools exist already. */
void reconcile_read_record(
	struct reconcile *reconcile, enum journal_type type, const void *payload, size_t bytes);

/* Writes the journal anew from what is known. 0 or negative errno. */
int reconcile_compact(struct reconcile *reconcile);

/* Lowers nr_hugepages by what was raised; -EAGAIN while that is under way, 0 when nothing is left to give. */
int reconcile_give_back(struct reconcile *reconcile, struct pool *pool);

/* Stock full, nothing returning, nobody waiting. */
bool reconcile_is_idle(const struct pool *pool, const struct lease_table *leases);
/* Nothing but leased memory is left. */
bool reconcile_is_drained(const struct pool *pool);
uint64_t reconcile_get_returning(const struct pool *pool, const struct lease_table *leases); /* pages */

/* Of the first pool that has one; "" before calibration or if none works. */
const char *reconcile_get_method(const struct reconcile *reconcile);

#endif
