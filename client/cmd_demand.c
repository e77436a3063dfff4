/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* cmd_demand.c - hpzctl demand: which sizes are asked for, and the stock that would serve them. */
#include "hpzctl.h"

#include "demand.h"
#include "options.h"

static void cmd_demand_cleanup(struct hpz_demand **demand)
{
	hpz_demand_free(*demand);
}

static void cmd_demand_print_json(const struct hpz_demand *demand)
{
	struct output_json json;

	output_json_init(&json, stdout);
	output_json_open_object(&json, NULL);
	output_json_text(&json, "schema", "hpz-demand-1");
	demand_print_json(&json, "pools", demand);
	output_json_close(&json);
}

int cmd_demand(struct hpzctl *ctl, int argc, char **argv)
{
	_cleanup_hpz_ struct hpz *hpz = NULL;
	__attribute__((cleanup(cmd_demand_cleanup))) struct hpz_demand *demand = NULL;
	char **operands;
	int count;

	int status = options_parse(ctl, NULL, 0, argc, argv, false, &operands, &count);
	if (status == OPTIONS_GO)
		status = options_refuse_operands(ctl, operands, count);
	if (status != OPTIONS_GO)
		return status;
	status = hpzctl_connect(ctl, &hpz);
	if (status)
		return status;
	int error = hpz_get_demand(hpz, &demand);
	if (error)
		return hpzctl_fail(ctl, hpz, error, "cannot get the demand");
	if (ctl->json)
		cmd_demand_print_json(demand);
	else
		demand_print(stdout, demand);
	return HPZCTL_DONE;
}
