/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * fuzz_sysfs.c - what the kernel says in /proc and /sys, as host, pressure and paravirt read it below a root
 * of ours, and what CPUID says. The first byte chooses a reader; all files of that root have the rest as
 * their text.
 */
#include "fuzz.h"

#include "paravirt_parts.h"
#include "pressure_psi.h"

#define PID 7

static const char *const files[] = {
	"sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages",
	"sys/devices/system/node/node0/hugepages/hugepages-2048kB/free_hugepages",
	"sys/devices/system/node/node0/hugepages/hugepages-2048kB/surplus_hugepages",
	"sys/devices/system/node/node0/cpulist",
	"sys/kernel/mm/hugepages/hugepages-2048kB/resv_hugepages",
	"sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages",
	"sys/kernel/mm/hugepages/hugepages-2048kB/demote_size",
	"sys/devices/system/cpu/possible",
	"sys/devices/system/cpu/vulnerabilities/meltdown",
	"sys/devices/system/clocksource/clocksource0/available_clocksource",
	"sys/hypervisor/type",
	"proc/sys/kernel/random/boot_id",
	"proc/sys/kernel/osrelease",
	"proc/cmdline",
	"proc/cpuinfo",
	"proc/config.gz",
	"proc/stat",
	"proc/pressure/cpu",
	"proc/7/stat",
	"proc/7/status",
	"proc/7/comm",
	"proc/7/schedstat",
};

static struct host host;

/* All of them are links to the one file that holds the input. */
static void make_root(const char *target)
{
	char path[512];

	for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
		fuzz_put_file(files[i], "", 0);
		snprintf(path, sizeof path, "%s/%s", fuzz_get_directory(), files[i]);
		FUZZ_CHECK(unlink(path) == 0 && symlink(target, path) == 0);
	}
	FUZZ_CHECK(host_init(&host, fuzz_get_directory()) == 0);
	FUZZ_CHECK(host.has_numa && host.node_count == 1 && host_has_page_size(&host, 2u << 20));
}

static void read_counters(const char *text)
{
	struct host_counters counters;
	uint64_t size;
	char shown[32];

	if (host_get_counters(&host, 0, 2u << 20, &counters) == 0) {
		FUZZ_CHECK(counters.nr == counters.free && counters.nr == counters.resv);
		int n = snprintf(shown, sizeof shown, "%llu", (unsigned long long)counters.nr);
		/* Leading zeros apart, it is what stands there. */
		FUZZ_CHECK(strncmp(text + strspn(text, "0") - (counters.nr == 0), shown, (size_t)n) == 0);
	}
	if (host_get_demote_size(&host, 2u << 20, &size) == 0)
		FUZZ_CHECK(size > 0 && size <= 1u << 20);
}

static void read_cpus(const char *text)
{
	char list[256];
	struct host_cpus cpus, both;

	if (host_get_cpulist(&host, 0, list, sizeof list) == 0)
		FUZZ_CHECK(strlen(list) < sizeof list && !strchr(list, '\n'));
	if (host_parse_cpulist(text, &cpus) == 0) {
		FUZZ_CHECK(host_count_cpus(&cpus) <= HOST_CPUS_MAX);
		FUZZ_CHECK(!*text == (host_count_cpus(&cpus) == 0));
		host_and_cpus(&cpus, &cpus, &both);
		FUZZ_CHECK(memcmp(&both, &cpus, sizeof cpus) == 0);
	}
}

static void read_process(const char *text)
{
	char comm[17], boot[37];
	uint64_t ticks;
	uint32_t uid;

	if (host_get_comm(&host, PID, comm) == 0) {
		FUZZ_CHECK(strlen(comm) <= 16);
		for (const char *at = comm; *at; at++)
			FUZZ_CHECK(*at >= 0x20 && *at < 0x7f);
	}
	if (host_get_start_time(&host, PID, &ticks) == 0)
		FUZZ_CHECK(strrchr(text, ')'));
	if (host_get_process_uid(&host, PID, &uid) == 0)
		FUZZ_CHECK(strstr(text, "\nUid:"));
	if (host_get_boot_id(&host, boot) == 0)
		FUZZ_CHECK(strlen(boot) == 36);
}

static void read_pressure(const char *text)
{
	struct pressure_sched sched;
	uint64_t number;

	if (pressure_read_psi(&host, "cpu", &number) == 0)
		FUZZ_CHECK(strstr(text, "some avg10="));
	pressure_read_busy(&host, &number);
	pressure_read_sched(&host, PID, &sched);
}

/* ---- the regime ---- */

static struct fuzz_input leaves;

static bool run_cpuid(uint32_t leaf, uint32_t subleaf, struct paravirt_leaf *ret_leaf)
{
	if (leaves.left == 0)
		return false;
	ret_leaf->eax = (uint32_t)fuzz_take_number(&leaves, 4);
	ret_leaf->ebx = (uint32_t)fuzz_take_number(&leaves, 4);
	ret_leaf->ecx = (uint32_t)fuzz_take_number(&leaves, 4);
	ret_leaf->edx = (uint32_t)fuzz_take_number(&leaves, 4);
	return true;
}

static void check_paravirt(const struct paravirt *paravirt)
{
	FUZZ_CHECK(paravirt->fact_count <= PARAVIRT_FACTS_MAX);
	FUZZ_CHECK(strlen(paravirt_get_name(paravirt)) < PARAVIRT_NAME);
	for (size_t i = 0; i < paravirt->fact_count; i++) {
		const struct paravirt_fact *fact = &paravirt->facts[i];
		FUZZ_CHECK(memchr(fact->value, '\0', sizeof fact->value));
		FUZZ_CHECK(memchr(fact->where, '\0', sizeof fact->where));
		FUZZ_CHECK(paravirt_find_fact(paravirt, fact->name) == fact);
	}
}

static void read_cpuid(const char *text)
{
	static struct paravirt paravirt;

	paravirt_read("/nonexistent", run_cpuid, &paravirt);
	check_paravirt(&paravirt);
}

static void read_kernel(const char *text)
{
	static struct paravirt paravirt;

	leaves.left = 0;
	paravirt_read(fuzz_get_directory(), run_cpuid, &paravirt);
	check_paravirt(&paravirt);
}

static void (*const readers[])(const char *text) = {
	read_counters, read_cpus, read_process, read_pressure, read_cpuid, read_kernel};

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
	struct fuzz_input input = {bytes, length};
	uint8_t reader = fuzz_take_byte(&input);
	const char *path = fuzz_make_file(input.at, input.left, NULL);

	leaves = input;
	_cleanup_free_ char *text = fuzz_take_text(&input, 0);
	if (!host.root)
		make_root(path);
	readers[reader % ARRAY_SIZE(readers)](text);
	return 0;
}
