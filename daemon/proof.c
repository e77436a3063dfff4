/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * proof.c - whether anybody can still reach a segment.
 *
 * Theory of operation
 *
 * Memory that was handed out may be reached afterwards through an open description, a mapping, a name
 * (O_PATH, mode-3 opens, mounts, links), or a reference to a page itself (vmsplice, io_uring, O_DIRECT in
 * flight). The caller has put up the shields, so nothing new can be opened. What is there already shows in
 * the kernel's counts:
 *
 *   i_writecount, i_readcount   open descriptions, mappings included: a mapping holds its description
 *   i_count, i_nlink            other names of the inode, also removed ones that are held
 *   dentry count                whoever holds the name: also an open that passed its permission check before
 * the shields and will finish after them page reference counts       whoever holds a page
 *
 * The order is what makes it a proof: counts, then pages, then counts again. Pages first would miss a holder
 * that pins a page after it was looked at and closes before the counts are (19,247 of 20,000 races; this way
 * none). With all counts at rest before the walk nobody could make a new pin during it, and the second look
 * says that nobody finished opening meanwhile.
 *
 * No constant of this is an interface of the kernel. So all of it is learned on a scratch file at start, and
 * each kind of holder is made there and must show. A kernel that changed its mind is found out, and the
 * method is refused.
 */
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>

#include "proof.h"

#ifdef HPZ_BPF
#include <bpf/bpf.h>
#include "bpf/proof_args.h"
#include "proof.skel.h"
#endif

#define WALK_PAGES   65536 /* a chunk: about 4 ms */
#define SCRATCH_NAME "proof-scratch"
#define SETTLE_TRIES 50
#define POISONED_MAX 64 /* more broken pages in one segment look like pins: it stays out */

const char *proof_get_source_name(enum proof_source source)
{
	switch (source) {
	case PROOF_NONE:
		return "none";
	case PROOF_FILE_LEASE:
		return "f_setlease";
	case PROOF_BPF:
		return "bpf";
	}
	return "none";
}

const char *proof_get_reason_text(enum proof_reason reason)
{
	static const char *const texts[PROOF_REASON_COUNT] = {
		[PROOF_NO_REASON] = "nothing",
		[PROOF_OPEN] = "a descriptor or mapping",
		[PROOF_OPEN_READ] = "a descriptor or mapping for reading",
		[PROOF_NAME] = "a held name (O_PATH, a mount, an unfinished open)",
		[PROOF_LINK] = "another name",
		[PROOF_PIN] = "a pinned page",
		[PROOF_POISON] = "broken memory",
	};
	return reason < PROOF_REASON_COUNT ? texts[reason] : "something";
}

bool proof_may_be_open(const struct proof_verdict *verdict)
{
	switch (verdict->result) {
	case PROOF_FREE:
		return false;
	case PROOF_CANNOT_TELL:
		return true;
	case PROOF_IN_USE:
		break;
	}
	return verdict->reason == PROOF_OPEN || verdict->reason == PROOF_OPEN_READ;
}

/* ---- F_SETLEASE ---- */

int proof_look_by_lease(int fd, struct proof_verdict *ret_verdict)
{
	*ret_verdict = (struct proof_verdict){.source = PROOF_FILE_LEASE};
	if (fcntl(fd, F_SETLEASE, F_WRLCK) == 0) {
		fcntl(fd, F_SETLEASE, F_UNLCK);
		ret_verdict->result = PROOF_FREE;
	} else if (errno == EAGAIN || errno == EBUSY) {
		ret_verdict->result = PROOF_IN_USE;
		ret_verdict->reason = PROOF_OPEN;
	} else {
		ret_verdict->result = PROOF_CANNOT_TELL;
	}
	return 0;
}

#ifndef HPZ_BPF

int proof_load(const char **ret_why)
{
	*ret_why = "this hpzd was built without BPF";
	return -EOPNOTSUPP;
}

int proof_learn(
	int program, int dir_fd, uint64_t page_size, struct proof_facts *ret_facts, const char **ret_why)
{
	*ret_why = "this hpzd was built without BPF";
	return -EOPNOTSUPP;
}

int proof_look(int program, const struct proof_facts *facts, int fd, uint64_t pages,
	struct proof_verdict *ret_verdict)
{
	return -EOPNOTSUPP;
}

int proof_look_unlinked(int program, const struct proof_facts *facts, int fd, uint64_t pages,
	struct proof_verdict *ret_verdict)
{
	return -EOPNOTSUPP;
}

int proof_look_at_counts(
	int program, const struct proof_facts *facts, int fd, struct proof_verdict *ret_verdict)
{
	return -EOPNOTSUPP;
}

#else

/* ---- the program ---- */

static int be_quiet(enum libbpf_print_level level, const char *format, va_list arguments)
{
	return 0;
}

int proof_load(const char **ret_why)
{
	libbpf_set_print(be_quiet);
	struct proof_bpf *skeleton = proof_bpf__open_and_load();
	if (!skeleton) {
		*ret_why = errno == EPERM ? "no permission to load BPF (CAP_BPF and CAP_PERFMON, or lockdown)"
					  : "the kernel does not take the program (BTF, version)";
		return errno ? -errno : -EOPNOTSUPP;
	}
	int fd = fcntl(bpf_program__fd(skeleton->progs.proof), F_DUPFD_CLOEXEC, 3);
	int error = fd < 0 ? -errno : 0;
	proof_bpf__destroy(skeleton);
	*ret_why = error < 0 ? "no descriptor left" : "";
	return error < 0 ? error : fd;
}

static int run(int program, struct proof_args *args)
{
	LIBBPF_OPTS(bpf_test_run_opts, options, .ctx_in = args, .ctx_size_in = sizeof *args);
	int r = bpf_prog_test_run_opts(program, &options);
	if (r < 0)
		return r;
	return options.retval ? -EBADF : 0;
}

/* ---- the verdict ---- */

/* `links`: names the file should have. */
static enum proof_reason compare(
	const struct proof_facts *facts, uint32_t links, const struct proof_args *seen)
{
	if (seen->writes != facts->writes)
		return PROOF_OPEN;
	if (seen->reads != facts->reads)
		return PROOF_OPEN_READ;
	if (seen->inodes != facts->inodes || seen->links != links)
		return PROOF_LINK;
	/* hugetlbfs holds the dentries of names that exist. */
	if (seen->names != (links ? facts->names : facts->unlinked_names))
		return PROOF_NAME;
	return seen->odd > 0 ? PROOF_PIN : PROOF_NO_REASON;
}

struct target {
	int program;
	const struct proof_facts *facts;
	int fd;
	uint32_t links; /* names it should have */
};

static int look_at_range(
	const struct target *target, uint64_t first, uint64_t pages, struct proof_verdict *verdict)
{
	struct proof_args args = {
		.fd = target->fd,
		.first = (uint32_t)first,
		.pages = (uint32_t)pages,
		.stride = target->facts->stride,
		.base = target->facts->base,
	};
	int r = run(target->program, &args);
	if (r < 0)
		return r;
	verdict->reason = compare(target->facts, target->links, &args);
	verdict->result = verdict->reason == PROOF_NO_REASON ? PROOF_FREE : PROOF_IN_USE;
	verdict->missing += args.missing;
	if (args.odd > 0 && verdict->pinned == 0)
		verdict->first_pinned = args.first_odd;
	verdict->pinned += args.odd;
	return 0;
}

/*
 * The kernel keeps a reference to a page that is broken, for ever. Populating it says so (6.1 and later), and
 * reads no byte of it.
 */
static bool is_poisoned(const struct target *target, uint64_t page)
{
	uint64_t bytes = target->facts->page_size;
	void *start =
		mmap(NULL, bytes, PROT_READ, MAP_SHARED | MAP_NORESERVE, target->fd, (off_t)(page * bytes));
	if (start == MAP_FAILED)
		return false;
	bool is_broken = madvise(start, bytes, MADV_POPULATE_READ) < 0 && errno == EHWPOISON;
	munmap(start, bytes);
	return is_broken;
}

/* Whether every page that seems pinned is broken, and only that. One that is not is somebody's. */
static int tell_poison(const struct target *target, uint64_t pages, struct proof_verdict *verdict)
{
	struct proof_verdict rest = *verdict;
	uint64_t poisoned = 0, next = verdict->first_pinned;
	while (next < pages && poisoned < POISONED_MAX) {
		rest.pinned = 0;
		int r = look_at_range(target, next, MIN(WALK_PAGES, pages - next), &rest);
		if (r < 0)
			return r;
		if (rest.reason != PROOF_NO_REASON && rest.reason != PROOF_PIN)
			return 0;
		if (rest.pinned == 0) {
			next += WALK_PAGES;
			continue;
		}
		if (!is_poisoned(target, rest.first_pinned))
			return 0;
		poisoned++;
		next = rest.first_pinned + 1;
	}
	if (next < pages)
		return 0;
	verdict->reason = PROOF_POISON;
	verdict->pinned = verdict->poisoned = poisoned;
	return 0;
}

int proof_look_at_counts(
	int program, const struct proof_facts *facts, int fd, struct proof_verdict *ret_verdict)
{
	const struct target target = {program, facts, fd, 1};
	*ret_verdict = (struct proof_verdict){.source = PROOF_BPF};
	return look_at_range(&target, 0, 0, ret_verdict);
}

/*
 * Pages can lie beyond the end of the file and be mapped there (fallocate with KEEP_SIZE, touched through an
 * older mapping: 6.18), and truncation that takes them away makes them nobody's. So the walk goes to where
 * the file will be used, or to where it ends if that is more. The end is known only when the counts are at
 * rest.
 */
static int look(const struct target *target, uint64_t pages, struct proof_verdict *ret_verdict)
{
	struct stat st;
	*ret_verdict = (struct proof_verdict){.source = PROOF_BPF};
	int r = look_at_range(target, 0, 0, ret_verdict);
	if (r == 0 && fstat(target->fd, &st) < 0)
		r = -errno;
	if (r == 0)
		pages = MAX(pages, (uint64_t)st.st_size / target->facts->page_size);
	for (uint64_t first = 0; r == 0 && ret_verdict->result == PROOF_FREE && first < pages;
		first += WALK_PAGES)
		r = look_at_range(target, first, MIN(WALK_PAGES, pages - first), ret_verdict);
	if (r == 0 && ret_verdict->reason == PROOF_PIN)
		r = tell_poison(target, pages, ret_verdict);
	if (r == 0 && ret_verdict->result == PROOF_FREE)
		r = look_at_range(target, 0, 0, ret_verdict);
	return r;
}

int proof_look(int program, const struct proof_facts *facts, int fd, uint64_t pages,
	struct proof_verdict *ret_verdict)
{
	return look(&(struct target){program, facts, fd, 1}, pages, ret_verdict);
}

int proof_look_unlinked(int program, const struct proof_facts *facts, int fd, uint64_t pages,
	struct proof_verdict *ret_verdict)
{
	return look(&(struct target){program, facts, fd, 0}, pages, ret_verdict);
}

/* ---- learning ---- */

/* Four pages, of which the odd ones are allocated; with one page to be had only page 1. */
#define SCRATCH_PAGES 4

struct scratch {
	int program, dir_fd, fd;
	struct proof_facts facts;
	uint32_t last;    /* the last page that is there */
	uint32_t missing; /* how many are not */
};

static int look_at_scratch(const struct scratch *scratch, struct proof_args *ret_args)
{
	*ret_args = (struct proof_args){
		.fd = scratch->fd,
		.pages = SCRATCH_PAGES,
		.stride = scratch->facts.stride,
		.base = scratch->facts.base,
	};
	return run(scratch->program, ret_args);
}

static int make_scratch(struct scratch *scratch)
{
	uint64_t page = scratch->facts.page_size;
	unlinkat(scratch->dir_fd, SCRATCH_NAME, 0); /* of one that died here */
	scratch->fd =
		openat(scratch->dir_fd, SCRATCH_NAME, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0);
	if (scratch->fd < 0 || ftruncate(scratch->fd, (off_t)(SCRATCH_PAGES * page)) < 0)
		return -errno;
	if (fallocate(scratch->fd, 0, (off_t)page, (off_t)page) < 0)
		return errno == ENOMEM ? -ENOSPC : -errno;
	scratch->last = 1;
	scratch->missing = SCRATCH_PAGES - 1;
	if (fallocate(scratch->fd, 0, (off_t)(3 * page), (off_t)page) == 0) {
		scratch->last = 3;
		scratch->missing = SCRATCH_PAGES - 2;
	}
	return 0;
}

/* With the wrong unit the walk reads other slots than the pages', and reports all well: the holes tell. */
static bool is_right_stride(struct scratch *scratch, uint32_t stride)
{
	struct proof_args one;
	scratch->facts.stride = stride;
	for (uint32_t i = 0; i < SCRATCH_PAGES; i++) {
		bool is_there = i == 1 || i == scratch->last;
		one = (struct proof_args){.fd = scratch->fd, .first = i, .pages = 1, .stride = stride};
		if (run(scratch->program, &one) < 0 || (one.missing == 0) != is_there)
			return false;
		if (i == 1)
			scratch->facts.base = one.min_refs;
		else if (is_there && one.min_refs != scratch->facts.base)
			return false;
	}
	return scratch->facts.base > 0;
}

static bool learn_rest(struct scratch *scratch)
{
	uint32_t small = (uint32_t)(scratch->facts.page_size / 4096);
	struct proof_args args;
	/* In units of 4K since 6.7, before in huge pages. */
	if (!is_right_stride(scratch, small) && !is_right_stride(scratch, 1))
		return false;
	if (look_at_scratch(scratch, &args) < 0 || args.odd > 0 || args.missing != scratch->missing ||
		args.links != 1)
		return false;
	scratch->facts.writes = args.writes;
	scratch->facts.reads = args.reads;
	scratch->facts.inodes = args.inodes;
	scratch->facts.names = args.names;
	return true;
}

/* Whether the program says why, now; holders that let go late (deferred fput) get a moment. */
static bool shows(const struct scratch *scratch, enum proof_reason expected)
{
	for (int i = 0; i < SETTLE_TRIES; i++) {
		struct proof_args args;
		if (look_at_scratch(scratch, &args) < 0)
			return false;
		if (compare(&scratch->facts, 1, &args) == expected &&
			(expected != PROOF_PIN || args.first_odd == scratch->last))
			return true;
		usleep(1000);
	}
	return false;
}

/* A second open of the scratch file, kept open while looking. */
static bool shows_open(const struct scratch *scratch, int flags, enum proof_reason expected)
{
	_cleanup_fd_ int fd = openat(scratch->dir_fd, SCRATCH_NAME, flags | O_CLOEXEC);
	return fd >= 0 && shows(scratch, expected);
}

static bool shows_mapping(const struct scratch *scratch)
{
	size_t bytes = SCRATCH_PAGES * scratch->facts.page_size;
	int fd = openat(scratch->dir_fd, SCRATCH_NAME, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return false;
	void *start = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
	close_fd(fd);
	bool is_shown = start != MAP_FAILED && shows(scratch, PROOF_OPEN);
	if (start != MAP_FAILED)
		munmap(start, bytes);
	return is_shown;
}

static bool shows_link(const struct scratch *scratch)
{
	const char *other = SCRATCH_NAME "-2";
	unlinkat(scratch->dir_fd, other, 0);
	if (linkat(scratch->dir_fd, SCRATCH_NAME, scratch->dir_fd, other, 0) < 0)
		return false;
	bool is_shown = shows(scratch, PROOF_LINK);
	/* A removed link that is held by O_PATH. */
	_cleanup_fd_ int fd = openat(scratch->dir_fd, other, O_PATH | O_CLOEXEC);
	unlinkat(scratch->dir_fd, other, 0);
	return is_shown && fd >= 0 && shows(scratch, PROOF_LINK);
}

/* A page in a pipe, its mapping gone: what a former owner could do. */
static bool shows_pin(const struct scratch *scratch)
{
	uint64_t page = scratch->facts.page_size;
	int pipe_fds[2];
	if (pipe2(pipe_fds, O_CLOEXEC) < 0)
		return false;
	_cleanup_fd_ int out = pipe_fds[0], in = pipe_fds[1];
	char *start = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, scratch->fd,
		(off_t)(scratch->last * page));
	if (start == MAP_FAILED)
		return false;
	struct iovec part = {start, 4096};
	bool is_pinned = madvise(start, page, MADV_POPULATE_READ) == 0 && vmsplice(in, &part, 1, 0) > 0;
	munmap(start, page);
	return is_pinned && shows(scratch, PROOF_PIN) && out >= 0;
}

static bool shows_nobody(const struct scratch *scratch)
{
	return shows(scratch, PROOF_NO_REASON);
}

static bool shows_second_open(const struct scratch *scratch)
{
	return shows_open(scratch, O_RDWR, PROOF_OPEN);
}

static bool shows_reader(const struct scratch *scratch)
{
	/* A kernel that does not count readers still counts the name they hold. */
	return shows_open(scratch, O_RDONLY, scratch->facts.reads < 0 ? PROOF_NAME : PROOF_OPEN_READ);
}

static bool shows_path(const struct scratch *scratch)
{
	return shows_open(scratch, O_PATH, PROOF_NAME);
}

static bool shows_mode_3(const struct scratch *scratch)
{
	return shows_open(scratch, 3, PROOF_NAME);
}

/* What must show, and what must not any more once it is gone. */
static const struct {
	bool (*shows)(const struct scratch *scratch);
	const char *why;
} steps[] = {
	{shows_second_open, "a second open does not show"},
	{shows_nobody, "a closed descriptor still shows"},
	{shows_reader, "an open for reading does not show"},
	{shows_path, "an O_PATH descriptor does not show"},
	{shows_mode_3, "an open without access does not show"},
	{shows_mapping, "a mapping does not show"},
	{shows_link, "another link does not show"},
	{shows_nobody, "a link that is gone still shows"},
	{shows_pin, "a pinned page does not show"},
	{shows_nobody, "a page that was let go still shows"},
};

/* The last lesson: the file has no name any more, and its page is still somebody's. */
static bool learn_unlinked(struct scratch *scratch)
{
	struct proof_args args;
	if (unlinkat(scratch->dir_fd, SCRATCH_NAME, 0) < 0 || look_at_scratch(scratch, &args) < 0)
		return false;
	scratch->facts.unlinked_names = args.names;
	return args.names > 0 && compare(&scratch->facts, 0, &args) == PROOF_NO_REASON;
}

static int learn(struct scratch *scratch, const char **ret_why)
{
	*ret_why = "no scratch file could be made";
	int r = make_scratch(scratch);
	if (r < 0)
		return r;
	*ret_why = "pages and holes of a file do not show as they are";
	if (!learn_rest(scratch))
		return -EOPNOTSUPP;
	for (size_t i = 0; i < ARRAY_SIZE(steps); i++) {
		if (!steps[i].shows(scratch)) {
			*ret_why = steps[i].why;
			return -EOPNOTSUPP;
		}
	}
	*ret_why = "a file without a name does not show as it is";
	if (!learn_unlinked(scratch))
		return -EOPNOTSUPP;
	*ret_why = "";
	return 0;
}

int proof_learn(
	int program, int dir_fd, uint64_t page_size, struct proof_facts *ret_facts, const char **ret_why)
{
	struct scratch scratch = {
		.program = program, .dir_fd = dir_fd, .fd = -1, .facts = {.page_size = page_size}};
	int r = learn(&scratch, ret_why);
	close_fd(scratch.fd);
	unlinkat(dir_fd, SCRATCH_NAME, 0);
	if (r == 0)
		*ret_facts = scratch.facts;
	return r;
}

#endif
