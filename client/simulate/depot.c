/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* depot.c - one pool of one host, on paper. */
#include "depot.h"

#include "util.h"

#define FADES_A_LIFE 16 /* steps of demand.c's, and looks of stock.c's */

/* ---- classes ---- */

static size_t find_place(const struct depot *depot, uint64_t segment_pages)
{
	size_t at = 0;

	while (at < depot->class_count && depot->classes[at].segment_pages < segment_pages)
		at++;
	return at;
}

/* There is one. */
static struct depot_class *get_class(const struct depot *depot, uint64_t segment_pages)
{
	return &depot->classes[find_place(depot, segment_pages)];
}

/* Also a new one. NULL: no memory. */
static struct depot_class *make_class(struct depot *depot, uint64_t segment_pages)
{
	size_t at = find_place(depot, segment_pages);

	if (at < depot->class_count && depot->classes[at].segment_pages == segment_pages)
		return &depot->classes[at];
	if (depot->class_count == depot->class_capacity) {
		size_t capacity = depot->class_capacity ? depot->class_capacity * 2 : 8;
		struct depot_class *classes = reallocarray(depot->classes, capacity, sizeof *classes);
		if (!classes)
			return NULL;
		depot->classes = classes;
		depot->class_capacity = capacity;
	}
	struct depot_class *class = &depot->classes[at];
	memmove(class + 1, class, (depot->class_count++ - at) * sizeof *class);
	*class = (struct depot_class){.segment_pages = segment_pages};
	return class;
}

static uint64_t count_all(const struct depot_class *class)
{
	return class->clean + class->dirty + class->filling + class->leased;
}

/* Those with neither segments nor a place in the stock. */
static void sweep(struct depot *depot)
{
	size_t kept = 0;

	for (size_t i = 0; i < depot->class_count; i++) {
		if (depot->classes[i].want > 0 || count_all(&depot->classes[i]) > 0)
			depot->classes[kept++] = depot->classes[i];
	}
	depot->class_count = kept;
}

/* What the stock is to be from now on. */
static int set_wants(struct depot *depot)
{
	struct demand_class wanted[WANTS_MAX];
	size_t count = wants_list(depot->rules->pool, depot->rules->pool->pages, depot->demand, wanted);

	for (size_t i = 0; i < depot->class_count; i++)
		depot->classes[i].want = 0;
	for (size_t i = 0; i < count; i++) {
		struct depot_class *class = make_class(depot, wanted[i].segment_pages);
		if (!class)
			return -ENOMEM;
		class->want = wanted[i].count;
	}
	sweep(depot);
	return 0;
}

static int begin_learning(struct depot *depot, uint64_t now_ns)
{
	struct demand_rules rules;

	depot->demand = calloc(1, sizeof *depot->demand);
	if (!depot->demand)
		return -ENOMEM;
	wants_get_rules(depot->rules->pool, depot->rules->pool->pages, &rules);
	demand_init(depot->demand, &rules, now_ns);
	return 0;
}

int depot_init(struct depot *depot, const struct depot_rules *rules, uint64_t now_ns)
{
	*depot = (struct depot){
		.rules = rules, .free_pages = rules->pool->max_pages, .job_end_ns = DEPOT_NEVER};
	if ((rules->pool->is_learning && begin_learning(depot, now_ns) < 0) || set_wants(depot) < 0) {
		depot_deinit(depot);
		return -ENOMEM;
	}
	for (size_t i = 0; i < depot->class_count; i++) {
		struct depot_class *class = &depot->classes[i];
		class->clean = class->want;
		depot->length_pages += class->clean * class->segment_pages;
	}
	depot->held_pages = depot->length_pages;
	depot->free_pages -= depot->length_pages;
	return 0;
}

void depot_deinit(struct depot *depot)
{
	free(depot->classes);
	free(depot->torn);
	free(depot->demand);
}

/* ---- what there is ---- */

static bool is_busy(const struct depot *depot, const struct depot_class *class)
{
	return depot->job == DEPOT_CLEARS && depot->job_pages == class->segment_pages;
}

/* Dirty, whole, and nobody works on them. */
static uint64_t count_whole(const struct depot *depot, const struct depot_class *class)
{
	return class->dirty - class->torn - is_busy(depot, class);
}

void depot_get_input(const struct depot *depot, struct planner_class classes[PLANNER_CLASSES_MAX],
	struct planner_input *ret_input)
{
	size_t count = 0;

	for (size_t i = 0; i < depot->class_count && count < PLANNER_CLASSES_MAX; i++) {
		const struct depot_class *class = &depot->classes[i];
		if (class->clean + class->dirty + class->filling == 0)
			continue;
		classes[count++] = (struct planner_class){
			.segment_pages = class->segment_pages,
			.clean = class->clean,
			.dirty = count_whole(depot, class),
			.coming = class->dirty + class->filling,
		};
	}
	uint64_t most = depot->rules->pool->max_pages;
	*ret_input = (struct planner_input){
		.classes = classes,
		.class_count = count,
		.usable_pages = depot->free_pages,
		.room_pages = most - MIN(most, depot->held_pages),
		.may_zero = depot->rules->clear->is_enabled,
	};
}

uint64_t depot_get_most_pages(const struct depot *depot)
{
	uint64_t largest = depot->class_count ? depot->classes[depot->class_count - 1].segment_pages : 0;
	return MAX(depot->rules->pool->max_pages, largest);
}

uint64_t depot_get_clean_pages(const struct depot *depot)
{
	uint64_t pages = 0;

	for (size_t i = 0; i < depot->class_count; i++)
		pages += depot->classes[i].clean * depot->classes[i].segment_pages;
	return pages;
}

uint64_t depot_get_duration(const struct depot_rules *rules, uint64_t pages, uint64_t bytes_per_s)
{
	double seconds = (double)pages * (double)rules->pool->page_size / (double)bytes_per_s;
	return (uint64_t)(seconds * (double)NS_PER_S + 0.5);
}

/* ---- taking ---- */

/* Unlinked: the kernel has the pages. */
static void unlink_segments(struct depot *depot, uint64_t segment_pages, uint64_t count, uint64_t holes)
{
	depot->length_pages -= count * segment_pages;
	depot->held_pages -= count * segment_pages;
	depot->free_pages += count * segment_pages - holes;
}

static void unlink_victims(struct depot *depot, const struct planner_plan *plan)
{
	for (size_t i = 0; i < plan->dirty_count; i++) {
		get_class(depot, plan->dirty[i].segment_pages)->dirty -= plan->dirty[i].count;
		unlink_segments(depot, plan->dirty[i].segment_pages, plan->dirty[i].count, 0);
	}
	for (size_t i = 0; i < plan->clean_count; i++) {
		get_class(depot, plan->clean[i].segment_pages)->clean -= plan->clean[i].count;
		unlink_segments(depot, plan->clean[i].segment_pages, plan->clean[i].count, 0);
	}
}

/* What the VM gets, in order; -ENOMEM. */
static int fill_grant(struct depot_grant *grant, const struct planner_plan *plan)
{
	bool has_new = plan->grown_pages > 0;
	size_t takes = plan->kind == PLANNER_EXTEND ? 0 : plan->take_count;

	*grant = (struct depot_grant){.count = takes + has_new};
	if (grant->count > 1 && !(grant->more = calloc(grant->count, sizeof *grant->more)))
		return -ENOMEM;
	struct depot_piece *pieces = grant->more ? grant->more : &grant->one;
	for (size_t i = 0; i < takes; i++)
		pieces[i] = (struct depot_piece){plan->takes[i].segment_pages, plan->takes[i].count};
	if (has_new)
		pieces[takes] = (struct depot_piece){plan->grown_pages, 1};
	return 0;
}

static const struct depot_piece *get_pieces(const struct depot_grant *grant)
{
	return grant->more ? grant->more : &grant->one;
}

static uint64_t count_pages(const struct depot_grant *grant)
{
	uint64_t pages = 0;

	for (size_t i = 0; i < grant->count; i++)
		pages += get_pieces(grant)[i].segment_pages * get_pieces(grant)[i].count;
	return pages;
}

/* The kernel zeroes for one start after the other, and workers stand back meanwhile. */
static uint64_t zero_now(struct depot *depot, uint64_t pages, uint64_t now_ns)
{
	uint64_t duration = depot_get_duration(depot->rules, pages, depot->rules->rates.zero);

	depot->urgent_until_ns = MAX(depot->urgent_until_ns, now_ns) + duration;
	if (depot->job != DEPOT_IDLE)
		depot->job_end_ns += duration;
	return depot->urgent_until_ns;
}

/* The tail goes back to the kernel; the file keeps its length. */
static void trim(struct depot *depot, struct depot_grant *grant, uint64_t pages)
{
	grant->tail_pages = count_pages(grant) - pages;
	depot->free_pages += grant->tail_pages;
	depot->held_pages -= grant->tail_pages;
}

int depot_take(struct depot *depot, const struct planner_plan *plan, const struct planner_request *request,
	uint64_t now_ns, struct depot_grant *ret_grant, uint64_t *ret_ready_ns)
{
	/* First what can fail: a class for what is new. */
	if (plan->grown_pages > 0 && !make_class(depot, plan->grown_pages))
		return -ENOMEM;
	if (fill_grant(ret_grant, plan) < 0)
		return -ENOMEM;
	for (size_t i = 0; i < plan->take_count; i++) {
		struct depot_class *class = get_class(depot, plan->takes[i].segment_pages);
		class->clean -= plan->takes[i].count;
		if (plan->kind != PLANNER_EXTEND)
			class->leased += plan->takes[i].count;
	}
	unlink_victims(depot, plan);
	*ret_ready_ns = now_ns;
	if (plan->grown_pages > 0) {
		get_class(depot, plan->grown_pages)->leased++;
		depot->free_pages -= plan->zeroed_pages;
		depot->length_pages += plan->zeroed_pages;
		depot->held_pages += plan->zeroed_pages;
		*ret_ready_ns = zero_now(depot, plan->zeroed_pages, now_ns);
	}
	trim(depot, ret_grant, request->pages);
	depot->lent_pages += request->pages;
	if (depot->demand && request->parts_max == 1) {
		demand_take(depot->demand, now_ns, request->pages);
		depot->is_demand_new = true;
		ret_grant->demanded = request->pages;
	}
	sweep(depot);
	return 0;
}

/* ---- giving back ---- */

static int add_torn(struct depot *depot, uint64_t segment_pages, uint64_t holes)
{
	if (depot->torn_count == depot->torn_capacity) {
		size_t capacity = depot->torn_capacity ? depot->torn_capacity * 2 : 4;
		struct depot_torn *torn = reallocarray(depot->torn, capacity, sizeof *torn);
		if (!torn)
			return -ENOMEM;
		depot->torn = torn;
		depot->torn_capacity = capacity;
	}
	depot->torn[depot->torn_count++] = (struct depot_torn){segment_pages, holes};
	return 0;
}

int depot_give(struct depot *depot, struct depot_grant *grant, uint64_t now_ns)
{
	bool may_reuse = depot->rules->pool->reuse != CONFIG_REUSE_NEVER;

	if (grant->tail_pages > 0 && may_reuse &&
		add_torn(depot, get_pieces(grant)[grant->count - 1].segment_pages, grant->tail_pages) < 0)
		return -ENOMEM;
	if (grant->demanded > 0) {
		demand_give(depot->demand, now_ns, grant->demanded);
		depot->is_demand_new = true;
	}
	/* A leased segment counts as what was given, one that came back as its length. */
	depot->held_pages += grant->tail_pages;
	depot->lent_pages -= count_pages(grant) - grant->tail_pages;
	for (size_t i = 0; i < grant->count; i++) {
		struct depot_piece piece = get_pieces(grant)[i];
		struct depot_class *class = get_class(depot, piece.segment_pages);
		bool is_last = i + 1 == grant->count;
		class->leased -= piece.count;
		if (may_reuse) {
			class->dirty += piece.count;
			class->torn += is_last && grant->tail_pages > 0;
		} else {
			unlink_segments(
				depot, piece.segment_pages, piece.count, is_last ? grant->tail_pages : 0);
		}
	}
	free(grant->more);
	*grant = (struct depot_grant){0};
	return 0;
}

/* Those that may come in several pieces teach nothing: any mixture serves them. */
void depot_note(struct depot *depot, uint64_t now_ns, uint64_t pages, enum demand_served how)
{
	if (!depot->demand)
		return;
	demand_ask(depot->demand, now_ns, pages, how);
	depot->is_demand_new = true;
}

/* ---- work ---- */

void depot_finish_job(struct depot *depot)
{
	struct depot_class *class = get_class(depot, depot->job_pages);

	if (depot->job == DEPOT_CLEARS)
		class->dirty--;
	else
		class->filling--;
	class->clean++;
	depot->job = DEPOT_IDLE;
	depot->job_end_ns = DEPOT_NEVER;
}

static void begin_job(struct depot *depot, uint64_t now_ns, uint64_t clear_ns, uint64_t fill_ns)
{
	depot->job_end_ns = MAX(now_ns, depot->urgent_until_ns) + clear_ns + fill_ns;
}

/* What somebody waits for is not held to the limit. */
static uint64_t get_rate(const struct depot *depot, uint64_t rate, bool is_wanted)
{
	uint64_t limit = depot->rules->work_limit;

	return is_wanted || limit == 0 ? rate : MIN(rate, limit);
}

static void begin_fill(struct depot *depot, struct depot_class *class, uint64_t now_ns, bool is_wanted)
{
	uint64_t rate = get_rate(depot, depot->rules->rates.fill, is_wanted);

	depot->job = DEPOT_FILLS;
	depot->job_pages = class->segment_pages;
	begin_job(depot, now_ns, 0, depot_get_duration(depot->rules, class->segment_pages, rate));
}

/* Takes a torn one of the class from the list. */
static uint64_t take_torn(struct depot *depot, struct depot_class *class)
{
	for (size_t i = 0; i < depot->torn_count; i++) {
		if (depot->torn[i].segment_pages != class->segment_pages)
			continue;
		uint64_t holes = depot->torn[i].holes;
		memmove(&depot->torn[i], &depot->torn[i + 1],
			(--depot->torn_count - i) * sizeof *depot->torn);
		class->torn--;
		return holes;
	}
	return 0;
}

/* False: its holes cannot be filled now, and as free pages it is worth more. */
static bool begin_clear(struct depot *depot, struct depot_class *class, uint64_t now_ns, bool is_wanted)
{
	const struct depot_rules *rules = depot->rules;
	uint64_t holes = count_whole(depot, class) > 0 ? 0 : take_torn(depot, class);

	if (holes > depot->free_pages) {
		class->dirty--;
		unlink_segments(depot, class->segment_pages, 1, holes);
		return false;
	}
	depot->free_pages -= holes;
	depot->job = DEPOT_CLEARS;
	depot->job_pages = class->segment_pages;
	begin_job(depot, now_ns,
		depot_get_duration(
			rules, class->segment_pages - holes, get_rate(depot, rules->rates.clear, is_wanted)),
		depot_get_duration(rules, holes, get_rate(depot, rules->rates.fill, is_wanted)));
	return true;
}

/* The smallest that serves who waits longest, to be cleared rather than filled; -1: none would. */
static int find_wanted(const struct depot *depot, uint64_t waiting_pages, bool *ret_clears)
{
	for (int clears = 1; waiting_pages > 0 && clears >= 0; clears--) {
		for (size_t i = find_place(depot, waiting_pages); i < depot->class_count; i++) {
			const struct depot_class *class = &depot->classes[i];
			*ret_clears = clears;
			if ((clears ? class->dirty : class->filling) > 0)
				return (int)i;
		}
	}
	return -1;
}

static int find_largest(const struct depot *depot, bool *ret_clears)
{
	for (int clears = 1; clears >= 0; clears--) {
		for (size_t i = depot->class_count; i-- > 0;) {
			const struct depot_class *class = &depot->classes[i];
			*ret_clears = clears;
			if ((clears ? class->dirty : class->filling) > 0)
				return (int)i;
		}
	}
	return -1;
}

/* What somebody waits for first; then clearing before filling, large before small. 1: pages came free. */
static int begin_next(struct depot *depot, uint64_t now_ns, uint64_t waiting_pages)
{
	int changed = 0;

	while (depot->job == DEPOT_IDLE && depot->rules->clear->is_enabled) {
		bool clears;
		int at = find_wanted(depot, waiting_pages, &clears);
		bool is_wanted = at >= 0;
		if (!is_wanted)
			at = find_largest(depot, &clears);
		if (at < 0)
			break;
		if (!clears)
			begin_fill(depot, &depot->classes[at], now_ns, is_wanted);
		else if (!begin_clear(depot, &depot->classes[at], now_ns, is_wanted))
			changed = 1;
	}
	return changed;
}

/* ---- the stock ---- */

static void make_plan(
	struct depot *depot, uint64_t waiting, uint64_t waiting_pages, struct policy_plan *ret_plan)
{
	struct policy_class classes[PLANNER_CLASSES_MAX];
	uint64_t filling = 0, slots = depot->rules->slots + (waiting > 0);
	size_t count = 0;

	for (size_t i = 0; i < depot->class_count && count < ARRAY_SIZE(classes); i++) {
		const struct depot_class *class = &depot->classes[i];
		filling += class->filling;
		if (class->want == 0 && count_all(class) == class->leased)
			continue;
		classes[count++] = (struct policy_class){
			.segment_pages = class->segment_pages,
			.want = class->want,
			.clean = class->clean,
			.leased = class->leased,
			.dirty = class->dirty,
			.filling = class->filling,
		};
	}
	const struct policy_input input = {
		.target_pages = depot->rules->pool->pages,
		.lent_pages = depot->lent_pages,
		.is_gentle = depot->rules->pool->is_learning,
		.reshape_percent = depot->rules->clear->reshape_percent,
		.low_percent = depot->rules->clear->low_percent,
		.high_percent = depot->rules->clear->high_percent,
		.was_refilling = depot->is_refilling,
		.classes = classes,
		.class_count = count,
		.clean_pages = depot_get_clean_pages(depot),
		.held_pages = depot->length_pages,
		.kernel_free = depot->free_pages,
		.waiting_pages = waiting > 0 ? waiting_pages : 0,
		.free_slots = slots > filling ? slots - filling : 0,
	};
	policy_plan(&input, ret_plan);
	depot->is_refilling = ret_plan->is_refilling;
}

/* Dirty segments that nobody works on, those without holes last. */
static uint64_t drop_dirty(struct depot *depot, uint64_t segment_pages, uint64_t count)
{
	struct depot_class *class = get_class(depot, segment_pages);
	uint64_t dropped = MIN(count, class->dirty - is_busy(depot, class));

	for (uint64_t i = 0; i < dropped; i++) {
		uint64_t holes = class->torn > 0 ? take_torn(depot, class) : 0;
		class->dirty--;
		unlink_segments(depot, segment_pages, 1, holes);
	}
	return dropped;
}

/* Before they are cleared in vain. 1: pages came free. */
static int apply_drops(struct depot *depot, const struct policy_plan *plan)
{
	int changed = 0;

	for (size_t i = 0; i < plan->action_count; i++) {
		const struct policy_action *action = &plan->actions[i];
		if (action->kind == POLICY_DROP)
			changed |= drop_dirty(depot, action->segment_pages, action->count) > 0;
	}
	return changed;
}

/* Also of lengths that the stock does not have: what is left of the pages, as one segment. */
static int create(struct depot *depot, uint64_t segment_pages, uint64_t wanted)
{
	/* Holes that are being filled since the plan was made have taken their part. */
	uint64_t count = MIN(wanted, depot->free_pages / segment_pages);
	uint64_t pages = count * segment_pages;
	struct depot_class *class = make_class(depot, segment_pages);

	if (!class)
		return -ENOMEM;
	class->filling += count;
	depot->free_pages -= pages;
	depot->length_pages += pages;
	depot->held_pages += pages;
	return 0;
}

static int cut(struct depot *depot, uint64_t segment_pages, uint64_t pages)
{
	struct depot_class *rest = make_class(depot, segment_pages - pages);

	if (!rest)
		return -ENOMEM;
	rest->clean++;
	get_class(depot, segment_pages)->clean--;
	depot->length_pages -= pages;
	depot->held_pages -= pages;
	depot->free_pages += pages;
	return 1;
}

static int apply_action(struct depot *depot, const struct policy_action *action)
{
	switch (action->kind) {
	case POLICY_CREATE:
		return create(depot, action->segment_pages, action->count);
	case POLICY_DISCARD:
		get_class(depot, action->segment_pages)->clean -= action->count;
		unlink_segments(depot, action->segment_pages, action->count, 0);
		return 1;
	case POLICY_CUT:
		return cut(depot, action->segment_pages, action->count);
	case POLICY_LOWER: /* nobody resizes what is simulated */
	case POLICY_RAISE: /* may_raise is not set: the kernel has what the pool may hold */
	case POLICY_DROP:  /* apply_drops() */
		break;
	}
	return 0;
}

/* 1: pages came free; 0: not; or -ENOMEM. */
static int apply(struct depot *depot, const struct policy_plan *plan)
{
	int changed = 0;

	for (size_t i = 0; i < plan->action_count; i++) {
		int r = apply_action(depot, &plan->actions[i]);
		if (r < 0)
			return r;
		changed |= r;
	}
	return changed;
}

/*
 * hpzd does it at every look, but nothing comes of it while nothing happens and nothing fades, and of all
 * that is done here it takes longest by far. -ENOMEM.
 */
static int follow_demand(struct depot *depot, uint64_t now_ns)
{
	if (!depot->demand)
		return 0;
	uint64_t step_ns = depot->demand->rules.half_life_ns / FADES_A_LIFE;
	if (!depot->is_demand_new && now_ns - depot->demand_seen_ns < step_ns)
		return 0;
	depot->is_demand_new = false;
	depot->demand_seen_ns = now_ns;
	return demand_plan(depot->demand, now_ns) ? set_wants(depot) : 0;
}

int depot_reconcile(struct depot *depot, uint64_t now_ns, uint64_t waiting, uint64_t waiting_pages)
{
	struct policy_plan plan;

	if (follow_demand(depot, now_ns) < 0)
		return -ENOMEM;
	make_plan(depot, waiting, waiting_pages, &plan);
	if (!depot->rules->clear->is_enabled)
		return 0;
	int changed = apply_drops(depot, &plan);
	changed |= begin_next(depot, now_ns, waiting_pages);
	int r = apply(depot, &plan);
	if (r < 0)
		return r;
	changed |= r | begin_next(depot, now_ns, waiting_pages);
	sweep(depot);
	return changed;
}
