// SPDX-License-Identifier: GPL-2.0-only
/*
 * proof.bpf.c - reads who can still reach a file: its inode's and dentry's counts, and the reference count of
 * every page in a range. Runs in its caller's context, so the descriptor is the caller's. Only reads, decides
 * nothing.
 */
#include <linux/bpf.h>
#include <linux/types.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

#include "proof_args.h"

/* The fields needed and no others, found by name in the running kernel's BTF (CO-RE). */
#define CORE __attribute__((preserve_access_index))
typedef struct {
	int counter;
} CORE atomic_t;
struct page {
	atomic_t _refcount;
} CORE;
struct xarray {
	void *xa_head;
} CORE;
struct xa_node {
	unsigned char shift;
	void *slots[64];
} CORE;
struct address_space {
	struct xarray i_pages;
} CORE;
struct inode {
	atomic_t i_count;
	atomic_t i_writecount;
	atomic_t i_readcount;
	unsigned int i_nlink;
} CORE;
struct lockref {
	int count;
} CORE;
struct dentry {
	struct lockref d_lockref;
} CORE;
struct path {
	struct dentry *dentry;
} CORE;
struct file {
	struct inode *f_inode;
	struct address_space *f_mapping;
	struct path f_path;
} CORE;
struct fdtable {
	unsigned int max_fds;
	struct file **fd;
} CORE;
struct files_struct {
	struct fdtable *fdt;
} CORE;
struct task_struct {
	struct files_struct *files;
} CORE;

char LICENSE[] SEC("license") = "GPL";

#define LEVELS_MAX 11 /* 64 bits of index, 6 a level */

struct walk {
	void *head;
	struct proof_args *args;
	__u32 missing, odd, first_odd;
	__s32 min_refs, max_refs;
};

/* The entry at an index; NULL where there is none. Nobody else changes the tree, or the counts say so. */
static __always_inline void *find_entry(void *head, __u64 index)
{
	void *entry = head;
	for (int level = 0; level < LEVELS_MAX; level++) {
		unsigned long bits = (unsigned long)entry;
		if ((bits & 3) != 2 || bits < 4096)
			return entry; /* a page, or nothing */
		struct xa_node *node = (void *)(bits - 2);
		unsigned char shift = BPF_CORE_READ(node, shift);
		__u64 offset = index >> shift;
		if (level == 0 && offset > 63)
			return 0; /* beyond the tree */
		offset &= 63;
		void *slot = 0;
		bpf_probe_read_kernel(&slot, sizeof slot, &node->slots[offset]);
		/* A page of several slots: the others point to its first. */
		if (((unsigned long)slot & 3) == 2 && (unsigned long)slot < 4096)
			bpf_probe_read_kernel(
				&slot, sizeof slot, &node->slots[((unsigned long)slot >> 2) & 63]);
		entry = slot;
	}
	return 0;
}

static int look_at_page(__u32 i, struct walk *walk)
{
	__u32 number = walk->args->first + i;
	struct page *page = find_entry(walk->head, (__u64)number * walk->args->stride);
	if (!page) {
		walk->missing++;
		return 0;
	}
	int refs = BPF_CORE_READ(page, _refcount.counter);
	if (refs < walk->min_refs)
		walk->min_refs = refs;
	if (refs > walk->max_refs)
		walk->max_refs = refs;
	if (refs == walk->args->base)
		return 0;
	if (walk->odd == 0)
		walk->first_odd = number;
	walk->odd++;
	return 0;
}

static __always_inline struct file *find_file(__s32 fd)
{
	struct task_struct *task = (void *)bpf_get_current_task();
	struct fdtable *table = BPF_CORE_READ(task, files, fdt);
	struct file *file = 0;
	if (fd < 0 || (__u32)fd >= BPF_CORE_READ(table, max_fds))
		return 0;
	struct file **files = BPF_CORE_READ(table, fd);
	bpf_probe_read_kernel(&file, sizeof file, files + fd);
	return file;
}

SEC("syscall")
int proof(struct proof_args *args)
{
	struct file *file = find_file(args->fd);
	if (!file)
		return 1;
	struct inode *inode = BPF_CORE_READ(file, f_inode);
	args->writes = BPF_CORE_READ(inode, i_writecount.counter);
	args->reads =
		bpf_core_field_exists(inode->i_readcount) ? BPF_CORE_READ(inode, i_readcount.counter) : -1;
	args->inodes = BPF_CORE_READ(inode, i_count.counter);
	args->names = BPF_CORE_READ(file, f_path.dentry, d_lockref.count);
	args->links = BPF_CORE_READ(inode, i_nlink);
	struct walk walk = {
		.head = BPF_CORE_READ(file, f_mapping, i_pages.xa_head),
		.args = args,
		.min_refs = 0x7fffffff,
		.max_refs = -1,
	};
	if (args->pages > 0)
		bpf_loop(args->pages, look_at_page, &walk, 0);
	args->missing = walk.missing;
	args->odd = walk.odd;
	args->first_odd = walk.first_odd;
	args->min_refs = walk.min_refs;
	args->max_refs = walk.max_refs;
	return 0;
}
