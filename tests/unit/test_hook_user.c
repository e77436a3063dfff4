/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_hook_user.c - labels as libvirt writes them, and as it does not. */
#include "temp.h"

#include "hook_user.h"

static void test_labels(void **state)
{
	static const struct {
		const char *label;
		uint32_t uid, gid;
	} rows[] = {
		{"+64055:+108", 64055, 108},
		{"64055:108", 64055, 108},
		{"+0:+0", 0, 0},
		{"root:root", 0, 0},
		{"root:+5", 0, 5},
		{"+4294967294:root", 4294967294u, 0},
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		uint32_t uid = 7, gid = 7;
		assert_int_equal(hook_user_parse(rows[i].label, &uid, &gid), 0);
		assert_int_equal(uid, rows[i].uid);
		assert_int_equal(gid, rows[i].gid);
	}
}

static void test_hostile(void **state)
{
	static const char *const labels[] = {"", ":", "root", "root:", ":root", "+:+", "+1:+", "+-1:+0",
		"+1x:+0", "+4294967295:+0", "+0:+4294967295", "+18446744073709551616:+0", "+1:+2:+3"};
	char longest[400];
	uint32_t uid = 7, gid = 7;

	for (size_t i = 0; i < ARRAY_SIZE(labels); i++)
		assert_int_equal(hook_user_parse(labels[i], &uid, &gid), -EINVAL);
	memset(longest, 'a', sizeof(longest) - 1);
	longest[sizeof(longest) - 1] = '\0';
	assert_int_equal(hook_user_parse(longest, &uid, &gid), -EINVAL);
	/* Names that nobody has. */
	assert_int_equal(hook_user_parse("-1:+0", &uid, &gid), -ENOENT);
	assert_int_equal(hook_user_parse("hpz-no-such-name:root", &uid, &gid), -ENOENT);
	assert_int_equal(hook_user_parse("root:hpz-no-such-name", &uid, &gid), -ENOENT);
	assert_int_equal(uid, 7);
	assert_int_equal(gid, 7);
}

static void test_ask(void **state)
{
	uint64_t deadline_ns = clock_get_ns(CLOCK_MONOTONIC) + 60 * NS_PER_S;
	uint32_t uid = 7, gid = 7;

	assert_int_equal(hook_user_ask("hpz-no-such-name:root", deadline_ns, &uid, &gid), -ENOENT);
	assert_int_equal(hook_user_ask("+1", deadline_ns, &uid, &gid), -EINVAL);
	assert_int_equal(uid, 7);
	assert_int_equal(hook_user_ask("root:root", 0, &uid, &gid), 0); /* takes no time */
	assert_int_equal(uid, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_labels),
		cmocka_unit_test(test_hostile),
		cmocka_unit_test(test_ask),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
