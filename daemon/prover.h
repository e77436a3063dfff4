/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * prover.h - loads the proof's program and learns, per page size, what files look like when nobody holds
 * them. Owns the program and the facts. Looks at no segment: whoever does asks for both (prover_find).
 */
#ifndef HPZ_PROVER_H
#define HPZ_PROVER_H

#include "crew.h"
#include "journal.h"

struct prover;

/* `changed` is called when a lesson ends. */
struct prover *prover_new(struct crew *crew, void (*changed)(void *user), void *user);
/* No lesson will take place, since it would take a real page: nobody is to wait for one. */
void prover_set_simulated(struct prover *prover);
/* Where facts are written from now on. */
void prover_set_journal(struct prover *prover, struct journal *journal);
void prover_close(struct prover *prover); /* answers are not acted on any more */
void prover_free(struct prover *prover);

/*
 * DUE: prover_learn() starts the lesson, given a free page; while it runs no page should be taken from the
 * kernel. OVER: learned, or found impossible here, or failed so often that nobody is to wait for it: then it
 * is DUE again after some time, which grows from half a minute to ten, for ever.
 */
enum prover_lesson { PROVER_LESSON_DUE, PROVER_LESSON_RUNNING, PROVER_LESSON_OVER };
enum prover_lesson prover_get_lesson(const struct prover *prover, uint64_t page_size);
/* Until a lesson that is OVER is DUE again; UINT64_MAX: it will not be. */
uint64_t prover_get_delay_ms(const struct prover *prover, uint64_t page_size);
void prover_learn(struct prover *prover, const struct segment_store *store);
/* For tests: what is put off is due. */
void prover_skip_time(struct prover *prover);
/* Whether the lesson still needs a page: an earlier hpzd of this boot may have had it. */
bool prover_needs_page(const struct prover *prover, uint64_t page_size);

/* Facts of this boot, from the journal and to it. */
void prover_read_record(struct prover *prover, enum journal_type type, const void *payload, size_t bytes);
void prover_write_all(const struct prover *prover, struct journal *journal);

/* The facts of a page size and the program (lent); NULL and -1: the full proof is not in force. */
const struct proof_facts *prover_find(const struct prover *prover, uint64_t page_size, int *ret_program);
/* Whether what a look of that source found free is proven so; what is simulated nobody can write to or read.
 */
bool prover_is_full(const struct prover *prover, enum proof_source source);
/* F_SETLEASE was found not to work on this kernel. */
void prover_note_no_lease(struct prover *prover);

/* The strongest source in force: "bpf", "f_setlease", "none"; and why the full one is not, "" if it is or may
 * be. */
const char *prover_get_source(const struct prover *prover);
const char *prover_get_gap(const struct prover *prover);

#endif
