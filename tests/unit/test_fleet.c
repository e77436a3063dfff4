/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * test_fleet.c - small traces whose answers were worked out by hand; and on random ones what must hold of
 * every answer, with the planner asked again.
 */
#include "temp.h"
#include "dice.h"
#include "fleet.h"

#define PAGE    ((uint64_t)2 << 20)
#define ROWS    32
#define NEVER   (-1.0)
#define REFUSED (-1.0)

static int arg_count;
static char **args;

/* A page is cleared in a second, filled in two, zeroed for a start in half of one. */
#define RATES                                                                                                \
	{                                                                                                    \
		.clear = PAGE, .fill = PAGE / 2, .zero = PAGE * 2                                            \
	}

struct row {
	double start_s, end_s;
	uint64_t pages;
	int32_t node;
	const char *host;
};

struct answer {
	enum tally_outcome outcome;
	double wait_s;   /* of those that were served */
	double kernel_s; /* REFUSED: not without hpz */
};

struct small_case {
	const char *name;
	struct config_pool pools[2];
	double patience_s;
	bool takes_segments, is_off;
	struct row rows[8];
	struct answer answers[8];
};

#define POOL(pages_, max_, ...)                                                                              \
	{                                                                                                    \
		.page_size = PAGE, .pages = pages_, .max_pages = max_, .stock = { __VA_ARGS__ }              \
	}
#define SEGMENTS(pages, count)                                                                               \
	{                                                                                                    \
		(pages) * PAGE, count                                                                        \
	}

/* clang-format off */
static const struct small_case small_cases[] = {
	{"whole ones, then a wait for one that ends and is cleared",
		{POOL(8, 8, SEGMENTS(4, 1), SEGMENTS(2, 2))}, 60, false, false,
		/* the fourth waits for the first: it ends at 10, and four pages are cleared until 14 */
		{{0, 10, 4, -1, "a"}, {1, NEVER, 2, -1, "a"}, {2, NEVER, 2, 0, "a"}, {3, 99, 1, -1, "a"}},
		{{TALLY_EXACT, 0, 2}, {TALLY_EXACT, 0, 2}, {TALLY_EXACT, 0, 2}, {TALLY_WAITED, 11, REFUSED}}},
	{"the same without patience",
		{POOL(8, 8, SEGMENTS(4, 1), SEGMENTS(2, 2))}, 0, false, false,
		{{0, 10, 4, -1, "a"}, {1, NEVER, 2, -1, "a"}, {2, NEVER, 2, 0, "a"}, {3, 99, 1, -1, "a"}},
		{{TALLY_EXACT, 0, 2}, {TALLY_EXACT, 0, 2}, {TALLY_EXACT, 0, 2}, {TALLY_REFUSED, 0, REFUSED}}},
	{"whoever ends or gives up before its memory is there got nothing",
		{POOL(4, 4, SEGMENTS(4, 1))}, 5, false, false,
		{{0, 10, 4, -1, "a"}, {1, 3, 4, -1, "a"}, {2, NEVER, 4, -1, "a"}, {9.5, NEVER, 4, -1, "a"}},
		{{TALLY_EXACT, 0, 2}, {TALLY_REFUSED, 0, REFUSED}, {TALLY_REFUSED, 0, REFUSED}, {TALLY_WAITED, 4.5, REFUSED}}},
	{"a smaller one grows",
		{POOL(8, 8, SEGMENTS(4, 1))}, 60, false, false,
		{{0, 5, 6, -1, "a"}},
		{{TALLY_EXTENDED, 1, 3}}},
	{"one zeroing after the other",
		{POOL(8, 8, SEGMENTS(1, 1))}, 0, false, false,
		/* 2 of 3 pages until 1, 3 pages until 2.5 */
		{{0, NEVER, 3, -1, "a"}, {0.5, NEVER, 3, -1, "a"}},
		{{TALLY_EXTENDED, 1, 1.5}, {TALLY_EXTENDED, 2, 2.5}}},
	{"the tail of a trimmed one serves the next",
		{POOL(4, 4, SEGMENTS(4, 1))}, 60, false, false,
		{{0, NEVER, 2, -1, "a"}, {1, NEVER, 2, -1, "a"}, {2, NEVER, 1, -1, "a"}},
		{{TALLY_TRIMMED, 0, 1}, {TALLY_EXTENDED, 1, 1}, {TALLY_REFUSED, 0, REFUSED}}},
	{"its holes are filled when it comes back: three pages cleared, one filled",
		{POOL(4, 4, SEGMENTS(4, 1))}, 60, false, false,
		{{0, 10, 3, -1, "a"}, {11, NEVER, 4, -1, "a"}},
		{{TALLY_TRIMMED, 0, 1.5}, {TALLY_WAITED, 4, 2}}},
	{"several where they will do",
		{POOL(4, 4, SEGMENTS(2, 1), SEGMENTS(1, 2))}, 60, true, false,
		{{0, NEVER, 4, -1, "a"}},
		{{TALLY_SEVERAL, 0, 2}}},
	{"or else the largest grows, at the others' expense",
		{POOL(4, 4, SEGMENTS(2, 1), SEGMENTS(1, 2))}, 60, false, false,
		{{0, NEVER, 4, -1, "a"}},
		{{TALLY_EXTENDED, 1, 2}}},
	{"hosts know nothing of each other; more than a pool is impossible",
		{POOL(4, 4, SEGMENTS(4, 1))}, 60, false, false,
		{{0, NEVER, 4, -1, "a"}, {0, NEVER, 4, -1, "b"}, {1, NEVER, 5, -1, "a"}},
		{{TALLY_EXACT, 0, 2}, {TALLY_EXACT, 0, 2}, {TALLY_IMPOSSIBLE, 0, REFUSED}}},
	{"a node of one's own, any node, and one there is not",
		{POOL(4, 4, SEGMENTS(4, 1)), {.node = 1, .page_size = PAGE, .pages = 4, .max_pages = 4, .stock = {SEGMENTS(4, 1)}}},
		0, false, false,
		{{0, NEVER, 4, 1, "a"}, {1, NEVER, 4, -1, "a"}, {2, NEVER, 4, -1, "a"}, {3, NEVER, 4, 2, "a"}},
		{{TALLY_EXACT, 0, 2}, {TALLY_EXACT, 0, 2}, {TALLY_REFUSED, 0, REFUSED}, {TALLY_IMPOSSIBLE, 0, REFUSED}}},
	{"nothing is cleared or zeroed when that is off",
		{POOL(4, 4, SEGMENTS(2, 1))}, 0, false, true,
		{{0, 1, 2, -1, "a"}, {2, NEVER, 2, -1, "a"}},
		{{TALLY_EXACT, 0, 1}, {TALLY_REFUSED, 0, 1}}},
	{"what may not be used again is filled anew",
		{{.page_size = PAGE, .pages = 4, .max_pages = 4, .reuse = CONFIG_REUSE_NEVER, .stock = {SEGMENTS(4, 1)}}},
		60, false, false,
		{{0, 10, 4, -1, "a"}, {11, NEVER, 4, -1, "a"}},
		{{TALLY_EXACT, 0, 2}, {TALLY_WAITED, 7, 2}}},
};
/* clang-format on */

/* ---- one trace ---- */

struct run {
	struct config *config;
	struct fleet *fleet;
	struct tally_start starts[ROWS + 1]; /* by line */
	unsigned told;
	uint64_t seed;
	unsigned plans;
};

static void note(unsigned long line, const struct tally_start *start, void *user)
{
	struct run *run = user;

	assert_in_range(line, 1, ROWS);
	run->starts[line] = *start;
	run->told++;
}

static struct config *new_config(const struct config_pool *pools, size_t count)
{
	struct config *config = calloc(1, sizeof *config);

	assert_non_null(config);
	config->clear = (struct config_clear){.is_enabled = true, .low_percent = 50, .high_percent = 75};
	for (size_t i = 0; i < count && pools[i].page_size; i++) {
		struct config_pool *pool = &config->pools[config->pool_count++];
		*pool = pools[i];
		while (pool->stock[pool->stock_count].bytes)
			pool->stock_count++;
	}
	return config;
}

static void begin(struct run *run, const struct fleet_options *options)
{
	struct fleet_stock stocks[CONFIG_POOLS_MAX] = {{.count = 0}};

	for (size_t i = 0; i < run->config->pool_count; i++) {
		const struct config_pool *pool = &run->config->pools[i];
		memcpy(stocks[i].entries, pool->stock, sizeof stocks[i].entries);
		stocks[i].count = pool->stock_count;
		stocks[i].is_learned = pool->is_learning;
	}
	assert_int_equal(fleet_new(options, stocks, &run->fleet), 0);
}

static void start(struct run *run, unsigned long line, const struct row *row)
{
	struct trace_row trace_row = {
		.start_ns = (uint64_t)(row->start_s * 1e9),
		.end_ns = row->end_s == NEVER ? TRACE_NEVER : (uint64_t)(row->end_s * 1e9),
		.bytes = row->pages * PAGE,
		.node = row->node,
		.host = row->host,
		.line = line,
	};

	assert_int_equal(fleet_start(run->fleet, &trace_row), 0);
}

static void expect_answer(
	const char *name, size_t at, const struct tally_start *found, const struct answer *wanted)
{
	double kernel_s = found->kernel_ns == UINT64_MAX ? REFUSED : (double)found->kernel_ns / 1e9;

	if (found->outcome != wanted->outcome || (double)found->wait_ns / 1e9 != wanted->wait_s ||
		kernel_s != wanted->kernel_s)
		fail_msg("%s: start %zu: outcome %d, wait %f, without hpz %f", name, at, found->outcome,
			(double)found->wait_ns / 1e9, kernel_s);
}

static void check_small(const struct small_case *c)
{
	struct run run = {.config = new_config(c->pools, ARRAY_SIZE(c->pools))};
	const struct fleet_options options = {
		.config = run.config,
		.rates = RATES,
		.workers = 2,
		.patience_ns = (uint64_t)(c->patience_s * 1e9),
		.takes_segments = c->takes_segments,
		.told = note,
		.user = &run,
	};
	size_t rows = 0;

	run.config->clear.is_enabled = !c->is_off;
	begin(&run, &options);
	for (; rows < ARRAY_SIZE(c->rows) && c->rows[rows].pages; rows++)
		start(&run, rows + 1, &c->rows[rows]);
	assert_int_equal(fleet_finish(run.fleet), 0);
	for (size_t i = 0; i < rows; i++)
		expect_answer(c->name, i, &run.starts[i + 1], &c->answers[i]);
	assert_int_equal(run.told, rows);
	assert_int_equal(fleet_get_tally(run.fleet)->starts, rows);
	fleet_free(run.fleet);
	free(run.config);
}

static void test_small(void **state)
{
	for (size_t i = 0; i < ARRAY_SIZE(small_cases); i++)
		check_small(&small_cases[i]);
}

/* A queue: the first one waits for four pages, the second for what is left of them. */
static void test_queue(void **state)
{
	static const struct config_pool pools[] = {POOL(8, 8, SEGMENTS(4, 2))};
	static const struct row rows[] = {
		{0, 10, 4, -1, "a"}, {0, 20, 4, -1, "a"}, {1, NEVER, 4, -1, "a"}, {2, NEVER, 2, -1, "a"}};
	struct run run = {.config = new_config(pools, 1)};
	const struct fleet_options options = {.config = run.config,
		.rates = RATES,
		.workers = 2,
		.patience_ns = FLEET_FOREVER,
		.told = note,
		.user = &run};

	begin(&run, &options);
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		start(&run, i + 1, &rows[i]);
	assert_int_equal(fleet_finish(run.fleet), 0);
	assert_int_equal(run.starts[3].wait_ns, 13 * NS_PER_S); /* 10, and four seconds of clearing */
	assert_int_equal(run.starts[4].wait_ns, 22 * NS_PER_S); /* the second one, at 24 */
	fleet_free(run.fleet);
	free(run.config);
}

/* A stock that learns has what is asked for again and again; one that is mixed never has. */
static void test_learning(void **state)
{
	for (int learns = 0; learns < 2; learns++) {
		const struct config_pool pools[] = {{.page_size = PAGE,
			.pages = 64,
			.max_pages = 64,
			.is_learning = learns,
			.stock_share = 80,
			.stock_half_life_ns = 3600 * NS_PER_S}};
		struct run run = {.config = new_config(pools, 1)};
		const struct fleet_options options = {
			.config = run.config, .rates = RATES, .workers = 1, .told = note, .user = &run};
		run.config->clear.reshape_percent = 50;
		begin(&run, &options);
		for (unsigned i = 0; i < 10; i++) {
			double now_s = i * 200;
			/* Something smaller beside it, so that the large one is not what it gets. */
			const struct row rows[] = {
				{now_s, now_s + 100, 5, -1, "a"}, {now_s, now_s + 100, 20, -1, "a"}};
			start(&run, 2 * i + 1, &rows[0]);
			start(&run, 2 * i + 2, &rows[1]);
		}
		assert_int_equal(fleet_finish(run.fleet), 0);
		for (unsigned line = 17; line <= 20; line++)
			assert_int_equal(run.starts[line].outcome == TALLY_EXACT, learns);
		fleet_free(run.fleet);
		free(run.config);
	}
}

/* Whoever waits for ever for what never ends got nothing. */
static void test_for_ever(void **state)
{
	static const struct config_pool pools[] = {POOL(4, 4, SEGMENTS(4, 1))};
	static const struct row rows[] = {{0, NEVER, 4, -1, "a"}, {1, NEVER, 4, -1, "a"}};
	struct run run = {.config = new_config(pools, 1)};
	const struct fleet_options options = {.config = run.config,
		.rates = RATES,
		.workers = 1,
		.patience_ns = FLEET_FOREVER,
		.told = note,
		.user = &run};

	begin(&run, &options);
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		start(&run, i + 1, &rows[i]);
	assert_int_equal(fleet_finish(run.fleet), 0);
	assert_int_equal(run.starts[2].outcome, TALLY_REFUSED);
	fleet_free(run.fleet);
	free(run.config);
}

static void test_hosts_max(void **state)
{
	static const struct config_pool pools[] = {POOL(4, 4, SEGMENTS(1, 4))};
	static const struct row rows[] = {
		{0, 1, 1, -1, "a"}, {0, 1, 1, -1, "b"}, {0, 1, 1, -1, "c"}, {0, 1, 1, -1, "a"}};
	struct run run = {.config = new_config(pools, 1)};
	const struct fleet_options options = {
		.config = run.config, .rates = RATES, .workers = 1, .hosts_max = 2};

	begin(&run, &options);
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		start(&run, i + 1, &rows[i]);
	assert_int_equal(fleet_finish(run.fleet), 0);
	assert_int_equal(fleet_get_facts(run.fleet)->hosts, 2);
	assert_int_equal(fleet_get_facts(run.fleet)->skipped_rows, 1);
	assert_int_equal(fleet_get_facts(run.fleet)->living_most, 3);
	assert_int_equal(fleet_get_tally(run.fleet)->counts[TALLY_EXACT], 3);
	fleet_free(run.fleet);
	free(run.config);
}

/* What was asked for: three of one size, of which one lives all the time and two half of it. */
static void test_profile(void **state)
{
	static const struct config_pool pools[] = {POOL(8, 8, SEGMENTS(1, 8))};
	static const struct row rows[] = {
		{0, NEVER, 2, -1, "a"}, {0, 5, 2, -1, "a"}, {5, 99, 2, -1, "a"}, {10, 20, 1, -1, "a"}};
	struct run run = {.config = new_config(pools, 1)};
	const struct fleet_options options = {.config = run.config, .rates = RATES, .workers = 1};

	begin(&run, &options);
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		start(&run, i + 1, &rows[i]);
	assert_int_equal(fleet_finish(run.fleet), 0);
	const struct profile *profile = fleet_get_profile(run.fleet);
	assert_int_equal(profile->count, 2);
	assert_int_equal(profile->sizes[0].bytes, PAGE);
	assert_true(profile->sizes[0].mean == 0);
	assert_int_equal(profile->sizes[1].starts, 3);
	assert_true(profile->sizes[1].mean == 2);
	fleet_free(run.fleet);
	free(run.config);
}

/* ---- random traces ---- */

#define CHECK(run, condition)                                                                                \
	do {                                                                                                 \
		if (!(condition))                                                                            \
			fail_msg("seed %" PRIu64 ": not so: %s", (run)->seed, #condition);                   \
	} while (0)

static uint64_t count_pages(const struct planner_take *takes, size_t count)
{
	uint64_t pages = 0;

	for (size_t i = 0; i < count; i++)
		pages += takes[i].segment_pages * takes[i].count;
	return pages;
}

/* What the fleet goes by is what the planner says of that inventory, and the inventory can be. */
static void check_plan(const struct planner_input *input, const struct planner_request *request,
	const struct planner_plan *plan, void *user)
{
	struct run *run = user;
	static struct planner_plan again;
	uint64_t lengths = 0, most = 0;

	run->plans++;
	planner_plan(input, request, &again);
	CHECK(run, memcmp(plan, &again, sizeof again) == 0);
	for (size_t i = 0; i < input->class_count; i++) {
		const struct planner_class *class = &input->classes[i];
		CHECK(run, i == 0 || class->segment_pages > input->classes[i - 1].segment_pages);
		CHECK(run, class->dirty <= class->coming);
		lengths += (class->clean + class->coming) * class->segment_pages;
	}
	for (size_t i = 0; i < run->config->pool_count; i++)
		most = MAX(most, run->config->pools[i].max_pages);
	CHECK(run, input->usable_pages <= most);
	CHECK(run, input->room_pages <= most);
	CHECK(run, plan->kind == PLANNER_WAIT || count_pages(plan->takes, plan->take_count) <= lengths);
}

static void make_random_config(struct run *run, struct dice *dice)
{
	struct config_pool pools[2] = {{.page_size = 0}};

	for (size_t i = 0; i < 1 + dice_roll(dice, 2); i++) {
		struct config_pool *pool = &pools[i];
		uint64_t left = pool->pages = dice_between(dice, 4, 64);
		pool->page_size = PAGE;
		pool->node = (int32_t)i;
		pool->max_pages = pool->pages + dice_roll(dice, 16);
		pool->is_learning = dice_chance(dice, 30);
		pool->stock_share = 80;
		pool->stock_half_life_ns = 100 * NS_PER_S;
		pool->reuse = dice_chance(dice, 20) ? CONFIG_REUSE_NEVER : CONFIG_REUSE_PROVEN;
		for (size_t n = 0; n < 3; n++) {
			uint64_t each = 1 + n * 3 + dice_roll(dice, 3);
			uint64_t count = dice_roll(dice, left / each + 1);
			if (count == 0)
				break;
			pool->stock[n] = (struct config_stock){each * PAGE, count};
			left -= each * count;
		}
	}
	run->config = new_config(pools, 2);
	run->config->clear.reshape_percent = (uint32_t)dice_roll(dice, 60);
	if (dice_chance(dice, 20))
		run->config->clear.rate_bytes_per_s = PAGE / 4;
}

static void check_tally(struct run *run, unsigned rows)
{
	const struct tally *tally = fleet_get_tally(run->fleet);
	uint64_t sum = 0;

	for (size_t i = 0; i < TALLY_OUTCOMES; i++)
		sum += tally->counts[i];
	CHECK(run, run->told == rows && tally->starts == rows && sum == rows);
	CHECK(run, tally->all.count == rows - tally->counts[TALLY_REFUSED] - tally->counts[TALLY_IMPOSSIBLE]);
	CHECK(run, tally->extended.count == tally->counts[TALLY_EXTENDED]);
	CHECK(run, tally->waited.count == tally->counts[TALLY_WAITED]);
	CHECK(run, tally->kernel.count + tally->kernel_refused == rows);
	CHECK(run, run->plans > 0);
}

/* What each answer promises: at once is at once, and nobody waits longer than it wants to, zeroing apart. */
static void check_starts(struct run *run, const struct row *rows, unsigned count, uint64_t patience_ns)
{
	for (unsigned i = 0; i < count; i++) {
		const struct tally_start *start = &run->starts[i + 1];
		uint64_t life_ns = rows[i].end_s == NEVER ? UINT64_MAX
							  : (uint64_t)(rows[i].end_s * 1e9) -
								    (uint64_t)(rows[i].start_s * 1e9);
		uint64_t zeroing_ns = (uint64_t)(start->zeroed_bytes / (double)(PAGE * 2) * 1e9);
		switch (start->outcome) {
		case TALLY_EXACT:
		case TALLY_TRIMMED:
		case TALLY_SEVERAL:
			CHECK(run, start->wait_ns == 0 && start->zeroed_bytes == 0);
			break;
		case TALLY_EXTENDED:
			CHECK(run, start->zeroed_bytes > 0 && start->wait_ns >= zeroing_ns);
			CHECK(run, start->zeroed_bytes <= (double)(rows[i].pages * PAGE));
			break;
		case TALLY_WAITED:
			CHECK(run, start->wait_ns > 0 && patience_ns > 0);
			CHECK(run, start->zeroed_bytes > 0 || start->wait_ns <= MIN(patience_ns, life_ns));
			break;
		case TALLY_REFUSED:
		case TALLY_IMPOSSIBLE:
		case TALLY_OUTCOMES:
			break;
		}
	}
}

static void check_random(uint64_t seed, void *user)
{
	static const char *const hosts[] = {"a", "b", "c"};
	static const uint64_t patiences[] = {0, 10 * NS_PER_S, 1000 * NS_PER_S, FLEET_FOREVER};
	struct run run = {.seed = seed};
	struct row rows[ROWS];
	struct dice dice;
	double now_s = 0;

	dice_init(&dice, seed);
	make_random_config(&run, &dice);
	const struct fleet_options options = {.config = run.config,
		.rates = RATES,
		.workers = 1 + (unsigned)dice_roll(&dice, 3),
		.patience_ns = patiences[dice_roll(&dice, ARRAY_SIZE(patiences))],
		.takes_segments = dice_chance(&dice, 50),
		.told = note,
		.planned = check_plan,
		.user = &run};
	begin(&run, &options);
	for (unsigned i = 0; i < ROWS; i++) {
		now_s += (double)dice_roll(&dice, 20) / 4;
		rows[i] = (struct row){now_s,
			dice_chance(&dice, 10) ? NEVER : now_s + (double)dice_roll(&dice, 100) / 2,
			dice_between(&dice, 1, dice_chance(&dice, 20) ? 80 : 12),
			(int32_t)dice_roll(&dice, 3) - 1, hosts[dice_roll(&dice, ARRAY_SIZE(hosts))]};
		start(&run, i + 1, &rows[i]);
	}
	assert_int_equal(fleet_finish(run.fleet), 0);
	check_tally(&run, ROWS);
	check_starts(&run, rows, ROWS, options.patience_ns);
	fleet_free(run.fleet);
	free(run.config);
}

static void test_random(void **state)
{
	dice_for_each_seed(arg_count, args, 400, check_random, NULL);
}

int main(int argc, char **argv)
{
	arg_count = argc;
	args = argv;
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_small),
		cmocka_unit_test(test_queue),
		cmocka_unit_test(test_learning),
		cmocka_unit_test(test_for_ever),
		cmocka_unit_test(test_hosts_max),
		cmocka_unit_test(test_profile),
		cmocka_unit_test(test_random),
	};
	return cmocka_run_group_tests_name("fleet", tests, NULL, NULL);
}
