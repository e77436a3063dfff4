/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * shim.c - makes system calls of hpzd and its workers fail, wait or be the last: an LD_PRELOAD library.
 *
 * HPZ_FAULT_RULES names the trigger file. It is looked at before every call (one stat) and read again when it
 * is another file; no file, no rules. Replace it by rename. One rule a line, '#' begins a comment:
 *
 *     ID OPERATION POINT PROCESS WHEN ACTION
 *
 * ID         one word: calls that fit the rule are counted under it. Who uses one again sets its counts to 0
 * OPERATION  open fallocate rename link unlink mkdir chown chmod mmap sendmsg fork exec write truncate
 * setlease fsync, or `*` POINT      the point as below, or a part of a path, or `*` PROCESS    hpzd, memory,
 * helper, or `*` WHEN       N: that call only; N-: from that call on; N-M ACTION     an errno by name
 * (ENOSPC)  the call fails so without being made kill-before, kill-after    SIGKILL for the calling process
 *            delay:MS                   the call is made later
 *            linger:MS                  a child that hpzd knows nothing of makes the call, after that time;
 * the caller waits for it. When hpzd and worker die, the child goes on and holds all they had open, as a
 * worker does that the kernel does not let die. What it maps it zeroes.
 *
 * A point is what the daemon's rooms call it: for a file of a pool its state (filling, clean, leased, dirty),
 * for a rename FROM>TO; `out` what is under hpz-out/; `journal`, `journal.new`, `workers`; for a message
 * `reply` (to a client), `job` or `done`; `punch` for a hole; `-` for everything else.
 *
 * HPZ_FAULT_COUNTS names a file of 512 records of 64 bytes (name[48], calls, hits), made by whoever wants to
 * know: under `PROCESS OPERATION POINT` every call is counted, under a rule's ID those that fit and those it
 * acted on. The counters are shared by all processes; without the file each counts for itself.
 *
 * Calls are made with syscall(): nothing here depends on what else is loaded.
 */
#undef _FILE_OFFSET_BITS
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

#define RULES_MAX  16
#define COUNTS_MAX 512
#define NAME_MAX_  48
#define PATH_MAX_  512

struct count {
	char name[NAME_MAX_];
	_Atomic uint64_t calls, hits;
};
_Static_assert(sizeof(struct count) == 64, "read by tests/lib/hpztest/fault.py");

enum action { FAIL, KILL_BEFORE, KILL_AFTER, DELAY, LINGER };

struct rule {
	char id[NAME_MAX_], operation[16], point[128], process[16];
	uint64_t first, last;
	enum action action;
	int error;
	uint64_t ms;
};

static struct rule rules[RULES_MAX];
static size_t rule_count;
static char rules_path[PATH_MAX_];
static uint64_t stamp[4]; /* of the file that was read: device, inode, time */
static struct count *counts;
static char process[16];
static bool is_ready;

/* ---- without calling what we replace ---- */

static long call(long number, long a, long b, long c, long d, long e, long f)
{
	return syscall(number, a, b, c, d, e, f);
}

static void say_and_abort(const char *what, const char *detail)
{
	char text[256];
	int length = snprintf(text, sizeof text, "shim: %s: %s\n", what, detail);

	call(SYS_write, 2, (long)text, length, 0, 0, 0);
	abort();
}

static void sleep_ms(uint64_t ms)
{
	struct timespec left = {(time_t)(ms / 1000), (long)(ms % 1000 * 1000000)};

	while (nanosleep(&left, &left) < 0 && errno == EINTR)
		;
}

static ssize_t read_file(const char *path, char *buffer, size_t capacity)
{
	int fd = (int)call(SYS_openat, AT_FDCWD, (long)path, O_RDONLY | O_CLOEXEC, 0, 0, 0);
	ssize_t length = fd < 0 ? -1 : (ssize_t)call(SYS_read, fd, (long)buffer, (long)capacity - 1, 0, 0, 0);

	if (fd >= 0)
		call(SYS_close, fd, 0, 0, 0, 0, 0);
	buffer[length > 0 ? length : 0] = '\0';
	return length;
}

/* ---- counters ---- */

static struct count *find_count(const char *name)
{
	uint64_t hash = 1469598103934665603u;

	for (const char *at = name; *at; at++)
		hash = (hash ^ (unsigned char)*at) * 1099511628211u;
	for (size_t i = 0; i < COUNTS_MAX; i++) {
		struct count *count = &counts[(hash + i) % COUNTS_MAX];
		/* The first eight bytes claim a place, in one go. Two of the same name that come at the same
		 * moment may claim two: both add up. */
		char claim[sizeof(uint64_t)] = "";
		uint64_t wanted, empty = 0;
		memcpy(claim, name, strnlen(name, sizeof claim));
		memcpy(&wanted, claim, sizeof wanted);
		if (atomic_compare_exchange_strong((_Atomic uint64_t *)(void *)count->name, &empty, wanted)) {
			strncpy(count->name, name, NAME_MAX_ - 1);
			return count;
		}
		if (strncmp(count->name, name, NAME_MAX_ - 1) == 0)
			return count;
	}
	say_and_abort("no room for one more counter", name);
	return NULL;
}

static void open_counts(void)
{
	static struct count own[COUNTS_MAX];
	const char *path = getenv("HPZ_FAULT_COUNTS");
	int fd = path ? (int)call(SYS_openat, AT_FDCWD, (long)path, O_RDWR | O_CLOEXEC, 0, 0, 0) : -1;
	long at = fd < 0 ? -1 : call(SYS_mmap, 0, sizeof own, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (fd >= 0)
		call(SYS_close, fd, 0, 0, 0, 0, 0);
	counts = at == -1 ? own : (struct count *)at;
}

/* ---- rules ---- */

static const struct {
	const char *name;
	int number;
} errors[] = {
	{"EACCES", EACCES},
	{"EAGAIN", EAGAIN},
	{"EBUSY", EBUSY},
	{"EINTR", EINTR},
	{"EINVAL", EINVAL},
	{"EIO", EIO},
	{"EMFILE", EMFILE},
	{"EMLINK", EMLINK},
	{"ENFILE", ENFILE},
	{"ENOMEM", ENOMEM},
	{"ENOBUFS", ENOBUFS},
	{"ENOENT", ENOENT},
	{"ENOSPC", ENOSPC},
	{"EPERM", EPERM},
	{"EPIPE", EPIPE},
	{"EROFS", EROFS},
	{"ETOOMANYREFS", ETOOMANYREFS},
	{"EXDEV", EXDEV},
};

static void parse_action(struct rule *rule, const char *word)
{
	if (strcmp(word, "kill-before") == 0) {
		rule->action = KILL_BEFORE;
	} else if (strcmp(word, "kill-after") == 0) {
		rule->action = KILL_AFTER;
	} else if (sscanf(word, "delay:%lu", &rule->ms) == 1) {
		rule->action = DELAY;
	} else if (sscanf(word, "linger:%lu", &rule->ms) == 1) {
		rule->action = LINGER;
	} else {
		rule->action = FAIL;
		for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
			if (strcmp(word, errors[i].name) == 0)
				rule->error = errors[i].number;
		if (!rule->error)
			say_and_abort("no such action", word);
	}
}

static void parse_when(struct rule *rule, const char *word)
{
	char dash = '\0';
	int found = sscanf(word, "%lu%c%lu", &rule->first, &dash, &rule->last);

	if (found == 1)
		rule->last = rule->first;
	else if (found == 2 && dash == '-')
		rule->last = UINT64_MAX;
	else if (found != 3 || dash != '-')
		say_and_abort("no such count", word);
}

static void parse_rule(const char *line)
{
	struct rule rule = {0};
	char when[48], action[32];
	int found = sscanf(line, "%47s %15s %127s %15s %47s %31s", rule.id, rule.operation, rule.point,
		rule.process, when, action);

	if (found <= 0 || rule.id[0] == '#')
		return;
	if (found != 6 || rule_count == RULES_MAX)
		say_and_abort("not a rule, or one too many", line);
	parse_when(&rule, when);
	parse_action(&rule, action);
	rules[rule_count++] = rule;
}

/* Whether there is anything to look for; reads the trigger file when it is another one. */
static bool has_rules(void)
{
	static char text[4096];
	struct stat st;

	if (call(SYS_newfstatat, AT_FDCWD, (long)rules_path, (long)&st, 0, 0, 0) < 0) {
		rule_count = 0;
		memset(stamp, 0, sizeof stamp);
		return false;
	}
	uint64_t now[4] = {st.st_dev, st.st_ino, (uint64_t)st.st_mtim.tv_sec, (uint64_t)st.st_mtim.tv_nsec};
	if (memcmp(now, stamp, sizeof now) == 0)
		return rule_count > 0;
	memcpy(stamp, now, sizeof now);
	rule_count = 0;
	if (read_file(rules_path, text, sizeof text) < 0)
		return false;
	char *rest = NULL;
	for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
		parse_rule(line);
	return rule_count > 0;
}

static void find_process(void)
{
	char text[256] = "";
	ssize_t length = read_file("/proc/self/cmdline", text, sizeof text);
	const char *role = "hpzd";

	for (char *at = text; length > 0 && at < text + length; at += strlen(at) + 1)
		if (strcmp(at, "--worker") == 0)
			role = at + strlen(at) + 1;
	snprintf(process, sizeof process, "%s", role);
}

__attribute__((constructor)) static void start(void)
{
	const char *path = getenv("HPZ_FAULT_RULES");

	snprintf(rules_path, sizeof rules_path, "%s", path ? path : "");
	find_process();
	open_counts();
	is_ready = *rules_path != '\0';
}

/* ---- points ---- */

static void get_fd_path(int fd, char path[PATH_MAX_])
{
	char link[32];

	snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	long length = call(SYS_readlinkat, AT_FDCWD, (long)link, (long)path, PATH_MAX_ - 1, 0, 0);
	path[length > 0 ? length : 0] = '\0';
}

static void get_path_at(int dir, const char *name, char path[PATH_MAX_])
{
	path[0] = '\0';
	if (dir != AT_FDCWD && name[0] != '/')
		get_fd_path(dir, path);
	size_t used = strlen(path);
	snprintf(path + used, PATH_MAX_ - used, "%s%s", used ? "/" : "", name);
}

static const char *get_point(const char *path)
{
	static const struct {
		const char *part, *point;
	} points[] = {
		{"/filling/", "filling"},
		{"/clean/", "clean"},
		{"/leased/", "leased"},
		{"/dirty/", "dirty"},
		{"/hpz-out/", "out"},
		{"/journal.new", "journal.new"},
		{"/journal", "journal"},
		{"/workers", "workers"},
	};

	for (size_t i = 0; i < sizeof points / sizeof *points; i++)
		if (strstr(path, points[i].part))
			return points[i].point;
	return "-";
}

/* ---- the decision ---- */

struct verdict {
	int error;
	bool kills_after;
	uint64_t linger_ms;
};

static _Noreturn void die(void)
{
	call(SYS_kill, getpid(), SIGKILL, 0, 0, 0, 0);
	for (;;)
		sleep_ms(1000);
}

static bool fits(const struct rule *rule, const char *operation, const char *point, const char *path)
{
	return (rule->operation[0] == '*' || strcmp(rule->operation, operation) == 0) &&
	       (rule->process[0] == '*' || strcmp(rule->process, process) == 0) &&
	       (rule->point[0] == '*' || strcmp(rule->point, point) == 0 || strstr(path, rule->point));
}

static void obey(const struct rule *rule, struct verdict *verdict)
{
	switch (rule->action) {
	case FAIL:
		verdict->error = rule->error;
		break;
	case KILL_BEFORE:
		die();
	case KILL_AFTER:
		verdict->kills_after = true;
		break;
	case DELAY:
		sleep_ms(rule->ms);
		break;
	case LINGER:
		verdict->linger_ms = rule->ms;
		break;
	}
}

static struct verdict judge(const char *operation, const char *point, const char *path)
{
	struct verdict verdict = {0};
	char name[NAME_MAX_];
	int saved = errno;

	if (!is_ready)
		return verdict;
	snprintf(name, sizeof name, "%s %s %s", process, operation, point);
	atomic_fetch_add(&find_count(name)->calls, 1);
	for (size_t i = 0; has_rules() && i < rule_count; i++) {
		if (!fits(&rules[i], operation, point, path))
			continue;
		struct count *count = find_count(rules[i].id);
		uint64_t number = atomic_fetch_add(&count->calls, 1) + 1;
		if (number < rules[i].first || number > rules[i].last)
			continue;
		atomic_fetch_add(&count->hits, 1);
		obey(&rules[i], &verdict);
		break;
	}
	errno = saved;
	return verdict;
}

/* The call as a worker makes it that is beyond our reach; what it maps it zeroes as a clear does. */
static _Noreturn void linger(uint64_t ms, const long arguments[7])
{
	sleep_ms(ms);
	long result = call(arguments[0], arguments[1], arguments[2], arguments[3], arguments[4], arguments[5],
		arguments[6]);
	if (arguments[0] == SYS_mmap && result != -1)
		memset((void *)result, 0, (size_t)arguments[2]);
	_exit(0);
}

static long carry_out(struct verdict verdict, const long arguments[7])
{
	if (verdict.error) {
		errno = verdict.error;
		return -1;
	}
	if (verdict.linger_ms > 0) {
		pid_t child = (pid_t)call(SYS_fork, 0, 0, 0, 0, 0, 0);
		if (child == 0)
			linger(verdict.linger_ms, arguments);
		while (child > 0 && call(SYS_wait4, child, 0, 0, 0, 0, 0) < 0 && errno == EINTR)
			;
	}
	long result = call(arguments[0], arguments[1], arguments[2], arguments[3], arguments[4], arguments[5],
		arguments[6]);
	if (verdict.kills_after)
		die();
	return result;
}

#define CARRY_OUT(verdict, ...) carry_out(verdict, (const long[7]){__VA_ARGS__})

/* ---- open ---- */

static int open_at(int dir, const char *name, int flags, mode_t mode)
{
	char path[PATH_MAX_];

	get_path_at(dir, name, path);
	return (int)CARRY_OUT(
		judge("open", get_point(path), path), SYS_openat, dir, (long)name, flags, (long)mode);
}

static mode_t get_mode(int flags, va_list arguments)
{
	return flags & (O_CREAT | __O_TMPFILE) ? va_arg(arguments, mode_t) : 0;
}

#define DEFINE_OPEN(function)                                                                                \
	EXPORT int function(const char *name, int flags, ...)                                                \
	{                                                                                                    \
		va_list arguments;                                                                           \
		va_start(arguments, flags);                                                                  \
		mode_t mode = get_mode(flags, arguments);                                                    \
		va_end(arguments);                                                                           \
		return open_at(AT_FDCWD, name, flags, mode);                                                 \
	}
DEFINE_OPEN(open)
DEFINE_OPEN(open64)

#define DEFINE_OPENAT(function)                                                                              \
	EXPORT int function(int dir, const char *name, int flags, ...)                                       \
	{                                                                                                    \
		va_list arguments;                                                                           \
		va_start(arguments, flags);                                                                  \
		mode_t mode = get_mode(flags, arguments);                                                    \
		va_end(arguments);                                                                           \
		return open_at(dir, name, flags, mode);                                                      \
	}
DEFINE_OPENAT(openat)
DEFINE_OPENAT(openat64)

EXPORT int mkdirat(int dir, const char *name, mode_t mode)
{
	char path[PATH_MAX_];

	get_path_at(dir, name, path);
	return (int)CARRY_OUT(
		judge("mkdir", get_point(path), path), SYS_mkdirat, dir, (long)name, (long)mode);
}

/* ---- names ---- */

EXPORT int renameat2(int from_dir, const char *from, int to_dir, const char *to, unsigned flags)
{
	char from_path[PATH_MAX_], to_path[PATH_MAX_], point[64];

	get_path_at(from_dir, from, from_path);
	get_path_at(to_dir, to, to_path);
	snprintf(point, sizeof point, "%s>%s", get_point(from_path), get_point(to_path));
	return (int)CARRY_OUT(judge("rename", point, from_path), SYS_renameat2, from_dir, (long)from, to_dir,
		(long)to, (long)flags);
}

EXPORT int renameat(int from_dir, const char *from, int to_dir, const char *to)
{
	return renameat2(from_dir, from, to_dir, to, 0);
}

EXPORT int rename(const char *from, const char *to)
{
	return renameat2(AT_FDCWD, from, AT_FDCWD, to, 0);
}

EXPORT int linkat(int from_dir, const char *from, int to_dir, const char *to, int flags)
{
	char path[PATH_MAX_];

	get_path_at(to_dir, to, path);
	return (int)CARRY_OUT(judge("link", get_point(path), path), SYS_linkat, from_dir, (long)from, to_dir,
		(long)to, flags);
}

EXPORT int unlinkat(int dir, const char *name, int flags)
{
	char path[PATH_MAX_];

	get_path_at(dir, name, path);
	const char *point = get_point(path);
	if (flags & AT_REMOVEDIR && strcmp(point, "out") == 0)
		point = "out-dir";
	return (int)CARRY_OUT(judge("unlink", point, path), SYS_unlinkat, dir, (long)name, flags);
}

EXPORT int unlink(const char *name)
{
	return unlinkat(AT_FDCWD, name, 0);
}

/* ---- owner and mode ---- */

EXPORT int fchown(int fd, uid_t uid, gid_t gid)
{
	char path[PATH_MAX_];

	get_fd_path(fd, path);
	return (int)CARRY_OUT(judge("chown", get_point(path), path), SYS_fchown, fd, (long)uid, (long)gid);
}

EXPORT int fchownat(int dir, const char *name, uid_t uid, gid_t gid, int flags)
{
	char path[PATH_MAX_];

	get_path_at(dir, name, path);
	return (int)CARRY_OUT(judge("chown", get_point(path), path), SYS_fchownat, dir, (long)name, (long)uid,
		(long)gid, flags);
}

EXPORT int fchmod(int fd, mode_t mode)
{
	char path[PATH_MAX_];

	get_fd_path(fd, path);
	return (int)CARRY_OUT(judge("chmod", get_point(path), path), SYS_fchmod, fd, (long)mode);
}

EXPORT int fchmodat(int dir, const char *name, mode_t mode, int flags)
{
	char path[PATH_MAX_];

	get_path_at(dir, name, path);
	return (int)CARRY_OUT(
		judge("chmod", get_point(path), path), SYS_fchmodat, dir, (long)name, (long)mode);
}

/* ---- contents ---- */

#define DEFINE_FALLOCATE(function)                                                                           \
	EXPORT int function(int fd, int mode, off64_t offset, off64_t length)                                \
	{                                                                                                    \
		char path[PATH_MAX_];                                                                        \
		get_fd_path(fd, path);                                                                       \
		const char *point = mode & FALLOC_FL_PUNCH_HOLE ? "punch" : get_point(path);                 \
		return (int)CARRY_OUT(judge("fallocate", point, path), SYS_fallocate, fd, mode,              \
			(long)offset, (long)length);                                                         \
	}
DEFINE_FALLOCATE(fallocate)
DEFINE_FALLOCATE(fallocate64)

#define DEFINE_FTRUNCATE(function)                                                                           \
	EXPORT int function(int fd, off64_t length)                                                          \
	{                                                                                                    \
		char path[PATH_MAX_];                                                                        \
		get_fd_path(fd, path);                                                                       \
		return (int)CARRY_OUT(                                                                       \
			judge("truncate", get_point(path), path), SYS_ftruncate, fd, (long)length);          \
	}
DEFINE_FTRUNCATE(ftruncate)
DEFINE_FTRUNCATE(ftruncate64)

#define DEFINE_MMAP(function)                                                                                \
	EXPORT void *function(                                                                               \
		void *address, size_t length, int protection, int flags, int fd, off64_t offset)             \
	{                                                                                                    \
		char path[PATH_MAX_] = "";                                                                   \
		struct verdict verdict = {0};                                                                \
		if (fd >= 0 && is_ready) {                                                                   \
			get_fd_path(fd, path);                                                               \
			verdict = judge("mmap", get_point(path), path);                                      \
		}                                                                                            \
		return (void *)CARRY_OUT(verdict, SYS_mmap, (long)address, (long)length, protection, flags,  \
			fd, (long)offset);                                                                   \
	}
DEFINE_MMAP(mmap)
DEFINE_MMAP(mmap64)

static struct verdict judge_write(int fd)
{
	char path[PATH_MAX_];

	get_fd_path(fd, path);
	return judge("write", get_point(path), path);
}

#define DEFINE_PWRITE(function)                                                                              \
	EXPORT ssize_t function(int fd, const void *bytes, size_t length, off64_t offset)                    \
	{                                                                                                    \
		return CARRY_OUT(                                                                            \
			judge_write(fd), SYS_pwrite64, fd, (long)bytes, (long)length, (long)offset);         \
	}
DEFINE_PWRITE(pwrite)
DEFINE_PWRITE(pwrite64)

EXPORT ssize_t write(int fd, const void *bytes, size_t length)
{
	return CARRY_OUT(judge_write(fd), SYS_write, fd, (long)bytes, (long)length);
}

EXPORT ssize_t writev(int fd, const struct iovec *parts, int count)
{
	return CARRY_OUT(judge_write(fd), SYS_writev, fd, (long)parts, count);
}

EXPORT int fsync(int fd)
{
	char path[PATH_MAX_];

	get_fd_path(fd, path);
	return (int)CARRY_OUT(judge("fsync", get_point(path), path), SYS_fsync, fd);
}

#define DEFINE_FCNTL(function)                                                                               \
	EXPORT int function(int fd, int command, ...)                                                        \
	{                                                                                                    \
		char path[PATH_MAX_];                                                                        \
		struct verdict verdict = {0};                                                                \
		va_list arguments;                                                                           \
		va_start(arguments, command);                                                                \
		long argument = va_arg(arguments, long);                                                     \
		va_end(arguments);                                                                           \
		if (command == F_SETLEASE && argument != F_UNLCK) {                                          \
			get_fd_path(fd, path);                                                               \
			verdict = judge("setlease", get_point(path), path);                                  \
		}                                                                                            \
		return (int)CARRY_OUT(verdict, SYS_fcntl, fd, command, argument);                            \
	}
DEFINE_FCNTL(fcntl)
DEFINE_FCNTL(fcntl64)

/* ---- messages ---- */

/* A connection that was accepted has its listener's name; a pair has none. */
static const char *get_message_point(int fd)
{
	struct sockaddr_un name = {0};
	socklen_t length = sizeof name;

	if (call(SYS_getsockname, fd, (long)&name, (long)&length, 0, 0, 0) < 0 || name.sun_family != AF_UNIX)
		return "-";
	if (length > offsetof(struct sockaddr_un, sun_path))
		return "reply";
	return strcmp(process, "hpzd") == 0 ? "job" : "done";
}

EXPORT ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
	return CARRY_OUT(judge("sendmsg", get_message_point(fd), ""), SYS_sendmsg, fd, (long)message, flags);
}

/* ---- processes, as libuv starts them ---- */

EXPORT pid_t fork(void)
{
	struct verdict verdict = judge("fork", "-", "");

	if (verdict.error) {
		errno = verdict.error;
		return -1;
	}
	pid_t (*next)(void);
	*(void **)&next = dlsym(RTLD_NEXT, "fork");
	pid_t pid = next();
	if (pid > 0 && verdict.kills_after)
		die();
	return pid;
}

/* Here only errors make sense: the process is a worker to be. */
EXPORT int execvp(const char *file, char *const arguments[])
{
	struct verdict verdict = judge("exec", "-", file);

	if (verdict.error) {
		errno = verdict.error;
		return -1;
	}
	int (*next)(const char *, char *const[]);
	*(void **)&next = dlsym(RTLD_NEXT, "execvp");
	return next(file, arguments);
}
