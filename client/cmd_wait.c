/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* cmd_wait.c - hpzctl wait and drain. */
#include "hpzctl.h"

#include "leases.h"
#include "options.h"
#include "output.h"
#include "size.h"

/* ---- wait ---- */

#define CMD_WAIT_SLICE_MS 1000

struct cmd_wait_figures {
	uint64_t clean, done, wanted; /* bytes */
};

/*
 * How far the pools are. Without a number of bytes to wait for, memory in use counts as done: it is not what
 * anybody waits for.
 */
static int cmd_wait_look(
	struct hpz *hpz, const struct hpz_wait_request *request, struct cmd_wait_figures *ret_figures)
{
	struct cmd_wait_figures figures = {0};
	struct hpz_daemon_status daemon = {.struct_size = sizeof(daemon)};
	struct hpz_status *status;

	int error = hpz_get_status(hpz, &status);
	if (error)
		return error;
	hpz_status_get_daemon(status, &daemon);
	for (uint32_t i = 0; i < daemon.pool_count; i++) {
		struct hpz_pool_status pool = {.struct_size = sizeof(pool)};
		hpz_status_get_pool(status, i, &pool);
		if (request->pool && strcmp(request->pool, pool.name) != 0)
			continue;
		figures.clean += pool.clean * pool.page_size;
		figures.done +=
			(pool.clean + pool.leased - MIN(pool.returning, pool.leased)) * pool.page_size;
		figures.wanted += pool.target * pool.page_size;
	}
	hpz_status_free(status);
	if (request->clean) {
		figures.done = figures.clean;
		figures.wanted = request->clean;
	}
	*ret_figures = figures;
	return HPZ_OK;
}

/* Waits a second at a time and draws in between. */
static int cmd_wait_visibly(struct hpz *hpz, const struct hpz_wait_request *request)
{
	uint64_t start_ns = clock_get_ns(CLOCK_MONOTONIC);
	struct hpz_wait_request slice = *request;
	struct cmd_wait_figures figures;
	int error;

	while (1) {
		int64_t spent_ms = (int64_t)((clock_get_ns(CLOCK_MONOTONIC) - start_ns) / NS_PER_MS);
		int64_t left_ms = request->timeout_ms - spent_ms;
		bool is_limited = request->timeout_ms != HPZ_FOREVER;
		slice.timeout_ms = is_limited ? MAX(0, MIN(left_ms, CMD_WAIT_SLICE_MS)) : CMD_WAIT_SLICE_MS;
		error = hpz_wait(hpz, &slice);
		if (error != HPZ_ERR_TIMEOUT || (is_limited && left_ms <= CMD_WAIT_SLICE_MS))
			break;
		if (cmd_wait_look(hpz, request, &figures) == HPZ_OK)
			output_progress(stderr, figures.done, figures.wanted);
	}
	output_progress_end(stderr);
	return error;
}

static void cmd_wait_print(const struct hpzctl *ctl, bool is_done, const struct cmd_wait_figures *figures)
{
	char size[SIZE_TEXT];
	struct output_json json;

	if (!ctl->json) {
		printf("%s clean\n", size_format(figures->clean, size));
		return;
	}
	output_json_init(&json, stdout);
	output_json_open_object(&json, NULL);
	output_json_text(&json, "schema", "hpz-wait-1");
	output_json_bool(&json, "done", is_done);
	output_json_number(&json, "clean", figures->clean);
	output_json_close(&json);
}

int cmd_wait(struct hpzctl *ctl, int argc, char **argv)
{
	_cleanup_hpz_ struct hpz *hpz = NULL;
	struct hpz_wait_request request = HPZ_WAIT_REQUEST_INIT;
	struct cmd_wait_figures figures;
	const struct options_row rows[] = {
		{"pool", OPTIONS_TEXT, &request.pool, "NAME", "only this pool"},
		{"clean", OPTIONS_SIZE, &request.clean, "SIZE",
			"until so much is clean (default: until the stock is full)"},
		{"timeout", OPTIONS_SECONDS, &request.timeout_ms, "S", "give up after that (default: never)"},
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
	int error = isatty(STDERR_FILENO) ? cmd_wait_visibly(hpz, &request) : hpz_wait(hpz, &request);
	if (error)
		status = hpzctl_fail(ctl, hpz, error, "wait");
	if ((!error || error == HPZ_ERR_TIMEOUT) && cmd_wait_look(hpz, &request, &figures) == HPZ_OK)
		cmd_wait_print(ctl, !error, &figures);
	return status;
}

/* ---- drain ---- */

#define CMD_DRAIN_TIMEOUT_MS 60000

static void cmd_drain_print_json(bool is_drained, const struct hpz_lease_list *list)
{
	struct output_json json;

	output_json_init(&json, stdout);
	output_json_open_object(&json, NULL);
	output_json_text(&json, "schema", "hpz-drain-1");
	output_json_bool(&json, "drained", is_drained);
	leases_print_json(&json, list);
	output_json_close(&json);
}

int cmd_drain(struct hpzctl *ctl, int argc, char **argv)
{
	_cleanup_hpz_ struct hpz *hpz = NULL;
	_cleanup_list_ struct hpz_lease_list *list = NULL;
	bool gives_back = false;
	int64_t timeout_ms = CMD_DRAIN_TIMEOUT_MS;
	const struct options_row rows[] = {
		{"give-back", OPTIONS_FLAG, &gives_back, NULL,
			"also lower nr_hugepages by what hpzd raised it by"},
		{"timeout", OPTIONS_SECONDS, &timeout_ms, "S", "how long it may take (default: 60)"},
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
	int error = hpz_drain(hpz, gives_back ? HPZ_DRAIN_GIVE_BACK : 0, timeout_ms, NULL);
	if (error)
		status = hpzctl_fail(ctl, hpz, error, "drain");
	if (error && error != HPZ_ERR_IN_USE && error != HPZ_ERR_TIMEOUT)
		return status;
	if (hpz_list(hpz, &list))
		return status;
	if (ctl->json)
		cmd_drain_print_json(!error, list);
	else if (error)
		leases_print_table(stdout, list, true);
	else
		puts("Every pool is empty.");
	return status;
}
