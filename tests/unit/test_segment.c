/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * test_segment.c - names, directories and renames. On an ordinary file system, which everything but the
 * opening of a mount is content with; what hugetlbfs alone can show is in tests/host/test_segment_host.c.
 */
#include "store.h"
#include "dice.h"

#include <inttypes.h>
#include <sys/file.h>
#include <signal.h>

static char dir[TEMP_PATH];
static struct segment_store *store;
static struct segment_dirs dirs;

static int setup(void **state)
{
	temp_make(dir);
	store = store_open(dir);
	assert_int_equal(segment_open_dirs(store, 0, &dirs), 0);
	return 0;
}

static int teardown(void **state)
{
	segment_close_dirs(&dirs);
	segment_close_store(store);
	temp_remove(dir);
	return 0;
}

/* ---- names ---- */

static void expect_round_trip(struct segment_name name, const char *text)
{
	char made[SEGMENT_NAME_MAX];
	struct segment_name back = {0};

	segment_format_name(&name, made);
	if (text)
		assert_string_equal(made, text);
	assert_int_equal(segment_parse_name(made, &back), 0);
	assert_int_equal(back.id, name.id);
	assert_int_equal(back.generation, name.generation);
	assert_int_equal(back.is_leased, name.is_leased);
	assert_int_equal(back.lease, name.lease);
	assert_int_equal(back.index, name.index);
}

static void test_names(void **state)
{
	struct dice dice;

	expect_round_trip((struct segment_name){0}, "0.0");
	expect_round_trip((struct segment_name){7, 3, false, 0, 0}, "7.3");
	expect_round_trip((struct segment_name){7, 3, true, 0, 0}, "7.3.0.0");
	expect_round_trip((struct segment_name){UINT64_MAX, UINT64_MAX, false, 0, 0},
		"18446744073709551615.18446744073709551615");
	expect_round_trip((struct segment_name){UINT64_MAX, UINT64_MAX, true, UINT64_MAX, UINT32_MAX},
		"18446744073709551615.18446744073709551615.18446744073709551615.4294967295");
	dice_init(&dice, 1);
	for (int i = 0; i < 10000; i++) {
		struct segment_name name = {.id = dice_next(&dice) >> dice_roll(&dice, 64),
			.generation = dice_next(&dice) >> dice_roll(&dice, 64),
			.is_leased = dice_chance(&dice, 50)};
		if (name.is_leased) {
			name.lease = dice_next(&dice) >> dice_roll(&dice, 64);
			name.index = (uint32_t)(dice_next(&dice) >> dice_between(&dice, 32, 63));
		}
		expect_round_trip(name, NULL);
	}
}

static void test_no_names(void **state)
{
	static const char *const texts[] = {"", ".", "..", "...", "1", "1.", ".1", "1.2.", "1.2.3", "1.2.3.",
		"1.2.3.4.", "1.2.3.4.5", "1.2.3.4.5.6", "1..2", "1.2..4", "01.2", "1.02", "1.2.03.4",
		"1.2.3.04", "00.0", "-1.2", "1.-2", "+1.2", " 1.2", "1 .2", "1. 2", "1.2 ", "1.2\n", "1,2",
		"0x1.2", "1.2a", "a.b", "1.2.3.x", "18446744073709551616.0", "0.18446744073709551616",
		"1.2.18446744073709551616.0", "1.2.3.4294967296", "99999999999999999999.1",
		"1.2.3.18446744073709551616", "1.2.3.4~", "1.2.swp", ".1.2.nfs", "lost+found", "1/2",
		"\xd9\xa1.2", "1.2.3.4\xff"};
	struct segment_name name = {9, 9, true, 9, 9};

	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		if (segment_parse_name(texts[i], &name) != -EINVAL)
			fail_msg("\"%s\" is taken for a name", texts[i]);
		assert_true(name.id == 9 && name.generation == 9 && name.lease == 9 && name.index == 9);
	}
}

/* Whatever is parsed is formatted to the same text: no two texts are the same name. */
static void test_one_text_a_name(void **state)
{
	static const char letters[] = "0123456789....18446744073709551615ax-+ ";
	struct dice dice;
	unsigned good = 0;

	dice_init(&dice, 2);
	for (int i = 0; i < 200000; i++) {
		char text[SEGMENT_NAME_MAX] = "", again[SEGMENT_NAME_MAX];
		size_t length = dice_roll(&dice, 12);
		struct segment_name name;
		for (size_t at = 0; at < length; at++)
			text[at] = letters[dice_roll(&dice, sizeof letters - 1)];
		if (segment_parse_name(text, &name) < 0)
			continue;
		segment_format_name(&name, again);
		assert_string_equal(again, text);
		good++;
	}
	assert_true(good > 100);
}

static void test_state_names(void **state)
{
	assert_string_equal(segment_get_state_name(SEGMENT_FILLING), "filling");
	assert_string_equal(segment_get_state_name(SEGMENT_CLEAN), "clean");
	assert_string_equal(segment_get_state_name(SEGMENT_LEASED), "leased");
	assert_string_equal(segment_get_state_name(SEGMENT_DIRTY), "dirty");
}

/* ---- the mount ---- */

static void expect_refused(const char *path, int error, const char *why)
{
	struct segment_store *refused = NULL;
	const char *text = NULL;

	assert_int_equal(segment_open_store(path, 2 << 20, 0, &refused, &text), error);
	assert_string_equal(text, why);
	assert_null(refused);
}

/* Without a mount the files would silently lie on the file system below. */
static void test_no_hugetlbfs(void **state)
{
	char path[PATH_MAX], inside[PATH_MAX];

	temp_path(dir, "mount/", path);
	expect_refused(path, -EMEDIUMTYPE, "is not a hugetlbfs mount");
	temp_path(dir, "mount/hpz", inside);
	assert_int_equal(access(inside, F_OK), -1); /* nothing was made */
	temp_path(dir, "absent", path);
	expect_refused(path, -ENOENT, "cannot be opened");
	temp_put(dir, "file", "");
	temp_path(dir, "file", path);
	expect_refused(path, -ENOTDIR, "cannot be opened");
	expect_refused("/proc", -EMEDIUMTYPE, "is not a hugetlbfs mount");
}

static void test_close_store(void **state)
{
	struct list owner = LIST_INIT(owner);
	struct segment_store *second = store_open(dir);

	segment_close_store(NULL);
	list_append(&owner, &second->link);
	second->references = 2;
	segment_close_store(second);
	assert_false(list_is_empty(&owner));
	segment_close_store(second);
	assert_true(list_is_empty(&owner));
}

/* The lock that says whether workers of a dead hpzd live on. */
static void test_workers_lock(void **state)
{
	struct segment_store *next = store_open(dir);

	/* Taken, and taken again: it is ours. */
	assert_int_equal(segment_lock_workers(store), 1);
	assert_int_equal(segment_lock_workers(store), 1);
	/* hpzd dies: its store is gone, a worker's copy of the descriptor is not. */
	int copy = fcntl(store->workers_fd, F_DUPFD_CLOEXEC, 3);
	assert_true(copy >= 0);
	segment_close_store(store);
	store = next;
	assert_int_equal(segment_lock_workers(store), 0);
	assert_int_equal(segment_lock_workers(store), 0);
	close(copy);
	assert_int_equal(segment_lock_workers(store), 1);
	/* Shared now: a worker of ours that is left behind is seen by the next one. */
	next = store_open(dir);
	assert_int_equal(segment_lock_workers(next), 0);
	segment_close_store(next);
	segment_lock_workers(store);
}

/* ---- directories ---- */

static void expect_dir(const char *name, mode_t mode)
{
	char path[PATH_MAX];
	struct stat st;

	snprintf(path, sizeof path, "%s/%s", dir, name);
	assert_int_equal(lstat(path, &st), 0);
	assert_int_equal(st.st_mode, S_IFDIR | mode);
	assert_int_equal(st.st_uid, geteuid());
	assert_int_equal(st.st_gid, getegid());
}

/* Looked at before anything is made: what is not there stays so. */
static void test_check_format(void **state)
{
	char empty[TEMP_PATH], path[PATH_MAX];

	assert_int_equal(segment_check_format(dir), 0);
	assert_int_equal(segment_check_format("/nonexistent/mount"), 0);
	temp_make(empty);
	assert_int_equal(segment_check_format(empty), 0);
	snprintf(path, sizeof path, "%s/hpz", empty);
	assert_int_equal(access(path, F_OK), -1);
	temp_remove(empty);
	temp_path(dir, "hpz/2/node0", path);
	assert_int_equal(segment_check_format(dir), -EPROTO);
	snprintf(path, sizeof path, "%s/hpz/2", dir);
	assert_int_equal(rmdir(path), 0);
	/* No number: nobody's format. */
	temp_path(dir, "hpz/2x/node0", path);
	assert_int_equal(segment_check_format(dir), 0);
}

static void test_layout(void **state)
{
	struct segment_dirs other;
	mode_t mask = umask(0);

	assert_int_equal(segment_open_dirs(store, 12, &other), 0);
	umask(mask);
	assert_int_equal(other.node, 12);
	expect_dir("hpz/1/node0", 0700);
	expect_dir("hpz/1/node0/filling", 0700);
	expect_dir("hpz/1/node0/clean", 0700);
	expect_dir("hpz/1/node0/leased", 0700);
	expect_dir("hpz/1/node0/dirty", 0700);
	expect_dir("hpz/1/node12", 0700);
	expect_dir("hpz/1/node12/dirty", 0700);
	for (size_t i = 0; i < SEGMENT_STATE_COUNT; i++)
		assert_int_equal(fcntl(other.fds[i], F_GETFD), FD_CLOEXEC);
	segment_close_dirs(&other);
	for (size_t i = 0; i < SEGMENT_STATE_COUNT; i++)
		assert_int_equal(other.fds[i], -1);
	segment_close_dirs(&other); /* twice is fine */
}

/* Whatever mode it was left with, it is right afterwards. */
static void test_mode_is_mended(void **state)
{
	char path[PATH_MAX];
	struct segment_dirs again;

	temp_path(dir, "hpz/1/node0/clean", path);
	assert_int_equal(chmod(path, 0777), 0);
	assert_int_equal(segment_open_dirs(store, 0, &again), 0);
	segment_close_dirs(&again);
	expect_dir("hpz/1/node0/clean", 0700);
}

static void test_no_symlinks(void **state)
{
	char path[PATH_MAX];
	struct segment_dirs bad = {.node = 77};

	temp_path(dir, "hpz/1/node5/clean", path);
	assert_int_equal(symlink("/tmp", path), 0);
	assert_int_equal(segment_open_dirs(store, 5, &bad), -ENOTDIR);
	assert_int_equal(bad.node, 77);
	temp_path(dir, "hpz/1/node6", path);
	assert_int_equal(symlink("node0", path), 0);
	assert_int_equal(segment_open_dirs(store, 6, &bad), -ENOTDIR);
	temp_put(dir, "hpz/1/node7", "a file");
	assert_int_equal(segment_open_dirs(store, 7, &bad), -ENOTDIR);
}

struct names {
	unsigned count;
	int result;
	char last[SEGMENT_NAME_MAX];
};

static int on_name(const char *name, void *user)
{
	struct names *names = user;
	names->count++;
	snprintf(names->last, sizeof names->last, "%s", name);
	return names->result;
}

static void test_scan(void **state)
{
	struct names names = {0};

	assert_int_equal(segment_scan(&dirs, SEGMENT_LEASED, on_name, &names), 0);
	assert_int_equal(names.count, 0);
	temp_put(dir, "hpz/1/node0/leased/1.2.3.4", "");
	temp_put(dir, "hpz/1/node0/leased/.hidden", "");
	temp_put(dir, "hpz/1/node0/leased/...", "");
	assert_int_equal(segment_scan(&dirs, SEGMENT_LEASED, on_name, &names), 0);
	assert_int_equal(names.count, 3);
	/* From the start again, whoever read the descriptor before. */
	assert_int_equal(segment_scan(&dirs, SEGMENT_LEASED, on_name, &names), 0);
	assert_int_equal(names.count, 6);
	names = (struct names){.result = -EXDEV};
	assert_int_equal(segment_scan(&dirs, SEGMENT_LEASED, on_name, &names), -EXDEV);
	assert_int_equal(names.count, 1);
	struct segment_dirs closed = {.fds = {-1, -1, -1, -1}};
	assert_int_equal(segment_scan(&closed, SEGMENT_CLEAN, on_name, &names), -EBADF);
}

/* ---- one file ---- */

static void test_create(void **state)
{
	mode_t mask = umask(0);
	int fd = segment_create(&dirs, "1.0");
	umask(mask);
	struct stat st;
	struct segment_stat is;

	assert_true(fd >= 0);
	assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
	assert_int_equal(fstat(fd, &st), 0);
	assert_int_equal(st.st_mode, S_IFREG); /* mode 0 */
	assert_int_equal(st.st_uid, geteuid());
	assert_int_equal(st.st_size, 0);
	assert_int_equal(segment_create(&dirs, "1.0"), -EEXIST);
	assert_int_equal(segment_stat_at(store, &dirs, SEGMENT_FILLING, "1.0", &is), 0);
	assert_true(is.pages == 0 && is.allocated == 0 && is.links == 1 && is.uid == geteuid() &&
		    is.mode == 0 && is.dev == st.st_dev && is.ino == st.st_ino);
	assert_int_equal(ftruncate(fd, 3 * (off_t)STORE_PAGE), 0);
	assert_int_equal(segment_stat_at(store, &dirs, SEGMENT_FILLING, "1.0", &is), 0);
	assert_int_equal(is.pages, 3);
	close(fd);
	assert_int_equal(segment_unlink(&dirs, SEGMENT_FILLING, "1.0"), 0);
	assert_int_equal(segment_unlink(&dirs, SEGMENT_FILLING, "1.0"), -ENOENT);
	assert_int_equal(segment_stat_at(store, &dirs, SEGMENT_FILLING, "1.0", &is), -ENOENT);
}

/* A descriptor of another file system is not a segment, whatever its length. */
static void test_stat_fd(void **state)
{
	int fd = segment_create(&dirs, "1.0");
	struct segment_stat is = {.pages = 77};

	assert_int_equal(segment_stat_fd(STORE_PAGE, fd, &is), -EMEDIUMTYPE);
	assert_int_equal(segment_stat_fd(STORE_PAGE, -1, &is), -EBADF);
	assert_int_equal(segment_stat_fd(STORE_PAGE, dirs.fds[0], &is), -EMEDIUMTYPE);
	assert_int_equal(is.pages, 77);
	close(fd);
}

/* What lies on the mount needs no second look at what kind of file system it is. */
static void test_stat_on(void **state)
{
	int fd = segment_create(&dirs, "1.0");
	struct segment_stat is = {.pages = 77};
	struct stat st;

	assert_int_equal(fstat(fd, &st), 0);
	store->dev = st.st_dev + 1;
	assert_int_equal(segment_stat_on(store, fd, &is), -EMEDIUMTYPE);
	store->dev = st.st_dev;
	assert_int_equal(segment_stat_on(store, -1, &is), -EBADF);
	assert_int_equal(segment_stat_on(store, dirs.fds[0], &is), -EMEDIUMTYPE);
	assert_int_equal(is.pages, 77);
	assert_int_equal(ftruncate(fd, 2 * (off_t)STORE_PAGE), 0);
	assert_int_equal(segment_stat_on(store, fd, &is), 0);
	assert_true(is.pages == 2 && is.allocated == 0 && is.links == 1 && is.ino == st.st_ino &&
		    is.uid == segment_get_uid());
	assert_int_equal(segment_get_uid(), geteuid());
	close(fd);
}

static void test_only_files(void **state)
{
	char path[PATH_MAX];
	struct segment_stat is;

	temp_path(dir, "hpz/1/node0/clean/1.0/", path);
	assert_int_equal(segment_stat_at(store, &dirs, SEGMENT_CLEAN, "1.0", &is), -EINVAL);
	assert_int_equal(segment_open(&dirs, SEGMENT_CLEAN, "1.0"), -EISDIR);
	temp_path(dir, "hpz/1/node0/clean/2.0", path);
	assert_int_equal(symlink("/dev/null", path), 0);
	assert_int_equal(segment_stat_at(store, &dirs, SEGMENT_CLEAN, "2.0", &is), -EINVAL);
	assert_int_equal(segment_open(&dirs, SEGMENT_CLEAN, "2.0"), -ELOOP);
	temp_path(dir, "hpz/1/node0/clean/3.0", path);
	assert_int_equal(mkfifo(path, 0600), 0);
	assert_int_equal(segment_stat_at(store, &dirs, SEGMENT_CLEAN, "3.0", &is), -EINVAL);
}

/* Somebody's file lease must not stop us: O_NONBLOCK. */
static void test_open_is_never_held_up(void **state)
{
	int holder = segment_create(&dirs, "1.0");

	assert_true(holder >= 0);
	assert_int_equal(fchmod(holder, 0600), 0);
	assert_int_equal(fcntl(holder, F_SETLEASE, F_WRLCK), 0);
	uint64_t start_ns = clock_get_ns(CLOCK_MONOTONIC);
	/* The break is announced by a signal to the holder, which would end this test. */
	void (*handler)(int) = signal(SIGIO, SIG_IGN);
	assert_int_equal(segment_open(&dirs, SEGMENT_FILLING, "1.0"), -EWOULDBLOCK);
	assert_true(clock_get_ns(CLOCK_MONOTONIC) - start_ns < NS_PER_S);
	assert_int_equal(fcntl(holder, F_SETLEASE, F_UNLCK), 0);
	signal(SIGIO, handler);
	int fd = segment_open(&dirs, SEGMENT_FILLING, "1.0");
	assert_true(fd >= 0);
	assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
	assert_int_equal(fcntl(fd, F_GETFL) & O_NONBLOCK, O_NONBLOCK);
	close(fd);
	/* Where nobody can have one, the flag would only have to be taken off again. */
	fd = segment_open_unheld(&dirs, SEGMENT_FILLING, "1.0");
	assert_true(fd >= 0);
	assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
	assert_int_equal(fcntl(fd, F_GETFL) & O_NONBLOCK, 0);
	close(fd);
	assert_int_equal(segment_open_unheld(&dirs, SEGMENT_FILLING, "2.0"), -ENOENT);
	close(holder);
}

/* ---- renames ---- */

static ino_t get_inode(enum segment_state where, const char *name)
{
	struct segment_stat is = {0};
	assert_int_equal(segment_stat_at(store, &dirs, where, name, &is), 0);
	return is.ino;
}

static void make_file(enum segment_state where, const char *name)
{
	int fd = segment_create(&dirs, name);
	assert_true(fd >= 0);
	close(fd);
	if (where != SEGMENT_FILLING)
		assert_int_equal(segment_rename(&dirs, SEGMENT_FILLING, name, where, name), 0);
}

static void test_rename(void **state)
{
	struct segment_stat is;

	make_file(SEGMENT_FILLING, "1.0");
	ino_t inode = get_inode(SEGMENT_FILLING, "1.0");
	assert_int_equal(segment_rename(&dirs, SEGMENT_FILLING, "1.0", SEGMENT_CLEAN, "1.0"), 0);
	assert_int_equal(segment_stat_at(store, &dirs, SEGMENT_FILLING, "1.0", &is), -ENOENT);
	assert_int_equal(segment_rename(&dirs, SEGMENT_CLEAN, "1.0", SEGMENT_LEASED, "1.1.9.0"), 0);
	assert_int_equal(get_inode(SEGMENT_LEASED, "1.1.9.0"), inode);
	assert_int_equal(segment_rename(&dirs, SEGMENT_CLEAN, "1.0", SEGMENT_LEASED, "1.1.9.0"), -ENOENT);
	assert_int_equal(segment_rename(&dirs, SEGMENT_LEASED, "absent", SEGMENT_DIRTY, "2.0"), -ENOENT);
}

static void test_rename_collision(void **state)
{
	make_file(SEGMENT_CLEAN, "1.0");
	make_file(SEGMENT_LEASED, "1.1.9.0");
	ino_t from = get_inode(SEGMENT_CLEAN, "1.0"), at = get_inode(SEGMENT_LEASED, "1.1.9.0");

	assert_int_equal(segment_rename(&dirs, SEGMENT_CLEAN, "1.0", SEGMENT_LEASED, "1.1.9.0"), -EEXIST);
	assert_int_equal(get_inode(SEGMENT_CLEAN, "1.0"), from);
	assert_int_equal(get_inode(SEGMENT_LEASED, "1.1.9.0"), at);
}

/* rename(2) would say 0 and leave both names. */
static void test_rename_onto_own_link(void **state)
{
	make_file(SEGMENT_CLEAN, "1.0");
	assert_int_equal(linkat(dirs.fds[SEGMENT_CLEAN], "1.0", dirs.fds[SEGMENT_DIRTY], "1.0", 0), 0);
	assert_int_equal(segment_rename(&dirs, SEGMENT_CLEAN, "1.0", SEGMENT_DIRTY, "1.0"), -EEXIST);
	assert_int_equal(get_inode(SEGMENT_CLEAN, "1.0"), get_inode(SEGMENT_DIRTY, "1.0"));
}

/* ---- hand-over directories ---- */

static void test_out(void **state)
{
	char token[SEGMENT_TOKEN], other[SEGMENT_TOKEN], path[PATH_MAX], name[PATH_MAX];
	struct stat st;

	memset(token, 0, sizeof token);
	mode_t mask = umask(077);
	assert_int_equal(segment_make_out(store, token), 0);
	assert_int_equal(segment_make_out(store, other), 0);
	umask(mask);
	assert_memory_not_equal(token, other, sizeof token);
	for (size_t i = 0; i < sizeof token; i++)
		assert_non_null(memchr("0123456789abcdef", token[i], 16));
	snprintf(name, sizeof name, "hpz-out/%.32s", token);
	expect_dir(name, 0711);
	make_file(SEGMENT_LEASED, "1.1.9.0");
	make_file(SEGMENT_LEASED, "2.1.9.1");
	assert_int_equal(segment_link_out(store, &dirs, "1.1.9.0", token, 0, geteuid(), getegid(), 0640), 0);
	assert_int_equal(segment_link_out(store, &dirs, "2.1.9.1", token, 1, geteuid(), getegid(), 0600), 0);
	segment_format_out_path(store, token, 0, path, sizeof path);
	assert_int_equal(lstat(path, &st), 0);
	assert_int_equal(st.st_mode, S_IFREG | 0640);
	assert_int_equal(st.st_nlink, 2);
	assert_int_equal(st.st_ino, get_inode(SEGMENT_LEASED, "1.1.9.0"));
	/* The same place twice, and what does not exist. */
	assert_int_equal(
		segment_link_out(store, &dirs, "2.1.9.1", token, 0, geteuid(), getegid(), 0600), -EEXIST);
	assert_int_equal(
		segment_link_out(store, &dirs, "absent", token, 2, geteuid(), getegid(), 0600), -ENOENT);
	/* Fewer than there are: what is left is said, not lost. */
	assert_int_equal(segment_remove_out(store->out_fd, token, 0, 1), -ENOTEMPTY);
	assert_int_equal(segment_remove_out(store->out_fd, token, 0, 2), 0);
	assert_int_equal(lstat(path, &st), -1);
	assert_int_equal(segment_remove_out(store->out_fd, token, 0, 2), 0); /* gone is gone */
	assert_int_equal(segment_remove_out(store->out_fd, other, 0, 0), 0);
	get_inode(SEGMENT_LEASED, "1.1.9.0");
	get_inode(SEGMENT_LEASED, "2.1.9.1");
}

static void test_out_path_is_cut(void **state)
{
	char path[20];

	memset(path, 'x', sizeof path);
	segment_format_out_path(store, "0123456789abcdef0123456789abcdef", 4000000000u, path, sizeof path);
	assert_int_equal(strlen(path), sizeof path - 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_no_names),
		cmocka_unit_test(test_one_text_a_name),
		cmocka_unit_test(test_state_names),
		cmocka_unit_test_setup_teardown(test_no_hugetlbfs, setup, teardown),
		cmocka_unit_test_setup_teardown(test_close_store, setup, teardown),
		cmocka_unit_test_setup_teardown(test_workers_lock, setup, teardown),
		cmocka_unit_test_setup_teardown(test_check_format, setup, teardown),
		cmocka_unit_test_setup_teardown(test_layout, setup, teardown),
		cmocka_unit_test_setup_teardown(test_mode_is_mended, setup, teardown),
		cmocka_unit_test_setup_teardown(test_no_symlinks, setup, teardown),
		cmocka_unit_test_setup_teardown(test_scan, setup, teardown),
		cmocka_unit_test_setup_teardown(test_create, setup, teardown),
		cmocka_unit_test_setup_teardown(test_stat_fd, setup, teardown),
		cmocka_unit_test_setup_teardown(test_stat_on, setup, teardown),
		cmocka_unit_test_setup_teardown(test_only_files, setup, teardown),
		cmocka_unit_test_setup_teardown(test_open_is_never_held_up, setup, teardown),
		cmocka_unit_test_setup_teardown(test_rename, setup, teardown),
		cmocka_unit_test_setup_teardown(test_rename_collision, setup, teardown),
		cmocka_unit_test_setup_teardown(test_rename_onto_own_link, setup, teardown),
		cmocka_unit_test_setup_teardown(test_out, setup, teardown),
		cmocka_unit_test_setup_teardown(test_out_path_is_cut, setup, teardown),
	};
	return cmocka_run_group_tests_name("segment", tests, NULL, NULL);
}
