/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * nss_mute.c - libnss_hpz_mute.so.2: whoever else knows the names of users, as LDAP does, and does not
 * answer. What it is asked, and where the answer would go, it does not look at.
 */
#include <unistd.h>

#define EXPORT __attribute__((visibility("default"), noreturn))

EXPORT void _nss_hpz_mute_getpwnam_r(void);
EXPORT void _nss_hpz_mute_getpwuid_r(void);
EXPORT void _nss_hpz_mute_getgrnam_r(void);

static __attribute__((noreturn)) void wait_for_ever(void)
{
	for (;;)
		pause();
}

void _nss_hpz_mute_getpwnam_r(void)
{
	wait_for_ever();
}

void _nss_hpz_mute_getpwuid_r(void)
{
	wait_for_ever();
}

void _nss_hpz_mute_getgrnam_r(void)
{
	wait_for_ever();
}
