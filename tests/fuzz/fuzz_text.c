/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * fuzz_text.c - small texts of others: names on disk, keys of leases, lines of mountinfo, labels of users,
 * command lines of processes, libvirt's qemu.conf, sizes, text on the wire. The first byte chooses.
 */
#include "fuzz.h"

#include "domain_xml.h"
#include "emulators.h"
#include "hook_mounts.h"
#include "hook_settings.h"
#include "hook_user.h"
#include "lease_key.h"
#include "names.h"
#include "proto.h"
#include "segment.h"
#include "size.h"

/* A machine that knows one user; whoever else knows names is not asked. */
int names_find_user(const char *name, enum names_where where, uint32_t *ret_uid, uint32_t *ret_gid)
{
	*ret_uid = *ret_gid = 64055;
	return strcmp(name, "libvirt-qemu") == 0 ? 0 : -ENOENT;
}

int names_find_group_of(uint32_t uid, enum names_where where, uint32_t *ret_gid)
{
	return -ENOENT;
}

int names_find_group(const char *name, enum names_where where, uint32_t *ret_gid)
{
	*ret_gid = 108;
	return strcmp(name, "kvm") == 0 ? 0 : -ENOENT;
}

/* What is one of our names is written just like that. */
static void read_segment_name(struct fuzz_input *input)
{
	_cleanup_free_ char *text = fuzz_take_text(input, 0);
	char again[SEGMENT_NAME_MAX];
	struct segment_name name;

	if (segment_parse_name(text, &name) < 0)
		return;
	segment_format_name(&name, again);
	FUZZ_CHECK(strcmp(text, again) == 0);
}

static void read_size(struct fuzz_input *input)
{
	_cleanup_free_ char *text = fuzz_take_text(input, 0);
	char again[SIZE_TEXT];
	uint64_t bytes, read;

	if (size_parse(text, &bytes) < 0)
		return;
	FUZZ_CHECK(size_parse(size_format_exact(bytes, again), &read) == 0 && read == bytes);
	size_format(bytes, again);
	FUZZ_CHECK(strlen(again) < SIZE_TEXT);
	FUZZ_CHECK(size_pages(bytes, 2u << 20) >= bytes >> 21);
}

/* What a key says makes a key that says the same. */
static void read_key(struct fuzz_input *input)
{
	_cleanup_free_ char *text = fuzz_take_text(input, 0);
	char formatted[HPZ_KEY_MAX + 1], uuid[LEASE_KEY_UUID_SIZE];
	struct lease_key key, again;

	if (!lease_key_read(text, &key))
		return;
	FUZZ_CHECK(lease_key_get_uuid(text, uuid) && strcmp(uuid, key.uuid) == 0);
	/* Anybody may write one; ours have a start of digits. */
	if (key.start[strspn(key.start, "0123456789abcdef-.")])
		return;
	if (!lease_key_format(key.uuid, *key.alias ? key.alias : NULL, key.start, formatted))
		return; /* the shortest way to say it was used up */
	FUZZ_CHECK(lease_key_read(formatted, &again));
	FUZZ_CHECK(strcmp(again.uuid, key.uuid) == 0 && strcmp(again.start, key.start) == 0);
	FUZZ_CHECK(strcmp(again.alias, key.alias) == 0);
}

static void read_mount(struct fuzz_input *input)
{
	static struct hook_mount mount; /* 8 KiB */
	_cleanup_free_ char *text = fuzz_take_text(input, 0);

	if (!hook_mounts_parse(text, &mount))
		return;
	/* With its escapes or without, no more than there was. */
	FUZZ_CHECK(strlen(mount.root) + strlen(mount.path) + strlen(mount.source) < strlen(text));
}

static void read_user(struct fuzz_input *input)
{
	_cleanup_free_ char *text = fuzz_take_text(input, 0);
	uint32_t uid = UINT32_MAX, gid = UINT32_MAX;

	int r = hook_user_parse(text, &uid, &gid);
	FUZZ_CHECK(r == 0 || r == -EINVAL || r == -ENOENT);
	FUZZ_CHECK((r == 0) ==
		   (uid != UINT32_MAX && gid != UINT32_MAX)); /* all or nothing; chown's "leave it" never */
}

static void read_words(struct fuzz_input *input)
{
	char uuid[EMULATORS_UUID_SIZE];
	size_t length, at = 0, last = 0;
	_cleanup_free_ uint8_t *words = fuzz_take_bytes(input, 65536, &length);

	while (emulators_next_uuid((const char *)words, length, &at, uuid)) {
		FUZZ_CHECK(at > last && at <= length && strlen(uuid) == EMULATORS_UUID_SIZE - 1);
		last = at;
	}
}

static void read_qemu_conf(struct fuzz_input *input)
{
	char path[HOOK_PATH_MAX], value[32];
	_cleanup_file_ FILE *file = fopen(fuzz_make_file(input->at, input->left, NULL), "re");

	FUZZ_CHECK(file);
	hook_settings_find_backing_dir(file, path, sizeof path);
	FUZZ_CHECK(strlen(path) < sizeof path && (!*path || *path == '/'));
	rewind(file);
	hook_settings_find_value(file, "user", value, sizeof value);
	FUZZ_CHECK(strlen(value) < sizeof value);
}

/* Whatever it was, it is text then; and what is text comes out as it was. */
static void read_wire_text(struct fuzz_input *input)
{
	char shown[HPZ_WIRE_LABEL + 1], again[HPZ_WIRE_LABEL];
	size_t length;
	_cleanup_free_ char *bytes = (char *)fuzz_take_bytes(input, HPZ_WIRE_LABEL, &length);
	bool is_text = proto_is_text(bytes, length);

	proto_get_text(bytes, length, shown);
	FUZZ_CHECK(strlen(shown) <= length);
	proto_set_text(again, sizeof again, shown);
	FUZZ_CHECK(proto_is_text(again, sizeof again));
	if (is_text)
		FUZZ_CHECK(memcmp(again, bytes, length) == 0);
}

static void (*const readers[])(struct fuzz_input *input) = {read_segment_name, read_size, read_key,
	read_mount, read_user, read_words, read_qemu_conf, read_wire_text};

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
	struct fuzz_input input = {bytes, length};

	readers[fuzz_take_byte(&input) % ARRAY_SIZE(readers)](&input);
	return 0;
}
