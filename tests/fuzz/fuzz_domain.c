/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * fuzz_domain.c - libvirt's description of a domain, hpz's own element in it included: what the hook makes of
 * it, and what `hpzctl domain` writes instead.
 */
#include "fuzz.h"

#include "domain_edit.h"
#include "domain_xml.h"

/* What the hook makes files of: names that lead nowhere else, and no more memory than the domain has. */
static void check_plan(const struct domain_plan *plan)
{
	uint64_t sum = 0;

	FUZZ_CHECK(plan->count <= DOMAIN_FILES_MAX);
	FUZZ_CHECK(memchr(plan->why, '\0', sizeof plan->why));
	for (size_t i = 0; i < plan->count; i++) {
		const struct domain_file *file = &plan->files[i];
		FUZZ_CHECK(
			domain_xml_is_alias(file->alias) && !strchr(file->alias, '/') && *file->alias != '.');
		FUZZ_CHECK(domain_xml_find_file(plan, file->alias) == file); /* each name once */
		FUZZ_CHECK(file->size > 0 && !__builtin_add_overflow(sum, file->size, &sum));
	}
	FUZZ_CHECK(plan->size == sum);
}

static void check_domain(const struct domain *domain)
{
	static struct domain_plan plan; /* some ten KiB */
	char name[DOMAIN_DIRECTORY_MAX];

	FUZZ_CHECK(domain->cell_count <= DOMAIN_CELLS_MAX && domain->dimm_count <= DOMAIN_DIMMS_MAX);
	FUZZ_CHECK(!strchr(domain->name, '/'));
	if (domain_xml_get_directory(domain, name))
		FUZZ_CHECK(*name && *name != '.' && !strchr(name, '/') && domain->id >= 0);
	domain_xml_plan(domain, &plan);
	check_plan(&plan);
	FUZZ_CHECK(!*plan.why || plan.count == 0);
	domain_xml_plan_own(domain, &plan);
	check_plan(&plan);
	domain_xml_get_own_size(domain);
}

/* An edited one can be read, and there is nothing left to edit in it. */
static void check_edit(const char *xml, size_t length, enum domain_edit_kind kind)
{
	static struct domain domain;
	struct domain_edit edit = {0}, again = {0};
	char why[DOMAIN_WHY_MAX] = "";

	int r = domain_edit_apply(xml, length, kind, &edit, why);
	if (r < 0) {
		FUZZ_CHECK(*why);
		return;
	}
	FUZZ_CHECK(edit.before && edit.after && edit.is_changed == (strcmp(edit.before, edit.after) != 0));
	FUZZ_CHECK(domain_xml_read(edit.after, strlen(edit.after), &domain, why) == 0);
	FUZZ_CHECK(domain_edit_apply(edit.after, strlen(edit.after), kind, &again, why) == 0);
	FUZZ_CHECK(!again.is_changed && strcmp(edit.after, again.before) == 0);
	domain_edit_deinit(&again);
	domain_edit_deinit(&edit);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
	static struct domain domain; /* some hundred KiB */
	struct fuzz_input input = {bytes, length};
	char why[DOMAIN_WHY_MAX] = "";
	size_t xml_length;
	_cleanup_free_ uint8_t *xml = fuzz_take_bytes(&input, DOMAIN_XML_MAX + 1, &xml_length);

	int r = domain_xml_read((const char *)xml, xml_length, &domain, why);
	if (r < 0) {
		FUZZ_CHECK(r == -EINVAL && *why);
		return 0;
	}
	check_domain(&domain);
	check_edit((const char *)xml, xml_length, DOMAIN_EDIT_ENABLE);
	check_edit((const char *)xml, xml_length, DOMAIN_EDIT_DISABLE);
	return 0;
}
