/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* suspects.c - which leases have lost their domain. */
#include "suspects.h"

#include <ctype.h>

static bool suspects_is_uuid(const char *text)
{
	for (int i = 0; i < SUSPECTS_UUID - 1; i++) {
		bool is_dash = i == 8 || i == 13 || i == 18 || i == 23;
		if (is_dash ? text[i] != '-' : !isxdigit((unsigned char)text[i]))
			return false;
	}
	return true;
}

bool suspects_get_uuid(const char *key, char ret_uuid[SUSPECTS_UUID])
{
	const char *uuid = key + sizeof(SUSPECTS_KEY) - 1;

	/* It ends at the first character that is none of a uuid's, its NUL included. */
	if (strncmp(key, SUSPECTS_KEY, sizeof(SUSPECTS_KEY) - 1) != 0 || !suspects_is_uuid(uuid) ||
		(uuid[SUSPECTS_UUID - 1] && uuid[SUSPECTS_UUID - 1] != ':'))
		return false;
	for (int i = 0; i < SUSPECTS_UUID - 1; i++)
		ret_uuid[i] = (char)tolower((unsigned char)uuid[i]);
	ret_uuid[SUSPECTS_UUID - 1] = '\0';
	return true;
}

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
