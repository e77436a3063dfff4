/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * fuzz_reply.c - what a server says, as libhpz reads it. The library's files are linked here with a frame of
 * our own, which hands out the input instead of packets, and counts descriptors: whatever it is told, the
 * library keeps none by mistake.
 *
 * The first byte is the call, the second what it asks for. Then messages: how it comes (enum coming),
 * descriptors, length (2 bytes), and what is behind the head.
 */
#include "fuzz.h"

#include "api.h"
#include "frame.h"

int __wrap_close(int fd);
int __real_close(int fd);

enum coming {
	COMING_REPLY,
	COMING_ERROR,
	COMING_RAW,
	COMING_WITHHELD,
	COMING_TOO_LONG,
	COMING_EOF,
	COMING_COUNT
};

#define DESCRIPTOR_FIRST 1000000                /* no process has that one */
#define SOCKET           (DESCRIPTOR_FIRST - 1) /* nor that one: the library only closes it */
#define MESSAGES_MAX     64

static struct fuzz_input script;
static struct hpz_wire_head asked; /* the last request */
static bool is_open[HPZ_WIRE_MAX_FDS];
static unsigned descriptors_given, messages;

/* ---- instead of frame.c ---- */

int __wrap_close(int fd)
{
	if (fd < DESCRIPTOR_FIRST)
		return fd == SOCKET ? 0 : __real_close(fd);
	FUZZ_CHECK(is_open[fd - DESCRIPTOR_FIRST]); /* closed once */
	is_open[fd - DESCRIPTOR_FIRST] = false;
	return 0;
}

int frame_send(int sock, const void *packet, size_t length, const int *fds, size_t fd_count)
{
	FUZZ_CHECK(fd_count == 0 && length <= HPZ_WIRE_MAX_REQUEST);
	/* What we ask, a server of our own takes. */
	FUZZ_CHECK(proto_get_head(packet, length, false, &asked) == HPZ_OK);
	return 0;
}

static int give_descriptors(size_t count, int *fds, size_t *ret_count)
{
	size_t given = 0;

	for (; given < count && descriptors_given < ARRAY_SIZE(is_open); given++) {
		fds[given] = DESCRIPTOR_FIRST + (int)descriptors_given;
		is_open[descriptors_given++] = true;
	}
	*ret_count = given;
	return FRAME_OK;
}

int frame_receive_once(int sock, void *packet, size_t capacity, size_t *ret_length, int *fds,
	size_t fd_capacity, size_t *ret_fd_count)
{
	enum coming coming = (enum coming)(fuzz_take_byte(&script) % COMING_COUNT);
	size_t count = fuzz_take_byte(&script), length = fuzz_take_number(&script, 2);
	size_t head = coming == COMING_RAW ? 0 : sizeof asked;

	if (script.left == 0 || coming == COMING_EOF || messages++ == MESSAGES_MAX)
		return FRAME_EOF;
	if (coming == COMING_TOO_LONG)
		return FRAME_TOO_LONG;
	length = MIN(length, script.left);
	FUZZ_CHECK(head + length <= capacity);
	memcpy((uint8_t *)packet + head, script.at, length);
	script.at += length;
	script.left -= length;
	if (head)
		proto_set_head(packet, asked.op, asked.id, true, coming == COMING_ERROR ? (uint32_t)count : 0,
			coming == COMING_ERROR ? 0 : (uint32_t)count, length);
	*ret_length = head + length;
	if (!fds)
		return FRAME_OK;
	if (coming == COMING_WITHHELD) {
		*ret_fd_count = 0;
		return FRAME_WITHHELD;
	}
	return give_descriptors(coming == COMING_ERROR ? 0 : MIN(count, fd_capacity), fds, ret_fd_count);
}

int frame_receive(int sock, void *packet, size_t capacity, size_t *ret_length, int *fds, size_t fd_capacity,
	size_t *ret_fd_count)
{
	return frame_receive_once(sock, packet, capacity, ret_length, fds, fd_capacity, ret_fd_count);
}

/* ---- what is done with what came ---- */

static void use_text(const char *text)
{
	FUZZ_CHECK(proto_is_text(text, strlen(text)));
}

static void use_lease(struct hpz_lease *lease, const struct hpz_lease_request *request)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < hpz_lease_get_segment_count(lease); i++) {
		struct hpz_segment segment = {.struct_size = sizeof segment};
		FUZZ_CHECK(hpz_lease_get_segment(lease, i, &segment) == HPZ_OK);
		FUZZ_CHECK((segment.fd >= 0) != (segment.path && *segment.path));
		sum += segment.size;
	}
	FUZZ_CHECK(sum == hpz_lease_get_size(lease) && hpz_lease_get_id(lease) != 0);
	FUZZ_CHECK(!request || sum >= request->size);
	FUZZ_CHECK(hpz_lease_get_ready(lease) + hpz_lease_get_zeroed(lease) <= sum);
	hpz_lease_free(lease);
}

static void call_lease(struct hpz *hpz, uint8_t what)
{
	struct hpz_lease_request request = HPZ_LEASE_REQUEST_INIT;
	const struct hpz_cell cells[] = {{.size = 2u << 20, .node = 0}, {.size = 2u << 20, .node = 1}};
	struct hpz_lease *lease = NULL, *many[3] = {NULL};

	request.size = what & 4 ? 4u << 20 : 2u << 20;
	request.deliver = what & 1 ? HPZ_DELIVER_PATH : HPZ_DELIVER_FD;
	if (what & 4) {
		request.cells = cells;
		request.cell_count = ARRAY_SIZE(cells);
	}
	if (what & 8) {
		if (hpz_lease_many(hpz, &request, ARRAY_SIZE(many), many) == HPZ_OK) {
			for (size_t i = 0; i < ARRAY_SIZE(many); i++)
				use_lease(many[i], &request);
		}
	} else if (hpz_lease(hpz, &request, &lease) == HPZ_OK) {
		use_lease(lease, &request);
	}
}

static void call_adopt(struct hpz *hpz, uint8_t what)
{
	struct hpz_adopt_request request = HPZ_ADOPT_REQUEST_INIT;
	struct hpz_lease *lease = NULL;

	if (hpz_adopt(hpz, 1, &request, &lease) == HPZ_OK)
		use_lease(lease, NULL);
}

static void call_change(struct hpz *hpz, uint8_t what)
{
	struct hpz_change_request request = HPZ_CHANGE_REQUEST_INIT;
	struct hpz_change_result result = {.struct_size = sizeof result};
	struct hpz_lease *added = NULL;

	request.size = 4u << 20;
	request.known = what;
	if (hpz_change(hpz, 1, &request, &result, &added) == HPZ_OK && added)
		hpz_lease_free(added);
}

static void call_plan(struct hpz *hpz, uint8_t what)
{
	struct hpz_lease_request request = HPZ_LEASE_REQUEST_INIT;
	struct hpz_plan_result plan = {.struct_size = sizeof plan};

	request.size = 2u << 20;
	if (hpz_plan(hpz, &request, &plan) == HPZ_OK) {
		use_text(plan.pool);
		use_text(plan.text);
	}
}

static void call_reserve(struct hpz *hpz, uint8_t what)
{
	struct hpz_lease_request request = HPZ_LEASE_REQUEST_INIT;
	struct hpz_reservation reservation = {.struct_size = sizeof reservation};

	request.size = 2u << 20;
	if (what & 1)
		hpz_unreserve(hpz, 1);
	else if (hpz_reserve(hpz, &request, 1000, &reservation) == HPZ_OK)
		use_text(reservation.pool);
}

static void use_listed(const struct hpz_lease_list *list, size_t index)
{
	struct hpz_lease_info info = {.struct_size = sizeof info};

	FUZZ_CHECK(hpz_list_get_lease(list, index, &info) == HPZ_OK);
	use_text(info.label);
	use_text(info.comm);
	use_text(info.reason);
	for (size_t i = 0; i < info.segment_count; i++) {
		struct hpz_segment segment = {.struct_size = sizeof segment};
		FUZZ_CHECK(hpz_list_get_segment(list, index, i, &segment) == HPZ_OK);
		use_text(segment.path ? segment.path : "");
	}
	for (size_t i = 0; i < info.holder_count; i++) {
		struct hpz_holder holder = {.struct_size = sizeof holder};
		FUZZ_CHECK(hpz_list_get_holder(list, index, i, &holder) == HPZ_OK);
		use_text(holder.comm);
	}
}

static void call_list(struct hpz *hpz, uint8_t what)
{
	struct hpz_lease_list *list = NULL;

	if (hpz_list(hpz, &list) != HPZ_OK)
		return;
	for (size_t i = 0; i < hpz_list_get_count(list); i++)
		use_listed(list, i);
	hpz_list_free(list);
}

static void call_status(struct hpz *hpz, uint8_t what)
{
	struct hpz_status *status = NULL;
	struct hpz_daemon_status daemon = {.struct_size = sizeof daemon};

	if (hpz_get_status(hpz, &status) != HPZ_OK)
		return;
	FUZZ_CHECK(hpz_status_get_daemon(status, &daemon) == HPZ_OK);
	use_text(daemon.message);
	for (size_t i = 0; i < daemon.pool_count; i++) {
		struct hpz_pool_status pool = {.struct_size = sizeof pool};
		FUZZ_CHECK(hpz_status_get_pool(status, i, &pool) == HPZ_OK);
		use_text(pool.name);
		use_text(pool.mount);
	}
	hpz_status_free(status);
}

static void call_check(struct hpz *hpz, uint8_t what)
{
	struct hpz_check_result *result = NULL;

	if (hpz_check(hpz, 0, 0, &result) != HPZ_OK)
		return;
	for (size_t i = 0; i < hpz_check_get_count(result); i++) {
		struct hpz_finding finding = {.struct_size = sizeof finding};
		FUZZ_CHECK(hpz_check_get_finding(result, i, &finding) == HPZ_OK);
		use_text(finding.pool);
		use_text(finding.text);
	}
	hpz_check_free(result);
}

static void call_clearing(struct hpz *hpz, uint8_t what)
{
	struct hpz_clearing *clearing = NULL;
	struct hpz_clearing_info info = {.struct_size = sizeof info};

	if (hpz_get_clearing(hpz, &clearing) != HPZ_OK)
		return;
	FUZZ_CHECK(hpz_clearing_get_info(clearing, &info) == HPZ_OK);
	for (size_t i = 0; i < info.rule_count; i++) {
		struct hpz_clearing_rule rule = {.struct_size = sizeof rule};
		FUZZ_CHECK(hpz_clearing_get_rule(clearing, i, &rule) == HPZ_OK);
		use_text(rule.value);
	}
	for (size_t i = 0; i < info.node_count; i++) {
		struct hpz_clearing_node node = {.struct_size = sizeof node};
		FUZZ_CHECK(hpz_clearing_get_node(clearing, i, &node) == HPZ_OK);
	}
	for (size_t i = 0; i < info.method_count; i++) {
		struct hpz_clearing_method method = {.struct_size = sizeof method};
		FUZZ_CHECK(hpz_clearing_get_method(clearing, i, &method) == HPZ_OK);
		use_text(method.name);
	}
	hpz_clearing_free(clearing);
}

static void call_demand(struct hpz *hpz, uint8_t what)
{
	struct hpz_demand *demand = NULL;

	if (hpz_get_demand(hpz, &demand) != HPZ_OK)
		return;
	for (size_t i = 0; i < hpz_demand_get_pool_count(demand); i++) {
		struct hpz_demand_pool pool = {.struct_size = sizeof pool};
		FUZZ_CHECK(hpz_demand_get_pool(demand, i, &pool) == HPZ_OK);
		use_text(pool.pool);
		for (size_t k = 0; k < pool.size_count; k++) {
			struct hpz_demand_size size = {.struct_size = sizeof size};
			FUZZ_CHECK(hpz_demand_get_size(demand, i, k, &size) == HPZ_OK);
		}
	}
	hpz_demand_free(demand);
}

static void call_teardown(struct hpz *hpz, uint8_t what)
{
	struct hpz_teardown_request request = HPZ_TEARDOWN_REQUEST_INIT;
	struct hpz_teardown *teardown = NULL;
	struct hpz_teardown_info info = {.struct_size = sizeof info};

	if (hpz_get_teardown(hpz, &request, &teardown) != HPZ_OK)
		return;
	FUZZ_CHECK(hpz_teardown_get_info(teardown, &info) == HPZ_OK);
	for (size_t i = 0; i < info.record_count; i++) {
		struct hpz_teardown_record record = {.struct_size = sizeof record};
		FUZZ_CHECK(hpz_teardown_get_record(teardown, i, &record) == HPZ_OK);
		use_text(record.label);
	}
	for (size_t i = 0; i < info.histogram_count; i++) {
		struct hpz_teardown_histogram histogram = {.struct_size = sizeof histogram};
		FUZZ_CHECK(hpz_teardown_get_histogram(teardown, i, &histogram) == HPZ_OK);
		use_text(histogram.label);
	}
	for (size_t i = 0; i < info.fact_count; i++) {
		struct hpz_teardown_fact fact = {.struct_size = sizeof fact};
		FUZZ_CHECK(hpz_teardown_get_fact(teardown, i, &fact) == HPZ_OK);
		use_text(fact.value);
	}
	hpz_teardown_free(teardown);
}

static void call_small(struct hpz *hpz, uint8_t what)
{
	struct hpz_wait_request wait = HPZ_WAIT_REQUEST_INIT;
	struct hpz_resize_request resize = HPZ_RESIZE_REQUEST_INIT;
	struct hpz_resize_result resized = {.struct_size = sizeof resized};
	struct hpz_verify_result verified = {.struct_size = sizeof verified};
	uint32_t count;

	resize.pool = "vm";
	resize.pages = 1;
	switch (what % 7) {
	case 0:
		hpz_release(hpz, 1, HPZ_RELEASE_WAIT, 0);
		break;
	case 1:
		hpz_wait(hpz, &wait);
		break;
	case 2:
		hpz_drain(hpz, 0, 0, &count);
		break;
	case 3:
		hpz_resize(hpz, &resize, &resized);
		break;
	case 4:
		if (hpz_verify(hpz, NULL, 0, &verified) == HPZ_OK)
			use_text(verified.hit_pool);
		break;
	case 5:
		hpz_set(hpz, "rate", "none");
		break;
	case 6:
		hpz_calibrate(hpz, NULL, 0, &count);
		break;
	}
}

static void call_metrics(struct hpz *hpz, uint8_t what)
{
	struct hpz_metrics *metrics = NULL;

	if (hpz_get_metrics(hpz, &metrics) != HPZ_OK)
		return;
	for (size_t i = 0; i < hpz_metrics_get_count(metrics); i++) {
		struct hpz_metric metric = {.struct_size = sizeof metric};
		FUZZ_CHECK(hpz_metrics_get_metric(metrics, i, &metric) == HPZ_OK);
		FUZZ_CHECK(metric.bucket_count <= HPZ_METRIC_BUCKETS);
		FUZZ_CHECK(metric.shift + metric.bucket_count <= 64);
		use_text(metric.name);
		use_text(metric.help);
		use_text(metric.label);
		use_text(metric.label_value);
	}
	hpz_metrics_free(metrics);
}

static void call_events(struct hpz *hpz, uint8_t what)
{
	struct hpz_events *events = NULL;
	struct hpz_events_info info = {.struct_size = sizeof info};

	if (hpz_get_events(hpz, what, 0, &events) != HPZ_OK)
		return;
	FUZZ_CHECK(hpz_events_get_info(events, &info) == HPZ_OK);
	FUZZ_CHECK(info.cursor <= info.last);
	for (size_t i = 0; i < info.count; i++) {
		struct hpz_event event = {.struct_size = sizeof event};
		FUZZ_CHECK(hpz_events_get_event(events, i, &event) == HPZ_OK);
		use_text(event.label);
		use_text(event.text);
	}
	hpz_events_free(events);
}

static void (*const calls[])(struct hpz *hpz, uint8_t what) = {call_lease, call_adopt, call_change, call_plan,
	call_reserve, call_list, call_status, call_check, call_clearing, call_demand, call_teardown,
	call_small, call_metrics, call_events};

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
	static struct hpz *hpz; /* 200 KiB, so once */

	if (!hpz)
		hpz = calloc(1, sizeof *hpz);
	FUZZ_CHECK(hpz);
	memset(hpz, 0, offsetof(struct hpz, message));
	hpz->sock = SOCKET;
	hpz->owner = getpid();
	hpz->next_id = 1;
	script = (struct fuzz_input){bytes, length};
	messages = descriptors_given = 0;
	uint8_t call = fuzz_take_byte(&script), what = fuzz_take_byte(&script);
	calls[call % ARRAY_SIZE(calls)](hpz, what);
	for (unsigned i = 0; i < descriptors_given; i++)
		FUZZ_CHECK(!is_open[i]);
	use_text(hpz_get_error_text(hpz));
	return 0;
}
