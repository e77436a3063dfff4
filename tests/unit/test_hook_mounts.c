/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_hook_mounts.c - lines of mountinfo; that mounts go, wherever they are, is test_hook.py's. */
#include "temp.h"

#include "hook_mounts.h"

static struct hook_mount mount;

static void test_lines(void **state)
{
	assert_true(hook_mounts_parse(
		"36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue\n", &mount));
	assert_int_equal(mount.id, 36);
	assert_int_equal(mount.major, 98);
	assert_int_equal(mount.minor, 0);
	assert_string_equal(mount.root, "/mnt1");
	assert_string_equal(mount.path, "/mnt2");
	assert_string_equal(mount.source, "/dev/root");
	assert_true(hook_mounts_parse("7 1 0:30 /r\\040 /a\\040b\\134\\012c rw - tmpfs hpz:x rw\n", &mount));
	assert_string_equal(mount.root, "/r ");
	assert_string_equal(mount.path, "/a b\\\nc");
	assert_string_equal(mount.source, "hpz:x");
	/* What is no escape is text: nothing is read beyond its end. */
	assert_true(hook_mounts_parse("7 1 0:30 /r\\1 /a\\04 rw - tmpfs \\999\\-12\\000\\ rw\n", &mount));
	assert_string_equal(mount.root, "/r\\1");
	assert_string_equal(mount.path, "/a\\04");
	assert_string_equal(mount.source, "\\999\\-12\\000\\");
}

static void test_broken(void **state)
{
	static const char *const lines[] = {"", "\n", "36 35 98:0 /mnt1",
		"x 35 98:0 /a /b rw - ext3 /dev/root rw", "36 35 98 /a /b rw - ext3 /dev/root rw",
		"36 35 98:0 /a /b rw - ext3"};

	mount.id = 5;
	for (size_t i = 0; i < ARRAY_SIZE(lines); i++)
		assert_false(hook_mounts_parse(lines[i], &mount));
	assert_int_equal(mount.id, 5);
}

/* What is mounted nowhere. */
static void test_none(void **state)
{
	char dir[TEMP_PATH], path[PATH_MAX];

	temp_make(dir);
	temp_put(dir, "file", "mine");
	temp_path(dir, "file", path);
	assert_int_equal(hook_mounts_remove_file(path), 0);
	assert_int_equal(hook_mounts_remove_file("/nowhere"), 0);
	assert_int_equal(hook_mounts_remove_file(dir), -EUCLEAN);
	assert_int_equal(hook_mounts_remove_source("hpz:none"), 0);
	temp_remove(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_lines),
		cmocka_unit_test(test_broken),
		cmocka_unit_test(test_none),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
