/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * main.c - a fuzz target as a plain test: FILE-OR-DIRECTORY... are its inputs, each run once. At least one
 * must be there. The work is done by a child, so that what it leaves behind when it aborts is removed all the
 * same.
 */
#include <ftw.h>
#include <signal.h>
#include <sys/wait.h>

#include "fuzz.h"

static unsigned long count;
static char directory[64];

static void run_file(const char *path)
{
	_cleanup_file_ FILE *file = fopen(path, "re");
	_cleanup_free_ char *bytes = NULL;
	size_t length = 0;

	FUZZ_CHECK(file);
	FILE *copy = open_memstream(&bytes, &length);
	FUZZ_CHECK(copy);
	for (int c; (c = getc(file)) != EOF;)
		putc(c, copy);
	FUZZ_CHECK(fclose(copy) == 0);
	fprintf(stderr, "%s\n", path); /* the last one is the one that failed */
	LLVMFuzzerTestOneInput((const uint8_t *)bytes, length);
	count++;
}

static int run_entry(const char *path, const struct stat *st, int type, struct FTW *where)
{
	if (type == FTW_F)
		run_file(path);
	return 0;
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *where)
{
	return remove(path);
}

static int run_all(char **paths)
{
	LLVMFuzzerTestOneInput((const uint8_t *)"", 0);
	for (; *paths; paths++)
		FUZZ_CHECK(nftw(*paths, run_entry, 16, FTW_PHYS) == 0);
	fprintf(stderr, "%lu inputs\n", count);
	return count > 0 ? 0 : 1;
}

int main(int argc, char **argv)
{
	const char *base = getenv("TMPDIR");
	int status = 1;

	snprintf(directory, sizeof directory, "%.40s/hpz-fuzz-XXXXXX", base ? base : "/tmp");
	if (argc < 2 || !mkdtemp(directory) || setenv("HPZ_FUZZ_DIRECTORY", directory, 1) < 0) {
		fprintf(stderr, "usage: %s FILE-OR-DIRECTORY...\n", argv[0]);
		return 2;
	}
	pid_t child = fork();
	if (child == 0)
		exit(run_all(argv + 1));
	if (child > 0 && waitpid(child, &status, 0) < 0)
		status = 1;
	nftw(directory, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
	if (child > 0 && WIFSIGNALED(status))
		fprintf(stderr, "%s\n", strsignal(WTERMSIG(status)));
	return child > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
