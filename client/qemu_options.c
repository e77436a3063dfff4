/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* qemu_options.c - the syntax of QEMU's command line: see qemu_options.h. */
#include "qemu_options.h"

#include "util.h"

#define QEMU_OPTIONS_SIZE_MAX (INT64_MAX - 8192) /* QEMU rounds up */

/* ---- "key=value,key=value" ---- */

/* Compares a key or value, in which two commas are one, with a plain text. */
static bool qemu_pairs_is(const char *from, size_t length, const char *text)
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

/* Where a value ends: at a single comma. */
static size_t qemu_pairs_get_length(const char *text)
{
	size_t i = 0;

	while (text[i] && (text[i] != ',' || text[i + 1] == ','))
		i += text[i] == ',' ? 2 : 1;
	return i;
}

bool qemu_pairs_next(struct qemu_pairs *pairs, struct qemu_pair *ret_pair)
{
	if (pairs->is_read) {
		if (!*pairs->at)
			return false;
		pairs->at++;
	}
	size_t key_length = strcspn(pairs->at, "=,");
	struct qemu_pair pair = {.start = pairs->at};
	if (pairs->at[key_length] == '=') {
		pair.key = pairs->at;
		pair.key_length = key_length;
		pair.value = pairs->at + key_length + 1;
	} else if (!pairs->is_read) {
		pair.value = pairs->at;
	} else {
		/* A flag: "key" is "key=on". */
		pair.key = pairs->at;
		pair.key_length = qemu_pairs_get_length(pairs->at);
		pair.value = pairs->at + pair.key_length;
	}
	pair.value_length = qemu_pairs_get_length(pair.value);
	pairs->at = pair.value + pair.value_length;
	pairs->is_read = true;
	pair.length = (size_t)(pairs->at - pair.start);
	*ret_pair = pair;
	return true;
}

bool qemu_pair_has_key(const struct qemu_pair *pair, const char *text)
{
	return pair->key && qemu_pairs_is(pair->key, pair->key_length, text);
}

bool qemu_pair_has_value(const struct qemu_pair *pair, const char *text)
{
	return qemu_pairs_is(pair->value, pair->value_length, text);
}

bool qemu_pair_get_value(const struct qemu_pair *pair, char *ret_text, size_t capacity)
{
	size_t length = 0;

	for (size_t i = 0; i < pair->value_length; i++) {
		if (length + 1 >= capacity)
			return false;
		ret_text[length++] = pair->value[i];
		if (pair->value[i] == ',')
			i++;
	}
	if (capacity == 0)
		return false;
	ret_text[length] = '\0';
	return true;
}

static unsigned qemu_pairs_get_shift(char unit)
{
	static const char units[] = "BKMGTPE";
	const char *at = unit ? strchr(units, unit >= 'a' && unit <= 'z' ? unit - ('a' - 'A') : unit) : NULL;

	return at ? 10u * (unsigned)(at - units) : UINT32_MAX;
}

bool qemu_pair_get_size(const struct qemu_pair *pair, unsigned default_shift, uint64_t *ret_bytes)
{
	const char *text = pair->value;
	uint64_t whole = 0, fraction = 0, scale = 1, bytes;
	size_t i = 0, length = pair->value_length;

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
	unsigned shift = i == length ? default_shift : qemu_pairs_get_shift(text[i]);
	if (shift > 40 || length - i > 1 || (is_broken && (scale == 1 || shift == 0)))
		return false;
	/* QEMU cuts a broken byte off. */
	if (__builtin_mul_overflow(whole, 1ull << shift, &bytes) ||
		__builtin_add_overflow(bytes, fraction * (1ull << shift) / scale, &bytes) ||
		bytes > QEMU_OPTIONS_SIZE_MAX)
		return false;
	*ret_bytes = bytes;
	return true;
}

/* ---- words ---- */

/* Those that say something about memory. */
static const struct {
	const char *name;
	bool needs_value;
} qemu_options_ours[] = {
	{"m", true},
	{"machine", true},
	{"M", true},
	{"object", true},
	{"device", true},
	{"mem-path", true},
	{"numa", true},
	{"readconfig", true},
	{"accel", true},
	{"name", true},
	{"help", false},
	{"h", false},
	{"version", false},
	{"audio-help", false},
};

/* Options without a value, of QEMU 2 to 10. All others have one. */
static const char *const qemu_options_flags[] = {"S", "s", "alt-grab", "async-teardown", "ctrl-grab",
	"curses", "daemonize", "enable-fips", "enable-hax", "enable-kvm", "enable-sync-profile",
	"full-screen", "jitdump", "localtime", "mem-prealloc", "no-acpi", "no-fd-bootchk", "no-frame",
	"no-hpet", "no-kvm", "no-kvm-irqchip", "no-kvm-pit", "no-kvm-pit-reinjection", "no-quit", "no-reboot",
	"no-shutdown", "no-user-config", "nodefaults", "nodefconfig", "nographic", "nouserconfig",
	"old-param", "only-migratable", "perfmap", "portrait", "preconfig", "rtc-td-hack", "sdl",
	"semihosting", "singlestep", "snapshot", "tdf", "usb", "win2k-hack", "xen-attach",
	"xen-domid-restrict"};

const char *qemu_options_get_name(const char *word)
{
	if (word[0] != '-' || word[1] == '\0')
		return NULL;
	return word + (word[1] == '-' ? 2 : 1);
}

/* Its row in qemu_options_ours; ARRAY_SIZE() of it: none of them. */
static size_t qemu_options_find(const char *name)
{
	size_t i = 0;

	while (name && i < ARRAY_SIZE(qemu_options_ours) && strcmp(qemu_options_ours[i].name, name) != 0)
		i++;
	return name ? i : ARRAY_SIZE(qemu_options_ours);
}

/*
 * Whether an option we have no use for takes the next word along. A word that looks like one of ours is taken
 * for it even so: a newer QEMU may have a flag that is not in our list, and to overlook a -m is worse than to
 * see one too many.
 */
static bool qemu_options_takes_value(const char *name, const char *next)
{
	for (size_t i = 0; i < ARRAY_SIZE(qemu_options_flags); i++) {
		if (strcmp(qemu_options_flags[i], name) == 0)
			return false;
	}
	return next && qemu_options_find(qemu_options_get_name(next)) == ARRAY_SIZE(qemu_options_ours);
}

bool qemu_options_next(char *const argv[], size_t *at, struct qemu_option *ret_option)
{
	/* A command without a program has no options either. */
	if (!argv[0])
		return false;
	while (argv[*at] && !qemu_options_get_name(argv[*at]))
		(*at)++;
	if (!argv[*at])
		return false;
	struct qemu_option option = {.name = qemu_options_get_name(argv[*at]), .word = *at + 1};
	const char *next = argv[*at + 1];
	size_t row = qemu_options_find(option.name);
	if (row < ARRAY_SIZE(qemu_options_ours))
		option.needs_value = qemu_options_ours[row].needs_value;
	bool has_value = row < ARRAY_SIZE(qemu_options_ours) ? option.needs_value
							     : qemu_options_takes_value(option.name, next);
	option.value = has_value ? next : NULL;
	*at += option.value ? 2 : 1;
	*ret_option = option;
	return true;
}
