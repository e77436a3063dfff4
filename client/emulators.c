/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* emulators.c - which domains have a process, as their command lines say. */
#include "emulators.h"

#include <dirent.h>
#include <fcntl.h>
#include <strings.h>

/* libvirt's command lines have some KiB; the kernel allows no more than 6 MiB. */
#define EMULATORS_WORDS_MAX (8u << 20)

/* The word behind `at`; NULL behind the last. */
static const char *emulators_get_next(const char *at, const char *end)
{
	const char *next = at + strnlen(at, (size_t)(end - at)) + 1;

	return next < end ? next : NULL;
}

bool emulators_has_uuid(const char *words, size_t length, const char *uuid)
{
	const char *end = words + length;

	/* A word without its NUL, at the end, is no word. */
	if (length == 0 || words[length - 1])
		return false;
	for (const char *at = words; at; at = emulators_get_next(at, end)) {
		const char *value = strcmp(at, "-uuid") == 0 ? emulators_get_next(at, end) : NULL;
		if (value && strcasecmp(value, uuid) == 0)
			return true;
	}
	return false;
}

/* ---- /proc ---- */

/* *ret_words is the caller's. 0 or negative errno. */
static int emulators_read(pid_t pid, char **ret_words, size_t *ret_length)
{
	_cleanup_fd_ int fd = -1;
	_cleanup_free_ char *words = NULL;
	char path[48];
	size_t length = 0, capacity = 0;

	snprintf(path, sizeof(path), "/proc/%d/cmdline", (int)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	while (1) {
		if (length == capacity) {
			capacity = capacity ? capacity * 2 : 16384;
			char *more = capacity <= EMULATORS_WORDS_MAX ? realloc(words, capacity) : NULL;
			if (!more)
				return -ENOMEM;
			words = more;
		}
		ssize_t r = read(fd, words + length, capacity - length);
		if (r < 0)
			return -errno;
		if (r == 0)
			break;
		length += (size_t)r;
	}
	*ret_words = steal_pointer(&words);
	*ret_length = length;
	return 0;
}

/* 1, 0 or negative errno: not to know is not the same as no. */
static int emulators_runs(pid_t pid, const char *uuid)
{
	_cleanup_free_ char *words = NULL;
	size_t length = 0;
	int r = emulators_read(pid, &words, &length);

	if (r == -ENOENT || r == -ESRCH) /* it has ended meanwhile */
		return 0;
	return r < 0 ? r : emulators_has_uuid(words, length, uuid);
}

pid_t emulators_find(const char *uuid)
{
	DIR *directory = opendir("/proc");
	pid_t found = 0;

	if (!directory)
		return -errno;
	/* With hidepid=invisible, and no CAP_SYS_PTRACE, others' processes are not there: then nobody knows.
	 */
	if (access("/proc/1", F_OK) < 0)
		found = -errno;
	while (found == 0) {
		errno = 0;
		const struct dirent *entry = readdir(directory);
		if (!entry) {
			found = -errno;
			break;
		}
		char *rest;
		long pid = strtol(entry->d_name, &rest, 10);
		if (pid <= 0 || *rest || pid == getpid())
			continue;
		int r = emulators_runs((pid_t)pid, uuid);
		if (r)
			found = r < 0 ? r : (pid_t)pid;
	}
	closedir(directory);
	return found;
}
