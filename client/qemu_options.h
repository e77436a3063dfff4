/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * qemu_options.h - the syntax of QEMU's command line: which words are options, and "key=value,key=value".
 * The rules are those of QEMU's vl.c and qemu-option.c: one dash or two; an option's value is the next word,
 * whatever it looks like; commas separate, two commas are one. Pure.
 */
#ifndef HPZ_QEMU_OPTIONS_H
#define HPZ_QEMU_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- words ---- */

/* The name behind one dash or two; NULL for an operand, which is a disk's image. */
const char *qemu_options_get_name(const char *word);

struct qemu_option {
	const char *name, *value; /* value NULL: it has none; where it needs one, the command ends here */
	bool needs_value;
	size_t word; /* index of the value, or where it would be */
};

/*
 * The option at argv[*at], and moves *at behind it; false at the end. Operands are passed over. *at begins
 * with 1, behind the program.
 */
bool qemu_options_next(char *const argv[], size_t *at, struct qemu_option *ret_option);

/* ---- "key=value,key=value" ---- */

/* A value of QEMU's and how far it is read. */
struct qemu_pairs {
	const char *at;
	bool is_read; /* the first one is */
};
#define QEMU_PAIRS_OF(text)                                                                                  \
	{                                                                                                    \
		(text), false                                                                                \
	}

struct qemu_pair {
	const char *key, *value; /* key NULL: a value that stands alone at the beginning */
	size_t key_length, value_length;
	const char *start; /* of all of it, */
	size_t length;     /* without commas around it */
};

bool qemu_pairs_next(struct qemu_pairs *pairs, struct qemu_pair *ret_pair);

/* Compares with a plain text; a pair without a key has no key that is `text`. */
bool qemu_pair_has_key(const struct qemu_pair *pair, const char *text);
bool qemu_pair_has_value(const struct qemu_pair *pair, const char *text);

/* The value, two commas being one; false: it does not fit. */
bool qemu_pair_get_value(const struct qemu_pair *pair, char *ret_text, size_t capacity);

/*
 * "512", "512M", "1.5g": bytes; a number alone is of `default_shift`, as 20 for MiB. Hexadecimal and
 * exponents are for QEMU to judge.
 */
bool qemu_pair_get_size(const struct qemu_pair *pair, unsigned default_shift, uint64_t *ret_bytes);

#endif
