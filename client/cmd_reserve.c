/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* cmd_reserve.c - hpzctl reserve and unreserve: clean memory kept for leases to come. */
#include "hpzctl.h"

#include <inttypes.h>

#include "options.h"
#include "output.h"
#include "size.h"

#define CMD_RESERVE_TTL_MS 60000

static void cmd_reserve_print_json(const struct hpz_reservation *reservation, const char *label)
{
	struct output_json json;

	output_json_init(&json, stdout);
	output_json_open_object(&json, NULL);
	output_json_text(&json, "schema", "hpz-reservation-1");
	output_json_number(&json, "id", reservation->id);
	output_json_text(&json, "label", label ? label : "");
	output_json_text(&json, "pool", reservation->pool);
	output_json_integer(&json, "node", reservation->node);
	output_json_number(&json, "page_size", reservation->page_size);
	output_json_number(&json, "size", reservation->size);
	output_json_number(&json, "ready", reservation->ready);
	output_json_number(&json, "zeroed", reservation->zeroed);
	output_json_number(&json, "ttl_ms", reservation->ttl_ms);
	output_json_close(&json);
}

static int cmd_reserve_parse(
	struct hpzctl *ctl, int argc, char **argv, struct hpz_lease_request *request, int64_t *ttl_ms)
{
	bool takes_segments = false;
	const struct options_row rows[] = {
		{"ttl", OPTIONS_SECONDS, ttl_ms, "S", "how long it stands, up to a day (default: 60)"},
		{"page-size", OPTIONS_SIZE, &request->page_size, "SIZE",
			"2M or 1G (default: what wastes least)"},
		{"node", OPTIONS_NODE, &request->node, "N",
			"NUMA node (default: the one with most clean memory)"},
		{"label", OPTIONS_TEXT, &request->label, "TEXT", "what it is for, for the lists"},
		{"segments", OPTIONS_FLAG, &takes_segments, NULL,
			"several pieces will do, where no single one is clean"},
		{"wait", OPTIONS_SECONDS, &request->timeout_ms, "S", "wait for clean memory; or: forever"},
		{"priority", OPTIONS_PRIORITY, &request->priority, "N",
			"wait before those of a lower one (default: 0)"},
	};
	char **operands;
	int count;

	int status = options_parse(ctl, rows, ARRAY_SIZE(rows), argc, argv, false, &operands, &count);
	if (status != OPTIONS_GO)
		return status;
	if (count != 1)
		return hpzctl_fail_usage(
			ctl, count ? "one size at a time" : "how much? As in: hpzctl reserve 2G --ttl 60");
	if (size_parse(operands[0], &request->size) < 0 || request->size == 0)
		return hpzctl_fail_usage(ctl, "'%s' is not a size, as 512M or 2G", operands[0]);
	if (*ttl_ms <= 0 || (uint64_t)*ttl_ms > HPZ_RESERVE_MAX_MS)
		return hpzctl_fail_usage(ctl, "--ttl: more than 0 seconds, and at most a day (86400)");
	request->flags = takes_segments ? HPZ_LEASE_SEGMENTS : 0;
	return OPTIONS_GO;
}

int cmd_reserve(struct hpzctl *ctl, int argc, char **argv)
{
	_cleanup_hpz_ struct hpz *hpz = NULL;
	struct hpz_lease_request request = HPZ_LEASE_REQUEST_INIT;
	struct hpz_reservation reservation = {.struct_size = sizeof(reservation)};
	int64_t ttl_ms = CMD_RESERVE_TTL_MS;
	char size[SIZE_TEXT], ttl[OUTPUT_DURATION];

	int status = cmd_reserve_parse(ctl, argc, argv, &request, &ttl_ms);
	if (status != OPTIONS_GO)
		return status;
	status = hpzctl_connect(ctl, &hpz);
	if (status)
		return status;
	int error = hpz_reserve(hpz, &request, (uint64_t)ttl_ms, &reservation);
	if (error)
		return hpzctl_fail(ctl, hpz, error, "cannot reserve %s", size_format(request.size, size));
	if (ctl->json)
		cmd_reserve_print_json(&reservation, request.label);
	else
		printf("reservation %" PRIu64 ", %s of pool %s for %s\n", reservation.id,
			size_format(reservation.size, size), reservation.pool,
			output_format_duration(reservation.ttl_ms, ttl));
	return HPZCTL_DONE;
}

static int cmd_unreserve_read_id(const struct hpzctl *ctl, const char *text, uint64_t *ret_id)
{
	char *end;

	errno = 0;
	*ret_id = strtoull(text, &end, 10);
	if (text[0] < '0' || text[0] > '9' || *end || errno || *ret_id == 0)
		return hpzctl_fail_usage(ctl, "'%s' is not the id of a reservation", text);
	return OPTIONS_GO;
}

int cmd_unreserve(struct hpzctl *ctl, int argc, char **argv)
{
	_cleanup_hpz_ struct hpz *hpz = NULL;
	struct output_json json;
	char **operands;
	uint64_t id;
	int count;

	int status = options_parse(ctl, NULL, 0, argc, argv, false, &operands, &count);
	if (status != OPTIONS_GO)
		return status;
	if (count != 1)
		return hpzctl_fail_usage(ctl, "which one? hpzctl leases lists their ids");
	status = cmd_unreserve_read_id(ctl, operands[0], &id);
	if (status == OPTIONS_GO)
		status = hpzctl_connect(ctl, &hpz);
	if (status)
		return status;
	int error = hpz_unreserve(hpz, id);
	if (error)
		return hpzctl_fail(ctl, hpz, error, "reservation %" PRIu64, id);
	if (ctl->json) {
		output_json_init(&json, stdout);
		output_json_open_object(&json, NULL);
		output_json_text(&json, "schema", "hpz-unreserve-1");
		output_json_number(&json, "id", id);
		output_json_close(&json);
	}
	return HPZCTL_DONE;
}
