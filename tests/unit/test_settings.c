/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_settings.c - keys of hpzd.conf for programs other than hpzd. */
#include "temp.h"

#include "settings.h"

static const char *const choices[] = {"fallback", "refuse", NULL};

static char dir[TEMP_PATH], path[PATH_MAX], problem[SETTINGS_PROBLEM];
static char text[16];
static bool yes;
static uint64_t ms;
static unsigned choice;

static const struct settings_row rows[] = {
	{"hpzd", "socket", SETTINGS_TEXT, text, sizeof(text), NULL},
	{"qemu", "ram", SETTINGS_BOOL, &yes, 0, NULL},
	{"qemu", "wait", SETTINGS_TIME, &ms, 0, NULL},
	{"qemu", "on_failure", SETTINGS_CHOICE, &choice, 0, choices},
};

static int setup(void **state)
{
	temp_make(dir);
	temp_path(dir, "c", path);
	return 0;
}

static int teardown(void **state)
{
	temp_remove(dir);
	return 0;
}

/* Reads it over defaults that are none of the values in the tests. */
static void read_over_defaults(const char *content)
{
	strcpy(text, "default");
	yes = false;
	ms = 7;
	choice = 9;
	if (content)
		temp_put(dir, "c", content);
	settings_read(path, rows, ARRAY_SIZE(rows), problem);
}

static void assert_defaults(void)
{
	assert_string_equal(text, "default");
	assert_false(yes);
	assert_int_equal(ms, 7);
	assert_int_equal(choice, 9);
}

static void test_nothing(void **state)
{
	read_over_defaults(NULL);
	assert_string_equal(problem, "");
	assert_defaults();
	read_over_defaults("");
	assert_string_equal(problem, "");
	assert_defaults();
}

static void test_values(void **state)
{
	read_over_defaults("# what is not ours is hpzd's to judge\n[hpzd]\nsocket = /run/x ; behind it\n"
			   "nonsense = 1\n[pool vm]\nwait = 3s\n[qemu]\nram = Yes\nwait = 90s\n"
			   "on_failure = refuse\n");
	assert_string_equal(problem, "");
	assert_string_equal(text, "/run/x");
	assert_true(yes);
	assert_int_equal(ms, 90000);
	assert_int_equal(choice, 1);
	read_over_defaults("[qemu]\nwait = no\non_failure = fallback\nram = no");
	assert_int_equal(ms, 0);
	assert_int_equal(choice, 0);
	read_over_defaults("[qemu]\nwait = 2m");
	assert_int_equal(ms, 120000);
	read_over_defaults("[qemu]\nwait = 1h");
	assert_int_equal(ms, 3600000);
}

/* What cannot be read counts as not given, and the line is named. */
static void test_problems(void **state)
{
	static const char *const bad[] = {"[hpzd]\nsocket = /a/path/that/is/too/long\n",
		"[qemu]\nram = maybe\n", "[qemu]\nwait = 5\n", "[qemu]\nwait = -5s\n",
		"[qemu]\nwait = 5sec\n", "[qemu]\nwait =\n", "[qemu]\nwait = 99999999999999999999s\n",
		"[qemu]\non_failure = perhaps\n"};

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		read_over_defaults(bad[i]);
		assert_defaults();
		assert_int_equal(strncmp(problem, path, strlen(path)), 0);
		assert_int_equal(strncmp(problem + strlen(path), ":2: ", 4), 0);
	}
	/* The first one is told, and those that are right count. */
	read_over_defaults("[qemu]\nram = maybe\non_failure = perhaps\nwait = 1s\n");
	assert_non_null(strstr(problem, ":2: "));
	assert_int_equal(ms, 1000);
}

static void test_long_lines(void **state)
{
	char content[4096] = "[qemu]\n";
	size_t length = strlen(content);

	memset(content + length, 'x', 1000);
	strcpy(content + length + 1000, "ram = yes\nwait = 1s\n");
	read_over_defaults(content);
	assert_false(yes);
	assert_int_equal(ms, 1000);
	assert_non_null(strstr(problem, ":2: the line is too long"));
}

static void test_no_file(void **state)
{
	settings_read("/dev/null/c", rows, ARRAY_SIZE(rows), problem);
	assert_non_null(strstr(problem, "/dev/null/c: "));
}

static void test_path(void **state)
{
	setenv("HPZ_CONFIG", "", true);
	assert_string_equal(settings_get_path(), SETTINGS_DEFAULT_PATH);
	setenv("HPZ_CONFIG", "/x", true);
	assert_string_equal(settings_get_path(), "/x");
	unsetenv("HPZ_CONFIG");
	assert_string_equal(settings_get_path(), SETTINGS_DEFAULT_PATH);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_nothing, setup, teardown),
		cmocka_unit_test_setup_teardown(test_values, setup, teardown),
		cmocka_unit_test_setup_teardown(test_problems, setup, teardown),
		cmocka_unit_test_setup_teardown(test_long_lines, setup, teardown),
		cmocka_unit_test(test_no_file),
		cmocka_unit_test(test_path),
	};

	return cmocka_run_group_tests_name("settings", tests, NULL, NULL);
}
