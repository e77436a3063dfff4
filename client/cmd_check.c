/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* cmd_check.c - hpzctl check: whether hpzd's books balance, and what is repaired. */
#include "hpzctl.h"

#include <inttypes.h>

#include "options.h"
#include "output.h"

#define CMD_CHECK_TIMEOUT_MS 60000

static void cmd_check_cleanup(struct hpz_check_result **result)
{
	hpz_check_free(*result);
}
#define _cleanup_result_ __attribute__((cleanup(cmd_check_cleanup)))

static const char *cmd_check_get_kind(uint32_t kind)
{
	static const char *const names[] = {[HPZ_FINDING_FOREIGN] = "foreign",
		[HPZ_FINDING_MISSING] = "missing",
		[HPZ_FINDING_WRONG] = "wrong",
		[HPZ_FINDING_BLOCKS] = "blocks",
		[HPZ_FINDING_COUNTS] = "counts",
		[HPZ_FINDING_JOURNAL] = "journal",
		[HPZ_FINDING_OUT] = "out",
		[HPZ_FINDING_KERNEL] = "kernel"};

	return kind < ARRAY_SIZE(names) && names[kind] ? names[kind] : "other";
}

static void cmd_check_get(
	const struct hpz_check_result *result, size_t index, struct hpz_finding *ret_finding)
{
	*ret_finding = (struct hpz_finding){.struct_size = sizeof(*ret_finding)};
	hpz_check_get_finding(result, index, ret_finding);
}

static void cmd_check_print_json(const struct hpz_check_result *result, size_t differences, size_t repaired)
{
	struct output_json json;
	struct hpz_finding finding;
	uint64_t segments, leases, dropped;

	hpz_check_get_totals(result, &segments, &leases, &dropped);
	output_json_init(&json, stdout);
	output_json_open_object(&json, NULL);
	output_json_text(&json, "schema", "hpz-check-1");
	output_json_number(&json, "segments", segments);
	output_json_number(&json, "leases", leases);
	output_json_number(&json, "differences", differences);
	output_json_number(&json, "repaired", repaired);
	output_json_number(&json, "dropped", dropped);
	output_json_open_list(&json, "findings");
	for (size_t i = 0; i < hpz_check_get_count(result); i++) {
		cmd_check_get(result, i, &finding);
		output_json_open_object(&json, NULL);
		output_json_text(&json, "kind", cmd_check_get_kind(finding.kind));
		output_json_text(&json, "severity",
			finding.severity == HPZ_SEVERITY_DIFFERENCE ? "difference" : "notice");
		output_json_bool(&json, "repaired", finding.repaired);
		output_json_text_or_null(&json, "pool", finding.pool);
		output_json_text(&json, "text", finding.text);
		output_json_close(&json);
	}
	output_json_close(&json);
	output_json_close(&json);
}

static void cmd_check_print(const struct hpz_check_result *result, size_t differences, size_t repaired)
{
	struct hpz_finding finding;
	uint64_t segments, leases, dropped;

	hpz_check_get_totals(result, &segments, &leases, &dropped);
	for (size_t i = 0; i < hpz_check_get_count(result); i++) {
		cmd_check_get(result, i, &finding);
		printf("%s%s: ", cmd_check_get_kind(finding.kind),
			finding.severity == HPZ_SEVERITY_DIFFERENCE ? "" : " (notice)");
		if (*finding.pool) {
			fputs("pool ", stdout);
			output_print_text(stdout, finding.pool);
			fputs(": ", stdout);
		}
		output_print_text(stdout, finding.text);
		puts(finding.repaired ? " [repaired]" : "");
	}
	if (dropped)
		printf("and %" PRIu64 " more\n", dropped);
	printf("%" PRIu64 " segments, %" PRIu64 " leases: %zu differences, %zu repaired\n", segments, leases,
		differences, repaired);
}

int cmd_check(struct hpzctl *ctl, int argc, char **argv)
{
	_cleanup_hpz_ struct hpz *hpz = NULL;
	_cleanup_result_ struct hpz_check_result *result = NULL;
	struct hpz_finding finding;
	bool repairs = false;
	int64_t timeout_ms = CMD_CHECK_TIMEOUT_MS;
	const struct options_row rows[] = {
		{"repair", OPTIONS_FLAG, &repairs, NULL, "put right what can be, and say what was"},
		{"timeout", OPTIONS_SECONDS, &timeout_ms, "S", "how long it may take (default: 60)"},
	};
	size_t differences = 0, repaired = 0;
	char **operands;
	int count;

	int status = options_parse(ctl, rows, ARRAY_SIZE(rows), argc, argv, false, &operands, &count);
	if (status == OPTIONS_GO)
		status = options_refuse_operands(ctl, operands, count);
	if (status != OPTIONS_GO)
		return status;
	status = hpzctl_connect(ctl, &hpz);
	if (status)
		return status;
	int error = hpz_check(hpz, repairs ? HPZ_CHECK_REPAIR : 0, timeout_ms, &result);
	if (error)
		return hpzctl_fail(ctl, hpz, error, "check");
	for (size_t i = 0; i < hpz_check_get_count(result); i++) {
		cmd_check_get(result, i, &finding);
		differences += finding.severity == HPZ_SEVERITY_DIFFERENCE;
		repaired += finding.repaired != 0;
	}
	if (ctl->json)
		cmd_check_print_json(result, differences, repaired);
	else
		cmd_check_print(result, differences, repaired);
	return differences ? HPZCTL_FAILED : HPZCTL_DONE;
}
