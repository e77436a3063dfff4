/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * pressure.h - when memory may be touched, and how much of it.
 *
 * The rules of a node are one page of atomics that hpzd and all workers of the node share. A worker asks at
 * one place, between two batches: pressure_wait(). It waits there in a futex, with a time limit only when
 * time alone will end the wait, and sees every change at once: whoever changes a rule, a level or a stop
 * bumps the futex word after it.
 *
 *   off         nothing is touched, by nobody
 *   paused      PSI says that others wait for CPU or memory; urgent work goes on
 *   rate        a token bucket for all workers of the node together (GCRA); urgent work takes no tokens
 *   scavenger   batches that take clearly longer than they should say that somebody else needs the memory
 * bus: back off, as LEDBAT does for networks; urgent work does not
 *
 * The rules of time are pure functions over the shared page: time is passed in.
 */
#ifndef HPZ_PRESSURE_H
#define HPZ_PRESSURE_H

#include <stdatomic.h>
#include "util.h"

/* Why a node is paused, bits of pressure_rules.paused. */
#define PRESSURE_PAUSE_CPU    1u
#define PRESSURE_PAUSE_MEMORY 2u

struct pressure_rules {
	/* hpzd writes, then bumps. */
	_Atomic uint32_t change; /* the futex word */
	_Atomic uint32_t is_off;
	_Atomic uint32_t paused; /* PRESSURE_PAUSE_* */
	_Atomic uint32_t is_scavenger;
	_Atomic uint64_t rate_bytes_per_s; /* 0: no cap */
	_Atomic uint32_t workers; /* that have a job now: one alone need not ask others to be quiet */

	/* Workers write. */
	_Atomic uint64_t next_ns;       /* token bucket: when the next batch may start, CLOCK_MONOTONIC */
	_Atomic uint64_t backoff;       /* scavenger: factor, last verdict and its time (pressure.c) */
	_Atomic uint64_t solo_until_ns; /* one worker measures alone until then */
	_Atomic uint64_t solo_next_ns;  /* when the next may */
	_Atomic uint64_t confirmed;     /* kind and calibrated time that one of them came near to */
	_Atomic uint64_t bytes;         /* touched since the page was made */
	_Atomic uint64_t batches;
	_Atomic uint64_t batch_ns; /* what a full batch took at the scavenger's last look */
	_Atomic uint64_t base_ns;  /* what it should have been */
};

/* What one kind of batch should take: by the calibration, and by what was seen while nobody disturbed. */
struct pressure_base {
	uint64_t key;
	uint64_t given_ns; /* 0: nobody said */
	uint64_t base_ns;  /* 0: not known yet */
	uint64_t lowest_ns;
	/* Whether a batch ever came near to what was given; since when none did. */
	enum { PRESSURE_GIVEN_NEW, PRESSURE_GIVEN_RIGHT, PRESSURE_GIVEN_WRONG } given;
	uint64_t doubted_ns;
};

#define PRESSURE_SAMPLES 32
#define PRESSURE_BASES   8

/* One worker's, in its own memory; outlives its jobs, because what was learnt of batches does. */
struct pressure_gate {
	struct pressure_rules *rules; /* NULL: nothing but stop counts */
	const _Atomic uint64_t *stop; /* id of the job to stop; UINT64_MAX: all */
	const _Atomic uint32_t *level;
	uint32_t urgent; /* the level that no rule but off holds up */
	uint32_t idle;   /* the level at which the scavenger backs off as far as it can */
	/* Before and after a wait; may be NULL. */
	void (*rest)(void *user, bool is_resting);
	void *user;

	uint64_t job, batch_bytes;
	struct pressure_base bases[PRESSURE_BASES];
	size_t base, next_base; /* of the job; to be given to the next kind */

	uint64_t slot_ns, slot_rate; /* reserved in the bucket; 0: none */
	uint64_t not_before_ns;      /* scavenger */
	uint64_t start_ns;
	uint64_t solo_until_ns;             /* ours; 0: none */
	bool is_evidence;                   /* of the batch under way: nobody of ours is on the bus */
	uint64_t samples[PRESSURE_SAMPLES]; /* the last ones since the last look */
	size_t sample_count;
	uint64_t sample_ns; /* their sum */
	uint64_t looked_ns;
	/* Batches without a sleep between them: since when, when the last ended, how long they took. */
	uint64_t burst_since_ns, left_ns, burst_ns;
	unsigned burst_samples; /* of them so many were evidence */
};

/*
 * A job begins. `key` tells kinds of batches apart (operation, method, page size), batch_bytes is a full
 * batch, base_ns the time it takes when nobody disturbs (0: not known, the gate learns it).
 */
void pressure_begin(
	struct pressure_gate *gate, uint64_t job, uint64_t key, uint64_t batch_bytes, uint64_t base_ns);

/* Between two batches, before one of `bytes`: waits as long as the rules say. True: go on; false: stop. */
MUST_CHECK bool pressure_wait(struct pressure_gate *gate, uint64_t bytes);
/* The batch that pressure_wait() let pass is done. */
void pressure_count(struct pressure_gate *gate, uint64_t bytes, uint64_t now_ns);

/* hpzd: something in the rules, or a stop or level of a worker of this node, has changed. */
void pressure_bump(struct pressure_rules *rules);

/* ---- the rules, pure ---- */

/*
 * Takes a place in the bucket for a batch: when it may start, at once if that is not after now_ns. The bucket
 * never holds more than PRESSURE_BURST_BYTES.
 */
#define PRESSURE_BURST_BYTES ((uint64_t)8 << 20)
uint64_t pressure_take_slot(
	_Atomic uint64_t *next_ns, uint64_t rate_bytes_per_s, uint64_t bytes, uint64_t now_ns);

/*
 * When the next batch may start, as things are: 0: at once; UINT64_MAX: only a change will tell. Takes a
 * place in the bucket, once for a batch.
 */
uint64_t pressure_get_start(struct pressure_gate *gate, uint64_t bytes, uint64_t now_ns);

/* A batch begins, because pressure_get_start() said 0; and it is over and took so long. */
void pressure_enter(struct pressure_gate *gate, uint64_t now_ns);
void pressure_leave(struct pressure_gate *gate, uint64_t bytes, uint64_t took_ns, uint64_t now_ns);

/*
 * It sleeps so many times as long as a burst of batches took; 0: nobody disturbs. Below the low watermark no
 * more than leaves a quarter of the rate, whatever the neighbour does: the stock has to come back.
 */
#define PRESSURE_BACKOFF_MAX        31
#define PRESSURE_BACKOFF_REFILL_MAX 3
unsigned pressure_get_backoff(const struct pressure_rules *rules);

#endif
