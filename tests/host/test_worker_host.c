/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_worker_host.c - jobs on real huge pages: what tests/unit/test_worker.c cannot have. */
#include "huge.h"
#include "worker.h"

#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#define PAGES 24

static struct worker_control control;
static uint64_t last_id;

static struct worker_job make_job(enum worker_op op, uint64_t length)
{
	return (struct worker_job){.id = ++last_id,
		.op = op,
		.page_size = HUGE_PAGE,
		.length = length,
		.max_links = 1,
		.method = (int32_t)zero_method_count - 1};
}

static struct worker_done run_in_dir(const struct worker_job *job, int fd, int dir)
{
	const int fds[WORKER_FDS] = {fd, -1, dir, -1, dir};
	struct worker_done done;

	worker_run_job(job, fds, &control, NULL, &done, NULL, NULL);
	return done;
}

static struct worker_done run(const struct worker_job *job, int fd)
{
	return run_in_dir(job, fd, -1);
}

static int open_file(const char *name, int flags)
{
	char path[PATH_MAX];

	temp_path(huge.dir, name, path);
	int fd = open(path, flags | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	return fd;
}

static void remove_file(const char *name)
{
	char path[PATH_MAX];

	temp_path(huge.dir, name, path);
	assert_int_equal(unlink(path), 0);
}

/* A file of that many pages, allocated. */
static int make_file(uint64_t pages)
{
	int fd = open_file("file", O_RDWR | O_CREAT | O_EXCL);
	struct worker_job job = make_job(WORKER_FILL, pages);

	remove_file("file");
	if (pages > 0)
		assert_int_equal(run(&job, fd).error, 0);
	return fd;
}

static void *map_file(int fd, uint64_t pages)
{
	void *start = mmap(NULL, pages * HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_true(start != MAP_FAILED);
	return start;
}

static void write_pattern(int fd, uint64_t pages)
{
	void *start = map_file(fd, pages);
	memset(start, 0xa5, pages * HUGE_PAGE);
	munmap(start, pages * HUGE_PAGE);
}

static void expect_zero(int fd, uint64_t pages)
{
	void *start = map_file(fd, pages);
	size_t at = 0;
	if (!zero_is_clear(start, pages * HUGE_PAGE, &at))
		fail_msg("byte %zu is not zero", at);
	munmap(start, pages * HUGE_PAGE);
}

static void expect_file(int fd, uint64_t pages, uint64_t allocated)
{
	struct segment_stat st;

	assert_int_equal(segment_stat_fd(HUGE_PAGE, fd, &st), 0);
	assert_int_equal(st.pages, pages);
	assert_int_equal(st.allocated, allocated);
}

/* ---- fill and clear ---- */

static void test_fill(void **state)
{
	int fd = make_file(10);

	expect_file(fd, 10, 10);
	expect_zero(fd, 10);
	/* More than a batch (8 pages): two. */
	assert_true(atomic_load(&control.batches) >= 2);
	close(fd);
}

static void test_fill_beyond_what_there_is(void **state)
{
	int fd = make_file(0);
	uint64_t there = huge_count_free();
	struct worker_job job = make_job(WORKER_FILL, there + 8);
	struct worker_done done = run(&job, fd);

	assert_int_equal(done.error, -ENOSPC);
	assert_int_equal(done.bytes % HUGE_PAGE, 0);
	close(fd);
	assert_int_equal(huge_count_free(), there);
}

static void test_clear(void **state)
{
	for (size_t i = 0; i < zero_method_count; i++) {
		struct worker_job job = make_job(WORKER_CLEAR, 6);
		job.method = (int32_t)i;
		if (!zero_methods[i].is_supported())
			continue;
		int fd = make_file(6);
		write_pattern(fd, 6);
		assert_int_equal(
			fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 2 * HUGE_PAGE, HUGE_PAGE),
			0);
		struct worker_done done = run(&job, fd);
		assert_int_equal(done.error, 0);
		assert_int_equal(done.bytes, 6 * HUGE_PAGE);
		expect_file(fd, 6, 6);
		expect_zero(fd, 6);
		/* Grown by its holder, and cut. */
		assert_int_equal(fallocate(fd, 0, 0, 9 * HUGE_PAGE), 0);
		write_pattern(fd, 9);
		assert_int_equal(run(&job, fd).error, 0);
		expect_file(fd, 6, 6);
		expect_zero(fd, 6);
		write_pattern(fd, 6);
		assert_int_equal(ftruncate(fd, 2 * HUGE_PAGE), 0);
		assert_int_equal(run(&job, fd).error, 0);
		expect_file(fd, 6, 6);
		expect_zero(fd, 6);
		close(fd);
	}
}

/* Its holes cannot be filled: an error, where a store would be SIGBUS. */
static void test_clear_without_pages(void **state)
{
	int fd = make_file(4), others = open_file("others", O_RDWR | O_CREAT);

	write_pattern(fd, 4);
	assert_int_equal(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, HUGE_PAGE, HUGE_PAGE), 0);
	remove_file("others");
	assert_int_equal(fallocate(others, 0, 0, (off_t)(huge_count_free() * HUGE_PAGE)), 0);
	struct worker_job job = make_job(WORKER_CLEAR, 4);
	assert_int_equal(run(&job, fd).error, -ENOSPC);
	close(others);
	assert_int_equal(run(&job, fd).error, 0);
	expect_zero(fd, 4);
	close(fd);
}

static void test_resume(void **state)
{
	int fd = make_file(4);
	struct worker_job job = make_job(WORKER_CLEAR, 4);

	write_pattern(fd, 4);
	job.resume = 2 * HUGE_PAGE + 4096;
	struct worker_done done = run(&job, fd);
	assert_int_equal(done.error, 0);
	assert_int_equal(done.bytes, 2 * HUGE_PAGE - 4096);
	unsigned char *start = map_file(fd, 4);
	assert_int_equal(start[job.resume - 1], 0xa5);
	assert_true(zero_is_clear(start + job.resume, 4 * HUGE_PAGE - job.resume, NULL));
	munmap(start, 4 * HUGE_PAGE);
	close(fd);
}

static void *cut(void *argument)
{
	while (atomic_load(&control.batches) < 8)
		;
	if (ftruncate(*(int *)argument, 0) < 0)
		_exit(2);
	return NULL;
}

static void test_cut_while_cleared(void **state)
{
	int fd = make_file(16), status = 0;
	struct worker_job job = make_job(WORKER_CLEAR, 16);

	for (int tries = 0; tries < 100 && !WIFSIGNALED(status); tries++) {
		pid_t child = fork();
		if (child == 0) {
			struct worker_done done;
			const int fds[WORKER_FDS] = {fd, -1, -1, -1, -1};
			pthread_t thread;
			memset(&control, 0, sizeof control);
			signal(SIGBUS, SIG_DFL);
			pthread_create(&thread, NULL, cut, &fd);
			worker_run_job(&job, fds, &control, NULL, &done, NULL, NULL);
			_exit(done.error == 0 || done.error == -EIO ? 0 : 1);
		}
		assert_int_equal(waitpid(child, &status, 0), child);
		assert_true(WIFSIGNALED(status) || WEXITSTATUS(status) == 0);
	}
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS);
	assert_int_equal(run(&job, fd).error, 0);
	expect_file(fd, 16, 16);
	expect_zero(fd, 16);
	close(fd);
}

static void test_trim(void **state)
{
	int fd = make_file(6);
	struct worker_job job = make_job(WORKER_TRIM, 6);
	uint64_t before = huge_count_free();

	write_pattern(fd, 6);
	job.first = 2;
	job.pages = 4;
	assert_int_equal(run(&job, fd).error, 0);
	expect_file(fd, 6, 2);
	assert_int_equal(huge_count_free(), before + 4);
	close(fd);
}

/* ---- the probe ---- */

static enum proof_result probe(int fd)
{
	struct worker_job job = make_job(WORKER_PROBE, 1);
	struct worker_done done = run(&job, fd);

	assert_int_equal(done.error, 0);
	return done.proof.result;
}

static int open_again(int fd, int flags)
{
	char path[64];

	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	int again = open(path, flags | O_CLOEXEC);
	assert_true(again >= 0);
	return again;
}

static void test_probe(void **state)
{
	int fd = open_file("probed", O_RDWR | O_CREAT | O_EXCL);
	struct worker_job fill = make_job(WORKER_FILL, 1);

	assert_int_equal(run(&fill, fd).error, 0);
	assert_int_equal(probe(fd), PROOF_FREE);
	/* Opened elsewhere, whichever way. */
	static const int modes[] = {O_RDONLY, O_WRONLY, O_RDWR};
	for (size_t i = 0; i < ARRAY_SIZE(modes); i++) {
		int other = open_again(fd, modes[i]);
		assert_int_equal(probe(fd), PROOF_IN_USE);
		close(other);
		assert_int_equal(probe(fd), PROOF_FREE);
	}
	/* Mapped and closed. */
	int other = open_again(fd, O_RDWR);
	void *start = map_file(other, 1);
	close(other);
	assert_int_equal(probe(fd), PROOF_IN_USE);
	munmap(start, HUGE_PAGE);
	assert_int_equal(probe(fd), PROOF_FREE);
	/* In a socket that nobody reads. */
	int pair[2];
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(sizeof(int))];
	} in_flight = {.header = {CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS}};
	other = open_again(fd, O_RDWR);
	memcpy(CMSG_DATA(&in_flight.header), &other, sizeof other);
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	struct iovec part = {(char[]){"x"}, 1};
	assert_int_equal(sendmsg(pair[0],
				 &(struct msghdr){.msg_iov = &part,
					 .msg_iovlen = 1,
					 .msg_control = &in_flight,
					 .msg_controllen = sizeof in_flight.bytes},
				 0),
		1);
	close(other);
	assert_int_equal(probe(fd), PROOF_IN_USE);
	close(pair[0]);
	close(pair[1]);
	assert_int_equal(probe(fd), PROOF_FREE);
	/* A copy of our own is ours. */
	int copy = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	assert_int_equal(probe(fd), PROOF_FREE);
	close(copy);
	/* A second name is somebody's. */
	char path[PATH_MAX], second[PATH_MAX];
	temp_path(huge.dir, "probed", path);
	temp_path(huge.dir, "second", second);
	assert_int_equal(link(path, second), 0);
	assert_int_equal(probe(fd), PROOF_IN_USE);
	struct worker_job job = make_job(WORKER_PROBE, 1);
	job.max_links = 2;
	struct worker_done done = run(&job, fd);
	assert_int_equal(done.proof.result, PROOF_FREE);
	assert_int_equal(done.links, 2);
	assert_int_equal(done.allocated, 1);
	remove_file("second");
	/* Nothing is left behind that would hold others up. */
	other = open_again(fd, O_RDWR | O_NONBLOCK);
	close(other);
	remove_file("probed");
	assert_int_equal(probe(fd), PROOF_FREE);
	close(fd);
}

/* memfds have no leases: whatever the kernel says, it is not that nobody has it. */
static void test_probe_of_memfd(void **state)
{
	int fd = memfd_create("huge", MFD_CLOEXEC | MFD_HUGETLB);

	assert_true(fd >= 0);
	assert_int_not_equal(probe(fd), PROOF_FREE);
	close(fd);
}

static void test_probe_of_another_file(void **state)
{
	struct worker_job job = make_job(WORKER_PROBE, 1);
	int fd = memfd_create("plain", MFD_CLOEXEC);
	struct worker_done done = run(&job, fd);

	assert_int_equal(done.error, -EMEDIUMTYPE);
	assert_int_equal(done.proof.reason, PROOF_NO_REASON);
	close(fd);
}

/* ---- shields ---- */

static void test_shield(void **state)
{
	struct segment_store *store = huge_open_store();
	struct worker_job job = make_job(WORKER_SHIELD, 1);
	char path[PATH_MAX], token_path[PATH_MAX];
	struct stat st;

	assert_int_equal(segment_make_out(store, job.token), 0);
	int fd = open_file("shielded", O_RDWR | O_CREAT | O_EXCL);
	temp_path(huge.dir, "shielded", path);
	segment_format_out_path(store, job.token, 0, token_path, sizeof token_path);
	assert_int_equal(link(path, token_path), 0);
	assert_int_equal(fchown(fd, 65534, 65534), 0);
	job.links = 1;
	struct worker_done done = run_in_dir(&job, fd, store->out_fd);
	assert_int_equal(done.error, 0);
	assert_int_equal(done.proof.result, PROOF_FREE);
	assert_int_equal(done.links, 1);
	assert_int_equal(fstat(fd, &st), 0);
	assert_true(st.st_uid == 0 && st.st_gid == 0 && st.st_mode == S_IFREG);
	assert_int_equal(access(token_path, F_OK), -1);
	/* Again, with links gone already: the same. */
	done = run_in_dir(&job, fd, store->out_fd);
	assert_true(done.error == 0 && done.proof.result == PROOF_FREE);
	/* One name more than the hand-over made: somebody still has it. */
	assert_int_equal(link(path, token_path), -1);
	char own[PATH_MAX];
	temp_path(huge.dir, "own", own);
	assert_int_equal(link(path, own), 0);
	done = run_in_dir(&job, fd, store->out_fd);
	assert_true(done.error == 0 && done.proof.result == PROOF_IN_USE && done.links == 2);
	remove_file("own");
	remove_file("shielded");
	close(fd);
	segment_close_store(store);
}

/* Its old owner sets the mode as fast as it can; with the mode before the owner it wins a third of the races.
 */
static void test_shield_order(void **state)
{
	int fd = make_file(1);
	struct worker_job job = make_job(WORKER_SHIELD, 1);
	pid_t child = fork();

	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (setgid(65534) < 0 || setuid(65534) < 0)
			_exit(1);
		for (;;)
			fchmod(fd, 0666);
	}
	for (int i = 0; i < 5000; i++) {
		struct stat st;
		assert_int_equal(fchown(fd, 65534, 65534), 0);
		if (i % 8 == 0)
			sched_yield();
		assert_int_equal(run(&job, fd).error, 0);
		assert_int_equal(fstat(fd, &st), 0);
		assert_int_equal(st.st_uid, 0);
		assert_int_equal(st.st_mode & 07777, 0);
	}
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	close(fd);
}

/* ---- the store ---- */

static void test_store(void **state)
{
	struct segment_store *store = huge_open_store(), *second = NULL;
	const char *why = "";
	char path[PATH_MAX];

	/* One hpzd a mount. */
	assert_int_equal(segment_open_store(huge.dir, HUGE_PAGE, 0, &second, &why), -EBUSY);
	assert_string_equal(why, "is used by another hpzd");
	assert_null(second);
	segment_close_store(store);
	assert_int_equal(segment_open_store(huge.dir, HUGE_PAGE / 2, 0, &second, &why), -EMEDIUMTYPE);
	assert_string_equal(why, "is a hugetlbfs mount of another page size");
	/* A later format is somebody newer's; an earlier one would be ours to read. */
	temp_path(huge.dir, "hpz/2/", path);
	assert_int_equal(segment_open_store(huge.dir, HUGE_PAGE, 0, &second, &why), -EPROTO);
	assert_string_equal(why, "holds the files of a newer hpzd, which this one does not understand");
	assert_int_equal(rmdir(path), 0);
	temp_path(huge.dir, "hpz/0/", path);
	store = huge_open_store();
	assert_int_equal(rmdir(path), 0);
	/* The layout has the modes that keep others out. */
	struct stat st;
	temp_path(huge.dir, "hpz", path);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode, S_IFDIR | 0700);
	temp_path(huge.dir, "hpz-out", path);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode, S_IFDIR | 0711);
	assert_int_equal(segment_lock_workers(store), 1);
	segment_close_store(store);
}

/* What says whether a path was opened: mmap updates atime, rename, link and chown set ctime. */
static void test_is_opened(void **state)
{
	struct segment_store *store = huge_open_store();
	struct segment_dirs dirs;
	struct segment_stat st;

	assert_int_equal(segment_open_dirs(store, 0, &dirs), 0);
	int fd = segment_create(&dirs, "1.0");
	struct worker_job job = make_job(WORKER_FILL, 1);
	assert_int_equal(run(&job, fd).error, 0);
	usleep(20000); /* beyond a tick of the coarse clock */
	assert_int_equal(segment_rename(&dirs, SEGMENT_FILLING, "1.0", SEGMENT_LEASED, "1.1.5.0"), 0);
	assert_int_equal(segment_stat_at(store, &dirs, SEGMENT_LEASED, "1.1.5.0", &st), 0);
	assert_false(st.is_opened);
	usleep(20000);
	int again = open_again(fd, O_RDWR);
	assert_int_equal(segment_stat_at(store, &dirs, SEGMENT_LEASED, "1.1.5.0", &st), 0);
	assert_false(st.is_opened); /* an open alone leaves no trace */
	munmap(map_file(again, 1), HUGE_PAGE);
	close(again);
	assert_int_equal(segment_stat_at(store, &dirs, SEGMENT_LEASED, "1.1.5.0", &st), 0);
	assert_true(st.is_opened);
	close(fd);
	assert_int_equal(segment_unlink(&dirs, SEGMENT_LEASED, "1.1.5.0"), 0);
	segment_close_dirs(&dirs);
	segment_close_store(store);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_fill),
		cmocka_unit_test(test_fill_beyond_what_there_is),
		cmocka_unit_test(test_clear),
		cmocka_unit_test(test_clear_without_pages),
		cmocka_unit_test(test_resume),
		cmocka_unit_test(test_cut_while_cleared),
		cmocka_unit_test(test_trim),
		cmocka_unit_test(test_probe),
		cmocka_unit_test(test_probe_of_memfd),
		cmocka_unit_test(test_probe_of_another_file),
		cmocka_unit_test(test_shield),
		cmocka_unit_test(test_shield_order),
		cmocka_unit_test(test_store),
		cmocka_unit_test(test_is_opened),
	};
	huge_open(PAGES, PAGES);
	return cmocka_run_group_tests_name("worker_host", tests, NULL, NULL);
}
