/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_pressure_psi.c - the kernel's figures are read from a stand-in /proc; what follows from them is
 * arithmetic. */
#include "pressure_psi.h"
#include "temp.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

static struct host host;

static int setup(void **state)
{
	static char root[TEMP_PATH];
	temp_make(root);
	host.root = root;
	return 0;
}

static int teardown(void **state)
{
	temp_remove(host.root);
	return 0;
}

static void test_read(void **state)
{
	struct pressure_sched sched;
	uint64_t value;

	assert_int_equal(pressure_read_psi(&host, "cpu", &value), -ENOENT);
	temp_put(host.root, "proc/pressure/cpu",
		"some avg10=1.00 avg60=0.30 avg300=0.10 total=123456789\n"
		"full avg10=0.00 avg60=0.00 avg300=0.00 total=7\n");
	assert_int_equal(pressure_read_psi(&host, "cpu", &value), 0);
	assert_int_equal(value, 123456789);
	temp_put(host.root, "proc/pressure/cpu", "");
	assert_int_equal(pressure_read_psi(&host, "cpu", &value), -EBADMSG);
	temp_put(host.root, "proc/pressure/cpu", "full avg10=0.00 avg60=0.00 avg300=0.00 total=7\n");
	assert_int_equal(pressure_read_psi(&host, "cpu", &value), -EBADMSG);
	assert_int_equal(pressure_read_busy(&host, &value), -ENOENT);
	temp_put(host.root, "proc/stat", "cpu  100 20 3 4000 500 6 7 8 9 0\ncpu0 1 2 3 4 5 6 7 8 9 0\n");
	assert_int_equal(pressure_read_busy(&host, &value), 0);
	assert_int_equal(value, 144 * (NS_PER_S / (uint64_t)sysconf(_SC_CLK_TCK)));
	temp_put(host.root, "proc/stat", "cpu  100 20\n");
	assert_int_equal(pressure_read_busy(&host, &value), -EBADMSG);
	assert_int_equal(pressure_read_sched(&host, 77, &sched), -ENOENT);
	temp_put(host.root, "proc/77/schedstat", "1000 2000 3\n");
	assert_int_equal(pressure_read_sched(&host, 77, &sched), 0);
	assert_int_equal(sched.ran_ns, 1000);
	assert_int_equal(sched.waited_ns, 2000);
	temp_put(host.root, "proc/77/schedstat", "none\n");
	assert_int_equal(pressure_read_sched(&host, 77, &sched), -EBADMSG);
}

static void test_wait(void **state)
{
	/* All of it counted already; or all of it under way; or some of each. */
	assert_int_equal(pressure_get_wait_ns(1000, 200, 800, 0), 800);
	assert_int_equal(pressure_get_wait_ns(1000, 0, 0, 0), 1000);
	assert_int_equal(pressure_get_wait_ns(1000, 100, 300, 0), 900);
	/* Resting is not waiting. */
	assert_int_equal(pressure_get_wait_ns(1000, 100, 0, 900), 0);
	assert_int_equal(pressure_get_wait_ns(1000, 100, 50, 900), 50);
	/* Clocks that do not quite agree. */
	assert_int_equal(pressure_get_wait_ns(1000, 900, 0, 900), 0);
	assert_int_equal(pressure_get_wait_ns(1000, 0, 5000, 0), 1000);
}

static void test_subtract(void **state)
{
	/* One of two busy CPUs, all the time: half of it is ours. */
	assert_int_equal(pressure_subtract_own_us(500, 1000000, 2.0), 0);
	assert_int_equal(pressure_subtract_own_us(800, 1000000, 2.0), 300);
	/* One CPU, or none counted yet. */
	assert_int_equal(pressure_subtract_own_us(800, 300000, 0.1), 500);
	assert_int_equal(pressure_subtract_own_us(100, 300000, 1.0), 0);
}

/* Half a second each; own: what our workers waited. */
static bool judge(struct pressure_psi *psi, unsigned percent, unsigned own_percent)
{
	static const struct config_psi limits = {true, 40, 20};
	uint64_t total_us = psi->total_us + percent * 5000ull;
	return pressure_judge_psi(
		psi, &limits, total_us, own_percent * 5000000ull, 1.0, psi->at_ns + NS_PER_S / 2);
}

static void test_judge(void **state)
{
	struct pressure_psi psi = {.at_ns = 0};

	assert_false(judge(&psi, 99, 0)); /* the first look is no window */
	psi.at_ns = 10 * NS_PER_S;
	assert_false(judge(&psi, 40, 0));
	assert_true(judge(&psi, 41, 0));
	assert_true(judge(&psi, 30, 0)); /* in between it stays as it is */
	assert_true(judge(&psi, 20, 0));
	assert_false(judge(&psi, 19, 0));
	assert_false(judge(&psi, 30, 0));
	/* Our own waiting does not count. */
	assert_false(judge(&psi, 100, 100));
	assert_false(judge(&psi, 100, 60));
	assert_true(judge(&psi, 100, 50));
	/* A counter that goes back says nothing. */
	psi.total_us += 1000000;
	static const struct config_psi limits = {true, 40, 20};
	assert_true(pressure_judge_psi(&psi, &limits, 5, 0, 1.0, psi.at_ns + NS_PER_S));
	assert_int_equal(psi.total_us, 5);
}

/* The real one, where it is: what is read makes sense. */
static void test_real(void **state)
{
	struct host real = {.root = (char *)""};
	struct pressure_sched sched;
	uint64_t busy_ns, total_us;
	int r = pressure_read_psi(&real, "cpu", &total_us);

	assert_true(r == 0 || r == -ENOENT || r == -EOPNOTSUPP);
	assert_int_equal(pressure_read_busy(&real, &busy_ns), 0);
	assert_true(busy_ns > 0);
	r = pressure_read_sched(&real, getpid(), &sched);
	assert_true(r == -ENOENT || (r == 0 && sched.ran_ns > 0));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_read, setup, teardown),
		cmocka_unit_test(test_wait),
		cmocka_unit_test(test_subtract),
		cmocka_unit_test(test_judge),
		cmocka_unit_test(test_real),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
