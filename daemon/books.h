/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * books.h - whether the books balance: what hpzd believes, what the journal says, what lies on disk, what the
 * kernel counts.
 *
 * Two looks. The cheap one comes after every batch of events and compares counts that are kept separately; a
 * difference there is a mistake of ours. The whole one is hpzctl check: it looks at every name and file, in
 * slices, so that nobody waits for it. What it finds is looked at a second time a moment later, because files
 * move while it looks: only what is found twice counts. With repair, what can be put right without touching
 * memory that somebody has is put right; whatever takes a lock that a client can hold, a helper does.
 *
 * A difference is an alarm (log, status, counter), never an end.
 */
#ifndef HPZ_BOOKS_H
#define HPZ_BOOKS_H

#include "reconcile.h"

struct books_finding {
	uint32_t kind;     /* enum hpz_finding_kind */
	uint32_t severity; /* enum hpz_severity */
	bool is_repaired;
	char pool[64]; /* "": no one pool's */
	char text[320];

	/* what repair needs */
	char key[SEGMENT_NAME_MAX + 32]; /* the same thing, found again */
	int dir;                         /* what `name` is in, borrowed; -1: nothing to remove */
	char inside[SEGMENT_TOKEN + 1];  /* the directory in `dir` that `name` is in; "": `dir` itself */
	char name[256];
	uint64_t segment; /* id; 0: none */
};

#define BOOKS_FINDINGS_MAX 4096

struct books_list {
	struct books_finding *findings;
	size_t count, capacity;
	size_t dropped; /* found, but there was no room */
};

struct books {
	struct reconcile *reconcile;
	uv_timer_t timer;
	uint64_t alarms;   /* differences since start, each once */
	char message[512]; /* what is wrong now, for status; "": nothing known */
	char counts[320];  /* what the cheap look says is wrong */

	/* the whole look */
	struct books_run *run;     /* NULL: none is under way */
	struct books_list results; /* of the last one */
	uint64_t run_number;       /* which that was */
	uint64_t segments, leases; /* looked at by it */
	void (*checked)(void *user);
	void *user;
	bool is_stopping;
};

/* `checked` is called when a whole look is over; its results stay until the next one begins. */
void books_init(struct books *books, uv_loop_t *loop, struct reconcile *reconcile,
	void (*checked)(void *user), void *user);
/* Closes its handle; what is under way is not answered any more. */
void books_stop(struct books *books);
void books_deinit(struct books *books);

/* Pools and mounts are about to change: a whole look under way begins anew, and repairs nothing any more. */
void books_restart(struct books *books);

/* The cheap look; states are settled. */
void books_look(struct books *books);

/* The whole look. -EBUSY: one is under way; -EAGAIN: workers of an earlier hpzd live on; or another negative
 * errno. */
int books_check(struct books *books, bool repairs);

#endif
