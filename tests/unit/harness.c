/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* harness.c - hpzd without its main(), and clients that speak raw bytes. */
#include <linux/capability.h>
#include <sys/prctl.h>

#include "harness.h"
#include "frame.h"
#include "log.h"

#include <dirent.h>
#include <inttypes.h>
#include <sys/socket.h>

struct harness harness;
const struct host *harness_host;
const char *harness_mount;
void (*harness_before_look)(void);

static const struct host *get_host(void)
{
	return harness_host ? harness_host : store_get_host();
}

/* ---- the rooms, put together as daemon.c does ---- */

static void on_ended(uint64_t lease, void *user)
{
	request_lease_ended(&harness.requests, lease);
}

static void on_changed(void *user)
{
	reconcile_mark(&harness.reconcile);
}

static void on_returning(const struct lease *lease, void *user)
{
	teardown_begin(&harness.teardown, lease, clock_get_ns(CLOCK_MONOTONIC));
}

static void on_back(
	const struct lease *lease, const struct pool_segment *segment, enum handoff_back how, void *user)
{
	teardown_add_back(&harness.teardown, lease, segment, how);
}

static void on_over(const struct lease *lease, bool lives_on, void *user)
{
	teardown_set_over(&harness.teardown, lease, lives_on, clock_get_ns(CLOCK_MONOTONIC));
}

static void on_mended(const struct pool_segment *segment, bool is_clean, void *user)
{
	teardown_set_mended(&harness.teardown, segment, is_clean, clock_get_ns(CLOCK_MONOTONIC));
}

static void on_serve(void *user)
{
	if (harness_before_look)
		harness_before_look();
	ask_serve(&harness.requests);
}

static void on_settled(void *user)
{
	teardown_save(&harness.teardown);
	request_settle(&harness.requests);
}

static void on_record(enum journal_type type, const void *payload, size_t bytes, void *user)
{
}

static void on_write(struct journal *journal, void *user)
{
	reserve_write_all(&harness.requests.reserves, journal);
}

static void on_checked(void *user)
{
	request_checked(&harness.requests);
}

/* Learned earlier in this boot: a lesson that wanted a page would take a clean one. */
static void know_facts(void)
{
	const struct journal_facts facts = {
		.size = sizeof facts, .page_size = get_host()->page_sizes[0], .unlinked_names = 1};
	prover_read_record(harness.prover, JOURNAL_FACTS, &facts, sizeof facts);
}

/*
 * On tmpfs the full proof can decide nothing, and is in force or not depending on how soon its program is
 * loaded: then memory of the wrong kind is opened and refused. For good, and for our workers: as with any
 * other user.
 */
static void forbid_bpf(void)
{
	prctl(PR_CAPBSET_DROP, CAP_BPF);
	prctl(PR_CAPBSET_DROP, CAP_SYS_ADMIN);
}

void harness_open(void (*send)(struct session *session, struct request_reply *reply))
{
	const struct handoff_callbacks handoff = {.ended = on_ended,
		.changed = on_changed,
		.returning = on_returning,
		.back = on_back,
		.over = on_over};
	const struct reconcile_callbacks reconcile = {on_serve, on_settled, on_write, NULL};
	const char *program = getenv("HPZ_TEST_HPZD");

	log_set_level((enum log_level)0);
	memset(&harness, 0, sizeof harness);
	if (!harness_mount)
		forbid_bpf();
	if (!store_make_dir(harness.dir))
		temp_make(harness.dir);
	list_init(&harness.stores);
	assert_non_null(program);
	assert_int_equal(uv_loop_init(&harness.loop), 0);
	assert_int_equal(crew_init(&harness.loop, program, &harness.crew), 0);
	crew_set_hold(harness.crew, true);
	harness.prover = prover_new(harness.crew, on_changed, NULL);
	assert_non_null(harness.prover);
	know_facts();
	assert_int_equal(lease_init_table(&harness.leases), 0);
	assert_int_equal(teardown_init(&harness.teardown, on_changed, NULL), 0);
	assert_int_equal(handoff_init(&harness.loop, harness.crew, harness.prover, &harness.leases, &handoff,
				 &harness.handoff),
		0);
	reconcile_init(&harness.reconcile, &harness.loop, get_host(), harness.crew, harness.prover,
		harness.handoff, &harness.leases, &reconcile);
	harness.reconcile.stores = &harness.stores;
	harness.reconcile.teardown = &harness.teardown;
	books_init(&harness.books, &harness.loop, &harness.reconcile, on_checked, NULL);
	request_init(&harness.requests, &harness.loop, get_host(), &harness.config, harness.crew,
		&harness.leases, harness.handoff, &harness.reconcile, &harness.books,
		send ? send : session_send);
	harness.requests.teardown = &harness.teardown;
	assert_int_equal(
		journal_open(harness.dir, HARNESS_BOOT_ID, on_record, NULL, NULL, &harness.journal), 0);
	prover_set_journal(harness.prover, harness.journal);
	assert_int_equal(lease_finish_adoption(&harness.leases, harness.journal), 0);
	teardown_finish_adoption(&harness.teardown, &harness.leases, harness.journal);
	reconcile_start(&harness.reconcile, harness.journal);
	crew_set_hold(harness.crew, true); /* reconcile_start has looked for leftovers and let go */
}

void harness_release(void)
{
	crew_set_hold(harness.crew, false);
}

static void on_handoff_closed(void *user)
{
	*(bool *)user = true;
}

static void on_crew_stopped(void *user)
{
	handoff_close(harness.handoff, on_handoff_closed, user);
}

void harness_close(void)
{
	bool is_closed = false;

	request_deinit(&harness.requests);
	books_stop(&harness.books);
	reconcile_stop(&harness.reconcile);
	crew_stop(harness.crew, on_crew_stopped, &is_closed);
	assert_int_equal(uv_run(&harness.loop, UV_RUN_DEFAULT), 0);
	assert_true(is_closed);
	assert_true(list_is_empty(&harness.requests.waiting));
	assert_int_equal(harness.requests.connections, 0);
	assert_int_equal(uv_loop_close(&harness.loop), 0);
	for (size_t i = 0; i < harness.reconcile.pool_count; i++)
		pool_close(harness.reconcile.pools[i]);
	books_deinit(&harness.books);
	reconcile_deinit(&harness.reconcile);
	handoff_free(harness.handoff);
	prover_free(harness.prover);
	lease_deinit_table(&harness.leases);
	teardown_deinit(&harness.teardown);
	crew_free(harness.crew);
	journal_close(harness.journal);
	temp_remove(harness.dir);
	log_set_level(LOG_LEVEL_INFO);
}

/* ---- a pool ---- */

static struct segment_store *open_store(uint64_t page_size)
{
	struct segment_store *store = NULL;
	const char *why = "";

	/* Pools of one page size lie on one mount, as hpzd's do. */
	if (!list_is_empty(&harness.stores)) {
		store = CONTAINER_OF(harness.stores.next, struct segment_store, link);
		store->references++;
		return store;
	}
	if (!harness_mount)
		return store_open(harness.dir);
	if (segment_open_store(harness_mount, page_size, 0, &store, &why) < 0)
		fail_msg("%s %s", harness_mount, why);
	return store;
}

struct pool *harness_add_pool(const struct config_pool *config)
{
	struct segment_store *store = open_store(config->page_size);
	struct pool *pool = NULL;
	char error[256];

	if (list_is_empty(&harness.stores))
		list_append(&harness.stores, &store->link);
	assert_int_equal(pool_open(config, "f", get_host(), store, &pool, error, sizeof error), 0);
	segment_close_store(store);
	pool->mended = on_mended;
	assert_int_equal(reconcile_add_pool(&harness.reconcile, pool), 0);
	crew_set_hold(harness.crew, true);
	return pool;
}

void harness_put_clean(struct pool *pool, unsigned count, uint64_t pages)
{
	for (unsigned i = 0; i < count; i++) {
		struct pool_segment *segment;
		int fd;
		assert_int_equal(pool_create(pool, pages, &segment, &fd), 0);
		assert_int_equal(fallocate(fd, 0, 0, (off_t)(pages * pool->config.page_size)), 0);
		close(fd);
		assert_int_equal(pool_publish(segment), 0);
	}
	reconcile_mark(&harness.reconcile);
}

/* ---- the loop ---- */

void harness_turn(void)
{
	uv_run(&harness.loop, UV_RUN_NOWAIT);
}

static void on_tick(uv_timer_t *timer)
{
	/* Only so that the loop turns: what is waited for may be no event of it. */
}

static bool run_until(bool (*condition)(void *user), void *user, uint64_t ms)
{
	uint64_t until_ns = clock_get_ns(CLOCK_MONOTONIC) + ms * NS_PER_MS;
	uv_timer_t *timer = malloc(sizeof *timer);
	bool is_so;

	assert_non_null(timer);
	uv_timer_init(&harness.loop, timer);
	uv_timer_start(timer, on_tick, 5, 5);
	while (!(is_so = condition(user)) && clock_get_ns(CLOCK_MONOTONIC) < until_ns)
		uv_run(&harness.loop, UV_RUN_ONCE);
	uv_close((uv_handle_t *)timer, (uv_close_cb)free);
	return is_so;
}

void harness_run_until(bool (*condition)(void *user), void *user)
{
	if (!run_until(condition, user, HARNESS_SECONDS * 1000))
		fail_msg("nothing happened in %d s", HARNESS_SECONDS);
}

static bool never(void *user)
{
	return false;
}

void harness_run_ms(uint64_t ms)
{
	run_until(never, NULL, ms);
}

unsigned harness_count_fds(void)
{
	unsigned count = 0;
	DIR *dir = opendir("/proc/self/fd");

	assert_non_null(dir);
	while (readdir(dir))
		count++;
	closedir(dir);
	return count;
}

/* ---- messages ---- */

struct message *harness_make(
	struct message *message, uint16_t op, uint64_t id, const void *payload, size_t size)
{
	message->length = proto_set_head(message->bytes, op, id, false, 0, 0, size);
	memcpy(HARNESS_PAYLOAD(message), payload, size);
	return message;
}

struct message *harness_make_hello(struct message *message)
{
	struct hpz_wire_hello hello = {
		.size = sizeof hello,
		.magic = HPZ_WIRE_MAGIC,
		.version = HPZ_WIRE_VERSION,
		.compat = HPZ_WIRE_COMPAT,
		.max_message = HPZ_WIRE_MAX_MESSAGE,
		.max_request = HPZ_WIRE_MAX_REQUEST,
		.max_descriptors = HPZ_WIRE_MAX_FDS,
		.program = "test",
	};
	return harness_make(message, HPZ_OP_HELLO, 1, &hello, sizeof hello);
}

struct message *harness_make_empty(struct message *message, uint16_t op, uint64_t id)
{
	struct hpz_wire_empty empty = {.size = sizeof empty};
	return harness_make(message, op, id, &empty, sizeof empty);
}

struct hpz_wire_lease harness_get_lease(uint64_t pages, int64_t timeout_ms)
{
	return (struct hpz_wire_lease){
		.size = sizeof(struct hpz_wire_lease),
		.bytes = pages * STORE_PAGE,
		.node = -1,
		.deliver = HPZ_DELIVER_PATH,
		.timeout_ms = timeout_ms,
		.owner_uid = geteuid(), /* any user may run this */
		.owner_gid = getegid(),
	};
}

struct message *harness_make_lease(struct message *message, uint64_t id, uint64_t pages, int64_t timeout_ms)
{
	struct hpz_wire_lease lease = harness_get_lease(pages, timeout_ms);
	return harness_make(message, HPZ_OP_LEASE, id, &lease, sizeof lease);
}

struct hpz_wire_head harness_get_head(const struct message *message)
{
	struct hpz_wire_head head;

	assert_true(message->length >= sizeof head);
	memcpy(&head, message->bytes, sizeof head);
	assert_int_equal(head.size, message->length);
	assert_int_equal(head.flags, HPZ_WIRE_REPLY);
	return head;
}

const char *harness_expect_error(const struct message *message, uint16_t op, uint64_t id, int error)
{
	static char text[HPZ_WIRE_TEXT + 1];
	struct hpz_wire_head head = harness_get_head(message);
	struct hpz_wire_error refusal;
	size_t used;

	assert_int_equal(head.error, error);
	assert_int_equal(head.op, op);
	assert_int_equal(head.id, id);
	assert_int_equal(head.descriptors, 0);
	assert_int_equal(proto_get_struct(message->bytes + sizeof head, message->length - sizeof head,
				 &refusal, sizeof refusal, &used),
		0);
	assert_int_equal(used + sizeof head, message->length);
	assert_true(proto_is_text(refusal.text, sizeof refusal.text));
	proto_get_text(refusal.text, sizeof refusal.text, text);
	assert_true(text[0] != '\0'); /* a refusal always says why */
	return text;
}

void harness_expect_ok(const struct message *message, uint16_t op, uint64_t id)
{
	struct hpz_wire_head head = harness_get_head(message);

	if (head.error)
		fail_msg("op %u: error %u: %s", op, head.error,
			harness_expect_error(message, op, id, (int)head.error));
	assert_int_equal(head.op, op);
	assert_int_equal(head.id, id);
}

/* ---- clients ---- */

static void on_session_closed(struct session *session, void *user)
{
	harness.requests.connections--;
}

int harness_connect(void)
{
	struct request_peer peer;
	struct session *session;
	int pair[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair), 0);
	assert_int_equal(session_get_user(pair[1], &peer), 0);
	assert_int_equal(
		session_open(&harness.requests, pair[1], &peer, on_session_closed, NULL, &session), 0);
	harness.requests.connections++;
	return pair[0];
}

void harness_send(int sock, const struct message *message)
{
	assert_int_equal(frame_send(sock, message->bytes, message->length, NULL, 0), 0);
}

struct receiving {
	int sock, result;
	struct message *message;
};

static bool has_received(void *user)
{
	struct receiving *receiving = user;
	struct message *message = receiving->message;

	receiving->result = frame_receive(
		receiving->sock, message->bytes, sizeof message->bytes, &message->length, NULL, 0, NULL);
	return receiving->result != -EAGAIN;
}

bool harness_receive(int sock, struct message *ret_message)
{
	struct receiving receiving = {.sock = sock, .message = ret_message};

	harness_run_until(has_received, &receiving);
	assert_true(receiving.result == FRAME_OK || receiving.result == FRAME_EOF);
	return receiving.result == FRAME_OK;
}

void harness_expect_end(int sock)
{
	static struct message message;

	assert_false(harness_receive(sock, &message));
}

int harness_greet(void)
{
	static struct message message;
	int sock = harness_connect();

	harness_send(sock, harness_make_hello(&message));
	assert_true(harness_receive(sock, &message));
	harness_expect_ok(&message, HPZ_OP_HELLO, 1);
	return sock;
}
