/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* openmetrics.c - writes metrics as Prometheus reads them. */
#include "openmetrics.h"

#include <inttypes.h>

#define NUMBER_TEXT 32

/* What would end a line or a value is escaped; quotes in values only. */
static void openmetrics_put_text(FILE *file, const char *text, bool is_value)
{
	for (; *text; text++) {
		if (*text == '\n')
			fputs("\\n", file);
		else if (*text == '\\' || (*text == '"' && is_value))
			fprintf(file, "\\%c", *text);
		else
			fputc(*text, file);
	}
}

static bool openmetrics_is(const struct openmetrics *out, const char *type)
{
	return strcmp(out->type, type) == 0;
}

/* Behind the name of each sample; the older format has it in the family's name, too. */
static const char *openmetrics_get_suffix(const struct openmetrics *out)
{
	return openmetrics_is(out, "counter") ? "_total" : openmetrics_is(out, "info") ? "_info" : "";
}

void openmetrics_begin(
	struct openmetrics *out, const char *name, const char *type, const char *unit, const char *help)
{
	out->name = name;
	out->type = type;
	const char *suffix = out->is_text ? openmetrics_get_suffix(out) : "";
	/* The older format knows no info. */
	const char *shown = out->is_text && openmetrics_is(out, "info") ? "gauge" : type;
	fprintf(out->file, "# TYPE %s%s %s\n", name, suffix, shown);
	if (*unit && !out->is_text)
		fprintf(out->file, "# UNIT %s %s\n", name, unit);
	fprintf(out->file, "# HELP %s%s ", name, suffix);
	openmetrics_put_text(out->file, help, false);
	fputc('\n', out->file);
}

/* `le` is one more label; NULL: none. */
static void openmetrics_put_sample(struct openmetrics *out, const char *suffix,
	const struct openmetrics_label *labels, size_t label_count, const char *le, const char *value)
{
	char separator = '{';

	fprintf(out->file, "%s%s", out->name, suffix);
	for (size_t i = 0; i < label_count; i++) {
		fprintf(out->file, "%c%s=\"", separator, labels[i].name);
		openmetrics_put_text(out->file, labels[i].value, true);
		fputc('"', out->file);
		separator = ',';
	}
	if (le)
		fprintf(out->file, "%cle=\"%s\"", separator, le);
	fprintf(out->file, "%s %s\n", label_count || le ? "}" : "", value);
}

/* Without zeros at its end, but for one behind the point. */
static void openmetrics_format_ns(uint64_t ns, char text[NUMBER_TEXT])
{
	int length = snprintf(text, NUMBER_TEXT, "%" PRIu64 ".%09" PRIu64, (uint64_t)(ns / NS_PER_S),
		(uint64_t)(ns % NS_PER_S));

	while (text[length - 1] == '0' && text[length - 2] != '.')
		text[--length] = '\0';
}

static void openmetrics_format(uint64_t value, char text[NUMBER_TEXT])
{
	snprintf(text, NUMBER_TEXT, "%" PRIu64, value);
}

void openmetrics_add(
	struct openmetrics *out, const struct openmetrics_label *labels, size_t label_count, uint64_t value)
{
	char text[NUMBER_TEXT];

	openmetrics_format(value, text);
	openmetrics_put_sample(out, openmetrics_get_suffix(out), labels, label_count, NULL, text);
}

void openmetrics_add_ns(
	struct openmetrics *out, const struct openmetrics_label *labels, size_t label_count, uint64_t ns)
{
	char text[NUMBER_TEXT];

	openmetrics_format_ns(ns, text);
	openmetrics_put_sample(out, openmetrics_get_suffix(out), labels, label_count, NULL, text);
}

/* Bounds are written as OpenMetrics has floats, with a point. */
static void openmetrics_format_bound(
	const struct openmetrics_histogram *histogram, size_t index, char text[NUMBER_TEXT])
{
	uint64_t bound = (uint64_t)1 << (histogram->shift + index);

	if (histogram->is_ns)
		openmetrics_format_ns(bound, text);
	else
		snprintf(text, NUMBER_TEXT, "%" PRIu64 ".0", bound);
}

void openmetrics_add_histogram(struct openmetrics *out, const struct openmetrics_label *labels,
	size_t label_count, const struct openmetrics_histogram *histogram)
{
	char bound[NUMBER_TEXT], text[NUMBER_TEXT];
	uint64_t count = 0;

	for (size_t i = 0; i < histogram->bucket_count; i++) {
		count += histogram->buckets[i];
		openmetrics_format(count, text);
		if (i + 1 == histogram->bucket_count)
			strcpy(bound, "+Inf");
		else
			openmetrics_format_bound(histogram, i, bound);
		openmetrics_put_sample(out, "_bucket", labels, label_count, bound, text);
	}
	openmetrics_put_sample(out, "_count", labels, label_count, NULL, text);
	if (histogram->is_ns)
		openmetrics_format_ns(histogram->sum, text);
	else
		openmetrics_format(histogram->sum, text);
	openmetrics_put_sample(out, "_sum", labels, label_count, NULL, text);
}

void openmetrics_end(struct openmetrics *out)
{
	if (!out->is_text)
		fputs("# EOF\n", out->file);
}
