/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_domain_edit.c - what enabling and disabling changes in a domain's XML, and what stays. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "domain_edit.h"

#define HEAD    "<domain type='kvm'><name>web1</name><uuid>11111111-2222-3333-4444-5555555555ab</uuid>"
#define MEM     "<memory unit='KiB'>524288</memory><currentMemory unit='KiB'>524288</currentMemory>"
#define OS      "<os><type arch='x86_64' machine='pc-q35-7.2'>hvm</type></os>"
#define END     "</domain>"
#define POOLED  "<memoryBacking><source type='file'/><access mode='shared'/></memoryBacking>"
#define SECRET  "<devices><graphics type='vnc' passwd='a&amp;b'/></devices>"
#define VIRTIO  "<devices><filesystem type='mount'><driver type='virtiofs'/></filesystem></devices>"
#define META(s) "<metadata><h:memory xmlns:h='" DOMAIN_XML_NAMESPACE "' " s "/></metadata>"

static char why[DOMAIN_WHY_MAX];

static int apply(const char *xml, enum domain_edit_kind kind, struct domain_edit *edit)
{
	*edit = (struct domain_edit){0};
	return domain_edit_apply(xml, strlen(xml), kind, edit, why);
}

/* What comes of the edit is what comes of the expected text unedited, and a second edit changes nothing. */
static void expect(const char *xml, enum domain_edit_kind kind, const char *expected)
{
	struct domain_edit edit, plain, again;

	assert_int_equal(apply(xml, kind, &edit), 0);
	assert_int_equal(apply(expected, kind, &plain), 0);
	assert_string_equal(edit.after, plain.before);
	assert_true(edit.is_changed == (strcmp(xml, expected) != 0));
	assert_int_equal(apply(edit.after, kind, &again), 0);
	assert_false(again.is_changed);
	assert_string_equal(again.after, edit.after);
	domain_edit_deinit(&edit);
	domain_edit_deinit(&plain);
	domain_edit_deinit(&again);
}

static void test_enable(void **state)
{
	expect(HEAD MEM OS END, DOMAIN_EDIT_ENABLE, HEAD MEM POOLED OS END);
	expect(HEAD MEM POOLED OS END, DOMAIN_EDIT_ENABLE, HEAD MEM POOLED OS END);
	expect(HEAD MEM OS SECRET END, DOMAIN_EDIT_ENABLE, HEAD MEM POOLED OS SECRET END);
	expect(HEAD MEM "<memoryBacking><locked/><source type='memfd'/><discard/></memoryBacking>" OS END,
		DOMAIN_EDIT_ENABLE,
		HEAD MEM
		"<memoryBacking><locked/><source type='file'/><access mode='shared'/></memoryBacking>" OS
			END);
	expect(HEAD META("pool='no'") MEM OS END, DOMAIN_EDIT_ENABLE, HEAD MEM POOLED OS END);
	expect(HEAD META("pool='no' on-failure='refuse'") MEM OS END, DOMAIN_EDIT_ENABLE,
		HEAD META("on-failure='refuse'") MEM POOLED OS END);
}

static void test_enable_cells(void **state)
{
#define CELL(more) "<cpu><numa><cell id='0' cpus='0' memory='524288' unit='KiB'" more "/></numa></cpu>"
#define DIMM(more)                                                                                           \
	"<devices><memory model='dimm'" more                                                                 \
	"><target><size unit='KiB'>131072</size><node>0</node></target>"                                     \
	"</memory></devices>"
	expect(HEAD MEM OS CELL(" memAccess='private'") DIMM(" access='private'") END, DOMAIN_EDIT_ENABLE,
		HEAD MEM POOLED OS CELL("") DIMM("") END);
	expect(HEAD MEM POOLED OS CELL(" memAccess='shared'") DIMM("") END, DOMAIN_EDIT_DISABLE,
		HEAD MEM OS CELL("") DIMM("") END);
}

/* The page size that was asked for stays. */
static void test_enable_hugepages(void **state)
{
	struct domain_edit edit;
	static const char xml[] = HEAD MEM
		"<memoryBacking><hugepages><page size='1' unit='GiB'/></hugepages></memoryBacking>" OS END;

	assert_int_equal(apply(xml, DOMAIN_EDIT_ENABLE, &edit), 0);
	assert_null(strstr(edit.after, "hugepages"));
	assert_non_null(
		strstr(edit.after, "<hpz:memory xmlns:hpz=\"" DOMAIN_XML_NAMESPACE "\" page-size=\"1G\"/>"));
	domain_edit_deinit(&edit);
	expect(HEAD META("page-size='2M'") MEM "<memoryBacking><hugepages/></memoryBacking>" OS END,
		DOMAIN_EDIT_ENABLE, HEAD META("page-size='2M'") MEM POOLED OS END);
}

static void test_disable(void **state)
{
	expect(HEAD MEM POOLED OS END, DOMAIN_EDIT_DISABLE, HEAD MEM OS END);
	expect(HEAD "<metadata/>" MEM POOLED OS END, DOMAIN_EDIT_DISABLE, HEAD "<metadata/>" MEM OS END);
	expect(HEAD META("page-size='2M'") MEM POOLED OS END, DOMAIN_EDIT_DISABLE, HEAD MEM OS END);
	expect(HEAD MEM "<memoryBacking><source type='memfd'/><access mode='shared'/></memoryBacking>" OS END,
		DOMAIN_EDIT_DISABLE,
		HEAD MEM
		"<memoryBacking><source type='memfd'/><access mode='shared'/></memoryBacking>" OS END);
	/* The file system's daemon needs the guest's memory, too. */
	expect(HEAD MEM POOLED OS VIRTIO END, DOMAIN_EDIT_DISABLE,
		HEAD MEM
		"<memoryBacking><source type='memfd'/><access mode='shared'/></memoryBacking>" OS VIRTIO END);
}

static void expect_refused(const char *xml, const char *text)
{
	struct domain_edit edit;

	assert_int_equal(apply(xml, DOMAIN_EDIT_ENABLE, &edit), -EINVAL);
	assert_null(edit.after);
	assert_non_null(strstr(why, text));
}

static void test_refused(void **state)
{
	expect_refused("", "not XML");
	expect_refused("<network/>", "does not describe a domain");
	expect_refused("<domain type='lxc'><name>c</name>" MEM OS END, "does not run in QEMU");
	expect_refused("<!DOCTYPE d [<!ENTITY e 'x'>]>" HEAD MEM OS END, "not XML");
	expect_refused(HEAD META("pages='9'") MEM OS END, "does not know");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_enable),
		cmocka_unit_test(test_enable_cells),
		cmocka_unit_test(test_enable_hugepages),
		cmocka_unit_test(test_disable),
		cmocka_unit_test(test_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
