/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * block - a holder of memory that keeps locks of the kernel busy which hpzd might want.
 *
 *   block punch FILE       threads punch and allocate again
 *   block fault FILE       threads take pages away and touch them: every fault takes locks of the whole host
 *   block map FILE         threads map, populate and unmap, one of them in the idle class: mmap_lock is
 * rarely free block directory DIR    reads DIR into memory whose faults nobody answers: its lock is held for
 * good
 *
 * Says "ready" and goes on until its standard input ends. Exit status 77 with the reason: not possible here.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#define THREADS  6
#define NOT_HERE 77

static int file;
static size_t length, page_size;
static char *memory;

/* Other threads take pages away under a touch: that is meant. */
static void on_bus_error(int number)
{
	pthread_exit(NULL);
}

static void *punch(void *unused)
{
	for (;;) {
		fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, (off_t)length);
		fallocate(file, 0, 0, (off_t)length);
	}
	return NULL;
}

static void *fault(void *unused)
{
	for (;;) {
		for (size_t at = 0; at < length; at += page_size)
			madvise(memory + at, page_size, MADV_POPULATE_WRITE);
		madvise(memory, length, MADV_REMOVE);
	}
	return NULL;
}

static void *map(void *argument)
{
	size_t bytes = (size_t)256 << 20;
	if (argument)
		sched_setscheduler(0, SCHED_IDLE, &(struct sched_param){0});
	for (;;) {
		void *start = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
		if (start != MAP_FAILED)
			munmap(start, bytes);
	}
	return NULL;
}

/* The kernel writes the entries to a page that is missing, and we never give it one. */
static void *read_directory(void *unused)
{
	syscall(SYS_getdents64, file, memory, page_size);
	return NULL;
}

static int make_unanswered_memory(void)
{
	struct uffdio_api api = {.api = UFFD_API};
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
	page_size = (size_t)sysconf(_SC_PAGESIZE);
	memory = mmap(NULL, page_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct uffdio_register range = {
		.range = {(unsigned long)memory, page_size}, .mode = UFFDIO_REGISTER_MODE_MISSING};
	if (fd < 0 || memory == MAP_FAILED || ioctl(fd, UFFDIO_API, &api) < 0 ||
		ioctl(fd, UFFDIO_REGISTER, &range) < 0)
		return -errno;
	return 0;
}

static bool start(int count, void *(*function)(void *))
{
	pthread_t thread;
	for (int i = 0; i < count; i++) {
		if (pthread_create(&thread, NULL, function, i == 0 ? &file : NULL) != 0)
			return false;
	}
	return true;
}

static int attack(const char *kind, const char *path)
{
	struct stat st;
	struct statfs fs;
	bool is_directory = strcmp(kind, "directory") == 0;
	file = open(path, is_directory ? O_RDONLY | O_DIRECTORY : O_RDWR);
	if (file < 0 || fstat(file, &st) < 0 || fstatfs(file, &fs) < 0) {
		printf("%s: %s\n", path, strerror(errno));
		return 1;
	}
	if (is_directory) {
		int r = make_unanswered_memory();
		if (r < 0) {
			printf("no userfaultfd: %s\n", strerror(-r));
			return NOT_HERE;
		}
		return start(1, read_directory) ? 0 : 1;
	}
	length = (size_t)st.st_size;
	page_size = (size_t)fs.f_bsize;
	memory = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	if (memory == MAP_FAILED)
		return 1;
	if (strcmp(kind, "punch") == 0)
		return start(THREADS, punch) ? 0 : 1;
	if (strcmp(kind, "fault") == 0)
		return start(THREADS, fault) ? 0 : 1;
	return strcmp(kind, "map") == 0 && start(THREADS, map) ? 0 : 1;
}

int main(int argc, char **argv)
{
	char byte;
	setvbuf(stdout, NULL, _IOLBF, 0);
	signal(SIGBUS, on_bus_error);
	int status = argc == 3 ? attack(argv[1], argv[2]) : 2;
	if (status != 0)
		return status;
	puts("ready");
	while (read(STDIN_FILENO, &byte, 1) > 0)
		;
	_exit(0);
}
