/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * emulators.c - which domains have a process, as their command lines say.
 * The child writes a record for each process before it reads its command line, without a uuid, and one with a
 * uuid for each that is in it: so it is known who held it.
 */
#include "emulators.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

/* libvirt's command lines have some KiB; the kernel allows no more than 6 MiB, but a process may say later
 * that its own is longer (PR_SET_MM_MAP): then it is no emulator of libvirt's. */
#define EMULATORS_WORDS_MAX (8u << 20)
/* Of thousands of processes it takes some tens of milliseconds. */
#define EMULATORS_DEADLINE_MS 5000
#define EMULATORS_KILLED_MS   1000
/* No host runs as many domains; a command line may claim to be of any. */
#define EMULATORS_MAX 65536

/* ---- words ---- */

static bool emulators_take_uuid(const char *word, char ret_uuid[EMULATORS_UUID_SIZE])
{
	if (strlen(word) != EMULATORS_UUID_SIZE - 1)
		return false;
	for (int i = 0; i < EMULATORS_UUID_SIZE - 1; i++) {
		bool is_dash = i == 8 || i == 13 || i == 18 || i == 23;
		if (is_dash ? word[i] != '-' : !isxdigit((unsigned char)word[i]))
			return false;
	}
	for (int i = 0; i < EMULATORS_UUID_SIZE; i++)
		ret_uuid[i] = (char)tolower((unsigned char)word[i]);
	return true;
}

bool emulators_next_uuid(const char *words, size_t length, size_t *at, char ret_uuid[EMULATORS_UUID_SIZE])
{
	/* A word without its NUL, at the end, is no word. */
	if (length == 0 || words[length - 1])
		return false;
	while (*at < length) {
		bool is_option = strcmp(words + *at, "-uuid") == 0;
		*at += strlen(words + *at) + 1;
		if (is_option && *at < length && emulators_take_uuid(words + *at, ret_uuid))
			return true;
	}
	return false;
}

/* ---- the child ---- */

/* *ret_words is the caller's. 0 or negative errno. */
static int emulators_read_words(pid_t pid, char **ret_words, size_t *ret_length)
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
			if (capacity > EMULATORS_WORDS_MAX)
				return -E2BIG;
			char *more = realloc(words, capacity);
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

static int emulators_write(const struct emulator *record)
{
	/* A pipe takes so little at once or not at all. */
	return write(STDOUT_FILENO, record, sizeof(*record)) == sizeof(*record) ? 0 : -EPIPE;
}

static int emulators_tell_one(pid_t pid)
{
	_cleanup_free_ char *words = NULL;
	struct emulator record = {.pid = pid};
	size_t length = 0, at = 0;

	int r = emulators_write(&record);
	if (r == 0)
		r = emulators_read_words(pid, &words, &length);
	if (r == -ENOENT || r == -ESRCH) /* it has ended meanwhile */
		return 0;
	if (r == -E2BIG) /* whoever lies costs himself */
		return 0;
	while (r == 0 && emulators_next_uuid(words, length, &at, record.uuid))
		r = emulators_write(&record);
	return r;
}

static int emulators_tell_all(DIR *directory)
{
	const struct dirent *entry;
	int r = 0;

	errno = 0;
	while (r == 0 && (entry = readdir(directory))) {
		char *rest;
		long pid = strtol(entry->d_name, &rest, 10);
		if (pid > 0 && !*rest && pid != getpid())
			r = emulators_tell_one((pid_t)pid);
		errno = 0;
	}
	return r ? r : -errno;
}

int emulators_tell(void)
{
	/* Of the thread that started us, which stays for as long as its process. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	/* With hidepid=invisible, and no CAP_SYS_PTRACE, others' processes are not there: then nobody knows.
	 */
	if (access("/proc/1", F_OK) < 0)
		return errno;
	DIR *directory = opendir("/proc");
	int r = directory ? emulators_tell_all(directory) : -errno;
	if (directory)
		closedir(directory);
	return -r;
}

/* ---- the parent ---- */

/* A child that could not be killed so far, and who holds it: as long as it is there, there is no other. */
static pid_t emulators_stuck, emulators_holder;

static bool emulators_is_stuck(void)
{
	if (emulators_stuck && waitpid(emulators_stuck, NULL, WNOHANG) != 0)
		emulators_stuck = 0;
	return emulators_stuck != 0;
}

/* *ret_fd: what it tells. 0 or negative errno. */
static int emulators_start(pid_t *ret_pid, int *ret_fd)
{
	static char *argv[] = {(char *)"hpz-libvirt", (char *)EMULATORS_WORD, NULL};
	posix_spawn_file_actions_t actions;
	int ends[2];

	if (pipe2(ends, O_CLOEXEC) < 0)
		return -errno;
	int r = posix_spawn_file_actions_init(&actions);
	if (r == 0) {
		r = posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
		/* Of the file that we are, also when an upgrade has replaced it. */
		if (r == 0)
			r = posix_spawn(ret_pid, "/proc/self/exe", &actions, NULL, argv, environ);
		posix_spawn_file_actions_destroy(&actions);
	}
	close(ends[1]);
	if (r == 0)
		*ret_fd = ends[0];
	else
		close(ends[0]);
	return -r;
}

/* In a wait that nothing ends it is left behind. */
static void emulators_kill(pid_t pid, pid_t held)
{
	_cleanup_fd_ int fd = (int)syscall(SYS_pidfd_open, pid, 0);
	struct pollfd ended = {fd, POLLIN, 0};

	kill(pid, SIGKILL);
	if (fd >= 0)
		poll(&ended, 1, EMULATORS_KILLED_MS);
	emulators_stuck = pid;
	emulators_holder = held;
	emulators_is_stuck();
}

static int emulators_add(struct emulators *emulators, size_t *capacity, const struct emulator *record)
{
	if (emulators->count == EMULATORS_MAX)
		return -E2BIG;
	if (emulators->count == *capacity) {
		size_t more = *capacity ? *capacity * 2 : 64;
		struct emulator *items = reallocarray(emulators->items, more, sizeof(*items));
		if (!items)
			return -ENOMEM;
		emulators->items = items;
		*capacity = more;
	}
	emulators->items[emulators->count++] = *record;
	return 0;
}

/* One record; 1, 0 at the end, -ETIMEDOUT or another negative errno. */
static int emulators_receive(int fd, uint64_t deadline_ns, struct emulator *ret_record)
{
	struct pollfd more = {fd, POLLIN, 0};
	uint64_t now_ns = clock_get_ns(CLOCK_MONOTONIC);

	if (now_ns >= deadline_ns)
		return -ETIMEDOUT;
	int ready = poll(&more, 1, (int)((deadline_ns - now_ns) / NS_PER_MS) + 1);
	if (ready < 0 && errno == EINTR)
		return emulators_receive(fd, deadline_ns, ret_record);
	if (ready <= 0)
		return ready == 0 ? -ETIMEDOUT : -errno;
	ssize_t r = read(fd, ret_record, sizeof(*ret_record));
	if (r < 0)
		return -errno;
	/* Whole records are written, and read. */
	return r == 0 ? 0 : r == sizeof(*ret_record) ? 1 : -EBADMSG;
}

static int emulators_receive_all(int fd, struct emulators *emulators, pid_t *held)
{
	uint64_t deadline_ns = clock_get_ns(CLOCK_MONOTONIC) + EMULATORS_DEADLINE_MS * NS_PER_MS;
	struct emulator record;
	size_t capacity = 0;
	int r;

	while ((r = emulators_receive(fd, deadline_ns, &record)) > 0) {
		record.uuid[EMULATORS_UUID_SIZE - 1] = '\0';
		*held = record.pid;
		r = *record.uuid ? emulators_add(emulators, &capacity, &record) : 0;
		if (r < 0)
			break;
	}
	return r;
}

int emulators_read(struct emulators *ret_emulators, pid_t *ret_held)
{
	struct emulators emulators = {0};
	_cleanup_fd_ int fd = -1;
	pid_t child;
	int status = 0;

	*ret_held = emulators_holder;
	if (emulators_is_stuck())
		return -ETIMEDOUT;
	*ret_held = 0;
	int r = emulators_start(&child, &fd);
	if (r < 0)
		return r;
	r = emulators_receive_all(fd, &emulators, ret_held);
	if (r < 0)
		emulators_kill(child, *ret_held);
	else if (waitpid(child, &status, 0) < 0)
		r = -errno;
	else if (status)
		r = WIFEXITED(status) ? -WEXITSTATUS(status) : -ECHILD;
	if (r < 0)
		emulators_deinit(&emulators);
	else
		*ret_emulators = emulators;
	return r;
}

void emulators_deinit(struct emulators *emulators)
{
	free(emulators->items);
	*emulators = (struct emulators){0};
}

bool emulators_have(const struct emulators *emulators, const char *uuid)
{
	for (size_t i = 0; i < emulators->count; i++) {
		if (strcmp(emulators->items[i].uuid, uuid) == 0)
			return true;
	}
	return false;
}
