/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * hook_report.h - what the hook's worker tells its parent while it works. Whoever keeps the log may never
 * read it, so that nothing is said to it before the work is done: the parent does that, last.
 */
#ifndef HPZ_HOOK_REPORT_H
#define HPZ_HOOK_REPORT_H

#include "util.h"

#define HOOK_REPORT_NAME  256
#define HOOK_REPORT_NOTES 24 /* more are not kept: a call has two or three */

/* In the worker. */
struct hook_report {
	int fd;
	const char *name; /* the domain's */
};

/* In the parent. */
struct hook_result {
	bool is_configured; /* the worker knows how long it may take */
	unsigned deadline_ms;
	bool is_read; /* it knows what the domain wants */
	bool refuses; /* a domain that is not served does not start */
	char name[HOOK_REPORT_NAME];
	bool is_failed; /* it is not to start: one of the notes says why */
	bool is_done;
	size_t count;
	struct hook_line {
		int priority; /* syslog's */
		bool is_refusal;
		char text[1024];
	} notes[HOOK_REPORT_NOTES];
};

/* A line as it is. */
void hook_report_say(const struct hook_report *report, int priority, const char *text);
/* "domain NAME: ...". */
void hook_report_note(const struct hook_report *report, int priority, const char *format, ...) PRINTF(3, 4);
/* The domain is not to start, with a sentence for whoever starts it. */
void hook_report_refuse(const struct hook_report *report, const char *format, ...) PRINTF(2, 3);

void hook_report_configured(const struct hook_report *report, unsigned deadline_ms);
void hook_report_read(const struct hook_report *report, bool refuses);
void hook_report_done(const struct hook_report *report);

/*
 * Takes all that a worker says, until it is done, dead or late: deadline_ms after begin_ns, which counts
 * until it says another. `result` has what came.
 */
void hook_report_receive(int fd, uint64_t begin_ns, unsigned deadline_ms, struct hook_result *result);
/* One note more, of the parent's own. */
void hook_report_add(struct hook_result *result, int priority, bool is_refusal, const char *text);

#endif
