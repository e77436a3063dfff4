/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * bench_programs.c - see bench_programs.h. Which programs a process has attached, the kernel says in the
 * fdinfo of their links.
 */
#include "bench_programs.h"

#ifndef HPZ_BPF

int bench_programs_open(pid_t pid, struct bench_programs *ret_programs)
{
	return -EOPNOTSUPP;
}

int bench_programs_get_ns(const struct bench_programs *programs, uint64_t *ret_ns)
{
	return -EOPNOTSUPP;
}

void bench_programs_close(struct bench_programs *programs)
{
}

#else

#include <bpf/bpf.h>
#include <dirent.h>

/* 0: that descriptor is no link. */
static uint32_t bench_programs_read_id(pid_t pid, const char *descriptor)
{
	char path[64], line[128];
	uint32_t id = 0;

	snprintf(path, sizeof(path), "/proc/%d/fdinfo/%.16s", (int)pid, descriptor);
	_cleanup_file_ FILE *file = fopen(path, "re");
	bool is_link = false;
	while (file && fgets(line, sizeof(line), file)) {
		is_link |= strncmp(line, "link_id:", strlen("link_id:")) == 0;
		if (strncmp(line, "prog_id:", strlen("prog_id:")) == 0)
			id = (uint32_t)strtoul(line + strlen("prog_id:"), NULL, 10);
	}
	return is_link ? id : 0;
}

static int bench_programs_find(pid_t pid, struct bench_programs *programs)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/fdinfo", (int)pid);
	DIR *directory = opendir(path);
	if (!directory)
		return -errno;
	int r = 0;
	for (struct dirent *entry; r == 0 && (entry = readdir(directory));) {
		uint32_t id = bench_programs_read_id(pid, entry->d_name);
		if (id == 0)
			continue;
		int fd = programs->count < BENCH_PROGRAMS_MAX ? bpf_prog_get_fd_by_id(id) : -E2BIG;
		if (fd < 0)
			r = fd;
		else
			programs->fds[programs->count++] = fd;
	}
	closedir(directory);
	return r == 0 && programs->count == 0 ? -ENOENT : r;
}

int bench_programs_open(pid_t pid, struct bench_programs *ret_programs)
{
	*ret_programs = (struct bench_programs){.stats_fd = -1};
	int r = bench_programs_find(pid, ret_programs);
	if (r == 0) {
		ret_programs->stats_fd = bpf_enable_stats(BPF_STATS_RUN_TIME);
		r = MIN(ret_programs->stats_fd, 0);
	}
	if (r < 0)
		bench_programs_close(ret_programs);
	return r;
}

int bench_programs_get_ns(const struct bench_programs *programs, uint64_t *ret_ns)
{
	uint64_t sum_ns = 0;

	for (size_t i = 0; i < programs->count; i++) {
		struct bpf_prog_info info = {0};
		uint32_t size = sizeof(info);
		int r = bpf_obj_get_info_by_fd(programs->fds[i], &info, &size);
		if (r < 0)
			return r;
		sum_ns += info.run_time_ns;
	}
	*ret_ns = sum_ns;
	return 0;
}

void bench_programs_close(struct bench_programs *programs)
{
	if (programs->count > 0 && programs->stats_fd >= 0)
		close(programs->stats_fd);
	while (programs->count > 0)
		close(programs->fds[--programs->count]);
	programs->stats_fd = -1;
}

#endif
