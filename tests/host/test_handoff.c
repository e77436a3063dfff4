/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * test_handoff.c - memory goes out and comes back, on real huge pages and with real workers: everything of
 * hpzd but its main() and its socket. Who holds what is given is another process, which reads all of it.
 */
#include "huge.h"
#include "ask.h"
#include "request.h"

#include <poll.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#define PAGES   16 /* four segments of 4 pages are the stock */
#define SEGMENT ((uint64_t)4)
#define SECONDS 30
#define BOOT_ID "01234567-89ab-cdef-0123-456789abcdef"
#define SESSION ((struct session *)16)

static char run_dir[TEMP_PATH];
static uv_loop_t loop;
static struct list stores;
static struct crew *crew;
static struct prover *prover;
static struct config settings;
static struct books books;
static struct lease_table leases;
static struct handoff *handoff;
static struct journal *journal;
static struct reconcile reconcile;
static struct requests requests;
static struct pool *pool;
static uint64_t last_ended;

/* ---- hpzd ---- */

static void on_ended(uint64_t lease, void *user)
{
	last_ended = lease;
	request_lease_ended(&requests, lease);
}

static void on_changed(void *user)
{
	reconcile_mark(&reconcile);
}

static void on_serve(void *user)
{
	ask_serve(&requests);
}

static void on_settled(void *user)
{
	request_settle(&requests);
}

static void on_checked(void *user)
{
	request_checked(&requests);
}

static void on_send(struct session *session, struct request_reply *reply)
{
	desk_close_fds(reply);
}

static void on_record(enum journal_type type, const void *payload, size_t bytes, void *user)
{
	lease_read_record(&leases, type, payload, bytes);
	reconcile_read_record(&reconcile, type, payload, bytes);
	prover_read_record(prover, type, payload, bytes);
}

static void on_leased(struct pool_segment *segment, void *user)
{
	assert_int_equal(lease_adopt_segment(&leases, segment), 0);
}

static void start_hpzd(void)
{
	const struct handoff_callbacks below = {.ended = on_ended, .changed = on_changed};
	const struct reconcile_callbacks above = {on_serve, on_settled, NULL, NULL};
	const struct config_pool config = {.name = "p",
		.page_size = HUGE_PAGE,
		.pages = PAGES,
		.max_pages = PAGES,
		.stock = {{SEGMENT * HUGE_PAGE, PAGES / SEGMENT}},
		.stock_count = 1};
	char error[256];

	list_init(&stores);
	last_ended = 0;
	assert_int_equal(uv_loop_init(&loop), 0);
	assert_int_equal(crew_init(&loop, getenv("HPZ_TEST_HPZD"), &crew), 0);
	assert_int_equal(lease_init_table(&leases), 0);
	prover = prover_new(crew, on_changed, NULL);
	assert_non_null(prover);
	assert_int_equal(handoff_init(&loop, crew, prover, &leases, &below, &handoff), 0);
	reconcile_init(&reconcile, &loop, &huge.host, crew, prover, handoff, &leases, &above);
	reconcile.stores = &stores;
	books_init(&books, &loop, &reconcile, on_checked, NULL);
	request_init(
		&requests, &loop, &huge.host, &settings, crew, &leases, handoff, &reconcile, &books, on_send);
	struct segment_store *store = huge_open_store();
	list_append(&stores, &store->link);
	assert_int_equal(pool_open(&config, "f", &huge.host, store, &pool, error, sizeof error), 0);
	segment_close_store(store);
	assert_int_equal(reconcile_add_pool(&reconcile, pool), 0);
	assert_int_equal(crew_open_list(crew, run_dir), 0);
	assert_int_equal(journal_open(run_dir, BOOT_ID, on_record, NULL, NULL, &journal), 0);
	prover_set_journal(prover, journal);
	assert_int_equal(pool_adopt_leased(pool, on_leased, NULL), 0);
	assert_int_equal(lease_finish_adoption(&leases, journal), 0);
	LIST_FOR_EACH_SAFE (pos, &leases.leases)
		assert_int_equal(handoff_watch(handoff, LEASE_OF(pos), -1), 0);
	reconcile_start(&reconcile, journal);
}

static void on_handoff_closed(void *user)
{
	*(bool *)user = true;
}

static void on_crew_stopped(void *user)
{
	handoff_close(handoff, on_handoff_closed, user);
}

static void stop_hpzd(void)
{
	bool is_closed = false;

	request_deinit(&requests);
	books_stop(&books);
	reconcile_stop(&reconcile);
	prover_close(prover);
	crew_stop(crew, on_crew_stopped, &is_closed);
	assert_int_equal(uv_run(&loop, UV_RUN_DEFAULT), 0);
	assert_true(is_closed);
	assert_int_equal(uv_loop_close(&loop), 0);
	for (size_t i = 0; i < reconcile.pool_count; i++)
		pool_close(reconcile.pools[i]);
	books_deinit(&books);
	reconcile_deinit(&reconcile);
	handoff_free(handoff);
	prover_free(prover);
	lease_deinit_table(&leases);
	crew_free(crew);
	journal_close(journal);
}

/* ---- the loop ---- */

static void on_tick(uv_timer_t *timer)
{
}

static bool run_until(bool (*condition)(void *user), void *user, uint64_t ms)
{
	uint64_t until_ns = clock_get_ns(CLOCK_MONOTONIC) + ms * NS_PER_MS;
	uv_timer_t *timer = malloc(sizeof *timer);
	bool is_so;

	assert_non_null(timer);
	uv_timer_init(&loop, timer);
	uv_timer_start(timer, on_tick, 2, 2);
	while (!(is_so = condition(user)) && clock_get_ns(CLOCK_MONOTONIC) < until_ns)
		uv_run(&loop, UV_RUN_ONCE);
	uv_close((uv_handle_t *)timer, (uv_close_cb)free);
	return is_so;
}

static void wait_until(bool (*condition)(void *user), void *user, const char *what)
{
	if (!run_until(condition, user, SECONDS * 1000))
		fail_msg("not within %d s: %s", SECONDS, what);
}

static bool never(void *user)
{
	return false;
}

static bool is_full(void *user)
{
	return pool->pages[SEGMENT_CLEAN] == PAGES && pool->segments[SEGMENT_CLEAN] == PAGES / SEGMENT &&
	       pool->segments[SEGMENT_DIRTY] == 0;
}

static void wait_full(void)
{
	wait_until(is_full, NULL, "the stock is full");
}

static bool has_clean(void *user)
{
	return pool->segments[SEGMENT_CLEAN] > 0;
}

static struct lease *find(uint64_t id)
{
	return lease_find(&leases, id);
}

static bool is_gone(void *user)
{
	return !find(*(uint64_t *)user);
}

static bool is_returning(void *user)
{
	struct lease *lease = find(*(uint64_t *)user);
	return !lease || lease->state == HPZ_STATE_RETURNING;
}

static bool is_leased(void *user)
{
	struct lease *lease = find(*(uint64_t *)user);
	return lease && lease->state == HPZ_STATE_LEASED;
}

static void wait_gone(uint64_t id)
{
	wait_until(is_gone, &id, "the lease has ended");
}

/* It stays where it is, at least for now. */
static void expect_still_held(uint64_t id)
{
	assert_false(run_until(is_gone, &id, 250));
	assert_int_equal(find(id)->state, HPZ_STATE_RETURNING);
}

static int setup(void **state)
{
	temp_make(run_dir);
	start_hpzd();
	wait_full();
	return 0;
}

static void empty_store(void);

static int teardown(void **state)
{
	LIST_FOR_EACH_SAFE (pos, &leases.leases)
		handoff_return(handoff, LEASE_OF(pos), "the test is over");
	while (leases.count > 0)
		wait_gone(LEASE_OF(leases.leases.next)->id);
	wait_full();
	stop_hpzd();
	assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
	empty_store();
	temp_remove(run_dir);
	return 0;
}

/* What hpzd keeps for its next start, this test does not. */
static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *where)
{
	return where->level > 0 ? remove(path) : 0;
}

static void empty_store(void)
{
	assert_int_equal(nftw(huge.dir, remove_entry, 16, FTW_DEPTH | FTW_PHYS), 0);
}

/* ---- requests ---- */

static struct {
	uint64_t id;
	int fd; /* ours; -1: a path */
	char path[HPZ_WIRE_PATH + 1];
} got;

static int ask(const struct request_peer *peer, uint16_t op, const void *payload, size_t size)
{
	_Alignas(8) unsigned char message[HPZ_WIRE_MAX_REQUEST];
	size_t length = proto_set_head(message, op, 7, false, 0, 0, size);

	assert_true(length <= sizeof message);
	memcpy(message + sizeof(struct hpz_wire_head), payload, size);
	enum request_outcome outcome = request_handle(&requests, SESSION, peer, message, length, 0);
	if (outcome != REQUEST_REPLIED)
		return -(int)outcome;
	return (int)((struct hpz_wire_head *)requests.reply.bytes)->error;
}

static struct request_peer get_peer(void)
{
	struct request_peer peer = {.uid = 0, .pid = getpid(), .pidfd = handoff_open_process(getpid(), 0)};
	host_get_start_time(&huge.host, peer.pid, &peer.pid_start);
	assert_true(peer.pidfd >= 0);
	return peer;
}

static struct hpz_wire_lease make_request(uint32_t deliver, uint64_t pages)
{
	return (struct hpz_wire_lease){.size = sizeof(struct hpz_wire_lease),
		.bytes = pages * HUGE_PAGE,
		.node = -1,
		.deliver = deliver,
		.owner_uid = -1,
		.owner_gid = -1};
}

static void lease(const struct hpz_wire_lease *request)
{
	wait_until(has_clean, NULL, "something is clean");
	struct request_peer peer = get_peer();
	int error = ask(&peer, HPZ_OP_LEASE, request, sizeof *request);
	const struct hpz_wire_leased *leased =
		(const void *)(requests.reply.bytes + sizeof(struct hpz_wire_head));
	const struct hpz_wire_segment *segment = (const void *)(leased + 1);

	if (error)
		fail_msg("lease: %d: %s", error,
			((const struct hpz_wire_error *)(requests.reply.bytes + sizeof(struct hpz_wire_head)))
				->text);
	close(peer.pidfd);
	got.id = leased->id;
	assert_int_equal(leased->given, request->bytes);
	proto_get_text(segment->path, sizeof segment->path, got.path);
	got.fd = -1;
	if (request->deliver == HPZ_DELIVER_FD) {
		assert_int_equal(requests.reply.fd_count, 1);
		got.fd = requests.reply.fds[0];
		requests.reply.fd_count = 0;
	}
}

static void ack(void)
{
	const struct hpz_wire_ack confirmed = {sizeof confirmed, 0, got.id};
	const struct request_peer peer = {.pidfd = -1};

	assert_int_equal(ask(&peer, HPZ_OP_ACK, &confirmed, sizeof confirmed), -REQUEST_NO_REPLY);
	assert_int_equal(find(got.id)->state, HPZ_STATE_LEASED);
}

static void release(uint64_t id)
{
	const struct hpz_wire_release request = {.size = sizeof request, .id = id};
	const struct request_peer peer = {.pidfd = -1};

	assert_int_equal(ask(&peer, HPZ_OP_RELEASE, &request, sizeof request), 0);
}

/* ---- holders: processes that have it, read it and write it ---- */

enum how { HOLD_FD, HOLD_MAPPING, HOLD_LEASE };

/* Takes over got.fd (or opens got.path); must find zeros everywhere, and leaves a pattern. */
static pid_t start_holder(enum how how, uid_t uid, uint64_t pages)
{
	int ready[2];
	char byte = 1;

	assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
	pid_t pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (uid && (setgid(uid) < 0 || setuid(uid) < 0))
			_exit(1);
		/* Only this one descriptor: whatever else was inherited of hpzd's would be one of ours. */
		int fd = got.fd >= 0 ? dup2(got.fd, 1000) : dup2(open(got.path, O_RDWR), 1000);
		for (int i = 3; i < 1000; i++) {
			if (i != ready[1])
				close(i);
		}
		unsigned char *start =
			mmap(NULL, pages * HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		if (start == MAP_FAILED || !zero_is_clear(start, pages * HUGE_PAGE, NULL))
			byte = 0;
		else
			memset(start, 0xa5, pages * HUGE_PAGE);
		if (how != HOLD_MAPPING)
			munmap(start, pages * HUGE_PAGE);
		else
			close(fd);
		signal(SIGIO, SIG_IGN);
		if (how == HOLD_LEASE && fcntl(fd, F_SETLEASE, F_WRLCK) < 0)
			byte = 2;
		if (write(ready[1], &byte, 1) == 1)
			pause();
		_exit(1);
	}
	close(ready[1]);
	got.fd = close_fd(got.fd);
	assert_int_equal(read(ready[0], &byte, 1), 1);
	close(ready[0]);
	assert_int_equal(byte, 1); /* 0: not zero */
	return pid;
}

static void end_holder(pid_t pid)
{
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
}

/* Whoever leases next, four times over so that every segment had its turn, reads zeros. */
static void expect_all_zero(void)
{
	uint64_t ids[PAGES / SEGMENT];

	wait_full();
	for (size_t i = 0; i < ARRAY_SIZE(ids); i++) {
		struct hpz_wire_lease request = make_request(HPZ_DELIVER_FD, SEGMENT);
		lease(&request);
		ids[i] = got.id;
		end_holder(start_holder(HOLD_FD, 0, SEGMENT));
	}
	for (size_t i = 0; i < ARRAY_SIZE(ids); i++) {
		release(ids[i]);
		wait_gone(ids[i]);
	}
}

/* ---- by descriptor ---- */

static void test_fd(void **state)
{
	struct hpz_wire_lease request = make_request(HPZ_DELIVER_FD, SEGMENT);
	struct stat st;

	lease(&request);
	assert_int_equal(fstat(got.fd, &st), 0);
	assert_true(st.st_uid == 0 && st.st_mode == S_IFREG && st.st_nlink == 1);
	assert_int_equal(fcntl(got.fd, F_GETFD), FD_CLOEXEC);
	assert_int_equal(fcntl(got.fd, F_GETFL) & O_NONBLOCK, 0);
	assert_int_equal(find(got.id)->state, HPZ_STATE_OFFERED);
	assert_int_equal(pool->segments[SEGMENT_LEASED], 1);
	ack();
	uint64_t id = got.id;
	pid_t holder = start_holder(HOLD_FD, 65534, SEGMENT);
	end_holder(holder);
	assert_true(is_leased(&id));
	release(id);
	wait_gone(id);
	assert_int_equal(last_ended, id);
	expect_all_zero();
}

static void test_fd_reopenable(void **state)
{
	struct hpz_wire_lease request = make_request(HPZ_DELIVER_FD, SEGMENT);
	struct stat st;
	char path[64];

	request.flags = HPZ_LEASE_REOPENABLE;
	lease(&request);
	assert_int_equal(fstat(got.fd, &st), 0);
	assert_true(st.st_uid == 0 && st.st_mode == (S_IFREG | 0600));
	snprintf(path, sizeof path, "/proc/self/fd/%d", got.fd);
	int again = open(path, O_RDWR | O_CLOEXEC);
	assert_true(again >= 0);
	close(got.fd);
	release(got.id);
	expect_still_held(got.id);
	close(again);
	wait_gone(got.id);
	expect_all_zero();
}

/* Held in every way there is when it is released: not reused before it is let go. */
static void expect_return_waits(enum how how, uint32_t deliver)
{
	struct hpz_wire_lease request = make_request(deliver, SEGMENT);

	request.owner_uid = deliver == HPZ_DELIVER_PATH ? 65534 : -1;
	lease(&request);
	uint64_t id = got.id;
	struct pool_segment *segment = find(id)->segments[0];
	pid_t holder = start_holder(how, deliver == HPZ_DELIVER_PATH ? 65534 : 0, SEGMENT);
	release(id);
	expect_still_held(id);
	assert_int_equal(segment->state, SEGMENT_LEASED);
	if (deliver == HPZ_DELIVER_PATH && how != HOLD_LEASE)
		assert_int_equal(access(got.path, F_OK), -1); /* the shields are up */
	end_holder(holder);
	wait_gone(id);
	expect_all_zero();
}

static void test_held_by_fd(void **state)
{
	expect_return_waits(HOLD_FD, HPZ_DELIVER_FD);
}

static void test_held_by_mapping(void **state)
{
	expect_return_waits(HOLD_MAPPING, HPZ_DELIVER_FD);
}

/* A lease of the holder's own on the file must not stop anything but itself. */
static void test_held_by_lease(void **state)
{
	expect_return_waits(HOLD_LEASE, HPZ_DELIVER_PATH);
}

static void test_held_path_by_fd(void **state)
{
	expect_return_waits(HOLD_FD, HPZ_DELIVER_PATH);
}

static void test_held_path_by_mapping(void **state)
{
	expect_return_waits(HOLD_MAPPING, HPZ_DELIVER_PATH);
}

/* Long enough to be named. */
static bool has_holders(void *user)
{
	return find(*(uint64_t *)user)->holder_count > 0;
}

static void test_holders_are_named(void **state)
{
	struct hpz_wire_lease request = make_request(HPZ_DELIVER_FD, SEGMENT);

	lease(&request);
	uint64_t id = got.id;
	pid_t holder = start_holder(HOLD_MAPPING, 0, SEGMENT);
	release(id);
	wait_until(has_holders, &id, "the holder is named");
	const struct lease *held = find(id);
	assert_int_equal(held->holder_count, 1);
	assert_int_equal(held->holders[0].pid, holder);
	assert_int_equal(held->holders[0].fd, -1);
	end_holder(holder);
	wait_gone(id);
}

/* The end of its owner ends a lease, the end of its session too; neither reuses what somebody holds. */
static void test_owner_dies(void **state)
{
	struct hpz_wire_lease request = make_request(HPZ_DELIVER_FD, SEGMENT);
	pid_t owner = fork();

	if (owner == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			pause();
	}
	request.owner_pid = owner;
	request.flags = HPZ_LEASE_UNBOUND;
	lease(&request);
	uint64_t id = got.id;
	pid_t holder = start_holder(HOLD_FD, 0, SEGMENT);
	end_holder(owner);
	wait_until(is_returning, &id, "the death of the owner is noticed");
	expect_still_held(id);
	end_holder(holder);
	wait_gone(id);
	request = make_request(HPZ_DELIVER_FD, SEGMENT);
	lease(&request);
	id = got.id;
	request_cancel_session(&requests, (struct session *)32);
	assert_false(is_returning(&id));
	request_cancel_session(&requests, SESSION);
	assert_true(is_returning(&id));
	close(got.fd);
	wait_gone(id);
	expect_all_zero();
}

/* The reply never arrived. */
static void test_take_back(void **state)
{
	struct hpz_wire_lease request = make_request(HPZ_DELIVER_FD, SEGMENT);

	lease(&request);
	close(got.fd);
	request_take_back(&requests, got.id);
	wait_gone(got.id);
	/* One that has arrived is not taken. */
	lease(&request);
	ack();
	request_take_back(&requests, got.id);
	request_take_back(&requests, 1);
	assert_false(is_returning(&got.id));
	close(got.fd);
}

/* What a holder does to its file: holes, cut, grown, and a name of its own. */
static void test_changed_by_holder(void **state)
{
	struct hpz_wire_lease request = make_request(HPZ_DELIVER_FD, SEGMENT);
	uint64_t ids[3];

	for (size_t i = 0; i < 3; i++) {
		lease(&request);
		ids[i] = got.id;
		if (i == 0)
			assert_int_equal(fallocate(got.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
						 HUGE_PAGE, 2 * HUGE_PAGE),
				0);
		else if (i == 1)
			assert_int_equal(ftruncate(got.fd, HUGE_PAGE), 0);
		else
			assert_int_equal(fallocate(got.fd, 0, 0, 6 * HUGE_PAGE), 0);
		close(got.fd);
	}
	for (size_t i = 0; i < 3; i++) {
		release(ids[i]);
		wait_gone(ids[i]);
	}
	expect_all_zero();
}

static void test_own_name(void **state)
{
	struct hpz_wire_lease request = make_request(HPZ_DELIVER_PATH, SEGMENT);
	char own[PATH_MAX];

	lease(&request);
	temp_path(huge.dir, "own", own);
	assert_int_equal(link(got.path, own), 0);
	release(got.id);
	expect_still_held(got.id);
	assert_int_equal(unlink(own), 0);
	wait_gone(got.id);
	expect_all_zero();
}

static void test_vanished(void **state)
{
	struct hpz_wire_lease request = make_request(HPZ_DELIVER_FD, SEGMENT);
	char name[SEGMENT_NAME_MAX];

	lease(&request);
	close(got.fd);
	pool_get_segment_name(find(got.id)->segments[0], name);
	assert_int_equal(segment_unlink(&pool->dirs, SEGMENT_LEASED, name), 0);
	release(got.id);
	wait_gone(got.id);
	/* And of what was to be cleared or was clean. */
	pool_get_segment_name(pool_find_clean(pool, SEGMENT), name);
	assert_int_equal(segment_unlink(&pool->dirs, SEGMENT_CLEAN, name), 0);
	lease(&request);
	close(got.fd);
	release(got.id);
	wait_gone(got.id);
	expect_all_zero();
}

/* ---- tails ---- */

static bool is_trimmed(void *user)
{
	return !find(*(uint64_t *)user)->segments[0]->is_busy;
}

static void test_tail(void **state)
{
	struct hpz_wire_lease request = make_request(HPZ_DELIVER_FD, 1);
	uint64_t before = huge_count_free();

	lease(&request);
	uint64_t id = got.id;
	wait_until(is_trimmed, &id, "the tail is punched");
	assert_int_equal(huge_count_free(), before + SEGMENT - 1);
	struct stat st;
	assert_int_equal(fstat(got.fd, &st), 0);
	assert_int_equal(st.st_size, SEGMENT * HUGE_PAGE); /* as long as before */
	/* Nothing of that is owed to the holder. */
	uint64_t holes, grown;
	pool_count_holders(pool, &holes, &grown);
	assert_true(holes == 0 && grown == 0);
	end_holder(start_holder(HOLD_FD, 0, 1));
	release(id);
	wait_gone(id);
	expect_all_zero();
}

/* Released while its tail is being punched. */
static void test_tail_and_release(void **state)
{
	struct hpz_wire_lease request = make_request(HPZ_DELIVER_FD, 1);

	for (int i = 0; i < 5; i++) {
		lease(&request);
		close(got.fd);
		release(got.id);
		wait_gone(got.id);
	}
	expect_all_zero();
}

/* ---- by path ---- */

static bool was_opened(void *user)
{
	return find(*(uint64_t *)user)->was_opened;
}

static void test_path(void **state)
{
	struct hpz_wire_lease request = make_request(HPZ_DELIVER_PATH, SEGMENT);
	struct stat st;
	char parent[PATH_MAX];

	request.owner_uid = 65534;
	request.owner_gid = 65533;
	request.mode = 0640;
	lease(&request);
	uint64_t id = got.id;
	assert_int_equal(lstat(got.path, &st), 0);
	assert_true(st.st_uid == 65534 && st.st_gid == 65533 && st.st_mode == (S_IFREG | 0640));
	assert_int_equal(st.st_nlink, 2);
	assert_int_equal(find(id)->pid, 0); /* nobody's death ends it */
	assert_false(is_returning(&id));
	ack();
	request_cancel_session(&requests, SESSION);
	assert_false(is_returning(&id));
	pid_t holder = start_holder(HOLD_FD, 65534, SEGMENT);
	wait_until(was_opened, &id, "it was seen to be opened");
	assert_true(find(id)->was_opened);
	end_holder(holder);
	snprintf(parent, sizeof parent, "%s", got.path);
	*strrchr(parent, '/') = '\0';
	release(id);
	wait_gone(id);
	assert_int_equal(access(parent, F_OK), -1);
	expect_all_zero();
}

/* Until its asker says that it arrived, it ends with the connection: nobody else may know of it. */
static void test_path_that_never_arrived(void **state)
{
	struct hpz_wire_lease request = make_request(HPZ_DELIVER_PATH, SEGMENT);

	lease(&request);
	uint64_t id = got.id;
	assert_int_equal(find(id)->state, HPZ_STATE_OFFERED);
	request_cancel_session(&requests, (struct session *)32);
	assert_false(is_returning(&id));
	request_cancel_session(&requests, SESSION);
	assert_true(is_returning(&id));
	wait_gone(id);
	assert_int_equal(access(got.path, F_OK), -1);
	expect_all_zero();
}

/* Our own opens are nobody's: with its tail given back a lease that nobody opened stays. */
static void test_path_with_tail_is_not_opened(void **state)
{
	struct hpz_wire_lease request = make_request(HPZ_DELIVER_PATH, 1);

	lease(&request);
	uint64_t id = got.id;
	wait_until(is_trimmed, &id, "the tail is punched");
	assert_false(run_until(was_opened, &id, 300));
	assert_int_equal(find(id)->state, HPZ_STATE_OFFERED);
	/* But whoever opens it is seen afterwards. */
	int fd = open(got.path, O_RDWR | O_CLOEXEC);
	wait_until(was_opened, &id, "it was seen to be opened");
	close(fd);
	release(id);
	wait_gone(id);
}

static void test_path_is_never_opened(void **state)
{
	struct hpz_wire_lease request = make_request(HPZ_DELIVER_PATH, SEGMENT);

	request.open_timeout_ms = 100;
	lease(&request);
	uint64_t id = got.id;
	assert_false(is_returning(&id));
	wait_gone(id);
	/* Opened in time, it stays beyond it. */
	lease(&request);
	id = got.id;
	int fd = open(got.path, O_RDWR | O_CLOEXEC);
	assert_false(run_until(is_returning, &id, 300));
	close(fd);
	release(id);
	wait_gone(id);
}

/* ---- hpzd dies in between ---- */

static void restart(void)
{
	stop_hpzd();
	start_hpzd();
}

static void test_restart_while_held(void **state)
{
	struct hpz_wire_lease request = make_request(HPZ_DELIVER_PATH, SEGMENT);

	request.owner_uid = 65534;
	memcpy(request.label, "vm", 2);
	lease(&request);
	uint64_t id = got.id;
	pid_t holder = start_holder(HOLD_MAPPING, 65534, SEGMENT);
	wait_until(is_leased, &id, "it was seen to be opened");
	restart();
	const struct lease *back = find(id);
	assert_non_null(back);
	assert_string_equal(back->label, "vm");
	assert_true(back->was_opened && back->state == HPZ_STATE_LEASED);
	assert_false(run_until(is_returning, &id, 200));
	release(id);
	expect_still_held(id);
	restart(); /* while returning */
	assert_int_equal(find(id)->state, HPZ_STATE_RETURNING);
	expect_still_held(id);
	end_holder(holder);
	wait_gone(id);
	expect_all_zero();
}

/* Opened while nobody watched: mmap leaves its mark. */
static void test_opened_during_restart(void **state)
{
	struct hpz_wire_lease request = make_request(HPZ_DELIVER_PATH, SEGMENT);

	request.owner_uid = 65534;
	lease(&request);
	uint64_t id = got.id;
	usleep(20000); /* beyond a tick of the coarse clock */
	stop_hpzd();
	pid_t holder = start_holder(HOLD_MAPPING, 65534, SEGMENT);
	start_hpzd();
	assert_true(find(id)->was_opened);
	assert_int_equal(find(id)->state, HPZ_STATE_LEASED);
	end_holder(holder);
	release(id);
	wait_gone(id);
	expect_all_zero();
}

/* Its owner died while nobody looked. */
static void test_owner_dies_during_restart(void **state)
{
	struct hpz_wire_lease request = make_request(HPZ_DELIVER_FD, SEGMENT);
	pid_t owner = fork();

	if (owner == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			pause();
	}
	request.owner_pid = owner;
	request.flags = HPZ_LEASE_UNBOUND;
	lease(&request);
	ack();
	uint64_t id = got.id;
	stop_hpzd();
	end_holder(owner);
	close(got.fd);
	start_hpzd();
	wait_gone(id);
	expect_all_zero();
}

/* An offer that reached nobody, and one that did: only its being held can tell after a restart. */
static void test_offer_during_restart(void **state)
{
	struct hpz_wire_lease request = make_request(HPZ_DELIVER_FD, SEGMENT);

	lease(&request);
	uint64_t id = got.id;
	pid_t holder = start_holder(HOLD_FD, 0, SEGMENT);
	restart();
	assert_int_equal(find(id)->state, HPZ_STATE_OFFERED);
	wait_until(is_leased, &id, "it is held, so it arrived");
	end_holder(holder);
	release(id);
	wait_gone(id);
	expect_all_zero();
}

/* The journal is lost: nobody knows whose it is; what is known is that it is held. */
static void test_lost_journal(void **state)
{
	struct hpz_wire_lease request = make_request(HPZ_DELIVER_FD, SEGMENT);
	char path[PATH_MAX];

	lease(&request);
	uint64_t id = got.id;
	pid_t holder = start_holder(HOLD_FD, 0, SEGMENT);
	stop_hpzd();
	temp_path(run_dir, "journal", path);
	assert_int_equal(unlink(path), 0);
	start_hpzd();
	assert_string_equal(find(id)->label, "?");
	assert_false(run_until(is_returning, &id, 300));
	end_holder(holder);
	release(id); /* or it ends by itself, after two looks 10 s apart */
	wait_gone(id);
	expect_all_zero();
}

/* hpzd stops while memory is being cleared: what is not clean does not become it. */
static void test_stop_while_clearing(void **state)
{
	for (unsigned i = 0; i < 6; i++) {
		struct hpz_wire_lease request = make_request(HPZ_DELIVER_FD, SEGMENT);
		lease(&request);
		uint64_t id = got.id;
		end_holder(start_holder(HOLD_FD, 0, SEGMENT));
		release(id);
		run_until(never, NULL, i);
		restart();
	}
	while (leases.count > 0)
		wait_gone(LEASE_OF(leases.leases.next)->id);
	expect_all_zero();
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_fd),
		TEST(test_fd_reopenable),
		TEST(test_held_by_fd),
		TEST(test_held_by_mapping),
		TEST(test_held_by_lease),
		TEST(test_held_path_by_fd),
		TEST(test_held_path_by_mapping),
		TEST(test_holders_are_named),
		TEST(test_owner_dies),
		TEST(test_take_back),
		TEST(test_changed_by_holder),
		TEST(test_own_name),
		TEST(test_vanished),
		TEST(test_tail),
		TEST(test_tail_and_release),
		TEST(test_path),
		TEST(test_path_that_never_arrived),
		TEST(test_path_with_tail_is_not_opened),
		TEST(test_path_is_never_opened),
		TEST(test_restart_while_held),
		TEST(test_opened_during_restart),
		TEST(test_owner_dies_during_restart),
		TEST(test_offer_during_restart),
		TEST(test_lost_journal),
		TEST(test_stop_while_clearing),
	};
	/* A leftover and more: what is held while the stock is filled again is beside it. */
	huge_open(PAGES + 3 * SEGMENT, PAGES + 3 * SEGMENT);
	signal(SIGIO, SIG_IGN);
	return cmocka_run_group_tests_name("handoff", tests, NULL, NULL);
}
