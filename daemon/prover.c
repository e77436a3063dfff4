/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* prover.c - loads the proof's program and learns, per page size, what files look like when nobody holds
 * them. */
#include <fcntl.h>
#include <inttypes.h>

#include "log.h"
#include "prover.h"

#define PAGE_SIZES_MAX 8
#define LESSON_TRIES   5 /* errors before nobody waits for the lesson any more */
#define AGAIN_MIN_S    30
#define AGAIN_MAX_S    600 /* each try may take a page from the stock for a moment */

struct lesson {
	uint64_t page_size; /* 0: no such */
	struct proof_facts facts;
	bool is_learned, is_refused, is_running;
	unsigned failures;
	uint64_t not_before_ns; /* CLOCK_MONOTONIC */
};

struct prover {
	struct crew *crew;
	struct journal *journal;
	void (*changed)(void *user);
	void *user;
	int program;      /* -1: not loaded */
	char why[96];     /* why the full proof does not work here */
	bool lease_works; /* F_SETLEASE; until shown otherwise */
	bool is_closing, is_simulated;
	struct lesson lessons[PAGE_SIZES_MAX];
};

static struct lesson *find_lesson(const struct prover *prover, uint64_t page_size)
{
	for (size_t i = 0; i < PAGE_SIZES_MAX; i++) {
		if (prover->lessons[i].page_size == page_size)
			return (struct lesson *)&prover->lessons[i];
	}
	return NULL;
}

static struct lesson *make_lesson(struct prover *prover, uint64_t page_size)
{
	struct lesson *lesson = find_lesson(prover, page_size);
	if (!lesson)
		lesson = find_lesson(prover, 0);
	if (lesson)
		lesson->page_size = page_size;
	return lesson;
}

static bool can_prove(const struct prover *prover, const struct lesson *lesson)
{
	return prover->program >= 0 && lesson && lesson->is_learned;
}

/* Failed too often for anybody to wait for the next try. */
static bool is_put_off(const struct lesson *lesson)
{
	return lesson->failures >= LESSON_TRIES && clock_get_ns(CLOCK_MONOTONIC) < lesson->not_before_ns;
}

void prover_set_simulated(struct prover *prover)
{
	prover->is_simulated = true;
}

bool prover_is_full(const struct prover *prover, enum proof_source source)
{
	return source == PROOF_BPF || prover->is_simulated;
}

enum prover_lesson prover_get_lesson(const struct prover *prover, uint64_t page_size)
{
	const struct lesson *lesson = find_lesson(prover, page_size);
	if (prover->is_simulated)
		return PROVER_LESSON_OVER;
	if (!lesson)
		return PROVER_LESSON_DUE;
	if (lesson->is_running)
		return PROVER_LESSON_RUNNING;
	bool is_over = lesson->is_refused || can_prove(prover, lesson) || is_put_off(lesson);
	return is_over ? PROVER_LESSON_OVER : PROVER_LESSON_DUE;
}

uint64_t prover_get_delay_ms(const struct prover *prover, uint64_t page_size)
{
	const struct lesson *lesson = find_lesson(prover, page_size);
	if (!lesson || !is_put_off(lesson) || lesson->is_refused || can_prove(prover, lesson))
		return UINT64_MAX;
	return (lesson->not_before_ns - clock_get_ns(CLOCK_MONOTONIC)) / NS_PER_MS + 1;
}

bool prover_needs_page(const struct prover *prover, uint64_t page_size)
{
	const struct lesson *lesson = find_lesson(prover, page_size);
	return !lesson || !lesson->is_learned;
}

static void refuse_lesson(struct prover *prover, struct lesson *lesson, const char *why)
{
	lesson->is_refused = true;
	snprintf(prover->why, sizeof prover->why, "%s", why);
	log_warning("memory cannot be proven free by the kernel's counts here: %s; see reuse in hpzd.conf(5)",
		why);
}

/* The n-th failure of a kind that may pass: soon again, then slower and slower, and status says so. */
static void put_off_lesson(struct prover *prover, struct lesson *lesson, const char *why)
{
	uint64_t delay_s = 1;
	if (++lesson->failures >= LESSON_TRIES) {
		delay_s = MIN((uint64_t)AGAIN_MIN_S << MIN(lesson->failures - LESSON_TRIES, 8u), AGAIN_MAX_S);
		snprintf(prover->why, sizeof prover->why, "failed %u times, tried again in %" PRIu64 " s: %s",
			lesson->failures, delay_s, why);
		log_warning(
			"memory cannot be proven free by the kernel's counts yet: learning %s", prover->why);
	}
	lesson->not_before_ns = clock_get_ns(CLOCK_MONOTONIC) + delay_s * NS_PER_S;
}

static bool is_impossible(int error)
{
	return error == -EOPNOTSUPP || error == -EPERM;
}

/* Of no page to learn on, or of our own stop, nothing follows for the method. */
static bool is_no_failure(const struct lesson *lesson, int error)
{
	return error == -ECANCELED || (error == -ENOSPC && lesson->failures < LESSON_TRIES);
}

static void write_facts(struct journal *journal, const struct proof_facts *facts)
{
	struct journal_facts record = {sizeof record, facts->stride, facts->page_size, facts->writes,
		facts->reads, facts->inodes, facts->names, facts->base, facts->unlinked_names};
	journal_append(journal, JOURNAL_FACTS, &record, sizeof record, NULL, 0);
}

/* What was learned is written down; a lesson that cost nothing but pages that were not there is tried again.
 */
static void on_learned(struct crew_job *job, const struct worker_done *done, void *user)
{
	struct prover *prover = user;
	struct lesson *lesson = find_lesson(prover, job->wire.page_size);
	lesson->is_running = false;
	if (prover->program < 0)
		prover->program = steal_fd(&job->sent[0]);
	if (prover->is_closing)
		return;
	if (done->error == 0) {
		if (!lesson->is_learned)
			write_facts(prover->journal, &done->facts);
		lesson->facts = done->facts;
		lesson->is_learned = true;
		lesson->failures = 0;
		prover->why[0] = '\0';
		log_info("proof: pages of %" PRIu64 " KiB have %" PRId32
			 " references when nobody holds them, index unit %" PRIu32,
			lesson->page_size / 1024, lesson->facts.base, lesson->facts.stride);
	} else if (is_no_failure(lesson, done->error)) {
		lesson->not_before_ns = clock_get_ns(CLOCK_MONOTONIC) + NS_PER_S;
	} else {
		const char *why = done->why[0] ? done->why : strerror(-done->error);
		(is_impossible(done->error) ? refuse_lesson : put_off_lesson)(prover, lesson, why);
	}
	prover->changed(prover->user);
}

void prover_skip_time(struct prover *prover)
{
	for (size_t i = 0; i < PAGE_SIZES_MAX; i++)
		prover->lessons[i].not_before_ns = 0;
}

void prover_learn(struct prover *prover, const struct segment_store *store)
{
	struct lesson *lesson = make_lesson(prover, store->page_size);
	if (!lesson || lesson->is_running || clock_get_ns(CLOCK_MONOTONIC) < lesson->not_before_ns)
		return;
	struct crew_job *job = crew_new_job(WORKER_HELPER, WORKER_LEARN);
	int dir = job ? fcntl(store->format_fd, F_DUPFD_CLOEXEC, 3) : -1;
	if (dir < 0) {
		crew_free_job(job);
		return;
	}
	job->fds[WORKER_FD_DIR] = dir;
	job->fds[WORKER_FD_LOCK] = store->workers_fd;
	job->fds[WORKER_FD_PROGRAM] = prover->program;
	job->wire.page_size = store->page_size;
	job->wire.facts = lesson->facts;
	job->done = on_learned;
	job->user = prover;
	lesson->is_running = true;
	crew_submit(prover->crew, job);
}

void prover_read_record(struct prover *prover, enum journal_type type, const void *payload, size_t bytes)
{
	const struct journal_facts *record = payload;
	if (type != JOURNAL_FACTS || bytes < sizeof *record || record->unlinked_names == 0)
		return;
	struct lesson *lesson = make_lesson(prover, record->page_size);
	if (!lesson)
		return;
	lesson->facts = (struct proof_facts){
		.page_size = record->page_size,
		.writes = record->writes,
		.reads = record->reads,
		.inodes = record->inodes,
		.names = record->names,
		.unlinked_names = record->unlinked_names,
		.base = record->base,
		.stride = record->stride,
	};
	lesson->is_learned = true;
}

void prover_write_all(const struct prover *prover, struct journal *journal)
{
	for (size_t i = 0; i < PAGE_SIZES_MAX; i++) {
		if (prover->lessons[i].is_learned)
			write_facts(journal, &prover->lessons[i].facts);
	}
}

static bool has_full_proof(const struct prover *prover)
{
	for (size_t i = 0; i < PAGE_SIZES_MAX; i++) {
		if (prover->lessons[i].page_size && can_prove(prover, &prover->lessons[i]))
			return true;
	}
	return false;
}

const char *prover_get_source(const struct prover *prover)
{
	if (has_full_proof(prover))
		return proof_get_source_name(PROOF_BPF);
	return proof_get_source_name(prover->lease_works ? PROOF_FILE_LEASE : PROOF_NONE);
}

const char *prover_get_gap(const struct prover *prover)
{
	return prover->why;
}

const struct proof_facts *prover_find(const struct prover *prover, uint64_t page_size, int *ret_program)
{
	const struct lesson *lesson = find_lesson(prover, page_size);
	bool is_known = can_prove(prover, lesson);
	*ret_program = is_known ? prover->program : -1;
	return is_known ? &lesson->facts : NULL;
}

void prover_note_no_lease(struct prover *prover)
{
	prover->lease_works = false;
}

struct prover *prover_new(struct crew *crew, void (*changed)(void *user), void *user)
{
	struct prover *prover = calloc(1, sizeof *prover);
	if (!prover)
		return NULL;
	prover->crew = crew;
	prover->changed = changed;
	prover->user = user;
	prover->program = -1;
	prover->lease_works = true;
	return prover;
}

void prover_set_journal(struct prover *prover, struct journal *journal)
{
	prover->journal = journal;
}

void prover_close(struct prover *prover)
{
	prover->is_closing = true;
}

void prover_free(struct prover *prover)
{
	if (!prover)
		return;
	close_fd(prover->program);
	free(prover);
}
