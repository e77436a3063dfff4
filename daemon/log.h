/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * log.h - lines on stderr for people and the journal of systemd.
 * When stderr is the journal ($JOURNAL_STREAM names it) or after log_set_prefix(true) each line begins with a
 * <N> priority; else with "hpzd: ". One line is one write; control characters become '?', so that a label or
 * a path cannot fake a line. Never blocks longer than a write to stderr, keeps no memory and errno. A worker
 * says so in its lines.
 */
#ifndef HPZ_LOG_H
#define HPZ_LOG_H

#include "util.h"

enum log_level { LOG_LEVEL_ERROR = 3, LOG_LEVEL_WARNING = 4, LOG_LEVEL_INFO = 6, LOG_LEVEL_DEBUG = 7 };

/* Until then: "hpzd", LOG_LEVEL_INFO, no priorities. Borrows `program` for ever. */
void log_init(const char *program);
void log_set_level(enum log_level level);
void log_set_prefix(bool is_on);
/* "error", "warning", "info", "debug": 0 or -EINVAL. */
int log_find_level(const char *name, enum log_level *ret_level);
void log_write(enum log_level level, const char *format, ...) PRINTF(2, 3);

#define log_error(...)   log_write(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warning(...) log_write(LOG_LEVEL_WARNING, __VA_ARGS__)
#define log_info(...)    log_write(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...)   log_write(LOG_LEVEL_DEBUG, __VA_ARGS__)

#endif
