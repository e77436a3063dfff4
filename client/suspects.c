/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* suspects.c - which leases have lost their domain. */
#include "suspects.h"

void suspects_deinit(struct suspects *suspects)
{
	free(suspects->items);
	*suspects = (struct suspects){0};
}

void suspects_begin(struct suspects *suspects)
{
	for (size_t i = 0; i < suspects->count; i++)
		suspects->items[i].is_seen = false;
}

static struct suspect *suspects_find(struct suspects *suspects, uint64_t lease)
{
	for (size_t i = 0; i < suspects->count; i++) {
		if (suspects->items[i].lease == lease)
			return &suspects->items[i];
	}
	return NULL;
}

/* Without memory for it the lease is not suspected: that comes later. */
static void suspects_add(struct suspects *suspects, uint64_t lease, uint64_t now_ns)
{
	if (suspects->count == suspects->capacity) {
		size_t capacity = suspects->capacity ? suspects->capacity * 2 : 16;
		struct suspect *items = reallocarray(suspects->items, capacity, sizeof(*items));
		if (!items)
			return;
		suspects->items = items;
		suspects->capacity = capacity;
	}
	suspects->items[suspects->count++] = (struct suspect){lease, now_ns, true};
}

enum suspects_verdict suspects_judge(
	struct suspects *suspects, uint64_t lease, uint64_t age_ns, bool is_used, uint64_t now_ns)
{
	struct suspect *known = suspects_find(suspects, lease);

	/* Not seen: it is forgotten at the end. */
	if (is_used)
		return SUSPECTS_KEEP;
	/* A young one's domain may be about to start: that look does not count. */
	if (age_ns < suspects->grace_ns)
		return SUSPECTS_WATCH;
	if (!known) {
		suspects_add(suspects, lease, now_ns);
		return SUSPECTS_WATCH;
	}
	known->is_seen = true;
	return now_ns - known->since_ns >= suspects->grace_ns ? SUSPECTS_RELEASE : SUSPECTS_WATCH;
}

void suspects_end(struct suspects *suspects)
{
	size_t kept = 0;

	for (size_t i = 0; i < suspects->count; i++) {
		if (suspects->items[i].is_seen)
			suspects->items[kept++] = suspects->items[i];
	}
	suspects->count = kept;
}
