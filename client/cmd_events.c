/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* cmd_events.c - hpzctl events: what happens, as it does. */
#include "hpzctl.h"

#include <inttypes.h>
#include <signal.h>
#include <time.h>

#include "options.h"
#include "output.h"
#include "size.h"

#define CMD_EVENTS_SLICE_MS 1000 /* of waiting, between two looks whether it is to end */
#define CMD_EVENTS_RETRY_MS 200

static volatile sig_atomic_t cmd_events_is_over;

static void cmd_events_on_signal(int number)
{
	cmd_events_is_over = 1;
}

static const char *cmd_events_get_kind(uint32_t kind)
{
	static const char *const names[] = {[HPZ_EVENT_LOG] = "log",
		[HPZ_EVENT_GRANTED] = "granted",
		[HPZ_EVENT_WAITING] = "waiting",
		[HPZ_EVENT_REFUSED] = "refused",
		[HPZ_EVENT_ENDED] = "ended",
		[HPZ_EVENT_HELD] = "held",
		[HPZ_EVENT_RETURNED] = "returned"};

	return kind < ARRAY_SIZE(names) && names[kind] ? names[kind] : "unknown";
}

struct cmd_events_follow {
	const struct hpzctl *ctl;
	uint64_t since;
	uint64_t left;   /* so many more are printed; UINT64_MAX: no end */
	uint64_t end_ms; /* 0: none */
};

/* ---- printing ---- */

static void cmd_events_print_json(const struct hpz_event *event)
{
	struct output_json json;

	output_json_init(&json, stdout);
	output_json_open_object(&json, NULL);
	output_json_text(&json, "schema", "hpz-event-1");
	output_json_number(&json, "sequence", event->sequence);
	output_json_number(&json, "time_ns", event->time_ns);
	output_json_text(&json, "kind", cmd_events_get_kind(event->kind));
	if (event->kind == HPZ_EVENT_LOG)
		output_json_number(&json, "level", event->level);
	else
		output_json_null(&json, "level");
	if (event->lease)
		output_json_number(&json, "lease", event->lease);
	else
		output_json_null(&json, "lease");
	output_json_text_or_null(&json, "label", event->label);
	output_json_number(&json, "bytes", event->bytes);
	if (event->uid == UINT32_MAX)
		output_json_null(&json, "uid");
	else
		output_json_number(&json, "uid", event->uid);
	if (event->pid)
		output_json_integer(&json, "pid", event->pid);
	else
		output_json_null(&json, "pid");
	output_json_text_or_null(&json, "text", event->text);
	output_json_close(&json);
}

/* "12:03:07.123 granted   85428223344 web1, 4 GiB" */
static void cmd_events_print_line(const struct hpz_event *event)
{
	time_t seconds = (time_t)(event->time_ns / NS_PER_S);
	char time_text[16] = "?", size[SIZE_TEXT];
	struct tm local;

	if (localtime_r(&seconds, &local))
		strftime(time_text, sizeof(time_text), "%H:%M:%S", &local);
	printf("%s.%03u %-9s", time_text, (unsigned)(event->time_ns % NS_PER_S / NS_PER_MS),
		cmd_events_get_kind(event->kind));
	if (event->lease)
		printf(" %" PRIu64, event->lease);
	if (*event->label) {
		putchar(' ');
		output_print_text(stdout, event->label);
	}
	if (event->bytes)
		printf(", %s", size_format(event->bytes, size));
	if (event->kind == HPZ_EVENT_WAITING || event->kind == HPZ_EVENT_REFUSED)
		printf(" uid %" PRIu32 ", process %" PRId32, event->uid, event->pid);
	if (*event->text) {
		fputs(event->kind == HPZ_EVENT_LOG ? " " : ": ", stdout);
		output_print_text(stdout, event->text);
	}
	putchar('\n');
}

static void cmd_events_say_missed(uint64_t missed)
{
	hpzctl_say("%" PRIu64 " events were forgotten before they could be read", missed);
}

static void cmd_events_print(struct cmd_events_follow *follow, const struct hpz_events *events)
{
	struct hpz_events_info info = {.struct_size = sizeof(info)};

	hpz_events_get_info(events, &info);
	if (info.missed && follow->since)
		cmd_events_say_missed(info.missed);
	for (size_t i = 0; i < info.count && follow->left; i++) {
		struct hpz_event event = {.struct_size = sizeof(event)};
		hpz_events_get_event(events, i, &event);
		if (follow->ctl->json)
			cmd_events_print_json(&event);
		else
			cmd_events_print_line(&event);
		follow->left -= follow->left != UINT64_MAX;
	}
	follow->since = info.cursor;
	fflush(stdout);
}

/* ---- following ---- */

/* What hpzd has by now: the number of the last one. */
static int cmd_events_find_last(struct hpz *hpz, uint64_t *ret_last)
{
	struct hpz_events_info info = {.struct_size = sizeof(info)};
	struct hpz_events *events;

	int error = hpz_get_events(hpz, 0, 0, &events);
	if (error)
		return error;
	hpz_events_get_info(events, &info);
	hpz_events_free(events);
	*ret_last = info.last;
	return HPZ_OK;
}

/* Until hpzd is back, or somebody has had enough. It counts anew then: all it has is news. */
static void cmd_events_reconnect(struct cmd_events_follow *follow, struct hpz *hpz)
{
	const struct timespec pause = {.tv_nsec = (long)(CMD_EVENTS_RETRY_MS * NS_PER_MS)};

	hpzctl_say("hpzd is gone; waiting for it");
	while (!cmd_events_is_over && hpz_reconnect(hpz) != HPZ_OK)
		nanosleep(&pause, NULL);
	follow->since = 0;
}

static bool cmd_events_goes_on(const struct cmd_events_follow *follow)
{
	return !cmd_events_is_over && follow->left && !ferror(stdout) &&
	       (!follow->end_ms || clock_get_ns(CLOCK_MONOTONIC) / NS_PER_MS < follow->end_ms);
}

static int cmd_events_run(struct cmd_events_follow *follow, struct hpz *hpz)
{
	const struct sigaction action = {.sa_handler = cmd_events_on_signal};

	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	while (cmd_events_goes_on(follow)) {
		struct hpz_events *events = NULL;
		int error = hpz_get_events(hpz, follow->since, CMD_EVENTS_SLICE_MS, &events);
		if (error == HPZ_ERR_LOST)
			cmd_events_reconnect(follow, hpz);
		else if (error && error != HPZ_ERR_TIMEOUT)
			return hpzctl_fail(follow->ctl, hpz, error, "cannot follow what happens");
		if (!error)
			cmd_events_print(follow, events);
		hpz_events_free(events);
	}
	return HPZCTL_DONE;
}

int cmd_events(struct hpzctl *ctl, int argc, char **argv)
{
	_cleanup_hpz_ struct hpz *hpz = NULL;
	struct cmd_events_follow follow = {.ctl = ctl, .left = UINT64_MAX};
	uint64_t last = 0, count = 0, newest;
	int64_t timeout_ms = HPZ_FOREVER;
	const struct options_row rows[] = {
		{"last", OPTIONS_COUNT, &last, "N", "begin with the last N that hpzd still has"},
		{"count", OPTIONS_COUNT, &count, "N", "end after so many"},
		{"timeout", OPTIONS_SECONDS, &timeout_ms, "SECONDS", "end after so long"},
	};
	char **operands;
	int operand_count;

	int status = options_parse(ctl, rows, ARRAY_SIZE(rows), argc, argv, false, &operands, &operand_count);
	if (status == OPTIONS_GO)
		status = options_refuse_operands(ctl, operands, operand_count);
	if (status != OPTIONS_GO)
		return status;
	status = hpzctl_connect(ctl, &hpz);
	if (status)
		return status;
	int error = cmd_events_find_last(hpz, &newest);
	if (error)
		return hpzctl_fail(ctl, hpz, error, "cannot follow what happens");
	follow.since = newest - MIN(last, newest);
	follow.left = count ? count : UINT64_MAX;
	if (timeout_ms != HPZ_FOREVER)
		follow.end_ms = clock_get_ns(CLOCK_MONOTONIC) / NS_PER_MS + (uint64_t)timeout_ms;
	return cmd_events_run(&follow, hpz);
}
