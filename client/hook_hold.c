/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* hook_hold.c - huge pages of the kernel's for a domain that gets none of a pool. */
#include "hook_hold.h"

#include <fcntl.h>
#include <inttypes.h>
#include <linux/mempolicy.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/vfs.h>

#include "hook_place.h"
#include "size.h"

#define HOLD_NODES 64
/* The kernel zeroes so much in some 10 ms, and looks for signals and we at the clock in between. */
#define HOLD_PIECE (32ull << 20)

/* ---- what there is ---- */

/* A number in a file of sysfs; 0 when it cannot be read. */
static uint64_t hook_hold_read_number(const char *path)
{
	_cleanup_file_ FILE *file = fopen(path, "re");
	uint64_t number;

	return file && fscanf(file, "%" SCNu64, &number) == 1 ? number : 0;
}

static uint64_t hook_hold_get_free(uint64_t page_size)
{
	char path[128];
	uint64_t free_pages, reserved;

	snprintf(path, sizeof(path), "/sys/kernel/mm/hugepages/hugepages-%" PRIu64 "kB/free_hugepages",
		page_size / 1024);
	free_pages = hook_hold_read_number(path);
	snprintf(path, sizeof(path), "/sys/kernel/mm/hugepages/hugepages-%" PRIu64 "kB/resv_hugepages",
		page_size / 1024);
	reserved = hook_hold_read_number(path);
	return free_pages > reserved ? free_pages - reserved : 0;
}

static void hook_hold_get_node_path(uint64_t page_size, int node, char path[128])
{
	snprintf(path, 128,
		"/sys/devices/system/node/node%d/hugepages/hugepages-%" PRIu64 "kB/free_hugepages", node,
		page_size / 1024);
}

/* Whether each node has enough for what may come from it alone. */
static bool hook_hold_nodes_have_pages(uint64_t page_size, const struct domain_plan *plan)
{
	char path[128];

	for (int node = 0; node < HOLD_NODES; node++) {
		uint64_t pages = 0;
		for (size_t i = 0; i < plan->count; i++) {
			const struct domain_file *file = &plan->files[i];
			if (file->nodes == 1ull << node && !file->is_preferred)
				pages += size_pages(file->size, page_size);
		}
		hook_hold_get_node_path(page_size, node, path);
		if (pages > 0 && pages > hook_hold_read_number(path))
			return false;
	}
	return true;
}

/* Whether the kernel and the mount have so many more. */
static bool hook_hold_has_so_many(int directory, uint64_t page_size, uint64_t pages)
{
	struct statfs fs;

	/* Blocks of a mount without a lid are 0. */
	return fstatfs(directory, &fs) == 0 && (!fs.f_blocks || pages <= (uint64_t)fs.f_bavail) &&
	       pages <= hook_hold_get_free(page_size);
}

bool hook_hold_has_pages(int directory, const struct domain_plan *plan)
{
	uint64_t page_size = hook_place_get_page_size(directory), pages = 0;

	for (size_t i = 0; page_size && i < plan->count; i++)
		pages += size_pages(plan->files[i].size, page_size);
	return page_size && hook_hold_has_so_many(directory, page_size, pages) &&
	       hook_hold_nodes_have_pages(page_size, plan);
}

bool hook_hold_has_room(int directory, uint64_t bytes)
{
	uint64_t page_size = hook_place_get_page_size(directory);

	return page_size && hook_hold_has_so_many(directory, page_size, size_pages(bytes, page_size));
}

/* ---- the hold ---- */

/* The reservation stays with the file when it is no longer mapped. */
static int hook_hold_reserve(int fd, uint64_t bytes)
{
	if (ftruncate(fd, (off_t)bytes) < 0)
		return -errno;
	void *mapped = mmap(NULL, bytes, PROT_NONE, MAP_SHARED, fd, 0);
	if (mapped == MAP_FAILED)
		return -errno;
	munmap(mapped, bytes);
	return 0;
}

/* Whether there are nodes with such pages that it must not come from. */
static bool hook_hold_is_bound(uint64_t page_size, const struct domain_file *file)
{
	char path[128];

	for (int node = 0; file->nodes && !file->is_preferred && node < HOLD_NODES; node++) {
		hook_hold_get_node_path(page_size, node, path);
		if (!(file->nodes >> node & 1) && access(path, F_OK) == 0)
			return true;
	}
	return false;
}

static int hook_hold_allocate_pieces(int fd, uint64_t bytes, uint64_t piece, uint64_t deadline_ns)
{
	uint64_t longest_ns = 0;

	for (uint64_t at = 0; at < bytes; at += piece) {
		uint64_t begin_ns = clock_get_ns(CLOCK_MONOTONIC);
		if (begin_ns + longest_ns >= deadline_ns)
			return -ETIME;
		if (fallocate(fd, 0, (off_t)at, (off_t)MIN(piece, bytes - at)) < 0)
			return -errno;
		longest_ns = MAX(longest_ns, clock_get_ns(CLOCK_MONOTONIC) - begin_ns);
	}
	return 0;
}

/* fallocate() takes pages of the nodes that the caller may have. */
static int hook_hold_allocate(
	int fd, uint64_t bytes, uint64_t page_size, uint64_t nodes, uint64_t deadline_ns)
{
	if (syscall(SYS_set_mempolicy, MPOL_BIND, &nodes, HOLD_NODES + 1) < 0)
		return -errno;
	int r = hook_hold_allocate_pieces(fd, bytes, MAX(page_size, HOLD_PIECE), deadline_ns);
	syscall(SYS_set_mempolicy, MPOL_DEFAULT, NULL, 0);
	return r;
}

int hook_hold_add(int directory, const struct domain_file *file, uint32_t uid, uint32_t gid,
	const char *label, uint64_t deadline_ns)
{
	uint64_t page_size = hook_place_get_page_size(directory);

	if (!page_size || !domain_xml_is_alias(file->alias))
		return -EUCLEAN;
	uint64_t bytes = size_pages(file->size, page_size) * page_size;
	/* Without a name until it is whole: who dies before leaves nothing, not even the reservation. */
	_cleanup_fd_ int fd = hook_place_make_file(directory, uid, gid, label);
	if (fd < 0)
		return fd;
	int r = hook_hold_reserve(fd, bytes);
	if (r == 0 && hook_hold_is_bound(page_size, file))
		r = hook_hold_allocate(fd, bytes, page_size, file->nodes, deadline_ns);
	return r < 0 ? r : hook_place_link_file(directory, file->alias, fd);
}
