/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * change.h - a lease gets another size: it grows by a segment, or its end comes back.
 */
#ifndef HPZ_CHANGE_H
#define HPZ_CHANGE_H

#include "ask.h"

/* The handler of HPZ_OP_CHANGE. */
enum request_outcome change_handle(struct requests *requests, struct session *session,
	const struct request_peer *peer, const struct hpz_wire_head *head, const void *payload);

#endif
