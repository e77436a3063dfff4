/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* hpzctl.c - the operator's command: the table of verbs, errors for people, the exit status. */
#include "hpzctl.h"

#include <fcntl.h>
#include <stdarg.h>

#include "options.h"

static const struct hpzctl_verb verbs[] = {
	{"status", cmd_status, "", "Show the pools and the leases; also what hpzctl alone does."},
	{"lease", cmd_lease, "[SIZE]", "Lease memory that is already zero, as a path for mem-path=."},
	{"plan", cmd_plan, "[SIZE]", "Show what a lease would get now, without taking it."},
	{"reserve", cmd_reserve, "SIZE", "Keep clean memory for leases to come, for some time."},
	{"unreserve", cmd_unreserve, "ID", "End a reservation before its time is over."},
	{"demand", cmd_demand, "", "Show which sizes are asked for, and the stock that would serve them."},
	{"grow", cmd_grow, "ID SIZE", "Give a lease more memory, in a segment of its own."},
	{"shrink", cmd_shrink, "ID SIZE", "Take back the end of a lease, which its holder has unmapped."},
	{"release", cmd_release, "ID...", "End leases. Releasing one that has ended is success."},
	{"leases", cmd_leases, "",
		"List the leases, and who still holds the memory of those that have ended."},
	{"wait", cmd_wait, "", "Wait until the stock is full, or until so much is clean."},
	{"drain", cmd_drain, "", "Empty every pool; with leases out, list them and exit 75."},
	{"resize", cmd_resize, "POOL [+|-]SIZE",
		"Make a pool larger or smaller while it runs; SIZE may be a number of pages, as 512pages."},
	{"demote", cmd_demote, "POOL N",
		"Have N free pages of a pool split into smaller ones, as 1G pages into 2M."},
	{"verify", cmd_verify, "", "Read all clean memory; exit 1 when a byte of it is not zero."},
	{"calibrate", cmd_calibrate, "", "Measure the methods of clearing anew, on the pools' own pages."},
	{"set", cmd_set, "KEY=VALUE...",
		"Change how memory is cleared, until hpzd reloads or restarts: a key of [clear]."},
	{"bench", cmd_bench, "NAME", "Measure a part of hpz here: clear, lease, proof, recycle, vm."},
	{"simulate", cmd_simulate, "TRACE",
		"Show what the VM starts of a trace would have got from pools and stock as these."},
	{"check", cmd_check, "",
		"Compare hpzd's books with disk, journal and kernel; exit 1 if they differ."},
	{"run", cmd_run, "[--] COMMAND [ARGUMENT...]",
		"Run a command on leased memory: QEMU as it is, others with {hpz} or $HPZ_FD."},
};

/* ---- errors and the exit status ---- */

void hpzctl_say(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	fputs("hpzctl: ", stderr);
	vfprintf(stderr, format, args);
	fputc('\n', stderr);
	va_end(args);
}

int hpzctl_fail_usage(const struct hpzctl *ctl, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	fprintf(stderr, "hpzctl%s%s: ", ctl->verb ? " " : "", ctl->verb ? ctl->verb->name : "");
	vfprintf(stderr, format, args);
	fprintf(stderr, "\nhpzctl: see hpzctl %s%s--help\n", ctl->verb ? ctl->verb->name : "",
		ctl->verb ? " " : "");
	va_end(args);
	return HPZCTL_USAGE;
}

struct hpzctl_outcome {
	int status;
	const char *advice; /* NULL: the error says it all */
};

/* The one place that knows which error is which exit status, and what to do about it. */
static struct hpzctl_outcome hpzctl_explain(int error)
{
	switch ((enum hpz_error)error) {
	case HPZ_OK:
		return (struct hpzctl_outcome){HPZCTL_DONE, NULL};
	case HPZ_ERR_NO_MEMORY:
		return (struct hpzctl_outcome){HPZCTL_LATER,
			"wait for clean memory with --wait SECONDS; hpzctl status shows what there is"};
	case HPZ_ERR_TIMEOUT:
		return (struct hpzctl_outcome){
			HPZCTL_LATER, "hpzctl status shows how far it is, hpzctl leases who holds what"};
	case HPZ_ERR_BUSY:
		return (struct hpzctl_outcome){HPZCTL_LATER, "try again later"};
	case HPZ_ERR_IN_USE:
		return (struct hpzctl_outcome){HPZCTL_LATER, "end these leases, or their VMs, and try again"};
	case HPZ_ERR_NOT_RUNNING:
		return (struct hpzctl_outcome){HPZCTL_FAILED, "start it with systemctl start hpzd, or name "
							      "its socket with --socket or $HPZ_SOCKET"};
	case HPZ_ERR_DENIED:
		return (struct hpzctl_outcome){HPZCTL_FAILED,
			"root may do everything; what others may, [access NAME] of hpzd.conf(5) says"};
	case HPZ_ERR_QUOTA:
		return (struct hpzctl_outcome){
			HPZCTL_LATER, "release a lease; hpzctl leases shows who still holds memory"};
	case HPZ_ERR_TOO_LARGE:
		return (struct hpzctl_outcome){HPZCTL_FAILED, "hpzctl status shows how large the pools are"};
	case HPZ_ERR_NO_POOL:
		return (struct hpzctl_outcome){
			HPZCTL_FAILED, "hpzctl status lists the pools; /etc/hpz/hpzd.conf makes them"};
	case HPZ_ERR_UNKNOWN_LEASE:
		return (struct hpzctl_outcome){HPZCTL_FAILED, "hpzctl leases lists those that exist"};
	case HPZ_ERR_DRAINED:
		return (struct hpzctl_outcome){HPZCTL_FAILED, "reload or restart hpzd to fill it again"};
	case HPZ_ERR_WITHHELD:
		return (struct hpzctl_outcome){
			HPZCTL_FAILED, "look at ulimit -n, and at the security module's log"};
	case HPZ_ERR_VERSION:
	case HPZ_ERR_UNSUPPORTED:
		return (struct hpzctl_outcome){
			HPZCTL_FAILED, "hpzctl --version and hpzd --version should be the same"};
	case HPZ_ERR_LOST:
		return (struct hpzctl_outcome){HPZCTL_FAILED, "hpzd's log says why: journalctl -u hpzd"};
	case HPZ_ERR_SYSTEM:
	case HPZ_ERR_INVALID:
	case HPZ_ERR_PROTOCOL:
	case HPZ_ERR_ENDED:
	case HPZ_ERR_KEY_MISMATCH:
	case HPZ_ERR_FORKED:
	case HPZ_ERR_INTERNAL:
		break;
	}
	/* A newer library may know more errors. */
	return (struct hpzctl_outcome){HPZCTL_FAILED, NULL};
}

int hpzctl_fail(const struct hpzctl *ctl, const struct hpz *hpz, int error, const char *format, ...)
{
	struct hpzctl_outcome outcome = hpzctl_explain(error);
	const char *text = hpz_get_error_text(hpz);
	va_list args;

	va_start(args, format);
	fputs("hpzctl: ", stderr);
	vfprintf(stderr, format, args);
	fprintf(stderr, ": %s%s%s\n", hpz_strerror(error), *text ? ": " : "", text);
	va_end(args);
	if (outcome.advice)
		hpzctl_say("%s", outcome.advice);
	return outcome.status;
}

int hpzctl_connect(const struct hpzctl *ctl, struct hpz **ret_hpz)
{
	int error = hpz_connect(ctl->socket_path, ret_hpz);
	int saved = errno;

	if (!error)
		return HPZCTL_DONE;
	const char *named = getenv("HPZ_SOCKET");
	const char *path = ctl->socket_path ? ctl->socket_path : named && *named ? named : HPZ_DEFAULT_SOCKET;
	if (error == HPZ_ERR_SYSTEM) {
		hpzctl_say("cannot connect to %s: %s", path, strerror(saved));
		return HPZCTL_FAILED;
	}
	if (error == HPZ_ERR_INVALID) {
		hpzctl_say("cannot connect to %s: the path of a socket has 1 to 107 bytes", path);
		return HPZCTL_FAILED;
	}
	return hpzctl_fail(ctl, NULL, error, "cannot connect to %s", path);
}

void hpzctl_cleanup_hpz(struct hpz **hpz)
{
	hpz_close(*hpz);
}

/* ---- the command line ---- */

static void hpzctl_print_help(void)
{
	puts("usage: hpzctl [OPTION...] [VERB [OPTION...]]\n"
	     "Huge-page memory for virtual machines that is already zero, from hpzd.\n");
	for (size_t i = 0; i < ARRAY_SIZE(verbs); i++)
		printf("  %-24s %s\n", verbs[i].name, verbs[i].help);
	puts("");
	options_print(NULL, 0);
	puts("  --version                print the version\n"
	     "\nhpzctl VERB --help says more. Sizes are bytes, or end in K, M, G or T (powers of 1024).\n"
	     "Exit status: 0 done, 1 failed, 2 usage, 75 would succeed later; run: see hpzctl(1).");
}

static const struct hpzctl_verb *hpzctl_find_verb(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(verbs); i++) {
		if (strcmp(verbs[i].name, name) == 0)
			return &verbs[i];
	}
	return NULL;
}

static int hpzctl_run(struct hpzctl *ctl, int argc, char **argv)
{
	bool wants_help = false, wants_version = false;
	const struct options_row rows[] = {
		{"help", OPTIONS_FLAG, &wants_help, NULL, NULL},
		{"version", OPTIONS_FLAG, &wants_version, NULL, NULL},
	};
	char **operands;
	int count;

	int status = options_parse(ctl, rows, ARRAY_SIZE(rows), argc, argv, true, &operands, &count);
	if (status != OPTIONS_GO)
		return status;
	if (wants_help) {
		hpzctl_print_help();
		return HPZCTL_DONE;
	}
	if (wants_version) {
		printf("hpzctl %s\n", hpz_get_version());
		return HPZCTL_DONE;
	}
	const char *name = count ? operands[0] : "status";
	const struct hpzctl_verb *verb = hpzctl_find_verb(name);
	if (!verb)
		return hpzctl_fail_usage(ctl, "there is no verb '%s'", name);
	ctl->verb = verb;
	return verb->run(ctl, count ? count - 1 : 0, count ? operands + 1 : operands);
}

/* A descriptor of ours must never become somebody's standard output. */
static void hpzctl_open_standard_fds(void)
{
	while (1) {
		int fd = open("/dev/null", O_RDWR);
		if (fd > 2 || fd < 0) {
			close_fd(fd);
			return;
		}
	}
}

int main(int argc, char **argv)
{
	struct hpzctl ctl = {0};

	hpzctl_open_standard_fds();
	int status = hpzctl_run(&ctl, argc > 0 ? argc - 1 : 0, argc > 0 ? argv + 1 : argv);
	if (fflush(stdout) || ferror(stdout)) {
		hpzctl_say("cannot write: %s", strerror(errno));
		return status ? status : HPZCTL_FAILED;
	}
	return status;
}
