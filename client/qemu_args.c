/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * qemu_args.c - reads and rewrites the command line of a QEMU. Pure.
 * Repeated -m and -machine are merged, the last value counts.
 */
#include "qemu_args.h"

#include "qemu_options.h"
#include "util.h"

#define QEMU_ARGS_DEFAULT_MEMORY (128ull << 20)
#define QEMU_ARGS_ALIGNMENT      8192u /* QEMU rounds up to it */

bool qemu_args_is_qemu(const char *command)
{
	const char *slash = strrchr(command, '/');
	const char *base = slash ? slash + 1 : command;

	return strncmp(base, "qemu-system-", 12) == 0 || strcmp(base, "qemu-kvm") == 0;
}

/* ---- what is read ---- */

/* Empty when it is too long. */
static void qemu_args_read_name(const char *value, struct qemu_args *args)
{
	struct qemu_pairs pairs = QEMU_PAIRS_OF(value);
	struct qemu_pair pair;

	while (qemu_pairs_next(&pairs, &pair)) {
		if (pair.key && !qemu_pair_has_key(&pair, "guest"))
			continue;
		if (!qemu_pair_get_value(&pair, args->name, sizeof(args->name)))
			args->name[0] = '\0';
	}
}

static const char *qemu_args_read_memory(const char *value, struct qemu_args *args)
{
	struct qemu_pairs pairs = QEMU_PAIRS_OF(value);
	struct qemu_pair pair;
	uint64_t bytes;

	while (qemu_pairs_next(&pairs, &pair)) {
		if (pair.key && !qemu_pair_has_key(&pair, "size"))
			continue;
		if (!qemu_pair_get_size(&pair, 20, &bytes)) {
			args->memory = 0;
			return "its -m cannot be read";
		}
		args->memory = (bytes + QEMU_ARGS_ALIGNMENT - 1) & ~(uint64_t)(QEMU_ARGS_ALIGNMENT - 1);
		args->has_memory = bytes > 0;
		if (bytes == 0) /* the default, as if nothing had been said */
			args->memory = QEMU_ARGS_DEFAULT_MEMORY;
	}
	return NULL;
}

static const char *qemu_args_read_machine(const char *value, struct qemu_args *args)
{
	struct qemu_pairs pairs = QEMU_PAIRS_OF(value);
	struct qemu_pair pair;

	while (qemu_pairs_next(&pairs, &pair)) {
		bool is_type = !pair.key || qemu_pair_has_key(&pair, "type");
		if (is_type && qemu_pair_has_value(&pair, "none"))
			return "its machine has no memory";
		if (!pair.key)
			continue;
		if (qemu_pair_has_key(&pair, "memory-backend"))
			return "it names a memory backend already";
		if (pair.key_length > 7 && strncmp(pair.key, "memory.", 7) == 0)
			return "its memory is set with -machine memory.";
		if (qemu_pair_has_key(&pair, "accel") && strncmp(pair.value, "xen", 3) == 0)
			return "Xen has the memory of its guests";
	}
	return NULL;
}

static const char *qemu_args_read_object(const char *value, struct qemu_args *args)
{
	/* Also as JSON, and also for a DIMM: somebody has planned this guest's memory. */
	return strstr(value, "memory-backend-") ? "it names a memory backend already" : NULL;
}

static const char *qemu_args_read_accel(const char *value, struct qemu_args *args)
{
	return strncmp(value, "xen", 3) == 0 ? "Xen has the memory of its guests" : NULL;
}

static const char *qemu_args_read_guest(const char *value, struct qemu_args *args)
{
	qemu_args_read_name(value, args);
	return NULL;
}

static const char *qemu_args_read_mem_path(const char *value, struct qemu_args *args)
{
	return "it has a -mem-path already";
}

static const char *qemu_args_read_numa(const char *value, struct qemu_args *args)
{
	return "its NUMA nodes need memory of their own";
}

static const char *qemu_args_read_config(const char *value, struct qemu_args *args)
{
	return "it reads further options from a file";
}

static const char *qemu_args_read_help(const char *value, struct qemu_args *args)
{
	return "it only asks for information";
}

/* What an option says; they all count, wherever they stand. */
static const struct qemu_args_reader {
	const char *name;
	const char *(*read)(
		const char *value, struct qemu_args *args); /* returns why to leave it alone, or NULL */
} qemu_args_readers[] = {
	{"m", qemu_args_read_memory},
	{"machine", qemu_args_read_machine},
	{"M", qemu_args_read_machine},
	{"object", qemu_args_read_object},
	{"mem-path", qemu_args_read_mem_path},
	{"numa", qemu_args_read_numa},
	{"readconfig", qemu_args_read_config},
	{"accel", qemu_args_read_accel},
	{"name", qemu_args_read_guest},
	{"help", qemu_args_read_help},
	{"h", qemu_args_read_help},
	{"version", qemu_args_read_help},
	{"audio-help", qemu_args_read_help},
};

/* "-cpu help", "-device virtio-net,help", "-machine ?" */
static bool qemu_args_asks_for_help(const char *name, const char *value)
{
	const char *comma = strrchr(value, ',');
	const char *last = comma ? comma + 1 : value;

	if (strcmp(name, "append") == 0 || strcmp(name, "name") == 0)
		return false;
	return strcmp(last, "help") == 0 || strcmp(last, "?") == 0;
}

static const struct qemu_args_reader *qemu_args_find_reader(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(qemu_args_readers); i++) {
		if (strcmp(qemu_args_readers[i].name, name) == 0)
			return &qemu_args_readers[i];
	}
	return NULL;
}

/* Why to leave the command alone because of this option, or NULL. */
static const char *qemu_args_read_option(const struct qemu_option *option, struct qemu_args *args)
{
	const struct qemu_args_reader *reader = qemu_args_find_reader(option->name);

	if (option->needs_value && !option->value)
		return "its last option is incomplete";
	if (option->value && qemu_args_asks_for_help(option->name, option->value))
		return "it only asks for information";
	return reader ? reader->read(option->value, args) : NULL;
}

/* No other object of the command has the name of ours. */
static unsigned qemu_args_find_backend(char *const argv[])
{
	char name[24];

	for (unsigned n = 0;; n++) {
		snprintf(name, sizeof(name), "hpz%u", n);
		if (!qemu_args_contain(argv, name))
			return n;
	}
}

void qemu_args_read(char *const argv[], struct qemu_args *ret_args)
{
	struct qemu_args args = {.memory = QEMU_ARGS_DEFAULT_MEMORY};
	struct qemu_option option;
	size_t at = 1;

	while (qemu_options_next(argv, &at, &option)) {
		const char *why = qemu_args_read_option(&option, &args);
		if (!args.left_alone) /* the first reason stays */
			args.left_alone = why;
	}
	args.backend = qemu_args_find_backend(argv);
	*ret_args = args;
}

/* ---- what is written ---- */

static size_t qemu_args_count(char *const argv[])
{
	size_t count = 0;

	while (argv[count])
		count++;
	return count;
}

/* Puts a copy, which may be NULL, behind the last word; false when there is no memory. */
static bool qemu_args_append(char **argv, char *copy)
{
	argv[qemu_args_count(argv)] = copy;
	return copy != NULL;
}

char **qemu_args_rewrite(char *const argv[], const struct qemu_args *args, const char *mem_path)
{
	size_t count = qemu_args_count(argv);
	char **copy = calloc(count + 5, sizeof(*copy));
	char *object = NULL, *machine = NULL;
	bool done = copy != NULL;

	for (size_t i = 0; done && i < count; i++)
		done = (copy[i] = strdup(argv[i])) != NULL;
	if (!done ||
		asprintf(&object, "memory-backend-file,id=hpz%u,size=%llu,mem-path=%s,share=on,prealloc=on",
			args->backend, (unsigned long long)args->memory, mem_path) < 0)
		object = NULL;
	if (!done || asprintf(&machine, "memory-backend=hpz%u", args->backend) < 0)
		machine = NULL;
	if (done && object && machine && qemu_args_append(copy, strdup("-object")) &&
		qemu_args_append(copy, object) && qemu_args_append(copy, strdup("-machine")) &&
		qemu_args_append(copy, machine))
		return copy;
	qemu_args_free(copy);
	return NULL;
}

bool qemu_args_contain(char *const argv[], const char *marker)
{
	for (size_t i = 0; argv[i]; i++) {
		if (strstr(argv[i], marker))
			return true;
	}
	return false;
}

/* A copy of one word with `text` for each `marker`. */
static char *qemu_args_expand_word(const char *word, const char *marker, const char *text)
{
	size_t count = 0, marker_length = strlen(marker), text_length = strlen(text);

	for (const char *at = word; (at = strstr(at, marker)); at += marker_length)
		count++;
	char *copy = malloc(strlen(word) + count * text_length + 1);
	if (!copy)
		return NULL;
	char *to = copy;
	for (const char *found; (found = strstr(word, marker)); word = found + marker_length) {
		to = mempcpy(to, word, (size_t)(found - word));
		to = mempcpy(to, text, text_length);
	}
	strcpy(to, word);
	return copy;
}

char **qemu_args_expand(char *const argv[], const char *marker, const char *text)
{
	size_t count = qemu_args_count(argv);
	char **copy = calloc(count + 1, sizeof(*copy));

	for (size_t i = 0; copy && i < count; i++) {
		copy[i] = qemu_args_expand_word(argv[i], marker, text);
		if (!copy[i]) {
			qemu_args_free(copy);
			return NULL;
		}
	}
	return copy;
}

void qemu_args_free(char **argv)
{
	for (size_t i = 0; argv && argv[i]; i++)
		free(argv[i]);
	free(argv);
}
