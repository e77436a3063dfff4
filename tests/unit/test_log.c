/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_log.c - what really arrives on stderr. */
#include "temp.h"
#include "log.h"

struct capture {
	char dir[TEMP_PATH];
	int saved;
};

static int setup(void **state)
{
	struct capture *c = calloc(1, sizeof *c);
	char path[PATH_MAX];
	int fd;

	if (!c)
		return -1;
	temp_make(c->dir);
	temp_path(c->dir, "stderr", path);
	fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	c->saved = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
	if (fd < 0 || c->saved < 0 || dup2(fd, STDERR_FILENO) < 0)
		return -1;
	close(fd);
	unsetenv("JOURNAL_STREAM");
	log_init("hpzd");
	log_set_level(LOG_LEVEL_INFO);
	*state = c;
	return 0;
}

static int teardown(void **state)
{
	struct capture *c = *state;

	dup2(c->saved, STDERR_FILENO);
	close(c->saved);
	temp_remove(c->dir);
	free(c);
	return 0;
}

static void expect(void **state, const char *text)
{
	const struct capture *c = *state;
	char *got = temp_read(c->dir, "stderr", NULL);

	assert_string_equal(got, text);
	free(got);
}

static void test_plain(void **state)
{
	log_info("pool %s has %d pages", "main", 3);
	log_error("no");
	log_init("hpzd worker 0");
	log_warning("yes");
	expect(state, "hpzd: pool main has 3 pages\nhpzd: no\nhpzd worker 0: yes\n");
}

static void test_levels(void **state)
{
	enum log_level level = LOG_LEVEL_INFO;

	log_debug("not seen");
	log_set_level(LOG_LEVEL_DEBUG);
	log_debug("debug");
	log_set_level(LOG_LEVEL_ERROR);
	log_warning("not seen");
	log_error("error");
	expect(state, "hpzd: debug\nhpzd: error\n");

	assert_int_equal(log_find_level("warning", &level), 0);
	assert_int_equal(level, LOG_LEVEL_WARNING);
	assert_int_equal(log_find_level("Warning", &level), -EINVAL);
	assert_int_equal(log_find_level("", &level), -EINVAL);
	assert_int_equal(level, LOG_LEVEL_WARNING);
}

static void test_priorities(void **state)
{
	log_set_prefix(true);
	log_error("a");
	log_warning("b");
	log_info("c");
	log_set_prefix(false);
	log_info("d");
	expect(state, "<3>a\n<4>b\n<6>c\nhpzd: d\n");
}

/* The variable alone says nothing: it must name what stderr is now. */
static void test_journal_stream(void **state)
{
	struct stat st;
	char text[64];

	assert_int_equal(fstat(STDERR_FILENO, &st), 0);
	snprintf(
		text, sizeof text, "%llu:%llu", (unsigned long long)st.st_dev, (unsigned long long)st.st_ino);
	setenv("JOURNAL_STREAM", text, 1);
	log_init("hpzd");
	log_error("to the journal");
	setenv("JOURNAL_STREAM", "1:1", 1);
	log_init("hpzd");
	log_error("redirected");
	setenv("JOURNAL_STREAM", "x", 1);
	log_init("hpzd");
	log_error("nonsense");
	unsetenv("JOURNAL_STREAM");
	expect(state, "<3>to the journal\nhpzd: redirected\nhpzd: nonsense\n");
}

/* Nothing that comes from outside makes a second line or moves the cursor. */
static void test_control_characters(void **state)
{
	log_info("%s", "a\n<0>b\tc\x1b[2J\x7f\r\xc2\x9b"
		       "d \xc3\xa9 \xc2\xa0");
	expect(state, "hpzd: a?<0>b?c?[2J????d \xc3\xa9 \xc2\xa0\n");
}

static void test_long_line(void **state)
{
	const struct capture *c = *state;
	char text[5000], *got;
	size_t length;

	memset(text, 'x', sizeof text - 1);
	text[sizeof text - 1] = 0;
	log_info("%s", text);
	got = temp_read(c->dir, "stderr", &length);
	assert_true(length > 1000 && length <= 2048);
	assert_string_equal(got + length - 5, "x...\n");
	free(got);
}

static void test_errno(void **state)
{
	errno = ENOENT;
	log_info("%m");
	assert_int_equal(errno, ENOENT);
	close(STDERR_FILENO);
	log_info("nobody listens");
	assert_int_equal(errno, ENOENT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_plain, setup, teardown),
		cmocka_unit_test_setup_teardown(test_levels, setup, teardown),
		cmocka_unit_test_setup_teardown(test_priorities, setup, teardown),
		cmocka_unit_test_setup_teardown(test_journal_stream, setup, teardown),
		cmocka_unit_test_setup_teardown(test_control_characters, setup, teardown),
		cmocka_unit_test_setup_teardown(test_long_line, setup, teardown),
		cmocka_unit_test_setup_teardown(test_errno, setup, teardown),
	};
	return cmocka_run_group_tests_name("log", tests, NULL, NULL);
}
