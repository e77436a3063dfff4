/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* bench_memory.c - warm memory for both sides of a benchmark: see bench_memory.h. */
#include "bench_memory.h"

#include <sys/mman.h>

#ifndef MAP_HUGE_SHIFT
#define MAP_HUGE_SHIFT 26
#endif

int bench_memory_open(const struct bench_memory_wish *wish, struct bench_memory *ret_memory)
{
	struct bench_memory memory = {0};
	const struct bench_daemon_wish daemon = {.name = wish->name,
		.bytes = wish->hpz_bytes,
		.stock = wish->stock,
		.cpu = -1,
		.is_real = true,
		.page_size = wish->page_size,
		.node = wish->node};

	int r = bench_pages_take(wish->host, wish->node, wish->page_size,
		(wish->kernel_bytes + wish->hpz_bytes) / wish->page_size, &memory.pages);
	if (r < 0)
		return r;
	r = bench_pages_punch(&memory.pages, 0, memory.pages.bytes);
	if (r < 0)
		hpzctl_say("bench: pages cannot be made free: %s", strerror(-r));
	if (r == 0)
		r = bench_get_signal() ? -EINTR : bench_daemon_start(&daemon, &memory.daemon);
	if (r < 0) {
		bench_memory_close(&memory);
		return r;
	}
	*ret_memory = memory;
	return 0;
}

void bench_memory_close(struct bench_memory *memory)
{
	bench_daemon_stop(&memory->daemon);
	bench_pages_give(&memory->pages);
}

void *bench_memory_map_kernel(uint64_t page_size, uint64_t bytes, int flags)
{
	flags |= MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | __builtin_ctzll(page_size) << MAP_HUGE_SHIFT;
	void *start = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);

	return start == MAP_FAILED ? NULL : start;
}
