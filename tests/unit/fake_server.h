/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * fake_server.h - a scripted peer for tests of libhpz: it says what a real hpzd never says. Header only.
 * A script runs in a thread of its own and never fails a test by itself: it notes what was wrong first, and
 * fake_join() fails in the test's thread. It is no model of hpzd, and what hpzd really does is tested with
 * hpzd.
 */
#ifndef HPZ_FAKE_SERVER_H
#define HPZ_FAKE_SERVER_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "frame.h"
#include "hpz.h"
#include "proto.h"
#include "util.h"

static char fake_directory[64];

/* For cmocka_run_group_tests(): a directory for the sockets. */
static inline int fake_setup(void **state)
{
	strcpy(fake_directory, "/tmp/hpz-test.XXXXXX");
	return mkdtemp(fake_directory) ? 0 : -1;
}

static inline int fake_teardown(void **state)
{
	return rmdir(fake_directory);
}

static inline void fake_make_path(char *path, size_t size, const char *name)
{
	snprintf(path, size, "%s/%s", fake_directory, name);
}

struct fake {
	char path[96];
	int listener, sock;
	pthread_t thread;
	void (*serve)(struct fake *fake, void *data);
	void *data;
	const char *failure; /* the first thing that was not as the script expects */
	uint64_t id;         /* of the request in hand */
	struct hpz_wire_head head;
	uint8_t request[HPZ_WIRE_MAX_REQUEST];
	size_t request_length;
};

static inline void fake_fail(struct fake *fake, const char *failure)
{
	if (!fake->failure)
		fake->failure = failure;
}

static inline void *fake_run(void *data)
{
	struct fake *fake = data;

	fake->serve(fake, fake->data);
	fake->sock = close_fd(fake->sock);
	return NULL;
}

static inline void fake_listen(struct fake *fake)
{
	static unsigned count;
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	*fake = (struct fake){.sock = -1};
	snprintf(fake->path, sizeof(fake->path), "%s/%u", fake_directory, count++);
	strcpy(address.sun_path, fake->path);
	fake->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	assert_true(fake->listener >= 0);
	assert_int_equal(bind(fake->listener, (struct sockaddr *)&address, sizeof(address)), 0);
	assert_int_equal(listen(fake->listener, 5), 0);
}

static inline void fake_start(struct fake *fake, void (*serve)(struct fake *, void *), void *data)
{
	fake_listen(fake);
	fake->serve = serve;
	fake->data = data;
	assert_int_equal(pthread_create(&fake->thread, NULL, fake_run, fake), 0);
}

/* Ends the script; fails the test if anything was not as the script wanted it. */
static inline void fake_join(struct fake *fake)
{
	pthread_join(fake->thread, NULL);
	close_fd(fake->listener);
	unlink(fake->path);
	if (fake->failure)
		fail_msg("the scripted peer: %s", fake->failure);
}

/* ---- for scripts ---- */

/* Receives a request; with `size` > 0 its payload, which must be exactly the struct. */
static inline void fake_expect(struct fake *fake, uint16_t op, void *payload, size_t size)
{
	int r = frame_receive(
		fake->sock, fake->request, sizeof(fake->request), &fake->request_length, NULL, 0, NULL);

	if (r != FRAME_OK) {
		fake_fail(fake, "no request came");
		return;
	}
	if (proto_get_head(fake->request, fake->request_length, false, &fake->head) || fake->head.op != op)
		fake_fail(fake, "another request than expected");
	if (size && proto_get_payload(fake->request, fake->request_length, payload, size))
		fake_fail(fake, "the request's payload is wrong");
	fake->id = fake->head.id;
}

static inline void fake_expect_end(struct fake *fake)
{
	if (frame_receive(fake->sock, fake->request, sizeof(fake->request), &fake->request_length, NULL, 0,
		    NULL) != FRAME_EOF)
		fake_fail(fake, "the client did not close");
}

/* Nothing comes for a moment, except perhaps the end. */
static inline void fake_expect_silence(struct fake *fake)
{
	struct pollfd look = {.fd = fake->sock, .events = POLLIN};
	char byte;

	if (poll(&look, 1, 50) != 0 && recv(fake->sock, &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0)
		fake_fail(fake, "something came that should not");
}

/* A message as it is, whatever is in it. */
static inline void fake_send(
	struct fake *fake, const void *message, size_t length, const int *fds, size_t fd_count)
{
	if (frame_send(fake->sock, message, length, fds, fd_count))
		fake_fail(fake, "cannot send");
}

/* A well-formed head and `size` bytes behind it. */
static inline void fake_reply(struct fake *fake, uint16_t op, uint32_t error, const void *payload,
	size_t size, const int *fds, size_t fd_count)
{
	uint8_t *message = malloc(sizeof(struct hpz_wire_head) + size);
	size_t length = proto_set_head(message, op, fake->id, true, error, (uint32_t)fd_count, size);

	if (size)
		memcpy(message + sizeof(struct hpz_wire_head), payload, size);
	fake_send(fake, message, length, fds, fd_count);
	free(message);
}

static inline void fake_reply_error(
	struct fake *fake, uint16_t op, uint32_t error, uint32_t leases, const char *text)
{
	struct hpz_wire_error refusal = {.size = sizeof(refusal), .leases = leases};

	memcpy(refusal.text, text, MIN(strlen(text), sizeof(refusal.text)));
	fake_reply(fake, op, error, &refusal, sizeof(refusal), NULL, 0);
}

static inline struct hpz_wire_hello fake_get_hello(void)
{
	return (struct hpz_wire_hello){
		.size = sizeof(struct hpz_wire_hello),
		.magic = HPZ_WIRE_MAGIC,
		.version = HPZ_WIRE_VERSION,
		.compat = HPZ_WIRE_COMPAT,
		.max_message = HPZ_WIRE_MAX_MESSAGE,
		.max_request = HPZ_WIRE_MAX_REQUEST,
		.max_descriptors = HPZ_WIRE_MAX_FDS,
		.program = "9.9.9",
	};
}

static inline void fake_accept_silently(struct fake *fake)
{
	fake->sock = close_fd(fake->sock);
	fake->sock = accept4(fake->listener, NULL, NULL, SOCK_CLOEXEC);
	if (fake->sock < 0)
		fake_fail(fake, "cannot accept");
}

/* Accepts a client and exchanges hellos. */
static inline void fake_accept(struct fake *fake)
{
	struct hpz_wire_hello hello;
	const char *why;

	fake_accept_silently(fake);
	fake_expect(fake, HPZ_OP_HELLO, &hello, sizeof(hello));
	if (proto_check_hello(&hello, &why))
		fake_fail(fake, "the client's hello is wrong");
	hello = fake_get_hello();
	fake_reply(fake, HPZ_OP_HELLO, 0, &hello, sizeof(hello), NULL, 0);
}

/* ---- leases ---- */

#define FAKE_SEGMENTS 4

struct fake_segment {
	uint64_t page_size, bytes;
	int fd; /* -1: none */
	char path[HPZ_WIRE_PATH];
};

struct fake_lease {
	uint32_t deliver;
	size_t count;
	struct fake_segment segments[FAKE_SEGMENTS];
};

#define FAKE_LEASE_ID 1000001ull

/* What a reply to LEASE and ADOPT is made of; tests spoil it before it is sent. */
struct fake_leased {
	struct hpz_wire_leased leased;
	struct hpz_wire_segment segments[FAKE_SEGMENTS];
	int fds[FAKE_SEGMENTS];
	size_t fd_count;
};

static inline void fake_make_leased(const struct fake_lease *lease, struct fake_leased *leased)
{
	*leased = (struct fake_leased){.leased = {.size = sizeof(leased->leased),
					       .segments = (uint32_t)lease->count,
					       .id = FAKE_LEASE_ID,
					       .deliver = lease->deliver}};
	for (size_t i = 0; i < lease->count; i++) {
		const struct fake_segment *from = &lease->segments[i];
		struct hpz_wire_segment *segment = &leased->segments[i];
		*segment = (struct hpz_wire_segment){.size = sizeof(*segment),
			.record = HPZ_RECORD_SEGMENT,
			.page_size = from->page_size,
			.bytes = from->bytes,
			.generation = 3 + i,
			.descriptor = -1};
		memcpy(segment->path, from->path, sizeof(segment->path));
		leased->leased.given += from->bytes;
		if (from->fd >= 0) {
			segment->descriptor = (int32_t)leased->fd_count;
			leased->fds[leased->fd_count++] = from->fd;
		}
	}
	leased->leased.asked = leased->leased.given;
}

static inline void fake_send_leased(struct fake *fake, uint16_t op, const struct fake_leased *leased)
{
	fake_reply(fake, op, 0, leased,
		sizeof(leased->leased) + leased->leased.segments * sizeof(leased->segments[0]), leased->fds,
		leased->fd_count);
}

/* Takes a request for memory and answers it. */
static inline void fake_reply_lease(struct fake *fake, uint16_t op, const struct fake_lease *lease)
{
	struct fake_leased leased;

	fake_expect(fake, op, NULL, 0);
	fake_make_leased(lease, &leased);
	fake_send_leased(fake, op, &leased);
}

static inline unsigned fake_count_fds(void)
{
	DIR *dir = opendir("/proc/self/fd");
	unsigned count = 0;

	assert_non_null(dir);
	while (readdir(dir))
		count++;
	closedir(dir);
	return count;
}

#endif
