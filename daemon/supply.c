/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* supply.c - carries out what the planner found for a request. */
#include <inttypes.h>

#include "log.h"
#include "supply.h"

/* A segment that is being extended for somebody. */
struct growth {
	struct list link;
	struct supply *supply;
	struct pool *pool;
	uint64_t pages;
	struct extend *extend;
	void *keeper; /* NULL: nobody any more */
};

void supply_init(struct supply *supply, struct reconcile *reconcile, struct handoff *handoff,
	struct verify *verify, void (*failed)(void *keeper, void *user), void *user)
{
	*supply = (struct supply){
		.reconcile = reconcile, .handoff = handoff, .verify = verify, .failed = failed, .user = user};
	list_init(&supply->growths);
}

/* ---- inventory ---- */

void supply_forget(struct supply *supply)
{
	supply->stock_count = 0;
}

static uint64_t subtract(uint64_t from, uint64_t what)
{
	return from > what ? from - what : 0;
}

/* Promises first, then the kernel's counters, holders last: as reconcile does, and for the same reasons. */
static void count_stock(struct supply *supply, struct pool *pool, struct supply_stock *ret_stock)
{
	struct host_counters kernel = {0};
	uint64_t filling, mending, holes, grown;
	pool_count_promised(pool, &filling, &mending);
	uint64_t lid = segment_get_room(pool->store);
	host_get_counters(supply->reconcile->host, pool->config.node, pool->config.page_size, &kernel);
	pool_count_holders(pool, &holes, &grown);
	const struct policy_input input = {
		.kernel_free = kernel.free,
		.kernel_resv = kernel.resv,
		.holes_owed_pages = holes,
		.filling_todo_pages = filling,
		.mending_todo_pages = mending,
	};
	uint64_t held =
		pool_get_held(pool) + orphan_get_pages(handoff_get_orphans(supply->handoff), pool, NULL);
	*ret_stock = (struct supply_stock){
		.pool = pool,
		.usable_pages = policy_get_usable(&input),
		.room_pages = MIN(subtract(pool->config.max_pages, held),
			lid == UINT64_MAX ? lid : subtract(lid, filling + mending + holes)),
	};
}

static const struct supply_stock *get_stock(struct supply *supply, struct pool *pool)
{
	for (size_t i = 0; i < supply->stock_count; i++) {
		if (supply->stocks[i].pool == pool)
			return &supply->stocks[i];
	}
	if (supply->stock_count == CONFIG_POOLS_MAX)
		supply->stock_count = 0;
	struct supply_stock *stock = &supply->stocks[supply->stock_count++];
	count_stock(supply, pool, stock);
	return stock;
}

/* ---- what there is to choose from ---- */

/* What is extended for somebody comes to nobody else. */
static uint64_t count_growing(const struct supply *supply, const struct pool *pool, uint64_t pages)
{
	uint64_t count = 0;
	LIST_FOR_EACH (pos, &supply->growths) {
		const struct growth *growth = CONTAINER_OF(pos, struct growth, link);
		count += growth->keeper && growth->pool == pool && growth->pages == pages;
	}
	return count;
}

/* One with holes gives fewer pages than it is long, and one that was opened none that are certain. */
static bool is_victim(const struct pool_segment *segment)
{
	return !segment->is_busy && !segment->is_suspect && segment->allocated == segment->pages;
}

static uint64_t count_victims(struct pool_class *class)
{
	uint64_t count = 0;
	LIST_FOR_EACH (at, &class->segments[SEGMENT_DIRTY])
		count += is_victim(CONTAINER_OF(at, struct pool_segment, link));
	return count;
}

/* Classes of which something is there, or comes. */
static size_t list_classes(const struct supply *supply, const struct pool *pool, bool with_victims,
	struct planner_class ret_classes[PLANNER_CLASSES_MAX])
{
	size_t count = 0;
	POOL_FOR_EACH (pos, pool) {
		struct pool_class *class = CONTAINER_OF(pos, struct pool_class, link);
		struct planner_class found = {
			.segment_pages = class->pages,
			.clean = class->counts[SEGMENT_CLEAN] - class->kept,
			.dirty = with_victims ? count_victims(class) : 0,
			.coming = class->counts[SEGMENT_DIRTY] + class->counts[SEGMENT_FILLING],
		};
		if (found.coming > 0 && !list_is_empty(&supply->growths))
			found.coming = subtract(found.coming, count_growing(supply, pool, class->pages));
		if (class->pages > 0 && found.clean + found.coming > 0 && count < PLANNER_CLASSES_MAX)
			ret_classes[count++] = found;
	}
	return count;
}

/* Whether memory can be zeroed for it now. */
static bool may_zero(const struct supply *supply, const struct supply_ask *ask)
{
	const struct reconcile *reconcile = supply->reconcile;
	/* What is simulated must not take pages. */
	return ask->may_zero && !reconcile->has_leftovers && !reconcile->is_off &&
	       !reconcile->work.is_simulated;
}

/* Without what costs more to count the more is lent. */
static void make_input(const struct supply *supply, const struct supply_ask *ask,
	struct planner_class classes[PLANNER_CLASSES_MAX], struct planner_input *ret_input)
{
	*ret_input = (struct planner_input){
		.classes = classes,
		.class_count = list_classes(supply, ask->pool, false, classes),
		.is_draining = ask->pool->is_draining,
		.ahead_pages = ask->ahead_pages,
		.bound_pages = ask->bound_pages,
		.may_pass = ask->may_pass,
	};
}

/* With all that is to be zeroed. */
static void make_whole_input(struct supply *supply, const struct supply_ask *ask,
	struct planner_class classes[PLANNER_CLASSES_MAX], struct planner_input *ret_input)
{
	make_input(supply, ask, classes, ret_input);
	const struct supply_stock *stock = get_stock(supply, ask->pool);
	ret_input->usable_pages = stock->usable_pages;
	ret_input->room_pages = stock->room_pages;
	ret_input->may_zero = true;
	ret_input->class_count = list_classes(supply, ask->pool, true, classes);
}

static bool is_settled(const struct spread_piece *piece)
{
	return (piece->kind != PLANNER_WAIT && !piece->passes) || piece->reason == PLANNER_DRAINED ||
	       piece->reason == PLANNER_COMING;
}

/* First without what is costly to count: mostly it is not needed. */
void supply_plan_pieces(struct supply *supply, const struct supply_ask *ask,
	const struct planner_request *requests, size_t count, struct planner_plan *scratch,
	struct spread_piece *ret_pieces)
{
	struct planner_class classes[PLANNER_CLASSES_MAX];
	struct planner_input input;
	bool are_settled = true;
	make_input(supply, ask, classes, &input);
	spread_plan(&input, classes, requests, count, scratch, ret_pieces);
	for (size_t i = 0; i < count; i++)
		are_settled = are_settled && is_settled(&ret_pieces[i]);
	if (are_settled || !may_zero(supply, ask))
		return;
	make_whole_input(supply, ask, classes, &input);
	spread_plan(&input, classes, requests, count, scratch, ret_pieces);
}

void supply_plan(struct supply *supply, const struct supply_ask *ask, struct planner_plan *ret_plan)
{
	struct spread_piece piece;
	supply_plan_pieces(supply, ask, &ask->request, 1, ret_plan, &piece);
}

uint64_t supply_get_most(
	struct supply *supply, const struct supply_ask *ask, bool is_ready, struct planner_plan *scratch)
{
	struct planner_class classes[PLANNER_CLASSES_MAX];
	struct planner_input input;
	if (is_ready || !may_zero(supply, ask))
		make_input(supply, ask, classes, &input);
	else
		make_whole_input(supply, ask, classes, &input);
	return spread_get_most(&input, &ask->request, is_ready, scratch);
}

/* ---- what is clean ---- */

/* Another clean segment of the class that this uid may have. -EUCLEAN: one that nobody may have was
 * discarded. */
static int find_other(const struct supply *supply, struct pool_segment **segment, uint32_t uid)
{
	struct pool_segment *unfit = *segment;
	LIST_FOR_EACH (pos, &unfit->class->segments[SEGMENT_CLEAN]) {
		struct pool_segment *other = CONTAINER_OF(pos, struct pool_segment, link);
		if (other->keeper || !handoff_may_give(supply->handoff, other, uid))
			continue;
		*segment = other;
		return 0;
	}
	pool_discard(unfit);
	return -EUCLEAN;
}

static int pick(const struct supply *supply, const struct supply_ask *ask, uint64_t segment_pages,
	struct pool_segment **ret_segment)
{
	*ret_segment = pool_find_clean(ask->pool, segment_pages);
	if (!*ret_segment)
		return -EUCLEAN;
	/* Its past forbids this owner: somebody else may have it, or, if nobody may, the kernel. */
	if (!handoff_may_give(supply->handoff, *ret_segment, ask->uid))
		return find_other(supply, ret_segment, ask->uid);
	return 0;
}

static int keep(struct supply *supply, const struct supply_ask *ask, const struct planner_plan *plan)
{
	for (size_t i = 0; i < plan->take_count; i++) {
		for (uint64_t n = 0; n < plan->takes[i].count; n++) {
			struct pool_segment *segment;
			int r = pick(supply, ask, plan->takes[i].segment_pages, &segment);
			if (r < 0)
				return r;
			pool_keep(segment, ask->keeper);
		}
	}
	return 0;
}

/* Reads it first, if the pool says so. -EINPROGRESS: that has begun. */
static int read_first(struct supply *supply, struct pool_segment *segment, void *keeper)
{
	if (segment->pool->config.verify == CONFIG_VERIFY_OFF || supply->reconcile->work.is_simulated)
		return 0;
	pool_keep(segment, NULL);
	int r = verify_segment(supply->verify, segment);
	if (r < 0)
		return r;
	pool_keep(segment, keeper);
	return -EINPROGRESS;
}

static int read_kept(struct supply *supply, const struct supply_ask *ask)
{
	struct pool_segment *segments[PLANNER_PARTS_MAX];
	size_t count = pool_list_kept(ask->pool, ask->keeper, segments, ARRAY_SIZE(segments));
	int result = 0;
	for (size_t i = 0; i < count; i++) {
		int r = read_first(supply, segments[i], ask->keeper);
		if (r < 0 && r != -EINPROGRESS)
			return r;
		result = r;
	}
	return result;
}

/* ---- what is zeroed now ---- */

static int unlink_one(struct pool *pool, struct pool_segment *segment)
{
	uint64_t id = segment->id;
	int r = pool_discard(segment);
	if (r < 0)
		log_error(
			"pool %s: segment %" PRIu64 " cannot be unlinked: %s", pool->name, id, strerror(-r));
	return r;
}

static struct pool_segment *find_victim(struct pool *pool, bool is_clean, uint64_t segment_pages)
{
	if (is_clean)
		return pool_find_clean(pool, segment_pages);
	POOL_FOR_EACH (pos, pool) {
		struct pool_class *class = CONTAINER_OF(pos, struct pool_class, link);
		if (class->pages != segment_pages)
			continue;
		LIST_FOR_EACH (at, &class->segments[SEGMENT_DIRTY]) {
			struct pool_segment *segment = CONTAINER_OF(at, struct pool_segment, link);
			if (is_victim(segment))
				return segment;
		}
	}
	return NULL;
}

static int unlink_victims(struct pool *pool, bool is_clean, const struct planner_take *victims, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		for (uint64_t n = 0; n < victims[i].count; n++) {
			struct pool_segment *segment = find_victim(pool, is_clean, victims[i].segment_pages);
			int r = segment ? unlink_one(pool, segment) : -EUCLEAN;
			if (r < 0)
				return r;
		}
	}
	return 0;
}

static void on_extended(struct pool_segment *segment, int error, void *user)
{
	struct growth *growth = user;
	struct supply *supply = growth->supply;
	void *keeper = growth->keeper;
	list_remove(&growth->link);
	free(growth);
	supply_forget(supply);
	if (!keeper)
		return;
	if (!segment) {
		supply->failed(keeper, supply->user);
		return;
	}
	int r = read_first(supply, segment, keeper);
	if (r == 0)
		pool_keep(segment, keeper);
}

static int extend(
	struct supply *supply, const struct supply_ask *ask, struct pool_segment *segment, uint64_t pages)
{
	struct growth *growth = calloc(1, sizeof *growth);
	if (!growth)
		return -ENOMEM;
	*growth = (struct growth){.supply = supply, .pool = ask->pool, .pages = pages, .keeper = ask->keeper};
	list_append(&supply->growths, &growth->link);
	int r = extend_start(
		supply->reconcile, ask->pool, segment, pages, on_extended, growth, &growth->extend);
	if (r == 0)
		return 0;
	list_remove(&growth->link);
	free(growth);
	return r;
}

static void tell(const struct pool *pool, const struct planner_plan *plan)
{
	uint64_t unlinked = 0;
	for (size_t i = 0; i < plan->dirty_count; i++)
		unlinked += plan->dirty[i].count;
	for (size_t i = 0; i < plan->clean_count; i++)
		unlinked += plan->clean[i].count;
	log_info("pool %s: %" PRIu64 " pages are zeroed for a request, %" PRIu64
		 " were clean; segments unlinked for it: %" PRIu64,
		pool->name, plan->zeroed_pages, plan->ready_pages, unlinked);
}

static int grow(struct supply *supply, const struct supply_ask *ask, const struct planner_plan *plan)
{
	struct pool *pool = ask->pool;
	struct pool_segment *base = NULL;
	supply_forget(supply);
	/* The one that grows is kept by now, so that it is not among those unlinked. */
	if (plan->kind == PLANNER_EXTEND && plan->take_count > 0)
		pool_list_kept(pool, ask->keeper, &base, 1);
	int r = unlink_victims(pool, false, plan->dirty, plan->dirty_count);
	if (r == 0)
		r = unlink_victims(pool, true, plan->clean, plan->clean_count);
	for (size_t i = 0; r == 0 && i < plan->grown_count; i++)
		r = extend(supply, ask, i == 0 ? base : NULL, plan->grown_pages);
	if (r == 0)
		tell(pool, plan);
	return r;
}

/* ---- all of it ---- */

int supply_take(struct supply *supply, const struct supply_ask *ask, const struct planner_plan *plan)
{
	int r = keep(supply, ask, plan);
	if (r == 0 && plan->grown_pages > 0)
		r = grow(supply, ask, plan);
	if (r == 0)
		r = read_kept(supply, ask);
	if (r < 0 && r != -EINPROGRESS) {
		supply_drop(supply, ask->pool, ask->keeper);
		return r;
	}
	return plan->grown_pages > 0 ? -EINPROGRESS : r;
}

bool supply_is_growing(const struct supply *supply, const void *keeper)
{
	LIST_FOR_EACH (pos, &supply->growths) {
		if (CONTAINER_OF(pos, struct growth, link)->keeper == keeper)
			return true;
	}
	return false;
}

/* What of each segment is given. False: it is not enough, or more than is needed. */
static bool share_out(struct pool_segment *const *segments, size_t count, uint64_t pages, size_t leases,
	uint64_t *ret_given)
{
	for (size_t i = 0; i < count; i++) {
		ret_given[i] = MIN(pages, segments[i]->pages);
		if (ret_given[i] == 0 || (leases > 1 && ret_given[i] < pages))
			return false;
		pages -= leases > 1 ? 0 : ret_given[i];
	}
	return leases > 1 ? count == leases : pages == 0;
}

int supply_collect(struct supply *supply, struct pool *pool, void *keeper, uint64_t pages, size_t leases,
	struct pool_segment *ret_segments[PLANNER_PARTS_MAX], uint64_t ret_given[PLANNER_PARTS_MAX],
	size_t *ret_count)
{
	size_t count = pool_list_kept(pool, keeper, ret_segments, PLANNER_PARTS_MAX);
	if (supply_is_growing(supply, keeper))
		return -EINPROGRESS;
	for (size_t i = 0; i < count; i++) {
		if (ret_segments[i]->is_busy)
			return -EINPROGRESS;
	}
	*ret_count = count;
	if (share_out(ret_segments, count, pages, leases, ret_given))
		return 0;
	supply_drop(supply, pool, keeper);
	return -EAGAIN;
}

void supply_drop(struct supply *supply, struct pool *pool, void *keeper)
{
	struct pool_segment *segments[PLANNER_PARTS_MAX];
	size_t count = pool_list_kept(pool, keeper, segments, ARRAY_SIZE(segments));
	for (size_t i = 0; i < count; i++)
		verify_drop(supply->verify, segments[i]);
	LIST_FOR_EACH_SAFE (pos, &supply->growths) {
		struct growth *growth = CONTAINER_OF(pos, struct growth, link);
		if (growth->keeper != keeper)
			continue;
		growth->keeper = NULL;
		extend_abandon(growth->extend);
	}
}

void supply_pass(struct supply *supply, struct pool *pool, void *from, void *to)
{
	struct pool_segment *segments[PLANNER_PARTS_MAX];
	size_t count = pool_list_kept(pool, from, segments, ARRAY_SIZE(segments));
	for (size_t i = 0; i < count; i++)
		pool_keep(segments[i], to);
	LIST_FOR_EACH (pos, &supply->growths) {
		struct growth *growth = CONTAINER_OF(pos, struct growth, link);
		if (growth->keeper == from)
			growth->keeper = to;
	}
}
