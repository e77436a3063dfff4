/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_access.c - which section counts for whom, what it allows, where its limits are, and what is said. */
#include "temp.h"
#include "access.h"

#define M1 (1ull << 20)
#define G1 (1ull << 30)

/* What most of the tables below decide by; text, so that it is read as the daemon reads it. */
static const char text[] = "[access staff]\n"
			   "groups = 50\n"
			   "allow = status lease\n"
			   "quota_bytes = 1G\n"
			   "quota_leases = 2\n"
			   "[access rest]\n"
			   "users = *\n"
			   "allow = none\n"
			   "[access eve]\n"
			   "users = 1002\n"
			   "groups = 50\n"
			   "allow = lease\n"
			   "quota_bytes = 0\n"
			   "max_connections = 0\n"
			   "max_requests = 1\n"
			   "[access ops]\n"
			   "users = 1003 1002\n"
			   "groups = 60\n"
			   "allow = admin\n"
			   "max_connections = 3\n"
			   "[access wrong]\n"
			   "users = 0\n"
			   "allow = none\n"
			   "quota_leases = 0\n"
			   "max_connections = 0\n"
			   "max_requests = 0\n";

static struct config config, empty;

static void read_config(const char *contents, struct config *ret_config)
{
	char dir[TEMP_PATH], path[PATH_MAX], error[512] = "";

	temp_make(dir);
	temp_path(dir, "c", path);
	temp_write(dir, "c", contents, strlen(contents));
	if (config_read(path, false, ret_config, error, sizeof error) != 0)
		fail_msg("%s", error);
	temp_remove(dir);
}

static int setup(void **state)
{
	read_config(text, &config);
	read_config("", &empty);
	return 0;
}

static struct access_rule find(const struct config *by, uint32_t uid, uint32_t gid, uint32_t other_gid)
{
	static uint32_t groups[2];
	struct access_rule rule;

	groups[0] = 4000;
	groups[1] = other_gid;
	access_find_rule(by, &(struct access_peer){uid, gid, groups, other_gid ? 2 : 1}, &rule);
	return rule;
}

static void test_section(void **state)
{
	static const struct {
		uint32_t uid, gid, other_gid;
		const char *section; /* NULL: none */
	} table[] = {
		{1000, 50, 0, "staff"},   /* primary group */
		{1000, 100, 50, "staff"}, /* supplementary group, the last of them */
		{1000, 100, 51, "rest"},  /* everybody else */
		{1002, 50, 0,
			"eve"}, /* a user's own section before that of its group, and the first of two */
		{1003, 50, 50, "ops"},         /* the same */
		{1004, 60, 50, "staff"},       /* of two sections of its groups the first in the file */
		{1004, 60, 0, "ops"},          /* a group before `*`, wherever it stands */
		{50, 100, 0, "rest"},          /* a group's number is no user's */
		{4294967295u, 100, 0, "rest"}, /* nobody in particular */
		{0, 50, 60, NULL},             /* no section is for root */
	};

	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		struct access_rule rule = find(&config, table[i].uid, table[i].gid, table[i].other_gid);
		if (!table[i].section)
			assert_null(rule.section);
		else if (!rule.section || strcmp(rule.section->name, table[i].section) != 0)
			fail_msg("row %zu: %s", i, rule.section ? rule.section->name : "none");
		assert_int_equal(rule.is_root, table[i].uid == 0);
	}
}

static void test_rights(void **state)
{
	static const struct {
		uint32_t uid, gid;
		unsigned allowed;
	} table[] = {
		{0, 0, CONFIG_ALLOW_STATUS | CONFIG_ALLOW_LEASE | CONFIG_ALLOW_ADMIN},
		{1000, 50, CONFIG_ALLOW_STATUS | CONFIG_ALLOW_LEASE},
		{1000, 100, 0},
		{1002, 50, CONFIG_ALLOW_LEASE},
		{1003, 100, CONFIG_ALLOW_ADMIN},
	};

	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		struct access_rule rule = find(&config, table[i].uid, table[i].gid, 0);
		for (unsigned right = CONFIG_ALLOW_STATUS; right <= CONFIG_ALLOW_ADMIN; right <<= 1)
			assert_int_equal(access_may(&rule, right), (table[i].allowed & right) != 0);
		assert_int_equal(access_may(&rule, CONFIG_ALLOW_LEASE | CONFIG_ALLOW_ADMIN),
			(table[i].allowed & (CONFIG_ALLOW_LEASE | CONFIG_ALLOW_ADMIN)) != 0);
	}
}

/* As it was before there were sections. */
static void test_no_section(void **state)
{
	struct access_rule root = find(&empty, 0, 0, 0), user = find(&empty, 1000, 0, 0);

	assert_true(access_may(&root, CONFIG_ALLOW_ADMIN) && access_may(&root, CONFIG_ALLOW_LEASE));
	assert_true(access_may_touch(&root, 1000));
	assert_true(access_may(&user, CONFIG_ALLOW_STATUS));
	assert_false(access_may(&user, CONFIG_ALLOW_LEASE | CONFIG_ALLOW_ADMIN));
	assert_false(access_may_touch(&user, 1000));
	assert_true(access_may_connect(&user, 4000) && access_may_wait(&user, 4000));
}

static void test_touch_and_give(void **state)
{
	static const struct {
		uint32_t uid, gid, other_gid, owner;
		bool may_touch;
	} touch[] = {
		{0, 0, 0, 1000, true}, {0, 0, 0, UINT32_MAX, true}, {1000, 50, 0, 1000, true},
		{1000, 50, 0, 1001, false}, {1000, 50, 0, 0, false}, {1000, 50, 0, UINT32_MAX, false},
		{1000, 100, 0, 1000, false}, /* may nothing, not even with its own */
		{1003, 100, 0, 1000, true},  /* admin */
	};
	static const struct {
		uint32_t uid, gid, other_gid, file_uid, file_gid;
		bool may_give;
	} give[] = {
		{0, 0, 0, 1000, 1000, true}, {1000, 50, 0, 1000, 50, true},
		{1000, 50, 70, 1000, 70, true},  /* a group of its own */
		{1000, 50, 70, 1000, 71, false}, /* somebody else's */
		{1000, 50, 70, 1001, 50, false}, {1000, 50, 70, 0, 0, false},
		{1003, 100, 0, 64055, 108, true}, /* admin: for libvirt-qemu */
	};

	for (size_t i = 0; i < ARRAY_SIZE(touch); i++) {
		struct access_rule rule = find(&config, touch[i].uid, touch[i].gid, touch[i].other_gid);
		if (access_may_touch(&rule, touch[i].owner) != touch[i].may_touch)
			fail_msg("touch, row %zu", i);
	}
	for (size_t i = 0; i < ARRAY_SIZE(give); i++) {
		struct access_rule rule = find(&config, give[i].uid, give[i].gid, give[i].other_gid);
		if (access_may_give(&rule, give[i].file_uid, give[i].file_gid) != give[i].may_give)
			fail_msg("give, row %zu", i);
	}
}

static void test_quota(void **state)
{
	static const struct {
		uint32_t uid, gid;
		uint64_t bytes, leases, more;
		enum access_limit limit;
	} table[] = {
		{1000, 50, 0, 0, G1, ACCESS_FINE}, /* all of it at once */
		{1000, 50, 0, 0, G1 + 1, ACCESS_BYTES_REACHED},
		{1000, 50, G1 - M1, 1, M1, ACCESS_FINE}, /* the last byte */
		{1000, 50, G1 - M1, 1, M1 + 1, ACCESS_BYTES_REACHED},
		{1000, 50, G1, 1, 1, ACCESS_BYTES_REACHED}, {1000, 50, M1, 2, M1, ACCESS_LEASES_REACHED},
		{1000, 50, 2 * G1, 1, 1, ACCESS_BYTES_REACHED}, /* the quota was lowered below what is out */
		{1000, 50, 0, 3, 1, ACCESS_LEASES_REACHED},
		{1000, 50, M1, 1, UINT64_MAX, ACCESS_BYTES_REACHED},       /* no overflow */
		{1002, 50, 0, 0, 1, ACCESS_BYTES_REACHED},                 /* a quota of nothing */
		{1003, 50, 1ull << 60, 1u << 20, 1ull << 60, ACCESS_FINE}, /* no quota */
		{0, 50, 1ull << 60, 1u << 20, 1ull << 60, ACCESS_FINE},    /* root, whatever a section says */
	};

	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		struct access_rule rule = find(&config, table[i].uid, table[i].gid, 0);
		struct access_usage usage = {table[i].bytes, table[i].leases};
		enum access_limit limit = access_check_quota(&rule, &usage, 1, table[i].more);
		if (limit != table[i].limit)
			fail_msg("row %zu: %d", i, limit);
	}
}

static void test_limits(void **state)
{
	struct access_rule eve = find(&config, 1002, 0, 0), ops = find(&config, 1003, 0, 0),
			   root = find(&config, 0, 0, 0);

	assert_false(access_may_connect(&eve, 0));
	assert_true(access_may_wait(&eve, 0));
	assert_false(access_may_wait(&eve, 1));
	assert_true(access_may_connect(&ops, 2));
	assert_false(access_may_connect(&ops, 3));
	assert_false(access_may_connect(&ops, 4));
	assert_true(access_may_wait(&ops, 1u << 30));
	assert_true(access_may_connect(&root, 1u << 30) && access_may_wait(&root, 1u << 30));
}

static void test_sentences(void **state)
{
	char said[512], small[8];
	struct access_rule staff = find(&config, 1000, 50, 0), rest = find(&config, 1000, 0, 0),
			   user = find(&empty, 1000, 0, 0);
	struct access_usage usage = {G1 - 2 * M1, 2};

	access_explain_denied(&staff, "drain", said, sizeof said);
	assert_string_equal(said, "uid 1000 may not drain: [access staff] allows it status lease");
	access_explain_denied(&rest, "lease", said, sizeof said);
	assert_string_equal(said, "uid 1000 may not lease: [access rest] allows it nothing");
	access_explain_denied(&user, "lease", said, sizeof said);
	assert_string_equal(said,
		"uid 1000 may not lease: no access section names it or a group of it, so it "
		"may read status and no more");
	access_explain_quota(&staff, ACCESS_BYTES_REACHED, &usage, 4 * M1, said, sizeof said);
	assert_string_equal(said,
		"uid 1000 asks for 4 MiB and has 1022 MiB, and quota_bytes of [access staff] is 1 GiB; "
		"memory that is still held after a release counts");
	access_explain_quota(&staff, ACCESS_LEASES_REACHED, &usage, 4 * M1, said, sizeof said);
	assert_string_equal(said,
		"uid 1000 has 2 leases, and quota_leases of [access staff] is 2; leases whose "
		"memory is still held count");
	access_explain_quota(&staff, ACCESS_FINE, &usage, 4 * M1, said, sizeof said);
	assert_string_equal(said, "");
	access_explain_limit(&staff, "max_requests", 7, said, sizeof said);
	assert_string_equal(said, "uid 1000 has reached max_requests of [access staff], 7");
	access_explain_denied(&staff, "drain", small, sizeof small);
	assert_string_equal(small, "uid 100");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_section),
		cmocka_unit_test(test_rights),
		cmocka_unit_test(test_no_section),
		cmocka_unit_test(test_touch_and_give),
		cmocka_unit_test(test_quota),
		cmocka_unit_test(test_limits),
		cmocka_unit_test(test_sentences),
	};
	return cmocka_run_group_tests(tests, setup, NULL);
}
