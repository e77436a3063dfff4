/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* options.h - command line options from a table, which --help prints. */
#ifndef HPZ_OPTIONS_H
#define HPZ_OPTIONS_H

#include "hpzctl.h"

enum options_type {
	OPTIONS_FLAG,             /* bool */
	OPTIONS_TEXT,             /* const char * */
	OPTIONS_TEXTS,            /* struct options_texts, one more each time */
	OPTIONS_SIZE,             /* uint64_t, bytes; 0 is refused */
	OPTIONS_COUNT,            /* uint64_t, from 1 to a million */
	OPTIONS_ID,               /* uint64_t, not 0 */
	OPTIONS_SECONDS,          /* int64_t, milliseconds; "forever" is HPZ_FOREVER */
	OPTIONS_OPTIONAL_SECONDS, /* the same, only as --name=VALUE; without a value HPZ_FOREVER */
	OPTIONS_NODE,             /* int32_t; "any" is HPZ_NODE_ANY */
	OPTIONS_NODES,            /* uint64_t, a mask of nodes, as 0-1,3 */
	OPTIONS_POLICY,           /* uint32_t, enum hpz_node_policy */
	OPTIONS_CELL,             /* struct options_cells, one more each time */
	OPTIONS_PID,              /* int32_t */
	OPTIONS_PRIORITY,         /* int32_t, -HPZ_PRIORITY_MAX to HPZ_PRIORITY_MAX */
	OPTIONS_MODE,             /* uint32_t, octal */
};

struct options_cells {
	struct hpz_cell cells[HPZ_CELLS_MAX];
	uint32_t count;
};

#define OPTIONS_TEXTS_MAX 16

struct options_texts {
	const char *texts[OPTIONS_TEXTS_MAX];
	uint32_t count;
};

struct options_row {
	const char *name; /* without the dashes */
	enum options_type type;
	void *value;
	const char *argument; /* for --help; NULL: none */
	const char *help;
};

/* options_parse(): nothing is said or done yet, go on. Anything else is an exit status. */
#define OPTIONS_GO (-1)

/*
 * Reads the verb's options and the global ones, which may stand anywhere before "--". *ret_operands is where
 * the operands are, in argv, of which *ret_count are left, NULL behind the last. With `stop` everything from
 * the first operand on is an operand: a command and its own options.
 */
int options_parse(struct hpzctl *ctl, const struct options_row *rows, size_t row_count, int argc, char **argv,
	bool stop, char ***ret_operands, int *ret_count);

/* The operands of a verb that has none. */
int options_refuse_operands(const struct hpzctl *ctl, char **operands, int count);

/* Prints the rows and the global ones, as --help does. */
void options_print(const struct options_row *rows, size_t row_count);

#endif
