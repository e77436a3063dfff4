/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * bench_virsh.c - the starts of bench vm through libvirt: `virsh create --paused` of a domain that lives for
 * that moment only, its memory in huge pages of a memfd: with QEMU as the emulator, which has the kernel zero
 * them, and with hpz-qemu. virsh, because that is what people wait for.
 */
#include "bench_vm.h"

#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "bench_pages.h"

#define BENCH_VIRSH_WARM_UPS   1   /* libvirt asks a new emulator for its abilities */
#define BENCH_VIRSH_PATIENCE_S 120 /* for one command */
#define BENCH_VIRSH_NAME       32

struct bench_virsh {
	struct bench_vm *bench;
	char name[BENCH_VIRSH_NAME]; /* of the domain */
};

static void bench_virsh_become(char *const argv[], int in, int output, pid_t parent)
{
	if (prctl(PR_SET_PDEATHSIG, SIGTERM) < 0 || getppid() != parent)
		_exit(1);
	dup2(in, STDIN_FILENO);
	dup2(output, STDOUT_FILENO);
	dup2(output, STDERR_FILENO);
	alarm(BENCH_VIRSH_PATIENCE_S); /* a libvirtd that does not answer ends it */
	execvp(argv[0], argv);
	dprintf(STDERR_FILENO, "cannot run virsh: %m\n");
	_exit(127);
}

/* The first line of what it said, which is what is wrong. */
static void bench_virsh_note(struct bench_vm *bench, int output)
{
	char text[BENCH_VM_REASON];
	ssize_t n = pread(output, text, sizeof(text) - 1, 0);

	text[MAX(n, 0)] = '\0';
	text[strcspn(text, "\n")] = '\0';
	snprintf(bench->virsh_reason, sizeof(bench->virsh_reason), "%s",
		*text ? text : "virsh failed without a word");
}

/* virsh with these words; `input` may be NULL. Whether it succeeded; else the reason is noted. */
static bool bench_virsh_call(struct bench_virsh *virsh, const char *const words[3], const char *input)
{
	_cleanup_fd_ int in = memfd_create("input", MFD_CLOEXEC);
	_cleanup_fd_ int output = memfd_create("output", MFD_CLOEXEC);
	char *const argv[] = {(char *)"virsh", (char *)"-q", (char *)"-c", (char *)virsh->bench->uri,
		(char *)words[0], (char *)words[1], (char *)words[2], NULL};
	size_t length = input ? strlen(input) : 0;
	pid_t parent = getpid();
	int status = 1;

	if (in < 0 || output < 0 || (length && write(in, input, length) != (ssize_t)length) ||
		lseek(in, 0, SEEK_SET) < 0)
		return false;
	pid_t pid = fork();
	if (pid == 0)
		bench_virsh_become(argv, in, output, parent);
	while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (status != 0)
		bench_virsh_note(virsh->bench, output);
	return status == 0;
}

/* The caller frees it; NULL: no memory. */
static char *bench_virsh_get_xml(const struct bench_virsh *virsh, enum bench_vm_way way)
{
	const struct bench_vm *bench = virsh->bench;
	char *xml;

	/* Emulated, so that it needs no KVM: nothing runs anyway. */
	int n = asprintf(&xml,
		"<domain type='qemu'><name>%s</name><memory unit='b'>%" PRIu64 "</memory>"
		"<memoryBacking><hugepages><page size='%" PRIu64 "' unit='b'/></hugepages>"
		"<source type='memfd'/><access mode='shared'/>"
		"<allocation mode='immediate' threads='%u'/></memoryBacking>"
		"<vcpu>1</vcpu><numatune><memory mode='strict' nodeset='%d'/></numatune>"
		"<os><type>hvm</type></os>"
		"<devices><emulator>%s</emulator><controller type='usb' model='none'/>"
		"<memballoon model='none'/></devices></domain>",
		virsh->name, bench->bytes, bench->page_size, bench->threads, (int)bench->node,
		way == BENCH_VM_HPZ ? bench->wrapper : bench->qemu);
	return n < 0 ? NULL : xml;
}

/* Whether the domain that runs now is on a lease. */
static bool bench_virsh_is_leased(const struct bench_virsh *virsh)
{
	struct hpz_lease_list *list = NULL;
	bool is_leased = false;

	if (hpz_list(virsh->bench->hpz, &list))
		return false;
	for (size_t i = 0; i < hpz_list_get_count(list); i++) {
		struct hpz_lease_info info = {.struct_size = sizeof(info)};
		hpz_list_get_lease(list, i, &info);
		is_leased =
			is_leased || (info.state == HPZ_STATE_LEASED && strcmp(info.label, virsh->name) == 0);
	}
	hpz_list_free(list);
	return is_leased;
}

/* It is gone with that, for nothing of it is stored. */
static void bench_virsh_destroy(struct bench_virsh *virsh)
{
	char reason[BENCH_VM_REASON];

	memcpy(reason, virsh->bench->virsh_reason, sizeof(reason));
	bench_virsh_call(virsh, (const char *const[3]){"destroy", virsh->name, NULL}, NULL);
	memcpy(virsh->bench->virsh_reason, reason, sizeof(reason));
}

/* Milliseconds; NAN: it did not start, or not as it should have, which is noted. */
static double bench_virsh_start(struct bench_virsh *virsh, enum bench_vm_way way)
{
	_cleanup_free_ char *xml = bench_virsh_get_xml(virsh, way);

	uint64_t start_ns = clock_get_ns(CLOCK_MONOTONIC);
	if (!xml ||
		!bench_virsh_call(virsh, (const char *const[3]){"create", "/dev/stdin", "--paused"}, xml)) {
		/* What interrupted it may have come too late. */
		bench_virsh_destroy(virsh);
		return NAN;
	}
	double ms = (double)(clock_get_ns(CLOCK_MONOTONIC) - start_ns) / NS_PER_MS;
	bool is_right = way != BENCH_VM_HPZ || bench_virsh_is_leased(virsh);
	bench_virsh_destroy(virsh);
	if (is_right)
		return ms;
	snprintf(virsh->bench->virsh_reason, sizeof(virsh->bench->virsh_reason),
		"the domain got no lease; its log says why: is QEMU's user allowed to? see hpz-qemu(1)");
	return NAN;
}

static bool bench_virsh_run_round(struct bench_virsh *virsh, size_t number)
{
	struct bench_vm *bench = virsh->bench;
	double ms[BENCH_VM_TINY];

	for (size_t i = 0; i < BENCH_VM_TINY; i++) {
		enum bench_vm_way way = (enum bench_vm_way)((number + i) % BENCH_VM_TINY);
		bench_vm_settle(bench);
		ms[way] = bench_virsh_start(virsh, way);
		if (isnan(ms[way]) || bench_get_signal())
			return false;
	}
	if (number < BENCH_VIRSH_WARM_UPS)
		return true;
	for (size_t way = 0; way < BENCH_VM_TINY; way++)
		bench->virsh_ms[way][bench->virsh_rounds] = ms[way];
	bench->virsh_rounds++;
	return true;
}

void bench_virsh_run(struct bench_vm *bench)
{
	struct bench_virsh virsh = {.bench = bench};

	if (strcmp(bench->uri, "no") == 0) {
		snprintf(bench->virsh_reason, sizeof(bench->virsh_reason), "--libvirt no");
		return;
	}
	if (strpbrk(bench->wrapper, "<&") || strpbrk(bench->qemu, "<&")) {
		snprintf(bench->virsh_reason, sizeof(bench->virsh_reason), "a path is no XML");
		return;
	}
	snprintf(virsh.name, sizeof(virsh.name), "hpz-bench-%d", (int)getpid());
	if (!bench_virsh_call(&virsh, (const char *const[3]){"uri", NULL, NULL}, NULL))
		return;
	for (size_t i = 0; i < bench->rounds_asked + BENCH_VIRSH_WARM_UPS; i++) {
		if (bench_virsh_run_round(&virsh, i))
			continue;
		/* Half of it is nothing to print. */
		bench->virsh_rounds = 0;
		return;
	}
}
