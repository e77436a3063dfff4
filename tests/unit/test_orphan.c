/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_orphan.c - the table of orphans: counts, order, and that one is not lost when the look at it fails. */
#include "temp.h"
#include "orphan.h"

static uv_loop_t loop;
static struct crew *crew;
static struct prover *prover;
static struct orphans *orphans;
static unsigned changes;

static void note_change(void *user)
{
	changes++;
}

static int set_up(void **state)
{
	changes = 0;
	uv_loop_init(&loop);
	/* A worker that ends at once: every look fails. */
	assert_int_equal(crew_init(&loop, "/bin/false", &crew), 0);
	prover = prover_new(crew, note_change, NULL);
	assert_non_null(prover);
	assert_int_equal(orphan_init(&loop, crew, prover, note_change, NULL, &orphans), 0);
	return 0;
}

static void ignore(void *user)
{
}

static int tear_down(void **state)
{
	orphan_close(orphans);
	crew_stop(crew, ignore, NULL);
	uv_run(&loop, UV_RUN_DEFAULT);
	orphan_free(orphans);
	prover_free(prover);
	crew_free(crew);
	assert_int_equal(uv_loop_close(&loop), 0);
	return 0;
}

/* Two descriptors of one pipe: while ours is open the other end sees no end of file. */
static int add(const char *pool_name, uint64_t id, uint32_t uid, uint64_t pages, enum proof_reason reason)
{
	struct pool pool = {.config.page_size = (uint64_t)2 << 20};
	struct pool_segment segment = {.pool = &pool, .pages = pages};
	struct lease lease = {.id = id, .label = "vm", .file_uid = uid};
	struct worker_done seen = {
		.allocated = pages, .proof = {.result = PROOF_IN_USE, .reason = reason, .source = PROOF_BPF}};
	int fds[2];

	assert_int_equal(pipe2(fds, O_CLOEXEC | O_NONBLOCK), 0);
	snprintf(pool.name, sizeof pool.name, "%s", pool_name);
	orphan_add_take(orphans, &lease, &segment, &seen, fds[1]);
	return fds[0];
}

static bool is_open(int reader)
{
	char byte;

	return read(reader, &byte, 1) < 0 && errno == EAGAIN;
}

static void test_counts(void **state)
{
	struct pool two = {.name = "two"}, one = {.name = "one"};
	uint32_t files = 99;
	int readers[] = {
		add("two", 12, 1000, 4, PROOF_PIN),
		add("one", 11, 1001, 1, PROOF_OPEN),
		add("two", 12, 1000, 2, PROOF_OPEN),
	};

	assert_int_equal(orphan_get_pages(orphans, &two, &files), 6);
	assert_int_equal(files, 2);
	assert_int_equal(orphan_get_pages(orphans, &one, NULL), 1);
	assert_int_equal(orphan_get_bytes(orphans, 1000), (uint64_t)12 << 20);
	assert_int_equal(orphan_get_bytes(orphans, 1001), (uint64_t)2 << 20);
	assert_int_equal(orphan_get_bytes(orphans, 0), 0);
	uint64_t last = 0;
	size_t count = 0;
	for (const struct list *pos = orphan_get_list(orphans)->next; pos != orphan_get_list(orphans);
		pos = pos->next, count++) {
		const struct orphan *orphan = CONTAINER_OF(pos, const struct orphan, link);
		assert_true(orphan->lease >= last);
		last = orphan->lease;
		assert_string_equal(orphan->label, "vm");
	}
	assert_int_equal(count, 3);
	for (size_t i = 0; i < ARRAY_SIZE(readers); i++) {
		assert_true(is_open(readers[i]));
		close_fd(readers[i]);
	}
}

static void on_later(uv_timer_t *timer)
{
	uv_stop(timer->loop);
}

/* A second and a half: the first look is due after one. */
static void test_look_that_fails(void **state)
{
	struct pool two = {.name = "two"};
	_cleanup_fd_ int reader = add("two", 5, 0, 3, PROOF_OPEN);
	static uv_timer_t timer;

	uv_timer_init(&loop, &timer);
	uv_timer_start(&timer, on_later, 1500, 0);
	uv_run(&loop, UV_RUN_DEFAULT);
	uv_close((uv_handle_t *)&timer, NULL);
	assert_int_equal(orphan_get_pages(orphans, &two, NULL), 3);
	assert_true(is_open(reader));
	assert_int_equal(changes, 0);
	const struct orphan *orphan = CONTAINER_OF(orphan_get_list(orphans)->next, const struct orphan, link);
	assert_true(orphan->attempts >= 2 || orphan->job);
}

static void test_free_closes(void **state)
{
	int reader = add("two", 5, 0, 3, PROOF_OPEN);
	char byte;

	assert_int_equal(tear_down(NULL), 0);
	assert_int_equal(read(reader, &byte, 1), 0);
	close_fd(reader);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_counts, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_look_that_fails, set_up, tear_down),
		cmocka_unit_test_setup(test_free_closes, set_up),
	};

	return cmocka_run_group_tests_name("orphan", tests, NULL, NULL);
}
