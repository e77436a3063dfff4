/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * work.h - what workers do to segments: filling, clearing, calibrating; and what comes of it.
 * Reconcile decides which segment is next and how urgent a pool is; here a segment becomes jobs, and their
 * answers become one verdict: clean, again, or back to the kernel. Owns all memory jobs but those that
 * verify, and what calibration found.
 */
#ifndef HPZ_WORK_H
#define HPZ_WORK_H

#include "crew.h"
#include "pool.h"

struct work_callbacks {
	/* Something changed that a look at the pools may act upon; in delay_ms at the latest. */
	void (*look)(uint64_t delay_ms, void *user);
	void *user;
};

/* How fast each method is, measured by a worker of that node. */
struct work_calibration {
	int32_t node;
	uint64_t page_size; /* 0: on ordinary memory, at start; else on the pool's pages */
	bool is_running, is_over;
	unsigned deaths;         /* workers lost over it */
	int method;              /* the row of zero_methods in force; -1: none works */
	struct worker_done done; /* error, method (the best), gb_per_s, batch_ns */
};

struct work {
	uv_loop_t *loop;
	const struct host *host;
	struct crew *crew;
	struct work_callbacks callbacks;
	bool is_stopping;
	bool is_simulated; /* no page is ever allocated */

	char wanted_method[32]; /* config: "auto" or a name */
	bool may_zero_free;     /* the kernel may be had zero its free pages, where it can */
	struct work_calibration *calibrations;
	size_t calibration_count;

	uint64_t bytes_cleared, bytes_filled, bytes_zeroed_free;
};

void work_init(struct work *work, uv_loop_t *loop, const struct host *host, struct crew *crew,
	const struct work_callbacks *callbacks);
void work_deinit(struct work *work);
/* Before the crew is stopped: jobs that are stopped now leave their segments where they are. */
void work_stop(struct work *work);

/* ---- jobs ---- */

/*
 * Begins, or goes on with, the segment as a whole: a fill in filling/, clearing in dirty/. It is busy until
 * the work is over, which callbacks.look tells. Opens it itself unless a descriptor is given
 * (work_fill_take).
 */
void work_fill(struct work *work, struct pool_segment *segment);
void work_fill_take(struct work *work, struct pool_segment *segment, int fd);
void work_clear(struct work *work, struct pool_segment *segment);
/* Stops it between two batches. What is done stays done. */
void work_cancel(struct work *work, struct pool_segment *segment);
/* Whether the pool's workers can do with one more segment. */
bool work_has_room(const struct work *work, const struct pool *pool);
/*
 * The level of all that is under way in the pool: urgent for segments that are wanted, else as the plan says.
 * A worker at it is lifted or lowered from outside.
 */
void work_set_levels(struct work *work, struct pool *pool);
/* Idle, and nothing else to do: a few of the kernel's free pages are zeroed beforehand, where it offers that.
 */
void work_zero_free(struct work *work, struct pool *pool);

/* ---- what becomes of a segment ---- */

/* Back to the kernel, unlinked and forgotten; it is told why. */
void work_discard(struct pool_segment *segment, const char *why);
/*
 * A segment that is not leased and cannot be trusted: unlinked, counted, told of. The kernel keeps what is
 * broken of it to itself; the stock is filled up with another one.
 */
void work_retire(struct pool_segment *segment, const struct worker_done *done, const char *why);
/* No work on it for a second. */
void work_put_off(struct pool_segment *segment);
/* Whether it is too early; then there will be a look in time. */
bool work_is_put_off(const struct work *work, uint64_t retry_ns);
uint64_t work_get_missing(const struct pool_segment *segment); /* pages */

/* ---- calibration ---- */

/* "auto" or the name of a row; at once, for all that is cleared from now on. */
void work_set_method(struct work *work, const char *method);
/* On ordinary memory of a node, unless that was done already. */
void work_calibrate_node(struct work *work, int32_t node);
/* On the pages of a dirty segment: it stays dirty. False: they do not serve for that. */
bool work_calibrate_segment(struct work *work, struct pool_segment *segment);
bool work_can_calibrate(const struct pool_segment *segment);
/* On the pool's pages if that was measured, else on ordinary memory of the node; NULL: not known yet.
 * Borrowed until the next one begins. */
const struct work_calibration *work_find_calibration(
	const struct work *work, int32_t node, uint64_t page_size);
/* The row to clear with; -1: none works, or none is known yet. */
int work_get_method(const struct work *work, const struct pool *pool);

#endif
