/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * grant.h - what is kept for a request becomes a lease, a larger lease, or a reservation.
 * Hands out, and takes back what could not be handed out. Makes no replies.
 */
#ifndef HPZ_GRANT_H
#define HPZ_GRANT_H

#include "hold.h"

/*
 * The process that is to own a lease: -ESRCH there is none, -EACCES it is somebody else's and the peer no
 * admin. *ret_pidfd is the peer's, or *ret_opened, which is the caller's.
 */
int grant_find_owner(const struct requests *requests, const struct hpz_wire_lease *wire,
	const struct request_peer *peer, struct lease *draft, int *ret_pidfd, int *ret_opened);

/* Who is to have what, as far as it needs no look at the system. */
void grant_fill_draft(
	const struct hpz_wire_lease *wire, const struct request_peer *peer, struct lease *draft);

/* Whether it ends with its connection. */
bool grant_is_bound(const struct lease *lease);

/* Its descriptors come behind those that are in the reply. */
int grant_deliver(struct requests *requests, struct lease *lease, bool is_new);

/* What the client does not have yet, in the reply. Those from `first_new` on are new. */
int grant_deliver_from(struct requests *requests, struct lease *lease, size_t known, size_t first_new);

/* Of all of its leases together. */
uint64_t grant_get_bytes(const struct attempt *attempt);

/* 0: attempt->leases. -EINPROGRESS: what is kept for it is being read or zeroed; -EAGAIN: there is not
 * enough.
 */
int grant_lease(struct requests *requests, struct attempt *attempt);

#endif
