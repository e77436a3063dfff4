/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* report_teardown.c - puts what the ends of leases cost into wire structs. */
#include "report.h"

_Static_assert(TEARDOWN_KEYS *TEARDOWN_STAGES <= HPZ_WIRE_HISTOGRAMS && TEARDOWN_KEPT == HPZ_WIRE_TEARDOWNS &&
		       TEARDOWN_STAGES == HPZ_WIRE_STAGES,
	"as proto.h says");

static void report_record(const struct teardown_record *record, struct hpz_wire_teardown_record *ret_wire)
{
	const struct exits_seen *exit = &record->exit;
	*ret_wire = (struct hpz_wire_teardown_record){
		.size = sizeof *ret_wire,
		.record = HPZ_RECORD_TEARDOWN,
		.revision = record->revision,
		.sequence = record->sequence,
		.lease = record->lease,
		.part_of = record->part_of,
		.bytes = record->bytes,
		.page_size = record->page_size,
		.kernel_bytes = record->kernel_bytes,
		.orphan_bytes = record->orphan_bytes,
		.begun_ns = exit->begun_ns,
		.gone_ns = exit->gone_ns,
		.ended_ns = record->ended_ns,
		.proven_ns = record->proven_ns,
		.clean_ns = record->is_complete ? record->clean_ns : EXITS_NONE,
		.table_bytes = exit->table_bytes,
		.table_age_ns = exit->table_age_ns,
		.steal_ns = exit->steal_ns,
		.source = exit->source,
		.how = record->how,
		.code = exit->code,
		.pid = exit->pid,
		.holders = record->holders,
		.uid = record->uid,
		.flags = (record->is_forced ? HPZ_TEARDOWN_FORCED : 0) |
			 (record->was_restarted ? HPZ_TEARDOWN_RESTART : 0),
	};
	memcpy(ret_wire->flushes, exit->flushes, sizeof ret_wire->flushes);
	for (unsigned i = 0; i < TEARDOWN_STAGES; i++) {
		uint64_t ns;
		bool is_seen = teardown_get_stage(record, (enum hpz_teardown_stage)(i + 1), &ns);
		ret_wire->stages[i] = is_seen ? ns : EXITS_NONE;
	}
	proto_set_text(ret_wire->label, sizeof ret_wire->label, record->label);
	proto_set_text(ret_wire->comm, sizeof ret_wire->comm, record->comm);
	proto_set_text(ret_wire->regime, sizeof ret_wire->regime, record->regime);
}

static size_t report_records(const struct teardown *teardown, uint64_t cursor, int64_t uid,
	struct hpz_wire_torn_down *head, size_t capacity)
{
	struct hpz_wire_teardown_record *at = (struct hpz_wire_teardown_record *)(head + 1);
	size_t most = (capacity - sizeof *head) / sizeof *at;
	const struct teardown_record *record = teardown_find_news(teardown, cursor, uid);
	const struct list *pos = record ? &record->link : &teardown->records;
	for (; pos != &teardown->records; pos = pos->next) {
		record = CONTAINER_OF(pos, struct teardown_record, link);
		if (uid >= 0 && record->uid != uid)
			continue;
		if (head->records == most) {
			head->cursor = at[-1].revision;
			break;
		}
		report_record(record, at++);
		head->records++;
	}
	return sizeof *head + head->records * sizeof *at;
}

static void report_histogram(
	const struct teardown_key *key, unsigned stage, struct hpz_wire_histogram *ret_wire)
{
	const struct teardown_histogram *histogram = &key->histograms[stage];
	*ret_wire = (struct hpz_wire_histogram){
		.size = sizeof *ret_wire,
		.record = HPZ_RECORD_HISTOGRAM,
		.stage = stage + 1,
		.rest = key->is_rest,
		.page_size = key->page_size,
		.count = histogram->count,
		.sum_ns = histogram->sum_ns,
		.max_ns = histogram->max_ns,
	};
	memcpy(ret_wire->buckets, histogram->buckets, sizeof ret_wire->buckets);
	proto_set_text(ret_wire->label, sizeof ret_wire->label, key->label);
	proto_set_text(ret_wire->regime, sizeof ret_wire->regime, key->regime);
}

/* All fit into one message. */
_Static_assert(HPZ_WIRE_HISTOGRAMS * sizeof(struct hpz_wire_histogram) + sizeof(struct hpz_wire_torn_down) +
			       sizeof(struct hpz_wire_head) <=
		       HPZ_WIRE_MAX_MESSAGE,
	"one page");

static size_t report_histograms(const struct teardown *teardown, struct hpz_wire_torn_down *head)
{
	struct hpz_wire_histogram *at = (struct hpz_wire_histogram *)(head + 1);
	for (size_t i = 0; i < teardown->key_count; i++) {
		for (unsigned stage = 0; stage < TEARDOWN_STAGES; stage++) {
			if (teardown->keys[i].histograms[stage].count == 0)
				continue;
			report_histogram(&teardown->keys[i], stage, at++);
			head->records++;
		}
	}
	return sizeof *head + head->records * sizeof *at;
}

static size_t report_facts(const struct teardown *teardown, struct hpz_wire_torn_down *head, size_t capacity)
{
	struct hpz_wire_fact *at = (struct hpz_wire_fact *)(head + 1);
	size_t most = (capacity - sizeof *head) / sizeof *at;
	for (size_t i = 0; i < MIN(teardown->fact_count, most); i++, at++, head->records++) {
		const struct teardown_fact *fact = &teardown->facts[i];
		*at = (struct hpz_wire_fact){.size = sizeof *at, .record = HPZ_RECORD_FACT};
		proto_set_text(at->name, sizeof at->name, fact->name);
		proto_set_text(at->value, sizeof at->value, fact->value);
		proto_set_text(at->where, sizeof at->where, fact->where);
	}
	return sizeof *head + head->records * sizeof *at;
}

size_t report_teardown(const struct teardown *teardown, const struct exits *exits,
	const struct hpz_wire_teardown *wire, int64_t uid, void *buffer, size_t capacity)
{
	struct hpz_wire_torn_down *head = buffer;
	*head = (struct hpz_wire_torn_down){
		.size = sizeof *head,
		.revision = teardown->revision,
		.sequence = teardown->sequence,
		.now_ns = clock_get_ns(CLOCK_MONOTONIC),
		.source = exits_get_source(exits),
		.own = uid >= 0,
	};
	proto_set_text(head->regime, sizeof head->regime, teardown->regime);
	proto_set_text(head->gap, sizeof head->gap, exits_get_gap(exits));
	switch (wire->record) {
	case HPZ_RECORD_TEARDOWN:
		return report_records(teardown, wire->cursor, uid, head, capacity);
	case HPZ_RECORD_HISTOGRAM: /* of others, too */
		return uid < 0 ? report_histograms(teardown, head) : sizeof *head;
	default:
		return report_facts(teardown, head, capacity);
	}
}
