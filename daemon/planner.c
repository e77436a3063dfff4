/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * planner.c - from a request to segments. Pure.
 *
 * In this order: one clean segment, exact or larger; where the request allows it, several clean ones, which
 * is as fast; what is coming, for whoever is patient; pages zeroed now, taken from the kernel's free ones,
 * then from dirty segments, then from clean ones of the wrong size. Nobody takes what somebody who waits
 * longer would need, but for a few who are served from segments too small for any of them. A bulk of leases
 * is served whole or waits.
 */
#include "planner.h"
#include "util.h"

struct inventory {
	const struct planner_input *input;
	const struct planner_request *request;
	size_t class_count; /* those that may be taken: below the bound */
};

static uint64_t subtract(uint64_t from, uint64_t what)
{
	return from > what ? from - what : 0;
}

/* ---- whoever waits longer ---- */

/* What could be given without the end of a lease. */
static uint64_t count_attainable(const struct planner_input *input)
{
	uint64_t pages = input->may_zero ? MIN(input->usable_pages, input->room_pages) : 0;
	for (size_t i = 0; i < input->class_count; i++)
		pages += (input->classes[i].clean + input->classes[i].coming) *
			 input->classes[i].segment_pages;
	return pages;
}

static bool leaves_enough(const struct inventory *inventory)
{
	const struct planner_input *input = inventory->input;
	return count_attainable(input) >=
	       input->ahead_pages + inventory->request->pages * MAX(inventory->request->leases, 1);
}

static struct inventory make_inventory(
	const struct planner_input *input, const struct planner_request *request)
{
	struct inventory inventory = {input, request, input->class_count};
	if (input->ahead_pages == 0)
		return inventory;
	while (inventory.class_count > 0 &&
		input->classes[inventory.class_count - 1].segment_pages >= input->bound_pages)
		inventory.class_count--;
	return inventory;
}

/* ---- what is clean ---- */

static void add_take(struct planner_plan *plan, uint64_t segment_pages, uint64_t count)
{
	struct planner_take *last = plan->take_count ? &plan->takes[plan->take_count - 1] : NULL;
	if (last && last->segment_pages == segment_pages)
		last->count += count;
	else
		plan->takes[plan->take_count++] = (struct planner_take){segment_pages, count};
	plan->parts += count;
}

/* One segment, as small as it may be. */
static bool plan_whole(const struct inventory *inventory, struct planner_plan *plan)
{
	uint64_t pages = inventory->request->pages;
	for (size_t i = 0; i < inventory->class_count; i++) {
		const struct planner_class *class = &inventory->input->classes[i];
		if (class->segment_pages < pages || class->clean == 0)
			continue;
		plan->kind = class->segment_pages == pages ? PLANNER_EXACT : PLANNER_TRIM;
		plan->ready_pages = pages;
		add_take(plan, class->segment_pages, 1);
		return true;
	}
	return false;
}

/*
 * The largest first, and no more of them than parts_max. What is then missing comes from the smallest one
 * that was too large when it had its turn: it makes all that were taken after it needless. Returns the pages
 * still missing.
 */
static uint64_t take_several(const struct inventory *inventory, size_t parts_max, struct planner_plan *plan)
{
	struct planner_plan before_larger = {0};
	uint64_t missing = inventory->request->pages, missing_before = 0, larger_pages = 0;
	for (size_t i = inventory->class_count; i-- > 0 && missing > 0;) {
		const struct planner_class *class = &inventory->input->classes[i];
		if (class->segment_pages == 0)
			break;
		uint64_t count = MIN(class->clean, missing / class->segment_pages);
		count = MIN(count, parts_max - plan->parts);
		if (count > 0)
			add_take(plan, class->segment_pages, count);
		missing -= count * class->segment_pages;
		if (class->clean == count || class->segment_pages <= missing || plan->parts == parts_max)
			continue;
		larger_pages = class->segment_pages;
		before_larger = *plan;
		missing_before = missing;
	}
	if (missing == 0 || larger_pages == 0)
		return missing;
	*plan = before_larger;
	add_take(plan, larger_pages, 1);
	return subtract(missing_before, larger_pages);
}

static bool plan_several(const struct inventory *inventory, struct planner_plan *plan)
{
	struct planner_plan try = *plan;
	if (inventory->request->parts_max < 2 ||
		take_several(inventory, inventory->request->parts_max, &try) > 0)
		return false;
	*plan = try;
	plan->kind = PLANNER_SEVERAL;
	plan->ready_pages = inventory->request->pages;
	return true;
}

/* Whether so many that are long enough are coming. */
static bool are_coming(const struct inventory *inventory, uint64_t needed)
{
	uint64_t count = 0;
	for (size_t i = 0; i < inventory->class_count; i++) {
		const struct planner_class *class = &inventory->input->classes[i];
		if (class->segment_pages >= inventory->request->pages)
			count += class->coming;
	}
	return count >= needed;
}

/* ---- what is zeroed now ---- */

static uint64_t count_taken(const struct planner_plan *plan, uint64_t segment_pages)
{
	for (size_t i = 0; i < plan->take_count; i++) {
		if (plan->takes[i].segment_pages == segment_pages)
			return plan->takes[i].count;
	}
	return 0;
}

/* From the smallest up, until so many pages are together; returns how many are. */
static uint64_t take_victims(const struct inventory *inventory, const struct planner_plan *plan,
	bool is_clean, uint64_t needed, struct planner_take *victims, size_t *ret_count)
{
	uint64_t pages = 0;
	*ret_count = 0;
	for (size_t i = 0; i < inventory->class_count && pages < needed; i++) {
		const struct planner_class *class = &inventory->input->classes[i];
		uint64_t each = class->segment_pages;
		uint64_t there = is_clean ? class->clean - count_taken(plan, each) : class->dirty;
		if (there == 0 || each == 0)
			continue;
		uint64_t count = MIN(there, (needed - pages + each - 1) / each);
		victims[(*ret_count)++] = (struct planner_take){each, count};
		pages += count * each;
	}
	return pages;
}

/* A large one that was taken last may make small ones needless. Returns what is together afterwards. */
static uint64_t drop_needless(struct planner_take *victims, size_t *count, uint64_t pages, uint64_t needed)
{
	size_t kept = 0;
	for (size_t i = 0; i < *count; i++) {
		struct planner_take victim = victims[i];
		uint64_t needless = MIN(victim.count, subtract(pages, needed) / victim.segment_pages);
		pages -= needless * victim.segment_pages;
		victim.count -= needless;
		if (victim.count > 0)
			victims[kept++] = victim;
	}
	*count = kept;
	return pages;
}

/* Pages for `plan->zeroed_pages`. False: there are not so many; then plan->lacking_pages says how many lack.
 */
static bool find_pages(const struct inventory *inventory, struct planner_plan *plan)
{
	const struct planner_input *input = inventory->input;
	uint64_t for_kernel = subtract(plan->zeroed_pages, input->usable_pages);
	uint64_t for_room = subtract(plan->zeroed_pages, input->room_pages);
	uint64_t needed = MAX(for_kernel, for_room);
	uint64_t dirty = take_victims(inventory, plan, false, needed, plan->dirty, &plan->dirty_count);
	uint64_t clean =
		take_victims(inventory, plan, true, subtract(needed, dirty), plan->clean, &plan->clean_count);
	if (dirty + clean < needed) {
		plan->lacking_pages = needed - dirty - clean;
		plan->reason = dirty + clean < for_kernel ? PLANNER_SHORT : PLANNER_LID;
		return false;
	}
	clean = drop_needless(plan->clean, &plan->clean_count, clean, subtract(needed, dirty));
	drop_needless(plan->dirty, &plan->dirty_count, dirty, subtract(needed, clean));
	return true;
}

/* The largest clean one grows; without one a new one is made. All clean ones are too small by now. */
static bool plan_extended(const struct inventory *inventory, struct planner_plan *plan)
{
	struct planner_plan try = *plan;
	try.kind = PLANNER_EXTEND;
	try.grown_pages = inventory->request->pages;
	try.grown_count = 1;
	for (size_t i = inventory->class_count; i-- > 0;) {
		const struct planner_class *class = &inventory->input->classes[i];
		if (class->clean == 0 || class->segment_pages == 0 ||
			class->segment_pages >= inventory->request->pages)
			continue;
		add_take(&try, class->segment_pages, 1);
		try.ready_pages = class->segment_pages;
		break;
	}
	try.parts = 1;
	try.zeroed_pages = try.grown_pages - try.ready_pages;
	bool is_possible = find_pages(inventory, &try);
	if (is_possible) {
		*plan = try;
	} else {
		plan->reason = try.reason;
		plan->lacking_pages = try.lacking_pages;
	}
	return is_possible;
}

/* What is clean, in parts, and one more for the rest: less to be zeroed than if one grows. */
static bool plan_mixed(const struct inventory *inventory, struct planner_plan *plan)
{
	struct planner_plan try = *plan;
	if (inventory->request->parts_max < 2)
		return false;
	uint64_t missing = take_several(inventory, inventory->request->parts_max - 1, &try);
	if (missing == 0 || try.parts == 0)
		return false;
	try.kind = PLANNER_SEVERAL;
	try.parts++;
	try.grown_pages = try.zeroed_pages = missing;
	try.grown_count = 1;
	try.ready_pages = inventory->request->pages - missing;
	if (!find_pages(inventory, &try))
		return false;
	*plan = try;
	return true;
}

/* ---- all of it ---- */

static void wait_for(struct planner_plan *plan, enum planner_reason reason)
{
	plan->kind = PLANNER_WAIT;
	plan->reason = reason;
}

/* One segment for each lease: clean ones that are long enough, the shortest first, and new ones for the rest.
 * Returns how many of these that is. */
static uint64_t take_each(const struct inventory *inventory, struct planner_plan *plan)
{
	const struct planner_request *request = inventory->request;
	uint64_t missing = request->leases;
	for (size_t i = 0; i < inventory->class_count && missing > 0; i++) {
		const struct planner_class *class = &inventory->input->classes[i];
		uint64_t count = class->segment_pages < request->pages ? 0 : MIN(class->clean, missing);
		if (count > 0)
			add_take(plan, class->segment_pages, count);
		missing -= count;
	}
	plan->kind = PLANNER_SEVERAL;
	plan->parts = request->leases;
	plan->ready_pages = (request->leases - missing) * request->pages;
	plan->zeroed_pages = missing * request->pages;
	plan->grown_pages = missing > 0 ? request->pages : 0;
	plan->grown_count = missing;
	return missing;
}

static void plan_bulk(const struct inventory *inventory, struct planner_plan *plan)
{
	struct planner_plan try = *plan;
	uint64_t missing = take_each(inventory, &try);
	if (missing > 0 && inventory->request->is_patient && are_coming(inventory, missing)) {
		wait_for(plan, PLANNER_COMING);
	} else if (missing > 0 && !inventory->input->may_zero) {
		wait_for(plan, PLANNER_BUSY);
	} else if (missing > 0 && !find_pages(inventory, &try)) {
		wait_for(plan, try.reason);
		plan->lacking_pages = try.lacking_pages;
	} else {
		*plan = try;
	}
}

void planner_plan(const struct planner_input *input, const struct planner_request *request,
	struct planner_plan *ret_plan)
{
	struct inventory inventory = make_inventory(input, request);
	bool is_behind = input->ahead_pages > 0 && !leaves_enough(&inventory);
	*ret_plan = (struct planner_plan){0};
	if (input->is_draining)
		wait_for(ret_plan, PLANNER_DRAINED);
	else if (is_behind && !input->may_pass)
		wait_for(ret_plan, PLANNER_QUEUE);
	else if (request->leases > 1 && is_behind)
		wait_for(ret_plan, PLANNER_QUEUE);
	else if (request->leases > 1)
		plan_bulk(&inventory, ret_plan);
	else if (plan_whole(&inventory, ret_plan))
		ret_plan->passes = is_behind;
	else if (is_behind)
		wait_for(ret_plan, PLANNER_QUEUE);
	else if (plan_several(&inventory, ret_plan))
		return;
	else if (request->is_patient && are_coming(&inventory, 1))
		wait_for(ret_plan, PLANNER_COMING);
	else if (!input->may_zero)
		wait_for(ret_plan, PLANNER_BUSY);
	else if (!plan_mixed(&inventory, ret_plan))
		plan_extended(&inventory, ret_plan);
}
