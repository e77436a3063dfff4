/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* teardown.h - prints what the ends of leases cost. */
#ifndef HPZ_CLIENT_TEARDOWN_H
#define HPZ_CLIENT_TEARDOWN_H

#include "hpz.h"
#include "output.h"

/* Which are printed. */
struct teardown_filter {
	const char *label;  /* NULL: of any label */
	uint64_t page_size; /* 0: of any page size */
	uint64_t last;      /* so many records at most, the last ones */
};

bool teardown_is_chosen(const struct teardown_filter *filter, const struct hpz_teardown_record *record);

/* All of it as one object: schema hpz-teardown-1. */
void teardown_print_json(
	FILE *file, const struct hpz_teardown *teardown, const struct teardown_filter *filter);
/* For people, in 80 columns. */
void teardown_print(FILE *file, const struct hpz_teardown *teardown, const struct teardown_filter *filter);

/* One record as a line, below the headings if it is the first. */
void teardown_print_line(FILE *file, const struct hpz_teardown_record *record, bool is_first);
/* One record as an object of its own: schema hpz-teardown-record-1. */
void teardown_print_record_json(FILE *file, const struct hpz_teardown_record *record, uint64_t now_ns);

/* Of an enum hpz_teardown_stage: "exit"; "unknown" for one of a newer hpzd. */
const char *teardown_get_stage(uint32_t stage);

#define TEARDOWN_NS 16
/* "812ns", "12.3us", "4.56ms", "1.23s", "3m07s"; "-": not seen. Returns `text`. */
const char *teardown_format_ns(uint64_t ns, char text[TEARDOWN_NS]);

#endif
