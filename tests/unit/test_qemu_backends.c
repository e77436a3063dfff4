/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_qemu_backends.c - memory backends on QEMU command lines: what is read, left alone, and written. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "dice.h"
#include "qemu_args.h"
#include "qemu_backends.h"
#include "util.h"

#define MI (1ull << 20)
#define GI (1ull << 30)
#define FD "/proc/self/fd/7"

/* One backend, used by the machine unless `use` says otherwise. */
static void read_one(const char *object, const char *option, const char *use, struct qemu_backends *backends)
{
	char *argv[] = {(char *)"qemu", (char *)"-S", (char *)"-object", (char *)object, (char *)option,
		(char *)use, NULL};

	assert_true(qemu_backends_read(argv, backends));
}

static void read_of_machine(const char *object, struct qemu_backends *backends)
{
	read_one(object, "-machine", "q35,memory-backend=pc.ram", backends);
}

/* ---- what is read ---- */

struct row {
	const char *object;
	enum qemu_backend_kind kind;
	uint64_t size;
	bool is_huge;
	uint64_t page_size;
	const char *mem_path;
	uint32_t policy;
	uint64_t node_mask;
};

static const struct row rows[] = {
	/* as libvirt 9 writes them */
	{"{\"qom-type\":\"memory-backend-memfd\",\"id\":\"pc.ram\",\"hugetlb\":true,\"hugetlbsize\":2097152,"
	 "\"share\":true,\"x-use-canonical-path-for-ramblock-id\":false,\"prealloc\":true,\"size\":"
	 "1073741824,"
	 "\"host-nodes\":[0],\"policy\":\"bind\"}",
		QEMU_BACKEND_MEMFD, GI, true, 2 * MI, NULL, QEMU_BACKEND_BIND, 1},
	{"{\"qom-type\":\"memory-backend-file\",\"id\":\"pc.ram\",\"mem-path\":\"/dev/hugepages/libvirt/qemu/"
	 "1-v\","
	 "\"x-use-canonical-path-for-ramblock-id\":false,\"prealloc\":true,\"size\":536870912}",
		QEMU_BACKEND_FILE, 512 * MI, false, 0, "/dev/hugepages/libvirt/qemu/1-v", 0, 0},
	{"{\"qom-type\":\"memory-backend-ram\",\"id\":\"pc.ram\",\"size\":1073741824}", QEMU_BACKEND_RAM, GI,
		false, 0, NULL, 0, 0},
	{"{ \"size\" : 2097152, \"id\": \"pc.ram\",\n\"host-nodes\":[1,3,63], \"policy\":\"preferred\", "
	 "\"qom-type\":\"memory-backend-ram\" }",
		QEMU_BACKEND_RAM, 2 * MI, false, 0, NULL, QEMU_BACKEND_PREFERRED,
		1ull << 63 | 1 << 3 | 1 << 1},
	/* as older ones do, and people */
	{"memory-backend-memfd,id=pc.ram,hugetlb=yes,hugetlbsize=1073741824,size=2G,share=yes",
		QEMU_BACKEND_MEMFD, 2 * GI, true, GI, NULL, 0, 0},
	{"memory-backend-memfd,id=pc.ram,hugetlb=on,size=1073741824", QEMU_BACKEND_MEMFD, GI, true, 0, NULL,
		0, 0},
	{"memory-backend-memfd,hugetlb,size=1G,id=pc.ram", QEMU_BACKEND_MEMFD, GI, true, 0, NULL, 0, 0},
	{"memory-backend-memfd,hugetlb=on,hugetlb=off,size=1G,id=pc.ram", QEMU_BACKEND_MEMFD, GI, false, 0,
		NULL, 0, 0},
	{"qom-type=memory-backend-file,id=pc.ram,mem-path=/"
	 "a,,b,size=512M,host-nodes=0-1,host-nodes=4,policy=bind",
		QEMU_BACKEND_FILE, 512 * MI, false, 0, "/a,b", QEMU_BACKEND_BIND, 1 << 4 | 3},
	{"size=1G,id=pc.ram,qom-type=memory-backend-ram,policy=default", QEMU_BACKEND_RAM, GI, false, 0, NULL,
		0, 0},
	{"memory-backend-file,mem-path=/x,mem-path=/"
	 "y,id=pc.ram,size=1,readonly=off,pmem=no,offset=0,reserve=on",
		QEMU_BACKEND_FILE, 1, false, 0, "/y", 0, 0},
};

static void test_read(void **state)
{
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct qemu_backends backends;
		read_of_machine(rows[i].object, &backends);
		assert_int_equal(backends.count, 1);
		const struct qemu_backend *got = &backends.list[0];
		if (got->left_alone)
			fail_msg("%s: %s", rows[i].object, got->left_alone);
		assert_string_equal(got->id, "pc.ram");
		assert_int_equal(got->word, 3);
		assert_int_equal(got->kind, rows[i].kind);
		assert_int_equal(got->size, rows[i].size);
		assert_int_equal(got->is_huge, rows[i].is_huge);
		assert_int_equal(got->page_size, rows[i].page_size);
		assert_int_equal(got->policy, rows[i].policy);
		assert_int_equal(got->node_mask, rows[i].node_mask);
		if (rows[i].mem_path)
			assert_string_equal(got->mem_path, rows[i].mem_path);
		else
			assert_null(got->mem_path);
		qemu_backends_deinit(&backends);
	}
}

/* ---- what is left alone ---- */

#define RAM "memory-backend-ram,id=pc.ram,size=1G"

static void test_left_alone(void **state)
{
	static const struct {
		const char *object, *why;
	} left[] = {
		{"memory-backend-ram,id=other,size=1G", "neither"},
		{"memory-backend-ram,size=1G", "neither"},
		{"memory-backend-ram,help", "neither"},
		{"memory-backend-ram,id=pc.ram", "no size"},
		{"memory-backend-ram,id=pc.ram,size=0", "no size"},
		{"memory-backend-ram,id=pc.ram,size=x", "cannot be read"},
		{"memory-backend-ram,id=pc.ram,size=0x1000", "cannot be read"},
		{RAM ",size", "cannot be read"},
		{"memory-backend-file,id=pc.ram,size=1G", "no path"},
		{"memory-backend-file,id=pc.ram,size=1G,mem-path=/x,readonly=on", "more than empty"},
		{"memory-backend-file,id=pc.ram,size=1G,mem-path=/x,pmem", "more than empty"},
		{"memory-backend-file,id=pc.ram,size=1G,mem-path=/x,offset=4096", "more than empty"},
		{RAM ",reserve=off", "bit by bit"},
		{RAM ",host-nodes=0-1,policy=interleave", "interleaved"},
		{RAM ",host-nodes=0", "do not go together"},
		{RAM ",policy=bind", "do not go together"},
		{RAM ",host-nodes=64,policy=bind", "cannot be read"},
		{RAM ",host-nodes=1-0,policy=bind", "cannot be read"},
		{RAM ",host-nodes=0-,policy=bind", "cannot be read"},
		{RAM ",host-nodes=a,policy=bind", "cannot be read"},
		{RAM ",host-nodes=99999999999999999999,policy=bind", "cannot be read"},
		{RAM ",policy=weighted", "cannot be read"},
		{"memory-backend-memfd,id=pc.ram,size=1G,hugetlb=maybe", "cannot be read"},
		{"{\"qom-type\":\"memory-backend-ram\",\"id\":\"pc.ram\",\"size\":\"1G\"}", "cannot be read"},
		{"{\"qom-type\":\"memory-backend-ram\",\"id\":\"pc.ram\",\"size\":-1}", "cannot be read"},
		{"{\"qom-type\":\"memory-backend-ram\",\"id\":\"pc.ram\",\"size\":1e9}", "cannot be read"},
		{"{\"qom-type\":\"memory-backend-ram\",\"id\":\"pc.ram\",\"size\":1,\"host-nodes\":[-1]}",
			"cannot be read"},
		{"{\"qom-type\":\"memory-backend-ram\",\"id\":\"pc.ram\",\"size\":1,\"host-nodes\":0}",
			"cannot be read"},
		{"{\"qom-type\":\"memory-backend-ram\",\"id\":\"pc.ram\",\"size\":1,\"reserve\":\"on\"}",
			"cannot be read"},
		{"{\"qom-type\":\"memory-backend-ram\",\"id\":\"pc.ram\",\"size\":1,\"reserve\":false}",
			"bit by bit"},
		{"{\"qom-type\":\"memory-backend-ram\",\"id\":7,\"size\":1}", "cannot be read"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(left); i++) {
		struct qemu_backends backends;
		read_of_machine(left[i].object, &backends);
		assert_int_equal(backends.count, 1);
		const char *why = backends.list[0].left_alone;
		if (!why || !strstr(why, left[i].why))
			fail_msg("%s: %s", left[i].object, why ? why : "rewritten");
		qemu_backends_deinit(&backends);
	}
}

/* Not even mentioned: no backends, or nothing that QEMU would take for one. */
static void test_none(void **state)
{
	static const char *const none[] = {"iothread,id=io1", "", ",", "{\"qom-type\":\"iothread\"}",
		"memory-backend-epc,id=pc.ram,size=64M", "{\"qom-type\":\"memory-backend-shm\"}",
		"secret,id=memory-backend-ram", "{\"qom-type\":\"secret\",\"data\":\"memory-backend-ram\"}"};
	/* Some of these QEMU may understand: who must not go without memory does not start. */
	static const char *const unclear[] = {"{", "{}", "{\"qom-type\":\"memory-backend-ram\",",
		"{'qom-type':'memory-backend-ram','id':'pc.ram','size':1}", "{'qom-type':'iothread'}",
		"{\"qom-type\":\"memory-backend-ram\",\"qom-type\":\"memory-backend-ram\"}",
		"{\"qom-type\":[\"memory-backend-ram\"]}", "{\"id\":\"memory-backend-ram\"}",
		"{\"qom-type\":\"memory-backend-ram\"} x", "{\"qom-type\":\"memory-backend-ram\\u0000\"}",
		"{\"qom-type\":\"memory-backend-ram\",\"size\":18446744073709551616}",
		"{\"qom-type\":\"memory-backend-next\"}", "memory-backend-next,id=pc.ram,size=1G"};

	for (size_t i = 0; i < ARRAY_SIZE(none) + ARRAY_SIZE(unclear); i++) {
		bool is_unclear = i >= ARRAY_SIZE(none);
		const char *object = is_unclear ? unclear[i - ARRAY_SIZE(none)] : none[i];
		struct qemu_backends backends;
		read_of_machine(object, &backends);
		if (backends.count || !backends.unclear == is_unclear)
			fail_msg("%s", object);
		qemu_backends_deinit(&backends);
	}
}

/* What else there may be that wants memory. */
static void test_unclear(void **state)
{
	static const struct {
		const char *option, *value, *unclear;
	} others[] = {
		{"-device", "{\"driver\":\"pc-dimm\",\"memdev\":", "DIMM"},
		{"-device", "{'driver':'pc-dimm','memdev':'pc.ram'}", "DIMM"},
		{"-device", "{\"driver\":\"scsi-hd\",\"wwn\":18446744073709551615}", NULL},
		{"-device", "{\"driver\":\"\\u0070c-dimm\",\"memdev\":\"pc.ram\"}", NULL},
		{"-device", "pc-dimm,memdev=", NULL},
		{"-readconfig", "/etc/qemu.cfg", "-readconfig"},
		{"-set", "device.x.y=1", NULL},
	};
	struct qemu_backends backends;

	for (size_t i = 0; i < ARRAY_SIZE(others); i++) {
		read_one(RAM, others[i].option, others[i].value, &backends);
		assert_int_equal(backends.count, 1);
		if (!backends.unclear != !others[i].unclear ||
			(others[i].unclear && !strstr(backends.unclear, others[i].unclear)))
			fail_msg("%s %s: %s", others[i].option, others[i].value, backends.unclear);
		/* With escapes or without: it is the same DIMM. */
		assert_int_equal(backends.list[0].is_used, i == 3);
		assert_int_equal(backends.list[0].is_unclear, i >= 5);
		assert_null(backends.mem_path);
		qemu_backends_deinit(&backends);
	}
	/* A backend of any word with escapes, too. */
	read_of_machine(
		"{\"qom-type\":\"\\u006demory-backend-ram\",\"id\":\"pc.ram\",\"size\":1}", &backends);
	assert_int_equal(backends.count, 1);
	assert_null(backends.list[0].left_alone);
	qemu_backends_deinit(&backends);
	read_of_machine(RAM ",host-nodes=a", &backends);
	assert_true(backends.list[0].is_unclear);
	qemu_backends_deinit(&backends);
	read_one(RAM ",reserve=off", "-mem-path", "/dev/hugepages", &backends);
	assert_false(backends.list[0].is_unclear);
	assert_string_equal(backends.mem_path, "/dev/hugepages");
	qemu_backends_deinit(&backends);
}

static void test_uses(void **state)
{
	static const struct {
		const char *option, *use;
		bool is_used;
	} uses[] = {
		{"-machine", "q35,memory-backend=pc.ram,accel=tcg", true},
		{"--machine", "memory-backend=pc.ram", true},
		{"-M", "q35,memory-backend=pc.ram", true},
		{"-machine", "q35,memory-backend=pc.ram2", false},
		{"-numa", "node,nodeid=0,cpus=0-1,memdev=pc.ram", true},
		{"-numa", "node,memdev=other", false},
		{"-device", "pc-dimm,node=0,memdev=pc.ram,id=dimm0,slot=0", true},
		{"-device", "driver=pc-dimm,memdev=pc.ram", true},
		{"-device", "{\"driver\":\"pc-dimm\",\"node\":0,\"memdev\":\"pc.ram\",\"id\":\"dimm0\"}",
			true},
		{"-device", "{\"driver\":\"nvdimm\",\"memdev\":\"pc.ram\",\"id\":\"pc-dimm\"}", false},
		{"-device", "{\"driver\":\"pc-dimm\",\"memdev\":7}", false},
		{"-device", "{\"driver\":\"pc-dimm\",\"memdev\":", false},
		{"-device", "virtio-mem-pci,memdev=pc.ram", false},
		{"-device", "nvdimm,memdev=pc.ram", false},
		{"-device", "ivshmem-plain,memdev=pc.ram", false},
		{"-device", "pc-dimm,id=dimm0", false},
		{"-append", "memory-backend=pc.ram", false},
	};

	for (size_t i = 0; i < ARRAY_SIZE(uses); i++) {
		struct qemu_backends backends;
		read_one(RAM, uses[i].option, uses[i].use, &backends);
		assert_int_equal(backends.count, 1);
		if (backends.list[0].is_used != uses[i].is_used ||
			!backends.list[0].left_alone != uses[i].is_used)
			fail_msg("%s %s", uses[i].option, uses[i].use);
		qemu_backends_deinit(&backends);
	}
}

static void test_several(void **state)
{
	char *argv[] = {(char *)"qemu", (char *)"-object", (char *)"memory-backend-ram,id=ram-node0,size=1G",
		(char *)"-numa", (char *)"node,nodeid=0,memdev=ram-node0", (char *)"-object",
		(char *)"{\"qom-type\":\"memory-backend-memfd\",\"id\":\"ram-node1\",\"hugetlb\":true,"
			"\"size\":2}",
		(char *)"-numa", (char *)"node,nodeid=1,memdev=ram-node1", (char *)"-object",
		(char *)"memory-backend-ram,id=vmem0,size=64G", (char *)"-device",
		(char *)"virtio-mem-pci,memdev=vmem0", NULL, NULL, NULL};
	struct qemu_backends backends;

	assert_true(qemu_backends_read(argv, &backends));
	assert_int_equal(backends.count, 3);
	assert_null(backends.list[0].left_alone);
	assert_int_equal(backends.list[0].word, 2);
	assert_null(backends.list[1].left_alone);
	assert_int_equal(backends.list[1].word, 6);
	assert_non_null(backends.list[2].left_alone);
	qemu_backends_deinit(&backends);
	/* What may change them all makes none certain. */
	argv[13] = (char *)"-set";
	argv[14] = (char *)"object.ram-node0.size=2G";
	assert_true(qemu_backends_read(argv, &backends));
	for (size_t i = 0; i < backends.count; i++)
		assert_non_null(backends.list[i].left_alone);
	qemu_backends_deinit(&backends);
}

static void test_long_ids(void **state)
{
	char object[256] = "memory-backend-ram,size=1G,id=", use[256] = "memory-backend=";
	struct qemu_backends backends;

	memset(object + strlen(object), 'x', QEMU_BACKEND_ID);
	memset(use + strlen(use), 'x', QEMU_BACKEND_ID);
	read_one(object, "-machine", use, &backends);
	assert_null(backends.list[0].left_alone);
	qemu_backends_deinit(&backends);
	strcat(object, "x");
	strcat(use, "x");
	read_one(object, "-machine", use, &backends);
	assert_non_null(backends.list[0].left_alone);
	qemu_backends_deinit(&backends);
}

/* ---- what is written ---- */

static void test_rewrite(void **state)
{
	static const struct {
		const char *word, *with_nodes, *without;
	} words[] = {
		{RAM, "memory-backend-file,id=pc.ram,size=1G,mem-path=" FD ",share=on", NULL},
		{"memory-backend-memfd,id=m,hugetlb=on,hugetlbsize=2M,size=1G,share=off,seal=on,prealloc=on,"
		 "prealloc-threads=4,host-nodes=0,policy=bind",
			"memory-backend-file,id=m,size=1G,prealloc=on,prealloc-threads=4,host-nodes=0,policy="
			"bind,"
			"mem-path=" FD ",share=on",
			"memory-backend-file,id=m,size=1G,prealloc=on,prealloc-threads=4,mem-path=" FD
			",share=on"},
		{"size=1G,hugetlb,id=a,,b,qom-type=memory-backend-memfd,merge",
			"memory-backend-file,size=1G,id=a,,b,merge,mem-path=" FD ",share=on", NULL},
		{"memory-backend-file,discard-data=on,mem-path=/a,,b,id=m,size=1G,align=2M",
			"memory-backend-file,id=m,size=1G,align=2M,mem-path=" FD ",share=on", NULL},
		{"{\"qom-type\":\"memory-backend-memfd\",\"id\":\"pc.ram\",\"hugetlb\":true,\"hugetlbsize\":"
		 "2097152,"
		 "\"share\":false,\"x-use-canonical-path-for-ramblock-id\":false,\"seal\":true,\"prealloc\":"
		 "true,"
		 "\"size\":1073741824,\"host-nodes\":[0],\"policy\":\"bind\"}",
			"{\"qom-type\":\"memory-backend-file\",\"id\":\"pc.ram\","
			"\"x-use-canonical-path-for-ramblock-id\":false,\"prealloc\":true,\"size\":"
			"1073741824,"
			"\"host-nodes\":[0],\"policy\":\"bind\",\"mem-path\":\"" FD "\",\"share\":true}",
			"{\"qom-type\":\"memory-backend-file\",\"id\":\"pc.ram\","
			"\"x-use-canonical-path-for-ramblock-id\":false,\"prealloc\":true,\"size\":"
			"1073741824,"
			"\"mem-path\":\"" FD "\",\"share\":true}"},
		{"{ \"id\" : \"a\\\"\\u00e9,,\", \"mem-path\": \"/x\", \"size\":9007199254740993, "
		 "\"new\":{\"a\":[null,1.5]},"
		 "\"discard-data\":true, \"qom-type\":\"memory-backend-file\"}",
			"{\"id\":\"a\\\"\xc3\xa9,,\",\"size\":9007199254740993,\"new\":{\"a\":[null,1.5]},"
			"\"qom-type\":\"memory-backend-file\",\"mem-path\":\"" FD "\",\"share\":true}",
			NULL},
	};

	for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
		_cleanup_free_ char *kept = qemu_backends_rewrite(words[i].word, FD, true);
		_cleanup_free_ char *dropped = qemu_backends_rewrite(words[i].word, FD, false);
		assert_string_equal(kept, words[i].with_nodes);
		assert_string_equal(dropped, words[i].without ? words[i].without : words[i].with_nodes);
	}
}

/* What has been read and written is read again as the same backend, on a file. */
static void check_again(const char *object)
{
	struct qemu_backends before, after;

	read_of_machine(object, &before);
	if (before.count == 1 && !before.list[0].left_alone) {
		_cleanup_free_ char *word = qemu_backends_rewrite(object, FD, true);
		assert_non_null(word);
		read_of_machine(word, &after);
		assert_int_equal(after.count, 1);
		if (after.list[0].left_alone)
			fail_msg("%s: %s: %s", object, word, after.list[0].left_alone);
		assert_int_equal(after.list[0].kind, QEMU_BACKEND_FILE);
		assert_string_equal(after.list[0].mem_path, FD);
		assert_int_equal(after.list[0].size, before.list[0].size);
		assert_string_equal(after.list[0].id, before.list[0].id);
		assert_int_equal(after.list[0].node_mask, before.list[0].node_mask);
		qemu_backends_deinit(&after);
	}
	qemu_backends_deinit(&before);
}

/* Any text at all: no crash, and what is rewritten is what it was. */
static void test_garbage(void **state)
{
	static const char *const parts[] = {"memory-backend-ram", "memory-backend-memfd",
		"memory-backend-file", "qom-type", "=", ",", ",,", "id", "pc.ram", "size", "1G", "0",
		"99999999999999999999", "mem-path", "/x", "host-nodes", "0-1", "policy", "bind", "hugetlb",
		"on", "{", "}", "[", "]", "\"", ":", "\\u0000", "\xff", "true", "null", "1", "-", ".",
		"share", "{\"qom-type\":\"memory-backend-ram\"", ",\"id\":\"pc.ram\"", ",\"size\":4096"};
	struct dice dice = {1};

	for (unsigned round = 0; round < 100000; round++) {
		char object[1024] = "";
		for (size_t n = dice_roll(&dice, 14); n > 0; n--)
			strcat(object, parts[dice_roll(&dice, ARRAY_SIZE(parts))]);
		check_again(object);
	}
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		check_again(rows[i].object);
}

/* Good lines with some bytes changed. */
static void test_noise(void **state)
{
	struct dice dice = {1};

	for (unsigned round = 0; round < 100000; round++) {
		char object[1024];
		snprintf(object, sizeof(object), "%s", rows[dice_roll(&dice, ARRAY_SIZE(rows))].object);
		for (size_t n = 1 + dice_roll(&dice, 3), length = strlen(object); n > 0; n--)
			object[dice_roll(&dice, length)] = (char)(1 + dice_roll(&dice, 255));
		check_again(object);
	}
}

/* Nested without end, and very long: a command line has 128 KiB a word. */
static void test_huge_words(void **state)
{
	static char object[128 << 10];
	struct qemu_backends backends;

	int n = snprintf(object, sizeof(object), "{\"qom-type\":\"memory-backend-ram\",\"x\":");
	memset(object + n, '[', sizeof(object) - (size_t)n - 1);
	read_of_machine(object, &backends);
	assert_int_equal(backends.count, 0);
	qemu_backends_deinit(&backends);
	n = snprintf(object, sizeof(object), RAM ",mem-path=");
	memset(object + n, ',', sizeof(object) - (size_t)n - 1);
	check_again(object);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_read),
		cmocka_unit_test(test_left_alone),
		cmocka_unit_test(test_none),
		cmocka_unit_test(test_unclear),
		cmocka_unit_test(test_uses),
		cmocka_unit_test(test_several),
		cmocka_unit_test(test_long_ids),
		cmocka_unit_test(test_rewrite),
		cmocka_unit_test(test_garbage),
		cmocka_unit_test(test_noise),
		cmocka_unit_test(test_huge_words),
	};

	return cmocka_run_group_tests_name("qemu_backends", tests, NULL, NULL);
}
