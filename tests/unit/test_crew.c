/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_crew.c - real workers (HPZ_TEST_HPZD, the built hpzd), their jobs, their ends. */
#include "temp.h"
#include "crew.h"
#include "frame.h"
#include "host.h"
#include "log.h"

#include <inttypes.h>
#include <linux/capability.h>
#include <sched.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define PAGE    ((uint64_t)4096)
#define SECONDS 60 /* for anything to happen, on a busy machine */
#define ANSWERS 300

static uv_loop_t loop;
static struct crew *crew;
static bool is_stopped;

/* Answers as they came. */
static struct {
	size_t count, partial_count;
	struct {
		struct crew_job *job;
		struct worker_done done;
		void *user;
	} answers[ANSWERS];
} got;

static void on_done(struct crew_job *job, const struct worker_done *done, void *user)
{
	assert_true(got.count < ANSWERS);
	got.answers[got.count].job = job;
	got.answers[got.count].done = *done;
	got.answers[got.count].user = user;
	got.count++;
}

static void on_partial(struct crew_job *job, const struct worker_done *done, void *user)
{
	assert_int_equal(done->is_partial, 1);
	got.partial_count++;
}

static const char *get_program(void)
{
	const char *program = getenv("HPZ_TEST_HPZD");
	assert_non_null(program);
	return program;
}

static void open_crew(const char *program)
{
	memset(&got, 0, sizeof got);
	is_stopped = false;
	assert_int_equal(uv_loop_init(&loop), 0);
	assert_int_equal(crew_init(&loop, program, &crew), 0);
}

static void on_stopped(void *user)
{
	is_stopped = true;
}

static void close_crew(void)
{
	crew_stop(crew, on_stopped, NULL);
	assert_int_equal(uv_run(&loop, UV_RUN_DEFAULT), 0);
	assert_true(is_stopped);
	crew_free(crew);
	assert_int_equal(uv_loop_close(&loop), 0);
}

static int setup(void **state)
{
	log_set_level(LOG_LEVEL_ERROR);
	open_crew(get_program());
	return 0;
}

static int teardown(void **state)
{
	close_crew();
	/* Nobody is left to wait for. */
	assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
	return 0;
}

/* ---- the loop ---- */

static void on_alarm(uv_timer_t *timer)
{
	*(bool *)timer->data = true;
}

/* Runs the loop until so many answers are there; a deadline ends the test. */
static void wait_for(bool (*condition)(void *user), void *user)
{
	bool is_late = false;
	uv_timer_t alarm_timer;

	uv_timer_init(&loop, &alarm_timer);
	alarm_timer.data = &is_late;
	uv_timer_start(&alarm_timer, on_alarm, SECONDS * 1000, 0);
	while (!condition(user) && !is_late)
		uv_run(&loop, UV_RUN_ONCE);
	uv_close((uv_handle_t *)&alarm_timer, NULL);
	uv_run(&loop, UV_RUN_NOWAIT);
	if (is_late)
		fail_msg("nothing happened in %d s", SECONDS);
}

static bool has_answers(void *user)
{
	return got.count >= *(size_t *)user;
}

static void wait_answers(size_t count)
{
	wait_for(has_answers, &count);
}

static bool is_past(void *user)
{
	return clock_get_ns(CLOCK_MONOTONIC) >= *(uint64_t *)user;
}

static void run_for(uint64_t ms)
{
	uint64_t until = clock_get_ns(CLOCK_MONOTONIC) + ms * NS_PER_MS;
	uv_timer_t wake;
	bool is_awake = false;

	uv_timer_init(&loop, &wake);
	wake.data = &is_awake;
	uv_timer_start(&wake, on_alarm, ms + 1, 5); /* again: the loop's clock may be behind */
	wait_for(is_past, &until);
	uv_close((uv_handle_t *)&wake, NULL);
	uv_run(&loop, UV_RUN_NOWAIT);
}

/* Only for a job whose worker is stopped: an answer would be the end of the job. */
static bool is_started(void *user)
{
	return ((struct crew_job *)user)->started_ns > 0;
}

/* ---- jobs ---- */

static int make_file(void)
{
	int fd = memfd_create("test", MFD_CLOEXEC);
	assert_true(fd >= 0);
	return fd;
}

/* A file that a job will own, and a copy to look at it. */
static struct crew_job *make_job(enum worker_op op, uint64_t pages, int *ret_look)
{
	struct crew_job *job = crew_new_job(WORKER_MEMORY, op);
	int fd = make_file();

	assert_non_null(job);
	if (ret_look)
		*ret_look = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	job->fds[WORKER_FD_SEGMENT] = fd;
	job->wire.page_size = PAGE;
	job->wire.length = pages;
	job->wire.method = (int32_t)zero_method_count - 1;
	job->done = on_done;
	job->node = 0;
	return job;
}

/* Of a helper. Looks through /proc, or opens nothing at all. */
static struct crew_job *make_helper_job(enum worker_op op)
{
	struct crew_job *job = crew_new_job(WORKER_HELPER, op);
	assert_non_null(job);
	job->done = on_done;
	return job;
}

static uint64_t get_size(int fd)
{
	struct stat st;
	assert_int_equal(fstat(fd, &st), 0);
	return (uint64_t)st.st_size;
}

/* ---- the workers, by the list that the next hpzd would read ---- */

static char run_dir[TEMP_PATH];

static int setup_with_list(void **state)
{
	temp_make(run_dir);
	setup(state);
	assert_int_equal(crew_open_list(crew, run_dir), 0);
	crew_set_hold(crew, false);
	return 0;
}

static int teardown_with_list(void **state)
{
	teardown(state);
	temp_remove(run_dir);
	return 0;
}

/* The last worker that was started. */
static pid_t get_last_pid(const char *where, unsigned *ret_lines)
{
	char *text = temp_read(where, "workers", NULL);
	pid_t pid = 0;
	unsigned lines = 0;

	for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"), lines++)
		pid = atoi(line);
	free(text);
	if (ret_lines)
		*ret_lines = lines;
	return pid;
}

static pid_t get_pid(void)
{
	pid_t pid = get_last_pid(run_dir, NULL);
	assert_true(pid > 1);
	return pid;
}

/* Has one worker, idle; its pid. */
static pid_t start_one(void)
{
	size_t before = got.count;
	crew_submit(crew, make_job(WORKER_FILL, 1, NULL));
	wait_answers(before + 1);
	assert_int_equal(got.answers[before].done.error, 0);
	return get_pid();
}

/* Field `number` (from 1) of /proc/PID/stat. */
static long get_stat(pid_t pid, int number)
{
	char path[64], text[1024] = "";

	snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
	FILE *file = fopen(path, "re");
	assert_non_null(file);
	assert_non_null(fgets(text, sizeof text, file));
	fclose(file);
	char *at = strrchr(text, ')') + 2;
	for (int i = 3; i < number; i++)
		at = strchr(at, ' ') + 1;
	return (*at >= '0' && *at <= '9') || *at == '-' ? atol(at) : *at;
}

static void stop_process(pid_t pid)
{
	assert_int_equal(kill(pid, SIGSTOP), 0);
	for (int i = 0; i < 2000; i++) {
		char path[64], text[256] = "";
		snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
		FILE *file = fopen(path, "re");
		assert_non_null(file);
		assert_non_null(fgets(text, sizeof text, file));
		fclose(file);
		if (strrchr(text, ')')[2] == 'T')
			return;
		usleep(1000);
	}
	fail_msg("process %d does not stop", (int)pid);
}

/* ---- plain work ---- */

static void test_job(void **state)
{
	int look, lock = make_file();
	struct crew_job *job = make_job(WORKER_FILL, 3, &look);

	job->fds[WORKER_FD_LOCK] = lock;
	job->user = &look;
	crew_submit(crew, job);
	assert_int_equal(got.count, 0); /* never from inside */
	assert_int_equal(crew_get_queued(crew, WORKER_MEMORY), 1);
	assert_int_equal(crew_get_worker_count(crew), 0);
	wait_answers(1);
	assert_ptr_equal(got.answers[0].job, job);
	assert_ptr_equal(got.answers[0].user, &look);
	assert_int_equal(got.answers[0].done.error, 0);
	assert_int_equal(got.answers[0].done.bytes, 3 * PAGE);
	assert_int_equal(get_size(look), 3 * PAGE);
	assert_int_equal(crew_get_queued(crew, WORKER_MEMORY), 0);
	assert_int_equal(crew_get_worker_count(crew), 1);
	assert_int_equal(crew_get_deaths(crew), 0);
	/* The lock was lent. */
	assert_true(fcntl(lock, F_GETFD) >= 0);
	close(lock);
	close(look);
}

static void test_never_submitted(void **state)
{
	struct crew_job *job = make_job(WORKER_FILL, 3, NULL);
	int fd = job->fds[WORKER_FD_SEGMENT], lock = make_file();

	job->fds[WORKER_FD_LOCK] = lock;
	crew_free_job(job);
	crew_free_job(NULL);
	assert_int_equal(fcntl(fd, F_GETFD), -1);
	assert_true(fcntl(lock, F_GETFD) >= 0);
	close(lock);
}

static void test_order(void **state)
{
	struct crew_job *jobs[4];

	for (size_t i = 0; i < 4; i++) {
		jobs[i] = make_job(WORKER_FILL, i + 1, NULL);
		if (i == 2)
			jobs[i]->level = WORKER_LEVEL_URGENT;
		crew_submit(crew, jobs[i]);
	}
	wait_answers(4);
	assert_ptr_equal(got.answers[0].job, jobs[2]);
	assert_ptr_equal(got.answers[1].job, jobs[0]);
	assert_ptr_equal(got.answers[2].job, jobs[1]);
	assert_ptr_equal(got.answers[3].job, jobs[3]);
	assert_int_equal(crew_get_worker_count(crew), 1);
}

/* Without an answer wanted, and from inside an answer. */
static void submit_again(struct crew_job *job, const struct worker_done *done, void *user)
{
	on_done(job, done, user);
	crew_submit(crew, make_job(WORKER_FILL, 2, NULL));
}

static void test_submit_from_answer(void **state)
{
	struct crew_job *job = make_job(WORKER_FILL, 1, NULL), *silent = make_job(WORKER_FILL, 1, NULL);

	silent->done = NULL;
	job->done = submit_again;
	crew_submit(crew, silent);
	crew_submit(crew, job);
	wait_answers(2);
	assert_int_equal(got.answers[1].done.bytes, 2 * PAGE);
}

static void test_error_is_an_answer(void **state)
{
	struct crew_job *job = make_job(WORKER_CLEAR, 1, NULL);

	job->wire.method = 77;
	crew_submit(crew, job);
	job = make_helper_job(WORKER_TRIM); /* without a descriptor */
	crew_submit(crew, job);
	wait_answers(2);
	for (size_t i = 0; i < 2; i++)
		assert_int_equal(
			got.answers[i].done.error, got.answers[i].done.op == WORKER_CLEAR ? -EINVAL : -EBADF);
	assert_int_equal(crew_get_deaths(crew), 0);
}

static bool is_four_workers(void *user)
{
	return crew_get_worker_count(crew) == 4;
}

static void test_several_workers(void **state)
{
	struct crew_job *job;

	crew_set_size(crew, 0, 3);
	for (int i = 0; i < 3; i++)
		crew_submit(crew, make_job(WORKER_FILL, 1, NULL));
	job = make_job(WORKER_FILL, 1, NULL);
	job->node = 7; /* another node has its own */
	crew_submit(crew, job);
	wait_for(is_four_workers, NULL);
	wait_answers(4);
	crew_set_size(crew, 0, 0); /* less than one is one */
	crew_submit(crew, make_job(WORKER_FILL, 1, NULL));
	wait_answers(5);
}

static void test_calibrate(void **state)
{
	struct crew_job *job = make_job(WORKER_CALIBRATE, 0, NULL);

	job->fds[WORKER_FD_SEGMENT] = close_fd(job->fds[WORKER_FD_SEGMENT]);
	crew_submit(crew, job);
	wait_answers(1);
	assert_int_equal(got.answers[0].done.error, 0);
	assert_true(got.answers[0].done.method >= 0);
}

/* ---- helpers ---- */

static bool is_one_worker(void *user)
{
	return crew_get_worker_count(crew) <= 1;
}

/* One that answers is enough, however many wait: all are given to it. */
static void test_helpers(void **state)
{
	crew_submit(crew, make_helper_job(WORKER_HOLDERS));
	wait_answers(1);
	for (int i = 0; i < 40; i++)
		crew_submit(crew, make_helper_job(WORKER_TRIM)); /* opens nothing: over at once */
	assert_int_equal(crew_get_queued(crew, WORKER_HELPER), 40);
	unsigned most = 0;
	while (got.count < 41) {
		wait_answers(got.count + 1);
		most = MAX(most, crew_get_worker_count(crew));
	}
	/* On a busy machine it may answer late, and a few more come: never one a job. */
	assert_true(most >= 1 && most <= 10);
	/* All but one go home. */
	wait_for(is_one_worker, NULL);
	assert_int_equal(crew_get_deaths(crew), 0);
}

static void test_partial(void **state)
{
	int fd = make_file();
	struct stat st;
	pid_t child = fork();

	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		pause();
		_exit(0);
	}
	assert_int_equal(fstat(fd, &st), 0);
	for (int is_wanted = 0; is_wanted < 2; is_wanted++) {
		struct crew_job *job = make_helper_job(WORKER_HOLDERS);
		job->wire.dev = st.st_dev;
		job->wire.ino = st.st_ino;
		job->partial = is_wanted ? on_partial : NULL;
		crew_submit(crew, job);
		wait_answers((size_t)is_wanted + 1);
		assert_int_equal(got.answers[is_wanted].done.holder_count, 1);
		assert_int_equal(got.answers[is_wanted].done.holders[0].pid, child);
		assert_int_equal(got.partial_count, is_wanted);
	}
	kill(child, SIGKILL);
	assert_int_equal(waitpid(child, NULL, 0), child);
	close(fd);
}

/* ---- death ---- */

static void test_killed_while_busy(void **state)
{
	pid_t pid = start_one();
	int look;
	struct crew_job *job = make_job(WORKER_FILL, 5, &look), *next = make_job(WORKER_FILL, 6, NULL);

	stop_process(pid);
	crew_submit(crew, job);
	crew_submit(crew, next);
	wait_for(is_started, job);
	run_for(20);
	assert_int_equal(got.count, 1);
	assert_int_equal(kill(pid, SIGKILL), 0);
	wait_answers(2);
	assert_ptr_equal(got.answers[1].job, job);
	assert_int_equal(got.answers[1].done.error, -EOWNERDEAD);
	assert_int_equal(got.answers[1].done.op, WORKER_FILL);
	assert_int_equal(kill(pid, 0), -1);
	assert_int_equal(crew_get_deaths(crew), 1);
	/* The next one is served by another. */
	wait_answers(3);
	assert_ptr_equal(got.answers[2].job, next);
	assert_int_equal(got.answers[2].done.error, 0);
	assert_int_not_equal(get_pid(), pid);
	close(look);
}

static bool has_no_worker(void *user)
{
	return crew_get_worker_count(crew) == 0;
}

static void test_killed_while_idle(void **state)
{
	pid_t pid = start_one();

	assert_int_equal(kill(pid, SIGKILL), 0);
	wait_for(has_no_worker, NULL);
	assert_int_equal(crew_get_deaths(crew), 1);
	assert_int_not_equal(start_one(), pid);
}

/* Killed, but hpzd has not noticed yet: the job finds it out and goes to another. */
static void test_dead_but_not_noticed(void **state)
{
	pid_t pid = start_one();
	siginfo_t info;

	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
	crew_submit(crew, make_job(WORKER_FILL, 5, NULL));
	wait_answers(2);
	/* Depending on what is looked at first it was given in vain, or not given at all. */
	int error = got.answers[1].done.error;
	assert_true(error == 0 || error == -EOWNERDEAD);
}

/* What it said before it died counts. */
static void test_answered_before_death(void **state)
{
	pid_t pid = start_one();
	int look;
	struct crew_job *job = make_job(WORKER_FILL, 5, &look);
	siginfo_t info;

	stop_process(pid);
	crew_submit(crew, job);
	wait_for(is_started, job);
	assert_int_equal(kill(pid, SIGCONT), 0);
	for (int i = 0; get_size(look) == 0 || get_stat(pid, 3) != 'S'; i++) {
		assert_true(i < 5000);
		usleep(1000);
	}
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
	wait_answers(2);
	assert_int_equal(got.answers[1].done.error, 0);
	wait_for(has_no_worker, NULL);
	close(look);
}

static void test_deadline(void **state)
{
	struct crew_job *job = make_helper_job(WORKER_HOLDERS);

	crew_submit(crew, job);
	wait_answers(1);
	pid_t pid = get_pid();
	stop_process(pid);
	job = make_helper_job(WORKER_HOLDERS);
	job->deadline_ms = 60;
	crew_submit(crew, job);
	wait_for(is_started, job);
	uint64_t start_ns = clock_get_ns(CLOCK_MONOTONIC);
	wait_answers(2);
	assert_int_equal(got.answers[1].done.error, -ETIMEDOUT);
	assert_true(clock_get_ns(CLOCK_MONOTONIC) - start_ns >= 50 * NS_PER_MS);
	/* Only when it was dead, and reaped. */
	assert_int_equal(kill(pid, 0), -1);
	assert_int_equal(errno, ESRCH);
	assert_int_equal(crew_get_deaths(crew), 0); /* our own doing */
	/* While it was held up another served, and a deadline that is kept costs nothing. */
	job = make_helper_job(WORKER_HOLDERS);
	job->deadline_ms = SECONDS * 1000;
	crew_submit(crew, job);
	wait_answers(3);
	assert_int_equal(got.answers[2].done.error, 0);
}

static void test_held_up_helper_holds_up_nobody(void **state)
{
	struct crew_job *held = make_helper_job(WORKER_HOLDERS);

	crew_submit(crew, make_helper_job(WORKER_HOLDERS));
	wait_answers(1);
	stop_process(get_pid());
	held->deadline_ms = 3000;
	crew_submit(crew, held);
	wait_for(is_started, held);
	for (size_t i = 0; i < 3; i++) {
		crew_submit(crew, make_helper_job(WORKER_HOLDERS));
		wait_answers(i + 2);
		assert_ptr_not_equal(got.answers[i + 1].job, held);
	}
	wait_answers(5);
	assert_ptr_equal(got.answers[4].job, held);
	assert_int_equal(got.answers[4].done.error, -ETIMEDOUT);
}

/* ---- cancel, hold ---- */

static void test_cancel_queued(void **state)
{
	struct crew_job *job = make_job(WORKER_FILL, 5, NULL), *other = make_job(WORKER_FILL, 6, NULL);
	int fd = job->fds[WORKER_FD_SEGMENT];

	crew_submit(crew, job);
	crew_submit(crew, other);
	crew_cancel(crew, job);
	assert_int_equal(got.count, 1);
	assert_ptr_equal(got.answers[0].job, job);
	assert_int_equal(got.answers[0].done.error, -ECANCELED);
	assert_int_equal(fcntl(fd, F_GETFD), -1);
	wait_answers(2);
	assert_ptr_equal(got.answers[1].job, other);
	assert_int_equal(got.answers[1].done.error, 0);
}

static void test_cancel_running(void **state)
{
	pid_t pid = start_one();
	struct crew_job *job = make_job(WORKER_FILL, 5, NULL);

	stop_process(pid);
	crew_submit(crew, job);
	wait_for(is_started, job);
	crew_cancel(crew, job);
	crew_cancel(crew, job); /* twice is once */
	run_for(20);
	assert_int_equal(got.count, 1);
	assert_int_equal(kill(pid, SIGCONT), 0);
	wait_answers(2);
	assert_int_equal(got.answers[1].done.error, -ECANCELED);
	/* The next job of the same worker is none of that. */
	crew_submit(crew, make_job(WORKER_FILL, 5, NULL));
	wait_answers(3);
	assert_int_equal(got.answers[2].done.error, 0);
	assert_int_equal(get_pid(), pid);
}

static void test_hold(void **state)
{
	crew_set_hold(crew, true);
	crew_submit(crew, make_job(WORKER_FILL, 5, NULL));
	crew_submit(crew, make_helper_job(WORKER_HOLDERS));
	run_for(50);
	assert_int_equal(got.count, 0);
	assert_int_equal(crew_get_worker_count(crew), 0);
	crew_set_hold(crew, false);
	wait_answers(2);
}

/* ---- stop ---- */

static void test_stop_idle(void **state)
{
	open_crew(get_program());
	close_crew();
	/* With queued jobs, and before any worker was started. */
	open_crew(get_program());
	crew_submit(crew, make_job(WORKER_FILL, 5, NULL));
	crew_submit(crew, make_helper_job(WORKER_HOLDERS));
	close_crew();
	assert_int_equal(got.count, 2);
	assert_int_equal(got.answers[0].done.error, -ECANCELED);
	assert_int_equal(got.answers[1].done.error, -ECANCELED);
	/* While it is held, and with a worker that has nothing to do. */
	open_crew(get_program());
	crew_submit(crew, make_job(WORKER_FILL, 5, NULL));
	wait_answers(1);
	crew_set_hold(crew, true);
	crew_submit(crew, make_job(WORKER_FILL, 5, NULL));
	close_crew();
	assert_int_equal(got.count, 2);
	assert_int_equal(got.answers[1].done.error, -ECANCELED);
}

static void go_on(uv_timer_t *timer)
{
	kill(*(pid_t *)timer->data, SIGCONT);
	uv_close((uv_handle_t *)timer, NULL);
}

static void test_stop_busy(void **state)
{
	pid_t pid;
	uv_timer_t later;

	temp_make(run_dir);
	open_crew(get_program());
	assert_int_equal(crew_open_list(crew, run_dir), 0);
	pid = start_one();
	stop_process(pid);
	struct crew_job *job = make_job(WORKER_FILL, 5, NULL), *queued = make_job(WORKER_FILL, 6, NULL);
	job->done = submit_again; /* somebody who does not give up: answered as well */
	crew_submit(crew, job);
	crew_submit(crew, queued);
	wait_for(is_started, job);
	uv_timer_init(&loop, &later);
	later.data = &pid;
	uv_timer_start(&later, go_on, 100, 0);
	close_crew();
	assert_int_equal(got.count, 4);
	for (size_t i = 1; i < 4; i++)
		assert_int_equal(got.answers[i].done.error, -ECANCELED);
	temp_remove(run_dir);
}

/* It dies instead of stopping. */
static void end_it(uv_timer_t *timer)
{
	kill(*(pid_t *)timer->data, SIGKILL);
	uv_close((uv_handle_t *)timer, NULL);
}

static void test_stop_and_death(void **state)
{
	pid_t pid;
	uv_timer_t later;

	temp_make(run_dir);
	open_crew(get_program());
	assert_int_equal(crew_open_list(crew, run_dir), 0);
	pid = start_one();
	stop_process(pid);
	struct crew_job *job = make_job(WORKER_FILL, 5, NULL);
	crew_submit(crew, job);
	wait_for(is_started, job);
	uv_timer_init(&loop, &later);
	later.data = &pid;
	uv_timer_start(&later, end_it, 50, 0);
	close_crew();
	assert_int_equal(got.count, 2);
	assert_int_equal(got.answers[1].done.error, -EOWNERDEAD);
	temp_remove(run_dir);
}

/* The last moment: the crew's own timer is being closed while somebody still submits. */
static void submit_late(uv_timer_t *timer)
{
	crew_submit(crew, make_job(WORKER_FILL, 5, NULL));
	uv_close((uv_handle_t *)timer, NULL);
}

static void stop_now(uv_timer_t *timer)
{
	crew_stop(crew, on_stopped, NULL);
	uv_close((uv_handle_t *)timer, NULL);
}

static void test_submit_while_closing(void **state)
{
	uv_timer_t stop, late;

	open_crew(get_program());
	uv_timer_init(&loop, &stop);
	uv_timer_init(&loop, &late);
	uv_timer_start(&stop, stop_now, 1, 0);
	uv_timer_start(&late, submit_late, 1, 0);
	uv_run(&loop, UV_RUN_DEFAULT);
	assert_true(is_stopped);
	assert_int_equal(got.count, 1);
	assert_int_equal(got.answers[0].done.error, -ECANCELED);
	crew_free(crew);
	assert_int_equal(uv_loop_close(&loop), 0);
}

/* ---- a program that cannot be started ---- */

static void test_no_program(void **state)
{
	log_set_level((enum log_level)0);
	open_crew("/nonexistent/hpzd");
	crew_submit(crew, make_job(WORKER_FILL, 5, NULL));
	run_for(700); /* tried twice */
	assert_int_equal(got.count, 0);
	assert_int_equal(crew_get_worker_count(crew), 0);
	close_crew();
	assert_int_equal(got.count, 1);
	assert_int_equal(got.answers[0].done.error, -ECANCELED);
	/* One that is no worker: it ends at once, and not thousands of times a second. */
	open_crew("/bin/true");
	crew_submit(crew, make_job(WORKER_FILL, 5, NULL));
	wait_answers(1);
	assert_int_equal(got.answers[0].done.error, -EOWNERDEAD);
	crew_submit(crew, make_job(WORKER_FILL, 5, NULL));
	crew_submit(crew, make_job(WORKER_FILL, 5, NULL));
	run_for(900);
	assert_true(crew_get_deaths(crew) <= 3);
	close_crew();
	assert_int_equal(got.count, 3);
	log_set_level(LOG_LEVEL_ERROR);
}

/* ---- levels ---- */

#define STAT_NICE   19
#define STAT_POLICY 41

/* Its worker says nothing: no event ends a turn of the loop. */
static void wait_started(struct crew_job *job)
{
	for (int i = 0; i < SECONDS * 200 && !is_started(job); i++)
		run_for(5);
	assert_true(is_started(job));
}

static struct crew_job *submit_level(enum worker_level level)
{
	struct crew_job *job = make_job(WORKER_FILL, 1, NULL);
	job->level = level;
	crew_submit(crew, job);
	return job;
}

/* A job is with its worker, which is stopped: what the crew does to it shows. */
static void test_levels(void **state)
{
	pid_t pid = start_one();
	struct crew_job *job;

	assert_int_equal(get_stat(pid, STAT_POLICY), SCHED_BATCH); /* refill, until somebody knows better */
	assert_int_equal(get_stat(pid, STAT_NICE), 3);
	stop_process(pid);
	job = submit_level(WORKER_LEVEL_IDLE);
	wait_started(job);
	assert_int_equal(get_stat(pid, STAT_POLICY), SCHED_IDLE);
	if (geteuid() == 0) { /* upwards only with privileges */
		crew_set_job_level(crew, job, WORKER_LEVEL_URGENT);
		assert_int_equal(get_stat(pid, STAT_POLICY), SCHED_OTHER);
		assert_int_equal(get_stat(pid, STAT_NICE), 0);
		crew_set_job_level(crew, job, WORKER_LEVEL_REFILL);
		assert_int_equal(get_stat(pid, STAT_POLICY), SCHED_BATCH);
		assert_int_equal(get_stat(pid, STAT_NICE), 3);
		crew_set_job_level(crew, job, WORKER_LEVEL_IDLE);
		assert_int_equal(get_stat(pid, STAT_POLICY), SCHED_IDLE);
		/* Whoever is to stop is lifted, or it would not see that; and stays so. */
		crew_cancel(crew, job);
		assert_int_equal(get_stat(pid, STAT_POLICY), SCHED_OTHER);
		crew_set_job_level(crew, job, WORKER_LEVEL_IDLE);
		assert_int_equal(get_stat(pid, STAT_POLICY), SCHED_OTHER);
	}
	assert_int_equal(kill(pid, SIGCONT), 0);
	wait_answers(2);
	/* Helpers are not lowered: whoever they wait for waits for them. */
	crew_submit(crew, make_helper_job(WORKER_HOLDERS));
	wait_answers(3);
	assert_int_equal(get_stat(get_pid(), STAT_POLICY), SCHED_OTHER);
}

/* A queued job whose level changes finds its place; among equals one that was begun comes first. */
static void test_queue_by_level(void **state)
{
	pid_t pid = start_one();
	struct crew_job *jobs[5];

	stop_process(pid);
	struct crew_job *running = submit_level(WORKER_LEVEL_URGENT);
	wait_started(running);
	jobs[0] = submit_level(WORKER_LEVEL_IDLE);
	jobs[1] = submit_level(WORKER_LEVEL_REFILL);
	jobs[2] = submit_level(WORKER_LEVEL_IDLE);
	jobs[3] = make_job(WORKER_FILL, 1, NULL);
	jobs[3]->wire.resume = PAGE;
	crew_submit(crew, jobs[3]);
	jobs[4] = submit_level(WORKER_LEVEL_IDLE);
	jobs[4]->is_background = true;
	crew_set_job_level(crew, jobs[2], WORKER_LEVEL_REFILL);
	crew_set_job_level(crew, jobs[2], WORKER_LEVEL_REFILL);
	assert_int_equal(crew_get_queued(crew, WORKER_MEMORY), 5);
	assert_int_equal(kill(pid, SIGCONT), 0);
	wait_answers(7);
	const size_t order[] = {3, 1, 2, 0, 4};
	for (size_t i = 0; i < 5; i++)
		assert_ptr_equal(got.answers[2 + i].job, jobs[order[i]]);
}

/* The least urgent is stopped for one that is more urgent; an urgent one has a worker of its own, too. */
static void test_yield(void **state)
{
	pid_t pid = start_one();
	struct crew_job *idle, *refill, *urgent;

	stop_process(pid);
	idle = submit_level(WORKER_LEVEL_IDLE);
	wait_started(idle);
	refill = submit_level(WORKER_LEVEL_REFILL);
	run_for(50);
	assert_true(idle->is_stopping);
	assert_int_equal(refill->started_ns, 0);
	assert_int_equal(crew_get_worker_count(crew), 1);
	urgent = submit_level(WORKER_LEVEL_URGENT);
	wait_answers(2); /* the urgent one: the other worker is still stopped */
	assert_ptr_equal(got.answers[1].job, urgent);
	assert_int_equal(kill(pid, SIGCONT), 0);
	wait_answers(4);
	wait_for(is_one_worker, NULL); /* the spare one went home */
}

static size_t get_pids(pid_t *ret_pids, size_t capacity)
{
	char *text = temp_read(run_dir, "workers", NULL);
	size_t count = 0;

	for (char *line = strtok(text, "\n"); line && count < capacity; line = strtok(NULL, "\n"))
		ret_pids[count++] = atoi(line);
	free(text);
	return count;
}

/* Fewer workers while they are at work: the surplus is stopped, and goes. */
static void test_fewer_workers(void **state)
{
	struct crew_job *jobs[3];
	pid_t pids[3];
	unsigned stopping = 0;

	crew_set_size(crew, 0, 3);
	assert_int_equal(crew_get_size(crew, 0), 3);
	assert_int_equal(crew_get_size(crew, 5), 1);
	for (size_t i = 0; i < 3; i++)
		submit_level(WORKER_LEVEL_REFILL);
	wait_answers(3);
	assert_int_equal(get_pids(pids, 3), 3);
	for (size_t i = 0; i < 3; i++)
		stop_process(pids[i]);
	for (size_t i = 0; i < 3; i++) {
		jobs[i] = submit_level(WORKER_LEVEL_REFILL);
		wait_started(jobs[i]);
	}
	crew_set_size(crew, 0, 1);
	for (size_t i = 0; i < 3; i++)
		stopping += jobs[i]->is_stopping;
	assert_int_equal(stopping, 2);
	for (size_t i = 0; i < 3; i++)
		assert_int_equal(kill(pids[i], SIGCONT), 0);
	wait_answers(6);
	wait_for(is_one_worker, NULL);
}

/* ---- the list, and what a dead hpzd left behind ---- */

static pid_t start_sleeper(void)
{
	pid_t pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			pause();
	}
	return pid;
}

static void test_leftovers(void **state)
{
	pid_t old = start_sleeper(), another = start_sleeper();
	const struct host host = {.root = (char *)""};
	uint64_t start = 0;
	char text[256];
	unsigned lines = 77;

	assert_int_equal(host_get_start_time(&host, old, &start), 0);
	/* The second number was given to somebody else since; then what can only be nonsense. */
	snprintf(text, sizeof text, "%d %" PRIu64 "\n%d %" PRIu64 "\n1 0\n-1 0\n0 0\n99999999 5\nnonsense\n",
		(int)old, start, (int)another, start + 100000);
	temp_make(run_dir);
	temp_put(run_dir, "workers", text);
	open_crew(get_program());
	crew_set_hold(crew, true);
	assert_int_equal(crew_open_list(crew, run_dir), 0);
	int status;
	assert_int_equal(waitpid(old, &status, 0), old);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	assert_int_equal(waitpid(another, &status, WNOHANG), 0);
	/* As long as it is not certain that they are gone the list stays: we may die as well. */
	assert_int_equal(get_last_pid(run_dir, &lines), 0);
	assert_int_equal(lines, 7);
	crew_set_hold(crew, false);
	assert_int_equal(get_last_pid(run_dir, &lines), 0);
	assert_int_equal(lines, 0);
	pid_t pid = start_one();
	assert_int_equal(get_last_pid(run_dir, &lines), pid);
	assert_int_equal(lines, 1);
	close_crew();
	/* And without ever having been held. */
	open_crew(get_program());
	assert_int_equal(crew_open_list(crew, run_dir), 0);
	crew_set_hold(crew, false);
	get_last_pid(run_dir, &lines);
	assert_int_equal(lines, 0);
	close_crew();
	kill(another, SIGKILL);
	waitpid(another, NULL, 0);
	temp_remove(run_dir);
}

/* Under a sanitizer a process takes its time to start: then there are not enough of them to prove anything.
 */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define HELPERS 10
#else
#define HELPERS 300
#endif

/* While the only helper is stopped another comes; then that one goes home. */
static void call_second_helper(pid_t pid)
{
	struct crew_job *held = make_helper_job(WORKER_TRIM);

	got.count = 0;
	stop_process(pid);
	crew_submit(crew, held);
	crew_submit(crew, make_helper_job(WORKER_TRIM));
	wait_answers(1);
	assert_ptr_not_equal(got.answers[0].job, held);
	assert_int_equal(kill(pid, SIGCONT), 0);
	wait_answers(2);
	wait_for(is_one_worker, NULL);
}

/* Helpers come and go as long as hpzd lives: the list knows those that live. */
static void test_list_stays_short(void **state)
{
	unsigned lines = 0, longest = 0;
	crew_submit(crew, make_helper_job(WORKER_TRIM));
	wait_answers(1);
	pid_t pid = get_pid();
	for (int i = 0; i < HELPERS; i++) {
		call_second_helper(pid);
		get_last_pid(run_dir, &lines);
		longest = MAX(longest, lines);
	}
	assert_true(longest > MIN(HELPERS, 200) && longest <= 256 + 32);
	/* The one that is left is in it. */
	char *text = temp_read(run_dir, "workers", NULL);
	bool is_there = false;
	for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
		is_there = is_there || kill(atoi(line), 0) == 0;
	free(text);
	assert_true(is_there);
}

static void test_list_cannot_be(void **state)
{
	open_crew(get_program());
	assert_int_equal(crew_open_list(crew, "/nonexistent"), -ENOENT);
	crew_set_hold(crew, false);
	crew_submit(crew, make_job(WORKER_FILL, 5, NULL));
	wait_answers(1);
	close_crew();
}

/* hpzd is killed: so is its worker, whatever it does, and the lock it held is free. */
static void test_death_of_hpzd(void **state)
{
	int lock, ready[2];
	char path[PATH_MAX], byte;

	temp_make(run_dir);
	temp_put(run_dir, "lock", "");
	temp_path(run_dir, "lock", path);
	lock = open(path, O_RDWR | O_CLOEXEC);
	assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
	pid_t hpzd = fork();
	if (hpzd == 0) {
		int held = open(path, O_RDWR | O_CLOEXEC);
		close(lock);
		flock(held, LOCK_SH);
		open_crew(get_program());
		crew_open_list(crew, run_dir);
		stop_process(start_one());
		struct crew_job *job = make_job(WORKER_FILL, 5, NULL);
		job->fds[WORKER_FD_LOCK] = held;
		crew_submit(crew, job);
		wait_for(is_started, job);
		if (write(ready[1], "", 1) == 1)
			pause();
		_exit(1);
	}
	close(ready[1]);
	assert_int_equal(read(ready[0], &byte, 1), 1);
	close(ready[0]);
	pid_t worker = get_pid();
	assert_int_equal(kill(worker, 0), 0);
	assert_int_equal(flock(lock, LOCK_EX | LOCK_NB), -1);
	assert_int_equal(kill(hpzd, SIGKILL), 0);
	assert_int_equal(waitpid(hpzd, NULL, 0), hpzd);
	for (int i = 0; flock(lock, LOCK_EX | LOCK_NB) < 0; i++) {
		assert_true(i < 5000);
		usleep(1000);
	}
	close(lock);
	temp_remove(run_dir);
}

/* ---- all descriptors in flight are held by somebody who never reads ---- */

#define CHILD_CHECK(condition)                                                                               \
	do {                                                                                                 \
		if (!(condition)) {                                                                          \
			fprintf(stderr, "line %d: not so: %s\n", __LINE__, #condition);                      \
			_exit(1);                                                                            \
		}                                                                                            \
	} while (0)

/* The limit is that of a user, for all processes: what another test of the same one has in flight passes. */
static int send_when_others_have_read(int socket, const int fds[], size_t count)
{
	uint64_t until = clock_get_ns(CLOCK_MONOTONIC) + SECONDS * NS_PER_S;
	int r;
	while ((r = frame_send(socket, "x", 1, fds, count)) == -ETOOMANYREFS &&
		clock_get_ns(CLOCK_MONOTONIC) < until)
		usleep(1000);
	return r;
}

static void be_starved(void)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct none[2] = {0};
	struct rlimit few = {64, 64};
	int pair[2], fds[100];

	open_crew(get_program());
	CHILD_CHECK(syscall(SYS_capset, &header, none) == 0);
	CHILD_CHECK(setrlimit(RLIMIT_NOFILE, &few) == 0);
	CHILD_CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0);
	for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
		fds[i] = pair[0];
	CHILD_CHECK(send_when_others_have_read(pair[1], fds, ARRAY_SIZE(fds)) == 0);
	CHILD_CHECK(frame_send(pair[1], "x", 1, fds, 1) == -ETOOMANYREFS);
	crew_submit(crew, make_job(WORKER_FILL, 5, NULL));
	run_for(300);
	CHILD_CHECK(got.count == 0);
	close(pair[0]);
	close(pair[1]); /* nobody asks for it: the crew comes back by itself */
	uint64_t until = clock_get_ns(CLOCK_MONOTONIC) + SECONDS * NS_PER_S;
	while (got.count == 0 && clock_get_ns(CLOCK_MONOTONIC) < until)
		run_for(20);
	CHILD_CHECK(got.count == 1 && got.answers[0].done.error == 0);
	crew_stop(crew, on_stopped, NULL);
	uv_run(&loop, UV_RUN_DEFAULT);
	CHILD_CHECK(is_stopped);
	_exit(0);
}

static void test_starved_of_descriptors(void **state)
{
	int status;
	pid_t child = fork();

	if (child == 0)
		be_starved();
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

#define TEST(name)      cmocka_unit_test_setup_teardown(name, setup, teardown)
#define TEST_LIST(name) cmocka_unit_test_setup_teardown(name, setup_with_list, teardown_with_list)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_job),
		TEST(test_never_submitted),
		TEST(test_order),
		TEST(test_submit_from_answer),
		TEST(test_error_is_an_answer),
		TEST(test_several_workers),
		TEST(test_calibrate),
		TEST(test_helpers),
		TEST(test_partial),
		TEST_LIST(test_killed_while_busy),
		TEST_LIST(test_killed_while_idle),
		TEST_LIST(test_dead_but_not_noticed),
		TEST_LIST(test_answered_before_death),
		TEST_LIST(test_deadline),
		TEST_LIST(test_held_up_helper_holds_up_nobody),
		TEST(test_cancel_queued),
		TEST_LIST(test_cancel_running),
		TEST(test_hold),
		cmocka_unit_test(test_stop_idle),
		cmocka_unit_test(test_stop_busy),
		cmocka_unit_test(test_stop_and_death),
		cmocka_unit_test(test_submit_while_closing),
		cmocka_unit_test(test_no_program),
		TEST_LIST(test_levels),
		TEST_LIST(test_queue_by_level),
		TEST_LIST(test_yield),
		TEST_LIST(test_fewer_workers),
		cmocka_unit_test(test_leftovers),
		TEST_LIST(test_list_stays_short),
		cmocka_unit_test(test_list_cannot_be),
		cmocka_unit_test(test_death_of_hpzd),
		cmocka_unit_test(test_starved_of_descriptors),
	};
	return cmocka_run_group_tests_name("crew", tests, NULL, NULL);
}
