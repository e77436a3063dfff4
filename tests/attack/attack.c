/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * attack - a tenant that was given memory and means to reach it after its lease.
 *
 * Runs without privileges. Each line on standard input is a command, answered by one line of JSON:
 *   prepare NAME PATH [DIRECTORY]  opens PATH, writes to it, then holds it as the attack NAME does
 *   take NAME FD                   the same with a descriptor that was inherited
 *   look                           tries everything that is left: {"secret":read what others wrote,
 *                                  "opened":a name gave a descriptor again}
 *   let-go                         drops all of it: {"late":opens that passed their check before the shields}
 *   fill PATH                      another tenant's part: writes the secret everywhere, keeps it mapped
 *
 * DIRECTORY is the attacker's own, on the same mount. `attack --list` prints the names.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/io_uring.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define SECRET  "another tenant's secret;" /* 24 bytes */
#define LOOKS   8                          /* pieces pinned in the pipe: one a look */
#define PIECE   4096
#define OPENERS 4 /* threads that try to be let in at the last moment */

static const char *path, *directory;
static char own_name[640]; /* a link or mount of ours; "" none */
static int fd = -1;        /* the description we were given or opened */
static int name_fd = -1;   /* O_PATH or the like */
static int other_fd = -1;  /* socket, inotify */
static int pipe_fds[2] = {-1, -1};
static unsigned char *memory;
static size_t length, page_size;
static bool is_opened_later;
static pthread_t threads[OPENERS];
static int thread_count;
static int late_fds[OPENERS]; /* let in before the shields, arrived after them; -1: not */
static atomic_bool must_stop;
static sigjmp_buf bus_error;

static void on_bus_error(int number)
{
	siglongjmp(bus_error, 1);
}

/* ---- what is held ---- */

static bool map_all(int protection)
{
	void *start = mmap(NULL, length, protection, MAP_SHARED, fd, 0);
	memory = start == MAP_FAILED ? NULL : start;
	return memory;
}

static void unmap(void)
{
	if (memory)
		munmap(memory, length);
	memory = NULL;
}

static void close_one(int *descriptor)
{
	if (*descriptor >= 0)
		close(*descriptor);
	*descriptor = -1;
}

/* Nothing but what an attack kept aside. */
static bool drop_ordinary(void)
{
	unmap();
	close_one(&fd);
	return true;
}

static bool pin(size_t offset, int pieces)
{
	if (pipe_fds[0] < 0 && pipe2(pipe_fds, O_NONBLOCK | O_CLOEXEC) < 0)
		return false;
	for (int i = 0; i < pieces; i++) {
		struct iovec piece = {memory + offset + (size_t)i * PIECE, PIECE};
		if (vmsplice(pipe_fds[1], &piece, 1, 0) != PIECE)
			return false;
	}
	return true;
}

/* ---- io_uring, by hand ---- */

static struct {
	int fd;
	struct io_uring_params params;
	unsigned char *rings;
	size_t rings_bytes;
	struct io_uring_sqe *entries;
	void *address; /* of the registered buffer, whose mapping is gone */
} ring = {.fd = -1};

static bool start_ring(void)
{
	ring.fd = (int)syscall(SYS_io_uring_setup, 4, &ring.params);
	if (ring.fd < 0)
		return false;
	size_t answers = ring.params.cq_off.cqes + ring.params.cq_entries * sizeof(struct io_uring_cqe);
	size_t questions = ring.params.sq_off.array + ring.params.sq_entries * sizeof(unsigned);
	ring.rings_bytes = answers > questions ? answers : questions;
	ring.rings = mmap(NULL, ring.rings_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring.fd,
		IORING_OFF_SQ_RING);
	ring.entries = mmap(NULL, ring.params.sq_entries * sizeof *ring.entries, PROT_READ | PROT_WRITE,
		MAP_SHARED | MAP_POPULATE, ring.fd, IORING_OFF_SQES);
	return ring.rings != MAP_FAILED && ring.entries != MAP_FAILED;
}

/* One operation; its result. */
static int run_ring(const struct io_uring_sqe *entry)
{
	_Atomic unsigned *tail = (_Atomic unsigned *)(ring.rings + ring.params.sq_off.tail);
	_Atomic unsigned *head = (_Atomic unsigned *)(ring.rings + ring.params.cq_off.head);
	unsigned mask = *(unsigned *)(ring.rings + ring.params.sq_off.ring_mask);
	unsigned slot = atomic_load(tail) & mask;
	ring.entries[slot] = *entry;
	((unsigned *)(ring.rings + ring.params.sq_off.array))[slot] = slot;
	atomic_fetch_add(tail, 1);
	if (syscall(SYS_io_uring_enter, ring.fd, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0) < 0)
		return -errno;
	unsigned at = atomic_load(head) & *(unsigned *)(ring.rings + ring.params.cq_off.ring_mask);
	int result = ((struct io_uring_cqe *)(ring.rings + ring.params.cq_off.cqes))[at].res;
	atomic_fetch_add(head, 1);
	return result;
}

static bool hold_ring_buffer(void)
{
	struct iovec buffer = {memory, PIECE};
	if (!start_ring() || syscall(SYS_io_uring_register, ring.fd, IORING_REGISTER_BUFFERS, &buffer, 1) < 0)
		return false;
	ring.address = memory;
	return drop_ordinary();
}

static bool hold_ring_file(void)
{
	if (!start_ring() || syscall(SYS_io_uring_register, ring.fd, IORING_REGISTER_FILES, &fd, 1) < 0)
		return false;
	return drop_ordinary();
}

static ssize_t read_ring(void *buffer)
{
	if (!ring.address) {
		struct io_uring_sqe entry = {.opcode = IORING_OP_READ,
			.flags = IOSQE_FIXED_FILE,
			.addr = (uintptr_t)buffer,
			.len = PIECE};
		return run_ring(&entry);
	}
	int file = memfd_create("loot", MFD_CLOEXEC);
	struct io_uring_sqe entry = {
		.opcode = IORING_OP_WRITE_FIXED, .fd = file, .addr = (uintptr_t)ring.address, .len = PIECE};
	ssize_t got = run_ring(&entry) == PIECE ? pread(file, buffer, PIECE, 0) : -1;
	close(file);
	return got;
}

/* ---- the attacks: what stays when everything ordinary is closed ---- */

static bool hold_pin(void)
{
	return pin(0, LOOKS) && drop_ordinary();
}

static bool send_descriptor(int socket_fd, int descriptor)
{
	char byte = 0;
	union {
		struct cmsghdr head;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = {0};
	struct iovec part = {&byte, 1};
	struct msghdr message = {
		.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
	struct cmsghdr *head = CMSG_FIRSTHDR(&message);
	head->cmsg_level = SOL_SOCKET;
	head->cmsg_type = SCM_RIGHTS;
	head->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(head), &descriptor, sizeof descriptor);
	return sendmsg(socket_fd, &message, 0) == 1;
}

static int receive_descriptor(int socket_fd)
{
	char byte;
	union {
		struct cmsghdr head;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control;
	struct iovec part = {&byte, 1};
	struct msghdr message = {
		.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
	int descriptor = -1;
	if (recvmsg(socket_fd, &message, MSG_DONTWAIT) == 1 && CMSG_FIRSTHDR(&message))
		memcpy(&descriptor, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof descriptor);
	return descriptor;
}

/* Both ends are ours, and nobody reads until we look. */
static bool hold_in_flight(void)
{
	int ends[2];
	if (socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, ends) < 0 || !send_descriptor(ends[0], fd))
		return false;
	other_fd = ends[1];
	name_fd = ends[0]; /* kept: to put it back after a look */
	return drop_ordinary();
}

static bool hold_mapping(void)
{
	close_one(&fd);
	return true;
}

/* The lease's owner dies, its grandchild goes on, and answers from now on. */
static bool hold_in_grandchild(void)
{
	unmap();
	pid_t child = fork();
	if (child > 0)
		_exit(0);
	pid_t grandchild = child == 0 ? fork() : -1;
	if (grandchild > 0)
		_exit(0);
	return grandchild == 0;
}

static bool hold_path(void)
{
	char link[32];
	snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	name_fd = path ? open(path, O_PATH | O_CLOEXEC) : open(link, O_PATH | O_CLOEXEC);
	return name_fd >= 0 && drop_ordinary();
}

static bool hold_mode_3(void)
{
	name_fd = open(path, 3 | O_CLOEXEC);
	return name_fd >= 0 && drop_ordinary();
}

/*
 * Opens it all the time, while the lease ends and ever after. What was let in before the shields and arrives
 * after them is kept; everything else is in the proof's way only.
 */
static void *keep_opening(void *slot)
{
	int *late_fd = slot;
	while (!atomic_load(&must_stop) && *late_fd < 0) {
		struct stat st;
		int descriptor = open(path, O_RDWR | O_CLOEXEC);
		if (descriptor >= 0 && fstat(descriptor, &st) == 0 && (st.st_mode & 0777) == 0)
			*late_fd = descriptor;
		else if (descriptor >= 0)
			close(descriptor);
		else /* it is over: no more than now and then, or an emulated guest does nothing else */
			nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	}
	return NULL;
}

static bool start(void *(*function)(void *), int count)
{
	atomic_store(&must_stop, false);
	for (thread_count = 0; thread_count < count; thread_count++) {
		if (pthread_create(&threads[thread_count], NULL, function, &late_fds[thread_count]) != 0)
			return false;
	}
	return true;
}

static bool hold_late_mapper(void)
{
	return drop_ordinary() && start(keep_opening, OPENERS);
}

static bool hold_link(void)
{
	snprintf(own_name, sizeof own_name, "%s/link", directory);
	return fchmod(fd, 0666) == 0 && link(path, own_name) == 0 && drop_ordinary();
}

static bool hold_file_lease(void)
{
	signal(SIGIO, SIG_IGN);
	unmap();
	return fcntl(fd, F_SETLEASE, F_WRLCK) == 0;
}

static bool write_text(const char *file, const char *text)
{
	int descriptor = open(file, O_WRONLY | O_CLOEXEC);
	bool is_written = descriptor >= 0 && write(descriptor, text, strlen(text)) > 0;
	close_one(&descriptor);
	return is_written;
}

static bool hold_bind_mount(void)
{
	char map[64];
	unsigned uid = getuid();
	snprintf(own_name, sizeof own_name, "/tmp/attack-mount.XXXXXX");
	int target = mkostemp(own_name, O_CLOEXEC);
	if (target < 0)
		return false;
	close(target);
	if (unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0)
		return false;
	snprintf(map, sizeof map, "0 %u 1", uid);
	bool is_mounted = write_text("/proc/self/uid_map", map) &&
			  mount("", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
			  mount(path, own_name, NULL, MS_BIND, NULL) == 0;
	return is_mounted && drop_ordinary();
}

/* Pins all the time; when the shields are up, once more, and lets go of everything but that pin. */
static void *keep_pinning(void *unused)
{
	char loot[PIECE];
	struct stat st;
	do {
		pin(0, 1);
		if (read(pipe_fds[0], loot, sizeof loot) < 0 && errno != EAGAIN)
			break;
	} while (fstat(fd, &st) == 0 && (st.st_mode & 0777) != 0);
	uint64_t wait = (uint64_t)rand() % 300000;
	nanosleep(&(struct timespec){.tv_nsec = (long)wait}, NULL);
	pin(0, LOOKS);
	drop_ordinary();
	return NULL;
}

static bool hold_pin_during_proof(void)
{
	srand((unsigned)(time(NULL) ^ getpid()));
	return pin(0, 1) && start(keep_pinning, 1);
}

static void *keep_setting_mode(void *unused)
{
	while (fchmod(fd, 0666) == 0 || errno != EPERM)
		;
	drop_ordinary();
	return NULL;
}

static bool hold_chmod_spinner(void)
{
	name_fd = open(path, O_PATH | O_CLOEXEC);
	return name_fd >= 0 && start(keep_setting_mode, 1);
}

/* Whoever works by path would find another file. In a directory of root's that cannot be done. */
static bool hold_swapped_name(void)
{
	char aside[600];
	snprintf(aside, sizeof aside, "%s/aside", directory);
	snprintf(own_name, sizeof own_name, "%s/link", directory);
	if (rename(path, aside) == 0 || unlink(path) == 0 || rename(aside, path) == 0)
		return false;
	/* In our own directory it can: nobody may follow it. */
	if (link(path, own_name) < 0 || rename(own_name, aside) < 0)
		return false;
	int other = open(own_name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	if (other < 0)
		return false;
	close(other);
	snprintf(own_name, sizeof own_name, "%s", aside);
	return drop_ordinary();
}

static bool hold_truncated_down(void)
{
	return ftruncate(fd, 0) == 0;
}

static bool hold_truncated_up(void)
{
	return ftruncate(fd, (off_t)(length + 2 * page_size)) == 0;
}

static bool hold_punched(void)
{
	return fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, (off_t)(2 * page_size)) == 0;
}

/* Pinned pages beyond the end of the file: whoever looks at its length sees none of them. */
static bool hold_beyond_end(void)
{
	if (ftruncate(fd, 0) < 0 || fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, (off_t)length) < 0)
		return false;
	return pin(0, LOOKS) && drop_ordinary();
}

/* The first page is as it was: only a look at every page finds the last one pinned. */
static bool hold_last_page(void)
{
	return pin(length - page_size, LOOKS) && drop_ordinary();
}

static bool hold_reader(void)
{
	drop_ordinary();
	fd = open(path, O_RDONLY | O_CLOEXEC);
	return fd >= 0 && map_all(PROT_READ) && (close_one(&fd), true);
}

static bool hold_inotify(void)
{
	other_fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
	return other_fd >= 0 && inotify_add_watch(other_fd, path, IN_ALL_EVENTS) >= 0 && drop_ordinary();
}

static const struct {
	const char *name;
	bool (*hold)(void);
} attacks[] = {
	{"vmsplice pin", hold_pin},
	{"vmsplice pin of the last page", hold_last_page},
	{"pinned pages beyond the end", hold_beyond_end},
	{"io_uring registered buffer", hold_ring_buffer},
	{"io_uring registered file", hold_ring_file},
	{"descriptor in flight", hold_in_flight},
	{"mapped and closed", hold_mapping},
	{"inherited by a grandchild", hold_in_grandchild},
	{"O_PATH of the removed link", hold_path},
	{"O_PATH of the file", hold_path},
	{"late mapper by path", hold_late_mapper},
	{"chmod and link", hold_link},
	{"file lease", hold_file_lease},
	{"open with mode 3", hold_mode_3},
	{"bind mount", hold_bind_mount},
	{"pin during the proof", hold_pin_during_proof},
	{"chmod spinner", hold_chmod_spinner},
	{"swapped name", hold_swapped_name},
	{"truncated down", hold_truncated_down},
	{"truncated up", hold_truncated_up},
	{"punched holes", hold_punched},
	{"open for reading", hold_reader},
	{"inotify watch", hold_inotify},
};

/* ---- the look ---- */

static bool has_secret(const void *bytes, ssize_t count)
{
	return count > 0 && memmem(bytes, (size_t)count, SECRET, strlen(SECRET));
}

static bool read_descriptor(int descriptor)
{
	unsigned char bytes[PIECE];
	return has_secret(bytes, pread(descriptor, bytes, sizeof bytes, 0));
}

static bool read_mapping(void)
{
	if (!memory || sigsetjmp(bus_error, 1))
		return false;
	for (size_t at = 0; at < length; at += page_size) {
		if (has_secret(memory + at, PIECE))
			return true;
	}
	return false;
}

/* Opens a name in every way there is; true if it then reads the secret. */
static bool try_name(const char *name)
{
	static const int modes[] = {O_RDWR, O_RDONLY, O_WRONLY};
	bool is_read = false;
	chmod(name, 0666);
	for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
		int descriptor = open(name, modes[i] | O_CLOEXEC | O_NONBLOCK);
		if (descriptor < 0)
			continue;
		is_opened_later = true;
		is_read = read_descriptor(descriptor) || is_read;
		close(descriptor);
	}
	return is_read;
}

static void look(void)
{
	unsigned char bytes[PIECE];
	char link[40];
	bool is_read = read_mapping();
	is_opened_later = false;
	if (fd >= 0)
		is_read = read_descriptor(fd) || is_read;
	for (int i = 0; i < OPENERS; i++) {
		if (late_fds[i] >= 0)
			is_read = read_descriptor(late_fds[i]) || is_read;
	}
	if (pipe_fds[0] >= 0)
		is_read = has_secret(bytes, read(pipe_fds[0], bytes, sizeof bytes)) || is_read;
	if (ring.fd >= 0)
		is_read = has_secret(bytes, read_ring(bytes)) || is_read;
	int flying = other_fd >= 0 ? receive_descriptor(other_fd) : -1;
	if (flying >= 0) {
		is_read = read_descriptor(flying) || is_read;
		send_descriptor(name_fd, flying);
		close(flying);
	} else if (name_fd >= 0) {
		snprintf(link, sizeof link, "/proc/self/fd/%d", name_fd);
		is_read = try_name(link) || is_read;
	}
	if (own_name[0])
		is_read = try_name(own_name) || is_read;
	if (path)
		is_read = try_name(path) || is_read;
	printf("{\"ok\":true,\"secret\":%s,\"opened\":%s}\n", is_read ? "true" : "false",
		is_opened_later ? "true" : "false");
}

static void let_go(void)
{
	atomic_store(&must_stop, true);
	while (thread_count > 0)
		pthread_join(threads[--thread_count], NULL);
	int late = 0;
	for (int i = 0; i < OPENERS; i++) {
		late += late_fds[i] >= 0;
		close_one(&late_fds[i]);
	}
	drop_ordinary();
	close_one(&name_fd);
	close_one(&other_fd);
	close_one(&pipe_fds[0]);
	close_one(&pipe_fds[1]);
	if (ring.fd >= 0) { /* the ring lives as long as its mappings */
		munmap(ring.rings, ring.rings_bytes);
		munmap(ring.entries, ring.params.sq_entries * sizeof *ring.entries);
	}
	close_one(&ring.fd);
	if (own_name[0]) {
		umount2(own_name, MNT_DETACH);
		unlink(own_name);
	}
	own_name[0] = '\0';
	printf("{\"ok\":true,\"late\":%d}\n", late);
}

/* ---- commands ---- */

static void fail(const char *what)
{
	printf("{\"ok\":false,\"error\":\"%s: %s\"}\n", what, strerror(errno));
}

static bool start_with(int descriptor)
{
	struct stat st;
	struct statfs fs;
	fd = descriptor;
	if (fd < 0 || fstat(fd, &st) < 0 || fstatfs(fd, &fs) < 0)
		return false;
	length = (size_t)st.st_size;
	page_size = (size_t)fs.f_bsize;
	return map_all(PROT_READ | PROT_WRITE);
}

/* In blocks: an emulated guest with pages of 1 GiB runs this, too. */
static void soil(const char *text)
{
	char block[PIECE + 64];
	size_t step = strlen(text);
	for (size_t at = 0; at < PIECE; at += step)
		memcpy(block + at, text, step);
	for (size_t at = 0; at < length; at += PIECE)
		memcpy(memory + at, block, PIECE);
}

static void prepare(const char *name, int descriptor)
{
	errno = 0;
	if (!start_with(descriptor)) {
		fail("cannot be opened and mapped");
		return;
	}
	soil("tenant A was here; ");
	for (size_t i = 0; i < sizeof attacks / sizeof *attacks; i++) {
		if (strcmp(attacks[i].name, name) != 0)
			continue;
		if (attacks[i].hold())
			puts("{\"ok\":true}");
		else
			fail("the attack could not be made");
		return;
	}
	fail("there is no such attack");
}

static void run_command(char *line)
{
	char *words[4] = {NULL};
	line[strcspn(line, "\n")] = '\0';
	for (size_t i = 0; i < 4 && line; i++)
		words[i] = strsep(&line, "\t");
	if (strcmp(words[0], "prepare") == 0 && words[2]) {
		path = strdup(words[2]);
		directory = words[3] ? strdup(words[3]) : NULL;
		prepare(words[1], open(path, O_RDWR | O_CLOEXEC));
	} else if (strcmp(words[0], "take") == 0 && words[2]) {
		prepare(words[1], atoi(words[2]));
	} else if (strcmp(words[0], "look") == 0) {
		look();
	} else if (strcmp(words[0], "let-go") == 0) {
		let_go();
	} else if (strcmp(words[0], "fill") == 0 && words[1] &&
		   start_with(open(words[1], O_RDWR | O_CLOEXEC))) {
		soil(SECRET);
		puts("{\"ok\":true}");
	} else {
		fail("not understood, or not possible");
	}
}

int main(int argc, char **argv)
{
	char line[1024];
	if (argc > 1 && strcmp(argv[1], "--list") == 0) {
		for (size_t i = 0; i < sizeof attacks / sizeof *attacks; i++)
			puts(attacks[i].name);
		return 0;
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	setvbuf(stdin, NULL, _IONBF, 0); /* what a fork would read twice must not be buffered */
	signal(SIGBUS, on_bus_error);
	for (int i = 0; i < OPENERS; i++)
		late_fds[i] = -1;
	while (fgets(line, sizeof line, stdin))
		run_command(line);
	return 0;
}
