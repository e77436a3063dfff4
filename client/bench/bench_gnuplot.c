/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* bench_gnuplot.c - pictures (SVG), drawn by gnuplot: see bench_gnuplot.h. */
#include "bench_gnuplot.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>

extern char **environ;

#define BENCH_GNUPLOT "gnuplot"

static int bench_gnuplot_fail(const char *who, const char *what, int error)
{
	hpzctl_say("%s: %s: %s", who, what, strerror(-error));
	return error;
}

/* Starts gnuplot with these as its standard input and output; it ends with its input. */
static int bench_gnuplot_start(int in, int out, char *const argv[], pid_t *ret_pid)
{
	posix_spawn_file_actions_t actions;
	int r;

	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, in, 0);
	posix_spawn_file_actions_adddup2(&actions, out, 1);
	r = posix_spawnp(ret_pid, BENCH_GNUPLOT, &actions, NULL, argv, environ);
	posix_spawn_file_actions_destroy(&actions);
	return -r;
}

static int bench_gnuplot_wait(pid_t pid)
{
	int status;

	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return -errno;
	return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -EIO;
}

int bench_gnuplot_find(const char *who)
{
	char name[] = BENCH_GNUPLOT, version[] = "--version";
	char *const argv[] = {name, version, NULL};
	_cleanup_fd_ int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	pid_t pid;
	int r = null < 0 ? -errno : bench_gnuplot_start(null, null, argv, &pid);

	if (r == 0)
		r = bench_gnuplot_wait(pid);
	if (r < 0)
		hpzctl_say("%s needs gnuplot (package gnuplot-nox): %s", who, strerror(-r));
	return r;
}

static int bench_gnuplot_write(int fd, bench_gnuplot_writer write, const void *user)
{
	FILE *file = fdopen(fd, "w");

	if (!file) {
		int error = -errno;
		close(fd);
		return error;
	}
	write(file, user);
	bool is_bad = ferror(file);
	return fclose(file) != 0 || is_bad ? -EIO : 0;
}

/* gnuplot reads what we write into the pipe, and writes the picture: it never opens a file of that name. */
static int bench_gnuplot_run(int out, bench_gnuplot_writer write, const void *user)
{
	char name[] = BENCH_GNUPLOT, silent[] = "-";
	char *const argv[] = {name, silent, NULL};
	int ends[2];
	pid_t pid;

	if (pipe2(ends, O_CLOEXEC) < 0)
		return -errno;
	signal(SIGPIPE, SIG_IGN);
	int r = bench_gnuplot_start(ends[0], out, argv, &pid);
	close(ends[0]);
	if (r < 0) {
		close(ends[1]);
		return r;
	}
	r = bench_gnuplot_write(ends[1], write, user);
	int ended = bench_gnuplot_wait(pid);
	return ended < 0 ? ended : r;
}

int bench_gnuplot_draw(const char *who, const char *picture, bench_gnuplot_writer write, const void *user)
{
	char path[4096];
	int r = snprintf(path, sizeof(path), "%s.XXXXXX", picture);

	if (r < 0 || (size_t)r >= sizeof(path))
		return bench_gnuplot_fail(who, picture, -ENAMETOOLONG);
	/* The file appears when it is whole. */
	_cleanup_fd_ int out = mkostemp(path, O_CLOEXEC);
	if (out < 0)
		return bench_gnuplot_fail(who, path, -errno);
	r = bench_gnuplot_run(out, write, user);
	if (r == 0 && (fchmod(out, 0644) < 0 || rename(path, picture) < 0))
		r = -errno;
	if (r < 0) {
		unlink(path);
		return bench_gnuplot_fail(who, picture, r);
	}
	return 0;
}
