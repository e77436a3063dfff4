/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * fuzz_trace.c - traces: starts and ends of VMs as CSV, as hpzctl simulate reads them, and the kernel's
 * records in a ring, as the benchmarks do. The first byte chooses: 0 the ring.
 */
#include "fuzz.h"

#include "bench_trace.h"
#include "trace.h"

static void read_ring(struct fuzz_input *input)
{
	static char ring[4096];
	const uint64_t ids[BENCH_TRACE_POINTS] = {1, 2};
	struct bench_trace_seen seen = {{0}};
	uint64_t tail = fuzz_take_number(input, 8), bytes = fuzz_take_number(input, 2) % (sizeof ring + 1);

	memset(ring, 0, sizeof ring);
	for (size_t i = 0; i < MIN(input->left, sizeof ring); i++)
		ring[(tail + i) % sizeof ring] = (char)input->at[i];
	bench_trace_read(ring, sizeof ring, tail, tail + bytes, 7, ids, &seen);
}

static void read_rows(struct fuzz_input *input)
{
	const char *path = fuzz_make_file(input->at, input->left, NULL);
	char error[TRACE_ERROR] = "";
	struct trace_row row;
	uint64_t last_ns = 0;
	unsigned long last_line = 0;
	int r;

	struct trace *trace = NULL;
	FUZZ_CHECK(trace_open(path, &trace, error) == 0);
	FUZZ_CHECK(trace_get_length(trace) == input->left);
	while ((r = trace_next(trace, &row, error)) == 1) {
		FUZZ_CHECK(row.start_ns >= last_ns && row.end_ns >= row.start_ns && row.line > last_line);
		FUZZ_CHECK(row.bytes > 0 && row.node >= TRACE_NODE_ANY && row.node <= TRACE_NODE_MAX);
		FUZZ_CHECK(row.host && trace_get_position(trace) <= input->left);
		last_ns = row.start_ns;
		last_line = row.line;
	}
	/* Who is refused learns where. */
	FUZZ_CHECK(r == 0 ||
		   (r == -EINVAL && strncmp(error, path, strlen(path)) == 0 && error[strlen(path)] == ':'));
	trace_close(trace);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
	struct fuzz_input input = {bytes, length};

	if (fuzz_take_byte(&input) == 0)
		read_ring(&input);
	else
		read_rows(&input);
	return 0;
}
