/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * block - a holder of memory that keeps locks of the kernel busy which hpzd might want.
 *
 *   block punch FILE       threads punch and allocate again
 *   block fault FILE       threads take pages away and touch them: every fault takes locks of the whole host
 *   block map FILE         threads map, populate and unmap, one of them in the idle class: mmap_lock is
 *                          rarely free
 *   block directory DIR    reads DIR into memory whose faults nobody answers (userfaultfd): its lock is held
 *                          for good
 *   block fuse DIR         the same with a file of a FUSE file system whose server never answers the read:
 *                          there not even SIGKILL ends the wait
 *   block lock DIR         its mmap_lock is held for good: who reads its command line waits
 *
 * Says "ready" and goes on until its standard input ends; says for each byte of it how many rounds there
 * were. Exit status 77 with the reason: not possible here.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/fuse.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define THREADS  6
#define NOT_HERE 77

static int file;
static size_t length, page_size;
static char *memory;
static atomic_ulong rounds;

/* Other threads take pages away under a touch: that is meant. */
static void on_bus_error(int number)
{
	pthread_exit(NULL);
}

static void *punch(void *unused)
{
	for (;; rounds++) {
		fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, (off_t)length);
		fallocate(file, 0, 0, (off_t)length);
	}
	return NULL;
}

static void *fault(void *unused)
{
	for (;; rounds++) {
		for (size_t at = 0; at < length; at += page_size)
			madvise(memory + at, page_size, MADV_POPULATE_WRITE);
		madvise(memory, length, MADV_REMOVE);
	}
	return NULL;
}

static void *map(void *argument)
{
	size_t bytes = (size_t)64 << 20;
	if (argument)
		sched_setscheduler(0, SCHED_IDLE, &(struct sched_param){0});
	for (;; rounds++) {
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

/* ---- a FUSE file system of one file, whose bytes never come ---- */

#define FUSE_FILE 2 /* node; the root is 1 */

static pid_t server = -1;

static int mount_fuse(const char *point)
{
	char options[96];
	int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=%u,group_id=%u", fd, getuid(),
		getgid());
	/* Seen by nobody else, and gone with the last of us. */
	if (fd < 0 || unshare(CLONE_NEWNS) < 0 || mount("", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
		mount("block", point, "fuse", MS_NOSUID | MS_NODEV, options) < 0)
		return -errno;
	return fd;
}

static void set_attributes(struct fuse_attr *attributes, uint64_t node)
{
	*attributes = (struct fuse_attr){.ino = node,
		.size = node == FUSE_FILE ? page_size : 0,
		.mode = node == FUSE_FILE ? S_IFREG | 0600 : S_IFDIR | 0700,
		.nlink = 1,
		.uid = getuid(),
		.gid = getgid(),
		.blksize = (uint32_t)page_size};
}

/* The answer to what is asked; its length, or a negative error. */
static int make_answer(const struct fuse_in_header *asked, void *answer)
{
	struct fuse_init_out *init = answer;
	struct fuse_entry_out *entry = answer;
	struct fuse_attr_out *attributes = answer;
	switch (asked->opcode) {
	case FUSE_INIT:
		*init = (struct fuse_init_out){
			.major = FUSE_KERNEL_VERSION, .minor = FUSE_KERNEL_MINOR_VERSION, .max_write = 4096};
		return sizeof *init;
	case FUSE_LOOKUP:
		*entry =
			(struct fuse_entry_out){.nodeid = FUSE_FILE, .entry_valid = 1000, .attr_valid = 1000};
		set_attributes(&entry->attr, FUSE_FILE);
		return sizeof *entry;
	case FUSE_GETATTR:
		*attributes = (struct fuse_attr_out){.attr_valid = 1000};
		set_attributes(&attributes->attr, asked->nodeid);
		return sizeof *attributes;
	case FUSE_OPEN:
		memset(answer, 0, sizeof(struct fuse_open_out));
		return sizeof(struct fuse_open_out);
	default:
		return -ENOSYS;
	}
}

static void serve_fuse(int fd)
{
	static char asked[FUSE_MIN_READ_BUFFER * 2];
	struct {
		struct fuse_out_header head;
		_Alignas(8) char body[256];
	} answer;
	while (read(fd, asked, sizeof asked) > 0) {
		const struct fuse_in_header *head = (const void *)asked;
		if (head->opcode == FUSE_READ || head->opcode == FUSE_INTERRUPT ||
			head->opcode == FUSE_FORGET)
			continue; /* the whole attack */
		int bytes = make_answer(head, answer.body);
		answer.head = (struct fuse_out_header){.len = sizeof answer.head + (bytes > 0 ? bytes : 0),
			.error = bytes < 0 ? bytes : 0,
			.unique = head->unique};
		if (write(fd, &answer, answer.head.len) < 0 && errno != ENOENT)
			break;
	}
}

/*
 * Another process serves, and only it has the connection: who waits for an answer can be killed only by the
 * end of the connection, and so must not be the one that keeps it. The server dies with us.
 */
static int make_fuse_memory(void)
{
	char point[] = "/tmp/hpz-block.XXXXXX", name[64];
	pid_t parent = getpid();
	page_size = (size_t)sysconf(_SC_PAGESIZE);
	int connection = mkdtemp(point) ? mount_fuse(point) : -errno;
	server = connection < 0 ? -1 : fork();
	if (server == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(file);
		if (getppid() == parent)
			serve_fuse(connection);
		_exit(0);
	}
	if (connection >= 0)
		close(connection);
	snprintf(name, sizeof name, "%s/memory", point);
	int fd = server < 0 ? -1 : open(name, O_RDWR | O_CLOEXEC);
	int error = connection < 0 ? connection : fd < 0 ? -errno : 0;
	/* The mapping keeps the file system; nobody finds its place any more. */
	umount2(point, MNT_DETACH);
	rmdir(point);
	if (error < 0)
		return error;
	memory = mmap(NULL, page_size, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	close(fd);
	return memory == MAP_FAILED ? -errno : 0;
}

/* By way of this file the kernel waits for the page with the lock in its hands, */
static void *read_own_memory(void *unused)
{
	char byte;
	int own = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
	return pread(own, &byte, 1, (off_t)(uintptr_t)memory) == 1 ? unused : NULL;
}

/* and behind this one, who wants it to write, nobody gets it to read. */
static void *want_lock(void *unused)
{
	while (1) {
		void *start = mmap(NULL, page_size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (start != MAP_FAILED)
			munmap(start, page_size);
		usleep(1000);
	}
	return unused;
}

/* ---- what is asked for ---- */

static bool start(int count, void *(*function)(void *))
{
	pthread_t thread;
	for (int i = 0; i < count; i++) {
		if (pthread_create(&thread, NULL, function, i == count - 1 ? &file : NULL) != 0)
			return false;
	}
	return true;
}

static int attack(const char *kind, const char *path)
{
	struct stat st;
	struct statfs fs;
	bool is_lock = strcmp(kind, "lock") == 0;
	bool is_fuse = is_lock || strcmp(kind, "fuse") == 0;
	bool is_directory = is_fuse || strcmp(kind, "directory") == 0;
	file = open(path, is_directory ? O_RDONLY | O_DIRECTORY : O_RDWR);
	if (file < 0 || fstat(file, &st) < 0 || fstatfs(file, &fs) < 0) {
		printf("%s: %s\n", path, strerror(errno));
		return 1;
	}
	if (is_directory) {
		int r = is_fuse ? make_fuse_memory() : make_unanswered_memory();
		if (r < 0) {
			printf("no %s: %s\n", is_fuse ? "FUSE" : "userfaultfd", strerror(-r));
			return NOT_HERE;
		}
		if (is_lock)
			return start(1, want_lock) && start(1, read_own_memory) ? 0 : 1;
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
		printf("%lu\n", rounds);
	if (server > 0 && kill(server, SIGKILL) == 0)
		waitpid(server, NULL, 0);
	_exit(0);
}
