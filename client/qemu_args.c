/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * qemu_args.c - reads and rewrites the command line of a QEMU. Pure.
 * The rules are those of QEMU's vl.c and qemu-option.c: one dash or two; an option's value is the next word,
 * whatever it looks like; commas separate, two commas are one; repeated -m and -machine are merged, the last
 * value counts.
 */
#include "qemu_args.h"

#include "util.h"

#define QEMU_ARGS_DEFAULT_MEMORY (128ull << 20)
#define QEMU_ARGS_ALIGNMENT      8192u /* QEMU rounds up to it */

bool qemu_args_is_qemu(const char *command)
{
	const char *slash = strrchr(command, '/');
	const char *base = slash ? slash + 1 : command;

	return strncmp(base, "qemu-system-", 12) == 0 || strcmp(base, "qemu-kvm") == 0;
}

/* ---- "key=value,key=value" ---- */

/* A word of QEMU options and how far it is read. */
struct qemu_args_pairs {
	const char *at;
	bool is_first;
};

/* Compares a key or value, in which two commas are one, with a plain text. */
static bool qemu_args_is(const char *from, size_t length, const char *text)
{
	size_t i = 0;

	for (; i < length && *text; i++, text++) {
		if (from[i] != *text)
			return false;
		if (from[i] == ',')
			i++;
	}
	return i == length && !*text;
}

struct qemu_args_pair {
	const char *key, *value; /* key NULL: a value that stands alone at the beginning */
	size_t key_length, value_length;
};

/* Where a value ends: at a single comma. */
static size_t qemu_args_get_length(const char *text)
{
	size_t i = 0;

	while (text[i] && (text[i] != ',' || text[i + 1] == ','))
		i += text[i] == ',' ? 2 : 1;
	return i;
}

static bool qemu_args_next_pair(struct qemu_args_pairs *pairs, struct qemu_args_pair *ret_pair)
{
	if (!pairs->is_first) {
		if (!*pairs->at)
			return false;
		pairs->at++;
	}
	size_t key_length = strcspn(pairs->at, "=,");
	struct qemu_args_pair pair = {0};
	if (pairs->at[key_length] == '=') {
		pair.key = pairs->at;
		pair.key_length = key_length;
		pair.value = pairs->at + key_length + 1;
	} else if (pairs->is_first) {
		pair.value = pairs->at;
	} else {
		/* A flag: "key" is "key=on". */
		pair.key = pairs->at;
		pair.key_length = qemu_args_get_length(pairs->at);
		pair.value = pairs->at + pair.key_length;
	}
	pair.value_length = qemu_args_get_length(pair.value);
	pairs->at = pair.value + pair.value_length;
	pairs->is_first = false;
	*ret_pair = pair;
	return true;
}

/* ---- what is read ---- */

/* Text that stands under `key`, or alone; two commas become one. Empty when it is too long. */
static void qemu_args_read_name(const char *value, struct qemu_args *args)
{
	struct qemu_args_pairs pairs = {value, true};
	struct qemu_args_pair pair;

	while (qemu_args_next_pair(&pairs, &pair)) {
		if (pair.key && !qemu_args_is(pair.key, pair.key_length, "guest"))
			continue;
		size_t length = 0;
		for (size_t i = 0; i < pair.value_length && length <= QEMU_ARGS_NAME; i++) {
			if (length < QEMU_ARGS_NAME)
				args->name[length] = pair.value[i];
			length++;
			if (pair.value[i] == ',')
				i++;
		}
		args->name[length <= QEMU_ARGS_NAME ? length : 0] = '\0';
	}
}

static unsigned qemu_args_get_shift(char unit)
{
	static const char units[] = "BKMGTPE";
	const char *at = unit ? strchr(units, unit >= 'a' && unit <= 'z' ? unit - ('a' - 'A') : unit) : NULL;

	return at ? 10u * (unsigned)(at - units) : UINT32_MAX;
}

/* "512", "512M", "1.5g": bytes, a number alone is MiB. Hexadecimal and exponents are for QEMU to judge. */
static bool qemu_args_read_size(const char *text, size_t length, uint64_t *ret_bytes)
{
	uint64_t whole = 0, fraction = 0, scale = 1, bytes;
	size_t i = 0;

	for (; i < length && text[i] >= '0' && text[i] <= '9'; i++) {
		if (__builtin_mul_overflow(whole, 10u, &whole) ||
			__builtin_add_overflow(whole, (uint64_t)(text[i] - '0'), &whole))
			return false;
	}
	if (i == 0)
		return false;
	bool is_broken = i < length && text[i] == '.';
	for (i += is_broken; is_broken && i < length && text[i] >= '0' && text[i] <= '9'; i++) {
		if (scale >= 1000000)
			return false;
		scale *= 10;
		fraction = fraction * 10 + (uint64_t)(text[i] - '0');
	}
	unsigned shift = i == length ? 20 : qemu_args_get_shift(text[i]);
	if (shift > 40 || length - i > 1 || (is_broken && (scale == 1 || shift == 0)))
		return false;
	/* QEMU cuts a broken byte off. */
	if (__builtin_mul_overflow(whole, 1ull << shift, &bytes) ||
		__builtin_add_overflow(bytes, fraction * (1ull << shift) / scale, &bytes) ||
		bytes > INT64_MAX - QEMU_ARGS_ALIGNMENT)
		return false;
	*ret_bytes = bytes;
	return true;
}

static const char *qemu_args_read_memory(const char *value, struct qemu_args *args)
{
	struct qemu_args_pairs pairs = {value, true};
	struct qemu_args_pair pair;
	uint64_t bytes;

	while (qemu_args_next_pair(&pairs, &pair)) {
		if (pair.key && !qemu_args_is(pair.key, pair.key_length, "size"))
			continue;
		if (!qemu_args_read_size(pair.value, pair.value_length, &bytes)) {
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
	struct qemu_args_pairs pairs = {value, true};
	struct qemu_args_pair pair;

	while (qemu_args_next_pair(&pairs, &pair)) {
		bool is_type = !pair.key || qemu_args_is(pair.key, pair.key_length, "type");
		if (is_type && qemu_args_is(pair.value, pair.value_length, "none"))
			return "its machine has no memory";
		if (!pair.key)
			continue;
		if (qemu_args_is(pair.key, pair.key_length, "memory-backend"))
			return "it names a memory backend already";
		if (pair.key_length > 7 && strncmp(pair.key, "memory.", 7) == 0)
			return "its memory is set with -machine memory.";
		if (qemu_args_is(pair.key, pair.key_length, "accel") && strncmp(pair.value, "xen", 3) == 0)
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

struct qemu_args_option {
	const char *name;
	bool has_value;
	const char *(*read)(
		const char *value, struct qemu_args *args); /* returns why to leave it alone, or NULL */
};

/* Options that say something about memory; they all count, wherever they stand. */
static const struct qemu_args_option qemu_args_options[] = {
	{"m", true, qemu_args_read_memory},
	{"machine", true, qemu_args_read_machine},
	{"M", true, qemu_args_read_machine},
	{"object", true, qemu_args_read_object},
	{"mem-path", true, qemu_args_read_mem_path},
	{"numa", true, qemu_args_read_numa},
	{"readconfig", true, qemu_args_read_config},
	{"accel", true, qemu_args_read_accel},
	{"name", true, qemu_args_read_guest},
	{"help", false, qemu_args_read_help},
	{"h", false, qemu_args_read_help},
	{"version", false, qemu_args_read_help},
	{"audio-help", false, qemu_args_read_help},
};

/* Options without a value, of QEMU 2 to 10. All others have one. */
static const char *const qemu_args_flags[] = {"S", "s", "alt-grab", "async-teardown", "ctrl-grab", "curses",
	"daemonize", "enable-fips", "enable-hax", "enable-kvm", "enable-sync-profile", "full-screen",
	"jitdump", "localtime", "mem-prealloc", "no-acpi", "no-fd-bootchk", "no-frame", "no-hpet", "no-kvm",
	"no-kvm-irqchip", "no-kvm-pit", "no-kvm-pit-reinjection", "no-quit", "no-reboot", "no-shutdown",
	"no-user-config", "nodefaults", "nodefconfig", "nographic", "nouserconfig", "old-param",
	"only-migratable", "perfmap", "portrait", "preconfig", "rtc-td-hack", "sdl", "semihosting",
	"singlestep", "snapshot", "tdf", "usb", "win2k-hack", "xen-attach", "xen-domid-restrict"};

/* ---- the words ---- */

/* The name behind one dash or two; NULL for an operand, which is a disk's image. */
static const char *qemu_args_get_option(const char *word)
{
	if (word[0] != '-' || word[1] == '\0')
		return NULL;
	return word + (word[1] == '-' ? 2 : 1);
}

static const struct qemu_args_option *qemu_args_find(const char *name)
{
	for (size_t i = 0; name && i < ARRAY_SIZE(qemu_args_options); i++) {
		if (strcmp(qemu_args_options[i].name, name) == 0)
			return &qemu_args_options[i];
	}
	return NULL;
}

/*
 * Whether an option we have no use for takes the next word along. A word that looks like one of ours is taken
 * for it even so: a newer QEMU may have a flag that is not in our list, and to overlook a -m is worse than to
 * see one too many.
 */
static bool qemu_args_takes_value(const char *name, const char *next)
{
	for (size_t i = 0; i < ARRAY_SIZE(qemu_args_flags); i++) {
		if (strcmp(qemu_args_flags[i], name) == 0)
			return false;
	}
	return next && !qemu_args_find(qemu_args_get_option(next));
}

/* "-cpu help", "-device virtio-net,help", "-machine ?" */
static bool qemu_args_asks_for_help(const char *name, const char *value)
{
	const char *comma = strrchr(value, ',');
	const char *last = comma ? comma + 1 : value;

	if (strcmp(name, "append") == 0 || strcmp(name, "name") == 0)
		return false;
	return strcmp(last, "help") == 0 || strcmp(last, "?") == 0;
}

/* Reads the option at argv[0]; returns how many words it is. The first reason to leave it alone stays. */
static size_t qemu_args_read_option(char *const argv[], const char *name, struct qemu_args *args)
{
	const struct qemu_args_option *option = qemu_args_find(name);
	const char *why = NULL, *value = NULL;

	if (option ? option->has_value : qemu_args_takes_value(name, argv[1]))
		value = argv[1];
	if (option && option->has_value && !value)
		why = "its last option is incomplete";
	else if (value && qemu_args_asks_for_help(name, value))
		why = "it only asks for information";
	else if (option)
		why = option->read(value, args);
	if (!args->left_alone)
		args->left_alone = why;
	return value ? 2 : 1;
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

	for (size_t i = argv[0] ? 1 : 0; argv[i];) {
		const char *name = qemu_args_get_option(argv[i]);
		i += name ? qemu_args_read_option(&argv[i], name, &args) : 1;
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
