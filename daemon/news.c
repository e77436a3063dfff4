/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* news.c - the last things that happened: a ring under a lock that is held for a copy. */
#include <pthread.h>

#include "news.h"

static struct {
	pthread_mutex_t lock;
	bool is_kept; /* read without the lock */
	pthread_t thread;
	void (*added)(void *user);
	void *user;
	uint64_t last;
	struct news ring[NEWS_KEPT];
} news = {.lock = PTHREAD_MUTEX_INITIALIZER};

static __thread bool is_hushed_here;

static bool is_kept(void)
{
	return __atomic_load_n(&news.is_kept, __ATOMIC_RELAXED);
}

void news_start(void (*added)(void *user), void *user)
{
	pthread_mutex_lock(&news.lock);
	__atomic_store_n(&news.is_kept, true, __ATOMIC_RELAXED);
	news.thread = pthread_self();
	news.added = added;
	news.user = user;
	pthread_mutex_unlock(&news.lock);
}

void news_stop(void)
{
	pthread_mutex_lock(&news.lock);
	__atomic_store_n(&news.is_kept, false, __ATOMIC_RELAXED);
	news.added = NULL;
	news.last = 0;
	pthread_mutex_unlock(&news.lock);
}

void news_add(const struct news *event)
{
	if (!is_kept())
		return;
	pthread_mutex_lock(&news.lock);
	struct news *place = &news.ring[news.last % NEWS_KEPT];
	*place = *event;
	place->sequence = ++news.last;
	place->time_ns = clock_get_ns(CLOCK_REALTIME);
	void (*added)(void *user) = pthread_equal(news.thread, pthread_self()) ? news.added : NULL;
	void *user = news.user;
	pthread_mutex_unlock(&news.lock);
	if (added)
		added(user);
}

void news_add_line(uint32_t level, const char *text)
{
	struct news event = {.kind = HPZ_EVENT_LOG, .level = level, .uid = UINT32_MAX};
	if (is_hushed_here || !is_kept())
		return;
	snprintf(event.text, sizeof event.text, "%.*s", NEWS_TEXT - 1, text);
	news_add(&event);
}

void news_hush(bool is_hushed)
{
	is_hushed_here = is_hushed;
}

uint64_t news_get_last(void)
{
	pthread_mutex_lock(&news.lock);
	uint64_t last = news.last;
	pthread_mutex_unlock(&news.lock);
	return last;
}

bool news_get_next(uint64_t since, struct news *ret_event)
{
	pthread_mutex_lock(&news.lock);
	bool is_there = since < news.last;
	if (is_there) {
		uint64_t oldest = news.last > NEWS_KEPT ? news.last - NEWS_KEPT : 0;
		*ret_event = news.ring[MAX(since, oldest) % NEWS_KEPT];
	}
	pthread_mutex_unlock(&news.lock);
	return is_there;
}
