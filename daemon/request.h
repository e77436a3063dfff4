/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * request.h - what a client may ask, as a table of handlers that return replies.
 * What is asked of memory is in ask, change and preview; here is the rest. Knows nothing of sockets: a
 * session is a pointer it compares and gives back.
 */
#ifndef HPZ_REQUEST_H
#define HPZ_REQUEST_H

#include "desk.h"

void request_init(struct requests *requests, uv_loop_t *loop, const struct host *host,
	const struct config *config, struct crew *crew, struct lease_table *leases, struct handoff *handoff,
	struct reconcile *reconcile, struct books *books,
	void (*send)(struct session *session, struct request_reply *reply));
void request_deinit(struct requests *requests);

/* One message of a session whose hello is done or due. `unread_lease`: descriptors it has not confirmed; 0
 * none. */
enum request_outcome request_handle(struct requests *requests, struct session *session,
	const struct request_peer *peer, const void *message, size_t length, uint64_t unread_lease);
/* The hello, first of all messages; *ret_capabilities: what the client can, 0 if it is refused. */
enum request_outcome request_handle_hello(
	struct requests *requests, const void *message, size_t length, uint64_t *ret_capabilities);

/* What the operations have behind their heads; HELLO apart. */
union request_payload {
	unsigned char bytes[HPZ_WIRE_MAX_REQUEST];
	struct hpz_wire_lease lease;
	struct hpz_wire_empty empty;
	struct hpz_wire_ack ack;
	struct hpz_wire_release release;
	struct hpz_wire_adopt adopt;
	struct hpz_wire_change change;
	struct hpz_wire_list list;
	struct hpz_wire_wait wait;
	struct hpz_wire_drain drain;
	struct hpz_wire_check check;
	struct hpz_wire_verify verify;
	struct hpz_wire_set set;
	struct hpz_wire_calibrate calibrate;
	struct hpz_wire_resize resize;
	struct hpz_wire_demand demand;
	struct hpz_wire_teardown teardown;
	struct hpz_wire_metrics metrics;
	struct hpz_wire_events events;
};
/*
 * The payload of a message whose head proto_get_head() has taken, after all checks of its operation. 0 or
 * enum hpz_error; *ret_why is set either way, and static. Pure.
 */
int request_read_payload(const struct hpz_wire_head *head, const void *message, size_t length,
	union request_payload *ret_payload, const char **ret_why);

/* The session is gone: its waiting requests are dropped, leases bound to it end. */
void request_cancel_session(struct requests *requests, struct session *session);
/* The reply with this lease's descriptors could not be sent: nobody has them. */
void request_take_back(struct requests *requests, uint64_t lease);

/* Events from below. */
void request_settle(struct requests *requests);  /* states are settled: who waits for a state? */
void request_checked(struct requests *requests); /* a check is over */
/* Whether somebody waits for events. */
bool request_is_followed(const struct requests *requests);
void request_lease_ended(struct requests *requests, uint64_t lease);

#endif
