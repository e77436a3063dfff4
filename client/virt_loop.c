/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * virt_loop.c - libvirt's event loop, on libuv.
 *
 * Blocking calls of libvirt run in threads of libuv's pool, and they add, change and remove handles from
 * there, which libuv does not allow. So every change is noted under a lock and carried out in the loop's
 * thread: at once if we are in it, else by way of an uv_async_t. An entry goes when libuv has closed its
 * handle: only then may libvirt's data be freed.
 */
#include "virt_loop.h"

#include <libvirt/libvirt.h>

#include "util.h"

struct virt_entry {
	struct list link;
	int id;
	int fd;     /* -1: a timer */
	int events; /* VIR_EVENT_HANDLE_* */
	int timeout_ms;
	bool is_new, is_changed, is_removed, is_closing;
	virEventHandleCallback handle_call;
	virEventTimeoutCallback timer_call;
	void *opaque;
	virFreeCallback free_opaque;
	union {
		uv_handle_t any;
		uv_poll_t poll;
		uv_timer_t timer;
	} uv;
};

static struct {
	uv_loop_t *loop;
	uv_thread_t thread;
	uv_async_t async;
	uv_mutex_t lock; /* entries, and of each what stands before its callbacks */
	struct list entries;
	int next_id;
} virt_loop;

/* ---- in the loop's thread ---- */

static int virt_loop_to_uv(int events)
{
	return (events & VIR_EVENT_HANDLE_READABLE ? UV_READABLE : 0) |
	       (events & VIR_EVENT_HANDLE_WRITABLE ? UV_WRITABLE : 0) |
	       (events & VIR_EVENT_HANDLE_HANGUP ? UV_DISCONNECT : 0);
}

static int virt_loop_from_uv(int status, int events)
{
	if (status < 0)
		return VIR_EVENT_HANDLE_ERROR;
	return (events & UV_READABLE ? VIR_EVENT_HANDLE_READABLE : 0) |
	       (events & UV_WRITABLE ? VIR_EVENT_HANDLE_WRITABLE : 0) |
	       (events & UV_DISCONNECT ? VIR_EVENT_HANDLE_HANGUP : 0);
}

static bool virt_loop_is_removed(struct virt_entry *entry)
{
	uv_mutex_lock(&virt_loop.lock);
	bool is_removed = entry->is_removed;
	uv_mutex_unlock(&virt_loop.lock);
	return is_removed;
}

static void virt_loop_on_poll(uv_poll_t *poll, int status, int events)
{
	struct virt_entry *entry = poll->data;

	if (!virt_loop_is_removed(entry))
		entry->handle_call(entry->id, entry->fd, virt_loop_from_uv(status, events), entry->opaque);
}

static void virt_loop_on_timer(uv_timer_t *timer)
{
	struct virt_entry *entry = timer->data;

	if (!virt_loop_is_removed(entry))
		entry->timer_call(entry->id, entry->opaque);
}

static void virt_loop_on_closed(uv_handle_t *handle)
{
	struct virt_entry *entry = handle->data;

	if (entry->free_opaque)
		entry->free_opaque(entry->opaque);
	free(entry);
}

static void virt_loop_arm(struct virt_entry *entry)
{
	int events = virt_loop_to_uv(entry->events);

	if (entry->fd < 0 && entry->timeout_ms < 0)
		uv_timer_stop(&entry->uv.timer);
	else if (entry->fd < 0)
		/* One of 0 is due in each turn until libvirt stops it; a repeat of 0 would be once. */
		uv_timer_start(&entry->uv.timer, virt_loop_on_timer, (uint64_t)entry->timeout_ms,
			MAX((uint64_t)entry->timeout_ms, 1));
	else if (events)
		uv_poll_start(&entry->uv.poll, events, virt_loop_on_poll);
	else
		uv_poll_stop(&entry->uv.poll);
}

/* A descriptor that cannot be polled gives no events, as one that nothing happens on. */
static bool virt_loop_start(struct virt_entry *entry)
{
	int r = entry->fd < 0 ? uv_timer_init(virt_loop.loop, &entry->uv.timer)
			      : uv_poll_init(virt_loop.loop, &entry->uv.poll, entry->fd);

	entry->uv.any.data = entry;
	return r == 0;
}

/* What was noted of one entry, with the lock held. True: it is to be closed, which must not be done with it.
 */
static bool virt_loop_apply_one(struct virt_entry *entry)
{
	if (entry->is_closing)
		return false;
	if (entry->is_new && !entry->is_removed) {
		if (!virt_loop_start(entry))
			return false;
		entry->is_new = false;
	}
	if (!entry->is_removed && entry->is_changed)
		virt_loop_arm(entry);
	entry->is_changed = false;
	return entry->is_removed;
}

static void virt_loop_apply(void)
{
	struct list gone = LIST_INIT(gone);

	uv_mutex_lock(&virt_loop.lock);
	LIST_FOR_EACH_SAFE (pos, &virt_loop.entries) {
		struct virt_entry *entry = CONTAINER_OF(pos, struct virt_entry, link);
		if (!virt_loop_apply_one(entry))
			continue;
		entry->is_closing = true;
		list_remove(&entry->link);
		list_append(&gone, &entry->link);
	}
	uv_mutex_unlock(&virt_loop.lock);
	LIST_FOR_EACH_SAFE (pos, &gone) {
		struct virt_entry *entry = CONTAINER_OF(pos, struct virt_entry, link);
		list_remove(&entry->link);
		if (entry->is_new) { /* never begun: nothing to close, and not from within libvirt's call */
			uv_timer_init(virt_loop.loop, &entry->uv.timer);
			entry->uv.any.data = entry;
		}
		uv_close(&entry->uv.any, virt_loop_on_closed);
	}
}

static void virt_loop_on_async(uv_async_t *async)
{
	virt_loop_apply();
}

/* ---- what libvirt calls, in any thread ---- */

static void virt_loop_changed(void)
{
	uv_thread_t self = uv_thread_self();

	if (uv_thread_equal(&self, &virt_loop.thread))
		virt_loop_apply();
	else
		uv_async_send(&virt_loop.async);
}

static int virt_loop_add(const struct virt_entry *draft)
{
	struct virt_entry *entry = malloc(sizeof(*entry));

	if (!entry)
		return -1;
	*entry = *draft;
	entry->is_new = entry->is_changed = true;
	uv_mutex_lock(&virt_loop.lock);
	int id = entry->id = virt_loop.next_id++;
	list_append(&virt_loop.entries, &entry->link);
	uv_mutex_unlock(&virt_loop.lock);
	virt_loop_changed();
	return id;
}

/* With the lock held; NULL: removed already. */
static struct virt_entry *virt_loop_find(int id, bool is_timer)
{
	LIST_FOR_EACH (pos, &virt_loop.entries) {
		struct virt_entry *entry = CONTAINER_OF(pos, struct virt_entry, link);
		if (entry->id == id && (entry->fd < 0) == is_timer && !entry->is_removed)
			return entry;
	}
	return NULL;
}

static void virt_loop_update(int id, bool is_timer, int value)
{
	uv_mutex_lock(&virt_loop.lock);
	struct virt_entry *entry = virt_loop_find(id, is_timer);
	if (entry) {
		*(is_timer ? &entry->timeout_ms : &entry->events) = value;
		entry->is_changed = true;
	}
	uv_mutex_unlock(&virt_loop.lock);
	virt_loop_changed();
}

static int virt_loop_remove(int id, bool is_timer)
{
	uv_mutex_lock(&virt_loop.lock);
	struct virt_entry *entry = virt_loop_find(id, is_timer);
	if (entry)
		entry->is_removed = true;
	uv_mutex_unlock(&virt_loop.lock);
	virt_loop_changed();
	return entry ? 0 : -1;
}

static int virt_loop_add_handle(
	int fd, int events, virEventHandleCallback call, void *opaque, virFreeCallback free_opaque)
{
	const struct virt_entry draft = {.fd = fd,
		.events = events,
		.timeout_ms = -1,
		.handle_call = call,
		.opaque = opaque,
		.free_opaque = free_opaque};

	return fd < 0 ? -1 : virt_loop_add(&draft);
}

static void virt_loop_update_handle(int id, int events)
{
	virt_loop_update(id, false, events);
}

static int virt_loop_remove_handle(int id)
{
	return virt_loop_remove(id, false);
}

static int virt_loop_add_timer(
	int timeout_ms, virEventTimeoutCallback call, void *opaque, virFreeCallback free_opaque)
{
	const struct virt_entry draft = {.fd = -1,
		.timeout_ms = timeout_ms,
		.timer_call = call,
		.opaque = opaque,
		.free_opaque = free_opaque};

	return virt_loop_add(&draft);
}

static void virt_loop_update_timer(int id, int timeout_ms)
{
	virt_loop_update(id, true, timeout_ms);
}

static int virt_loop_remove_timer(int id)
{
	return virt_loop_remove(id, true);
}

/* ---- life ---- */

int virt_loop_init(uv_loop_t *loop)
{
	virt_loop.loop = loop;
	virt_loop.thread = uv_thread_self();
	virt_loop.next_id = 1;
	list_init(&virt_loop.entries);
	int r = uv_mutex_init(&virt_loop.lock);
	if (r == 0)
		r = uv_async_init(loop, &virt_loop.async, virt_loop_on_async);
	if (r < 0)
		return r;
	/* Alone it is no reason to go on. */
	uv_unref((uv_handle_t *)&virt_loop.async);
	virEventRegisterImpl(virt_loop_add_handle, virt_loop_update_handle, virt_loop_remove_handle,
		virt_loop_add_timer, virt_loop_update_timer, virt_loop_remove_timer);
	return 0;
}
