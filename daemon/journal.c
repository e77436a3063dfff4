/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * journal.c - the append-only file of records.
 * Owns DIR/journal, and DIR/journal.new while it compacts; holds a lock on DIR as long as it is open. Between
 * calls the file is always a row of whole records. The first 12 bytes of a record (length, checksum, version)
 * stay as they are in every version to come: by them an older hpzd knows a newer record from a torn one.
 */
#include "journal.h"

#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include "metrics.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define JOURNAL_VERSION  1
#define COMPACT_BYTES    (1ull << 20)
#define BOOT_ID          36
#define JOURNAL_NAME     "journal"
#define JOURNAL_NEW_NAME "journal.new"

struct record_head {
	uint32_t length; /* of the record, this head included */
	uint32_t crc;    /* of everything but itself */
	uint16_t version;
	uint16_t type;
	uint32_t reserved;
	char boot_id[BOOT_ID];
	uint32_t reserved2; /* payload begins at a multiple of 8 */
};
_Static_assert(sizeof(struct record_head) == 56, "on disk");
_Static_assert(sizeof(struct journal_segment) == 48, "on disk, has no size of its own: for ever");
_Static_assert(sizeof(struct journal_lease) == 400, "on disk, may grow by 8s: its segments follow at once");
_Static_assert(sizeof(struct journal_state) == 24, "on disk, may grow");
_Static_assert(sizeof(struct journal_owner) == 48, "on disk, may grow");
_Static_assert(sizeof(struct journal_end) == 16, "on disk, may grow");
_Static_assert(sizeof(struct journal_raise) == 72, "on disk, may grow");
_Static_assert(sizeof(struct journal_resize) == 48, "on disk, may grow");
_Static_assert(sizeof(struct journal_demote) == 88, "on disk, may grow");
_Static_assert(sizeof(struct journal_range) == 24, "on disk, may grow");
_Static_assert(sizeof(struct journal_facts) == 40, "on disk, may grow");
_Static_assert(sizeof(struct journal_weak) == 16, "on disk, may grow");
_Static_assert(sizeof(struct journal_orphan) == 256, "on disk, may grow");
_Static_assert(sizeof(struct journal_demand) == 136, "on disk, may grow");
_Static_assert(sizeof(struct journal_reserve) == 256, "on disk, may grow");
_Static_assert(sizeof(struct journal_teardown) == 448, "on disk, may grow");
_Static_assert(sizeof(struct journal_histogram) == 368, "on disk, may grow");

#define LEASE_MAX  (sizeof(struct journal_lease) + JOURNAL_SEGMENTS_MAX * sizeof(struct journal_segment))
#define RECORD_MAX (sizeof(struct record_head) + LEASE_MAX)

struct journal {
	int dir;
	int fd;
	uint64_t bytes;     /* whole records; the file may be longer only while is_torn */
	bool is_torn;       /* a failed append could not be truncated away yet */
	uint64_t compacted; /* bytes after the last compaction: another one gains nothing before it is much
			       more */
	int compact_error;  /* first failure of an append during journal_compact() */
	char boot_id[BOOT_ID];
};

/* ---- crc32c ---- */

uint32_t journal_crc32c_plain(uint32_t crc, const void *bytes, size_t length)
{
	/* Remainders of the 16 half bytes for the reflected polynomial 0x82f63b78. */
	static const uint32_t half[16] = {0x00000000, 0x105ec76f, 0x20bd8ede, 0x30e349b1, 0x417b1dbc,
		0x5125dad3, 0x61c69362, 0x7198540d, 0x82f63b78, 0x92a8fc17, 0xa24bb5a6, 0xb21572c9,
		0xc38d26c4, 0xd3d3e1ab, 0xe330a81a, 0xf36e6f75};
	const unsigned char *p = bytes;

	crc = ~crc;
	for (size_t i = 0; i < length; i++) {
		crc ^= p[i];
		crc = crc >> 4 ^ half[crc & 15];
		crc = crc >> 4 ^ half[crc & 15];
	}
	return ~crc;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) static uint32_t crc32c_sse42(uint32_t crc, const void *bytes, size_t length)
{
	const unsigned char *p = bytes;
	uint64_t sum = ~crc;

	for (; length >= 8; p += 8, length -= 8) {
		uint64_t word;
		memcpy(&word, p, 8);
		sum = _mm_crc32_u64(sum, word);
	}
	for (; length; p++, length--)
		sum = _mm_crc32_u8((uint32_t)sum, *p);
	return ~(uint32_t)sum;
}
#endif

uint32_t journal_crc32c(uint32_t crc, const void *bytes, size_t length)
{
#if defined(__x86_64__)
	if (__builtin_cpu_supports("sse4.2"))
		return crc32c_sse42(crc, bytes, length);
#endif
	return journal_crc32c_plain(crc, bytes, length);
}

/* Of a whole record, its own field left out. */
static uint32_t get_record_crc(const unsigned char *record, size_t length)
{
	const size_t after = offsetof(struct record_head, version);
	uint32_t crc = journal_crc32c(0, record, offsetof(struct record_head, crc));

	return journal_crc32c(crc, record + after, length - after);
}

/* ---- records ---- */

static size_t get_struct_size(enum journal_type type)
{
	switch (type) {
	case JOURNAL_LEASE:
		return sizeof(struct journal_lease);
	case JOURNAL_STATE:
		return sizeof(struct journal_state);
	case JOURNAL_OWNER:
		return sizeof(struct journal_owner);
	case JOURNAL_END:
		return sizeof(struct journal_end);
	case JOURNAL_RAISE:
		return sizeof(struct journal_raise);
	case JOURNAL_RANGE:
		return sizeof(struct journal_range);
	case JOURNAL_FACTS:
		return sizeof(struct journal_facts);
	case JOURNAL_WEAK:
		return sizeof(struct journal_weak);
	case JOURNAL_ORPHAN:
		return sizeof(struct journal_orphan);
	case JOURNAL_DEMAND:
		return sizeof(struct journal_demand);
	case JOURNAL_RESERVE:
		return sizeof(struct journal_reserve);
	case JOURNAL_RESIZE:
		return sizeof(struct journal_resize);
	case JOURNAL_DEMOTE:
		return sizeof(struct journal_demote);
	case JOURNAL_TEARDOWN:
		return sizeof(struct journal_teardown);
	case JOURNAL_HISTOGRAM:
		return sizeof(struct journal_histogram);
	}
	return 0;
}

/* Length of the whole record at `bytes`, 0 when there is none. Says nothing of what it means. */
static size_t find_record(const unsigned char *bytes, size_t available)
{
	struct record_head head;

	if (available < sizeof head)
		return 0;
	memcpy(&head, bytes, sizeof head);
	if (head.length < sizeof head || head.length > available ||
		head.crc != get_record_crc(bytes, head.length))
		return 0;
	return head.length;
}

static bool is_all_zero(const unsigned char *bytes, size_t length)
{
	for (size_t i = 0; i < length; i++)
		if (bytes[i])
			return false;
	return true;
}

/*
 * The payload of a whole record as this hpzd knows it. 0, or -EPROTO: written by a newer one, or by none.
 */
static int read_record(const unsigned char *record, struct record_head *ret_head,
	unsigned char payload[LEASE_MAX], size_t *ret_bytes)
{
	struct record_head head;
	uint32_t size = 0, segments = 0;
	size_t known, left, extra;

	memcpy(&head, record, sizeof head);
	known = get_struct_size((enum journal_type)head.type);
	left = head.length - sizeof head;
	record += sizeof head;
	if (head.version > JOURNAL_VERSION || !known || left < sizeof size)
		return -EPROTO;
	memcpy(&size, record, sizeof size);
	if (size < sizeof size || size > left || (size > known && !is_all_zero(record + known, size - known)))
		return -EPROTO;
	memset(payload, 0, known);
	memcpy(payload, record, MIN(size, known));
	memcpy(payload, &(uint32_t){(uint32_t)known}, sizeof size);
	if (head.type == JOURNAL_LEASE)
		segments = ((const struct journal_lease *)(const void *)payload)->segments;
	extra = segments * sizeof(struct journal_segment);
	if (segments > JOURNAL_SEGMENTS_MAX || left - size != extra)
		return -EPROTO;
	memcpy(payload + known, record + size, extra);
	*ret_head = head;
	*ret_bytes = known + extra;
	return 0;
}

/* Goes through all whole records; `callback` NULL only looks. *ret_whole: where they end. */
static int scan(const unsigned char *bytes, size_t length, const char *boot_id, journal_read_cb callback,
	void *user, size_t *ret_whole)
{
	_Alignas(8) unsigned char payload[LEASE_MAX];
	struct record_head head;
	size_t at = 0, record, payload_bytes;

	while ((record = find_record(bytes + at, length - at))) {
		int r = read_record(bytes + at, &head, payload, &payload_bytes);
		if (r < 0)
			return r;
		if (callback && memcmp(head.boot_id, boot_id, BOOT_ID) == 0)
			callback((enum journal_type)head.type, payload, payload_bytes, user);
		at += record;
	}
	*ret_whole = at;
	return 0;
}

/* ---- files ---- */

static int read_all(int fd, unsigned char **ret_bytes, size_t *ret_length)
{
	_cleanup_free_ unsigned char *bytes = NULL;
	struct stat st;
	size_t length = 0, size;

	if (fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -EBADF;
	size = (size_t)st.st_size;
	bytes = malloc(size + 1);
	if (!bytes)
		return -ENOMEM;
	while (length < size) {
		ssize_t n = pread(fd, bytes + length, size - length, (off_t)length);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			break;
		length += (size_t)n;
	}
	*ret_bytes = steal_pointer(&bytes);
	*ret_length = length;
	return 0;
}

static int open_dir(const char *dir)
{
	_cleanup_fd_ int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	int r = lock_fd_exclusive(fd, LOCK_WAIT_MS);
	if (r < 0)
		return r == -EWOULDBLOCK ? -EBUSY : r;
	return steal_fd(&fd);
}

static int open_file(int dir, const char *name, int flags)
{
	int fd = openat(dir, name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | flags, 0600);

	return fd < 0 ? -errno : fd;
}

/* Reads, checks all of it, and only then calls back and cuts. */
static int load(struct journal *journal, journal_read_cb callback, void *user, uint64_t *ret_cut)
{
	_cleanup_free_ unsigned char *bytes = NULL;
	size_t length = 0, whole = 0;
	int r = read_all(journal->fd, &bytes, &length);

	if (r == 0)
		r = scan(bytes, length, journal->boot_id, NULL, NULL, &whole);
	if (r < 0)
		return r;
	if (whole < length && ftruncate(journal->fd, (off_t)whole) < 0)
		return -errno;
	if (unlinkat(journal->dir, JOURNAL_NEW_NAME, 0) < 0 && errno != ENOENT)
		return -errno;
	journal->bytes = whole;
	r = scan(bytes, whole, journal->boot_id, callback, user, &whole);
	if (r == 0 && ret_cut)
		*ret_cut = length - journal->bytes;
	return r;
}

int journal_dup(const struct journal *journal, int *ret_fd, uint64_t *ret_bytes)
{
	int fd = fcntl(journal->fd, F_DUPFD_CLOEXEC, 3);

	if (fd < 0)
		return -errno;
	*ret_fd = fd;
	*ret_bytes = journal->bytes;
	return 0;
}

int journal_read(int fd, uint64_t bytes, const char *boot_id, journal_read_cb callback, void *user)
{
	_cleanup_free_ unsigned char *text = NULL;
	size_t length = 0, whole = 0;
	int r = read_all(fd, &text, &length);

	if (r < 0)
		return r;
	if (length < bytes)
		return -EBADMSG;
	r = scan(text, (size_t)bytes, boot_id, callback, user, &whole);
	return r == 0 && whole != bytes ? -EBADMSG : r;
}

int journal_check_format(const char *dir)
{
	char path[PATH_MAX];
	_cleanup_free_ unsigned char *bytes = NULL;
	size_t length = 0, whole = 0;

	if ((size_t)snprintf(path, sizeof path, "%s/" JOURNAL_NAME, dir) >= sizeof path)
		return -ENAMETOOLONG;
	_cleanup_fd_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (fd < 0)
		return errno == ENOENT ? 0 : -errno;
	int r = read_all(fd, &bytes, &length);
	return r < 0 ? r : scan(bytes, length, NULL, NULL, NULL, &whole);
}

static void cleanup_journal(struct journal **journal)
{
	journal_close(*journal);
}

int journal_open(const char *dir, const char *boot_id, journal_read_cb callback, void *user,
	uint64_t *ret_cut, struct journal **ret_journal)
{
	__attribute__((cleanup(cleanup_journal))) struct journal *journal = calloc(1, sizeof *journal);
	int r;

	if (!journal)
		return -ENOMEM;
	journal->dir = journal->fd = -1;
	if (strlen(boot_id) != BOOT_ID)
		return -EINVAL;
	memcpy(journal->boot_id, boot_id, BOOT_ID);
	journal->dir = open_dir(dir);
	if (journal->dir < 0)
		return journal->dir;
	journal->fd = open_file(journal->dir, JOURNAL_NAME, 0);
	if (journal->fd < 0)
		return journal->fd;
	r = load(journal, callback, user, ret_cut);
	if (r < 0)
		return r;
	*ret_journal = steal_pointer(&journal);
	return 0;
}

void journal_close(struct journal *journal)
{
	if (!journal)
		return;
	close_fd(journal->fd);
	close_fd(journal->dir);
	free(journal);
}

/* ---- appending ---- */

static size_t make_record(const struct journal *journal, enum journal_type type, const void *payload,
	size_t bytes, const void *extra, size_t extra_bytes, unsigned char record[RECORD_MAX])
{
	struct record_head head = {.version = JOURNAL_VERSION, .type = (uint16_t)type};
	size_t length = sizeof head + bytes + extra_bytes;

	head.length = (uint32_t)length;
	memcpy(head.boot_id, journal->boot_id, BOOT_ID);
	memcpy(record + sizeof head, payload, bytes);
	if (extra_bytes)
		memcpy(record + sizeof head + bytes, extra, extra_bytes);
	memcpy(record, &head, sizeof head);
	head.crc = get_record_crc(record, length);
	memcpy(record + offsetof(struct record_head, crc), &head.crc, sizeof head.crc);
	return length;
}

/* Part of a record at the end would hide all that follows it from the next reader. */
static int cut_tail(struct journal *journal)
{
	if (!journal->is_torn)
		return 0;
	if (ftruncate(journal->fd, (off_t)journal->bytes) < 0)
		return -errno;
	journal->is_torn = false;
	return 0;
}

static int write_record(struct journal *journal, const unsigned char *record, size_t length)
{
	ssize_t n;
	int r = cut_tail(journal);

	if (r < 0)
		return r;
	do
		n = pwrite(journal->fd, record, length, (off_t)journal->bytes);
	while (n < 0 && errno == EINTR);
	if (n == (ssize_t)length) {
		journal->bytes += length;
		return 0;
	}
	r = n < 0 ? -errno : -ENOSPC;
	journal->is_torn = true;
	cut_tail(journal); /* when this fails too, the next append tries again first */
	return r;
}

static int append(struct journal *journal, enum journal_type type, const void *payload, size_t bytes,
	const void *extra, size_t extra_bytes)
{
	unsigned char record[RECORD_MAX];
	uint32_t size;

	if (bytes < sizeof size || bytes > LEASE_MAX || extra_bytes > LEASE_MAX - bytes)
		return -EINVAL;
	memcpy(&size, payload, sizeof size);
	if (size != bytes || !get_struct_size(type))
		return -EINVAL;
	return write_record(
		journal, record, make_record(journal, type, payload, bytes, extra, extra_bytes, record));
}

int journal_append(struct journal *journal, enum journal_type type, const void *payload, size_t bytes,
	const void *extra, size_t extra_bytes)
{
	int r = append(journal, type, payload, bytes, extra, extra_bytes);

	metrics_add(r < 0 ? METRICS_JOURNAL_ERRORS : METRICS_JOURNAL_RECORDS, METRICS_NO_LABEL, 1);
	if (r < 0 && journal->compact_error == 0)
		journal->compact_error = r;
	return r;
}

/* ---- compacting ---- */

int journal_compact(struct journal *journal, void (*writer)(struct journal *journal, void *user), void *user)
{
	_cleanup_fd_ int fd = open_file(journal->dir, JOURNAL_NEW_NAME, O_TRUNC);
	struct journal old = *journal;
	int r;

	if (fd < 0)
		return fd;
	journal->fd = fd;
	journal->bytes = 0;
	journal->is_torn = false;
	journal->compact_error = 0;
	writer(journal, user);
	r = journal->compact_error;
	if (r == 0 &&
		(fsync(fd) < 0 || renameat(journal->dir, JOURNAL_NEW_NAME, journal->dir, JOURNAL_NAME) < 0))
		r = -errno;
	if (r < 0) {
		*journal = old;
		unlinkat(journal->dir, JOURNAL_NEW_NAME, 0);
		return r;
	}
	journal->compacted = journal->bytes;
	fsync(journal->dir); /* the old file under the name after a power cut is of another boot, then */
	close_fd(old.fd);
	steal_fd(&fd);
	return 0;
}

bool journal_wants_compaction(const struct journal *journal, uint64_t live_bytes)
{
	return journal->bytes > COMPACT_BYTES && journal->bytes / 4 > MAX(live_bytes, journal->compacted);
}

uint64_t journal_get_bytes(const struct journal *journal)
{
	return journal->bytes;
}

bool journal_is_on_tmpfs(const struct journal *journal)
{
	struct statfs fs;

	return fstatfs(journal->fd, &fs) == 0 && (fs.f_type == TMPFS_MAGIC || fs.f_type == RAMFS_MAGIC);
}
