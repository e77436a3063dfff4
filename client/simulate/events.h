/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* events.h - what is to happen, earliest first; of the same time, what was asked for first. */
#ifndef HPZ_SIMULATE_EVENTS_H
#define HPZ_SIMULATE_EVENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct event {
	uint64_t time_ns;
	uint64_t number; /* in the order they were asked for */
	void *what;
	int kind; /* the caller's */
};

/* Zero is empty. */
struct events {
	struct event *heap; /* a binary heap */
	size_t count, capacity;
	uint64_t next_number;
};

void events_deinit(struct events *events);
/* 0 or -ENOMEM. */
int events_add(struct events *events, uint64_t time_ns, int kind, void *what);
/* Takes the earliest one, if it is not later than `until_ns`. */
bool events_take(struct events *events, uint64_t until_ns, struct event *ret_event);

#endif
