/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* fleet.c - hosts on paper, and the VMs of a trace that start and end on them. */
#include "fleet.h"

#include <search.h>

#include "events.h"
#include "size.h"
#include "util.h"

#define PASSED_MAX  16 /* daemon/queue.c's */
#define LOOKS_MAX   4  /* daemon/reconcile.c's: what a look changes is looked at again, but not without end */
#define CHUNK_VMS   1024
#define EVENT_VM    0
#define EVENT_WORK  1
#define NOT_PLANNED UINT64_MAX

/* One pool of one host. */
struct place {
	struct depot depot;
	struct list waiting; /* struct vm.link, who waits longest first */
	uint64_t waiting_count;
	uint64_t event_ns; /* when the end of its work is looked at; NOT_PLANNED */

	/* without hpz */
	uint64_t kernel_free;
	uint64_t kernel_until_ns;
};

struct host {
	char *name;
	struct place *places; /* one a pool */
	size_t place_count;
};

struct vm {
	struct list link;
	enum { VM_WAITS, VM_RUNS, VM_REFUSED } state;
	unsigned passed;                    /* starts that were served before it, while nothing served it */
	struct place *place, *kernel_place; /* NULL: none */
	struct depot_grant grant;
	uint64_t start_ns, end_ns;
	uint64_t give_up_ns; /* waits no longer */
	uint64_t ready_ns;
	uint64_t pages, kernel_pages;
	uint64_t kernel_ns; /* without hpz it waits so long; UINT64_MAX: it cannot start */
	uint64_t bytes;
	size_t size; /* its place in the profile */
	unsigned long line;
};

struct chunk {
	struct chunk *next;
	struct vm vms[CHUNK_VMS];
};

struct fleet {
	struct fleet_options options;
	struct config_pool pools[CONFIG_POOLS_MAX]; /* with their stocks */
	struct depot_rules rules[CONFIG_POOLS_MAX];
	size_t pool_count;
	void *hosts; /* tsearch()'s, by name */
	struct events events;
	struct tally tally;
	struct profile profile;
	struct fleet_facts facts;
	uint64_t now_ns, living;
	bool is_over; /* no more starts */

	struct chunk *chunks;
	size_t chunk_used; /* of the first one */
	struct list spare; /* struct vm.link */

	struct planner_class classes[PLANNER_CLASSES_MAX];
	struct planner_plan plan;
};

/* ---- hosts and VMs ---- */

static int compare_hosts(const void *a, const void *b)
{
	return strcmp(((const struct host *)a)->name, ((const struct host *)b)->name);
}

static void free_host(void *node)
{
	struct host *host = node;

	for (size_t i = 0; i < host->place_count; i++)
		depot_deinit(&host->places[i].depot);
	free(host->places);
	free(host->name);
	free(host);
}

static struct host *new_host(struct fleet *fleet, const char *name)
{
	struct host *host = calloc(1, sizeof *host);
	bool is_done = host && (host->name = strdup(name)) &&
		       (host->places = calloc(fleet->pool_count, sizeof *host->places));

	for (size_t i = 0; is_done && i < fleet->pool_count; i++) {
		struct place *place = &host->places[i];
		list_init(&place->waiting);
		place->event_ns = NOT_PLANNED;
		place->kernel_free = fleet->rules[i].pool->max_pages;
		is_done = depot_init(&place->depot, &fleet->rules[i], fleet->now_ns) == 0;
		host->place_count += is_done;
	}
	if (is_done && tsearch(host, &fleet->hosts, compare_hosts))
		return host;
	if (host)
		free_host(host);
	return NULL;
}

/* 0: the host, NULL it is one too many; or -ENOMEM. */
static int find_host(struct fleet *fleet, const char *name, struct host **ret_host)
{
	const struct host wanted = {.name = (char *)name};
	struct host *const *found = tfind(&wanted, &fleet->hosts, compare_hosts);
	uint64_t most = fleet->options.hosts_max;

	*ret_host = found ? *found : NULL;
	if (found || (most > 0 && fleet->facts.hosts == most))
		return 0;
	*ret_host = new_host(fleet, name);
	if (!*ret_host)
		return -ENOMEM;
	fleet->facts.hosts++;
	return 0;
}

static struct vm *new_vm(struct fleet *fleet)
{
	struct vm *vm;

	if (!list_is_empty(&fleet->spare)) {
		vm = CONTAINER_OF(fleet->spare.next, struct vm, link);
		list_remove(&vm->link);
	} else {
		if (!fleet->chunks || fleet->chunk_used == CHUNK_VMS) {
			struct chunk *chunk = calloc(1, sizeof *chunk);
			if (!chunk)
				return NULL;
			chunk->next = fleet->chunks;
			fleet->chunks = chunk;
			fleet->chunk_used = 0;
		}
		vm = &fleet->chunks->vms[fleet->chunk_used++];
	}
	*vm = (struct vm){0};
	list_init(&vm->link);
	fleet->living++;
	fleet->facts.living_most = MAX(fleet->facts.living_most, fleet->living);
	return vm;
}

static void free_vm(struct fleet *fleet, struct vm *vm)
{
	free(vm->grant.more);
	vm->grant = (struct depot_grant){0};
	list_remove(&vm->link);
	list_append(&fleet->spare, &vm->link);
	fleet->living--;
}

/* ---- without hpz ---- */

static bool fits_node(const struct fleet *fleet, size_t pool, int32_t node)
{
	return node == TRACE_NODE_ANY || fleet->rules[pool].pool->node == node;
}

/* Page sizes of the pools of that node, ascending, each once: daemon/choose.c's. */
static size_t list_page_sizes(const struct fleet *fleet, int32_t node, uint64_t ret_sizes[CONFIG_POOLS_MAX])
{
	size_t count = 0;

	for (size_t i = 0; i < fleet->pool_count; i++) {
		uint64_t size = fleet->rules[i].pool->page_size;
		size_t at = 0;
		while (at < count && ret_sizes[at] < size)
			at++;
		if (!fits_node(fleet, i, node) || (at < count && ret_sizes[at] == size))
			continue;
		memmove(&ret_sizes[at + 1], &ret_sizes[at], (count - at) * sizeof *ret_sizes);
		ret_sizes[at] = size;
		count++;
	}
	return count;
}

/*
 * The largest page size that wastes little and for which `find` has a place, then what is left: NULL.
 */
typedef struct place *(*find_fn)(
	struct fleet *fleet, struct host *host, const struct trace_row *row, uint64_t page_size);

static struct place *choose_place(
	struct fleet *fleet, struct host *host, const struct trace_row *row, find_fn find)
{
	uint64_t sizes[CONFIG_POOLS_MAX];

	for (size_t count = list_page_sizes(fleet, row->node, sizes); count > 0;) {
		uint64_t size = policy_pick_page_size(sizes, count, row->bytes);
		struct place *place = find(fleet, host, row, size);
		if (place)
			return place;
		count = 0;
		while (sizes[count] != size)
			count++; /* only smaller ones waste less */
	}
	return NULL;
}

/* Where most is free. */
static struct place *find_kernel_place(
	struct fleet *fleet, struct host *host, const struct trace_row *row, uint64_t page_size)
{
	struct place *best = NULL;

	for (size_t i = 0; i < fleet->pool_count; i++) {
		struct place *place = &host->places[i];
		if (fleet->rules[i].pool->page_size != page_size || !fits_node(fleet, i, row->node) ||
			place->kernel_free < size_pages(row->bytes, page_size) ||
			(best && place->kernel_free <= best->kernel_free))
			continue;
		best = place;
	}
	return best;
}

/* It zeroes for one start after the other, as it does for those that hpzd has it zero for. */
static void start_without(struct fleet *fleet, struct host *host, const struct trace_row *row, struct vm *vm)
{
	struct place *place = choose_place(fleet, host, row, find_kernel_place);

	vm->kernel_place = place;
	vm->kernel_ns = UINT64_MAX;
	if (!place)
		return;
	const struct depot_rules *rules = place->depot.rules;
	vm->kernel_pages = size_pages(row->bytes, rules->pool->page_size);
	place->kernel_free -= vm->kernel_pages;
	place->kernel_until_ns = MAX(place->kernel_until_ns, fleet->now_ns) +
				 depot_get_duration(rules, vm->kernel_pages, rules->rates.zero);
	vm->kernel_ns = place->kernel_until_ns - fleet->now_ns;
}

/* ---- what the planner is asked ---- */

static struct planner_request make_request(const struct fleet *fleet, uint64_t pages)
{
	return (struct planner_request){
		.pages = pages,
		.parts_max = fleet->options.takes_segments ? PLANNER_PARTS_MAX : 1,
		.is_patient = fleet->options.patience_ns != 0,
	};
}

/* Those who wait longer. */
struct queue {
	uint64_t pages, bound_pages;
	bool may_not_pass;
};

static void add_ahead(struct queue *queue, const struct vm *vm)
{
	queue->bound_pages = queue->pages == 0 ? vm->pages : MIN(queue->bound_pages, vm->pages);
	queue->pages += vm->pages;
	queue->may_not_pass = queue->may_not_pass || vm->passed >= PASSED_MAX;
}

/* All in that list before `until`. */
static struct queue get_queue(const struct list *waiting, const struct list *until)
{
	struct queue queue = {0};

	for (const struct list *pos = waiting->next; pos != until; pos = pos->next)
		add_ahead(&queue, CONTAINER_OF(pos, struct vm, link));
	return queue;
}

/* The plan is in fleet->plan. */
static void make_plan(struct fleet *fleet, struct place *place, const struct queue *queue, uint64_t pages)
{
	const struct planner_request request = make_request(fleet, pages);
	struct planner_input input;

	depot_get_input(&place->depot, fleet->classes, &input);
	input.ahead_pages = queue->pages;
	input.bound_pages = queue->bound_pages;
	input.may_pass = !queue->may_not_pass;
	planner_plan(&input, &request, &fleet->plan);
	if (fleet->options.planned)
		fleet->options.planned(&input, &request, &fleet->plan, fleet->options.user);
}

/* ---- which pool ---- */

static unsigned rank_place(struct fleet *fleet, struct place *place, uint64_t pages)
{
	const struct queue queue = get_queue(&place->waiting, &place->waiting);

	make_plan(fleet, place, &queue, pages);
	if (fleet->plan.kind == PLANNER_WAIT)
		return 2;
	return fleet->plan.zeroed_pages > 0;
}

static bool could_serve(const struct fleet *fleet, const struct host *host, size_t pool,
	const struct trace_row *row, uint64_t page_size)
{
	return fleet->rules[pool].pool->page_size == page_size && fits_node(fleet, pool, row->node) &&
	       depot_get_most_pages(&host->places[pool].depot) >= size_pages(row->bytes, page_size);
}

/* As hpzd: one that can serve it now, with most clean memory; else one that ever could. */
static struct place *find_place(
	struct fleet *fleet, struct host *host, const struct trace_row *row, uint64_t page_size)
{
	struct place *best = NULL;
	unsigned best_rank = 0;
	uint64_t best_clean = 0;

	for (size_t i = 0; i < fleet->pool_count; i++) {
		struct place *place = &host->places[i];
		if (!could_serve(fleet, host, i, row, page_size))
			continue;
		if (fleet->pool_count == 1) /* nothing to choose */
			return place;
		unsigned rank = rank_place(fleet, place, size_pages(row->bytes, page_size));
		uint64_t clean = depot_get_clean_pages(&place->depot);
		if (best && (rank > best_rank || (rank == best_rank && clean <= best_clean)))
			continue;
		best = place;
		best_rank = rank;
		best_clean = clean;
	}
	return best;
}

/* ---- what becomes of a start ---- */

static void teach(struct fleet *fleet, const struct vm *vm, enum tally_outcome outcome)
{
	static const enum demand_served served[TALLY_OUTCOMES] = {
		[TALLY_EXACT] = DEMAND_EXACT,
		[TALLY_TRIMMED] = DEMAND_LARGER,
		[TALLY_SEVERAL] = DEMAND_LARGER,
		[TALLY_EXTENDED] = DEMAND_ZEROED,
		[TALLY_WAITED] = DEMAND_WAITED,
		[TALLY_REFUSED] = DEMAND_REFUSED,
		[TALLY_IMPOSSIBLE] = DEMAND_REFUSED,
	};

	/* Any mixture serves those that may come in several pieces: they teach nothing. */
	if (vm->place && !fleet->options.takes_segments)
		depot_note(&vm->place->depot, fleet->now_ns, vm->pages, served[outcome]);
}

static void tell(struct fleet *fleet, const struct vm *vm, enum tally_outcome outcome, uint64_t wait_ns,
	double zeroed_bytes)
{
	const struct tally_start start = {outcome, wait_ns, vm->kernel_ns, (double)vm->bytes, zeroed_bytes};

	tally_add(&fleet->tally, &start);
	teach(fleet, vm, outcome);
	if (fleet->options.told)
		fleet->options.told(vm->line, &start, fleet->options.user);
}

static enum tally_outcome get_outcome(const struct fleet *fleet, const struct vm *vm)
{
	if (fleet->now_ns > vm->start_ns)
		return TALLY_WAITED;
	if (fleet->plan.zeroed_pages > 0)
		return TALLY_EXTENDED;
	switch (fleet->plan.kind) {
	case PLANNER_EXACT:
		return TALLY_EXACT;
	case PLANNER_TRIM:
		return TALLY_TRIMMED;
	case PLANNER_SEVERAL:
	case PLANNER_EXTEND:
	case PLANNER_WAIT:
		break;
	}
	return TALLY_SEVERAL;
}

/* By fleet->plan. */
static int serve(struct fleet *fleet, struct vm *vm)
{
	const struct planner_request request = make_request(fleet, vm->pages);
	const struct depot_rules *rules = vm->place->depot.rules;
	int r = depot_take(
		&vm->place->depot, &fleet->plan, &request, fleet->now_ns, &vm->grant, &vm->ready_ns);

	if (r < 0)
		return r;
	vm->state = VM_RUNS;
	tell(fleet, vm, get_outcome(fleet, vm), vm->ready_ns - vm->start_ns,
		(double)fleet->plan.zeroed_pages * (double)rules->pool->page_size);
	return 0;
}

static void stop_waiting(struct vm *vm)
{
	list_remove(&vm->link);
	vm->place->waiting_count--;
}

static void refuse(struct fleet *fleet, struct vm *vm)
{
	vm->state = VM_REFUSED;
	tell(fleet, vm, vm->place ? TALLY_REFUSED : TALLY_IMPOSSIBLE, 0, 0);
}

/* Those who wait longer than `served`; NULL: all. */
static void note_passed(struct place *place, const struct vm *served)
{
	LIST_FOR_EACH (pos, &place->waiting) {
		struct vm *vm = CONTAINER_OF(pos, struct vm, link);
		if (vm == served)
			break;
		vm->passed++;
	}
}

static int serve_waiting(struct fleet *fleet, struct place *place)
{
	struct queue queue = {0};

	LIST_FOR_EACH_SAFE (pos, &place->waiting) {
		struct vm *vm = CONTAINER_OF(pos, struct vm, link);
		make_plan(fleet, place, &queue, vm->pages);
		if (fleet->plan.kind == PLANNER_WAIT) {
			add_ahead(&queue, vm);
			continue;
		}
		bool passes = fleet->plan.passes;
		if (passes)
			note_passed(place, vm);
		stop_waiting(vm);
		int r = serve(fleet, vm);
		if (r < 0)
			return r;
		if (passes) /* one of those before it may have been passed too often now */
			queue = get_queue(&place->waiting, pos_next);
	}
	return 0;
}

/* After whatever happened there, as hpzd after each batch of events. */
static int settle(struct fleet *fleet, struct place *place)
{
	int r = 1;

	for (int look = 0; r > 0 && look < LOOKS_MAX; look++) {
		r = serve_waiting(fleet, place);
		if (r < 0)
			return r;
		const struct vm *first =
			place->waiting_count > 0 ? CONTAINER_OF(place->waiting.next, struct vm, link) : NULL;
		r = depot_reconcile(
			&place->depot, fleet->now_ns, place->waiting_count, first ? first->pages : 0);
	}
	if (r < 0 || place->event_ns != NOT_PLANNED || place->depot.job_end_ns == DEPOT_NEVER)
		return MIN(r, 0);
	place->event_ns = place->depot.job_end_ns;
	return events_add(&fleet->events, place->event_ns, EVENT_WORK, place);
}

/* ---- events ---- */

static int on_work(struct fleet *fleet, struct place *place)
{
	place->event_ns = NOT_PLANNED;
	/* Starts that were zeroed for meanwhile have put it off. */
	if (place->depot.job_end_ns <= fleet->now_ns)
		depot_finish_job(&place->depot);
	return settle(fleet, place);
}

/* The next time something is to be done about it: it gives up, its memory is zero, it ends. */
static int plan_vm(struct fleet *fleet, struct vm *vm)
{
	uint64_t next_ns = vm->end_ns;

	if (vm->state == VM_WAITS)
		next_ns = MIN(next_ns, vm->give_up_ns);
	else if (vm->state == VM_RUNS && next_ns != TRACE_NEVER)
		next_ns = MAX(next_ns, vm->ready_ns);
	return next_ns == UINT64_MAX ? 0 : events_add(&fleet->events, next_ns, EVENT_VM, vm);
}

static int end_vm(struct fleet *fleet, struct vm *vm)
{
	struct place *place = vm->state == VM_RUNS ? vm->place : NULL;
	int r = place ? depot_give(&place->depot, &vm->grant, fleet->now_ns) : 0;

	if (vm->kernel_place)
		vm->kernel_place->kernel_free += vm->kernel_pages;
	if (!fleet->is_over)
		profile_end(&fleet->profile, vm->size, vm->start_ns, vm->end_ns);
	free_vm(fleet, vm);
	return r == 0 && place ? settle(fleet, place) : r;
}

static int on_vm(struct fleet *fleet, struct vm *vm)
{
	if (vm->state == VM_WAITS) {
		struct place *place = vm->place;
		stop_waiting(vm);
		refuse(fleet, vm);
		int r = settle(fleet, place); /* others may have their turn */
		if (r < 0)
			return r;
	}
	/* It was zeroed for meanwhile, or ends later than it would have given up. */
	uint64_t end_ns = vm->state == VM_RUNS ? MAX(vm->end_ns, vm->ready_ns) : vm->end_ns;
	return end_ns > fleet->now_ns ? plan_vm(fleet, vm) : end_vm(fleet, vm);
}

static int run_until(struct fleet *fleet, uint64_t until_ns)
{
	struct event event;
	int r = 0;

	while (r == 0 && events_take(&fleet->events, until_ns, &event)) {
		fleet->now_ns = event.time_ns;
		r = event.kind == EVENT_WORK ? on_work(fleet, event.what) : on_vm(fleet, event.what);
	}
	return r;
}

/* ---- the trace ---- */

static uint64_t add_up(uint64_t a, uint64_t b)
{
	uint64_t sum;

	return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

static int start_with(struct fleet *fleet, struct host *host, const struct trace_row *row, struct vm *vm)
{
	struct place *place = vm->place = choose_place(fleet, host, row, find_place);

	if (!place) {
		refuse(fleet, vm);
		return 0;
	}
	const struct queue queue = get_queue(&place->waiting, &place->waiting);
	vm->pages = size_pages(row->bytes, place->depot.rules->pool->page_size);
	make_plan(fleet, place, &queue, vm->pages);
	if (fleet->plan.kind != PLANNER_WAIT) {
		if (fleet->plan.passes)
			note_passed(place, NULL);
		int r = serve(fleet, vm);
		if (r < 0)
			return r;
	} else if (fleet->options.patience_ns == 0) {
		refuse(fleet, vm);
	} else {
		list_append(&place->waiting, &vm->link);
		place->waiting_count++;
	}
	return settle(fleet, place);
}

int fleet_start(struct fleet *fleet, const struct trace_row *row)
{
	struct host *host = NULL;
	int r = run_until(fleet, row->start_ns);

	fleet->now_ns = row->start_ns;
	if (r == 0)
		r = find_host(fleet, row->host, &host);
	if (r < 0)
		return r;
	if (!host) {
		fleet->facts.skipped_rows++;
		return 0;
	}
	struct vm *vm = new_vm(fleet);
	if (!vm)
		return -ENOMEM;
	if (fleet->tally.starts == 0 && fleet->living == 1)
		fleet->facts.first_ns = row->start_ns;
	fleet->facts.last_ns = row->start_ns;
	vm->start_ns = row->start_ns;
	vm->end_ns = row->end_ns;
	vm->give_up_ns = add_up(row->start_ns, fleet->options.patience_ns);
	vm->bytes = row->bytes;
	vm->line = row->line;
	vm->size = profile_start(&fleet->profile, row->bytes, row->start_ns);
	start_without(fleet, host, row, vm);
	r = start_with(fleet, host, row, vm);
	return r < 0 ? r : plan_vm(fleet, vm);
}

static void refuse_waiting(const void *node, VISIT visit, void *user)
{
	struct host *host = *(struct host *const *)node;
	struct fleet *fleet = user;

	if (visit != postorder && visit != leaf)
		return;
	for (size_t i = 0; i < fleet->pool_count; i++) {
		LIST_FOR_EACH_SAFE (pos, &host->places[i].waiting) {
			struct vm *vm = CONTAINER_OF(pos, struct vm, link);
			stop_waiting(vm);
			refuse(fleet, vm);
		}
	}
}

int fleet_finish(struct fleet *fleet)
{
	fleet->is_over = true;
	profile_finish(&fleet->profile, fleet->facts.first_ns, fleet->facts.last_ns);
	int r = run_until(fleet, UINT64_MAX);

	/* Whoever waits for ever, for those that never end. */
	twalk_r(fleet->hosts, refuse_waiting, fleet);
	return r;
}

/* ---- life ---- */

int fleet_new(const struct fleet_options *options, const struct fleet_stock *stocks, struct fleet **ret_fleet)
{
	struct fleet *fleet = calloc(1, sizeof *fleet);

	if (!fleet)
		return -ENOMEM;
	fleet->options = *options;
	fleet->pool_count = options->config->pool_count;
	list_init(&fleet->spare);
	for (size_t i = 0; i < fleet->pool_count; i++) {
		struct config_pool *pool = &fleet->pools[i];
		*pool = options->config->pools[i];
		pool->is_learning = stocks[i].is_learned;
		pool->stock_count = stocks[i].count;
		memcpy(pool->stock, stocks[i].entries, sizeof pool->stock);
		fleet->rules[i] = (struct depot_rules){
			.pool = pool,
			.clear = &options->config->clear,
			.rates = options->rates,
			.work_limit = options->config->clear.rate_bytes_per_s,
			.slots = options->workers + 1, /* as hpzd: one a worker, and one behind them */
		};
	}
	*ret_fleet = fleet;
	return 0;
}

void fleet_free(struct fleet *fleet)
{
	if (!fleet)
		return;
	tdestroy(fleet->hosts, free_host);
	events_deinit(&fleet->events);
	while (fleet->chunks) {
		struct chunk *chunk = fleet->chunks;
		fleet->chunks = chunk->next;
		for (size_t i = 0; i < CHUNK_VMS; i++)
			free(chunk->vms[i].grant.more);
		free(chunk);
	}
	free(fleet);
}

const struct tally *fleet_get_tally(const struct fleet *fleet)
{
	return &fleet->tally;
}

const struct profile *fleet_get_profile(const struct fleet *fleet)
{
	return &fleet->profile;
}

const struct fleet_facts *fleet_get_facts(const struct fleet *fleet)
{
	return &fleet->facts;
}
