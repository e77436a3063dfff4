/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_domain_memory.c - what attach-memory and detach-memory refuse before they ask anybody for memory. */
#include "domain_run.h"

#define POOLED "<memoryBacking><source type='file'/><access mode='shared'/></memoryBacking>"

static void test_words(void **state)
{
	static const char *const sizes[] = {"0", "1", "1025", "-1G", "1x", ""};

	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		assert_int_equal(DOMAIN_RUN(W("attach-memory"), W("web1"), W(sizes[i])), HPZCTL_USAGE);
		domain_run_expect("is not a size of whole KiB");
	}
	assert_int_equal(DOMAIN_RUN(W("detach-memory"), W("web1")), HPZCTL_USAGE);
	assert_int_equal(DOMAIN_RUN(W("detach-memory"), W("web1"), W("../dimm0")), HPZCTL_USAGE);
	domain_run_expect("is not the alias of a device");
}

static void test_refused(void **state)
{
	const char *uri = domain_run_make(POOLED);

	/* It runs, and not in QEMU. */
	assert_int_equal(
		DOMAIN_RUN(W("attach-memory"), W("web1"), W("128M"), W("--connect"), W(uri)), HPZCTL_FAILED);
	domain_run_expect("domain web1: ");
	/* libvirt has no directory for it, so there is no lease of this start. */
	assert_int_equal(
		DOMAIN_RUN(W("detach-memory"), W("web1"), W("dimm0"), W("--connect"), W(uri)), HPZCTL_FAILED);
	domain_run_expect("cannot open the directory of domain web1 in /");
	assert_int_equal(
		DOMAIN_RUN(W("detach-memory"), W("web2"), W("dimm0"), W("--connect"), W(uri)), HPZCTL_FAILED);
	domain_run_expect("libvirt has no domain web2");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		DOMAIN_RUN_TEST(test_words),
		DOMAIN_RUN_TEST(test_refused),
	};

	return cmocka_run_group_tests_name("domain_memory", tests, NULL, NULL);
}
