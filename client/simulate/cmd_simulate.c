/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* cmd_simulate.c - hpzctl simulate: what a trace of VM starts would have got from pools as in a hpzd.conf. */
#include "../hpzctl.h"

#include <inttypes.h>
#include <math.h>

#include "../options.h"
#include "../output.h"
#include "fleet.h"
#include "size.h"
#include "stocks.h"

/*
 * Of one node, as `hpzctl bench clear` measured them for client/bench/clear.svg: one worker, and the kernel
 * on one CPU, on memory that was touched before.
 */
#define CLEAR_RATE    50000000000u
#define KERNEL_RATE   22000000000u
#define RATES_SOURCE  "hpzctl bench clear on one CPU of an AMD EPYC of 2024"
#define RATE_MIN      ((uint64_t)1 << 20)
#define WORKERS_AUTO  4 /* one a CPU, at most so many */
#define PATIENCE_MS   60000
#define STEP_ROWS     4096 /* between two looks at the progress bar */
#define EACH_HEADINGS "line,outcome,wait,zeroed,kernel"

struct simulation {
	struct hpzctl *ctl;
	const char *path;
	struct config *config;
	struct fleet_options options;
	const char *rates_source;
	int64_t patience_ms;
	unsigned passes, pass; /* of the trace, and which one this is, from 0 */
};

/* What came of one stock. */
struct outcome {
	enum stocks_kind kind;
	struct fleet_stock stocks[CONFIG_POOLS_MAX];
	struct tally tally;
};

/* ---- the pools ---- */

/* No pool but the rest as in an empty file, then so many alike. */
static int cmd_simulate_make_pools(struct simulation *sim, uint64_t bytes, uint64_t page_size, uint64_t nodes)
{
	char why[TRACE_ERROR];

	if (config_read("/dev/null", false, sim->config, why, sizeof why) < 0) {
		hpzctl_say("%s", why);
		return HPZCTL_FAILED;
	}
	if (page_size & (page_size - 1))
		return hpzctl_fail_usage(sim->ctl, "--page-size: not the size of a huge page, as 2M or 1G");
	if (bytes % page_size)
		return hpzctl_fail_usage(sim->ctl, "--pool-size: not whole pages");
	if (nodes > CONFIG_POOLS_MAX)
		return hpzctl_fail_usage(sim->ctl, "--nodes: more than %d", CONFIG_POOLS_MAX);
	for (uint64_t i = 0; i < nodes; i++) {
		struct config_pool *pool = &sim->config->pools[sim->config->pool_count++];
		config_init_pool(pool, page_size, (int32_t)i, bytes / page_size);
		snprintf(pool->name, sizeof pool->name, "node%" PRIu64, i);
	}
	return HPZCTL_DONE;
}

static int cmd_simulate_read_config(struct simulation *sim, const char *path)
{
	char why[TRACE_ERROR];

	if (config_read(path, false, sim->config, why, sizeof why) < 0) {
		hpzctl_say("%s", why);
		hpzctl_say("name a file with --config, or say --pool-size");
		return HPZCTL_FAILED;
	}
	if (sim->config->pool_count == 0) {
		hpzctl_say("%s has no pool: name another file with --config, or say --pool-size", path);
		return HPZCTL_FAILED;
	}
	return HPZCTL_DONE;
}

static int cmd_simulate_set_stock(struct simulation *sim, const char *stock)
{
	for (size_t i = 0; stock && i < sim->config->pool_count; i++) {
		char why[TRACE_ERROR];
		if (config_set_stock(&sim->config->pools[i], stock, why, sizeof why) < 0)
			return hpzctl_fail_usage(sim->ctl, "--stock: %s", why);
	}
	return HPZCTL_DONE;
}

/* ---- one pass ---- */

static void cmd_simulate_tell(unsigned long line, const struct tally_start *start, void *user)
{
	static const char *const names[TALLY_OUTCOMES] = {
		"exact", "trimmed", "several", "extended", "waited", "refused", "impossible"};

	printf("%lu,%s,", line, names[start->outcome]);
	if (start->outcome != TALLY_REFUSED && start->outcome != TALLY_IMPOSSIBLE)
		printf("%.6f", (double)start->wait_ns / (double)NS_PER_S);
	printf(",%.0f,", start->zeroed_bytes);
	if (start->kernel_ns != UINT64_MAX)
		printf("%.6f", (double)start->kernel_ns / (double)NS_PER_S);
	putchar('\n');
}

static void cmd_simulate_progress(const struct simulation *sim, const struct trace *trace)
{
	uint64_t length = trace_get_length(trace);

	if (length > 0 && !sim->options.told)
		output_progress(stderr, sim->pass * length + trace_get_position(trace), sim->passes * length);
}

static int cmd_simulate_read(struct simulation *sim, struct trace *trace, struct fleet *fleet)
{
	struct trace_row row;
	char why[TRACE_ERROR];
	int r, failed = 0;

	for (uint64_t rows = 0; (r = trace_next(trace, &row, why)) > 0; rows++) {
		failed = fleet_start(fleet, &row);
		if (failed < 0)
			break;
		if (rows % STEP_ROWS == 0)
			cmd_simulate_progress(sim, trace);
	}
	output_progress_end(stderr);
	if (r < 0)
		hpzctl_say("%s", why);
	if (r == 0)
		failed = fleet_finish(fleet);
	if (failed < 0)
		hpzctl_say("%s: %s", sim->path, strerror(-failed));
	return r < 0 || failed < 0 ? HPZCTL_FAILED : HPZCTL_DONE;
}

/* The trace once, with these stocks. */
static int cmd_simulate_pass(
	struct simulation *sim, const struct fleet_stock *stocks, struct fleet **ret_fleet)
{
	_cleanup_trace_ struct trace *trace = NULL;
	_cleanup_fleet_ struct fleet *fleet = NULL;
	char why[TRACE_ERROR];

	if (trace_open(sim->path, &trace, why) < 0) {
		hpzctl_say("%s", why);
		return HPZCTL_FAILED;
	}
	if (fleet_new(&sim->options, stocks, &fleet) < 0) {
		hpzctl_say("no memory");
		return HPZCTL_FAILED;
	}
	int status = cmd_simulate_read(sim, trace, fleet);
	if (status != HPZCTL_DONE)
		return status;
	if (fleet_get_tally(fleet)->starts == 0) {
		hpzctl_say("%s: no start in it", sim->path);
		return HPZCTL_FAILED;
	}
	sim->pass++;
	*ret_fleet = steal_pointer(&fleet);
	return HPZCTL_DONE;
}

/* ---- for people ---- */

#define WAIT_TEXT 24
static const char *cmd_simulate_format_wait(double s, char text[WAIT_TEXT])
{
	if (s < 0.0000005)
		snprintf(text, WAIT_TEXT, "0");
	else if (s < 0.001)
		snprintf(text, WAIT_TEXT, "%.0f us", s * 1e6);
	else if (s < 1)
		snprintf(text, WAIT_TEXT, "%.1f ms", s * 1e3);
	else
		snprintf(text, WAIT_TEXT, "%.1f s", s);
	return text;
}

static const char *cmd_simulate_format_ns(uint64_t ns, char text[WAIT_TEXT])
{
	return cmd_simulate_format_wait((double)ns / (double)NS_PER_S, text);
}

static double cmd_simulate_get_percent(double part, double all)
{
	return all > 0 ? part * 100 / all : NAN;
}

static double cmd_simulate_get_mean(const struct tally_waits *waits)
{
	return waits->count ? waits->sum_s / (double)waits->count : NAN;
}

/* The trace, the pools of each host, the rates. */
static void cmd_simulate_print_setting(
	const struct simulation *sim, const struct fleet *fleet, const struct fleet_stock *stocks)
{
	const struct fleet_facts *facts = fleet_get_facts(fleet);
	const struct depot_rates *rates = &sim->options.rates;
	char duration[OUTPUT_DURATION], text[3][SIZE_TEXT], stock[STOCKS_TEXT];

	output_print_text(stdout, sim->path);
	printf(": %" PRIu64 " starts on %" PRIu64 " host%s in %s, at most %" PRIu64 " VMs at once\n",
		fleet_get_tally(fleet)->starts, facts->hosts, facts->hosts == 1 ? "" : "s",
		output_format_duration((facts->last_ns - facts->first_ns) / NS_PER_MS, duration),
		facts->living_most);
	if (facts->skipped_rows > 0)
		printf("passed over, on further hosts: %" PRIu64 " starts\n", facts->skipped_rows);
	for (size_t i = 0; i < sim->config->pool_count; i++) {
		const struct config_pool *pool = &sim->config->pools[i];
		printf("pool %s: node %" PRId32 ", pages of %s, %s, stock %s\n", pool->name, pool->node,
			size_format_exact(pool->page_size, text[0]),
			size_format(pool->pages * pool->page_size, text[1]),
			stocks_format(&stocks[i], stock));
	}
	printf("rates of a node, each second: clears %s, fills %s, zeroes for a start %s (%s)\n\n",
		size_format(rates->clear, text[0]), size_format(rates->fill, text[1]),
		size_format(rates->zero, text[2]), sim->rates_source);
}

static void cmd_simulate_add_row(struct output_table *table, const char *name, uint64_t count,
	uint64_t starts, const struct tally_waits *waits)
{
	char text[WAIT_TEXT];

	output_table_add(table, "%s", name);
	output_table_add(table, "%" PRIu64, count);
	output_table_add(table, "%.2f %%", cmd_simulate_get_percent((double)count, (double)starts));
	if (!waits || waits->count == 0) {
		for (int i = 0; i < 4; i++)
			output_table_add(table, "-");
		return;
	}
	output_table_add(table, "%s", cmd_simulate_format_wait(cmd_simulate_get_mean(waits), text));
	output_table_add(table, "%s", cmd_simulate_format_ns(tally_get_percentile(waits, 50), text));
	output_table_add(table, "%s", cmd_simulate_format_ns(tally_get_percentile(waits, 99), text));
	output_table_add(table, "%s", cmd_simulate_format_ns(waits->most_ns, text));
}

static void cmd_simulate_print_tally(const struct tally *tally)
{
	static const char *const headings[] = {
		"START", ">COUNT", ">SHARE", ">MEAN WAIT", ">MEDIAN", ">99 %", ">LONGEST"};
	const struct {
		const char *name;
		uint64_t count;
		const struct tally_waits *waits;
	} rows[] = {
		{"exact", tally->counts[TALLY_EXACT], NULL},
		{"trimmed", tally->counts[TALLY_TRIMMED], NULL},
		{"several", tally->counts[TALLY_SEVERAL], NULL},
		{"extended", tally->counts[TALLY_EXTENDED], &tally->extended},
		{"waited", tally->counts[TALLY_WAITED], &tally->waited},
		{"refused", tally->counts[TALLY_REFUSED], NULL},
		{"impossible", tally->counts[TALLY_IMPOSSIBLE], NULL},
		{"with hpz", tally->all.count, &tally->all},
		{"without hpz", tally->kernel.count, &tally->kernel},
	};
	struct output_table table;

	output_table_init(&table, headings, ARRAY_SIZE(headings));
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		cmd_simulate_add_row(&table, rows[i].name, rows[i].count, tally->starts, rows[i].waits);
	output_table_print(&table, stdout);
	output_table_deinit(&table);
	printf("\n%.2f %% of the starts got clean memory at once; %.2f %% of the bytes were zeroed while a "
	       "start waited.\n",
		cmd_simulate_get_percent((double)tally_get_clean(tally), (double)tally->starts),
		cmd_simulate_get_percent(tally->zeroed_bytes, tally->asked_bytes));
	printf("Worse than without hpz: %" PRIu64 " not served, %" PRIu64 " later.\n", tally->lost,
		tally->slower);
}

static void cmd_simulate_print_outcomes(const struct simulation *sim, const struct outcome *outcomes,
	size_t count, const struct outcome *best)
{
	static const char *const headings[] = {
		"STOCK", ">CLEAN", ">EXTENDED", ">WAITED", ">REFUSED", ">MEAN WAIT", ">99 %", ">LONGEST"};
	char text[WAIT_TEXT], stock[STOCKS_TEXT];
	struct output_table table;

	output_table_init(&table, headings, ARRAY_SIZE(headings));
	for (size_t i = 0; i < count; i++) {
		const struct tally *tally = &outcomes[i].tally;
		double starts = (double)tally->starts;
		output_table_add(&table, "%s", stocks_get_name(outcomes[i].kind));
		output_table_add(
			&table, "%.2f %%", cmd_simulate_get_percent((double)tally_get_clean(tally), starts));
		output_table_add(&table, "%.2f %%",
			cmd_simulate_get_percent((double)tally->counts[TALLY_EXTENDED], starts));
		output_table_add(&table, "%.2f %%",
			cmd_simulate_get_percent((double)tally->counts[TALLY_WAITED], starts));
		output_table_add(&table, "%" PRIu64, tally->counts[TALLY_REFUSED]);
		output_table_add(
			&table, "%s", cmd_simulate_format_wait(cmd_simulate_get_mean(&tally->all), text));
		output_table_add(
			&table, "%s", cmd_simulate_format_ns(tally_get_percentile(&tally->all, 99), text));
		output_table_add(&table, "%s", cmd_simulate_format_ns(tally->all.most_ns, text));
	}
	putchar('\n');
	output_table_print(&table, stdout);
	output_table_deinit(&table);
	printf("\nbest of these: %s\n", stocks_get_name(best->kind));
	for (size_t i = 0; i < sim->config->pool_count; i++)
		printf("    [pool %s]\n    stock = %s\n", sim->config->pools[i].name,
			stocks_format(&best->stocks[i], stock));
}

/* ---- for programs ---- */

static void cmd_simulate_json_waits(
	struct output_json *json, const char *key, const struct tally_waits *waits)
{
	bool any = waits->count > 0;

	output_json_open_object(json, key);
	output_json_number(json, "count", waits->count);
	output_json_decimal(json, "mean", cmd_simulate_get_mean(waits), 6);
	output_json_decimal(json, "p50", any ? (double)tally_get_percentile(waits, 50) / 1e9 : NAN, 6);
	output_json_decimal(json, "p99", any ? (double)tally_get_percentile(waits, 99) / 1e9 : NAN, 6);
	output_json_decimal(json, "most", any ? (double)waits->most_ns / 1e9 : NAN, 6);
	output_json_close(json);
}

static void cmd_simulate_json_tally(struct output_json *json, const struct tally *tally)
{
	output_json_number(json, "starts", tally->starts);
	output_json_number(json, "exact", tally->counts[TALLY_EXACT]);
	output_json_number(json, "trimmed", tally->counts[TALLY_TRIMMED]);
	output_json_number(json, "several", tally->counts[TALLY_SEVERAL]);
	output_json_number(json, "extended", tally->counts[TALLY_EXTENDED]);
	output_json_number(json, "waited", tally->counts[TALLY_WAITED]);
	output_json_number(json, "refused", tally->counts[TALLY_REFUSED]);
	output_json_number(json, "impossible", tally->counts[TALLY_IMPOSSIBLE]);
	output_json_decimal(json, "clean_share", (double)tally_get_clean(tally) / (double)tally->starts, 6);
	output_json_decimal(json, "zeroed_share",
		tally->asked_bytes > 0 ? tally->zeroed_bytes / tally->asked_bytes : NAN, 6);
	output_json_number(json, "lost", tally->lost);
	output_json_number(json, "slower", tally->slower);
	cmd_simulate_json_waits(json, "wait", &tally->all);
	cmd_simulate_json_waits(json, "wait_extended", &tally->extended);
	cmd_simulate_json_waits(json, "wait_waited", &tally->waited);
}

static void cmd_simulate_json_stocks(
	struct output_json *json, const struct simulation *sim, const struct fleet_stock *stocks)
{
	output_json_open_list(json, "pools");
	for (size_t i = 0; i < sim->config->pool_count; i++) {
		const struct config_pool *pool = &sim->config->pools[i];
		char text[STOCKS_TEXT];
		output_json_open_object(json, NULL);
		output_json_text(json, "name", pool->name);
		output_json_integer(json, "node", pool->node);
		output_json_number(json, "page_size", pool->page_size);
		output_json_number(json, "pages", pool->pages);
		output_json_text(json, "stock", stocks_format(&stocks[i], text));
		output_json_close(json);
	}
	output_json_close(json);
}

static void cmd_simulate_json_outcome(struct output_json *json, const char *key, const struct simulation *sim,
	const struct outcome *outcome)
{
	output_json_open_object(json, key);
	output_json_text(json, "name", stocks_get_name(outcome->kind));
	cmd_simulate_json_stocks(json, sim, outcome->stocks);
	cmd_simulate_json_tally(json, &outcome->tally);
	output_json_close(json);
}

static void cmd_simulate_print_json(const struct simulation *sim, const struct fleet *fleet,
	const struct outcome *outcomes, size_t count, const struct outcome *best)
{
	const struct fleet_facts *facts = fleet_get_facts(fleet);
	const struct tally *tally = &outcomes[0].tally;
	struct output_json json;

	output_json_init(&json, stdout);
	output_json_open_object(&json, NULL);
	output_json_text(&json, "schema", "hpz-simulate-1");
	output_json_text(&json, "trace", sim->path);
	output_json_number(&json, "hosts", facts->hosts);
	output_json_number(&json, "skipped", facts->skipped_rows);
	output_json_decimal(&json, "seconds", (double)(facts->last_ns - facts->first_ns) / 1e9, 3);
	output_json_number(&json, "living_most", facts->living_most);
	output_json_number(&json, "clear_rate", sim->options.rates.clear);
	output_json_number(&json, "fill_rate", sim->options.rates.fill);
	output_json_number(&json, "zero_rate", sim->options.rates.zero);
	output_json_text(&json, "rates_source", sim->rates_source);
	cmd_simulate_json_outcome(&json, "result", sim, &outcomes[0]);
	output_json_open_object(&json, "without");
	output_json_number(&json, "refused", tally->kernel_refused);
	cmd_simulate_json_waits(&json, "wait", &tally->kernel);
	output_json_close(&json);
	output_json_open_list(&json, "candidates");
	for (size_t i = 0; best && i < count; i++)
		cmd_simulate_json_outcome(&json, NULL, sim, &outcomes[i]);
	output_json_close(&json);
	output_json_text_or_null(&json, "best", best ? stocks_get_name(best->kind) : "");
	output_json_close(&json);
}

/* ---- all of it ---- */

static bool cmd_simulate_is_tried(const struct simulation *sim, const struct outcome *outcomes, size_t count)
{
	size_t bytes = sim->config->pool_count * sizeof(struct fleet_stock);

	for (size_t i = 0; i < count; i++) {
		if (memcmp(outcomes[i].stocks, outcomes[count].stocks, bytes) == 0)
			return true;
	}
	return false;
}

/* The other stocks, each in a pass of its own; returns the exit status. */
static int cmd_simulate_try_others(
	struct simulation *sim, const struct fleet *first, struct outcome *outcomes, size_t *count)
{
	sim->passes = STOCKS_KINDS;
	for (int kind = 1; kind < STOCKS_KINDS; kind++) {
		_cleanup_fleet_ struct fleet *fleet = NULL;
		struct outcome *outcome = &outcomes[*count];
		*outcome = (struct outcome){.kind = (enum stocks_kind)kind};
		stocks_make(outcome->kind, sim->config, fleet_get_profile(first),
			fleet_get_facts(first)->hosts, outcome->stocks);
		if (cmd_simulate_is_tried(sim, outcomes, *count)) {
			sim->passes--;
			continue;
		}
		int status = cmd_simulate_pass(sim, outcome->stocks, &fleet);
		if (status != HPZCTL_DONE)
			return status;
		outcome->tally = *fleet_get_tally(fleet);
		++*count;
	}
	return HPZCTL_DONE;
}

static int cmd_simulate_run(struct simulation *sim, bool wants_best)
{
	_cleanup_fleet_ struct fleet *fleet = NULL;
	_cleanup_free_ struct outcome *outcomes = calloc(STOCKS_KINDS, sizeof *outcomes);
	const struct outcome *best = NULL;
	size_t count = 1;

	if (!outcomes) {
		hpzctl_say("no memory");
		return HPZCTL_FAILED;
	}
	sim->passes = wants_best ? STOCKS_KINDS : 1;
	stocks_make(STOCKS_CONFIGURED, sim->config, NULL, 0, outcomes[0].stocks);
	if (sim->options.told)
		puts(EACH_HEADINGS);
	int status = cmd_simulate_pass(sim, outcomes[0].stocks, &fleet);
	if (status != HPZCTL_DONE || sim->options.told)
		return status;
	outcomes[0].tally = *fleet_get_tally(fleet);
	if (wants_best) {
		status = cmd_simulate_try_others(sim, fleet, outcomes, &count);
		if (status != HPZCTL_DONE)
			return status;
		best = &outcomes[0];
		for (size_t i = 1; i < count; i++)
			best = tally_compare(&outcomes[i].tally, &best->tally) < 0 ? &outcomes[i] : best;
	}
	if (sim->ctl->json) {
		cmd_simulate_print_json(sim, fleet, outcomes, count, best);
		return HPZCTL_DONE;
	}
	cmd_simulate_print_setting(sim, fleet, outcomes[0].stocks);
	cmd_simulate_print_tally(&outcomes[0].tally);
	if (best)
		cmd_simulate_print_outcomes(sim, outcomes, count, best);
	return HPZCTL_DONE;
}

static int cmd_simulate_check(
	struct simulation *sim, const struct depot_rates *asked, bool wants_best, bool wants_each)
{
	struct depot_rates *rates = &sim->options.rates;
	bool is_given = asked->clear || asked->fill || asked->zero;

	if (wants_best && strcmp(sim->path, "-") == 0)
		return hpzctl_fail_usage(sim->ctl, "--best reads the trace several times: give it as a file");
	if (wants_each && (wants_best || sim->ctl->json))
		return hpzctl_fail_usage(
			sim->ctl, "--each is a format of its own, without --best and --json");
	*rates = (struct depot_rates){
		.clear = asked->clear ? asked->clear : CLEAR_RATE,
		.zero = asked->zero ? asked->zero : KERNEL_RATE,
		.fill = asked->fill ? asked->fill : KERNEL_RATE,
	};
	if (rates->clear < RATE_MIN || rates->zero < RATE_MIN || rates->fill < RATE_MIN)
		return hpzctl_fail_usage(sim->ctl, "a rate below 1M a second");
	sim->rates_source = is_given ? "as given" : RATES_SOURCE;
	sim->options.told = wants_each ? cmd_simulate_tell : NULL;
	sim->options.patience_ns =
		sim->patience_ms == HPZ_FOREVER ? FLEET_FOREVER : (uint64_t)sim->patience_ms * NS_PER_MS;
	return HPZCTL_DONE;
}

int cmd_simulate(struct hpzctl *ctl, int argc, char **argv)
{
	_cleanup_free_ struct config *config = calloc(1, sizeof *config);
	struct simulation sim = {.ctl = ctl, .config = config, .patience_ms = PATIENCE_MS};
	struct depot_rates rates = {0};
	uint64_t pool_size = 0, page_size = (uint64_t)2 << 20, nodes = 1;
	const char *config_path = NULL, *stock = NULL;
	bool wants_best = false, wants_each = false;
	const struct options_row rows[] = {
		{"config", OPTIONS_TEXT, &config_path, "FILE",
			"pools of every host (default " CONFIG_DEFAULT_PATH ")"},
		{"pool-size", OPTIONS_SIZE, &pool_size, "SIZE",
			"no file: one pool of that size on each node"},
		{"page-size", OPTIONS_SIZE, &page_size, "SIZE", "of these pools (default 2M)"},
		{"nodes", OPTIONS_COUNT, &nodes, "N", "how many of them a host has (default 1)"},
		{"stock", OPTIONS_TEXT, &stock, "STOCK", "stock of each pool, as in hpzd.conf"},
		{"best", OPTIONS_FLAG, &wants_best, NULL, "try other stocks too, and say which was best"},
		{"hosts", OPTIONS_COUNT, &sim.options.hosts_max, "N", "only the first N hosts of the trace"},
		{"wait", OPTIONS_SECONDS, &sim.patience_ms, "S",
			"a start waits so long for memory, 0 or longer, or: forever (default 60)"},
		{"segments", OPTIONS_FLAG, &sim.options.takes_segments, NULL,
			"several files will do, where no single one is clean"},
		{"clear-rate", OPTIONS_SIZE, &rates.clear, "SIZE",
			"what workers clear in a second, of a node"},
		{"fill-rate", OPTIONS_SIZE, &rates.fill, "SIZE", "what they fill in a second"},
		{"zero-rate", OPTIONS_SIZE, &rates.zero, "SIZE",
			"what the kernel zeroes in a second while a start waits"},
		{"each", OPTIONS_FLAG, &wants_each, NULL, "print what became of each start, as CSV"},
	};
	char **operands;
	int count;

	int status = options_parse(ctl, rows, ARRAY_SIZE(rows), argc, argv, false, &operands, &count);
	if (status != OPTIONS_GO)
		return status;
	if (count != 1)
		return hpzctl_fail_usage(
			ctl, count ? "one trace at a time" : "which trace? A CSV file, or -");
	if (config_path && pool_size)
		return hpzctl_fail_usage(ctl, "--config and --pool-size: one of them");
	sim.path = operands[0];
	status = cmd_simulate_check(&sim, &rates, wants_best, wants_each);
	if (status == HPZCTL_DONE)
		status = pool_size ? cmd_simulate_make_pools(&sim, pool_size, page_size, nodes)
				   : cmd_simulate_read_config(
					     &sim, config_path ? config_path : CONFIG_DEFAULT_PATH);
	if (status == HPZCTL_DONE)
		status = cmd_simulate_set_stock(&sim, stock);
	sim.options.config = config;
	sim.options.workers = config->clear.workers ? config->clear.workers : WORKERS_AUTO;
	return status == HPZCTL_DONE ? cmd_simulate_run(&sim, wants_best) : status;
}
