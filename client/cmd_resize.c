/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* cmd_resize.c - hpzctl resize and demote: how large a pool is to be, and of what pages. */
#include "hpzctl.h"

#include <inttypes.h>

#include "options.h"
#include "output.h"
#include "size.h"

/* ---- the command line ---- */

/* "512pages". */
static bool cmd_resize_read_pages(const char *text, uint64_t *ret_pages)
{
	char *end;

	if (*text < '0' || *text > '9')
		return false;
	errno = 0;
	uint64_t pages = strtoull(text, &end, 10);
	if (errno || (strcmp(end, "pages") != 0 && strcmp(end, "page") != 0))
		return false;
	*ret_pages = pages;
	return true;
}

static bool cmd_resize_read(const char *text, struct hpz_resize_request *request)
{
	request->kind = HPZ_RESIZE_TO;
	if (*text == '+' || *text == '-')
		request->kind = *text++ == '+' ? HPZ_RESIZE_GROW : HPZ_RESIZE_SHRINK;
	return cmd_resize_read_pages(text, &request->pages) || size_parse(text, &request->size) == 0;
}

/* ---- what came of it ---- */

static void cmd_resize_print_json(const char *pool, const struct hpz_resize_result *result)
{
	struct output_json json;

	output_json_init(&json, stdout);
	output_json_open_object(&json, NULL);
	output_json_text(&json, "schema", "hpz-resize-1");
	output_json_text(&json, "pool", pool);
	output_json_number(&json, "page_size", result->page_size);
	output_json_number(&json, "before", result->before);
	output_json_number(&json, "target", result->target);
	output_json_number(&json, "configured", result->configured);
	output_json_number(&json, "total", result->total);
	output_json_bool(&json, "done", result->done);
	output_json_open_object(&json, "left");
	output_json_number(&json, "grow", result->grow);
	output_json_number(&json, "shrink", result->shrink);
	output_json_number(&json, "give_back", result->give_back);
	output_json_close(&json);
	output_json_close(&json);
}

static void cmd_resize_print_left(uint64_t pages, uint64_t page_size, const char *what)
{
	char size[SIZE_TEXT];

	if (pages > 0)
		printf("  %s %s\n", size_format(pages * page_size, size), what);
}

static void cmd_resize_print(const char *pool, const struct hpz_resize_result *result)
{
	char before[SIZE_TEXT], target[SIZE_TEXT], total[SIZE_TEXT];

	output_print_text(stdout, pool);
	printf(": %s -> %s, holds %s%s\n", size_format(result->before * result->page_size, before),
		size_format(result->target * result->page_size, target),
		size_format(result->total * result->page_size, total),
		result->done ? "" : "; left to be done:");
	cmd_resize_print_left(result->grow, result->page_size, "to be had and filled");
	cmd_resize_print_left(
		result->shrink, result->page_size, "to go, as leases end (hpzctl leases shows them)");
	cmd_resize_print_left(
		result->give_back, result->page_size, "to be taken off nr_hugepages, as pages come free");
}

int cmd_resize(struct hpzctl *ctl, int argc, char **argv)
{
	_cleanup_hpz_ struct hpz *hpz = NULL;
	struct hpz_resize_request request = HPZ_RESIZE_REQUEST_INIT;
	struct hpz_resize_result result = {.struct_size = sizeof(result)};
	bool waits = false;
	const struct options_row rows[] = {
		{"wait", OPTIONS_FLAG, &waits, NULL, "until nothing is left to be done"},
		{"timeout", OPTIONS_SECONDS, &request.timeout_ms, "S",
			"give up waiting after that (default: never)"},
	};
	char **operands;
	int count;

	int status = options_parse(ctl, rows, ARRAY_SIZE(rows), argc, argv, false, &operands, &count);
	if (status != OPTIONS_GO)
		return status;
	if (count != 2)
		return hpzctl_fail_usage(ctl, "a pool and a size, as `main +4G`, are needed");
	request.pool = operands[0];
	if (!cmd_resize_read(operands[1], &request))
		return hpzctl_fail_usage(ctl, "%s is no size: as 16G, +4G, -512pages", operands[1]);
	request.flags = waits ? HPZ_RESIZE_WAIT : 0;
	status = hpzctl_connect(ctl, &hpz);
	if (status)
		return status;
	int error = hpz_resize(hpz, &request, &result);
	if (error)
		return hpzctl_fail(ctl, hpz, error, "resize %s", request.pool);
	if (ctl->json)
		cmd_resize_print_json(request.pool, &result);
	else
		cmd_resize_print(request.pool, &result);
	return HPZCTL_DONE;
}

/* ---- demote ---- */

static void cmd_demote_print(
	const struct hpzctl *ctl, const char *pool, const struct hpz_resize_result *result)
{
	struct output_json json;
	char size[SIZE_TEXT];

	if (!ctl->json) {
		output_print_text(stdout, pool);
		printf(": %" PRIu64 " pages of %s were split\n", result->demoted,
			size_format_exact(result->page_size, size));
		return;
	}
	output_json_init(&json, stdout);
	output_json_open_object(&json, NULL);
	output_json_text(&json, "schema", "hpz-demote-1");
	output_json_text(&json, "pool", pool);
	output_json_number(&json, "page_size", result->page_size);
	output_json_number(&json, "demoted", result->demoted);
	output_json_number(&json, "target", result->target);
	output_json_close(&json);
}

int cmd_demote(struct hpzctl *ctl, int argc, char **argv)
{
	_cleanup_hpz_ struct hpz *hpz = NULL;
	struct hpz_resize_request request = HPZ_RESIZE_REQUEST_INIT;
	struct hpz_resize_result result = {.struct_size = sizeof(result)};
	const struct options_row rows[] = {
		{"timeout", OPTIONS_SECONDS, &request.timeout_ms, "S",
			"give up waiting after that (default: never)"},
	};
	char **operands, *end;
	int count;

	int status = options_parse(ctl, rows, ARRAY_SIZE(rows), argc, argv, false, &operands, &count);
	if (status != OPTIONS_GO)
		return status;
	if (count != 2)
		return hpzctl_fail_usage(ctl, "a pool and a number of its pages, as `huge 2`, are needed");
	request.pool = operands[0];
	request.kind = HPZ_RESIZE_DEMOTE;
	errno = 0;
	request.pages = strtoull(operands[1], &end, 10);
	if (errno || *operands[1] < '0' || *operands[1] > '9' || *end || request.pages == 0)
		return hpzctl_fail_usage(ctl, "%s is no number of pages", operands[1]);
	status = hpzctl_connect(ctl, &hpz);
	if (status)
		return status;
	int error = hpz_resize(hpz, &request, &result);
	if (error)
		return hpzctl_fail(ctl, hpz, error, "demote %s", request.pool);
	cmd_demote_print(ctl, request.pool, &result);
	return result.demoted < request.pages ? HPZCTL_LATER : HPZCTL_DONE;
}
