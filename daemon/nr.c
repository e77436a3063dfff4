/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* nr.c - nr_hugepages: how many pages the kernel keeps by order, and how many of these by ours. */
#include <inttypes.h>

#include "log.h"
#include "nr.h"
#include "size.h"

#define RETRY_MIN_S 10
#define RETRY_MAX_S 320 /* each try may compact memory */

void nr_init(struct nr *nr, uv_loop_t *loop, const struct host *host, void (*changed)(void *user), void *user)
{
	*nr = (struct nr){.loop = loop, .host = host, .changed = changed, .user = user};
}

static uint64_t get_kept(const struct host_counters *kernel)
{
	return kernel->nr - MIN(kernel->nr, kernel->surplus);
}

/* ---- the journal ---- */

/* With a change under way: what it is about to be, so that a reader finds out what came of it. */
static void write_raise(struct journal *journal, const struct pool *pool)
{
	int64_t delta = pool->is_raising ? pool->nr_delta : 0;
	struct journal_raise record = {
		.size = sizeof record,
		.node = pool->config.node,
		.page_size = pool->config.page_size,
		/* About to be lowered: should we die over it, rather keep a page too many than take one of
		 * somebody else's away. */
		.raised = pool->raised - (delta < 0 ? MIN(pool->raised, (uint64_t)-delta) : 0),
		.before = pool->nr_before,
		.delta = delta,
		.is_intent = delta > 0,
		.give_back = pool->give_back - (delta < 0 ? MIN(pool->give_back, (uint64_t)-delta) : 0),
		.awaited = pool->raised_awaited,
		.delta_awaited = delta > 0 ? pool->nr_awaited : 0,
	};
	int r = journal_append(journal, JOURNAL_RAISE, &record, sizeof record, NULL, 0);
	if (r < 0)
		log_error("journal: pool %s: %s; a restart now would not know what was raised", pool->name,
			strerror(-r));
}

/* The pool gets what it is to have first: what comes beyond that is for whoever waits. */
static void add_raised(struct pool *pool, uint64_t got, uint64_t delta, uint64_t awaited)
{
	uint64_t own = delta - MIN(delta, awaited);
	pool->raised += got;
	pool->raised_awaited += got - MIN(got, own);
}

static void read_raise(const struct nr *nr, struct pool *pool, const struct journal_raise *record)
{
	struct host_counters now;
	pool->raised = record->raised;
	pool->give_back = record->give_back;
	pool->raised_awaited = record->awaited;
	if (record->is_intent && host_get_counters(nr->host, record->node, record->page_size, &now) == 0 &&
		get_kept(&now) > record->before)
		add_raised(pool, MIN(get_kept(&now) - record->before, (uint64_t)record->delta),
			(uint64_t)record->delta, record->delta_awaited);
	pool->give_back = MIN(pool->give_back, pool->raised);
	/* We may have died while more than what was owed was being lowered. */
	pool->raised_awaited = MIN(pool->raised_awaited, pool->raised - pool->give_back);
}

void nr_read_record(struct nr *nr, struct pool *const *pools, size_t pool_count, enum journal_type type,
	const void *payload, size_t bytes)
{
	const struct journal_raise *record = payload;
	if (type != JOURNAL_RAISE || bytes < sizeof *record)
		return;
	for (size_t i = 0; i < pool_count; i++) {
		if (pools[i]->config.node == record->node && pools[i]->config.page_size == record->page_size)
			read_raise(nr, pools[i], record);
	}
}

void nr_write_all(const struct nr *nr, struct journal *journal, struct pool *const *pools, size_t pool_count)
{
	for (size_t i = 0; i < pool_count; i++)
		write_raise(journal, pools[i]);
}

/* ---- raising and lowering ---- */

struct nr_work {
	uv_work_t work;
	struct nr *nr;
	struct pool *pool;
	int64_t delta;
	uint64_t before, after;
	bool is_compacted;
	int result;
};

/* Once an attempt: what is not free in one piece now may be after it. */
static void compact_and_raise(struct nr_work *work)
{
	const struct pool *pool = work->pool;
	uint64_t got = work->after - MIN(work->after, work->before), before;
	if (work->delta <= 0 || got >= (uint64_t)work->delta ||
		host_compact(work->nr->host, pool->config.node) < 0)
		return;
	work->is_compacted = true;
	host_add_nr(work->nr->host, pool->config.node, pool->config.page_size, work->delta - (int64_t)got,
		&before, &work->after);
}

static void do_change(uv_work_t *handle)
{
	struct nr_work *work = handle->data;
	work->result = host_add_nr(work->nr->host, work->pool->config.node, work->pool->config.page_size,
		work->delta, &work->before, &work->after);
	if (work->result == 0)
		compact_and_raise(work);
}

static void back_off(const struct nr *nr, struct pool *pool)
{
	uint64_t seconds = RETRY_MIN_S << MIN(pool->raise_failures, 5u);
	pool->raise_failures++;
	pool->raise_retry_ns = uv_now(nr->loop) * NS_PER_MS + MIN(seconds, RETRY_MAX_S) * NS_PER_S;
}

static void tell(const struct nr_work *work, int64_t got)
{
	const struct pool *pool = work->pool;
	char size[SIZE_TEXT];
	size_format_exact(pool->config.page_size, size);
	if (work->result < 0)
		log_error("pool %s: node %" PRId32 ": nr_hugepages (%s) cannot be changed: %s", pool->name,
			pool->config.node, size, strerror(-work->result));
	else
		log_info("pool %s: node %" PRId32 ": asked the kernel for %+" PRId64
			 " pages of %s, got %+" PRId64 "%s (nr_hugepages %" PRIu64 " -> %" PRIu64 ")",
			pool->name, pool->config.node, work->delta, size, got,
			work->is_compacted ? ", memory was compacted for it" : "", work->before, work->after);
}

static void on_changed(uv_work_t *handle, int status)
{
	struct nr_work *work = handle->data;
	struct nr *nr = work->nr;
	struct pool *pool = work->pool;
	int64_t got = work->result < 0 ? 0 : (int64_t)(work->after - work->before);
	pool->is_raising = false;
	pool->leaving = 0;
	pool->has_known_nr = false; /* whatever others did meanwhile cannot be told from it */
	if (work->delta > 0)
		add_raised(pool, (uint64_t)MAX(got, 0), (uint64_t)work->delta, pool->nr_awaited);
	else
		pool->raised -= MIN(pool->raised, (uint64_t)MAX(-got, 0));
	if (got < 0)
		pool->give_back -= MIN(pool->give_back, (uint64_t)-got);
	pool->give_back = MIN(pool->give_back, pool->raised);
	pool->raised_awaited = MIN(pool->raised_awaited, pool->raised - pool->give_back);
	write_raise(nr->journal, pool);
	tell(work, got);
	if (got != work->delta)
		back_off(nr, pool);
	else
		pool->raise_failures = 0;
	free(work);
	nr->changed(nr->user);
}

int nr_change(struct nr *nr, struct pool *pool, int64_t pages)
{
	if (pool->is_raising)
		return -EBUSY;
	struct nr_work *work = calloc(1, sizeof *work);
	if (!work)
		return -ENOMEM;
	work->nr = nr;
	work->pool = pool;
	work->delta = pages;
	work->work.data = work;
	pool->nr_before = get_kept(&pool->kernel);
	pool->nr_delta = pages;
	pool->leaving = pages < 0 ? (uint64_t)-pages : 0;
	pool->is_raising = true;
	/* The intent first: what if we die right there? */
	write_raise(nr->journal, pool);
	int r = uv_queue_work(nr->loop, &work->work, do_change, on_changed);
	if (r < 0) {
		pool->is_raising = false;
		pool->leaving = 0;
		write_raise(nr->journal, pool);
		free(work);
	}
	return r;
}

void nr_owe(struct nr *nr, struct pool *pool, int64_t pages)
{
	uint64_t before = pool->give_back;
	/* What is being asked for just now is ours, too, as far as it comes. */
	uint64_t coming = pool->is_raising ? (uint64_t)MAX(pool->nr_delta, 0) : 0;
	if (pages > 0)
		pool->give_back = MIN(pool->give_back + (uint64_t)pages, pool->raised + coming);
	else
		pool->give_back -= MIN(pool->give_back, (uint64_t)-pages);
	if (pool->give_back != before)
		write_raise(nr->journal, pool);
}

bool nr_owe_awaited(struct nr *nr, struct pool *pool)
{
	if (pool->raised_awaited == 0 || pool->waiting > 0 || pool->is_raising ||
		pool->plan.missing_pages > 0)
		return false;
	uint64_t held = pool_get_lengths(pool);
	uint64_t lent = held - MIN(held, pool->target); /* it is beyond the target because of that */
	uint64_t due = pool->raised_awaited - MIN(pool->raised_awaited, lent);
	if (due == 0)
		return false;
	pool->raised_awaited -= due;
	nr_owe(nr, pool, (int64_t)due);
	return true;
}

/* ---- what others do ---- */

/* Lowered: of what we raised some may be gone. Rather keep a page too many than take one of somebody's. */
static void note_lowered(struct nr *nr, struct pool *pool, uint64_t kept)
{
	uint64_t lost = MIN(pool->raised, pool->known_nr - kept);
	char size[SIZE_TEXT];
	if (pool->nr_expected == 0) /* once, until it is as before */
		log_warning("pool %s: node %" PRId32 ": somebody lowered nr_hugepages (%s) from %" PRIu64
			    " to %" PRIu64 "; %" PRIu64 " of these pages are hpzd's; hpzctl resize makes the "
			    "pool smaller",
			pool->name, pool->config.node, size_format_exact(pool->config.page_size, size),
			pool->known_nr, kept, pool_get_total(pool));
	pool->nr_expected = MAX(pool->nr_expected, pool->known_nr);
	if (lost == 0)
		return;
	pool->raised -= lost;
	pool->give_back = MIN(pool->give_back, pool->raised);
	pool->raised_awaited = MIN(pool->raised_awaited, pool->raised - pool->give_back);
	write_raise(nr->journal, pool);
}

static void note_raised(struct pool *pool, uint64_t kept)
{
	char size[SIZE_TEXT];
	if (kept >= pool->nr_expected)
		pool->nr_expected = 0;
	log_info("pool %s: node %" PRId32 ": somebody raised nr_hugepages (%s) from %" PRIu64 " to %" PRIu64,
		pool->name, pool->config.node, size_format_exact(pool->config.page_size, size),
		pool->known_nr, kept);
}

bool nr_look(struct nr *nr, struct pool *pool)
{
	uint64_t kept = get_kept(&pool->kernel);
	if (pool->is_raising)
		return false;
	bool is_new = pool->has_known_nr && kept != pool->known_nr;
	if (is_new && kept < pool->known_nr)
		note_lowered(nr, pool, kept);
	else if (is_new)
		note_raised(pool, kept);
	if (kept >= pool->nr_expected)
		pool->nr_expected = 0; /* we raised it ourselves */
	pool->known_nr = kept;
	pool->has_known_nr = true;
	return is_new;
}

bool nr_explain(const struct pool *pool, char *ret_text, size_t capacity)
{
	uint64_t kept = get_kept(&pool->kernel), held = pool_get_total(pool);
	/* Surplus pages may be others': ours are those beyond what is kept by order. */
	if (pool->kernel.surplus > 0 && held > kept) {
		snprintf(ret_text, capacity,
			"nr_hugepages of node %" PRId32 " is %" PRIu64 ", but hpzd holds %" PRIu64
			" pages: those beyond it are surplus and gone as soon as they are let go; set it "
			"back, or "
			"make the pool smaller (hpzctl resize)",
			pool->config.node, kept, held);
		return true;
	}
	if (pool->nr_expected == 0 || pool->plan.short_pages == 0)
		return false;
	snprintf(ret_text, capacity,
		"somebody lowered nr_hugepages of node %" PRId32 " from %" PRIu64 " to %" PRIu64
		": set it back, or make the pool smaller (hpzctl resize)",
		pool->config.node, pool->nr_expected, kept);
	return true;
}
