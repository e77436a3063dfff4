/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* output.c - tables for people, JSON for programs, a progress bar for those who wait. */
#include "output.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>

#include "size.h"

/* ---- text ---- */

/*
 * Bytes of the UTF-8 character that begins here and its code; 0 when there is none. Strings of the library
 * are UTF-8 already, but command lines, paths and comm are whatever somebody wrote.
 */
static size_t output_get_character(const char *text, uint32_t *ret_code)
{
	static const uint32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
	const uint8_t *at = (const uint8_t *)text;
	size_t length = at[0] < 0x80   ? 1
			: at[0] < 0xc0 ? 0
			: at[0] < 0xe0 ? 2
			: at[0] < 0xf0 ? 3
			: at[0] < 0xf8 ? 4
				       : 0;
	uint32_t code = length == 1 ? at[0] : length ? at[0] & (0x7fu >> length) : 0;

	for (size_t i = 1; i < length; i++) {
		if ((at[i] & 0xc0) != 0x80)
			return 0;
		code = code << 6 | (at[i] & 0x3fu);
	}
	if (length == 0 || code < smallest[length] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000))
		return 0;
	*ret_code = code;
	return length;
}

static bool output_is_control(uint32_t code)
{
	return code < 0x20 || (code >= 0x7f && code < 0xa0);
}

bool output_is_text(const char *text)
{
	uint32_t code;

	for (size_t length; *text; text += length) {
		length = output_get_character(text, &code);
		if (length == 0 || output_is_control(code))
			return false;
	}
	return true;
}

void output_print_text(FILE *file, const char *text)
{
	uint32_t code;

	while (*text) {
		size_t length = output_get_character(text, &code);
		if (length && !output_is_control(code)) {
			fwrite(text, 1, length, file);
			text += length;
		} else {
			fprintf(file, "\\x%02x", (unsigned)(uint8_t)*text++);
		}
	}
}

const char *output_format_duration(uint64_t ms, char text[OUTPUT_DURATION])
{
	uint64_t s = ms / 1000;

	if (s < 60)
		snprintf(text, OUTPUT_DURATION, "%" PRIu64 "s", s);
	else if (s < 3600)
		snprintf(text, OUTPUT_DURATION, "%" PRIu64 "m%02us", s / 60, (unsigned)(s % 60));
	else if (s < 86400)
		snprintf(text, OUTPUT_DURATION, "%" PRIu64 "h%02um", s / 3600, (unsigned)(s / 60 % 60));
	else
		snprintf(text, OUTPUT_DURATION, "%" PRIu64 "d%02uh", s / 86400, (unsigned)(s / 3600 % 24));
	return text;
}

/* ---- JSON ---- */

void output_json_init(struct output_json *json, FILE *file)
{
	*json = (struct output_json){.file = file};
}

static void output_json_string(FILE *file, const char *text)
{
	uint32_t code;

	fputc('"', file);
	while (*text) {
		size_t length = output_get_character(text, &code);
		if (length == 0)
			fputs("\\ufffd", file);
		else if (output_is_control(code))
			fprintf(file, "\\u%04x", (unsigned)code);
		else if (code == '"' || code == '\\')
			fprintf(file, "\\%c", (char)code);
		else
			fwrite(text, 1, length, file);
		text += length ? length : 1;
	}
	fputc('"', file);
}

static void output_json_key(struct output_json *json, const char *key)
{
	if (json->has_item[json->depth])
		fputc(',', json->file);
	json->has_item[json->depth] = true;
	if (key) {
		output_json_string(json->file, key);
		fputc(':', json->file);
	}
}

static void output_json_open(struct output_json *json, const char *key, char opener, char closer)
{
	assert(json->depth < OUTPUT_JSON_DEPTH);
	output_json_key(json, key);
	fputc(opener, json->file);
	json->depth++;
	json->has_item[json->depth] = false;
	json->closer[json->depth] = closer;
}

void output_json_open_object(struct output_json *json, const char *key)
{
	output_json_open(json, key, '{', '}');
}

void output_json_open_list(struct output_json *json, const char *key)
{
	output_json_open(json, key, '[', ']');
}

void output_json_close(struct output_json *json)
{
	assert(json->depth > 0);
	fputc(json->closer[json->depth--], json->file);
	if (json->depth == 0)
		fputc('\n', json->file);
}

void output_json_text(struct output_json *json, const char *key, const char *value)
{
	output_json_key(json, key);
	output_json_string(json->file, value);
}

void output_json_text_or_null(struct output_json *json, const char *key, const char *value)
{
	if (*value)
		output_json_text(json, key, value);
	else
		output_json_null(json, key);
}

void output_json_number(struct output_json *json, const char *key, uint64_t value)
{
	output_json_key(json, key);
	fprintf(json->file, "%" PRIu64, value);
}

void output_json_integer(struct output_json *json, const char *key, int64_t value)
{
	output_json_key(json, key);
	fprintf(json->file, "%" PRId64, value);
}

void output_json_decimal(struct output_json *json, const char *key, double value, int digits)
{
	if (!isfinite(value)) {
		output_json_null(json, key);
		return;
	}
	output_json_key(json, key);
	fprintf(json->file, "%.*f", digits, value);
}

void output_json_bool(struct output_json *json, const char *key, bool value)
{
	output_json_key(json, key);
	fputs(value ? "true" : "false", json->file);
}

void output_json_null(struct output_json *json, const char *key)
{
	output_json_key(json, key);
	fputs("null", json->file);
}

/* ---- tables ---- */

void output_table_init(struct output_table *table, const char *const *headings, size_t column_count)
{
	*table = (struct output_table){.headings = headings, .column_count = column_count};
}

void output_table_deinit(struct output_table *table)
{
	for (size_t i = 0; i < table->cell_count; i++)
		free(table->cells[i]);
	free(table->cells);
}

/* A program that only prints has nothing left to do without memory. */
static void output_die(void)
{
	fputs("hpzctl: out of memory\n", stderr);
	exit(1);
}

void output_table_add(struct output_table *table, const char *format, ...)
{
	va_list args;
	char *raw = NULL, *shown = NULL;
	size_t size;

	va_start(args, format);
	int r = vasprintf(&raw, format, args);
	va_end(args);
	FILE *file = r < 0 ? NULL : open_memstream(&shown, &size);
	if (!file)
		output_die();
	output_print_text(file, raw);
	fclose(file);
	free(raw);
	if (table->cell_count == table->cell_capacity) {
		table->cell_capacity = table->cell_capacity ? table->cell_capacity * 2 : 64;
		table->cells = reallocarray(table->cells, table->cell_capacity, sizeof(*table->cells));
	}
	if (!table->cells || !shown)
		output_die();
	table->cells[table->cell_count++] = shown;
}

/* Columns on the screen, taking one for each character. */
static size_t output_get_width(const char *text)
{
	size_t width = 0;

	for (; *text; text++)
		width += ((uint8_t)*text & 0xc0) != 0x80;
	return width;
}

static size_t output_table_get_width(const struct output_table *table, size_t column)
{
	const char *heading = table->headings[column];
	size_t width = output_get_width(heading + (*heading == '>'));

	for (size_t i = column; i < table->cell_count; i += table->column_count)
		width = MAX(width, output_get_width(table->cells[i]));
	return width;
}

static void output_table_print_cell(
	const struct output_table *table, FILE *file, size_t column, const char *text)
{
	bool is_right = table->headings[column][0] == '>', is_last = column + 1 == table->column_count;
	int pad = (int)(output_table_get_width(table, column) - output_get_width(text));

	if (is_right)
		fprintf(file, "%*s", pad, "");
	fputs(text, file);
	if (is_last)
		fputc('\n', file);
	else
		fprintf(file, "%*s", is_right ? 2 : pad + 2, "");
}

void output_table_print(const struct output_table *table, FILE *file)
{
	if (table->cell_count == 0)
		return;
	for (size_t column = 0; column < table->column_count; column++) {
		const char *heading = table->headings[column];
		output_table_print_cell(table, file, column, heading + (*heading == '>'));
	}
	for (size_t i = 0; i < table->cell_count; i++)
		output_table_print_cell(table, file, i % table->column_count, table->cells[i]);
}

/* ---- progress ---- */

#define OUTPUT_BAR 30u

const char *output_format_progress(uint64_t done, uint64_t total, char text[OUTPUT_PROGRESS])
{
	char done_text[SIZE_TEXT], total_text[SIZE_TEXT], bar[OUTPUT_BAR + 1];
	double part = total == 0 || done >= total ? 1.0 : (double)done / (double)total;
	unsigned full = (unsigned)(part * OUTPUT_BAR);

	memset(bar, '.', OUTPUT_BAR);
	memset(bar, '#', full);
	bar[OUTPUT_BAR] = '\0';
	snprintf(text, OUTPUT_PROGRESS, "[%s] %3u%%  %s of %s", bar, (unsigned)(part * 100),
		size_format(done, done_text), size_format(total, total_text));
	return text;
}

void output_progress(FILE *file, uint64_t done, uint64_t total)
{
	char text[OUTPUT_PROGRESS];

	if (!isatty(fileno(file)))
		return;
	fprintf(file, "\r%s\033[K", output_format_progress(done, total, text));
	fflush(file);
}

void output_progress_end(FILE *file)
{
	if (!isatty(fileno(file)))
		return;
	fputs("\r\033[K", file);
	fflush(file);
}
