/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* teardown.c - prints what the ends of leases cost. */
#include "teardown.h"

#include <inttypes.h>
#include <time.h>

#include "size.h"

#define TEARDOWN_LABEL 14 /* characters of it in a line */
#define TEARDOWN_BAR   28

static const char *const teardown_sources[] = {
	[HPZ_TEARDOWN_NOTHING] = "nothing",
	[HPZ_TEARDOWN_BPF] = "bpf",
	[HPZ_TEARDOWN_PERF] = "perf",
	[HPZ_TEARDOWN_PIDFD] = "pidfd",
};

static const char *const teardown_hows[] = {
	[HPZ_TEARDOWN_UNKNOWN] = NULL,
	[HPZ_TEARDOWN_EXIT] = "exit",
	[HPZ_TEARDOWN_KILL] = "kill",
	[HPZ_TEARDOWN_UNMAP] = "unmap",
};

static const char *const teardown_stages[HPZ_TEARDOWN_STAGES] = {"exit", "proof", "clear", "total"};

/* As the kernel's enum tlb_flush_reason has them (6.18). */
static const char *const teardown_flushes[HPZ_TEARDOWN_FLUSHES] = {"task_switch", "remote_shootdown",
	"local_shootdown", "local_mm_shootdown", "remote_send_ipi", "remote_wrong_cpu"};

/* A newer hpzd may know more. */
static const char *teardown_get_name(const char *const *names, size_t count, uint32_t value)
{
	return value < count ? names[value] : NULL;
}

const char *teardown_get_stage(uint32_t stage)
{
	const char *name = teardown_get_name(teardown_stages, HPZ_TEARDOWN_STAGES, stage - 1);

	return name ? name : "unknown";
}

static struct hpz_teardown_info teardown_get_info(const struct hpz_teardown *teardown)
{
	struct hpz_teardown_info info = {.struct_size = sizeof(info)};

	hpz_teardown_get_info(teardown, &info);
	return info;
}

static struct hpz_teardown_record teardown_get_record(const struct hpz_teardown *teardown, size_t index)
{
	struct hpz_teardown_record record = {.struct_size = sizeof(record)};

	hpz_teardown_get_record(teardown, index, &record);
	return record;
}

static struct hpz_teardown_histogram teardown_get_histogram(const struct hpz_teardown *teardown, size_t index)
{
	struct hpz_teardown_histogram histogram = {.struct_size = sizeof(histogram)};

	hpz_teardown_get_histogram(teardown, index, &histogram);
	return histogram;
}

/* ---- which ---- */

static bool teardown_matches(const struct teardown_filter *filter, const char *label, uint64_t page_size)
{
	return (!filter->label || strcmp(filter->label, label) == 0) &&
	       (!filter->page_size || filter->page_size == page_size);
}

bool teardown_is_chosen(const struct teardown_filter *filter, const struct hpz_teardown_record *record)
{
	return teardown_matches(filter, record->label, record->page_size);
}

/* The first of the last ones. */
static size_t teardown_find_first(
	const struct hpz_teardown *teardown, size_t count, const struct teardown_filter *filter)
{
	uint64_t left = filter->last;

	while (count > 0 && left > 0) {
		struct hpz_teardown_record record = teardown_get_record(teardown, count - 1);
		left -= teardown_is_chosen(filter, &record);
		count--;
	}
	return count;
}

/* The rest of other labels is nobody's label. */
static bool teardown_is_histogram_chosen(
	const struct teardown_filter *filter, const struct hpz_teardown_histogram *histogram)
{
	return (!filter->label || !histogram->is_rest) &&
	       teardown_matches(filter, histogram->label, histogram->page_size);
}

/* ---- figures ---- */

static bool teardown_is_seen(uint64_t value)
{
	return value != HPZ_TEARDOWN_NONE;
}

const char *teardown_format_ns(uint64_t ns, char text[TEARDOWN_NS])
{
	static const struct {
		uint64_t below_ns;
		double unit_ns;
		const char *name;
	} units[] = {{1000000, 1e3, "us"}, {1000000000, 1e6, "ms"}, {60000000000, 1e9, "s"}};

	if (!teardown_is_seen(ns)) {
		snprintf(text, TEARDOWN_NS, "-");
		return text;
	}
	if (ns < 1000) {
		snprintf(text, TEARDOWN_NS, "%" PRIu64 "ns", ns);
		return text;
	}
	for (size_t i = 0; i < ARRAY_SIZE(units); i++) {
		double value = (double)ns / units[i].unit_ns;
		if (ns >= units[i].below_ns)
			continue;
		snprintf(text, TEARDOWN_NS, "%.*f%s",
			value < 10    ? 2
			: value < 100 ? 1
				      : 0,
			value, units[i].name);
		return text;
	}
	char duration[OUTPUT_DURATION];
	snprintf(text, TEARDOWN_NS, "%s", output_format_duration(ns / NS_PER_MS, duration));
	return text;
}

static void teardown_print_figure_json(struct output_json *json, const char *key, uint64_t value)
{
	if (teardown_is_seen(value))
		output_json_number(json, key, value);
	else
		output_json_null(json, key);
}

/* 0 stands for none. */
static void teardown_print_id_json(struct output_json *json, const char *key, uint64_t id)
{
	teardown_print_figure_json(json, key, id ? id : HPZ_TEARDOWN_NONE);
}

/* ---- JSON ---- */

static void teardown_print_times_json(struct output_json *json, const struct hpz_teardown_record *record)
{
	teardown_print_figure_json(json, "begun_ns", record->begun_ns);
	teardown_print_figure_json(json, "gone_ns", record->gone_ns);
	teardown_print_figure_json(json, "ended_ns", record->ended_ns);
	teardown_print_figure_json(json, "proven_ns", record->proven_ns);
	teardown_print_figure_json(json, "clean_ns", record->clean_ns);
	output_json_open_object(json, "took_ns");
	for (size_t i = 0; i < HPZ_TEARDOWN_STAGES; i++)
		teardown_print_figure_json(json, teardown_stages[i], record->stages[i]);
	output_json_close(json);
}

static void teardown_print_exit_json(struct output_json *json, const struct hpz_teardown_record *record)
{
	const char *how = teardown_get_name(teardown_hows, ARRAY_SIZE(teardown_hows), record->how);
	bool has_code =
		record->code >= 0 && (record->how == HPZ_TEARDOWN_EXIT || record->how == HPZ_TEARDOWN_KILL);

	output_json_text_or_null(json, "how", how ? how : "");
	teardown_print_figure_json(json, "code", has_code ? (uint64_t)record->code : HPZ_TEARDOWN_NONE);
	teardown_print_id_json(json, "pid", (uint64_t)MAX(record->pid, 0));
	output_json_number(json, "holders", record->holders);
	const char *source =
		teardown_get_name(teardown_sources, ARRAY_SIZE(teardown_sources), record->source);
	output_json_text_or_null(
		json, "source", record->source == HPZ_TEARDOWN_NOTHING || !source ? "" : source);
	teardown_print_figure_json(json, "table_bytes", record->table_bytes);
	teardown_print_figure_json(json, "table_age_ns", record->table_age_ns);
	teardown_print_figure_json(json, "steal_ns", record->steal_ns);
	output_json_open_object(json, "flushes");
	for (size_t i = 0; i < HPZ_TEARDOWN_FLUSHES; i++) {
		if (teardown_flushes[i])
			teardown_print_figure_json(json, teardown_flushes[i], record->flushes[i]);
	}
	output_json_close(json);
}

static void teardown_fill_record_json(
	struct output_json *json, const struct hpz_teardown_record *record, uint64_t now_ns)
{
	uint64_t ended_ns = record->ended_ns;

	teardown_print_id_json(json, "sequence", record->sequence);
	output_json_number(json, "revision", record->revision);
	output_json_number(json, "lease", record->lease);
	teardown_print_id_json(json, "part_of", record->part_of);
	output_json_text(json, "label", record->label);
	output_json_number(json, "uid", record->uid);
	output_json_text_or_null(json, "comm", record->comm);
	output_json_number(json, "size", record->bytes);
	output_json_number(json, "page_size", record->page_size);
	output_json_number(json, "kernel_bytes", record->kernel_bytes);
	output_json_number(json, "orphan_bytes", record->orphan_bytes);
	output_json_bool(json, "complete", record->sequence);
	output_json_bool(json, "forced", record->flags & HPZ_TEARDOWN_FORCED);
	output_json_bool(json, "restarted", record->flags & HPZ_TEARDOWN_RESTART);
	output_json_text_or_null(json, "regime", record->regime);
	teardown_print_figure_json(json, "age_ms",
		teardown_is_seen(ended_ns) ? (now_ns - MIN(ended_ns, now_ns)) / NS_PER_MS
					   : HPZ_TEARDOWN_NONE);
	teardown_print_exit_json(json, record);
	teardown_print_times_json(json, record);
}

void teardown_print_record_json(FILE *file, const struct hpz_teardown_record *record, uint64_t now_ns)
{
	struct output_json json;

	output_json_init(&json, file);
	output_json_open_object(&json, NULL);
	output_json_text(&json, "schema", "hpz-teardown-record-1");
	teardown_fill_record_json(&json, record, now_ns);
	output_json_close(&json);
}

/* What buckets hold is below 2^(10 + i) ns; the last one has no limit. */
static uint64_t teardown_get_limit(size_t bucket)
{
	return bucket + 1 < HPZ_TEARDOWN_BUCKETS ? (uint64_t)1024 << bucket : HPZ_TEARDOWN_NONE;
}

static void teardown_print_histogram_json(
	struct output_json *json, const struct hpz_teardown_histogram *histogram)
{
	output_json_open_object(json, NULL);
	output_json_text(json, "stage", teardown_get_stage(histogram->stage));
	output_json_number(json, "page_size", histogram->page_size);
	output_json_text_or_null(json, "regime", histogram->regime);
	output_json_bool(json, "rest", histogram->is_rest);
	if (histogram->is_rest)
		output_json_null(json, "label");
	else
		output_json_text(json, "label", histogram->label);
	output_json_number(json, "count", histogram->count);
	output_json_number(json, "sum_ns", histogram->sum_ns);
	output_json_number(json, "max_ns", histogram->max_ns);
	output_json_open_list(json, "buckets");
	for (size_t i = 0; i < HPZ_TEARDOWN_BUCKETS; i++) {
		if (!histogram->buckets[i])
			continue;
		output_json_open_object(json, NULL);
		teardown_print_figure_json(json, "below_ns", teardown_get_limit(i));
		output_json_number(json, "count", histogram->buckets[i]);
		output_json_close(json);
	}
	output_json_close(json);
	output_json_close(json);
}

static void teardown_print_regime_json(
	struct output_json *json, const struct hpz_teardown *teardown, const struct hpz_teardown_info *info)
{
	output_json_open_object(json, "regime");
	output_json_text_or_null(json, "name", info->regime);
	output_json_open_list(json, "facts");
	for (size_t i = 0; i < info->fact_count; i++) {
		struct hpz_teardown_fact fact = {.struct_size = sizeof(fact)};
		hpz_teardown_get_fact(teardown, i, &fact);
		output_json_open_object(json, NULL);
		output_json_text(json, "name", fact.name);
		output_json_text_or_null(json, "value", fact.value);
		output_json_text_or_null(json, "where", fact.where);
		output_json_close(json);
	}
	output_json_close(json);
	output_json_close(json);
}

void teardown_print_json(
	FILE *file, const struct hpz_teardown *teardown, const struct teardown_filter *filter)
{
	struct hpz_teardown_info info = teardown_get_info(teardown);
	struct output_json json;
	const char *source = teardown_get_name(teardown_sources, ARRAY_SIZE(teardown_sources), info.source);

	output_json_init(&json, file);
	output_json_open_object(&json, NULL);
	output_json_text(&json, "schema", "hpz-teardown-1");
	teardown_print_regime_json(&json, teardown, &info);
	output_json_open_object(&json, "source");
	output_json_text(&json, "name", source ? source : "unknown");
	output_json_text_or_null(&json, "cannot_see", info.gap);
	output_json_close(&json);
	output_json_bool(&json, "own_only", info.is_own);
	output_json_number(&json, "now_ns", info.now_ns);
	output_json_number(&json, "sequence", info.sequence);
	output_json_number(&json, "revision", info.revision);
	output_json_open_list(&json, "records");
	for (size_t i = teardown_find_first(teardown, info.record_count, filter); i < info.record_count;
		i++) {
		struct hpz_teardown_record record = teardown_get_record(teardown, i);
		if (!teardown_is_chosen(filter, &record))
			continue;
		output_json_open_object(&json, NULL);
		teardown_fill_record_json(&json, &record, info.now_ns);
		output_json_close(&json);
	}
	output_json_close(&json);
	output_json_open_list(&json, "histograms");
	for (size_t i = 0; i < info.histogram_count; i++) {
		struct hpz_teardown_histogram histogram = teardown_get_histogram(teardown, i);
		if (teardown_is_histogram_chosen(filter, &histogram))
			teardown_print_histogram_json(&json, &histogram);
	}
	output_json_close(&json);
	output_json_close(&json);
}

/* ---- for people ---- */

/* When it was, on the clock on the wall: today's hour, or the day. */
static void teardown_format_when(uint64_t ended_ns, char text[16])
{
	uint64_t age_ns = clock_get_ns(CLOCK_MONOTONIC), now_s = clock_get_ns(CLOCK_REALTIME) / NS_PER_S;
	struct tm today, day;

	snprintf(text, 16, "-");
	if (!teardown_is_seen(ended_ns))
		return;
	time_t now = (time_t)now_s, then = (time_t)(now_s - (age_ns - MIN(ended_ns, age_ns)) / NS_PER_S);
	if (!localtime_r(&now, &today) || !localtime_r(&then, &day))
		return;
	bool is_today = today.tm_yday == day.tm_yday && today.tm_year == day.tm_year;
	strftime(text, 16, is_today ? "%H:%M:%S" : "%m-%d", &day);
}

/* So many characters of it, padded. */
static void teardown_print_label(FILE *file, const char *label)
{
	size_t length = 0, characters = 0;
	char cut[4 * TEARDOWN_LABEL + 1];

	while (label[length] && characters < TEARDOWN_LABEL) {
		length++;
		while (((unsigned char)label[length] & 0xc0) == 0x80)
			length++;
		characters++;
	}
	snprintf(cut, sizeof(cut), "%.*s", (int)MIN(length, sizeof(cut) - 1), label);
	output_print_text(file, cut);
	fprintf(file, "%*s", (int)(TEARDOWN_LABEL - characters), "");
}

static const char *teardown_format_how(const struct hpz_teardown_record *record, char text[24])
{
	const char *signal =
		record->how == HPZ_TEARDOWN_KILL && record->code > 0 ? sigabbrev_np(record->code) : NULL;
	const char *how = teardown_get_name(teardown_hows, ARRAY_SIZE(teardown_hows), record->how);

	if (signal)
		snprintf(text, 24, "SIG%s", signal);
	else if (how && record->code >= 0 && record->how != HPZ_TEARDOWN_UNMAP)
		snprintf(text, 24, "%s %" PRId32, how, record->code);
	else
		snprintf(text, 24, "%s", how ? how : "-");
	return text;
}

void teardown_print_line(FILE *file, const struct hpz_teardown_record *record, bool is_first)
{
	char when[16], size[SIZE_TEXT], page[SIZE_TEXT], tables[SIZE_TEXT], how[24], exit[TEARDOWN_NS],
		proof[TEARDOWN_NS], clear[TEARDOWN_NS];

	if (is_first)
		fprintf(file, "%-8s %-*s %8s %4s %-8s %7s %7s %7s %7s\n", "ENDED", TEARDOWN_LABEL, "LABEL",
			"SIZE", "PAGE", "HOW", "TABLES", "EXIT", "PROOF", "CLEAR");
	teardown_format_when(record->ended_ns, when);
	fprintf(file, "%-8s ", when);
	teardown_print_label(file, record->label);
	fprintf(file, " %8s %4s %-8s %7s %7s %7s %7s\n", size_format(record->bytes, size),
		size_format_exact(record->page_size, page), teardown_format_how(record, how),
		teardown_is_seen(record->table_bytes) ? size_format(record->table_bytes, tables) : "-",
		teardown_format_ns(record->stages[HPZ_TEARDOWN_STAGE_EXIT - 1], exit),
		teardown_format_ns(record->stages[HPZ_TEARDOWN_STAGE_PROOF - 1], proof),
		teardown_format_ns(record->stages[HPZ_TEARDOWN_STAGE_CLEAR - 1], clear));
}

/* The histograms of one page size, all labels and regimes that are chosen together. */
struct teardown_sum {
	uint64_t page_size;
	uint64_t counts[HPZ_TEARDOWN_STAGES], sums_ns[HPZ_TEARDOWN_STAGES], maxima_ns[HPZ_TEARDOWN_STAGES];
	uint64_t buckets[HPZ_TEARDOWN_BUCKETS][HPZ_TEARDOWN_STAGES];
};

static void teardown_sum_up(const struct hpz_teardown *teardown, const struct teardown_filter *filter,
	size_t first, struct teardown_sum *ret_sum)
{
	struct hpz_teardown_info info = teardown_get_info(teardown);

	*ret_sum = (struct teardown_sum){.page_size = teardown_get_histogram(teardown, first).page_size};
	for (size_t i = first; i < info.histogram_count; i++) {
		struct hpz_teardown_histogram histogram = teardown_get_histogram(teardown, i);
		size_t stage = histogram.stage - 1;
		if (histogram.page_size != ret_sum->page_size || stage >= HPZ_TEARDOWN_STAGES ||
			!teardown_is_histogram_chosen(filter, &histogram))
			continue;
		ret_sum->counts[stage] += histogram.count;
		ret_sum->sums_ns[stage] += histogram.sum_ns;
		ret_sum->maxima_ns[stage] = MAX(ret_sum->maxima_ns[stage], histogram.max_ns);
		for (size_t k = 0; k < HPZ_TEARDOWN_BUCKETS; k++)
			ret_sum->buckets[k][stage] += histogram.buckets[k];
	}
}

static void teardown_print_count(FILE *file, uint64_t count)
{
	if (count)
		fprintf(file, " %8" PRIu64, count);
	else
		fprintf(file, " %8s", "");
}

/* One line a bucket that has something; the bar is of the whole. */
static void teardown_print_buckets(FILE *file, const struct teardown_sum *sum)
{
	char text[TEARDOWN_NS];
	uint64_t most = 1;

	for (size_t i = 0; i < HPZ_TEARDOWN_BUCKETS; i++)
		most = MAX(most, sum->buckets[i][HPZ_TEARDOWN_STAGE_TOTAL - 1]);
	for (size_t i = 0; i < HPZ_TEARDOWN_BUCKETS; i++) {
		uint64_t total = sum->buckets[i][HPZ_TEARDOWN_STAGE_TOTAL - 1], any = 0;
		for (size_t stage = 0; stage < HPZ_TEARDOWN_STAGES; stage++)
			any += sum->buckets[i][stage];
		if (!any)
			continue;
		uint64_t limit = teardown_get_limit(i);
		fprintf(file, "%9s", teardown_is_seen(limit) ? teardown_format_ns(limit, text) : "more");
		for (size_t stage = 0; stage < HPZ_TEARDOWN_STAGES; stage++)
			teardown_print_count(file, sum->buckets[i][stage]);
		int bar = total ? (int)MAX(total * TEARDOWN_BAR / most, 1u) : 0;
		fprintf(file, "%s%.*s\n", bar ? "  " : "", bar, "################################");
	}
}

static void teardown_print_sum(FILE *file, const struct teardown_sum *sum)
{
	char page[SIZE_TEXT], text[TEARDOWN_NS];

	fprintf(file, "\n%s pages: how many took less than that\n%9s",
		size_format_exact(sum->page_size, page), "LESS THAN");
	fprintf(file, " %8s %8s %8s %8s  %s\n", "EXIT", "PROOF", "CLEAR", "TOTAL", "TOTAL");
	teardown_print_buckets(file, sum);
	fprintf(file, "%9s", "mean");
	for (size_t i = 0; i < HPZ_TEARDOWN_STAGES; i++)
		fprintf(file, " %8s",
			teardown_format_ns(
				sum->counts[i] ? sum->sums_ns[i] / sum->counts[i] : HPZ_TEARDOWN_NONE, text));
	fprintf(file, "\n%9s", "longest");
	for (size_t i = 0; i < HPZ_TEARDOWN_STAGES; i++)
		fprintf(file, " %8s",
			teardown_format_ns(sum->counts[i] ? sum->maxima_ns[i] : HPZ_TEARDOWN_NONE, text));
	fputc('\n', file);
}

/* Whether an earlier one that is chosen has that page size. */
static bool teardown_is_summed_up(
	const struct hpz_teardown *teardown, const struct teardown_filter *filter, size_t index)
{
	uint64_t page_size = teardown_get_histogram(teardown, index).page_size;

	for (size_t i = 0; i < index; i++) {
		struct hpz_teardown_histogram histogram = teardown_get_histogram(teardown, i);
		if (histogram.page_size == page_size && teardown_is_histogram_chosen(filter, &histogram))
			return true;
	}
	return false;
}

static void teardown_print_head(FILE *file, const struct hpz_teardown_info *info)
{
	const char *source = teardown_get_name(teardown_sources, ARRAY_SIZE(teardown_sources), info->source);

	fputs("regime: ", file);
	output_print_text(file, *info->regime ? info->regime : "not known yet");
	fprintf(file, "; exits are seen by: %s\n", source ? source : "unknown");
	if (*info->gap) {
		fputs("not seen: ", file);
		output_print_text(file, info->gap);
		fputc('\n', file);
	}
}

void teardown_print(FILE *file, const struct hpz_teardown *teardown, const struct teardown_filter *filter)
{
	struct hpz_teardown_info info = teardown_get_info(teardown);
	bool is_first = true;

	teardown_print_head(file, &info);
	for (size_t i = teardown_find_first(teardown, info.record_count, filter); i < info.record_count;
		i++) {
		struct hpz_teardown_record record = teardown_get_record(teardown, i);
		if (!teardown_is_chosen(filter, &record))
			continue;
		if (is_first)
			fputc('\n', file);
		teardown_print_line(file, &record, is_first);
		is_first = false;
	}
	if (is_first)
		fputs("No lease has ended.\n", file);
	for (size_t i = 0; i < info.histogram_count; i++) {
		struct hpz_teardown_histogram histogram = teardown_get_histogram(teardown, i);
		struct teardown_sum sum;
		if (!teardown_is_histogram_chosen(filter, &histogram) ||
			teardown_is_summed_up(teardown, filter, i))
			continue;
		teardown_sum_up(teardown, filter, i, &sum);
		teardown_print_sum(file, &sum);
	}
}
