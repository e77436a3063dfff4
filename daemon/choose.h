/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * choose.h - which pools are to serve a request: its node, page size, cells.
 */
#ifndef HPZ_CHOOSE_H
#define HPZ_CHOOSE_H

#include "hold.h"

/* Any fits HPZ_WIRE_NODE_ANY. */
bool choose_fits_node(const struct pool *pool, int32_t node);

/* More than that can never be given in one lease. */
uint64_t choose_get_most(const struct pool *pool);

/* No pool is for it: why. */
enum request_outcome choose_refuse(
	struct requests *requests, const struct hpz_wire_head *head, const struct hpz_wire_lease *wire);

/* Who is to serve it, in requests->shares. False: the refusal is in requests->reply. */
bool choose_shares(struct requests *requests, const struct hpz_wire_head *head,
	const struct hpz_wire_lease *wire, const struct request_peer *peer);

/* A node that could serve what a strict one cannot; -1: none. */
int32_t choose_find_other(struct requests *requests, const struct attempt *attempt);

/* One that may have any node, or prefers one, takes what comes first. */
void choose_again(struct requests *requests, struct request *request);

#endif
