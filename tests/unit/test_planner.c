/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_planner.c - what a request gets: a table of cases, and on random inventories what every plan must
 * keep, whatever there is. */
#include "temp.h"
#include "dice.h"
#include "planner.h"

#include <inttypes.h>

static int arg_count;
static char **args;

/* ---- a table ---- */

#define PLENTY               ((uint64_t)1 << 40)
#define KERNEL(usable, room) .may_zero = true, .usable_pages = (usable), .room_pages = (room)
#define QUEUE(ahead, bound)  .ahead_pages = (ahead), .bound_pages = (bound)

struct plan_case {
	const char *name;
	struct planner_class classes[5]; /* {pages, clean, dirty, coming} */
	struct planner_input input;      /* without classes */
	struct planner_request request;  /* parts_max 0: 1 */
	struct planner_plan plan;        /* what is to come of it, without counts of takes; parts 0: 1 */
};

/* clang-format off */
static const struct plan_case plan_cases[] = {
	{"exact", {{4, 2}, {8, 1}}, {0}, {4}, {PLANNER_EXACT, .takes = {{4, 1}}, .ready_pages = 4}},
	{"the smallest larger one", {{1, 9}, {4, 2}, {8, 1}}, {0}, {3}, {PLANNER_TRIM, .takes = {{4, 1}}, .ready_pages = 3}},
	{"nothing clean of the exact size", {{4, 0, 1, 1}, {8, 1}}, {0}, {4}, {PLANNER_TRIM, .takes = {{8, 1}}, .ready_pages = 4}},
	{"drained", {{4, 2}}, {.is_draining = true, KERNEL(9, 9)}, {4}, {PLANNER_WAIT, PLANNER_DRAINED}},
	{"nothing at all", {{0}}, {KERNEL(0, PLENTY)}, {4}, {PLANNER_WAIT, PLANNER_SHORT, .lacking_pages = 4}},
	{"no memory may be touched", {{1, 9}}, {.usable_pages = 9, .room_pages = 9}, {4}, {PLANNER_WAIT, PLANNER_BUSY}},
	/* zeroed now */
	{"a new one of free pages", {{0}}, {KERNEL(4, 4)}, {4}, {PLANNER_EXTEND, .grown_pages = 4, .zeroed_pages = 4}},
	{"the largest clean one grows", {{1, 9}, {2, 1}, {3, 1}}, {KERNEL(2, PLENTY)}, {5},
		{PLANNER_EXTEND, .takes = {{3, 1}}, .grown_pages = 5, .ready_pages = 3, .zeroed_pages = 2}},
	{"free pages before dirty ones", {{1, 3, 2, 2}}, {KERNEL(1, PLENTY)}, {3},
		{PLANNER_EXTEND, .takes = {{1, 1}}, .dirty = {{1, 1}}, .grown_pages = 3, .ready_pages = 1, .zeroed_pages = 2}},
	{"dirty ones before clean ones", {{1, 3, 2, 2}}, {KERNEL(0, PLENTY)}, {4},
		{PLANNER_EXTEND, .takes = {{1, 1}}, .dirty = {{1, 2}}, .clean = {{1, 1}}, .grown_pages = 4, .ready_pages = 1, .zeroed_pages = 3}},
	{"not one more than is needed", {{1, 4}, {4, 0, 1, 1}}, {KERNEL(0, PLENTY)}, {3},
		{PLANNER_EXTEND, .takes = {{1, 1}}, .dirty = {{4, 1}}, .grown_pages = 3, .ready_pages = 1, .zeroed_pages = 2}},
	{"a large one makes small ones needless", {{1, 3}, {5, 1}, {6, 1}}, {KERNEL(0, PLENTY)}, {11},
		{PLANNER_EXTEND, .takes = {{6, 1}}, .clean = {{5, 1}}, .grown_pages = 11, .ready_pages = 6, .zeroed_pages = 5}},
	{"one page too few", {{1, 3, 2, 2}}, {KERNEL(0, PLENTY)}, {6}, {PLANNER_WAIT, PLANNER_SHORT, .lacking_pages = 1}},
	{"the pool may hold no more", {{1, 1}}, {KERNEL(PLENTY, 2)}, {4}, {PLANNER_WAIT, PLANNER_LID, .lacking_pages = 1}},
	{"what goes makes room", {{1, 2}}, {KERNEL(PLENTY, 2)}, {4},
		{PLANNER_EXTEND, .takes = {{1, 1}}, .clean = {{1, 1}}, .grown_pages = 4, .ready_pages = 1, .zeroed_pages = 3}},
	/* several */
	{"several, the largest first", {{1, 9}, {2, 1}, {4, 2}}, {KERNEL(PLENTY, PLENTY)}, {11, 253},
		{PLANNER_SEVERAL, .takes = {{4, 2}, {2, 1}, {1, 1}}, .ready_pages = 11, .parts = 4}},
	{"one is better than several", {{1, 9}, {16, 1}}, {0}, {9, 253}, {PLANNER_TRIM, .takes = {{16, 1}}, .ready_pages = 9}},
	{"the last is larger than what is missing", {{4, 3}}, {0}, {10, 253}, {PLANNER_SEVERAL, .takes = {{4, 3}}, .ready_pages = 10, .parts = 3}},
	{"and makes smaller ones needless", {{2, 1}, {8, 2}}, {0}, {11, 253}, {PLANNER_SEVERAL, .takes = {{8, 2}}, .ready_pages = 11, .parts = 2}},
	{"no more of them than allowed", {{1, 9}}, {KERNEL(9, 9)}, {4, 3},
		{PLANNER_SEVERAL, .takes = {{1, 2}}, .grown_pages = 2, .ready_pages = 2, .zeroed_pages = 2, .parts = 3}},
	{"a new one for the rest", {{1, 1}, {4, 2}}, {KERNEL(3, PLENTY)}, {12, 253},
		{PLANNER_SEVERAL, .takes = {{4, 2}, {1, 1}}, .grown_pages = 3, .ready_pages = 9, .zeroed_pages = 3, .parts = 4}},
	{"its pages from dirty ones", {{1, 1}, {4, 2, 1, 1}}, {KERNEL(0, PLENTY)}, {12, 253},
		{PLANNER_SEVERAL, .takes = {{4, 2}, {1, 1}}, .dirty = {{4, 1}}, .grown_pages = 3, .ready_pages = 9, .zeroed_pages = 3, .parts = 4}},
	{"not enough in several either", {{1, 1}, {4, 2}}, {KERNEL(2, PLENTY)}, {12, 253}, {PLANNER_WAIT, PLANNER_SHORT, .lacking_pages = 1}},
	/* patience */
	{"what is coming is waited for", {{1, 9}, {4, 0, 0, 1}}, {KERNEL(PLENTY, PLENTY)}, {4, 1, true}, {PLANNER_WAIT, PLANNER_COMING}},
	{"if it is large enough", {{1, 9}, {3, 0, 0, 1}}, {KERNEL(PLENTY, PLENTY)}, {4, 1, true},
		{PLANNER_EXTEND, .takes = {{1, 1}}, .grown_pages = 4, .ready_pages = 1, .zeroed_pages = 3}},
	{"not by the impatient", {{1, 9}, {4, 0, 0, 1}}, {KERNEL(3, 3)}, {4, 1, false},
		{PLANNER_EXTEND, .takes = {{1, 1}}, .grown_pages = 4, .ready_pages = 1, .zeroed_pages = 3}},
	/* the queue */
	{"enough is left for who waits longer", {{1, 4}, {8, 1}}, {QUEUE(8, 8)}, {1}, {PLANNER_EXACT, .takes = {{1, 1}}, .ready_pages = 1}},
	{"never what they wait for", {{8, 1}}, {QUEUE(8, 8), .may_pass = true}, {8}, {PLANNER_WAIT, PLANNER_QUEUE}},
	{"nor a larger one", {{8, 0}, {16, 1}}, {QUEUE(8, 8), .may_pass = true}, {4}, {PLANNER_WAIT, PLANNER_BUSY}},
	{"a small one passes", {{1, 4}}, {QUEUE(8, 8), .may_pass = true}, {1}, {PLANNER_EXACT, .passes = true, .takes = {{1, 1}}, .ready_pages = 1}},
	{"but not too often", {{1, 4}}, {QUEUE(8, 8)}, {1}, {PLANNER_WAIT, PLANNER_QUEUE}},
	{"nothing is zeroed for who passes", {{1, 4}}, {QUEUE(8, 8), .may_pass = true, KERNEL(3, 3)}, {2}, {PLANNER_WAIT, PLANNER_QUEUE}},
	{"nothing is unlinked that others wait for", {{1, 2}, {8, 0, 1, 1}}, {QUEUE(1, 8), .may_pass = true, KERNEL(0, PLENTY)}, {4},
		{PLANNER_WAIT, PLANNER_SHORT, .lacking_pages = 2}},
	{"what is coming counts for them", {{1, 1}, {8, 0, 0, 1}}, {QUEUE(8, 8)}, {1}, {PLANNER_EXACT, .takes = {{1, 1}}, .ready_pages = 1}},
	{"so do free pages", {{1, 1}}, {QUEUE(8, 8), KERNEL(8, 8)}, {1}, {PLANNER_EXACT, .takes = {{1, 1}}, .ready_pages = 1}},
	{"of which the pool may have so many", {{1, 1}}, {QUEUE(8, 8), KERNEL(8, 7)}, {1}, {PLANNER_WAIT, PLANNER_QUEUE}},
	/* bulk: {pages, parts, patience, leases} */
	{"a bulk", {{4, 3}, {8, 1}}, {0}, {4, 1, false, 3}, {PLANNER_SEVERAL, .takes = {{4, 3}}, .ready_pages = 12, .parts = 3}},
	{"of segments that are long enough", {{1, 9}, {4, 1}, {5, 1}, {8, 1}}, {0}, {4, 1, false, 3},
		{PLANNER_SEVERAL, .takes = {{4, 1}, {5, 1}, {8, 1}}, .ready_pages = 12, .parts = 3}},
	{"new ones for the rest of a bulk", {{4, 1}}, {KERNEL(8, 8)}, {4, 1, false, 3},
		{PLANNER_SEVERAL, .takes = {{4, 1}}, .grown_pages = 4, .ready_pages = 4, .zeroed_pages = 8, .parts = 3}},
	{"their pages from those that are too short", {{1, 3, 1, 1}, {4, 1}}, {KERNEL(5, PLENTY)}, {4, 1, false, 3},
		{PLANNER_SEVERAL, .takes = {{4, 1}}, .dirty = {{1, 1}}, .clean = {{1, 2}}, .grown_pages = 4, .ready_pages = 4, .zeroed_pages = 8, .parts = 3}},
	{"a bulk is whole or not at all", {{4, 2}}, {KERNEL(3, PLENTY)}, {4, 1, false, 3}, {PLANNER_WAIT, PLANNER_SHORT, .lacking_pages = 1}},
	{"the pool has no room for a bulk", {{4, 2}}, {KERNEL(PLENTY, 3)}, {4, 1, false, 3}, {PLANNER_WAIT, PLANNER_LID, .lacking_pages = 1}},
	{"no memory may be touched for a bulk", {{4, 2}}, {0}, {4, 1, false, 3}, {PLANNER_WAIT, PLANNER_BUSY}},
	{"a patient bulk", {{4, 1, 0, 1}, {6, 0, 0, 1}}, {KERNEL(PLENTY, PLENTY)}, {4, 1, true, 3}, {PLANNER_WAIT, PLANNER_COMING}},
	{"but all it lacks must be coming", {{4, 1, 0, 1}}, {KERNEL(PLENTY, PLENTY)}, {4, 1, true, 3},
		{PLANNER_SEVERAL, .takes = {{4, 1}}, .grown_pages = 4, .ready_pages = 4, .zeroed_pages = 8, .parts = 3}},
	{"a bulk passes nobody", {{1, 4}}, {QUEUE(8, 8), .may_pass = true}, {1, 1, false, 2}, {PLANNER_WAIT, PLANNER_QUEUE}},
	{"unless enough is left", {{1, 10}}, {QUEUE(8, 8), .may_pass = true}, {1, 1, false, 2},
		{PLANNER_SEVERAL, .takes = {{1, 2}}, .ready_pages = 2, .parts = 2}},
	{"for all of it", {{1, 9}}, {QUEUE(8, 8), .may_pass = true}, {1, 1, false, 2}, {PLANNER_WAIT, PLANNER_QUEUE}},
};
/* clang-format on */

static bool are_same(
	const struct planner_take *takes, size_t count, const struct planner_take *expected, size_t most)
{
	size_t n = 0;
	while (n < most && expected[n].count > 0)
		n++;
	if (n != count)
		return false;
	for (size_t i = 0; i < n; i++) {
		if (takes[i].segment_pages != expected[i].segment_pages ||
			takes[i].count != expected[i].count)
			return false;
	}
	return true;
}

static void expect_plan(const struct plan_case *c)
{
	struct planner_input input = c->input;
	struct planner_request request = c->request;
	struct planner_plan plan;
	const struct planner_plan *want = &c->plan;

	input.classes = c->classes;
	while (input.class_count < ARRAY_SIZE(c->classes) && c->classes[input.class_count].segment_pages)
		input.class_count++;
	request.parts_max = MAX(request.parts_max, 1);
	planner_plan(&input, &request, &plan);
	size_t parts = want->kind == PLANNER_WAIT ? 0 : MAX(want->parts, 1);
	if (plan.kind == want->kind && plan.reason == want->reason && plan.passes == want->passes &&
		plan.grown_pages == want->grown_pages && plan.ready_pages == want->ready_pages &&
		plan.zeroed_pages == want->zeroed_pages && plan.parts == parts &&
		plan.lacking_pages == want->lacking_pages &&
		are_same(plan.takes, plan.take_count, want->takes, ARRAY_SIZE(want->takes)) &&
		are_same(plan.dirty, plan.dirty_count, want->dirty, ARRAY_SIZE(want->dirty)) &&
		are_same(plan.clean, plan.clean_count, want->clean, ARRAY_SIZE(want->clean)))
		return;
	fail_msg("%s: kind %d, reason %d, parts %zu, takes %zu (%" PRIu64 " x %" PRIu64 "), grown %" PRIu64
		 ", ready %" PRIu64 ", zeroed %" PRIu64 ", victims %zu and %zu, lacking %" PRIu64,
		c->name, plan.kind, plan.reason, plan.parts, plan.take_count, plan.takes[0].count,
		plan.takes[0].segment_pages, plan.grown_pages, plan.ready_pages, plan.zeroed_pages,
		plan.dirty_count, plan.clean_count, plan.lacking_pages);
}

static void test_table(void **state)
{
	for (size_t i = 0; i < ARRAY_SIZE(plan_cases); i++)
		expect_plan(&plan_cases[i]);
}

/* ---- random inventories ---- */

#define CLASSES_MAX 9

struct world {
	struct dice dice;
	struct planner_class classes[CLASSES_MAX];
	struct planner_input input;
	struct planner_request request;
};

#define CHECK(world, condition)                                                                              \
	do {                                                                                                 \
		if (!(condition))                                                                            \
			fail_msg("seed %" PRIu64 ": not so: %s", (world)->dice.seed, #condition);            \
	} while (0)

static void make_world(struct world *world, uint64_t seed)
{
	struct dice *dice = &world->dice;
	*world = (struct world){0};
	dice_init(dice, seed);
	world->input = (struct planner_input){
		.classes = world->classes,
		.class_count = dice_roll(dice, CLASSES_MAX + 1),
		.usable_pages = dice_roll(dice, 3) ? dice_roll(dice, 40) : 0,
		.room_pages = dice_roll(dice, 3) ? dice_roll(dice, 40) : PLENTY,
		.may_zero = dice_chance(dice, 85),
		.is_draining = dice_chance(dice, 3),
		.may_pass = dice_chance(dice, 50),
	};
	for (size_t i = 0; i < world->input.class_count; i++) {
		struct planner_class *class = &world->classes[i];
		class->segment_pages =
			dice_between(dice, 1, 7) + (i ? world->classes[i - 1].segment_pages : 0);
		class->clean = dice_chance(dice, 60) ? dice_roll(dice, 5) : 0;
		class->dirty = dice_chance(dice, 40) ? dice_roll(dice, 3) : 0;
		class->coming = class->dirty + (dice_chance(dice, 20) ? dice_roll(dice, 3) : 0);
	}
	if (dice_chance(dice, 40)) {
		world->input.bound_pages = dice_between(dice, 1, 30);
		world->input.ahead_pages = world->input.bound_pages * dice_between(dice, 1, 3);
	}
	world->request = (struct planner_request){
		.pages = dice_between(dice, 1, 60),
		.parts_max = dice_chance(dice, 50) ? 1 : dice_between(dice, 1, PLANNER_PARTS_MAX),
		.is_patient = dice_chance(dice, 30),
	};
	if (dice_chance(dice, 25)) {
		world->request.leases = dice_between(dice, 2, 6);
		world->request.pages = dice_between(dice, 1, 12);
	}
}

static uint64_t count_asked(const struct world *world)
{
	return world->request.pages * MAX(world->request.leases, 1);
}

static bool is_ours(const struct world *world, const struct planner_class *class)
{
	return world->input.ahead_pages == 0 || class->segment_pages < world->input.bound_pages;
}

static uint64_t count_in(const struct planner_take *takes, size_t count, uint64_t segment_pages)
{
	uint64_t sum = 0;
	for (size_t i = 0; i < count; i++)
		sum += takes[i].segment_pages == segment_pages ? takes[i].count : 0;
	return sum;
}

/* Pages of all; checks that all there is to take is there. */
static uint64_t count_pages(const struct world *world, const struct planner_take *takes, size_t count)
{
	uint64_t pages = 0;
	for (size_t i = 0; i < count; i++) {
		size_t at = 0;
		CHECK(world, takes[i].count > 0);
		while (at < world->input.class_count &&
			world->classes[at].segment_pages != takes[i].segment_pages)
			at++;
		CHECK(world, at < world->input.class_count && is_ours(world, &world->classes[at]));
		pages += takes[i].segment_pages * takes[i].count;
	}
	return pages;
}

static uint64_t get_smallest(const struct planner_take *takes, size_t count)
{
	uint64_t smallest = UINT64_MAX;
	for (size_t i = 0; i < count; i++)
		smallest = MIN(smallest, takes[i].segment_pages);
	return smallest;
}

/* Nothing is taken that is not there, nothing twice, nothing in vain. */
static void check_taken(const struct world *world, const struct planner_plan *plan)
{
	for (size_t i = 0; i < world->input.class_count; i++) {
		const struct planner_class *class = &world->classes[i];
		uint64_t each = class->segment_pages;
		CHECK(world, count_in(plan->takes, plan->take_count, each) +
					     count_in(plan->clean, plan->clean_count, each) <=
				     class->clean);
		CHECK(world, count_in(plan->dirty, plan->dirty_count, each) <= class->dirty);
	}
	uint64_t dirty = count_pages(world, plan->dirty, plan->dirty_count);
	uint64_t clean = count_pages(world, plan->clean, plan->clean_count), victims = dirty + clean;
	CHECK(world, plan->zeroed_pages <= world->input.usable_pages + victims);
	CHECK(world, plan->zeroed_pages <= world->input.room_pages + victims);
	uint64_t needed = plan->zeroed_pages -
			  MIN(plan->zeroed_pages, MIN(world->input.usable_pages, world->input.room_pages));
	/* Not one could be left out; and clean ones go only when the dirty ones are not enough. */
	CHECK(world,
		plan->clean_count == 0 || victims - get_smallest(plan->clean, plan->clean_count) < needed);
	CHECK(world,
		plan->dirty_count == 0 || victims - get_smallest(plan->dirty, plan->dirty_count) < needed);
	uint64_t all_dirty = 0;
	for (size_t i = 0; i < world->input.class_count; i++) {
		if (is_ours(world, &world->classes[i]))
			all_dirty += world->classes[i].dirty * world->classes[i].segment_pages;
	}
	CHECK(world, plan->clean_count == 0 || all_dirty < needed);
	CHECK(world, victims == 0 || needed > 0);
}

/* One segment for each lease, none too short, and a longer one only where no shorter one is left. */
static void check_bulk(const struct world *world, const struct planner_plan *plan)
{
	size_t takes = 0;
	count_pages(world, plan->takes, plan->take_count);
	for (size_t i = 0; i < plan->take_count; i++) {
		CHECK(world, plan->takes[i].segment_pages >= world->request.pages);
		takes += plan->takes[i].count;
	}
	for (size_t i = 0; i < world->input.class_count; i++) {
		const struct planner_class *class = &world->classes[i];
		uint64_t taken = count_in(plan->takes, plan->take_count, class->segment_pages);
		CHECK(world, taken == class->clean || class->segment_pages < world->request.pages ||
				     plan->grown_count == 0 || !is_ours(world, class));
	}
	CHECK(world, plan->kind == PLANNER_SEVERAL && !plan->passes);
	CHECK(world, plan->parts == world->request.leases && takes + plan->grown_count == plan->parts);
	CHECK(world, plan->ready_pages == takes * world->request.pages);
	CHECK(world, plan->zeroed_pages == plan->grown_count * plan->grown_pages);
	CHECK(world, plan->grown_pages == (plan->grown_count > 0 ? world->request.pages : 0));
}

/* What the lease is made of is what was asked for, to the page. */
static void check_parts(const struct world *world, const struct planner_plan *plan)
{
	uint64_t pages = world->request.pages, clean = count_pages(world, plan->takes, plan->take_count);
	size_t takes = 0;
	for (size_t i = 0; i < plan->take_count; i++)
		takes += plan->takes[i].count;
	CHECK(world, plan->grown_count == (plan->grown_pages > 0));
	CHECK(world, plan->ready_pages + plan->zeroed_pages == pages);
	CHECK(world, plan->parts >= 1 && plan->parts <= world->request.parts_max);
	if (plan->kind == PLANNER_EXTEND) {
		CHECK(world, takes <= 1 && plan->parts == 1 && plan->grown_pages == pages);
		CHECK(world, clean == plan->ready_pages && clean < pages);
		return;
	}
	CHECK(world, plan->parts == takes + (plan->grown_pages > 0));
	CHECK(world, plan->grown_pages == plan->zeroed_pages);
	/* Every part is needed: without the last, the smallest but for a larger one that is cut, it is not
	 * enough. */
	CHECK(world, clean + plan->zeroed_pages >= pages);
	CHECK(world, clean - plan->takes[plan->take_count - 1].segment_pages + plan->zeroed_pages < pages);
	for (size_t i = 1; i < plan->take_count; i++)
		CHECK(world, plan->takes[i].segment_pages < plan->takes[i - 1].segment_pages);
	CHECK(world, plan->zeroed_pages == 0 || clean == plan->ready_pages);
}

/* Waiting is for when there is no way to serve it now. */
static void check_waiting(const struct world *world, const struct planner_plan *plan)
{
	const struct planner_input *input = &world->input;
	uint64_t clean = 0, dirty = 0,
		 attainable = input->may_zero ? MIN(input->usable_pages, input->room_pages) : 0;
	uint64_t coming = 0, whole = 0, asked = count_asked(world);
	for (size_t i = 0; i < input->class_count; i++) {
		const struct planner_class *class = &world->classes[i];
		attainable += (class->clean + class->coming) * class->segment_pages;
		if (!is_ours(world, class))
			continue;
		clean += class->clean * class->segment_pages;
		dirty += class->dirty * class->segment_pages;
		coming += class->segment_pages >= world->request.pages ? class->coming : 0;
		whole += class->segment_pages >= world->request.pages
				 ? class->clean * (class->segment_pages - world->request.pages)
				 : 0;
	}
	/* What is longer than one of a bulk's is long gives no more than that. */
	clean -= world->request.leases > 1 ? MIN(clean, whole) : 0;
	bool is_behind = input->ahead_pages > 0 && attainable < input->ahead_pages + asked;
	switch (plan->reason) {
	case PLANNER_NO_REASON:
		CHECK(world, false);
		break;
	case PLANNER_DRAINED:
		CHECK(world, input->is_draining);
		break;
	case PLANNER_QUEUE:
		CHECK(world, is_behind);
		break;
	case PLANNER_COMING:
		CHECK(world, world->request.is_patient && coming > 0);
		break;
	case PLANNER_BUSY:
		CHECK(world, !input->may_zero);
		break;
	case PLANNER_SHORT:
		CHECK(world, clean + dirty + input->usable_pages < asked);
		break;
	case PLANNER_LID:
		CHECK(world, clean + dirty + input->room_pages < asked);
		break;
	}
	CHECK(world, plan->take_count == 0 && plan->dirty_count == 0 && plan->clean_count == 0);
	CHECK(world, plan->grown_pages == 0 && plan->ready_pages == 0 && plan->zeroed_pages == 0);
}

static void check_world(uint64_t seed, void *user)
{
	struct world world;
	struct planner_plan plan, again;
	unsigned *kinds = user;

	make_world(&world, seed);
	memset(&plan, 0, sizeof plan);
	memset(&again, 0xff, sizeof again);
	planner_plan(&world.input, &world.request, &plan);
	planner_plan(&world.input, &world.request, &again);
	CHECK(&world, plan.kind == again.kind && plan.zeroed_pages == again.zeroed_pages);
	kinds[plan.kind]++;
	if (plan.kind == PLANNER_WAIT) {
		check_waiting(&world, &plan);
		return;
	}
	CHECK(&world, !world.input.is_draining && plan.reason == PLANNER_NO_REASON);
	CHECK(&world, plan.zeroed_pages == 0 || world.input.may_zero);
	CHECK(&world, !plan.passes || (world.input.may_pass && plan.zeroed_pages == 0));
	if (world.request.leases > 1)
		check_bulk(&world, &plan);
	else
		check_parts(&world, &plan);
	check_taken(&world, &plan);
}

static void test_random(void **state)
{
	unsigned kinds[PLANNER_SEVERAL + 1] = {0};

	dice_for_each_seed(arg_count, args, 20000, check_world, kinds);
	for (size_t i = 0; arg_count < 2 && i < ARRAY_SIZE(kinds); i++)
		assert_true(kinds[i] > 100);
}

/* More classes and segments than a lease can have parts. */
static void test_many(void **state)
{
	struct planner_class classes[PLANNER_CLASSES_MAX];
	struct planner_plan plan;
	uint64_t sum = 0;

	for (size_t i = 0; i < ARRAY_SIZE(classes); i++) {
		classes[i] =
			(struct planner_class){.segment_pages = i + 1, .clean = 1, .dirty = 1, .coming = 1};
		sum += i + 1;
	}
	const struct planner_input input = {
		.classes = classes, .class_count = ARRAY_SIZE(classes), KERNEL(0, PLENTY)};
	planner_plan(&input, &(struct planner_request){sum, PLANNER_PARTS_MAX, false}, &plan);
	assert_int_equal(plan.kind, PLANNER_SEVERAL);
	assert_int_equal(plan.parts, PLANNER_PARTS_MAX);
	assert_int_equal(plan.ready_pages + plan.zeroed_pages, sum);
	planner_plan(&input, &(struct planner_request){2 * sum, 1, false}, &plan);
	assert_int_equal(plan.kind, PLANNER_EXTEND);
	assert_int_equal(plan.dirty_count, ARRAY_SIZE(classes));
	assert_int_equal(plan.clean_count, ARRAY_SIZE(classes) - 1);
	planner_plan(&input, &(struct planner_request){2 * sum + 1, 1, false}, &plan);
	assert_int_equal(plan.kind, PLANNER_WAIT);
	assert_int_equal(plan.lacking_pages, 1);
}

int main(int argc, char **argv)
{
	arg_count = argc;
	args = argv;
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_table),
		cmocka_unit_test(test_random),
		cmocka_unit_test(test_many),
	};
	return cmocka_run_group_tests_name("planner", tests, NULL, NULL);
}
