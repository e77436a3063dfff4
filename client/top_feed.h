/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * top_feed.h - what hpzd has, looked at again and again by a thread of its own: whoever shows it stays awake
 * while hpzd does not answer.
 */
#ifndef HPZ_TOP_FEED_H
#define HPZ_TOP_FEED_H

#include "hpz.h"
#include "top.h"

/* Looks once. The caller owns *ret_view: top_view_free(). HPZ_OK or the library's error. */
int top_feed_look(struct hpz *hpz, struct top_view **ret_view);

/* Takes `hpz` for good, and looks each `delay_ms` until the process ends. 0 or negative errno. */
int top_feed_start(struct hpz *hpz, int64_t delay_ms);

/* What was seen last, if that is news; NULL: nothing new. The caller owns it. */
struct top_view *top_feed_take(void);

/* Why nothing is seen now; "": something is. */
void top_feed_get_error(char ret_error[TOP_MESSAGE]);

#endif
