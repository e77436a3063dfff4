/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_emulators.c - a domain's process by its command line, and where its memory lies. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <signal.h>
#include <sys/wait.h>

#include "emulators.h"

#define UUID  "11111111-2222-3333-4444-5555555555ab"
#define OTHER "11111111-2222-3333-4444-5555555555ac"

#define HAS_UUID(words, uuid) emulators_has_uuid(words, sizeof(words), uuid)

static void test_uuid(void **state)
{
	assert_true(HAS_UUID("qemu\0-uuid\0" UUID "\0-S", UUID));
	assert_true(HAS_UUID("qemu\0-uuid\0"
			     "11111111-2222-3333-4444-5555555555AB",
		UUID));
	assert_true(HAS_UUID("qemu\0-uuid\0" OTHER "\0-uuid\0" UUID, UUID));
	assert_false(HAS_UUID("qemu\0-uuid\0" OTHER, UUID));
	assert_false(HAS_UUID("qemu\0-name\0" UUID, UUID));
	assert_false(HAS_UUID("qemu\0-uuid", UUID));
	assert_false(HAS_UUID("qemu\0-uuid\0", UUID));
	assert_false(HAS_UUID("", UUID));
	assert_false(emulators_has_uuid("", 0, UUID));
	/* Not ended: some process that writes over its own command line. */
	assert_false(emulators_has_uuid("-uuid\0" UUID, sizeof("-uuid\0" UUID) - 1, UUID));
}

static void expect_directory(const char *words, size_t length, const char *alias, const char *expected)
{
	char path[64] = "none";

	assert_int_equal(emulators_get_directory(words, length, alias, path, sizeof(path)), expected != NULL);
	assert_string_equal(path, expected ? expected : "none");
}
#define EXPECT_DIRECTORY(words, alias, expected) expect_directory(words, sizeof(words), alias, expected)

static void test_directory(void **state)
{
	static const char json[] =
		"qemu\0-object\0{\"qom-type\":\"memory-backend-file\",\"id\":\"pc.ram\",\"mem-path\":"
		"\"/hp/libvirt/qemu/1-vm/pc.ram\",\"share\":true}";
	static const char keys[] =
		"qemu\0-object\0memory-backend-file,id=x,mem-path=/hp/1-vm/ram-node0,size=1";

	EXPECT_DIRECTORY(json, "pc.ram", "/hp/libvirt/qemu/1-vm");
	EXPECT_DIRECTORY(json, NULL, "/hp/libvirt/qemu/1-vm");
	EXPECT_DIRECTORY(json, "pc.ra", NULL);
	EXPECT_DIRECTORY(json, "ram-node0", NULL);
	EXPECT_DIRECTORY(keys, "ram-node0", "/hp/1-vm");
	EXPECT_DIRECTORY("q\0mem-path=/hp", NULL, NULL);
	EXPECT_DIRECTORY("q\0mem-path=/hp/", NULL, NULL);
	EXPECT_DIRECTORY("q\0mem-path=hp/x", NULL, NULL);
	EXPECT_DIRECTORY("q\0mem-path=", NULL, NULL);
	EXPECT_DIRECTORY("q\0mem-path=/a,,b/x", NULL, NULL);
	EXPECT_DIRECTORY("q\0{\"mem-path\":\"/a\\\"b/x\"}", NULL, NULL);
	EXPECT_DIRECTORY(
		"q\0mem-path=/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa/x", NULL, NULL);
	EXPECT_DIRECTORY("q", NULL, NULL);
	expect_directory("", 0, NULL, NULL);
}

/* A process that is there until its standard input ends. */
static void test_find(void **state)
{
	int ends[2];

	assert_true(emulators_find("00000000-0000-4000-8000-000000000bad") == 0);
	assert_int_equal(pipe(ends), 0);
	pid_t child = fork();
	if (child == 0) {
		dup2(ends[0], 0);
		close(ends[0]);
		close(ends[1]);
		execlp("sh", "sh", "-c", "echo; read x", "vm", "-uuid", UUID, NULL);
		_exit(127);
	}
	close(ends[0]);
	/* Until it has become what it is to be: the name of a process changes with exec. */
	pid_t found = 0;
	for (int i = 0; i < 3000 && found == 0; i++) {
		found = emulators_find(UUID);
		nanosleep(&(struct timespec){.tv_nsec = 10 * NS_PER_MS}, NULL);
	}
	kill(child, SIGKILL);
	assert_int_equal(waitpid(child, NULL, 0), child);
	close(ends[1]);
	assert_int_equal(found, child);
	assert_true(emulators_find(UUID) == 0);
}

static void test_read(void **state)
{
	char *words = NULL;
	size_t length = 0;

	assert_int_equal(emulators_read(getpid(), &words, &length), 0);
	assert_non_null(memmem(words, length, "test_emulators", sizeof("test_emulators")));
	free(words);
	words = NULL;
	assert_int_equal(emulators_read(INT32_MAX, &words, &length), -ENOENT);
	assert_null(words);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_uuid),
		cmocka_unit_test(test_directory),
		cmocka_unit_test(test_find),
		cmocka_unit_test(test_read),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
