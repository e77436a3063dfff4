/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * paravirt_cpu.c - the hypervisor, what it offers, and what this kernel takes of it.
 * CPUID says what is offered; what is taken follows from the conditions in the kernel (named beside each) and
 * from its configuration and command line.
 */
#include "paravirt_parts.h"

#define LEAF_MAX        0x40010000u /* where Linux stops looking, too */
#define LEAF_STEP       0x100u
#define LEAF_BASE       0x40000000u
#define BIT(n)          (1u << (n))
#define ECX_MWAIT       BIT(3)
#define ECX_PCID        BIT(17)
#define ECX_HYPERVISOR  BIT(31)
#define EBX_INVPCID     BIT(10) /* leaf 7 */
#define EBX_INVLPGB     BIT(3)  /* leaf 0x80000008 */
#define KVM_HINT_ALONE  BIT(0)  /* edx of KVM's features: CPUs of our own, nothing is gained by help */
#define KVM_STEAL_TIME  5
#define SIGNATURE_BYTES 12

/* Whom a signature means. Linux knows the first ones; of the others it takes no help, but may be deceived. */
static const struct {
	const char *signature; /* 12 bytes, or fewer and NULs */
	enum paravirt_hypervisor hypervisor;
	const char *short_name;
} signatures[] = {
	{"KVMKVMKVM", HYPERVISOR_KVM, "kvm"},
	{"XenVMMXenVMM", HYPERVISOR_XEN_HVM, "xen-hvm"},
	{"Microsoft Hv", HYPERVISOR_HYPERV, "hyper-v"},
	{"VMwareVMware", HYPERVISOR_VMWARE, "vmware"},
	{"TCGTCGTCGTCG", HYPERVISOR_OTHER, "tcg"},
	{"bhyve bhyve ", HYPERVISOR_OTHER, "bhyve"},
	{"VBoxVBoxVBox", HYPERVISOR_OTHER, "vbox"},
	{"ACRNACRNACRN", HYPERVISOR_OTHER, "acrn"},
	{"Jailhouse", HYPERVISOR_OTHER, "jailhouse"},
	{" lrpepyh vr ", HYPERVISOR_OTHER, "parallels"},
	{" QNXQVMBSQG ", HYPERVISOR_OTHER, "qnx"},
};

/* ---- who ---- */

static bool get_leaf(const struct paravirt_reader *reader, uint32_t leaf, struct paravirt_leaf *ret_leaf)
{
	return reader->has_cpuid && reader->cpuid(leaf, 0, ret_leaf);
}

static bool read_signature(const struct paravirt_reader *reader, uint32_t base, char ret[SIGNATURE_BYTES + 1])
{
	struct paravirt_leaf leaf;

	if (!get_leaf(reader, base, &leaf) || leaf.ebx == 0)
		return false;
	memcpy(ret, &leaf.ebx, 4);
	memcpy(ret + 4, &leaf.ecx, 4);
	memcpy(ret + 8, &leaf.edx, 4);
	ret[SIGNATURE_BYTES] = 0;
	for (char *at = ret; *at; at++) {
		if (*at < ' ' || *at > '~')
			*at = '?';
	}
	return true;
}

static size_t find_signature(const char *signature)
{
	size_t i = 0;

	while (i < ARRAY_SIZE(signatures) && strcmp(signatures[i].signature, signature) != 0)
		i++;
	return i;
}

/*
 * Several may answer, each at its own base: KVM that shows Hyper-V's leaves to its guest, Xen behind
 * Hyper-V's. Linux takes the highest that it knows; so do we. What stands below is an enlightenment.
 */
static void read_hypervisor(struct paravirt_reader *reader)
{
	char signature[SIGNATURE_BYTES + 1], below[SIGNATURE_BYTES + 1] = "",
								     chosen[SIGNATURE_BYTES + 1] = "";

	for (uint32_t base = LEAF_BASE; base < LEAF_MAX; base += LEAF_STEP) {
		if (!read_signature(reader, base, signature))
			continue;
		size_t known = find_signature(signature);
		if (*chosen && known == ARRAY_SIZE(signatures))
			continue;
		snprintf(below, sizeof(below), "%s", chosen);
		snprintf(chosen, sizeof(chosen), "%s", signature);
		reader->base = base;
		reader->hypervisor =
			known < ARRAY_SIZE(signatures) ? signatures[known].hypervisor : HYPERVISOR_OTHER;
		snprintf(reader->short_name, sizeof(reader->short_name), "%s",
			known < ARRAY_SIZE(signatures) ? signatures[known].short_name : "other");
	}
	if (*chosen) {
		paravirt_add(reader, "hypervisor", reader->short_name, "cpuid 0x%08x", reader->base);
		paravirt_add(reader, "signature", chosen, "cpuid 0x%08x ebx ecx edx", reader->base);
		if (*below)
			paravirt_add(reader, "enlightenments", below, "cpuid below 0x%08x", reader->base);
	}
}

/* A Xen PV guest sees the CPUID of the machine, whatever that says: the kernel knows better. */
static bool read_xen(struct paravirt_reader *reader)
{
	const struct paravirt_kernel *kernel = &reader->kernel;
	bool is_pv = strcmp(kernel->xen_type, "xen") == 0 && strcmp(kernel->xen_guest, "PV") == 0;

	if (!is_pv && !(kernel->has_proc_xen && reader->hypervisor != HYPERVISOR_XEN_HVM &&
			      strcmp(kernel->xen_type, "xen") == 0 && !*kernel->xen_guest))
		return false;
	reader->hypervisor = HYPERVISOR_XEN_PV;
	snprintf(reader->short_name, sizeof(reader->short_name), "xen-pv");
	reader->to->fact_count = 0;
	paravirt_add(reader, "hypervisor", reader->short_name, "%s",
		is_pv ? "/sys/hypervisor/guest_type" : "/proc/xen, and no Xen in cpuid");
	return true;
}

static void read_without_signature(struct paravirt_reader *reader)
{
	const struct paravirt_kernel *kernel = &reader->kernel;
	struct paravirt_leaf leaf;

	if (get_leaf(reader, 1, &leaf)) {
		bool is_guest = leaf.ecx & ECX_HYPERVISOR;
		reader->hypervisor = is_guest ? HYPERVISOR_OTHER : HYPERVISOR_NONE;
		snprintf(reader->short_name, sizeof(reader->short_name), is_guest ? "other" : "none");
		paravirt_add(reader, "hypervisor", reader->short_name, "cpuid 0x00000001 ecx bit 31%s",
			is_guest ? ", no signature" : " is 0");
	} else if (*kernel->xen_type || *kernel->device_tree) {
		const char *where = *kernel->xen_type ? "/sys/hypervisor/type"
						      : "/proc/device-tree/hypervisor/compatible";
		const char *what = *kernel->xen_type ? kernel->xen_type : kernel->device_tree;
		snprintf(reader->short_name, sizeof(reader->short_name), "%.*s", (int)strcspn(what, " ,"),
			what);
		reader->hypervisor = HYPERVISOR_UNKNOWN;
		paravirt_add(reader, "hypervisor", reader->short_name, "%s", where);
	} else {
		snprintf(reader->short_name, sizeof(reader->short_name), "?");
		paravirt_add(
			reader, "hypervisor", "", "no cpuid on this machine, nor a word in its device tree");
	}
}

/* Clocks that a kernel offers only as the guest it takes itself for. CPUID in user space may be made up. */
static void read_kernel_guest(struct paravirt_reader *reader)
{
	static const struct {
		const char *clock, *guest;
	} clocks[] = {{"kvm-clock", "kvm"}, {"xen", "xen"}, {"hyperv_clocksource", "hyper-v"}};

	for (size_t i = 0; i < ARRAY_SIZE(clocks) && !*reader->kernel_guest; i++) {
		if (strncmp(reader->kernel.clocks, clocks[i].clock, strlen(clocks[i].clock)) == 0 ||
			strstr(reader->kernel.clocks, clocks[i].clock))
			snprintf(reader->kernel_guest, sizeof(reader->kernel_guest), "%s", clocks[i].guest);
	}
	paravirt_add(reader, "kernel_guest", reader->kernel_guest, "%s",
		*reader->kernel_guest ? "available_clocksource"
				      : "no clock of a hypervisor in available_clocksource");
}

/* ---- what is offered and used ---- */

enum { BIT_NONE = -1 };

/* In the order of Linux: arch/x86/kernel/kvm.c, arch/x86/hyperv/{mmu,hv_apic}.c, arch/x86/xen. */
static const struct feature {
	const char *name, *used_name, *short_name; /* of the regime's name; NULL: not in it */
	int kvm_bit;                               /* of eax of KVM's base + 1 */
	int hyperv_bit;                            /* of eax of Hyper-V's base + 4 */
	bool is_of_xen_hvm;                        /* Xen PV has all */
	/* The kernel takes it only... */
	bool needs_cpus;  /* where there can be several CPUs */
	bool needs_steal; /* beside steal time, and where guests cannot wait with MWAIT */
	bool needs_help;  /* unless the hypervisor says that our CPUs are our own */
	const char *word; /* unless the command line has it */
	enum paravirt_option
		option; /* if it was built with it, beside KVM_GUEST or HYPERV; OPTIONS: no more */
} features[] = {
	{"pv_tlb_flush", "pv_tlb_flush_used", "tlb", 9, 2, false, true, true, true, "nopv", OPTIONS},
	{"pv_ipi", "pv_ipi_used", "ipi", 11, 10, true, true, false, false, "nopv", OPTIONS},
	{"pv_unhalt", "pv_unhalt_used", NULL, 7, BIT_NONE, true, true, false, true, "nopvspin",
		OPTION_PARAVIRT_SPINLOCKS},
	/* no-steal-acc keeps it from the scheduler, not from /proc/stat. */
	{"steal_time", "steal_time_used", "steal", KVM_STEAL_TIME, BIT_NONE, true, false, false, false,
		"nopv", OPTIONS},
};

struct offer {
	uint32_t kvm, kvm_hints, hyperv;
	bool has_mwait;
};

static enum paravirt_answer add_offer(
	struct paravirt_reader *reader, const struct feature *feature, const struct offer *offer)
{
	enum paravirt_answer answer = PARAVIRT_NO;
	const char *name = feature->name;

	switch (reader->hypervisor) {
	case HYPERVISOR_UNKNOWN:
		paravirt_add(reader, name, "", "no cpuid tells");
		return PARAVIRT_UNKNOWN;
	case HYPERVISOR_NONE:
		paravirt_add(reader, name, "no", "no hypervisor");
		return PARAVIRT_NO;
	case HYPERVISOR_KVM:
		answer = offer->kvm & BIT(feature->kvm_bit) ? PARAVIRT_YES : PARAVIRT_NO;
		paravirt_add(reader, name, paravirt_format(answer), "cpuid 0x%08x eax bit %d",
			reader->base + 1, feature->kvm_bit);
		return answer;
	case HYPERVISOR_HYPERV:
		if (feature->hyperv_bit == BIT_NONE) {
			paravirt_add(reader, name, "no", "Linux knows none of Hyper-V");
			return PARAVIRT_NO;
		}
		answer = offer->hyperv & BIT(feature->hyperv_bit) ? PARAVIRT_YES : PARAVIRT_NO;
		paravirt_add(reader, name, paravirt_format(answer), "cpuid 0x%08x eax bit %d",
			reader->base + 4, feature->hyperv_bit);
		return answer;
	case HYPERVISOR_XEN_PV:
		paravirt_add(reader, name, "yes", "every Xen PV guest has it");
		return PARAVIRT_YES;
	case HYPERVISOR_XEN_HVM:
		answer = feature->is_of_xen_hvm ? PARAVIRT_YES : PARAVIRT_NO;
		paravirt_add(reader, name, paravirt_format(answer), "%s",
			feature->is_of_xen_hvm ? "every Xen HVM guest has it"
					       : "Linux knows none of Xen HVM");
		return answer;
	case HYPERVISOR_VMWARE:
		if (strcmp(name, "steal_time") == 0) {
			paravirt_add(reader, name, "", "VMware tells by a hypercall, not by cpuid");
			return PARAVIRT_UNKNOWN;
		}
		paravirt_add(reader, name, "no", "Linux knows none of VMware");
		return PARAVIRT_NO;
	case HYPERVISOR_OTHER:
		if (*reader->kernel_guest) {
			paravirt_add(reader, name, "", "cpuid says %s, the kernel has the clock of %s",
				reader->short_name, reader->kernel_guest);
			return PARAVIRT_UNKNOWN;
		}
		paravirt_add(reader, name, "no", "Linux knows none of this hypervisor");
		return PARAVIRT_NO;
	}
	return PARAVIRT_UNKNOWN;
}

/* Why the kernel does not take what it is offered; NULL: nothing is against it. */
static const char *get_hindrance(
	const struct paravirt_reader *reader, const struct feature *feature, const struct offer *offer)
{
	const struct paravirt_kernel *kernel = &reader->kernel;
	bool is_kvm = reader->hypervisor == HYPERVISOR_KVM,
	     is_xen_hvm = reader->hypervisor == HYPERVISOR_XEN_HVM;

	if (reader->hypervisor == HYPERVISOR_XEN_PV)
		return NULL;
	if (paravirt_has_word(kernel->cmdline, "nopv"))
		return "/proc/cmdline: nopv";
	if (paravirt_has_word(kernel->cmdline, feature->word))
		return "/proc/cmdline: nopvspin";
	if (is_xen_hvm && paravirt_has_word(kernel->cmdline, "xen_nopv"))
		return "/proc/cmdline: xen_nopv";
	if (feature->needs_cpus && kernel->cpus == 1)
		return "/sys/devices/system/cpu/possible: one CPU";
	if (is_kvm && feature->needs_steal && offer->has_mwait)
		return "cpuid 0x00000001 ecx bit 3: the guest waits with MWAIT";
	if (is_kvm && feature->needs_steal && !(offer->kvm & BIT(KVM_STEAL_TIME)))
		return "no steal time, which it needs";
	if (is_kvm && feature->needs_help && (offer->kvm_hints & KVM_HINT_ALONE))
		return "KVM hints that our CPUs are our own";
	return NULL;
}

/* Is the kernel built as a guest of this hypervisor? */
static enum paravirt_answer is_built(const struct paravirt_reader *reader, const struct feature *feature)
{
	const struct paravirt_kernel *kernel = &reader->kernel;
	bool is_kvm = reader->hypervisor == HYPERVISOR_KVM;
	bool is_guest = paravirt_is_its_guest(reader);

	if (*kernel->config && (is_kvm || reader->hypervisor == HYPERVISOR_HYPERV))
		is_guest = kernel->options[is_kvm ? OPTION_KVM_GUEST : OPTION_HYPERV];
	else if (!is_guest)
		return PARAVIRT_UNKNOWN;
	if (!is_guest)
		return PARAVIRT_NO;
	if (feature->option == OPTIONS)
		return PARAVIRT_YES;
	if (!*kernel->config)
		return PARAVIRT_UNKNOWN;
	return kernel->options[feature->option] ? PARAVIRT_YES : PARAVIRT_NO;
}

static enum paravirt_answer add_use(struct paravirt_reader *reader, const struct feature *feature,
	const struct offer *offer, enum paravirt_answer offered)
{
	const char *name = feature->used_name;

	if (offered != PARAVIRT_YES) {
		paravirt_add(reader, name, paravirt_format(offered),
			offered == PARAVIRT_NO ? "not offered" : "not known whether it is offered");
		return offered;
	}
	const char *hindrance = get_hindrance(reader, feature, offer);
	if (hindrance) {
		paravirt_add(reader, name, "no", "%s", hindrance);
		return PARAVIRT_NO;
	}
	enum paravirt_answer built =
		reader->hypervisor == HYPERVISOR_XEN_PV ? PARAVIRT_YES : is_built(reader, feature);
	if (reader->hypervisor == HYPERVISOR_XEN_PV)
		paravirt_add(reader, name, "yes", "a Xen PV guest cannot do without");
	else if (built == PARAVIRT_UNKNOWN)
		paravirt_add(reader, name, "", "offered; no configuration of the kernel to be read");
	else
		paravirt_add(reader, name, paravirt_format(built), "offered; %s%s",
			built == PARAVIRT_NO ? "not built in: " : "nothing is against it: ",
			*reader->kernel.config ? reader->kernel.config : "available_clocksource");
	return built;
}

static void read_offer(const struct paravirt_reader *reader, struct offer *ret_offer)
{
	struct paravirt_leaf leaf;

	*ret_offer = (struct offer){0};
	if (get_leaf(reader, 1, &leaf))
		ret_offer->has_mwait = leaf.ecx & ECX_MWAIT;
	if (reader->hypervisor == HYPERVISOR_KVM && get_leaf(reader, reader->base + 1, &leaf)) {
		ret_offer->kvm = leaf.eax;
		ret_offer->kvm_hints = leaf.edx;
	}
	if (reader->hypervisor == HYPERVISOR_HYPERV && get_leaf(reader, reader->base + 4, &leaf))
		ret_offer->hyperv = leaf.eax;
}

static void read_features(struct paravirt_reader *reader)
{
	size_t unknown = 0, named = 0;
	struct offer offer;

	read_offer(reader, &offer);
	for (size_t i = 0; i < ARRAY_SIZE(features); i++) {
		enum paravirt_answer offered = add_offer(reader, &features[i], &offer);
		enum paravirt_answer used = add_use(reader, &features[i], &offer, offered);
		if (!features[i].short_name)
			continue;
		named++;
		unknown += used == PARAVIRT_UNKNOWN;
		if (used == PARAVIRT_NO)
			continue;
		size_t length = strlen(reader->used);
		snprintf(reader->used + length, sizeof(reader->used) - length, "%s%s%s", length ? "," : "",
			features[i].short_name, used == PARAVIRT_UNKNOWN ? "?" : "");
	}
	if (unknown == named)
		snprintf(reader->used, sizeof(reader->used), "?");
}

/* ---- instructions ---- */

static enum paravirt_answer get_bit(
	const struct paravirt_reader *reader, uint32_t number, size_t offset, uint32_t bit)
{
	struct paravirt_leaf leaf;
	uint32_t value;

	if (!reader->has_cpuid)
		return PARAVIRT_UNKNOWN;
	if (!get_leaf(reader, number, &leaf))
		return PARAVIRT_NO;
	memcpy(&value, (const char *)&leaf + offset, sizeof(value));
	return value & bit ? PARAVIRT_YES : PARAVIRT_NO;
}

/* What the kernel counts as there: it takes out what it was told not to use. */
static enum paravirt_answer add_flag(
	struct paravirt_reader *reader, const char *name, uint32_t leaf, size_t offset, uint32_t bit)
{
	enum paravirt_answer answer = get_bit(reader, leaf, offset, bit);

	if (*reader->kernel.flags && reader->has_cpuid) {
		bool has = paravirt_has_word(reader->kernel.flags, name);
		paravirt_add(reader, name, has ? "yes" : "no", "/proc/cpuinfo flags");
		return has ? PARAVIRT_YES : PARAVIRT_NO;
	}
	paravirt_add(reader, name, paravirt_format(answer),
		answer == PARAVIRT_UNKNOWN ? "no cpuid on this machine" : "cpuid 0x%08x", leaf);
	return answer;
}

/* One instruction that flushes the TLBs of all CPUs (AMD); Linux 6.15 and later use it. */
static void read_invlpgb(struct paravirt_reader *reader, enum paravirt_answer pcid)
{
	const struct paravirt_kernel *kernel = &reader->kernel;
	enum paravirt_answer answer =
		get_bit(reader, 0x80000008, offsetof(struct paravirt_leaf, ebx), EBX_INVLPGB);
	bool is_built = kernel->options[OPTION_BROADCAST_TLB_FLUSH];

	paravirt_add(reader, "invlpgb", paravirt_format(answer),
		answer == PARAVIRT_UNKNOWN ? "no cpuid on this machine" : "cpuid 0x80000008 ebx bit 3");
	reader->invlpgb = answer;
	if (answer != PARAVIRT_YES)
		paravirt_add(reader, "invlpgb_used", paravirt_format(answer),
			answer == PARAVIRT_NO ? "not there" : "no cpuid on this machine");
	else if (pcid == PARAVIRT_NO) {
		reader->invlpgb = PARAVIRT_NO;
		paravirt_add(reader, "invlpgb_used", "no", "no pcid, which it needs");
	} else if (*kernel->config) {
		reader->invlpgb = is_built ? PARAVIRT_YES : PARAVIRT_NO;
		paravirt_add(reader, "invlpgb_used", paravirt_format(reader->invlpgb),
			"CONFIG_BROADCAST_TLB_FLUSH in %s", kernel->config);
	} else {
		reader->invlpgb = PARAVIRT_UNKNOWN;
		paravirt_add(reader, "invlpgb_used", "", "no configuration of the kernel to be read");
	}
}

static void read_instructions(struct paravirt_reader *reader)
{
	const char *pti = reader->kernel.pti;
	enum paravirt_answer pcid =
		add_flag(reader, "pcid", 1, offsetof(struct paravirt_leaf, ecx), ECX_PCID);

	add_flag(reader, "invpcid", 7, offsetof(struct paravirt_leaf, ebx), EBX_INVPCID);
	read_invlpgb(reader, pcid);
	paravirt_add(reader, "pti", *pti ? (strstr(pti, "PTI") ? "yes" : "no") : "",
		"/sys/devices/system/cpu/vulnerabilities/meltdown%s", *pti ? "" : " is not there");
}

void paravirt_read_cpu(struct paravirt_reader *reader)
{
	struct paravirt_leaf leaf;

	reader->has_cpuid = reader->cpuid && reader->cpuid(0, 0, &leaf);
	read_hypervisor(reader);
	if (!read_xen(reader) && reader->hypervisor == HYPERVISOR_UNKNOWN)
		read_without_signature(reader);
	read_kernel_guest(reader);
	read_features(reader);
	read_instructions(reader);
}
