/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* settings.c - keys of hpzd.conf for programs other than hpzd: see settings.h. */
#include "settings.h"

#include <ini.h>
#include <stdarg.h>

struct settings_reader {
	FILE *file;
	const char *path;
	const struct settings_row *rows;
	size_t row_count;
	unsigned line; /* inih tells none */
	char *problem;
};

static PRINTF(2, 3) void settings_note(struct settings_reader *reader, const char *format, ...)
{
	va_list args;

	if (*reader->problem)
		return;
	int n = snprintf(reader->problem, SETTINGS_PROBLEM, "%s:%u: ", reader->path, reader->line);
	if (n < 0 || n >= SETTINGS_PROBLEM)
		return;
	va_start(args, format);
	vsnprintf(reader->problem + n, SETTINGS_PROBLEM - (size_t)n, format, args);
	va_end(args);
}

/* ---- values: the same words as hpzd takes ---- */

static bool settings_read_text(const struct settings_row *row, const char *text)
{
	if (strlen(text) >= row->size)
		return false;
	strcpy(row->value, text);
	return true;
}

static bool settings_read_bool(const struct settings_row *row, const char *text)
{
	static const char *const words[] = {"no", "yes", "off", "on", "false", "true", "0", "1"};

	for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
		if (strcasecmp(text, words[i]) != 0)
			continue;
		*(bool *)row->value = i % 2;
		return true;
	}
	return false;
}

static bool settings_read_time(const struct settings_row *row, const char *text)
{
	static const struct {
		char unit;
		uint64_t ms;
	} units[] = {{'s', 1000}, {'m', 60000}, {'h', 3600000}};
	char *end;

	if (strcmp(text, "no") == 0) {
		*(uint64_t *)row->value = 0;
		return true;
	}
	if (*text < '0' || *text > '9')
		return false;
	errno = 0;
	unsigned long long number = strtoull(text, &end, 10);
	for (size_t i = 0; i < ARRAY_SIZE(units); i++) {
		if (errno || end[0] != units[i].unit || end[1] || number > 1000000)
			continue;
		*(uint64_t *)row->value = number * units[i].ms;
		return true;
	}
	return false;
}

static bool settings_read_choice(const struct settings_row *row, const char *text)
{
	for (unsigned i = 0; row->choices[i]; i++) {
		if (strcmp(text, row->choices[i]) != 0)
			continue;
		*(unsigned *)row->value = i;
		return true;
	}
	return false;
}

static bool settings_read_value(const struct settings_row *row, const char *text)
{
	switch (row->type) {
	case SETTINGS_TEXT:
		return settings_read_text(row, text);
	case SETTINGS_BOOL:
		return settings_read_bool(row, text);
	case SETTINGS_TIME:
		return settings_read_time(row, text);
	case SETTINGS_CHOICE:
		return settings_read_choice(row, text);
	}
	return false;
}

/* ---- the file ---- */

/* inih's fgets, which counts. A line that inih would cut is none of ours: its rest must not look like one. */
static char *settings_next_line(char *buffer, int size, void *stream)
{
	struct settings_reader *reader = stream;

	while (fgets(buffer, size, reader->file)) {
		size_t length = strlen(buffer);
		reader->line++;
		if (length > 0 && buffer[length - 1] == '\n')
			return buffer;
		int c = getc(reader->file);
		if (c == EOF)
			return buffer;
		settings_note(reader, "the line is too long");
		while (c != '\n' && c != EOF)
			c = getc(reader->file);
	}
	return NULL;
}

/* 1: inih goes on. */
static int settings_take(void *user, const char *section, const char *name, const char *value)
{
	struct settings_reader *reader = user;

	for (size_t i = 0; i < reader->row_count; i++) {
		const struct settings_row *row = &reader->rows[i];
		if (strcmp(row->section, section) != 0 || strcmp(row->key, name) != 0)
			continue;
		if (!settings_read_value(row, value))
			settings_note(reader, "`%s` in [%s] cannot be `%s`; it counts as not given", name,
				section, value);
	}
	return 1;
}

const char *settings_get_path(void)
{
	const char *named = getenv("HPZ_CONFIG");

	return named && *named ? named : SETTINGS_DEFAULT_PATH;
}

void settings_read(
	const char *path, const struct settings_row *rows, size_t row_count, char problem[SETTINGS_PROBLEM])
{
	_cleanup_file_ FILE *file = fopen(path, "re");
	struct settings_reader reader = {
		.file = file, .path = path, .rows = rows, .row_count = row_count, .problem = problem};

	*problem = '\0';
	if (!file && errno != ENOENT)
		snprintf(problem, SETTINGS_PROBLEM, "%s: %s; the defaults count", path, strerror(errno));
	if (file && ini_parse_stream(settings_next_line, &reader, settings_take, &reader) < 0 && !*problem)
		snprintf(problem, SETTINGS_PROBLEM, "%s: cannot be read", path);
}
