/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_hook_place.c - what the hook refuses to touch; what it does on huge pages is test_hook.py's. */
#include "temp.h"

#include "hook_place.h"

static char dir[TEMP_PATH];
static int base = -1;

static int setup(void **state)
{
	char path[PATH_MAX];

	temp_make(dir);
	temp_path(dir, "base/7-a/x", path); /* and the directories */
	temp_put(dir, "outside/file", "mine");
	temp_path(dir, "base", path);
	base = hook_place_open_base(path);
	assert_true(base >= 0);
	return 0;
}

static int teardown(void **state)
{
	base = close_fd(base);
	temp_remove(dir);
	return 0;
}

static void test_directory(void **state)
{
	static const char *const hostile[] = {
		"..", ".", "", "/", "../outside", "7-a/..", "7-a/", "link", "up", "file"};
	char path[PATH_MAX];

	assert_int_equal(symlinkat("../outside", base, "link"), 0);
	assert_int_equal(symlinkat("7-a", base, "up"), 0);
	temp_put(dir, "base/file", "");
	int fd = hook_place_open_directory(base, "7-a");
	assert_true(fd >= 0);
	close_fd(fd);
	for (size_t i = 0; i < ARRAY_SIZE(hostile); i++) {
		fd = hook_place_open_directory(base, hostile[i]);
		if (strcmp(hostile[i], ".") == 0) { /* itself, which is harmless */
			close_fd(fd);
			continue;
		}
		assert_true(fd < 0);
	}
	temp_path(dir, "nowhere", path);
	assert_int_equal(hook_place_open_base(path), -ENOENT);
}

/* Only files on huge pages are given away, closed, or put anywhere. */
static void test_files(void **state)
{
	char path[PATH_MAX], link[PATH_MAX];
	enum hook_way way = HOOK_WAY_BIND;
	struct stat st;

	temp_path(dir, "outside/file", path);
	temp_path(dir, "outside/link", link);
	assert_int_equal(symlink(path, link), 0);
	assert_int_equal(hook_place_add(base, "pc.ram", path, 1, "", &way), -EUCLEAN);
	assert_int_equal(hook_place_add(base, "pc.ram", link, 1, "", &way), -EUCLEAN);
	assert_int_equal(hook_place_add(base, "pc.ram", "/dev/null", 0, "", &way), -EUCLEAN);
	assert_int_equal(hook_place_add(base, "pc.ram", "/nowhere", 0, "", &way), -ENOENT);
	assert_int_equal(hook_place_give(path, getuid(), getgid()), -EUCLEAN);
	assert_int_equal(hook_place_close_door(path), -EUCLEAN);
	assert_int_equal(hook_place_close_door(link), -EUCLEAN);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0644);
	assert_int_equal(way, HOOK_WAY_BIND);
	assert_int_equal(fstatat(base, "pc.ram", &st, 0), -1);
}

/* What is not there is gone already, and what is no mount stays what it is. */
static void test_remove(void **state)
{
	struct hook_file file = {"pc.ram", HOOK_WAY_LINK, "/m"};
	struct hook_file target = {"target", HOOK_WAY_SYMLINK, "/m"};
	char path[PATH_MAX];
	struct stat st;

	assert_int_equal(hook_place_remove(base, &file), 0);
	temp_path(dir, "outside/file", path);
	assert_int_equal(symlinkat(path, base, "target"), 0);
	assert_int_equal(hook_place_remove(base, &target), 0);
	assert_int_equal(fstatat(base, "target", &st, AT_SYMLINK_NOFOLLOW), -1);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(hook_place_get_page_size(base), 0);
}

/* A file of one's own has no name until it gets one, and takes the place of what has it. */
static void test_own_file(void **state)
{
	struct stat st, made;
	int fd = hook_place_make_file(base, getuid(), getgid(), "");

	assert_true(fd >= 0);
	assert_int_equal(fstat(fd, &made), 0);
	assert_int_equal(made.st_mode & 07777, 0600);
	assert_int_equal(made.st_nlink, 0);
	temp_put(dir, "base/own", "before");
	int r = hook_place_link_file(base, "own", fd);
	if (r == -ENOENT) { /* without privileges a descriptor may not be linked */
		assert_int_not_equal(geteuid(), 0);
	} else {
		assert_int_equal(r, 0);
		assert_int_equal(fstatat(base, "own", &st, AT_SYMLINK_NOFOLLOW), 0);
		assert_int_equal(st.st_ino, made.st_ino);
		assert_int_equal(st.st_size, 0);
	}
	close_fd(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_directory, setup, teardown),
		cmocka_unit_test_setup_teardown(test_files, setup, teardown),
		cmocka_unit_test_setup_teardown(test_remove, setup, teardown),
		cmocka_unit_test_setup_teardown(test_own_file, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
