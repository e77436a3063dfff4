/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* hook_state.c - what the hook did for a domain: a file of lines, one word and its value each. */
#include "hook_state.h"

#include <fcntl.h>
#include <inttypes.h>
#include <sys/stat.h>

#define HOOK_STATE_FIRST "hpz-libvirt-hook 1"
#define HOOK_STATE_LINE  (HOOK_PATH_MAX + DOMAIN_ALIAS_MAX + 32)

static const char *const hook_ways[] = {
	[HOOK_WAY_LINK] = "link", [HOOK_WAY_BIND] = "bind", [HOOK_WAY_SYMLINK] = "symlink"};

void hook_state_get_name(const char *uuid, uint64_t dev, uint64_t ino, char ret_name[HOOK_STATE_NAME_MAX])
{
	snprintf(ret_name, HOOK_STATE_NAME_MAX, "%s-%" PRIx64 "-%" PRIx64, uuid, dev, ino);
}

/* The directory of all of them, root's alone. */
static int hook_state_open_dir(const char *run_dir, bool makes)
{
	char path[HOOK_PATH_MAX + 16];

	snprintf(path, sizeof(path), "%s/libvirt", run_dir);
	/* hpzd may never have run. */
	if (makes &&
		((mkdir(run_dir, 0755) < 0 && errno != EEXIST) || (mkdir(path, 0700) < 0 && errno != EEXIST)))
		return -errno;
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

/* ---- reading ---- */

/* "ALIAS WAY PATH" */
static bool hook_state_read_file(char *value, struct hook_state *state)
{
	struct hook_file *file = &state->files[state->file_count];
	char *alias = strsep(&value, " "), *way = strsep(&value, " ");
	size_t row = 0;

	if (state->file_count == DOMAIN_FILES_MAX || !way || !value || *value != '/' ||
		strlen(value) >= sizeof(file->path) || !domain_xml_is_alias(alias))
		return false;
	while (row < ARRAY_SIZE(hook_ways) && strcmp(hook_ways[row], way) != 0)
		row++;
	if (row == ARRAY_SIZE(hook_ways))
		return false;
	strcpy(file->alias, alias);
	strcpy(file->path, value);
	file->way = (enum hook_way)row;
	state->file_count++;
	return true;
}

static bool hook_state_read_line(char *line, struct hook_state *state)
{
	const char *word = strsep(&line, " ");

	if (!line)
		return false;
	if (strcmp(word, "directory") == 0 && !strchr(line, '/') && strlen(line) < sizeof(state->directory))
		strcpy(state->directory, line);
	else if (strcmp(word, "lease") == 0)
		state->lease = strtoull(line, NULL, 10);
	else if (strcmp(word, "taken") == 0)
		state->is_taken = *line == '1';
	else if (strcmp(word, "ordinary") == 0)
		state->is_ordinary = *line == '1';
	else
		return strcmp(word, "file") == 0 && hook_state_read_file(line, state);
	return true;
}

static int hook_state_read_lines(FILE *file, struct hook_state *state)
{
	char line[HOOK_STATE_LINE];

	for (size_t number = 0; fgets(line, sizeof(line), file); number++) {
		char *end = strchr(line, '\n');
		if (!end)
			return -EBADMSG;
		*end = '\0';
		if (number == 0 ? strcmp(line, HOOK_STATE_FIRST) != 0 : !hook_state_read_line(line, state))
			return -EBADMSG;
	}
	return ferror(file) ? -EIO : *state->directory ? 0 : -EBADMSG;
}

int hook_state_read(const char *run_dir, const char *name, struct hook_state *ret_state)
{
	_cleanup_fd_ int dir = hook_state_open_dir(run_dir, false);
	_cleanup_free_ struct hook_state *state = calloc(1, sizeof(*state));

	if (dir < 0)
		return dir;
	_cleanup_fd_ int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	_cleanup_file_ FILE *file = fdopen(fd, "r");
	if (!file || !state)
		return -ENOMEM;
	steal_fd(&fd);
	int r = hook_state_read_lines(file, state);
	if (r == 0)
		*ret_state = *state;
	return r;
}

/* ---- writing ---- */

static void hook_state_write_lines(FILE *file, const struct hook_state *state)
{
	fprintf(file, HOOK_STATE_FIRST "\ndirectory %s\nlease %" PRIu64 "\ntaken %d\nordinary %d\n",
		state->directory, state->lease, state->is_taken, state->is_ordinary);
	for (size_t i = 0; i < state->file_count; i++)
		fprintf(file, "file %s %s %s\n", state->files[i].alias, hook_ways[state->files[i].way],
			state->files[i].path);
}

int hook_state_write(const char *run_dir, const char *name, const struct hook_state *state)
{
	char draft[HOOK_STATE_NAME_MAX + 8];
	_cleanup_fd_ int dir = hook_state_open_dir(run_dir, true);

	if (dir < 0)
		return dir;
	snprintf(draft, sizeof(draft), "%s.new", name);
	_cleanup_fd_ int fd = openat(dir, draft, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
	FILE *file = fd < 0 ? NULL : fdopen(fd, "w");
	if (!file)
		return -errno;
	steal_fd(&fd);
	hook_state_write_lines(file, state);
	/* No fsync: what it tells of is gone after a crash of the host, too. */
	if (fclose(file) != 0 || renameat(dir, draft, dir, name) < 0) {
		int saved = errno;
		unlinkat(dir, draft, 0);
		return -saved;
	}
	return 0;
}

void hook_state_remove(const char *run_dir, const char *name)
{
	_cleanup_fd_ int dir = hook_state_open_dir(run_dir, false);

	if (dir >= 0)
		unlinkat(dir, name, 0);
}
