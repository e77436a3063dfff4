/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_proof.c - what of the proof needs neither huge pages nor BPF: the file lease, the words, the refusals.
 */
#include "temp.h"
#include "proof.h"

#include <signal.h>

static char dir[TEMP_PATH];

static int open_file(int flags)
{
	char path[PATH_MAX];

	temp_path(dir, "file", path);
	int fd = open(path, flags | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	return fd;
}

static struct proof_verdict look(int fd)
{
	struct proof_verdict verdict;

	assert_int_equal(proof_look_by_lease(fd, &verdict), 0);
	assert_int_equal(verdict.source, PROOF_FILE_LEASE);
	return verdict;
}

static void test_file_lease(void **state)
{
	_cleanup_fd_ int ours = open_file(O_RDWR | O_CREAT);
	struct proof_verdict verdict = look(ours);

	if (verdict.result == PROOF_CANNOT_TELL) /* a file system without leases */
		skip();
	assert_int_equal(verdict.result, PROOF_FREE);
	assert_false(proof_may_be_open(&verdict));
	for (size_t i = 0; i < 2; i++) {
		int theirs = open_file(i ? O_RDWR : O_RDONLY);
		verdict = look(ours);
		assert_int_equal(verdict.result, PROOF_IN_USE);
		assert_int_equal(verdict.reason, PROOF_OPEN);
		assert_true(proof_may_be_open(&verdict));
		close_fd(theirs);
		/* Looking again is no lease that stays. */
		assert_int_equal(look(ours).result, PROOF_FREE);
	}
}

static void test_no_lease_on_a_pipe(void **state)
{
	int fds[2];

	assert_int_equal(pipe(fds), 0);
	assert_int_equal(look(fds[0]).result, PROOF_CANNOT_TELL);
	close_fd(fds[0]);
	close_fd(fds[1]);
}

static void test_may_be_open(void **state)
{
	static const struct {
		enum proof_result result;
		enum proof_reason reason;
		bool may_be_open;
	} rows[] = {
		{PROOF_FREE, PROOF_NO_REASON, false},
		{PROOF_CANNOT_TELL, PROOF_NO_REASON, true},
		{PROOF_IN_USE, PROOF_OPEN, true},
		{PROOF_IN_USE, PROOF_OPEN_READ, true},
		{PROOF_IN_USE, PROOF_NAME, false},
		{PROOF_IN_USE, PROOF_LINK, false},
		{PROOF_IN_USE, PROOF_PIN, false},
		{PROOF_IN_USE, PROOF_POISON, false},
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct proof_verdict verdict = {.result = rows[i].result, .reason = rows[i].reason};
		assert_int_equal(proof_may_be_open(&verdict), rows[i].may_be_open);
	}
}

static void test_words(void **state)
{
	for (int i = 0; i < PROOF_REASON_COUNT; i++) {
		assert_true(strlen(proof_get_reason_text(i)) > 0);
		/* It has a place on the wire. */
		assert_true(strlen(proof_get_reason_text(i)) < 64);
	}
	assert_string_equal(proof_get_reason_text(PROOF_REASON_COUNT), "something");
	assert_string_equal(proof_get_source_name(PROOF_BPF), "bpf");
	assert_string_equal(proof_get_source_name(PROOF_FILE_LEASE), "f_setlease");
	assert_string_equal(proof_get_source_name(PROOF_NONE), "none");
}

/* On a file that is not on hugetlbfs nothing is learned, and without a program neither. */
static void test_learns_nothing_here(void **state)
{
	_cleanup_fd_ int dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct proof_facts facts = {.page_size = 77};
	const char *why = NULL;

	assert_true(proof_learn(-1, dir_fd, (uint64_t)2 << 20, &facts, &why) < 0);
	assert_int_equal(facts.page_size, 77);
	assert_true(why && *why);
	char path[PATH_MAX];
	temp_path(dir, "proof-scratch", path);
	assert_int_equal(access(path, F_OK), -1);
}

static int set_up(void **state)
{
	signal(SIGIO, SIG_IGN);
	temp_make(dir);
	return 0;
}

static int tear_down(void **state)
{
	temp_remove(dir);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_file_lease, set_up, tear_down),
		cmocka_unit_test(test_no_lease_on_a_pipe),
		cmocka_unit_test(test_may_be_open),
		cmocka_unit_test(test_words),
		cmocka_unit_test_setup_teardown(test_learns_nothing_here, set_up, tear_down),
	};

	return cmocka_run_group_tests_name("proof", tests, NULL, NULL);
}
