/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * news.h - the last things that happened, numbered without a gap, for whoever follows them.
 *
 * One ring a process, as the log is: nobody waits for anybody, and who reads too slowly misses some and can
 * tell how many. Lines of the log are events, too. Only hpzd keeps any; a worker does not. Any thread may
 * add.
 */
#ifndef HPZ_NEWS_H
#define HPZ_NEWS_H

#include "hpz.h"
#include "util.h"

#define NEWS_KEPT  1024
#define NEWS_LABEL 129
#define NEWS_TEXT  257

struct news {
	uint64_t sequence; /* from 1 on */
	uint64_t time_ns;  /* CLOCK_REALTIME */
	uint64_t lease, bytes;
	uint32_t kind;  /* enum hpz_event_kind */
	uint32_t level; /* LOG: as syslog(3) has it */
	uint32_t uid;   /* UINT32_MAX: of nobody in particular */
	int32_t pid;    /* 0: none */
	char label[NEWS_LABEL], text[NEWS_TEXT];
};

/* From now on events are kept. `added` (may be NULL) is called by the thread that called this, after each of
 * its own. */
void news_start(void (*added)(void *user), void *user);
void news_stop(void);

/* Sequence and time are set here. */
void news_add(const struct news *event);
/* A line of the log: `level` as syslog(3). */
void news_add_line(uint32_t level, const char *text);
/* Of a lease; the log says it in its own words, which are no event then. */
void news_hush(bool is_hushed);

/* The number of the last one; 0: none yet. */
uint64_t news_get_last(void);
/* The first one behind `since` that is still kept. false: there is none. */
bool news_get_next(uint64_t since, struct news *ret_event);

#endif
