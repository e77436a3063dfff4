/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* teardown.c - what the ends of leases cost: see teardown.h. */
#include <inttypes.h>

#include "log.h"
#include "teardown.h"

#define HASH         1024 /* ids are consecutive */
#define FIRST_BUCKET 10   /* below 2^10 ns nothing is worth telling apart */

/* journal_teardown.flags */
#define FLAG_OVER     1u
#define FLAG_COMPLETE 2u
#define FLAG_FORCED   4u
#define FLAG_RESTART  8u

_Static_assert(TEARDOWN_BUCKETS == HPZ_TEARDOWN_BUCKETS && EXITS_FLUSHES == HPZ_TEARDOWN_FLUSHES &&
		       EXITS_NONE == HPZ_TEARDOWN_NONE,
	"as the wire has them");
_Static_assert((int)EXITS_BPF == HPZ_TEARDOWN_BPF && (int)EXITS_PERF == HPZ_TEARDOWN_PERF &&
		       (int)EXITS_PIDFD == HPZ_TEARDOWN_PIDFD,
	"as the wire has them");

/* ---- records ---- */

static struct list *find_bucket(const struct teardown *teardown, uint64_t lease)
{
	return &teardown->hash[lease % HASH];
}

static struct teardown_record *find(const struct teardown *teardown, uint64_t lease)
{
	LIST_FOR_EACH (pos, find_bucket(teardown, lease)) {
		struct teardown_record *record = CONTAINER_OF(pos, struct teardown_record, hash_link);
		if (record->lease == lease)
			return record;
	}
	return NULL;
}

const struct teardown_record *teardown_find(const struct teardown *teardown, uint64_t lease)
{
	return find(teardown, lease);
}

static struct teardown_record *make_record(struct teardown *teardown, uint64_t lease)
{
	struct teardown_record *record = calloc(1, sizeof *record);
	if (!record) {
		log_error("lease %" PRIu64 ": no memory to say what its end costs", lease);
		return NULL;
	}
	list_init(&record->link);
	list_init(&record->over_link);
	list_init(&record->save_link);
	list_append(find_bucket(teardown, lease), &record->hash_link);
	teardown->record_count++;
	record->lease = lease;
	record->ended_ns = record->proven_ns = record->clean_ns = EXITS_NONE;
	record->exit.begun_ns = record->exit.gone_ns = EXITS_NONE;
	record->exit.table_bytes = record->exit.table_age_ns = record->exit.steal_ns = EXITS_NONE;
	for (size_t i = 0; i < EXITS_FLUSHES; i++)
		record->exit.flushes[i] = EXITS_NONE;
	record->exit.code = -1;
	return record;
}

static void free_record(struct teardown *teardown, struct teardown_record *record)
{
	list_remove(&record->link);
	list_remove(&record->hash_link);
	list_remove(&record->over_link);
	list_remove(&record->save_link);
	teardown->record_count--;
	free(record);
}

/* What the lease says of itself; what it has may have changed since the last time. */
static void describe(struct teardown_record *record, const struct lease *lease)
{
	record->part_of = lease->split_from;
	record->uid = lease->uid;
	record->is_forced = record->is_forced || lease->is_forced;
	snprintf(record->label, sizeof record->label, "%s", lease->label);
	snprintf(record->comm, sizeof record->comm, "%s", lease->comm);
	for (size_t i = 0; i < lease->segment_count; i++) {
		if (lease->segments[i])
			record->page_size = lease->segments[i]->pool->config.page_size;
	}
}

static void note_change(struct teardown *teardown, struct teardown_record *record)
{
	if (list_is_empty(&record->save_link))
		list_append(&teardown->changed, &record->save_link);
	if (teardown->on_change)
		teardown->on_change(teardown->user);
}

/* ---- histograms ---- */

unsigned teardown_get_bucket(uint64_t ns)
{
	unsigned bits = ns == 0 ? 0 : 64 - (unsigned)__builtin_clzll(ns);
	return bits <= FIRST_BUCKET ? 0 : MIN(bits - FIRST_BUCKET, TEARDOWN_BUCKETS - 1u);
}

static uint64_t add_saturated(uint64_t a, uint64_t b)
{
	return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

static void count(struct teardown_histogram *histogram, uint64_t ns)
{
	uint32_t *bucket = &histogram->buckets[teardown_get_bucket(ns)];
	*bucket += *bucket < UINT32_MAX;
	histogram->count++;
	histogram->sum_ns = add_saturated(histogram->sum_ns, ns);
	histogram->max_ns = MAX(histogram->max_ns, ns);
}

static void merge(struct teardown_key *into, const struct teardown_key *from)
{
	for (size_t i = 0; i < TEARDOWN_STAGES; i++) {
		struct teardown_histogram *to = &into->histograms[i];
		const struct teardown_histogram *more = &from->histograms[i];
		to->count += more->count;
		to->sum_ns = add_saturated(to->sum_ns, more->sum_ns);
		to->max_ns = MAX(to->max_ns, more->max_ns);
		for (size_t k = 0; k < TEARDOWN_BUCKETS; k++)
			to->buckets[k] = (uint32_t)MIN(
				(uint64_t)to->buckets[k] + more->buckets[k], (uint64_t)UINT32_MAX);
	}
}

static struct teardown_key *find_key(
	struct teardown *teardown, uint64_t page_size, const char *regime, const char *label, bool is_rest)
{
	for (size_t i = 0; i < teardown->key_count; i++) {
		struct teardown_key *key = &teardown->keys[i];
		if (key->page_size == page_size && key->is_rest == is_rest &&
			strcmp(key->regime, regime) == 0 && (is_rest || strcmp(key->label, label) == 0))
			return key;
	}
	return NULL;
}

static struct teardown_key *find_least_used(struct teardown *teardown)
{
	struct teardown_key *found = NULL;
	for (size_t i = 0; i < teardown->key_count; i++) {
		struct teardown_key *key = &teardown->keys[i];
		if (!found || found->is_rest > key->is_rest ||
			(found->is_rest == key->is_rest && key->used < found->used))
			found = key;
	}
	return found;
}

/* There is room for one more afterwards. Where there are nothing but rests the oldest of them is lost: page
 * sizes and regimes of a boot are few. */
static void make_room(struct teardown *teardown)
{
	while (teardown->key_count == TEARDOWN_KEYS) {
		struct teardown_key *key = find_least_used(teardown);
		struct teardown_key *rest =
			key->is_rest ? NULL : find_key(teardown, key->page_size, key->regime, NULL, true);
		if (!key->is_rest && !rest) {
			key->is_rest = true;
			key->label[0] = '\0';
			continue;
		}
		if (rest)
			merge(rest, key);
		*key = teardown->keys[--teardown->key_count];
	}
}

static struct teardown_key *take_key(
	struct teardown *teardown, uint64_t page_size, const char *regime, const char *label, bool is_rest)
{
	struct teardown_key *key = find_key(teardown, page_size, regime, label, is_rest);
	if (!key) {
		make_room(teardown);
		/* It may have become the rest of what it was. */
		key = is_rest ? find_key(teardown, page_size, regime, label, true) : NULL;
	}
	if (!key) {
		key = &teardown->keys[teardown->key_count++];
		*key = (struct teardown_key){.page_size = page_size, .is_rest = is_rest};
		snprintf(key->label, sizeof key->label, "%s", is_rest ? "" : label);
		snprintf(key->regime, sizeof key->regime, "%s", regime);
	}
	key->used = ++teardown->uses;
	return key;
}

/* ---- stages ---- */

static bool get_difference(uint64_t from_ns, uint64_t to_ns, uint64_t *ret_ns)
{
	if (from_ns == EXITS_NONE || to_ns == EXITS_NONE)
		return false;
	*ret_ns = to_ns > from_ns ? to_ns - from_ns : 0;
	return true;
}

/* A holder that was gone before the lease ended kept the memory until then. */
static uint64_t get_let_go(const struct teardown_record *record)
{
	return record->exit.gone_ns != EXITS_NONE ? record->exit.gone_ns : record->ended_ns;
}

static uint64_t get_first(const struct teardown_record *record)
{
	return record->exit.begun_ns != EXITS_NONE ? record->exit.begun_ns : get_let_go(record);
}

bool teardown_get_stage(const struct teardown_record *record, enum hpz_teardown_stage stage, uint64_t *ret_ns)
{
	uint64_t clean_ns = record->is_complete ? record->clean_ns : EXITS_NONE;
	switch (stage) {
	case HPZ_TEARDOWN_STAGE_EXIT:
		return get_difference(record->exit.begun_ns, record->exit.gone_ns, ret_ns);
	case HPZ_TEARDOWN_STAGE_PROOF:
		return get_difference(get_let_go(record), record->proven_ns, ret_ns);
	case HPZ_TEARDOWN_STAGE_CLEAR:
		return get_difference(record->proven_ns, clean_ns, ret_ns);
	case HPZ_TEARDOWN_STAGE_TOTAL:
		return get_difference(get_first(record), clean_ns, ret_ns);
	}
	return false;
}

/* Each stage once: when the record is complete, or when it is heard of later. `stages`: the only ones. */
static void count_stages(struct teardown *teardown, struct teardown_record *record, uint32_t stages)
{
	struct teardown_key *key = NULL;
	for (unsigned i = 0; record->is_complete && i < TEARDOWN_STAGES; i++) {
		uint64_t ns;
		if (!(stages & 1u << i) || (record->stages & 1u << i) ||
			!teardown_get_stage(record, (enum hpz_teardown_stage)(i + 1), &ns))
			continue;
		if (!key)
			key = take_key(teardown, record->page_size, record->regime, record->label, false);
		count(&key->histograms[i], ns);
		record->stages |= 1u << i;
	}
}

/* ---- complete ---- */

static void keep_last(struct teardown *teardown)
{
	while (teardown->complete_count > TEARDOWN_KEPT) {
		free_record(
			teardown, CONTAINER_OF(teardown->complete.next, struct teardown_record, over_link));
		teardown->complete_count--;
	}
}

static void complete_if_done(struct teardown *teardown, struct teardown_record *record)
{
	if (!record->is_over || record->dirty > 0 || record->is_complete)
		return;
	record->is_complete = true;
	snprintf(record->regime, sizeof record->regime, "%s", teardown->regime);
}

/* In the order in which they are written: a reader finds it again. */
static void put_in_sequence(struct teardown *teardown, struct teardown_record *record, uint64_t sequence)
{
	record->sequence = sequence;
	teardown->sequence = MAX(teardown->sequence, sequence);
	list_append(&teardown->complete, &record->over_link);
	teardown->complete_count++;
}

/* ---- events ---- */

/* The one whose end came last; which that is need not be the order in which they are told. */
static bool is_later(const struct exits_seen *seen, const struct exits_seen *before)
{
	return before->gone_ns == EXITS_NONE || seen->gone_ns == EXITS_NONE ||
	       seen->gone_ns >= before->gone_ns;
}

void teardown_add_exit(
	struct teardown *teardown, uint64_t id, const struct lease *lease, const struct exits_seen *seen)
{
	struct teardown_record *record = find(teardown, id);
	if (!record && lease)
		record = make_record(teardown, id);
	/* What it did after it had given its memory back is not ours to tell. */
	if (!record || record->how == HPZ_TEARDOWN_UNMAP)
		return;
	if (lease)
		describe(record, lease);
	if (record->holders++ == 0 || is_later(seen, &record->exit)) {
		record->exit = *seen;
		record->how = seen->how == EXITS_EXIT   ? HPZ_TEARDOWN_EXIT
			      : seen->how == EXITS_KILL ? HPZ_TEARDOWN_KILL
							: HPZ_TEARDOWN_UNKNOWN;
	}
	note_change(teardown, record);
}

void teardown_begin(struct teardown *teardown, const struct lease *lease, uint64_t now_ns)
{
	struct teardown_record *record = find(teardown, lease->id);
	bool was_had = lease->state != HPZ_STATE_OFFERED &&
		       (lease->deliver != HPZ_DELIVER_PATH || lease->was_opened);
	if (!record && !was_had) /* nobody ever did */
		return;
	if (!record)
		record = make_record(teardown, lease->id);
	if (!record)
		return;
	describe(record, lease);
	record->bytes = lease_get_given(lease);
	record->ended_ns = now_ns;
	note_change(teardown, record);
}

void teardown_add_back(struct teardown *teardown, const struct lease *lease,
	const struct pool_segment *segment, enum handoff_back how)
{
	struct teardown_record *record = find(teardown, lease->id);
	uint64_t bytes = segment->given * segment->pool->config.page_size;
	if (!record)
		return;
	describe(record, lease);
	record->kernel_bytes += how == HANDOFF_BACK_PROVEN ? 0 : bytes;
	record->orphan_bytes += how == HANDOFF_BACK_ORPHAN ? bytes : 0;
	record->dirty += how == HANDOFF_BACK_PROVEN;
	note_change(teardown, record);
}

void teardown_set_over(struct teardown *teardown, const struct lease *lease, bool lives_on, uint64_t now_ns)
{
	struct teardown_record *record = find(teardown, lease->id);
	if (!record)
		return;
	record->is_forced = record->is_forced || lease->is_forced;
	record->is_over = true;
	if (record->orphan_bytes == 0)
		record->proven_ns = now_ns;
	/* A part was given back by whoever holds the rest. */
	if (record->holders == 0 && (lives_on || record->part_of))
		record->how = HPZ_TEARDOWN_UNMAP;
	complete_if_done(teardown, record);
	note_change(teardown, record);
}

void teardown_set_mended(
	struct teardown *teardown, const struct pool_segment *segment, bool is_clean, uint64_t now_ns)
{
	struct teardown_record *record = segment->lease ? find(teardown, segment->lease) : NULL;
	if (!record || record->dirty == 0)
		return;
	record->dirty--;
	if (is_clean)
		record->clean_ns = now_ns;
	else
		record->kernel_bytes += segment->given * segment->pool->config.page_size;
	complete_if_done(teardown, record);
	note_change(teardown, record);
}

/* ---- the journal ---- */

_Static_assert(EXITS_FLUSHES == ARRAY_SIZE(((struct journal_teardown *)0)->flushes), "each has a place");

static void set_bytes(char *bytes, size_t capacity, const char *text)
{
	memcpy(bytes, text, MIN(strlen(text), capacity));
}

static void get_bytes(char *text, size_t capacity, const char *bytes, size_t length)
{
	snprintf(text, capacity, "%.*s", (int)length, bytes);
}

static int write_record(const struct teardown_record *record, struct journal *journal)
{
	const struct exits_seen *exit = &record->exit;
	struct journal_teardown wire = {
		.size = sizeof wire,
		.flags = (record->is_over ? FLAG_OVER : 0) | (record->is_complete ? FLAG_COMPLETE : 0) |
			 (record->is_forced ? FLAG_FORCED : 0) | (record->was_restarted ? FLAG_RESTART : 0),
		.revision = record->revision,
		.sequence = record->sequence,
		.lease = record->lease,
		.part_of = record->part_of,
		.bytes = record->bytes,
		.page_size = record->page_size,
		.kernel_bytes = record->kernel_bytes,
		.orphan_bytes = record->orphan_bytes,
		.ended_ns = record->ended_ns,
		.proven_ns = record->proven_ns,
		.clean_ns = record->clean_ns,
		.begun_ns = exit->begun_ns,
		.gone_ns = exit->gone_ns,
		.table_bytes = exit->table_bytes,
		.table_age_ns = exit->table_age_ns,
		.steal_ns = exit->steal_ns,
		.pid_start = exit->pid_start,
		.pid = exit->pid,
		.code = exit->code,
		.source = exit->source,
		.how = record->how,
		.holders = record->holders,
		.uid = record->uid,
		.dirty = record->dirty,
		.stages = record->stages,
	};
	memcpy(wire.flushes, exit->flushes, sizeof wire.flushes);
	set_bytes(wire.label, sizeof wire.label, record->label);
	set_bytes(wire.comm, sizeof wire.comm, record->comm);
	set_bytes(wire.regime, sizeof wire.regime, record->regime);
	return journal_append(journal, JOURNAL_TEARDOWN, &wire, sizeof wire, NULL, 0);
}

static void read_exit(struct teardown_record *record, const struct journal_teardown *wire)
{
	record->exit = (struct exits_seen){
		.pid = wire->pid,
		.pid_start = wire->pid_start,
		.source = (enum exits_source)wire->source,
		.code = wire->code,
		.how = wire->how == HPZ_TEARDOWN_EXIT   ? EXITS_EXIT
		       : wire->how == HPZ_TEARDOWN_KILL ? EXITS_KILL
							: EXITS_UNKNOWN,
		.begun_ns = wire->begun_ns,
		.gone_ns = wire->gone_ns,
		.table_bytes = wire->table_bytes,
		.table_age_ns = wire->table_age_ns,
		.steal_ns = wire->steal_ns,
	};
	memcpy(record->exit.flushes, wire->flushes, sizeof wire->flushes);
}

static void read_fields(struct teardown_record *record, const struct journal_teardown *wire)
{
	record->part_of = wire->part_of;
	record->bytes = wire->bytes;
	record->page_size = wire->page_size;
	record->kernel_bytes = wire->kernel_bytes;
	record->orphan_bytes = wire->orphan_bytes;
	record->ended_ns = wire->ended_ns;
	record->proven_ns = wire->proven_ns;
	record->clean_ns = wire->clean_ns;
	record->how = (enum hpz_teardown_how)wire->how;
	record->holders = wire->holders;
	record->uid = wire->uid;
	record->dirty = wire->dirty;
	record->is_over = wire->flags & FLAG_OVER;
	record->is_forced = wire->flags & FLAG_FORCED;
	record->was_restarted = wire->flags & FLAG_RESTART;
	get_bytes(record->label, sizeof record->label, wire->label, sizeof wire->label);
	get_bytes(record->comm, sizeof record->comm, wire->comm, sizeof wire->comm);
	get_bytes(record->regime, sizeof record->regime, wire->regime, sizeof wire->regime);
	read_exit(record, wire);
}

/* New ones are the largest; those that are read may come in any order. */
static void show(struct teardown *teardown, struct teardown_record *record, uint64_t revision)
{
	list_remove(&record->link);
	record->revision = revision;
	teardown->revision = MAX(teardown->revision, revision);
	struct list *at = &teardown->records;
	while (at->prev != &teardown->records &&
		CONTAINER_OF(at->prev, struct teardown_record, link)->revision > revision)
		at = at->prev;
	list_insert_before(at, &record->link);
}

static void read_teardown(struct teardown *teardown, const struct journal_teardown *wire)
{
	struct teardown_record *record = find(teardown, wire->lease);
	/* Heard of once more before it was forgotten: it is counted already. */
	if (!record && wire->sequence > 0 && wire->sequence + TEARDOWN_KEPT <= teardown->sequence)
		return;
	if (!record)
		record = make_record(teardown, wire->lease);
	if (!record)
		return;
	read_fields(record, wire);
	if (wire->revision > 0)
		show(teardown, record, wire->revision);
	if ((wire->flags & FLAG_COMPLETE) && !record->is_complete) {
		record->is_complete = true;
		put_in_sequence(teardown, record, wire->sequence);
	}
	count_stages(teardown, record, wire->stages);
	keep_last(teardown);
}

static void read_histogram(struct teardown *teardown, const struct journal_histogram *wire)
{
	char label[HPZ_LABEL_MAX + 1], regime[TEARDOWN_REGIME];
	if (wire->is_first)
		teardown->key_count = 0;
	if (wire->stage < 1 || wire->stage > TEARDOWN_STAGES)
		return;
	get_bytes(label, sizeof label, wire->label, sizeof wire->label);
	get_bytes(regime, sizeof regime, wire->regime, sizeof wire->regime);
	struct teardown_key *key = take_key(teardown, wire->page_size, regime, label, wire->is_rest);
	struct teardown_histogram *histogram = &key->histograms[wire->stage - 1];
	histogram->count = wire->count;
	histogram->sum_ns = wire->sum_ns;
	histogram->max_ns = wire->max_ns;
	memcpy(histogram->buckets, wire->buckets, sizeof histogram->buckets);
}

_Static_assert(TEARDOWN_BUCKETS == ARRAY_SIZE(((struct journal_histogram *)0)->buckets), "each has a place");

void teardown_read_record(
	struct teardown *teardown, enum journal_type type, const void *payload, size_t bytes)
{
	if (type == JOURNAL_TEARDOWN && bytes >= sizeof(struct journal_teardown))
		read_teardown(teardown, payload);
	else if (type == JOURNAL_HISTOGRAM && bytes >= sizeof(struct journal_histogram))
		read_histogram(teardown, payload);
}

void teardown_finish_adoption(
	struct teardown *teardown, const struct lease_table *leases, struct journal *journal)
{
	teardown->journal = journal;
	for (size_t i = 0; i < HASH; i++) {
		LIST_FOR_EACH_SAFE (pos, &teardown->hash[i]) {
			struct teardown_record *record = CONTAINER_OF(pos, struct teardown_record, hash_link);
			if (record->is_complete)
				continue;
			/* What was dirty has lost whose it was. */
			record->was_restarted = true;
			record->dirty = 0;
			record->clean_ns = EXITS_NONE;
			if (!lease_find(leases, record->lease)) {
				record->is_over = true;
				complete_if_done(teardown, record);
			}
			note_change(teardown, record);
		}
	}
	teardown_save(teardown);
}

static void write_key(const struct teardown_key *key, struct journal_histogram *wire, struct journal *journal)
{
	for (unsigned i = 0; i < TEARDOWN_STAGES; i++) {
		const struct teardown_histogram *histogram = &key->histograms[i];
		if (histogram->count == 0)
			continue;
		wire->stage = i + 1;
		wire->page_size = key->page_size;
		wire->is_rest = key->is_rest;
		wire->count = histogram->count;
		wire->sum_ns = histogram->sum_ns;
		wire->max_ns = histogram->max_ns;
		memcpy(wire->buckets, histogram->buckets, sizeof wire->buckets);
		memset(wire->label, 0, sizeof wire->label);
		memset(wire->regime, 0, sizeof wire->regime);
		set_bytes(wire->label, sizeof wire->label, key->label);
		set_bytes(wire->regime, sizeof wire->regime, key->regime);
		journal_append(journal, JOURNAL_HISTOGRAM, wire, sizeof *wire, NULL, 0);
		wire->is_first = 0;
	}
}

static int compare_keys(const void *a, const void *b)
{
	const struct teardown_key *x = a, *y = b;
	return x->used < y->used ? -1 : x->used > y->used;
}

void teardown_write_all(struct teardown *teardown, struct journal *journal)
{
	struct journal_histogram wire = {.size = sizeof wire, .is_first = 1};
	teardown_save(teardown);
	/* By sequence, then what is not complete: so they are read. */
	LIST_FOR_EACH (pos, &teardown->complete)
		write_record(CONTAINER_OF(pos, struct teardown_record, over_link), journal);
	for (size_t i = 0; i < HASH; i++) {
		LIST_FOR_EACH (pos, &teardown->hash[i]) {
			const struct teardown_record *record =
				CONTAINER_OF(pos, struct teardown_record, hash_link);
			if (!record->is_complete)
				write_record(record, journal);
		}
	}
	/* Those least recently used first: the next reader puts the same ones into the rest. */
	qsort(teardown->keys, teardown->key_count, sizeof *teardown->keys, compare_keys);
	for (size_t i = 0; i < teardown->key_count; i++)
		write_key(&teardown->keys[i], &wire, journal);
}

uint64_t teardown_get_journal_bytes(const struct teardown *teardown)
{
	return teardown->record_count * sizeof(struct journal_teardown) +
	       teardown->key_count * TEARDOWN_STAGES * sizeof(struct journal_histogram);
}

static void save(struct teardown *teardown, struct teardown_record *record)
{
	list_remove(&record->save_link);
	/* One of several holders has gone, and the lease lives on: that is no end yet. */
	if (record->ended_ns != EXITS_NONE || record->is_over)
		show(teardown, record, teardown->revision + 1);
	if (record->is_complete && record->sequence == 0)
		put_in_sequence(teardown, record, teardown->sequence + 1);
	count_stages(teardown, record, UINT32_MAX);
	int r = teardown->journal ? write_record(record, teardown->journal) : 0;
	if (r < 0 && !teardown->is_failing)
		log_error("journal: lease %" PRIu64 ": %s; a restart now would not know what its end cost",
			record->lease, strerror(-r));
	teardown->is_failing = r < 0;
}

void teardown_save(struct teardown *teardown)
{
	LIST_FOR_EACH_SAFE (pos, &teardown->changed)
		save(teardown, CONTAINER_OF(pos, struct teardown_record, save_link));
	keep_last(teardown);
}

/* ---- questions ---- */

const struct teardown_record *teardown_find_news(
	const struct teardown *teardown, uint64_t revision, int64_t uid)
{
	const struct teardown_record *found = NULL;
	/* From the end: what is new is there. */
	for (const struct list *pos = teardown->records.prev; pos != &teardown->records; pos = pos->prev) {
		const struct teardown_record *record = CONTAINER_OF(pos, struct teardown_record, link);
		if (record->revision <= revision)
			break;
		if (uid < 0 || record->uid == uid)
			found = record;
	}
	return found;
}

/* ---- life ---- */

int teardown_init(struct teardown *teardown, void (*changed)(void *user), void *user)
{
	*teardown = (struct teardown){.on_change = changed, .user = user};
	list_init(&teardown->records);
	list_init(&teardown->complete);
	list_init(&teardown->changed);
	teardown->hash = calloc(HASH, sizeof *teardown->hash);
	if (!teardown->hash)
		return -ENOMEM;
	for (size_t i = 0; i < HASH; i++)
		list_init(&teardown->hash[i]);
	return 0;
}

void teardown_deinit(struct teardown *teardown)
{
	for (size_t i = 0; teardown->hash && i < HASH; i++) {
		LIST_FOR_EACH_SAFE (pos, &teardown->hash[i])
			free_record(teardown, CONTAINER_OF(pos, struct teardown_record, hash_link));
	}
	free(steal_pointer(&teardown->hash));
}

void teardown_set_regime(
	struct teardown *teardown, const char *name, const struct teardown_fact *facts, size_t count)
{
	snprintf(teardown->regime, sizeof teardown->regime, "%s", name);
	teardown->facts = facts;
	teardown->fact_count = count;
}
