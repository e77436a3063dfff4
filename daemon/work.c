/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * work.c - what workers do to segments, and what comes of it.
 *
 * A segment is cut into parts, each a job of its own, so that one large segment and many small ones keep all
 * workers of the node busy to the end. What a part was done with is remembered as long as the segment stays
 * in its directory: a job that is stopped, for a more urgent one or by the operator, goes on where it was.
 * Only a worker's death costs its part. Nothing of this is on disk: after hpzd's own death a dirty segment is
 * cleared from the beginning.
 *
 * Each part is fenced by the worker that stored it, before it answers; the name moves to clean/ when the last
 * part has answered. When a part fails for good, the others are stopped and there is one verdict when all of
 * them have ended, because until then a worker may still touch the file.
 */
#include <fcntl.h>
#include <inttypes.h>

#include "log.h"
#include "work.h"

/*
 * One worker clears it in about 10 ms: long enough that the way to hpzd and back (0.1 ms) does not count,
 * short enough that all workers end at about the same time.
 */
#define PART_BYTES ((uint64_t)512 << 20)

#define RETRY_MS        1000
#define DEATHS_MAX      3  /* workers lost over one segment before it is given up */
#define JOBS_PER_WORKER 2  /* one under way, one behind it */
#define ZERO_FREE_PAGES 16 /* a job: then hpzd looks what else there is to do */
#define ZERO_FREE_MS    10000

struct work_part {
	struct crew_job *job; /* NULL: none */
	uint64_t resume;      /* up to where it is done */
	bool is_done;
};

struct work_parts {
	struct list link; /* pool->active, while something is under way */
	struct pool_segment *segment;
	enum worker_op op;
	enum worker_level level;
	int fd; /* -1 while nothing is under way */
	unsigned running;
	bool is_cancelled; /* no more jobs for now */
	int error;         /* the verdict, as far as it is bad */
	uint64_t fault;
	size_t first_todo; /* no part before it needs a job */
	size_t count;
	struct work_part parts[];
};

static struct work *get_work(const struct pool_segment *segment)
{
	return segment->pool->owner;
}

static void look(struct work *work, uint64_t delay_ms)
{
	if (!work->is_stopping)
		work->callbacks.look(delay_ms, work->callbacks.user);
}

static uint64_t now_ns(const struct work *work)
{
	return uv_now(work->loop) * NS_PER_MS;
}

uint64_t work_get_missing(const struct pool_segment *segment)
{
	return segment->pages > segment->allocated ? segment->pages - segment->allocated : 0;
}

void work_put_off(struct pool_segment *segment)
{
	struct work *work = get_work(segment);
	segment->retry_ns = now_ns(work) + RETRY_MS * NS_PER_MS;
	look(work, RETRY_MS);
}

static void put_off_fills(struct pool *pool)
{
	struct work *work = pool->owner;
	pool->fill_retry_ns = now_ns(work) + RETRY_MS * NS_PER_MS;
	look(work, RETRY_MS);
}

/* The look may have come early, for another's sake. */
bool work_is_put_off(const struct work *work, uint64_t retry_ns)
{
	uint64_t now = now_ns(work);
	if (now >= retry_ns)
		return false;
	work->callbacks.look((retry_ns - now) / NS_PER_MS + 1, work->callbacks.user);
	return true;
}

/* ---- what becomes of a segment ---- */

void work_discard(struct pool_segment *segment, const char *why)
{
	struct pool *pool = segment->pool;
	struct work *work = get_work(segment);
	log_info("pool %s: segment %" PRIu64 " goes back to the kernel: %s", pool->name, segment->id, why);
	int r = pool_discard(segment);
	if (r < 0) {
		log_error("pool %s: segment %" PRIu64 " cannot be unlinked: %s", pool->name, segment->id,
			strerror(-r));
		work_put_off(segment);
		return;
	}
	look(work, 0); /* the stock lacks it from now on */
}

/* Somebody removed it behind our back. */
static void forget_vanished(struct pool_segment *segment)
{
	struct work *work = get_work(segment);
	log_error("pool %s: segment %" PRIu64 " has vanished from %s", segment->pool->name, segment->id,
		segment->pool->store->path);
	pool_forget(segment);
	look(work, 0);
}

void work_retire(struct pool_segment *segment, const struct worker_done *done, const char *why)
{
	struct pool *pool = segment->pool;
	const char *what = done->error == -EFAULT ? "a page was not there (its file was cut or punched)"
						  : "its memory is broken";
	pool->retired_pages += segment->pages;
	if (done->error == -EFAULT || done->error == -EHWPOISON) {
		pool->sigbus++;
		snprintf(pool->alarm, sizeof pool->alarm,
			"segment %" PRIu64 " was retired: %s, offset %" PRIu64, segment->id, what,
			done->fault);
		log_error("pool %s: %s", pool->name, pool->alarm);
	}
	work_discard(segment, why);
}

static void settle_failed(struct pool_segment *segment, int error, uint64_t fault, const char *what)
{
	struct pool *pool = segment->pool;
	struct worker_done done = {.error = error, .fault = fault};
	switch (error) {
	case -EOWNERDEAD:
		work_discard(segment, "workers die over it");
		return;
	case -EFAULT:
	case -EHWPOISON:
		work_retire(segment, &done, "its memory cannot be used");
		return;
	case -ENOSPC:
	case -ENOMEM:
		work_discard(segment, "the kernel has not enough pages for it now");
		break;
	case -EXDEV:
		log_error("pool %s: node %" PRId32 ": the kernel gave pages of another node", pool->name,
			pool->config.node);
		work_discard(segment, "pages on the wrong node");
		break;
	default:
		log_error("pool %s: %s of segment %" PRIu64 " failed: %s", pool->name, what, segment->id,
			strerror(-error));
		work_discard(segment, "it cannot be used");
	}
	put_off_fills(pool);
}

static void publish(struct pool_segment *segment)
{
	struct pool *pool = segment->pool;
	int r = pool_publish(segment);
	if (r == 0) {
		segment->deaths = 0;
		return;
	}
	log_error("pool %s: segment %" PRIu64 " is not whole after the work on it: %s", pool->name,
		segment->id, strerror(-r));
	/* Whatever is wrong with it is likely to be wrong with the next. */
	put_off_fills(pool);
	work_discard(segment, "it is not whole");
}

/* ---- parts ---- */

/* A fill is one part: the kernel holds the file's lock while it zeroes, two workers would take turns. */
static struct work_parts *new_parts(struct pool_segment *segment, enum worker_op op)
{
	uint64_t bytes = segment->pages * segment->pool->config.page_size;
	size_t count = op == WORKER_CLEAR ? (size_t)((bytes + PART_BYTES - 1) / PART_BYTES) : 1;
	struct work_parts *parts = calloc(1, sizeof *parts + count * sizeof *parts->parts);
	if (!parts)
		return NULL;
	list_init(&parts->link);
	parts->segment = segment;
	parts->op = op;
	parts->fd = -1;
	parts->count = count;
	for (size_t i = 0; i < count; i++)
		parts->parts[i].resume = i * PART_BYTES;
	return parts;
}

static bool needs_job(const struct work_part *part)
{
	return !part->job && !part->is_done;
}

/* NULL: each of them is done, or under way. */
static struct work_part *find_todo(struct work_parts *parts)
{
	while (parts->first_todo < parts->count && !needs_job(&parts->parts[parts->first_todo]))
		parts->first_todo++;
	return parts->first_todo < parts->count ? &parts->parts[parts->first_todo] : NULL;
}

static struct work_part *find_part(struct work_parts *parts, const struct crew_job *job)
{
	for (size_t i = 0; i < parts->count; i++) {
		if (parts->parts[i].job == job)
			return &parts->parts[i];
	}
	return NULL;
}

static unsigned get_limit(const struct work *work, const struct pool *pool)
{
	return crew_get_size(work->crew, pool->config.node) * JOBS_PER_WORKER;
}

bool work_has_room(const struct work *work, const struct pool *pool)
{
	return pool->jobs < get_limit(work, pool);
}

static enum worker_level get_level(const struct pool_segment *segment)
{
	if (segment->is_wanted)
		return WORKER_LEVEL_URGENT;
	return segment->pool->plan.is_refilling ? WORKER_LEVEL_REFILL : WORKER_LEVEL_IDLE;
}

static void on_part(struct crew_job *job, const struct worker_done *done, void *user);

static struct crew_job *new_segment_job(
	struct pool_segment *segment, enum worker_op op, int fd, crew_done_cb done)
{
	struct pool *pool = segment->pool;
	struct crew_job *job = crew_new_job(WORKER_MEMORY, op);
	if (!job)
		return NULL;
	job->fds[WORKER_FD_SEGMENT] = fd;
	job->fds[WORKER_FD_LOCK] = pool->store->workers_fd;
	job->node = pool->config.node;
	job->wire.page_size = pool->config.page_size;
	job->wire.length = segment->pages;
	job->wire.method = -1;
	job->done = done;
	job->user = segment;
	return job;
}

static int submit_part(struct work *work, struct work_parts *parts, struct work_part *part)
{
	struct pool *pool = parts->segment->pool;
	int fd = fcntl(parts->fd, F_DUPFD_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	struct crew_job *job = new_segment_job(parts->segment, parts->op, fd, on_part);
	if (!job) {
		close(fd);
		return -ENOMEM;
	}
	job->level = parts->level;
	const struct work_calibration *calibration =
		work_find_calibration(work, pool->config.node, pool->config.page_size);
	job->wire.method = calibration ? calibration->method : -1;
	if (calibration && job->wire.method == calibration->done.method)
		job->wire.base_ns = calibration->done.base_ns;
	job->wire.resume = part->resume;
	if (parts->op == WORKER_CLEAR) {
		job->wire.first_byte = (uint64_t)(part - parts->parts) * PART_BYTES;
		job->wire.part_bytes = PART_BYTES;
	}
	part->job = job;
	parts->running++;
	pool->jobs++;
	crew_submit(work->crew, job);
	return 0;
}

/* What is wanted is given whole, so that no other job stands between two of its parts. */
static bool has_room_for(const struct work *work, const struct work_parts *parts)
{
	const struct pool *pool = parts->segment->pool;
	return parts->segment->is_wanted ? parts->running < get_limit(work, pool) : work_has_room(work, pool);
}

static int submit_parts(struct work *work, struct work_parts *parts)
{
	int r = 0;
	if (parts->is_cancelled || parts->error || work->is_stopping)
		return 0;
	for (struct work_part *part; r == 0 && has_room_for(work, parts) && (part = find_todo(parts));)
		r = submit_part(work, parts, part);
	return r;
}

/* All jobs of the segment have ended. */
static void finish(struct work *work, struct work_parts *parts)
{
	struct pool_segment *segment = parts->segment;
	struct pool *pool = segment->pool;
	bool is_fill = parts->op == WORKER_FILL, is_whole = !find_todo(parts);
	list_remove(&parts->link);
	parts->fd = close_fd(parts->fd);
	parts->is_cancelled = false;
	segment->is_busy = false;
	*(is_fill ? &pool->fill_jobs : &pool->clear_jobs) -= 1;
	pool_refresh(segment);
	if (parts->error)
		settle_failed(segment, parts->error, parts->fault, is_fill ? "filling" : "clearing");
	else if (is_whole)
		publish(segment);
	look(work, 0);
}

/* A queued one is answered at once; its answer shall not be the last before all were told. */
static void stop_parts(struct work *work, struct work_parts *parts)
{
	parts->running++;
	for (size_t i = 0; i < parts->count; i++) {
		if (parts->parts[i].job)
			crew_cancel(work->crew, parts->parts[i].job);
	}
	if (--parts->running == 0)
		finish(work, parts);
}

/* Goes on with whatever of the pool has parts to do: the wanted first, then as it began. */
static void go_on(struct work *work, struct pool *pool)
{
	for (int is_wanted = 1; is_wanted >= 0; is_wanted--) {
		LIST_FOR_EACH_SAFE (pos, &pool->active) {
			struct work_parts *parts = CONTAINER_OF(pos, struct work_parts, link);
			if (parts->segment->is_wanted == is_wanted && submit_parts(work, parts) < 0)
				look(work, RETRY_MS);
		}
	}
}

static void note_answer(struct work_parts *parts, struct work_part *part, const struct worker_done *done)
{
	struct pool_segment *segment = parts->segment;
	switch (done->error) {
	case 0:
		part->is_done = true;
		return;
	case -ECANCELED:
		part->resume = MAX(part->resume, done->resume);
		break;
	case -EOWNERDEAD:
		if (parts->op == WORKER_CLEAR)
			part->resume = (uint64_t)(part - parts->parts) * PART_BYTES;
		if (++segment->deaths < DEATHS_MAX)
			break;
		parts->error = parts->error ? parts->error : done->error;
		return;
	default:
		/* Broken memory is told of, whatever else went wrong. */
		if (!parts->error || done->error == -EHWPOISON || done->error == -EFAULT) {
			parts->error = done->error;
			parts->fault = done->fault;
		}
		return;
	}
	parts->first_todo = MIN(parts->first_todo, (size_t)(part - parts->parts));
}

static void on_part(struct crew_job *job, const struct worker_done *done, void *user)
{
	struct pool_segment *segment = user;
	struct pool *pool = segment->pool;
	struct work *work = get_work(segment);
	struct work_parts *parts = segment->parts;
	struct work_part *part = find_part(parts, job);
	bool was_good = !parts->error;
	*(parts->op == WORKER_FILL ? &work->bytes_filled : &work->bytes_cleared) += done->bytes;
	part->job = NULL;
	parts->running--;
	pool->jobs--;
	note_answer(parts, part, done);
	if (submit_parts(work, parts) < 0)
		look(work, RETRY_MS);
	if (parts->error && was_good)
		stop_parts(work, parts);
	else if (parts->running == 0)
		finish(work, parts);
	go_on(work, pool);
}

/* ---- fill and clear ---- */

/* A simulated page is never allocated, so it is zero by being a hole; see segment_set_simulated(). */
static void pretend(struct work *work, struct pool_segment *segment, int fd)
{
	off_t bytes = (off_t)(segment->pages * segment->pool->config.page_size);
	if (ftruncate(fd, 0) < 0 || ftruncate(fd, bytes) < 0)
		log_error("segment %" PRIu64 " cannot be cut: %s", segment->id, strerror(errno));
	else
		publish(segment);
	close(fd);
	look(work, 0);
}

static void begin_take(struct work *work, struct pool_segment *segment, enum worker_op op, int fd)
{
	struct pool *pool = segment->pool;
	if (work->is_simulated) {
		pretend(work, segment, fd);
		return;
	}
	if (!segment->parts)
		segment->parts = new_parts(segment, op);
	struct work_parts *parts = segment->parts;
	if (!parts) {
		close(fd);
		work_put_off(segment);
		return;
	}
	parts->fd = fd;
	parts->level = get_level(segment);
	parts->error = 0;
	*(op == WORKER_FILL ? &pool->fill_jobs : &pool->clear_jobs) += 1;
	segment->is_busy = true;
	list_append(&pool->active, &parts->link);
	submit_parts(work, parts);
	if (parts->running > 0)
		return;
	work_put_off(segment);
	finish(work, parts);
}

static void begin(struct work *work, struct pool_segment *segment, enum worker_op op)
{
	int fd = pool_open_segment(segment);
	if (fd == -ENOENT) {
		forget_vanished(segment);
	} else if (fd < 0) {
		log_error("pool %s: segment %" PRIu64 " cannot be opened for %s: %s", segment->pool->name,
			segment->id, op == WORKER_FILL ? "filling" : "clearing", strerror(-fd));
		work_put_off(segment);
	} else {
		begin_take(work, segment, op, fd);
	}
}

void work_fill(struct work *work, struct pool_segment *segment)
{
	begin(work, segment, WORKER_FILL);
}

void work_fill_take(struct work *work, struct pool_segment *segment, int fd)
{
	begin_take(work, segment, WORKER_FILL, fd);
}

void work_clear(struct work *work, struct pool_segment *segment)
{
	begin(work, segment, WORKER_CLEAR);
}

void work_cancel(struct work *work, struct pool_segment *segment)
{
	struct work_parts *parts = segment->parts;
	if (!segment->is_busy || !parts || parts->running == 0)
		return;
	parts->is_cancelled = true;
	stop_parts(work, parts);
}

static void set_level(struct work *work, struct work_parts *parts, enum worker_level level)
{
	if (parts->level == level)
		return;
	parts->level = level;
	for (size_t i = 0; i < parts->count; i++) {
		if (parts->parts[i].job)
			crew_set_job_level(work->crew, parts->parts[i].job, level);
	}
}

void work_set_levels(struct work *work, struct pool *pool)
{
	LIST_FOR_EACH (pos, &pool->active) {
		struct work_parts *parts = CONTAINER_OF(pos, struct work_parts, link);
		set_level(work, parts, get_level(parts->segment));
	}
	go_on(work, pool);
}

/* ---- the kernel's free pages ---- */

static void on_zeroed_free(struct crew_job *job, const struct worker_done *done, void *user)
{
	struct pool *pool = user;
	struct work *work = pool->owner;
	uint64_t left = 0;
	pool->is_zeroing_free = false;
	work->bytes_zeroed_free += done->bytes;
	bool is_known = host_get_zeroable(work->host, pool->config.node, pool->config.page_size, &left) == 0;
	bool is_getting_on = done->error == 0 && is_known && left < pool->zeroable_pages;
	/* Where nothing comes of it there is no hurry. */
	if (!is_getting_on && done->error != -ECANCELED) {
		pool->zero_free_retry_ns = now_ns(work) + ZERO_FREE_MS * NS_PER_MS;
		return;
	}
	look(work, 0);
}

void work_zero_free(struct work *work, struct pool *pool)
{
	if (!work->may_zero_free || pool->is_zeroing_free || pool->jobs > 0 ||
		pool->zero_free_retry_ns == UINT64_MAX)
		return;
	int r = host_get_zeroable(
		work->host, pool->config.node, pool->config.page_size, &pool->zeroable_pages);
	if (r == -ENOENT) /* this kernel has no such thing, and does not get it */
		pool->zero_free_retry_ns = UINT64_MAX;
	if (r < 0 || pool->zeroable_pages == 0 || work_is_put_off(work, pool->zero_free_retry_ns))
		return;
	int fd = host_open_zeroable(work->host, pool->config.node, pool->config.page_size);
	struct crew_job *job = fd >= 0 ? crew_new_job(WORKER_MEMORY, WORKER_ZERO_FREE) : NULL;
	if (!job) {
		close_fd(fd);
		return;
	}
	job->fds[WORKER_FD_SEGMENT] = fd;
	job->node = pool->config.node;
	job->level = WORKER_LEVEL_IDLE;
	job->is_background = true;
	job->wire.page_size = pool->config.page_size;
	job->wire.pages = MIN(pool->zeroable_pages, ZERO_FREE_PAGES);
	job->done = on_zeroed_free;
	job->user = pool;
	pool->is_zeroing_free = true;
	crew_submit(work->crew, job);
}

/* ---- calibration ---- */

static struct work_calibration *find_calibration(const struct work *work, int32_t node, uint64_t page_size)
{
	for (size_t i = 0; i < work->calibration_count; i++) {
		struct work_calibration *calibration = &work->calibrations[i];
		if (calibration->node == node && calibration->page_size == page_size)
			return calibration;
	}
	return NULL;
}

static struct work_calibration *add_calibration(struct work *work, int32_t node, uint64_t page_size)
{
	struct work_calibration *found = find_calibration(work, node, page_size);
	if (found)
		return found;
	struct work_calibration *calibrations =
		reallocarray(work->calibrations, work->calibration_count + 1, sizeof *calibrations);
	if (!calibrations)
		return NULL;
	work->calibrations = calibrations;
	calibrations[work->calibration_count] =
		(struct work_calibration){.node = node, .page_size = page_size, .method = -1};
	return &calibrations[work->calibration_count++];
}

const struct work_calibration *work_find_calibration(
	const struct work *work, int32_t node, uint64_t page_size)
{
	const struct work_calibration *real = find_calibration(work, node, page_size);
	if (real && real->is_over)
		return real;
	const struct work_calibration *ordinary = find_calibration(work, node, 0);
	return ordinary && ordinary->is_over ? ordinary : NULL;
}

int work_get_method(const struct work *work, const struct pool *pool)
{
	const struct work_calibration *calibration =
		work_find_calibration(work, pool->config.node, pool->config.page_size);
	return calibration ? calibration->method : -1;
}

/* The method the operator named if it works here, else the one that calibration found best. */
static void choose_method(const struct work *work, struct work_calibration *calibration)
{
	const struct worker_done *done = &calibration->done;
	calibration->method = done->error < 0 ? -1 : done->method;
	if (strcmp(work->wanted_method, "auto") == 0)
		return;
	for (size_t i = 0; i < zero_method_count; i++) {
		if (strcmp(zero_methods[i].name, work->wanted_method) != 0)
			continue;
		if (done->error == 0 && done->gb_per_s[i] > 0)
			calibration->method = (int)i;
		else
			log_warning("method = %s does not work on this machine: using %s",
				zero_methods[i].name,
				calibration->method < 0 ? "the kernel"
							: zero_methods[calibration->method].name);
	}
}

void work_set_method(struct work *work, const char *method)
{
	snprintf(work->wanted_method, sizeof work->wanted_method, "%s", method);
	for (size_t i = 0; i < work->calibration_count; i++) {
		if (work->calibrations[i].is_over)
			choose_method(work, &work->calibrations[i]);
	}
}

static void note_calibration(
	struct work *work, int32_t node, uint64_t page_size, const struct worker_done *done)
{
	struct work_calibration *calibration = add_calibration(work, node, page_size);
	if (!calibration)
		return;
	calibration->done = *done;
	calibration->is_over = true;
	for (size_t i = 0; done->error == 0 && i < zero_method_count; i++)
		log_info("node %" PRId32 ", %s: method %s: %.1f GB/s%s", node,
			page_size ? "huge pages" : "ordinary memory", zero_methods[i].name, done->gb_per_s[i],
			done->gb_per_s[i] > 0 ? "" : " (not usable here)");
	choose_method(work, calibration);
}

static void on_calibrated_node(struct crew_job *job, const struct worker_done *done, void *user)
{
	struct work *work = user;
	struct work_calibration *calibration = find_calibration(work, job->node, 0);
	if (work->is_stopping)
		return;
	if (done->error == -EOWNERDEAD && ++calibration->deaths < DEATHS_MAX) {
		calibration->is_running = false;
		work_calibrate_node(work, job->node);
		return;
	}
	if (done->error < 0)
		log_error("node %" PRId32
			  ": no method of clearing could be tested (%s): the kernel clears instead",
			job->node, strerror(-done->error));
	note_calibration(work, job->node, 0, done);
	look(work, 0);
}

void work_calibrate_node(struct work *work, int32_t node)
{
	struct work_calibration *calibration = add_calibration(work, node, 0);
	if (!calibration || calibration->is_running)
		return;
	struct crew_job *job = crew_new_job(WORKER_MEMORY, WORKER_CALIBRATE);
	if (!job)
		return;
	calibration->is_running = true;
	job->node = node;
	job->level = WORKER_LEVEL_URGENT;
	job->done = on_calibrated_node;
	job->user = work;
	crew_submit(work->crew, job);
}

bool work_can_calibrate(const struct pool_segment *segment)
{
	return !segment->is_busy && !segment->keeper && !segment->is_suspect &&
	       segment->allocated == segment->pages &&
	       segment->pages * segment->pool->config.page_size >= WORKER_CALIBRATE_MIN;
}

static void on_calibrated_segment(struct crew_job *job, const struct worker_done *done, void *user)
{
	struct pool_segment *segment = user;
	struct pool *pool = segment->pool;
	struct work *work = get_work(segment);
	segment->is_busy = false;
	pool->is_calibrating = false;
	pool->jobs--;
	if (work->is_stopping)
		return;
	if (done->error == 0)
		note_calibration(work, pool->config.node, pool->config.page_size, done);
	else
		log_warning(
			"pool %s: its pages could not be measured (%s)", pool->name, strerror(-done->error));
	if (done->error != -ECANCELED) {
		pool->is_calibrated = true;
		pool->wants_calibration = false;
	}
	if (done->error == -EFAULT || done->error == -EHWPOISON)
		work_retire(segment, done, "its memory cannot be used");
	look(work, 0);
}

bool work_calibrate_segment(struct work *work, struct pool_segment *segment)
{
	struct pool *pool = segment->pool;
	if (segment->state != SEGMENT_DIRTY || pool->is_calibrating || !work_can_calibrate(segment))
		return false;
	int fd = pool_open_segment(segment);
	struct crew_job *job =
		fd >= 0 ? new_segment_job(segment, WORKER_CALIBRATE, fd, on_calibrated_segment) : NULL;
	if (!job) {
		close_fd(fd);
		return false;
	}
	/* What was cleared of it is dirty again. */
	free(segment->parts);
	segment->parts = NULL;
	job->level = WORKER_LEVEL_URGENT;
	segment->is_busy = true;
	pool->is_calibrating = true;
	pool->jobs++;
	crew_submit(work->crew, job);
	return true;
}

/* ---- start and stop ---- */

void work_init(struct work *work, uv_loop_t *loop, const struct host *host, struct crew *crew,
	const struct work_callbacks *callbacks)
{
	*work = (struct work){
		.loop = loop,
		.host = host,
		.crew = crew,
		.callbacks = *callbacks,
		.wanted_method = "auto",
		.may_zero_free = true, /* until somebody says otherwise */
	};
}

void work_stop(struct work *work)
{
	work->is_stopping = true;
}

void work_deinit(struct work *work)
{
	free(work->calibrations);
}
