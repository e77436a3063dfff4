/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * hold - a process that holds leased memory, as a VM does: it reads all of it, writes all of it, misbehaves
 * on demand.
 *
 * It knows hpzd only through hpz.h. One line of JSON says what it got, then each line on standard input is a
 * command and is answered with one line of JSON, {"ok":true,...} or {"ok":false,"error":...}. End of input
 * ends it. `hold --help` lists options and commands.
 */
#include <hpz.h>

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <linux/falloc.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define MAX_SEGMENTS 253
#define MAX_ROUNDS   10000

static struct hpz *hpz;
static struct hpz_lease *lease;
static struct hpz_lease_request request = HPZ_LEASE_REQUEST_INIT;
static uint64_t lease_id;
static int fds[MAX_SEGMENTS];
static size_t fd_count;
static unsigned char *memory;
static size_t memory_length;
static bool is_mapped_by_us;
static sigjmp_buf bus_error;

static void on_bus_error(int signal_number)
{
	siglongjmp(bus_error, 1);
}

/* ---- answers ---- */

static void print_string(const char *text)
{
	putchar('"');
	for (; *text; text++) {
		if (*text == '"' || *text == '\\')
			printf("\\%c", *text);
		else if ((unsigned char)*text < 0x20)
			printf("\\u%04x", (unsigned)*text);
		else
			putchar(*text);
	}
	putchar('"');
}

static void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void fail(const char *format, ...)
{
	char text[512];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	fputs("{\"ok\":false,\"error\":", stdout);
	print_string(text);
	puts("}");
}

static void fail_hpz(int error)
{
	printf("{\"ok\":false,\"hpz_error\":%d,\"error\":", error);
	print_string(hpz_strerror(error));
	fputs(",\"text\":", stdout);
	print_string(hpz ? hpz_get_error_text(hpz) : "");
	puts("}");
}

static void fail_errno(const char *what)
{
	int number = errno;

	printf("{\"ok\":false,\"errno\":%d,\"error\":", number);
	print_string(what);
	puts("}");
}

static void succeed(void)
{
	puts("{\"ok\":true}");
}

static void print_lease(void)
{
	printf("{\"ok\":true,\"id\":%llu,\"size\":%llu,\"asked\":%llu,\"ready\":%llu,\"zeroed\":%llu,\"pid\":"
	       "%d,"
	       "\"segments\":[",
		(unsigned long long)lease_id, (unsigned long long)hpz_lease_get_size(lease),
		(unsigned long long)hpz_lease_get_asked(lease),
		(unsigned long long)hpz_lease_get_ready(lease),
		(unsigned long long)hpz_lease_get_zeroed(lease), (int)getpid());
	for (size_t i = 0; i < hpz_lease_get_segment_count(lease); i++) {
		struct hpz_segment segment = {.struct_size = sizeof(segment)};
		struct stat status = {0};

		if (hpz_lease_get_segment(lease, i, &segment) != HPZ_OK)
			continue;
		if (i < fd_count)
			fstat(fds[i], &status);
		printf("%s{\"size\":%llu,\"page_size\":%llu,\"node\":%d,\"generation\":%llu,\"inode\":%llu,"
		       "\"path\":",
			i ? "," : "", (unsigned long long)segment.size, (unsigned long long)segment.page_size,
			segment.node, (unsigned long long)segment.generation,
			(unsigned long long)status.st_ino);
		print_string(segment.path);
		putchar('}');
	}
	puts("]}");
}

/* ---- memory ---- */

/* No byte of it is zero, so that a single byte left behind shows. */
static uint64_t get_pattern(uint64_t index, uint64_t tenant)
{
	uint64_t word = (index + 1) * 0x9e3779b97f4a7c15u ^ (tenant + 1) * 0xc2b2ae3d27d4eb4fu;

	return word | 0x0101010101010101u;
}

static size_t find_difference(uint64_t tenant, bool want_zero)
{
	const uint64_t *words = (const uint64_t *)memory;

	for (size_t i = 0; i < memory_length / sizeof(uint64_t); i++) {
		uint64_t wanted = want_zero ? 0 : get_pattern(i, tenant);
		uint64_t wrong = words[i] ^ wanted;

		if (wrong)
			return i * sizeof(uint64_t) + (size_t)__builtin_ctzll(wrong) / 8;
	}
	return SIZE_MAX;
}

static void answer_difference(size_t offset)
{
	if (offset == SIZE_MAX)
		printf("{\"ok\":true,\"equal\":true,\"bytes\":%zu}\n", memory_length);
	else
		printf("{\"ok\":true,\"equal\":false,\"offset\":%zu,\"value\":%u}\n", offset, memory[offset]);
}

static bool wait_for_input(int milliseconds)
{
	struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};

	return poll(&input, 1, milliseconds) != 0;
}

static uint64_t get_nanoseconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static int map_file(int fd, size_t length)
{
	memory = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (memory == MAP_FAILED) {
		memory = NULL;
		return -1;
	}
	memory_length = length;
	is_mapped_by_us = true;
	return 0;
}

/* ---- commands; each answers with exactly one line ---- */

static void do_map(const char *argument)
{
	void *address = NULL;
	int error;

	if (!lease) {
		fail("no lease");
		return;
	}
	error = hpz_map(hpz, lease, &address, &memory_length);
	if (error) {
		fail_hpz(error);
		return;
	}
	memory = address;
	succeed();
}

/* "dirty": how many bytes are not zero. */
static void do_check_zero(const char *argument)
{
	size_t dirty = 0, first = find_difference(0, true);

	for (size_t i = first; i < memory_length; i++)
		dirty += memory[i] != 0;
	printf("{\"ok\":true,\"equal\":%s,\"bytes\":%zu,\"dirty\":%zu", dirty ? "false" : "true",
		memory_length, dirty);
	if (dirty)
		printf(",\"offset\":%zu,\"value\":%u", first, memory[first]);
	puts("}");
}

static void do_fill(const char *argument)
{
	uint64_t tenant = strtoull(argument, NULL, 0), *words = (uint64_t *)memory;

	for (size_t i = 0; i < memory_length / sizeof(uint64_t); i++)
		words[i] = get_pattern(i, tenant);
	succeed();
}

static void do_verify(const char *argument)
{
	answer_difference(find_difference(strtoull(argument, NULL, 0), false));
}

/* Verifies again and again, with that pause in between, until the next command arrives. */
static void do_loop_verify(const char *argument)
{
	char *rest;
	uint64_t tenant = strtoull(argument, &rest, 0);
	int pause_ms = (int)strtol(rest, NULL, 0);
	unsigned long rounds = 0;
	size_t offset = SIZE_MAX;

	do {
		offset = find_difference(tenant, false);
		rounds++;
	} while (offset == SIZE_MAX && !wait_for_input(pause_ms));
	printf("{\"ok\":true,\"equal\":%s,\"rounds\":%lu}\n", offset == SIZE_MAX ? "true" : "false", rounds);
}

static void do_unmap(const char *argument)
{
	if (is_mapped_by_us)
		munmap(memory, memory_length);
	else if (lease)
		hpz_unmap(lease);
	memory = NULL;
	is_mapped_by_us = false;
	succeed();
}

/* Closes every descriptor of the memory and what hpz_map() mapped; the lease goes on. */
static void do_close(const char *argument)
{
	for (size_t i = 0; i < fd_count; i++)
		close(fds[i]);
	fd_count = 0;
	hpz_lease_free(lease);
	lease = NULL;
	if (!is_mapped_by_us)
		memory = NULL;
	succeed();
}

static void get_offset_length(const char *argument, off_t *ret_offset, off_t *ret_length)
{
	char *rest;

	*ret_offset = (off_t)strtoull(argument, &rest, 0);
	*ret_length = (off_t)strtoull(rest, NULL, 0);
}

static void do_punch(const char *argument)
{
	off_t offset, length;

	get_offset_length(argument, &offset, &length);
	if (fallocate(fds[0], FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, length) < 0)
		fail_errno("fallocate: punch");
	else
		succeed();
}

static void do_truncate(const char *argument)
{
	if (ftruncate(fds[0], (off_t)strtoull(argument, NULL, 0)) < 0)
		fail_errno("ftruncate");
	else
		succeed();
}

static void do_allocate(const char *argument)
{
	off_t offset, length;

	get_offset_length(argument, &offset, &length);
	if (fallocate(fds[0], 0, offset, length) < 0)
		fail_errno("fallocate");
	else
		succeed();
}

/* Punches the whole first file and allocates it again, until the next command arrives. */
static void do_loop_punch(const char *argument)
{
	unsigned long rounds = 0, failures = 0;
	struct stat status;

	if (fstat(fds[0], &status) < 0) {
		fail_errno("fstat");
		return;
	}
	do {
		if (fallocate(fds[0], FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, status.st_size) < 0 ||
			fallocate(fds[0], 0, 0, status.st_size) < 0)
			failures++;
		rounds++;
	} while (!wait_for_input(0));
	printf("{\"ok\":true,\"rounds\":%lu,\"failures\":%lu}\n", rounds, failures);
}

static void do_touch(const char *argument)
{
	size_t offset = strtoull(argument, NULL, 0);

	if (offset >= memory_length) {
		fail("beyond the memory");
		return;
	}
	*(volatile unsigned char *)(memory + offset) = 0x5a;
	succeed();
}

/* A pipe keeps a page of the memory (the first at OFFSET), though nothing is mapped or open any more. */
static void do_pin(const char *argument)
{
	size_t offset = strtoull(argument, NULL, 0);
	struct iovec part = {memory + offset, 4096};
	static int pipe_fds[2] = {-1, -1};

	if (pipe_fds[0] < 0 && pipe2(pipe_fds, O_CLOEXEC) < 0)
		fail_errno("pipe");
	else if (offset >= memory_length || vmsplice(pipe_fds[1], &part, 1, 0) < 0)
		fail_errno("vmsplice");
	else
		succeed();
}

/* Keeps the name of the first file, or of PATH, and nothing else. */
static void do_hold_name(const char *argument)
{
	char path[512];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd_count ? fds[0] : -1);
	if (*argument)
		snprintf(path, sizeof(path), "%.*s", (int)strcspn(argument, "\n"), argument);
	if (open(path, O_PATH | O_CLOEXEC) < 0)
		fail_errno(path);
	else
		succeed();
}

/* Takes a file lease (F_SETLEASE), as hpzd's own proof does. */
static void do_setlease(const char *argument)
{
	if (fcntl(fds[0], F_SETLEASE, F_WRLCK) < 0)
		fail_errno("F_SETLEASE");
	else
		succeed();
}

/* A second file description of the first file, if its mode allows. */
static void do_reopen(const char *argument)
{
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fds[0]);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0) {
		fail_errno("open");
		return;
	}
	if (fd_count < MAX_SEGMENTS)
		fds[fd_count++] = fd;
	succeed();
}

static void do_release(const char *argument)
{
	unsigned flags = strncmp(argument, "wait", 4) ? 0 : HPZ_RELEASE_WAIT;
	int error = hpz_release(hpz, lease_id, flags, flags ? 30000 : 0);

	if (error)
		fail_hpz(error);
	else
		succeed();
}

static void do_reconnect(const char *argument)
{
	int error = hpz_reconnect(hpz);

	if (error)
		fail_hpz(error);
	else
		succeed();
}

static int compare_numbers(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

static void answer_times(uint64_t *times, unsigned count)
{
	qsort(times, count, sizeof(times[0]), compare_numbers);
	printf("{\"ok\":true,\"rounds\":%u,\"median_ns\":%llu,\"p90_ns\":%llu,\"p99_ns\":%llu,"
	       "\"max_ns\":%llu}\n",
		count, (unsigned long long)times[count / 2], (unsigned long long)times[count * 9 / 10],
		(unsigned long long)times[count * 99 / 100], (unsigned long long)times[count - 1]);
}

/* time-leases SIZE ROUNDS: leases and releases; the time of the lease call alone. */
static void do_time_leases(const char *argument)
{
	static uint64_t times[MAX_ROUNDS];
	struct hpz_lease_request timed = HPZ_LEASE_REQUEST_INIT;
	unsigned rounds;
	char *rest;

	timed.size = strtoull(argument, &rest, 0);
	timed.timeout_ms = 30000;
	timed.label = "timed";
	rounds = (unsigned)strtoul(rest, NULL, 0);
	if (rounds == 0 || rounds > MAX_ROUNDS) {
		fail("1 to %d rounds", MAX_ROUNDS);
		return;
	}
	for (unsigned i = 0; i < rounds; i++) {
		struct hpz_lease *one = NULL;
		uint64_t begin = get_nanoseconds(), id;
		int error = hpz_lease(hpz, &timed, &one);

		times[i] = get_nanoseconds() - begin;
		if (error) {
			fail_hpz(error);
			return;
		}
		id = hpz_lease_get_id(one);
		hpz_lease_free(one);
		error = hpz_release(hpz, id, 0, 0);
		if (error) {
			fail_hpz(error);
			return;
		}
	}
	answer_times(times, rounds);
}

/* time-status ROUNDS */
static void do_time_status(const char *argument)
{
	static uint64_t times[MAX_ROUNDS];
	unsigned rounds = (unsigned)strtoul(argument, NULL, 0);

	if (rounds == 0 || rounds > MAX_ROUNDS) {
		fail("1 to %d rounds", MAX_ROUNDS);
		return;
	}
	for (unsigned i = 0; i < rounds; i++) {
		struct hpz_status *status = NULL;
		uint64_t begin = get_nanoseconds();
		int error = hpz_get_status(hpz, &status);

		times[i] = get_nanoseconds() - begin;
		if (error) {
			fail_hpz(error);
			return;
		}
		hpz_status_free(status);
	}
	answer_times(times, rounds);
}

enum need { NEED_NOTHING, NEED_MEMORY, NEED_FILE, NEED_HPZ };

static const struct command {
	const char *name, *arguments;
	void (*run)(const char *argument);
	enum need need;
} commands[] = {
	{"map", "", do_map, NEED_HPZ},
	{"check-zero", "", do_check_zero, NEED_MEMORY},
	{"fill", "TENANT", do_fill, NEED_MEMORY},
	{"verify", "TENANT", do_verify, NEED_MEMORY},
	{"loop-verify", "TENANT [PAUSE_MS]", do_loop_verify, NEED_MEMORY},
	{"unmap", "", do_unmap, NEED_MEMORY},
	{"close", "", do_close, NEED_NOTHING},
	{"touch", "OFFSET", do_touch, NEED_MEMORY},
	{"punch", "OFFSET LENGTH", do_punch, NEED_FILE},
	{"allocate", "OFFSET LENGTH", do_allocate, NEED_FILE},
	{"truncate", "LENGTH", do_truncate, NEED_FILE},
	{"loop-punch", "", do_loop_punch, NEED_FILE},
	{"pin", "OFFSET", do_pin, NEED_MEMORY},
	{"hold-name", "[PATH]", do_hold_name, NEED_NOTHING},
	{"setlease", "", do_setlease, NEED_FILE},
	{"reopen", "", do_reopen, NEED_FILE},
	{"release", "[wait]", do_release, NEED_HPZ},
	{"reconnect", "", do_reconnect, NEED_HPZ},
	{"time-leases", "SIZE ROUNDS", do_time_leases, NEED_HPZ},
	{"time-status", "ROUNDS", do_time_status, NEED_HPZ},
};

static void run_command(char *line)
{
	char *argument = line + strcspn(line, " \n");

	while (*argument == ' ' || *argument == '\n')
		*argument++ = '\0';
	for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
		const struct command *command = &commands[i];

		if (strcmp(command->name, line) != 0)
			continue;
		if (command->need == NEED_MEMORY && !memory)
			fail("nothing is mapped");
		else if (command->need == NEED_FILE && fd_count == 0)
			fail("no file is open");
		else if (command->need == NEED_HPZ && !hpz)
			fail("not connected");
		else
			command->run(argument);
		return;
	}
	fail("unknown command: %s", line);
}

/* ---- start ---- */

static const struct option options[] = {
	{"size", required_argument, NULL, 's'},
	{"page-size", required_argument, NULL, 'p'},
	{"label", required_argument, NULL, 'l'},
	{"key", required_argument, NULL, 'k'},
	{"timeout", required_argument, NULL, 't'},
	{"unbound", no_argument, NULL, 'u'},
	{"reopenable", no_argument, NULL, 'r'},
	{"path", no_argument, NULL, 'P'},
	{"segments", no_argument, NULL, 'S'},
	{"open", required_argument, NULL, 'o'},
	{"no-map", no_argument, NULL, 'n'},
	{"help", no_argument, NULL, 'h'},
	{NULL, 0, NULL, 0},
};

static void print_help(void)
{
	puts("hold [--size BYTES] [--page-size BYTES] [--label LABEL] [--key KEY] [--timeout MS] "
	     "[--unbound]\n"
	     "     [--reopenable] [--path] [--segments] [--no-map]     lease memory and map it; without "
	     "--size only "
	     "connect\n"
	     "hold --open FILE                            map a file of somebody's lease\n"
	     "Commands on standard input:");
	for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
		printf("  %s %s\n", commands[i].name, commands[i].arguments);
}

static int start_with_file(const char *path)
{
	struct stat status;

	fds[0] = open(path, O_RDWR | O_CLOEXEC);
	if (fds[0] < 0) {
		fail_errno(path);
		return -1;
	}
	fd_count = 1;
	if (fstat(fds[0], &status) < 0 || map_file(fds[0], (size_t)status.st_size) < 0) {
		fail_errno("mmap");
		return -1;
	}
	printf("{\"ok\":true,\"size\":%zu,\"pid\":%d}\n", memory_length, (int)getpid());
	return 0;
}

/* Descriptors of our own beside the lease's: they outlive hpz_lease_free() until `close`. */
static void take_descriptors(void)
{
	for (size_t i = 0; i < hpz_lease_get_segment_count(lease) && i < MAX_SEGMENTS; i++) {
		struct hpz_segment segment = {.struct_size = sizeof(segment)};
		int fd = -1;

		if (hpz_lease_get_segment(lease, i, &segment) == HPZ_OK)
			fd = segment.fd >= 0 ? fcntl(segment.fd, F_DUPFD_CLOEXEC, 3)
					     : open(segment.path, O_RDWR | O_CLOEXEC);
		if (fd >= 0)
			fds[fd_count++] = fd;
	}
}

static int start_with_lease(bool is_mapped)
{
	void *address = NULL;
	int error = hpz_connect(NULL, &hpz);

	if (error == HPZ_OK && request.size == 0) {
		printf("{\"ok\":true,\"pid\":%d}\n", (int)getpid());
		return 0;
	}
	if (error == HPZ_OK)
		error = hpz_lease(hpz, &request, &lease);
	if (error == HPZ_OK) {
		lease_id = hpz_lease_get_id(lease);
		if (is_mapped)
			error = hpz_map(hpz, lease, &address, &memory_length);
		memory = address;
	}
	if (error) {
		fail_hpz(error);
		return -1;
	}
	take_descriptors();
	print_lease();
	return 0;
}

int main(int argc, char **argv)
{
	const char *path = NULL;
	bool is_mapped = true;
	char line[256];
	int option;

	setvbuf(stdout, NULL, _IOLBF, 0);
	signal(SIGBUS, on_bus_error);
	signal(SIGPIPE, SIG_IGN);
	/* Without handler SIGIO would end us when somebody opens what we hold a file lease on. */
	signal(SIGIO, SIG_IGN);
	while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (option) {
		case 's':
			request.size = strtoull(optarg, NULL, 0);
			break;
		case 'p':
			request.page_size = strtoull(optarg, NULL, 0);
			break;
		case 'l':
			request.label = optarg;
			break;
		case 'k':
			request.key = optarg;
			break;
		case 't':
			request.timeout_ms = strtoll(optarg, NULL, 0);
			break;
		case 'u':
			request.flags |= HPZ_LEASE_UNBOUND;
			break;
		case 'r':
			request.flags |= HPZ_LEASE_REOPENABLE;
			break;
		case 'P':
			request.deliver = HPZ_DELIVER_PATH;
			break;
		case 'S':
			request.flags |= HPZ_LEASE_SEGMENTS;
			break;
		case 'o':
			path = optarg;
			break;
		case 'n':
			is_mapped = false;
			break;
		case 'h':
			print_help();
			return 0;
		default:
			return 2;
		}
	}
	if ((path ? start_with_file(path) : start_with_lease(is_mapped)) < 0)
		return 1;
	/* Read byte for byte: what is still in a buffer would be invisible to poll(). */
	setvbuf(stdin, NULL, _IONBF, 0);
	while (fgets(line, sizeof(line), stdin)) {
		if (sigsetjmp(bus_error, 1))
			puts("{\"ok\":false,\"sigbus\":true,\"error\":\"SIGBUS\"}");
		else
			run_command(line);
	}
	return 0;
}
