/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_hook_settings.c - what the hook reads of hpzd.conf and of qemu.conf. */
#include "temp.h"

#include "hook_settings.h"

static char dir[TEMP_PATH];
static struct hook_settings settings;

static int setup(void **state)
{
	temp_make(dir);
	return 0;
}

static int teardown(void **state)
{
	temp_remove(dir);
	return 0;
}

static void read_text(const char *text)
{
	char path[PATH_MAX];

	temp_write(dir, "hpzd.conf", text, strlen(text));
	temp_path(dir, "hpzd.conf", path);
	hook_settings_read(path, &settings);
}

static void check_defaults(void)
{
	assert_true(settings.is_enabled && !settings.refuses && !settings.has_user);
	assert_int_equal(settings.deadline_ms, 2000);
	assert_string_equal(settings.socket, "/run/hpz/hpzd.sock");
	assert_string_equal(settings.run_dir, "/run/hpz");
	assert_int_equal(settings.pool_count, 0);
}

static void test_defaults(void **state)
{
	read_text("");
	check_defaults();
	assert_string_equal(settings.mistake, "");
	char path[PATH_MAX];
	temp_path(dir, "missing.conf", path);
	hook_settings_read(path, &settings);
	check_defaults();
	assert_string_equal(settings.mistake, "");
}

static void test_all(void **state)
{
	read_text("[hpzd]\nsocket = /s\nrun_dir = /r\n[libvirt]\nenabled = no\non_failure = refuse\ndeadline "
		  "= 300ms\n"
		  "memory_backing_dir = /huge/\nuser = 5:6\n[pool a]\npage_size = 2M\npages = 1\n"
		  "[pool b]\npage_size = 1G\nnode = 1\npages = 1\nmount = /b\nreuse = weak\n"
		  "[pool c]\npage_size = 1G\npages = 1\nmount = /c\nreuse = never\n");
	assert_string_equal(settings.mistake, "");
	assert_false(settings.is_enabled);
	assert_true(settings.refuses && settings.has_user && settings.uid == 5 && settings.gid == 6);
	assert_int_equal(settings.deadline_ms, 300);
	assert_string_equal(settings.socket, "/s");
	assert_string_equal(settings.backing_dir, "/huge/libvirt/qemu");
	assert_int_equal(settings.pool_count, 3);
	assert_string_equal(settings.pools[0].mount, "/r/mnt/a");
	assert_true(
		settings.pools[0].may_reuse && !settings.pools[1].may_reuse && !settings.pools[2].may_reuse);
	assert_string_equal(settings.pools[1].mount, "/b");
	assert_int_equal(settings.pools[1].node, 1);
	assert_int_equal(settings.pools[1].page_size, 1u << 30);
}

/* Whatever is wrong with it, there are settings, and it says what is wrong. */
static void test_mistakes(void **state)
{
	static const char *const texts[] = {"[libvirt]\ndeadline = soon\n", "[pool a]\n", "x\n",
		"[nonsense]\n",
		"[access a]\nallow = lease\nusers = no-such-user-here\n[libvirt]\nenabled = no\n"};

	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		read_text(texts[i]);
		check_defaults();
		assert_non_null(strstr(settings.mistake, "hpzd.conf:"));
	}
	hook_settings_read(dir, &settings); /* no file */
	check_defaults();
	assert_true(*settings.mistake);
}

static void test_qemu_conf(void **state)
{
	static const struct {
		const char *text, *path;
	} rows[] = {
		{"", ""},
		{"#memory_backing_dir = \"/no\"\n", ""},
		{"memory_backing_dir = \"/huge\"\n", "/huge"},
		{" memory_backing_dir=\"/huge\" # why", "/huge"},
		{"memory_backing_dir = '/huge'\n", "/huge"},
		{"memory_backing_dir = \"/a\"\nmemory_backing_dir = \"/b\"\n", "/b"},
		{"memory_backing_dir = \"relative\"\n", ""},
		{"memory_backing_dir = /huge\n", ""},
		{"memory_backing_dir = \"\"\n", ""},
		{"memory_backing_dir = \"/open\n", ""},
		{"memory_backing_directory = \"/no\"\n", ""},
		{"user = \"qemu\"\nmemory_backing_dir = \"/with space\"\n", "/with space"},
		{"memory_backing_dir = \"/a-path-that-is-far-too-long-for-its-buffer\"\n", ""},
	};
	char path[24];

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		FILE *file = fmemopen((char *)(uintptr_t)(*rows[i].text ? rows[i].text : "\n"),
			MAX(strlen(rows[i].text), 1u), "r");
		assert_non_null(file);
		hook_settings_find_backing_dir(file, path, sizeof(path));
		assert_string_equal(path, rows[i].path);
		fclose(file);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_defaults, setup, teardown),
		cmocka_unit_test_setup_teardown(test_all, setup, teardown),
		cmocka_unit_test_setup_teardown(test_mistakes, setup, teardown),
		cmocka_unit_test(test_qemu_conf),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
