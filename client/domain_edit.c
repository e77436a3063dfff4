/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* domain_edit.c - a domain's XML with memory that can come from a pool, or without again. */
#include "domain_edit.h"

#include <inttypes.h>
#include <libxml/parser.h>
#include <libxml/tree.h>

#define DOMAIN_EDIT_PREFIX "hpz"

/* ---- the tree ---- */

static bool domain_edit_is(const xmlNode *node, const char *name)
{
	return node->type == XML_ELEMENT_NODE && !node->ns && strcmp((const char *)node->name, name) == 0;
}

static xmlNode *domain_edit_find(xmlNode *parent, const char *name)
{
	for (xmlNode *node = parent ? parent->children : NULL; node; node = node->next) {
		if (domain_edit_is(node, name))
			return node;
	}
	return NULL;
}

static void domain_edit_remove(xmlNode *node)
{
	if (!node)
		return;
	xmlUnlinkNode(node);
	xmlFreeNode(node);
}

static bool domain_edit_has_elements(const xmlNode *parent)
{
	for (const xmlNode *node = parent->children; node; node = node->next) {
		if (node->type == XML_ELEMENT_NODE)
			return true;
	}
	return false;
}

static bool domain_edit_has_value(xmlNode *node, const char *name, const char *value)
{
	xmlChar *text = xmlGetNoNsProp(node, BAD_CAST name);
	bool is_it = text && strcmp((const char *)text, value) == 0;

	xmlFree(text);
	return is_it;
}

/* The attribute goes if it has that value. */
static void domain_edit_drop_value(xmlNode *node, const char *name, const char *value)
{
	xmlAttr *attribute =
		domain_edit_has_value(node, name, value) ? xmlHasProp(node, BAD_CAST name) : NULL;

	if (attribute)
		xmlRemoveProp(attribute);
}

/* The child of that name has this value; it is made if there is none. */
static bool domain_edit_set(xmlNode *parent, const char *child, const char *name, const char *value)
{
	xmlNode *node = domain_edit_find(parent, child);

	if (!node)
		node = xmlNewChild(parent, NULL, BAD_CAST child, NULL);
	return node && xmlSetProp(node, BAD_CAST name, BAD_CAST value);
}

/* Where libvirt writes it itself: behind the amounts of memory. */
static xmlNode *domain_edit_add_backing(xmlNode *root)
{
	static const char *const before[] = {"currentMemory", "memory", "maxMemory", "name"};
	xmlNode *node = xmlNewNode(NULL, BAD_CAST "memoryBacking"), *at = NULL;

	for (size_t i = 0; i < ARRAY_SIZE(before) && !at; i++)
		at = domain_edit_find(root, before[i]);
	if (node && !(at ? xmlAddNextSibling(at, node) : xmlAddChild(root, node))) {
		xmlFreeNode(node);
		return NULL;
	}
	return node;
}

/* ---- hpz's own element ---- */

static xmlNode *domain_edit_find_settings(xmlNode *root)
{
	xmlNode *metadata = domain_edit_find(root, "metadata");

	for (xmlNode *node = metadata ? metadata->children : NULL; node; node = node->next) {
		if (node->type == XML_ELEMENT_NODE && node->ns && node->ns->href &&
			strcmp((const char *)node->ns->href, DOMAIN_XML_NAMESPACE) == 0 &&
			strcmp((const char *)node->name, DOMAIN_XML_ELEMENT) == 0)
			return node;
	}
	return NULL;
}

static xmlNode *domain_edit_add_settings(xmlNode *root)
{
	xmlNode *metadata = domain_edit_find(root, "metadata");

	if (!metadata)
		metadata = xmlNewChild(root, NULL, BAD_CAST "metadata", NULL);
	xmlNode *node = metadata ? xmlNewChild(metadata, NULL, BAD_CAST DOMAIN_XML_ELEMENT, NULL) : NULL;
	xmlNs *space =
		node ? xmlNewNs(node, BAD_CAST DOMAIN_XML_NAMESPACE, BAD_CAST DOMAIN_EDIT_PREFIX) : NULL;

	xmlSetNs(node, space);
	return space ? node : NULL;
}

static void domain_edit_remove_settings(xmlNode *root)
{
	xmlNode *metadata = domain_edit_find(root, "metadata"), *settings = domain_edit_find_settings(root);

	domain_edit_remove(settings);
	if (settings && !domain_edit_has_elements(metadata))
		domain_edit_remove(metadata);
}

static bool domain_edit_keep_page_size(xmlNode *root, uint64_t page_size)
{
	xmlNode *node = domain_edit_find_settings(root);
	char text[24];

	if (!node)
		node = domain_edit_add_settings(root);
	if (!node)
		return false;
	snprintf(text, sizeof(text), "%" PRIu64 "%s",
		page_size >= 1u << 30 ? page_size >> 30 : page_size >> 20, page_size >= 1u << 30 ? "G" : "M");
	return xmlHasProp(node, BAD_CAST "page-size") ||
	       xmlSetProp(node, BAD_CAST "page-size", BAD_CAST text);
}

/* ---- the two edits ---- */

/* What is said of a cell or memory device counts more than what is said of all. */
static void domain_edit_drop_access(xmlNode *root, const char *value)
{
	xmlNode *numa = domain_edit_find(domain_edit_find(root, "cpu"), "numa");
	xmlNode *devices = domain_edit_find(root, "devices");

	for (xmlNode *node = numa ? numa->children : NULL; node; node = node->next) {
		if (domain_edit_is(node, "cell"))
			domain_edit_drop_value(node, "memAccess", value);
	}
	for (xmlNode *node = devices ? devices->children : NULL; node; node = node->next) {
		if (domain_edit_is(node, "memory") && domain_edit_has_value(node, "model", "dimm"))
			domain_edit_drop_value(node, "access", value);
	}
}

static bool domain_edit_enable(xmlNode *root, const struct domain *domain)
{
	xmlNode *backing = domain_edit_find(root, "memoryBacking"),
		*settings = domain_edit_find_settings(root);

	if (settings)
		domain_edit_drop_value(settings, "pool", "no");
	if (settings && !settings->properties)
		domain_edit_remove_settings(root);
	if (!backing)
		backing = domain_edit_add_backing(root);
	if (!backing)
		return false;
	domain_edit_remove(domain_edit_find(backing, "hugepages"));
	domain_edit_remove(domain_edit_find(backing, "discard"));
	domain_edit_drop_access(root, "private");
	return (!domain->page_size || domain_edit_keep_page_size(root, domain->page_size)) &&
	       domain_edit_set(backing, "source", "type", "file") &&
	       domain_edit_set(backing, "access", "mode", "shared");
}

/* Devices of another process, which has the guest's memory, too. */
static bool domain_edit_needs_shared(xmlNode *node)
{
	static const char *const values[] = {"virtiofs", "vhostuser", "vhost-user"};

	for (; node; node = node->next) {
		if (node->type != XML_ELEMENT_NODE)
			continue;
		for (size_t i = 0; i < ARRAY_SIZE(values); i++) {
			if (domain_edit_has_value(node, "type", values[i]) ||
				domain_edit_has_value(node, "name", values[i]))
				return true;
		}
		/* libvirt's devices have their type there or one below, and nothing is deeper than the reader
		 * takes. */
		if (domain_edit_needs_shared(node->children))
			return true;
	}
	return false;
}

static bool domain_edit_disable(xmlNode *root)
{
	xmlNode *backing = domain_edit_find(root, "memoryBacking");
	xmlNode *source = domain_edit_find(backing, "source"), *devices = domain_edit_find(root, "devices");

	domain_edit_remove_settings(root);
	if (!source || !domain_edit_has_value(source, "type", "file"))
		return true;
	if (devices && domain_edit_needs_shared(devices->children))
		return xmlSetProp(source, BAD_CAST "type", BAD_CAST "memfd");
	domain_edit_remove(source);
	domain_edit_remove(domain_edit_find(backing, "access"));
	domain_edit_drop_access(root, "shared");
	if (!domain_edit_has_elements(backing))
		domain_edit_remove(backing);
	return true;
}

/* ---- the document ---- */

static char *domain_edit_write(xmlDoc *document)
{
	xmlChar *dump = NULL;
	int length = 0;

	xmlDocDumpFormatMemoryEnc(document, &dump, &length, "UTF-8", 1);
	char *text = dump ? strndup((const char *)dump, (size_t)length) : NULL;
	xmlFree(dump);
	return text;
}

/* Without the line that says it is XML, which libvirt does not write. */
static void domain_edit_strip(char *text)
{
	char *end = strncmp(text, "<?xml", 5) == 0 ? strchr(text, '\n') : NULL;

	if (end)
		memmove(text, end + 1, strlen(end + 1) + 1);
}

static int domain_edit_check(
	const struct domain_edit *edit, enum domain_edit_kind kind, char why[DOMAIN_WHY_MAX])
{
	_cleanup_free_ struct domain *domain = malloc(sizeof(*domain));
	_cleanup_free_ struct domain_plan *plan = malloc(sizeof(*plan));

	if (!domain || !plan)
		return -ENOMEM;
	int r = domain_xml_read(edit->after, strlen(edit->after), domain, why);
	if (r < 0 || kind == DOMAIN_EDIT_DISABLE)
		return r;
	domain_xml_plan(domain, plan);
	if (!*plan->why)
		return 0;
	snprintf(why, DOMAIN_WHY_MAX, "%s", plan->why);
	return -EINVAL;
}

static int domain_edit_run(
	xmlDoc *document, const struct domain *domain, enum domain_edit_kind kind, struct domain_edit *edit)
{
	xmlNode *root = xmlDocGetRootElement(document);

	edit->before = domain_edit_write(document);
	bool is_done =
		kind == DOMAIN_EDIT_ENABLE ? domain_edit_enable(root, domain) : domain_edit_disable(root);
	edit->after = is_done ? domain_edit_write(document) : NULL;
	if (!edit->before || !edit->after)
		return -ENOMEM;
	domain_edit_strip(edit->before);
	domain_edit_strip(edit->after);
	edit->is_changed = strcmp(edit->before, edit->after) != 0;
	return 0;
}

int domain_edit_apply(const char *xml, size_t length, enum domain_edit_kind kind,
	struct domain_edit *ret_edit, char ret_why[DOMAIN_WHY_MAX])
{
	_cleanup_free_ struct domain *domain = malloc(sizeof(*domain));
	struct domain_edit edit = {0};

	if (!domain)
		return -ENOMEM;
	/* Whatever that reader takes is no danger here either. */
	int r = domain_xml_read(xml, length, domain, ret_why);
	if (r < 0)
		return r;
	xmlDoc *document = xmlReadMemory(xml, (int)length, NULL, "UTF-8",
		XML_PARSE_NONET | XML_PARSE_NOERROR | XML_PARSE_NOWARNING | XML_PARSE_NOBLANKS);
	r = document ? domain_edit_run(document, domain, kind, &edit) : -ENOMEM;
	xmlFreeDoc(document);
	if (r == 0)
		r = domain_edit_check(&edit, kind, ret_why);
	if (r < 0)
		domain_edit_deinit(&edit);
	else
		*ret_edit = edit;
	return r;
}

void domain_edit_deinit(struct domain_edit *edit)
{
	free(edit->before);
	free(edit->after);
	*edit = (struct domain_edit){0};
}
