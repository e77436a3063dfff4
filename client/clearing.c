/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* clearing.c - prints how memory is cleared: the rules, what each node's workers do, the methods. */
#include "clearing.h"

#include <inttypes.h>

#include "size.h"

static const struct {
	unsigned hold;
	const char *name, *text;
} clearing_holds[] = {
	{HPZ_HOLD_OFF, "off", "switched off (enabled = no)"},
	{HPZ_HOLD_PSI_CPU, "psi_cpu", "paused: others wait for a CPU"},
	{HPZ_HOLD_PSI_MEMORY, "psi_memory", "paused: others wait for memory"},
};

const char *clearing_get_hold(uint32_t holds)
{
	for (size_t i = 0; i < ARRAY_SIZE(clearing_holds); i++) {
		if (holds & clearing_holds[i].hold)
			return clearing_holds[i].text;
	}
	return "";
}

const char *clearing_get_hold_name(uint32_t holds)
{
	for (size_t i = 0; i < ARRAY_SIZE(clearing_holds); i++) {
		if (holds & clearing_holds[i].hold)
			return clearing_holds[i].name;
	}
	return "";
}

static struct hpz_clearing_info clearing_get_info(const struct hpz_clearing *clearing)
{
	struct hpz_clearing_info info = {.struct_size = sizeof(info)};

	hpz_clearing_get_info(clearing, &info);
	return info;
}

/* ---- JSON ---- */

static void clearing_print_psi_json(struct output_json *json, const char *key, int32_t tenths)
{
	if (tenths < 0)
		output_json_null(json, key);
	else
		output_json_integer(json, key, (tenths + 5) / 10);
}

static void clearing_print_node_json(struct output_json *json, const struct hpz_clearing_node *node)
{
	output_json_open_object(json, NULL);
	output_json_integer(json, "node", node->node);
	output_json_number(json, "workers", node->worker_count);
	output_json_number(json, "queued", node->queued);
	output_json_open_object(json, "busy");
	output_json_number(json, "idle", node->idle);
	output_json_number(json, "refill", node->refill);
	output_json_number(json, "urgent", node->urgent);
	output_json_close(json);
	output_json_open_list(json, "holds");
	for (size_t i = 0; i < ARRAY_SIZE(clearing_holds); i++) {
		if (node->holds & clearing_holds[i].hold)
			output_json_text(json, NULL, clearing_holds[i].name);
	}
	output_json_close(json);
	output_json_number(json, "rate", node->rate_bytes_per_s);
	output_json_number(json, "bytes", node->bytes);
	output_json_number(json, "batches", node->batches);
	output_json_number(json, "backoff", node->backoff);
	output_json_number(json, "batch_ns", node->batch_ns);
	output_json_number(json, "base_ns", node->base_ns);
	output_json_close(json);
}

static void clearing_print_method_json(struct output_json *json, const struct hpz_clearing_method *method)
{
	output_json_open_object(json, NULL);
	output_json_text(json, "name", method->name);
	output_json_integer(json, "node", method->node);
	if (method->page_size)
		output_json_number(json, "page_size", method->page_size);
	else
		output_json_null(json, "page_size");
	output_json_bool(json, "usable", method->flags & HPZ_METHOD_USABLE);
	output_json_bool(json, "chosen", method->flags & HPZ_METHOD_CHOSEN);
	output_json_number(json, "batch_ns", method->batch_ns);
	output_json_number(json, "bytes_per_s", method->bytes_per_s);
	output_json_close(json);
}

void clearing_print_json(struct output_json *json, const struct hpz_clearing *clearing)
{
	if (!clearing) {
		output_json_null(json, "clearing");
		return;
	}
	struct hpz_clearing_info info = clearing_get_info(clearing);
	output_json_open_object(json, "clearing");
	output_json_open_object(json, "rules");
	for (uint32_t i = 0; i < info.rule_count; i++) {
		struct hpz_clearing_rule rule = {.struct_size = sizeof(rule)};
		hpz_clearing_get_rule(clearing, i, &rule);
		output_json_text(json, rule.key, rule.value);
	}
	output_json_close(json);
	clearing_print_psi_json(json, "psi_cpu", info.psi_cpu);
	clearing_print_psi_json(json, "psi_memory", info.psi_memory);
	output_json_open_list(json, "nodes");
	for (uint32_t i = 0; i < info.node_count; i++) {
		struct hpz_clearing_node node = {.struct_size = sizeof(node)};
		hpz_clearing_get_node(clearing, i, &node);
		clearing_print_node_json(json, &node);
	}
	output_json_close(json);
	output_json_open_list(json, "methods");
	for (uint32_t i = 0; i < info.method_count; i++) {
		struct hpz_clearing_method method = {.struct_size = sizeof(method)};
		hpz_clearing_get_method(clearing, i, &method);
		clearing_print_method_json(json, &method);
	}
	output_json_close(json);
	output_json_close(json);
}

/* ---- for people ---- */

static void clearing_print_node(FILE *file, const struct hpz_clearing_node *node)
{
	char rate[SIZE_TEXT];

	fprintf(file, "node %" PRId32 ": %s/s", node->node, size_format(node->rate_bytes_per_s, rate));
	fprintf(file,
		", workers: %" PRIu32 " (%" PRIu32 " idle class, %" PRIu32 " refill, %" PRIu32 " urgent)",
		node->worker_count, node->idle, node->refill, node->urgent);
	for (size_t i = 0; i < ARRAY_SIZE(clearing_holds); i++) {
		if (node->holds & clearing_holds[i].hold)
			fprintf(file, "; %s", clearing_holds[i].text);
	}
	if (node->backoff)
		fprintf(file, "; backs off: a batch takes %" PRIu64 " us instead of %" PRIu64,
			node->batch_ns / 1000, node->base_ns / 1000);
	fputc('\n', file);
}

static void clearing_print_methods(FILE *file, const struct hpz_clearing *clearing, uint32_t count)
{
	fputs("methods:", file);
	for (uint32_t i = 0; i < count; i++) {
		struct hpz_clearing_method method = {.struct_size = sizeof(method)};
		hpz_clearing_get_method(clearing, i, &method);
		fputs(i ? ", " : " ", file);
		output_print_text(file, method.name);
		if (method.flags & HPZ_METHOD_USABLE)
			fprintf(file, " %.1f GB/s", (double)method.bytes_per_s / 1e9);
		else
			fputs(" not usable", file);
		if (method.flags & HPZ_METHOD_CHOSEN)
			fputs(" (chosen)", file);
	}
	fputc('\n', file);
}

void clearing_print(FILE *file, const struct hpz_clearing *clearing)
{
	if (!clearing)
		return;
	struct hpz_clearing_info info = clearing_get_info(clearing);
	fputs("Clearing:", file);
	for (uint32_t i = 0; i < info.rule_count; i++) {
		struct hpz_clearing_rule rule = {.struct_size = sizeof(rule)};
		hpz_clearing_get_rule(clearing, i, &rule);
		fputs(i ? ", " : " ", file);
		output_print_text(file, rule.key);
		fputs(" = ", file);
		output_print_text(file, rule.value);
	}
	fputc('\n', file);
	for (uint32_t i = 0; i < info.node_count; i++) {
		struct hpz_clearing_node node = {.struct_size = sizeof(node)};
		hpz_clearing_get_node(clearing, i, &node);
		clearing_print_node(file, &node);
	}
	if (info.method_count)
		clearing_print_methods(file, clearing, info.method_count);
	fputc('\n', file);
}
