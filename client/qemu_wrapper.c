/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * qemu_wrapper.c - hpz-qemu: stands in for QEMU as the emulator of a libvirt domain, and becomes it.
 * Memory backends of huge pages are leased from hpzd, each for itself, and put into the command line as
 * /proc/self/fd/N; whoever only asks QEMU for its abilities gets QEMU at once. The lease is owned by this
 * process, which stays the same one when it becomes QEMU: both end together.
 *
 * A guest that would start without hpz starts with it. So there is always a command line to become,
 * wrapper_argv: the one we were called with, then the one with what has been leased so far. When time is over
 * a signal's handler becomes it, wherever the library is waiting; its socket closes, and with it ends what it
 * had only asked for. (A lease that came in that very moment ends with QEMU, unused.)
 */
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/magic.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <sys/vfs.h>

#include "config.h"
#include "hpz.h"
#include "output.h"
#include "qemu_args.h"
#include "qemu_backends.h"
#include "size.h"

#define WRAPPER_NAME "hpz-qemu"
/* A greeting takes hpzd milliseconds, or it has stopped. */
#define WRAPPER_GREETING_S 2
/* What is not clean is zeroed first: 1 GiB takes 0.1 to 0.3 s, and QEMU would not be faster. */
#define WRAPPER_LEASE_S             60
#define WRAPPER_EXIT_FAILED         1
#define WRAPPER_EXIT_NOT_EXECUTABLE 126
#define WRAPPER_EXIT_NOT_FOUND      127

struct wrapper {
	const struct config *config;
	struct qemu_args args;
	struct qemu_backends backends;
	const char *label;
};

/* What one backend needs; a backend that gets nothing has a reason. */
struct wrapper_need {
	uint64_t page_size; /* or HPZ_PAGE_SIZE_ANY */
	const char *left_alone;
	bool is_missed; /* it may have wanted memory all the same */
};

/* For the handler. */
static char wrapper_emulator[PATH_MAX];
static char **_Atomic wrapper_argv;
static volatile bool wrapper_refuses;
static struct sigaction wrapper_old_action;
static sigset_t wrapper_old_mask;

/* libvirt keeps it in the domain's log. */
static PRINTF(1, 2) void wrapper_say(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	fputs(WRAPPER_NAME ": ", stderr);
	vfprintf(stderr, format, args);
	fputc('\n', stderr);
	va_end(args);
}

/* ---- to become QEMU ---- */

/* Comes back only when that fails. Also called from the handler: nothing but plain system calls. */
static void wrapper_exec(void)
{
	alarm(0);
	sigaction(SIGALRM, &wrapper_old_action, NULL);
	sigprocmask(SIG_SETMASK, &wrapper_old_mask, NULL);
	execv(wrapper_emulator, wrapper_argv);
}

static int wrapper_become(void)
{
	fflush(stderr);
	wrapper_exec();
	int status = errno == ENOENT ? WRAPPER_EXIT_NOT_FOUND : WRAPPER_EXIT_NOT_EXECUTABLE;
	wrapper_say("cannot run %s: %s", wrapper_emulator, strerror(errno));
	return status;
}

static void wrapper_give_up(int number)
{
	static const char slow[] = WRAPPER_NAME ": hpzd does not answer in time: QEMU starts without it\n";
	static const char refused[] = WRAPPER_NAME ": hpzd does not answer in time: refused\n";

	if (wrapper_refuses) {
		if (write(STDERR_FILENO, refused, sizeof(refused) - 1) < 0)
			_exit(WRAPPER_EXIT_NOT_EXECUTABLE);
		_exit(WRAPPER_EXIT_FAILED);
	}
	/* Whether it can be said changes nothing. */
	if (write(STDERR_FILENO, slow, sizeof(slow) - 1) >= 0)
		errno = 0;
	wrapper_exec();
	_exit(WRAPPER_EXIT_NOT_EXECUTABLE);
}

/* SA_NODEFER: QEMU would inherit a mask with the signal in it. */
static void wrapper_catch_alarm(void)
{
	struct sigaction action = {.sa_handler = wrapper_give_up, .sa_flags = SA_NODEFER};
	sigset_t alarm_only;

	sigemptyset(&action.sa_mask);
	sigemptyset(&alarm_only);
	sigaddset(&alarm_only, SIGALRM);
	sigaction(SIGALRM, &action, NULL);
	sigprocmask(SIG_UNBLOCK, &alarm_only, NULL);
}

/* ---- which QEMU ---- */

static bool wrapper_is_self(const struct stat *file)
{
	struct stat self;

	return stat("/proc/self/exe", &self) == 0 && self.st_dev == file->st_dev &&
	       self.st_ino == file->st_ino;
}

/* Whether it can be run, and is not us under another name, which would go on for ever. */
static bool wrapper_may_run(const char *path)
{
	struct stat file;

	return stat(path, &file) == 0 && S_ISREG(file.st_mode) && access(path, X_OK) == 0 &&
	       !wrapper_is_self(&file);
}

/* hpz-qemu-system-aarch64 stands for qemu-system-aarch64, hpz-qemu for that of this machine. */
static void wrapper_get_name(const char *own, char ret_name[NAME_MAX + 1])
{
	const char *slash = strrchr(own, '/');
	struct utsname machine;

	own = slash ? slash + 1 : own;
	if (strncmp(own, WRAPPER_NAME "-", strlen(WRAPPER_NAME) + 1) == 0) {
		snprintf(ret_name, NAME_MAX + 1, "%s", own + strlen("hpz-"));
		return;
	}
	/* Most machines have the same name in both; for the others there is `emulator`. */
	snprintf(ret_name, NAME_MAX + 1, "qemu-system-%s", uname(&machine) == 0 ? machine.machine : "x86_64");
}

static bool wrapper_find_in_path(const char *name)
{
	const char *path = getenv("PATH");
	_cleanup_free_ char *copy = NULL;

	if (asprintf(&copy, "%s:/usr/local/bin:/usr/bin:/usr/libexec", path ? path : "") < 0) {
		copy = NULL;
		return false;
	}
	char *rest = copy;
	for (char *directory; (directory = strsep(&rest, ":"));) {
		if (*directory != '/')
			continue;
		int n = snprintf(wrapper_emulator, sizeof(wrapper_emulator), "%s/%s", directory, name);
		if (n > 0 && (size_t)n < sizeof(wrapper_emulator) && wrapper_may_run(wrapper_emulator))
			return true;
	}
	return false;
}

static int wrapper_find_emulator(const struct wrapper *wrapper, const char *own)
{
	const char *named = getenv("HPZ_QEMU");
	char name[NAME_MAX + 1];

	if (!named || !*named)
		named = wrapper->config->qemu.emulator;
	if (strchr(named, '/')) {
		snprintf(wrapper_emulator, sizeof(wrapper_emulator), "%s", named);
		if (wrapper_may_run(wrapper_emulator))
			return 0;
		wrapper_say("%s is no program to become", wrapper_emulator);
		return WRAPPER_EXIT_NOT_EXECUTABLE;
	}
	if (strcmp(named, "auto") == 0)
		wrapper_get_name(own, name);
	else
		snprintf(name, sizeof(name), "%s", named);
	if (wrapper_find_in_path(name))
		return 0;
	wrapper_say("there is no %s", name);
	return WRAPPER_EXIT_NOT_FOUND;
}

/* ---- what is needed ---- */

static uint64_t wrapper_get_default_page_size(void)
{
	_cleanup_file_ FILE *file = fopen("/proc/meminfo", "re");
	char line[128];
	uint64_t kib = 0;

	while (file && fgets(line, sizeof(line), file)) {
		if (sscanf(line, "Hugepagesize: %" SCNu64 " kB", &kib) == 1)
			break;
	}
	return kib << 10;
}

/* Of a directory in which QEMU would make a file of huge pages; 0: it is none. */
static uint64_t wrapper_get_page_size(const char *path)
{
	struct stat directory;
	struct statfs system;

	if (stat(path, &directory) < 0 || !S_ISDIR(directory.st_mode) || statfs(path, &system) < 0 ||
		system.f_type != HUGETLBFS_MAGIC)
		return 0;
	return (uint64_t)system.f_bsize;
}

static struct wrapper_need wrapper_get_need(const struct wrapper *wrapper, const struct qemu_backend *backend)
{
	struct wrapper_need need = {.page_size = HPZ_PAGE_SIZE_ANY};

	switch (backend->kind) {
	case QEMU_BACKEND_RAM:
	case QEMU_BACKEND_MEMFD:
		if (backend->is_huge)
			need.page_size =
				backend->page_size ? backend->page_size : wrapper_get_default_page_size();
		/* What is not understood of a memfd may be just that. */
		else if (!wrapper->config->qemu.is_for_ram &&
			 (backend->kind == QEMU_BACKEND_RAM || !backend->is_unclear))
			need.left_alone = "it does not ask for huge pages";
		break;
	case QEMU_BACKEND_FILE:
		need.page_size = backend->mem_path ? wrapper_get_page_size(backend->mem_path) : 0;
		if (need.page_size == 0)
			need.left_alone = "its path is no directory of a hugetlbfs";
		break;
	}
	if (!need.left_alone && backend->left_alone) {
		need.left_alone = backend->left_alone;
		need.is_missed = backend->is_unclear;
	}
	return need;
}

/* ---- the memory ---- */

static int wrapper_ask(struct hpz *hpz, const struct wrapper *wrapper, const struct qemu_backend *backend,
	struct hpz_lease_request *request, struct hpz_lease **ret_lease)
{
	uint64_t mask = backend->node_mask, wait_ns = wrapper->config->qemu.wait_ns;

	if (backend->policy == QEMU_BACKEND_PREFERRED)
		request->node_policy = HPZ_NODES_PREFERRED;
	/* One node after the other: a file is of one. Only the last is worth waiting for. */
	do {
		request->node = mask ? __builtin_ctzll(mask) : HPZ_NODE_ANY;
		mask &= mask - 1;
		request->timeout_ms = mask ? 0 : (int64_t)(wait_ns / NS_PER_MS);
		alarm(WRAPPER_LEASE_S + (unsigned)(wait_ns / NS_PER_S));
		int error = hpz_lease(hpz, request, ret_lease);
		alarm(0);
		if (!error || !mask)
			return error;
	} while (1);
}

/* The descriptor for QEMU, which must not be taken for a standard one; -1: none. */
static int wrapper_take_fd(struct hpz_lease *lease)
{
	_cleanup_fd_ int fd = hpz_lease_steal_fd(lease, 0);

	return fd < 0 ? -1 : fcntl(fd, F_DUPFD, STDERR_FILENO + 1);
}

/* From now on this is what we become. */
static bool wrapper_replace_word(const struct qemu_backend *backend, const char *mem_path, bool keeps_nodes)
{
	char **now = wrapper_argv;
	size_t count = 0;

	while (now[count])
		count++;
	char **next = calloc(count + 1, sizeof(*next));
	char *word = qemu_backends_rewrite(now[backend->word], mem_path, keeps_nodes);
	if (!next || !word) {
		free(next);
		free(word);
		return false;
	}
	memcpy(next, now, count * sizeof(*next));
	next[backend->word] = word;
	wrapper_argv = next;
	return true;
}

/* Also when the memory is not used after all: then the lease ends here. */
static bool wrapper_use(struct hpz *hpz, const struct qemu_backend *backend, struct hpz_lease *lease)
{
	struct hpz_segment segment = {.struct_size = sizeof(segment)};
	char path[48], size[SIZE_TEXT], zeroed_size[SIZE_TEXT];

	hpz_lease_get_segment(lease, 0, &segment);
	int fd = wrapper_take_fd(lease);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	/* QEMU would move the pages to the node it prefers. */
	bool keeps_nodes = segment.node < 64 && (backend->node_mask >> segment.node & 1);
	bool done = fd >= 0 && wrapper_replace_word(backend, path, keeps_nodes);
	if (done) {
		uint64_t zeroed = hpz_lease_get_zeroed(lease);
		wrapper_say("%s: %s on lease %" PRIu64 "%s%s", backend->id,
			size_format(hpz_lease_get_size(lease), size), hpz_lease_get_id(lease),
			zeroed ? ", of which had to be zeroed first: " : "",
			zeroed ? size_format(zeroed, zeroed_size) : "");
	} else {
		wrapper_say("%s: no descriptor or no memory of our own", backend->id);
		close_fd(fd);
		hpz_release(hpz, hpz_lease_get_id(lease), 0, 0);
	}
	return done;
}

static bool wrapper_lease(struct hpz *hpz, const struct wrapper *wrapper, const struct qemu_backend *backend,
	uint64_t page_size)
{
	struct hpz_lease_request request = HPZ_LEASE_REQUEST_INIT;
	struct hpz_lease *lease;
	char size[SIZE_TEXT];

	request.size = backend->size;
	request.page_size = page_size;
	request.flags = HPZ_LEASE_REOPENABLE | HPZ_LEASE_UNBOUND;
	request.label = wrapper->label;
	int error = wrapper_ask(hpz, wrapper, backend, &request, &lease);
	if (error) {
		const char *text = hpz_get_error_text(hpz);
		wrapper_say("%s: no %s from hpzd: %s%s%s", backend->id, size_format(backend->size, size),
			hpz_strerror(error), *text ? ": " : "", text);
		return false;
	}
	bool done = wrapper_use(hpz, backend, lease);
	hpz_lease_free(lease);
	return done;
}

static struct hpz *wrapper_connect(const struct wrapper *wrapper)
{
	const char *named = getenv("HPZ_SOCKET");
	const char *path = named && *named ? named : wrapper->config->socket;
	struct hpz *hpz = NULL;

	alarm(WRAPPER_GREETING_S);
	int error = hpz_connect(path, &hpz);
	alarm(0);
	if (error)
		wrapper_say("cannot connect to %s: %s", path,
			error == HPZ_ERR_SYSTEM ? strerror(errno) : hpz_strerror(error));
	return hpz;
}

/* Why there may be memory to lease for what is no backend that we know; NULL: there is none. */
static const char *wrapper_get_unclear(const struct wrapper *wrapper)
{
	const char *mem_path = wrapper->backends.mem_path;

	if (wrapper->backends.unclear)
		return wrapper->backends.unclear;
	return mem_path && wrapper_get_page_size(mem_path) ? "-mem-path is of huge pages, and of no backend"
							   : NULL;
}

/* Whether all that is to be leased has been. */
static bool wrapper_lease_all(const struct wrapper *wrapper)
{
	const char *unclear = wrapper_get_unclear(wrapper);
	struct hpz *hpz = NULL;
	bool is_complete = !unclear, has_asked = false;

	if (unclear)
		wrapper_say("left alone: %s", unclear);

	for (size_t i = 0; i < wrapper->backends.count; i++) {
		const struct qemu_backend *backend = &wrapper->backends.list[i];
		struct wrapper_need need = wrapper_get_need(wrapper, backend);
		if (need.left_alone) {
			wrapper_say("%s: left alone: %s", backend->id, need.left_alone);
			is_complete = is_complete && !need.is_missed;
			continue;
		}
		if (!has_asked)
			hpz = wrapper_connect(wrapper);
		has_asked = true;
		is_complete = hpz && wrapper_lease(hpz, wrapper, backend, need.page_size) && is_complete;
	}
	hpz_close(hpz);
	return is_complete;
}

/* Who the lists name: hpzd notes a process's name when it gives, and by then we have to be QEMU. */
static void wrapper_choose_names(struct wrapper *wrapper)
{
	const char *base = strrchr(wrapper_emulator, '/') + 1;

	prctl(PR_SET_NAME, base);
	if (*wrapper->args.name && output_is_text(wrapper->args.name))
		wrapper->label = wrapper->args.name;
	else if (strlen(base) <= HPZ_LABEL_MAX && output_is_text(base))
		wrapper->label = base;
}

/* ---- start ---- */

/* A descriptor of ours must never be somebody's standard error; QEMU gets those it would have had. */
static void wrapper_open_standard_fds(void)
{
	while (1) {
		int fd = open("/dev/null", O_RDWR | O_CLOEXEC);
		if (fd > STDERR_FILENO || fd < 0) {
			close_fd(fd);
			return;
		}
	}
}

/* A file that hpzd would refuse as a whole counts as none, and is told. */
static const struct config *wrapper_read_config(void)
{
	static struct config config; /* some hundred KiB */
	const char *named = getenv("HPZ_CONFIG");
	char error[512];

	if (config_read(named && *named ? named : CONFIG_DEFAULT_PATH, true, &config, error, sizeof(error)) <
		0) {
		wrapper_say("%s; the defaults count", error);
		config_read("", true, &config, error, sizeof(error));
	}
	return &config;
}

static void wrapper_print_help(void)
{
	puts("usage: hpz-qemu ARGUMENT...\n"
	     "Becomes QEMU with these arguments, its huge pages leased from hpzd: the emulator of a libvirt\n"
	     "domain. Called as hpz-qemu-system-ARCH it becomes qemu-system-ARCH, else that of this "
	     "machine;\n"
	     "$HPZ_QEMU or `emulator` in [qemu] of hpzd.conf names another.\n\n"
	     "  --hpz-help               print this help\n"
	     "  --hpz-version            print the version\n\n"
	     "All other arguments are QEMU's. See hpz-qemu(1).");
}

/* Words that are ours: alone on the command line, so that none can be meant for QEMU. */
static bool wrapper_is_asked(int argc, char **argv)
{
	if (argc != 2 || strncmp(argv[1], "--hpz-", 6) != 0)
		return false;
	if (strcmp(argv[1], "--hpz-help") == 0)
		wrapper_print_help();
	else if (strcmp(argv[1], "--hpz-version") == 0)
		printf("hpz-qemu %s\n", hpz_get_version());
	else
		return false;
	return true;
}

int main(int argc, char **argv)
{
	struct wrapper wrapper = {0};

	if (wrapper_is_asked(argc, argv))
		return fflush(stdout) ? WRAPPER_EXIT_FAILED : 0;
	if (argc < 1)
		return WRAPPER_EXIT_FAILED;
	wrapper_open_standard_fds();
	sigaction(SIGALRM, NULL, &wrapper_old_action);
	sigprocmask(SIG_SETMASK, NULL, &wrapper_old_mask);
	wrapper.config = wrapper_read_config();
	int status = wrapper_find_emulator(&wrapper, argv[0]);
	if (status)
		return status;
	argv[0] = wrapper_emulator;
	wrapper_argv = argv;
	wrapper_refuses = wrapper.config->qemu.on_failure == CONFIG_FAILURE_REFUSE;
	bool is_read = qemu_backends_read(argv, &wrapper.backends);
	if (is_read && wrapper.backends.count == 0 && !wrapper_get_unclear(&wrapper))
		return wrapper_become();
	qemu_args_read(argv, &wrapper.args);
	wrapper_choose_names(&wrapper);
	wrapper_catch_alarm();
	bool is_complete = is_read && wrapper_lease_all(&wrapper);
	if (!is_complete && wrapper_refuses) {
		wrapper_say(
			"%s is refused, as on_failure says", *wrapper.args.name ? wrapper.args.name : "QEMU");
		return WRAPPER_EXIT_FAILED;
	}
	if (!is_complete)
		wrapper_say("QEMU takes memory of its own for what is missing");
	return wrapper_become();
}
