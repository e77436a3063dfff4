/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* api_clearing.c - how memory is cleared: changing a rule, and a copy of those in force and what they do. */
#include "api.h"

#define API_MOST_CLEARING 4096u /* records of one kind; all of them fit one message */

struct api_rule {
	char key[HPZ_WIRE_NAME + 1];
	char value[HPZ_WIRE_VALUE + 1];
};

struct api_method {
	struct hpz_wire_method wire;
	char name[HPZ_WIRE_NAME + 1];
};

struct hpz_clearing {
	struct hpz_wire_clearing wire;
	struct api_rule *rules;
	struct hpz_wire_node *nodes;
	struct api_method *methods;
};

int hpz_set(struct hpz *hpz, const char *key, const char *value)
{
	_cleanup_api_reply_ struct api_reply reply = {0};
	struct hpz_wire_set wire = {.size = sizeof(wire)};
	struct hpz_wire_empty empty;
	const char *why;

	int error = api_begin_call(hpz);
	if (error)
		return error;
	if (!key || !value || strlen(key) > sizeof(wire.key) || strlen(value) > sizeof(wire.value))
		return api_fail(hpz, HPZ_ERR_INVALID, "no key, no value, or longer than any of them");
	memcpy(wire.key, key, strlen(key));
	memcpy(wire.value, value, strlen(value));
	error = proto_check_set(&wire, &why);
	if (error)
		return api_fail(hpz, error, "%s", why);
	error = api_call(hpz, HPZ_OP_SET, &wire, sizeof(wire), 0, &reply);
	if (error)
		return error;
	if (!api_read(&reply.payload, &empty, sizeof(empty)) || empty.reserved || reply.payload.left)
		return api_fail_protocol(hpz, "an answer with something in it");
	return HPZ_OK;
}

int hpz_calibrate(struct hpz *hpz, const char *pool, int64_t timeout_ms, uint32_t *ret_pools)
{
	_cleanup_api_reply_ struct api_reply reply = {0};
	struct hpz_wire_calibrate wire = {.size = sizeof(wire), .timeout_ms = timeout_ms};
	struct hpz_wire_calibrated calibrated;
	const char *why;

	int error = api_begin_call(hpz);
	if (error)
		return error;
	if (pool && (strlen(pool) > sizeof(wire.pool) || !*pool))
		return api_fail(hpz, HPZ_ERR_NO_POOL, "no pool can have this name");
	if (pool)
		memcpy(wire.pool, pool, strlen(pool));
	error = proto_check_calibrate(&wire, &why);
	if (error)
		return api_fail(hpz, error, "%s", why);
	error = api_call(hpz, HPZ_OP_CALIBRATE, &wire, sizeof(wire), HPZ_FOREVER, &reply);
	if (error)
		return error;
	if (!api_read(&reply.payload, &calibrated, sizeof(calibrated)) || reply.payload.left)
		return api_fail_protocol(hpz, "a malformed answer to calibrate");
	if (ret_pools)
		*ret_pools = calibrated.pools;
	return HPZ_OK;
}

void hpz_clearing_free(struct hpz_clearing *clearing)
{
	if (!clearing)
		return;
	free(clearing->rules);
	free(clearing->nodes);
	free(clearing->methods);
	free(clearing);
}

static void cleanup_clearing(struct hpz_clearing **clearing)
{
	hpz_clearing_free(*clearing);
}

static bool api_read_rules(struct api_reader *reader, struct hpz_clearing *clearing)
{
	for (uint32_t i = 0; i < clearing->wire.rules; i++) {
		struct hpz_wire_rule record;
		if (!api_read(reader, &record, sizeof(record)) || record.record != HPZ_RECORD_RULE)
			return false;
		proto_get_text(record.key, sizeof(record.key), clearing->rules[i].key);
		proto_get_text(record.value, sizeof(record.value), clearing->rules[i].value);
	}
	return true;
}

static bool api_read_nodes(struct api_reader *reader, struct hpz_clearing *clearing)
{
	for (uint32_t i = 0; i < clearing->wire.nodes; i++) {
		struct hpz_wire_node *node = &clearing->nodes[i];
		if (!api_read(reader, node, sizeof(*node)) || node->record != HPZ_RECORD_NODE ||
			node->node < 0)
			return false;
	}
	return true;
}

static bool api_read_methods(struct api_reader *reader, struct hpz_clearing *clearing)
{
	for (uint32_t i = 0; i < clearing->wire.methods; i++) {
		struct api_method *method = &clearing->methods[i];
		if (!api_read(reader, &method->wire, sizeof(method->wire)) ||
			method->wire.record != HPZ_RECORD_METHOD || method->wire.node < 0)
			return false;
		proto_get_text(method->wire.name, sizeof(method->wire.name), method->name);
	}
	return true;
}

static bool api_is_clearing_sane(const struct hpz_wire_clearing *wire)
{
	return wire->rules <= API_MOST_CLEARING && wire->nodes <= API_MOST_CLEARING &&
	       wire->methods <= API_MOST_CLEARING && wire->psi_cpu >= HPZ_WIRE_PSI_NONE &&
	       wire->psi_cpu <= 1000 && wire->psi_memory >= HPZ_WIRE_PSI_NONE && wire->psi_memory <= 1000;
}

int hpz_get_clearing(struct hpz *hpz, struct hpz_clearing **ret_clearing)
{
	_cleanup_api_reply_ struct api_reply reply = {0};
	__attribute__((cleanup(cleanup_clearing))) struct hpz_clearing *clearing = NULL;
	struct hpz_wire_empty empty = {.size = sizeof(empty)};
	struct hpz_wire_clearing wire;

	int error = api_begin_call(hpz);
	if (error)
		return error;
	if (!ret_clearing)
		return api_fail(hpz, HPZ_ERR_INVALID, "there is no place for the answer");
	error = api_call(hpz, HPZ_OP_CLEARING, &empty, sizeof(empty), 0, &reply);
	if (error)
		return error;
	if (!api_read(&reply.payload, &wire, sizeof(wire)) || !api_is_clearing_sane(&wire))
		return api_fail_protocol(hpz, "a malformed answer about clearing");
	clearing = calloc(1, sizeof(*clearing));
	if (clearing) {
		clearing->wire = wire;
		clearing->rules = calloc(wire.rules + 1, sizeof(clearing->rules[0]));
		clearing->nodes = calloc(wire.nodes + 1, sizeof(clearing->nodes[0]));
		clearing->methods = calloc(wire.methods + 1, sizeof(clearing->methods[0]));
	}
	if (!clearing || !clearing->rules || !clearing->nodes || !clearing->methods)
		return api_fail_system(hpz, "no memory for the answer");
	if (!api_read_rules(&reply.payload, clearing) || !api_read_nodes(&reply.payload, clearing) ||
		!api_read_methods(&reply.payload, clearing) || reply.payload.left)
		return api_fail_protocol(hpz, "a malformed answer about clearing");
	*ret_clearing = steal_pointer(&clearing);
	return HPZ_OK;
}

int hpz_clearing_get_info(const struct hpz_clearing *clearing, struct hpz_clearing_info *info)
{
	if (!clearing)
		return HPZ_ERR_INVALID;
	struct hpz_clearing_info ours = {
		.rule_count = clearing->wire.rules,
		.node_count = clearing->wire.nodes,
		.method_count = clearing->wire.methods,
		.psi_cpu = clearing->wire.psi_cpu,
		.psi_memory = clearing->wire.psi_memory,
	};
	return api_put_struct(info, &ours, sizeof(ours));
}

int hpz_clearing_get_rule(const struct hpz_clearing *clearing, size_t index, struct hpz_clearing_rule *rule)
{
	if (!clearing || index >= clearing->wire.rules)
		return HPZ_ERR_INVALID;
	struct hpz_clearing_rule ours = {
		.key = clearing->rules[index].key, .value = clearing->rules[index].value};
	return api_put_struct(rule, &ours, sizeof(ours));
}

int hpz_clearing_get_node(const struct hpz_clearing *clearing, size_t index, struct hpz_clearing_node *node)
{
	if (!clearing || index >= clearing->wire.nodes)
		return HPZ_ERR_INVALID;
	const struct hpz_wire_node *from = &clearing->nodes[index];
	struct hpz_clearing_node ours = {
		.node = from->node,
		.holds = from->holds,
		.worker_count = from->workers,
		.queued = from->queued,
		.idle = from->idle,
		.refill = from->refill,
		.urgent = from->urgent,
		.backoff = from->backoff,
		.rate_bytes_per_s = from->rate_bytes_per_s,
		.bytes = from->bytes,
		.batches = from->batches,
		.batch_ns = from->batch_ns,
		.base_ns = from->base_ns,
	};
	return api_put_struct(node, &ours, sizeof(ours));
}

int hpz_clearing_get_method(
	const struct hpz_clearing *clearing, size_t index, struct hpz_clearing_method *method)
{
	if (!clearing || index >= clearing->wire.methods)
		return HPZ_ERR_INVALID;
	const struct api_method *from = &clearing->methods[index];
	struct hpz_clearing_method ours = {
		.node = from->wire.node,
		.flags = from->wire.flags,
		.page_size = from->wire.page_size,
		.batch_ns = from->wire.batch_ns,
		.bytes_per_s = from->wire.bytes_per_s,
		.name = from->name,
	};
	return api_put_struct(method, &ours, sizeof(ours));
}
