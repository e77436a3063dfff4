/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* worker.c - the process that touches memory. It owns nothing between two jobs. */
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/capability.h>
#include <linux/mempolicy.h>
#include <malloc.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>

#include "frame.h"
#include "host.h"
#include "log.h"
#include "worker.h"

/*
 * Windows of 2M pages stay below 1 GiB, so that page tables are never shared with a VM: unsharing them
 * broadcasts IPIs (kernels of June 2025 to January 2026).
 */
#define WINDOW_BYTES ((uint64_t)512 << 20)
#define GROW_BATCH   ((uint64_t)16 << 20) /* between two looks at the control page: about 2 ms (6.18) */

#define CALIBRATE_BYTES     ((size_t)32 << 20)
#define CALIBRATE_BUDGET_NS (150 * NS_PER_MS)

const char *worker_get_role_name(enum worker_role role)
{
	return role == WORKER_MEMORY ? "memory" : "helper";
}

/* ---- between two batches ---- */

/* Of this process: what it learnt of batches outlives the jobs. Jobs of tests run in threads of one process.
 */
static _Thread_local struct pressure_gate gate;
static _Thread_local struct {
	uint64_t start_ns, bytes;
} rate_window;

/* hpzd tells by this how long we waited for a CPU. */
static void note_rest(void *user, bool is_resting)
{
	struct worker_control *control = user;
	uint64_t now_ns = clock_get_ns(CLOCK_MONOTONIC);
	if (!is_resting)
		atomic_fetch_add_explicit(&control->rested_ns,
			now_ns - atomic_load_explicit(&control->resting_since_ns, memory_order_relaxed),
			memory_order_relaxed);
	atomic_store_explicit(&control->resting_since_ns, is_resting ? now_ns : 0, memory_order_relaxed);
}

static void begin_batches(struct worker_control *control, struct pressure_rules *rules)
{
	gate.rules = rules;
	gate.stop = &control->stop;
	gate.level = &control->level;
	gate.urgent = WORKER_LEVEL_URGENT;
	gate.idle = WORKER_LEVEL_IDLE;
	gate.rest = note_rest;
	gate.user = control;
	rate_window.start_ns = clock_get_ns(CLOCK_MONOTONIC);
	rate_window.bytes = 0;
}

/* All batches from here on are of this kind. What calibration measured is the time of clearing. */
static void begin_kind(const struct worker_job *job, enum worker_op op, uint64_t batch_bytes)
{
	uint64_t key = (uint64_t)op << 56 | (uint64_t)(op == WORKER_CLEAR ? job->method + 1 : 0) << 48 |
		       (uint64_t)(job->sample > 0) << 47 | job->page_size >> 10;
	pressure_begin(&gate, job->id, key, batch_bytes, op == WORKER_CLEAR ? job->base_ns : 0);
}

static void count_rate(struct worker_control *control, uint64_t bytes, uint64_t now_ns)
{
	uint64_t elapsed_ns = now_ns - rate_window.start_ns;
	rate_window.bytes += bytes;
	if (elapsed_ns < WORKER_RATE_NS)
		return;
	uint64_t rate = (uint64_t)((double)rate_window.bytes * NS_PER_S / (double)elapsed_ns);
	atomic_store_explicit(&control->rate_bytes_per_s, rate, memory_order_relaxed);
	atomic_store_explicit(&control->rate_at_ns, now_ns, memory_order_relaxed);
	rate_window.start_ns = now_ns;
	rate_window.bytes = 0;
}

static void count_batch(struct worker_control *control, uint64_t bytes)
{
	uint64_t now_ns = clock_get_ns(CLOCK_MONOTONIC);
	atomic_fetch_add_explicit(&control->bytes, bytes, memory_order_relaxed);
	atomic_fetch_add_explicit(&control->batches, 1, memory_order_relaxed);
	atomic_store_explicit(&control->last_batch_ns, now_ns - gate.start_ns, memory_order_relaxed);
	count_rate(control, bytes, now_ns);
	pressure_count(&gate, bytes, now_ns);
}

/* ---- memory that is not there ---- */

/*
 * A page may break, or its holder may cut the file, between the look at it and the touch. That costs this
 * job, not this process: the touch is given up and the job says where it was.
 */
static struct {
	sigjmp_buf jump;
	volatile sig_atomic_t is_armed, code;
	char *volatile address;
} bus;

static void on_bus_error(int number, siginfo_t *info, void *context)
{
	if (!bus.is_armed) {
		/* Not memory of a job: die of it. */
		signal(SIGBUS, SIG_DFL);
		raise(SIGBUS);
		return;
	}
	bus.is_armed = 0;
	bus.code = info->si_code;
	bus.address = info->si_addr;
	siglongjmp(bus.jump, 1);
}

static bool is_broken_code(int code)
{
	return code == BUS_MCEERR_AR || code == BUS_MCEERR_AO;
}

void worker_catch_faults(void)
{
	struct sigaction action = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO};
	sigaction(SIGBUS, &action, NULL);
}

/* ---- memory: fill ---- */

/* Also when it has that length: pages may lie beyond the end. */
static int set_length(int fd, uint64_t bytes)
{
	return ftruncate(fd, (off_t)bytes) < 0 ? -errno : 0;
}

static uint64_t round_up(uint64_t bytes, uint64_t page_size)
{
	return (bytes + page_size - 1) / page_size * page_size;
}

static uint64_t get_end(const struct worker_job *job)
{
	uint64_t total = job->length * job->page_size;
	return job->part_bytes ? MIN(job->first_byte + job->part_bytes, total) : total;
}

/*
 * Allocates what is not there from `first` on; pages that are there stay as they are. The kernel zeroes what
 * it gives, and cannot be stopped inside a page.
 */
static int allocate(const struct worker_job *job, int fd, uint64_t first, struct worker_control *control,
	struct worker_done *done)
{
	uint64_t end = round_up(get_end(job), job->page_size);
	uint64_t step = MAX(job->page_size, WORKER_FILL_BATCH / job->page_size * job->page_size);
	begin_kind(job, WORKER_FILL, step);
	for (uint64_t offset = first / job->page_size * job->page_size; offset < end; offset += step) {
		uint64_t bytes = MIN(step, end - offset);
		if (!pressure_wait(&gate, bytes))
			return -ECANCELED;
		int r;
		do
			r = fallocate(fd, 0, (off_t)offset, (off_t)bytes);
		while (r < 0 && errno == EINTR);
		if (r < 0)
			return -errno;
		done->bytes += bytes;
		done->resume = offset + bytes;
		count_batch(control, bytes);
	}
	return 0;
}

/* Where every page of a window lies. A page on the wrong node makes the segment useless for its pool. */
static int check_nodes(const struct worker_job *job, char *start, uint64_t bytes, int node)
{
	for (uint64_t offset = 0; offset < bytes; offset += job->page_size) {
		int at = -1;
		if (syscall(SYS_get_mempolicy, &at, NULL, 0ul, start + offset, MPOL_F_NODE | MPOL_F_ADDR) < 0)
			return errno == ENOSYS ? 0 : -errno; /* a kernel without NUMA has one node */
		if (at != node)
			return -EXDEV;
	}
	return 0;
}

typedef int (*window_fn)(
	const struct worker_job *job, char *start, uint64_t offset, uint64_t bytes, void *user);

/* Which page of a window it is that cannot be populated; its offset in the window. */
static uint64_t find_fault(const struct worker_job *job, char *start, uint64_t bytes, int advice)
{
	for (uint64_t at = 0; at < bytes; at += job->page_size) {
		if (madvise(start + at, job->page_size, advice) < 0 && errno != EINVAL)
			return at;
	}
	return 0;
}

/* The callback with SIGBUS caught: -EFAULT or -EHWPOISON, and where. */
static int call_guarded(const struct worker_job *job, char *start, uint64_t offset, uint64_t bytes,
	window_fn callback, void *user, struct worker_done *done)
{
	if (sigsetjmp(bus.jump, 1)) {
		done->fault = offset;
		if (bus.address >= start && bus.address < start + bytes)
			done->fault += (uint64_t)(bus.address - start) / job->page_size * job->page_size;
		return is_broken_code(bus.code) ? -EHWPOISON : -EFAULT;
	}
	bus.is_armed = 1;
	int r = callback(job, start, offset, bytes, user);
	bus.is_armed = 0;
	return r;
}

static int look_at_window(const struct worker_job *job, int fd, uint64_t offset, uint64_t bytes,
	window_fn callback, void *user, struct worker_done *done)
{
	/* What is only read must not come into being by it. */
	bool is_read = job->op == WORKER_VERIFY;
	int advice = is_read ? MADV_POPULATE_READ : MADV_POPULATE_WRITE, r = 0;
	char *start = mmap(
		NULL, bytes, is_read ? PROT_READ : PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)offset);
	if (start == MAP_FAILED)
		return -errno;
	madvise(start, bytes, MADV_DONTDUMP);
	/* Linux before 5.14 has no such advice: there the touch itself finds out. */
	if (madvise(start, bytes, advice) < 0 && errno != EINVAL) {
		r = -errno;
		if (r == -EHWPOISON || r == -EFAULT)
			done->fault = offset + find_fault(job, start, bytes, advice);
	}
	if (r == 0)
		r = call_guarded(job, start, offset, bytes, callback, user, done);
	munmap(start, bytes);
	return r;
}

/* Where the job begins: what an earlier try was done with is left out. */
static uint64_t get_first(const struct worker_job *job)
{
	return job->op == WORKER_FILL ? 0 : MAX(job->first_byte, job->resume);
}

/* Calls back for each window of the job's part of the file, mapped as whole pages and populated. */
static int for_each_window(
	const struct worker_job *job, int fd, window_fn callback, void *user, struct worker_done *done)
{
	uint64_t end = round_up(get_end(job), job->page_size);
	uint64_t window = MAX(job->page_size, WINDOW_BYTES);
	int r = 0;
	for (uint64_t at = get_first(job) / job->page_size * job->page_size; r == 0 && at < end; at += window)
		r = look_at_window(job, fd, at, MIN(window, end - at), callback, user, done);
	return r;
}

static int bound_node = -1; /* -1: one node only, nothing to check */

static int check_window(
	const struct worker_job *job, char *start, uint64_t offset, uint64_t bytes, void *user)
{
	return !pressure_wait(&gate, 0) ? -ECANCELED : check_nodes(job, start, bytes, bound_node);
}

static int run_fill(
	const struct worker_job *job, int fd, struct worker_control *control, struct worker_done *done)
{
	int r = set_length(fd, job->length * job->page_size);
	if (r == 0)
		r = allocate(job, fd, job->resume, control, done);
	if (r == 0 && bound_node >= 0)
		r = for_each_window(job, fd, check_window, control, done);
	return r;
}

/* ---- memory: grow ---- */

static int grow_batch(const struct worker_job *job, int fd, uint64_t offset, uint64_t bytes)
{
	char *start = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)offset);
	if (start == MAP_FAILED) /* it reserves: what is not there is an error here already */
		return errno == ENOMEM ? -ENOSPC : -errno;
	madvise(start, bytes, MADV_DONTDUMP);
	int r = madvise(start, bytes, MADV_POPULATE_WRITE) < 0 ? -errno : 0;
	if (r == -EINVAL) /* Linux before 5.14 has no such advice */
		r = fallocate(fd, 0, (off_t)offset, (off_t)bytes) < 0 ? -errno : 0;
	if (r == -EFAULT || r == -ENOMEM) /* where a store would be a SIGBUS: the node has no page left */
		r = -ENOSPC;
	if (r == 0 && bound_node >= 0)
		r = check_nodes(job, start, bytes, bound_node);
	munmap(start, bytes);
	return r;
}

static int run_grow(
	const struct worker_job *job, int fd, struct worker_control *control, struct worker_done *done)
{
	uint64_t at = job->first * job->page_size, end = at + job->pages * job->page_size;
	uint64_t batch = MAX(job->page_size, GROW_BATCH);
	begin_kind(job, WORKER_GROW, batch);
	while (at < end) {
		uint64_t bytes = MIN(batch, end - at);
		if (!pressure_wait(&gate, bytes))
			return -ECANCELED;
		int r = grow_batch(job, fd, at, bytes);
		if (r < 0)
			return r;
		at += bytes;
		done->bytes += bytes;
		count_batch(control, bytes);
	}
	return 0;
}

/* ---- memory: clear ---- */

struct clearing {
	struct worker_control *control;
	struct worker_done *done;
	const struct zero_method *method;
};

static int clear_window(
	const struct worker_job *job, char *start, uint64_t offset, uint64_t bytes, void *user)
{
	struct clearing *clearing = user;
	if (bound_node >= 0) {
		int r = check_nodes(job, start, bytes, bound_node);
		if (r < 0)
			return r;
	}
	uint64_t first = get_first(job), end = MIN(get_end(job) - offset, bytes);
	uint64_t at = first > offset ? first - offset : 0;
	while (at < end) {
		uint64_t batch = MIN(WORKER_CLEAR_BATCH, end - at);
		if (!pressure_wait(&gate, batch))
			return -ECANCELED;
		clearing->method->clear(start + at, batch);
		zero_fence();
		at += batch;
		clearing->done->bytes += batch;
		clearing->done->resume = offset + at;
		count_batch(clearing->control, batch);
	}
	return 0;
}

/*
 * The length and the holes. Several workers may be at one file, each at its part: the first part's cuts what
 * lies beyond the end, the others only see to it that they can map theirs.
 */
static int make_whole(const struct worker_job *job, int fd, struct worker_control *control)
{
	uint64_t total = job->length * job->page_size;
	struct worker_done filled = {0};
	struct stat st;
	if (fstat(fd, &st) < 0)
		return -errno;
	if (job->first_byte == 0 || (uint64_t)st.st_size != total) {
		int r = set_length(fd, total);
		if (r < 0 || fstat(fd, &st) < 0)
			return r < 0 ? r : -errno;
	}
	/* Holes first: what cannot be had is an error here and would be SIGBUS below. */
	if ((uint64_t)st.st_blocks * 512 == total)
		return 0;
	return allocate(job, fd, get_first(job), control, &filled);
}

static int run_clear(
	const struct worker_job *job, int fd, struct worker_control *control, struct worker_done *done)
{
	if (job->method < 0 || (size_t)job->method >= zero_method_count)
		return -EINVAL;
	int r = make_whole(job, fd, control);
	if (r < 0)
		return r;
	struct clearing clearing = {control, done, &zero_methods[job->method]};
	begin_kind(job, WORKER_CLEAR, WORKER_CLEAR_BATCH);
	return for_each_window(job, fd, clear_window, &clearing, done);
}

/* ---- memory: verify ---- */

struct verification {
	struct worker_control *control;
	struct worker_done *done;
	uint64_t random; /* state of a xorshift; never 0 */
};

static uint64_t get_random(struct verification *verification)
{
	uint64_t x = verification->random;
	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	return verification->random = x;
}

/* One cache line of each `sample` bytes, elsewhere each time: whoever knows where could hide beside it. */
static bool is_sample_clear(struct verification *verification, const char *start, uint64_t bytes,
	uint64_t sample, size_t *ret_offset)
{
	for (uint64_t at = 0; at < bytes; at += sample) {
		uint64_t lines = MIN(sample, bytes - at) / 64;
		uint64_t line = at + get_random(verification) % lines * 64;
		size_t offset;
		if (zero_is_clear(start + line, 64, &offset))
			continue;
		*ret_offset = line + offset;
		return false;
	}
	return true;
}

static int verify_window(
	const struct worker_job *job, char *start, uint64_t offset, uint64_t bytes, void *user)
{
	struct verification *verification = user;
	uint64_t at = job->resume > offset ? MIN(job->resume - offset, bytes) : 0;
	while (at < bytes) {
		uint64_t batch = MIN(job->sample ? WORKER_SAMPLE_BATCH : WORKER_CLEAR_BATCH, bytes - at);
		if (!pressure_wait(&gate, batch))
			return -ECANCELED;
		size_t dirty = 0;
		bool is_clear =
			job->sample ? is_sample_clear(verification, start + at, batch, job->sample, &dirty)
				    : zero_is_clear(start + at, batch, &dirty);
		if (!is_clear) {
			verification->done->fault = offset + at + dirty;
			return -EUCLEAN;
		}
		at += batch;
		verification->done->bytes += job->sample ? batch / job->sample * 64 : batch;
		verification->done->resume = offset + at;
		count_batch(verification->control, batch);
	}
	return 0;
}

static int run_verify(
	const struct worker_job *job, int fd, struct worker_control *control, struct worker_done *done)
{
	struct segment_stat st;
	int r = segment_stat_fd(job->page_size, fd, &st);
	if (r < 0)
		return r;
	/* A hole reads as zero, and reading it would fill it with a page that somebody else may be owed. */
	if (st.pages != job->length || st.allocated != job->length) {
		done->fault = st.allocated * job->page_size;
		return -EUCLEAN;
	}
	if (job->sample && (job->sample < 64 || job->page_size % job->sample != 0))
		return -EINVAL;
	struct verification verification = {control, done, 0};
	if (getrandom(&verification.random, sizeof verification.random, GRND_NONBLOCK) < 0 ||
		verification.random == 0)
		verification.random = clock_get_ns(CLOCK_MONOTONIC) | 1;
	begin_kind(job, WORKER_VERIFY, job->sample ? WORKER_SAMPLE_BATCH : WORKER_CLEAR_BATCH);
	return for_each_window(job, fd, verify_window, &verification, done);
}

/* ---- memory: calibrate ---- */

static void calibrate_on(char *start, uint64_t bytes, struct worker_done *done)
{
	struct zero_result results[ZERO_METHODS_MAX] = {0};
	done->method = zero_calibrate(start, bytes, CALIBRATE_BUDGET_NS, results);
	for (size_t i = 0; i < zero_method_count && i < ZERO_METHODS_MAX; i++) {
		done->batch_ns[i] = results[i].batch_ns;
		done->gb_per_s[i] = results[i].is_usable ? results[i].gb_per_s : 0;
	}
	done->bytes = bytes;
}

static int calibrate_window(
	const struct worker_job *job, char *start, uint64_t offset, uint64_t bytes, void *user)
{
	if (bound_node >= 0) {
		int r = check_nodes(job, start, bytes, bound_node);
		if (r < 0)
			return r;
	}
	calibrate_on(start, MIN(bytes, WORKER_CALIBRATE_MAX), user);
	return 0;
}

struct sustained {
	const struct zero_method *method;
	uint64_t took_ns[WORKER_SUSTAINED_BYTES / WORKER_CLEAR_BATCH];
	size_t count;
};

static int sustain_window(
	const struct worker_job *job, char *start, uint64_t offset, uint64_t bytes, void *user)
{
	struct sustained *sustained = user;
	for (uint64_t at = 0; at + WORKER_CLEAR_BATCH <= bytes; at += WORKER_CLEAR_BATCH) {
		if (sustained->count == ARRAY_SIZE(sustained->took_ns))
			break;
		uint64_t start_ns = clock_get_ns(CLOCK_MONOTONIC);
		sustained->method->clear(start + at, WORKER_CLEAR_BATCH);
		zero_fence();
		sustained->took_ns[sustained->count++] = clock_get_ns(CLOCK_MONOTONIC) - start_ns;
	}
	return 0;
}

static int compare_times(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
	return (x > y) - (x < y);
}

/*
 * What a batch takes in the long run, which is longer than one in memory that fits the last cache: the
 * scavenger would take that for the truth. The lower quartile, as at its looks: somebody else may have had
 * our CPU during some.
 */
static int measure_base(const struct worker_job *job, int fd, struct worker_done *done)
{
	uint64_t total = job->length * job->page_size, window = MAX(job->page_size, WINDOW_BYTES);
	struct sustained sustained = {.method = &zero_methods[done->method]};
	int r = 0;
	if (total < WORKER_SUSTAINED_BYTES)
		return 0;
	for (uint64_t at = 0; r == 0 && at < WORKER_SUSTAINED_BYTES; at += window)
		r = look_at_window(job, fd, at, MIN(window, total - at), sustain_window, &sustained, done);
	if (r < 0 || sustained.count == 0)
		return r;
	qsort(sustained.took_ns, sustained.count, sizeof sustained.took_ns[0], compare_times);
	done->base_ns = sustained.took_ns[sustained.count / 4];
	return 0;
}

/* Leaves dirt behind: the segment lies in dirty/ and is cleared afterwards. */
static int calibrate_segment(const struct worker_job *job, int fd, struct worker_done *done)
{
	uint64_t bytes = MIN(job->length * job->page_size, MAX(WORKER_CALIBRATE_MAX, job->page_size));
	int r;
	struct stat st;
	if (fstat(fd, &st) < 0)
		return -errno;
	/* A page that is missing would come into being by the touch. */
	if ((uint64_t)st.st_blocks * 512 != job->length * job->page_size || bytes < WORKER_CALIBRATE_MIN)
		return -EINVAL;
	r = look_at_window(job, fd, 0, bytes, calibrate_window, done, done);
	return r == 0 && done->method >= 0 ? measure_base(job, fd, done) : r;
}

static int run_calibrate(const struct worker_job *job, int fd, struct worker_done *done)
{
	if (fd >= 0) {
		int r = calibrate_segment(job, fd, done);
		return r == 0 && done->method < 0 ? -ENOTSUP : r;
	}
	void *scratch =
		mmap(NULL, CALIBRATE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (scratch == MAP_FAILED)
		return -errno;
	madvise(scratch, CALIBRATE_BYTES, MADV_HUGEPAGE);
	memset(scratch, 0x5a, CALIBRATE_BYTES);
	calibrate_on(scratch, CALIBRATE_BYTES, done);
	munmap(scratch, CALIBRATE_BYTES);
	return done->method < 0 ? -ENOTSUP : 0;
}

/* ---- memory: free pages that the kernel zeroes itself ---- */

/* It zeroes in our context, so what schedules us schedules that; one page at a time, so that it can be
 * stopped. */
static int run_zero_free(
	const struct worker_job *job, int fd, struct worker_control *control, struct worker_done *done)
{
	begin_kind(job, WORKER_ZERO_FREE, job->page_size);
	for (uint64_t i = 0; i < job->pages; i++) {
		if (!pressure_wait(&gate, job->page_size))
			return -ECANCELED;
		if (pwrite(fd, "1\n", 2, 0) < 0)
			return -errno;
		done->bytes += job->page_size;
		count_batch(control, job->page_size);
	}
	return 0;
}

/* ---- helper: shields and the probe ---- */

/* Names beyond ours are seen by either source; the file lease does not look at them. */
static int look_by_lease(const struct worker_job *job, int fd, struct worker_done *done)
{
	int r = proof_look_by_lease(fd, &done->proof);
	if (r == 0 && done->proof.result == PROOF_FREE && done->links > job->max_links) {
		done->proof.result = PROOF_IN_USE;
		done->proof.reason = PROOF_LINK;
	}
	return r;
}

/* Who holds it, from the source that sees most: counts and pages for the program, the file lease without. */
static int look_at_holders(const struct worker_job *job, const int fds[WORKER_FDS], uint64_t pages,
	bool is_unlinked, struct worker_done *done)
{
	int fd = fds[WORKER_FD_SEGMENT], program = fds[WORKER_FD_PROGRAM];
	if (program < 0)
		return look_by_lease(job, fd, done);
	return is_unlinked ? proof_look_unlinked(program, &job->facts, fd, pages, &done->proof)
			   : proof_look(program, &job->facts, fd, pages, &done->proof);
}

/* Whether anybody but us has the file open or mapped. Our own descriptor counts as ours, in however many
 * processes. */
static int run_probe(const struct worker_job *job, int fd, struct worker_done *done)
{
	struct segment_stat st;
	int r = segment_stat_fd(job->page_size, fd, &st);
	if (r < 0)
		return r;
	done->allocated = st.allocated;
	done->links = st.links;
	return look_by_lease(job, fd, done);
}

static int run_shield(const struct worker_job *job, const int fds[WORKER_FDS], struct worker_done *done)
{
	int fd = fds[WORKER_FD_SEGMENT];
	/* The owner first: with the mode first, its old owner can set it again before it is no longer the
	 * owner. */
	if (fchown(fd, geteuid(), getegid()) < 0 || fchmod(fd, 0) < 0)
		return -errno;
	if (job->links > 0) {
		int r = segment_remove_out(fds[WORKER_FD_DIR], job->token, job->first_link, job->links);
		if (r < 0)
			return r;
	}
	struct segment_stat st;
	int r = segment_stat_fd(job->page_size, fd, &st);
	if (r < 0)
		return r;
	done->allocated = st.allocated;
	done->links = st.links;
	/* The file may be longer or shorter than it was: proof_look() finds its end. */
	return look_at_holders(job, fds, job->length, false, done);
}

/*
 * Memory that is not reused goes to the kernel. A name that somebody holds would keep the pages: so the file
 * is cut first, but not under somebody who may have it open or mapped, and not while a page is pinned: as
 * long as the page is the file's, it shows.
 */
static int run_unlink(const struct worker_job *job, const int fds[WORKER_FDS], struct worker_done *done)
{
	int fd = fds[WORKER_FD_SEGMENT], r = 0;
	struct segment_stat st = {0};
	if (job->links > 0)
		r = segment_remove_out(fds[WORKER_FD_DIR], job->token, job->first_link, job->links);
	if (r == 0 && fd >= 0)
		r = segment_stat_fd(job->page_size, fd, &st);
	done->links = st.links;
	if (r == 0 && fd >= 0)
		r = look_at_holders(job, fds, MAX(job->length, st.pages), false, done);
	if (r < 0)
		return r;
	bool is_pinned = done->proof.result == PROOF_IN_USE && done->proof.reason == PROOF_PIN;
	if (fd >= 0 && !proof_may_be_open(&done->proof) && !is_pinned && ftruncate(fd, 0) < 0)
		return -errno;
	if (unlinkat(fds[WORKER_FD_NAMES], job->name, 0) < 0 && errno != ENOENT)
		return -errno;
	if (fd >= 0 && segment_stat_fd(job->page_size, fd, &st) == 0)
		done->allocated = st.allocated;
	return 0;
}

static int run_orphan(const struct worker_job *job, const int fds[WORKER_FDS], struct worker_done *done)
{
	int fd = fds[WORKER_FD_SEGMENT];
	struct segment_stat st;
	int r = segment_stat_fd(job->page_size, fd, &st);
	if (r < 0)
		return r;
	done->links = st.links;
	r = look_at_holders(job, fds, MAX(job->length, st.pages), true, done);
	if (r < 0)
		return r;
	bool is_pinned = done->proof.result == PROOF_IN_USE && done->proof.reason == PROOF_PIN;
	/* Here and not by the last close, which would be hpzd's: about 1 us a page (6.18). */
	if (!proof_may_be_open(&done->proof) && !is_pinned && ftruncate(fd, 0) < 0)
		return -errno;
	if (segment_stat_fd(job->page_size, fd, &st) == 0)
		done->allocated = st.allocated;
	return 0;
}

static int run_learn(const struct worker_job *job, const int fds[WORKER_FDS], struct worker_done *done)
{
	const char *why = "";
	int program = fds[WORKER_FD_PROGRAM], r = 0;
	if (program < 0) {
		program = proof_load(&why);
		if (program >= 0)
			done->sent[done->sent_count++] = program;
	}
	if (program < 0)
		r = program;
	else if (job->facts.page_size)
		done->facts = job->facts;
	else
		r = proof_learn(program, fds[WORKER_FD_DIR], job->page_size, &done->facts, &why);
	snprintf(done->why, sizeof done->why, "%s", why);
	return r;
}

static int run_trace(struct worker_done *done)
{
	const char *why = "";
	int r = tracer_load(done->sent, &done->sees, &why);
	if (r > 0)
		done->sent_count = (uint32_t)r;
	snprintf(done->why, sizeof done->why, "%s", why);
	malloc_trim(0); /* of the kernel's types 8 MiB would stay with this helper (glibc 2.36) */
	return MIN(r, 0);
}

static int remove_names(DIR *dir)
{
	for (struct dirent *entry; (entry = readdir(dir));) {
		if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
			continue;
		if (unlinkat(dirfd(dir), entry->d_name, 0) < 0 && errno != ENOENT)
			return -errno;
		rewinddir(dir);
	}
	return 0;
}

/* A name; or a directory with names in it, not with directories: hpzd makes none such. */
static int run_remove(const struct worker_job *job, int parent)
{
	if (unlinkat(parent, job->name, 0) == 0 || errno == ENOENT)
		return 0;
	if (errno != EISDIR && errno != EPERM)
		return -errno;
	int fd = openat(parent, job->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	DIR *dir = fdopendir(fd);
	if (!dir) {
		close(fd);
		return -ENOMEM;
	}
	int r = remove_names(dir);
	closedir(dir);
	if (r == 0 && unlinkat(parent, job->name, AT_REMOVEDIR) < 0 && errno != ENOENT)
		r = -errno;
	return r;
}

static int run_trim(const struct worker_job *job, int fd)
{
	int r = fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
		(off_t)(job->first * job->page_size), (off_t)(job->pages * job->page_size));
	return r < 0 ? -errno : 0;
}

/* ---- helper: who holds it ---- */

struct search {
	const struct worker_job *job;
	struct worker_done *done;
	const struct host *host;
	void (*send_partial)(const struct worker_done *done, void *user);
	void *user;
	unsigned looks; /* OPENERS: at descriptors */
};

static void add_holder(struct search *search, pid_t pid, int fd)
{
	struct worker_done *done = search->done;
	if (done->holder_count == WORKER_HOLDERS_MAX)
		return;
	struct worker_holder *holder = &done->holders[done->holder_count++];
	*holder = (struct worker_holder){.pid = pid, .fd = fd};
	char comm[17] = "";
	host_get_comm(search->host, pid, comm);
	memcpy(holder->comm, comm, sizeof holder->comm);
}

/* The inode number of a descriptor, from fdinfo: that asks nobody. 0: not known. */
static uint64_t get_fd_ino(pid_t pid, const char *number)
{
	char path[64], line[128];
	uint64_t ino = 0;
	snprintf(path, sizeof path, "/proc/%d/fdinfo/%.16s", (int)pid, number);
	_cleanup_file_ FILE *file = fopen(path, "re");
	while (file && fgets(line, sizeof line, file)) {
		if (sscanf(line, "ino:%" SCNu64, &ino) == 1)
			break;
	}
	return ino;
}

/* Only where the number fits is the file itself looked at. */
static bool is_fd_on(const struct search *search, pid_t pid, const char *number, uint64_t ino)
{
	char path[64];
	struct statx st;
	snprintf(path, sizeof path, "/proc/%d/fd/%.16s", (int)pid, number);
	/* DONT_SYNC: a file system whose server is the holder itself must not be asked. */
	return statx(AT_FDCWD, path, AT_STATX_DONT_SYNC, STATX_INO, &st) == 0 && st.stx_ino == ino &&
	       makedev(st.stx_dev_major, st.stx_dev_minor) == search->job->dev;
}

static bool is_fd_of(const struct search *search, pid_t pid, const char *number)
{
	return get_fd_ino(pid, number) == search->job->ino && is_fd_on(search, pid, number, search->job->ino);
}

static void search_fds(struct search *search, pid_t pid)
{
	char path[64];
	snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
	DIR *dir = opendir(path);
	if (!dir)
		return;
	for (struct dirent *entry; (entry = readdir(dir));) {
		if (entry->d_name[0] != '.' && is_fd_of(search, pid, entry->d_name))
			add_holder(search, pid, atoi(entry->d_name));
	}
	closedir(dir);
}

/* Blocks on the holder's mmap_lock, for as long as the holder likes: that is why a helper does it, and last.
 */
static void search_maps(struct search *search, pid_t pid)
{
	char path[64], *line = NULL;
	size_t capacity = 0;
	snprintf(path, sizeof path, "/proc/%d/maps", (int)pid);
	FILE *file = fopen(path, "re");
	while (file && getline(&line, &capacity, file) > 0) {
		unsigned major_number, minor_number;
		uint64_t ino;
		if (sscanf(line, "%*x-%*x %*s %*x %x:%x %" SCNu64, &major_number, &minor_number, &ino) == 3 &&
			ino == search->job->ino && makedev(major_number, minor_number) == search->job->dev) {
			add_holder(search, pid, -1);
			break;
		}
	}
	free(line);
	if (file)
		fclose(file);
}

static void for_each_process(struct search *search, void (*look)(struct search *search, pid_t pid))
{
	DIR *dir = opendir("/proc");
	if (!dir)
		return;
	for (struct dirent *entry; (entry = readdir(dir));) {
		pid_t pid = atoi(entry->d_name);
		if (pid > 0 && pid != getpid() && pid != getppid())
			look(search, pid);
	}
	closedir(dir);
}

static int run_holders(const struct worker_job *job, struct worker_done *done,
	void (*send_partial)(const struct worker_done *done, void *user), void *user)
{
	struct host host = {.root = (char *)""};
	struct search search = {job, done, &host, send_partial, user};
	for_each_process(&search, search_fds);
	if (send_partial && done->holder_count > 0) {
		done->is_partial = 1;
		send_partial(done, user);
		done->is_partial = 0;
	}
	for_each_process(&search, search_maps);
	return 0;
}

/* ---- helper: what the measurement of ends needs to know ---- */

/*
 * A look at a descriptor takes 13 us. What is found waits for 1024 of them, should the job come to its
 * deadline; and who has very many does not keep the others from being found: those who have memory open it
 * early.
 */
#define OPENERS_TELL    1024
#define OPENERS_FDS_MAX 8192 /* of one process */

/* Which of the files a descriptor is of; file_count: none. */
static uint32_t find_file(const struct search *search, pid_t pid, const char *number)
{
	const struct worker_job *job = search->job;
	uint64_t ino = get_fd_ino(pid, number);
	uint32_t i = 0;
	while (i < job->file_count && job->files[i] != ino)
		i++;
	return i < job->file_count && is_fd_on(search, pid, number, ino) ? i : job->file_count;
}

/* A worker of our own hpzd, which looks at a file of ours. */
static bool is_colleague(pid_t pid)
{
	char path[64], line[256];
	int parent = 0;
	snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
	_cleanup_file_ FILE *file = fopen(path, "re");
	const char *end = file && fgets(line, sizeof line, file) ? strrchr(line, ')') : NULL;
	return end && sscanf(end, ") %*c %d", &parent) == 1 && parent == getppid();
}

static void send_openers(struct search *search)
{
	struct worker_done *done = search->done;
	if (done->holder_count == 0 || !search->send_partial)
		return;
	done->is_partial = 1;
	search->send_partial(done, search->user);
	done->is_partial = done->holder_count = 0;
}

static void add_opener(struct search *search, pid_t pid, int fd, uint32_t file)
{
	struct worker_done *done = search->done;
	uint64_t start = 0;
	if (is_colleague(pid) || host_get_start_time(search->host, pid, &start) < 0)
		return;
	if (done->holder_count == WORKER_HOLDERS_MAX)
		send_openers(search);
	uint32_t before = done->holder_count;
	add_holder(search, pid, fd);
	if (done->holder_count == before)
		return;
	done->holders[before].pid_start = start;
	done->holders[before].file = file;
}

static void search_openers(struct search *search, pid_t pid)
{
	char path[64];
	uint32_t seen = 0; /* bit per file */
	unsigned looks = 0;
	_Static_assert(WORKER_FILES <= 32, "a bit per file");
	snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
	DIR *dir = opendir(path);
	if (!dir)
		return;
	for (struct dirent *entry; looks < OPENERS_FDS_MAX && (entry = readdir(dir));) {
		if (entry->d_name[0] == '.')
			continue;
		uint32_t file = find_file(search, pid, entry->d_name);
		looks++;
		if (++search->looks % OPENERS_TELL == 0)
			send_openers(search);
		if (file >= search->job->file_count || seen & 1u << file)
			continue;
		seen |= 1u << file;
		add_opener(search, pid, atoi(entry->d_name), file);
	}
	closedir(dir);
}

static int run_openers(const struct worker_job *job, struct worker_done *done,
	void (*send_partial)(const struct worker_done *done, void *user), void *user)
{
	struct host host = {.root = (char *)""};
	struct search search = {job, done, &host, send_partial, user};
	if (job->file_count > WORKER_FILES)
		return -EINVAL;
	for_each_process(&search, search_openers);
	return 0;
}

/* Who reads this may be the last to let go of the address space, and then frees all of it: not for hpzd's
 * loop. */
static int run_tables(const struct worker_job *job, struct worker_done *done)
{
	struct host host = {.root = (char *)""};
	char path[64], line[128];
	uint64_t kib, start = 0;
	int r = -ENODATA; /* a zombie has none */
	snprintf(path, sizeof path, "/proc/%d/status", (int)job->pid);
	_cleanup_file_ FILE *file = fopen(path, "re");
	while (file && fgets(line, sizeof line, file)) {
		if (sscanf(line, "VmPTE: %" SCNu64, &kib) == 1) {
			done->bytes = kib * 1024;
			r = 0;
		}
	}
	if (host_get_start_time(&host, job->pid, &start) < 0 || start != job->pid_start)
		return -ESRCH;
	return r;
}

/* ---- the job ---- */

void worker_run_job(const struct worker_job *job, const int fds[WORKER_FDS], struct worker_control *control,
	struct pressure_rules *rules, struct worker_done *ret_done,
	void (*send_partial)(const struct worker_done *done, void *user), void *user)
{
	*ret_done = (struct worker_done){.id = job->id, .op = job->op, .method = -1};
	atomic_store(&control->bytes, 0);
	atomic_store(&control->job, job->id);
	begin_batches(control, rules);
	int fd = fds[WORKER_FD_SEGMENT], r = -EINVAL;
	switch ((enum worker_op)job->op) {
	case WORKER_CALIBRATE:
		r = run_calibrate(job, fd, ret_done);
		break;
	case WORKER_FILL:
		r = run_fill(job, fd, control, ret_done);
		break;
	case WORKER_CLEAR:
		r = run_clear(job, fd, control, ret_done);
		break;
	case WORKER_SHIELD:
		r = run_shield(job, fds, ret_done);
		break;
	case WORKER_PROBE:
		r = run_probe(job, fd, ret_done);
		break;
	case WORKER_TRIM:
		r = run_trim(job, fd);
		break;
	case WORKER_UNLINK:
		r = run_unlink(job, fds, ret_done);
		break;
	case WORKER_REMOVE:
		r = run_remove(job, fds[WORKER_FD_DIR]);
		break;
	case WORKER_HOLDERS:
		r = run_holders(job, ret_done, send_partial, user);
		break;
	case WORKER_LEARN:
		r = run_learn(job, fds, ret_done);
		break;
	case WORKER_VERIFY:
		r = run_verify(job, fd, control, ret_done);
		break;
	case WORKER_GROW:
		r = run_grow(job, fd, control, ret_done);
		break;
	case WORKER_ORPHAN:
		r = run_orphan(job, fds, ret_done);
		break;
	case WORKER_ZERO_FREE:
		r = run_zero_free(job, fd, control, ret_done);
		break;
	case WORKER_OPENERS:
		r = run_openers(job, ret_done, send_partial, user);
		break;
	case WORKER_TABLES:
		r = run_tables(job, ret_done);
		break;
	case WORKER_TRACE:
		r = run_trace(ret_done);
		break;
	}
	/* What was stored is visible before anybody is told of it. */
	zero_fence();
	ret_done->error = r;
	atomic_store(&control->job, 0);
}

/* ---- the process ---- */

static int drop_capabilities(void)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[2] = {0};
	return syscall(SYS_capset, &header, data) < 0 ? -errno : 0;
}

/* Allocation follows the policy of the task: without it fallocate would take pages of any node. */
static void bind_to_node(int node)
{
	struct host host;
	if (node < 0 || host_init(&host, NULL) < 0)
		return;
	if (host.node_count > 1) {
		unsigned long mask[HOST_NODES_MAX / (8 * sizeof(unsigned long)) + 1] = {0};
		mask[(size_t)node / (8 * sizeof *mask)] |= 1ul << ((size_t)node % (8 * sizeof *mask));
		if (syscall(SYS_set_mempolicy, MPOL_BIND, mask, (unsigned long)HOST_NODES_MAX + 1) < 0)
			log_warning("cannot bind to node %d: %s", node, strerror(errno));
		bound_node = node;
	}
	host_deinit(&host);
}

/* Guest memory never lands in a core dump, and nobody of the same uid looks into us. */
static void forbid_dumps(void)
{
	/* Before we are not dumpable: then the file is root's, whoever we are. */
	int filter = open("/proc/self/coredump_filter", O_WRONLY | O_CLOEXEC);
	if (filter < 0 || write(filter, "0", 1) != 1)
		log_debug("coredump_filter cannot be set: %s", strerror(errno));
	close_fd(filter);
	prctl(PR_SET_DUMPABLE, 0);
	setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
}

static int prepare_process(enum worker_role role, int node)
{
	prctl(PR_SET_NAME, role == WORKER_MEMORY ? "hpzd-memory" : "hpzd-helper");
	forbid_dumps();
	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
		return -errno;
	signal(SIGPIPE, SIG_IGN);
	signal(SIGIO, SIG_IGN);  /* F_SETLEASE: a break of our lease is told by the next look */
	signal(SIGINT, SIG_IGN); /* a terminal's ^C is hpzd's to handle: it stops us between two batches */
	worker_catch_faults();
	if (role == WORKER_MEMORY) {
		bind_to_node(node);
		return drop_capabilities();
	}
	return 0;
}

static int send_done(const struct worker_done *done)
{
	return frame_send(WORKER_SOCKET_FD, done, sizeof *done, done->sent, done->sent_count);
}

static void send_partial_done(const struct worker_done *done, void *user)
{
	send_done(done);
}

/* Puts received descriptors, which come in order, where the job expects them. */
static int place_fds(const struct worker_job *job, const int *received, size_t count, int ret_fds[WORKER_FDS])
{
	size_t next = 0;
	for (size_t i = 0; i < WORKER_FDS; i++) {
		ret_fds[i] = -1;
		if (!(job->fds & 1u << i))
			continue;
		if (next == count)
			return -EPROTO;
		ret_fds[i] = received[next++];
	}
	return next == count ? 0 : -EPROTO;
}

static int serve(struct worker_control *control, struct pressure_rules *rules)
{
	for (;;) {
		struct worker_job job = {0};
		int received[WORKER_FDS], fds[WORKER_FDS];
		size_t length = 0, count = 0;
		note_rest(control, true);
		int r = frame_receive(
			WORKER_SOCKET_FD, &job, sizeof job, &length, received, WORKER_FDS, &count);
		note_rest(control, false);
		if (r == FRAME_EOF)
			return 0;
		if (r != FRAME_OK || length != sizeof job || place_fds(&job, received, count, fds) < 0) {
			log_error("worker: a job that makes no sense (%d)", r);
			return 1;
		}
		struct worker_done done;
		worker_run_job(&job, fds, control, rules, &done, send_partial_done, NULL);
		/* Before the answer: whoever reads it may count on us having let go. */
		for (size_t i = 0; i < count; i++)
			close(received[i]);
		r = send_done(&done);
		for (size_t i = 0; i < done.sent_count; i++)
			close_fd(done.sent[i]);
		if (r < 0) { /* hpzd would wait for ever: our death is an answer, too */
			log_error("worker: its answer cannot be sent: %s", strerror(-r));
			return 1;
		}
	}
}

/* A page that hpzd shares with us; its descriptor is needed no more. NULL: it cannot be mapped. */
static void *map_shared(int fd, size_t bytes)
{
	void *page = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	return page == MAP_FAILED ? NULL : page;
}

int worker_main(int argc, char **argv)
{
	if (argc != 3)
		return 2;
	enum worker_role role = strcmp(argv[0], "memory") == 0 ? WORKER_MEMORY : WORKER_HELPER;
	pid_t parent = atoi(argv[2]);
	int r = prepare_process(role, atoi(argv[1]));
	if (r < 0) {
		log_error("worker: cannot prepare: %s", strerror(-r));
		return 1;
	}
	if (getppid() != parent) /* died before PR_SET_PDEATHSIG was in force */
		return 1;
	struct worker_control *control = map_shared(WORKER_CONTROL_FD, sizeof *control);
	struct pressure_rules *rules =
		role == WORKER_MEMORY ? map_shared(WORKER_RULES_FD, sizeof *rules) : NULL;
	if (!control || (role == WORKER_MEMORY && !rules))
		return 1;
	return serve(control, rules);
}
