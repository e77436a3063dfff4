/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * worker.h - the process that touches memory, and what it is told.
 *
 * hpzd re-executed (`hpzd --worker ROLE NODE`). Jobs come as packets on descriptor 3, each with the
 * descriptors it needs; one answer per job goes back. Descriptor 4 is a page of atomics shared with hpzd,
 * descriptor 5 (memory) one shared with hpzd and all workers of the node: the pressure rules. Two roles:
 *
 *   memory  fills, clears and verifies: bound to a node, without a single capability, never given a path
 *   helper  whatever takes a lock that a client can hold: shields, removal of links, looking for holders
 *
 * A worker dies with its hpzd (PR_SET_PDEATHSIG) or at the end of the batch it is in. While it has a job it
 * holds the store's workers lock (segment.h), so a later hpzd knows whether it is really gone.
 */
#ifndef HPZ_WORKER_H
#define HPZ_WORKER_H

#include <stdatomic.h>
#include "pressure.h"
#include "proof.h"
#include "segment.h"
#include "tracer.h"
#include "zero.h"

enum worker_role { WORKER_MEMORY, WORKER_HELPER };
const char *worker_get_role_name(enum worker_role role);

/* How a worker is scheduled. */
enum worker_level {
	WORKER_LEVEL_IDLE,   /* SCHED_IDLE */
	WORKER_LEVEL_REFILL, /* SCHED_BATCH, nice 3 */
	WORKER_LEVEL_URGENT, /* SCHED_OTHER */
};
#define WORKER_LEVEL_COUNT 3

enum worker_op {
	WORKER_CALIBRATE = 1, /* memory: times every method, on a whole dirty segment or without one */
	WORKER_FILL = 2,      /* memory: set the length, allocate every page */
	WORKER_CLEAR = 3,     /* memory: set the length, fill holes, zero every byte, or those of one part */
	WORKER_SHIELD = 4,    /* helper: links gone, root, mode 0, then the probe */
	WORKER_PROBE = 5,     /* helper: only the probe */
	WORKER_TRIM = 6,      /* helper: punch `first`..`pages` out */
	WORKER_UNLINK =
		7, /* helper: links gone; nobody has it open or mapped: cut to nothing; unlink `name` */
	WORKER_HOLDERS = 8, /* helper: who has dev:ino open or mapped */
	WORKER_LEARN = 9,   /* helper: load the proof's program, learn what free files look like */
	WORKER_VERIFY = 10, /* memory: read `first`..`pages` and find what is not zero */
	WORKER_ORPHAN = 11, /* helper: who still holds a file that has no name; nobody: cut it to nothing */
	WORKER_REMOVE = 12, /* helper: remove `name` in the directory, also a directory of names */
	WORKER_ZERO_FREE =
		13, /* memory: have the kernel zero `pages` of its free ones, one after the other */
	/*
	 * memory: have the kernel allocate and zero `first`..`pages` of a file that is long enough, through a
	 * mapping: several at a time on one file, which fallocate's lock of the inode (6.18) does not let.
	 */
	WORKER_GROW = 14,
	/* helper: which processes have descriptors of `files` of `dev`; never waits for any of them */
	WORKER_OPENERS = 15,
	WORKER_TABLES = 16, /* helper: page tables of process `pid`, which began at `pid_start` */
	WORKER_TRACE = 17,  /* helper: load the program that sees ends of address spaces */
};

/*
 * Descriptors of a job, by position. SEGMENT is the file; for ZERO_FREE the kernel's zeroable_hugepages. DIR
 * is hpz-out/ where links are removed, NAMES the directory of `name`.
 */
enum worker_fd { WORKER_FD_SEGMENT, WORKER_FD_LOCK, WORKER_FD_DIR, WORKER_FD_PROGRAM, WORKER_FD_NAMES };
#define WORKER_FDS 5

/* OPENERS: files looked for at once. */
#define WORKER_FILES 32

struct worker_job {
	uint64_t id; /* never 0 */
	uint32_t op;
	int32_t method; /* CLEAR: row of zero_methods */
	uint64_t page_size;
	uint64_t length;       /* pages the file must have */
	uint64_t first, pages; /* TRIM, GROW: range; ZERO_FREE: pages */
	uint64_t first_byte;   /* CLEAR: the part of the file, which may begin inside a page */
	uint64_t part_bytes;   /* CLEAR: 0: to the end */
	uint64_t resume;       /* FILL, CLEAR, VERIFY: up to where an earlier try of this very job was done */
	uint64_t sample;       /* VERIFY: bytes of which one cache line is read; 0: every byte */
	uint64_t base_ns;      /* CLEAR: time of an undisturbed batch; 0: not known */
	uint64_t dev, ino;
	uint32_t first_link; /* SHIELD, UNLINK: the first of the */
	uint32_t links;      /* links under hpz-out/<token> to remove; from 0 on the directory goes, too */
	uint32_t max_links;  /* SHIELD, PROBE: names the file may have; more are somebody else's */
	uint32_t fds;        /* bit per enum worker_fd that comes along */
	struct proof_facts facts;     /* SHIELD, with a program; LEARN: known already if page_size is set */
	uint64_t files[WORKER_FILES]; /* OPENERS: inode numbers */
	uint32_t file_count;
	int32_t pid; /* TABLES */
	uint64_t pid_start;
	char token[SEGMENT_TOKEN];
	char name[SEGMENT_NAME_MAX];
};

struct worker_holder {
	int32_t pid;
	int32_t fd; /* -1: mapping */
	char comm[16];
	uint64_t pid_start; /* OPENERS */
	uint32_t file;      /* OPENERS: which of the job's */
};
#define WORKER_HOLDERS_MAX 16
#define WORKER_SENT_MAX    TRACER_FDS

struct worker_done {
	uint64_t id;
	uint32_t op;
	/*
	 * 0 or negative errno. -ECANCELED: stopped between two batches. -EFAULT: a page was not there, as in
	 * a file that somebody cut or punched (SIGBUS). -EHWPOISON: a page is broken. -EUCLEAN: VERIFY found
	 * a byte that is not zero.
	 */
	int32_t error;
	uint64_t bytes;             /* cleared, read, or allocated by the kernel; TABLES: of page tables */
	uint64_t resume;            /* FILL, CLEAR, VERIFY, stopped: where to go on */
	uint64_t fault;             /* -EFAULT, -EHWPOISON: offset of the page, -EUCLEAN: of the byte */
	uint64_t allocated, links;  /* SHIELD, PROBE, UNLINK, ORPHAN: of the file */
	struct proof_verdict proof; /* SHIELD, PROBE, UNLINK, ORPHAN */
	struct proof_facts facts;   /* LEARN */
	char why[96];               /* LEARN, TRACE: why not */
	/* Descriptors that come along. LEARN: the program, if it was loaded; TRACE: enum tracer_fd. */
	int32_t sent[WORKER_SENT_MAX];
	uint32_t sent_count;
	uint32_t sees;  /* TRACE: TRACER_SEES_* */
	int32_t method; /* CALIBRATE: row chosen, -1 none */
	uint32_t holder_count;
	uint32_t is_partial; /* HOLDERS, OPENERS: more may follow */
	struct worker_holder holders[WORKER_HOLDERS_MAX];
	uint64_t base_ns; /* CALIBRATE: time of a batch of `method` in the long run; 0: not measured */
	uint64_t batch_ns[ZERO_METHODS_MAX];
	double gb_per_s[ZERO_METHODS_MAX]; /* 0: not usable */
};

/*
 * Shared with hpzd. The worker reads the first half between two batches and writes the second. Whoever writes
 * the first half bumps the node's rules (pressure_bump): the worker may be waiting.
 */
struct worker_control {
	_Atomic uint64_t stop;  /* id of the job to stop; UINT64_MAX: all */
	_Atomic uint32_t level; /* enum worker_level, for the pressure rules */

	_Atomic uint64_t job;
	_Atomic uint64_t bytes; /* of this job */
	_Atomic uint64_t batches;
	_Atomic uint64_t last_batch_ns;
	/* Without work: no job, or held up by the rules. Not counted yet: since when, 0: it works. */
	_Atomic uint64_t rested_ns;
	_Atomic uint64_t resting_since_ns;
	/* How fast it goes: of the last WORKER_RATE_NS that are over. */
	_Atomic uint64_t rate_bytes_per_s;
	_Atomic uint64_t rate_at_ns; /* CLOCK_MONOTONIC; older than two of them: it stands still */
};
#define WORKER_RATE_NS (250 * NS_PER_MS)

#define WORKER_SOCKET_FD  3
#define WORKER_CONTROL_FD 4
#define WORKER_RULES_FD   5

/* Bytes between two looks at the control page. */
#define WORKER_CLEAR_BATCH ZERO_BATCH
/* VERIFY, sample: a cache line of each so many bytes is read. */
#define WORKER_SAMPLE ((uint64_t)128 << 10)
/* VERIFY, sample: bytes between two looks. */
#define WORKER_SAMPLE_BATCH ((uint64_t)16 << 20)
/* The kernel clears a page of 2M in about 0.3 ms (6.18); a larger page is one batch. */
#define WORKER_FILL_BATCH ((uint64_t)2 << 20)
/* CALIBRATE on a segment looks at so much of it, and at no less. */
#define WORKER_CALIBRATE_MIN ((uint64_t)64 << 20)
#define WORKER_CALIBRATE_MAX ((uint64_t)256 << 20)
/* More than any last cache: what a batch takes in the long run. */
#define WORKER_SUSTAINED_BYTES ((uint64_t)1 << 30)

/* main() of a worker process; returns its exit status. */
int worker_main(int argc, char **argv);

/* SIGBUS of a job's memory ends that job with -EFAULT or -EHWPOISON; of anything else the process. */
void worker_catch_faults(void);

/* Carries out one job in this process: what the process loop calls, and tests. rules NULL: none. */
void worker_run_job(const struct worker_job *job, const int fds[WORKER_FDS], struct worker_control *control,
	struct pressure_rules *rules, struct worker_done *ret_done,
	void (*send_partial)(const struct worker_done *done, void *user), void *user);

#endif
