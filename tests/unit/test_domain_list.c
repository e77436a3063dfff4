/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_domain_list.c - domains where hpzd cannot be asked: what is known is said, what is not is not made up.
 */
#include "domain_run.h"

static void test_without_hpzd(void **state)
{
	assert_int_equal(DOMAIN_RUN(W("list"), W("--connect"), W(domain_run_make(""))), HPZCTL_DONE);
	domain_run_expect("DOMAIN");
	domain_run_expect("web1    running  64 MiB  ?       -");
	assert_int_equal(
		DOMAIN_RUN(W("list"), W("--json"), W("--connect"), W(domain_run_make(""))), HPZCTL_DONE);
	domain_run_expect("\"schema\":\"hpz-domains-1\"");
	domain_run_expect("\"active\":true,\"memory\":67108864,\"planned\":false,");
	domain_run_expect("\"lease\":null,\"leased\":null");
}

static void test_none(void **state)
{
	char uri[TEMP_PATH + 32];

	temp_put(domain_run_dir, "empty.xml", "<node/>");
	snprintf(uri, sizeof(uri), "test://%s/empty.xml", domain_run_dir);
	assert_int_equal(DOMAIN_RUN(W("list"), W("--connect"), W(uri)), HPZCTL_DONE);
	domain_run_expect("No domains.");
	assert_int_equal(DOMAIN_RUN(W("list"), W("web1"), W("--connect"), W(uri)), HPZCTL_USAGE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		DOMAIN_RUN_TEST(test_without_hpzd),
		DOMAIN_RUN_TEST(test_none),
	};

	return cmocka_run_group_tests_name("domain_list", tests, NULL, NULL);
}
