/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * harness.h - hpzd without its main(): requests and all rooms below them on a loop of the test's own, with no
 * pool, or with one on tmpfs (or a hugetlbfs mount) whose pages of 4096 bytes are filled by hand; and clients
 * that speak raw bytes. Workers are real (HPZ_TEST_HPZD), but get no job unless harness_release() is called.
 */
#ifndef HPZ_TEST_HARNESS_H
#define HPZ_TEST_HARNESS_H

#include "ask.h"
#include "listener.h"
#include "store.h"

#define HARNESS_BOOT_ID "01234567-89ab-cdef-0123-456789abcdef"
#define HARNESS_SECONDS 20 /* for anything to happen, on a busy machine */

struct harness {
	uv_loop_t loop;
	struct host host;
	struct list stores;
	struct crew *crew;
	struct prover *prover;
	struct books books;
	struct config config;
	struct lease_table leases;
	struct handoff *handoff;
	struct teardown teardown;
	struct journal *journal;
	struct reconcile reconcile;
	struct requests requests;
	char dir[TEMP_PATH];
};
extern struct harness harness;

/* Set before harness_open(): another machine than store_get_host()'s; NULL: that one. */
extern const struct host *harness_host;
/* Set before harness_open(): a hugetlbfs mount that the pool's files are on; NULL: a directory on tmpfs. */
extern const char *harness_mount;
/* Set at any time: called before each look at the pools. */
extern void (*harness_before_look)(void);

/* `send` NULL: session_send. */
void harness_open(void (*send)(struct session *session, struct request_reply *reply));
/* Stops everything as hpzd does, runs the loop to its end and checks that nothing is left of it. */
void harness_close(void);
/* Lets workers have their jobs. */
void harness_release(void);

/* A pool named "p" of `pages` as its stock; nothing is filled but by harness_put_clean(). */
struct pool *harness_add_pool(const struct config_pool *config);
/* `count` clean segments of so many pages; the requests hear of them with the next turn of the loop. */
void harness_put_clean(struct pool *pool, unsigned count, uint64_t pages);

/* One turn of the loop that does not wait; until a condition holds (or the test fails); for some time. */
void harness_turn(void);
void harness_run_until(bool (*condition)(void *user), void *user);
void harness_run_ms(uint64_t ms);

unsigned harness_count_fds(void);

/* ---- a message ---- */

struct message {
	size_t length;
	_Alignas(8) unsigned char bytes[HPZ_WIRE_MAX_MESSAGE + 64];
};
#define HARNESS_PAYLOAD(message) ((void *)((message)->bytes + sizeof(struct hpz_wire_head)))

/* head and payload; returns the message. */
struct message *harness_make(
	struct message *message, uint16_t op, uint64_t id, const void *payload, size_t size);
struct message *harness_make_hello(struct message *message);
struct message *harness_make_empty(struct message *message, uint16_t op, uint64_t id);
struct message *harness_make_lease(struct message *message, uint64_t id, uint64_t pages, int64_t timeout_ms);
struct hpz_wire_lease harness_get_lease(uint64_t pages, int64_t timeout_ms);

struct hpz_wire_head harness_get_head(const struct message *message);
/* The reply is an error of that number; its text. */
__attribute__((returns_nonnull)) const char *harness_expect_error(
	const struct message *message, uint16_t op, uint64_t id, int error);
void harness_expect_ok(const struct message *message, uint16_t op, uint64_t id);

/* ---- a client ---- */

/* A connected, non-blocking socket whose other end is a session. */
int harness_connect(void);
void harness_send(int sock, const struct message *message);
/* Runs the loop until a packet is there. False: the end of the connection. */
bool harness_receive(int sock, struct message *ret_message);
void harness_expect_end(int sock);
/* hello said and answered. */
int harness_greet(void);

#endif
