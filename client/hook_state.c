/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* hook_state.c - what the hook did for a domain: a file of lines, one word and its value each. */
#include "hook_state.h"

#include <fcntl.h>
#include <inttypes.h>
#include <sys/stat.h>

#define HOOK_STATE_FIRST "hpz-libvirt-hook 1"
#define HOOK_STATE_LINE  (HOOK_PATH_MAX + DOMAIN_ALIAS_MAX + 32)
#define HOOK_STATE_BOOT  "/proc/sys/kernel/random/boot_id"
#define HOOK_BOOT_MAX    40
#define HOOK_DRAFT_MAX   (HOOK_STATE_NAME_MAX + 8)

static const char *const hook_ways[] = {[HOOK_WAY_LINK] = "link",
	[HOOK_WAY_BIND] = "bind",
	[HOOK_WAY_SYMLINK] = "symlink",
	[HOOK_WAY_OWN] = "own"};

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

static int hook_state_get_boot(char ret_boot[HOOK_BOOT_MAX])
{
	_cleanup_file_ FILE *file = fopen(HOOK_STATE_BOOT, "re");

	if (!file)
		return -errno;
	if (!fgets(ret_boot, HOOK_BOOT_MAX, file))
		return -EIO;
	ret_boot[strcspn(ret_boot, "\n")] = '\0';
	return 0;
}

/* ---- reading ---- */

/* "ALIAS WAY PATH", without a path where the file is the domain's own. */
static bool hook_state_read_file(char *value, struct hook_state *state)
{
	struct hook_file *file = &state->files[state->file_count];
	char *alias = strsep(&value, " "), *way = strsep(&value, " ");
	size_t row = 0;

	if (state->file_count == DOMAIN_FILES_MAX || !way || !value || strlen(value) >= sizeof(file->path) ||
		!domain_xml_is_alias(alias))
		return false;
	while (row < ARRAY_SIZE(hook_ways) && strcmp(hook_ways[row], way) != 0)
		row++;
	if (row == ARRAY_SIZE(hook_ways) || *value != (row == HOOK_WAY_OWN ? '\0' : '/'))
		return false;
	strcpy(file->alias, alias);
	strcpy(file->path, value);
	file->way = (enum hook_way)row;
	state->file_count++;
	return true;
}

static bool hook_state_read_word(char *line, struct hook_state *state)
{
	const char *word = strsep(&line, " ");

	if (!line)
		return false;
	/* libvirt's begin with the domain's id; "." and ".." are other places. */
	if (strcmp(word, "directory") == 0 && *line != '.' && !strchr(line, '/') &&
		strlen(line) < sizeof(state->directory))
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

/* The second line is the boot's: 0, -ESTALE or -EBADMSG. */
static int hook_state_read_line(size_t number, char *line, struct hook_state *state)
{
	char boot[HOOK_BOOT_MAX];

	if (number == 0)
		return strcmp(line, HOOK_STATE_FIRST) == 0 ? 0 : -EBADMSG;
	if (number > 1)
		return hook_state_read_word(line, state) ? 0 : -EBADMSG;
	int r = hook_state_get_boot(boot);
	if (r < 0)
		return r;
	/* Also what an earlier hpz wrote, which noted no boot. */
	return strncmp(line, "boot ", 5) == 0 && strcmp(line + 5, boot) == 0 ? 0 : -ESTALE;
}

static int hook_state_read_lines(FILE *file, struct hook_state *state)
{
	char line[HOOK_STATE_LINE];

	for (size_t number = 0; fgets(line, sizeof(line), file); number++) {
		char *end = strchr(line, '\n');
		if (!end)
			return -EBADMSG;
		*end = '\0';
		int r = hook_state_read_line(number, line, state);
		if (r < 0)
			return r;
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

static void hook_state_write_lines(FILE *file, const char *boot, const struct hook_state *state)
{
	fprintf(file, HOOK_STATE_FIRST "\nboot %s\ndirectory %s\nlease %" PRIu64 "\ntaken %d\nordinary %d\n",
		boot, state->directory, state->lease, state->is_taken, state->is_ordinary);
	for (size_t i = 0; i < state->file_count; i++)
		fprintf(file, "file %s %s %s\n", state->files[i].alias, hook_ways[state->files[i].way],
			state->files[i].path);
}

static void hook_state_get_draft(const char *name, char ret_draft[HOOK_DRAFT_MAX])
{
	snprintf(ret_draft, HOOK_DRAFT_MAX, "%s.new", name);
}

int hook_state_write(const char *run_dir, const char *name, const struct hook_state *state)
{
	char draft[HOOK_DRAFT_MAX], boot[HOOK_BOOT_MAX];
	_cleanup_fd_ int dir = hook_state_open_dir(run_dir, true);
	int r = dir < 0 ? dir : hook_state_get_boot(boot);

	if (r < 0)
		return r;
	hook_state_get_draft(name, draft);
	_cleanup_fd_ int fd = openat(dir, draft, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
	FILE *file = fd < 0 ? NULL : fdopen(fd, "w");
	if (!file)
		return -errno;
	steal_fd(&fd);
	hook_state_write_lines(file, boot, state);
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
	char draft[HOOK_DRAFT_MAX];
	_cleanup_fd_ int dir = hook_state_open_dir(run_dir, false);

	if (dir < 0)
		return;
	unlinkat(dir, name, 0);
	/* Of one that died while it wrote. */
	hook_state_get_draft(name, draft);
	unlinkat(dir, draft, 0);
}
