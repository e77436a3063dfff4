/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* report_metrics.c - puts what was counted into wire structs. */
#include "metrics.h"
#include "report.h"

static void report_series(const struct metrics_series *series, struct hpz_wire_metric *ret_record)
{
	const struct metrics_histogram *histogram = series->histogram;
	*ret_record = (struct hpz_wire_metric){
		.size = sizeof *ret_record,
		.record = HPZ_RECORD_METRIC,
		.kind = series->kind,
		.unit = series->unit,
		.value = series->value,
	};
	proto_set_text(ret_record->name, sizeof ret_record->name, series->name);
	proto_set_text(ret_record->help, sizeof ret_record->help, series->help);
	proto_set_text(ret_record->label, sizeof ret_record->label, series->label);
	proto_set_text(ret_record->label_value, sizeof ret_record->label_value, series->label_value);
	if (!histogram)
		return;
	ret_record->sum = histogram->sum;
	ret_record->shift = series->shift;
	ret_record->bucket_count = series->bucket_count;
	memcpy(ret_record->buckets, histogram->buckets, sizeof ret_record->buckets);
}

size_t report_metrics(uint64_t index, void *buffer, size_t capacity)
{
	struct hpz_wire_measured *head = buffer;
	struct hpz_wire_metric *record = (struct hpz_wire_metric *)(head + 1);
	size_t most = (capacity - sizeof *head) / sizeof *record;
	struct metrics_series series;
	*head = (struct hpz_wire_measured){.size = sizeof *head};
	for (; metrics_get_series(index, &series); index++) {
		if (head->records == most) {
			head->cursor = index;
			break;
		}
		report_series(&series, record++);
		head->records++;
	}
	return sizeof *head + head->records * sizeof *record;
}
