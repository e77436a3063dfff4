/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * fuzz_hook.c - what the hook noted of a domain, as its later calls read it. "BOOT" at the beginning of a
 * line's value stands for this boot's id, which no corpus can know.
 */
#include "fuzz.h"

#include "hook_state.h"

#define NAME "domain"

static void put_boot(const uint8_t *bytes, size_t length)
{
	static char boot[64];
	_cleanup_free_ char *text = NULL;
	size_t size = 0;
	FILE *out = open_memstream(&text, &size);

	if (!*boot) {
		_cleanup_file_ FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
		FUZZ_CHECK(file && fgets(boot, sizeof boot, file));
		boot[strcspn(boot, "\n")] = '\0';
	}
	FUZZ_CHECK(out);
	for (size_t i = 0; i < length; i++) {
		if (length - i >= 4 && memcmp(bytes + i, "BOOT", 4) == 0) {
			fputs(boot, out);
			i += 3;
		} else {
			putc(bytes[i], out);
		}
	}
	FUZZ_CHECK(fclose(out) == 0);
	fuzz_put_file("libvirt/" NAME, text, size);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
	static struct hook_state state, again; /* some ten KiB */
	const char *directory = fuzz_get_directory();

	put_boot(bytes, length);
	memset(&state, 0, sizeof state);
	int r = hook_state_read(directory, NAME, &state);
	FUZZ_CHECK(r == 0 || r == -EBADMSG || r == -ESTALE);
	if (r < 0)
		return 0;
	/* Nothing in it leads out of the domain's directory, or into one that is not absolute. */
	FUZZ_CHECK(*state.directory && !strchr(state.directory, '/') && state.file_count <= DOMAIN_FILES_MAX);
	FUZZ_CHECK(strcmp(state.directory, ".") != 0 && strcmp(state.directory, "..") != 0);
	for (size_t i = 0; i < state.file_count; i++) {
		FUZZ_CHECK(domain_xml_is_alias(state.files[i].alias));
		FUZZ_CHECK((state.files[i].way == HOOK_WAY_OWN) == !*state.files[i].path);
	}
	/* And it can be noted again. */
	FUZZ_CHECK(hook_state_write(directory, NAME, &state) == 0);
	memset(&again, 0, sizeof again);
	FUZZ_CHECK(hook_state_read(directory, NAME, &again) == 0);
	FUZZ_CHECK(strcmp(state.directory, again.directory) == 0 && state.lease == again.lease);
	FUZZ_CHECK(state.is_taken == again.is_taken && state.is_ordinary == again.is_ordinary);
	FUZZ_CHECK(state.file_count == again.file_count);
	for (size_t i = 0; i < state.file_count; i++)
		FUZZ_CHECK(memcmp(&state.files[i].way, &again.files[i].way, sizeof state.files[i].way) == 0 &&
			   strcmp(state.files[i].path, again.files[i].path) == 0 &&
			   strcmp(state.files[i].alias, again.files[i].alias) == 0);
	return 0;
}
