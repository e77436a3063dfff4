/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* demand.c - prints which sizes are asked for, and what the stock makes of it. */
#include "demand.h"

#include <inttypes.h>

#include "size.h"

static const struct {
	const char *name, *text;
} demand_reasons[] = {
	[HPZ_DEMAND_ENOUGH] = {"enough", "as many as were out at once, and to spare"},
	[HPZ_DEMAND_RARE] = {"rare", "asked for too seldom"},
	[HPZ_DEMAND_CROWDED] = {"crowded", "others asked for more often need the pages"},
	[HPZ_DEMAND_TOO_LARGE] = {"too_large", "one alone is more than the share that is learned"},
};

/* A newer hpzd may know more. */
static bool demand_is_known_reason(uint32_t reason)
{
	return reason < ARRAY_SIZE(demand_reasons) && demand_reasons[reason].name;
}

static struct hpz_demand_pool demand_get_pool(const struct hpz_demand *demand, size_t index)
{
	struct hpz_demand_pool pool = {.struct_size = sizeof(pool)};

	hpz_demand_get_pool(demand, index, &pool);
	return pool;
}

static struct hpz_demand_size demand_get_size(const struct hpz_demand *demand, size_t pool, size_t index)
{
	struct hpz_demand_size size = {.struct_size = sizeof(size)};

	hpz_demand_get_size(demand, pool, index, &size);
	return size;
}

/* ---- JSON ---- */

static void demand_print_milli_json(struct output_json *json, const char *key, uint64_t milli)
{
	output_json_decimal(json, key, (double)milli / 1000, 3);
}

static void demand_print_size_json(struct output_json *json, const struct hpz_demand_size *size)
{
	output_json_open_object(json, NULL);
	output_json_number(json, "size", size->bytes);
	output_json_number(json, "out", size->out);
	demand_print_milli_json(json, "peak", size->peak_milli);
	output_json_open_object(json, "asked");
	demand_print_milli_json(json, "exact", size->exact_milli);
	demand_print_milli_json(json, "larger", size->larger_milli);
	demand_print_milli_json(json, "zeroed", size->zeroed_milli);
	demand_print_milli_json(json, "waited", size->waited_milli);
	demand_print_milli_json(json, "refused", size->refused_milli);
	output_json_close(json);
	output_json_number(json, "wanted", size->wanted);
	output_json_number(json, "fixed", size->fixed);
	output_json_number(json, "proposed", size->proposed);
	output_json_number(json, "there", size->there);
	output_json_number(json, "clean", size->clean);
	output_json_text(json, "reason",
		demand_is_known_reason(size->reason) ? demand_reasons[size->reason].name : "unknown");
	output_json_close(json);
}

static void demand_print_pool_json(struct output_json *json, const struct hpz_demand *demand, size_t index)
{
	struct hpz_demand_pool pool = demand_get_pool(demand, index);

	output_json_open_object(json, NULL);
	output_json_text(json, "pool", pool.pool);
	output_json_integer(json, "node", pool.node);
	output_json_number(json, "page_size", pool.page_size);
	output_json_bool(json, "learns", pool.learns);
	output_json_number(json, "target", pool.target);
	output_json_number(json, "fixed", pool.fixed);
	output_json_number(json, "learned", pool.learned);
	output_json_number(json, "most", pool.most);
	output_json_number(json, "large", pool.large);
	output_json_number(json, "half_life_ms", pool.half_life_ms);
	output_json_open_list(json, "sizes");
	for (size_t i = 0; i < pool.size_count; i++) {
		struct hpz_demand_size size = demand_get_size(demand, index, i);
		demand_print_size_json(json, &size);
	}
	output_json_close(json);
	output_json_close(json);
}

void demand_print_json(struct output_json *json, const char *key, const struct hpz_demand *demand)
{
	if (!demand) {
		output_json_null(json, key);
		return;
	}
	output_json_open_list(json, key);
	for (size_t i = 0; i < hpz_demand_get_pool_count(demand); i++)
		demand_print_pool_json(json, demand, i);
	output_json_close(json);
}

/* ---- for people ---- */

static uint64_t demand_get_asked(const struct hpz_demand_size *size)
{
	return size->exact_milli + size->larger_milli + size->zeroed_milli + size->waited_milli +
	       size->refused_milli;
}

static void demand_add_milli(struct output_table *table, uint64_t milli)
{
	output_table_add(table, "%" PRIu64 ".%" PRIu64, (milli + 50) / 1000, (milli + 50) % 1000 / 100);
}

static void demand_add_size(struct output_table *table, const struct hpz_demand_size *size)
{
	char bytes[SIZE_TEXT];
	uint64_t asked = demand_get_asked(size);

	output_table_add(table, "%s", size_format(size->bytes, bytes));
	demand_add_milli(table, asked);
	if (asked)
		output_table_add(table, "%" PRIu64 " %%", size->exact_milli * 100 / asked);
	else
		output_table_add(table, "-");
	output_table_add(table, "%" PRIu64, size->out);
	demand_add_milli(table, size->peak_milli);
	output_table_add(table, "%" PRIu64, size->wanted);
	output_table_add(table, "%" PRIu64, size->fixed + size->proposed);
	output_table_add(table, "%" PRIu64, size->there);
	output_table_add(table, "%" PRIu64, size->clean);
	output_table_add(table, "%s",
		demand_is_known_reason(size->reason) ? demand_reasons[size->reason].text : "unknown");
}

static void demand_print_head(FILE *file, const struct hpz_demand_pool *pool)
{
	char learned[SIZE_TEXT], most[SIZE_TEXT], target[SIZE_TEXT], half_life[OUTPUT_DURATION];

	output_print_text(file, pool->pool);
	fprintf(file,
		", node %" PRId32 ": %s; %s of %s, at most %s; what is not repeated counts half after %s\n",
		pool->node,
		pool->learns ? "the stock follows demand" : "the stock is fixed; if it followed demand",
		size_format(pool->learned, learned), size_format(pool->target, target),
		size_format(pool->most, most), output_format_duration(pool->half_life_ms, half_life));
}

static void demand_print_pool(FILE *file, const struct hpz_demand *demand, size_t index)
{
	static const char *const headings[] = {">SIZE", ">ASKED", ">EXACT", ">OUT", ">PEAK", ">WANTED",
		">STOCK", ">THERE", ">CLEAN", "WHY NO MORE"};
	struct hpz_demand_pool pool = demand_get_pool(demand, index);
	struct output_table table;

	demand_print_head(file, &pool);
	if (!pool.size_count)
		fputs("Nothing was asked for lately.\n", file);
	output_table_init(&table, headings, ARRAY_SIZE(headings));
	for (size_t i = 0; i < pool.size_count; i++) {
		struct hpz_demand_size size = demand_get_size(demand, index, i);
		demand_add_size(&table, &size);
	}
	output_table_print(&table, file);
	output_table_deinit(&table);
}

void demand_print(FILE *file, const struct hpz_demand *demand)
{
	if (!hpz_demand_get_pool_count(demand))
		fputs("No pools.\n", file);
	for (size_t i = 0; i < hpz_demand_get_pool_count(demand); i++) {
		if (i)
			fputc('\n', file);
		demand_print_pool(file, demand, i);
	}
}

void demand_print_summary(FILE *file, const struct hpz_demand *demand)
{
	char bytes[SIZE_TEXT];

	for (size_t i = 0; i < hpz_demand_get_pool_count(demand); i++) {
		struct hpz_demand_pool pool = demand_get_pool(demand, i);
		const char *before = ": the stock follows demand:";
		if (!pool.learns || !pool.learned)
			continue;
		output_print_text(file, pool.pool);
		for (size_t k = 0; k < pool.size_count; k++) {
			struct hpz_demand_size size = demand_get_size(demand, i, k);
			if (!size.proposed)
				continue;
			fprintf(file, "%s %" PRIu64 " of %s", before, size.proposed,
				size_format(size.bytes, bytes));
			before = ",";
		}
		fputs(" (hpzctl demand)\n", file);
	}
}
