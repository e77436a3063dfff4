/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * proof.h - whether anybody can still reach a segment.
 * One verdict from three sources: a BPF program that reads the kernel's own counts, F_SETLEASE, or nothing.
 * Works on a descriptor it is given, puts up no shields and changes no name. Helpers call it, and hpzd at
 * hand-over.
 */
#ifndef HPZ_PROOF_H
#define HPZ_PROOF_H

#include "util.h"

enum proof_source {
	PROOF_NONE,
	PROOF_FILE_LEASE, /* sees opens and mappings; no names, no pins */
	PROOF_BPF,        /* sees everything of design 4 */
};
const char *proof_get_source_name(enum proof_source source);

enum proof_result {
	PROOF_FREE,        /* nobody, as far as the source sees */
	PROOF_IN_USE,      /* somebody; proof_reason says by what */
	PROOF_CANNOT_TELL, /* the source does not work here */
};

enum proof_reason {
	PROOF_NO_REASON,
	PROOF_OPEN,      /* open or mapped, writable */
	PROOF_OPEN_READ, /* open or mapped for reading only */
	PROOF_NAME,      /* a name is held: O_PATH, mode 3, a mount, an open that is not finished */
	PROOF_LINK,      /* another name exists, or one that was removed is held */
	PROOF_PIN,       /* a page has more references than the page cache's */
	PROOF_POISON,    /* broken pages only, which the kernel itself holds for ever: nobody else does */
	PROOF_REASON_COUNT,
};
/* "open or mapped", "a pinned page", ... */
const char *proof_get_reason_text(enum proof_reason reason);

struct proof_verdict {
	enum proof_result result;
	enum proof_reason reason;
	enum proof_source source;
	uint64_t missing;      /* holes, in pages; BPF only */
	uint64_t pinned;       /* pages with references beyond the base */
	uint64_t first_pinned; /* the first of them */
	uint64_t poisoned;     /* reason PROOF_POISON: all of the pinned ones */
};

/*
 * What a file of ours looks like to the program when nobody else can reach it: learned on a scratch file, per
 * page size, valid for this boot (kernels differ in all of it).
 */
struct proof_facts {
	uint64_t page_size; /* 0: not learned */
	int32_t writes, reads, inodes, names;
	int32_t unlinked_names; /* references to the dentry once the file's last name is removed */
	int32_t base;           /* references of a page */
	uint32_t stride;        /* index units a page */
};

/*
 * Loads the program; the descriptor is the caller's and works in every process it is passed to. Costs some
 * MiB for the kernel's type information while it runs: not for hpzd's own process. -EOPNOTSUPP: built
 * without; or -errno, and *ret_why a sentence.
 */
int proof_load(const char **ret_why);

/*
 * Learns the facts on a scratch file that it makes and removes in `dir_fd` on hugetlbfs. Needs one free page,
 * better two. Every kind of holder the program must see is tried there: one that does not show refuses the
 * method. 0; -ENOSPC: no page to be had now; -EOPNOTSUPP: something did not show, *ret_why what; or another
 * negative errno.
 */
int proof_learn(
	int program, int dir_fd, uint64_t page_size, struct proof_facts *ret_facts, const char **ret_why);

/*
 * The proof: counts, pages, counts again. `fd` must be the only descriptor of its file that is ours, opened
 * read-write. `pages`: how many of it will be used again; all up to its end are looked at in any case. What
 * lies beyond both must be cut off before the file is used. 0 or negative errno.
 */
int proof_look(int program, const struct proof_facts *facts, int fd, uint64_t pages,
	struct proof_verdict *ret_verdict);
/* The same for a file whose last name of ours was removed: nobody may have another. */
int proof_look_unlinked(int program, const struct proof_facts *facts, int fd, uint64_t pages,
	struct proof_verdict *ret_verdict);
/* Only the part whose cost does not depend on the length: again before the file gets its next owner. */
int proof_look_at_counts(
	int program, const struct proof_facts *facts, int fd, struct proof_verdict *ret_verdict);

/*
 * Whether somebody may have it open or mapped: then it must not be cut. Held names, links and pins do not
 * count; when the source cannot tell, somebody may.
 */
bool proof_may_be_open(const struct proof_verdict *verdict);

/* The weak source: a write lease is granted to us only when nobody else has the file open or mapped. */
int proof_look_by_lease(int fd, struct proof_verdict *ret_verdict);

#endif
