/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* demote.c - free pages of one pool become smaller ones of another. */
#include <inttypes.h>

#include "demote.h"
#include "log.h"
#include "metrics.h"
#include "size.h"

static struct pool *find_pool(struct pool *const *pools, size_t count, int32_t node, uint64_t page_size)
{
	for (size_t i = 0; i < count; i++) {
		if (pools[i]->config.node == node && pools[i]->config.page_size == page_size)
			return pools[i];
	}
	return NULL;
}

/* Where its pages would go. NULL: nowhere. */
static struct pool *find_smaller(
	const struct host *host, const struct pool *pool, struct pool *const *pools, size_t count)
{
	uint64_t page_size;
	if (host_get_demote_size(host, pool->config.page_size, &page_size) < 0)
		return NULL;
	return find_pool(pools, count, pool->config.node, page_size);
}

int demote_order(const struct nr *nr, struct pool *pool, struct pool *const *pools, size_t pool_count,
	uint64_t pages, char *ret_why, size_t capacity)
{
	char size[SIZE_TEXT], smaller[SIZE_TEXT];
	uint64_t page_size;
	size_format_exact(pool->config.page_size, size);
	if (host_get_demote_size(nr->host, pool->config.page_size, &page_size) < 0) {
		snprintf(ret_why, capacity, "this kernel cannot split pages of %s", size);
		return -ENOENT;
	}
	if (!find_smaller(nr->host, pool, pools, pool_count)) {
		snprintf(ret_why, capacity,
			"pages of %s are split into %s, and there is no pool of these on node %" PRId32, size,
			size_format_exact(page_size, smaller), pool->config.node);
		return -ENOENT;
	}
	if (pool->size.demoting > 0) {
		snprintf(ret_why, capacity, "pages of pool %s are being split just now", pool->name);
		return -EBUSY;
	}
	if (pages == 0 || pages > pool->target) {
		snprintf(ret_why, capacity,
			"pool %s is to have %" PRIu64 " pages: so many of them cannot be split", pool->name,
			pool->target);
		return -EINVAL;
	}
	struct pool_size next = pool->size;
	next.demoting = pages;
	pool_set_size(pool, &next);
	return 0;
}

/* ---- what came of it ---- */

/* What both pools were before it, and how many pages are to go. */
struct state {
	uint64_t pages;
	uint64_t ratio; /* smaller pages of a larger one */
	uint64_t from_kept, from_raised, to_raised;
	uint64_t from_pages, to_pages;
};

/* Absolute: a record that is read twice, or followed by those that come after it, does no harm. */
static void apply(struct pool *from, struct pool *to, const struct state *before, uint64_t done)
{
	uint64_t ours = MIN(before->from_raised, done);
	struct pool_size smaller = from->size, larger = to->size;
	from->raised = before->from_raised - ours;
	to->raised = before->to_raised + ours * before->ratio;
	from->give_back = MIN(from->give_back, from->raised);
	from->raised_awaited = MIN(from->raised_awaited, from->raised - from->give_back);
	smaller.pages = before->from_pages - MIN(before->from_pages, done);
	smaller.is_resized = smaller.pages != from->config.pages;
	smaller.demoting = 0;
	larger.pages =
		MAX(before->to_pages, MIN(before->to_pages + done * before->ratio, to->config.max_pages));
	larger.is_resized = larger.pages != to->config.pages;
	pool_set_size(from, &smaller);
	pool_set_size(to, &larger);
}

static void get_state(const struct pool *from, const struct pool *to, uint64_t pages, struct state *ret_state)
{
	*ret_state = (struct state){
		.pages = pages,
		.ratio = from->config.page_size / to->config.page_size,
		.from_kept = from->kernel.nr - MIN(from->kernel.nr, from->kernel.surplus),
		.from_raised = from->raised,
		.to_raised = to->raised,
		.from_pages = resize_get_base(from),
		.to_pages = resize_get_base(to),
	};
}

/* ---- the journal ---- */

static int write_intent(
	struct journal *journal, const struct pool *from, const struct pool *to, const struct state *state)
{
	const struct journal_demote record = {
		.size = sizeof record,
		.node = from->config.node,
		.from_page_size = from->config.page_size,
		.to_page_size = to->config.page_size,
		.pages = state->pages,
		.from_kept = state->from_kept,
		.from_raised = state->from_raised,
		.to_raised = state->to_raised,
		.from_pages = state->from_pages,
		.to_pages = state->to_pages,
		.from_configured = from->config.pages,
		.to_configured = to->config.pages,
	};
	return journal_append(journal, JOURNAL_DEMOTE, &record, sizeof record, NULL, 0);
}

/* The configuration may say another number by now: that one counts. */
static void read_intent(
	const struct host *host, struct pool *from, struct pool *to, const struct journal_demote *record)
{
	struct host_counters now;
	if (host_get_counters(host, record->node, record->from_page_size, &now) < 0)
		return;
	uint64_t kept = now.nr - MIN(now.nr, now.surplus);
	uint64_t done = MIN(record->from_kept - MIN(record->from_kept, kept), record->pages);
	const struct state before = {
		.pages = record->pages,
		.ratio = record->from_page_size / record->to_page_size,
		.from_raised = record->from_raised,
		.to_raised = record->to_raised,
		.from_pages = record->from_pages,
		.to_pages = record->to_pages,
	};
	struct pool_size from_size = from->size, to_size = to->size;
	apply(from, to, &before, done);
	if (record->from_configured != from->config.pages)
		pool_set_size(from, &from_size);
	if (record->to_configured != to->config.pages)
		pool_set_size(to, &to_size);
}

void demote_read_record(const struct host *host, struct pool *const *pools, size_t pool_count,
	enum journal_type type, const void *payload, size_t bytes)
{
	const struct journal_demote *record = payload;
	if (type != JOURNAL_DEMOTE || bytes < sizeof *record || record->to_page_size == 0)
		return;
	struct pool *from = find_pool(pools, pool_count, record->node, record->from_page_size);
	struct pool *to = find_pool(pools, pool_count, record->node, record->to_page_size);
	if (from && to)
		read_intent(host, from, to, record);
}

/* ---- doing it ---- */

struct demotion {
	uv_work_t work;
	struct nr *nr;
	struct pool *from, *to;
	struct state before;
	uint64_t done;
	int result;
};

void demote_write(struct journal *journal, const struct pool *pool)
{
	const struct demotion *demotion = pool->demotion;
	if (demotion && write_intent(journal, demotion->from, demotion->to, &demotion->before) < 0)
		log_error("journal: pool %s: a restart now would not know what was split", pool->name);
}

static void do_demote(uv_work_t *work)
{
	struct demotion *demotion = work->data;
	const struct config_pool *config = &demotion->from->config;
	demotion->result = host_demote(
		demotion->nr->host, config->node, config->page_size, demotion->before.pages, &demotion->done);
}

static void tell(const struct demotion *demotion)
{
	const struct pool *from = demotion->from;
	char size[SIZE_TEXT], smaller[SIZE_TEXT];
	size_format_exact(from->config.page_size, size);
	if (demotion->result < 0)
		log_error("pool %s: node %" PRId32 ": pages of %s cannot be split: %s", from->name,
			from->config.node, size, strerror(-demotion->result));
	else
		log_info("pool %s: node %" PRId32 ": %" PRIu64 " of %" PRIu64
			 " pages of %s were split into %s",
			from->name, from->config.node, demotion->done, demotion->before.pages, size,
			size_format_exact(demotion->to->config.page_size, smaller));
}

/* All that came of it is written: from then on the intent says nothing any more. */
static void write_outcome(struct nr *nr, struct pool *from, struct pool *to)
{
	struct pool *pools[] = {from, to};
	nr_write_all(nr, nr->journal, pools, ARRAY_SIZE(pools));
	for (size_t i = 0; i < ARRAY_SIZE(pools); i++) {
		if (resize_write(nr->journal, pools[i]) < 0)
			log_error("journal: pool %s: a restart now would not know its size", pools[i]->name);
	}
}

static void on_demoted(uv_work_t *work, int status)
{
	struct demotion *demotion = work->data;
	struct nr *nr = demotion->nr;
	struct pool *from = demotion->from, *to = demotion->to;
	from->is_raising = to->is_raising = false;
	from->leaving = 0;
	from->has_known_nr = to->has_known_nr = false;
	from->demotion = NULL;
	from->demoted += demotion->done;
	metrics_add(METRICS_DEMOTED_PAGES, METRICS_NO_LABEL, demotion->done);
	/* An order or a reload may have changed what they are to be meanwhile. */
	demotion->before.from_pages = resize_get_base(from);
	demotion->before.to_pages = resize_get_base(to);
	apply(from, to, &demotion->before, demotion->done);
	write_outcome(nr, from, to);
	tell(demotion);
	free(demotion);
	nr->changed(nr->user);
}

static void give_up(struct pool *pool)
{
	struct pool_size next = pool->size;
	next.demoting = 0;
	pool_set_size(pool, &next);
}

/* The intent first: what if we die right there? */
static void start(struct nr *nr, struct pool *from, struct pool *to, uint64_t pages)
{
	struct demotion *demotion = calloc(1, sizeof *demotion);
	if (!demotion) {
		give_up(from);
		return;
	}
	demotion->nr = nr;
	demotion->from = from;
	demotion->to = to;
	demotion->work.data = demotion;
	get_state(from, to, pages, &demotion->before);
	if (write_intent(nr->journal, from, to, &demotion->before) < 0 ||
		uv_queue_work(nr->loop, &demotion->work, do_demote, on_demoted) < 0) {
		log_error("pool %s: pages cannot be split: the journal cannot be written", from->name);
		free(demotion);
		give_up(from);
		return;
	}
	from->demotion = demotion;
	from->nr_delta = to->nr_delta = 0;
	from->is_raising = to->is_raising = true;
	from->leaving = pages;
}

static bool has_discards(const struct policy_plan *plan)
{
	for (size_t i = 0; i < plan->action_count; i++) {
		switch (plan->actions[i].kind) {
		case POLICY_DISCARD:
		case POLICY_DROP:
		case POLICY_CUT:
			return true;
		case POLICY_CREATE:
		case POLICY_RAISE:
		case POLICY_LOWER:
			break;
		}
	}
	return false;
}

void demote_step(struct nr *nr, struct pool *pool, struct pool *const *pools, size_t pool_count)
{
	if (pool->size.demoting > 0 && pool->is_draining && !pool->demotion)
		give_up(pool);
	if (pool->size.demoting == 0 || pool->is_raising || pool->fill_jobs > 0 || pool->clear_jobs > 0 ||
		has_discards(&pool->plan)) /* and the next look sees their pages free */
		return;
	struct pool *to = find_smaller(nr->host, pool, pools, pool_count);
	uint64_t pages = MIN(pool->size.demoting, pool->plan.usable_pages);
	if (to && to->is_raising)
		return;
	if (!to || pages == 0) {
		log_warning("pool %s: no page is free to be split", pool->name);
		give_up(pool);
		nr->changed(nr->user);
		return;
	}
	start(nr, pool, to, pages);
}
