/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* reserve.c - clean memory that is kept for leases to come. */
#include <inttypes.h>

#include "log.h"
#include "reserve.h"
#include "size.h"

#define TRIES_MAX  8 /* segments found unfit before it is left to the next look */
#define FAILED_MAX 2 /* extensions that came to nothing: then only clean memory will do */

static void on_timer(uv_timer_t *timer)
{
	struct reserves *reserves = timer->data;
	reconcile_mark(reserves->supply->reconcile);
}

void reserve_init(
	struct reserves *reserves, uv_loop_t *loop, struct supply *supply, struct lease_table *leases)
{
	*reserves = (struct reserves){.supply = supply, .leases = leases};
	list_init(&reserves->list);
	uv_timer_init(loop, &reserves->timer);
	reserves->timer.data = reserves;
}

static void forget(struct reservation *reservation)
{
	list_remove(&reservation->link);
	free(reservation);
}

void reserve_deinit(struct reserves *reserves)
{
	LIST_FOR_EACH_SAFE (pos, &reserves->list)
		forget(RESERVATION_OF(pos));
	uv_close((uv_handle_t *)&reserves->timer, NULL);
}

/* ---- questions ---- */

struct reservation *reserve_find(const struct reserves *reserves, uint64_t id)
{
	LIST_FOR_EACH (pos, &reserves->list) {
		if (RESERVATION_OF(pos)->id == id)
			return RESERVATION_OF(pos);
	}
	return NULL;
}

uint64_t reserve_get_bytes(const struct reservation *reservation)
{
	return reservation->pages * reservation->pool->config.page_size;
}

uint64_t reserve_get_ttl_ms(const struct reservation *reservation)
{
	uint64_t now = clock_get_ns(CLOCK_BOOTTIME);
	if (now >= reservation->expires_boot_ns)
		return 0;
	return (reservation->expires_boot_ns - now + NS_PER_MS - 1) / NS_PER_MS;
}

static size_t list_kept(
	const struct reservation *reservation, struct pool_segment *ret_segments[PLANNER_PARTS_MAX])
{
	return pool_list_kept(reservation->pool, reservation, ret_segments, PLANNER_PARTS_MAX);
}

static uint64_t count_kept(struct pool_segment *const *segments, size_t count)
{
	uint64_t pages = 0;
	for (size_t i = 0; i < count; i++)
		pages += segments[i]->pages;
	return pages;
}

uint64_t reserve_get_ready(const struct reservation *reservation)
{
	struct pool_segment *segments[PLANNER_PARTS_MAX];
	size_t count = list_kept(reservation, segments);
	return MIN(count_kept(segments, count), reservation->pages);
}

static void report_one(const struct reservation *reservation, struct hpz_wire_lease_record *record)
{
	*record = (struct hpz_wire_lease_record){
		.size = sizeof *record,
		.record = HPZ_RECORD_LEASE,
		.id = reservation->id,
		.given = reserve_get_bytes(reservation),
		.asked = reservation->asked,
		.age_ms = (clock_get_ns(CLOCK_BOOTTIME) - reservation->granted_boot_ns) / NS_PER_MS,
		.state = HPZ_STATE_RESERVED,
		.flags = reservation->flags,
		.uid = reservation->uid,
		.ttl_ms = reserve_get_ttl_ms(reservation),
	};
	proto_set_text(record->label, sizeof record->label, reservation->label);
}

size_t reserve_report(const struct reserves *reserves, uint64_t first, struct hpz_wire_listed *listed,
	size_t used, size_t capacity)
{
	LIST_FOR_EACH (pos, &reserves->list) {
		const struct reservation *reservation = RESERVATION_OF(pos);
		if (reservation->id < first)
			continue;
		if (used + sizeof(struct hpz_wire_lease_record) > capacity) {
			listed->cursor = RESERVE_CURSOR | reservation->id;
			break;
		}
		report_one(reservation, (struct hpz_wire_lease_record *)((unsigned char *)listed + used));
		used += sizeof(struct hpz_wire_lease_record);
		listed->records++;
	}
	return used;
}

/* ---- the journal ---- */

static int write_record(struct journal *journal, const struct reservation *reservation, uint64_t pages)
{
	struct journal_reserve record = {
		.size = sizeof record,
		.node = reservation->pool->config.node,
		.id = reservation->id,
		.page_size = reservation->pool->config.page_size,
		.pages = pages,
		.asked = reservation->asked,
		.granted_boot_ns = reservation->granted_boot_ns,
		.expires_boot_ns = reservation->expires_boot_ns,
		.uid = reservation->uid,
		.flags = reservation->flags,
	};
	memcpy(record.label, reservation->label, strnlen(reservation->label, sizeof record.label));
	memcpy(record.pool, reservation->pool->name, strnlen(reservation->pool->name, sizeof record.pool));
	return journal_append(journal, JOURNAL_RESERVE, &record, sizeof record, NULL, 0);
}

static void write_or_log(
	const struct reserves *reserves, const struct reservation *reservation, uint64_t pages)
{
	int r = write_record(reserves->leases->journal, reservation, pages);
	if (r < 0)
		log_error("journal: reservation %" PRIu64 ": %s; after a restart now it would be as before",
			reservation->id, strerror(-r));
}

void reserve_write_all(const struct reserves *reserves, struct journal *journal)
{
	LIST_FOR_EACH (pos, &reserves->list)
		write_record(journal, RESERVATION_OF(pos), RESERVATION_OF(pos)->pages);
}

void reserve_read_record(struct reserves *reserves, enum journal_type type, const void *payload, size_t bytes)
{
	const struct journal_reserve *record = payload;
	if (type != JOURNAL_RESERVE || bytes < sizeof *record)
		return;
	struct reservation *reservation = reserve_find(reserves, record->id);
	if (record->pages == 0) {
		if (reservation)
			forget(reservation);
		return;
	}
	if (!reservation) {
		reservation = calloc(1, sizeof *reservation);
		if (!reservation)
			return;
		list_append(&reserves->list, &reservation->link); /* ids ascend */
	}
	reservation->id = record->id;
	reservation->pages = record->pages;
	reservation->asked = record->asked;
	reservation->granted_boot_ns = record->granted_boot_ns;
	reservation->expires_boot_ns = record->expires_boot_ns;
	reservation->uid = record->uid;
	reservation->flags = record->flags;
	memcpy(reservation->label, record->label, sizeof record->label);
	memcpy(reservation->pool_name, record->pool, sizeof record->pool - 1);
}

static struct pool *find_pool(const struct reserves *reserves, const char *name)
{
	const struct reconcile *reconcile = reserves->supply->reconcile;
	for (size_t i = 0; i < reconcile->pool_count; i++) {
		if (strcmp(reconcile->pools[i]->name, name) == 0)
			return reconcile->pools[i];
	}
	return NULL;
}

/* ---- keeping ---- */

static void plan_timer(struct reserves *reserves)
{
	uint64_t next_ms = UINT64_MAX;
	LIST_FOR_EACH (pos, &reserves->list)
		next_ms = MIN(next_ms, reserve_get_ttl_ms(RESERVATION_OF(pos)));
	if (next_ms == UINT64_MAX)
		uv_timer_stop(&reserves->timer);
	else
		uv_timer_start(&reserves->timer, on_timer, next_ms, 0);
}

/* What is missing, and how: one that must be whole has all of it in one segment. */
static struct supply_ask make_ask(struct reservation *reservation, uint64_t kept, size_t parts)
{
	bool is_split = reservation->flags & HPZ_LEASE_SEGMENTS;
	return (struct supply_ask){
		.pool = reservation->pool,
		.request = {.pages = reservation->pages - kept,
			.parts_max = is_split && parts < PLANNER_PARTS_MAX ? PLANNER_PARTS_MAX - parts : 1},
		.uid = reservation->uid,
		.may_pass = true,
		.may_zero = reservation->failed < FAILED_MAX,
		.keeper = reservation,
	};
}

/* Whoever reads all clean memory does not wait for this. */
static void excuse(struct pool_segment *const *segments, size_t count)
{
	for (size_t i = 0; i < count; i++)
		segments[i]->round = segments[i]->is_busy ? segments[i]->round : 0;
}

/* Keeps what it lacks, as far as that is to be had now. */
static void fill_up(struct reserves *reserves, struct reservation *reservation)
{
	static struct planner_plan plan;
	struct pool_segment *segments[PLANNER_PARTS_MAX];
	for (int tries = 0; tries < TRIES_MAX; tries++) {
		size_t count = list_kept(reservation, segments);
		uint64_t kept = count_kept(segments, count);
		excuse(segments, count);
		if (kept >= reservation->pages || supply_is_growing(reserves->supply, reservation))
			return;
		if (kept > 0 && !(reservation->flags & HPZ_LEASE_SEGMENTS)) {
			supply_drop(reserves->supply, reservation->pool, reservation);
			kept = count = 0;
		}
		struct supply_ask ask = make_ask(reservation, kept, count);
		supply_plan(reserves->supply, &ask, &plan);
		if (plan.kind == PLANNER_WAIT || supply_take(reserves->supply, &ask, &plan) != -EUCLEAN)
			return;
	}
}

void reserve_look(struct reserves *reserves)
{
	LIST_FOR_EACH_SAFE (pos, &reserves->list) {
		struct reservation *reservation = RESERVATION_OF(pos);
		if (reserve_get_ttl_ms(reservation) == 0)
			reserve_end(reserves, reservation, "its time is over");
		else
			fill_up(reserves, reservation);
	}
	plan_timer(reserves);
}

void reserve_finish_adoption(struct reserves *reserves)
{
	LIST_FOR_EACH_SAFE (pos, &reserves->list) {
		struct reservation *reservation = RESERVATION_OF(pos);
		reservation->pool = find_pool(reserves, reservation->pool_name);
		if (!reservation->pool) {
			log_warning("reservation %" PRIu64 " (%s) ends: its pool %s is gone", reservation->id,
				reservation->label, reservation->pool_name);
			forget(reservation);
			continue;
		}
		reservation->pool->reserved_pages += reservation->pages;
		/* Nothing is zeroed before it is known whether workers of an earlier hpzd live on. */
		reservation->failed = FAILED_MAX;
		fill_up(reserves, reservation);
		reservation->failed = 0;
	}
	plan_timer(reserves);
}

void reserve_note_failed(struct reserves *reserves, const void *keeper)
{
	LIST_FOR_EACH (pos, &reserves->list)
		RESERVATION_OF(pos)->failed += RESERVATION_OF(pos) == keeper;
}

/* ---- life ---- */

int reserve_make(struct reserves *reserves, const struct reservation *draft, uint64_t ttl_ms, void *keeper,
	struct reservation **ret_reservation)
{
	struct reservation *reservation = malloc(sizeof *reservation);
	if (!reservation)
		return -ENOMEM;
	*reservation = *draft;
	reservation->id = lease_take_id(reserves->leases);
	reservation->granted_boot_ns = clock_get_ns(CLOCK_BOOTTIME);
	reservation->expires_boot_ns = reservation->granted_boot_ns + ttl_ms * NS_PER_MS;
	int r = write_record(reserves->leases->journal, reservation, reservation->pages);
	if (r < 0) {
		free(reservation);
		return r;
	}
	list_append(&reserves->list, &reservation->link);
	reservation->pool->reserved_pages += reservation->pages;
	supply_pass(reserves->supply, reservation->pool, keeper, reservation);
	plan_timer(reserves);
	*ret_reservation = reservation;
	return 0;
}

void reserve_end(struct reserves *reserves, struct reservation *reservation, const char *why)
{
	log_info("reservation %" PRIu64 " (%s) ends: %s", reservation->id, reservation->label, why);
	write_or_log(reserves, reservation, 0);
	supply_drop(reserves->supply, reservation->pool, reservation);
	reservation->pool->reserved_pages -= reservation->pages;
	forget(reservation);
	reconcile_mark(reserves->supply->reconcile);
}

void reserve_end_all(struct reserves *reserves, const struct pool *pool, const char *why)
{
	LIST_FOR_EACH_SAFE (pos, &reserves->list) {
		if (RESERVATION_OF(pos)->pool == pool)
			reserve_end(reserves, RESERVATION_OF(pos), why);
	}
}

/* Whole segments that it does not need any more: the smallest first. */
static void let_go_surplus(struct reservation *reservation)
{
	struct pool_segment *segments[PLANNER_PARTS_MAX];
	size_t count = list_kept(reservation, segments);
	uint64_t kept = count_kept(segments, count);
	for (size_t i = count; i-- > 0 && kept - segments[i]->pages >= reservation->pages;) {
		kept -= segments[i]->pages;
		pool_keep(segments[i], NULL);
	}
}

void reserve_use(struct reserves *reserves, struct reservation *reservation, uint64_t pages)
{
	reservation->pool->reserved_pages -= MIN(pages, reservation->pages);
	reservation->pages -= MIN(pages, reservation->pages);
	if (reservation->pages == 0) {
		reserve_end(reserves, reservation, "it is used up");
		return;
	}
	write_or_log(reserves, reservation, reservation->pages);
	let_go_surplus(reservation);
	reconcile_mark(reserves->supply->reconcile);
}

/* ---- taking ---- */

static void let_go_unfit(const struct reserves *reserves, const struct reservation *reservation, uint32_t uid)
{
	struct pool_segment *segments[PLANNER_PARTS_MAX];
	size_t count = list_kept(reservation, segments);
	for (size_t i = 0; i < count; i++) {
		if (!handoff_may_give(reserves->supply->handoff, segments[i], uid))
			verify_drop(reserves->supply->verify, segments[i]); /* it may be being read */
	}
}

/* -EINPROGRESS: not all of it is ready. */
static int check_ready(const struct reserves *reserves, const struct reservation *reservation)
{
	struct pool_segment *segments[PLANNER_PARTS_MAX];
	size_t count = list_kept(reservation, segments);
	bool is_ready = !supply_is_growing(reserves->supply, reservation);
	for (size_t i = 0; i < count; i++)
		is_ready = is_ready && !segments[i]->is_busy;
	return is_ready ? 0 : -EINPROGRESS;
}

/* What is kept, as the planner wants it. The longest are listed first. */
static size_t list_classes(
	const struct reservation *reservation, struct planner_class ret_classes[PLANNER_PARTS_MAX])
{
	struct pool_segment *segments[PLANNER_PARTS_MAX];
	size_t classes = 0;
	for (size_t i = list_kept(reservation, segments); i-- > 0;) {
		if (classes == 0 || ret_classes[classes - 1].segment_pages != segments[i]->pages)
			ret_classes[classes++] = (struct planner_class){.segment_pages = segments[i]->pages};
		ret_classes[classes - 1].clean++;
	}
	return classes;
}

static void pass_on(const struct reservation *reservation, const struct planner_plan *plan, void *keeper)
{
	for (size_t i = 0; i < plan->take_count; i++) {
		struct pool_segment *segments[PLANNER_PARTS_MAX];
		size_t count = list_kept(reservation, segments);
		uint64_t wanted = plan->takes[i].count;
		for (size_t at = 0; at < count && wanted > 0; at++) {
			if (segments[at]->pages != plan->takes[i].segment_pages)
				continue;
			pool_keep(segments[at], keeper);
			wanted--;
		}
	}
}

/* One of exactly that length that nobody has. */
static int swap(struct reserves *reserves, struct reservation *reservation, uint64_t pages, uint32_t uid,
	void *keeper)
{
	static struct planner_plan plan;
	struct supply_ask ask = {
		.pool = reservation->pool,
		.request = {.pages = pages, .parts_max = 1},
		.uid = uid,
		.may_pass = true,
		.keeper = keeper,
	};
	supply_plan(reserves->supply, &ask, &plan);
	return plan.kind == PLANNER_EXACT ? supply_take(reserves->supply, &ask, &plan) : -EAGAIN;
}

int reserve_take(struct reserves *reserves, struct reservation *reservation, uint64_t pages, size_t parts_max,
	uint32_t uid, bool may_swap, void *keeper)
{
	static struct planner_plan plan;
	struct planner_class classes[PLANNER_PARTS_MAX];
	let_go_unfit(reserves, reservation, uid);
	int r = check_ready(reserves, reservation);
	if (r < 0)
		return r;
	struct planner_input input = {
		.classes = classes, .class_count = list_classes(reservation, classes), .may_pass = true};
	struct planner_request request = {.pages = pages, .parts_max = parts_max};
	planner_plan(&input, &request, &plan);
	/* One that had to be read first would be kept beside what is taken when that is done. */
	may_swap = may_swap && reservation->pool->config.verify == CONFIG_VERIFY_OFF;
	if (plan.kind == PLANNER_TRIM && may_swap) {
		r = swap(reserves, reservation, pages, uid, keeper);
		if (r == 0 || r == -EINPROGRESS)
			return r;
	}
	if (plan.kind == PLANNER_WAIT)
		return -EAGAIN;
	pass_on(reservation, &plan, keeper);
	return 0;
}
