/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_names.c - what every machine has; that nobody is waited for is test_hook.py's. */
#include "temp.h"

#include "names.h"

#define NOBODY_HERE "hpz-no-such-name"

static void test_local(void **state)
{
	uint32_t uid = 7, gid = 7;

	assert_int_equal(names_find_user("root", NAMES_LOCAL, &uid, &gid), 0);
	assert_int_equal(uid, 0);
	assert_int_equal(gid, 0);
	gid = 7;
	assert_int_equal(names_find_group("root", NAMES_LOCAL, &gid), 0);
	assert_int_equal(gid, 0);
	gid = 7;
	assert_int_equal(names_find_group_of(0, NAMES_LOCAL, &gid), 0);
	assert_int_equal(gid, 0);
	/* One that is not the first. */
	assert_int_equal(names_find_user("nobody", NAMES_LOCAL, &uid, &gid), 0);
	assert_int_not_equal(uid, 0);
}

/* What was given stays as it was. */
static void test_unknown(void **state)
{
	static const char *const names[] = {NOBODY_HERE, "", "root:", "+", "0"};
	uint32_t uid = 7, gid = 7;

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		assert_int_equal(names_find_user(names[i], NAMES_LOCAL, &uid, &gid), -ENOENT);
		assert_int_equal(names_find_group(names[i], NAMES_LOCAL, &gid), -ENOENT);
	}
	assert_int_equal(names_find_user(NOBODY_HERE, NAMES_ANYWHERE, &uid, &gid), -ENOENT);
	assert_int_equal(names_find_group(NOBODY_HERE, NAMES_ANYWHERE, &gid), -ENOENT);
	assert_int_equal(names_find_group_of(UINT32_MAX - 7, NAMES_ANYWHERE, &gid), -ENOENT);
	assert_int_equal(uid, 7);
	assert_int_equal(gid, 7);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_local),
		cmocka_unit_test(test_unknown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
