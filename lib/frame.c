/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* frame.c - one packet with its descriptors, in or out: the only sendmsg and recvmsg of the project. */
#include "frame.h"

#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "proto.h"
#include "util.h"

/* Room for the most descriptors Linux passes at once. */
union frame_control {
	struct cmsghdr header;
	char bytes[CMSG_SPACE(HPZ_WIRE_MAX_FDS * sizeof(int))];
};

static void frame_put_fds(
	struct msghdr *message, union frame_control *control, const int *fds, size_t fd_count)
{
	memset(control, 0, sizeof(*control));
	message->msg_control = control->bytes;
	message->msg_controllen = CMSG_SPACE(fd_count * sizeof(int));

	struct cmsghdr *header = CMSG_FIRSTHDR(message);
	header->cmsg_level = SOL_SOCKET;
	header->cmsg_type = SCM_RIGHTS;
	header->cmsg_len = CMSG_LEN(fd_count * sizeof(int));
	memcpy(CMSG_DATA(header), fds, fd_count * sizeof(int));
}

int frame_send(int sock, const void *packet, size_t length, const int *fds, size_t fd_count)
{
	union frame_control control;
	struct iovec part = {.iov_base = (void *)packet, .iov_len = length};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};

	if (fd_count > HPZ_WIRE_MAX_FDS)
		return -EINVAL;
	if (fd_count > 0)
		frame_put_fds(&message, &control, fds, fd_count);

	ssize_t sent;
	do
		sent = sendmsg(sock, &message, MSG_NOSIGNAL);
	while (sent < 0 && errno == EINTR);
	return sent < 0 ? -errno : 0;
}

/* Takes every descriptor that arrived; closes those for which there is no room, of which there should be
 * none. */
static size_t frame_take_fds(struct msghdr *message, int *fds, size_t fd_capacity)
{
	size_t taken = 0;

	for (struct cmsghdr *header = CMSG_FIRSTHDR(message); header; header = CMSG_NXTHDR(message, header)) {
		if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS)
			continue;
		size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (size_t i = 0; i < count; i++) {
			int fd;
			memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof(fd));
			if (taken < fd_capacity)
				fds[taken++] = fd;
			else
				close_fd(fd);
		}
	}
	return taken;
}

static void frame_close_fds(const int *fds, size_t count)
{
	for (size_t i = 0; i < count; i++)
		close_fd(fds[i]);
}

/*
 * The reset of a peer that went without reading everything is reported once, before what it had sent: that is
 * received, then comes its end like any other.
 */
static ssize_t frame_receive_message(int sock, struct msghdr *message, bool is_stubborn)
{
	ssize_t length;
	bool is_reset = false, is_again;

	do {
		length = recvmsg(sock, message, MSG_CMSG_CLOEXEC);
		is_again =
			length < 0 && ((errno == EINTR && is_stubborn) || (errno == ECONNRESET && !is_reset));
		is_reset = is_reset || (length < 0 && errno == ECONNRESET);
	} while (is_again);
	return length;
}

static int frame_receive_packet(int sock, void *packet, size_t capacity, size_t *ret_length, int *fds,
	size_t fd_capacity, size_t *ret_fd_count, bool is_stubborn)
{
	union frame_control control;
	struct iovec part = {.iov_base = packet, .iov_len = capacity};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};

	fd_capacity = fds ? MIN(fd_capacity, HPZ_WIRE_MAX_FDS) : 0;
	if (fd_capacity > 0) {
		message.msg_control = control.bytes;
		/* LEN, not SPACE: in the padding the kernel would put one descriptor more than was asked for.
		 */
		message.msg_controllen = CMSG_LEN(fd_capacity * sizeof(int));
	}

	ssize_t length = frame_receive_message(sock, &message, is_stubborn);
	if (length < 0)
		return errno == ECONNRESET ? FRAME_EOF : -errno;

	size_t fd_count = fd_capacity > 0 ? frame_take_fds(&message, fds, fd_capacity) : 0;
	enum frame_result result = FRAME_OK;
	/* An empty packet looks like the end, and nobody who speaks the protocol sends one. */
	if (length == 0)
		result = FRAME_EOF;
	else if (message.msg_flags & MSG_TRUNC)
		result = FRAME_TOO_LONG;
	else if (message.msg_flags & MSG_CTRUNC)
		result = FRAME_WITHHELD;

	if (result != FRAME_OK) {
		frame_close_fds(fds, fd_count);
		fd_count = 0;
	}
	if (result == FRAME_OK || result == FRAME_WITHHELD) {
		*ret_length = (size_t)length;
		if (ret_fd_count)
			*ret_fd_count = fd_count;
	}
	return result;
}

int frame_receive(int sock, void *packet, size_t capacity, size_t *ret_length, int *fds, size_t fd_capacity,
	size_t *ret_fd_count)
{
	return frame_receive_packet(sock, packet, capacity, ret_length, fds, fd_capacity, ret_fd_count, true);
}

int frame_receive_once(int sock, void *packet, size_t capacity, size_t *ret_length, int *fds,
	size_t fd_capacity, size_t *ret_fd_count)
{
	return frame_receive_packet(
		sock, packet, capacity, ret_length, fds, fd_capacity, ret_fd_count, false);
}
