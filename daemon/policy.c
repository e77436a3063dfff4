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

/* Clean segments nobody wants: the stock was changed, or the pool is being drained. */
static void plan_discards(const struct policy_input *input, struct policy_plan *plan)
{
	for (size_t i = 0; i < input->class_count; i++) {
		const struct policy_class *class = &input->classes[i];
		uint64_t want = input->is_draining ? 0 : class->want;
		uint64_t excess = subtract(count_all(class), want);
		/* What is on its way or in somebody's hands is not counted as there when draining. */
		if (input->is_draining)
			excess = class->clean;
		uint64_t free = class->clean - class->kept;
		add_action(plan, POLICY_DISCARD, class->segment_pages, excess < free ? excess : free);
	}
}

/*
 * What the stock may still grow by. Segments of lengths that are not in it (extended ones that are lent) take
 * the place of others: together no more than the stock is kept, and what has no place is not missing.
 */
static uint64_t count_place(const struct policy_input *input, const struct policy_plan *plan)
{
	uint64_t stock = 0, held = input->held_pages;
	for (size_t i = 0; i < input->class_count; i++)
		stock += input->classes[i].want * input->classes[i].segment_pages;
	for (size_t i = 0; i < plan->action_count; i++)
		held = subtract(held, plan->actions[i].segment_pages * plan->actions[i].count);
	return subtract(stock, held);
}

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
 * Missing segments as far as the kernel has pages: first what is waited for, then large ones first; a large
 * one it lacks does not stop a small.
 */
static void plan_fills(const struct policy_input *input, struct policy_plan *plan)
{
	uint64_t place = count_place(input, plan);
	struct fills fills = {plan->usable_pages, place, place, input->free_slots};
	size_t awaited = find_awaited(input);
	if (awaited < input->class_count)
		plan_class(&input->classes[awaited], &fills, plan);
	for (size_t i = input->class_count; i-- > 0;) {
		if (i != awaited)
			plan_class(&input->classes[i], &fills, plan);
	}
	/* What is left of usable would serve a part of what is short. */
	uint64_t lacking = subtract(plan->short_pages, fills.usable);
	if (lacking > 0 && input->may_raise && !input->is_raising)
		add_action(plan, POLICY_RAISE, 1, lacking);
}

/*
 * Between the watermarks it stays as it was: a stock that hovers about one of them would change class with
 * every segment.
 */
static bool is_refilling(const struct policy_input *input)
{
	bool is_set = input->low_percent > 0 || input->high_percent > 0;
	unsigned low = is_set ? input->low_percent : POLICY_LOW_PERCENT;
	unsigned high = is_set ? input->high_percent : POLICY_HIGH_PERCENT;
	unsigned mark = input->was_refilling ? high : low;
	/* A target of 2^64 bytes is 2^43 pages: no overflow. */
	return input->clean_pages * 100 < input->target_pages * mark;
}

static enum policy_level pick_level(const struct policy_input *input, bool refilling)
{
	if (input->waiting_pages > 0)
		return POLICY_URGENT;
	return refilling ? POLICY_REFILL : POLICY_IDLE;
}

void policy_plan(const struct policy_input *input, struct policy_plan *ret_plan)
{
	bool refilling = is_refilling(input);
	*ret_plan = (struct policy_plan){.level = pick_level(input, refilling),
		.is_refilling = refilling,
		.usable_pages = policy_get_usable(input)};
	plan_discards(input, ret_plan);
	if (!input->is_draining)
		plan_fills(input, ret_plan);
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
