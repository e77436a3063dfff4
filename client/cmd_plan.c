/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* cmd_plan.c - hpzctl plan: what a lease of that size would get now, without taking it. */
#include "hpzctl.h"

#include <inttypes.h>

#include "placement.h"
#include "output.h"
#include "size.h"

/* The name of a kind; a newer hpzd may know more. */
static const char *cmd_plan_get_kind(uint32_t kind)
{
	static const char *const names[] = {
		[HPZ_PLAN_EXACT] = "exact",
		[HPZ_PLAN_TRIM] = "trim",
		[HPZ_PLAN_EXTEND] = "extend",
		[HPZ_PLAN_SEVERAL] = "several",
		[HPZ_PLAN_WAIT] = "wait",
		[HPZ_PLAN_REFUSE] = "refuse",
	};

	return kind < ARRAY_SIZE(names) && names[kind] ? names[kind] : "unknown";
}

static void cmd_plan_print_json(const struct hpz_plan_result *result)
{
	struct output_json json;

	output_json_init(&json, stdout);
	output_json_open_object(&json, NULL);
	output_json_text(&json, "schema", "hpz-plan-1");
	output_json_text(&json, "kind", cmd_plan_get_kind(result->kind));
	output_json_text_or_null(&json, "pool", result->pool);
	if (result->node == HPZ_NODE_ANY)
		output_json_null(&json, "node");
	else
		output_json_integer(&json, "node", result->node);
	output_json_number(&json, "page_size", result->page_size);
	output_json_number(&json, "asked", result->asked);
	output_json_number(&json, "size", result->size);
	output_json_number(&json, "segments", result->segment_count);
	output_json_number(&json, "ready", result->ready);
	output_json_number(&json, "zeroed", result->zeroed);
	output_json_open_object(&json, "from");
	output_json_number(&json, "free", result->from_free);
	output_json_number(&json, "dirty", result->from_dirty);
	output_json_number(&json, "clean", result->from_clean);
	output_json_close(&json);
	output_json_number(&json, "waiting", result->waiting);
	output_json_text_or_null(&json, "error", result->error ? hpz_strerror((int)result->error) : "");
	output_json_text(&json, "text", result->text);
	output_json_close(&json);
}

static void cmd_plan_print(const struct hpz_plan_result *result)
{
	printf("%s: ", cmd_plan_get_kind(result->kind));
	output_print_text(stdout, result->text);
	putchar('\n');
}

/* What would fail now may succeed later, unless it is for good. */
static int cmd_plan_get_status(const struct hpz_plan_result *result)
{
	if (result->kind == HPZ_PLAN_WAIT)
		return HPZCTL_LATER;
	if (result->kind != HPZ_PLAN_REFUSE)
		return HPZCTL_DONE;
	return result->error == HPZ_ERR_NO_MEMORY || result->error == HPZ_ERR_QUOTA ? HPZCTL_LATER
										    : HPZCTL_FAILED;
}

int cmd_plan(struct hpzctl *ctl, int argc, char **argv)
{
	_cleanup_hpz_ struct hpz *hpz = NULL;
	struct hpz_lease_request request = HPZ_LEASE_REQUEST_INIT;
	struct hpz_plan_result result = {.struct_size = sizeof(result)};
	struct placement placement = PLACEMENT_INIT;
	bool takes_segments = false;
	char size[SIZE_TEXT];
	const struct options_row rows[] = {
		{"page-size", OPTIONS_SIZE, &request.page_size, "SIZE",
			"2M or 1G (default: what wastes least)"},
		PLACEMENT_ROWS(&placement),
		PLACEMENT_ROWS_OF_SEVERAL(&placement),
		{"segments", OPTIONS_FLAG, &takes_segments, NULL,
			"several files will do, where no single one is clean"},
		{"wait", OPTIONS_SECONDS, &request.timeout_ms, "S",
			"as for a lease that would wait so long; or: forever"},
	};
	char **operands;
	int count;

	int status = options_parse(ctl, rows, ARRAY_SIZE(rows), argc, argv, false, &operands, &count);
	if (status != OPTIONS_GO)
		return status;
	status = placement_apply(ctl, &placement, &request);
	if (status == OPTIONS_GO)
		status = placement_read_size(
			ctl, &placement, operands, count, "for how much? As in: hpzctl plan 2G", &request);
	if (status != OPTIONS_GO)
		return status;
	request.flags = takes_segments ? HPZ_LEASE_SEGMENTS : 0;
	status = hpzctl_connect(ctl, &hpz);
	if (status)
		return status;
	int error = hpz_plan(hpz, &request, &result);
	if (error)
		return hpzctl_fail(ctl, hpz, error, "no plan for %s",
			request.cell_count ? "the cells" : size_format(request.size, size));
	if (ctl->json)
		cmd_plan_print_json(&result);
	else
		cmd_plan_print(&result);
	return cmd_plan_get_status(&result);
}
