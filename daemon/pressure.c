/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * pressure.c - when memory may be touched, and how much of it.
 * Runs in workers; hpzd only writes the rules and bumps. Everything shared is one atomic each: a worker that
 * dies anywhere leaves nothing half done, at most a place in the bucket that nobody uses.
 */
#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>

#include "pressure.h"

/*
 * The scavenger: at a look a batch is congested above 1.75 of what it should take, quiet below 1.5; in
 * between nothing changes, so that a neighbour near the bound does not make us swing. Less than that is no
 * neighbour: a batch takes 28 us where the translations of its pages are still cached, 38 to 42 where not
 * (Zen 5 guest, whose host backs a page of 2M by small ones), and up to 46 when other programs ran meanwhile.
 * A bus that is fought for makes it twice as long and more. What takes more than 8 times as long is something
 * else: first touch of memory that the host has to find takes 50 times as long, no bus makes us so slow.
 */
#define CONGESTED_PERCENT 175
#define QUIET_PERCENT     150
#define STRANGE_TIMES     8
/*
 * Looks are so far apart, and of so many batches at least, or of so much time in batches. The lower quartile
 * of them counts: who needs the bus makes all batches longer, an interrupt or a turn of somebody else on our
 * CPU makes some. Two looks in a row must say the same; doubling to the maximum takes seven then, coming back
 * twelve.
 */
#define VERDICT_NS  (20 * NS_PER_MS)
#define LOOK_MIN    8
#define RETURN_STEP 3
/*
 * After a sleep the first batch takes 47 us instead of 28, the second 33, the third 28 again (Zen 5 guest,
 * 6.18; alike after 0.3 and 5 ms): translations and the methods' code are cold. Taken for evidence that would
 * be a neighbour for ever, once there is a sleep after every batch. So batches come in bursts, those that
 * begin in the first 100 us count only where they are long enough for that not to matter, and a burst goes on
 * until some were evidence.
 */
#define COLD_NS       ((uint64_t)100000)
#define COLD_TIMES    4                 /* a batch so many times as long is evidence from the first on */
#define GAP_NS        ((uint64_t)20000) /* between two batches more than that is a sleep */
#define BURST_NS      ((uint64_t)300000)
#define BURST_SAMPLES 4
/*
 * For the same reason a burst may take what the bucket will have by then: the rate holds all the same. Rates
 * at which that is not enough for a burst take less of the bus than the scavenger at its lowest.
 */
#define BORROW_NS (4 * NS_PER_MS)
/* Where no burst told anything for so long, and none is long enough to: that is as good as quiet. */
#define BLIND_NS (500 * NS_PER_MS)
/*
 * Several workers would take each other for neighbours: what they take for evidence are batches during which
 * the others stand still. Every 100 ms one asks for that. It waits for four batch times itself, because
 * theirs that are under way may take so long, being several, and gives the bus back as soon as it has seen
 * enough.
 */
#define SOLO_EVERY_NS (100 * NS_PER_MS)
#define SOLO_LEAD     4
#define SOLO_BATCHES  28
#define SOLO_MAX_NS   (10 * NS_PER_MS)
/*
 * What a batch should take is what it takes at looks while nobody disturbs, on average. Beside a calibrated
 * time it stays within bounds: hot caches must not pull it down, a neighbour who grows slowly not up.
 */
#define LOWEST_PERCENT  75
#define HIGHEST_PERCENT 130
#define LEARN_SHARE     8
/*
 * A calibrated time that no batch comes near to for so long is wrong and not one's neighbour's fault: from
 * then on the lowest that was seen counts.
 */
#define DOUBT_NS (3 * NS_PER_S)
/* No memory is so fast: pages that were there already, of which a fill has nothing to clear (bytes per us).
 */
#define STRANGE_SPEED ((uint64_t)100000)

#define STAMP_BITS 48

/* ---- the token bucket ---- */

static uint64_t get_cost_ns(uint64_t bytes, uint64_t rate_bytes_per_s)
{
	return (uint64_t)((unsigned __int128)bytes * NS_PER_S / rate_bytes_per_s);
}

uint64_t pressure_take_slot(
	_Atomic uint64_t *next_ns, uint64_t rate_bytes_per_s, uint64_t bytes, uint64_t now_ns)
{
	uint64_t cost = get_cost_ns(bytes, rate_bytes_per_s),
		 burst = get_cost_ns(PRESSURE_BURST_BYTES, rate_bytes_per_s),
		 oldest = now_ns > burst ? now_ns - burst : 0;
	uint64_t next = atomic_load_explicit(next_ns, memory_order_relaxed), start;
	do
		start = MAX(next, oldest);
	while (!atomic_compare_exchange_weak_explicit(
		next_ns, &next, start + cost, memory_order_relaxed, memory_order_relaxed));
	return start;
}

/* The place taken, as long as the rate it was taken at holds. */
static uint64_t get_slot(struct pressure_gate *gate, uint64_t bytes, uint64_t now_ns)
{
	uint64_t rate = atomic_load_explicit(&gate->rules->rate_bytes_per_s, memory_order_relaxed);
	if (rate == 0)
		return 0;
	if (gate->slot_rate != rate) {
		gate->slot_ns = pressure_take_slot(&gate->rules->next_ns, rate, bytes, now_ns);
		gate->slot_rate = rate;
	}
	return gate->slot_ns;
}

/* ---- the scavenger ---- */

enum verdict { BETWEEN, CONGESTED, QUIET };

/* The word: verdict, factor, time in ms. */
#define VERDICT_SHIFT (STAMP_BITS + 8)

static unsigned get_factor(uint64_t backoff)
{
	return (unsigned)(backoff >> STAMP_BITS) & 0xff;
}

unsigned pressure_get_backoff(const struct pressure_rules *rules)
{
	return get_factor(atomic_load_explicit(&rules->backoff, memory_order_relaxed));
}

static unsigned change_factor(unsigned factor, enum verdict verdict)
{
	switch (verdict) {
	case CONGESTED:
		return MIN(MAX(factor * 2, 1u), PRESSURE_BACKOFF_MAX);
	case QUIET:
		return factor - MIN(factor, RETURN_STEP);
	case BETWEEN:
		return factor;
	}
	return factor;
}

/* Once in VERDICT_NS for all workers of the node: they see the same neighbour. */
static void change_backoff(struct pressure_rules *rules, enum verdict verdict, uint64_t now_ns)
{
	uint64_t old = atomic_load_explicit(&rules->backoff, memory_order_relaxed), next;
	uint64_t mask = ((uint64_t)1 << STAMP_BITS) - 1, now_ms = now_ns / NS_PER_MS & mask;
	do {
		unsigned factor = get_factor(old);
		uint64_t stamp_ms = old & mask;
		if (now_ms < stamp_ms || now_ms - stamp_ms < VERDICT_NS / NS_PER_MS)
			return;
		if (old >> VERDICT_SHIFT == (uint64_t)verdict)
			factor = change_factor(factor, verdict);
		next = (uint64_t)verdict << VERDICT_SHIFT | (uint64_t)factor << STAMP_BITS | now_ms;
	} while (!atomic_compare_exchange_weak_explicit(
		&rules->backoff, &old, next, memory_order_relaxed, memory_order_relaxed));
}

static void forget_backoff(struct pressure_rules *rules, uint64_t now_ns)
{
	uint64_t old = atomic_load_explicit(&rules->backoff, memory_order_relaxed);
	uint64_t mask = ((uint64_t)1 << STAMP_BITS) - 1, now_ms = now_ns / NS_PER_MS & mask,
		 stamp_ms = old & mask;
	/* Lost to another's verdict: then there was one. */
	if (get_factor(old) > 0 && now_ms >= stamp_ms && now_ms - stamp_ms >= BLIND_NS / NS_PER_MS)
		atomic_compare_exchange_strong_explicit(
			&rules->backoff, &old, now_ms, memory_order_relaxed, memory_order_relaxed);
}

static int compare_samples(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
	return (x > y) - (x < y);
}

/* What one worker came near to is right for all of them. */
static void doubt(struct pressure_rules *rules, struct pressure_base *base, uint64_t seen_ns, uint64_t now_ns)
{
	uint64_t token = base->key ^ base->given_ns;
	if (base->given_ns == 0 || base->given != PRESSURE_GIVEN_NEW)
		return;
	if (atomic_load_explicit(&rules->confirmed, memory_order_relaxed) == token) {
		base->given = PRESSURE_GIVEN_RIGHT;
		return;
	}
	if (base->doubted_ns == 0) {
		base->doubted_ns = now_ns;
		base->lowest_ns = seen_ns;
	}
	base->lowest_ns = MIN(base->lowest_ns, seen_ns);
	if (seen_ns * 100 <= base->given_ns * CONGESTED_PERCENT) {
		base->given = PRESSURE_GIVEN_RIGHT;
		atomic_store_explicit(&rules->confirmed, token, memory_order_relaxed);
	} else if (now_ns - base->doubted_ns >= DOUBT_NS) {
		base->given = PRESSURE_GIVEN_WRONG;
		base->base_ns = base->lowest_ns;
	}
}

static uint64_t get_given_ns(const struct pressure_base *base)
{
	return base->given == PRESSURE_GIVEN_WRONG ? 0 : base->given_ns;
}

static void learn(struct pressure_base *base, uint64_t seen_ns)
{
	if (base->base_ns == 0)
		base->base_ns = base->lowest_ns = seen_ns;
	base->lowest_ns = MIN(base->lowest_ns, seen_ns);
	uint64_t given_ns = get_given_ns(base), from_ns = given_ns * LOWEST_PERCENT / 100;
	uint64_t to_ns = (given_ns > 0 ? given_ns : base->lowest_ns) * HIGHEST_PERCENT / 100;
	uint64_t next_ns = (base->base_ns * (LEARN_SHARE - 1) + seen_ns) / LEARN_SHARE;
	base->base_ns = MIN(MAX(next_ns, from_ns), to_ns);
}

static void end_solo(struct pressure_gate *gate)
{
	gate->solo_until_ns = 0;
	atomic_store_explicit(&gate->rules->solo_until_ns, 0, memory_order_relaxed);
	pressure_bump(gate->rules);
}

/* What a batch took, by the batches since the last look. */
static uint64_t take_look(struct pressure_gate *gate)
{
	size_t count = MIN(gate->sample_count, (size_t)PRESSURE_SAMPLES);
	gate->sample_count = gate->sample_ns = 0;
	qsort(gate->samples, count, sizeof gate->samples[0], compare_samples);
	return gate->samples[count / 4];
}

static enum verdict judge(const struct pressure_base *base, uint64_t seen_ns)
{
	if (base->base_ns > 0 && seen_ns * 100 > base->base_ns * CONGESTED_PERCENT)
		return CONGESTED;
	return base->base_ns == 0 || seen_ns * 100 < base->base_ns * QUIET_PERCENT ? QUIET : BETWEEN;
}

static void look(struct pressure_gate *gate, uint64_t now_ns)
{
	struct pressure_rules *rules = gate->rules;
	struct pressure_base *base = &gate->bases[gate->base];
	uint64_t seen_ns = take_look(gate);
	gate->looked_ns = now_ns;
	doubt(rules, base, seen_ns, now_ns);
	enum verdict verdict = judge(base, seen_ns);
	if (verdict == QUIET)
		learn(base, seen_ns);
	change_backoff(rules, verdict, now_ns);
	atomic_store_explicit(&rules->batch_ns, seen_ns, memory_order_relaxed);
	atomic_store_explicit(&rules->base_ns, base->base_ns, memory_order_relaxed);
}

/*
 * By the clock on the wall, because the CPU time of a thread costs a twentieth of a batch to ask for, and
 * knows nothing of a hypervisor that took the CPU away (6.18 as a guest).
 */
static void add_evidence(struct pressure_gate *gate, uint64_t took_ns, uint64_t now_ns)
{
	const struct pressure_base *base = &gate->bases[gate->base];
	if ((base->base_ns > 0 && took_ns > base->base_ns * STRANGE_TIMES) ||
		took_ns * STRANGE_SPEED < gate->batch_bytes * 1000)
		return;
	gate->samples[gate->sample_count++ % PRESSURE_SAMPLES] = took_ns;
	gate->sample_ns += took_ns;
	if (gate->sample_count < LOOK_MIN && gate->sample_ns < VERDICT_NS)
		return;
	bool is_solo = gate->solo_until_ns > 0;
	if (is_solo)
		end_solo(gate);
	if (is_solo || now_ns - gate->looked_ns >= VERDICT_NS)
		look(gate, now_ns);
}

static bool is_alone(const struct pressure_gate *gate)
{
	return atomic_load_explicit(&gate->rules->workers, memory_order_relaxed) <= 1;
}

/* Asks for a while of its own, when one is due. */
static void begin_solo(struct pressure_gate *gate, uint64_t now_ns)
{
	struct pressure_rules *rules = gate->rules;
	uint64_t next = atomic_load_explicit(&rules->solo_next_ns, memory_order_relaxed);
	if (is_alone(gate) || now_ns < next ||
		!atomic_compare_exchange_strong_explicit(&rules->solo_next_ns, &next, now_ns + SOLO_EVERY_NS,
			memory_order_relaxed, memory_order_relaxed))
		return;
	uint64_t base_ns = gate->bases[gate->base].base_ns, length_ns = SOLO_MAX_NS;
	if (base_ns > 0)
		length_ns = MIN(SOLO_BATCHES * base_ns, SOLO_MAX_NS);
	gate->solo_until_ns = now_ns + length_ns;
	gate->not_before_ns = now_ns + length_ns * SOLO_LEAD / SOLO_BATCHES;
	atomic_store_explicit(&rules->solo_until_ns, gate->solo_until_ns, memory_order_relaxed);
}

static bool is_in_burst(const struct pressure_gate *gate, uint64_t now_ns)
{
	return gate->left_ns > 0 && now_ns - gate->left_ns <= GAP_NS;
}

static bool is_burst_over(const struct pressure_gate *gate, uint64_t now_ns)
{
	if (gate->solo_until_ns > 0) /* which ends when it has seen enough */
		return false;
	return gate->burst_samples >= BURST_SAMPLES ||
	       (gate->burst_samples > 0 && now_ns - gate->burst_since_ns >= BURST_NS);
}

/* In the middle of a burst: what was slept for is not over before it has told something. */
static bool must_go_on(const struct pressure_gate *gate, uint64_t now_ns)
{
	return atomic_load_explicit(&gate->rules->is_scavenger, memory_order_relaxed) &&
	       is_in_burst(gate, now_ns) && !is_burst_over(gate, now_ns);
}

static bool is_cold(const struct pressure_gate *gate, uint64_t took_ns)
{
	return gate->start_ns - gate->burst_since_ns < COLD_NS && took_ns < COLD_NS * COLD_TIMES;
}

static uint64_t get_scavenger_start(struct pressure_gate *gate, uint64_t now_ns)
{
	struct pressure_rules *rules = gate->rules;
	if (!atomic_load_explicit(&rules->is_scavenger, memory_order_relaxed)) {
		gate->not_before_ns = 0;
		return 0;
	}
	if (gate->solo_until_ns <= now_ns) {
		gate->solo_until_ns = 0;
		begin_solo(gate, now_ns);
	}
	if (gate->solo_until_ns > 0)
		return gate->not_before_ns;
	uint64_t solo_ns = atomic_load_explicit(&rules->solo_until_ns, memory_order_relaxed);
	/* Bounded: whoever asked may have died, or the clock of its wish is nonsense. */
	if (solo_ns > now_ns + SOLO_MAX_NS)
		solo_ns = 0;
	return MAX(must_go_on(gate, now_ns) ? 0 : gate->not_before_ns, solo_ns);
}

/* ---- the gate ---- */

uint64_t pressure_get_start(struct pressure_gate *gate, uint64_t bytes, uint64_t now_ns)
{
	struct pressure_rules *rules = gate->rules;
	if (!rules)
		return 0;
	if (atomic_load_explicit(&rules->is_off, memory_order_relaxed))
		return UINT64_MAX;
	if (atomic_load_explicit(gate->level, memory_order_relaxed) == gate->urgent)
		return 0;
	if (atomic_load_explicit(&rules->paused, memory_order_relaxed))
		return UINT64_MAX;
	uint64_t start = get_scavenger_start(gate, now_ns), slot = get_slot(gate, bytes, now_ns);
	if (slot <= now_ns + (gate->solo_until_ns > 0 ? SOLO_MAX_NS : BORROW_NS) && must_go_on(gate, now_ns))
		slot = 0;
	start = MAX(start, slot);
	return start <= now_ns ? 0 : start;
}

void pressure_enter(struct pressure_gate *gate, uint64_t now_ns)
{
	gate->slot_rate = 0;
	gate->start_ns = now_ns;
	if (!is_in_burst(gate, now_ns)) {
		if (gate->rules && gate->burst_samples == 0)
			forget_backoff(gate->rules, now_ns);
		gate->burst_since_ns = now_ns;
		gate->burst_ns = gate->burst_samples = 0;
	}
	gate->is_evidence = gate->rules && (gate->solo_until_ns > 0 || is_alone(gate));
}

/* Without the time that somebody else had our CPU. */
static uint64_t get_plain_ns(const struct pressure_gate *gate, uint64_t took_ns)
{
	uint64_t base_ns = gate->bases[gate->base].base_ns;
	return base_ns > 0 ? MIN(took_ns, base_ns * STRANGE_TIMES) : took_ns;
}

/* After the burst, however it ends; what was done while nobody disturbed costs nothing. */
static void set_sleep(struct pressure_gate *gate, uint64_t took_ns, uint64_t now_ns)
{
	unsigned factor = pressure_get_backoff(gate->rules);
	if (atomic_load_explicit(gate->level, memory_order_relaxed) != gate->idle)
		factor = MIN(factor, PRESSURE_BACKOFF_REFILL_MAX);
	gate->burst_ns = factor > 0 ? gate->burst_ns + get_plain_ns(gate, took_ns) : 0;
	gate->not_before_ns = now_ns + factor * gate->burst_ns;
}

void pressure_leave(struct pressure_gate *gate, uint64_t bytes, uint64_t took_ns, uint64_t now_ns)
{
	struct pressure_rules *rules = gate->rules;
	gate->left_ns = now_ns;
	if (!atomic_load_explicit(&rules->is_scavenger, memory_order_relaxed) || bytes != gate->batch_bytes)
		return;
	bool is_warm = !is_cold(gate, took_ns);
	gate->burst_samples += is_warm;
	/* What outlasted our while alone may have met the others at its end. */
	bool is_solo_over = gate->solo_until_ns > 0 && now_ns > gate->solo_until_ns;
	if (gate->is_evidence && is_warm && !is_solo_over)
		add_evidence(gate, took_ns, now_ns);
	if (gate->solo_until_ns == 0 || is_solo_over)
		set_sleep(gate, took_ns, now_ns);
}

static bool must_stop(const struct pressure_gate *gate)
{
	uint64_t stop = atomic_load_explicit(gate->stop, memory_order_relaxed);
	return stop == gate->job || stop == UINT64_MAX;
}

static struct pressure_base *find_base(struct pressure_gate *gate, uint64_t key)
{
	for (size_t i = 0; i < PRESSURE_BASES; i++) {
		if (gate->bases[i].key == key)
			return &gate->bases[i];
	}
	struct pressure_base *base = &gate->bases[gate->next_base++ % PRESSURE_BASES];
	*base = (struct pressure_base){.key = key};
	return base;
}

void pressure_begin(
	struct pressure_gate *gate, uint64_t job, uint64_t key, uint64_t batch_bytes, uint64_t base_ns)
{
	struct pressure_base *base = find_base(gate, key);
	/* Another calibration: what was learnt beside the old one counts no more. */
	if (base_ns > 0 && base->given_ns != base_ns) {
		base->given_ns = base->base_ns = base->lowest_ns = base_ns;
		base->given = PRESSURE_GIVEN_NEW;
		base->doubted_ns = 0;
	}
	if ((size_t)(base - gate->bases) != gate->base)
		gate->sample_count = gate->sample_ns = 0;
	gate->base = (size_t)(base - gate->bases);
	gate->job = job;
	gate->batch_bytes = batch_bytes;
	gate->slot_rate = 0;
}

static void wait_for_change(struct pressure_rules *rules, uint32_t seen, uint64_t start_ns)
{
	struct timespec until = {
		.tv_sec = (time_t)(start_ns / NS_PER_S), .tv_nsec = (long)(start_ns % NS_PER_S)};
	/* BITSET: its time is absolute. Not private: hpzd is another process. Whatever it returns, we look
	 * again. */
	syscall(SYS_futex, &rules->change, FUTEX_WAIT_BITSET, seen, start_ns == UINT64_MAX ? NULL : &until,
		NULL, FUTEX_BITSET_MATCH_ANY);
}

bool pressure_wait(struct pressure_gate *gate, uint64_t bytes)
{
	for (;;) {
		uint32_t seen = gate->rules ? atomic_load(&gate->rules->change) : 0;
		if (must_stop(gate))
			return false;
		uint64_t now_ns = clock_get_ns(CLOCK_MONOTONIC),
			 start_ns = pressure_get_start(gate, bytes, now_ns);
		if (start_ns == 0) {
			pressure_enter(gate, now_ns);
			return true;
		}
		if (gate->rest)
			gate->rest(gate->user, true);
		wait_for_change(gate->rules, seen, start_ns);
		if (gate->rest)
			gate->rest(gate->user, false);
	}
}

void pressure_count(struct pressure_gate *gate, uint64_t bytes, uint64_t now_ns)
{
	struct pressure_rules *rules = gate->rules;
	if (!rules)
		return;
	pressure_leave(gate, bytes, now_ns - gate->start_ns, now_ns);
	atomic_fetch_add_explicit(&rules->bytes, bytes, memory_order_relaxed);
	atomic_fetch_add_explicit(&rules->batches, 1, memory_order_relaxed);
}

void pressure_bump(struct pressure_rules *rules)
{
	atomic_fetch_add(&rules->change, 1);
	syscall(SYS_futex, &rules->change, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}
