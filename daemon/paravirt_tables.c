/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * paravirt_tables.c - how this kernel frees page tables, from the best source there is: its type information,
 * then its configuration, then its release. Distributions carry patches back and leave the release as it is,
 * so that the release decides only where nothing else can, and the fact says so.
 */
#include "paravirt_parts.h"

#define WHERE_TYPES "/sys/kernel/btf/vmlinux"

static bool is_since(const struct paravirt_kernel *kernel, unsigned major, unsigned minor)
{
	return kernel->major > major || (kernel->major == major && kernel->minor >= minor);
}

static void add_release(struct paravirt_reader *reader, const char *name, const char *value)
{
	if (*value)
		paravirt_add(reader, name, value, "release %s: not read from anything better",
			reader->kernel.release);
	else
		paravirt_add(reader, name, "",
			"neither " WHERE_TYPES " nor a configuration; the release does not tell");
}

/*
 * Are page tables freed after a grace period of RCU? x86 up to 6.13 chooses at boot, by pv_ops.mmu: only
 * where a hypervisor flushes TLBs for it; bare metal relies on the IPIs of its flushes. 6.14 with PT_RECLAIM,
 * and 6.15 and later in any case, always do. Other architectures always do, or never.
 */
static void read_rcu(struct paravirt_reader *reader)
{
	const struct paravirt_kernel *kernel = &reader->kernel;
	const char *value = "";

	if (kernel->has_types) {
		bool is_choice = kernel->types[TYPE_PV_REMOVE_TABLE] && !kernel->types[TYPE_PT_RECLAIM];
		value = !kernel->types[TYPE_SYNC_ONE] ? "never" : is_choice ? "paravirt" : "always";
		paravirt_add(reader, "rcu_table_free", value, "%s", WHERE_TYPES);
	} else if (*kernel->config) {
		bool is_choice = kernel->options[OPTION_PARAVIRT] && !kernel->options[OPTION_PT_RECLAIM] &&
				 !is_since(kernel, 6, 15);
		value = !kernel->options[OPTION_RCU_TABLE_FREE] ? "never" : is_choice ? "paravirt" : "always";
		paravirt_add(
			reader, "rcu_table_free", value, "%s, release %s", kernel->config, kernel->release);
	} else {
		/* Without PARAVIRT an older kernel never does; but who builds one without? */
		value = !reader->has_cpuid || !kernel->major ? ""
			: is_since(kernel, 6, 15)            ? "always"
			: is_since(kernel, 6, 14)            ? ""
							     : "paravirt";
		add_release(reader, "rcu_table_free", value);
	}
	snprintf(reader->rcu, sizeof(reader->rcu), "%s", value);
}

/*
 * Giving up page tables that several processes share (hugetlb) sent an IPI to every CPU, once a table, from
 * June 2025 (6.16, and back into older series) until January 2026 (6.19, and back as well): "affected". The
 * first of the patches of June 2025 brought hugetlb_split(), the one of January 2026 brought
 * mmu_gather.fully_unshared_tables. It needs a kernel that frees tables by RCU: without, no IPI was sent.
 */
static void read_pmd(struct paravirt_reader *reader)
{
	const struct paravirt_kernel *kernel = &reader->kernel;
	const char *value = "";

	if (kernel->has_types) {
		value = kernel->types[TYPE_UNSHARED]        ? "fixed"
			: !kernel->types[TYPE_SYNC_ONE]     ? "unaffected"
			: kernel->types[TYPE_HUGETLB_SPLIT] ? "affected"
							    : "unaffected";
		paravirt_add(reader, "pmd_unshare_ipi", value, "%s", WHERE_TYPES);
	} else if (*kernel->config && !kernel->options[OPTION_RCU_TABLE_FREE]) {
		value = "unaffected";
		paravirt_add(reader, "pmd_unshare_ipi", value, "%s", kernel->config);
	} else {
		/* In between, and in any series that still gets patches, it may be either. */
		value = is_since(kernel, 6, 19) ? "fixed" : "";
		add_release(reader, "pmd_unshare_ipi", value);
	}
	snprintf(reader->pmd, sizeof(reader->pmd), "%s", value);
}

/* A kernel thread keeps the page tables of whom it ran after: counted, or taken away by an IPI at the end. */
static void read_lazy(struct paravirt_reader *reader)
{
	const struct paravirt_kernel *kernel = &reader->kernel;

	if (*kernel->config &&
		(kernel->options[OPTION_LAZY_REFCOUNT] || kernel->options[OPTION_LAZY_SHOOTDOWN]))
		paravirt_add(reader, "lazy_tlb",
			kernel->options[OPTION_LAZY_SHOOTDOWN] ? "shootdown" : "refcount", "%s",
			kernel->config);
	else if (kernel->has_types)
		paravirt_add(reader, "lazy_tlb", kernel->types[TYPE_SHOOTDOWN] ? "shootdown" : "refcount",
			"%s", WHERE_TYPES);
	else
		add_release(reader, "lazy_tlb", kernel->major && !is_since(kernel, 6, 4) ? "refcount" : "");
	/* x86: a CPU that is lazy gets no IPI for a flush, unless page tables go away. */
	if (kernel->has_types)
		paravirt_add(reader, "lazy_tlb_skipped", kernel->types[TYPE_SKIPS_LAZY] ? "yes" : "no", "%s",
			WHERE_TYPES);
	else
		paravirt_add(reader, "lazy_tlb_skipped", "", "no " WHERE_TYPES);
}

void paravirt_read_tables(struct paravirt_reader *reader)
{
	const struct paravirt_kernel *kernel = &reader->kernel;
	char cpus[16] = "";

	read_rcu(reader);
	read_pmd(reader);
	read_lazy(reader);
	if (kernel->cpus)
		snprintf(cpus, sizeof(cpus), "%u", kernel->cpus);
	paravirt_add(reader, "cpus", cpus, "/sys/devices/system/cpu/possible");
	paravirt_add(reader, "release", kernel->release, "/proc/sys/kernel/osrelease");
}
