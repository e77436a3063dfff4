/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* handoff_exits.c - whose ends belong to which lease: see handoff_exits.h. */
#include <inttypes.h>

#include "handoff.h"
#include "handoff_exits.h"
#include "log.h"

#define HASH            1024 /* ids are consecutive */
#define SEARCH_DELAY_MS 50   /* whoever opens one often opens others next */
#define SEARCH_TRIES    8    /* opened again and again by somebody who is gone before we look */
#define JOB_DEADLINE_MS 5000
#define HOLDERS_MAX     32 /* of those found: each costs two descriptors, and anybody may start thousands */

/* A lease with holders, or on its way to some. */
struct entry {
	struct list link;   /* handoff_exits.buckets */
	struct list queued; /* handoff_exits.queue */
	uint64_t lease;
	bool is_over; /* the lease is forgotten: goes with the last holder */
	unsigned tries;
	struct list holders;
};

struct holder {
	struct list link; /* entry.holders */
	struct exits_share share;
	struct handoff_exits *exits;
	struct entry *entry;
	pid_t pid;
	uint64_t pid_start;
	bool is_owner;
};

struct handoff_exits {
	struct exits *exits;
	struct crew *crew;
	const struct lease_table *leases;
	handoff_exits_cb seen;
	void *user;
	struct list buckets[HASH];
	struct list queue; /* leases whose openers are to be found */
	uv_timer_t timer;
	struct crew_job *search;
	uint64_t searched[WORKER_FILES]; /* whose files are searched for */
	bool is_started, is_closing, is_timer_closed, are_exits_closed;
	void (*closed)(void *user);
	void *closed_user;
};

static void on_timer(uv_timer_t *timer);

/* ---- entries ---- */

static struct entry *find_entry(struct handoff_exits *exits, uint64_t lease)
{
	LIST_FOR_EACH (pos, &exits->buckets[lease % HASH]) {
		struct entry *entry = CONTAINER_OF(pos, struct entry, link);
		if (entry->lease == lease)
			return entry;
	}
	return NULL;
}

/* NULL: no memory, and nothing is measured of it. */
static struct entry *make_entry(struct handoff_exits *exits, uint64_t lease)
{
	struct entry *entry = find_entry(exits, lease);
	if (entry)
		return entry;
	entry = calloc(1, sizeof *entry);
	if (!entry)
		return NULL;
	entry->lease = lease;
	list_init(&entry->queued);
	list_init(&entry->holders);
	list_append(&exits->buckets[lease % HASH], &entry->link);
	return entry;
}

static void free_entry(struct entry *entry)
{
	list_remove(&entry->link);
	list_remove(&entry->queued);
	free(entry);
}

/* ---- holders ---- */

static void free_holder(struct holder *holder)
{
	exits_leave(&holder->share);
	list_remove(&holder->link);
	free(holder);
}

static void on_seen(struct exits_share *share, const struct exits_seen *seen)
{
	struct holder *holder = CONTAINER_OF(share, struct holder, share);
	struct handoff_exits *exits = holder->exits;
	struct entry *entry = holder->entry;
	uint64_t lease = entry->lease;
	free_holder(holder);
	if (entry->is_over && list_is_empty(&entry->holders))
		free_entry(entry);
	exits->seen(lease, lease_find(exits->leases, lease), seen, exits->user);
}

static bool may_add(const struct entry *entry, pid_t pid, uint64_t pid_start)
{
	unsigned count = 0;
	LIST_FOR_EACH (pos, &entry->holders) {
		const struct holder *holder = CONTAINER_OF(pos, struct holder, link);
		if (holder->pid == pid && holder->pid_start == pid_start)
			return false;
		count++;
	}
	return count < HOLDERS_MAX;
}

static void add_holder(struct handoff_exits *exits, struct entry *entry, pid_t pid, uint64_t pid_start,
	int pidfd, bool is_owner)
{
	struct holder *holder = calloc(1, sizeof *holder);
	if (!holder)
		return;
	*holder = (struct holder){.exits = exits, .entry = entry, .pid = pid, .pid_start = pid_start};
	holder->is_owner = is_owner;
	holder->share.seen = on_seen;
	list_init(&holder->share.link);
	list_append(&entry->holders, &holder->link);
	int r = exits_join(exits->exits, pid, pid_start, pidfd, &holder->share);
	if (r < 0)
		log_debug("lease %" PRIu64 ": the end of process %d is not measured: %s", entry->lease,
			(int)pid, strerror(-r));
	if (!holder->share.watch)
		free_holder(holder);
}

void handoff_exits_set_owner(struct handoff_exits *exits, const struct lease *lease, int pidfd)
{
	struct entry *entry = find_entry(exits, lease->id);
	if (entry) {
		LIST_FOR_EACH_SAFE (pos, &entry->holders) {
			struct holder *holder = CONTAINER_OF(pos, struct holder, link);
			/* One that is over had the lease to its end. */
			if (holder->is_owner && !exits_is_ending(&holder->share))
				free_holder(holder);
		}
	}
	if (pidfd < 0 || exits_get_source(exits->exits) == EXITS_NOTHING)
		return;
	entry = make_entry(exits, lease->id);
	if (entry)
		add_holder(exits, entry, lease->pid, lease->pid_start, pidfd, true);
}

void handoff_exits_sample(struct handoff_exits *exits, const struct lease *lease)
{
	struct entry *entry = find_entry(exits, lease->id);
	if (!entry)
		return;
	LIST_FOR_EACH (pos, &entry->holders)
		exits_sample(&CONTAINER_OF(pos, struct holder, link)->share);
}

void handoff_exits_hurry(struct handoff_exits *exits, const struct lease *lease)
{
	struct entry *entry = find_entry(exits, lease->id);
	size_t count = 0;
	if (!entry)
		return;
	LIST_FOR_EACH (pos, &entry->holders)
		count++;
	/* Who is told leaves the list, others with it perhaps: each has its turn at its head. */
	for (; count > 0 && !list_is_empty(&entry->holders); count--) {
		struct holder *holder = CONTAINER_OF(entry->holders.next, struct holder, link);
		list_remove(&holder->link);
		list_append(&entry->holders, &holder->link);
		exits_hurry(&holder->share);
	}
}

void handoff_exits_leave(struct handoff_exits *exits, const struct lease *lease)
{
	struct entry *entry = find_entry(exits, lease->id);
	if (!entry)
		return;
	LIST_FOR_EACH_SAFE (pos, &entry->holders) {
		struct holder *holder = CONTAINER_OF(pos, struct holder, link);
		if (!exits_is_ending(&holder->share))
			free_holder(holder);
	}
	entry->is_over = true;
	list_remove(&entry->queued);
	if (list_is_empty(&entry->holders))
		free_entry(entry);
}

/* ---- who has a path lease open ---- */

static void search_later(struct handoff_exits *exits)
{
	if (exits->is_started && !exits->is_closing && !exits->search && !list_is_empty(&exits->queue) &&
		!uv_is_active((uv_handle_t *)&exits->timer))
		uv_timer_start(&exits->timer, on_timer, SEARCH_DELAY_MS, 0);
}

void handoff_exits_search(struct handoff_exits *exits, const struct lease *lease)
{
	if (exits->is_closing || exits_get_source(exits->exits) == EXITS_NOTHING)
		return;
	struct entry *entry = make_entry(exits, lease->id);
	if (!entry || !list_is_empty(&entry->queued) || !list_is_empty(&entry->holders) ||
		entry->tries >= SEARCH_TRIES)
		return;
	list_append(&exits->queue, &entry->queued);
	search_later(exits);
}

static void on_openers(struct crew_job *job, const struct worker_done *done, void *user)
{
	struct handoff_exits *exits = user;
	for (uint32_t i = 0; !exits->is_closing && i < done->holder_count; i++) {
		const struct worker_holder *found = &done->holders[i];
		struct entry *entry = find_entry(exits, exits->searched[found->file]);
		if (!entry || entry->is_over || !may_add(entry, found->pid, found->pid_start))
			continue;
		_cleanup_fd_ int pidfd = handoff_open_process(found->pid, found->pid_start);
		if (pidfd < 0)
			continue;
		log_debug("lease %" PRIu64 ": process %" PRId32 " (%s) has it open", entry->lease, found->pid,
			found->comm);
		add_holder(exits, entry, found->pid, found->pid_start, pidfd, false);
	}
}

static void on_searched(struct crew_job *job, const struct worker_done *done, void *user)
{
	struct handoff_exits *exits = user;
	exits->search = NULL;
	if (done->error == 0)
		on_openers(job, done, user);
	search_later(exits);
}

/* Where the first file of a lease is; false: it has none any more. */
static bool find_file(const struct lease *lease, uint64_t *ret_dev, uint64_t *ret_ino)
{
	for (size_t i = 0; i < lease->segment_count; i++) {
		const struct pool_segment *segment = lease->segments[i];
		char name[SEGMENT_NAME_MAX];
		struct segment_stat st;
		if (!segment)
			continue;
		pool_get_segment_name(segment, name);
		if (segment_stat_at(segment->pool->store, &segment->pool->dirs, SEGMENT_LEASED, name, &st) <
			0)
			continue;
		*ret_dev = st.dev;
		*ret_ino = st.ino;
		return true;
	}
	return false;
}

/* As many as one look at all processes can find: those of one mount. */
static void add_files(struct handoff_exits *exits, struct crew_job *job)
{
	LIST_FOR_EACH_SAFE (pos, &exits->queue) {
		struct entry *entry = CONTAINER_OF(pos, struct entry, queued);
		const struct lease *lease = lease_find(exits->leases, entry->lease);
		uint64_t dev = 0, ino = 0;
		bool has_file = lease && find_file(lease, &dev, &ino);
		if (has_file && job->wire.file_count > 0 && dev != job->wire.dev)
			continue;
		list_remove(&entry->queued);
		entry->tries++;
		if (!has_file)
			continue;
		job->wire.dev = dev;
		exits->searched[job->wire.file_count] = entry->lease;
		job->wire.files[job->wire.file_count++] = ino;
		if (job->wire.file_count == WORKER_FILES)
			break;
	}
}

static void on_timer(uv_timer_t *timer)
{
	struct handoff_exits *exits = timer->data;
	struct crew_job *job = crew_new_job(WORKER_HELPER, WORKER_OPENERS);
	if (!job)
		return; /* the next one that is opened tries again */
	add_files(exits, job);
	if (job->wire.file_count == 0) {
		crew_free_job(job);
		return;
	}
	job->deadline_ms = JOB_DEADLINE_MS;
	job->partial = on_openers;
	job->done = on_searched;
	job->user = exits;
	exits->search = job;
	crew_submit(exits->crew, job);
}

/* ---- all of it ---- */

int handoff_exits_init(uv_loop_t *loop, struct crew *crew, struct owners *owners,
	const struct lease_table *leases, handoff_exits_cb seen, void *user, struct handoff_exits **ret_exits)
{
	struct handoff_exits *exits = calloc(1, sizeof *exits);
	if (!exits)
		return -ENOMEM;
	int r = exits_init(loop, crew, owners, &exits->exits);
	if (r < 0) {
		free(exits);
		return r;
	}
	exits->crew = crew;
	exits->leases = leases;
	exits->seen = seen;
	exits->user = user;
	list_init(&exits->queue);
	for (size_t i = 0; i < HASH; i++)
		list_init(&exits->buckets[i]);
	uv_timer_init(loop, &exits->timer);
	exits->timer.data = exits;
	*ret_exits = exits;
	return 0;
}

void handoff_exits_set_mode(struct handoff_exits *exits, enum config_teardown mode)
{
	exits_set_mode(exits->exits, mode);
	exits->is_started = true;
	search_later(exits);
}

const struct exits *handoff_exits_get(const struct handoff_exits *exits)
{
	return exits->exits;
}

static void call_if_closed(struct handoff_exits *exits)
{
	if (exits->is_timer_closed && exits->are_exits_closed)
		exits->closed(exits->closed_user);
}

static void on_timer_closed(uv_handle_t *handle)
{
	struct handoff_exits *exits = handle->data;
	exits->is_timer_closed = true;
	call_if_closed(exits);
}

static void on_exits_closed(void *user)
{
	struct handoff_exits *exits = user;
	exits->are_exits_closed = true;
	call_if_closed(exits);
}

static void free_entries(struct handoff_exits *exits)
{
	for (size_t i = 0; i < HASH; i++) {
		LIST_FOR_EACH_SAFE (pos, &exits->buckets[i]) {
			struct entry *entry = CONTAINER_OF(pos, struct entry, link);
			LIST_FOR_EACH_SAFE (at, &entry->holders)
				free_holder(CONTAINER_OF(at, struct holder, link));
			free_entry(entry);
		}
	}
}

void handoff_exits_close(struct handoff_exits *exits, void (*closed)(void *user), void *user)
{
	exits->is_closing = true;
	exits->closed = closed;
	exits->closed_user = user;
	free_entries(exits);
	uv_close((uv_handle_t *)&exits->timer, on_timer_closed);
	exits_close(exits->exits, on_exits_closed, exits);
}

void handoff_exits_free(struct handoff_exits *exits)
{
	if (!exits)
		return;
	exits_free(exits->exits);
	free(exits);
}
