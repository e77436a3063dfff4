/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* demand.h - prints which sizes are asked for, and what the stock makes of it. */
#ifndef HPZ_CLIENT_DEMAND_H
#define HPZ_CLIENT_DEMAND_H

#include "hpz.h"
#include "output.h"

/* A list under `key`; NULL (an older hpzd): null. */
void demand_print_json(struct output_json *json, const char *key, const struct hpz_demand *demand);
/* All of it, with reasons. */
void demand_print(FILE *file, const struct hpz_demand *demand);
/* A line for each pool whose stock follows it; NULL: nothing. */
void demand_print_summary(FILE *file, const struct hpz_demand *demand);

#endif
