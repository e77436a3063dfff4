/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* lease_key.c - the keys of leases that are for libvirt's domains. */
#include "lease_key.h"

#include <ctype.h>

#define LEASE_KEY_UUID_LENGTH (LEASE_KEY_UUID_SIZE - 1)
#define LEASE_KEY_REST        (sizeof(LEASE_KEY_PREFIX) - 1 + LEASE_KEY_UUID_LENGTH)

static bool lease_key_is_uuid(const char *text)
{
	for (int i = 0; i < LEASE_KEY_UUID_LENGTH; i++) {
		bool is_dash = i == 8 || i == 13 || i == 18 || i == 23;
		if (is_dash ? text[i] != '-' : !isxdigit((unsigned char)text[i]))
			return false;
	}
	return true;
}

/* Numbers with what stands between them; the alias of a device begins with a word. */
static bool lease_key_is_start(const char *text)
{
	return text[strspn(text, "0123456789abcdef-.")] == '\0';
}

bool lease_key_get_uuid(const char *key, char ret_uuid[LEASE_KEY_UUID_SIZE])
{
	const char *uuid = key + sizeof(LEASE_KEY_PREFIX) - 1;

	/* It ends at the first character that is none of a uuid's, its NUL included. */
	if (strncmp(key, LEASE_KEY_PREFIX, sizeof(LEASE_KEY_PREFIX) - 1) != 0 || !lease_key_is_uuid(uuid) ||
		(uuid[LEASE_KEY_UUID_LENGTH] && uuid[LEASE_KEY_UUID_LENGTH] != ':'))
		return false;
	for (int i = 0; i < LEASE_KEY_UUID_LENGTH; i++)
		ret_uuid[i] = (char)tolower((unsigned char)uuid[i]);
	ret_uuid[LEASE_KEY_UUID_LENGTH] = '\0';
	return true;
}

bool lease_key_read(const char *key, struct lease_key *ret_key)
{
	struct lease_key read = {.alias = "", .start = ""};

	if (strlen(key) > HPZ_KEY_MAX || !lease_key_get_uuid(key, read.uuid))
		return false;
	const char *rest = key + LEASE_KEY_REST;
	rest += *rest == ':';
	const char *end = strchr(rest, ':');
	if (end) {
		snprintf(read.alias, sizeof(read.alias), "%.*s", (int)(end - rest), rest);
		rest = end + 1;
	}
	strcpy(end || lease_key_is_start(rest) ? read.start : read.alias, rest);
	*ret_key = read;
	return true;
}

bool lease_key_format(const char *uuid, const char *alias, const char *start, char ret_key[HPZ_KEY_MAX + 1])
{
	int length = snprintf(ret_key, HPZ_KEY_MAX + 1, LEASE_KEY_PREFIX "%s%s%s:%s", uuid, alias ? ":" : "",
		alias ? alias : "", start);

	return length > 0 && length <= HPZ_KEY_MAX;
}
