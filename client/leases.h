/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* leases.h - a list of leases, as a table and as JSON; status, leases and drain show the same. */
#ifndef HPZ_LEASES_H
#define HPZ_LEASES_H

#include "hpz.h"
#include "output.h"

/* A list under "leases" in the object that is open. */
void leases_print_json(struct output_json *json, const struct hpz_lease_list *list);

/* With `holders`, who has the memory of each lease that is returning stands under the table. */
void leases_print_table(FILE *file, const struct hpz_lease_list *list, bool holders);

/* The list under "segments": of a lease in a list, and of one that was just given. */
void leases_print_segment_json(struct output_json *json, const struct hpz_segment *segment);

/* Of an enum hpz_lease_state; "?" for one of a newer hpzd. */
const char *leases_get_state(uint32_t state);

void leases_cleanup_list(struct hpz_lease_list **list);
#define _cleanup_list_ __attribute__((cleanup(leases_cleanup_list)))

#endif
