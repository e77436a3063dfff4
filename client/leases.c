/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* leases.c - a list of leases, as a table and as JSON; status, leases and drain show the same. */
#include "leases.h"

#include <inttypes.h>
#include <pwd.h>

#include "size.h"

const char *leases_get_state(uint32_t state)
{
	switch ((enum hpz_lease_state)state) {
	case HPZ_STATE_OFFERED:
		return "offered";
	case HPZ_STATE_LEASED:
		return "leased";
	case HPZ_STATE_RETURNING:
		return "returning";
	case HPZ_STATE_ENDED:
		return "ended";
	case HPZ_STATE_ORPHANED:
		return "orphaned";
	case HPZ_STATE_RESERVED:
		return "reserved";
	}
	return "?";
}

static void leases_get(const struct hpz_lease_list *list, size_t index, struct hpz_lease_info *ret_info)
{
	*ret_info = (struct hpz_lease_info){.struct_size = sizeof(*ret_info)};
	hpz_list_get_lease(list, index, ret_info);
}

static void leases_get_segment(const struct hpz_lease_list *list, size_t index, size_t segment_index,
	struct hpz_segment *ret_segment)
{
	*ret_segment = (struct hpz_segment){.struct_size = sizeof(*ret_segment), .path = ""};
	hpz_list_get_segment(list, index, segment_index, ret_segment);
}

static void leases_get_holder(
	const struct hpz_lease_list *list, size_t index, size_t holder_index, struct hpz_holder *ret_holder)
{
	*ret_holder = (struct hpz_holder){.struct_size = sizeof(*ret_holder), .comm = ""};
	hpz_list_get_holder(list, index, holder_index, ret_holder);
}

/* ---- JSON ---- */

void leases_print_segment_json(struct output_json *json, const struct hpz_segment *segment)
{
	output_json_open_object(json, NULL);
	output_json_number(json, "page_size", segment->page_size);
	output_json_integer(json, "node", segment->node);
	output_json_number(json, "cell", segment->cell);
	output_json_number(json, "size", segment->size);
	output_json_text_or_null(json, "path", segment->path);
	output_json_number(json, "generation", segment->generation);
	output_json_close(json);
}

static void leases_print_holder_json(struct output_json *json, const struct hpz_holder *holder)
{
	output_json_open_object(json, NULL);
	output_json_integer(json, "pid", holder->pid);
	output_json_text(json, "comm", holder->comm);
	if (holder->fd >= 0)
		output_json_integer(json, "fd", holder->fd);
	else
		output_json_null(json, "fd");
	output_json_close(json);
}

static void leases_print_lease_json(struct output_json *json, const struct hpz_lease_list *list, size_t index,
	const struct hpz_lease_info *info)
{
	output_json_number(json, "id", info->id);
	output_json_text(json, "label", info->label);
	output_json_text(json, "state", leases_get_state(info->state));
	output_json_number(json, "size", info->size);
	output_json_number(json, "asked", info->asked);
	if (info->uid == UINT32_MAX)
		output_json_null(json, "uid");
	else
		output_json_number(json, "uid", info->uid);
	if (info->pid == 0)
		output_json_null(json, "pid");
	else
		output_json_integer(json, "pid", info->pid);
	output_json_text_or_null(json, "comm", info->comm);
	output_json_text(json, "deliver", info->deliver == HPZ_DELIVER_PATH ? "path" : "fd");
	output_json_bool(json, "reopenable", info->flags & HPZ_LEASE_REOPENABLE);
	output_json_bool(json, "unbound", info->flags & HPZ_LEASE_UNBOUND);
	output_json_bool(json, "keep", info->flags & HPZ_LEASE_KEEP);
	output_json_number(json, "age_ms", info->age_ms);
	output_json_number(json, "holes", info->holes);
	output_json_number(json, "grown", info->grown);
	output_json_text_or_null(json, "reason", info->reason);
	output_json_text_or_null(json, "key", info->key);

	output_json_open_list(json, "segments");
	for (uint32_t i = 0; i < info->segment_count; i++) {
		struct hpz_segment segment;
		leases_get_segment(list, index, i, &segment);
		leases_print_segment_json(json, &segment);
	}
	output_json_close(json);
	output_json_open_list(json, "holders");
	for (uint32_t i = 0; i < info->holder_count; i++) {
		struct hpz_holder holder;
		leases_get_holder(list, index, i, &holder);
		leases_print_holder_json(json, &holder);
	}
	output_json_close(json);
}

static void leases_print_orphan_json(struct output_json *json, const struct hpz_lease_info *info)
{
	output_json_number(json, "lease", info->id);
	output_json_text(json, "label", info->label);
	output_json_number(json, "size", info->size);
	if (info->uid == UINT32_MAX)
		output_json_null(json, "uid");
	else
		output_json_number(json, "uid", info->uid);
	output_json_number(json, "age_ms", info->age_ms);
	output_json_text_or_null(json, "reason", info->reason);
}

static void leases_print_reservation_json(struct output_json *json, const struct hpz_lease_info *info)
{
	output_json_number(json, "id", info->id);
	output_json_text(json, "label", info->label);
	output_json_number(json, "size", info->size);
	output_json_number(json, "asked", info->asked);
	output_json_number(json, "uid", info->uid);
	output_json_number(json, "age_ms", info->age_ms);
	output_json_number(json, "ttl_ms", info->ttl_ms);
}

/* `kind`: ORPHANED, RESERVED; anything else: all others. */
static void leases_print_list_json(struct output_json *json, const struct hpz_lease_list *list,
	const char *key, enum hpz_lease_state kind)
{
	output_json_open_list(json, key);
	for (size_t i = 0; i < hpz_list_get_count(list); i++) {
		struct hpz_lease_info info;
		leases_get(list, i, &info);
		bool is_special = info.state == HPZ_STATE_ORPHANED || info.state == HPZ_STATE_RESERVED;
		if ((is_special ? info.state : HPZ_STATE_LEASED) != kind)
			continue;
		output_json_open_object(json, NULL);
		if (kind == HPZ_STATE_ORPHANED)
			leases_print_orphan_json(json, &info);
		else if (kind == HPZ_STATE_RESERVED)
			leases_print_reservation_json(json, &info);
		else
			leases_print_lease_json(json, list, i, &info);
		output_json_close(json);
	}
	output_json_close(json);
}

void leases_print_json(struct output_json *json, const struct hpz_lease_list *list)
{
	leases_print_list_json(json, list, "leases", HPZ_STATE_LEASED);
	leases_print_list_json(json, list, "orphans", HPZ_STATE_ORPHANED);
	leases_print_list_json(json, list, "reservations", HPZ_STATE_RESERVED);
}

/* ---- tables ---- */

static void leases_add_owner(struct output_table *table, const struct hpz_lease_info *info)
{
	const struct passwd *user = info->uid == UINT32_MAX ? NULL : getpwuid(info->uid);

	if (info->uid == UINT32_MAX)
		output_table_add(table, "?");
	else if (user)
		output_table_add(table, "%s", user->pw_name);
	else
		output_table_add(table, "%" PRIu32, info->uid);
	if (info->pid == 0)
		output_table_add(table, "-");
	else
		output_table_add(table, "%" PRId32 " %s", info->pid, info->comm);
}

static void leases_print_holders(FILE *file, const struct hpz_lease_list *list)
{
	char ttl[OUTPUT_DURATION];

	for (size_t i = 0; i < hpz_list_get_count(list); i++) {
		struct hpz_lease_info info;
		leases_get(list, i, &info);
		if (info.state == HPZ_STATE_ORPHANED) {
			fprintf(file,
				"\n%" PRIu64
				" has ended, and its file is gone, but somebody holds its memory: ",
				info.id);
			output_print_text(file, *info.reason ? info.reason : "it is not known how");
			fputc('\n', file);
		}
		if (info.state == HPZ_STATE_RESERVED)
			fprintf(file, "\n%" PRIu64 " is a reservation, for %s\n", info.id,
				output_format_duration(info.ttl_ms, ttl));
		if (info.state != HPZ_STATE_RETURNING)
			continue;
		fprintf(file, "\n%" PRIu64 " has ended, and its memory is ", info.id);
		if (info.holder_count || *info.reason)
			fputs("held by", file);
		else
			fputs("not proven free; nobody is known to hold it", file);
		if (*info.reason) {
			fputc(' ', file);
			output_print_text(file, info.reason);
		}
		fprintf(file, "%s\n", info.holder_count ? ":" : "");
		for (uint32_t j = 0; j < info.holder_count; j++) {
			struct hpz_holder holder;
			leases_get_holder(list, i, j, &holder);
			fprintf(file, "  process %" PRId32 " (", holder.pid);
			output_print_text(file, holder.comm);
			if (holder.fd >= 0)
				fprintf(file, "), descriptor %" PRId32 "\n", holder.fd);
			else
				fputs("), a mapping\n", file);
		}
	}
}

void leases_print_table(FILE *file, const struct hpz_lease_list *list, bool holders)
{
	static const char *const headings[] = {
		"LEASE", "STATE", ">SIZE", ">AGE", "USER", "PROCESS", "LABEL", "PATH"};
	char size[SIZE_TEXT], age[OUTPUT_DURATION];
	struct output_table table;

	output_table_init(&table, headings, ARRAY_SIZE(headings));
	for (size_t i = 0; i < hpz_list_get_count(list); i++) {
		struct hpz_lease_info info;
		struct hpz_segment first;
		leases_get(list, i, &info);
		leases_get_segment(list, i, 0, &first);
		output_table_add(&table, "%" PRIu64, info.id);
		output_table_add(&table, "%s", leases_get_state(info.state));
		output_table_add(&table, "%s", size_format(info.size, size));
		output_table_add(&table, "%s", output_format_duration(info.age_ms, age));
		leases_add_owner(&table, &info);
		output_table_add(&table, "%s", *info.label ? info.label : "-");
		output_table_add(&table, "%s", *first.path ? first.path : "-");
	}
	output_table_print(&table, file);
	output_table_deinit(&table);
	if (holders)
		leases_print_holders(file, list);
}

void leases_cleanup_list(struct hpz_lease_list **list)
{
	hpz_list_free(*list);
}
