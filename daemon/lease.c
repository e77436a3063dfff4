/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* lease.c - who holds what, and the journal that remembers it. */
#include <inttypes.h>

#include "lease.h"
#include "log.h"

#define HASH_SIZE    4096
#define USAGE_HASH   256
#define LEASE_ID_MAX ((1ull << 53) - 1) /* exact in a JSON double */

static struct list *find_bucket(const struct lease_table *table, uint64_t id)
{
	return &table->hash[id % HASH_SIZE]; /* ids are consecutive */
}

static struct list *find_key_bucket(const struct lease_table *table, uint32_t uid, const char *key)
{
	uint32_t hash = 2166136261u ^ uid; /* FNV-1a */
	for (; *key; key++)
		hash = (hash ^ (unsigned char)*key) * 16777619u;
	return &table->keys[hash % HASH_SIZE];
}

int lease_init_table(struct lease_table *table)
{
	*table = (struct lease_table){0};
	list_init(&table->leases);
	list_init(&table->returning);
	table->hash = calloc(HASH_SIZE, sizeof *table->hash);
	table->keys = calloc(HASH_SIZE, sizeof *table->keys);
	table->usages = calloc(USAGE_HASH, sizeof *table->usages);
	if (!table->hash || !table->keys || !table->usages) {
		free(table->hash);
		free(table->keys);
		free(table->usages);
		return -ENOMEM;
	}
	for (size_t i = 0; i < USAGE_HASH; i++)
		list_init(&table->usages[i]);
	for (size_t i = 0; i < HASH_SIZE; i++) {
		list_init(&table->hash[i]);
		list_init(&table->keys[i]);
	}
	return 0;
}

static void init_links(struct lease *lease)
{
	list_init(&lease->link);
	list_init(&lease->hash_link);
	list_init(&lease->key_link);
	list_init(&lease->returning_link);
}

/* ---- what users have ---- */

static struct lease_usage *find_usage(const struct lease_table *table, uint32_t uid)
{
	LIST_FOR_EACH (pos, &table->usages[uid % USAGE_HASH]) {
		struct lease_usage *usage = CONTAINER_OF(pos, struct lease_usage, link);
		if (usage->uid == uid)
			return usage;
	}
	return NULL;
}

/* Before it is in the table: there nothing may fail any more. */
static int set_usage(struct lease_table *table, struct lease *lease)
{
	struct lease_usage *usage = find_usage(table, lease->uid);
	lease->counted_bytes = 0;
	lease->usage = NULL;
	if (!usage) {
		usage = calloc(1, sizeof *usage);
		if (!usage)
			return -ENOMEM;
		usage->uid = lease->uid;
		list_append(&table->usages[lease->uid % USAGE_HASH], &usage->link);
	}
	usage->references++;
	lease->usage = usage;
	return 0;
}

static void drop_usage(struct lease *lease)
{
	struct lease_usage *usage = steal_pointer(&lease->usage);
	if (!usage || --usage->references > 0)
		return;
	list_remove(&usage->link);
	free(usage);
}

/* After whatever changes what a lease in the table has. */
static void count_bytes(struct lease *lease)
{
	uint64_t bytes = lease_get_given(lease);
	lease->usage->bytes += bytes - lease->counted_bytes;
	lease->counted_bytes = bytes;
}

void lease_get_usage(const struct lease_table *table, uint32_t uid, uint64_t *ret_leases, uint64_t *ret_bytes)
{
	const struct lease_usage *usage = find_usage(table, uid);
	*ret_leases = usage ? usage->leases : 0;
	*ret_bytes = usage ? usage->bytes : 0;
}

static void free_lease(struct lease *lease)
{
	drop_usage(lease);
	list_remove(&lease->link);
	list_remove(&lease->hash_link);
	list_remove(&lease->key_link);
	list_remove(&lease->returning_link);
	free(lease->segments);
	free(lease->recorded);
	free(lease);
}

void lease_deinit_table(struct lease_table *table)
{
	LIST_FOR_EACH_SAFE (pos, &table->leases)
		free_lease(LEASE_OF(pos));
	free(table->hash);
	free(table->keys);
	free(table->usages);
	free(table->ranges);
	free(table->misfits);
	*table = (struct lease_table){0};
}

/* The list is ordered by id; new ids are the largest, so this rarely walks. */
static void insert(struct lease_table *table, struct lease *lease)
{
	struct list *at = &table->leases;
	while (at->prev != &table->leases && LEASE_OF(at->prev)->id > lease->id)
		at = at->prev;
	list_insert_before(at, &lease->link);
	list_append(find_bucket(table, lease->id), &lease->hash_link);
	if (lease->key[0])
		list_append(find_key_bucket(table, lease->uid, lease->key), &lease->key_link);
	table->count++;
	table->segments_out += lease->segments_out;
	lease->usage->leases++;
	count_bytes(lease);
}

/* The one place where a lease in the table changes its state. */
static void change_state(struct lease_table *table, struct lease *lease, enum hpz_lease_state state)
{
	list_remove(&lease->returning_link);
	if (state == HPZ_STATE_RETURNING)
		list_append(&table->returning, &lease->returning_link);
	lease->state = state;
}

static void forget(struct lease_table *table, struct lease *lease)
{
	table->count--;
	table->segments_out -= lease->segments_out;
	lease->usage->leases--;
	lease->usage->bytes -= lease->counted_bytes;
	free_lease(lease);
}

/* ---- ids ---- */

static int add_range(struct lease_table *table, uint64_t first, uint64_t next)
{
	/* A run that gave no lease leaves nothing to remember. */
	if (table->range_count > 0 &&
		table->ranges[table->range_count - 1].first == table->ranges[table->range_count - 1].next)
		table->range_count--;
	struct lease_range *ranges =
		reallocarray(table->ranges, table->range_count + 1, sizeof *table->ranges);
	if (!ranges)
		return -ENOMEM;
	table->ranges = ranges;
	ranges[table->range_count++] = (struct lease_range){first, next};
	return 0;
}

static void note_id(struct lease_table *table, uint64_t id)
{
	struct lease_range *last = table->range_count ? &table->ranges[table->range_count - 1] : NULL;
	if (last && id >= last->next && id >= last->first)
		last->next = id + 1;
	if (id >= table->next_id)
		table->next_id = id + 1;
}

bool lease_is_known_id(const struct lease_table *table, uint64_t id)
{
	for (size_t i = 0; i < table->range_count; i++) {
		if (id >= table->ranges[i].first && id < table->ranges[i].next)
			return true;
	}
	return false;
}

/* ---- questions ---- */

struct lease *lease_find(const struct lease_table *table, uint64_t id)
{
	LIST_FOR_EACH (pos, find_bucket(table, id)) {
		struct lease *lease = CONTAINER_OF(pos, struct lease, hash_link);
		if (lease->id == id)
			return lease;
	}
	return NULL;
}

struct lease *lease_find_key(const struct lease_table *table, uint32_t uid, const char *key)
{
	if (!*key)
		return NULL;
	LIST_FOR_EACH (pos, find_key_bucket(table, uid, key)) {
		struct lease *lease = CONTAINER_OF(pos, struct lease, key_link);
		bool is_alive = lease->state == HPZ_STATE_OFFERED || lease->state == HPZ_STATE_LEASED;
		if (is_alive && lease->uid == uid && strcmp(lease->key, key) == 0)
			return lease;
	}
	return NULL;
}

struct lease *lease_find_from(const struct lease_table *table, uint64_t id)
{
	LIST_FOR_EACH (pos, &table->leases) {
		if (LEASE_OF(pos)->id >= id)
			return LEASE_OF(pos);
	}
	return NULL;
}

uint64_t lease_get_given(const struct lease *lease)
{
	uint64_t bytes = 0;
	for (size_t i = 0; i < lease->segment_count; i++) {
		if (lease->segments[i])
			bytes += lease->segments[i]->given * lease->segments[i]->pool->config.page_size;
	}
	return bytes;
}

static struct lease *find_split(const struct lease_table *table, const struct pool_segment *segment);

struct lease *lease_find_of(const struct lease_table *table, const struct pool_segment *segment)
{
	struct lease *lease = lease_find(table, segment->lease);
	if (lease && segment->index < lease->segment_count && lease->segments[segment->index] == segment)
		return lease;
	return find_split(table, segment);
}

/* ---- journal: writing ---- */

static void set_bytes(char *array, size_t capacity, const char *string)
{
	memset(array, 0, capacity);
	memcpy(array, string, strnlen(string, capacity));
}

/* `settled` of the segments are leased by now, the others will be; their pages are in given_pages. */
static int write_lease(struct journal *journal, const struct lease *lease,
	struct pool_segment *const *segments, const uint64_t *given_pages, size_t count, size_t settled)
{
	struct journal_lease record = {
		.size = sizeof record,
		.segments = (uint32_t)count,
		.id = lease->id,
		.asked = lease->asked,
		.granted_boot_ns = lease->granted_boot_ns,
		.uid = lease->uid,
		.gid = lease->gid,
		.pid = lease->pid,
		.flags = lease->flags,
		.pid_start = lease->pid_start,
		.deliver = lease->deliver,
		.file_uid = lease->file_uid,
		.file_gid = lease->file_gid,
		.file_mode = lease->file_mode,
		.open_timeout_ms = lease->open_timeout_ms,
		.split_from = lease->split_from,
		.first_index = lease->first_index,
		.firm = (uint32_t)lease->firm,
	};
	set_bytes(record.label, sizeof record.label, lease->label);
	set_bytes(record.key, sizeof record.key, lease->key);
	set_bytes(record.comm, sizeof record.comm, lease->comm);
	if (lease->has_token)
		memcpy(record.token, lease->token, sizeof record.token);
	_cleanup_free_ struct journal_segment *list = calloc(MAX(count, 1), sizeof *list);
	if (!list)
		return -ENOMEM;
	for (size_t i = 0; i < count; i++) {
		const struct pool_segment *segment = segments[i];
		if (!segment)
			continue; /* back already: its place in the order stays, with page_size 0 */
		list[i] = (struct journal_segment){
			.segment = segment->id,
			.generation = segment->generation + (i >= settled),
			.page_size = segment->pool->config.page_size,
			.pages = i >= settled ? given_pages[i - settled] : segment->given,
			.length = segment->pages,
			.node = segment->pool->config.node,
			.cell = segment->cell,
		};
	}
	return journal_append(journal, JOURNAL_LEASE, &record, sizeof record, list, count * sizeof *list);
}

static void write_or_log(
	struct lease_table *table, uint64_t id, enum journal_type type, const void *payload, size_t bytes)
{
	if (!table->journal)
		return;
	int r = journal_append(table->journal, type, payload, bytes, NULL, 0);
	if (r < 0)
		log_error("journal: lease %" PRIu64 ": %s; a restart now would know less of it", id,
			strerror(-r));
}

static void write_state(struct lease_table *table, const struct lease *lease)
{
	struct journal_state record = {sizeof record, lease->state, lease->id, lease->was_opened, 0};
	write_or_log(table, lease->id, JOURNAL_STATE, &record, sizeof record);
}

void lease_write_all(struct journal *journal, void *user)
{
	struct lease_table *table = user;
	for (size_t i = 0; i < table->range_count; i++) {
		struct journal_range record = {
			sizeof record, 0, table->ranges[i].first, table->ranges[i].next};
		journal_append(journal, JOURNAL_RANGE, &record, sizeof record, NULL, 0);
	}
	LIST_FOR_EACH (pos, &table->leases) {
		struct lease *lease = LEASE_OF(pos);
		if (lease->is_unknown)
			continue;
		write_lease(
			journal, lease, lease->segments, NULL, lease->segment_count, lease->segment_count);
		struct journal_state record = {sizeof record, lease->state, lease->id, lease->was_opened, 0};
		journal_append(journal, JOURNAL_STATE, &record, sizeof record, NULL, 0);
	}
}

uint64_t lease_get_journal_bytes(const struct lease_table *table)
{
	return table->count * 700;
}

/* ---- journal: reading ---- */

static void read_lease(struct lease_table *table, const void *payload, size_t bytes)
{
	const struct journal_lease *record = payload;
	if (bytes < sizeof *record || record->segments > JOURNAL_SEGMENTS_MAX ||
		bytes - sizeof *record < record->segments * sizeof(struct journal_segment))
		return;
	struct lease *lease = calloc(1, sizeof *lease);
	if (!lease)
		return;
	init_links(lease);
	lease->segments = calloc(MAX(record->segments, 1u), sizeof(struct pool_segment *));
	lease->recorded = calloc(MAX(record->segments, 1u), sizeof *lease->recorded);
	if (!lease->segments || !lease->recorded) {
		free_lease(lease);
		return;
	}
	lease->uid = record->uid;
	if (set_usage(table, lease) < 0) {
		free_lease(lease);
		return;
	}
	struct lease *before = lease_find(table, record->id);
	memcpy(lease->recorded, record + 1, record->segments * sizeof *lease->recorded);
	lease->id = record->id;
	lease->state = before ? before->state : HPZ_STATE_OFFERED;
	lease->was_opened = before && before->was_opened;
	lease->split_from = record->split_from;
	lease->first_index = record->first_index;
	lease->firm = record->firm;
	if (before)
		forget(table, before);
	memcpy(lease->label, record->label, sizeof record->label);
	memcpy(lease->key, record->key, sizeof record->key);
	memcpy(lease->comm, record->comm, sizeof record->comm);
	lease->gid = record->gid;
	lease->pid = record->pid;
	lease->pid_start = record->pid_start;
	lease->flags = record->flags;
	lease->deliver = record->deliver;
	lease->file_uid = record->file_uid;
	lease->file_gid = record->file_gid;
	lease->file_mode = record->file_mode;
	lease->open_timeout_ms = record->open_timeout_ms;
	lease->asked = record->asked;
	lease->granted_boot_ns = record->granted_boot_ns;
	lease->has_token = record->token[0] != 0;
	memcpy(lease->token, record->token, sizeof lease->token);
	lease->is_recovered = true;
	lease->segment_count = record->segments;
	insert(table, lease);
	note_id(table, lease->id);
}

static void read_state(struct lease_table *table, const struct journal_state *record)
{
	struct lease *lease = lease_find(table, record->id);
	if (!lease)
		return;
	if (record->state >= HPZ_STATE_OFFERED && record->state <= HPZ_STATE_RETURNING)
		change_state(table, lease, (enum hpz_lease_state)record->state);
	lease->was_opened = record->opened != 0;
}

static void read_owner(struct lease_table *table, const struct journal_owner *record)
{
	struct lease *lease = lease_find(table, record->id);
	if (!lease)
		return;
	lease->pid = record->pid;
	lease->pid_start = record->pid_start;
	lease->flags = record->flags;
	memcpy(lease->comm, record->comm, sizeof record->comm);
}

void lease_read_record(struct lease_table *table, enum journal_type type, const void *payload, size_t bytes)
{
	const struct journal_range *range;
	struct lease *lease;
	switch (type) {
	case JOURNAL_LEASE:
		read_lease(table, payload, bytes);
		break;
	case JOURNAL_STATE:
		read_state(table, payload);
		break;
	case JOURNAL_OWNER:
		read_owner(table, payload);
		break;
	case JOURNAL_END:
		lease = lease_find(table, ((const struct journal_end *)payload)->id);
		if (lease)
			forget(table, lease);
		break;
	case JOURNAL_RANGE:
		range = payload;
		if (add_range(table, range->first, range->next) == 0 && range->next > range->first)
			note_id(table, range->next - 1);
		break;
	case JOURNAL_RESERVE:
		note_id(table, ((const struct journal_reserve *)payload)->id);
		break;
	case JOURNAL_RAISE:
	case JOURNAL_FACTS:
	case JOURNAL_WEAK:
	case JOURNAL_ORPHAN:
	case JOURNAL_DEMAND:
	case JOURNAL_RESIZE:
	case JOURNAL_DEMOTE:
	case JOURNAL_TEARDOWN:
	case JOURNAL_HISTOGRAM:
		break;
	}
}

/* ---- adoption ---- */

static struct lease *make_unknown(struct lease_table *table, uint64_t id)
{
	struct lease *lease = calloc(1, sizeof *lease);
	if (!lease)
		return NULL;
	init_links(lease);
	lease->id = id;
	lease->state = HPZ_STATE_LEASED;
	strcpy(lease->label, "?");
	lease->uid = UINT32_MAX;
	if (set_usage(table, lease) < 0) {
		free_lease(lease);
		return NULL;
	}
	lease->granted_boot_ns = clock_get_ns(CLOCK_BOOTTIME);
	lease->is_unknown = lease->is_recovered = true;
	insert(table, lease);
	/* It alone: what lies between it and the ids we know of may never have been given. */
	table->next_id = MAX(table->next_id, id + 1);
	if (!lease_is_known_id(table, id))
		add_range(table, id, id + 1);
	return lease;
}

static int make_room(struct lease *lease, uint32_t index)
{
	if (index < lease->segment_count)
		return 0;
	if (index >= JOURNAL_SEGMENTS_MAX)
		return -ERANGE;
	struct pool_segment **segments = reallocarray(lease->segments, index + 1u, sizeof *segments);
	if (!segments)
		return -ENOMEM;
	lease->segments = segments;
	if (lease->recorded) {
		struct journal_segment *recorded =
			reallocarray(lease->recorded, index + 1u, sizeof *recorded);
		if (!recorded)
			return -ENOMEM;
		lease->recorded = recorded;
	}
	for (size_t i = lease->segment_count; i <= index; i++) {
		segments[i] = NULL;
		if (lease->recorded)
			lease->recorded[i] = (struct journal_segment){0};
	}
	lease->segment_count = index + 1u;
	return 0;
}

static bool is_recorded_otherwise(const struct lease *lease, const struct pool_segment *segment)
{
	const struct journal_segment *recorded =
		lease && lease->recorded ? &lease->recorded[segment->index] : NULL;
	/* Ids are those of a pool: two nodes have the same ones. */
	return recorded && recorded->page_size > 0 &&
	       (recorded->segment != segment->id || recorded->node != segment->pool->config.node ||
		       recorded->page_size != segment->pool->config.page_size);
}

/* Of leases that may come in several pieces any mixture will do: they teach nothing. */
static void count_in_demand(const struct lease *lease, struct pool_segment *segment)
{
	if (!(lease->flags & HPZ_LEASE_SEGMENTS))
		pool_count_lease(segment, segment->given);
}

static int place(struct lease_table *table, struct lease *lease, struct pool_segment *segment, uint32_t index)
{
	int r = make_room(lease, index);
	if (r < 0)
		return r;
	lease->segments[index] = segment;
	lease->segments_out++;
	table->segments_out++;
	if (lease->recorded && lease->recorded[index].page_size > 0 &&
		lease->recorded[index].segment == segment->id) {
		/* Its holder may have cut or grown the file: the length it had is what counts. */
		segment->given = lease->recorded[index].pages;
		segment->cell = lease->recorded[index].cell;
		count_bytes(lease);
		count_in_demand(lease, segment);
		return pool_set_length(segment, lease->recorded[index].length);
	}
	if (lease->is_unknown)
		lease->asked += segment->given * segment->pool->config.page_size;
	count_bytes(lease);
	count_in_demand(lease, segment);
	return 0;
}

/* Whether a lease, which may be NULL, can have this segment at the place its name says. */
static bool has_place(const struct lease *lease, const struct pool_segment *segment)
{
	if (segment->lease == 0 || segment->lease > LEASE_ID_MAX || segment->index >= JOURNAL_SEGMENTS_MAX)
		return false;
	if (!lease)
		return true;
	/* Otherwise one strange name would end a good lease: for want of what is missing between the two. */
	if (!lease->is_unknown && segment->index >= lease->segment_count)
		return false;
	return segment->index >= lease->segment_count || !lease->segments[segment->index];
}

static int add_misfit(struct lease_table *table, struct pool_segment *segment)
{
	struct pool_segment **misfits =
		reallocarray(table->misfits, table->misfit_count + 1, sizeof *misfits);
	if (!misfits)
		return -ENOMEM;
	table->misfits = misfits;
	misfits[table->misfit_count++] = segment;
	return 0;
}

static int adopt_at_its_place(struct lease_table *table, struct lease *lease, struct pool_segment *segment)
{
	if (!lease)
		lease = make_unknown(table, segment->lease);
	return lease ? place(table, lease, segment, segment->index) : -ENOMEM;
}

/* The lease that was split off from the one in its name, and has it for the journal; NULL. */
static struct lease *find_split(const struct lease_table *table, const struct pool_segment *segment)
{
	LIST_FOR_EACH (pos, &table->leases) {
		struct lease *lease = LEASE_OF(pos);
		size_t index = segment->index - lease->first_index;
		if (lease->split_from == 0 || lease->split_from != segment->lease ||
			segment->index < lease->first_index || index >= lease->segment_count)
			continue;
		if (lease->recorded ? lease->recorded[index].page_size > 0 &&
					      lease->recorded[index].segment == segment->id
				    : lease->segments[index] == segment)
			return lease;
	}
	return NULL;
}

int lease_adopt_segment(struct lease_table *table, struct pool_segment *segment)
{
	struct lease *lease = lease_find(table, segment->lease);
	bool is_at_home = has_place(lease, segment) && !is_recorded_otherwise(lease, segment);
	bool is_recorded = is_at_home && lease && !lease->is_unknown;
	struct lease *split = is_recorded ? NULL : find_split(table, segment);
	if (split)
		return place(table, split, segment, segment->index - split->first_index);
	if (!is_at_home)
		return add_misfit(table, segment);
	return adopt_at_its_place(table, lease, segment);
}

/* Whoever holds it holds it under a name that cannot stay. A death before the next line: one more unknown. */
static int adopt_alone(struct lease_table *table, struct pool_segment *segment)
{
	uint64_t old = segment->lease;
	uint32_t old_index = segment->index;
	table->next_id = MAX(table->next_id, clock_get_ns(CLOCK_BOOTTIME) / 1000);
	while (lease_find(table, table->next_id))
		table->next_id++;
	int r = pool_set_lease(segment, table->next_id, 0);
	if (r < 0)
		return r;
	log_warning("segment %" PRIu64 ": lease %" PRIu64 " has no place %" PRIu32 " for it: lease %" PRIu64
		    ", owner unknown, has it until it is proven unused",
		segment->id, old, old_index, segment->lease);
	return adopt_at_its_place(table, NULL, segment);
}

void lease_adopt_misfits(struct lease_table *table)
{
	for (size_t i = 0; i < table->misfit_count; i++) {
		struct pool_segment *segment = table->misfits[i];
		struct lease *lease = lease_find(table, segment->lease);
		int r = has_place(lease, segment) ? adopt_at_its_place(table, lease, segment)
						  : adopt_alone(table, segment);
		if (r < 0)
			log_error("segment %" PRIu64 " of lease %" PRIu64 " cannot be adopted: %s",
				segment->id, segment->lease, strerror(-r));
	}
	table->misfit_count = 0;
}

/* Of the segments from `first` on; not in the table yet. */
static struct lease *make_rest(const struct lease_table *table, const struct lease *lease, size_t first)
{
	size_t count = lease->segment_count - first;
	struct lease *rest = calloc(1, sizeof *rest);
	if (!rest)
		return NULL;
	*rest = *lease;
	rest->segments = calloc(count, sizeof *rest->segments);
	if (!rest->segments) {
		free(rest);
		return NULL;
	}
	memcpy(rest->segments, lease->segments + first, count * sizeof *rest->segments);
	init_links(rest);
	rest->counted_bytes = 0; /* in the same user's usage */
	rest->usage->references++;
	rest->id = table->next_id;
	rest->split_from = lease->id;
	rest->first_index = (uint32_t)first;
	rest->segment_count = count;
	rest->segments_out = 0;
	rest->recorded = NULL;
	rest->state = HPZ_STATE_RETURNING;
	rest->key[0] = '\0';
	rest->pid = 0;
	rest->pid_start = rest->firm = 0;
	rest->bound = NULL;
	rest->handoff = NULL;
	rest->holder_count = 0;
	rest->is_recovered = false;
	rest->asked = 0;
	for (size_t i = 0; i < count; i++)
		rest->segments_out += rest->segments[i] != NULL;
	rest->asked = lease_get_given(rest);
	return rest;
}

/* What `rest` has is its own from now on. */
static void let_go(struct lease_table *table, struct lease *lease, struct lease *rest)
{
	lease_take_id(table);
	lease->segment_count = rest->first_index;
	lease->segments_out -= rest->segments_out;
	table->segments_out -= rest->segments_out;
	count_bytes(lease);
	insert(table, rest);
	change_state(table, rest, HPZ_STATE_RETURNING);
}

/* hpzd died while it grew: its holder has not heard of what it was about to get, which is taken back. */
static int split_arriving(struct lease_table *table, struct lease *lease)
{
	size_t firm = lease->firm;
	lease->firm = 0;
	if (firm == 0 || firm >= lease->segment_count)
		return 0;
	struct lease *rest = make_rest(table, lease, firm);
	if (!rest)
		return -ENOMEM;
	if (rest->segments_out > 0) {
		let_go(table, lease, rest);
		return 0;
	}
	free_lease(rest);
	lease->segment_count = firm;
	return 0;
}

int lease_finish_adoption(struct lease_table *table, struct journal *journal)
{
	lease_adopt_misfits(table);
	uint64_t now_us = clock_get_ns(CLOCK_BOOTTIME) / 1000;
	table->next_id = MAX(table->next_id, now_us);
	uint64_t first = table->next_id;
	int r = add_range(table, first, first);
	LIST_FOR_EACH_SAFE (pos, &table->leases) {
		struct lease *lease = LEASE_OF(pos);
		free(steal_pointer(&lease->recorded));
		if (r == 0)
			r = split_arriving(table, lease);
		if (lease->segments_out == 0) {
			forget(table, lease);
		} else if (lease->segments_out < lease->segment_count &&
			   lease->state != HPZ_STATE_RETURNING) {
			log_warning("lease %" PRIu64 " (%s) was not whole: its memory is taken back",
				lease->id, lease->label);
			change_state(table, lease, HPZ_STATE_RETURNING);
		}
	}
	if (r < 0)
		return r;
	table->journal = journal;
	struct journal_range record = {sizeof record, 0, first, table->next_id};
	write_or_log(table, first, JOURNAL_RANGE, &record, sizeof record);
	return 0;
}

/* ---- life ---- */

static void write_end(struct lease_table *table, uint64_t id)
{
	struct journal_end record = {sizeof record, 0, id};
	write_or_log(table, id, JOURNAL_END, &record, sizeof record);
}

/* Nobody outside has seen these yet, so that they may be reused needs no proof; that they are zero is not
 * certain. */
static void take_back(struct pool_segment **segments, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		int r = pool_set_state(segments[i], SEGMENT_DIRTY);
		if (r == 0)
			continue;
		log_error("segment %" PRIu64 " cannot be taken back yet: %s", segments[i]->id, strerror(-r));
		pool_strand(segments[i]);
	}
}

/* To the places from `first` on. */
static int rename_all(struct lease *lease, size_t first, struct pool_segment **segments,
	const uint64_t *given_pages, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		segments[i]->lease = lease->id;
		segments[i]->index = (uint32_t)(first + i);
		segments[i]->given = given_pages[i];
		int r = pool_set_state(segments[i], SEGMENT_LEASED);
		if (r < 0) {
			take_back(segments, i);
			return r;
		}
		lease->segments[first + i] = segments[i];
	}
	return 0;
}

uint64_t lease_take_id(struct lease_table *table)
{
	uint64_t id = table->next_id++;
	table->ranges[table->range_count - 1].next = table->next_id;
	return id;
}

int lease_grant(struct lease_table *table, const struct lease *draft, struct pool_segment **segments,
	const uint64_t *given_pages, size_t count, struct lease **ret_lease)
{
	struct lease *lease = malloc(sizeof *lease);
	if (!lease)
		return -ENOMEM;
	*lease = *draft;
	init_links(lease);
	lease->id = table->next_id;
	lease->state = HPZ_STATE_OFFERED;
	lease->granted_boot_ns = clock_get_ns(CLOCK_BOOTTIME);
	lease->segments = calloc(count, sizeof *segments);
	lease->segment_count = lease->segments_out = count;
	int r = set_usage(table, lease);
	if (r == 0)
		r = lease->segments ? write_lease(table->journal, lease, segments, given_pages, count, 0)
				    : -ENOMEM;
	if (r < 0) {
		free_lease(lease);
		return r;
	}
	lease_take_id(table); /* in the journal: never given again, whatever happens */
	r = rename_all(lease, 0, segments, given_pages, count);
	if (r < 0) {
		write_end(table, lease->id);
		free_lease(lease);
		return r;
	}
	for (size_t i = 0; i < count; i++)
		count_in_demand(lease, segments[i]);
	insert(table, lease);
	table->granted++;
	*ret_lease = lease;
	return 0;
}

/* ---- change ---- */

int lease_append(struct lease_table *table, struct lease *lease, struct pool_segment **segments,
	const uint64_t *given_pages, size_t count)
{
	size_t before = lease->segment_count, after = before + count;
	if (after > JOURNAL_SEGMENTS_MAX)
		return -E2BIG;
	struct pool_segment **list = reallocarray(lease->segments, after, sizeof *list);
	if (!list)
		return -ENOMEM;
	lease->segments = list;
	memcpy(list + before, segments, count * sizeof *list);
	lease->firm = before;
	int r = write_lease(table->journal, lease, list, given_pages, after, before);
	if (r == 0)
		r = rename_all(lease, before, segments, given_pages, count);
	if (r < 0) { /* what the journal says of them then a next hpzd takes back: there is nothing */
		lease->firm = 0;
		return r;
	}
	lease->segment_count = after;
	lease->segments_out += count;
	table->segments_out += count;
	count_bytes(lease);
	return 0;
}

int lease_confirm(struct lease_table *table, struct lease *lease, uint64_t asked)
{
	struct lease after = *lease;
	after.firm = 0;
	after.asked = asked;
	int r = write_lease(
		table->journal, &after, lease->segments, NULL, lease->segment_count, lease->segment_count);
	if (r < 0)
		return r;
	lease->firm = 0;
	lease->asked = asked;
	return 0;
}

/* The rest first: dying in between, the next hpzd finds all of it with the lease, and nothing with the rest.
 */
static int write_split(struct lease_table *table, struct lease *lease, size_t kept, uint64_t tail_pages,
	uint64_t asked, const struct lease *rest)
{
	struct lease after = *lease;
	uint64_t given = lease->segments[kept - 1]->given;
	int r = rest ? write_lease(table->journal, rest, rest->segments, NULL, rest->segment_count,
			       rest->segment_count)
		     : 0;
	if (r < 0)
		return r;
	if (rest)
		write_state(table, rest);
	after.firm = 0;
	after.asked = asked;
	lease->segments[kept - 1]->given = tail_pages;
	r = write_lease(table->journal, &after, lease->segments, NULL, kept, kept);
	if (r == 0)
		return 0;
	lease->segments[kept - 1]->given = given;
	if (rest)
		write_end(table, rest->id);
	return r;
}

int lease_split(struct lease_table *table, struct lease *lease, size_t kept, uint64_t tail_pages,
	uint64_t asked, struct lease **ret_rest)
{
	bool has_rest = kept < lease->segment_count;
	struct lease *rest = has_rest ? make_rest(table, lease, kept) : NULL;
	if (has_rest && !rest)
		return -ENOMEM;
	int r = write_split(table, lease, kept, tail_pages, asked, rest);
	if (r < 0) {
		if (rest) {
			lease_take_id(table); /* in the journal: never given again */
			free_lease(rest);
		}
		return r;
	}
	lease->asked = asked;
	lease->firm = 0;
	if (rest)
		let_go(table, lease, rest);
	count_bytes(lease);
	*ret_rest = rest;
	return 0;
}

bool lease_has_rest(const struct lease_table *table, const struct lease *lease)
{
	LIST_FOR_EACH (pos, &table->leases) {
		if (LEASE_OF(pos)->split_from == lease->id)
			return true;
	}
	return false;
}

void lease_set_state(struct lease_table *table, struct lease *lease, enum hpz_lease_state state)
{
	if (lease->state == state)
		return;
	change_state(table, lease, state);
	write_state(table, lease);
}

void lease_set_opened(struct lease_table *table, struct lease *lease)
{
	if (lease->was_opened)
		return;
	lease->was_opened = true;
	if (lease->state == HPZ_STATE_OFFERED) {
		change_state(table, lease, HPZ_STATE_LEASED);
		lease->bound = NULL; /* a path lease: whoever opened it knows of it */
	}
	write_state(table, lease);
}

int lease_set_owner(struct lease_table *table, struct lease *lease, int32_t pid, uint64_t pid_start,
	uint32_t flags, const char *comm)
{
	struct journal_owner record = {
		.size = sizeof record, .pid = pid, .id = lease->id, .pid_start = pid_start, .flags = flags};
	set_bytes(record.comm, sizeof record.comm, comm);
	int r = journal_append(table->journal, JOURNAL_OWNER, &record, sizeof record, NULL, 0);
	if (r < 0)
		return r;
	lease->pid = pid;
	lease->pid_start = pid_start;
	lease->flags = flags;
	snprintf(lease->comm, sizeof lease->comm, "%s", comm);
	return 0;
}

void lease_drop_segment(struct lease_table *table, struct lease *lease, struct pool_segment *segment)
{
	for (size_t i = 0; i < lease->segment_count; i++) {
		if (lease->segments[i] != segment)
			continue;
		lease->segments[i] = NULL;
		lease->segments_out--;
		table->segments_out--;
	}
	count_bytes(lease);
}

void lease_end(struct lease_table *table, struct lease *lease)
{
	write_end(table, lease->id);
	forget(table, lease);
}
