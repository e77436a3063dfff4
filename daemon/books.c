/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* books.c - whether the books balance: see books.h. */
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>

#include "books.h"
#include "log.h"

#define SLICE_FILES   128 /* some 4 us each (6.18): half a millisecond; walking 10,000 takes 0.1 */
#define SLICE_NAMES   128 /* 10 us each when all are foreign */
#define SLICE_REPAIRS 32
#define SLICE_SEEN    512 /* findings of the second look among 4096 of the first: 0.4 us each */
#define SLICE_LINKS   8   /* each looks for its lease among all: 100 us of 10,000 */
/* Not 0: libuv (1.44) runs a timer that is due at once in the same turn, and nobody is served between two. */
#define PAUSE_MS       1
#define SECOND_LOOK_MS 300
#define REMOVE_MS      10000 /* of one name, by a helper that a client may hold up */

/* What a look goes through, in this order. */
enum step {
	STEP_NAMES,   /* directories against memory */
	STEP_FILES,   /* every file of a pool */
	STEP_LEASES,  /* memory against itself */
	STEP_JOURNAL, /* leases against the journal, which a thread reads */
	STEP_OUT,     /* names of hand-over directories against leases: one mount a slice */
	STEP_LINKS,   /* what is in them */
	STEP_KERNEL,
	STEP_END,
};

/* What the journal is to say of a lease. */
struct expected {
	uint64_t id, segment; /* the first of its segments; 0: back already */
	uint32_t state, uid;
	int32_t pid;
	bool is_found;
};

struct books_run {
	struct books *books;
	bool repairs, is_second;
	enum step step;
	size_t pool; /* of this step */
	enum segment_state state;
	bool has_begun;            /* with the kernel's counters of a pool */
	uint64_t in_use, vanished; /* of it: pages for the kernel then; of files that a helper unlinks */
	DIR *scan;                 /* of the directory of that state; NULL: not begun */
	struct list *store;
	uint64_t stamp;
	struct books_list first, now;
	uint64_t segments, leases;

	/* hand-over directories of the mount at `store` */
	char (*tokens)[SEGMENT_TOKEN + 1];
	size_t token_count, token_capacity, token_at;

	/* the thread's, while it reads */
	uv_work_t work;
	struct expected *expected;
	size_t expected_count;
	int journal_fd;
	uint64_t journal_bytes;
	char boot_id[37];
	struct lease_table shadow;

	/* the second look's findings among those of the first */
	bool is_sorted;
	size_t seen_at, kept;

	/* repair */
	bool is_confirmed, is_compacted;
	size_t repair_at;
	unsigned jobs;
	bool is_stale; /* begin anew when the thread is done */
};

static void on_slice(uv_timer_t *timer);
static void start_pass(struct books_run *run);
static uint64_t next_stamp;

/* ---- findings ---- */

static void free_list(struct books_list *list)
{
	free(list->findings);
	*list = (struct books_list){0};
}

static struct books_finding *add_finding(struct books_run *run, uint32_t kind, uint32_t severity,
	const struct pool *pool, const char *key, const char *format, ...) PRINTF(6, 7);

/* Never NULL: what there is no room for is counted, and written to a place that nobody reads. */
static struct books_finding *add_finding(struct books_run *run, uint32_t kind, uint32_t severity,
	const struct pool *pool, const char *key, const char *format, ...)
{
	static struct books_finding nowhere;
	struct books_list *list = &run->now;
	struct books_finding *finding = &nowhere;
	if (list->count == list->capacity && list->capacity < BOOKS_FINDINGS_MAX) {
		size_t capacity = MAX(list->capacity * 2, 16u);
		struct books_finding *more = reallocarray(list->findings, capacity, sizeof *more);
		if (more) {
			list->findings = more;
			list->capacity = capacity;
		}
	}
	if (list->count < list->capacity)
		finding = &list->findings[list->count++];
	else
		list->dropped++;
	*finding = (struct books_finding){.kind = kind, .severity = severity, .dir = -1};
	snprintf(finding->key, sizeof finding->key, "%s", key);
	if (pool)
		snprintf(finding->pool, sizeof finding->pool, "%s", pool->name);
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(finding->text, sizeof finding->text, format, arguments);
	va_end(arguments);
	return finding;
}

static int compare_findings(const void *a, const void *b)
{
	const struct books_finding *x = a, *y = b;
	if (x->kind != y->kind)
		return x->kind < y->kind ? -1 : 1;
	int order = strcmp(x->key, y->key);
	return order ? order : strcmp(x->pool, y->pool);
}

/* 2 ms of 4096: in the thread that reads the journal for the second look. */
static void sort_first(struct books_run *run)
{
	if (!run->is_sorted && run->first.count > 0)
		qsort(run->first.findings, run->first.count, sizeof *run->first.findings, compare_findings);
	run->is_sorted = true;
}

/* Of the second look only what the first one saw, too; a slice of it. True: all was. */
static bool keep_some_confirmed(struct books_run *run)
{
	sort_first(run);
	for (unsigned i = 0; i < SLICE_SEEN && run->seen_at < run->now.count; i++) {
		const struct books_finding *finding = &run->now.findings[run->seen_at++];
		if (!bsearch(finding, run->first.findings, run->first.count, sizeof *finding,
			    compare_findings))
			continue;
		if (finding != &run->now.findings[run->kept])
			run->now.findings[run->kept] = *finding;
		run->kept++;
	}
	if (run->seen_at < run->now.count)
		return false;
	run->now.count = run->kept;
	return true;
}

/* ---- the cheap look ---- */

static const char *check_pool_counts(const struct pool *pool, char ret_text[320])
{
	uint64_t segments[SEGMENT_STATE_COUNT] = {0}, pages[SEGMENT_STATE_COUNT] = {0};
	LIST_FOR_EACH (pos, &pool->classes) {
		const struct pool_class *class = CONTAINER_OF(pos, struct pool_class, link);
		for (size_t i = 0; i < SEGMENT_STATE_COUNT; i++) {
			segments[i] += class->counts[i];
			pages[i] += class->counts[i] * class->pages;
		}
	}
	for (size_t i = 0; i < SEGMENT_STATE_COUNT; i++) {
		if (segments[i] == pool->segments[i])
			continue;
		snprintf(ret_text, 320, "pool %s: %" PRIu64 " segments are %s, but its classes have %" PRIu64,
			pool->name, pool->segments[i], segment_get_state_name((enum segment_state)i),
			segments[i]);
		return ret_text;
	}
	/* Clean is whole, so pages and lengths must agree; what is being filled has at most its length. */
	if (pool->pages[SEGMENT_CLEAN] == pages[SEGMENT_CLEAN] &&
		pool->pages[SEGMENT_FILLING] <= pages[SEGMENT_FILLING])
		return NULL;
	snprintf(ret_text, 320,
		"pool %s: %" PRIu64 " pages are clean in segments of %" PRIu64 ", %" PRIu64
		" are being filled in segments of %" PRIu64,
		pool->name, pool->pages[SEGMENT_CLEAN], pages[SEGMENT_CLEAN], pool->pages[SEGMENT_FILLING],
		pages[SEGMENT_FILLING]);
	return ret_text;
}

static const char *check_counts(const struct reconcile *reconcile, char ret_text[320])
{
	uint64_t leased = 0;
	for (size_t i = 0; i < reconcile->pool_count; i++) {
		const char *text = check_pool_counts(reconcile->pools[i], ret_text);
		if (text)
			return text;
		leased += reconcile->pools[i]->segments[SEGMENT_LEASED] - reconcile->pools[i]->stranded;
	}
	if (leased == reconcile->leases->segments_out)
		return NULL;
	snprintf(ret_text, 320, "%" PRIu64 " segments are leased, but leases have %" PRIu64, leased,
		reconcile->leases->segments_out);
	return ret_text;
}

void books_look(struct books *books)
{
	char text[320];
	const char *now = check_counts(books->reconcile, text);
	if (!now)
		now = "";
	if (strcmp(books->counts, now) == 0)
		return;
	if (*now) {
		books->alarms++;
		log_error("the books do not balance: %s", now);
		snprintf(books->message, sizeof books->message, "the books do not balance: %s", now);
	} else {
		log_info("the books balance again");
		books->message[0] = '\0';
	}
	snprintf(books->counts, sizeof books->counts, "%s", now);
}

/* ---- names ---- */

static void check_name(struct books_run *run, const struct pool *pool, const char *text)
{
	const char *state = segment_get_state_name(run->state);
	char key[SEGMENT_NAME_MAX + 32];
	if (pool_find_named(pool, run->state, text))
		return;
	/* Read some time ago, in one go with others. */
	if (faccessat(pool->dirs.fds[run->state], text, F_OK, AT_SYMLINK_NOFOLLOW) < 0)
		return;
	snprintf(key, sizeof key, "%s/%.100s", state, text);
	struct books_finding *finding = add_finding(run, HPZ_FINDING_FOREIGN, HPZ_SEVERITY_DIFFERENCE, pool,
		key, "%s/%.200s is in no book of hpzd", state, text);
	finding->dir = pool->dirs.fds[run->state];
	snprintf(finding->name, sizeof finding->name, "%s", text);
}

/* Names that have no segment; segments that have no name show when their files are looked at. A slice of one
 * state of one pool. True: that was all of it. */
static bool check_some_names(struct books_run *run, const struct pool *pool)
{
	const char *state = segment_get_state_name(run->state);
	if (!run->scan)
		run->scan = segment_start_scan(&pool->dirs, run->state);
	if (!run->scan) {
		add_finding(run, HPZ_FINDING_MISSING, HPZ_SEVERITY_DIFFERENCE, pool, state,
			"%s/ cannot be read: %s", state, strerror(errno));
		return true;
	}
	for (unsigned i = 0; i < SLICE_NAMES; i++) {
		const char *text = segment_scan_next(run->scan);
		if (!text) {
			closedir(steal_pointer(&run->scan));
			return true;
		}
		check_name(run, pool, text);
	}
	return false;
}

static void report_missing(struct books_run *run, const struct pool_segment *segment)
{
	char name[SEGMENT_NAME_MAX], key[SEGMENT_NAME_MAX + 32];
	const char *state = segment_get_state_name(segment->state);
	pool_get_segment_name(segment, name);
	snprintf(key, sizeof key, "%s/%s", state, name);
	struct books_finding *finding = add_finding(run, HPZ_FINDING_MISSING, HPZ_SEVERITY_DIFFERENCE,
		segment->pool, key, "%s/%s is gone, but hpzd counts its %" PRIu64 " pages", state, name,
		segment->allocated);
	finding->segment = segment->id;
}

/* ---- files ---- */

static bool is_shielded(const struct segment_stat *st)
{
	return st->uid == segment_get_uid() && st->mode == 0 && st->links == 1;
}

static void check_leased_file(struct books_run *run, const struct pool_segment *segment, const char *key,
	const struct segment_stat *st)
{
	const struct lease *lease = lease_find_of(run->books->reconcile->leases, segment);
	if (!lease || lease->state == HPZ_STATE_RETURNING)
		return; /* STEP_LEASES; its shields go up sooner or later */
	bool is_private = lease->deliver == HPZ_DELIVER_FD && !(lease->flags & HPZ_LEASE_REOPENABLE) &&
			  !lease->is_unknown;
	if (is_private && !is_shielded(st))
		add_finding(run, HPZ_FINDING_WRONG, HPZ_SEVERITY_DIFFERENCE, segment->pool, key,
			"%s is to be root's, mode 0, with one link, but is uid %u's, mode %04o, with "
			"%" PRIu64,
			key, (unsigned)st->uid, (unsigned)st->mode, st->links);
	if (st->pages < segment->given)
		add_finding(run, HPZ_FINDING_WRONG, HPZ_SEVERITY_NOTICE, segment->pool, key,
			"%s was cut to %" PRIu64 " pages by its holder, who was given %" PRIu64, key,
			st->pages, segment->given);
	if (st->pages > segment->pages || st->allocated > segment->pages)
		add_finding(run, HPZ_FINDING_WRONG, HPZ_SEVERITY_NOTICE, segment->pool, key,
			"%s was grown to %" PRIu64 " pages by its holder, %" PRIu64
			" of them allocated; it was given %" PRIu64,
			key, st->pages, st->allocated, segment->given);
}

static void check_own_file(
	struct books_run *run, struct pool_segment *segment, const char *key, const struct segment_stat *st)
{
	struct books_finding *finding;
	if (segment->is_busy)
		return; /* a worker changes it just now */
	if (!is_shielded(st)) {
		finding = add_finding(run, HPZ_FINDING_WRONG, HPZ_SEVERITY_DIFFERENCE, segment->pool, key,
			"%s is to be root's, mode 0, with one link, but is uid %u's, mode %04o, with "
			"%" PRIu64,
			key, (unsigned)st->uid, (unsigned)st->mode, st->links);
		finding->segment = segment->id;
	}
	if (segment->state == SEGMENT_CLEAN && st->pages != segment->pages) {
		finding = add_finding(run, HPZ_FINDING_WRONG, HPZ_SEVERITY_DIFFERENCE, segment->pool, key,
			"%s is to have %" PRIu64 " pages, but is %" PRIu64 " long", key, segment->pages,
			st->pages);
		finding->segment = segment->id;
	}
	if (st->allocated != segment->allocated) {
		finding = add_finding(run, HPZ_FINDING_BLOCKS, HPZ_SEVERITY_DIFFERENCE, segment->pool, key,
			"%s has %" PRIu64 " pages of the kernel, but hpzd counts %" PRIu64, key,
			st->allocated, segment->allocated);
		finding->segment = segment->id;
	}
}

static void check_file(struct books_run *run, struct pool_segment *segment)
{
	char name[SEGMENT_NAME_MAX], key[SEGMENT_NAME_MAX + 32];
	struct segment_stat st;
	pool_get_segment_name(segment, name);
	snprintf(key, sizeof key, "%s/%s", segment_get_state_name(segment->state), name);
	run->segments++;
	int r = segment_stat_at(segment->pool->store, &segment->pool->dirs, segment->state, name, &st);
	if (r < 0) {
		/* A helper unlinks it right now: the second look will not find it any more. */
		report_missing(run, segment);
		return;
	}
	if (segment->state == SEGMENT_LEASED) {
		check_leased_file(run, segment, key, &st);
		pool_refresh(segment); /* what its holder punches or takes is no difference */
	} else {
		check_own_file(run, segment, key, &st);
	}
}

/*
 * A slice of the pool's files. Segments come and go between slices, so there is no place to go on from: those
 * that had their turn are stamped. True: all had.
 */
static bool check_some_files(struct books_run *run, struct pool *pool)
{
	unsigned left = SLICE_FILES;
	POOL_FOR_EACH (pos, pool) {
		struct pool_class *class = CONTAINER_OF(pos, struct pool_class, link);
		for (size_t i = 0; i < SEGMENT_STATE_COUNT; i++) {
			LIST_FOR_EACH (entry, &class->segments[i]) {
				struct pool_segment *segment = CONTAINER_OF(entry, struct pool_segment, link);
				if (segment->stamp == run->stamp)
					continue;
				if (left-- == 0)
					return false;
				segment->stamp = run->stamp;
				check_file(run, segment);
			}
		}
	}
	return true;
}

/* ---- leases ---- */

static const char *format_lease(uint64_t id, char ret_key[64])
{
	snprintf(ret_key, 64, "lease %" PRIu64, id);
	return ret_key;
}

static void check_lease(struct books_run *run, const struct lease *lease)
{
	size_t out = 0;
	char key[64];
	for (size_t i = 0; i < lease->segment_count; i++) {
		const struct pool_segment *segment = lease->segments[i];
		if (!segment)
			continue;
		out++;
		uint64_t name = lease->split_from ? lease->split_from : lease->id;
		if (segment->lease != name || segment->index != lease->first_index + i ||
			segment->state != SEGMENT_LEASED)
			add_finding(run, HPZ_FINDING_COUNTS, HPZ_SEVERITY_DIFFERENCE, segment->pool,
				format_lease(lease->id, key),
				"lease %" PRIu64 " has segment %" PRIu64
				", which is %s and of lease %" PRIu64,
				lease->id, segment->id, segment_get_state_name(segment->state),
				segment->lease);
	}
	if (out != lease->segments_out)
		add_finding(run, HPZ_FINDING_COUNTS, HPZ_SEVERITY_DIFFERENCE, NULL,
			format_lease(lease->id, key), "lease %" PRIu64 " counts %zu segments, but has %zu",
			lease->id, lease->segments_out, out);
	if (lease->counted_bytes != lease_get_given(lease))
		add_finding(run, HPZ_FINDING_COUNTS, HPZ_SEVERITY_DIFFERENCE, NULL,
			format_lease(lease->id, key),
			"lease %" PRIu64 " counts as %" PRIu64 " bytes of uid %" PRIu32
			"'s, but has %" PRIu64,
			lease->id, lease->counted_bytes, lease->uid, lease_get_given(lease));
}

static void check_leases(struct books_run *run)
{
	const struct reconcile *reconcile = run->books->reconcile;
	char text[320];
	uint64_t unknown = 0;
	const char *wrong = check_counts(reconcile, text);
	if (wrong)
		add_finding(run, HPZ_FINDING_COUNTS, HPZ_SEVERITY_DIFFERENCE, NULL, "counts", "%s", wrong);
	LIST_FOR_EACH (pos, &reconcile->leases->leases) {
		check_lease(run, LEASE_OF(pos));
		run->leases++;
		unknown += LEASE_OF(pos)->is_unknown;
	}
	if (unknown > 0)
		add_finding(run, HPZ_FINDING_JOURNAL, HPZ_SEVERITY_NOTICE, NULL, "unknown",
			"%" PRIu64 " leases are in no journal: their owners are not known, and they end when "
			"nobody has them any more",
			unknown);
}

/* ---- the journal ---- */

static void read_journal_record(enum journal_type type, const void *payload, size_t bytes, void *user)
{
	lease_read_record(user, type, payload, bytes);
}

static void compare_lease(struct books_run *run, struct expected *expected)
{
	const struct lease *lease = lease_find(&run->shadow, expected->id);
	char key[64];
	if (!lease)
		add_finding(run, HPZ_FINDING_JOURNAL, HPZ_SEVERITY_DIFFERENCE, NULL,
			format_lease(expected->id, key), "lease %" PRIu64 " is not in the journal",
			expected->id);
	else if (lease->uid != expected->uid || lease->pid != expected->pid ||
		 (uint32_t)lease->state != expected->state)
		add_finding(run, HPZ_FINDING_JOURNAL, HPZ_SEVERITY_DIFFERENCE, NULL,
			format_lease(expected->id, key),
			"lease %" PRIu64 " is uid %" PRIu32 "'s, of process %" PRId32 " and in state %" PRIu32
			", but for the journal uid %" PRIu32 "'s, of process %" PRId32
			" and in state %" PRIu32,
			expected->id, expected->uid, expected->pid, expected->state, lease->uid, lease->pid,
			(uint32_t)lease->state);
	else if (expected->segment && lease->segment_count > 0 && lease->recorded &&
		 lease->recorded[0].segment != expected->segment)
		add_finding(run, HPZ_FINDING_JOURNAL, HPZ_SEVERITY_DIFFERENCE, NULL,
			format_lease(expected->id, key),
			"lease %" PRIu64 " has segment %" PRIu64 ", but for the journal %" PRIu64,
			expected->id, expected->segment, lease->recorded[0].segment);
}

static int compare_expected(const void *a, const void *b)
{
	const struct expected *x = a, *y = b;
	return (x->id > y->id) - (x->id < y->id);
}

/* Both are ordered by id. */
static void compare_journal(struct books_run *run)
{
	for (size_t i = 0; i < run->expected_count; i++)
		compare_lease(run, &run->expected[i]);
	LIST_FOR_EACH (pos, &run->shadow.leases) {
		struct expected wanted = {.id = LEASE_OF(pos)->id};
		char key[64];
		if (run->expected_count > 0 &&
			bsearch(&wanted, run->expected, run->expected_count, sizeof wanted, compare_expected))
			continue;
		add_finding(run, HPZ_FINDING_JOURNAL, HPZ_SEVERITY_DIFFERENCE, NULL,
			format_lease(wanted.id, key),
			"the journal has lease %" PRIu64 ", which hpzd does not know", wanted.id);
	}
}

/* In a thread, and the comparison with it: 10,000 leases take some 10 ms. Nothing of hpzd's state is touched:
 * until the answer the findings are the thread's. */
static void read_journal(uv_work_t *work)
{
	struct books_run *run = work->data;
	int r = journal_read(
		run->journal_fd, run->journal_bytes, run->boot_id, read_journal_record, &run->shadow);
	if (r < 0)
		add_finding(run, HPZ_FINDING_JOURNAL, HPZ_SEVERITY_DIFFERENCE, NULL, "journal",
			"the journal cannot be read: %s", strerror(-r));
	else
		compare_journal(run);
	lease_deinit_table(&run->shadow);
	if (run->is_second)
		sort_first(run);
}

static void free_journal(struct books_run *run)
{
	if (run->shadow.hash)
		lease_deinit_table(&run->shadow);
	run->journal_fd = close_fd(run->journal_fd);
	free(steal_pointer(&run->expected));
}

static void free_run(struct books_run *run)
{
	free_list(&run->first);
	free_list(&run->now);
	free(run->tokens);
	if (run->scan)
		closedir(run->scan);
	free(run);
}

static void on_journal_read(uv_work_t *work, int status)
{
	struct books_run *run = work->data;
	struct books *books = run->books;
	free_journal(run);
	if (books->is_stopping) {
		books->run = NULL;
		free_run(run);
		return;
	}
	run->step++;
	if (run->is_stale)
		start_pass(run);
	uv_timer_start(&books->timer, on_slice, 0, 0);
}

static int expect_leases(struct books_run *run)
{
	const struct lease_table *leases = run->books->reconcile->leases;
	run->expected = calloc(leases->count + 1, sizeof *run->expected);
	run->expected_count = 0;
	if (!run->expected)
		return -ENOMEM;
	LIST_FOR_EACH (pos, &leases->leases) {
		const struct lease *lease = LEASE_OF(pos);
		if (lease->is_unknown || run->expected_count == leases->count)
			continue;
		run->expected[run->expected_count++] = (struct expected){
			.id = lease->id,
			.segment = lease->segment_count && lease->segments[0] ? lease->segments[0]->id : 0,
			.state = lease->state,
			.uid = lease->uid,
			.pid = lease->pid,
		};
	}
	return 0;
}

/* What is expected and how far the journal is read are fixed now, with nothing in between. */
static int start_journal(struct books_run *run)
{
	struct reconcile *reconcile = run->books->reconcile;
	run->journal_fd = -1;
	int r = host_get_boot_id(reconcile->host, run->boot_id);
	if (r == 0)
		r = lease_init_table(&run->shadow);
	if (r < 0)
		return r;
	r = expect_leases(run);
	if (r == 0)
		r = journal_dup(reconcile->journal, &run->journal_fd, &run->journal_bytes);
	run->work.data = run;
	if (r == 0)
		r = uv_queue_work(reconcile->loop, &run->work, read_journal, on_journal_read);
	if (r < 0)
		free_journal(run);
	return r;
}

/* ---- hand-over directories ---- */

static const struct lease *find_token(const struct books_run *run, const char *token)
{
	LIST_FOR_EACH (pos, &run->books->reconcile->leases->leases) {
		const struct lease *lease = LEASE_OF(pos);
		if (lease->has_token && memcmp(lease->token, token, SEGMENT_TOKEN) == 0)
			return lease;
	}
	return NULL;
}

static struct segment_store *get_store(const struct books_run *run)
{
	return CONTAINER_OF(run->store, struct segment_store, link);
}

static int on_out(const char *text, void *user)
{
	struct books_run *run = user;
	if (run->token_count == run->token_capacity) {
		size_t capacity = MAX(run->token_capacity * 2, 64u);
		void *more = reallocarray(run->tokens, capacity, sizeof *run->tokens);
		if (!more)
			return -ENOMEM;
		run->tokens = more;
		run->token_capacity = capacity;
	}
	if (strlen(text) == SEGMENT_TOKEN) {
		memcpy(run->tokens[run->token_count++], text, SEGMENT_TOKEN + 1);
		return 0;
	}
	struct books_finding *finding = add_finding(run, HPZ_FINDING_OUT, HPZ_SEVERITY_DIFFERENCE, NULL, text,
		"%s/hpz-out/%.150s is nothing of hpzd", get_store(run)->path, text);
	finding->dir = get_store(run)->out_fd;
	snprintf(finding->name, sizeof finding->name, "%s", text);
	return 0;
}

struct links {
	struct books_run *run;
	const struct lease *lease;
	uint64_t found;
};

static bool is_link_of(const struct segment_store *store, const struct lease *lease, const char *text)
{
	char *end, path[SEGMENT_TOKEN + 32], name[SEGMENT_NAME_MAX];
	unsigned long index = strtoul(text, &end, 10);
	struct segment_stat leased;
	struct stat out;
	if (*end || index >= lease->segment_count || !lease->segments[index])
		return false;
	const struct pool_segment *segment = lease->segments[index];
	snprintf(path, sizeof path, "%.*s/%lu", SEGMENT_TOKEN, lease->token, index);
	pool_get_segment_name(segment, name);
	return fstatat(store->out_fd, path, &out, AT_SYMLINK_NOFOLLOW) == 0 &&
	       segment_stat_at(store, &segment->pool->dirs, segment->state, name, &leased) == 0 &&
	       out.st_ino == leased.ino && out.st_dev == leased.dev;
}

/* Of what was split off from the lease: a helper takes it down. */
static bool is_rest_link(const struct books_run *run, const struct lease *lease, const char *text)
{
	char *end;
	unsigned long index = strtoul(text, &end, 10);
	LIST_FOR_EACH (pos, &run->books->reconcile->leases->leases) {
		const struct lease *rest = LEASE_OF(pos);
		if (rest->split_from == lease->id && !*end && index >= rest->first_index &&
			index - rest->first_index < rest->segment_count)
			return true;
	}
	return false;
}

static int on_link(const char *text, void *user)
{
	struct links *links = user;
	struct segment_store *store = get_store(links->run);
	if (is_link_of(store, links->lease, text)) {
		links->found++;
		return 0;
	}
	if (is_rest_link(links->run, links->lease, text))
		return 0;
	char key[SEGMENT_NAME_MAX + 32];
	snprintf(key, sizeof key, "%.*s/%.64s", SEGMENT_TOKEN, links->lease->token, text);
	struct books_finding *finding = add_finding(links->run, HPZ_FINDING_OUT, HPZ_SEVERITY_DIFFERENCE,
		NULL, key, "%s/hpz-out/%s is no link of lease %" PRIu64, store->path, key, links->lease->id);
	finding->dir = store->out_fd;
	memcpy(finding->inside, links->lease->token, SEGMENT_TOKEN);
	snprintf(finding->name, sizeof finding->name, "%s", text);
	return 0;
}

/* Cells may lie on several mounts. */
static size_t count_on_store(const struct lease *lease, const struct segment_store *store)
{
	size_t count = 0;
	for (size_t i = 0; i < lease->segment_count; i++)
		count += lease->segments[i] && lease->segments[i]->pool->store == store;
	return count;
}

static void check_links(struct books_run *run, const char *token)
{
	struct links links = {.run = run, .lease = find_token(run, token)};
	struct segment_store *store = get_store(run);
	if (!links.lease) {
		struct books_finding *finding = add_finding(run, HPZ_FINDING_OUT, HPZ_SEVERITY_DIFFERENCE,
			NULL, token, "%s/hpz-out/%s belongs to no lease", store->path, token);
		finding->dir = store->out_fd;
		snprintf(finding->name, sizeof finding->name, "%s", token);
		return;
	}
	if (links.lease->state == HPZ_STATE_RETURNING)
		return; /* a helper takes it down */
	int r = segment_scan_out_dir(store, token, on_link, &links);
	size_t wanted = count_on_store(links.lease, store);
	if (r == 0 && links.found < wanted)
		add_finding(run, HPZ_FINDING_OUT, HPZ_SEVERITY_DIFFERENCE, NULL, token,
			"%s/hpz-out/%s has %" PRIu64 " links of the %zu of lease %" PRIu64, store->path,
			token, links.found, wanted, links.lease->id);
}

/* Leases whose directory is not there at all. */
static int compare_tokens(const void *a, const void *b)
{
	return memcmp(a, b, SEGMENT_TOKEN);
}

static void check_out(struct books_run *run)
{
	struct segment_store *store = get_store(run);
	run->token_count = run->token_at = 0;
	int r = segment_scan_out_dir(store, ".", on_out, run);
	if (r < 0) {
		add_finding(run, HPZ_FINDING_OUT, HPZ_SEVERITY_DIFFERENCE, NULL, store->path,
			"%s/hpz-out cannot be read: %s", store->path, strerror(-r));
		return;
	}
	if (run->token_count > 0)
		qsort(run->tokens, run->token_count, sizeof *run->tokens, compare_tokens);
	LIST_FOR_EACH (pos, &run->books->reconcile->leases->leases) {
		const struct lease *lease = LEASE_OF(pos);
		char token[SEGMENT_TOKEN + 1] = "";
		if (!lease->has_token || lease->state == HPZ_STATE_RETURNING ||
			count_on_store(lease, store) == 0)
			continue;
		memcpy(token, lease->token, SEGMENT_TOKEN);
		if (run->token_count == 0 ||
			!bsearch(token, run->tokens, run->token_count, sizeof *run->tokens, compare_tokens))
			add_finding(run, HPZ_FINDING_OUT, HPZ_SEVERITY_DIFFERENCE, NULL, token,
				"%s/hpz-out/%s of lease %" PRIu64 " is gone", store->path, token, lease->id);
	}
}

/* ---- the kernel ---- */

/* What the kernel and workers change meanwhile is looked at again, a slice at a time. True: all was. */
static bool refresh_some(struct books_run *run, struct pool *pool)
{
	static const enum segment_state states[] = {SEGMENT_FILLING, SEGMENT_LEASED};
	unsigned left = SLICE_FILES;
	POOL_FOR_EACH (pos, pool) {
		struct pool_class *class = CONTAINER_OF(pos, struct pool_class, link);
		for (size_t i = 0; i < ARRAY_SIZE(states); i++) {
			LIST_FOR_EACH (entry, &class->segments[states[i]]) {
				struct pool_segment *segment = CONTAINER_OF(entry, struct pool_segment, link);
				if (segment->stamp == run->stamp)
					continue;
				if (left-- == 0)
					return false;
				segment->stamp = run->stamp;
				if (pool_refresh(segment) == -ENOENT)
					run->vanished += segment->allocated; /* being unlinked by a helper */
			}
		}
	}
	return true;
}

static uint64_t count_holes(const struct pool *pool)
{
	uint64_t holes = 0;
	LIST_FOR_EACH (pos, &pool->classes) {
		const struct pool_class *class = CONTAINER_OF(pos, struct pool_class, link);
		LIST_FOR_EACH (entry, &class->segments[SEGMENT_LEASED]) {
			const struct pool_segment *segment = CONTAINER_OF(entry, struct pool_segment, link);
			holes += segment->given - MIN(segment->given, segment->allocated);
		}
	}
	return holes;
}

static void compare_kernel(struct books_run *run, struct pool *pool, const struct host_counters *kernel)
{
	uint64_t total = pool_get_total(pool), held = total - MIN(total, run->vanished),
		 in_use = MAX(run->in_use, kernel->nr - MIN(kernel->nr, kernel->free)),
		 holes = count_holes(pool);
	if (in_use < held)
		add_finding(run, HPZ_FINDING_KERNEL, HPZ_SEVERITY_DIFFERENCE, pool, "held",
			"hpzd counts %" PRIu64 " pages, but of the kernel's %" PRIu64 " only %" PRIu64
			" are in use",
			held, kernel->nr, kernel->nr - MIN(kernel->nr, kernel->free));
	if (kernel->free - MIN(kernel->free, kernel->resv) < holes)
		add_finding(run, HPZ_FINDING_KERNEL, HPZ_SEVERITY_NOTICE, pool, "owed",
			"holders punched %" PRIu64 " pages and may touch them again, but the kernel has only "
			"%" PRIu64 " free",
			holes, kernel->free - MIN(kernel->free, kernel->resv));
}

/* Between two looks at the kernel: what comes or goes meanwhile is in one of them. True: over. */
static bool check_kernel(struct books_run *run, struct pool *pool)
{
	struct host_counters kernel;
	if (run->has_begun && !refresh_some(run, pool))
		return false;
	int r = host_get_counters(
		run->books->reconcile->host, pool->config.node, pool->config.page_size, &kernel);
	if (r < 0) {
		add_finding(run, HPZ_FINDING_KERNEL, HPZ_SEVERITY_DIFFERENCE, pool, "counters",
			"the kernel's counters cannot be read: %s", strerror(-r));
		return true;
	}
	if (!run->has_begun) {
		run->has_begun = true;
		run->vanished = 0;
		run->in_use = kernel.nr - MIN(kernel.nr, kernel.free);
		return false;
	}
	compare_kernel(run, pool, &kernel);
	return true;
}

/* ---- repair ---- */

static struct pool_segment *find_segment(const struct books_run *run, const struct books_finding *finding)
{
	const struct reconcile *reconcile = run->books->reconcile;
	for (size_t i = 0; i < reconcile->pool_count; i++) {
		if (strcmp(reconcile->pools[i]->name, finding->pool) == 0)
			return pool_find_id(reconcile->pools[i], finding->segment);
	}
	return NULL;
}

static void on_removed(struct crew_job *job, const struct worker_done *done, void *user)
{
	struct books_run *run = job->user;
	struct books *books = run->books;
	size_t index = (size_t)job->wire.length;
	run->jobs--;
	if (done->error == 0)
		run->now.findings[index].is_repaired = true;
	else
		log_warning("books: %s: it cannot be removed: %s", run->now.findings[index].text,
			strerror(-done->error));
	if (!books->is_stopping)
		uv_timer_start(&books->timer, on_slice, 0, 0);
}

/* Names go through a helper: of a file that a client has, even the name takes a lock that it can hold. */
static void remove_name(struct books_run *run, size_t index)
{
	struct books_finding *finding = &run->now.findings[index];
	struct crew_job *job = crew_new_job(WORKER_HELPER, WORKER_REMOVE);
	int dir = finding->inside[0] ? openat(finding->dir, finding->inside,
					       O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
				     : fcntl(finding->dir, F_DUPFD_CLOEXEC, 3);
	if (!job || dir < 0 || strlen(finding->name) >= sizeof job->wire.name) {
		close_fd(dir);
		if (job)
			crew_free_job(job);
		return;
	}
	job->fds[WORKER_FD_DIR] = dir;
	strcpy(job->wire.name, finding->name);
	job->wire.length = index;
	job->deadline_ms = REMOVE_MS;
	job->done = on_removed;
	job->user = run;
	run->jobs++;
	crew_submit(run->books->reconcile->crew, job);
}

/* A segment of ours that nobody has: what it really is goes into the books. */
static bool repair_segment(struct books_run *run, const struct books_finding *finding)
{
	struct pool_segment *segment = find_segment(run, finding);
	if (!segment || segment->is_busy || segment->state == SEGMENT_LEASED)
		return false;
	reconcile_mark(run->books->reconcile);
	if (finding->kind == HPZ_FINDING_MISSING) {
		pool_forget(segment);
		return true;
	}
	/* Somebody was at it: not clean, whatever it holds. */
	if (segment->state == SEGMENT_CLEAN && pool_set_state(segment, SEGMENT_DIRTY) < 0)
		return false;
	return pool_refresh(segment) == 0;
}

static bool is_held(const struct books_run *run, const char *name)
{
	const struct reconcile *reconcile = run->books->reconcile;
	struct host_counters kernel;
	for (size_t i = 0; i < reconcile->pool_count; i++) {
		const struct pool *pool = reconcile->pools[i];
		if (strcmp(pool->name, name) == 0 && host_get_counters(reconcile->host, pool->config.node,
							     pool->config.page_size, &kernel) == 0)
			return kernel.nr - MIN(kernel.nr, kernel.free) >= pool_get_total(pool);
	}
	return false;
}

static void repair(struct books_run *run, size_t index)
{
	struct books_finding *finding = &run->now.findings[index];
	if (finding->severity != HPZ_SEVERITY_DIFFERENCE)
		return;
	if (finding->dir >= 0) {
		remove_name(run, index);
	} else if (finding->kind == HPZ_FINDING_JOURNAL) {
		run->is_compacted = run->is_compacted || reconcile_compact(run->books->reconcile) == 0;
		finding->is_repaired = run->is_compacted;
	} else if (finding->segment) {
		finding->is_repaired = repair_segment(run, finding);
	} else if (finding->kind == HPZ_FINDING_KERNEL) {
		finding->is_repaired = is_held(run, finding->pool); /* the files were put right before it */
	}
}

/* ---- the look, slice by slice ---- */

static void finish(struct books_run *run)
{
	struct books *books = run->books;
	size_t left = 0, differences = 0;
	const char *first = "";
	for (size_t i = 0; i < run->now.count; i++) {
		const struct books_finding *finding = &run->now.findings[i];
		if (finding->severity != HPZ_SEVERITY_DIFFERENCE)
			continue;
		differences++;
		log_error("check: %s%s%s%s", finding->pool[0] ? "pool " : "", finding->pool,
			finding->pool[0] ? ": " : "", finding->text);
		if (finding->is_repaired)
			log_info("check: repaired: %s", finding->text);
		else if (left++ == 0)
			first = finding->text;
	}
	books->alarms += differences;
	books->message[0] = '\0';
	if (left > 0)
		snprintf(books->message, sizeof books->message,
			"the last check found %zu differences that are not repaired: %s", left, first);
	else if (books->counts[0])
		snprintf(
			books->message, sizeof books->message, "the books do not balance: %s", books->counts);
	free_list(&books->results);
	books->results = run->now;
	run->now = (struct books_list){0};
	books->segments = run->segments;
	books->leases = run->leases;
	books->run_number++;
	books->run = NULL;
	free_run(run);
	books->checked(books->user);
}

static void start_pass(struct books_run *run)
{
	run->is_stale = run->has_begun = false;
	run->stamp = ++next_stamp;
	if (run->scan)
		closedir(steal_pointer(&run->scan));
	run->now.count = run->now.dropped = 0;
	run->seen_at = run->kept = 0;
	run->step = STEP_NAMES;
	run->pool = 0;
	run->state = SEGMENT_FILLING;
	run->store = run->books->reconcile->stores->next;
	run->segments = run->leases = 0;
}

/* The pass is over. */
static void end_pass(struct books_run *run)
{
	if (!run->is_second && run->now.count > 0) {
		run->is_second = true;
		run->first = run->now;
		run->now = (struct books_list){0};
		start_pass(run);
		uv_timer_start(&run->books->timer, on_slice, SECOND_LOOK_MS, 0);
		return;
	}
	if (run->is_second && !run->is_confirmed && !keep_some_confirmed(run)) {
		uv_timer_start(&run->books->timer, on_slice, PAUSE_MS, 0);
		return;
	}
	run->is_confirmed = true;
	for (unsigned i = 0; run->repairs && i < SLICE_REPAIRS && run->repair_at < run->now.count; i++)
		repair(run, run->repair_at++);
	if (run->repairs && run->repair_at < run->now.count) {
		uv_timer_start(&run->books->timer, on_slice, PAUSE_MS, 0);
		return;
	}
	if (run->jobs == 0)
		finish(run);
}

static void next_pool(struct books_run *run)
{
	run->has_begun = false;
	run->stamp = ++next_stamp;
	if (++run->pool < run->books->reconcile->pool_count)
		return;
	run->pool = 0;
	run->step++;
}

static void do_names(struct books_run *run)
{
	if (!check_some_names(run, run->books->reconcile->pools[run->pool]))
		return;
	if (run->state + 1 < SEGMENT_STATE_COUNT) {
		run->state++;
		return;
	}
	run->state = SEGMENT_FILLING;
	next_pool(run);
}

static void do_links(struct books_run *run)
{
	for (unsigned i = 0; i < SLICE_LINKS && run->token_at < run->token_count; i++)
		check_links(run, run->tokens[run->token_at++]);
	if (run->token_at < run->token_count)
		return;
	run->store = run->store->next;
	run->step = run->store == run->books->reconcile->stores ? STEP_KERNEL : STEP_OUT;
}

static void do_out(struct books_run *run)
{
	run->step = STEP_KERNEL;
	if (run->store == run->books->reconcile->stores)
		return;
	check_out(run);
	run->step = STEP_LINKS;
}

/* Pools may have gone since, with a reload: then there is nothing of them to say. */
static bool has_pool(struct books_run *run)
{
	if (run->pool < run->books->reconcile->pool_count)
		return true;
	run->pool = 0;
	run->step++;
	return false;
}

/* A little more of it. False: it goes on by itself, or is over. */
static bool do_slice(struct books_run *run)
{
	int r;
	switch (run->step) {
	case STEP_NAMES:
		if (has_pool(run))
			do_names(run);
		return true;
	case STEP_FILES:
		if (has_pool(run) && check_some_files(run, run->books->reconcile->pools[run->pool]))
			next_pool(run);
		return true;
	case STEP_LEASES:
		check_leases(run);
		run->step++;
		return true;
	case STEP_JOURNAL:
		r = start_journal(run);
		if (r == 0)
			return false;
		add_finding(run, HPZ_FINDING_JOURNAL, HPZ_SEVERITY_DIFFERENCE, NULL, "journal",
			"the journal cannot be read: %s", strerror(-r));
		run->step++;
		return true;
	case STEP_OUT:
		do_out(run);
		return true;
	case STEP_LINKS:
		do_links(run);
		return true;
	case STEP_KERNEL:
		if (has_pool(run) && check_kernel(run, run->books->reconcile->pools[run->pool]))
			next_pool(run);
		return true;
	case STEP_END:
		end_pass(run);
		return false;
	}
	return false;
}

static void on_slice(uv_timer_t *timer)
{
	struct books *books = timer->data;
	if (books->run && do_slice(books->run))
		uv_timer_start(&books->timer, on_slice, PAUSE_MS, 0);
}

int books_check(struct books *books, bool repairs)
{
	if (books->run)
		return -EBUSY;
	if (books->reconcile->has_leftovers)
		return -EAGAIN;
	struct books_run *run = calloc(1, sizeof *run);
	if (!run)
		return -ENOMEM;
	run->books = books;
	run->repairs = repairs;
	run->journal_fd = -1;
	books->run = run;
	start_pass(run);
	uv_timer_start(&books->timer, on_slice, 0, 0);
	return 0;
}

void books_restart(struct books *books)
{
	struct books_run *run = books->run;
	if (!run)
		return;
	run->repairs = false;
	if (run->is_confirmed) /* only answers of helpers are awaited, and these have descriptors of their own
				*/
		return;
	if (run->step == STEP_JOURNAL && run->journal_fd >= 0)
		run->is_stale = true;
	else
		start_pass(run);
}

/* ---- life ---- */

void books_init(struct books *books, uv_loop_t *loop, struct reconcile *reconcile,
	void (*checked)(void *user), void *user)
{
	*books = (struct books){.reconcile = reconcile, .checked = checked, .user = user};
	uv_timer_init(loop, &books->timer);
	books->timer.data = books;
}

void books_stop(struct books *books)
{
	books->is_stopping = true;
	uv_close((uv_handle_t *)&books->timer, NULL);
}

void books_deinit(struct books *books)
{
	if (books->run)
		free_run(books->run);
	books->run = NULL;
	free_list(&books->results);
}
