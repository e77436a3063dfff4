/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_report.c - what is put into wire structs: every number, and lists longer than one message. */
#include "harness.h"
#include "report.h"

#include <inttypes.h>

static struct pool *pool;
static const struct config_pool config = {
	.name = "p",
	.page_size = STORE_PAGE,
	.pages = 12,
	.max_pages = 12,
	.stock = {{4 * STORE_PAGE, 3}},
	.stock_count = 1,
};
static _Alignas(8) unsigned char buffer[HPZ_WIRE_MAX_MESSAGE];

static int setup(void **state)
{
	harness_open(NULL);
	pool = harness_add_pool(&config);
	return 0;
}

static int teardown(void **state)
{
	harness_close();
	return 0;
}

static struct lease *grant(uint64_t given, const char *label)
{
	struct lease draft = {.uid = 7,
		.pid = 8,
		.flags = HPZ_LEASE_KEEP,
		.deliver = HPZ_DELIVER_PATH,
		.asked = 5,
		.comm = "asker"};
	struct lease *lease = NULL;
	struct pool_segment *segment = pool_find_clean(pool, 4);

	assert_non_null(segment);
	snprintf(draft.label, sizeof draft.label, "%s", label);
	assert_int_equal(lease_grant(&harness.leases, &draft, &segment, &given, 1, &lease), 0);
	return lease;
}

/* Its holder changes the file. */
static void change_file(const struct pool_segment *segment, uint64_t keep, uint64_t pages)
{
	char name[SEGMENT_NAME_MAX];

	pool_get_segment_name(segment, name);
	int dir = pool->dirs.fds[SEGMENT_LEASED];
	assert_int_equal(fchmodat(dir, name, 0600, 0), 0);
	int fd = openat(dir, name, O_RDWR | O_CLOEXEC);
	assert_true(fd >= 0);
	if (pages > 4)
		assert_int_equal(fallocate(fd, 0, 0, (off_t)(pages * STORE_PAGE)), 0);
	else
		assert_int_equal(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
					 (off_t)(keep * STORE_PAGE), (off_t)((4 - keep) * STORE_PAGE)),
			0);
	close(fd);
}

/* ---- demand ---- */

static void test_demand(void **state)
{
	const struct hpz_wire_demanded *head = (const struct hpz_wire_demanded *)buffer;
	const struct hpz_wire_demand_pool *record = (const struct hpz_wire_demand_pool *)(head + 1);
	const struct hpz_wire_demand_size *size = (const struct hpz_wire_demand_size *)(record + 1);
	uint64_t now_ns = clock_get_ns(CLOCK_BOOTTIME);

	pool->config.stock_share = 50;
	pool->config.stock_half_life_ns = 3600 * NS_PER_S;
	struct config_pool with = pool->config;
	pool_set_config(pool, &with);
	harness_put_clean(pool, 2, 4);
	grant(4, "first");
	for (int i = 0; i < 3; i++)
		demand_ask(&pool->demand, now_ns, 4, i == 0 ? DEMAND_EXACT : DEMAND_WAITED);
	demand_ask(&pool->demand, now_ns, 9, DEMAND_REFUSED);
	pool_follow_demand(pool, now_ns);
	memset(buffer, 0xff, sizeof buffer);
	size_t length = report_demand(&harness.reconcile, 0, buffer, sizeof buffer);
	assert_int_equal(length, sizeof *head + sizeof *record + 2 * sizeof *size);
	assert_true(head->records == 3 && head->cursor == 0 && buffer[length] == 0xff);
	assert_true(record->record == HPZ_RECORD_DEMAND_POOL && record->sizes == 2 && record->learns == 0);
	assert_true(record->target == 12 * STORE_PAGE && record->most == 6 * STORE_PAGE);
	assert_true(record->learned == 4 * STORE_PAGE && record->half_life_ms == 3600 * 1000);
	assert_string_equal(record->pool, "p");
	assert_true(size[0].bytes == 9 * STORE_PAGE && size[0].refused_milli == 1000);
	assert_true(size[0].proposed == 0 && size[0].reason == HPZ_DEMAND_RARE && size[0].there == 0);
	assert_true(size[1].bytes == 4 * STORE_PAGE && size[1].out == 1 && size[1].peak_milli == 1000);
	assert_true(size[1].exact_milli == 1000 && size[1].waited_milli == 2000 && size[1].wanted == 2);
	assert_true(size[1].proposed == 1 && size[1].reason == HPZ_DEMAND_CROWDED);
	assert_true(size[1].there == 2 && size[1].clean == 1);
	/* No room for the pool: it is on the next page, and there it is the first. */
	assert_int_equal(report_demand(&harness.reconcile, 0, buffer, length - 1), sizeof *head);
	assert_true(head->records == 0 && head->cursor == 0);
	/* Whatever a client asks for. */
	assert_int_equal(report_demand(&harness.reconcile, SIZE_MAX, buffer, sizeof buffer), sizeof *head);
}

/* ---- status ---- */

static const struct hpz_wire_pool *get_pool_record(void)
{
	struct hpz_wire_status *status = (struct hpz_wire_status *)buffer;

	memset(buffer, 0xff, sizeof buffer);
	size_t size = report_status(&harness.reconcile, &harness.books, HPZ_WIRE_CAN_RESIZE, status);
	assert_int_equal(size, sizeof *status + sizeof(struct hpz_wire_pool));
	assert_int_equal(buffer[size], 0xff);
	assert_int_equal(status->pools, 1);
	return (const struct hpz_wire_pool *)(status + 1);
}

static void test_pool(void **state)
{
	struct pool_segment *segment;
	int fd;

	harness_put_clean(pool, 3, 4);
	harness_turn();
	const struct hpz_wire_pool *record = get_pool_record();
	assert_true(record->size == sizeof *record && record->record == HPZ_RECORD_POOL &&
		    record->page_size == STORE_PAGE && record->node == 0 && record->target == 12 &&
		    record->total == 12 && record->clean == 12 && record->clean_segments == 3 &&
		    record->largest_clean == 4 * STORE_PAGE && record->leased == 0 && record->waiting == 0 &&
		    record->raised == 0 && record->idle == 1);
	assert_string_equal(record->name, "p");
	assert_string_equal(record->mount, harness.dir);
	assert_string_equal(record->message, "");
	/* One of each state; a fill that is half done shows as far as it is. */
	struct lease *lease = grant(4, "vm"), *returning = grant(4, "vm");
	lease_set_state(&harness.leases, returning, HPZ_STATE_RETURNING);
	change_file(lease->segments[0], 3, 0);
	assert_int_equal(pool_set_state(pool_find_clean(pool, 4), SEGMENT_DIRTY), 0);
	assert_int_equal(pool_create(pool, 4, &segment, &fd), 0);
	segment->is_busy = true;
	assert_int_equal(fallocate(fd, 0, 0, STORE_PAGE), 0);
	pool->waiting = 3;
	record = get_pool_record();
	assert_true(record->total == 12 && record->clean == 0 && record->leased == 7 &&
		    record->returning == 4 && record->dirty == 4 && record->filling == 1 &&
		    record->holes == 1 && record->waiting == 3 && record->idle == 0 &&
		    record->largest_clean == 0 && record->clean_segments == 0);
	assert_int_equal(fallocate(fd, 0, 0, 3 * STORE_PAGE), 0);
	assert_int_equal(get_pool_record()->filling, 3);
	close(fd);
	pool->waiting = 0;
	assert_int_equal(pool_discard(segment), 0);
	change_file(lease->segments[0], 0, 9);
	record = get_pool_record();
	assert_true(record->holes == 0 && record->leased == 13);
}

static void test_status(void **state)
{
	struct hpz_wire_status *status = (struct hpz_wire_status *)buffer;

	harness_put_clean(pool, 1, 4);
	grant(4, "vm");
	harness.reconcile.work.bytes_cleared = 11;
	harness.reconcile.work.bytes_filled = 12;
	get_pool_record();
	assert_true(status->size == sizeof *status && status->leases == 1 && status->leases_granted == 1 &&
		    status->bytes_cleared == 11 && status->bytes_filled == 12 && status->worker_deaths == 0);
	assert_string_equal(status->version, HPZ_VERSION);
	assert_string_equal(status->proof, "f_setlease");
	assert_string_equal(status->method, ""); /* not calibrated yet */
	assert_string_equal(status->message, "");
	harness.reconcile.has_leftovers = true;
	get_pool_record();
	assert_non_null(strstr(status->message, "earlier hpzd"));
	harness.reconcile.has_leftovers = false;
	harness.reconcile.work.calibrations[0].method = 0;
	get_pool_record();
	assert_string_equal(status->method, zero_methods[0].name);
}

/* What is missing is said with numbers, whatever it is called. */
static void test_message(void **state)
{
	harness_put_clean(pool, 1, 4);
	harness_turn();
	const struct hpz_wire_pool *record = get_pool_record();
	assert_non_null(strstr(record->message, "8 pages of 4K (32 KiB) are missing on node 0"));
	assert_non_null(strstr(record->message, "raise = yes")); /* it may not */
	memset(pool->message, 'x', sizeof pool->message - 1);
	memcpy(pool->message, "a\nb\033", 4);
	assert_true(proto_is_text(get_pool_record()->message, sizeof record->message));
}

/* ---- a lease ---- */

static const struct access_rule *keys_for; /* who looks at the list; NULL: an older client */

static size_t list(uint64_t cursor, size_t capacity)
{
	memset(buffer, 0xff, sizeof buffer);
	const struct report_view view = {.keys_for = keys_for, .with_cells = true};
	size_t size = report_list(&harness.leases, &view, cursor, buffer, capacity);
	assert_true(size <= capacity);
	assert_int_equal(buffer[size], 0xff);
	return size;
}

static void test_list(void **state)
{
	const struct hpz_wire_listed *listed = (const void *)buffer;
	const struct hpz_wire_lease_record *record = (const void *)(listed + 1);
	const struct hpz_wire_segment *segment = (const void *)(record + 1);
	const struct hpz_wire_holder *holders = (const void *)(segment + 1);

	harness_put_clean(pool, 1, 4);
	struct lease *lease = grant(3, "l\xc3\xa4nge");
	lease->has_token = true;
	memset(lease->token, 'a', sizeof lease->token);
	lease->holder_count = 2;
	lease->holders[0] = (struct worker_holder){11, 5, "qemu-system-x86"};
	lease->holders[1] = (struct worker_holder){12, -1, "0123456789abcdef"}; /* fills its array */
	size_t size = list(0, sizeof buffer - 1);
	assert_int_equal(size, sizeof *listed + sizeof *record + sizeof *segment + 2 * sizeof *holders);
	assert_true(listed->size == sizeof *listed && listed->records == 4 && listed->cursor == 0);
	assert_true(record->size == sizeof *record && record->record == HPZ_RECORD_LEASE &&
		    record->id == lease->id && record->given == 3 * STORE_PAGE && record->asked == 5 &&
		    record->age_ms < 60000 && record->holes == 0 && record->grown == 0 &&
		    record->state == HPZ_STATE_OFFERED && record->deliver == HPZ_DELIVER_PATH &&
		    record->flags == HPZ_LEASE_KEEP && record->uid == 7 && record->pid == 8 &&
		    record->segments == 1 && record->holders == 2);
	assert_string_equal(record->label, "l\xc3\xa4nge");
	assert_string_equal(record->comm, "asker");
	assert_true(segment->size == sizeof *segment && segment->record == HPZ_RECORD_SEGMENT &&
		    segment->bytes == 3 * STORE_PAGE && segment->page_size == STORE_PAGE &&
		    segment->generation == 1 && segment->node == 0 && segment->descriptor == -1);
	char path[PATH_MAX];
	snprintf(path, sizeof path, "%s/hpz-out/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa/0", harness.dir);
	assert_string_equal(segment->path, path);
	assert_true(holders[0].size == sizeof *holders && holders[0].record == HPZ_RECORD_HOLDER &&
		    holders[0].pid == 11 && holders[0].fd == 5 && holders[1].fd == -1);
	assert_string_equal(holders[0].comm, "qemu-system-x86");
	assert_memory_equal(holders[1].comm, "0123456789abcdef", 16);
	/* Returning, its path is no more. */
	lease_set_state(&harness.leases, lease, HPZ_STATE_RETURNING);
	list(0, sizeof buffer - 1);
	assert_string_equal(segment->path, "");
	/* Holes and growth. */
	change_file(lease->segments[0], 1, 0);
	list(0, sizeof buffer - 1);
	assert_int_equal(record->holes, 2);
	change_file(lease->segments[0], 0, 6);
	list(0, sizeof buffer - 1);
	assert_true(record->holes == 0 && record->grown == 2);
}

/* A key is a secret of who may end the lease, and nothing that an older client knows. */
static void test_keys(void **state)
{
	const struct hpz_wire_lease_record *record =
		(const void *)((const struct hpz_wire_listed *)(void *)buffer + 1);
	const struct config_access lease_only = {.allow = CONFIG_ALLOW_STATUS | CONFIG_ALLOW_LEASE};
	const struct access_rule root = {.is_root = true}, owner = {.peer.uid = 7, .section = &lease_only},
				 other = {.peer.uid = 8, .section = &lease_only}, none = {.peer.uid = 7};
	const struct {
		const struct access_rule *who;
		const char *sees;
	} cases[] = {{NULL, ""}, {&root, "libvirt:1"}, {&owner, "libvirt:1"}, {&other, ""}, {&none, ""}};

	harness_put_clean(pool, 1, 4);
	struct lease *lease = grant(3, "vm");
	strcpy(lease->key, "libvirt:1");
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		keys_for = cases[i].who;
		list(0, sizeof buffer - 1);
		assert_string_equal(record->key, cases[i].sees);
	}
	keys_for = NULL;
}

/* Of three segments the middle one is back. */
static void test_half_returned(void **state)
{
	struct pool_segment *segments[3];
	const uint64_t given[] = {4, 4, 4};
	struct lease draft = {.label = "vm"}, *lease = NULL;
	const struct hpz_wire_listed *listed = (const void *)buffer;
	const struct hpz_wire_lease_record *record = (const void *)(listed + 1);

	harness_put_clean(pool, 3, 4);
	struct list *at = pool_find_clean(pool, 4)->link.prev->next;
	for (size_t i = 0; i < 3; i++, at = at->next)
		segments[i] = CONTAINER_OF(at, struct pool_segment, link);
	assert_int_equal(lease_grant(&harness.leases, &draft, segments, given, 3, &lease), 0);
	assert_int_equal(pool_set_state(segments[1], SEGMENT_DIRTY), 0);
	lease_drop_segment(&harness.leases, lease, segments[1]);
	size_t size = list(0, sizeof buffer - 1);
	assert_int_equal(size, sizeof *listed + sizeof *record + 2 * sizeof(struct hpz_wire_segment));
	assert_true(listed->records == 3 && record->segments == 2 && record->given == 8 * STORE_PAGE);
	struct hpz_wire_segment segment;
	report_segment(lease, 1, 1, true, &segment);
	assert_true(segment.bytes == 0 && segment.descriptor == 1 && segment.size == sizeof segment);
	report_segment(lease, 2, 2, true, &segment);
	assert_int_equal(segment.bytes, 4 * STORE_PAGE);
}

/* ---- more leases than a message holds ---- */

static void add_leases(unsigned count)
{
	for (uint64_t id = 1; id <= count; id++) {
		struct journal_lease record = {.size = sizeof record, .id = id * 10};
		lease_read_record(&harness.leases, JOURNAL_LEASE, &record, sizeof record);
	}
}

static unsigned read_pages(size_t capacity, unsigned *ret_pages)
{
	const struct hpz_wire_listed *listed = (const void *)buffer;
	uint64_t cursor = 0, last = 0;
	unsigned count = 0;

	*ret_pages = 0;
	do {
		size_t size = list(cursor, capacity);
		const struct hpz_wire_lease_record *record = (const void *)(listed + 1);
		assert_int_equal(size, sizeof *listed + listed->records * sizeof *record);
		for (uint32_t i = 0; i < listed->records; i++, record++, count++) {
			assert_true(record->id > last);
			last = record->id;
		}
		assert_true(listed->cursor == 0 || (listed->cursor > last && listed->records > 0));
		cursor = listed->cursor;
		++*ret_pages;
	} while (cursor);
	return count;
}

static void test_pages(void **state)
{
	const size_t record = sizeof(struct hpz_wire_lease_record), head = sizeof(struct hpz_wire_listed);
	unsigned pages;

	add_leases(2000);
	assert_int_equal(read_pages(HPZ_WIRE_MAX_MESSAGE - sizeof(struct hpz_wire_head), &pages), 2000);
	assert_int_equal(pages, 1 + 2000 * record / HPZ_WIRE_MAX_MESSAGE);
	assert_int_equal(read_pages(head + record, &pages), 2000);
	assert_int_equal(pages, 2000);
	assert_int_equal(read_pages(head + 2 * record - 1, &pages), 2000);
	/* From the middle, from an id that is not there, and beyond the end. */
	const struct hpz_wire_listed *listed = (const void *)buffer;
	const struct hpz_wire_lease_record *first = (const void *)(listed + 1);
	list(19990, sizeof buffer - 1);
	assert_true(listed->records == 2 && first->id == 19990);
	list(19991, sizeof buffer - 1);
	assert_true(listed->records == 1 && first->id == 20000);
	list(20001, sizeof buffer - 1);
	assert_true(listed->records == 0 && listed->cursor == 0);
}

/* ---- orphans ---- */

static void add_orphan(uint64_t id, uint64_t pages, enum proof_reason reason)
{
	struct lease lease = {.id = id, .file_uid = 1000, .label = "vm", .asked = 99};
	struct pool_segment segment = {.pool = pool};
	const struct worker_done seen = {
		.allocated = pages, .proof = {.result = PROOF_IN_USE, .reason = reason}};

	orphan_add_take(handoff_get_orphans(harness.handoff), &lease, &segment, &seen, -1);
}

static size_t list_with_orphans(uint64_t cursor, size_t capacity)
{
	memset(buffer, 0xff, sizeof buffer);
	const struct report_view view = {.orphans = handoff_get_orphans(harness.handoff), .with_cells = true};
	size_t size = report_list(&harness.leases, &view, cursor, buffer, capacity);
	assert_true(size <= capacity);
	assert_int_equal(buffer[size], 0xff);
	return size;
}

/* Behind the leases; and for an older client, who does not know the state, not at all. */
static void test_orphans(void **state)
{
	const struct hpz_wire_listed *listed = (const void *)buffer;
	const struct hpz_wire_lease_record *record = (const void *)(listed + 1);

	add_orphan(7, 3, PROOF_PIN);
	add_orphan(5, 1, PROOF_OPEN);
	add_leases(1); /* 10 */
	list_with_orphans(0, sizeof buffer - 1);
	assert_true(listed->records == 3 && listed->cursor == 0);
	assert_true(record[0].id == 10 && record[0].state != HPZ_STATE_ORPHANED);
	assert_true(record[1].id == 5 && record[1].given == STORE_PAGE && record[2].id == 7);
	assert_true(record[2].size == sizeof *record && record[2].record == HPZ_RECORD_LEASE &&
		    record[2].state == HPZ_STATE_ORPHANED && record[2].given == 3 * STORE_PAGE &&
		    record[2].asked == 99 && record[2].uid == 1000 && record[2].segments == 0 &&
		    record[2].holders == 0);
	assert_string_equal(record[2].label, "vm");
	assert_string_equal(record[2].reason, proof_get_reason_text(PROOF_PIN));
	assert_string_equal(record[1].reason, proof_get_reason_text(PROOF_OPEN));
	list(0, sizeof buffer - 1);
	assert_int_equal(listed->records, 1);
	/* The pool counts them, too. */
	const struct hpz_wire_pool *counted = get_pool_record();
	assert_true(counted->orphans == 2 && counted->orphan_pages == 4);
}

/* Why a lease is still returning: only to who understands it, and only while it is so. */
static void test_reason(void **state)
{
	const struct hpz_wire_lease_record *record =
		(const void *)((const struct hpz_wire_listed *)buffer + 1);

	harness_put_clean(pool, 1, 4);
	struct lease *lease = grant(4, "vm");
	lease->reason = PROOF_OPEN;
	list_with_orphans(0, sizeof buffer - 1);
	assert_string_equal(record->reason, "");
	lease_set_state(&harness.leases, lease, HPZ_STATE_RETURNING);
	list_with_orphans(0, sizeof buffer - 1);
	assert_string_equal(record->reason, proof_get_reason_text(PROOF_OPEN));
	list(0, sizeof buffer - 1);
	assert_string_equal(record->reason, "");
}

/* Leases, then orphans, over many messages: each once, and those of one lease together. */
static void test_pages_of_orphans(void **state)
{
	const struct hpz_wire_listed *listed = (const void *)buffer;
	const struct hpz_wire_lease_record *record = (const void *)(listed + 1);
	const size_t capacity = HPZ_WIRE_MAX_MESSAGE - sizeof(struct hpz_wire_head);
	unsigned seen = 0, pages = 0;
	uint64_t cursor = 0, last = 0;

	for (uint64_t id = 1; id <= 400; id++) {
		for (int i = 0; i < 3; i++)
			add_orphan(id, 1, PROOF_PIN);
	}
	add_leases(300);
	do {
		list_with_orphans(cursor, capacity);
		for (uint32_t i = 0; i < listed->records; i++, seen++) {
			bool is_orphan = record[i].state == HPZ_STATE_ORPHANED;
			if (seen == 300) /* from here on orphans, from their beginning */
				last = 0;
			assert_int_equal(is_orphan, seen >= 300);
			assert_true(is_orphan ? record[i].id == (seen - 300) / 3 + 1 : record[i].id > last);
			last = record[i].id;
		}
		assert_true(listed->cursor == 0 || listed->records > 0);
		cursor = listed->cursor;
		pages++;
	} while (cursor);
	assert_int_equal(seen, 300 + 1200);
	assert_true(pages >= 3);
}

/* ---- check ---- */

static size_t report_findings(size_t index, size_t capacity)
{
	memset(buffer, 0xff, sizeof buffer);
	size_t size = report_check(&harness.books, index, buffer, capacity);
	assert_true(size <= capacity);
	assert_int_equal(buffer[size], 0xff);
	return size;
}

static void test_check(void **state)
{
	const struct hpz_wire_checked *head = (const void *)buffer;
	const struct hpz_wire_finding *record = (const void *)(head + 1);
	struct books *books = &harness.books;

	books->segments = 12;
	books->leases = 3;
	assert_int_equal(report_findings(0, sizeof buffer - 1), sizeof *head);
	assert_true(head->size == sizeof *head && head->segments == 12 && head->leases == 3 &&
		    head->records == 0 && head->cursor == 0 && head->dropped == 0);
	/* Ten findings, three to a message; the cursor says of which check it is. */
	books->results.findings = calloc(10, sizeof *books->results.findings);
	assert_non_null(books->results.findings);
	books->results.count = 10;
	books->results.dropped = 2;
	books->run_number = 5;
	for (size_t i = 0; i < 10; i++) {
		struct books_finding *finding = &books->results.findings[i];
		finding->kind = HPZ_FINDING_OUT;
		finding->severity = HPZ_SEVERITY_DIFFERENCE;
		finding->is_repaired = i == 4;
		snprintf(finding->pool, sizeof finding->pool, "p");
		snprintf(finding->text, sizeof finding->text, "number %zu\n\033", i);
	}
	const size_t capacity = sizeof *head + 4 * sizeof *record - 1;
	size_t count = 0, pages = 0;
	uint64_t cursor = 0;
	do {
		report_findings((uint32_t)cursor, capacity);
		assert_int_equal(head->dropped, 2);
		for (uint32_t i = 0; i < head->records; i++, count++) {
			char text[HPZ_WIRE_TEXT + 1], expected[32];
			assert_true(record[i].size == sizeof *record &&
				    record[i].record == HPZ_RECORD_FINDING &&
				    record[i].kind == HPZ_FINDING_OUT &&
				    record[i].severity == HPZ_SEVERITY_DIFFERENCE &&
				    record[i].repaired == (count == 4));
			assert_true(proto_is_text(record[i].text, sizeof record[i].text));
			proto_get_text(record[i].text, sizeof record[i].text, text);
			snprintf(expected, sizeof expected, "number %zu", count);
			assert_int_equal(strncmp(text, expected, strlen(expected)), 0);
			assert_string_equal(record[i].pool, "p");
		}
		cursor = head->cursor;
		assert_true(cursor == 0 || (cursor >> 32 == 5 && (uint32_t)cursor == count));
		pages++;
	} while (cursor);
	assert_true(count == 10 && pages == 4);
	/* Beyond the end there is nothing. */
	assert_int_equal(report_findings(11, sizeof buffer - 1), sizeof *head);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_pool),
		TEST(test_status),
		TEST(test_message),
		TEST(test_list),
		TEST(test_keys),
		TEST(test_half_returned),
		TEST(test_pages),
		TEST(test_orphans),
		TEST(test_reason),
		TEST(test_pages_of_orphans),
		TEST(test_check),
		TEST(test_demand),
	};
	return cmocka_run_group_tests_name("report", tests, NULL, NULL);
}
