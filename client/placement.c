/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* placement.c - the options that say which nodes memory is to come from. */
#include "placement.h"

#include "size.h"

int placement_apply(
	const struct hpzctl *ctl, const struct placement *placement, struct hpz_lease_request *request)
{
	bool has_node = placement->node != HPZ_NODE_ANY, has_nodes = placement->node_mask != 0;
	uint32_t policy = placement->policy;

	if (has_nodes && policy == HPZ_NODES_STRICT)
		policy = HPZ_NODES_INTERLEAVE;
	if (placement->cells.count && (has_node || has_nodes || policy != HPZ_NODES_STRICT))
		return hpzctl_fail_usage(
			ctl, "a --cell says its own node: no --node and no policy beside it");
	if (has_nodes != (policy == HPZ_NODES_INTERLEAVE))
		return hpzctl_fail_usage(ctl, "--node-policy interleave goes with --nodes, as 0-1");
	if (policy == HPZ_NODES_INTERLEAVE && has_node)
		return hpzctl_fail_usage(ctl, "--node or --nodes, not both");
	if (policy == HPZ_NODES_PREFERRED && !has_node)
		return hpzctl_fail_usage(ctl, "--node-policy preferred: which? Say it with --node");
	request->node = placement->node;
	request->node_policy = policy;
	request->node_mask = placement->node_mask;
	request->cell_count = placement->cells.count;
	request->cells = placement->cells.count ? placement->cells.cells : NULL;
	return OPTIONS_GO;
}

int placement_read_size(const struct hpzctl *ctl, const struct placement *placement, char **operands,
	int count, const char *how, struct hpz_lease_request *request)
{
	if (count == 0 && placement->cells.count)
		return OPTIONS_GO;
	if (placement->cells.count)
		return hpzctl_fail_usage(ctl, "a --cell has its own size: no other beside it");
	if (count != 1)
		return hpzctl_fail_usage(ctl, "%s", count ? "one size at a time" : how);
	if (size_parse(operands[0], &request->size) < 0 || request->size == 0)
		return hpzctl_fail_usage(ctl, "'%s' is not a size, as 512M or 2G", operands[0]);
	return OPTIONS_GO;
}
