/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* queue.c - whose turn it is. */
#include "queue.h"

#define PASSED_MAX 16 /* requests served before one that came first, while nothing serves that one */

bool queue_is_for_memory(const struct request *request)
{
	return request->op == HPZ_OP_LEASE || request->op == HPZ_OP_RESERVE || request->op == HPZ_OP_CHANGE;
}

static bool has_share_of(const struct request *request, const struct pool *pool)
{
	for (size_t i = 0; i < request->shares.count; i++) {
		if (request->shares.list[i].pool == pool && request->shares.list[i].pages > 0)
			return true;
	}
	return false;
}

/* Whether it wants what others want, too: nothing is kept for it. */
static bool is_queued(const struct request *request, const struct pool *pool)
{
	return queue_is_for_memory(request) && has_share_of(request, pool) && !request->is_held &&
	       !request->lease.reservation;
}

/* Whether one that waits has its turn before one of that priority that comes later. */
static bool stands_before(const struct request *request, int32_t priority)
{
	return request->lease.priority >= priority || request->passed >= PASSED_MAX;
}

/* Whether they wait for memory of one pool. */
static bool are_rivals(const struct request *one, const struct request *other)
{
	for (size_t i = 0; i < one->shares.count; i++) {
		if (has_share_of(other, one->shares.list[i].pool))
			return true;
	}
	return false;
}

void queue_insert(struct requests *requests, struct request *self)
{
	struct list *place = &requests->waiting;
	list_remove(&self->link);
	for (struct list *pos = place->prev; pos != &requests->waiting; pos = pos->prev) {
		const struct request *request = CONTAINER_OF(pos, struct request, link);
		if (!queue_is_for_memory(request) || !are_rivals(self, request))
			continue;
		if (stands_before(request, self->lease.priority))
			break;
		place = pos;
	}
	list_insert_before(place, &self->link);
}

static void add_to_queue(const struct request *request, struct supply_ask *ask)
{
	for (size_t i = 0; i < request->shares.count; i++) {
		const struct request_share *share = &request->shares.list[i];
		if (share->pool != ask->pool || share->pages == 0)
			continue;
		bool is_first = ask->ahead_pages == 0;
		ask->ahead_pages += share->pages * desk_get_leases(&request->lease);
		ask->bound_pages = is_first ? share->pages : MIN(ask->bound_pages, share->pages);
		ask->may_pass = ask->may_pass && request->passed < PASSED_MAX;
	}
}

void queue_get_ahead(
	const struct requests *requests, const struct request *self, int32_t priority, struct supply_ask *ask)
{
	ask->may_pass = true;
	LIST_FOR_EACH (pos, &requests->waiting) {
		const struct request *request = CONTAINER_OF(pos, struct request, link);
		if (request == self)
			break;
		if (!is_queued(request, ask->pool) || (!self && !stands_before(request, priority)))
			continue;
		add_to_queue(request, ask);
	}
}

void queue_note_passed(
	struct requests *requests, const struct attempt *attempt, const struct spread_piece *pieces)
{
	bool is_before = true;
	LIST_FOR_EACH (pos, &requests->waiting) {
		struct request *request = CONTAINER_OF(pos, struct request, link);
		bool is_rival = false, passes = false;
		is_before = is_before && request != attempt->request;
		for (size_t i = 0; i < attempt->shares->count && request != attempt->request; i++) {
			const struct request_share *share = &attempt->shares->list[i];
			if (share->pages == 0 || !is_queued(request, share->pool))
				continue;
			is_rival = true;
			passes = passes || pieces[i].passes;
		}
		if (!is_rival)
			continue;
		if (is_before && (attempt->request || stands_before(request, attempt->wire->priority)))
			request->passed += passes;
		else
			request->passed += !attempt->request || request->arrival < attempt->request->arrival;
	}
}

/* Whoever waits longest for a pool says what it needs: all shares of it that are of this pool. */
static void count_share(const struct request_shares *shares, size_t index)
{
	const struct request_share *share = &shares->list[index];
	struct pool *pool = share->pool;
	uint32_t earlier = 0;
	for (size_t i = 0; i < index; i++)
		earlier += shares->list[i].pool == pool;
	if (pool->waiting == 0)
		pool->waiting_pages = share->pages;
	if (pool->waiting == earlier)
		pool->lacking_pages += share->lacking_pages;
	pool->waiting++;
}

void queue_count(struct requests *requests)
{
	for (size_t i = 0; i < requests->reconcile->pool_count; i++) {
		requests->reconcile->pools[i]->waiting = 0;
		requests->reconcile->pools[i]->waiting_pages = 0;
		requests->reconcile->pools[i]->lacking_pages = 0;
	}
	LIST_FOR_EACH (pos, &requests->waiting) {
		const struct request *request = CONTAINER_OF(pos, struct request, link);
		for (size_t i = 0; i < request->shares.count; i++)
			count_share(&request->shares, i);
	}
}
