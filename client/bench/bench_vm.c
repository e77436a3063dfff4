/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * bench_vm.c - how long a guest's start takes, from exec to QEMU's first sign of life, its QMP greeting: with
 * huge pages that the kernel zeroes then (prealloc, on all CPUs), on a lease, and with hardly any memory.
 * Each round starts all of them, one after the other, in turn; nothing runs in the guests. The kernel's pages
 * are warm: such that are new to it would take it seconds more. Needs a running hpzd.
 */
#include "bench_vm.h"

#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/utsname.h>
#include <sys/wait.h>

#include "bench_pages.h"
#include "options.h"
#include "output.h"
#include "size.h"

#define BENCH_VM_ROUNDS      10
#define BENCH_VM_WARM_UPS    1 /* programs and libraries come from disk */
#define BENCH_VM_TINY_MIB    8
#define BENCH_VM_GREETING_MS 120000
#define BENCH_VM_CLEAN_MS    120000
#define BENCH_VM_WORDS       40
#define BENCH_VM_MIB         ((uint64_t)1 << 20)

#if defined(__x86_64__) || defined(__i386__)
#define BENCH_VM_MACHINE "q35,accel=kvm:tcg"
#else
#define BENCH_VM_MACHINE "virt,accel=kvm:tcg"
#endif

static const char *const bench_vm_names[] = {
	[BENCH_VM_PREALLOC] = "prealloc", [BENCH_VM_HPZ] = "hpz", [BENCH_VM_TINY] = "tiny"};

/* ---- one start ---- */

/* A command line as it grows. */
struct bench_vm_words {
	char *list[BENCH_VM_WORDS];
	size_t count;
};

static PRINTF(2, 3) void bench_vm_add(struct bench_vm_words *words, const char *format, ...)
{
	va_list args;

	if (words->count + 1 >= BENCH_VM_WORDS)
		abort();
	va_start(args, format);
	if (vasprintf(&words->list[words->count++], format, args) < 0)
		abort();
	va_end(args);
}

static void bench_vm_free_words(struct bench_vm_words *words)
{
	while (words->count > 0)
		free(words->list[--words->count]);
}

static void bench_vm_add_run(const struct bench_vm *bench, struct bench_vm_words *words)
{
	bench_vm_add(words, "%s", bench->hpzctl);
	bench_vm_add(words, "run");
	if (bench->socket_path) {
		bench_vm_add(words, "--socket");
		bench_vm_add(words, "%s", bench->socket_path);
	}
	bench_vm_add(words, "--page-size");
	bench_vm_add(words, "%" PRIu64, bench->page_size);
	bench_vm_add(words, "--node");
	bench_vm_add(words, "%d", (int)bench->node);
	bench_vm_add(words, "--label");
	bench_vm_add(words, "bench vm");
	bench_vm_add(words, "--qemu");
	bench_vm_add(words, "--");
}

static void bench_vm_build(
	const struct bench_vm *bench, enum bench_vm_way way, int qmp, struct bench_vm_words *words)
{
	static const char *const common[] = {"-nodefaults", "-no-user-config", "-display", "none", "-S",
		"-machine", BENCH_VM_MACHINE, "-m"};

	if (way == BENCH_VM_HPZ)
		bench_vm_add_run(bench, words);
	bench_vm_add(words, "%s", bench->qemu);
	for (size_t i = 0; i < ARRAY_SIZE(common); i++)
		bench_vm_add(words, "%s", common[i]);
	bench_vm_add(words, "%" PRIu64 "M",
		way == BENCH_VM_TINY ? BENCH_VM_TINY_MIB : bench->bytes / BENCH_VM_MIB);
	if (way == BENCH_VM_PREALLOC) {
		bench_vm_add(words, "-object");
		bench_vm_add(words,
			"memory-backend-memfd,id=ram0,size=%" PRIu64 ",hugetlb=on,hugetlbsize=%" PRIu64
			",share=on,prealloc=on,prealloc-threads=%u",
			bench->bytes, bench->page_size, bench->threads);
		bench_vm_add(words, "-machine");
		bench_vm_add(words, "memory-backend=ram0");
	}
	bench_vm_add(words, "-chardev");
	bench_vm_add(words, "socket,id=qmp,fd=%d", qmp);
	bench_vm_add(words, "-mon");
	bench_vm_add(words, "chardev=qmp,mode=control");
}

static void bench_vm_become(char *const argv[], int qmp, int output, pid_t parent)
{
	/* It ends with us, however we end. */
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != parent)
		_exit(1);
	int in = open("/dev/null", O_RDWR | O_CLOEXEC);
	dup2(in, STDIN_FILENO);
	dup2(output, STDOUT_FILENO);
	dup2(output, STDERR_FILENO);
	fcntl(qmp, F_SETFD, 0);
	execvp(argv[0], argv);
	dprintf(STDERR_FILENO, "cannot run %s: %m\n", argv[0]);
	_exit(127);
}

/* Until QEMU says hello. False: it does not. */
static bool bench_vm_await_greeting(int qmp)
{
	char text[1024];
	size_t length = 0;
	struct pollfd look = {.fd = qmp, .events = POLLIN};

	while (length + 1 < sizeof(text) && !bench_get_signal()) {
		int r = poll(&look, 1, BENCH_VM_GREETING_MS);
		if (r < 0 && errno == EINTR)
			continue;
		ssize_t n = r > 0 ? read(qmp, text + length, sizeof(text) - length - 1) : -1;
		if (n <= 0)
			return false;
		length += (size_t)n;
		text[length] = '\0';
		if (strchr(text, '\n'))
			return strstr(text, "\"QMP\"") != NULL;
	}
	return false;
}

/* The last line of what it said. */
static void bench_vm_show_output(enum bench_vm_way way, int output)
{
	char text[2048];
	ssize_t n = pread(output, text, sizeof(text) - 1, 0);

	text[MAX(n, 0)] = '\0';
	for (char *end = strrchr(text, '\n'); end && !end[1]; end = strrchr(text, '\n'))
		*end = '\0';
	const char *last = strrchr(text, '\n');
	hpzctl_say("bench vm: %s: QEMU does not start; it said: %s", bench_vm_names[way],
		last    ? last + 1
		: *text ? text
			: "nothing");
}

/* Milliseconds; NAN: it did not start, which has been said. */
static double bench_vm_start(const struct bench_vm *bench, enum bench_vm_way way)
{
	int qmp[2];
	_cleanup_fd_ int output = memfd_create("output", MFD_CLOEXEC);
	struct bench_vm_words words = {.count = 0};
	pid_t parent = getpid();

	if (output < 0 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, qmp) < 0) {
		hpzctl_say("bench vm: %s", strerror(errno));
		return NAN;
	}
	bench_vm_build(bench, way, qmp[1], &words);
	uint64_t start_ns = clock_get_ns(CLOCK_MONOTONIC);
	pid_t pid = fork();
	if (pid == 0)
		bench_vm_become(words.list, qmp[1], output, parent);
	close(qmp[1]);
	bool is_up = pid > 0 && bench_vm_await_greeting(qmp[0]);
	double ms = (double)(clock_get_ns(CLOCK_MONOTONIC) - start_ns) / NS_PER_MS;
	if (pid > 0) {
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
	}
	close(qmp[0]);
	bench_vm_free_words(&words);
	if (!is_up && !bench_get_signal())
		bench_vm_show_output(way, output);
	return is_up ? ms : NAN;
}

/* ---- rounds ---- */

void bench_vm_settle(struct bench_vm *bench)
{
	struct hpz_wait_request wait = HPZ_WAIT_REQUEST_INIT;
	struct hpz_lease_request request = HPZ_LEASE_REQUEST_INIT;
	struct hpz_plan_result plan = {.struct_size = sizeof(plan)};

	/* Others may keep it from ever being full; then the plan says so. */
	wait.timeout_ms = BENCH_VM_CLEAN_MS;
	hpz_wait(bench->hpz, &wait);
	request.size = bench->bytes;
	request.page_size = bench->page_size;
	request.node = bench->node;
	bool is_ready = hpz_plan(bench->hpz, &request, &plan) == HPZ_OK && plan.ready >= bench->bytes;
	bench->unready += !is_ready;
}

static bool bench_vm_run_round(struct bench_vm *bench, size_t number)
{
	double ms[BENCH_VM_WAYS];

	for (size_t i = 0; i < BENCH_VM_WAYS; i++) {
		enum bench_vm_way way = (enum bench_vm_way)((number + i) % BENCH_VM_WAYS);
		/* Nobody clears while we measure. */
		bench_vm_settle(bench);
		ms[way] = bench_vm_start(bench, way);
		if (isnan(ms[way]))
			return false;
	}
	if (number < BENCH_VM_WARM_UPS)
		return true;
	for (size_t way = 0; way < BENCH_VM_WAYS; way++)
		bench->ms[way][bench->rounds] = ms[way];
	bench->ratio[bench->rounds] = ms[BENCH_VM_PREALLOC] / ms[BENCH_VM_HPZ];
	bench->over_tiny[bench->rounds++] = ms[BENCH_VM_HPZ] / ms[BENCH_VM_TINY];
	return true;
}

/* Huge pages for the guests without hpz: raised and warm, then free again, until the end. */
static int bench_vm_take_pages(
	const struct bench_vm *bench, const struct host *host, struct bench_pages *pages)
{
	if (!host_has_page_size(host, bench->page_size)) {
		hpzctl_say("bench vm: the kernel offers no such pages");
		return -ENODEV;
	}
	int r = bench_pages_take(host, bench->node, bench->page_size, bench->bytes / bench->page_size, pages);
	if (r < 0)
		return r;
	r = bench_pages_punch(pages, 0, pages->bytes);
	if (r < 0)
		bench_pages_give(pages);
	return r;
}

static int bench_vm_run(struct bench_vm *bench)
{
	struct bench_pages pages = {0};
	struct host host;
	bool is_good = true;

	if (host_init(&host, NULL) < 0) {
		hpzctl_say("bench vm: this machine's nodes cannot be read");
		return HPZCTL_FAILED;
	}
	int r = bench_vm_take_pages(bench, &host, &pages);
	for (size_t i = 0; r == 0 && is_good && i < bench->rounds_asked + BENCH_VM_WARM_UPS; i++)
		is_good = bench_vm_run_round(bench, i);
	if (r == 0 && is_good)
		bench_virsh_run(bench);
	bench_pages_give(&pages);
	host_deinit(&host);
	if (bench_get_signal() || !is_good)
		return HPZCTL_FAILED;
	return r == -ENOSPC ? HPZCTL_LATER : r < 0 ? HPZCTL_FAILED : HPZCTL_DONE;
}

/* ---- what came of it ---- */

struct bench_vm_result {
	double ms[BENCH_VM_WAYS], virsh_ms[BENCH_VM_TINY];
	double ratio, over_tiny, spread;
	bool is_complete;
};

static void bench_vm_judge(const struct bench_vm *bench, struct bench_vm_result *result)
{
	result->is_complete = false;
	if (bench->rounds < BENCH_ROUNDS_MIN)
		hpzctl_say("bench vm: a median of so few rounds says little: --rounds %d at least",
			BENCH_ROUNDS_MIN);
	else if (bench->unready)
		hpzctl_say("bench vm: %zu times there was no clean segment of that size: hpzd's stock is not "
			   "for this",
			bench->unready);
	else if (result->spread > BENCH_SPREAD_MAX)
		hpzctl_say(
			"bench vm: the middle half of the rounds spreads over %.0f %%: the machine is busy",
			result->spread * 100);
	else
		result->is_complete = true;
}

static void bench_vm_conclude(struct bench_vm *bench, struct bench_vm_result *result)
{
	/* The ratios first: they are sorted by it, and the others, too. */
	result->ratio = bench_get_median(bench->ratio, bench->rounds);
	result->spread = bench_get_spread(bench->ratio, bench->rounds);
	result->over_tiny = bench_get_median(bench->over_tiny, bench->rounds);
	for (size_t way = 0; way < BENCH_VM_WAYS; way++)
		result->ms[way] = bench_get_median(bench->ms[way], bench->rounds);
	for (size_t way = 0; way < BENCH_VM_TINY; way++)
		result->virsh_ms[way] = bench->virsh_rounds
						? bench_get_median(bench->virsh_ms[way], bench->virsh_rounds)
						: NAN;
	bench_vm_judge(bench, result);
}

static void bench_vm_print_json(const struct bench_vm *bench, const struct bench_vm_result *result)
{
	struct output_json json;

	output_json_init(&json, stdout);
	output_json_open_object(&json, NULL);
	output_json_text(&json, "schema", "hpz-bench-vm-1");
	output_json_number(&json, "size", bench->bytes);
	output_json_number(&json, "page_size", bench->page_size);
	output_json_number(&json, "prealloc_threads", bench->threads);
	output_json_decimal(&json, "prealloc_ms", result->ms[BENCH_VM_PREALLOC], 2);
	output_json_decimal(&json, "hpz_ms", result->ms[BENCH_VM_HPZ], 2);
	output_json_decimal(&json, "tiny_vm_ms", result->ms[BENCH_VM_TINY], 2);
	output_json_decimal(&json, "ratio", result->ratio, 3);
	output_json_decimal(&json, "over_tiny", result->over_tiny, 3);
	output_json_number(&json, "rounds", bench->rounds);
	output_json_decimal(&json, "spread", result->spread, 3);
	output_json_bool(&json, "complete", result->is_complete);
	if (bench->virsh_rounds) {
		output_json_open_object(&json, "libvirt");
		output_json_decimal(&json, "prealloc_ms", result->virsh_ms[BENCH_VM_PREALLOC], 2);
		output_json_decimal(&json, "hpz_ms", result->virsh_ms[BENCH_VM_HPZ], 2);
		output_json_number(&json, "rounds", bench->virsh_rounds);
		output_json_close(&json);
	} else {
		output_json_null(&json, "libvirt");
	}
	output_json_text_or_null(&json, "libvirt_reason", bench->virsh_rounds ? "" : bench->virsh_reason);
	output_json_close(&json);
}

static void bench_vm_add_row(struct output_table *table, const char *name, double median,
	const double *sorted, size_t count, const char *what)
{
	output_table_add(table, "%s", name);
	output_table_add(table, "%.1f", median);
	output_table_add(table, "%.1f", sorted[0]);
	output_table_add(table, "%.1f", sorted[count - 1]);
	output_table_add(table, "%s", what);
}

static void bench_vm_print_text(const struct bench_vm *bench, const struct bench_vm_result *result)
{
	static const char *const headings[] = {"START", ">MS", ">LEAST", ">MOST", "WHAT"};
	static const char *const what[] = {
		[BENCH_VM_PREALLOC] = "the kernel zeroes it then, on all CPUs",
		[BENCH_VM_HPZ] = "hpzctl run",
		[BENCH_VM_TINY] = "a guest of 8 MiB: QEMU itself",
	};
	char size[SIZE_TEXT], page_size[SIZE_TEXT];
	struct output_table table;

	printf("%s in pages of %s, from exec to the QMP greeting, medians of %zu rounds\n",
		size_format(bench->bytes, size), size_format_exact(bench->page_size, page_size),
		bench->rounds);
	output_table_init(&table, headings, ARRAY_SIZE(headings));
	for (size_t way = 0; way < BENCH_VM_WAYS; way++)
		bench_vm_add_row(&table, bench_vm_names[way], result->ms[way], bench->ms[way], bench->rounds,
			what[way]);
	for (size_t way = 0; bench->virsh_rounds && way < BENCH_VM_TINY; way++)
		bench_vm_add_row(&table, bench_vm_names[way], result->virsh_ms[way], bench->virsh_ms[way],
			bench->virsh_rounds, "virsh create --paused");
	output_table_print(&table, stdout);
	output_table_deinit(&table);
	printf("%.2f times as fast as prealloc, %.2f times as long as the tiny guest\n", result->ratio,
		result->over_tiny);
	if (!bench->virsh_rounds)
		printf("not measured through libvirt: %s\n", bench->virsh_reason);
}

/* ---- start ---- */

/* The programs: ours beside us, or where they are installed. */
static bool bench_vm_find_programs(struct bench_vm *bench, const char *wrapper)
{
	ssize_t length = readlink("/proc/self/exe", bench->hpzctl, sizeof(bench->hpzctl) - 1);

	if (length <= 0) {
		hpzctl_say("bench vm: /proc/self/exe: %s", strerror(errno));
		return false;
	}
	bench->hpzctl[length] = '\0';
	int directory = (int)(strrchr(bench->hpzctl, '/') - bench->hpzctl);
	int n = snprintf(bench->wrapper, sizeof(bench->wrapper), "%.*s/hpz-qemu", directory, bench->hpzctl);
	if (wrapper)
		snprintf(bench->wrapper, sizeof(bench->wrapper), "%s", wrapper);
	else if (n < 0 || (size_t)n >= sizeof(bench->wrapper) || access(bench->wrapper, X_OK) < 0)
		snprintf(bench->wrapper, sizeof(bench->wrapper), "%s", HPZ_INSTALLED_QEMU);
	return true;
}

/* libvirt wants a path. */
static bool bench_vm_find_qemu(struct bench_vm *bench, const char *name)
{
	char standard[NAME_MAX];
	struct utsname machine;
	const char *path = getenv("PATH");

	uname(&machine);
	snprintf(standard, sizeof(standard), "qemu-system-%s", machine.machine);
	name = name ? name : standard;
	if (strchr(name, '/')) {
		snprintf(bench->qemu, sizeof(bench->qemu), "%s", name);
		return true;
	}
	_cleanup_free_ char *copy = strdup(path ? path : "/usr/bin:/bin");
	char *rest = copy;
	for (char *directory; rest && (directory = strsep(&rest, ":"));) {
		int n = snprintf(bench->qemu, sizeof(bench->qemu), "%s/%s", directory, name);
		if (n > 0 && (size_t)n < sizeof(bench->qemu) && access(bench->qemu, X_OK) == 0)
			return true;
	}
	hpzctl_say("bench vm: there is no %s: --qemu names another", name);
	return false;
}

static int bench_vm_measure(const struct hpzctl *ctl, struct bench_vm *bench)
{
	struct bench_vm_result result;

	bench_catch_signals();
	int status = bench_vm_run(bench);
	if (bench_get_signal())
		bench_die_of_signal();
	if (status)
		return status;
	bench_vm_conclude(bench, &result);
	if (ctl->json)
		bench_vm_print_json(bench, &result);
	else
		bench_vm_print_text(bench, &result);
	return result.is_complete ? HPZCTL_DONE : HPZCTL_LATER;
}

int bench_vm(struct hpzctl *ctl, int argc, char **argv)
{
	_cleanup_hpz_ struct hpz *hpz = NULL;
	static struct bench_vm bench;
	const char *qemu = NULL, *wrapper = NULL;
	bench = (struct bench_vm){.bytes = (uint64_t)1 << 30,
		.page_size = 2 * BENCH_VM_MIB,
		.rounds_asked = BENCH_VM_ROUNDS,
		.uri = "qemu:///system",
		.threads = bench_count_cpus()};
	const struct options_row rows[] = {
		{"size", OPTIONS_SIZE, &bench.bytes, "SIZE", "of the guests (default: 1G)"},
		{"page-size", OPTIONS_SIZE, &bench.page_size, "SIZE", "2M or 1G (default: 2M)"},
		{"node", OPTIONS_NODE, &bench.node, "N", "NUMA node (default: 0)"},
		{"rounds", OPTIONS_COUNT, &bench.rounds_asked, "N", "how often (default: 10)"},
		{"qemu", OPTIONS_TEXT, &qemu, "PROGRAM", "the QEMU to start (default: of this machine)"},
		{"libvirt", OPTIONS_TEXT, &bench.uri, "URI",
			"measure it also there (default: qemu:///system); or: no"},
		{"hpz-qemu", OPTIONS_TEXT, &wrapper, "FILE",
			"libvirt's emulator for that (default: the installed one)"},
	};
	char **operands;
	int count;

	int status = options_parse(ctl, rows, ARRAY_SIZE(rows), argc, argv, false, &operands, &count);
	if (status == OPTIONS_GO)
		status = options_refuse_operands(ctl, operands, count);
	if (status != OPTIONS_GO)
		return status;
	if (bench.rounds_asked > BENCH_ROUNDS_MAX)
		return hpzctl_fail_usage(ctl, "--rounds is at most %d", BENCH_ROUNDS_MAX);
	if (bench.page_size < BENCH_VM_MIB || bench.bytes % bench.page_size || bench.node < 0)
		return hpzctl_fail_usage(ctl, "--size is whole pages of --page-size, --node is one node");
	if (!bench_vm_find_programs(&bench, wrapper) || !bench_vm_find_qemu(&bench, qemu))
		return HPZCTL_FAILED;
	status = hpzctl_connect(ctl, &hpz);
	if (status)
		return status;
	bench.hpz = hpz;
	bench.socket_path = ctl->socket_path;
	return bench_vm_measure(ctl, &bench);
}
