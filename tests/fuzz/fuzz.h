/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * fuzz.h - what the fuzz targets share. A target reads bytes that somebody else could have written as the
 * product reads them, and checks what must then be true; FUZZ_CHECK() aborts. Built with main.c it goes over
 * a corpus, with libFuzzer it looks for more.
 */
#ifndef HPZ_FUZZ_H
#define HPZ_FUZZ_H

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "util.h"

/* libFuzzer's. */
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length);

#define FUZZ_CHECK(condition)                                                                                \
	do {                                                                                                 \
		if (!(condition)) {                                                                          \
			fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition);            \
			abort();                                                                             \
		}                                                                                            \
	} while (0)

/* The input, from its beginning; what is missing is zero. */
struct fuzz_input {
	const uint8_t *at;
	size_t left;
};

static inline uint64_t fuzz_take_number(struct fuzz_input *input, size_t bytes)
{
	uint64_t number = 0;
	size_t taken = MIN(bytes, input->left);

	memcpy(&number, input->at, taken);
	input->at += taken;
	input->left -= taken;
	return number;
}

static inline uint8_t fuzz_take_byte(struct fuzz_input *input)
{
	return (uint8_t)fuzz_take_number(input, 1);
}

/* At most so many bytes, in memory of just that size, so that a sanitizer sees who reads beyond it. */
static inline uint8_t *fuzz_take_bytes(struct fuzz_input *input, size_t most, size_t *ret_length)
{
	size_t length = MIN(most, input->left);
	uint8_t *copy = malloc(MAX(length, (size_t)1));

	FUZZ_CHECK(copy);
	memcpy(copy, input->at, length);
	input->at += length;
	input->left -= length;
	*ret_length = length;
	return copy;
}

/* What is left, or what is left of it up to `end`, as a string in memory of just its size. */
static inline char *fuzz_take_text(struct fuzz_input *input, int end)
{
	size_t length = 0;

	while (length < input->left && input->at[length] && input->at[length] != end)
		length++;
	char *text = malloc(length + 1);
	FUZZ_CHECK(text);
	memcpy(text, input->at, length);
	text[length] = '\0';
	length += length < input->left;
	input->at += length;
	input->left -= length;
	return text;
}

/* One file of these bytes, the same one each time. Returns its path; *ret_fd (may be NULL) is its descriptor.
 */
static inline const char *fuzz_make_file(const void *bytes, size_t length, int *ret_fd)
{
	static char path[40];
	static int fd = -1;

	if (fd < 0) {
		fd = memfd_create("fuzz", MFD_CLOEXEC);
		FUZZ_CHECK(fd >= 0);
		snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	}
	FUZZ_CHECK(ftruncate(fd, 0) == 0 && pwrite(fd, bytes, length, 0) == (ssize_t)length);
	if (ret_fd)
		*ret_fd = fd;
	return path;
}

/* A directory of its own, which whoever started the program removes: a target that aborts cannot. */
static inline const char *fuzz_get_directory(void)
{
	static char path[256];

	if (!*path) {
		const char *base = getenv("HPZ_FUZZ_DIRECTORY");
		FUZZ_CHECK(base);
		snprintf(path, sizeof path, "%.200s/fuzz-XXXXXX", base);
		FUZZ_CHECK(mkdtemp(path));
	}
	return path;
}

/* A file of these bytes in it; directories are made as needed. */
static inline void fuzz_put_file(const char *name, const void *bytes, size_t length)
{
	char path[512];

	snprintf(path, sizeof path, "%s/%s", fuzz_get_directory(), name);
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	for (char *at = path + strlen(fuzz_get_directory()) + 1; fd < 0 && (at = strchr(at, '/'));
		*at++ = '/') {
		*at = '\0';
		FUZZ_CHECK(mkdir(path, 0700) == 0 || errno == EEXIST);
	}
	if (fd < 0)
		fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	FUZZ_CHECK(fd >= 0 && write(fd, bytes, length) == (ssize_t)length);
	close(fd);
}

#endif
