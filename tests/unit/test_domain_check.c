/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_domain_check.c - the verdict of a domain without hpzd; what of the host counts is in test_domain_host.
 */
#include "domain_run.h"

#define XML(inner)                                                                                           \
	"<domain type='kvm'><name>web1</name><uuid>" DOMAIN_RUN_UUID "</uuid>"                               \
	"<memory unit='MiB'>64</memory>" inner "</domain>"
#define POOLED "<memoryBacking><source type='file'/><access mode='shared'/></memoryBacking>"

static int check(const char *xml, const char *word)
{
	char path[PATH_MAX];

	temp_put(domain_run_dir, "domain.xml", xml);
	temp_path(domain_run_dir, "domain.xml", path);
	return DOMAIN_RUN(W("check"), W("--xml"), path, W(word));
}

static void test_verdict(void **state)
{
	/* It is meant to be, and is not. */
	assert_int_equal(check(XML(POOLED), NULL), HPZCTL_FAILED);
	domain_run_expect("web1: its memory does not come from a pool\n  pc.ram           64 MiB\n");
	domain_run_expect("problem: hpzd cannot be asked");
	assert_null(strstr(domain_run_said, "enable"));
	/* It is not meant to be: what to do is said, and hpzd is not asked. */
	assert_int_equal(check(XML(""), NULL), HPZCTL_FAILED);
	domain_run_expect("problem: ");
	domain_run_expect("hpzctl domain enable web1 shows what would have to change.");
	assert_null(strstr(domain_run_said, "hpzd cannot be asked"));
}

static void test_wrapped(void **state)
{
	/* Whether there are problems the machine says, which may have AppArmor. */
	check(XML("<memoryBacking><hugepages/></memoryBacking><devices><emulator>/usr/libexec/hpz/hpz-qemu"
		  "</emulator></devices>"),
		"--json");
	domain_run_expect("\"planned\":false");
	domain_run_expect("\"now\":null");
	domain_run_expect("its emulator, hpz-qemu(1), leases its memory by itself");
	assert_null(strstr(domain_run_said, "hpzd cannot be asked"));
}

#define WRAPPER "<devices><emulator>/usr/libexec/hpz/hpz-qemu</emulator></devices>"

/* Our emulator leaves alone what is not of huge pages, if it is not told otherwise, and what the hook puts
 * there. */
static void test_wrapped_for_nothing(void **state)
{
	static const char words[] = "problem: its emulator, hpz-qemu(1), leases what is of huge pages";
	char path[PATH_MAX];

	assert_int_equal(check(XML(WRAPPER), NULL), HPZCTL_FAILED);
	domain_run_expect(words);
	domain_run_expect("web1: its memory does not come from a pool");
	temp_put(domain_run_dir, "hpzd.conf", "[qemu]\nram = yes\n");
	temp_path(domain_run_dir, "hpzd.conf", path);
	setenv("HPZ_CONFIG", path, 1);
	check(XML(WRAPPER), NULL);
	domain_run_expect("leases its memory by itself");
	check(XML("<memoryBacking><source type='file'/></memoryBacking>" WRAPPER), NULL);
	domain_run_expect(words);
	check(XML(POOLED WRAPPER), NULL);
	domain_run_expect("problem: hpzd cannot be asked");
	assert_null(strstr(domain_run_said, "hpz-qemu"));
}

static void test_known(void **state)
{
	/* With what libvirt says, its version, too: the driver is of this one, which is not too old. */
	assert_int_equal(
		DOMAIN_RUN(W("check"), W("web1"), W("--connect"), W(domain_run_make(POOLED))), HPZCTL_FAILED);
	assert_null(strstr(domain_run_said, "looks for no hooks"));
	assert_int_equal(check("<network/>", NULL), HPZCTL_FAILED);
	assert_int_equal(DOMAIN_RUN(W("check"), W("--xml"), W("/nonexistent.xml")), HPZCTL_FAILED);
	domain_run_expect("cannot read /nonexistent.xml");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		DOMAIN_RUN_TEST(test_verdict),
		DOMAIN_RUN_TEST(test_wrapped),
		DOMAIN_RUN_TEST(test_wrapped_for_nothing),
		DOMAIN_RUN_TEST(test_known),
	};

	return cmocka_run_group_tests_name("domain_check", tests, NULL, NULL);
}
