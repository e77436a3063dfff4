/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * trace.c - starts and ends of VMs from a CSV file, one row at a time.
 * libcsv splits rows into fields; it gets one line after the other, so that every error has its line.
 */
#include "trace.h"

#include <csv.h>
#include <stdarg.h>
#include <strings.h>
#include <sys/stat.h>

#include "size.h"
#include "util.h"

#define FIELD_MAX   128
#define COLUMNS_MAX 64
/* What no clock shows: more than a century. Sums of three such times still fit 64 bits of ns. */
#define SECONDS_MAX 6000000000ull

enum column { COLUMN_TIME, COLUMN_HOST, COLUMN_SIZE, COLUMN_NODE, COLUMN_END, COLUMN_COUNT };

static const char *const names[COLUMN_COUNT] = {"time", "host", "size", "node", "end"};

struct trace {
	char *path;
	FILE *file;
	struct csv_parser parser;
	unsigned long line;
	uint64_t position, length;
	uint64_t last_ns;
	unsigned long last_line;
	bool has_columns;
	size_t column_count;      /* of each row */
	int meaning[COLUMNS_MAX]; /* enum column; -1: ignored */

	/* the row that is being read */
	size_t field_count;
	bool has_row;
	int too_long; /* enum column whose field did not fit; -1: all did */
	char fields[COLUMN_COUNT][FIELD_MAX];
	char first[COLUMNS_MAX][FIELD_MAX]; /* of the first row: it may name the columns */
};

static PRINTF(3, 4) int fail(const struct trace *trace, char error[TRACE_ERROR], const char *format, ...)
{
	int n = snprintf(error, TRACE_ERROR, "%s:%lu: ", trace->path, trace->line);
	va_list args;

	va_start(args, format);
	if (n >= 0 && n < TRACE_ERROR)
		vsnprintf(error + n, TRACE_ERROR - (size_t)n, format, args);
	va_end(args);
	return -EINVAL;
}

/* ---- values ---- */

/* ".25" to ns; "" is none. Moves *text behind it. */
static int parse_fraction(const char **text, uint64_t *ret_ns)
{
	uint64_t ns = 0, unit = NS_PER_S / 10;

	*ret_ns = 0;
	if (**text != '.')
		return 0;
	const char *first = ++*text;
	for (; **text >= '0' && **text <= '9'; ++*text, unit /= 10)
		ns += unit * (uint64_t)(**text - '0'); /* what is behind the ninth digit is dropped */
	*ret_ns = ns;
	return *text == first ? -EINVAL : 0;
}

/* "2026-11-30T20:15:00.5Z", the T also a space, UTC; or seconds. */
static int parse_time(const char *text, uint64_t *ret_ns)
{
	struct tm tm = {0};
	uint64_t seconds, fraction;
	const char *at = strptime(text, "%Y-%m-%d", &tm);

	if (at) {
		at = *at == 'T' || *at == ' ' ? strptime(at + 1, "%H:%M:%S", &tm) : NULL;
		time_t since = at ? timegm(&tm) : -1;
		if (since < 0)
			return -EINVAL;
		seconds = (uint64_t)since;
	} else {
		char *end;
		if (*text < '0' || *text > '9')
			return -EINVAL;
		errno = 0;
		seconds = strtoull(text, &end, 10);
		if (errno)
			return -ERANGE;
		at = end;
	}
	if (parse_fraction(&at, &fraction) < 0)
		return -EINVAL;
	if (*at == 'Z')
		at++;
	if (*at || seconds > SECONDS_MAX)
		return *at ? -EINVAL : -ERANGE;
	*ret_ns = seconds * NS_PER_S + fraction;
	return 0;
}

static int parse_node(const char *text, int32_t *ret_node)
{
	char *end;

	*ret_node = TRACE_NODE_ANY;
	if (!*text || strcasecmp(text, "any") == 0)
		return 0;
	errno = 0;
	unsigned long node = strtoul(text, &end, 10);
	if (*text < '0' || *text > '9' || *end || errno || node > TRACE_NODE_MAX)
		return -EINVAL;
	*ret_node = (int32_t)node;
	return 0;
}

static int read_end(struct trace *trace, struct trace_row *row, char error[TRACE_ERROR])
{
	const char *end = trace->fields[COLUMN_END];

	row->end_ns = TRACE_NEVER;
	if (!*end)
		return 0;
	if (parse_time(end, &row->end_ns) < 0)
		return fail(trace, error,
			"end `%s`, which is neither seconds nor a time as 2026-11-30T20:15:00Z nor empty",
			end);
	if (row->end_ns < row->start_ns)
		return fail(trace, error, "end `%s`, which is before its start at %s", end,
			trace->fields[COLUMN_TIME]);
	return 0;
}

static int read_row(struct trace *trace, struct trace_row *row, char error[TRACE_ERROR])
{
	const char *time = trace->fields[COLUMN_TIME], *size = trace->fields[COLUMN_SIZE],
		   *node = trace->fields[COLUMN_NODE];

	if (parse_time(time, &row->start_ns) < 0)
		return fail(trace, error,
			"time `%s`, which is neither seconds nor a time as 2026-11-30T20:15:00Z", time);
	if (row->start_ns < trace->last_ns)
		return fail(trace, error,
			"time `%s` is before that of line %lu, and rows must stand in the order of their "
			"time: sort them",
			time, trace->last_line);
	if (size_parse(size, &row->bytes) < 0 || row->bytes == 0)
		return fail(trace, error, "size `%s`, which is not a size, as 512M or 2G", size);
	if (row->bytes > (uint64_t)1 << 50)
		return fail(trace, error, "size `%s`, which is more than any machine has", size);
	if (parse_node(node, &row->node) < 0)
		return fail(
			trace, error, "node `%s`, which is neither 0 to %d nor any", node, TRACE_NODE_MAX);
	row->host = trace->fields[COLUMN_HOST];
	row->line = trace->line;
	trace->last_ns = row->start_ns;
	trace->last_line = trace->line;
	return read_end(trace, row, error);
}

/* ---- columns ---- */

static int find_name(const char *text)
{
	for (int i = 0; i < COLUMN_COUNT; i++) {
		if (strcasecmp(names[i], text) == 0)
			return i;
	}
	return -1;
}

static int read_header(struct trace *trace, char error[TRACE_ERROR])
{
	bool seen[COLUMN_COUNT] = {false};

	for (size_t i = 0; i < trace->field_count; i++) {
		int column = trace->meaning[i] = find_name(trace->first[i]);
		if (column < 0)
			continue;
		if (seen[column])
			return fail(trace, error, "two columns `%s`", names[column]);
		seen[column] = true;
	}
	if (!seen[COLUMN_TIME] || !seen[COLUMN_SIZE])
		return fail(trace, error, "no column `%s`, only time, host, size, node and end are known",
			names[seen[COLUMN_TIME] ? COLUMN_SIZE : COLUMN_TIME]);
	return 0;
}

/* The first row: 1 it names the columns, 0 it is a row as any other. */
static int read_first(struct trace *trace, char error[TRACE_ERROR])
{
	bool has_name = false;

	trace->has_columns = true;
	trace->column_count = trace->field_count;
	if (trace->field_count > COLUMNS_MAX)
		return fail(trace, error, "%zu columns, more than %d", trace->field_count, COLUMNS_MAX);
	for (size_t i = 0; i < trace->field_count; i++)
		has_name = has_name || find_name(trace->first[i]) >= 0;
	if (has_name) {
		int r = read_header(trace, error);
		return r < 0 ? r : 1;
	}
	if (trace->field_count <= COLUMN_SIZE || trace->field_count > COLUMN_COUNT)
		return fail(trace, error,
			"%zu columns, which are not time, host, size, node, end: name them in a first line",
			trace->field_count);
	for (int i = 0; i < COLUMN_COUNT; i++)
		snprintf(trace->fields[i], FIELD_MAX, "%s",
			(size_t)i < trace->field_count ? trace->first[i] : "");
	return 0;
}

/* ---- lines ---- */

/* libcsv's: a field of the row. */
static void take_field(void *bytes, size_t length, void *user)
{
	struct trace *trace = user;
	size_t at = trace->field_count++;
	char *to = NULL;
	int column = -1;

	if (at < COLUMNS_MAX && !trace->has_columns)
		to = trace->first[at];
	else if (at < COLUMNS_MAX && (column = trace->meaning[at]) >= 0)
		to = trace->fields[column];
	if (!to)
		return;
	/* What is ignored, and a heading, may be of any length. */
	if (length >= FIELD_MAX) {
		if (trace->has_columns)
			trace->too_long = column;
		length = FIELD_MAX - 1;
	}
	memcpy(to, bytes, length);
	to[length] = '\0';
}

/* libcsv's: the end of the row. */
static void end_row(int c, void *user)
{
	((struct trace *)user)->has_row = true;
}

/* 1: a line, with its newline; 0: the end. */
static int read_line(
	struct trace *trace, char line[TRACE_LINE_MAX + 1], size_t *ret_length, char error[TRACE_ERROR])
{
	size_t length = 0;
	int c;

	trace->line++;
	while ((c = getc_unlocked(trace->file)) != EOF && c != '\n') {
		if ((c < 0x20 && c != '\t' && c != '\r') || c == 0x7f)
			return fail(trace, error, "byte 0x%02x, this is no text file", (unsigned)c);
		if (length == TRACE_LINE_MAX)
			return fail(trace, error, "a line longer than %d bytes", TRACE_LINE_MAX);
		line[length++] = (char)c;
	}
	trace->position += length + (c == '\n');
	if (c == EOF && ferror(trace->file)) {
		int r = errno ? -errno : -EIO;
		fail(trace, error, "cannot be read: %s", strerror(-r));
		return r;
	}
	if (c == EOF && length == 0)
		return 0;
	line[length++] = '\n';
	*ret_length = length;
	return 1;
}

static bool is_blank(const char *line, size_t length)
{
	for (size_t i = 0; i < length; i++) {
		if (!memchr(" \t\r\n", line[i], 4))
			return false;
	}
	return true;
}

/* One line into fields. 1: there is a row in it. */
static int split(struct trace *trace, const char *line, size_t length, char error[TRACE_ERROR])
{
	trace->field_count = 0;
	trace->has_row = false;
	trace->too_long = -1;
	if (*line == '#')
		return 0;
	if (csv_parse(&trace->parser, line, length, take_field, end_row, trace) != length) {
		int code = csv_error(&trace->parser);
		if (code == CSV_ENOMEM) {
			fail(trace, error, "no memory");
			return -ENOMEM;
		}
		return fail(trace, error, "quotes that are not those of CSV");
	}
	if (!trace->has_row && !is_blank(line, length))
		return fail(trace, error, "a quote that does not end in this line");
	if (trace->too_long >= 0)
		return fail(trace, error, "%s of more than %d bytes", names[trace->too_long], FIELD_MAX - 1);
	return trace->has_row;
}

int trace_next(struct trace *trace, struct trace_row *ret_row, char ret_error[TRACE_ERROR])
{
	char line[TRACE_LINE_MAX + 1];
	size_t length = 0;
	int r;

	while ((r = read_line(trace, line, &length, ret_error)) > 0) {
		r = split(trace, line, length, ret_error);
		if (r < 0)
			return r;
		if (r == 0)
			continue;
		r = trace->has_columns ? 0 : read_first(trace, ret_error);
		if (r < 0)
			return r;
		if (r == 1)
			continue;
		if (trace->field_count != trace->column_count)
			return fail(trace, ret_error, "%zu fields, the first row has %zu", trace->field_count,
				trace->column_count);
		r = read_row(trace, ret_row, ret_error);
		return r < 0 ? r : 1;
	}
	return r;
}

/* ---- the file ---- */

int trace_open(const char *path, struct trace **ret_trace, char ret_error[TRACE_ERROR])
{
	_cleanup_trace_ struct trace *trace = calloc(1, sizeof *trace);
	struct stat st;

	if (!trace || csv_init(&trace->parser, CSV_STRICT | CSV_APPEND_NULL) != 0 ||
		!(trace->path = strdup(strcmp(path, "-") == 0 ? "standard input" : path))) {
		snprintf(ret_error, TRACE_ERROR, "%.256s: no memory", path);
		return -ENOMEM;
	}
	for (int i = 0; i < COLUMNS_MAX; i++)
		trace->meaning[i] = i < COLUMN_COUNT ? i : -1;
	trace->file = strcmp(path, "-") == 0 ? stdin : fopen(path, "re");
	if (!trace->file || fstat(fileno(trace->file), &st) < 0 || S_ISDIR(st.st_mode)) {
		int r = trace->file && S_ISDIR(st.st_mode) ? -EISDIR : -errno;
		snprintf(ret_error, TRACE_ERROR, "%.256s: %s", path, strerror(-r));
		return r;
	}
	trace->length = S_ISREG(st.st_mode) ? (uint64_t)st.st_size : 0;
	*ret_trace = steal_pointer(&trace);
	return 0;
}

void trace_close(struct trace *trace)
{
	if (!trace)
		return;
	if (trace->file && trace->file != stdin)
		fclose(trace->file);
	csv_free(&trace->parser);
	free(trace->path);
	free(trace);
}

uint64_t trace_get_position(const struct trace *trace)
{
	return trace->position;
}

uint64_t trace_get_length(const struct trace *trace)
{
	return trace->length;
}
