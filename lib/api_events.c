/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* api_events.c - what happens: a copy of some events. */
#include "api.h"

struct api_event {
	struct hpz_wire_event wire;
	char label[HPZ_WIRE_LABEL + 1], text[HPZ_WIRE_EVENT_TEXT + 1];
};

struct hpz_events {
	struct hpz_wire_happened head;
	struct api_event *list;
	size_t count;
};

void hpz_events_free(struct hpz_events *events)
{
	if (!events)
		return;
	free(events->list);
	free(events);
}

static void cleanup_events(struct hpz_events **events)
{
	hpz_events_free(*events);
}

static bool api_read_event(struct api_reader *reader, struct api_event *ret_event)
{
	struct hpz_wire_event *wire = &ret_event->wire;

	if (!api_read(reader, wire, sizeof(*wire)) || wire->record != HPZ_RECORD_EVENT || !wire->sequence ||
		wire->pid > INT32_MAX)
		return false;
	proto_get_text(wire->label, sizeof(wire->label), ret_event->label);
	proto_get_text(wire->text, sizeof(wire->text), ret_event->text);
	return true;
}

static int api_read_events(struct hpz *hpz, struct api_reply *reply, struct hpz_events *events)
{
	struct hpz_wire_happened *head = &events->head;

	if (!api_read(&reply->payload, head, sizeof(*head)) || head->cursor > head->last ||
		head->records > reply->payload.left / sizeof(uint32_t))
		return api_fail_protocol(hpz, "malformed events");
	events->list = calloc(head->records + 1, sizeof(*events->list));
	if (!events->list)
		return api_fail_system(hpz, "no memory for the answer");
	while (events->count < head->records) {
		if (!api_read_event(&reply->payload, &events->list[events->count]))
			return api_fail_protocol(hpz, "a malformed event");
		events->count++;
	}
	return reply->payload.left ? api_fail_protocol(hpz, "more than its events") : HPZ_OK;
}

int hpz_get_events(struct hpz *hpz, uint64_t since, int64_t timeout_ms, struct hpz_events **ret_events)
{
	__attribute__((cleanup(cleanup_events))) struct hpz_events *events = NULL;
	_cleanup_api_reply_ struct api_reply reply = {0};
	struct hpz_wire_events wire = {.size = sizeof(wire), .cursor = since, .timeout_ms = timeout_ms};

	int error = api_begin_call(hpz);
	if (error)
		return error;
	if (!ret_events || timeout_ms < HPZ_FOREVER)
		return api_fail(hpz, HPZ_ERR_INVALID, "there is no place for the answer, or no such time");
	events = calloc(1, sizeof(*events));
	if (!events)
		return api_fail_system(hpz, "no memory for the answer");
	error = api_call(hpz, HPZ_OP_EVENTS, &wire, sizeof(wire), timeout_ms, &reply);
	if (!error)
		error = api_read_events(hpz, &reply, events);
	if (!error)
		*ret_events = steal_pointer(&events);
	return error;
}

int hpz_events_get_info(const struct hpz_events *events, struct hpz_events_info *info)
{
	if (!events)
		return HPZ_ERR_INVALID;
	const struct hpz_events_info ours = {.cursor = events->head.cursor,
		.last = events->head.last,
		.missed = events->head.missed,
		.count = events->count};
	return api_put_struct(info, &ours, sizeof(ours));
}

int hpz_events_get_event(const struct hpz_events *events, size_t index, struct hpz_event *event)
{
	if (!events || index >= events->count)
		return HPZ_ERR_INVALID;
	const struct api_event *from = &events->list[index];
	const struct hpz_event ours = {
		.sequence = from->wire.sequence,
		.time_ns = from->wire.time_ns,
		.lease = from->wire.lease,
		.bytes = from->wire.bytes,
		.kind = from->wire.kind,
		.level = from->wire.level,
		.uid = from->wire.uid,
		.pid = (int32_t)from->wire.pid,
		.label = from->label,
		.text = from->text,
	};
	return api_put_struct(event, &ours, sizeof(ours));
}
