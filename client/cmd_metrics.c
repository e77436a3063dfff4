/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* cmd_metrics.c - hpzctl metrics: everything as Prometheus reads it. */
#include "hpzctl.h"

#include "metrics.h"
#include "options.h"

int cmd_metrics(struct hpzctl *ctl, int argc, char **argv)
{
	struct openmetrics out = {.file = stdout};
	const struct options_row rows[] = {
		{"text", OPTIONS_FLAG, &out.is_text, NULL,
			"the older text format, as node_exporter's textfile collector reads it"},
	};
	char **operands;
	int count;

	int status = options_parse(ctl, rows, ARRAY_SIZE(rows), argc, argv, false, &operands, &count);
	if (status == OPTIONS_GO)
		status = options_refuse_operands(ctl, operands, count);
	if (status != OPTIONS_GO)
		return status;
	if (ctl->json)
		return hpzctl_fail_usage(ctl, "metrics are text: hpzctl status has --json");
	int error = metrics_print(&out, ctl->socket_path);
	if (!error)
		return HPZCTL_DONE;
	return hpzctl_fail(ctl, NULL, error, "hpz_up is 0");
}
