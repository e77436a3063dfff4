/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_choose.c - cells, and nodes in turn: two nodes of 12 pages each. */
#include "asker.h"

#include <unistd.h>

static struct pool *nodes[2];

static const struct host *get_two_nodes(void)
{
	static int32_t numbers[] = {0, 1};
	static uint64_t page_size = STORE_PAGE;
	static const struct host host = {.root = (char *)"/nonexistent",
		.nodes = numbers,
		.node_count = 2,
		.page_sizes = &page_size,
		.page_size_count = 1};
	return &host;
}

static int setup_nodes_of(void **state, uint64_t pages)
{
	struct config_pool of_node = config;

	harness_host = get_two_nodes();
	setup(state);
	of_node.pages = of_node.max_pages = pages;
	of_node.stock[0].count = pages / 8;
	for (int32_t node = 0; node < 2; node++) {
		of_node.node = node;
		of_node.name[0] = (char)('p' + node);
		nodes[node] = harness_add_pool(&of_node);
	}
	return 0;
}

static int setup_nodes(void **state)
{
	return setup_nodes_of(state, 12);
}

static int setup_large_nodes(void **state)
{
	return setup_nodes_of(state, 44);
}

static int teardown_nodes(void **state)
{
	teardown(state);
	harness_host = NULL;
	return 0;
}

static const struct request_peer cell_knower = {
	.uid = 0, .gid = 0, .pid = 1, .pidfd = -1, .capabilities = HPZ_WIRE_CAN_ZEROED | HPZ_WIRE_CAN_CELLS};

struct piece {
	uint64_t pages;
	int32_t node;
};

static struct hpz_wire_lease make_cells(const struct piece *pieces, size_t count, int64_t timeout_ms)
{
	struct hpz_wire_lease lease = harness_get_lease(0, timeout_ms);
	for (size_t i = 0; i < count; i++) {
		lease.cell[i] = (struct hpz_wire_cell){pieces[i].pages * STORE_PAGE, pieces[i].node, 0};
		lease.bytes += lease.cell[i].bytes;
	}
	lease.cells = (uint32_t)count;
	return lease;
}

#define CELLS(timeout, ...)                                                                                  \
	make_cells((const struct piece[]){__VA_ARGS__},                                                      \
		sizeof((const struct piece[]){__VA_ARGS__}) / sizeof(struct piece), timeout)

static enum request_outcome ask_wire(unsigned session, uint16_t op, uint64_t id, struct hpz_wire_lease wire)
{
	return ask_as(SESSION(session), &cell_knower, harness_make(&in, op, id, &wire, sizeof wire));
}

/* Segments of these pages, each on its node, and with cells each of its own. */
static uint64_t expect_pieces(
	const struct message *message, uint64_t id, bool are_cells, const struct piece *pieces, size_t count)
{
	harness_expect_ok(message, HPZ_OP_LEASE, id);
	const struct hpz_wire_leased *leased = HARNESS_PAYLOAD(message);
	const struct hpz_wire_segment *segments = (const struct hpz_wire_segment *)(leased + 1);
	assert_int_equal(leased->segments, count);
	for (size_t i = 0; i < count; i++) {
		assert_int_equal(segments[i].bytes, pieces[i].pages * STORE_PAGE);
		assert_int_equal(segments[i].node, pieces[i].node);
		assert_int_equal(segments[i].cell, are_cells ? i : 0);
		assert_int_equal(access(segments[i].path, F_OK), 0);
	}
	return leased->id;
}
#define EXPECT_PIECES(message, id, are_cells, ...)                                                           \
	expect_pieces(message, id, are_cells, (const struct piece[]){__VA_ARGS__},                           \
		sizeof((const struct piece[]){__VA_ARGS__}) / sizeof(struct piece))

static void test_cells(void **state)
{
	harness_put_clean(nodes[0], 2, 1);
	harness_put_clean(nodes[1], 1, 8);
	assert_int_equal(ask_wire(1, HPZ_OP_LEASE, 3, CELLS(0, {1, 0}, {6, 1}, {1, 0})), REQUEST_REPLIED);
	uint64_t id = EXPECT_PIECES(&out, 3, true, {1, 0}, {6, 1}, {1, 0});
	const struct hpz_wire_leased *leased = HARNESS_PAYLOAD(&out);
	assert_true(leased->given == 8 * STORE_PAGE && leased->ready == leased->given && !leased->zeroed);
	assert_true(nodes[0]->segments[SEGMENT_CLEAN] == 0 && nodes[1]->segments[SEGMENT_CLEAN] == 0);
	/* The list says which is which, to whoever can know. */
	for (int knows = 0; knows < 2; knows++) {
		make_request(HPZ_OP_LIST, &in);
		ask_as(SESSION(1), knows ? &cell_knower : &root, &in);
		const struct hpz_wire_listed *listed = HARNESS_PAYLOAD(&out);
		const struct hpz_wire_lease_record *record = (const void *)(listed + 1);
		const struct hpz_wire_segment *segments = (const void *)(record + 1);
		assert_true(record->id == id && record->segments == 3);
		assert_int_equal(segments[1].cell, knows ? 1 : 0);
		assert_int_equal(segments[2].cell, knows ? 2 : 0);
	}
}

static bool are_tails_gone(void *unused)
{
	return nodes[0]->pages[SEGMENT_LEASED] == 8 && nodes[1]->pages[SEGMENT_LEASED] == 5;
}

/* The tails of all cells go back, not only that of the last. */
static void test_cells_trimmed(void **state)
{
	harness_put_clean(nodes[0], 2, 8);
	harness_put_clean(nodes[1], 1, 8);
	assert_int_equal(ask_wire(1, HPZ_OP_LEASE, 3, CELLS(0, {6, 0}, {5, 1}, {2, 0})), REQUEST_REPLIED);
	EXPECT_PIECES(&out, 3, true, {6, 0}, {5, 1}, {2, 0});
	assert_true(nodes[0]->pages[SEGMENT_LEASED] == 16 && nodes[1]->pages[SEGMENT_LEASED] == 8);
	harness_release();
	harness_run_until(are_tails_gone, NULL);
}

/* Cells of one node are planned on what the earlier ones leave. */
static void test_cells_all_or_none(void **state)
{
	harness_put_clean(nodes[0], 1, 4);
	harness_put_clean(nodes[1], 4, 1);
	assert_int_equal(ask_wire(1, HPZ_OP_LEASE, 3, CELLS(0, {4, 0}, {4, 0})), REQUEST_REPLIED);
	const char *text = harness_expect_error(&out, HPZ_OP_LEASE, 3, HPZ_ERR_NO_MEMORY);
	assert_non_null(
		strstr(text, "cell 1 of 2: pool p, node 0, pages of 4K: 16 KiB asked; 16 KiB is clean"));
	assert_int_equal(ask_wire(1, HPZ_OP_LEASE, 4, CELLS(0, {1, 1}, {5, 0}, {1, 1})), REQUEST_REPLIED);
	text = harness_expect_error(&out, HPZ_OP_LEASE, 4, HPZ_ERR_NO_MEMORY);
	assert_non_null(strstr(text, "cell 1 of 3: pool p, node 0"));
	assert_non_null(strstr(text, "0 requests wait"));
	/* Nothing was taken or is kept. */
	assert_true(nodes[0]->segments[SEGMENT_CLEAN] == 1 && nodes[1]->segments[SEGMENT_CLEAN] == 4);
	assert_int_equal(harness.leases.count, 0);
	EXPECT_PIECES((ask_wire(1, HPZ_OP_LEASE, 5, CELLS(0, {1, 1}, {4, 0}, {1, 1})), &out), 5, true, {1, 1},
		{4, 0}, {1, 1});
	/* Larger than its node's pool, alone or together; a node without a pool. */
	ask_wire(1, HPZ_OP_LEASE, 6, CELLS(-1, {7, 1}, {6, 1}));
	text = harness_expect_error(&out, HPZ_OP_LEASE, 6, HPZ_ERR_TOO_LARGE);
	assert_non_null(strstr(text, "52 KiB asked"));
	assert_non_null(strstr(text, "node 1"));
	ask_wire(1, HPZ_OP_LEASE, 7, CELLS(-1, {1, 1}, {1, 2}));
	text = harness_expect_error(&out, HPZ_OP_LEASE, 7, HPZ_ERR_NO_POOL);
	assert_non_null(strstr(text, "there is no pool on node 2; there is one on node 0, 1"));
}

/* Two that want the same of two nodes, in opposite order: one after the other gets all. */
static void test_cells_wait(void **state)
{
	assert_int_equal(ask_wire(1, HPZ_OP_LEASE, 1, CELLS(-1, {8, 0}, {8, 1})), REQUEST_WAITS);
	assert_int_equal(ask_wire(2, HPZ_OP_LEASE, 2, CELLS(-1, {8, 1}, {8, 0})), REQUEST_WAITS);
	assert_int_equal(ask_as(SESSION(3), &root, harness_make_lease(&in, 3, 8, -1)), REQUEST_WAITS);
	assert_true(nodes[0]->waiting + nodes[1]->waiting == 5);
	harness_put_clean(nodes[0], 1, 8);
	harness_run_ms(20);
	/* The first lacks its other node: nobody takes this from it, and it does not take it alone. */
	assert_int_equal(sent.count, 0);
	assert_int_equal(nodes[0]->segments[SEGMENT_CLEAN], 1);
	harness_put_clean(nodes[1], 1, 8);
	EXPECT_PIECES(wait_reply(1), 1, true, {8, 0}, {8, 1});
	harness_put_clean(nodes[1], 1, 8);
	harness_run_ms(20);
	assert_int_equal(sent.count, 1);
	harness_put_clean(nodes[0], 1, 8);
	EXPECT_PIECES(wait_reply(2), 2, true, {8, 1}, {8, 0});
	assert_ptr_equal(sent.sessions[1], SESSION(2));
	/* Who would take any node takes the one that comes. */
	harness_put_clean(nodes[1], 1, 8);
	EXPECT_PIECES(wait_reply(3), 3, false, {8, 1});
	assert_true(nodes[0]->waiting == 0 && nodes[1]->waiting == 0);
}

/* What the kernel lacks is known node by node: each is raised for its part. */
static void test_cells_lacking(void **state)
{
	harness_put_clean(nodes[0], 1, 8);
	assert_int_equal(ask_wire(1, HPZ_OP_LEASE, 1, CELLS(-1, {8, 0}, {4, 1}, {5, 1})), REQUEST_WAITS);
	assert_int_equal(nodes[0]->lacking_pages, 0);
	assert_int_equal(nodes[1]->lacking_pages, 9);
	/* Who comes later has no say in it. */
	assert_int_equal(ask_wire(2, HPZ_OP_LEASE, 2, CELLS(-1, {12, 0}, {12, 1})), REQUEST_WAITS);
	assert_int_equal(nodes[1]->lacking_pages, 9);
	request_cancel_session(&harness.requests, SESSION(1));
	request_cancel_session(&harness.requests, SESSION(2));
	assert_true(nodes[0]->lacking_pages == 0 && nodes[1]->lacking_pages == 0);
}

static void test_cells_cancelled(void **state)
{
	assert_int_equal(ask_wire(1, HPZ_OP_LEASE, 1, CELLS(-1, {8, 0}, {8, 1})), REQUEST_WAITS);
	assert_int_equal(ask_wire(2, HPZ_OP_LEASE, 2, CELLS(30, {8, 1}, {8, 0})), REQUEST_WAITS);
	request_cancel_session(&harness.requests, SESSION(1));
	harness_put_clean(nodes[0], 1, 8);
	const char *text = harness_expect_error(wait_reply(1), HPZ_OP_LEASE, 2, HPZ_ERR_TIMEOUT);
	assert_non_null(strstr(text, "cell 0 of 2: pool q, node 1"));
	assert_int_equal(nodes[0]->segments[SEGMENT_CLEAN], 1);
	assert_true(nodes[0]->waiting == 0 && nodes[1]->waiting == 0);
}

/* One cell is zeroed for the request; until that is done the other is kept for it, and for nobody else. */
static void test_cells_extended(void **state)
{
	if (geteuid() != 0)
		return; /* only root opens a file of mode 0 again */
	harness_put_clean(nodes[0], 1, 1);
	harness_put_clean(nodes[1], 4, 1);
	crew_set_hold(harness.crew, true);
	assert_int_equal(ask_wire(1, HPZ_OP_LEASE, 3, CELLS(0, {1, 0}, {3, 1})), REQUEST_WAITS);
	struct hpz_wire_lease one = harness_get_lease(1, 0);
	one.node = 0;
	ask_wire(2, HPZ_OP_LEASE, 4, one);
	harness_expect_error(&out, HPZ_OP_LEASE, 4, HPZ_ERR_NO_MEMORY);
	harness_release();
	EXPECT_PIECES(wait_reply(1), 3, true, {1, 0}, {3, 1});
	const struct hpz_wire_leased *leased = HARNESS_PAYLOAD(&sent.replies[0]);
	assert_true(leased->ready == 2 * STORE_PAGE && leased->zeroed == 2 * STORE_PAGE);
}

/* The key of a set gives the same set, and is no other's. */
static void test_cells_key(void **state)
{
	struct hpz_wire_lease wire = CELLS(0, {1, 0}, {1, 1}), other = CELLS(0, {1, 1}, {1, 0});

	harness_put_clean(nodes[0], 2, 1);
	harness_put_clean(nodes[1], 2, 1);
	memcpy(wire.key, "key", 3);
	memcpy(other.key, "key", 3);
	ask_wire(1, HPZ_OP_LEASE, 3, wire);
	uint64_t id = EXPECT_PIECES(&out, 3, true, {1, 0}, {1, 1});
	ask_wire(2, HPZ_OP_LEASE, 4, wire);
	assert_int_equal(EXPECT_PIECES(&out, 4, true, {1, 0}, {1, 1}), id);
	ask_wire(2, HPZ_OP_LEASE, 5, other);
	harness_expect_error(&out, HPZ_OP_LEASE, 5, HPZ_ERR_KEY_MISMATCH);
}

static void test_preferred(void **state)
{
	struct hpz_wire_lease wire = harness_get_lease(2, 0);

	wire.node = 1;
	harness_put_clean(nodes[0], 2, 2);
	ask_wire(1, HPZ_OP_LEASE, 3, wire);
	const char *text = harness_expect_error(&out, HPZ_OP_LEASE, 3, HPZ_ERR_NO_MEMORY);
	assert_non_null(strstr(text, "pool q, node 1"));
	assert_non_null(strstr(text, "node 0 could serve it (--node-policy preferred)"));
	wire.policy = HPZ_NODES_PREFERRED;
	ask_wire(1, HPZ_OP_LEASE, 4, wire);
	EXPECT_PIECES(&out, 4, false, {2, 0});
	/* Also where the preferred one has to be trimmed. */
	harness_put_clean(nodes[1], 1, 8);
	ask_wire(1, HPZ_OP_LEASE, 5, wire);
	EXPECT_PIECES(&out, 5, false, {2, 1});
	ask_wire(1, HPZ_OP_LEASE, 6, wire);
	EXPECT_PIECES(&out, 6, false, {2, 0});
	ask_wire(1, HPZ_OP_LEASE, 7, wire);
	text = harness_expect_error(&out, HPZ_OP_LEASE, 7, HPZ_ERR_NO_MEMORY);
	assert_non_null(strstr(text, "pool q, node 1"));
	/* A node without a pool is no reason to refuse. */
	wire.node = 5;
	wire.timeout_ms = -1;
	assert_int_equal(ask_wire(1, HPZ_OP_LEASE, 8, wire), REQUEST_WAITS);
	harness_put_clean(nodes[1], 1, 2);
	EXPECT_PIECES(wait_reply(1), 8, false, {2, 1});
}

static void test_interleave(void **state)
{
	struct hpz_wire_lease wire = harness_get_lease(4, 0);

	wire.policy = HPZ_NODES_INTERLEAVE;
	wire.node_mask = 3;
	harness_put_clean(nodes[0], 4, 1);
	harness_put_clean(nodes[1], 4, 1);
	ask_wire(1, HPZ_OP_PLAN, 2, wire);
	harness_expect_ok(&out, HPZ_OP_PLAN, 2);
	const struct hpz_wire_planned *planned = HARNESS_PAYLOAD(&out);
	assert_true(planned->kind == HPZ_PLAN_SEVERAL && planned->segments == 4 && planned->node == -1 &&
		    planned->ready == 4 * STORE_PAGE && planned->given == planned->ready);
	ask_wire(1, HPZ_OP_LEASE, 3, wire);
	EXPECT_PIECES(&out, 3, false, {1, 0}, {1, 1}, {1, 0}, {1, 1});
	/* As equal as there is enough. */
	harness_put_clean(nodes[1], 1, 1);
	wire.bytes = 5 * STORE_PAGE;
	ask_wire(1, HPZ_OP_LEASE, 4, wire);
	EXPECT_PIECES(&out, 4, false, {1, 0}, {1, 1}, {1, 0}, {1, 1}, {1, 1});
	harness_put_clean(nodes[1], 1, 4);
	wire.bytes = 3 * STORE_PAGE;
	ask_wire(1, HPZ_OP_LEASE, 5, wire);
	EXPECT_PIECES(&out, 5, false, {3, 1});
	ask_wire(1, HPZ_OP_LEASE, 6, wire);
	const char *text = harness_expect_error(&out, HPZ_OP_LEASE, 6, HPZ_ERR_NO_MEMORY);
	assert_non_null(strstr(text, "pool p, node 0"));
	wire.node_mask = 5;
	ask_wire(1, HPZ_OP_LEASE, 7, wire);
	assert_non_null(strstr(harness_expect_error(&out, HPZ_OP_LEASE, 7, HPZ_ERR_NO_POOL), "node 2"));
	wire.node_mask = 3;
	wire.bytes = 25 * STORE_PAGE;
	ask_wire(1, HPZ_OP_LEASE, 8, wire);
	harness_expect_error(&out, HPZ_OP_LEASE, 8, HPZ_ERR_TOO_LARGE);
}

#define TEST_NODES(name) cmocka_unit_test_setup_teardown(name, setup_nodes, teardown_nodes)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST_NODES(test_cells),
		cmocka_unit_test_setup_teardown(test_cells_trimmed, setup_large_nodes, teardown_nodes),
		TEST_NODES(test_cells_all_or_none),
		cmocka_unit_test_setup_teardown(test_cells_wait, setup_large_nodes, teardown_nodes),
		TEST_NODES(test_cells_lacking),
		TEST_NODES(test_cells_cancelled),
		TEST_NODES(test_cells_extended),
		TEST_NODES(test_cells_key),
		TEST_NODES(test_preferred),
		TEST_NODES(test_interleave),
	};
	return cmocka_run_group_tests_name("choose", tests, NULL, NULL);
}
