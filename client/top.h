/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* top.h - the page that `hpzctl top` shows, of what was seen at one moment. Pure; all of it is plain ASCII.
 */
#ifndef HPZ_TOP_H
#define HPZ_TOP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "util.h"

#define TOP_NAME    64
#define TOP_MESSAGE 256

struct top_pool {
	char name[TOP_NAME], message[TOP_MESSAGE];
	int32_t node;
	uint32_t waiting;
	/* bytes */
	uint64_t page_size, target;
	uint64_t clean, leased, dirty,
		filling; /* `dirty`: also what is returning, which `leased` is without */
	uint64_t lost;   /* orphans and retired pages */
};

struct top_lease {
	uint64_t id, size, age_ms;
	int32_t pid; /* 0: none */
	const char *state;
	char label[TOP_NAME], comm[TOP_NAME];
};

/* What was seen; the lists are its own. */
struct top_view {
	char error[TOP_MESSAGE]; /* why there is nothing newer; "": it is new */
	char version[TOP_NAME], proof[TOP_NAME], method[TOP_NAME], message[TOP_MESSAGE];
	uint64_t uptime_ms, seen_ms; /* the second by CLOCK_MONOTONIC */
	uint64_t granted, connections;
	uint64_t cleared, filled; /* bytes since hpzd's start */
	/* Of the time since the last look, bytes a second. */
	bool has_rates;
	uint64_t clear_rate, fill_rate;
	uint32_t workers, busy;
	char hold[TOP_NAME]; /* why workers stand still; "": they do not */
	struct top_pool *pools;
	struct top_lease *leases; /* the largest first */
	size_t pool_count, lease_count;
};

void top_view_free(struct top_view *view);
/* Takes text whoever wrote it: what is not printable ASCII becomes '?', what is too long ends in '~'. */
void top_set_text(char *to, size_t size, const char *text);
void top_sort_leases(struct top_view *view);

/* Lines of the same width, each ended by NUL and padded with blanks. */
struct top_page {
	unsigned columns, rows;
	unsigned used; /* lines with something in them */
	char *text;
};

/* Enough for all there is to say. */
unsigned top_count_rows(const struct top_view *view);
/* 0 or -ENOMEM. `now_ms` by CLOCK_MONOTONIC; `first` is the first lease to be shown. */
int top_page_draw(struct top_page *ret_page, const struct top_view *view, unsigned columns, unsigned rows,
	size_t first, uint64_t now_ms);
const char *top_page_get_line(const struct top_page *page, unsigned row);
void top_page_free(struct top_page *page);

#endif
