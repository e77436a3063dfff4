/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * handoff.c - memory goes out and comes back.
 *
 * Out: a name is in leased/ before anybody outside gets a descriptor or a link. Back: a helper puts up the
 * shields (links gone, root, mode 0), then probes; free memory becomes dirty, held memory is looked at again
 * when something happens to it and on a ladder of delays. What is not to be reused, or not to be waited for,
 * goes to the kernel instead: its name is removed, and what somebody still holds is an orphan. One job a
 * lease at a time: a client that holds a helper up holds up its own.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <sys/inotify.h>
#include <sys/syscall.h>

#include "handoff.h"
#include "handoff_exits.h"
#include "news.h"
#include "log.h"
#include "owner.h"

#define GRACE_MS        10000 /* the default of `grace`, until handoff_set_grace() */
#define JOB_DEADLINE_MS 5000
#define HOLDERS_ATTEMPT 6 /* from this look on (about a second) it is worth knowing who holds it */
#define SAY_ATTEMPT     3 /* a failure that lasted so many looks is worth a line */
#define RETRY_ERROR_MS  1000
#define BEGIN_MS        1 /* a return takes 0.1 ms of the loop: whoever ends many in a row is answered first */
#define WATCH_HASH      1024 /* descriptors are consecutive */
#define LESSON_WAIT     8    /* looks a return waits for the proof to be learned: some four seconds */

/* Why the timer of a lease is set. */
enum next {
	NEXT_NOTHING,
	NEXT_RETURN,     /* returning: look again */
	NEXT_UNUSED,     /* might be unused: probe */
	NEXT_OPEN_LIMIT, /* path, never opened: over */
};

struct handoff_lease {
	struct handoff *handoff;
	struct lease *lease; /* NULL: ended, closing */
	uv_timer_t timer;
	struct owner_share owner;
	enum next next;
	unsigned attempts, failures; /* since it began to return, or the last segment was back */
	const char *why;             /* it ends; NULL: said */
	enum proof_reason logged_reason;
	bool was_unused; /* all of it, at the last look */
	size_t probed;   /* segments found unused by the look under way */
	struct crew_job *job;
	uint64_t job_segment;         /* index in lease->segments */
	struct pool_segment *trimmed; /* its tail is being punched; NULL: none */
	int orphan_fd;                /* of the segment being unlinked; -1: nothing could be told of it */
	uint64_t orphaned;            /* pages, of segments unlinked so far */
	struct list watches;
};

/* An inotify watch on a leased file. */
struct watch {
	struct list link; /* handoff_lease.watches */
	struct list all;  /* handoff.watches, by descriptor */
	int descriptor;
	struct handoff_lease *owner;
};

struct handoff {
	uv_loop_t *loop;
	struct crew *crew;
	struct lease_table *leases;
	struct handoff_callbacks callbacks;
	int inotify_fd;
	uv_poll_t inotify;
	bool has_inotify;
	struct list watches[WATCH_HASH];
	struct owners owners;
	uint64_t grace_ms;    /* a path lease that nobody holds any more; two looks at an unknown one */
	unsigned open_leases; /* handoff_lease not yet freed */
	struct handoff_exits *exits;
	bool is_closing, is_inotify_closed, are_owners_closed, are_exits_closed;
	struct prover *prover;
	struct orphans *orphans;
	void (*closed)(void *user);
	void *closed_user;
};

static void look(struct handoff_lease *hl);
static void add_watches(struct handoff_lease *hl);
static void remove_watches(struct handoff_lease *hl);
static void probe_unused(struct handoff_lease *hl);

static void note_change(struct handoff *handoff)
{
	handoff->callbacks.changed(handoff->callbacks.user);
}

static void tell_returning(const struct handoff *handoff, const struct lease *lease)
{
	if (handoff->callbacks.returning)
		handoff->callbacks.returning(lease, handoff->callbacks.user);
}

static void tell_back(const struct handoff *handoff, const struct lease *lease,
	const struct pool_segment *segment, enum handoff_back how)
{
	if (handoff->callbacks.back)
		handoff->callbacks.back(lease, segment, how, handoff->callbacks.user);
}

static void on_exit_seen(uint64_t id, const struct lease *lease, const struct exits_seen *seen, void *user)
{
	const struct handoff *handoff = user;
	if (handoff->callbacks.exit)
		handoff->callbacks.exit(id, lease, seen, handoff->callbacks.user);
}

/* ---- processes ---- */

int handoff_open_process(pid_t pid, uint64_t start_ticks)
{
	struct host host = {.root = (char *)""};
	uint64_t now = 0;
	int fd = (int)syscall(SYS_pidfd_open, pid, 0);
	if (fd < 0)
		return -errno;
	if (start_ticks > 0 && (host_get_start_time(&host, pid, &now) < 0 || now != start_ticks)) {
		close(fd);
		return -ESRCH;
	}
	return fd;
}

/* ---- the past and the proof ---- */

static bool was_weakly_of(const struct pool_segment *segment, uint32_t uid)
{
	for (unsigned i = 0; i < segment->weak_uid_count; i++) {
		if (segment->weak_uids[i] == uid)
			return true;
	}
	return false;
}

bool handoff_may_give(const struct handoff *handoff, const struct pool_segment *segment, uint32_t uid)
{
	const struct pool *pool = segment->pool;
	if (segment->proof == POOL_PROOF_FULL || segment->generation == 0)
		return true;
	/* Found on disk: as good as what its pool demanded all along. */
	if (segment->proof == POOL_PROOF_UNKNOWN)
		return pool->config.reuse == CONFIG_REUSE_PROVEN && !pool->was_weak;
	return pool->config.reuse == CONFIG_REUSE_WEAK && !was_weakly_of(segment, uid);
}

/* Whether the counts of a file that nobody should hold are worth a look: known here, and not passed over. */
static bool has_counts(const struct handoff *handoff, const struct pool_segment *segment)
{
	int program;
	return segment->proof != POOL_PROOF_WEAK &&
	       prover_find(handoff->prover, segment->pool->config.page_size, &program);
}

/* Once more before the next owner: whoever could still open it shows as a held name. */
static int check_counts(const struct handoff *handoff, const struct pool_segment *segment, int fd)
{
	int program;
	const struct proof_facts *facts =
		prover_find(handoff->prover, segment->pool->config.page_size, &program);
	struct proof_verdict verdict;
	if (!has_counts(handoff, segment))
		return 0;
	int r = proof_look_at_counts(program, facts, fd, &verdict);
	if (r < 0 || verdict.result == PROOF_FREE)
		return r;
	log_error("segment %" PRIu64 " of pool %s was clean, but is held by %s: not handed out", segment->id,
		segment->pool->name, proof_get_reason_text(verdict.reason));
	return -EUCLEAN;
}

/* ---- out ---- */

static bool is_whole(const struct pool_segment *segment, const struct segment_stat *st)
{
	return st->pages == segment->pages && st->allocated == segment->pages && st->links == 1 &&
	       st->uid == segment_get_uid() && st->mode == 0;
}

/* A file that goes out for the first time is whole, root's and nobody else's; afterwards only its kind is
 * certain. */
static int check_file(const struct handoff *handoff, const struct pool_segment *segment, int fd, bool is_new)
{
	struct segment_stat st;
	int r = segment_stat_on(segment->pool->store, fd, &st);
	if (r < 0 || !is_new)
		return r;
	return is_whole(segment, &st) ? check_counts(handoff, segment, fd) : -EUCLEAN;
}

static int open_one(const struct handoff *handoff, const struct lease *lease,
	const struct pool_segment *segment, bool is_new)
{
	/* Proven to be open nowhere, and not opened since: no file lease can make us wait, and O_NONBLOCK
	 * need not be taken off again. */
	bool is_unheld = is_new && segment->proof == POOL_PROOF_FULL;
	_cleanup_fd_ int fd = is_unheld ? pool_open_unheld(segment) : pool_open_segment(segment);
	if (fd < 0)
		return fd;
	int r = check_file(handoff, segment, fd, is_new);
	if (r < 0)
		return r;
	if ((lease->flags & HPZ_LEASE_REOPENABLE) && is_new &&
		(fchown(fd, lease->file_uid, lease->file_gid) < 0 || fchmod(fd, lease->file_mode) < 0))
		return -errno;
	/* O_NONBLOCK was for our own open. */
	if (!is_unheld && fcntl(fd, F_SETFL, 0) < 0)
		return -errno;
	return steal_fd(&fd);
}

int handoff_open_from(
	struct handoff *handoff, struct lease *lease, size_t first, size_t first_new, int ret_fds[])
{
	for (size_t i = first; i < lease->segment_count; i++) {
		int fd = lease->segments[i] ? open_one(handoff, lease, lease->segments[i], i >= first_new)
					    : -ENOENT;
		if (fd < 0) {
			while (i-- > first)
				close_fd(ret_fds[i - first]);
			return fd;
		}
		ret_fds[i - first] = fd;
	}
	return 0;
}

int handoff_open(struct handoff *handoff, struct lease *lease, bool is_new, int ret_fds[])
{
	return handoff_open_from(handoff, lease, 0, is_new ? 0 : lease->segment_count, ret_fds);
}

static bool is_on_earlier_store(struct pool_segment *const *segments, size_t index)
{
	for (size_t i = 0; i < index; i++) {
		if (segments[i]->pool->store == segments[index]->pool->store)
			return true;
	}
	return false;
}

int handoff_make_token(struct lease *draft, struct pool_segment *const *segments, size_t count)
{
	int r = segment_make_out(segments[0]->pool->store, draft->token);
	draft->has_token = r == 0;
	for (size_t i = 1; r == 0 && i < count; i++) {
		if (!is_on_earlier_store(segments, i))
			r = segment_make_out_again(segments[i]->pool->store, draft->token);
	}
	if (r < 0)
		handoff_drop_token(draft, segments, count);
	return r;
}

void handoff_drop_token(struct lease *draft, struct pool_segment *const *segments, size_t count)
{
	for (size_t i = 0; draft->has_token && i < count; i++) {
		if (!is_on_earlier_store(segments, i))
			segment_remove_out(segments[i]->pool->store->out_fd, draft->token, 0, 0);
	}
	draft->has_token = false;
}

/* By its name: it is opened only where that tells more. */
static int check_name(const struct handoff *handoff, const struct pool_segment *segment, const char *name)
{
	struct segment_stat st;
	const struct pool *pool = segment->pool;
	int r = segment_stat_at(pool->store, &pool->dirs, SEGMENT_LEASED, name, &st);
	if (r < 0)
		return r;
	if (!is_whole(segment, &st))
		return -EUCLEAN;
	if (!has_counts(handoff, segment))
		return 0;
	_cleanup_fd_ int fd = pool_open_segment(segment);
	return fd < 0 ? fd : check_file(handoff, segment, fd, true);
}

static int link_one(
	const struct handoff *handoff, const struct lease *lease, const struct pool_segment *segment)
{
	char name[SEGMENT_NAME_MAX];
	struct pool *pool = segment->pool;
	pool_get_segment_name(segment, name);
	int r = check_name(handoff, segment, name);
	if (r < 0)
		return r;
	return segment_link_out(pool->store, &pool->dirs, name, lease->token, segment->index, lease->file_uid,
		lease->file_gid, lease->file_mode);
}

int handoff_link(struct handoff *handoff, struct lease *lease)
{
	return handoff_link_from(handoff, lease, 0);
}

int handoff_link_from(struct handoff *handoff, struct lease *lease, size_t first)
{
	int r = 0;
	for (size_t i = first; r == 0 && i < lease->segment_count; i++)
		r = link_one(handoff, lease, lease->segments[i]);
	/* Not before: a watch is a reference to the inode, and the check would take it for another name.
	 * Nobody has been told of the path yet. */
	if (r == 0)
		add_watches(lease->handoff);
	return r;
}

/* ---- directories of an earlier hpzd ---- */

struct out_adoption {
	struct handoff *handoff;
	const struct segment_store *store;
};

static bool is_inode_of(const struct lease *lease, const struct segment_store *store, ino_t ino)
{
	const struct pool_segment *segment = lease->segment_count ? lease->segments[0] : NULL;
	char name[SEGMENT_NAME_MAX];
	struct segment_stat st;
	if (!segment || segment->pool->store != store)
		return false;
	pool_get_segment_name(segment, name);
	return segment_stat_at(store, &segment->pool->dirs, SEGMENT_LEASED, name, &st) == 0 && st.ino == ino;
}

static bool is_recorded(const struct handoff *handoff, const char token[SEGMENT_TOKEN])
{
	LIST_FOR_EACH (pos, &handoff->leases->leases) {
		const struct lease *lease = LEASE_OF(pos);
		if (lease->has_token && memcmp(lease->token, token, SEGMENT_TOKEN) == 0)
			return true;
	}
	return false;
}

/* The journal is lost: that it was delivered as a path its link tells. */
static struct lease *find_unknown(const struct out_adoption *adoption, ino_t ino)
{
	LIST_FOR_EACH (pos, &adoption->handoff->leases->leases) {
		struct lease *lease = LEASE_OF(pos);
		if (lease->is_unknown && !lease->has_token && is_inode_of(lease, adoption->store, ino))
			return lease;
	}
	return NULL;
}

static int adopt_out(const char token[SEGMENT_TOKEN], ino_t ino, void *user)
{
	const struct out_adoption *adoption = user;
	if (is_recorded(adoption->handoff, token))
		return 0;
	struct lease *lease = ino ? find_unknown(adoption, ino) : NULL;
	if (lease) {
		lease->deliver = HPZ_DELIVER_PATH;
		memcpy(lease->token, token, SEGMENT_TOKEN);
		lease->has_token = true;
		return 0;
	}
	/* Only if it is empty: nobody but us was told of it. */
	if (segment_remove_out(adoption->store->out_fd, token, 0, 0) < 0)
		log_warning("%s/hpz-out/%.*s belongs to no lease and is not empty: left alone",
			adoption->store->path, SEGMENT_TOKEN, token);
	return 0;
}

int handoff_adopt_outs(struct handoff *handoff, const struct segment_store *store)
{
	struct out_adoption adoption = {handoff, store};
	return segment_scan_out(store, adopt_out, &adoption);
}

/* ---- jobs on one segment ---- */

static struct crew_job *new_segment_job(
	struct handoff_lease *hl, size_t index, enum worker_op op, int fd, crew_done_cb done)
{
	struct pool_segment *segment = hl->lease->segments[index];
	struct crew_job *job = crew_new_job(WORKER_HELPER, op);
	if (!job) {
		close_fd(fd);
		return NULL;
	}
	job->fds[WORKER_FD_SEGMENT] = fd;
	job->fds[WORKER_FD_LOCK] = segment->pool->store->workers_fd;
	job->wire.page_size = segment->pool->config.page_size;
	job->wire.length = segment->pages;
	job->deadline_ms = JOB_DEADLINE_MS;
	job->done = done;
	job->user = hl;
	/* A watch adds a reference to the inode, and our own opens would look like somebody's. */
	remove_watches(hl);
	hl->job = job;
	hl->job_segment = index;
	return job;
}

/* The lease may have been closed while its job ran: then nobody is left to hear of it. NULL. */
static struct handoff_lease *take_answer(struct crew_job *job, void *user);

/* ---- the timer ---- */

static void on_timer(uv_timer_t *timer);

static void set_timer(struct handoff_lease *hl, enum next next, uint64_t delay_ms)
{
	if (hl->handoff->is_closing || !hl->lease)
		return;
	hl->next = next;
	uv_timer_start(&hl->timer, on_timer, delay_ms, 0);
}

static void on_timer(uv_timer_t *timer)
{
	struct handoff_lease *hl = timer->data;
	enum next next = hl->next;
	hl->next = NEXT_NOTHING;
	if (!hl->lease)
		return;
	switch (next) {
	case NEXT_NOTHING:
		break;
	case NEXT_RETURN:
		look(hl);
		break;
	case NEXT_UNUSED:
		probe_unused(hl);
		break;
	case NEXT_OPEN_LIMIT:
		if (!hl->lease->was_opened)
			handoff_return(hl->handoff, hl->lease, "was never opened");
		break;
	}
}

/* ---- watches on files ---- */

static void remove_watches(struct handoff_lease *hl)
{
	LIST_FOR_EACH_SAFE (pos, &hl->watches) {
		struct watch *watch = CONTAINER_OF(pos, struct watch, link);
		inotify_rm_watch(hl->handoff->inotify_fd, watch->descriptor);
		list_remove(&watch->link);
		list_remove(&watch->all);
		free(watch);
	}
}

static struct list *find_watches(struct handoff *handoff, int descriptor)
{
	return &handoff->watches[(unsigned)descriptor % WATCH_HASH];
}

static void add_watch(struct handoff_lease *hl, const struct pool_segment *segment)
{
	struct handoff *handoff = hl->handoff;
	char name[SEGMENT_NAME_MAX], path[SEGMENT_NAME_MAX + 32];
	if (handoff->inotify_fd < 0)
		return;
	pool_get_segment_name(segment, name);
	snprintf(path, sizeof path, "/proc/self/fd/%d/%s", segment->pool->dirs.fds[SEGMENT_LEASED], name);
	/* The inode is watched: a watch on the directory does not see what happens through another link. */
	int descriptor = inotify_add_watch(
		handoff->inotify_fd, path, IN_OPEN | IN_CLOSE_WRITE | IN_CLOSE_NOWRITE | IN_DONT_FOLLOW);
	struct watch *watch = descriptor < 0 ? NULL : calloc(1, sizeof *watch);
	if (!watch)
		return; /* the ladder of delays does without */
	watch->descriptor = descriptor;
	watch->owner = hl;
	list_append(&hl->watches, &watch->link);
	list_append(find_watches(handoff, descriptor), &watch->all);
}

static void add_watches(struct handoff_lease *hl)
{
	remove_watches(hl);
	if (hl->trimmed) /* our own close would look like somebody's: on_trimmed() watches again */
		return;
	for (size_t i = 0; i < hl->lease->segment_count; i++) {
		if (hl->lease->segments[i])
			add_watch(hl, hl->lease->segments[i]);
	}
}

static bool ends_when_unused(const struct lease *lease)
{
	/* Sent by an hpzd that is gone: whether it arrived only its being held can tell. */
	if (lease->is_unknown || (lease->is_recovered && lease->state == HPZ_STATE_OFFERED))
		return true;
	return lease->deliver == HPZ_DELIVER_PATH && lease->was_opened && !(lease->flags & HPZ_LEASE_KEEP);
}

static void on_file_event(struct handoff_lease *hl, uint32_t mask)
{
	struct lease *lease = hl->lease;
	if (!lease || hl->job)
		return; /* our own opens; the answer looks again */
	if (lease->state == HPZ_STATE_RETURNING) {
		if (mask & (IN_CLOSE_WRITE | IN_CLOSE_NOWRITE)) {
			hl->attempts = MIN(hl->attempts, 1u);
			set_timer(hl, NEXT_RETURN, 0);
		}
		return;
	}
	if (lease->deliver != HPZ_DELIVER_PATH)
		return;
	/* What is closed was opened, also when nobody was watching then. */
	if (mask & (IN_OPEN | IN_CLOSE_WRITE | IN_CLOSE_NOWRITE))
		lease_set_opened(hl->handoff->leases, lease);
	if (mask & IN_OPEN)
		handoff_exits_search(hl->handoff->exits, lease);
	if ((mask & (IN_CLOSE_WRITE | IN_CLOSE_NOWRITE)) && ends_when_unused(lease)) {
		hl->was_unused = false;
		set_timer(hl, NEXT_UNUSED, 20);
	}
}

static void on_inotify(uv_poll_t *poll, int status, int events)
{
	struct handoff *handoff = poll->data;
	char buffer[4096] __attribute__((aligned(__alignof__(struct inotify_event))));
	for (ssize_t length; (length = read(handoff->inotify_fd, buffer, sizeof buffer)) > 0;) {
		for (char *at = buffer; at < buffer + length;) {
			struct inotify_event *event = (struct inotify_event *)at;
			at += sizeof *event + event->len;
			LIST_FOR_EACH (pos, find_watches(handoff, event->wd)) {
				struct watch *watch = CONTAINER_OF(pos, struct watch, all);
				if (watch->descriptor != event->wd)
					continue;
				on_file_event(watch->owner, event->mask);
				break;
			}
		}
	}
	note_change(handoff);
}

/* ---- the owner ---- */

static void on_owner_gone(struct owner_share *share)
{
	struct handoff_lease *hl = CONTAINER_OF(share, struct handoff_lease, owner);
	if (hl->lease->state == HPZ_STATE_RETURNING) {
		hl->attempts = 0;
		if (!hl->job)
			set_timer(hl, NEXT_RETURN, 0);
		return;
	}
	handoff_return(hl->handoff, hl->lease, "its owner process is gone");
}

static void call_if_closed(struct handoff *handoff)
{
	if (handoff->is_closing && handoff->open_leases == 0 && handoff->is_inotify_closed &&
		handoff->are_owners_closed && handoff->are_exits_closed && handoff->closed)
		handoff->closed(handoff->closed_user);
}

static void on_handle_closed(uv_handle_t *handle)
{
	struct handoff_lease *hl = handle->data;
	struct handoff *handoff = hl->handoff;
	close_fd(hl->orphan_fd);
	free(hl);
	handoff->open_leases--;
	call_if_closed(handoff);
}

static void set_owner(struct handoff_lease *hl, int pidfd)
{
	const struct lease *lease = hl->lease;
	owner_leave(&hl->owner);
	handoff_exits_set_owner(hl->handoff->exits, lease, pidfd);
	if (pidfd < 0)
		return;
	int r = owner_join(&hl->handoff->owners, lease->pid, lease->pid_start, pidfd, &hl->owner);
	if (r < 0)
		log_warning("lease %" PRIu64 " (%s): the end of its owner will not be noticed: %s", lease->id,
			lease->label, strerror(-r));
}

/* ---- life of the watch ---- */

static int make_watch(struct handoff *handoff, struct lease *lease)
{
	struct handoff_lease *hl = calloc(1, sizeof *hl);
	if (!hl)
		return -ENOMEM;
	hl->handoff = handoff;
	hl->lease = lease;
	hl->orphan_fd = -1;
	hl->owner.gone = on_owner_gone;
	list_init(&hl->owner.link);
	list_init(&hl->watches);
	uv_timer_init(handoff->loop, &hl->timer);
	hl->timer.data = hl;
	handoff->open_leases++;
	lease->handoff = hl;
	return 0;
}

static void add_event(const struct lease *lease, enum hpz_event_kind kind, const char *text)
{
	struct news event = {.kind = kind,
		.lease = lease->id,
		.uid = lease->uid,
		.pid = lease->pid,
		.bytes = lease->counted_bytes};
	snprintf(event.label, sizeof event.label, "%s", lease->label);
	snprintf(event.text, sizeof event.text, "%.*s", NEWS_TEXT - 1, text);
	news_add(&event);
}

/* The event says it, too: the line is none of its own. */
static void say_held(const struct lease *lease, const char *how)
{
	add_event(lease, HPZ_EVENT_HELD, how);
	news_hush(true);
	log_info("lease %" PRIu64 " (%s) is over, but still held by %s", lease->id, lease->label, how);
	news_hush(false);
}

/* Later than it is decided: nobody waits for an answer then. */
static void say_end(struct handoff_lease *hl)
{
	const char *why = steal_pointer(&hl->why);
	if (!why)
		return;
	add_event(hl->lease, HPZ_EVENT_ENDED, why);
	news_hush(true);
	log_info("lease %" PRIu64 " (%s) ends: %s", hl->lease->id, hl->lease->label, why);
	news_hush(false);
}

static void close_watch(struct handoff_lease *hl)
{
	if (hl->lease)
		say_end(hl);
	remove_watches(hl);
	owner_leave(&hl->owner);
	if (hl->lease && !hl->handoff->is_closing)
		handoff_exits_leave(hl->handoff->exits, hl->lease);
	if (hl->lease)
		hl->lease->handoff = NULL;
	hl->lease = NULL;
	if (hl->job) {
		hl->job->user = NULL;
		hl->job = NULL;
	}
	if (!uv_is_closing((uv_handle_t *)&hl->timer))
		uv_close((uv_handle_t *)&hl->timer, on_handle_closed);
}

static struct handoff_lease *take_answer(struct crew_job *job, void *user)
{
	struct handoff_lease *hl = job->user;
	if (!hl)
		return NULL;
	hl->job = NULL;
	return hl->handoff->is_closing ? NULL : hl;
}

/* All segments are back: the lease is forgotten, and only now its id has ended. */
static void finish(struct handoff_lease *hl)
{
	struct handoff *handoff = hl->handoff;
	struct lease *lease = hl->lease;
	uint64_t id = lease->id;
	add_event(lease, HPZ_EVENT_RETURNED, hl->orphaned > 0 ? "somebody still holds a part of it" : "");
	news_hush(true);
	if (hl->orphaned > 0)
		log_warning("lease %" PRIu64 " (%s) has ended, and somebody still holds %" PRIu64
			    " pages of it",
			id, lease->label, hl->orphaned);
	else
		log_info("lease %" PRIu64 " (%s): all memory is back", id, lease->label);
	news_hush(false);
	handoff_exits_hurry(handoff->exits, lease);
	if (handoff->callbacks.over)
		handoff->callbacks.over(lease, owner_lives(&hl->owner), handoff->callbacks.user);
	close_watch(hl);
	lease_end(handoff->leases, lease);
	handoff->callbacks.ended(id, handoff->callbacks.user);
	note_change(handoff);
}

/* ---- back ---- */

static void retry(struct handoff_lease *hl)
{
	set_timer(hl, NEXT_RETURN, policy_get_retry_ms(hl->attempts++));
}

/* What happens once is tried again at once, and nobody needs to know. */
static void say_if_it_lasts(struct handoff_lease *hl, const char *what, int error)
{
	const struct lease *lease = hl->lease;
	if (hl->failures++ == SAY_ATTEMPT)
		log_warning("lease %" PRIu64 " (%s): %s: %s; it stays returning, and is tried again",
			lease->id, lease->label, what, strerror(-error));
	else
		log_debug("lease %" PRIu64 ": %s: %s", lease->id, what, strerror(-error));
}

/* The name is gone. What is left of the file is the kernel's when nobody holds it any more. */
static void settle_unlinked(struct handoff_lease *hl, const struct worker_done *done, int fd)
{
	struct lease *lease = hl->lease;
	struct pool_segment *segment = lease->segments[hl->job_segment];
	bool is_held = done->proof.result == PROOF_IN_USE && done->allocated > 0;
	bool is_free = fd >= 0 && !is_held && done->proof.result != PROOF_CANNOT_TELL;
	if (fd >= 0 && is_held) {
		hl->orphaned += done->allocated;
		orphan_add_take(hl->handoff->orphans, lease, segment, done, steal_fd(&fd));
	} else {
		orphan_cancel(hl->handoff->orphans, lease, segment);
		if (fd < 0)
			log_warning(
				"pool %s: segment %" PRIu64 " of lease %" PRIu64
				" is unlinked, and nothing here can tell whether somebody holds its %" PRIu64
				" pages",
				segment->pool->name, segment->id, lease->id, segment->allocated);
	}
	tell_back(hl->handoff, lease, segment, is_free ? HANDOFF_BACK_KERNEL : HANDOFF_BACK_ORPHAN);
	close_fd(fd);
	lease_drop_segment(hl->handoff->leases, lease, segment);
	pool_forget(segment);
}

static void on_unlinked(struct crew_job *job, const struct worker_done *done, void *user)
{
	struct handoff_lease *hl = take_answer(job, user);
	if (!hl)
		return;
	int fd = steal_fd(&hl->orphan_fd);
	if (done->error < 0) {
		close_fd(fd);
		say_if_it_lasts(hl, "its memory cannot be given to the kernel", done->error);
		hl->attempts++;
		set_timer(hl, NEXT_RETURN, RETRY_ERROR_MS);
		return;
	}
	settle_unlinked(hl, done, fd);
	note_change(hl->handoff);
	look(hl);
}

/* Where the links to it are. */
static void lend_dir(struct crew_job *job, const struct pool_segment *segment)
{
	job->fds[WORKER_FD_DIR] = segment->pool->store->out_fd;
	job->is_dir_lent = true;
}

/* What a job needs to tell who holds the file, and to remove the links to it. */
static void equip(const struct handoff_lease *hl, struct crew_job *job, const struct pool_segment *segment)
{
	const struct proof_facts *facts = prover_find(
		hl->handoff->prover, segment->pool->config.page_size, &job->fds[WORKER_FD_PROGRAM]);
	if (facts)
		job->wire.facts = *facts;
	job->wire.max_links = 1;
	if (hl->lease->has_token) {
		job->wire.first_link = hl->lease->first_index;
		job->wire.links = (uint32_t)hl->lease->segment_count;
		memcpy(job->wire.token, hl->lease->token, sizeof job->wire.token);
	}
}

/* Nothing of hpzd's or the kernel's to do it with: another time. */
static void return_later(struct handoff_lease *hl, int error)
{
	say_if_it_lasts(hl, "its memory cannot be taken back", error);
	hl->attempts++;
	set_timer(hl, NEXT_RETURN, RETRY_ERROR_MS);
}

/*
 * It is not reused, or not waited for: a helper removes its links and its name. `can_tell`: whether somebody
 * holds it; then a descriptor of ours stays until that is over.
 */
static void give_to_kernel(struct handoff_lease *hl, size_t index, bool can_tell)
{
	struct pool_segment *segment = hl->lease->segments[index];
	pool_refresh(segment);
	int fd = can_tell ? pool_open_segment(segment) : -1;
	/* Somebody's file lease is in the way: that is holding it, and all that can be told. */
	if (can_tell && fd < 0 && fd != -EWOULDBLOCK && fd != -ENOENT) {
		return_later(hl, fd);
		return;
	}
	int copy = fd >= 0 ? fcntl(fd, F_DUPFD_CLOEXEC, 3) : -1;
	struct crew_job *job = new_segment_job(hl, index, WORKER_UNLINK, copy, on_unlinked);
	int names = job ? fcntl(segment->pool->dirs.fds[SEGMENT_LEASED], F_DUPFD_CLOEXEC, 3) : -1;
	if (names < 0 || (fd >= 0 && copy < 0)) {
		close_fd(fd);
		close_fd(names);
		hl->job = NULL;
		crew_free_job(job);
		set_timer(hl, NEXT_RETURN, RETRY_ERROR_MS);
		return;
	}
	job->fds[WORKER_FD_NAMES] = names;
	lend_dir(job, segment);
	equip(hl, job, segment);
	pool_get_segment_name(segment, job->wire.name);
	hl->orphan_fd = fd;
	/* Its name may go at any moment now, with or without us. */
	orphan_announce(hl->handoff->orphans, hl->lease, segment);
	crew_submit(hl->handoff->crew, job);
}

static void on_holders(struct crew_job *job, const struct worker_done *done, void *user)
{
	struct handoff_lease *hl = take_answer(job, user);
	if (!hl)
		return;
	if (done->error == 0) {
		hl->lease->holder_count = done->holder_count;
		memcpy(hl->lease->holders, done->holders, sizeof hl->lease->holders);
	}
	retry(hl);
}

static void on_some_holders(struct crew_job *job, const struct worker_done *done, void *user)
{
	struct handoff_lease *hl = job->user;
	if (!hl || !hl->lease)
		return;
	hl->lease->holder_count = done->holder_count;
	memcpy(hl->lease->holders, done->holders, sizeof hl->lease->holders);
}

static void find_holders(struct handoff_lease *hl, size_t index)
{
	struct pool_segment *segment = hl->lease->segments[index];
	char name[SEGMENT_NAME_MAX];
	struct segment_stat st;
	pool_get_segment_name(segment, name);
	struct crew_job *job = NULL;
	if (segment_stat_at(segment->pool->store, &segment->pool->dirs, SEGMENT_LEASED, name, &st) == 0)
		job = new_segment_job(hl, index, WORKER_HOLDERS, -1, on_holders);
	if (!job) {
		retry(hl);
		return;
	}
	job->wire.dev = st.dev;
	job->wire.ino = st.ino;
	job->partial = on_some_holders;
	crew_submit(hl->handoff->crew, job);
}

static void still_held(struct handoff_lease *hl, size_t index, enum proof_reason reason)
{
	hl->lease->reason = reason;
	if (list_is_empty(&hl->watches))
		add_watches(hl);
	if (hl->attempts >= HOLDERS_ATTEMPT) {
		if (hl->logged_reason != reason)
			say_held(hl->lease, proof_get_reason_text(reason));
		hl->logged_reason = reason;
		find_holders(hl, index);
		return;
	}
	retry(hl);
}

static void note_weak(struct handoff *handoff, struct pool *pool)
{
	struct journal_weak record = {sizeof record, pool->config.node, pool->config.page_size};
	if (pool->was_weak)
		return;
	pool->was_weak = true;
	journal_append(handoff->leases->journal, JOURNAL_WEAK, &record, sizeof record, NULL, 0);
}

/* Whether this proof is enough for the next lease, as the operator says. */
static bool is_reusable(const struct handoff_lease *hl, const struct proof_verdict *proof)
{
	const struct pool_segment *segment = hl->lease->segments[hl->job_segment];
	bool is_full = prover_is_full(hl->handoff->prover, proof->source);
	switch (segment->pool->config.reuse) {
	case CONFIG_REUSE_PROVEN:
		return is_full;
	case CONFIG_REUSE_WEAK:
		/* All who had it must be known, also those before a restart. */
		return is_full || (segment->weak_uid_count < POOL_WEAK_UIDS &&
					  (segment->proof != POOL_PROOF_UNKNOWN || segment->generation <= 1));
	case CONFIG_REUSE_NEVER:
		return false;
	}
	return false;
}

static void take_back(struct handoff_lease *hl, size_t index, const struct proof_verdict *proof)
{
	struct pool_segment *segment = hl->lease->segments[index];
	pool_refresh(segment);
	if (segment->allocated > segment->pages)
		log_warning("lease %" PRIu64 " (%s): its holder took %" PRIu64
			    " pages more than it was given",
			hl->lease->id, hl->lease->label, segment->allocated - segment->pages);
	orphan_cancel(hl->handoff->orphans, hl->lease, segment);
	int r = pool_set_state(segment, SEGMENT_DIRTY);
	if (r < 0) {
		log_error("segment %" PRIu64 " cannot be taken back: %s", segment->id, strerror(-r));
		set_timer(hl, NEXT_RETURN, RETRY_ERROR_MS);
		return;
	}
	segment->lease = hl->lease->id; /* of what was split off the name said another */
	segment->proof =
		prover_is_full(hl->handoff->prover, proof->source) ? POOL_PROOF_FULL : POOL_PROOF_WEAK;
	if (segment->proof == POOL_PROOF_FULL)
		segment->weak_uid_count = 0;
	else
		segment->weak_uids[segment->weak_uid_count++] = hl->lease->file_uid;
	if (segment->proof == POOL_PROOF_WEAK)
		note_weak(hl->handoff, segment->pool);
	tell_back(hl->handoff, hl->lease, segment, HANDOFF_BACK_PROVEN);
	lease_drop_segment(hl->handoff->leases, hl->lease, segment);
	hl->attempts = hl->failures = 0;
	note_change(hl->handoff);
	look(hl);
}

/* Whether what somebody holds is not waited for. */
static bool is_let_go(const struct handoff_lease *hl, const struct proof_verdict *proof)
{
	const struct pool *pool = hl->lease->segments[hl->job_segment]->pool;
	if (hl->lease->is_forced || proof->reason == PROOF_POISON)
		return true;
	/* Passing references are gone by then; a name or a pin that lasts keeps nobody from giving the rest
	 * back. */
	return pool->config.reuse == CONFIG_REUSE_NEVER && !proof_may_be_open(proof) &&
	       hl->attempts >= HOLDERS_ATTEMPT;
}

static void note_broken(const struct handoff_lease *hl, const struct proof_verdict *proof)
{
	struct pool_segment *segment = hl->lease->segments[hl->job_segment];
	segment->pool->retired_pages += segment->pages;
	log_error("pool %s: segment %" PRIu64 " of lease %" PRIu64 " has %" PRIu64
		  " broken pages, the first at offset %" PRIu64 ": retired",
		segment->pool->name, segment->id, hl->lease->id, proof->poisoned,
		proof->first_pinned * segment->pool->config.page_size);
}

static void on_shielded(struct crew_job *job, const struct worker_done *done, void *user)
{
	struct handoff_lease *hl = take_answer(job, user);
	if (!hl)
		return;
	if (done->error < 0) {
		say_if_it_lasts(hl, "its memory cannot be taken back", done->error);
		retry(hl);
		return;
	}
	hl->lease->reason = done->proof.reason;
	switch (done->proof.result) {
	case PROOF_FREE:
		if (is_reusable(hl, &done->proof))
			take_back(hl, hl->job_segment, &done->proof);
		else
			give_to_kernel(hl, hl->job_segment, true);
		break;
	case PROOF_IN_USE:
		if (done->proof.reason == PROOF_POISON)
			note_broken(hl, &done->proof);
		if (is_let_go(hl, &done->proof))
			give_to_kernel(hl, hl->job_segment, true);
		else
			still_held(hl, hl->job_segment, done->proof.reason);
		break;
	case PROOF_CANNOT_TELL:
		prover_note_no_lease(hl->handoff->prover);
		give_to_kernel(hl, hl->job_segment, false);
		break;
	}
}

/* The first segment from there on that is still out; the index of it, or segment_count. */
static size_t find_out(const struct lease *lease, size_t first)
{
	size_t i = first;
	while (i < lease->segment_count && !lease->segments[i])
		i++;
	return i;
}

/* Its name is gone: somebody removed it behind our back, and with it whatever could be proven. */
static void forget_vanished(struct handoff_lease *hl, size_t index)
{
	struct pool_segment *segment = hl->lease->segments[index];
	log_error("segment %" PRIu64 " of lease %" PRIu64 " has vanished from %s", segment->id, hl->lease->id,
		segment->pool->store->path);
	orphan_cancel(hl->handoff->orphans, hl->lease, segment);
	tell_back(hl->handoff, hl->lease, segment, HANDOFF_BACK_ORPHAN);
	lease_drop_segment(hl->handoff->leases, hl->lease, segment);
	pool_forget(segment);
	look(hl);
}

/*
 * At start returns come before the lesson is over. Without it nobody could tell who holds what is not reused,
 * either: then it would be no orphan. Not for ever, since the lesson may want the very pages that return.
 */
static bool waits_for_lesson(const struct handoff_lease *hl, const struct pool_segment *segment)
{
	return hl->attempts < LESSON_WAIT &&
	       prover_get_lesson(hl->handoff->prover, segment->pool->config.page_size) != PROVER_LESSON_OVER;
}

/* One step of a return: a look at the first segment that is not back yet. */
static void look(struct handoff_lease *hl)
{
	struct lease *lease = hl->lease;
	say_end(hl);
	if (hl->job || hl->handoff->is_closing)
		return;
	size_t index = find_out(lease, 0);
	if (index == lease->segment_count) {
		finish(hl);
		return;
	}
	struct pool_segment *segment = lease->segments[index];
	if (segment->is_busy) { /* its tail is being punched */
		retry(hl);
		return;
	}
	if (waits_for_lesson(hl, segment)) {
		retry(hl);
		return;
	}
	int fd = pool_open_segment(segment);
	if (fd == -ENOENT) {
		forget_vanished(hl, index);
		return;
	}
	if (fd == -EWOULDBLOCK) { /* the holder has a file lease: that is holding it */
		if (lease->is_forced)
			give_to_kernel(hl, index, false);
		else
			still_held(hl, index, PROOF_OPEN);
		return;
	}
	struct crew_job *job = fd >= 0 ? new_segment_job(hl, index, WORKER_SHIELD, fd, on_shielded) : NULL;
	if (!job) {
		return_later(hl, fd < 0 ? fd : -ENOMEM);
		return;
	}
	lend_dir(job, segment);
	equip(hl, job, segment);
	crew_submit(hl->handoff->crew, job);
}

void handoff_return(struct handoff *handoff, struct lease *lease, const char *why)
{
	struct handoff_lease *hl = lease->handoff;
	if (lease->state != HPZ_STATE_RETURNING) {
		hl->why = why;
		tell_returning(handoff, lease);
		lease_set_state(handoff->leases, lease, HPZ_STATE_RETURNING);
	}
	handoff_exits_sample(handoff->exits, lease);
	lease->bound = NULL;
	hl->attempts = hl->failures = 0;
	/* Not from inside the caller: it may still be looking at the lease. */
	if (!hl->job)
		set_timer(hl, NEXT_RETURN, BEGIN_MS);
	note_change(handoff);
}

int handoff_split(struct handoff *handoff, struct lease *lease, struct lease *rest, const char *why)
{
	/* What happens to files that are the rest's now is not this lease's concern. */
	if (rest && lease->deliver == HPZ_DELIVER_PATH && !lease->handoff->job)
		add_watches(lease->handoff);
	if (!rest)
		return 0;
	log_info("lease %" PRIu64 " (%s) gives back %zu segments as lease %" PRIu64 ": %s", lease->id,
		lease->label, rest->segment_count, rest->id, why);
	tell_returning(handoff, rest);
	int r = handoff_watch(handoff, rest, -1);
	if (r < 0) /* without a watch nothing takes it back before the next start */
		log_error("lease %" PRIu64 " cannot be taken back before a restart: %s", rest->id,
			strerror(-r));
	note_change(handoff);
	return r;
}

void handoff_force(struct handoff *handoff, struct lease *lease, const char *why)
{
	struct handoff_lease *hl = lease->handoff;
	lease->is_forced = true;
	if (lease->state != HPZ_STATE_RETURNING)
		handoff_return(handoff, lease, why);
	else if (!hl->job)
		set_timer(hl, NEXT_RETURN, 0);
}

void handoff_set_grace(struct handoff *handoff, uint64_t grace_ns)
{
	handoff->grace_ms = grace_ns / NS_PER_MS;
}

void handoff_set_teardown(struct handoff *handoff, enum config_teardown mode)
{
	handoff_exits_set_mode(handoff->exits, mode);
}

const struct exits *handoff_get_exits(const struct handoff *handoff)
{
	return handoff_exits_get(handoff->exits);
}

struct orphans *handoff_get_orphans(const struct handoff *handoff)
{
	return handoff->orphans;
}

/* ---- unused? ---- */

static void probe_next(struct handoff_lease *hl);

static void on_probed(struct crew_job *job, const struct worker_done *done, void *user)
{
	struct handoff_lease *hl = take_answer(job, user);
	if (!hl)
		return;
	struct lease *lease = hl->lease;
	if (lease->state == HPZ_STATE_RETURNING) { /* released meanwhile */
		set_timer(hl, NEXT_RETURN, 0);
		return;
	}
	/* It is unused when all its segments are. */
	hl->probed = hl->job_segment + 1;
	if (done->error == 0 && done->proof.result == PROOF_FREE &&
		find_out(lease, hl->probed) < lease->segment_count) {
		probe_next(hl);
		return;
	}
	if (lease->deliver == HPZ_DELIVER_PATH)
		add_watches(hl);
	if (done->error < 0 || done->proof.result != PROOF_FREE) {
		hl->was_unused = false;
		if (!lease->is_unknown && lease->state == HPZ_STATE_OFFERED && done->error == 0)
			lease_set_state(
				hl->handoff->leases, lease, HPZ_STATE_LEASED); /* held, so it arrived */
		if (ends_when_unused(lease))
			set_timer(hl, NEXT_UNUSED, hl->handoff->grace_ms);
		return;
	}
	if (hl->was_unused) {
		handoff_return(hl->handoff, lease, "nobody has it open any more");
		return;
	}
	hl->was_unused = true;
	set_timer(hl, NEXT_UNUSED, hl->handoff->grace_ms);
}

static void probe_next(struct handoff_lease *hl)
{
	struct lease *lease = hl->lease;
	size_t index = find_out(lease, hl->probed);
	remove_watches(hl);
	int fd = pool_open_segment(lease->segments[index]);
	struct crew_job *job = fd >= 0 ? new_segment_job(hl, index, WORKER_PROBE, fd, on_probed) : NULL;
	if (!job) {
		if (lease->deliver == HPZ_DELIVER_PATH)
			add_watches(hl);
		hl->was_unused = false;
		set_timer(hl, NEXT_UNUSED, hl->handoff->grace_ms);
		return;
	}
	job->wire.max_links = lease->has_token ? 2 : 1;
	crew_submit(hl->handoff->crew, job);
}

static void probe_unused(struct handoff_lease *hl)
{
	struct lease *lease = hl->lease;
	hl->probed = 0;
	if (hl->job || hl->handoff->is_closing || find_out(lease, 0) == lease->segment_count ||
		!ends_when_unused(lease))
		return;
	probe_next(hl);
}

/* ---- tails ---- */

static void watch_again(struct handoff_lease *hl)
{
	if (hl->lease->deliver == HPZ_DELIVER_PATH && hl->lease->state != HPZ_STATE_RETURNING)
		add_watches(hl);
}

static void trim(struct handoff_lease *hl, struct pool_segment *segment);

/* The next one behind it that is longer than what was given; NULL. */
static struct pool_segment *find_next_tail(const struct lease *lease, const struct pool_segment *segment)
{
	for (size_t i = segment->index + 1u; i < lease->segment_count; i++) {
		struct pool_segment *next = lease->segments[i];
		if (next && next->pages > next->given)
			return next;
	}
	return NULL;
}

static void on_trimmed(struct crew_job *job, const struct worker_done *done, void *user)
{
	struct handoff_lease *hl = user; /* no lease ends while one of its segments is busy */
	struct pool_segment *segment = hl->trimmed;
	hl->trimmed = NULL;
	segment->is_busy = false;
	if (done->error < 0 && done->error != -ECANCELED)
		log_warning("segment %" PRIu64 ": its tail cannot be given back: %s", segment->id,
			strerror(-done->error));
	pool_refresh(segment);
	bool goes_on = hl->lease->state != HPZ_STATE_RETURNING && done->error != -ECANCELED;
	struct pool_segment *next = goes_on ? find_next_tail(hl->lease, segment) : NULL;
	if (next)
		trim(hl, next);
	else
		watch_again(hl);
	note_change(hl->handoff);
}

static void trim(struct handoff_lease *hl, struct pool_segment *segment)
{
	/* Our own open and close would look like somebody's. */
	remove_watches(hl);
	int fd = pool_open_segment(segment);
	struct crew_job *job = fd >= 0 ? crew_new_job(WORKER_HELPER, WORKER_TRIM) : NULL;
	if (!job) {
		log_warning("segment %" PRIu64 ": its tail cannot be given back: %s", segment->id,
			strerror(fd < 0 ? -fd : ENOMEM));
		close_fd(fd);
		watch_again(hl);
		return; /* costs the pages, nothing else */
	}
	job->fds[WORKER_FD_SEGMENT] = fd;
	job->fds[WORKER_FD_LOCK] = segment->pool->store->workers_fd;
	job->wire.page_size = segment->pool->config.page_size;
	job->wire.first = segment->given;
	job->wire.pages = segment->pages - segment->given;
	job->deadline_ms = JOB_DEADLINE_MS;
	job->done = on_trimmed;
	job->user = hl;
	hl->trimmed = segment;
	segment->is_busy = true;
	crew_submit(hl->handoff->crew, job);
}

void handoff_trim(struct handoff *handoff, struct pool_segment *segment)
{
	struct handoff_lease *hl = lease_find_of(handoff->leases, segment)->handoff;
	if (!hl->trimmed) /* else it has its turn behind the others */
		trim(hl, segment);
}

/* ---- watching ---- */

/* A lease of an hpzd that is gone: is its owner still the same process? */
static int find_owner_again(struct handoff *handoff, struct lease *lease)
{
	if (lease->pid == 0)
		return -1;
	int pidfd = handoff_open_process(lease->pid, lease->pid_start);
	if (pidfd < 0)
		handoff_return(handoff, lease, "its owner process is gone");
	return pidfd;
}

static void plan_first_look(struct handoff_lease *hl)
{
	struct lease *lease = hl->lease;
	if (lease->state == HPZ_STATE_RETURNING) {
		set_timer(hl, NEXT_RETURN, 0);
	} else if (ends_when_unused(lease)) {
		set_timer(hl, NEXT_UNUSED, lease->is_recovered ? 0 : hl->handoff->grace_ms);
	} else if (lease->deliver == HPZ_DELIVER_PATH && !lease->was_opened && lease->open_timeout_ms > 0) {
		uint64_t age_ms = (clock_get_ns(CLOCK_BOOTTIME) - lease->granted_boot_ns) / NS_PER_MS;
		uint64_t limit_ms = (uint64_t)lease->open_timeout_ms;
		set_timer(hl, NEXT_OPEN_LIMIT, limit_ms > age_ms ? limit_ms - age_ms : 0);
	}
}

static bool was_opened_meanwhile(const struct lease *lease)
{
	for (size_t i = 0; i < lease->segment_count; i++) {
		const struct pool_segment *segment = lease->segments[i];
		char name[SEGMENT_NAME_MAX];
		struct segment_stat st;
		if (!segment)
			continue;
		pool_get_segment_name(segment, name);
		if (segment_stat_at(segment->pool->store, &segment->pool->dirs, SEGMENT_LEASED, name, &st) ==
				0 &&
			st.is_opened)
			return true;
	}
	return false;
}

int handoff_watch(struct handoff *handoff, struct lease *lease, int pidfd)
{
	int r = make_watch(handoff, lease);
	if (r < 0)
		return r;
	_cleanup_fd_ int found = lease->is_recovered && pidfd < 0 ? find_owner_again(handoff, lease) : -1;
	set_owner(lease->handoff, pidfd < 0 ? found : pidfd);
	if (lease->is_recovered && lease->deliver == HPZ_DELIVER_PATH &&
		lease->state != HPZ_STATE_RETURNING) {
		add_watches(lease->handoff);
		if (was_opened_meanwhile(lease))
			lease_set_opened(handoff->leases, lease);
		if (lease->was_opened)
			handoff_exits_search(handoff->exits, lease);
	}
	plan_first_look(lease->handoff);
	return 0;
}

void handoff_set_owner(struct handoff *handoff, struct lease *lease, int pidfd)
{
	set_owner(lease->handoff, pidfd);
}

/* ---- all of it ---- */

static void on_inotify_closed(uv_handle_t *handle)
{
	struct handoff *handoff = handle->data;
	handoff->is_inotify_closed = true;
	call_if_closed(handoff);
}

static void on_owners_closed(void *user)
{
	struct handoff *handoff = user;
	handoff->are_owners_closed = true;
	call_if_closed(handoff);
}

static void on_exits_closed(void *user)
{
	struct handoff *handoff = user;
	handoff->are_exits_closed = true;
	call_if_closed(handoff);
}

/* Of owners and of whoever else holds on to memory. */
static int init_processes(struct handoff *handoff)
{
	const struct handoff_callbacks *callbacks = &handoff->callbacks;
	int r = owner_init(&handoff->owners, handoff->loop);
	if (r < 0)
		return r;
	r = orphan_init(handoff->loop, handoff->crew, handoff->prover, callbacks->changed, callbacks->user,
		&handoff->orphans);
	if (r == 0)
		r = handoff_exits_init(handoff->loop, handoff->crew, &handoff->owners, handoff->leases,
			on_exit_seen, handoff, &handoff->exits);
	if (r < 0)
		owner_close_all(&handoff->owners, NULL, NULL);
	return r;
}

int handoff_init(uv_loop_t *loop, struct crew *crew, struct prover *prover, struct lease_table *leases,
	const struct handoff_callbacks *callbacks, struct handoff **ret_handoff)
{
	struct handoff *handoff = calloc(1, sizeof *handoff);
	if (!handoff)
		return -ENOMEM;
	handoff->loop = loop;
	handoff->crew = crew;
	handoff->prover = prover;
	handoff->leases = leases;
	handoff->callbacks = *callbacks;
	handoff->grace_ms = GRACE_MS;
	for (size_t i = 0; i < WATCH_HASH; i++)
		list_init(&handoff->watches[i]);
	handoff->inotify_fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
	handoff->inotify.data = handoff;
	if (handoff->inotify_fd < 0 || uv_poll_init(loop, &handoff->inotify, handoff->inotify_fd) < 0) {
		int error = errno ? -errno : -EIO;
		close_fd(handoff->inotify_fd);
		free(handoff);
		return error;
	}
	int r = init_processes(handoff);
	if (r < 0) {
		uv_close((uv_handle_t *)&handoff->inotify, NULL);
		close_fd(handoff->inotify_fd);
		return r; /* hpzd does not start; the handle is still in the loop's hands */
	}
	uv_poll_start(&handoff->inotify, UV_READABLE, on_inotify);
	*ret_handoff = handoff;
	return 0;
}

void handoff_close(struct handoff *handoff, void (*closed)(void *user), void *user)
{
	handoff->is_closing = true;
	handoff->closed = closed;
	handoff->closed_user = user;
	LIST_FOR_EACH (pos, &handoff->leases->leases) {
		if (LEASE_OF(pos)->handoff)
			close_watch(LEASE_OF(pos)->handoff);
	}
	orphan_close(handoff->orphans);
	uv_close((uv_handle_t *)&handoff->inotify, on_inotify_closed);
	handoff_exits_close(handoff->exits, on_exits_closed, handoff);
	owner_close_all(&handoff->owners, on_owners_closed, handoff);
}

void handoff_free(struct handoff *handoff)
{
	if (!handoff)
		return;
	close_fd(handoff->inotify_fd);
	orphan_free(handoff->orphans);
	handoff_exits_free(handoff->exits);
	free(handoff);
}
