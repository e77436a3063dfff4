/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* top_feed.c - what hpzd has, looked at again and again by a thread of its own. */
#include "top_feed.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>

#include "clearing.h"
#include "leases.h"

/* ---- one look ---- */

static void top_feed_cleanup_status(struct hpz_status **status)
{
	hpz_status_free(*status);
}
#define _cleanup_status_ __attribute__((cleanup(top_feed_cleanup_status)))

static void top_feed_cleanup_clearing(struct hpz_clearing **clearing)
{
	hpz_clearing_free(*clearing);
}
#define _cleanup_clearing_ __attribute__((cleanup(top_feed_cleanup_clearing)))

static void top_feed_fill_daemon(struct top_view *view, const struct hpz_daemon_status *daemon)
{
	top_set_text(view->version, sizeof(view->version), daemon->version);
	top_set_text(view->proof, sizeof(view->proof), daemon->proof);
	top_set_text(view->method, sizeof(view->method), daemon->method);
	top_set_text(view->message, sizeof(view->message), daemon->message);
	view->uptime_ms = daemon->uptime_ms;
	view->granted = daemon->leases_granted;
	view->connections = daemon->connection_count;
	view->workers = daemon->worker_count;
	view->cleared = daemon->bytes_cleared;
	view->filled = daemon->bytes_filled;
}

static void top_feed_fill_pool(struct top_pool *pool, const struct hpz_pool_status *from)
{
	top_set_text(pool->name, sizeof(pool->name), from->name);
	top_set_text(pool->message, sizeof(pool->message), from->message);
	pool->node = from->node;
	pool->waiting = from->waiting;
	pool->page_size = from->page_size;
	pool->target = from->target * from->page_size;
	pool->clean = from->clean * from->page_size;
	pool->leased = (from->leased - MIN(from->returning, from->leased)) * from->page_size;
	pool->dirty = (from->dirty + from->returning) * from->page_size;
	pool->filling = from->filling * from->page_size;
	pool->lost = (from->orphan_pages + from->retired_pages) * from->page_size;
}

static void top_feed_fill_lease(struct top_lease *lease, const struct hpz_lease_info *from)
{
	lease->id = from->id;
	lease->size = from->size;
	lease->age_ms = from->age_ms;
	lease->pid = from->pid;
	lease->state = leases_get_state(from->state);
	top_set_text(lease->label, sizeof(lease->label), from->label);
	top_set_text(lease->comm, sizeof(lease->comm), from->comm);
}

static void top_feed_fill_clearing(struct top_view *view, const struct hpz_clearing *clearing)
{
	struct hpz_clearing_info info = {.struct_size = sizeof(info)};

	if (!clearing) /* an older hpzd */
		return;
	hpz_clearing_get_info(clearing, &info);
	view->workers = 0;
	for (uint32_t i = 0; i < info.node_count; i++) {
		struct hpz_clearing_node node = {.struct_size = sizeof(node)};
		hpz_clearing_get_node(clearing, i, &node);
		view->workers += node.worker_count;
		view->busy += node.idle + node.refill + node.urgent;
		if (node.holds)
			top_set_text(view->hold, sizeof(view->hold), clearing_get_hold(node.holds));
	}
}

static int top_feed_fill(struct top_view *view, const struct hpz_status *status,
	const struct hpz_lease_list *list, const struct hpz_clearing *clearing)
{
	struct hpz_daemon_status daemon = {.struct_size = sizeof(daemon)};

	hpz_status_get_daemon(status, &daemon);
	top_feed_fill_daemon(view, &daemon);
	top_feed_fill_clearing(view, clearing);
	view->pools = calloc(daemon.pool_count + 1, sizeof(*view->pools));
	view->leases = calloc(hpz_list_get_count(list) + 1, sizeof(*view->leases));
	if (!view->pools || !view->leases)
		return HPZ_ERR_SYSTEM;
	for (uint32_t i = 0; i < daemon.pool_count; i++) {
		struct hpz_pool_status pool = {.struct_size = sizeof(pool)};
		if (hpz_status_get_pool(status, i, &pool) == HPZ_OK)
			top_feed_fill_pool(&view->pools[view->pool_count++], &pool);
	}
	for (size_t i = 0; i < hpz_list_get_count(list); i++) {
		struct hpz_lease_info info = {.struct_size = sizeof(info)};
		if (hpz_list_get_lease(list, i, &info) == HPZ_OK)
			top_feed_fill_lease(&view->leases[view->lease_count++], &info);
	}
	top_sort_leases(view);
	return HPZ_OK;
}

int top_feed_look(struct hpz *hpz, struct top_view **ret_view)
{
	_cleanup_status_ struct hpz_status *status = NULL;
	_cleanup_list_ struct hpz_lease_list *list = NULL;
	_cleanup_clearing_ struct hpz_clearing *clearing = NULL;

	int error = hpz_get_status(hpz, &status);
	if (!error)
		error = hpz_list(hpz, &list);
	if (!error)
		error = hpz_get_clearing(hpz, &clearing);
	if (error && error != HPZ_ERR_UNSUPPORTED)
		return error;
	struct top_view *view = calloc(1, sizeof(*view));
	if (!view)
		return HPZ_ERR_SYSTEM;
	view->seen_ms = clock_get_ns(CLOCK_MONOTONIC) / NS_PER_MS;
	error = top_feed_fill(view, status, list, clearing);
	if (error) {
		top_view_free(view);
		return error;
	}
	*ret_view = view;
	return HPZ_OK;
}

/* ---- the thread ---- */

static struct {
	pthread_mutex_t lock;
	struct hpz *hpz; /* the thread's */
	int64_t delay_ms;
	/* Under the lock. */
	struct top_view *news;
	char error[TOP_MESSAGE];
} top_feed = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* What was done since the last look; an hpzd that was restarted counts from 0. */
static void top_feed_set_rates(struct top_view *view, uint64_t last[3])
{
	uint64_t ms = view->seen_ms - last[0];

	if (last[0] && ms && view->cleared >= last[1] && view->filled >= last[2]) {
		view->has_rates = true;
		view->clear_rate = (uint64_t)((double)(view->cleared - last[1]) * 1000 / (double)ms);
		view->fill_rate = (uint64_t)((double)(view->filled - last[2]) * 1000 / (double)ms);
	}
	last[0] = view->seen_ms;
	last[1] = view->cleared;
	last[2] = view->filled;
}

static void top_feed_put(struct top_view *view, const char *error)
{
	pthread_mutex_lock(&top_feed.lock);
	if (view) {
		top_view_free(top_feed.news);
		top_feed.news = view;
	}
	top_set_text(top_feed.error, sizeof(top_feed.error), error);
	pthread_mutex_unlock(&top_feed.lock);
}

static void *top_feed_run(void *unused)
{
	const struct timespec pause = {.tv_sec = top_feed.delay_ms / 1000,
		.tv_nsec = (long)(top_feed.delay_ms % 1000 * (int64_t)NS_PER_MS)};
	uint64_t last[3] = {0};

	while (1) {
		struct top_view *view = NULL;
		int error = top_feed_look(top_feed.hpz, &view);
		if (!error)
			top_feed_set_rates(view, last);
		top_feed_put(view, error ? hpz_strerror(error) : "");
		if (error)
			hpz_reconnect(top_feed.hpz);
		nanosleep(&pause, NULL);
	}
	return NULL;
}

int top_feed_start(struct hpz *hpz, int64_t delay_ms)
{
	sigset_t all, before;
	pthread_t thread;

	top_feed.hpz = hpz;
	top_feed.delay_ms = delay_ms;
	/* Signals are for whoever shows it. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	int r = -pthread_create(&thread, NULL, top_feed_run, NULL);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (r == 0)
		pthread_detach(thread);
	return r;
}

struct top_view *top_feed_take(void)
{
	pthread_mutex_lock(&top_feed.lock);
	struct top_view *news = top_feed.news;
	top_feed.news = NULL;
	pthread_mutex_unlock(&top_feed.lock);
	return news;
}

void top_feed_get_error(char ret_error[TOP_MESSAGE])
{
	pthread_mutex_lock(&top_feed.lock);
	memcpy(ret_error, top_feed.error, TOP_MESSAGE);
	pthread_mutex_unlock(&top_feed.lock);
}
