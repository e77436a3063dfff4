/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* output.h - tables for people, JSON for programs, a progress bar for those who wait. */
#ifndef HPZ_OUTPUT_H
#define HPZ_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "util.h"

/* ---- text ---- */

/* Valid UTF-8 without control characters. */
bool output_is_text(const char *text);

/* Prints text whoever wrote it: control characters and what is not UTF-8 become \xNN. */
void output_print_text(FILE *file, const char *text);

#define OUTPUT_DURATION 24
/* "12s", "3m07s", "5h12m", "9d04h"; returns `text`. */
const char *output_format_duration(uint64_t ms, char text[OUTPUT_DURATION]);

/* ---- JSON: one value, on one line; a `key` is NULL inside a list ---- */

#define OUTPUT_JSON_DEPTH 8

struct output_json {
	FILE *file;
	unsigned depth;
	bool has_item[OUTPUT_JSON_DEPTH + 1];
	char closer[OUTPUT_JSON_DEPTH + 1];
};

void output_json_init(struct output_json *json, FILE *file);
void output_json_open_object(struct output_json *json, const char *key);
void output_json_open_list(struct output_json *json, const char *key);
/* Closes the innermost object or list; with the last one the line ends. */
void output_json_close(struct output_json *json);
void output_json_text(struct output_json *json, const char *key, const char *value);
/* "" is a figure that is missing: null. */
void output_json_text_or_null(struct output_json *json, const char *key, const char *value);
void output_json_number(struct output_json *json, const char *key, uint64_t value);
void output_json_integer(struct output_json *json, const char *key, int64_t value);
/* With so many digits behind the point; a figure that is missing (NAN, or no finite number) is null. */
void output_json_decimal(struct output_json *json, const char *key, double value, int digits);
void output_json_bool(struct output_json *json, const char *key, bool value);
void output_json_null(struct output_json *json, const char *key);

/* ---- tables ---- */

struct output_table {
	const char *const *headings; /* one that begins with '>' is aligned to the right */
	size_t column_count;
	char **cells;
	size_t cell_count, cell_capacity;
};

void output_table_init(struct output_table *table, const char *const *headings, size_t column_count);
void output_table_deinit(struct output_table *table);
/* Appends a cell, row by row. */
void output_table_add(struct output_table *table, const char *format, ...) PRINTF(2, 3);
/* Nothing at all when there are no rows. */
void output_table_print(const struct output_table *table, FILE *file);

/* ---- progress ---- */

#define OUTPUT_PROGRESS 128
/* "[########........]  50%  512 MiB of 1 GiB"; returns `text`. */
const char *output_format_progress(uint64_t done, uint64_t total, char text[OUTPUT_PROGRESS]);
/* Draws over the line, if `file` is a terminal. */
void output_progress(FILE *file, uint64_t done, uint64_t total);
/* Removes the bar. */
void output_progress_end(FILE *file);

#endif
