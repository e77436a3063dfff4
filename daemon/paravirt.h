/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * paravirt.h - the regime the end of a VM's memory runs under: which hypervisor is below this kernel, what it
 * offers and this kernel takes of it (flushes of TLBs, IPIs, steal time), and how the kernel frees page
 * tables. A function of CPUID and of files below a root path, so that a test can show it machines we do not
 * have. Each fact says where it was read; one that could not be read has no value, and says why.
 */
#ifndef HPZ_PARAVIRT_H
#define HPZ_PARAVIRT_H

#include "util.h"

struct paravirt_leaf {
	uint32_t eax, ebx, ecx, edx;
};

/* What CPUID answers. False: this machine has no such instruction, or no such leaf. */
typedef bool (*paravirt_cpuid)(uint32_t leaf, uint32_t subleaf, struct paravirt_leaf *ret_leaf);

/* The CPU this runs on. */
bool paravirt_run_cpuid(uint32_t leaf, uint32_t subleaf, struct paravirt_leaf *ret_leaf);

#define PARAVIRT_VALUE 64
#define PARAVIRT_WHERE 128
struct paravirt_fact {
	const char *name;
	char value[PARAVIRT_VALUE]; /* "": not known */
	char where[PARAVIRT_WHERE]; /* it was read, or why it was not */
};

#define PARAVIRT_FACTS_MAX 32
#define PARAVIRT_NAME      64
struct paravirt {
	size_t fact_count;
	struct paravirt_fact facts[PARAVIRT_FACTS_MAX];
	char name[PARAVIRT_NAME];
};

/*
 * root "": this machine. Reads the kernel's type information (some MiB, about 20 ms) and its configuration:
 * not for a loop that others wait for. Thread-safe: touches only its arguments.
 */
void paravirt_read(const char *root, paravirt_cpuid cpuid, struct paravirt *ret_paravirt);

/* NULL: there is none of that name. */
const struct paravirt_fact *paravirt_find_fact(const struct paravirt *paravirt, const char *name);

/*
 * A short name of the regime, at most 63 bytes, the same at each start of the same kernel on the same
 * machine: the hypervisor, which of its help for TLB flushes, IPIs and steal time the kernel takes, how page
 * tables are freed. "kvm:tlb,ipi,steal rcu=always", "none rcu=paravirt". '?' stands for what could not be
 * read.
 */
const char *paravirt_get_name(const struct paravirt *paravirt);

#endif
