/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * domain_check.c - hpzctl domain check: whether a domain will get its memory from a pool, and if not, why.
 * Looks at the domain, the host's set-up and what hpzd has now; changes nothing.
 */
#include "domain.h"

#include <inttypes.h>
#include <stdarg.h>

#include "domain_host.h"
#include "hook_settings.h"
#include "output.h"
#include "size.h"
#include "virt.h"

#define DOMAIN_CHECK_NOTES 24

enum domain_severity {
	DOMAIN_NOTE,    /* it gets its memory, but somebody may want to know */
	DOMAIN_PROBLEM, /* it does not */
};

struct domain_note {
	enum domain_severity severity;
	char text[512];
};

struct domain_verdict {
	struct domain domain;
	struct domain_plan plan;
	struct hook_settings settings;
	struct domain_host host;
	size_t note_count, problem_count;
	struct domain_note notes[DOMAIN_CHECK_NOTES];
	bool is_wrapped; /* its emulator is ours */
	bool has_now;
	struct hpz_plan_result now; /* what hpzd would give */
};

static PRINTF(3, 4) void domain_check_note(
	struct domain_verdict *verdict, enum domain_severity severity, const char *format, ...)
{
	va_list args;

	if (verdict->note_count == DOMAIN_CHECK_NOTES)
		return;
	struct domain_note *note = &verdict->notes[verdict->note_count++];
	note->severity = severity;
	verdict->problem_count += severity == DOMAIN_PROBLEM;
	va_start(args, format);
	vsnprintf(note->text, sizeof(note->text), format, args);
	va_end(args);
}

/* ---- the domain ---- */

static bool domain_check_is_wrapped(const struct domain *domain)
{
	const char *slash = strrchr(domain->emulator, '/');

	return strncmp(slash ? slash + 1 : domain->emulator, "hpz-qemu", sizeof("hpz-qemu") - 1) == 0;
}

/* Whether its emulator, which is ours, finds memory to lease: in a file's place there is a file. */
static bool domain_check_is_leased(const struct domain_verdict *verdict)
{
	return verdict->domain.has_hugepages ||
	       (verdict->settings.is_for_ram && verdict->domain.source != DOMAIN_SOURCE_FILE);
}

static void domain_check_domain(struct domain_verdict *verdict)
{
	const struct domain_plan *plan = &verdict->plan;

	if (*plan->why && verdict->is_wrapped && !domain_check_is_leased(verdict))
		domain_check_note(verdict, DOMAIN_PROBLEM,
			"its emulator, hpz-qemu(1), leases what is of huge pages, and nothing of it is: it "
			"takes "
			"<hugepages/>, or ram = yes in [qemu] of hpzd.conf");
	else if (*plan->why && verdict->is_wrapped)
		domain_check_note(
			verdict, DOMAIN_NOTE, "its emulator, hpz-qemu(1), leases its memory by itself");
	else if (*plan->why)
		domain_check_note(verdict, DOMAIN_PROBLEM, "%s", plan->why);
	if (*plan->why)
		return;
	if (plan->left_out)
		domain_check_note(verdict, DOMAIN_NOTE, "%zu of its memory devices are not from the pool",
			plan->left_out);
	if (verdict->domain.is_discarded)
		domain_check_note(verdict, DOMAIN_NOTE,
			"<discard/>: its memory comes back as holes, which cost time later");
}

/* ---- the host ---- */

static void domain_check_host(struct domain_verdict *verdict)
{
	char text[DOMAIN_HOST_TEXT_MAX];
	bool is_problem;
	size_t at = 0;

	if (*verdict->settings.mistake)
		domain_check_note(verdict, DOMAIN_NOTE,
			"hpzd.conf cannot be read, the hook takes its defaults: %s",
			verdict->settings.mistake);
	/* What the hook serves the wrapper leaves alone. */
	bool is_wrapped = verdict->is_wrapped && *verdict->plan.why;
	while (domain_host_next(
		&verdict->host, &verdict->settings, &verdict->domain, is_wrapped, &at, &is_problem, text))
		domain_check_note(verdict, is_problem ? DOMAIN_PROBLEM : DOMAIN_NOTE, "%s", text);
}

/* ---- hpzd ---- */

static int32_t domain_check_choose_node(const struct domain_file *file)
{
	return file->nodes ? __builtin_ctzll(file->nodes) : HPZ_NODE_ANY;
}

/* A cell wants a node: the one of the first pool, where the domain does not say one. */
static void domain_check_set_cells(const struct domain_verdict *verdict, struct hpz_lease_request *request,
	struct hpz_cell cells[DOMAIN_FILES_MAX])
{
	const struct domain_plan *plan = &verdict->plan;
	int32_t any = verdict->settings.pool_count ? verdict->settings.pools[0].node : 0;

	request->page_size = plan->page_size;
	if (plan->count == 1) {
		request->size = plan->files[0].size;
		request->node = domain_check_choose_node(&plan->files[0]);
		return;
	}
	for (size_t i = 0; i < plan->count; i++) {
		int32_t node = domain_check_choose_node(&plan->files[i]);
		cells[i] = (struct hpz_cell){plan->files[i].size, node == HPZ_NODE_ANY ? any : node, 0};
	}
	request->cells = cells;
	request->cell_count = (uint32_t)plan->count;
}

static void domain_check_pool(const struct hpzctl *ctl, struct domain_verdict *verdict)
{
	_cleanup_hpz_ struct hpz *hpz = NULL;
	struct hpz_lease_request request = HPZ_LEASE_REQUEST_INIT;
	struct hpz_cell cells[DOMAIN_FILES_MAX];
	const char *socket = ctl->socket_path;

	int error = hpz_connect(socket, &hpz);
	if (error) {
		domain_check_note(verdict, DOMAIN_PROBLEM, "hpzd cannot be asked: %s", hpz_strerror(error));
		return;
	}
	domain_check_set_cells(verdict, &request, cells);
	verdict->now = (struct hpz_plan_result){.struct_size = sizeof(verdict->now)};
	error = hpz_plan(hpz, &request, &verdict->now);
	if (error) {
		domain_check_note(verdict, DOMAIN_PROBLEM, "hpzd has no memory for it: %s: %s",
			hpz_strerror(error), hpz_get_error_text(hpz));
		return;
	}
	verdict->has_now = true;
	if (verdict->now.kind == HPZ_PLAN_REFUSE || verdict->now.kind == HPZ_PLAN_WAIT)
		domain_check_note(
			verdict, DOMAIN_PROBLEM, "hpzd could not give it now: %s", verdict->now.text);
}

/* ---- what is said ---- */

static bool domain_check_is_qemu(const struct domain *domain)
{
	return strcmp(domain->type, "kvm") == 0 || strcmp(domain->type, "qemu") == 0;
}

static void domain_check_print_json(const struct domain_verdict *verdict)
{
	const struct domain_plan *plan = &verdict->plan;
	struct output_json json;

	output_json_init(&json, stdout);
	output_json_open_object(&json, NULL);
	output_json_text(&json, "schema", "hpz-domain-check-1");
	output_json_text(&json, "name", verdict->domain.name);
	output_json_text_or_null(&json, "uuid", verdict->domain.uuid);
	output_json_bool(&json, "pooled", verdict->problem_count == 0);
	output_json_bool(&json, "planned", !*plan->why);
	output_json_number(&json, "size", plan->size);
	output_json_open_list(&json, "files");
	for (size_t i = 0; i < plan->count; i++) {
		output_json_open_object(&json, NULL);
		output_json_text(&json, "alias", plan->files[i].alias);
		output_json_number(&json, "size", plan->files[i].size);
		output_json_number(&json, "nodes", plan->files[i].nodes);
		output_json_close(&json);
	}
	output_json_close(&json);
	output_json_text_or_null(&json, "now", verdict->has_now ? verdict->now.text : "");
	for (int severity = DOMAIN_PROBLEM; severity >= DOMAIN_NOTE; severity--) {
		output_json_open_list(&json, severity == DOMAIN_PROBLEM ? "problems" : "notes");
		for (size_t i = 0; i < verdict->note_count; i++) {
			if ((int)verdict->notes[i].severity == severity)
				output_json_text(&json, NULL, verdict->notes[i].text);
		}
		output_json_close(&json);
	}
	output_json_close(&json);
}

static void domain_check_print(const struct domain_verdict *verdict)
{
	const struct domain_plan *plan = &verdict->plan;
	char size[SIZE_TEXT];

	output_print_text(stdout, verdict->domain.name);
	puts(verdict->problem_count ? ": its memory does not come from a pool"
				    : ": its memory comes from a pool");
	for (size_t i = 0; i < plan->count; i++)
		printf("  %-16s %s\n", plan->files[i].alias, size_format(plan->files[i].size, size));
	if (verdict->has_now && *verdict->now.text) {
		fputs("  now: ", stdout);
		output_print_text(stdout, verdict->now.text);
		putchar('\n');
	}
	for (size_t i = 0; i < verdict->note_count; i++) {
		fputs(verdict->notes[i].severity == DOMAIN_PROBLEM ? "  problem: " : "  note: ", stdout);
		output_print_text(stdout, verdict->notes[i].text);
		putchar('\n');
	}
	if (*plan->why && !verdict->is_wrapped && domain_check_is_qemu(&verdict->domain)) {
		fputs("hpzctl domain enable ", stdout);
		output_print_text(stdout, verdict->domain.name);
		puts(" shows what would have to change.");
	}
}

/* ---- the verb ---- */

static int domain_check_read_file(const char *path, struct domain *ret_domain)
{
	_cleanup_file_ FILE *file =
		strcmp(path, "-") == 0 ? fdopen(dup(STDIN_FILENO), "r") : fopen(path, "re");
	_cleanup_free_ char *xml = malloc(DOMAIN_XML_MAX + 1);
	char why[DOMAIN_WHY_MAX];

	if (!file || !xml) {
		hpzctl_say("cannot read %s: %s", path, strerror(errno));
		return HPZCTL_FAILED;
	}
	size_t length = fread(xml, 1, DOMAIN_XML_MAX + 1, file);
	if (ferror(file)) {
		hpzctl_say("cannot read %s: %s", path, strerror(errno));
		return HPZCTL_FAILED;
	}
	if (domain_xml_read(xml, length, ret_domain, why) == 0)
		return HPZCTL_DONE;
	hpzctl_say("%s: %s", path, why);
	return HPZCTL_FAILED;
}

/* As it will be at its next start. */
static int domain_check_read_known(
	const char *uri, const char *name, struct domain *ret_domain, unsigned long *ret_version)
{
	_cleanup_connection_ virConnectPtr connection = NULL;
	_cleanup_domain_ virDomainPtr domain = NULL;

	int status = domain_connect(uri, true, &connection);
	if (!status)
		status = domain_find(connection, name, &domain);
	if (!status && virConnectGetLibVersion(connection, ret_version) < 0)
		*ret_version = 0;
	return status ? status : domain_read(domain, VIR_DOMAIN_XML_INACTIVE, NULL, ret_domain);
}

int domain_check(struct hpzctl *ctl, int argc, char **argv)
{
	_cleanup_free_ struct domain_verdict *verdict = calloc(1, sizeof(*verdict));
	const char *uri = NULL, *path = NULL, *name = NULL;
	unsigned long version = 0;
	const struct options_row rows[] = {
		DOMAIN_CONNECT_ROW(&uri),
		{"xml", OPTIONS_TEXT, &path, "FILE",
			"a domain's XML, which libvirt need not know; - is stdin"},
	};
	char **operands;
	int count;

	int status = options_parse(ctl, rows, ARRAY_SIZE(rows), argc, argv, false, &operands, &count);
	if (status == OPTIONS_GO)
		status = path ? options_refuse_operands(ctl, operands, count)
			      : domain_take_name(ctl, operands, count, &name);
	if (status != OPTIONS_GO)
		return status;
	if (!verdict) {
		hpzctl_say("out of memory");
		return HPZCTL_FAILED;
	}
	status = path ? domain_check_read_file(path, &verdict->domain)
		      : domain_check_read_known(uri, name, &verdict->domain, &version);
	if (status)
		return status;
	domain_xml_plan(&verdict->domain, &verdict->plan);
	verdict->is_wrapped = domain_check_is_wrapped(&verdict->domain);
	hook_settings_read(NULL, &verdict->settings);
	domain_host_read("", HPZ_HOOK_PATH, &verdict->settings, &verdict->host);
	verdict->host.version = version;
	domain_check_domain(verdict);
	domain_check_host(verdict);
	if (!*verdict->plan.why)
		domain_check_pool(ctl, verdict);
	if (ctl->json)
		domain_check_print_json(verdict);
	else
		domain_check_print(verdict);
	return verdict->problem_count ? HPZCTL_FAILED : HPZCTL_DONE;
}
