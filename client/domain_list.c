/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* domain_list.c - hpzctl domain list: domains, their memory, their leases. */
#include "domain.h"

#include <inttypes.h>

#include "hook_place.h"
#include "leases.h"
#include "output.h"
#include "size.h"
#include "virt.h"

struct domain_row {
	struct domain domain;
	struct domain_plan plan;
	const struct virt_domain *known;
	bool is_read; /* else it went away meanwhile, or cannot be understood */
	char start[LEASE_KEY_START_SIZE];
	uint64_t lease, leased_bytes, lease_count;
};

/* The XML as it is: of one that runs, as it was started. */
static void domain_list_read(virConnectPtr connection, struct domain_row *row)
{
	_cleanup_domain_ virDomainPtr from = virDomainLookupByUUIDString(connection, row->known->uuid);
	_cleanup_free_ char *xml = from ? virDomainGetXMLDesc(from, 0) : NULL;
	char why[DOMAIN_WHY_MAX];

	row->is_read = xml && domain_xml_read(xml, strlen(xml), &row->domain, why) == 0;
	if (row->is_read)
		domain_xml_plan(&row->domain, &row->plan);
}

/* Of the start that it runs since; "" where that cannot be seen. */
static void domain_list_find_start(const struct hook_settings *settings, struct domain_row *row)
{
	_cleanup_fd_ int directory = row->is_read ? domain_open_directory(settings, &row->domain) : -1;

	row->start[0] = '\0';
	if (directory >= 0)
		hook_place_get_start(directory, row->start);
}

static void domain_list_find_leases(const struct hpz_lease_list *list, struct domain_row *row)
{
	struct hpz_lease_info lease = {.struct_size = sizeof(lease)};
	bool is_whole;

	row->lease = row->leased_bytes = row->lease_count = 0;
	for (size_t i = 0; i < hpz_list_get_count(list); i++) {
		if (hpz_list_get_lease(list, i, &lease) ||
			!domain_has_lease(
				&lease, row->known->uuid, *row->start ? row->start : NULL, &is_whole))
			continue;
		if (is_whole)
			row->lease = lease.id;
		row->leased_bytes += lease.size;
		row->lease_count++;
	}
}

/* Why not: only what somebody may not expect. */
static const char *domain_list_get_why(const struct domain_row *row, bool has_leases)
{
	if (!row->is_read)
		return "its XML cannot be read";
	if (*row->plan.why)
		return row->plan.why;
	return row->known->is_active && has_leases && !row->lease ? "it was started with other memory" : "";
}

static void domain_list_print_json_row(
	struct output_json *json, const struct domain_row *row, bool has_leases)
{
	output_json_open_object(json, NULL);
	output_json_text(json, "name", row->known->name);
	output_json_text(json, "uuid", row->known->uuid);
	output_json_bool(json, "active", row->known->is_active);
	if (row->is_read)
		output_json_number(json, "memory", row->domain.memory);
	else
		output_json_null(json, "memory");
	output_json_bool(json, "planned", row->is_read && !*row->plan.why);
	output_json_text_or_null(json, "why", domain_list_get_why(row, has_leases));
	if (row->lease)
		output_json_number(json, "lease", row->lease);
	else
		output_json_null(json, "lease");
	if (has_leases)
		output_json_number(json, "leased", row->leased_bytes);
	else
		output_json_null(json, "leased");
	output_json_close(json);
}

/* Of one that does not run, what it will be. */
static const char *domain_list_get_pooled(const struct domain_row *row, bool has_leases)
{
	if (!row->known->is_active)
		return row->is_read && !*row->plan.why ? "will be" : "no";
	if (!has_leases)
		return "?";
	return row->lease ? "yes" : row->lease_count ? "partly" : "no";
}

static void domain_list_add_row(struct output_table *table, const struct domain_row *row, bool has_leases)
{
	char size[SIZE_TEXT];

	output_table_add(table, "%s", row->known->name);
	output_table_add(table, "%s", row->known->is_active ? "running" : "off");
	output_table_add(table, "%s", row->is_read ? size_format(row->domain.memory, size) : "?");
	output_table_add(table, "%s", domain_list_get_pooled(row, has_leases));
	if (row->lease)
		output_table_add(table, "%" PRIu64, row->lease);
	else
		output_table_add(table, "-");
	output_table_add(table, "%s", domain_list_get_why(row, has_leases));
}

static int domain_list_print(const struct hpzctl *ctl, virConnectPtr connection,
	const struct virt_domains *domains, const struct hpz_lease_list *leases)
{
	static const char *const headings[] = {"DOMAIN", "STATE", ">MEMORY", "POOLED", "LEASE", "WHY NOT"};
	_cleanup_free_ struct domain_row *row = malloc(sizeof(*row));
	_cleanup_free_ struct hook_settings *settings = malloc(sizeof(*settings));
	struct output_table table;
	struct output_json json;

	if (!row || !settings) {
		hpzctl_say("out of memory");
		return HPZCTL_FAILED;
	}
	hook_settings_read(NULL, settings);
	output_table_init(&table, headings, ARRAY_SIZE(headings));
	output_json_init(&json, stdout);
	if (ctl->json) {
		output_json_open_object(&json, NULL);
		output_json_text(&json, "schema", "hpz-domains-1");
		output_json_open_list(&json, "domains");
	}
	for (size_t i = 0; i < domains->count; i++) {
		row->known = &domains->items[i];
		domain_list_read(connection, row);
		domain_list_find_start(settings, row);
		domain_list_find_leases(leases, row);
		if (ctl->json)
			domain_list_print_json_row(&json, row, leases != NULL);
		else
			domain_list_add_row(&table, row, leases != NULL);
	}
	if (ctl->json) {
		output_json_close(&json);
		output_json_close(&json);
	} else if (domains->count == 0) {
		puts("No domains.");
	}
	output_table_print(&table, stdout);
	output_table_deinit(&table);
	return HPZCTL_DONE;
}

/* NULL: hpzd cannot say, which is no reason not to list domains. */
static struct hpz_lease_list *domain_list_get_leases(const struct hpzctl *ctl)
{
	_cleanup_hpz_ struct hpz *hpz = NULL;
	struct hpz_lease_list *list = NULL;

	if (hpzctl_connect(ctl, &hpz))
		return NULL;
	int error = hpz_list(hpz, &list);
	if (error)
		hpzctl_fail(ctl, hpz, error, "cannot list the leases");
	return list;
}

int domain_list(struct hpzctl *ctl, int argc, char **argv)
{
	_cleanup_connection_ virConnectPtr connection = NULL;
	_cleanup_list_ struct hpz_lease_list *leases = NULL;
	struct virt_domains domains = {0};
	const char *uri = NULL;
	const struct options_row rows[] = {DOMAIN_CONNECT_ROW(&uri)};
	char **operands;
	int count;

	int status = options_parse(ctl, rows, ARRAY_SIZE(rows), argc, argv, false, &operands, &count);
	if (status == OPTIONS_GO)
		status = options_refuse_operands(ctl, operands, count);
	if (status != OPTIONS_GO)
		return status;
	status = domain_connect(uri, true, &connection);
	if (status)
		return status;
	if (virt_list_domains(connection, &domains) < 0)
		return domain_fail("cannot list the domains");
	leases = domain_list_get_leases(ctl);
	status = domain_list_print(ctl, connection, &domains, leases);
	virt_free_domains(&domains);
	return status;
}
