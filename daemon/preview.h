/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * preview.h - what would come of a request for memory; takes nothing.
 */
#ifndef HPZ_PREVIEW_H
#define HPZ_PREVIEW_H

#include "answer.h"

/* The handler of HPZ_OP_PLAN. */
enum request_outcome preview_handle(struct requests *requests, struct session *session,
	const struct request_peer *peer, const struct hpz_wire_head *head, const void *payload);

#endif
