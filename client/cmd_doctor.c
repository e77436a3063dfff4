/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* cmd_doctor.c - hpzctl doctor: what is wrong on this host, and what to do. */
#include "hpzctl.h"

#include "doctor.h"
#include "options.h"
#include "output.h"

static void cmd_doctor_set(char *to, size_t size, const char *text)
{
	snprintf(to, size, "%s", text);
}

static void cmd_doctor_fill_pools(
	struct hpz *hpz, const struct hpz_status *status, uint32_t count, struct doctor_hpzd *hpzd)
{
	for (uint32_t i = 0; i < count && hpzd->pool_count < DOCTOR_POOLS; i++) {
		struct hpz_pool_status from = {.struct_size = sizeof(from)};
		if (hpz_status_get_pool(status, i, &from) != HPZ_OK)
			continue;
		struct doctor_pool *pool = &hpzd->pools[hpzd->pool_count++];
		cmd_doctor_set(pool->name, sizeof(pool->name), from.name);
		cmd_doctor_set(pool->mount, sizeof(pool->mount), from.mount);
		cmd_doctor_set(pool->message, sizeof(pool->message), from.message);
		pool->page_size = from.page_size;
		pool->node = from.node;
		pool->target = from.target * from.page_size;
		pool->total = from.total * from.page_size;
		pool->orphans = from.orphan_pages * from.page_size;
		pool->retired = from.retired_pages * from.page_size;
		pool->not_zero = from.verify_hits;
		pool->faults = from.sigbus;
		hpzd->returning += from.returning * from.page_size;
	}
}

/* What hpzd read of the kernel that the ends of VMs depend on. */
static void cmd_doctor_fill_unshare(struct hpz *hpz, struct doctor_hpzd *hpzd)
{
	struct hpz_teardown_request request = HPZ_TEARDOWN_REQUEST_INIT;
	struct hpz_teardown_info info = {.struct_size = sizeof(info)};
	struct hpz_teardown *teardown;

	request.flags = HPZ_TEARDOWN_FACTS;
	if (hpz_get_teardown(hpz, &request, &teardown) != HPZ_OK)
		return;
	hpz_teardown_get_info(teardown, &info);
	for (size_t i = 0; i < info.fact_count; i++) {
		struct hpz_teardown_fact fact = {.struct_size = sizeof(fact)};
		hpz_teardown_get_fact(teardown, i, &fact);
		if (strcmp(fact.name, "pmd_unshare_ipi") == 0)
			cmd_doctor_set(hpzd->unshare, sizeof(hpzd->unshare), fact.value);
	}
	hpz_teardown_free(teardown);
}

/* An hpzd that is not there is a finding, not a failure. */
static void cmd_doctor_ask(const struct hpzctl *ctl, struct doctor_hpzd *hpzd)
{
	_cleanup_hpz_ struct hpz *hpz = NULL;
	struct hpz_daemon_status daemon = {.struct_size = sizeof(daemon)};
	struct hpz_status *status = NULL;

	cmd_doctor_set(hpzd->library, sizeof(hpzd->library), hpz_get_version());
	int error = hpz_connect(ctl->socket_path, &hpz);
	if (!error)
		error = hpz_get_status(hpz, &status);
	if (error) {
		cmd_doctor_set(hpzd->error, sizeof(hpzd->error), hpz_strerror(error));
		return;
	}
	hpz_status_get_daemon(status, &daemon);
	hpzd->is_up = true;
	cmd_doctor_set(hpzd->version, sizeof(hpzd->version), daemon.version);
	cmd_doctor_set(hpzd->proof, sizeof(hpzd->proof), daemon.proof);
	cmd_doctor_set(hpzd->message, sizeof(hpzd->message), daemon.message);
	hpzd->alarms = daemon.book_alarms;
	hpzd->deaths = daemon.worker_deaths;
	cmd_doctor_fill_pools(hpz, status, daemon.pool_count, hpzd);
	cmd_doctor_fill_unshare(hpz, hpzd);
	hpz_status_free(status);
}

static void cmd_doctor_print_json(const struct doctor_host *host, const struct doctor_hpzd *hpzd)
{
	struct doctor_finding finding;
	struct output_json json;

	output_json_init(&json, stdout);
	output_json_open_object(&json, NULL);
	output_json_text(&json, "schema", "hpz-doctor-1");
	output_json_open_list(&json, "checks");
	for (size_t i = 0; doctor_judge(host, hpzd, i, &finding); i++) {
		output_json_open_object(&json, NULL);
		output_json_text(&json, "check", finding.check);
		output_json_text(&json, "verdict", doctor_get_verdict(finding.verdict));
		output_json_text(&json, "evidence", finding.evidence);
		output_json_text_or_null(&json, "cure", finding.cure);
		output_json_close(&json);
	}
	output_json_close(&json);
	output_json_close(&json);
}

static void cmd_doctor_print(const struct doctor_host *host, const struct doctor_hpzd *hpzd)
{
	struct doctor_finding finding;

	for (size_t i = 0; doctor_judge(host, hpzd, i, &finding); i++) {
		printf("%-6s  %-15s  ", doctor_get_verdict(finding.verdict), finding.check);
		output_print_text(stdout, finding.evidence);
		putchar('\n');
		if (!*finding.cure)
			continue;
		printf("%25s", "");
		output_print_text(stdout, finding.cure);
		putchar('\n');
	}
}

int cmd_doctor(struct hpzctl *ctl, int argc, char **argv)
{
	const char *root = "";
	const struct options_row rows[] = {
		{"root", OPTIONS_TEXT, &root, "DIRECTORY",
			"look at what lies below it instead of at this host"},
	};
	char **operands;
	int count;

	int status = options_parse(ctl, rows, ARRAY_SIZE(rows), argc, argv, false, &operands, &count);
	if (status == OPTIONS_GO)
		status = options_refuse_operands(ctl, operands, count);
	if (status != OPTIONS_GO)
		return status;
	struct doctor_host *host = malloc(sizeof(*host));
	struct doctor_hpzd *hpzd = calloc(1, sizeof(*hpzd));
	struct doctor_finding finding;
	status = HPZCTL_DONE;
	if (host && hpzd) {
		doctor_read(root, host);
		cmd_doctor_ask(ctl, hpzd);
		if (ctl->json)
			cmd_doctor_print_json(host, hpzd);
		else
			cmd_doctor_print(host, hpzd);
		for (size_t i = 0; doctor_judge(host, hpzd, i, &finding); i++) {
			if (finding.verdict == DOCTOR_FAIL)
				status = HPZCTL_FAILED;
		}
	} else {
		hpzctl_say("%s", strerror(ENOMEM));
		status = HPZCTL_FAILED;
	}
	free(host);
	free(hpzd);
	return status;
}
