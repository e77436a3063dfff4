/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_domain_xml.c - domains: what is read out of their XML, which files that means, and what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "dice.h"
#include "domain_xml.h"

#define MI   (1ull << 20)
#define GI   (1ull << 30)
#define UUID "11111111-2222-3333-4444-5555555555ab"

#define HEAD  "<domain type='kvm' id='7'><name>web1</name><uuid>" UUID "</uuid>"
#define MEM   "<memory unit='KiB'>524288</memory>"
#define FILE_ "<memoryBacking><source type='file'/><access mode='shared'/></memoryBacking>"
#define TAIL  "<os><type arch='x86_64' machine='pc-q35-7.2'>hvm</type></os></domain>"
#define CELL2                                                                                                \
	"<cpu><numa><cell id='0' cpus='0' memory='262144' unit='KiB'/>"                                      \
	"<cell id='1' cpus='1' memory='256' unit='MiB'/></numa></cpu>"
#define META(text)                                                                                           \
	"<metadata><x:y xmlns:x='urn:x' pool='no'/><h:memory xmlns:h='" DOMAIN_XML_NAMESPACE "' " text       \
	"/></metadata>"
#define DIMM(alias, more)                                                                                    \
	"<memory model='dimm'" more "><target><size unit='KiB'>131072</size><node>0</node></target>"         \
	"<alias name='" alias "'/></memory>"

static struct domain domain;
static struct domain_plan plan;
static char why[DOMAIN_WHY_MAX];
static int seed_count; /* the command line, for the dice */
static char **seed_words;

static void read_domain(const char *xml)
{
	int r = domain_xml_read(xml, strlen(xml), &domain, why);

	if (r < 0)
		print_error("%s: %s\n", xml, why);
	assert_int_equal(r, 0);
	domain_xml_plan(&domain, &plan);
}

static void refuse_domain(const char *xml, const char *reason)
{
	strcpy(why, "");
	assert_int_equal(domain_xml_read(xml, strlen(xml), &domain, why), -EINVAL);
	if (!strstr(why, reason))
		print_error("%.200s: %s\n", xml, why);
	assert_non_null(strstr(why, reason));
}

/* ---- what is read ---- */

static void test_identity(void **state)
{
	char name[DOMAIN_DIRECTORY_MAX];

	read_domain("<domain type='kvm' "
		    "id='7'><name>a&lt;b</name><uuid>11111111-2222-3333-4444-5555555555AB</uuid>" MEM
		    "<seclabel type='dynamic' "
		    "model='dac'><label>+64055:+108</label><imagelabel>+1:+1</imagelabel></seclabel>"
		    "<seclabel type='dynamic' "
		    "model='selinux'><label>p</label><imagelabel>u:r:svirt_image_t</imagelabel></seclabel>"
		    "<devices><emulator>/usr/bin/qemu-system-x86_64</emulator></devices>" TAIL);
	assert_string_equal(domain.uuid, UUID);
	assert_string_equal(domain.name, "a<b");
	assert_int_equal(domain.id, 7);
	assert_string_equal(domain.type, "kvm");
	assert_string_equal(domain.machine, "pc-q35-7.2");
	assert_string_equal(domain.dac_label, "+64055:+108");
	assert_string_equal(domain.selinux_label, "u:r:svirt_image_t");
	assert_string_equal(domain.emulator, "/usr/bin/qemu-system-x86_64");
	assert_true(domain_xml_get_directory(&domain, name));
	assert_string_equal(name, "7-a<b");
	read_domain("<domain><name>n</name><memory>1</memory></domain>");
	assert_int_equal(domain.id, -1);
	assert_string_equal(domain.uuid, "");
	assert_int_equal(domain.memory, 1024);
	assert_false(domain_xml_get_directory(&domain, name));
}

/* libvirt cuts names after 20 characters, not bytes. */
static void test_directory(void **state)
{
	static const struct {
		const char *name, *directory;
	} rows[] = {
		{"x", "7-x"},
		{"12345678901234567890", "7-12345678901234567890"},
		{"123456789012345678901", "7-12345678901234567890"},
		{"\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4"
		 "\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xb6z",
			"7-\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4"
			"\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xb6"},
		{"..", "7-.."},
		{" ", "7- "},
	};
	char name[DOMAIN_DIRECTORY_MAX], xml[512];

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		snprintf(xml, sizeof(xml), "<domain id='7'><name>%s</name><memory>1</memory></domain>",
			rows[i].name);
		read_domain(xml);
		assert_true(domain_xml_get_directory(&domain, name));
		assert_string_equal(name, rows[i].directory);
	}
}

struct size_row {
	const char *text; /* of <memory> */
	uint64_t bytes;   /* 0: refused */
};

static void test_sizes(void **state)
{
	static const struct size_row rows[] = {
		{"<memory>2048</memory>", 2 * MI},
		{"<memory> 2048\n</memory>", 2 * MI},
		{"<memory unit='b'>4096</memory>", 4096},
		{"<memory unit='bytes'>4096</memory>", 4096},
		{"<memory unit='k'>1</memory>", 1024},
		{"<memory unit='KB'>1</memory>", 1000},
		{"<memory unit='MiB'>3</memory>", 3 * MI},
		{"<memory unit='M'>3</memory>", 3 * MI},
		{"<memory unit='MB'>3</memory>", 3000000},
		{"<memory unit='gib'>3</memory>", 3 * GI},
		{"<memory unit='T'>1</memory>", 1024 * GI},
		{"<memory unit='P'>1</memory>", 1024 * 1024 * GI},
		{"<memory unit='E'>1</memory>", 0},
		{"<memory unit='furlong'>1</memory>", 0},
		{"<memory unit=''>1</memory>", 0},
		{"<memory unit='Mi'>1</memory>", 0},
		{"<memory>-1</memory>", 0},
		{"<memory>+1</memory>", 0},
		{"<memory>0x10</memory>", 0},
		{"<memory>1.5</memory>", 0},
		{"<memory>1e3</memory>", 0},
		{"<memory></memory>", 0},
		{"<memory/>", 0},
		{"<memory>18446744073709551616</memory>", 0},
		{"<memory>18446744073709551615</memory>", 0},
		{"<memory>99999999999999999999999999999999999999999</memory>", 0},
		{"", 0},
	};
	char xml[512];

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		snprintf(xml, sizeof(xml), HEAD "%s" FILE_ TAIL, rows[i].text);
		if (rows[i].bytes) {
			read_domain(xml);
			assert_int_equal(domain.memory, rows[i].bytes);
		} else {
			refuse_domain(xml, "<memory>");
		}
	}
}

/* ---- plans ---- */

static void check_file(size_t i, const char *alias, uint64_t size, uint64_t nodes, bool is_preferred)
{
	assert_string_equal(plan.files[i].alias, alias);
	assert_int_equal(plan.files[i].size, size);
	assert_int_equal(plan.files[i].nodes, nodes);
	assert_int_equal(plan.files[i].is_preferred, is_preferred);
	assert_ptr_equal(domain_xml_find_file(&plan, alias), &plan.files[i]);
}

static void test_whole(void **state)
{
	read_domain(HEAD MEM FILE_ TAIL);
	assert_string_equal(plan.why, "");
	assert_true(plan.is_wanted);
	assert_int_equal(plan.count, 1);
	assert_int_equal(plan.size, 512 * MI);
	check_file(0, "pc.ram", 512 * MI, 0, false);
	assert_null(domain_xml_find_file(&plan, "pc.rom"));
	read_domain(HEAD MEM FILE_ "<numatune><memory mode='preferred' nodeset='1'/></numatune>" TAIL);
	check_file(0, "pc.ram", 512 * MI, 2, true);
	read_domain(HEAD MEM FILE_ "<numatune><memory mode='strict' nodeset='0-3,^2'/></numatune>" TAIL);
	check_file(0, "pc.ram", 512 * MI, 11, false);
	read_domain(HEAD MEM FILE_ "<numatune><memory mode='strict' placement='auto'/></numatune>" TAIL);
	check_file(0, "pc.ram", 512 * MI, 0, false);
}

static void test_machines(void **state)
{
	static const struct {
		const char *arch, *machine, *alias;
	} rows[] = {
		{"x86_64", "pc-i440fx-7.2", "pc.ram"},
		{"x86_64", "microvm", "microvm.ram"},
		{"i686", "pc", "pc.ram"},
		{"aarch64", "virt-7.2", "mach-virt.ram"},
		{"s390x", "s390-ccw-virtio-7.2", "s390.ram"},
		{"ppc64le", "pseries-7.2", "ppc_spapr.ram"},
		{"riscv64", "virt", "riscv_virt_board.ram"},
		{"aarch64", "raspi3b", NULL},
		{"sparc", "SS-5", NULL},
	};
	char xml[1024];

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		snprintf(xml, sizeof(xml),
			HEAD MEM FILE_ "<os><type arch='%s' machine='%s'>hvm</type></os></domain>",
			rows[i].arch, rows[i].machine);
		read_domain(xml);
		assert_int_equal(plan.count, rows[i].alias ? 1 : 0);
		if (rows[i].alias)
			assert_string_equal(plan.files[0].alias, rows[i].alias);
		else
			assert_non_null(strstr(plan.why, rows[i].machine));
	}
}

static void test_cells(void **state)
{
	read_domain(HEAD MEM FILE_ CELL2 "<numatune><memory mode='strict' nodeset='0-1'/><memnode cellid='1' "
					 "mode='preferred' nodeset='1'/>"
					 "</numatune>" TAIL);
	assert_int_equal(plan.count, 2);
	check_file(0, "ram-node0", 256 * MI, 3, false);
	check_file(1, "ram-node1", 256 * MI, 2, true);
	assert_int_equal(plan.size, 512 * MI);
	/* A cell's own word counts. */
	read_domain(HEAD MEM "<memoryBacking><source type='file'/></memoryBacking><cpu><numa>"
			     "<cell id='3' memory='1024' memAccess='shared'/></numa></cpu>" TAIL);
	check_file(0, "ram-node3", MI, 0, false);
	read_domain(HEAD MEM FILE_ "<cpu><numa><cell memory='1024'/><cell memory='1024' "
				   "memAccess='private'/></numa></cpu>" TAIL);
	assert_int_equal(plan.count, 0);
	assert_non_null(strstr(plan.why, "cell 1 is not shared"));
	refuse_domain(HEAD MEM
		"<cpu><numa><cell id='1' memory='1'/><cell id='1' memory='1'/></numa></cpu>" TAIL,
		"two cells have the id 1");
	refuse_domain(HEAD MEM "<cpu><numa><cell id='-1' memory='1'/></numa></cpu>" TAIL, "id of a cell");
	refuse_domain(HEAD MEM "<cpu><numa><cell id='1'/></numa></cpu>" TAIL, "<cell>");
	refuse_domain(HEAD MEM CELL2 "<numatune><memnode cellid='9' nodeset='0'/></numatune>" TAIL,
		"does not exist");
	refuse_domain(HEAD MEM CELL2 "<numatune><memnode nodeset='0'/></numatune>" TAIL, "cellid");
	refuse_domain(HEAD MEM "<numatune><memory nodeset='0-64'/></numatune>" TAIL, "beyond 63");
	refuse_domain(HEAD MEM "<numatune><memory nodeset='3-1'/></numatune>" TAIL, "NUMA");
	refuse_domain(HEAD MEM "<numatune><memory nodeset='0-'/></numatune>" TAIL, "not one");
	refuse_domain(HEAD MEM "<numatune><memory nodeset='0,^0'/></numatune>" TAIL, "not one");
	refuse_domain(HEAD MEM "<numatune><memory nodeset='0;1'/></numatune>" TAIL, "not one");
	refuse_domain(HEAD MEM "<numatune><memory nodeset='-1'/></numatune>" TAIL, "not one");
}

static void test_dimms(void **state)
{
	read_domain(HEAD MEM FILE_ CELL2 "<devices>" DIMM("dimm0", "") DIMM(
		"ua-mine", " access='shared'") DIMM("dimm2",
		" access='private'") "<memory model='virtio-mem'><target><size>1</size></target></memory>"
				     "<memory model='dimm'><source><pagesize "
				     "unit='KiB'>2048</pagesize><nodemask>1</nodemask></source>"
				     "<target><size unit='MiB'>128</size></target></memory>"
				     "<memory model='dimm'><source><nodemask>1</nodemask></source>"
				     "<target><size unit='MiB'>128</size></target></memory></devices>" TAIL);
	assert_string_equal(plan.why, "");
	assert_int_equal(plan.count, 5);
	assert_int_equal(plan.left_out, 3);
	assert_int_equal(plan.left_out_size, 256 * MI + 1024); /* dimm2 is private; one has a page size */
	check_file(2, "dimm0", 128 * MI, 0, false);
	check_file(3, "ua-mine", 128 * MI, 0, false);
	check_file(4, "dimm5", 128 * MI, 2, false);
	/* <memory> counts them, the file of the memory at boot does not. */
	read_domain(HEAD MEM FILE_ "<devices>" DIMM("dimm0", "") "</devices>" TAIL);
	check_file(0, "pc.ram", 384 * MI, 0, false);
	read_domain(HEAD "<memory>131072</memory>" FILE_ "<devices>" DIMM("dimm0", "") "</devices>" TAIL);
	assert_int_equal(plan.count, 0);
	assert_non_null(strstr(plan.why, "pc.ram has no size"));
	/* Two of one name, also of that of the memory. */
	read_domain(HEAD MEM FILE_ "<devices>" DIMM("pc.ram", "") "</devices>" TAIL);
	assert_non_null(strstr(plan.why, "twice"));
}

/* What QEMU makes files of in the domain's directory when nobody else does. */
static void test_own_size(void **state)
{
#define PRIVATE "<memoryBacking><source type='file'/></memoryBacking>"
	static const struct {
		const char *xml;
		uint64_t size;
	} rows[] = {
		{HEAD MEM FILE_ TAIL, 512 * MI},
		{HEAD MEM PRIVATE TAIL, 1024 * MI},
		{HEAD MEM FILE_ CELL2 TAIL, 512 * MI},
		{HEAD MEM PRIVATE CELL2 TAIL, 1024 * MI},
		{HEAD MEM FILE_ "<devices>" DIMM("dimm0", "") "</devices>" TAIL, 512 * MI},
		{HEAD MEM FILE_ "<devices>" DIMM("dimm0", " access='private'") "</devices>" TAIL, 640 * MI},
		{HEAD MEM FILE_ "<devices><memory "
				"model='nvdimm'><target><size>1024</size></target></memory></devices>" TAIL,
			511 * MI},
		{HEAD META("pool='no'") MEM FILE_ TAIL, 512 * MI},
		{HEAD MEM TAIL, 0},
		{HEAD MEM "<memoryBacking><hugepages/><source type='file'/></memoryBacking>" TAIL, 0},
		{"<domain type='lxc'><name>n</name>" MEM FILE_ "</domain>", 0},
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		read_domain(rows[i].xml);
		assert_int_equal(domain_xml_get_own_size(&domain), rows[i].size);
	}
}

static void test_aliases(void **state)
{
	static const char *const hostile[] = {"../pc.ram", "/etc/passwd", "..", ".", ".hidden", "a/b", "a b",
		"a\\b", "\xc3\xa4", "a&#10;b", "a%n", "",
		"0123456789012345678901234567890123456789012345678901234567890123"};
	char xml[2048];

	for (size_t i = 0; i < ARRAY_SIZE(hostile); i++) {
		snprintf(xml, sizeof(xml),
			HEAD MEM FILE_ "<devices><memory model='dimm'><target><size>1024</size></target>"
				       "<alias name='%s'/></memory></devices>" TAIL,
			hostile[i]);
		refuse_domain(xml, "alias");
		assert_false(domain_xml_is_alias(hostile[i]));
	}
	assert_true(domain_xml_is_alias("pc.ram"));
}

static void test_reasons(void **state)
{
	static const struct {
		const char *xml, *why;
		bool is_wanted;
	} rows[] = {
		{HEAD MEM TAIL, "not a file", false},
		{HEAD MEM "<memoryBacking><source type='memfd'/></memoryBacking>" TAIL, "not a file", false},
		{HEAD MEM "<memoryBacking><source type='anonymous'/></memoryBacking>" TAIL, "not a file",
			false},
		{HEAD MEM "<memoryBacking><source type='file'/></memoryBacking>" TAIL, "not shared", true},
		{HEAD MEM "<memoryBacking><source type='file'/><access mode='private'/></memoryBacking>" TAIL,
			"not shared", true},
		{HEAD MEM "<memoryBacking><hugepages/><source type='file'/><access "
			  "mode='shared'/></memoryBacking>" TAIL,
			"hpz-qemu", false},
		{"<domain type='lxc'><name>n</name>" MEM FILE_ "</domain>", "QEMU", false},
		{HEAD META("pool='no'") MEM FILE_ TAIL, "pool='no'", false},
		{HEAD META("pool='yes'") MEM TAIL, "not a file", true},
		{HEAD META("pool='maybe'") MEM FILE_ TAIL, "pool of <hpz:memory> is not yes or no", true},
		{HEAD META("page-size='3M'") MEM FILE_ TAIL, "page-size of <hpz:memory>", true},
		{HEAD META("page-size='-2M'") MEM FILE_ TAIL, "page-size of <hpz:memory>", true},
		{HEAD META("page-size='99999999999999999999999999999999999M'") MEM FILE_ TAIL, "page-size",
			true},
		{HEAD META("nodes='99'") MEM FILE_ TAIL, "nodes of <hpz:memory>", true},
		{HEAD META("on-failure='die'") MEM FILE_ TAIL, "on-failure of <hpz:memory>", true},
		{HEAD META("page_size='2M'") MEM FILE_ TAIL, "does not know `page_size`", true},
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		read_domain(rows[i].xml);
		if (!strstr(plan.why, rows[i].why))
			print_error("%s: %s\n", rows[i].xml, plan.why);
		assert_non_null(strstr(plan.why, rows[i].why));
		assert_int_equal(plan.is_wanted, rows[i].is_wanted);
		assert_int_equal(plan.count, 0);
	}
}

static void test_settings(void **state)
{
	read_domain(HEAD META("page-size='1G' nodes='1' on-failure='refuse' pool='yes'") MEM FILE_ CELL2
		"<numatune><memory mode='preferred' nodeset='0'/></numatune>" TAIL);
	assert_string_equal(plan.why, "");
	assert_int_equal(domain.settings.on_failure, DOMAIN_FAILURE_REFUSE);
	assert_int_equal(domain.settings.pool, DOMAIN_CHOICE_YES);
	assert_int_equal(plan.page_size, GI);
	check_file(0, "ram-node0", 256 * MI, 2, false);
	read_domain(HEAD META("page-size='2048KiB' nodes='any' on-failure='fallback'") MEM FILE_ TAIL);
	assert_int_equal(plan.page_size, 2 * MI);
	assert_int_equal(domain.settings.on_failure, DOMAIN_FAILURE_FALLBACK);
	read_domain(HEAD META("page-size='any'") MEM FILE_ TAIL);
	assert_int_equal(plan.page_size, 0);
	/* Somebody else's, and elsewhere. */
	read_domain(HEAD "<metadata><h:memory xmlns:h='urn:other' pool='no'/></metadata>"
			 "<x><h:memory xmlns:h='" DOMAIN_XML_NAMESPACE "' pool='no'/></x>" MEM FILE_ TAIL);
	assert_string_equal(plan.why, "");
	/* libvirt's own elements in a namespace are not libvirt's. */
	refuse_domain("<q:domain xmlns:q='urn:q'><name>n</name><memory>1</memory></q:domain>", "a domain");
	refuse_domain("<domain xmlns:q='urn:q'><q:name>n</q:name><memory>1</memory></domain>", "no name");
}

/* ---- hostile ---- */

static void test_hostile(void **state)
{
	static const struct {
		const char *xml, *why;
	} rows[] = {
		{"", "not XML"},
		{"x", "not XML"},
		{"<domain", "not XML"},
		{"<domain>", "not XML"},
		{"<a/><b/>", "not XML"},
		{"<a/>", "a domain"},
		{"<domain/>", "no name"},
		{"<domain><name></name></domain>", "no name"},
		{"<domain><name>n</name></domain>", "<memory>"},
		{"<domain id='-1'><name>n</name>" MEM "</domain>", "its id"},
		{"<domain id='1/../..'><name>n</name>" MEM "</domain>", "its id"},
		{"<domain id='4294967297'><name>n</name>" MEM "</domain>", "its id"},
		{"<domain id=''><name>n</name>" MEM "</domain>", "its id"},
		{"<domain><name>a/b</name>" MEM "</domain>", "slash"},
		{"<domain><name>a\nb</name>" MEM "</domain>", "control"},
		{"<domain><name>a&#13;b</name>" MEM "</domain>", "control"},
		{"<domain><name>a&#x9b;b</name>" MEM "</domain>", "control"},
		{"<domain><name>a&#0;b</name>" MEM "</domain>", "not XML"},
		{"<domain><name>a\xff</name>" MEM "</domain>", "not XML"},
		{"<domain><name>a\xc0\xaf</name>" MEM "</domain>", "not XML"},
		{"<?xml version='1.0' encoding='UTF-7'?><domain><name>a\xff</name>" MEM "</domain>",
			"not XML"},
		{"<domain><name>n</name><uuid>x</uuid>" MEM "</domain>", "<uuid>"},
		{"<domain><name>n</name><uuid>../../../../../etc/passwd/aaaaaaaaaaa</uuid>" MEM "</domain>",
			"<uuid>"},
		{"<domain><name>n</name><uuid>11111111222233334444555555555555aaaa</uuid>" MEM "</domain>",
			"<uuid>"},
		{"<domain><name>n</name><uuid>" UUID "0</uuid>" MEM "</domain>", "<uuid>"},
		{"<!DOCTYPE domain><domain><name>n</name>" MEM "</domain>", "not XML"},
		{"<!DOCTYPE d [<!ENTITY x SYSTEM '/etc/passwd'>]><domain><name>&x;</name>" MEM "</domain>",
			"not XML"},
		{"<!DOCTYPE d SYSTEM '/etc/passwd'><domain><name>n</name>" MEM "</domain>", "not XML"},
		{"<domain><name>&x;</name>" MEM "</domain>", "not XML"},
		{"<!DOCTYPE d [<!ENTITY a 'aaaaaaaaaa'><!ENTITY b '&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;'>"
		 "<!ENTITY c '&b;&b;&b;&b;&b;&b;&b;&b;&b;&b;'><!ENTITY d '&c;&c;&c;&c;&c;&c;&c;&c;&c;&c;'>]>"
		 "<domain><name>&d;&d;&d;&d;</name>" MEM "</domain>",
			"not XML"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		refuse_domain(rows[i].xml, rows[i].why);
}

/* `count` times `text` between two others; to be freed. */
static char *repeat(const char *before, const char *text, size_t count, const char *after)
{
	char *xml = malloc(strlen(before) + strlen(text) * count + strlen(after) + 1),
	     *at = stpcpy(xml, before);

	while (count-- > 0)
		at = stpcpy(at, text);
	strcpy(at, after);
	return xml;
}

static void test_large(void **state)
{
	_cleanup_free_ char *name = repeat("<domain><name>", "n", 300, "</name>" MEM "</domain>");
	_cleanup_free_ char *long_name = repeat("<domain id='1'><name>", "n", 255, "</name>" MEM "</domain>");
	_cleanup_free_ char *deep = repeat("", "<domain>", 100000, "");
	_cleanup_free_ char *huge = repeat(HEAD MEM, "<x/>", DOMAIN_XML_MAX / 4, TAIL);
	_cleanup_free_ char *wide = repeat(HEAD MEM FILE_, "<x y='z'>t</x>", 100000, TAIL);
	_cleanup_free_ char *cells =
		repeat(HEAD MEM FILE_ "<cpu><numa>", "<cell memory='1024'/>", 65, "</numa></cpu>" TAIL);
	_cleanup_free_ char *dimms = repeat(HEAD MEM FILE_ "<devices>",
		"<memory model='dimm'><target><size>1024</size></target></memory>", 257, "</devices>" TAIL);
	_cleanup_free_ char *files = repeat(HEAD MEM FILE_ "<devices>",
		"<memory model='dimm'><target><size>1024</size></target></memory>", 256, "</devices>" TAIL);
	_cleanup_free_ char *attribute =
		repeat("<domain type='", "k", 100000, "'><name>n</name>" MEM "</domain>");
	_cleanup_free_ char *text =
		repeat("<domain><name>n</name><memory>", "1", 100000, "</memory></domain>");
	_cleanup_free_ char *seclabel = repeat(
		HEAD MEM FILE_ "<seclabel model='dac'><label>", "+1", 1000, "</label></seclabel>" TAIL);

	refuse_domain(name, "longer than 255");
	read_domain(long_name);
	assert_int_equal(strlen(domain.name), 255);
	refuse_domain(deep, "not XML");
	refuse_domain(huge, "longer than");
	read_domain(wide);
	assert_int_equal(plan.count, 1);
	refuse_domain(cells, "more than 64 cells");
	refuse_domain(dimms, "more than 256");
	read_domain(files);
	assert_non_null(strstr(plan.why, "more than 64"));
	assert_int_equal(plan.count, 0);
	refuse_domain(attribute, "its type");
	refuse_domain(text, "not a number");
	read_domain(seclabel);
	assert_string_equal(domain.dac_label, "");
}

/* Whatever it is made of, what comes out keeps to the rules. */
static void check_rules(void)
{
	char name[DOMAIN_DIRECTORY_MAX];
	uint64_t size = 0;

	assert_null(strchr(domain.name, '/'));
	assert_true(strlen(domain.name) > 0);
	if (domain_xml_get_directory(&domain, name))
		assert_null(strchr(name, '/'));
	for (size_t i = 0; i < plan.count; i++) {
		assert_true(domain_xml_is_alias(plan.files[i].alias));
		assert_true(plan.files[i].size > 0);
		size += plan.files[i].size;
	}
	assert_int_equal(plan.size, size);
	assert_true(plan.count == 0 || !*plan.why);
}

static void mutate(uint64_t number, void *user)
{
	static const char seed[] = HEAD META("page-size='2M' nodes='0'") MEM FILE_ CELL2
		"<numatune><memory mode='strict' nodeset='0-1'/><memnode cellid='1' nodeset='1'/></numatune>"
		"<seclabel model='dac'><label>+1:+1</label></seclabel><devices>" DIMM(
			"dimm0", "") "</devices>" TAIL;
	static const char bytes[] = "<>/'\"=&;#-0129 \n\xff\x80kKMGT^,:.!?[]";
	struct dice dice;
	size_t taken = 0;

	dice_init(&dice, number);

	for (unsigned round = 0; round < 5000; round++) {
		char xml[sizeof(seed)];
		memcpy(xml, seed, sizeof(seed));
		size_t length = sizeof(seed) - 1, changes = 1 + dice_roll(&dice, 4);
		while (changes-- > 0)
			xml[dice_roll(&dice, length)] = bytes[dice_roll(&dice, sizeof(bytes) - 1)];
		if (dice_roll(&dice, 8) == 0)
			length = dice_roll(&dice, length);
		if (domain_xml_read(xml, length, &domain, why) < 0)
			continue;
		domain_xml_plan(&domain, &plan);
		check_rules();
		taken++;
	}
	assert_in_range(taken, 1, 4999);
}

static void test_mutations(void **state)
{
	dice_for_each_seed(seed_count, seed_words, 3, mutate, NULL);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_identity),
		cmocka_unit_test(test_directory),
		cmocka_unit_test(test_sizes),
		cmocka_unit_test(test_whole),
		cmocka_unit_test(test_machines),
		cmocka_unit_test(test_cells),
		cmocka_unit_test(test_dimms),
		cmocka_unit_test(test_own_size),
		cmocka_unit_test(test_aliases),
		cmocka_unit_test(test_reasons),
		cmocka_unit_test(test_settings),
		cmocka_unit_test(test_hostile),
		cmocka_unit_test(test_large),
		cmocka_unit_test(test_mutations),
	};

	seed_count = argc;
	seed_words = argv;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
