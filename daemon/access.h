/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * access.h - who may do what, and how much: the configuration and a peer in, a decision out.
 * Pure: no system call, no clock; who counts what is used is the caller. What a decision says to people is
 * made here, too, so that every refusal names who, what, which section and how much is used.
 *
 * The section that counts: the first in the file that names the user; if none does, the first that names one
 * of its groups (primary or supplementary); if none does, the first with `users = *`. Only that one counts:
 * sections do not add up. Without any, a user may read status. Root may do everything, without limits, and no
 * section changes that.
 */
#ifndef HPZ_ACCESS_H
#define HPZ_ACCESS_H

#include "config.h"

/* Who asks, as the kernel says. */
struct access_peer {
	uint32_t uid, gid;
	const uint32_t *groups; /* supplementary */
	size_t group_count;
};

struct access_rule {
	struct access_peer peer;
	bool is_root;
	const struct config_access *section; /* NULL: none names it */
};

void access_find_rule(
	const struct config *config, const struct access_peer *peer, struct access_rule *ret_rule);

/* Whether at least one of these CONFIG_ALLOW_* is allowed. */
bool access_may(const struct access_rule *rule, unsigned any_of);
/* Whether it may adopt or end a lease of that uid. */
bool access_may_touch(const struct access_rule *rule, uint32_t owner_uid);
/* Whether it may give files to that user and group: its own; or anybody's, with admin. */
bool access_may_give(const struct access_rule *rule, uint32_t uid, uint32_t gid);

/* What a uid has by now. */
struct access_usage {
	uint64_t bytes;  /* given, of leases that have not ended, returning ones included */
	uint64_t leases; /* the same */
};

enum access_limit {
	ACCESS_FINE,
	ACCESS_LEASES_REACHED,
	ACCESS_BYTES_REACHED,
};
enum access_limit access_check_quota(const struct access_rule *rule, const struct access_usage *usage,
	uint64_t more_leases, uint64_t more_bytes);
/* Whether one more may be, with so many there already. */
bool access_may_connect(const struct access_rule *rule, uint64_t connections);
bool access_may_wait(const struct access_rule *rule, uint64_t requests);
/* The highest priority its requests may have while they wait. */
int32_t access_get_priority(const struct access_rule *rule);

/* Sentences for a refusal, cut to the capacity. `what` is a verb with its object, as "drain". */
void access_explain_denied(const struct access_rule *rule, const char *what, char *ret_text, size_t capacity);
void access_explain_quota(const struct access_rule *rule, enum access_limit limit,
	const struct access_usage *usage, uint64_t more_bytes, char *ret_text, size_t capacity);
void access_explain_priority(
	const struct access_rule *rule, int32_t priority, char *ret_text, size_t capacity);
void access_explain_limit(
	const struct access_rule *rule, const char *key, uint64_t limit, char *ret_text, size_t capacity);

#endif
