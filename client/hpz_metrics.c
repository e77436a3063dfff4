/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * hpz_metrics.c - hpz-metrics: answers Prometheus over HTTP, started by its socket.
 *
 * A process for each connection, with so much time and no more: whoever sends nothing, sends rubbish or does
 * not read costs that process. What is asked of hpzd is asked by one more, so that a scrape is answered, with
 * hpz_up 0, while hpzd is mute. When nobody has come for a while it ends; systemd has the socket.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include "http.h"
#include "metrics.h"

#define METRICS_CONNECTIONS 16     /* at once */
#define METRICS_IDLE_MS     300000 /* without a connection: the end */
#define METRICS_REQUEST_MS  3000   /* for the request to come */
#define METRICS_HPZD_MS     4000   /* for hpzd to answer: less than a scrape may take */
#define METRICS_DRAIN_S     1      /* for the client to close, once it has its answer */
#define METRICS_ALL_S       15     /* for all of a connection */

static const char *socket_path;

/* Milliseconds until then, for poll(). */
static int scrape_get_left(uint64_t until_ns)
{
	uint64_t now_ns = clock_get_ns(CLOCK_MONOTONIC);

	return now_ns < until_ns ? (int)((until_ns - now_ns) / NS_PER_MS) + 1 : 0;
}

/* ---- what is asked of hpzd ---- */

static int scrape_print(FILE *file, bool is_text)
{
	struct openmetrics out = {.file = file, .is_text = is_text};

	metrics_print(&out, socket_path);
	return fflush(file) || ferror(file) ? EXIT_FAILURE : EXIT_SUCCESS;
}

/* A process that writes it to a pipe, which is returned, or negative errno. */
static int scrape_start(bool is_text, pid_t *ret_pid)
{
	int ends[2];

	if (pipe2(ends, O_CLOEXEC) < 0)
		return -errno;
	pid_t pid = fork();
	if (pid < 0) {
		int r = -errno;
		close(ends[0]);
		close(ends[1]);
		return r;
	}
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		alarm(METRICS_ALL_S);
		FILE *file = fdopen(ends[1], "w");
		_exit(file ? scrape_print(file, is_text) : EXIT_FAILURE);
	}
	close(ends[1]);
	*ret_pid = pid;
	return ends[0];
}

/* All that it writes goes to `file`. false: it did not end in time, or failed. */
static bool scrape_collect(int from, FILE *file)
{
	uint64_t until_ns = clock_get_ns(CLOCK_MONOTONIC) + METRICS_HPZD_MS * NS_PER_MS;
	struct pollfd look = {.fd = from, .events = POLLIN};
	char bytes[16384];

	while (poll(&look, 1, scrape_get_left(until_ns)) > 0) {
		ssize_t got = read(from, bytes, sizeof(bytes));
		if (got <= 0)
			return got == 0;
		fwrite(bytes, 1, (size_t)got, file);
	}
	return false;
}

/* That hpzd did not answer is an answer, too. */
static void scrape_print_down(FILE *file, bool is_text)
{
	struct openmetrics out = {.file = file, .is_text = is_text};

	metrics_print_down(&out);
}

/* The body, which the caller frees; NULL: there is no memory. */
static char *scrape_get_body(bool is_text, size_t *ret_length)
{
	char *body = NULL;
	int status = EXIT_FAILURE;
	pid_t pid = 0;

	FILE *file = open_memstream(&body, ret_length);
	if (!file)
		return NULL;
	int from = scrape_start(is_text, &pid);
	bool is_whole = from >= 0 && scrape_collect(from, file);
	if (from >= 0) {
		close(from);
		if (!is_whole)
			kill(pid, SIGKILL);
		is_whole = waitpid(pid, &status, 0) == pid && is_whole && status == 0;
	}
	if (is_whole)
		return fclose(file) == 0 ? body : NULL;
	fclose(file);
	free(body);
	body = NULL;
	file = open_memstream(&body, ret_length);
	if (!file)
		return NULL;
	scrape_print_down(file, is_text);
	return fclose(file) == 0 ? body : NULL;
}

/* ---- one connection ---- */

/* 0: it is gone, or silent for too long; else the status of the answer. */
static int scrape_receive(int fd, struct http_request *ret_request)
{
	uint64_t until_ns = clock_get_ns(CLOCK_MONOTONIC) + METRICS_REQUEST_MS * NS_PER_MS;
	struct pollfd look = {.fd = fd, .events = POLLIN};
	char bytes[HTTP_REQUEST_MAX];
	size_t length = 0;
	int status = 0;

	while (status == 0) {
		int r = poll(&look, 1, scrape_get_left(until_ns));
		if (r <= 0)
			return r == 0 ? 408 : 0;
		ssize_t got = recv(fd, bytes + length, sizeof(bytes) - length, 0);
		if (got <= 0)
			return 0;
		length += (size_t)got;
		status = http_parse(bytes, length, ret_request);
	}
	return status;
}

static void scrape_send(int fd, const char *bytes, size_t length)
{
	while (length) {
		ssize_t sent = send(fd, bytes, length, MSG_NOSIGNAL);
		if (sent <= 0)
			return;
		bytes += sent;
		length -= (size_t)sent;
	}
}

static void scrape_answer(int fd)
{
	struct http_request request = {0};
	char head[HTTP_HEAD_MAX], unread[1024];
	const char *type = "text/plain; charset=utf-8";
	char *body = NULL;
	size_t length = 0;

	int status = scrape_receive(fd, &request);
	if (status == 0)
		return;
	if (status == 200) {
		type = request.wants_metrics ? OPENMETRICS_TYPE : OPENMETRICS_TEXT;
		body = scrape_get_body(!request.wants_metrics, &length);
		status = body ? 200 : 500;
	}
	if (status != 200)
		length = (size_t)asprintf(&body, "%s\n", http_get_reason(status));
	if (!body)
		return;
	scrape_send(fd, head, http_format_head(head, status, type, length));
	if (!request.is_head)
		scrape_send(fd, body, length);
	free(body);
	/* A connection that is closed with something unread is reset, and the answer may be lost with it. */
	shutdown(fd, SHUT_WR);
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &(struct timeval){.tv_sec = METRICS_DRAIN_S},
		sizeof(struct timeval));
	while (recv(fd, unread, sizeof(unread), 0) > 0)
		;
}

/* ---- connections ---- */

static unsigned scrape_reap(unsigned count, bool waits)
{
	while (count && waitpid(-1, NULL, waits ? 0 : WNOHANG) > 0) {
		count--;
		waits = false;
	}
	return count;
}

static unsigned scrape_accept(int listener, unsigned count)
{
	int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	if (fd < 0) /* it is gone again, or there are no descriptors: later */
		return count;
	pid_t pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		alarm(METRICS_ALL_S);
		close(listener);
		scrape_answer(fd);
		_exit(EXIT_SUCCESS);
	}
	close(fd);
	return pid < 0 ? count : count + 1;
}

static int scrape_serve(int listener)
{
	struct pollfd look = {.fd = listener, .events = POLLIN};
	unsigned count = 0;

	while (1) {
		int r = poll(&look, 1, METRICS_IDLE_MS);
		if (r < 0 && errno != EINTR)
			return EXIT_FAILURE;
		count = scrape_reap(count, count == METRICS_CONNECTIONS);
		if (r == 0 && count == 0)
			return EXIT_SUCCESS;
		if (r > 0)
			count = scrape_accept(listener, count);
	}
}

int main(int argc, char **argv)
{
	if (argc == 2 && strcmp(argv[1], "--version") == 0) {
		puts("hpz-metrics " HPZ_VERSION);
		return EXIT_SUCCESS;
	}
	if (argc > 2 || (argc == 2 && argv[1][0] == '-')) {
		fprintf(stderr,
			"usage: hpz-metrics [SOCKET]\nStarted by hpz-metrics.socket; see hpz-metrics(7).\n");
		return argc == 2 && strcmp(argv[1], "--help") == 0 ? EXIT_SUCCESS : 2;
	}
	socket_path = argc == 2 ? argv[1] : NULL;
	if (sd_listen_fds(true) != 1 || sd_is_socket(SD_LISTEN_FDS_START, AF_UNSPEC, SOCK_STREAM, 1) <= 0) {
		fprintf(stderr, "hpz-metrics: it is started by systemd with one listening stream socket; see "
				"hpz-metrics(7)\n");
		return EXIT_FAILURE;
	}
	return scrape_serve(SD_LISTEN_FDS_START);
}
