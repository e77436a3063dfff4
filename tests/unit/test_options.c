/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_options.c - every type of option, where options may stand, and what is refused. */
#include "options.h"
#include "size.h"
#include "temp.h"

static bool flag;
static const char *text;
static uint64_t bytes, number;
static int64_t seconds, wait_ms;
static int32_t node, pid, priority;
static uint32_t mode, policy;
static uint64_t nodes;
static struct options_cells cells;
static struct options_texts texts;
static const struct options_row rows[] = {
	{"flag", OPTIONS_FLAG, &flag, NULL, "a flag"},
	{"text", OPTIONS_TEXT, &text, "TEXT", "a text"},
	{"size", OPTIONS_SIZE, &bytes, "SIZE", "a size"},
	{"seconds", OPTIONS_SECONDS, &seconds, "SECONDS", "seconds"},
	{"wait", OPTIONS_OPTIONAL_SECONDS, &wait_ms, "SECONDS", "perhaps seconds"},
	{"node", OPTIONS_NODE, &node, "NODE", "a node"},
	{"pid", OPTIONS_PID, &pid, "PID", "a process"},
	{"mode", OPTIONS_MODE, &mode, "MODE", "a mode"},
	{"priority", OPTIONS_PRIORITY, &priority, "N", "a priority"},
	{"id", OPTIONS_ID, &number, "ID", "an id"},
	{"nodes", OPTIONS_NODES, &nodes, "LIST", "nodes"},
	{"policy", OPTIONS_POLICY, &policy, "POLICY", "a policy"},
	{"cell", OPTIONS_CELL, &cells, "SIZE:N", "a cell"},
	{"word", OPTIONS_TEXTS, &texts, "WORD", "a word"},
};

static const struct hpzctl_verb verb = {.name = "test", .operands = "OPERAND", .help = "is tested"};
static struct hpzctl ctl;
static char **operands;
static int operand_count;

/* What hpzctl.c has: it is not linked here. */
static char failure[256];
static unsigned failures;

int hpzctl_fail_usage(const struct hpzctl *who, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(failure, sizeof failure, format, arguments);
	va_end(arguments);
	failures++;
	return HPZCTL_USAGE;
}

#define PARSE(stop, ...) parse(stop, (const char *[]){__VA_ARGS__, NULL})

static int parse(bool stop, const char **words)
{
	static char *argv[32];
	int argc = 0;

	for (; words[argc]; argc++)
		argv[argc] = (char *)words[argc]; /* moved, not changed */
	argv[argc] = NULL;
	ctl = (struct hpzctl){.verb = &verb};
	flag = false;
	text = NULL;
	bytes = 0;
	seconds = wait_ms = 0;
	node = pid = -7;
	mode = policy = 0;
	nodes = 0;
	cells.count = texts.count = 0;
	failures = 0;
	failure[0] = '\0';
	return options_parse(&ctl, rows, ARRAY_SIZE(rows), argc, argv, stop, &operands, &operand_count);
}

/* Refused once, with a word that helps; nothing is to be done. */
static void expect_refused(int status, const char *word)
{
	assert_int_equal(status, HPZCTL_USAGE);
	assert_int_equal(failures, 1);
	if (!strstr(failure, word))
		fail_msg("\"%s\" is not in \"%s\"", word, failure);
}

static void test_values(void **state)
{
	assert_int_equal(
		PARSE(false, "--flag", "--text", "t", "--size", "1.5G", "--seconds", "0.5", "--wait=2",
			"--node", "3", "--pid", "77", "--mode", "0640", "--priority", "-1000"),
		OPTIONS_GO);
	assert_true(flag && bytes == (uint64_t)3 << 29 && seconds == 500 && wait_ms == 2000 && node == 3 &&
		    pid == 77 && mode == 0640 && priority == -1000);
	assert_string_equal(text, "t");
	assert_int_equal(operand_count, 0);
	assert_int_equal(PARSE(false, "--text=a=b", "--seconds=forever", "--wait", "--node=any", "--size=2M"),
		OPTIONS_GO);
	assert_string_equal(text, "a=b");
	assert_true(
		seconds == HPZ_FOREVER && wait_ms == HPZ_FOREVER && node == HPZ_NODE_ANY && bytes == 2 << 20);
	assert_int_equal(PARSE(false, "--priority=1000", "--id", "9007199254740991"), OPTIONS_GO);
	assert_true(priority == 1000 && number == 9007199254740991u);
	/* An empty text is one. What looks like an option is a value where one is due. */
	assert_int_equal(PARSE(false, "--text="), OPTIONS_GO);
	assert_string_equal(text, "");
	assert_int_equal(PARSE(false, "--text", "--flag"), OPTIONS_GO);
	assert_string_equal(text, "--flag");
	assert_false(flag);
	/* Never less than asked for: a moment is not none. */
	assert_int_equal(PARSE(false, "--seconds", "0.0001"), OPTIONS_GO);
	assert_int_equal(seconds, 1);
	assert_int_equal(PARSE(false, "--seconds", "0"), OPTIONS_GO);
	assert_int_equal(seconds, 0);
}

static void test_nodes(void **state)
{
	assert_int_equal(PARSE(false, "--nodes", "0-1,3", "--policy", "interleave"), OPTIONS_GO);
	assert_true(nodes == 11 && policy == HPZ_NODES_INTERLEAVE);
	assert_int_equal(PARSE(false, "--nodes=0-63", "--policy=preferred"), OPTIONS_GO);
	assert_true(nodes == UINT64_MAX && policy == HPZ_NODES_PREFERRED);
	assert_int_equal(PARSE(false, "--nodes=63", "--policy=strict"), OPTIONS_GO);
	assert_true(nodes == 1ull << 63 && policy == HPZ_NODES_STRICT);
	/* One more each time, in their order. */
	assert_int_equal(PARSE(false, "--cell", "1G:0", "--cell=512M:7"), OPTIONS_GO);
	assert_true(cells.count == 2 && cells.cells[0].size == 1 << 30 && cells.cells[0].node == 0 &&
		    cells.cells[1].size == 1 << 29 && cells.cells[1].node == 7);
	for (unsigned i = 0; i < HPZ_CELLS_MAX; i++)
		cells.cells[i] = (struct hpz_cell){0};
	const char *many[2 * HPZ_CELLS_MAX + 3] = {NULL};
	static char *argv[2 * HPZ_CELLS_MAX + 3];
	for (unsigned i = 0; i <= HPZ_CELLS_MAX; i++)
		many[i] = "--cell=2M:0";
	memcpy(argv, many, sizeof many);
	cells.count = 0;
	expect_refused(options_parse(&ctl, rows, ARRAY_SIZE(rows), HPZ_CELLS_MAX + 1, argv, false, &operands,
			       &operand_count),
		"64");
}

static void test_texts(void **state)
{
	char *many[OPTIONS_TEXTS_MAX + 1];
	assert_int_equal(PARSE(false, "--word", "a", "--word=", "--word", "a"), OPTIONS_GO);
	assert_int_equal(texts.count, 3);
	assert_string_equal(texts.texts[0], "a");
	assert_string_equal(texts.texts[1], "");
	assert_string_equal(texts.texts[2], "a");
	for (unsigned i = 0; i < ARRAY_SIZE(many); i++)
		many[i] = (char *)"--word=b";
	texts.count = 0;
	expect_refused(options_parse(&ctl, rows, ARRAY_SIZE(rows), ARRAY_SIZE(many), many, false, &operands,
			       &operand_count),
		"16");
}

static void test_bad_values(void **state)
{
	static const struct {
		const char *option;
		const char *values[10];
	} bad[] = {
		{"size", {"", "0", "x", "-1", "1Q", "99999999999G", "1.5.5G", " 1G"}},
		{"seconds", {"", "x", "-1", "1s", "1.2.3", ".", "1e3", "9999999999999999", "Forever"}},
		{"wait", {"", "x", "-1"}},
		{"id", {"", "x", "0", "-1", "1.5", "99999999999999999999"}},
		{"priority", {"", "x", "-", "--1", "1001", "-1001", "+1", "1.5"}},
		{"node", {"", "x", "-1", "1.5", "2147483648", "99999999999999999999", "Any"}},
		{"pid", {"", "0", "x", "-1", "2147483648", "+1", " 1"}},
		{"mode", {"", "8", "0o640", "10000", "-1", "rw"}},
		{"nodes", {"", "x", "64", "0-64", "2-1", "0-", "-1", "0,", ",1", "0 1"}},
		{"policy", {"", "Strict", "bind", "0"}},
		{"cell", {"", "1G", "1G:", ":0", "1G:x", "1G:-1", "x:0", "0:0", "1G:0:1", "1G:2147483648"}},
	};

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		for (size_t j = 0; j < ARRAY_SIZE(bad[i].values) && bad[i].values[j]; j++) {
			char word[64];
			snprintf(word, sizeof word, "--%s=%s", bad[i].option, bad[i].values[j]);
			int status = PARSE(false, word);
			if (status != HPZCTL_USAGE)
				fail_msg("%s is taken", word);
			expect_refused(status, bad[i].option);
		}
	}
}

static void test_refused(void **state)
{
	expect_refused(PARSE(false, "--nonsense"), "nonsense");
	expect_refused(PARSE(false, "--fla"), "fla"); /* no abbreviations: a script means what it says */
	expect_refused(PARSE(false, "--flags"), "flags");
	expect_refused(PARSE(false, "--flag=yes"), "flag");
	expect_refused(PARSE(false, "--text"), "text"); /* and no value follows */
	expect_refused(PARSE(false, "-x"), "x");
	expect_refused(PARSE(false, "--=x"), "");
}

/* Options may stand anywhere before "--", the global ones too. */
static void test_operands(void **state)
{
	assert_int_equal(
		PARSE(false, "one", "--flag", "two", "--socket", "/s", "three", "--json"), OPTIONS_GO);
	assert_int_equal(operand_count, 3);
	assert_string_equal(operands[0], "one");
	assert_string_equal(operands[2], "three");
	assert_null(operands[3]);
	assert_true(flag && ctl.json);
	assert_string_equal(ctl.socket_path, "/s");
	assert_int_equal(PARSE(false, "one", "--", "--flag", "--"), OPTIONS_GO);
	assert_int_equal(operand_count, 3);
	assert_string_equal(operands[1], "--flag");
	assert_string_equal(operands[2], "--");
	assert_false(flag);
	/* A lone "-" is a file name, by custom. */
	assert_int_equal(PARSE(false, "-"), OPTIONS_GO);
	assert_int_equal(operand_count, 1);
}

/* A command keeps its own options. */
static void test_command(void **state)
{
	assert_int_equal(PARSE(true, "--size", "1G", "qemu", "--flag", "-m", "1G", "--help"), OPTIONS_GO);
	assert_int_equal(operand_count, 5);
	assert_string_equal(operands[0], "qemu");
	assert_string_equal(operands[1], "--flag");
	assert_false(flag);
	assert_int_equal(PARSE(true, "--flag", "--", "--qemu", "--"), OPTIONS_GO);
	assert_int_equal(operand_count, 2);
	assert_string_equal(operands[0], "--qemu");
	assert_string_equal(operands[1], "--");
	assert_true(flag);
}

static void test_no_operands(void **state)
{
	char extra[] = "extra", *none[] = {NULL}, *one[] = {extra, NULL};

	failures = 0;
	assert_int_equal(options_refuse_operands(&ctl, none, 0), OPTIONS_GO);
	assert_int_equal(failures, 0);
	expect_refused(options_refuse_operands(&ctl, one, 1), "extra");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_values),
		cmocka_unit_test(test_nodes),
		cmocka_unit_test(test_texts),
		cmocka_unit_test(test_bad_values),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_operands),
		cmocka_unit_test(test_command),
		cmocka_unit_test(test_no_operands),
	};
	return cmocka_run_group_tests_name("options", tests, NULL, NULL);
}
