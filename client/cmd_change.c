/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* cmd_change.c - hpzctl grow and shrink: another size for a lease. */
#include "hpzctl.h"

#include <inttypes.h>

#include "leases.h"
#include "options.h"
#include "output.h"
#include "size.h"

struct cmd_change {
	uint64_t id;
	struct hpz_change_request request;
	struct hpz_change_result result;
	struct hpz_lease *added;
};

static void cmd_change_print_json(const struct cmd_change *change)
{
	struct output_json json;

	output_json_init(&json, stdout);
	output_json_open_object(&json, NULL);
	output_json_text(&json, "schema", "hpz-change-1");
	output_json_number(&json, "id", change->id);
	output_json_number(&json, "size", change->result.size);
	output_json_number(&json, "ready", change->result.ready);
	output_json_number(&json, "zeroed", change->result.zeroed);
	if (change->result.returning)
		output_json_number(&json, "returning", change->result.returning);
	else
		output_json_null(&json, "returning");
	output_json_open_list(&json, "added");
	for (size_t i = 0; i < hpz_lease_get_segment_count(change->added); i++) {
		struct hpz_segment segment = {.struct_size = sizeof(segment), .path = ""};
		hpz_lease_get_segment(change->added, i, &segment);
		leases_print_segment_json(&json, &segment);
	}
	output_json_close(&json);
	output_json_close(&json);
}

static void cmd_change_print(const struct cmd_change *change)
{
	char size[SIZE_TEXT];

	printf("lease %" PRIu64 ", %s", change->id, size_format(change->result.size, size));
	if (change->result.returning)
		printf("; lease %" PRIu64 " has what comes back", change->result.returning);
	putchar('\n');
	for (size_t i = 0; i < hpz_lease_get_segment_count(change->added); i++) {
		struct hpz_segment segment = {.struct_size = sizeof(segment), .path = ""};
		hpz_lease_get_segment(change->added, i, &segment);
		output_print_text(stdout, segment.path);
		putchar('\n');
	}
}

static int cmd_change_parse(struct hpzctl *ctl, int argc, char **argv, bool grows, struct cmd_change *change)
{
	const struct options_row rows[] = {
		{"wait", OPTIONS_SECONDS, &change->request.timeout_ms, "S",
			"wait for clean memory; or: forever"},
		{"priority", OPTIONS_PRIORITY, &change->request.priority, "N",
			"wait before those of a lower one (default: 0)"},
	};
	char **operands, *end;
	int count;

	int status =
		options_parse(ctl, rows, grows ? ARRAY_SIZE(rows) : 0, argc, argv, false, &operands, &count);
	if (status != OPTIONS_GO)
		return status;
	if (count != 2)
		return hpzctl_fail_usage(ctl, "which lease, and to what size? As in: hpzctl %s 4711 2G",
			grows ? "grow" : "shrink");
	errno = 0;
	change->id = strtoull(operands[0], &end, 10);
	if (operands[0][0] < '0' || operands[0][0] > '9' || *end || errno || change->id == 0)
		return hpzctl_fail_usage(ctl, "'%s' is not a lease id", operands[0]);
	if (size_parse(operands[1], &change->request.size) < 0 || change->request.size == 0)
		return hpzctl_fail_usage(ctl, "'%s' is not a size, as 512M or 2G", operands[1]);
	return OPTIONS_GO;
}

/* What it has now: whoever says grow does not want less, whatever happened meanwhile. */
static int cmd_change_look(const struct hpzctl *ctl, struct hpz *hpz, bool grows, struct cmd_change *change)
{
	_cleanup_list_ struct hpz_lease_list *list = NULL;
	struct hpz_lease_info info = {.struct_size = sizeof(info)};
	char size[SIZE_TEXT];

	int error = hpz_list(hpz, &list);
	if (error)
		return hpzctl_fail(ctl, hpz, error, "cannot list the leases");
	for (size_t i = 0; i < hpz_list_get_count(list); i++) {
		hpz_list_get_lease(list, i, &info);
		if (info.id != change->id || info.state == HPZ_STATE_ORPHANED)
			continue;
		change->request.known = info.segment_count;
		if (grows ? change->request.size >= info.asked : change->request.size <= info.size)
			return HPZCTL_DONE;
		hpzctl_say("lease %" PRIu64 " has %s: hpzctl %s gives it another size", change->id,
			size_format(info.size, size), grows ? "shrink" : "grow");
		return HPZCTL_FAILED;
	}
	return HPZCTL_DONE; /* hpzd knows whether it ever was */
}

static int cmd_change(struct hpzctl *ctl, int argc, char **argv, bool grows)
{
	_cleanup_hpz_ struct hpz *hpz = NULL;
	struct cmd_change change = {
		.request = HPZ_CHANGE_REQUEST_INIT, .result = {.struct_size = sizeof(change.result)}};

	int status = cmd_change_parse(ctl, argc, argv, grows, &change);
	if (status != OPTIONS_GO)
		return status;
	status = hpzctl_connect(ctl, &hpz);
	if (!status)
		status = cmd_change_look(ctl, hpz, grows, &change);
	if (status)
		return status;
	int error = hpz_change(hpz, change.id, &change.request, &change.result, &change.added);
	if (error)
		return hpzctl_fail(ctl, hpz, error, "lease %" PRIu64, change.id);
	if (ctl->json)
		cmd_change_print_json(&change);
	else
		cmd_change_print(&change);
	hpz_lease_free(change.added);
	return HPZCTL_DONE;
}

int cmd_grow(struct hpzctl *ctl, int argc, char **argv)
{
	return cmd_change(ctl, argc, argv, true);
}

int cmd_shrink(struct hpzctl *ctl, int argc, char **argv)
{
	return cmd_change(ctl, argc, argv, false);
}
