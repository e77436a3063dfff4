/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * qemu_backends.h - the memory backends that a QEMU's command line names, as -object in JSON or as key=value,
 * and the same ones on a file of ours. Pure: no I/O. A backend that is not understood for certain, or whose
 * memory is more than bytes that are zero at first, is left alone.
 */
#ifndef HPZ_QEMU_BACKENDS_H
#define HPZ_QEMU_BACKENDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define QEMU_BACKEND_ID 128

enum qemu_backend_kind {
	QEMU_BACKEND_RAM,   /* memory-backend-ram */
	QEMU_BACKEND_MEMFD, /* memory-backend-memfd */
	QEMU_BACKEND_FILE,  /* memory-backend-file */
};

enum qemu_backend_policy {
	QEMU_BACKEND_DEFAULT,
	QEMU_BACKEND_PREFERRED,
	QEMU_BACKEND_BIND,
	QEMU_BACKEND_INTERLEAVE,
};

struct qemu_backend {
	enum qemu_backend_kind kind;
	const char *left_alone; /* why it must not be rewritten; static. NULL: it may be */
	bool is_unclear;        /* that is so because it is not understood: it may want memory of ours */
	size_t word;            /* argv[word] describes it */
	char id[QEMU_BACKEND_ID + 1];
	uint64_t size;      /* bytes */
	bool is_huge;       /* memfd: of huge pages; a file may be, which its path says */
	uint64_t page_size; /* memfd: bytes; 0: the host's default */
	char *mem_path;     /* file */
	uint32_t policy;    /* enum qemu_backend_policy */
	uint64_t node_mask; /* host-nodes; bit N is node N */
	/* What else it may say, and must not. */
	uint64_t offset;
	bool is_readonly, is_pmem, is_reserved;
	bool is_used; /* by the machine, one of its nodes or a DIMM */
};

struct qemu_backends {
	struct qemu_backend *list;
	size_t count;
	const char *unclear;  /* why others may want memory of ours; static. NULL: none does */
	const char *mem_path; /* where memory that is no backend's comes from; the command line's. NULL: not
				 said */
};

/* All of them, in the order of the command line, argv[0] being the program. False: no memory. */
bool qemu_backends_read(char *const argv[], struct qemu_backends *ret_backends);
void qemu_backends_deinit(struct qemu_backends *backends);

/*
 * A copy of a word that describes one that may be rewritten, with its memory in the file `mem_path`, which
 * has no commas. All its other properties stay as they are, host-nodes and policy only with keeps_nodes. The
 * caller frees it. NULL: no memory.
 */
char *qemu_backends_rewrite(const char *word, const char *mem_path, bool keeps_nodes);

#endif
