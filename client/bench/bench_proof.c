/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * bench_proof.c - what it costs to prove that nobody can reach a segment.
 * Makes a hugetlbfs of its own in a mount namespace of its own, one file with all the pages, and looks at it
 * as hpzd does, again and again. The time is that of proof_look(): counts, every page, counts.
 */
#include "bench.h"

#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include "host.h"
#include "options.h"
#include "output.h"
#include "proof.h"
#include "size.h"

#define BENCH_PROOF_BYTES    ((uint64_t)4 << 30)
#define BENCH_PROOF_WARM_UPS 3
#define BENCH_PROOF_ROUNDS   101

struct bench_proof {
	uint64_t page_size, asked, pages;
	int32_t node;
	bool raises;
	struct host host;
	int64_t raised;
	char directory[64]; /* "": not made */
	bool is_mounted;
	int dir_fd, fd, program;
	struct proof_facts facts;
	enum proof_source source;
	size_t rounds;
	double us_per_page[BENCH_ROUNDS_MAX];
};

static int bench_proof_fail(const char *what, int error)
{
	hpzctl_say("bench proof: %s: %s", what, strerror(-error));
	return error;
}

/* Pages that can be had now, the kernel's pool raised by what is missing if that was asked for. */
static int bench_proof_find_pages(struct bench_proof *bench)
{
	struct host_counters counters;
	uint64_t before = 0, after = 0, wanted = bench->asked + 2; /* two for the scratch file */
	int r = host_get_counters(&bench->host, bench->node, bench->page_size, &counters);
	if (r < 0)
		return bench_proof_fail("no such pages on this node", r);
	uint64_t free_pages = counters.free > counters.resv ? counters.free - counters.resv : 0;
	if (free_pages < wanted && bench->raises) {
		r = host_add_nr(&bench->host, bench->node, bench->page_size, (int64_t)(wanted - free_pages),
			&before, &after);
		if (r < 0)
			return bench_proof_fail("nr_hugepages cannot be raised", r);
		bench->raised = (int64_t)(after - before);
		free_pages += after - before;
	}
	bench->pages = MIN(bench->asked, free_pages > 2 ? free_pages - 2 : 0);
	if (bench->pages > 0)
		return 0;
	hpzctl_say("bench proof: the kernel has no free pages; --raise makes it have some for the while");
	return -ENOSPC;
}

/* Only this process and what it starts see the mount; it goes with it. */
static int bench_proof_mount(struct bench_proof *bench)
{
	char options[64];
	snprintf(bench->directory, sizeof(bench->directory), "/tmp/hpz-bench-XXXXXX");
	if (!mkdtemp(bench->directory)) {
		int error = -errno;
		bench->directory[0] = '\0';
		return bench_proof_fail("no directory", error);
	}
	snprintf(options, sizeof(options), "pagesize=%" PRIu64 ",mode=0700", bench->page_size);
	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
		mount("hugetlbfs", bench->directory, "hugetlbfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, options) <
			0)
		return bench_proof_fail("cannot mount a hugetlbfs (needs root)", -errno);
	bench->is_mounted = true;
	bench->dir_fd = open(bench->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return bench->dir_fd < 0 ? bench_proof_fail(bench->directory, -errno) : 0;
}

/* The full proof if it works here, else the file lease, which costs the same for any number of pages. */
static int bench_proof_learn(struct bench_proof *bench)
{
	const char *why = "";
	bench->program = proof_load(&why);
	int r = bench->program < 0
			? bench->program
			: proof_learn(bench->program, bench->dir_fd, bench->page_size, &bench->facts, &why);
	bench->source = r < 0 ? PROOF_FILE_LEASE : PROOF_BPF;
	if (r < 0)
		hpzctl_say("bench proof: the full proof does not work here (%s): measuring F_SETLEASE", why);
	return 0;
}

static int bench_proof_fill(struct bench_proof *bench)
{
	bench->fd = openat(bench->dir_fd, "pages", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0);
	if (bench->fd < 0)
		return bench_proof_fail("no file", -errno);
	/* Page by page: another program may take some meanwhile, and what can be had is measured. */
	uint64_t got = 0;
	while (got < bench->pages &&
		fallocate(bench->fd, 0, (off_t)(got * bench->page_size), (off_t)bench->page_size) == 0)
		got++;
	if (got == 0)
		return bench_proof_fail("no page", -errno);
	bench->pages = got;
	return 0;
}

static int bench_proof_look(const struct bench_proof *bench, struct proof_verdict *ret_verdict)
{
	switch (bench->source) {
	case PROOF_BPF:
		return proof_look(bench->program, &bench->facts, bench->fd, bench->pages, ret_verdict);
	case PROOF_FILE_LEASE:
		return proof_look_by_lease(bench->fd, ret_verdict);
	case PROOF_NONE:
		break;
	}
	return -EOPNOTSUPP;
}

static int bench_proof_measure(struct bench_proof *bench)
{
	for (size_t i = 0; i < BENCH_PROOF_WARM_UPS + BENCH_PROOF_ROUNDS; i++) {
		struct proof_verdict verdict;
		uint64_t start_ns = clock_get_ns(CLOCK_MONOTONIC);
		int r = bench_proof_look(bench, &verdict);
		uint64_t spent_ns = clock_get_ns(CLOCK_MONOTONIC) - start_ns;
		if (r < 0)
			return bench_proof_fail("the look failed", r);
		if (verdict.result != PROOF_FREE || verdict.missing > 0) {
			hpzctl_say("bench proof: our own file seems held by %s",
				proof_get_reason_text(verdict.reason));
			return -EBUSY;
		}
		if (i >= BENCH_PROOF_WARM_UPS)
			bench->us_per_page[bench->rounds++] =
				(double)spent_ns / 1000.0 / (double)bench->pages;
	}
	return 0;
}

static void bench_proof_clean_up(struct bench_proof *bench)
{
	uint64_t before, after;
	close_fd(bench->fd);
	close_fd(bench->dir_fd);
	close_fd(bench->program);
	if (bench->is_mounted)
		umount2(bench->directory, MNT_DETACH);
	if (bench->directory[0])
		rmdir(bench->directory);
	if (bench->raised > 0)
		host_add_nr(&bench->host, bench->node, bench->page_size, -bench->raised, &before, &after);
	host_deinit(&bench->host);
}

static int bench_proof_print(const struct hpzctl *ctl, struct bench_proof *bench)
{
	double median = bench_get_median(bench->us_per_page, bench->rounds);
	double spread = bench_get_spread(bench->us_per_page, bench->rounds);
	bool is_short = bench->pages<bench->asked, is_wide = spread> BENCH_SPREAD_MAX;
	char size[SIZE_TEXT];

	if (is_short)
		hpzctl_say("bench proof: %" PRIu64 " pages measured, %" PRIu64
			   " asked for: there are no more free ones",
			bench->pages, bench->asked);
	if (is_wide)
		hpzctl_say("bench proof: the middle half of the rounds spreads over %.0f %%: the machine is "
			   "busy",
			spread * 100);
	if (ctl->json) {
		/* output.h has no fractions: these are the only ones. */
		printf("{\"schema\":\"hpz-bench-proof-1\",\"pages\":%" PRIu64 ",\"asked\":%" PRIu64
		       ",\"page_size\":%" PRIu64 ",\"source\":\"%s\",\"rounds\":%zu,\"us_per_page\":%.4f,"
		       "\"us_per_page_min\":%.4f,\"us_per_page_max\":%.4f,\"spread\":%.3f,\"complete\":%s}\n",
			bench->pages, bench->asked, bench->page_size, proof_get_source_name(bench->source),
			bench->rounds, median, bench->us_per_page[0], bench->us_per_page[bench->rounds - 1],
			spread, is_short || is_wide ? "false" : "true");
	} else {
		printf("%" PRIu64 " pages of %s, %s: %.3f us a page (median of %zu rounds; %.3f to %.3f)\n",
			bench->pages, size_format_exact(bench->page_size, size),
			proof_get_source_name(bench->source), median, bench->rounds, bench->us_per_page[0],
			bench->us_per_page[bench->rounds - 1]);
	}
	return is_short || is_wide ? HPZCTL_LATER : HPZCTL_DONE;
}

static int bench_proof_run(const struct hpzctl *ctl, struct bench_proof *bench)
{
	int r = bench_proof_find_pages(bench);
	if (r == 0)
		r = bench_proof_mount(bench);
	if (r == 0)
		r = bench_proof_learn(bench);
	if (r == 0)
		r = bench_proof_fill(bench);
	if (r == 0)
		r = bench_proof_measure(bench);
	if (r == 0)
		return bench_proof_print(ctl, bench);
	return r == -ENOSPC ? HPZCTL_LATER : HPZCTL_FAILED;
}

int bench_proof(struct hpzctl *ctl, int argc, char **argv)
{
	struct bench_proof bench = {.page_size = (uint64_t)2 << 20, .dir_fd = -1, .fd = -1, .program = -1};
	uint64_t bytes = BENCH_PROOF_BYTES;
	const struct options_row rows[] = {
		{"size", OPTIONS_SIZE, &bytes, "SIZE", "how much memory to look at (default: 4G)"},
		{"page-size", OPTIONS_SIZE, &bench.page_size, "SIZE", "of the huge pages (default: 2M)"},
		{"node", OPTIONS_NODE, &bench.node, "N", "NUMA node (default: 0)"},
		{"raise", OPTIONS_FLAG, &bench.raises, NULL,
			"raise nr_hugepages by what is missing, and lower it afterwards"},
	};
	char **operands;
	int count;

	int status = options_parse(ctl, rows, ARRAY_SIZE(rows), argc, argv, false, &operands, &count);
	if (status == OPTIONS_GO)
		status = options_refuse_operands(ctl, operands, count);
	if (status != OPTIONS_GO)
		return status;
	bench.node = MAX(bench.node, 0);
	bench.asked = MAX(size_pages(bytes, bench.page_size), (uint64_t)1);
	if (host_init(&bench.host, NULL) < 0) {
		hpzctl_say("bench proof: /sys cannot be read");
		return HPZCTL_FAILED;
	}
	status = bench_proof_run(ctl, &bench);
	bench_proof_clean_up(&bench);
	return status;
}
