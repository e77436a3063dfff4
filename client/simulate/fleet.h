/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * fleet.h - hosts on paper, all with the same pools, and the VMs of a trace that start and end on them.
 * Every start is answered as hpzd would: the same planner on the same kind of inventory, the same queue, the
 * same stock. Beside it the same start without hpz: pages of the kernel's that it zeroes then. Memory is
 * bounded by hosts and living VMs.
 */
#ifndef HPZ_SIMULATE_FLEET_H
#define HPZ_SIMULATE_FLEET_H

#include "depot.h"
#include "profile.h"
#include "tally.h"
#include "trace.h"

#define FLEET_FOREVER UINT64_MAX

/* The stock of one pool, as struct config_pool has it. */
struct fleet_stock {
	struct config_stock entries[CONFIG_STOCK_MAX];
	size_t count; /* 0: as a pool without a stock of its own has it */
	bool is_learned;
};

struct fleet_options {
	const struct config *config; /* its pools, on every host */
	struct depot_rates rates;
	unsigned workers;     /* of each node */
	uint64_t patience_ns; /* 0: no start waits for more than zeroing; FLEET_FOREVER */
	bool takes_segments;  /* several of them will do */
	uint64_t hosts_max;   /* rows of further hosts are passed over; 0: all */

	/* Told of each start when it is known what became of it; NULL: nobody wants to know. */
	void (*told)(unsigned long line, const struct tally_start *start, void *user);
	/* Told of each plan that was carried out or led to waiting; NULL. */
	void (*planned)(const struct planner_input *input, const struct planner_request *request,
		const struct planner_plan *plan, void *user);
	void *user;
};

struct fleet_facts {
	uint64_t hosts, skipped_rows;
	uint64_t living_most;       /* VMs at once, on all hosts */
	uint64_t first_ns, last_ns; /* starts */
};

struct fleet;

/* Stocks one a pool of the config. Options are copied, what they point to is borrowed. 0 or -ENOMEM. */
int fleet_new(
	const struct fleet_options *options, const struct fleet_stock *stocks, struct fleet **ret_fleet);
void fleet_free(struct fleet *fleet);

/* A row of the trace, never earlier than the one before. 0 or -ENOMEM. */
int fleet_start(struct fleet *fleet, const struct trace_row *row);
/* There are no more: what is under way comes to its end. 0 or -ENOMEM. */
int fleet_finish(struct fleet *fleet);

const struct tally *fleet_get_tally(const struct fleet *fleet);
/* What was asked for; after fleet_finish(). */
const struct profile *fleet_get_profile(const struct fleet *fleet);
const struct fleet_facts *fleet_get_facts(const struct fleet *fleet);

static inline void fleet_cleanup(struct fleet **fleet)
{
	fleet_free(*fleet);
}
#define _cleanup_fleet_ __attribute__((cleanup(fleet_cleanup)))

#endif
