/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * exits.h - what the end of a process that has leased memory costs, seen from outside: one watch a process,
 * however many leases it has. Owns the watches and the source of what is told. Ends no lease and keeps no
 * statistics: whoever shares a watch is called, once, when the address space is gone.
 *
 * Three sources, the best that this kernel and our permissions allow. What a source cannot see is EXITS_NONE.
 *
 *            begun   gone          table_bytes  flushes          steal  how it ended
 *   BPF      yes *   yes           when begun   by the process   yes    yes
 *   perf     yes **  yes           some time    -                -      where pidfd tells it
 *                                  before
 *   pidfd    -       when told     some time    -                -      where pidfd tells it (6.15)
 *                                  before
 *
 *   *  The first thread that ends together with its group. Where the kernel tells of a thread's end only
 * after it has left its address space (before 6.16), by its being killed: not for a single thread that exits
 *      by itself.
 *   ** The last thread, and only from 6.16 on.
 *
 * "Gone" is the end of exit_mmap(): all page tables are free. A child that shares the address space (vfork,
 * CLONE_VM) keeps it: then it is gone when that child has left it, too. pidfd knows nothing of such children,
 * and tells of those whose address space another has that is watched, or of the oldest where many linger.
 * An execve() also ends an address space, but not the process: it is not told.
 *
 * TLB flushes are those that ran in a dying thread of the process: by kind as in the kernel's enum
 * tlb_flush_reason. Those by which another CPU answers one's shootdown happen in whoever runs there, and no
 * event says whose they are: kinds 0, 1 and 5 are never known.
 */
#ifndef HPZ_EXITS_H
#define HPZ_EXITS_H

#include <sys/types.h>
#include <uv.h>

#include "crew.h"
#include "owner.h"

struct exits;
struct exits_watch;

enum exits_source { EXITS_NOTHING, EXITS_BPF, EXITS_PERF, EXITS_PIDFD };
const char *exits_get_source_name(enum exits_source source);

enum exits_how { EXITS_UNKNOWN, EXITS_EXIT, EXITS_KILL }; /* code: -1, exit status, signal */

#define EXITS_NONE    UINT64_MAX /* the source could not see it */
#define EXITS_FLUSHES 8

/* Processes that are over and whose address space another has. */
#define EXITS_LINGERING_MAX 64

struct exits_seen {
	int32_t pid;
	uint64_t pid_start;
	enum exits_source source; /* of this one */
	enum exits_how how;
	int32_t code;
	uint64_t begun_ns, gone_ns;      /* CLOCK_MONOTONIC */
	uint64_t table_bytes;            /* page tables when the end began, */
	uint64_t table_age_ns;           /* or so long before */
	uint64_t flushes[EXITS_FLUSHES]; /* by kind, as the kernel's enum tlb_flush_reason */
	uint64_t steal_ns;               /* meanwhile, of all CPUs */
};

/* How it ended, as wait() has it. */
void exits_set_code(struct exits_seen *seen, int code);

/* One who wants to know of the end of a process; unused while `watch` is NULL. */
struct exits_share {
	struct list link;
	struct exits_watch *watch;
	/* Once; the share is left before. */
	void (*seen)(struct exits_share *share, const struct exits_seen *seen);
};

/* `owners`, where the processes are watched, must outlive them. */
int exits_init(uv_loop_t *loop, struct crew *crew, struct owners *owners, struct exits **ret_exits);
/*
 * What is to be used from now on, CONFIG_TEARDOWN_*; loads it, which takes a moment. Not before READY. Off:
 * nobody more is watched; of those who are it is still told, by their pidfd.
 */
void exits_set_mode(struct exits *exits, enum config_teardown mode);
/* What is in force, and what it cannot see and why; "" if nothing. */
enum exits_source exits_get_source(const struct exits *exits);
const char *exits_get_gap(const struct exits *exits);
/* Calls back when the last handle is closed. Shares are left before; those of owners at once. */
void exits_close(struct exits *exits, void (*closed)(void *user), void *user);
void exits_free(struct exits *exits);

/*
 * The process of that id that began then (0: not known), which the pidfd (borrowed) holds on to. 0 or
 * negative errno: then it is not watched, and nobody will be called.
 */
int exits_join(struct exits *exits, pid_t pid, uint64_t pid_start, int pidfd, struct exits_share *share);
void exits_leave(struct exits_share *share);
/* A good moment to look at its page tables, for the sources that see them only while it lives. */
void exits_sample(struct exits_share *share);
/* Tells now of an end that there is something to tell of, and that would be told in a moment. */
void exits_hurry(struct exits_share *share);
/* Whether it is over, and only its address space is still to go. */
bool exits_is_ending(const struct exits_share *share);

#endif
