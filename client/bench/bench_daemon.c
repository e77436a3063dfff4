/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* bench_daemon.c - hpzd's of a benchmark's own: see bench_daemon.h. */
#include "bench_daemon.h"

#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

/* Every system has it, and what is mounted on it is seen by us and our children only. */
#define BENCH_DAEMON_ROOT "/run"

#define BENCH_DAEMON_PAGE_SIZE ((uint64_t)2 << 20)

#define BENCH_DAEMON_PATIENCE_MS 60000
#define BENCH_DAEMON_LOOK_MS     20
#define BENCH_DAEMON_STOP_MS     10000

static int bench_daemon_program = -1; /* opened before mounts hide it */

static int bench_daemon_fail(const char *what, int error)
{
	hpzctl_say("bench: %s: %s", what, strerror(-error));
	return error;
}

static void bench_daemon_get_directory(const struct bench_daemon *daemon, char ret_path[64])
{
	snprintf(ret_path, 64, BENCH_DAEMON_ROOT "/%s", daemon->name);
}

static void bench_daemon_sleep(unsigned ms)
{
	nanosleep(&(struct timespec){.tv_nsec = (long)(ms * NS_PER_MS)}, NULL);
}

/* ---- before the first ---- */

/* "" when hpzctl does not lie in a build tree. */
static void bench_daemon_find_sibling(char path[PATH_MAX])
{
	ssize_t length = readlink("/proc/self/exe", path, PATH_MAX - 1);

	path[MAX(length, 0)] = '\0';
	for (int i = 0; i < 2 && *path; i++)
		*strrchr(path, '/') = '\0';
	size_t used = strlen(path);
	snprintf(path + used, PATH_MAX - used, "/daemon/hpzd");
	if (access(path, X_OK) < 0)
		path[0] = '\0';
}

static int bench_daemon_open_program(const char *program)
{
	char path[PATH_MAX];

	if (program)
		snprintf(path, sizeof(path), "%s", program);
	else
		bench_daemon_find_sibling(path);
	if (!path[0])
		snprintf(path, sizeof(path), "%s", HPZ_INSTALLED_HPZD);
	bench_daemon_program = open(path, O_PATH | O_CLOEXEC);
	return bench_daemon_program < 0 ? bench_daemon_fail(path, -errno) : 0;
}

int bench_daemon_prepare(const char *program)
{
	int r = bench_daemon_open_program(program);

	if (r < 0)
		return r;
	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
		mount("hpz-bench", BENCH_DAEMON_ROOT, "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC,
			"mode=0755") < 0)
		return bench_daemon_fail("no mounts of its own (needs root)", -errno);
	return 0;
}

/* ---- start ---- */

static void bench_daemon_get_mount(const char *directory, char ret_path[96])
{
	snprintf(ret_path, 96, "%s/pages", directory);
}

static uint64_t bench_daemon_get_page_size(const struct bench_daemon_wish *wish)
{
	return wish->page_size ? wish->page_size : BENCH_DAEMON_PAGE_SIZE;
}

static int bench_daemon_mount(const struct bench_daemon_wish *wish, const char *directory)
{
	char path[96], options[96];

	bench_daemon_get_mount(directory, path);
	snprintf(options, sizeof(options), "pagesize=%" PRIu64 ",size=%" PRIu64 ",mode=0711",
		bench_daemon_get_page_size(wish), wish->bytes);
	if (mkdir(directory, 0755) < 0 || mkdir(path, 0711) < 0 ||
		mount("hpz-bench", path, "hugetlbfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, options) < 0)
		return bench_daemon_fail(path, -errno);
	return 0;
}

static int bench_daemon_write_config(const struct bench_daemon_wish *wish, const char *directory)
{
	char path[96], mount_path[96];

	bench_daemon_get_mount(directory, mount_path);
	snprintf(path, sizeof(path), "%s/hpzd.conf", directory);
	_cleanup_file_ FILE *file = fopen(path, "we");
	if (!file)
		return bench_daemon_fail(path, -errno);
	fprintf(file, "[hpzd]\nrun_dir = %s\nsocket = %s/socket\n%s", directory, directory,
		wish->keys ? wish->keys : "");
	if (wish->cpu >= 0)
		fprintf(file, "[clear]\ncpus = %d\n", wish->cpu);
	fprintf(file,
		"[pool bench]\npage_size = %" PRIu64 "M\nnode = %d\npages = %" PRIu64
		"M\nraise = no\nmount = %s\nstock = %s\n",
		bench_daemon_get_page_size(wish) >> 20, (int)wish->node, wish->bytes >> 20, mount_path,
		wish->stock);
	return fflush(file) == 0 ? 0 : bench_daemon_fail(path, -errno);
}

/* What a service manager said to us is not meant for it. */
static void bench_daemon_clean_environment(void)
{
	static const char *const names[] = {"NOTIFY_SOCKET", "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES",
		"WATCHDOG_USEC", "WATCHDOG_PID", "JOURNAL_STREAM", "HPZ_SOCKET"};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		unsetenv(names[i]);
}

static void bench_daemon_become(const struct bench_daemon_wish *wish, const char *directory, pid_t parent)
{
	char config[96], log[96];
	cpu_set_t cpus;

	snprintf(config, sizeof(config), "%s/hpzd.conf", directory);
	snprintf(log, sizeof(log), "%s/log", directory);
	/* It ends with us, however we end. */
	if (prctl(PR_SET_PDEATHSIG, SIGTERM) < 0 || getppid() != parent)
		_exit(1);
	setsid(); /* what is typed at a terminal is for us */
	int out = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
	int in = open("/dev/null", O_RDWR | O_CLOEXEC);
	dup2(in, 0);
	dup2(out, 1);
	dup2(out, 2);
	CPU_ZERO(&cpus);
	if (wish->cpu >= 0) {
		CPU_SET((size_t)wish->cpu, &cpus);
		sched_setaffinity(0, sizeof(cpus), &cpus);
	}
	bench_daemon_clean_environment();
	char *const simulated[] = {(char *)"hpzd", (char *)"--simulate", (char *)"--config", config, NULL};
	char *const real[] = {(char *)"hpzd", (char *)"--config", config, NULL};
	fexecve(bench_daemon_program, wish->is_real ? real : simulated, environ);
	dprintf(2, "hpzd cannot be run: %m\n");
	_exit(1);
}

/* Why it does not serve: the end of what it said. */
static void bench_daemon_show_log(const char *directory)
{
	char path[96], line[512], last[512] = "nothing";

	snprintf(path, sizeof(path), "%s/log", directory);
	_cleanup_file_ FILE *file = fopen(path, "re");
	while (file && fgets(line, sizeof(line), file))
		memcpy(last, line, sizeof(last));
	last[strcspn(last, "\n")] = '\0';
	hpzctl_say("bench: hpzd does not serve; it said: %s", last);
}

static int bench_daemon_connect(struct bench_daemon *daemon)
{
	for (unsigned waited_ms = 0; waited_ms < BENCH_DAEMON_PATIENCE_MS;
		waited_ms += BENCH_DAEMON_LOOK_MS) {
		if (hpz_connect(daemon->socket, &daemon->hpz) == HPZ_OK)
			return 0;
		if (waitpid(daemon->pid, NULL, WNOHANG) != 0) {
			daemon->pid = 0;
			return -ECHILD;
		}
		bench_daemon_sleep(BENCH_DAEMON_LOOK_MS);
	}
	return -ETIMEDOUT;
}

/* It measures its methods of clearing when it starts: over when one is chosen. */
static bool bench_daemon_is_calibrated(const struct bench_daemon *daemon)
{
	struct hpz_clearing *clearing = NULL;
	struct hpz_clearing_info info = {.struct_size = sizeof(info)};
	bool is_chosen = false;

	if (hpz_get_clearing(daemon->hpz, &clearing))
		return false;
	hpz_clearing_get_info(clearing, &info);
	for (uint32_t i = 0; i < info.method_count; i++) {
		struct hpz_clearing_method method = {.struct_size = sizeof(method)};
		hpz_clearing_get_method(clearing, i, &method);
		is_chosen = is_chosen || (method.flags & HPZ_METHOD_CHOSEN);
	}
	hpz_clearing_free(clearing);
	return is_chosen;
}

int bench_daemon_settle(const struct bench_daemon *daemon)
{
	struct hpz_wait_request request = HPZ_WAIT_REQUEST_INIT;

	request.timeout_ms = BENCH_DAEMON_PATIENCE_MS;
	return hpz_wait(daemon->hpz, &request);
}

static int bench_daemon_await(struct bench_daemon *daemon)
{
	int r = bench_daemon_connect(daemon);

	for (unsigned waited_ms = 0; r == 0 && !bench_daemon_is_calibrated(daemon);
		waited_ms += BENCH_DAEMON_LOOK_MS) {
		if (waited_ms >= BENCH_DAEMON_PATIENCE_MS)
			r = -ETIMEDOUT;
		bench_daemon_sleep(BENCH_DAEMON_LOOK_MS);
	}
	return r == 0 && bench_daemon_settle(daemon) ? -ETIMEDOUT : r;
}

int bench_daemon_start(const struct bench_daemon_wish *wish, struct bench_daemon *ret_daemon)
{
	struct bench_daemon daemon = {.is_real = wish->is_real};
	char directory[64];
	pid_t parent = getpid();

	snprintf(daemon.name, sizeof(daemon.name), "%s", wish->name);
	bench_daemon_get_directory(&daemon, directory);
	snprintf(daemon.socket, sizeof(daemon.socket), "%s/socket", directory);
	int r = bench_daemon_mount(wish, directory);
	if (r == 0)
		r = bench_daemon_write_config(wish, directory);
	if (r < 0)
		return r;
	daemon.pid = fork();
	if (daemon.pid < 0)
		return bench_daemon_fail("no process", -errno);
	if (daemon.pid == 0)
		bench_daemon_become(wish, directory, parent);
	r = bench_daemon_await(&daemon);
	if (r < 0) {
		bench_daemon_show_log(directory);
		bench_daemon_stop(&daemon);
		return r;
	}
	*ret_daemon = daemon;
	return 0;
}

/* ---- stop ---- */

/* Its pages are free once nothing of it is left, workers that still end included. */
static void bench_daemon_unmount(const struct bench_daemon *daemon)
{
	char directory[64], path[96];
	unsigned waited_ms = 0;

	bench_daemon_get_directory(daemon, directory);
	bench_daemon_get_mount(directory, path);
	while (umount2(path, 0) < 0 && errno == EBUSY && waited_ms < BENCH_DAEMON_STOP_MS) {
		waited_ms += BENCH_DAEMON_LOOK_MS;
		bench_daemon_sleep(BENCH_DAEMON_LOOK_MS);
	}
	if (waited_ms >= BENCH_DAEMON_STOP_MS)
		umount2(path, MNT_DETACH);
}

static void bench_daemon_end(struct bench_daemon *daemon)
{
	kill(daemon->pid, SIGTERM);
	unsigned waited_ms = 0;
	while (waitpid(daemon->pid, NULL, WNOHANG) == 0) {
		if (waited_ms == BENCH_DAEMON_STOP_MS)
			kill(daemon->pid, SIGKILL);
		waited_ms += BENCH_DAEMON_LOOK_MS;
		bench_daemon_sleep(BENCH_DAEMON_LOOK_MS);
	}
	daemon->pid = 0;
}

void bench_daemon_stop(struct bench_daemon *daemon)
{
	hpz_close(steal_pointer(&daemon->hpz));
	if (daemon->pid)
		bench_daemon_end(daemon);
	if (daemon->is_real)
		bench_daemon_unmount(daemon);
	daemon->is_real = false;
}
