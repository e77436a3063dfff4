/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * test_worker.c - jobs carried out in this process, on memfds and ordinary files with pages of 4096 bytes;
 * and the worker's process. The probe and real pages are in tests/host/test_worker_host.c.
 */
#include "store.h"
#include "frame.h"
#include "worker.h"

#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>

#define MIB  ((uint64_t)1 << 20)
#define FILL 0xa5

static struct worker_control control;
static uint64_t last_id;

static int setup(void **state)
{
	memset(&control, 0, sizeof control);
	return 0;
}

static struct worker_job make_job(enum worker_op op, uint64_t length)
{
	return (struct worker_job){
		.id = ++last_id, .op = op, .page_size = STORE_PAGE, .length = length, .method = 0};
}

static struct worker_done run_in_dir(const struct worker_job *job, int fd, int dir)
{
	const int fds[WORKER_FDS] = {fd, -1, dir, -1, dir};
	struct worker_done done;

	memset(&done, 0xff, sizeof done);
	worker_run_job(job, fds, &control, NULL, &done, NULL, NULL);
	assert_int_equal(done.id, job->id);
	assert_int_equal(done.op, job->op);
	assert_int_equal(atomic_load(&control.job), 0);
	return done;
}

static struct worker_done run(const struct worker_job *job, int fd)
{
	return run_in_dir(job, fd, -1);
}

/* A file of that many pages, the pattern in every byte. */
static int make_file(uint64_t pages)
{
	int fd = memfd_create("test", MFD_CLOEXEC);
	unsigned char bytes[STORE_PAGE];

	assert_true(fd >= 0);
	memset(bytes, FILL, sizeof bytes);
	for (uint64_t i = 0; i < pages; i++)
		assert_int_equal(write(fd, bytes, sizeof bytes), sizeof bytes);
	return fd;
}

static void punch(int fd, uint64_t page)
{
	assert_int_equal(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)(page * STORE_PAGE),
				 (off_t)STORE_PAGE),
		0);
}

/* Every byte of a range has that value. */
static void expect_bytes(int fd, uint64_t from, uint64_t to, unsigned char value)
{
	unsigned char bytes[65536];

	while (from < to) {
		size_t count = MIN(sizeof bytes, to - from);
		assert_int_equal(pread(fd, bytes, count, (off_t)from), count);
		for (size_t i = 0; i < count; i++) {
			if (bytes[i] != value)
				fail_msg("byte %" PRIu64 " is 0x%02x, not 0x%02x", from + i, bytes[i], value);
		}
		from += count;
	}
}

static void expect_file(int fd, uint64_t pages, uint64_t allocated)
{
	struct stat st;

	assert_int_equal(fstat(fd, &st), 0);
	assert_int_equal(st.st_size, pages * STORE_PAGE);
	assert_int_equal(st.st_blocks, allocated * STORE_PAGE / 512);
}

/* ---- fill ---- */

static void test_fill(void **state)
{
	int fd = make_file(0);
	struct worker_job job = make_job(WORKER_FILL, 7);
	struct worker_done done = run(&job, fd);

	assert_int_equal(done.error, 0);
	assert_int_equal(done.bytes, 7 * STORE_PAGE);
	assert_int_equal(done.proof.reason, PROOF_NO_REASON);
	assert_int_equal(atomic_load(&control.bytes), 7 * STORE_PAGE);
	assert_int_equal(atomic_load(&control.batches), 1);
	expect_file(fd, 7, 7);
	expect_bytes(fd, 0, 7 * STORE_PAGE, 0);
	close(fd);
}

/* Begun by one who died: what is there stays, what is missing comes, what is too much goes. */
static void test_fill_again(void **state)
{
	int fd = make_file(9);
	struct worker_job job = make_job(WORKER_FILL, 7);

	punch(fd, 2);
	punch(fd, 5);
	assert_int_equal(run(&job, fd).error, 0);
	expect_file(fd, 7, 7);
	expect_bytes(fd, 0, 2 * STORE_PAGE, FILL);
	expect_bytes(fd, 2 * STORE_PAGE, 3 * STORE_PAGE, 0);
	expect_bytes(fd, 3 * STORE_PAGE, 5 * STORE_PAGE, FILL);
	close(fd);
}

static void test_fill_batches(void **state)
{
	int fd = make_file(0);
	struct worker_job job = make_job(WORKER_FILL, WORKER_FILL_BATCH / STORE_PAGE * 2 + 1);

	assert_int_equal(run(&job, fd).error, 0);
	assert_int_equal(atomic_load(&control.batches), 3);
	expect_file(fd, job.length, job.length);
	close(fd);
	/* A page that is larger than a batch is one, and one whose multiple is not a batch is not cut. */
	fd = make_file(0);
	job = make_job(WORKER_FILL, 2);
	job.page_size = WORKER_FILL_BATCH * 2;
	assert_int_equal(run(&job, fd).error, 0);
	assert_int_equal(atomic_load(&control.batches), 5);
	expect_file(fd, 2 * job.page_size / STORE_PAGE, 2 * job.page_size / STORE_PAGE);
	close(fd);
}

static void test_fill_stopped(void **state)
{
	int fd = make_file(0);
	struct worker_job job = make_job(WORKER_FILL, 7);

	atomic_store(&control.stop, job.id - 1); /* another's */
	assert_int_equal(run(&job, fd).error, 0);
	job = make_job(WORKER_FILL, 9);
	atomic_store(&control.stop, job.id);
	struct worker_done done = run(&job, fd);
	assert_int_equal(done.error, -ECANCELED);
	assert_int_equal(done.bytes, 0);
	expect_file(fd, 9, 7);
	job = make_job(WORKER_FILL, 9);
	atomic_store(&control.stop, UINT64_MAX);
	assert_int_equal(run(&job, fd).error, -ECANCELED);
	close(fd);
}

static void test_fill_errors(void **state)
{
	struct worker_job job = make_job(WORKER_FILL, 1 << 20);
	int fd = make_file(0), closed = make_file(0);
	struct rlimit limit, small;

	close(closed);
	assert_int_equal(run(&job, -1).error, -EBADF);
	assert_int_equal(run(&job, closed).error, -EBADF);
	void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
	getrlimit(RLIMIT_FSIZE, &limit);
	small = limit;
	small.rlim_cur = STORE_PAGE;
	setrlimit(RLIMIT_FSIZE, &small);
	assert_int_equal(run(&job, fd).error, -EFBIG);
	setrlimit(RLIMIT_FSIZE, &limit);
	signal(SIGXFSZ, handler);
	close(fd);
}

/* ---- grow ---- */

static struct worker_job make_grow_job(uint64_t length, uint64_t first, uint64_t pages)
{
	struct worker_job job = make_job(WORKER_GROW, length);
	job.first = first;
	job.pages = pages;
	return job;
}

/* One part of a file: what lies beside it is neither touched nor allocated. */
/* qemu-user says yes to MADV_POPULATE_WRITE and does nothing: there growing cannot be tested. No skip():
 * cmocka 1.1.7 says "not ok" for one, in TAP. */
static bool can_populate(void)
{
	int fd = make_file(0);
	struct stat st;

	assert_int_equal(ftruncate(fd, STORE_PAGE), 0);
	void *page = mmap(NULL, STORE_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_true(page != MAP_FAILED);
	int r = madvise(page, STORE_PAGE, MADV_POPULATE_WRITE);
	assert_int_equal(fstat(fd, &st), 0);
	munmap(page, STORE_PAGE);
	close(fd);
	bool is_ignored = r == 0 && st.st_blocks == 0;
	if (is_ignored)
		print_message("MADV_POPULATE_WRITE is ignored here: nothing is tested\n");
	return !is_ignored;
}

static void test_grow(void **state)
{
	if (!can_populate())
		return;
	int fd = make_file(3);
	assert_int_equal(ftruncate(fd, 20 * STORE_PAGE), 0);
	struct worker_job job = make_grow_job(20, 5, 9);
	struct worker_done done = run(&job, fd);

	assert_int_equal(done.error, 0);
	assert_int_equal(done.bytes, 9 * STORE_PAGE);
	assert_int_equal(atomic_load(&control.bytes), 9 * STORE_PAGE);
	expect_file(fd, 20, 12);
	expect_bytes(fd, 0, 3 * STORE_PAGE, FILL);
	/* Again, over what is there and what is not: nothing is lost. */
	job = make_grow_job(20, 0, 20);
	assert_int_equal(run(&job, fd).error, 0);
	expect_file(fd, 20, 20);
	expect_bytes(fd, 0, 3 * STORE_PAGE, FILL);
	expect_bytes(fd, 3 * STORE_PAGE, 17 * STORE_PAGE, 0);
	close(fd);
}

static void test_grow_stopped(void **state)
{
	if (!can_populate())
		return;
	int fd = make_file(0);
	assert_int_equal(ftruncate(fd, 9 * STORE_PAGE), 0);
	struct worker_job job = make_grow_job(9, 0, 9);

	atomic_store(&control.stop, job.id);
	assert_int_equal(run(&job, fd).error, -ECANCELED);
	expect_file(fd, 9, 0);
	atomic_store(&control.stop, 0);
	/* Beyond the end of the file nothing can be had: where a store would be a SIGBUS it is an error. */
	job = make_grow_job(9, 9, 1);
	assert_int_equal(run(&job, fd).error, -ENOSPC);
	assert_int_equal(run(&job, -1).error, -EBADF);
	close(fd);
}

/* ---- clear ---- */

static void test_clear_every_method(void **state)
{
	const uint64_t pages = WORKER_CLEAR_BATCH / STORE_PAGE * 2 + 3;

	for (size_t i = 0; i < zero_method_count; i++) {
		struct worker_job job = make_job(WORKER_CLEAR, pages);
		job.method = (int32_t)i;
		if (!zero_methods[i].is_supported())
			continue;
		int fd = make_file(pages);
		uint64_t batches = atomic_load(&control.batches);
		struct worker_done done = run(&job, fd);
		assert_int_equal(done.error, 0);
		assert_int_equal(done.bytes, pages * STORE_PAGE);
		assert_int_equal(done.resume, pages * STORE_PAGE);
		expect_file(fd, pages, pages);
		expect_bytes(fd, 0, pages * STORE_PAGE, 0);
		/* Nothing to allocate: the file is whole. */
		assert_int_equal(atomic_load(&control.batches) - batches, 3);
		close(fd);
	}
}

static void test_clear_mends(void **state)
{
	struct worker_job job = make_job(WORKER_CLEAR, 6);
	static const uint64_t lengths[] = {0, 1, 5, 6, 7, 40};

	for (size_t i = 0; i < ARRAY_SIZE(lengths); i++) {
		int fd = make_file(lengths[i]);
		if (lengths[i] > 2)
			punch(fd, 1);
		struct worker_done done = run(&job, fd);
		assert_int_equal(done.error, 0);
		assert_int_equal(done.bytes, 6 * STORE_PAGE);
		expect_file(fd, 6, 6);
		expect_bytes(fd, 0, 6 * STORE_PAGE, 0);
		close(fd);
	}
}

static void test_clear_nothing(void **state)
{
	struct worker_job job = make_job(WORKER_CLEAR, 0);
	int fd = make_file(3);

	assert_int_equal(run(&job, fd).error, 0);
	expect_file(fd, 0, 0);
	close(fd);
}

static void test_clear_unknown_method(void **state)
{
	struct worker_job job = make_job(WORKER_CLEAR, 3);
	int fd = make_file(3);

	job.method = -1;
	assert_int_equal(run(&job, fd).error, -EINVAL);
	job.method = (int32_t)zero_method_count;
	assert_int_equal(run(&job, fd).error, -EINVAL);
	expect_bytes(fd, 0, 3 * STORE_PAGE, FILL);
	close(fd);
}

static void test_clear_resumes(void **state)
{
	const uint64_t pages = 9, total = pages * STORE_PAGE;
	static const uint64_t offsets[] = {
		0, 64, STORE_PAGE, 5 * STORE_PAGE + 4032, 9 * STORE_PAGE, 1ull << 40};

	for (size_t i = 0; i < ARRAY_SIZE(offsets); i++) {
		struct worker_job job = make_job(WORKER_CLEAR, pages);
		uint64_t at = MIN(offsets[i], total);
		int fd = make_file(pages);
		job.resume = offsets[i];
		struct worker_done done = run(&job, fd);
		assert_int_equal(done.error, 0);
		assert_int_equal(done.bytes, total - at);
		expect_bytes(fd, 0, at, FILL);
		expect_bytes(fd, at, total, 0);
		close(fd);
	}
}

static struct pressure_rules node_rules;
static atomic_bool is_over;

/* Three doublings are enough: how it goes on is in test_pressure.c, in no time. */
#define ENOUGH 4

static void *watch_backoff(void *argument)
{
	unsigned *most = argument;

	while (!atomic_load(&is_over) && *most < ENOUGH) {
		*most = MAX(*most, pressure_get_backoff(&node_rules));
		usleep(1000);
	}
	atomic_store(&control.stop, UINT64_MAX);
	pressure_bump(&node_rules);
	return NULL;
}

/*
 * A stand-in for a neighbour: batches are said to take half of what they take here, so that all of them are
 * too long. Real batches, real clocks: it backs off.
 */
static void test_clear_backs_off(void **state)
{
	const uint64_t pages = 256 * MIB / STORE_PAGE;
	const int fds[WORKER_FDS] = {make_file(16 * MIB / STORE_PAGE), -1, -1, -1, -1};
	struct worker_job job = make_job(WORKER_CLEAR, pages);
	struct worker_done done;
	unsigned most = 0;
	pthread_t thread;

	memset(&node_rules, 0, sizeof node_rules);
	node_rules.is_scavenger = 1;
	node_rules.workers = 1;
	job.method = (int32_t)(zero_find_method("memset") - zero_methods);
	worker_run_job(&job, fds, &control, &node_rules, &done, NULL, NULL);
	assert_int_equal(done.error, 0);
	assert_true(node_rules.base_ns > 0);
	job.base_ns = node_rules.base_ns / 2;
	job.id++;
	atomic_store(&is_over, false);
	assert_int_equal(pthread_create(&thread, NULL, watch_backoff, &most), 0);
	/* Beside others, and emulated, the first batches may be of any length. */
	for (int tries = 0; tries < 20 && atomic_load(&control.stop) < job.id; tries++, job.id++)
		worker_run_job(&job, fds, &control, &node_rules, &done, NULL, NULL);
	atomic_store(&is_over, true);
	pthread_join(thread, NULL);
	assert_true(done.error == 0 || done.error == -ECANCELED);
	assert_true(most >= ENOUGH);
	assert_int_equal(node_rules.bytes, atomic_load(&node_rules.batches) * WORKER_CLEAR_BATCH);
	close(fds[0]);
}

/* Once it is held up somebody waits for it. */
static void *lift_when_resting(void *argument)
{
	bool *was_resting = argument;

	while (!atomic_load(&is_over) && atomic_load(&control.resting_since_ns) == 0)
		usleep(1000);
	*was_resting = atomic_load(&control.resting_since_ns) > 0 && atomic_load(&node_rules.bytes) == 0;
	atomic_store(&control.level, WORKER_LEVEL_URGENT);
	pressure_bump(&node_rules);
	return NULL;
}

static void test_grow_keeps_the_rules(void **state)
{
	if (!can_populate())
		return;
	const int fds[WORKER_FDS] = {make_file(0), -1, -1, -1, -1};
	struct worker_job job = make_grow_job(9, 0, 9);
	struct worker_done done;
	bool was_resting = false;
	pthread_t thread;

	assert_int_equal(ftruncate(fds[0], 9 * STORE_PAGE), 0);
	memset(&node_rules, 0, sizeof node_rules);
	node_rules.workers = 1;
	node_rules.paused = 1;
	atomic_store(&control.level, WORKER_LEVEL_REFILL);
	atomic_store(&is_over, false);
	assert_int_equal(pthread_create(&thread, NULL, lift_when_resting, &was_resting), 0);
	worker_run_job(&job, fds, &control, &node_rules, &done, NULL, NULL);
	atomic_store(&is_over, true);
	pthread_join(thread, NULL);
	assert_int_equal(done.error, 0);
	assert_true(was_resting);
	assert_int_equal(node_rules.bytes, 9 * STORE_PAGE);
	expect_file(fds[0], 9, 9);
	close(fds[0]);
}

static void *stop_after_a_batch(void *argument)
{
	const struct worker_job *job = argument;

	/* The file is whole: every batch clears. */
	while (atomic_load(&control.batches) < 1)
		;
	atomic_store(&control.stop, job->id);
	return NULL;
}

/* Stopped between two batches from outside, and gone on with: not a byte is left out. */
static void test_clear_stopped(void **state)
{
	const uint64_t pages = 64 * MIB / STORE_PAGE;
	int fd = make_file(pages);
	struct worker_done done = {0};

	for (int tries = 0; tries < 50 && done.error != -ECANCELED; tries++) {
		struct worker_job job = make_job(WORKER_CLEAR, pages);
		pthread_t thread;
		memset(&control, 0, sizeof control);
		job.method = (int32_t)zero_method_count - 1;
		assert_int_equal(pthread_create(&thread, NULL, stop_after_a_batch, &job), 0);
		done = run(&job, fd);
		pthread_join(thread, NULL);
	}
	assert_int_equal(done.error, -ECANCELED);
	assert_true(done.resume > 0 && done.resume < pages * STORE_PAGE);
	assert_int_equal(done.resume % WORKER_CLEAR_BATCH, 0);
	assert_int_equal(done.bytes, done.resume);
	close(fd);
	fd = make_file(pages);
	struct worker_job job = make_job(WORKER_CLEAR, pages);
	job.resume = done.resume;
	done = run(&job, fd);
	assert_int_equal(done.error, 0);
	assert_int_equal(done.bytes, pages * STORE_PAGE - job.resume);
	expect_bytes(fd, 0, job.resume, FILL);
	expect_bytes(fd, job.resume, pages * STORE_PAGE, 0);
	close(fd);
}

/* Parts may begin and end inside a page; none touches another's bytes, and together they are the whole. */
static void test_clear_parts(void **state)
{
	const uint64_t pages = 7, bytes = pages * STORE_PAGE, part = STORE_PAGE * 5 / 2;
	int fd = make_file(pages);

	for (uint64_t first = bytes / part * part;; first -= part) {
		struct worker_job job = make_job(WORKER_CLEAR, pages);
		job.method = (int32_t)zero_method_count - 1;
		job.first_byte = first;
		job.part_bytes = part;
		struct worker_done done = run(&job, fd);
		assert_int_equal(done.error, 0);
		assert_int_equal(done.bytes, MIN(part, bytes - first));
		assert_int_equal(done.resume, MIN(first + part, bytes));
		expect_bytes(fd, 0, first, FILL);
		expect_bytes(fd, first, bytes, 0);
		if (first == 0)
			break;
	}
	expect_file(fd, pages, pages);
	close(fd);
}

/* The first part cuts what lies beyond the end; the others only care that theirs is there. */
static void test_clear_parts_length(void **state)
{
	int fd = make_file(9);
	struct worker_job job = make_job(WORKER_CLEAR, 6);

	job.method = (int32_t)zero_method_count - 1;
	assert_int_equal(ftruncate(fd, 2 * STORE_PAGE), 0);
	job.first_byte = 3 * STORE_PAGE;
	job.part_bytes = 3 * STORE_PAGE;
	assert_int_equal(run(&job, fd).error, 0);
	expect_file(fd, 6, 5);
	job.first_byte = 0;
	assert_int_equal(run(&job, fd).error, 0);
	expect_file(fd, 6, 6);
	expect_bytes(fd, 0, 6 * STORE_PAGE, 0);
	close(fd);
}

static void test_fill_resumes(void **state)
{
	int fd = make_file(0);
	struct worker_job job = make_job(WORKER_FILL, 6);

	job.resume = 4 * STORE_PAGE;
	struct worker_done done = run(&job, fd);
	assert_int_equal(done.error, 0);
	assert_int_equal(done.bytes, 2 * STORE_PAGE);
	expect_file(fd, 6, 2);
	close(fd);
}

/* A stand-in for the kernel's file: a pipe shows what is written, one page after the other. */
static void test_zero_free(void **state)
{
	struct worker_job job = make_job(WORKER_ZERO_FREE, 0);
	char path[TEMP_PATH + 32], dir[TEMP_PATH], text[16] = "";

	temp_make(dir);
	snprintf(path, sizeof path, "%s/zeroable_hugepages", dir);
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	job.pages = 3;
	struct worker_done done = run(&job, fd);
	assert_int_equal(done.error, 0);
	assert_int_equal(done.bytes, 3 * STORE_PAGE);
	assert_int_equal(pread(fd, text, sizeof text, 0), 2);
	assert_string_equal(text, "1\n");
	close(fd);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_int_equal(run(&job, fd).error, -EBADF);
	atomic_store(&control.stop, UINT64_MAX);
	assert_int_equal(run(&job, fd).error, -ECANCELED);
	close(fd);
	temp_remove(dir);
}

static void test_calibrate_on_file(void **state)
{
	const uint64_t pages = WORKER_CALIBRATE_MIN / STORE_PAGE;
	int fd = make_file(pages);
	struct worker_job job = make_job(WORKER_CALIBRATE, pages);
	struct worker_done done = run(&job, fd);

	assert_int_equal(done.error, 0);
	assert_true(done.method >= 0 && done.batch_ns[done.method] > 0);
	punch(fd, 3); /* nothing must come into being by the touch */
	assert_int_equal(run(&job, fd).error, -EINVAL);
	expect_file(fd, pages, pages - 1);
	close(fd);
	fd = make_file(4); /* too little to tell anything */
	job = make_job(WORKER_CALIBRATE, 4);
	assert_int_equal(run(&job, fd).error, -EINVAL);
	expect_bytes(fd, 0, 4 * STORE_PAGE, FILL);
	close(fd);
}

static void test_clear_stopped_at_once(void **state)
{
	int fd = make_file(5);
	struct worker_job job = make_job(WORKER_CLEAR, 5);

	atomic_store(&control.stop, UINT64_MAX);
	struct worker_done done = run(&job, fd);
	assert_int_equal(done.error, -ECANCELED);
	assert_int_equal(done.resume, 0);
	expect_bytes(fd, 0, 5 * STORE_PAGE, FILL);
	close(fd);
}

/* ---- somebody cuts the file meanwhile ---- */

static void *cut_after_a_batch(void *argument)
{
	while (atomic_load(&control.batches) < 1)
		;
	if (ftruncate(*(int *)argument, 0) < 0)
		_exit(2);
	return NULL;
}

/* It costs the process, which is why it is one of its own; nothing else. */
static void test_cut_while_cleared(void **state)
{
	int fd = make_file(64 * MIB / STORE_PAGE), status = 0;

	for (int tries = 0; tries < 50 && !WIFSIGNALED(status); tries++) {
		pid_t child = fork();
		if (child == 0) {
			struct worker_job job = make_job(WORKER_CLEAR, 64 * MIB / STORE_PAGE);
			struct worker_done done;
			const int fds[WORKER_FDS] = {fd, -1, -1, -1, -1};
			pthread_t thread;
			signal(SIGBUS, SIG_DFL);
			job.method = (int32_t)zero_method_count - 1;
			pthread_create(&thread, NULL, cut_after_a_batch, &fd);
			worker_run_job(&job, fds, &control, NULL, &done, NULL, NULL);
			_exit(done.error == 0 || done.error == -EIO ? 0 : 1);
		}
		assert_int_equal(waitpid(child, &status, 0), child);
		assert_true(WIFSIGNALED(status) || WEXITSTATUS(status) == 0);
	}
	assert_true(WIFSIGNALED(status));
	assert_int_equal(WTERMSIG(status), SIGBUS);
	/* Done again, it is whole. */
	struct worker_job job = make_job(WORKER_CLEAR, 100);
	memset(&control, 0, sizeof control);
	assert_int_equal(run(&job, fd).error, 0);
	expect_file(fd, 100, 100);
	close(fd);
}

/* ---- trim, unlink, unknown ---- */

static void test_trim(void **state)
{
	int fd = make_file(8);
	struct worker_job job = make_job(WORKER_TRIM, 8);

	job.first = 3;
	job.pages = 5;
	assert_int_equal(run(&job, fd).error, 0);
	expect_file(fd, 8, 3);
	expect_bytes(fd, 0, 3 * STORE_PAGE, FILL);
	expect_bytes(fd, 3 * STORE_PAGE, 8 * STORE_PAGE, 0);
	assert_int_equal(run(&job, -1).error, -EBADF);
	close(fd);
}

static void test_unlink(void **state)
{
	char where[TEMP_PATH], path[PATH_MAX];
	struct worker_job job = make_job(WORKER_UNLINK, 0);

	temp_make(where);
	temp_put(where, "1.2.3.4", "");
	int dir = open(where, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	snprintf(job.name, sizeof job.name, "1.2.3.4");
	assert_int_equal(run_in_dir(&job, -1, dir).error, 0);
	temp_path(where, "1.2.3.4", path);
	assert_int_equal(access(path, F_OK), -1);
	assert_int_equal(run_in_dir(&job, -1, dir).error, 0); /* gone is gone */
	assert_int_equal(run_in_dir(&job, -1, -1).error, -EBADF);
	close(dir);
	temp_remove(where);
}

static void test_unknown_op(void **state)
{
	struct worker_job job = make_job((enum worker_op)0, 1);

	assert_int_equal(run(&job, -1).error, -EINVAL);
	job.op = 77;
	assert_int_equal(run(&job, -1).error, -EINVAL);
}

static void test_calibrate(void **state)
{
	struct worker_job job = make_job(WORKER_CALIBRATE, 0);
	struct worker_done done = run(&job, -1);

	assert_int_equal(done.error, 0);
	assert_true(done.method >= 0 && (size_t)done.method < zero_method_count);
	assert_true(done.gb_per_s[done.method] > 0 && done.batch_ns[done.method] > 0);
	for (size_t i = 0; i < zero_method_count; i++)
		assert_true(zero_methods[i].is_supported() || done.gb_per_s[i] == 0);
}

/* ---- shields, as far as they go on an ordinary file ---- */

static void test_shield(void **state)
{
	char where[TEMP_PATH], path[PATH_MAX], name[64];
	struct worker_job job = make_job(WORKER_SHIELD, 1);
	struct stat st;

	temp_make(where);
	memset(job.token, 'a', sizeof job.token);
	job.links = 2;
	snprintf(name, sizeof name, "%.32s/0", job.token);
	temp_put(where, name, "x");
	temp_path(where, name, path);
	int fd = open(path, O_RDWR | O_CLOEXEC), dir = open(where, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_int_equal(fchmod(fd, 0666), 0);
	if (geteuid() == 0)
		assert_int_equal(fchown(fd, 65534, 65534), 0);
	/* Not a huge page: no verdict, but everything before it has happened. */
	struct worker_done done = run_in_dir(&job, fd, dir);
	assert_int_equal(done.error, -EMEDIUMTYPE);
	assert_int_equal(done.proof.reason, PROOF_NO_REASON);
	assert_int_equal(fstat(fd, &st), 0);
	assert_int_equal(st.st_mode, S_IFREG);
	assert_true(st.st_uid == geteuid() && st.st_gid == getegid());
	assert_int_equal(st.st_nlink, 0);
	snprintf(name, sizeof name, "%.32s", job.token);
	temp_path(where, name, path);
	assert_int_equal(access(path, F_OK), -1);
	/* Something is in the way of the links: said, and the shields are up all the same. */
	snprintf(name, sizeof name, "%.32s/0/in the way", job.token);
	temp_put(where, name, "x");
	assert_int_equal(fchmod(fd, 0666), 0);
	assert_true(run_in_dir(&job, fd, dir).error < 0);
	assert_int_equal(fstat(fd, &st), 0);
	assert_int_equal(st.st_mode, S_IFREG);
	close(fd);
	close(dir);
	temp_remove(where);
}

/* ---- who holds it ---- */

/* A process that has the file open as `fds` descriptors from 50 on, or mapped. */
static pid_t start_holder(int fd, int fds, bool is_mapped)
{
	int ready[2];
	char byte;

	assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
	pid_t pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (is_mapped && mmap(NULL, STORE_PAGE, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED)
			_exit(1);
		for (int i = 0; i < fds; i++)
			dup2(fd, 50 + i);
		close(fd);
		if (write(ready[1], "", 1) == 1)
			pause();
		_exit(1);
	}
	close(ready[1]);
	assert_int_equal(read(ready[0], &byte, 1), 1);
	close(ready[0]);
	return pid;
}

static void end_holder(pid_t pid)
{
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static struct worker_done partial;
static unsigned partial_count;
static struct worker_holder told[64]; /* in all of them */
static size_t told_count;

static void on_partial(const struct worker_done *done, void *user)
{
	partial = *done;
	partial_count++;
	for (size_t i = 0; i < done->holder_count && told_count < ARRAY_SIZE(told); i++)
		told[told_count++] = done->holders[i];
	assert_ptr_equal(user, &partial_count);
}

static struct worker_done find_holders(const struct worker_job *job)
{
	const int fds[WORKER_FDS] = {-1, -1, -1, -1, -1};
	struct worker_done done;

	partial_count = told_count = 0;
	worker_run_job(job, fds, &control, NULL, &done, on_partial, &partial_count);
	assert_int_equal(done.error, 0);
	assert_int_equal(done.is_partial, 0);
	return done;
}

static void test_holders(void **state)
{
	int fd = make_file(1);
	struct worker_job job = make_job(WORKER_HOLDERS, 1);
	struct stat st;
	char comm[17] = "";

	assert_int_equal(fstat(fd, &st), 0);
	job.dev = st.st_dev;
	job.ino = st.st_ino;
	/* We ourselves and our parent are not somebody. */
	assert_int_equal(find_holders(&job).holder_count, 0);
	assert_int_equal(partial_count, 0);
	pid_t opener = start_holder(fd, 1, false);
	struct worker_done done = find_holders(&job);
	assert_int_equal(done.holder_count, 1);
	assert_true(done.holders[0].pid == opener && done.holders[0].fd == 50);
	host_get_comm(&(struct host){.root = (char *)""}, opener, comm);
	assert_memory_equal(done.holders[0].comm, comm, strlen(comm));
	assert_int_equal(partial_count, 1);
	assert_int_equal(partial.is_partial, 1);
	assert_int_equal(partial.holder_count, 1);
	/* A mapping alone, and both. */
	pid_t mapper = start_holder(fd, 0, true), both = start_holder(fd, 2, true);
	done = find_holders(&job);
	assert_int_equal(done.holder_count, 5);
	assert_int_equal(partial.holder_count, 3); /* what asks nobody's lock comes first */
	unsigned mappings = 0;
	for (size_t i = 0; i < done.holder_count; i++) {
		mappings += done.holders[i].fd == -1;
		assert_true(done.holders[i].fd != -1 || done.holders[i].pid == mapper ||
			    done.holders[i].pid == both);
	}
	assert_int_equal(mappings, 2);
	/* The same number on another file system is another file. */
	job.dev++;
	assert_int_equal(find_holders(&job).holder_count, 0);
	job.dev--;
	end_holder(opener);
	end_holder(mapper);
	done = find_holders(&job);
	assert_int_equal(done.holder_count, 3);
	end_holder(both);
	assert_int_equal(find_holders(&job).holder_count, 0);
	close(fd);
}

static void test_many_holders(void **state)
{
	int fd = make_file(1);
	struct worker_job job = make_job(WORKER_HOLDERS, 1);
	struct stat st;

	assert_int_equal(fstat(fd, &st), 0);
	job.dev = st.st_dev;
	job.ino = st.st_ino;
	pid_t holder = start_holder(fd, 40, true);
	struct worker_done done = find_holders(&job);
	assert_int_equal(done.holder_count, WORKER_HOLDERS_MAX);
	end_holder(holder);
	close(fd);
}

/* Every process once a file, however many descriptors it has; more than fit into an answer come before it. */
static void test_openers(void **state)
{
	struct worker_job job = make_job(WORKER_OPENERS, 1);
	struct host host = {.root = (char *)""};
	pid_t holders[WORKER_HOLDERS_MAX + 2];
	int fd = make_file(1);
	struct stat st;
	uint64_t start;

	assert_int_equal(fstat(fd, &st), 0);
	job.dev = st.st_dev;
	job.files[0] = 1; /* nobody's */
	job.files[1] = st.st_ino;
	job.file_count = 2;
	assert_int_equal(find_holders(&job).holder_count, 0);
	for (size_t i = 0; i < ARRAY_SIZE(holders); i++)
		holders[i] = start_holder(fd, 3, false);
	pid_t mapper = start_holder(fd, 0, true);
	struct worker_done done = find_holders(&job);
	assert_true(partial_count >= 1 && partial.is_partial == 1);
	on_partial(&done, &partial_count); /* the rest */
	assert_int_equal(told_count, ARRAY_SIZE(holders));
	for (size_t i = 0; i < told_count; i++) {
		const struct worker_holder *found = &told[i];
		assert_int_equal(found->file, 1);
		assert_int_equal(host_get_start_time(&host, found->pid, &start), 0);
		assert_true(found->pid_start == start && found->pid != mapper);
	}
	job.file_count = WORKER_FILES + 1;
	worker_run_job(&job, (const int[WORKER_FDS]){-1, -1, -1, -1, -1}, &control, NULL, &done, NULL, NULL);
	assert_int_equal(done.error, -EINVAL);
	for (size_t i = 0; i < ARRAY_SIZE(holders); i++)
		end_holder(holders[i]);
	end_holder(mapper);
	close(fd);
}

/* Has so many descriptors of nothing, and behind them one of the file. */
static pid_t start_hoarder(int fd, int count)
{
	const struct rlimit limit = {(rlim_t)count + 100, (rlim_t)count + 100};
	int ready[2];
	char byte = 1;

	assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
	pid_t pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		bool is_done = setrlimit(RLIMIT_NOFILE, &limit) == 0 && dup2(fd, count + 50) >= 0;
		close(fd);
		for (int i = 0; is_done && i < count; i++)
			is_done = dup(ready[1]) >= 0;
		if (write(ready[1], is_done ? "" : "n", 1) == 1)
			pause();
		_exit(1);
	}
	close(ready[1]);
	assert_int_equal(read(ready[0], &byte, 1), 1);
	close(ready[0]);
	if (byte == 0)
		return pid;
	end_holder(pid);
	return -1;
}

/* Whoever has very many descriptors holds up neither what was found before nor what comes behind. */
static void test_openers_of_many(void **state)
{
	struct worker_job job = make_job(WORKER_OPENERS, 1);
	int fd = make_file(1);
	struct stat st;

	assert_int_equal(fstat(fd, &st), 0);
	job.dev = st.st_dev;
	job.files[0] = st.st_ino;
	job.file_count = 1;
	pid_t before = start_holder(fd, 1, false), hoarder = start_hoarder(fd, 9000);
	if (hoarder < 0) {
		end_holder(before);
		close(fd);
		skip(); /* nobody may have so many */
	}
	pid_t behind = start_holder(fd, 1, false);
	struct worker_done done = find_holders(&job);
	assert_true(partial_count >= 1);
	on_partial(&done, &partial_count);
	assert_int_equal(told_count, 2);
	for (size_t i = 0; i < told_count; i++)
		assert_true(told[i].pid == before || told[i].pid == behind);
	end_holder(before);
	end_holder(hoarder);
	end_holder(behind);
	close(fd);
}

static int run_tables(pid_t pid, uint64_t pid_start, uint64_t *ret_bytes)
{
	const int fds[WORKER_FDS] = {-1, -1, -1, -1, -1};
	struct worker_job job = make_job(WORKER_TABLES, 1);
	struct worker_done done;

	job.pid = pid;
	job.pid_start = pid_start;
	worker_run_job(&job, fds, &control, NULL, &done, NULL, NULL);
	*ret_bytes = done.bytes;
	return done.error;
}

static void test_tables(void **state)
{
	struct host host = {.root = (char *)""};
	uint64_t start, bytes;

	assert_int_equal(host_get_start_time(&host, getpid(), &start), 0);
	assert_int_equal(run_tables(getpid(), start, &bytes), 0);
	assert_in_range(bytes, 4096, 1 << 30);
	assert_int_equal(run_tables(getpid(), start + 1, &bytes), -ESRCH); /* another with its number */
	pid_t zombie = fork();
	if (zombie == 0)
		_exit(0);
	assert_int_equal(waitid(P_PID, (id_t)zombie, &(siginfo_t){0}, WEXITED | WNOWAIT), 0);
	assert_int_equal(host_get_start_time(&host, zombie, &start), 0);
	assert_int_equal(run_tables(zombie, start, &bytes), -ENODATA);
	assert_int_equal(waitpid(zombie, NULL, 0), zombie);
	assert_int_equal(run_tables(zombie, start, &bytes), -ESRCH);
}

/* ---- the process ---- */

struct process {
	pid_t pid;
	int sock;
	struct worker_control *control;
};

static struct process start_process(const char *role, const char *parent, int arguments)
{
	int pair[2], page = memfd_create("control", MFD_CLOEXEC), rules = memfd_create("rules", MFD_CLOEXEC);
	const char *program = getenv("HPZ_TEST_HPZD");
	char own[16];

	assert_non_null(program);
	snprintf(own, sizeof own, "%d", (int)getpid());
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	assert_int_equal(ftruncate(page, sizeof(struct worker_control)), 0);
	assert_int_equal(ftruncate(rules, sizeof(struct pressure_rules)), 0);
	void *shared = mmap(NULL, sizeof(struct worker_control), PROT_READ | PROT_WRITE, MAP_SHARED, page, 0);
	assert_true(shared != MAP_FAILED);
	pid_t pid = fork();
	if (pid == 0) {
		int sock = fcntl(pair[1], F_DUPFD, 10), map = fcntl(page, F_DUPFD, 10);
		int more = fcntl(rules, F_DUPFD, 10);
		dup2(sock, WORKER_SOCKET_FD);
		dup2(map, WORKER_CONTROL_FD);
		dup2(more, WORKER_RULES_FD);
		close(sock);
		close(map);
		close(more);
		execl(program, "hpzd", "--worker", role, arguments > 1 ? "-1" : NULL,
			arguments > 2 ? (parent ? parent : own) : NULL, NULL);
		_exit(126);
	}
	close(pair[1]);
	close(page);
	close(rules);
	return (struct process){pid, pair[0], shared};
}

static int end_process(struct process *process)
{
	int status;

	close_fd(process->sock);
	assert_int_equal(waitpid(process->pid, &status, 0), process->pid);
	munmap(process->control, sizeof *process->control);
	return status;
}

static void expect_status(pid_t pid, const char *line)
{
	char path[64], text[8192] = "";

	snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
	FILE *file = fopen(path, "re");
	assert_non_null(file);
	assert_true(fread(text, 1, sizeof text - 1, file) > 0);
	fclose(file);
	if (!strstr(text, line))
		fail_msg("%s is not in: %s", line, text);
}

static struct worker_done ask(
	struct process *process, const struct worker_job *job, const int *fds, size_t count)
{
	struct worker_done done;
	size_t length;

	assert_int_equal(frame_send(process->sock, job, sizeof *job, fds, count), 0);
	assert_int_equal(frame_receive(process->sock, &done, sizeof done, &length, NULL, 0, NULL), FRAME_OK);
	assert_int_equal(length, sizeof done);
	assert_int_equal(done.id, job->id);
	return done;
}

/* It is not dumpable: only root looks. 0: cannot be known. */
static unsigned count_fds(pid_t pid)
{
	char path[64];
	unsigned count = 0;

	snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
	DIR *dir = opendir(path);
	if (!dir)
		return 0;
	for (struct dirent *entry; (entry = readdir(dir));)
		count += entry->d_name[0] != '.';
	closedir(dir);
	return count;
}

static void test_process(void **state)
{
	struct process process = start_process("memory", NULL, 3);
	struct worker_job job = make_job(WORKER_FILL, 3);
	int fd = make_file(0), lock = make_file(0);

	job.fds = 1u << WORKER_FD_SEGMENT | 1u << WORKER_FD_LOCK;
	assert_int_equal(ask(&process, &job, (int[]){fd, lock}, 2).error, 0);
	expect_file(fd, 3, 3);
	assert_int_equal(atomic_load(&process.control->batches), 1);
	/* Nothing is left of the job. */
	unsigned count = count_fds(process.pid);
	for (int i = 0; i < 10; i++)
		assert_int_equal(ask(&process, &job, (int[]){fd, lock}, 2).error, 0);
	assert_int_equal(count_fds(process.pid), count);
	expect_status(process.pid, "Name:\thpzd-memory\n");
	expect_status(process.pid, "CapPrm:\t0000000000000000\n");
	expect_status(process.pid, "CapEff:\t0000000000000000\n");
	expect_status(process.pid, "NoNewPrivs:\t1\n");
	/* Ended by the end of its orders. */
	int status = end_process(&process);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	close(fd);
	close(lock);
}

static void test_process_nonsense(void **state)
{
	struct worker_job job = make_job(WORKER_FILL, 3);
	int fd = make_file(0);

	for (int i = 0; i < 5; i++) {
		struct process process = start_process("helper", NULL, 3);
		job.fds = i == 0 ? 1u << WORKER_FD_SEGMENT | 1u << WORKER_FD_DIR : 1u << WORKER_FD_SEGMENT;
		if (i == 0) /* promised two, came one */
			frame_send(process.sock, &job, sizeof job, &fd, 1);
		else if (i == 1) /* one too many */
			frame_send(process.sock, &job, sizeof job, (int[]){fd, fd}, 2);
		else if (i == 2) /* short */
			frame_send(process.sock, &job, sizeof job - 1, &fd, 1);
		else if (i == 3) /* more descriptors than any job has */
			frame_send(process.sock, &job, sizeof job, (int[]){fd, fd, fd, fd, fd, fd},
				WORKER_FDS + 1);
		else
			frame_send(process.sock, "x", 1, NULL, 0);
		int status;
		assert_int_equal(waitpid(process.pid, &status, 0), process.pid);
		assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 1);
		close(process.sock);
		munmap(process.control, sizeof *process.control);
	}
	expect_file(fd, 0, 0);
	close(fd);
}

static void test_process_arguments(void **state)
{
	/* The parent it was started by is not there any more: it does not stay. */
	struct process process = start_process("memory", "1", 3);
	int status;
	assert_int_equal(waitpid(process.pid, &status, 0), process.pid);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 1);
	close(process.sock);
	process = start_process("memory", NULL, 2);
	assert_int_equal(waitpid(process.pid, &status, 0), process.pid);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 2);
	close(process.sock);
}

static void test_role_names(void **state)
{
	assert_string_equal(worker_get_role_name(WORKER_MEMORY), "memory");
	assert_string_equal(worker_get_role_name(WORKER_HELPER), "helper");
}

#define TEST(name) cmocka_unit_test_setup(name, setup)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_fill),
		TEST(test_fill_again),
		TEST(test_fill_batches),
		TEST(test_fill_stopped),
		TEST(test_fill_errors),
		TEST(test_grow),
		TEST(test_grow_stopped),
		TEST(test_clear_every_method),
		TEST(test_clear_mends),
		TEST(test_clear_nothing),
		TEST(test_clear_unknown_method),
		TEST(test_clear_resumes),
		TEST(test_clear_backs_off),
		TEST(test_grow_keeps_the_rules),
		TEST(test_clear_stopped),
		TEST(test_clear_stopped_at_once),
		TEST(test_clear_parts),
		TEST(test_clear_parts_length),
		TEST(test_fill_resumes),
		TEST(test_zero_free),
		TEST(test_calibrate_on_file),
		TEST(test_cut_while_cleared),
		TEST(test_trim),
		TEST(test_unlink),
		TEST(test_unknown_op),
		TEST(test_calibrate),
		TEST(test_shield),
		TEST(test_holders),
		TEST(test_many_holders),
		TEST(test_openers),
		TEST(test_openers_of_many),
		TEST(test_tables),
		TEST(test_process),
		TEST(test_process_nonsense),
		TEST(test_process_arguments),
		TEST(test_role_names),
	};
	/* For another architecture there is no program that could be executed. */
	const char *program = getenv("HPZ_TEST_HPZD");
	if (program && strcmp(program, "none") == 0)
		cmocka_set_skip_filter("test_process*");
	return cmocka_run_group_tests_name("worker", tests, NULL, NULL);
}
