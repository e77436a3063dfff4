/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* bench_trace.c - the end of an address space as the kernel's tracepoints tell it: see bench_trace.h. */
#include "bench_trace.h"

#include <fcntl.h>
#include <linux/perf_event.h>
#include <math.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/syscall.h>

#define BENCH_TRACE_PAGES 16 /* of a ring: 1,600 records, and it is emptied before each end */

static const char *const bench_trace_points[] = {[BENCH_TRACE_BEGUN] = "events/sched/sched_process_exit/id",
	[BENCH_TRACE_GONE] = "events/mmap/exit_mmap/id"};

/* Of one CPU: both events write into it. */
struct bench_trace_ring {
	int fds[BENCH_TRACE_POINTS];
	uint64_t ids[BENCH_TRACE_POINTS]; /* as they stand in the records */
	struct perf_event_mmap_page *page;
};

/* ---- records ---- */

/* As PERF_SAMPLE_IDENTIFIER, TID and TIME make them. */
struct bench_trace_record {
	struct perf_event_header header;
	uint64_t id;
	uint32_t pid, tid;
	uint64_t ns;
};

static void bench_trace_copy(void *to, const char *data, uint64_t size, uint64_t position, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		((char *)to)[i] = data[(position + i) & (size - 1)];
}

static void bench_trace_add(const struct bench_trace_record *record, const uint64_t ids[BENCH_TRACE_POINTS],
	struct bench_trace_seen *seen)
{
	/* Threads end one after the other, and the address space once. */
	if (record->id == ids[BENCH_TRACE_BEGUN] &&
		(!seen->ns[BENCH_TRACE_BEGUN] || record->ns < seen->ns[BENCH_TRACE_BEGUN]))
		seen->ns[BENCH_TRACE_BEGUN] = record->ns;
	if (record->id == ids[BENCH_TRACE_GONE])
		seen->ns[BENCH_TRACE_GONE] = MAX(seen->ns[BENCH_TRACE_GONE], record->ns);
}

void bench_trace_read(const char *data, uint64_t size, uint64_t tail, uint64_t head, pid_t pid,
	const uint64_t ids[BENCH_TRACE_POINTS], struct bench_trace_seen *seen)
{
	while (head - tail >= sizeof(struct perf_event_header)) {
		struct bench_trace_record record = {0};
		bench_trace_copy(&record.header, data, size, tail, sizeof(record.header));
		if (record.header.size < sizeof(record.header) || record.header.size > head - tail)
			return;
		if (record.header.type == PERF_RECORD_SAMPLE && record.header.size >= sizeof(record)) {
			bench_trace_copy(&record, data, size, tail, sizeof(record));
			if (record.pid == (uint32_t)pid)
				bench_trace_add(&record, ids, seen);
		}
		tail += record.header.size;
	}
}

/* ---- the kernel's numbers ---- */

/* Where it is mounted, or a mount that no path leads to. */
static int bench_trace_open_tracefs(void)
{
	int fd = open("/sys/kernel/tracing/events", O_PATH | O_DIRECTORY | O_CLOEXEC);

	if (fd >= 0) {
		close_fd(fd);
		return open("/sys/kernel/tracing", O_PATH | O_DIRECTORY | O_CLOEXEC);
	}
	_cleanup_fd_ int context = fsopen("tracefs", FSOPEN_CLOEXEC);
	if (context < 0 || fsconfig(context, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
		return -1;
	return fsmount(context, FSMOUNT_CLOEXEC, 0);
}

static int bench_trace_read_number(int directory, const char *path, uint64_t *ret_number)
{
	char text[32];
	_cleanup_fd_ int fd = openat(directory, path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	ssize_t n = read(fd, text, sizeof(text) - 1);
	if (n <= 0)
		return n < 0 ? -errno : -EIO;
	text[n] = '\0';
	*ret_number = strtoull(text, NULL, 10);
	return 0;
}

static int bench_trace_find_points(uint64_t ret_numbers[BENCH_TRACE_POINTS])
{
	_cleanup_fd_ int directory = bench_trace_open_tracefs();
	int r = directory < 0 ? -errno : 0;

	for (size_t i = 0; r == 0 && i < BENCH_TRACE_POINTS; i++)
		r = bench_trace_read_number(directory, bench_trace_points[i], &ret_numbers[i]);
	return r;
}

/* ---- rings ---- */

static int bench_trace_open_event(int cpu, uint64_t number)
{
	struct perf_event_attr attr = {
		.type = PERF_TYPE_TRACEPOINT,
		.size = sizeof(attr),
		.config = number,
		.sample_period = 1,
		.sample_type = PERF_SAMPLE_IDENTIFIER | PERF_SAMPLE_TID | PERF_SAMPLE_TIME,
		.use_clockid = 1,
		.clockid = CLOCK_MONOTONIC,
	};

	return (int)syscall(SYS_perf_event_open, &attr, -1, cpu, -1, PERF_FLAG_FD_CLOEXEC);
}

static size_t bench_trace_get_data_bytes(void)
{
	return BENCH_TRACE_PAGES * (size_t)sysconf(_SC_PAGESIZE);
}

static size_t bench_trace_get_ring_bytes(void)
{
	return bench_trace_get_data_bytes() + (size_t)sysconf(_SC_PAGESIZE);
}

static int bench_trace_open_ring(
	struct bench_trace_ring *ring, int cpu, const uint64_t numbers[BENCH_TRACE_POINTS])
{
	for (size_t i = 0; i < BENCH_TRACE_POINTS; i++) {
		ring->fds[i] = bench_trace_open_event(cpu, numbers[i]);
		if (ring->fds[i] < 0 || ioctl(ring->fds[i], PERF_EVENT_IOC_ID, &ring->ids[i]) < 0)
			return -errno;
	}
	void *page =
		mmap(NULL, bench_trace_get_ring_bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, ring->fds[0], 0);
	if (page == MAP_FAILED)
		return -errno;
	ring->page = page;
	for (size_t i = 1; i < BENCH_TRACE_POINTS; i++)
		if (ioctl(ring->fds[i], PERF_EVENT_IOC_SET_OUTPUT, ring->fds[0]) < 0)
			return -errno;
	return 0;
}

static void bench_trace_close_ring(struct bench_trace_ring *ring)
{
	if (ring->page)
		munmap(ring->page, bench_trace_get_ring_bytes());
	for (size_t i = 0; i < BENCH_TRACE_POINTS; i++)
		close_fd(ring->fds[i]);
}

static int bench_trace_open_rings(struct bench_trace *trace, const uint64_t numbers[BENCH_TRACE_POINTS])
{
	long cpus = sysconf(_SC_NPROCESSORS_CONF);

	trace->rings = calloc((size_t)cpus, sizeof(*trace->rings));
	if (!trace->rings)
		return -ENOMEM;
	for (int cpu = 0; cpu < cpus; cpu++) {
		struct bench_trace_ring *ring = &trace->rings[trace->count];
		*ring = (struct bench_trace_ring){.fds = {-1, -1}};
		int r = bench_trace_open_ring(ring, cpu, numbers);
		if (r == 0) {
			trace->count++;
			continue;
		}
		bench_trace_close_ring(ring);
		if (r != -ENODEV) /* it is switched off */
			return r;
	}
	return trace->count > 0 ? 0 : -ENODEV;
}

int bench_trace_open(struct bench_trace *trace, const char **ret_why)
{
	uint64_t numbers[BENCH_TRACE_POINTS];

	*trace = (struct bench_trace){0};
	int r = bench_trace_find_points(numbers);
	if (r < 0) {
		*ret_why = "there is no tracefs, or it lacks the tracepoints of the end of an address space";
		return r;
	}
	r = bench_trace_open_rings(trace, numbers);
	if (r < 0) {
		bench_trace_close(trace);
		*ret_why = "perf_event_open";
	}
	return r;
}

void bench_trace_close(struct bench_trace *trace)
{
	for (size_t i = 0; i < trace->count; i++)
		bench_trace_close_ring(&trace->rings[i]);
	free(trace->rings);
	*trace = (struct bench_trace){0};
}

static uint64_t bench_trace_get_head(const struct bench_trace_ring *ring)
{
	return __atomic_load_n(&ring->page->data_head, __ATOMIC_ACQUIRE);
}

void bench_trace_reset(struct bench_trace *trace)
{
	for (size_t i = 0; i < trace->count; i++)
		__atomic_store_n(&trace->rings[i].page->data_tail, bench_trace_get_head(&trace->rings[i]),
			__ATOMIC_RELEASE);
}

double bench_trace_get_seconds(struct bench_trace *trace, pid_t pid)
{
	struct bench_trace_seen seen = {{0}};

	for (size_t i = 0; i < trace->count; i++) {
		const struct bench_trace_ring *ring = &trace->rings[i];
		const char *data = (const char *)ring->page + (size_t)sysconf(_SC_PAGESIZE);
		bench_trace_read(data, bench_trace_get_data_bytes(), ring->page->data_tail,
			bench_trace_get_head(ring), pid, ring->ids, &seen);
	}
	if (!seen.ns[BENCH_TRACE_BEGUN] || seen.ns[BENCH_TRACE_GONE] <= seen.ns[BENCH_TRACE_BEGUN])
		return NAN;
	return (double)(seen.ns[BENCH_TRACE_GONE] - seen.ns[BENCH_TRACE_BEGUN]) / NS_PER_S;
}
