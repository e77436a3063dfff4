/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_emulators.c - a domain's process by its command line. */
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_uuid),
		cmocka_unit_test(test_find),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
