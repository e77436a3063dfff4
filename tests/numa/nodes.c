/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * nodes - hpzd on a machine with two nodes, tried by a holder of its memory: what is strict, preferred,
 * interleaved, in cells; that each page lies where it was said to, and is zero; what is left of it when hpzd
 * dies.
 *
 *   nodes CONFIG     starts and ends hpzd itself, says `TEST NAME ok` for each test, and leaves hpzd running
 *
 * The configuration is nodes.sh's: pools a and b of 2M on nodes 0 and 1, c and d of 1G.
 */
#include <hpz.h>

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MIB         ((uint64_t)1 << 20)
#define GIB         ((uint64_t)1 << 30)
#define PAGE        (2 * MIB)
#define POOL        48 /* pages of a and b */
#define MAX         56 /* that they may grow to */
#define PAGES_MAX   512
#define PATIENCE_MS 400000
#define LENGTH(a)   (sizeof(a) / sizeof((a)[0]))

static const char *config_path, *name = "start";
static pid_t hpzd = -1;
static struct hpz *hpz;

/* ---- failing ---- */

static void die(int line, const char *format, ...) __attribute__((noreturn, format(printf, 2, 3)));
static void die(int line, const char *format, ...)
{
	va_list arguments;

	printf("TEST %s FAILED: line %d: ", name, line);
	va_start(arguments, format);
	vprintf(format, arguments);
	va_end(arguments);
	printf("; hpzd: %s\n", hpz ? hpz_get_error_text(hpz) : "no connection");
	fflush(stdout);
	_exit(1);
}

#define CHECK(condition)                                                                                     \
	do {                                                                                                 \
		if (!(condition))                                                                            \
			die(__LINE__, "not so: %s", #condition);                                             \
	} while (0)
#define EQUAL(got, wanted)                                                                                   \
	do {                                                                                                 \
		unsigned long long got_ = (got), wanted_ = (wanted);                                         \
		if (got_ != wanted_)                                                                         \
			die(__LINE__, "%s is %llu and not %llu", #got, got_, wanted_);                       \
	} while (0)

static void expect_text(int line, const char *part)
{
	if (!strstr(hpz_get_error_text(hpz), part))
		die(line, "the refusal does not say \"%s\"", part);
}
#define TEXT(part) expect_text(__LINE__, part)

static void pause_ms(long ms)
{
	nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
}

/* ---- hpzd ---- */

static void connect_to_hpzd(void)
{
	int error = HPZ_ERR_NOT_RUNNING;

	hpz_close(hpz);
	hpz = NULL;
	for (unsigned tries = 0; tries < 600 && error; tries++) {
		error = hpz_connect(NULL, &hpz);
		if (error)
			pause_ms(100);
	}
	EQUAL(error, HPZ_OK);
}

static void start_hpzd(void)
{
	hpzd = fork();
	if (hpzd == 0) {
		int log = open("/run/log", O_WRONLY | O_CREAT | O_APPEND, 0600);
		dup2(log, STDOUT_FILENO);
		dup2(log, STDERR_FILENO);
		execlp("hpzd", "hpzd", "--config", config_path, NULL);
		_exit(127);
	}
	connect_to_hpzd();
}

static void kill_hpzd(void)
{
	kill(hpzd, SIGKILL);
	waitpid(hpzd, NULL, 0);
}

static struct hpz_pool_status get_pool(const char *wanted)
{
	struct hpz_status *status = NULL;
	struct hpz_pool_status pool = {.struct_size = sizeof(pool)};

	EQUAL(hpz_get_status(hpz, &status), HPZ_OK);
	for (size_t i = 0; hpz_status_get_pool(status, i, &pool) == HPZ_OK; i++) {
		if (strcmp(pool.name, wanted) == 0)
			break;
	}
	CHECK(strcmp(pool.name, wanted) == 0);
	pool.name = pool.message = pool.mount = NULL; /* borrowed */
	hpz_status_free(status);
	return pool;
}

/* All is back, clean, and as much as it was. */
static void wait_clean(void)
{
	struct hpz_wait_request request = HPZ_WAIT_REQUEST_INIT;

	request.timeout_ms = PATIENCE_MS;
	EQUAL(hpz_wait(hpz, &request), HPZ_OK);
	EQUAL(get_pool("a").clean, POOL);
	EQUAL(get_pool("b").clean, POOL);
}

/* ---- leases ---- */

static struct hpz_lease_request ask(uint64_t size, int32_t node)
{
	struct hpz_lease_request request = HPZ_LEASE_REQUEST_INIT;

	request.size = size;
	request.node = node;
	request.page_size = PAGE;
	return request;
}

static struct hpz_lease_request ask_cells(const struct hpz_cell *cells, uint32_t count, int64_t timeout_ms)
{
	struct hpz_lease_request request = ask(0, HPZ_NODE_ANY);

	request.cells = cells;
	request.cell_count = count;
	request.timeout_ms = timeout_ms;
	return request;
}

static struct hpz_segment get_segment(const struct hpz_lease *lease, size_t index)
{
	struct hpz_segment segment = {.struct_size = sizeof(segment)};

	EQUAL(hpz_lease_get_segment(lease, index, &segment), HPZ_OK);
	return segment;
}

/* The node of each page, as its holder sees it; nodes NULL: moves nothing. */
static void look_at_pages(char *start, uint64_t page_size, size_t count, const int *nodes, int *ret_status)
{
	void *pages[PAGES_MAX];

	CHECK(count <= PAGES_MAX);
	for (size_t i = 0; i < count; i++) {
		pages[i] = start + i * page_size;
		(void)*(volatile char *)pages[i];
	}
	if (syscall(SYS_move_pages, 0, count, pages, nodes, ret_status, nodes ? 2 : 0) < 0)
		die(__LINE__, "move_pages: %s", strerror(errno));
}

static void check_pages(const struct hpz_segment *segment, char *start)
{
	size_t count = segment->size / segment->page_size;
	int status[PAGES_MAX];

	look_at_pages(start, segment->page_size, count, NULL, status);
	for (size_t i = 0; i < count; i++) {
		if (status[i] != segment->node)
			die(__LINE__, "page %zu is on node %d and not %d", i, status[i], segment->node);
	}
	const uint64_t *words = (const uint64_t *)start;
	for (size_t i = 0; i < segment->size / sizeof(*words); i++) {
		if (words[i])
			die(__LINE__, "not zero at %zu", i * sizeof(*words));
	}
}

/* Every page of every segment lies where the lease says, and is zero; then it is not any more. */
static void check_lease(struct hpz_lease *lease)
{
	void *address = NULL;
	size_t length = 0, at = 0;

	EQUAL(hpz_map(hpz, lease, &address, &length), HPZ_OK);
	EQUAL(length, hpz_lease_get_size(lease));
	for (size_t i = 0; i < hpz_lease_get_segment_count(lease); i++) {
		struct hpz_segment segment = get_segment(lease, i);
		check_pages(&segment, (char *)address + at);
		at += segment.size;
	}
	for (size_t offset = 0; offset < length; offset += 4096)
		((char *)address)[offset] = (char)0xa5;
}

static struct hpz_lease *take(int line, const struct hpz_lease_request *request)
{
	struct hpz_lease *lease = NULL;
	int error = hpz_lease(hpz, request, &lease);

	if (error)
		die(line, "no lease: %s", hpz_strerror(error));
	check_lease(lease);
	return lease;
}
#define TAKE(request) take(__LINE__, request)

static void refuse(int line, const struct hpz_lease_request *request, int wanted)
{
	struct hpz_lease *lease = NULL;
	int error = hpz_lease(hpz, request, &lease);

	if (error != wanted)
		die(line, "\"%s\" and not \"%s\"", hpz_strerror(error), hpz_strerror(wanted));
}
#define REFUSE(request, error) refuse(__LINE__, request, error)

static void give_back(struct hpz_lease *lease)
{
	uint64_t id = hpz_lease_get_id(lease);

	hpz_lease_free(lease);
	EQUAL(hpz_release(hpz, id, 0, 0), HPZ_OK);
}

/* All that a node has and can have. */
static struct hpz_lease *take_all_of(int32_t node)
{
	struct hpz_lease_request request = ask(MAX * PAGE, node);

	request.flags = HPZ_LEASE_SEGMENTS;
	struct hpz_lease *lease = TAKE(&request);
	EQUAL(hpz_lease_get_ready(lease), POOL * PAGE);
	EQUAL(hpz_lease_get_zeroed(lease), (MAX - POOL) * PAGE);
	return lease;
}

/* ---- tests ---- */

static void test_every_page(void)
{
	for (int32_t node = 0; node < 2; node++) {
		struct hpz_lease *lease = take_all_of(node);
		for (size_t i = 0; i < hpz_lease_get_segment_count(lease); i++)
			EQUAL(get_segment(lease, i).node, node);
		give_back(lease);
	}
	wait_clean();
}

static void test_strict(void)
{
	struct hpz_lease *all = take_all_of(1);
	struct hpz_lease_request request = ask(8 * MIB, 1);

	REFUSE(&request, HPZ_ERR_NO_MEMORY);
	TEXT("pool b, node 1, pages of 2M: 8 MiB asked; 0 B is clean");
	TEXT("0 requests wait");
	TEXT("node 0 could serve it (--node-policy preferred)");
	TEXT("max_pages");
	request = ask(MAX * PAGE + PAGE, 1);
	REFUSE(&request, HPZ_ERR_TOO_LARGE);
	TEXT("of node 1");
	TEXT("pages of 2M");
	TEXT("112 MiB");
	request = ask(PAGE, 2);
	REFUSE(&request, HPZ_ERR_NO_POOL);
	TEXT("there is no pool on node 2 with pages of 2M; there is one on node 0, 1");
	give_back(all);
	wait_clean();
}

static void test_preferred(void)
{
	struct hpz_lease_request request = ask(8 * MIB, 1);

	request.node_policy = HPZ_NODES_PREFERRED;
	struct hpz_lease *lease = TAKE(&request);
	EQUAL(get_segment(lease, 0).node, 1);
	give_back(lease);
	/* More than is clean in one piece: the node grows one, though the other has as much. */
	request.size = 40 * MIB;
	lease = TAKE(&request);
	EQUAL(get_segment(lease, 0).node, 1);
	CHECK(hpz_lease_get_zeroed(lease) > 0);
	give_back(lease);
	wait_clean();
	struct hpz_lease *all = take_all_of(1);
	request.size = 8 * MIB;
	lease = TAKE(&request);
	EQUAL(get_segment(lease, 0).node, 0);
	give_back(lease);
	give_back(all);
	wait_clean();
}

static void test_interleave(void)
{
	struct hpz_lease_request request = ask(64 * MIB, HPZ_NODE_ANY);
	uint64_t bytes[2] = {0};

	request.node_policy = HPZ_NODES_INTERLEAVE;
	request.node_mask = 3;
	struct hpz_lease *lease = TAKE(&request);
	for (size_t i = 0; i < hpz_lease_get_segment_count(lease); i++) {
		struct hpz_segment segment = get_segment(lease, i);
		EQUAL(segment.node, i % 2);
		bytes[segment.node] += segment.size;
	}
	EQUAL(bytes[0], 32 * MIB);
	EQUAL(bytes[1], 32 * MIB);
	give_back(lease);
	wait_clean();
	/* One node has less: the other gives more. */
	struct hpz_lease_request most = ask(POOL * PAGE - 8 * MIB, 0);
	most.flags = HPZ_LEASE_SEGMENTS;
	struct hpz_lease *other = TAKE(&most);
	lease = TAKE(&request);
	bytes[0] = bytes[1] = 0;
	for (size_t i = 0; i < hpz_lease_get_segment_count(lease); i++) {
		struct hpz_segment segment = get_segment(lease, i);
		bytes[segment.node] += segment.size;
	}
	EQUAL(bytes[0], 8 * MIB);
	EQUAL(bytes[1], 56 * MIB);
	EQUAL(hpz_lease_get_ready(lease), 64 * MIB);
	give_back(lease);
	give_back(other);
	wait_clean();
}

static void test_cells(void)
{
	static const struct hpz_cell cells[] = {{32 * MIB, 0, 0}, {32 * MIB, 1, 0}, {3 * MIB, 0, 0}};
	struct hpz_lease_request request = ask_cells(cells, LENGTH(cells), 0);

	struct hpz_lease *lease = TAKE(&request);
	EQUAL(hpz_lease_get_segment_count(lease), LENGTH(cells));
	for (uint32_t i = 0; i < LENGTH(cells); i++) {
		struct hpz_segment segment = get_segment(lease, i);
		EQUAL(segment.cell, i);
		EQUAL(segment.node, cells[i].node);
		EQUAL(segment.size, (cells[i].size + PAGE - 1) / PAGE * PAGE);
	}
	EQUAL(hpz_lease_get_asked(lease), 67 * MIB);
	EQUAL(hpz_lease_get_size(lease), 68 * MIB);
	give_back(lease);
	wait_clean();
}

/* The pools lie on two mounts, so the paths do, too; both go with the lease. */
static void test_cells_as_paths(void)
{
	static const struct hpz_cell cells[] = {{8 * MIB, 1, 0}, {8 * MIB, 0, 0}};
	struct hpz_lease_request request = ask_cells(cells, LENGTH(cells), 0);
	char paths[2][256];

	request.deliver = HPZ_DELIVER_PATH;
	struct hpz_lease *lease = TAKE(&request);
	for (size_t i = 0; i < 2; i++) {
		snprintf(paths[i], sizeof(paths[i]), "%s", get_segment(lease, i).path);
		EQUAL(access(paths[i], F_OK), 0);
	}
	CHECK(strncmp(paths[0], "/run/two/", 9) == 0 && strncmp(paths[1], "/run/one/", 9) == 0);
	struct hpz_check_result *found = NULL;
	EQUAL(hpz_check(hpz, 0, PATIENCE_MS, &found), HPZ_OK);
	for (size_t i = 0; i < hpz_check_get_count(found); i++) {
		struct hpz_finding finding = {.struct_size = sizeof(finding)};
		hpz_check_get_finding(found, i, &finding);
		if (finding.severity == HPZ_SEVERITY_DIFFERENCE)
			die(__LINE__, "the books: %s", finding.text);
	}
	hpz_check_free(found);
	give_back(lease);
	wait_clean();
	for (size_t i = 0; i < 2; i++) {
		CHECK(access(paths[i], F_OK) < 0);
		*strrchr(paths[i], '/') = '\0'; /* nor is its directory there */
		CHECK(access(paths[i], F_OK) < 0);
	}
}

static void test_all_or_none(void)
{
	static const struct hpz_cell cells[] = {{8 * MIB, 0, 0}, {8 * MIB, 1, 0}};
	struct hpz_lease_request request = ask_cells(cells, LENGTH(cells), 0);

	struct hpz_lease *all = take_all_of(1);
	REFUSE(&request, HPZ_ERR_NO_MEMORY);
	TEXT("cell 1 of 2: pool b, node 1, pages of 2M: 8 MiB asked; 0 B is clean");
	struct hpz_pool_status pool = get_pool("a");
	CHECK(pool.clean == POOL && pool.leased == 0);
	/* One that waits for both takes neither from who needs less. */
	request.timeout_ms = 500;
	REFUSE(&request, HPZ_ERR_TIMEOUT);
	TEXT("cell 1 of 2");
	CHECK(get_pool("a").clean == POOL);
	give_back(all);
	wait_clean();
}

/* ---- several at once ---- */

static pid_t start_child(void (*run)(int number), int number)
{
	fflush(stdout);
	pid_t pid = fork();
	if (pid == 0) {
		hpz = NULL; /* the parent's */
		connect_to_hpzd();
		run(number);
		_exit(0);
	}
	return pid;
}

static void wait_children(const pid_t *pids, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		int status = 0;
		CHECK(waitpid(pids[i], &status, 0) == pids[i]);
		EQUAL(status, 0);
	}
}

/* Each wants more than half of both nodes, and the next one asks in the other order. */
static void want_both(int number)
{
	struct hpz_cell cells[] = {{64 * MIB, number % 2, 0}, {64 * MIB, 1 - number % 2, 0}};
	struct hpz_lease_request request = ask_cells(cells, LENGTH(cells), PATIENCE_MS);

	request.flags = HPZ_LEASE_SEGMENTS;
	for (unsigned round = 0; round < 3; round++) {
		struct hpz_lease *lease = NULL;
		EQUAL(hpz_lease(hpz, &request, &lease), HPZ_OK);
		for (size_t i = 0; i < hpz_lease_get_segment_count(lease); i++) {
			struct hpz_segment segment = get_segment(lease, i);
			EQUAL(segment.node, cells[segment.cell].node);
		}
		give_back(lease);
	}
}

static void want_little(int number)
{
	struct hpz_lease_request request = ask(PAGE, number % 2);

	request.timeout_ms = PATIENCE_MS;
	for (unsigned round = 0; round < 10; round++) {
		struct hpz_lease *lease = NULL;
		EQUAL(hpz_lease(hpz, &request, &lease), HPZ_OK);
		EQUAL(get_segment(lease, 0).node, number % 2);
		give_back(lease);
	}
}

static void test_opposite_order(void)
{
	pid_t pids[4];

	for (int i = 0; i < 2; i++) {
		pids[i] = start_child(want_both, i);
		pids[2 + i] = start_child(want_little, i);
	}
	wait_children(pids, LENGTH(pids));
	wait_clean();
}

/* ---- a holder moves what it has to the other node ---- */

static void test_moved_away(void)
{
	struct hpz_lease_request request = ask(8 * MIB, 0);
	struct hpz_lease *lease = TAKE(&request);
	int wanted[4] = {1, 1, 1, 1}, status[4];
	void *address;
	size_t length;

	EQUAL(hpz_map(hpz, lease, &address, &length), HPZ_OK);
	look_at_pages(address, PAGE, 4, wanted, status);
	look_at_pages(address, PAGE, 4, NULL, status);
	for (size_t i = 0; i < 4; i++)
		EQUAL(status[i], 1);
	give_back(lease);
	wait_clean();
	/* Whatever is handed out of node 0 now lies there: TAKE looks at every page. */
	give_back(take_all_of(0));
	wait_clean();
}

/* ---- hpzd dies ---- */

static void test_killed(void)
{
	static const struct hpz_cell cells[] = {{8 * MIB, 1, 0}, {32 * MIB, 0, 0}, {2 * MIB, 1, 0}};
	struct hpz_lease_request request = ask_cells(cells, LENGTH(cells), 0);
	struct hpz_lease_list *list = NULL;
	struct hpz_lease_info info = {.struct_size = sizeof(info)};
	void *address;
	size_t length;

	request.flags = HPZ_LEASE_UNBOUND;
	struct hpz_lease *lease = TAKE(&request);
	uint64_t id = hpz_lease_get_id(lease);
	EQUAL(hpz_map(hpz, lease, &address, &length), HPZ_OK);
	kill_hpzd();
	for (size_t offset = 0; offset < length; offset += 4096)
		CHECK(((char *)address)[offset] == (char)0xa5);
	start_hpzd();
	EQUAL(hpz_list(hpz, &list), HPZ_OK);
	EQUAL(hpz_list_get_count(list), 1);
	EQUAL(hpz_list_get_lease(list, 0, &info), HPZ_OK);
	CHECK(info.id == id && info.state == HPZ_STATE_LEASED && info.segment_count == LENGTH(cells));
	for (uint32_t i = 0; i < LENGTH(cells); i++) {
		struct hpz_segment segment = {.struct_size = sizeof(segment)};
		EQUAL(hpz_list_get_segment(list, 0, i, &segment), HPZ_OK);
		CHECK(segment.cell == i && segment.node == cells[i].node && segment.size == cells[i].size);
	}
	hpz_list_free(list);
	for (size_t offset = 0; offset < length; offset += 4096)
		CHECK(((char *)address)[offset] == (char)0xa5);
	give_back(lease);
	wait_clean();
}

/* Takes cells and lets go of them, whatever becomes of hpzd meanwhile. */
static void take_for_ever(int number)
{
	struct hpz_cell cells[] = {{32 * MIB, number % 2, 0}, {2 * MIB, 1 - number % 2, 0}};
	struct hpz_lease_request request = ask_cells(cells, LENGTH(cells), 1000);

	for (;;) {
		struct hpz_lease *lease = NULL;
		int error = hpz_lease(hpz, &request, &lease);
		if (error == HPZ_ERR_LOST || error == HPZ_ERR_PROTOCOL) {
			connect_to_hpzd();
			continue;
		}
		if (error)
			continue;
		uint64_t id = hpz_lease_get_id(lease);
		hpz_lease_free(lease);
		hpz_release(hpz, id, 0, 0);
	}
}

/* A set that was not whole when hpzd died comes back like any other, and no page is lost. */
static void test_killed_meanwhile(void)
{
	pid_t pids[2];

	for (int i = 0; i < 2; i++)
		pids[i] = start_child(take_for_ever, i);
	for (unsigned kills = 0; kills < 4; kills++) {
		pause_ms(150 + 70 * (long)kills);
		kill_hpzd();
		start_hpzd();
	}
	for (int i = 0; i < 2; i++) {
		kill(pids[i], SIGKILL);
		waitpid(pids[i], NULL, 0);
	}
	wait_clean();
	give_back(take_all_of(0));
	give_back(take_all_of(1));
	wait_clean();
}

/* ---- workers ---- */

static void read_text(char *text, size_t size, const char *format, ...) __attribute__((format(printf, 3, 4)));
static void read_text(char *text, size_t size, const char *format, ...)
{
	char path[128];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(path, sizeof(path), format, arguments);
	va_end(arguments);
	int fd = open(path, O_RDONLY);
	ssize_t length = fd >= 0 ? read(fd, text, size - 1) : 0;
	text[length > 0 ? length : 0] = '\0';
	close(fd);
}

/* The workers of a node run on its CPUs, and the methods were measured on each. */
static void test_workers(void)
{
	struct hpz_clearing *clearing = NULL;
	struct hpz_clearing_node node = {.struct_size = sizeof(node)};
	struct hpz_clearing_method method = {.struct_size = sizeof(method)};
	unsigned seen = 0, chosen = 0, workers = 0;

	EQUAL(hpz_get_clearing(hpz, &clearing), HPZ_OK);
	for (size_t i = 0; hpz_clearing_get_node(clearing, i, &node) == HPZ_OK; i++)
		seen |= node.bytes > 0 ? 1u << node.node : 0;
	for (size_t i = 0; hpz_clearing_get_method(clearing, i, &method) == HPZ_OK; i++) {
		if (method.flags & HPZ_METHOD_CHOSEN)
			chosen |= 1u << method.node;
	}
	hpz_clearing_free(clearing);
	EQUAL(seen, 3);
	EQUAL(chosen, 3);
	for (int pid = 2; pid < 32768; pid++) {
		char command[128] = "", status[4096], node_cpus[64], expected[96];
		read_text(command, sizeof(command), "/proc/%d/cmdline", pid);
		const char *role = command + strlen(command) + 1 + strlen("--worker") + 1;
		if (strcmp(command, "hpzd") != 0 || strcmp(command + 5, "--worker") != 0 ||
			strcmp(role, "memory") != 0)
			continue;
		int of = atoi(role + strlen(role) + 1);
		read_text(status, sizeof(status), "/proc/%d/status", pid);
		read_text(node_cpus, sizeof(node_cpus), "/sys/devices/system/node/node%d/cpulist", of);
		snprintf(expected, sizeof(expected), "Cpus_allowed_list:\t%s", node_cpus);
		if (!strstr(status, expected))
			die(__LINE__, "the worker %d of node %d is not on its CPUs: %s", pid, of,
				strstr(status, "Cpus_allowed_list"));
		workers |= 1u << of;
	}
	EQUAL(workers, 3);
}

/* ---- pages of 1 GiB ---- */

static void test_gigabytes(void)
{
	static const struct hpz_cell cells[] = {{GIB, 1, 0}, {GIB, 0, 0}};
	struct hpz_lease_request request = ask_cells(cells, LENGTH(cells), 0), one = ask(GIB, 0);

	one.page_size = request.page_size = GIB;
	struct hpz_lease *lease = TAKE(&one);
	EQUAL(get_segment(lease, 0).node, 0);
	REFUSE(&one, HPZ_ERR_NO_MEMORY);
	TEXT("pool c, node 0, pages of 1G: 1 GiB asked; 0 B is clean");
	TEXT("node 1 could serve it");
	REFUSE(&request, HPZ_ERR_NO_MEMORY);
	TEXT("cell 1 of 2: pool c, node 0, pages of 1G");
	EQUAL(get_pool("d").clean, 1);
	one.node_policy = HPZ_NODES_PREFERRED;
	struct hpz_lease *other = TAKE(&one);
	EQUAL(get_segment(other, 0).node, 1);
	give_back(other);
	give_back(lease);
	request.timeout_ms = PATIENCE_MS;
	lease = TAKE(&request);
	EQUAL(get_segment(lease, 0).node, 1);
	EQUAL(get_segment(lease, 1).node, 0);
	give_back(lease);
}

static const struct {
	const char *name;
	void (*run)(void);
} tests[] = {
	{"every_page", test_every_page},
	{"strict", test_strict},
	{"preferred", test_preferred},
	{"interleave", test_interleave},
	{"cells", test_cells},
	{"cells_as_paths", test_cells_as_paths},
	{"all_or_none", test_all_or_none},
	{"opposite_order", test_opposite_order},
	{"moved_away", test_moved_away},
	{"workers", test_workers},
	{"killed", test_killed},
	{"killed_meanwhile", test_killed_meanwhile},
	{"gigabytes", test_gigabytes},
};

int main(int argc, char **argv)
{
	if (argc != 2)
		return 2;
	config_path = argv[1];
	setvbuf(stdout, NULL, _IOLBF, 0);
	start_hpzd();
	wait_clean();
	for (size_t i = 0; i < LENGTH(tests); i++) {
		struct timespec begin, end;
		name = tests[i].name;
		clock_gettime(CLOCK_MONOTONIC, &begin);
		tests[i].run();
		clock_gettime(CLOCK_MONOTONIC, &end);
		printf("TEST %s ok %.2f\n", name,
			(double)(end.tv_sec - begin.tv_sec) + (double)(end.tv_nsec - begin.tv_nsec) / 1e9);
	}
	hpz_close(hpz);
	return 0;
}
