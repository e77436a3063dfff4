/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_hook_state.c - what the hook notes for its later calls comes back as it was, or not at all. */
#include "temp.h"

#include "hook_state.h"

#define UUID "11111111-2222-3333-4444-5555555555ab"

static char dir[TEMP_PATH];
static char name[HOOK_STATE_NAME_MAX];
static struct hook_state now, then;

static int setup(void **state)
{
	temp_make(dir);
	hook_state_get_name(UUID, 0x1f, 0xabc, name);
	return 0;
}

static int teardown(void **state)
{
	temp_remove(dir);
	return 0;
}

static void test_name(void **state)
{
	assert_string_equal(name, UUID "-1f-abc");
}

static void test_round_trip(void **state)
{
	now = (struct hook_state){.directory = "7-a <b>\xc3\xa4",
		.lease = 42151894126,
		.is_taken = true,
		.file_count = 3,
		.files = {{"pc.ram", HOOK_WAY_LINK, "/m/hpz-out/0/0"},
			{"dimm0", HOOK_WAY_BIND, "/m/with space/1"}, {"ua-x", HOOK_WAY_SYMLINK, "/m/2"}}};
	assert_int_equal(hook_state_read(dir, name, &then), -ENOENT);
	assert_int_equal(hook_state_write(dir, name, &now), 0);
	assert_int_equal(hook_state_read(dir, name, &then), 0);
	assert_memory_equal(&now, &then, sizeof(now));
	now = (struct hook_state){.directory = "8-b", .is_ordinary = true};
	assert_int_equal(hook_state_write(dir, name, &now), 0);
	assert_int_equal(hook_state_read(dir, name, &then), 0);
	assert_memory_equal(&now, &then, sizeof(now));
	hook_state_remove(dir, name);
	hook_state_remove(dir, name);
	assert_int_equal(hook_state_read(dir, name, &then), -ENOENT);
}

/* The most there can be. */
static void test_full(void **state)
{
	memset(now.directory, 'd', sizeof(now.directory) - 1);
	now.lease = UINT64_MAX;
	now.file_count = DOMAIN_FILES_MAX;
	for (size_t i = 0; i < DOMAIN_FILES_MAX; i++) {
		memset(now.files[i].alias, 'a', DOMAIN_ALIAS_MAX);
		now.files[i].way = HOOK_WAY_SYMLINK;
		memset(now.files[i].path, 'p', HOOK_PATH_MAX - 1);
		now.files[i].path[0] = '/';
	}
	assert_int_equal(hook_state_write(dir, name, &now), 0);
	assert_int_equal(hook_state_read(dir, name, &then), 0);
	assert_memory_equal(&now, &then, sizeof(now));
}

static void test_private(void **state)
{
	char path[PATH_MAX];
	struct stat st;

	now = (struct hook_state){.directory = "8-b"};
	assert_int_equal(hook_state_write(dir, name, &now), 0);
	temp_path(dir, "libvirt", path);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0700);
}

/* It is not believed when it is not understood. */
static void test_broken(void **state)
{
	static const char *const texts[] = {
		"",
		"x\n",
		"hpz-libvirt-hook 2\ndirectory 7-a\n",
		"hpz-libvirt-hook 1\n",
		"hpz-libvirt-hook 1\nlease 7\n",
		"hpz-libvirt-hook 1\ndirectory 7-a",
		"hpz-libvirt-hook 1\ndirectory ../a\n",
		"hpz-libvirt-hook 1\ndirectory 7-a\nnews 1\n",
		"hpz-libvirt-hook 1\ndirectory 7-a\nfile pc.ram link\n",
		"hpz-libvirt-hook 1\ndirectory 7-a\nfile pc.ram link relative\n",
		"hpz-libvirt-hook 1\ndirectory 7-a\nfile ../x link /m\n",
		"hpz-libvirt-hook 1\ndirectory 7-a\nfile pc.ram jump /m\n",
	};
	char file[160];

	now = (struct hook_state){.directory = "8-b"};
	assert_int_equal(hook_state_write(dir, name, &now), 0);
	snprintf(file, sizeof(file), "libvirt/%s", name);
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		then.lease = 5;
		temp_write(dir, file, texts[i], strlen(texts[i]));
		assert_int_equal(hook_state_read(dir, name, &then), -EBADMSG);
		assert_int_equal(then.lease, 5);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_name, setup, teardown),
		cmocka_unit_test_setup_teardown(test_round_trip, setup, teardown),
		cmocka_unit_test_setup_teardown(test_full, setup, teardown),
		cmocka_unit_test_setup_teardown(test_private, setup, teardown),
		cmocka_unit_test_setup_teardown(test_broken, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
