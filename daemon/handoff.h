/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * handoff.h - memory goes out and comes back: opening, checking, linking; then shields, the probe and the
 * wait. The effects of a lease. Owns what is watched about each lease (its owner process, its files) and the
 * looks at memory that is still held. Changes a pool's state only through pool_set_state, a lease's through
 * lease_*.
 */
#ifndef HPZ_HANDOFF_H
#define HPZ_HANDOFF_H

#include "crew.h"
#include "exits.h"
#include "orphan.h"

struct handoff;

/* How a segment came back. */
enum handoff_back {
	HANDOFF_BACK_PROVEN, /* it is free, and dirty from now on */
	HANDOFF_BACK_KERNEL, /* unlinked, and nobody had it */
	HANDOFF_BACK_ORPHAN, /* unlinked, and somebody has it, or that cannot be told */
};

struct handoff_callbacks {
	/* All memory of this lease is back or gone, the lease is forgotten; only its id is left. */
	void (*ended)(uint64_t lease, void *user);
	/* Something changed that the pool should be looked at for. */
	void (*changed)(void *user);
	/* What teardown is told; each may be NULL. The end of this lease begins; its state
	 * is still what it was (of what was split off: returning). */
	void (*returning)(const struct lease *lease, void *user);
	/* A segment of it is not leased any more. */
	void (*back)(const struct lease *lease, const struct pool_segment *segment, enum handoff_back how,
		void *user);
	/* All are, and the lease is forgotten next. `lives_on`: its owner process does. */
	void (*over)(const struct lease *lease, bool lives_on, void *user);
	/*
	 * A process that had this lease has ended and its address space is gone. Before the lease returns,
	 * meanwhile, or when it is forgotten already (NULL). Several times for a path lease that several had.
	 */
	void (*exit)(uint64_t id, const struct lease *lease, const struct exits_seen *seen, void *user);
	void *user;
};

int handoff_init(uv_loop_t *loop, struct crew *crew, struct prover *prover, struct lease_table *leases,
	const struct handoff_callbacks *callbacks, struct handoff **ret_handoff);
/* Closes all watches; then calls back. The leases stay as they are, on disk and in the journal. */
void handoff_close(struct handoff *handoff, void (*closed)(void *user), void *user);
void handoff_free(struct handoff *handoff);

/*
 * Opens each segment anew for an outsider, having checked that it is what it must be. The descriptors are the
 * caller's. 0; -EUCLEAN: a file is not as it must be (is_new); -EWOULDBLOCK: somebody's file lease is in the
 * way; or another negative errno; then no descriptor is open.
 */
int handoff_open(struct handoff *handoff, struct lease *lease, bool is_new, int ret_fds[]);
/* The same for the segments from `first` on, of which those from `first_new` on are new. */
int handoff_open_from(
	struct handoff *handoff, struct lease *lease, size_t first, size_t first_new, int ret_fds[]);

/* Links a fresh path lease under hpz-out/ and watches its files. 0, -EUCLEAN or another negative errno. */
int handoff_link(struct handoff *handoff, struct lease *lease);
/* The same for its segments from `first` on. */
int handoff_link_from(struct handoff *handoff, struct lease *lease, size_t first);

/* A token for a lease not yet granted, of these segments: its directory exists on each of their mounts. */
int handoff_make_token(struct lease *draft, struct pool_segment *const *segments, size_t count);
/* The grant failed: the directories go again. */
void handoff_drop_token(struct lease *draft, struct pool_segment *const *segments, size_t count);

/*
 * At start: finds the hand-over directories of leases whose journal was lost, and removes those that an
 * earlier hpzd made and did not come to record. 0 or negative errno.
 */
int handoff_adopt_outs(struct handoff *handoff, const struct segment_store *store);

/*
 * Watches a lease from now on: its owner process (`pidfd` is borrowed; -1: none, or not known yet), its
 * files. A lease that was recovered from an earlier hpzd finds its owner again, or ends.
 */
int handoff_watch(struct handoff *handoff, struct lease *lease, int pidfd);
/* Another owner process, as the lease says; `pidfd` is borrowed, -1: none. */
void handoff_set_owner(struct handoff *handoff, struct lease *lease, int pidfd);

/* Part of a lease has become a lease that is returning; NULL: it only has less of its last segment. */
int handoff_split(struct handoff *handoff, struct lease *lease, struct lease *rest, const char *why);

/* The lease is over: shields, probe, and so on until the memory is back. Answers nothing; see `ended`. */
void handoff_return(struct handoff *handoff, struct lease *lease, const char *why);

/*
 * The same without waiting for whoever holds it: what is held when it is looked at next is unlinked and
 * becomes an orphan. The holder goes on with what it has.
 */
void handoff_force(struct handoff *handoff, struct lease *lease, const char *why);

/* How long nobody has a path lease open before it ends: for the looks that are planned from now on. */
void handoff_set_grace(struct handoff *handoff, uint64_t grace_ns);

/* How the ends of processes that have leases are looked at from now on; not before READY. */
void handoff_set_teardown(struct handoff *handoff, enum config_teardown mode);
const struct exits *handoff_get_exits(const struct handoff *handoff);

struct orphans *handoff_get_orphans(const struct handoff *handoff);

/*
 * Punches what was not asked for out of a segment: it is refilled after its return. Of several of a lease, in
 * order, one after the other.
 */
void handoff_trim(struct handoff *handoff, struct pool_segment *segment);

/* Whether a clean segment may go to an owner of that uid, as far as its past says. */
bool handoff_may_give(const struct handoff *handoff, const struct pool_segment *segment, uint32_t uid);

/* A descriptor for a process that cannot become another's; checks the start time if it is given. -errno. */
int handoff_open_process(pid_t pid, uint64_t start_ticks);

#endif
