/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * settings.h - what programs other than hpzd want from hpzd.conf: some keys of some sections, by a table.
 * hpzd reads all of the file and refuses what is wrong in it. Whoever reads it here must do its work in any
 * case: what cannot be read leaves the default standing, and is told.
 */
#ifndef HPZ_SETTINGS_H
#define HPZ_SETTINGS_H

#include "util.h"

#define SETTINGS_DEFAULT_PATH "/etc/hpz/hpzd.conf"
#define SETTINGS_PROBLEM      256

enum settings_type {
	SETTINGS_TEXT,   /* char[size] */
	SETTINGS_BOOL,   /* bool */
	SETTINGS_TIME,   /* uint64_t, milliseconds: "no" is 0, or as 10s, 2m, 1h */
	SETTINGS_CHOICE, /* unsigned: which of `choices` */
};

struct settings_row {
	const char *section, *key;
	enum settings_type type;
	void *value; /* holds the default before */
	size_t size;
	const char *const *choices; /* NULL behind the last */
};

/* $HPZ_CONFIG, or where the file is. */
const char *settings_get_path(void);

/*
 * Reads the file. Afterwards `problem` says what is wrong with the first thing that is, "FILE:LINE: ..." or
 * "FILE: ...", and is empty when nothing is; a file that is not there is nothing wrong.
 */
void settings_read(
	const char *path, const struct settings_row *rows, size_t row_count, char problem[SETTINGS_PROBLEM]);

#endif
