/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* bench_holder.c - processes that map memory and end: see bench_holder.h. */
#include "bench_holder.h"

#include <inttypes.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "bench_pages.h"
#include "hpzctl.h"

#ifndef MFD_HUGE_SHIFT
#define MFD_HUGE_SHIFT 26
#endif

#define BENCH_HOLDER_ALIGNMENT                                                                               \
	((uint64_t)1 << 30) /* of page tables that can be shared, with 2M pages on x86 */
#define BENCH_HOLDER_END_MS   120000
#define BENCH_HOLDER_LEASE_MS 60000

/* What a holder tells its parent; shared, and of its own. */
struct bench_holder_note {
	uint64_t table_bytes, huge_bytes, hugetlb_bytes;
	uint64_t begun_ns, ended_ns; /* CLOCK_MONOTONIC; ended: of munmap() */
	int result;                  /* as bench_holder_run() returns it */
	char why[BENCH_HOLDER_WHY];
};

struct bench_holder {
	const struct bench_holder_wish *wish;
	pid_t pid; /* 0: none */
	int pidfd, sock;
	struct bench_holder_note *note;
};

/* ---- in the holder ---- */

static void bench_holder_give_up(struct bench_holder_note *note, int result, const char *why)
{
	note->result = result;
	snprintf(note->why, sizeof(note->why), "%s", why);
	_exit(1);
}

static void bench_holder_fail(struct bench_holder_note *note, const char *what)
{
	int error = errno;
	char why[BENCH_HOLDER_WHY];

	snprintf(why, sizeof(why), "%s: %s", what, strerror(error));
	bench_holder_give_up(note, -error, why);
}

/* Where the kernel counts what is only mapped, as with vm.overcommit_memory = 2. */
static void bench_holder_fail_map(struct bench_holder_note *note)
{
	if (errno == ENOMEM)
		bench_holder_give_up(note, BENCH_HOLDER_NOT_HERE,
			"so much cannot be mapped: vm.overcommit_memory, or a limit of address space");
	bench_holder_fail(note, "mmap");
}

/* In a file of /proc, the figure of a line "Name:  N kB", in bytes; 0: there is none. */
static uint64_t bench_holder_read(const char *path, const char *name)
{
	char line[256];
	size_t length = strlen(name);
	_cleanup_file_ FILE *file = fopen(path, "re");

	while (file && fgets(line, sizeof(line), file))
		if (strncmp(line, name, length) == 0 && line[length] == ':')
			return strtoull(line + length + 1, NULL, 10) << 10;
	return 0;
}

/* Addresses of that alignment, and nothing there. */
static char *bench_holder_reserve(uint64_t bytes, uint64_t alignment)
{
	char *start =
		mmap(NULL, bytes + alignment, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (start == MAP_FAILED)
		return NULL;
	uint64_t before = -(uintptr_t)start & (alignment - 1);
	if (before)
		munmap(start, before);
	munmap(start + before + bytes, alignment - before);
	return start + before;
}

/* MAP_NORESERVE: far more is mapped than there is. */
static char *bench_holder_map(const struct bench_holder_wish *wish, int fd, struct bench_holder_note *note)
{
	int flags = MAP_FIXED | MAP_NORESERVE;
	char *start = bench_holder_reserve(wish->mapped, BENCH_HOLDER_ALIGNMENT);

	if (!start)
		bench_holder_fail_map(note);
	flags |= wish->backing == BENCH_BACKING_SHARED ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;
	if (wish->backing == BENCH_BACKING_HUGE)
		flags |= MAP_HUGETLB | __builtin_ctzll(wish->page_size) << MFD_HUGE_SHIFT;
	if (mmap(start, wish->mapped, PROT_READ | PROT_WRITE, flags, fd, 0) == MAP_FAILED)
		bench_holder_fail_map(note);
	/* A kernel without THP refuses both. */
	int advice = wish->backing == BENCH_BACKING_THP ? MADV_HUGEPAGE : MADV_NOHUGEPAGE;
	if (wish->backing <= BENCH_BACKING_THP && madvise(start, wish->mapped, advice) < 0 &&
		wish->backing == BENCH_BACKING_THP)
		bench_holder_give_up(
			note, BENCH_HOLDER_NOT_HERE, "this kernel has no transparent huge pages");
	return start;
}

/* The lease is ours, and ends with us. */
static char *bench_holder_lease(const struct bench_holder_wish *wish, struct bench_holder_note *note)
{
	struct hpz_lease_request request = HPZ_LEASE_REQUEST_INIT;
	struct hpz_lease *lease = NULL;
	struct hpz *hpz = NULL;
	void *start = NULL;
	size_t length = 0;

	request.size = wish->mapped;
	request.page_size = wish->page_size;
	request.label = "bench teardown";
	request.timeout_ms = BENCH_HOLDER_LEASE_MS;
	int error = hpz_connect(wish->socket, &hpz);
	if (!error)
		error = hpz_lease(hpz, &request, &lease);
	if (!error)
		error = hpz_map(hpz, lease, &start, &length);
	if (error)
		bench_holder_give_up(note, -EIO, hpz_strerror(error));
	return start;
}

/* What a process has for itself, in the kernel's smallest pages. */
static void bench_holder_write_own(const struct bench_holder_wish *wish, struct bench_holder_note *note)
{
	size_t step = (size_t)sysconf(_SC_PAGESIZE);

	if (!wish->own)
		return;
	char *start = mmap(NULL, wish->own, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (start == MAP_FAILED)
		bench_holder_fail_map(note);
	madvise(start, wish->own, MADV_NOHUGEPAGE); /* a kernel without THP refuses that */
	for (uint64_t at = 0; at < wish->own; at += step)
		((volatile char *)start)[at] = 1;
}

/* Is it what it is called? Only then it is measured. */
static void bench_holder_check(const struct bench_holder_wish *wish, struct bench_holder_note *note)
{
	uint64_t written = wish->touches * wish->page_size;

	note->table_bytes = bench_holder_read("/proc/self/status", "VmPTE");
	if (wish->backing == BENCH_BACKING_THP &&
		bench_holder_read("/proc/self/smaps_rollup", "AnonHugePages") < written / 10 * 9)
		bench_holder_give_up(note, BENCH_HOLDER_NOT_HERE,
			"the kernel gave no transparent huge pages: it is told not to, or memory is too "
			"fragmented");
	/* The kernel counts pages for whom it has made an entry: who shares tables finds them made. */
	if (wish->backing == BENCH_BACKING_SHARED && wish->sharers > 1 &&
		bench_holder_read("/proc/self/status", "HugetlbPages") >= written)
		bench_holder_give_up(
			note, BENCH_HOLDER_NOT_HERE, "this kernel shares no page tables of huge pages");
}

static void bench_holder_munmap(
	const struct bench_holder_wish *wish, struct bench_holder_note *note, char *start)
{
	note->begun_ns = clock_get_ns(CLOCK_MONOTONIC);
	int r = munmap(start, wish->mapped);
	note->ended_ns = clock_get_ns(CLOCK_MONOTONIC);
	if (r < 0)
		bench_holder_fail(note, "munmap");
}

static void bench_holder_become(
	const struct bench_holder *holder, int sock, int fd, bool is_checked, pid_t parent)
{
	const struct bench_holder_wish *wish = holder->wish;
	struct bench_holder_note *note = holder->note;
	char byte = 0;

	/* It ends with us, however we end. */
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != parent)
		_exit(1);
	char *start = wish->backing == BENCH_BACKING_LEASED ? bench_holder_lease(wish, note)
							    : bench_holder_map(wish, fd, note);
	for (uint64_t i = 0; i < wish->touches; i++)
		((volatile char *)start)[wish->first + i * wish->step] = 1;
	bench_holder_write_own(wish, note);
	if (is_checked)
		bench_holder_check(wish, note);
	if (write(sock, &byte, 1) != 1 || read(sock, &byte, 1) != 1)
		_exit(1);
	if (wish->end == BENCH_END_MUNMAP)
		bench_holder_munmap(wish, note, start);
	else
		note->begun_ns = clock_get_ns(CLOCK_MONOTONIC);
	_exit(0);
}

/* ---- its parent ---- */

static int bench_holder_say(char why[BENCH_HOLDER_WHY], const char *what, int error)
{
	snprintf(why, BENCH_HOLDER_WHY, "%s: %s", what, strerror(-error));
	return error;
}

/* Why it did not come so far: it said so, or it is dead. */
static int bench_holder_explain(struct bench_holder *holder, char why[BENCH_HOLDER_WHY])
{
	int status = 0;

	waitpid(holder->pid, &status, 0);
	holder->pid = 0;
	if (holder->note->why[0]) {
		snprintf(why, BENCH_HOLDER_WHY, "%s", holder->note->why);
		return holder->note->result;
	}
	snprintf(why, BENCH_HOLDER_WHY,
		WIFSIGNALED(status) ? "a holder died of signal %d" : "a holder ended with %d",
		WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
	/* Whoever took the pages meanwhile leaves no other trace. */
	return WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS ? -ENOSPC : -ECHILD;
}

/* Starts it and waits until it has written everything. */
static int bench_holder_start(struct bench_holder *holder, const struct bench_holder_wish *wish, int fd,
	bool is_checked, char why[BENCH_HOLDER_WHY])
{
	int pair[2];
	pid_t parent = getpid();
	char byte;

	holder->wish = wish;
	void *note =
		mmap(NULL, sizeof(*holder->note), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (note == MAP_FAILED)
		return bench_holder_say(why, "mmap", -errno);
	holder->note = note;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		return bench_holder_say(why, "socketpair", -errno);
	holder->pid = fork();
	if (holder->pid == 0) {
		close(pair[0]);
		bench_holder_become(holder, pair[1], fd, is_checked, parent);
	}
	close(pair[1]);
	holder->sock = pair[0];
	if (holder->pid < 0) {
		holder->pid = 0;
		return bench_holder_say(why, "fork", -errno);
	}
	holder->pidfd = (int)syscall(SYS_pidfd_open, holder->pid, 0);
	if (holder->pidfd < 0)
		return bench_holder_say(why, "pidfd_open", -errno);
	return read(holder->sock, &byte, 1) == 1 ? 0 : bench_holder_explain(holder, why);
}

/* However far it came. */
static void bench_holder_stop(struct bench_holder *holder)
{
	if (holder->pid > 0) {
		kill(holder->pid, SIGKILL);
		waitpid(holder->pid, NULL, 0);
	}
	close_fd(holder->pidfd);
	close_fd(holder->sock);
	if (holder->note)
		munmap(holder->note, sizeof(*holder->note));
	*holder = (struct bench_holder){.pidfd = -1, .sock = -1};
}

/* True: it is gone. */
static bool bench_holder_await(const struct bench_holder *holder)
{
	struct pollfd look = {.fd = holder->pidfd, .events = POLLIN};
	int r;

	do
		r = poll(&look, 1, BENCH_HOLDER_END_MS);
	while (r < 0 && errno == EINTR);
	return r == 1;
}

static int bench_holder_end(struct bench_holder *holder, struct bench_trace *trace,
	struct bench_holder_end *ret_end, char why[BENCH_HOLDER_WHY])
{
	char byte = 0;
	bool is_kill = holder->wish->end == BENCH_END_KILL;
	pid_t pid = holder->pid;

	bench_trace_reset(trace);
	if (holder->wish->before_end)
		holder->wish->before_end(holder->wish->user);
	uint64_t begun_ns = clock_get_ns(CLOCK_MONOTONIC);
	if (is_kill ? syscall(SYS_pidfd_send_signal, holder->pidfd, SIGKILL, NULL, 0) < 0
		    : write(holder->sock, &byte, 1) != 1)
		return bench_holder_say(why, "a holder cannot be told to end", -errno);
	bool is_gone = bench_holder_await(holder);
	uint64_t ended_ns = clock_get_ns(CLOCK_MONOTONIC);
	if (!is_gone)
		return bench_holder_say(why, "a holder does not end", -ETIMEDOUT);
	const struct bench_holder_note *note = holder->note;
	if (!is_kill && (!note->begun_ns || note->why[0]))
		return bench_holder_explain(holder, why);
	waitpid(pid, NULL, 0);
	holder->pid = 0;
	bool is_munmap = holder->wish->end == BENCH_END_MUNMAP;
	uint64_t from_ns = is_kill ? begun_ns : note->begun_ns, to_ns = is_munmap ? note->ended_ns : ended_ns;
	*ret_end = (struct bench_holder_end){.table_bytes = note->table_bytes,
		.seconds = (double)(to_ns - from_ns) / NS_PER_S,
		.kernel_s = is_munmap ? NAN : bench_trace_get_seconds(trace, pid)};
	return 0;
}

/* The file that some of them map; its pages come when they write. */
static int bench_holder_make_file(
	const struct bench_holder_wish *wish, int *ret_fd, char why[BENCH_HOLDER_WHY])
{
	unsigned flags =
		MFD_CLOEXEC | MFD_HUGETLB | (unsigned)__builtin_ctzll(wish->page_size) << MFD_HUGE_SHIFT;
	_cleanup_fd_ int fd = memfd_create("hpz-bench", flags);

	if (fd < 0 || ftruncate(fd, (off_t)wish->mapped) < 0)
		return bench_holder_say(why, "no file of huge pages", -errno);
	*ret_fd = steal_fd(&fd);
	return 0;
}

int bench_holder_run(const struct bench_holder_wish *wish, struct bench_trace *trace,
	struct bench_holder_end *ret_end, char why[BENCH_HOLDER_WHY])
{
	struct bench_holder holders[BENCH_SHARERS_MAX];
	struct bench_holder_end end = {0};
	_cleanup_fd_ int fd = -1;
	size_t others = wish->sharers > 1 ? MIN(wish->sharers, BENCH_SHARERS_MAX) - 1u : 0;
	int r = 0;

	for (size_t i = 0; i <= others; i++)
		holders[i] = (struct bench_holder){.pidfd = -1, .sock = -1};
	if (wish->backing == BENCH_BACKING_SHARED)
		r = bench_holder_make_file(wish, &fd, why);
	for (size_t i = 0; r == 0 && i < others; i++)
		r = bench_holder_start(&holders[i], wish, fd, false, why);
	uint64_t begun_ns = clock_get_ns(CLOCK_MONOTONIC);
	if (r == 0)
		r = bench_holder_start(&holders[others], wish, fd, true, why);
	if (r == 0)
		r = bench_holder_end(&holders[others], trace, &end, why);
	end.cycle_s = (double)(clock_get_ns(CLOCK_MONOTONIC) - begun_ns) / NS_PER_S;
	for (size_t i = 0; i <= others; i++)
		bench_holder_stop(&holders[i]);
	if (r == 0)
		*ret_end = end;
	return r;
}
