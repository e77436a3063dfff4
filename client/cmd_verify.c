/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* cmd_verify.c - hpzctl verify: hpzd's workers read what is clean, and say whether it is. */
#include "hpzctl.h"

#include <inttypes.h>

#include "options.h"
#include "output.h"
#include "size.h"

static void cmd_verify_print_json(const struct hpz_verify_result *result)
{
	struct output_json json;

	output_json_init(&json, stdout);
	output_json_open_object(&json, NULL);
	output_json_text(&json, "schema", "hpz-verify-1");
	output_json_number(&json, "segments", result->segments);
	output_json_number(&json, "pages", result->pages);
	output_json_number(&json, "bytes", result->bytes);
	output_json_number(&json, "hits", result->hits);
	output_json_number(&json, "left", result->left);
	if (result->hits) {
		output_json_open_object(&json, "first_hit");
		output_json_text(&json, "pool", result->hit_pool);
		output_json_number(&json, "segment", result->hit_segment);
		output_json_number(&json, "offset", result->hit_offset);
		output_json_close(&json);
	} else {
		output_json_null(&json, "first_hit");
	}
	output_json_close(&json);
}

static void cmd_verify_print(const struct hpz_verify_result *result)
{
	char size[SIZE_TEXT];

	printf("%s read, %" PRIu64 " segments; %" PRIu64 " not zero", size_format(result->bytes, size),
		result->segments, result->hits);
	if (result->left)
		printf("; %" PRIu64 " were handed out before they were read", result->left);
	putchar('\n');
	if (!result->hits)
		return;
	fputs("The first: pool ", stdout);
	output_print_text(stdout, result->hit_pool);
	printf(", segment %" PRIu64 ", offset %" PRIu64 ". They are retired; hpzd's log has each.\n",
		result->hit_segment, result->hit_offset);
}

int cmd_verify(struct hpzctl *ctl, int argc, char **argv)
{
	_cleanup_hpz_ struct hpz *hpz = NULL;
	struct hpz_verify_result result = {.struct_size = sizeof(result)};
	const char *pool = NULL;
	int64_t timeout_ms = HPZ_FOREVER;
	const struct options_row rows[] = {
		{"pool", OPTIONS_TEXT, &pool, "NAME", "only this pool"},
		{"timeout", OPTIONS_SECONDS, &timeout_ms, "S", "give up after that (default: never)"},
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
	int error = hpz_verify(hpz, pool, timeout_ms, &result);
	if (error)
		return hpzctl_fail(ctl, hpz, error, "verify");
	if (ctl->json)
		cmd_verify_print_json(&result);
	else
		cmd_verify_print(&result);
	return result.hits ? HPZCTL_FAILED : HPZCTL_DONE;
}
