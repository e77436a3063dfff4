/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * cgroup.c - under systemd: memory workers in a cgroup of their own, beside those of VMs, with a weight.
 *
 * Where the cpu controller is on, scheduling classes count only inside a cgroup: the most idle worker in
 * hpzd.service gets the share of the whole service. So each node's workers are in a scope of hpz.slice, which
 * stands beside machine.slice. hpzd itself stays where it is: a cgroup delegated to it would have to be empty
 * before the next start, and a worker that cannot die would prevent that.
 *
 * Both get the weight. Only the slice's counts against machine.slice: it is that of the highest level of all
 * nodes. The scopes divide it: a node that is idle gets next to nothing of what another one's urgent work has
 * raised it to.
 *
 * What is wanted is kept here and compared with what the manager has been told; there is one call at a time.
 * After the last one the connection is closed. A worker that ends while its number is under way is a number
 * somebody else might have by then: the manager has no better name for a process before systemd 254.
 */
#include <inttypes.h>
#include <poll.h>
#include <systemd/sd-bus.h>
#include <systemd/sd-daemon.h>
#include <systemd/sd-login.h>

#include "cgroup.h"
#include "log.h"

#define MANAGER      "org.freedesktop.systemd1"
#define INVALID      "org.freedesktop.DBus.Error.InvalidArgs"
#define JOINING_MAX  64
#define LATER_MS     1000 /* a weight is lowered, a call tried again: the manager has other things to do */
#define ATTEMPTS_MAX 5
#define WEIGHT_NONE  UINT64_MAX
#define WEIGHT_IDLE  0 /* cpu.idle */
#define WEIGHT_LEAST 1 /* for a systemd before 252, which has none of that */

const struct cgroup_bus cgroup_buses[CGROUP_BUSES] = {
	{"unix:path=/run/dbus/system_bus_socket", true},
	{"unix:path=/run/systemd/private", false},
};

/* Against 100, which everything has by default. */
static const uint64_t weights[WORKER_LEVEL_COUNT] = {
	[WORKER_LEVEL_IDLE] = WEIGHT_IDLE,
	[WORKER_LEVEL_REFILL] = 50,
	[WORKER_LEVEL_URGENT] = 100,
};

/* Of a unit. */
struct cgroup_weight {
	int level;    /* CGROUP_AT_REST: none yet */
	uint64_t set; /* what the manager was told; WEIGHT_NONE: nothing */
};

struct cgroup_node {
	struct list link;
	char scope[48];
	int32_t node;
	bool is_busy;
	bool is_made; /* as far as we know */
	struct cgroup_weight weight;
	unsigned workers;
	struct {
		pid_t pid;
		bool is_asked; /* in the call under way */
	} joining[JOINING_MAX];
	size_t joining_count;
};

struct cgroup_connection {
	struct cgroup *cgroup; /* NULL: closing */
	sd_bus *bus;
	uv_poll_t poll;
	uv_timer_t timeout;
	unsigned handles; /* open uv handles; freed at 0 */
};

enum cgroup_call { CALL_NONE, CALL_SLICE_WEIGHT, CALL_START, CALL_ATTACH, CALL_SCOPE_WEIGHT };

struct cgroup {
	uv_loop_t *loop;
	char *unit;
	const struct cgroup_bus *buses;
	size_t bus_count, bus; /* the one that is tried next */
	struct cgroup_connection *connection;
	struct list nodes;
	struct cgroup_weight slice;
	enum cgroup_call call; /* under way */
	struct cgroup_node *call_node;
	uint64_t call_weight;
	uv_timer_t later;
	bool is_due;     /* what waited for `later` */
	bool is_waiting; /* a call failed: all wait for `later` */
	unsigned attempts;
	bool is_idle_refused, was_logged, is_closing;
};

char *cgroup_find_unit(void)
{
	const char *pid = getenv("SYSTEMD_EXEC_PID"); /* since 248; not what a child inherited */
	char *unit = NULL;
	if (!pid || strtol(pid, NULL, 10) != (long)getpid() || sd_booted() <= 0)
		return NULL;
	return sd_pid_get_unit(0, &unit) < 0 ? NULL : unit;
}

/* ---- what is wanted ---- */

static uint64_t get_target(const struct cgroup *cgroup, const struct cgroup_weight *weight)
{
	if (weight->level == CGROUP_AT_REST)
		return WEIGHT_NONE;
	uint64_t target = weights[weight->level];
	return target == WEIGHT_IDLE && cgroup->is_idle_refused ? WEIGHT_LEAST : target;
}

static void on_later(uv_timer_t *timer);

static void start_later(struct cgroup *cgroup)
{
	if (!uv_is_active((uv_handle_t *)&cgroup->later))
		uv_timer_start(&cgroup->later, on_later, LATER_MS, 0);
}

/* Raised at once, lowered later: levels come and go with each lease. */
static bool is_to_be_set(struct cgroup *cgroup, const struct cgroup_weight *weight)
{
	uint64_t target = get_target(cgroup, weight);
	if (target == weight->set || target == WEIGHT_NONE)
		return false;
	if (weight->set == WEIGHT_NONE || target > weight->set || cgroup->is_due)
		return true;
	start_later(cgroup);
	return false;
}

static bool has_workers(const struct cgroup *cgroup)
{
	LIST_FOR_EACH (pos, &cgroup->nodes) {
		if (CONTAINER_OF(pos, struct cgroup_node, link)->workers > 0)
			return true;
	}
	return false;
}

static enum cgroup_call find_call(struct cgroup *cgroup, struct cgroup_node **ret_node)
{
	*ret_node = NULL;
	/* First: nobody works in a slice that is as heavy as somebody left it. */
	if (cgroup->slice.level == CGROUP_AT_REST || !has_workers(cgroup))
		return CALL_NONE;
	if (is_to_be_set(cgroup, &cgroup->slice))
		return CALL_SLICE_WEIGHT;
	LIST_FOR_EACH (pos, &cgroup->nodes) {
		struct cgroup_node *node = CONTAINER_OF(pos, struct cgroup_node, link);
		*ret_node = node;
		if (node->joining_count > 0)
			return node->is_made ? CALL_ATTACH : CALL_START;
		if (node->is_made && is_to_be_set(cgroup, &node->weight))
			return CALL_SCOPE_WEIGHT;
	}
	return CALL_NONE;
}

/* ---- what has become of it ---- */

static void remove_joining(struct cgroup_node *node, size_t index)
{
	node->joining[index] = node->joining[--node->joining_count];
}

static void end_asking(struct cgroup_node *node, bool have_joined)
{
	for (size_t i = node->joining_count; i-- > 0;) {
		if (node->joining[i].is_asked && have_joined)
			remove_joining(node, i);
		else
			node->joining[i].is_asked = false;
	}
}

static void forget_scope(struct cgroup_node *node)
{
	node->is_made = false;
	node->weight.set = WEIGHT_NONE;
}

/* Until the next worker, the next level. */
static void give_up(struct cgroup *cgroup)
{
	cgroup->attempts = 0;
	cgroup->slice.set = get_target(cgroup, &cgroup->slice);
	LIST_FOR_EACH (pos, &cgroup->nodes) {
		struct cgroup_node *node = CONTAINER_OF(pos, struct cgroup_node, link);
		node->joining_count = 0;
		node->weight.set = get_target(cgroup, &node->weight);
	}
}

static void fail(struct cgroup *cgroup, const char *why)
{
	log_debug("workers' cgroup: %s", why);
	cgroup->is_waiting = true;
	start_later(cgroup);
	if (++cgroup->attempts < ATTEMPTS_MAX)
		return;
	if (!cgroup->was_logged)
		log_warning("workers get no cgroup of their own, or no weight: %s; they go on without", why);
	cgroup->was_logged = true;
	give_up(cgroup);
}

static void use_next_bus(struct cgroup *cgroup)
{
	cgroup->bus = (cgroup->bus + 1) % cgroup->bus_count;
}

static bool is_error(const char *error, const char *name)
{
	return error && strcmp(error, name) == 0;
}

/* Each returns whether the next call may follow at once. */

static bool end_weight(struct cgroup *cgroup, struct cgroup_weight *weight, const char *error)
{
	if (!error) {
		weight->set = cgroup->call_weight;
		cgroup->attempts = 0;
		return true;
	}
	if (cgroup->call_weight != WEIGHT_IDLE || !is_error(error, INVALID))
		return false;
	cgroup->is_idle_refused = true;
	return true;
}

static bool end_start(struct cgroup_node *node, const char *error)
{
	/* Of a dead hpzd's worker that is not dead yet, or what we took for gone. */
	bool is_there = !error || is_error(error, MANAGER ".UnitExists");
	end_asking(node, !error);
	forget_scope(node);
	node->is_made = is_there && node->workers > 0;
	return is_there;
}

static bool end_attach(struct cgroup *cgroup, struct cgroup_node *node, const char *error)
{
	end_asking(node, !error);
	if (!error)
		cgroup->attempts = 0;
	else
		forget_scope(node); /* it went with its last worker, or is not quite there yet */
	return !error;
}

static void end_call(struct cgroup *cgroup, const char *error, const char *why)
{
	struct cgroup_node *node = cgroup->call_node;
	enum cgroup_call call = cgroup->call;
	bool is_good = true;
	cgroup->call = CALL_NONE;
	cgroup->call_node = NULL;
	switch (call) {
	case CALL_NONE:
		break;
	case CALL_SLICE_WEIGHT:
		is_good = end_weight(cgroup, &cgroup->slice, error);
		break;
	case CALL_SCOPE_WEIGHT:
		is_good = end_weight(cgroup, &node->weight, error);
		break;
	case CALL_START:
		is_good = end_start(node, error);
		break;
	case CALL_ATTACH:
		is_good = end_attach(cgroup, node, error);
		break;
	}
	if (is_good)
		return;
	if (strncmp(error, MANAGER, strlen(MANAGER)) != 0)
		use_next_bus(cgroup);
	fail(cgroup, why);
}

static int on_answer(sd_bus_message *answer, void *user, sd_bus_error *ret_error)
{
	const sd_bus_error *error = sd_bus_message_get_error(answer);
	end_call(user, error ? error->name : NULL, error && error->message ? error->message : "no reason");
	return 1;
}

/* ---- calls ---- */

static void cleanup_message(sd_bus_message **message)
{
	sd_bus_message_unref(*message);
}
#define _cleanup_message_ __attribute__((cleanup(cleanup_message))) sd_bus_message

static int new_call(sd_bus *bus, const char *method, sd_bus_message **ret_message)
{
	return sd_bus_message_new_method_call(
		bus, ret_message, MANAGER, "/org/freedesktop/systemd1", MANAGER ".Manager", method);
}

static int append_pids(sd_bus_message *message, struct cgroup_node *node)
{
	uint32_t pids[JOINING_MAX];
	for (size_t i = 0; i < node->joining_count; i++) {
		pids[i] = (uint32_t)node->joining[i].pid;
		node->joining[i].is_asked = true;
	}
	return sd_bus_message_append_array(message, 'u', pids, node->joining_count * sizeof pids[0]);
}

static int append_property_pids(sd_bus_message *message, struct cgroup_node *node)
{
	int r = sd_bus_message_open_container(message, 'r', "sv");
	if (r >= 0)
		r = sd_bus_message_append(message, "s", "PIDs");
	if (r >= 0)
		r = sd_bus_message_open_container(message, 'v', "au");
	if (r >= 0)
		r = append_pids(message, node);
	if (r >= 0)
		r = sd_bus_message_close_container(message);
	return r < 0 ? r : sd_bus_message_close_container(message);
}

/*
 * Delegated, because nobody may join a scope later that is not; of controllers only the one that counts, the
 * others would be switched on for the whole host. When all stop hpzd goes first, and sends its workers home.
 */
static int append_properties(sd_bus_message *message, const struct cgroup *cgroup, const char *description)
{
	const struct {
		const char *name, *type, *value;
	} properties[] = {
		{"Description", "s", description},
		{"Slice", "s", CGROUP_SLICE},
		{"CollectMode", "s", "inactive-or-failed"},
		{"DevicePolicy", "s", "closed"},
		{"DelegateControllers", "as", "cpu"},
		{"Before", "as", cgroup->unit},
	};
	int r = 0;
	for (size_t i = 0; i < ARRAY_SIZE(properties) && r >= 0; i++) {
		if (properties[i].type[0] == 'a')
			r = sd_bus_message_append(
				message, "(sv)", properties[i].name, "as", 1, properties[i].value);
		else
			r = sd_bus_message_append(
				message, "(sv)", properties[i].name, "s", properties[i].value);
	}
	return r;
}

static int make_start(
	sd_bus *bus, const struct cgroup *cgroup, struct cgroup_node *node, sd_bus_message **ret_message)
{
	char description[64];
	snprintf(description, sizeof description, "hpzd's workers of node %" PRId32, node->node);
	int r = new_call(bus, "StartTransientUnit", ret_message);
	if (r >= 0)
		r = sd_bus_message_append(*ret_message, "ss", node->scope, "fail");
	if (r >= 0)
		r = sd_bus_message_open_container(*ret_message, 'a', "(sv)");
	if (r >= 0)
		r = append_properties(*ret_message, cgroup, description);
	if (r >= 0)
		r = append_property_pids(*ret_message, node);
	if (r >= 0)
		r = sd_bus_message_close_container(*ret_message);
	return r < 0 ? r : sd_bus_message_append(*ret_message, "a(sa(sv))", 0);
}

static int make_attach(sd_bus *bus, struct cgroup_node *node, sd_bus_message **ret_message)
{
	int r = new_call(bus, "AttachProcessesToUnit", ret_message);
	if (r >= 0)
		r = sd_bus_message_append(*ret_message, "ss", node->scope, "");
	return r < 0 ? r : append_pids(*ret_message, node);
}

/* At run time only: a reboot begins anew. */
static int make_weight(sd_bus *bus, const char *unit, uint64_t weight, sd_bus_message **ret_message)
{
	int r = new_call(bus, "SetUnitProperties", ret_message);
	return r < 0 ? r
		     : sd_bus_message_append(*ret_message, "sba(sv)", unit, 1, 1, "CPUWeight", "t", weight);
}

static int send_call(struct cgroup *cgroup, enum cgroup_call call, struct cgroup_node *node)
{
	_cleanup_message_ *message = NULL;
	sd_bus *bus = cgroup->connection->bus;
	int r = 0;
	cgroup->call = call;
	cgroup->call_node = NULL;
	switch (call) {
	case CALL_NONE:
		return 0;
	case CALL_SLICE_WEIGHT:
		cgroup->call_weight = get_target(cgroup, &cgroup->slice);
		r = make_weight(bus, CGROUP_SLICE, cgroup->call_weight, &message);
		break;
	case CALL_SCOPE_WEIGHT:
		cgroup->call_node = node;
		cgroup->call_weight = get_target(cgroup, &node->weight);
		r = make_weight(bus, node->scope, cgroup->call_weight, &message);
		break;
	case CALL_START:
		cgroup->call_node = node;
		r = make_start(bus, cgroup, node, &message);
		break;
	case CALL_ATTACH:
		cgroup->call_node = node;
		r = make_attach(bus, node, &message);
		break;
	}
	return r < 0 ? r : sd_bus_call_async(bus, NULL, message, on_answer, cgroup, 0);
}

/* ---- the connection ---- */

static void go_on(struct cgroup *cgroup);

static void on_connection_closed(uv_handle_t *handle)
{
	struct cgroup_connection *connection = handle->data;
	if (--connection->handles == 0)
		free(connection);
}

static void close_connection(struct cgroup *cgroup)
{
	struct cgroup_connection *connection = cgroup->connection;
	if (!connection)
		return;
	cgroup->connection = NULL;
	connection->cgroup = NULL;
	uv_close((uv_handle_t *)&connection->poll, on_connection_closed);
	uv_close((uv_handle_t *)&connection->timeout, on_connection_closed);
	/* Not flushed: that would wait. */
	sd_bus_close(connection->bus);
	sd_bus_unref(connection->bus);
}

/* Only between two calls into the bus. */
static void lose_connection(struct cgroup *cgroup, int error)
{
	close_connection(cgroup);
	if (cgroup->call == CALL_NONE)
		return;
	end_call(cgroup, "", strerror(-error)); /* of no manager: the next bus */
}

static void on_timeout(uv_timer_t *timer);
static void on_readable(uv_poll_t *poll, int status, int events);

/* What the bus waits for. */
static int watch(struct cgroup_connection *connection)
{
	uint64_t at_us = UINT64_MAX, now_us = clock_get_ns(CLOCK_MONOTONIC) / 1000;
	int events = sd_bus_get_events(connection->bus);
	int r = events < 0 ? events : sd_bus_get_timeout(connection->bus, &at_us);
	if (r < 0)
		return r;
	if (at_us == UINT64_MAX)
		uv_timer_stop(&connection->timeout);
	else
		uv_timer_start(&connection->timeout, on_timeout,
			at_us > now_us ? (at_us - now_us) / 1000 + 1 : 0, 0);
	return uv_poll_start(&connection->poll,
		(events & POLLIN ? UV_READABLE : 0) | (events & POLLOUT ? UV_WRITABLE : 0), on_readable);
}

static void process(struct cgroup_connection *connection)
{
	struct cgroup *cgroup = connection->cgroup;
	int r = 1;
	while (r > 0)
		r = sd_bus_process(connection->bus, NULL);
	if (r == 0 && sd_bus_is_open(connection->bus) <= 0)
		r = -ECONNRESET;
	if (r < 0)
		lose_connection(cgroup, r);
	go_on(cgroup);
}

static void on_readable(uv_poll_t *poll, int status, int events)
{
	process(poll->data);
}

static void on_timeout(uv_timer_t *timer)
{
	process(timer->data);
}

static int open_bus(const struct cgroup_bus *bus, sd_bus **ret_bus)
{
	sd_bus *new_bus;
	int r = sd_bus_new(&new_bus);
	if (r < 0)
		return r;
	r = sd_bus_set_address(new_bus, bus->address);
	if (r >= 0)
		r = sd_bus_set_bus_client(new_bus, bus->is_broker);
	if (r >= 0)
		r = sd_bus_start(new_bus); /* does not wait */
	if (r < 0) {
		sd_bus_unref(new_bus);
		return r;
	}
	*ret_bus = new_bus;
	return 0;
}

static int connect_to(struct cgroup *cgroup, const struct cgroup_bus *bus)
{
	struct cgroup_connection *connection = calloc(1, sizeof *connection);
	if (!connection)
		return -ENOMEM;
	int r = open_bus(bus, &connection->bus);
	if (r < 0) {
		free(connection);
		return r;
	}
	r = uv_poll_init(cgroup->loop, &connection->poll, sd_bus_get_fd(connection->bus));
	if (r < 0) {
		sd_bus_close(connection->bus);
		sd_bus_unref(connection->bus);
		free(connection);
		return r;
	}
	uv_timer_init(cgroup->loop, &connection->timeout);
	connection->poll.data = connection->timeout.data = connection;
	connection->handles = 2;
	connection->cgroup = cgroup;
	cgroup->connection = connection;
	return 0;
}

static int connect_to_any(struct cgroup *cgroup)
{
	int r = 0;
	for (size_t i = 0; i < cgroup->bus_count && !cgroup->connection; i++) {
		r = connect_to(cgroup, &cgroup->buses[cgroup->bus]);
		if (r < 0)
			use_next_bus(cgroup);
	}
	return cgroup->connection ? 0 : r;
}

/* ---- the next step ---- */

static void make_call(struct cgroup *cgroup, enum cgroup_call call, struct cgroup_node *node)
{
	int r = cgroup->connection ? 0 : connect_to_any(cgroup);
	if (r < 0) {
		fail(cgroup, strerror(-r));
		return;
	}
	r = send_call(cgroup, call, node);
	if (r >= 0)
		r = watch(cgroup->connection);
	if (r < 0)
		lose_connection(cgroup, r);
}

static void go_on(struct cgroup *cgroup)
{
	if (cgroup->call != CALL_NONE && cgroup->connection) {
		int r = watch(cgroup->connection);
		if (r < 0)
			lose_connection(cgroup, r);
	}
	if (cgroup->call != CALL_NONE || cgroup->is_closing)
		return;
	struct cgroup_node *node = NULL;
	enum cgroup_call call = cgroup->is_waiting ? CALL_NONE : find_call(cgroup, &node);
	if (call != CALL_NONE) {
		make_call(cgroup, call, node);
		return;
	}
	cgroup->is_due = false;
	close_connection(cgroup);
}

static void on_later(uv_timer_t *timer)
{
	struct cgroup *cgroup = CONTAINER_OF(timer, struct cgroup, later);
	cgroup->is_due = true;
	cgroup->is_waiting = false;
	go_on(cgroup);
}

/* ---- from outside ---- */

int cgroup_open(uv_loop_t *loop, const char *unit, const struct cgroup_bus *buses, size_t bus_count,
	struct cgroup **ret_cgroup)
{
	struct cgroup *cgroup = calloc(1, sizeof *cgroup);
	_cleanup_free_ char *copy = strdup(unit);
	if (!cgroup || !copy) {
		free(cgroup);
		return -ENOMEM;
	}
	cgroup->loop = loop;
	cgroup->unit = steal_pointer(&copy);
	cgroup->buses = buses;
	cgroup->bus_count = bus_count;
	cgroup->slice = (struct cgroup_weight){CGROUP_AT_REST, WEIGHT_NONE};
	list_init(&cgroup->nodes);
	uv_timer_init(loop, &cgroup->later);
	*ret_cgroup = cgroup;
	return 0;
}

static void on_later_closed(uv_handle_t *handle)
{
	struct cgroup *cgroup = CONTAINER_OF((uv_timer_t *)handle, struct cgroup, later);
	LIST_FOR_EACH_SAFE (pos, &cgroup->nodes)
		free(CONTAINER_OF(pos, struct cgroup_node, link));
	free(cgroup->unit);
	free(cgroup);
}

void cgroup_close(struct cgroup *cgroup)
{
	if (!cgroup)
		return;
	cgroup->is_closing = true;
	close_connection(cgroup);
	uv_close((uv_handle_t *)&cgroup->later, on_later_closed);
}

static struct cgroup_node *find_node(struct cgroup *cgroup, int32_t node)
{
	LIST_FOR_EACH (pos, &cgroup->nodes) {
		struct cgroup_node *entry = CONTAINER_OF(pos, struct cgroup_node, link);
		if (entry->node == node)
			return entry;
	}
	struct cgroup_node *entry = calloc(1, sizeof *entry);
	if (!entry)
		return NULL;
	entry->node = node;
	entry->weight = (struct cgroup_weight){CGROUP_AT_REST, WEIGHT_NONE};
	snprintf(entry->scope, sizeof entry->scope, "hpz-workers-node%" PRId32 ".scope", node);
	list_append(&cgroup->nodes, &entry->link);
	return entry;
}

void cgroup_join(struct cgroup *cgroup, int32_t node, pid_t pid)
{
	struct cgroup_node *entry = cgroup ? find_node(cgroup, node) : NULL;
	if (!entry || pid <= 0)
		return;
	entry->workers++;
	/* So many wait only for a manager that does not answer. */
	if (entry->joining_count < JOINING_MAX) {
		entry->joining[entry->joining_count].pid = pid;
		entry->joining[entry->joining_count++].is_asked = false;
	}
	go_on(cgroup);
}

void cgroup_leave(struct cgroup *cgroup, int32_t node, pid_t pid)
{
	struct cgroup_node *entry = cgroup ? find_node(cgroup, node) : NULL;
	if (!entry)
		return;
	for (size_t i = entry->joining_count; i-- > 0;) {
		if (entry->joining[i].pid == pid)
			remove_joining(entry, i);
	}
	/* With the last one goes the scope. */
	if (entry->workers > 0 && --entry->workers == 0)
		forget_scope(entry);
}

/* At rest a node does not count; when all are, the slice stays as it is. */
static void find_slice_level(struct cgroup *cgroup)
{
	int highest = CGROUP_AT_REST;
	LIST_FOR_EACH (pos, &cgroup->nodes) {
		const struct cgroup_node *node = CONTAINER_OF(pos, struct cgroup_node, link);
		if (node->is_busy)
			highest = MAX(highest, node->weight.level);
	}
	if (highest != CGROUP_AT_REST)
		cgroup->slice.level = highest;
}

void cgroup_set_level(struct cgroup *cgroup, int32_t node, int level)
{
	struct cgroup_node *entry = cgroup ? find_node(cgroup, node) : NULL;
	if (!entry)
		return;
	entry->is_busy = level != CGROUP_AT_REST;
	if (entry->is_busy)
		entry->weight.level = level;
	find_slice_level(cgroup);
	go_on(cgroup);
}
