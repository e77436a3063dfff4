/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * ask.h - requests for memory: lease, reserve; those that wait for it.
 */
#ifndef HPZ_ASK_H
#define HPZ_ASK_H

#include "answer.h"

/* Of requests->shares. `change` NULL: it is none. */
enum request_outcome ask_shares(struct requests *requests, struct session *session,
	const struct request_peer *peer, const struct hpz_wire_head *head, const struct hpz_wire_lease *wire,
	const struct hpz_wire_change *change);

/* The handlers. */
enum request_outcome ask_handle_lease(struct requests *requests, struct session *session,
	const struct request_peer *peer, const struct hpz_wire_head *head, const void *payload);
enum request_outcome ask_handle_reserve(struct requests *requests, struct session *session,
	const struct request_peer *peer, const struct hpz_wire_head *head, const void *payload);
enum request_outcome ask_handle_unreserve(struct requests *requests, struct session *session,
	const struct request_peer *peer, const struct hpz_wire_head *head, const void *payload);

/* Of one that waits. */
struct attempt ask_make_attempt(struct request *request);

/* Memory may have become clean. */
void ask_serve(struct requests *requests);

#endif
