/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* options.c - command line options from a table, which --help prints. */
#include "options.h"

#include <limits.h>

#include "size.h"

#define OPTIONS_LONGEST_MS 1000000000000ll /* 31 years: longer is for ever */
#define OPTIONS_COUNT_MAX  1000000

/* ---- values ---- */

static int options_read_number(const char *text, int base, int64_t most, int64_t *ret_number)
{
	char *end;

	if (*text < '0' || *text > '9')
		return -EINVAL;
	errno = 0;
	long long number = strtoll(text, &end, base);
	if (errno || *end || number > most)
		return -EINVAL;
	*ret_number = number;
	return 0;
}

/* "2", "0.5", "forever" */
static int options_read_seconds(const char *text, int64_t *ret_ms)
{
	char *end;

	if (strcmp(text, "forever") == 0) {
		*ret_ms = HPZ_FOREVER;
		return 0;
	}
	if (text[0] == '\0' || text[strspn(text, "0123456789.")] != '\0')
		return -EINVAL;
	double ms = strtod(text, &end) * 1000.0;
	if (*end || ms > (double)OPTIONS_LONGEST_MS)
		return -EINVAL;
	*ret_ms = (int64_t)(ms + 0.999);
	return 0;
}

static int options_read_size(const char *text, uint64_t *ret_bytes)
{
	uint64_t bytes;

	if (size_parse(text, &bytes) < 0 || bytes == 0)
		return -EINVAL;
	*ret_bytes = bytes;
	return 0;
}

/* "0-1,3" */
static int options_read_nodes(const char *text, uint64_t *ret_mask)
{
	uint64_t mask = 0;

	for (const char *at = text;; at++) {
		char *end;
		if (*at < '0' || *at > '9')
			return -EINVAL;
		unsigned long first = strtoul(at, &end, 10), last = first;
		if (*end == '-') {
			at = end + 1;
			if (*at < '0' || *at > '9')
				return -EINVAL;
			last = strtoul(at, &end, 10);
		}
		if (first > last || last >= 64)
			return -EINVAL;
		mask |= (UINT64_MAX >> (63 - (last - first))) << first;
		at = end;
		if (*at == '\0')
			break;
		if (*at != ',')
			return -EINVAL;
	}
	*ret_mask = mask;
	return 0;
}

static int options_read_policy(const char *text, uint32_t *ret_policy)
{
	static const char *const names[] = {
		[HPZ_NODES_STRICT] = "strict",
		[HPZ_NODES_PREFERRED] = "preferred",
		[HPZ_NODES_INTERLEAVE] = "interleave",
	};

	for (uint32_t i = 0; i < ARRAY_SIZE(names); i++) {
		if (strcmp(text, names[i]) == 0) {
			*ret_policy = i;
			return 0;
		}
	}
	return -EINVAL;
}

/* "1G:0" */
static int options_add_cell(const char *text, struct options_cells *cells)
{
	char size[32];
	const char *colon = strchr(text, ':');
	int64_t node;

	if (!colon || (size_t)(colon - text) >= sizeof(size) || cells->count == HPZ_CELLS_MAX)
		return -EINVAL;
	memcpy(size, text, (size_t)(colon - text));
	size[colon - text] = '\0';
	struct hpz_cell cell = {0};
	if (options_read_size(size, &cell.size) < 0 ||
		options_read_number(colon + 1, 10, INT32_MAX, &node) < 0)
		return -EINVAL;
	cell.node = (int32_t)node;
	cells->cells[cells->count++] = cell;
	return 0;
}

static int options_add_text(const char *text, struct options_texts *texts)
{
	if (texts->count == OPTIONS_TEXTS_MAX)
		return -EINVAL;
	texts->texts[texts->count++] = text;
	return 0;
}

static int options_set_value(const struct options_row *row, const char *text)
{
	int64_t number = HPZ_NODE_ANY;
	int r = 0;

	switch (row->type) {
	case OPTIONS_FLAG:
		*(bool *)row->value = true;
		break;
	case OPTIONS_TEXT:
		*(const char **)row->value = text;
		break;
	case OPTIONS_TEXTS:
		return options_add_text(text, row->value);
	case OPTIONS_SIZE:
		return options_read_size(text, row->value);
	case OPTIONS_COUNT:
		r = options_read_number(text, 10, OPTIONS_COUNT_MAX, &number);
		if (r || number == 0)
			return -EINVAL;
		*(uint64_t *)row->value = (uint64_t)number;
		break;
	case OPTIONS_SECONDS:
	case OPTIONS_OPTIONAL_SECONDS:
		return options_read_seconds(text, row->value);
	case OPTIONS_NODE:
		if (strcmp(text, "any") != 0)
			r = options_read_number(text, 10, INT32_MAX, &number);
		if (!r)
			*(int32_t *)row->value = (int32_t)number;
		return r;
	case OPTIONS_NODES:
		return options_read_nodes(text, row->value);
	case OPTIONS_POLICY:
		return options_read_policy(text, row->value);
	case OPTIONS_CELL:
		return options_add_cell(text, row->value);
	case OPTIONS_PID:
		r = options_read_number(text, 10, INT32_MAX, &number);
		if (!r)
			*(int32_t *)row->value = (int32_t)number;
		return r || number == 0 ? -EINVAL : 0;
	case OPTIONS_ID:
		r = options_read_number(text, 10, INT64_MAX, &number);
		if (!r)
			*(uint64_t *)row->value = number;
		return r || number == 0 ? -EINVAL : 0;
	case OPTIONS_PRIORITY:
		r = options_read_number(text + (text[0] == '-'), 10, HPZ_PRIORITY_MAX, &number);
		if (!r)
			*(int32_t *)row->value = text[0] == '-' ? -(int32_t)number : (int32_t)number;
		return r;
	case OPTIONS_MODE:
		r = options_read_number(text, 8, 07777, &number);
		if (!r)
			*(uint32_t *)row->value = (uint32_t)number;
		return r;
	}
	return 0;
}

static const char *options_describe(enum options_type type)
{
	switch (type) {
	case OPTIONS_FLAG:
	case OPTIONS_TEXT:
		return "a text";
	case OPTIONS_TEXTS:
		return "a text, and 16 of them at most";
	case OPTIONS_SIZE:
		return "a size, as 512M or 1.5G";
	case OPTIONS_COUNT:
		return "a number from 1 to a million";
	case OPTIONS_SECONDS:
	case OPTIONS_OPTIONAL_SECONDS:
		return "seconds, as 30 or 0.5, or forever";
	case OPTIONS_NODE:
		return "the number of a NUMA node, or any";
	case OPTIONS_NODES:
		return "NUMA nodes below 64, as 0-1,3";
	case OPTIONS_POLICY:
		return "strict, preferred or interleave";
	case OPTIONS_CELL:
		return "a size and a node, as 1G:0, and 64 of them at most";
	case OPTIONS_PID:
		return "a process number";
	case OPTIONS_ID:
		return "an id";
	case OPTIONS_PRIORITY:
		return "a priority from -1000 to 1000";
	case OPTIONS_MODE:
		return "a file mode in octal, as 0660";
	}
	return "";
}

/* ---- rows ---- */

struct options_globals {
	struct options_row rows[3];
	bool help;
};

static void options_init_globals(struct options_globals *globals, struct hpzctl *ctl)
{
	*globals = (struct options_globals){
		.rows =
			{
				{"socket", OPTIONS_TEXT, &ctl->socket_path, "PATH",
					"where hpzd listens (default $HPZ_SOCKET or " HPZ_DEFAULT_SOCKET ")"},
				{"json", OPTIONS_FLAG, &ctl->json, NULL, "print JSON, for programs"},
				{"help", OPTIONS_FLAG, &globals->help, NULL, "print this help"},
			},
	};
}

static const struct options_row *options_find(
	const struct options_row *rows, size_t row_count, const char *name, size_t length)
{
	for (size_t i = 0; i < row_count; i++) {
		if (length && strlen(rows[i].name) == length && strncmp(rows[i].name, name, length) == 0)
			return &rows[i];
	}
	return NULL;
}

static void options_print_rows(const struct options_row *rows, size_t row_count)
{
	for (size_t i = 0; i < row_count; i++) {
		char left[64];
		const char *argument = rows[i].argument ? rows[i].argument : "";
		bool is_optional = rows[i].type == OPTIONS_OPTIONAL_SECONDS;
		snprintf(left, sizeof(left), "--%s%s%s%s", rows[i].name,
			is_optional ? "[="
			: *argument ? " "
				    : "",
			argument, is_optional ? "]" : "");
		printf("  %-24s %s\n", left, rows[i].help);
	}
}

void options_print(const struct options_row *rows, size_t row_count)
{
	struct hpzctl nobody = {0};
	struct options_globals globals;

	options_init_globals(&globals, &nobody);
	options_print_rows(rows, row_count);
	options_print_rows(globals.rows, ARRAY_SIZE(globals.rows));
}

static int options_print_help(const struct hpzctl *ctl, const struct options_row *rows, size_t row_count)
{
	const char *operands = ctl->verb->operands;

	printf("usage: hpzctl %s [OPTION...]%s%s\n%s\n\n", ctl->verb->name, *operands ? " " : "", operands,
		ctl->verb->help);
	options_print(rows, row_count);
	return HPZCTL_DONE;
}

/* "help" of "--help" and "-h"; NULL: this is no option at all. */
static const char *options_get_name(const char *word)
{
	if (strcmp(word, "-h") == 0)
		return "help";
	if (strcmp(word, "-V") == 0)
		return "version";
	return strncmp(word, "--", 2) == 0 ? word + 2 : NULL;
}

/* Reads the value of the option at argv[*at], and moves *at to the last word of it. */
static int options_parse_one(
	struct hpzctl *ctl, const struct options_row *row, const char *name, int argc, char **argv, int *at)
{
	const char *equals = strchr(name, '='), *value = equals ? equals + 1 : NULL;

	if (row->type == OPTIONS_FLAG && value)
		return hpzctl_fail_usage(ctl, "--%s takes no value", row->name);
	if (row->type == OPTIONS_OPTIONAL_SECONDS && !value)
		value = "forever";
	if (row->type != OPTIONS_FLAG && !value) {
		if (*at + 1 >= argc)
			return hpzctl_fail_usage(
				ctl, "--%s wants a value: %s", row->name, options_describe(row->type));
		value = argv[++*at];
	}
	if (options_set_value(row, value) < 0)
		return hpzctl_fail_usage(
			ctl, "--%s %s: that is not %s", row->name, value, options_describe(row->type));
	return OPTIONS_GO;
}

/* No option begins with a digit: "-4G" is an operand. */
static bool options_is_option(const char *word)
{
	return word[0] == '-' && word[1] && (word[1] < '0' || word[1] > '9');
}

int options_parse(struct hpzctl *ctl, const struct options_row *rows, size_t row_count, int argc, char **argv,
	bool stop, char ***ret_operands, int *ret_count)
{
	struct options_globals globals;
	int kept = 0, i = 0;

	options_init_globals(&globals, ctl);
	for (; i < argc; i++) {
		if (strcmp(argv[i], "--") == 0) {
			i++;
			break;
		}
		if (!options_is_option(argv[i])) {
			if (stop)
				break;
			argv[kept++] = argv[i];
			continue;
		}
		const char *name = options_get_name(argv[i]);
		size_t length = name ? strcspn(name, "=") : 0;
		const struct options_row *row = options_find(rows, row_count, name, length);
		if (!row)
			row = options_find(globals.rows, ARRAY_SIZE(globals.rows), name, length);
		if (!row)
			return hpzctl_fail_usage(ctl, "there is no option %s", argv[i]);
		int status = options_parse_one(ctl, row, name, argc, argv, &i);
		if (status != OPTIONS_GO)
			return status;
		if (globals.help)
			return options_print_help(ctl, rows, row_count);
	}
	/* Operands are moved together at the front, in order. */
	while (i < argc)
		argv[kept++] = argv[i++];
	argv[kept] = NULL;
	*ret_operands = argv;
	*ret_count = kept;
	return OPTIONS_GO;
}

int options_refuse_operands(const struct hpzctl *ctl, char **operands, int count)
{
	return count ? hpzctl_fail_usage(ctl, "what is '%s' for?", operands[0]) : OPTIONS_GO;
}
