/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_qemu_args.c - QEMU command lines: what is read out of them, what is left alone, what they become. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "qemu_args.h"
#include "util.h"

#define MI (1ull << 20)
#define GI (1ull << 30)
#define Q  "qemu-system-x86_64"

/* A command line as one text: words between blanks; "~" stands for a blank inside a word, "''" for an empty
 * word. */
static char **split(const char *text)
{
	char **argv = calloc(64, sizeof(*argv));
	char *copy = strdup(text), *rest = copy;
	size_t count = 0;

	for (char *word; (word = strsep(&rest, " "));) {
		assert_true(count < 63);
		argv[count++] = strdup(strcmp(word, "''") == 0 ? "" : word);
		for (char *at = argv[count - 1]; *at; at++)
			*at = *at == '~' ? ' ' : *at;
	}
	free(copy);
	return argv;
}

static void test_is_qemu(void **state)
{
	assert_true(qemu_args_is_qemu("qemu-system-x86_64"));
	assert_true(qemu_args_is_qemu("/usr/bin/qemu-system-aarch64"));
	assert_true(qemu_args_is_qemu("./qemu-system-"));
	assert_true(qemu_args_is_qemu("/usr/libexec/qemu-kvm"));
	assert_false(qemu_args_is_qemu("qemu-img"));
	assert_false(qemu_args_is_qemu("qemu-kvm-wrapper"));
	assert_false(qemu_args_is_qemu("/opt/qemu-system-x86_64/bin/true"));
	assert_false(qemu_args_is_qemu("my-qemu-system-x86_64"));
	assert_false(qemu_args_is_qemu(""));
	assert_false(qemu_args_is_qemu("qemu-system-x86_64/"));
}

/* ---- what is rewritten, and its size ---- */

struct memory_row {
	const char *command;
	uint64_t memory;
	bool has_memory;
};

static const struct memory_row memory_rows[] = {
	/* no -m */
	{Q, 128 * MI, false},
	{Q " disk.img", 128 * MI, false},
	{Q " -nographic -S", 128 * MI, false},
	{Q " -m slots=2,maxmem=4G", 128 * MI, false},
	/* forms of -m */
	{Q " -m 512", 512 * MI, true},
	{Q " --m 512", 512 * MI, true},
	{Q " -m 512M", 512 * MI, true},
	{Q " -m 512m", 512 * MI, true},
	{Q " -m 1G", GI, true},
	{Q " -m 1g", GI, true},
	{Q " -m 1T", 1024 * GI, true},
	{Q " -m 1.5G", GI + GI / 2, true},
	{Q " -m 0.5", MI / 2, true},
	{Q " -m 1048576K", GI, true},
	{Q " -m 1073741824B", GI, true},
	{Q " -m 1073741824b", GI, true},
	{Q " -m size=1G", GI, true},
	{Q " -m size=1024", GI, true},
	{Q " -m size=1G,slots=2,maxmem=4G", GI, true},
	{Q " -m 1G,slots=2,maxmem=4G", GI, true},
	{Q " -m slots=2,maxmem=4G,size=1G", GI, true},
	{Q " -m slots=2,size=1024,maxmem=4G", GI, true},
	{Q " -m 1024,maxmem=4096M,slots=2", GI, true},
	{Q " -m size=1G,size=2G", 2 * GI, true},
	{Q " -m 1G,size=2G", 2 * GI, true},
	{Q " -m 1G,maxmem", GI, true}, /* a flag */
	/* QEMU rounds up to 8 KiB and takes 0 for its default */
	{Q " -m 511M", 511 * MI, true},
	{Q " -m 1B", 8192, true},
	{Q " -m 8193B", 16384, true},
	{Q " -m 1.3G", 1395867648, true},
	{Q " -m 0", 128 * MI, false},
	{Q " -m 1G -m 0", 128 * MI, false},
	/* the last one counts, and they are merged */
	{Q " -m 512 -m 1G", GI, true},
	{Q " -m 512 -cpu max -m size=2G -nographic", 2 * GI, true},
	{Q " -m 512 -m slots=2,maxmem=4G", 512 * MI, true},
	{Q " -m slots=2,maxmem=4G -m 512", 512 * MI, true},
	/* around it */
	{Q " -machine q35 -m 2G -accel tcg", 2 * GI, true},
	{Q " -M pc,accel=kvm:tcg -m 2G", 2 * GI, true},
	{Q " -machine type=q35,accel=tcg,mem-merge=off -m 2G", 2 * GI, true},
	{Q " -machine q35,nvdimm=on -m 2G", 2 * GI, true},
	{Q " -mem-prealloc -m 2G", 2 * GI, true},
	{Q " -object iothread,id=io1 -m 2G", 2 * GI, true},
	{Q " -object rng-random,id=rng0,filename=/dev/urandom -m 2G", 2 * GI, true},
	{Q " -object {\"qom-type\":\"iothread\",\"id\":\"io1\"} -m 2G", 2 * GI, true},
	{Q " -daemonize -m 2G -enable-kvm", 2 * GI, true},
	{Q " -overcommit mem-lock=on -m 2G", 2 * GI, true},
	{Q " -only-migratable -m 2G", 2 * GI, true},
	{Q " -usb -m 2G", 2 * GI, true},
	{Q " -snapshot -m 2G d.img", 2 * GI, true},
	{Q " d.img -m 2G", 2 * GI, true},
	{Q " - -m 2G", 2 * GI, true},
	/* the value of another option is no option, unless it looks like one of those that matter */
	{Q " -append console=ttyS0~-mem-path~x -m 2G", 2 * GI, true},
	{Q " -kernel memory-backend-file -m 2G", 2 * GI, true},
	{Q " -serial mon:stdio -m 2G", 2 * GI, true},
	{Q " -append -quiet -m 2G", 2 * GI, true},
	{Q " -some-future-flag -m 2G", 2 * GI, true},
	{Q " -append help -m 2G", 2 * GI, true},
	{Q " -name help -m 2G", 2 * GI, true},
	{Q " -monitor telnet::45454,server,nowait -m 2G", 2 * GI, true},
	{Q " -qmp unix:/tmp/q,server=on -m 2G", 2 * GI, true},
	{"/usr/libexec/qemu-kvm -m 2G", 2 * GI, true},
};

static void test_memory(void **state)
{
	for (size_t i = 0; i < ARRAY_SIZE(memory_rows); i++) {
		char **argv = split(memory_rows[i].command);
		struct qemu_args args;
		qemu_args_read(argv, &args);
		if (args.left_alone || args.memory != memory_rows[i].memory ||
			args.has_memory != memory_rows[i].has_memory)
			fail_msg("%s: %llu, %s", memory_rows[i].command, (unsigned long long)args.memory,
				args.left_alone ? args.left_alone : "");
		qemu_args_free(argv);
	}
}

/* ---- what is left alone ---- */

static const struct {
	const char *command, *why; /* a part of the reason */
} alone_rows[] = {
	{Q " -m 1G -object memory-backend-file,id=m,size=1G,mem-path=/dev/shm", "backend"},
	{Q " -m 1G --object memory-backend-memfd,id=m,size=1G", "backend"},
	{Q " -m 1G -object qom-type=memory-backend-ram,id=m,size=1G", "backend"},
	{Q " -m 1G -object {\"qom-type\":\"memory-backend-file\",\"id\":\"pc.ram\"}", "backend"},
	{Q " -object memory-backend-ram,id=dimm0,size=1G -device pc-dimm,memdev=dimm0 -m 1G", "backend"},
	{Q " -machine q35,memory-backend=m", "backend"},
	{Q " -machine memory-backend=m,type=q35", "backend"},
	{Q " -M memory-backend=m", "backend"},
	{Q " -M q35 -machine memory-backend=m", "backend"},
	{Q " --machine q35,accel=tcg,memory-backend=m,usb=on", "backend"},
	{Q " -M q35,memory.size=1G", "-machine memory."},
	{Q " -M memory.max-size=1G", "-machine memory."},
	{Q " -M none", "no memory"},
	{Q " -machine none,accel=kvm:tcg -S -qmp stdio", "no memory"},
	{Q " -machine type=none", "no memory"},
	{Q " -machine accel=tcg,type=none", "no memory"},
	{Q " -mem-path /dev/hugepages -m 1G", "-mem-path"},
	{Q " --mem-path /dev/hugepages", "-mem-path"},
	{Q " -mem-prealloc -mem-path /dev/hugepages -m 1G", "-mem-path"},
	{Q " -numa node,memdev=m0", "NUMA"},
	{Q " -numa node,mem=512 -m 1G", "NUMA"},
	{Q " -numa node -m 1G", "NUMA"},
	{Q " -numa node,nodeid=0,cpus=0-1 -numa node,nodeid=1,cpus=2-3", "NUMA"},
	{Q " -readconfig vm.cfg -m 1G", "file"},
	{Q " -m 1G -nodefaults -readconfig vm.cfg", "file"},
	{Q " -accel xen -m 1G", "Xen"},
	{Q " -machine pc,accel=xen -m 1G", "Xen"},
	{Q " -help", "information"},
	{Q " --help", "information"},
	{Q " -h", "information"},
	{Q " -version", "information"},
	{Q " --version", "information"},
	{Q " -machine help", "information"},
	{Q " -M ?", "information"},
	{Q " -cpu help", "information"},
	{Q " -cpu ?", "information"},
	{Q " -m 1G -device virtio-net-pci,help", "information"},
	{Q " -device help", "information"},
	{Q " -accel help", "information"},
	{Q " -object memory-backend-file,help", "information"},
	{Q " -m help", "information"},
	{Q " -m", "incomplete"},
	{Q " -machine", "incomplete"},
	{Q " -nographic -object", "incomplete"},
	{Q " -m ''", "cannot be read"},
	{Q " -m size=", "cannot be read"},
	{Q " -m 1G,size=x", "cannot be read"},
	{Q " -m x", "cannot be read"},
	{Q " -m -1", "cannot be read"},
	{Q " -m -nographic", "cannot be read"},
	{Q " -m 0x200", "cannot be read"},
	{Q " -m 1e3", "cannot be read"},
	{Q " -m 1GB", "cannot be read"},
	{Q " -m 1GiB", "cannot be read"},
	{Q " -m 1G~", "cannot be read"},
	{Q " -m 1P", "cannot be read"}, /* more than anybody has: QEMU will say so */
	{Q " -m 1E", "cannot be read"},
	{Q " -m 1.5B", "cannot be read"},
	{Q " -m 1.G", "cannot be read"},
	{Q " -m .5G", "cannot be read"},
	{Q " -m 1..5G", "cannot be read"},
	{Q " -m 1.1234567G", "cannot be read"},
	{Q " -m 99999999999999999999", "cannot be read"},
	{Q " -m 18446744073709551615", "cannot be read"},
	{Q " -m 9223372036854775807B", "cannot be read"}, /* rounded up it is no size of a file */
	/* The value of an option that looks like one of these: noticed rather than overlooked. */
	{Q " -append -mem-path -m 1G", "-mem-path"},
	{Q " -append -help -m 1G", "information"},
};

static void test_left_alone(void **state)
{
	for (size_t i = 0; i < ARRAY_SIZE(alone_rows); i++) {
		char **argv = split(alone_rows[i].command);
		struct qemu_args args;
		qemu_args_read(argv, &args);
		if (!args.left_alone || !strstr(args.left_alone, alone_rows[i].why))
			fail_msg("%s: %s", alone_rows[i].command,
				args.left_alone ? args.left_alone : "rewritten");
		qemu_args_free(argv);
	}
}

/* Somebody who writes {hpz} himself still gets as much as -m says. */
static void test_memory_of_what_is_left_alone(void **state)
{
	char **argv = split(Q " -m 2G -object memory-backend-file,id=m,size=2G,mem-path={hpz} -name vm7");
	struct qemu_args args;

	qemu_args_read(argv, &args);
	assert_non_null(args.left_alone);
	assert_int_equal(args.memory, 2 * GI);
	assert_string_equal(args.name, "vm7");
	qemu_args_free(argv);
	argv = split(Q " -m x -object memory-backend-file,id=m,size=2G,mem-path={hpz}");
	qemu_args_read(argv, &args);
	assert_int_equal(args.memory, 0);
	qemu_args_free(argv);
}

/* ---- names ---- */

static void test_names(void **state)
{
	static const struct {
		const char *command, *name;
	} rows[] = {
		{Q, ""},
		{Q " -name vm1", "vm1"},
		{Q " --name vm1", "vm1"},
		{Q " -name guest=vm1,debug-threads=on", "vm1"},
		{Q " -name debug-threads=on,guest=vm1", "vm1"},
		{Q " -name vm1,process=qemu", "vm1"},
		{Q " -name process=qemu", ""},
		{Q " -name my~vm", "my vm"},
		{Q " -name a,,b", "a,b"},
		{Q " -name guest=a,,b,,,,c,debug-threads=on", "a,b,,c"},
		{Q " -name a=b", ""},
		{Q " -name guest=a=b", "a=b"},
		{Q " -name one -name two", "two"},
		{Q " -name one -name debug-threads=on", "one"},
		{Q " -name ''", ""},
		{Q " -name \xc3\xa9", "\xc3\xa9"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		char **argv = split(rows[i].command);
		struct qemu_args args;
		qemu_args_read(argv, &args);
		if (strcmp(args.name, rows[i].name) != 0)
			fail_msg("%s: '%s'", rows[i].command, args.name);
		qemu_args_free(argv);
	}
}

static void test_long_names(void **state)
{
	char name[QEMU_ARGS_NAME + 2];
	char *argv[] = {(char *)Q, (char *)"-name", name, NULL};
	struct qemu_args args;

	memset(name, 'x', sizeof(name));
	name[QEMU_ARGS_NAME] = '\0';
	qemu_args_read(argv, &args);
	assert_string_equal(args.name, name);
	name[QEMU_ARGS_NAME] = 'x';
	name[QEMU_ARGS_NAME + 1] = '\0';
	qemu_args_read(argv, &args);
	assert_string_equal(args.name, "");
}

/* ---- rewriting ---- */

static void test_rewrite(void **state)
{
	char **argv = split(Q " -M q35 -m 512 -nographic d.img");
	static const char *const expected[] = {Q, "-M", "q35", "-m", "512", "-nographic", "d.img", "-object",
		"memory-backend-file,id=hpz0,size=536870912,mem-path=/proc/self/fd/7,share=on,prealloc=on",
		"-machine", "memory-backend=hpz0"};
	struct qemu_args args;

	qemu_args_read(argv, &args);
	assert_null(args.left_alone);
	char **copy = qemu_args_rewrite(argv, &args, "/proc/self/fd/7");
	assert_non_null(copy);
	for (size_t i = 0; i < ARRAY_SIZE(expected); i++)
		assert_string_equal(copy[i], expected[i]);
	assert_null(copy[ARRAY_SIZE(expected)]);
	/* What comes out names a backend: it is not rewritten twice. */
	qemu_args_read(copy, &args);
	assert_non_null(args.left_alone);
	qemu_args_free(argv);
	qemu_args_free(copy);
}

static void test_rewrite_finds_a_free_name(void **state)
{
	char **argv = split(Q " -object iothread,id=hpz0 -name hpz1");
	struct qemu_args args;

	qemu_args_read(argv, &args);
	assert_int_equal(args.backend, 2);
	char **copy = qemu_args_rewrite(argv, &args, "x");
	assert_string_equal(
		copy[6], "memory-backend-file,id=hpz2,size=134217728,mem-path=x,share=on,prealloc=on");
	assert_string_equal(copy[8], "memory-backend=hpz2");
	qemu_args_free(argv);
	qemu_args_free(copy);
}

static void test_empty_command(void **state)
{
	char *argv[] = {NULL};
	struct qemu_args args;

	qemu_args_read(argv, &args);
	assert_int_equal(args.memory, 128 * MI);
	assert_false(qemu_args_contain(argv, "{hpz}"));
	char **copy = qemu_args_expand(argv, "{hpz}", "x");
	assert_non_null(copy);
	assert_null(copy[0]);
	qemu_args_free(copy);
	qemu_args_free(NULL);
}

/* ---- {hpz} ---- */

static void test_expand(void **state)
{
	static const struct {
		const char *word, *expanded;
	} rows[] = {
		{"", ""},
		{"{hpz}", "/p/9"},
		{"a{hpz}", "a/p/9"},
		{"{hpz}b", "/p/9b"},
		{"mem-path={hpz},share=on", "mem-path=/p/9,share=on"},
		{"{hpz}{hpz}", "/p/9/p/9"},
		{"x{hpz}y{hpz}z", "x/p/9y/p/9z"},
		{"{hpz", "{hpz"},
		{"{{hpz}}", "{/p/9}"},
		{"{HPZ}", "{HPZ}"},
	};
	char *argv[ARRAY_SIZE(rows) + 1] = {NULL};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		argv[i] = (char *)rows[i].word;
	assert_true(qemu_args_contain(argv, "{hpz}"));
	char **copy = qemu_args_expand(argv, "{hpz}", "/p/9");
	assert_non_null(copy);
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		assert_string_equal(copy[i], rows[i].expanded);
	assert_null(copy[ARRAY_SIZE(rows)]);
	assert_false(qemu_args_contain(copy, "{hpz}"));
	qemu_args_free(copy);
}

/* ---- garbage ---- */

static uint64_t random_state = 0x2545f4914f6cdd1d;

static uint64_t get_random(void)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return random_state;
}

/* Any words at all: no crash, and what comes out can be rewritten. */
static void test_garbage(void **state)
{
	static const char *const parts[] = {"-", "--", "m", "-m", "-machine", "-M", "-object", "-name",
		"-numa", "=", ",", ",,", "size", "size=", "1", "G", "0", "9999999999", ".", "memory-backend",
		"memory.", "guest", "type=none", "help", "?", "", " ", "{hpz}", "hpz0", "\xff", "-append",
		"-nographic", "accel=xen"};

	for (unsigned round = 0; round < 50000; round++) {
		char *argv[9] = {strdup(Q)};
		size_t count = 1 + get_random() % 8;
		for (size_t i = 1; i < count; i++) {
			char word[128] = "";
			for (size_t n = get_random() % 6; n > 0; n--)
				strcat(word, parts[get_random() % ARRAY_SIZE(parts)]);
			argv[i] = strdup(word);
		}
		struct qemu_args args;
		qemu_args_read(argv, &args);
		assert_true(args.left_alone || (args.memory > 0 && args.memory % 8192 == 0));
		assert_true(strlen(args.name) <= QEMU_ARGS_NAME);
		char **copy = qemu_args_rewrite(argv, &args, "x");
		assert_non_null(copy);
		qemu_args_free(copy);
		for (size_t i = 0; i < count; i++)
			free(argv[i]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_is_qemu),
		cmocka_unit_test(test_memory),
		cmocka_unit_test(test_left_alone),
		cmocka_unit_test(test_memory_of_what_is_left_alone),
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_long_names),
		cmocka_unit_test(test_rewrite),
		cmocka_unit_test(test_rewrite_finds_a_free_name),
		cmocka_unit_test(test_empty_command),
		cmocka_unit_test(test_expand),
		cmocka_unit_test(test_garbage),
	};

	return cmocka_run_group_tests_name("qemu_args", tests, NULL, NULL);
}
