/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_emulators.c - domains' processes by their command lines, read by a child that may not come back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <signal.h>
#include <sys/wait.h>

#include "emulators.h"

#define UUID  "11111111-2222-3333-4444-5555555555ab"
#define UPPER "11111111-2222-3333-4444-5555555555AB"
#define OTHER "11111111-2222-3333-4444-5555555555ac"

/* What the child of this test does instead of what it should. */
#define CHILD_ENV "HPZ_TEST_CHILD"

/* All uuids of it, one after the other. */
static void expect_uuids(const char *words, size_t length, const char *uuids)
{
	char uuid[EMULATORS_UUID_SIZE], found[256] = "";
	size_t at = 0;

	while (emulators_next_uuid(words, length, &at, uuid))
		strcat(found, uuid);
	assert_string_equal(found, uuids);
}
#define EXPECT(words, uuids) expect_uuids(words, sizeof(words), uuids)

static void test_words(void **state)
{
	EXPECT("qemu\0-uuid\0" UUID "\0-S", UUID);
	EXPECT("qemu\0-uuid\0" UPPER, UUID);
	EXPECT("qemu\0-uuid\0" OTHER "\0-uuid\0" UUID, OTHER UUID);
	EXPECT("qemu\0-uuid\0-uuid\0" UUID, UUID);
	EXPECT("qemu\0-name\0" UUID, "");
	EXPECT("qemu\0-uuid", "");
	EXPECT("qemu\0-uuid\0", "");
	EXPECT("qemu\0-uuid\0" UUID "0", "");
	EXPECT("qemu\0-uuid\0"
	       "11111111-2222-3333-4444_5555555555ab",
		"");
	EXPECT("", "");
	expect_uuids("", 0, "");
	/* Not ended: some process that writes over its own command line. */
	expect_uuids("-uuid\0" UUID, sizeof("-uuid\0" UUID) - 1, "");
}

static bool runs(const char *uuid)
{
	struct emulators emulators;
	pid_t held;

	assert_int_equal(emulators_read(&emulators, &held), 0);
	bool is_there = emulators_have(&emulators, uuid);
	emulators_deinit(&emulators);
	return is_there;
}

/* A process that is there until its standard input ends. */
static void test_read(void **state)
{
	int ends[2];

	assert_false(runs("00000000-0000-4000-8000-000000000bad"));
	assert_int_equal(pipe(ends), 0);
	pid_t child = fork();
	if (child == 0) {
		dup2(ends[0], 0);
		close(ends[0]);
		close(ends[1]);
		execlp("sh", "sh", "-c", "echo; read x", "vm", "-uuid", UPPER, NULL);
		_exit(127);
	}
	close(ends[0]);
	/* Until it has become what it is to be: the name of a process changes with exec. */
	bool is_found = false;
	for (int i = 0; i < 3000 && !is_found; i++) {
		is_found = runs(UUID);
		nanosleep(&(struct timespec){.tv_nsec = 10 * NS_PER_MS}, NULL);
	}
	kill(child, SIGKILL);
	assert_int_equal(waitpid(child, NULL, 0), child);
	close(ends[1]);
	assert_true(is_found);
	assert_false(runs(UUID));
}

/* ---- a child that is no good ---- */

static const struct emulator half = {.pid = 4711};

static int child_hangs(void)
{
	bool is_told = write(STDOUT_FILENO, &half, sizeof(half)) == sizeof(half);

	while (is_told)
		pause();
	return 1;
}

static int child_fails(void)
{
	return EACCES;
}

static int child_dies(void)
{
	return raise(SIGKILL);
}

static int child_babbles(void)
{
	return write(STDOUT_FILENO, "?", 1) == 1 ? 0 : 1;
}

static const struct {
	const char *name;
	int (*run)(void);
	int error;
	pid_t held;
} children[] = {
	{"fails", child_fails, -EACCES, 0},
	{"dies", child_dies, -ECHILD, 0},
	{"babbles", child_babbles, -EBADMSG, 0},
	{"hangs", child_hangs, -ETIMEDOUT, 4711},
};

static int run_child(const char *name)
{
	for (size_t i = 0; name && i < ARRAY_SIZE(children); i++) {
		if (strcmp(children[i].name, name) == 0)
			return children[i].run();
	}
	return emulators_tell();
}

/* One that was killed may take its time on a busy machine; it is left behind then, and dying. */
static void wait_for_children(void)
{
	int left = 60 * 100;

	while (waitpid(-1, NULL, WNOHANG) >= 0 && left-- > 0)
		usleep(10000);
	assert_true(left > 0);
	assert_int_equal(errno, ECHILD);
}

/* Not to know is never the same as none, and nothing is left of the child. */
static void test_bad_children(void **state)
{
	struct emulators emulators = {.count = 7};

	for (size_t i = 0; i < ARRAY_SIZE(children); i++) {
		pid_t held = -1;

		setenv(CHILD_ENV, children[i].name, 1);
		assert_int_equal(emulators_read(&emulators, &held), children[i].error);
		assert_int_equal(held, children[i].held);
		assert_int_equal(emulators.count, 7);
		wait_for_children();
	}
	unsetenv(CHILD_ENV);
	assert_false(runs(UUID));
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_words),
		cmocka_unit_test(test_read),
		cmocka_unit_test(test_bad_children),
	};

	if (argc == 2 && strcmp(argv[1], EMULATORS_WORD) == 0)
		return run_child(getenv(CHILD_ENV));
	return cmocka_run_group_tests_name("emulators", tests, NULL, NULL);
}
