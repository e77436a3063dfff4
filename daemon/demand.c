/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* demand.c - which sizes are asked for, and the stock that would serve them. Pure. */
#include "demand.h"
#include "util.h"

#define STEPS_PER_HALF_LIFE 16 /* in which everything fades */
#define PEAK_SLOWNESS       4 /* a peak fades so many times more slowly: the next one may be a weekend away */
#define KNOWN_FROM          (DEMAND_ONE * 3 / 2) /* two requests within a half-life */
#define KNOWN_TO            (DEMAND_ONE / 2)
#define FORGET_BELOW        (DEMAND_ONE / 16)
#define WEIGHT_MAX          ((uint64_t)1 << 44) /* no product below overflows */
#define SPARE_PART          8                   /* one to spare for each of so many */

static uint64_t subtract(uint64_t from, uint64_t what)
{
	return from > what ? from - what : 0;
}

/* ---- fading ---- */

/* By so many steps. */
static uint64_t fade(uint64_t value, uint64_t steps)
{
	/* 65536 * 2^(-i/16) */
	static const uint32_t table[STEPS_PER_HALF_LIFE] = {65536, 62757, 60097, 57549, 55109, 52773, 50535,
		48393, 46341, 44376, 42495, 40693, 38968, 37316, 35734, 34219};
	if (steps / STEPS_PER_HALF_LIFE >= 64)
		return 0;
	return value * table[steps % STEPS_PER_HALF_LIFE] / 65536 >> steps / STEPS_PER_HALF_LIFE;
}

static void fade_size(struct demand_size *size, uint64_t steps, uint64_t peak_steps)
{
	for (size_t i = 0; i < DEMAND_SERVED_COUNT; i++)
		size->served[i] = fade(size->served[i], steps);
	size->peak = MAX(fade(size->peak, peak_steps), size->out * DEMAND_ONE);
	size->was_refused = false;
}

uint64_t demand_get_asked(const struct demand_size *size)
{
	uint64_t asked = 0;
	for (size_t i = 0; i < DEMAND_SERVED_COUNT; i++)
		asked += size->served[i];
	return asked;
}

/* Nothing is out, and nobody asked for so long that it makes no difference. */
static bool is_forgettable(const struct demand_size *size)
{
	return size->out == 0 && demand_get_asked(size) < FORGET_BELOW;
}

static void forget_faded(struct demand *demand)
{
	size_t kept = 0;
	for (size_t i = 0; i < demand->size_count; i++) {
		if (!is_forgettable(&demand->sizes[i]))
			demand->sizes[kept++] = demand->sizes[i];
	}
	demand->size_count = kept;
}

static uint64_t count_steps(const struct demand *demand, uint64_t from_ns, uint64_t to_ns)
{
	uint64_t step_ns = MAX(demand->rules.half_life_ns / STEPS_PER_HALF_LIFE, 1);
	return subtract(to_ns, from_ns) / step_ns;
}

static void fade_all(struct demand *demand, uint64_t now_ns)
{
	uint64_t steps = count_steps(demand, demand->faded_ns, now_ns);
	if (steps == 0)
		return;
	/* Whole steps only: what is left of the time counts for the next one. */
	demand->faded_ns += steps * MAX(demand->rules.half_life_ns / STEPS_PER_HALF_LIFE, 1);
	uint64_t peak_steps = (demand->steps + steps) / PEAK_SLOWNESS - demand->steps / PEAK_SLOWNESS;
	demand->steps += steps;
	for (size_t i = 0; i < demand->size_count; i++)
		fade_size(&demand->sizes[i], steps, peak_steps);
	forget_faded(demand);
}

/* ---- sizes ---- */

/* Where it stands, or would: the largest first. */
static size_t find_place(const struct demand *demand, uint64_t pages)
{
	size_t at = 0;
	while (at < demand->size_count && demand->sizes[at].pages > pages)
		at++;
	return at;
}

static struct demand_size *find_size(struct demand *demand, uint64_t pages)
{
	size_t at = find_place(demand, pages);
	bool is_there = at < demand->size_count && demand->sizes[at].pages == pages;
	return is_there ? &demand->sizes[at] : NULL;
}

/* How much a size counts. What is out comes back, and is asked for again by whoever starts it anew. */
static uint64_t get_weight(const struct demand_size *size)
{
	return MIN(demand_get_asked(size) + size->out * DEMAND_ONE / 4, WEIGHT_MAX);
}

static void drop_size(struct demand *demand, size_t at)
{
	demand->size_count--;
	memmove(&demand->sizes[at], &demand->sizes[at + 1],
		(demand->size_count - at) * sizeof *demand->sizes);
}

/* For a new one: what is asked for least, known or not. */
static void drop_least(struct demand *demand)
{
	size_t least = 0;
	for (size_t i = 1; i < demand->size_count; i++) {
		if (get_weight(&demand->sizes[i]) < get_weight(&demand->sizes[least]))
			least = i;
	}
	drop_size(demand, least);
}

static struct demand_size *add_size(struct demand *demand, uint64_t pages)
{
	struct demand_size *size = find_size(demand, pages);
	if (size)
		return size;
	if (demand->size_count == DEMAND_SIZES_MAX)
		drop_least(demand);
	size_t at = find_place(demand, pages);
	memmove(&demand->sizes[at + 1], &demand->sizes[at],
		(demand->size_count - at) * sizeof *demand->sizes);
	demand->size_count++;
	demand->sizes[at] = (struct demand_size){.pages = pages, .reason = DEMAND_RARE};
	return &demand->sizes[at];
}

/* ---- events ---- */

static void raise_peak(struct demand_size *size, uint64_t at_once)
{
	if (size->peak >= at_once * DEMAND_ONE)
		return;
	size->peak = at_once * DEMAND_ONE;
	size->is_unsaved = true;
}

void demand_ask(struct demand *demand, uint64_t now_ns, uint64_t pages, enum demand_served how)
{
	fade_all(demand, now_ns);
	struct demand_size *size = add_size(demand, pages);
	size->is_unsaved = true;
	bool is_again = how == DEMAND_REFUSED && size->was_refused;
	size->was_refused = size->was_refused || how == DEMAND_REFUSED;
	if (!is_again)
		size->served[how] = MIN(size->served[how] + DEMAND_ONE, WEIGHT_MAX / DEMAND_SERVED_COUNT);
	/* One more would have been out. */
	if (how == DEMAND_REFUSED)
		raise_peak(size, size->out + 1);
}

void demand_take(struct demand *demand, uint64_t now_ns, uint64_t pages)
{
	fade_all(demand, now_ns);
	struct demand_size *size = add_size(demand, pages);
	size->out = MIN(size->out + 1, WEIGHT_MAX / DEMAND_ONE);
	raise_peak(size, size->out);
}

void demand_give(struct demand *demand, uint64_t now_ns, uint64_t pages)
{
	fade_all(demand, now_ns);
	struct demand_size *size = find_size(demand, pages);
	if (size && size->out > 0) /* else it had to make place for another one meanwhile */
		size->out--;
}

void demand_restore(struct demand *demand, uint64_t now_ns, uint64_t then_ns, const struct demand_size *from)
{
	fade_all(demand, now_ns);
	struct demand_size *size = add_size(demand, from->pages);
	uint64_t out = size->out;
	*size = *from;
	size->out = 0;
	size->is_unsaved = size->was_refused = false;
	for (size_t i = 0; i < DEMAND_SERVED_COUNT; i++)
		size->served[i] = MIN(size->served[i], WEIGHT_MAX / DEMAND_SERVED_COUNT);
	size->peak = MIN(size->peak, WEIGHT_MAX);
	size->wanted = MIN(size->wanted, WEIGHT_MAX);
	uint64_t steps = count_steps(demand, then_ns, now_ns);
	fade_size(size, steps, steps / PEAK_SLOWNESS);
	size->out = out;
	raise_peak(size, out);
	demand->is_stale = true;
	if (is_forgettable(size))
		drop_size(demand, find_place(demand, from->pages));
}

/* ---- what each size wants ---- */

static uint64_t count_fixed(const struct demand_rules *rules, uint64_t pages)
{
	for (size_t i = 0; i < rules->fixed_count; i++) {
		if (rules->fixed[i].segment_pages == pages)
			return rules->fixed[i].count;
	}
	return 0;
}

static uint64_t count_fixed_pages(const struct demand_rules *rules)
{
	uint64_t pages = 0;
	for (size_t i = 0; i < rules->fixed_count; i++)
		pages += rules->fixed[i].segment_pages * rules->fixed[i].count;
	return pages;
}

/* As many as were out at once, by the last fraction of it, and some to spare: the next one finds one, too. */
static uint64_t count_wanted(const struct demand_size *size)
{
	uint64_t at_once = (size->peak + DEMAND_ONE - 1) / DEMAND_ONE;
	uint64_t spare = (at_once + SPARE_PART - 1) / SPARE_PART;
	return at_once + MAX(spare, 1);
}

static void judge(struct demand_size *size)
{
	uint64_t weight = get_weight(size);
	/* In between it stays what it was. */
	if (weight >= KNOWN_FROM)
		size->is_known = true;
	else if (weight < KNOWN_TO)
		size->is_known = false;
	uint64_t wanted = size->is_known ? count_wanted(size) : 0;
	/* A peak is not the same every day. */
	bool is_near = wanted > 0 && wanted < size->wanted && wanted * 4 > size->wanted * 3;
	if (!is_near)
		size->wanted = wanted;
}

/* ---- who gets how many ---- */

struct share {
	struct demand *demand;
	uint64_t budget;
	uint64_t before[DEMAND_SIZES_MAX]; /* proposed so far */
	uint64_t most[DEMAND_SIZES_MAX]; /* wanted, beyond what is fixed, and no more than the budget holds */
	uint64_t count[DEMAND_SIZES_MAX];
	bool is_done[DEMAND_SIZES_MAX]; /* gets no more */
};

/*
 * How many a size buys at a price: the k-th for its weight by k. What it has it holds for half as much again.
 */
static uint64_t count_bought(const struct share *share, size_t i, uint64_t price)
{
	if (share->is_done[i])
		return share->count[i];
	uint64_t weight = get_weight(&share->demand->sizes[i]);
	uint64_t held = MIN(share->before[i], (weight + weight / 2) / price);
	return MIN(share->most[i], MAX(held, weight / price));
}

static uint64_t count_pages(const struct share *share, uint64_t price)
{
	uint64_t pages = 0;
	/* `most` keeps each within the budget: no overflow. */
	for (size_t i = 0; i < share->demand->size_count; i++)
		pages += count_bought(share, i, price) * share->demand->sizes[i].pages;
	return pages;
}

/* The lowest price at which all that is bought is there. */
static uint64_t find_price(const struct share *share)
{
	uint64_t low = 1, high = 2 * WEIGHT_MAX;
	while (low < high) {
		uint64_t middle = low + (high - low) / 2;
		if (count_pages(share, middle) <= share->budget)
			high = middle;
		else
			low = middle + 1;
	}
	return low;
}

/* Two bid the same for what is left, and only one can have it. */
static void break_tie(struct share *share, uint64_t price)
{
	for (size_t i = 0; i < share->demand->size_count; i++) {
		if (share->is_done[i] || count_bought(share, i, price - 1) == share->count[i])
			continue;
		share->count[i]++;
		share->is_done[i] = true;
		return;
	}
}

/* A large one that does not fit any more lets small ones go on. True: there are some. */
static bool settle_done(struct share *share, uint64_t price, uint64_t left)
{
	size_t open = 0, closed = 0;
	for (size_t i = 0; i < share->demand->size_count; i++) {
		if (share->is_done[i])
			continue;
		share->is_done[i] = share->count[i] == share->most[i] || share->demand->sizes[i].pages > left;
		closed += share->is_done[i];
		open += !share->is_done[i];
	}
	if (open > 0 && closed == 0)
		break_tie(share, price);
	return open > 0;
}

static void share_out(struct share *share)
{
	uint64_t price, left;
	do {
		price = find_price(share);
		left = share->budget;
		for (size_t i = 0; i < share->demand->size_count; i++) {
			share->count[i] = count_bought(share, i, price);
			left -= share->count[i] * share->demand->sizes[i].pages;
		}
	} while (settle_done(share, price, left));
}

static enum demand_reason find_reason(const struct share *share, size_t i, uint64_t missing)
{
	const struct demand_size *size = &share->demand->sizes[i];
	if (!size->is_known)
		return DEMAND_RARE;
	if (missing == 0)
		return DEMAND_ENOUGH;
	return size->pages > share->budget ? DEMAND_TOO_LARGE : DEMAND_CROWDED;
}

static uint64_t get_learnable(const struct demand *demand)
{
	return subtract(demand->rules.pages, count_fixed_pages(&demand->rules));
}

static uint64_t get_budget(const struct demand *demand)
{
	uint64_t learnable = get_learnable(demand), percent = demand->rules.share_percent;
	return learnable / 100 * percent + learnable % 100 * percent / 100;
}

/* Whether anything has changed. */
static bool propose(struct demand *demand)
{
	struct share share = {.demand = demand, .budget = get_budget(demand)};
	uint64_t beyond_fixed[DEMAND_SIZES_MAX];
	bool is_changed = false;
	for (size_t i = 0; i < demand->size_count; i++) {
		struct demand_size *size = &demand->sizes[i];
		judge(size);
		beyond_fixed[i] = subtract(size->wanted, count_fixed(&demand->rules, size->pages));
		share.before[i] = size->proposed;
		share.most[i] = MIN(beyond_fixed[i], share.budget / size->pages);
	}
	share_out(&share);
	for (size_t i = 0; i < demand->size_count; i++) {
		struct demand_size *size = &demand->sizes[i];
		is_changed = is_changed || size->proposed != share.count[i];
		size->proposed = share.count[i];
		size->reason = find_reason(&share, i, subtract(beyond_fixed[i], share.count[i]));
	}
	return is_changed;
}

/* ---- what is not learned ---- */

static uint64_t count_learned_pages(const struct demand *demand)
{
	uint64_t pages = 0;
	for (size_t i = 0; i < demand->size_count; i++)
		pages += demand->sizes[i].proposed * demand->sizes[i].pages;
	return pages;
}

/*
 * Half of all there is, halved until it leaves some of the rest to others. It stays as it is for as long as
 * that makes sense: a large segment is not rebuilt because a small one was learned.
 */
static uint64_t pick_large(const struct demand *demand, uint64_t learnable, uint64_t rest)
{
	uint64_t now = demand->large_pages, large = learnable / 2;
	if (rest == learnable)
		return large;
	if (now > 0 && now <= rest - rest / 8 && now >= rest / 4)
		return now;
	while (large > rest - rest / 4)
		large /= 2;
	return large;
}

bool demand_plan(struct demand *demand, uint64_t now_ns)
{
	fade_all(demand, now_ns);
	uint64_t learned_before = count_learned_pages(demand), large_before = demand->large_pages;
	uint64_t learnable = get_learnable(demand);
	bool is_changed = propose(demand) || demand->is_stale;
	demand->is_stale = false;
	uint64_t learned = count_learned_pages(demand);
	demand->large_pages = pick_large(demand, learnable, learnable - learned);
	return is_changed || learned != learned_before || demand->large_pages != large_before;
}

/* ---- the stock ---- */

struct stock {
	struct demand_class *classes;
	size_t count;
};

static void add_class(struct stock *stock, uint64_t segment_pages, uint64_t count)
{
	size_t at = 0;
	if (count == 0 || segment_pages == 0)
		return;
	while (at < stock->count && stock->classes[at].segment_pages > segment_pages)
		at++;
	if (at < stock->count && stock->classes[at].segment_pages == segment_pages) {
		stock->classes[at].count += count;
		return;
	}
	memmove(&stock->classes[at + 1], &stock->classes[at], (stock->count - at) * sizeof *stock->classes);
	stock->classes[at] = (struct demand_class){segment_pages, count};
	stock->count++;
}

size_t demand_get_stock(const struct demand *demand, struct demand_class ret_classes[DEMAND_STOCK_MAX])
{
	struct stock stock = {ret_classes, 0};
	const struct demand_rules *rules = &demand->rules;
	uint64_t learnable = get_learnable(demand);
	uint64_t rest = subtract(learnable, count_learned_pages(demand));
	uint64_t large = MIN(demand->large_pages, rest);
	uint64_t piece = MAX(rules->piece_pages, 1);
	uint64_t pieces = MIN(learnable / 4, (rest - large) / 2) / piece;

	for (size_t i = 0; i < rules->fixed_count; i++)
		add_class(&stock, rules->fixed[i].segment_pages, rules->fixed[i].count);
	for (size_t i = 0; i < demand->size_count; i++)
		add_class(&stock, demand->sizes[i].pages, demand->sizes[i].proposed);
	add_class(&stock, large, 1);
	add_class(&stock, piece, pieces);
	add_class(&stock, 1, rest - large - pieces * piece);
	return stock.count;
}

void demand_get_totals(const struct demand *demand, struct demand_totals *ret_totals)
{
	*ret_totals = (struct demand_totals){
		.fixed_pages = count_fixed_pages(&demand->rules),
		.learned_pages = count_learned_pages(demand),
		.most_pages = get_budget(demand),
		.large_pages = demand->large_pages,
	};
}

uint64_t demand_get_fixed(const struct demand *demand, uint64_t pages)
{
	return count_fixed(&demand->rules, pages);
}

/* ---- life ---- */

void demand_init(struct demand *demand, const struct demand_rules *rules, uint64_t now_ns)
{
	*demand = (struct demand){.faded_ns = now_ns};
	demand_set_rules(demand, rules);
	demand_plan(demand, now_ns);
}

/* Member by member: there are holes between them. */
static bool are_rules_equal(const struct demand_rules *a, const struct demand_rules *b)
{
	bool is_equal = a->half_life_ns == b->half_life_ns && a->pages == b->pages &&
			a->piece_pages == b->piece_pages && a->share_percent == b->share_percent &&
			a->fixed_count == b->fixed_count;
	for (size_t i = 0; is_equal && i < a->fixed_count; i++)
		is_equal = a->fixed[i].segment_pages == b->fixed[i].segment_pages &&
			   a->fixed[i].count == b->fixed[i].count;
	return is_equal;
}

void demand_set_rules(struct demand *demand, const struct demand_rules *rules)
{
	/* Another pool has another large segment. */
	if (demand->rules.pages != rules->pages ||
		count_fixed_pages(&demand->rules) != count_fixed_pages(rules))
		demand->large_pages = 0;
	demand->is_stale = demand->is_stale || !are_rules_equal(&demand->rules, rules);
	demand->rules = *rules;
}
