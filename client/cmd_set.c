/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* cmd_set.c - hpzctl set: rules of clearing, one after the other; the first that is refused ends it. */
#include "hpzctl.h"

#include "options.h"
#include "output.h"

/* All or none are understood: a slip in the third must not leave two changed. */
static int cmd_set_check(const struct hpzctl *ctl, char **operands, int count)
{
	if (count == 0)
		return hpzctl_fail_usage(ctl, "what to set is missing, as rate=1G");
	for (int i = 0; i < count; i++) {
		const char *equals = strchr(operands[i], '=');
		if (!equals || equals == operands[i])
			return hpzctl_fail_usage(ctl, "'%s' is not KEY=VALUE", operands[i]);
	}
	return HPZCTL_DONE;
}

static int cmd_set_one(struct hpzctl *ctl, struct hpz *hpz, char *operand)
{
	char *equals = strchr(operand, '=');
	*equals = '\0';
	int error = hpz_set(hpz, operand, equals + 1);
	*equals = '=';
	return error ? hpzctl_fail(ctl, hpz, error, "cannot set %s", operand) : HPZCTL_DONE;
}

static void cmd_set_print_json(char **operands, int count)
{
	struct output_json json;

	output_json_init(&json, stdout);
	output_json_open_object(&json, NULL);
	output_json_text(&json, "schema", "hpz-set-1");
	output_json_open_list(&json, "set");
	for (int i = 0; i < count; i++)
		output_json_text(&json, NULL, operands[i]);
	output_json_close(&json);
	output_json_close(&json);
}

int cmd_set(struct hpzctl *ctl, int argc, char **argv)
{
	_cleanup_hpz_ struct hpz *hpz = NULL;
	char **operands;
	int count, done = 0;

	int status = options_parse(ctl, NULL, 0, argc, argv, false, &operands, &count);
	if (status == OPTIONS_GO)
		status = cmd_set_check(ctl, operands, count);
	else
		return status;
	if (status == HPZCTL_DONE)
		status = hpzctl_connect(ctl, &hpz);
	for (; status == HPZCTL_DONE && done < count; done++)
		status = cmd_set_one(ctl, hpz, operands[done]);
	if (status == HPZCTL_DONE && ctl->json)
		cmd_set_print_json(operands, count);
	return status;
}
