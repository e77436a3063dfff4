/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* notify.h - what systemd wants to know, over sd-daemon. Every call does nothing where no systemd asked. */
#ifndef HPZ_NOTIFY_H
#define HPZ_NOTIFY_H

#include "util.h"

void notify_ready(void);
void notify_reloading(void);
void notify_stopping(void);
/* One line for people; sent only when it differs from the last. */
void notify_status(const char *text);
/* Interval at which notify_watchdog() is to be called, ms; 0: not at all. */
uint64_t notify_get_watchdog_ms(void);
void notify_watchdog(void);
/* The listening SEQPACKET socket systemd passed; -1: none; -EINVAL: it passed something else. */
int notify_take_socket(void);

#endif
