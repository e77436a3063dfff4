// SPDX-License-Identifier: GPL-2.0-only
/*
 * tracer.bpf.c - sees the end of the processes that hpzd watches: when it begins, when their address space is
 * gone, and what happens in between. Whoever is not watched costs one look into a table when it ends; a TLB
 * flush costs a look at one number while nobody who is watched is dying. Only reads the kernel.
 */
#include <linux/bpf.h>
#include <linux/types.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "tracer_args.h"

/* The fields needed and no others, found by name in the running kernel's BTF (CO-RE). */
#define CORE __attribute__((preserve_access_index))
typedef struct {
	int counter;
} CORE atomic_t;
typedef struct {
	__s64 counter;
} CORE atomic64_t;
struct ns_common {
	unsigned int inum;
} CORE;
struct pid_namespace {
	struct ns_common ns;
} CORE;
struct upid {
	int nr;
	struct pid_namespace *ns;
} CORE;
struct pid {
	unsigned int level;
	struct upid numbers[1];
} CORE;
struct signal_struct {
	atomic_t live;
	unsigned int flags;
	int group_exit_code;
	struct pid *pids[4];
} CORE;
struct mm_struct {
	int map_count;
	atomic64_t pgtables_bytes;
} CORE;
struct task_struct {
	unsigned int flags;
	int exit_code;
	int tgid;
	__u64 start_boottime;
	struct task_struct *group_leader;
	struct signal_struct *signal;
	struct mm_struct *mm;
} CORE;
enum cpu_usage_stat { CPUTIME_STEAL = 7 };
struct kernel_cpustat {
	__u64 cpustat[1];
} CORE;
extern const struct kernel_cpustat kernel_cpustat __ksym;

#define PF_EXITING        0x4u
#define SIGNAL_GROUP_EXIT 0x4u
#define PIDTYPE_TGID      1
#define NS_PER_TICK       10000000 /* of /proc, on every machine */
#define LEVELS_MAX        32       /* of pid namespaces */
#define INIT_PID_NS       0xEFFFFFFCu
#define CPUS_MAX          8192
#define PROCESSES_MAX     4096

/* Kinds of TLB flushes: those that the one who needs it does itself. */
#define FLUSHES_LOCAL    2 /* TLB_LOCAL_SHOOTDOWN */
#define FLUSHES_LOCAL_MM 3 /* TLB_LOCAL_MM_SHOOTDOWN */
#define FLUSHES_SEND_IPI 4 /* TLB_REMOTE_SEND_IPI */

char LICENSE[] SEC("license") = "GPL";

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, PROCESSES_MAX);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct tracer_key);
	__type(value, struct tracer_state);
} states SEC(".maps");

/* Address spaces that are ending, and whose they are. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, PROCESSES_MAX);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u64);
	__type(value, struct tracer_key);
} spaces SEC(".maps");

/* Keys whose address space is gone after their process, of which hpzd's pidfd had to tell too early. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 16384);
} ended SEC(".maps");

const volatile __u32 pid_ns = INIT_PID_NS; /* hpzd's */
__u64 dying;                               /* entries in `spaces` */

/* ---- who it is ---- */

struct number {
	struct pid *pid;
	int nr; /* 0: it has none there */
};

static int look_at_level(__u32 level, struct number *number)
{
	struct pid *pid = number->pid;
	struct upid *upid = (void *)pid + bpf_core_field_offset(struct pid, numbers) +
			    level * bpf_core_type_size(struct upid);
	if (BPF_CORE_READ(upid, ns, ns.inum) != pid_ns)
		return 0;
	number->nr = BPF_CORE_READ(upid, nr);
	return 1;
}

static __always_inline int get_pid(struct task_struct *task)
{
	if (pid_ns == INIT_PID_NS)
		return BPF_CORE_READ(task, tgid);
	struct pid *pid = BPF_CORE_READ(task, signal, pids[PIDTYPE_TGID]);
	struct number number = {pid};
	__u32 levels = pid ? BPF_CORE_READ(pid, level) + 1 : 0;
	if (levels > LEVELS_MAX + 1)
		levels = LEVELS_MAX + 1;
	bpf_loop(levels, look_at_level, &number, 0);
	return number.nr;
}

static __always_inline void get_key(struct task_struct *task, struct tracer_key *key)
{
	key->pid = get_pid(task);
	key->zero = 0;
	key->start_ticks = BPF_CORE_READ(task, group_leader, start_boottime) / NS_PER_TICK;
}

/* ---- time that others had ---- */

/* Some kernels have no name of this table at run time, and refuse a program that speaks of it: so each that
 * does has a twin that does not. */

static int add_steal(__u32 cpu, __u64 *sum)
{
	__u64 ns = 0;
	const struct kernel_cpustat *stat = bpf_per_cpu_ptr(&kernel_cpustat, cpu);
	if (!stat)
		return 1; /* there are no more */
	bpf_probe_read_kernel(&ns, sizeof ns,
		(const void *)stat + bpf_core_enum_value(enum cpu_usage_stat, CPUTIME_STEAL) * sizeof ns);
	*sum += ns;
	return 0;
}

static __always_inline __u64 get_steal(void)
{
	__u64 sum = 0;
	bpf_loop(CPUS_MAX, add_steal, &sum, 0);
	return sum;
}

/* ---- the end ---- */

static __always_inline void note_code(struct tracer_state *state, struct task_struct *task)
{
	struct signal_struct *signal = BPF_CORE_READ(task, signal);
	state->code = BPF_CORE_READ(signal, flags) & SIGNAL_GROUP_EXIT
			      ? BPF_CORE_READ(signal, group_exit_code)
			      : BPF_CORE_READ(task, exit_code);
	state->has_code = 1;
}

/*
 * False: it is another one's who is watched and ending, too, and shared it; of that one the end will be told.
 * An entry whose process is not waited for any more is of an address space that was here before: one that is
 * empty goes without exit_mmap being told.
 */
static __always_inline int note_space(__u64 space, const struct tracer_key *key)
{
	if (bpf_map_update_elem(&spaces, &space, key, BPF_NOEXIST) == 0) {
		__sync_fetch_and_add(&dying, 1);
		return 1;
	}
	struct tracer_key *known = bpf_map_lookup_elem(&spaces, &space);
	if (!known)
		return 1; /* there is no place: its last thread is seen to leave it all the same */
	struct tracer_key other = *known;
	struct tracer_state *state = bpf_map_lookup_elem(&states, &other);
	if (state && state->mm == space && !state->gone_ns)
		return 0;
	bpf_map_update_elem(&spaces, &space, key, BPF_EXIST);
	return 1;
}

/* A thread that still has its address space ends with its group: the first one counts. */
static __always_inline void begin(struct task_struct *task, int is_steal_known)
{
	struct mm_struct *mm = BPF_CORE_READ(task, mm);
	struct tracer_key key;
	if (!mm || !BPF_CORE_READ(mm, map_count))
		return;
	get_key(task, &key);
	struct tracer_state *state = bpf_map_lookup_elem(&states, &key);
	if (!state || __sync_val_compare_and_swap(&state->begun_ns, 0, bpf_ktime_get_ns()) != 0)
		return;
	__u64 space = (__u64)mm;
	state->mm = space;
	state->table_bytes = BPF_CORE_READ(mm, pgtables_bytes.counter);
	if (is_steal_known)
		state->begun_steal_ns = get_steal();
	note_code(state, task);
	if (!note_space(space, &key))
		state->begun_ns = 0;
}

static __always_inline int ends_with_group(struct task_struct *task)
{
	struct signal_struct *signal = BPF_CORE_READ(task, signal);
	return BPF_CORE_READ(signal, flags) & SIGNAL_GROUP_EXIT || BPF_CORE_READ(signal, live.counter) == 0;
}

static __always_inline int note_exit(struct task_struct *task, int is_steal_known)
{
	/* Before 6.16 this comes when the address space is left already: nothing to begin with then. */
	if (BPF_CORE_READ(task, mm) && ends_with_group(task))
		begin(task, is_steal_known);
	return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(on_exit, struct task_struct *task)
{
	return note_exit(task, 0);
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(on_exit_steal, struct task_struct *task)
{
	return note_exit(task, 1);
}

/* For these kernels: each thread that its group takes along, and whoever is killed, is delivered a signal. */
static __always_inline int note_deliver(int is_steal_known)
{
	struct task_struct *task = (void *)bpf_get_current_task();
	if (BPF_CORE_READ(task, signal, flags) & SIGNAL_GROUP_EXIT)
		begin(task, is_steal_known);
	return 0;
}

SEC("tp_btf/signal_deliver")
int BPF_PROG(on_deliver, int number)
{
	return note_deliver(0);
}

SEC("tp_btf/signal_deliver")
int BPF_PROG(on_deliver_steal, int number)
{
	return note_deliver(1);
}

/* The last user of an address space whose beginning of the end was not seen. In an execve() it has another.
 */
static __always_inline int is_leaving(struct task_struct *task)
{
	return BPF_CORE_READ(task, flags) & PF_EXITING && !BPF_CORE_READ(task, mm);
}

static __always_inline int find_ended(struct task_struct *task, __u64 space, struct tracer_key *key)
{
	struct tracer_key *known = dying ? bpf_map_lookup_elem(&spaces, &space) : 0;
	if (known) {
		*key = *known;
		if (bpf_map_delete_elem(&spaces, &space) == 0)
			__sync_fetch_and_add(&dying, -1);
		return 1;
	}
	if (!is_leaving(task))
		return 0;
	get_key(task, key);
	return 1;
}

/* Whoever frees its own address space has yet to end: hpzd hears of that anyhow, and is not woken for it. */
static __always_inline int is_own(struct task_struct *task, const struct tracer_key *key)
{
	struct tracer_key own;
	get_key(task, &own);
	return own.pid == key->pid && own.start_ticks == key->start_ticks;
}

static __always_inline int note_gone(struct mm_struct *mm, int is_steal_known)
{
	struct task_struct *task = (void *)bpf_get_current_task();
	__u64 space = (__u64)mm;
	struct tracer_key key = {};
	if (!find_ended(task, space, &key))
		return 0;
	struct tracer_state *state = bpf_map_lookup_elem(&states, &key);
	if (!state || state->gone_ns || (state->mm && state->mm != space))
		return 0;
	if (!state->has_code)
		note_code(state, task);
	if (is_steal_known)
		state->gone_steal_ns = get_steal();
	state->gone_ns = bpf_ktime_get_ns();
	if (!is_own(task, &key))
		bpf_ringbuf_output(&ended, &key, sizeof key, 0);
	return 0;
}

SEC("tp_btf/exit_mmap")
int BPF_PROG(on_gone, struct mm_struct *mm)
{
	return note_gone(mm, 0);
}

SEC("tp_btf/exit_mmap")
int BPF_PROG(on_gone_steal, struct mm_struct *mm)
{
	return note_gone(mm, 1);
}

SEC("tp_btf/tlb_flush")
int BPF_PROG(on_flush, int kind)
{
	if (!dying || kind < FLUSHES_LOCAL || kind > FLUSHES_SEND_IPI)
		return 0;
	struct task_struct *task = (void *)bpf_get_current_task();
	struct tracer_key key;
	if (!(BPF_CORE_READ(task, flags) & PF_EXITING))
		return 0;
	get_key(task, &key);
	struct tracer_state *state = bpf_map_lookup_elem(&states, &key);
	if (!state || !state->begun_ns || state->gone_ns)
		return 0;
	__u32 index = kind;
	barrier_var(index); /* the verifier wants to see the limit, which clang thinks it knows */
	if (index < TRACER_KINDS)
		__sync_fetch_and_add(&state->flushes[index], 1);
	return 0;
}
