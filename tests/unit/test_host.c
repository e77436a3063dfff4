/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_host.c - machines made of files, and the real one, which is only read. */
#include "temp.h"
#include "host.h"

#include <pthread.h>
#include <sys/prctl.h>

#define M2 (2ull << 20)
#define G1 (1ull << 30)

#define MACHINE "sys/kernel/mm/hugepages/hugepages-"
#define NODE    "sys/devices/system/node/node"

static char root[TEMP_PATH];

static int setup(void **state)
{
	temp_make(root);
	return 0;
}

static int teardown(void **state)
{
	temp_remove(root);
	return 0;
}

static void put_number(const char *dir, const char *counter, unsigned value)
{
	char name[256], text[32];

	snprintf(name, sizeof name, "%s/%s", dir, counter);
	snprintf(text, sizeof text, "%u\n", value);
	temp_put(root, name, text);
}

static void put_machine_pool(unsigned kb, unsigned nr, unsigned free, unsigned resv, unsigned surplus)
{
	char dir[128];

	snprintf(dir, sizeof dir, MACHINE "%ukB", kb);
	put_number(dir, "nr_hugepages", nr);
	put_number(dir, "free_hugepages", free);
	put_number(dir, "resv_hugepages", resv);
	put_number(dir, "surplus_hugepages", surplus);
}

static void put_node_pool(unsigned node, unsigned kb, unsigned nr, unsigned free, unsigned surplus)
{
	char dir[128];

	snprintf(dir, sizeof dir, NODE "%u/hugepages/hugepages-%ukB", node, kb);
	put_number(dir, "nr_hugepages", nr);
	put_number(dir, "free_hugepages", free);
	put_number(dir, "surplus_hugepages", surplus);
}

static void expect_file(const char *name, const char *text)
{
	char *got = temp_read(root, name, NULL);

	assert_string_equal(got, text);
	free(got);
}

/* ---- what there is ---- */

static void test_empty_machine(void **state)
{
	struct host host;
	struct host_counters c;

	assert_int_equal(host_init(&host, root), 0);
	assert_false(host.has_numa);
	assert_int_equal(host.node_count, 1);
	assert_true(host_has_node(&host, 0));
	assert_false(host_has_node(&host, 1));
	assert_int_equal(host.page_size_count, 0);
	assert_false(host_has_page_size(&host, M2));
	assert_int_equal(host_get_counters(&host, 0, M2, &c), -ENOENT);
	host_deinit(&host);
	host_deinit(&host);
}

static void test_no_numa(void **state)
{
	uint64_t before = 0, after = 0;
	struct host_counters c;
	struct host host;
	char list[64];

	put_machine_pool(2048, 10, 7, 2, 1);
	temp_put(root, "sys/devices/system/cpu/online", "0-1\n");
	assert_int_equal(host_init(&host, root), 0);
	assert_int_equal(host_get_counters(&host, 0, M2, &c), 0);
	assert_int_equal(c.nr, 10);
	assert_int_equal(c.free, 7);
	assert_int_equal(c.resv, 2);
	assert_int_equal(c.surplus, 1);
	assert_int_equal(host_get_cpulist(&host, 0, list, sizeof list), 0);
	assert_string_equal(list, "0-1");
	assert_int_equal(host_get_counters(&host, 1, M2, &c), -ENOENT);
	assert_int_equal(host_get_cpulist(&host, 1, list, sizeof list), -ENOENT);
	/* 9 are there by order, one is surplus: 5 more are 14 by order. */
	assert_int_equal(host_add_nr(&host, 0, M2, 5, &before, &after), 0);
	expect_file(MACHINE "2048kB/nr_hugepages", "14\n");
	assert_int_equal(before, 9);
	assert_int_equal(after, 13); /* a plain file: its 14 with the old surplus of 1 */
	host_deinit(&host);
}

static void put_two_nodes(void)
{
	put_machine_pool(2048, 30, 20, 3, 0);
	put_machine_pool(1048576, 2, 1, 0, 0);
	put_node_pool(0, 2048, 10, 5, 0);
	put_node_pool(1, 2048, 20, 15, 0);
	put_node_pool(0, 1048576, 0, 0, 0);
	put_node_pool(1, 1048576, 2, 1, 0);
	temp_put(root, NODE "0/cpulist", "0-3,8\n");
	temp_put(root, NODE "1/cpulist", "\n");
	/* Not nodes and not page sizes. */
	temp_put(root, "sys/devices/system/node/online", "0-1\n");
	temp_put(root, "sys/devices/system/node/node/x", "");
	temp_put(root, "sys/devices/system/node/node1x/x", "");
	temp_put(root, "sys/devices/system/node/node99999/x", "");
	temp_put(root, "sys/devices/system/node/node-1/x", "");
	temp_put(root, MACHINE "kB/x", "");
	temp_put(root, MACHINE "64/x", "");
	temp_put(root, MACHINE "18446744073709551615kB/x", "");
}

static void test_two_nodes(void **state)
{
	struct host_counters c;
	struct host host;
	char list[64] = "?";

	put_two_nodes();
	assert_int_equal(host_init(&host, root), 0);
	assert_true(host.has_numa);
	assert_int_equal(host.node_count, 2);
	assert_int_equal(host.nodes[0], 0);
	assert_int_equal(host.nodes[1], 1);
	assert_int_equal(host.page_size_count, 2);
	assert_int_equal(host.page_sizes[0], M2);
	assert_int_equal(host.page_sizes[1], G1);
	assert_int_equal(host_get_counters(&host, 1, M2, &c), 0);
	assert_int_equal(c.nr, 20);
	assert_int_equal(c.free, 15);
	assert_int_equal(c.resv, 3);
	assert_int_equal(host_get_counters(&host, 0, G1, &c), 0);
	assert_int_equal(c.nr, 0);
	assert_int_equal(host_get_counters(&host, 2, M2, &c), -ENOENT);
	assert_int_equal(host_get_counters(&host, -1, M2, &c), -ENOENT);
	assert_int_equal(host_get_counters(&host, 0, 64 << 10, &c), -ENOENT);
	assert_int_equal(host_get_cpulist(&host, 0, list, 5), -ENOBUFS);
	assert_string_equal(list, "?");
	assert_int_equal(host_get_cpulist(&host, 0, list, 8), 0);
	assert_string_equal(list, "0-3,8");
	assert_int_equal(host_get_cpulist(&host, 1, list, sizeof list), 0);
	assert_string_equal(list, "");
	host_deinit(&host);
}

/* Node 1 has CPUs but no memory: the kernel gives it no hugepages directory (or, later, one full of zeros).
 */
static void test_node_without_memory(void **state)
{
	struct host_counters c;
	struct host host;
	uint64_t before = 77, after = 77;
	char list[64];

	put_machine_pool(2048, 10, 5, 0, 0);
	put_node_pool(0, 2048, 10, 5, 0);
	temp_put(root, NODE "1/cpulist", "2-3\n");
	assert_int_equal(host_init(&host, root), 0);
	assert_true(host_has_node(&host, 1));
	assert_int_equal(host_get_counters(&host, 1, M2, &c), -ENOENT);
	assert_int_equal(host_add_nr(&host, 1, M2, 1, &before, &after), -ENOENT);
	assert_int_equal(before, 77);
	assert_int_equal(after, 77);
	assert_int_equal(host_get_cpulist(&host, 1, list, sizeof list), 0);
	assert_string_equal(list, "2-3");
	host_deinit(&host);
}

static void test_broken_files(void **state)
{
	static const char *const broken[] = {"", "\n", "x\n", "-1\n", "12x\n", " 3\n",
		"99999999999999999999\n",
		"11111111111111111111111111111111111111111111111111111111111111111111111111111111\n"};
	struct host_counters c = {.nr = 77};
	struct host host;

	put_machine_pool(2048, 10, 5, 0, 0);
	assert_int_equal(host_init(&host, root), 0);
	for (size_t i = 0; i < ARRAY_SIZE(broken); i++) {
		temp_put(root, MACHINE "2048kB/free_hugepages", broken[i]);
		assert_true(host_get_counters(&host, 0, M2, &c) < 0);
		assert_int_equal(c.nr, 77);
	}
	host_deinit(&host);
}

/* ---- raising and lowering ---- */

static void test_raise(void **state)
{
	uint64_t before, after;
	struct host host;

	put_two_nodes();
	assert_int_equal(host_init(&host, root), 0);
	assert_int_equal(host_add_nr(&host, 1, M2, 100, &before, &after), 0);
	assert_int_equal(before, 20);
	assert_int_equal(after, 120);
	expect_file(NODE "1/hugepages/hugepages-2048kB/nr_hugepages", "120\n");
	expect_file(NODE "0/hugepages/hugepages-2048kB/nr_hugepages", "10\n");
	expect_file(MACHINE "2048kB/nr_hugepages", "30\n");
	assert_int_equal(host_add_nr(&host, 1, M2, 0, &before, &after), 0);
	assert_int_equal(before, 120);
	assert_int_equal(after, 120);
	host_deinit(&host);
}

static void expect_lowered(struct host *host, unsigned nr, unsigned free, unsigned surplus,
	unsigned machine_free, unsigned resv, int64_t by, unsigned expected)
{
	uint64_t before, after;

	put_machine_pool(2048, 100, machine_free, resv, surplus);
	put_node_pool(0, 2048, nr, free, surplus);
	assert_int_equal(host_add_nr(host, 0, M2, by, &before, &after), 0);
	assert_int_equal(before, nr - surplus);
	if (surplus == 0)
		assert_int_equal(after, before - expected);
	if (expected == 0) {
		char text[32];
		snprintf(text, sizeof text, "%u\n", nr);
		expect_file(NODE "0/hugepages/hugepages-2048kB/nr_hugepages", text);
	} else {
		char text[32];
		snprintf(text, sizeof text, "%u\n", nr - surplus - expected);
		expect_file(NODE "0/hugepages/hugepages-2048kB/nr_hugepages", text);
	}
}

static void test_lower(void **state)
{
	struct host host;

	put_two_nodes();
	assert_int_equal(host_init(&host, root), 0);
	expect_lowered(&host, 50, 20, 0, 60, 0, -10, 10);
	expect_lowered(&host, 50, 20, 0, 60, 0, -20, 20);
	expect_lowered(&host, 50, 20, 0, 60, 0, -30, 20);  /* 30 are in use */
	expect_lowered(&host, 50, 20, 0, 60, 50, -30, 10); /* 50 of the machine's 60 are promised */
	expect_lowered(&host, 50, 20, 0, 60, 60, -30, 0);  /* all are */
	expect_lowered(&host, 50, 20, 0, 60, 70, -30, 0);
	expect_lowered(&host, 50, 0, 0, 60, 0, -1, 0);
	expect_lowered(&host, 50, 20, 5, 60, 0, -10, 10); /* surplus is not ours to count */
	expect_lowered(&host, 5, 5, 3, 60, 0, -10, 2);
	expect_lowered(&host, 50, 50, 0, 60, 0, INT64_MIN, 50);
	host_deinit(&host);
}

static void test_raise_refused(void **state)
{
	uint64_t before = 77, after = 77;
	struct host host;
	char path[PATH_MAX];

	put_machine_pool(2048, 10, 5, 0, 0);
	assert_int_equal(host_init(&host, root), 0);
	temp_path(root, MACHINE "2048kB/nr_hugepages", path);
	if (geteuid() != 0) {
		assert_int_equal(chmod(path, 0444), 0);
		assert_int_equal(host_add_nr(&host, 0, M2, 1, &before, &after), -EACCES);
	}
	assert_int_equal(unlink(path), 0);
	assert_int_equal(symlink("/dev/full", path), 0);
	assert_true(host_add_nr(&host, 0, M2, 1, &before, &after) < 0);
	assert_int_equal(before, 77);
	assert_int_equal(after, 77);
	host_deinit(&host);
}

/* A kernel behind a FIFO: it says 10, takes the order, and then has what it has. */
struct kernel {
	char path[PATH_MAX];
	const char *answers[2];
	char order[32];
};

static void answer(const struct kernel *kernel, const char *text)
{
	int fd = open(kernel->path, O_WRONLY | O_CLOEXEC);

	if (fd < 0 || write(fd, text, strlen(text)) < 0)
		abort();
	close(fd);
}

static void *run_kernel(void *user)
{
	struct kernel *kernel = user;
	int fd;
	ssize_t n;

	answer(kernel, kernel->answers[0]);
	fd = open(kernel->path, O_RDONLY | O_CLOEXEC);
	n = read(fd, kernel->order, sizeof kernel->order - 1);
	if (n < 0)
		abort();
	close(fd);
	answer(kernel, kernel->answers[1]);
	return NULL;
}

static void expect_raised(int64_t by, const char *order, const char *got, uint64_t expected)
{
	struct kernel kernel = {.answers = {"10\n", got}};
	uint64_t before, after;
	pthread_t thread;
	struct host host;

	put_machine_pool(2048, 10, 5, 0, 0);
	temp_path(root, MACHINE "2048kB/nr_hugepages", kernel.path);
	assert_int_equal(unlink(kernel.path), 0);
	assert_int_equal(mkfifo(kernel.path, 0600), 0);
	assert_int_equal(host_init(&host, root), 0);
	assert_int_equal(pthread_create(&thread, NULL, run_kernel, &kernel), 0);
	assert_int_equal(host_add_nr(&host, 0, M2, by, &before, &after), 0);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_string_equal(kernel.order, order);
	assert_int_equal(before, 10);
	assert_int_equal(after, expected);
	assert_int_equal(unlink(kernel.path), 0);
	host_deinit(&host);
}

static void test_partial_success(void **state)
{
	expect_raised(100, "110\n", "37\n", 37);
	expect_raised(100, "110\n", "10\n", 10);
	expect_raised(-5, "5\n", "7\n", 7);
}

/* ---- processes and the boot ---- */

static void test_fake_process(void **state)
{
	uint64_t ticks = 77;
	struct host host;
	char comm[17];

	assert_int_equal(host_init(&host, root), 0);
	temp_put(root, "proc/42/stat",
		"42 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20 21 22\n");
	assert_int_equal(host_get_start_time(&host, 42, &ticks), 0);
	assert_int_equal(ticks, 4711);
	temp_put(root, "proc/42/stat", "42 (a) S 1 2 3\n");
	assert_int_equal(host_get_start_time(&host, 42, &ticks), -EBADMSG);
	temp_put(root, "proc/42/stat", "");
	assert_int_equal(host_get_start_time(&host, 42, &ticks), -EBADMSG);
	assert_int_equal(host_get_start_time(&host, 43, &ticks), -ESRCH);
	assert_int_equal(ticks, 4711);

	temp_put(root, "proc/42/comm", "qemu\x1b[2J\n\x7f\xc3\n\n");
	assert_int_equal(host_get_comm(&host, 42, comm), 0);
	assert_string_equal(comm, "qemu?[2J????");
	temp_put(root, "proc/42/comm", "a name of many letters\n");
	assert_int_equal(host_get_comm(&host, 42, comm), 0);
	assert_string_equal(comm, "a name of many l");
	assert_int_equal(host_get_comm(&host, 43, comm), -ESRCH);
	host_deinit(&host);
}

static void test_boot_id(void **state)
{
	struct host host;
	char id[37] = "?";

	assert_int_equal(host_init(&host, root), 0);
	assert_int_equal(host_get_boot_id(&host, id), -ENOENT);
	temp_put(root, "proc/sys/kernel/random/boot_id", "short\n");
	assert_int_equal(host_get_boot_id(&host, id), -EBADMSG);
	assert_string_equal(id, "?");
	temp_put(root, "proc/sys/kernel/random/boot_id", "01234567-89ab-cdef-0123-456789abcdef\n");
	assert_int_equal(host_get_boot_id(&host, id), 0);
	assert_string_equal(id, "01234567-89ab-cdef-0123-456789abcdef");
	host_deinit(&host);
}

static void test_long_root(void **state)
{
	char *path = malloc(10000);
	struct host host;

	memset(path, '/', 9999);
	path[9999] = 0;
	assert_int_equal(host_init(&host, path), -ENAMETOOLONG);
	free(path);
}

/* The real machine, whatever it is. */
static void test_this_machine(void **state)
{
	struct host host;
	struct host_counters c;
	uint64_t ticks, again;
	char list[256], id[37], comm[17], own[17] = "";

	assert_int_equal(prctl(PR_GET_NAME, own), 0);
	assert_int_equal(host_init(&host, NULL), 0);
	assert_true(host.node_count >= 1);
	for (size_t i = 0; i < host.page_size_count; i++) {
		assert_true(host.page_sizes[i] >= 4096);
		assert_true(i == 0 || host.page_sizes[i - 1] < host.page_sizes[i]);
		if (host_get_counters(&host, host.nodes[0], host.page_sizes[i], &c) == 0)
			assert_true(c.free <= c.nr);
	}
	assert_int_equal(host_get_cpulist(&host, host.nodes[0], list, sizeof list), 0);
	assert_int_equal(host_get_boot_id(&host, id), 0);
	assert_int_equal(host_get_start_time(&host, getpid(), &ticks), 0);
	assert_int_equal(host_get_start_time(&host, getpid(), &again), 0);
	assert_true(ticks == again && ticks > 0);
	assert_int_equal(host_get_comm(&host, getpid(), comm), 0);
	assert_string_equal(comm, own);
	assert_int_equal(host_get_comm(&host, INT_MAX, comm), -ESRCH);
	host_deinit(&host);
}

static void test_cpulist(void **state)
{
	static const struct {
		const char *text;
		unsigned count; /* 0: also when it is none */
		int error;
	} lists[] = {{"", 0, 0}, {"0", 1, 0}, {"0-3,8", 5, 0}, {"8191", 1, 0}, {"0-8191", 8192, 0},
		{"1,1,1", 1, 0}, {"8192", 0, -EINVAL}, {"3-1", 0, -EINVAL}, {"1,", 0, -EINVAL},
		{",1", 0, -EINVAL}, {"1-", 0, -EINVAL}, {"-1", 0, -EINVAL}, {"1 2", 0, -EINVAL},
		{"a", 0, -EINVAL}, {"0-3:1", 0, -EINVAL}, {"99999999999999999999", 0, -EINVAL}};
	struct host_cpus a, b, both;

	for (size_t i = 0; i < ARRAY_SIZE(lists); i++) {
		assert_int_equal(host_parse_cpulist(lists[i].text, &a), lists[i].error);
		if (!lists[i].error)
			assert_int_equal(host_count_cpus(&a), lists[i].count);
	}
	assert_int_equal(host_parse_cpulist("0-3,70", &a), 0);
	assert_int_equal(host_parse_cpulist("2-9,70-80", &b), 0);
	host_and_cpus(&a, &b, &both);
	assert_int_equal(host_count_cpus(&both), 3);
	assert_int_equal(both.bits[0], 0xc);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_cpulist),
		cmocka_unit_test_setup_teardown(test_empty_machine, setup, teardown),
		cmocka_unit_test_setup_teardown(test_no_numa, setup, teardown),
		cmocka_unit_test_setup_teardown(test_two_nodes, setup, teardown),
		cmocka_unit_test_setup_teardown(test_node_without_memory, setup, teardown),
		cmocka_unit_test_setup_teardown(test_broken_files, setup, teardown),
		cmocka_unit_test_setup_teardown(test_raise, setup, teardown),
		cmocka_unit_test_setup_teardown(test_lower, setup, teardown),
		cmocka_unit_test_setup_teardown(test_raise_refused, setup, teardown),
		cmocka_unit_test_setup_teardown(test_partial_success, setup, teardown),
		cmocka_unit_test_setup_teardown(test_fake_process, setup, teardown),
		cmocka_unit_test_setup_teardown(test_boot_id, setup, teardown),
		cmocka_unit_test_setup_teardown(test_long_root, setup, teardown),
		cmocka_unit_test(test_this_machine),
	};
	return cmocka_run_group_tests_name("host", tests, NULL, NULL);
}
