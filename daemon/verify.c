/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* verify.c - reads clean memory to see that it is zero. */
#include <inttypes.h>

#include "log.h"
#include "verify.h"

#define DEATHS_MAX 3

void verify_init(struct verify *verify, struct reconcile *reconcile)
{
	*verify = (struct verify){.reconcile = reconcile};
	list_init(&verify->runs);
}

/* ---- a job ---- */

static struct crew_job *new_job(struct verify *verify, struct pool_segment *segment, crew_done_cb done)
{
	struct pool *pool = segment->pool;
	int fd = reconcile_open_clean(verify->reconcile, segment);
	struct crew_job *job = fd >= 0 ? crew_new_job(WORKER_MEMORY, WORKER_VERIFY) : NULL;
	if (!job) {
		close_fd(fd);
		return NULL;
	}
	job->fds[WORKER_FD_SEGMENT] = fd;
	job->fds[WORKER_FD_LOCK] = pool->store->workers_fd;
	job->node = pool->config.node;
	job->wire.page_size = pool->config.page_size;
	job->wire.length = segment->pages;
	job->done = done;
	job->user = verify;
	segment->is_busy = true;
	segment->job = job;
	pool_keep(segment, verify);
	return job;
}

/* Nothing wrong with the memory: the same segment may be read again. */
static bool is_passing(int error)
{
	return error == -ECANCELED || error == -ENOMEM || error == -EOWNERDEAD;
}

/* What a job says of its segment; false: it is gone, or kept for ever because it cannot be unlinked. */
static bool settle(struct pool_segment *segment, const struct worker_done *done)
{
	struct pool *pool = segment->pool;
	segment->is_busy = false;
	segment->job = NULL;
	switch (done->error) {
	case 0:
		segment->deaths = 0;
		pool->verified_pages += segment->pages;
		return true;
	case -ECANCELED:
		return true;
	case -ENOMEM:
	case -EOWNERDEAD:
		if (++segment->deaths < DEATHS_MAX)
			return true;
		work_retire(segment, done, "workers fail over it");
		return false;
	case -EUCLEAN:
		pool->verify_hits++;
		snprintf(pool->alarm, sizeof pool->alarm,
			"clean segment %" PRIu64 " (handed out %" PRIu64
			" times) was NOT ZERO at offset %" PRIu64 ": it is handed out to nobody",
			segment->id, segment->generation, done->fault);
		log_error("pool %s: %s", pool->name, pool->alarm);
		work_retire(segment, done, "it was clean and is not zero");
		return false;
	default:
		work_retire(segment, done, "it cannot be read");
		return false;
	}
}

/* ---- before it is handed out ---- */

static struct pool_segment *find_by_job(const struct verify *verify, const struct crew_job *job)
{
	for (size_t i = 0; i < verify->reconcile->pool_count; i++) {
		LIST_FOR_EACH (pos, &verify->reconcile->pools[i]->classes) {
			struct pool_class *class = CONTAINER_OF(pos, struct pool_class, link);
			LIST_FOR_EACH (at, &class->segments[SEGMENT_CLEAN]) {
				struct pool_segment *segment = CONTAINER_OF(at, struct pool_segment, link);
				if (segment->job == job)
					return segment;
			}
		}
	}
	return NULL;
}

static void on_read(struct crew_job *job, const struct worker_done *done, void *user)
{
	struct verify *verify = user;
	struct pool_segment *segment = find_by_job(verify, job);
	if (!segment)
		return;
	bool is_there = settle(segment, done);
	/* Not read to its end, or not wanted any more: it is anybody's again. */
	if (is_there && (done->error != 0 || segment->keeper == verify))
		pool_keep(segment, NULL);
	reconcile_mark(verify->reconcile);
}

int verify_segment(struct verify *verify, struct pool_segment *segment)
{
	struct crew_job *job = new_job(verify, segment, on_read);
	if (!job)
		return -ENOMEM;
	if (segment->pool->config.verify == CONFIG_VERIFY_SAMPLE)
		job->wire.sample = MIN(WORKER_SAMPLE, job->wire.page_size);
	job->level = WORKER_LEVEL_URGENT;
	crew_submit(verify->reconcile->crew, job);
	return 0;
}

void verify_drop(struct verify *verify, struct pool_segment *segment)
{
	pool_keep(segment, segment->is_busy ? verify : NULL);
	if (segment->job)
		crew_cancel(verify->reconcile->crew, segment->job);
	else
		reconcile_mark(verify->reconcile);
}

/* ---- runs ---- */

static struct verify_run *get_run(const struct verify *verify)
{
	return list_is_empty(&verify->runs) ? NULL : CONTAINER_OF(verify->runs.next, struct verify_run, link);
}

/* Calls back for each clean segment of the run's pools until the callback says so; that segment. */
static struct pool_segment *find_segment(const struct verify *verify, struct verify_run *run,
	bool (*callback)(struct verify_run *run, struct pool_segment *segment))
{
	for (size_t i = 0; i < verify->reconcile->pool_count; i++) {
		struct pool *pool = verify->reconcile->pools[i];
		if (run->pool[0] && strcmp(run->pool, pool->name) != 0)
			continue;
		LIST_FOR_EACH (pos, &pool->classes) {
			struct pool_class *class = CONTAINER_OF(pos, struct pool_class, link);
			LIST_FOR_EACH (at, &class->segments[SEGMENT_CLEAN]) {
				struct pool_segment *segment = CONTAINER_OF(at, struct pool_segment, link);
				if (callback(run, segment))
					return segment;
			}
		}
	}
	return NULL;
}

/* What is kept for somebody is as good as handed out: for a reservation that may be long. */
static bool note_todo(struct verify_run *run, struct pool_segment *segment)
{
	if (!segment->keeper || segment->is_busy)
		segment->round = run->round;
	run->todo++;
	return false;
}

static bool is_todo(struct verify_run *run, struct pool_segment *segment)
{
	return segment->round == run->round;
}

static bool is_next(struct verify_run *run, struct pool_segment *segment)
{
	return segment->round == run->round && !segment->keeper;
}

static void note_result(
	struct verify_run *run, const struct pool_segment *segment, const struct worker_done *done)
{
	run->bytes += done->bytes;
	if (done->error != 0 && done->error != -EUCLEAN)
		return;
	bool is_hit = done->error == -EUCLEAN;
	run->segments++;
	run->pages += is_hit ? done->fault / segment->pool->config.page_size : segment->pages;
	if (!is_hit || run->hits++ > 0)
		return;
	snprintf(run->hit_pool, sizeof run->hit_pool, "%s", segment->pool->name);
	run->hit_segment = segment->id;
	run->hit_offset = done->fault;
}

static void on_run_read(struct crew_job *job, const struct worker_done *done, void *user)
{
	struct verify *verify = user;
	struct verify_run *run = get_run(verify);
	struct pool_segment *segment = steal_pointer(&verify->segment);
	bool is_its = run && segment->round == run->round;
	if (is_its)
		note_result(run, segment, done);
	/* Stopped for a lease that wants this very segment, or for other work: then it goes on from there. */
	verify->resumed_id = is_its && done->error == -ECANCELED ? segment->id : 0;
	verify->resume = done->resume;
	if (!is_passing(done->error))
		segment->round = 0;
	if (settle(segment, done))
		pool_keep(segment, NULL);
	reconcile_mark(verify->reconcile);
}

static void start_next(struct verify *verify, struct verify_run *run)
{
	struct pool_segment *segment = find_segment(verify, run, is_next);
	/* All that is left is in a request's hands for now: it leaves, or comes back. */
	if (!segment && find_segment(verify, run, is_todo))
		return;
	struct crew_job *job = segment ? new_job(verify, segment, on_run_read) : NULL;
	if (segment && !job) {
		segment->round = 0;
		reconcile_mark(verify->reconcile);
		return;
	}
	if (!job) {
		run->left = run->todo - MIN(run->todo, run->segments);
		run->is_over = true;
		list_remove(&run->link);
		return;
	}
	job->level = WORKER_LEVEL_IDLE;
	job->is_background = true;
	if (segment->id == verify->resumed_id)
		job->wire.resume = verify->resume;
	verify->segment = segment;
	crew_submit(verify->reconcile->crew, job);
}

bool verify_step(struct verify *verify)
{
	bool is_over = false;
	for (struct verify_run *run; !verify->segment && (run = get_run(verify));) {
		if (!run->has_begun)
			find_segment(verify, run, note_todo);
		run->has_begun = true;
		start_next(verify, run);
		if (!run->is_over)
			break;
		is_over = true;
	}
	return is_over;
}

void verify_start_run(struct verify *verify, struct verify_run *run)
{
	run->round = ++verify->last_round;
	list_append(&verify->runs, &run->link);
	reconcile_mark(verify->reconcile);
}

void verify_cancel_run(struct verify *verify, struct verify_run *run)
{
	if (run->is_over)
		return;
	bool is_first = run == get_run(verify);
	list_remove(&run->link);
	if (is_first && verify->segment && verify->segment->job)
		crew_cancel(verify->reconcile->crew, verify->segment->job);
}

bool verify_yield(struct verify *verify, const struct pool *pool, uint64_t pages, uint64_t below_pages)
{
	const struct pool_segment *segment = verify->segment;
	if (!segment || segment->pool != pool || segment->pages < pages ||
		(below_pages > 0 && segment->pages >= below_pages))
		return false;
	crew_cancel(verify->reconcile->crew, segment->job);
	return true;
}
