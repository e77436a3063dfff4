/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* api_demand.c - which sizes are asked for: a copy of what hpzd has learned, page by page. */
#include "api.h"

#define API_MOST_POOLS 4096u /* a server that has more is not ours */
#define API_MOST_SIZES 65536u

struct api_demand_pool {
	struct hpz_wire_demand_pool wire;
	char pool[HPZ_WIRE_NAME + 1];
	struct hpz_wire_demand_size *sizes;
};

struct hpz_demand {
	struct api_demand_pool *pools;
	size_t count;
};

void hpz_demand_free(struct hpz_demand *demand)
{
	if (!demand)
		return;
	for (size_t i = 0; i < demand->count; i++)
		free(demand->pools[i].sizes);
	free(demand->pools);
	free(demand);
}

static void cleanup_demand(struct hpz_demand **demand)
{
	hpz_demand_free(*demand);
}

static bool api_read_sizes(struct api_reader *reader, struct api_demand_pool *pool)
{
	for (uint32_t i = 0; i < pool->wire.sizes; i++) {
		struct hpz_wire_demand_size *size = &pool->sizes[i];
		if (!api_read(reader, size, sizeof(*size)) || size->record != HPZ_RECORD_DEMAND_SIZE)
			return false;
	}
	return true;
}

/* With its sizes; it is in `demand` afterwards. */
static int api_read_demand_pool(struct hpz *hpz, struct api_reader *reader, struct hpz_demand *demand)
{
	struct hpz_wire_demand_pool wire;

	if (demand->count == API_MOST_POOLS || !api_read(reader, &wire, sizeof(wire)) ||
		wire.record != HPZ_RECORD_DEMAND_POOL || wire.node < 0 || wire.learns > 1 ||
		wire.sizes > API_MOST_SIZES || wire.sizes > reader->left / sizeof(uint32_t))
		return api_fail_protocol(hpz, "a malformed pool's demand");
	struct api_demand_pool *pools =
		reallocarray(demand->pools, demand->count + 1, sizeof(*demand->pools));
	if (!pools)
		return api_fail_system(hpz, "no memory for the answer");
	demand->pools = pools;
	struct api_demand_pool *pool = &pools[demand->count];
	*pool = (struct api_demand_pool){.wire = wire};
	pool->sizes = calloc(wire.sizes + 1, sizeof(*pool->sizes));
	if (!pool->sizes)
		return api_fail_system(hpz, "no memory for the answer");
	demand->count++;
	proto_get_text(wire.pool, sizeof(wire.pool), pool->pool);
	if (!api_read_sizes(reader, pool))
		return api_fail_protocol(hpz, "a malformed size of a demand");
	return HPZ_OK;
}

static int api_get_demand_page(struct hpz *hpz, struct hpz_wire_demand *wire, struct hpz_demand *demand)
{
	_cleanup_api_reply_ struct api_reply reply = {0};
	struct hpz_wire_demanded demanded;

	int error = api_call(hpz, HPZ_OP_DEMAND, wire, sizeof(*wire), 0, &reply);
	if (error)
		return error;
	/* A cursor that does not move would keep us here for ever. */
	if (!api_read(&reply.payload, &demanded, sizeof(demanded)) ||
		(demanded.cursor && (demanded.cursor <= wire->cursor || !demanded.records)))
		return api_fail_protocol(hpz, "a malformed demand");
	wire->cursor = demanded.cursor;
	while (!error && demanded.records > 0) {
		error = api_read_demand_pool(hpz, &reply.payload, demand);
		uint32_t read = error ? 0 : 1 + demand->pools[demand->count - 1].wire.sizes;
		if (!error && read > demanded.records)
			return api_fail_protocol(hpz, "more of a demand than it says");
		demanded.records -= read;
	}
	if (!error && reply.payload.left)
		return api_fail_protocol(hpz, "more than its demand");
	return error;
}

int hpz_get_demand(struct hpz *hpz, struct hpz_demand **ret_demand)
{
	__attribute__((cleanup(cleanup_demand))) struct hpz_demand *demand = NULL;
	struct hpz_wire_demand wire = {.size = sizeof(wire)};

	int error = api_begin_call(hpz);
	if (error)
		return error;
	if (!ret_demand)
		return api_fail(hpz, HPZ_ERR_INVALID, "there is no place for the answer");
	demand = calloc(1, sizeof(*demand));
	if (!demand)
		return api_fail_system(hpz, "no memory for the answer");
	do {
		error = api_get_demand_page(hpz, &wire, demand);
	} while (!error && wire.cursor);
	if (!error)
		*ret_demand = steal_pointer(&demand);
	return error;
}

size_t hpz_demand_get_pool_count(const struct hpz_demand *demand)
{
	return demand ? demand->count : 0;
}

int hpz_demand_get_pool(const struct hpz_demand *demand, size_t index, struct hpz_demand_pool *pool)
{
	if (!demand || index >= demand->count)
		return HPZ_ERR_INVALID;
	const struct api_demand_pool *from = &demand->pools[index];
	struct hpz_demand_pool ours = {
		.pool = from->pool,
		.node = from->wire.node,
		.learns = from->wire.learns,
		.page_size = from->wire.page_size,
		.target = from->wire.target,
		.fixed = from->wire.fixed,
		.learned = from->wire.learned,
		.most = from->wire.most,
		.large = from->wire.large,
		.half_life_ms = from->wire.half_life_ms,
		.size_count = from->wire.sizes,
	};
	return api_put_struct(pool, &ours, sizeof(ours));
}

int hpz_demand_get_size(
	const struct hpz_demand *demand, size_t pool, size_t index, struct hpz_demand_size *size)
{
	if (!demand || pool >= demand->count || index >= demand->pools[pool].wire.sizes)
		return HPZ_ERR_INVALID;
	const struct hpz_wire_demand_size *from = &demand->pools[pool].sizes[index];
	struct hpz_demand_size ours = {
		.bytes = from->bytes,
		.out = from->out,
		.peak_milli = from->peak_milli,
		.exact_milli = from->exact_milli,
		.larger_milli = from->larger_milli,
		.zeroed_milli = from->zeroed_milli,
		.waited_milli = from->waited_milli,
		.refused_milli = from->refused_milli,
		.wanted = from->wanted,
		.fixed = from->fixed,
		.proposed = from->proposed,
		.there = from->there,
		.clean = from->clean,
		.reason = from->reason,
	};
	return api_put_struct(size, &ours, sizeof(ours));
}
