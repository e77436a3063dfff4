/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * test_proof.c - every way to hold a file on hugetlbfs, and what each source says of it, on real pages.
 * Makes a hugetlbfs of its own in a mount namespace of its own; 16 free pages of 2 MiB. Without root, BPF or
 * pages it is skipped (77).
 */
#include <fcntl.h>
#include <linux/falloc.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <cmocka.h>
#include "proof.h"

#define PAGE  ((uint64_t)2 << 20)
#define PAGES 8u
#define SKIP  77

static char directory[] = "/tmp/hpz-host-proof-XXXXXX";
static int dir_fd = -1, program = -1, ours = -1;
static struct proof_facts facts;

static void close_ours(void)
{
	ours = close_fd(ours);
	unlinkat(dir_fd, "file", 0);
	unlinkat(dir_fd, "other", 0);
}

static int make_file(void **state)
{
	close_ours();
	ours = openat(dir_fd, "file", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0);
	assert_true(ours >= 0);
	assert_int_equal(fallocate(ours, 0, 0, PAGES * PAGE), 0);
	return 0;
}

static int remove_file(void **state)
{
	close_ours();
	return 0;
}

static struct proof_verdict look_once(void)
{
	struct proof_verdict verdict;
	struct stat st;

	assert_int_equal(fstat(ours, &st), 0);
	assert_int_equal(proof_look(program, &facts, ours, (uint64_t)st.st_size / PAGE, &verdict), 0);
	assert_int_equal(verdict.source, PROOF_BPF);
	return verdict;
}

/* Descriptors and pins are let go a moment after the call that does it. */
static void expect(enum proof_reason reason)
{
	struct proof_verdict verdict = look_once();

	for (int i = 0; i < 100 && verdict.reason != reason; i++) {
		usleep(1000);
		verdict = look_once();
	}
	assert_string_equal(proof_get_reason_text(verdict.reason), proof_get_reason_text(reason));
	assert_int_equal(verdict.result, reason == PROOF_NO_REASON ? PROOF_FREE : PROOF_IN_USE);
}

/* What the weak source says at the same time. */
static void expect_lease(enum proof_result result)
{
	struct proof_verdict verdict;

	assert_int_equal(proof_look_by_lease(ours, &verdict), 0);
	assert_int_equal(verdict.result, result);
}

static int open_file(int flags)
{
	int fd = openat(dir_fd, "file", flags | O_CLOEXEC);

	assert_true(fd >= 0);
	return fd;
}

static char *map(int fd, uint64_t page, uint64_t pages)
{
	char *start = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)(page * PAGE));

	assert_true(start != MAP_FAILED);
	return start;
}

/*
 * A stand-in for broken memory, for kernels without MADV_HWPOISON: populating this many times more says that
 * the page is broken. The reference that such a page keeps is a real one, of a pipe.
 */
static unsigned broken_calls;

int madvise(void *start, size_t bytes, int advice)
{
	if (advice == MADV_POPULATE_READ && broken_calls > 0) {
		broken_calls--;
		errno = EHWPOISON;
		return -1;
	}
	return (int)syscall(SYS_madvise, start, bytes, advice);
}

/* ---- nobody ---- */

static void test_nobody(void **state)
{
	expect(PROOF_NO_REASON);
	expect_lease(PROOF_FREE);
	struct proof_verdict verdict = look_once();
	assert_int_equal(verdict.missing, 0);
	assert_int_equal(verdict.pinned, 0);
	assert_int_equal(proof_look_at_counts(program, &facts, ours, &verdict), 0);
	assert_int_equal(verdict.result, PROOF_FREE);
}

static void test_mapped_and_let_go(void **state)
{
	int fd = open_file(O_RDWR);
	char *start = map(fd, 0, PAGES);

	memset(start, 1, PAGES * PAGE);
	munmap(start, PAGES * PAGE);
	close_fd(fd);
	expect(PROOF_NO_REASON);
}

/* ---- descriptors and mappings ---- */

static void check_open(int flags, enum proof_reason reason, enum proof_result by_lease)
{
	int fd = open_file(flags);

	expect(reason);
	expect_lease(by_lease);
	close_fd(fd);
	expect(PROOF_NO_REASON);
}

static void test_open(void **state)
{
	check_open(O_RDWR, PROOF_OPEN, PROOF_IN_USE);
}

static void test_open_for_reading(void **state)
{
	check_open(O_RDONLY, facts.reads < 0 ? PROOF_NAME : PROOF_OPEN_READ, PROOF_IN_USE);
}

static void test_path_only(void **state)
{
	/* The weak source sees no names. */
	check_open(O_PATH, PROOF_NAME, PROOF_FREE);
}

static void test_mode_3(void **state)
{
	check_open(3, PROOF_NAME, PROOF_FREE);
}

static void test_mapped_and_closed(void **state)
{
	int fd = open_file(O_RDWR);
	char *start = map(fd, 0, PAGES);

	close_fd(fd);
	expect(PROOF_OPEN);
	expect_lease(PROOF_IN_USE);
	/* Also where no page of it was ever touched. */
	munmap(start, (PAGES - 1) * PAGE);
	expect(PROOF_OPEN);
	munmap(start + (PAGES - 1) * PAGE, PAGE);
	expect(PROOF_NO_REASON);
}

static void test_many_at_once(void **state)
{
	int write_fd = open_file(O_RDWR), path_fd = open_file(O_PATH);

	expect(PROOF_OPEN);
	close_fd(write_fd);
	expect(PROOF_NAME);
	close_fd(path_fd);
	expect(PROOF_NO_REASON);
}

/* ---- names ---- */

static void test_link(void **state)
{
	assert_int_equal(linkat(dir_fd, "file", dir_fd, "other", 0), 0);
	expect(PROOF_LINK);
	expect_lease(PROOF_FREE);
	unlinkat(dir_fd, "other", 0);
	expect(PROOF_NO_REASON);
}

static void test_removed_link_held(void **state)
{
	assert_int_equal(linkat(dir_fd, "file", dir_fd, "other", 0), 0);
	int fd = openat(dir_fd, "other", O_PATH | O_CLOEXEC);
	assert_true(fd >= 0);
	unlinkat(dir_fd, "other", 0);
	expect(PROOF_LINK);
	close_fd(fd);
	expect(PROOF_NO_REASON);
}

static void test_renamed(void **state)
{
	/* As every return is: the name changes, nothing is held. */
	assert_int_equal(renameat(dir_fd, "file", dir_fd, "other"), 0);
	expect(PROOF_NO_REASON);
	assert_int_equal(renameat(dir_fd, "other", dir_fd, "file"), 0);
}

/* ---- pages ---- */

struct pin {
	int fds[2];
};

static struct pin pin_page(uint64_t page)
{
	struct pin pin;
	int fd = open_file(O_RDWR);
	char *start = map(fd, page, 1);
	struct iovec part = {start, 4096};

	start[0] = 1;
	assert_int_equal(pipe2(pin.fds, O_CLOEXEC), 0);
	assert_int_equal(vmsplice(pin.fds[1], &part, 1, 0), 4096);
	munmap(start, PAGE);
	close_fd(fd);
	return pin;
}

static void let_go(struct pin *pin)
{
	close_fd(pin->fds[0]);
	close_fd(pin->fds[1]);
}

static void test_pin(void **state)
{
	for (uint64_t page = 0; page < PAGES; page++) {
		struct pin pin = pin_page(page);
		expect(PROOF_PIN);
		struct proof_verdict verdict = look_once();
		assert_int_equal(verdict.pinned, 1);
		assert_int_equal(verdict.first_pinned, page);
		assert_int_equal(verdict.poisoned, 0);
		assert_false(proof_may_be_open(&verdict));
		expect_lease(PROOF_FREE);
		/* The constant part does not look at pages. */
		assert_int_equal(proof_look_at_counts(program, &facts, ours, &verdict), 0);
		assert_int_equal(verdict.result, PROOF_FREE);
		let_go(&pin);
		expect(PROOF_NO_REASON);
	}
}

static void test_two_pins(void **state)
{
	struct pin first = pin_page(2), last = pin_page(7);

	expect(PROOF_PIN);
	struct proof_verdict verdict = look_once();
	assert_int_equal(verdict.pinned, 2);
	assert_int_equal(verdict.first_pinned, 2);
	let_go(&first);
	for (int i = 0; i < 100 && look_once().pinned != 1; i++)
		usleep(1000);
	assert_int_equal(look_once().first_pinned, 7);
	let_go(&last);
	expect(PROOF_NO_REASON);
}

static void test_holes(void **state)
{
	assert_int_equal(fallocate(ours, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, PAGE, 2 * PAGE), 0);
	expect(PROOF_NO_REASON);
	assert_int_equal(look_once().missing, 2);
	/* A pin behind a hole is where it is. */
	struct pin pin = pin_page(6);
	expect(PROOF_PIN);
	assert_int_equal(look_once().first_pinned, 6);
	let_go(&pin);
	expect(PROOF_NO_REASON);
}

static void test_grown_and_cut(void **state)
{
	assert_int_equal(ftruncate(ours, 12 * PAGE), 0);
	assert_int_equal(fallocate(ours, 0, 11 * PAGE, PAGE), 0);
	expect(PROOF_NO_REASON);
	assert_int_equal(look_once().missing, 3);
	struct pin pin = pin_page(11);
	expect(PROOF_PIN);
	let_go(&pin);
	expect(PROOF_NO_REASON);
	assert_int_equal(ftruncate(ours, 3 * PAGE), 0);
	expect(PROOF_NO_REASON);
	assert_int_equal(ftruncate(ours, 0), 0);
	expect(PROOF_NO_REASON);
}

/* ---- without a name ---- */

static struct proof_verdict look_unlinked(void)
{
	struct proof_verdict verdict;

	assert_int_equal(proof_look_unlinked(program, &facts, ours, PAGES, &verdict), 0);
	return verdict;
}

static void expect_unlinked(enum proof_reason reason)
{
	for (int i = 0; i < 100 && look_unlinked().reason != reason; i++)
		usleep(1000);
	assert_string_equal(proof_get_reason_text(look_unlinked().reason), proof_get_reason_text(reason));
}

static void test_unlinked(void **state)
{
	int fd = open_file(O_RDWR), path_fd = open_file(O_PATH);
	struct pin pin = pin_page(3);

	unlinkat(dir_fd, "file", 0);
	expect_unlinked(PROOF_OPEN);
	close_fd(fd);
	expect_unlinked(PROOF_NAME);
	close_fd(path_fd);
	expect_unlinked(PROOF_PIN);
	let_go(&pin);
	expect_unlinked(PROOF_NO_REASON);
	/* The look at a file with a name is not taken in by it. */
	assert_int_equal(look_once().reason, PROOF_LINK);
}

static void test_unlinked_with_another_link(void **state)
{
	assert_int_equal(linkat(dir_fd, "file", dir_fd, "other", 0), 0);
	unlinkat(dir_fd, "file", 0);
	expect_unlinked(PROOF_LINK);
	unlinkat(dir_fd, "other", 0);
	expect_unlinked(PROOF_NO_REASON);
}

/*
 * Broken memory: a page that the kernel was told is broken (MADV_HWPOISON), where it can be told. Elsewhere
 * this is skipped: what the walk makes of it is then known from reading only.
 */
static void stay(int number)
{
}

static void test_broken_page(void **state)
{
	struct sigaction survive = {.sa_handler = stay}, before;
	int fd = open_file(O_RDWR);
	char *start = map(fd, 5, 1);

	start[0] = 1;
	/* From 6.11 on whoever tells it is sent a SIGBUS. */
	sigaction(SIGBUS, &survive, &before);
	int r = madvise(start, PAGE, MADV_HWPOISON);
	int error = errno;
	sigaction(SIGBUS, &before, NULL);
	munmap(start, PAGE);
	close_fd(fd);
	if (r < 0) {
		print_message("no MADV_HWPOISON on this kernel: %s\n", strerror(error));
		return;
	}
	expect(PROOF_POISON);
	assert_int_equal(look_once().poisoned, 1);
	struct pin pin = pin_page(1);
	expect(PROOF_PIN);
	let_go(&pin);
	expect(PROOF_POISON);
}

static void test_stand_in_for_broken_pages(void **state)
{
	struct pin first = pin_page(1), last = pin_page(6);
	struct proof_verdict verdict;

	expect(PROOF_PIN);
	broken_calls = 2;
	verdict = look_once();
	assert_int_equal(verdict.result, PROOF_IN_USE);
	assert_int_equal(verdict.reason, PROOF_POISON);
	assert_int_equal(verdict.poisoned, 2);
	assert_int_equal(verdict.first_pinned, 1);
	assert_int_equal(broken_calls, 0);
	/* One of them is somebody's after all. */
	broken_calls = 1;
	verdict = look_once();
	assert_int_equal(verdict.reason, PROOF_PIN);
	assert_int_equal(verdict.poisoned, 0);
	broken_calls = 0;
	/* Or somebody has it open: then it does not matter what is broken. */
	int fd = open_file(O_RDWR);
	broken_calls = 2;
	assert_int_equal(look_once().reason, PROOF_OPEN);
	broken_calls = 0;
	close_fd(fd);
	let_go(&first);
	let_go(&last);
	expect(PROOF_NO_REASON);
}

/* ---- the place ---- */

static int skip_all(const char *why)
{
	printf("%s\n", why);
	return SKIP;
}

static int open_place(void)
{
	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return skip_all("no mount namespace: needs root");
	if (!mkdtemp(directory))
		return skip_all("no directory in /tmp");
	if (mount("hugetlbfs", directory, "hugetlbfs", 0, "pagesize=2M") < 0)
		return skip_all("no hugetlbfs with pages of 2 MiB");
	dir_fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	const char *why = "";
	program = proof_load(&why);
	if (program < 0)
		return skip_all(why);
	int r = proof_learn(program, dir_fd, PAGE, &facts, &why);
	if (r == -ENOSPC)
		return skip_all("no free huge page");
	if (r < 0) {
		printf("nothing could be learned: %s\n", why);
		return 1;
	}
	int fd = openat(dir_fd, "room", O_RDWR | O_CREAT | O_CLOEXEC, 0);
	r = fallocate(fd, 0, 0, 16 * PAGE);
	close_fd(fd);
	unlinkat(dir_fd, "room", 0);
	return r < 0 ? skip_all("fewer than 16 free huge pages") : 0;
}

static void close_place(void)
{
	close_fd(dir_fd);
	close_fd(program);
	umount2(directory, MNT_DETACH);
	rmdir(directory);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, make_file, remove_file)
	const struct CMUnitTest tests[] = {
		TEST(test_nobody),
		TEST(test_mapped_and_let_go),
		TEST(test_open),
		TEST(test_open_for_reading),
		TEST(test_path_only),
		TEST(test_mode_3),
		TEST(test_mapped_and_closed),
		TEST(test_many_at_once),
		TEST(test_link),
		TEST(test_removed_link_held),
		TEST(test_renamed),
		TEST(test_pin),
		TEST(test_two_pins),
		TEST(test_holes),
		TEST(test_grown_and_cut),
		TEST(test_unlinked),
		TEST(test_unlinked_with_another_link),
		TEST(test_broken_page),
		TEST(test_stand_in_for_broken_pages),
	};

	signal(SIGIO, SIG_IGN);
	int r = open_place();
	if (r == 0)
		r = cmocka_run_group_tests_name("proof", tests, NULL, NULL);
	close_place();
	return r;
}
