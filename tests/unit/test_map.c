/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * test_map.c - hpz_map(): where segments come to lie, what is refused, what is left afterwards. The lease
 * comes from a scripted peer with memory of ordinary pages; huge ones are the integration tests' business.
 */
#include "fake_server.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define PAGE 4096u
#define GIB  (1ull << 30)

/* A file of so many pages; its first byte of each page says which one it is. */
static int make_file(unsigned pages, uint8_t first)
{
	int fd = memfd_create("segment", MFD_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, (off_t)pages * PAGE), 0);
	for (unsigned i = 0; i < pages; i++)
		assert_int_equal(pwrite(fd, &(uint8_t){(uint8_t)(first + i)}, 1, (off_t)i * PAGE), 1);
	return fd;
}

struct script {
	struct fake_lease lease;
};

static void serve_lease(struct fake *fake, void *data)
{
	struct script *script = data;

	fake_accept(fake);
	fake_reply_lease(fake, HPZ_OP_LEASE, &script->lease);
	fake_expect(fake, HPZ_OP_ACK, NULL, 0);
}

/* Connects and leases; the file's descriptors in the script are closed. */
static struct hpz_lease *take(struct fake *fake, struct script *script, struct hpz **ret_hpz)
{
	struct hpz_lease_request request = HPZ_LEASE_REQUEST_INIT;
	struct hpz_lease *lease = NULL;

	request.size = 1;
	request.deliver = script->lease.deliver;
	fake_start(fake, serve_lease, script);
	assert_int_equal(hpz_connect(fake->path, ret_hpz), HPZ_OK);
	assert_int_equal(hpz_lease(*ret_hpz, &request, &lease), HPZ_OK);
	fake_join(fake);
	for (size_t i = 0; i < script->lease.count; i++)
		close_fd(script->lease.segments[i].fd);
	return lease;
}

/* Mappings of our memory files that exist right now. */
static unsigned count_mappings(void)
{
	FILE *file = fopen("/proc/self/maps", "re");
	char line[512];
	unsigned count = 0;

	assert_non_null(file);
	while (fgets(line, sizeof(line), file))
		count += strstr(line, "memfd:segment") != NULL;
	fclose(file);
	return count;
}

static void test_segments_lie_one_after_the_other(void **state)
{
	struct fake fake;
	struct script script = {.lease = {.deliver = HPZ_DELIVER_FD, .count = 3}};
	struct hpz *hpz;
	void *address = NULL, *again = NULL;
	size_t length = 0;

	for (unsigned i = 0; i < 3; i++)
		script.lease.segments[i] = (struct fake_segment){
			.page_size = PAGE, .bytes = 4 * PAGE, .fd = make_file(4, (uint8_t)(4 * i))};
	struct hpz_lease *lease = take(&fake, &script, &hpz);
	assert_int_equal(hpz_map(hpz, lease, &address, &length), HPZ_OK);
	assert_int_equal((uintptr_t)address % GIB, 0);
	assert_int_equal(length, 12 * PAGE);
	for (unsigned i = 0; i < 12; i++)
		assert_int_equal(((uint8_t *)address)[i * PAGE], i);
	/* Shared and writable: a second look through a descriptor sees it. */
	((uint8_t *)address)[5 * PAGE] = 0xaa;
	struct hpz_segment segment = {.struct_size = sizeof(segment)};
	uint8_t byte;
	assert_int_equal(hpz_lease_get_segment(lease, 1, &segment), HPZ_OK);
	assert_int_equal(pread(segment.fd, &byte, 1, PAGE), 1);
	assert_int_equal(byte, 0xaa);
	/* The same address again; and nothing of the reservation is left around it. */
	assert_int_equal(hpz_map(hpz, lease, &again, &length), HPZ_OK);
	assert_ptr_equal(address, again);
	assert_int_equal(count_mappings(), 3);
	assert_int_equal(msync((uint8_t *)address + 12 * PAGE, PAGE, MS_ASYNC), -1);
	assert_int_equal(errno, ENOMEM);
	assert_int_equal(msync((uint8_t *)address - PAGE, PAGE, MS_ASYNC), -1);
	hpz_unmap(lease);
	hpz_unmap(lease);
	assert_int_equal(count_mappings(), 0);
	/* Once more, and freeing takes it along. */
	assert_int_equal(hpz_map(hpz, lease, &address, &length), HPZ_OK);
	assert_int_equal(((uint8_t *)address)[5 * PAGE], 0xaa);
	hpz_lease_free(lease);
	assert_int_equal(count_mappings(), 0);
	hpz_close(hpz);
}

static void test_file_may_be_longer(void **state)
{
	struct fake fake;
	struct script script = {.lease = {.deliver = HPZ_DELIVER_FD, .count = 2}};
	struct hpz *hpz;
	uint8_t *address = NULL;
	size_t length;

	script.lease.segments[0] =
		(struct fake_segment){.page_size = PAGE, .bytes = 2 * PAGE, .fd = make_file(8, 0)};
	script.lease.segments[1] =
		(struct fake_segment){.page_size = PAGE, .bytes = PAGE, .fd = make_file(3, 100)};
	struct hpz_lease *lease = take(&fake, &script, &hpz);
	assert_int_equal(hpz_map(hpz, lease, (void **)&address, &length), HPZ_OK);
	assert_int_equal(length, 3 * PAGE);
	assert_int_equal(address[PAGE], 1);
	assert_int_equal(address[2 * PAGE], 100);
	hpz_lease_free(lease);
	hpz_close(hpz);
}

static void test_short_file_is_refused(void **state)
{
	struct fake fake;
	struct script script = {.lease = {.deliver = HPZ_DELIVER_FD, .count = 2}};
	struct hpz *hpz;
	void *address = &fake;
	size_t length = 4711;

	script.lease.segments[0] =
		(struct fake_segment){.page_size = PAGE, .bytes = 2 * PAGE, .fd = make_file(2, 0)};
	script.lease.segments[1] =
		(struct fake_segment){.page_size = PAGE, .bytes = 2 * PAGE, .fd = make_file(1, 0)};
	struct hpz_lease *lease = take(&fake, &script, &hpz);
	assert_int_equal(hpz_map(hpz, lease, &address, &length), HPZ_ERR_INVALID);
	assert_ptr_equal(address, &fake);
	assert_int_equal(length, 4711);
	assert_non_null(strstr(hpz_get_error_text(hpz), "shorter"));
	assert_int_equal(count_mappings(), 0);
	hpz_lease_free(lease);
	hpz_close(hpz);
}

static void test_unaligned_segments_are_refused(void **state)
{
	struct fake fake;
	struct script script = {.lease = {.deliver = HPZ_DELIVER_FD, .count = 2}};
	struct hpz *hpz;
	void *address;
	size_t length;

	script.lease.segments[0] =
		(struct fake_segment){.page_size = PAGE, .bytes = PAGE, .fd = make_file(1, 0)};
	script.lease.segments[1] =
		(struct fake_segment){.page_size = 2 * PAGE, .bytes = 2 * PAGE, .fd = make_file(2, 0)};
	struct hpz_lease *lease = take(&fake, &script, &hpz);
	assert_int_equal(hpz_map(hpz, lease, &address, &length), HPZ_ERR_INVALID);
	hpz_lease_free(lease);
	hpz_close(hpz);
}

static void test_more_than_an_address_space(void **state)
{
	struct fake fake;
	struct script script = {.lease = {.deliver = HPZ_DELIVER_FD, .count = 1}};
	struct hpz *hpz;
	void *address;
	size_t length;

	script.lease.segments[0] = (struct fake_segment){
		.page_size = PAGE, .bytes = INT64_MAX & ~(uint64_t)(PAGE - 1), .fd = make_file(1, 0)};
	struct hpz_lease *lease = take(&fake, &script, &hpz);
	assert_int_equal(hpz_map(hpz, lease, &address, &length), HPZ_ERR_TOO_LARGE);
	hpz_lease_free(lease);
	hpz_close(hpz);
}

static void test_stolen_descriptor(void **state)
{
	struct fake fake;
	struct script script = {.lease = {.deliver = HPZ_DELIVER_FD, .count = 1}};
	struct hpz *hpz;
	void *address;
	size_t length;

	script.lease.segments[0] =
		(struct fake_segment){.page_size = PAGE, .bytes = PAGE, .fd = make_file(1, 0)};
	struct hpz_lease *lease = take(&fake, &script, &hpz);
	int fd = hpz_lease_steal_fd(lease, 0);
	assert_true(fd >= 0);
	assert_int_equal(hpz_lease_steal_fd(lease, 0), -1);
	assert_int_equal(hpz_lease_steal_fd(lease, 1), -1);
	assert_int_equal(hpz_map(hpz, lease, &address, &length), HPZ_ERR_INVALID);
	assert_non_null(strstr(hpz_get_error_text(hpz), "steal"));
	hpz_lease_free(lease);
	assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
	close(fd);
	hpz_close(hpz);
}

static void test_path_is_opened(void **state)
{
	struct fake fake;
	struct script script = {.lease = {.deliver = HPZ_DELIVER_PATH, .count = 1}};
	struct fake_segment *segment = &script.lease.segments[0];
	struct hpz *hpz;
	uint8_t *address;
	size_t length;
	char link[300];

	*segment = (struct fake_segment){.page_size = PAGE, .bytes = PAGE, .fd = -1};
	fake_make_path(segment->path, sizeof(segment->path), "segment");
	int fd = open(segment->path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(pwrite(fd, "z", 1, 0), 1);
	assert_int_equal(ftruncate(fd, PAGE), 0);
	close(fd);
	struct hpz_lease *lease = take(&fake, &script, &hpz);
	assert_int_equal(hpz_map(hpz, lease, (void **)&address, &length), HPZ_OK);
	assert_int_equal(address[0], 'z');
	hpz_unmap(lease);
	/* Gone, and then a link in its place. */
	snprintf(link, sizeof(link), "%s.moved", segment->path);
	assert_int_equal(rename(segment->path, link), 0);
	assert_int_equal(hpz_map(hpz, lease, (void **)&address, &length), HPZ_ERR_SYSTEM);
	assert_int_equal(hpz_get_errno(hpz), ENOENT);
	assert_int_equal(symlink(link, segment->path), 0);
	assert_int_equal(hpz_map(hpz, lease, (void **)&address, &length), HPZ_ERR_SYSTEM);
	assert_int_equal(hpz_get_errno(hpz), ELOOP);
	assert_int_equal(unlink(segment->path), 0);
	assert_int_equal(unlink(link), 0);
	hpz_lease_free(lease);
	hpz_close(hpz);
}

static void test_arguments(void **state)
{
	struct fake fake;
	struct script script = {.lease = {.deliver = HPZ_DELIVER_FD, .count = 1}};
	struct hpz *hpz;
	void *address;
	size_t length;

	script.lease.segments[0] =
		(struct fake_segment){.page_size = PAGE, .bytes = PAGE, .fd = make_file(1, 0)};
	struct hpz_lease *lease = take(&fake, &script, &hpz);
	assert_int_equal(hpz_map(NULL, lease, &address, &length), HPZ_ERR_INVALID);
	assert_int_equal(hpz_map(hpz, NULL, &address, &length), HPZ_ERR_INVALID);
	assert_int_equal(hpz_map(hpz, lease, NULL, &length), HPZ_ERR_INVALID);
	assert_int_equal(hpz_map(hpz, lease, &address, NULL), HPZ_ERR_INVALID);
	hpz_unmap(NULL);
	hpz_lease_free(NULL);
	/* The server is gone, and mapping needs none. */
	assert_int_equal(hpz_map(hpz, lease, &address, &length), HPZ_OK);
	hpz_close(hpz);
	assert_int_equal(*(uint8_t *)address, 0);
	hpz_lease_free(lease);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_segments_lie_one_after_the_other),
		cmocka_unit_test(test_file_may_be_longer),
		cmocka_unit_test(test_short_file_is_refused),
		cmocka_unit_test(test_unaligned_segments_are_refused),
		cmocka_unit_test(test_more_than_an_address_space),
		cmocka_unit_test(test_stolen_descriptor),
		cmocka_unit_test(test_path_is_opened),
		cmocka_unit_test(test_arguments),
	};

	return cmocka_run_group_tests_name("map", tests, fake_setup, fake_teardown);
}
