/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* cmd_teardown.c - hpzctl teardown: what the ends of leases cost. */
#include "hpzctl.h"

#include <inttypes.h>
#include <signal.h>

#include "options.h"
#include "teardown.h"

#define CMD_TEARDOWN_LAST     20
#define CMD_TEARDOWN_SLICE_MS 1000 /* of waiting, between two looks whether it is to end */
#define CMD_TEARDOWN_RETRY_MS 200

static void cmd_teardown_cleanup(struct hpz_teardown **teardown)
{
	hpz_teardown_free(*teardown);
}
#define _cleanup_teardown_ __attribute__((cleanup(cmd_teardown_cleanup)))

/* ---- watch ---- */

static volatile sig_atomic_t cmd_teardown_is_over;

static void cmd_teardown_on_signal(int number)
{
	cmd_teardown_is_over = 1;
}

struct cmd_teardown_watch {
	const struct hpzctl *ctl;
	const struct teardown_filter *filter;
	uint64_t revision; /* seen so far */
	uint64_t sequence;
	bool has_printed;
};

static void cmd_teardown_say_missed(const struct cmd_teardown_watch *watch, uint64_t missed)
{
	struct output_json json;

	hpzctl_say("%" PRIu64 " ends were forgotten before they could be read", missed);
	if (!watch->ctl->json)
		return;
	output_json_init(&json, stdout);
	output_json_open_object(&json, NULL);
	output_json_text(&json, "schema", "hpz-teardown-missed-1");
	output_json_number(&json, "missed", missed);
	output_json_close(&json);
}

/* Those that are complete, each once for people; for programs again when something was heard of it later. */
static void cmd_teardown_print_news(struct cmd_teardown_watch *watch, const struct hpz_teardown *news)
{
	struct hpz_teardown_info info = {.struct_size = sizeof(info)};
	uint64_t new = 0, last = watch->sequence;

	hpz_teardown_get_info(news, &info);
	for (size_t i = 0; i < info.record_count; i++) {
		struct hpz_teardown_record record = {.struct_size = sizeof(record)};
		hpz_teardown_get_record(news, i, &record);
		watch->revision = MAX(watch->revision, record.revision);
		bool is_new = record.sequence > watch->sequence;
		new += is_new;
		last = MAX(last, record.sequence);
		if (!record.sequence || !teardown_is_chosen(watch->filter, &record))
			continue;
		if (watch->ctl->json)
			teardown_print_record_json(stdout, &record, info.now_ns);
		else if (is_new)
			teardown_print_line(stdout, &record, !watch->has_printed);
		watch->has_printed = true;
	}
	/* They are numbered without a gap; who sees only its own cannot tell. */
	if (!info.is_own && last - watch->sequence > new)
		cmd_teardown_say_missed(watch, last - watch->sequence - new);
	watch->sequence = last;
	fflush(stdout);
}

/* Until hpzd is back, or somebody has had enough. What it counted goes on, in this boot. */
static void cmd_teardown_reconnect(struct cmd_teardown_watch *watch, struct hpz *hpz)
{
	const struct timespec pause = {.tv_nsec = (long)(CMD_TEARDOWN_RETRY_MS * NS_PER_MS)};

	hpzctl_say("hpzd is gone; waiting for it");
	while (!cmd_teardown_is_over && hpz_reconnect(hpz) != HPZ_OK)
		nanosleep(&pause, NULL);
}

/* A journal that was lost begins anew. */
static void cmd_teardown_check_revision(struct cmd_teardown_watch *watch, const struct hpz_teardown *news)
{
	struct hpz_teardown_info info = {.struct_size = sizeof(info)};

	hpz_teardown_get_info(news, &info);
	if (info.revision < watch->revision)
		watch->revision = watch->sequence = 0;
}

static int cmd_teardown_look(struct cmd_teardown_watch *watch, struct hpz *hpz)
{
	_cleanup_teardown_ struct hpz_teardown *news = NULL;
	struct hpz_teardown_request request = HPZ_TEARDOWN_REQUEST_INIT;

	request.flags = HPZ_TEARDOWN_RECORDS;
	request.since = watch->revision;
	request.timeout_ms = CMD_TEARDOWN_SLICE_MS;
	int error = hpz_get_teardown(hpz, &request, &news);
	if (error)
		return error;
	cmd_teardown_check_revision(watch, news);
	cmd_teardown_print_news(watch, news);
	return HPZ_OK;
}

/* What there is already is not news. */
static int cmd_teardown_begin(struct cmd_teardown_watch *watch, struct hpz *hpz)
{
	_cleanup_teardown_ struct hpz_teardown *now = NULL;
	struct hpz_teardown_request request = HPZ_TEARDOWN_REQUEST_INIT;
	struct hpz_teardown_info info = {.struct_size = sizeof(info)};

	request.flags = HPZ_TEARDOWN_FACTS; /* the least there is */
	int error = hpz_get_teardown(hpz, &request, &now);
	if (error)
		return error;
	hpz_teardown_get_info(now, &info);
	watch->revision = info.revision;
	watch->sequence = info.sequence;
	return HPZ_OK;
}

static int cmd_teardown_follow(
	const struct hpzctl *ctl, struct hpz *hpz, const struct teardown_filter *filter)
{
	struct cmd_teardown_watch watch = {.ctl = ctl, .filter = filter};
	const struct sigaction action = {.sa_handler = cmd_teardown_on_signal};

	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	int error = cmd_teardown_begin(&watch, hpz);
	while (!cmd_teardown_is_over && !ferror(stdout)) {
		if (error == HPZ_ERR_LOST)
			cmd_teardown_reconnect(&watch, hpz);
		else if (error && error != HPZ_ERR_TIMEOUT)
			return hpzctl_fail(ctl, hpz, error, "cannot follow the ends of leases");
		if (!cmd_teardown_is_over)
			error = cmd_teardown_look(&watch, hpz);
	}
	return HPZCTL_DONE;
}

/* ---- once ---- */

static int cmd_teardown_print(const struct hpzctl *ctl, struct hpz *hpz, const struct teardown_filter *filter)
{
	_cleanup_teardown_ struct hpz_teardown *teardown = NULL;
	struct hpz_teardown_request request = HPZ_TEARDOWN_REQUEST_INIT;

	int error = hpz_get_teardown(hpz, &request, &teardown);
	if (error)
		return hpzctl_fail(ctl, hpz, error, "cannot get what the ends of leases cost");
	if (ctl->json)
		teardown_print_json(stdout, teardown, filter);
	else
		teardown_print(stdout, teardown, filter);
	return HPZCTL_DONE;
}

int cmd_teardown(struct hpzctl *ctl, int argc, char **argv)
{
	_cleanup_hpz_ struct hpz *hpz = NULL;
	struct teardown_filter filter = {0};
	bool watches = false;
	const struct options_row rows[] = {
		{"label", OPTIONS_TEXT, &filter.label, "LABEL", "only leases of this label"},
		{"page-size", OPTIONS_SIZE, &filter.page_size, "SIZE", "only leases of such pages"},
		{"last", OPTIONS_COUNT, &filter.last, "N",
			"so many records (default: 20; with --json all of them)"},
		{"watch", OPTIONS_FLAG, &watches, NULL, "print what ends from now on, until interrupted"},
	};
	char **operands;
	int count;

	int status = options_parse(ctl, rows, ARRAY_SIZE(rows), argc, argv, false, &operands, &count);
	if (status == OPTIONS_GO)
		status = options_refuse_operands(ctl, operands, count);
	if (status != OPTIONS_GO)
		return status;
	if (watches && filter.last)
		return hpzctl_fail_usage(ctl, "--watch begins now: --last goes without it");
	if (!filter.last)
		filter.last = ctl->json ? UINT64_MAX : CMD_TEARDOWN_LAST;
	status = hpzctl_connect(ctl, &hpz);
	if (status)
		return status;
	return watches ? cmd_teardown_follow(ctl, hpz, &filter) : cmd_teardown_print(ctl, hpz, &filter);
}
