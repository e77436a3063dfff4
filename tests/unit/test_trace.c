/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_trace.c - what a trace says, what is refused and with which line, and that no bytes whatever do harm.
 */
#include "temp.h"
#include "dice.h"
#include "trace.h"

static int arg_count;
static char **args;
static char dir[TEMP_PATH];

static int open_text(const char *bytes, size_t length, struct trace **ret_trace)
{
	char path[PATH_MAX], why[TRACE_ERROR];

	temp_write(dir, "t.csv", bytes, length);
	snprintf(path, sizeof path, "%s/t.csv", dir);
	return trace_open(path, ret_trace, why);
}

/* ---- what is there ---- */

static void expect_row(struct trace *trace, unsigned long line, double start_s, double end_s, uint64_t bytes,
	int32_t node, const char *host)
{
	struct trace_row row;
	char why[TRACE_ERROR] = "";

	if (trace_next(trace, &row, why) != 1)
		fail_msg("%s", why);
	assert_int_equal(row.line, line);
	assert_int_equal(row.start_ns, (uint64_t)(start_s * 1e9));
	assert_true(end_s < 0 ? row.end_ns == TRACE_NEVER : row.end_ns == (uint64_t)(end_s * 1e9));
	assert_int_equal(row.bytes, bytes);
	assert_int_equal(row.node, node);
	assert_string_equal(row.host, host);
}

static void expect_end(struct trace *trace)
{
	struct trace_row row;
	char why[TRACE_ERROR] = "";

	if (trace_next(trace, &row, why) != 0)
		fail_msg("no end: %s", why);
	assert_int_equal(trace_get_position(trace), trace_get_length(trace));
}

static void test_plain(void **state)
{
	static const char text[] = "# made by hand\n"
				   "\n"
				   "0,web,2G,0,10\n"
				   "0.25, \"db, 1\" ,512M,any,\r\n"
				   "7,,1048576,,7";
	_cleanup_trace_ struct trace *trace = NULL;

	assert_int_equal(open_text(text, sizeof text - 1, &trace), 0);
	expect_row(trace, 3, 0, 10, (uint64_t)2 << 30, 0, "web");
	expect_row(trace, 4, 0.25, -1, (uint64_t)512 << 20, TRACE_NODE_ANY, "db, 1");
	expect_row(trace, 5, 7, 7, 1 << 20, TRACE_NODE_ANY, "");
	expect_end(trace);
}

static void test_header(void **state)
{
	static const char text[] = "vm,END,Size,owner,Time\n"
				   "1,2026-11-30T20:15:00Z,1G,me,2026-11-30 20:14:59.5\n"
				   "2,1796069700.5,1.5G,you,1796069700\n";
	_cleanup_trace_ struct trace *trace = NULL;

	assert_int_equal(open_text(text, sizeof text - 1, &trace), 0);
	expect_row(trace, 2, 1796069699.5, 1796069700, (uint64_t)1 << 30, TRACE_NODE_ANY, "");
	expect_row(trace, 3, 1796069700, 1796069700.5, (uint64_t)3 << 29, TRACE_NODE_ANY, "");
	expect_end(trace);
}

static void test_few_columns(void **state)
{
	_cleanup_trace_ struct trace *trace = NULL;

	assert_int_equal(open_text("1,a,2M\n", 7, &trace), 0);
	expect_row(trace, 1, 1, -1, 2 << 20, TRACE_NODE_ANY, "a");
	expect_end(trace);
}

/* ---- what is refused ---- */

#define LONG_60 "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"

static const struct {
	const char *text;
	const char *says; /* behind FILE: */
} refused[] = {
	{"x,a,2G,0,1\n", "1: time `x`, which is neither"},
	{"-1,a,2G,0,1\n", "1: time `-1`, which is neither"},
	{"1.,a,2G,0,1\n", "1: time `1.`, which is neither"},
	{"99999999999999999999,a,2G,0,\n", "1: time `99999999999999999999`"},
	{"6000000001,a,2G,0,\n", "1: time `6000000001`"},
	{"2026-11-31T25:00:00Z,a,2G,0,\n", "1: time `2026-11-31T25:00:00Z`"},
	{"2026-11-30,a,2G,0,\n", "1: time `2026-11-30`"},
	{"5,a,2G,0,9\n\n4,a,2G,0,9\n",
		"3: time `4` is before that of line 1, and rows must stand in the order"},
	{"5,a,2G,0,4\n", "1: end `4`, which is before its start at 5"},
	{"5,a,2G,0,soon\n", "1: end `soon`, which is neither"},
	{"5,a,big,0,9\n", "1: size `big`, which is not a size"},
	{"5,a,0,0,9\n", "1: size `0`, which is not a size"},
	{"5,a,9999T,0,9\n", "1: size `9999T`, which is more than any machine has"},
	{"5,a,2G,-1,9\n", "1: node `-1`, which is neither 0 to 1023 nor any"},
	{"5,a,2G,1024,9\n", "1: node `1024`"},
	{"5,a,2G,0,9\n5,a,2G,0\n", "2: 4 fields, the first row has 5"},
	{"5,a\n", "1: 2 columns, which are not time, host, size, node, end"},
	{"5,a,2G,0,9,x\n", "1: 6 columns, which are not time, host, size, node, end"},
	{"time,host,size,node,size\n", "1: two columns `size`"},
	{"time,host\n", "1: no column `size`"},
	{"host,size\n", "1: no column `time`"},
	{"5,\"a,2G,0,9\n", "1: a quote that does not end in this line"},
	{"5,a\"b,2G,0,9\n", "1: quotes that are not those of CSV"},
	{"5,\"a\"b,2G,0,9\n", "1: quotes that are not those of CSV"},
	{"5,a,2G,0,9\n5,a\x01,2G,0,9\n", "2: byte 0x01, this is no text file"},
	{"time,host,size\n1," LONG_60 LONG_60 LONG_60 ",2G\n", "2: host of more than 127 bytes"},
};

static void test_refused(void **state)
{
	for (size_t i = 0; i < ARRAY_SIZE(refused); i++) {
		_cleanup_trace_ struct trace *trace = NULL;
		struct trace_row row;
		char why[TRACE_ERROR] = "";
		int r;
		assert_int_equal(open_text(refused[i].text, strlen(refused[i].text), &trace), 0);
		while ((r = trace_next(trace, &row, why)) > 0)
			;
		const char *says = strstr(why, "t.csv:");
		if (r != -EINVAL || !says || strncmp(says + 6, refused[i].says, strlen(refused[i].says)) != 0)
			fail_msg("`%s`: %d, %s", refused[i].text, r, why);
	}
}

static void test_long_line(void **state)
{
	_cleanup_trace_ struct trace *trace = NULL;
	struct trace_row row;
	char text[TRACE_LINE_MAX + 20], why[TRACE_ERROR] = "";

	memset(text, '1', sizeof text);
	assert_int_equal(open_text(text, sizeof text, &trace), 0);
	assert_int_equal(trace_next(trace, &row, why), -EINVAL);
	assert_non_null(strstr(why, ":1: a line longer than"));
}

static void test_no_file(void **state)
{
	struct trace *trace;
	char path[PATH_MAX], why[TRACE_ERROR];

	snprintf(path, sizeof path, "%s/none", dir);
	assert_int_equal(trace_open(path, &trace, why), -ENOENT);
	assert_non_null(strstr(why, "none: No such file"));
	assert_int_equal(trace_open(dir, &trace, why), -EISDIR);
}

/* ---- any bytes ---- */

static const char seed_text[] = "time,host,size,node,end,\"x \"\"y\"\"\"\n"
				"1,a,2G,0,2026-11-30T20:15:00Z,\n"
				"1.5,\"b,c\",512M,any,9,\"\"\n"
				"# no more\n"
				"7,d,4096K,1,,z\n";

static size_t mutate(struct dice *dice, char *bytes, size_t length, size_t capacity)
{
	static const char special[] = "\",\n\r\0#.:-TZ \t0123456789GM";

	for (uint64_t changes = dice_between(dice, 1, 8); changes > 0 && length > 0; changes--) {
		size_t at = (size_t)dice_roll(dice, length);
		char new = dice_chance(dice, 70) ? special[dice_roll(dice, sizeof special - 1)]
						 : (char)dice_roll(dice, 256);
		switch (dice_roll(dice, 3)) {
		case 0:
			bytes[at] = new;
			break;
		case 1:
			memmove(&bytes[at], &bytes[at + 1], --length - at);
			break;
		case 2:
			if (length == capacity)
				break;
			memmove(&bytes[at + 1], &bytes[at], length++ - at);
			bytes[at] = new;
			break;
		}
	}
	return length;
}

/* Rows are as the header says they are, in order; and whatever is wrong has its file and line. */
static void read_all(struct trace *trace, uint64_t seed)
{
	struct trace_row row;
	char why[TRACE_ERROR] = "";
	uint64_t last_ns = 0;
	unsigned long last_line = 0;
	int r;

	while ((r = trace_next(trace, &row, why)) > 0) {
		if (row.start_ns < last_ns || row.end_ns < row.start_ns || row.bytes == 0 ||
			row.line <= last_line || row.node < TRACE_NODE_ANY || row.node > TRACE_NODE_MAX ||
			memchr(row.host, 0, 128) == NULL)
			fail_msg("seed %" PRIu64 ": line %lu is no row", seed, row.line);
		last_ns = row.start_ns;
		last_line = row.line;
	}
	const char *says = strstr(why, "t.csv:");
	if (r < 0 && (r != -EINVAL || !says || strtoul(says + 6, NULL, 10) <= last_line))
		fail_msg("seed %" PRIu64 ": %d, %s", seed, r, why);
}

static void check_mutations(uint64_t seed, void *user)
{
	struct dice dice;

	dice_init(&dice, seed);
	for (int i = 0; i < 50; i++) {
		_cleanup_trace_ struct trace *trace = NULL;
		char bytes[512];
		memcpy(bytes, seed_text, sizeof seed_text - 1);
		size_t length = mutate(&dice, bytes, sizeof seed_text - 1, sizeof bytes);
		assert_int_equal(open_text(bytes, length, &trace), 0);
		read_all(trace, seed);
	}
}

static void test_any_bytes(void **state)
{
	dice_for_each_seed(arg_count, args, 60, check_mutations, NULL);
}

static int set_up(void **state)
{
	temp_make(dir);
	return 0;
}

static int tear_down(void **state)
{
	temp_remove(dir);
	return 0;
}

int main(int argc, char **argv)
{
	arg_count = argc;
	args = argv;
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_plain),
		cmocka_unit_test(test_header),
		cmocka_unit_test(test_few_columns),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_long_line),
		cmocka_unit_test(test_no_file),
		cmocka_unit_test(test_any_bytes),
	};
	return cmocka_run_group_tests_name("trace", tests, set_up, tear_down);
}
