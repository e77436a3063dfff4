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

/* libvirt writes -object as JSON, or as keys and values for an older QEMU. */
static const char *emulators_get_path(const char *word, size_t *ret_length)
{
	static const struct {
		const char *begin, *end;
	} forms[] = {{"\"mem-path\":\"", "\""}, {"mem-path=", ","}};

	for (size_t i = 0; i < ARRAY_SIZE(forms); i++) {
		const char *at = strstr(word, forms[i].begin);
		if (!at)
			continue;
		at += strlen(forms[i].begin);
		*ret_length = strcspn(at, forms[i].end);
		/* What is escaped is no path that libvirt chose: it makes them of letters, digits and dashes.
		 */
		if (memchr(at, '\\', *ret_length) ||
			(forms[i].end[0] == ',' && at[*ret_length] == ',' && at[*ret_length + 1] == ','))
			return NULL;
		return at;
	}
	return NULL;
}

bool emulators_get_directory(
	const char *words, size_t length, const char *alias, char *ret_path, size_t capacity)
{
	const char *end = words + length;

	if (length == 0 || words[length - 1])
		return false;
	for (const char *at = words; at; at = emulators_get_next(at, end)) {
		size_t path_length = 0;
		const char *path = emulators_get_path(at, &path_length);
		const char *slash = path ? memrchr(path, '/', path_length) : NULL;
		size_t name_length = slash ? path_length - (size_t)(slash + 1 - path) : 0;
		if (!slash || slash == path || path[0] != '/' || name_length == 0)
			continue;
		if (alias && (strlen(alias) != name_length || strncmp(alias, slash + 1, name_length) != 0))
			continue;
		if ((size_t)(slash - path) >= capacity)
			return false;
		snprintf(ret_path, capacity, "%.*s", (int)(slash - path), path);
		return true;
	}
	return false;
}

/* ---- /proc ---- */

int emulators_read(pid_t pid, char **ret_words, size_t *ret_length)
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
