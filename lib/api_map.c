/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * api_map.c - the segments of a lease as one range of addresses.
 * A range is reserved first, so that no other thread's mapping can come between two segments.
 */
#include "api.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define API_MAP_ALIGNMENT (1ull << 30) /* fits every page size, and lets page tables be shared */

/* A path lease is opened here; a descriptor is borrowed. *ret_opened is -1 or the caller's to close. */
static int api_map_open(struct hpz *hpz, const struct api_segment *segment, int *ret_fd, int *ret_opened)
{
	struct stat st;
	int opened = -1, fd = segment->fd;

	if (segment->path[0]) {
		do
			opened = open(segment->path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
		while (opened < 0 && errno == EINTR);
		if (opened < 0)
			return api_fail_system(hpz, segment->path);
		fd = opened;
	}
	if (fd < 0)
		return api_fail(
			hpz, HPZ_ERR_INVALID, "the lease's descriptor was taken by hpz_lease_steal_fd()");
	/* Beyond the end of a file every touch is a SIGBUS. */
	int error = HPZ_OK;
	if (fstat(fd, &st) < 0)
		error = api_fail_system(hpz, "fstat");
	else if (st.st_size < 0 || (uint64_t)st.st_size < segment->bytes)
		error = api_fail(
			hpz, HPZ_ERR_INVALID, "the segment's file is shorter than what was given of it");
	if (error) {
		close_fd(opened);
		return error;
	}
	*ret_fd = fd;
	*ret_opened = opened;
	return HPZ_OK;
}

static int api_map_segment(struct hpz *hpz, const struct api_segment *segment, uint8_t *address)
{
	_cleanup_fd_ int opened = -1;
	int fd = -1;

	int error = api_map_open(hpz, segment, &fd, &opened);
	if (error)
		return error;
	void *mapped = mmap(address, segment->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0);
	return mapped == MAP_FAILED ? api_fail_system(hpz, "cannot map a segment") : HPZ_OK;
}

/* Addresses that nothing else will take; the slack before and behind is given back. */
static int api_map_reserve(struct hpz *hpz, size_t length, uint8_t **ret_address)
{
	size_t reserved = length + API_MAP_ALIGNMENT;
	uint8_t *start = mmap(NULL, reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (start == MAP_FAILED)
		return api_fail_system(hpz, "cannot reserve addresses");
	size_t before = -(uintptr_t)start & (API_MAP_ALIGNMENT - 1);
	size_t behind = reserved - before - length;
	if (before)
		munmap(start, before);
	munmap(start + before + length, behind);
	*ret_address = start + before;
	return HPZ_OK;
}

/* Every segment must begin at a multiple of its page size. */
static int api_map_check(struct hpz *hpz, const struct hpz_lease *lease)
{
	uint64_t offset = 0;

	for (size_t i = 0; i < lease->segment_count; i++) {
		if (offset % MIN(lease->segments[i].page_size, API_MAP_ALIGNMENT))
			return api_fail(
				hpz, HPZ_ERR_INVALID, "these segments cannot lie one after the other");
		offset += lease->segments[i].bytes;
	}
	if (offset > SIZE_MAX / 2 - API_MAP_ALIGNMENT)
		return api_fail(hpz, HPZ_ERR_TOO_LARGE, "more than an address space holds");
	return HPZ_OK;
}

int hpz_map(struct hpz *hpz, struct hpz_lease *lease, void **ret_address, size_t *ret_length)
{
	uint8_t *address = NULL;

	int error = api_begin(hpz);
	if (error)
		return error;
	if (!lease || !ret_address || !ret_length)
		return api_fail(hpz, HPZ_ERR_INVALID, "there is no lease, or no place for its address");
	if (!lease->address) {
		error = api_map_check(hpz, lease);
		if (!error)
			error = api_map_reserve(hpz, lease->given, &address);
		if (error)
			return error;
		size_t offset = 0;
		for (size_t i = 0; i < lease->segment_count && !error; i++) {
			error = api_map_segment(hpz, &lease->segments[i], address + offset);
			offset += lease->segments[i].bytes;
		}
		if (error) {
			munmap(address, lease->given);
			return error;
		}
		lease->address = address;
		lease->length = lease->given;
	}
	*ret_address = lease->address;
	*ret_length = lease->length;
	return HPZ_OK;
}

void hpz_unmap(struct hpz_lease *lease)
{
	if (!lease || !lease->address)
		return;
	munmap(lease->address, lease->length);
	lease->address = NULL;
	lease->length = 0;
}
