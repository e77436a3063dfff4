/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * crew.c - starts workers and gives them jobs.
 *
 * Theory of operation
 *
 * A worker is a process (worker.h) with a socket for jobs and a control page. It has at most one job at a
 * time and owns it, with its descriptors, from the packet that carries it to the answer. So the loop never
 * shares memory that matters with a worker: what a job did is known when its answer is read, and the only
 * thing done with it then is a rename and the move of a list entry.
 *
 * Jobs wait in two queues (memory by node, helper). Memory workers are few and stay. Helpers come as they are
 * needed, up to HELPERS_MAX, because any of them can be held up by a client for as long as that client likes.
 * Whether one is shows in time only: mostly a single one does what there is to do sooner than another would
 * start, so another comes when none has answered for a while.
 * A helper over its deadline is killed; as long as it is not dead, which may last, its job is not over: the
 * file may still change under its last system call.
 *
 * A memory job has a level, and with it the scheduling class of its worker. One of a lower level never keeps
 * one of a higher waiting: it is stopped between two batches, in the class of the most urgent so that it gets
 * there, and whoever gave it gives it again. A background job (verifying what is clean) yields to all. An
 * urgent one does not even wait for a page that the kernel zeroes: it gets a worker more.
 *
 * A worker that dies costs its job: the answer is -EOWNERDEAD and the owner of the job does it again. Deaths
 * in quick succession make the next start wait.
 *
 * Every worker's pid is in RUN_DIR/workers. Only the next hpzd reads it, to lift and kill what this one left
 * behind.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include "cgroup.h"
#include "crew.h"
#include "crew_rules.h"
#include "frame.h"
#include "host.h"
#include "log.h"
#include "metrics.h"
#include "pressure_psi.h"

#define HELPERS_MAX      32
#define HELPERS_IDLE_MAX 1   /* kept for the next job */
#define HELPERS_SLOW_MS  10  /* a job takes 0.1 ms, a start 3: one a job were 32 starts for 64 releases */
#define RESTART_MS       500 /* after a death in the first second of a worker's life */
#define PSI_MS           250 /* a look at PSI; each reads one file a worker and three more */
#define LIST_LINES_MAX   256 /* written anew beyond that: helpers come and go as long as hpzd lives */

struct crew_worker {
	struct list link;
	struct crew *crew;
	enum worker_role role;
	int32_t node;
	uv_process_t process;
	uv_poll_t poll;
	uv_timer_t deadline;
	unsigned handles; /* open uv handles; freed at 0 */
	int sock;
	struct worker_control *control;
	struct pressure_rules *rules; /* its node's; NULL: a helper */
	struct {
		uint64_t at_ns, rested_ns;
		struct pressure_sched sched;
	} looked; /* when others' pressure was last measured; at_ns 0: not since its job began */
	struct crew_job *job;
	uint64_t born_ns;
	bool has_exited;
	bool was_killed; /* by us */
	enum worker_level level;
};

struct crew_node {
	struct list link;
	int32_t node;
	unsigned workers_max;
	struct list queue; /* the most urgent first */
	struct crew_rules rules;
};

struct crew {
	uv_loop_t *loop;
	char program[256];
	struct list workers;
	struct list nodes;
	struct list helper_queue;
	struct cgroup *cgroup;   /* NULL: no systemd started us */
	const struct host *host; /* NULL until the rules are set */
	struct config_clear clear;
	struct pressure_psi psi_cpu, psi_memory;
	uint64_t busy_ns, psi_at_ns; /* of all CPUs, at the last look at them */
	bool was_psi_missed;
	uv_timer_t psi_timer;  /* while memory jobs run and PSI counts */
	uv_timer_t timer;      /* the next dispatch */
	uv_timer_t slow_timer; /* while helper jobs wait for those that are under way */
	uint64_t helped_ns;    /* when a helper last got a job or answered */
	bool is_held, is_stopping, is_dispatching;
	bool is_backing_off; /* until the timer fires */
	uint64_t next_job;
	uint64_t deaths;
	unsigned worker_count;
	int list_fd;
	unsigned list_lines;
	bool is_list_ours; /* nobody of an earlier hpzd is in it */
	void (*stopped)(void *user);
	void *stopped_user;
};

static void dispatch(struct crew *crew);

static void on_timer(uv_timer_t *timer)
{
	struct crew *crew = CONTAINER_OF(timer, struct crew, timer);
	crew->is_backing_off = false;
	dispatch(crew);
}

static void back_off(struct crew *crew)
{
	crew->is_backing_off = true;
	uv_timer_start(&crew->timer, on_timer, RESTART_MS, 0);
}

/* ---- scheduling class ---- */

/* A stop or a level has changed: it may be waiting. Helpers wait for nothing. */
static void bump(struct crew_worker *worker)
{
	if (worker->rules)
		pressure_bump(worker->rules);
}

/* What the node's workers do has changed: their cgroup's weight follows. */
static void tell_cgroup(const struct crew_worker *changed)
{
	struct crew *crew = changed->crew;
	int highest = CGROUP_AT_REST;
	if (!changed->rules)
		return;
	LIST_FOR_EACH (pos, &crew->workers) {
		const struct crew_worker *worker = CONTAINER_OF(pos, struct crew_worker, link);
		if (worker->rules == changed->rules && worker->job)
			highest = MAX(highest, (int)worker->level);
	}
	cgroup_set_level(crew->cgroup, changed->node, highest);
}

static void apply_level(struct crew_worker *worker, enum worker_level level)
{
	if (worker->role != WORKER_MEMORY || worker->level == level || worker->has_exited)
		return;
	worker->level = level;
	atomic_store(&worker->control->level, (uint32_t)level);
	crew_rules_set_class(worker->process.pid, level);
	bump(worker);
	tell_cgroup(worker);
}

/* ---- pressure ---- */

/* What a worker waited for a CPU since the last look; 0 at the first. */
static uint64_t measure_wait(struct crew *crew, struct crew_worker *worker, uint64_t now_ns)
{
	struct pressure_sched sched;
	struct worker_control *control = worker->control;
	if (pressure_read_sched(crew->host, worker->process.pid, &sched) < 0)
		return 0;
	uint64_t since_ns = atomic_load(&control->resting_since_ns),
		 rested_ns = atomic_load(&control->rested_ns);
	if (since_ns > 0 && since_ns < now_ns)
		rested_ns += now_ns - since_ns;
	uint64_t wait_ns = 0;
	if (worker->looked.at_ns > 0)
		wait_ns = pressure_get_wait_ns(now_ns - worker->looked.at_ns,
			sched.ran_ns - worker->looked.sched.ran_ns,
			sched.waited_ns - worker->looked.sched.waited_ns,
			rested_ns - MIN(rested_ns, worker->looked.rested_ns));
	worker->looked.at_ns = now_ns;
	worker->looked.rested_ns = rested_ns;
	worker->looked.sched = sched;
	return wait_ns;
}

static bool wants_psi(const struct crew *crew)
{
	return crew->host && crew->clear.is_enabled && !crew->is_stopping &&
	       (crew->clear.psi_cpu.is_on || crew->clear.psi_memory.is_on);
}

static bool look_at_resource(struct crew *crew, const char *resource, const struct config_psi *limits,
	struct pressure_psi *psi, uint64_t own_ns, double busy_cpus, uint64_t now_ns)
{
	uint64_t total_us;
	if (!limits->is_on) {
		*psi = (struct pressure_psi){.is_paused = false};
		return false;
	}
	int r = pressure_read_psi(crew->host, resource, &total_us);
	bool was_paused = psi->is_paused;
	if (r == 0)
		pressure_judge_psi(psi, limits, total_us, own_ns, busy_cpus, now_ns);
	if (r == 0 && psi->is_paused && !was_paused)
		metrics_add(METRICS_PAUSES, psi == &crew->psi_cpu ? METRICS_CPU : METRICS_MEMORY, 1);
	if (r == 0)
		return psi->is_paused;
	if (!crew->was_psi_missed)
		log_warning("/proc/pressure/%s: %s: psi_%s has no effect", resource, strerror(-r), resource);
	crew->was_psi_missed = true;
	psi->is_paused = false;
	return false;
}

static void set_paused(struct crew *crew, uint32_t paused)
{
	LIST_FOR_EACH (pos, &crew->nodes)
		crew_rules_set_paused(&CONTAINER_OF(pos, struct crew_node, link)->rules, paused);
}

/* Returns whether any memory worker has a job. */
static bool look_at_pressure(struct crew *crew)
{
	uint64_t now_ns = clock_get_ns(CLOCK_MONOTONIC), own_ns = 0, busy_ns = 0;
	uint64_t window_ns = now_ns - MIN(now_ns, crew->psi_at_ns);
	bool has_work = false;
	LIST_FOR_EACH (pos, &crew->workers) {
		struct crew_worker *worker = CONTAINER_OF(pos, struct crew_worker, link);
		if (!worker->rules || worker->has_exited)
			continue;
		has_work = has_work || worker->job;
		own_ns += measure_wait(crew, worker, now_ns);
	}
	pressure_read_busy(crew->host, &busy_ns);
	double busy_cpus = (double)(busy_ns - MIN(busy_ns, crew->busy_ns)) / (double)MAX(window_ns, 1);
	crew->busy_ns = busy_ns;
	crew->psi_at_ns = now_ns;
	uint32_t paused = 0;
	if (look_at_resource(crew, "cpu", &crew->clear.psi_cpu, &crew->psi_cpu, own_ns, busy_cpus, now_ns))
		paused |= PRESSURE_PAUSE_CPU;
	if (look_at_resource(
		    crew, "memory", &crew->clear.psi_memory, &crew->psi_memory, 0, busy_cpus, now_ns))
		paused |= PRESSURE_PAUSE_MEMORY;
	set_paused(crew, paused);
	return has_work;
}

/* What is paused stays so over the end of a job: the next one begins with a look. */
static void on_psi_timer(uv_timer_t *timer)
{
	struct crew *crew = CONTAINER_OF(timer, struct crew, psi_timer);
	if (!look_at_pressure(crew))
		uv_timer_stop(timer);
}

static void start_psi(struct crew *crew)
{
	if (!wants_psi(crew) || uv_is_active((uv_handle_t *)&crew->psi_timer))
		return;
	crew->psi_cpu.at_ns = crew->psi_memory.at_ns = 0;
	look_at_pressure(crew);
	uv_timer_start(&crew->psi_timer, on_psi_timer, PSI_MS, PSI_MS);
}

/* ---- jobs ---- */

/* The pool's lock and the proof's program stay hpzd's. */
static bool is_lent(const struct crew_job *job, size_t fd)
{
	return fd == WORKER_FD_LOCK || fd == WORKER_FD_PROGRAM || (fd == WORKER_FD_DIR && job->is_dir_lent);
}

struct crew_job *crew_new_job(enum worker_role role, enum worker_op op)
{
	struct crew_job *job = calloc(1, sizeof *job);
	if (!job)
		return NULL;
	list_init(&job->link);
	job->wire.op = op;
	job->role = role;
	job->level = WORKER_LEVEL_REFILL;
	for (size_t i = 0; i < WORKER_FDS; i++)
		job->fds[i] = -1;
	for (size_t i = 0; i < WORKER_SENT_MAX; i++)
		job->sent[i] = -1;
	return job;
}

void crew_free_job(struct crew_job *job)
{
	if (!job)
		return;
	for (size_t i = 0; i < WORKER_FDS; i++) {
		if (!is_lent(job, i))
			close_fd(job->fds[i]);
	}
	for (size_t i = 0; i < WORKER_SENT_MAX; i++)
		close_fd(job->sent[i]);
	free(job);
}

static void answer(struct crew_job *job, const struct worker_done *done)
{
	list_remove(&job->link);
	job->worker = NULL;
	if (job->done)
		job->done(job, done, job->user);
	crew_free_job(job);
}

static void answer_error(struct crew_job *job, int error)
{
	struct worker_done done = {.id = job->wire.id, .op = job->wire.op, .error = error, .method = -1};
	answer(job, &done);
}

static struct crew_node *find_node(struct crew *crew, int32_t node)
{
	LIST_FOR_EACH (pos, &crew->nodes) {
		struct crew_node *entry = CONTAINER_OF(pos, struct crew_node, link);
		if (entry->node == node)
			return entry;
	}
	struct crew_node *entry = calloc(1, sizeof *entry);
	if (!entry)
		return NULL;
	int r = crew_rules_open(&entry->rules);
	if (r < 0) {
		log_error("no rules for the workers of node %" PRId32 ": %s", node, strerror(-r));
		free(entry);
		return NULL;
	}
	entry->node = node;
	entry->workers_max = 1;
	if (crew->host) {
		crew_rules_set(&entry->rules, node, crew->host, &crew->clear);
		entry->workers_max = crew_rules_count_workers(&entry->rules, &crew->clear);
	}
	list_init(&entry->queue);
	list_append(&crew->nodes, &entry->link);
	return entry;
}

/* Who goes first. */
static unsigned get_rank(const struct crew_job *job)
{
	return job->role == WORKER_HELPER || job->is_background ? 0 : 1 + (unsigned)job->level;
}

static bool was_begun(const struct crew_job *job)
{
	return job->role == WORKER_MEMORY && job->wire.resume > job->wire.first_byte;
}

/* Behind its equals; one that was stopped on the way before them. */
static void enqueue(struct list *queue, struct crew_job *job)
{
	unsigned rank = get_rank(job) + was_begun(job);
	struct list *at = queue;
	/* From the end: most have their equals there, and thousands may wait. */
	while (at->prev != queue && get_rank(CONTAINER_OF(at->prev, struct crew_job, link)) < rank)
		at = at->prev;
	list_insert_before(at, &job->link);
}

static void want_dispatch(struct crew *crew)
{
	if (!crew->is_backing_off)
		uv_timer_start(&crew->timer, on_timer, 0, 0);
}

void crew_submit(struct crew *crew, struct crew_job *job)
{
	job->wire.id = ++crew->next_job;
	struct crew_node *node = job->role == WORKER_MEMORY ? find_node(crew, job->node) : NULL;
	enqueue(node ? &node->queue : &crew->helper_queue, job);
	/* Never answered from inside the submit: its caller has not finished its own books yet. */
	want_dispatch(crew);
}

void crew_cancel(struct crew *crew, struct crew_job *job)
{
	if (job->worker) {
		job->is_stopping = true;
		atomic_store(&job->worker->control->stop, job->wire.id);
		bump(job->worker);
		/* In a low class it might take its time to see that. */
		apply_level(job->worker, WORKER_LEVEL_URGENT);
	} else {
		answer_error(job, -ECANCELED);
	}
}

void crew_set_job_level(struct crew *crew, struct crew_job *job, enum worker_level level)
{
	if (job->level == level)
		return;
	job->level = level;
	if (job->worker) {
		if (!job->is_stopping)
			apply_level(job->worker, level);
		return;
	}
	struct crew_node *node = find_node(crew, job->node);
	if (!node)
		return;
	list_remove(&job->link);
	enqueue(&node->queue, job);
	want_dispatch(crew);
}

/* ---- the life of a worker ---- */

static void free_worker_if_closed(struct crew_worker *worker)
{
	if (worker->handles > 0)
		return;
	struct crew *crew = worker->crew;
	close_fd(worker->sock);
	if (worker->control)
		munmap(worker->control, sizeof *worker->control);
	list_remove(&worker->link);
	free(worker);
	if (crew->is_stopping)
		dispatch(crew);
}

static void on_closed(uv_handle_t *handle)
{
	struct crew_worker *worker = handle->data;
	worker->handles--;
	free_worker_if_closed(worker);
}

static void close_worker(struct crew_worker *worker)
{
	uv_handle_t *handles[] = {(uv_handle_t *)&worker->process, (uv_handle_t *)&worker->poll,
		(uv_handle_t *)&worker->deadline};
	for (size_t i = 0; i < ARRAY_SIZE(handles); i++) {
		if (!uv_is_closing(handles[i]))
			uv_close(handles[i], on_closed);
	}
}

static void note_helped(struct crew_worker *worker)
{
	if (worker->role == WORKER_HELPER)
		worker->crew->helped_ns = clock_get_ns(CLOCK_MONOTONIC);
}

static unsigned get_proof_label(const struct proof_verdict *proof)
{
	static const unsigned held_by[PROOF_REASON_COUNT] = {
		[PROOF_NO_REASON] = METRICS_PROOF_UNKNOWN,
		[PROOF_OPEN] = METRICS_PROOF_OPEN,
		[PROOF_OPEN_READ] = METRICS_PROOF_OPEN_READ,
		[PROOF_NAME] = METRICS_PROOF_NAME,
		[PROOF_LINK] = METRICS_PROOF_LINK,
		[PROOF_PIN] = METRICS_PROOF_PIN,
		[PROOF_POISON] = METRICS_PROOF_POISON,
	};
	switch (proof->result) {
	case PROOF_FREE:
		return METRICS_PROOF_FREE;
	case PROOF_IN_USE:
		return proof->reason < PROOF_REASON_COUNT ? held_by[proof->reason] : METRICS_PROOF_UNKNOWN;
	case PROOF_CANNOT_TELL:
		return METRICS_PROOF_UNKNOWN;
	}
	return METRICS_PROOF_UNKNOWN;
}

/* A job that was cut short counts for what it came to. */
static void count_job(const struct crew_job *job, const struct worker_done *done)
{
	static const enum metrics_work works[] = {[WORKER_FILL] = METRICS_FILL,
		[WORKER_CLEAR] = METRICS_CLEAR,
		[WORKER_GROW] = METRICS_EXTEND,
		[WORKER_VERIFY] = METRICS_VERIFY};
	switch ((enum worker_op)job->wire.op) {
	case WORKER_FILL:
	case WORKER_CLEAR:
	case WORKER_GROW:
	case WORKER_VERIFY:
		metrics_add_work(
			works[job->wire.op], done->bytes, clock_get_ns(CLOCK_MONOTONIC) - job->started_ns);
		break;
	case WORKER_SHIELD:
	case WORKER_PROBE:
	case WORKER_ORPHAN:
		if (done->error == 0)
			metrics_add(METRICS_PROOFS, get_proof_label(&done->proof), 1);
		break;
	case WORKER_CALIBRATE:
	case WORKER_TRIM:
	case WORKER_UNLINK:
	case WORKER_HOLDERS:
	case WORKER_LEARN:
	case WORKER_REMOVE:
	case WORKER_ZERO_FREE:
	case WORKER_OPENERS:
	case WORKER_TABLES:
	case WORKER_TRACE:
		break;
	}
}

static void finish_job(struct crew_worker *worker, const struct worker_done *done)
{
	struct crew_job *job = worker->job;
	worker->job = NULL;
	if (worker->rules)
		atomic_fetch_sub(&worker->rules->workers, 1);
	note_helped(worker);
	tell_cgroup(worker);
	uv_timer_stop(&worker->deadline);
	count_job(job, done);
	answer(job, done);
}

/* Descriptors of an answer are the job's from now on; of one that nobody waits for they are closed. */
static void keep_sent_take(struct crew_job *job, const int *fds, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		if (!job) {
			close_fd(fds[i]);
			continue;
		}
		close_fd(job->sent[i]);
		job->sent[i] = fds[i];
	}
}

static void on_answer(uv_poll_t *poll, int status, int events)
{
	struct crew_worker *worker = poll->data;
	/* After its answer a worker has nothing to say until it has the next job: to look for more is for
	 * nothing, and the loop tells. */
	for (bool is_answered = false; !is_answered;) {
		struct worker_done done;
		size_t length, fd_count = 0;
		int fds[WORKER_SENT_MAX];
		int r = frame_receive(
			worker->sock, &done, sizeof done, &length, fds, WORKER_SENT_MAX, &fd_count);
		if (r == -EAGAIN)
			break;
		if (r != FRAME_OK || length != sizeof done) {
			/* Its exit callback follows; until then there is nothing to read. */
			uv_poll_stop(&worker->poll);
			break;
		}
		bool is_answer = worker->job && done.id == worker->job->wire.id;
		keep_sent_take(is_answer ? worker->job : NULL, fds, fd_count);
		if (!is_answer)
			continue;
		if (done.is_partial && worker->job->partial)
			worker->job->partial(worker->job, &done, worker->job->user);
		else if (!done.is_partial)
			finish_job(worker, &done);
		is_answered = !done.is_partial;
	}
	dispatch(worker->crew);
}

static void on_exit_worker(uv_process_t *process, int64_t status, int signal_number)
{
	struct crew_worker *worker = process->data;
	struct crew *crew = worker->crew;
	worker->has_exited = true;
	crew->worker_count--;
	if (worker->rules)
		cgroup_leave(crew->cgroup, worker->node, process->pid);
	/* What it said before it died counts. */
	on_answer(&worker->poll, 0, UV_READABLE);
	bool is_expected = worker->was_killed || crew->is_stopping;
	if (!is_expected && (worker->job || status != 0 || signal_number != 0)) {
		crew->deaths++;
		log_warning("%s worker %d died: %s %d%s", worker_get_role_name(worker->role), process->pid,
			signal_number ? "signal" : "status", signal_number ? signal_number : (int)status,
			worker->job ? "; its job will be done again" : "");
		if (clock_get_ns(CLOCK_MONOTONIC) - worker->born_ns < NS_PER_S && !crew->is_stopping)
			back_off(crew);
	}
	if (worker->job) {
		struct worker_done done = {.id = worker->job->wire.id,
			.op = worker->job->wire.op,
			.error = worker->was_killed        ? -ETIMEDOUT
				 : signal_number == SIGBUS ? -EFAULT
							   : -EOWNERDEAD,
			.method = -1,
			.resume = 0};
		finish_job(worker, &done);
	}
	close_worker(worker);
	dispatch(crew);
}

/* A helper that somebody holds up. Killing it may take as long as the lock it waits for; the queue goes on.
 */
static void on_deadline(uv_timer_t *timer)
{
	struct crew_worker *worker = timer->data;
	log_warning("helper worker %d is held up by a client: killed", worker->process.pid);
	worker->was_killed = true;
	uv_process_kill(&worker->process, SIGKILL);
}

static int make_control(struct crew_worker *worker)
{
	int fd = memfd_create("hpzd-control", MFD_CLOEXEC);
	if (fd < 0)
		return -errno;
	if (ftruncate(fd, sizeof *worker->control) < 0) {
		close_fd(fd);
		return -errno;
	}
	void *page = mmap(NULL, sizeof *worker->control, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (page == MAP_FAILED) {
		close_fd(fd);
		return -errno;
	}
	worker->control = page;
	return fd;
}

/* Without what the service manager says to hpzd alone. NULL: no memory, and they inherit all. */
static char **make_environment(void)
{
	static const char *const ours[] = {"NOTIFY_SOCKET=", "WATCHDOG_USEC=", "WATCHDOG_PID="};
	size_t count = 0, kept = 0;
	while (environ[count])
		count++;
	char **environment = calloc(count + 1, sizeof *environment);
	for (size_t i = 0; environment && i < count; i++) {
		bool is_ours = false;
		for (size_t j = 0; j < ARRAY_SIZE(ours); j++)
			is_ours = is_ours || strncmp(environ[i], ours[j], strlen(ours[j])) == 0;
		if (!is_ours)
			environment[kept++] = environ[i];
	}
	return environment;
}

static int spawn(struct crew_worker *worker, int sock, int control, int rules)
{
	struct crew *crew = worker->crew;
	char node[16], parent[16];
	snprintf(node, sizeof node, "%" PRId32, worker->node);
	snprintf(parent, sizeof parent, "%d", (int)getpid());
	char *arguments[] = {(char *)"hpzd", (char *)"--worker", (char *)worker_get_role_name(worker->role),
		node, parent, NULL};
	uv_stdio_container_t stdio[6] = {
		{.flags = UV_IGNORE},
		{.flags = UV_INHERIT_FD, .data.fd = STDERR_FILENO},
		{.flags = UV_INHERIT_FD, .data.fd = STDERR_FILENO},
		[WORKER_SOCKET_FD] = {.flags = UV_INHERIT_FD, .data.fd = sock},
		[WORKER_CONTROL_FD] = {.flags = UV_INHERIT_FD, .data.fd = control},
		[WORKER_RULES_FD] = {.flags = UV_INHERIT_FD, .data.fd = rules},
	};
	char **environment = make_environment();
	uv_process_options_t options = {
		.exit_cb = on_exit_worker,
		.file = crew->program,
		.args = arguments,
		.env = environment,
		.stdio_count = rules >= 0 ? ARRAY_SIZE(stdio) : WORKER_RULES_FD,
		.stdio = stdio,
	};
	int r = uv_spawn(crew->loop, &worker->process, &options);
	free(environment);
	return r;
}

static void append_to_list(struct crew *crew, const struct crew_worker *worker)
{
	struct host host = {.root = (char *)""};
	uint64_t start = 0;
	pid_t pid = worker->process.pid;
	if (crew->list_fd < 0 || worker->has_exited || pid <= 0)
		return;
	host_get_start_time(&host, pid, &start);
	dprintf(crew->list_fd, "%d %" PRIu64 "\n", (int)pid, start);
	crew->list_lines++;
}

/* Only those that live: nobody else's pid is in it any more. */
static void rewrite_list(struct crew *crew)
{
	if (crew->list_fd >= 0 && ftruncate(crew->list_fd, 0) < 0)
		log_debug("cannot empty the list of workers: %s", strerror(errno));
	crew->list_lines = 0;
	LIST_FOR_EACH (pos, &crew->workers)
		append_to_list(crew, CONTAINER_OF(pos, struct crew_worker, link));
}

static void note_worker(struct crew *crew, const struct crew_worker *worker)
{
	if (crew->is_list_ours && crew->list_lines >= LIST_LINES_MAX)
		rewrite_list(crew);
	else
		append_to_list(crew, worker);
}

static struct crew_worker *start_worker(
	struct crew *crew, enum worker_role role, const struct crew_node *node)
{
	int pair[2];
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0) {
		log_error("cannot make a worker's socket: %s", strerror(errno));
		return NULL;
	}
	_cleanup_fd_ int theirs = pair[1];
	struct crew_worker *worker = calloc(1, sizeof *worker);
	_cleanup_fd_ int control = -1;
	if (worker)
		control = make_control(worker);
	if (!worker || control < 0) {
		close_fd(pair[0]);
		free(worker);
		return NULL;
	}
	fcntl(pair[0], F_SETFL, O_NONBLOCK);
	worker->crew = crew;
	worker->role = role;
	worker->node = node ? node->node : -1;
	worker->rules = node ? node->rules.page : NULL;
	worker->sock = pair[0];
	worker->level = WORKER_LEVEL_URGENT;
	worker->born_ns = clock_get_ns(CLOCK_MONOTONIC);
	worker->process.data = worker->poll.data = worker->deadline.data = worker;
	int r = uv_poll_init(crew->loop, &worker->poll, worker->sock);
	if (r < 0) {
		log_error("cannot watch a worker: %s", uv_strerror(r));
		close_fd(worker->sock);
		munmap(worker->control, sizeof *worker->control);
		free(worker);
		return NULL;
	}
	list_append(&crew->workers, &worker->link);
	uv_timer_init(crew->loop, &worker->deadline);
	worker->handles = 3;
	r = spawn(worker, theirs, control, node ? node->rules.fd : -1);
	if (r < 0) {
		log_error("cannot start a worker: %s", uv_strerror(r));
		worker->has_exited = true;
		close_worker(worker);
		return NULL;
	}
	crew->worker_count++;
	if (node) {
		crew_rules_place(&node->rules, worker->process.pid);
		cgroup_join(crew->cgroup, node->node, worker->process.pid);
	}
	note_worker(crew, worker);
	uv_poll_start(&worker->poll, UV_READABLE, on_answer);
	return worker;
}

/* ---- giving jobs ---- */

static bool give(struct crew_worker *worker, struct crew_job *job)
{
	int fds[WORKER_FDS];
	size_t count = 0;
	job->wire.fds = 0;
	for (size_t i = 0; i < WORKER_FDS; i++) {
		if (job->fds[i] < 0)
			continue;
		job->wire.fds |= 1u << i;
		fds[count++] = job->fds[i];
	}
	int r = frame_send(worker->sock, &job->wire, sizeof job->wire, fds, count);
	if (r < 0) {
		/* The end of a dead one starts the next; everything else (ETOOMANYREFS: clients that never
		 * read hold all descriptors in flight) passes without telling us. */
		if (r != -EPIPE && r != -ECONNRESET) {
			log_warning(
				"worker %d could not be given a job: %s", worker->process.pid, strerror(-r));
			back_off(worker->crew);
		}
		return false;
	}
	list_remove(&job->link);
	/* The worker's copy is the only one from here on. */
	for (size_t i = 0; i < WORKER_FDS; i++) {
		if (!is_lent(job, i))
			job->fds[i] = close_fd(job->fds[i]);
	}
	job->worker = worker;
	job->started_ns = clock_get_ns(CLOCK_MONOTONIC);
	worker->job = job;
	note_helped(worker);
	if (worker->rules) {
		atomic_fetch_add(&worker->rules->workers, 1);
		tell_cgroup(worker);
		start_psi(worker->crew);
	}
	if (job->deadline_ms > 0)
		uv_timer_start(&worker->deadline, on_deadline, job->deadline_ms, 0);
	return true;
}

static bool is_ready(const struct crew_worker *worker, enum worker_role role, int32_t node)
{
	return worker->role == role && !worker->job && !worker->has_exited && !worker->was_killed &&
	       (role == WORKER_HELPER || worker->node == node);
}

static struct crew_job *get_head(const struct list *queue)
{
	return list_is_empty(queue) ? NULL : CONTAINER_OF(queue->next, struct crew_job, link);
}

/* How many workers a queue may have busy now: for an urgent job one more. */
static unsigned get_max(const struct list *queue, const struct crew_node *node)
{
	if (!node)
		return HELPERS_MAX;
	const struct crew_job *head = get_head(queue);
	return node->workers_max + (head && head->level == WORKER_LEVEL_URGENT);
}

static bool is_of_node(const struct crew_worker *worker, const struct crew_node *node)
{
	return worker->role == WORKER_MEMORY && worker->node == node->node && !worker->has_exited;
}

/* The one that is least urgent, of those that are less so than `rank` and go on. */
static struct crew_job *find_lower(struct crew *crew, const struct crew_node *node, unsigned rank)
{
	struct crew_job *lowest = NULL;
	LIST_FOR_EACH (pos, &crew->workers) {
		const struct crew_worker *worker = CONTAINER_OF(pos, struct crew_worker, link);
		struct crew_job *job = worker->job;
		if (is_of_node(worker, node) && job && !job->is_stopping && get_rank(job) < rank) {
			lowest = job;
			rank = get_rank(job);
		}
	}
	return lowest;
}

static unsigned count_stopping(struct crew *crew, const struct crew_node *node)
{
	unsigned count = 0;
	LIST_FOR_EACH (pos, &crew->workers) {
		const struct crew_worker *worker = CONTAINER_OF(pos, struct crew_worker, link);
		count += is_of_node(worker, node) && worker->job && worker->job->is_stopping;
	}
	return count;
}

/* Work is waiting, and workers are at something less urgent: they stop that. */
static void stop_lower_jobs(struct crew *crew, struct crew_node *node)
{
	unsigned stopping = count_stopping(crew, node), wanted = 0;
	LIST_FOR_EACH (pos, &node->queue) {
		if (++wanted <= stopping)
			continue;
		struct crew_job *lower =
			find_lower(crew, node, get_rank(CONTAINER_OF(pos, struct crew_job, link)));
		if (!lower)
			return;
		crew_cancel(crew, lower);
		stopping++;
	}
}

static bool give_next(struct crew_worker *worker, struct list *queue)
{
	struct crew_job *job = get_head(queue);
	if (worker->role == WORKER_MEMORY)
		apply_level(worker, job->level);
	return give(worker, job);
}

static void on_slow_timer(uv_timer_t *timer)
{
	dispatch(CONTAINER_OF(timer, struct crew, slow_timer));
}

/* Whether to start one more, of so many: a helper only if the others are held up; else that is looked at
 * again.
 */
static bool may_start(struct crew *crew, enum worker_role role, unsigned alive)
{
	if (role != WORKER_HELPER || alive == 0)
		return true;
	uint64_t slow_ns = clock_get_ns(CLOCK_MONOTONIC) - crew->helped_ns;
	if (slow_ns >= HELPERS_SLOW_MS * NS_PER_MS)
		return true;
	if (!uv_is_active((uv_handle_t *)&crew->slow_timer))
		uv_timer_start(&crew->slow_timer, on_slow_timer, HELPERS_SLOW_MS - slow_ns / NS_PER_MS, 0);
	return false;
}

/* Gives as many jobs of a queue as there are workers or may be; each worker gets one. */
static void drain_queue(struct crew *crew, struct list *queue, enum worker_role role, struct crew_node *node)
{
	unsigned alive = 0, busy = 0;
	int32_t number = node ? node->node : -1;
	LIST_FOR_EACH (pos, &crew->workers) {
		const struct crew_worker *worker = CONTAINER_OF(pos, struct crew_worker, link);
		if (worker->role != role || (node && worker->node != number) || worker->has_exited)
			continue;
		alive++;
		busy += worker->job != NULL;
	}
	LIST_FOR_EACH (pos, &crew->workers) {
		struct crew_worker *worker = CONTAINER_OF(pos, struct crew_worker, link);
		if (list_is_empty(queue))
			return;
		if (is_ready(worker, role, number) && busy < get_max(queue, node))
			busy += give_next(worker, queue);
	}
	while (!list_is_empty(queue) && alive < get_max(queue, node) && !crew->is_backing_off &&
		may_start(crew, role, alive)) {
		struct crew_worker *worker = start_worker(crew, role, node);
		if (!worker) {
			back_off(crew);
			return;
		}
		alive++;
		if (!give_next(worker, queue))
			return;
	}
	if (node)
		stop_lower_jobs(crew, node);
}

static void send_home(struct crew_worker *worker)
{
	worker->was_killed = true;
	shutdown(worker->sock, SHUT_WR); /* it reads EOF and leaves */
}

/* More than the node may have: there was an urgent job, or it may have fewer now. */
static void send_spare_workers_home(struct crew *crew, const struct crew_node *node)
{
	unsigned alive = 0;
	LIST_FOR_EACH (pos, &crew->workers) {
		const struct crew_worker *worker = CONTAINER_OF(pos, struct crew_worker, link);
		alive += is_of_node(worker, node) && !worker->was_killed;
	}
	LIST_FOR_EACH (pos, &crew->workers) {
		struct crew_worker *worker = CONTAINER_OF(pos, struct crew_worker, link);
		if (alive <= node->workers_max)
			return;
		if (!is_ready(worker, WORKER_MEMORY, node->node))
			continue;
		send_home(worker);
		alive--;
	}
}

static void send_idle_helpers_home(struct crew *crew)
{
	unsigned idle = 0;
	LIST_FOR_EACH (pos, &crew->workers) {
		struct crew_worker *worker = CONTAINER_OF(pos, struct crew_worker, link);
		if (!is_ready(worker, WORKER_HELPER, -1) || idle++ < HELPERS_IDLE_MAX)
			continue;
		send_home(worker);
	}
}

static void cancel_queue(struct list *queue)
{
	while (!list_is_empty(queue))
		answer_error(CONTAINER_OF(queue->next, struct crew_job, link), -ECANCELED);
}

static void cancel_queues(struct crew *crew)
{
	LIST_FOR_EACH (pos, &crew->nodes)
		cancel_queue(&CONTAINER_OF(pos, struct crew_node, link)->queue);
	cancel_queue(&crew->helper_queue);
}

static void on_timer_closed(uv_handle_t *handle)
{
	struct crew *crew = CONTAINER_OF((uv_timer_t *)handle, struct crew, timer);
	cancel_queues(crew); /* submitted after the last look */
	if (crew->stopped)
		crew->stopped(crew->stopped_user);
}

static void go_on_stopping(struct crew *crew)
{
	cancel_queues(crew);
	LIST_FOR_EACH (pos, &crew->workers) {
		struct crew_worker *worker = CONTAINER_OF(pos, struct crew_worker, link);
		/* One caught in a lower class would take its time. */
		apply_level(worker, WORKER_LEVEL_URGENT);
		atomic_store(&worker->control->stop, UINT64_MAX);
		bump(worker);
		if (!worker->job && !worker->was_killed)
			send_home(worker);
	}
	if (!uv_is_closing((uv_handle_t *)&crew->psi_timer)) {
		uv_close((uv_handle_t *)&crew->psi_timer, NULL);
		uv_close((uv_handle_t *)&crew->slow_timer, NULL);
	}
	if (list_is_empty(&crew->workers) && !uv_is_closing((uv_handle_t *)&crew->timer)) {
		cgroup_close(crew->cgroup);
		crew->cgroup = NULL;
		uv_close((uv_handle_t *)&crew->timer, on_timer_closed);
	}
}

static void dispatch_once(struct crew *crew)
{
	if (crew->is_stopping) {
		go_on_stopping(crew);
		return;
	}
	if (crew->is_held || crew->is_backing_off)
		return;
	LIST_FOR_EACH (pos, &crew->nodes) {
		struct crew_node *node = CONTAINER_OF(pos, struct crew_node, link);
		drain_queue(crew, &node->queue, WORKER_MEMORY, node);
		if (list_is_empty(&node->queue))
			send_spare_workers_home(crew, node);
	}
	drain_queue(crew, &crew->helper_queue, WORKER_HELPER, NULL);
	send_idle_helpers_home(crew);
}

/* Answers may submit or cancel jobs: the outermost call does it all. */
static void dispatch(struct crew *crew)
{
	if (crew->is_dispatching)
		return;
	crew->is_dispatching = true;
	dispatch_once(crew);
	crew->is_dispatching = false;
}

/* ---- leftovers of a dead hpzd ---- */

static void end_leftover(pid_t pid, uint64_t start)
{
	struct host host = {.root = (char *)""};
	uint64_t now = 0;
	int fd = (int)syscall(SYS_pidfd_open, pid, 0);
	if (fd < 0)
		return;
	/* The number may belong to somebody else by now; the descriptor cannot change hands after this look.
	 */
	if (host_get_start_time(&host, pid, &now) == 0 && now == start && start > 0) {
		log_info("worker %d of a dead hpzd is still there: lifted and killed", (int)pid);
		crew_rules_set_class(pid, WORKER_LEVEL_URGENT);
		syscall(SYS_pidfd_send_signal, fd, SIGKILL, NULL, 0);
	}
	close(fd);
}

int crew_open_list(struct crew *crew, const char *run_dir)
{
	char path[256];
	snprintf(path, sizeof path, "%s/workers", run_dir);
	_cleanup_file_ FILE *old = fopen(path, "re");
	int pid;
	uint64_t start;
	while (old && fscanf(old, "%d %" SCNu64, &pid, &start) == 2) {
		if (pid > 1)
			end_leftover(pid, start);
	}
	int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return -errno;
	crew->list_fd = fd;
	return 0;
}

void crew_set_hold(struct crew *crew, bool is_held)
{
	if (!is_held && !crew->is_list_ours) {
		/* Nobody of the old list is left. */
		crew->is_list_ours = true;
		rewrite_list(crew);
	}
	crew->is_held = is_held;
	dispatch(crew);
}

/* ---- the rest ---- */

static void open_cgroup(struct crew *crew)
{
	_cleanup_free_ char *unit = cgroup_find_unit();
	if (!unit)
		return;
	int r = cgroup_open(crew->loop, unit, cgroup_buses, CGROUP_BUSES, &crew->cgroup);
	if (r < 0)
		log_warning("workers get no cgroup of their own: %s", strerror(-r));
}

int crew_init(uv_loop_t *loop, const char *program, struct crew **ret_crew)
{
	struct crew *crew = calloc(1, sizeof *crew);
	if (!crew)
		return -ENOMEM;
	crew->loop = loop;
	crew->list_fd = -1;
	snprintf(crew->program, sizeof crew->program, "%s", program);
	list_init(&crew->workers);
	list_init(&crew->nodes);
	list_init(&crew->helper_queue);
	uv_timer_init(loop, &crew->timer);
	uv_timer_init(loop, &crew->psi_timer);
	uv_timer_init(loop, &crew->slow_timer);
	open_cgroup(crew);
	*ret_crew = crew;
	return 0;
}

void crew_stop(struct crew *crew, void (*stopped)(void *user), void *user)
{
	crew->stopped = stopped;
	crew->stopped_user = user;
	crew->is_stopping = true;
	dispatch(crew);
}

void crew_free(struct crew *crew)
{
	if (!crew)
		return;
	LIST_FOR_EACH_SAFE (pos, &crew->nodes) {
		struct crew_node *node = CONTAINER_OF(pos, struct crew_node, link);
		crew_rules_close(&node->rules);
		free(node);
	}
	close_fd(crew->list_fd);
	free(crew);
}

/* Running jobs beyond what the node may have are given again, to fewer. */
static void stop_surplus(struct crew *crew, const struct crew_node *node)
{
	unsigned busy = 0;
	LIST_FOR_EACH (pos, &crew->workers) {
		const struct crew_worker *worker = CONTAINER_OF(pos, struct crew_worker, link);
		busy += is_of_node(worker, node) && worker->job && !worker->job->is_stopping;
	}
	for (; busy > node->workers_max; busy--) {
		struct crew_job *lowest = find_lower(crew, node, UINT_MAX);
		if (!lowest || lowest->level == WORKER_LEVEL_URGENT)
			return;
		crew_cancel(crew, lowest);
	}
}

static void set_size(struct crew *crew, struct crew_node *node, unsigned workers)
{
	if (node->workers_max == workers)
		return;
	node->workers_max = workers;
	stop_surplus(crew, node);
	want_dispatch(crew);
}

void crew_set_rules(struct crew *crew, const struct host *host, const struct config_clear *clear)
{
	bool has_work = false;
	crew->host = host;
	crew->clear = *clear;
	crew->was_psi_missed = false;
	LIST_FOR_EACH (pos, &crew->nodes) {
		struct crew_node *node = CONTAINER_OF(pos, struct crew_node, link);
		crew_rules_set(&node->rules, node->node, host, clear);
		set_size(crew, node, crew_rules_count_workers(&node->rules, clear));
		LIST_FOR_EACH (at, &crew->workers) {
			const struct crew_worker *worker = CONTAINER_OF(at, struct crew_worker, link);
			has_work = has_work || (worker->rules && worker->job);
			if (worker->rules == node->rules.page && !worker->has_exited)
				crew_rules_place(&node->rules, worker->process.pid);
		}
	}
	if (!wants_psi(crew)) {
		uv_timer_stop(&crew->psi_timer);
		crew->psi_cpu.is_paused = crew->psi_memory.is_paused = false;
		set_paused(crew, 0);
	} else if (has_work) {
		start_psi(crew);
	}
}

void crew_set_size(struct crew *crew, int32_t node, unsigned workers)
{
	struct crew_node *entry = find_node(crew, node);
	if (entry)
		set_size(crew, entry, MAX(workers, 1u));
}

unsigned crew_get_size(struct crew *crew, int32_t node)
{
	const struct crew_node *entry = find_node(crew, node);
	return entry ? entry->workers_max : 1;
}

static void add_worker_state(const struct crew_worker *worker, struct crew_node_state *state)
{
	state->workers++;
	if (!worker->job)
		return;
	state->busy[worker->level]++;
	uint64_t at_ns = atomic_load(&worker->control->rate_at_ns);
	if (clock_get_ns(CLOCK_MONOTONIC) - at_ns < 2 * WORKER_RATE_NS)
		state->rate_bytes_per_s += atomic_load(&worker->control->rate_bytes_per_s);
}

bool crew_get_node_state(const struct crew *crew, size_t index, struct crew_node_state *ret_state)
{
	LIST_FOR_EACH (pos, &crew->nodes) {
		const struct crew_node *node = CONTAINER_OF(pos, struct crew_node, link);
		if (index-- > 0)
			continue;
		*ret_state = (struct crew_node_state){.node = node->node, .rules = node->rules.page};
		LIST_FOR_EACH (at, &node->queue)
			ret_state->queued++;
		LIST_FOR_EACH (at, &crew->workers) {
			const struct crew_worker *worker = CONTAINER_OF(at, struct crew_worker, link);
			if (worker->rules == node->rules.page && !worker->has_exited)
				add_worker_state(worker, ret_state);
		}
		return true;
	}
	return false;
}

void crew_get_psi(const struct crew *crew, double *ret_cpu, double *ret_memory)
{
	*ret_cpu = crew->clear.psi_cpu.is_on ? crew->psi_cpu.percent : -1;
	*ret_memory = crew->clear.psi_memory.is_on ? crew->psi_memory.percent : -1;
}

unsigned crew_get_worker_count(const struct crew *crew)
{
	return crew->worker_count;
}

uint64_t crew_get_deaths(const struct crew *crew)
{
	return crew->deaths;
}

size_t crew_get_queued(const struct crew *crew, enum worker_role role)
{
	size_t count = 0;
	if (role == WORKER_HELPER) {
		LIST_FOR_EACH (pos, &crew->helper_queue)
			count++;
		return count;
	}
	LIST_FOR_EACH (at, &crew->nodes) {
		LIST_FOR_EACH (pos, &CONTAINER_OF(at, struct crew_node, link)->queue)
			count++;
	}
	return count;
}
