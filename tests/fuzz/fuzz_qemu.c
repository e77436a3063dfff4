/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* fuzz_qemu.c - a command line of QEMU, one word a line, and what hpzctl run and hpz-qemu make of it. */
#include "fuzz.h"

#include "qemu_args.h"
#include "qemu_backends.h"
#include "qemu_options.h"

#define WORDS_MAX 64
#define MEM_PATH  "/proc/self/fd/9"

/* The pairs of a value, one behind the other, are the value. */
static void check_pairs(const char *value)
{
	struct qemu_pairs pairs = QEMU_PAIRS_OF(value);
	struct qemu_pair pair;
	const char *at = value;
	char text[64];
	uint64_t bytes;

	while (qemu_pairs_next(&pairs, &pair)) {
		FUZZ_CHECK(pair.start == at && pair.value >= pair.start);
		FUZZ_CHECK(pair.value + pair.value_length == pair.start + pair.length);
		at = pair.start + pair.length;
		FUZZ_CHECK(*at == ',' || !*at);
		at += *at == ',';
		if (qemu_pair_get_value(&pair, text, sizeof text))
			FUZZ_CHECK(strlen(text) < sizeof text && qemu_pair_has_value(&pair, text));
		qemu_pair_get_size(&pair, 20, &bytes);
	}
	FUZZ_CHECK(!*at);
}

/* A command that may be rewritten names our file then, and is left alone from then on. */
static void check_args(char **argv)
{
	struct qemu_args args, again;

	qemu_args_read(argv, &args);
	FUZZ_CHECK(strlen(args.name) <= QEMU_ARGS_NAME);
	if (args.left_alone || args.memory == 0)
		return;
	char **copy = qemu_args_rewrite(argv, &args, MEM_PATH);
	FUZZ_CHECK(copy && qemu_args_contain(copy, MEM_PATH));
	for (size_t i = 0; argv[i]; i++)
		FUZZ_CHECK(strcmp(argv[i], copy[i]) == 0);
	qemu_args_read(copy, &again);
	FUZZ_CHECK(again.left_alone && again.memory == args.memory && strcmp(again.name, args.name) == 0);
	struct qemu_backends backends;
	FUZZ_CHECK(qemu_backends_read(copy, &backends));
	const struct qemu_backend *last = backends.count ? &backends.list[backends.count - 1] : NULL;
	FUZZ_CHECK(last && last->kind == QEMU_BACKEND_FILE && last->size == args.memory && last->is_used);
	FUZZ_CHECK(last->mem_path && strcmp(last->mem_path, MEM_PATH) == 0);
	qemu_backends_deinit(&backends);
	qemu_args_free(copy);
}

/* One that may be rewritten is the same one on our file. */
static void check_backend(const struct qemu_backend *backend, const char *word, bool keeps_nodes)
{
	char *rewritten = qemu_backends_rewrite(word, MEM_PATH, keeps_nodes);
	char program[] = "qemu-system-x86_64", option[] = "-object";
	char *argv[] = {program, option, rewritten, NULL};
	struct qemu_backends again;

	FUZZ_CHECK(rewritten && qemu_backends_read(argv, &again) && again.count == 1);
	const struct qemu_backend *other = &again.list[0];
	FUZZ_CHECK(other->kind == QEMU_BACKEND_FILE && other->size == backend->size);
	FUZZ_CHECK(strcmp(other->id, backend->id) == 0);
	FUZZ_CHECK(other->mem_path && strcmp(other->mem_path, MEM_PATH) == 0);
	FUZZ_CHECK(
		!keeps_nodes || (other->policy == backend->policy && other->node_mask == backend->node_mask));
	FUZZ_CHECK(keeps_nodes || (other->policy == QEMU_BACKEND_DEFAULT && other->node_mask == 0));
	qemu_backends_deinit(&again);
	free(rewritten);
}

static void check_backends(char **argv)
{
	struct qemu_backends backends;

	FUZZ_CHECK(qemu_backends_read(argv, &backends));
	for (size_t i = 0; i < backends.count; i++) {
		const struct qemu_backend *backend = &backends.list[i];
		FUZZ_CHECK(strlen(backend->id) <= QEMU_BACKEND_ID);
		if (backend->left_alone)
			continue;
		check_backend(backend, argv[backend->word], true);
		check_backend(backend, argv[backend->word], false);
	}
	qemu_backends_deinit(&backends);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
	struct fuzz_input input = {bytes, length};
	char *argv[WORDS_MAX + 1] = {NULL};
	struct qemu_option option;
	size_t count = 0, at = 1;

	do
		argv[count++] = fuzz_take_text(&input, '\n');
	while (input.left > 0 && count < WORDS_MAX);
	while (qemu_options_next(argv, &at, &option)) {
		FUZZ_CHECK(at <= count && (!option.value || argv[option.word] == option.value));
		if (option.value)
			check_pairs(option.value);
	}
	check_args(argv);
	check_backends(argv);
	for (size_t i = 0; i < count; i++)
		free(argv[i]);
	return 0;
}
