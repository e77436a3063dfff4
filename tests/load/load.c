/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * load.c - clients of an hpzd, half of them hostile: what the others feel of it.
 *
 *   load SOCKET CLIENTS SECONDS ROUNDS CORPUS USER
 *
 * Half of the clients lease 2 MiB and release it, now and then, each on its own connection; how long each
 * call takes is the figure, without the hostile half and with it, in turn. The hostile ones are of another
 * user (USER, a number; 0: of our own) and take what is left of the CPUs, as it is hpzd's own time that is
 * measured. They do, each kind as fast as it can: send what is in CORPUS, and nonsense; send and never read;
 * ask for 253 descriptors and never take them; make the files that they have longer and shorter; connect and
 * leave; say half a hello. Prints one line of JSON. Exit status 1 if one of the others was refused or lost.
 */
#include <dirent.h>
#include <fcntl.h>
#include <grp.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "hpz.h"
#include "proto.h"
#include "util.h"

#define PAGE           ((uint64_t)2 << 20)
#define THREADS        4
#define CALLS_PER_S    800 /* of all of them together */
#define WARM_UP_MS     1500
#define PATIENCE_MS    60000
#define INPUTS_MAX     1024
#define ROUNDS_MAX     64
#define SAMPLES_MAX    ((size_t)1 << 20)
#define NONSENSE       64
#define COMPLAINTS_MAX 5

static const char *socket_path;
static unsigned honest, hostile, seconds;

static void die(const char *what)
{
	fprintf(stderr, "load: %s: %s\n", what, strerror(errno));
	exit(2);
}

static void sleep_ms(unsigned ms)
{
	nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000 * NS_PER_MS)}, NULL);
}

/* ---- those who keep to the rules ---- */

struct tenant_thread {
	pthread_t thread;
	unsigned first, count;
	struct hpz **handles;
	uint64_t end_ns;
	uint64_t *samples;
	size_t sample_count;
	unsigned refused, lost;
};

static void complain(const char *what)
{
	static _Atomic unsigned count;

	if (count++ < COMPLAINTS_MAX)
		fprintf(stderr, "load: %s\n", what);
}

static void note(struct tenant_thread *thread, uint64_t begin_ns, int error)
{
	if (error == HPZ_ERR_LOST || error == HPZ_ERR_NOT_RUNNING)
		thread->lost++;
	else if (error)
		thread->refused++;
	if (error)
		complain(hpz_strerror(error));
	else if (thread->sample_count < SAMPLES_MAX / THREADS)
		thread->samples[thread->sample_count++] = clock_get_ns(CLOCK_MONOTONIC) - begin_ns;
}

static void use_once(struct tenant_thread *thread, struct hpz *hpz)
{
	struct hpz_lease_request request = HPZ_LEASE_REQUEST_INIT;
	struct hpz_lease *lease = NULL;
	uint64_t begin_ns = clock_get_ns(CLOCK_MONOTONIC);

	request.size = PAGE;
	request.timeout_ms = PATIENCE_MS;
	int error = hpz_lease(hpz, &request, &lease);
	note(thread, begin_ns, error);
	if (error)
		return;
	uint64_t id = hpz_lease_get_id(lease);
	hpz_lease_free(lease);
	begin_ns = clock_get_ns(CLOCK_MONOTONIC);
	note(thread, begin_ns, hpz_release(hpz, id, 0, 0));
}

static void *run_tenants(void *data)
{
	struct tenant_thread *thread = data;
	const uint64_t pause_ns = 2 * THREADS * NS_PER_S / CALLS_PER_S;

	/* The connection is part of it. */
	for (unsigned i = 0; i < thread->count; i++) {
		int error = hpz_connect(socket_path, &thread->handles[i]);
		if (error) {
			thread->refused++;
			complain(hpz_strerror(error));
		}
	}
	for (unsigned i = 0; clock_get_ns(CLOCK_MONOTONIC) < thread->end_ns; i = (i + 1) % thread->count) {
		if (thread->handles[i])
			use_once(thread, thread->handles[i]);
		nanosleep(&(struct timespec){.tv_nsec = (long)pause_ns}, NULL);
	}
	for (unsigned i = 0; i < thread->count; i++)
		hpz_close(thread->handles[i]);
	return NULL;
}

static int compare_samples(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

struct figures {
	double p99_us;
	unsigned refused, lost;
};

static void run_phase(struct figures *figures)
{
	static uint64_t samples[SAMPLES_MAX];
	struct tenant_thread threads[THREADS] = {{0}};
	size_t count = 0;

	for (unsigned i = 0; i < THREADS; i++) {
		struct tenant_thread *thread = &threads[i];
		thread->count = honest / THREADS + (i < honest % THREADS);
		thread->handles = calloc(MAX(thread->count, 1u), sizeof(struct hpz *));
		thread->samples = malloc(SAMPLES_MAX / THREADS * sizeof *thread->samples);
		thread->end_ns = clock_get_ns(CLOCK_MONOTONIC) + seconds * NS_PER_S;
		if (!thread->handles || !thread->samples ||
			pthread_create(&thread->thread, NULL, run_tenants, thread) != 0)
			die("threads");
	}
	for (unsigned i = 0; i < THREADS; i++) {
		struct tenant_thread *thread = &threads[i];
		pthread_join(thread->thread, NULL);
		memcpy(samples + count, thread->samples, thread->sample_count * sizeof *samples);
		count += thread->sample_count;
		figures->refused += thread->refused;
		figures->lost += thread->lost;
		free(thread->samples);
		free(thread->handles);
	}
	qsort(samples, count, sizeof *samples, compare_samples);
	figures->p99_us = count ? (double)samples[count - 1 - count / 100] / 1000 : 0;
}

/* ---- those who do not ---- */

static struct {
	uint8_t *bytes;
	size_t length;
} inputs[INPUTS_MAX];
static size_t input_count;

/* The corpus of tests/fuzz: an operation and its payload; 0: a whole message. */
static void read_input(const char *directory, const char *name)
{
	char path[512];
	uint8_t bytes[HPZ_WIRE_MAX_REQUEST];

	snprintf(path, sizeof path, "%s/%s", directory, name);
	_cleanup_fd_ int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, bytes, sizeof bytes - sizeof(struct hpz_wire_head));
	if (n < 2 || input_count == INPUTS_MAX)
		return;
	size_t payload = (size_t)n - 1, head = bytes[0] ? sizeof(struct hpz_wire_head) : 0;
	uint8_t *message = malloc(head + payload);
	if (!message)
		die("no memory");
	memcpy(message + head, bytes + 1, payload);
	if (head)
		proto_set_head(message, bytes[0], 1, false, 0, 0, payload);
	inputs[input_count].bytes = message;
	inputs[input_count++].length = head + payload;
}

static void read_corpus(const char *directory)
{
	DIR *dir = opendir(directory);
	struct dirent *entry;

	if (!dir)
		die(directory);
	while ((entry = readdir(dir)))
		read_input(directory, entry->d_name);
	closedir(dir);
	if (!input_count)
		die("the corpus is empty");
}

struct attacker {
	int sock, file;
	unsigned step;
};

static size_t make_hello(uint8_t *message)
{
	struct hpz_wire_hello hello = {.size = sizeof hello,
		.magic = HPZ_WIRE_MAGIC,
		.version = HPZ_WIRE_VERSION,
		.compat = HPZ_WIRE_COMPAT,
		.max_message = HPZ_WIRE_MAX_MESSAGE,
		.max_request = HPZ_WIRE_MAX_REQUEST,
		.max_descriptors = HPZ_WIRE_MAX_FDS};

	memcpy(message + sizeof(struct hpz_wire_head), &hello, sizeof hello);
	return proto_set_head(message, HPZ_OP_HELLO, 1, false, 0, 0, sizeof hello);
}

static size_t make_lease(uint8_t *message, uint32_t count)
{
	struct hpz_wire_lease lease = {.size = sizeof lease,
		.bytes = PAGE,
		.node = HPZ_WIRE_NODE_ANY,
		.count = count,
		.owner_uid = -1,
		.owner_gid = -1};

	memcpy(message + sizeof(struct hpz_wire_head), &lease, sizeof lease);
	return proto_set_head(message, HPZ_OP_LEASE, 2, false, 0, 0, sizeof lease);
}

static size_t make_status(uint8_t *message)
{
	struct hpz_wire_empty empty = {.size = sizeof empty};

	memcpy(message + sizeof(struct hpz_wire_head), &empty, sizeof empty);
	return proto_set_head(message, HPZ_OP_STATUS, 3, false, 0, 0, sizeof empty);
}

static void leave(struct attacker *attacker)
{
	attacker->sock = close_fd(attacker->sock);
	attacker->file = close_fd(attacker->file);
	attacker->step = 0;
}

/* What does not work at once is not waited for; 0: there is no connection. */
static bool come(struct attacker *attacker, bool greets)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	uint8_t message[HPZ_WIRE_MAX_REQUEST];

	if (attacker->sock >= 0)
		return true;
	attacker->sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	snprintf(address.sun_path, sizeof address.sun_path, "%s", socket_path);
	if (attacker->sock < 0 ||
		connect(attacker->sock, (const struct sockaddr *)&address, sizeof address) < 0 ||
		(greets && send(attacker->sock, message, make_hello(message), MSG_NOSIGNAL) < 0)) {
		leave(attacker);
		return false;
	}
	return true;
}

/* False: it has been shown the door. */
static bool say(struct attacker *attacker, const void *message, size_t length)
{
	if (send(attacker->sock, message, length, MSG_NOSIGNAL) >= 0 || errno == EAGAIN)
		return true;
	leave(attacker);
	return false;
}

static void drop_answers(struct attacker *attacker)
{
	uint8_t byte;

	while (attacker->sock >= 0 && recv(attacker->sock, &byte, 1, MSG_TRUNC) > 0)
		continue;
}

static void attack_with_corpus(struct attacker *attacker, unsigned round)
{
	uint8_t nonsense[NONSENSE];

	if (!come(attacker, true))
		return;
	drop_answers(attacker);
	if (round % 16 == 0) {
		for (size_t i = 0; i < sizeof nonsense; i++)
			nonsense[i] = (uint8_t)rand();
		say(attacker, nonsense, sizeof nonsense);
	} else {
		size_t i = (size_t)rand() % input_count;
		say(attacker, inputs[i].bytes, inputs[i].length);
	}
}

static void attack_by_silence(struct attacker *attacker, unsigned round)
{
	uint8_t message[HPZ_WIRE_MAX_REQUEST];

	if (come(attacker, true))
		say(attacker, message, make_status(message));
}

static void attack_by_descriptors(struct attacker *attacker, unsigned round)
{
	uint8_t message[HPZ_WIRE_MAX_REQUEST];

	if (come(attacker, true) && attacker->step < 3) {
		attacker->step++;
		say(attacker, message, make_lease(message, HPZ_WIRE_MAX_FDS));
	}
}

/* Takes the one descriptor that is there. */
static void take_file(struct attacker *attacker)
{
	uint8_t message[8192];
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control;
	struct iovec part = {message, sizeof message};
	struct msghdr header = {
		.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};

	if (recvmsg(attacker->sock, &header, MSG_CMSG_CLOEXEC) <= 0)
		return;
	struct cmsghdr *first = CMSG_FIRSTHDR(&header);
	if (first && first->cmsg_type == SCM_RIGHTS)
		memcpy(&attacker->file, CMSG_DATA(first), sizeof attacker->file);
}

static void attack_by_growth(struct attacker *attacker, unsigned round)
{
	uint8_t message[HPZ_WIRE_MAX_REQUEST];

	if (!come(attacker, true))
		return;
	if (attacker->file < 0) {
		if (attacker->step++ == 0)
			say(attacker, message, make_lease(message, 0));
		else
			take_file(attacker);
		return;
	}
	/* Pages cost those who have none; lengths are free. */
	if (ftruncate(attacker->file, (off_t)(PAGE * (round % 2 ? 1u : 64u))) < 0)
		leave(attacker);
}

static void attack_and_leave(struct attacker *attacker, unsigned round)
{
	if (come(attacker, round % 2))
		leave(attacker);
}

static void attack_with_halves(struct attacker *attacker, unsigned round)
{
	uint8_t message[HPZ_WIRE_MAX_REQUEST];

	if (come(attacker, false)) {
		size_t length = make_hello(message);
		if (say(attacker, message, length / 2))
			drop_answers(attacker);
	}
}

static void (*const attacks[])(struct attacker *attacker, unsigned round) = {attack_with_corpus,
	attack_by_silence, attack_by_descriptors, attack_by_growth, attack_and_leave, attack_with_halves};

static void run_attack(size_t kind, unsigned count, uid_t user, pid_t parent)
{
	struct attacker *attackers = calloc(MAX(count, 1u), sizeof *attackers);

	if (!attackers || (user && (setgroups(0, NULL) < 0 || setgid(user) < 0 || setuid(user) < 0)))
		die("attackers");
	/* Behind setuid(), which forgets it. */
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || setpriority(PRIO_PROCESS, 0, 19) < 0)
		die("attackers");
	if (getppid() != parent)
		_exit(0);
	srand((unsigned)kind + 1);
	for (unsigned i = 0; i < count; i++)
		attackers[i] = (struct attacker){-1, -1, 0};
	for (unsigned round = 0;; round++) {
		for (unsigned i = 0; i < count; i++)
			attacks[kind](&attackers[i], round);
		if (count == 0)
			pause();
	}
}

static void start_attack(pid_t children[ARRAY_SIZE(attacks)], uid_t user)
{
	pid_t parent = getpid();

	for (size_t kind = 0; kind < ARRAY_SIZE(attacks); kind++) {
		unsigned count = hostile / ARRAY_SIZE(attacks) + (kind < hostile % ARRAY_SIZE(attacks));
		children[kind] = fork();
		if (children[kind] < 0)
			die("fork");
		if (children[kind] == 0)
			run_attack(kind, count, user, parent);
	}
	sleep_ms(WARM_UP_MS);
}

/* One that has ended by itself has not attacked. */
static bool stop_attack(const pid_t children[ARRAY_SIZE(attacks)])
{
	bool is_good = true;
	int status;

	for (size_t kind = 0; kind < ARRAY_SIZE(attacks); kind++)
		kill(children[kind], SIGKILL);
	for (size_t kind = 0; kind < ARRAY_SIZE(attacks); kind++)
		is_good &= waitpid(children[kind], &status, 0) == children[kind] && WIFSIGNALED(status) &&
			   WTERMSIG(status) == SIGKILL;
	sleep_ms(WARM_UP_MS);
	return is_good;
}

/* ---- both ---- */

static int compare_figures(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double get_median(double *values, size_t count)
{
	qsort(values, count, sizeof *values, compare_figures);
	return values[count / 2];
}

int main(int argc, char **argv)
{
	double quiet[ROUNDS_MAX], loaded[ROUNDS_MAX], ratios[ROUNDS_MAX];
	pid_t children[ARRAY_SIZE(attacks)];
	struct figures sum = {0};
	struct rlimit limit;

	if (argc != 7 || atoi(argv[2]) < 2 || atoi(argv[4]) < 1 || atoi(argv[4]) > ROUNDS_MAX) {
		fprintf(stderr, "usage: %s SOCKET CLIENTS SECONDS ROUNDS CORPUS USER\n", argv[0]);
		return 2;
	}
	socket_path = argv[1];
	hostile = (unsigned)atoi(argv[2]) / 2;
	honest = (unsigned)atoi(argv[2]) - hostile;
	seconds = (unsigned)atoi(argv[3]);
	size_t rounds = (size_t)atoi(argv[4]);
	read_corpus(argv[5]);
	if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
		limit.rlim_cur = limit.rlim_max;
		setrlimit(RLIMIT_NOFILE, &limit);
	}
	bool is_good = true;
	for (size_t round = 0; round < rounds; round++) {
		struct figures before = {0}, during = {0};
		run_phase(&before);
		start_attack(children, (uid_t)atoi(argv[6]));
		run_phase(&during);
		is_good &= stop_attack(children);
		quiet[round] = before.p99_us;
		loaded[round] = during.p99_us;
		ratios[round] = during.p99_us / MAX(before.p99_us, 1.0);
		fprintf(stderr, "load: p99 %.0f us, with the hostile half %.0f us\n", before.p99_us,
			during.p99_us);
		sum.refused += before.refused + during.refused;
		sum.lost += before.lost + during.lost;
	}
	printf("{\"schema\": 1, \"clients\": %u, \"hostile\": %u, \"quiet_p99_us\": %.1f, \"loaded_p99_us\": "
	       "%.1f, \"ratio\": %.2f, "
	       "\"refused\": %u, \"lost\": %u}\n",
		honest + hostile, hostile, get_median(quiet, rounds), get_median(loaded, rounds),
		get_median(ratios, rounds), sum.refused, sum.lost);
	if (!is_good)
		fprintf(stderr, "load: an attacker ended by itself\n");
	return is_good && sum.refused == 0 && sum.lost == 0 ? 0 : 1;
}
