/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * demand.h - which sizes are asked for, and the stock that would serve them.
 * Pure: events with their time in, a stock with its reasons out. No clock, no system call, no memory of its
 * own.
 *
 * For every size it remembers how often it was asked for and how many of it were out at once. Both fade: what
 * is not asked for again counts half after a half-life. A size that was asked for at least twice lately, or
 * of which many are out, gets as many segments as were out at once, and some to spare. Together they take at
 * most a share of the pages; where that is not enough, the size that is asked for most often gets the next
 * segment, as seats are shared out among parties (D'Hondt). A segment that is proposed already is given up
 * only for one that is wanted half as often again: a stock that followed every request would be rebuilt all
 * day. What is left is divided as for a pool of which nothing is known: one large segment, 64 MiB pieces,
 * single pages.
 */
#ifndef HPZ_DEMAND_H
#define HPZ_DEMAND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DEMAND_SIZES_MAX 64 /* remembered; a new one takes the place of the one that is asked for least */
#define DEMAND_FIXED_MAX 32
#define DEMAND_STOCK_MAX (DEMAND_SIZES_MAX + DEMAND_FIXED_MAX + 3)

#define DEMAND_ONE 65536 /* one request, one lease: what fades is counted in parts of it */

/* How a request was served. */
enum demand_served {
	DEMAND_EXACT,   /* at once, a clean segment of its size */
	DEMAND_LARGER,  /* at once, a part of a larger one */
	DEMAND_ZEROED,  /* some of it had to be zeroed first */
	DEMAND_WAITED,  /* it had to wait for memory */
	DEMAND_REFUSED, /* not at all */
	DEMAND_SERVED_COUNT,
};

/* Why no more segments of a size are proposed. */
enum demand_reason {
	DEMAND_ENOUGH,    /* as many as were out at once, and some to spare */
	DEMAND_RARE,      /* it is asked for too seldom */
	DEMAND_CROWDED,   /* others that are asked for more often need the pages */
	DEMAND_TOO_LARGE, /* a single one is more than the share */
};

struct demand_class {
	uint64_t segment_pages;
	uint64_t count;
};

struct demand_rules {
	uint64_t half_life_ns;  /* not 0 */
	uint64_t pages;         /* of the whole stock */
	uint64_t piece_pages;   /* of the pieces of what is not learned: 64 MiB */
	unsigned share_percent; /* of what the fixed ones leave: the most that follows demand */
	struct demand_class
		fixed[DEMAND_FIXED_MAX]; /* always kept, each size once; no more than `pages` together */
	size_t fixed_count;
};

struct demand_size {
	uint64_t pages;
	uint64_t out;  /* leases of it now */
	uint64_t peak; /* most wanted at once lately, those that could not be served too */
	uint64_t served[DEMAND_SERVED_COUNT]; /* requests lately, by how they were served */
	bool is_known;                        /* asked for often enough to count */
	bool is_unsaved;   /* asked for, or more out than ever: whoever writes it down clears this */
	bool was_refused;  /* lately: who asks again and again is counted once */
	uint64_t wanted;   /* segments, those that are lent included: were there pages enough */
	uint64_t proposed; /* of these, there is a place for; what is fixed not included */
	enum demand_reason reason;
};

struct demand {
	struct demand_rules rules;
	uint64_t faded_ns; /* up to when everything has faded */
	uint64_t steps;    /* in which it did */
	struct demand_size sizes[DEMAND_SIZES_MAX];
	size_t size_count;
	uint64_t large_pages; /* of the large segment in what is not learned; 0: none */
	bool is_stale;        /* other rules, or restored: the next proposal is another stock in any case */
};

void demand_init(struct demand *demand, const struct demand_rules *rules, uint64_t now_ns);
/* From the next demand_plan() on; what was learned stays. */
void demand_set_rules(struct demand *demand, const struct demand_rules *rules);

/* Somebody asked for `pages` (not 0) and this came of it. */
void demand_ask(struct demand *demand, uint64_t now_ns, uint64_t pages, enum demand_served how);
/* A lease of that size is out, or is not any more. */
void demand_take(struct demand *demand, uint64_t now_ns, uint64_t pages);
void demand_give(struct demand *demand, uint64_t now_ns, uint64_t pages);

/*
 * Lets everything fade up to now and proposes anew. Whether the stock is another one than after the call
 * before. A time before the last one changes nothing.
 */
bool demand_plan(struct demand *demand, uint64_t now_ns);

/* The whole stock as proposed by the last demand_plan(): what is fixed, learned and left, largest first, each
 * size once. Together exactly rules.pages, as far as single pages go. */
size_t demand_get_stock(const struct demand *demand, struct demand_class ret_classes[DEMAND_STOCK_MAX]);

struct demand_totals {
	uint64_t fixed_pages, learned_pages;
	uint64_t most_pages;  /* that may be learned */
	uint64_t large_pages; /* of the large segment in what is left; 0: none */
};
void demand_get_totals(const struct demand *demand, struct demand_totals *ret_totals);
/* Segments of that length that are kept anyhow. */
uint64_t demand_get_fixed(const struct demand *demand, uint64_t pages);

/* Requests for it lately, however they were served. */
uint64_t demand_get_asked(const struct demand_size *size);

/*
 * What an earlier run remembered: put in as it was at `then_ns`. It fades up to now, takes the place of what
 * is known of that size, and has none out. A size that has faded away altogether is forgotten.
 */
void demand_restore(struct demand *demand, uint64_t now_ns, uint64_t then_ns, const struct demand_size *size);

#endif
