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
		.file_count = 4,
		.files = {{"pc.ram", HOOK_WAY_LINK, "/m/hpz-out/0/0"},
			{"dimm0", HOOK_WAY_BIND, "/m/with space/1"}, {"ua-x", HOOK_WAY_SYMLINK, "/m/2"},
			{"dimm1", HOOK_WAY_OWN, ""}}};
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

/* A draft that was left goes, too. */
static void test_draft(void **state)
{
	char draft[160], path[PATH_MAX];

	now = (struct hook_state){.directory = "8-b"};
	assert_int_equal(hook_state_write(dir, name, &now), 0);
	snprintf(draft, sizeof(draft), "libvirt/%s.new", name);
	temp_put(dir, draft, "half");
	hook_state_remove(dir, name);
	temp_path(dir, draft, path);
	assert_int_equal(access(path, F_OK), -1);
}

/* Puts a text where a state is, with the lines of this boot before it if it is one of this boot. */
static int read_text(bool is_now, const char *text)
{
	char file[160], path[PATH_MAX], whole[512] = "";

	now = (struct hook_state){.directory = "8-b"};
	assert_int_equal(hook_state_write(dir, name, &now), 0);
	snprintf(file, sizeof(file), "libvirt/%s", name);
	if (is_now) {
		temp_path(dir, file, path);
		FILE *from = fopen(path, "re");
		assert_non_null(from);
		for (size_t i = 0; i < 2; i++)
			assert_non_null(fgets(whole + strlen(whole), 100, from));
		fclose(from);
	}
	strcat(whole, text);
	temp_write(dir, file, whole, strlen(whole));
	return hook_state_read(dir, name, &then);
}

/* It is not believed when it is not understood. */
static void test_broken(void **state)
{
	static const char *const whole[] = {
		"", "x\n", "hpz-libvirt-hook 2\nboot x\ndirectory 7-a\n", "hpz-libvirt-hook 1\n"};
	static const char *const rests[] = {
		"",
		"lease 7\n",
		"directory 7-a",
		"directory ../a\n",
		"directory ..\n",
		"directory 7-a\nnews 1\n",
		"directory 7-a\nfile pc.ram link\n",
		"directory 7-a\nfile pc.ram link relative\n",
		"directory 7-a\nfile pc.ram own /m\n",
		"directory 7-a\nfile pc.ram link \n",
		"directory 7-a\nfile ../x link /m\n",
		"directory 7-a\nfile pc.ram jump /m\n",
	};

	then.lease = 5;
	for (size_t i = 0; i < ARRAY_SIZE(whole); i++)
		assert_int_equal(read_text(false, whole[i]), -EBADMSG);
	for (size_t i = 0; i < ARRAY_SIZE(rests); i++)
		assert_int_equal(read_text(true, rests[i]), -EBADMSG);
	assert_int_equal(then.lease, 5);
	assert_int_equal(read_text(true, "directory 7-a\nfile pc.ram own \n"), 0);
}

/* Nor when it is of another boot, or of an earlier hpz that noted none. */
static void test_boot(void **state)
{
	then.lease = 5;
	assert_int_equal(read_text(false, "hpz-libvirt-hook 1\nboot 00000000-0000-0000-0000-000000000000\n"
					  "directory 7-a\nlease 7\n"),
		-ESTALE);
	assert_int_equal(read_text(false, "hpz-libvirt-hook 1\ndirectory 7-a\nlease 7\n"), -ESTALE);
	assert_int_equal(then.lease, 5);
	assert_int_equal(read_text(true, "directory 7-a\nlease 7\n"), 0);
	assert_int_equal(then.lease, 7);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_name, setup, teardown),
		cmocka_unit_test_setup_teardown(test_round_trip, setup, teardown),
		cmocka_unit_test_setup_teardown(test_full, setup, teardown),
		cmocka_unit_test_setup_teardown(test_private, setup, teardown),
		cmocka_unit_test_setup_teardown(test_draft, setup, teardown),
		cmocka_unit_test_setup_teardown(test_broken, setup, teardown),
		cmocka_unit_test_setup_teardown(test_boot, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
