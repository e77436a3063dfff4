/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * cmd_run.c - hpzctl run: a command on leased memory.
 * The lease is owned by this process, which becomes the command: when the command ends, the lease ends.
 * Descriptor and lease are handed over by exec, so nothing stays behind to watch over them.
 */
#include "hpzctl.h"

#include <fcntl.h>
#include <inttypes.h>
#include <sys/prctl.h>

#include "placement.h"
#include "output.h"
#include "qemu_args.h"
#include "size.h"

#define CMD_RUN_MARKER "{hpz}"

struct cmd_run {
	struct hpz_lease_request request;
	bool falls_back, is_qemu, has_marker, is_rewritten;
	struct qemu_args qemu;
	char **argv;
};

/* What the lease becomes once it is ours. */
struct cmd_run_memory {
	uint64_t id, size;
	int fd;
};

/* ---- what is wanted ---- */

static int cmd_run_parse(struct hpzctl *ctl, int argc, char **argv, struct cmd_run *run)
{
	struct hpz_lease_request *request = &run->request;
	struct placement placement = PLACEMENT_INIT;
	const struct options_row rows[] = {
		{"size", OPTIONS_SIZE, &request->size, "SIZE", "how much (default: what QEMU's -m says)"},
		{"page-size", OPTIONS_SIZE, &request->page_size, "SIZE",
			"2M or 1G (default: what wastes least)"},
		PLACEMENT_ROWS(&placement),
		{"label", OPTIONS_TEXT, &request->label, "TEXT",
			"for the lists (default: the guest's or command's name)"},
		{"wait", OPTIONS_SECONDS, &request->timeout_ms, "S", "wait for clean memory; or: forever"},
		{"fallback", OPTIONS_FLAG, &run->falls_back, NULL, "without memory run the command as it is"},
		{"qemu", OPTIONS_FLAG, &run->is_qemu, NULL, "the command is a QEMU, whatever its name"},
	};
	int count;

	int status = options_parse(ctl, rows, ARRAY_SIZE(rows), argc, argv, true, &run->argv, &count);
	if (status != OPTIONS_GO)
		return status;
	if (count == 0)
		return hpzctl_fail_usage(ctl, "which command?");
	if (placement.policy == HPZ_NODES_INTERLEAVE)
		return hpzctl_fail_usage(
			ctl, "interleaved memory comes in several parts; a command takes one");
	return placement_apply(ctl, &placement, request);
}

/* How much, and whether the command line changes. OPTIONS_GO or an exit status. */
static int cmd_run_plan(const struct hpzctl *ctl, struct cmd_run *run)
{
	run->is_qemu = run->is_qemu || qemu_args_is_qemu(run->argv[0]);
	run->has_marker = qemu_args_contain(run->argv, CMD_RUN_MARKER);
	qemu_args_read(run->argv, &run->qemu);
	/* Who writes {hpz} says himself where the memory goes. */
	run->is_rewritten = run->is_qemu && !run->has_marker && !run->qemu.left_alone;

	uint64_t *size = &run->request.size, memory = run->is_qemu ? run->qemu.memory : 0;
	if (*size == 0 && memory == 0 && !(run->is_qemu && !run->has_marker))
		return hpzctl_fail_usage(
			ctl, "how much memory? As in: hpzctl run --size 2G -- %s", run->argv[0]);
	if (*size && run->is_rewritten && *size != memory)
		return hpzctl_fail_usage(ctl, "--size %" PRIu64 " is not the %" PRIu64 " bytes of QEMU's %s",
			*size, memory, run->qemu.has_memory ? "-m" : "default; say so with -m");
	if (*size == 0)
		*size = memory;
	return OPTIONS_GO;
}

/* Who the lists name as the owner: hpzd notes a process's name when it gives, and by then we have to be the
 * command. */
static void cmd_run_choose_names(struct cmd_run *run)
{
	const char *slash = strrchr(run->argv[0], '/');
	const char *base = slash ? slash + 1 : run->argv[0];
	bool has_name = run->is_qemu && *run->qemu.name && output_is_text(run->qemu.name);

	prctl(PR_SET_NAME, base);
	if (run->request.label)
		return;
	if (has_name)
		run->request.label = run->qemu.name;
	else if (strlen(base) <= HPZ_LABEL_MAX && output_is_text(base))
		run->request.label = base;
}

/* ---- the memory ---- */

/* The one descriptor of a lease. Several segments cannot be one file. */
static int cmd_run_take(struct hpz *hpz, struct hpz_lease *lease, struct cmd_run_memory *ret_memory)
{
	struct cmd_run_memory memory = {
		.id = hpz_lease_get_id(lease), .size = hpz_lease_get_size(lease), .fd = -1};

	if (hpz_lease_get_segment_count(lease) == 1)
		memory.fd = hpz_lease_steal_fd(lease, 0);
	hpz_lease_free(lease);
	/* From here on the descriptor is meant for the command. */
	if (memory.fd < 0 || fcntl(memory.fd, F_SETFD, 0) < 0) {
		close_fd(memory.fd);
		hpz_release(hpz, memory.id, 0, 0);
		hpzctl_say("the memory came in several parts; a command takes one");
		return HPZCTL_RUN_FAILED;
	}
	*ret_memory = memory;
	return HPZCTL_DONE;
}

/* Leases for this process. Says why not. */
static int cmd_run_lease(const struct hpzctl *ctl, const struct cmd_run *run, struct hpz **ret_hpz,
	struct cmd_run_memory *ret_memory)
{
	_cleanup_hpz_ struct hpz *hpz = NULL;
	struct hpz_lease *lease;
	char size[SIZE_TEXT];

	int status = hpzctl_connect(ctl, &hpz);
	if (status)
		return status;
	int error = hpz_lease(hpz, &run->request, &lease);
	if (error)
		return hpzctl_fail(ctl, hpz, error, "cannot lease %s", size_format(run->request.size, size));
	if (hpz_lease_get_zeroed(lease))
		hpzctl_say("%s of the memory was not ready and had to be zeroed first",
			size_format(hpz_lease_get_zeroed(lease), size));
	status = cmd_run_take(hpz, lease, ret_memory);
	if (!status)
		*ret_hpz = steal_pointer(&hpz);
	return status;
}

static void cmd_run_set_environment(const struct cmd_run_memory *memory, const char *path)
{
	char text[32];

	snprintf(text, sizeof(text), "%d", memory->fd);
	setenv("HPZ_FD", text, true);
	setenv("HPZ_PATH", path, true);
	snprintf(text, sizeof(text), "%" PRIu64, memory->size);
	setenv("HPZ_SIZE", text, true);
	snprintf(text, sizeof(text), "%" PRIu64, memory->id);
	setenv("HPZ_LEASE", text, true);
}

/* ---- the command ---- */

/* Becomes the command; comes back only when that fails. */
static int cmd_run_exec(char **argv)
{
	execvp(argv[0], argv);
	int status = errno == ENOENT ? HPZCTL_RUN_NOT_FOUND : HPZCTL_RUN_NOT_EXECUTABLE;
	hpzctl_say("cannot run %s: %s", argv[0], strerror(errno));
	return status;
}

static int cmd_run_exec_unchanged(const struct cmd_run *run, const char *why)
{
	hpzctl_say("%s: %s: it runs as it is, on memory of its own", run->argv[0], why);
	return cmd_run_exec(run->argv);
}

static int cmd_run_exec_leased(
	const struct cmd_run *run, struct hpz *hpz, const struct cmd_run_memory *memory)
{
	char path[48];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", memory->fd);
	char **argv = run->is_rewritten ? qemu_args_rewrite(run->argv, &run->qemu, path)
					: qemu_args_expand(run->argv, CMD_RUN_MARKER, path);
	int status = HPZCTL_RUN_FAILED;
	if (argv) {
		cmd_run_set_environment(memory, path);
		status = cmd_run_exec(argv);
	} else {
		hpzctl_say("out of memory");
	}
	/* Our end would end the lease, too; but a status read right after us should show it. */
	close_fd(memory->fd);
	hpz_release(hpz, memory->id, 0, 0);
	qemu_args_free(argv);
	return status;
}

int cmd_run(struct hpzctl *ctl, int argc, char **argv)
{
	_cleanup_hpz_ struct hpz *hpz = NULL;
	struct cmd_run run = {.request = HPZ_LEASE_REQUEST_INIT};
	struct cmd_run_memory memory = {.fd = -1};

	run.request.flags = HPZ_LEASE_REOPENABLE | HPZ_LEASE_UNBOUND;
	int status = cmd_run_parse(ctl, argc, argv, &run);
	if (status == OPTIONS_GO)
		status = cmd_run_plan(ctl, &run);
	if (status != OPTIONS_GO)
		return status ? HPZCTL_RUN_FAILED : HPZCTL_DONE;
	if (run.is_qemu && !run.has_marker && !run.is_rewritten)
		return cmd_run_exec_unchanged(&run, run.qemu.left_alone);
	cmd_run_choose_names(&run);
	if (cmd_run_lease(ctl, &run, &hpz, &memory) == HPZCTL_DONE)
		return cmd_run_exec_leased(&run, hpz, &memory);
	if (!run.falls_back)
		return HPZCTL_RUN_FAILED;
	if (run.has_marker) {
		hpzctl_say("--fallback cannot help a command that names " CMD_RUN_MARKER);
		return HPZCTL_RUN_FAILED;
	}
	return cmd_run_exec_unchanged(&run, "no memory from hpzd");
}
