/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_domain.c - which leases are a domain's, and what hpzctl domain takes for words. */
#include "domain_run.h"

#define START "1a-2b3c-0.0"

static void test_leases(void **state)
{
	static const struct {
		uint32_t uid, state;
		const char *key, *start;
		bool is_its, is_whole;
	} rows[] = {
		{0, HPZ_STATE_LEASED, "libvirt:" DOMAIN_RUN_UUID ":" START, START, true, true},
		{0, HPZ_STATE_OFFERED, "libvirt:" DOMAIN_RUN_UUID ":dimm0:" START, START, true, false},
		/* of an earlier start; nobody knows of which; known, and the lease does not say */
		{0, HPZ_STATE_LEASED, "libvirt:" DOMAIN_RUN_UUID ":dimm0:1-2-3.4", START, false, false},
		{0, HPZ_STATE_LEASED, "libvirt:" DOMAIN_RUN_UUID ":dimm0:1-2-3.4", NULL, true, false},
		{0, HPZ_STATE_LEASED, "libvirt:" DOMAIN_RUN_UUID ":dimm0", START, false, false},
		/* over; of whoever likes; another domain's */
		{0, HPZ_STATE_RETURNING, "libvirt:" DOMAIN_RUN_UUID ":" START, START, false, false},
		{1000, HPZ_STATE_LEASED, "libvirt:" DOMAIN_RUN_UUID ":" START, START, false, false},
		{0, HPZ_STATE_LEASED, "libvirt:11111111-2222-3333-4444-5555555555ac:" START, START, false,
			false},
		{0, HPZ_STATE_LEASED, DOMAIN_RUN_UUID, NULL, false, false},
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct hpz_lease_info lease = {
			.uid = rows[i].uid, .state = rows[i].state, .key = rows[i].key};
		bool is_whole = false;
		if (domain_has_lease(&lease, DOMAIN_RUN_UUID, rows[i].start, &is_whole) != rows[i].is_its ||
			is_whole != rows[i].is_whole)
			fail_msg("%s %s", rows[i].key, rows[i].start);
	}
}

static void test_usage(void **state)
{
	assert_int_equal(DOMAIN_RUN(W("nonsense")), HPZCTL_USAGE);
	domain_run_expect("there is no verb 'nonsense'");
	assert_int_equal(DOMAIN_RUN(W("check")), HPZCTL_USAGE);
	assert_int_equal(DOMAIN_RUN(W("--help")), HPZCTL_DONE);
	domain_run_expect("detach-memory");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		DOMAIN_RUN_TEST(test_leases),
		DOMAIN_RUN_TEST(test_usage),
	};

	return cmocka_run_group_tests_name("domain", tests, NULL, NULL);
}
