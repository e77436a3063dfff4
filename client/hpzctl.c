/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* hpzctl.c - the operator's command: the table of verbs. */
#include "hpzctl.h"

#include <fcntl.h>

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
	{"teardown", cmd_teardown, "",
		"Show what the ends of leases cost: exit, proof, clearing; --watch follows them."},
	{"top", cmd_top, "", "Show pools and leases as they change, on the whole terminal."},
	{"events", cmd_events, "", "Print what happens, as it does."},
	{"doctor", cmd_doctor, "", "Look for what is wrong on this host, and say what to do."},
	{"metrics", cmd_metrics, "", "Print everything as Prometheus reads it."},
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
	{"bench", cmd_bench, "NAME",
		"Measure a part of hpz here: all, alloc, clear, lease, mlock, proof, recycle, teardown, vm, "
		"write-seq."},
	{"simulate", cmd_simulate, "TRACE",
		"Show what the VM starts of a trace would have got from pools and stock as these."},
	{"check", cmd_check, "",
		"Compare hpzd's books with disk, journal and kernel; exit 1 if they differ."},
	{"domain", cmd_domain, "VERB",
		"libvirt's domains: list, check, enable, attach-memory; see its --help."},
	{"run", cmd_run, "[--] COMMAND [ARGUMENT...]",
		"Run a command on leased memory: QEMU as it is, others with {hpz} or $HPZ_FD."},
};

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
