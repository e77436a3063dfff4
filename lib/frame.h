/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * frame.h - one packet with its descriptors, in or out.
 * frame.c holds the only sendmsg and recvmsg of the project. Nothing here knows what a packet means.
 */
#ifndef HPZ_FRAME_H
#define HPZ_FRAME_H

#include <stddef.h>

/* Expected outcomes of frame_receive(); unexpected ones are a negative errno. */
enum frame_result {
	FRAME_OK = 0,
	FRAME_EOF = 1,      /* the peer is gone */
	FRAME_TOO_LONG = 2, /* the packet did not fit and is lost */
	FRAME_WITHHELD = 3, /* descriptors were sent that did not reach us (MSG_CTRUNC); those that did are
			       closed. The packet itself is there, and *ret_length is set */
};

/*
 * Sends one packet with up to 253 borrowed descriptors. Returns 0 or a negative errno: -EAGAIN on a full
 * non-blocking socket, -EPIPE without a signal.
 */
int frame_send(int sock, const void *packet, size_t length, const int *fds, size_t fd_count);

/*
 * Receives one packet of at most `capacity` bytes. With fds NULL no control buffer is given, and a peer that
 * sends descriptors gives FRAME_WITHHELD. Received descriptors are close-on-exec and owned by the caller;
 * *ret_fd_count says how many. Blocks if the socket does.
 */
int frame_receive(int sock, void *packet, size_t capacity, size_t *ret_length, int *fds, size_t fd_capacity,
	size_t *ret_fd_count);
/* The same, but a signal ends it (-EINTR): for whoever has a time limit to look at then. */
int frame_receive_once(int sock, void *packet, size_t capacity, size_t *ret_length, int *fds,
	size_t fd_capacity, size_t *ret_fd_count);

#endif
