/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* orphan.c - files of ours that are gone while somebody still holds their pages. */
#include <fcntl.h>
#include <inttypes.h>

#include "log.h"
#include "orphan.h"
#include "size.h"

#define LADDER_START    6 /* policy_get_retry_ms() from one second on */
#define JOB_DEADLINE_MS 5000
#define ALARM_NS        (60 * NS_PER_S)

struct orphans {
	uv_loop_t *loop;
	struct crew *crew;
	struct prover *prover;
	void (*changed)(void *user);
	void *user;
	uv_timer_t timer;
	struct list list, announced;
	struct journal *journal; /* borrowed; NULL: not yet */
	bool is_closing;
};

static void set_timer(struct orphans *orphans);

static uint64_t now_ns(void)
{
	return clock_get_ns(CLOCK_MONOTONIC);
}

static void format_bytes(const struct orphan *orphan, char ret_text[SIZE_TEXT])
{
	size_format(orphan->pages * orphan->page_size, ret_text);
}

/* ---- the journal ---- */

static void write_orphan(struct journal *journal, const struct orphan *orphan, uint64_t pages)
{
	struct journal_orphan record = {
		.size = sizeof record,
		.node = orphan->node,
		.lease = orphan->lease,
		.segment = orphan->segment,
		.page_size = orphan->page_size,
		.pages = pages,
		.asked = orphan->asked,
		.granted_boot_ns = orphan->granted_boot_ns,
		.uid = orphan->uid,
	};
	memcpy(record.label, orphan->label, strnlen(orphan->label, sizeof record.label));
	memcpy(record.pool, orphan->pool, strnlen(orphan->pool, sizeof record.pool));
	int r = journal ? journal_append(journal, JOURNAL_ORPHAN, &record, sizeof record, NULL, 0) : 0;
	if (r < 0)
		log_error("journal: orphan of lease %" PRIu64 ": %s; a restart now would not know of it",
			orphan->lease, strerror(-r));
}

static void forget(struct orphan *orphan)
{
	list_remove(&orphan->link);
	if (orphan->job)
		orphan->job->user = NULL;
	close_fd(orphan->fd);
	free(orphan);
}

/* The kernel has its pages back, or nobody will ever know: also for the next hpzd. */
static void end(struct orphan *orphan)
{
	write_orphan(orphan->orphans->journal, orphan, 0);
	forget(orphan);
}

/* ---- looks ---- */

static void plan_look(struct orphan *orphan)
{
	orphan->due_ns = now_ns() + policy_get_retry_ms(LADDER_START + orphan->attempts) * NS_PER_MS;
	if (orphan->attempts < 16)
		orphan->attempts++;
	set_timer(orphan->orphans);
}

static void alarm_if_old(struct orphan *orphan)
{
	char size[SIZE_TEXT];
	if (orphan->was_alarmed || now_ns() - orphan->born_ns < ALARM_NS)
		return;
	orphan->was_alarmed = true;
	format_bytes(orphan, size);
	log_error("pool %s: %s of lease %" PRIu64 " (%s, uid %" PRIu32
		  ") are orphaned for more than a minute: %s keeps them from the kernel",
		orphan->pool, size, orphan->lease, orphan->label, orphan->uid,
		proof_get_reason_text(orphan->reason));
}

static void on_looked(struct crew_job *job, const struct worker_done *done, void *user)
{
	struct orphan *orphan = job->user;
	if (!orphan)
		return;
	struct orphans *orphans = orphan->orphans;
	orphan->job = NULL;
	if (orphans->is_closing)
		return;
	if (done->error < 0) {
		log_debug("orphan of lease %" PRIu64 ": %s", orphan->lease, strerror(-done->error));
		plan_look(orphan);
		return;
	}
	if (done->allocated == 0) {
		log_info("pool %s: %" PRIu64 " orphaned pages of lease %" PRIu64 " are back with the kernel",
			orphan->pool, orphan->pages, orphan->lease);
		end(orphan);
		orphans->changed(orphans->user);
		return;
	}
	if (done->proof.result == PROOF_CANNOT_TELL) {
		log_error("pool %s: %" PRIu64 " orphaned pages of lease %" PRIu64
			  " are not watched any more: nothing here can tell who holds them",
			orphan->pool, orphan->pages, orphan->lease);
		end(orphan);
		orphans->changed(orphans->user);
		return;
	}
	orphan->pages = done->allocated;
	orphan->reason = done->proof.reason;
	alarm_if_old(orphan);
	plan_look(orphan);
}

static void look(struct orphan *orphan)
{
	struct orphans *orphans = orphan->orphans;
	struct crew_job *job = crew_new_job(WORKER_HELPER, WORKER_ORPHAN);
	int copy = job ? fcntl(orphan->fd, F_DUPFD_CLOEXEC, 3) : -1;
	if (copy < 0) {
		crew_free_job(job);
		plan_look(orphan);
		return;
	}
	job->fds[WORKER_FD_SEGMENT] = copy;
	const struct proof_facts *facts =
		prover_find(orphans->prover, orphan->page_size, &job->fds[WORKER_FD_PROGRAM]);
	if (facts)
		job->wire.facts = *facts;
	job->wire.page_size = orphan->page_size;
	job->deadline_ms = JOB_DEADLINE_MS;
	job->done = on_looked;
	job->user = orphan;
	orphan->job = job;
	crew_submit(orphans->crew, job);
}

static void on_timer(uv_timer_t *timer)
{
	struct orphans *orphans = timer->data;
	uint64_t now = now_ns();
	LIST_FOR_EACH_SAFE (pos, &orphans->list) {
		if (ORPHAN_OF(pos)->fd >= 0 && !ORPHAN_OF(pos)->job && ORPHAN_OF(pos)->due_ns <= now)
			look(ORPHAN_OF(pos));
	}
	set_timer(orphans);
}

static void set_timer(struct orphans *orphans)
{
	uint64_t now = now_ns(), due = UINT64_MAX;
	if (orphans->is_closing)
		return;
	LIST_FOR_EACH (pos, &orphans->list) {
		if (ORPHAN_OF(pos)->fd >= 0 && !ORPHAN_OF(pos)->job)
			due = MIN(due, ORPHAN_OF(pos)->due_ns);
	}
	if (due == UINT64_MAX)
		uv_timer_stop(&orphans->timer);
	else
		uv_timer_start(&orphans->timer, on_timer, due > now ? (due - now) / NS_PER_MS + 1 : 0, 0);
}

/* ---- coming and going ---- */

static void insert(struct orphans *orphans, struct orphan *orphan)
{
	struct list *at = &orphans->list;
	while (at->prev != &orphans->list && ORPHAN_OF(at->prev)->lease > orphan->lease)
		at = at->prev;
	list_insert_before(at, &orphan->link);
}

static bool is_of(
	const struct orphan *orphan, uint64_t lease, uint64_t segment, uint64_t page_size, int32_t node)
{
	return orphan->lease == lease && orphan->segment == segment && orphan->page_size == page_size &&
	       orphan->node == node;
}

static struct orphan *find_in(
	const struct list *list, uint64_t lease, uint64_t segment, uint64_t page_size, int32_t node)
{
	for (struct list *pos = list->next; pos != list; pos = pos->next) {
		if (is_of(ORPHAN_OF(pos), lease, segment, page_size, node))
			return ORPHAN_OF(pos);
	}
	return NULL;
}

static struct orphan *find_announced(
	const struct orphans *orphans, const struct lease *lease, const struct pool_segment *segment)
{
	return find_in(&orphans->announced, lease->id, segment->id, segment->pool->config.page_size,
		segment->pool->config.node);
}

static struct orphan *new_orphan(struct orphans *orphans)
{
	struct orphan *orphan = calloc(1, sizeof *orphan);
	if (!orphan)
		return NULL;
	list_init(&orphan->link);
	orphan->orphans = orphans;
	orphan->fd = -1;
	orphan->born_ns = now_ns();
	for (size_t i = 0; i < ORPHAN_UNSEEN_LOOKS; i++)
		orphan->unseen[i] = UINT64_MAX;
	return orphan;
}

/* Found if it is announced, made if not; NULL: no memory. */
static struct orphan *make_announced(
	struct orphans *orphans, const struct lease *lease, const struct pool_segment *segment)
{
	struct orphan *orphan = find_announced(orphans, lease, segment);
	if (orphan)
		return orphan;
	orphan = new_orphan(orphans);
	if (!orphan)
		return NULL;
	snprintf(orphan->pool, sizeof orphan->pool, "%s", segment->pool->name);
	snprintf(orphan->label, sizeof orphan->label, "%s", lease->label);
	orphan->page_size = segment->pool->config.page_size;
	orphan->node = segment->pool->config.node;
	orphan->lease = lease->id;
	orphan->segment = segment->id;
	orphan->uid = lease->is_unknown ? UINT32_MAX : lease->file_uid;
	orphan->asked = lease->asked;
	orphan->granted_boot_ns = lease->granted_boot_ns;
	orphan->pages = segment->allocated;
	list_append(&orphans->announced, &orphan->link);
	return orphan;
}

void orphan_announce(struct orphans *orphans, const struct lease *lease, const struct pool_segment *segment)
{
	struct orphan *orphan = make_announced(orphans, lease, segment);
	if (orphan)
		write_orphan(orphans->journal, orphan, orphan->pages);
}

void orphan_cancel(struct orphans *orphans, const struct lease *lease, const struct pool_segment *segment)
{
	struct orphan *orphan = find_announced(orphans, lease, segment);
	if (orphan)
		end(orphan);
}

void orphan_add_take(struct orphans *orphans, const struct lease *lease, const struct pool_segment *segment,
	const struct worker_done *seen, int fd)
{
	char size[SIZE_TEXT];
	struct orphan *orphan = make_announced(orphans, lease, segment);
	if (!orphan) {
		log_error("lease %" PRIu64 ": %" PRIu64 " orphaned pages are not watched: no memory",
			lease->id, seen->allocated);
		close_fd(fd);
		return;
	}
	list_remove(&orphan->link);
	orphan->pages = seen->allocated;
	orphan->reason = seen->proof.reason;
	orphan->fd = fd;
	orphan->born_ns = now_ns();
	insert(orphans, orphan);
	write_orphan(orphans->journal, orphan, orphan->pages);
	format_bytes(orphan, size);
	log_warning("pool %s: %s of lease %" PRIu64 " (%s, uid %" PRIu32 ") are orphaned: held by %s",
		orphan->pool, size, orphan->lease, orphan->label, orphan->uid,
		proof_get_reason_text(orphan->reason));
	plan_look(orphan);
}

/* ---- after a restart ---- */

void orphan_read_record(struct orphans *orphans, enum journal_type type, const void *payload, size_t bytes)
{
	const struct journal_orphan *record = payload;
	if (type != JOURNAL_ORPHAN || bytes < sizeof *record)
		return;
	struct orphan *orphan =
		find_in(&orphans->list, record->lease, record->segment, record->page_size, record->node);
	if (record->pages == 0 || record->page_size == 0) {
		if (orphan)
			forget(orphan);
		return;
	}
	if (!orphan) {
		orphan = new_orphan(orphans);
		if (!orphan)
			return;
		orphan->lease = record->lease;
		orphan->is_recovered = true;
		insert(orphans, orphan);
	}
	snprintf(orphan->label, sizeof orphan->label, "%.*s", (int)sizeof record->label, record->label);
	snprintf(orphan->pool, sizeof orphan->pool, "%.*s", (int)sizeof orphan->pool - 1, record->pool);
	orphan->segment = record->segment;
	orphan->page_size = record->page_size;
	orphan->node = record->node;
	orphan->pages = record->pages;
	orphan->asked = record->asked;
	orphan->granted_boot_ns = record->granted_boot_ns;
	orphan->uid = record->uid;
}

static bool has_name(const struct orphan *orphan, const struct lease_table *leases)
{
	const struct lease *lease = lease_find(leases, orphan->lease);
	for (size_t i = 0; lease && i < lease->segment_count; i++) {
		const struct pool_segment *segment = lease->segments[i];
		if (segment && is_of(orphan, lease->id, segment->id, segment->pool->config.page_size,
				       segment->pool->config.node))
			return true;
	}
	return false;
}

void orphan_finish_adoption(
	struct orphans *orphans, const struct lease_table *leases, struct journal *journal)
{
	orphans->journal = journal;
	LIST_FOR_EACH_SAFE (pos, &orphans->list) {
		struct orphan *orphan = ORPHAN_OF(pos);
		char size[SIZE_TEXT];
		if (has_name(orphan, leases)) {
			end(orphan);
			continue;
		}
		format_bytes(orphan, size);
		log_warning(
			"pool %s: %s of lease %" PRIu64 " (%s, uid %" PRIu32
			") were orphaned before this start: they count until the kernel's count says that "
			"they are back",
			orphan->pool, size, orphan->lease, orphan->label, orphan->uid);
	}
}

void orphan_write_all(const struct orphans *orphans, struct journal *journal)
{
	const struct list *lists[] = {&orphans->list, &orphans->announced};
	for (size_t i = 0; i < ARRAY_SIZE(lists); i++) {
		for (const struct list *pos = lists[i]->next; pos != lists[i]; pos = pos->next) {
			const struct orphan *orphan = CONTAINER_OF(pos, const struct orphan, link);
			write_orphan(journal, orphan, orphan->pages);
		}
	}
}

uint64_t orphan_get_journal_bytes(const struct orphans *orphans)
{
	uint64_t count = 0;
	LIST_FOR_EACH (pos, &orphans->list)
		count++;
	return count * sizeof(struct journal_orphan);
}

static bool is_recovered(const struct orphan *orphan, const struct pool *pool)
{
	return orphan->is_recovered && orphan->page_size == pool->config.page_size &&
	       orphan->node == pool->config.node;
}

bool orphan_has_recovered(const struct orphans *orphans, const struct pool *pool)
{
	LIST_FOR_EACH (pos, &orphans->list) {
		if (is_recovered(ORPHAN_OF(pos), pool))
			return true;
	}
	return false;
}

/* The most that can still be orphaned; UINT64_MAX: not known yet. */
static uint64_t get_limit(const struct orphan *orphan)
{
	uint64_t limit = 0;
	for (size_t i = 0; i < ORPHAN_UNSEEN_LOOKS; i++)
		limit = MAX(limit, orphan->unseen[i]);
	return orphan->is_recovered ? limit : UINT64_MAX;
}

static void note_unseen(struct orphan *orphan, uint64_t unseen)
{
	memmove(&orphan->unseen[1], &orphan->unseen[0], sizeof orphan->unseen - sizeof orphan->unseen[0]);
	orphan->unseen[0] = unseen;
	orphan->due_ns = now_ns() + policy_get_retry_ms(LADDER_START + orphan->attempts) * NS_PER_MS;
	if (orphan->attempts < 16)
		orphan->attempts++;
	uint64_t limit = get_limit(orphan);
	if (limit == 0) {
		log_info("pool %s: orphaned pages of lease %" PRIu64
			 " are back with the kernel, as far as its count tells",
			orphan->pool, orphan->lease);
		end(orphan);
	} else if (limit < orphan->pages) {
		orphan->pages = limit;
		write_orphan(orphan->orphans->journal, orphan, limit);
	}
}

/* What is in our books, but may be the kernel's by now: rather less of ours, and more unseen. */
static uint64_t count_ours(const struct orphans *orphans, const struct pool *pool, uint64_t ours)
{
	LIST_FOR_EACH (pos, &orphans->announced) {
		const struct orphan *orphan = ORPHAN_OF(pos);
		if (orphan->page_size == pool->config.page_size && orphan->node == pool->config.node)
			ours -= MIN(ours, orphan->pages);
	}
	return ours;
}

uint64_t orphan_reconcile(
	struct orphans *orphans, const struct pool *pool, uint64_t ours, const struct host_counters *kernel)
{
	uint64_t now = now_ns(), due = UINT64_MAX, in_use = kernel->nr - MIN(kernel->nr, kernel->free);
	ours = count_ours(orphans, pool, ours);
	LIST_FOR_EACH_SAFE (pos, &orphans->list) {
		if (is_recovered(ORPHAN_OF(pos), pool) && ORPHAN_OF(pos)->due_ns <= now)
			note_unseen(ORPHAN_OF(pos), in_use - MIN(in_use, ours));
	}
	LIST_FOR_EACH (pos, &orphans->list) {
		if (is_recovered(ORPHAN_OF(pos), pool))
			due = MIN(due, ORPHAN_OF(pos)->due_ns);
	}
	return due == UINT64_MAX ? due : (due - MIN(due, now)) / NS_PER_MS + 1;
}

const char *orphan_get_reason_text(const struct orphan *orphan)
{
	return orphan->is_recovered ? "not known any more: hpzd was restarted"
				    : proof_get_reason_text(orphan->reason);
}

int orphan_init(uv_loop_t *loop, struct crew *crew, struct prover *prover, void (*changed)(void *user),
	void *user, struct orphans **ret_orphans)
{
	struct orphans *orphans = calloc(1, sizeof *orphans);
	if (!orphans)
		return -ENOMEM;
	orphans->loop = loop;
	orphans->crew = crew;
	orphans->prover = prover;
	orphans->changed = changed;
	orphans->user = user;
	list_init(&orphans->list);
	list_init(&orphans->announced);
	uv_timer_init(loop, &orphans->timer);
	orphans->timer.data = orphans;
	*ret_orphans = orphans;
	return 0;
}

void orphan_close(struct orphans *orphans)
{
	orphans->is_closing = true;
	uv_close((uv_handle_t *)&orphans->timer, NULL);
	LIST_FOR_EACH (pos, &orphans->list)
		log_warning("pool %s: %" PRIu64 " orphaned pages of lease %" PRIu64
			    " are not looked at any more, but the journal has them",
			ORPHAN_OF(pos)->pool, ORPHAN_OF(pos)->pages, ORPHAN_OF(pos)->lease);
}

void orphan_free(struct orphans *orphans)
{
	if (!orphans)
		return;
	LIST_FOR_EACH_SAFE (pos, &orphans->list)
		forget(ORPHAN_OF(pos));
	LIST_FOR_EACH_SAFE (pos, &orphans->announced)
		forget(ORPHAN_OF(pos));
	free(orphans);
}

/* ---- questions ---- */

uint64_t orphan_get_pages(const struct orphans *orphans, const struct pool *pool, uint32_t *ret_files)
{
	uint64_t watched = 0, recovered = 0, limit = 0;
	uint32_t files = 0;
	LIST_FOR_EACH (pos, &orphans->list) {
		const struct orphan *orphan = ORPHAN_OF(pos);
		if (strcmp(orphan->pool, pool->name) != 0)
			continue;
		files++;
		if (!orphan->is_recovered) {
			watched += orphan->pages;
			continue;
		}
		recovered += orphan->pages;
		limit = MAX(limit, get_limit(orphan));
	}
	if (ret_files)
		*ret_files = files;
	return watched + MIN(recovered, limit);
}

/* Of one owner in one pool of the kernel's. */
static uint64_t count_owned(const struct orphans *orphans, uint32_t uid, const struct orphan *like)
{
	uint64_t watched = 0, recovered = 0, limit = 0;
	LIST_FOR_EACH (pos, &orphans->list) {
		const struct orphan *orphan = ORPHAN_OF(pos);
		if (orphan->uid != uid || orphan->page_size != like->page_size || orphan->node != like->node)
			continue;
		*(orphan->is_recovered ? &recovered : &watched) += orphan->pages;
		limit = MAX(limit, orphan->is_recovered ? get_limit(orphan) : 0);
	}
	return (watched + MIN(recovered, limit)) * like->page_size;
}

static bool is_first_of_its_kind(const struct orphans *orphans, const struct orphan *orphan)
{
	LIST_FOR_EACH (pos, &orphans->list) {
		const struct orphan *other = ORPHAN_OF(pos);
		if (other->uid == orphan->uid && other->page_size == orphan->page_size &&
			other->node == orphan->node)
			return other == orphan;
	}
	return false;
}

uint64_t orphan_get_bytes(const struct orphans *orphans, uint32_t uid)
{
	uint64_t bytes = 0;
	LIST_FOR_EACH (pos, &orphans->list) {
		if (ORPHAN_OF(pos)->uid == uid && is_first_of_its_kind(orphans, ORPHAN_OF(pos)))
			bytes += count_owned(orphans, uid, ORPHAN_OF(pos));
	}
	return bytes;
}

const struct list *orphan_get_list(const struct orphans *orphans)
{
	return &orphans->list;
}
