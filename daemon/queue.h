/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * queue.h - whose turn it is: the order of those who wait for memory of a pool.
 */
#ifndef HPZ_QUEUE_H
#define HPZ_QUEUE_H

#include "desk.h"

/* Whether it waits, or does not, for memory of a pool. */
bool queue_is_for_memory(const struct request *request);

/*
 * Its place in the queues of its pools: requests->waiting is in the order of turns, pool by pool. It is one
 * list, so that two requests for the same pools have the same order in each of them.
 */
void queue_insert(struct requests *requests, struct request *self);

/* Who has its turn in a pool before this one (NULL: before one of that priority that comes now), and has
 * nothing kept for it. One that waits for several pools is in the queue of each, and takes from none
 * before it can have all. */
void queue_get_ahead(const struct requests *requests, const struct request *self, int32_t priority,
	struct supply_ask *ask);

/*
 * Those who have nothing kept for them and had the next turn in one of its pools (where it passes them: it
 * was served before its own), or came earlier and have a lower priority.
 */
void queue_note_passed(
	struct requests *requests, const struct attempt *attempt, const struct spread_piece *pieces);

/* Who waits for each pool, in its counters. */
void queue_count(struct requests *requests);

#endif
