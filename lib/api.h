/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * api.h - what the files of libhpz share: the handle, the exchange of one request for one reply, the readers
 * of records. Nothing here is exported. What a server sends is checked as strictly as a server checks what a
 * client sends.
 */
#ifndef HPZ_API_H
#define HPZ_API_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "hpz.h"
#include "proto.h"
#include "util.h"

struct hpz {
	int sock;    /* -1: the connection is lost */
	pid_t owner; /* the process that made the handle */
	/* Not 0 in that process: the kernel clears it in a forked child, so that no call has to ask for the
	 * process's number. NULL: it must (before 4.14, or no memory). */
	uint8_t *owner_mark;
	uint64_t next_id;
	int error_number;
	char *socket_path;
	char text[HPZ_WIRE_TEXT + 1];
	char server_version[HPZ_WIRE_NAME + 1];
	uint8_t message[HPZ_WIRE_MAX_MESSAGE]; /* the reply in hand; replies point into it */
};

/* What follows the head of a reply, read from its beginning. */
struct api_reader {
	const uint8_t *at;
	size_t left;
};

struct api_reply {
	struct api_reader payload;
	size_t fd_count;
	bool is_withheld; /* descriptors did not all reach us; none is kept */
	uint32_t leases;  /* of a reply that is an error */
	int fds[HPZ_WIRE_MAX_FDS];
};

/* A segment's record after all checks. */
struct api_segment {
	uint64_t page_size, bytes, generation;
	int32_t node;
	uint32_t cell;
	int fd; /* in a list always -1; owned by the lease otherwise */
	char path[HPZ_WIRE_PATH + 1];
};

struct hpz_lease {
	uint64_t id, asked, given, ready, zeroed;
	uint32_t deliver;
	void *address; /* NULL: not mapped */
	size_t length;
	size_t segment_count;
	struct api_segment segments[];
};

/* ---- api_handle.c ---- */

/* Every public function with a handle begins with it: forgets the last error, refuses NULL and forked
 * handles. */
int api_begin(struct hpz *hpz);
/* The same, and the connection must be there. */
int api_begin_call(struct hpz *hpz);

/* Notes why a call fails and returns `error`. api_fail_system() takes errno. */
int api_fail(struct hpz *hpz, int error, const char *format, ...) PRINTF(3, 4);
int api_fail_system(struct hpz *hpz, const char *what);
/* The server broke the protocol: nothing it says can be trusted any more, so the connection is dropped. */
int api_fail_protocol(struct hpz *hpz, const char *what);

/* Sends a request, and only that: for ACK. */
int api_send(struct hpz *hpz, uint16_t op, const void *payload, size_t size, uint64_t *ret_id);
/*
 * One request, one reply. *ret_reply must be all zero before; api_reply_deinit() closes what descriptors are
 * still in it. Only LEASE, ADOPT and CHANGE can bring descriptors. An error reply is returned as its error,
 * with its text noted. waits_ms is how long the request lets hpzd wait, HPZ_FOREVER included. One that
 * answers much later than that has stopped, and the connection is given up: whoever starts a VM has to go on
 * without it.
 */
int api_call(struct hpz *hpz, uint16_t op, const void *payload, size_t size, int64_t waits_ms,
	struct api_reply *ret_reply);
void api_reply_deinit(struct api_reply *reply);
#define _cleanup_api_reply_ __attribute__((cleanup(api_reply_deinit)))

/* Takes the next sized struct of a reply; false when it is not there or not understood. */
bool api_read(struct api_reader *reader, void *ret_struct, size_t known_size);
/* Takes a segment record; *ret_descriptor is its index into the message's descriptors or -1. */
bool api_read_segment(struct api_reader *reader, struct api_segment *ret_segment, int32_t *ret_descriptor);

/*
 * Structs that begin with size_t struct_size and cross the ABI. In: as much as the caller knows, zeros for
 * the rest; what the caller knows and we do not must be zero. Out: as much as the caller knows, zeros for
 * what we do not.
 */
int api_get_struct(const void *theirs, void *ret_ours, size_t our_size, size_t first_size);
int api_put_struct(void *theirs, const void *ours, size_t our_size);

/* ---- api_lease.c ---- */

void api_put_segment(const struct api_segment *from, struct hpz_segment *ret_segment);

#endif
