/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* tracer.c - loads the program that sees the end of address spaces: see tracer.h. */
#include <fcntl.h>
#include <sys/stat.h>

#include "tracer.h"

#ifndef HPZ_BPF

int tracer_load(int ret_fds[TRACER_FDS], uint32_t *ret_sees, const char **ret_why)
{
	*ret_why = "hpzd was built without BPF";
	return -EOPNOTSUPP;
}

#else

#include <bpf/bpf.h>
#include <bpf/btf.h>
#include "bpf/tracer_args.h"
#include "tracer.skel.h"

static int be_quiet(enum libbpf_print_level level, const char *format, va_list arguments)
{
	return 0;
}

/* ---- what this kernel tells ---- */

/* Arguments of a tracepoint; -1: there is no such. */
static int count_arguments(const struct btf *btf, const char *name)
{
	char type[64];
	snprintf(type, sizeof type, "btf_trace_%s", name);
	int id = btf__find_by_name_kind(btf, type, BTF_KIND_TYPEDEF);
	const struct btf_type *pointer =
		id < 0 ? NULL : btf__type_by_id(btf, btf__type_by_id(btf, (__u32)id)->type);
	const struct btf_type *function = pointer ? btf__type_by_id(btf, pointer->type) : NULL;
	return function && btf_is_func_proto(function) ? btf_vlen(function) - 1 : -1;
}

/*
 * sched_process_exit got a second argument by the very change that moved it before the thread leaves its
 * address space (6.16).
 */
static uint32_t find_sight(const struct btf *btf)
{
	return (count_arguments(btf, "sched_process_exit") >= 2 ? TRACER_SEES_BEGIN : 0) |
	       (count_arguments(btf, "tlb_flush") >= 0 ? TRACER_SEES_FLUSHES : 0) |
	       (btf__find_by_name_kind(btf, "kernel_cpustat", BTF_KIND_VAR) > 0 ? TRACER_SEES_STEAL : 0);
}

/* ---- loading ---- */

/* As hpzd and we see processes; else the kernel's own numbers would be taken for ours. */
static uint32_t get_pid_namespace(uint32_t initial)
{
	struct stat st;
	return stat("/proc/self/ns/pid", &st) < 0 ? initial : (uint32_t)st.st_ino;
}

static void choose_programs(struct tracer_bpf *skeleton, uint32_t sees)
{
	bool has_steal = sees & TRACER_SEES_STEAL, is_late = !(sees & TRACER_SEES_BEGIN);
	bpf_program__set_autoload(skeleton->progs.on_exit, !has_steal);
	bpf_program__set_autoload(skeleton->progs.on_exit_steal, has_steal);
	bpf_program__set_autoload(skeleton->progs.on_gone, !has_steal);
	bpf_program__set_autoload(skeleton->progs.on_gone_steal, has_steal);
	bpf_program__set_autoload(skeleton->progs.on_deliver, is_late && !has_steal);
	bpf_program__set_autoload(skeleton->progs.on_deliver_steal, is_late && has_steal);
	bpf_program__set_autoload(skeleton->progs.on_flush, sees & TRACER_SEES_FLUSHES);
}

/* NULL: errno says why. */
static struct tracer_bpf *load(uint32_t sees)
{
	struct tracer_bpf *skeleton = tracer_bpf__open();
	if (!skeleton)
		return NULL;
	skeleton->rodata->pid_ns = get_pid_namespace(skeleton->rodata->pid_ns);
	choose_programs(skeleton, sees);
	int r = tracer_bpf__load(skeleton);
	if (r == 0)
		r = tracer_bpf__attach(skeleton);
	if (r < 0) {
		tracer_bpf__destroy(skeleton);
		errno = -r;
		return NULL;
	}
	return skeleton;
}

static int copy_fd(int fd, int ret_fds[TRACER_FDS], int count)
{
	ret_fds[count] = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	return ret_fds[count] < 0 ? -errno : count + 1;
}

static int copy_fds(const struct tracer_bpf *skeleton, int ret_fds[TRACER_FDS])
{
	const struct bpf_link *const links[] = {skeleton->links.on_exit, skeleton->links.on_exit_steal,
		skeleton->links.on_gone, skeleton->links.on_gone_steal, skeleton->links.on_deliver,
		skeleton->links.on_deliver_steal, skeleton->links.on_flush};
	int fds[TRACER_FDS], count = copy_fd(bpf_map__fd(skeleton->maps.states), fds, TRACER_STATES);
	int copied = count;
	if (count >= 0)
		count = copy_fd(bpf_map__fd(skeleton->maps.ended), fds, TRACER_ENDED);
	for (size_t i = 0; count >= 0 && i < ARRAY_SIZE(links); i++) {
		copied = count;
		if (links[i])
			count = copy_fd(bpf_link__fd(links[i]), fds, count);
	}
	for (int i = 0; count < 0 && i < copied; i++)
		close(fds[i]);
	if (count > 0)
		memcpy(ret_fds, fds, (size_t)count * sizeof *fds);
	return count;
}

static const char *get_reason(int error)
{
	return error == EPERM ? "no permission to load BPF (CAP_BPF and CAP_PERFMON, or lockdown)"
			      : "the kernel does not take the program (BTF, version)";
}

int tracer_load(int ret_fds[TRACER_FDS], uint32_t *ret_sees, const char **ret_why)
{
	libbpf_set_print(be_quiet);
	struct btf *btf = btf__load_vmlinux_btf();
	if (!btf || count_arguments(btf, "exit_mmap") < 0) {
		btf__free(btf);
		*ret_why = "the kernel has no types (BTF) or no tracepoint exit_mmap (6.1)";
		return -EOPNOTSUPP;
	}
	uint32_t sees = find_sight(btf);
	btf__free(btf);
	struct tracer_bpf *skeleton = load(sees);
	/* The table is there, but only some kernels know its name at run time (CONFIG_KALLSYMS_ALL). */
	if (!skeleton && errno == ENOENT && sees & TRACER_SEES_STEAL)
		skeleton = load(sees &= ~TRACER_SEES_STEAL);
	if (!skeleton) {
		*ret_why = get_reason(errno);
		return errno ? -errno : -EOPNOTSUPP;
	}
	int r = copy_fds(skeleton, ret_fds);
	tracer_bpf__destroy(skeleton);
	*ret_why = r < 0 ? "no descriptor left" : "";
	if (r >= 0)
		*ret_sees = sees;
	return r;
}

#endif
