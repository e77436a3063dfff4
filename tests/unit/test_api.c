/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * test_api.c - libhpz against a scripted peer: what is sent, what is taken, and everything a real hpzd never
 * says. Whatever comes, a call ends with an error that fits, nothing leaks, and after a broken protocol the
 * connection is gone.
 */
#include "fake_server.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>

#include "api.h"

#define PAGE 4096u

/* ---- connecting ---- */

static void test_nobody_listens(void **state)
{
	struct hpz *hpz = (struct hpz *)&state;
	char path[96];
	struct fake fake;

	fake_make_path(path, sizeof(path), "nothing");
	assert_int_equal(hpz_connect(path, &hpz), HPZ_ERR_NOT_RUNNING);
	assert_int_equal(hpz_connect("/dev/null/x", &hpz), HPZ_ERR_NOT_RUNNING);
	/* A socket whose server is gone. */
	fake_listen(&fake);
	close_fd(fake.listener);
	assert_int_equal(hpz_connect(fake.path, &hpz), HPZ_ERR_NOT_RUNNING);
	unlink(fake.path);
	assert_ptr_equal(hpz, &state);
}

static void test_bad_paths(void **state)
{
	struct hpz *hpz = (struct hpz *)&state;
	char path[300];

	memset(path, 'x', sizeof(path));
	path[108] = '\0';
	path[0] = '/';
	assert_int_equal(hpz_connect(path, &hpz), HPZ_ERR_INVALID);
	path[107] = '\0';
	assert_int_equal(hpz_connect(path, &hpz), HPZ_ERR_NOT_RUNNING);
	assert_int_equal(hpz_connect("", &hpz), HPZ_ERR_INVALID);
	assert_int_equal(hpz_connect(path, NULL), HPZ_ERR_INVALID);
	assert_ptr_equal(hpz, &state);
}

static void test_another_kind_of_socket(void **state)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	struct hpz *hpz;
	_cleanup_fd_ int sock = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	fake_make_path(address.sun_path, sizeof(address.sun_path), "stream");
	assert_int_equal(bind(sock, (struct sockaddr *)&address, sizeof(address)), 0);
	assert_int_equal(listen(sock, 1), 0);
	assert_int_equal(hpz_connect(address.sun_path, &hpz), HPZ_ERR_PROTOCOL);
	unlink(address.sun_path);
}

/* In a process without rights: root is kept out of nothing. */
static void test_the_mode_keeps_us_out(void **state)
{
	struct fake fake;
	int status;

	fake_listen(&fake);
	assert_int_equal(chmod(fake.path, 0), 0);
	assert_int_equal(chmod(fake_directory, 0711), 0);
	pid_t pid = fork();
	if (pid == 0) {
		struct hpz *hpz;
		if (getuid() == 0 && (setgid(65534) || setuid(65534)))
			_exit(99);
		_exit(hpz_connect(fake.path, &hpz));
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), HPZ_ERR_DENIED);
	close_fd(fake.listener);
	unlink(fake.path);
}

static void serve_hello(struct fake *fake, void *data)
{
	fake_accept(fake);
	fake_expect_end(fake);
}

static void test_hello(void **state)
{
	struct fake fake;
	struct hpz *hpz = NULL;

	fake_start(&fake, serve_hello, NULL);
	assert_int_equal(hpz_connect(fake.path, &hpz), HPZ_OK);
	assert_string_equal(hpz_get_server_version(hpz), "9.9.9");
	assert_string_equal(hpz_get_error_text(hpz), "");
	assert_int_equal(hpz_get_errno(hpz), 0);
	assert_string_equal(hpz_get_version(), HPZ_VERSION);
	hpz_close(hpz);
	fake_join(&fake);
}

static void test_the_environment_names_the_socket(void **state)
{
	struct fake fake;
	struct hpz *hpz = NULL;

	fake_start(&fake, serve_hello, NULL);
	setenv("HPZ_SOCKET", fake.path, true);
	assert_int_equal(hpz_connect(NULL, &hpz), HPZ_OK);
	hpz_close(hpz);
	fake_join(&fake);
	assert_int_equal(hpz_connect(NULL, &hpz), HPZ_ERR_NOT_RUNNING);
	unsetenv("HPZ_SOCKET");
}

static void test_null_handles(void **state)
{
	hpz_close(NULL);
	hpz_list_free(NULL);
	hpz_status_free(NULL);
	hpz_lease_free(NULL);
	assert_int_equal(hpz_reconnect(NULL), HPZ_ERR_INVALID);
	assert_int_equal(hpz_get_status(NULL, NULL), HPZ_ERR_INVALID);
	assert_int_equal(hpz_list(NULL, NULL), HPZ_ERR_INVALID);
	assert_int_equal(hpz_lease(NULL, NULL, NULL), HPZ_ERR_INVALID);
	assert_int_equal(hpz_adopt(NULL, 1, NULL, NULL), HPZ_ERR_INVALID);
	assert_int_equal(hpz_release(NULL, 1, 0, 0), HPZ_ERR_INVALID);
	assert_int_equal(hpz_wait(NULL, NULL), HPZ_ERR_INVALID);
	assert_int_equal(hpz_drain(NULL, 0, 0, NULL), HPZ_ERR_INVALID);
	assert_string_equal(hpz_get_error_text(NULL), "");
	assert_string_equal(hpz_get_server_version(NULL), "");
	assert_int_equal(hpz_get_errno(NULL), 0);
	assert_int_equal(hpz_lease_get_id(NULL), 0);
	assert_int_equal(hpz_lease_get_segment_count(NULL), 0);
	assert_int_equal(hpz_list_get_count(NULL), 0);
	assert_int_equal(hpz_lease_steal_fd(NULL, 0), -1);
}

static void test_every_error_has_a_sentence(void **state)
{
	for (int i = HPZ_OK; i <= HPZ_ERR_QUOTA; i++) {
		assert_string_not_equal(hpz_strerror(i), hpz_strerror(4711));
		for (int j = HPZ_OK; j < i; j++)
			assert_string_not_equal(hpz_strerror(i), hpz_strerror(j));
	}
	assert_string_equal(hpz_strerror(-1), hpz_strerror(HPZ_ERR_QUOTA + 1));
}

/* ---- what the peer answers to a hello ---- */

struct answer {
	uint16_t op;
	uint32_t error;
	const void *payload;
	size_t size;
	int64_t id;          /* 0: the request's; else instead of it */
	uint32_t flags;      /* instead of HPZ_WIRE_REPLY, when not 0 */
	int32_t descriptors; /* claimed; -1: as many as are sent */
	uint32_t size_off;   /* added to the head's size */
	int fds[4];
	size_t fd_count;
};

static void send_answer(struct fake *fake, const struct answer *answer)
{
	uint8_t message[HPZ_WIRE_MAX_REQUEST * 4];
	size_t length = proto_set_head(message, answer->op, answer->id ? (uint64_t)answer->id : fake->id,
		true, answer->error,
		answer->descriptors < 0 ? (uint32_t)answer->fd_count : (uint32_t)answer->descriptors,
		answer->size);
	struct hpz_wire_head head;

	memcpy(&head, message, sizeof(head));
	head.size += answer->size_off;
	head.flags = answer->flags ? (uint16_t)answer->flags : head.flags;
	memcpy(message, &head, sizeof(head));
	if (answer->size)
		memcpy(message + sizeof(head), answer->payload, answer->size);
	fake_send(fake, message, length, answer->fds, answer->fd_count);
}

static void serve_answer_to_hello(struct fake *fake, void *data)
{
	struct hpz_wire_hello hello;

	fake_accept_silently(fake);
	fake_expect(fake, HPZ_OP_HELLO, &hello, sizeof(hello));
	send_answer(fake, data);
	fake_expect_end(fake);
}

static int connect_and_hear(const struct answer *answer)
{
	unsigned before = fake_count_fds();
	struct hpz *hpz = NULL;
	struct fake fake;

	fake_start(&fake, serve_answer_to_hello, (void *)answer);
	int error = hpz_connect(fake.path, &hpz);
	if (error)
		assert_null(hpz);
	hpz_close(hpz);
	fake_join(&fake);
	assert_int_equal(fake_count_fds(), before);
	return error;
}

static void test_bad_hellos(void **state)
{
	struct hpz_wire_hello hello = fake_get_hello();
	struct answer good = {.op = HPZ_OP_HELLO,
			      .payload = &hello,
			      .size = sizeof(hello),
			      .descriptors = -1},
		      bad;

	assert_int_equal(connect_and_hear(&good), HPZ_OK);
	bad = good;
	bad.op = HPZ_OP_STATUS;
	assert_int_equal(connect_and_hear(&bad), HPZ_ERR_PROTOCOL);
	bad = good;
	bad.id = 77;
	assert_int_equal(connect_and_hear(&bad), HPZ_ERR_PROTOCOL);
	bad = good;
	bad.flags = 3;
	assert_int_equal(connect_and_hear(&bad), HPZ_ERR_PROTOCOL);
	bad = good;
	bad.size_off = 8;
	assert_int_equal(connect_and_hear(&bad), HPZ_ERR_PROTOCOL);
	bad = good;
	bad.descriptors = 1;
	assert_int_equal(connect_and_hear(&bad), HPZ_ERR_PROTOCOL);
	bad = good;
	bad.fd_count = 1;
	bad.fds[0] = 0;
	assert_int_equal(connect_and_hear(&bad), HPZ_ERR_PROTOCOL);
	bad.descriptors = 0;
	assert_int_equal(connect_and_hear(&bad), HPZ_ERR_PROTOCOL);

	hello.magic++;
	assert_int_equal(connect_and_hear(&good), HPZ_ERR_PROTOCOL);
	hello = fake_get_hello();
	hello.version = hello.compat = 2;
	assert_int_equal(connect_and_hear(&good), HPZ_ERR_VERSION);
	hello.version = hello.compat = 0;
	assert_int_equal(connect_and_hear(&good), HPZ_ERR_VERSION);
	hello.version = 7;
	assert_int_equal(connect_and_hear(&good), HPZ_OK);
	hello = fake_get_hello();
	hello.max_message = 100;
	assert_int_equal(connect_and_hear(&good), HPZ_ERR_PROTOCOL);
	hello = fake_get_hello();
	hello.program[3] = '\x1b';
	assert_int_equal(connect_and_hear(&good), HPZ_ERR_PROTOCOL);
}

static void test_hello_of_every_length(void **state)
{
	uint8_t bytes[sizeof(struct hpz_wire_hello) + 8] = {0};
	struct hpz_wire_hello hello = fake_get_hello();
	struct answer answer = {.op = HPZ_OP_HELLO, .payload = bytes, .descriptors = -1};

	memcpy(bytes, &hello, sizeof(hello));
	for (answer.size = 0; answer.size < sizeof(hello); answer.size++)
		assert_int_equal(connect_and_hear(&answer), HPZ_ERR_PROTOCOL);
	assert_int_equal(connect_and_hear(&answer), HPZ_OK);
	for (answer.size++; answer.size <= sizeof(bytes); answer.size++)
		assert_int_equal(connect_and_hear(&answer), HPZ_ERR_PROTOCOL);
	/* Longer because it says so. */
	hello.size = sizeof(bytes);
	memcpy(bytes, &hello, sizeof(hello));
	answer.size = sizeof(bytes);
	assert_int_equal(connect_and_hear(&answer), HPZ_OK);
	bytes[sizeof(bytes) - 1] = 1;
	assert_int_equal(connect_and_hear(&answer), HPZ_ERR_PROTOCOL);
}

static void test_refused_hellos(void **state)
{
	struct hpz_wire_error refusal = {.size = sizeof(refusal), .text = "go away"};
	struct answer answer = {.op = HPZ_OP_HELLO,
		.payload = &refusal,
		.size = sizeof(refusal),
		.error = HPZ_ERR_BUSY,
		.descriptors = -1};

	assert_int_equal(connect_and_hear(&answer), HPZ_ERR_BUSY);
	answer.error = HPZ_ERR_VERSION;
	assert_int_equal(connect_and_hear(&answer), HPZ_ERR_VERSION);
	answer.error = HPZ_ERR_DENIED;
	assert_int_equal(connect_and_hear(&answer), HPZ_ERR_DENIED);
	answer.size = 4;
	assert_int_equal(connect_and_hear(&answer), HPZ_ERR_PROTOCOL);
}

static void serve_nothing(struct fake *fake, void *data)
{
	fake_accept_silently(fake);
	fake_expect(fake, HPZ_OP_HELLO, NULL, 0);
}

static void serve_flood(struct fake *fake, void *data)
{
	size_t length = HPZ_WIRE_MAX_MESSAGE + 1;
	uint8_t *message = calloc(1, length);

	serve_nothing(fake, data);
	proto_set_head(message, HPZ_OP_HELLO, fake->id, true, 0, 0, length - sizeof(struct hpz_wire_head));
	fake_send(fake, message, length, NULL, 0);
	free(message);
	fake_expect_end(fake);
}

static void test_end_and_flood_instead_of_a_hello(void **state)
{
	struct hpz *hpz;
	struct fake fake;

	fake_start(&fake, serve_nothing, NULL);
	assert_int_equal(hpz_connect(fake.path, &hpz), HPZ_ERR_NOT_RUNNING);
	fake_join(&fake);
	fake_start(&fake, serve_flood, NULL);
	assert_int_equal(hpz_connect(fake.path, &hpz), HPZ_ERR_PROTOCOL);
	fake_join(&fake);
}

static void on_alarm(int number)
{
}

/* Calls are interrupted every few milliseconds, as a profiler would do it. */
static void set_alarms(uint64_t ms)
{
	struct sigaction action = {.sa_handler = on_alarm}; /* without SA_RESTART */
	const struct timeval each = {.tv_usec = (long)ms * 1000};
	const struct itimerval timer = {each, each};

	assert_int_equal(sigaction(SIGALRM, &action, NULL), 0);
	assert_int_equal(setitimer(ITIMER_REAL, &timer, NULL), 0);
}

static void block_alarms(int how)
{
	sigset_t alarms;

	sigemptyset(&alarms);
	sigaddset(&alarms, SIGALRM);
	assert_int_equal(pthread_sigmask(how, &alarms, NULL), 0);
}

static void serve_slowly(struct fake *fake, void *data)
{
	fake_accept_silently(fake);
	fake_expect(fake, HPZ_OP_HELLO, NULL, 0);
	/* Longer than a receive waits by itself, shorter than the patience with a greeting. */
	for (int i = 0; i < 150; i++)
		usleep(10000);
	struct hpz_wire_hello hello = fake_get_hello();
	fake_reply(fake, HPZ_OP_HELLO, 0, &hello, sizeof(hello), NULL, 0);
	fake_expect_end(fake);
}

static void test_a_slow_server(void **state)
{
	for (uint64_t ms = 0; ms <= 20; ms += 20) {
		struct hpz *hpz = NULL;
		struct fake fake;
		block_alarms(SIG_BLOCK); /* the peer's thread has none */
		fake_start(&fake, serve_slowly, NULL);
		block_alarms(SIG_UNBLOCK);
		set_alarms(ms);
		assert_int_equal(hpz_connect(fake.path, &hpz), HPZ_OK);
		set_alarms(0);
		hpz_close(hpz);
		fake_join(&fake);
	}
}

/* A server that has stopped: nobody takes us from its queue, which is full in the end. Both must come to an
 * end. */
static void test_a_stopped_server(void **state)
{
	struct hpz *hpz = NULL;
	struct fake fake;
	uint64_t start_ns = clock_get_ns(CLOCK_MONOTONIC);

	fake_listen(&fake);
	assert_int_equal(listen(fake.listener, 0), 0);
	set_alarms(20); /* the limit is kept all the same */
	assert_int_equal(hpz_connect(fake.path, &hpz), HPZ_ERR_NOT_RUNNING);
	set_alarms(0);
	assert_int_equal(hpz_connect(fake.path, &hpz), HPZ_ERR_NOT_RUNNING);
	assert_null(hpz);
	uint64_t seconds = (clock_get_ns(CLOCK_MONOTONIC) - start_ns) / NS_PER_S;
	assert_true(seconds >= 9 && seconds < 30);
	close_fd(fake.listener);
	unlink(fake.path);
}

/* ---- one call, one answer ---- */

/* Takes one request and answers; the client must have closed afterwards if `closes`. */
struct exchange {
	struct answer answer;
	bool closes;
};

static void serve_exchange(struct fake *fake, void *data)
{
	struct exchange *exchange = data;

	fake_accept(fake);
	fake_expect(fake, exchange->answer.op, NULL, 0);
	send_answer(fake, &exchange->answer);
	if (exchange->closes)
		fake_expect_end(fake);
	else
		fake_expect_silence(fake);
}

/* A call to be answered; returns its error. What it was given on success it frees. */
typedef int call_fn(struct hpz *hpz);

static int call_lease(struct hpz *hpz)
{
	struct hpz_lease_request request = HPZ_LEASE_REQUEST_INIT;
	struct hpz_lease *lease = NULL;

	request.size = 1;
	int error = hpz_lease(hpz, &request, &lease);
	if (error)
		assert_null(lease);
	hpz_lease_free(lease);
	return error;
}

static int call_lease_path(struct hpz *hpz)
{
	struct hpz_lease_request request = HPZ_LEASE_REQUEST_INIT;
	struct hpz_lease *lease = NULL;

	request.size = 1;
	request.deliver = HPZ_DELIVER_PATH;
	int error = hpz_lease(hpz, &request, &lease);
	if (error)
		assert_null(lease);
	hpz_lease_free(lease);
	return error;
}

static int call_adopt(struct hpz *hpz)
{
	struct hpz_adopt_request request = HPZ_ADOPT_REQUEST_INIT;
	struct hpz_lease *lease = NULL;

	int error = hpz_adopt(hpz, FAKE_LEASE_ID, &request, &lease);
	if (error)
		assert_null(lease);
	hpz_lease_free(lease);
	return error;
}

static int call_release(struct hpz *hpz)
{
	return hpz_release(hpz, FAKE_LEASE_ID, 0, 0);
}

static int call_list(struct hpz *hpz)
{
	struct hpz_lease_list *list = NULL;

	int error = hpz_list(hpz, &list);
	if (error)
		assert_null(list);
	hpz_list_free(list);
	return error;
}

static int call_status(struct hpz *hpz)
{
	struct hpz_status *status = NULL;

	int error = hpz_get_status(hpz, &status);
	if (error)
		assert_null(status);
	hpz_status_free(status);
	return error;
}

static int call_wait(struct hpz *hpz)
{
	struct hpz_wait_request request = HPZ_WAIT_REQUEST_INIT;

	return hpz_wait(hpz, &request);
}

static int call_drain(struct hpz *hpz)
{
	return hpz_drain(hpz, 0, 0, NULL);
}

static int call_plan(struct hpz *hpz)
{
	struct hpz_lease_request request = HPZ_LEASE_REQUEST_INIT;
	struct hpz_plan_result result = {.struct_size = sizeof(result)};

	request.size = 3 * PAGE;
	return hpz_plan(hpz, &request, &result);
}

static int call_calibrate(struct hpz *hpz)
{
	return hpz_calibrate(hpz, NULL, 0, NULL);
}

static int call_verify(struct hpz *hpz)
{
	struct hpz_verify_result result = {.struct_size = sizeof(result)};

	return hpz_verify(hpz, NULL, 0, &result);
}

static int call_set(struct hpz *hpz)
{
	return hpz_set(hpz, "rate", "1G");
}

static int call_clearing(struct hpz *hpz)
{
	struct hpz_clearing *clearing = NULL;
	int error = hpz_get_clearing(hpz, &clearing);

	assert_true(!error == (clearing != NULL));
	hpz_clearing_free(clearing);
	return error;
}

static int call_demand(struct hpz *hpz)
{
	struct hpz_demand *demand = NULL;
	int error = hpz_get_demand(hpz, &demand);

	assert_true(!error == (demand != NULL));
	hpz_demand_free(demand);
	return error;
}

static int call_events(struct hpz *hpz)
{
	struct hpz_events *events = NULL;
	int error = hpz_get_events(hpz, 0, 0, &events);

	assert_true(!error == (events != NULL));
	hpz_events_free(events);
	return error;
}

static int call_metrics(struct hpz *hpz)
{
	struct hpz_metrics *metrics = NULL;
	int error = hpz_get_metrics(hpz, &metrics);

	assert_true(!error == (metrics != NULL));
	hpz_metrics_free(metrics);
	return error;
}

static int call_teardown(struct hpz *hpz)
{
	const struct hpz_teardown_request request = HPZ_TEARDOWN_REQUEST_INIT;
	struct hpz_teardown *teardown = NULL;
	int error = hpz_get_teardown(hpz, &request, &teardown);

	assert_true(!error == (teardown != NULL));
	hpz_teardown_free(teardown);
	return error;
}

static int call_resize(struct hpz *hpz)
{
	struct hpz_resize_request request = HPZ_RESIZE_REQUEST_INIT;

	request.pool = "p";
	request.pages = 5;
	return hpz_resize(hpz, &request, NULL);
}

static const struct {
	uint16_t op;
	call_fn *call;
} calls[] = {
	{HPZ_OP_DEMAND, call_demand},
	{HPZ_OP_METRICS, call_metrics},
	{HPZ_OP_EVENTS, call_events},
	{HPZ_OP_TEARDOWN, call_teardown},
	{HPZ_OP_LEASE, call_lease},
	{HPZ_OP_LEASE, call_lease_path},
	{HPZ_OP_ADOPT, call_adopt},
	{HPZ_OP_RELEASE, call_release},
	{HPZ_OP_LIST, call_list},
	{HPZ_OP_STATUS, call_status},
	{HPZ_OP_WAIT, call_wait},
	{HPZ_OP_DRAIN, call_drain},
	{HPZ_OP_VERIFY, call_verify},
	{HPZ_OP_PLAN, call_plan},
	{HPZ_OP_CALIBRATE, call_calibrate},
	{HPZ_OP_SET, call_set},
	{HPZ_OP_CLEARING, call_clearing},
	{HPZ_OP_RESIZE, call_resize},
};

/* Makes the call, gives the answer. A broken protocol ends the connection, anything else leaves it; nothing
 * leaks. */
static int call_and_hear(call_fn *call, const struct answer *answer)
{
	unsigned before = fake_count_fds();
	struct exchange exchange = {.answer = *answer, .closes = true};
	struct hpz *hpz;
	struct fake fake;

	fake_start(&fake, serve_exchange, &exchange);
	assert_int_equal(hpz_connect(fake.path, &hpz), HPZ_OK);
	int error = call(hpz);
	if (error) {
		assert_int_equal(hpz_get_errno(hpz), 0);
		assert_string_not_equal(hpz_get_error_text(hpz), "");
	}
	if (error == HPZ_ERR_PROTOCOL) {
		for (size_t i = 0; i < ARRAY_SIZE(calls); i++)
			assert_int_equal(calls[i].call(hpz), HPZ_ERR_LOST);
	}
	hpz_close(hpz);
	fake_join(&fake);
	assert_int_equal(fake_count_fds(), before);
	return error;
}

static void test_refusals(void **state)
{
	struct hpz_wire_error refusal = {.size = sizeof(refusal), .text = "because"};
	struct answer answer = {.payload = &refusal, .size = sizeof(refusal), .descriptors = -1};

	for (size_t i = 0; i < ARRAY_SIZE(calls); i++) {
		answer.op = calls[i].op;
		answer.error = HPZ_ERR_NO_MEMORY;
		assert_int_equal(call_and_hear(calls[i].call, &answer), HPZ_ERR_NO_MEMORY);
		answer.error = 4711; /* of a newer hpzd */
		assert_int_equal(call_and_hear(calls[i].call, &answer), 4711);
		/* What only the library can know. */
		answer.error = HPZ_ERR_LOST;
		assert_int_equal(call_and_hear(calls[i].call, &answer), HPZ_ERR_PROTOCOL);
		answer.error = HPZ_ERR_FORKED;
		assert_int_equal(call_and_hear(calls[i].call, &answer), HPZ_ERR_PROTOCOL);
		answer.error = HPZ_ERR_NOT_RUNNING;
		assert_int_equal(call_and_hear(calls[i].call, &answer), HPZ_ERR_PROTOCOL);
		answer.error = UINT32_MAX;
		assert_int_equal(call_and_hear(calls[i].call, &answer), HPZ_ERR_PROTOCOL);
	}
}

static void test_malformed_refusals(void **state)
{
	uint8_t bytes[sizeof(struct hpz_wire_error) + 8] = {0};
	struct hpz_wire_error refusal = {.size = sizeof(refusal), .text = "because"};
	struct answer answer = {.op = HPZ_OP_STATUS,
		.error = HPZ_ERR_BUSY,
		.payload = bytes,
		.size = sizeof(refusal),
		.descriptors = -1};

	memcpy(bytes, &refusal, sizeof(refusal));
	assert_int_equal(call_and_hear(call_status, &answer), HPZ_ERR_BUSY);
	answer.size = sizeof(bytes);
	assert_int_equal(call_and_hear(call_status, &answer), HPZ_ERR_PROTOCOL);
	answer.size = 100;
	assert_int_equal(call_and_hear(call_status, &answer), HPZ_ERR_PROTOCOL);
	answer.size = 0;
	assert_int_equal(call_and_hear(call_status, &answer), HPZ_ERR_PROTOCOL);
	answer.size = sizeof(refusal);
	answer.op = HPZ_OP_LEASE;
	answer.fd_count = 1;
	assert_int_equal(call_and_hear(call_lease, &answer), HPZ_ERR_PROTOCOL);
}

static void serve_ugly_refusal(struct fake *fake, void *data)
{
	fake_accept(fake);
	fake_expect(fake, HPZ_OP_STATUS, NULL, 0);
	fake_reply_error(fake, HPZ_OP_STATUS, HPZ_ERR_BUSY, 0, "a\nb\x1b[31m\xff");
	fake_expect(fake, HPZ_OP_STATUS, NULL, 0);
	fake_reply_error(fake, HPZ_OP_STATUS, HPZ_ERR_BUSY, 0, "");
	fake_expect_end(fake);
}

static void test_text_of_a_refusal(void **state)
{
	struct fake fake;
	struct hpz *hpz;

	fake_start(&fake, serve_ugly_refusal, NULL);
	assert_int_equal(hpz_connect(fake.path, &hpz), HPZ_OK);
	assert_int_equal(call_status(hpz), HPZ_ERR_BUSY);
	assert_string_equal(hpz_get_error_text(hpz), "a b?[31m?");
	assert_int_equal(call_status(hpz), HPZ_ERR_BUSY);
	assert_string_equal(hpz_get_error_text(hpz), "");
	/* Our own text comes and goes, too. */
	assert_int_equal(hpz_release(hpz, 0, 0, 0), HPZ_ERR_INVALID);
	assert_string_not_equal(hpz_get_error_text(hpz), "");
	assert_int_equal(hpz_reconnect(hpz), HPZ_OK);
	assert_string_equal(hpz_get_error_text(hpz), "");
	hpz_close(hpz);
	fake_join(&fake);
}

static void test_descriptors_nobody_asked_for(void **state)
{
	struct hpz_wire_empty empty = {.size = sizeof(empty)};
	struct answer answer = {
		.payload = &empty, .size = sizeof(empty), .fds = {0, 0}, .fd_count = 2, .descriptors = -1};

	for (size_t i = 0; i < ARRAY_SIZE(calls); i++) {
		answer.op = calls[i].op;
		answer.descriptors = -1;
		assert_int_equal(call_and_hear(calls[i].call, &answer), HPZ_ERR_PROTOCOL);
		answer.descriptors = 0;
		assert_int_equal(call_and_hear(calls[i].call, &answer), HPZ_ERR_PROTOCOL);
		answer.descriptors = 1;
		assert_int_equal(call_and_hear(calls[i].call, &answer), HPZ_ERR_PROTOCOL);
	}
}

/* ---- leases ---- */

static int make_file(void)
{
	int fd = open("/dev/null", O_RDWR | O_CLOEXEC);

	assert_true(fd >= 0);
	return fd;
}

static struct fake_lease get_fd_lease(int fd)
{
	return (struct fake_lease){.deliver = HPZ_DELIVER_FD,
		.count = 2,
		.segments = {{.page_size = PAGE, .bytes = 2 * PAGE, .fd = fd},
			{.page_size = 2 * PAGE, .bytes = 4 * PAGE, .fd = fd}}};
}

static struct fake_lease get_path_lease(void)
{
	return (struct fake_lease){.deliver = HPZ_DELIVER_PATH,
		.count = 2,
		.segments = {{.page_size = PAGE, .bytes = PAGE, .fd = -1, .path = "/mnt/a"},
			{.page_size = PAGE, .bytes = PAGE, .fd = -1, .path = "/mnt/b"}}};
}

struct lease_script {
	struct fake_lease lease;
	struct hpz_wire_lease request; /* what came */
	struct hpz_wire_adopt adopt;
};

static void serve_lease(struct fake *fake, void *data)
{
	struct lease_script *script = data;
	struct fake_leased leased;
	struct hpz_wire_ack ack;

	fake_accept(fake);
	fake_expect(fake, HPZ_OP_LEASE, &script->request, sizeof(script->request));
	fake_make_leased(&script->lease, &leased);
	leased.leased.asked -= 5;
	leased.leased.ready = PAGE;
	leased.leased.zeroed = leased.leased.given - PAGE;
	fake_send_leased(fake, HPZ_OP_LEASE, &leased);
	fake_expect(fake, HPZ_OP_ACK, &ack, sizeof(ack));
	if (ack.id != FAKE_LEASE_ID)
		fake_fail(fake, "the ACK is for another lease");
	fake_expect_end(fake);
}

static void test_lease_by_descriptor(void **state)
{
	_cleanup_fd_ int file = make_file();
	struct lease_script script = {.lease = get_fd_lease(file)};
	struct hpz_lease_request request = HPZ_LEASE_REQUEST_INIT;
	struct hpz_segment segment = {.struct_size = sizeof(segment)};
	struct hpz_lease *lease = NULL;
	unsigned before = fake_count_fds();
	struct fake fake;
	struct hpz *hpz;

	fake_start(&fake, serve_lease, &script);
	assert_int_equal(hpz_connect(fake.path, &hpz), HPZ_OK);
	request = (struct hpz_lease_request){.struct_size = sizeof(request),
		.size = 5 * PAGE,
		.page_size = PAGE,
		.node = 1,
		.flags = HPZ_LEASE_REOPENABLE | HPZ_LEASE_UNBOUND,
		.timeout_ms = 4000,
		.label = "vm \xc3\xa9",
		.key = "k1",
		.owner_uid = -1,
		.owner_gid = -1,
		.owner_pid = 77,
		.priority = -3};
	assert_int_equal(hpz_lease(hpz, &request, &lease), HPZ_OK);
	assert_int_equal(hpz_lease_get_id(lease), FAKE_LEASE_ID);
	assert_int_equal(hpz_lease_get_size(lease), 6 * PAGE);
	assert_int_equal(hpz_lease_get_asked(lease), 6 * PAGE - 5);
	assert_int_equal(hpz_lease_get_ready(lease), PAGE);
	assert_int_equal(hpz_lease_get_zeroed(lease), 5 * PAGE);
	assert_true(hpz_lease_get_ready(NULL) == 0 && hpz_lease_get_zeroed(NULL) == 0);
	assert_int_equal(hpz_lease_get_segment_count(lease), 2);
	assert_int_equal(hpz_lease_get_segment(lease, 1, &segment), HPZ_OK);
	assert_int_equal(segment.struct_size, sizeof(segment));
	assert_int_equal(segment.page_size, 2 * PAGE);
	assert_int_equal(segment.size, 4 * PAGE);
	assert_int_equal(segment.generation, 4);
	assert_int_equal(segment.node, 0);
	assert_string_equal(segment.path, "");
	assert_int_equal(fcntl(segment.fd, F_GETFD), FD_CLOEXEC);
	assert_int_equal(hpz_lease_get_segment(lease, 2, &segment), HPZ_ERR_INVALID);
	assert_int_equal(hpz_lease_get_segment(lease, 0, NULL), HPZ_ERR_INVALID);
	int fd = hpz_lease_steal_fd(lease, 1);
	assert_int_equal(fd, segment.fd);
	assert_int_equal(hpz_lease_get_segment(lease, 1, &segment), HPZ_OK);
	assert_int_equal(segment.fd, -1);
	hpz_lease_free(lease);
	assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
	close(fd);
	hpz_close(hpz);
	fake_join(&fake);
	assert_int_equal(fake_count_fds(), before);

	/* What was sent is what was asked for. */
	assert_int_equal(script.request.size, 376); /* no cells, so that an older server takes it */
	assert_int_equal(script.request.flags, HPZ_LEASE_REOPENABLE | HPZ_LEASE_UNBOUND);
	assert_int_equal(script.request.bytes, 5 * PAGE);
	assert_int_equal(script.request.page_size, PAGE);
	assert_int_equal(script.request.node, 1);
	assert_int_equal(script.request.timeout_ms, 4000);
	assert_int_equal(script.request.owner_pid, 77);
	assert_int_equal(script.request.priority, -3);
	assert_string_equal(script.request.label, "vm \xc3\xa9");
	assert_string_equal(script.request.key, "k1");
}

static void test_lease_by_path(void **state)
{
	struct lease_script script = {.lease = get_path_lease()};
	struct hpz_lease_request request = HPZ_LEASE_REQUEST_INIT;
	struct hpz_segment segment = {.struct_size = sizeof(segment)};
	struct hpz_lease *lease = NULL;
	char label[HPZ_LABEL_MAX + 1];
	struct fake fake;
	struct hpz *hpz;

	memset(label, 'l', HPZ_LABEL_MAX);
	label[HPZ_LABEL_MAX] = '\0';
	fake_start(&fake, serve_lease, &script);
	assert_int_equal(hpz_connect(fake.path, &hpz), HPZ_OK);
	request.size = PAGE;
	request.deliver = HPZ_DELIVER_PATH;
	request.flags = HPZ_LEASE_KEEP;
	request.mode = 0660;
	request.owner_uid = 64055;
	request.owner_gid = 108;
	request.open_timeout_ms = 5000;
	request.timeout_ms = HPZ_FOREVER;
	request.label = label;
	assert_int_equal(hpz_lease(hpz, &request, &lease), HPZ_OK);
	assert_int_equal(hpz_lease_get_segment(lease, 1, &segment), HPZ_OK);
	assert_string_equal(segment.path, "/mnt/b");
	assert_int_equal(segment.fd, -1);
	assert_int_equal(hpz_lease_steal_fd(lease, 1), -1);
	hpz_lease_free(lease);
	hpz_close(hpz);
	fake_join(&fake);
	assert_int_equal(script.request.deliver, HPZ_DELIVER_PATH);
	assert_int_equal(script.request.flags, HPZ_LEASE_KEEP);
	assert_int_equal(script.request.mode, 0660);
	assert_int_equal(script.request.owner_uid, 64055);
	assert_int_equal(script.request.owner_gid, 108);
	assert_int_equal(script.request.open_timeout_ms, 5000);
	assert_int_equal(script.request.timeout_ms, -1);
	assert_int_equal(script.request.page_size, 0);
	assert_int_equal(script.request.node, -1);
	assert_memory_equal(script.request.label, label, HPZ_LABEL_MAX);
}

static void serve_adopt(struct fake *fake, void *data)
{
	struct lease_script *script = data;
	struct fake_leased leased;

	fake_accept(fake);
	fake_expect(fake, HPZ_OP_ADOPT, &script->adopt, sizeof(script->adopt));
	fake_make_leased(&script->lease, &leased);
	fake_send_leased(fake, HPZ_OP_ADOPT, &leased);
	fake_expect(fake, HPZ_OP_ACK, NULL, 0);
	fake_expect_end(fake);
}

static void test_adopt(void **state)
{
	_cleanup_fd_ int file = make_file();

	for (unsigned deliver = HPZ_DELIVER_FD; deliver <= HPZ_DELIVER_PATH; deliver++) {
		struct lease_script script = {
			.lease = deliver == HPZ_DELIVER_FD ? get_fd_lease(file) : get_path_lease()};
		struct hpz_adopt_request request = HPZ_ADOPT_REQUEST_INIT;
		struct hpz_lease *lease = NULL;
		struct fake fake;
		struct hpz *hpz;

		fake_start(&fake, serve_adopt, &script);
		assert_int_equal(hpz_connect(fake.path, &hpz), HPZ_OK);
		request.flags = HPZ_LEASE_UNBOUND;
		request.owner_pid = 42;
		assert_int_equal(hpz_adopt(hpz, FAKE_LEASE_ID, &request, &lease), HPZ_OK);
		assert_int_equal(hpz_lease_get_id(lease), FAKE_LEASE_ID);
		hpz_lease_free(lease);
		hpz_close(hpz);
		fake_join(&fake);
		assert_int_equal(script.adopt.id, FAKE_LEASE_ID);
		assert_int_equal(script.adopt.flags, HPZ_LEASE_UNBOUND);
		assert_int_equal(script.adopt.owner_pid, 42);
	}
}

/* Nothing is sent for a request that cannot be right. */
static void test_requests_that_are_not_sent(void **state)
{
	struct hpz_wire_empty empty = {.size = sizeof(empty)};
	struct exchange exchange = {
		.answer = {.op = HPZ_OP_WAIT, .payload = &empty, .size = 8, .descriptors = -1}};
	const struct hpz_lease_request init = HPZ_LEASE_REQUEST_INIT;
	struct hpz_adopt_request adopt = HPZ_ADOPT_REQUEST_INIT;
	struct hpz_wait_request wait = HPZ_WAIT_REQUEST_INIT;
	struct hpz_lease_request request;
	struct hpz_lease *lease = NULL;
	struct fake fake;
	struct hpz *hpz;
	char text[300];

	fake_start(&fake, serve_exchange, &exchange);
	assert_int_equal(hpz_connect(fake.path, &hpz), HPZ_OK);
#define REFUSED(field, value_, error)                                                                        \
	do {                                                                                                 \
		request = init;                                                                              \
		request.size = 1;                                                                            \
		request.field = (value_);                                                                    \
		assert_int_equal(hpz_lease(hpz, &request, &lease), error);                                   \
		assert_string_not_equal(hpz_get_error_text(hpz), "");                                        \
	} while (0)
	memset(text, 'x', sizeof(text));
	text[HPZ_LABEL_MAX + 1] = '\0';
	REFUSED(size, 0, HPZ_ERR_INVALID);
	REFUSED(size, UINT64_MAX, HPZ_ERR_TOO_LARGE);
	REFUSED(page_size, 3000, HPZ_ERR_INVALID);
	REFUSED(node, -2, HPZ_ERR_INVALID);
	REFUSED(flags, 16, HPZ_ERR_UNSUPPORTED);
	REFUSED(flags, HPZ_LEASE_KEEP, HPZ_ERR_INVALID);
	REFUSED(deliver, 2, HPZ_ERR_UNSUPPORTED);
	REFUSED(mode, 0600, HPZ_ERR_INVALID);
	REFUSED(timeout_ms, -2, HPZ_ERR_INVALID);
	REFUSED(label, text, HPZ_ERR_INVALID);
	REFUSED(label, "a\nb", HPZ_ERR_INVALID);
	REFUSED(label, "\xff", HPZ_ERR_INVALID);
	REFUSED(key, text, HPZ_ERR_INVALID);
	REFUSED(key, "\xc3", HPZ_ERR_INVALID);
	REFUSED(owner_uid, 0, HPZ_ERR_INVALID);
	REFUSED(owner_pid, -1, HPZ_ERR_INVALID);
	REFUSED(open_timeout_ms, 1, HPZ_ERR_INVALID);
	REFUSED(struct_size, 0, HPZ_ERR_INVALID);
	REFUSED(struct_size, offsetof(struct hpz_lease_request, priority) - 1, HPZ_ERR_INVALID);
	REFUSED(priority, HPZ_PRIORITY_MAX + 1, HPZ_ERR_INVALID);
	REFUSED(node_policy, HPZ_NODES_PREFERRED, HPZ_ERR_INVALID);
	REFUSED(node_policy, 3, HPZ_ERR_UNSUPPORTED);
	REFUSED(node_mask, 1, HPZ_ERR_INVALID);
	REFUSED(cell_count, 1, HPZ_ERR_INVALID);
	REFUSED(cell_count, HPZ_CELLS_MAX + 1, HPZ_ERR_INVALID);
	assert_int_equal(hpz_lease(hpz, NULL, &lease), HPZ_ERR_INVALID);
	assert_int_equal(hpz_lease(hpz, &init, NULL), HPZ_ERR_INVALID);
	assert_null(lease);

	assert_int_equal(hpz_adopt(hpz, 0, &adopt, &lease), HPZ_ERR_INVALID);
	assert_int_equal(hpz_adopt(hpz, 1, NULL, &lease), HPZ_ERR_INVALID);
	assert_int_equal(hpz_adopt(hpz, 1, &adopt, NULL), HPZ_ERR_INVALID);
	adopt.flags = HPZ_LEASE_KEEP;
	assert_int_equal(hpz_adopt(hpz, 1, &adopt, &lease), HPZ_ERR_UNSUPPORTED);
	assert_int_equal(hpz_release(hpz, 0, 0, 0), HPZ_ERR_INVALID);
	assert_int_equal(hpz_release(hpz, 1, 4, 0), HPZ_ERR_UNSUPPORTED);
	assert_int_equal(hpz_release(hpz, 1, 0, -2), HPZ_ERR_INVALID);
	assert_int_equal(hpz_drain(hpz, 2, 0, NULL), HPZ_ERR_UNSUPPORTED);
	assert_int_equal(hpz_drain(hpz, 0, -2, NULL), HPZ_ERR_INVALID);
	assert_int_equal(hpz_list(hpz, NULL), HPZ_ERR_INVALID);
	assert_int_equal(hpz_get_status(hpz, NULL), HPZ_ERR_INVALID);
	wait.timeout_ms = -2;
	assert_int_equal(hpz_wait(hpz, &wait), HPZ_ERR_INVALID);
	wait.timeout_ms = 0;
	text[65] = '\0';
	wait.pool = text;
	assert_int_equal(hpz_wait(hpz, &wait), HPZ_ERR_NO_POOL);
	wait.pool = "";
	assert_int_equal(hpz_wait(hpz, &wait), HPZ_ERR_NO_POOL);
	wait.pool = "a\n";
	assert_int_equal(hpz_wait(hpz, &wait), HPZ_ERR_INVALID);
	assert_int_equal(hpz_wait(hpz, NULL), HPZ_ERR_INVALID);
	/* The first request that comes is this one. */
	text[64] = '\0';
	wait.pool = text;
	assert_int_equal(hpz_wait(hpz, &wait), HPZ_OK);
	fake_join(&fake);
	hpz_close(hpz);
}

/* A program built against a newer header. */
static void test_newer_structs(void **state)
{
	struct {
		struct hpz_wait_request known;
		uint64_t unknown;
	} request = {.known = HPZ_WAIT_REQUEST_INIT};
	struct {
		struct hpz_daemon_status known;
		const char *unknown;
	} daemon;
	struct hpz_wire_status wire = {.size = sizeof(wire), .version = "1", .leases = 5};
	struct hpz_wire_empty empty = {.size = sizeof(empty)};
	struct exchange exchange = {
		.answer = {.op = HPZ_OP_WAIT, .payload = &empty, .size = 8, .descriptors = -1}};
	struct hpz_status *status;
	struct fake fake;
	struct hpz *hpz;

	request.known.struct_size = sizeof(request);
	fake_start(&fake, serve_exchange, &exchange);
	assert_int_equal(hpz_connect(fake.path, &hpz), HPZ_OK);
	request.unknown = 1;
	assert_int_equal(hpz_wait(hpz, &request.known), HPZ_ERR_UNSUPPORTED);
	request.unknown = 0;
	assert_int_equal(hpz_wait(hpz, &request.known), HPZ_OK);
	fake_join(&fake);
	hpz_close(hpz);

	exchange.answer = (struct answer){
		.op = HPZ_OP_STATUS, .payload = &wire, .size = sizeof(wire), .descriptors = -1};
	fake_start(&fake, serve_exchange, &exchange);
	assert_int_equal(hpz_connect(fake.path, &hpz), HPZ_OK);
	assert_int_equal(hpz_get_status(hpz, &status), HPZ_OK);
	fake_join(&fake);
	hpz_close(hpz);
	memset(&daemon, 0xff, sizeof(daemon));
	daemon.known.struct_size = sizeof(daemon);
	assert_int_equal(hpz_status_get_daemon(status, &daemon.known), HPZ_OK);
	assert_int_equal(daemon.known.struct_size, sizeof(daemon));
	assert_int_equal(daemon.known.lease_count, 5);
	assert_null(daemon.unknown);
	/* And against an older one: what is behind its end is not touched. */
	memset(&daemon, 0xff, sizeof(daemon));
	daemon.known.struct_size = offsetof(struct hpz_daemon_status, proof);
	assert_int_equal(hpz_status_get_daemon(status, &daemon.known), HPZ_OK);
	assert_string_equal(daemon.known.version, "1");
	assert_int_equal((uintptr_t)daemon.known.proof, UINTPTR_MAX);
	daemon.known.struct_size = 0;
	assert_int_equal(hpz_status_get_daemon(status, &daemon.known), HPZ_ERR_INVALID);
	assert_int_equal(hpz_status_get_daemon(status, NULL), HPZ_ERR_INVALID);
	assert_int_equal(hpz_status_get_daemon(NULL, &daemon.known), HPZ_ERR_INVALID);
	hpz_status_free(status);
}

/* ---- spoiled leases ---- */

typedef void spoil_fn(struct fake_leased *leased);

#define SPOIL(name, statement)                                                                               \
	static void spoil_##name(struct fake_leased *leased)                                                 \
	{                                                                                                    \
		statement;                                                                                   \
	}

SPOIL(no_segments, leased->leased.segments = 0)
SPOIL(more_segments, leased->leased.segments++)
SPOIL(fewer_segments, leased->leased.segments--)
SPOIL(absurd_segments, leased->leased.segments = UINT32_MAX)
SPOIL(no_id, leased->leased.id = 0)
SPOIL(large_id, leased->leased.id = 1ull << 53)
SPOIL(nothing_asked, leased->leased.asked = 0)
SPOIL(less_given, leased->leased.given -= PAGE)
SPOIL(more_given, leased->leased.given += PAGE)
SPOIL(less_than_asked, leased->leased.asked = leased->leased.given + 1)
SPOIL(other_delivery, leased->leased.deliver ^= 1)
SPOIL(unknown_delivery, leased->leased.deliver = 2)
SPOIL(reserved, leased->leased.reserved = 1)
SPOIL(more_ready, leased->leased.ready = leased->leased.given + 1)
SPOIL(more_zeroed, leased->leased.ready = 1; leased->leased.zeroed = leased->leased.given)
SPOIL(absurd_zeroed, leased->leased.zeroed = UINT64_MAX)
SPOIL(size_zero, leased->leased.size = 0)
SPOIL(size_short, leased->leased.size = 8)
SPOIL(size_long, leased->leased.size = 5000)
SPOIL(size_tail, leased->leased.size += 8)
SPOIL(segment_size_zero, leased->segments[0].size = 0)
SPOIL(segment_size_short, leased->segments[1].size -= 8)
SPOIL(segment_size_long, leased->segments[1].size += 8)
SPOIL(segment_record, leased->segments[1].record = HPZ_RECORD_HOLDER)
SPOIL(segment_page_size_zero, leased->segments[0].page_size = 0)
SPOIL(segment_page_size_odd, leased->segments[0].page_size = PAGE + 1)
SPOIL(segment_page_size_huge, leased->segments[0].page_size = 1ull << 63)
SPOIL(segment_empty, leased->segments[0].bytes = 0)
SPOIL(segment_broken, leased->segments[0].bytes++)
SPOIL(segment_absurd, leased->segments[0].bytes = UINT64_MAX - PAGE + 1)
SPOIL(segment_overflow, leased->segments[0].bytes = leased->segments[1].bytes = 1ull << 62;
	leased->leased.given = leased->leased.asked = 1)
SPOIL(segment_node, leased->segments[0].node = -1)
SPOIL(path_relative, strcpy(leased->segments[0].path, "x"))
SPOIL(path_control, strcpy(leased->segments[0].path, "/a\nb"))
SPOIL(path_not_utf8, strcpy(leased->segments[0].path, "/\xff"))
SPOIL(path_hidden, leased->segments[0].path[200] = 'x')
SPOIL(descriptor_twice, leased->segments[1].descriptor = 0)
SPOIL(descriptor_beyond, leased->segments[1].descriptor = 2)
SPOIL(descriptor_far, leased->segments[1].descriptor = INT32_MAX)
SPOIL(descriptor_none, leased->segments[1].descriptor = -1)
SPOIL(descriptor_negative, leased->segments[1].descriptor = INT32_MIN)
SPOIL(descriptor_spare, leased->fds[leased->fd_count++] = leased->fds[0])
SPOIL(path_beside_descriptor, strcpy(leased->segments[0].path, "/mnt/x"))
SPOIL(path_missing, memset(leased->segments[0].path, 0, HPZ_WIRE_PATH))
SPOIL(path_descriptor, leased->segments[0].descriptor = 0)
SPOIL(path_descriptor_sent, leased->fds[leased->fd_count++] = 0)

static spoil_fn *const spoil_any[] = {spoil_no_segments, spoil_more_segments, spoil_fewer_segments,
	spoil_absurd_segments, spoil_no_id, spoil_large_id, spoil_nothing_asked, spoil_less_given,
	spoil_more_given, spoil_less_than_asked, spoil_other_delivery, spoil_unknown_delivery, spoil_reserved,
	spoil_more_ready, spoil_more_zeroed, spoil_absurd_zeroed, spoil_size_zero, spoil_size_short,
	spoil_size_long, spoil_size_tail, spoil_segment_size_zero, spoil_segment_size_short,
	spoil_segment_size_long, spoil_segment_record, spoil_segment_page_size_zero,
	spoil_segment_page_size_odd, spoil_segment_page_size_huge, spoil_segment_empty, spoil_segment_broken,
	spoil_segment_absurd, spoil_segment_overflow, spoil_segment_node, spoil_path_relative,
	spoil_path_control, spoil_path_not_utf8, spoil_path_hidden};
static spoil_fn *const spoil_fd[] = {spoil_descriptor_twice, spoil_descriptor_beyond, spoil_descriptor_far,
	spoil_descriptor_none, spoil_descriptor_negative, spoil_descriptor_spare,
	spoil_path_beside_descriptor};
static spoil_fn *const spoil_path[] = {spoil_path_missing, spoil_path_descriptor, spoil_path_descriptor_sent};

static void check_spoiled(call_fn *call, uint16_t op, const struct fake_lease *lease, spoil_fn *const *spoils,
	size_t spoil_count)
{
	for (size_t i = 0; i < spoil_count; i++) {
		struct fake_leased leased;
		fake_make_leased(lease, &leased);
		/* As many bytes as before, whatever the counts say then. */
		size_t size = sizeof(leased.leased) + lease->count * sizeof(leased.segments[0]);
		spoils[i](&leased);
		struct answer answer = {.op = op,
			.payload = &leased,
			.size = size,
			.descriptors = -1,
			.fd_count = leased.fd_count};
		memcpy(answer.fds, leased.fds, sizeof(answer.fds));
		int error = call_and_hear(call, &answer);
		if (error != HPZ_ERR_PROTOCOL)
			fail_msg("spoil %zu of op %u: %s", i, op, hpz_strerror(error));
	}
}

static void test_spoiled_leases(void **state)
{
	_cleanup_fd_ int file = make_file();
	struct fake_lease by_fd = get_fd_lease(file), by_path = get_path_lease();

	check_spoiled(call_lease, HPZ_OP_LEASE, &by_fd, spoil_any, ARRAY_SIZE(spoil_any));
	check_spoiled(call_lease, HPZ_OP_LEASE, &by_fd, spoil_fd, ARRAY_SIZE(spoil_fd));
	check_spoiled(call_lease_path, HPZ_OP_LEASE, &by_path, spoil_any, ARRAY_SIZE(spoil_any));
	check_spoiled(call_lease_path, HPZ_OP_LEASE, &by_path, spoil_path, ARRAY_SIZE(spoil_path));
	check_spoiled(call_adopt, HPZ_OP_ADOPT, &by_fd, spoil_fd, ARRAY_SIZE(spoil_fd));
	check_spoiled(call_adopt, HPZ_OP_ADOPT, &by_path, spoil_path, ARRAY_SIZE(spoil_path));
}

static void test_lease_of_every_length(void **state)
{
	_cleanup_fd_ int file = make_file();
	struct fake_lease lease = get_fd_lease(file);
	struct fake_leased leased;

	fake_make_leased(&lease, &leased);
	struct answer answer = {
		.op = HPZ_OP_LEASE, .payload = &leased, .descriptors = -1, .fd_count = leased.fd_count};
	memcpy(answer.fds, leased.fds, sizeof(answer.fds));
	size_t whole = sizeof(leased.leased) + lease.count * sizeof(leased.segments[0]);
	for (answer.size = 0; answer.size < whole; answer.size++)
		assert_int_equal(call_and_hear(call_lease, &answer), HPZ_ERR_PROTOCOL);
}

/* Less memory than was asked for is none that was asked for. */
static void test_smaller_lease(void **state)
{
	_cleanup_fd_ int file = make_file();
	struct lease_script script = {.lease = get_fd_lease(file)};
	struct hpz_lease_request request = HPZ_LEASE_REQUEST_INIT;
	struct fake_leased leased;
	struct hpz_lease *lease = NULL;
	struct fake fake;
	struct hpz *hpz;

	fake_make_leased(&script.lease, &leased);
	struct exchange exchange = {.answer = {.op = HPZ_OP_LEASE,
					    .payload = &leased,
					    .size = sizeof(leased.leased) + 2 * sizeof(leased.segments[0]),
					    .descriptors = -1,
					    .fd_count = 2,
					    .fds = {file, file}},
		.closes = true};
	fake_start(&fake, serve_exchange, &exchange);
	assert_int_equal(hpz_connect(fake.path, &hpz), HPZ_OK);
	request.size = 6 * PAGE + 1;
	assert_int_equal(hpz_lease(hpz, &request, &lease), HPZ_ERR_PROTOCOL);
	hpz_close(hpz);
	fake_join(&fake);
}

/* ---- many at once ---- */

struct bulk_script {
	struct {
		struct hpz_wire_leased leased;
		struct hpz_wire_segment segment;
	} leases[3];
	int fds[3];
	size_t count; /* of those sent */
	bool is_refused;
	struct hpz_wire_lease request;
};

static void serve_bulk(struct fake *fake, void *data)
{
	struct bulk_script *script = data;
	struct hpz_wire_ack ack;

	fake_accept(fake);
	fake_expect(fake, HPZ_OP_LEASE, &script->request, sizeof(script->request));
	fake_reply(fake, HPZ_OP_LEASE, 0, script->leases, script->count * sizeof(script->leases[0]),
		script->fds, script->count);
	if (script->is_refused) {
		fake_expect_end(fake);
		return;
	}
	fake_expect(fake, HPZ_OP_ACK, &ack, sizeof(ack));
	if (ack.id != FAKE_LEASE_ID || ack.count != 3)
		fake_fail(fake, "the ACK is not for all three");
	fake_expect_end(fake);
}

static struct bulk_script make_bulk(int file)
{
	struct bulk_script script = {.count = 3, .fds = {file, file, file}};

	for (size_t i = 0; i < 3; i++) {
		script.leases[i].leased = (struct hpz_wire_leased){.size = sizeof(script.leases[i].leased),
			.segments = 1,
			.id = FAKE_LEASE_ID + i,
			.asked = PAGE,
			.given = PAGE,
			.ready = PAGE};
		script.leases[i].segment = (struct hpz_wire_segment){.size = sizeof(script.leases[i].segment),
			.record = HPZ_RECORD_SEGMENT,
			.page_size = PAGE,
			.bytes = PAGE,
			.generation = 1,
			.descriptor = (int32_t)i};
	}
	return script;
}

static int ask_bulk(struct bulk_script *script, struct hpz_lease *leases[3])
{
	struct hpz_lease_request request = HPZ_LEASE_REQUEST_INIT;
	struct fake fake;
	struct hpz *hpz;

	fake_start(&fake, serve_bulk, script);
	assert_int_equal(hpz_connect(fake.path, &hpz), HPZ_OK);
	request.size = PAGE;
	int error = hpz_lease_many(hpz, &request, 3, leases);
	hpz_close(hpz);
	fake_join(&fake);
	return error;
}

static void test_lease_many(void **state)
{
	_cleanup_fd_ int file = make_file();
	struct bulk_script script = make_bulk(file);
	struct hpz_segment segment = {.struct_size = sizeof(segment)};
	struct hpz_lease *leases[3] = {NULL};
	unsigned before = fake_count_fds();

	assert_int_equal(ask_bulk(&script, leases), HPZ_OK);
	assert_int_equal(script.request.count, 3);
	for (size_t i = 0; i < 3; i++) {
		assert_int_equal(hpz_lease_get_id(leases[i]), FAKE_LEASE_ID + i);
		assert_int_equal(hpz_lease_get_segment(leases[i], 0, &segment), HPZ_OK);
		assert_int_equal(fcntl(segment.fd, F_GETFD), FD_CLOEXEC);
		hpz_lease_free(leases[i]);
	}
	assert_int_equal(fake_count_fds(), before);
}

/* A bulk that is not the one that was asked for: nothing of it is kept. */
static void test_wrong_bulk(void **state)
{
	_cleanup_fd_ int file = make_file();
	struct hpz_lease *leases[3] = {NULL};
	unsigned before = fake_count_fds();

	for (unsigned wrong = 0; wrong < 6; wrong++) {
		struct bulk_script script = make_bulk(file);
		script.is_refused = true;
		switch (wrong) {
		case 0: /* one is missing */
			script.count = 2;
			break;
		case 1: /* ids with a gap could not be confirmed together */
			script.leases[2].leased.id++;
			break;
		case 2: /* one descriptor twice, so that another is nobody's */
			script.leases[2].segment.descriptor = 1;
			break;
		case 3:
			script.leases[1].leased.given--;
			break;
		case 4: /* the segments of the first are those of the second */
			script.leases[0].leased.segments = 2;
			break;
		case 5:
			script.leases[1].leased.deliver = HPZ_DELIVER_PATH;
			break;
		}
		assert_int_equal(ask_bulk(&script, leases), HPZ_ERR_PROTOCOL);
		assert_true(!leases[0] && !leases[1] && !leases[2]);
		assert_int_equal(fake_count_fds(), before);
	}
}

static void test_many_too_many(void **state)
{
	struct hpz_lease_request request = HPZ_LEASE_REQUEST_INIT;
	struct hpz_lease *leases[1] = {NULL};
	struct fake fake;
	struct hpz *hpz;

	fake_start(&fake, serve_hello, NULL);
	assert_int_equal(hpz_connect(fake.path, &hpz), HPZ_OK);
	request.size = PAGE;
	assert_int_equal(hpz_lease_many(hpz, &request, 0, leases), HPZ_ERR_INVALID);
	assert_int_equal(hpz_lease_many(hpz, &request, HPZ_MANY_MAX + 1, leases), HPZ_ERR_INVALID);
	assert_int_equal(hpz_lease_many(hpz, &request, SIZE_MAX, leases), HPZ_ERR_INVALID);
	assert_int_equal(hpz_lease_many(hpz, &request, 1, NULL), HPZ_ERR_INVALID);
	request.key = "k";
	assert_int_equal(hpz_lease_many(hpz, &request, 2, leases), HPZ_ERR_INVALID);
	request.key = NULL;
	request.flags = HPZ_LEASE_SEGMENTS;
	assert_int_equal(hpz_lease_many(hpz, &request, 2, leases), HPZ_ERR_INVALID);
	hpz_close(hpz);
	fake_join(&fake);
}

/* ---- another size ---- */

struct change_script {
	struct {
		struct hpz_wire_changed changed;
		struct hpz_wire_segment segments[2];
	} reply;
	size_t segments; /* of those sent */
	int fds[2];
	bool is_refused;
	struct hpz_wire_change request;
};

static void serve_change(struct fake *fake, void *data)
{
	struct change_script *script = data;
	struct hpz_wire_ack ack;

	fake_accept(fake);
	fake_expect(fake, HPZ_OP_CHANGE, &script->request, sizeof(script->request));
	fake_reply(fake, HPZ_OP_CHANGE, 0, &script->reply,
		sizeof(script->reply.changed) + script->segments * sizeof(script->reply.segments[0]),
		script->fds, script->segments);
	if (!script->is_refused && script->segments > 0) {
		fake_expect(fake, HPZ_OP_ACK, &ack, sizeof(ack));
		if (ack.id != FAKE_LEASE_ID || ack.count)
			fake_fail(fake, "the ACK is for another lease");
	}
	fake_expect_end(fake);
}

/* A lease that had one segment and has three. */
static struct change_script make_change(int file)
{
	struct change_script script = {.segments = 2, .fds = {file, file}};

	script.reply.changed = (struct hpz_wire_changed){.size = sizeof(script.reply.changed),
		.segments = 2,
		.id = FAKE_LEASE_ID,
		.given = 6 * PAGE,
		.ready = PAGE,
		.zeroed = 2 * PAGE,
		.total = 3,
		.deliver = HPZ_DELIVER_FD};
	for (size_t i = 0; i < 2; i++)
		script.reply.segments[i] = (struct hpz_wire_segment){.size = sizeof(script.reply.segments[i]),
			.record = HPZ_RECORD_SEGMENT,
			.page_size = PAGE,
			.bytes = (i + 1) * PAGE,
			.generation = 1,
			.descriptor = (int32_t)i};
	return script;
}

static int ask_change(
	struct change_script *script, struct hpz_change_result *result, struct hpz_lease **added)
{
	struct hpz_change_request request = HPZ_CHANGE_REQUEST_INIT;
	struct fake fake;
	struct hpz *hpz;

	fake_start(&fake, serve_change, script);
	assert_int_equal(hpz_connect(fake.path, &hpz), HPZ_OK);
	assert_int_equal(hpz_change(hpz, FAKE_LEASE_ID, &request, result, added), HPZ_ERR_INVALID);
	request.size = 6 * PAGE - 1;
	request.known = 1;
	request.timeout_ms = 3000;
	request.priority = -1;
	assert_int_equal(hpz_change(hpz, 0, &request, result, added), HPZ_ERR_INVALID);
	assert_int_equal(hpz_change(hpz, FAKE_LEASE_ID, NULL, result, added), HPZ_ERR_INVALID);
	assert_int_equal(hpz_change(hpz, FAKE_LEASE_ID, &request, NULL, added), HPZ_ERR_INVALID);
	assert_int_equal(hpz_change(hpz, FAKE_LEASE_ID, &request, result, NULL), HPZ_ERR_INVALID);
	int error = hpz_change(hpz, FAKE_LEASE_ID, &request, result, added);
	hpz_close(hpz);
	fake_join(&fake);
	return error;
}

static void test_change(void **state)
{
	_cleanup_fd_ int file = make_file();
	struct hpz_change_result result = {.struct_size = sizeof(result)};
	struct change_script script = make_change(file);
	struct hpz_segment segment = {.struct_size = sizeof(segment)};
	struct hpz_lease *added = NULL;
	unsigned before = fake_count_fds();

	assert_int_equal(ask_change(&script, &result, &added), HPZ_OK);
	assert_true(script.request.bytes == 6 * PAGE - 1 && script.request.known == 1 &&
		    script.request.timeout_ms == 3000 && script.request.priority == -1);
	assert_true(result.size == 6 * PAGE && result.ready == PAGE && result.zeroed == 2 * PAGE &&
		    result.returning == 0 && result.segment_count == 3);
	assert_true(hpz_lease_get_id(added) == FAKE_LEASE_ID && hpz_lease_get_size(added) == 3 * PAGE);
	assert_int_equal(hpz_lease_get_segment(added, 1, &segment), HPZ_OK);
	assert_int_equal(fcntl(segment.fd, F_GETFD), FD_CLOEXEC);
	hpz_lease_free(added);
	/* Less of it: nothing comes along. */
	added = NULL;
	script = make_change(file);
	script.segments = script.reply.changed.segments = 0;
	script.reply.changed.total = 1;
	script.reply.changed.ready = script.reply.changed.zeroed = 0;
	script.reply.changed.returning = 4711;
	assert_int_equal(ask_change(&script, &result, &added), HPZ_OK);
	assert_true(!added && result.returning == 4711 && result.segment_count == 1);
	assert_int_equal(fake_count_fds(), before);
}

static void test_wrong_change(void **state)
{
	_cleanup_fd_ int file = make_file();
	struct hpz_change_result result = {.struct_size = sizeof(result)};
	struct hpz_lease *added = NULL;
	unsigned before = fake_count_fds();

#define SPOILED(field, value_)                                                                               \
	do {                                                                                                 \
		struct change_script script = make_change(file);                                             \
		script.is_refused = true;                                                                    \
		script.field = (value_);                                                                     \
		assert_int_equal(ask_change(&script, &result, &added), HPZ_ERR_PROTOCOL);                    \
		assert_null(added);                                                                          \
		assert_int_equal(fake_count_fds(), before);                                                  \
	} while (0)
	SPOILED(reply.changed.id, 1);
	SPOILED(reply.changed.given, PAGE);
	SPOILED(reply.changed.total, 4);
	SPOILED(reply.changed.total, 0);
	SPOILED(reply.changed.segments, 1);
	SPOILED(reply.changed.ready, 7 * PAGE);
	SPOILED(reply.changed.zeroed, 6 * PAGE);
	SPOILED(reply.changed.deliver, HPZ_DELIVER_PATH);
	SPOILED(reply.segments[1].descriptor, 0);
	SPOILED(reply.segments[1].bytes, UINT64_MAX);
	SPOILED(reply.segments[1].record, HPZ_RECORD_POOL);
	SPOILED(segments, 1);
#undef SPOILED
}

/* ---- reservations ---- */

struct reserve_script {
	struct hpz_wire_reserved reserved;
	struct hpz_wire_lease request;
	bool is_refused;
};

static void serve_reserve(struct fake *fake, void *data)
{
	struct reserve_script *script = data;
	struct hpz_wire_release release;
	struct hpz_wire_empty empty = {.size = sizeof(empty)};

	fake_accept(fake);
	fake_expect(fake, HPZ_OP_RESERVE, &script->request, sizeof(script->request));
	fake_reply(fake, HPZ_OP_RESERVE, 0, &script->reserved, sizeof(script->reserved), NULL, 0);
	if (!script->is_refused) {
		fake_expect(fake, HPZ_OP_UNRESERVE, &release, sizeof(release));
		if (release.id != 4711)
			fake_fail(fake, "another reservation than ours");
		fake_reply(fake, HPZ_OP_UNRESERVE, 0, &empty, sizeof(empty), NULL, 0);
	}
	fake_expect_end(fake);
}

static int ask_reserve(struct reserve_script *script, struct hpz_reservation *reservation)
{
	struct hpz_lease_request request = HPZ_LEASE_REQUEST_INIT;
	struct fake fake;
	struct hpz *hpz;

	fake_start(&fake, serve_reserve, script);
	assert_int_equal(hpz_connect(fake.path, &hpz), HPZ_OK);
	request.size = 3 * PAGE;
	request.label = "vm";
	assert_int_equal(hpz_reserve(hpz, &request, 0, reservation), HPZ_ERR_INVALID);
	assert_int_equal(hpz_reserve(hpz, &request, 1, NULL), HPZ_ERR_INVALID);
	assert_int_equal(hpz_unreserve(hpz, 0), HPZ_ERR_INVALID);
	int error = hpz_reserve(hpz, &request, 5000, reservation);
	if (!error)
		assert_int_equal(hpz_unreserve(hpz, reservation->id), HPZ_OK);
	hpz_close(hpz);
	fake_join(&fake);
	return error;
}

static void test_reserve(void **state)
{
	static const struct hpz_wire_reserved good = {.size = sizeof(good),
		.node = 1,
		.id = 4711,
		.asked = 3 * PAGE,
		.given = 4 * PAGE,
		.ready = PAGE,
		.zeroed = 3 * PAGE,
		.page_size = 2 * PAGE,
		.ttl_ms = 4999,
		.pool = "two"};
	struct hpz_reservation reservation = {.struct_size = sizeof(reservation)};
	struct reserve_script script = {.reserved = good};

	assert_int_equal(ask_reserve(&script, &reservation), HPZ_OK);
	assert_true(script.request.ttl_ms == 5000 && script.request.bytes == 3 * PAGE);
	assert_string_equal(script.request.label, "vm");
	assert_true(reservation.id == 4711 && reservation.size == 4 * PAGE && reservation.ready == PAGE &&
		    reservation.zeroed == 3 * PAGE && reservation.page_size == 2 * PAGE &&
		    reservation.ttl_ms == 4999 && reservation.node == 1);
	assert_string_equal(reservation.pool, "two");
	script.is_refused = true;
#define SPOILED(field, value_)                                                                               \
	do {                                                                                                 \
		script.reserved = good;                                                                      \
		script.reserved.field = (value_);                                                            \
		assert_int_equal(ask_reserve(&script, &reservation), HPZ_ERR_PROTOCOL);                      \
	} while (0)
	SPOILED(id, 0);
	SPOILED(asked, PAGE);
	SPOILED(given, 2 * PAGE);
	SPOILED(ready, 5 * PAGE);
	SPOILED(zeroed, 4 * PAGE);
	SPOILED(page_size, 0);
	SPOILED(node, -1);
#undef SPOILED
}

/* ---- withheld descriptors: the kernel passes on fewer than the peer says it sent ---- */

struct withheld_script {
	int file;
	uint16_t op;
	size_t sent; /* of two */
	bool ends;   /* instead of an answer to the release */
};

static void serve_withheld(struct fake *fake, void *data)
{
	struct withheld_script *script = data;
	struct fake_lease lease = get_fd_lease(script->file);
	struct hpz_wire_release release;
	struct fake_leased leased;
	struct hpz_wire_ack ack;

	fake_make_leased(&lease, &leased);
	struct answer answer = {.op = script->op,
		.payload = &leased,
		.size = sizeof(leased.leased) + 2 * sizeof(leased.segments[0]),
		.descriptors = 2,
		.fd_count = script->sent,
		.fds = {script->file, script->file}};
	fake_accept(fake);
	fake_expect(fake, script->op, NULL, 0);
	send_answer(fake, &answer);
	fake_expect(fake, HPZ_OP_ACK, &ack, sizeof(ack));
	if (script->op == HPZ_OP_LEASE) {
		fake_expect(fake, HPZ_OP_RELEASE, &release, sizeof(release));
		if (ack.id != FAKE_LEASE_ID || release.id != FAKE_LEASE_ID)
			fake_fail(fake, "the lease that was given back is another one");
		if (script->ends)
			return;
		struct hpz_wire_released released = {
			.size = sizeof(released), .id = FAKE_LEASE_ID, .state = HPZ_STATE_ENDED};
		fake_reply(fake, HPZ_OP_RELEASE, 0, &released, sizeof(released), NULL, 0);
	}
	fake_expect_end(fake);
}

static void test_withheld(void **state)
{
	_cleanup_fd_ int file = make_file();
	unsigned before = fake_count_fds();
	struct fake fake;
	struct hpz *hpz;

	for (size_t sent = 0; sent < 2; sent++) {
		struct withheld_script script = {.file = file, .op = HPZ_OP_LEASE, .sent = sent};
		fake_start(&fake, serve_withheld, &script);
		assert_int_equal(hpz_connect(fake.path, &hpz), HPZ_OK);
		assert_int_equal(call_lease(hpz), HPZ_ERR_WITHHELD);
		assert_non_null(strstr(hpz_get_error_text(hpz), "given back"));
		hpz_close(hpz);
		fake_join(&fake);
		/* An adopted lease is somebody's: it stays. */
		script.op = HPZ_OP_ADOPT;
		fake_start(&fake, serve_withheld, &script);
		assert_int_equal(hpz_connect(fake.path, &hpz), HPZ_OK);
		assert_int_equal(call_adopt(hpz), HPZ_ERR_WITHHELD);
		hpz_close(hpz);
		fake_join(&fake);
	}
	struct withheld_script script = {.file = file, .op = HPZ_OP_LEASE, .sent = 1, .ends = true};
	fake_start(&fake, serve_withheld, &script);
	assert_int_equal(hpz_connect(fake.path, &hpz), HPZ_OK);
	assert_int_equal(call_lease(hpz), HPZ_ERR_LOST);
	hpz_close(hpz);
	fake_join(&fake);
	assert_int_equal(fake_count_fds(), before);
}

/* ---- release, wait, drain ---- */

static void test_release_answers(void **state)
{
	struct hpz_wire_released released = {
		.size = sizeof(released), .id = FAKE_LEASE_ID, .state = HPZ_STATE_ENDED};
	struct answer answer = {
		.op = HPZ_OP_RELEASE, .payload = &released, .size = sizeof(released), .descriptors = -1};

	assert_int_equal(call_and_hear(call_release, &answer), HPZ_OK);
	released.state = HPZ_STATE_RETURNING;
	assert_int_equal(call_and_hear(call_release, &answer), HPZ_OK);
	released.state = HPZ_STATE_LEASED;
	assert_int_equal(call_and_hear(call_release, &answer), HPZ_ERR_PROTOCOL);
	released.state = 5;
	assert_int_equal(call_and_hear(call_release, &answer), HPZ_ERR_PROTOCOL);
	released.state = HPZ_STATE_ENDED;
	released.id++;
	assert_int_equal(call_and_hear(call_release, &answer), HPZ_ERR_PROTOCOL);
	answer.size = 4;
	assert_int_equal(call_and_hear(call_release, &answer), HPZ_ERR_PROTOCOL);
	answer.size = 0;
	assert_int_equal(call_and_hear(call_release, &answer), HPZ_ERR_PROTOCOL);
}

static void test_empty_answers(void **state)
{
	struct {
		struct hpz_wire_empty empty;
		uint64_t more;
	} payload = {.empty = {.size = sizeof(payload.empty)}};
	struct answer answer = {.payload = &payload, .descriptors = -1};

	for (unsigned i = 0; i < 2; i++) {
		call_fn *call = i ? call_drain : call_wait;
		answer.op = i ? HPZ_OP_DRAIN : HPZ_OP_WAIT;
		answer.size = sizeof(payload.empty);
		assert_int_equal(call_and_hear(call, &answer), HPZ_OK);
		payload.empty.reserved = 1;
		assert_int_equal(call_and_hear(call, &answer), HPZ_ERR_PROTOCOL);
		payload.empty.reserved = 0;
		answer.size = sizeof(payload);
		assert_int_equal(call_and_hear(call, &answer), HPZ_ERR_PROTOCOL);
		answer.size = 0;
		assert_int_equal(call_and_hear(call, &answer), HPZ_ERR_PROTOCOL);
	}
}

static void serve_drain(struct fake *fake, void *data)
{
	struct hpz_wire_empty empty = {.size = sizeof(empty)};
	struct hpz_wire_drain drain;

	fake_accept(fake);
	fake_expect(fake, HPZ_OP_DRAIN, &drain, sizeof(drain));
	if (drain.flags != HPZ_DRAIN_GIVE_BACK || drain.timeout_ms != 123)
		fake_fail(fake, "another drain than was asked for");
	fake_reply_error(fake, HPZ_OP_DRAIN, HPZ_ERR_IN_USE, 3, "3 leases");
	fake_expect(fake, HPZ_OP_DRAIN, &drain, sizeof(drain));
	fake_reply_error(fake, HPZ_OP_DRAIN, HPZ_ERR_DENIED, 9, "no");
	fake_expect(fake, HPZ_OP_DRAIN, &drain, sizeof(drain));
	fake_reply(fake, HPZ_OP_DRAIN, 0, &empty, sizeof(empty), NULL, 0);
	fake_expect_end(fake);
}

static void test_drain_counts(void **state)
{
	uint32_t leases = 77;
	struct fake fake;
	struct hpz *hpz;

	fake_start(&fake, serve_drain, NULL);
	assert_int_equal(hpz_connect(fake.path, &hpz), HPZ_OK);
	assert_int_equal(hpz_drain(hpz, HPZ_DRAIN_GIVE_BACK, 123, &leases), HPZ_ERR_IN_USE);
	assert_int_equal(leases, 3);
	assert_string_equal(hpz_get_error_text(hpz), "3 leases");
	leases = 77;
	assert_int_equal(hpz_drain(hpz, 0, 0, &leases), HPZ_ERR_DENIED);
	assert_int_equal(leases, 77);
	assert_int_equal(hpz_drain(hpz, 0, 0, &leases), HPZ_OK);
	assert_int_equal(leases, 0);
	hpz_close(hpz);
	fake_join(&fake);
}

/* ---- plan ---- */

static struct hpz_wire_planned get_planned(void)
{
	return (struct hpz_wire_planned){.size = sizeof(struct hpz_wire_planned),
		.kind = HPZ_PLAN_EXTEND,
		.segments = 1,
		.asked = 3 * PAGE,
		.given = 3 * PAGE,
		.ready = PAGE,
		.zeroed = 2 * PAGE,
		.from_free = PAGE,
		.from_clean = PAGE,
		.page_size = PAGE,
		.node = 1,
		.waiting = 4,
		.pool = "two",
		.text = "so"};
}

static void serve_plan(struct fake *fake, void *data)
{
	struct hpz_wire_lease *request = data;
	struct hpz_wire_planned planned = get_planned();

	fake_accept(fake);
	fake_expect(fake, HPZ_OP_PLAN, request, sizeof(*request));
	fake_reply(fake, HPZ_OP_PLAN, 0, &planned, sizeof(planned), NULL, 0);
	fake_expect_end(fake);
}

static void test_plan(void **state)
{
	struct hpz_lease_request request = HPZ_LEASE_REQUEST_INIT;
	struct hpz_plan_result result = {.struct_size = sizeof(result)};
	struct hpz_wire_lease wire;
	struct fake fake;
	struct hpz *hpz;

	fake_start(&fake, serve_plan, &wire);
	assert_int_equal(hpz_connect(fake.path, &hpz), HPZ_OK);
	/* Never sent. */
	assert_int_equal(hpz_plan(hpz, &request, &result), HPZ_ERR_INVALID);
	request.size = 3 * PAGE;
	assert_int_equal(hpz_plan(hpz, NULL, &result), HPZ_ERR_INVALID);
	assert_int_equal(hpz_plan(hpz, &request, NULL), HPZ_ERR_INVALID);
	request.flags = HPZ_LEASE_SEGMENTS;
	request.timeout_ms = 7;
	assert_int_equal(hpz_plan(hpz, &request, &result), HPZ_OK);
	assert_true(wire.bytes == 3 * PAGE && wire.flags == HPZ_LEASE_SEGMENTS && wire.timeout_ms == 7);
	assert_true(result.kind == HPZ_PLAN_EXTEND && result.error == 0 && result.asked == 3 * PAGE &&
		    result.size == 3 * PAGE && result.ready == PAGE && result.zeroed == 2 * PAGE);
	assert_true(result.from_free == PAGE && result.from_dirty == 0 && result.from_clean == PAGE &&
		    result.page_size == PAGE && result.segment_count == 1 && result.node == 1 &&
		    result.waiting == 4);
	assert_string_equal(result.pool, "two");
	assert_string_equal(result.text, "so");
	hpz_close(hpz);
	fake_join(&fake);
}

/* ---- demand ---- */

struct demand_answer {
	struct hpz_wire_demanded head;
	struct hpz_wire_demand_pool pool;
	struct hpz_wire_demand_size size;
};

static struct demand_answer get_demand_answer(const char *name, uint64_t cursor)
{
	struct demand_answer answer = {
		.head = {.size = sizeof(answer.head), .records = 2, .cursor = cursor},
		.pool = {.size = sizeof(answer.pool),
			.record = HPZ_RECORD_DEMAND_POOL,
			.sizes = 1,
			.node = 1,
			.page_size = 2,
			.target = 3,
			.fixed = 4,
			.learned = 5,
			.most = 6,
			.large = 7,
			.half_life_ms = 8,
			.learns = 1},
		.size = {.size = sizeof(answer.size),
			.record = HPZ_RECORD_DEMAND_SIZE,
			.bytes = 1,
			.out = 2,
			.peak_milli = 3,
			.exact_milli = 4,
			.larger_milli = 5,
			.zeroed_milli = 6,
			.waited_milli = 7,
			.refused_milli = 8,
			.wanted = 9,
			.fixed = 10,
			.proposed = 11,
			.there = 12,
			.clean = 13,
			.reason = HPZ_DEMAND_CROWDED},
	};
	memcpy(answer.pool.pool, name, strlen(name));
	return answer;
}

/* One answer of each that is not to be believed. */
static const struct {
	size_t offset;
	uint32_t value;
	size_t length; /* 0: all of it */
} wrong_demands[] = {
	{offsetof(struct demand_answer, pool.record), HPZ_RECORD_POOL, 0},
	{offsetof(struct demand_answer, pool.sizes), 2, 0},
	{offsetof(struct demand_answer, pool.sizes), UINT32_MAX, 0},
	{offsetof(struct demand_answer, pool.node), UINT32_MAX, 0},
	{offsetof(struct demand_answer, pool.learns), 2, 0},
	{offsetof(struct demand_answer, size.record), HPZ_RECORD_DEMAND_POOL, 0},
	{offsetof(struct demand_answer, head.records), 1, 0},
	{offsetof(struct demand_answer, head.records), 3, 0},
	{offsetof(struct demand_answer, head.size), sizeof(struct hpz_wire_demanded),
		sizeof(struct demand_answer) - 8},
};

static void serve_demand(struct fake *fake, void *data)
{
	struct hpz_wire_demand wire;
	struct demand_answer answer = get_demand_answer("a", 1);

	fake_accept(fake);
	fake_expect(fake, HPZ_OP_DEMAND, &wire, sizeof(wire));
	fake_reply(fake, HPZ_OP_DEMAND, 0, &answer, sizeof(answer), NULL, 0);
	fake_expect(fake, HPZ_OP_DEMAND, &wire, sizeof(wire));
	if (wire.cursor != 1)
		fake_fail(fake, "another page than comes next");
	answer = get_demand_answer("b", 0);
	fake_reply(fake, HPZ_OP_DEMAND, 0, &answer, sizeof(answer), NULL, 0);
	fake_expect_end(fake);
}

static void test_demand(void **state)
{
	struct hpz_demand_pool pool = {.struct_size = sizeof(pool)};
	struct hpz_demand_size size = {.struct_size = sizeof(size)};
	struct hpz_demand *demand = NULL;
	struct hpz *hpz;
	struct fake fake;

	fake_start(&fake, serve_demand, NULL);
	assert_int_equal(hpz_connect(fake.path, &hpz), HPZ_OK);
	assert_int_equal(hpz_get_demand(hpz, NULL), HPZ_ERR_INVALID);
	assert_int_equal(hpz_get_demand(hpz, &demand), HPZ_OK);
	assert_int_equal(hpz_demand_get_pool_count(demand), 2);
	assert_int_equal(hpz_demand_get_pool(demand, 2, &pool), HPZ_ERR_INVALID);
	assert_int_equal(hpz_demand_get_pool(demand, 1, &pool), HPZ_OK);
	assert_string_equal(pool.pool, "b");
	assert_true(pool.node == 1 && pool.page_size == 2 && pool.target == 3 && pool.fixed == 4);
	assert_true(pool.learned == 5 && pool.most == 6 && pool.large == 7 && pool.half_life_ms == 8);
	assert_true(pool.learns == 1 && pool.size_count == 1);
	assert_int_equal(hpz_demand_get_size(demand, 2, 0, &size), HPZ_ERR_INVALID);
	assert_int_equal(hpz_demand_get_size(demand, 0, 1, &size), HPZ_ERR_INVALID);
	assert_int_equal(hpz_demand_get_size(demand, 0, 0, &size), HPZ_OK);
	assert_true(size.bytes == 1 && size.out == 2 && size.peak_milli == 3 && size.exact_milli == 4);
	assert_true(size.larger_milli == 5 && size.zeroed_milli == 6 && size.waited_milli == 7);
	assert_true(size.refused_milli == 8 && size.wanted == 9 && size.fixed == 10);
	assert_true(size.proposed == 11 && size.there == 12 && size.clean == 13);
	assert_int_equal(size.reason, HPZ_DEMAND_CROWDED);
	hpz_demand_free(demand);
	hpz_demand_free(NULL);
	assert_int_equal(hpz_demand_get_pool_count(NULL), 0);
	assert_int_equal(hpz_demand_get_pool(NULL, 0, &pool), HPZ_ERR_INVALID);
	assert_int_equal(hpz_demand_get_size(NULL, 0, 0, &size), HPZ_ERR_INVALID);
	hpz_close(hpz);
	fake_join(&fake);
}

static void serve_wrong_demand(struct fake *fake, void *data)
{
	size_t row = *(const size_t *)data;
	struct demand_answer answer = get_demand_answer("a", 0);
	struct hpz_wire_demand wire;

	memcpy((char *)&answer + wrong_demands[row].offset, &wrong_demands[row].value, sizeof(uint32_t));
	fake_accept(fake);
	fake_expect(fake, HPZ_OP_DEMAND, &wire, sizeof(wire));
	fake_reply(fake, HPZ_OP_DEMAND, 0, &answer,
		wrong_demands[row].length ? wrong_demands[row].length : sizeof(answer), NULL, 0);
	fake_expect_end(fake);
}

static void test_wrong_demand(void **state)
{
	for (size_t row = 0; row < ARRAY_SIZE(wrong_demands); row++) {
		struct hpz_demand *demand = NULL;
		struct hpz *hpz;
		struct fake fake;

		fake_start(&fake, serve_wrong_demand, &row);
		assert_int_equal(hpz_connect(fake.path, &hpz), HPZ_OK);
		assert_int_equal(hpz_get_demand(hpz, &demand), HPZ_ERR_PROTOCOL);
		assert_null(demand);
		hpz_close(hpz);
		fake_join(&fake);
	}
}

/* ---- metrics ---- */

struct metrics_answer {
	struct hpz_wire_measured head;
	struct hpz_wire_metric counter, histogram;
};

static struct metrics_answer get_metrics_answer(uint64_t cursor)
{
	return (struct metrics_answer){
		.head = {.size = sizeof(struct hpz_wire_measured), .records = 2, .cursor = cursor},
		.counter = {.size = sizeof(struct hpz_wire_metric),
			.record = HPZ_RECORD_METRIC,
			.kind = HPZ_METRIC_COUNTER,
			.unit = HPZ_METRIC_BYTES,
			.value = 77,
			.name = "a_bytes",
			.help = "What a has",
			.label = "from",
			.label_value = "here \"there\""},
		.histogram = {.size = sizeof(struct hpz_wire_metric),
			.record = HPZ_RECORD_METRIC,
			.kind = HPZ_METRIC_HISTOGRAM,
			.unit = HPZ_METRIC_NS,
			.value = 3,
			.sum = 12,
			.shift = 10,
			.bucket_count = 2,
			.buckets = {1, 2},
			.name = "b_seconds"},
	};
}

/* One answer of each that is not to be believed. */
static const struct {
	size_t offset;
	uint32_t value;
	size_t length; /* 0: all of it */
} wrong_metrics[] = {
	{offsetof(struct metrics_answer, counter.record), HPZ_RECORD_FACT, 0},
	{offsetof(struct metrics_answer, counter.kind), 3, 0},
	{offsetof(struct metrics_answer, counter.kind), 0, 0},
	{offsetof(struct metrics_answer, counter.kind), HPZ_METRIC_HISTOGRAM, 0}, /* without buckets */
	{offsetof(struct metrics_answer, counter.bucket_count), 1, 0},
	{offsetof(struct metrics_answer, counter.name), 0, 0},
	{offsetof(struct metrics_answer, counter.name), 0x2d2d2d2d, 0}, /* "----" */
	{offsetof(struct metrics_answer, counter.name), 0x7a707a31, 0}, /* "1zpz" */
	{offsetof(struct metrics_answer, counter.label), 0x22222222, 0},
	{offsetof(struct metrics_answer, histogram.bucket_count), HPZ_METRIC_BUCKETS + 1, 0},
	{offsetof(struct metrics_answer, histogram.bucket_count), 0, 0},
	{offsetof(struct metrics_answer, histogram.shift), 62, 0},
	{offsetof(struct metrics_answer, histogram.shift), UINT32_MAX, 0},
	{offsetof(struct metrics_answer, head.records), 1, 0},
	{offsetof(struct metrics_answer, head.records), 3, 0},
	{offsetof(struct metrics_answer, head.records), UINT32_MAX, 0},
	{offsetof(struct metrics_answer, head.size), sizeof(struct hpz_wire_measured),
		sizeof(struct metrics_answer) - 8},
};

static void serve_metrics(struct fake *fake, void *data)
{
	struct hpz_wire_metrics wire;
	struct metrics_answer answer = get_metrics_answer(5);

	fake_accept(fake);
	fake_expect(fake, HPZ_OP_METRICS, &wire, sizeof(wire));
	fake_reply(fake, HPZ_OP_METRICS, 0, &answer, sizeof(answer), NULL, 0);
	fake_expect(fake, HPZ_OP_METRICS, &wire, sizeof(wire));
	if (wire.cursor != 5)
		fake_fail(fake, "another page than comes next");
	answer = get_metrics_answer(0);
	fake_reply(fake, HPZ_OP_METRICS, 0, &answer, sizeof(answer), NULL, 0);
	fake_expect_end(fake);
}

static void test_metrics(void **state)
{
	struct hpz_metric metric = {.struct_size = sizeof(metric)};
	struct hpz_metrics *metrics = NULL;
	struct hpz *hpz;
	struct fake fake;

	fake_start(&fake, serve_metrics, NULL);
	assert_int_equal(hpz_connect(fake.path, &hpz), HPZ_OK);
	assert_int_equal(hpz_get_metrics(hpz, NULL), HPZ_ERR_INVALID);
	assert_int_equal(hpz_get_metrics(hpz, &metrics), HPZ_OK);
	assert_int_equal(hpz_metrics_get_count(metrics), 4);
	assert_int_equal(hpz_metrics_get_metric(metrics, 4, &metric), HPZ_ERR_INVALID);
	assert_int_equal(hpz_metrics_get_metric(metrics, 2, &metric), HPZ_OK);
	assert_true(metric.kind == HPZ_METRIC_COUNTER && metric.unit == HPZ_METRIC_BYTES);
	assert_true(metric.value == 77 && metric.bucket_count == 0);
	assert_string_equal(metric.name, "a_bytes");
	assert_string_equal(metric.help, "What a has");
	assert_string_equal(metric.label, "from");
	assert_string_equal(metric.label_value, "here \"there\"");
	assert_int_equal(hpz_metrics_get_metric(metrics, 3, &metric), HPZ_OK);
	assert_true(metric.kind == HPZ_METRIC_HISTOGRAM && metric.value == 3 && metric.sum == 12);
	assert_true(metric.shift == 10 && metric.bucket_count == 2 && metric.buckets[1] == 2);
	assert_string_equal(metric.label, "");
	hpz_metrics_free(metrics);
	hpz_metrics_free(NULL);
	assert_int_equal(hpz_metrics_get_count(NULL), 0);
	assert_int_equal(hpz_metrics_get_metric(NULL, 0, &metric), HPZ_ERR_INVALID);
	hpz_close(hpz);
	fake_join(&fake);
}

static void serve_wrong_metrics(struct fake *fake, void *data)
{
	size_t row = *(const size_t *)data;
	struct metrics_answer answer = get_metrics_answer(0);
	struct hpz_wire_metrics wire;

	memcpy((char *)&answer + wrong_metrics[row].offset, &wrong_metrics[row].value, sizeof(uint32_t));
	fake_accept(fake);
	fake_expect(fake, HPZ_OP_METRICS, &wire, sizeof(wire));
	fake_reply(fake, HPZ_OP_METRICS, 0, &answer,
		wrong_metrics[row].length ? wrong_metrics[row].length : sizeof(answer), NULL, 0);
	fake_expect_end(fake);
}

static void test_wrong_metrics(void **state)
{
	for (size_t row = 0; row < ARRAY_SIZE(wrong_metrics); row++) {
		struct hpz_metrics *metrics = NULL;
		struct hpz *hpz;
		struct fake fake;

		fake_start(&fake, serve_wrong_metrics, &row);
		assert_int_equal(hpz_connect(fake.path, &hpz), HPZ_OK);
		assert_int_equal(hpz_get_metrics(hpz, &metrics), HPZ_ERR_PROTOCOL);
		assert_null(metrics);
		hpz_close(hpz);
		fake_join(&fake);
	}
}

/* ---- events ---- */

struct events_answer {
	struct hpz_wire_happened head;
	struct hpz_wire_event first, second;
};

static struct events_answer get_events_answer(void)
{
	return (struct events_answer){
		.head = {.size = sizeof(struct hpz_wire_happened),
			.records = 2,
			.cursor = 9,
			.last = 10,
			.missed = 3},
		.first = {.size = sizeof(struct hpz_wire_event),
			.record = HPZ_RECORD_EVENT,
			.sequence = 8,
			.time_ns = 77,
			.kind = HPZ_EVENT_GRANTED,
			.lease = 5,
			.bytes = 4096,
			.uid = 6,
			.pid = 7,
			.label = "vm"},
		.second = {.size = sizeof(struct hpz_wire_event),
			.record = HPZ_RECORD_EVENT,
			.sequence = 9,
			.kind = HPZ_EVENT_LOG,
			.level = 4,
			.uid = UINT32_MAX,
			.text = "a line"},
	};
}

/* One answer of each that is not to be believed. */
static const struct {
	size_t offset;
	uint32_t value;
	size_t length; /* 0: all of it */
} wrong_events[] = {
	{offsetof(struct events_answer, first.record), HPZ_RECORD_METRIC, 0},
	{offsetof(struct events_answer, first.sequence), 0, 0},
	{offsetof(struct events_answer, second.pid), UINT32_MAX, 0},
	{offsetof(struct events_answer, head.cursor), 11, 0},
	{offsetof(struct events_answer, head.records), 1, 0},
	{offsetof(struct events_answer, head.records), 3, 0},
	{offsetof(struct events_answer, head.records), UINT32_MAX, 0},
	{offsetof(struct events_answer, head.size), sizeof(struct hpz_wire_happened),
		sizeof(struct events_answer) - 8},
};

static void serve_events(struct fake *fake, void *data)
{
	struct hpz_wire_events wire;
	struct events_answer answer = get_events_answer();

	fake_accept(fake);
	fake_expect(fake, HPZ_OP_EVENTS, &wire, sizeof(wire));
	if (wire.cursor != 4 || wire.timeout_ms != 1000)
		fake_fail(fake, "another request");
	fake_reply(fake, HPZ_OP_EVENTS, 0, &answer, sizeof(answer), NULL, 0);
	fake_expect_end(fake);
}

static void test_events(void **state)
{
	struct hpz_events_info info = {.struct_size = sizeof(info)};
	struct hpz_event event = {.struct_size = sizeof(event)};
	struct hpz_events *events = NULL;
	struct hpz *hpz;
	struct fake fake;

	fake_start(&fake, serve_events, NULL);
	assert_int_equal(hpz_connect(fake.path, &hpz), HPZ_OK);
	assert_int_equal(hpz_get_events(hpz, 4, 1000, NULL), HPZ_ERR_INVALID);
	assert_int_equal(hpz_get_events(hpz, 4, -2, &events), HPZ_ERR_INVALID);
	assert_int_equal(hpz_get_events(hpz, 4, 1000, &events), HPZ_OK);
	assert_int_equal(hpz_events_get_info(events, &info), HPZ_OK);
	assert_true(info.cursor == 9 && info.last == 10 && info.missed == 3 && info.count == 2);
	assert_int_equal(hpz_events_get_event(events, 0, &event), HPZ_OK);
	assert_true(event.sequence == 8 && event.time_ns == 77 && event.kind == HPZ_EVENT_GRANTED);
	assert_true(event.lease == 5 && event.bytes == 4096 && event.uid == 6 && event.pid == 7);
	assert_string_equal(event.label, "vm");
	assert_string_equal(event.text, "");
	assert_int_equal(hpz_events_get_event(events, 1, &event), HPZ_OK);
	assert_true(event.kind == HPZ_EVENT_LOG && event.level == 4 && event.uid == UINT32_MAX);
	assert_string_equal(event.text, "a line");
	assert_int_equal(hpz_events_get_event(events, 2, &event), HPZ_ERR_INVALID);
	hpz_events_free(events);
	hpz_events_free(NULL);
	assert_int_equal(hpz_events_get_info(NULL, &info), HPZ_ERR_INVALID);
	assert_int_equal(hpz_events_get_event(NULL, 0, &event), HPZ_ERR_INVALID);
	hpz_close(hpz);
	fake_join(&fake);
}

static void serve_wrong_events(struct fake *fake, void *data)
{
	size_t row = *(const size_t *)data;
	struct events_answer answer = get_events_answer();
	struct hpz_wire_events wire;

	memcpy((char *)&answer + wrong_events[row].offset, &wrong_events[row].value, sizeof(uint32_t));
	fake_accept(fake);
	fake_expect(fake, HPZ_OP_EVENTS, &wire, sizeof(wire));
	fake_reply(fake, HPZ_OP_EVENTS, 0, &answer,
		wrong_events[row].length ? wrong_events[row].length : sizeof(answer), NULL, 0);
	fake_expect_end(fake);
}

static void test_wrong_events(void **state)
{
	for (size_t row = 0; row < ARRAY_SIZE(wrong_events); row++) {
		struct hpz_events *events = NULL;
		struct hpz *hpz;
		struct fake fake;

		fake_start(&fake, serve_wrong_events, &row);
		assert_int_equal(hpz_connect(fake.path, &hpz), HPZ_OK);
		assert_int_equal(hpz_get_events(hpz, 0, 0, &events), HPZ_ERR_PROTOCOL);
		assert_null(events);
		hpz_close(hpz);
		fake_join(&fake);
	}
}

/* ---- teardown ---- */

struct facts_answer {
	struct hpz_wire_torn_down head;
	struct hpz_wire_fact fact;
};

struct histograms_answer {
	struct hpz_wire_torn_down head;
	struct hpz_wire_histogram histogram;
};

struct records_answer {
	struct hpz_wire_torn_down head;
	struct hpz_wire_teardown_record record;
};

static struct records_answer get_records_answer(uint64_t cursor, uint64_t revision)
{
	struct records_answer answer = {
		.head = {.size = sizeof(answer.head),
			.records = 1,
			.cursor = cursor,
			.revision = 12,
			.sequence = 3,
			.now_ns = 4,
			.source = HPZ_TEARDOWN_PERF,
			.own = 1,
			.regime = "kvm",
			.gap = "flushes"},
		.record = {.size = sizeof(answer.record),
			.record = HPZ_RECORD_TEARDOWN,
			.revision = revision,
			.sequence = 3,
			.lease = 4,
			.part_of = 5,
			.bytes = 6,
			.page_size = 7,
			.kernel_bytes = 8,
			.orphan_bytes = 9,
			.begun_ns = 10,
			.gone_ns = 11,
			.ended_ns = 12,
			.proven_ns = 13,
			.clean_ns = HPZ_WIRE_NONE,
			.table_bytes = 15,
			.table_age_ns = 16,
			.steal_ns = 17,
			.flushes = {18, [HPZ_WIRE_FLUSHES - 1] = 19},
			.stages = {20, [HPZ_WIRE_STAGES - 1] = 21},
			.source = HPZ_TEARDOWN_BPF,
			.how = HPZ_TEARDOWN_KILL,
			.code = 9,
			.pid = 22,
			.holders = 23,
			.uid = 24,
			.flags = HPZ_TEARDOWN_FORCED,
			.label = "l",
			.comm = "c",
			.regime = "r"},
	};
	return answer;
}

static void serve_teardown(struct fake *fake, void *data)
{
	const struct facts_answer facts = {
		.head = {.size = sizeof(facts.head), .records = 1},
		.fact = {.size = sizeof(facts.fact),
			.record = HPZ_RECORD_FACT,
			.name = "n",
			.value = "v",
			.where = "w"},
	};
	const struct histograms_answer histograms = {
		.head = {.size = sizeof(histograms.head), .records = 1},
		.histogram = {.size = sizeof(histograms.histogram),
			.record = HPZ_RECORD_HISTOGRAM,
			.stage = HPZ_TEARDOWN_STAGE_CLEAR,
			.rest = 1,
			.page_size = 2,
			.count = 3,
			.sum_ns = 4,
			.max_ns = 5,
			.buckets = {6, [HPZ_WIRE_BUCKETS - 1] = 7},
			.label = "l",
			.regime = "r"},
	};
	struct hpz_wire_teardown wire;
	struct records_answer records = get_records_answer(9, 9);

	fake_accept(fake);
	fake_expect(fake, HPZ_OP_TEARDOWN, &wire, sizeof(wire));
	if (wire.record != HPZ_RECORD_FACT || wire.cursor || wire.timeout_ms)
		fake_fail(fake, "facts were not asked for");
	fake_reply(fake, HPZ_OP_TEARDOWN, 0, &facts, sizeof(facts), NULL, 0);
	fake_expect(fake, HPZ_OP_TEARDOWN, &wire, sizeof(wire));
	if (wire.record != HPZ_RECORD_HISTOGRAM || wire.cursor || wire.timeout_ms)
		fake_fail(fake, "histograms were not asked for");
	fake_reply(fake, HPZ_OP_TEARDOWN, 0, &histograms, sizeof(histograms), NULL, 0);
	fake_expect(fake, HPZ_OP_TEARDOWN, &wire, sizeof(wire));
	if (wire.record != HPZ_RECORD_TEARDOWN || wire.cursor != 8 || wire.timeout_ms != 70)
		fake_fail(fake, "records were not asked for");
	fake_reply(fake, HPZ_OP_TEARDOWN, 0, &records, sizeof(records), NULL, 0);
	fake_expect(fake, HPZ_OP_TEARDOWN, &wire, sizeof(wire));
	if (wire.cursor != 9 || wire.timeout_ms)
		fake_fail(fake, "another page than comes next");
	records = get_records_answer(0, 12);
	fake_reply(fake, HPZ_OP_TEARDOWN, 0, &records, sizeof(records), NULL, 0);
	fake_expect_end(fake);
}

static void expect_record(const struct hpz_teardown *teardown, size_t index, uint64_t revision)
{
	struct hpz_teardown_record record = {.struct_size = sizeof(record)};

	assert_int_equal(hpz_teardown_get_record(teardown, index, &record), HPZ_OK);
	assert_true(record.revision == revision && record.sequence == 3 && record.lease == 4);
	assert_true(record.part_of == 5 && record.bytes == 6 && record.page_size == 7);
	assert_true(record.kernel_bytes == 8 && record.orphan_bytes == 9 && record.begun_ns == 10);
	assert_true(record.gone_ns == 11 && record.ended_ns == 12 && record.proven_ns == 13);
	assert_true(record.clean_ns == HPZ_TEARDOWN_NONE && record.table_bytes == 15);
	assert_true(record.table_age_ns == 16 && record.steal_ns == 17 && record.flushes[0] == 18);
	assert_true(record.flushes[HPZ_TEARDOWN_FLUSHES - 1] == 19 && record.stages[0] == 20);
	assert_true(record.stages[HPZ_TEARDOWN_STAGES - 1] == 21 && record.source == HPZ_TEARDOWN_BPF);
	assert_true(record.how == HPZ_TEARDOWN_KILL && record.code == 9 && record.pid == 22);
	assert_true(record.holders == 23 && record.uid == 24 && record.flags == HPZ_TEARDOWN_FORCED);
	assert_string_equal(record.label, "l");
	assert_string_equal(record.comm, "c");
	assert_string_equal(record.regime, "r");
}

static void expect_teardown(const struct hpz_teardown *teardown)
{
	struct hpz_teardown_info info = {.struct_size = sizeof(info)};
	struct hpz_teardown_histogram histogram = {.struct_size = sizeof(histogram)};
	struct hpz_teardown_fact fact = {.struct_size = sizeof(fact)};

	assert_int_equal(hpz_teardown_get_info(teardown, &info), HPZ_OK);
	assert_true(info.record_count == 2 && info.histogram_count == 1 && info.fact_count == 1);
	assert_true(info.revision == 12 && info.sequence == 3 && info.now_ns == 4 && info.is_own == 1);
	assert_int_equal(info.source, HPZ_TEARDOWN_PERF);
	assert_string_equal(info.regime, "kvm");
	assert_string_equal(info.gap, "flushes");
	expect_record(teardown, 0, 9);
	expect_record(teardown, 1, 12);
	assert_int_equal(hpz_teardown_get_histogram(teardown, 0, &histogram), HPZ_OK);
	assert_true(histogram.stage == HPZ_TEARDOWN_STAGE_CLEAR && histogram.is_rest == 1);
	assert_true(histogram.page_size == 2 && histogram.count == 3 && histogram.sum_ns == 4);
	assert_true(histogram.max_ns == 5 && histogram.buckets[0] == 6);
	assert_int_equal(histogram.buckets[HPZ_TEARDOWN_BUCKETS - 1], 7);
	assert_int_equal(hpz_teardown_get_fact(teardown, 0, &fact), HPZ_OK);
	assert_string_equal(fact.name, "n");
	assert_string_equal(fact.value, "v");
	assert_string_equal(fact.where, "w");
}

static void test_teardown(void **state)
{
	struct hpz_teardown_request request = HPZ_TEARDOWN_REQUEST_INIT;
	struct hpz_teardown_record record = {.struct_size = sizeof(record)};
	struct hpz_teardown_histogram histogram = {.struct_size = sizeof(histogram)};
	struct hpz_teardown_fact fact = {.struct_size = sizeof(fact)};
	struct hpz_teardown_info info = {.struct_size = sizeof(info)};
	struct hpz_teardown *teardown = NULL;
	struct hpz *hpz;
	struct fake fake;

	fake_start(&fake, serve_teardown, NULL);
	assert_int_equal(hpz_connect(fake.path, &hpz), HPZ_OK);
	assert_int_equal(hpz_get_teardown(hpz, NULL, &teardown), HPZ_ERR_INVALID);
	assert_int_equal(hpz_get_teardown(hpz, &request, NULL), HPZ_ERR_INVALID);
	request.flags = 0;
	assert_int_equal(hpz_get_teardown(hpz, &request, &teardown), HPZ_ERR_INVALID);
	request.flags = 8;
	assert_int_equal(hpz_get_teardown(hpz, &request, &teardown), HPZ_ERR_INVALID);
	request.flags = HPZ_TEARDOWN_FACTS;
	request.timeout_ms = 70;
	assert_int_equal(hpz_get_teardown(hpz, &request, &teardown), HPZ_ERR_INVALID);
	request.flags = HPZ_TEARDOWN_RECORDS | HPZ_TEARDOWN_HISTOGRAMS | HPZ_TEARDOWN_FACTS;
	request.since = 8;
	assert_int_equal(hpz_get_teardown(hpz, &request, &teardown), HPZ_OK);
	expect_teardown(teardown);
	assert_int_equal(hpz_teardown_get_record(teardown, 2, &record), HPZ_ERR_INVALID);
	assert_int_equal(hpz_teardown_get_histogram(teardown, 1, &histogram), HPZ_ERR_INVALID);
	assert_int_equal(hpz_teardown_get_fact(teardown, 1, &fact), HPZ_ERR_INVALID);
	hpz_teardown_free(teardown);
	hpz_teardown_free(NULL);
	assert_int_equal(hpz_teardown_get_info(NULL, &info), HPZ_ERR_INVALID);
	assert_int_equal(hpz_teardown_get_record(NULL, 0, &record), HPZ_ERR_INVALID);
	assert_int_equal(hpz_teardown_get_histogram(NULL, 0, &histogram), HPZ_ERR_INVALID);
	assert_int_equal(hpz_teardown_get_fact(NULL, 0, &fact), HPZ_ERR_INVALID);
	hpz_close(hpz);
	fake_join(&fake);
}

/* One answer of each that is not to be believed. */
static const struct {
	size_t offset;
	uint32_t value;
} wrong_teardowns[] = {
	{offsetof(struct records_answer, record.record), HPZ_RECORD_POOL},
	{offsetof(struct records_answer, record.revision), 0},
	{offsetof(struct records_answer, head.records), 0},
	{offsetof(struct records_answer, head.records), 2},
	{offsetof(struct records_answer, head.records), UINT32_MAX},
	{offsetof(struct records_answer, head.cursor), 5}, /* which was asked for */
};

static void serve_wrong_teardown(struct fake *fake, void *data)
{
	size_t row = *(const size_t *)data;
	struct records_answer answer = get_records_answer(0, 9);
	struct hpz_wire_teardown wire;

	memcpy((char *)&answer + wrong_teardowns[row].offset, &wrong_teardowns[row].value, sizeof(uint32_t));
	fake_accept(fake);
	fake_expect(fake, HPZ_OP_TEARDOWN, &wire, sizeof(wire));
	fake_reply(fake, HPZ_OP_TEARDOWN, 0, &answer, sizeof(answer), NULL, 0);
	fake_expect_end(fake);
}

static void test_wrong_teardown(void **state)
{
	for (size_t row = 0; row < ARRAY_SIZE(wrong_teardowns); row++) {
		struct hpz_teardown_request request = HPZ_TEARDOWN_REQUEST_INIT;
		struct hpz_teardown *teardown = NULL;
		struct hpz *hpz;
		struct fake fake;

		request.flags = HPZ_TEARDOWN_RECORDS;
		request.since = 5;
		fake_start(&fake, serve_wrong_teardown, &row);
		assert_int_equal(hpz_connect(fake.path, &hpz), HPZ_OK);
		assert_int_equal(hpz_get_teardown(hpz, &request, &teardown), HPZ_ERR_PROTOCOL);
		assert_null(teardown);
		hpz_close(hpz);
		fake_join(&fake);
	}
}

/* ---- rules of clearing ---- */

struct clearing_answer {
	struct hpz_wire_clearing head;
	struct hpz_wire_rule rule;
	struct hpz_wire_node node;
	struct hpz_wire_method method;
};

static struct clearing_answer get_clearing_answer(void)
{
	return (struct clearing_answer){
		.head = {.size = sizeof(struct hpz_wire_clearing),
			.rules = 1,
			.nodes = 1,
			.methods = 1,
			.psi_cpu = 123,
			.psi_memory = -1},
		.rule = {.size = sizeof(struct hpz_wire_rule),
			.record = HPZ_RECORD_RULE,
			.key = "rate",
			.value = "1G"},
		.node = {.size = sizeof(struct hpz_wire_node),
			.record = HPZ_RECORD_NODE,
			.node = 1,
			.holds = HPZ_HOLD_PSI_CPU,
			.workers = 2,
			.queued = 3,
			.idle = 4,
			.refill = 5,
			.urgent = 6,
			.backoff = 7,
			.rate_bytes_per_s = 8,
			.bytes = 9,
			.batches = 10,
			.batch_ns = 11,
			.base_ns = 12},
		.method = {.size = sizeof(struct hpz_wire_method),
			.record = HPZ_RECORD_METHOD,
			.node = 1,
			.flags = HPZ_METHOD_USABLE,
			.page_size = 2097152,
			.batch_ns = 13,
			.bytes_per_s = 14,
			.name = "movnti"},
	};
}

static void serve_clearing(struct fake *fake, void *data)
{
	struct clearing_answer answer = get_clearing_answer(), wrong;
	struct hpz_wire_empty empty = {.size = sizeof(empty)};
	struct hpz_wire_set set;

	fake_accept(fake);
	fake_expect(fake, HPZ_OP_SET, &set, sizeof(set));
	if (strcmp(set.key, "rate") != 0 || strcmp(set.value, "1G") != 0)
		fake_fail(fake, "another rule than was asked for");
	fake_reply(fake, HPZ_OP_SET, 0, &empty, sizeof(empty), NULL, 0);
	fake_expect(fake, HPZ_OP_CLEARING, &empty, sizeof(empty));
	fake_reply(fake, HPZ_OP_CLEARING, 0, &answer, sizeof(answer), NULL, 0);
	fake_expect(fake, HPZ_OP_CLEARING, &empty, sizeof(empty));
	wrong = answer;
	wrong.head.nodes = 2;
	fake_reply(fake, HPZ_OP_CLEARING, 0, &wrong, sizeof(wrong), NULL, 0);
	fake_expect_end(fake);
}

static void test_set_and_clearing(void **state)
{
	struct hpz_clearing_info info = {.struct_size = sizeof(info)};
	struct hpz_clearing_rule rule = {.struct_size = sizeof(rule)};
	struct hpz_clearing_node node = {.struct_size = sizeof(node)};
	struct hpz_clearing_method method = {.struct_size = sizeof(method)};
	struct hpz_clearing *clearing = NULL;
	char longest[300];
	struct hpz *hpz;
	struct fake fake;

	fake_start(&fake, serve_clearing, NULL);
	assert_int_equal(hpz_connect(fake.path, &hpz), HPZ_OK);
	memset(longest, 'x', sizeof(longest));
	longest[sizeof(longest) - 1] = '\0';
	assert_int_equal(hpz_set(hpz, NULL, "1G"), HPZ_ERR_INVALID);
	assert_int_equal(hpz_set(hpz, "rate", NULL), HPZ_ERR_INVALID);
	assert_int_equal(hpz_set(hpz, "", "1G"), HPZ_ERR_INVALID);
	assert_int_equal(hpz_set(hpz, longest, "1G"), HPZ_ERR_INVALID);
	assert_int_equal(hpz_set(hpz, "rate", longest), HPZ_ERR_INVALID);
	assert_int_equal(hpz_set(hpz, "rate", "1\n"), HPZ_ERR_INVALID);
	assert_int_equal(hpz_get_clearing(hpz, NULL), HPZ_ERR_INVALID);
	assert_int_equal(hpz_set(hpz, "rate", "1G"), HPZ_OK);
	assert_int_equal(hpz_get_clearing(hpz, &clearing), HPZ_OK);
	assert_int_equal(hpz_clearing_get_info(clearing, &info), HPZ_OK);
	assert_int_equal(info.rule_count + info.node_count + info.method_count, 3);
	assert_int_equal(info.psi_cpu, 123);
	assert_int_equal(info.psi_memory, -1);
	assert_int_equal(hpz_clearing_get_rule(clearing, 0, &rule), HPZ_OK);
	assert_int_equal(hpz_clearing_get_rule(clearing, 1, &rule), HPZ_ERR_INVALID);
	assert_string_equal(rule.key, "rate");
	assert_string_equal(rule.value, "1G");
	assert_int_equal(hpz_clearing_get_node(clearing, 0, &node), HPZ_OK);
	assert_int_equal(hpz_clearing_get_node(clearing, 1, &node), HPZ_ERR_INVALID);
	assert_int_equal(node.node, 1);
	assert_int_equal(node.holds, HPZ_HOLD_PSI_CPU);
	assert_int_equal(node.worker_count, 2);
	assert_int_equal(node.queued, 3);
	assert_int_equal(node.idle, 4);
	assert_int_equal(node.refill, 5);
	assert_int_equal(node.urgent, 6);
	assert_int_equal(node.backoff, 7);
	assert_int_equal(node.rate_bytes_per_s, 8);
	assert_int_equal(node.bytes, 9);
	assert_int_equal(node.batches, 10);
	assert_int_equal(node.batch_ns, 11);
	assert_int_equal(node.base_ns, 12);
	assert_int_equal(hpz_clearing_get_method(clearing, 0, &method), HPZ_OK);
	assert_int_equal(hpz_clearing_get_method(clearing, 1, &method), HPZ_ERR_INVALID);
	assert_int_equal(method.page_size, 2097152);
	assert_int_equal(method.flags, HPZ_METHOD_USABLE);
	assert_int_equal(method.batch_ns, 13);
	assert_int_equal(method.bytes_per_s, 14);
	assert_string_equal(method.name, "movnti");
	hpz_clearing_free(clearing);
	assert_int_equal(hpz_clearing_get_info(NULL, &info), HPZ_ERR_INVALID);
	hpz_clearing_free(NULL);
	/* One node more than there is. */
	assert_int_equal(hpz_get_clearing(hpz, &clearing), HPZ_ERR_PROTOCOL);
	hpz_close(hpz);
	fake_join(&fake);
}

/* A server that contradicts itself, or answers another question. */
static void test_spoiled_plans(void **state)
{
	for (int i = 0; i < 9; i++) {
		struct hpz_wire_planned planned = get_planned();
		struct answer answer = {
			.op = HPZ_OP_PLAN, .payload = &planned, .size = sizeof(planned), .descriptors = -1};
		uint32_t *const spoils[] = {&planned.kind, &planned.error, &planned.segments};
		if (i < 3)
			*spoils[i] = i == 1 ? HPZ_ERR_BUSY : 0;
		planned.asked += i == 3;
		planned.ready += i == 4;
		planned.given -= i == 5 ? PAGE : 0;
		planned.kind = i == 6 ? HPZ_PLAN_WAIT : i == 7 ? 99 : planned.kind;
		answer.size -= i == 8 ? 600 : 0;
		assert_int_equal(call_and_hear(call_plan, &answer), HPZ_ERR_PROTOCOL);
	}
}

/* ---- calibrate ---- */

static void serve_calibrate(struct fake *fake, void *data)
{
	struct hpz_wire_calibrate calibrate;
	struct hpz_wire_calibrated calibrated = {.size = sizeof(calibrated), .pools = 3};

	fake_accept(fake);
	fake_expect(fake, HPZ_OP_CALIBRATE, &calibrate, sizeof(calibrate));
	if (strcmp(calibrate.pool, "two") != 0 || calibrate.timeout_ms != 9)
		fake_fail(fake, "another pool than was asked for");
	fake_reply(fake, HPZ_OP_CALIBRATE, 0, &calibrated, sizeof(calibrated), NULL, 0);
	fake_expect(fake, HPZ_OP_CALIBRATE, &calibrate, sizeof(calibrate));
	fake_reply_error(fake, HPZ_OP_CALIBRATE, HPZ_ERR_TIMEOUT, 0, "not yet");
}

static void test_calibrate(void **state)
{
	struct fake fake;
	uint32_t pools = 0;

	fake_start(&fake, serve_calibrate, NULL);
	struct hpz *hpz;
	assert_int_equal(hpz_connect(fake.path, &hpz), HPZ_OK);
	assert_int_equal(hpz_calibrate(hpz, "", 0, &pools), HPZ_ERR_NO_POOL);
	assert_int_equal(hpz_calibrate(hpz, NULL, -2, &pools), HPZ_ERR_INVALID);
	assert_int_equal(hpz_calibrate(hpz, "two", 9, &pools), HPZ_OK);
	assert_int_equal(pools, 3);
	assert_int_equal(hpz_calibrate(hpz, "two", 9, NULL), HPZ_ERR_TIMEOUT);
	hpz_close(hpz);
	fake_join(&fake);
}

/* ---- verify ---- */

static void serve_verify(struct fake *fake, void *data)
{
	struct hpz_wire_verify verify;
	struct hpz_wire_verified verified = {.size = sizeof(verified),
		.segments = 5,
		.pages = 40,
		.bytes = 80 << 20,
		.hits = 1,
		.left = 2,
		.hit_segment = 77,
		.hit_offset = 4097,
		.hit_pool = "two"};

	fake_accept(fake);
	fake_expect(fake, HPZ_OP_VERIFY, &verify, sizeof(verify));
	if (strcmp(verify.pool, "two") != 0 || verify.timeout_ms != 9)
		fake_fail(fake, "another verify than was asked for");
	fake_reply(fake, HPZ_OP_VERIFY, 0, &verified, sizeof(verified), NULL, 0);
	fake_expect(fake, HPZ_OP_VERIFY, &verify, sizeof(verify));
	fake_reply_error(fake, HPZ_OP_VERIFY, HPZ_ERR_TIMEOUT, 0, "1 of 5");
	fake_expect_end(fake);
}

static void test_verify(void **state)
{
	struct hpz_verify_result result = {.struct_size = sizeof(result)};
	struct fake fake;
	struct hpz *hpz;

	fake_start(&fake, serve_verify, NULL);
	assert_int_equal(hpz_connect(fake.path, &hpz), HPZ_OK);
	/* Never sent. */
	assert_int_equal(hpz_verify(hpz, "", 0, &result), HPZ_ERR_NO_POOL);
	assert_int_equal(hpz_verify(hpz, NULL, -2, &result), HPZ_ERR_INVALID);
	assert_int_equal(hpz_verify(hpz, NULL, 0, NULL), HPZ_ERR_INVALID);
	assert_int_equal(hpz_verify(hpz, "two", 9, &result), HPZ_OK);
	assert_int_equal(result.segments, 5);
	assert_int_equal(result.pages, 40);
	assert_int_equal(result.bytes, 80 << 20);
	assert_int_equal(result.hits, 1);
	assert_int_equal(result.left, 2);
	assert_int_equal(result.hit_segment, 77);
	assert_int_equal(result.hit_offset, 4097);
	assert_string_equal(result.hit_pool, "two");
	result.segments = 99;
	assert_int_equal(hpz_verify(hpz, "two", 9, &result), HPZ_ERR_TIMEOUT);
	assert_int_equal(result.segments, 99);
	hpz_close(hpz);
	fake_join(&fake);
}

static void serve_resize(struct fake *fake, void *data)
{
	struct hpz_wire_resize *request = data;
	const struct hpz_wire_resized resized = {.size = sizeof(resized),
		.done = 1,
		.page_size = 2 << 20,
		.before = 12,
		.target = 8,
		.configured = 12,
		.total = 9,
		.grow = 1,
		.shrink = 2,
		.give_back = 3};

	fake_accept(fake);
	fake_expect(fake, HPZ_OP_RESIZE, request, sizeof(*request));
	fake_reply(fake, HPZ_OP_RESIZE, 0, &resized, sizeof(resized), NULL, 0);
	fake_expect(fake, HPZ_OP_RESIZE, request, sizeof(*request));
	fake_reply_error(fake, HPZ_OP_RESIZE, HPZ_ERR_TIMEOUT, 0, "it goes on");
	fake_expect_end(fake);
}

static void test_resize(void **state)
{
	struct hpz_resize_request request = HPZ_RESIZE_REQUEST_INIT;
	struct hpz_resize_result result = {.struct_size = sizeof(result)};
	struct hpz_wire_resize wire;
	struct fake fake;
	struct hpz *hpz;

	fake_start(&fake, serve_resize, &wire);
	assert_int_equal(hpz_connect(fake.path, &hpz), HPZ_OK);
	/* Never sent. */
	assert_int_equal(hpz_resize(hpz, NULL, &result), HPZ_ERR_INVALID);
	assert_int_equal(hpz_resize(hpz, &request, &result), HPZ_ERR_NO_POOL);
	request.pool = "";
	assert_int_equal(hpz_resize(hpz, &request, &result), HPZ_ERR_NO_POOL);
	request.pool = "two";
	request.pages = 1;
	request.size = 4096;
	assert_int_equal(hpz_resize(hpz, &request, &result), HPZ_ERR_INVALID);
	request.pages = 0;
	request.kind = 0;
	assert_int_equal(hpz_resize(hpz, &request, &result), HPZ_ERR_UNSUPPORTED);
	request.kind = HPZ_RESIZE_SHRINK;
	request.timeout_ms = -2;
	assert_int_equal(hpz_resize(hpz, &request, &result), HPZ_ERR_INVALID);
	request.timeout_ms = 9;
	request.size = 8 << 20;
	request.flags = HPZ_RESIZE_WAIT;
	assert_int_equal(hpz_resize(hpz, &request, &result), HPZ_OK);
	assert_true(result.page_size == 2 << 20 && result.before == 12 && result.target == 8);
	assert_true(result.configured == 12 && result.total == 9 && result.done == 1);
	assert_true(result.grow == 1 && result.shrink == 2 && result.give_back == 3);
	result.total = 99;
	assert_int_equal(hpz_resize(hpz, &request, &result), HPZ_ERR_TIMEOUT);
	assert_int_equal(result.total, 99);
	hpz_close(hpz);
	fake_join(&fake);
	assert_true(wire.flags == HPZ_RESIZE_WAIT && wire.kind == HPZ_RESIZE_SHRINK && wire.pages == 0);
	assert_true(wire.bytes == 8 << 20 && wire.timeout_ms == 9 && strcmp(wire.pool, "two") == 0);
}

/* An hpzd that knows of no keys, reservations or orphans refuses to be asked for them, and is asked again
 * without. */
static void serve_old_list(struct fake *fake, void *data)
{
	struct hpz_wire_listed listed = {.size = sizeof(listed)};
	struct hpz_wire_list list;

	fake_accept(fake);
	fake_expect(fake, HPZ_OP_LIST, &list, sizeof(list));
	if (list.flags != HPZ_WIRE_LIST_FLAGS)
		fake_fail(fake, "keys were not asked for");
	fake_reply_error(fake, HPZ_OP_LIST, HPZ_ERR_UNSUPPORTED, 0, "what?");
	fake_expect(fake, HPZ_OP_LIST, &list, sizeof(list));
	if (list.flags != (HPZ_WIRE_LIST_MORE | HPZ_WIRE_LIST_RESERVED))
		fake_fail(fake, "reservations were not asked for");
	fake_reply_error(fake, HPZ_OP_LIST, HPZ_ERR_UNSUPPORTED, 0, "what?");
	fake_expect(fake, HPZ_OP_LIST, &list, sizeof(list));
	if (list.flags != HPZ_WIRE_LIST_MORE)
		fake_fail(fake, "orphans were not asked for");
	fake_reply_error(fake, HPZ_OP_LIST, HPZ_ERR_UNSUPPORTED, 0, "what?");
	fake_expect(fake, HPZ_OP_LIST, &list, sizeof(list));
	if (list.flags != 0)
		fake_fail(fake, "asked again for what was refused");
	fake_reply(fake, HPZ_OP_LIST, 0, &listed, sizeof(listed), NULL, 0);
	fake_expect_end(fake);
}

static void test_list_of_an_older_hpzd(void **state)
{
	struct hpz_lease_list *list = NULL;
	struct fake fake;
	struct hpz *hpz;

	fake_start(&fake, serve_old_list, NULL);
	assert_int_equal(hpz_connect(fake.path, &hpz), HPZ_OK);
	assert_int_equal(hpz_list(hpz, &list), HPZ_OK);
	assert_int_equal(hpz_list_get_count(list), 0);
	assert_string_equal(hpz_get_error_text(hpz), "");
	hpz_list_free(list);
	hpz_close(hpz);
	fake_join(&fake);
}

/* ---- check ---- */

struct check_payload {
	struct hpz_wire_checked checked;
	struct hpz_wire_finding findings[2];
};

static struct check_payload get_check_payload(uint32_t records, uint64_t cursor)
{
	struct check_payload payload = {
		.checked = {.size = sizeof(payload.checked),
			.records = records,
			.cursor = cursor,
			.segments = 9,
			.leases = 8,
			.dropped = 7},
		.findings = {{.size = sizeof(payload.findings[0]),
				     .record = HPZ_RECORD_FINDING,
				     .kind = HPZ_FINDING_OUT,
				     .severity = HPZ_SEVERITY_DIFFERENCE,
				     .repaired = 1,
				     .pool = "main",
				     .text = "a\x1b link"},
			{.size = sizeof(payload.findings[0]),
				.record = HPZ_RECORD_FINDING,
				.kind = 99,
				.severity = HPZ_SEVERITY_NOTICE,
				.text = "of a newer hpzd"}},
	};
	return payload;
}

static size_t get_check_size(uint32_t records)
{
	return sizeof(struct hpz_wire_checked) + records * sizeof(struct hpz_wire_finding);
}

static void serve_check(struct fake *fake, void *data)
{
	struct check_payload payload = get_check_payload(2, 5);
	struct hpz_wire_check check;

	fake_accept(fake);
	fake_expect(fake, HPZ_OP_CHECK, &check, sizeof(check));
	if (check.flags != HPZ_CHECK_REPAIR || check.timeout_ms != 123 || check.cursor != 0)
		fake_fail(fake, "another check than was asked for");
	fake_reply(fake, HPZ_OP_CHECK, 0, &payload, get_check_size(2), NULL, 0);
	fake_expect(fake, HPZ_OP_CHECK, &check, sizeof(check));
	if (check.flags != 0 || check.cursor != 5)
		fake_fail(fake, "another page than was asked for");
	payload = get_check_payload(1, 0);
	fake_reply(fake, HPZ_OP_CHECK, 0, &payload, get_check_size(1), NULL, 0);
	fake_expect(fake, HPZ_OP_CHECK, &check, sizeof(check));
	fake_reply_error(fake, HPZ_OP_CHECK, HPZ_ERR_BUSY, 0, "another check");
	fake_expect_end(fake);
}

static void test_check(void **state)
{
	struct hpz_check_result *result = NULL, *none = NULL;
	struct hpz_finding finding = {.struct_size = sizeof(finding)};
	uint64_t segments, leases, dropped;
	struct fake fake;
	struct hpz *hpz;

	fake_start(&fake, serve_check, NULL);
	assert_int_equal(hpz_connect(fake.path, &hpz), HPZ_OK);
	assert_int_equal(hpz_check(hpz, 2, 0, &none), HPZ_ERR_UNSUPPORTED);
	assert_int_equal(hpz_check(hpz, 0, -2, &none), HPZ_ERR_INVALID);
	assert_int_equal(hpz_check(hpz, 0, 0, NULL), HPZ_ERR_INVALID);
	assert_int_equal(hpz_check(hpz, HPZ_CHECK_REPAIR, 123, &result), HPZ_OK);
	assert_int_equal(hpz_check_get_count(result), 3);
	hpz_check_get_totals(result, &segments, &leases, &dropped);
	assert_true(segments == 9 && leases == 8 && dropped == 7);
	assert_int_equal(hpz_check_get_finding(result, 0, &finding), HPZ_OK);
	assert_int_equal(finding.kind, HPZ_FINDING_OUT);
	assert_int_equal(finding.severity, HPZ_SEVERITY_DIFFERENCE);
	assert_int_equal(finding.repaired, 1);
	assert_string_equal(finding.pool, "main");
	assert_string_equal(finding.text, "a? link");
	assert_int_equal(hpz_check_get_finding(result, 1, &finding), HPZ_OK);
	assert_int_equal(finding.kind, 99);
	assert_string_equal(finding.pool, "");
	assert_int_equal(hpz_check_get_finding(result, 3, &finding), HPZ_ERR_INVALID);
	hpz_check_free(result);
	assert_int_equal(hpz_check(hpz, 0, 0, &none), HPZ_ERR_BUSY);
	assert_null(none);
	assert_int_equal(hpz_check_get_count(NULL), 0);
	hpz_check_get_totals(NULL, &segments, NULL, NULL);
	assert_true(segments == 0);
	hpz_check_free(NULL);
	hpz_close(hpz);
	fake_join(&fake);
}

/* What a server of ours does not send: which of them. */
static void serve_bad_check(struct fake *fake, void *data)
{
	int which = *(int *)data;
	uint32_t sent = which == 0 ? 2 : 1;
	struct check_payload payload = get_check_payload(1, 0);
	struct hpz_wire_check check;

	if (which == 1)
		payload.checked.records = UINT32_MAX;
	if (which == 2)
		payload.findings[0].record = HPZ_RECORD_POOL;
	if (which == 3)
		payload.findings[0].repaired = 2;
	if (which == 4) {
		payload.checked.records = sent = 0;
		payload.checked.cursor = 5; /* another page, but nothing on this one */
	}
	fake_accept(fake);
	fake_expect(fake, HPZ_OP_CHECK, &check, sizeof(check));
	fake_reply(fake, HPZ_OP_CHECK, 0, &payload, get_check_size(sent), NULL, 0);
	fake_expect_end(fake);
}

static void test_bad_checks(void **state)
{
	for (int which = 0; which < 5; which++) {
		struct hpz_check_result *result = NULL;
		struct fake fake;
		struct hpz *hpz;
		fake_start(&fake, serve_bad_check, &which);
		assert_int_equal(hpz_connect(fake.path, &hpz), HPZ_OK);
		assert_int_equal(hpz_check(hpz, 0, 0, &result), HPZ_ERR_PROTOCOL);
		assert_null(result);
		hpz_close(hpz);
		fake_join(&fake);
	}
}

/* The server turns us away before it has read anything: its reason reaches us all the same. */
static void serve_turned_away(struct fake *fake, void *data)
{
	struct {
		struct hpz_wire_head head;
		struct hpz_wire_error error;
	} message = {.error = {.size = sizeof(message.error), .text = "no more connections"}};

	proto_set_head(&message, HPZ_OP_HELLO, 0, true, HPZ_ERR_BUSY, 0, sizeof(message.error));
	fake_accept_silently(fake);
	fake_send(fake, &message, sizeof(message), NULL, 0);
}

static void test_turned_away(void **state)
{
	struct fake fake;
	struct hpz *hpz = NULL;

	fake_start(&fake, serve_turned_away, NULL);
	assert_int_equal(hpz_connect(fake.path, &hpz), HPZ_ERR_BUSY);
	assert_null(hpz);
	fake_join(&fake);
}

/* ---- status ---- */

struct status_payload {
	struct hpz_wire_status status;
	struct hpz_wire_pool pools[2];
};

static struct status_payload get_status_payload(void)
{
	struct status_payload payload = {
		.status = {.size = sizeof(payload.status),
			.pools = 2,
			.uptime_ms = 5,
			.leases = 6,
			.workers = 7,
			.version = "0.1.0",
			.proof = "f_setlease",
			.message = "hello\x1b",
			.book_alarms = 8},
		.pools = {{.size = sizeof(payload.pools[0]),
				  .record = HPZ_RECORD_POOL,
				  .page_size = 1 << 21,
				  .target = 10,
				  .total = 9,
				  .clean = 8,
				  .name = "2m",
				  .mount = "/mnt/2m",
				  .message = "one is missing"},
			{.size = sizeof(payload.pools[0]),
				.record = HPZ_RECORD_POOL,
				.page_size = 1 << 30,
				.idle = 1}},
	};

	return payload;
}

static void test_status(void **state)
{
	struct status_payload payload = get_status_payload();
	struct exchange exchange = {.answer = {.op = HPZ_OP_STATUS,
					    .payload = &payload,
					    .size = sizeof(payload),
					    .descriptors = -1}};
	struct hpz_daemon_status daemon = {.struct_size = sizeof(daemon)};
	struct hpz_pool_status pool = {.struct_size = sizeof(pool)};
	struct hpz_status *status;
	struct fake fake;
	struct hpz *hpz;

	fake_start(&fake, serve_exchange, &exchange);
	assert_int_equal(hpz_connect(fake.path, &hpz), HPZ_OK);
	assert_int_equal(hpz_get_status(hpz, &status), HPZ_OK);
	fake_join(&fake);
	hpz_close(hpz);
	/* A copy: it does not need the connection. */
	assert_int_equal(hpz_status_get_daemon(status, &daemon), HPZ_OK);
	assert_int_equal(daemon.pool_count, 2);
	assert_int_equal(daemon.lease_count, 6);
	assert_int_equal(daemon.worker_count, 7);
	assert_string_equal(daemon.proof, "f_setlease");
	assert_string_equal(daemon.method, "");
	assert_string_equal(daemon.message, "hello?");
	assert_int_equal(hpz_status_get_pool(status, 0, &pool), HPZ_OK);
	assert_int_equal(pool.page_size, 1 << 21);
	assert_int_equal(pool.clean, 8);
	assert_string_equal(pool.name, "2m");
	assert_string_equal(pool.message, "one is missing");
	assert_int_equal(hpz_status_get_pool(status, 1, &pool), HPZ_OK);
	assert_int_equal(pool.idle, 1);
	assert_string_equal(pool.name, "");
	assert_int_equal(hpz_status_get_pool(status, 2, &pool), HPZ_ERR_INVALID);
	hpz_status_free(status);
}

static void test_spoiled_status(void **state)
{
	struct status_payload payload = get_status_payload();
	struct answer answer = {
		.op = HPZ_OP_STATUS, .payload = &payload, .size = sizeof(payload), .descriptors = -1};

#define SPOILED(field, value_)                                                                               \
	do {                                                                                                 \
		payload = get_status_payload();                                                              \
		payload.field = (value_);                                                                    \
		assert_int_equal(call_and_hear(call_status, &answer), HPZ_ERR_PROTOCOL);                     \
	} while (0)
	assert_int_equal(call_and_hear(call_status, &answer), HPZ_OK);
	SPOILED(status.pools, 0);
	SPOILED(status.pools, 1);
	SPOILED(status.pools, 3);
	SPOILED(status.pools, UINT32_MAX);
	SPOILED(status.reserved, 1);
	SPOILED(status.size, 0);
	SPOILED(status.size, 16);
	SPOILED(status.size, UINT32_MAX);
	SPOILED(pools[0].record, HPZ_RECORD_LEASE);
	SPOILED(pools[0].size, 0);
	SPOILED(pools[1].size, sizeof(payload.pools[0]) - 8);
	SPOILED(pools[1].size, sizeof(payload.pools[0]) + 8);
	SPOILED(pools[1].page_size, 0);
	SPOILED(pools[1].node, -1);
	SPOILED(pools[1].idle, 2);
#undef SPOILED
	payload = get_status_payload();
	for (answer.size = 0; answer.size < sizeof(payload); answer.size += 7)
		assert_int_equal(call_and_hear(call_status, &answer), HPZ_ERR_PROTOCOL);
	payload.status.pools = 0;
	answer.size = sizeof(payload.status);
	assert_int_equal(call_and_hear(call_status, &answer), HPZ_OK);
}

/* ---- list ---- */

struct list_payload {
	struct hpz_wire_listed listed;
	struct hpz_wire_lease_record lease;
	struct hpz_wire_segment segments[2];
	struct hpz_wire_holder holders[2];
};

static struct list_payload get_list_payload(uint64_t id, uint64_t cursor)
{
	struct list_payload payload = {
		.listed = {.size = sizeof(payload.listed), .records = 5, .cursor = cursor},
		.lease = {.size = sizeof(payload.lease),
			.record = HPZ_RECORD_LEASE,
			.id = id,
			.given = 2 * PAGE,
			.asked = 5000,
			.state = HPZ_STATE_RETURNING,
			.uid = UINT32_MAX,
			.segments = 2,
			.holders = 2,
			.label = "vm\x07",
			.comm = "qemu-system-x86",
			.key = "libvirt:\n"},
		.segments = {{.size = sizeof(payload.segments[0]),
				     .record = HPZ_RECORD_SEGMENT,
				     .page_size = PAGE,
				     .bytes = PAGE,
				     .descriptor = -1},
			{.size = sizeof(payload.segments[0]),
				.record = HPZ_RECORD_SEGMENT,
				.page_size = PAGE,
				.bytes = PAGE,
				.descriptor = -1,
				.path = "/mnt/x"}},
		.holders = {{.size = sizeof(payload.holders[0]),
				    .record = HPZ_RECORD_HOLDER,
				    .pid = 12,
				    .fd = -1,
				    .comm = "0123456789abcdef"},
			{.size = sizeof(payload.holders[0]),
				.record = HPZ_RECORD_HOLDER,
				.pid = 13,
				.fd = 4,
				.comm = "b\n"}},
	};

	return payload;
}

static void serve_pages(struct fake *fake, void *data)
{
	fake_accept(fake);
	for (uint64_t page = 0; page < 3; page++) {
		struct list_payload payload = get_list_payload(100 + page, page < 2 ? 7000 + page : 0);
		struct hpz_wire_list list;
		fake_expect(fake, HPZ_OP_LIST, &list, sizeof(list));
		if (list.cursor != (page ? 6999 + page : 0))
			fake_fail(fake, "another page than the one that comes next");
		fake_reply(fake, HPZ_OP_LIST, 0, &payload, sizeof(payload), NULL, 0);
	}
	fake_expect_end(fake);
}

static void test_list_of_pages(void **state)
{
	struct hpz_lease_info info = {.struct_size = sizeof(info)};
	struct hpz_segment segment = {.struct_size = sizeof(segment)};
	struct hpz_holder holder = {.struct_size = sizeof(holder)};
	struct hpz_lease_list *list;
	struct fake fake;
	struct hpz *hpz;

	fake_start(&fake, serve_pages, NULL);
	assert_int_equal(hpz_connect(fake.path, &hpz), HPZ_OK);
	assert_int_equal(hpz_list(hpz, &list), HPZ_OK);
	hpz_close(hpz);
	fake_join(&fake);
	assert_int_equal(hpz_list_get_count(list), 3);
	for (size_t i = 0; i < 3; i++) {
		assert_int_equal(hpz_list_get_lease(list, i, &info), HPZ_OK);
		assert_int_equal(info.id, 100 + i);
		assert_string_equal(info.label, "vm?");
		assert_string_equal(info.comm, "qemu-system-x86");
		assert_string_equal(info.key, "libvirt: ");
		assert_int_equal(info.uid, UINT32_MAX);
		assert_int_equal(info.state, HPZ_STATE_RETURNING);
		assert_int_equal(info.segment_count, 2);
		assert_int_equal(info.holder_count, 2);
	}
	assert_int_equal(hpz_list_get_segment(list, 2, 1, &segment), HPZ_OK);
	assert_string_equal(segment.path, "/mnt/x");
	assert_int_equal(segment.fd, -1);
	assert_int_equal(hpz_list_get_holder(list, 1, 0, &holder), HPZ_OK);
	assert_int_equal(holder.pid, 12);
	assert_int_equal(holder.fd, -1);
	assert_string_equal(holder.comm, "0123456789abcdef");
	assert_int_equal(hpz_list_get_holder(list, 1, 1, &holder), HPZ_OK);
	assert_string_equal(holder.comm, "b ");
	assert_int_equal(hpz_list_get_lease(list, 3, &info), HPZ_ERR_INVALID);
	assert_int_equal(hpz_list_get_segment(list, 3, 0, &segment), HPZ_ERR_INVALID);
	assert_int_equal(hpz_list_get_segment(list, 0, 2, &segment), HPZ_ERR_INVALID);
	assert_int_equal(hpz_list_get_holder(list, 0, 2, &holder), HPZ_ERR_INVALID);
	assert_int_equal(hpz_list_get_holder(list, 3, 0, &holder), HPZ_ERR_INVALID);
	hpz_list_free(list);
}

static void test_spoiled_lists(void **state)
{
	struct list_payload payload = get_list_payload(1, 0);
	struct answer answer = {
		.op = HPZ_OP_LIST, .payload = &payload, .size = sizeof(payload), .descriptors = -1};

#define SPOILED(field, value_)                                                                               \
	do {                                                                                                 \
		payload = get_list_payload(1, 0);                                                            \
		payload.field = (value_);                                                                    \
		assert_int_equal(call_and_hear(call_list, &answer), HPZ_ERR_PROTOCOL);                       \
	} while (0)
	assert_int_equal(call_and_hear(call_list, &answer), HPZ_OK);
	SPOILED(listed.size, 0);
	SPOILED(listed.records, 0);
	SPOILED(listed.records, 4);
	SPOILED(listed.records, 6);
	SPOILED(listed.records, UINT32_MAX);
	SPOILED(lease.size, 0);
	SPOILED(lease.record, HPZ_RECORD_SEGMENT);
	SPOILED(lease.id, 0);
	SPOILED(lease.state, 0);
	SPOILED(lease.state, 7);
	SPOILED(lease.deliver, 2);
	SPOILED(lease.pid, -1);
	SPOILED(lease.segments, 1);
	SPOILED(lease.segments, 3);
	SPOILED(lease.segments, UINT32_MAX);
	SPOILED(lease.holders, 1);
	SPOILED(lease.holders, 3);
	SPOILED(lease.holders, 17);
	SPOILED(lease.holders, UINT32_MAX);
	SPOILED(lease.reserved, 1);
	SPOILED(segments[0].record, HPZ_RECORD_HOLDER);
	SPOILED(segments[0].descriptor, 0);
	SPOILED(segments[0].bytes, 1);
	SPOILED(segments[1].path[0], 'x');
	SPOILED(holders[0].record, HPZ_RECORD_SEGMENT);
	SPOILED(holders[0].pid, 0);
	SPOILED(holders[0].fd, -2);
	SPOILED(holders[1].size, sizeof(payload.holders[1]) + 8);
#undef SPOILED
	payload = get_list_payload(1, 0);
	for (answer.size = 0; answer.size < sizeof(payload); answer.size += 5)
		assert_int_equal(call_and_hear(call_list, &answer), HPZ_ERR_PROTOCOL);
	/* Nothing to list, and a cursor to more of it. */
	payload.listed.records = 0;
	answer.size = sizeof(payload.listed);
	assert_int_equal(call_and_hear(call_list, &answer), HPZ_OK);
	payload.listed.cursor = 1;
	assert_int_equal(call_and_hear(call_list, &answer), HPZ_ERR_PROTOCOL);
}

static void serve_cursor_that_stands_still(struct fake *fake, void *data)
{
	fake_accept(fake);
	for (unsigned page = 0; page < 2; page++) {
		struct list_payload payload = get_list_payload(1, 7000);
		fake_expect(fake, HPZ_OP_LIST, NULL, 0);
		fake_reply(fake, HPZ_OP_LIST, 0, &payload, sizeof(payload), NULL, 0);
	}
	fake_expect_end(fake);
}

static void test_cursor_that_stands_still(void **state)
{
	struct fake fake;
	struct hpz *hpz;

	fake_start(&fake, serve_cursor_that_stands_still, NULL);
	assert_int_equal(hpz_connect(fake.path, &hpz), HPZ_OK);
	assert_int_equal(call_list(hpz), HPZ_ERR_PROTOCOL);
	hpz_close(hpz);
	fake_join(&fake);
}

/* ---- lost connections ---- */

static void serve_end_in_the_middle(struct fake *fake, void *data)
{
	struct hpz_wire_empty empty = {.size = sizeof(empty)};
	size_t call = *(size_t *)data;

	/* An end after the request, an end between two calls, and then a life. */
	fake_accept(fake);
	fake_expect(fake, calls[call].op, NULL, 0);
	fake_accept(fake);
	fake_accept(fake);
	fake_expect(fake, HPZ_OP_WAIT, NULL, 0);
	fake_reply(fake, HPZ_OP_WAIT, 0, &empty, sizeof(empty), NULL, 0);
	fake_expect_end(fake);
}

static void test_lost_until_reconnect(void **state)
{
	for (size_t i = 0; i < ARRAY_SIZE(calls); i++) {
		struct fake fake;
		struct hpz *hpz;

		fake_start(&fake, serve_end_in_the_middle, &i);
		assert_int_equal(hpz_connect(fake.path, &hpz), HPZ_OK);
		assert_int_equal(calls[i].call(hpz), HPZ_ERR_LOST);
		for (size_t j = 0; j < ARRAY_SIZE(calls); j++) {
			assert_int_equal(calls[j].call(hpz), HPZ_ERR_LOST);
			assert_string_not_equal(hpz_get_error_text(hpz), "");
		}
		assert_int_equal(hpz_reconnect(hpz), HPZ_OK);
		/* The second life ends when the peer takes the third connection: nobody has noticed yet. */
		struct hpz *other;
		assert_int_equal(hpz_connect(fake.path, &other), HPZ_OK);
		assert_int_equal(calls[i].call(hpz), HPZ_ERR_LOST);
		assert_int_equal(calls[i].call(hpz), HPZ_ERR_LOST);
		assert_int_equal(call_wait(other), HPZ_OK);
		/* A living connection is kept. */
		assert_int_equal(hpz_reconnect(other), HPZ_OK);
		hpz_close(other);
		fake_join(&fake);
		assert_int_equal(hpz_reconnect(hpz), HPZ_ERR_NOT_RUNNING);
		assert_int_equal(call_wait(hpz), HPZ_ERR_LOST);
		hpz_close(hpz);
	}
}

static void serve_end_before_the_ack(struct fake *fake, void *data)
{
	int file = *(int *)data;
	struct fake_lease lease = get_fd_lease(file);

	fake_accept(fake);
	fake_reply_lease(fake, HPZ_OP_LEASE, &lease);
	shutdown(fake->sock, SHUT_RDWR);
}

static void test_end_before_the_ack(void **state)
{
	_cleanup_fd_ int file = make_file();
	unsigned before = fake_count_fds();

	for (unsigned i = 0; i < 50; i++) {
		struct fake fake;
		struct hpz *hpz;
		fake_start(&fake, serve_end_before_the_ack, &file);
		assert_int_equal(hpz_connect(fake.path, &hpz), HPZ_OK);
		/* The ACK may still have gone out. */
		int error = call_lease(hpz);
		assert_true(error == HPZ_ERR_LOST || error == HPZ_OK);
		assert_int_equal(call_wait(hpz), HPZ_ERR_LOST);
		hpz_close(hpz);
		fake_join(&fake);
	}
	assert_int_equal(fake_count_fds(), before);
}

/* ---- fork ---- */

static void test_forked_child(void **state)
{
	_cleanup_fd_ int file = make_file();
	struct lease_script script = {.lease = get_fd_lease(file)};
	struct hpz_lease_request request = HPZ_LEASE_REQUEST_INIT;
	struct hpz_segment segment = {.struct_size = sizeof(segment)};
	struct hpz_lease *lease;
	struct fake fake;
	struct hpz *hpz;
	int status;

	fake_start(&fake, serve_lease, &script);
	assert_int_equal(hpz_connect(fake.path, &hpz), HPZ_OK);
	request.size = 1;
	assert_int_equal(hpz_lease(hpz, &request, &lease), HPZ_OK);
	pid_t pid = fork();
	if (pid == 0) {
		void *address;
		size_t length;
		int wrong = 0;
		for (size_t i = 0; i < ARRAY_SIZE(calls); i++)
			wrong += calls[i].call(hpz) != HPZ_ERR_FORKED;
		wrong += hpz_reconnect(hpz) != HPZ_ERR_FORKED;
		wrong += hpz_map(hpz, lease, &address, &length) != HPZ_ERR_FORKED;
		hpz_lease_free(lease);
		hpz_close(hpz);
		_exit(wrong);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	/* Ours is as it was: the peer has seen nothing, and the descriptors are there. */
	assert_int_equal(hpz_lease_get_segment(lease, 0, &segment), HPZ_OK);
	assert_int_equal(fcntl(segment.fd, F_GETFD), FD_CLOEXEC);
	assert_int_equal(hpz_reconnect(hpz), HPZ_OK);
	hpz_lease_free(lease);
	hpz_close(hpz);
	fake_join(&fake);
}

/* Also where the kernel cannot say it: before 4.14, or without memory for it. */
static void test_forked_child_without_a_mark(void **state)
{
	struct fake fake;
	struct hpz *hpz;
	int status;

	fake_start(&fake, serve_hello, NULL);
	assert_int_equal(hpz_connect(fake.path, &hpz), HPZ_OK);
	assert_non_null(hpz->owner_mark);
	munmap(hpz->owner_mark, 1);
	hpz->owner_mark = NULL;
	assert_int_equal(hpz_reconnect(hpz), HPZ_OK);
	pid_t pid = fork();
	if (pid == 0)
		_exit(hpz_reconnect(hpz) != HPZ_ERR_FORKED);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	hpz_close(hpz);
	fake_join(&fake);
}

/* A child that lives on does not keep the parent's connection alive. */
static void test_close_ends_it_whoever_has_the_socket(void **state)
{
	struct fake fake;
	struct hpz *hpz;
	int status;

	fake_start(&fake, serve_hello, NULL);
	assert_int_equal(hpz_connect(fake.path, &hpz), HPZ_OK);
	pid_t pid = fork();
	if (pid == 0) {
		pause();
		_exit(0);
	}
	hpz_close(hpz);
	fake_join(&fake);
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, &status, 0), pid);
}

static void serve_what_an_exec_keeps(struct fake *fake, void *data)
{
	fake_accept(fake);
	fake_expect_silence(fake);
}

static void test_the_socket_is_close_on_exec(void **state)
{
	unsigned marks[2] = {0};
	struct fake fake;
	struct hpz *hpz;

	fake_start(&fake, serve_what_an_exec_keeps, NULL);
	assert_int_equal(hpz_connect(fake.path, &hpz), HPZ_OK);
	for (int fd = 3; fd < 256; fd++) {
		int flags = fcntl(fd, F_GETFD);
		struct sockaddr_un peer = {0};
		socklen_t length = sizeof(peer);
		if (flags >= 0 && getpeername(fd, (struct sockaddr *)&peer, &length) == 0 &&
			strcmp(peer.sun_path, fake.path) == 0)
			marks[flags == FD_CLOEXEC]++;
	}
	assert_int_equal(marks[0], 0);
	assert_int_equal(marks[1], 1);
	fake_join(&fake);
	hpz_close(hpz);
}

/* ---- garbage ---- */

static uint64_t random_state = 0x853c49e6748fea9b;

static uint64_t get_random(void)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return random_state;
}

struct garbage {
	uint16_t op;
	uint8_t bytes[2048];
	size_t size;
	bool has_head;
};

static void serve_garbage(struct fake *fake, void *data)
{
	struct garbage *garbage = data;
	const struct answer answer = {
		.op = garbage->op, .payload = garbage->bytes, .size = garbage->size, .descriptors = -1};

	fake_accept(fake);
	fake_expect(fake, garbage->op, NULL, 0);
	if (garbage->has_head)
		send_answer(fake, &answer);
	else
		fake_send(fake, garbage->bytes, garbage->size, NULL, 0);
	/* A list may have been good enough to be asked for more. */
	shutdown(fake->sock, SHUT_RDWR);
}

static void test_garbage(void **state)
{
	unsigned before = fake_count_fds();

	for (unsigned round = 0; round < 1000; round++) {
		size_t call = get_random() % ARRAY_SIZE(calls);
		struct garbage garbage = {
			.op = calls[call].op, .size = 1 + get_random() % 2047, .has_head = round & 1};
		for (size_t i = 0; i < garbage.size; i++)
			garbage.bytes[i] = get_random() % 3 ? 0 : (uint8_t)get_random();
		uint32_t size = get_random() % 2 ? (uint32_t)garbage.size : (uint32_t)(get_random() % 300);
		memcpy(garbage.bytes, &size, MIN(sizeof(size), garbage.size));
		struct fake fake;
		struct hpz *hpz;
		fake_start(&fake, serve_garbage, &garbage);
		assert_int_equal(hpz_connect(fake.path, &hpz), HPZ_OK);
		int error = calls[call].call(hpz);
		assert_true(error == HPZ_ERR_PROTOCOL || error == HPZ_ERR_LOST || error == HPZ_OK);
		hpz_close(hpz);
		fake_join(&fake);
	}
	assert_int_equal(fake_count_fds(), before);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_nobody_listens),
		cmocka_unit_test(test_bad_paths),
		cmocka_unit_test(test_another_kind_of_socket),
		cmocka_unit_test(test_the_mode_keeps_us_out),
		cmocka_unit_test(test_hello),
		cmocka_unit_test(test_the_environment_names_the_socket),
		cmocka_unit_test(test_null_handles),
		cmocka_unit_test(test_every_error_has_a_sentence),
		cmocka_unit_test(test_bad_hellos),
		cmocka_unit_test(test_hello_of_every_length),
		cmocka_unit_test(test_refused_hellos),
		cmocka_unit_test(test_end_and_flood_instead_of_a_hello),
		cmocka_unit_test(test_a_slow_server),
		cmocka_unit_test(test_a_stopped_server),
		cmocka_unit_test(test_refusals),
		cmocka_unit_test(test_malformed_refusals),
		cmocka_unit_test(test_text_of_a_refusal),
		cmocka_unit_test(test_descriptors_nobody_asked_for),
		cmocka_unit_test(test_lease_by_descriptor),
		cmocka_unit_test(test_lease_by_path),
		cmocka_unit_test(test_adopt),
		cmocka_unit_test(test_requests_that_are_not_sent),
		cmocka_unit_test(test_newer_structs),
		cmocka_unit_test(test_spoiled_leases),
		cmocka_unit_test(test_lease_of_every_length),
		cmocka_unit_test(test_smaller_lease),
		cmocka_unit_test(test_lease_many),
		cmocka_unit_test(test_reserve),
		cmocka_unit_test(test_change),
		cmocka_unit_test(test_wrong_change),
		cmocka_unit_test(test_wrong_bulk),
		cmocka_unit_test(test_many_too_many),
		cmocka_unit_test(test_withheld),
		cmocka_unit_test(test_release_answers),
		cmocka_unit_test(test_empty_answers),
		cmocka_unit_test(test_drain_counts),
		cmocka_unit_test(test_check),
		cmocka_unit_test(test_bad_checks),
		cmocka_unit_test(test_turned_away),
		cmocka_unit_test(test_plan),
		cmocka_unit_test(test_spoiled_plans),
		cmocka_unit_test(test_verify),
		cmocka_unit_test(test_resize),
		cmocka_unit_test(test_calibrate),
		cmocka_unit_test(test_demand),
		cmocka_unit_test(test_wrong_demand),
		cmocka_unit_test(test_metrics),
		cmocka_unit_test(test_wrong_metrics),
		cmocka_unit_test(test_events),
		cmocka_unit_test(test_wrong_events),
		cmocka_unit_test(test_teardown),
		cmocka_unit_test(test_wrong_teardown),
		cmocka_unit_test(test_set_and_clearing),
		cmocka_unit_test(test_list_of_an_older_hpzd),
		cmocka_unit_test(test_status),
		cmocka_unit_test(test_spoiled_status),
		cmocka_unit_test(test_list_of_pages),
		cmocka_unit_test(test_spoiled_lists),
		cmocka_unit_test(test_cursor_that_stands_still),
		cmocka_unit_test(test_lost_until_reconnect),
		cmocka_unit_test(test_end_before_the_ack),
		cmocka_unit_test(test_forked_child),
		cmocka_unit_test(test_forked_child_without_a_mark),
		cmocka_unit_test(test_close_ends_it_whoever_has_the_socket),
		cmocka_unit_test(test_the_socket_is_close_on_exec),
		cmocka_unit_test(test_garbage),
	};

	return cmocka_run_group_tests_name("api", tests, fake_setup, fake_teardown);
}
