/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * test_depot.c - a pool on paper: whatever is taken, given back and worked on, every page is somewhere
 * exactly once, and left alone the stock becomes what it is to be.
 */
#include "temp.h"
#include "dice.h"
#include "depot.h"

#define PAGE   ((uint64_t)2 << 20)
#define GRANTS 16
#define STEPS  150

static int arg_count;
static char **args;

struct world {
	struct dice dice;
	struct config_pool pool;
	struct config_clear clear;
	struct depot_rules rules;
	struct depot depot;
	struct depot_grant grants[GRANTS]; /* count 0: none */
	uint64_t now_ns;
	struct planner_plan plan;
};

#define CHECK(world, condition)                                                                              \
	do {                                                                                                 \
		if (!(condition))                                                                            \
			fail_msg("seed %" PRIu64 ": not so: %s", (world)->dice.seed, #condition);            \
	} while (0)

static const struct depot_piece *get_pieces(const struct depot_grant *grant)
{
	return grant->more ? grant->more : &grant->one;
}

static uint64_t count_leased(const struct world *world, uint64_t segment_pages)
{
	uint64_t count = 0;

	for (size_t i = 0; i < GRANTS; i++) {
		for (size_t n = 0; n < world->grants[i].count; n++) {
			const struct depot_piece *piece = &get_pieces(&world->grants[i])[n];
			count += piece->segment_pages == segment_pages ? piece->count : 0;
		}
	}
	return count;
}

static uint64_t count_torn(const struct depot *depot, uint64_t segment_pages, uint64_t *ret_holes)
{
	uint64_t count = 0;

	for (size_t i = 0; i < depot->torn_count; i++) {
		if (depot->torn[i].segment_pages != segment_pages)
			continue;
		CHECK((const struct world *)CONTAINER_OF(depot, struct world, depot),
			depot->torn[i].holes > 0 && depot->torn[i].holes < segment_pages);
		*ret_holes += depot->torn[i].holes;
		count++;
	}
	return count;
}

static void check_books(const struct world *world)
{
	const struct depot *depot = &world->depot;
	uint64_t lengths = 0, holes = 0, tails = 0, torn = 0;

	for (size_t i = 0; i < depot->class_count; i++) {
		const struct depot_class *class = &depot->classes[i];
		uint64_t all = class->clean + class->dirty + class->filling + class->leased;
		CHECK(world, i == 0 || class->segment_pages > depot->classes[i - 1].segment_pages);
		CHECK(world, class->leased == count_leased(world, class->segment_pages));
		CHECK(world, class->torn == count_torn(depot, class->segment_pages, &holes));
		CHECK(world, class->torn <= class->dirty);
		CHECK(world, all < (uint64_t)1 << 32); /* none below 0 */
		torn += class->torn;
		lengths += all * class->segment_pages;
	}
	for (size_t i = 0; i < GRANTS; i++)
		tails += world->grants[i].tail_pages;
	CHECK(world, torn == depot->torn_count);
	CHECK(world, lengths == depot->length_pages);
	CHECK(world, lengths - tails == depot->held_pages);
	CHECK(world, lengths - tails - holes + depot->free_pages == world->pool.max_pages);
}

/* ---- what is done to it ---- */

static void make_world(struct world *world, uint64_t seed)
{
	struct dice *dice = &world->dice;

	*world = (struct world){.clear = {.is_enabled = true, .low_percent = 50, .high_percent = 75}};
	dice_init(dice, seed);
	uint64_t left = world->pool.pages = dice_between(dice, 4, 80);
	world->pool.page_size = PAGE;
	world->pool.max_pages = world->pool.pages + dice_roll(dice, 20);
	world->pool.reuse = dice_chance(dice, 20) ? CONFIG_REUSE_NEVER : CONFIG_REUSE_PROVEN;
	world->rules = (struct depot_rules){.pool = &world->pool,
		.clear = &world->clear,
		.rates = {.clear = PAGE, .fill = PAGE / 2, .zero = PAGE * 2},
		.work_limit = dice_chance(dice, 30) ? PAGE / 4 : 0,
		.slots = 2};
	for (uint64_t each = dice_between(dice, 1, 20); each > 0 && left >= each; each /= 3) {
		uint64_t count = dice_between(dice, 1, left / each);
		world->pool.stock[world->pool.stock_count++] = (struct config_stock){each * PAGE, count};
		left -= each * count;
	}
	world->clear.reshape_percent = 10;
	world->pool.is_learning = dice_chance(dice, 40);
	world->pool.stock_share = 80;
	world->pool.stock_half_life_ns = 1000 * NS_PER_S;
	if (world->pool.is_learning && dice_chance(dice, 50))
		world->pool.stock_count = 0;
	assert_int_equal(depot_init(&world->depot, &world->rules, 0), 0);
}

static void take(struct world *world)
{
	struct planner_class classes[PLANNER_CLASSES_MAX];
	struct planner_request request = {
		.pages = dice_between(&world->dice, 1, 24),
		.parts_max = dice_chance(&world->dice, 50) ? 1 : PLANNER_PARTS_MAX,
		.is_patient = dice_chance(&world->dice, 30),
	};
	struct planner_input input;
	struct depot_grant *grant = &world->grants[dice_roll(&world->dice, GRANTS)];
	uint64_t ready_ns, pages = 0;

	if (grant->count > 0)
		return;
	depot_get_input(&world->depot, classes, &input);
	planner_plan(&input, &request, &world->plan);
	if (world->plan.kind == PLANNER_WAIT)
		return;
	assert_int_equal(
		depot_take(&world->depot, &world->plan, &request, world->now_ns, grant, &ready_ns), 0);
	for (size_t i = 0; i < grant->count; i++)
		pages += get_pieces(grant)[i].segment_pages * get_pieces(grant)[i].count;
	CHECK(world, pages - grant->tail_pages == request.pages);
	CHECK(world, grant->tail_pages == 0 || world->plan.zeroed_pages == 0);
	/* Two pages a second. */
	CHECK(world, world->plan.zeroed_pages
			     ? ready_ns >= world->now_ns + world->plan.zeroed_pages * NS_PER_S / 2
			     : ready_ns == world->now_ns);
}

static void give(struct world *world)
{
	struct depot_grant *grant = &world->grants[dice_roll(&world->dice, GRANTS)];

	if (grant->count > 0)
		assert_int_equal(depot_give(&world->depot, grant, world->now_ns), 0);
}

static void finish_job(struct world *world)
{
	if (world->depot.job_end_ns == DEPOT_NEVER)
		return;
	CHECK(world, world->depot.job_end_ns >= world->now_ns);
	world->now_ns = world->depot.job_end_ns;
	depot_finish_job(&world->depot);
}

static void reconcile(struct world *world)
{
	uint64_t waiting = dice_chance(&world->dice, 20);
	uint64_t pages = waiting ? dice_between(&world->dice, 1, 24) : 0;

	for (int look = 0; look < 4 && depot_reconcile(&world->depot, world->now_ns, waiting, pages); look++)
		check_books(world);
}

/* Everything given back: until nothing is left to do. */
static void come_to_rest(struct world *world)
{
	int rounds = 0;

	for (size_t i = 0; i < GRANTS; i++) {
		if (world->grants[i].count > 0)
			assert_int_equal(depot_give(&world->depot, &world->grants[i], world->now_ns), 0);
	}
	do {
		while (depot_reconcile(&world->depot, world->now_ns, 0, 0))
			CHECK(world, ++rounds < 10000);
		finish_job(world);
		check_books(world);
		CHECK(world, ++rounds < 10000);
	} while (depot_reconcile(&world->depot, world->now_ns, 0, 0) || world->depot.job != DEPOT_IDLE);
}

/*
 * Then all of it is clean. A stock that is not learned is as it is to be, and nothing else is there; one that
 * is may keep what nothing that is missing can be made of.
 */
static void check_stock(struct world *world)
{
	const struct depot *depot = &world->depot;

	come_to_rest(world);
	CHECK(world, depot_get_clean_pages(depot) == depot->length_pages);
	CHECK(world, depot->lent_pages == 0);
	if (world->pool.is_learning) {
		CHECK(world, depot->length_pages > 0);
		return;
	}
	CHECK(world, depot->class_count > 0);
	for (size_t i = 0; i < depot->class_count; i++)
		CHECK(world, depot->classes[i].clean == depot->classes[i].want);
}

static void check_random(uint64_t seed, void *user)
{
	static void (*const steps[])(struct world *) = {take, take, give, finish_job};
	static struct world world;

	make_world(&world, seed);
	check_books(&world);
	for (int i = 0; i < STEPS; i++) {
		steps[dice_roll(&world.dice, ARRAY_SIZE(steps))](&world);
		check_books(&world);
		uint64_t later_ns = world.now_ns + dice_roll(&world.dice, 3) * NS_PER_S;
		world.now_ns = MIN(later_ns, world.depot.job_end_ns);
		if (dice_chance(&world.dice, 70))
			reconcile(&world);
	}
	check_stock(&world);
	depot_deinit(&world.depot);
}

static void test_random(void **state)
{
	dice_for_each_seed(arg_count, args, 300, check_random, NULL);
}

/* What nobody waits for is held to the limit; what somebody waits for is not, and the smallest that serves
 * comes first. */
static void test_urgent(void **state)
{
	struct config_pool pool = {.page_size = PAGE,
		.pages = 7,
		.max_pages = 7,
		.stock = {{4 * PAGE, 1}, {2 * PAGE, 1}, {PAGE, 1}},
		.stock_count = 3};
	struct config_clear clear = {.is_enabled = true, .low_percent = 50, .high_percent = 75};
	struct depot_rules rules = {.pool = &pool,
		.clear = &clear,
		.rates = {.clear = PAGE, .fill = PAGE, .zero = PAGE},
		.work_limit = PAGE / 2,
		.slots = 2};
	static const uint64_t lengths[] = {4, 2, 1};
	struct depot_grant grants[3];
	struct depot depot;
	uint64_t ready_ns;

	assert_int_equal(depot_init(&depot, &rules, 0), 0);
	for (size_t i = 0; i < 3; i++) {
		struct planner_request request = {.pages = lengths[i], .parts_max = 1};
		struct planner_class classes[PLANNER_CLASSES_MAX];
		struct planner_plan plan;
		struct planner_input input;
		depot_get_input(&depot, classes, &input);
		planner_plan(&input, &request, &plan);
		assert_int_equal(plan.kind, PLANNER_EXACT);
		assert_int_equal(depot_take(&depot, &plan, &request, 0, &grants[i], &ready_ns), 0);
	}
	for (size_t i = 0; i < 3; i++)
		assert_int_equal(depot_give(&depot, &grants[i], 0), 0);
	assert_int_equal(depot_reconcile(&depot, 0, 1, 2), 0);
	assert_int_equal(depot.job, DEPOT_CLEARS);
	assert_int_equal(depot.job_pages, 2);
	assert_int_equal(depot.job_end_ns, 2 * NS_PER_S);
	depot_finish_job(&depot);
	assert_int_equal(depot_reconcile(&depot, 2 * NS_PER_S, 0, 0), 0);
	assert_int_equal(depot.job_pages, 4);
	assert_int_equal(depot.job_end_ns, 10 * NS_PER_S);
	depot_deinit(&depot);
}

int main(int argc, char **argv)
{
	arg_count = argc;
	args = argv;
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_random),
		cmocka_unit_test(test_urgent),
	};
	return cmocka_run_group_tests_name("depot", tests, NULL, NULL);
}
