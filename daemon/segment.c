/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* segment.c - one hugetlbfs file, and the directories its name can be in. */
#include <fcntl.h>
#include <inttypes.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/vfs.h>
#include <linux/magic.h>

#include "segment.h"

static const char *const state_names[SEGMENT_STATE_COUNT] = {"filling", "clean", "leased", "dirty"};

const char *segment_get_state_name(enum segment_state state)
{
	return state_names[state];
}

/* ---- names ---- */

void segment_format_name(const struct segment_name *name, char ret_text[SEGMENT_NAME_MAX])
{
	if (name->is_leased)
		snprintf(ret_text, SEGMENT_NAME_MAX, "%" PRIu64 ".%" PRIu64 ".%" PRIu64 ".%" PRIu32, name->id,
			name->generation, name->lease, name->index);
	else
		snprintf(ret_text, SEGMENT_NAME_MAX, "%" PRIu64 ".%" PRIu64, name->id, name->generation);
}

/* One decimal number without sign, blanks or leading zeros. Returns what follows it, NULL if it is none. */
static const char *parse_number(const char *text, uint64_t max, uint64_t *ret_number)
{
	if (*text < '0' || *text > '9' || (*text == '0' && text[1] >= '0' && text[1] <= '9'))
		return NULL;
	uint64_t n = 0;
	for (; *text >= '0' && *text <= '9'; text++) {
		if (__builtin_mul_overflow(n, 10, &n) ||
			__builtin_add_overflow(n, (uint64_t)(*text - '0'), &n))
			return NULL;
	}
	if (n > max)
		return NULL;
	*ret_number = n;
	return text;
}

int segment_parse_name(const char *text, struct segment_name *ret_name)
{
	uint64_t numbers[4] = {0};
	const uint64_t max[4] = {UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT32_MAX};
	size_t count = 0;
	for (const char *at = text; count < 4; at++) {
		at = parse_number(at, max[count], &numbers[count]);
		if (!at)
			return -EINVAL;
		count++;
		if (*at == '\0')
			break;
		if (*at != '.' || count == 4)
			return -EINVAL;
	}
	if (count != 2 && count != 4)
		return -EINVAL;
	*ret_name =
		(struct segment_name){numbers[0], numbers[1], count == 4, numbers[2], (uint32_t)numbers[3]};
	return 0;
}

/* ---- a mount ---- */

/* Opens a directory, made if need be: never through a symbolic link. */
static int open_dir(int parent, const char *name, mode_t mode)
{
	if (mkdirat(parent, name, mode) < 0 && errno != EEXIST)
		return -errno;
	int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

static int make_own(int fd, mode_t mode)
{
	return fchown(fd, geteuid(), getegid()) < 0 || fchmod(fd, mode) < 0 ? -errno : 0;
}

/* The same, and it is root's, with exactly that mode. */
static int open_own_dir(int parent, const char *name, mode_t mode)
{
	int fd = open_dir(parent, name, mode);
	int r = fd < 0 ? fd : make_own(fd, mode);
	if (r < 0) {
		close_fd(fd);
		return r;
	}
	return fd;
}

/* A directory of a later format is somebody newer's: nothing of it is ours to touch. */
static int check_format(int hpz_fd)
{
	int copy = openat(hpz_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (copy < 0)
		return -errno;
	DIR *dir = fdopendir(copy);
	if (!dir) {
		int error = -errno;
		close(copy);
		return error;
	}
	int result = 0;
	for (struct dirent *entry; (entry = readdir(dir));) {
		uint64_t format;
		const char *end = parse_number(entry->d_name, UINT64_MAX, &format);
		if (end && *end == '\0' && format > SEGMENT_FORMAT)
			result = -EPROTO;
	}
	closedir(dir);
	return result;
}

int segment_check_format(const char *mount)
{
	_cleanup_fd_ int root = open(mount, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (root < 0)
		return errno == ENOENT ? 0 : -errno;
	_cleanup_fd_ int hpz = openat(root, "hpz", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (hpz < 0)
		return errno == ENOENT ? 0 : -errno;
	return check_format(hpz);
}

static int open_store(struct segment_store *store, unsigned wait_ms, const char **ret_why)
{
	_cleanup_fd_ int root = open(store->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (root < 0) {
		*ret_why = "cannot be opened";
		return -errno;
	}
	struct statfs fs;
	if (fstatfs(root, &fs) < 0) {
		*ret_why = "cannot be examined";
		return -errno;
	}
	if (fs.f_type != HUGETLBFS_MAGIC) {
		*ret_why = "is not a hugetlbfs mount";
		return -EMEDIUMTYPE;
	}
	if ((uint64_t)fs.f_bsize != store->page_size) {
		*ret_why = "is a hugetlbfs mount of another page size";
		return -EMEDIUMTYPE;
	}
	*ret_why = "cannot hold hpz's directories";
	struct stat st;
	if (fstat(root, &st) < 0)
		return -errno;
	store->dev = st.st_dev;
	store->hpz_fd = open_dir(root, "hpz", 0700);
	if (store->hpz_fd < 0)
		return store->hpz_fd;
	int r = lock_fd_exclusive(store->hpz_fd, wait_ms);
	if (r == -EWOULDBLOCK) {
		*ret_why = "is used by another hpzd";
		return -EBUSY;
	}
	if (r < 0)
		return r;
	r = check_format(store->hpz_fd);
	if (r < 0) {
		if (r == -EPROTO)
			*ret_why = SEGMENT_NEWER_FORMAT;
		return r;
	}
	r = make_own(store->hpz_fd, 0700);
	if (r < 0)
		return r;
	store->format_fd = open_own_dir(store->hpz_fd, "1", 0700);
	if (store->format_fd < 0)
		return store->format_fd;
	store->out_fd = open_own_dir(root, "hpz-out", 0711);
	if (store->out_fd < 0)
		return store->out_fd;
	store->workers_fd = openat(store->hpz_fd, "1", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return store->workers_fd < 0 ? -errno : 0;
}

int segment_open_store(const char *mount, uint64_t page_size, unsigned wait_ms,
	struct segment_store **ret_store, const char **ret_why)
{
	struct segment_store *store = calloc(1, sizeof *store);
	if (!store)
		return -ENOMEM;
	list_init(&store->link);
	store->hpz_fd = store->format_fd = store->out_fd = store->workers_fd = -1;
	store->references = 1;
	store->page_size = page_size;
	snprintf(store->path, sizeof store->path, "%s", mount);
	int r = open_store(store, wait_ms, ret_why);
	if (r < 0) {
		segment_close_store(store);
		return r;
	}
	*ret_store = store;
	return 0;
}

void segment_close_store(struct segment_store *store)
{
	if (!store || --store->references > 0)
		return;
	list_remove(&store->link);
	close_fd(store->workers_fd);
	close_fd(store->out_fd);
	close_fd(store->format_fd);
	close_fd(store->hpz_fd);
	free(store);
}

uint64_t segment_get_room(const struct segment_store *store)
{
	struct statfs fs;
	if (fstatfs(store->hpz_fd, &fs) < 0 || fs.f_blocks == 0)
		return UINT64_MAX;
	return (uint64_t)fs.f_bfree;
}

int segment_lock_workers(struct segment_store *store)
{
	if (flock(store->workers_fd, LOCK_EX | LOCK_NB) < 0)
		return errno == EWOULDBLOCK ? 0 : -errno;
	/* Not atomic, but hpz/'s lock keeps every other hpzd away. */
	if (flock(store->workers_fd, LOCK_SH | LOCK_NB) < 0)
		return -errno;
	return 1;
}

/* ---- directories of a node ---- */

int segment_open_dirs(struct segment_store *store, int32_t node, struct segment_dirs *ret_dirs)
{
	struct segment_dirs dirs = {.node = node, .fds = {-1, -1, -1, -1}};
	char name[32];
	snprintf(name, sizeof name, "node%" PRId32, node);
	_cleanup_fd_ int parent = open_own_dir(store->format_fd, name, 0700);
	if (parent < 0)
		return parent;
	for (size_t i = 0; i < SEGMENT_STATE_COUNT; i++) {
		dirs.fds[i] = open_own_dir(parent, state_names[i], 0700);
		if (dirs.fds[i] < 0) {
			int error = dirs.fds[i];
			segment_close_dirs(&dirs);
			return error;
		}
	}
	*ret_dirs = dirs;
	return 0;
}

void segment_close_dirs(struct segment_dirs *dirs)
{
	for (size_t i = 0; i < SEGMENT_STATE_COUNT; i++)
		dirs->fds[i] = close_fd(dirs->fds[i]);
}

static int scan_dir(int parent, const char *name, int (*callback)(const char *name, void *user), void *user)
{
	int copy = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (copy < 0)
		return -errno;
	DIR *dir = fdopendir(copy);
	if (!dir) {
		int error = -errno;
		close(copy);
		return error;
	}
	int result = 0;
	for (struct dirent *entry; !result && (errno = 0, entry = readdir(dir));) {
		if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
			result = callback(entry->d_name, user);
	}
	if (!result && errno)
		result = -errno;
	closedir(dir);
	return result;
}

int segment_scan(const struct segment_dirs *dirs, enum segment_state state,
	int (*callback)(const char *name, void *user), void *user)
{
	return scan_dir(dirs->fds[state], ".", callback, user);
}

DIR *segment_start_scan(const struct segment_dirs *dirs, enum segment_state state)
{
	int copy = openat(dirs->fds[state], ".", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	DIR *dir = copy < 0 ? NULL : fdopendir(copy);
	if (!dir && copy >= 0)
		close(copy);
	return dir;
}

const char *segment_scan_next(DIR *scan)
{
	for (struct dirent *entry; (entry = readdir(scan));) {
		if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
			return entry->d_name;
	}
	return NULL;
}

int segment_scan_out_dir(const struct segment_store *store, const char *token,
	int (*callback)(const char *name, void *user), void *user)
{
	return scan_dir(store->out_fd, token, callback, user);
}

/* ---- one file ---- */

static bool is_simulated;

void segment_set_simulated(void)
{
	is_simulated = true;
}

static void convert_stat(uint64_t page_size, const struct stat *st, struct segment_stat *ret_stat)
{
	/*
	 * mmap updates atime, open does not; rename, link and chown set ctime (6.18 and 6.1). Both use the
	 * coarse clock, so a tie may be either: it counts as opened, which ends nothing early.
	 */
	bool is_opened =
		st->st_atim.tv_sec > st->st_ctim.tv_sec ||
		(st->st_atim.tv_sec == st->st_ctim.tv_sec && st->st_atim.tv_nsec >= st->st_ctim.tv_nsec);
	*ret_stat = (struct segment_stat){
		.pages = (uint64_t)st->st_size / page_size,
		.allocated = (uint64_t)(is_simulated ? st->st_size : st->st_blocks * 512) / page_size,
		.links = st->st_nlink,
		.uid = st->st_uid,
		.mode = st->st_mode & 07777,
		.dev = st->st_dev,
		.ino = st->st_ino,
		.is_opened = is_opened,
	};
}

int segment_stat_at(const struct segment_store *store, const struct segment_dirs *dirs,
	enum segment_state state, const char *name, struct segment_stat *ret_stat)
{
	struct stat st;
	if (fstatat(dirs->fds[state], name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -EINVAL;
	convert_stat(store->page_size, &st, ret_stat);
	return 0;
}

int segment_stat_fd(uint64_t page_size, int fd, struct segment_stat *ret_stat)
{
	struct stat st;
	struct statfs fs;
	if (fstat(fd, &st) < 0 || fstatfs(fd, &fs) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode) || fs.f_type != HUGETLBFS_MAGIC || (uint64_t)fs.f_bsize != page_size)
		return -EMEDIUMTYPE;
	convert_stat(page_size, &st, ret_stat);
	return 0;
}

int segment_stat_on(const struct segment_store *store, int fd, struct segment_stat *ret_stat)
{
	struct stat st;
	if (fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode) || st.st_dev != store->dev)
		return -EMEDIUMTYPE;
	convert_stat(store->page_size, &st, ret_stat);
	return 0;
}

uid_t segment_get_uid(void)
{
	static uid_t uid = (uid_t)-1;
	if (uid == (uid_t)-1)
		uid = geteuid();
	return uid;
}

int segment_create(const struct segment_dirs *dirs, const char *name)
{
	int fd = openat(
		dirs->fds[SEGMENT_FILLING], name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0);
	return fd < 0 ? -errno : fd;
}

static int open_segment(
	const struct segment_dirs *dirs, enum segment_state state, const char *name, int flags)
{
	int fd = openat(dirs->fds[state], name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | flags);
	return fd < 0 ? -errno : fd;
}

int segment_open(const struct segment_dirs *dirs, enum segment_state state, const char *name)
{
	return open_segment(dirs, state, name, O_NONBLOCK);
}

int segment_open_unheld(const struct segment_dirs *dirs, enum segment_state state, const char *name)
{
	return open_segment(dirs, state, name, 0);
}

int segment_rename(const struct segment_dirs *dirs, enum segment_state from, const char *from_name,
	enum segment_state to, const char *to_name)
{
	/* Without NOREPLACE a collision would unlink a live file, and of two links of one inode both would
	 * stay. */
	if (renameat2(dirs->fds[from], from_name, dirs->fds[to], to_name, RENAME_NOREPLACE) < 0)
		return -errno;
	return 0;
}

int segment_unlink(const struct segment_dirs *dirs, enum segment_state state, const char *name)
{
	return unlinkat(dirs->fds[state], name, 0) < 0 ? -errno : 0;
}

/* ---- hand-over directories ---- */

int segment_make_out(const struct segment_store *store, char ret_token[SEGMENT_TOKEN])
{
	unsigned char random[SEGMENT_TOKEN / 2];
	if (getrandom(random, sizeof random, GRND_NONBLOCK) != (ssize_t)sizeof random)
		return -EAGAIN;
	char token[SEGMENT_TOKEN + 1];
	for (size_t i = 0; i < sizeof random; i++)
		snprintf(token + 2 * i, 3, "%02x", random[i]);
	int fd = open_own_dir(store->out_fd, token, 0711);
	if (fd < 0)
		return fd;
	close(fd);
	memcpy(ret_token, token, SEGMENT_TOKEN);
	return 0;
}

int segment_make_out_again(const struct segment_store *store, const char token[SEGMENT_TOKEN])
{
	char name[SEGMENT_TOKEN + 1] = "";
	memcpy(name, token, SEGMENT_TOKEN);
	int fd = open_own_dir(store->out_fd, name, 0711);
	close_fd(fd);
	return MIN(fd, 0);
}

int segment_link_out(const struct segment_store *store, const struct segment_dirs *dirs, const char *name,
	const char token[SEGMENT_TOKEN], uint32_t index, uid_t uid, gid_t gid, mode_t mode)
{
	int leased = dirs->fds[SEGMENT_LEASED];
	if (fchownat(leased, name, uid, gid, AT_SYMLINK_NOFOLLOW) < 0 || fchmodat(leased, name, mode, 0) < 0)
		return -errno;
	char target[SEGMENT_TOKEN + 16];
	snprintf(target, sizeof target, "%.*s/%" PRIu32, SEGMENT_TOKEN, token, index);
	return linkat(leased, name, store->out_fd, target, 0) < 0 ? -errno : 0;
}

int segment_remove_out(int out_fd, const char token[SEGMENT_TOKEN], uint32_t first, uint32_t count)
{
	char target[SEGMENT_TOKEN + 16];
	for (uint32_t i = first; i < first + count; i++) {
		snprintf(target, sizeof target, "%.*s/%" PRIu32, SEGMENT_TOKEN, token, i);
		if (unlinkat(out_fd, target, 0) < 0 && errno != ENOENT)
			return -errno;
	}
	snprintf(target, sizeof target, "%.*s", SEGMENT_TOKEN, token);
	int r = unlinkat(out_fd, target, AT_REMOVEDIR) < 0 && errno != ENOENT ? -errno : 0;
	/* What was split off leaves it to the lease, unless nothing else of that lies on this mount. */
	return first > 0 && (r == -ENOTEMPTY || r == -EEXIST) ? 0 : r;
}

struct out_scan {
	const struct segment_store *store;
	int (*callback)(const char token[SEGMENT_TOKEN], ino_t ino, void *user);
	void *user;
};

static int look_at_out(const char *name, void *user)
{
	const struct out_scan *scan = user;
	char first[SEGMENT_TOKEN + 16];
	struct stat st;
	if (strlen(name) != SEGMENT_TOKEN || strspn(name, "0123456789abcdef") != SEGMENT_TOKEN)
		return 0; /* no directory of ours */
	snprintf(first, sizeof first, "%s/0", name);
	bool is_linked = fstatat(scan->store->out_fd, first, &st, AT_SYMLINK_NOFOLLOW) == 0;
	return scan->callback(name, is_linked ? st.st_ino : 0, scan->user);
}

int segment_scan_out(const struct segment_store *store,
	int (*callback)(const char token[SEGMENT_TOKEN], ino_t ino, void *user), void *user)
{
	struct out_scan scan = {store, callback, user};
	return scan_dir(store->out_fd, ".", look_at_out, &scan);
}

void segment_format_out_path(const struct segment_store *store, const char token[SEGMENT_TOKEN],
	uint32_t index, char *ret_path, size_t capacity)
{
	snprintf(ret_path, capacity, "%s/hpz-out/%.*s/%" PRIu32, store->path, SEGMENT_TOKEN, token, index);
}
