/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * fuzz_journal.c - a journal, as a next hpzd reads it, what it makes of it, and that it can write that down
 * again. The first byte, if odd: checksums are put right first, as no search finds them.
 */
#include "fuzz.h"

#include "journal.h"
#include "lease.h"
#include "teardown.h"

#define BOOT "11111111-2222-3333-4444-555555555555"

/* As journal.c has it; those 12 bytes stay for ever. */
#define HEAD_BYTES  56
#define CRC_AT      4
#define AFTER_CRC   8
#define BOOT_AT     16
#define LEAVES_BOOT 2

static void mend(uint8_t *bytes, size_t length, bool leaves_boot)
{
	uint32_t record, crc;

	for (size_t at = 0; length - at >= HEAD_BYTES; at += record) {
		memcpy(&record, bytes + at, sizeof record);
		if (record < HEAD_BYTES || record > length - at)
			return;
		if (!leaves_boot)
			memcpy(bytes + at + BOOT_AT, BOOT, sizeof BOOT - 1);
		crc = journal_crc32c(0, bytes + at, CRC_AT);
		crc = journal_crc32c(crc, bytes + at + AFTER_CRC, record - AFTER_CRC);
		memcpy(bytes + at + CRC_AT, &crc, sizeof crc);
	}
}

/* What one hpzd knows of what it has read. */
struct known {
	struct lease_table leases; /* 128 KiB: made with the first record */
	bool has_leases, reads_leases;
	struct teardown teardown;
	size_t records;
};

static void take_record(enum journal_type type, const void *payload, size_t bytes, void *user)
{
	struct known *known = user;
	uint32_t size;

	memcpy(&size, payload, sizeof size);
	FUZZ_CHECK(
		type >= JOURNAL_LEASE && type <= JOURNAL_HISTOGRAM && size >= sizeof size && size <= bytes);
	if (type == JOURNAL_LEASE) {
		const struct journal_lease *lease = payload;
		FUZZ_CHECK(lease->segments <= JOURNAL_SEGMENTS_MAX);
		FUZZ_CHECK(bytes == sizeof *lease + lease->segments * sizeof(struct journal_segment));
	}
	known->records++;
	if (known->reads_leases) {
		FUZZ_CHECK(known->has_leases || lease_init_table(&known->leases) == 0);
		known->has_leases = true;
		lease_read_record(&known->leases, type, payload, bytes);
	}
	teardown_read_record(&known->teardown, type, payload, bytes);
}

static void init(struct known *known, bool reads_leases)
{
	memset(known, 0, sizeof *known);
	known->reads_leases = reads_leases;
	FUZZ_CHECK(teardown_init(&known->teardown, NULL, NULL) == 0);
}

static void deinit(struct known *known)
{
	if (known->has_leases)
		lease_deinit_table(&known->leases);
	teardown_deinit(&known->teardown);
}

static void check_leases(const struct lease_table *table)
{
	uint64_t last = 0;
	size_t count = 0;

	LIST_FOR_EACH (pos, &table->leases) {
		const struct lease *lease = LEASE_OF(pos);
		FUZZ_CHECK(count++ == 0 || lease->id > last); /* in order, each once */
		FUZZ_CHECK(lease_find(table, lease->id) == lease);
		FUZZ_CHECK(lease->segment_count <= JOURNAL_SEGMENTS_MAX);
		FUZZ_CHECK(strlen(lease->label) <= 128 && strlen(lease->key) <= 128);
		last = lease->id;
	}
	FUZZ_CHECK(count == table->count);
}

/* What is written of it reads back the same. */
static void write_all(struct journal *journal, void *user)
{
	struct known *known = user;

	teardown_write_all(&known->teardown, journal);
}

static void check_again(const char *directory, size_t records)
{
	struct known known;
	struct journal *journal = NULL;
	uint64_t cut = 1;

	init(&known, false);
	FUZZ_CHECK(journal_open(directory, BOOT, take_record, &known, &cut, &journal) == 0);
	FUZZ_CHECK(cut == 0 && known.records == records);
	size_t complete = known.teardown.complete_count, kept = known.teardown.record_count;
	FUZZ_CHECK(journal_compact(journal, write_all, &known) == 0);
	journal_close(journal);
	deinit(&known);

	init(&known, false);
	FUZZ_CHECK(journal_open(directory, BOOT, take_record, &known, &cut, &journal) == 0 && cut == 0);
	FUZZ_CHECK(known.teardown.complete_count == complete && known.teardown.record_count == kept);
	journal_close(journal);
	deinit(&known);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
	struct fuzz_input input = {bytes, length};
	const char *directory = fuzz_get_directory();
	uint8_t how = fuzz_take_byte(&input);
	struct journal_end end = {.size = sizeof end, .id = UINT64_MAX};
	struct known known;
	struct journal *journal = NULL;
	uint64_t cut = 0;
	size_t journal_length;
	_cleanup_free_ uint8_t *text = fuzz_take_bytes(&input, 1 << 20, &journal_length);

	if (how & 1)
		mend(text, journal_length, how & LEAVES_BOOT);
	fuzz_put_file("journal", text, journal_length);
	init(&known, true);
	int format = journal_check_format(directory);
	int r = journal_open(directory, BOOT, take_record, &known, &cut, &journal);
	FUZZ_CHECK(r == format && (r == 0 || r == -EPROTO));
	FUZZ_CHECK(r == 0 || known.records == 0);
	if (r == 0) {
		if (known.has_leases)
			check_leases(&known.leases);
		FUZZ_CHECK(journal_get_bytes(journal) + cut == journal_length);
		FUZZ_CHECK(journal_append(journal, JOURNAL_END, &end, sizeof end, NULL, 0) == 0);
		journal_close(journal);
		check_again(directory, known.records + 1);
	}
	deinit(&known);
	return 0;
}
