/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_domain_dimm.c - which slot is free, what is attached, and what is found to be detached. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "domain_dimm.h"

#define HEAD                                                                                                 \
	"<domain type='kvm' id='3'><name>web1</name><uuid>11111111-2222-3333-4444-5555555555ab</uuid>"       \
	"<memory unit='KiB'>524288</memory><memoryBacking><source type='file'/><access mode='shared'/>"      \
	"</memoryBacking><devices><disk><address type='dimm' slot='0'/></disk>"
#define TAIL "</devices></domain>"
#define DIMM(alias, slot)                                                                                    \
	"<memory model='dimm'><target><size unit='KiB'>131072</size><node>0</node></target><alias "          \
	"name='" alias "'/><address type='dimm' slot='" slot "' base='0x100000000'/></memory>"

static void expect_slot(const char *xml, int slot)
{
	assert_int_equal(domain_dimm_choose_slot(xml, strlen(xml)), slot);
}

static void test_slots(void **state)
{
	expect_slot(HEAD TAIL, 0);
	expect_slot(HEAD DIMM("dimm0", "0") TAIL, 1);
	expect_slot(HEAD DIMM("dimm1", "1") TAIL, 0);
	expect_slot(HEAD DIMM("dimm2", "2") DIMM("dimm0", "0") DIMM("nvdimm1", "1") TAIL, 3);
	expect_slot(HEAD DIMM("x", "") DIMM("y", "0x1") DIMM("z", "-1") DIMM("w", "99999999999999999999")
			    TAIL,
		0);
	expect_slot("<network/>", -EINVAL);
	expect_slot("", -EINVAL);
}

static void test_no_slot(void **state)
{
	_cleanup_free_ char *xml = NULL;
	size_t size;
	FILE *file = open_memstream(&xml, &size);

	assert_non_null(file);
	fputs(HEAD, file);
	for (int i = 0; i < DOMAIN_DIMM_SLOTS_MAX; i++)
		fprintf(file, DIMM("d", "%d"), i);
	fputs(TAIL, file);
	fclose(file);
	expect_slot(xml, -ENOSPC);
}

/* What is attached is what the reader of domains then finds. */
static void test_format(void **state)
{
	static struct domain domain;
	static struct domain_plan plan;
	char device[DOMAIN_DIMM_XML_MAX], xml[4096], why[DOMAIN_WHY_MAX];

	domain_dimm_format(255, UINT64_MAX - 1023, UINT32_MAX, device);
	assert_true(strlen(device) < DOMAIN_DIMM_XML_MAX - 1);
	domain_dimm_format(7, 1ull << 30, 0, device);
	snprintf(xml, sizeof(xml), "%s%s%s", HEAD, device, TAIL);
	assert_int_equal(domain_dimm_choose_slot(xml, strlen(xml)), 0);
	assert_int_equal(domain_xml_read(xml, strlen(xml), &domain, why), 0);
	assert_true(domain.dimm_count == 1 && domain.dimms[0].is_dimm && domain.dimms[0].size == 1ull << 30 &&
		    domain.dimms[0].access == DOMAIN_ACCESS_SHARED);
	domain_xml_plan(&domain, &plan);
	assert_int_equal(plan.left_out, 0);
}

static void test_find(void **state)
{
	static const char xml[] = HEAD DIMM("dimm0", "0") DIMM("dimm1", "1") TAIL;
	char *device = NULL;

	assert_int_equal(domain_dimm_find(xml, strlen(xml), "dimm2", &device), -ENOENT);
	assert_int_equal(domain_dimm_find("<x/>", 4, "dimm2", &device), -EINVAL);
	assert_null(device);
	assert_int_equal(domain_dimm_find(xml, strlen(xml), "dimm1", &device), 0);
	assert_non_null(strstr(device, "slot=\"1\""));
	assert_null(strstr(device, "slot=\"0\""));
	assert_int_equal(strncmp(device, "<memory ", 8), 0);
	free(device);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_slots),
		cmocka_unit_test(test_no_slot),
		cmocka_unit_test(test_format),
		cmocka_unit_test(test_find),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
