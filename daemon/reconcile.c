/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* reconcile.c - brings pools nearer to their stock, once after each batch of events. */
#include <inttypes.h>

#include "log.h"
#include "reconcile.h"
#include "size.h"
#include "stock.h"

#define TICK_MS     10000 /* pages that processes free give no event */
#define RETRY_MS    1000
#define LEFTOVER_MS 50
#define PROOFS_MAX  4 /* of suspect memory: a restart may find all of it dirty */
#define LOOKS_MAX   6 /* about a second: whoever still holds clean memory then goes on holding it */
#define PROOF_MS    5000

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

static void on_work(uint64_t delay_ms, void *user)
{
	if (delay_ms == 0)
		reconcile_mark(user);
	else
		want_tick(user, delay_ms);
}

static struct reconcile *get_owner(const struct pool_segment *segment)
{
	return CONTAINER_OF(segment->pool->owner, struct reconcile, work);
}

static bool is_put_off(struct reconcile *reconcile, uint64_t retry_ns)
{
	return work_is_put_off(&reconcile->work, retry_ns);
}

/* ---- fill ---- */

/* Fills that may be under way at once: one a worker, and one behind them. */
static unsigned get_fills_max(const struct reconcile *reconcile, const struct pool *pool)
{
	return crew_get_size(reconcile->crew, pool->config.node) + 1;
}

static size_t get_free_slots(struct reconcile *reconcile, const struct pool *pool)
{
	unsigned max = get_fills_max(reconcile, pool);
	if (is_put_off(reconcile, pool->fill_retry_ns))
		return 0;
	if (reconcile->work.is_simulated)
		return SIZE_MAX;
	/* Somebody who waits does not wait for a slot, too. */
	if (pool->waiting > 0)
		max++;
	return max > pool->fill_jobs ? max - pool->fill_jobs : 0;
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
		work_fill_take(&reconcile->work, segment, fd);
	}
}

/* Adopted, or stopped on the way: nobody works on it. */
static void resume_fills(struct reconcile *reconcile, struct pool *pool)
{
	size_t slots = get_free_slots(reconcile, pool);
	LIST_FOR_EACH (pos, &pool->classes) {
		struct pool_class *class = CONTAINER_OF(pos, struct pool_class, link);
		LIST_FOR_EACH_SAFE (at, &class->segments[SEGMENT_FILLING]) {
			struct pool_segment *segment = CONTAINER_OF(at, struct pool_segment, link);
			if (segment->is_busy || slots == 0 || is_put_off(reconcile, segment->retry_ns))
				continue;
			slots--;
			work_fill(&reconcile->work, segment);
		}
	}
}

/* ---- what was opened while it was clean ---- */

static void look_again(struct reconcile *reconcile, struct pool_segment *segment, const char *why)
{
	if (++segment->looks >= LOOKS_MAX) {
		work_discard(segment, why);
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
		work_discard(segment, "who opened it, or may have, cannot be seen here");
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
	if (reconcile->work.is_simulated) { /* the proof is never learned: that would take a real page */
		work_discard(segment, "who opened it, or may have, cannot be seen here");
		return;
	}
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

static uint64_t *get_usable(struct reconcile *reconcile, struct pool *pool);

/* Whether the holes of a segment can be filled; if not, it is worth more as free pages than as a torn file.
 */
static bool can_mend(struct reconcile *reconcile, struct pool *pool, uint64_t missing)
{
	return missing == 0 || missing <= *get_usable(reconcile, pool);
}

static void start_clear(struct reconcile *reconcile, struct pool_segment *segment)
{
	struct pool *pool = segment->pool;
	if (pool->is_draining) {
		work_discard(segment, "the pool is being drained");
		return;
	}
	if (segment->is_suspect) {
		start_proof(reconcile, segment);
		return;
	}
	if (work_get_method(&reconcile->work, pool) < 0) {
		work_discard(segment, "no method of clearing works on this machine");
		return;
	}
	uint64_t missing = work_get_missing(segment);
	if (!can_mend(reconcile, pool, missing)) {
		work_discard(segment, "its holes cannot be filled now");
		return;
	}
	if (missing > 0)
		*get_usable(reconcile, pool) -= missing;
	work_clear(&reconcile->work, segment);
}

static void clear_class(
	struct reconcile *reconcile, struct pool *pool, struct pool_class *class, bool is_wanted)
{
	LIST_FOR_EACH_SAFE (at, &class->segments[SEGMENT_DIRTY]) {
		struct pool_segment *segment = CONTAINER_OF(at, struct pool_segment, link);
		if (segment->is_busy || segment->is_wanted != is_wanted ||
			is_put_off(reconcile, segment->retry_ns))
			continue;
		if (!is_wanted && !pool->is_draining && !work_has_room(&reconcile->work, pool))
			return;
		start_clear(reconcile, segment);
	}
}

/* ---- calibration ---- */

static struct pool_segment *find_for_calibration(struct pool *pool, enum segment_state state)
{
	LIST_FOR_EACH (pos, &pool->classes) {
		struct pool_class *class = CONTAINER_OF(pos, struct pool_class, link);
		LIST_FOR_EACH (at, &class->segments[state]) {
			struct pool_segment *segment = CONTAINER_OF(at, struct pool_segment, link);
			if (work_can_calibrate(segment))
				return segment;
		}
	}
	return NULL;
}

/*
 * On the first dirty segment that is large enough, and again on request. True: nothing else is to be cleared
 * meanwhile.
 */
static bool calibrate_pool(struct reconcile *reconcile, struct pool *pool)
{
	if (pool->is_calibrating)
		return true;
	if ((pool->is_calibrated && !pool->wants_calibration) || pool->is_draining || pool->waiting > 0 ||
		pool->jobs > 0 || reconcile->work.is_simulated)
		return false;
	struct pool_segment *segment = find_for_calibration(pool, SEGMENT_DIRTY);
	return segment && work_calibrate_segment(&reconcile->work, segment);
}

/* A clean one where there is no dirty one; where there is neither, the wish is over. */
static void prepare_calibration(struct pool *pool)
{
	if (!pool->wants_calibration || pool->is_calibrating || pool->jobs > 0 || pool->waiting > 0 ||
		find_for_calibration(pool, SEGMENT_DIRTY))
		return;
	struct pool_segment *segment = find_for_calibration(pool, SEGMENT_CLEAN);
	if (!segment || pool->is_draining || pool_set_state(segment, SEGMENT_DIRTY) < 0)
		pool->wants_calibration = false;
}

static bool is_named(const struct pool *pool, const char *name)
{
	return !*name || strcmp(pool->name, name) == 0;
}

size_t reconcile_calibrate(struct reconcile *reconcile, const char *name)
{
	size_t count = 0;
	for (size_t i = 0; i < reconcile->pool_count; i++) {
		struct pool *pool = reconcile->pools[i];
		if (!is_named(pool, name) || pool->is_draining || reconcile->work.is_simulated ||
			(!find_for_calibration(pool, SEGMENT_DIRTY) &&
				!find_for_calibration(pool, SEGMENT_CLEAN)))
			continue;
		pool->wants_calibration = true;
		count++;
	}
	reconcile_mark(reconcile);
	return count;
}

bool reconcile_is_calibrating(const struct reconcile *reconcile, const char *name)
{
	for (size_t i = 0; i < reconcile->pool_count; i++) {
		const struct pool *pool = reconcile->pools[i];
		if (is_named(pool, name) && pool->wants_calibration && !pool->is_draining)
			return true;
	}
	return false;
}

/* What somebody waits for first; then large before small. */
static void start_clears(struct reconcile *reconcile, struct pool *pool)
{
	if (!work_find_calibration(&reconcile->work, pool->config.node, pool->config.page_size) ||
		pool->segments[SEGMENT_DIRTY] == 0 || calibrate_pool(reconcile, pool))
		return;
	for (int is_wanted = 1; is_wanted >= 0; is_wanted--) {
		for (struct list *pos = pool->classes.prev; pos != &pool->classes; pos = pos->prev)
			clear_class(reconcile, pool, CONTAINER_OF(pos, struct pool_class, link), is_wanted);
	}
}

/* ---- what somebody waits for ---- */

static bool is_wantable(const struct pool_segment *segment, enum segment_state state, bool is_busy)
{
	bool is_same = segment->is_busy == is_busy && !segment->is_wanted && !segment->is_suspect;
	return is_same && segment->state == state;
}

static void want_some(struct pool *pool, enum segment_state state, bool is_busy, uint32_t *missing)
{
	LIST_FOR_EACH (pos, &pool->classes) {
		struct pool_class *class = CONTAINER_OF(pos, struct pool_class, link);
		if (class->pages < pool->waiting_pages)
			continue;
		LIST_FOR_EACH (at, &class->segments[state]) {
			struct pool_segment *segment = CONTAINER_OF(at, struct pool_segment, link);
			if (*missing == 0)
				return;
			if (!is_wantable(segment, state, is_busy))
				continue;
			segment->is_wanted = true;
			(*missing)--;
		}
	}
}

static void want_none(struct pool *pool)
{
	static const enum segment_state states[] = {SEGMENT_FILLING, SEGMENT_DIRTY};
	LIST_FOR_EACH (pos, &pool->classes) {
		struct pool_class *class = CONTAINER_OF(pos, struct pool_class, link);
		for (size_t i = 0; i < ARRAY_SIZE(states); i++) {
			LIST_FOR_EACH (at, &class->segments[states[i]])
				CONTAINER_OF(at, struct pool_segment, link)->is_wanted = false;
		}
	}
}

/*
 * Urgent is what serves those who wait, one segment each, and nothing else: what is under way already, then
 * what can be cleared, then what the kernel must zero; the smallest that serves.
 */
static void choose_wanted(struct pool *pool)
{
	static const struct {
		enum segment_state state;
		bool is_busy;
	} order[] = {{SEGMENT_DIRTY, true}, {SEGMENT_FILLING, true}, {SEGMENT_DIRTY, false},
		{SEGMENT_FILLING, false}};
	uint32_t missing = pool->waiting;
	if (missing == 0 && !pool->had_waiting)
		return;
	pool->had_waiting = missing > 0;
	want_none(pool);
	for (size_t i = 0; i < ARRAY_SIZE(order) && missing > 0; i++)
		want_some(pool, order[i].state, order[i].is_busy, &missing);
}

/* ---- nr_hugepages ---- */

int reconcile_give_back(struct reconcile *reconcile, struct pool *pool)
{
	if (pool->is_raising)
		return -EAGAIN;
	uint64_t holes, grown;
	int r = host_get_counters(reconcile->host, pool->config.node, pool->config.page_size, &pool->kernel);
	if (r < 0) {
		log_error("pool %s: nothing is given back: the kernel's counters cannot be read: %s",
			pool->name, strerror(-r));
		return 0;
	}
	nr_look(&reconcile->nr, pool); /* what others lowered meanwhile is not ours to lower again */
	/* Leases may be out: what their holders punched is owed to them. */
	pool_count_holders(pool, &holes, &grown);
	uint64_t taken = pool->kernel.resv + holes;
	uint64_t possible = MIN(pool->raised, pool->kernel.free - MIN(pool->kernel.free, taken));
	if (possible == 0)
		return 0;
	return nr_change(&reconcile->nr, pool, -(int64_t)possible) < 0 ? -ENOMEM : -EAGAIN;
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
	if (type == JOURNAL_WEAK && bytes >= sizeof(struct journal_weak))
		read_weak(reconcile, payload);
	stock_read_record(reconcile->pools, reconcile->pool_count, type, payload, bytes);
	for (size_t i = 0; i < reconcile->pool_count; i++)
		resize_read_record(reconcile->pools[i], type, payload, bytes);
	demote_read_record(reconcile->host, reconcile->pools, reconcile->pool_count, type, payload, bytes);
	nr_read_record(&reconcile->nr, reconcile->pools, reconcile->pool_count, type, payload, bytes);
}

static void write_all(struct journal *journal, void *user)
{
	struct reconcile *reconcile = user;
	lease_write_all(journal, reconcile->leases);
	orphan_write_all(handoff_get_orphans(reconcile->handoff), journal);
	prover_write_all(reconcile->prover, journal);
	if (reconcile->callbacks.write)
		reconcile->callbacks.write(journal, reconcile->callbacks.user);
	nr_write_all(&reconcile->nr, journal, reconcile->pools, reconcile->pool_count);
	if (reconcile->teardown)
		teardown_write_all(reconcile->teardown, journal);
	for (size_t i = 0; i < reconcile->pool_count; i++) {
		const struct pool *pool = reconcile->pools[i];
		struct journal_weak weak = {sizeof weak, pool->config.node, pool->config.page_size};
		resize_write(journal, pool);
		if (pool->was_weak)
			journal_append(journal, JOURNAL_WEAK, &weak, sizeof weak, NULL, 0);
		stock_write_all(reconcile->pools[i], journal);
	}
	/* What is about to be comes after what is, of either pool. */
	for (size_t i = 0; i < reconcile->pool_count; i++)
		demote_write(journal, reconcile->pools[i]);
}

int reconcile_compact(struct reconcile *reconcile)
{
	return journal_compact(reconcile->journal, write_all, reconcile);
}

/* ---- the look ---- */

/* Pages of a lease that are of this pool. */
static uint64_t count_of_pool(const struct lease *lease, const struct pool *pool)
{
	uint64_t pages = 0;
	for (size_t i = 0; i < lease->segment_count; i++) {
		if (lease->segments[i] && lease->segments[i]->pool == pool)
			pages += lease->segments[i]->pages;
	}
	return pages;
}

uint64_t reconcile_get_returning(const struct pool *pool, const struct lease_table *leases)
{
	uint64_t pages = 0;
	LIST_FOR_EACH (pos, &leases->returning)
		pages += count_of_pool(CONTAINER_OF(pos, struct lease, returning_link), pool);
	return pages;
}

static bool has_returning(const struct pool *pool, const struct lease_table *leases)
{
	LIST_FOR_EACH (pos, &leases->returning) {
		if (count_of_pool(CONTAINER_OF(pos, struct lease, returning_link), pool) > 0)
			return true;
	}
	return false;
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
	       !has_returning(pool, leases);
}

/* A page that a fill or the lesson takes during the look may be counted twice: it is not missing. */
static bool may_change_nr(const struct reconcile *reconcile, const struct pool *pool)
{
	if (pool->fill_jobs > 0 || pool->clear_jobs > 0 ||
		prover_get_lesson(reconcile->prover, pool->config.page_size) == PROVER_LESSON_RUNNING)
		return false;
	return !pool->is_draining && !pool->is_raising && now_ns(reconcile) >= pool->raise_retry_ns;
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
static void count_pages(struct reconcile *reconcile, struct pool *pool, struct policy_input *input)
{
	uint64_t grown;
	pool->is_counted = true;
	pool_count_promised(pool, &input->filling_todo_pages, &input->mending_todo_pages);
	int r = host_get_counters(reconcile->host, pool->config.node, pool->config.page_size, &pool->kernel);
	if (r < 0) {
		pool->kernel = (struct host_counters){0};
		log_warning("pool %s: counters of the kernel's pool cannot be read: %s", pool->name,
			strerror(-r));
	}
	if (r == 0 && !reconcile->work.is_simulated)
		nr_look(&reconcile->nr, pool);
	input->kernel_free = pool->kernel.free;
	input->kernel_resv = pool->kernel.resv;
	input->holes_owed_pages = 0;
	if (policy_get_usable(input) > 0) /* else nothing is taken, whatever is owed */
		pool_count_holders(pool, &input->holes_owed_pages, &grown);
}

/*
 * What may be taken from the kernel. To count it costs a look at every file that is lent, so that is done
 * when the first wants to take some; once a look.
 */
static uint64_t *get_usable(struct reconcile *reconcile, struct pool *pool)
{
	struct policy_input input = {0};
	if (!pool->is_counted) {
		count_pages(reconcile, pool, &input);
		pool->plan.usable_pages = policy_get_usable(&input);
	}
	return &pool->plan.usable_pages;
}

/* What the pool may still grow by for somebody who waits. */
static uint64_t get_room(const struct reconcile *reconcile, const struct pool *pool)
{
	uint64_t held =
		pool_get_held(pool) + orphan_get_pages(handoff_get_orphans(reconcile->handoff), pool, NULL);
	return pool->config.max_pages - MIN(pool->config.max_pages, held);
}

static void make_plan(struct reconcile *reconcile, struct pool *pool)
{
	struct policy_class classes[POOL_CLASSES_MAX];
	bool may_change = may_change_nr(reconcile, pool);
	struct policy_input input = {
		.target_pages = pool->target,
		.lent_pages = pool->pages[SEGMENT_LEASED] + pool->holes, /* as last seen */
		.low_percent = reconcile->low_percent,
		.high_percent = reconcile->high_percent,
		.was_refilling = pool->plan.is_refilling,
		.is_draining = pool->is_draining,
		.is_gentle = pool->config.is_learning,
		.reshape_percent = reconcile->reshape_percent,
		.is_shrunk = pool->target < pool->config.pages || pool->give_back > 0,
		.leaving_pages = pool->size.demoting,
		.classes = classes,
		.class_count = pool_get_classes(pool, classes),
		.clean_pages = pool->pages[SEGMENT_CLEAN],
		.held_pages = pool_get_lengths(pool),
		.waiting_pages = pool->waiting > 0 ? MAX(pool->waiting_pages, 1) : 0,
		.lacking_pages = pool->lacking_pages,
		.room_pages = pool->lacking_pages > 0 ? get_room(reconcile, pool) : 0,
		.give_back_pages = pool->give_back,
		/* What is withheld for others, or about to be split, is not asked of the kernel meanwhile,
		 * but for who waits. */
		.may_raise = pool->config.raise && may_change &&
			     (pool->size.withheld + pool->size.demoting == 0 || pool->waiting > 0),
		.may_lower = may_change,
		.is_raising = pool->is_raising,
		.free_slots = get_free_slots(reconcile, pool),
	};
	pool->is_counted = false;
	policy_plan(&input, &pool->plan);
	/* Where nothing is taken from the kernel or given to it, it does not matter what is free. */
	bool has_place = pool->config.is_learning && pool->plan.place_pages > 0;
	if (pool->plan.missing_pages == 0 && !has_place && pool->lacking_pages == 0 && pool->give_back == 0 &&
		pool->size.demoting == 0 && !pool->wants_count)
		return;
	pool->wants_count = false;
	count_pages(reconcile, pool, &input);
	policy_plan(&input, &pool->plan);
	/* It holds less than it is to have: what was owed for a smaller size never came. Not what it has let
	 * go to be split: it is to have less then, too. */
	if (pool->plan.short_pages > 0 && pool->give_back > 0 && !pool->is_raising &&
		pool->size.demoting == 0 && pool->kernel.nr > 0)
		nr_owe(&reconcile->nr, pool, -(int64_t)pool->give_back);
}

/* What is opened for it must not be taken for somebody else's. False: it cannot be cut now. */
static bool cut_clean(struct reconcile *reconcile, struct pool *pool, uint64_t segment_pages, uint64_t pages)
{
	struct pool_segment *segment = pool_find_clean(pool, segment_pages);
	if (!segment)
		return true;
	_cleanup_fd_ int fd = reconcile_open_clean(reconcile, segment);
	segment->is_opening = true;
	int r = fd < 0 ? fd : pool_cut(segment, fd, pages);
	reconcile_was_opened(reconcile, segment);
	segment->is_opening = false;
	if (r < 0 && r != -EBUSY &&
		r != -EINVAL) /* those: somebody opened it, and it is not clean any more */
		log_error("pool %s: a clean segment cannot be cut: %s", pool->name, strerror(-r));
	return r == 0 || segment->state != SEGMENT_CLEAN;
}

static uint64_t drop_class(struct pool *pool, uint64_t segment_pages, uint64_t count)
{
	uint64_t dropped = 0;
	while (dropped < count) {
		struct pool_segment *segment = pool_find_dirty(pool, segment_pages);
		int r = segment ? pool_discard(segment) : -ENOENT;
		if (r < 0 && segment)
			log_error(
				"pool %s: a dirty segment cannot be unlinked: %s", pool->name, strerror(-r));
		if (r < 0)
			break;
		dropped++;
	}
	return dropped;
}

/* Before they are cleared: of this length the stock wants none. */
static void drop_dirty(struct reconcile *reconcile, struct pool *pool)
{
	for (size_t i = 0; i < pool->plan.action_count && !pool->wants_calibration; i++) {
		const struct policy_action *action = &pool->plan.actions[i];
		if (action->kind != POLICY_DROP)
			continue;
		uint64_t dropped = drop_class(pool, action->segment_pages, action->count);
		if (dropped == 0)
			continue;
		log_info("pool %s: %" PRIu64 " segments of %" PRIu64
			 " pages go back to the kernel uncleared: the stock has no place for their length",
			pool->name, dropped, action->segment_pages);
		reconcile_mark(reconcile);
	}
}

/* False: they cannot be unlinked now. */
static bool discard_clean(struct pool *pool, uint64_t segment_pages, uint64_t count)
{
	for (uint64_t i = 0; i < count; i++) {
		struct pool_segment *segment = pool_find_clean(pool, segment_pages);
		if (!segment)
			return true;
		int r = pool_discard(segment);
		if (r < 0) {
			log_error(
				"pool %s: a clean segment cannot be unlinked: %s", pool->name, strerror(-r));
			return false;
		}
	}
	return true;
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
			work_discard(segment, "who had it before is not known");
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
			if (discard_clean(pool, action->segment_pages, action->count))
				reconcile_mark(reconcile);
			else
				want_tick(reconcile, RETRY_MS);
			break;
		case POLICY_RAISE:
			pool->nr_awaited = pool->plan.awaited_pages;
			nr_change(&reconcile->nr, pool, (int64_t)(action->segment_pages * action->count));
			break;
		case POLICY_LOWER:
			/* The same. What is gone of it is owed to holders, or promised. */
			count = MIN(action->segment_pages * action->count, pool->plan.usable_pages);
			pool->plan.usable_pages -= count;
			if (count > 0)
				nr_change(&reconcile->nr, pool, -(int64_t)count);
			break;
		case POLICY_CUT:
			if (cut_clean(reconcile, pool, action->segment_pages, action->count))
				reconcile_mark(reconcile);
			else
				want_tick(reconcile, RETRY_MS);
			break;
		case POLICY_DROP: /* drop_dirty() */
			break;
		}
	}
}

/* A drained pool's work is stopped; what it was at is discarded when nobody is at it any more. */
static void drop_work(struct reconcile *reconcile, struct pool *pool)
{
	static const enum segment_state states[] = {SEGMENT_FILLING, SEGMENT_DIRTY};
	LIST_FOR_EACH (pos, &pool->classes) {
		struct pool_class *class = CONTAINER_OF(pos, struct pool_class, link);
		for (size_t i = 0; i < ARRAY_SIZE(states); i++) {
			LIST_FOR_EACH_SAFE (at, &class->segments[states[i]]) {
				struct pool_segment *segment = CONTAINER_OF(at, struct pool_segment, link);
				if (segment->is_busy)
					work_cancel(&reconcile->work, segment);
				else if (states[i] == SEGMENT_FILLING)
					work_discard(segment, "the pool is being drained");
			}
		}
	}
}

/* What the pool lacks, and how to get it. */
static void explain_short(const struct pool *pool, char *text, size_t capacity)
{
	char page[SIZE_TEXT], missing[SIZE_TEXT];
	size_format_exact(pool->config.page_size, page);
	size_format(pool->plan.short_pages * pool->config.page_size, missing);
	snprintf(text, capacity,
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

static void set_message(struct reconcile *reconcile, struct pool *pool)
{
	char text[256];
	pool->message[0] = '\0';
	if (reconcile->work.is_simulated) {
		snprintf(pool->message, sizeof pool->message,
			"SIMULATED: none of this memory exists, nobody must use it");
		return;
	}
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
	if (pool->plan.short_pages > 0)
		explain_short(pool, pool->message, sizeof pool->message);
	size_t used = strlen(pool->message);
	if (nr_explain(pool, text, sizeof text))
		snprintf(pool->message + used, sizeof pool->message - used, "%s%s", used ? "; " : "", text);
	used = strlen(pool->message);
	if (pool->size.withheld > 0)
		snprintf(pool->message + used, sizeof pool->message - used,
			"%s%" PRIu64 " pages are given up because others wait for memory (give_back)",
			used ? "; " : "", pool->size.withheld);
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
		work_discard(suspect, "the proof wants a page to learn on");
}

/*
 * The proof wants a free page before the pool takes them all. Where none is left for it, a segment goes back
 * to the kernel first: it is filled again, the proof stays. True: no page is to be taken now.
 */
static bool is_lesson_first(struct reconcile *reconcile, struct pool *pool)
{
	if (reconcile->work.is_simulated)
		return false; /* it would take a real page */
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
	if (needs_page && *get_usable(reconcile, pool) == 0)
		free_a_segment(pool);
	prover_learn(reconcile->prover, pool->store);
	want_tick(reconcile, RETRY_MS);
	return needs_page;
}

static void follow_demand(struct reconcile *reconcile, struct pool *pool)
{
	uint64_t delay_ms = stock_look(pool, reconcile->journal, clock_get_ns(CLOCK_BOOTTIME));
	if (delay_ms != UINT64_MAX)
		want_tick(reconcile, delay_ms);
}

static void look_at_pool(struct reconcile *reconcile, struct pool *pool)
{
	follow_demand(reconcile, pool);
	pool_sweep(pool);
	if (pool->stranded > 0 && pool_take_back(pool) > 0)
		want_tick(reconcile, RETRY_MS);
	discard_unfit(reconcile, pool);
	make_plan(reconcile, pool);
	if (!reconcile->work.is_simulated && nr_owe_awaited(&reconcile->nr, pool))
		reconcile_mark(reconcile);
	look_at_orphans(reconcile, pool);
	choose_wanted(pool);
	if (!reconcile->has_leftovers) {
		bool may_create = !pool->is_draining && !is_lesson_first(reconcile, pool);
		if (pool->is_draining)
			drop_work(reconcile, pool);
		else if (may_create)
			resume_fills(reconcile, pool);
		drop_dirty(reconcile, pool);
		prepare_calibration(pool);
		start_clears(reconcile, pool);
		apply_plan(reconcile, pool, may_create);
		demote_step(&reconcile->nr, pool, reconcile->pools, reconcile->pool_count);
		if (reconcile_is_idle(pool, reconcile->leases))
			work_zero_free(&reconcile->work, pool);
	}
	choose_wanted(pool); /* of what has just begun, too */
	work_set_levels(&reconcile->work, pool);
	set_message(reconcile, pool);
	if (pool->plan.short_pages > 0 || pool->give_back > 0)
		want_tick(reconcile, TICK_MS);
}

/* The array may be another one, or a configuration. */
static void tell_relief(struct reconcile *reconcile)
{
	bool is_real = !reconcile->work.is_simulated && !reconcile->is_stopping;
	relief_set_pools(&reconcile->relief, reconcile->pools, is_real ? reconcile->pool_count : 0);
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
	tell_relief(reconcile);
	uint64_t live_bytes = lease_get_journal_bytes(reconcile->leases) +
			      orphan_get_journal_bytes(handoff_get_orphans(reconcile->handoff));
	for (size_t i = 0; i < reconcile->pool_count; i++)
		live_bytes += stock_get_journal_bytes(reconcile->pools[i]);
	if (reconcile->teardown)
		live_bytes += teardown_get_journal_bytes(reconcile->teardown);
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

/* Somebody changed the kernel's numbers, or we did. */
static void look_at_counters(struct reconcile *reconcile)
{
	for (size_t i = 0; i < reconcile->pool_count; i++)
		reconcile->pools[i]->wants_count = true;
	reconcile_mark(reconcile);
}

static void on_sysfs(uv_fs_event_t *event, const char *filename, int events, int status)
{
	look_at_counters(event->data);
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

static void on_nr(void *user)
{
	look_at_counters(user);
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
	};
	work_init(&reconcile->work, loop, host, crew, &(struct work_callbacks){on_work, reconcile});
	nr_init(&reconcile->nr, loop, host, on_nr, reconcile);
	relief_init(&reconcile->relief, &reconcile->nr, on_nr, reconcile);
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
	tell_relief(reconcile);
	pool->owner = &reconcile->work;
	if (reconcile->sentry)
		sentry_add_pool(reconcile->sentry, pool);
	watch_counters(reconcile, pool);
	pool->wants_count = true;
	if (reconcile->is_started) { /* by a reload: its mount and its node may be new */
		check_leftovers(reconcile);
		work_calibrate_node(&reconcile->work, pool->config.node);
	}
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
		tell_relief(reconcile);
		return;
	}
}

void reconcile_set_clear(struct reconcile *reconcile, const struct config_clear *clear)
{
	reconcile->is_off = !clear->is_enabled;
	reconcile->low_percent = clear->low_percent;
	reconcile->high_percent = clear->high_percent;
	reconcile->reshape_percent = clear->reshape_percent;
	reconcile->work.may_zero_free = clear->is_kernel_zeroing;
	work_set_method(&reconcile->work, clear->method);
	reconcile_mark(reconcile);
}

void reconcile_start(struct reconcile *reconcile, struct journal *journal)
{
	reconcile->journal = reconcile->nr.journal = journal;
	reconcile->is_started = true;
	for (size_t i = 0; i < reconcile->pool_count; i++) {
		struct pool *pool = reconcile->pools[i];
		nr_owe(&reconcile->nr, pool, -(int64_t)pool->wanted_again);
		pool->wanted_again = 0;
	}
	/* What was read is worth writing anew: torn tails and ended leases go. */
	int r = journal_compact(journal, write_all, reconcile);
	if (r < 0)
		log_warning("journal: cannot be compacted: %s", strerror(-r));
	uv_prepare_start(&reconcile->prepare, on_prepare);
	check_leftovers(reconcile);
	work_calibrate_node(&reconcile->work, reconcile->host->nodes[0]);
	for (size_t i = 0; i < reconcile->pool_count; i++)
		work_calibrate_node(&reconcile->work, reconcile->pools[i]->config.node);
	reconcile_mark(reconcile);
}

void reconcile_stop(struct reconcile *reconcile)
{
	reconcile->is_stopping = true;
	for (size_t i = 0; i < reconcile->pool_count && reconcile->journal; i++)
		stock_save(reconcile->pools[i], reconcile->journal, clock_get_ns(CLOCK_BOOTTIME));
	work_stop(&reconcile->work);
	if (reconcile->sentry)
		sentry_close(reconcile->sentry);
	relief_close(&reconcile->relief);
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
	work_deinit(&reconcile->work);
	free(reconcile->pools);
}

const char *reconcile_get_method(const struct reconcile *reconcile)
{
	int method = -1;
	for (size_t i = 0; method < 0 && i < reconcile->pool_count; i++)
		method = work_get_method(&reconcile->work, reconcile->pools[i]);
	for (size_t i = 0; method < 0 && i < reconcile->work.calibration_count; i++)
		method = reconcile->work.calibrations[i].method;
	return method < 0 ? "" : zero_methods[method].name;
}
