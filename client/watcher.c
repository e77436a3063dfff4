/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * watcher.c - the service: follows libvirt's events and has leases compared with domains when it matters.
 *
 * A look is due when a connection to libvirt begins (what happened before it is not known), a grace time
 * after a domain has ended (its hook has had its time by then), and again a grace time later while a lease is
 * without its domain. One look runs at a time, in a thread of libuv's pool, so the loop answers systemd
 * whatever libvirtd and hpzd do; until it is over it alone touches `look` and `suspects`. What the last one
 * saw is in `seen`.
 */
#include "watcher.h"

#include <inttypes.h>
#include <signal.h>
#include <systemd/sd-daemon.h>

#include "look.h"
#include "virt.h"
#include "virt_loop.h"

#define WATCHER_RETRY_MAX_MS 60000u

struct watcher {
	const struct watcher_options *options;
	uv_loop_t loop;
	struct virt virt;
	struct suspects suspects;
	struct look look;
	struct look_report seen;
	uv_work_t work;
	uv_timer_t timer; /* until the next look */
	uv_timer_t watchdog;
	uv_signal_t signals[3];
	uint64_t retry_ms;
	bool is_looking;
	bool is_due; /* once more, behind the one that runs */
	bool is_stopping;
	bool has_failed; /* said already */
};

static void watcher_on_timer(uv_timer_t *timer);

/* ---- looks ---- */

/* No later than in so long. */
static void watcher_schedule(struct watcher *watcher, uint64_t delay_ms)
{
	bool is_sooner = uv_is_active((uv_handle_t *)&watcher->timer) &&
			 uv_timer_get_due_in(&watcher->timer) <= delay_ms;

	if (!is_sooner && !watcher->is_stopping)
		uv_timer_start(&watcher->timer, watcher_on_timer, delay_ms, 0);
}

static void watcher_tell_status(const struct watcher *watcher)
{
	const struct look_report *seen = &watcher->seen;

	if (!watcher->virt.connection)
		sd_notifyf(0, "STATUS=Waiting for libvirt at %s", watcher->options->uri);
	else if (seen->outcome != LOOK_DONE)
		sd_notifyf(0, "STATUS=Waiting for %s: %s", look_get_missing(seen->outcome), seen->text);
	else
		sd_notifyf(
			0, "STATUS=%u leases of domains, %u without a domain", seen->leases, seen->watched);
}

static void watcher_work(uv_work_t *work)
{
	struct watcher *watcher = CONTAINER_OF(work, struct watcher, work);

	look_run(&watcher->look);
	virConnectClose(watcher->look.connection);
}

/* Said when it begins and when it is over, not each time. */
static void watcher_judge_failure(struct watcher *watcher)
{
	const struct look_report *seen = &watcher->seen;
	bool has_failed = seen->outcome != LOOK_DONE;

	if (has_failed && !watcher->has_failed)
		look_say(LOOK_WARNING, "cannot compare leases with domains: %s: %s; tries again",
			look_get_missing(seen->outcome), seen->text);
	if (!has_failed && watcher->has_failed)
		look_say(LOOK_INFO, "compares leases with domains again");
	watcher->has_failed = has_failed;
	if (has_failed) {
		watcher_schedule(watcher, watcher->retry_ms);
		watcher->retry_ms = MIN(watcher->retry_ms * 2, WATCHER_RETRY_MAX_MS);
	} else {
		watcher->retry_ms = MIN(watcher->options->grace_ms, WATCHER_RETRY_MAX_MS);
	}
}

static void watcher_on_looked(uv_work_t *work, int status)
{
	struct watcher *watcher = CONTAINER_OF(work, struct watcher, work);

	watcher->is_looking = false;
	if (watcher->is_stopping)
		return;
	watcher->seen = watcher->look.report;
	watcher_judge_failure(watcher);
	if (watcher->seen.outcome == LOOK_DONE && watcher->seen.watched)
		watcher_schedule(watcher, watcher->options->grace_ms);
	if (watcher->is_due)
		watcher_schedule(watcher, watcher->options->grace_ms);
	watcher->is_due = false;
	watcher_tell_status(watcher);
}

static void watcher_on_timer(uv_timer_t *timer)
{
	struct watcher *watcher = CONTAINER_OF(timer, struct watcher, timer);

	watcher->is_due = watcher->is_looking;
	if (watcher->is_looking)
		return;
	/* Without libvirt there is nothing to compare with; a new connection begins with a look. */
	watcher->look.connection = virt_dup_connection(&watcher->virt);
	if (!watcher->look.connection)
		return;
	watcher->is_looking =
		uv_queue_work(&watcher->loop, &watcher->work, watcher_work, watcher_on_looked) == 0;
	if (!watcher->is_looking) {
		virConnectClose(watcher->look.connection);
		watcher_schedule(watcher, watcher->options->grace_ms);
	}
}

/* ---- libvirt ---- */

static void watcher_on_connected(void *user)
{
	struct watcher *watcher = user;

	look_say(LOOK_INFO, "connected to libvirt at %s", watcher->options->uri);
	watcher->seen.outcome = LOOK_DONE;
	watcher_schedule(watcher, 0);
	watcher_tell_status(watcher);
}

static void watcher_on_lost(const char *why, void *user)
{
	struct watcher *watcher = user;

	look_say(LOOK_WARNING, "no connection to libvirt at %s: %s; tries again", watcher->options->uri, why);
	watcher_tell_status(watcher);
}

static void watcher_on_ended(void *user)
{
	struct watcher *watcher = user;

	watcher_schedule(watcher, watcher->options->grace_ms);
}

/* ---- life ---- */

static void watcher_on_watchdog(uv_timer_t *timer)
{
	sd_notify(0, "WATCHDOG=1");
}

static void watcher_on_signal(uv_signal_t *handle, int number)
{
	struct watcher *watcher = handle->data;

	if (number == SIGHUP) {
		watcher_schedule(watcher, 0);
		return;
	}
	sd_notify(0, "STOPPING=1");
	watcher->is_stopping = true;
	uv_stop(&watcher->loop);
}

static int watcher_start_watchdog(struct watcher *watcher)
{
	uint64_t usec = 0;

	if (sd_watchdog_enabled(0, &usec) <= 0)
		return 0;
	uint64_t interval_ms = MAX(usec / 2000, 1);
	return uv_timer_start(&watcher->watchdog, watcher_on_watchdog, interval_ms, interval_ms);
}

static int watcher_start_signals(struct watcher *watcher)
{
	static const int numbers[ARRAY_SIZE(watcher->signals)] = {SIGTERM, SIGINT, SIGHUP};
	int r = 0;

	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(numbers); i++) {
		watcher->signals[i].data = watcher;
		r = uv_signal_init(&watcher->loop, &watcher->signals[i]);
		if (r == 0)
			r = uv_signal_start(&watcher->signals[i], watcher_on_signal, numbers[i]);
	}
	return r;
}

static int watcher_start(struct watcher *watcher)
{
	const struct virt_handlers handlers = {
		watcher_on_connected, watcher_on_lost, watcher_on_ended, watcher};

	int r = uv_loop_init(&watcher->loop);
	if (r == 0)
		r = virt_loop_init(&watcher->loop);
	if (r == 0)
		r = uv_timer_init(&watcher->loop, &watcher->timer);
	if (r == 0)
		r = uv_timer_init(&watcher->loop, &watcher->watchdog);
	if (r == 0)
		r = watcher_start_watchdog(watcher);
	if (r == 0)
		r = watcher_start_signals(watcher);
	if (r == 0)
		r = virt_open(&watcher->virt, &watcher->loop, watcher->options->uri, &handlers);
	return r;
}

int watcher_run(const struct watcher_options *options)
{
	struct watcher watcher = {.options = options,
		.retry_ms = MIN(options->grace_ms, WATCHER_RETRY_MAX_MS),
		.suspects = {.grace_ns = options->grace_ms * NS_PER_MS},
		.look = {.socket_path = options->socket_path, .suspects = &watcher.suspects}};

	virt_silence();
	int r = watcher_start(&watcher);
	if (r < 0) {
		look_say(LOOK_ERROR, "cannot start: %s", uv_strerror(r));
		return 1;
	}
	sd_notify(0, "READY=1");
	uv_run(&watcher.loop, UV_RUN_DEFAULT);
	/* A thread may stand in a call that libvirtd does not answer: nothing of ours waits for it. */
	fflush(NULL);
	_exit(0);
}
