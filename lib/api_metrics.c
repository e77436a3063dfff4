/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* api_metrics.c - what hpzd has counted: a copy, page by page. */
#include "api.h"

#define API_MOST_METRICS 65536u /* a server that has more is not ours */

struct api_metric {
	struct hpz_wire_metric wire;
	char name[HPZ_WIRE_NAME + 1], label[HPZ_WIRE_NAME + 1], label_value[HPZ_WIRE_NAME + 1];
	char help[HPZ_WIRE_METRIC_HELP + 1];
};

struct hpz_metrics {
	struct api_metric *list;
	size_t count;
};

void hpz_metrics_free(struct hpz_metrics *metrics)
{
	if (!metrics)
		return;
	free(metrics->list);
	free(metrics);
}

static void cleanup_metrics(struct hpz_metrics **metrics)
{
	hpz_metrics_free(*metrics);
}

/* As Prometheus has names of metrics and labels, so that whoever prints one need not look. */
static bool api_is_name(const char *name)
{
	for (const char *c = name; *c; c++) {
		bool is_letter = (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') || *c == '_';
		if (!is_letter && (c == name || *c < '0' || *c > '9'))
			return false;
	}
	return true;
}

static bool api_read_metric(struct api_reader *reader, struct api_metric *ret_metric)
{
	struct hpz_wire_metric *wire = &ret_metric->wire;

	if (!api_read(reader, wire, sizeof(*wire)) || wire->record != HPZ_RECORD_METRIC)
		return false;
	proto_get_text(wire->name, sizeof(wire->name), ret_metric->name);
	proto_get_text(wire->help, sizeof(wire->help), ret_metric->help);
	proto_get_text(wire->label, sizeof(wire->label), ret_metric->label);
	proto_get_text(wire->label_value, sizeof(wire->label_value), ret_metric->label_value);
	bool is_histogram = wire->kind == HPZ_METRIC_HISTOGRAM;
	if (wire->kind != HPZ_METRIC_COUNTER && !is_histogram)
		return false;
	if (is_histogram ? wire->bucket_count == 0 || wire->bucket_count > HPZ_METRIC_BUCKETS ||
				   wire->shift > 63 - wire->bucket_count
			 : wire->bucket_count != 0)
		return false;
	return ret_metric->name[0] && api_is_name(ret_metric->name) && api_is_name(ret_metric->label);
}

static int api_get_metrics_page(struct hpz *hpz, struct hpz_wire_metrics *wire, struct hpz_metrics *metrics)
{
	_cleanup_api_reply_ struct api_reply reply = {0};
	struct hpz_wire_measured measured;

	int error = api_call(hpz, HPZ_OP_METRICS, wire, sizeof(*wire), 0, &reply);
	if (error)
		return error;
	/* A cursor that does not move would keep us here for ever. */
	if (!api_read(&reply.payload, &measured, sizeof(measured)) ||
		(measured.cursor && (measured.cursor <= wire->cursor || !measured.records)) ||
		measured.records > reply.payload.left / sizeof(uint32_t) ||
		metrics->count + measured.records > API_MOST_METRICS)
		return api_fail_protocol(hpz, "malformed metrics");
	wire->cursor = measured.cursor;
	struct api_metric *list =
		reallocarray(metrics->list, metrics->count + measured.records + 1, sizeof(*metrics->list));
	if (!list)
		return api_fail_system(hpz, "no memory for the answer");
	metrics->list = list;
	for (uint32_t i = 0; i < measured.records; i++) {
		if (!api_read_metric(&reply.payload, &list[metrics->count]))
			return api_fail_protocol(hpz, "a malformed metric");
		metrics->count++;
	}
	return reply.payload.left ? api_fail_protocol(hpz, "more than its metrics") : HPZ_OK;
}

int hpz_get_metrics(struct hpz *hpz, struct hpz_metrics **ret_metrics)
{
	__attribute__((cleanup(cleanup_metrics))) struct hpz_metrics *metrics = NULL;
	struct hpz_wire_metrics wire = {.size = sizeof(wire)};

	int error = api_begin_call(hpz);
	if (error)
		return error;
	if (!ret_metrics)
		return api_fail(hpz, HPZ_ERR_INVALID, "there is no place for the answer");
	metrics = calloc(1, sizeof(*metrics));
	if (!metrics)
		return api_fail_system(hpz, "no memory for the answer");
	do {
		error = api_get_metrics_page(hpz, &wire, metrics);
	} while (!error && wire.cursor);
	if (!error)
		*ret_metrics = steal_pointer(&metrics);
	return error;
}

size_t hpz_metrics_get_count(const struct hpz_metrics *metrics)
{
	return metrics ? metrics->count : 0;
}

int hpz_metrics_get_metric(const struct hpz_metrics *metrics, size_t index, struct hpz_metric *metric)
{
	if (!metrics || index >= metrics->count)
		return HPZ_ERR_INVALID;
	const struct api_metric *from = &metrics->list[index];
	struct hpz_metric ours = {
		.kind = from->wire.kind,
		.unit = from->wire.unit,
		.name = from->name,
		.help = from->help,
		.label = from->label,
		.label_value = from->label_value,
		.value = from->wire.value,
		.sum = from->wire.sum,
		.shift = from->wire.shift,
		.bucket_count = from->wire.bucket_count,
	};
	memcpy(ours.buckets, from->wire.buckets, sizeof(ours.buckets));
	return api_put_struct(metric, &ours, sizeof(ours));
}
