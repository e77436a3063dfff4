/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* report.c - puts what hpzd has and does into wire structs. */
#include <inttypes.h>

#include "report.h"

void report_segment(const struct lease *lease, size_t index, int32_t descriptor, bool with_cells,
	struct hpz_wire_segment *ret_record)
{
	const struct pool_segment *segment = lease->segments[index];
	*ret_record = (struct hpz_wire_segment){
		.size = sizeof *ret_record, .record = HPZ_RECORD_SEGMENT, .descriptor = descriptor};
	if (!segment)
		return;
	ret_record->page_size = segment->pool->config.page_size;
	ret_record->bytes = segment->given * segment->pool->config.page_size;
	ret_record->generation = segment->generation;
	ret_record->node = segment->pool->config.node;
	ret_record->cell = with_cells ? segment->cell : 0;
	if (!lease->has_token || lease->state == HPZ_STATE_RETURNING)
		return;
	char path[HPZ_WIRE_PATH + 1];
	segment_format_out_path(segment->pool->store, lease->token, (uint32_t)index, path, sizeof path);
	proto_set_text(ret_record->path, sizeof ret_record->path, path);
}

/* ---- list ---- */

static void count_pages(const struct lease *lease, uint64_t *ret_holes, uint64_t *ret_grown)
{
	*ret_holes = *ret_grown = 0;
	for (size_t i = 0; i < lease->segment_count; i++) {
		struct pool_segment *segment = lease->segments[i];
		if (!segment)
			continue;
		pool_refresh(segment);
		if (segment->allocated < segment->given)
			*ret_holes += segment->given - segment->allocated;
		else if (segment->allocated > segment->pages)
			*ret_grown += segment->allocated - segment->pages;
	}
}

static void report_lease(
	const struct lease *lease, const struct report_view *view, struct hpz_wire_lease_record *record)
{
	*record = (struct hpz_wire_lease_record){
		.size = sizeof *record,
		.record = HPZ_RECORD_LEASE,
		.id = lease->id,
		.given = lease_get_given(lease),
		.asked = lease->asked,
		.age_ms = (clock_get_ns(CLOCK_BOOTTIME) - lease->granted_boot_ns) / NS_PER_MS,
		.state = lease->state,
		.deliver = lease->deliver,
		.flags = lease->flags,
		.uid = lease->uid,
		.pid = lease->pid,
		.segments = (uint32_t)lease->segments_out,
		.holders = (uint32_t)lease->holder_count,
	};
	count_pages(lease, &record->holes, &record->grown);
	proto_set_text(record->label, sizeof record->label, lease->label);
	proto_set_text(record->comm, sizeof record->comm, lease->comm);
	if (view->orphans && lease->state == HPZ_STATE_RETURNING && lease->reason != PROOF_NO_REASON)
		proto_set_text(record->reason, sizeof record->reason, proof_get_reason_text(lease->reason));
	if (view->keys_for && access_may_touch(view->keys_for, lease->uid))
		proto_set_text(record->key, sizeof record->key, lease->key);
}

static size_t report_one(const struct lease *lease, const struct report_view *view, unsigned char *at)
{
	struct hpz_wire_lease_record *record = (struct hpz_wire_lease_record *)at;
	report_lease(lease, view, record);
	struct hpz_wire_segment *segment = (struct hpz_wire_segment *)(record + 1);
	for (size_t i = 0; i < lease->segment_count; i++) {
		if (lease->segments[i])
			report_segment(lease, i, -1, view->with_cells, segment++);
	}
	struct hpz_wire_holder *holder = (struct hpz_wire_holder *)segment;
	for (size_t i = 0; i < lease->holder_count; i++, holder++) {
		char comm[sizeof lease->holders[i].comm + 1] = "";
		memcpy(comm, lease->holders[i].comm, sizeof lease->holders[i].comm);
		*holder = (struct hpz_wire_holder){.size = sizeof *holder,
			.record = HPZ_RECORD_HOLDER,
			.pid = lease->holders[i].pid,
			.fd = lease->holders[i].fd};
		proto_set_text(holder->comm, sizeof holder->comm, comm);
	}
	return (size_t)((unsigned char *)holder - at);
}

/* In a cursor: the leases are through, this is the first orphan's. Ids are far below (contracts: exact in a
 * double). */
#define CURSOR_ORPHANS ((uint64_t)1 << 63)

static void report_orphan(const struct orphan *orphan, struct hpz_wire_lease_record *record)
{
	*record = (struct hpz_wire_lease_record){
		.size = sizeof *record,
		.record = HPZ_RECORD_LEASE,
		.id = orphan->lease,
		.given = orphan->pages * orphan->page_size,
		.asked = orphan->asked,
		.age_ms = (clock_get_ns(CLOCK_BOOTTIME) - orphan->granted_boot_ns) / NS_PER_MS,
		.state = HPZ_STATE_ORPHANED,
		.uid = orphan->uid,
	};
	proto_set_text(record->label, sizeof record->label, orphan->label);
	proto_set_text(record->reason, sizeof record->reason, orphan_get_reason_text(orphan));
}

/* Those of one lease have one id, so a page ends between two ids if it can. */
static size_t report_orphans(const struct orphans *orphans, uint64_t first, struct hpz_wire_listed *head,
	size_t used, size_t capacity)
{
	const struct list *list = orphan_get_list(orphans);
	uint64_t last = 0;
	for (const struct list *pos = list->next; pos != list; pos = pos->next) {
		const struct orphan *orphan = CONTAINER_OF(pos, const struct orphan, link);
		if (orphan->lease < first)
			continue;
		bool is_full = used + sizeof(struct hpz_wire_lease_record) * JOURNAL_SEGMENTS_MAX > capacity;
		if (is_full && orphan->lease != last) {
			head->cursor = CURSOR_ORPHANS | orphan->lease;
			break;
		}
		report_orphan(orphan, (struct hpz_wire_lease_record *)((unsigned char *)head + used));
		used += sizeof(struct hpz_wire_lease_record);
		head->records++;
		last = orphan->lease;
	}
	return used;
}

size_t report_list(struct lease_table *leases, const struct report_view *view, uint64_t cursor, void *buffer,
	size_t capacity)
{
	const struct orphans *orphans = view->orphans;
	struct hpz_wire_listed *head = buffer;
	*head = (struct hpz_wire_listed){.size = sizeof *head};
	size_t used = sizeof *head;
	if (cursor & CURSOR_ORPHANS)
		return orphans ? report_orphans(orphans, cursor & ~CURSOR_ORPHANS, head, used, capacity)
			       : used;
	struct lease *first = lease_find_from(leases, cursor);
	for (struct list *pos = first ? &first->link : &leases->leases; pos != &leases->leases;
		pos = pos->next) {
		const struct lease *lease = LEASE_OF(pos);
		size_t needed = sizeof(struct hpz_wire_lease_record) +
				lease->segments_out * sizeof(struct hpz_wire_segment) +
				lease->holder_count * sizeof(struct hpz_wire_holder);
		if (used + needed > capacity) {
			head->cursor = lease->id;
			return used;
		}
		used += report_one(lease, view, (unsigned char *)buffer + used);
		head->records += 1 + (uint32_t)lease->segments_out + (uint32_t)lease->holder_count;
	}
	if (!orphans || list_is_empty(orphan_get_list(orphans)))
		return used;
	/* On a page of their own when a lease's orphans might not fit behind these. */
	if (head->records > 0 && used > capacity / 2) {
		head->cursor = CURSOR_ORPHANS;
		return used;
	}
	return report_orphans(orphans, 0, head, used, capacity);
}

/* ---- check ---- */

size_t report_check(const struct books *books, size_t index, void *buffer, size_t capacity)
{
	struct hpz_wire_checked *head = buffer;
	struct hpz_wire_finding *record = (struct hpz_wire_finding *)(head + 1);
	size_t most = (capacity - sizeof *head) / sizeof *record;
	*head = (struct hpz_wire_checked){.size = sizeof *head,
		.segments = books->segments,
		.leases = books->leases,
		.dropped = books->results.dropped};
	for (; index < books->results.count && head->records < most; index++, record++, head->records++) {
		const struct books_finding *finding = &books->results.findings[index];
		*record = (struct hpz_wire_finding){.size = sizeof *record,
			.record = HPZ_RECORD_FINDING,
			.kind = finding->kind,
			.severity = finding->severity,
			.repaired = finding->is_repaired};
		proto_set_text(record->pool, sizeof record->pool, finding->pool);
		proto_set_text(record->text, sizeof record->text, finding->text);
	}
	if (index < books->results.count)
		head->cursor = books->run_number << 32 | index;
	return sizeof *head + head->records * sizeof *record;
}

/* ---- demand ---- */

static const uint32_t demand_reasons[] = {
	[DEMAND_ENOUGH] = HPZ_DEMAND_ENOUGH,
	[DEMAND_RARE] = HPZ_DEMAND_RARE,
	[DEMAND_CROWDED] = HPZ_DEMAND_CROWDED,
	[DEMAND_TOO_LARGE] = HPZ_DEMAND_TOO_LARGE,
};

static uint64_t to_milli(uint64_t value)
{
	return value / DEMAND_ONE * 1000 + value % DEMAND_ONE * 1000 / DEMAND_ONE;
}

static void count_there(const struct pool *pool, uint64_t pages, uint64_t *ret_there, uint64_t *ret_clean)
{
	*ret_there = *ret_clean = 0;
	POOL_FOR_EACH (pos, pool) {
		const struct pool_class *class = CONTAINER_OF(pos, struct pool_class, link);
		if (class->pages != pages)
			continue;
		*ret_clean = class->counts[SEGMENT_CLEAN];
		for (size_t i = 0; i < SEGMENT_STATE_COUNT; i++)
			*ret_there += class->counts[i];
	}
}

static void report_size(
	const struct pool *pool, const struct demand_size *size, struct hpz_wire_demand_size *ret_record)
{
	*ret_record = (struct hpz_wire_demand_size){
		.size = sizeof *ret_record,
		.record = HPZ_RECORD_DEMAND_SIZE,
		.bytes = size->pages * pool->config.page_size,
		.out = size->out,
		.peak_milli = to_milli(size->peak),
		.exact_milli = to_milli(size->served[DEMAND_EXACT]),
		.larger_milli = to_milli(size->served[DEMAND_LARGER]),
		.zeroed_milli = to_milli(size->served[DEMAND_ZEROED]),
		.waited_milli = to_milli(size->served[DEMAND_WAITED]),
		.refused_milli = to_milli(size->served[DEMAND_REFUSED]),
		.wanted = size->wanted,
		.fixed = demand_get_fixed(&pool->demand, size->pages),
		.proposed = size->proposed,
		.reason = demand_reasons[size->reason],
	};
	count_there(pool, size->pages, &ret_record->there, &ret_record->clean);
}

static void report_demand_pool(const struct pool *pool, struct hpz_wire_demand_pool *ret_record)
{
	struct demand_totals totals;
	demand_get_totals(&pool->demand, &totals);
	*ret_record = (struct hpz_wire_demand_pool){
		.size = sizeof *ret_record,
		.record = HPZ_RECORD_DEMAND_POOL,
		.sizes = (uint32_t)pool->demand.size_count,
		.node = pool->config.node,
		.page_size = pool->config.page_size,
		.target = pool->config.pages * pool->config.page_size,
		.fixed = totals.fixed_pages * pool->config.page_size,
		.learned = totals.learned_pages * pool->config.page_size,
		.most = totals.most_pages * pool->config.page_size,
		.large = totals.large_pages * pool->config.page_size,
		.half_life_ms = pool->demand.rules.half_life_ns / NS_PER_MS,
		.learns = pool->config.is_learning,
	};
	proto_set_text(ret_record->pool, sizeof ret_record->pool, pool->name);
}

size_t report_demand(const struct reconcile *reconcile, size_t index, void *buffer, size_t capacity)
{
	struct hpz_wire_demanded *head = buffer;
	*head = (struct hpz_wire_demanded){.size = sizeof *head};
	size_t used = sizeof *head;
	for (; index < reconcile->pool_count; index++) {
		const struct pool *pool = reconcile->pools[index];
		struct hpz_wire_demand_pool *record =
			(struct hpz_wire_demand_pool *)((unsigned char *)buffer + used);
		struct hpz_wire_demand_size *sizes = (struct hpz_wire_demand_size *)(record + 1);
		size_t needed = sizeof *record + pool->demand.size_count * sizeof *sizes;
		if (used + needed > capacity) {
			head->cursor = index;
			break;
		}
		report_demand_pool(pool, record);
		for (size_t i = 0; i < pool->demand.size_count; i++)
			report_size(pool, &pool->demand.sizes[i], &sizes[i]);
		used += needed;
		head->records += 1 + (uint32_t)pool->demand.size_count;
	}
	return used;
}

/* ---- status ---- */

/* Holes of leased segments; the pool's counts are refreshed with it. */
static void report_pool(
	struct reconcile *reconcile, struct pool *pool, uint64_t capabilities, struct hpz_wire_pool *record)
{
	uint64_t holes = 0, grown = 0;
	struct host_counters kernel = pool->kernel;
	host_get_counters(reconcile->host, pool->config.node, pool->config.page_size, &kernel);
	pool_count_holders(pool, &holes, &grown);
	LIST_FOR_EACH (pos, &pool->classes) {
		struct pool_class *class = CONTAINER_OF(pos, struct pool_class, link);
		LIST_FOR_EACH (at, &class->segments[SEGMENT_FILLING])
			pool_refresh(CONTAINER_OF(at, struct pool_segment, link));
	}
	*record = (struct hpz_wire_pool){
		.size = sizeof *record,
		.record = HPZ_RECORD_POOL,
		.page_size = pool->config.page_size,
		.node = pool->config.node,
		.waiting = pool->waiting,
		.target = pool->target,
		.total = pool_get_total(pool),
		.clean = pool->pages[SEGMENT_CLEAN],
		.leased = pool->pages[SEGMENT_LEASED],
		.returning = reconcile_get_returning(pool, reconcile->leases),
		.dirty = pool->pages[SEGMENT_DIRTY],
		.filling = pool->pages[SEGMENT_FILLING],
		.holes = holes,
		.raised = pool->raised,
		.kernel_nr = kernel.nr,
		.kernel_free = kernel.free,
		.kernel_resv = kernel.resv,
		.largest_clean = pool_get_largest_clean(pool) * pool->config.page_size,
		.clean_segments = (uint32_t)pool->segments[SEGMENT_CLEAN],
		.idle = reconcile_is_idle(pool, reconcile->leases),
		.retired_pages = pool->retired_pages,
		.verified_pages = pool->verified_pages,
		.verify_hits = pool->verify_hits,
		.sigbus = pool->sigbus,
	};
	/* An older client would not understand them. */
	if (capabilities & HPZ_WIRE_CAN_RESERVED)
		record->reserved_pages = pool->reserved_pages;
	if (capabilities & HPZ_WIRE_CAN_RESIZE) {
		record->configured = pool->config.pages;
		record->give_back = pool->give_back;
	}
	record->orphan_pages =
		orphan_get_pages(handoff_get_orphans(reconcile->handoff), pool, &record->orphans);
	proto_set_text(record->name, sizeof record->name, pool->name);
	proto_set_text(record->mount, sizeof record->mount, pool->store->path);
	proto_set_text(record->message, sizeof record->message, pool->message);
}

static void report_message(
	const struct reconcile *reconcile, const struct books *books, char ret_text[HPZ_WIRE_TEXT])
{
	ret_text[0] = '\0';
	if (books->message[0])
		snprintf(ret_text, HPZ_WIRE_TEXT, "%s", books->message);
	else if (reconcile->pool_count == 0)
		snprintf(ret_text, HPZ_WIRE_TEXT,
			"no pool is configured: add a [pool NAME] section to the configuration and reload");
	else if (reconcile->has_leftovers)
		snprintf(ret_text, HPZ_WIRE_TEXT, "waiting for the workers of an earlier hpzd to end");
	else if (prover_get_gap(reconcile->prover)[0])
		snprintf(ret_text, HPZ_WIRE_TEXT,
			"the full proof that memory is free does not work here: %s; see reuse in "
			"hpzd.conf(5)",
			prover_get_gap(reconcile->prover));
}

size_t report_status(struct reconcile *reconcile, const struct books *books, uint64_t capabilities,
	struct hpz_wire_status *ret_status)
{
	char message[HPZ_WIRE_TEXT];
	*ret_status = (struct hpz_wire_status){
		.size = sizeof *ret_status,
		.pools = (uint32_t)reconcile->pool_count,
		.leases_granted = reconcile->leases->granted,
		.bytes_cleared = reconcile->work.bytes_cleared,
		.bytes_filled = reconcile->work.bytes_filled,
		.worker_deaths = crew_get_deaths(reconcile->crew),
		.leases = (uint32_t)reconcile->leases->count,
		.workers = crew_get_worker_count(reconcile->crew),
		.book_alarms = books->alarms,
	};
	report_message(reconcile, books, message);
	proto_set_text(ret_status->version, sizeof ret_status->version, HPZ_VERSION);
	proto_set_text(ret_status->proof, sizeof ret_status->proof, prover_get_source(reconcile->prover));
	proto_set_text(ret_status->method, sizeof ret_status->method, reconcile_get_method(reconcile));
	proto_set_text(ret_status->message, sizeof ret_status->message, message);
	struct hpz_wire_pool *records = (struct hpz_wire_pool *)(ret_status + 1);
	for (size_t i = 0; i < reconcile->pool_count; i++)
		report_pool(reconcile, reconcile->pools[i], capabilities, &records[i]);
	return sizeof *ret_status + reconcile->pool_count * sizeof *records;
}

/* ---- clearing ---- */

static int32_t get_tenths(double percent)
{
	return percent < 0 ? HPZ_WIRE_PSI_NONE : (int32_t)(percent * 10 + 0.5);
}

static void report_node(const struct crew_node_state *state, struct hpz_wire_node *record)
{
	const struct pressure_rules *rules = state->rules;
	uint32_t paused = atomic_load(&rules->paused);
	*record = (struct hpz_wire_node){
		.size = sizeof *record,
		.record = HPZ_RECORD_NODE,
		.node = state->node,
		.holds = (atomic_load(&rules->is_off) ? HPZ_HOLD_OFF : 0) |
			 (paused & PRESSURE_PAUSE_CPU ? HPZ_HOLD_PSI_CPU : 0) |
			 (paused & PRESSURE_PAUSE_MEMORY ? HPZ_HOLD_PSI_MEMORY : 0),
		.workers = state->workers,
		.queued = state->queued,
		.idle = state->busy[WORKER_LEVEL_IDLE],
		.refill = state->busy[WORKER_LEVEL_REFILL],
		.urgent = state->busy[WORKER_LEVEL_URGENT],
		.backoff = pressure_get_backoff(rules),
		.rate_bytes_per_s = state->rate_bytes_per_s,
		.bytes = atomic_load(&rules->bytes),
		.batches = atomic_load(&rules->batches),
		.batch_ns = atomic_load(&rules->batch_ns),
		.base_ns = atomic_load(&rules->base_ns),
	};
}

#define METHOD_RECORDS_MAX 256 /* a message has room for more */

static uint32_t report_calibration(
	const struct work_calibration *calibration, struct hpz_wire_method *records)
{
	const struct worker_done *done = &calibration->done;
	uint32_t count = 0;
	for (size_t i = 0; i < zero_method_count; i++) {
		struct hpz_wire_method *record = &records[count++];
		bool is_usable = done->error == 0 && done->gb_per_s[i] > 0;
		*record = (struct hpz_wire_method){
			.size = sizeof *record,
			.record = HPZ_RECORD_METHOD,
			.node = calibration->node,
			.page_size = calibration->page_size,
			.flags = (is_usable ? HPZ_METHOD_USABLE : 0) |
				 ((int)i == calibration->method ? HPZ_METHOD_CHOSEN : 0),
			.batch_ns = is_usable ? done->batch_ns[i] : 0,
			.bytes_per_s = is_usable ? (uint64_t)(done->gb_per_s[i] * 1e9) : 0,
		};
		proto_set_text(record->name, sizeof record->name, zero_methods[i].name);
	}
	return count;
}

static uint32_t report_methods(const struct work *work, struct hpz_wire_method *records)
{
	uint32_t count = 0;
	for (size_t i = 0; i < work->calibration_count; i++) {
		if (work->calibrations[i].is_over && count + zero_method_count <= METHOD_RECORDS_MAX)
			count += report_calibration(&work->calibrations[i], records + count);
	}
	return count;
}

size_t report_clearing(const struct reconcile *reconcile, const struct config_clear *clear, void *buffer)
{
	struct hpz_wire_clearing *head = buffer;
	double cpu, memory;
	crew_get_psi(reconcile->crew, &cpu, &memory);
	*head = (struct hpz_wire_clearing){
		.size = sizeof *head, .psi_cpu = get_tenths(cpu), .psi_memory = get_tenths(memory)};
	struct hpz_wire_rule *rule = (struct hpz_wire_rule *)(head + 1);
	for (; head->rules < CONFIG_CLEAR_KEYS; head->rules++, rule++) {
		char value[HPZ_WIRE_VALUE];
		*rule = (struct hpz_wire_rule){.size = sizeof *rule, .record = HPZ_RECORD_RULE};
		const char *key = config_get_clear(clear, head->rules, value, sizeof value);
		proto_set_text(rule->key, sizeof rule->key, key);
		proto_set_text(rule->value, sizeof rule->value, value);
	}
	struct hpz_wire_node *node = (struct hpz_wire_node *)rule;
	struct crew_node_state state;
	for (; crew_get_node_state(reconcile->crew, head->nodes, &state); head->nodes++, node++)
		report_node(&state, node);
	struct hpz_wire_method *method = (struct hpz_wire_method *)node;
	head->methods = report_methods(&reconcile->work, method);
	return (size_t)((char *)(method + head->methods) - (char *)buffer);
}
