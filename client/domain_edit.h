/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * domain_edit.h - a domain's XML with memory that can come from a pool, or without again.
 * Pure: text in, text out. Nothing else of the XML changes; both texts are written in one way, so that their
 * difference is what was changed.
 */
#ifndef HPZ_DOMAIN_EDIT_H
#define HPZ_DOMAIN_EDIT_H

#include "domain_xml.h"

enum domain_edit_kind {
	/*
	 * A file, shared, for all of its memory. <hugepages> and <discard> go: with the one libvirt asks for
	 * no file, with the other the memory comes back as holes. A page size that was said stays, as hpz's.
	 */
	DOMAIN_EDIT_ENABLE,
	/* Whatever libvirt takes by itself; a memfd where a device needs shared memory, as virtiofs does. */
	DOMAIN_EDIT_DISABLE,
};

struct domain_edit {
	char *before, *after;
	bool is_changed;
};

/* 0; -EINVAL with a sentence in ret_why; or -ENOMEM. */
int domain_edit_apply(const char *xml, size_t length, enum domain_edit_kind kind,
	struct domain_edit *ret_edit, char ret_why[DOMAIN_WHY_MAX]);
void domain_edit_deinit(struct domain_edit *edit);

#endif
