/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_hook_hold.c - where there are no huge pages none are held; the rest is test_hook.py's, on real ones.
 */
#include "temp.h"

#include <dirent.h>

#include "hook_hold.h"

static void test_ordinary(void **state)
{
	static struct domain_plan plan = {
		.count = 1, .size = 4096, .files = {{.alias = "pc.ram", .size = 4096}}};
	static const struct domain_file hostile = {.alias = "../x", .size = 4096};
	char dir[TEMP_PATH];
	size_t entries = 0;

	temp_make(dir);
	int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_false(hook_hold_has_pages(fd, &plan));
	assert_false(hook_hold_has_room(fd, 4096));
	assert_false(hook_hold_has_room(fd, 0));
	assert_int_equal(hook_hold_add(fd, &plan.files[0], getuid(), getgid(), "", UINT64_MAX), -EUCLEAN);
	assert_int_equal(hook_hold_add(fd, &hostile, getuid(), getgid(), "", UINT64_MAX), -EUCLEAN);
	DIR *list = fdopendir(fd);
	assert_non_null(list);
	while (readdir(list))
		entries++;
	assert_int_equal(entries, 2);
	closedir(list);
	temp_remove(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ordinary),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
