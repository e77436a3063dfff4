/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* domain.h - hpzctl domain: the part of hpzctl that knows libvirt, in a program of its own. */
#ifndef HPZ_DOMAIN_H
#define HPZ_DOMAIN_H

#include <libvirt/libvirt.h>

#include "domain_xml.h"
#include "hook_settings.h"
#include "hpzctl.h"
#include "options.h"

/* What stands behind "domain" on the command line. Returns the exit status. */
int domain_main(int argc, char **argv);

/* ---- the verbs: argv begins behind the verb; each returns the exit status ---- */

int domain_list(struct hpzctl *ctl, int argc, char **argv);
int domain_check(struct hpzctl *ctl, int argc, char **argv);
int domain_enable(struct hpzctl *ctl, int argc, char **argv);
int domain_disable(struct hpzctl *ctl, int argc, char **argv);
int domain_attach_memory(struct hpzctl *ctl, int argc, char **argv);
int domain_detach_memory(struct hpzctl *ctl, int argc, char **argv);

/* ---- what they share ---- */

#define DOMAIN_CONNECT_ROW(uri)                                                                              \
	{                                                                                                    \
		"connect", OPTIONS_TEXT, uri, "URI", "libvirt's (default qemu:///system)"                    \
	}

/* Says what failed and what libvirt says about it; returns the exit status. */
int domain_fail(const char *format, ...) PRINTF(1, 2);

/* Connects, or says why not. Returns 0 or the exit status. */
int domain_connect(const char *uri, bool is_read_only, virConnectPtr *ret_connection);

/* By name or uuid; says if there is none. Returns 0 or the exit status. */
int domain_find(virConnectPtr connection, const char *name, virDomainPtr *ret_domain);

/* Of a domain with these VIR_DOMAIN_XML_*; *ret_xml (may be NULL) is the caller's. Returns 0 or the exit
 * status. */
int domain_read(virDomainPtr from, unsigned flags, char **ret_xml, struct domain *ret_domain);

/* The one operand. OPTIONS_GO or the exit status. */
int domain_take_name(const struct hpzctl *ctl, char **operands, int count, const char **ret_name);

/* The directory of a domain that runs, of which root alone learns its start. A descriptor or negative errno.
 */
int domain_open_directory(const struct hook_settings *settings, const struct domain *domain);

/*
 * Whether a lease of root's has memory of that domain and has not ended; `is_whole`: what it was started
 * with. Those of another start are not the domain's, where `start` is known; NULL: it is not.
 */
bool domain_has_lease(
	const struct hpz_lease_info *lease, const char *uuid, const char *start, bool *ret_is_whole);

void domain_cleanup_connection(virConnectPtr *connection);
void domain_cleanup_domain(virDomainPtr *domain);
#define _cleanup_connection_ __attribute__((cleanup(domain_cleanup_connection)))
#define _cleanup_domain_     __attribute__((cleanup(domain_cleanup_domain)))

#endif
