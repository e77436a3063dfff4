/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* profile.c - which sizes a trace asks for. Pure. */
#include "profile.h"

#include "util.h"

/* The nearest larger one, or the largest. */
static size_t find_nearest(const struct profile *profile, uint64_t bytes)
{
	size_t best = 0;

	for (size_t i = 1; i < profile->count; i++) {
		uint64_t size = profile->sizes[i].bytes, found = profile->sizes[best].bytes;
		if (found < bytes ? size > found : size >= bytes && size < found)
			best = i;
	}
	return best;
}

static size_t find(struct profile *profile, uint64_t bytes)
{
	for (size_t i = 0; i < profile->count; i++) {
		if (profile->sizes[i].bytes == bytes)
			return i;
	}
	if (profile->count == PROFILE_SIZES_MAX)
		return find_nearest(profile, bytes);
	profile->sizes[profile->count].bytes = bytes;
	return profile->count++;
}

static double get_s(uint64_t ns)
{
	return (double)ns / (double)NS_PER_S;
}

size_t profile_start(struct profile *profile, uint64_t bytes, uint64_t now_ns)
{
	if (bytes != profile->last_bytes) {
		profile->last = find(profile, bytes);
		profile->last_bytes = bytes;
	}
	struct profile_size *size = &profile->sizes[profile->last];
	size->starts++;
	size->living++;
	size->born_s += get_s(now_ns);
	return profile->last;
}

void profile_end(struct profile *profile, size_t at, uint64_t start_ns, uint64_t end_ns)
{
	struct profile_size *size = &profile->sizes[at];

	size->living--;
	size->born_s -= get_s(start_ns);
	size->lived_s += get_s(end_ns - start_ns);
}

static int compare(const void *a, const void *b)
{
	uint64_t x = ((const struct profile_size *)a)->bytes, y = ((const struct profile_size *)b)->bytes;
	return (x > y) - (x < y);
}

void profile_finish(struct profile *profile, uint64_t first_ns, uint64_t last_ns)
{
	double span_s = get_s(last_ns - first_ns);

	for (size_t i = 0; i < profile->count; i++) {
		struct profile_size *size = &profile->sizes[i];
		double lived_s = size->lived_s + (double)size->living * get_s(last_ns) - size->born_s;
		size->mean = span_s > 0 ? MAX(lived_s, 0) / span_s : (double)size->living;
	}
	qsort(profile->sizes, profile->count, sizeof *profile->sizes, compare);
}
