/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * store.h - a segment store on an ordinary file system, with pages of 4096 bytes: for whatever asks only for
 * names, lengths and st_blocks. On tmpfs, where st_blocks counts exactly what was allocated, as hugetlbfs has
 * it.
 */
#ifndef HPZ_TEST_STORE_H
#define HPZ_TEST_STORE_H

#include "temp.h"
#include <linux/magic.h>
#include <sys/vfs.h>
#include "host.h"
#include "segment.h"

#define STORE_PAGE ((uint64_t)4096)

static inline bool store_is_tmpfs(const char *dir)
{
	struct statfs fs;
	return statfs(dir, &fs) == 0 && fs.f_type == TMPFS_MAGIC && access(dir, W_OK) == 0;
}

/* A directory where st_blocks is exact; false: there is none on this machine. */
static inline bool store_make_dir(char ret_dir[TEMP_PATH])
{
	const char *bases[] = {getenv("TMPDIR"), "/dev/shm", "/tmp", "/run/shm"};

	for (size_t i = 0; i < ARRAY_SIZE(bases); i++) {
		if (!bases[i] || !store_is_tmpfs(bases[i]))
			continue;
		snprintf(ret_dir, TEMP_PATH, "%.200s/hpz-test-XXXXXX", bases[i]);
		assert_non_null(mkdtemp(ret_dir));
		return true;
	}
	return false;
}

static inline int store_open_dir(const char *dir, const char *name)
{
	char path[PATH_MAX];

	snprintf(path, sizeof path, "%s/%s", dir, name);
	if (mkdir(path, 0700) < 0)
		assert_int_equal(errno, EEXIST);
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(fd >= 0);
	return fd;
}

/* What segment_open_store() would make of a hugetlbfs mount. */
static inline struct segment_store *store_open(const char *dir)
{
	struct segment_store *store = calloc(1, sizeof *store);

	assert_non_null(store);
	list_init(&store->link);
	store->references = 1;
	store->page_size = STORE_PAGE;
	snprintf(store->path, sizeof store->path, "%.190s", dir);
	store->hpz_fd = store_open_dir(dir, "hpz");
	store->format_fd = store_open_dir(dir, "hpz/1");
	store->out_fd = store_open_dir(dir, "hpz-out");
	store->workers_fd = store_open_dir(dir, "hpz/1");
	return store;
}

/* A machine with node 0 and pages of 4096 bytes. */
static inline const struct host *store_get_host(void)
{
	static int32_t node = 0;
	static uint64_t page_size = STORE_PAGE;
	static const struct host host = {.root = (char *)"/nonexistent",
		.nodes = &node,
		.node_count = 1,
		.page_sizes = &page_size,
		.page_size_count = 1};
	return &host;
}

/* A file of node 0 as an earlier hpzd may have left it. */
static inline void store_put(
	const char *dir, const char *where, const char *name, uint64_t pages, uint64_t allocated)
{
	char path[PATH_MAX], file[128];

	snprintf(file, sizeof file, "hpz/1/node0/%s/%.90s", where, name);
	temp_path(dir, file, path);
	int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0);
	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, (off_t)(pages * STORE_PAGE)), 0);
	if (allocated)
		assert_int_equal(fallocate(fd, 0, 0, (off_t)(allocated * STORE_PAGE)), 0);
	close(fd);
}

static inline bool store_has(const char *dir, const char *where, const char *name)
{
	char path[PATH_MAX];

	snprintf(path, sizeof path, "%s/hpz/1/node0/%s/%s", dir, where, name);
	return access(path, F_OK) == 0;
}

#endif
