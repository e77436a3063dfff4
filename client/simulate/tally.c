/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* tally.c - what became of the starts of a trace, counted. Pure. */
#include "tally.h"

#include "util.h"

static size_t get_bucket(uint64_t ns)
{
	if (ns < TALLY_STEPS)
		return (size_t)ns;
	unsigned shift = 63u - (unsigned)__builtin_clzll(ns) - 4;
	return (size_t)(shift + 1) * TALLY_STEPS + (size_t)((ns >> shift) - TALLY_STEPS);
}

/* The longest that falls into it. */
static uint64_t get_limit(size_t bucket)
{
	if (bucket < TALLY_STEPS)
		return bucket;
	unsigned shift = (unsigned)(bucket / TALLY_STEPS) - 1;
	return ((bucket % TALLY_STEPS + TALLY_STEPS + 1) << shift) - 1;
}

void tally_add_wait(struct tally_waits *waits, uint64_t ns)
{
	waits->count++;
	waits->sum_s += (double)ns / (double)NS_PER_S;
	waits->most_ns = MAX(waits->most_ns, ns);
	waits->buckets[get_bucket(ns)]++;
}

uint64_t tally_get_percentile(const struct tally_waits *waits, double percent)
{
	double rank = (double)waits->count * percent / 100;
	uint64_t seen = 0;

	for (size_t i = 0; i < TALLY_BUCKETS; i++) {
		seen += waits->buckets[i];
		if (seen > 0 && (double)seen >= rank)
			return MIN(get_limit(i), waits->most_ns);
	}
	return waits->most_ns;
}

static bool is_served(enum tally_outcome outcome)
{
	return outcome != TALLY_REFUSED && outcome != TALLY_IMPOSSIBLE;
}

void tally_add(struct tally *tally, const struct tally_start *start)
{
	bool by_kernel = start->kernel_ns != UINT64_MAX;

	tally->starts++;
	tally->counts[start->outcome]++;
	if (by_kernel)
		tally_add_wait(&tally->kernel, start->kernel_ns);
	else
		tally->kernel_refused++;
	if (!is_served(start->outcome)) {
		tally->lost += by_kernel;
		return;
	}
	tally->slower += by_kernel && start->wait_ns > start->kernel_ns;
	tally->asked_bytes += start->bytes;
	tally->zeroed_bytes += start->zeroed_bytes;
	tally_add_wait(&tally->all, start->wait_ns);
	if (start->outcome == TALLY_EXTENDED)
		tally_add_wait(&tally->extended, start->wait_ns);
	if (start->outcome == TALLY_WAITED)
		tally_add_wait(&tally->waited, start->wait_ns);
}

uint64_t tally_get_clean(const struct tally *tally)
{
	return tally->counts[TALLY_EXACT] + tally->counts[TALLY_TRIMMED] + tally->counts[TALLY_SEVERAL];
}

int tally_compare(const struct tally *a, const struct tally *b)
{
	uint64_t refused_a = a->counts[TALLY_REFUSED], refused_b = b->counts[TALLY_REFUSED];

	if (refused_a != refused_b)
		return refused_a < refused_b ? -1 : 1;
	if (a->all.sum_s < b->all.sum_s)
		return -1;
	return a->all.sum_s > b->all.sum_s;
}
