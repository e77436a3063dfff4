/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* policy.c - who gets what, when a pool grows, how urgent work is. Pure. */
#include "policy.h"
#include "util.h"

static uint64_t subtract(uint64_t from, uint64_t what)
{
	return from > what ? from - what : 0;
}

static uint64_t count_all(const struct policy_class *class)
{
	return class->clean + class->leased + class->dirty + class->filling;
}

uint64_t policy_get_usable(const struct policy_input *input)
{
	uint64_t usable = subtract(input->kernel_free, input->kernel_resv);
	usable = subtract(usable, input->holes_owed_pages);
	usable = subtract(usable, input->filling_todo_pages);
	return subtract(usable, input->mending_todo_pages);
}

static void add_action(
	struct policy_plan *plan, enum policy_kind kind, uint64_t segment_pages, uint64_t count)
{
	if (count > 0 && plan->action_count < POLICY_ACTIONS_MAX)
		plan->actions[plan->action_count++] = (struct policy_action){kind, segment_pages, count};
}

static uint64_t count_stock(const struct policy_input *input)
{
	uint64_t pages = 0;
	for (size_t i = 0; i < input->class_count; i++)
		pages += input->classes[i].want * input->classes[i].segment_pages;
	return pages;
}

/* Pages that the plan gives back to the kernel. */
static uint64_t count_freed(const struct policy_plan *plan)
{
	uint64_t pages = 0;
	for (size_t i = 0; i < plan->action_count; i++) {
		const struct policy_action *action = &plan->actions[i];
		switch (action->kind) {
		case POLICY_DISCARD:
		case POLICY_DROP:
			pages += action->segment_pages * action->count;
			break;
		case POLICY_CUT:
			pages += action->count;
			break;
		case POLICY_CREATE:
		case POLICY_RAISE:
		case POLICY_LOWER:
			break;
		}
	}
	return pages;
}

/*
 * What the stock may still grow by. Segments of lengths that are not in it (extended ones that are lent) take
 * the place of others: together no more than the stock is kept, and what has no place is not missing.
 */
static uint64_t count_place(const struct policy_input *input, const struct policy_plan *plan)
{
	return subtract(count_stock(input), subtract(input->held_pages, count_freed(plan)));
}

/* ---- what nobody wants: the stock was changed, or learned, or the pool is being drained ---- */

static uint64_t count_excess(const struct policy_class *class)
{
	return subtract(count_all(class), class->want);
}

static uint64_t count_droppable(const struct policy_class *class)
{
	return MIN(count_excess(class), class->dirty);
}

/* What is on its way or in somebody's hands is not counted as there when draining. */
static void discard_all(const struct policy_input *input, struct policy_plan *plan)
{
	for (size_t i = 0; i < input->class_count; i++) {
		const struct policy_class *class = &input->classes[i];
		uint64_t dropped = input->is_draining ? 0 : count_droppable(class);
		uint64_t excess = input->is_draining ? class->clean : count_excess(class) - dropped;
		if (input->waiting_pages == 0)
			add_action(plan, POLICY_DROP, class->segment_pages, dropped);
		add_action(
			plan, POLICY_DISCARD, class->segment_pages, MIN(excess, class->clean - class->kept));
	}
}

static struct policy_action *find_action(
	struct policy_plan *plan, enum policy_kind kind, uint64_t segment_pages)
{
	for (size_t i = 0; i < plan->action_count; i++) {
		if (plan->actions[i].kind == kind && plan->actions[i].segment_pages == segment_pages)
			return &plan->actions[i];
	}
	return NULL;
}

/*
 * What may be held: the target, and of a pool that lacks pages no more than leaves those free that are about
 * to go. Once they go (nr_hugepages changes), what is free says nothing about what there was.
 */
static uint64_t count_holdable(const struct policy_input *input, const struct policy_plan *plan)
{
	if (input->leaving_pages == 0 || input->is_raising)
		return input->target_pages;
	return MIN(
		input->target_pages, subtract(input->held_pages + plan->usable_pages, input->leaving_pages));
}

/*
 * Of a pool that was made smaller: what is held beyond the target is to go, stock or not. What is lent stays,
 * so clean segments go for it, the small ones first.
 */
static void discard_beyond(const struct policy_input *input, struct policy_plan *plan)
{
	uint64_t beyond =
		subtract(subtract(input->held_pages, count_freed(plan)), count_holdable(input, plan));
	for (size_t i = 0; i < input->class_count && beyond > 0; i++) {
		const struct policy_class *class = &input->classes[i];
		struct policy_action *before = find_action(plan, POLICY_DISCARD, class->segment_pages);
		if (class->segment_pages == 0 || find_action(plan, POLICY_CUT, class->segment_pages))
			continue;
		uint64_t free = class->clean - class->kept - (before ? before->count : 0);
		uint64_t count = MIN(free, beyond / class->segment_pages);
		beyond -= count * class->segment_pages;
		if (before)
			before->count += count;
		else
			add_action(plan, POLICY_DISCARD, class->segment_pages, count);
	}
}

/* So many pages of what is missing could be made of `pages` free ones, large segments first. */
static uint64_t count_makeable(const struct policy_input *input, uint64_t pages)
{
	uint64_t left = pages;
	for (size_t i = input->class_count; i-- > 0;) {
		const struct policy_class *class = &input->classes[i];
		uint64_t missing = subtract(class->want, count_all(class));
		if (missing > 0)
			left -= MIN(missing, left / class->segment_pages) * class->segment_pages;
	}
	return pages - left;
}

static uint64_t count_droppable_pages(const struct policy_input *input)
{
	uint64_t pages = 0;
	for (size_t i = 0; i < input->class_count; i++)
		pages += count_droppable(&input->classes[i]) * input->classes[i].segment_pages;
	return pages;
}

/* At least so many pages of dirty segments that are of no use as they are. */
static void drop_some(const struct policy_input *input, uint64_t needed, struct policy_plan *plan)
{
	for (size_t i = 0; i < input->class_count && needed > 0; i++) {
		const struct policy_class *class = &input->classes[i];
		uint64_t each = class->segment_pages;
		if (count_droppable(class) == 0 || each == 0)
			continue;
		uint64_t count = MIN(count_droppable(class), (needed + each - 1) / each);
		add_action(plan, POLICY_DROP, each, count);
		needed = subtract(needed, count * each);
	}
}

static uint64_t count_spare(const struct policy_class *class)
{
	/* Dirty ones go first. */
	return MIN(count_excess(class) - count_droppable(class), class->clean - class->kept);
}

static uint64_t count_spare_pages(const struct policy_input *input)
{
	uint64_t pages = 0;
	for (size_t i = 0; i < input->class_count; i++)
		pages += count_spare(&input->classes[i]) * input->classes[i].segment_pages;
	return pages;
}

/*
 * So many pages of clean segments that the stock does not want, the small ones first: a large one serves
 * more. Of the last only as much as is needed: what remains goes on to serve.
 */
static void discard_some(const struct policy_input *input, uint64_t needed, struct policy_plan *plan)
{
	const struct policy_class *larger = NULL;
	for (size_t i = 0; i < input->class_count && needed > 0; i++) {
		const struct policy_class *class = &input->classes[i];
		uint64_t spare = count_spare(class), each = class->segment_pages;
		if (spare == 0 || each == 0)
			continue;
		uint64_t count = MIN(spare, needed / each);
		add_action(plan, POLICY_DISCARD, each, count);
		needed -= count * each;
		if (!larger && count < spare)
			larger = class;
	}
	if (larger && needed > 0)
		add_action(plan, POLICY_CUT, larger->segment_pages, MIN(needed, larger->segment_pages - 1));
}

/* Pages of the stock that are not clean although they could be: a share of what could be, and no more, is
 * rebuilt. */
static uint64_t count_allowed(const struct policy_input *input, uint64_t free)
{
	uint64_t out = free;
	for (size_t i = 0; i < input->class_count; i++)
		out += (input->classes[i].filling + input->classes[i].dirty) *
		       input->classes[i].segment_pages;
	uint64_t could_be = input->clean_pages + out;
	return subtract(
		could_be / 100 * input->reshape_percent + could_be % 100 * input->reshape_percent / 100, out);
}

static void reshape(const struct policy_input *input, struct policy_plan *plan)
{
	uint64_t surplus = subtract(input->held_pages, count_stock(input));
	if (input->waiting_pages > 0)
		return;
	if (surplus > 0) { /* the target was lowered, or holders have lengths of their own */
		drop_some(input, surplus, plan);
		discard_some(input, subtract(surplus, count_freed(plan)), plan);
		return;
	}
	uint64_t free = MIN(plan->usable_pages, count_place(input, plan));
	uint64_t allowed = MIN(count_allowed(input, free), count_spare_pages(input));
	uint64_t droppable = count_droppable_pages(input);
	drop_some(input, subtract(count_makeable(input, free + droppable), free), plan);
	free += count_freed(plan);
	discard_some(input, subtract(count_makeable(input, free + allowed), free), plan);
}

/* ---- what is missing ---- */

struct fills {
	uint64_t usable;
	uint64_t place, wanted; /* of the stock: for what is made now, and for what is missing */
	size_t slots;
};

static void plan_class(const struct policy_class *class, struct fills *fills, struct policy_plan *plan)
{
	uint64_t missing = subtract(class->want, count_all(class));
	if (missing == 0) /* also: a file that its holder cut to nothing */
		return;
	/* A large one that the kernel has no pages for takes no place away from a small one. */
	uint64_t fits = MIN(fills->usable, fills->place) / class->segment_pages;
	uint64_t count = MIN(missing, fits);
	fills->usable -= count * class->segment_pages;
	fills->place -= count * class->segment_pages;
	/* What has no slot yet keeps its pages: the next look will find them. */
	uint64_t now = MIN(count, fills->slots);
	add_action(plan, POLICY_CREATE, class->segment_pages, now);
	fills->slots -= (size_t)now;
	missing = MIN(missing, fills->wanted / class->segment_pages);
	fills->wanted -= missing * class->segment_pages;
	plan->missing_pages += missing * class->segment_pages;
	plan->short_pages += subtract(missing, count) * class->segment_pages;
}

/* The smallest that serves whoever waits longest; class_count: none that is missing does. */
static size_t find_awaited(const struct policy_input *input)
{
	for (size_t i = 0; input->waiting_pages > 0 && i < input->class_count; i++) {
		const struct policy_class *class = &input->classes[i];
		if (class->segment_pages >= input->waiting_pages && class->want > count_all(class))
			return i;
	}
	return input->class_count;
}

/*
 * Pages of which nothing that is missing can be made, and will not be: as one segment of whatever length they
 * serve better than free. Only when all else is done.
 */
static void plan_filler(const struct policy_input *input, struct fills *fills, struct policy_plan *plan)
{
	uint64_t pages = MIN(fills->usable, fills->place);
	bool is_quiet = plan->action_count == 0 && !input->is_raising && fills->slots > 0 &&
			!(input->may_raise && plan->short_pages > fills->usable);
	for (size_t i = 0; i < input->class_count; i++)
		is_quiet = is_quiet && input->classes[i].filling + input->classes[i].dirty == 0;
	if (!is_quiet || pages == 0 || input->waiting_pages > 0)
		return;
	add_action(plan, POLICY_CREATE, pages, 1);
	plan->missing_pages += pages;
	fills->usable -= pages;
}

/*
 * Missing segments as far as the kernel has pages: first what is waited for, then large ones first; a large
 * one it lacks does not stop a small.
 */
static void plan_fills(const struct policy_input *input, struct policy_plan *plan)
{
	uint64_t place = count_place(input, plan);
	uint64_t usable = subtract(plan->usable_pages, input->leaving_pages);
	struct fills fills = {usable, place, place, input->free_slots};
	size_t awaited = find_awaited(input);
	if (awaited < input->class_count)
		plan_class(&input->classes[awaited], &fills, plan);
	for (size_t i = input->class_count; i-- > 0;) {
		if (i != awaited)
			plan_class(&input->classes[i], &fills, plan);
	}
	if (input->is_gentle)
		plan_filler(input, &fills, plan);
	plan->place_pages = fills.place;
	/* What is left of usable would serve a part of what is short, and what is given back just now. */
	uint64_t lacking = subtract(plan->short_pages, fills.usable + count_freed(plan));
	/* And nothing that is there, clean or not, nor what comes serves who waits. */
	if (awaited == input->class_count && input->lacking_pages <= input->room_pages)
		plan->awaited_pages = input->lacking_pages;
	lacking += plan->awaited_pages;
	if (lacking > 0 && input->may_raise && !input->is_raising)
		add_action(plan, POLICY_RAISE, 1, lacking);
	/* What a missing segment or somebody who waits needs is not given away: only when nothing is to be
	 * done. */
	if (plan->action_count == 0 && plan->short_pages == 0 && input->waiting_pages == 0 &&
		input->may_lower && !input->is_raising)
		add_action(plan, POLICY_LOWER, 1, MIN(input->give_back_pages, fills.usable));
}

/*
 * Between the watermarks it stays as it was: a stock that hovers about one of them would change class with
 * every segment.
 */
static bool is_refilling(const struct policy_input *input, const struct policy_plan *plan)
{
	bool is_set = input->low_percent > 0 || input->high_percent > 0;
	unsigned low = is_set ? input->low_percent : POLICY_LOW_PERCENT;
	unsigned high = is_set ? input->high_percent : POLICY_HIGH_PERCENT;
	unsigned mark = input->was_refilling ? high : low;
	uint64_t target = subtract(input->target_pages, input->lent_pages + plan->short_pages);
	/* A target of 2^64 bytes is 2^43 pages: no overflow. */
	return input->clean_pages * 100 < target * mark;
}

static enum policy_level pick_level(const struct policy_input *input, bool refilling)
{
	if (input->waiting_pages > 0)
		return POLICY_URGENT;
	return refilling ? POLICY_REFILL : POLICY_IDLE;
}

void policy_plan(const struct policy_input *input, struct policy_plan *ret_plan)
{
	*ret_plan = (struct policy_plan){.usable_pages = policy_get_usable(input)};
	if (input->is_gentle && !input->is_draining)
		reshape(input, ret_plan);
	else
		discard_all(input, ret_plan);
	if ((input->is_shrunk || input->leaving_pages > 0) && !input->is_draining)
		discard_beyond(input, ret_plan);
	if (!input->is_draining)
		plan_fills(input, ret_plan);
	ret_plan->is_refilling = is_refilling(input, ret_plan);
	ret_plan->level = pick_level(input, ret_plan->is_refilling);
}

uint64_t policy_pick_page_size(const uint64_t *sizes, size_t count, uint64_t bytes)
{
	for (size_t i = count; i-- > 1;) {
		uint64_t rest = bytes % sizes[i];
		uint64_t waste = rest ? sizes[i] - rest : 0;
		if (waste <= bytes / 8)
			return sizes[i];
	}
	return sizes[0];
}

uint64_t policy_get_retry_ms(unsigned attempt)
{
	/*
	 * Transient references are gone in microseconds, io_uring's and AF_XDP's up to 55 ms after the
	 * process (6.18); what lasts longer is somebody who holds on.
	 */
	static const uint16_t ladder[] = {1, 5, 20, 60, 200, 500, 1000, 2000, 5000, 10000};
	size_t last = sizeof ladder / sizeof *ladder - 1;
	return ladder[attempt < last ? attempt : last];
}

uint64_t policy_get_pressure_step(uint64_t pages)
{
	return MAX(pages / 16, 1u);
}

enum policy_pressure_step policy_judge_pressure(
	struct policy_pressure *pressure, double percent, bool has_given, uint64_t now_ns)
{
	uint64_t quiet_ns = (POLICY_PRESSURE_QUIET_S * NS_PER_S) << pressure->doublings;
	if (percent > POLICY_PRESSURE_HIGH_PERCENT) {
		/* What we took back just now was not ours to take. */
		if (pressure->taken_ns > 0 && now_ns - pressure->taken_ns < quiet_ns &&
			pressure->doublings < 5)
			pressure->doublings++;
		pressure->taken_ns = pressure->quiet_ns = 0;
		pressure->step_ns = now_ns;
		return POLICY_PRESSURE_GIVE;
	}
	if (percent >= POLICY_PRESSURE_LOW_PERCENT) {
		pressure->quiet_ns = 0;
		return POLICY_PRESSURE_KEEP;
	}
	if (pressure->quiet_ns == 0)
		pressure->quiet_ns = now_ns;
	if (!has_given) {
		if (now_ns - MAX(pressure->quiet_ns, pressure->taken_ns) >= quiet_ns)
			pressure->doublings = 0;
		return POLICY_PRESSURE_KEEP;
	}
	if (now_ns - pressure->quiet_ns < quiet_ns ||
		now_ns - pressure->step_ns < POLICY_PRESSURE_TAKE_S * NS_PER_S)
		return POLICY_PRESSURE_KEEP;
	pressure->taken_ns = pressure->step_ns = now_ns;
	return POLICY_PRESSURE_TAKE;
}
