/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* metrics.h - everything that hpzd tells, as metrics: for `hpzctl metrics` and for hpz-metrics. */
#ifndef HPZ_CLIENT_METRICS_H
#define HPZ_CLIENT_METRICS_H

#include "hpz.h"
#include "openmetrics.h"

/* Writes all of it, to the end. `socket_path` as hpz_connect() has it. HPZ_OK; else hpz_up is 0 and all there
 * is. */
int metrics_print(struct openmetrics *out, const char *socket_path);

/* What is written when nobody answers. */
void metrics_print_down(struct openmetrics *out);

#endif
