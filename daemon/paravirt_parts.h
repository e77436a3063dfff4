/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* paravirt_parts.h - what the parts of paravirt share; for paravirt*.c and their test alone. */
#ifndef HPZ_PARAVIRT_PARTS_H
#define HPZ_PARAVIRT_PARTS_H

#include "paravirt.h"

enum paravirt_answer {
	PARAVIRT_UNKNOWN,
	PARAVIRT_NO,
	PARAVIRT_YES,
};

/* What is looked for in the kernel's configuration. */
enum paravirt_option {
	OPTION_PARAVIRT,
	OPTION_PARAVIRT_SPINLOCKS,
	OPTION_KVM_GUEST,
	OPTION_HYPERV,
	OPTION_RCU_TABLE_FREE,
	OPTION_PT_RECLAIM,
	OPTION_BROADCAST_TLB_FLUSH,
	OPTION_LAZY_REFCOUNT,
	OPTION_LAZY_SHOOTDOWN,
	OPTIONS,
};

/* And in its type information (BTF). */
enum paravirt_type {
	TYPE_ANCHOR, /* every kernel has it: without it functions are not listed at all */
	TYPE_SYNC_ONE,
	TYPE_PT_RECLAIM,
	TYPE_PV_REMOVE_TABLE,
	TYPE_HUGETLB_SPLIT,
	TYPE_UNSHARED,
	TYPE_SHOOTDOWN,
	TYPE_SKIPS_LAZY,
	TYPES,
};

#define PARAVIRT_RELEASE 80
#define PARAVIRT_TEXT    4096
struct paravirt_kernel {
	char release[PARAVIRT_RELEASE]; /* "": not known */
	unsigned major, minor;          /* of it; 0.0 */
	char cmdline[PARAVIRT_TEXT];
	char flags[PARAVIRT_TEXT]; /* of /proc/cpuinfo; "": none */
	char pti[PARAVIRT_VALUE];  /* as the kernel says it; "": it does not */
	unsigned cpus;             /* that could be there; 0: not known */
	char clocks[256];
	char config[PARAVIRT_RELEASE + 32]; /* the file that was read; "": none */
	bool options[OPTIONS];
	bool has_types; /* of the kernel; else nothing is said of them */
	bool types[TYPES];
	char xen_type[16], xen_guest[16]; /* of /sys/hypervisor; "" */
	bool has_proc_xen;
	char device_tree[64]; /* what a device tree calls the hypervisor; "" */
};
void paravirt_read_kernel(const char *root, struct paravirt_kernel *ret_kernel);
/* A whole word of a text that blanks divide. */
bool paravirt_has_word(const char *text, const char *word);

enum paravirt_hypervisor {
	HYPERVISOR_UNKNOWN,
	HYPERVISOR_NONE,
	HYPERVISOR_KVM,
	HYPERVISOR_XEN_PV,
	HYPERVISOR_XEN_HVM,
	HYPERVISOR_HYPERV,
	HYPERVISOR_VMWARE,
	HYPERVISOR_OTHER, /* Linux takes no such help from it */
};

struct paravirt_reader {
	struct paravirt *to;
	paravirt_cpuid cpuid;
	struct paravirt_kernel kernel;
	bool has_cpuid;
	enum paravirt_hypervisor hypervisor;
	uint32_t base;        /* its first leaf */
	char short_name[10];  /* "kvm", "bhyve"; "?" */
	char kernel_guest[8]; /* what the kernel takes itself for: "kvm"; "": nothing tells */
	char used[17];        /* "tlb,ipi" for the name; "?": not known; "": nothing */
	enum paravirt_answer invlpgb;
	char rcu[9], pmd[16]; /* "" */
};
struct paravirt_fact *paravirt_add(struct paravirt_reader *reader, const char *name, const char *value,
	const char *where, ...) PRINTF(4, 5);
/* Does the kernel take itself for a guest of that hypervisor, as far as its clocks tell? */
bool paravirt_is_its_guest(const struct paravirt_reader *reader);
const char *paravirt_format(enum paravirt_answer answer);

/* paravirt_cpu.c: hypervisor, what it offers and what of it is used, instructions. */
void paravirt_read_cpu(struct paravirt_reader *reader);
/* paravirt_tables.c: how page tables are freed. */
void paravirt_read_tables(struct paravirt_reader *reader);

#endif
