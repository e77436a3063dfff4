/* SPDX-License-Identifier: GPL-2.0-only OR LGPL-2.1-or-later */
/* proof_args.h - what goes into the proof program and what comes out; for both sides. */
#ifndef HPZ_PROOF_ARGS_H
#define HPZ_PROOF_ARGS_H

#include <linux/types.h>

struct proof_args {
	/* in */
	__s32 fd;
	__u32 first, pages; /* a range of the file, in pages; pages 0: counts only */
	__u32 stride;       /* index units a page */
	__s32 base;         /* references of a page that nobody holds */
	/* out */
	__s32 writes, reads; /* opens of the inode; reads -1: this kernel does not count them */
	__s32 inodes;        /* references to the inode */
	__s32 names;         /* references to the dentry */
	__u32 links;
	__u32 missing; /* pages that are not there */
	__u32 odd;     /* pages whose count is not the base */
	__u32 first_odd;
	__s32 min_refs, max_refs;
};

#endif
