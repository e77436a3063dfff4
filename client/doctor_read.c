/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* doctor_read.c - what of this host matters, read below a root. */
#include "doctor.h"

#include <dirent.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include "size.h"

#define DOCTOR_HUGE_ORDER 9 /* 2 MiB of pages of 4 KiB */

/* ---- files ---- */

static FILE *doctor_open(const char *root, const char *path)
{
	char name[PATH_MAX];

	snprintf(name, sizeof(name), "%s%s", root, path);
	return fopen(name, "re");
}

static bool doctor_exists(const char *root, const char *path)
{
	char name[PATH_MAX];
	struct stat st;

	snprintf(name, sizeof(name), "%s%s", root, path);
	return lstat(name, &st) == 0;
}

/* The first line; "" when there is none. */
static bool doctor_read_line(const char *root, const char *path, char *ret_text, size_t capacity)
{
	_cleanup_file_ FILE *file = doctor_open(root, path);

	*ret_text = '\0';
	if (!file || !fgets(ret_text, (int)capacity, file))
		return false;
	ret_text[strcspn(ret_text, "\n")] = '\0';
	return true;
}

static uint64_t doctor_read_number(const char *root, const char *path)
{
	char text[64], *end;

	if (!doctor_read_line(root, path, text, sizeof(text)) || text[0] < '0' || text[0] > '9')
		return DOCTOR_UNKNOWN;
	uint64_t number = strtoull(text, &end, 10);
	return *end ? DOCTOR_UNKNOWN : number;
}

/* Whether a line of a file has it in front of any comment. */
static bool doctor_has(const char *root, const char *path, const char *word)
{
	_cleanup_file_ FILE *file = doctor_open(root, path);
	_cleanup_free_ char *line = NULL;
	size_t capacity = 0;
	bool is_there = false;

	while (file && !is_there && getline(&line, &capacity, file) > 0) {
		line[strcspn(line, "#")] = '\0';
		is_there = strstr(line, word) != NULL;
	}
	return is_there;
}

/* "always [madvise] never": what is chosen; one word without brackets is itself. */
static void doctor_read_chosen(const char *root, const char *path, char ret_word[DOCTOR_NAME])
{
	char text[256];

	doctor_read_line(root, path, text, sizeof(text));
	const char *open = strchr(text, '[');
	size_t length = open ? strcspn(open + 1, "]") : strcspn(text, " ");
	snprintf(ret_word, DOCTOR_NAME, "%.*s", (int)MIN(length, (size_t)DOCTOR_NAME - 1),
		open ? open + 1 : text);
}

/* The next entry of a directory; NULL: no more, or none. */
static const char *doctor_next(DIR *directory)
{
	const struct dirent *entry = directory ? readdir(directory) : NULL;

	return entry ? entry->d_name : NULL;
}

static DIR *doctor_open_directory(const char *root, const char *path)
{
	char name[PATH_MAX];

	snprintf(name, sizeof(name), "%s%s", root, path);
	return opendir(name);
}

static void doctor_close_directory(DIR **directory)
{
	if (*directory)
		closedir(*directory);
}
#define _cleanup_directory_ __attribute__((cleanup(doctor_close_directory)))

/* ---- pages ---- */

static int doctor_compare_sizes(const void *left, const void *right)
{
	const struct doctor_size *a = left, *b = right;

	return a->page_size < b->page_size ? -1 : a->page_size > b->page_size;
}

static uint64_t doctor_read_pages(const char *root, const char *directory, const char *name)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "/sys/kernel/mm/hugepages/%.64s/%s", directory, name);
	uint64_t number = doctor_read_number(root, path);
	return number == DOCTOR_UNKNOWN ? 0 : number;
}

static void doctor_read_sizes(const char *root, struct doctor_host *host)
{
	_cleanup_directory_ DIR *directory = doctor_open_directory(root, "/sys/kernel/mm/hugepages");
	const char *name;
	uint64_t kib;

	while ((name = doctor_next(directory)) && host->size_count < DOCTOR_SIZES) {
		if (sscanf(name, "hugepages-%" SCNu64 "kB", &kib) != 1)
			continue;
		host->sizes[host->size_count++] = (struct doctor_size){
			.page_size = kib << 10,
			.nr = doctor_read_pages(root, name, "nr_hugepages"),
			.free = doctor_read_pages(root, name, "free_hugepages"),
			.reserved = doctor_read_pages(root, name, "resv_hugepages"),
			.surplus = doctor_read_pages(root, name, "surplus_hugepages"),
			.overcommit = doctor_read_pages(root, name, "nr_overcommit_hugepages"),
		};
	}
	qsort(host->sizes, host->size_count, sizeof(*host->sizes), doctor_compare_sizes);
}

/* ---- nodes ---- */

static struct doctor_node *doctor_find_node(struct doctor_host *host, int32_t id)
{
	for (size_t i = 0; i < host->node_count; i++) {
		if (host->nodes[i].id == id)
			return &host->nodes[i];
	}
	return NULL;
}

static int doctor_compare_nodes(const void *left, const void *right)
{
	const struct doctor_node *a = left, *b = right;

	return a->id < b->id ? -1 : a->id > b->id;
}

/* "Node 0 MemTotal:  24036648 kB" */
static uint64_t doctor_read_memory(const char *root, int32_t id)
{
	char path[PATH_MAX], line[256];
	uint64_t kib = 0;

	snprintf(path, sizeof(path), "/sys/devices/system/node/node%" PRId32 "/meminfo", id);
	_cleanup_file_ FILE *file = doctor_open(root, path);
	while (file && fgets(line, sizeof(line), file)) {
		if (sscanf(line, "Node %*d MemTotal: %" SCNu64 " kB", &kib) == 1)
			return kib << 10;
	}
	return 0;
}

/* "Node 0, zone   Normal      5      3 ...": free blocks of each order; from the tenth on they are of 2 MiB
 * and more. */
static void doctor_read_buddies(const char *root, struct doctor_host *host)
{
	_cleanup_file_ FILE *file = doctor_open(root, "/proc/buddyinfo");
	_cleanup_free_ char *line = NULL;
	size_t capacity = 0;
	int32_t id;
	int skipped;

	while (file && getline(&line, &capacity, file) > 0) {
		if (sscanf(line, "Node %" SCNd32 ", zone %*s%n", &id, &skipped) != 1)
			continue;
		struct doctor_node *node = doctor_find_node(host, id);
		const char *at = line + skipped;
		uint64_t blocks;
		int used;
		for (unsigned order = 0;
			node && order < 32 && sscanf(at, "%" SCNu64 "%n", &blocks, &used) == 1; order++) {
			if (order >= DOCTOR_HUGE_ORDER)
				node->free_2m += blocks << (order - DOCTOR_HUGE_ORDER);
			at += used;
		}
	}
}

static void doctor_read_nodes(const char *root, struct doctor_host *host)
{
	_cleanup_directory_ DIR *directory = doctor_open_directory(root, "/sys/devices/system/node");
	char path[PATH_MAX];
	const char *name;
	int32_t id;

	while ((name = doctor_next(directory)) && host->node_count < DOCTOR_NODES) {
		if (sscanf(name, "node%" SCNd32, &id) != 1)
			continue;
		snprintf(path, sizeof(path),
			"/sys/devices/system/node/node%" PRId32 "/hugepages/hugepages-2048kB/nr_hugepages",
			id);
		uint64_t pages = doctor_read_number(root, path);
		host->nodes[host->node_count++] = (struct doctor_node){.id = id,
			.memory = doctor_read_memory(root, id),
			.nr_2m = pages == DOCTOR_UNKNOWN ? 0 : pages};
	}
	qsort(host->nodes, host->node_count, sizeof(*host->nodes), doctor_compare_nodes);
	for (size_t i = 0; i < host->node_count; i++)
		host->memory += host->nodes[i].memory;
	doctor_read_buddies(root, host);
}

/* ---- mounts ---- */

static uint64_t doctor_get_option(const char *options, const char *name)
{
	const char *found = strstr(options, name);
	char value[32];
	uint64_t bytes;

	if (!found)
		return 0;
	snprintf(value, sizeof(value), "%.*s", (int)strcspn(found + strlen(name), ", \n"),
		found + strlen(name));
	return size_parse(value, &bytes) == 0 ? bytes : 0;
}

/* "41 29 0:38 / /mnt rw,relatime - hugetlbfs none rw,pagesize=2M" */
static void doctor_read_mounts(const char *root, struct doctor_host *host)
{
	_cleanup_file_ FILE *file = doctor_open(root, "/proc/self/mountinfo");
	_cleanup_free_ char *line = NULL;
	size_t capacity = 0;

	while (file && host->mount_count < DOCTOR_MOUNTS && getline(&line, &capacity, file) > 0) {
		struct doctor_mount *mount = &host->mounts[host->mount_count];
		const char *end = strstr(line, " - hugetlbfs ");
		if (!end || sscanf(line, "%*u %*u %*s %*s %255s", mount->path) != 1)
			continue;
		mount->page_size = doctor_get_option(end, "pagesize=");
		mount->has_size = strstr(end, ",size=") != NULL;
		host->mount_count++;
	}
}

/* ---- control groups ---- */

static void doctor_read_limit(const char *root, struct doctor_host *host, const char *group, const char *file)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "/sys/fs/cgroup%s/%s", group, file);
	uint64_t bytes = doctor_read_number(root, path); /* "max" is none */
	if (bytes == DOCTOR_UNKNOWN || host->limit_count == DOCTOR_LIMITS)
		return;
	struct doctor_limit *limit = &host->limits[host->limit_count++];
	snprintf(limit->group, sizeof(limit->group), "%s", group);
	snprintf(limit->file, sizeof(limit->file), "%s", file);
	limit->bytes = bytes;
}

static void doctor_read_limits(const char *root, struct doctor_host *host)
{
	static const char *const groups[] = {"/machine.slice", "/hpz.slice", "/system.slice",
		"/system.slice/hpzd.service", "/system.slice/libvirtd.service"};
	static const char *const files[] = {
		"hugetlb.2MB.max", "hugetlb.1GB.max", "hugetlb.2MB.rsvd.max", "hugetlb.1GB.rsvd.max"};

	for (size_t i = 0; i < ARRAY_SIZE(groups); i++) {
		for (size_t j = 0; j < ARRAY_SIZE(files); j++)
			doctor_read_limit(root, host, groups[i], files[j]);
	}
	doctor_read_limit(root, host, "/hpz.slice", "memory.max");
	doctor_read_limit(root, host, "/system.slice/hpzd.service", "memory.max");
}

/* ---- libvirt ---- */

/* A line `key = "value"` of qemu.conf. */
static void doctor_read_backing(const char *root, char ret_path[DOCTOR_PATH])
{
	_cleanup_file_ FILE *file = doctor_open(root, "/etc/libvirt/qemu.conf");
	char line[1024];

	*ret_path = '\0';
	while (file && fgets(line, sizeof(line), file))
		sscanf(line, " memory_backing_dir = \"%255[^\"]\"", ret_path);
}

/* "Max locked memory         8388608              8388608              bytes" */
static void doctor_read_memlock(const char *root, const char *pid, struct doctor_host *host)
{
	char path[PATH_MAX], line[256], soft[32];

	snprintf(path, sizeof(path), "/proc/%.20s/limits", pid);
	_cleanup_file_ FILE *file = doctor_open(root, path);
	while (file && fgets(line, sizeof(line), file)) {
		if (sscanf(line, "Max locked memory %31s", soft) != 1)
			continue;
		host->is_memlock_unlimited = strcmp(soft, "unlimited") == 0;
		host->memlock = host->is_memlock_unlimited ? 0 : strtoull(soft, NULL, 10);
	}
}

static void doctor_read_libvirtd(const char *root, struct doctor_host *host)
{
	_cleanup_directory_ DIR *directory = doctor_open_directory(root, "/proc");
	char path[PATH_MAX], comm[32];
	const char *name;

	host->memlock = DOCTOR_UNKNOWN;
	while ((name = doctor_next(directory))) {
		if (name[0] < '1' || name[0] > '9')
			continue;
		snprintf(path, sizeof(path), "/proc/%.20s/comm", name);
		if (doctor_read_line(root, path, comm, sizeof(comm)) &&
			(strcmp(comm, "libvirtd") == 0 || strcmp(comm, "virtqemud") == 0))
			doctor_read_memlock(root, name, host);
	}
}

static void doctor_read_libvirt(const char *root, struct doctor_host *host)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/etc/libvirt/hooks/qemu.d/hpz", root);
	host->has_libvirt = doctor_exists(root, "/etc/libvirt/qemu.conf");
	host->is_hook_there = doctor_exists(root, "/etc/libvirt/hooks/qemu.d/hpz");
	host->is_hook_executable = access(path, X_OK) == 0;
	doctor_read_backing(root, host->backing_dir);
	doctor_read_libvirtd(root, host);
	host->is_apparmor =
		doctor_has(root, "/sys/kernel/security/apparmor/profiles", "libvirtd (enforce)") ||
		doctor_has(root, "/sys/kernel/security/apparmor/profiles", "virtqemud (enforce)");
	host->has_apparmor_rule =
		doctor_has(root, "/etc/apparmor.d/local/usr.sbin.libvirtd", "hpz-libvirt-hook") ||
		doctor_has(root, "/etc/apparmor.d/local/usr.sbin.virtqemud", "hpz-libvirt-hook");
	host->is_selinux = doctor_read_number(root, "/sys/fs/selinux/enforce") == 1;
}

/* ---- the service ---- */

static void doctor_read_service(const char *root, struct doctor_host *host)
{
	static const char *const units[] = {"/etc/systemd/system/hpzd.service",
		"/lib/systemd/system/hpzd.service", "/usr/lib/systemd/system/hpzd.service"};
	char path[PATH_MAX];
	struct statfs system;

	snprintf(path, sizeof(path), "%s/run/hpz", root);
	host->is_run_dir_there = statfs(path, &system) == 0;
	host->is_run_dir_memory =
		host->is_run_dir_there && (system.f_type == TMPFS_MAGIC || system.f_type == RAMFS_MAGIC);
	host->is_systemd = doctor_exists(root, "/run/systemd/system");
	for (size_t i = 0; i < ARRAY_SIZE(units); i++)
		host->is_unit_there |= doctor_exists(root, units[i]);
	host->is_unit_enabled =
		doctor_exists(root, "/etc/systemd/system/multi-user.target.wants/hpzd.service") ||
		doctor_exists(root, "/etc/systemd/system/sockets.target.wants/hpzd.socket");
}

void doctor_read(const char *root, struct doctor_host *ret_host)
{
	*ret_host = (struct doctor_host){0};
	doctor_read_line(root, "/proc/sys/kernel/osrelease", ret_host->release, sizeof(ret_host->release));
	doctor_read_line(root, "/proc/cmdline", ret_host->cmdline, sizeof(ret_host->cmdline));
	ret_host->has_1g_pages = doctor_has(root, "/proc/cpuinfo", " pdpe1gb") ||
				 doctor_exists(root, "/sys/kernel/mm/hugepages/hugepages-1048576kB");
	ret_host->has_btf = doctor_exists(root, "/sys/kernel/btf/vmlinux");
	doctor_read_chosen(root, "/sys/kernel/security/lockdown", ret_host->lockdown);
	doctor_read_chosen(root, "/sys/kernel/mm/transparent_hugepage/enabled", ret_host->thp);
	doctor_read_sizes(root, ret_host);
	doctor_read_nodes(root, ret_host);
	doctor_read_mounts(root, ret_host);
	doctor_read_limits(root, ret_host);
	doctor_read_libvirt(root, ret_host);
	doctor_read_service(root, ret_host);
}
