/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * lease_key.h - the keys of leases that are for libvirt's domains: whose, and of which start. Pure.
 *
 *   libvirt:UUID:START          what a domain was started with
 *   libvirt:UUID:ALIAS:START    a memory device that was plugged into it later
 *
 * START names one start of the domain and no other: see hook_place_get_start(). Keys without it are some
 * other tool's.
 */
#ifndef HPZ_LEASE_KEY_H
#define HPZ_LEASE_KEY_H

#include "hpz.h"
#include "util.h"

/* What all of them begin with. */
#define LEASE_KEY_PREFIX "libvirt:"
/* As "11111111-2222-3333-4444-555555555501", with its NUL. */
#define LEASE_KEY_UUID_SIZE  37
#define LEASE_KEY_START_SIZE 64

struct lease_key {
	char uuid[LEASE_KEY_UUID_SIZE]; /* lower case */
	char alias[HPZ_KEY_MAX + 1];    /* "" what the domain was started with */
	char start[HPZ_KEY_MAX + 1];    /* "" not said */
};

/* False: it is not a domain's. */
bool lease_key_read(const char *key, struct lease_key *ret_key);

/* The uuid alone. False: it is not a domain's. */
bool lease_key_get_uuid(const char *key, char ret_uuid[LEASE_KEY_UUID_SIZE]);

/* `alias` NULL: what the domain is started with. False: so long a key cannot be. */
bool lease_key_format(const char *uuid, const char *alias, const char *start, char ret_key[HPZ_KEY_MAX + 1]);

#endif
