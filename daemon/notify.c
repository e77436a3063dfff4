/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* notify.c - what systemd wants to know, over sd-daemon. */
#include <inttypes.h>
#include <sys/socket.h>
#include <systemd/sd-daemon.h>

#include "notify.h"

static char last_status[512];

void notify_ready(void)
{
	sd_notify(0, "READY=1");
}

void notify_reloading(void)
{
	sd_notifyf(0, "RELOADING=1\nMONOTONIC_USEC=%" PRIu64, clock_get_ns(CLOCK_MONOTONIC) / 1000);
}

void notify_stopping(void)
{
	sd_notify(0, "STOPPING=1\nSTATUS=Stopping; memory and leases stay for the next start");
}

void notify_status(const char *text)
{
	if (strcmp(text, last_status) == 0)
		return;
	snprintf(last_status, sizeof last_status, "%s", text);
	sd_notifyf(0, "STATUS=%s", text);
}

uint64_t notify_get_watchdog_ms(void)
{
	uint64_t usec = 0;
	return sd_watchdog_enabled(0, &usec) > 0 ? MAX(usec / 2000, 1) : 0;
}

void notify_watchdog(void)
{
	sd_notify(0, "WATCHDOG=1");
}

int notify_take_socket(void)
{
	int count = sd_listen_fds(1);
	if (count <= 0)
		return -1;
	int fd = SD_LISTEN_FDS_START;
	if (count > 1 || sd_is_socket_unix(fd, SOCK_SEQPACKET, 1, NULL, 0) <= 0)
		return -EINVAL;
	return fd;
}
