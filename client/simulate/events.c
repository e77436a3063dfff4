/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* events.c - what is to happen, earliest first. */
#include "events.h"

#include "util.h"

void events_deinit(struct events *events)
{
	free(events->heap);
	*events = (struct events){0};
}

static bool is_before(const struct event *a, const struct event *b)
{
	return a->time_ns != b->time_ns ? a->time_ns < b->time_ns : a->number < b->number;
}

int events_add(struct events *events, uint64_t time_ns, int kind, void *what)
{
	const struct event event = {time_ns, events->next_number++, what, kind};

	if (events->count == events->capacity) {
		size_t capacity = events->capacity ? events->capacity * 2 : 256;
		struct event *heap = reallocarray(events->heap, capacity, sizeof *heap);
		if (!heap)
			return -ENOMEM;
		events->heap = heap;
		events->capacity = capacity;
	}
	size_t at = events->count++;
	for (; at > 0 && is_before(&event, &events->heap[(at - 1) / 2]); at = (at - 1) / 2)
		events->heap[at] = events->heap[(at - 1) / 2];
	events->heap[at] = event;
	return 0;
}

bool events_take(struct events *events, uint64_t until_ns, struct event *ret_event)
{
	if (events->count == 0 || events->heap[0].time_ns > until_ns)
		return false;
	*ret_event = events->heap[0];
	/* The last one looks for its place from the root on. */
	const struct event last = events->heap[--events->count];
	size_t at = 0, child;
	while ((child = 2 * at + 1) < events->count) {
		if (child + 1 < events->count && is_before(&events->heap[child + 1], &events->heap[child]))
			child++;
		if (!is_before(&events->heap[child], &last))
			break;
		events->heap[at] = events->heap[child];
		at = child;
	}
	if (events->count > 0)
		events->heap[at] = last;
	return true;
}
