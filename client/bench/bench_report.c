/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* bench_report.c - the report of all benchmarks as Markdown, with pictures: see bench_report.h. */
#include "bench_report.h"

#include <inttypes.h>
#include <math.h>
#include <sys/stat.h>

#include "bench_gnuplot.h"
#include "size.h"

#define REPORT_WHO  "bench all: --markdown"
#define REPORT_CELL 256

/* ---- JSON ---- */

/* "a.b" of an object; NULL: it is not there, or null. */
static const json_t *report_get(const json_t *object, const char *path)
{
	const json_t *at = object;

	while (at && *path) {
		size_t length = strcspn(path, ".");
		at = json_object_getn(at, path, length);
		path += length + (path[length] == '.');
	}
	return json_is_null(at) ? NULL : at;
}

static const char *report_get_text(const json_t *object, const char *path)
{
	const char *text = json_string_value(report_get(object, path));

	return text ? text : "-";
}

static double report_get_number(const json_t *object, const char *path)
{
	const json_t *value = report_get(object, path);

	return json_is_number(value) ? json_number_value(value) : NAN;
}

/* ---- cells ---- */

/* Four digits that mean something. */
static void report_format_decimal(double value, const char *unit, char cell[REPORT_CELL])
{
	double size = fabs(value);
	int digits = size >= 1000 ? 0 : size >= 100 ? 1 : size >= 10 ? 2 : size >= 1 ? 3 : 4;

	snprintf(cell, REPORT_CELL, "%.*f%s", digits, value, unit);
}

static void report_format_seconds(double seconds, char cell[REPORT_CELL])
{
	double size = fabs(seconds);

	if (size >= 1)
		report_format_decimal(seconds, " s", cell);
	else if (size >= 1e-3)
		report_format_decimal(seconds * 1e3, " ms", cell);
	else
		report_format_decimal(seconds * 1e6, " us", cell);
}

static void report_format(const json_t *value, enum report_unit unit, char cell[REPORT_CELL])
{
	double number = json_is_number(value) ? json_number_value(value) : NAN;
	char size[SIZE_TEXT];

	snprintf(cell, REPORT_CELL, "-");
	if (json_is_string(value)) {
		snprintf(cell, REPORT_CELL, "%s", json_string_value(value));
		return;
	}
	if (json_is_boolean(value))
		snprintf(cell, REPORT_CELL, "%s", json_is_true(value) ? "yes" : "no");
	if (!isfinite(number))
		return;
	switch (unit) {
	case REPORT_TEXT:
	case REPORT_COUNT:
		snprintf(cell, REPORT_CELL, "%.0f", number);
		return;
	case REPORT_BYTES:
		/* What is whole is said so: 2M. */
		if (number >= 1 << 30 && (uint64_t)number % (1 << 20))
			report_format_decimal(number / (1 << 30), "G", cell);
		else
			snprintf(cell, REPORT_CELL, "%s", size_format_exact((uint64_t)number, size));
		return;
	case REPORT_S:
		report_format_seconds(number, cell);
		return;
	case REPORT_MS:
		report_format_seconds(number / 1e3, cell);
		return;
	case REPORT_US:
		report_format_seconds(number / 1e6, cell);
		return;
	case REPORT_DECIMAL:
		report_format_decimal(number, "", cell);
		return;
	case REPORT_PART:
		snprintf(cell, REPORT_CELL, "%.1f %%", number * 100);
		return;
	case REPORT_PERCENT:
		snprintf(cell, REPORT_CELL, "%+.1f %%", number);
		return;
	}
}

/* What would end a cell, or begin something, in Markdown. */
static void report_write_escaped(FILE *file, const char *text)
{
	for (; *text; text++) {
		if (strchr("|<>*_`\\[]", *text))
			fputc('\\', file);
		fputc(*text == '\n' ? ' ' : *text, file);
	}
}

static void report_write_value(FILE *file, const json_t *object, const struct report_column *column)
{
	char cell[REPORT_CELL];

	report_format(report_get(object, column->path), column->unit, cell);
	report_write_escaped(file, cell);
}

/* ---- tables ---- */

static size_t report_count_columns(const struct report_table *table)
{
	size_t count = 0;

	while (count < REPORT_COLUMNS && table->columns[count].heading)
		count++;
	return count;
}

static void report_write_title(FILE *file, const struct report_table *table)
{
	if (table->title)
		fprintf(file, "%s:\n\n", table->title);
}

static void report_write_headings(FILE *file, const struct report_table *table)
{
	size_t count = report_count_columns(table);

	report_write_title(file, table);
	for (size_t i = 0; i < count; i++)
		fprintf(file, "| %s ", table->columns[i].heading);
	fputs("|\n", file);
	for (size_t i = 0; i < count; i++)
		fputs(table->columns[i].unit == REPORT_TEXT ? "|---" : "|--:", file);
	fputs("|\n", file);
}

static void report_write_rows(FILE *file, const struct report_table *table, const json_t *rows)
{
	size_t count = report_count_columns(table), index;
	json_t *row;

	if (json_array_size(rows) == 0)
		return;
	report_write_headings(file, table);
	json_array_foreach (rows, index, row) {
		for (size_t i = 0; i < count; i++) {
			fputs("| ", file);
			report_write_value(file, row, &table->columns[i]);
			fputc(' ', file);
		}
		fputs("|\n", file);
	}
	fputc('\n', file);
}

/* "a.*_s" and "b" are "a.b_s". */
static const char *report_put_word(const char *path, const char *word, char ret_path[64])
{
	int before = (int)strcspn(path, "*");

	snprintf(ret_path, 64, "%.*s%s%s", before, path, path[before] ? word : "",
		path + before + !!path[before]);
	return ret_path;
}

static void report_write_own_rows(FILE *file, const struct report_table *table, const json_t *result)
{
	report_write_headings(file, table);
	for (size_t i = 0; i < REPORT_ROWS && table->rows[i].label; i++) {
		fprintf(file, "| %s ", table->rows[i].label);
		for (size_t j = 1; j < report_count_columns(table); j++) {
			struct report_column column = table->columns[j];
			char path[64];
			column.path = report_put_word(column.path, table->rows[i].word, path);
			fputs("| ", file);
			report_write_value(file, result, &column);
			fputc(' ', file);
		}
		fputs("|\n", file);
	}
	fputc('\n', file);
}

/* Figures of the result itself: on their side, one a line. */
static void report_write_figures(FILE *file, const struct report_table *table, const json_t *result)
{
	report_write_title(file, table);
	fputs("| figure | value |\n|---|--:|\n", file);
	for (size_t i = 0; i < report_count_columns(table); i++) {
		fprintf(file, "| %s | ", table->columns[i].heading);
		report_write_value(file, result, &table->columns[i]);
		fputs(" |\n", file);
	}
	fputc('\n', file);
}

static void report_write_tables(FILE *file, const struct report_benchmark *benchmark, const json_t *result)
{
	for (size_t i = 0; i < REPORT_TABLES && benchmark->tables[i].columns[0].heading; i++) {
		const struct report_table *table = &benchmark->tables[i];
		if (table->list)
			report_write_rows(file, table, report_get(result, table->list));
		else if (table->rows[0].label)
			report_write_own_rows(file, table, result);
		else
			report_write_figures(file, table, result);
	}
}

/* ---- pictures ---- */

struct report_drawing {
	const struct report_picture *picture;
	const json_t *result;
};

static size_t report_count_series(const struct report_picture *picture)
{
	size_t count = 0;

	while (count < REPORT_SERIES && picture->series[count].name)
		count++;
	return count;
}

/* Names come from a program: what gnuplot would take for an end or a line of its own is left out. */
static void report_write_label(FILE *file, const char *label)
{
	for (; *label; label++) {
		if (*label != '"' && *label != '\\' && *label != '\n' && *label != '{' && *label != '}')
			fputc(*label == '_' ? '-' : *label, file);
	}
}

static void report_write_number(FILE *file, double number, bool is_logarithmic)
{
	if (isfinite(number) && (number > 0 || !is_logarithmic))
		fprintf(file, " %.6g", number);
	else
		fputs(" NaN", file);
}

static bool report_is_drawn(const struct report_picture *picture, const json_t *row)
{
	return !picture->only_key ||
	       strcmp(report_get_text(row, picture->only_key), picture->only_value) == 0;
}

static void report_write_row_bars(FILE *file, const struct report_picture *picture, const json_t *rows)
{
	size_t index;
	json_t *row;

	json_array_foreach (rows, index, row) {
		if (!report_is_drawn(picture, row))
			continue;
		fputc('"', file);
		for (size_t i = 0; i < 2 && picture->labels[i].path; i++) {
			char cell[REPORT_CELL];
			report_format(
				report_get(row, picture->labels[i].path), picture->labels[i].unit, cell);
			fputs(i ? " " : "", file);
			report_write_label(file, cell);
		}
		fputc('"', file);
		for (size_t i = 0; i < report_count_series(picture); i++)
			report_write_number(file, report_get_number(row, picture->series[i].path),
				picture->is_logarithmic);
		fputc('\n', file);
	}
}

static void report_write_bars(FILE *file, const struct report_picture *picture, const json_t *result)
{
	for (size_t i = 0; i < REPORT_BARS && picture->bars[i].label; i++) {
		fprintf(file, "\"%s\"", picture->bars[i].label);
		for (size_t j = 0; j < report_count_series(picture); j++) {
			char path[64];
			report_put_word(picture->series[j].path, picture->bars[i].word, path);
			report_write_number(file, report_get_number(result, path), picture->is_logarithmic);
		}
		fputc('\n', file);
	}
}

static void report_draw(FILE *file, const void *user)
{
	const struct report_drawing *drawing = user;
	const struct report_picture *picture = drawing->picture;
	size_t series = report_count_series(picture);

	fprintf(file,
		"set terminal svg size 900,420 font 'sans-serif,12' background '#ffffff'\n"
		"set style data histograms\nset style histogram clustered gap 1\nset style fill solid 0.85 "
		"border -1\n"
		"set grid y\nset xtics rotate by -35\nset title '%s'\nset ylabel '%s'\n%s$bars << EOD\n",
		picture->title, picture->axis,
		picture->is_logarithmic ? "set logscale y\n" : "set yrange [0:*]\n");
	if (picture->list)
		report_write_row_bars(file, picture, report_get(drawing->result, picture->list));
	else
		report_write_bars(file, picture, drawing->result);
	fputs("EOD\nplot", file);
	for (size_t i = 0; i < series; i++) {
		fprintf(file, "%s $bars using %zu%s lc rgb '#%s' ", i ? "," : "", i + 2, i ? "" : ":xtic(1)",
			picture->series[i].color + 2);
		if (series > 1)
			fprintf(file, "title '%s'", picture->series[i].name);
		else
			fputs("notitle", file);
	}
	fputc('\n', file);
}

/* Is there a bar to draw? gnuplot fails where all are missing. */
static bool report_has_bars(const struct report_picture *picture, const json_t *result)
{
	const json_t *rows = picture->list ? report_get(result, picture->list) : NULL;
	char path[64];

	for (size_t i = 0; i < report_count_series(picture); i++) {
		for (size_t j = 0; picture->list && j < json_array_size(rows); j++) {
			const json_t *row = json_array_get(rows, j);
			if (report_is_drawn(picture, row) &&
				report_get_number(row, picture->series[i].path) > 0)
				return true;
		}
		for (size_t j = 0; !picture->list && j < REPORT_BARS && picture->bars[j].label; j++) {
			report_put_word(picture->series[i].path, picture->bars[j].word, path);
			if (report_get_number(result, path) > 0)
				return true;
		}
	}
	return false;
}

/* "DIR/report.md" -> "DIR/report-NAME.svg". */
static bool report_get_picture(const char *path, const char *name, char ret_picture[4096])
{
	size_t length = strlen(path);

	if (length > 3 && strcmp(path + length - 3, ".md") == 0)
		length -= 3;
	int r = snprintf(ret_picture, 4096, "%.*s-%s.svg", (int)length, path, name);
	return r > 0 && r < 4096;
}

static int report_write_picture(
	FILE *file, const char *path, const struct report_benchmark *benchmark, const json_t *result)
{
	const struct report_drawing drawing = {&benchmark->picture, result};
	char picture[4096];

	if (!report_has_bars(&benchmark->picture, result) ||
		!report_get_picture(path, benchmark->name, picture))
		return 0;
	int r = bench_gnuplot_draw(REPORT_WHO, picture, report_draw, &drawing);
	if (r < 0)
		return r;
	const char *slash = strrchr(picture, '/');
	fprintf(file, "![%s](%s)\n\n", benchmark->picture.title, slash ? slash + 1 : picture);
	return 0;
}

/* ---- the report ---- */

static void report_write_fact(
	FILE *file, const char *name, const json_t *object, const char *path, enum report_unit unit)
{
	fprintf(file, "| %s | ", name);
	report_write_value(file, object, &(struct report_column){name, path, unit});
	fputs(" |\n", file);
}

static void report_write_machine(FILE *file, const json_t *report)
{
	static const struct report_column facts[] = {{"CPU", "cpu", REPORT_TEXT},
		{"CPUs", "cpus", REPORT_COUNT}, {"L1d", "caches.l1d", REPORT_BYTES},
		{"L2", "caches.l2", REPORT_BYTES}, {"L3", "caches.l3", REPORT_BYTES},
		{"memory", "memory", REPORT_BYTES}, {"of it free for programs", "available", REPORT_BYTES},
		{"NUMA nodes", "nodes", REPORT_COUNT},
		{"transparent huge pages", "transparent_hugepage", REPORT_TEXT},
		{"kernel", "kernel", REPORT_TEXT}, {"architecture", "architecture", REPORT_TEXT}};

	fputs("## The machine\n\n| what | |\n|---|---|\n", file);
	for (size_t i = 0; i < ARRAY_SIZE(facts); i++)
		report_write_fact(
			file, facts[i].heading, report_get(report, "machine"), facts[i].path, facts[i].unit);
	report_write_fact(file, "regime", report, "regime.name", REPORT_TEXT);
	fputs("\nThe regime is what the end of a VM's memory runs under:\n\n", file);
	report_write_rows(file,
		&(struct report_table){
			.columns = {{"fact", "name", REPORT_TEXT}, {"value", "value", REPORT_TEXT},
				{"read from", "where", REPORT_TEXT}}},
		report_get(report, "regime.facts"));
}

static void report_write_summary(FILE *file, const json_t *report)
{
	fputs("## How it went\n\n", file);
	report_write_rows(file,
		&(struct report_table){
			.columns = {{"benchmark", "name", REPORT_TEXT}, {"outcome", "outcome", REPORT_TEXT},
				{"exit status", "status", REPORT_COUNT}, {"took", "seconds", REPORT_S},
				{"others' CPU time before", "busy.before", REPORT_PART},
				{"steal meanwhile", "busy.steal", REPORT_PART},
				{"load before", "busy.load", REPORT_DECIMAL}}},
		report_get(report, "benchmarks"));
	fputs("*done*: enough rounds, and their middle half within the spread that the benchmark allows. "
	      "*incomplete*: "
	      "figures, but not worth their name, and the benchmark says why. *refused*: none, now. "
	      "*failed*, *timeout*: "
	      "as they say.\n\n",
		file);
}

static int report_write_benchmark(FILE *file, const char *path, const json_t *run)
{
	const struct report_benchmark *benchmark = report_find_benchmark(report_get_text(run, "name"));
	const json_t *result = report_get(run, "result"), *word;
	size_t index;

	if (!benchmark)
		return 0;
	fprintf(file, "## %s\n\n%s\n\n`", benchmark->name, benchmark->about);
	json_array_foreach (report_get(run, "command"), index, word)
		fprintf(file, "%s%s", index ? " " : "", json_string_value(word));
	fprintf(file, "`: %s", report_get_text(run, "outcome"));
	if (report_get(run, "why")) {
		fputs(", because it says: ", file);
		report_write_escaped(file, report_get_text(run, "why"));
	}
	fputs("\n\n", file);
	if (!result)
		return 0;
	report_write_tables(file, benchmark, result);
	return report_write_picture(file, path, benchmark, result);
}

static int report_write(FILE *file, const char *path, const json_t *report)
{
	size_t index;
	json_t *run;
	int r = 0;

	fprintf(file, "# What hpz %s costs and saves on this machine\n\nMade on %s by\n\n    ",
		report_get_text(report, "version"), report_get_text(report, "date"));
	json_array_foreach (report_get(report, "command"), index, run)
		fprintf(file, "%s%s", index ? " " : "", json_string_value(run));
	fprintf(file,
		"\n\nwhich took %.0f s.%s Every benchmark scales its memory to the machine and says how much "
		"it took. "
		"Only pairs and ratios mean something: medians of rounds that measure both sides one after "
		"the "
		"other, on warm memory.\n\n",
		report_get_number(report, "seconds"),
		json_is_true(report_get(report, "quick"))
			? " **A quick run, to see that everything works: its figures mean nothing.**"
			: "");
	report_write_machine(file, report);
	report_write_summary(file, report);
	json_array_foreach (report_get(report, "benchmarks"), index, run) {
		if (r == 0)
			r = report_write_benchmark(file, path, run);
	}
	return r;
}

static int report_fail(const char *path, int error)
{
	hpzctl_say(REPORT_WHO ": %s: %s", path, strerror(-error));
	return error;
}

int bench_report_write(const json_t *report, const char *path)
{
	char temporary[4096];
	int r = snprintf(temporary, sizeof(temporary), "%s.XXXXXX", path);

	if (r < 0 || (size_t)r >= sizeof(temporary))
		return report_fail(path, -ENAMETOOLONG);
	/* The file appears when it is whole. */
	int fd = mkstemp(temporary);
	FILE *file = fd < 0 ? NULL : fdopen(fd, "w");
	if (!file) {
		r = report_fail(temporary, -errno);
		close_fd(fd);
		return r;
	}
	fchmod(fd, 0644);
	r = report_write(file, path, report);
	bool is_bad = ferror(file);
	if ((fclose(file) != 0 || is_bad) && r == 0)
		r = report_fail(temporary, -EIO);
	if (r == 0 && rename(temporary, path) < 0)
		r = report_fail(path, -errno);
	if (r < 0)
		unlink(temporary);
	return r;
}
