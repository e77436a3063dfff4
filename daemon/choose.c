/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* choose.c - which pools are to serve a request. */
#include <inttypes.h>
#include <limits.h>

#include "choose.h"
#include "size.h"

#define RANK_WAITS 2 /* of a pool that cannot serve a request now */

/* Of all of them together. */
static uint64_t get_pages(const struct hpz_wire_lease *wire, uint64_t page_size)
{
	return size_pages(wire->bytes, page_size) * desk_get_leases(wire);
}

bool choose_fits_node(const struct pool *pool, int32_t node)
{
	return node == HPZ_WIRE_NODE_ANY || pool->config.node == node;
}

uint64_t choose_get_most(const struct pool *pool)
{
	uint64_t most = pool->config.max_pages;
	LIST_FOR_EACH (pos, &pool->classes)
		most = MAX(most, CONTAINER_OF(pos, struct pool_class, link)->pages);
	return most;
}

/* Page sizes of the pools of that node, ascending, each once. */
static size_t list_page_sizes(
	const struct requests *requests, int32_t node, uint64_t ret_sizes[CONFIG_POOLS_MAX])
{
	size_t count = 0;
	for (size_t i = 0; i < requests->reconcile->pool_count; i++) {
		const struct pool *pool = requests->reconcile->pools[i];
		uint64_t size = pool->config.page_size;
		size_t at = 0;
		while (at < count && ret_sizes[at] < size)
			at++;
		if (!choose_fits_node(pool, node) || (at < count && ret_sizes[at] == size) ||
			count == CONFIG_POOLS_MAX)
			continue;
		memmove(&ret_sizes[at + 1], &ret_sizes[at], (count - at) * sizeof *ret_sizes);
		ret_sizes[at] = size;
		count++;
	}
	return count;
}

static size_t find_page_size(const uint64_t *sizes, uint64_t size)
{
	size_t at = 0;
	while (sizes[at] != size)
		at++;
	return at;
}

/* The lower, the sooner it can be served; the plan is in requests->plan. */
static unsigned rank_pool(struct requests *requests, struct pool *pool, const struct hpz_wire_lease *wire,
	const struct request_peer *peer, struct request *self)
{
	struct supply_ask ask = hold_make_ask(
		requests, pool, size_pages(wire->bytes, pool->config.page_size), wire, peer, self);
	supply_plan(&requests->supply, &ask, &requests->plan);
	if (requests->plan.kind == PLANNER_WAIT)
		return RANK_WAITS;
	return requests->plan.zeroed_pages > 0;
}

/* Which pool is to serve it: one that can now, with most clean memory; else one that ever could. NULL: none.
 */
static struct pool *find_pool(struct requests *requests, const struct hpz_wire_lease *wire,
	const struct request_peer *peer, int32_t node, uint64_t page_size, struct request *self)
{
	struct pool *best = NULL;
	unsigned best_rank = UINT_MAX;
	uint64_t pages = get_pages(wire, page_size);
	for (size_t i = 0; i < requests->reconcile->pool_count; i++) {
		struct pool *pool = requests->reconcile->pools[i];
		if (pool->config.page_size != page_size || !choose_fits_node(pool, node) ||
			choose_get_most(pool) < pages)
			continue;
		unsigned rank = rank_pool(requests, pool, wire, peer, self);
		if (rank > best_rank ||
			(rank == best_rank && pool->pages[SEGMENT_CLEAN] <= best->pages[SEGMENT_CLEAN]))
			continue;
		best = pool;
		best_rank = rank;
	}
	return best;
}

/* The preferred one if it can serve at once, or nobody can. */
static struct pool *find_preferred(struct requests *requests, const struct hpz_wire_lease *wire,
	const struct request_peer *peer, uint64_t page_size, struct request *self)
{
	struct pool *pool = find_pool(requests, wire, peer, wire->node, page_size, self);
	if (wire->policy != HPZ_NODES_PREFERRED ||
		(pool && rank_pool(requests, pool, wire, peer, self) < RANK_WAITS))
		return pool;
	struct pool *other = find_pool(requests, wire, peer, HPZ_WIRE_NODE_ANY, page_size, self);
	if (other && (!pool || rank_pool(requests, other, wire, peer, self) < RANK_WAITS))
		return other;
	return pool;
}

static bool has_pool_on(const struct requests *requests, int32_t node, uint64_t page_size)
{
	for (size_t i = 0; i < requests->reconcile->pool_count; i++) {
		const struct config_pool *pool = &requests->reconcile->pools[i]->config;
		if (pool->node == node && (!page_size || pool->page_size == page_size))
			return true;
	}
	return false;
}

/* "; there is one on node 0, 2", each once; "" where there is none at all. */
static void list_nodes(const struct requests *requests, uint64_t page_size, char *ret_text, size_t capacity)
{
	size_t used = 0;
	ret_text[0] = '\0';
	for (size_t i = 0; i < requests->host->node_count && used + 24 < capacity; i++) {
		int32_t node = requests->host->nodes[i];
		if (has_pool_on(requests, node, page_size))
			used += (size_t)snprintf(ret_text + used, capacity - used, "%s%" PRId32,
				used ? ", " : "; there is one on node ", node);
	}
}

/* No pool of that node (any) and page size (0: any); says where there are some. */
static enum request_outcome refuse_no_pool(
	struct requests *requests, const struct hpz_wire_head *head, int32_t node, uint64_t page_size)
{
	char page[SIZE_TEXT], where[32] = "", nodes[160];
	if (node != HPZ_WIRE_NODE_ANY)
		snprintf(where, sizeof where, " on node %" PRId32, node);
	list_nodes(requests, page_size, nodes, sizeof nodes);
	return desk_refuse(requests, head, HPZ_ERR_NO_POOL, "there is no pool%s%s%s%s", where,
		page_size ? " with pages of " : "", page_size ? size_format_exact(page_size, page) : "",
		nodes);
}

/* No pool of that node and page size (0: any) may ever hold so much. */
static enum request_outcome refuse_too_large(struct requests *requests, const struct hpz_wire_head *head,
	int32_t node, uint64_t page_size, uint64_t bytes)
{
	char size[SIZE_TEXT], page[SIZE_TEXT], largest_text[SIZE_TEXT], where[32] = "";
	uint64_t largest = 0;
	for (size_t i = 0; i < requests->reconcile->pool_count; i++) {
		const struct pool *pool = requests->reconcile->pools[i];
		if (choose_fits_node(pool, node) && (!page_size || pool->config.page_size == page_size))
			largest = MAX(largest, choose_get_most(pool) * pool->config.page_size);
	}
	if (node != HPZ_WIRE_NODE_ANY)
		snprintf(where, sizeof where, " of node %" PRId32, node);
	return desk_refuse(requests, head, HPZ_ERR_TOO_LARGE,
		"%s asked, but no pool%s that fits%s%s may hold more than %s: raise pages or max_pages",
		size_format(bytes, size), where, page_size ? ", of pages of " : "",
		page_size ? size_format_exact(page_size, page) : "", size_format(largest, largest_text));
}

enum request_outcome choose_refuse(
	struct requests *requests, const struct hpz_wire_head *head, const struct hpz_wire_lease *wire)
{
	int32_t node = wire->policy == HPZ_NODES_PREFERRED ? HPZ_WIRE_NODE_ANY : wire->node;
	for (size_t i = 0; i < requests->reconcile->pool_count; i++) {
		const struct pool *pool = requests->reconcile->pools[i];
		if (choose_fits_node(pool, node) &&
			(!wire->page_size || pool->config.page_size == wire->page_size))
			return refuse_too_large(
				requests, head, node, wire->page_size, wire->bytes * desk_get_leases(wire));
	}
	return refuse_no_pool(requests, head, node, wire->page_size);
}

/* The page size is free: the largest that wastes little and has a pool for it, then what is left. */
static struct pool *choose_pool(
	struct requests *requests, const struct hpz_wire_lease *wire, const struct request_peer *peer)
{
	if (wire->page_size)
		return find_preferred(requests, wire, peer, wire->page_size, NULL);
	uint64_t sizes[CONFIG_POOLS_MAX];
	int32_t node = wire->policy == HPZ_NODES_PREFERRED ? HPZ_WIRE_NODE_ANY : wire->node;
	for (size_t count = list_page_sizes(requests, node, sizes); count > 0;) {
		uint64_t size = policy_pick_page_size(sizes, count, wire->bytes);
		struct pool *pool = find_preferred(requests, wire, peer, size, NULL);
		if (pool)
			return pool;
		count = find_page_size(sizes, size); /* only smaller ones waste less */
	}
	return NULL;
}

static struct pool *find_pool_on(const struct requests *requests, int32_t node, uint64_t page_size)
{
	for (size_t i = 0; i < requests->reconcile->pool_count; i++) {
		struct pool *pool = requests->reconcile->pools[i];
		if (pool->config.node == node && pool->config.page_size == page_size)
			return pool;
	}
	return NULL;
}

/* A share for each cell, or each node of the mask; pools and pages are found later. */
static void list_shares(const struct hpz_wire_lease *wire, struct request_shares *shares,
	int32_t ret_nodes[SPREAD_PIECES_MAX])
{
	shares->count = 0;
	for (uint32_t i = 0; i < wire->cells; i++) {
		shares->list[shares->count] = (struct request_share){.cell = i};
		ret_nodes[shares->count++] = wire->cell[i].node;
	}
	for (uint64_t mask = wire->node_mask; mask; mask &= mask - 1) {
		shares->list[shares->count] = (struct request_share){0};
		ret_nodes[shares->count++] = (int32_t)__builtin_ctzll(mask);
	}
}

/* Pools with pages of that size for all shares. 0, or HPZ_ERR_NO_POOL or _TOO_LARGE with the node of it. */
static int set_pools(struct requests *requests, const struct hpz_wire_lease *wire, uint64_t page_size,
	const int32_t *nodes, struct request_shares *shares, int32_t *ret_node, uint64_t *ret_bytes)
{
	uint64_t most = 0;
	for (size_t i = 0; i < shares->count; i++) {
		struct request_share *share = &shares->list[i];
		*ret_node = nodes[i];
		share->pool = find_pool_on(requests, nodes[i], page_size);
		if (!share->pool)
			return HPZ_ERR_NO_POOL;
		most += choose_get_most(share->pool);
		share->pages = wire->cells ? size_pages(wire->cell[i].bytes, page_size) : 0;
	}
	for (size_t i = 0; i < shares->count && wire->cells; i++) {
		struct pool *pool = shares->list[i].pool;
		*ret_node = nodes[i];
		*ret_bytes = desk_count_pages(shares, pool) * page_size;
		if (*ret_bytes > choose_get_most(pool) * page_size)
			return HPZ_ERR_TOO_LARGE;
	}
	if (wire->cells)
		return 0;
	uint64_t pages = size_pages(wire->bytes, page_size);
	*ret_node = HPZ_WIRE_NODE_ANY;
	*ret_bytes = wire->bytes;
	desk_set_equal_pages(shares, pages);
	return pages > most ? HPZ_ERR_TOO_LARGE : 0;
}

/* The smallest piece: it wastes most. */
static uint64_t get_least_bytes(const struct hpz_wire_lease *wire, size_t count)
{
	uint64_t least = wire->bytes / count;
	for (uint32_t i = 0; i < wire->cells; i++)
		least = i ? MIN(least, wire->cell[i].bytes) : wire->cell[i].bytes;
	return MAX(least, 1u);
}

/* All have pages of one size. False: the refusal is in requests->reply. */
static bool choose_several(
	struct requests *requests, const struct hpz_wire_head *head, const struct hpz_wire_lease *wire)
{
	struct request_shares *shares = &requests->shares;
	int32_t nodes[SPREAD_PIECES_MAX], node = HPZ_WIRE_NODE_ANY;
	uint64_t sizes[CONFIG_POOLS_MAX] = {wire->page_size}, bytes = 0;
	size_t count = wire->page_size ? 1 : list_page_sizes(requests, HPZ_WIRE_NODE_ANY, sizes);
	int error = HPZ_ERR_NO_POOL;
	list_shares(wire, shares, nodes);
	uint64_t size = wire->page_size;
	while (count > 0) {
		size = policy_pick_page_size(sizes, count, get_least_bytes(wire, shares->count));
		error = set_pools(requests, wire, size, nodes, shares, &node, &bytes);
		if (!error)
			return true;
		count = find_page_size(sizes, size);
	}
	shares->count = 0;
	if (error == HPZ_ERR_NO_POOL)
		refuse_no_pool(requests, head, node, wire->page_size);
	else
		refuse_too_large(requests, head, node, size, bytes);
	return false;
}

bool choose_shares(struct requests *requests, const struct hpz_wire_head *head,
	const struct hpz_wire_lease *wire, const struct request_peer *peer)
{
	if (wire->cells || wire->policy == HPZ_NODES_INTERLEAVE)
		return choose_several(requests, head, wire);
	struct pool *pool = choose_pool(requests, wire, peer);
	requests->shares.count = pool != NULL;
	if (pool)
		requests->shares.list[0] = (struct request_share){
			.pool = pool, .pages = size_pages(wire->bytes, pool->config.page_size)};
	else
		choose_refuse(requests, head, wire);
	return pool != NULL;
}

int32_t choose_find_other(struct requests *requests, const struct attempt *attempt)
{
	const struct hpz_wire_lease *wire = attempt->wire;
	if (wire->policy != HPZ_NODES_STRICT || wire->cells || wire->node == HPZ_WIRE_NODE_ANY)
		return -1;
	struct pool *pool = find_pool(requests, wire, attempt->peer, HPZ_WIRE_NODE_ANY,
		desk_get_page_size(attempt), attempt->request);
	bool is_better = pool && pool != attempt->shares->list[0].pool &&
			 rank_pool(requests, pool, wire, attempt->peer, attempt->request) < RANK_WAITS;
	return is_better ? pool->config.node : -1;
}

static bool has_other_pool(const struct requests *requests, const struct pool *pool)
{
	for (size_t i = 0; i < requests->reconcile->pool_count; i++) {
		const struct pool *other = requests->reconcile->pools[i];
		if (other != pool && other->config.page_size == pool->config.page_size)
			return true;
	}
	return false;
}

void choose_again(struct requests *requests, struct request *request)
{
	const struct hpz_wire_lease *wire = &request->lease;
	struct request_share *share = &request->shares.list[0];
	if (request->is_held || wire->reservation || wire->cells || wire->policy == HPZ_NODES_INTERLEAVE ||
		(wire->policy == HPZ_NODES_STRICT && wire->node != HPZ_WIRE_NODE_ANY) ||
		!has_other_pool(requests, share->pool))
		return;
	struct pool *pool =
		find_preferred(requests, wire, &request->peer, share->pool->config.page_size, request);
	if (pool && pool != share->pool &&
		rank_pool(requests, pool, wire, &request->peer, request) < RANK_WAITS)
		share->pool = pool;
}
