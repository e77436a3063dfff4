/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* daemon.c - puts hpzd together: start, reload, stop. */
#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/vfs.h>

#include "ask.h"
#include "daemon.h"
#include "news.h"
#include "listener.h"
#include "log.h"
#include "metrics.h"
#include "notify.h"
#include "paravirt.h"
#include "size.h"

#define STATUS_MS 1000 /* while a fill goes on */

static const int signals_heard[] = {SIGTERM, SIGINT, SIGHUP};

struct daemon {
	uv_loop_t loop;
	struct config config;
	char *config_path;
	struct host host;
	struct list stores;
	struct crew *crew;
	struct prover *prover;
	struct lease_table leases;
	struct handoff *handoff;
	struct teardown teardown;
	struct paravirt paravirt; /* its reader's until `regime` is over */
	struct teardown_fact facts[PARAVIRT_FACTS_MAX];
	uv_work_t regime;
	struct journal *journal;
	struct reconcile reconcile;
	struct books books;
	struct requests requests;
	struct listener *listener;
	uv_signal_t signals[ARRAY_SIZE(signals_heard)];
	uv_timer_t watchdog, status;
	int lock_fd;
	bool is_stopping;
	char error[1024];
};

/* ---- the configuration ---- */

/* What config.c, which knows no other room, cannot judge. */
static int check_method(const char *method, char *ret_why, size_t capacity)
{
	if (strcmp(method, "auto") == 0 || zero_find_method(method))
		return 0;
	size_t used =
		(size_t)snprintf(ret_why, capacity, "method = %s: there is no such method; use auto", method);
	for (size_t i = 0; i < zero_method_count && used < capacity; i++)
		used += (size_t)snprintf(ret_why + used, capacity - used, ", %s", zero_methods[i].name);
	return -EINVAL;
}

static int read_config(const char *path, struct config *ret_config, char *ret_error, size_t capacity)
{
	int r = config_read(path, false, ret_config, ret_error, capacity);
	if (r < 0)
		return r;
	char why[512];
	r = check_method(ret_config->clear.method, why, sizeof why);
	if (r < 0)
		snprintf(ret_error, capacity, "%s:%u: %s", path, ret_config->method_line, why);
	return r;
}

/* ---- what ends cost ---- */

static void on_mended(const struct pool_segment *segment, bool is_clean, void *user)
{
	teardown_set_mended(user, segment, is_clean, clock_get_ns(CLOCK_MONOTONIC));
}

static void on_returning(const struct lease *lease, void *user)
{
	struct daemon *daemon = user;
	teardown_begin(&daemon->teardown, lease, clock_get_ns(CLOCK_MONOTONIC));
}

static void count_back(const struct pool_segment *segment, enum handoff_back how)
{
	static const unsigned places[] = {[HANDOFF_BACK_PROVEN] = METRICS_POOL,
		[HANDOFF_BACK_KERNEL] = METRICS_KERNEL,
		[HANDOFF_BACK_ORPHAN] = METRICS_ORPHAN};
	metrics_add(METRICS_RETURNED_BYTES, places[how], segment->given * segment->pool->config.page_size);
}

static void on_back(
	const struct lease *lease, const struct pool_segment *segment, enum handoff_back how, void *user)
{
	struct daemon *daemon = user;
	count_back(segment, how);
	teardown_add_back(&daemon->teardown, lease, segment, how);
}

static void on_over(const struct lease *lease, bool lives_on, void *user)
{
	struct daemon *daemon = user;
	metrics_add(METRICS_LEASES_ENDED, METRICS_NO_LABEL, 1);
	teardown_set_over(&daemon->teardown, lease, lives_on, clock_get_ns(CLOCK_MONOTONIC));
}

static void on_exit_seen(uint64_t id, const struct lease *lease, const struct exits_seen *seen, void *user)
{
	struct daemon *daemon = user;
	teardown_add_exit(&daemon->teardown, id, lease, seen);
}

/* In a thread: it reads files that others may keep from us, and 20 ms of the kernel's types. */
static void read_regime(uv_work_t *work)
{
	struct daemon *daemon = work->data;
	paravirt_read("", paravirt_run_cpuid, &daemon->paravirt);
}

static void on_regime(uv_work_t *work, int status)
{
	struct daemon *daemon = work->data;
	const struct paravirt *paravirt = &daemon->paravirt;
	if (status < 0)
		return;
	for (size_t i = 0; i < paravirt->fact_count; i++)
		daemon->facts[i] = (struct teardown_fact){
			paravirt->facts[i].name, paravirt->facts[i].value, paravirt->facts[i].where};
	teardown_set_regime(
		&daemon->teardown, paravirt_get_name(paravirt), daemon->facts, paravirt->fact_count);
}

static void find_regime(struct daemon *daemon)
{
	daemon->regime.data = daemon;
	int r = uv_queue_work(&daemon->loop, &daemon->regime, read_regime, on_regime);
	if (r < 0)
		log_warning("under which regime VMs end cannot be found out: %s", uv_strerror(r));
}

/* ---- mounts and pools ---- */

static bool is_hugetlbfs(const char *path, uint64_t page_size)
{
	struct statfs fs;
	return statfs(path, &fs) == 0 && fs.f_type == HUGETLBFS_MAGIC && (uint64_t)fs.f_bsize == page_size;
}

/* In a mount namespace of its own hpzd's mounts would be invisible to every VM. */
static bool is_own_mount_namespace(void)
{
	char own[64] = "", init[64] = "";
	if (readlink("/proc/self/ns/mnt", own, sizeof own - 1) < 0 ||
		readlink("/proc/1/ns/mnt", init, sizeof init - 1) < 0)
		return false;
	return strcmp(own, init) != 0;
}

static int make_dir(const char *path, mode_t mode)
{
	if (mkdir(path, mode) < 0 && errno != EEXIST)
		return -errno;
	return chmod(path, mode) < 0 ? -errno : 0;
}

/* Where a pool's files are, mounted or not yet. */
static int get_mount(struct daemon *daemon, const struct config_pool *pool, char *ret_path, size_t capacity)
{
	int length = strcmp(pool->mount, "auto") == 0
			     ? snprintf(ret_path, capacity, "%s/mnt/%s", daemon->config.run_dir, pool->name)
			     : snprintf(ret_path, capacity, "%s", pool->mount);
	if ((size_t)length < capacity)
		return 0;
	snprintf(daemon->error, sizeof daemon->error, "%s:%u: pool %s: run_dir is too long for its mount",
		daemon->config.path, pool->line, pool->name);
	return -ENAMETOOLONG;
}

static unsigned get_mount_line(const struct config_pool *pool)
{
	return pool->mount_line ? pool->mount_line : pool->line;
}

static int mount_auto(struct daemon *daemon, const struct config_pool *pool, const char *path)
{
	char parent[192], options[96];
	snprintf(parent, sizeof parent, "%s/mnt", daemon->config.run_dir);
	if (is_hugetlbfs(path, pool->page_size))
		return 0; /* an earlier hpzd's: its leases live there */
	if (is_own_mount_namespace()) {
		snprintf(daemon->error, sizeof daemon->error,
			"%s:%u: pool %s: mount = auto is not possible in a mount namespace of its own: VMs "
			"would not "
			"see it; make a mount unit and name it here",
			daemon->config.path, get_mount_line(pool), pool->name);
		return -EINVAL;
	}
	int r = make_dir(parent, 0711);
	if (r == 0)
		r = make_dir(path, 0711);
	snprintf(options, sizeof options, "pagesize=%" PRIu64 ",size=%" PRIu64 ",mode=0711", pool->page_size,
		pool->max_pages * pool->page_size);
	if (r == 0 && mount("hpz", path, "hugetlbfs", MS_NOSUID | MS_NODEV, options) < 0)
		r = -errno;
	if (r < 0)
		snprintf(daemon->error, sizeof daemon->error,
			"%s:%u: pool %s: cannot mount hugetlbfs on %s: %s", daemon->config.path, pool->line,
			pool->name, path, strerror(-r));
	return r;
}

static struct segment_store *find_store(struct daemon *daemon, const char *path)
{
	LIST_FOR_EACH (pos, &daemon->stores) {
		struct segment_store *store = CONTAINER_OF(pos, struct segment_store, link);
		if (strcmp(store->path, path) == 0)
			return store;
	}
	return NULL;
}

/* The store of a pool's mount; the reference is the caller's. */
static int open_store(struct daemon *daemon, const struct config_pool *pool, struct segment_store **ret_store)
{
	char path[192];
	int r = get_mount(daemon, pool, path, sizeof path);
	if (r == 0 && strcmp(pool->mount, "auto") == 0)
		r = mount_auto(daemon, pool, path);
	if (r < 0)
		return r;
	struct segment_store *store = find_store(daemon, path);
	if (store) {
		store->references++;
		*ret_store = store;
		return 0;
	}
	const char *why = "";
	/* By a reload the loop would wait. */
	r = segment_open_store(path, pool->page_size, daemon->journal ? 0 : LOCK_WAIT_MS, &store, &why);
	if (r < 0) {
		snprintf(daemon->error, sizeof daemon->error, "%s:%u: pool %s: mount %s %s (%s)",
			daemon->config.path, get_mount_line(pool), pool->name, path, why, strerror(-r));
		return r;
	}
	list_append(&daemon->stores, &store->link);
	*ret_store = store;
	return 0;
}

static int add_pool(struct daemon *daemon, const struct config_pool *config, struct pool **ret_pool)
{
	struct segment_store *store;
	struct pool *pool;
	int r = open_store(daemon, config, &store);
	if (r < 0)
		return r;
	r = pool_open(config, daemon->config.path, &daemon->host, store, &pool, daemon->error,
		sizeof daemon->error);
	segment_close_store(store); /* the pool has its own reference */
	if (r < 0)
		return r;
	pool->mended = on_mended;
	pool->mended_user = &daemon->teardown;
	*ret_pool = pool;
	return reconcile_add_pool(&daemon->reconcile, pool);
}

static struct pool *find_pool(const struct daemon *daemon, const char *name)
{
	for (size_t i = 0; i < daemon->reconcile.pool_count; i++) {
		if (strcmp(daemon->reconcile.pools[i]->name, name) == 0)
			return daemon->reconcile.pools[i];
	}
	return NULL;
}

/* ---- formats ---- */

static int refuse_journal(struct daemon *daemon, int error)
{
	if (error == -EPROTO)
		snprintf(daemon->error, sizeof daemon->error,
			"%s/journal is of a newer hpzd: this one touches nothing of it",
			daemon->config.run_dir);
	else
		snprintf(daemon->error, sizeof daemon->error, "%s/journal: %s", daemon->config.run_dir,
			strerror(-error));
	return error;
}

static int check_mount(struct daemon *daemon, const struct config_pool *pool)
{
	char path[192];
	int r = get_mount(daemon, pool, path, sizeof path);
	if (r == 0 && segment_check_format(path) == -EPROTO) {
		snprintf(daemon->error, sizeof daemon->error, "%s:%u: pool %s: mount %s %s (%s)",
			daemon->config.path, get_mount_line(pool), pool->name, path, SEGMENT_NEWER_FORMAT,
			strerror(EPROTO));
		r = -EPROTO;
	}
	return r; /* whatever else is wrong with it open_store() says */
}

/* Of everything, before the first thing is made, mounted or renamed: what a newer hpzd left stays as it is.
 */
static int check_formats(struct daemon *daemon)
{
	int r = journal_check_format(daemon->config.run_dir);
	if (r < 0)
		return refuse_journal(daemon, r);
	for (size_t i = 0; r == 0 && i < daemon->config.pool_count; i++)
		r = check_mount(daemon, &daemon->config.pools[i]);
	return r;
}

/* ---- adoption ---- */

static void on_record(enum journal_type type, const void *payload, size_t bytes, void *user)
{
	struct daemon *daemon = user;
	lease_read_record(&daemon->leases, type, payload, bytes);
	reconcile_read_record(&daemon->reconcile, type, payload, bytes);
	prover_read_record(daemon->prover, type, payload, bytes);
	orphan_read_record(handoff_get_orphans(daemon->handoff), type, payload, bytes);
	reserve_read_record(&daemon->requests.reserves, type, payload, bytes);
	teardown_read_record(&daemon->teardown, type, payload, bytes);
}

static void on_leased(struct pool_segment *segment, void *user)
{
	struct daemon *daemon = user;
	int r = lease_adopt_segment(&daemon->leases, segment);
	if (r < 0)
		log_error("segment %" PRIu64 " of lease %" PRIu64 " cannot be adopted: %s", segment->id,
			segment->lease, strerror(-r));
}

static int open_journal(struct daemon *daemon)
{
	char boot_id[37];
	uint64_t cut = 0;
	int r = host_get_boot_id(&daemon->host, boot_id);
	if (r == 0)
		r = journal_open(daemon->config.run_dir, boot_id, on_record, daemon, &cut, &daemon->journal);
	if (r < 0)
		return refuse_journal(daemon, r);
	if (cut > 0)
		log_warning("journal: %" PRIu64 " bytes of an unfinished record were dropped", cut);
	if (!journal_is_on_tmpfs(daemon->journal))
		log_warning("journal: %s is not on tmpfs: every lease waits for that file system",
			daemon->config.run_dir);
	return 0;
}

/* Those just adopted. */
static int watch_leases(struct daemon *daemon)
{
	int r = 0;
	LIST_FOR_EACH_SAFE (pos, &daemon->leases.leases) {
		if (r >= 0 && !LEASE_OF(pos)->handoff)
			r = handoff_watch(daemon->handoff, LEASE_OF(pos), -1);
	}
	return r;
}

static int adopt(struct daemon *daemon)
{
	int r = open_journal(daemon);
	for (size_t i = 0; r >= 0 && i < daemon->reconcile.pool_count; i++)
		r = pool_adopt_leased(daemon->reconcile.pools[i], on_leased, daemon);
	prover_set_journal(daemon->prover, daemon->journal);
	if (r >= 0)
		r = lease_finish_adoption(&daemon->leases, daemon->journal);
	if (r >= 0)
		orphan_finish_adoption(
			handoff_get_orphans(daemon->handoff), &daemon->leases, daemon->journal);
	if (r >= 0)
		teardown_finish_adoption(&daemon->teardown, &daemon->leases, daemon->journal);
	LIST_FOR_EACH (pos, &daemon->stores) {
		if (r >= 0)
			r = handoff_adopt_outs(
				daemon->handoff, CONTAINER_OF(pos, struct segment_store, link));
	}
	if (r < 0)
		return r;
	LIST_FOR_EACH_SAFE (pos, &daemon->leases.leases) {
		r = handoff_watch(daemon->handoff, LEASE_OF(pos), -1);
		if (r < 0)
			return r;
	}
	if (daemon->leases.count > 0)
		log_info("adopted %zu leases", daemon->leases.count);
	reserve_finish_adoption(&daemon->requests.reserves);
	return 0;
}

/* ---- status ---- */

static void on_status_timer(uv_timer_t *timer);

static void show_status(struct daemon *daemon)
{
	char text[512] = "No pool is configured";
	size_t used = 0;
	bool is_working = false;
	for (size_t i = 0; i < daemon->reconcile.pool_count && used < sizeof text; i++) {
		struct pool *pool = daemon->reconcile.pools[i];
		uint64_t target = MAX(pool->target, 1);
		is_working = is_working || pool->segments[SEGMENT_FILLING] > 0;
		used += (size_t)snprintf(text + used, sizeof text - used,
			"%s%s: %" PRIu64 " of %" PRIu64 " pages clean (%" PRIu64 " %%)%s", used ? "; " : "",
			pool->name, pool->pages[SEGMENT_CLEAN], pool->target,
			pool->pages[SEGMENT_CLEAN] * 100 / target,
			pool->segments[SEGMENT_FILLING] > 0 ? ", filling"
			: pool->segments[SEGMENT_DIRTY] > 0 ? ", clearing"
			: pool->plan.short_pages > 0        ? ", short of pages"
							    : "");
	}
	if (used < sizeof text && daemon->leases.count > 0)
		snprintf(text + used, sizeof text - used, "; %zu leases", daemon->leases.count);
	notify_status(text);
	if (is_working && !daemon->is_stopping)
		uv_timer_start(&daemon->status, on_status_timer, STATUS_MS, 0);
}

static void on_status_timer(uv_timer_t *timer)
{
	show_status(timer->data);
}

/* ---- callbacks of the rooms ---- */

static void on_lease_ended(uint64_t lease, void *user)
{
	struct daemon *daemon = user;
	request_lease_ended(&daemon->requests, lease);
}

static void on_changed(void *user)
{
	struct daemon *daemon = user;
	reconcile_mark(&daemon->reconcile);
}

/* Whoever follows events is answered before the loop waits again. */
static void on_event(void *user)
{
	struct daemon *daemon = user;
	if (request_is_followed(&daemon->requests))
		reconcile_mark(&daemon->reconcile);
}

static void on_serve(void *user)
{
	struct daemon *daemon = user;
	ask_serve(&daemon->requests);
}

static void on_settled(void *user)
{
	struct daemon *daemon = user;
	teardown_save(&daemon->teardown); /* in the journal before anybody is told */
	request_settle(&daemon->requests);
	books_look(&daemon->books);
	if (!uv_is_active((uv_handle_t *)&daemon->status))
		show_status(daemon);
}

static void on_write(struct journal *journal, void *user)
{
	struct daemon *daemon = user;
	reserve_write_all(&daemon->requests.reserves, journal);
}

static void on_checked(void *user)
{
	struct daemon *daemon = user;
	request_checked(&daemon->requests);
}

/* ---- rules of clearing ---- */

/* At start, by a reload, by `hpzctl set`: the one place where [clear] becomes what is in force. */
static void apply_clear(struct daemon *daemon, const struct config_clear *clear)
{
	daemon->config.clear = *clear;
	crew_set_rules(daemon->crew, &daemon->host, clear);
	reconcile_set_clear(&daemon->reconcile, clear);
}

static int on_set_clear(const struct config_clear *clear, char *ret_why, size_t capacity, void *user)
{
	int r = check_method(clear->method, ret_why, capacity);
	if (r == 0)
		apply_clear(user, clear);
	return r;
}

/* ---- reload ---- */

static bool has_pages(const char *name, void *user)
{
	struct pool *pool = find_pool(user, name);
	if (!pool)
		return false;
	uint64_t segments = 0;
	for (size_t i = 0; i < SEGMENT_STATE_COUNT; i++)
		segments += pool->segments[i];
	return segments > 0 || pool->is_raising || pool->waiting > 0 || pool->reserved_pages > 0 ||
	       pool->is_zeroing_free;
}

static bool is_configured(const struct config *config, const char *name)
{
	for (size_t i = 0; i < config->pool_count; i++) {
		if (strcmp(config->pools[i].name, name) == 0)
			return true;
	}
	return false;
}

static int apply_config(struct daemon *daemon, const struct config *next)
{
	for (size_t i = daemon->reconcile.pool_count; i-- > 0;) {
		struct pool *pool = daemon->reconcile.pools[i];
		if (is_configured(next, pool->name))
			continue;
		reconcile_remove_pool(&daemon->reconcile, pool);
		pool_close(pool);
	}
	for (size_t i = 0; i < next->pool_count; i++) {
		struct pool *pool = find_pool(daemon, next->pools[i].name);
		if (pool) {
			resize_set_config(&daemon->reconcile.nr, pool, &next->pools[i]);
			pool->is_draining = false;
			pool->raise_retry_ns = 0;
			continue;
		}
		int r = add_pool(daemon, &next->pools[i], &pool);
		if (r == 0)
			r = pool_adopt_leased(pool, on_leased, daemon);
		lease_adopt_misfits(&daemon->leases);
		if (r < 0)
			return r;
	}
	return watch_leases(daemon);
}

static void reload(struct daemon *daemon)
{
	static struct config next;
	notify_reloading();
	int r = read_config(daemon->config_path, &next, daemon->error, sizeof daemon->error);
	if (r == 0)
		r = config_check_reload(
			&daemon->config, &next, has_pages, daemon, daemon->error, sizeof daemon->error);
	metrics_add(METRICS_RELOADS, r < 0 ? METRICS_RELOAD_REFUSED : METRICS_APPLIED, 1);
	if (r < 0) {
		log_error("reload refused, the old configuration stays: %s", daemon->error);
	} else {
		books_restart(&daemon->books);
		r = apply_config(daemon, &next);
		daemon->config = next;
		log_set_level(next.log_level);
		handoff_set_grace(daemon->handoff, next.grace_ns);
		handoff_set_teardown(daemon->handoff, next.teardown);
		apply_clear(daemon, &next.clear);
		if (r < 0)
			log_error("reloaded, but not whole: %s", daemon->error);
		else
			log_info("reloaded %s", daemon->config_path);
	}
	reconcile_mark(&daemon->reconcile);
	notify_ready();
}

/* ---- stop ---- */

static void on_handoff_closed(void *user)
{
	/* Nothing holds the loop any more. */
}

static void on_crew_stopped(void *user)
{
	struct daemon *daemon = user;
	handoff_close(daemon->handoff, on_handoff_closed, daemon);
}

/* One without a handler would be our death, halfway through the stop. */
static void hold_signals(void)
{
	sigset_t held;
	sigemptyset(&held);
	for (size_t i = 0; i < ARRAY_SIZE(signals_heard); i++)
		sigaddset(&held, signals_heard[i]);
	sigprocmask(SIG_BLOCK, &held, NULL);
}

/* Memory and leases stay as they are: on disk, in the journal, for the next start. */
static void stop(struct daemon *daemon)
{
	if (daemon->is_stopping)
		return;
	daemon->is_stopping = true;
	log_info("stopping; memory and leases stay for the next start");
	notify_stopping();
	request_deinit(&daemon->requests);
	if (daemon->listener)
		listener_close(daemon->listener);
	books_stop(&daemon->books);
	reconcile_stop(&daemon->reconcile);
	prover_close(daemon->prover);
	crew_stop(daemon->crew, on_crew_stopped, daemon);
	hold_signals();
	for (size_t i = 0; i < ARRAY_SIZE(signals_heard); i++)
		uv_close((uv_handle_t *)&daemon->signals[i], NULL);
	uv_close((uv_handle_t *)&daemon->watchdog, NULL);
	uv_close((uv_handle_t *)&daemon->status, NULL);
}

static void on_signal(uv_signal_t *handle, int number)
{
	if (number == SIGHUP)
		reload(handle->data);
	else
		stop(handle->data);
}

static void on_watchdog(uv_timer_t *timer)
{
	notify_watchdog();
}

/* ---- start ---- */

static void start_handles(struct daemon *daemon)
{
	for (size_t i = 0; i < ARRAY_SIZE(signals_heard); i++) {
		uv_signal_init(&daemon->loop, &daemon->signals[i]);
		daemon->signals[i].data = daemon;
		uv_signal_start(&daemon->signals[i], on_signal, signals_heard[i]);
	}
	uv_timer_init(&daemon->loop, &daemon->watchdog);
	uv_timer_init(&daemon->loop, &daemon->status);
	daemon->watchdog.data = daemon->status.data = daemon;
	uint64_t interval_ms = notify_get_watchdog_ms();
	if (interval_ms > 0)
		uv_timer_start(&daemon->watchdog, on_watchdog, interval_ms, interval_ms);
}

/* One hpzd per run directory: socket, journal and automatic mounts are in it. */
static int lock_run_dir(struct daemon *daemon)
{
	char path[192];
	const char *run_dir = daemon->config.run_dir;
	if (mkdir(run_dir, 0755) < 0 && errno != EEXIST) {
		snprintf(daemon->error, sizeof daemon->error, "%s: %s", run_dir, strerror(errno));
		return -errno;
	}
	snprintf(path, sizeof path, "%s/lock", run_dir);
	daemon->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	int r = daemon->lock_fd < 0 ? -errno : lock_fd_exclusive(daemon->lock_fd, LOCK_WAIT_MS);
	if (r < 0)
		snprintf(daemon->error, sizeof daemon->error, "%s: %s", path,
			r == -EWOULDBLOCK ? "another hpzd uses this directory" : strerror(-r));
	return r == -EWOULDBLOCK ? -EBUSY : r;
}

static void prepare_process(void)
{
	struct rlimit limit;
	if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
		limit.rlim_cur = limit.rlim_max;
		setrlimit(RLIMIT_NOFILE, &limit);
	}
	prctl(PR_SET_DUMPABLE, 0);
	umask(077);
	signal(SIGPIPE, SIG_IGN);
	signal(SIGIO, SIG_IGN);   /* a broken file lease of a worker's */
	signal(SIGXFSZ, SIG_IGN); /* a limit on the journal is an error to report, not our end */
}

static int open_rooms(struct daemon *daemon, const char *program)
{
	const struct handoff_callbacks handoff = {.ended = on_lease_ended,
		.changed = on_changed,
		.returning = on_returning,
		.back = on_back,
		.over = on_over,
		.exit = on_exit_seen,
		.user = daemon};
	const struct reconcile_callbacks reconcile = {on_serve, on_settled, on_write, daemon};
	snprintf(daemon->error, sizeof daemon->error, "cannot start: out of memory or descriptors");
	int r = crew_init(&daemon->loop, program, &daemon->crew);
	if (r == 0)
		daemon->prover = prover_new(daemon->crew, on_changed, daemon);
	if (daemon->prover && daemon->host.is_simulated)
		prover_set_simulated(daemon->prover);
	if (r == 0)
		r = daemon->prover ? lease_init_table(&daemon->leases) : -ENOMEM;
	if (r == 0)
		r = teardown_init(&daemon->teardown, on_changed, daemon);
	if (r == 0)
		r = handoff_init(&daemon->loop, daemon->crew, daemon->prover, &daemon->leases, &handoff,
			&daemon->handoff);
	if (r < 0)
		return r;
	handoff_set_grace(daemon->handoff, daemon->config.grace_ns);
	reconcile_init(&daemon->reconcile, &daemon->loop, &daemon->host, daemon->crew, daemon->prover,
		daemon->handoff, &daemon->leases, &reconcile);
	daemon->reconcile.stores = &daemon->stores;
	daemon->reconcile.teardown = &daemon->teardown;
	daemon->reconcile.work.is_simulated = daemon->host.is_simulated;
	books_init(&daemon->books, &daemon->loop, &daemon->reconcile, on_checked, daemon);
	request_init(&daemon->requests, &daemon->loop, &daemon->host, &daemon->config, daemon->crew,
		&daemon->leases, daemon->handoff, &daemon->reconcile, &daemon->books, session_send);
	daemon->requests.teardown = &daemon->teardown;
	daemon->requests.set_clear = on_set_clear;
	daemon->requests.set_user = daemon;
	r = crew_open_list(daemon->crew, daemon->config.run_dir);
	if (r < 0)
		log_warning("%s/workers: %s: a later hpzd cannot hurry what we leave behind",
			daemon->config.run_dir, strerror(-r));
	return 0;
}

static int open_pools(struct daemon *daemon)
{
	for (size_t i = 0; i < daemon->config.pool_count; i++) {
		struct pool *pool;
		int r = add_pool(daemon, &daemon->config.pools[i], &pool);
		if (r < 0)
			return r;
	}
	if (daemon->config.pool_count == 0)
		log_warning("%s: no pool is configured: nothing to do but answer", daemon->config.path);
	return 0;
}

static int open_listener(struct daemon *daemon)
{
	const char *why = "";
	int passed = notify_take_socket();
	if (passed == -EINVAL) {
		snprintf(daemon->error, sizeof daemon->error,
			"systemd passed something that is not one listening SOCK_SEQPACKET socket");
		return -EINVAL;
	}
	int r = listener_open(&daemon->requests, &daemon->loop, daemon->config.socket,
		daemon->config.socket_group, daemon->config.socket_mode, passed, &daemon->listener, &why);
	if (r < 0)
		snprintf(daemon->error, sizeof daemon->error, "socket %s: %s (%s)", daemon->config.socket,
			why, strerror(-r));
	return r;
}

static int start(struct daemon *daemon)
{
	int r = open_pools(daemon);
	if (r == 0)
		r = adopt(daemon);
	if (r == 0)
		r = open_listener(daemon);
	if (r < 0)
		return r;
	apply_clear(daemon, &daemon->config.clear);
	reconcile_start(&daemon->reconcile, daemon->journal);
	return 0;
}

static void close_rooms(struct daemon *daemon)
{
	for (size_t i = 0; i < daemon->reconcile.pool_count; i++)
		pool_close(daemon->reconcile.pools[i]);
	books_deinit(&daemon->books);
	reconcile_deinit(&daemon->reconcile);
	handoff_free(daemon->handoff);
	prover_free(daemon->prover);
	lease_deinit_table(&daemon->leases);
	teardown_deinit(&daemon->teardown);
	crew_free(daemon->crew);
	if (daemon->journal)
		journal_close(daemon->journal);
}

int daemon_run(const char *config_path, const char *program, bool is_simulated)
{
	static struct daemon daemon = {.lock_fd = -1};
	list_init(&daemon.stores);
	daemon.config_path = (char *)config_path;
	prepare_process();
	news_start(NULL, NULL);
	int r = read_config(config_path, &daemon.config, daemon.error, sizeof daemon.error);
	if (r == 0) {
		log_set_level(daemon.config.log_level);
		r = host_init(&daemon.host, NULL);
		if (r < 0)
			snprintf(daemon.error, sizeof daemon.error, "cannot read the machine: %s",
				strerror(-r));
	}
	daemon.host.is_simulated = is_simulated;
	if (is_simulated) {
		segment_set_simulated();
		log_warning("SIMULATED: no memory is allocated, nothing is cleared; whoever uses a lease "
			    "takes pages "
			    "of its own or dies of SIGBUS");
	}
	if (r == 0)
		r = lock_run_dir(&daemon);
	if (r == 0)
		r = check_formats(&daemon);
	if (r < 0) {
		log_error("%s", daemon.error);
		return 1;
	}
	uv_loop_init(&daemon.loop);
	r = open_rooms(&daemon, program);
	if (r < 0) {
		log_error("%s", daemon.error);
		return 1;
	}
	news_start(on_event, &daemon);
	start_handles(&daemon);
	r = start(&daemon);
	if (r < 0) {
		log_error("%s", daemon.error);
		stop(&daemon);
	} else {
		log_info("hpzd %s serves %s", HPZ_VERSION, daemon.config.socket);
		notify_ready();
		handoff_set_teardown(daemon.handoff, daemon.config.teardown);
		find_regime(&daemon);
	}
	uv_run(&daemon.loop, UV_RUN_DEFAULT);
	uv_loop_close(&daemon.loop);
	news_stop();
	close_rooms(&daemon);
	host_deinit(&daemon.host);
	close_fd(daemon.lock_fd);
	return r < 0 ? 1 : 0;
}

int daemon_check(const char *config_path)
{
	static struct config config;
	char error[1024];
	int r = read_config(config_path, &config, error, sizeof error);
	if (r < 0) {
		fprintf(stderr, "hpzd: %s\n", error);
		return 1;
	}
	printf("%s: good, %zu pool%s\n", config_path, config.pool_count, config.pool_count == 1 ? "" : "s");
	return 0;
}
