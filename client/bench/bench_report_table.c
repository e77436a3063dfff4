/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* bench_report_table.c - the benchmarks of a report: what they say, how they are run, and what of their JSON
 * is shown. */
#include "bench_report.h"

#define KERNEL "0xc0504d"
#define HPZ    "0x4f8f4f"
#define BULK   "0x4f81bd"
#define OTHER  "0x9db8d9"

const struct report_benchmark report_benchmarks[] = {
	{
		.name = "vm",
		.about = "The start of a guest, from exec to QEMU's greeting: on pages that the kernel "
			 "zeroes then, by as "
			 "many threads as there are processors (prealloc), on a lease (hpz), and of a guest "
			 "of 8 MiB "
			 "(tiny), which is what QEMU itself takes. Medians; the ratio is of prealloc to hpz.",
		.needs_hpzd = true,
		.size = "--size",
		.full = {"--rounds", "10"},
		.quick = {"--rounds", "1", "--libvirt", "no"},
		.tables = {{NULL, NULL,
			{{"size", "size", REPORT_BYTES}, {"prealloc", "prealloc_ms", REPORT_MS},
				{"hpz", "hpz_ms", REPORT_MS}, {"tiny", "tiny_vm_ms", REPORT_MS},
				{"ratio", "ratio", REPORT_DECIMAL},
				{"hpz to tiny", "over_tiny", REPORT_DECIMAL},
				{"virsh, prealloc", "libvirt.prealloc_ms", REPORT_MS},
				{"virsh, hpz", "libvirt.hpz_ms", REPORT_MS},
				{"rounds", "rounds", REPORT_COUNT}, {"spread", "spread", REPORT_PART}}}},
		.picture = {.title = "start of a guest",
			.axis = "ms",
			.series = {{"time", "*", OTHER}},
			.bars = {{"prealloc", "prealloc_ms"}, {"hpz", "hpz_ms"}, {"tiny", "tiny_vm_ms"}}},
	},
	{
		.name = "clear",
		.about = "How fast memory becomes zero, one CPU: by the kernel, by each method, by a worker "
			 "of hpzd; and what "
			 "a neighbour on the same CPU feels of it (a walk over 1 MiB, 1 is alone).",
		.quick = {"--rounds", "1"},
		.tables = {{NULL, NULL,
				   {{"chosen", "chosen", REPORT_TEXT},
					   {"the kernel, GB/s", "kernel_gb_per_s", REPORT_DECIMAL},
					   {"hpz, GB/s", "engine_gb_per_s", REPORT_DECIMAL},
					   {"hpz to the kernel", "ratio_to_kernel", REPORT_DECIMAL},
					   {"hpz to a bare program", "ratio_to_best", REPORT_DECIMAL},
					   {"neighbour, kernel", "neighbour.kernel_ratio", REPORT_DECIMAL},
					   {"neighbour, hpz", "neighbour.hpz_ratio", REPORT_DECIMAL},
					   {"stops within, p99", "stop_us.p99", REPORT_US},
					   {"size, GiB", "gib", REPORT_COUNT},
					   {"rounds", "rounds", REPORT_COUNT}}},
			{"Methods", "methods",
				{{"method", "name", REPORT_TEXT}, {"pages", "page_size", REPORT_BYTES},
					{"GB/s", "gb_per_s", REPORT_DECIMAL},
					{"why not", "why", REPORT_TEXT}}}},
		.picture = {.title = "clearing, one CPU",
			.axis = "GB/s",
			.list = "methods",
			.labels = {{"", "name", REPORT_TEXT}, {"", "page_size", REPORT_BYTES}},
			.series = {{"rate", "gb_per_s", OTHER}}},
	},
	{
		.name = "mlock",
		.about = "mlock() of a region of huge pages: fresh ones of the kernel, which it zeroes then, "
			 "against leased "
			 "ones. Medians, each with the mmap before it.",
		.takes_hpzd = true,
		.quick = {"--size", "16M", "--page-size", "2M", "--rounds", "1"},
		.tables = {{NULL, "rows",
			{{"pages", "page_size", REPORT_BYTES}, {"GiB", "gib", REPORT_DECIMAL},
				{"kernel, ms/GiB", "kernel_ms_per_gib", REPORT_DECIMAL},
				{"hpz, ms/GiB", "hpz_ms_per_gib", REPORT_DECIMAL},
				{"ratio", "ratio", REPORT_DECIMAL}, {"the lease", "lease_ms", REPORT_MS},
				{"ratio with it", "ratio_with_lease", REPORT_DECIMAL},
				{"rounds", "rounds", REPORT_COUNT}, {"spread", "spread", REPORT_PART}}}},
		.picture = {.title = "mlock()",
			.axis = "ms a GiB",
			.is_logarithmic = true,
			.list = "rows",
			.labels = {{"", "page_size", REPORT_BYTES}},
			.series = {{"kernel", "kernel_ms_per_gib", KERNEL}, {"hpz", "hpz_ms_per_gib", HPZ}}},
	},
	{
		.name = "alloc",
		.about = "Threads that allocate and free one huge page at a time, all at once: mmap with "
			 "MAP_POPULATE and munmap "
			 "(kernel), lease and release (hpz), leases in one exchange (bulk, each). Where "
			 "there are more "
			 "threads than CPUs, they wait for each other as well.",
		.takes_hpzd = true,
		.quick = {"--pages", "48", "--rounds", "1"},
		.tables = {{NULL, NULL,
				   {{"CPUs", "cpus", REPORT_COUNT}, {"pages a round", "pages", REPORT_COUNT},
					   {"leases that had to wait", "waited", REPORT_COUNT},
					   {"rounds", "rounds", REPORT_COUNT}}},
			{NULL, "rows",
				{{"threads", "threads", REPORT_COUNT},
					{"over CPUs", "over_cpus", REPORT_TEXT},
					{"kernel p50", "kernel_us.p50", REPORT_US},
					{"p99", "kernel_us.p99", REPORT_US},
					{"pages/s", "kernel_us.pages_per_s", REPORT_COUNT},
					{"hpz p50", "hpz_us.p50", REPORT_US},
					{"p99", "hpz_us.p99", REPORT_US},
					{"pages/s", "hpz_us.pages_per_s", REPORT_COUNT},
					{"bulk p50", "bulk_us.p50", REPORT_US},
					{"p99", "bulk_us.p99", REPORT_US},
					{"pages/s", "bulk_us.pages_per_s", REPORT_COUNT},
					{"spread", "hpz_us.spread", REPORT_PART}}}},
		.picture = {.title = "one page of 2M, p50",
			.axis = "us",
			.is_logarithmic = true,
			.list = "rows",
			.labels = {{"threads", "threads", REPORT_COUNT}},
			.series = {{"kernel", "kernel_us.p50", KERNEL}, {"hpz", "hpz_us.p50", HPZ},
				{"bulk", "bulk_us.p50", BULK}}},
	},
	{
		.name = "write-seq",
		.about = "Tasks that each map a region and write it from start to end: the kernel's "
			 "anonymous huge pages "
			 "against leased memory. Medians of all tasks' CPU time and of the time by the "
			 "clock; change from "
			 "the kernel to hpz.",
		.takes_hpzd = true,
		.quick = {"--size", "16M", "--rounds", "1"},
		.tables =
			{{NULL, NULL,
				 {{"tasks", "tasks", REPORT_COUNT}, {"CPUs", "cpus", REPORT_COUNT},
					 {"bytes", "bytes", REPORT_BYTES}, {"rounds", "rounds", REPORT_COUNT},
					 {"spread of the ratios by the clock", "spread", REPORT_PART},
					 {"hpz, in the background, meanwhile", "background_s", REPORT_S}}},
				{.rows = {{"stime", "stime"}, {"utime", "utime"}, {"wall", "wall"}},
					.columns = {{"time", "", REPORT_TEXT},
						{"kernel", "kernel.*_s", REPORT_S},
						{"spread", "kernel.*_spread", REPORT_PART},
						{"hpz", "hpz.*_s", REPORT_S},
						{"spread", "hpz.*_spread", REPORT_PART},
						{"change", "change_pct.*_s", REPORT_PERCENT},
						{"of the rounds, a quarter below", "change_pct_low.*_s",
							REPORT_PERCENT},
						{"a quarter above", "change_pct_high.*_s", REPORT_PERCENT}}}},
		.picture = {.title = "a region is written",
			.axis = "s",
			.series = {{"kernel", "kernel.*_s", KERNEL}, {"hpz", "hpz.*_s", HPZ}},
			.bars = {{"stime", "stime"}, {"utime", "utime"}, {"wall", "wall"}}},
	},
	{
		.name = "teardown",
		.about = "What the end of a process costs that holds much memory. puds: one page touched in "
			 "each GiB of a large "
			 "region; middle: one page in the middle of it (an untouched page that is only read "
			 "would be the "
			 "kernel's page of zeroes, and with THP a huge one: these are written); whole: all "
			 "of it. By exit, "
			 "by munmap, and by SIGKILL.",
		.takes_hpzd = true,
		.quick = {"--size", "2M", "--rounds", "1", "--repeats", "1"},
		.tables = {{NULL, NULL,
				   {{"regime", "regime.name", REPORT_TEXT}, {"size", "size", REPORT_BYTES},
					   {"rounds", "rounds", REPORT_COUNT}}},
			{NULL, "rows",
				{{"case", "case", REPORT_TEXT}, {"backing", "backing", REPORT_TEXT},
					{"page tables", "table_bytes", REPORT_BYTES},
					{"median", "median_s", REPORT_S}, {"mean", "mean_s", REPORT_S},
					{"deviation", "stddev_s", REPORT_S},
					{"of it exit_mmap", "exit_mmap_s", REPORT_S},
					{"runs", "runs", REPORT_COUNT}, {"spread", "spread", REPORT_PART}}},
			{"The kernel's 2M pages, and leased ones", "pairs",
				{{"case", "case", REPORT_TEXT}, {"kernel", "kernel_s", REPORT_S},
					{"hpz", "hpz_s", REPORT_S}, {"ratio", "ratio", REPORT_DECIMAL},
					{"spread", "spread", REPORT_PART}}},
			{"Not measured", "missing",
				{{"case", "case", REPORT_TEXT}, {"backing", "backing", REPORT_TEXT},
					{"why", "why", REPORT_TEXT}}}},
		.picture = {.title = "the end of a process, by exit",
			.axis = "s",
			.is_logarithmic = true,
			.list = "rows",
			.only_key = "end",
			.only_value = "exit",
			.labels = {{"", "case", REPORT_TEXT}, {"", "backing", REPORT_TEXT}},
			.series = {{"median", "median_s", OTHER}}},
	},
	{
		.name = "recycle",
		.about = "From the release of a lease until its memory is clean, against a bare program that "
			 "maps so many bytes, "
			 "clears them by the same method and lets go. Medians.",
		.needs_hpzd = true,
		.size = "--gib",
		.quick = {"--rounds", "5"},
		.tables = {{NULL, NULL,
			{{"GiB", "gib", REPORT_DECIMAL}, {"workers", "workers", REPORT_COUNT},
				{"method", "method", REPORT_TEXT}, {"hpz", "recycle_s", REPORT_S},
				{"bare", "floor_s", REPORT_S}, {"bare, mapped before", "mapped_s", REPORT_S},
				{"ratio", "ratio", REPORT_DECIMAL}, {"rounds", "rounds", REPORT_COUNT},
				{"spread", "spread", REPORT_PART}}}},
		.picture = {.title = "from the release until clean",
			.axis = "s",
			.series = {{"time", "*", OTHER}},
			.bars = {{"hpz", "recycle_s"}, {"bare", "floor_s"}, {"mapped before", "mapped_s"}}},
	},
	{
		.name = "lease",
		.about = "What a lease and a release cost, against the bare floor: one packet to another "
			 "process, and one with a "
			 "descriptor back. On simulated pools.",
		.takes_hpzd = true,
		.quick = {"--rounds", "1"},
		.tables =
			{{NULL, NULL,
				 {{"floor", "floor_us", REPORT_US}, {"lease, p50", "lease_us.p50", REPORT_US},
					 {"lease, p99", "lease_us.p99", REPORT_US},
					 {"release, p50", "release_us.p50", REPORT_US},
					 {"lease to floor", "ratio", REPORT_DECIMAL},
					 {"on one CPU: floor", "pinned.floor_us", REPORT_US},
					 {"on one CPU: added by a lease", "pinned.added_us", REPORT_US},
					 {"in bulk, each", "bulk.us_each", REPORT_US}}},
				{"By size, on one CPU", "by_size",
					{{"size", "size", REPORT_BYTES}, {"p50", "p50", REPORT_US}}},
				{"By segments of the pool, on one CPU", "by_segments",
					{{"segments", "segments", REPORT_COUNT}, {"p50", "p50", REPORT_US}}},
				{"By clients at the same time", "by_clients",
					{{"clients", "clients", REPORT_COUNT}, {"p50", "p50", REPORT_US},
						{"p99", "p99", REPORT_US}}}},
		.picture = {.title = "a lease, by clients at the same time",
			.axis = "us",
			.is_logarithmic = true,
			.list = "by_clients",
			.labels = {{"clients", "clients", REPORT_COUNT}},
			.series = {{"p50", "p50", HPZ}, {"p99", "p99", OTHER}}},
	},
	{
		.name = "proof",
		.about = "What it costs to prove that nobody can reach a segment, a page.",
		.size = "--size",
		.full = {"--raise"},
		.quick = {"--raise"},
		.tables = {{NULL, NULL,
			{{"source", "source", REPORT_TEXT}, {"pages", "pages", REPORT_COUNT},
				{"pages of", "page_size", REPORT_BYTES}, {"a page", "us_per_page", REPORT_US},
				{"least", "us_per_page_min", REPORT_US},
				{"most", "us_per_page_max", REPORT_US}, {"rounds", "rounds", REPORT_COUNT},
				{"spread", "spread", REPORT_PART}}}},
		.picture = {.title = "the proof, a page",
			.axis = "us",
			.series = {{"time", "us_per_page*", OTHER}},
			.bars = {{"median", ""}, {"least", "_min"}, {"most", "_max"}}},
	},
};
const size_t report_benchmark_count = ARRAY_SIZE(report_benchmarks);

const struct report_benchmark *report_find_benchmark(const char *name)
{
	for (size_t i = 0; i < report_benchmark_count; i++) {
		if (strcmp(report_benchmarks[i].name, name) == 0)
			return &report_benchmarks[i];
	}
	return NULL;
}
