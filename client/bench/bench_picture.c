/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* bench_picture.c - rates and the neighbour's times as a picture (SVG), drawn by gnuplot. */
#include "bench_clear.h"

#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "size.h"

extern char **environ;

#define BENCH_PICTURE_TOOL "gnuplot"

static int bench_picture_fail(const char *what, int error)
{
	hpzctl_say("bench clear: --svg: %s: %s", what, strerror(-error));
	return error;
}

/* Starts gnuplot with these as its standard input and output; it ends with its input. */
static int bench_picture_start(int in, int out, char *const argv[], pid_t *ret_pid)
{
	posix_spawn_file_actions_t actions;
	int r;

	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, in, 0);
	posix_spawn_file_actions_adddup2(&actions, out, 1);
	r = posix_spawnp(ret_pid, BENCH_PICTURE_TOOL, &actions, NULL, argv, environ);
	posix_spawn_file_actions_destroy(&actions);
	return -r;
}

static int bench_picture_wait(pid_t pid)
{
	int status;

	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return -errno;
	return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -EIO;
}

int bench_picture_find_tool(void)
{
	char name[] = BENCH_PICTURE_TOOL, version[] = "--version";
	char *const argv[] = {name, version, NULL};
	_cleanup_fd_ int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	pid_t pid;
	int r = null < 0 ? -errno : bench_picture_start(null, null, argv, &pid);

	if (r == 0)
		r = bench_picture_wait(pid);
	if (r < 0)
		hpzctl_say("bench clear: --svg needs gnuplot (package gnuplot-nox): %s", strerror(-r));
	return r;
}

/* ---- what gnuplot is told ---- */

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

static int bench_picture_write(const struct bench_clear *bench, int fd)
{
	FILE *file = fdopen(fd, "w");

	if (!file) {
		int error = -errno;
		close(fd);
		return error;
	}
	fputs(bench_picture_head, file);
	bench_picture_write_rates(file, bench);
	bench_picture_write_neighbour(file, bench);
	bool is_bad = ferror(file);
	return fclose(file) != 0 || is_bad ? -EIO : 0;
}

/* gnuplot reads what we write into the pipe, and writes the picture: it never opens a file of that name. */
static int bench_picture_run_tool(const struct bench_clear *bench, int out)
{
	char name[] = BENCH_PICTURE_TOOL, silent[] = "-";
	char *const argv[] = {name, silent, NULL};
	int ends[2];
	pid_t pid;

	if (pipe2(ends, O_CLOEXEC) < 0)
		return -errno;
	signal(SIGPIPE, SIG_IGN);
	int r = bench_picture_start(ends[0], out, argv, &pid);
	close(ends[0]);
	if (r < 0) {
		close(ends[1]);
		return r;
	}
	r = bench_picture_write(bench, ends[1]);
	int ended = bench_picture_wait(pid);
	return ended < 0 ? ended : r;
}

int bench_picture_draw(const struct bench_clear *bench)
{
	char path[4096];
	int r = snprintf(path, sizeof(path), "%s.XXXXXX", bench->picture);

	if (r < 0 || (size_t)r >= sizeof(path))
		return bench_picture_fail(bench->picture, -ENAMETOOLONG);
	/* The file appears when it is whole. */
	_cleanup_fd_ int out = mkostemp(path, O_CLOEXEC);
	if (out < 0)
		return bench_picture_fail(path, -errno);
	r = bench_picture_run_tool(bench, out);
	if (r == 0 && (fchmod(out, 0644) < 0 || rename(path, bench->picture) < 0))
		r = -errno;
	if (r < 0) {
		unlink(path);
		return bench_picture_fail(bench->picture, r);
	}
	return 0;
}
