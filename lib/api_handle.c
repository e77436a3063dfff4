/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * api_handle.c - the connection: connect, hello, one request for one reply, errors, close, reconnect.
 * Owns the socket. Only api_lose() closes it, so that "lost" is one state with one way in.
 */
#include "api.h"

#include <limits.h>
#include <poll.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "frame.h"
#include "size.h"

/*
 * A greeting is answered by hpzd's loop, which waits for nobody: within milliseconds, or hpzd has stopped.
 * Another request may need a worker that somebody keeps waiting; measured were 143 s in the worst case one
 * could build.
 */
#define API_PATIENCE_GREETING_MS 5000
#define API_PATIENCE_MS          180000

/* How long recvmsg() waits by itself: what takes longer has time for the system call that limits the rest. */
#define API_FIRST_WAIT_S 1

/* ---- errors ---- */

const char *hpz_strerror(int error)
{
	switch ((enum hpz_error)error) {
	case HPZ_OK:
		return "success";
	case HPZ_ERR_SYSTEM:
		return "a system call failed";
	case HPZ_ERR_INVALID:
		return "an argument makes no sense";
	case HPZ_ERR_PROTOCOL:
		return "the other side does not keep to the protocol";
	case HPZ_ERR_VERSION:
		return "hpzd and libhpz are too far apart in version";
	case HPZ_ERR_LOST:
		return "the connection to hpzd is gone";
	case HPZ_ERR_NOT_RUNNING:
		return "hpzd is not running, or does not answer";
	case HPZ_ERR_DENIED:
		return "permission denied";
	case HPZ_ERR_NO_MEMORY:
		return "not enough clean memory now";
	case HPZ_ERR_TOO_LARGE:
		return "more than the pool can ever give";
	case HPZ_ERR_NO_POOL:
		return "there is no such pool";
	case HPZ_ERR_UNKNOWN_LEASE:
		return "no lease has ever had this id";
	case HPZ_ERR_ENDED:
		return "the lease has ended";
	case HPZ_ERR_TIMEOUT:
		return "the time limit has passed";
	case HPZ_ERR_BUSY:
		return "a limit is reached";
	case HPZ_ERR_IN_USE:
		return "leases are still out";
	case HPZ_ERR_DRAINED:
		return "the pool has been drained";
	case HPZ_ERR_WITHHELD:
		return "the kernel withheld a descriptor";
	case HPZ_ERR_UNSUPPORTED:
		return "the other side does not know this request";
	case HPZ_ERR_KEY_MISMATCH:
		return "the key belongs to another request";
	case HPZ_ERR_FORKED:
		return "the handle belongs to the parent process";
	case HPZ_ERR_INTERNAL:
		return "hpzd could not do it; its log says why";
	case HPZ_ERR_QUOTA:
		return "the quota is used up";
	}
	return "an error this version does not know";
}

const char *hpz_get_error_text(const struct hpz *hpz)
{
	return hpz ? hpz->text : "";
}

int hpz_get_errno(const struct hpz *hpz)
{
	return hpz ? hpz->error_number : 0;
}

int api_fail(struct hpz *hpz, int error, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(hpz->text, sizeof(hpz->text), format, args);
	va_end(args);
	return error;
}

int api_fail_system(struct hpz *hpz, const char *what)
{
	hpz->error_number = errno;
	return api_fail(hpz, HPZ_ERR_SYSTEM, "%s: %m", what);
}

static void api_lose(struct hpz *hpz)
{
	hpz->sock = close_fd(hpz->sock);
}

int api_fail_protocol(struct hpz *hpz, const char *what)
{
	api_lose(hpz);
	return api_fail(hpz, HPZ_ERR_PROTOCOL, "hpzd sent %s; the connection is closed", what);
}

static int api_fail_lost(struct hpz *hpz, const char *why)
{
	api_lose(hpz);
	return api_fail(hpz, HPZ_ERR_LOST, "%s", why);
}

/* ---- the process ---- */

static void api_mark_owner(struct hpz *hpz)
{
	hpz->owner = getpid();
	void *page = mmap(
		NULL, sizeof(*hpz->owner_mark), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (page == MAP_FAILED)
		return;
	if (madvise(page, sizeof(*hpz->owner_mark), MADV_WIPEONFORK) < 0) {
		munmap(page, sizeof(*hpz->owner_mark));
		return;
	}
	hpz->owner_mark = page;
	*hpz->owner_mark = 1;
}

static bool api_is_owner(const struct hpz *hpz)
{
	return hpz->owner_mark ? *hpz->owner_mark : hpz->owner == getpid();
}

int api_begin(struct hpz *hpz)
{
	if (!hpz)
		return HPZ_ERR_INVALID;
	hpz->text[0] = '\0';
	hpz->error_number = 0;
	if (!api_is_owner(hpz))
		return api_fail(hpz, HPZ_ERR_FORKED, "process %ld made this handle", (long)hpz->owner);
	return HPZ_OK;
}

int api_begin_call(struct hpz *hpz)
{
	int error = api_begin(hpz);

	if (!error && hpz->sock < 0)
		return api_fail(
			hpz, HPZ_ERR_LOST, "the connection was lost before; hpz_reconnect() makes a new one");
	return error;
}

/* ---- one request, one reply ---- */

int api_send(struct hpz *hpz, uint16_t op, const void *payload, size_t size, uint64_t *ret_id)
{
	uint8_t request[HPZ_WIRE_MAX_REQUEST];
	uint64_t id = hpz->next_id++;

	size_t length = proto_set_head(request, op, id, false, 0, 0, size);
	memcpy(request + sizeof(struct hpz_wire_head), payload, size);
	int r = frame_send(hpz->sock, request, length, NULL, 0);
	/* Turned away: why is there to be received. */
	if (op == HPZ_OP_HELLO && (r == -EPIPE || r == -ECONNRESET))
		r = 0;
	if (r == -EPIPE || r == -ECONNRESET || r == -ENOTCONN)
		return api_fail_lost(hpz, "hpzd closed the connection");
	if (r == -EAGAIN)
		return api_fail_lost(hpz, "hpzd does not take requests");
	if (r < 0) {
		errno = -r;
		return api_fail_system(hpz, "cannot send to hpzd");
	}
	*ret_id = id;
	return HPZ_OK;
}

/* Notes what the server says about its refusal. */
static int api_read_error(struct hpz *hpz, const struct hpz_wire_head *head, struct api_reply *reply)
{
	struct hpz_wire_error refusal;

	if (!api_read(&reply->payload, &refusal, sizeof(refusal)) || reply->payload.left)
		return api_fail_protocol(hpz, "a malformed error");
	/* These only we can find out. From a server they would make the caller do something odd. */
	if (head->error > INT_MAX || head->error == HPZ_ERR_LOST || head->error == HPZ_ERR_FORKED ||
		head->error == HPZ_ERR_NOT_RUNNING)
		return api_fail_protocol(hpz, "an error it cannot have");
	proto_get_text(refusal.text, sizeof(refusal.text), hpz->text);
	reply->leases = refusal.leases;
	return (int)head->error;
}

static int64_t api_get_ms(void)
{
	return (int64_t)(clock_get_ns(CLOCK_MONOTONIC) / NS_PER_MS);
}

/* How long an answer may take, and since when. */
struct api_limit {
	bool is_none;
	int64_t start_ms, limit_ms;
};

/* Waits until there is something to receive. */
static int api_await(struct hpz *hpz, const struct api_limit *limit)
{
	struct pollfd look = {.fd = hpz->sock, .events = POLLIN};
	int64_t left_ms;

	do {
		left_ms = limit->limit_ms - (api_get_ms() - limit->start_ms);
		int timeout = limit->is_none ? -1 : (int)MIN(MAX(left_ms, 0), INT_MAX);
		int r = poll(&look, 1, timeout);
		if (r > 0)
			return HPZ_OK;
		if (r < 0 && errno != EINTR)
			return api_fail_system(hpz, "poll");
	} while (limit->is_none || left_ms > 0);
	return api_fail_lost(hpz, "hpzd does not answer");
}

/* The frame's result; its failure in *ret_error is noted already. */
static int api_receive_packet(struct hpz *hpz, const struct api_limit *limit, bool may_bring_fds,
	struct api_reply *reply, size_t *ret_length, int *ret_error)
{
	for (;;) {
		int r = frame_receive_once(hpz->sock, hpz->message, sizeof(hpz->message), ret_length,
			may_bring_fds ? reply->fds : NULL, ARRAY_SIZE(reply->fds), &reply->fd_count);
		if (r != -EINTR && r != -EAGAIN)
			return r;
		*ret_error = api_await(hpz, limit);
		if (*ret_error)
			return r;
	}
}

static int api_receive(
	struct hpz *hpz, uint16_t op, uint64_t id, const struct api_limit *limit, struct api_reply *reply)
{
	bool may_bring_fds = op == HPZ_OP_LEASE || op == HPZ_OP_ADOPT || op == HPZ_OP_CHANGE;
	struct hpz_wire_head head;
	size_t length = 0;
	int error = HPZ_OK;

	int r = api_receive_packet(hpz, limit, may_bring_fds, reply, &length, &error);
	if (error)
		return error;
	if (r < 0) {
		errno = -r;
		r = api_fail_system(hpz, "cannot receive from hpzd");
		api_lose(hpz); /* the reply may still come, and would be taken for the next one's */
		return r;
	}
	if (r == FRAME_EOF)
		return api_fail_lost(hpz, "hpzd closed the connection");
	if (r == FRAME_TOO_LONG)
		return api_fail_protocol(hpz, "a message that is too long");
	if (proto_get_head(hpz->message, length, true, &head) || head.op != op ||
		(head.id != id && head.id != 0))
		return api_fail_protocol(hpz, "something that is not the answer");
	if (reply->fd_count > head.descriptors || (head.descriptors && !may_bring_fds) ||
		(r == FRAME_WITHHELD && !head.descriptors))
		return api_fail_protocol(hpz, "descriptors nobody asked for");

	reply->is_withheld = r == FRAME_WITHHELD || reply->fd_count < head.descriptors;
	reply->payload = (struct api_reader){hpz->message + sizeof(head), length - sizeof(head)};
	return head.error ? api_read_error(hpz, &head, reply) : HPZ_OK;
}

int api_call(struct hpz *hpz, uint16_t op, const void *payload, size_t size, int64_t waits_ms,
	struct api_reply *ret_reply)
{
	uint64_t id;
	int64_t patience_ms = op == HPZ_OP_HELLO ? API_PATIENCE_GREETING_MS : API_PATIENCE_MS;
	const struct api_limit limit = {
		.is_none = waits_ms == HPZ_FOREVER,
		.start_ms = api_get_ms(),
		.limit_ms = waits_ms > INT64_MAX - patience_ms ? INT64_MAX : waits_ms + patience_ms,
	};
	int error = api_send(hpz, op, payload, size, &id);

	return error ? error : api_receive(hpz, op, id, &limit, ret_reply);
}

void api_reply_deinit(struct api_reply *reply)
{
	while (reply->fd_count > 0)
		close_fd(reply->fds[--reply->fd_count]);
}

bool api_read(struct api_reader *reader, void *ret_struct, size_t known_size)
{
	size_t used;

	if (proto_get_struct(reader->at, reader->left, ret_struct, known_size, &used))
		return false;
	reader->at += used;
	reader->left -= used;
	return true;
}

bool api_read_segment(struct api_reader *reader, struct api_segment *ret_segment, int32_t *ret_descriptor)
{
	struct hpz_wire_segment record;

	if (!api_read(reader, &record, sizeof(record)) || record.record != HPZ_RECORD_SEGMENT)
		return false;
	if (record.page_size == 0 || size_floor_pow2(record.page_size) != record.page_size ||
		record.bytes == 0 || record.bytes % record.page_size || record.bytes > INT64_MAX ||
		record.node < 0 || record.cell >= HPZ_WIRE_CELLS || record.reserved)
		return false;
	/* A path is opened, so it is taken as it is or not at all. */
	if (!proto_is_text(record.path, sizeof(record.path)) || (record.path[0] && record.path[0] != '/'))
		return false;
	*ret_segment = (struct api_segment){
		.page_size = record.page_size,
		.bytes = record.bytes,
		.generation = record.generation,
		.node = record.node,
		.cell = record.cell,
		.fd = -1,
	};
	proto_get_text(record.path, sizeof(record.path), ret_segment->path);
	*ret_descriptor = record.descriptor;
	return true;
}

/* ---- structs across the ABI ---- */

int api_get_struct(const void *theirs, void *ret_ours, size_t our_size, size_t first_size)
{
	size_t size;

	if (!theirs)
		return HPZ_ERR_INVALID;
	memcpy(&size, theirs, sizeof(size));
	if (size < first_size)
		return HPZ_ERR_INVALID;
	for (size_t i = our_size; i < size; i++) {
		if (((const uint8_t *)theirs)[i])
			return HPZ_ERR_UNSUPPORTED;
	}
	memset(ret_ours, 0, our_size);
	memcpy(ret_ours, theirs, MIN(size, our_size));
	return HPZ_OK;
}

int api_put_struct(void *theirs, const void *ours, size_t our_size)
{
	size_t size;

	if (!theirs)
		return HPZ_ERR_INVALID;
	memcpy(&size, theirs, sizeof(size));
	if (size < sizeof(size))
		return HPZ_ERR_INVALID;
	memset(theirs, 0, size);
	memcpy(theirs, ours, MIN(size, our_size));
	memcpy(theirs, &size, sizeof(size));
	return HPZ_OK;
}

/* ---- connect and close ---- */

/* What a failed socket() or connect() means. */
static int api_fail_connect(struct hpz *hpz)
{
	switch (errno) {
	case ENOENT:
	case ECONNREFUSED:
	case ENOTDIR:
	case EAGAIN:
		return api_fail(hpz, HPZ_ERR_NOT_RUNNING, "nobody listens at %s", hpz->socket_path);
	case EACCES:
	case EPERM:
		return api_fail(hpz, HPZ_ERR_DENIED, "the mode of %s keeps us out", hpz->socket_path);
	case EPROTOTYPE:
		return api_fail(hpz, HPZ_ERR_PROTOCOL, "%s is not a socket of hpzd", hpz->socket_path);
	default:
		return api_fail_system(hpz, hpz->socket_path);
	}
}

static int api_connect(struct hpz *hpz)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	const struct timeval patience = {.tv_sec = API_PATIENCE_GREETING_MS / 1000},
			     first_wait = {.tv_sec = API_FIRST_WAIT_S};
	_cleanup_fd_ int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	int r;

	/* The limit is also one for connect(), which waits for room in the queue of a server that has
	 * stopped. */
	if (sock < 0 || setsockopt(sock, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience)) < 0 ||
		setsockopt(sock, SOL_SOCKET, SO_RCVTIMEO, &first_wait, sizeof(first_wait)) < 0)
		return api_fail_system(hpz, "cannot make a socket");
	memcpy(address.sun_path, hpz->socket_path, strlen(hpz->socket_path) + 1);
	do
		r = connect(sock, (const struct sockaddr *)&address, sizeof(address));
	while (r < 0 && errno == EINTR);
	if (r < 0)
		return api_fail_connect(hpz);
	hpz->sock = steal_fd(&sock);
	return HPZ_OK;
}

static int api_exchange_hello(struct hpz *hpz)
{
	_cleanup_api_reply_ struct api_reply reply = {0};
	struct hpz_wire_hello hello = {
		.size = sizeof(hello),
		.capabilities = HPZ_WIRE_CAN_ZEROED | HPZ_WIRE_CAN_CELLS | HPZ_WIRE_CAN_RESERVED |
				HPZ_WIRE_CAN_RESIZE,
		.magic = HPZ_WIRE_MAGIC,
		.version = HPZ_WIRE_VERSION,
		.compat = HPZ_WIRE_COMPAT,
		.max_message = HPZ_WIRE_MAX_MESSAGE,
		.max_request = HPZ_WIRE_MAX_REQUEST,
		.max_descriptors = HPZ_WIRE_MAX_FDS,
	};
	const char *why;

	proto_set_text(hello.program, sizeof(hello.program), HPZ_VERSION);
	int error = api_call(hpz, HPZ_OP_HELLO, &hello, sizeof(hello), 0, &reply);
	if (error)
		return error;
	if (!api_read(&reply.payload, &hello, sizeof(hello)) || reply.payload.left)
		return api_fail_protocol(hpz, "a malformed hello");
	error = proto_check_hello(&hello, &why);
	if (error)
		return api_fail(hpz, error, "hpzd: %s", why);
	proto_get_text(hello.program, sizeof(hello.program), hpz->server_version);
	return HPZ_OK;
}

/* Afterwards there is a connection with hellos exchanged, or none. */
static int api_open(struct hpz *hpz)
{
	int error = api_connect(hpz);

	if (!error)
		error = api_exchange_hello(hpz);
	/* It went before it said a word, or never says one. */
	if (error == HPZ_ERR_LOST)
		error = HPZ_ERR_NOT_RUNNING;
	if (error)
		api_lose(hpz);
	return error;
}

static const char *api_choose_socket(const char *socket_path)
{
	if (socket_path)
		return socket_path;
	/* Not for a program with more rights than its caller. */
	const char *named = secure_getenv("HPZ_SOCKET");
	return named && *named ? named : HPZ_DEFAULT_SOCKET;
}

int hpz_connect(const char *socket_path, struct hpz **ret_hpz)
{
	socket_path = api_choose_socket(socket_path);
	if (!ret_hpz || !*socket_path || strlen(socket_path) >= sizeof(((struct sockaddr_un *)0)->sun_path))
		return HPZ_ERR_INVALID;

	/* Not cleared: only the receive buffer is large, and what nobody reads costs nothing. */
	struct hpz *hpz = malloc(sizeof(*hpz));
	if (!hpz)
		return HPZ_ERR_SYSTEM;
	memset(hpz, 0, offsetof(struct hpz, message));
	hpz->sock = -1;
	api_mark_owner(hpz);
	hpz->next_id = 1;
	hpz->socket_path = strdup(socket_path);
	int error = hpz->socket_path ? api_open(hpz) : HPZ_ERR_SYSTEM;
	if (error) {
		int saved = hpz->error_number ? hpz->error_number : errno;
		hpz_close(hpz);
		errno = saved;
		return error;
	}
	*ret_hpz = hpz;
	return HPZ_OK;
}

void hpz_close(struct hpz *hpz)
{
	if (!hpz)
		return;
	/* A forked child may still have the socket: shutdown ends the connection all the same, and only we
	 * may. */
	if (hpz->sock >= 0 && api_is_owner(hpz))
		shutdown(hpz->sock, SHUT_RDWR);
	api_lose(hpz);
	if (hpz->owner_mark)
		munmap(hpz->owner_mark, sizeof(*hpz->owner_mark));
	free(hpz->socket_path);
	free(hpz);
}

/* A connection that nobody has found dead yet may be dead all the same. */
static bool api_is_alive(const struct hpz *hpz)
{
	struct pollfd look = {.fd = hpz->sock, .events = POLLRDHUP};

	return hpz->sock >= 0 && poll(&look, 1, 0) == 0;
}

int hpz_reconnect(struct hpz *hpz)
{
	int error = api_begin(hpz);

	if (error)
		return error;
	/* Giving up a living connection would end the leases bound to it. */
	if (api_is_alive(hpz))
		return HPZ_OK;
	api_lose(hpz);
	return api_open(hpz);
}

const char *hpz_get_server_version(const struct hpz *hpz)
{
	return hpz ? hpz->server_version : "";
}

const char *hpz_get_version(void)
{
	return HPZ_VERSION;
}
