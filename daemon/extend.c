/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* extend.c - makes a clean segment longer, or a new one, for somebody who waits. */
#include <fcntl.h>
#include <inttypes.h>

#include "extend.h"
#include "log.h"

#define PARTS_MAX      16
#define PART_BYTES_MIN ((uint64_t)64 << 20) /* 10 ms of zeroing: less is not worth another worker */

struct extend {
	struct reconcile *reconcile;
	struct pool_segment *segment;
	struct crew_job *jobs[PARTS_MAX]; /* NULL: answered */
	unsigned job_count;
	unsigned left;              /* jobs not answered, and whoever looks at the list */
	struct worker_done failure; /* the first one; error 0: none */
	extend_done_cb done;
	void *user;
};

/* ---- the end ---- */

static void discard(struct pool_segment *segment, const char *why)
{
	struct pool *pool = segment->pool;
	log_info("pool %s: segment %" PRIu64 " goes back to the kernel: %s", pool->name, segment->id, why);
	int r = pool_discard(segment);
	if (r < 0) /* it stays in filling/, and is filled after all */
		log_error("pool %s: segment %" PRIu64 " cannot be unlinked: %s", pool->name, segment->id,
			strerror(-r));
}

/* What becomes of a segment that could not be made as long as it was to be. */
static void settle_failed(
	struct reconcile *reconcile, struct pool_segment *segment, const struct worker_done *failure)
{
	struct pool *pool = segment->pool;
	switch (failure->error) {
	case -EOWNERDEAD: /* whoever fills goes on with it */
		return;
	case -ECANCELED:
		if (!reconcile->is_stopping)
			discard(segment, "not wanted any more");
		return; /* stopping: it stays for the next hpzd */
	case -EHWPOISON:
		work_retire(segment, failure, "its memory cannot be used");
		return;
	case -ENOSPC:
		discard(segment, "the kernel has not enough pages for it now");
		return;
	default:
		log_error("pool %s: segment %" PRIu64 " cannot be extended: %s", pool->name, segment->id,
			strerror(-failure->error));
		discard(segment, "it cannot be used");
	}
}

static int settle(
	struct reconcile *reconcile, struct pool_segment *segment, const struct worker_done *failure)
{
	int r = failure->error;
	if (r < 0) {
		settle_failed(reconcile, segment, failure);
		return r;
	}
	r = segment->is_suspect ? -EUCLEAN : pool_publish(segment);
	if (r < 0) {
		log_error("pool %s: segment %" PRIu64 " is not whole after it was extended: %s",
			segment->pool->name, segment->id, strerror(-r));
		discard(segment, "it is not whole");
	}
	return r;
}

static void finish(struct extend *extend)
{
	struct reconcile *reconcile = extend->reconcile;
	struct pool_segment *segment = extend->segment;
	segment->is_busy = false;
	segment->pool->fill_jobs--;
	int r = settle(reconcile, segment, &extend->failure);
	extend->done(r == 0 ? segment : NULL, r, extend->user);
	free(extend);
	reconcile_mark(reconcile);
}

static void let_go(struct extend *extend)
{
	if (--extend->left == 0)
		finish(extend);
}

static void cancel_jobs(struct extend *extend)
{
	extend->left++; /* one that is queued is answered from inside */
	for (unsigned i = 0; i < extend->job_count; i++) {
		if (extend->jobs[i])
			crew_cancel(extend->reconcile->crew, extend->jobs[i]);
	}
	let_go(extend);
}

static void on_part(struct crew_job *job, const struct worker_done *done, void *user)
{
	struct extend *extend = user;
	bool is_first = extend->failure.error == 0 && done->error < 0;
	for (unsigned i = 0; i < extend->job_count; i++) {
		if (extend->jobs[i] == job)
			extend->jobs[i] = NULL;
	}
	extend->segment->pool->jobs--;
	extend->reconcile->work.bytes_filled += done->bytes;
	if (is_first) {
		extend->failure = *done;
		cancel_jobs(extend); /* what the others do is of no use any more */
	}
	let_go(extend);
}

void extend_abandon(struct extend *extend)
{
	if (extend->segment->pool->is_draining)
		cancel_jobs(extend);
}

/* ---- the beginning ---- */

static struct crew_job *new_part(struct extend *extend, uint64_t first, uint64_t pages)
{
	struct pool_segment *segment = extend->segment;
	int fd = pool_open_segment(segment);
	struct crew_job *job = fd >= 0 ? crew_new_job(WORKER_MEMORY, WORKER_GROW) : NULL;
	if (!job) {
		close_fd(fd);
		return NULL;
	}
	job->fds[WORKER_FD_SEGMENT] = fd;
	job->fds[WORKER_FD_LOCK] = segment->pool->store->workers_fd;
	job->node = segment->pool->config.node;
	job->wire.page_size = segment->pool->config.page_size;
	job->wire.length = segment->pages;
	job->wire.first = first;
	job->wire.pages = pages;
	job->level = WORKER_LEVEL_URGENT;
	job->done = on_part;
	job->user = extend;
	return job;
}

/* All parts or none. */
static int make_parts(struct extend *extend, uint64_t first)
{
	const struct pool_segment *segment = extend->segment;
	uint64_t pages = segment->pages - first, page_size = segment->pool->config.page_size;
	uint64_t count = MAX(MIN(pages * page_size / PART_BYTES_MIN, PARTS_MAX), 1);
	uint64_t each = (pages + count - 1) / count;
	while (pages > 0) {
		struct crew_job *job = new_part(extend, first, MIN(each, pages));
		if (!job) {
			while (extend->job_count > 0)
				crew_free_job(extend->jobs[--extend->job_count]);
			return -ENOMEM;
		}
		extend->jobs[extend->job_count++] = job;
		first += job->wire.pages;
		pages -= job->wire.pages;
	}
	extend->left = extend->job_count;
	return 0;
}

static int prepare(struct reconcile *reconcile, struct pool *pool, struct pool_segment **segment,
	uint64_t pages, uint64_t *ret_first)
{
	int r, fd;
	*ret_first = 0;
	if (!*segment) {
		r = pool_create(pool, pages, segment, &fd);
		if (r == 0)
			close(fd);
		return r;
	}
	if (reconcile_was_opened(reconcile, *segment))
		return -EUCLEAN;
	*ret_first = (*segment)->pages;
	r = pool_extend(*segment, pages);
	/* An open that nobody had heard of until now: what it did to the memory is not known. */
	if ((*segment)->state == SEGMENT_FILLING && reconcile_was_opened(reconcile, *segment)) {
		discard(*segment, "somebody opened it");
		return -EUCLEAN;
	}
	return r;
}

int extend_start(struct reconcile *reconcile, struct pool *pool, struct pool_segment *segment, uint64_t pages,
	extend_done_cb done, void *user, struct extend **ret_extend)
{
	uint64_t first;
	struct extend *extend = calloc(1, sizeof *extend);
	if (!extend)
		return -ENOMEM;
	int r = prepare(reconcile, pool, &segment, pages, &first);
	if (r == 0) {
		*extend = (struct extend){
			.reconcile = reconcile, .segment = segment, .done = done, .user = user};
		r = make_parts(extend, first);
	}
	if (r < 0) { /* one left in filling/ is filled like any other */
		free(extend);
		reconcile_mark(reconcile);
		return r;
	}
	segment->is_busy = true;
	pool->fill_jobs++;
	pool->jobs += extend->job_count; /* what is not wanted by anybody waits for them */
	for (unsigned i = 0; i < extend->job_count; i++)
		crew_submit(reconcile->crew, extend->jobs[i]);
	*ret_extend = extend;
	return 0;
}
