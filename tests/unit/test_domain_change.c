/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_domain_change.c - what enable and disable do with and without being told to, and what they refuse. */
#include "domain_run.h"

#define POOLED "<memoryBacking><source type='file'/><access mode='shared'/></memoryBacking>"

static int run(const char *verb, const char *inner, const char *word)
{
	return DOMAIN_RUN(W(verb), W("web1"), W("--connect"), W(domain_run_make(inner)), W(word));
}

static void test_decide(void **state)
{
	/* Shown, and not done. */
	assert_int_equal(run("disable", POOLED, "--dry-run"), HPZCTL_DONE);
	domain_run_expect("-    <source type=\"file\"/>");
	assert_null(strstr(domain_run_said, "Changed"));
	assert_int_equal(DOMAIN_RUN(W("disable"), W("web1"), W("--connect"), W(domain_run_make(POOLED))),
		HPZCTL_FAILED);
	domain_run_expect("nothing is changed without --yes");
	/* --dry-run counts more. */
	assert_int_equal(DOMAIN_RUN(W("disable"), W("web1"), W("--yes"), W("--dry-run"), W("--connect"),
				 W(domain_run_make(POOLED))),
		HPZCTL_DONE);
	assert_null(strstr(domain_run_said, "Changed"));
	assert_int_equal(run("disable", POOLED, "--yes"), HPZCTL_DONE);
	domain_run_expect("Changed; it holds from its next start on.");
}

static void test_nothing_to_do(void **state)
{
	assert_int_equal(run("disable", "", "--yes"), HPZCTL_DONE);
	domain_run_expect("It is so already.");
	assert_int_equal(run("disable", "", "--json"), HPZCTL_DONE);
	domain_run_expect("\"changes\":false");
}

static void test_refused(void **state)
{
	/* It is no QEMU's. */
	assert_int_equal(run("enable", "", "--yes"), HPZCTL_FAILED);
	assert_null(strstr(domain_run_said, "Changed"));
	assert_int_equal(
		DOMAIN_RUN(W("enable"), W("web2"), W("--connect"), W(domain_run_make(""))), HPZCTL_FAILED);
	domain_run_expect("libvirt has no domain web2");
	assert_int_equal(
		DOMAIN_RUN(W("enable"), W("web1"), W("--connect"), W("test:///nonexistent/node.xml")),
		HPZCTL_FAILED);
	domain_run_expect("cannot connect to libvirt");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		DOMAIN_RUN_TEST(test_decide),
		DOMAIN_RUN_TEST(test_nothing_to_do),
		DOMAIN_RUN_TEST(test_refused),
	};

	return cmocka_run_group_tests_name("domain_change", tests, NULL, NULL);
}
