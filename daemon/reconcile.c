/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* reconcile.c - brings pools nearer to their stock, once after each batch of events. */
#include <inttypes.h>

#include "log.h"
#include "reconcile.h"
#include "size.h"

#define TICK_MS         10000 /* pages that processes free give no event */
#define RETRY_MS        1000
#define LEFTOVER_MS     50
#define FILLS_MAX       2 /* one under way, one behind it */
#define CLEARS_MAX      4
#define PROOFS_MAX      4 /* of suspect memory: a restart may find all of it dirty */
#define DEATHS_MAX      3 /* workers lost over one segment before it is given up */
#define LOOKS_MAX       6 /* about a second: whoever still holds clean memory then goes on holding it */
#define PROOF_MS        5000
#define RAISE_RETRY_MIN 10
#define RAISE_RETRY_MAX 320 /* seconds; each try may compact memory */

void reconcile_mark(struct reconcile *reconcile)
{
	reconcile->is_marked = true;
}

static uint64_t now_ns(const struct reconcile *reconcile)
{
	return uv_now(reconcile->loop) * NS_PER_MS;
}

static void check_leftovers(struct reconcile *reconcile);

static void on_tick(uv_timer_t *timer)
{
	struct reconcile *reconcile = timer->data;
	if (reconcile->has_leftovers)
		check_leftovers(reconcile);
	reconcile_mark(reconcile);
}

/* The next look without an event: the earliest of all that is asked for. */
static void want_tick(struct reconcile *reconcile, uint64_t delay_ms)
{
	if (reconcile->is_stopping)
		return;
	if (uv_is_active((uv_handle_t *)&reconcile->tick) &&
		uv_timer_get_due_in(&reconcile->tick) <= delay_ms)
		return;
	uv_timer_start(&reconcile->tick, on_tick, delay_ms, 0);
}

/* ---- the books of work ---- */

static struct crew_job *new_memory_job(struct reconcile *reconcile, struct pool_segment *segment,
	enum worker_op op, int fd, crew_done_cb done)
{
	struct crew_job *job = crew_new_job(WORKER_MEMORY, op);
	if (!job) {
		close_fd(fd);
		return NULL;
	}
	struct pool *pool = segment->pool;
	job->fds[WORKER_FD_SEGMENT] = fd;
	job->fds[WORKER_FD_LOCK] = pool->store->workers_fd;
	job->node = pool->config.node;
	job->wire.page_size = pool->config.page_size;
	job->wire.length = segment->pages;
	job->wire.method = reconcile->method;
	job->done = done;
	job->user = segment;
	segment->is_busy = true;
	segment->job = job;
	return job;
}

static uint64_t get_missing(const struct pool_segment *segment)
{
	return segment->pages > segment->allocated ? segment->pages - segment->allocated : 0;
}

static struct reconcile *get_owner(const struct pool_segment *segment)
{
	return segment->pool->owner;
}

static void put_off(struct pool_segment *segment)
{
	struct reconcile *reconcile = get_owner(segment);
	segment->retry_ns = now_ns(reconcile) + RETRY_MS * NS_PER_MS;
	want_tick(reconcile, RETRY_MS);
}

/* The tick may have come early, for another's sake. */
static bool is_put_off(struct reconcile *reconcile, uint64_t retry_ns)
{
	uint64_t now = now_ns(reconcile);
	if (now >= retry_ns)
		return false;
	want_tick(reconcile, (retry_ns - now) / NS_PER_MS + 1);
	return true;
}

static void discard(struct pool_segment *segment, const char *why)
{
	struct pool *pool = segment->pool;
	struct reconcile *reconcile = get_owner(segment);
	log_info("pool %s: segment %" PRIu64 " goes back to the kernel: %s", pool->name, segment->id, why);
	int r = pool_discard(segment);
	if (r < 0) {
		log_error("pool %s: segment %" PRIu64 " cannot be unlinked: %s", pool->name, segment->id,
			strerror(-r));
		put_off(segment);
		return;
	}
	reconcile_mark(reconcile); /* the stock lacks it from now on */
}

/* Somebody removed it behind our back. */
static void forget_vanished(struct pool_segment *segment)
{
	log_error("pool %s: segment %" PRIu64 " has vanished from %s", segment->pool->name, segment->id,
		segment->pool->store->path);
	struct reconcile *reconcile = get_owner(segment);
	pool_forget(segment);
	reconcile_mark(reconcile);
}

void reconcile_retire(struct pool_segment *segment, const struct worker_done *done, const char *why)
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
	discard(segment, why);
}

/* ---- fill ---- */

static void after_failed_job(struct pool_segment *segment, const struct worker_done *done, const char *what)
{
	int error = done->error;
	struct pool *pool = segment->pool;
	struct reconcile *reconcile = get_owner(segment);
	if (reconcile->is_stopping && error == -ECANCELED)
		return; /* stays where it is for the next hpzd */
	switch (error) {
	case -EOWNERDEAD:
		if (++segment->deaths < DEATHS_MAX)
			return; /* again */
		discard(segment, "workers die over it");
		break;
	case -EFAULT:
	case -EHWPOISON:
		reconcile_retire(segment, done, "its memory cannot be used");
		break;
	case -ECANCELED:
		discard(segment, "not wanted any more");
		break;
	case -ENOSPC:
	case -ENOMEM:
		discard(segment, "the kernel has not enough pages for it now");
		pool->fill_retry_ns = now_ns(reconcile) + RETRY_MS * NS_PER_MS;
		want_tick(reconcile, RETRY_MS);
		break;
	case -EXDEV:
		log_error("pool %s: node %" PRId32 ": the kernel gave pages of another node", pool->name,
			pool->config.node);
		discard(segment, "pages on the wrong node");
		pool->fill_retry_ns = now_ns(reconcile) + RETRY_MS * NS_PER_MS;
		want_tick(reconcile, RETRY_MS);
		break;
	default:
		log_error("pool %s: %s of segment %" PRIu64 " failed: %s", pool->name, what, segment->id,
			strerror(-error));
		discard(segment, "it cannot be used");
		pool->fill_retry_ns = now_ns(reconcile) + RETRY_MS * NS_PER_MS;
		want_tick(reconcile, RETRY_MS);
	}
}

static void publish(struct pool_segment *segment)
{
	int r = pool_publish(segment);
	if (r == 0) {
		segment->deaths = 0;
		return;
	}
	log_error("pool %s: segment %" PRIu64 " is not whole after the work on it: %s", segment->pool->name,
		segment->id, strerror(-r));
	/* Whatever is wrong with it is likely to be wrong with the next. */
	struct reconcile *reconcile = get_owner(segment);
	segment->pool->fill_retry_ns = now_ns(reconcile) + RETRY_MS * NS_PER_MS;
	want_tick(reconcile, RETRY_MS);
	discard(segment, "it is not whole");
}

static void on_filled(struct crew_job *job, const struct worker_done *done, void *user)
{
	struct pool_segment *segment = user;
	struct pool *pool = segment->pool;
	struct reconcile *reconcile = get_owner(segment);
	pool->fill_jobs--;
	segment->is_busy = false;
	segment->job = NULL;
	reconcile->bytes_filled += done->bytes;
	pool_refresh(segment);
	if (done->error == 0)
		publish(segment);
	else
		after_failed_job(segment, done, "filling");
	reconcile_mark(reconcile);
}

static void start_fill(struct reconcile *reconcile, struct pool_segment *segment, int fd)
{
	struct crew_job *job = new_memory_job(reconcile, segment, WORKER_FILL, fd, on_filled);
	if (!job) {
		want_tick(reconcile, RETRY_MS);
		return;
	}
	segment->pool->fill_jobs++;
	crew_submit(reconcile->crew, job);
}

static void create(struct reconcile *reconcile, struct pool *pool, uint64_t segment_pages, uint64_t count)
{
	for (uint64_t i = 0; i < count; i++) {
		struct pool_segment *segment;
		int fd, r = pool_create(pool, segment_pages, &segment, &fd);
		if (r < 0) {
			log_error("pool %s: cannot make a segment on %s: %s", pool->name, pool->store->path,
				strerror(-r));
			pool->fill_retry_ns = now_ns(reconcile) + RETRY_MS * NS_PER_MS;
			want_tick(reconcile, RETRY_MS);
			return;
		}
		start_fill(reconcile, segment, fd);
	}
}

/* Adopted, or a worker died over it: nobody works on it yet. */
static void resume_fills(struct reconcile *reconcile, struct pool *pool)
{
	LIST_FOR_EACH (pos, &pool->classes) {
		struct pool_class *class = CONTAINER_OF(pos, struct pool_class, link);
		LIST_FOR_EACH_SAFE (at, &class->segments[SEGMENT_FILLING]) {
			struct pool_segment *segment = CONTAINER_OF(at, struct pool_segment, link);
			if (segment->is_busy || pool->fill_jobs >= FILLS_MAX ||
				is_put_off(reconcile, segment->retry_ns))
				continue;
			int fd = pool_open_segment(segment);
			if (fd >= 0) {
				start_fill(reconcile, segment, fd);
				continue;
			}
			if (fd == -ENOENT) {
				forget_vanished(segment);
				continue;
			}
			log_error("pool %s: segment %" PRIu64 " cannot be opened for filling: %s", pool->name,
				segment->id, strerror(-fd));
			put_off(segment);
		}
	}
}

/* ---- clear ---- */

static void on_cleared(struct crew_job *job, const struct worker_done *done, void *user)
{
	struct pool_segment *segment = user;
	struct pool *pool = segment->pool;
	struct reconcile *reconcile = get_owner(segment);
	pool->clear_jobs--;
	segment->is_busy = false;
	segment->job = NULL;
	reconcile->bytes_cleared += done->bytes;
	pool_refresh(segment);
	if (done->error == 0)
		publish(segment);
	else if (done->error != -ECANCELED)
		after_failed_job(segment, done, "clearing");
	reconcile_mark(reconcile);
}

/* ---- what was opened while it was clean ---- */

static void look_again(struct reconcile *reconcile, struct pool_segment *segment, const char *why)
{
	if (++segment->looks >= LOOKS_MAX) {
		discard(segment, why);
		return;
	}
	uint64_t delay_ms = policy_get_retry_ms(segment->looks);
	segment->not_before_ns = now_ns(reconcile) + delay_ms * NS_PER_MS;
	want_tick(reconcile, delay_ms);
}

static void on_proven(struct crew_job *job, const struct worker_done *done, void *user)
{
	struct pool_segment *segment = user;
	struct reconcile *reconcile = get_owner(segment);
	segment->is_busy = false;
	segment->pool->proof_jobs--;
	if (reconcile->is_stopping)
		return;
	if (done->error < 0) {
		look_again(reconcile, segment, strerror(-done->error));
	} else if (done->proof.source != PROOF_BPF) {
		discard(segment, "who opened it, or may have, cannot be seen here");
	} else if (done->proof.result != PROOF_FREE) {
		look_again(reconcile, segment, proof_get_reason_text(done->proof.reason));
	} else {
		segment->is_suspect = false;
		segment->looks = 0;
		segment->proof = POOL_PROOF_FULL;
		segment->weak_uid_count = 0;
	}
	reconcile_mark(reconcile);
}

/* The same shields and the same proof as for what was lent. */
static void start_proof(struct reconcile *reconcile, struct pool_segment *segment)
{
	struct pool *pool = segment->pool;
	/* An answer marks: the next one has its turn then. */
	if (pool->proof_jobs >= PROOFS_MAX || is_put_off(reconcile, segment->not_before_ns))
		return;
	if (prover_get_lesson(reconcile->prover, pool->config.page_size) != PROVER_LESSON_OVER) {
		want_tick(reconcile, RETRY_MS);
		return;
	}
	int fd = pool_open_segment(segment);
	struct crew_job *job = fd >= 0 ? crew_new_job(WORKER_HELPER, WORKER_SHIELD) : NULL;
	if (!job) {
		close_fd(fd);
		look_again(reconcile, segment, "it cannot be opened");
		return;
	}
	job->fds[WORKER_FD_SEGMENT] = fd;
	job->fds[WORKER_FD_LOCK] = pool->store->workers_fd;
	job->wire.page_size = pool->config.page_size;
	job->wire.length = segment->pages;
	job->wire.max_links = 1;
	job->deadline_ms = PROOF_MS;
	job->done = on_proven;
	job->user = segment;
	const struct proof_facts *facts =
		prover_find(reconcile->prover, pool->config.page_size, &job->fds[WORKER_FD_PROGRAM]);
	if (facts)
		job->wire.facts = *facts;
	segment->is_busy = true;
	pool->proof_jobs++;
	crew_submit(reconcile->crew, job);
}

bool reconcile_was_opened(struct reconcile *reconcile, const struct pool_segment *segment)
{
	if (reconcile->sentry)
		sentry_look(reconcile->sentry);
	return segment->is_suspect;
}

int reconcile_open_clean(struct reconcile *reconcile, struct pool_segment *segment)
{
	if (reconcile_was_opened(reconcile, segment))
		return -EBUSY;
	segment->is_opening = true;
	int fd = pool_open_segment(segment);
	reconcile_was_opened(reconcile, segment);
	segment->is_opening = false;
	return fd;
}

/* Whether the holes of a segment can be filled; if not, it is worth more as free pages than as a torn file.
 */
static bool can_mend(struct pool *pool, const struct pool_segment *segment)
{
	uint64_t missing = get_missing(segment);
	return missing == 0 || missing <= pool->plan.usable_pages;
}

static void start_clear(struct reconcile *reconcile, struct pool_segment *segment)
{
	struct pool *pool = segment->pool;
	if (pool->is_draining) {
		discard(segment, "the pool is being drained");
		return;
	}
	if (segment->is_suspect) {
		start_proof(reconcile, segment);
		return;
	}
	if (reconcile->method < 0) {
		discard(segment, "no method of clearing works on this machine");
		return;
	}
	if (!can_mend(pool, segment)) {
		discard(segment, "its holes cannot be filled now");
		return;
	}
	int fd = pool_open_segment(segment);
	if (fd == -ENOENT) {
		forget_vanished(segment);
		return;
	}
	struct crew_job *job =
		fd >= 0 ? new_memory_job(reconcile, segment, WORKER_CLEAR, fd, on_cleared) : NULL;
	if (!job) {
		log_error("pool %s: segment %" PRIu64 " cannot be opened for clearing: %s", pool->name,
			segment->id, strerror(fd < 0 ? -fd : ENOMEM));
		put_off(segment);
		return;
	}
	uint64_t missing = get_missing(segment);
	pool->plan.usable_pages -= missing;
	job->is_urgent = pool->waiting > 0 && segment->pages >= pool->waiting_pages;
	pool->clear_jobs++;
	crew_submit(reconcile->crew, job);
}

static void clear_class(struct reconcile *reconcile, struct pool *pool, struct pool_class *class)
{
	LIST_FOR_EACH_SAFE (at, &class->segments[SEGMENT_DIRTY]) {
		struct pool_segment *segment = CONTAINER_OF(at, struct pool_segment, link);
		if (segment->is_busy || is_put_off(reconcile, segment->retry_ns))
			continue;
		if (pool->clear_jobs >= CLEARS_MAX && !pool->is_draining)
			return;
		start_clear(reconcile, segment);
	}
}

/* What somebody waits for first, smallest that serves; then large before small. */
static void start_clears(struct reconcile *reconcile, struct pool *pool)
{
	if (!reconcile->is_calibrated || pool->segments[SEGMENT_DIRTY] == 0)
		return;
	LIST_FOR_EACH (pos, &pool->classes) {
		struct pool_class *class = CONTAINER_OF(pos, struct pool_class, link);
		if (pool->waiting > 0 && class->pages >= pool->waiting_pages)
			clear_class(reconcile, pool, class);
	}
	for (struct list *pos = pool->classes.prev; pos != &pool->classes; pos = pos->prev)
		clear_class(reconcile, pool, CONTAINER_OF(pos, struct pool_class, link));
}

/* ---- nr_hugepages ---- */

struct raise_work {
	uv_work_t work;
	struct reconcile *reconcile;
	struct pool *pool;
	int64_t delta;
	uint64_t before, after;
	int result;
};

static void write_raise(struct reconcile *reconcile, const struct pool *pool, uint64_t before, int64_t delta)
{
	struct journal_raise record = {
		.size = sizeof record,
		.node = pool->config.node,
		.page_size = pool->config.page_size,
		/* About to be lowered: should we die over it, rather keep a page too many than take one of
		 * somebody else's away. */
		.raised = pool->raised - (delta < 0 ? MIN(pool->raised, (uint64_t)-delta) : 0),
		.before = before,
		.delta = delta,
		.is_intent = delta > 0,
	};
	int r = journal_append(reconcile->journal, JOURNAL_RAISE, &record, sizeof record, NULL, 0);
	if (r < 0)
		log_error("journal: pool %s: %s; a restart now would not know what was raised", pool->name,
			strerror(-r));
}

static void work_raise(uv_work_t *work)
{
	struct raise_work *raise = work->data;
	raise->result = host_add_nr(raise->reconcile->host, raise->pool->config.node,
		raise->pool->config.page_size, raise->delta, &raise->before, &raise->after);
}

static void back_off_raising(struct reconcile *reconcile, struct pool *pool)
{
	uint64_t seconds = RAISE_RETRY_MIN << MIN(pool->raise_failures, 5u);
	pool->raise_failures++;
	pool->raise_retry_ns = now_ns(reconcile) + MIN(seconds, RAISE_RETRY_MAX) * NS_PER_S;
}

static void on_raised(uv_work_t *work, int status)
{
	struct raise_work *raise = work->data;
	struct reconcile *reconcile = raise->reconcile;
	struct pool *pool = raise->pool;
	reconcile->works--;
	pool->is_raising = false;
	int64_t got = raise->result < 0 ? 0 : (int64_t)(raise->after - raise->before);
	char size[SIZE_TEXT];
	size_format_exact(pool->config.page_size, size);
	if (raise->delta > 0)
		pool->raised += (uint64_t)MAX(got, 0);
	else
		pool->raised -= MIN(pool->raised, (uint64_t)MAX(-got, 0));
	write_raise(reconcile, pool, raise->after, 0);
	if (raise->result < 0)
		log_error("pool %s: node %" PRId32 ": nr_hugepages (%s) cannot be changed: %s", pool->name,
			pool->config.node, size, strerror(-raise->result));
	else
		log_info("pool %s: node %" PRId32 ": asked the kernel for %+" PRId64
			 " pages of %s, got %+" PRId64 " (nr_hugepages %" PRIu64 " -> %" PRIu64 ")",
			pool->name, pool->config.node, raise->delta, size, got, raise->before, raise->after);
	if (got != raise->delta)
		back_off_raising(reconcile, pool);
	else
		pool->raise_failures = 0;
	free(raise);
	reconcile_mark(reconcile);
}

/* Blocks in compaction, touches no memory of ours: libuv's pool. The intent first: what if we die right
 * there? */
static void change_nr(struct reconcile *reconcile, struct pool *pool, int64_t delta)
{
	struct raise_work *raise = calloc(1, sizeof *raise);
	if (!raise)
		return;
	raise->reconcile = reconcile;
	raise->pool = pool;
	raise->delta = delta;
	raise->work.data = raise;
	write_raise(reconcile, pool, pool->kernel.nr - pool->kernel.surplus, delta);
	if (uv_queue_work(reconcile->loop, &raise->work, work_raise, on_raised) < 0) {
		free(raise);
		return;
	}
	pool->is_raising = true;
	reconcile->works++;
}

int reconcile_give_back(struct reconcile *reconcile, struct pool *pool)
{
	if (pool->is_raising)
		return -EAGAIN;
	host_get_counters(reconcile->host, pool->config.node, pool->config.page_size, &pool->kernel);
	uint64_t possible = MIN(pool->raised, pool->kernel.free);
	if (possible == 0)
		return 0;
	change_nr(reconcile, pool, -(int64_t)possible);
	return pool->is_raising ? -EAGAIN : -ENOMEM;
}

static void read_weak(struct reconcile *reconcile, const struct journal_weak *record)
{
	for (size_t i = 0; i < reconcile->pool_count; i++) {
		struct pool *pool = reconcile->pools[i];
		if (pool->config.node == record->node && pool->config.page_size == record->page_size)
			pool->was_weak = true;
	}
}

void reconcile_read_record(
	struct reconcile *reconcile, enum journal_type type, const void *payload, size_t bytes)
{
	const struct journal_raise *record = payload;
	if (type == JOURNAL_WEAK && bytes >= sizeof(struct journal_weak))
		read_weak(reconcile, payload);
	if (type != JOURNAL_RAISE || bytes < sizeof *record)
		return;
	for (size_t i = 0; i < reconcile->pool_count; i++) {
		struct pool *pool = reconcile->pools[i];
		if (pool->config.node != record->node || pool->config.page_size != record->page_size)
			continue;
		pool->raised = record->raised;
		struct host_counters now;
		if (record->is_intent &&
			host_get_counters(reconcile->host, record->node, record->page_size, &now) == 0 &&
			now.nr - now.surplus > record->before)
			pool->raised += MIN(now.nr - now.surplus - record->before, (uint64_t)record->delta);
	}
}

static void write_all(struct journal *journal, void *user)
{
	struct reconcile *reconcile = user;
	lease_write_all(journal, reconcile->leases);
	orphan_write_all(handoff_get_orphans(reconcile->handoff), journal);
	prover_write_all(reconcile->prover, journal);
	for (size_t i = 0; i < reconcile->pool_count; i++) {
		const struct pool *pool = reconcile->pools[i];
		struct journal_weak weak = {sizeof weak, pool->config.node, pool->config.page_size};
		write_raise(reconcile, pool, 0, 0);
		if (pool->was_weak)
			journal_append(journal, JOURNAL_WEAK, &weak, sizeof weak, NULL, 0);
	}
}

int reconcile_compact(struct reconcile *reconcile)
{
	return journal_compact(reconcile->journal, write_all, reconcile);
}

/* ---- the look ---- */

uint64_t reconcile_get_returning(const struct pool *pool, const struct lease_table *leases)
{
	uint64_t pages = 0;
	LIST_FOR_EACH (pos, &leases->leases) {
		const struct lease *lease = LEASE_OF(pos);
		if (lease->state != HPZ_STATE_RETURNING)
			continue;
		for (size_t i = 0; i < lease->segment_count; i++) {
			if (lease->segments[i] && lease->segments[i]->pool == pool)
				pages += lease->segments[i]->pages;
		}
	}
	return pages;
}

bool reconcile_is_drained(const struct pool *pool)
{
	return pool->segments[SEGMENT_FILLING] == 0 && pool->segments[SEGMENT_CLEAN] == 0 &&
	       pool->segments[SEGMENT_DIRTY] == 0 && !pool->is_raising;
}

bool reconcile_is_idle(const struct pool *pool, const struct lease_table *leases)
{
	return pool->plan.missing_pages == 0 && pool->segments[SEGMENT_FILLING] == 0 &&
	       pool->segments[SEGMENT_DIRTY] == 0 && pool->stranded == 0 && pool->waiting == 0 &&
	       reconcile_get_returning(pool, leases) == 0;
}

static void count_filling(struct pool *pool)
{
	uint64_t todo = 0, mending = 0;
	LIST_FOR_EACH (pos, &pool->classes) {
		struct pool_class *class = CONTAINER_OF(pos, struct pool_class, link);
		LIST_FOR_EACH (at, &class->segments[SEGMENT_FILLING]) {
			struct pool_segment *segment = CONTAINER_OF(at, struct pool_segment, link);
			pool_refresh(segment);
			todo += get_missing(segment);
		}
		LIST_FOR_EACH (at, &class->segments[SEGMENT_DIRTY]) {
			struct pool_segment *segment = CONTAINER_OF(at, struct pool_segment, link);
			if (segment->is_busy)
				mending += get_missing(segment);
		}
	}
	pool->filling_todo = todo;
	pool->mending_todo = mending;
}

static bool may_raise(const struct reconcile *reconcile, const struct pool *pool)
{
	/* A page that a fill or the lesson takes during the look may be counted twice: it is not missing. */
	if (pool->fill_jobs > 0 || pool->clear_jobs > 0 ||
		prover_get_lesson(reconcile->prover, pool->config.page_size) == PROVER_LESSON_RUNNING)
		return false;
	return pool->config.raise && !pool->is_draining && !pool->is_raising &&
	       now_ns(reconcile) >= pool->raise_retry_ns;
}

static uint64_t count_ours(const struct reconcile *reconcile, const struct pool *pool)
{
	uint64_t pages = 0;
	for (size_t i = 0; i < reconcile->pool_count; i++) {
		const struct pool *other = reconcile->pools[i];
		if (other->config.node == pool->config.node &&
			other->config.page_size == pool->config.page_size)
			pages += pool_get_total(other);
	}
	return pages;
}

/* Of an earlier hpzd. Orphans we still look at are not ours: what we know of them may be seconds old. Ours
 * first, then the counters: what is taken in between is unseen, which ends nothing early. */
static void look_at_orphans(struct reconcile *reconcile, struct pool *pool)
{
	struct orphans *orphans = handoff_get_orphans(reconcile->handoff);
	struct host_counters kernel;
	uint64_t holes, grown;
	if (!orphan_has_recovered(orphans, pool))
		return;
	pool_count_holders(pool, &holes, &grown);
	uint64_t ours = count_ours(reconcile, pool);
	uint64_t delay_ms = RETRY_MS;
	if (host_get_counters(reconcile->host, pool->config.node, pool->config.page_size, &kernel) == 0)
		delay_ms = orphan_reconcile(orphans, pool, ours, &kernel);
	if (delay_ms != UINT64_MAX)
		want_tick(reconcile, delay_ms);
}

/*
 * Fills first, then the counters: a page that a worker takes in between is counted as promised and not as
 * free any more. Holders after them: see pool_count_holders.
 */
static void make_plan(struct reconcile *reconcile, struct pool *pool)
{
	struct policy_class classes[POOL_CLASSES_MAX];
	uint64_t holes, grown;
	count_filling(pool);
	int r = host_get_counters(reconcile->host, pool->config.node, pool->config.page_size, &pool->kernel);
	if (r < 0) {
		pool->kernel = (struct host_counters){0};
		log_warning("pool %s: counters of the kernel's pool cannot be read: %s", pool->name,
			strerror(-r));
	}
	pool_count_holders(pool, &holes, &grown);
	bool may_fill = !is_put_off(reconcile, pool->fill_retry_ns) && pool->fill_jobs < FILLS_MAX;
	struct policy_input input = {
		.target_pages = pool->config.pages,
		.is_draining = pool->is_draining,
		.classes = classes,
		.class_count = pool_get_classes(pool, classes),
		.clean_pages = pool->pages[SEGMENT_CLEAN],
		.filling_todo_pages = pool->filling_todo,
		.mending_todo_pages = pool->mending_todo,
		.kernel_free = pool->kernel.free,
		.kernel_resv = pool->kernel.resv,
		.holes_owed_pages = holes,
		.grown_pages = grown,
		.waiting_pages = pool->waiting > 0 ? MAX(pool->waiting_pages, 1) : 0,
		.may_raise = may_raise(reconcile, pool),
		.is_raising = pool->is_raising,
		.free_slots = may_fill ? FILLS_MAX - pool->fill_jobs : 0,
	};
	policy_plan(&input, &pool->plan);
}

static void discard_clean(struct pool *pool, uint64_t segment_pages, uint64_t count)
{
	for (uint64_t i = 0; i < count; i++) {
		struct pool_segment *segment = pool_find_clean(pool, segment_pages);
		if (!segment)
			return;
		int r = pool_discard(segment);
		if (r < 0) {
			log_error(
				"pool %s: a clean segment cannot be unlinked: %s", pool->name, strerror(-r));
			return;
		}
	}
}

/* What was found on disk and nobody may have, as `reuse` stands now: it is filled anew before somebody asks
 * for it. */
static void discard_unfit(struct reconcile *reconcile, struct pool *pool)
{
	if (pool->is_past_known)
		return;
	pool->is_past_known = true;
	POOL_FOR_EACH (pos, pool) {
		struct pool_class *class = CONTAINER_OF(pos, struct pool_class, link);
		LIST_FOR_EACH_SAFE (at, &class->segments[SEGMENT_CLEAN]) {
			struct pool_segment *segment = CONTAINER_OF(at, struct pool_segment, link);
			if (segment->is_busy || segment->proof != POOL_PROOF_UNKNOWN ||
				handoff_may_give(reconcile->handoff, segment, UINT32_MAX))
				continue;
			discard(segment, "who had it before is not known");
			reconcile_mark(reconcile);
		}
	}
}

static uint64_t get_smallest_clean(const struct pool *pool)
{
	LIST_FOR_EACH (pos, &pool->classes) {
		const struct pool_class *class = CONTAINER_OF(pos, struct pool_class, link);
		if (class->counts[SEGMENT_CLEAN] > class->kept)
			return class->pages;
	}
	return 0;
}

static void apply_plan(struct reconcile *reconcile, struct pool *pool, bool may_create)
{
	for (size_t i = 0; i < pool->plan.action_count; i++) {
		const struct policy_action *action = &pool->plan.actions[i];
		uint64_t count;
		switch (action->kind) {
		case POLICY_CREATE:
			if (!may_create)
				break;
			/* Holes that are being mended since the plan was made have taken their part. */
			count = MIN(action->count, pool->plan.usable_pages / action->segment_pages);
			pool->plan.usable_pages -= count * action->segment_pages;
			create(reconcile, pool, action->segment_pages, count);
			break;
		case POLICY_DISCARD:
			discard_clean(pool, action->segment_pages, action->count);
			reconcile_mark(reconcile);
			break;
		case POLICY_RAISE:
			change_nr(reconcile, pool, (int64_t)(action->segment_pages * action->count));
			break;
		}
	}
}

/* A drained pool's fills are stopped; their answers discard them. */
static void drop_fills(struct reconcile *reconcile, struct pool *pool)
{
	LIST_FOR_EACH (pos, &pool->classes) {
		struct pool_class *class = CONTAINER_OF(pos, struct pool_class, link);
		LIST_FOR_EACH_SAFE (at, &class->segments[SEGMENT_FILLING]) {
			struct pool_segment *segment = CONTAINER_OF(at, struct pool_segment, link);
			if (!segment->is_busy)
				discard(segment, "the pool is being drained");
			else if (segment->job)
				crew_cancel(reconcile->crew, segment->job);
		}
	}
}

static void set_message(struct reconcile *reconcile, struct pool *pool)
{
	char page[SIZE_TEXT], missing[SIZE_TEXT];
	pool->message[0] = '\0';
	if (pool->is_draining) {
		snprintf(pool->message, sizeof pool->message,
			"drained: takes no memory and gives none until hpzd reloads or restarts");
		return;
	}
	if (reconcile->has_leftovers) {
		snprintf(pool->message, sizeof pool->message,
			"waiting for the workers of an earlier hpzd to end before memory is touched");
		return;
	}
	/* Until the next start: it is to be seen. */
	snprintf(pool->message, sizeof pool->message, "%s", pool->alarm);
	if (pool->stranded > 0)
		snprintf(pool->message, sizeof pool->message,
			"%" PRIu64
			" segments of leases that came to nothing cannot be renamed back; tried again "
			"every second",
			pool->stranded);
	if (pool->plan.short_pages == 0)
		return;
	size_format_exact(pool->config.page_size, page);
	size_format(pool->plan.short_pages * pool->config.page_size, missing);
	snprintf(pool->message, sizeof pool->message,
		"%" PRIu64 " pages of %s (%s) are missing on node %" PRId32 ": the kernel has %" PRIu64
		" free, %" PRIu64 " of them reserved or owed to holders; %s",
		pool->plan.short_pages, page, missing, pool->config.node, pool->kernel.free,
		pool->kernel.free - MIN(pool->kernel.free, pool->plan.usable_pages),
		!pool->config.raise ? "add to nr_hugepages below /sys/devices/system/node, or set raise = "
				      "yes for the pool"
		: pool->is_raising  ? "asking the kernel for them"
				    : "the kernel could not give more; free memory, lower pages, or "
				      "reserve them at boot (hugepagesz=, hugepages=)");
}

static struct pool_segment *find_suspect(struct pool *pool)
{
	POOL_FOR_EACH (pos, pool) {
		struct pool_class *class = CONTAINER_OF(pos, struct pool_class, link);
		LIST_FOR_EACH (at, &class->segments[SEGMENT_DIRTY]) {
			struct pool_segment *segment = CONTAINER_OF(at, struct pool_segment, link);
			if (segment->is_suspect && !segment->is_busy)
				return segment;
		}
	}
	return NULL;
}

/* For the lesson: a clean one, or one that cannot be cleared before the lesson is over. */
static void free_a_segment(struct pool *pool)
{
	uint64_t smallest = get_smallest_clean(pool);
	struct pool_segment *suspect = smallest > 0 ? NULL : find_suspect(pool);
	if (smallest > 0)
		discard_clean(pool, smallest, 1);
	else if (suspect)
		discard(suspect, "the proof wants a page to learn on");
}

/*
 * The proof wants a free page before the pool takes them all. Where none is left for it, a segment goes back
 * to the kernel first: it is filled again, the proof stays. True: no page is to be taken now.
 */
static bool is_lesson_first(struct reconcile *reconcile, struct pool *pool)
{
	uint64_t delay_ms = prover_get_delay_ms(reconcile->prover, pool->config.page_size);
	switch (prover_get_lesson(reconcile->prover, pool->config.page_size)) {
	case PROVER_LESSON_OVER:
		if (delay_ms != UINT64_MAX)
			want_tick(reconcile, delay_ms);
		return false;
	case PROVER_LESSON_RUNNING:
		return prover_needs_page(reconcile->prover, pool->config.page_size);
	case PROVER_LESSON_DUE:
		break;
	}
	bool needs_page = prover_needs_page(reconcile->prover, pool->config.page_size);
	if (needs_page && pool->plan.usable_pages == 0)
		free_a_segment(pool);
	prover_learn(reconcile->prover, pool->store);
	want_tick(reconcile, RETRY_MS);
	return needs_page;
}

static void look_at_pool(struct reconcile *reconcile, struct pool *pool)
{
	pool_sweep(pool);
	if (pool->stranded > 0 && pool_take_back(pool) > 0)
		want_tick(reconcile, RETRY_MS);
	discard_unfit(reconcile, pool);
	make_plan(reconcile, pool);
	look_at_orphans(reconcile, pool);
	if (!reconcile->has_leftovers) {
		bool may_create = !pool->is_draining && !is_lesson_first(reconcile, pool);
		if (pool->is_draining)
			drop_fills(reconcile, pool);
		else if (may_create)
			resume_fills(reconcile, pool);
		start_clears(reconcile, pool);
		apply_plan(reconcile, pool, may_create);
	}
	set_message(reconcile, pool);
	if (pool->plan.short_pages > 0)
		want_tick(reconcile, TICK_MS);
}

/* A node's workers serve all its pools: the most urgent one decides. */
static void set_levels(struct reconcile *reconcile)
{
	static const enum worker_level classes[] = {
		[POLICY_IDLE] = WORKER_LEVEL_IDLE,
		[POLICY_REFILL] = WORKER_LEVEL_REFILL,
		[POLICY_URGENT] = WORKER_LEVEL_URGENT,
	};
	for (size_t i = 0; i < reconcile->pool_count; i++) {
		enum policy_level level = reconcile->pools[i]->plan.level;
		for (size_t j = 0; j < reconcile->pool_count; j++) {
			if (reconcile->pools[j]->config.node == reconcile->pools[i]->config.node)
				level = MAX(level, reconcile->pools[j]->plan.level);
		}
		crew_set_level(reconcile->crew, reconcile->pools[i]->config.node, classes[level]);
	}
}

static void look(struct reconcile *reconcile)
{
	/* What the look itself changes is looked at again, but never without end. */
	for (int pass = 0; reconcile->is_marked && pass < 4; pass++) {
		reconcile->is_marked = false;
		reconcile->callbacks.serve(reconcile->callbacks.user);
		for (size_t i = 0; i < reconcile->pool_count; i++)
			look_at_pool(reconcile, reconcile->pools[i]);
	}
	if (reconcile->is_marked)
		want_tick(reconcile, 1);
	set_levels(reconcile);
	uint64_t live_bytes = lease_get_journal_bytes(reconcile->leases) +
			      orphan_get_journal_bytes(handoff_get_orphans(reconcile->handoff));
	if (journal_wants_compaction(reconcile->journal, live_bytes))
		journal_compact(reconcile->journal, write_all, reconcile);
	reconcile->callbacks.settled(reconcile->callbacks.user);
}

static void on_prepare(uv_prepare_t *prepare)
{
	struct reconcile *reconcile = prepare->data;
	if (reconcile->is_marked && reconcile->is_started && !reconcile->is_stopping)
		look(reconcile);
}

/* ---- start and stop ---- */

/* The method the operator named if it works here, else the one that calibration found best. */
static void choose_method(struct reconcile *reconcile)
{
	const struct worker_done *calibration = &reconcile->calibration;
	reconcile->method = calibration->error < 0 ? -1 : calibration->method;
	if (strcmp(reconcile->wanted_method, "auto") == 0)
		return;
	for (size_t i = 0; i < zero_method_count; i++) {
		if (strcmp(zero_methods[i].name, reconcile->wanted_method) != 0)
			continue;
		if (calibration->error == 0 && calibration->gb_per_s[i] > 0)
			reconcile->method = (int)i;
		else
			log_warning("method = %s does not work on this machine: using %s",
				zero_methods[i].name, reconcile_get_method(reconcile));
	}
}

static void on_calibrated(struct crew_job *job, const struct worker_done *done, void *user)
{
	struct reconcile *reconcile = user;
	if (reconcile->is_stopping)
		return;
	if (done->error < 0)
		log_error("no method of clearing could be tested (%s): the kernel clears instead",
			strerror(-done->error));
	reconcile->calibration = *done;
	for (size_t i = 0; done->error == 0 && i < zero_method_count; i++)
		log_info("method %s: %.1f GB/s%s", zero_methods[i].name, done->gb_per_s[i],
			done->gb_per_s[i] > 0 ? "" : " (not usable here)");
	choose_method(reconcile);
	reconcile->is_calibrated = true;
	reconcile_mark(reconcile);
}

void reconcile_set_method(struct reconcile *reconcile, const char *method)
{
	snprintf(reconcile->wanted_method, sizeof reconcile->wanted_method, "%s", method);
	if (reconcile->is_calibrated)
		choose_method(reconcile);
}

static void calibrate(struct reconcile *reconcile)
{
	struct crew_job *job = crew_new_job(WORKER_MEMORY, WORKER_CALIBRATE);
	if (!job)
		return;
	job->node = reconcile->pool_count ? reconcile->pools[0]->config.node : reconcile->host->nodes[0];
	job->is_urgent = true;
	job->done = on_calibrated;
	job->user = reconcile;
	crew_submit(reconcile->crew, job);
}

/* Nothing is given to a worker before every worker of an earlier hpzd is dead. */
static void check_leftovers(struct reconcile *reconcile)
{
	bool has_leftovers = false;
	LIST_FOR_EACH (pos, reconcile->stores) {
		int r = segment_lock_workers(CONTAINER_OF(pos, struct segment_store, link));
		if (r <= 0)
			has_leftovers = true;
	}
	if (has_leftovers && !reconcile->has_leftovers)
		log_warning("workers of an earlier hpzd still run: waiting for their end");
	reconcile->has_leftovers = has_leftovers;
	crew_set_hold(reconcile->crew, has_leftovers);
	if (has_leftovers)
		want_tick(reconcile, LEFTOVER_MS);
}

struct sysfs_watch {
	uv_fs_event_t event;
	struct list link;
};

static void on_sysfs(uv_fs_event_t *event, const char *filename, int events, int status)
{
	reconcile_mark(event->data);
}

static void on_sysfs_closed(uv_handle_t *handle)
{
	free(CONTAINER_OF((uv_fs_event_t *)handle, struct sysfs_watch, event));
}

/* Sees only writes through that very file: node's and machine's are two. Others are found by the tick. */
static void watch_file(struct reconcile *reconcile, const char *path)
{
	struct sysfs_watch *watch = calloc(1, sizeof *watch);
	if (!watch)
		return;
	uv_fs_event_init(reconcile->loop, &watch->event);
	watch->event.data = reconcile;
	list_append(&reconcile->watches, &watch->link);
	uv_fs_event_start(&watch->event, on_sysfs, path, 0);
}

static void watch_counters(struct reconcile *reconcile, const struct pool *pool)
{
	char path[256];
	uint64_t kib = pool->config.page_size / 1024;
	snprintf(path, sizeof path, "/sys/kernel/mm/hugepages/hugepages-%" PRIu64 "kB/nr_hugepages", kib);
	watch_file(reconcile, path);
	snprintf(path, sizeof path,
		"/sys/devices/system/node/node%" PRId32 "/hugepages/hugepages-%" PRIu64 "kB/nr_hugepages",
		pool->config.node, kib);
	watch_file(reconcile, path);
	watch_file(reconcile, "/proc/sys/vm/nr_hugepages");
}

static void on_opened(void *user)
{
	reconcile_mark(user);
}

void reconcile_init(struct reconcile *reconcile, uv_loop_t *loop, const struct host *host, struct crew *crew,
	struct prover *prover, struct handoff *handoff, struct lease_table *leases,
	const struct reconcile_callbacks *callbacks)
{
	*reconcile = (struct reconcile){
		.loop = loop,
		.host = host,
		.crew = crew,
		.prover = prover,
		.handoff = handoff,
		.leases = leases,
		.callbacks = *callbacks,
		.method = -1,
	};
	list_init(&reconcile->watches);
	int r = sentry_init(loop, on_opened, reconcile, &reconcile->sentry);
	if (r < 0)
		log_warning("clean memory cannot be watched: %s", strerror(-r));
	uv_prepare_init(loop, &reconcile->prepare);
	uv_timer_init(loop, &reconcile->tick);
	reconcile->prepare.data = reconcile->tick.data = reconcile;
}

int reconcile_add_pool(struct reconcile *reconcile, struct pool *pool)
{
	struct pool **pools = reallocarray(reconcile->pools, reconcile->pool_count + 1, sizeof *pools);
	if (!pools)
		return -ENOMEM;
	reconcile->pools = pools;
	pools[reconcile->pool_count++] = pool;
	pool->owner = reconcile;
	if (reconcile->sentry)
		sentry_add_pool(reconcile->sentry, pool);
	watch_counters(reconcile, pool);
	if (reconcile->is_started) /* by a reload: its mount may be new */
		check_leftovers(reconcile);
	reconcile_mark(reconcile);
	return 0;
}

void reconcile_remove_pool(struct reconcile *reconcile, struct pool *pool)
{
	if (reconcile->sentry)
		sentry_remove_pool(reconcile->sentry, pool);
	for (size_t i = 0; i < reconcile->pool_count; i++) {
		if (reconcile->pools[i] != pool)
			continue;
		memmove(&reconcile->pools[i], &reconcile->pools[i + 1],
			(reconcile->pool_count - i - 1) * sizeof *reconcile->pools);
		reconcile->pool_count--;
		return;
	}
}

void reconcile_start(struct reconcile *reconcile, struct journal *journal, const char *method)
{
	reconcile->journal = journal;
	snprintf(reconcile->wanted_method, sizeof reconcile->wanted_method, "%s", method);
	reconcile->is_started = true;
	/* What was read is worth writing anew: torn tails and ended leases go. */
	int r = journal_compact(journal, write_all, reconcile);
	if (r < 0)
		log_warning("journal: cannot be compacted: %s", strerror(-r));
	uv_prepare_start(&reconcile->prepare, on_prepare);
	check_leftovers(reconcile);
	calibrate(reconcile);
	reconcile_mark(reconcile);
}

void reconcile_stop(struct reconcile *reconcile)
{
	reconcile->is_stopping = true;
	if (reconcile->sentry)
		sentry_close(reconcile->sentry);
	uv_close((uv_handle_t *)&reconcile->prepare, NULL);
	uv_close((uv_handle_t *)&reconcile->tick, NULL);
	LIST_FOR_EACH_SAFE (pos, &reconcile->watches) {
		struct sysfs_watch *watch = CONTAINER_OF(pos, struct sysfs_watch, link);
		list_remove(&watch->link);
		uv_close((uv_handle_t *)&watch->event, on_sysfs_closed);
	}
}

void reconcile_deinit(struct reconcile *reconcile)
{
	sentry_free(reconcile->sentry);
	free(reconcile->pools);
}

const char *reconcile_get_method(const struct reconcile *reconcile)
{
	return reconcile->method < 0 ? "" : zero_methods[reconcile->method].name;
}
