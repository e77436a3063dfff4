/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * domain_xml.c - what libvirt's description of a domain says about its memory, and which files that means.
 * libxml2 reads, because the XML has everything XML can have. What is not needed is not read; what is needed
 * is either understood or refused, with the first reason.
 */
#include "domain_xml.h"

#include <ctype.h>
#include <libxml/parser.h>
#include <libxml/tree.h>
#include <stdarg.h>

#define NUMBER_MAX    32
#define NODESET_MAX   256
#define SHORT_NAME    20 /* characters: VIR_DOMAIN_SHORT_NAME_MAX of libvirt */
#define KIB           1024ull
#define SIZE_LID      (1ull << 54) /* bytes: more than any machine has, and sums do not overflow */
#define LIBVIRT_NODES 64           /* of the host: hpz's own limit */

static PRINTF(2, 3) int domain_xml_refuse(char why[DOMAIN_WHY_MAX], const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(why, DOMAIN_WHY_MAX, format, args);
	va_end(args);
	return -EINVAL;
}

/* ---- elements and attributes ---- */

static bool domain_xml_is(const xmlNode *node, const char *name)
{
	return node->type == XML_ELEMENT_NODE && !node->ns && strcmp((const char *)node->name, name) == 0;
}

/* The next element of that name from `node` on, as libvirt names them: without a namespace. */
static xmlNode *domain_xml_find(xmlNode *node, const char *name)
{
	while (node && !domain_xml_is(node, name))
		node = node->next;
	return node;
}

static xmlNode *domain_xml_find_child(xmlNode *parent, const char *name)
{
	return parent ? domain_xml_find(parent->children, name) : NULL;
}

/* A child's child. */
static xmlNode *domain_xml_find_grandchild(xmlNode *parent, const char *child, const char *name)
{
	return domain_xml_find_child(domain_xml_find_child(parent, child), name);
}

/* Takes libxml2's string. 1; 0: there is none; -E2BIG: it does not fit. */
static int domain_xml_take(xmlChar *text, char *ret_text, size_t capacity)
{
	size_t length = text ? strlen((const char *)text) : 0;
	int r = text ? 1 : 0;

	if (text && length < capacity)
		memcpy(ret_text, text, length + 1);
	else if (text)
		r = -E2BIG;
	xmlFree(text);
	return r;
}

static int domain_xml_get_text(const xmlNode *node, char *ret_text, size_t capacity)
{
	return node ? domain_xml_take(xmlNodeGetContent(node), ret_text, capacity) : 0;
}

static int domain_xml_get_attribute(xmlNode *node, const char *name, char *ret_text, size_t capacity)
{
	xmlChar *text = node ? xmlGetNoNsProp(node, (const xmlChar *)name) : NULL;

	return domain_xml_take(text, ret_text, capacity);
}

/* What informs and decides nothing: one that is too long is left out. */
static void domain_xml_note_text(const xmlNode *node, char *ret_text, size_t capacity)
{
	domain_xml_get_text(node, ret_text, capacity);
}

struct domain_word {
	const char *word;
	int value;
};

/* The value of an attribute that is one of some words, `missing` when it is not there or none of them. */
static int domain_xml_get_word(
	xmlNode *node, const char *name, const struct domain_word *words, size_t count, int missing)
{
	char text[NUMBER_MAX];

	if (domain_xml_get_attribute(node, name, text, sizeof(text)) != 1)
		return missing;
	for (size_t i = 0; i < count; i++) {
		if (strcmp(words[i].word, text) == 0)
			return words[i].value;
	}
	return missing;
}

static enum domain_access domain_xml_get_access(xmlNode *node, const char *attribute)
{
	static const struct domain_word words[] = {
		{"shared", DOMAIN_ACCESS_SHARED}, {"private", DOMAIN_ACCESS_PRIVATE}};

	return (enum domain_access)domain_xml_get_word(
		node, attribute, words, ARRAY_SIZE(words), DOMAIN_ACCESS_NONE);
}

/* ---- numbers ---- */

/* Digits, with blanks around them; libvirt itself writes nothing else. */
static int domain_xml_parse_number(const char *text, uint64_t *ret_number)
{
	char *end;

	while (isspace((unsigned char)*text))
		text++;
	if (!isdigit((unsigned char)*text))
		return -EINVAL;
	errno = 0;
	unsigned long long number = strtoull(text, &end, 10);
	while (isspace((unsigned char)*end))
		end++;
	if (*end || errno)
		return -EINVAL;
	*ret_number = number;
	return 0;
}

/* libvirt's units: "k" and "KiB" are 1024, "KB" is 1000. */
static int domain_xml_parse_unit(const char *unit, uint64_t *ret_bytes)
{
	static const char letters[] = "kmgtpe";

	if (strcasecmp(unit, "b") == 0 || strcasecmp(unit, "bytes") == 0) {
		*ret_bytes = 1;
		return 0;
	}
	const char *found = *unit ? strchr(letters, tolower((unsigned char)*unit)) : NULL;
	uint64_t base = unit[0] && strcasecmp(unit + 1, "b") == 0 ? 1000 : KIB, bytes = 1;
	if (!found || (unit[1] && strcasecmp(unit + 1, "b") != 0 && strcasecmp(unit + 1, "ib") != 0))
		return -EINVAL;
	for (ptrdiff_t i = 0; i <= found - letters; i++)
		bytes *= base;
	*ret_bytes = bytes;
	return 0;
}

static int domain_xml_scale(
	const char *what, const char *number, const char *unit, uint64_t *ret_bytes, char why[DOMAIN_WHY_MAX])
{
	uint64_t count, scale, bytes;

	if (domain_xml_parse_number(number, &count) < 0)
		return domain_xml_refuse(why, "<%s> is not a number", what);
	if (domain_xml_parse_unit(unit, &scale) < 0)
		return domain_xml_refuse(why, "<%s> has a unit that libvirt does not have", what);
	if (__builtin_mul_overflow(count, scale, &bytes) || bytes > SIZE_LID)
		return domain_xml_refuse(why, "<%s> is more than any machine has", what);
	*ret_bytes = bytes;
	return 0;
}

/* A size in an element's text, or in an attribute of it; in KiB unless `unit` says otherwise. */
static int domain_xml_get_size(
	xmlNode *node, const char *attribute, const char *what, uint64_t *ret_bytes, char why[DOMAIN_WHY_MAX])
{
	char number[NUMBER_MAX], unit[NUMBER_MAX] = "KiB";
	int r = attribute ? domain_xml_get_attribute(node, attribute, number, sizeof(number))
			  : domain_xml_get_text(node, number, sizeof(number));

	if (r == 0)
		return domain_xml_refuse(why, "there is no <%s>", what);
	if (r < 0 || domain_xml_get_attribute(node, "unit", unit, sizeof(unit)) < 0)
		return domain_xml_refuse(why, "<%s> is not a number", what);
	return domain_xml_scale(what, number, unit, ret_bytes, why);
}

/* Takes "0", "0-3" off the front of a list; `^` before it is the caller's. */
static int domain_xml_parse_range(const char **text, uint64_t *ret_mask)
{
	unsigned long first, last;
	char *end;

	if (!isdigit((unsigned char)**text))
		return -EINVAL;
	first = last = strtoul(*text, &end, 10);
	if (*end == '-') {
		if (!isdigit((unsigned char)end[1]))
			return -EINVAL;
		last = strtoul(end + 1, &end, 10);
	}
	if (first > last || last >= LIBVIRT_NODES)
		return -ERANGE;
	*ret_mask = 0;
	for (unsigned long node = first; node <= last; node++)
		*ret_mask |= 1ull << node;
	*text = end;
	return 0;
}

/* "0-3,^2,8" as libvirt writes sets of nodes; none is a mistake. */
static int domain_xml_parse_nodes(const char *text, uint64_t *ret_mask)
{
	uint64_t mask = 0, range;

	for (const char *at = text;; at++) {
		bool is_out = *at == '^';
		at += is_out;
		int r = domain_xml_parse_range(&at, &range);
		if (r < 0)
			return r;
		mask = is_out ? mask & ~range : mask | range;
		if (!*at)
			break;
		if (*at != ',')
			return -EINVAL;
	}
	if (!mask)
		return -EINVAL;
	*ret_mask = mask;
	return 0;
}

static int domain_xml_get_nodes(
	xmlNode *node, const char *attribute, uint64_t *ret_mask, char why[DOMAIN_WHY_MAX])
{
	char text[NODESET_MAX];
	int r = attribute ? domain_xml_get_attribute(node, attribute, text, sizeof(text))
			  : domain_xml_get_text(node, text, sizeof(text));

	if (r == 0)
		return 0;
	if (r < 0 || (r = domain_xml_parse_nodes(text, ret_mask)) == -EINVAL)
		return domain_xml_refuse(why, "a set of NUMA nodes is not one");
	if (r < 0)
		return domain_xml_refuse(why, "it names NUMA nodes beyond %d", LIBVIRT_NODES - 1);
	return 0;
}

/* ---- name, uuid, id ---- */

static bool domain_xml_is_uuid(const char *text)
{
	for (size_t i = 0; i < DOMAIN_UUID_MAX; i++) {
		bool is_dash = i == 8 || i == 13 || i == 18 || i == 23;
		if (is_dash ? text[i] != '-' : !isxdigit((unsigned char)text[i]))
			return false;
	}
	return !text[DOMAIN_UUID_MAX];
}

static int domain_xml_read_uuid(xmlNode *root, struct domain *domain, char why[DOMAIN_WHY_MAX])
{
	xmlNode *node = domain_xml_find_child(root, "uuid");
	int r = domain_xml_get_text(node, domain->uuid, sizeof(domain->uuid));

	if (r < 0 || (r == 1 && !domain_xml_is_uuid(domain->uuid)))
		return domain_xml_refuse(why, "<uuid> is none");
	for (char *at = domain->uuid; *at; at++)
		*at = (char)tolower((unsigned char)*at);
	return 0;
}

/* libxml2 has seen to it that it is UTF-8. */
static int domain_xml_read_name(xmlNode *root, struct domain *domain, char why[DOMAIN_WHY_MAX])
{
	xmlNode *node = domain_xml_find_child(root, "name");
	int r = domain_xml_get_text(node, domain->name, sizeof(domain->name));

	if (r < 0)
		return domain_xml_refuse(why, "its name is longer than %d bytes", DOMAIN_NAME_MAX);
	if (r == 0 || !*domain->name)
		return domain_xml_refuse(why, "it has no name");
	for (const char *at = domain->name; *at; at++) {
		unsigned char c = (unsigned char)*at;
		bool is_c1 = c == 0xc2 && (unsigned char)at[1] < 0xa0;
		if (c == '/' || c < 0x20 || c == 0x7f || is_c1)
			return domain_xml_refuse(why, "its name has a slash or a control character");
	}
	return 0;
}

static int domain_xml_read_identity(xmlNode *root, struct domain *domain, char why[DOMAIN_WHY_MAX])
{
	char id[NUMBER_MAX];
	uint64_t number;

	domain->id = -1;
	int r = domain_xml_get_attribute(root, "id", id, sizeof(id));
	if (r < 0 || (r == 1 && (domain_xml_parse_number(id, &number) < 0 || number > INT32_MAX)))
		return domain_xml_refuse(why, "its id is not a number");
	if (r == 1)
		domain->id = (int64_t)number;
	if (domain_xml_get_attribute(root, "type", domain->type, sizeof(domain->type)) < 0)
		return domain_xml_refuse(why, "its type is none of libvirt's");
	r = domain_xml_read_name(root, domain, why);
	return r < 0 ? r : domain_xml_read_uuid(root, domain, why);
}

/* ---- machine, labels ---- */

/* A dac label says who QEMU runs as; imagelabel is what its files have. */
static void domain_xml_read_labels(xmlNode *root, struct domain *domain)
{
	char model[NUMBER_MAX];

	for (xmlNode *node = domain_xml_find_child(root, "seclabel"); node;
		node = domain_xml_find(node->next, "seclabel")) {
		if (domain_xml_get_attribute(node, "model", model, sizeof(model)) != 1)
			continue;
		if (strcmp(model, "dac") == 0)
			domain_xml_note_text(domain_xml_find_child(node, "label"), domain->dac_label,
				sizeof(domain->dac_label));
		else if (strcmp(model, "selinux") == 0)
			domain_xml_note_text(domain_xml_find_child(node, "imagelabel"), domain->selinux_label,
				sizeof(domain->selinux_label));
	}
}

static void domain_xml_read_machine(xmlNode *root, struct domain *domain)
{
	xmlNode *type = domain_xml_find_grandchild(root, "os", "type");

	domain_xml_get_attribute(type, "arch", domain->arch, sizeof(domain->arch));
	domain_xml_get_attribute(type, "machine", domain->machine, sizeof(domain->machine));
	domain_xml_note_text(domain_xml_find_grandchild(root, "devices", "emulator"), domain->emulator,
		sizeof(domain->emulator));
}

/* ---- memory ---- */

static int domain_xml_read_backing(xmlNode *root, struct domain *domain, char why[DOMAIN_WHY_MAX])
{
	static const struct domain_word sources[] = {{"file", DOMAIN_SOURCE_FILE},
		{"memfd", DOMAIN_SOURCE_MEMFD}, {"anonymous", DOMAIN_SOURCE_ANONYMOUS}};
	xmlNode *backing = domain_xml_find_child(root, "memoryBacking");
	xmlNode *hugepages = domain_xml_find_child(backing, "hugepages");
	xmlNode *page = domain_xml_find_child(hugepages, "page");

	domain->source = (enum domain_source)domain_xml_get_word(domain_xml_find_child(backing, "source"),
		"type", sources, ARRAY_SIZE(sources), DOMAIN_SOURCE_NONE);
	domain->access = domain_xml_get_access(domain_xml_find_child(backing, "access"), "mode");
	domain->is_discarded = domain_xml_find_child(backing, "discard") != NULL;
	domain->has_hugepages = hugepages != NULL;
	return page ? domain_xml_get_size(page, "size", "page", &domain->page_size, why) : 0;
}

static int domain_xml_read_cell(xmlNode *node, struct domain *domain, char why[DOMAIN_WHY_MAX])
{
	struct domain_cell *cell = &domain->cells[domain->cell_count];
	char text[NUMBER_MAX];
	uint64_t id = domain->cell_count;

	if (domain->cell_count == DOMAIN_CELLS_MAX)
		return domain_xml_refuse(why, "it has more than %d cells", DOMAIN_CELLS_MAX);
	int r = domain_xml_get_attribute(node, "id", text, sizeof(text));
	if (r < 0 || (r == 1 && domain_xml_parse_number(text, &id) < 0) || id >= UINT32_MAX)
		return domain_xml_refuse(why, "the id of a cell is not a number");
	for (size_t i = 0; i < domain->cell_count; i++) {
		if (domain->cells[i].id == id)
			return domain_xml_refuse(why, "two cells have the id %u", (unsigned)id);
	}
	cell->id = (uint32_t)id;
	cell->access = domain_xml_get_access(node, "memAccess");
	r = domain_xml_get_size(node, "memory", "cell", &cell->size, why);
	domain->cell_count += r == 0;
	return r;
}

static int domain_xml_read_cells(xmlNode *root, struct domain *domain, char why[DOMAIN_WHY_MAX])
{
	xmlNode *numa = domain_xml_find_grandchild(root, "cpu", "numa");
	int r = 0;

	for (xmlNode *node = domain_xml_find_child(numa, "cell"); node && r == 0;
		node = domain_xml_find(node->next, "cell"))
		r = domain_xml_read_cell(node, domain, why);
	return r;
}

static enum domain_mode domain_xml_get_mode(xmlNode *node)
{
	static const struct domain_word words[] = {{"strict", DOMAIN_MODE_STRICT},
		{"preferred", DOMAIN_MODE_PREFERRED}, {"interleave", DOMAIN_MODE_INTERLEAVE},
		{"restrictive", DOMAIN_MODE_RESTRICTIVE}};

	return (enum domain_mode)domain_xml_get_word(
		node, "mode", words, ARRAY_SIZE(words), DOMAIN_MODE_NONE);
}

static int domain_xml_read_memnode(xmlNode *node, struct domain *domain, char why[DOMAIN_WHY_MAX])
{
	char text[NUMBER_MAX];
	uint64_t id;

	if (domain_xml_get_attribute(node, "cellid", text, sizeof(text)) != 1 ||
		domain_xml_parse_number(text, &id) < 0)
		return domain_xml_refuse(why, "the cellid of a <memnode> is not a number");
	for (size_t i = 0; i < domain->cell_count; i++) {
		struct domain_cell *cell = &domain->cells[i];
		if (cell->id != id)
			continue;
		cell->nodes.mode = domain_xml_get_mode(node);
		return domain_xml_get_nodes(node, "nodeset", &cell->nodes.mask, why);
	}
	return domain_xml_refuse(why, "a <memnode> is for a cell that does not exist");
}

static int domain_xml_read_numatune(xmlNode *root, struct domain *domain, char why[DOMAIN_WHY_MAX])
{
	xmlNode *numatune = domain_xml_find_child(root, "numatune");
	xmlNode *memory = domain_xml_find_child(numatune, "memory");

	domain->nodes.mode = domain_xml_get_mode(memory);
	int r = domain_xml_get_nodes(memory, "nodeset", &domain->nodes.mask, why);
	for (xmlNode *node = domain_xml_find_child(numatune, "memnode"); node && r == 0;
		node = domain_xml_find(node->next, "memnode"))
		r = domain_xml_read_memnode(node, domain, why);
	return r;
}

bool domain_xml_is_alias(const char *text)
{
	size_t length = strlen(text);

	return length > 0 && length <= DOMAIN_ALIAS_MAX && text[0] != '.' &&
	       strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-") == length;
}

static int domain_xml_read_dimm(xmlNode *node, struct domain *domain, char why[DOMAIN_WHY_MAX])
{
	enum { DIMM = 1, ELSEWHERE };
	static const struct domain_word models[] = {
		{"dimm", DIMM}, {"nvdimm", ELSEWHERE}, {"virtio-pmem", ELSEWHERE}, {"sgx-epc", ELSEWHERE}};
	struct domain_dimm *dimm = &domain->dimms[domain->dimm_count];
	xmlNode *source = domain_xml_find_child(node, "source");
	xmlNode *nodemask = domain_xml_find_child(source, "nodemask");

	if (domain->dimm_count == DOMAIN_DIMMS_MAX)
		return domain_xml_refuse(why, "it has more than %d memory devices", DOMAIN_DIMMS_MAX);
	int model = domain_xml_get_word(node, "model", models, ARRAY_SIZE(models), 0);
	dimm->is_dimm = model == DIMM;
	dimm->is_elsewhere = model == ELSEWHERE;
	dimm->has_page_size = domain_xml_find_child(source, "pagesize") != NULL;
	dimm->access = domain_xml_get_access(node, "access");
	int r = domain_xml_get_attribute(
		domain_xml_find_child(node, "alias"), "name", dimm->alias, sizeof(dimm->alias));
	if (r < 0 || (r == 1 && !domain_xml_is_alias(dimm->alias)))
		return domain_xml_refuse(why, "the alias of a memory device is not one");
	r = domain_xml_get_size(
		domain_xml_find_grandchild(node, "target", "size"), NULL, "size", &dimm->size, why);
	if (r == 0)
		r = domain_xml_get_nodes(nodemask, NULL, &dimm->nodes.mask, why);
	domain->dimm_count += r == 0;
	return r;
}

static int domain_xml_read_dimms(xmlNode *root, struct domain *domain, char why[DOMAIN_WHY_MAX])
{
	xmlNode *devices = domain_xml_find_child(root, "devices");
	int r = 0;

	for (xmlNode *node = domain_xml_find_child(devices, "memory"); node && r == 0;
		node = domain_xml_find(node->next, "memory"))
		r = domain_xml_read_dimm(node, domain, why);
	return r;
}

static int domain_xml_read_memory(xmlNode *root, struct domain *domain, char why[DOMAIN_WHY_MAX])
{
	int r = domain_xml_get_size(
		domain_xml_find_child(root, "memory"), NULL, "memory", &domain->memory, why);

	if (r == 0)
		r = domain_xml_read_backing(root, domain, why);
	if (r == 0)
		r = domain_xml_read_cells(root, domain, why);
	if (r == 0)
		r = domain_xml_read_numatune(root, domain, why);
	if (r == 0)
		r = domain_xml_read_dimms(root, domain, why);
	return r;
}

/* ---- settings ---- */

typedef int (*domain_setting_fn)(const char *text, struct domain *domain);

static int domain_xml_set_pool(const char *text, struct domain *domain)
{
	if (strcmp(text, "yes") == 0)
		domain->settings.pool = DOMAIN_CHOICE_YES;
	else if (strcmp(text, "no") == 0)
		domain->settings.pool = DOMAIN_CHOICE_NO;
	else
		return -EINVAL;
	return 0;
}

static int domain_xml_set_failure(const char *text, struct domain *domain)
{
	if (strcmp(text, "refuse") == 0)
		domain->settings.on_failure = DOMAIN_FAILURE_REFUSE;
	else if (strcmp(text, "fallback") == 0)
		domain->settings.on_failure = DOMAIN_FAILURE_FALLBACK;
	else
		return -EINVAL;
	return 0;
}

static int domain_xml_set_page_size(const char *text, struct domain *domain)
{
	char number[NUMBER_MAX], why[DOMAIN_WHY_MAX];
	size_t digits = strspn(text, "0123456789");
	uint64_t bytes;

	if (strcmp(text, "any") == 0)
		return 0;
	if (digits == 0 || digits >= sizeof(number))
		return -EINVAL;
	snprintf(number, sizeof(number), "%.*s", (int)digits, text);
	if (domain_xml_scale("page-size", number, text[digits] ? text + digits : "b", &bytes, why) < 0 ||
		bytes < KIB || (bytes & (bytes - 1)))
		return -EINVAL;
	domain->settings.page_size = bytes;
	return 0;
}

static int domain_xml_set_nodes(const char *text, struct domain *domain)
{
	return strcmp(text, "any") == 0 ? 0 : domain_xml_parse_nodes(text, &domain->settings.nodes);
}

static const struct domain_setting {
	const char *name;
	domain_setting_fn set;
	const char *what;
} domain_settings[] = {
	{"pool", domain_xml_set_pool, "yes or no"},
	{"on-failure", domain_xml_set_failure, "fallback or refuse"},
	{"page-size", domain_xml_set_page_size, "any, or a size as 2M or 1G"},
	{"nodes", domain_xml_set_nodes, "any, or NUMA nodes as 0-1,3"},
};

static const struct domain_setting *domain_xml_find_setting(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(domain_settings); i++) {
		if (strcmp(domain_settings[i].name, name) == 0)
			return &domain_settings[i];
	}
	return NULL;
}

static void domain_xml_read_setting(xmlNode *node, const xmlAttr *attribute, struct domain *domain)
{
	const struct domain_setting *setting = domain_xml_find_setting((const char *)attribute->name);
	char text[NODESET_MAX], *mistake = domain->settings.mistake;
	size_t capacity = sizeof(domain->settings.mistake);

	if (!setting) {
		snprintf(mistake, capacity, "<hpz:memory> does not know `%.32s`",
			(const char *)attribute->name);
		return;
	}
	if (domain_xml_get_attribute(node, setting->name, text, sizeof(text)) != 1 ||
		setting->set(text, domain) < 0)
		snprintf(mistake, capacity, "%s of <hpz:memory> is not %s", setting->name, setting->what);
}

static void domain_xml_read_settings(xmlNode *root, struct domain *domain)
{
	xmlNode *metadata = domain_xml_find_child(root, "metadata");

	for (xmlNode *node = metadata ? metadata->children : NULL; node; node = node->next) {
		if (node->type != XML_ELEMENT_NODE || !node->ns || !node->ns->href ||
			strcmp((const char *)node->ns->href, DOMAIN_XML_NAMESPACE) != 0 ||
			strcmp((const char *)node->name, DOMAIN_XML_ELEMENT) != 0)
			continue;
		for (const xmlAttr *attribute = node->properties; attribute; attribute = attribute->next)
			domain_xml_read_setting(node, attribute, domain);
		return;
	}
}

/* ---- the document ---- */

/* A document type brings entities along, which libvirt never does: there is nothing to expand. */
static void domain_xml_refuse_type(
	void *parser, const xmlChar *name, const xmlChar *external, const xmlChar *system)
{
	((xmlParserCtxt *)parser)->wellFormed = 0;
	xmlStopParser(parser);
}

static int domain_xml_read_root(xmlNode *root, struct domain *domain, char why[DOMAIN_WHY_MAX])
{
	if (!root || !domain_xml_is(root, "domain"))
		return domain_xml_refuse(why, "it does not describe a domain");
	int r = domain_xml_read_identity(root, domain, why);
	if (r == 0)
		r = domain_xml_read_memory(root, domain, why);
	if (r < 0)
		return r;
	domain_xml_read_machine(root, domain);
	domain_xml_read_labels(root, domain);
	domain_xml_read_settings(root, domain);
	return 0;
}

static int domain_xml_parse(const char *xml, size_t length, xmlParserCtxt *parser, struct domain *domain,
	char why[DOMAIN_WHY_MAX])
{
	const int options = XML_PARSE_NONET | XML_PARSE_NOERROR | XML_PARSE_NOWARNING;

	parser->sax->internalSubset = domain_xml_refuse_type;
	xmlDoc *document = xmlCtxtReadMemory(parser, xml, (int)length, NULL, "UTF-8", options);
	int r = document && parser->wellFormed
			? domain_xml_read_root(xmlDocGetRootElement(document), domain, why)
			: domain_xml_refuse(why, "it is not XML that libvirt writes");
	xmlFreeDoc(document);
	return r;
}

int domain_xml_read(const char *xml, size_t length, struct domain *ret_domain, char ret_why[DOMAIN_WHY_MAX])
{
	if (length > DOMAIN_XML_MAX)
		return domain_xml_refuse(ret_why, "it is longer than %u bytes", DOMAIN_XML_MAX);
	_cleanup_free_ struct domain *domain = calloc(1, sizeof(*domain));
	xmlParserCtxt *parser = domain ? xmlNewParserCtxt() : NULL;
	int r = parser ? domain_xml_parse(xml, length, parser, domain, ret_why) : -ENOMEM;

	if (parser)
		xmlFreeParserCtxt(parser);
	if (r == -ENOMEM)
		snprintf(ret_why, DOMAIN_WHY_MAX, "there is no memory to read it");
	if (r == 0)
		*ret_domain = *domain;
	return r;
}

/* ---- the plan ---- */

/* What QEMU calls the memory of a machine without cells; libvirt names the file after it. */
static const struct domain_machine {
	const char *arch, *machine; /* their beginnings */
	const char *alias;
} domain_machines[] = {
	{"x86_64", "microvm", "microvm.ram"},
	{"x86_64", "", "pc.ram"},
	{"i686", "", "pc.ram"},
	{"aarch64", "virt", "mach-virt.ram"},
	{"armv7l", "virt", "mach-virt.ram"},
	{"s390x", "", "s390.ram"},
	{"ppc64", "pseries", "ppc_spapr.ram"},
	{"riscv64", "virt", "riscv_virt_board.ram"},
	{"loongarch64", "virt", "loongarch.ram"},
};

static const char *domain_xml_find_alias(const struct domain *domain)
{
	/* Without an architecture it is not libvirt's own XML, and libvirt takes the host's. */
	const char *arch = *domain->arch ? domain->arch : "x86_64";

	for (size_t i = 0; i < ARRAY_SIZE(domain_machines); i++) {
		const struct domain_machine *row = &domain_machines[i];
		if (strncmp(arch, row->arch, strlen(row->arch)) == 0 &&
			strncmp(domain->machine, row->machine, strlen(row->machine)) == 0)
			return row->alias;
	}
	return NULL;
}

static bool domain_xml_is_shared(const struct domain *domain, enum domain_access own)
{
	return (own != DOMAIN_ACCESS_NONE ? own : domain->access) == DOMAIN_ACCESS_SHARED;
}

static int domain_xml_add_file(const struct domain *domain, const char *alias, uint64_t size,
	const struct domain_nodes *nodes, struct domain_plan *plan)
{
	const struct domain_nodes *chosen = nodes->mask ? nodes : &domain->nodes;
	struct domain_file *file = &plan->files[plan->count];

	if (plan->count == DOMAIN_FILES_MAX)
		return domain_xml_refuse(plan->why, "it has more than %d cells and dimms", DOMAIN_FILES_MAX);
	if (size == 0)
		return domain_xml_refuse(plan->why, "%s has no size", alias);
	if (domain_xml_find_file(plan, alias))
		return domain_xml_refuse(plan->why, "it has %s twice", alias);
	*file = (struct domain_file){.size = size,
		.nodes = domain->settings.nodes ? domain->settings.nodes : chosen->mask,
		.is_preferred = !domain->settings.nodes && chosen->mode == DOMAIN_MODE_PREFERRED};
	snprintf(file->alias, sizeof(file->alias), "%s", alias);
	plan->size += size;
	plan->count++;
	return 0;
}

/* Those are asked for with their own huge pages, or can be of any size later: QEMU makes them. */
static bool domain_xml_is_left_out(const struct domain *domain, const struct domain_dimm *dimm)
{
	return !dimm->is_dimm || dimm->has_page_size || !domain_xml_is_shared(domain, dimm->access);
}

/* Bytes QEMU takes for a device's file: of memory that is not shared once for the file, once for the copy. */
static uint64_t domain_xml_get_made_size(const struct domain *domain, const struct domain_dimm *dimm)
{
	if (dimm->is_elsewhere || dimm->has_page_size)
		return 0;
	return domain_xml_is_shared(domain, dimm->access) ? dimm->size : 2 * dimm->size;
}

static int domain_xml_plan_dimms(const struct domain *domain, struct domain_plan *plan)
{
	char alias[DOMAIN_ALIAS_MAX + 1];

	for (size_t i = 0; i < domain->dimm_count; i++) {
		const struct domain_dimm *dimm = &domain->dimms[i];
		if (domain_xml_is_left_out(domain, dimm)) {
			plan->left_out++;
			plan->left_out_size += domain_xml_get_made_size(domain, dimm);
			continue;
		}
		snprintf(alias, sizeof(alias), "dimm%zu", i);
		int r = domain_xml_add_file(
			domain, *dimm->alias ? dimm->alias : alias, dimm->size, &dimm->nodes, plan);
		if (r < 0)
			return r;
	}
	return 0;
}

static int domain_xml_plan_cells(const struct domain *domain, struct domain_plan *plan)
{
	char alias[DOMAIN_ALIAS_MAX + 1];
	int r = 0;

	for (size_t i = 0; i < domain->cell_count && r == 0; i++) {
		const struct domain_cell *cell = &domain->cells[i];
		if (!domain_xml_is_shared(domain, cell->access))
			return domain_xml_refuse(plan->why,
				"the memory of cell %u is not shared (memAccess='shared'), so QEMU would "
				"copy it",
				cell->id);
		snprintf(alias, sizeof(alias), "ram-node%u", cell->id);
		r = domain_xml_add_file(domain, alias, cell->size, &cell->nodes, plan);
	}
	return r;
}

static int domain_xml_plan_whole(const struct domain *domain, struct domain_plan *plan)
{
	const char *alias = domain_xml_find_alias(domain);
	uint64_t dimms = 0;

	if (!domain_xml_is_shared(domain, DOMAIN_ACCESS_NONE))
		return domain_xml_refuse(plan->why,
			"its memory is not shared (<access mode='shared'/>), so QEMU would copy it");
	if (!alias)
		return domain_xml_refuse(plan->why,
			"it is a machine (%s %s) whose memory hpz cannot name: give it a NUMA cell",
			domain->arch, domain->machine);
	for (size_t i = 0; i < domain->dimm_count; i++)
		dimms += domain->dimms[i].size;
	return domain_xml_add_file(domain, alias, domain->memory - MIN(dimms, domain->memory),
		&(struct domain_nodes){0, DOMAIN_MODE_NONE}, plan);
}

static bool domain_xml_runs_in_qemu(const struct domain *domain)
{
	return strcmp(domain->type, "kvm") == 0 || strcmp(domain->type, "qemu") == 0;
}

/* Why it does not want memory from the pool, or NULL. */
static const char *domain_xml_find_refusal(const struct domain *domain)
{
	if (domain->settings.pool == DOMAIN_CHOICE_NO)
		return "its metadata says pool='no'";
	if (!domain_xml_runs_in_qemu(domain))
		return "it does not run in QEMU";
	if (domain->has_hugepages)
		return "<hugepages>: libvirt does not ask for a file then; leave them out, or have hpz-qemu "
		       "as its "
		       "<emulator>";
	if (domain->source != DOMAIN_SOURCE_FILE)
		return "its memory is not a file (<memoryBacking><source type='file'/><access "
		       "mode='shared'/>)";
	return NULL;
}

static void domain_xml_plan_files(const struct domain *domain, struct domain_plan *plan)
{
	int r = domain->cell_count ? domain_xml_plan_cells(domain, plan)
				   : domain_xml_plan_whole(domain, plan);

	if (r == 0)
		r = domain_xml_plan_dimms(domain, plan);
	if (r < 0)
		plan->count = 0;
}

void domain_xml_plan(const struct domain *domain, struct domain_plan *ret_plan)
{
	const char *refusal = domain_xml_find_refusal(domain);

	*ret_plan = (struct domain_plan){.page_size = domain->settings.page_size};
	/* Who has settings for the pool, or its kind of memory, means it. */
	ret_plan->is_wanted = domain->settings.pool == DOMAIN_CHOICE_YES ||
			      (!refusal && domain->source == DOMAIN_SOURCE_FILE);
	if (refusal) {
		domain_xml_refuse(ret_plan->why, "%s", refusal);
		return;
	}
	if (*domain->settings.mistake) {
		domain_xml_refuse(ret_plan->why, "%s", domain->settings.mistake);
		return;
	}
	domain_xml_plan_files(domain, ret_plan);
}

uint64_t domain_xml_get_own_size(const struct domain *domain)
{
	uint64_t size = domain->memory, cells = 0, devices = 0;

	if (domain->source != DOMAIN_SOURCE_FILE || domain->has_hugepages || !domain_xml_runs_in_qemu(domain))
		return 0;
	for (size_t i = 0; i < domain->dimm_count; i++) {
		size -= MIN(size, domain->dimms[i].size);
		devices += domain_xml_get_made_size(domain, &domain->dimms[i]);
	}
	if (!domain_xml_is_shared(domain, DOMAIN_ACCESS_NONE))
		size *= 2;
	for (size_t i = 0; i < domain->cell_count; i++) {
		bool is_shared = domain_xml_is_shared(domain, domain->cells[i].access);
		cells += is_shared ? domain->cells[i].size : 2 * domain->cells[i].size;
	}
	return (domain->cell_count ? cells : size) + devices;
}

void domain_xml_plan_own(const struct domain *domain, struct domain_plan *ret_plan)
{
	*ret_plan = (struct domain_plan){.is_wanted = domain_xml_get_own_size(domain) > 0};
	if (ret_plan->is_wanted)
		domain_xml_plan_files(domain, ret_plan);
	if (ret_plan->count == 0)
		ret_plan->size = 0;
}

const struct domain_file *domain_xml_find_file(const struct domain_plan *plan, const char *alias)
{
	for (size_t i = 0; i < plan->count; i++) {
		if (strcmp(plan->files[i].alias, alias) == 0)
			return &plan->files[i];
	}
	return NULL;
}

bool domain_xml_get_directory(const struct domain *domain, char ret_name[DOMAIN_DIRECTORY_MAX])
{
	size_t length = 0, characters = 0;

	if (domain->id < 0)
		return false;
	for (; domain->name[length]; length++) {
		bool begins = ((unsigned char)domain->name[length] & 0xc0) != 0x80;
		if (begins && characters++ == SHORT_NAME)
			break;
	}
	snprintf(ret_name, DOMAIN_DIRECTORY_MAX, "%lld-%.*s", (long long)domain->id, (int)length,
		domain->name);
	return true;
}
