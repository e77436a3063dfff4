/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * answer.h - what is said to a request for memory: what it got, or why not.
 * Teaches the stock what came of it.
 */
#ifndef HPZ_ANSWER_H
#define HPZ_ANSWER_H

#include "choose.h"
#include "grant.h"

/* A lease; its descriptors are in the reply already. */
enum request_outcome answer_leased(struct requests *requests, const struct hpz_wire_head *head,
	const struct request_peer *peer, const struct lease *lease, uint64_t ready, uint64_t zeroed);

/* Segments of it from the one after `known` on; `news`: what of it is to be said besides. */
enum request_outcome answer_changed(struct requests *requests, const struct request_peer *peer,
	const struct hpz_wire_head *head, const struct lease *lease, uint32_t known,
	const struct hpz_wire_changed *news);

/* Node, page size, asked, clean, waiting, and what would help, of a share. */
void answer_explain_short(
	struct requests *requests, const struct attempt *attempt, size_t index, enum planner_reason reason);

/* It cannot be given, or not in time: the error, node, page size, and what would help. */
enum request_outcome answer_short(struct requests *requests, const struct hpz_wire_head *head, int error,
	const struct attempt *attempt);

/* grant_find_owner() failed with r. */
enum request_outcome answer_no_owner(
	struct requests *requests, const struct hpz_wire_head *head, int r, int32_t pid);

/* grant_lease() failed with r, and not for want of memory. */
enum request_outcome answer_refused(
	struct requests *requests, const struct hpz_wire_head *head, int r, const struct attempt *attempt);

/* The same key again: the same lease, however often the answer got lost. */
enum request_outcome answer_key(struct requests *requests, struct session *session,
	const struct request_peer *peer, const struct hpz_wire_head *head, const struct hpz_wire_lease *wire,
	struct lease *lease);

/*
 * What was clean counts as ready only for who did not have to wait. Which of a bulk were is not told apart:
 * the sums are right.
 */
enum request_outcome answer_granted(struct requests *requests, const struct hpz_wire_head *head,
	const struct attempt *attempt, bool has_waited);

#endif
