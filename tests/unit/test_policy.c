/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_policy.c - what is planned, by a table; that it keeps its promises and comes to the stock, by
 * simulation. */
#include "temp.h"
#include "dice.h"
#include "policy.h"

#include <inttypes.h>

#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)

static int arg_count;
static char **args;

/* ---- plan: a table ---- */

#define CREATE(pages, count)                                                                                 \
	{                                                                                                    \
		POLICY_CREATE, pages, count                                                                  \
	}
#define DISCARD(pages, count)                                                                                \
	{                                                                                                    \
		POLICY_DISCARD, pages, count                                                                 \
	}
#define LOWER(pages)                                                                                         \
	{                                                                                                    \
		POLICY_LOWER, 1, pages                                                                       \
	}
#define DROP(pages, count)                                                                                   \
	{                                                                                                    \
		POLICY_DROP, pages, count                                                                    \
	}
#define CUT(pages, count)                                                                                    \
	{                                                                                                    \
		POLICY_CUT, pages, count                                                                     \
	}
#define RAISE(pages)                                                                                         \
	{                                                                                                    \
		POLICY_RAISE, 1, pages                                                                       \
	}

/* A share of so many percent; pages that are clean, and held in all. */
#define GENTLE(percent, clean, held)                                                                         \
	.is_gentle = true, .reshape_percent = (percent), .clean_pages = (clean), .held_pages = (held),       \
	.free_slots = 9

struct plan_case {
	const char *name;
	struct policy_class classes[4];
	struct policy_input input; /* without classes */
	struct policy_action actions[5];
	uint64_t usable, missing, lacking;
};

/* clang-format off */
static const struct plan_case plan_cases[] = {
	{"nothing configured", {{0}}, {.kernel_free = 10, .free_slots = 2}, {{0}}, 10, 0, 0},
	{"full stock", {{1, 2, .clean = 2}, {8, 1, .clean = 1}}, {.kernel_free = 10, .free_slots = 2}, {{0}}, 10, 0, 0},
	{"largest first", {{1, 4}, {2, 2}, {8, 1}}, {.kernel_free = 16, .free_slots = 9},
		{CREATE(8, 1), CREATE(2, 2), CREATE(1, 4)}, 16, 16, 0},
	{"a large one that does not fit lets small ones pass", {{1, 4}, {8, 1}}, {.kernel_free = 7, .free_slots = 9},
		{CREATE(1, 4)}, 7, 12, 8},
	{"as many as fit", {{1, 4}, {2, 4}}, {.kernel_free = 5, .free_slots = 9}, {CREATE(2, 2), CREATE(1, 1)}, 5, 12, 7},
	{"no slot", {{1, 4}}, {.kernel_free = 5, .free_slots = 0}, {{0}}, 5, 4, 0},
	{"what has no slot keeps its pages", {{1, 4}, {2, 3}}, {.kernel_free = 6, .free_slots = 1}, {CREATE(2, 1)}, 6, 10, 4},
	{"slots go down the classes", {{1, 4}, {8, 1}}, {.kernel_free = 20, .free_slots = 3}, {CREATE(8, 1), CREATE(1, 2)}, 20, 12, 0},
	{"every state counts as there", {{1, 4, .clean = 1, .leased = 1, .dirty = 1, .filling = 1}}, {.kernel_free = 9, .free_slots = 9},
		{{0}}, 9, 0, 0},
	{"who waits is served first, by the smallest that serves", {{1, 4}, {2, 3}, {4, 1}, {8, 1}},
		{.kernel_free = 40, .waiting_pages = 2, .free_slots = 4}, {CREATE(2, 3), CREATE(8, 1)}, 40, 22, 0},
	{"not by one that is there already", {{1, 4}, {2, 1, .leased = 1}, {4, 1}},
		{.kernel_free = 40, .waiting_pages = 2, .free_slots = 2}, {CREATE(4, 1), CREATE(1, 1)}, 40, 8, 0},
	{"nobody serves who wants more than there is", {{1, 4}, {2, 1}}, {.kernel_free = 40, .waiting_pages = 3, .free_slots = 2},
		{CREATE(2, 1), CREATE(1, 1)}, 40, 6, 0},
	{"no free pages", {{1, 4}}, {.free_slots = 9}, {{0}}, 0, 4, 4},
	{"reserved pages are others'", {{1, 9}}, {.kernel_free = 10, .kernel_resv = 7, .free_slots = 9}, {CREATE(1, 3)}, 3, 9, 6},
	{"more reserved than free", {{1, 9}}, {.kernel_free = 3, .kernel_resv = 7, .free_slots = 9}, {{0}}, 0, 9, 9},
	{"holes are owed", {{1, 9}}, {.kernel_free = 10, .holes_owed_pages = 8, .free_slots = 9}, {CREATE(1, 2)}, 2, 9, 7},
	{"more owed than free", {{1, 9}}, {.kernel_free = 10, .holes_owed_pages = 18, .free_slots = 9}, {{0}}, 0, 9, 9},
	{"pages of a fill under way are spent", {{1, 9, .filling = 1}}, {.kernel_free = 10, .filling_todo_pages = 6, .free_slots = 9},
		{CREATE(1, 4)}, 4, 8, 4},
	{"so are those of holes being mended", {{1, 9, .dirty = 1}}, {.kernel_free = 10, .mending_todo_pages = 6, .free_slots = 9},
		{CREATE(1, 4)}, 4, 8, 4},
	{"all of it together", {{1, 9}}, {.kernel_free = 10, .kernel_resv = 2, .holes_owed_pages = 2, .filling_todo_pages = 2,
		.mending_todo_pages = 2, .free_slots = 9}, {CREATE(1, 2)}, 2, 9, 7},
	{"all of it is too much", {{1, 9}}, {.kernel_free = 7, .kernel_resv = 2, .holes_owed_pages = 2, .filling_todo_pages = 2,
		.mending_todo_pages = 2, .free_slots = 9}, {{0}}, 0, 9, 9},
	{"raise by what is short", {{1, 9}}, {.kernel_free = 4, .may_raise = true, .free_slots = 9}, {CREATE(1, 4), RAISE(5)}, 4, 9, 5},
	{"raise by no more than the difference", {{8, 1}}, {.kernel_free = 5, .may_raise = true, .free_slots = 9}, {RAISE(3)}, 5, 8, 8},
	{"raise although no slot is free", {{1, 9}}, {.kernel_free = 4, .may_raise = true}, {RAISE(5)}, 4, 9, 5},
	{"raise for nobody's reserved pages", {{4, 1}}, {.kernel_free = 4, .kernel_resv = 3, .may_raise = true, .free_slots = 9},
		{RAISE(3)}, 1, 4, 4},
	{"not twice", {{1, 9}}, {.kernel_free = 4, .may_raise = true, .is_raising = true, .free_slots = 9}, {CREATE(1, 4)}, 4, 9, 5},
	{"not unasked", {{1, 9}}, {.kernel_free = 4, .free_slots = 9}, {CREATE(1, 4)}, 4, 9, 5},
	{"raise for who waits, within the room", {{1, 4, .clean = 4}},
		{.waiting_pages = 6, .lacking_pages = 2, .room_pages = 2, .may_raise = true}, {RAISE(2)}, 0, 0, 0},
	{"not beyond the room", {{1, 4, .clean = 4}}, {.waiting_pages = 6, .lacking_pages = 2, .room_pages = 1, .may_raise = true},
		{{0}}, 0, 0, 0},
	{"not when the stock is raised for him", {{8, 1}}, {.waiting_pages = 6, .lacking_pages = 6, .room_pages = 99, .may_raise = true},
		{RAISE(8)}, 0, 8, 8},
	{"both", {{1, 3}}, {.waiting_pages = 6, .lacking_pages = 5, .room_pages = 99, .kernel_free = 1, .may_raise = true, .free_slots = 1},
		{CREATE(1, 1), RAISE(7)}, 1, 3, 2},
	{"made smaller than what is lent leaves", {{1, 4, .clean = 4}, {8, 0, .leased = 1}},
		{.target_pages = 9, .is_shrunk = true, .held_pages = 12}, {DISCARD(1, 3)}, 0, 0, 0},
	{"what nobody wants first", {{1, 1, .clean = 3}, {2, 1, .clean = 1}, {8, 0, .leased = 1}},
		{.target_pages = 9, .is_shrunk = true, .held_pages = 13}, {DISCARD(1, 3)}, 0, 0, 0},
	{"not below the target", {{4, 1, .clean = 1}, {8, 0, .leased = 1}},
		{.target_pages = 9, .is_shrunk = true, .held_pages = 12}, {{0}}, 0, 0, 0},
	{"what is to be split is free, or becomes so", {{1, 3, .clean = 4}},
		{.target_pages = 3, .leaving_pages = 1, .held_pages = 4}, {DISCARD(1, 1)}, 0, 0, 0},
	{"also of a pool that is short", {{1, 4, .clean = 3}},
		{.target_pages = 4, .leaving_pages = 2, .held_pages = 3, .free_slots = 9}, {DISCARD(1, 2)}, 0, 1, 1},
	{"which has some of it free", {{1, 4, .clean = 2}},
		{.target_pages = 4, .leaving_pages = 2, .held_pages = 2, .kernel_free = 1, .free_slots = 9}, {DISCARD(1, 1)}, 1, 2, 2},
	{"and makes nothing of it", {{1, 4, .clean = 2}},
		{.target_pages = 4, .leaving_pages = 2, .held_pages = 2, .kernel_free = 3, .free_slots = 9}, {CREATE(1, 1)}, 3, 2, 1},
	{"while it goes, what is free says nothing", {{1, 4, .clean = 2}},
		{.target_pages = 4, .leaving_pages = 2, .held_pages = 2, .is_raising = true, .free_slots = 9}, {{0}}, 0, 2, 2},
	{"what is lent or kept stays", {{1, 4, .clean = 2, .leased = 2, .kept = 1}},
		{.target_pages = 4, .leaving_pages = 3, .held_pages = 4}, {DISCARD(1, 1)}, 0, 0, 0},
	{"lower by what is owed", {{1, 4, .clean = 4}}, {.give_back_pages = 3, .kernel_free = 9, .may_lower = true}, {LOWER(3)}, 9, 0, 0},
	{"as far as it is free", {{1, 4, .clean = 4}}, {.give_back_pages = 3, .kernel_free = 9, .kernel_resv = 7, .may_lower = true},
		{LOWER(2)}, 2, 0, 0},
	{"not while the stock takes some", {{1, 4, .clean = 1}}, {.give_back_pages = 3, .kernel_free = 4, .may_lower = true, .free_slots = 1},
		{CREATE(1, 1)}, 4, 3, 0},
	{"nothing while something is short", {{8, 1}}, {.give_back_pages = 3, .kernel_free = 4, .may_lower = true}, {{0}}, 4, 8, 8},
	{"nothing while somebody waits", {{1, 4, .clean = 4}}, {.give_back_pages = 3, .kernel_free = 4, .waiting_pages = 5, .may_lower = true},
		{{0}}, 4, 0, 0},
	{"not while it is being changed", {{1, 4, .clean = 4}},
		{.give_back_pages = 3, .kernel_free = 9, .may_lower = true, .is_raising = true}, {{0}}, 9, 0, 0},
	{"nothing is short, nothing is raised", {{1, 9}}, {.kernel_free = 9, .may_raise = true, .free_slots = 1}, {CREATE(1, 1)}, 9, 9, 0},
	{"the stock shrank", {{1, 2, .clean = 5}, {4, 0, .clean = 2}}, {.kernel_free = 1, .free_slots = 9},
		{DISCARD(1, 3), DISCARD(4, 2)}, 1, 0, 0},
	{"what is out counts as there", {{1, 2, .clean = 3, .leased = 2}}, {.free_slots = 9}, {DISCARD(1, 3)}, 0, 0, 0},
	{"what is dirty is not cleared first", {{1, 1, .clean = 1, .leased = 4}, {2, 0, .dirty = 3}}, {.free_slots = 9},
		{DISCARD(1, 1), DROP(2, 3)}, 0, 0, 0},
	{"and goes before what is clean", {{2, 3, .clean = 2, .dirty = 2, .leased = 1}}, {.free_slots = 9}, {DROP(2, 2)}, 0, 0, 0},
	{"not while somebody waits", {{2, 0, .dirty = 3}}, {.waiting_pages = 1, .free_slots = 9}, {{0}}, 0, 0, 0},
	{"sizes change places", {{1, 8}, {8, 0, .clean = 1}}, {.kernel_free = 3, .free_slots = 9}, {DISCARD(8, 1), CREATE(1, 3)}, 3, 8, 5},
	{"draining", {{1, 4, .clean = 3, .leased = 1}, {2, 2, .filling = 1, .dirty = 1}},
		{.is_draining = true, .kernel_free = 99, .may_raise = true, .free_slots = 9}, {DISCARD(1, 3)}, 99, 0, 0},
	{"draining gives back all that is clean", {{1, 1, .clean = 1}, {2, 0, .clean = 2, .leased = 9}},
		{.is_draining = true, .free_slots = 9}, {DISCARD(1, 1), DISCARD(2, 2)}, 0, 0, 0},
	{"a file that its holder cut to nothing", {{0, 0, .leased = 1}, {1, 2}}, {.kernel_free = 2, .free_slots = 9},
		{CREATE(1, 2)}, 2, 2, 0},
	{"what is lent beyond the stock takes its place", {{1, 4, .clean = 1}, {6, 1}}, {.kernel_free = 20, .held_pages = 1 + 3, .free_slots = 9},
		{CREATE(6, 1)}, 20, 6, 0},
	{"and leaves what fits beside it", {{1, 4, .clean = 1}, {6, 1}}, {.kernel_free = 20, .held_pages = 1 + 7, .free_slots = 9},
		{CREATE(1, 2)}, 20, 2, 0},
	{"all of the place is taken", {{1, 4, .clean = 1}, {6, 1}}, {.kernel_free = 20, .held_pages = 1 + 9, .free_slots = 9}, {{0}}, 20, 0, 0},
	{"what goes makes place", {{1, 4, .clean = 6}, {6, 1}}, {.kernel_free = 20, .held_pages = 6 + 2, .free_slots = 9},
		{DISCARD(1, 2)}, 20, 0, 0},
	{"what is given back is not asked for elsewhere", {{1, 8}, {8, 0, .clean = 1}},
		{.kernel_free = 3, .held_pages = 8, .may_raise = true, .free_slots = 9}, {DISCARD(8, 1), CREATE(1, 3)}, 3, 8, 5},
	{"gently: not without a need", {{1, 8, .clean = 8}, {4, 0, .clean = 2}, {9, 1}}, {GENTLE(50, 16, 16)}, {{0}}, 0, 0, 0},
	{"gently: what there is too much of goes", {{1, 8, .clean = 8}, {4, 0, .clean = 2}}, {GENTLE(10, 16, 16)}, {DISCARD(4, 2)}, 0, 0, 0},
	{"gently: and of the last one no more than that", {{1, 8, .clean = 8}, {4, 1}, {9, 0, .clean = 1}}, {GENTLE(10, 17, 17)},
		{CUT(9, 5)}, 0, 0, 0},
	{"gently: a share of what is clean", {{1, 80, .clean = 40}, {4, 0, .clean = 10}}, {GENTLE(10, 80, 80)}, {DISCARD(4, 2)}, 0, 8, 8},
	{"gently: less what is out already", {{1, 80, .clean = 36, .filling = 4}, {4, 0, .clean = 10}}, {GENTLE(10, 76, 80)},
		{DISCARD(4, 1)}, 0, 4, 4},
	{"gently: or dirty", {{1, 80, .clean = 34, .dirty = 6}, {4, 0, .clean = 10}}, {GENTLE(10, 74, 80)}, {CUT(4, 2)}, 0, 2, 2},
	{"gently: or free", {{1, 80, .clean = 36}, {4, 0, .clean = 10}}, {GENTLE(10, 76, 76), .kernel_free = 4},
		{DISCARD(4, 1), CREATE(1, 4)}, 4, 8, 4},
	{"gently: no share, no change", {{1, 80, .clean = 40}, {4, 0, .clean = 10}}, {GENTLE(0, 80, 80)}, {{0}}, 0, 0, 0},
	{"gently: all of it", {{1, 80, .clean = 40}, {4, 0, .clean = 10}}, {GENTLE(100, 80, 80)}, {DISCARD(4, 10)}, 0, 40, 40},
	{"gently: not for one that cannot be made of the share", {{1, 60, .clean = 80}, {20, 1}}, {GENTLE(10, 80, 80)}, {{0}}, 0, 0, 0},
	{"gently: nor while somebody waits", {{1, 80, .clean = 40}, {4, 0, .clean = 10}}, {GENTLE(10, 80, 80), .waiting_pages = 1},
		{{0}}, 0, 0, 0},
	{"gently: small ones first", {{1, 0, .clean = 3}, {2, 8, .clean = 4}, {5, 0, .clean = 1}}, {GENTLE(50, 16, 16)},
		{DISCARD(1, 3), DISCARD(5, 1)}, 0, 8, 8},
	{"gently: dirty ones are no loss", {{1, 36, .clean = 36}, {7, 0, .dirty = 4}, {16, 2}}, {GENTLE(0, 36, 64)},
		{DROP(7, 3)}, 0, 16, 16},
	{"gently: they go first where there is too much", {{1, 40, .clean = 40}, {4, 0, .clean = 2, .dirty = 2}}, {GENTLE(10, 48, 56)},
		{DROP(4, 2), DISCARD(4, 2)}, 0, 0, 0},
	{"gently: but of use if nothing can be made of them", {{1, 36, .clean = 36}, {7, 0, .dirty = 1}, {16, 1}}, {GENTLE(0, 36, 43)},
		{{0}}, 0, 0, 0},
	{"gently: what nothing can be made of is filled all the same", {{1, 64, .clean = 64}, {8, 0, .clean = 3}, {32, 1}},
		{GENTLE(0, 88, 88), .kernel_free = 9}, {CREATE(8, 1)}, 9, 8, 0},
	{"gently: but not before all else is done", {{1, 64, .clean = 63, .filling = 1}, {8, 0, .clean = 3}, {32, 1}},
		{GENTLE(0, 87, 88), .kernel_free = 9}, {{0}}, 9, 0, 0},
	{"gently: nor while there may be more", {{1, 64, .clean = 64}, {32, 1}},
		{GENTLE(0, 64, 64), .kernel_free = 9, .may_raise = true}, {RAISE(23)}, 9, 32, 32},
	{"gently: a drained pool gives all", {{1, 8, .clean = 8}, {4, 0, .clean = 2}}, {GENTLE(10, 16, 16), .is_draining = true},
		{DISCARD(1, 8), DISCARD(4, 2)}, 0, 0, 0},
	{"a growing holder takes no promise away", {{1, 2}}, {.kernel_free = 2, .grown_pages = 7, .free_slots = 9}, {CREATE(1, 2)}, 2, 2, 0},
};
/* clang-format on */

static void expect_plan(const struct plan_case *c)
{
	struct policy_input input = c->input;
	struct policy_plan plan;

	input.classes = c->classes;
	for (size_t i = 0; i < ARRAY_SIZE(c->classes); i++) {
		if (c->classes[i].segment_pages || c->classes[i].leased)
			input.class_count = i + 1;
	}
	policy_plan(&input, &plan);
	size_t expected = 0;
	while (expected < ARRAY_SIZE(c->actions) && c->actions[expected].count)
		expected++;
	bool is_same = plan.action_count == expected && plan.usable_pages == c->usable &&
		       plan.missing_pages == c->missing && plan.short_pages == c->lacking;
	for (size_t i = 0; is_same && i < expected; i++)
		is_same = plan.actions[i].kind == c->actions[i].kind &&
			  plan.actions[i].segment_pages == c->actions[i].segment_pages &&
			  plan.actions[i].count == c->actions[i].count;
	if (is_same)
		return;
	for (size_t i = 0; i < plan.action_count; i++)
		print_error("action %d: %" PRIu64 " x %" PRIu64 "\n", plan.actions[i].kind,
			plan.actions[i].count, plan.actions[i].segment_pages);
	fail_msg("%s: %zu actions, usable %" PRIu64 ", missing %" PRIu64 ", short %" PRIu64, c->name,
		plan.action_count, plan.usable_pages, plan.missing_pages, plan.short_pages);
}

static void test_plan(void **state)
{
	for (size_t i = 0; i < ARRAY_SIZE(plan_cases); i++)
		expect_plan(&plan_cases[i]);
}

/* More classes than a plan has room for: what does not fit comes with the next look, and nothing is written
 * beyond. */
static void test_plan_overflow(void **state)
{
	struct policy_class classes[POLICY_ACTIONS_MAX + 40] = {{0}};
	struct policy_plan plan;

	for (size_t i = 0; i < ARRAY_SIZE(classes); i++)
		classes[i] = (struct policy_class){.segment_pages = i + 1, .clean = 1};
	policy_plan(&(struct policy_input){.classes = classes, .class_count = ARRAY_SIZE(classes)}, &plan);
	assert_int_equal(plan.action_count, POLICY_ACTIONS_MAX);
	assert_int_equal(plan.level, POLICY_IDLE);
}

/* ---- level ---- */

static enum policy_level get_level(uint64_t target, uint64_t clean, uint64_t waiting)
{
	struct policy_plan plan;

	policy_plan(
		&(struct policy_input){
			.target_pages = target, .clean_pages = clean, .waiting_pages = waiting},
		&plan);
	return plan.level;
}

static void test_level(void **state)
{
	assert_int_equal(get_level(0, 0, 0), POLICY_IDLE);
	assert_int_equal(get_level(100, 100, 0), POLICY_IDLE);
	assert_int_equal(get_level(100, 50, 0), POLICY_IDLE);
	assert_int_equal(get_level(100, 49, 0), POLICY_REFILL);
	assert_int_equal(get_level(100, 0, 0), POLICY_REFILL);
	assert_int_equal(get_level(100, 100, 1), POLICY_URGENT);
	assert_int_equal(get_level(0, 0, 1), POLICY_URGENT);
}

static bool is_refilling(bool was_refilling, uint64_t clean, unsigned low, unsigned high)
{
	struct policy_plan plan;

	policy_plan(
		&(struct policy_input){
			.target_pages = 1000,
			.clean_pages = clean,
			.low_percent = low,
			.high_percent = high,
			.was_refilling = was_refilling,
			.waiting_pages = clean % 2, /* whether somebody waits is another matter */
		},
		&plan);
	assert_int_equal(plan.level, clean % 2           ? POLICY_URGENT
				     : plan.is_refilling ? POLICY_REFILL
							 : POLICY_IDLE);
	return plan.is_refilling;
}

/* Below low it is refilled until high is reached; in between it goes on as it did. */
static void test_watermarks(void **state)
{
	static const struct {
		unsigned low, high, low_mark, high_mark; /* in pages of 1000 */
	} cases[] = {{0, 0, 500, 750}, {20, 90, 200, 900}, {0, 10, 0, 100}, {30, 30, 300, 300},
		{100, 100, 1000, 1000}};
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		bool refilling = false;
		for (uint64_t clean = 1000; clean-- > 0;) {
			refilling = is_refilling(refilling, clean, cases[i].low, cases[i].high);
			assert_int_equal(refilling, clean < cases[i].low_mark);
		}
		refilling = true;
		for (uint64_t clean = 0; clean <= 1000; clean++) {
			refilling = is_refilling(refilling, clean, cases[i].low, cases[i].high);
			assert_int_equal(refilling, clean < cases[i].high_mark);
		}
	}
}

/* What no work can bring does not hold a pool at refilling. */
static void test_target(void **state)
{
	static const struct policy_class short_of[] = {{1, 1000, .clean = 380, .filling = 20}};
	struct policy_input input = {.target_pages = 1000, .clean_pages = 380, .was_refilling = true};
	struct policy_plan plan;

	policy_plan(&input, &plan);
	assert_true(plan.is_refilling);
	input.lent_pages = 600; /* 380 of 400 */
	policy_plan(&input, &plan);
	assert_false(plan.is_refilling);
	input.lent_pages = 400; /* 380 of 600 */
	policy_plan(&input, &plan);
	assert_true(plan.is_refilling);
	input.lent_pages = 2000; /* more than it was meant to have */
	policy_plan(&input, &plan);
	assert_false(plan.is_refilling);
	input.lent_pages = 0;
	input.classes = short_of;
	input.class_count = 1;
	input.held_pages = 400;
	policy_plan(&input, &plan); /* the kernel has none: 380 of 400 */
	assert_int_equal(plan.short_pages, 600);
	assert_false(plan.is_refilling);
	input.kernel_free = 300; /* 380 of 700 */
	policy_plan(&input, &plan);
	assert_int_equal(plan.short_pages, 300);
	assert_true(plan.is_refilling);
}

/* ---- which page size, when to look again ---- */

static void test_pick_page_size(void **state)
{
	const uint64_t sizes[] = {2 * MIB, GIB}, one[] = {2 * MIB}, three[] = {64 << 10, 2 * MIB, GIB};

	assert_int_equal(policy_pick_page_size(one, 1, 1), 2 * MIB);
	assert_int_equal(policy_pick_page_size(one, 1, 7 * GIB + 1), 2 * MIB);
	assert_int_equal(policy_pick_page_size(sizes, 2, 1), 2 * MIB);
	assert_int_equal(policy_pick_page_size(sizes, 2, GIB), GIB);
	assert_int_equal(policy_pick_page_size(sizes, 2, 512 * MIB), 2 * MIB);
	/* The waste of 1G pages: exactly an eighth, and one byte more. */
	uint64_t edge = GIB * 8 / 9 + 1; /* edge + edge / 8 reaches 1 GiB */
	assert_true(GIB - edge <= edge / 8);
	assert_true(GIB - (edge - 2) > (edge - 2) / 8);
	assert_int_equal(policy_pick_page_size(sizes, 2, edge), GIB);
	assert_int_equal(policy_pick_page_size(sizes, 2, edge - 2), 2 * MIB);
	assert_int_equal(policy_pick_page_size(sizes, 2, 8 * GIB + 1), GIB);
	assert_int_equal(policy_pick_page_size(sizes, 2, 2 * GIB + 1), 2 * MIB);
	assert_int_equal(policy_pick_page_size(three, 3, 3 * MIB), 64 << 10);
	assert_int_equal(policy_pick_page_size(three, 3, 4 * MIB), 2 * MIB);
	assert_int_equal(policy_pick_page_size(three, 3, 100), 64 << 10);
	assert_int_equal(policy_pick_page_size(sizes, 2, UINT64_MAX), GIB);
}

static void test_retry(void **state)
{
	/* io_uring and AF_XDP let go within 55 ms: several looks by then, and more than that at the fourth.
	 */
	uint64_t sum = 0;

	assert_int_equal(policy_get_retry_ms(0), 1);
	for (unsigned i = 0; i < 4; i++)
		sum += policy_get_retry_ms(i);
	assert_true(sum > 55 && sum < 200);
	for (unsigned i = 1; i < 40; i++)
		assert_true(policy_get_retry_ms(i) >= policy_get_retry_ms(i - 1));
	assert_int_equal(policy_get_retry_ms(UINT32_MAX), 10000);
}

/* ---- a pool, simulated ---- */

#define CLASSES_MAX 6   /* of the stock */
#define LENGTHS_MAX 600 /* and what is cut to */
#define FILLS_MAX   6

struct world {
	struct dice dice;
	struct policy_class classes[LENGTHS_MAX];
	size_t class_count;
	bool is_gentle;
	unsigned reshape_percent;
	bool is_waited_for;
	struct fill {
		size_t class; /* LENGTHS_MAX: none */
		uint64_t todo;
	} fills[FILLS_MAX];
	uint64_t nr, others; /* pages of the kernel's pool; those other programs use */
	uint64_t resv, owed; /* reserved by others; holes punched by holders */
	uint64_t can_raise;  /* pages the kernel would still give */
	uint64_t give_back;  /* raised ones that are to go */
	bool is_draining;
	uint64_t mending, mended_class; /* holes of a dirty segment being filled */
};

#define CHECK(world, condition)                                                                              \
	do {                                                                                                 \
		if (!(condition))                                                                            \
			fail_msg("seed %" PRIu64 ": not so: %s", (world)->dice.seed, #condition);            \
	} while (0)

static uint64_t count_all(const struct policy_class *class)
{
	return class->clean + class->leased + class->dirty + class->filling;
}

static uint64_t get_used(const struct world *world)
{
	uint64_t used = 0;
	for (size_t i = 0; i < world->class_count; i++)
		used += count_all(&world->classes[i]) * world->classes[i].segment_pages;
	for (size_t i = 0; i < FILLS_MAX; i++)
		used -= world->fills[i].class < LENGTHS_MAX ? world->fills[i].todo : 0;
	return used - world->owed - world->mending;
}

static uint64_t get_free(const struct world *world)
{
	uint64_t taken = get_used(world) + world->others;
	assert_true(taken <= world->nr);
	return world->nr - taken;
}

static void make_input(const struct world *world, struct policy_input *ret_input)
{
	struct policy_input input = {
		.is_draining = world->is_draining,
		.classes = world->classes,
		.class_count = world->class_count,
		.kernel_free = get_free(world),
		.kernel_resv = world->resv,
		.holes_owed_pages = world->owed,
		.mending_todo_pages = world->mending,
		.may_raise = world->can_raise > 0,
		.is_gentle = world->is_gentle,
		.reshape_percent = world->reshape_percent,
		.waiting_pages = world->is_waited_for,
		.may_lower = true,
		.give_back_pages = world->give_back,
	};
	for (size_t i = 0; i < world->class_count; i++) {
		input.target_pages += world->classes[i].want * world->classes[i].segment_pages;
		input.clean_pages += world->classes[i].clean * world->classes[i].segment_pages;
		input.held_pages += count_all(&world->classes[i]) * world->classes[i].segment_pages;
	}
	for (size_t i = 0; i < FILLS_MAX; i++) {
		if (world->fills[i].class == LENGTHS_MAX)
			input.free_slots++;
		else
			input.filling_todo_pages += world->fills[i].todo;
	}
	*ret_input = input;
}

static size_t find_class(const struct world *world, uint64_t pages)
{
	size_t i = 0;
	while (i < world->class_count && world->classes[i].segment_pages != pages)
		i++;
	CHECK(world, i < world->class_count);
	return i;
}

static uint64_t get_place(const struct policy_input *input, const struct policy_plan *plan)
{
	uint64_t stock = 0, held = input->held_pages;
	for (size_t i = 0; i < input->class_count; i++)
		stock += input->classes[i].want * input->classes[i].segment_pages;
	for (size_t i = 0; i < plan->action_count; i++) {
		if (plan->actions[i].kind == POLICY_DISCARD || plan->actions[i].kind == POLICY_DROP)
			held -= plan->actions[i].segment_pages * plan->actions[i].count;
		if (plan->actions[i].kind == POLICY_CUT)
			held -= plan->actions[i].count;
	}
	return stock > held ? stock - held : 0;
}

/* What may be taken out of service: before the plan, with nothing given back yet. */
static uint64_t get_allowed(const struct policy_input *input)
{
	const struct policy_plan nothing = {.action_count = 0};
	uint64_t place = get_place(input, &nothing), usable = policy_get_usable(input);
	uint64_t out = MIN(place, usable);
	for (size_t i = 0; i < input->class_count; i++)
		out += (input->classes[i].filling + input->classes[i].dirty) *
		       input->classes[i].segment_pages;
	uint64_t most = (input->clean_pages + out) * input->reshape_percent / 100;
	return most > out ? most - out : 0;
}

/* Clean memory is given up only for a reason, and not more of it than is allowed. */
static void check_gentle(
	const struct world *world, const struct policy_input *input, const struct policy_plan *plan)
{
	const struct policy_plan nothing = {.action_count = 0};
	uint64_t place = get_place(input, &nothing), stock = 0, taken = 0, dropped = 0;
	for (size_t i = 0; i < input->class_count; i++)
		stock += input->classes[i].want * input->classes[i].segment_pages;
	uint64_t surplus = input->held_pages > stock ? input->held_pages - stock : 0;
	for (size_t i = 0; i < plan->action_count; i++) {
		const struct policy_action *action = &plan->actions[i];
		if (action->kind == POLICY_DISCARD)
			taken += action->segment_pages * action->count;
		else if (action->kind == POLICY_CUT)
			taken += action->count;
		else if (action->kind == POLICY_DROP)
			dropped += action->segment_pages * action->count;
	}
	CHECK(world, !input->waiting_pages || taken + dropped == 0);
	CHECK(world, taken <= (surplus > 0 ? surplus : get_allowed(input)));
	/* Something missing is small enough to be made of all this. */
	uint64_t most = surplus > 0 ? UINT64_MAX : MIN(place, policy_get_usable(input)) + taken + dropped;
	bool is_of_use = taken + dropped == 0 || surplus > 0;
	for (size_t i = 0; i < input->class_count; i++)
		is_of_use = is_of_use || (count_all(&input->classes[i]) < input->classes[i].want &&
						 input->classes[i].segment_pages <= most);
	CHECK(world, is_of_use);
}

/* What nothing missing can be made of: of a length that the stock does not want, or not so many. */
static bool is_filler(
	const struct world *world, const struct policy_input *input, const struct policy_action *action)
{
	if (!input->is_gentle || action->kind != POLICY_CREATE)
		return false;
	for (size_t i = 0; i < world->class_count; i++) {
		if (world->classes[i].segment_pages == action->segment_pages)
			return count_all(&world->classes[i]) + action->count > world->classes[i].want;
	}
	return true;
}

/* What every plan must keep, whatever the input. */
static void check_plan(
	const struct world *world, const struct policy_input *input, const struct policy_plan *plan)
{
	uint64_t created = 0, segments = 0, missing = 0, filler = 0;
	uint64_t promised = input->kernel_resv + input->holes_owed_pages + input->filling_todo_pages +
			    input->mending_todo_pages;
	uint64_t usable = input->kernel_free > promised ? input->kernel_free - promised : 0;
	unsigned seen[LENGTHS_MAX] = {0};
	uint64_t clean[LENGTHS_MAX], dirty[LENGTHS_MAX], others[LENGTHS_MAX];

	for (size_t i = 0; i < world->class_count; i++) {
		clean[i] = world->classes[i].clean;
		dirty[i] = world->classes[i].dirty;
		others[i] = count_all(&world->classes[i]) - clean[i] - dirty[i];
	}
	if (input->is_gentle && !input->is_draining)
		check_gentle(world, input, plan);

	CHECK(world, plan->usable_pages == usable && policy_get_usable(input) == usable);
	for (size_t i = 0; i < plan->action_count; i++) {
		const struct policy_action *action = &plan->actions[i];
		CHECK(world, action->count > 0);
		if (action->kind == POLICY_RAISE) {
			CHECK(world, input->may_raise && !input->is_raising && !input->is_draining);
			CHECK(world, i == plan->action_count - 1);
			CHECK(world, action->segment_pages * action->count <= plan->short_pages);
			continue;
		}
		if (action->kind == POLICY_LOWER) {
			CHECK(world, i == plan->action_count - 1 && !input->is_draining);
			CHECK(world, plan->short_pages == 0 && action->segment_pages == 1);
			CHECK(world,
				action->count <= input->give_back_pages && action->count <= usable - created);
			continue;
		}
		if (is_filler(world, input, action)) {
			CHECK(world, plan->action_count == 1 && action->count == 1);
			filler = action->segment_pages;
			created += filler;
			segments++;
			continue;
		}
		size_t at = find_class(world, action->segment_pages);
		/* never made and given up, never twice */
		CHECK(world, (seen[at] & 1u << action->kind) == 0);
		CHECK(world, seen[at] == 0 || ((seen[at] | 1u << action->kind) & 1u << POLICY_CREATE) == 0);
		seen[at] |= 1u << action->kind;
		if (action->kind != POLICY_CREATE) {
			uint64_t count = action->kind == POLICY_CUT ? 1 : action->count;
			uint64_t *from = action->kind == POLICY_DROP ? &dirty[at] : &clean[at];
			uint64_t want = input->is_draining ? 0 : world->classes[at].want;
			CHECK(world, action->kind != POLICY_CUT || action->count < action->segment_pages);
			CHECK(world, count <= *from && clean[at] + dirty[at] + others[at] - count >= want);
			*from -= count;
			continue;
		}
		CHECK(world, !input->is_draining);
		CHECK(world, count_all(&world->classes[at]) + action->count <= world->classes[at].want);
		created += action->segment_pages * action->count;
		segments += action->count;
	}
	/* What is lent of other lengths than the stock has takes the place of what is missing. */
	uint64_t place = get_place(input, plan);
	for (size_t i = world->class_count; i-- > 0 && !input->is_draining;) {
		const struct policy_class *class = &world->classes[i];
		uint64_t all = count_all(class), lacking = class->want > all ? class->want - all : 0;
		lacking = MIN(lacking, place / class->segment_pages) * class->segment_pages;
		missing += lacking;
		place -= lacking;
	}
	CHECK(world, created <= get_place(input, plan));
	CHECK(world, created <= usable);
	CHECK(world, segments <= input->free_slots);
	/* For who waits another one is counted first. */
	CHECK(world, input->waiting_pages > 0 || plan->missing_pages == missing + filler);
	CHECK(world, plan->short_pages <= plan->missing_pages);
}

static void start_fill(struct world *world, size_t class)
{
	size_t at = 0;
	while (world->fills[at].class < LENGTHS_MAX)
		CHECK(world, ++at < FILLS_MAX);
	world->fills[at] = (struct fill){class, world->classes[class].segment_pages};
	world->classes[class].filling++;
}

/* The class of a length; another one than any before, perhaps. */
static size_t add_class(struct world *world, uint64_t length)
{
	size_t at = 0;
	while (at < world->class_count && world->classes[at].segment_pages < length)
		at++;
	if (at == world->class_count || world->classes[at].segment_pages != length) {
		CHECK(world, world->class_count < LENGTHS_MAX);
		memmove(&world->classes[at + 1], &world->classes[at],
			(world->class_count - at) * sizeof world->classes[0]);
		world->classes[at] = (struct policy_class){.segment_pages = length};
		world->class_count++;
		for (size_t i = 0; i < FILLS_MAX; i++) {
			if (world->fills[i].class < LENGTHS_MAX && world->fills[i].class >= at)
				world->fills[i].class ++;
		}
	}
	return at;
}

static void cut_one(struct world *world, size_t from, uint64_t pages)
{
	uint64_t length = world->classes[from].segment_pages - pages;
	world->classes[from].clean--;
	world->classes[add_class(world, length)].clean++;
}

/* Plans and carries it out; returns the number of actions. */
static size_t look(struct world *world)
{
	struct policy_input input;
	struct policy_plan plan, again;

	make_input(world, &input);
	memset(&plan, 0, sizeof plan);
	memset(&again, 0, sizeof again);
	policy_plan(&input, &plan);
	policy_plan(&input, &again);
	CHECK(world, memcmp(&plan, &again, sizeof plan) == 0);
	check_plan(world, &input, &plan);
	for (size_t i = 0; i < plan.action_count; i++) {
		const struct policy_action *action = &plan.actions[i];
		if (action->kind == POLICY_RAISE) {
			uint64_t got = MIN(action->count, world->can_raise);
			world->nr += got;
			world->can_raise -= got;
			continue;
		}
		if (action->kind == POLICY_LOWER) {
			world->nr -= action->count;
			world->give_back -= action->count;
			continue;
		}
		size_t at = add_class(world, action->segment_pages);
		if (action->kind == POLICY_DISCARD)
			world->classes[at].clean -= action->count;
		if (action->kind == POLICY_DROP)
			world->classes[at].dirty -= action->count;
		if (action->kind == POLICY_CUT)
			cut_one(world, at, action->count);
		for (uint64_t n = 0; action->kind == POLICY_CREATE && n < action->count; n++)
			start_fill(world, at);
	}
	/* Whatever a holder punched it can have back, at any moment: invariant C. */
	uint64_t todo = world->mending;
	for (size_t i = 0; i < FILLS_MAX; i++)
		todo += world->fills[i].class < LENGTHS_MAX ? world->fills[i].todo : 0;
	CHECK(world, get_free(world) >= world->owed + todo);
	return plan.action_count;
}

static bool advance_fills(struct world *world, uint64_t most)
{
	bool has_moved = false;
	for (size_t i = 0; i < FILLS_MAX; i++) {
		struct fill *fill = &world->fills[i];
		if (fill->class == LENGTHS_MAX)
			continue;
		has_moved = true;
		fill->todo -= MIN(fill->todo, most);
		if (fill->todo > 0)
			continue;
		world->classes[fill->class].filling--;
		world->classes[fill->class].clean++;
		fill->class = LENGTHS_MAX;
	}
	return has_moved;
}

static bool clear_one(struct world *world, size_t at)
{
	struct policy_class *class = &world->classes[at];
	if (class->dirty == 0)
		return false;
	class->dirty--;
	class->clean++;
	return true;
}

static void set_stock(struct world *world)
{
	/* What was cut is not asked for. */
	for (size_t i = 0; i < world->class_count; i++)
		world->classes[i].want =
			i < 3 || dice_chance(&world->dice, 50) ? dice_roll(&world->dice, 6) : 0;
}

/* Something happens that is not the policy's doing. */
static void disturb(struct world *world)
{
	struct dice *dice = &world->dice;
	struct policy_class *class = &world->classes[dice_roll(dice, world->class_count)];
	uint64_t todo = world->mending;
	for (size_t i = 0; i < FILLS_MAX; i++)
		todo += world->fills[i].class < LENGTHS_MAX ? world->fills[i].todo : 0;
	uint64_t spare = get_free(world) - world->owed - todo;

	switch (dice_roll(dice, 14)) {
	case 11:
		world->is_waited_for = dice_chance(dice, 20);
		break;
	case 0:
	case 1:
		if (class->clean > 0) {
			class->clean--;
			class->leased++;
		}
		break;
	case 2: /* whole: holes stay with the others */
		if (class->leased > 0 && world->owed == 0) {
			class->leased--;
			class->dirty++;
		}
		break;
	case 3:
		clear_one(world, (size_t)(class - world->classes));
		break;
	case 4: /* a holder punches */
		world->owed += class->leased > 0 && world->owed < class->segment_pages ? 1 : 0;
		break;
	case 5: /* and touches it again */
		world->owed -= world->owed > 0 ? 1 : 0;
		break;
	case 6: /* others come, only to what is nobody's */
		world->others += spare > 0 ? dice_roll(dice, spare + 1) : 0;
		break;
	case 7:
		world->others -= world->others > 0 ? dice_roll(dice, world->others + 1) : 0;
		break;
	case 8:
		world->resv = dice_roll(dice, 8);
		break;
	case 9:
		if (dice_chance(dice, 20))
			set_stock(world);
		break;
	case 10:
		world->is_draining = dice_chance(dice, 10);
		break;
	case 12:
		world->give_back = dice_roll(dice, 20);
		break;
	default:
		advance_fills(world, dice_between(dice, 1, 64));
	}
}

static void make_world(struct world *world, uint64_t seed)
{
	*world = (struct world){0};
	dice_init(&world->dice, seed);
	world->class_count = dice_between(&world->dice, 1, CLASSES_MAX);
	for (size_t i = 0; i < world->class_count; i++)
		world->classes[i].segment_pages =
			dice_between(&world->dice, 1, 9) + (i ? world->classes[i - 1].segment_pages : 0);
	set_stock(world);
	for (size_t i = 0; i < FILLS_MAX; i++)
		world->fills[i].class = LENGTHS_MAX;
	world->is_gentle = dice_chance(&world->dice, 60);
	world->reshape_percent = (unsigned)dice_roll(&world->dice, 101);
	world->nr = dice_roll(&world->dice, 400);
	world->can_raise = dice_chance(&world->dice, 50) ? dice_roll(&world->dice, 400) : 0;
}

/* Whether it could be made of what is free, or may be given up for it. */
static bool is_makeable(const struct world *world, const struct policy_input *input,
	const struct policy_plan *plan, const struct policy_class *missing)
{
	uint64_t spare = 0, free = MIN(get_place(input, plan), policy_get_usable(input));
	for (size_t i = 0; i < world->class_count; i++) {
		const struct policy_class *class = &world->classes[i];
		uint64_t all = count_all(class), excess = all > class->want ? all - class->want : 0;
		spare += MIN(excess, class->clean) * class->segment_pages;
	}
	return missing->segment_pages <= free + MIN(spare, get_allowed(input));
}

/* Left alone, it comes to rest; and where there is enough, at the stock exactly. */
static void settle(struct world *world)
{
	world->is_draining = world->is_waited_for = false;
	world->resv = world->owed = 0;
	bool is_moving = true;
	for (unsigned i = 0; is_moving; i++) {
		CHECK(world, i < 10000);
		is_moving = look(world) > 0;
		is_moving = advance_fills(world, 3) || is_moving;
		for (size_t at = 0; at < world->class_count; at++)
			is_moving = clear_one(world, at) || is_moving;
	}
	struct policy_input input;
	struct policy_plan plan;
	make_input(world, &input);
	policy_plan(&input, &plan);
	CHECK(world, plan.action_count == 0);
	for (size_t i = 0; i < world->class_count; i++) {
		struct policy_class *class = &world->classes[i];
		CHECK(world, world->is_gentle || count_all(class) <= MAX(class->want, class->leased));
		/* What is missing is missing because not one more of it fits. */
		if (count_all(class) < class->want)
			CHECK(world, (input.kernel_free < class->segment_pages && world->can_raise == 0) ||
					     get_place(&input, &plan) < class->segment_pages);
		if (world->is_gentle && count_all(class) < class->want)
			CHECK(world, !is_makeable(world, &input, &plan, class));
	}
}

static void simulate(uint64_t seed, void *user)
{
	struct world world;
	unsigned *runs = user;

	make_world(&world, seed);
	for (unsigned i = 0; i < 400; i++) {
		disturb(&world);
		look(&world);
	}
	settle(&world);
	++*runs;
}

static void test_simulation(void **state)
{
	unsigned runs = 0;

	dice_for_each_seed(arg_count, args, 500, simulate, &runs);
	assert_true(runs > 0);
}

/* Enough pages from the start: the stock, whatever it is. */
static void test_comes_to_stock(void **state)
{
	for (uint64_t seed = 1; seed < 200; seed++) {
		struct world world;
		make_world(&world, seed);
		world.nr = 10000;
		world.is_gentle = false;
		settle(&world);
		for (size_t i = 0; i < world.class_count; i++) {
			CHECK(&world, world.classes[i].clean == world.classes[i].want);
			world.classes[i].want = dice_roll(&world.dice, 9);
		}
		settle(&world);
		for (size_t i = 0; i < world.class_count; i++)
			CHECK(&world, world.classes[i].clean == world.classes[i].want);
	}
}

/* ---- others wait for memory ---- */

static void test_pressure(void **state)
{
	/* clang-format off */
	static const struct {
		uint64_t at_s;
		double percent;
		bool has_given;
		enum policy_pressure_step step;
	} looks[] = {
		{2, 0, false, POLICY_PRESSURE_KEEP},
		{4, 10, false, POLICY_PRESSURE_KEEP},
		{6, 11, false, POLICY_PRESSURE_GIVE},
		{8, 90, true, POLICY_PRESSURE_GIVE},
		{10, 5, true, POLICY_PRESSURE_KEEP},  /* neither nor */
		{12, 0, true, POLICY_PRESSURE_KEEP},  /* quiet from now on */
		{71, 0, true, POLICY_PRESSURE_KEEP},
		{72, 0.5, true, POLICY_PRESSURE_TAKE},
		{74, 0, true, POLICY_PRESSURE_KEEP},
		{82, 0, true, POLICY_PRESSURE_TAKE},
		{84, 50, true, POLICY_PRESSURE_GIVE}, /* because of that: twice as long now */
		{86, 0, true, POLICY_PRESSURE_KEEP},
		{146, 0, true, POLICY_PRESSURE_KEEP},
		{206, 0, true, POLICY_PRESSURE_TAKE},
		{208, 1, true, POLICY_PRESSURE_KEEP}, /* the time begins again */
		{210, 0, true, POLICY_PRESSURE_KEEP},
		{328, 0, true, POLICY_PRESSURE_KEEP},
		{330, 0, true, POLICY_PRESSURE_TAKE},
		{332, 0, false, POLICY_PRESSURE_KEEP}, /* all is back */
		{334, 20, false, POLICY_PRESSURE_GIVE}, /* and this came of it, too: four times */
		{336, 0, true, POLICY_PRESSURE_KEEP},
		{575, 0, true, POLICY_PRESSURE_KEEP},
		{576, 0, true, POLICY_PRESSURE_TAKE},
		{900, 0, false, POLICY_PRESSURE_KEEP},
		{902, 20, false, POLICY_PRESSURE_GIVE}, /* long after: a minute will do again */
		{904, 0, true, POLICY_PRESSURE_KEEP},
		{964, 0, true, POLICY_PRESSURE_TAKE},
	};
	/* clang-format on */
	struct policy_pressure pressure = {0};

	for (size_t i = 0; i < ARRAY_SIZE(looks); i++) {
		enum policy_pressure_step step = policy_judge_pressure(
			&pressure, looks[i].percent, looks[i].has_given, looks[i].at_s * NS_PER_S);
		if (step != looks[i].step)
			fail_msg("after %" PRIu64 " s: %d", looks[i].at_s, step);
	}
	assert_int_equal(policy_get_pressure_step(0), 1);
	assert_int_equal(policy_get_pressure_step(15), 1);
	assert_int_equal(policy_get_pressure_step(512), 32);
}

int main(int argc, char **argv)
{
	arg_count = argc;
	args = argv;
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_plan),
		cmocka_unit_test(test_pressure),
		cmocka_unit_test(test_plan_overflow),
		cmocka_unit_test(test_level),
		cmocka_unit_test(test_watermarks),
		cmocka_unit_test(test_target),
		cmocka_unit_test(test_pick_page_size),
		cmocka_unit_test(test_retry),
		cmocka_unit_test(test_simulation),
		cmocka_unit_test(test_comes_to_stock),
	};
	return cmocka_run_group_tests_name("policy", tests, NULL, NULL);
}
