/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_journal.c - what was appended comes back, whatever happened to the file, and nothing else ever does.
 */
#include "temp.h"
#include "journal.h"

#include <sys/wait.h>
#include <linux/magic.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/vfs.h>

#define BOOT  "01234567-89ab-cdef-0123-456789abcdef"
#define BOOT2 "11234567-89ab-cdef-0123-456789abcdef"

/* The part of a record that never changes. */
#define AT_CRC     4
#define AT_VERSION 8
#define AT_TYPE    10
#define HEAD       56

static char dir[TEMP_PATH];

/* ---- what comes back ---- */

struct seen {
	size_t count;
	struct {
		enum journal_type type;
		size_t bytes;
		unsigned char payload[1024];
	} records[16];
};

static void see(enum journal_type type, const void *payload, size_t bytes, void *user)
{
	struct seen *seen = user;

	if (seen->count < ARRAY_SIZE(seen->records)) {
		assert_true(bytes <= sizeof seen->records[0].payload);
		seen->records[seen->count].type = type;
		seen->records[seen->count].bytes = bytes;
		memcpy(seen->records[seen->count].payload, payload, bytes);
	}
	seen->count++;
}

static struct journal *open_journal(const char *boot, struct seen *seen, uint64_t *ret_cut)
{
	struct journal *journal = NULL;

	memset(seen, 0, sizeof *seen);
	assert_int_equal(journal_open(dir, boot, see, seen, ret_cut, &journal), 0);
	return journal;
}

static int setup(void **state)
{
	temp_make(dir);
	return 0;
}

static int teardown(void **state)
{
	temp_remove(dir);
	return 0;
}

static void append_end(struct journal *journal, uint64_t id)
{
	struct journal_end end = {sizeof end, 0, id};

	assert_int_equal(journal_append(journal, JOURNAL_END, &end, sizeof end, NULL, 0), 0);
}

static void expect_ends(const struct seen *seen, uint64_t first, size_t count)
{
	assert_int_equal(seen->count, count);
	for (size_t i = 0; i < count && i < ARRAY_SIZE(seen->records); i++) {
		const struct journal_end *end = (const void *)seen->records[i].payload;
		assert_int_equal(seen->records[i].type, JOURNAL_END);
		assert_int_equal(end->id, first + i);
	}
}

static void make_file_of_ends(uint64_t count)
{
	struct seen seen;
	struct journal *journal = open_journal(BOOT, &seen, NULL);

	for (uint64_t i = 1; i <= count; i++)
		append_end(journal, i);
	journal_close(journal);
}

/* ---- checksum ---- */

static void test_crc32c(void **state)
{
	unsigned char bytes[300];

	assert_int_equal(journal_crc32c(0, "123456789", 9), 0xe3069283);
	assert_int_equal(journal_crc32c_plain(0, "123456789", 9), 0xe3069283);
	assert_int_equal(journal_crc32c(0, "", 0), 0);
	memset(bytes, 0, 32); /* RFC 3720 B.4 */
	assert_int_equal(journal_crc32c(0, bytes, 32), 0x8a9136aa);
	for (size_t i = 0; i < sizeof bytes; i++)
		bytes[i] = (unsigned char)(i * 7);
	for (size_t length = 0; length < 280; length++) {
		uint32_t whole = journal_crc32c_plain(0, bytes + length % 9, length);
		assert_int_equal(journal_crc32c(0, bytes + length % 9, length), whole);
		for (size_t i = 0; i <= length; i += 13) {
			uint32_t part = journal_crc32c(0, bytes + length % 9, i);
			assert_int_equal(journal_crc32c(part, bytes + length % 9 + i, length - i), whole);
		}
	}
}

/* ---- plain life ---- */

static void test_new_file(void **state)
{
	char made[PATH_MAX];

	assert_int_equal(journal_check_format(dir), 0);
	snprintf(made, sizeof made, "%s/journal", dir);
	assert_int_equal(access(made, F_OK), -1);
	uint64_t cut = 77;
	struct seen seen;
	struct journal *journal = open_journal(BOOT, &seen, &cut);
	char path[PATH_MAX];
	struct stat st;

	assert_int_equal(seen.count, 0);
	assert_int_equal(cut, 0);
	assert_int_equal(journal_get_bytes(journal), 0);
	temp_path(dir, "journal", path);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode, S_IFREG | 0600);
	journal_close(journal);
	journal_close(NULL);
}

static void test_all_types(void **state)
{
	struct journal_lease lease = {
		.size = sizeof lease, .segments = 2, .id = 1ull << 50, .asked = 3, .uid = 4};
	struct journal_segment segments[] = {{1, 2, 2 << 20, 4}, {5, 6, 1 << 30, 8, .node = 1}};
	struct journal_state st = {sizeof st, 2, 1ull << 50, 1, 0};
	struct journal_owner owner = {.size = sizeof owner, .pid = 42, .comm = "qemu"};
	struct journal_end end = {sizeof end, 0, 9};
	struct journal_raise raise = {sizeof raise, 1, 2 << 20, 100, 50, -3, 1, 0};
	struct journal_range range = {sizeof range, 0, 7, 8};
	struct seen seen;
	struct journal *journal = open_journal(BOOT, &seen, NULL);
	uint64_t bytes;

	memset(lease.label, 0xc3, sizeof lease.label);
	assert_int_equal(
		journal_append(journal, JOURNAL_LEASE, &lease, sizeof lease, segments, sizeof segments), 0);
	assert_int_equal(journal_append(journal, JOURNAL_STATE, &st, sizeof st, NULL, 0), 0);
	assert_int_equal(journal_append(journal, JOURNAL_OWNER, &owner, sizeof owner, NULL, 0), 0);
	assert_int_equal(journal_append(journal, JOURNAL_END, &end, sizeof end, NULL, 0), 0);
	assert_int_equal(journal_append(journal, JOURNAL_RAISE, &raise, sizeof raise, NULL, 0), 0);
	assert_int_equal(journal_append(journal, JOURNAL_RANGE, &range, sizeof range, NULL, 0), 0);
	bytes = journal_get_bytes(journal);
	journal_close(journal);

	journal = open_journal(BOOT, &seen, NULL);
	assert_int_equal(journal_get_bytes(journal), bytes);
	assert_int_equal(seen.count, 6);
	for (size_t i = 0; i < 6; i++)
		assert_int_equal(seen.records[i].type, i + 1);
	assert_int_equal(seen.records[0].bytes, sizeof lease + sizeof segments);
	assert_memory_equal(seen.records[0].payload, &lease, sizeof lease);
	assert_memory_equal(seen.records[0].payload + sizeof lease, segments, sizeof segments);
	assert_int_equal(seen.records[1].bytes, sizeof st);
	assert_memory_equal(seen.records[1].payload, &st, sizeof st);
	assert_memory_equal(seen.records[2].payload, &owner, sizeof owner);
	assert_memory_equal(seen.records[3].payload, &end, sizeof end);
	assert_memory_equal(seen.records[4].payload, &raise, sizeof raise);
	assert_memory_equal(seen.records[5].payload, &range, sizeof range);
	/* Goes on behind what it found. */
	append_end(journal, 10);
	journal_close(journal);
	journal = open_journal(BOOT, &seen, NULL);
	assert_int_equal(seen.count, 7);
	journal_close(journal);
}

static void see_largest(enum journal_type type, const void *payload, size_t bytes, void *user)
{
	const struct journal_lease *lease = payload;

	assert_int_equal(bytes, sizeof *lease + JOURNAL_SEGMENTS_MAX * sizeof(struct journal_segment));
	assert_int_equal(lease->segments, JOURNAL_SEGMENTS_MAX);
	++*(int *)user;
}

static void test_largest_lease(void **state)
{
	static struct journal_segment segments[JOURNAL_SEGMENTS_MAX + 1];
	struct journal_lease lease = {.size = sizeof lease, .segments = JOURNAL_SEGMENTS_MAX};
	struct seen seen;
	struct journal *journal = open_journal(BOOT, &seen, NULL);
	const size_t most = JOURNAL_SEGMENTS_MAX * sizeof segments[0];
	int count = 0;

	assert_int_equal(journal_append(journal, JOURNAL_LEASE, &lease, sizeof lease, segments, most), 0);
	assert_int_equal(
		journal_append(journal, JOURNAL_LEASE, &lease, sizeof lease, segments, sizeof segments),
		-EINVAL);
	journal_close(journal);
	assert_int_equal(journal_open(dir, BOOT, see_largest, &count, NULL, &journal), 0);
	assert_int_equal(count, 1);
	journal_close(journal);
}

static void test_bad_arguments(void **state)
{
	struct journal_end end = {sizeof end, 0, 1};
	struct journal *journal = NULL;
	struct seen seen = {0};

	assert_int_equal(journal_open(dir, "short", see, &seen, NULL, &journal), -EINVAL);
	assert_int_equal(journal_open("/nonexistent/dir", BOOT, see, &seen, NULL, &journal), -ENOENT);
	assert_null(journal);
	journal = open_journal(BOOT, &seen, NULL);
	assert_int_equal(journal_append(journal, JOURNAL_END, &end, sizeof end - 1, NULL, 0), -EINVAL);
	assert_int_equal(journal_append(journal, JOURNAL_END, &end, 0, NULL, 0), -EINVAL);
	assert_int_equal(journal_append(journal, (enum journal_type)99, &end, sizeof end, NULL, 0), -EINVAL);
	assert_int_equal(journal_get_bytes(journal), 0);
	journal_close(journal);
}

static void test_one_at_a_time(void **state)
{
	struct journal *journal, *second = NULL;
	struct seen seen;

	journal = open_journal(BOOT, &seen, NULL);
	assert_int_equal(journal_open(dir, BOOT, see, &seen, NULL, &second), -EBUSY);
	journal_close(journal);
	journal_close(open_journal(BOOT, &seen, NULL));
}

/* What a killed hpzd had just forked has its descriptors until it becomes a worker. */
static void test_just_forked(void **state)
{
	struct seen seen;
	struct journal *journal = open_journal(BOOT, &seen, NULL);
	pid_t child = fork();

	if (child == 0) {
		usleep(200 * 1000);
		_exit(0);
	}
	assert_true(child > 0);
	journal_close(journal);
	journal_close(open_journal(BOOT, &seen, NULL));
	assert_int_equal(waitpid(child, NULL, 0), child);
}

static void test_not_a_file(void **state)
{
	struct journal *journal = NULL;
	struct seen seen = {0};
	char path[PATH_MAX];

	temp_put(dir, "victim", "x");
	temp_path(dir, "journal", path);
	assert_int_equal(symlink("victim", path), 0);
	assert_int_equal(journal_open(dir, BOOT, see, &seen, NULL, &journal), -ELOOP);
	unlink(path);
	assert_int_equal(mkfifo(path, 0600), 0);
	assert_int_equal(journal_open(dir, BOOT, see, &seen, NULL, &journal), -EBADF);
	unlink(path);
	assert_int_equal(mkdir(path, 0700), 0);
	assert_int_equal(journal_open(dir, BOOT, see, &seen, NULL, &journal), -EISDIR);
	rmdir(path);
}

static void test_other_boot(void **state)
{
	struct journal *journal;
	struct seen seen;
	uint64_t cut;

	make_file_of_ends(3);
	journal = open_journal(BOOT2, &seen, &cut);
	assert_int_equal(seen.count, 0);
	assert_int_equal(cut, 0);
	append_end(journal, 20);
	append_end(journal, 21);
	journal_close(journal);
	journal_close(open_journal(BOOT2, &seen, NULL));
	expect_ends(&seen, 20, 2);
	journal_close(open_journal(BOOT, &seen, NULL));
	expect_ends(&seen, 1, 3);
}

static void see_many(enum journal_type type, const void *payload, size_t bytes, void *user)
{
	const struct journal_end *end = payload;
	uint64_t *next = user;

	assert_int_equal(type, JOURNAL_END);
	assert_int_equal(end->id, *next);
	++*next;
}

static void test_many_records(void **state)
{
	const uint64_t count = 100000;
	struct journal *journal;
	uint64_t next = 1;

	make_file_of_ends(count);
	assert_int_equal(journal_open(dir, BOOT, see_many, &next, NULL, &journal), 0);
	assert_int_equal(next, count + 1);
	assert_int_equal(journal_get_bytes(journal), count * (HEAD + sizeof(struct journal_end)));
	journal_close(journal);
}

/* ---- damage ---- */

static void test_torn_tail(void **state)
{
	struct journal *journal;
	size_t length, one;
	struct seen seen;
	char *bytes;

	make_file_of_ends(3);
	bytes = temp_read(dir, "journal", &length);
	one = length / 3;
	for (size_t left = 0; left <= length; left++) {
		size_t whole = left / one;
		uint64_t cut = 77;
		temp_write(dir, "journal", bytes, left);
		journal = open_journal(BOOT, &seen, &cut);
		expect_ends(&seen, 1, whole);
		assert_int_equal(cut, left - whole * one);
		assert_int_equal(journal_get_bytes(journal), whole * one);
		append_end(journal, whole + 1);
		journal_close(journal);
		journal_close(open_journal(BOOT, &seen, &cut));
		expect_ends(&seen, 1, whole + 1);
		assert_int_equal(cut, 0);
	}
	free(bytes);
}

/* A crash can also leave the length and no data: zeros behind the last record. */
static void test_zero_tail(void **state)
{
	char path[PATH_MAX];
	struct seen seen;
	uint64_t cut;

	make_file_of_ends(2);
	temp_path(dir, "journal", path);
	assert_int_equal(truncate(path, 4096), 0);
	journal_close(open_journal(BOOT, &seen, &cut));
	expect_ends(&seen, 1, 2);
	assert_int_equal(cut, 4096 - 2 * (HEAD + sizeof(struct journal_end)));
}

/* Every bit of the file: what comes back is a row of true records from the start, up to the one that was hit.
 */
static void test_flipped_bits(void **state)
{
	struct seen seen;
	size_t length, one;
	char *bytes;

	make_file_of_ends(3);
	bytes = temp_read(dir, "journal", &length);
	one = length / 3;
	for (size_t bit = 0; bit < length * 8; bit++) {
		bytes[bit / 8] ^= (char)(1 << bit % 8);
		temp_write(dir, "journal", bytes, length);
		bytes[bit / 8] ^= (char)(1 << bit % 8);
		journal_close(open_journal(BOOT, &seen, NULL));
		expect_ends(&seen, 1, bit / 8 / one);
	}
	free(bytes);
}

static void test_noise(void **state)
{
	unsigned seed = 1;

	for (int round = 0; round < 2000; round++) {
		unsigned char bytes[600];
		size_t length = (unsigned)rand_r(&seed) % sizeof bytes;
		struct seen seen;
		for (size_t i = 0; i < length; i++)
			bytes[i] = (unsigned char)rand_r(&seed);
		if (length > 4 && round % 2)
			memcpy(bytes, &(uint32_t){(uint32_t)length}, 4);
		temp_write(dir, "journal", bytes, length);
		journal_close(open_journal(BOOT, &seen, NULL));
		assert_int_equal(seen.count, 0);
	}
}

/* ---- newer and older hpzd ---- */

static void seal(char *record, size_t length)
{
	uint32_t crc = journal_crc32c(0, record, AT_CRC);

	memcpy(record, &(uint32_t){(uint32_t)length}, 4);
	crc = journal_crc32c(0, record, AT_CRC);
	crc = journal_crc32c(crc, record + AT_VERSION, length - AT_VERSION);
	memcpy(record + AT_CRC, &crc, 4);
}

/* `bytes` as the file is refused, unread and untouched. */
static void expect_refused(const char *bytes, size_t length)
{
	struct journal *journal = NULL;
	struct seen seen = {0};
	uint64_t cut = 77;
	size_t now;
	char *left;

	temp_write(dir, "journal", bytes, length);
	temp_put(dir, "journal.new", "left over");
	assert_int_equal(journal_check_format(dir), -EPROTO);
	assert_int_equal(journal_open(dir, BOOT, see, &seen, &cut, &journal), -EPROTO);
	assert_null(journal);
	assert_int_equal(seen.count, 0);
	assert_int_equal(cut, 77);
	left = temp_read(dir, "journal", &now);
	assert_int_equal(now, length);
	assert_memory_equal(left, bytes, length);
	free(left);
	left = temp_read(dir, "journal.new", NULL);
	assert_string_equal(left, "left over");
	free(left);
}

static void test_newer(void **state)
{
	const size_t one = HEAD + sizeof(struct journal_end);
	size_t length;
	char *bytes, *last, big[4096] = {0};

	make_file_of_ends(3);
	bytes = temp_read(dir, "journal", &length);
	last = bytes + length - one;
	last[AT_VERSION] = 2;
	seal(last, one);
	expect_refused(bytes, length);
	last[AT_VERSION] = 0;
	last[AT_VERSION + 1] = 1;
	seal(last, one);
	expect_refused(bytes, length);
	/* Of another boot it is refused, too, and with a torn tail behind it. */
	last[AT_VERSION] = 2;
	last[AT_VERSION + 1] = 0;
	last[20] = 'x';
	seal(last, one);
	expect_refused(bytes, length);
	memcpy(big, bytes, length);
	expect_refused(big, length + 5);
	/* A type nobody here knows. */
	last[AT_VERSION] = 1;
	last[20] = bytes[20];
	last[AT_TYPE] = 99;
	seal(last, one);
	expect_refused(bytes, length);
	last[AT_TYPE] = 0;
	seal(last, one);
	expect_refused(bytes, length);
	free(bytes);
}

/* A longer struct: as good as ours while the unknown part is zero. */
static void test_longer_payload(void **state)
{
	struct journal_end end = {sizeof end + 24, 0, 7};
	size_t length;
	char *bytes, record[HEAD + sizeof end + 24] = {0};
	struct seen seen;

	make_file_of_ends(1);
	bytes = temp_read(dir, "journal", &length);
	memcpy(record, bytes, HEAD);
	memcpy(record + HEAD, &end, sizeof end);
	seal(record, sizeof record);
	temp_write(dir, "journal", record, sizeof record);
	journal_close(open_journal(BOOT, &seen, NULL));
	expect_ends(&seen, 7, 1);
	assert_int_equal(seen.records[0].bytes, sizeof end);
	end.size = sizeof end;
	assert_memory_equal(seen.records[0].payload, &end, sizeof end);
	record[sizeof record - 1] = 1;
	seal(record, sizeof record);
	expect_refused(record, sizeof record);
	/* A size that cannot be. */
	for (uint32_t size = 0; size < 100; size += size < 4 ? 1 : 37) {
		record[sizeof record - 1] = 0;
		memcpy(record + HEAD, &size, 4);
		seal(record, sizeof record);
		if (size != sizeof end + 24)
			expect_refused(record, sizeof record);
	}
	seal(record, HEAD);
	expect_refused(record, HEAD);
	free(bytes);
}

/* A shorter struct of an older hpzd, with segments behind it. */
static void test_shorter_payload(void **state)
{
	struct {
		uint32_t size, segments;
		uint64_t id;
		struct journal_segment segment;
	} old = {16, 1, 7, {.segment = 9, .node = 3}};
	struct journal_lease lease = {.size = sizeof lease, .segments = 1, .id = 7};
	struct seen seen;
	struct journal *journal = open_journal(BOOT, &seen, NULL);

	assert_int_equal(
		journal_append(journal, JOURNAL_LEASE, &old, 16, &old.segment, sizeof old.segment), 0);
	assert_int_equal(journal_append(journal, JOURNAL_END, &(uint32_t){4}, 4, NULL, 0), 0);
	journal_close(journal);
	journal_close(open_journal(BOOT, &seen, NULL));
	assert_int_equal(seen.count, 2);
	assert_int_equal(seen.records[0].bytes, sizeof lease + sizeof old.segment);
	assert_memory_equal(seen.records[0].payload, &lease, sizeof lease);
	assert_memory_equal(seen.records[0].payload + sizeof lease, &old.segment, sizeof old.segment);
	assert_int_equal(seen.records[1].bytes, sizeof(struct journal_end));
}

/* Whole by its checksum, and yet nothing any hpzd writes. */
static void test_wrong_segment_count(void **state)
{
	static const uint32_t counts[] = {0, 1, 3, JOURNAL_SEGMENTS_MAX + 1, 0x05555557, UINT32_MAX};
	struct journal_lease lease = {.size = sizeof lease, .segments = 2};
	struct journal_segment segments[2] = {{0}};
	struct seen seen;
	size_t length;
	char *bytes;
	struct journal *journal = open_journal(BOOT, &seen, NULL);

	assert_int_equal(
		journal_append(journal, JOURNAL_LEASE, &lease, sizeof lease, segments, sizeof segments), 0);
	journal_close(journal);
	bytes = temp_read(dir, "journal", &length);
	for (size_t i = 0; i < ARRAY_SIZE(counts); i++) {
		memcpy(bytes + HEAD + 4, &counts[i], 4);
		seal(bytes, length);
		expect_refused(bytes, length);
	}
	free(bytes);
}

/* ---- compaction ---- */

static void write_two(struct journal *journal, void *user)
{
	append_end(journal, 100);
	append_end(journal, 101);
}

static void write_nothing(struct journal *journal, void *user)
{
}

static void test_compact(void **state)
{
	struct journal *journal;
	struct seen seen;
	char path[PATH_MAX];

	make_file_of_ends(50);
	temp_put(dir, "journal.new", "left over from a crash");
	journal = open_journal(BOOT, &seen, NULL);
	temp_path(dir, "journal.new", path);
	assert_int_equal(access(path, F_OK), -1);
	assert_int_equal(journal_compact(journal, write_two, NULL), 0);
	assert_int_equal(access(path, F_OK), -1);
	assert_int_equal(journal_get_bytes(journal), 2 * (HEAD + sizeof(struct journal_end)));
	append_end(journal, 102);
	journal_close(journal);
	journal = open_journal(BOOT, &seen, NULL);
	expect_ends(&seen, 100, 3);
	assert_int_equal(journal_compact(journal, write_nothing, NULL), 0);
	assert_int_equal(journal_get_bytes(journal), 0);
	journal_close(journal);
	journal_close(open_journal(BOOT, &seen, NULL));
	assert_int_equal(seen.count, 0);
}

static void write_bad(struct journal *journal, void *user)
{
	struct journal_end end = {sizeof end, 0, 100};

	append_end(journal, 100);
	assert_true(journal_append(journal, JOURNAL_END, &end, 3, NULL, 0) < 0);
	append_end(journal, 101);
}

static void test_compact_with_a_bad_record(void **state)
{
	struct journal *journal;
	struct seen seen;

	make_file_of_ends(3);
	journal = open_journal(BOOT, &seen, NULL);
	assert_int_equal(journal_compact(journal, write_bad, NULL), -EINVAL);
	append_end(journal, 4);
	journal_close(journal);
	journal_close(open_journal(BOOT, &seen, NULL));
	expect_ends(&seen, 1, 4);
}

static void test_wants_compaction(void **state)
{
	const uint64_t one = HEAD + sizeof(struct journal_end);
	struct journal *journal;
	struct seen seen;

	make_file_of_ends((1 << 20) / one); /* just below 1 MiB */
	journal = open_journal(BOOT, &seen, NULL);
	assert_false(journal_wants_compaction(journal, 0));
	append_end(journal, 1);
	assert_true(journal_get_bytes(journal) > 1 << 20);
	assert_true(journal_wants_compaction(journal, 0));
	assert_true(journal_wants_compaction(journal, 200000));
	assert_false(journal_wants_compaction(journal, 300000));
	assert_false(journal_wants_compaction(journal, UINT64_MAX));
	journal_close(journal);
}

/* ---- no room ---- */

static void limit_file_size(rlim_t bytes)
{
	struct rlimit limit;

	assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
	limit.rlim_cur = bytes;
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

/* Room for every number of bytes of the next record but all: it is refused, and the file ends with the one
 * before. */
static void test_no_room(void **state)
{
	const size_t one = HEAD + sizeof(struct journal_end);
	struct journal_end end = {sizeof end, 0, 3};
	struct journal *journal;
	struct seen seen;
	uint64_t cut;

	make_file_of_ends(2);
	journal = open_journal(BOOT, &seen, NULL);
	for (size_t room = 0; room < one; room++) {
		size_t length;
		limit_file_size(2 * one + room);
		assert_true(journal_append(journal, JOURNAL_END, &end, sizeof end, NULL, 0) < 0);
		limit_file_size(RLIM_INFINITY);
		free(temp_read(dir, "journal", &length));
		assert_int_equal(length, 2 * one);
		assert_int_equal(journal_get_bytes(journal), 2 * one);
	}
	append_end(journal, 3);
	journal_close(journal);
	journal_close(open_journal(BOOT, &seen, &cut));
	expect_ends(&seen, 1, 3);
	assert_int_equal(cut, 0);
}

static void try_two(struct journal *journal, void *user)
{
	struct journal_end end = {sizeof end, 0, 100};

	for (int i = 0; i < 2; i++)
		*(int *)user += journal_append(journal, JOURNAL_END, &end, sizeof end, NULL, 0) < 0;
}

/* A writer that does not look at what journal_append() says, and no room for its second record. */
static void test_no_room_to_compact(void **state)
{
	const size_t one = HEAD + sizeof(struct journal_end);
	struct journal *journal;
	struct seen seen;
	char path[PATH_MAX];
	int failed = 0;

	make_file_of_ends(2);
	journal = open_journal(BOOT, &seen, NULL);
	limit_file_size(one + 5);
	assert_int_equal(journal_compact(journal, try_two, &failed) < 0, true);
	limit_file_size(RLIM_INFINITY);
	assert_int_equal(failed, 1);
	temp_path(dir, "journal.new", path);
	assert_int_equal(access(path, F_OK), -1);
	assert_int_equal(journal_get_bytes(journal), 2 * one);
	append_end(journal, 3);
	journal_close(journal);
	journal_close(open_journal(BOOT, &seen, NULL));
	expect_ends(&seen, 1, 3);
}

static void test_tmpfs(void **state)
{
	struct journal *journal;
	struct statfs fs;
	struct seen seen;

	assert_int_equal(statfs(dir, &fs), 0);
	journal = open_journal(BOOT, &seen, NULL);
	assert_int_equal(journal_is_on_tmpfs(journal), fs.f_type == TMPFS_MAGIC);
	journal_close(journal);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_crc32c),
		cmocka_unit_test_setup_teardown(test_new_file, setup, teardown),
		cmocka_unit_test_setup_teardown(test_all_types, setup, teardown),
		cmocka_unit_test_setup_teardown(test_largest_lease, setup, teardown),
		cmocka_unit_test_setup_teardown(test_bad_arguments, setup, teardown),
		cmocka_unit_test_setup_teardown(test_one_at_a_time, setup, teardown),
		cmocka_unit_test_setup_teardown(test_just_forked, setup, teardown),
		cmocka_unit_test_setup_teardown(test_not_a_file, setup, teardown),
		cmocka_unit_test_setup_teardown(test_other_boot, setup, teardown),
		cmocka_unit_test_setup_teardown(test_many_records, setup, teardown),
		cmocka_unit_test_setup_teardown(test_torn_tail, setup, teardown),
		cmocka_unit_test_setup_teardown(test_zero_tail, setup, teardown),
		cmocka_unit_test_setup_teardown(test_flipped_bits, setup, teardown),
		cmocka_unit_test_setup_teardown(test_noise, setup, teardown),
		cmocka_unit_test_setup_teardown(test_newer, setup, teardown),
		cmocka_unit_test_setup_teardown(test_longer_payload, setup, teardown),
		cmocka_unit_test_setup_teardown(test_shorter_payload, setup, teardown),
		cmocka_unit_test_setup_teardown(test_wrong_segment_count, setup, teardown),
		cmocka_unit_test_setup_teardown(test_compact, setup, teardown),
		cmocka_unit_test_setup_teardown(test_compact_with_a_bad_record, setup, teardown),
		cmocka_unit_test_setup_teardown(test_wants_compaction, setup, teardown),
		cmocka_unit_test_setup_teardown(test_no_room, setup, teardown),
		cmocka_unit_test_setup_teardown(test_no_room_to_compact, setup, teardown),
		cmocka_unit_test_setup_teardown(test_tmpfs, setup, teardown),
	};

	signal(SIGXFSZ, SIG_IGN); /* RLIMIT_FSIZE shall be an error of write() */
	return cmocka_run_group_tests_name("journal", tests, NULL, NULL);
}
