/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* request.c - what a client may ask, as a table of handlers that return replies. */
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>

#include "log.h"
#include "owner.h"
#include "report.h"
#include "request.h"
#include "size.h"

#define TRIES_MAX  8  /* segments found unfit before a request is given up */
#define RANK_WAITS 2  /* of a pool that cannot serve a request now */
#define FAILED_MAX 2  /* extensions that came to nothing: then it waits for clean memory */
#define PASSED_MAX 16 /* requests served before one that came first, while nothing serves that one */

/* A request that could not be answered at once. */
struct request {
	struct list link;
	struct requests *requests;
	struct session *session;
	struct request_peer peer; /* pidfd is a copy of its own */
	uint16_t op;
	uint64_t id;
	uv_timer_t timer;
	union {
		struct hpz_wire_lease lease;
		struct hpz_wire_release release;
		struct hpz_wire_wait wait;
		struct hpz_wire_drain drain;
		struct verify_run run;
		struct {
			char pool[HPZ_WIRE_NAME + 1];
			uint32_t pools; /* that have something to measure on */
		} calibration;
		struct hpz_wire_check check;
		struct {
			char pool[HPZ_WIRE_NAME + 1];
			uint64_t before;  /* its target */
			uint64_t demoted; /* pages of it, before */
			bool demotes;
			bool waits; /* until nothing is left to be done */
		} resize;
	};
	/* CHANGE: the lease that is to grow, its size by now, and segments of it that the client has */
	uint64_t target, target_bytes;
	uint32_t known;
	/* LEASE, RESERVE, CHANGE (whose `lease` asks for what it grows by) */
	struct request_shares shares; /* whose memory it waits for */
	uint64_t arrival;             /* the higher, the later it came */
	bool is_impatient;            /* waits only for what is kept for it: that is being read or zeroed */
	bool is_held;                 /* memory is kept for it */
	bool has_waited;              /* for memory that was not there */
	unsigned failed;              /* extensions */
	unsigned passed;              /* times somebody who came later was served first */
	bool has_given_back;          /* DRAIN: nr_hugepages is lowered as far as it goes */
};

/* ---- replies ---- */

static void *get_payload(struct requests *requests)
{
	return requests->reply.bytes + sizeof(struct hpz_wire_head);
}

static enum request_outcome finish_reply(
	struct requests *requests, uint16_t op, uint64_t id, size_t payload_size)
{
	struct request_reply *reply = &requests->reply;
	reply->length =
		proto_set_head(reply->bytes, op, id, true, HPZ_OK, (uint32_t)reply->fd_count, payload_size);
	return REQUEST_REPLIED;
}

static enum request_outcome make_error(
	struct requests *requests, uint16_t op, uint64_t id, int error, uint32_t leases, const char *text)
{
	struct hpz_wire_error *payload = get_payload(requests);
	*payload = (struct hpz_wire_error){.size = sizeof *payload, .leases = leases};
	proto_set_text(payload->text, sizeof payload->text, text);
	requests->reply.fd_count = 0;
	requests->reply.lease = 0;
	requests->reply.length =
		proto_set_head(requests->reply.bytes, op, id, true, (uint32_t)error, 0, sizeof *payload);
	return REQUEST_REPLIED;
}

void request_make_error(struct requests *requests, uint16_t op, uint64_t id, int error, const char *text)
{
	make_error(requests, op, id, error, 0, text);
}

static enum request_outcome refuse(struct requests *requests, const struct hpz_wire_head *head, int error,
	const char *format, ...) PRINTF(4, 5);

static enum request_outcome refuse(
	struct requests *requests, const struct hpz_wire_head *head, int error, const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(requests->text, sizeof requests->text, format, arguments);
	va_end(arguments);
	return make_error(requests, head->op, head->id, error, 0, requests->text);
}

static int copy_fd(int fd)
{
	return fd >= 0 ? fcntl(fd, F_DUPFD_CLOEXEC, 3) : -1;
}

void request_close_fds(struct request_reply *reply)
{
	for (size_t i = 0; i < reply->fd_count; i++)
		close_fd(reply->fds[i]);
	reply->fd_count = 0;
}

/* ---- access ---- */

void request_find_rule(
	const struct requests *requests, const struct request_peer *peer, struct access_rule *ret_rule)
{
	struct access_peer who = {peer->uid, peer->gid, peer->groups, peer->group_count};
	access_find_rule(requests->config, &who, ret_rule);
}

static enum request_outcome refuse_denied(struct requests *requests, const struct hpz_wire_head *head,
	const struct access_rule *rule, const char *what)
{
	access_explain_denied(rule, what, requests->text, sizeof requests->text);
	return make_error(requests, head->op, head->id, HPZ_ERR_DENIED, 0, requests->text);
}

static enum request_outcome refuse_priority(struct requests *requests, const struct hpz_wire_head *head,
	const struct access_rule *rule, int32_t priority)
{
	access_explain_priority(rule, priority, requests->text, sizeof requests->text);
	return make_error(requests, head->op, head->id, HPZ_ERR_DENIED, 0, requests->text);
}

/* Somebody else's lease. */
static enum request_outcome refuse_foreign(struct requests *requests, const struct hpz_wire_head *head,
	const struct access_rule *rule, const struct lease *lease)
{
	char what[96];
	if (lease->uid == UINT32_MAX)
		snprintf(what, sizeof what, "touch lease %" PRIu64 ", whose owner is not known any more",
			lease->id);
	else
		snprintf(what, sizeof what, "touch lease %" PRIu64 ", which belongs to uid %" PRIu32,
			lease->id, lease->uid);
	return refuse_denied(requests, head, rule, what);
}

/* Counted afresh each time: so it is right after a restart, an adoption and whatever failed in between.
 * What is forced to its end goes on to count until its pages are let go. A reservation counts as a lease. */
static void count_usage(const struct requests *requests, uint32_t uid, struct access_usage *ret_usage)
{
	*ret_usage = (struct access_usage){0};
	LIST_FOR_EACH (pos, &requests->leases->leases) {
		const struct lease *lease = LEASE_OF(pos);
		if (lease->uid != uid)
			continue;
		ret_usage->leases++;
		ret_usage->bytes += lease_get_given(lease);
	}
	LIST_FOR_EACH (pos, &requests->reserves.list) {
		if (RESERVATION_OF(pos)->uid != uid)
			continue;
		ret_usage->leases++;
		ret_usage->bytes += reserve_get_bytes(RESERVATION_OF(pos));
	}
	ret_usage->bytes += orphan_get_bytes(handoff_get_orphans(requests->handoff), uid);
}

/*
 * Whether the peer may have so much more; if not, what to say is in requests->text. What is taken out of a
 * reservation of its own (NULL: none) counts already.
 */
static bool has_quota(struct requests *requests, const struct request_peer *peer, uint64_t more_leases,
	uint64_t more_bytes, const struct reservation *reservation)
{
	struct access_rule rule;
	struct access_usage usage;
	request_find_rule(requests, peer, &rule);
	if (!rule.section)
		return true;
	count_usage(requests, peer->uid, &usage);
	if (reservation && reservation->uid == peer->uid) {
		usage.leases--;
		usage.bytes -= MIN(more_bytes, reserve_get_bytes(reservation));
	}
	enum access_limit limit = access_check_quota(&rule, &usage, more_leases, more_bytes);
	access_explain_quota(&rule, limit, &usage, more_bytes, requests->text, sizeof requests->text);
	return limit == ACCESS_FINE;
}

/* Whether one more request of the peer may wait; if not, what to say is in requests->text. */
static bool may_wait(struct requests *requests, const struct request_peer *peer)
{
	struct access_rule rule;
	uint64_t waiting = 0;
	request_find_rule(requests, peer, &rule);
	if (!rule.section)
		return true;
	LIST_FOR_EACH (pos, &requests->waiting)
		waiting += CONTAINER_OF(pos, struct request, link)->peer.uid == peer->uid;
	if (access_may_wait(&rule, waiting))
		return true;
	access_explain_limit(
		&rule, "max_requests", rule.section->max_requests, requests->text, sizeof requests->text);
	return false;
}

/* ---- requests that wait ---- */

static void free_request(uv_handle_t *handle)
{
	struct request *request = handle->data;
	close_fd(request->peer.pidfd);
	free(request);
}

/* Nothing is kept for any of them any more. */
static void drop_shares(struct requests *requests, struct request_shares *shares)
{
	for (size_t i = 0; i < shares->count; i++)
		supply_drop(&requests->supply, shares->list[i].pool, &shares->list[i]);
}

static void drop_request(struct request *request)
{
	struct requests *requests = request->requests;
	list_remove(&request->link);
	if (request->shares.count > 0) {
		drop_shares(requests, &request->shares);
		reconcile_mark(requests->reconcile);
	}
	if (request->op == HPZ_OP_VERIFY)
		verify_cancel_run(&requests->verify, &request->run);
	uv_close((uv_handle_t *)&request->timer, free_request);
}

/* What is in requests->reply answers it. */
static void answer(struct request *request)
{
	struct requests *requests = request->requests;
	struct session *session = request->session;
	drop_request(request);
	requests->send(session, &requests->reply);
}

static struct hpz_wire_head make_head(const struct request *request)
{
	return (struct hpz_wire_head){.op = request->op, .id = request->id};
}

static void on_timeout(uv_timer_t *timer);

/* NULL: it may not wait, and why is in requests->text (refuse_waiting()). */
static struct request *make_waiting(struct requests *requests, struct session *session,
	const struct request_peer *peer, const struct hpz_wire_head *head, int64_t timeout_ms)
{
	if (!may_wait(requests, peer))
		return NULL;
	struct request *request = calloc(1, sizeof *request);
	if (!request) {
		snprintf(requests->text, sizeof requests->text,
			"hpzd has no memory for one more waiting request");
		return NULL;
	}
	request->requests = requests;
	request->session = session;
	request->peer = *peer;
	request->peer.pidfd = copy_fd(peer->pidfd);
	request->op = head->op;
	request->id = head->id;
	uv_timer_init(requests->loop, &request->timer);
	request->timer.data = request;
	if (timeout_ms >= 0)
		uv_timer_start(&request->timer, on_timeout, (uint64_t)timeout_ms, 0);
	list_append(&requests->waiting, &request->link);
	return request;
}

static enum request_outcome refuse_waiting(struct requests *requests, const struct hpz_wire_head *head)
{
	return make_error(requests, head->op, head->id, HPZ_ERR_BUSY, 0, requests->text);
}

/* ---- lease: which pool ---- */

/* Whether it waits, or does not, for memory of a pool. */
static bool is_for_memory(const struct request *request)
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
	return is_for_memory(request) && has_share_of(request, pool) && !request->is_held &&
	       !request->lease.reservation;
}

static size_t get_leases(const struct hpz_wire_lease *wire)
{
	return MAX(wire->count, 1u);
}

/* Of all of them together. */
static uint64_t get_pages(const struct hpz_wire_lease *wire, uint64_t page_size)
{
	return size_pages(wire->bytes, page_size) * get_leases(wire);
}

static bool fits_node(const struct pool *pool, int32_t node)
{
	return node == HPZ_WIRE_NODE_ANY || pool->config.node == node;
}

/* More than that can never be given in one lease. */
static uint64_t get_most_pages(const struct pool *pool)
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
		if (!fits_node(pool, node) || (at < count && ret_sizes[at] == size) ||
			count == CONFIG_POOLS_MAX)
			continue;
		memmove(&ret_sizes[at + 1], &ret_sizes[at], (count - at) * sizeof *ret_sizes);
		ret_sizes[at] = size;
		count++;
	}
	return count;
}

/* Whether one that waits has its turn before one of that priority that comes later. */
static bool stands_before(const struct request *request, int32_t priority)
{
	return request->lease.priority >= priority || request->passed >= PASSED_MAX;
}

static size_t find_page_size(const uint64_t *sizes, uint64_t size)
{
	size_t at = 0;
	while (sizes[at] != size)
		at++;
	return at;
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

/*
 * Its place in the queues of its pools: requests->waiting is in the order of turns, pool by pool. It is one
 * list, so that two requests for the same pools have the same order in each of them.
 */
static void queue_request(struct requests *requests, struct request *self)
{
	struct list *place = &requests->waiting;
	list_remove(&self->link);
	for (struct list *pos = place->prev; pos != &requests->waiting; pos = pos->prev) {
		const struct request *request = CONTAINER_OF(pos, struct request, link);
		if (!is_for_memory(request) || !are_rivals(self, request))
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
		ask->ahead_pages += share->pages * get_leases(&request->lease);
		ask->bound_pages = is_first ? share->pages : MIN(ask->bound_pages, share->pages);
		ask->may_pass = ask->may_pass && request->passed < PASSED_MAX;
	}
}

/* Who has its turn in a pool before this one (NULL: before one of that priority that comes now), and has
 * nothing kept for it. One that waits for several pools is in the queue of each, and takes from none
 * before it can have all. */
static void get_queue(
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

static uint32_t get_file_uid(const struct hpz_wire_lease *wire, const struct request_peer *peer)
{
	return wire->owner_uid < 0 ? peer->uid : (uint32_t)wire->owner_uid;
}

/* Segments that one share may have. */
static size_t get_parts_max(const struct hpz_wire_lease *wire)
{
	if (wire->policy == HPZ_NODES_INTERLEAVE)
		return PLANNER_PARTS_MAX / (size_t)__builtin_popcountll(wire->node_mask);
	return wire->flags & HPZ_LEASE_SEGMENTS ? PLANNER_PARTS_MAX / MAX(wire->cells, 1u) : 1;
}

/* `self` NULL: it has just come. */
static struct supply_ask make_ask(struct requests *requests, struct pool *pool, uint64_t pages,
	const struct hpz_wire_lease *wire, const struct request_peer *peer, struct request *self)
{
	struct supply_ask ask = {
		.pool = pool,
		.request =
			{
				.pages = pages,
				.parts_max = get_parts_max(wire),
				.is_patient = wire->timeout_ms != 0,
				.leases = get_leases(wire),
			},
		.uid = get_file_uid(wire, peer),
		.may_zero = !self || self->failed < FAILED_MAX,
	};
	get_queue(requests, self, wire->priority, &ask);
	return ask;
}

/* The lower, the sooner it can be served; the plan is in requests->plan. */
static unsigned rank_pool(struct requests *requests, struct pool *pool, const struct hpz_wire_lease *wire,
	const struct request_peer *peer, struct request *self)
{
	struct supply_ask ask =
		make_ask(requests, pool, size_pages(wire->bytes, pool->config.page_size), wire, peer, self);
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
		if (pool->config.page_size != page_size || !fits_node(pool, node) ||
			get_most_pages(pool) < pages)
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
	return refuse(requests, head, HPZ_ERR_NO_POOL, "there is no pool%s%s%s%s", where,
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
		if (fits_node(pool, node) && (!page_size || pool->config.page_size == page_size))
			largest = MAX(largest, get_most_pages(pool) * pool->config.page_size);
	}
	if (node != HPZ_WIRE_NODE_ANY)
		snprintf(where, sizeof where, " of node %" PRId32, node);
	return refuse(requests, head, HPZ_ERR_TOO_LARGE,
		"%s asked, but no pool%s that fits%s%s may hold more than %s: raise pages or max_pages",
		size_format(bytes, size), where, page_size ? ", of pages of " : "",
		page_size ? size_format_exact(page_size, page) : "", size_format(largest, largest_text));
}

static enum request_outcome refuse_pool(
	struct requests *requests, const struct hpz_wire_head *head, const struct hpz_wire_lease *wire)
{
	int32_t node = wire->policy == HPZ_NODES_PREFERRED ? HPZ_WIRE_NODE_ANY : wire->node;
	for (size_t i = 0; i < requests->reconcile->pool_count; i++) {
		const struct pool *pool = requests->reconcile->pools[i];
		if (fits_node(pool, node) && (!wire->page_size || pool->config.page_size == wire->page_size))
			return refuse_too_large(
				requests, head, node, wire->page_size, wire->bytes * get_leases(wire));
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

/* ---- lease: cells, and nodes in turn ---- */

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

static uint64_t count_share_pages(const struct request_shares *shares, const struct pool *pool)
{
	uint64_t pages = 0;
	for (size_t i = 0; i < shares->count; i++)
		pages += !pool || shares->list[i].pool == pool ? shares->list[i].pages : 0;
	return pages;
}

static void set_equal_pages(struct request_shares *shares, uint64_t pages)
{
	for (size_t i = 0; i < shares->count; i++)
		shares->list[i].pages = pages / shares->count + (i < pages % shares->count);
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
		most += get_most_pages(share->pool);
		share->pages = wire->cells ? size_pages(wire->cell[i].bytes, page_size) : 0;
	}
	for (size_t i = 0; i < shares->count && wire->cells; i++) {
		struct pool *pool = shares->list[i].pool;
		*ret_node = nodes[i];
		*ret_bytes = count_share_pages(shares, pool) * page_size;
		if (*ret_bytes > get_most_pages(pool) * page_size)
			return HPZ_ERR_TOO_LARGE;
	}
	if (wire->cells)
		return 0;
	uint64_t pages = size_pages(wire->bytes, page_size);
	*ret_node = HPZ_WIRE_NODE_ANY;
	*ret_bytes = wire->bytes;
	set_equal_pages(shares, pages);
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

/* Who is to serve it, in requests->shares. False: the refusal is in requests->reply. */
static bool choose_shares(struct requests *requests, const struct hpz_wire_head *head,
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
		refuse_pool(requests, head, wire);
	return pool != NULL;
}

static bool is_draining(const struct request_shares *shares)
{
	for (size_t i = 0; i < shares->count; i++) {
		if (shares->list[i].pool->is_draining)
			return true;
	}
	return false;
}

/* ---- lease: what it teaches ---- */

/* What came of a share. Those that may come in several pieces teach nothing: any mixture serves them. */
static void count_demand(
	const struct request_share *share, const struct hpz_wire_lease *wire, enum demand_served how)
{
	bool is_any = (wire->flags & HPZ_LEASE_SEGMENTS) || wire->policy == HPZ_NODES_INTERLEAVE;
	if (!is_any && share->pages > 0)
		demand_ask(&share->pool->demand, clock_get_ns(CLOCK_BOOTTIME), share->pages, how);
}

static enum demand_served get_served(
	const struct lease *lease, uint32_t cell, uint64_t zeroed_pages, bool has_waited)
{
	if (has_waited)
		return DEMAND_WAITED;
	if (zeroed_pages > 0)
		return DEMAND_ZEROED;
	for (size_t i = 0; i < lease->segment_count; i++) {
		const struct pool_segment *segment = lease->segments[i];
		if (segment->cell == cell && segment->pages != segment->given)
			return DEMAND_LARGER;
	}
	return DEMAND_EXACT;
}

/* ---- lease: granting ---- */

/*
 * The process that is to own a lease: -ESRCH there is none, -EACCES it is somebody else's and the peer no
 * admin. *ret_pidfd is the peer's, or *ret_opened, which is the caller's.
 */
static int find_owner(const struct requests *requests, const struct hpz_wire_lease *wire,
	const struct request_peer *peer, struct lease *draft, int *ret_pidfd, int *ret_opened)
{
	struct host host = {.root = (char *)""};
	struct access_rule rule;
	uint32_t uid;
	*ret_pidfd = -1;
	if (wire->owner_pid)
		host_get_comm(&host, wire->owner_pid, draft->comm);
	else
		memcpy(draft->comm, peer->comm, sizeof draft->comm);
	if (wire->owner_pid == 0 && wire->deliver == HPZ_DELIVER_PATH)
		return 0;
	if (wire->owner_pid == 0) {
		draft->pid = peer->pid;
		draft->pid_start = peer->pid_start;
		*ret_pidfd = peer->pidfd;
		return *ret_pidfd < 0 ? -ESRCH : 0;
	}
	draft->pid = wire->owner_pid;
	*ret_pidfd = *ret_opened = handoff_open_process(wire->owner_pid, 0);
	if (*ret_pidfd < 0)
		return *ret_pidfd;
	int r = host_get_process_uid(&host, draft->pid, &uid);
	request_find_rule(requests, peer, &rule);
	if (r == 0 && !access_may_give(&rule, uid, peer->gid))
		r = -EACCES;
	if (r == 0)
		r = host_get_start_time(&host, draft->pid, &draft->pid_start);
	return r < 0 || owner_is_alive(*ret_pidfd) ? r : -ESRCH;
}

static void fill_draft(
	const struct hpz_wire_lease *wire, const struct request_peer *peer, struct lease *draft)
{
	proto_get_text(wire->label, sizeof wire->label, draft->label);
	proto_get_text(wire->key, sizeof wire->key, draft->key);
	draft->uid = peer->uid;
	draft->gid = peer->gid;
	draft->flags = wire->flags | (wire->policy == HPZ_NODES_INTERLEAVE ? HPZ_LEASE_SEGMENTS : 0);
	draft->deliver = wire->deliver;
	draft->file_uid = get_file_uid(wire, peer);
	draft->file_gid = wire->owner_gid < 0 ? peer->gid : (uint32_t)wire->owner_gid;
	draft->file_mode = wire->mode ? wire->mode : 0600;
	draft->open_timeout_ms = wire->open_timeout_ms;
	draft->asked = wire->bytes;
}

/*
 * Everything about a lease, at the end of a reply's payload; its descriptors are in the reply already, the
 * first at that index. Returns the bytes.
 */
static size_t put_leased(struct requests *requests, const struct request_peer *peer, size_t used,
	const struct lease *lease, size_t first_descriptor, uint64_t ready, uint64_t zeroed)
{
	struct hpz_wire_leased *payload = (void *)((unsigned char *)get_payload(requests) + used);
	*payload = (struct hpz_wire_leased){
		.size = sizeof *payload,
		.segments = (uint32_t)lease->segment_count,
		.id = lease->id,
		.asked = lease->asked,
		.given = lease_get_given(lease),
		.ready = ready,
		.deliver = lease->deliver,
		.zeroed = zeroed,
	};
	struct hpz_wire_segment *records = (struct hpz_wire_segment *)(payload + 1);
	for (size_t i = 0; i < lease->segment_count; i++)
		report_segment(lease, i, requests->reply.fd_count > 0 ? (int32_t)(first_descriptor + i) : -1,
			peer->capabilities & HPZ_WIRE_CAN_CELLS, &records[i]);
	return sizeof *payload + lease->segment_count * sizeof *records;
}

static enum request_outcome reply_leased(struct requests *requests, const struct hpz_wire_head *head,
	const struct request_peer *peer, const struct lease *lease, uint64_t ready, uint64_t zeroed)
{
	requests->reply.lease = lease->id;
	return finish_reply(
		requests, head->op, head->id, put_leased(requests, peer, 0, lease, 0, ready, zeroed));
}

static bool lives_with_connection(const struct lease *lease)
{
	return lease->deliver == HPZ_DELIVER_FD && !(lease->flags & HPZ_LEASE_UNBOUND);
}

/* Its descriptors come behind those that are in the reply. */
static int deliver(struct requests *requests, struct lease *lease, bool is_new)
{
	struct request_reply *reply = &requests->reply;
	if (lease->deliver == HPZ_DELIVER_PATH)
		return is_new ? handoff_link(requests->handoff, lease) : 0;
	if (reply->fd_count + lease->segment_count > ARRAY_SIZE(reply->fds))
		return -EMFILE;
	int r = handoff_open(requests->handoff, lease, is_new, reply->fds + reply->fd_count);
	if (r == 0)
		reply->fd_count += lease->segment_count;
	return r;
}

/* What is asked for, by whom, and what came of it. */
struct attempt {
	struct request_shares *shares;
	const struct hpz_wire_lease *wire;
	const struct request_peer *peer;
	struct session *session;
	struct request *request; /* NULL: it has just come */
	uint16_t op;
	uint64_t target, target_bytes; /* CHANGE */
	uint32_t known;
	struct lease draft;
	int pidfd;
	/* results */
	bool is_held;
	struct lease *leases[PLANNER_PARTS_MAX];
	size_t lease_count;
	struct reservation *reservation; /* RESERVE: what came of it; LEASE: out of which it is taken */
};

static uint64_t get_page_size(const struct attempt *attempt)
{
	return attempt->shares->list[0].pool->config.page_size; /* all have the same */
}

/* Names that somebody removed behind our back. */
static void forget_vanished(struct pool_segment **segments, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		struct pool *pool = segments[i]->pool;
		if (segments[i]->state != SEGMENT_CLEAN || pool_refresh(segments[i]) != -ENOENT)
			continue;
		log_error("pool %s: segment %" PRIu64 " has vanished from %s", pool->name, segments[i]->id,
			pool->store->path);
		pool_forget(segments[i]);
	}
}

/* No memory for a watch: nobody has seen it, so it goes back as it came. */
static void undo_grant(struct requests *requests, struct lease *lease)
{
	handoff_drop_token(lease, lease->segments, lease->segment_count);
	for (size_t i = 0; i < lease->segment_count; i++) {
		struct pool_segment *segment = lease->segments[i];
		lease_drop_segment(requests->leases, lease, segment);
		if (pool_set_state(segment, SEGMENT_DIRTY) < 0)
			pool_strand(segment);
	}
	lease_end(requests->leases, lease);
}

static bool was_opened(struct requests *requests, const struct lease *lease)
{
	bool was_opened = false;
	for (size_t i = 0; i < lease->segment_count; i++)
		was_opened = reconcile_was_opened(requests->reconcile, lease->segments[i]) || was_opened;
	return was_opened;
}

/* The lease of clean segments, with its directory if it has one. -EUCLEAN: one of them is gone. */
static int make_lease(struct requests *requests, struct attempt *attempt, struct pool_segment **segments,
	const uint64_t *given, size_t count, struct lease **ret_lease)
{
	int r = 0;
	if (attempt->draft.deliver == HPZ_DELIVER_PATH)
		r = handoff_make_token(&attempt->draft, segments, count);
	if (r < 0)
		return r;
	struct lease *lease = NULL;
	r = lease_grant(requests->leases, &attempt->draft, segments, given, count, &lease);
	if (r < 0)
		handoff_drop_token(&attempt->draft, segments, count);
	if (r == -ENOENT) {
		forget_vanished(segments, count);
		return -EUCLEAN;
	}
	if (r < 0)
		return r;
	r = handoff_watch(requests->handoff, lease, attempt->pidfd);
	if (r < 0)
		undo_grant(requests, lease);
	else
		*ret_lease = lease;
	return r;
}

/* One lease, taken and delivered. -EUCLEAN: these were not fit, others may be. */
static int hand_out_one(struct requests *requests, struct attempt *attempt, struct pool_segment **segments,
	const uint64_t *given, size_t count)
{
	struct lease *lease;
	int r = make_lease(requests, attempt, segments, given, count, &lease);
	if (r < 0)
		return r;
	r = was_opened(requests, lease) ? -EUCLEAN : deliver(requests, lease, true);
	if (r < 0) {
		log_warning("lease %" PRIu64 " of pool %s is not fit to be handed out: %s", lease->id,
			attempt->shares->list[0].pool->name, strerror(-r));
		handoff_return(requests->handoff, lease, "it could not be handed out");
		return r;
	}
	/* Until it is confirmed, a lost connection is a lost reply: nobody knows of the lease. */
	lease->bound = attempt->session;
	for (size_t i = 0; i < count; i++) {
		if (segments[i]->pages > given[i])
			handoff_trim(requests->handoff, segments[i]);
	}
	attempt->leases[attempt->lease_count++] = lease;
	return 0;
}

/* Nobody has heard of these yet. */
static void take_back_all(struct requests *requests, struct attempt *attempt)
{
	request_close_fds(&requests->reply);
	while (attempt->lease_count > 0)
		handoff_return(requests->handoff, attempt->leases[--attempt->lease_count],
			"others of its bulk could not be handed out");
}

/* One lease of all segments, or a bulk: of each segment one. All or none. */
static int hand_out(struct requests *requests, struct attempt *attempt, struct pool_segment **segments,
	const uint64_t *given, size_t count)
{
	size_t leases = get_leases(attempt->wire), each = leases > 1 ? 1 : count;
	attempt->lease_count = requests->reply.fd_count = 0;
	for (size_t i = 0; i < leases; i++) {
		int r = hand_out_one(requests, attempt, segments + i * each, given + i * each, each);
		if (r == 0)
			continue;
		take_back_all(requests, attempt);
		return r;
	}
	return 0;
}

/* ---- change: more, or less ---- */

static uint64_t count_pages_given(const struct lease *lease)
{
	uint64_t pages = 0;
	for (size_t i = 0; i < lease->segment_count; i++)
		pages += lease->segments[i] ? lease->segments[i]->given : 0;
	return pages;
}

/* What the client does not have yet, in the reply. Those from `first_new` on are new. */
static int deliver_from(struct requests *requests, struct lease *lease, size_t known, size_t first_new)
{
	struct request_reply *reply = &requests->reply;
	reply->fd_count = 0;
	if (lease->deliver == HPZ_DELIVER_PATH)
		return first_new < lease->segment_count
			       ? handoff_link_from(requests->handoff, lease, first_new)
			       : 0;
	if (known >= lease->segment_count)
		return 0;
	int r = handoff_open_from(requests->handoff, lease, known, first_new, reply->fds);
	if (r == 0)
		reply->fd_count = lease->segment_count - known;
	return r;
}

/* It could not be delivered, or not be written down: nobody has heard of it, and it comes back. */
static void undo_growth(struct requests *requests, struct lease *lease, size_t before)
{
	struct lease *rest = NULL;
	request_close_fds(&requests->reply);
	int r = lease_split(
		requests->leases, lease, before, lease->segments[before - 1]->given, lease->asked, &rest);
	if (r < 0) /* it has more than its holder knows, until its end or a restart */
		log_error("lease %" PRIu64 " has grown in vain: %s", lease->id, strerror(-r));
	else
		handoff_split(requests->handoff, lease, rest, "it could not be handed out");
}

/* Again each time: it may have ended (-ESTALE), or got another size (-EALREADY), while this waited. -EAGAIN:
 * what it was to get before is not back yet. */
static int check_target(const struct requests *requests, const struct attempt *attempt)
{
	const struct lease *lease = lease_find(requests->leases, attempt->target);
	if (!lease || lease->state != HPZ_STATE_LEASED)
		return -ESTALE;
	if (lease_get_given(lease) != attempt->target_bytes)
		return -EALREADY;
	return lease_has_rest(requests->leases, lease) ? -EAGAIN : 0;
}

/*
 * By one segment. -EUCLEAN: it was not fit, another may be. The target was checked.
 */
static int grow(struct requests *requests, struct attempt *attempt, struct pool_segment **segments,
	const uint64_t *given)
{
	struct lease *lease = lease_find(requests->leases, attempt->target);
	size_t before = lease->segment_count;
	uint64_t asked = attempt->target_bytes + attempt->wire->bytes;
	segments[0]->cell = lease->segments[before - 1]->cell;
	int r = lease_append(requests->leases, lease, segments, given, 1);
	if (r == -ENOENT) {
		forget_vanished(segments, 1);
		return -EUCLEAN;
	}
	if (r < 0)
		return r;
	r = reconcile_was_opened(requests->reconcile, segments[0]) ? -EUCLEAN : 0;
	if (r == 0)
		r = deliver_from(requests, lease, MIN(attempt->known, before), before);
	if (r == 0)
		r = lease_confirm(requests->leases, lease, asked);
	if (r < 0) {
		undo_growth(requests, lease, before);
		return r;
	}
	if (segments[0]->pages > given[0])
		handoff_trim(requests->handoff, segments[0]);
	attempt->leases[0] = lease;
	attempt->lease_count = 1;
	return 0;
}

static enum request_outcome reply_changed(struct requests *requests, const struct request_peer *peer,
	const struct hpz_wire_head *head, const struct lease *lease, uint32_t known,
	const struct hpz_wire_changed *news)
{
	struct hpz_wire_changed *payload = get_payload(requests);
	size_t first = MIN(known, lease->segment_count);
	*payload = *news;
	payload->size = sizeof *payload;
	payload->segments = (uint32_t)(lease->segment_count - first);
	payload->id = lease->id;
	payload->given = lease_get_given(lease);
	payload->total = (uint32_t)lease->segment_count;
	payload->deliver = lease->deliver;
	struct hpz_wire_segment *records = (struct hpz_wire_segment *)(payload + 1);
	for (size_t i = first; i < lease->segment_count; i++)
		report_segment(lease, i, requests->reply.fd_count > 0 ? (int32_t)(i - first) : -1,
			peer->capabilities & HPZ_WIRE_CAN_CELLS, &records[i - first]);
	requests->reply.lease = lease->id;
	return finish_reply(
		requests, head->op, head->id, sizeof *payload + payload->segments * sizeof *records);
}

/* What is kept for it is a reservation's from now on. */
static int reserve(struct requests *requests, struct attempt *attempt)
{
	const struct hpz_wire_lease *wire = attempt->wire;
	struct request_share *share = &attempt->shares->list[0];
	struct reservation draft = {
		.pool = share->pool,
		.pages = share->pages,
		.asked = wire->bytes,
		.uid = attempt->peer->uid,
		.flags = wire->flags & HPZ_LEASE_SEGMENTS,
	};
	proto_get_text(wire->label, sizeof wire->label, draft.label);
	return reserve_make(&requests->reserves, &draft, wire->ttl_ms, share, &attempt->reservation);
}

/* The segments of a lease, or a bulk, that is about to be. */
struct collection {
	struct pool_segment *segments[PLANNER_PARTS_MAX];
	uint64_t given[PLANNER_PARTS_MAX];
	size_t count;
	size_t counts[SPREAD_PIECES_MAX]; /* of each share */
};

static int collect_share(struct requests *requests, struct request_share *share, size_t leases,
	struct collection *all, size_t *ret_count)
{
	struct pool_segment *segments[PLANNER_PARTS_MAX];
	uint64_t given[PLANNER_PARTS_MAX];
	*ret_count = 0;
	if (share->pages == 0)
		return 0;
	int r = supply_collect(
		&requests->supply, share->pool, share, share->pages, leases, segments, given, ret_count);
	if (r < 0)
		return r;
	if (*ret_count > PLANNER_PARTS_MAX - all->count)
		return -EAGAIN;
	for (size_t i = 0; i < *ret_count; i++) {
		segments[i]->cell = share->cell;
		all->segments[all->count] = segments[i];
		all->given[all->count++] = given[i];
	}
	return 0;
}

static void put_in_turn(struct collection *all, size_t share_count)
{
	struct collection before = *all;
	size_t order[PLANNER_PARTS_MAX];
	spread_take_turns(all->counts, share_count, order);
	for (size_t i = 0; i < all->count; i++) {
		all->segments[i] = before.segments[order[i]];
		all->given[i] = before.given[order[i]];
	}
}

/* What is kept for it, if that is ready. -EAGAIN: it is not enough any more, and nothing is kept. */
static int hand_out_kept(struct requests *requests, struct attempt *attempt)
{
	struct request_shares *shares = attempt->shares;
	struct collection all = {.count = 0};
	int r = 0;
	for (size_t i = 0; i < shares->count && r == 0; i++)
		r = collect_share(
			requests, &shares->list[i], get_leases(attempt->wire), &all, &all.counts[i]);
	if (r == -EINPROGRESS)
		return r;
	if (r == 0 && attempt->wire->policy == HPZ_NODES_INTERLEAVE)
		put_in_turn(&all, shares->count);
	if (r == 0)
		r = attempt->op == HPZ_OP_RESERVE ? reserve(requests, attempt)
		    : attempt->op == HPZ_OP_CHANGE
			    ? grow(requests, attempt, all.segments, all.given)
			    : hand_out(requests, attempt, all.segments, all.given, all.count);
	if (r < 0)
		drop_shares(requests, shares);
	else if (attempt->op == HPZ_OP_LEASE && attempt->reservation)
		reserve_use(&requests->reserves, attempt->reservation, shares->list[0].pages);
	return r;
}

/*
 * Those who have nothing kept for them and had the next turn in one of its pools (where it passes them: it
 * was served before its own), or came earlier and have a lower priority.
 */
static void note_passed(
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

/* Out of what its reservation keeps. Nobody who waits stands back for that: they had not what it kept. */
static int take_reserved(struct requests *requests, struct attempt *attempt)
{
	const struct hpz_wire_lease *wire = attempt->wire;
	struct request_share *share = &attempt->shares->list[0];
	int r = reserve_take(&requests->reserves, attempt->reservation, share->pages,
		wire->flags & HPZ_LEASE_SEGMENTS ? PLANNER_PARTS_MAX : 1, get_file_uid(wire, attempt->peer),
		share->pool->waiting == 0, share);
	share->ready_pages = share->pages;
	attempt->is_held = r == 0;
	return r;
}

static struct supply_ask make_share_ask(
	struct requests *requests, const struct attempt *attempt, const struct request_share *share)
{
	struct supply_ask ask =
		make_ask(requests, share->pool, share->pages, attempt->wire, attempt->peer, attempt->request);
	ask.keeper = (void *)share;
	return ask;
}

/* As much from each node as from the others, if that can be given now, and clean if that is enough. */
static void divide(struct requests *requests, struct attempt *attempt)
{
	struct request_shares *shares = attempt->shares;
	uint64_t most[SPREAD_PIECES_MAX], pages[SPREAD_PIECES_MAX];
	uint64_t all = size_pages(attempt->wire->bytes, get_page_size(attempt));
	bool is_enough = false;
	for (int is_ready = 1; is_ready >= 0 && !is_enough; is_ready--) {
		for (size_t i = 0; i < shares->count; i++) {
			struct supply_ask ask = make_ask(requests, shares->list[i].pool, all, attempt->wire,
				attempt->peer, attempt->request);
			most[i] = supply_get_most(&requests->supply, &ask, is_ready, &requests->plan);
		}
		is_enough = spread_divide(most, shares->count, all, pages);
	}
	if (!is_enough)
		set_equal_pages(shares, all);
	for (size_t i = 0; i < shares->count && is_enough; i++)
		shares->list[i].pages = pages[i];
}

/* The pieces of one pool, from the share `first` on: each on what is left by the earlier ones. */
static void plan_pool(struct requests *requests, const struct attempt *attempt, size_t first,
	struct spread_piece *pieces, bool *is_planned)
{
	const struct request_shares *shares = attempt->shares;
	struct planner_request asked[SPREAD_PIECES_MAX];
	struct spread_piece planned[SPREAD_PIECES_MAX];
	size_t places[SPREAD_PIECES_MAX] = {first}, count = 1;
	struct supply_ask ask = make_share_ask(requests, attempt, &shares->list[first]);
	asked[0] = ask.request;
	for (size_t i = first + 1; i < shares->count; i++) {
		if (shares->list[i].pool != ask.pool || shares->list[i].pages == 0)
			continue;
		asked[count] = ask.request;
		asked[count].pages = shares->list[i].pages;
		places[count++] = i;
	}
	supply_plan_pieces(&requests->supply, &ask, asked, count, &requests->plan, planned);
	for (size_t i = 0; i < count; i++) {
		pieces[places[i]] = planned[i];
		is_planned[places[i]] = true;
	}
}

/* Takes nothing. The first share that cannot be given now; their number: all can. */
static size_t plan_shares(
	struct requests *requests, const struct attempt *attempt, struct spread_piece *ret_pieces)
{
	const struct request_shares *shares = attempt->shares;
	bool is_planned[SPREAD_PIECES_MAX] = {false};
	size_t lacking = shares->count;
	for (size_t i = 0; i < shares->count; i++) {
		if (shares->list[i].pages == 0)
			ret_pieces[i] = (struct spread_piece){.kind = PLANNER_EXACT};
		else if (!is_planned[i])
			plan_pool(requests, attempt, i, ret_pieces, is_planned);
		if (ret_pieces[i].kind == PLANNER_WAIT)
			lacking = MIN(lacking, i);
	}
	return lacking;
}

/* Some that are only read for the operator are let go, and there in a moment. */
static bool are_yielded(
	struct requests *requests, const struct attempt *attempt, const struct spread_piece *pieces)
{
	for (size_t i = 0; i < attempt->shares->count; i++) {
		const struct request_share *share = &attempt->shares->list[i];
		if (pieces[i].kind != PLANNER_WAIT && pieces[i].zeroed_pages == 0)
			continue;
		struct supply_ask ask = make_share_ask(requests, attempt, share);
		if (verify_yield(&requests->verify, share->pool, share->pages, ask.bound_pages))
			return true;
	}
	return false;
}

/* With several the plan is made anew on what the earlier ones have left. 0, -EINPROGRESS or another errno. */
static int take_share(struct requests *requests, const struct attempt *attempt, struct request_share *share)
{
	struct planner_plan *plan = &requests->plan;
	struct supply_ask ask = make_share_ask(requests, attempt, share);
	if (attempt->shares->count > 1)
		supply_plan(&requests->supply, &ask, plan);
	if (plan->kind == PLANNER_WAIT)
		return -EUCLEAN;
	int r = supply_take(&requests->supply, &ask, plan);
	share->ready_pages = plan->ready_pages;
	share->zeroed_pages = plan->zeroed_pages;
	return r;
}

/* What the kernel lacks for it, as the plan of the one pool it is for has found; of several nobody knows. */
static void note_lacking(const struct requests *requests, struct request_shares *shares, size_t lacking)
{
	const struct planner_plan *plan = &requests->plan;
	bool is_short = shares->count == 1 && lacking == 0 && plan->kind == PLANNER_WAIT &&
			plan->reason == PLANNER_SHORT;
	shares->list[0].lacking_pages = is_short ? plan->lacking_pages : 0;
}

/* Looks for memory and takes it: all shares or none. 0: it is kept and ready. -EAGAIN: there is none. */
static int find_memory(struct requests *requests, struct attempt *attempt)
{
	struct request_shares *shares = attempt->shares;
	struct spread_piece pieces[SPREAD_PIECES_MAX];
	int result = 0;
	if (attempt->reservation)
		return take_reserved(requests, attempt);
	if (attempt->wire->policy == HPZ_NODES_INTERLEAVE)
		divide(requests, attempt);
	size_t lacking = plan_shares(requests, attempt, pieces);
	note_lacking(requests, shares, lacking);
	if (are_yielded(requests, attempt, pieces))
		return -EINPROGRESS;
	if (lacking < shares->count)
		return -EAGAIN;
	for (size_t i = 0; i < shares->count; i++) {
		if (shares->list[i].pages == 0)
			continue;
		int r = take_share(requests, attempt, &shares->list[i]);
		if (r < 0 && r != -EINPROGRESS) {
			drop_shares(requests, shares);
			return r == -ENOSPC ? -EUCLEAN : r;
		}
		result = r < 0 ? r : result;
	}
	attempt->is_held = true;
	note_passed(requests, attempt, pieces);
	return result;
}

/* Of all of its leases together. */
static uint64_t get_bytes(const struct attempt *attempt)
{
	return count_share_pages(attempt->shares, NULL) * get_leases(attempt->wire) * get_page_size(attempt);
}

/* The one it names, again each time: it may have ended. -ESTALE: it has; -EFBIG: it has less left. */
static int find_reservation(struct requests *requests, struct attempt *attempt)
{
	uint64_t id = attempt->wire->reservation;
	attempt->reservation = id ? reserve_find(&requests->reserves, id) : NULL;
	if (id && !attempt->reservation)
		return -ESTALE;
	uint64_t pages = size_pages(attempt->wire->bytes, get_page_size(attempt));
	return attempt->reservation && pages > attempt->reservation->pages ? -EFBIG : 0;
}

/* 0: attempt->leases. -EINPROGRESS: what is kept for it is being read or zeroed; -EAGAIN: there is not
 * enough.
 */
static int grant(struct requests *requests, struct attempt *attempt)
{
	_cleanup_fd_ int opened = -1;
	int r = find_reservation(requests, attempt);
	attempt->pidfd = -1;
	attempt->draft = (struct lease){0};
	fill_draft(attempt->wire, attempt->peer, &attempt->draft);
	if (r == 0 && attempt->op == HPZ_OP_LEASE)
		r = find_owner(
			requests, attempt->wire, attempt->peer, &attempt->draft, &attempt->pidfd, &opened);
	if (r < 0)
		return r;
	if (!has_quota(requests, attempt->peer, attempt->op == HPZ_OP_CHANGE ? 0 : get_leases(attempt->wire),
		    get_bytes(attempt), attempt->reservation))
		return -EDQUOT;
	for (int tries = 0; tries < TRIES_MAX; tries++) {
		r = attempt->op == HPZ_OP_CHANGE ? check_target(requests, attempt) : 0;
		if (r < 0)
			return r;
		r = attempt->is_held ? 0 : find_memory(requests, attempt);
		if (r == -EUCLEAN)
			continue;
		if (r < 0)
			return r;
		r = hand_out_kept(requests, attempt);
		if (r == -EINPROGRESS)
			return r;
		attempt->is_held = false;
		if (r != -EUCLEAN && r != -EAGAIN)
			return r;
	}
	return -EAGAIN;
}

/* What would help, by what the planner lacked. */
static const char *get_advice(enum planner_reason reason)
{
	switch (reason) {
	case PLANNER_QUEUE:
		return "others wait longer for it: wait, too (a time limit), or enlarge the pool";
	case PLANNER_COMING:
		return "wait for what is being cleared or filled (a time limit)";
	case PLANNER_LID:
		return "the pool may hold no more: raise its max_pages, end a lease, or wait (a time limit)";
	case PLANNER_BUSY:
		return "no memory can be zeroed for it now (hpzctl set enabled=yes, if that is off): wait (a "
		       "time "
		       "limit)";
	case PLANNER_SHORT:
		return "the kernel has no free pages for the rest: raise nr_hugepages of the node or the "
		       "pool's pages, end a lease, or wait (a time limit)";
	case PLANNER_NO_REASON:
	case PLANNER_DRAINED:
		break;
	}
	return "wait for it (a time limit), or enlarge the pool";
}

/* A node that could serve what a strict one cannot; -1: none. */
static int32_t find_other_node(struct requests *requests, const struct attempt *attempt)
{
	const struct hpz_wire_lease *wire = attempt->wire;
	if (wire->policy != HPZ_NODES_STRICT || wire->cells || wire->node == HPZ_WIRE_NODE_ANY)
		return -1;
	struct pool *pool = find_pool(
		requests, wire, attempt->peer, HPZ_WIRE_NODE_ANY, get_page_size(attempt), attempt->request);
	bool is_better = pool && pool != attempt->shares->list[0].pool &&
			 rank_pool(requests, pool, wire, attempt->peer, attempt->request) < RANK_WAITS;
	return is_better ? pool->config.node : -1;
}

/* Node, page size, asked, clean, waiting, and what would help, of a share. */
static void explain_short(
	struct requests *requests, const struct attempt *attempt, size_t index, enum planner_reason reason)
{
	char size[SIZE_TEXT], page[SIZE_TEXT], clean[SIZE_TEXT], largest[SIZE_TEXT], dirty[SIZE_TEXT],
		fill[SIZE_TEXT], set[64] = "", other[96] = "";
	const struct request_share *share = &attempt->shares->list[index];
	const struct hpz_wire_lease *wire = attempt->wire;
	const struct pool *pool = share->pool;
	uint64_t page_size = pool->config.page_size;
	uint64_t bytes =
		attempt->shares->count > 1 ? share->pages * page_size : wire->bytes * get_leases(wire);
	int32_t node = find_other_node(requests, attempt);
	if (wire->cells)
		snprintf(set, sizeof set, "cell %zu of %" PRIu32 ": ", index, wire->cells);
	else if (attempt->shares->count > 1)
		snprintf(set, sizeof set, "its part of %zu: ", attempt->shares->count);
	if (node >= 0)
		snprintf(other, sizeof other, "node %" PRId32 " could serve it (--node-policy preferred); ",
			node);
	snprintf(requests->text, sizeof requests->text,
		"%spool %s, node %" PRId32
		", pages of %s: %s asked; %s is clean, the largest piece %s; %s is being cleared, %s is "
		"being filled, %" PRIu32 " requests wait; %s%s",
		set, pool->name, pool->config.node, size_format_exact(page_size, page),
		size_format(bytes, size), size_format(pool->pages[SEGMENT_CLEAN] * page_size, clean),
		size_format(pool_get_largest_clean(pool) * page_size, largest),
		size_format(pool->pages[SEGMENT_DIRTY] * page_size, dirty),
		size_format(pool->pages[SEGMENT_FILLING] * page_size, fill), pool->waiting, other,
		get_advice(reason));
}

/* Why a reservation does not give what is asked, though it has as much left. */
static void explain_reserved(struct requests *requests, const struct hpz_wire_lease *wire)
{
	char size[SIZE_TEXT], left[SIZE_TEXT], ready[SIZE_TEXT];
	const struct reservation *reservation = reserve_find(&requests->reserves, wire->reservation);
	if (!reservation)
		return;
	snprintf(requests->text, sizeof requests->text,
		"%s asked of reservation %" PRIu64
		", which has %s left, %s of it ready%s; wait for it (a time "
		"limit), or take it in several segments",
		size_format(wire->bytes, size), reservation->id,
		size_format(reserve_get_bytes(reservation), left),
		size_format(reserve_get_ready(reservation) * reservation->pool->config.page_size, ready),
		reservation->flags & HPZ_LEASE_SEGMENTS ? " and in several pieces" : "");
}

static enum request_outcome refuse_short(
	struct requests *requests, const struct hpz_wire_head *head, int error, const struct attempt *attempt)
{
	struct spread_piece pieces[SPREAD_PIECES_MAX];
	for (size_t i = 0; i < attempt->shares->count; i++) {
		const struct pool *pool = attempt->shares->list[i].pool;
		if (pool->is_draining)
			return refuse(requests, head, HPZ_ERR_DRAINED,
				"pool %s is drained: reload or restart hpzd to fill it again", pool->name);
	}
	for (size_t i = 0; i < attempt->shares->count; i++)
		count_demand(&attempt->shares->list[i], attempt->wire, DEMAND_REFUSED);
	size_t lacking = plan_shares(requests, attempt, pieces);
	if (lacking == attempt->shares->count) /* it has come this very moment */
		lacking = 0;
	explain_short(requests, attempt, lacking, pieces[lacking].reason);
	if (attempt->wire->reservation)
		explain_reserved(requests, attempt->wire);
	return make_error(requests, head->op, head->id, error, 0, requests->text);
}

static enum request_outcome refuse_owner(
	struct requests *requests, const struct hpz_wire_head *head, int r, int32_t pid)
{
	if (r == -EACCES)
		return refuse(requests, head, HPZ_ERR_DENIED,
			"process %" PRId32 " belongs to another user, and only root or an admin may have it "
			"own a lease",
			pid);
	return refuse(
		requests, head, HPZ_ERR_INVALID, "there is no process %" PRId32 " to own the lease", pid);
}

static enum request_outcome refuse_beyond(
	struct requests *requests, const struct hpz_wire_head *head, const struct hpz_wire_lease *wire)
{
	char size[SIZE_TEXT], left[SIZE_TEXT];
	const struct reservation *reservation = reserve_find(&requests->reserves, wire->reservation);
	return refuse(requests, head, HPZ_ERR_TOO_LARGE,
		"%s asked of reservation %" PRIu64 ", which has %s left", size_format(wire->bytes, size),
		reservation->id, size_format(reserve_get_bytes(reservation), left));
}

static enum request_outcome refuse_grant(
	struct requests *requests, const struct hpz_wire_head *head, int r, const struct attempt *attempt)
{
	const struct hpz_wire_lease *wire = attempt->wire;
	if (r == -ESRCH || r == -EACCES)
		return refuse_owner(requests, head, r, wire->owner_pid);
	if (r == -EDQUOT)
		return make_error(requests, head->op, head->id, HPZ_ERR_QUOTA, 0, requests->text);
	if (r == -EALREADY)
		return refuse(requests, head, HPZ_ERR_BUSY, "the lease got another size meanwhile");
	if (r == -ESTALE && head->op == HPZ_OP_CHANGE)
		return refuse(requests, head, HPZ_ERR_ENDED, "the lease has ended");
	if (r == -ESTALE)
		return refuse(requests, head, HPZ_ERR_ENDED, "reservation %" PRIu64 " has ended",
			wire->reservation);
	if (r == -EFBIG)
		return refuse_beyond(requests, head, wire);
	log_error("pool %s: a lease failed: %s", attempt->shares->list[0].pool->name, strerror(-r));
	return refuse(requests, head, HPZ_ERR_INTERNAL, "hpzd could not hand out memory: %s", strerror(-r));
}

static void count_waiting(struct requests *requests)
{
	for (size_t i = 0; i < requests->reconcile->pool_count; i++) {
		requests->reconcile->pools[i]->waiting = 0;
		requests->reconcile->pools[i]->waiting_pages = 0;
		requests->reconcile->pools[i]->lacking_pages = 0;
	}
	LIST_FOR_EACH (pos, &requests->waiting) {
		const struct request *request = CONTAINER_OF(pos, struct request, link);
		for (size_t i = 0; i < request->shares.count; i++) {
			const struct request_share *share = &request->shares.list[i];
			if (share->pool->waiting++ > 0)
				continue;
			share->pool->waiting_pages = share->pages;
			share->pool->lacking_pages = share->lacking_pages;
		}
	}
}

/* Whether its segments are of cells like these. */
static bool has_cells(const struct lease *lease, const struct hpz_wire_lease *wire)
{
	uint64_t bytes[HPZ_WIRE_CELLS] = {0};
	for (size_t i = 0; i < lease->segment_count; i++) {
		const struct pool_segment *segment = lease->segments[i];
		if (!segment || segment->cell >= MAX(wire->cells, 1u) ||
			(wire->cells && wire->cell[segment->cell].node != segment->pool->config.node))
			return false;
		bytes[segment->cell] += segment->given * segment->pool->config.page_size;
	}
	for (uint32_t i = 0; i < wire->cells; i++) {
		if (bytes[i] < wire->cell[i].bytes)
			return false;
	}
	return true;
}

/* The same key again: the same lease, however often the answer got lost. */
static enum request_outcome answer_key(struct requests *requests, struct session *session,
	const struct request_peer *peer, const struct hpz_wire_head *head, const struct hpz_wire_lease *wire,
	struct lease *lease)
{
	if (lease->asked != wire->bytes || lease->deliver != wire->deliver || !has_cells(lease, wire))
		return refuse(requests, head, HPZ_ERR_KEY_MISMATCH,
			"the key belongs to lease %" PRIu64
			", which is of another size or delivered otherwise",
			lease->id);
	requests->reply.fd_count = 0;
	int r = deliver(requests, lease, false);
	if (r < 0)
		return refuse(requests, head, r == -EWOULDBLOCK ? HPZ_ERR_BUSY : HPZ_ERR_INTERNAL,
			"lease %" PRIu64 " cannot be opened again: %s", lease->id, strerror(-r));
	if (lease->state == HPZ_STATE_OFFERED || lives_with_connection(lease))
		lease->bound = session;
	return reply_leased(requests, head, peer, lease, lease_get_given(lease), 0);
}

static enum request_outcome reply_reserved(struct requests *requests, const struct hpz_wire_head *head,
	const struct reservation *reservation, uint64_t ready, uint64_t zeroed)
{
	struct hpz_wire_reserved *payload = get_payload(requests);
	*payload = (struct hpz_wire_reserved){
		.size = sizeof *payload,
		.node = reservation->pool->config.node,
		.id = reservation->id,
		.asked = reservation->asked,
		.given = reserve_get_bytes(reservation),
		.ready = ready,
		.zeroed = zeroed,
		.page_size = reservation->pool->config.page_size,
		.ttl_ms = reserve_get_ttl_ms(reservation),
	};
	proto_set_text(payload->pool, sizeof payload->pool, reservation->pool->name);
	requests->reply.fd_count = 0;
	requests->reply.lease = 0;
	return finish_reply(requests, head->op, head->id, sizeof *payload);
}

static void count_served(
	const struct attempt *attempt, const struct lease *lease, uint64_t zeroed_pages, bool has_waited)
{
	const struct request_shares *shares = attempt->shares;
	for (size_t i = 0; i < shares->count; i++) {
		const struct request_share *share = &shares->list[i];
		uint64_t zeroed = shares->count > 1 ? share->zeroed_pages : zeroed_pages;
		count_demand(share, attempt->wire, get_served(lease, share->cell, zeroed, has_waited));
	}
}

/* What it grew by; the lease's other segments were counted when they were given. */
static enum request_outcome reply_grown(struct requests *requests, const struct hpz_wire_head *head,
	const struct attempt *attempt, uint64_t ready, bool has_waited)
{
	const struct request_share *share = &attempt->shares->list[0];
	const struct lease *lease = attempt->leases[0];
	struct lease added = {.segments = &lease->segments[lease->segment_count - 1], .segment_count = 1};
	struct hpz_wire_changed news = {
		.ready = ready, .zeroed = share->zeroed_pages * share->pool->config.page_size};
	count_demand(share, attempt->wire,
		get_served(&added, added.segments[0]->cell, share->zeroed_pages, has_waited));
	return reply_changed(requests, attempt->peer, head, lease, attempt->known, &news);
}

/*
 * What was clean counts as ready only for who did not have to wait. Which of a bulk were is not told apart:
 * the sums are right.
 */
static enum request_outcome reply_attempt(struct requests *requests, const struct hpz_wire_head *head,
	const struct attempt *attempt, bool has_waited)
{
	uint64_t page_size = get_page_size(attempt), ready = 0, zeroed = 0;
	bool can_zeroed = attempt->peer->capabilities & HPZ_WIRE_CAN_ZEROED;
	for (size_t i = 0; i < attempt->shares->count; i++) {
		ready += has_waited ? 0 : attempt->shares->list[i].ready_pages * page_size;
		zeroed += attempt->shares->list[i].zeroed_pages * page_size;
	}
	if (attempt->op == HPZ_OP_CHANGE)
		return reply_grown(requests, head, attempt, ready, has_waited);
	if (attempt->op == HPZ_OP_RESERVE)
		return reply_reserved(requests, head, attempt->reservation, ready, zeroed);
	size_t used = 0, descriptor = 0;
	for (size_t i = 0; i < attempt->lease_count; i++) {
		const struct lease *lease = attempt->leases[i];
		uint64_t its_ready = MIN(ready, lease_get_given(lease));
		uint64_t its_zeroed = MIN(zeroed, lease_get_given(lease) - its_ready);
		count_served(attempt, lease, its_zeroed / page_size, has_waited);
		used += put_leased(requests, attempt->peer, used, lease, descriptor, its_ready,
			can_zeroed ? its_zeroed : 0);
		descriptor += lease->segment_count;
		ready -= its_ready;
		zeroed -= its_zeroed;
	}
	requests->reply.lease = attempt->leases[0]->id;
	return finish_reply(requests, head->op, head->id, used);
}

static enum request_outcome let_wait(struct requests *requests, const struct hpz_wire_head *head,
	const struct attempt *attempt, bool is_impatient)
{
	const struct hpz_wire_lease *wire = attempt->wire;
	struct request *request = make_waiting(
		requests, attempt->session, attempt->peer, head, is_impatient ? -1 : wire->timeout_ms);
	if (!request) {
		drop_shares(requests, attempt->shares);
		return refuse_waiting(requests, head);
	}
	request->is_impatient = is_impatient;
	request->lease = *wire;
	request->shares = *attempt->shares;
	request->target = attempt->target;
	request->target_bytes = attempt->target_bytes;
	request->known = attempt->known;
	request->is_held = attempt->is_held;
	request->has_waited = !attempt->is_held && !is_impatient;
	request->arrival = ++requests->arrivals;
	queue_request(requests, request);
	for (size_t i = 0; i < request->shares.count; i++) {
		struct request_share *share = &request->shares.list[i];
		supply_pass(&requests->supply, share->pool, &attempt->shares->list[i], share);
	}
	count_waiting(requests);
	return REQUEST_WAITS;
}

/* Of requests->shares. `change` NULL: it is none. */
static enum request_outcome ask_shares(struct requests *requests, struct session *session,
	const struct request_peer *peer, const struct hpz_wire_head *head, const struct hpz_wire_lease *wire,
	const struct hpz_wire_change *change)
{
	struct attempt attempt = {
		.shares = &requests->shares, .wire = wire, .peer = peer, .session = session, .op = head->op};
	if (change) {
		attempt.target = change->id;
		attempt.target_bytes = change->bytes - wire->bytes;
		attempt.known = change->known;
	}
	bool is_drained = is_draining(attempt.shares);
	int r = is_drained ? -EAGAIN : grant(requests, &attempt);
	reconcile_mark(requests->reconcile);
	if (r == 0)
		return reply_attempt(requests, head, &attempt, false);
	if (r != -EAGAIN && r != -EINPROGRESS)
		return refuse_grant(requests, head, r, &attempt);
	bool is_impatient = r == -EINPROGRESS && wire->timeout_ms == 0;
	if ((wire->timeout_ms == 0 && !is_impatient) || is_drained)
		return refuse_short(requests, head, HPZ_ERR_NO_MEMORY, &attempt);
	return let_wait(requests, head, &attempt, is_impatient);
}

/* A lease or a reservation of what is nobody's. */
static enum request_outcome ask_for_memory(struct requests *requests, struct session *session,
	const struct request_peer *peer, const struct hpz_wire_head *head, const struct hpz_wire_lease *wire)
{
	struct access_rule rule;
	request_find_rule(requests, peer, &rule);
	if (wire->priority > access_get_priority(&rule))
		return refuse_priority(requests, head, &rule, wire->priority);
	supply_forget(&requests->supply);
	if (!choose_shares(requests, head, wire, peer))
		return REQUEST_REPLIED;
	return ask_shares(requests, session, peer, head, wire, NULL);
}

static enum request_outcome refuse_foreign_reservation(struct requests *requests,
	const struct hpz_wire_head *head, const struct access_rule *rule,
	const struct reservation *reservation)
{
	char what[96];
	snprintf(what, sizeof what, "touch reservation %" PRIu64 ", which belongs to uid %" PRIu32,
		reservation->id, reservation->uid);
	return refuse_denied(requests, head, rule, what);
}

/* No reservation of that id. */
static enum request_outcome refuse_unknown(
	struct requests *requests, const struct hpz_wire_head *head, uint64_t id)
{
	if (lease_find(requests->leases, id))
		return refuse(
			requests, head, HPZ_ERR_INVALID, "%" PRIu64 " is a lease, not a reservation", id);
	if (lease_is_known_id(requests->leases, id))
		return refuse(requests, head, HPZ_ERR_ENDED, "reservation %" PRIu64 " has ended", id);
	return refuse(requests, head, HPZ_ERR_UNKNOWN_LEASE, "reservation %" PRIu64 " was never given", id);
}

/* A lease out of what a reservation keeps. */
static enum request_outcome lease_reserved(struct requests *requests, struct session *session,
	const struct request_peer *peer, const struct hpz_wire_head *head, const struct hpz_wire_lease *wire)
{
	struct access_rule rule;
	struct reservation *reservation = reserve_find(&requests->reserves, wire->reservation);
	if (!reservation)
		return refuse_unknown(requests, head, wire->reservation);
	request_find_rule(requests, peer, &rule);
	if (!access_may_touch(&rule, reservation->uid))
		return refuse_foreign_reservation(requests, head, &rule, reservation);
	struct pool *pool = reservation->pool;
	if (!fits_node(pool, wire->node) || (wire->page_size && wire->page_size != pool->config.page_size))
		return refuse(requests, head, HPZ_ERR_INVALID,
			"reservation %" PRIu64 " is of pool %s, which has another node or page size",
			reservation->id, pool->name);
	supply_forget(&requests->supply);
	requests->shares.count = 1;
	requests->shares.list[0] = (struct request_share){
		.pool = pool, .pages = size_pages(wire->bytes, pool->config.page_size)};
	return ask_shares(requests, session, peer, head, wire, NULL);
}

static enum request_outcome handle_lease(struct requests *requests, struct session *session,
	const struct request_peer *peer, const struct hpz_wire_head *head, const void *payload)
{
	const struct hpz_wire_lease *wire = payload;
	char key[HPZ_WIRE_KEY + 1];
	proto_get_text(wire->key, sizeof wire->key, key);
	struct lease *lease = lease_find_key(requests->leases, peer->uid, key);
	if (lease)
		return answer_key(requests, session, peer, head, wire, lease);
	struct access_rule rule;
	struct lease draft = {0};
	request_find_rule(requests, peer, &rule);
	fill_draft(wire, peer, &draft);
	if (!access_may_give(&rule, draft.file_uid, draft.file_gid))
		return refuse_denied(requests, head, &rule, "give memory to another user or group");
	if (wire->reservation)
		return lease_reserved(requests, session, peer, head, wire);
	return ask_for_memory(requests, session, peer, head, wire);
}

static enum request_outcome handle_reserve(struct requests *requests, struct session *session,
	const struct request_peer *peer, const struct hpz_wire_head *head, const void *payload)
{
	return ask_for_memory(requests, session, peer, head, payload);
}

static enum request_outcome reply_empty(struct requests *requests, const struct hpz_wire_head *head);

static enum request_outcome handle_unreserve(struct requests *requests, struct session *session,
	const struct request_peer *peer, const struct hpz_wire_head *head, const void *payload)
{
	const struct hpz_wire_release *wire = payload;
	struct access_rule rule;
	struct reservation *reservation = reserve_find(&requests->reserves, wire->id);
	bool has_ended = !reservation && !lease_find(requests->leases, wire->id) &&
			 lease_is_known_id(requests->leases, wire->id);
	if (has_ended)
		return reply_empty(requests, head);
	if (!reservation)
		return refuse_unknown(requests, head, wire->id);
	request_find_rule(requests, peer, &rule);
	if (!access_may_touch(&rule, reservation->uid))
		return refuse_foreign_reservation(requests, head, &rule, reservation);
	reserve_end(&requests->reserves, reservation, "its owner does not want it any more");
	return reply_empty(requests, head);
}

static enum request_outcome grow_lease(struct requests *requests, struct session *session,
	const struct request_peer *peer, const struct hpz_wire_head *head,
	const struct hpz_wire_change *change, struct lease *lease)
{
	struct access_rule rule;
	/* Behind the last one, and of its cell: of its node, too. */
	struct pool *pool = lease->segments[lease->segment_count - 1]->pool;
	uint64_t given = lease_get_given(lease);
	request_find_rule(requests, peer, &rule);
	if (change->priority > access_get_priority(&rule))
		return refuse_priority(requests, head, &rule, change->priority);
	if (lease->segment_count >= HPZ_WIRE_MAX_FDS)
		return refuse(requests, head, HPZ_ERR_TOO_LARGE, "lease %" PRIu64 " has %zu segments already",
			lease->id, lease->segment_count);
	if (lease_has_rest(requests->leases, lease))
		return refuse(requests, head, HPZ_ERR_BUSY,
			"what lease %" PRIu64 " gave back is not back yet", lease->id);
	struct hpz_wire_lease wire = {
		.size = sizeof wire,
		.bytes = change->bytes - given,
		.page_size = pool->config.page_size,
		.node = pool->config.node,
		.timeout_ms = change->timeout_ms,
		.priority = change->priority,
		.owner_uid = lease->file_uid,
		.owner_gid = lease->file_gid,
	};
	supply_forget(&requests->supply);
	if (get_most_pages(pool) < size_pages(wire.bytes, pool->config.page_size))
		return refuse_pool(requests, head, &wire);
	requests->shares.count = 1;
	requests->shares.list[0] =
		(struct request_share){.pool = pool, .pages = size_pages(wire.bytes, pool->config.page_size)};
	return ask_shares(requests, session, peer, head, &wire, change);
}

static enum request_outcome shrink_lease(struct requests *requests, const struct request_peer *peer,
	const struct hpz_wire_head *head, const struct hpz_wire_change *change, struct lease *lease)
{
	uint64_t left = size_pages(change->bytes, lease->segments[0]->pool->config.page_size);
	struct lease *rest = NULL;
	size_t kept = 0;
	for (size_t i = 0; i < lease->segment_count; i++) {
		if (lease->segments[i]->is_busy) /* its tail is being punched, for a moment */
			return refuse(requests, head, HPZ_ERR_BUSY, "lease %" PRIu64 " is being cut already",
				lease->id);
	}
	while (left > lease->segments[kept]->given)
		left -= lease->segments[kept++]->given;
	struct pool_segment *last = lease->segments[kept];
	bool is_cut = left < last->given;
	int r = lease_split(requests->leases, lease, kept + 1, left, change->bytes, &rest);
	if (r < 0)
		return refuse(requests, head, HPZ_ERR_INTERNAL, "lease %" PRIu64 " cannot be shrunk: %s",
			lease->id, strerror(-r));
	handoff_split(requests->handoff, lease, rest, "its holder wants less");
	if (is_cut)
		handoff_trim(requests->handoff, last);
	reconcile_mark(requests->reconcile);
	requests->reply.fd_count = 0;
	return reply_changed(requests, peer, head, lease, HPZ_WIRE_MAX_FDS,
		&(struct hpz_wire_changed){.returning = rest ? rest->id : 0});
}

/* It has that size already: what of it the client does not have. */
static enum request_outcome answer_change(struct requests *requests, const struct request_peer *peer,
	const struct hpz_wire_head *head, const struct hpz_wire_change *change, struct lease *lease)
{
	int r = deliver_from(requests, lease, change->known, lease->segment_count);
	if (r < 0)
		return refuse(requests, head, r == -EWOULDBLOCK ? HPZ_ERR_BUSY : HPZ_ERR_INTERNAL,
			"lease %" PRIu64 " cannot be opened again: %s", lease->id, strerror(-r));
	return reply_changed(requests, peer, head, lease, change->known, &(struct hpz_wire_changed){0});
}

static enum request_outcome handle_change(struct requests *requests, struct session *session,
	const struct request_peer *peer, const struct hpz_wire_head *head, const void *payload)
{
	const struct hpz_wire_change *wire = payload;
	struct access_rule rule;
	struct lease *lease = lease_find(requests->leases, wire->id);
	if (!lease || lease->state == HPZ_STATE_RETURNING) {
		bool is_known = lease || lease_is_known_id(requests->leases, wire->id);
		return refuse(requests, head, is_known ? HPZ_ERR_ENDED : HPZ_ERR_UNKNOWN_LEASE,
			is_known ? "lease %" PRIu64 " has ended" : "lease %" PRIu64 " was never given",
			wire->id);
	}
	request_find_rule(requests, peer, &rule);
	if (!access_may_touch(&rule, lease->uid))
		return refuse_foreign(requests, head, &rule, lease);
	if (lease->state != HPZ_STATE_LEASED || lease->is_unknown)
		return refuse(requests, head, HPZ_ERR_BUSY, "lease %" PRIu64 " is %s", lease->id,
			lease->is_unknown ? "known by its name only" : "not confirmed yet");
	uint64_t now = count_pages_given(lease);
	uint64_t wanted = size_pages(wire->bytes, lease->segments[0]->pool->config.page_size);
	if (wanted > now)
		return grow_lease(requests, session, peer, head, wire, lease);
	return wanted < now ? shrink_lease(requests, peer, head, wire, lease)
			    : answer_change(requests, peer, head, wire, lease);
}

/* What came of a request that waited. */
static void answer_attempt(
	struct requests *requests, struct request *request, const struct attempt *attempt, int r)
{
	struct hpz_wire_head head = make_head(request);
	if (r == 0)
		reply_attempt(requests, &head, attempt, request->has_waited);
	else if (r == -EPERM)
		refuse_short(requests, &head, HPZ_ERR_DRAINED, attempt);
	else if (r == -EAGAIN)
		refuse_short(requests, &head, HPZ_ERR_NO_MEMORY, attempt);
	else
		refuse_grant(requests, &head, r, attempt);
	answer(request);
}

/* Asked twice with one key, and served once already. */
static bool answer_same(struct requests *requests, struct request *request)
{
	char key[HPZ_WIRE_KEY + 1];
	struct hpz_wire_head head = make_head(request);
	proto_get_text(request->lease.key, sizeof request->lease.key, key);
	struct lease *same = lease_find_key(requests->leases, request->peer.uid, key);
	if (!same)
		return false;
	answer_key(requests, request->session, &request->peer, &head, &request->lease, same);
	answer(request);
	return true;
}

static struct attempt make_attempt(struct request *request)
{
	return (struct attempt){
		.shares = &request->shares,
		.wire = &request->lease,
		.peer = &request->peer,
		.session = request->session,
		.request = request,
		.op = request->op,
		.target = request->target,
		.target_bytes = request->target_bytes,
		.known = request->known,
		.is_held = request->is_held,
	};
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

/* One that may have any node, or prefers one, takes what comes first. */
static void choose_again(struct requests *requests, struct request *request)
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

static void serve_lease(struct requests *requests, struct request *request)
{
	if (answer_same(requests, request))
		return;
	choose_again(requests, request);
	struct attempt attempt = make_attempt(request);
	int r = is_draining(&request->shares) ? -EPERM : grant(requests, &attempt);
	request->is_held = attempt.is_held;
	if (r == -EAGAIN && !request->is_impatient)
		request->has_waited = true;
	else if (r != -EINPROGRESS)
		answer_attempt(requests, request, &attempt, r);
}

void request_serve(struct requests *requests)
{
	supply_forget(&requests->supply);
	reserve_look(&requests->reserves);
	LIST_FOR_EACH_SAFE (pos, &requests->waiting) {
		struct request *request = CONTAINER_OF(pos, struct request, link);
		if (is_for_memory(request))
			serve_lease(requests, request);
	}
	count_waiting(requests);
}

/* ---- plan ---- */

/* For people: what of a share is clean, and where the rest comes from. Returns the length of all. */
static size_t explain_share(struct requests *requests, size_t used, const struct request_share *share,
	const struct spread_piece *piece)
{
	char *text = requests->text;
	const size_t size = sizeof requests->text;
	char ready[SIZE_TEXT], zeroed[SIZE_TEXT], from[3][SIZE_TEXT];
	uint64_t page_size = share->pool->config.page_size;
	uint64_t dirty = MIN(piece->dirty_pages, piece->zeroed_pages);
	uint64_t clean = MIN(piece->clean_pages, piece->zeroed_pages - dirty);
	used += (size_t)snprintf(text + used, size - used,
		"%spool %s, node %" PRId32 ": %s is clean, in %zu segment%s", used ? "; " : "",
		share->pool->name, share->pool->config.node,
		size_format(piece->ready_pages * page_size, ready), piece->parts,
		piece->parts == 1 ? "" : "s");
	if (used < size && piece->tail_pages > 0)
		used += (size_t)snprintf(text + used, size - used,
			"; %" PRIu64 " pages behind it go back to the kernel", piece->tail_pages);
	if (used < size && piece->zeroed_pages > 0)
		used += (size_t)snprintf(text + used, size - used,
			"; %s is zeroed first, on pages that are free (%s), of dirty segments (%s), of clean "
			"ones of another size (%s)",
			size_format(piece->zeroed_pages * page_size, zeroed),
			size_format((piece->zeroed_pages - dirty - clean) * page_size, from[0]),
			size_format(dirty * page_size, from[1]), size_format(clean * page_size, from[2]));
	return MIN(used, size - 1);
}

/* What a share gives. */
static void add_given(const struct spread_piece *piece, uint64_t page_size, struct hpz_wire_planned *planned)
{
	/* Of what is unlinked more may come free than is needed. */
	uint64_t dirty = MIN(piece->dirty_pages, piece->zeroed_pages);
	uint64_t clean = MIN(piece->clean_pages, piece->zeroed_pages - dirty);
	planned->segments += (uint32_t)piece->parts;
	planned->given += (piece->ready_pages + piece->zeroed_pages) * page_size;
	planned->ready += piece->ready_pages * page_size;
	planned->zeroed += piece->zeroed_pages * page_size;
	planned->from_dirty += dirty * page_size;
	planned->from_clean += clean * page_size;
	planned->from_free += (piece->zeroed_pages - dirty - clean) * page_size;
}

static uint32_t get_plan_kind(const struct request_shares *shares, const struct spread_piece *pieces)
{
	static const uint32_t kinds[] = {
		[PLANNER_WAIT] = HPZ_PLAN_WAIT,
		[PLANNER_EXACT] = HPZ_PLAN_EXACT,
		[PLANNER_TRIM] = HPZ_PLAN_TRIM,
		[PLANNER_EXTEND] = HPZ_PLAN_EXTEND,
		[PLANNER_SEVERAL] = HPZ_PLAN_SEVERAL,
	};
	return shares->count == 1 ? kinds[pieces[0].kind] : HPZ_PLAN_SEVERAL;
}

/* What is given, and the text of it. */
static void fill_given(struct requests *requests, const struct request_shares *shares,
	const struct spread_piece *pieces, struct hpz_wire_planned *planned)
{
	size_t used = 0;
	planned->kind = get_plan_kind(shares, pieces);
	requests->text[0] = '\0';
	for (size_t i = 0; i < shares->count; i++) {
		if (shares->list[i].pages == 0)
			continue;
		add_given(&pieces[i], shares->list[i].pool->config.page_size, planned);
		used = explain_share(requests, used, &shares->list[i], &pieces[i]);
	}
}

static void refuse_plan(struct hpz_wire_planned *planned, int error)
{
	*planned = (struct hpz_wire_planned){
		.size = sizeof *planned,
		.kind = HPZ_PLAN_REFUSE,
		.error = (uint32_t)error,
		.asked = planned->asked,
		.page_size = planned->page_size,
		.node = planned->node,
		.waiting = planned->waiting,
	};
}

/* The text is in requests->text afterwards. */
static void plan_lease(struct requests *requests, struct attempt *attempt, struct hpz_wire_planned *planned)
{
	struct request_shares *shares = attempt->shares;
	struct spread_piece pieces[SPREAD_PIECES_MAX];
	if (attempt->wire->policy == HPZ_NODES_INTERLEAVE)
		divide(requests, attempt);
	size_t lacking = plan_shares(requests, attempt, pieces);
	if (is_draining(shares)) {
		refuse_plan(planned, HPZ_ERR_DRAINED);
		snprintf(requests->text, sizeof requests->text, "pool %s is drained",
			shares->list[0].pool->name);
	} else if (!has_quota(requests, attempt->peer, get_leases(attempt->wire), get_bytes(attempt), NULL)) {
		refuse_plan(planned, HPZ_ERR_QUOTA);
	} else if (lacking < shares->count) {
		planned->kind = HPZ_PLAN_WAIT;
		if (attempt->wire->timeout_ms == 0)
			refuse_plan(planned, HPZ_ERR_NO_MEMORY);
		explain_short(requests, attempt, lacking, pieces[lacking].reason);
	} else {
		fill_given(requests, shares, pieces, planned);
	}
}

static enum request_outcome handle_plan(struct requests *requests, struct session *session,
	const struct request_peer *peer, const struct hpz_wire_head *head, const void *payload)
{
	const struct hpz_wire_lease *wire = payload;
	struct attempt attempt = {
		.shares = &requests->shares, .wire = wire, .peer = peer, .session = session};
	if (wire->reservation)
		return refuse(requests, head, HPZ_ERR_INVALID,
			"what a reservation keeps needs no plan: it is there, or comes");
	supply_forget(&requests->supply);
	if (!choose_shares(requests, head, wire, peer))
		return REQUEST_REPLIED;
	const struct pool *pool = requests->shares.list[0].pool;
	struct hpz_wire_planned *planned = get_payload(requests);
	*planned = (struct hpz_wire_planned){
		.size = sizeof *planned,
		.asked = wire->bytes,
		.page_size = pool->config.page_size,
		.node = pool->config.node,
	};
	bool is_one = true;
	for (size_t i = 0; i < requests->shares.count; i++) {
		const struct request_share *share = &requests->shares.list[i];
		planned->waiting = MAX(planned->waiting, share->pool->waiting);
		is_one = is_one && share->pool == pool;
	}
	if (!is_one)
		planned->node = HPZ_WIRE_NODE_ANY;
	plan_lease(requests, &attempt, planned);
	proto_set_text(planned->pool, sizeof planned->pool, is_one ? pool->name : "");
	proto_set_text(planned->text, sizeof planned->text, requests->text);
	return finish_reply(requests, head->op, head->id, sizeof *planned);
}

/* ---- release, adopt, ack ---- */

static enum request_outcome reply_released(
	struct requests *requests, const struct hpz_wire_head *head, uint64_t id, enum hpz_lease_state state)
{
	struct hpz_wire_released *payload = get_payload(requests);
	*payload = (struct hpz_wire_released){sizeof *payload, state, id};
	return finish_reply(requests, head->op, head->id, sizeof *payload);
}

static bool is_lease_clean(const struct requests *requests, uint64_t id)
{
	if (lease_find(requests->leases, id))
		return false;
	for (size_t i = 0; i < requests->reconcile->pool_count; i++) {
		const struct pool *pool = requests->reconcile->pools[i];
		LIST_FOR_EACH (pos, &pool->classes) {
			struct pool_class *class = CONTAINER_OF(pos, struct pool_class, link);
			LIST_FOR_EACH (at, &class->segments[SEGMENT_DIRTY]) {
				if (CONTAINER_OF(at, struct pool_segment, link)->lease == id)
					return false;
			}
		}
	}
	return true;
}

static enum request_outcome handle_release(struct requests *requests, struct session *session,
	const struct request_peer *peer, const struct hpz_wire_head *head, const void *payload)
{
	const struct hpz_wire_release *wire = payload;
	struct access_rule rule;
	struct lease *lease = lease_find(requests->leases, wire->id);
	if (!lease && !lease_is_known_id(requests->leases, wire->id))
		return refuse(
			requests, head, HPZ_ERR_UNKNOWN_LEASE, "lease %" PRIu64 " was never given", wire->id);
	if (reserve_find(&requests->reserves, wire->id))
		return refuse(requests, head, HPZ_ERR_INVALID,
			"%" PRIu64 " is a reservation: it ends by hpzctl unreserve", wire->id);
	request_find_rule(requests, peer, &rule);
	if (lease && !access_may_touch(&rule, lease->uid))
		return refuse_foreign(requests, head, &rule, lease);
	if (lease && (wire->flags & HPZ_RELEASE_FORCE))
		handoff_force(requests->handoff, lease, "released by force");
	else if (lease && lease->state != HPZ_STATE_RETURNING)
		handoff_return(requests->handoff, lease, "released");
	enum hpz_lease_state state = lease ? HPZ_STATE_RETURNING : HPZ_STATE_ENDED;
	bool is_waiting = (wire->flags & HPZ_RELEASE_WAIT) && wire->timeout_ms != 0;
	if (!is_waiting || is_lease_clean(requests, wire->id))
		return reply_released(requests, head, wire->id, state);
	struct request *request = make_waiting(requests, session, peer, head, wire->timeout_ms);
	if (!request)
		return reply_released(requests, head, wire->id, state);
	request->release = *wire;
	return REQUEST_WAITS;
}

void request_lease_ended(struct requests *requests, uint64_t lease)
{
	/* Its memory is proven free; clean it is when the pools say so (request_settle). */
	reconcile_mark(requests->reconcile);
}

static enum request_outcome handle_adopt(struct requests *requests, struct session *session,
	const struct request_peer *peer, const struct hpz_wire_head *head, const void *payload)
{
	const struct hpz_wire_adopt *wire = payload;
	struct lease *lease = lease_find(requests->leases, wire->id);
	if (!lease || lease->state == HPZ_STATE_RETURNING) {
		bool is_known = lease || lease_is_known_id(requests->leases, wire->id);
		return refuse(requests, head, is_known ? HPZ_ERR_ENDED : HPZ_ERR_UNKNOWN_LEASE,
			is_known ? "lease %" PRIu64 " has ended" : "lease %" PRIu64 " was never given",
			wire->id);
	}
	struct access_rule rule;
	request_find_rule(requests, peer, &rule);
	if (!access_may_touch(&rule, lease->uid))
		return refuse_foreign(requests, head, &rule, lease);
	struct lease draft = {0};
	struct hpz_wire_lease owner = {.owner_pid = wire->owner_pid, .deliver = lease->deliver};
	_cleanup_fd_ int opened = -1;
	int pidfd, r = find_owner(requests, &owner, peer, &draft, &pidfd, &opened);
	if (r < 0)
		return refuse_owner(requests, head, r, wire->owner_pid);
	r = deliver(requests, lease, false);
	if (r < 0)
		return refuse(requests, head, r == -EWOULDBLOCK ? HPZ_ERR_BUSY : HPZ_ERR_INTERNAL,
			"lease %" PRIu64 " cannot be opened again: %s", lease->id, strerror(-r));
	uint32_t flags = (lease->flags & ~HPZ_LEASE_UNBOUND) | wire->flags;
	r = lease_set_owner(requests->leases, lease, draft.pid, draft.pid_start, flags, draft.comm);
	if (r < 0) {
		request_close_fds(&requests->reply);
		return refuse(requests, head, HPZ_ERR_INTERNAL, "lease %" PRIu64 " cannot change hands: %s",
			lease->id, strerror(-r));
	}
	handoff_set_owner(requests->handoff, lease, pidfd);
	lease->bound = lives_with_connection(lease) ? session : NULL;
	return reply_leased(requests, head, peer, lease, lease_get_given(lease), 0);
}

static enum request_outcome handle_ack(struct requests *requests, struct session *session,
	const struct request_peer *peer, const struct hpz_wire_head *head, const void *payload)
{
	const struct hpz_wire_ack *wire = payload;
	struct access_rule rule;
	request_find_rule(requests, peer, &rule);
	for (uint64_t id = wire->id; id < wire->id + MAX(wire->count, 1u); id++) {
		struct lease *lease = lease_find(requests->leases, id);
		if (!lease || lease->state != HPZ_STATE_OFFERED || !access_may_touch(&rule, lease->uid))
			continue;
		lease_set_state(requests->leases, lease, HPZ_STATE_LEASED);
		if (lease->bound == session && !lives_with_connection(lease))
			lease->bound = NULL;
	}
	return REQUEST_NO_REPLY;
}

/* Of a bulk the first: the others are bound to the session, which is closed next. */
void request_take_back(struct requests *requests, uint64_t id)
{
	struct lease *lease = lease_find(requests->leases, id);
	if (lease && lease->state == HPZ_STATE_OFFERED)
		handoff_return(requests->handoff, lease, "its descriptors could not be sent");
}

/* ---- list, status ---- */

static enum request_outcome handle_list(struct requests *requests, struct session *session,
	const struct request_peer *peer, const struct hpz_wire_head *head, const void *payload)
{
	const struct hpz_wire_list *wire = payload;
	size_t capacity = sizeof requests->reply.bytes - sizeof(struct hpz_wire_head);
	struct hpz_wire_listed *listed = get_payload(requests);
	size_t size = sizeof *listed;
	uint64_t first = 0;
	if (wire->cursor & RESERVE_CURSOR && !(wire->cursor >> 63)) {
		first = wire->cursor & ~RESERVE_CURSOR;
		*listed = (struct hpz_wire_listed){.size = sizeof *listed};
	} else {
		size = report_list(requests->leases,
			wire->flags & HPZ_WIRE_LIST_MORE ? handoff_get_orphans(requests->handoff) : NULL,
			peer->capabilities & HPZ_WIRE_CAN_CELLS, wire->cursor, listed, capacity);
	}
	if (wire->flags & HPZ_WIRE_LIST_RESERVED && !listed->cursor)
		size = reserve_report(&requests->reserves, first, listed, size, capacity);
	return finish_reply(requests, head->op, head->id, size);
}

static enum request_outcome handle_status(struct requests *requests, struct session *session,
	const struct request_peer *peer, const struct hpz_wire_head *head, const void *payload)
{
	struct hpz_wire_status *status = get_payload(requests);
	size_t size = report_status(requests->reconcile, requests->books, peer->capabilities, status);
	status->uptime_ms = (clock_get_ns(CLOCK_MONOTONIC) - requests->started_ns) / NS_PER_MS;
	status->connections = requests->connections;
	return finish_reply(requests, head->op, head->id, size);
}

/* ---- wait, drain ---- */

static struct pool *find_pool_by_name(const struct requests *requests, const char *name)
{
	for (size_t i = 0; i < requests->reconcile->pool_count; i++) {
		if (strcmp(requests->reconcile->pools[i]->name, name) == 0)
			return requests->reconcile->pools[i];
	}
	return NULL;
}

/* Whether what a WAIT waits for is so; *ret_possible: the most that can ever be clean, in bytes. */
static bool is_awaited(
	const struct requests *requests, const struct hpz_wire_wait *wire, uint64_t *ret_possible)
{
	char name[HPZ_WIRE_NAME + 1];
	uint64_t clean = 0, possible = 0;
	bool is_idle = true;
	proto_get_text(wire->pool, sizeof wire->pool, name);
	for (size_t i = 0; i < requests->reconcile->pool_count; i++) {
		const struct pool *pool = requests->reconcile->pools[i];
		if (name[0] && strcmp(name, pool->name) != 0)
			continue;
		clean += pool->pages[SEGMENT_CLEAN] * pool->config.page_size;
		possible += pool->target * pool->config.page_size;
		is_idle = is_idle && reconcile_is_idle(pool, requests->leases);
	}
	*ret_possible = possible;
	return wire->clean > 0 ? clean >= wire->clean : is_idle;
}

static enum request_outcome reply_empty(struct requests *requests, const struct hpz_wire_head *head)
{
	struct hpz_wire_empty *payload = get_payload(requests);
	*payload = (struct hpz_wire_empty){.size = sizeof *payload};
	return finish_reply(requests, head->op, head->id, sizeof *payload);
}

static enum request_outcome handle_wait(struct requests *requests, struct session *session,
	const struct request_peer *peer, const struct hpz_wire_head *head, const void *payload)
{
	const struct hpz_wire_wait *wire = payload;
	char name[HPZ_WIRE_NAME + 1], size[SIZE_TEXT];
	uint64_t possible;
	proto_get_text(wire->pool, sizeof wire->pool, name);
	if (name[0] && !find_pool_by_name(requests, name))
		return refuse(requests, head, HPZ_ERR_NO_POOL, "there is no pool %s", name);
	is_awaited(requests, wire, &possible);
	if (wire->clean > possible)
		return refuse(requests, head, HPZ_ERR_TOO_LARGE, "no more than %s can ever be clean",
			size_format(possible, size));
	/* Answered once states are settled, not from the middle of a change. */
	struct request *request = make_waiting(requests, session, peer, head, wire->timeout_ms);
	if (!request)
		return refuse_waiting(requests, head);
	request->wait = *wire;
	reconcile_mark(requests->reconcile);
	return REQUEST_WAITS;
}

static enum request_outcome handle_drain(struct requests *requests, struct session *session,
	const struct request_peer *peer, const struct hpz_wire_head *head, const void *payload)
{
	struct request *request = make_waiting(
		requests, session, peer, head, ((const struct hpz_wire_drain *)payload)->timeout_ms);
	if (!request)
		return refuse_waiting(requests, head);
	request->drain = *(const struct hpz_wire_drain *)payload;
	for (size_t i = 0; i < requests->reconcile->pool_count; i++) {
		requests->reconcile->pools[i]->is_draining = true;
		reserve_end_all(&requests->reserves, requests->reconcile->pools[i], "its pool is drained");
	}
	log_info("drained by uid %u: pools take no memory until a reload or restart", (unsigned)peer->uid);
	reconcile_mark(requests->reconcile);
	return REQUEST_WAITS;
}

/* ---- rules of clearing ---- */

static enum request_outcome handle_set(struct requests *requests, struct session *session,
	const struct request_peer *peer, const struct hpz_wire_head *head, const void *payload)
{
	const struct hpz_wire_set *wire = payload;
	struct config_clear next = requests->config->clear;
	char key[HPZ_WIRE_NAME + 1], value[HPZ_WIRE_VALUE + 1], why[HPZ_WIRE_TEXT] = "it cannot be set here";
	proto_get_text(wire->key, sizeof wire->key, key);
	proto_get_text(wire->value, sizeof wire->value, value);
	int r = config_set_clear(&next, key, value, why, sizeof why);
	if (r == 0)
		r = requests->set_clear ? requests->set_clear(&next, why, sizeof why, requests->set_user)
					: -EINVAL;
	if (r < 0)
		return refuse(requests, head, HPZ_ERR_INVALID, "%s", why);
	log_info("%s = %s, by uid %u, until a reload or restart", key, value, (unsigned)peer->uid);
	return reply_empty(requests, head);
}

static enum request_outcome handle_clearing(struct requests *requests, struct session *session,
	const struct request_peer *peer, const struct hpz_wire_head *head, const void *payload)
{
	size_t length = report_clearing(requests->reconcile, &requests->config->clear, get_payload(requests));
	return finish_reply(requests, head->op, head->id, length);
}

static enum request_outcome handle_demand(struct requests *requests, struct session *session,
	const struct request_peer *peer, const struct hpz_wire_head *head, const void *payload)
{
	const struct hpz_wire_demand *wire = payload;
	size_t capacity = sizeof requests->reply.bytes - sizeof(struct hpz_wire_head);
	return finish_reply(requests, head->op, head->id,
		report_demand(requests->reconcile, wire->cursor, get_payload(requests), capacity));
}

/* ---- verify ---- */

static enum request_outcome handle_verify(struct requests *requests, struct session *session,
	const struct request_peer *peer, const struct hpz_wire_head *head, const void *payload)
{
	const struct hpz_wire_verify *wire = payload;
	char name[HPZ_WIRE_NAME + 1];
	proto_get_text(wire->pool, sizeof wire->pool, name);
	if (name[0] && !find_pool_by_name(requests, name))
		return refuse(requests, head, HPZ_ERR_NO_POOL, "there is no pool %s", name);
	if (requests->reconcile->work.is_simulated)
		return refuse(requests, head, HPZ_ERR_UNSUPPORTED, "simulated memory cannot be read");
	struct request *request = make_waiting(requests, session, peer, head, wire->timeout_ms);
	if (!request)
		return refuse_waiting(requests, head);
	snprintf(request->run.pool, sizeof request->run.pool, "%s", name);
	list_init(&request->run.link);
	verify_start_run(&requests->verify, &request->run);
	return REQUEST_WAITS;
}

static bool settle_verify(struct requests *requests, struct request *request)
{
	const struct verify_run *run = &request->run;
	if (!run->is_over)
		return false;
	struct hpz_wire_head head = make_head(request);
	struct hpz_wire_verified *payload = get_payload(requests);
	*payload = (struct hpz_wire_verified){
		.size = sizeof *payload,
		.segments = run->segments,
		.pages = run->pages,
		.bytes = run->bytes,
		.hits = run->hits,
		.left = run->left,
		.hit_segment = run->hit_segment,
		.hit_offset = run->hit_offset,
	};
	proto_set_text(payload->hit_pool, sizeof payload->hit_pool, run->hit_pool);
	requests->reply.fd_count = 0;
	requests->reply.lease = 0;
	finish_reply(requests, head.op, head.id, sizeof *payload);
	answer(request);
	return true;
}

/* ---- calibrate ---- */

static enum request_outcome handle_calibrate(struct requests *requests, struct session *session,
	const struct request_peer *peer, const struct hpz_wire_head *head, const void *payload)
{
	const struct hpz_wire_calibrate *wire = payload;
	char name[HPZ_WIRE_NAME + 1];
	proto_get_text(wire->pool, sizeof wire->pool, name);
	if (name[0] && !find_pool_by_name(requests, name))
		return refuse(requests, head, HPZ_ERR_NO_POOL, "there is no pool %s", name);
	struct request *request = make_waiting(requests, session, peer, head, wire->timeout_ms);
	if (!request)
		return refuse_waiting(requests, head);
	snprintf(request->calibration.pool, sizeof request->calibration.pool, "%s", name);
	request->calibration.pools = (uint32_t)reconcile_calibrate(requests->reconcile, name);
	return REQUEST_WAITS;
}

static bool settle_calibrate(struct requests *requests, struct request *request)
{
	if (reconcile_is_calibrating(requests->reconcile, request->calibration.pool))
		return false;
	struct hpz_wire_head head = make_head(request);
	struct hpz_wire_calibrated *payload = get_payload(requests);
	*payload = (struct hpz_wire_calibrated){.size = sizeof *payload, .pools = request->calibration.pools};
	requests->reply.fd_count = 0;
	requests->reply.lease = 0;
	finish_reply(requests, head.op, head.id, sizeof *payload);
	answer(request);
	return true;
}

/* ---- resize ---- */

/* What is asked for, in pages. False: no whole ones. */
static bool get_order(
	const struct hpz_wire_resize *wire, const struct pool *pool, struct resize_order *ret_order)
{
	*ret_order = (struct resize_order){wire->kind, wire->pages};
	if (wire->bytes > 0)
		ret_order->pages = wire->bytes / pool->config.page_size;
	return wire->bytes % pool->config.page_size == 0;
}

static int demote(struct requests *requests, struct pool *pool, uint64_t pages)
{
	struct reconcile *reconcile = requests->reconcile;
	int r = demote_order(&reconcile->nr, pool, reconcile->pools, reconcile->pool_count, pages,
		requests->text, sizeof requests->text);
	if (r == -ENOENT)
		return HPZ_ERR_UNSUPPORTED;
	return r == -EBUSY ? HPZ_ERR_BUSY : r < 0 ? HPZ_ERR_INVALID : 0;
}

/* 0, or the error and why in requests->text. */
static int resize(struct requests *requests, struct pool *pool, const struct hpz_wire_resize *wire)
{
	struct resize_order order;
	uint64_t pages;
	char size[SIZE_TEXT];
	if (!get_order(wire, pool, &order)) {
		snprintf(requests->text, sizeof requests->text,
			"pool %s has pages of %s, and that is no number of them", pool->name,
			size_format_exact(pool->config.page_size, size));
		return HPZ_ERR_INVALID;
	}
	if (order.kind == HPZ_RESIZE_DEMOTE)
		return demote(requests, pool, order.pages);
	int r = resize_find_target(pool, &order, &pages, requests->text, sizeof requests->text);
	if (r < 0)
		return r == -ERANGE ? HPZ_ERR_TOO_LARGE : HPZ_ERR_INVALID;
	r = resize_set(&requests->reconcile->nr, pool, pages);
	if (r < 0) {
		snprintf(requests->text, sizeof requests->text, "it cannot be written to the journal: %s",
			strerror(-r));
		return HPZ_ERR_INTERNAL;
	}
	return 0;
}

static enum request_outcome handle_resize(struct requests *requests, struct session *session,
	const struct request_peer *peer, const struct hpz_wire_head *head, const void *payload)
{
	const struct hpz_wire_resize *wire = payload;
	char name[HPZ_WIRE_NAME + 1];
	proto_get_text(wire->pool, sizeof wire->pool, name);
	struct pool *pool = find_pool_by_name(requests, name);
	if (!pool)
		return refuse(requests, head, HPZ_ERR_NO_POOL, "there is no pool %s", name);
	if (pool->is_draining)
		return refuse(requests, head, HPZ_ERR_DRAINED, "pool %s is drained", name);
	uint64_t before = pool->target;
	struct request *request = make_waiting(requests, session, peer, head,
		wire->flags & HPZ_RESIZE_WAIT || wire->kind == HPZ_RESIZE_DEMOTE ? wire->timeout_ms
										 : HPZ_FOREVER);
	if (!request)
		return refuse_waiting(requests, head);
	request->resize.demoted = pool->demoted;
	request->resize.demotes = wire->kind == HPZ_RESIZE_DEMOTE;
	int r = resize(requests, pool, wire);
	if (r != 0) {
		drop_request(request);
		return make_error(requests, head->op, head->id, r, 0, requests->text);
	}
	snprintf(request->resize.pool, sizeof request->resize.pool, "%s", name);
	request->resize.before = before;
	request->resize.waits = wire->flags & HPZ_RESIZE_WAIT;
	reconcile_mark(requests->reconcile);
	return REQUEST_WAITS;
}

static void reply_resized(struct requests *requests, const struct request *request, const struct pool *pool,
	const struct resize_left *left, bool is_done)
{
	struct hpz_wire_resized *payload = get_payload(requests);
	*payload = (struct hpz_wire_resized){
		.size = sizeof *payload,
		.done = is_done,
		.page_size = pool->config.page_size,
		.before = request->resize.before,
		.target = pool->target,
		.configured = pool->config.pages,
		.total = pool_get_total(pool),
		.grow = left->grow,
		.shrink = left->shrink,
		.give_back = left->give_back,
		.demoted = request->resize.demotes ? pool->demoted - request->resize.demoted : 0,
	};
	requests->reply.fd_count = 0;
	requests->reply.lease = 0;
	finish_reply(requests, request->op, request->id, sizeof *payload);
}

/* The look that has just been has begun whatever can be done at once. */
static bool settle_resize(struct requests *requests, struct request *request)
{
	struct hpz_wire_head head = make_head(request);
	struct pool *pool = find_pool_by_name(requests, request->resize.pool);
	struct resize_left left;
	if (!pool) {
		refuse(requests, &head, HPZ_ERR_NO_POOL, "pool %s is gone", request->resize.pool);
		answer(request);
		return true;
	}
	if (pool->is_draining) {
		refuse(requests, &head, HPZ_ERR_DRAINED, "pool %s is drained", pool->name);
		answer(request);
		return true;
	}
	bool is_done = resize_get_left(pool, &left);
	if (request->resize.demotes && pool->size.demoting > 0)
		return false;
	if (request->resize.demotes && pool->demoted == request->resize.demoted) {
		refuse(requests, &head, HPZ_ERR_NO_MEMORY, "no page of pool %s was free or clean",
			pool->name);
		answer(request);
		return true;
	}
	if (!is_done && request->resize.waits)
		return false;
	reply_resized(requests, request, pool, &left, is_done);
	answer(request);
	return true;
}

static void refuse_resize_timeout(
	struct requests *requests, const struct hpz_wire_head *head, const struct request *request)
{
	struct resize_left left = {0};
	struct pool *pool = find_pool_by_name(requests, request->resize.pool);
	if (pool)
		resize_get_left(pool, &left);
	refuse(requests, head, HPZ_ERR_TIMEOUT,
		"%" PRIu64 " pages are missing, %" PRIu64
		" more than wanted are held, and nr_hugepages is to be "
		"lowered by %" PRIu64 "; it goes on",
		left.grow, left.shrink, left.give_back);
}

/* ---- check ---- */

static enum request_outcome reply_check(
	struct requests *requests, const struct hpz_wire_head *head, size_t index)
{
	size_t capacity = sizeof requests->reply.bytes - sizeof(struct hpz_wire_head);
	return finish_reply(requests, head->op, head->id,
		report_check(requests->books, index, get_payload(requests), capacity));
}

static enum request_outcome handle_check(struct requests *requests, struct session *session,
	const struct request_peer *peer, const struct hpz_wire_head *head, const void *payload)
{
	const struct hpz_wire_check *wire = payload;
	size_t index = (size_t)(wire->cursor & UINT32_MAX);
	if (wire->cursor != 0) {
		if (wire->cursor >> 32 != requests->books->run_number ||
			index >= requests->books->results.count)
			return refuse(
				requests, head, HPZ_ERR_INVALID, "a later check has begun: check again");
		return reply_check(requests, head, index);
	}
	struct request *request = make_waiting(requests, session, peer, head, wire->timeout_ms);
	if (!request)
		return refuse_waiting(requests, head);
	request->check = *wire;
	int r = books_check(requests->books, wire->flags & HPZ_CHECK_REPAIR);
	if (r == 0)
		return REQUEST_WAITS;
	drop_request(request);
	return refuse(requests, head, r == -EBUSY || r == -EAGAIN ? HPZ_ERR_BUSY : HPZ_ERR_INTERNAL, "%s",
		r == -EBUSY    ? "another check is under way"
		: r == -EAGAIN ? "workers of an earlier hpzd have not ended yet"
			       : strerror(-r));
}

void request_checked(struct requests *requests)
{
	LIST_FOR_EACH_SAFE (pos, &requests->waiting) {
		struct request *request = CONTAINER_OF(pos, struct request, link);
		struct hpz_wire_head head = make_head(request);
		if (request->op != HPZ_OP_CHECK)
			continue;
		reply_check(requests, &head, 0);
		answer(request);
	}
}

/* ---- drain, once it waits ---- */

static bool is_drain_done(struct requests *requests, struct request *request)
{
	bool is_done = true;
	for (size_t i = 0; i < requests->reconcile->pool_count; i++)
		is_done = is_done && reconcile_is_drained(requests->reconcile->pools[i]);
	if (!is_done || !(request->drain.flags & HPZ_DRAIN_GIVE_BACK) || request->has_given_back)
		return is_done;
	for (size_t i = 0; i < requests->reconcile->pool_count; i++) {
		if (reconcile_give_back(requests->reconcile, requests->reconcile->pools[i]) != 0)
			is_done = false;
	}
	request->has_given_back = true; /* once: what was not free then is in somebody's hands */
	return is_done;
}

static bool settle_drain(struct requests *requests, struct request *request)
{
	struct hpz_wire_head head = make_head(request);
	if (!is_drain_done(requests, request))
		return false;
	if (requests->leases->count > 0) {
		snprintf(requests->text, sizeof requests->text,
			"leases still out: %zu; their memory goes back to the kernel as they end",
			requests->leases->count);
		make_error(requests, head.op, head.id, HPZ_ERR_IN_USE, (uint32_t)requests->leases->count,
			requests->text);
	} else {
		reply_empty(requests, &head);
	}
	answer(request);
	return true;
}

static bool settle_wait(struct requests *requests, struct request *request)
{
	struct hpz_wire_head head = make_head(request);
	uint64_t possible;
	if (!is_awaited(requests, &request->wait, &possible))
		return false;
	reply_empty(requests, &head);
	answer(request);
	return true;
}

static bool settle_release(struct requests *requests, struct request *request)
{
	struct hpz_wire_head head = make_head(request);
	if (!is_lease_clean(requests, request->release.id))
		return false;
	reply_released(requests, &head, request->release.id, HPZ_STATE_ENDED);
	answer(request);
	return true;
}

/* Answers a request that waits for a state, if it is so. */
static bool settle(struct requests *requests, struct request *request)
{
	if (request->op == HPZ_OP_RELEASE)
		return settle_release(requests, request);
	if (request->op == HPZ_OP_WAIT)
		return settle_wait(requests, request);
	if (request->op == HPZ_OP_VERIFY)
		return settle_verify(requests, request);
	if (request->op == HPZ_OP_CALIBRATE)
		return settle_calibrate(requests, request);
	if (request->op == HPZ_OP_RESIZE)
		return settle_resize(requests, request);
	return request->op == HPZ_OP_DRAIN && settle_drain(requests, request);
}

void request_settle(struct requests *requests)
{
	verify_step(&requests->verify);
	LIST_FOR_EACH_SAFE (pos, &requests->waiting) {
		struct request *request = CONTAINER_OF(pos, struct request, link);
		settle(requests, request);
	}
}

static void on_timeout(uv_timer_t *timer)
{
	struct request *request = timer->data;
	struct requests *requests = request->requests;
	struct hpz_wire_head head = make_head(request);
	if (settle(requests, request)) /* a limit of 0 asks whether it is so now */
		return;
	supply_forget(&requests->supply);
	if (is_for_memory(request)) {
		struct attempt attempt = make_attempt(request);
		refuse_short(requests, &head, HPZ_ERR_TIMEOUT, &attempt);
	} else if (request->op == HPZ_OP_RELEASE)
		refuse(requests, &head, HPZ_ERR_TIMEOUT,
			"lease %" PRIu64 " has ended, but its memory is not clean yet", request->release.id);
	else if (request->op == HPZ_OP_DRAIN)
		refuse(requests, &head, HPZ_ERR_TIMEOUT, "the pools are not empty yet; it goes on");
	else if (request->op == HPZ_OP_VERIFY)
		refuse(requests, &head, HPZ_ERR_TIMEOUT,
			"%" PRIu64 " of %" PRIu64 " segments were read, %" PRIu64 " of them not zero",
			request->run.segments, request->run.todo, request->run.hits);
	else if (request->op == HPZ_OP_CALIBRATE)
		refuse(requests, &head, HPZ_ERR_TIMEOUT,
			"it is not measured yet: that waits for memory to spare");
	else if (request->op == HPZ_OP_RESIZE)
		refuse_resize_timeout(requests, &head, request);
	else if (request->op == HPZ_OP_CHECK)
		refuse(requests, &head, HPZ_ERR_TIMEOUT, "the check is not over yet");
	else
		refuse(requests, &head, HPZ_ERR_TIMEOUT, "not so much is clean yet");
	answer(request);
	count_waiting(requests);
}

/* ---- the table ---- */

typedef enum request_outcome (*handler)(struct requests *requests, struct session *session,
	const struct request_peer *peer, const struct hpz_wire_head *head, const void *payload);
typedef int (*checker)(const void *payload, const char **ret_why);

#define CHECK(name)                                                                                          \
	static int check_##name(const void *payload, const char **ret_why)                                   \
	{                                                                                                    \
		return proto_check_##name(payload, ret_why);                                                 \
	}
CHECK(empty)
CHECK(lease)
CHECK(reserve)
CHECK(unreserve)
CHECK(change)
CHECK(ack)
CHECK(release)
CHECK(adopt)
CHECK(list)
CHECK(wait)
CHECK(drain)
CHECK(verify)
CHECK(calibrate)
CHECK(set)
CHECK(check)
CHECK(demand)
CHECK(resize)

#define NEEDS_OWN (CONFIG_ALLOW_LEASE | CONFIG_ALLOW_ADMIN) /* which lease it is decides the rest */

/* clang-format off */
static const struct {
	const char *name; /* as in "may not ..." */
	size_t size;
	checker check;
	handler handle;
	unsigned needs; /* one of these CONFIG_ALLOW_* */
	bool sends_descriptors;
} table[HPZ_OP_LAST + 1] = {
	[HPZ_OP_STATUS]  = {"read status", sizeof(struct hpz_wire_empty),   check_empty,   handle_status,  CONFIG_ALLOW_STATUS, false},
	[HPZ_OP_LEASE]   = {"lease",   sizeof(struct hpz_wire_lease),   check_lease,   handle_lease,   CONFIG_ALLOW_LEASE,  true},
	[HPZ_OP_ACK]     = {"ack",     sizeof(struct hpz_wire_ack),     check_ack,     handle_ack,     NEEDS_OWN,  false},
	[HPZ_OP_RELEASE] = {"release", sizeof(struct hpz_wire_release), check_release, handle_release, NEEDS_OWN,  false},
	[HPZ_OP_ADOPT]   = {"adopt",   sizeof(struct hpz_wire_adopt),   check_adopt,   handle_adopt,   NEEDS_OWN,  true},
	[HPZ_OP_LIST]    = {"list leases", sizeof(struct hpz_wire_list),    check_list,    handle_list,    CONFIG_ALLOW_STATUS, false},
	[HPZ_OP_WAIT]    = {"wait",    sizeof(struct hpz_wire_wait),    check_wait,    handle_wait,    CONFIG_ALLOW_STATUS, false},
	[HPZ_OP_DRAIN]   = {"drain",   sizeof(struct hpz_wire_drain),   check_drain,   handle_drain,   CONFIG_ALLOW_ADMIN,  false},
	[HPZ_OP_CHECK]   = {"check",   sizeof(struct hpz_wire_check),   check_check,   handle_check,   CONFIG_ALLOW_ADMIN,  false},
	[HPZ_OP_PLAN]    = {"plan",    sizeof(struct hpz_wire_lease),   check_lease,   handle_plan,    CONFIG_ALLOW_STATUS | CONFIG_ALLOW_LEASE, false},
	[HPZ_OP_RESERVE] = {"reserve", sizeof(struct hpz_wire_lease), check_reserve, handle_reserve, CONFIG_ALLOW_LEASE, false},
	[HPZ_OP_CHANGE] = {"change a lease", sizeof(struct hpz_wire_change), check_change, handle_change, NEEDS_OWN, true},
	[HPZ_OP_UNRESERVE] = {"unreserve", sizeof(struct hpz_wire_release), check_unreserve, handle_unreserve, NEEDS_OWN, false},
	[HPZ_OP_VERIFY]  = {"verify",  sizeof(struct hpz_wire_verify),  check_verify,  handle_verify,  CONFIG_ALLOW_ADMIN,  false},
	[HPZ_OP_CALIBRATE] = {"calibrate", sizeof(struct hpz_wire_calibrate), check_calibrate, handle_calibrate, CONFIG_ALLOW_ADMIN, false},
	[HPZ_OP_SET]     = {"set rules of clearing", sizeof(struct hpz_wire_set), check_set, handle_set, CONFIG_ALLOW_ADMIN, false},
	[HPZ_OP_RESIZE]  = {"resize a pool", sizeof(struct hpz_wire_resize), check_resize, handle_resize, CONFIG_ALLOW_ADMIN, false},
	[HPZ_OP_CLEARING] = {"read status", sizeof(struct hpz_wire_empty), check_empty, handle_clearing, CONFIG_ALLOW_STATUS, false},
	[HPZ_OP_DEMAND] = {"read status", sizeof(struct hpz_wire_demand), check_demand, handle_demand, CONFIG_ALLOW_STATUS, false},
};
/* clang-format on */

static enum request_outcome refuse_broken(
	struct requests *requests, const struct hpz_wire_head *head, int error, const char *why)
{
	make_error(requests, head->op, head->id, error, 0, why);
	return REQUEST_BROKEN;
}

enum request_outcome request_handle(struct requests *requests, struct session *session,
	const struct request_peer *peer, const void *message, size_t length, uint64_t unread_lease)
{
	union {
		uint64_t align;
		unsigned char bytes[HPZ_WIRE_MAX_REQUEST];
	} payload;
	struct hpz_wire_head head = {0};
	const char *why = "the message is not what its operation demands";
	int r = proto_get_head(message, length, false, &head);
	if (r == HPZ_ERR_UNSUPPORTED) /* of somebody newer, who may go on with what we know */
		return refuse(
			requests, &head, r, "hpzd %s knows no operation %u", HPZ_VERSION, (unsigned)head.op);
	if (r)
		return refuse_broken(requests, &head, r, "the message has no valid head");
	if (head.op == HPZ_OP_HELLO)
		return refuse_broken(requests, &head, HPZ_ERR_PROTOCOL, "hello was said already");
	if (!table[head.op].handle)
		return refuse(requests, &head, HPZ_ERR_UNSUPPORTED, "this hpzd does not know this request");
	r = proto_get_payload(message, length, &payload, table[head.op].size);
	if (r == 0)
		r = table[head.op].check(&payload, &why);
	if (r)
		return head.op == HPZ_OP_ACK ? refuse_broken(requests, &head, r, why)
					     : make_error(requests, head.op, head.id, r, 0, why);
	struct access_rule rule;
	request_find_rule(requests, peer, &rule);
	if (!access_may(&rule, table[head.op].needs))
		return head.op == HPZ_OP_ACK ? REQUEST_NO_REPLY
					     : refuse_denied(requests, &head, &rule, table[head.op].name);
	if (table[head.op].sends_descriptors && unread_lease)
		return refuse(requests, &head, HPZ_ERR_BUSY,
			"confirm the descriptors of lease %" PRIu64 " before asking for more", unread_lease);
	requests->reply.fd_count = 0;
	requests->reply.lease = 0;
	return table[head.op].handle(requests, session, peer, &head, &payload);
}

enum request_outcome request_handle_hello(
	struct requests *requests, const void *message, size_t length, uint64_t *ret_capabilities)
{
	struct hpz_wire_head head = {.op = HPZ_OP_HELLO};
	struct hpz_wire_hello hello;
	const char *why = "the first message must be a hello";
	int r = proto_get_head(message, length, false, &head);
	if (r == 0 && head.op != HPZ_OP_HELLO)
		r = HPZ_ERR_PROTOCOL;
	if (r == 0)
		r = proto_get_payload(message, length, &hello, sizeof hello);
	if (r == 0)
		r = proto_check_hello(&hello, &why);
	*ret_capabilities = r ? 0 : hello.capabilities;
	if (r)
		return refuse_broken(requests, &head, r, why);
	struct hpz_wire_hello *reply = get_payload(requests);
	*reply = (struct hpz_wire_hello){
		.size = sizeof *reply,
		.magic = HPZ_WIRE_MAGIC,
		.version = HPZ_WIRE_VERSION,
		.compat = HPZ_WIRE_COMPAT,
		.max_message = HPZ_WIRE_MAX_MESSAGE,
		.max_request = HPZ_WIRE_MAX_REQUEST,
		.max_descriptors = HPZ_WIRE_MAX_FDS,
	};
	proto_set_text(reply->program, sizeof reply->program, HPZ_VERSION);
	requests->reply.fd_count = 0;
	requests->reply.lease = 0;
	return finish_reply(requests, HPZ_OP_HELLO, head.id, sizeof *reply);
}

/* ---- life ---- */

static void on_extension_failed(void *keeper, void *user)
{
	struct requests *requests = user;
	LIST_FOR_EACH (pos, &requests->waiting) {
		struct request *request = CONTAINER_OF(pos, struct request, link);
		for (size_t i = 0; i < request->shares.count; i++)
			request->failed += &request->shares.list[i] == keeper;
	}
	reserve_note_failed(&requests->reserves, keeper);
}

void request_cancel_session(struct requests *requests, struct session *session)
{
	LIST_FOR_EACH_SAFE (pos, &requests->waiting) {
		struct request *request = CONTAINER_OF(pos, struct request, link);
		if (request->session == session)
			drop_request(request);
	}
	count_waiting(requests);
	LIST_FOR_EACH (pos, &requests->leases->leases) {
		struct lease *lease = LEASE_OF(pos);
		if (lease->bound == session && lease->state != HPZ_STATE_RETURNING)
			handoff_return(requests->handoff, lease, "its connection was closed");
	}
}

void request_init(struct requests *requests, uv_loop_t *loop, const struct host *host,
	const struct config *config, struct crew *crew, struct lease_table *leases, struct handoff *handoff,
	struct reconcile *reconcile, struct books *books,
	void (*send)(struct session *session, struct request_reply *reply))
{
	memset(requests, 0, sizeof *requests);
	requests->loop = loop;
	requests->host = host;
	requests->config = config;
	requests->crew = crew;
	requests->leases = leases;
	requests->handoff = handoff;
	requests->reconcile = reconcile;
	requests->books = books;
	requests->send = send;
	requests->started_ns = clock_get_ns(CLOCK_MONOTONIC);
	list_init(&requests->waiting);
	verify_init(&requests->verify, reconcile);
	supply_init(&requests->supply, reconcile, handoff, &requests->verify, on_extension_failed, requests);
	reserve_init(&requests->reserves, loop, &requests->supply, leases);
}

void request_deinit(struct requests *requests)
{
	LIST_FOR_EACH_SAFE (pos, &requests->waiting)
		drop_request(CONTAINER_OF(pos, struct request, link));
	reserve_deinit(&requests->reserves);
	/* Connections end with us now, and not because a client wants its lease to end. */
	LIST_FOR_EACH (pos, &requests->leases->leases)
		LEASE_OF(pos)->bound = NULL;
}
