/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* bench.c - hpzctl bench: which benchmark. */
#include "bench.h"

#include <sched.h>

static const struct {
	const char *name;
	int (*run)(struct hpzctl *ctl, int argc, char **argv);
} benchmarks[] = {
	{"all", bench_all},
	{"alloc", bench_alloc},
	{"clear", bench_clear},
	{"lease", bench_lease},
	{"mlock", bench_mlock},
	{"proof", bench_proof},
	{"recycle", bench_recycle},
	{"teardown", bench_teardown},
	{"vm", bench_vm},
	{"write-seq", bench_write_seq},
};

static int bench_fail_name(const struct hpzctl *ctl, const char *name)
{
	char names[256] = "";

	for (size_t i = 0, used = 0; i < ARRAY_SIZE(benchmarks) && used < sizeof(names); i++)
		used += (size_t)snprintf(
			names + used, sizeof(names) - used, "%s%s", i ? ", " : "", benchmarks[i].name);
	return hpzctl_fail_usage(ctl, "there is no benchmark '%s', only: %s", name, names);
}

unsigned bench_count_cpus(void)
{
	cpu_set_t cpus;

	return sched_getaffinity(0, sizeof(cpus), &cpus) < 0 ? 1u : (unsigned)CPU_COUNT(&cpus);
}

int cmd_bench(struct hpzctl *ctl, int argc, char **argv)
{
	for (size_t i = 0; argc > 0 && i < ARRAY_SIZE(benchmarks); i++) {
		if (strcmp(argv[0], benchmarks[i].name) == 0)
			return benchmarks[i].run(ctl, argc - 1, argv + 1);
	}
	/* --help, for one: its options are those of proof, the first one there was. */
	if (argc > 0 && argv[0][0] == '-')
		return bench_proof(ctl, argc, argv);
	if (argc > 0)
		return bench_fail_name(ctl, argv[0]);
	return hpzctl_fail_usage(ctl, "which? As in: hpzctl bench proof");
}
