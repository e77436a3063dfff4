/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * asker.h - a client of the harness's requests without a socket: bytes in, reply out. With no pool, and with
 * one on tmpfs, which can hand out paths.
 */
#ifndef HPZ_TEST_ASKER_H
#define HPZ_TEST_ASKER_H

#include "harness.h"

/* Sessions are pointers that are compared and given back. */
#define SESSION(n) ((struct session *)(uintptr_t)((n)*16))

extern struct message in, out;
extern uint64_t unread_lease;

/* Replies of requests that waited. */
struct sent {
	size_t count;
	struct session *sessions[16];
	struct message replies[16];
};
extern struct sent sent;

extern const struct request_peer root, somebody;
extern const struct request_peer knower; /* root, and knows what is zeroed for it */

/* One segment of 8 pages and four of 1 are its stock. */
extern struct pool *pool;
extern const struct config_pool config;

int setup(void **state);
int setup_pool(void **state);
int teardown(void **state);

#define TEST(name)      cmocka_unit_test_setup_teardown(name, setup, teardown)
#define TEST_POOL(name) cmocka_unit_test_setup_teardown(name, setup_pool, teardown)

/* The reply, if there is one already, is in `out`. */
enum request_outcome ask_as(
	struct session *session, const struct request_peer *peer, const struct message *message);
/* One of that operation that is right. False: there is none. */
bool make_request(uint16_t op, struct message *message);
/* As root. */
enum request_outcome ask(const struct message *message);
enum request_outcome ask_flags(
	const struct request_peer *peer, uint16_t op, uint64_t pages, uint32_t flags, int64_t timeout_ms);
/* The reply in `out`, which is not that of a request that waited. */
void take_reply(void);
/* For harness_run_until(): whether so many (size_t) that waited were answered. */
bool has_sent(void *wanted);
/* Of those that waited, the first is 1. */
const struct message *wait_reply(size_t number);

/* One segment of so many pages, by path; the id of the lease. */
uint64_t expect_leased(const struct message *message, uint64_t id, uint64_t pages);

#endif
