/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* cmd_status.c - hpzctl status: the pools, what they lack, and the leases. */
#include "hpzctl.h"

#include <inttypes.h>

#include "clearing.h"
#include "demand.h"
#include "leases.h"
#include "options.h"
#include "output.h"
#include "size.h"

static void cmd_status_cleanup(struct hpz_status **status)
{
	hpz_status_free(*status);
}
#define _cleanup_status_ __attribute__((cleanup(cmd_status_cleanup)))

static void cmd_status_cleanup_clearing(struct hpz_clearing **clearing)
{
	hpz_clearing_free(*clearing);
}
#define _cleanup_clearing_ __attribute__((cleanup(cmd_status_cleanup_clearing)))

static void cmd_status_cleanup_demand(struct hpz_demand **demand)
{
	hpz_demand_free(*demand);
}
#define _cleanup_demand_ __attribute__((cleanup(cmd_status_cleanup_demand)))

static void cmd_status_get_pool(
	const struct hpz_status *status, size_t index, struct hpz_pool_status *ret_pool)
{
	*ret_pool = (struct hpz_pool_status){.struct_size = sizeof(*ret_pool)};
	hpz_status_get_pool(status, index, ret_pool);
}

/* ---- JSON ---- */

static void cmd_status_print_pool_json(struct output_json *json, const struct hpz_pool_status *pool)
{
	output_json_open_object(json, NULL);
	output_json_text(json, "name", pool->name);
	output_json_number(json, "page_size", pool->page_size);
	output_json_integer(json, "node", pool->node);
	output_json_number(json, "target", pool->target);
	output_json_number(json, "configured", pool->configured);
	output_json_number(json, "total", pool->total);
	output_json_number(json, "clean", pool->clean);
	output_json_number(json, "leased", pool->leased);
	output_json_number(json, "returning", pool->returning);
	output_json_number(json, "dirty", pool->dirty);
	output_json_number(json, "filling", pool->filling);
	output_json_number(json, "holes", pool->holes);
	output_json_number(json, "raised", pool->raised);
	output_json_number(json, "give_back", pool->give_back);
	output_json_open_object(json, "kernel");
	output_json_number(json, "nr", pool->kernel_nr);
	output_json_number(json, "free", pool->kernel_free);
	output_json_number(json, "resv", pool->kernel_resv);
	output_json_close(json);
	output_json_number(json, "largest_clean", pool->largest_clean);
	output_json_number(json, "clean_segments", pool->clean_segments);
	output_json_number(json, "waiting", pool->waiting);
	output_json_bool(json, "idle", pool->idle);
	output_json_number(json, "orphans", pool->orphans);
	output_json_number(json, "orphan_pages", pool->orphan_pages);
	output_json_number(json, "retired_pages", pool->retired_pages);
	output_json_number(json, "verified_pages", pool->verified_pages);
	output_json_number(json, "verify_hits", pool->verify_hits);
	output_json_number(json, "sigbus", pool->sigbus);
	output_json_number(json, "reserved", pool->reserved_pages);
	output_json_text_or_null(json, "mount", pool->mount);
	output_json_text_or_null(json, "message", pool->message);
	output_json_close(json);
}

static void cmd_status_print_json(const struct hpz_status *status, const struct hpz_daemon_status *daemon,
	const struct hpz_lease_list *list, const struct hpz_clearing *clearing,
	const struct hpz_demand *demand)
{
	struct output_json json;

	output_json_init(&json, stdout);
	output_json_open_object(&json, NULL);
	output_json_text(&json, "schema", "hpz-status-1");
	output_json_text(&json, "version", daemon->version);
	output_json_text_or_null(&json, "proof", daemon->proof);
	output_json_text_or_null(&json, "method", daemon->method);
	output_json_text_or_null(&json, "message", daemon->message);
	output_json_number(&json, "uptime_ms", daemon->uptime_ms);
	output_json_number(&json, "workers", daemon->worker_count);
	output_json_number(&json, "worker_deaths", daemon->worker_deaths);
	output_json_number(&json, "book_alarms", daemon->book_alarms);
	output_json_number(&json, "connections", daemon->connection_count);
	output_json_number(&json, "leases_granted", daemon->leases_granted);
	output_json_number(&json, "bytes_cleared", daemon->bytes_cleared);
	output_json_number(&json, "bytes_filled", daemon->bytes_filled);
	output_json_open_list(&json, "pools");
	for (uint32_t i = 0; i < daemon->pool_count; i++) {
		struct hpz_pool_status pool;
		cmd_status_get_pool(status, i, &pool);
		cmd_status_print_pool_json(&json, &pool);
	}
	output_json_close(&json);
	demand_print_json(&json, "demand", demand);
	clearing_print_json(&json, clearing);
	leases_print_json(&json, list);
	output_json_close(&json);
}

/* ---- for people ---- */

/* Pages as memory, "-" for none: zeros all over a table hide the figures that matter. */
static void cmd_status_add_pages(struct output_table *table, uint64_t pages, uint64_t page_size)
{
	char text[SIZE_TEXT];

	output_table_add(table, "%s", pages ? size_format(pages * page_size, text) : "-");
}

static void cmd_status_add_pool(struct output_table *table, const struct hpz_pool_status *pool)
{
	char text[SIZE_TEXT];

	output_table_add(table, "%s", pool->name);
	output_table_add(table, "%" PRId32, pool->node);
	output_table_add(table, "%s", size_format(pool->page_size, text));
	cmd_status_add_pages(table, pool->target, pool->page_size);
	cmd_status_add_pages(table, pool->clean, pool->page_size);
	cmd_status_add_pages(table, pool->leased, pool->page_size);
	cmd_status_add_pages(table, pool->dirty, pool->page_size);
	cmd_status_add_pages(table, pool->filling, pool->page_size);
	cmd_status_add_pages(table, pool->holes, pool->page_size);
	output_table_add(table, "%" PRIu32, pool->waiting);
	output_table_add(table, "%s", pool->largest_clean ? size_format(pool->largest_clean, text) : "-");
}

/* "name: text" when there is text. */
static void cmd_status_print_message(const char *name, const char *message)
{
	if (!*message)
		return;
	output_print_text(stdout, name);
	fputs(": ", stdout);
	output_print_text(stdout, message);
	putchar('\n');
}

static void cmd_status_print_reserved(const struct hpz_pool_status *pool)
{
	char size[SIZE_TEXT];

	if (pool->reserved_pages == 0)
		return;
	output_print_text(stdout, pool->name);
	printf(": %s of it is reserved; see hpzctl leases\n",
		size_format(pool->reserved_pages * pool->page_size, size));
}

/* What should not be, in a line each: it has no column, because it should always be empty. */
static void cmd_status_print_faults(const struct hpz_pool_status *pool)
{
	char size[SIZE_TEXT];

	if (pool->orphan_pages) {
		output_print_text(stdout, pool->name);
		printf(": %s of %" PRIu32 " files that are gone are held by somebody; see hpzctl leases\n",
			size_format(pool->orphan_pages * pool->page_size, size), pool->orphans);
	}
	if (pool->retired_pages || pool->sigbus || pool->verify_hits) {
		output_print_text(stdout, pool->name);
		printf(": %s retired; %" PRIu32 " clean segments were not zero, %" PRIu32
		       " times memory was broken or missing; the log says where\n",
			size_format(pool->retired_pages * pool->page_size, size), pool->verify_hits,
			pool->sigbus);
	}
}

static void cmd_status_print_pools(const struct hpz_status *status, uint32_t pool_count)
{
	static const char *const headings[] = {"POOL", ">NODE", ">PAGE", ">TARGET", ">CLEAN", ">LEASED",
		">DIRTY", ">FILLING", ">HOLES", ">WAITING", ">LARGEST"};
	struct output_table table;
	struct hpz_pool_status pool;

	output_table_init(&table, headings, ARRAY_SIZE(headings));
	for (uint32_t i = 0; i < pool_count; i++) {
		cmd_status_get_pool(status, i, &pool);
		cmd_status_add_pool(&table, &pool);
	}
	output_table_print(&table, stdout);
	output_table_deinit(&table);
	for (uint32_t i = 0; i < pool_count; i++) {
		cmd_status_get_pool(status, i, &pool);
		cmd_status_print_message(pool.name, pool.message);
		cmd_status_print_reserved(&pool);
		cmd_status_print_faults(&pool);
	}
}

static void cmd_status_print(const struct hpz_status *status, const struct hpz_daemon_status *daemon,
	const struct hpz_lease_list *list, const struct hpz_clearing *clearing,
	const struct hpz_demand *demand)
{
	char uptime[OUTPUT_DURATION];

	fputs("hpzd ", stdout);
	output_print_text(stdout, daemon->version);
	printf(", up %s; reuse is proven by: ", output_format_duration(daemon->uptime_ms, uptime));
	output_print_text(stdout, *daemon->proof ? daemon->proof : "?");
	fputs("; memory is cleared with: ", stdout);
	output_print_text(stdout, *daemon->method ? daemon->method : "not known yet");
	putchar('\n');
	cmd_status_print_message("hpzd", daemon->message);
	putchar('\n');
	if (daemon->pool_count)
		cmd_status_print_pools(status, daemon->pool_count);
	else
		puts("No pools: /etc/hpz/hpzd.conf makes them.");
	demand_print_summary(stdout, demand);
	putchar('\n');
	clearing_print(stdout, clearing);
	if (hpz_list_get_count(list))
		leases_print_table(stdout, list, false);
	else
		puts("No leases.");
}

int cmd_status(struct hpzctl *ctl, int argc, char **argv)
{
	_cleanup_hpz_ struct hpz *hpz = NULL;
	_cleanup_status_ struct hpz_status *status = NULL;
	_cleanup_list_ struct hpz_lease_list *list = NULL;
	_cleanup_clearing_ struct hpz_clearing *clearing = NULL;
	_cleanup_demand_ struct hpz_demand *demand = NULL;
	struct hpz_daemon_status daemon = {.struct_size = sizeof(daemon)};
	char **operands;
	int count;

	int exit_status = options_parse(ctl, NULL, 0, argc, argv, false, &operands, &count);
	if (exit_status == OPTIONS_GO)
		exit_status = options_refuse_operands(ctl, operands, count);
	if (exit_status != OPTIONS_GO)
		return exit_status;
	exit_status = hpzctl_connect(ctl, &hpz);
	if (exit_status)
		return exit_status;
	int error = hpz_get_status(hpz, &status);
	if (!error)
		error = hpz_list(hpz, &list);
	if (!error)
		error = hpz_get_clearing(hpz, &clearing);
	if (!error)
		error = hpz_get_demand(hpz, &demand);
	if (error == HPZ_ERR_UNSUPPORTED) /* an older hpzd */
		error = HPZ_OK;
	if (error)
		return hpzctl_fail(ctl, hpz, error, "cannot get the status");
	hpz_status_get_daemon(status, &daemon);
	if (ctl->json)
		cmd_status_print_json(status, &daemon, list, clearing, demand);
	else
		cmd_status_print(status, &daemon, list, clearing, demand);
	return HPZCTL_DONE;
}
