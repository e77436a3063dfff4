/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* hook_report.c - what the hook's worker tells its parent: messages in a pipe, each written at once. */
#include "hook_report.h"

#include <poll.h>
#include <stdarg.h>
#include <syslog.h>

enum report_kind { REPORT_CONFIGURED, REPORT_READ, REPORT_NOTE, REPORT_REFUSAL, REPORT_DONE };

struct report_message {
	enum report_kind kind;
	int number; /* deadline_ms, refuses, priority */
	char text[1024];
};
_Static_assert(sizeof(struct report_message) <= 4096, "a pipe takes it as a whole or not at all");

/* ---- the worker ---- */

static void hook_report_send(
	const struct hook_report *report, enum report_kind kind, int number, const char *text)
{
	struct report_message message = {.kind = kind, .number = number};

	snprintf(message.text, sizeof(message.text), "%s", text);
	/* An error text is hpzd's, and may be of several lines. */
	for (char *at = message.text; (at = strchr(at, '\n')); at++)
		*at = ' ';
	/* Nobody reads it any more: then there is nobody to work for. */
	if (write(report->fd, &message, sizeof(message)) != sizeof(message))
		_exit(1);
}

void hook_report_say(const struct hook_report *report, int priority, const char *text)
{
	hook_report_send(report, REPORT_NOTE, priority, text);
}

void hook_report_note(const struct hook_report *report, int priority, const char *format, ...)
{
	char text[1024], note[1024];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	snprintf(note, sizeof(note), "domain %.255s: %.700s", report->name, text);
	hook_report_send(report, REPORT_NOTE, priority, note);
}

void hook_report_refuse(const struct hook_report *report, const char *format, ...)
{
	char text[1024];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	hook_report_send(report, REPORT_REFUSAL, LOG_ERR, text);
}

void hook_report_configured(const struct hook_report *report, unsigned deadline_ms)
{
	hook_report_send(report, REPORT_CONFIGURED, (int)deadline_ms, "");
}

void hook_report_read(const struct hook_report *report, bool refuses)
{
	hook_report_send(report, REPORT_READ, refuses, report->name);
}

void hook_report_done(const struct hook_report *report)
{
	hook_report_send(report, REPORT_DONE, 0, "");
}

/* ---- the parent ---- */

void hook_report_add(struct hook_result *result, int priority, bool is_refusal, const char *text)
{
	result->is_failed |= is_refusal;
	if (result->count == HOOK_REPORT_NOTES)
		return;
	struct hook_line *line = &result->notes[result->count++];
	line->priority = priority;
	line->is_refusal = is_refusal;
	snprintf(line->text, sizeof(line->text), "%s", text);
}

static void hook_report_take(const struct report_message *message, struct hook_result *result)
{
	switch (message->kind) {
	case REPORT_CONFIGURED:
		result->is_configured = true;
		result->deadline_ms = (unsigned)message->number;
		break;
	case REPORT_READ:
		result->is_read = true;
		result->refuses = message->number;
		snprintf(result->name, sizeof(result->name), "%.255s", message->text);
		break;
	case REPORT_NOTE:
	case REPORT_REFUSAL:
		hook_report_add(result, message->number, message->kind == REPORT_REFUSAL, message->text);
		break;
	case REPORT_DONE:
		result->is_done = true;
		break;
	}
}

void hook_report_receive(int fd, uint64_t begin_ns, unsigned deadline_ms, struct hook_result *result)
{
	struct pollfd look = {.fd = fd, .events = POLLIN};
	struct report_message message;

	result->deadline_ms = deadline_ms;
	while (!result->is_done) {
		uint64_t now_ns = clock_get_ns(CLOCK_MONOTONIC);
		uint64_t end_ns = begin_ns + result->deadline_ms * NS_PER_MS;
		int r = poll(&look, 1, now_ns < end_ns ? (int)((end_ns - now_ns) / NS_PER_MS) : 0);
		if (r < 0 && errno == EINTR)
			continue;
		if (r <= 0 || read(fd, &message, sizeof(message)) != sizeof(message))
			return;
		message.text[sizeof(message.text) - 1] = '\0';
		hook_report_take(&message, result);
	}
}
