/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * test_daemon.c - the program: its command line, and a whole life of hpzd without a pool, as any user. Pools,
 * mounts and restarts are for tests/integration.
 */
#include "temp.h"

#include <poll.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>

#define SECONDS 20

static char dir[TEMP_PATH], config[PATH_MAX];
static int notify = -1;

static int setup(void **state)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	temp_make(dir);
	snprintf(address.sun_path, sizeof address.sun_path, "%.90s/notify", dir);
	notify = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(notify, (struct sockaddr *)&address, sizeof address), 0);
	setenv("NOTIFY_SOCKET", address.sun_path, 1);
	return 0;
}

static int teardown(void **state)
{
	unsetenv("NOTIFY_SOCKET");
	close(notify);
	temp_remove(dir);
	return 0;
}

static void write_config(const char *extra)
{
	char text[2048];

	snprintf(text, sizeof text, "[hpzd]\nsocket = %s/run/sock\nrun_dir = %s/run\n%s", dir, dir, extra);
	temp_put(dir, "conf", text);
	temp_path(dir, "conf", config);
}

/* hpzd with these arguments, its words in dir/words. */
static pid_t start(const char *first, const char *second)
{
	const char *program = getenv("HPZ_TEST_HPZD");
	char words[PATH_MAX];

	assert_non_null(program);
	temp_path(dir, "words", words);
	pid_t pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		int fd = open(words, O_WRONLY | O_CREAT | O_TRUNC, 0600);
		dup2(fd, 1);
		dup2(fd, 2);
		execl(program, "hpzd", first, second, NULL);
		_exit(126);
	}
	return pid;
}

/* Its end, within reason; the exit status. */
static int wait_end(pid_t pid)
{
	int pidfd = (int)syscall(SYS_pidfd_open, pid, 0), status;
	struct pollfd look = {.fd = pidfd, .events = POLLIN};

	assert_true(pidfd >= 0);
	if (poll(&look, 1, SECONDS * 1000) != 1) {
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
		fail_msg("hpzd does not end");
	}
	close(pidfd);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

static void expect_words(const char *words)
{
	char *text = temp_read(dir, "words", NULL);

	if (!strstr(text, words))
		fail_msg("\"%s\" is not in: %s", words, text);
	free(text);
}

/* Until systemd is told that. */
static void expect_notification(const char *wanted)
{
	char text[1024];
	struct pollfd look = {.fd = notify, .events = POLLIN};

	for (;;) {
		assert_int_equal(poll(&look, 1, SECONDS * 1000), 1);
		ssize_t length = recv(notify, text, sizeof text - 1, 0);
		assert_true(length > 0);
		text[length] = '\0';
		if (strstr(text, wanted))
			return;
	}
}

/* ---- the command line ---- */

static void test_command_line(void **state)
{
	assert_int_equal(wait_end(start("--version", NULL)), 0);
	expect_words("hpzd " HPZ_VERSION "\n");
	assert_int_equal(wait_end(start("--help", NULL)), 0);
	expect_words("--check FILE");
	assert_int_equal(wait_end(start("--nonsense", NULL)), 2);
	assert_int_equal(wait_end(start("argument", NULL)), 2);
	expect_words("hpzd takes no such argument");
	assert_int_equal(wait_end(start("--config", NULL)), 2);
}

static void test_check(void **state)
{
	write_config("");
	assert_int_equal(wait_end(start("--check", config)), 0);
	expect_words("good, 0 pools");
	write_config("[pool a]\npage_size = 2M\npages = 5\n");
	assert_int_equal(wait_end(start("--check", config)), 0);
	expect_words("good, 1 pool\n");
	write_config("nonsense = 5\n");
	assert_int_equal(wait_end(start("--check", config)), 1);
	expect_words("conf:4: ");
	assert_int_equal(wait_end(start("--check", "/nonexistent/hpzd.conf")), 1);
	expect_words("/nonexistent/hpzd.conf");
	/* A start says the same and does not happen. */
	assert_int_equal(wait_end(start("--config", config)), 1);
	expect_words("conf:4: ");
}

/* ---- a life ---- */

static void test_life(void **state)
{
	char path[PATH_MAX];
	struct stat st;

	write_config("");
	pid_t pid = start("--config", config);
	expect_notification("READY=1");
	snprintf(path, sizeof path, "%s/run/sock", dir);
	assert_int_equal(lstat(path, &st), 0);
	assert_int_equal(st.st_mode, S_IFSOCK | 0660);
	snprintf(path, sizeof path, "%s/run/journal", dir);
	assert_int_equal(lstat(path, &st), 0);
	assert_int_equal(st.st_mode, S_IFREG | 0600);
	/* A second one on the same directory says why not, and the first does not notice. */
	char *first_words = temp_read(dir, "words", NULL);
	pid_t second = start("--config", config);
	assert_int_equal(wait_end(second), 1);
	expect_words("another hpzd uses this directory");
	free(first_words);
	assert_int_equal(kill(pid, SIGHUP), 0);
	expect_notification("RELOADING=1");
	expect_notification("READY=1");
	write_config("log_level = nonsense\n");
	assert_int_equal(kill(pid, SIGHUP), 0);
	expect_notification("READY=1");
	assert_int_equal(kill(pid, SIGTERM), 0);
	expect_notification("STOPPING=1");
	assert_int_equal(wait_end(pid), 0);
	snprintf(path, sizeof path, "%s/run/sock", dir);
	assert_int_equal(access(path, F_OK), -1);
}

/* Stopped while it still starts, and by whichever signal: always a clean end. */
static void test_early_stop(void **state)
{
	static const int signals[] = {SIGTERM, SIGINT, SIGTERM, SIGTERM};

	write_config("");
	for (size_t i = 0; i < ARRAY_SIZE(signals); i++) {
		pid_t pid = start("--config", config);
		expect_notification("READY=1");
		usleep((useconds_t)i * 20000); /* somewhere in the calibration */
		assert_int_equal(kill(pid, signals[i]), 0);
		kill(pid, signals[i]);
		assert_int_equal(wait_end(pid), 0);
	}
}

static void test_killed(void **state)
{
	write_config("");
	for (int i = 0; i < 3; i++) {
		pid_t pid = start("--config", config);
		expect_notification("READY=1");
		assert_int_equal(kill(pid, SIGKILL), 0);
		assert_int_equal(wait_end(pid), 1000 + SIGKILL);
	}
	/* Its socket is there still, and in nobody's way. */
	pid_t pid = start("--config", config);
	expect_notification("READY=1");
	assert_int_equal(kill(pid, SIGTERM), 0);
	assert_int_equal(wait_end(pid), 0);
}

/* A process that a killed hpzd had just forked holds its locks, until it comes to its exec. */
static void test_late_child(void **state)
{
	char path[PATH_MAX];

	write_config("");
	pid_t pid = start("--config", config);
	expect_notification("READY=1");
	assert_int_equal(kill(pid, SIGTERM), 0);
	assert_int_equal(wait_end(pid), 0);
	temp_path(dir, "run/lock", path);
	int lock = open(path, O_RDWR | O_CLOEXEC);
	temp_path(dir, "run/", path);
	int run = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_int_equal(flock(lock, LOCK_EX | LOCK_NB), 0);
	assert_int_equal(flock(run, LOCK_EX | LOCK_NB), 0);
	pid = start("--config", config);
	usleep(200000);
	assert_int_equal(waitpid(pid, NULL, WNOHANG), 0);
	close(lock);
	usleep(200000);
	assert_int_equal(waitpid(pid, NULL, WNOHANG), 0);
	close(run);
	expect_notification("READY=1");
	assert_int_equal(kill(pid, SIGTERM), 0);
	assert_int_equal(wait_end(pid), 0);
}

/* What cannot be is said with its line, and nothing is left behind that a second start would trip over. */
static void test_cannot_start(void **state)
{
	char text[1024], path[PATH_MAX];

	write_config("[pool a]\npage_size = 2M\npages = 5\nmount = /nonexistent/mount\n");
	assert_int_equal(wait_end(start("--config", config)), 1);
	expect_words("conf:");
	write_config("[pool a]\npage_size = 2M\npages = 5\nmount = /tmp\n");
	assert_int_equal(wait_end(start("--config", config)), 1);
	expect_words("pool a: ");
	write_config("socket_group = no-such-group\n");
	assert_int_equal(wait_end(start("--config", config)), 1);
	expect_words("its group does not exist");
	snprintf(text, sizeof text, "[hpzd]\nsocket = %s/sock\nrun_dir = %s/not/there\n", dir, dir);
	temp_put(dir, "conf", text);
	assert_int_equal(wait_end(start("--config", config)), 1);
	expect_words("not/there");
	/* What lies where the journal should is no journal. */
	write_config("");
	temp_path(dir, "run/journal", path);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(mkdir(path, 0700), 0);
	assert_int_equal(wait_end(start("--config", config)), 1);
	expect_words("journal");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_command_line),
		TEST(test_check),
		TEST(test_life),
		TEST(test_early_stop),
		TEST(test_killed),
		TEST(test_late_child),
		TEST(test_cannot_start),
	};
	return cmocka_run_group_tests_name("daemon", tests, NULL, NULL);
}
