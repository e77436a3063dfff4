/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* domain_dimm.c - memory devices of a running domain, in XML. */
#include "domain_dimm.h"

#include <inttypes.h>
#include <libxml/parser.h>
#include <libxml/tree.h>

static xmlNode *domain_dimm_find_child(xmlNode *parent, const char *name)
{
	for (xmlNode *node = parent ? parent->children : NULL; node; node = node->next) {
		if (node->type == XML_ELEMENT_NODE && strcmp((const char *)node->name, name) == 0)
			return node;
	}
	return NULL;
}

/* What the reader of domains takes is no danger here either. 0, -EINVAL or -ENOMEM. */
static int domain_dimm_parse(const char *xml, size_t length, xmlDoc **ret_document)
{
	_cleanup_free_ struct domain *domain = malloc(sizeof(*domain));
	char why[DOMAIN_WHY_MAX];
	int r = domain ? domain_xml_read(xml, length, domain, why) : -ENOMEM;

	if (r < 0)
		return r;
	*ret_document = xmlReadMemory(
		xml, (int)length, NULL, "UTF-8", XML_PARSE_NONET | XML_PARSE_NOERROR | XML_PARSE_NOWARNING);
	return *ret_document ? 0 : -ENOMEM;
}

/* The first memory device, or the one behind `at`. */
static xmlNode *domain_dimm_get_next(xmlDoc *document, xmlNode *at)
{
	xmlNode *devices = domain_dimm_find_child(xmlDocGetRootElement(document), "devices");
	xmlNode *node = at ? at->next : devices ? devices->children : NULL;

	while (node && (node->type != XML_ELEMENT_NODE || strcmp((const char *)node->name, "memory") != 0))
		node = node->next;
	return node;
}

/* -1: it has none. */
static long domain_dimm_get_slot(xmlNode *device)
{
	xmlNode *address = domain_dimm_find_child(device, "address");
	xmlChar *text = address ? xmlGetNoNsProp(address, BAD_CAST "slot") : NULL;
	char *rest = NULL;
	long slot = text ? strtol((const char *)text, &rest, 10) : -1;

	if (text && (*rest || rest == (const char *)text || slot < 0 || slot >= DOMAIN_DIMM_SLOTS_MAX))
		slot = -1;
	xmlFree(text);
	return slot;
}

int domain_dimm_choose_slot(const char *xml, size_t length)
{
	bool is_taken[DOMAIN_DIMM_SLOTS_MAX] = {false};
	xmlDoc *document = NULL;
	int slot = 0;

	int r = domain_dimm_parse(xml, length, &document);
	if (r < 0)
		return r;
	for (xmlNode *device = domain_dimm_get_next(document, NULL); device;
		device = domain_dimm_get_next(document, device)) {
		long taken = domain_dimm_get_slot(device);
		if (taken >= 0)
			is_taken[taken] = true;
	}
	xmlFreeDoc(document);
	while (slot < DOMAIN_DIMM_SLOTS_MAX && is_taken[slot])
		slot++;
	return slot < DOMAIN_DIMM_SLOTS_MAX ? slot : -ENOSPC;
}

void domain_dimm_format(unsigned slot, uint64_t size, unsigned cell, char ret_xml[DOMAIN_DIMM_XML_MAX])
{
	snprintf(ret_xml, DOMAIN_DIMM_XML_MAX,
		"<memory model='dimm' access='shared'>"
		"<target><size unit='KiB'>%" PRIu64 "</size><node>%u</node></target>"
		"<address type='dimm' slot='%u'/></memory>",
		size / 1024, cell, slot);
}

static bool domain_dimm_has_alias(xmlNode *device, const char *alias)
{
	xmlNode *node = domain_dimm_find_child(device, "alias");
	xmlChar *name = node ? xmlGetNoNsProp(node, BAD_CAST "name") : NULL;
	bool is_it = name && strcmp((const char *)name, alias) == 0;

	xmlFree(name);
	return is_it;
}

static char *domain_dimm_write(xmlDoc *document, xmlNode *device)
{
	xmlBuffer *buffer = xmlBufferCreate();
	char *text = NULL;

	if (buffer && xmlNodeDump(buffer, document, device, 0, 0) > 0)
		text = strdup((const char *)xmlBufferContent(buffer));
	xmlBufferFree(buffer);
	return text;
}

int domain_dimm_find(const char *xml, size_t length, const char *alias, char **ret_xml)
{
	xmlDoc *document = NULL;
	int r = domain_dimm_parse(xml, length, &document);

	if (r < 0)
		return r;
	xmlNode *device = domain_dimm_get_next(document, NULL);
	while (device && !domain_dimm_has_alias(device, alias))
		device = domain_dimm_get_next(document, device);
	char *text = device ? domain_dimm_write(document, device) : NULL;
	xmlFreeDoc(document);
	if (!device)
		return -ENOENT;
	if (text)
		*ret_xml = text;
	return text ? 0 : -ENOMEM;
}
