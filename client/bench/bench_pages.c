/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* bench_pages.c - huge pages on loan for a benchmark, and undisturbed times. */
#include "bench_pages.h"

#include <fcntl.h>
#include <inttypes.h>
#include <linux/mempolicy.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "hpzctl.h"
#include "size.h"

#ifndef MFD_HUGE_SHIFT
#define MFD_HUGE_SHIFT 26
#endif

/* ---- signals ---- */

static volatile sig_atomic_t bench_signal;

static void bench_on_signal(int number)
{
	bench_signal = number;
}

void bench_catch_signals(void)
{
	static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
	struct sigaction action = {.sa_handler = bench_on_signal, .sa_flags = SA_RESTART};

	for (size_t i = 0; i < ARRAY_SIZE(numbers); i++)
		sigaction(numbers[i], &action, NULL);
}

int bench_get_signal(void)
{
	return bench_signal;
}

void bench_die_of_signal(void)
{
	signal(bench_signal, SIG_DFL);
	raise(bench_signal);
}

/* ---- pages ---- */

static int bench_pages_fail(const struct bench_pages *pages, const char *what, int error)
{
	char size[SIZE_TEXT];

	hpzctl_say("bench: pages of %s on node %d: %s: %s", size_format_exact(pages->page_size, size),
		(int)pages->node, what, strerror(-error));
	return error;
}

uint64_t bench_get_available(const struct host *host)
{
	char path[4096], line[128];
	uint64_t kib = 0;

	snprintf(path, sizeof(path), "%s/proc/meminfo", host->root);
	_cleanup_file_ FILE *file = fopen(path, "re");
	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line, "MemAvailable: %" SCNu64, &kib) == 1)
			break;
	return kib << 10;
}

/* The kernel would take all there is before it finds that it is not enough. */
static bool bench_is_too_much(const struct bench_pages *pages, uint64_t missing)
{
	uint64_t available = bench_get_available(pages->host);

	if (missing <= available / 4 * 3 / pages->page_size)
		return false;
	hpzctl_say("bench: %" PRIu64 " more pages are needed than are free, and the machine has %" PRIu64
		   " MiB for all its programs",
		missing, available >> 20);
	return true;
}

/* Makes the kernel's pool have as many free pages as we want. */
static int bench_pages_raise(struct bench_pages *pages)
{
	struct host_counters counters;
	uint64_t before, after;
	int r = host_get_counters(pages->host, pages->node, pages->page_size, &counters);

	if (r < 0)
		return bench_pages_fail(pages, "none", r);
	uint64_t free_pages = counters.free > counters.resv ? counters.free - counters.resv : 0;
	if (free_pages >= pages->pages)
		return 0;
	if (bench_is_too_much(pages, pages->pages - free_pages))
		return -ENOSPC;
	r = host_add_nr(pages->host, pages->node, pages->page_size, (int64_t)(pages->pages - free_pages),
		&before, &after);
	if (r < 0)
		return bench_pages_fail(pages, "nr_hugepages cannot be raised", r);
	pages->raised = after > before ? after - before : 0;
	if (free_pages + pages->raised >= pages->pages)
		return 0;
	hpzctl_say("bench: %" PRIu64 " pages are needed, %" PRIu64
		   " are free, and the kernel has memory for %" PRIu64 " more",
		pages->pages, free_pages, pages->raised);
	return -ENOSPC;
}

/* fallocate follows the policy of the task. */
static int bench_pages_bind(const struct bench_pages *pages)
{
	unsigned long mask[HOST_NODES_MAX / (8 * sizeof(unsigned long)) + 1] = {0};
	size_t bits = 8 * sizeof(*mask);

	if (pages->host->node_count <= 1)
		return 0;
	mask[(size_t)pages->node / bits] |= 1ul << ((size_t)pages->node % bits);
	return syscall(SYS_set_mempolicy, MPOL_BIND, mask, (unsigned long)HOST_NODES_MAX + 1) < 0 ? -errno
												  : 0;
}

static int bench_pages_call(const struct bench_pages *pages, int mode, uint64_t offset, uint64_t bytes)
{
	for (uint64_t at = offset; at < offset + bytes;) {
		uint64_t inside = at % pages->segment_bytes,
			 step = MIN(pages->segment_bytes - inside, offset + bytes - at);
		if (fallocate(pages->fds[at / pages->segment_bytes], mode, (off_t)inside, (off_t)step) < 0)
			return -errno;
		at += step;
	}
	return 0;
}

int bench_pages_allocate(const struct bench_pages *pages, uint64_t offset, uint64_t bytes)
{
	return bench_pages_call(pages, 0, offset, bytes);
}

int bench_pages_punch(const struct bench_pages *pages, uint64_t offset, uint64_t bytes)
{
	return bench_pages_call(pages, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, bytes);
}

/* Page by page, so that a signal need not wait for memory that the host below us has to find. */
static int bench_pages_fill(const struct bench_pages *pages)
{
	for (uint64_t at = 0; at < pages->bytes; at += pages->page_size) {
		int r = bench_get_signal() ? -EINTR : bench_pages_allocate(pages, at, pages->page_size);
		if (r < 0)
			return r;
	}
	return 0;
}

static int bench_pages_make_files(struct bench_pages *pages)
{
	unsigned flags =
		MFD_CLOEXEC | MFD_HUGETLB | (unsigned)__builtin_ctzll(pages->page_size) << MFD_HUGE_SHIFT;
	size_t count = pages->bytes / pages->segment_bytes;

	pages->fds = calloc(count, sizeof(*pages->fds));
	if (!pages->fds)
		abort();
	for (size_t i = 0; i < count; i++)
		pages->fds[i] = -1;
	for (size_t i = 0; i < count; i++) {
		pages->fds[i] = memfd_create("hpz-bench", flags);
		if (pages->fds[i] < 0 || ftruncate(pages->fds[i], (off_t)pages->segment_bytes) < 0)
			return -errno;
	}
	return 0;
}

static int bench_pages_map(struct bench_pages *pages)
{
	void *start = mmap(NULL, pages->bytes + pages->segment_bytes, PROT_NONE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (start == MAP_FAILED)
		return -errno;
	pages->reserved = start;
	pages->start = (char *)start + (-(uintptr_t)start & (pages->segment_bytes - 1));
	for (uint64_t at = 0; at < pages->bytes; at += pages->segment_bytes)
		if (mmap(pages->start + at, pages->segment_bytes, PROT_READ | PROT_WRITE,
			    MAP_SHARED | MAP_FIXED | MAP_POPULATE, pages->fds[at / pages->segment_bytes],
			    0) == MAP_FAILED)
			return -errno;
	return 0;
}

static int bench_pages_make(struct bench_pages *pages)
{
	int r = bench_pages_make_files(pages);

	if (r < 0)
		return bench_pages_fail(pages, "no file", r);
	r = bench_pages_bind(pages);
	if (r == 0)
		r = bench_pages_fill(pages);
	if (r < 0)
		return r == -EINTR ? r : bench_pages_fail(pages, "cannot be allocated", r);
	r = bench_pages_map(pages);
	return r < 0 ? bench_pages_fail(pages, "cannot be mapped", r) : 0;
}

int bench_pages_take(const struct host *host, int32_t node, uint64_t page_size, uint64_t count,
	struct bench_pages *ret_pages)
{
	struct bench_pages pages = {.host = host,
		.node = node,
		.page_size = page_size,
		.pages = count,
		.bytes = count * page_size};

	/* All of them as large, and a power of two. */
	pages.segment_bytes = MIN(MAX(BENCH_SEGMENT_BYTES, page_size), pages.bytes & -pages.bytes);
	int r = bench_pages_raise(&pages);
	if (r == 0)
		r = bench_pages_make(&pages);
	if (r < 0) {
		bench_pages_give(&pages);
		return r;
	}
	*ret_pages = pages;
	return 0;
}

void bench_pages_give(struct bench_pages *pages)
{
	uint64_t before, after;

	if (!pages->host)
		return;
	if (pages->reserved)
		munmap(pages->reserved, pages->bytes + pages->segment_bytes);
	for (size_t i = 0; pages->fds && i < pages->bytes / pages->segment_bytes; i++)
		close_fd(pages->fds[i]);
	free(pages->fds);
	if (pages->raised > 0)
		host_add_nr(
			pages->host, pages->node, pages->page_size, -(int64_t)pages->raised, &before, &after);
	*pages = (struct bench_pages){0};
}

/* ---- times ---- */

static long bench_count_switches(void)
{
	struct rusage usage;

	return getrusage(RUSAGE_THREAD, &usage) < 0 ? 0 : usage.ru_nivcsw;
}

void bench_watch_start(struct bench_watch *watch)
{
	watch->switches = bench_count_switches();
	watch->start_ns = clock_get_ns(CLOCK_MONOTONIC);
}

bool bench_watch_stop(const struct bench_watch *watch, uint64_t *ret_ns)
{
	*ret_ns = MAX(clock_get_ns(CLOCK_MONOTONIC) - watch->start_ns, (uint64_t)1);
	return bench_count_switches() == watch->switches;
}

void bench_rate_add(struct bench_rate *rate, const struct bench_watch *watch, uint64_t bytes)
{
	uint64_t ns;

	if (!bench_watch_stop(watch, &ns))
		return;
	rate->bytes += bytes;
	rate->ns += ns;
}
