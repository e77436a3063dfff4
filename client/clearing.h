/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* clearing.h - prints how memory is cleared, for `hpzctl status`. */
#ifndef HPZ_CLEARING_H
#define HPZ_CLEARING_H

#include "hpz.h"
#include "output.h"

/* NULL: this hpzd does not tell. */
void clearing_print_json(struct output_json *json, const struct hpz_clearing *clearing);
void clearing_print(FILE *file, const struct hpz_clearing *clearing);

/* The first reason of HPZ_HOLD_*, as a sentence has it; "" for none. */
const char *clearing_get_hold(uint32_t holds);
/* The same, as programs have it: "psi_cpu". */
const char *clearing_get_hold_name(uint32_t holds);

#endif
