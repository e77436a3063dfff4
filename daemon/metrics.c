/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * metrics.c - counters and histograms, and the table of what they are.
 * Numbers are added to from any thread (a slow call of the kernel's may log); nobody waits for anybody.
 */
#include "metrics.h"

#include "proto.h"

#define RATE_BYTES_MIN                                                                                       \
	((uint64_t)16 << 20) /* less is over before a clock or a start-up can be told from it */

/* ---- what a label may say; a place without a word is no series ---- */

static const char *const operations[HPZ_OP_LAST + 1] = {
	[HPZ_OP_STATUS] = "status",
	[HPZ_OP_LEASE] = "lease",
	[HPZ_OP_ACK] = "ack",
	[HPZ_OP_RELEASE] = "release",
	[HPZ_OP_ADOPT] = "adopt",
	[HPZ_OP_LIST] = "list",
	[HPZ_OP_WAIT] = "wait",
	[HPZ_OP_DRAIN] = "drain",
	[HPZ_OP_CHECK] = "check",
	[HPZ_OP_VERIFY] = "verify",
	[HPZ_OP_SET] = "set",
	[HPZ_OP_CALIBRATE] = "calibrate",
	[HPZ_OP_CLEARING] = "clearing",
	[HPZ_OP_PLAN] = "plan",
	[HPZ_OP_RESIZE] = "resize",
	[HPZ_OP_RESERVE] = "reserve",
	[HPZ_OP_UNRESERVE] = "unreserve",
	[HPZ_OP_CHANGE] = "change",
	[HPZ_OP_DEMAND] = "demand",
	[HPZ_OP_TEARDOWN] = "teardown",
	[HPZ_OP_EVENTS] = "events",
	[HPZ_OP_METRICS] = "metrics",
};

static const char *const errors[] = {
	[HPZ_ERR_SYSTEM] = "system",
	[HPZ_ERR_INVALID] = "invalid",
	[HPZ_ERR_PROTOCOL] = "protocol",
	[HPZ_ERR_DENIED] = "denied",
	[HPZ_ERR_NO_MEMORY] = "no_memory",
	[HPZ_ERR_TOO_LARGE] = "too_large",
	[HPZ_ERR_NO_POOL] = "no_pool",
	[HPZ_ERR_UNKNOWN_LEASE] = "unknown_lease",
	[HPZ_ERR_ENDED] = "ended",
	[HPZ_ERR_TIMEOUT] = "timeout",
	[HPZ_ERR_BUSY] = "busy",
	[HPZ_ERR_IN_USE] = "in_use",
	[HPZ_ERR_DRAINED] = "drained",
	[HPZ_ERR_UNSUPPORTED] = "unsupported",
	[HPZ_ERR_KEY_MISMATCH] = "key_mismatch",
	[HPZ_ERR_INTERNAL] = "internal",
	[HPZ_ERR_QUOTA] = "quota",
};

static const char *const sources[] = {"clean", "zeroed", "waited"};
static const char *const outcomes[] = {"granted", "refused", "cancelled"};
static const char *const places[] = {"pool", "kernel", "orphan"};
static const char *const proofs[] = {"free", "open", "open_read", "name", "link", "pin", "poison", "unknown"};
static const char *const works[] = {"fill", "clear", "extend", "verify"};
static const char *const resources[] = {"cpu", "memory"};
static const char *const connections[] = {"accepted", "turned_away", "broken"};
static const char *const messages[] = {"error", "warning"};
static const char *const reloads[] = {"applied", "refused"};

/* ---- the table ---- */

#define COUNTER(unit) HPZ_METRIC_COUNTER, HPZ_METRIC_##unit, 0, 0
/* From so many powers of two on, in so many buckets. */
#define HISTOGRAM(unit, shift, buckets) HPZ_METRIC_HISTOGRAM, HPZ_METRIC_##unit, shift, buckets
#define LABEL(name, values)             name, values, ARRAY_SIZE(values)
#define NO_LABEL                        "", NULL, 1

/* clang-format off */
static const struct family {
	const char *name;
	enum hpz_metric_kind kind;
	enum hpz_metric_unit unit;
	unsigned shift, buckets;
	const char *label;
	const char *const *values;
	size_t value_count;
	const char *help;
} families[METRICS_FAMILY_COUNT] = {
	[METRICS_REQUESTS] = {"hpz_requests", COUNTER(NONE), LABEL("operation", operations),
		"Requests that came, by what was asked"},
	[METRICS_REQUEST_ERRORS] = {"hpz_request_errors", COUNTER(NONE), LABEL("error", errors),
		"Requests of every kind that were answered with an error"},
	[METRICS_LEASE_REFUSALS] = {"hpz_lease_refusals", COUNTER(NONE), LABEL("error", errors),
		"Requests for memory (lease, reserve, change) that were answered with an error"},
	[METRICS_GRANTED_BYTES] = {"hpz_granted_bytes", COUNTER(BYTES), LABEL("source", sources),
		"Memory that was handed out: clean when it was asked for, zeroed for it, or waited for"},
	[METRICS_LEASE_LATENCY] = {"hpz_lease_latency_seconds", HISTOGRAM(NS, 10, 32), "outcome", outcomes, 2,
		"From a request for memory to its reply, with whatever it waited for"},
	[METRICS_LEASE_WAIT] = {"hpz_lease_wait_seconds", HISTOGRAM(NS, 20, 22), LABEL("outcome", outcomes),
		"The same of those that had to wait for memory; cancelled ones have lost their client"},
	[METRICS_LEASES_ENDED] = {"hpz_leases_ended", COUNTER(NONE), NO_LABEL,
		"Leases all of whose memory is back, or given up"},
	[METRICS_LEASES_FORCED] = {"hpz_leases_forced", COUNTER(NONE), NO_LABEL,
		"Leases that were ended by force, whoever still held them"},
	[METRICS_RETURNED_BYTES] = {"hpz_returned_bytes", COUNTER(BYTES), LABEL("to", places),
		"Memory of ended leases: kept for the pool, given to the kernel, orphaned"},
	[METRICS_PROOFS] = {"hpz_proofs", COUNTER(NONE), LABEL("result", proofs),
		"Looks at who still holds the memory of a lease that has ended: nobody (free), or by what"},
	[METRICS_WORKER_BYTES] = {"hpz_worker_bytes", COUNTER(BYTES), LABEL("work", works),
		"Memory that workers touched"},
	[METRICS_WORKER_BUSY] = {"hpz_worker_busy_seconds", COUNTER(NS), LABEL("work", works),
		"Time that workers had such a job, with what the rules of [clear] held them up for"},
	[METRICS_WORKER_RATE] = {"hpz_worker_rate_bytes_per_second", HISTOGRAM(BYTES_PER_S, 22, 18), LABEL("work", works),
		"How fast each job of 16 MiB and more went, held up or not"},
	[METRICS_PAUSES] = {"hpz_pauses", COUNTER(NONE), LABEL("resource", resources),
		"Times that clearing and filling stopped because others waited for that resource"},
	[METRICS_DEMOTED_PAGES] = {"hpz_demoted_pages", COUNTER(NONE), NO_LABEL,
		"Pages that were split into smaller ones"},
	[METRICS_CONNECTIONS] = {"hpz_client_connections", COUNTER(NONE), LABEL("result", connections),
		"Connections: accepted, turned away at a limit, closed for what was sent"},
	[METRICS_JOURNAL_RECORDS] = {"hpz_journal_records", COUNTER(NONE), NO_LABEL,
		"Records written to the journal"},
	[METRICS_JOURNAL_ERRORS] = {"hpz_journal_errors", COUNTER(NONE), NO_LABEL,
		"Records that could not be written: a restart then would not know of them"},
	[METRICS_LOG_MESSAGES] = {"hpz_log_messages", COUNTER(NONE), LABEL("level", messages),
		"Errors and warnings of hpzd, in the log or not"},
	[METRICS_RELOADS] = {"hpz_config_reloads", COUNTER(NONE), LABEL("result", reloads),
		"Reloads of the configuration"},
};
/* clang-format on */

static_assert(ARRAY_SIZE(operations) <= METRICS_LABELS && ARRAY_SIZE(errors) <= METRICS_LABELS, "room");

/* ---- the numbers ---- */

static uint64_t counters[METRICS_FAMILY_COUNT][METRICS_LABELS];

/* Of the families that are one, in their order. */
static const enum metrics_family histogram_families[] = {
	METRICS_LEASE_LATENCY, METRICS_LEASE_WAIT, METRICS_WORKER_RATE};
static struct metrics_histogram histograms[ARRAY_SIZE(histogram_families)][4];

static void add(uint64_t *number, uint64_t more)
{
	__atomic_fetch_add(number, more, __ATOMIC_RELAXED);
}

static struct metrics_histogram *find_histogram(enum metrics_family family, size_t label)
{
	for (size_t i = 0; i < ARRAY_SIZE(histogram_families); i++) {
		if (histogram_families[i] == family && label < ARRAY_SIZE(histograms[i]))
			return &histograms[i][label];
	}
	return NULL;
}

/* What nobody has a word for is not counted: the table says what there is. */
static bool is_series(const struct family *family, size_t label)
{
	return label < family->value_count && (!family->values || family->values[label]);
}

void metrics_add(enum metrics_family family, unsigned label, uint64_t more)
{
	if (is_series(&families[family], label))
		add(&counters[family][label], more);
}

static unsigned get_bucket(const struct family *family, uint64_t value)
{
	unsigned bits = value ? 64 - (unsigned)__builtin_clzll(value) : 0; /* value < 2^bits */
	return MIN(bits - MIN(bits, family->shift), family->buckets - 1);
}

void metrics_observe(enum metrics_family family, unsigned label, uint64_t value)
{
	struct metrics_histogram *histogram = find_histogram(family, label);
	if (!histogram || !is_series(&families[family], label))
		return;
	add(&counters[family][label], 1);
	add(&histogram->sum, value);
	add(&histogram->buckets[get_bucket(&families[family], value)], 1);
}

void metrics_add_work(enum metrics_work work, uint64_t bytes, uint64_t ns)
{
	metrics_add(METRICS_WORKER_BYTES, work, bytes);
	metrics_add(METRICS_WORKER_BUSY, work, ns);
	if (bytes >= RATE_BYTES_MIN && ns > 0)
		metrics_observe(METRICS_WORKER_RATE, work,
			(uint64_t)((double)bytes / ((double)ns / (double)NS_PER_S)));
}

/* ---- questions ---- */

static void get_series(enum metrics_family index, size_t label, struct metrics_series *ret_series)
{
	const struct family *family = &families[index];
	*ret_series = (struct metrics_series){
		.name = family->name,
		.help = family->help,
		.kind = family->kind,
		.unit = family->unit,
		.label = family->label,
		.label_value = family->values ? family->values[label] : "",
		.value = __atomic_load_n(&counters[index][label], __ATOMIC_RELAXED),
		.shift = family->shift,
		.bucket_count = family->buckets,
		.histogram = find_histogram(index, label),
	};
}

bool metrics_get_series(size_t index, struct metrics_series *ret_series)
{
	for (size_t i = 0; i < METRICS_FAMILY_COUNT; i++) {
		for (size_t label = 0; label < families[i].value_count; label++) {
			if (!is_series(&families[i], label) || index-- > 0)
				continue;
			get_series((enum metrics_family)i, label, ret_series);
			return true;
		}
	}
	return false;
}

void metrics_reset(void)
{
	memset(counters, 0, sizeof counters);
	memset(histograms, 0, sizeof histograms);
}
