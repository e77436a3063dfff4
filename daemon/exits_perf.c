/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * exits_perf.c - ends of processes out of the kernel's trace events.
 *
 * A flight recorder: on each CPU the kernel writes the latest ends of threads and of address spaces into a
 * small ring, backwards and over the oldest, and wakes nobody. It is read only when a pidfd has told of the
 * end of a process that is watched. So whoever is not watched costs what it takes to write 32 bytes when it
 * ends; and an end that is overwritten before it is looked for is not known.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <linux/perf_event.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>

#include "exits.h"
#include "exits_perf.h"

#define DATA_BYTES ((size_t)8192) /* of each CPU: 256 events */
#define CPUS_MAX   1024           /* each costs three descriptors */

static const char *const events[EXITS_EVENT_KINDS] = {
	[EXITS_EVENT_EXIT] = "sched/sched_process_exit",
	[EXITS_EVENT_GONE] = "mmap/exit_mmap",
	[EXITS_EVENT_EXEC] = "sched/sched_process_exec",
};
static const char *const mounts[] = {"/sys/kernel/tracing", "/sys/kernel/debug/tracing"};

struct recorder {
	int fds[EXITS_EVENT_KINDS];
	uint64_t ids[EXITS_EVENT_KINDS];
	uint8_t *ring; /* a page of the kernel's notes, then the data; NULL: this CPU is off */
};

struct exits_perf_source {
	bool is_early;
	size_t page_bytes, count;
	struct recorder *recorders; /* one a CPU */
};

/* ---- what the events say ---- */

void exits_perf_add(struct exits_latest *latest, const struct exits_event *event)
{
	latest->ns[event->kind] = MAX(latest->ns[event->kind], event->ns);
}

bool exits_perf_judge(
	const struct exits_latest *latest, bool is_early, uint64_t *ret_begun_ns, uint64_t *ret_gone_ns)
{
	uint64_t exit = latest->ns[EXITS_EVENT_EXIT], gone = latest->ns[EXITS_EVENT_GONE];
	/* That of an execve() comes just before it is done. */
	if (gone == 0 || gone <= latest->ns[EXITS_EVENT_EXEC])
		return false;
	/* No thread had left the address space by then: it was another one's, and this one lives on. */
	if (is_early && exit > gone)
		return false;
	*ret_begun_ns = is_early && exit > 0 ? exit : EXITS_NONE;
	*ret_gone_ns = gone;
	return true;
}

/* ---- the record ---- */

/* sample_type IDENTIFIER, TID, TIME. */
struct sample {
	struct perf_event_header header;
	uint64_t id;
	int32_t pid, tid; /* pid: of the process */
	uint64_t ns;
};

static void read_sample(const struct recorder *recorder, const struct sample *sample, pid_t pid,
	uint64_t since_ns, struct exits_latest *latest)
{
	if (sample->pid != pid || sample->ns < since_ns)
		return;
	for (size_t i = 0; i < EXITS_EVENT_KINDS; i++) {
		struct exits_event event = {(enum exits_event_kind)i, sample->pid, sample->ns};
		if (recorder->ids[i] == sample->id)
			exits_perf_add(latest, &event);
	}
}

static uint64_t get_head(const struct recorder *recorder)
{
	const struct perf_event_mmap_page *notes = (const void *)recorder->ring;
	return __atomic_load_n(&notes->data_head, __ATOMIC_ACQUIRE);
}

/* What comes after it is not read before. The thread sanitizer knows no fences, and gcc says so; it is the
 * kernel that writes, of which it would know nothing either. */
static void fence_reads(void)
{
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wtsan"
#endif
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif
}

/* Newest first: the head moves backwards. What was written over while it was copied is left out. */
static void read_recorder(const struct exits_perf_source *source, const struct recorder *recorder, pid_t pid,
	uint64_t since_ns, struct exits_latest *latest)
{
	uint8_t copy[DATA_BYTES];
	uint64_t head = get_head(recorder);
	const uint8_t *data = recorder->ring + source->page_bytes;
	size_t first = head % DATA_BYTES;
	memcpy(copy, data + first, DATA_BYTES - first);
	memcpy(copy + DATA_BYTES - first, data, first);
	fence_reads();
	uint64_t newer = head - get_head(recorder);
	size_t good = newer < DATA_BYTES ? DATA_BYTES - (size_t)newer : 0;
	for (size_t at = 0; at + sizeof(struct perf_event_header) <= good;) {
		struct sample sample = {0};
		memcpy(&sample.header, copy + at, sizeof sample.header);
		size_t bytes = sample.header.size;
		if (bytes < sizeof sample.header || at + bytes > good)
			break; /* nothing was written there yet, or over half of it */
		if (sample.header.type == PERF_RECORD_SAMPLE && bytes >= sizeof sample) {
			memcpy(&sample, copy + at, sizeof sample);
			read_sample(recorder, &sample, pid, since_ns, latest);
		}
		at += bytes;
	}
}

bool exits_perf_find(const struct exits_perf_source *source, pid_t pid, uint64_t since_ns,
	uint64_t *ret_begun_ns, uint64_t *ret_gone_ns)
{
	struct exits_latest latest = {0};
	for (size_t i = 0; i < source->count; i++) {
		if (source->recorders[i].ring)
			read_recorder(source, &source->recorders[i], pid, since_ns, &latest);
	}
	return exits_perf_judge(&latest, source->is_early, ret_begun_ns, ret_gone_ns);
}

bool exits_perf_sees_begin(const struct exits_perf_source *source)
{
	return source->is_early;
}

/* ---- opening ---- */

static FILE *open_event(const char *root, const char *event, const char *file)
{
	for (size_t i = 0; i < ARRAY_SIZE(mounts); i++) {
		char path[256];
		snprintf(path, sizeof path, "%s%s/events/%s/%s", root, mounts[i], event, file);
		FILE *found = fopen(path, "re");
		if (found)
			return found;
	}
	return NULL;
}

static int get_event_number(const char *root, const char *event, uint64_t *ret_number)
{
	_cleanup_file_ FILE *file = open_event(root, event, "id");
	if (!file)
		return errno ? -errno : -ENOENT;
	return fscanf(file, "%" SCNu64, ret_number) == 1 ? 0 : -EINVAL;
}

/* It got that field by the change that moved it before the thread leaves its address space (6.16). */
static bool is_told_early(const char *root)
{
	_cleanup_file_ FILE *file = open_event(root, events[EXITS_EVENT_EXIT], "format");
	char line[256];
	while (file && fgets(line, sizeof line, file)) {
		if (strstr(line, "group_dead"))
			return true;
	}
	return false;
}

static int open_counter(uint64_t number, int cpu)
{
	struct perf_event_attr attr = {
		.type = PERF_TYPE_TRACEPOINT,
		.size = sizeof attr,
		.config = number,
		.sample_period = 1,
		.sample_type = PERF_SAMPLE_IDENTIFIER | PERF_SAMPLE_TID | PERF_SAMPLE_TIME,
		.use_clockid = 1,
		.clockid = CLOCK_MONOTONIC,
		.write_backward = 1,
		.watermark = 1,
		.wakeup_watermark = UINT32_MAX, /* never */
	};
	int fd = (int)syscall(SYS_perf_event_open, &attr, -1, cpu, -1, PERF_FLAG_FD_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

/* All events of a CPU go into the ring of the first. */
static int open_recorder(const struct exits_perf_source *source, struct recorder *recorder,
	const uint64_t numbers[EXITS_EVENT_KINDS], int cpu)
{
	for (size_t i = 0; i < EXITS_EVENT_KINDS; i++) {
		int fd = recorder->fds[i] = open_counter(numbers[i], cpu);
		if (fd < 0)
			return fd;
		if (ioctl(fd, PERF_EVENT_IOC_ID, &recorder->ids[i]) < 0)
			return -errno;
		if (i > 0 && ioctl(fd, PERF_EVENT_IOC_SET_OUTPUT, recorder->fds[0]) < 0)
			return -errno;
		if (i > 0)
			continue;
		void *ring = mmap(NULL, source->page_bytes + DATA_BYTES, PROT_READ, MAP_SHARED, fd, 0);
		if (ring == MAP_FAILED)
			return -errno;
		recorder->ring = ring;
	}
	return 0;
}

static int open_recorders(struct exits_perf_source *source, const uint64_t numbers[EXITS_EVENT_KINDS])
{
	long cpus = MIN(sysconf(_SC_NPROCESSORS_CONF), CPUS_MAX);
	source->recorders = calloc((size_t)cpus, sizeof *source->recorders);
	if (!source->recorders)
		return -ENOMEM;
	for (int cpu = 0; cpu < cpus; cpu++) {
		struct recorder *recorder = &source->recorders[source->count++];
		for (size_t i = 0; i < EXITS_EVENT_KINDS; i++)
			recorder->fds[i] = -1;
		int r = open_recorder(source, recorder, numbers, cpu);
		if (r < 0 && r != -ENODEV) /* that one is off */
			return r;
	}
	return 0;
}

static const char *get_reason(int error)
{
	return error == -EPERM || error == -EACCES
		       ? "no permission for perf events (CAP_PERFMON, or kernel.perf_event_paranoid)"
	       : error == -EMFILE ? "too few descriptors for perf events"
				  : "the kernel has no such perf events";
}

int exits_perf_open(const char *root, struct exits_perf_source **ret_source, const char **ret_why)
{
	uint64_t numbers[EXITS_EVENT_KINDS];
	for (size_t i = 0; i < EXITS_EVENT_KINDS; i++) {
		int r = get_event_number(root, events[i], &numbers[i]);
		if (r < 0) {
			*ret_why = "perf events need tracefs on /sys/kernel/tracing";
			return r;
		}
	}
	struct exits_perf_source *source = calloc(1, sizeof *source);
	if (!source) {
		*ret_why = strerror(ENOMEM);
		return -ENOMEM;
	}
	source->is_early = is_told_early(root);
	source->page_bytes = (size_t)sysconf(_SC_PAGESIZE);
	int r = open_recorders(source, numbers);
	if (r < 0) {
		*ret_why = get_reason(r);
		exits_perf_free(source);
		return r;
	}
	*ret_source = source;
	return 0;
}

void exits_perf_free(struct exits_perf_source *source)
{
	if (!source)
		return;
	for (size_t i = 0; i < source->count; i++) {
		struct recorder *recorder = &source->recorders[i];
		if (recorder->ring)
			munmap(recorder->ring, source->page_bytes + DATA_BYTES);
		for (size_t k = 0; k < EXITS_EVENT_KINDS; k++)
			close_fd(recorder->fds[k]);
	}
	free(source->recorders);
	free(source);
}
