/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* bench_picture.c - rates and the neighbour's times as a picture. */
#include "bench_clear.h"

#include <inttypes.h>
#include <math.h>

#include "bench_gnuplot.h"
#include "size.h"

static const char *const bench_picture_head =
	"set terminal svg size 900,420 font 'sans-serif,12' background '#ffffff'\n"
	"set style fill solid 0.85 border -1\nset boxwidth 0.75\nset grid y\nset xtics rotate by -35\n"
	"set yrange [0:*]\nset offsets 0,0,graph 0.1,0\nset multiplot layout 1,2\n";

static void bench_picture_write_bar(FILE *file, const char *label, double value, const char *color)
{
	if (isfinite(value))
		fprintf(file, "\"%s\" %.3f %s\n", label, value, color);
}

static void bench_picture_write_rates(FILE *file, const struct bench_clear *bench)
{
	fputs("$rates << EOD\n", file);
	for (size_t i = 0; i < bench->figure_count; i++) {
		const struct bench_figure *figure = &bench->figures[i];
		bool is_method = strcmp(figure->kind, "method") == 0;
		char label[96], size[SIZE_TEXT];
		if (!is_method && strcmp(figure->kind, "kernel") != 0 && strcmp(figure->kind, "engine") != 0)
			continue;
		snprintf(label, sizeof(label), "%s %s",
			is_method                             ? figure->name
			: strcmp(figure->kind, "kernel") == 0 ? "kernel"
							      : "hpz",
			size_format_exact(figure->page_size, size));
		bench_picture_write_bar(file, label, figure->median.value,
			is_method       ? "0x9db8d9"
			: *label == 'k' ? "0xc0504d"
					: "0x4f8f4f");
	}
	fputs("EOD\nset title 'clearing, one CPU'\nset ylabel 'GB/s'\n"
	      "plot $rates using 0:2:3:xtic(1) with boxes lc rgb variable notitle, "
	      "'' using 0:2:(sprintf('%.0f',$2)) with labels offset 0,0.6 notitle\n",
		file);
}

static void bench_picture_write_neighbour(FILE *file, const struct bench_clear *bench)
{
	static const struct {
		const char *kind, *name, *label, *color;
	} rows[] = {{"neighbour", "lookup", "lookup", "0xcccccc"},
		{"neighbour", "fallocate", "kernel", "0xc0504d"}, {"neighbour", "stosb", "stosb", "0xd99694"},
		{"neighbour", "hpz", "hpz", "0x4f8f4f"},
		{"neighbour", "fallocate" BENCH_SELDOM, "kernel" BENCH_SELDOM, "0xc0504d"},
		{"neighbour", "hpz" BENCH_SELDOM, "hpz" BENCH_SELDOM, "0x4f8f4f"},
		{"after", "hpz 1", "hpz, 1st after", "0x9bbb9b"},
		{"after", "hpz 2", "hpz, 2nd after", "0x9bbb9b"}};
	static const uint64_t sets[] = {BENCH_SET_SMALL, BENCH_SET_LARGE};

	fputs("$passes << EOD\n", file);
	for (size_t i = 0; i < ARRAY_SIZE(sets); i++) {
		for (size_t j = 0; j < ARRAY_SIZE(rows); j++) {
			const struct bench_figure *figure = bench_clear_find_figure(
				bench, rows[j].kind, rows[j].name, bench->pages.page_size, sets[i]);
			char label[96], size[SIZE_TEXT];
			snprintf(label, sizeof(label), "%s, %s", rows[j].label,
				size_format_exact(sets[i], size));
			if (figure)
				bench_picture_write_bar(file, label, figure->median.ratio, rows[j].color);
		}
	}
	fputs("EOD\nset title 'a neighbour on the same CPU walks its set'\nset ylabel 'time of a pass, alone "
	      "= 1'\n"
	      "plot $passes using 0:2:3:xtic(1) with boxes lc rgb variable notitle, "
	      "'' using 0:2:(sprintf('%.2f',$2)) with labels offset 0,0.6 notitle\nunset multiplot\n",
		file);
}

static void bench_picture_write(FILE *file, const void *user)
{
	const struct bench_clear *bench = user;

	fputs(bench_picture_head, file);
	bench_picture_write_rates(file, bench);
	bench_picture_write_neighbour(file, bench);
}

int bench_picture_find_tool(void)
{
	return bench_gnuplot_find("bench clear: --svg");
}

int bench_picture_draw(const struct bench_clear *bench)
{
	return bench_gnuplot_draw("bench clear: --svg", bench->picture, bench_picture_write, bench);
}
