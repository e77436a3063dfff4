/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_lease_key.c - whose a lease is, of which start and which device, as its key says. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "lease_key.h"

#define UUID  "11111111-2222-3333-4444-5555555555ab"
#define START "1a-2b3c-65f0.1dcd6500"

static void test_others(void **state)
{
	static const char *const others[] = {"", "libvirt", "libvirt:", "libvirt:" UUID "x",
		"libvirt:" UUID "-", "LIBVIRT:" UUID, " libvirt:" UUID, "libvirt: " UUID,
		"libvirt:11111111-2222-3333-4444-5555555555a", "libvirt:11111111-2222-3333-4444_5555555555ab",
		"libvirt:g1111111-2222-3333-4444-5555555555ab", "mine:" UUID};
	struct lease_key key = {.uuid = "as it was"};

	for (size_t i = 0; i < ARRAY_SIZE(others); i++) {
		assert_false(lease_key_get_uuid(others[i], key.uuid));
		assert_false(lease_key_read(others[i], &key));
		assert_string_equal(key.uuid, "as it was");
	}
}

static void expect(const char *text, const char *alias, const char *start)
{
	struct lease_key key;
	char uuid[LEASE_KEY_UUID_SIZE];

	assert_true(lease_key_read(text, &key));
	assert_string_equal(key.uuid, UUID);
	assert_string_equal(key.alias, alias);
	assert_string_equal(key.start, start);
	assert_true(lease_key_get_uuid(text, uuid));
	assert_string_equal(uuid, UUID);
}

static void test_read(void **state)
{
	expect("libvirt:" UUID, "", "");
	expect("libvirt:11111111-2222-3333-4444-5555555555AB:", "", "");
	expect("libvirt:" UUID ":" START, "", START);
	expect("libvirt:" UUID ":dimm0:" START, "dimm0", START);
	/* Of whoever did not know the start. */
	expect("libvirt:" UUID ":dimm0", "dimm0", "");
	/* Anybody may write one: nothing of it is more than text. */
	expect("libvirt:" UUID ":../x:y:z\n", "../x", "y:z\n");
	expect("libvirt:" UUID "::", "", "");
}

static void test_format(void **state)
{
	char text[HPZ_KEY_MAX + 1], alias[HPZ_KEY_MAX + 1];

	assert_true(lease_key_format(UUID, NULL, START, text));
	assert_string_equal(text, "libvirt:" UUID ":" START);
	assert_true(lease_key_format(UUID, "dimm255", START, text));
	expect(text, "dimm255", START);
	/* To the last byte of a key, and one more. */
	size_t room = HPZ_KEY_MAX - (sizeof("libvirt:" UUID "::" START) - 1);
	memset(alias, 'a', sizeof(alias));
	alias[room] = '\0';
	assert_true(lease_key_format(UUID, alias, START, text));
	assert_int_equal(strlen(text), HPZ_KEY_MAX);
	expect(text, alias, START);
	alias[room] = 'a';
	alias[room + 1] = '\0';
	assert_false(lease_key_format(UUID, alias, START, text));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_others),
		cmocka_unit_test(test_read),
		cmocka_unit_test(test_format),
	};

	return cmocka_run_group_tests_name("lease_key", tests, NULL, NULL);
}
