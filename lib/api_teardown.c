/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* api_teardown.c - what the ends of leases cost: a copy of what hpzd has, page by page. */
#include "api.h"

#define API_MOST_RECORDS (1u << 20) /* a server that has more is not ours */

struct api_teardown_record {
	struct hpz_wire_teardown_record wire;
	char label[HPZ_WIRE_LABEL + 1];
	char comm[16 + 1];
	char regime[HPZ_WIRE_REGIME + 1];
};

struct api_histogram {
	struct hpz_wire_histogram wire;
	char label[HPZ_WIRE_LABEL + 1];
	char regime[HPZ_WIRE_REGIME + 1];
};

struct api_fact {
	char name[HPZ_WIRE_NAME + 1];
	char value[HPZ_WIRE_FACT + 1];
	char where[HPZ_WIRE_FACT + 1];
};

struct hpz_teardown {
	struct hpz_wire_torn_down head; /* of the last answer */
	char regime[HPZ_WIRE_REGIME + 1];
	char gap[HPZ_WIRE_TEXT + 1];
	struct api_teardown_record *records;
	struct api_histogram *histograms;
	struct api_fact *facts;
	size_t record_count, histogram_count, fact_count;
};

void hpz_teardown_free(struct hpz_teardown *teardown)
{
	if (!teardown)
		return;
	free(teardown->records);
	free(teardown->histograms);
	free(teardown->facts);
	free(teardown);
}

static void cleanup_teardown(struct hpz_teardown **teardown)
{
	hpz_teardown_free(*teardown);
}

/* ---- one page ---- */

static bool api_read_record(struct api_reader *reader, struct api_teardown_record *ret_record)
{
	struct hpz_wire_teardown_record *wire = &ret_record->wire;

	if (!api_read(reader, wire, sizeof(*wire)) || wire->record != HPZ_RECORD_TEARDOWN || !wire->revision)
		return false;
	proto_get_text(wire->label, sizeof(wire->label), ret_record->label);
	proto_get_text(wire->comm, sizeof(wire->comm), ret_record->comm);
	proto_get_text(wire->regime, sizeof(wire->regime), ret_record->regime);
	return true;
}

static bool api_read_histogram(struct api_reader *reader, struct api_histogram *ret_histogram)
{
	struct hpz_wire_histogram *wire = &ret_histogram->wire;

	if (!api_read(reader, wire, sizeof(*wire)) || wire->record != HPZ_RECORD_HISTOGRAM || wire->rest > 1)
		return false;
	proto_get_text(wire->label, sizeof(wire->label), ret_histogram->label);
	proto_get_text(wire->regime, sizeof(wire->regime), ret_histogram->regime);
	return true;
}

static bool api_read_fact(struct api_reader *reader, struct api_fact *ret_fact)
{
	struct hpz_wire_fact wire;

	if (!api_read(reader, &wire, sizeof(wire)) || wire.record != HPZ_RECORD_FACT)
		return false;
	proto_get_text(wire.name, sizeof(wire.name), ret_fact->name);
	proto_get_text(wire.value, sizeof(wire.value), ret_fact->value);
	proto_get_text(wire.where, sizeof(wire.where), ret_fact->where);
	return true;
}

/* Room for `more` behind `count`. False: there is none. */
static bool api_grow(void *array, size_t count, size_t more, size_t each)
{
	void *old, *grown;

	memcpy(&old, array, sizeof(old));
	if (more > API_MOST_RECORDS || count > API_MOST_RECORDS)
		return false;
	grown = reallocarray(old, count + more + 1, each);
	if (!grown)
		return false;
	memcpy(array, &grown, sizeof(grown));
	return true;
}

static bool api_make_room(struct hpz_teardown *teardown, uint32_t record, size_t more)
{
	switch (record) {
	case HPZ_RECORD_TEARDOWN:
		return api_grow(&teardown->records, teardown->record_count, more, sizeof(*teardown->records));
	case HPZ_RECORD_HISTOGRAM:
		return api_grow(&teardown->histograms, teardown->histogram_count, more,
			sizeof(*teardown->histograms));
	default:
		return api_grow(&teardown->facts, teardown->fact_count, more, sizeof(*teardown->facts));
	}
}

static bool api_read_one(struct api_reader *reader, struct hpz_teardown *teardown, uint32_t record)
{
	switch (record) {
	case HPZ_RECORD_TEARDOWN:
		return api_read_record(reader, &teardown->records[teardown->record_count++]);
	case HPZ_RECORD_HISTOGRAM:
		return api_read_histogram(reader, &teardown->histograms[teardown->histogram_count++]);
	default:
		return api_read_fact(reader, &teardown->facts[teardown->fact_count++]);
	}
}

static int api_get_teardown_page(
	struct hpz *hpz, struct hpz_wire_teardown *wire, struct hpz_teardown *teardown)
{
	_cleanup_api_reply_ struct api_reply reply = {0};
	struct hpz_wire_torn_down *head = &teardown->head;

	int error = api_call(hpz, HPZ_OP_TEARDOWN, wire, sizeof(*wire), wire->timeout_ms, &reply);
	if (error)
		return error;
	/* A cursor that does not move would keep us here for ever. */
	if (!api_read(&reply.payload, head, sizeof(*head)) ||
		(head->cursor && (head->cursor <= wire->cursor || !head->records)) ||
		head->records > reply.payload.left / sizeof(uint32_t))
		return api_fail_protocol(hpz, "a malformed teardown");
	if (!api_make_room(teardown, wire->record, head->records))
		return api_fail_system(hpz, "no memory for the answer");
	for (uint32_t i = 0; i < head->records; i++) {
		if (!api_read_one(&reply.payload, teardown, wire->record))
			return api_fail_protocol(hpz, "a malformed record of a teardown");
	}
	if (reply.payload.left)
		return api_fail_protocol(hpz, "more than its teardown");
	wire->cursor = head->cursor;
	wire->timeout_ms = 0; /* only for the first */
	return HPZ_OK;
}

/* ---- all of it ---- */

static int api_get_records(
	struct hpz *hpz, const struct hpz_wire_teardown *request, struct hpz_teardown *teardown)
{
	struct hpz_wire_teardown wire = *request;
	int error;

	do {
		error = api_get_teardown_page(hpz, &wire, teardown);
	} while (!error && wire.cursor);
	return error;
}

static int api_check_teardown(
	struct hpz *hpz, const struct hpz_teardown_request *request, struct hpz_teardown_request *ret_known)
{
	int error = api_get_struct(request, ret_known, sizeof(*ret_known), sizeof(*ret_known));

	if (error)
		return api_fail(hpz, error, "the request is NULL, or its struct_size is not one we know");
	if (!ret_known->flags || ret_known->reserved ||
		(ret_known->flags & ~(HPZ_TEARDOWN_RECORDS | HPZ_TEARDOWN_HISTOGRAMS | HPZ_TEARDOWN_FACTS)))
		return api_fail(hpz, HPZ_ERR_INVALID, "nothing is asked for, or something that is not known");
	if (ret_known->timeout_ms && !(ret_known->flags & HPZ_TEARDOWN_RECORDS))
		return api_fail(hpz, HPZ_ERR_INVALID, "only for records can be waited");
	return HPZ_OK;
}

int hpz_get_teardown(
	struct hpz *hpz, const struct hpz_teardown_request *request, struct hpz_teardown **ret_teardown)
{
	static const struct {
		uint32_t flag, record;
	} kinds[] = {
		{HPZ_TEARDOWN_FACTS, HPZ_RECORD_FACT},
		{HPZ_TEARDOWN_HISTOGRAMS, HPZ_RECORD_HISTOGRAM},
		{HPZ_TEARDOWN_RECORDS, HPZ_RECORD_TEARDOWN},
	};
	__attribute__((cleanup(cleanup_teardown))) struct hpz_teardown *teardown = NULL;
	struct hpz_teardown_request known;

	int error = api_begin_call(hpz);
	if (error)
		return error;
	error = api_check_teardown(hpz, request, &known);
	if (error)
		return error;
	if (!ret_teardown)
		return api_fail(hpz, HPZ_ERR_INVALID, "there is no place for the answer");
	teardown = calloc(1, sizeof(*teardown));
	if (!teardown)
		return api_fail_system(hpz, "no memory for the answer");
	for (size_t i = 0; !error && i < ARRAY_SIZE(kinds); i++) {
		struct hpz_wire_teardown wire = {.size = sizeof(wire), .record = kinds[i].record};
		if (kinds[i].record == HPZ_RECORD_TEARDOWN) {
			wire.cursor = known.since;
			wire.timeout_ms = known.timeout_ms;
		}
		if (known.flags & kinds[i].flag)
			error = api_get_records(hpz, &wire, teardown);
	}
	if (error)
		return error;
	proto_get_text(teardown->head.regime, sizeof(teardown->head.regime), teardown->regime);
	proto_get_text(teardown->head.gap, sizeof(teardown->head.gap), teardown->gap);
	*ret_teardown = steal_pointer(&teardown);
	return HPZ_OK;
}

/* ---- what is in it ---- */

int hpz_teardown_get_info(const struct hpz_teardown *teardown, struct hpz_teardown_info *info)
{
	if (!teardown)
		return HPZ_ERR_INVALID;
	struct hpz_teardown_info ours = {
		.revision = teardown->head.revision,
		.sequence = teardown->head.sequence,
		.now_ns = teardown->head.now_ns,
		.source = teardown->head.source,
		.is_own = teardown->head.own,
		.gap = teardown->gap,
		.regime = teardown->regime,
		.record_count = teardown->record_count,
		.histogram_count = teardown->histogram_count,
		.fact_count = teardown->fact_count,
	};
	return api_put_struct(info, &ours, sizeof(ours));
}

int hpz_teardown_get_record(
	const struct hpz_teardown *teardown, size_t index, struct hpz_teardown_record *record)
{
	if (!teardown || index >= teardown->record_count)
		return HPZ_ERR_INVALID;
	const struct hpz_wire_teardown_record *from = &teardown->records[index].wire;
	struct hpz_teardown_record ours = {
		.revision = from->revision,
		.sequence = from->sequence,
		.lease = from->lease,
		.part_of = from->part_of,
		.bytes = from->bytes,
		.page_size = from->page_size,
		.kernel_bytes = from->kernel_bytes,
		.orphan_bytes = from->orphan_bytes,
		.begun_ns = from->begun_ns,
		.gone_ns = from->gone_ns,
		.ended_ns = from->ended_ns,
		.proven_ns = from->proven_ns,
		.clean_ns = from->clean_ns,
		.table_bytes = from->table_bytes,
		.table_age_ns = from->table_age_ns,
		.steal_ns = from->steal_ns,
		.source = from->source,
		.how = from->how,
		.code = from->code,
		.pid = from->pid,
		.holders = from->holders,
		.uid = from->uid,
		.flags = from->flags,
		.label = teardown->records[index].label,
		.comm = teardown->records[index].comm,
		.regime = teardown->records[index].regime,
	};
	memcpy(ours.flushes, from->flushes, sizeof(ours.flushes));
	memcpy(ours.stages, from->stages, sizeof(ours.stages));
	return api_put_struct(record, &ours, sizeof(ours));
}

int hpz_teardown_get_histogram(
	const struct hpz_teardown *teardown, size_t index, struct hpz_teardown_histogram *histogram)
{
	if (!teardown || index >= teardown->histogram_count)
		return HPZ_ERR_INVALID;
	const struct hpz_wire_histogram *from = &teardown->histograms[index].wire;
	struct hpz_teardown_histogram ours = {
		.page_size = from->page_size,
		.stage = from->stage,
		.is_rest = from->rest,
		.label = teardown->histograms[index].label,
		.regime = teardown->histograms[index].regime,
		.count = from->count,
		.sum_ns = from->sum_ns,
		.max_ns = from->max_ns,
	};
	memcpy(ours.buckets, from->buckets, sizeof(ours.buckets));
	return api_put_struct(histogram, &ours, sizeof(ours));
}

int hpz_teardown_get_fact(const struct hpz_teardown *teardown, size_t index, struct hpz_teardown_fact *fact)
{
	if (!teardown || index >= teardown->fact_count)
		return HPZ_ERR_INVALID;
	struct hpz_teardown_fact ours = {
		.name = teardown->facts[index].name,
		.value = teardown->facts[index].value,
		.where = teardown->facts[index].where,
	};
	return api_put_struct(fact, &ours, sizeof(ours));
}
