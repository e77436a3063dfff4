/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* cmd_calibrate.c - hpzctl calibrate: the methods of clearing, measured anew on the pools' own pages. */
#include "hpzctl.h"

#include "clearing.h"
#include "options.h"
#include "output.h"

static int cmd_calibrate_print(struct hpzctl *ctl, struct hpz *hpz, uint32_t pools)
{
	struct hpz_clearing *clearing = NULL;
	int error = hpz_get_clearing(hpz, &clearing);
	if (error)
		return hpzctl_fail(ctl, hpz, error, "calibrate");
	if (ctl->json) {
		struct output_json json;
		output_json_init(&json, stdout);
		output_json_open_object(&json, NULL);
		output_json_text(&json, "schema", "hpz-calibrate-1");
		output_json_number(&json, "pools", pools);
		clearing_print_json(&json, clearing);
		output_json_close(&json);
	} else {
		clearing_print(stdout, clearing);
	}
	hpz_clearing_free(clearing);
	if (pools > 0)
		return HPZCTL_DONE;
	hpzctl_say("no pool has 64 MiB in one piece to spare: nothing was measured anew");
	return HPZCTL_LATER;
}

int cmd_calibrate(struct hpzctl *ctl, int argc, char **argv)
{
	_cleanup_hpz_ struct hpz *hpz = NULL;
	const char *pool = NULL;
	int64_t timeout_ms = 60000;
	uint32_t pools = 0;
	const struct options_row rows[] = {
		{"pool", OPTIONS_TEXT, &pool, "NAME", "only this pool"},
		{"timeout", OPTIONS_SECONDS, &timeout_ms, "S", "give up after that (default: 60)"},
	};
	char **operands;
	int count;

	int status = options_parse(ctl, rows, ARRAY_SIZE(rows), argc, argv, false, &operands, &count);
	if (status == OPTIONS_GO)
		status = options_refuse_operands(ctl, operands, count);
	if (status != OPTIONS_GO)
		return status;
	status = hpzctl_connect(ctl, &hpz);
	if (status)
		return status;
	int error = hpz_calibrate(hpz, pool, timeout_ms, &pools);
	if (error)
		return hpzctl_fail(ctl, hpz, error, "calibrate");
	return cmd_calibrate_print(ctl, hpz, pools);
}
