/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* access.c - who may do what, and how much: see access.h for the order in which sections count. */
#include "access.h"

#include <inttypes.h>

#include "size.h"

/* ---- the section that counts ---- */

static bool has_id(const struct config_ids *ids, uint32_t id)
{
	for (size_t i = 0; i < ids->count; i++) {
		if (ids->ids[i] == id)
			return true;
	}
	return false;
}

static bool is_in_group(const struct access_peer *peer, uint32_t gid)
{
	if (peer->gid == gid)
		return true;
	for (size_t i = 0; i < peer->group_count; i++) {
		if (peer->groups[i] == gid)
			return true;
	}
	return false;
}

static bool names_user(const struct config_access *section, const struct access_peer *peer)
{
	return has_id(&section->users, peer->uid);
}

static bool names_group(const struct config_access *section, const struct access_peer *peer)
{
	for (size_t i = 0; i < section->groups.count; i++) {
		if (is_in_group(peer, section->groups.ids[i]))
			return true;
	}
	return false;
}

static bool names_all(const struct config_access *section, const struct access_peer *peer)
{
	return section->users.is_all;
}

void access_find_rule(
	const struct config *config, const struct access_peer *peer, struct access_rule *ret_rule)
{
	/* What is said of somebody in particular counts before what is said of many. */
	static bool (*const names[])(const struct config_access *section, const struct access_peer *peer) = {
		names_user, names_group, names_all};
	*ret_rule = (struct access_rule){.peer = *peer, .is_root = peer->uid == 0};
	for (size_t by = 0; by < ARRAY_SIZE(names) && !ret_rule->is_root; by++) {
		for (size_t i = 0; i < config->access_count; i++) {
			if (!names[by](&config->access[i], peer))
				continue;
			ret_rule->section = &config->access[i];
			return;
		}
	}
}

/* ---- decisions ---- */

static unsigned get_allowed(const struct access_rule *rule)
{
	if (rule->is_root)
		return CONFIG_ALLOW_STATUS | CONFIG_ALLOW_LEASE | CONFIG_ALLOW_ADMIN;
	return rule->section ? rule->section->allow : CONFIG_ALLOW_STATUS;
}

bool access_may(const struct access_rule *rule, unsigned any_of)
{
	return (get_allowed(rule) & any_of) != 0;
}

bool access_may_touch(const struct access_rule *rule, uint32_t owner_uid)
{
	if (access_may(rule, CONFIG_ALLOW_ADMIN))
		return true;
	return access_may(rule, CONFIG_ALLOW_LEASE) && rule->peer.uid == owner_uid;
}

bool access_may_give(const struct access_rule *rule, uint32_t uid, uint32_t gid)
{
	if (access_may(rule, CONFIG_ALLOW_ADMIN))
		return true;
	return uid == rule->peer.uid && is_in_group(&rule->peer, gid);
}

static bool is_beyond(uint64_t used, uint64_t more, uint64_t limit)
{
	return limit != CONFIG_NO_LIMIT && (used > limit || more > limit - used);
}

enum access_limit access_check_quota(const struct access_rule *rule, const struct access_usage *usage,
	uint64_t more_leases, uint64_t more_bytes)
{
	if (rule->is_root || !rule->section)
		return ACCESS_FINE;
	if (is_beyond(usage->leases, more_leases, rule->section->quota_leases))
		return ACCESS_LEASES_REACHED;
	return is_beyond(usage->bytes, more_bytes, rule->section->quota_bytes) ? ACCESS_BYTES_REACHED
									       : ACCESS_FINE;
}

bool access_may_connect(const struct access_rule *rule, uint64_t connections)
{
	return !rule->section || !is_beyond(connections, 1, rule->section->max_connections);
}

bool access_may_wait(const struct access_rule *rule, uint64_t requests)
{
	return !rule->section || !is_beyond(requests, 1, rule->section->max_requests);
}

int32_t access_get_priority(const struct access_rule *rule)
{
	if (access_may(rule, CONFIG_ALLOW_ADMIN))
		return CONFIG_PRIORITY_MAX;
	return rule->section ? (int32_t)rule->section->max_priority : 0;
}

/* ---- sentences ---- */

static const char *format_allowed(unsigned allowed, char ret_text[64])
{
	static const char *const names[] = {"status", "lease", "admin"};
	ret_text[0] = '\0';
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		if (!(allowed & 1u << i))
			continue;
		if (ret_text[0])
			strcat(ret_text, " ");
		strcat(ret_text, names[i]);
	}
	return ret_text[0] ? ret_text : "nothing";
}

void access_explain_denied(const struct access_rule *rule, const char *what, char *ret_text, size_t capacity)
{
	char allowed[64];
	if (rule->section)
		snprintf(ret_text, capacity, "uid %" PRIu32 " may not %s: [access %s] allows it %s",
			rule->peer.uid, what, rule->section->name,
			format_allowed(rule->section->allow, allowed));
	else
		snprintf(ret_text, capacity,
			"uid %" PRIu32 " may not %s: no access section names it or a group of it, so it may "
			"read status and no more",
			rule->peer.uid, what);
}

void access_explain_quota(const struct access_rule *rule, enum access_limit limit,
	const struct access_usage *usage, uint64_t more_bytes, char *ret_text, size_t capacity)
{
	char asked[SIZE_TEXT], used[SIZE_TEXT], quota[SIZE_TEXT];
	switch (limit) {
	case ACCESS_FINE:
		ret_text[0] = '\0';
		break;
	case ACCESS_LEASES_REACHED:
		snprintf(ret_text, capacity,
			"uid %" PRIu32 " has %" PRIu64 " leases, and quota_leases of [access %s] is %" PRIu64
			"; leases whose memory is still held count",
			rule->peer.uid, usage->leases, rule->section->name, rule->section->quota_leases);
		break;
	case ACCESS_BYTES_REACHED:
		snprintf(ret_text, capacity,
			"uid %" PRIu32
			" asks for %s and has %s, and quota_bytes of [access %s] is %s; memory that is still "
			"held after a release counts",
			rule->peer.uid, size_format(more_bytes, asked), size_format(usage->bytes, used),
			rule->section->name, size_format(rule->section->quota_bytes, quota));
		break;
	}
}

void access_explain_priority(
	const struct access_rule *rule, int32_t priority, char *ret_text, size_t capacity)
{
	snprintf(ret_text, capacity,
		"uid %" PRIu32 " may wait with a priority of at most %" PRId32 ", not %" PRId32
		": see max_priority in hpzd.conf(5)",
		rule->peer.uid, access_get_priority(rule), priority);
}

void access_explain_limit(
	const struct access_rule *rule, const char *key, uint64_t limit, char *ret_text, size_t capacity)
{
	snprintf(ret_text, capacity, "uid %" PRIu32 " has reached %s of [access %s], %" PRIu64,
		rule->peer.uid, key, rule->section->name, limit);
}
