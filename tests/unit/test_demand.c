/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_demand.c - which stock is proposed after what was asked for, by a table; that it keeps within its
 * bounds and comes to rest, on random traces. */
#include "temp.h"
#include "demand.h"
#include "dice.h"

#define HOUR_NS       (3600 * NS_PER_S)
#define HALF_LIFE_NS  (24 * HOUR_NS)
#define POOL_PAGES    512
#define SHARE_PERCENT 80

static int arg_count;
static char **args;

/* ---- a table ---- */

enum kind {
	NOTHING,
	EXACT,  /* somebody asks, is served by an exact clean segment, and has it from now on */
	REFUSE, /* somebody asks in vain */
	END,    /* a lease of it ends */
	VISIT,  /* a lease is taken and ends at once */
	WAIT,   /* so many hours pass */
};

struct step {
	enum kind kind;
	uint64_t pages;
	unsigned times;
};

struct demand_case {
	const char *name;
	struct step steps[8];
	struct {
		uint64_t pages, wanted, proposed;
		enum demand_reason reason;
	} sizes[4];
	struct demand_class fixed[2];
	struct demand_class stock[6]; /* none: not looked at */
};

/* clang-format off */
static const struct demand_case demand_cases[] = {
	{"nothing asked: half of it, pieces, single pages", {{0}}, {{0}}, {{0}}, {{256, 1}, {32, 4}, {1, 128}}},
	{"once is not enough", {{VISIT, 100, 1}}, {{100, 0, 0, DEMAND_RARE}}, {{0}}, {{256, 1}, {32, 4}, {1, 128}}},
	{"twice is, and leaves one to spare", {{VISIT, 100, 2}}, {{100, 2, 2, DEMAND_ENOUGH}}, {{0}},
		{{256, 1}, {100, 2}, {1, 56}}},
	{"twice, but not within a half-life", {{VISIT, 100, 1}, {WAIT, 0, 30}, {VISIT, 100, 1}}, {{100, 0, 0, DEMAND_RARE}}, {{0}}, {{0}}},
	{"as many as were out at once", {{EXACT, 20, 3}}, {{20, 4, 4, DEMAND_ENOUGH}}, {{0}}, {{0}}},
	{"also when they are back", {{EXACT, 20, 3}, {END, 20, 3}}, {{20, 4, 4, DEMAND_ENOUGH}}, {{0}}, {{0}}},
	{"more to spare of many", {{EXACT, 4, 16}}, {{4, 18, 18, DEMAND_ENOUGH}}, {{0}}, {{0}}},
	{"one after the other needs few", {{VISIT, 20, 50}}, {{20, 2, 2, DEMAND_ENOUGH}}, {{0}}, {{0}}},
	{"what is refused would have been out", {{EXACT, 20, 2}, {REFUSE, 20, 1}}, {{20, 4, 4, DEMAND_ENOUGH}}, {{0}}, {{0}}},
	{"who is refused again and again is counted once", {{REFUSE, 20, 90}}, {{20, 0, 0, DEMAND_RARE}}, {{0}}, {{0}}},
	{"a peak stays for days", {{EXACT, 20, 8}, {END, 20, 8}, {WAIT, 0, 48}}, {{20, 9, 9, DEMAND_ENOUGH}}, {{0}}, {{0}}},
	{"and fades", {{EXACT, 20, 8}, {END, 20, 8}, {WAIT, 0, 72}}, {{20, 6, 6, DEMAND_ENOUGH}}, {{0}}, {{0}}},
	{"what is out does not", {{EXACT, 20, 8}, {WAIT, 0, 24 * 30}}, {{20, 9, 9, DEMAND_ENOUGH}}, {{0}}, {{0}}},
	{"but a single one is no demand", {{EXACT, 20, 1}, {WAIT, 0, 24 * 30}}, {{20, 0, 0, DEMAND_RARE}}, {{0}}, {{0}}},
	{"known a while longer", {{VISIT, 20, 2}, {WAIT, 0, 40}}, {{20, 2, 2, DEMAND_ENOUGH}}, {{0}}, {{0}}},
	{"and not for ever", {{VISIT, 20, 2}, {WAIT, 0, 60}}, {{20, 0, 0, DEMAND_RARE}}, {{0}}, {{256, 1}, {32, 4}, {1, 128}}},
	{"forgotten altogether", {{VISIT, 20, 2}, {WAIT, 0, 24 * 6}}, {{0}}, {{0}}, {{256, 1}, {32, 4}, {1, 128}}},
	{"more than the share", {{VISIT, 500, 5}}, {{500, 2, 0, DEMAND_TOO_LARGE}}, {{0}}, {{256, 1}, {32, 4}, {1, 128}}},
	{"one of them fits", {{VISIT, 400, 5}}, {{400, 2, 1, DEMAND_CROWDED}}, {{0}}, {{400, 1}, {64, 1}, {1, 48}}},
	{"by how often each is asked for", {{VISIT, 100, 30}, {EXACT, 100, 3}, {END, 100, 3}, {EXACT, 50, 8}, {END, 50, 8}, {VISIT, 50, 12}},
		{{100, 4, 3, DEMAND_CROWDED}, {50, 9, 2, DEMAND_CROWDED}}, {{0}}, {{0}}},
	{"a large one that does not fit lets a small one pass", {{VISIT, 300, 10}, {VISIT, 30, 2}},
		{{300, 2, 1, DEMAND_CROWDED}, {30, 2, 2, DEMAND_ENOUGH}}, {{0}}, {{0}}},
	{"fixed ones stay", {{0}}, {{0}}, {{128, 2}, {2, 10}}, {{128, 2}, {118, 1}, {32, 1}, {2, 10}, {1, 86}}},
	{"and count", {{EXACT, 100, 3}}, {{100, 4, 2, DEMAND_ENOUGH}}, {{100, 2}}, {{0}}},
	{"they may be all that is wanted", {{EXACT, 100, 3}}, {{100, 4, 0, DEMAND_ENOUGH}}, {{100, 5}}, {{100, 5}, {6, 1}, {1, 6}}},
	{"a share of what they leave", {{VISIT, 100, 9}}, {{100, 2, 1, DEMAND_CROWDED}}, {{300, 1}}, {{300, 1}, {100, 1}, {53, 1}, {1, 59}}},
	{"a piece that is asked for adds up", {{EXACT, 32, 3}}, {{32, 4, 4, DEMAND_ENOUGH}}, {{0}}, {{256, 1}, {32, 6}, {1, 64}}},
};
/* clang-format on */

static struct demand_rules make_rules(uint64_t pages)
{
	return (struct demand_rules){.half_life_ns = HALF_LIFE_NS,
		.pages = pages,
		.piece_pages = 32,
		.share_percent = SHARE_PERCENT};
}

static void take_step(struct demand *demand, const struct step *step, uint64_t *now_ns)
{
	for (unsigned i = 0; i < step->times; i++) {
		switch (step->kind) {
		case EXACT:
		case VISIT:
			demand_ask(demand, *now_ns, step->pages, DEMAND_EXACT);
			demand_take(demand, *now_ns, step->pages);
			if (step->kind == VISIT)
				demand_give(demand, *now_ns, step->pages);
			break;
		case REFUSE:
			demand_ask(demand, *now_ns, step->pages, DEMAND_REFUSED);
			break;
		case END:
			demand_give(demand, *now_ns, step->pages);
			break;
		case WAIT:
			*now_ns += HOUR_NS;
			demand_plan(demand, *now_ns);
			break;
		case NOTHING:
			break;
		}
	}
}

static const struct demand_size *find(const struct demand *demand, uint64_t pages)
{
	for (size_t i = 0; i < demand->size_count; i++) {
		if (demand->sizes[i].pages == pages)
			return &demand->sizes[i];
	}
	return NULL;
}

static void expect_sizes(const struct demand_case *c, const struct demand *demand)
{
	size_t expected = 0;
	for (; expected < ARRAY_SIZE(c->sizes) && c->sizes[expected].pages; expected++) {
		const struct demand_size *size = find(demand, c->sizes[expected].pages);
		if (!size)
			fail_msg("%s: %" PRIu64 " pages are forgotten", c->name, c->sizes[expected].pages);
		if (size->wanted != c->sizes[expected].wanted ||
			size->proposed != c->sizes[expected].proposed ||
			size->reason != c->sizes[expected].reason)
			fail_msg("%s: %" PRIu64 " pages: wanted %" PRIu64 ", proposed %" PRIu64 ", reason %d",
				c->name, size->pages, size->wanted, size->proposed, (int)size->reason);
	}
	if (demand->size_count != expected)
		fail_msg("%s: %zu sizes", c->name, demand->size_count);
}

static void expect_stock(const char *name, const struct demand *demand, const struct demand_class *expected)
{
	struct demand_class stock[DEMAND_STOCK_MAX];
	size_t count = demand_get_stock(demand, stock);
	for (size_t i = 0; i < count; i++) {
		if (stock[i].segment_pages != expected[i].segment_pages ||
			stock[i].count != expected[i].count)
			fail_msg("%s: stock %zu: %" PRIu64 " of %" PRIu64, name, i, stock[i].count,
				stock[i].segment_pages);
	}
	assert_int_equal(expected[count].count, 0);
}

static void expect_case(const struct demand_case *c)
{
	struct demand demand;
	struct demand_rules rules = make_rules(POOL_PAGES);
	uint64_t now_ns = 5 * HOUR_NS;
	for (; rules.fixed_count < ARRAY_SIZE(c->fixed) && c->fixed[rules.fixed_count].count;
		rules.fixed_count++)
		rules.fixed[rules.fixed_count] = c->fixed[rules.fixed_count];
	demand_init(&demand, &rules, now_ns);
	for (size_t i = 0; i < ARRAY_SIZE(c->steps); i++)
		take_step(&demand, &c->steps[i], &now_ns);
	demand_plan(&demand, now_ns);
	expect_sizes(c, &demand);
	if (c->stock[0].count)
		expect_stock(c->name, &demand, c->stock);
	/* Nothing has happened since. */
	assert_false(demand_plan(&demand, now_ns));
}

static void test_table(void **state)
{
	for (size_t i = 0; i < ARRAY_SIZE(demand_cases); i++)
		expect_case(&demand_cases[i]);
}

/* ---- what is not in the table ---- */

/* However the time is cut, it fades the same. */
static void test_fades_by_time_alone(void **state)
{
	struct demand once, often;
	struct demand_rules rules = make_rules(POOL_PAGES);
	demand_init(&once, &rules, 0);
	demand_init(&often, &rules, 0);
	for (int i = 0; i < 1000; i++) {
		demand_ask(&once, 0, 7, DEMAND_EXACT);
		demand_ask(&often, 0, 7, DEMAND_EXACT);
	}
	for (unsigned minute = 0; minute <= 48 * 60; minute++)
		demand_plan(&often, minute * 60 * NS_PER_S);
	demand_plan(&once, 48 * HOUR_NS);
	uint64_t a = demand_get_asked(find(&once, 7)), b = demand_get_asked(find(&often, 7));
	assert_in_range(a, 250 * DEMAND_ONE - 100, 250 * DEMAND_ONE + 100);
	assert_in_range(b, a - a / 1000, a + a / 1000);
	/* A clock that goes back changes nothing; one that leaps forgets. */
	demand_plan(&once, HOUR_NS);
	assert_int_equal(demand_get_asked(find(&once, 7)), a);
	demand_plan(&once, UINT64_MAX);
	assert_int_equal(once.size_count, 0);
}

static void test_restore(void **state)
{
	struct demand before, after;
	struct demand_rules rules = make_rules(POOL_PAGES);
	demand_init(&before, &rules, 0);
	for (int i = 0; i < 5; i++) {
		demand_ask(&before, 0, 20, i < 3 ? DEMAND_EXACT : DEMAND_WAITED);
		demand_take(&before, 0, 20);
	}
	demand_plan(&before, 0);
	demand_init(&after, &rules, 24 * HOUR_NS);
	demand_restore(&after, 24 * HOUR_NS, 0, find(&before, 20));
	const struct demand_size *size = find(&after, 20);
	assert_int_equal(size->out, 0);
	assert_in_range(demand_get_asked(size), 5 * DEMAND_ONE / 2 - 10, 5 * DEMAND_ONE / 2 + 10);
	assert_in_range(size->served[DEMAND_WAITED], DEMAND_ONE - 10, DEMAND_ONE + 10);
	assert_int_equal(size->proposed, 6);
	/* Three of them are still out: found on disk after or before what was written. */
	for (int i = 0; i < 3; i++)
		demand_take(&after, 24 * HOUR_NS, 20);
	demand_restore(&after, 24 * HOUR_NS, 0, find(&before, 20));
	assert_int_equal(find(&after, 20)->out, 3);
	/* Five, by a quarter of a half-life. */
	assert_in_range(find(&after, 20)->peak, 42 * DEMAND_ONE / 10, 421 * DEMAND_ONE / 100);
	demand_plan(&after, 24 * HOUR_NS);
	assert_int_equal(find(&after, 20)->proposed, 6);
	/* What has faded away is none. */
	demand_restore(&after, 24 * HOUR_NS, 0, &(struct demand_size){.pages = 3, .served = {5}});
	assert_null(find(&after, 3));
	/* Whatever stands in a journal: nothing overflows. */
	struct demand_size wild = {.pages = 2, .peak = UINT64_MAX, .proposed = UINT64_MAX, .out = 9};
	for (size_t i = 0; i < DEMAND_SERVED_COUNT; i++)
		wild.served[i] = UINT64_MAX;
	demand_restore(&after, 24 * HOUR_NS, 24 * HOUR_NS, &wild);
	demand_plan(&after, 24 * HOUR_NS);
	assert_in_range(find(&after, 2)->proposed, 1, POOL_PAGES / 2);
}

/* More sizes than are remembered: those that are asked for stay. */
static void test_many_sizes(void **state)
{
	struct demand demand;
	struct demand_rules rules = make_rules(1000000);
	demand_init(&demand, &rules, 0);
	for (uint64_t i = 0; i < 1000; i++) {
		demand_ask(&demand, 0, 1000 + i, DEMAND_ZEROED);
		if (i % 10 != 0)
			continue;
		demand_ask(&demand, 0, 77, DEMAND_EXACT);
		demand_take(&demand, 0, 77);
		demand_give(&demand, 0, 77);
	}
	demand_plan(&demand, 0);
	assert_int_equal(demand.size_count, DEMAND_SIZES_MAX);
	assert_int_equal(find(&demand, 77)->proposed, 2);
	for (size_t i = 0; i < demand.size_count; i++)
		assert_true(demand.sizes[i].pages == 77 || demand.sizes[i].proposed == 0);
}

static void test_other_rules(void **state)
{
	struct demand demand;
	struct demand_rules rules = make_rules(POOL_PAGES);
	demand_init(&demand, &rules, 0);
	for (int i = 0; i < 4; i++) {
		demand_ask(&demand, 0, 60, DEMAND_EXACT);
		demand_take(&demand, 0, 60);
	}
	assert_true(demand_plan(&demand, 0));
	assert_int_equal(find(&demand, 60)->proposed, 5);
	rules.pages = 100;
	demand_set_rules(&demand, &rules);
	assert_true(demand_plan(&demand, 0));
	assert_int_equal(find(&demand, 60)->proposed, 1);
	rules.pages = 0;
	demand_set_rules(&demand, &rules);
	assert_true(demand_plan(&demand, 0));
	struct demand_class stock[DEMAND_STOCK_MAX];
	assert_int_equal(demand_get_stock(&demand, stock), 0);
	rules = make_rules(POOL_PAGES);
	rules.share_percent = 0;
	demand_set_rules(&demand, &rules);
	assert_true(demand_plan(&demand, 0));
	expect_stock("no share", &demand, (struct demand_class[]){{256, 1}, {32, 4}, {1, 128}, {0, 0}});
}

/* ---- random traces ---- */

#define SIZES_MAX 6

struct world {
	struct dice dice;
	struct demand demand;
	struct demand_rules rules;
	uint64_t now_ns;
	uint64_t sizes[SIZES_MAX], out[SIZES_MAX];
	size_t size_count;
	unsigned changes;
};

#define CHECK(world, condition)                                                                              \
	do {                                                                                                 \
		if (!(condition))                                                                            \
			fail_msg("seed %" PRIu64 ": %s", (world)->dice.seed, #condition);                    \
	} while (0)

static void make_world(struct world *world, uint64_t seed)
{
	struct dice *dice = &world->dice;
	*world = (struct world){0};
	dice_init(dice, seed);
	world->rules = make_rules(dice_between(dice, 1, dice_chance(dice, 50) ? 600 : 600000));
	world->rules.share_percent = (unsigned)dice_roll(dice, 101);
	if (dice_chance(dice, 40))
		world->rules.fixed[world->rules.fixed_count++] =
			(struct demand_class){dice_between(dice, 1, world->rules.pages), 1};
	world->size_count = dice_between(dice, 1, SIZES_MAX);
	for (size_t i = 0; i < world->size_count; i++)
		world->sizes[i] = dice_between(dice, 1, MAX(world->rules.pages / 4, 1)) + i;
	demand_init(&world->demand, &world->rules, 0);
}

static void check_bounds(const struct world *world)
{
	struct demand_class stock[DEMAND_STOCK_MAX];
	uint64_t pages = 0, learned = 0, fixed = 0;
	size_t count = demand_get_stock(&world->demand, stock);
	for (size_t i = 0; i < count; i++) {
		CHECK(world, stock[i].count > 0 && stock[i].segment_pages > 0);
		CHECK(world, i == 0 || stock[i].segment_pages < stock[i - 1].segment_pages);
		pages += stock[i].segment_pages * stock[i].count;
	}
	CHECK(world, pages == world->rules.pages);
	if (world->rules.fixed_count)
		fixed = world->rules.fixed[0].segment_pages;
	for (size_t i = 0; i < world->demand.size_count; i++) {
		const struct demand_size *size = &world->demand.sizes[i];
		CHECK(world, size->proposed <= size->wanted);
		CHECK(world, (size->reason == DEMAND_RARE) == !size->is_known);
		CHECK(world, size->is_known || size->proposed == 0);
		CHECK(world, size->peak >= size->out * DEMAND_ONE);
		learned += size->proposed * size->pages;
	}
	CHECK(world, learned * 100 <= (world->rules.pages - fixed) * world->rules.share_percent);
}

/* Nothing is left out that there is a place for. */
static void check_use(const struct world *world)
{
	uint64_t fixed = world->rules.fixed_count ? world->rules.fixed[0].segment_pages : 0, learned = 0;
	uint64_t budget = (world->rules.pages - fixed) * world->rules.share_percent / 100;
	for (size_t i = 0; i < world->demand.size_count; i++)
		learned += world->demand.sizes[i].proposed * world->demand.sizes[i].pages;
	for (size_t i = 0; i < world->demand.size_count; i++) {
		const struct demand_size *size = &world->demand.sizes[i];
		if (size->reason == DEMAND_CROWDED)
			CHECK(world, budget - learned < size->pages);
		if (size->reason == DEMAND_TOO_LARGE)
			CHECK(world, size->pages > budget);
	}
}

static void step_world(struct world *world)
{
	struct dice *dice = &world->dice;
	size_t i = dice_roll(dice, world->size_count);
	if (dice_chance(dice, 20))
		world->now_ns += dice_roll(dice, 2 * HOUR_NS);
	if (world->out[i] > 0 && dice_chance(dice, 50)) {
		world->out[i]--;
		demand_give(&world->demand, world->now_ns, world->sizes[i]);
	} else if (dice_chance(dice, 10)) {
		demand_ask(&world->demand, world->now_ns, world->sizes[i], DEMAND_REFUSED);
	} else {
		world->out[i]++;
		demand_ask(&world->demand, world->now_ns, world->sizes[i],
			(enum demand_served)dice_roll(dice, DEMAND_REFUSED));
		demand_take(&world->demand, world->now_ns, world->sizes[i]);
	}
	if (demand_plan(&world->demand, world->now_ns))
		world->changes++;
	check_bounds(world);
	check_use(world);
}

/* Whatever was asked for: when it is over and all is back, the stock is what it was at first. */
static void check_decay(struct world *world)
{
	struct demand_class first[DEMAND_STOCK_MAX + 1] = {{0}};
	struct demand fresh;
	for (size_t i = 0; i < world->size_count; i++) {
		for (; world->out[i] > 0; world->out[i]--)
			demand_give(&world->demand, world->now_ns, world->sizes[i]);
	}
	/* Asked for some thousand times: sixteen half-lives. */
	world->now_ns += 20 * HALF_LIFE_NS;
	demand_plan(&world->demand, world->now_ns);
	CHECK(world, world->demand.size_count == 0);
	demand_init(&fresh, &world->rules, 0);
	demand_get_stock(&fresh, first);
	expect_stock("all faded", &world->demand, first);
}

static void check_random(uint64_t seed, void *user)
{
	struct world world;
	make_world(&world, seed);
	for (int i = 0; i < 2000; i++)
		step_world(&world);
	check_decay(&world);
}

static void test_random(void **state)
{
	dice_for_each_seed(arg_count, args, 200, check_random, NULL);
}

/* ---- it comes to rest ---- */

/*
 * The same day again and again, in another order each time, with more wanted than there is place for: after
 * some days the stock is not rebuilt any more.
 */
static void live_a_day(struct world *world)
{
	struct dice *dice = &world->dice;
	uint64_t starts[SIZES_MAX], left = 0;
	for (size_t i = 0; i < world->size_count; i++)
		left += starts[i] = 4 + 6 * i;
	for (uint64_t step_ns = HALF_LIFE_NS / left; left > 0; left--) {
		size_t i = dice_roll(dice, world->size_count);
		while (starts[i] == 0)
			i = (i + 1) % world->size_count;
		starts[i]--;
		world->now_ns += step_ns;
		demand_ask(&world->demand, world->now_ns, world->sizes[i], DEMAND_EXACT);
		demand_take(&world->demand, world->now_ns, world->sizes[i]);
		if (++world->out[i] > 5) {
			world->out[i]--;
			demand_give(&world->demand, world->now_ns, world->sizes[i]);
		}
		if (demand_plan(&world->demand, world->now_ns))
			world->changes++;
		check_bounds(world);
	}
}

static void check_rest(uint64_t seed, void *user)
{
	struct world world;
	make_world(&world, seed);
	for (int day = 0; day < 10; day++)
		live_a_day(&world);
	world.changes = 0;
	for (int day = 0; day < 20; day++)
		live_a_day(&world);
	/* Not once a week, in the mean; each seed has some ten thousand chances. */
	CHECK(&world, world.changes <= 3);
	*(unsigned *)user += world.changes;
}

static void test_comes_to_rest(void **state)
{
	unsigned changes = 0;
	dice_for_each_seed(arg_count, args, 100, check_rest, &changes);
	printf("# %u changes in 20 days of each seed\n", changes);
}

/* A size that is asked for once now and then takes nothing away from those that are. */
static void test_stranger(void **state)
{
	struct demand demand;
	struct demand_rules rules = make_rules(POOL_PAGES);
	uint64_t now_ns = 0;
	demand_init(&demand, &rules, 0);
	for (int i = 0; i < 400; i++) {
		now_ns += HOUR_NS;
		demand_ask(&demand, now_ns, 90, DEMAND_EXACT);
		demand_take(&demand, now_ns, 90);
		demand_give(&demand, now_ns, 90);
		if (i % 48 == 47)
			demand_ask(&demand, now_ns, 300, DEMAND_ZEROED);
		bool is_changed = demand_plan(&demand, now_ns);
		if (i > 10 && is_changed)
			fail_msg("the stock changed in hour %d", i);
	}
	assert_int_equal(find(&demand, 90)->proposed, 2);
	assert_int_equal(find(&demand, 300)->proposed, 0);
}

int main(int argc, char **argv)
{
	arg_count = argc;
	args = argv;
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_table),
		cmocka_unit_test(test_fades_by_time_alone),
		cmocka_unit_test(test_restore),
		cmocka_unit_test(test_many_sizes),
		cmocka_unit_test(test_other_rules),
		cmocka_unit_test(test_random),
		cmocka_unit_test(test_comes_to_rest),
		cmocka_unit_test(test_stranger),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
