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
	struct list list;
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

static void forget(struct orphan *orphan)
{
	list_remove(&orphan->link);
	if (orphan->job)
		orphan->job->user = NULL;
	close_fd(orphan->fd);
	free(orphan);
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
		forget(orphan);
		orphans->changed(orphans->user);
		return;
	}
	if (done->proof.result == PROOF_CANNOT_TELL) {
		log_error("pool %s: %" PRIu64 " orphaned pages of lease %" PRIu64
			  " are not watched any more: nothing here can tell who holds them",
			orphan->pool, orphan->pages, orphan->lease);
		forget(orphan);
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
		if (!ORPHAN_OF(pos)->job && ORPHAN_OF(pos)->due_ns <= now)
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
		if (!ORPHAN_OF(pos)->job)
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

void orphan_add_take(struct orphans *orphans, const struct lease *lease, const struct pool_segment *segment,
	const struct worker_done *seen, int fd)
{
	char size[SIZE_TEXT];
	struct orphan *orphan = calloc(1, sizeof *orphan);
	if (!orphan) {
		log_error("lease %" PRIu64 ": %" PRIu64 " orphaned pages are not watched: no memory",
			lease->id, seen->allocated);
		close_fd(fd);
		return;
	}
	list_init(&orphan->link);
	orphan->orphans = orphans;
	snprintf(orphan->pool, sizeof orphan->pool, "%s", segment->pool->name);
	snprintf(orphan->label, sizeof orphan->label, "%s", lease->label);
	orphan->page_size = segment->pool->config.page_size;
	orphan->lease = lease->id;
	orphan->uid = lease->is_unknown ? UINT32_MAX : lease->file_uid;
	orphan->asked = lease->asked;
	orphan->granted_boot_ns = lease->granted_boot_ns;
	orphan->pages = seen->allocated;
	orphan->reason = seen->proof.reason;
	orphan->fd = fd;
	orphan->born_ns = now_ns();
	insert(orphans, orphan);
	format_bytes(orphan, size);
	log_warning("pool %s: %s of lease %" PRIu64 " (%s, uid %" PRIu32 ") are orphaned: held by %s",
		orphan->pool, size, orphan->lease, orphan->label, orphan->uid,
		proof_get_reason_text(orphan->reason));
	plan_look(orphan);
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
			    " are not watched any more",
			ORPHAN_OF(pos)->pool, ORPHAN_OF(pos)->pages, ORPHAN_OF(pos)->lease);
}

void orphan_free(struct orphans *orphans)
{
	if (!orphans)
		return;
	LIST_FOR_EACH_SAFE (pos, &orphans->list)
		forget(ORPHAN_OF(pos));
	free(orphans);
}

/* ---- questions ---- */

uint64_t orphan_get_pages(const struct orphans *orphans, const struct pool *pool, uint32_t *ret_files)
{
	uint64_t pages = 0;
	uint32_t files = 0;
	LIST_FOR_EACH (pos, &orphans->list) {
		const struct orphan *orphan = ORPHAN_OF(pos);
		if (strcmp(orphan->pool, pool->name) != 0)
			continue;
		pages += orphan->pages;
		files++;
	}
	if (ret_files)
		*ret_files = files;
	return pages;
}

uint64_t orphan_get_bytes(const struct orphans *orphans, uint32_t uid)
{
	uint64_t bytes = 0;
	LIST_FOR_EACH (pos, &orphans->list) {
		if (ORPHAN_OF(pos)->uid == uid)
			bytes += ORPHAN_OF(pos)->pages * ORPHAN_OF(pos)->page_size;
	}
	return bytes;
}

const struct list *orphan_get_list(const struct orphans *orphans)
{
	return &orphans->list;
}

void orphan_say_unknown(const struct pool *pool, const struct host_counters *kernel)
{
	uint64_t used = kernel->nr > kernel->free ? kernel->nr - kernel->free : 0,
		 ours = pool_get_total(pool);
	if (used <= ours)
		return;
	/* Nobody can tell these apart any more. */
	log_info("pool %s: %" PRIu64 " pages in use of the kernel's are "
		 "not this pool's: other programs', or orphans of an earlier hpzd",
		pool->name, used - ours);
}
