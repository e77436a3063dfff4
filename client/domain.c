/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* domain.c - hpzctl domain: the table of its verbs, and what they share. */
#include "domain.h"

#include <stdarg.h>

#include "hook_place.h"
#include "lease_key.h"
#include "virt.h"

static const struct hpzctl_verb verbs[] = {
	{"domain list", domain_list, "", "Show libvirt's domains, and whether their memory is from a pool."},
	{"domain check", domain_check, "NAME|--xml FILE",
		"Say whether a domain gets its memory from a pool, and if not, why."},
	{"domain enable", domain_enable, "NAME", "Change a domain so that it gets its memory from a pool."},
	{"domain disable", domain_disable, "NAME", "Change a domain back to memory that libvirt finds."},
	{"domain attach-memory", domain_attach_memory, "NAME SIZE",
		"Give a running domain more memory, in a memory device from a pool."},
	{"domain detach-memory", domain_detach_memory, "NAME DIMM",
		"Take a memory device from a running domain; its memory goes back."},
};

/* ---- what they share ---- */

int domain_fail(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	fputs("hpzctl: ", stderr);
	vfprintf(stderr, format, args);
	fprintf(stderr, ": %s\n", virt_get_error());
	va_end(args);
	return HPZCTL_FAILED;
}

void domain_cleanup_connection(virConnectPtr *connection)
{
	if (*connection)
		virConnectClose(*connection);
}

void domain_cleanup_domain(virDomainPtr *domain)
{
	if (*domain)
		virDomainFree(*domain);
}

int domain_connect(const char *uri, bool is_read_only, virConnectPtr *ret_connection)
{
	if (!uri)
		uri = VIRT_DEFAULT_URI;
	virConnectPtr connection = is_read_only ? virConnectOpenReadOnly(uri) : virConnectOpen(uri);

	if (!connection)
		return domain_fail("cannot connect to libvirt at %s", uri);
	*ret_connection = connection;
	return HPZCTL_DONE;
}

int domain_find(virConnectPtr connection, const char *name, virDomainPtr *ret_domain)
{
	virDomainPtr domain = virDomainLookupByName(connection, name);

	if (!domain)
		domain = virDomainLookupByUUIDString(connection, name);
	if (!domain) {
		hpzctl_say("libvirt has no domain %s; hpzctl domain list shows those it has", name);
		return HPZCTL_FAILED;
	}
	*ret_domain = domain;
	return HPZCTL_DONE;
}

int domain_read(virDomainPtr from, unsigned flags, char **ret_xml, struct domain *ret_domain)
{
	_cleanup_free_ char *xml = virDomainGetXMLDesc(from, flags);
	char why[DOMAIN_WHY_MAX];

	if (!xml)
		return domain_fail("cannot read domain %s", virDomainGetName(from));
	if (domain_xml_read(xml, strlen(xml), ret_domain, why) < 0) {
		hpzctl_say("domain %s: %s", virDomainGetName(from), why);
		return HPZCTL_FAILED;
	}
	if (ret_xml)
		*ret_xml = steal_pointer(&xml);
	return HPZCTL_DONE;
}

int domain_take_name(const struct hpzctl *ctl, char **operands, int count, const char **ret_name)
{
	if (count == 0)
		return hpzctl_fail_usage(ctl, "which domain?");
	if (count > 1)
		return hpzctl_fail_usage(ctl, "what is '%s' for?", operands[1]);
	*ret_name = operands[0];
	return OPTIONS_GO;
}

int domain_open_directory(const struct hook_settings *settings, const struct domain *domain)
{
	char name[DOMAIN_DIRECTORY_MAX];

	if (!domain_xml_get_directory(domain, name))
		return -ENOENT;
	_cleanup_fd_ int base = hook_place_open_base(settings->backing_dir);
	return base < 0 ? base : hook_place_open_directory(base, name);
}

bool domain_has_lease(
	const struct hpz_lease_info *lease, const char *uuid, const char *start, bool *ret_is_whole)
{
	struct lease_key key;

	if (lease->uid != 0 || (lease->state != HPZ_STATE_LEASED && lease->state != HPZ_STATE_OFFERED) ||
		!lease_key_read(lease->key, &key) || strcmp(key.uuid, uuid) != 0 ||
		(start && strcmp(key.start, start) != 0))
		return false;
	*ret_is_whole = !*key.alias;
	return true;
}

/* ---- the command line ---- */

static void domain_print_help(void)
{
	puts("usage: hpzctl domain VERB [OPTION...]\n"
	     "libvirt's domains and the memory that hpzd has for them.\n");
	for (size_t i = 0; i < ARRAY_SIZE(verbs); i++)
		printf("  %-24s %s\n", verbs[i].name + sizeof("domain"), verbs[i].help);
	puts("");
	options_print(NULL, 0);
	puts("\nhpzctl domain VERB --help says more.");
}

static const struct hpzctl_verb *domain_find_verb(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(verbs); i++) {
		if (strcmp(verbs[i].name + sizeof("domain"), name) == 0)
			return &verbs[i];
	}
	return NULL;
}

int domain_main(int argc, char **argv)
{
	static const struct hpzctl_verb itself = {"domain", NULL, "VERB", ""};
	struct hpzctl ctl = {.verb = &itself};
	bool wants_help = false;
	const struct options_row rows[] = {{"help", OPTIONS_FLAG, &wants_help, NULL, NULL}};
	char **operands;
	int count;

	virt_silence();
	int status = options_parse(&ctl, rows, ARRAY_SIZE(rows), argc, argv, true, &operands, &count);
	if (status != OPTIONS_GO)
		return status;
	if (wants_help) {
		domain_print_help();
		return HPZCTL_DONE;
	}
	if (count == 0)
		return hpzctl_fail_usage(&ctl, "which verb? As in: hpzctl domain list");
	const struct hpzctl_verb *verb = domain_find_verb(operands[0]);
	if (!verb)
		return hpzctl_fail_usage(&ctl, "there is no verb '%s'", operands[0]);
	ctl.verb = verb;
	status = verb->run(&ctl, count - 1, operands + 1);
	if (fflush(stdout) || ferror(stdout)) {
		hpzctl_say("cannot write: %s", strerror(errno));
		return status ? status : HPZCTL_FAILED;
	}
	return status;
}
