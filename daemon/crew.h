/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * crew.h - starts workers and gives them jobs.
 */
#ifndef HPZ_CREW_H
#define HPZ_CREW_H

#include <uv.h>
#include "config.h"
#include "host.h"
#include "worker.h"

struct crew;
struct crew_job;

/*
 * Called once for every job that was submitted, from the loop, when no worker touches its files any more.
 * `done` is valid during the call; done->error is -EOWNERDEAD when the worker died over it, -ECANCELED when
 * it was stopped. The job is freed after the call.
 */
typedef void (*crew_done_cb)(struct crew_job *job, const struct worker_done *done, void *user);
/* What a job found so far (WORKER_HOLDERS); of WORKER_OPENERS only what it found since it last said so. */
typedef void (*crew_partial_cb)(struct crew_job *job, const struct worker_done *done, void *user);

struct crew_job {
	struct list link;
	struct worker_job wire; /* id is crew's */
	/* Owned; -1: none. WORKER_FD_LOCK and WORKER_FD_PROGRAM are lent: never closed. */
	int fds[WORKER_FDS];
	bool is_dir_lent;          /* WORKER_FD_DIR is, too: as the lock, it is the store's */
	int sent[WORKER_SENT_MAX]; /* what the worker sent, the callback may take it; -1: none */
	enum worker_role role;
	int32_t node; /* memory */
	/*
	 * Memory: the class of the worker that has it, and who goes first. A job is stopped (-ECANCELED, with
	 * where to go on) when one of a higher level finds no worker; for an urgent one there is one more.
	 */
	enum worker_level level;
	bool is_background;   /* memory: after all others, whatever its level */
	bool is_stopping;     /* crew's */
	uint64_t deadline_ms; /* 0: none. After it the worker is killed; the answer comes when it is dead */
	uint64_t started_ns;  /* CLOCK_MONOTONIC; 0: still queued */
	crew_done_cb done;
	crew_partial_cb partial; /* may be NULL */
	void *user;
	struct crew_worker *worker;
};

/* `program`: the executable to start workers from. */
int crew_init(uv_loop_t *loop, const char *program, struct crew **ret_crew);
/*
 * Stops every worker between two batches and waits for their end; queued jobs are answered with -ECANCELED.
 * Then calls back. The crew takes no more jobs.
 */
void crew_stop(struct crew *crew, void (*stopped)(void *user), void *user);
void crew_free(struct crew *crew); /* after `stopped` */

/*
 * At start: a dead hpzd may have left workers behind. Lifts them from whatever class they are in and kills
 * them; that they are gone only the lock says (segment_lock_workers). `run_dir` holds the list; from now on
 * it holds ours.
 */
int crew_open_list(struct crew *crew, const char *run_dir);

/* The rules of [clear] for memory workers, those that live too; `host` must outlive the crew. */
void crew_set_rules(struct crew *crew, const struct host *host, const struct config_clear *clear);

/*
 * How many memory workers a node may have, at least one; the rules say it, too. Those too many are stopped
 * and sent home.
 */
void crew_set_size(struct crew *crew, int32_t node, unsigned workers);
unsigned crew_get_size(struct crew *crew, int32_t node);
/*
 * A memory job's level has changed: its worker is given the class from outside, because one caught in
 * SCHED_IDLE would not get there itself; one that waits finds its place in the queue.
 */
void crew_set_job_level(struct crew *crew, struct crew_job *job, enum worker_level level);
/* No job is given to a worker while held (leftovers of a dead hpzd live on). */
void crew_set_hold(struct crew *crew, bool is_held);

/* A job with everything zero and no descriptors, -ENOMEM: NULL. */
struct crew_job *crew_new_job(enum worker_role role, enum worker_op op);
/* Consumes the job and its descriptors. */
void crew_submit(struct crew *crew, struct crew_job *job);
/* Asks for a stop between two batches; the answer comes as ever. */
void crew_cancel(struct crew *crew, struct crew_job *job);
/* Frees a job that was never submitted. */
void crew_free_job(struct crew_job *job);

/* What a node's memory workers do now. */
struct crew_node_state {
	int32_t node;
	unsigned workers, queued;
	unsigned busy[WORKER_LEVEL_COUNT]; /* with a job, by level */
	uint64_t rate_bytes_per_s;
	const struct pressure_rules *rules;
};
/* By index; false: there are no more. */
bool crew_get_node_state(const struct crew *crew, size_t index, struct crew_node_state *ret_state);
/* Percent of time that others wait, -1: nobody looks. */
void crew_get_psi(const struct crew *crew, double *ret_cpu, double *ret_memory);

unsigned crew_get_worker_count(const struct crew *crew);
uint64_t crew_get_deaths(const struct crew *crew);
size_t crew_get_queued(const struct crew *crew, enum worker_role role);

#endif
