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

/* ---- the journal ---- */

#define BOOT_ID "01234567-89ab-cdef-0123-456789abcdef"

static char dir[TEMP_PATH];

static void read_record(enum journal_type type, const void *payload, size_t bytes, void *user)
{
	orphan_read_record(orphans, type, payload, bytes);
}

static struct journal *open_journal(const struct lease_table *leases)
{
	struct journal *journal = NULL;

	assert_int_equal(journal_open(dir, BOOT_ID, read_record, NULL, NULL, &journal), 0);
	orphan_finish_adoption(orphans, leases, journal);
	return journal;
}

/* hpzd dies; the next one reads what there is. */
static struct journal *restart(struct journal *journal, const struct lease_table *leases)
{
	journal_close(journal);
	assert_int_equal(tear_down(NULL), 0);
	assert_int_equal(set_up(NULL), 0);
	return open_journal(leases);
}

static const struct orphan *get_first(void)
{
	return CONTAINER_OF(orphan_get_list(orphans)->next, const struct orphan, link);
}

static void write_compacted(struct journal *journal, void *user)
{
	orphan_write_all(orphans, journal);
}

/* The looks at the kernel are a second and more apart. */
static void look_at(const struct pool *pool, uint64_t ours, uint64_t in_use)
{
	struct host_counters kernel = {.nr = in_use + 5, .free = 5};

	LIST_FOR_EACH (pos, (struct list *)orphan_get_list(orphans))
		ORPHAN_OF(pos)->due_ns = 0;
	orphan_reconcile(orphans, pool, ours, &kernel);
}

static void test_restart(void **state)
{
	struct pool two = {.name = "two", .config.page_size = (uint64_t)2 << 20},
		    other_size = {.name = "one", .config.page_size = (uint64_t)1 << 30};
	struct lease_table leases;
	uint32_t files;

	temp_make(dir);
	assert_int_equal(lease_init_table(&leases), 0);
	struct journal *journal = open_journal(&leases);
	close_fd(add("two", 12, 1000, 4, PROOF_PIN));
	close_fd(add("two", 13, 1001, 2, PROOF_OPEN));
	for (int death = 0; death < 3; death++) {
		journal = restart(journal, &leases);
		assert_int_equal(orphan_get_pages(orphans, &two, &files), 6);
		assert_int_equal(files, 2);
		assert_int_equal(orphan_get_bytes(orphans, 1000), (uint64_t)8 << 20);
		assert_int_equal(orphan_get_bytes(orphans, 1001), (uint64_t)4 << 20);
		assert_int_equal(get_first()->lease, 12);
		assert_string_equal(get_first()->label, "vm");
		assert_string_equal(
			orphan_get_reason_text(get_first()), "not known any more: hpzd was restarted");
		assert_true(orphan_has_recovered(orphans, &two));
		assert_false(orphan_has_recovered(orphans, &other_size));
		assert_int_equal(journal_compact(journal, write_compacted, NULL), 0);
	}
	/* Pages of others, or all of ours: nothing ends. */
	for (int i = 0; i < 4; i++) {
		look_at(&two, 10, 16);
		look_at(&other_size, 0, 0);
	}
	assert_int_equal(orphan_get_pages(orphans, &two, NULL), 6);
	/* No more than three are left: that of 4 has lost some, together they have three, and a single look
	 * says nothing. */
	look_at(&two, 10, 10);
	look_at(&two, 10, 13);
	look_at(&two, 10, 10);
	assert_int_equal(orphan_get_pages(orphans, &two, &files), 3);
	assert_int_equal(files, 2);
	assert_int_equal(orphan_get_bytes(orphans, 1000), (uint64_t)6 << 20);
	assert_int_equal(orphan_get_bytes(orphans, 1001), (uint64_t)4 << 20);
	look_at(&two, 12, 10);
	assert_int_equal(orphan_get_pages(orphans, &two, &files), 3);
	look_at(&two, 10, 10);
	assert_int_equal(orphan_get_pages(orphans, &two, &files), 0);
	assert_int_equal(files, 0);
	/* Also for the next one. */
	journal = restart(journal, &leases);
	assert_int_equal(orphan_get_pages(orphans, &two, &files), 0);
	assert_int_equal(files, 0);
	journal_close(journal);
	lease_deinit_table(&leases);
	temp_remove(dir);
}

/* Announced, and then: dead before the name went, dead after it, or nobody held it. */
static void test_announced(void **state)
{
	struct pool two = {.name = "two", .config.page_size = (uint64_t)2 << 20};
	struct pool_segment segment = {.pool = &two, .id = 77, .allocated = 3};
	struct pool_segment *segments[] = {&segment};
	struct lease lease = {.id = 5, .label = "vm", .segments = segments, .segment_count = 1};
	struct lease_table leases;

	temp_make(dir);
	assert_int_equal(lease_init_table(&leases), 0);
	struct journal *journal = open_journal(&leases);
	orphan_announce(orphans, &lease, &segment);
	orphan_announce(orphans, &lease, &segment);
	assert_int_equal(orphan_get_pages(orphans, &two, NULL), 0);
	assert_int_equal(journal_compact(journal, write_compacted, NULL), 0);
	/* In nobody's books any more, and perhaps the kernel's: the count of the others is not about it. */
	assert_int_equal(orphan_reconcile(orphans, &two, 3, &(struct host_counters){0}), UINT64_MAX);
	journal = restart(journal, &leases);
	assert_int_equal(orphan_get_pages(orphans, &two, NULL), 3);
	/* The name is there: a lease has it. */
	list_append(&leases.hash[5], &lease.hash_link);
	journal = restart(journal, &leases);
	assert_int_equal(orphan_get_pages(orphans, &two, NULL), 0);
	list_remove(&lease.hash_link);
	journal = restart(journal, &leases);
	assert_int_equal(orphan_get_pages(orphans, &two, NULL), 0);
	orphan_announce(orphans, &lease, &segment);
	orphan_cancel(orphans, &lease, &segment);
	orphan_cancel(orphans, &lease, &segment);
	journal = restart(journal, &leases);
	assert_int_equal(orphan_get_pages(orphans, &two, NULL), 0);
	journal_close(journal);
	lease_deinit_table(&leases);
	temp_remove(dir);
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
		cmocka_unit_test_setup_teardown(test_restart, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_announced, set_up, tear_down),
		cmocka_unit_test_setup(test_free_closes, set_up),
	};

	return cmocka_run_group_tests_name("orphan", tests, NULL, NULL);
}
