/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* temp.h - a directory of a test's own, and files in it. Any failure fails the test. Header only. */
#ifndef HPZ_TEST_TEMP_H
#define HPZ_TEST_TEMP_H

#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <cmocka.h>
#include "util.h"

#define TEMP_PATH 256

static inline void temp_make(char ret_dir[TEMP_PATH])
{
	const char *base = getenv("TMPDIR");

	snprintf(ret_dir, TEMP_PATH, "%.200s/hpz-test-XXXXXX", base ? base : "/tmp");
	assert_non_null(mkdtemp(ret_dir));
}

static inline int temp_remove_entry(const char *path, const struct stat *st, int type, struct FTW *where)
{
	return remove(path);
}

static inline void temp_remove(const char *dir)
{
	assert_int_equal(nftw(dir, temp_remove_entry, 16, FTW_DEPTH | FTW_PHYS), 0);
}

/* dir/name, the directories of name made as needed. */
static inline void temp_path(const char *dir, const char *name, char ret_path[PATH_MAX])
{
	snprintf(ret_path, PATH_MAX, "%s/%s", dir, name);
	for (char *at = ret_path + strlen(dir) + 1; (at = strchr(at, '/')); *at++ = '/') {
		*at = 0;
		if (mkdir(ret_path, 0755) < 0)
			assert_int_equal(errno, EEXIST);
	}
}

static inline void temp_write(const char *dir, const char *name, const void *bytes, size_t length)
{
	char path[PATH_MAX];
	int fd;

	temp_path(dir, name, path);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, bytes, length), length);
	close(fd);
}

static inline void temp_put(const char *dir, const char *name, const char *text)
{
	temp_write(dir, name, text, strlen(text));
}

/* The bytes and a NUL; the caller frees. */
static inline char *temp_read(const char *dir, const char *name, size_t *ret_length)
{
	char path[PATH_MAX];
	struct stat st;
	char *bytes;
	int fd;

	snprintf(path, sizeof path, "%s/%s", dir, name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(fstat(fd, &st), 0);
	bytes = calloc(1, (size_t)st.st_size + 1);
	assert_non_null(bytes);
	assert_int_equal(read(fd, bytes, (size_t)st.st_size), st.st_size);
	close(fd);
	if (ret_length)
		*ret_length = (size_t)st.st_size;
	return bytes;
}

#endif
