/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * host.c - reads nodes, page sizes and counters from sysfs, and raises or lowers the kernel's pools.
 * Owns the lists of nodes and page sizes. Must not keep counters: they are anybody's and change any time.
 */
#include "host.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>

#define NODE_DIR "/sys/devices/system/node"
#define PAGE_DIR "/sys/kernel/mm/hugepages"
/* A CPU list of a node with every other CPU of 8192 is about 20 KiB; sysfs itself ends at one page. */
#define TEXT_MAX 4096

static void cleanup_dir(DIR **dir)
{
	if (*dir)
		closedir(*dir);
}
#define _cleanup_dir_ __attribute__((cleanup(cleanup_dir)))

/* ---- files ---- */

/* A file of one line: the kernel gives all that there is at once, and its end tells that it did. */
static int read_text(const char *path, char *text, size_t capacity, size_t *ret_length)
{
	_cleanup_fd_ int fd = open(path, O_RDONLY | O_CLOEXEC);
	size_t length = 0;

	if (fd < 0)
		return -errno;
	for (;;) {
		ssize_t n = read(fd, text + length, capacity - 1 - length);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			break;
		length += (size_t)n;
		if (length == capacity - 1)
			return -ENOBUFS;
		if (text[length - 1] == '\n')
			break;
	}
	text[length] = 0;
	*ret_length = length;
	return 0;
}

static int read_line(const char *path, char *text, size_t capacity)
{
	size_t length;
	int r = read_text(path, text, capacity, &length);

	if (r < 0)
		return r;
	text[strcspn(text, "\n")] = 0;
	return 0;
}

static int read_number(const char *path, uint64_t *ret_number)
{
	char text[64], *end;
	uint64_t number;
	int r = read_line(path, text, sizeof text);

	if (r < 0)
		return r;
	if (text[0] < '0' || text[0] > '9')
		return -EBADMSG;
	errno = 0;
	number = strtoull(text, &end, 10);
	if (errno || *end)
		return -EBADMSG;
	*ret_number = number;
	return 0;
}

static int write_number(const char *path, uint64_t number)
{
	/* O_TRUNC means nothing to sysfs and makes a test's plain file behave like it. */
	_cleanup_fd_ int fd = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC);
	char text[32];
	int length = snprintf(text, sizeof text, "%" PRIu64 "\n", number);
	ssize_t n;

	if (fd < 0)
		return -errno;
	n = write(fd, text, (size_t)length);
	if (n < 0)
		return -errno;
	return n == length ? 0 : -EIO;
}

/* ---- what there is ---- */

/* The number between prefix and suffix, as in "hugepages-2048kB": digits only. */
static bool parse_name(const char *name, const char *prefix, const char *suffix, uint64_t *ret_number)
{
	size_t length = strlen(prefix);
	char *end;

	if (strncmp(name, prefix, length) != 0 || name[length] < '0' || name[length] > '9')
		return false;
	errno = 0;
	*ret_number = strtoull(name + length, &end, 10);
	return !errno && strcmp(end, suffix) == 0;
}

static int compare_numbers(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
	return (x > y) - (x < y);
}

/* The numbers in the names of a directory, ascending; none when there is no such directory. */
static int list_numbers(const char *path, const char *prefix, const char *suffix, uint64_t max,
	uint64_t **ret_numbers, size_t *ret_count)
{
	_cleanup_dir_ DIR *dir = opendir(path);
	_cleanup_free_ uint64_t *numbers = NULL;
	size_t count = 0;
	struct dirent *entry;

	if (!dir && errno != ENOENT)
		return -errno;
	while (dir && (errno = 0, entry = readdir(dir))) {
		uint64_t number, *more;
		if (!parse_name(entry->d_name, prefix, suffix, &number) || number > max)
			continue;
		more = reallocarray(numbers, count + 1, sizeof *numbers);
		if (!more)
			return -ENOMEM;
		numbers = more;
		numbers[count++] = number;
	}
	if (dir && errno)
		return -errno;
	if (count)
		qsort(numbers, count, sizeof *numbers, compare_numbers);
	*ret_numbers = steal_pointer(&numbers);
	*ret_count = count;
	return 0;
}

static int init_nodes(struct host *host)
{
	_cleanup_free_ uint64_t *numbers = NULL;
	char path[PATH_MAX];
	size_t count;
	int r;

	snprintf(path, sizeof path, "%s" NODE_DIR, host->root);
	r = list_numbers(path, "node", "", HOST_NODES_MAX - 1, &numbers, &count);
	if (r < 0)
		return r;
	host->nodes = calloc(MAX(count, (size_t)1), sizeof *host->nodes);
	if (!host->nodes)
		return -ENOMEM;
	for (size_t i = 0; i < count; i++)
		host->nodes[i] = (int32_t)numbers[i];
	host->has_numa = count > 0;
	host->node_count = MAX(count, (size_t)1);
	return 0;
}

static int init_page_sizes(struct host *host)
{
	char path[PATH_MAX];
	int r;

	snprintf(path, sizeof path, "%s" PAGE_DIR, host->root);
	r = list_numbers(
		path, "hugepages-", "kB", UINT64_MAX >> 10, &host->page_sizes, &host->page_size_count);
	for (size_t i = 0; i < host->page_size_count; i++)
		host->page_sizes[i] <<= 10;
	return r;
}

int host_init(struct host *host, const char *root)
{
	struct host made = {0};
	int r;

	made.root = strdup(root ? root : "");
	if (!made.root)
		return -ENOMEM;
	r = strlen(made.root) > PATH_MAX / 2 ? -ENAMETOOLONG : init_nodes(&made);
	if (r == 0)
		r = init_page_sizes(&made);
	if (r < 0) {
		host_deinit(&made);
		return r;
	}
	*host = made;
	return 0;
}

void host_deinit(struct host *host)
{
	free(host->root);
	free(host->nodes);
	free(host->page_sizes);
	*host = (struct host){0};
}

bool host_has_node(const struct host *host, int32_t node)
{
	for (size_t i = 0; i < host->node_count; i++)
		if (host->nodes[i] == node)
			return true;
	return false;
}

bool host_has_page_size(const struct host *host, uint64_t page_size)
{
	for (size_t i = 0; i < host->page_size_count; i++)
		if (host->page_sizes[i] == page_size)
			return true;
	return false;
}

/* ---- counters ---- */

static void make_machine_path(
	const struct host *host, uint64_t page_size, const char *counter, char path[PATH_MAX])
{
	snprintf(path, PATH_MAX, "%s" PAGE_DIR "/hugepages-%" PRIu64 "kB/%s", host->root, page_size >> 10,
		counter);
}

static void make_node_path(
	const struct host *host, int32_t node, uint64_t page_size, const char *counter, char path[PATH_MAX])
{
	if (!host->has_numa)
		make_machine_path(host, page_size, counter, path);
	else
		snprintf(path, PATH_MAX,
			"%s" NODE_DIR "/node%" PRId32 "/hugepages/hugepages-%" PRIu64 "kB/%s", host->root,
			node, page_size >> 10, counter);
}

static int read_machine_counter(
	const struct host *host, uint64_t page_size, const char *counter, uint64_t *ret_pages)
{
	char path[PATH_MAX];

	make_machine_path(host, page_size, counter, path);
	return read_number(path, ret_pages);
}

static int read_node_counter(
	const struct host *host, int32_t node, uint64_t page_size, const char *counter, uint64_t *ret_pages)
{
	char path[PATH_MAX];

	make_node_path(host, node, page_size, counter, path);
	return read_number(path, ret_pages);
}

#define SIMULATED_PAGES ((uint64_t)1 << 40)

int host_get_counters(
	const struct host *host, int32_t node, uint64_t page_size, struct host_counters *ret_counters)
{
	struct host_counters c;
	int r;

	if (!host_has_node(host, node))
		return -ENOENT;
	if (host->is_simulated) {
		*ret_counters = (struct host_counters){.nr = SIMULATED_PAGES, .free = SIMULATED_PAGES / 2};
		return 0;
	}
	if ((r = read_node_counter(host, node, page_size, "nr_hugepages", &c.nr)) < 0 ||
		(r = read_node_counter(host, node, page_size, "free_hugepages", &c.free)) < 0 ||
		(r = read_node_counter(host, node, page_size, "surplus_hugepages", &c.surplus)) < 0 ||
		(r = read_machine_counter(host, page_size, "resv_hugepages", &c.resv)) < 0)
		return r;
	*ret_counters = c;
	return 0;
}

/* ---- raising and lowering ---- */

/*
 * How many pages may go without one in use becoming surplus. The kernel holds back reserved pages of the
 * whole machine from any node (set_max_huge_pages: min_count = resv + nr - free) and makes surplus of what it
 * cannot free.
 */
static int get_lowerable(
	const struct host *host, uint64_t page_size, const struct host_counters *c, uint64_t *ret_pages)
{
	uint64_t machine_free;
	int r = read_machine_counter(host, page_size, "free_hugepages", &machine_free);

	if (r < 0)
		return r;
	*ret_pages = MIN(c->free, machine_free > c->resv ? machine_free - c->resv : 0);
	return 0;
}

/* Pages the kernel keeps by order. What the file takes are these; what it reads back includes surplus. */
static uint64_t persistent_pages(const struct host_counters *c)
{
	return c->nr > c->surplus ? c->nr - c->surplus : 0;
}

int host_add_nr(const struct host *host, int32_t node, uint64_t page_size, int64_t pages,
	uint64_t *ret_before, uint64_t *ret_after)
{
	struct host_counters c, now;
	uint64_t before, target, lowerable;
	char path[PATH_MAX];
	int r = host_get_counters(host, node, page_size, &c);

	if (r < 0)
		return r;
	before = persistent_pages(&c);
	if (pages >= 0) {
		target = before + (uint64_t)pages;
	} else {
		r = get_lowerable(host, page_size, &c, &lowerable);
		if (r < 0)
			return r;
		target = before - MIN(MIN(before, lowerable), -(uint64_t)pages);
	}
	if (target != before) {
		make_node_path(host, node, page_size, "nr_hugepages", path);
		r = write_number(path, target);
		if (r < 0)
			return r;
		r = host_get_counters(host, node, page_size, &now);
		if (r < 0)
			return r;
		c = now;
	}
	*ret_before = before;
	*ret_after = persistent_pages(&c);
	return 0;
}

int host_compact(const struct host *host, int32_t node)
{
	char path[PATH_MAX];

	/* Of the node: elsewhere nobody lacks anything. */
	if (host->has_numa)
		snprintf(path, sizeof path, "%s" NODE_DIR "/node%" PRId32 "/compact", host->root, node);
	else
		snprintf(path, sizeof path, "%s/proc/sys/vm/compact_memory", host->root);
	return write_number(path, 1);
}

int host_get_demote_size(const struct host *host, uint64_t page_size, uint64_t *ret_page_size)
{
	char path[PATH_MAX], line[64];
	uint64_t kib;

	make_machine_path(host, page_size, "demote_size", path);
	int r = read_line(path, line, sizeof line);
	if (r < 0)
		return r;
	if (!parse_name(line, "", "kB", &kib) || kib == 0 || kib > page_size >> 11)
		return -EBADMSG;
	*ret_page_size = kib << 10;
	return 0;
}

int host_demote(const struct host *host, int32_t node, uint64_t page_size, uint64_t pages, uint64_t *ret_done)
{
	struct host_counters before, after;
	char path[PATH_MAX];
	int r = host_get_counters(host, node, page_size, &before);

	if (r < 0)
		return r;
	make_node_path(host, node, page_size, "demote", path);
	/* It fails after the first pages, too: what counts is how many are gone. */
	int written = write_number(path, pages);
	r = host_get_counters(host, node, page_size, &after);
	if (r < 0)
		return r;
	/* Surplus comes and goes with its holders. */
	uint64_t kept = persistent_pages(&before);
	*ret_done = MIN(kept - MIN(kept, persistent_pages(&after)), pages);
	return *ret_done > 0 ? 0 : written;
}

/* ---- free pages that the kernel zeroes ---- */

#define ZEROABLE "zeroable_hugepages"

/* The node's own file, or the machine's where there is one node. */
static void make_zeroable_path(const struct host *host, int32_t node, uint64_t page_size, char path[PATH_MAX])
{
	make_node_path(host, node, page_size, ZEROABLE, path);
	if (host->node_count == 1 && access(path, F_OK) < 0)
		make_machine_path(host, page_size, ZEROABLE, path);
}

int host_get_zeroable(const struct host *host, int32_t node, uint64_t page_size, uint64_t *ret_pages)
{
	char path[PATH_MAX];

	if (!host_has_node(host, node))
		return -ENOENT;
	make_zeroable_path(host, node, page_size, path);
	return read_number(path, ret_pages);
}

int host_open_zeroable(const struct host *host, int32_t node, uint64_t page_size)
{
	char path[PATH_MAX];

	make_zeroable_path(host, node, page_size, path);
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

/* ---- CPUs, boot, processes ---- */

int host_get_cpulist(const struct host *host, int32_t node, char *ret_list, size_t capacity)
{
	char path[PATH_MAX], text[TEXT_MAX];
	int r;

	if (!host_has_node(host, node))
		return -ENOENT;
	if (host->has_numa)
		snprintf(path, sizeof path, "%s" NODE_DIR "/node%" PRId32 "/cpulist", host->root, node);
	else
		snprintf(path, sizeof path, "%s/sys/devices/system/cpu/online", host->root);
	r = read_line(path, text, sizeof text);
	if (r < 0)
		return r;
	if (strlen(text) >= capacity)
		return -ENOBUFS;
	strcpy(ret_list, text);
	return 0;
}

static int parse_cpu(const char **at, unsigned long *ret_cpu)
{
	char *end;

	if (**at < '0' || **at > '9')
		return -EINVAL;
	errno = 0;
	*ret_cpu = strtoul(*at, &end, 10);
	if (errno || *ret_cpu >= HOST_CPUS_MAX)
		return -EINVAL;
	*at = end;
	return 0;
}

int host_parse_cpulist(const char *text, struct host_cpus *ret_cpus)
{
	struct host_cpus cpus = {{0}};
	const char *at = text;
	size_t width = 8 * sizeof cpus.bits[0];

	while (*at) {
		unsigned long first, last;
		if (parse_cpu(&at, &first) < 0)
			return -EINVAL;
		last = first;
		if (*at == '-' && (at++, parse_cpu(&at, &last) < 0))
			return -EINVAL;
		if (last < first || (*at && *at != ',') || (*at == ',' && !*++at))
			return -EINVAL;
		for (unsigned long cpu = first; cpu <= last; cpu++)
			cpus.bits[cpu / width] |= 1ul << cpu % width;
	}
	*ret_cpus = cpus;
	return 0;
}

unsigned host_count_cpus(const struct host_cpus *cpus)
{
	unsigned count = 0;

	for (size_t i = 0; i < ARRAY_SIZE(cpus->bits); i++)
		count += (unsigned)__builtin_popcountl(cpus->bits[i]);
	return count;
}

void host_and_cpus(const struct host_cpus *a, const struct host_cpus *b, struct host_cpus *ret_cpus)
{
	for (size_t i = 0; i < ARRAY_SIZE(a->bits); i++)
		ret_cpus->bits[i] = a->bits[i] & b->bits[i];
}

int host_get_boot_id(const struct host *host, char ret_id[37])
{
	char path[PATH_MAX], text[64];
	int r;

	snprintf(path, sizeof path, "%s/proc/sys/kernel/random/boot_id", host->root);
	r = read_line(path, text, sizeof text);
	if (r < 0)
		return r;
	if (strlen(text) != 36)
		return -EBADMSG;
	memcpy(ret_id, text, 37);
	return 0;
}

static int read_process_file(
	const struct host *host, pid_t pid, const char *name, char *text, size_t capacity)
{
	char path[PATH_MAX];
	size_t length;
	int r;

	snprintf(path, sizeof path, "%s/proc/%d/%s", host->root, (int)pid, name);
	r = read_text(path, text, capacity, &length);
	return r == -ENOENT ? -ESRCH : r;
}

int host_get_start_time(const struct host *host, pid_t pid, uint64_t *ret_ticks)
{
	char text[TEXT_MAX], *field, *end;
	uint64_t ticks;
	int r = read_process_file(host, pid, "stat", text, sizeof text);

	if (r < 0)
		return r;
	/* The command name may hold anything, ')' and spaces too: fields count from the last ')', which ends
	 * field 2. */
	field = strrchr(text, ')');
	for (int i = 2; field && i < 22; i++)
		field = strchr(field + 1, ' ');
	if (!field || field[1] < '0' || field[1] > '9')
		return -EBADMSG;
	errno = 0;
	ticks = strtoull(field + 1, &end, 10);
	if (errno || *end != ' ')
		return -EBADMSG;
	*ret_ticks = ticks;
	return 0;
}

int host_get_comm(const struct host *host, pid_t pid, char ret_comm[17])
{
	char text[64];
	size_t length;
	int r = read_process_file(host, pid, "comm", text, sizeof text);

	if (r < 0)
		return r;
	/* The name ends with the file's last newline; it may hold others. */
	length = strlen(text);
	if (length && text[length - 1] == '\n')
		length--;
	length = MIN(length, (size_t)16);
	for (size_t i = 0; i < length; i++)
		ret_comm[i] = text[i] < 0x20 || text[i] >= 0x7f ? '?' : text[i];
	ret_comm[length] = 0;
	return 0;
}

int host_get_process_uid(const struct host *host, pid_t pid, uint32_t *ret_uid)
{
	char path[PATH_MAX], text[1024];
	unsigned uid;

	/* The line is among the first; the file may be long (groups). */
	snprintf(path, sizeof path, "%s/proc/%d/status", host->root, (int)pid);
	_cleanup_fd_ int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT ? -ESRCH : -errno;
	ssize_t length = read(fd, text, sizeof text - 1);
	if (length < 0)
		return -errno;
	text[length] = 0;
	/* The first line holds the command's name, escaped: no second "\nUid:" can be in it. */
	const char *line = strstr(text, "\nUid:");
	if (!line || sscanf(line, "\nUid: %u", &uid) != 1)
		return -EBADMSG;
	*ret_uid = uid;
	return 0;
}
