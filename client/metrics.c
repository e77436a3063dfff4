/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * metrics.c - everything that hpzd tells, as metrics.
 *
 * All is asked for before the first line is written: what is printed is whole, or says that hpzd is not up.
 * Series are of pools, nodes, states and what a table of hpzd's has; never of a lease or its label, of which
 * there may be any number.
 */
#include "metrics.h"

#include <inttypes.h>

#include "clearing.h"
#include "leases.h"
#include "size.h"
#include "teardown.h"

struct metrics_source {
	struct hpz *hpz;
	struct hpz_status *status;
	struct hpz_lease_list *list;
	struct hpz_clearing *clearing; /* this and the following: NULL of an older hpzd */
	struct hpz_teardown *teardown;
	struct hpz_metrics *counted;
};

static void metrics_close(struct metrics_source *source)
{
	hpz_metrics_free(source->counted);
	hpz_teardown_free(source->teardown);
	hpz_clearing_free(source->clearing);
	hpz_list_free(source->list);
	hpz_status_free(source->status);
	if (source->hpz)
		hpz_close(source->hpz);
}

/* What an older hpzd does not know is left out. */
static int metrics_allow_older(int error)
{
	return error == HPZ_ERR_UNSUPPORTED ? HPZ_OK : error;
}

static int metrics_ask(struct metrics_source *source, const char *socket_path)
{
	struct hpz_teardown_request histograms = HPZ_TEARDOWN_REQUEST_INIT;

	histograms.flags = HPZ_TEARDOWN_HISTOGRAMS;
	int error = hpz_connect(socket_path, &source->hpz);
	if (!error)
		error = hpz_get_status(source->hpz, &source->status);
	if (!error)
		error = hpz_list(source->hpz, &source->list);
	if (!error)
		error = metrics_allow_older(hpz_get_clearing(source->hpz, &source->clearing));
	if (!error)
		error = metrics_allow_older(hpz_get_teardown(source->hpz, &histograms, &source->teardown));
	if (!error)
		error = metrics_allow_older(hpz_get_metrics(source->hpz, &source->counted));
	return error;
}

/* ---- hpzd ---- */

static void metrics_put_one(struct openmetrics *out, const char *name, const char *type, const char *unit,
	const char *help, uint64_t value)
{
	openmetrics_begin(out, name, type, unit, help);
	openmetrics_add(out, NULL, 0, value);
}

static void metrics_put_daemon(struct openmetrics *out, const struct metrics_source *source)
{
	struct hpz_daemon_status daemon = {.struct_size = sizeof(daemon)};

	hpz_status_get_daemon(source->status, &daemon);
	const struct openmetrics_label version[] = {{"version", daemon.version}};
	const struct openmetrics_label work[] = {{"proof", *daemon.proof ? daemon.proof : "unknown"},
		{"method", *daemon.method ? daemon.method : "unknown"}};
	openmetrics_begin(out, "hpz_build", "info", "", "The version of hpzd");
	openmetrics_add(out, version, ARRAY_SIZE(version), 1);
	openmetrics_begin(out, "hpz_mode", "info", "",
		"What proves that returned memory is free, and how memory is cleared");
	openmetrics_add(out, work, ARRAY_SIZE(work), 1);
	openmetrics_begin(out, "hpz_uptime_seconds", "gauge", "seconds", "Since hpzd began");
	openmetrics_add_ns(out, NULL, 0, daemon.uptime_ms * NS_PER_MS);
	metrics_put_one(out, "hpz_message", "gauge", "",
		"1: hpzd has something to say to its operator; see hpzctl status", *daemon.message != '\0');
	metrics_put_one(out, "hpz_workers", "gauge", "", "Processes that touch memory", daemon.worker_count);
	metrics_put_one(out, "hpz_worker_deaths", "counter", "",
		"Workers that ended though nobody told them to", daemon.worker_deaths);
	metrics_put_one(
		out, "hpz_connections", "gauge", "", "Clients connected now", daemon.connection_count);
	metrics_put_one(out, "hpz_book_alarms", "counter", "",
		"Differences that were found in hpzd's books; see hpzctl check", daemon.book_alarms);
	metrics_put_one(out, "hpz_leases_granted", "counter", "", "Leases given", daemon.leases_granted);
	metrics_put_one(out, "hpz_cleared_bytes", "counter", "bytes", "Memory zeroed by workers",
		daemon.bytes_cleared);
	metrics_put_one(out, "hpz_filled_bytes", "counter", "bytes",
		"Memory allocated, and zeroed by the kernel", daemon.bytes_filled);
}

/* ---- pools ---- */

/* A figure of each pool; in bytes if it counts pages. */
static const struct metrics_pool_row {
	const char *name, *type;
	bool is_pages;
	size_t offset, size; /* in struct hpz_pool_status */
	const char *help;
} metrics_pool_rows[] = {
#define PAGES(name, type, member, help)                                                                      \
	{                                                                                                    \
		name, type, true, offsetof(struct hpz_pool_status, member), 8, help                          \
	}
#define COUNT(name, type, member, help)                                                                      \
	{                                                                                                    \
		name, type, false, offsetof(struct hpz_pool_status, member),                                 \
			sizeof(((struct hpz_pool_status *)NULL)->member), help                               \
	}
	PAGES("hpz_pool_target_bytes", "gauge", target, "What the pool is to hold"),
	PAGES("hpz_pool_configured_bytes", "gauge", configured, "What hpzd.conf says that it is to hold"),
	PAGES("hpz_pool_holes_bytes", "gauge", holes, "Punched out by holders, who may touch it again"),
	PAGES("hpz_pool_reserved_bytes", "gauge", reserved_pages, "Promised to leases to come"),
	PAGES("hpz_pool_orphan_bytes", "gauge", orphan_pages,
		"Of files that are gone, which somebody still holds; beside what the pool holds"),
	PAGES("hpz_pool_raised_bytes", "gauge", raised, "What hpzd raised nr_hugepages by"),
	PAGES("hpz_pool_retired_bytes", "counter", retired_pages,
		"Given up for faulty memory or a byte that was not zero"),
	PAGES("hpz_pool_verified_bytes", "counter", verified_pages, "Read to see that it is zero"),
	COUNT("hpz_pool_largest_clean_bytes", "gauge", largest_clean,
		"The largest lease that is given at once in one piece"),
	COUNT("hpz_pool_waiting", "gauge", waiting, "Requests that wait for memory"),
	COUNT("hpz_pool_idle", "gauge", idle, "1: the stock is full, nothing returns, nobody waits"),
	COUNT("hpz_pool_clean_segments", "gauge", clean_segments, "Pieces that clean memory is in"),
	COUNT("hpz_pool_verify_hits", "counter", verify_hits,
		"Clean pieces that had a byte that was not zero"),
	COUNT("hpz_pool_memory_faults", "counter", sigbus, "Faults in memory that workers met"),
#undef PAGES
#undef COUNT
};

static const struct {
	const char *state;
	size_t offset;
} metrics_pool_states[] = {
	{"clean", offsetof(struct hpz_pool_status, clean)},
	{"leased", offsetof(struct hpz_pool_status, leased)},
	{"returning", offsetof(struct hpz_pool_status, returning)},
	{"dirty", offsetof(struct hpz_pool_status, dirty)},
	{"filling", offsetof(struct hpz_pool_status, filling)},
};

static const struct {
	const char *kind;
	size_t offset;
} metrics_pool_kernel[] = {
	{"total", offsetof(struct hpz_pool_status, kernel_nr)},
	{"free", offsetof(struct hpz_pool_status, kernel_free)},
	{"reserved", offsetof(struct hpz_pool_status, kernel_resv)},
};

static uint64_t metrics_get_member(const struct hpz_pool_status *pool, size_t offset, size_t size)
{
	uint64_t wide;
	uint32_t narrow;

	if (size == sizeof(narrow)) {
		memcpy(&narrow, (const char *)pool + offset, sizeof(narrow));
		return narrow;
	}
	memcpy(&wide, (const char *)pool + offset, sizeof(wide));
	return wide;
}

/* The labels of a pool, and room for one more. */
struct metrics_pool {
	struct hpz_pool_status status;
	char node[12], page_size[SIZE_TEXT];
	struct openmetrics_label labels[OPENMETRICS_LABELS];
};
#define METRICS_POOL_LABELS 3

static void metrics_get_pool(
	const struct metrics_source *source, uint32_t index, struct metrics_pool *ret_pool)
{
	struct metrics_pool *pool = ret_pool;

	pool->status = (struct hpz_pool_status){.struct_size = sizeof(pool->status), .name = ""};
	hpz_status_get_pool(source->status, index, &pool->status);
	snprintf(pool->node, sizeof(pool->node), "%" PRId32, pool->status.node);
	size_format_exact(pool->status.page_size, pool->page_size);
	pool->labels[0] = (struct openmetrics_label){"pool", pool->status.name};
	pool->labels[1] = (struct openmetrics_label){"node", pool->node};
	pool->labels[2] = (struct openmetrics_label){"page_size", pool->page_size};
}

static bool metrics_ends_in(const char *name, const char *end)
{
	size_t length = strlen(name), end_length = strlen(end);

	return length >= end_length && strcmp(name + length - end_length, end) == 0;
}

static void metrics_put_pool_row(struct openmetrics *out, const struct metrics_source *source, uint32_t pools,
	const struct metrics_pool_row *row)
{
	struct metrics_pool pool;

	openmetrics_begin(
		out, row->name, row->type, metrics_ends_in(row->name, "_bytes") ? "bytes" : "", row->help);
	for (uint32_t i = 0; i < pools; i++) {
		metrics_get_pool(source, i, &pool);
		openmetrics_add(out, pool.labels, METRICS_POOL_LABELS,
			metrics_get_member(&pool.status, row->offset, row->size) *
				(row->is_pages ? pool.status.page_size : 1));
	}
}

static void metrics_put_pools(struct openmetrics *out, const struct metrics_source *source)
{
	struct hpz_daemon_status daemon = {.struct_size = sizeof(daemon)};
	struct metrics_pool pool;

	hpz_status_get_daemon(source->status, &daemon);
	openmetrics_begin(out, "hpz_pool_bytes", "gauge", "bytes",
		"What the pool holds, by state; leased is with what is returning: ended, but not proven "
		"free");
	for (uint32_t i = 0; i < daemon.pool_count; i++) {
		metrics_get_pool(source, i, &pool);
		for (size_t j = 0; j < ARRAY_SIZE(metrics_pool_states); j++) {
			pool.labels[METRICS_POOL_LABELS] =
				(struct openmetrics_label){"state", metrics_pool_states[j].state};
			openmetrics_add(out, pool.labels, METRICS_POOL_LABELS + 1,
				metrics_get_member(&pool.status, metrics_pool_states[j].offset, 8) *
					pool.status.page_size);
		}
	}
	for (size_t i = 0; i < ARRAY_SIZE(metrics_pool_rows); i++)
		metrics_put_pool_row(out, source, daemon.pool_count, &metrics_pool_rows[i]);
	openmetrics_begin(out, "hpz_pool_message", "gauge", "",
		"1: something is missing to the pool; see hpzctl status");
	for (uint32_t i = 0; i < daemon.pool_count; i++) {
		metrics_get_pool(source, i, &pool);
		openmetrics_add(out, pool.labels, METRICS_POOL_LABELS, *pool.status.message != '\0');
	}
	openmetrics_begin(out, "hpz_pool_kernel_bytes", "gauge", "bytes",
		"Huge pages that the kernel has of that size on that node");
	for (uint32_t i = 0; i < daemon.pool_count; i++) {
		metrics_get_pool(source, i, &pool);
		for (size_t j = 0; j < ARRAY_SIZE(metrics_pool_kernel); j++) {
			pool.labels[METRICS_POOL_LABELS] =
				(struct openmetrics_label){"kind", metrics_pool_kernel[j].kind};
			openmetrics_add(out, pool.labels, METRICS_POOL_LABELS + 1,
				metrics_get_member(&pool.status, metrics_pool_kernel[j].offset, 8) *
					pool.status.page_size);
		}
	}
}

/* ---- leases ---- */

static const enum hpz_lease_state metrics_states[] = {
	HPZ_STATE_OFFERED, HPZ_STATE_LEASED, HPZ_STATE_RETURNING, HPZ_STATE_ORPHANED, HPZ_STATE_RESERVED};

static void metrics_put_leases(struct openmetrics *out, const struct metrics_source *source)
{
	uint64_t counts[ARRAY_SIZE(metrics_states)] = {0}, bytes[ARRAY_SIZE(metrics_states)] = {0};

	for (size_t i = 0; i < hpz_list_get_count(source->list); i++) {
		struct hpz_lease_info info = {.struct_size = sizeof(info)};
		hpz_list_get_lease(source->list, i, &info);
		for (size_t j = 0; j < ARRAY_SIZE(metrics_states); j++) {
			counts[j] += info.state == metrics_states[j];
			bytes[j] += info.state == metrics_states[j] ? info.size : 0;
		}
	}
	for (int is_bytes = 0; is_bytes < 2; is_bytes++) {
		if (is_bytes)
			openmetrics_begin(
				out, "hpz_lease_bytes", "gauge", "bytes", "Memory of leases, by state");
		else
			openmetrics_begin(
				out, "hpz_leases", "gauge", "", "Leases, reservations and orphans, by state");
		for (size_t i = 0; i < ARRAY_SIZE(metrics_states); i++) {
			const struct openmetrics_label label = {"state", leases_get_state(metrics_states[i])};
			openmetrics_add(out, &label, 1, is_bytes ? bytes[i] : counts[i]);
		}
	}
}

/* ---- clearing ---- */

enum metrics_node_family { METRICS_NODE_RATE, METRICS_NODE_QUEUED, METRICS_NODE_BACKOFF, METRICS_NODE_HELD };

static void metrics_put_node(
	struct openmetrics *out, const struct hpz_clearing_node *node, enum metrics_node_family family)
{
	char number[12];
	struct openmetrics_label labels[2] = {{"node", number}};

	snprintf(number, sizeof(number), "%" PRId32, node->node);
	switch (family) {
	case METRICS_NODE_RATE:
		openmetrics_add(out, labels, 1, node->rate_bytes_per_s);
		return;
	case METRICS_NODE_QUEUED:
		openmetrics_add(out, labels, 1, node->queued);
		return;
	case METRICS_NODE_BACKOFF:
		openmetrics_add(out, labels, 1, node->backoff);
		return;
	case METRICS_NODE_HELD:
		for (uint32_t hold = 1; hold <= HPZ_HOLD_PSI_MEMORY; hold <<= 1) {
			labels[1] = (struct openmetrics_label){"reason", clearing_get_hold_name(hold)};
			openmetrics_add(out, labels, 2, (node->holds & hold) != 0);
		}
		return;
	}
}

static void metrics_put_clearing(struct openmetrics *out, const struct metrics_source *source)
{
	static const struct {
		const char *name, *unit, *help;
	} families[] = {
		[METRICS_NODE_RATE] = {"hpz_clear_rate_bytes_per_second", "bytes_per_second",
			"Memory that workers touch now"},
		[METRICS_NODE_QUEUED] = {"hpz_clear_queued_jobs", "", "Jobs that no worker has yet"},
		[METRICS_NODE_BACKOFF] = {"hpz_clear_backoff", "",
			"So many times as long as they work workers sleep, because batches take longer than "
			"they "
			"should"},
		[METRICS_NODE_HELD] = {"hpz_clear_held", "", "1: workers stand still for that reason"},
	};
	struct hpz_clearing_info info = {.struct_size = sizeof(info)};

	if (!source->clearing)
		return;
	hpz_clearing_get_info(source->clearing, &info);
	for (size_t i = 0; i < ARRAY_SIZE(families); i++) {
		openmetrics_begin(out, families[i].name, "gauge", families[i].unit, families[i].help);
		for (uint32_t j = 0; j < info.node_count; j++) {
			struct hpz_clearing_node node = {.struct_size = sizeof(node)};
			hpz_clearing_get_node(source->clearing, j, &node);
			metrics_put_node(out, &node, (enum metrics_node_family)i);
		}
	}
}

/* ---- the ends of leases ---- */

/* Those of all labels together: of labels there may be any number. */
struct metrics_ends {
	uint64_t page_size, sum_ns;
	uint32_t stage;
	uint64_t buckets[HPZ_TEARDOWN_BUCKETS];
};
#define METRICS_ENDS       64 /* stages and page sizes */
#define METRICS_ENDS_SHIFT 10 /* the first bucket: below 2^10 ns */

static size_t metrics_add_up_ends(const struct hpz_teardown *teardown, struct metrics_ends ends[METRICS_ENDS])
{
	struct hpz_teardown_info info = {.struct_size = sizeof(info)};
	size_t count = 0;

	hpz_teardown_get_info(teardown, &info);
	for (size_t i = 0; i < info.histogram_count; i++) {
		struct hpz_teardown_histogram one = {.struct_size = sizeof(one)};
		size_t at = 0;
		hpz_teardown_get_histogram(teardown, i, &one);
		while (at < count && (ends[at].page_size != one.page_size || ends[at].stage != one.stage))
			at++;
		if (at == METRICS_ENDS)
			continue;
		if (at == count)
			ends[count++] = (struct metrics_ends){.page_size = one.page_size, .stage = one.stage};
		ends[at].sum_ns += one.sum_ns;
		for (size_t j = 0; j < HPZ_TEARDOWN_BUCKETS; j++)
			ends[at].buckets[j] += one.buckets[j];
	}
	return count;
}

static void metrics_put_ends(struct openmetrics *out, const struct metrics_source *source)
{
	struct metrics_ends ends[METRICS_ENDS];
	char page_size[SIZE_TEXT];

	if (!source->teardown)
		return;
	openmetrics_begin(out, "hpz_teardown_seconds", "histogram", "seconds",
		"What the end of a lease takes: exit of its holder, proof that nobody has it, clearing, and "
		"all "
		"of it; kept across restarts");
	size_t count = metrics_add_up_ends(source->teardown, ends);
	for (size_t i = 0; i < count; i++) {
		const struct openmetrics_label labels[] = {
			{"stage", teardown_get_stage(ends[i].stage)},
			{"page_size", size_format_exact(ends[i].page_size, page_size)},
		};
		const struct openmetrics_histogram histogram = {.buckets = ends[i].buckets,
			.bucket_count = HPZ_TEARDOWN_BUCKETS,
			.shift = METRICS_ENDS_SHIFT,
			.is_ns = true,
			.sum = ends[i].sum_ns};
		openmetrics_add_histogram(out, labels, ARRAY_SIZE(labels), &histogram);
	}
}

/* ---- what hpzd counts ---- */

static const char *metrics_get_unit(const struct hpz_metric *metric)
{
	switch ((enum hpz_metric_unit)metric->unit) {
	case HPZ_METRIC_NONE:
		return "";
	case HPZ_METRIC_BYTES:
		return "bytes";
	case HPZ_METRIC_NS:
		return "seconds";
	case HPZ_METRIC_BYTES_PER_S:
		return "bytes_per_second";
	}
	return "";
}

static void metrics_put_counted_one(struct openmetrics *out, const struct hpz_metric *metric)
{
	const struct openmetrics_label label = {metric->label, metric->label_value};
	size_t label_count = *metric->label != '\0';

	if (metric->kind == HPZ_METRIC_HISTOGRAM)
		openmetrics_add_histogram(out, &label, label_count,
			&(struct openmetrics_histogram){.buckets = metric->buckets,
				.bucket_count = metric->bucket_count,
				.shift = metric->shift,
				.is_ns = metric->unit == HPZ_METRIC_NS,
				.sum = metric->sum});
	else if (metric->unit == HPZ_METRIC_NS)
		openmetrics_add_ns(out, &label, label_count, metric->value);
	else
		openmetrics_add(out, &label, label_count, metric->value);
}

/* A kind of a newer hpzd is left out. */
static void metrics_put_counted(struct openmetrics *out, const struct metrics_source *source)
{
	const char *last = "";

	for (size_t i = 0; i < hpz_metrics_get_count(source->counted); i++) {
		struct hpz_metric metric = {.struct_size = sizeof(metric)};
		hpz_metrics_get_metric(source->counted, i, &metric);
		if (metric.kind != HPZ_METRIC_COUNTER && metric.kind != HPZ_METRIC_HISTOGRAM)
			continue;
		if (strcmp(last, metric.name) != 0)
			openmetrics_begin(out, metric.name,
				metric.kind == HPZ_METRIC_COUNTER ? "counter" : "histogram",
				metrics_get_unit(&metric), metric.help);
		last = metric.name;
		metrics_put_counted_one(out, &metric);
	}
}

/* ---- all of it ---- */

static void metrics_put_up(struct openmetrics *out, bool is_up)
{
	metrics_put_one(out, "hpz_up", "gauge", "", "1: hpzd has answered all that was asked", is_up);
}

void metrics_print_down(struct openmetrics *out)
{
	metrics_put_up(out, false);
	openmetrics_end(out);
}

int metrics_print(struct openmetrics *out, const char *socket_path)
{
	struct metrics_source source = {0};

	int error = metrics_ask(&source, socket_path);
	if (error) {
		metrics_print_down(out);
	} else {
		metrics_put_up(out, true);
		metrics_put_daemon(out, &source);
		metrics_put_pools(out, &source);
		metrics_put_leases(out, &source);
		metrics_put_clearing(out, &source);
		metrics_put_ends(out, &source);
		if (source.counted)
			metrics_put_counted(out, &source);
		openmetrics_end(out);
	}
	metrics_close(&source);
	return error;
}
