/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* report_events.c - puts what happened into wire structs. */
#include "news.h"
#include "report.h"

static_assert(NEWS_LABEL == HPZ_WIRE_LABEL + 1 && NEWS_TEXT == HPZ_WIRE_EVENT_TEXT + 1, "same lengths");

/* Whether a peer may read it: -1: everything, else what is of that uid. */
static bool is_readable(const struct news *event, int64_t uid)
{
	return uid < 0 || (event->uid == (uint64_t)uid && event->kind != HPZ_EVENT_LOG);
}

static void report_event(const struct news *event, struct hpz_wire_event *ret_record)
{
	*ret_record = (struct hpz_wire_event){
		.size = sizeof *ret_record,
		.record = HPZ_RECORD_EVENT,
		.sequence = event->sequence,
		.time_ns = event->time_ns,
		.kind = event->kind,
		.level = event->level,
		.lease = event->lease,
		.bytes = event->bytes,
		.uid = event->uid,
		.pid = (uint32_t)event->pid,
	};
	proto_set_text(ret_record->label, sizeof ret_record->label, event->label);
	proto_set_text(ret_record->text, sizeof ret_record->text, event->text);
}

bool report_has_events(uint64_t since, int64_t uid)
{
	struct news event;
	if (since > news_get_last()) /* of an earlier hpzd: all is new */
		return true;
	while (news_get_next(since, &event)) {
		if (is_readable(&event, uid))
			return true;
		since = event.sequence;
	}
	return false;
}

size_t report_events(uint64_t since, int64_t uid, void *buffer, size_t capacity)
{
	struct hpz_wire_happened *head = buffer;
	struct hpz_wire_event *record = (struct hpz_wire_event *)(head + 1);
	size_t most = (capacity - sizeof *head) / sizeof *record;
	struct news event;
	*head = (struct hpz_wire_happened){.size = sizeof *head, .last = news_get_last()};
	if (since > head->last)
		since = 0;
	while (head->records < most && news_get_next(since, &event)) {
		head->missed += event.sequence - since - 1;
		since = event.sequence;
		if (!is_readable(&event, uid))
			continue;
		report_event(&event, record++);
		head->records++;
	}
	head->cursor = since;
	return sizeof *head + head->records * sizeof *record;
}
