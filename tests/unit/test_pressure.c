/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * test_pressure.c - the bucket, the scavenger and the gate. Time is made here, and so are the workers and
 * their neighbour, but for the last part: there threads wait in a real futex.
 */
#include <pthread.h>
#include <sys/resource.h>

#include "pressure.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#define MIB     ((uint64_t)1 << 20)
#define GIB     ((uint64_t)1 << 30)
#define BATCH   (2 * MIB)
#define START   (1000 * NS_PER_S)
#define IDLE    0u
#define URGENT  2u
#define WORKERS 4

static struct pressure_rules rules;
static _Atomic uint64_t stops[WORKERS];
static _Atomic uint32_t levels[WORKERS];
static struct pressure_gate gates[WORKERS];

static int setup(void **state)
{
	memset(&rules, 0, sizeof rules);
	for (size_t i = 0; i < WORKERS; i++) {
		stops[i] = 0;
		levels[i] = IDLE;
		gates[i] = (struct pressure_gate){
			.rules = &rules, .stop = &stops[i], .level = &levels[i], .urgent = URGENT};
	}
	return 0;
}

/* ---- a machine: workers on CPUs of their own, and a bus that a neighbour may use ---- */

struct sim {
	size_t workers;
	uint64_t batch_ns;       /* of one worker alone */
	unsigned own_percent;    /* longer for each other worker on the bus */
	unsigned other_percent;  /* longer while the neighbour is there */
	uint64_t from_ns, to_ns; /* the neighbour */
	uint64_t wake_ns;        /* a sleeper is late by that */
	bool is_cooling;         /* the first batches after a sleep take longer */
	unsigned noise_percent;  /* of batches: interrupted, take up to twice as long */
	uint64_t left_ns[WORKERS];
	unsigned warm[WORKERS];                   /* batches since the last sleep */
	uint64_t end_ns[WORKERS], bytes[WORKERS]; /* of the batch under way; 0: waits */
	uint64_t next_ns[WORKERS], started_ns[WORKERS];
	uint64_t now_ns;
	unsigned dice;
};

static unsigned throw_dice(struct sim *sim, unsigned sides)
{
	sim->dice = sim->dice * 1103515245u + 12345u;
	return (sim->dice >> 16) % sides;
}

/* As measured: 20 and 5 us, however long a batch is. */
static uint64_t get_cold_ns(struct sim *sim, size_t i)
{
	static const uint64_t cold_ns[] = {20000, 5000};
	if (!sim->is_cooling)
		return 0;
	sim->warm[i] = sim->now_ns - sim->left_ns[i] > 20000 ? 0 : sim->warm[i] + 1;
	return sim->warm[i] < ARRAY_SIZE(cold_ns) ? cold_ns[sim->warm[i]] : 0;
}

static void start_batch(struct sim *sim, size_t i)
{
	size_t others = 0;
	for (size_t j = 0; j < sim->workers; j++)
		others += j != i && sim->end_ns[j] > 0;
	uint64_t percent = 98 + throw_dice(sim, 5) + others * sim->own_percent;
	if (sim->now_ns >= sim->from_ns && sim->now_ns < sim->to_ns)
		percent += sim->other_percent;
	if (throw_dice(sim, 100) < sim->noise_percent)
		percent += throw_dice(sim, 100);
	pressure_enter(&gates[i], sim->now_ns);
	sim->started_ns[i] = sim->now_ns;
	sim->end_ns[i] = sim->now_ns + sim->batch_ns * percent / 100 + get_cold_ns(sim, i);
}

static void step_worker(struct sim *sim, size_t i)
{
	if (sim->end_ns[i] > 0) {
		if (sim->now_ns < sim->end_ns[i])
			return;
		pressure_leave(&gates[i], BATCH, sim->end_ns[i] - sim->started_ns[i], sim->now_ns);
		sim->bytes[i] += BATCH;
		sim->end_ns[i] = 0;
		sim->left_ns[i] = sim->next_ns[i] = sim->now_ns;
	}
	if (sim->now_ns < sim->next_ns[i])
		return;
	uint64_t start_ns = pressure_get_start(&gates[i], BATCH, sim->now_ns);
	if (start_ns == 0)
		start_batch(sim, i);
	else
		sim->next_ns[i] = start_ns == UINT64_MAX ? UINT64_MAX : start_ns + sim->wake_ns;
}

static uint64_t run_until(struct sim *sim, uint64_t until_ns)
{
	uint64_t before = 0, after = 0;
	for (size_t i = 0; i < sim->workers; i++)
		before += sim->bytes[i];
	for (; sim->now_ns < until_ns; sim->now_ns += 5000) {
		for (size_t i = 0; i < sim->workers; i++)
			step_worker(sim, i);
	}
	for (size_t i = 0; i < sim->workers; i++)
		after += sim->bytes[i];
	return after - before;
}

static void begin(struct sim *sim, size_t workers, uint64_t base_ns)
{
	*sim = (struct sim){
		.workers = workers, .batch_ns = 100000, .now_ns = START, .wake_ns = 60000, .dice = 7};
	rules.workers = (uint32_t)workers;
	for (size_t i = 0; i < workers; i++)
		pressure_begin(&gates[i], i + 1, 77, BATCH, base_ns);
}

/* ---- the bucket ---- */

static void test_rate(void **state)
{
	static const uint64_t rates[] = {MIB, 100 * MIB, GIB, 10 * GIB};

	for (size_t workers = 1; workers <= WORKERS; workers++) {
		for (size_t i = 0; i < ARRAY_SIZE(rates); i++) {
			struct sim sim;
			setup(NULL);
			begin(&sim, workers, 0);
			rules.rate_bytes_per_s = rates[i];
			uint64_t bytes = run_until(&sim, START + 5 * NS_PER_S), want = 5 * rates[i];
			assert_true(bytes <= want + want / 20 + PRESSURE_BURST_BYTES + workers * BATCH);
			assert_true(bytes + workers * BATCH >= want - want / 20);
		}
	}
}

/* However long nobody took anything, no more than the burst comes at once. */
static void test_burst(void **state)
{
	_Atomic uint64_t next_ns = 0;
	unsigned at_once = 0;

	while (pressure_take_slot(&next_ns, GIB, BATCH, START) <= START)
		at_once++;
	assert_int_equal(at_once, PRESSURE_BURST_BYTES / BATCH + 1);
	next_ns = 0;
	at_once = 0;
	/* A batch larger than the bucket takes its time all the same. */
	assert_true(pressure_take_slot(&next_ns, GIB, GIB, START) <= START);
	assert_true(pressure_take_slot(&next_ns, GIB, GIB, START) > START + NS_PER_S * 9 / 10);
}

/* What was promised at one rate is not waited for at another. */
static void test_rate_change(void **state)
{
	pressure_begin(&gates[0], 1, 77, BATCH, 0);
	rules.rate_bytes_per_s = MIB;
	rules.next_ns = START + 3600 * NS_PER_S;
	assert_true(pressure_get_start(&gates[0], BATCH, START) > START + 3599 * NS_PER_S);
	/* Asked again it keeps its place and takes no other. */
	uint64_t next_ns = rules.next_ns;
	assert_true(pressure_get_start(&gates[0], BATCH, START) > START + 3599 * NS_PER_S);
	assert_int_equal(rules.next_ns, next_ns);
	rules.rate_bytes_per_s = GIB;
	rules.next_ns = 0; /* as crew_rules_set() does */
	assert_int_equal(pressure_get_start(&gates[0], BATCH, START), 0);
	rules.rate_bytes_per_s = 0;
	rules.next_ns = START + 3600 * NS_PER_S;
	assert_int_equal(pressure_get_start(&gates[0], BATCH, START), 0);
}

/* ---- what counts when ---- */

static void test_order(void **state)
{
	pressure_begin(&gates[0], 1, 77, BATCH, 0);
	rules.rate_bytes_per_s = MIB;
	rules.next_ns = START + 3600 * NS_PER_S;
	rules.paused = PRESSURE_PAUSE_MEMORY;
	rules.is_scavenger = 1;
	assert_int_equal(pressure_get_start(&gates[0], BATCH, START), UINT64_MAX);
	levels[0] = URGENT;
	assert_int_equal(pressure_get_start(&gates[0], BATCH, START), 0);
	rules.is_off = 1;
	assert_int_equal(pressure_get_start(&gates[0], BATCH, START), UINT64_MAX);
	gates[0].rules = NULL;
	assert_int_equal(pressure_get_start(&gates[0], BATCH, START), 0);
}

/* ---- the scavenger ---- */

/* With a base from calibration, and with one it has to learn; alone, and as several that back off together.
 */
static void test_scavenger(void **state)
{
	for (size_t workers = 1; workers <= WORKERS; workers++) {
		for (unsigned is_given = 0; is_given < 2; is_given++) {
			struct sim sim;
			setup(NULL);
			rules.is_scavenger = 1;
			begin(&sim, workers, is_given ? 100000 : 0);
			sim.own_percent = 60;
			sim.other_percent = 150;
			sim.from_ns = START + 2 * NS_PER_S;
			sim.to_ns = START + 8 * NS_PER_S;
			/* Quiet: our own are no neighbours, whatever they do to each other. */
			for (unsigned i = 1; i <= 20; i++) {
				run_until(&sim, START + i * NS_PER_S / 10);
				assert_int_equal(pressure_get_backoff(&rules), 0);
			}
			/* Converges within 2 s, and stays: it does not oscillate. */
			run_until(&sim, START + 4 * NS_PER_S);
			uint64_t before[WORKERS];
			memcpy(before, sim.bytes, sizeof before);
			for (unsigned i = 1; i <= 40; i++) {
				run_until(&sim, START + 4 * NS_PER_S + i * NS_PER_S / 10);
				assert_int_equal(pressure_get_backoff(&rules), PRESSURE_BACKOFF_MAX);
			}
			/* Nobody starves. */
			for (size_t i = 0; i < workers; i++)
				assert_true(sim.bytes[i] - before[i] > 100 * BATCH);
			/* And back within 2 s when it is quiet again. */
			run_until(&sim, START + 10 * NS_PER_S);
			assert_int_equal(pressure_get_backoff(&rules), 0);
		}
	}
}

/* Sleeps make batches longer by themselves; it comes back all the same, at a cap as without one. */
static void test_scavenger_cold(void **state)
{
	static const uint64_t rates[] = {0, 4 * GIB, GIB};

	for (size_t workers = 1; workers <= WORKERS; workers++) {
		for (size_t i = 0; i < ARRAY_SIZE(rates); i++) {
			struct sim sim;
			setup(NULL);
			rules.is_scavenger = 1;
			rules.rate_bytes_per_s = rates[i];
			begin(&sim, workers, 30000);
			sim.batch_ns = 30000;
			sim.is_cooling = true;
			sim.other_percent = 150;
			sim.from_ns = START + NS_PER_S;
			sim.to_ns = START + 4 * NS_PER_S;
			uint64_t bytes = run_until(&sim, START + NS_PER_S);
			assert_int_equal(pressure_get_backoff(&rules), 0);
			if (rates[i] > 0)
				assert_in_range(bytes, rates[i] * 95 / 100, rates[i] * 105 / 100);
			run_until(&sim, START + 3 * NS_PER_S);
			/* At 1 GiB/s it already takes less than the scavenger leaves: it looks no further. */
			if (rates[i] != GIB)
				assert_int_equal(pressure_get_backoff(&rules), PRESSURE_BACKOFF_MAX);
			run_until(&sim, START + 6 * NS_PER_S);
			assert_int_equal(pressure_get_backoff(&rules), 0);
		}
	}
}

/* Half of the batches are interrupted: that is no bus. */
static void test_scavenger_noise(void **state)
{
	struct sim sim;
	rules.is_scavenger = 1;
	begin(&sim, 1, 30000);
	sim.batch_ns = 30000;
	sim.is_cooling = true;
	sim.noise_percent = 50;
	sim.from_ns = START;
	sim.to_ns = UINT64_MAX;
	for (unsigned i = 1; i <= 100; i++) {
		/* Nor is memory whose translations have to be looked up. */
		sim.other_percent = i % 2 * 45;
		run_until(&sim, START + i * NS_PER_S / 20);
		assert_int_equal(pressure_get_backoff(&rules), 0);
	}
	/* With a neighbour it makes no difference, either. */
	sim.other_percent = 180;
	run_until(&sim, sim.now_ns + 2 * NS_PER_S);
	for (unsigned i = 1; i <= 40; i++) {
		run_until(&sim, sim.now_ns + NS_PER_S / 20);
		assert_int_equal(pressure_get_backoff(&rules), PRESSURE_BACKOFF_MAX);
	}
}

/* A neighbour whose weight is between the bounds changes nothing: no swinging around one of them. */
static void test_scavenger_between(void **state)
{
	struct sim sim;
	rules.is_scavenger = 1;
	begin(&sim, 1, 100000);
	sim.other_percent = 60;
	sim.from_ns = START;
	sim.to_ns = UINT64_MAX;
	for (unsigned i = 1; i <= 50; i++) {
		run_until(&sim, START + i * NS_PER_S / 10);
		assert_int_equal(pressure_get_backoff(&rules), 0);
	}
}

/* What takes 50 times as long is memory that has to be found first, no neighbour. */
static void test_scavenger_strange(void **state)
{
	struct sim sim;
	rules.is_scavenger = 1;
	begin(&sim, 1, 100000);
	sim.other_percent = 5000;
	sim.from_ns = START;
	sim.to_ns = UINT64_MAX;
	run_until(&sim, START + 2 * NS_PER_S);
	assert_int_equal(pressure_get_backoff(&rules), 0);
}

/* A base measured beside a neighbour is corrected downwards, but hot caches do not set it. */
static void test_base(void **state)
{
	struct sim sim;
	rules.is_scavenger = 1;
	begin(&sim, 1, 120000);
	run_until(&sim, START + NS_PER_S);
	assert_in_range(gates[0].bases[gates[0].base].base_ns, 97000, 106000);
	setup(NULL);
	rules.is_scavenger = 1;
	begin(&sim, 1, 300000);
	run_until(&sim, START + NS_PER_S);
	assert_int_equal(gates[0].bases[gates[0].base].base_ns, 225000);
	/* Kinds of batches have bases of their own, which stay. */
	pressure_begin(&gates[0], 2, 78, BATCH, 0);
	assert_int_equal(gates[0].bases[gates[0].base].base_ns, 0);
	pressure_begin(&gates[0], 3, 77, BATCH, 300000);
	assert_int_equal(gates[0].bases[gates[0].base].base_ns, 225000);
}

/* Calibrated on memory that was faster than this will ever be: slow for some seconds, not for ever. */
static void test_wrong_calibration(void **state)
{
	struct sim sim;
	rules.is_scavenger = 1;
	begin(&sim, 1, 40000);
	run_until(&sim, START + NS_PER_S);
	assert_int_equal(pressure_get_backoff(&rules), PRESSURE_BACKOFF_MAX);
	run_until(&sim, START + 5 * NS_PER_S);
	assert_int_equal(pressure_get_backoff(&rules), 0);
	/* And a neighbour is one as before. */
	sim.other_percent = 150;
	sim.from_ns = sim.now_ns;
	sim.to_ns = UINT64_MAX;
	run_until(&sim, START + 7 * NS_PER_S);
	assert_int_equal(pressure_get_backoff(&rules), PRESSURE_BACKOFF_MAX);
	run_until(&sim, START + 20 * NS_PER_S);
	assert_int_equal(pressure_get_backoff(&rules), PRESSURE_BACKOFF_MAX);
	/* The same calibration again is not tried again; another one is. */
	pressure_begin(&gates[0], 2, 77, BATCH, 40000);
	assert_true(gates[0].bases[gates[0].base].base_ns > 90000);
	pressure_begin(&gates[0], 3, 77, BATCH, 50000);
	assert_int_equal(gates[0].bases[gates[0].base].base_ns, 50000);
}

/* One that died while it measured alone holds nobody up for long, whatever it wrote. */
static void test_solo_of_the_dead(void **state)
{
	rules.is_scavenger = 1;
	rules.workers = 2;
	pressure_begin(&gates[0], 1, 77, BATCH, 100000);
	rules.solo_next_ns = UINT64_MAX;
	rules.solo_until_ns = START + 5 * NS_PER_MS;
	assert_int_equal(pressure_get_start(&gates[0], BATCH, START), START + 5 * NS_PER_MS);
	assert_int_equal(pressure_get_start(&gates[0], BATCH, START + 5 * NS_PER_MS), 0);
	rules.solo_until_ns = UINT64_MAX;
	assert_int_equal(pressure_get_start(&gates[0], BATCH, START), 0);
}

/* Below the low watermark it backs off, too, but a quarter of the rate is left. */
static void test_scavenger_refill(void **state)
{
	struct sim sim;
	rules.is_scavenger = 1;
	begin(&sim, 1, 100000);
	sim.other_percent = 150;
	sim.from_ns = START + NS_PER_S;
	sim.to_ns = UINT64_MAX;
	run_until(&sim, START + 2 * NS_PER_S);
	uint64_t idle = run_until(&sim, START + 3 * NS_PER_S);
	levels[0] = IDLE + 1;
	run_until(&sim, START + 3 * NS_PER_S + NS_PER_S / 10);
	uint64_t refill = run_until(&sim, START + 4 * NS_PER_S + NS_PER_S / 10);
	uint64_t alone = NS_PER_S / 250000 * BATCH; /* without any sleep, beside that neighbour */
	assert_true(idle < alone / 25);
	assert_in_range(refill, alone / 5, alone / 3);
}

/* All rules at once: the bucket's rate is never passed, and beside a neighbour it is less. */
static void test_together(void **state)
{
	struct sim sim;
	rules.is_scavenger = 1;
	rules.rate_bytes_per_s = 4 * GIB;
	begin(&sim, 2, 100000);
	sim.own_percent = 30;
	sim.other_percent = 150;
	sim.from_ns = START + 3 * NS_PER_S;
	sim.to_ns = UINT64_MAX;
	uint64_t quiet = run_until(&sim, START + 3 * NS_PER_S);
	assert_in_range(quiet, 12 * GIB * 90 / 100, 12 * GIB * 105 / 100);
	run_until(&sim, START + 5 * NS_PER_S);
	assert_true(run_until(&sim, START + 8 * NS_PER_S) < quiet / 2);
	rules.paused = PRESSURE_PAUSE_CPU;
	run_until(&sim, START + 8 * NS_PER_S + NS_PER_MS);
	assert_int_equal(run_until(&sim, START + 9 * NS_PER_S), 0);
}

/* ---- the futex ---- */

struct waiter {
	pthread_t thread;
	struct pressure_gate *gate;
	_Atomic int result; /* 0: waits */
	_Atomic uint64_t cpu_ns, switches;
};

static void *wait_in_gate(void *argument)
{
	struct waiter *waiter = argument;
	struct rusage usage;
	bool may_go = pressure_wait(waiter->gate, BATCH);
	getrusage(RUSAGE_THREAD, &usage);
	waiter->switches = (uint64_t)usage.ru_nvcsw;
	waiter->result = may_go ? 1 : 2;
	return NULL;
}

static void start_waiter(struct waiter *waiter, size_t i)
{
	*waiter = (struct waiter){.gate = &gates[i]};
	pressure_begin(&gates[i], 5, 77, BATCH, 0);
	assert_int_equal(pthread_create(&waiter->thread, NULL, wait_in_gate, waiter), 0);
	usleep(50000);
	assert_int_equal(waiter->result, 0);
}

static void expect_result(struct waiter *waiter, int result)
{
	pressure_bump(&rules);
	pthread_join(waiter->thread, NULL);
	assert_int_equal(waiter->result, result);
	/* Woken for the change, not to look whether there is one. */
	assert_true(waiter->switches <= 4);
}

/* Everything that can end a wait ends it at once. */
static void test_futex(void **state)
{
	struct waiter waiter;

	rules.is_off = 1;
	start_waiter(&waiter, 0);
	rules.is_off = 0;
	expect_result(&waiter, 1);

	rules.paused = 1;
	start_waiter(&waiter, 0);
	levels[0] = URGENT;
	expect_result(&waiter, 1);
	levels[0] = IDLE;

	start_waiter(&waiter, 0);
	stops[0] = 5;
	expect_result(&waiter, 2);
	stops[0] = 0;

	start_waiter(&waiter, 0);
	stops[0] = UINT64_MAX;
	expect_result(&waiter, 2);
	stops[0] = 0;
	rules.paused = 0;

	rules.rate_bytes_per_s = MIB;
	rules.next_ns = clock_get_ns(CLOCK_MONOTONIC) + 3600 * NS_PER_S;
	start_waiter(&waiter, 0);
	rules.rate_bytes_per_s = 0;
	expect_result(&waiter, 1);
}

/* Time alone ends it, too. */
static void test_time(void **state)
{
	rules.rate_bytes_per_s = MIB;
	rules.next_ns = clock_get_ns(CLOCK_MONOTONIC) + 100 * NS_PER_MS;
	uint64_t until_ns = rules.next_ns;
	pressure_begin(&gates[0], 5, 77, BATCH, 0);
	assert_true(pressure_wait(&gates[0], BATCH));
	assert_true(clock_get_ns(CLOCK_MONOTONIC) >= until_ns);
	pressure_count(&gates[0], BATCH, clock_get_ns(CLOCK_MONOTONIC));
	assert_int_equal(rules.bytes, BATCH);
	assert_int_equal(rules.batches, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_rate, setup),
		cmocka_unit_test_setup(test_burst, setup),
		cmocka_unit_test_setup(test_rate_change, setup),
		cmocka_unit_test_setup(test_order, setup),
		cmocka_unit_test_setup(test_scavenger, setup),
		cmocka_unit_test_setup(test_scavenger_cold, setup),
		cmocka_unit_test_setup(test_scavenger_noise, setup),
		cmocka_unit_test_setup(test_scavenger_between, setup),
		cmocka_unit_test_setup(test_scavenger_strange, setup),
		cmocka_unit_test_setup(test_base, setup),
		cmocka_unit_test_setup(test_wrong_calibration, setup),
		cmocka_unit_test_setup(test_solo_of_the_dead, setup),
		cmocka_unit_test_setup(test_scavenger_refill, setup),
		cmocka_unit_test_setup(test_together, setup),
		cmocka_unit_test_setup(test_futex, setup),
		cmocka_unit_test_setup(test_time, setup),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
