/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* placement.h - the options that say which nodes memory is to come from; lease, plan and run share them. */
#ifndef HPZ_PLACEMENT_H
#define HPZ_PLACEMENT_H

#include "options.h"

struct placement {
	int32_t node;
	uint32_t policy;
	uint64_t node_mask;
	struct options_cells cells;
};
#define PLACEMENT_INIT                                                                                       \
	{                                                                                                    \
		.node = HPZ_NODE_ANY                                                                         \
	}

/* Rows for the table of a verb's options; the second for those that may get several pieces. */
#define PLACEMENT_ROWS(placement)                                                                            \
	{"node", OPTIONS_NODE, &(placement)->node, "N", "NUMA node (default: where it is served best)"},     \
	{                                                                                                    \
		"node-policy", OPTIONS_POLICY, &(placement)->policy, "POLICY",                               \
			"strict (default), preferred, or interleave with --nodes"                            \
	}
#define PLACEMENT_ROWS_OF_SEVERAL(placement)                                                                 \
	{"nodes", OPTIONS_NODES, &(placement)->node_mask, "LIST",                                            \
		"nodes to interleave, as 0-1: in turn, as much from each"},                                  \
	{                                                                                                    \
		"cell", OPTIONS_CELL, &(placement)->cells, "SIZE:N",                                         \
			"a guest's cell on a node; again for each: all or none"                              \
	}

/*
 * Puts it into a request, which borrows the cells. OPTIONS_GO, or an exit status: the options do not go
 * together. --nodes alone means to interleave.
 */
int placement_apply(
	const struct hpzctl *ctl, const struct placement *placement, struct hpz_lease_request *request);

/*
 * The size of the request, from the operands: one, or none where there are cells. `how` is what to say else.
 */
int placement_read_size(const struct hpzctl *ctl, const struct placement *placement, char **operands,
	int count, const char *how, struct hpz_lease_request *request);

#endif
