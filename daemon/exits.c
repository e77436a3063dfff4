/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * exits.c - what the end of a process that has leased memory costs: see exits.h.
 *
 * The pidfd of a watch tells that a process is over, whatever the source; then the source is asked what it
 * has seen. Only when BPF has seen the end begin and the address space is not gone (a child shares it) the
 * watch goes on, until the program's ring says so, which is for those alone: what hpzd is woken for runs
 * beside the end it measures. For the same reason the program is asked a moment after the pidfd told.
 */
#include <fcntl.h>
#include <inttypes.h>

#include "exits.h"
#include "exits_bpf.h"
#include "exits_perf.h"
#include "exits_pidfd.h"
#include "log.h"
#include "owner.h"

#define HASH            1024
#define ASK_MS          10 /* whoever waits for an end has seen it by then */
#define IDLE_MAX        16 /* who leases again and again costs no new watch each time */
#define JOB_DEADLINE_MS 5000
#define LOAD_DEADLINE_MS                                                                                     \
	60000 /* the kernel's types are some MiB to read, in a slow guest and beside others */

struct exits_watch {
	struct list link; /* exits.buckets; unlinked: no further share is to come */
	struct exits *exits;
	pid_t pid;
	uint64_t pid_start;
	struct owner_share owner;
	uint64_t since_ns;     /* CLOCK_MONOTONIC */
	bool is_seen;          /* by the program */
	bool is_over;          /* its pidfd said so; its address space is still there */
	uint64_t over_ns;      /* when the pidfd said so */
	struct list asking;    /* exits.asking, until the program is asked */
	struct list lingering; /* exits.lingering, while is_over */
	bool is_told;
	struct list shares;
	struct crew_job *sampling;
	uint64_t table_bytes, table_ns; /* sampled; table_ns 0: not yet */
};

/* A ring in the loop; outlives its source by one turn. */
struct ring {
	struct exits *exits; /* NULL: closing */
	struct exits_bpf_source *source;
	uv_poll_t poll;
};

struct exits {
	uv_loop_t *loop;
	struct crew *crew;
	struct owners *owners;
	struct list buckets[HASH]; /* by pid */
	enum config_teardown mode;
	bool has_mode;
	enum exits_source source;
	char gap[224];
	bool was_full_said;
	struct ring *ring; /* NULL: no program */
	struct exits_perf_source *perf;
	struct crew_job *loading;
	uv_timer_t ask;
	struct list asking;    /* whose pidfd said so just now, and the program is still to be asked */
	unsigned open, idle;   /* handles not yet closed; watches of nobody now, kept for their next lease */
	struct list lingering; /* oldest first */
	unsigned lingering_count;
	bool is_closing;
	void (*closed)(void *user);
	void *user;
};

static void sample(struct exits_watch *watch);

const char *exits_get_source_name(enum exits_source source)
{
	switch (source) {
	case EXITS_NOTHING:
		return "none";
	case EXITS_BPF:
		return "bpf";
	case EXITS_PERF:
		return "perf";
	case EXITS_PIDFD:
		return "pidfd";
	}
	return "?";
}

void exits_set_code(struct exits_seen *seen, int code)
{
	int signal_number = code & 0x7f; /* 0x80: it dumped core */
	seen->how = signal_number ? EXITS_KILL : EXITS_EXIT;
	seen->code = signal_number ? signal_number : code >> 8 & 0xff;
}

enum exits_source exits_get_source(const struct exits *exits)
{
	return exits->source;
}

const char *exits_get_gap(const struct exits *exits)
{
	return exits->gap;
}

/* ---- the end of a watch ---- */

static void note_handle_closed(struct exits *exits)
{
	exits->open--;
	if (exits->is_closing && exits->open == 0)
		exits->closed(exits->user);
}

static void close_watch(struct exits_watch *watch)
{
	list_remove(&watch->link);
	list_remove(&watch->asking);
	list_remove(&watch->lingering);
	watch->exits->lingering_count -= watch->is_over;
	if (watch->sampling)
		watch->sampling->user = NULL;
	watch->sampling = NULL;
	if (watch->is_seen && watch->exits->ring)
		exits_bpf_forget(watch->exits->ring->source, watch->pid, watch->pid_start);
	owner_leave(&watch->owner);
	free(watch);
}

/* ---- the end of a process ---- */

static void init_seen(const struct exits_watch *watch, struct exits_seen *seen)
{
	*seen = (struct exits_seen){
		.pid = watch->pid,
		.pid_start = watch->pid_start,
		.source = EXITS_PIDFD,
		.code = -1,
		.begun_ns = EXITS_NONE,
		.gone_ns = EXITS_NONE,
		.table_bytes = EXITS_NONE,
		.table_age_ns = EXITS_NONE,
		.steal_ns = EXITS_NONE,
	};
	for (size_t i = 0; i < EXITS_FLUSHES; i++)
		seen->flushes[i] = EXITS_NONE;
}

/* What was seen while it lived and how it ended, where the source does not know better. */
static void complete_seen(const struct exits_watch *watch, struct exits_seen *seen)
{
	uint64_t end_ns = seen->begun_ns == EXITS_NONE ? seen->gone_ns : seen->begun_ns;
	if (seen->how == EXITS_UNKNOWN)
		exits_pidfd_look(watch->pid, watch->pid_start, owner_get_pidfd(&watch->owner), seen);
	if (seen->table_bytes != EXITS_NONE || watch->table_ns == 0)
		return;
	seen->table_bytes = watch->table_bytes;
	seen->table_age_ns = end_ns > watch->table_ns ? end_ns - watch->table_ns : 0;
}

static void log_seen(const struct exits_seen *seen)
{
	static const char *const hows[] = {
		[EXITS_UNKNOWN] = "ended", [EXITS_EXIT] = "exited with", [EXITS_KILL] = "killed by"};
	char took[32] = "unknown";
	if (seen->begun_ns != EXITS_NONE)
		snprintf(took, sizeof took, "%" PRIu64 " ns", seen->gone_ns - seen->begun_ns);
	log_debug("exit: process %" PRId32 " %s %" PRId32 ", address space gone at %" PRIu64
		  " ns, took %s, by %s",
		seen->pid, hows[seen->how], seen->code, seen->gone_ns, took,
		exits_get_source_name(seen->source));
}

static void tell(struct exits_watch *watch, struct exits_seen *seen)
{
	complete_seen(watch, seen);
	log_seen(seen);
	list_remove(&watch->link);
	watch->is_told = true;
	if (list_is_empty(&watch->shares))
		watch->exits->idle--;
	while (!list_is_empty(&watch->shares)) {
		struct exits_share *share = CONTAINER_OF(watch->shares.next, struct exits_share, link);
		list_remove(&share->link);
		share->watch = NULL;
		share->seen(share, seen);
	}
	close_watch(watch);
}

static void tell_by_pidfd(struct exits_watch *watch, uint64_t now_ns)
{
	struct exits_seen seen;
	init_seen(watch, &seen);
	seen.gone_ns = now_ns;
	if (watch->exits->perf && exits_perf_find(watch->exits->perf, watch->pid, watch->since_ns,
					  &seen.begun_ns, &seen.gone_ns))
		seen.source = EXITS_PERF;
	tell(watch, &seen);
}

/* False: only its address space is still to go. */
static bool tell_by_program(struct exits_watch *watch, uint64_t now_ns)
{
	struct exits_seen seen;
	init_seen(watch, &seen);
	switch (exits_bpf_look(watch->exits->ring->source, watch->pid, watch->pid_start, &seen)) {
	case EXITS_LOOK_BEGUN:
		return false;
	case EXITS_LOOK_GONE:
		tell(watch, &seen);
		return true;
	case EXITS_LOOK_NOTHING: /* it was dying before it was watched */
		break;
	}
	tell_by_pidfd(watch, now_ns);
	return true;
}

/*
 * Whoever shares the address space keeps it for as long as it likes, also those of any number of processes,
 * and each costs a descriptor: of the oldest it is told what its pidfd told.
 */
static void linger(struct exits_watch *watch)
{
	struct exits *exits = watch->exits;
	watch->is_over = true;
	list_append(&exits->lingering, &watch->lingering);
	log_debug("exit: process %d is over, and another has its address space", (int)watch->pid);
	if (++exits->lingering_count <= EXITS_LINGERING_MAX)
		return;
	struct exits_watch *oldest = CONTAINER_OF(exits->lingering.next, struct exits_watch, lingering);
	if (!tell_by_program(oldest, oldest->over_ns))
		tell_by_pidfd(oldest, oldest->over_ns);
}

static void ask(struct exits_watch *watch)
{
	list_remove(&watch->asking);
	if (!tell_by_program(watch, watch->over_ns))
		linger(watch);
}

static void on_ask(uv_timer_t *timer)
{
	struct exits *exits = timer->data;
	while (!list_is_empty(&exits->asking))
		ask(CONTAINER_OF(exits->asking.next, struct exits_watch, asking));
}

static void on_over(struct owner_share *share)
{
	struct exits_watch *watch = CONTAINER_OF(share, struct exits_watch, owner);
	uint64_t now_ns = clock_get_ns(CLOCK_MONOTONIC);
	if (!watch->is_seen || !watch->exits->ring) {
		tell_by_pidfd(watch, now_ns);
		return;
	}
	watch->over_ns = now_ns;
	list_append(&watch->exits->asking, &watch->asking);
	if (!uv_is_active((uv_handle_t *)&watch->exits->ask))
		uv_timer_start(&watch->exits->ask, on_ask, ASK_MS, 0);
}

/* ---- watches ---- */

static struct list *find_bucket(struct exits *exits, pid_t pid)
{
	return &exits->buckets[(unsigned)pid % HASH];
}

static struct exits_watch *find_watch(struct exits *exits, pid_t pid, uint64_t pid_start)
{
	LIST_FOR_EACH (pos, find_bucket(exits, pid)) {
		struct exits_watch *watch = CONTAINER_OF(pos, struct exits_watch, link);
		if (watch->pid == pid && watch->pid_start == pid_start && pid_start > 0)
			return watch;
	}
	return NULL;
}

/* Has the program look at it, or else whatever can be seen beforehand is. */
static void begin_watch(struct exits_watch *watch)
{
	struct exits *exits = watch->exits;
	int r = exits->ring && watch->pid_start > 0
			? exits_bpf_watch(exits->ring->source, watch->pid, watch->pid_start)
			: -ENOENT;
	watch->is_seen = r == 0;
	if (exits->ring && r < 0 && r != -ENOENT && !exits->was_full_said) {
		exits->was_full_said = true;
		log_warning("the end of process %d will be seen by pidfd only: %s", (int)watch->pid,
			r == -E2BIG ? "too many are watched" : strerror(-r));
	}
	if (!watch->is_seen)
		sample(watch);
}

static int make_watch(
	struct exits *exits, pid_t pid, uint64_t pid_start, int pidfd, struct exits_watch **ret_watch)
{
	struct exits_watch *watch = calloc(1, sizeof *watch);
	if (!watch)
		return -ENOMEM;
	list_init(&watch->link);
	list_init(&watch->shares);
	list_init(&watch->asking);
	list_init(&watch->lingering);
	watch->exits = exits;
	watch->pid = pid;
	watch->pid_start = pid_start;
	watch->since_ns = clock_get_ns(CLOCK_MONOTONIC);
	watch->owner.gone = on_over;
	int r = owner_join(exits->owners, pid, pid_start, pidfd, &watch->owner);
	if (r < 0) {
		free(watch);
		return r;
	}
	exits->idle++; /* until its first share */
	/* Of one that is over already the time may be another's. */
	if (owner_is_known(&watch->owner)) {
		list_append(find_bucket(exits, pid), &watch->link);
		begin_watch(watch);
	}
	*ret_watch = watch;
	return 0;
}

int exits_join(struct exits *exits, pid_t pid, uint64_t pid_start, int pidfd, struct exits_share *share)
{
	if (exits->source == EXITS_NOTHING)
		return 0;
	struct exits_watch *watch = find_watch(exits, pid, pid_start);
	int r = watch ? 0 : make_watch(exits, pid, pid_start, pidfd, &watch);
	if (r < 0)
		return r;
	exits->idle -= list_is_empty(&watch->shares);
	list_append(&watch->shares, &share->link);
	share->watch = watch;
	return 0;
}

void exits_leave(struct exits_share *share)
{
	struct exits_watch *watch = steal_pointer(&share->watch);
	if (!watch)
		return;
	struct exits *exits = watch->exits;
	list_remove(&share->link);
	if (!list_is_empty(&watch->shares) || watch->is_told)
		return;
	if (list_is_empty(&watch->link) || watch->is_over || exits->is_closing || exits->idle >= IDLE_MAX)
		close_watch(watch);
	else
		exits->idle++;
}

void exits_hurry(struct exits_share *share)
{
	if (share->watch && !list_is_empty(&share->watch->asking))
		ask(share->watch);
}

bool exits_is_ending(const struct exits_share *share)
{
	return share->watch && (share->watch->is_over || !owner_lives(&share->watch->owner));
}

/* ---- page tables, for those whom no program sees ---- */

static void on_sampled(struct crew_job *job, const struct worker_done *done, void *user)
{
	struct exits_watch *watch = job->user;
	if (!watch)
		return;
	watch->sampling = NULL;
	if (done->error < 0)
		return; /* it is over, or the helper was held up: what is known stays */
	watch->table_bytes = done->bytes;
	watch->table_ns = clock_get_ns(CLOCK_MONOTONIC);
}

static void sample(struct exits_watch *watch)
{
	struct exits *exits = watch->exits;
	bool is_wanted = exits->has_mode && exits->source != EXITS_NOTHING && !exits->loading;
	if (!is_wanted || watch->sampling || watch->is_over || exits->is_closing || watch->pid_start == 0)
		return;
	struct crew_job *job = crew_new_job(WORKER_HELPER, WORKER_TABLES);
	if (!job)
		return;
	job->wire.pid = watch->pid;
	job->wire.pid_start = watch->pid_start;
	job->deadline_ms = JOB_DEADLINE_MS;
	job->done = on_sampled;
	job->user = watch;
	watch->sampling = job;
	crew_submit(exits->crew, job);
}

void exits_sample(struct exits_share *share)
{
	if (share->watch && !share->watch->is_seen)
		sample(share->watch);
}

/* ---- sources ---- */

static void for_each_watch(struct exits *exits, void (*act)(struct exits_watch *watch))
{
	for (size_t i = 0; i < HASH; i++) {
		LIST_FOR_EACH_SAFE (pos, &exits->buckets[i])
			act(CONTAINER_OF(pos, struct exits_watch, link));
	}
}

/* Its program is gone. */
static void lose_sight(struct exits_watch *watch)
{
	watch->is_seen = false;
	if (watch->is_over || !list_is_empty(&watch->asking))
		tell_by_pidfd(watch, watch->over_ns);
}

static void on_ring_closed(uv_handle_t *handle)
{
	struct ring *ring = handle->data;
	struct exits *exits = ring->exits;
	exits_bpf_free(ring->source);
	free(ring);
	note_handle_closed(exits);
}

static void close_sources(struct exits *exits)
{
	struct ring *ring = steal_pointer(&exits->ring);
	if (exits->loading)
		exits->loading->user = NULL;
	exits->loading = NULL;
	exits_perf_free(steal_pointer(&exits->perf));
	if (!ring)
		return;
	uv_close((uv_handle_t *)&ring->poll, on_ring_closed);
	for_each_watch(exits, lose_sight);
}

static void on_ended(pid_t pid, uint64_t pid_start, void *user)
{
	struct exits *exits = user;
	struct exits_watch *watch = find_watch(exits, pid, pid_start);
	if (watch && watch->is_seen)
		tell_by_program(watch, clock_get_ns(CLOCK_MONOTONIC));
}

static void on_ring(uv_poll_t *poll, int status, int events)
{
	struct ring *ring = poll->data;
	exits_bpf_drain(ring->source);
}

static int open_program(struct exits *exits, struct crew_job *job, uint32_t sees)
{
	struct ring *ring = calloc(1, sizeof *ring);
	if (!ring)
		return -ENOMEM;
	int r = exits_bpf_open_take(job->sent, sees, on_ended, exits, &ring->source);
	if (r == 0)
		r = uv_poll_init(exits->loop, &ring->poll, exits_bpf_get_fd(ring->source));
	if (r < 0) {
		exits_bpf_free(ring->source);
		free(ring);
		return r;
	}
	ring->exits = exits;
	ring->poll.data = ring;
	exits->open++;
	uv_poll_start(&ring->poll, UV_READABLE, on_ring);
	exits->ring = ring;
	return 0;
}

/* What is in force from now on, said once. */
static void settle(struct exits *exits, enum exits_source source, const char *gap, bool is_wanted)
{
	exits->source = source;
	exits->was_full_said = false;
	snprintf(exits->gap, sizeof exits->gap, "%s", gap);
	if (is_wanted)
		log_info("ends of processes are seen by %s%s%s", exits_get_source_name(source),
			*gap ? "; unknown: " : "", gap);
	else
		log_warning("ends of processes are seen by %s only; unknown: %s",
			exits_get_source_name(source), gap);
	for_each_watch(exits, begin_watch);
}

static void settle_on_pidfd(struct exits *exits, const char *why)
{
	char gap[sizeof exits->gap];
	snprintf(gap, sizeof gap, "when an end began, TLB flushes, steal time%s%s%s", *why ? " (" : "", why,
		*why ? ")" : "");
	settle(exits, EXITS_PIDFD, gap, exits->mode == CONFIG_TEARDOWN_PIDFD);
}

static void settle_on_perf(struct exits *exits, const char *why)
{
	char gap[sizeof exits->gap];
	const char *perf_why = "";
	if (exits_perf_open("", &exits->perf, &perf_why) < 0) {
		char both[160];
		snprintf(both, sizeof both, "%s%s%s", why, *why ? "; " : "", perf_why);
		settle_on_pidfd(exits, both);
		return;
	}
	snprintf(gap, sizeof gap, "%sTLB flushes, steal time%s%s%s",
		exits_perf_sees_begin(exits->perf) ? "" : "when an end began, ", *why ? " (" : "", why,
		*why ? ")" : "");
	settle(exits, EXITS_PERF, gap, exits->mode == CONFIG_TEARDOWN_PERF);
}

static void settle_on_program(struct exits *exits, uint32_t sees)
{
	static const struct {
		uint32_t bit;
		const char *text;
	} parts[] = {
		{TRACER_SEES_BEGIN, "when a single thread that exits by itself began to"},
		{TRACER_SEES_FLUSHES, "TLB flushes"},
		{TRACER_SEES_STEAL, "steal time"},
	};
	char gap[sizeof exits->gap] = "";
	for (size_t i = 0; i < ARRAY_SIZE(parts); i++) {
		size_t used = strlen(gap);
		if (!(sees & parts[i].bit))
			snprintf(gap + used, sizeof gap - used, "%s%s", used ? ", " : "", parts[i].text);
	}
	settle(exits, EXITS_BPF, gap, true);
}

static void on_loaded(struct crew_job *job, const struct worker_done *done, void *user)
{
	struct exits *exits = job->user;
	if (!exits) /* another source was wanted meanwhile: what came along is closed with the job */
		return;
	exits->loading = NULL;
	if (exits->is_closing || done->error == -ECANCELED)
		return;
	int r = done->error < 0 ? done->error : open_program(exits, job, done->sees);
	if (r == 0) {
		settle_on_program(exits, done->sees);
		return;
	}
	const char *why = done->error < 0 && done->why[0] ? done->why : strerror(-r);
	if (exits->mode == CONFIG_TEARDOWN_AUTO)
		settle_on_perf(exits, why);
	else
		settle_on_pidfd(exits, why);
}

static void load_program(struct exits *exits)
{
	struct crew_job *job = crew_new_job(WORKER_HELPER, WORKER_TRACE);
	if (!job) {
		settle_on_pidfd(exits, strerror(ENOMEM));
		return;
	}
	/* Until then, and not worth a line. */
	exits->source = EXITS_PIDFD;
	snprintf(exits->gap, sizeof exits->gap, "the program is being loaded");
	job->deadline_ms = LOAD_DEADLINE_MS;
	job->done = on_loaded;
	job->user = exits;
	exits->loading = job;
	crew_submit(exits->crew, job);
}

void exits_set_mode(struct exits *exits, enum config_teardown mode)
{
	if (exits->is_closing || (exits->has_mode && mode == exits->mode))
		return;
	exits->mode = mode;
	exits->has_mode = true;
	close_sources(exits);
	switch (mode) {
	case CONFIG_TEARDOWN_AUTO:
	case CONFIG_TEARDOWN_BPF:
		load_program(exits);
		break;
	case CONFIG_TEARDOWN_PERF:
		settle_on_perf(exits, "");
		break;
	case CONFIG_TEARDOWN_PIDFD:
		settle_on_pidfd(exits, "");
		break;
	case CONFIG_TEARDOWN_OFF:
		exits->source = EXITS_NOTHING;
		snprintf(exits->gap, sizeof exits->gap, "everything (teardown = off)");
		break;
	}
}

/* ---- all of it ---- */

static void on_ask_closed(uv_handle_t *handle)
{
	note_handle_closed(handle->data);
}

int exits_init(uv_loop_t *loop, struct crew *crew, struct owners *owners, struct exits **ret_exits)
{
	struct exits *exits = calloc(1, sizeof *exits);
	if (!exits)
		return -ENOMEM;
	exits->loop = loop;
	exits->crew = crew;
	exits->owners = owners;
	/* Leases of an earlier hpzd are watched before there is a source. */
	exits->source = EXITS_PIDFD;
	list_init(&exits->asking);
	list_init(&exits->lingering);
	uv_timer_init(loop, &exits->ask);
	exits->ask.data = exits;
	exits->open++;
	for (size_t i = 0; i < HASH; i++)
		list_init(&exits->buckets[i]);
	*ret_exits = exits;
	return 0;
}

void exits_close(struct exits *exits, void (*closed)(void *user), void *user)
{
	exits->is_closing = true;
	exits->closed = closed;
	exits->user = user;
	uv_close((uv_handle_t *)&exits->ask, on_ask_closed);
	close_sources(exits);
	for_each_watch(exits, close_watch);
}

void exits_free(struct exits *exits)
{
	free(exits);
}
