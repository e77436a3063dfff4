/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * test_spread.c - requests in several pieces: a table of divisions; and on random inventories that what is
 * planned can be carried out, piece by piece, on segments and pages that are counted one by one.
 */
#include "temp.h"
#include "dice.h"
#include "spread.h"

#include <inttypes.h>

static int arg_count;
static char **args;

/* ---- divisions ---- */

#define NODES_MAX 4
#define PLENTY    ((uint64_t)1 << 40)

static const struct {
	uint64_t most[NODES_MAX]; /* 0 ends it */
	uint64_t pages;
	bool is_enough;
	uint64_t parts[NODES_MAX];
} divisions[] = {
	{{9, 9}, 8, true, {4, 4}},
	{{9, 9}, 9, true, {5, 4}},
	{{9, 9, 9}, 11, true, {4, 4, 3}},
	{{2, 9}, 8, true, {2, 6}},
	{{9, 2, 3}, 12, true, {7, 2, 3}},
	{{9, 2, 9}, 13, true, {6, 2, 5}},
	{{1, 1, 1}, 3, true, {1, 1, 1}},
	{{4, 4}, 8, true, {4, 4}},
	{{4, 4}, 9, false, {0}},
	{{5}, 5, true, {5}},
	{{3, 3}, 1, true, {1, 0}},
	{{PLENTY, 1}, PLENTY, true, {PLENTY - 1, 1}},
};

static void test_divisions(void **state)
{
	for (size_t i = 0; i < ARRAY_SIZE(divisions); i++) {
		uint64_t parts[NODES_MAX] = {0};
		size_t count = 0;
		while (count < NODES_MAX && divisions[i].most[count])
			count++;
		bool is_enough = spread_divide(divisions[i].most, count, divisions[i].pages, parts);
		if (is_enough != divisions[i].is_enough)
			fail_msg("division %zu: enough: %d", i, is_enough);
		for (size_t node = 0; is_enough && node < count; node++) {
			if (parts[node] != divisions[i].parts[node])
				fail_msg("division %zu: node %zu gives %" PRIu64, i, node, parts[node]);
		}
	}
	/* One that has nothing gives nothing. */
	uint64_t none[2] = {0, 7}, parts[2];
	assert_true(spread_divide(none, 2, 7, parts));
	assert_true(parts[0] == 0 && parts[1] == 7);
}

/* All is given, nobody more than it has, and nobody more than one page above one that has more. */
static void check_division(uint64_t seed, void *user)
{
	struct dice dice;
	uint64_t most[SPREAD_PIECES_MAX], parts[SPREAD_PIECES_MAX], sum = 0, given = 0;
	unsigned *kinds = user;

	dice_init(&dice, seed);
	size_t count = dice_between(&dice, 1, SPREAD_PIECES_MAX);
	for (size_t i = 0; i < count; i++)
		sum += most[i] = dice_chance(&dice, 30) ? 0 : dice_roll(&dice, 50);
	uint64_t pages = dice_between(&dice, 1, sum + sum / 4 + 1);
	bool is_enough = spread_divide(most, count, pages, parts);
	assert_int_equal(is_enough, pages <= sum);
	kinds[is_enough]++;
	for (size_t i = 0; is_enough && i < count; i++) {
		given += parts[i];
		assert_true(parts[i] <= most[i]);
		for (size_t j = 0; j < count; j++)
			assert_true(parts[j] == most[j] || parts[i] <= parts[j] + 1);
	}
	assert_true(!is_enough || given == pages);
}

static void test_random_divisions(void **state)
{
	unsigned kinds[2] = {0};

	dice_for_each_seed(arg_count, args, 5000, check_division, kinds);
	assert_true(arg_count > 1 || (kinds[0] > 100 && kinds[1] > 100));
}

static void test_turns(void **state)
{
	const size_t counts[] = {3, 0, 1, 2}, expected[] = {0, 3, 4, 1, 5, 2};
	size_t order[6];

	spread_take_turns(counts, ARRAY_SIZE(counts), order);
	assert_memory_equal(order, expected, sizeof expected);
	spread_take_turns(counts, 0, order);
}

/* ---- pieces of one pool ---- */

static void test_pieces(void **state)
{
	struct planner_class classes[] = {{2, 2}, {4, 1}};
	struct planner_input input = {.classes = classes, .class_count = 2};
	const struct planner_request asked[] = {{4, 1}, {4, 1}, {2, 1}, {1, 1}};
	struct planner_plan scratch;
	struct spread_piece pieces[4];

	spread_plan(&input, classes, asked, 4, &scratch, pieces);
	assert_int_equal(pieces[0].kind, PLANNER_EXACT);
	/* The one of 4 is gone; what cannot be given leaves all to those behind it. */
	assert_int_equal(pieces[1].kind, PLANNER_WAIT);
	assert_int_equal(pieces[2].kind, PLANNER_EXACT);
	assert_int_equal(pieces[3].kind, PLANNER_TRIM);
	assert_int_equal(pieces[3].tail_pages, 1);
	assert_true(classes[0].clean == 0 && classes[1].clean == 0);
}

static void test_most(void **state)
{
	const struct planner_class classes[] = {{2, 2, 1, 1}, {4, 1}};
	const struct planner_input input = {.classes = classes,
		.class_count = 2,
		.usable_pages = 3,
		.room_pages = PLENTY,
		.may_zero = true};
	struct planner_plan scratch;
	const struct planner_request several = {100, 9}, one = {100, 1}, few = {3, 9};

	assert_int_equal(spread_get_most(&input, &several, true, &scratch), 8);
	assert_int_equal(spread_get_most(&input, &several, false, &scratch), 13);
	assert_int_equal(spread_get_most(&input, &one, true, &scratch), 4);
	assert_int_equal(spread_get_most(&input, &one, false, &scratch), 13);
	assert_int_equal(spread_get_most(&input, &few, true, &scratch), 3);
	assert_int_equal(spread_get_most(&(struct planner_input){0}, &several, false, &scratch), 0);
}

/* ---- the model: a pool that is counted ---- */

#define CLASSES_MAX 7
#define PIECES_MAX  5

struct model {
	struct dice dice;
	struct planner_class classes[CLASSES_MAX];
	struct planner_input input;
	struct planner_request asked[PIECES_MAX];
	size_t count;
};

#define CHECK(model, condition)                                                                              \
	do {                                                                                                 \
		if (!(condition))                                                                            \
			fail_msg("seed %" PRIu64 ": not so: %s", (model)->dice.seed, #condition);            \
	} while (0)

static void make_model(struct model *model, uint64_t seed)
{
	struct dice *dice = &model->dice;
	*model = (struct model){0};
	dice_init(dice, seed);
	model->input = (struct planner_input){
		.classes = model->classes,
		.class_count = dice_roll(dice, CLASSES_MAX + 1),
		.usable_pages = dice_chance(dice, 50) ? dice_roll(dice, 30) : 0,
		.room_pages = dice_chance(dice, 40) ? dice_roll(dice, 30) : PLENTY,
		.may_zero = dice_chance(dice, 80),
		.may_pass = dice_chance(dice, 50),
	};
	for (size_t i = 0; i < model->input.class_count; i++) {
		struct planner_class *class = &model->classes[i];
		class->segment_pages =
			dice_between(dice, 1, 6) + (i ? model->classes[i - 1].segment_pages : 0);
		class->clean = dice_roll(dice, 5);
		class->dirty = dice_chance(dice, 40) ? dice_roll(dice, 3) : 0;
		class->coming = class->dirty + (dice_chance(dice, 20) ? dice_roll(dice, 3) : 0);
	}
	if (dice_chance(dice, 30)) {
		model->input.bound_pages = dice_between(dice, 1, 20);
		model->input.ahead_pages = model->input.bound_pages;
	}
	model->count = dice_between(dice, 1, PIECES_MAX);
	for (size_t i = 0; i < model->count; i++)
		model->asked[i] = (struct planner_request){
			.pages = dice_between(dice, 1, 25),
			.parts_max = dice_chance(dice, 50) ? 1 : dice_between(dice, 2, 50),
			.is_patient = dice_chance(dice, 20),
		};
}

static struct planner_class *find(struct model *model, uint64_t segment_pages)
{
	for (size_t i = 0; i < model->input.class_count; i++) {
		if (model->classes[i].segment_pages == segment_pages)
			return &model->classes[i];
	}
	CHECK(model, false);
	return NULL;
}

/* One by one, as supply does: what is not there cannot be taken. Returns the pages that came free. */
static uint64_t take(struct model *model, const struct planner_take *takes, size_t count, bool is_dirty)
{
	uint64_t pages = 0;
	for (size_t i = 0; i < count; i++) {
		struct planner_class *class = find(model, takes[i].segment_pages);
		for (uint64_t n = 0; n < takes[i].count; n++) {
			uint64_t *left = is_dirty ? &class->dirty : &class->clean;
			CHECK(model, *left > 0);
			--*left;
			class->coming -= is_dirty;
			pages += class->segment_pages;
		}
	}
	return pages;
}

static void carry_out(struct model *model, const struct planner_plan *plan)
{
	take(model, plan->takes, plan->take_count, false);
	uint64_t freed = take(model, plan->dirty, plan->dirty_count, true) +
			 take(model, plan->clean, plan->clean_count, false);
	model->input.usable_pages += freed;
	model->input.room_pages += freed;
	CHECK(model, plan->zeroed_pages <= model->input.usable_pages);
	CHECK(model, plan->zeroed_pages <= model->input.room_pages);
	model->input.usable_pages -= plan->zeroed_pages;
	model->input.room_pages -= plan->zeroed_pages;
}

static void check_model(uint64_t seed, void *user)
{
	struct model model, planned;
	struct planner_plan plan;
	struct spread_piece pieces[PIECES_MAX];
	unsigned *kinds = user;
	bool is_whole = true;

	make_model(&model, seed);
	planned = model;
	planned.input.classes = planned.classes;
	spread_plan(&planned.input, planned.classes, model.asked, model.count, &plan, pieces);
	/* Piece by piece on the pool itself: the same comes of it, and all that is planned is there. */
	model.input.classes = model.classes;
	for (size_t i = 0; i < model.count; i++) {
		planner_plan(&model.input, &model.asked[i], &plan);
		struct spread_piece piece = spread_sum(&plan);
		CHECK(&model, piece.kind == pieces[i].kind && piece.reason == pieces[i].reason &&
				      piece.ready_pages == pieces[i].ready_pages &&
				      piece.zeroed_pages == pieces[i].zeroed_pages &&
				      piece.parts == pieces[i].parts);
		is_whole = is_whole && plan.kind != PLANNER_WAIT;
		if (plan.kind == PLANNER_WAIT)
			continue;
		CHECK(&model, piece.ready_pages + piece.zeroed_pages == model.asked[i].pages);
		carry_out(&model, &plan);
	}
	CHECK(&model, memcmp(model.classes, planned.classes, sizeof model.classes) == 0);
	CHECK(&model, model.input.usable_pages == planned.input.usable_pages &&
			      model.input.room_pages == planned.input.room_pages);
	kinds[is_whole]++;
}

static void test_model(void **state)
{
	unsigned kinds[2] = {0};

	dice_for_each_seed(arg_count, args, 20000, check_model, kinds);
	assert_true(arg_count > 1 || (kinds[0] > 1000 && kinds[1] > 1000));
}

/* What is said to be the most is to be had, and equal parts of it from several pools, too. */
static void check_most(uint64_t seed, void *user)
{
	struct model model;
	struct planner_plan plan;

	make_model(&model, seed);
	model.input.classes = model.classes;
	for (int is_ready = 0; is_ready < 2; is_ready++) {
		struct planner_request request = {.pages = model.asked[0].pages, .parts_max = 60};
		uint64_t most = spread_get_most(&model.input, &request, is_ready, &plan);
		CHECK(&model, most <= request.pages);
		if (most == 0)
			continue;
		request.pages = most;
		planner_plan(&model.input, &request, &plan);
		CHECK(&model, plan.kind != PLANNER_WAIT && (!is_ready || plan.zeroed_pages == 0));
	}
}

static void test_most_is_had(void **state)
{
	dice_for_each_seed(arg_count, args, 5000, check_most, NULL);
}

int main(int argc, char **argv)
{
	arg_count = argc;
	args = argv;
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_divisions),
		cmocka_unit_test(test_random_divisions),
		cmocka_unit_test(test_turns),
		cmocka_unit_test(test_pieces),
		cmocka_unit_test(test_most),
		cmocka_unit_test(test_model),
		cmocka_unit_test(test_most_is_had),
	};
	return cmocka_run_group_tests_name("spread", tests, NULL, NULL);
}
