/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* bench_machine.c - what a report says of the machine: see bench_machine.h. */
#include "bench_machine.h"

#include <inttypes.h>
#include <math.h>
#include <sys/utsname.h>

#include "paravirt.h"

/* Of a file of lines "KEY : VALUE", the value of the first such line; "" without one. */
static void bench_machine_read(const char *path, const char *key, char *ret_value, size_t capacity)
{
	_cleanup_free_ char *line = NULL;
	_cleanup_file_ FILE *file = fopen(path, "re");
	size_t size = 0;

	ret_value[0] = 0;
	while (file && getline(&line, &size, file) >= 0) {
		char *colon = strchr(line, ':');
		if (strncmp(line, key, strlen(key)) != 0 || !colon)
			continue;
		colon += 1 + strspn(colon + 1, " \t");
		colon[strcspn(colon, "\n")] = 0;
		snprintf(ret_value, capacity, "%s", colon);
		return;
	}
}

/* 0: not known. */
static uint64_t bench_machine_read_memory(const char *key)
{
	char value[64];

	bench_machine_read("/proc/meminfo", key, value, sizeof(value));
	return strtoull(value, NULL, 10) << 10;
}

uint64_t bench_machine_get_available(void)
{
	return bench_machine_read_memory("MemAvailable");
}

static json_t *bench_machine_make_text(const char *text)
{
	return *text ? json_string(text) : json_null();
}

static json_t *bench_machine_make_number(int64_t number)
{
	return number > 0 ? json_integer(number) : json_null();
}

/* As the C library reads them from the CPU: some hypervisors hide them from sysfs. */
static json_t *bench_machine_get_caches(void)
{
	json_t *caches = json_object();

	json_object_set_new(caches, "l1d", bench_machine_make_number(sysconf(_SC_LEVEL1_DCACHE_SIZE)));
	json_object_set_new(caches, "l2", bench_machine_make_number(sysconf(_SC_LEVEL2_CACHE_SIZE)));
	json_object_set_new(caches, "l3", bench_machine_make_number(sysconf(_SC_LEVEL3_CACHE_SIZE)));
	return caches;
}

/* "always [madvise] never": what stands in brackets. */
static json_t *bench_machine_get_thp(void)
{
	char text[64] = "", *end;
	_cleanup_file_ FILE *file = fopen("/sys/kernel/mm/transparent_hugepage/enabled", "re");

	if (!file || !fgets(text, sizeof(text), file) || !strchr(text, '[') || !(end = strchr(text, ']')))
		return json_null();
	*end = 0;
	return json_string(strchr(text, '[') + 1);
}

json_t *bench_machine_describe(const struct host *host)
{
	json_t *machine = json_object(), *sizes = json_array();
	struct utsname kernel;
	char model[128];

	bench_machine_read("/proc/cpuinfo", "model name", model, sizeof(model));
	uname(&kernel);
	json_object_set_new(machine, "cpu", bench_machine_make_text(model));
	json_object_set_new(machine, "cpus", bench_machine_make_number(sysconf(_SC_NPROCESSORS_ONLN)));
	json_object_set_new(machine, "caches", bench_machine_get_caches());
	json_object_set_new(
		machine, "memory", bench_machine_make_number((int64_t)bench_machine_read_memory("MemTotal")));
	json_object_set_new(
		machine, "available", bench_machine_make_number((int64_t)bench_machine_get_available()));
	json_object_set_new(machine, "nodes", json_integer((json_int_t)host->node_count));
	for (size_t i = 0; i < host->page_size_count; i++)
		json_array_append_new(sizes, json_integer((json_int_t)host->page_sizes[i]));
	json_object_set_new(machine, "page_sizes", sizes);
	json_object_set_new(machine, "transparent_hugepage", bench_machine_get_thp());
	json_object_set_new(machine, "kernel", json_string(kernel.release));
	json_object_set_new(machine, "architecture", json_string(kernel.machine));
	return machine;
}

json_t *bench_machine_get_regime(void)
{
	struct paravirt paravirt;
	json_t *regime = json_object(), *facts = json_array();

	paravirt_read("", paravirt_run_cpuid, &paravirt);
	for (size_t i = 0; i < paravirt.fact_count; i++) {
		json_t *fact = json_object();
		json_object_set_new(fact, "name", json_string(paravirt.facts[i].name));
		json_object_set_new(fact, "value", bench_machine_make_text(paravirt.facts[i].value));
		json_object_set_new(fact, "where", json_string(paravirt.facts[i].where));
		json_array_append_new(facts, fact);
	}
	json_object_set_new(regime, "name", json_string(paravirt_get_name(&paravirt)));
	json_object_set_new(regime, "facts", facts);
	return regime;
}

/* ---- how busy ---- */

void bench_busy_take(struct bench_busy *ret_busy)
{
	uint64_t ticks[8] = {0}; /* user nice system idle iowait irq softirq steal */
	_cleanup_file_ FILE *file = fopen("/proc/stat", "re");

	*ret_busy = (struct bench_busy){0};
	if (!file || fscanf(file,
			     "cpu %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64
			     " %" SCNu64 " %" SCNu64,
			     &ticks[0], &ticks[1], &ticks[2], &ticks[3], &ticks[4], &ticks[5], &ticks[6],
			     &ticks[7]) != 8)
		return;
	for (size_t i = 0; i < ARRAY_SIZE(ticks); i++)
		ret_busy->all += ticks[i];
	ret_busy->idle = ticks[3] + ticks[4];
	ret_busy->steal = ticks[7];
}

static double bench_busy_get_part(
	const struct bench_busy *since, const struct bench_busy *until, uint64_t part)
{
	return until->all > since->all ? (double)part / (double)(until->all - since->all) : NAN;
}

double bench_busy_get_used(const struct bench_busy *since, const struct bench_busy *until)
{
	uint64_t all = until->all - since->all, idle = until->idle - since->idle;

	/* iowait may go back. */
	return bench_busy_get_part(since, until, all > idle ? all - idle : 0);
}

double bench_busy_get_steal(const struct bench_busy *since, const struct bench_busy *until)
{
	return bench_busy_get_part(since, until, until->steal - since->steal);
}

double bench_busy_get_load(void)
{
	double load;

	return getloadavg(&load, 1) == 1 ? load : NAN;
}
