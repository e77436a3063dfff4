/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_worker.c - a file that is cut while it is cleared costs the job, not the process. On a plain file. */
#include "temp.h"
#include "worker.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#define PAGE  ((uint64_t)4096)
#define PAGES ((uint64_t)16384)

static struct worker_control control;

/*
 * A stand-in for broken memory, which needs a kernel that can be told so: populating whatever holds this page
 * of a mapping fails as it does there. UINT64_MAX: none.
 */
static uint64_t broken_page = UINT64_MAX;
static char *window;

int madvise(void *start, size_t bytes, int advice)
{
	if (advice == MADV_POPULATE_WRITE && broken_page != UINT64_MAX) {
		if (bytes > PAGE)
			window = start;
		char *broken = window + broken_page * PAGE;
		if (broken >= (char *)start && broken < (char *)start + bytes) {
			errno = EHWPOISON;
			return -1;
		}
	}
	return (int)syscall(SYS_madvise, start, bytes, advice);
}

static int find_memset(void)
{
	for (size_t i = 0; i < zero_method_count; i++) {
		if (strcmp(zero_methods[i].name, "memset") == 0)
			return (int)i;
	}
	return -1;
}

static struct worker_done clear(int fd)
{
	struct worker_job job = {.id = 1, .op = WORKER_CLEAR, .page_size = PAGE, .length = PAGES};
	struct worker_done done;
	int fds[WORKER_FDS] = {-1, -1, -1, -1, -1};

	job.method = find_memset();
	fds[WORKER_FD_SEGMENT] = fd;
	worker_run_job(&job, fds, &control, NULL, &done, NULL, NULL);
	return done;
}

struct cutter {
	int fd;
	atomic_bool stop;
};

static void *cut(void *user)
{
	struct cutter *cutter = user;

	while (!atomic_load(&cutter->stop)) {
		if (ftruncate(cutter->fd, 0) < 0)
			return NULL;
		usleep(100);
	}
	return NULL;
}

static void test_cut_file(void **state)
{
	struct cutter cutter = {.fd = memfd_create("cut", MFD_CLOEXEC)};
	unsigned faults = 0;
	pthread_t thread;

	assert_true(cutter.fd >= 0);
	worker_catch_faults();
	struct worker_done done = clear(cutter.fd);
	assert_int_equal(done.error, 0);
	assert_int_equal(done.bytes, PAGE * PAGES);
	assert_int_equal(pthread_create(&thread, NULL, cut, &cutter), 0);
	for (unsigned i = 0; i < 2000 && faults < 3; i++) {
		done = clear(cutter.fd);
		faults += done.error == -EFAULT;
		if (done.error == -EFAULT) {
			assert_true(done.fault < PAGE * PAGES);
			assert_int_equal(done.fault % PAGE, 0);
		}
	}
	atomic_store(&cutter.stop, true);
	pthread_join(thread, NULL);
	assert_true(faults > 0);
	assert_int_equal(clear(cutter.fd).error, 0);
	close_fd(cutter.fd);
}

static void test_stand_in_for_a_broken_page(void **state)
{
	int fd = memfd_create("broken", MFD_CLOEXEC);

	broken_page = 77;
	struct worker_done done = clear(fd);
	assert_int_equal(done.error, -EHWPOISON);
	assert_int_equal(done.fault, 77 * PAGE);
	assert_int_equal(done.bytes, 0);
	broken_page = UINT64_MAX;
	assert_int_equal(clear(fd).error, 0);
	close_fd(fd);
}

static void test_not_ours(void **state)
{
	struct worker_job job = {.id = 1, .op = WORKER_VERIFY, .page_size = PAGE, .length = 1};
	int fds[WORKER_FDS] = {-1, -1, -1, -1, -1};
	struct worker_done done;

	fds[WORKER_FD_SEGMENT] = memfd_create("no", MFD_CLOEXEC);
	worker_run_job(&job, fds, &control, NULL, &done, NULL, NULL);
	assert_int_equal(done.error, -EMEDIUMTYPE);
	close_fd(fds[WORKER_FD_SEGMENT]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_cut_file),
		cmocka_unit_test(test_stand_in_for_a_broken_page),
		cmocka_unit_test(test_not_ours),
	};

	return cmocka_run_group_tests_name("worker", tests, NULL, NULL);
}
