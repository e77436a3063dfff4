/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* domain_dimm.h - memory devices of a running domain, in XML. Pure: text in, text out. */
#ifndef HPZ_DOMAIN_DIMM_H
#define HPZ_DOMAIN_DIMM_H

#include "domain_xml.h"

/* Of libvirt's `slots`, which a domain with memory devices says. */
#define DOMAIN_DIMM_SLOTS_MAX 256

/*
 * The first slot that no memory device has; -EINVAL: it is no domain; -ENOSPC: all are taken; -ENOMEM.
 * libvirt and QEMU name the device, and its file, after its slot.
 */
int domain_dimm_choose_slot(const char *xml, size_t length);

#define DOMAIN_DIMM_XML_MAX 512
/* A device for libvirt to attach: so many bytes (whole KiB) in that slot, for that node of the guest. */
void domain_dimm_format(unsigned slot, uint64_t size, unsigned cell, char ret_xml[DOMAIN_DIMM_XML_MAX]);

/* The device of that alias, as libvirt takes it for detaching; *ret_xml is the caller's. 0, -ENOENT, -EINVAL
 * or -ENOMEM. */
int domain_dimm_find(const char *xml, size_t length, const char *alias, char **ret_xml);

#endif
