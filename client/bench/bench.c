/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* bench.c - hpzctl bench: which benchmark, and figures of rounds. */
#include "bench.h"

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
	{"vm", bench_vm},
};

static int bench_compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

double bench_get_median(double *figures, size_t count)
{
	qsort(figures, count, sizeof(*figures), bench_compare);
	return count % 2 ? figures[count / 2] : (figures[count / 2 - 1] + figures[count / 2]) / 2;
}

double bench_get_spread(const double *sorted, size_t count)
{
	return (sorted[count * 3 / 4] - sorted[count / 4]) / sorted[count / 2];
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
		return hpzctl_fail_usage(ctl,
			"there is no benchmark '%s', only: all, alloc, clear, lease, mlock, proof, recycle, vm",
			argv[0]);
	return hpzctl_fail_usage(ctl, "which? As in: hpzctl bench proof");
}
