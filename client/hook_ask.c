/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * hook_ask.c - what the hook asks hpzd. Each question is a child that talks through libhpz and writes its
 * answer to a pipe; when the deadline passes it is killed, and what it was promised but did not confirm ends
 * with its connection.
 */
#include "hook_ask.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "hpz.h"

#define ASK_AGAIN_MS     50
#define OPEN_TIMEOUT_MS  300000 /* libvirt died between the hook and QEMU */
#define ANSWER_MARGIN_MS 100    /* to answer, and to put the files into place */

struct hook_question {
	const struct hook_settings *settings;
	const struct hook_order *order;
	uint64_t lease;
	uint64_t deadline_ns;
};

typedef int (*hook_ask_fn)(struct hpz *hpz, const struct hook_question *question, struct hook_answer *answer);

static void hook_ask_cleanup(struct hpz **hpz)
{
	hpz_close(*hpz);
}

static PRINTF(3, 4) int hook_ask_fail(struct hook_answer *answer, int error, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(answer->text, sizeof(answer->text), format, args);
	va_end(args);
	answer->error = error;
	return error;
}

/* ---- which nodes ---- */

/* Clean memory of one pool, less what was chosen from it. */
struct hook_stock {
	uint64_t page_size, bytes;
	int32_t node;
};

struct hook_stocks {
	size_t count;
	struct hook_stock stocks[HOOK_POOLS_MAX];
};

static int hook_ask_get_stocks(struct hpz *hpz, uint64_t page_size, struct hook_stocks *ret_stocks)
{
	struct hpz_pool_status pool = {.struct_size = sizeof(pool)};
	struct hpz_status *status;
	int error = hpz_get_status(hpz, &status);

	if (error)
		return error;
	ret_stocks->count = 0;
	for (size_t i = 0; ret_stocks->count < HOOK_POOLS_MAX && hpz_status_get_pool(status, i, &pool) == 0;
		i++) {
		if (page_size == 0 || pool.page_size == page_size)
			ret_stocks->stocks[ret_stocks->count++] =
				(struct hook_stock){pool.page_size, pool.clean * pool.page_size, pool.node};
	}
	hpz_status_free(status);
	return 0;
}

static bool hook_ask_is_allowed(uint64_t nodes, int32_t node)
{
	return nodes == 0 || (node < 64 && (nodes >> node & 1));
}

/* Of these nodes the one with most clean memory, which is then less there; NULL: none has a pool. */
static struct hook_stock *hook_ask_find_most(struct hook_stocks *stocks, uint64_t nodes)
{
	struct hook_stock *most = NULL;

	for (size_t i = 0; i < stocks->count; i++) {
		struct hook_stock *stock = &stocks->stocks[i];
		if (hook_ask_is_allowed(nodes, stock->node) && (!most || stock->bytes > most->bytes))
			most = stock;
	}
	return most;
}

static int32_t hook_ask_choose_node(struct hook_stocks *stocks, const struct domain_file *file)
{
	struct hook_stock *chosen = hook_ask_find_most(stocks, file->nodes);

	if (file->is_preferred && (!chosen || chosen->bytes < file->size))
		chosen = hook_ask_find_most(stocks, 0);
	if (!chosen)
		return file->nodes ? __builtin_ctzll(file->nodes) : 0;
	chosen->bytes -= MIN(chosen->bytes, file->size);
	return chosen->node;
}

/* Cells want a node each; a single file may be left to hpzd. */
static int hook_ask_set_nodes(struct hpz *hpz, const struct hook_order *order,
	struct hpz_lease_request *request, struct hpz_cell cells[DOMAIN_FILES_MAX])
{
	const struct domain_plan *plan = order->plan;
	struct hook_stocks stocks;

	_Static_assert(DOMAIN_FILES_MAX <= HPZ_CELLS_MAX, "a lease has room for all");
	if (plan->count == 1) {
		request->size = plan->files[0].size;
		if (plan->files[0].nodes == 0)
			return 0;
	}
	int error = hook_ask_get_stocks(hpz, order->page_size, &stocks);
	if (error)
		return error;
	if (plan->count == 1) {
		request->node = hook_ask_choose_node(&stocks, &plan->files[0]);
		return 0;
	}
	for (size_t i = 0; i < plan->count; i++)
		cells[i] = (struct hpz_cell){
			plan->files[i].size, hook_ask_choose_node(&stocks, &plan->files[i]), 0};
	request->cells = cells;
	request->cell_count = (uint32_t)plan->count;
	return 0;
}

/* ---- lease ---- */

static int64_t hook_ask_get_left_ms(uint64_t deadline_ns)
{
	uint64_t now_ns = clock_get_ns(CLOCK_MONOTONIC);

	return now_ns < deadline_ns ? (int64_t)((deadline_ns - now_ns) / NS_PER_MS) : 0;
}

/* A label has at most so many bytes; it is cut at a character's border. */
static void hook_ask_cut_label(const char *name, char ret_label[HPZ_LABEL_MAX + 1])
{
	size_t length = strlen(name);

	if (length > HPZ_LABEL_MAX) {
		length = HPZ_LABEL_MAX;
		while (length > 0 && ((unsigned char)name[length] & 0xc0) == 0x80)
			length--;
	}
	snprintf(ret_label, HPZ_LABEL_MAX + 1, "%.*s", (int)length, name);
}

static int hook_ask_take_paths(const struct hpz_lease *lease, size_t count, struct hook_answer *answer)
{
	struct hpz_segment segment = {.struct_size = sizeof(segment)};

	if (hpz_lease_get_segment_count(lease) != count)
		return hook_ask_fail(answer, HPZ_ERR_PROTOCOL, "hpzd gave another number of files");
	for (size_t i = 0; i < count; i++) {
		hpz_lease_get_segment(lease, i, &segment);
		if (segment.cell != i || strlen(segment.path) >= HOOK_PATH_MAX || segment.path[0] != '/')
			return hook_ask_fail(answer, HPZ_ERR_PROTOCOL, "hpzd gave something else than files");
		strcpy(answer->memory.paths[i], segment.path);
	}
	answer->memory.count = count;
	answer->memory.lease = hpz_lease_get_id(lease);
	return 0;
}

static int hook_ask_lease_now(
	struct hpz *hpz, const struct hook_question *question, struct hook_answer *answer)
{
	const struct hook_order *order = question->order;
	struct hpz_lease_request request = HPZ_LEASE_REQUEST_INIT;
	struct hpz_cell cells[DOMAIN_FILES_MAX];
	char label[HPZ_LABEL_MAX + 1];
	struct hpz_lease *lease;

	hook_ask_cut_label(order->label, label);
	request.page_size = order->page_size;
	request.deliver = HPZ_DELIVER_PATH;
	request.label = label;
	request.key = order->key;
	request.owner_uid = order->uid;
	request.owner_gid = order->gid;
	request.open_timeout_ms = OPEN_TIMEOUT_MS;
	int error = hook_ask_set_nodes(hpz, order, &request, cells);
	if (error)
		return error;
	request.timeout_ms = MAX(hook_ask_get_left_ms(question->deadline_ns) - ANSWER_MARGIN_MS, 0);
	error = hpz_lease(hpz, &request, &lease);
	if (error)
		return error;
	error = hook_ask_take_paths(lease, order->plan->count, answer);
	hpz_lease_free(lease);
	return error;
}

/* ---- release, adopt ---- */

static int hook_ask_release_now(
	struct hpz *hpz, const struct hook_question *question, struct hook_answer *answer)
{
	int error = hpz_release(hpz, question->lease, 0, 0);

	return error == HPZ_ERR_ENDED ? 0 : error;
}

static int hook_ask_find(const struct hpz_lease_list *list, uint64_t lease, struct hpz_lease_info *info)
{
	for (size_t i = 0; hpz_list_get_lease(list, i, info) == 0; i++) {
		if (info->id == lease && info->state != HPZ_STATE_ORPHANED)
			return info->state == HPZ_STATE_RETURNING ? HPZ_ERR_ENDED : 0;
	}
	return HPZ_ERR_UNKNOWN_LEASE;
}

static int hook_ask_adopt_now(
	struct hpz *hpz, const struct hook_question *question, struct hook_answer *answer)
{
	struct hpz_lease_info info = {.struct_size = sizeof(info)};
	struct hpz_adopt_request request = HPZ_ADOPT_REQUEST_INIT;
	struct hpz_lease_list *list;
	struct hpz_lease *lease;
	int error = hpz_list(hpz, &list);

	if (error)
		return error;
	error = hook_ask_find(list, question->lease, &info);
	/* One delivered as descriptors would end with us. */
	bool is_forgotten = !error && info.uid == UINT32_MAX && info.deliver == HPZ_DELIVER_PATH;
	hpz_list_free(list);
	if (error || !is_forgotten)
		return error;
	error = hpz_adopt(hpz, question->lease, &request, &lease);
	if (!error)
		hpz_lease_free(lease);
	return error;
}

/* ---- the child ---- */

/* An hpzd that is being restarted answers a moment later. */
static bool hook_ask_is_passing(int error)
{
	return error == HPZ_ERR_LOST || error == HPZ_ERR_NOT_RUNNING;
}

static int hook_ask_once(hook_ask_fn ask, const struct hook_question *question, struct hook_answer *answer)
{
	__attribute__((cleanup(hook_ask_cleanup))) struct hpz *hpz = NULL;
	int error = hpz_connect(question->settings->socket, &hpz);

	answer->text[0] = '\0';
	if (error)
		return hook_ask_fail(
			answer, error, "%s (%s)", hpz_strerror(error), question->settings->socket);
	error = ask(hpz, question, answer);
	if (error && !answer->text[0])
		hook_ask_fail(answer, error, "%s",
			*hpz_get_error_text(hpz) ? hpz_get_error_text(hpz) : hpz_strerror(error));
	answer->error = error;
	return error;
}

static void hook_ask_answer(
	hook_ask_fn ask, const struct hook_question *question, bool asks_again, struct hook_answer *answer)
{
	while (hook_ask_is_passing(hook_ask_once(ask, question, answer)) && asks_again &&
		hook_ask_get_left_ms(question->deadline_ns) > ASK_AGAIN_MS)
		nanosleep(&(struct timespec){.tv_nsec = ASK_AGAIN_MS * NS_PER_MS}, NULL);
}

/* Reads an answer as a whole; false when it does not come in time. */
static bool hook_ask_receive(int fd, uint64_t deadline_ns, struct hook_answer *answer)
{
	char *at = (char *)answer, *end = at + sizeof(*answer);

	while (at < end) {
		struct pollfd look = {.fd = fd, .events = POLLIN};
		int64_t left_ms = hook_ask_get_left_ms(deadline_ns);
		int r = poll(&look, 1, (int)MIN(left_ms, 60000));
		if (r < 0 && errno == EINTR)
			continue;
		ssize_t n = r > 0 ? read(fd, at, (size_t)(end - at)) : -1;
		if (n <= 0)
			return false;
		at += n;
	}
	return true;
}

static void hook_ask_write(int fd, const struct hook_answer *answer)
{
	const char *at = (const char *)answer, *end = at + sizeof(*answer);

	while (at < end) {
		ssize_t n = write(fd, at, (size_t)(end - at));
		if (n <= 0)
			return;
		at += n;
	}
}

void hook_ask_follow(int32_t parent)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
}

static void hook_ask(hook_ask_fn ask, const struct hook_question *question, bool asks_again,
	struct hook_answer *ret_answer)
{
	int pipe_fds[2];

	*ret_answer = (struct hook_answer){.error = HPZ_ERR_SYSTEM, .text = "no process to ask hpzd"};
	if (pipe2(pipe_fds, O_CLOEXEC) < 0)
		return;
	_cleanup_fd_ int from = pipe_fds[0], to = pipe_fds[1];
	pid_t parent = getpid(), child = fork();
	if (child < 0)
		return;
	if (child == 0) {
		hook_ask_follow(parent);
		hook_ask_answer(ask, question, asks_again, ret_answer);
		hook_ask_write(to, ret_answer);
		_exit(0);
	}
	to = close_fd(to);
	if (!hook_ask_receive(from, question->deadline_ns, ret_answer)) {
		*ret_answer = (struct hook_answer){0};
		hook_ask_fail(ret_answer, HPZ_ERR_TIMEOUT, "hpzd does not answer in time");
		kill(child, SIGKILL);
	}
	waitpid(child, NULL, 0);
}

void hook_ask_lease(const struct hook_settings *settings, const struct hook_order *order,
	uint64_t deadline_ns, struct hook_answer *ret_answer)
{
	const struct hook_question question = {settings, order, 0, deadline_ns};

	hook_ask(hook_ask_lease_now, &question, false, ret_answer);
}

void hook_ask_release(const struct hook_settings *settings, uint64_t lease, uint64_t deadline_ns,
	struct hook_answer *ret_answer)
{
	const struct hook_question question = {settings, NULL, lease, deadline_ns};

	hook_ask(hook_ask_release_now, &question, false, ret_answer);
}

void hook_ask_adopt(const struct hook_settings *settings, uint64_t lease, uint64_t deadline_ns,
	struct hook_answer *ret_answer)
{
	const struct hook_question question = {settings, NULL, lease, deadline_ns};

	hook_ask(hook_ask_adopt_now, &question, true, ret_answer);
}
