/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* api_check.c - whether hpzd's books balance: a copy of what a check found, page by page. */
#include "api.h"

#define API_MOST_FINDINGS 65536u /* a server that has more is not ours */

struct api_finding {
	uint32_t kind, severity, repaired;
	char pool[HPZ_WIRE_NAME + 1];
	char text[HPZ_WIRE_TEXT + 1];
};

struct hpz_check_result {
	struct api_finding *findings;
	size_t count;
	uint64_t segments, leases, dropped;
};

void hpz_check_free(struct hpz_check_result *result)
{
	if (!result)
		return;
	free(result->findings);
	free(result);
}

static void cleanup_result(struct hpz_check_result **result)
{
	hpz_check_free(*result);
}

static bool api_read_finding(struct api_reader *reader, struct api_finding *ret_finding)
{
	struct hpz_wire_finding record;

	if (!api_read(reader, &record, sizeof(record)) || record.record != HPZ_RECORD_FINDING ||
		record.repaired > 1)
		return false;
	ret_finding->kind = record.kind;
	ret_finding->severity = record.severity;
	ret_finding->repaired = record.repaired;
	proto_get_text(record.pool, sizeof(record.pool), ret_finding->pool);
	proto_get_text(record.text, sizeof(record.text), ret_finding->text);
	return true;
}

static int api_read_findings(
	struct hpz *hpz, struct api_reader *reader, uint32_t records, struct hpz_check_result *result)
{
	if (records > API_MOST_FINDINGS - result->count || records > reader->left / sizeof(uint32_t))
		return api_fail_protocol(hpz, "more findings than there can be");
	struct api_finding *findings =
		reallocarray(result->findings, result->count + records + 1, sizeof(*findings));
	if (!findings)
		return api_fail_system(hpz, "no memory for the findings");
	result->findings = findings;
	for (uint32_t i = 0; i < records; i++) {
		if (!api_read_finding(reader, &findings[result->count]))
			return api_fail_protocol(hpz, "a malformed finding");
		result->count++;
	}
	return reader->left ? api_fail_protocol(hpz, "more than its findings") : HPZ_OK;
}

static int api_get_findings(struct hpz *hpz, struct hpz_wire_check *wire, struct hpz_check_result *result)
{
	_cleanup_api_reply_ struct api_reply reply = {0};
	struct hpz_wire_checked checked;

	int error = api_call(hpz, HPZ_OP_CHECK, wire, sizeof(*wire), wire->timeout_ms, &reply);
	if (error)
		return error;
	/* A cursor that does not move would keep us here for ever. */
	if (!api_read(&reply.payload, &checked, sizeof(checked)) ||
		(checked.cursor && (checked.cursor == wire->cursor || !checked.records)))
		return api_fail_protocol(hpz, "a malformed check");
	wire->cursor = checked.cursor;
	result->segments = checked.segments;
	result->leases = checked.leases;
	result->dropped = checked.dropped;
	return api_read_findings(hpz, &reply.payload, checked.records, result);
}

int hpz_check(struct hpz *hpz, unsigned flags, int64_t timeout_ms, struct hpz_check_result **ret_result)
{
	__attribute__((cleanup(cleanup_result))) struct hpz_check_result *result = NULL;
	struct hpz_wire_check wire = {.size = sizeof(wire), .flags = flags, .timeout_ms = timeout_ms};
	const char *why;

	int error = api_begin_call(hpz);
	if (error)
		return error;
	if (!ret_result)
		return api_fail(hpz, HPZ_ERR_INVALID, "there is no place for the result");
	error = proto_check_check(&wire, &why);
	if (error)
		return api_fail(hpz, error, "%s", why);
	result = calloc(1, sizeof(*result));
	if (!result)
		return api_fail_system(hpz, "no memory for the result");
	do {
		error = api_get_findings(hpz, &wire, result);
		wire.flags = 0; /* further pages are only read */
	} while (!error && wire.cursor);
	if (!error)
		*ret_result = steal_pointer(&result);
	return error;
}

size_t hpz_check_get_count(const struct hpz_check_result *result)
{
	return result ? result->count : 0;
}

void hpz_check_get_totals(const struct hpz_check_result *result, uint64_t *ret_segments, uint64_t *ret_leases,
	uint64_t *ret_dropped)
{
	if (ret_segments)
		*ret_segments = result ? result->segments : 0;
	if (ret_leases)
		*ret_leases = result ? result->leases : 0;
	if (ret_dropped)
		*ret_dropped = result ? result->dropped : 0;
}

int hpz_check_get_finding(const struct hpz_check_result *result, size_t index, struct hpz_finding *finding)
{
	if (!result || index >= result->count)
		return HPZ_ERR_INVALID;
	const struct api_finding *from = &result->findings[index];
	struct hpz_finding ours = {
		.kind = from->kind,
		.severity = from->severity,
		.repaired = from->repaired,
		.pool = from->pool,
		.text = from->text,
	};
	return api_put_struct(finding, &ours, sizeof(ours));
}
