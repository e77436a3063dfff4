/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * test_paravirt.c - the regime of machines we do not have: fixtures, made here from what the manuals and the
 * kernel say of them (leaves of CPUID, small root trees, type information of a kernel). And of this one.
 */
#include "paravirt_parts.h"
#include "temp.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
#ifdef HPZ_BPF
#include <bpf/btf.h>
#include <bpf/libbpf.h>
#endif

/* ---- fixtures: CPUs ---- */

struct fixture_leaf {
	uint32_t leaf;
	struct paravirt_leaf out;
};
/* "KVMK" "VMKV" "M\0\0\0", and so on, as three registers. */
#define SIGNATURE(greatest, a, b, c)                                                                         \
	{                                                                                                    \
		greatest, a, b, c                                                                            \
	}
#define KVM    SIGNATURE(0x40000001, 0x4b4d564b, 0x564b4d56, 0x0000004d)
#define XEN    SIGNATURE(0x40000004, 0x566e6558, 0x65584d4d, 0x4d4d566e)
#define HYPERV SIGNATURE(0x4000000c, 0x7263694d, 0x666f736f, 0x76482074)
#define VMWARE SIGNATURE(0x40000010, 0x61774d56, 0x4d566572, 0x65726177)
#define TCG    SIGNATURE(0x40000001, 0x54474354, 0x43544743, 0x47435447)
#define NOBODY SIGNATURE(0x40000000, 0x6f626f4e, 0x4e217964, 0x64796f6f)

#define GUEST_CPU                                                                                            \
	{0, {0xd, 0x756e6547, 0x6c65746e, 0x49656e69}}, {1, {0, 0, 0x80020000, 0}}, {7, {0, 0x400, 0, 0}},   \
	{                                                                                                    \
		0x80000008,                                                                                  \
		{                                                                                            \
			0x3030, 0, 0, 0                                                                      \
		}                                                                                            \
	}

static const struct fixture_leaf fixture_kvm[] = {
	GUEST_CPU, {0x40000000, KVM}, {0x40000001, {0xaa0, 0, 0, 0}}};
static const struct fixture_leaf fixture_kvm_alone[] = {
	GUEST_CPU, {0x40000000, KVM}, {0x40000001, {0xaa0, 0, 0, 1}}};
static const struct fixture_leaf fixture_kvm_without_steal[] = {
	GUEST_CPU, {0x40000000, KVM}, {0x40000001, {0xa80, 0, 0, 0}}};
static const struct fixture_leaf fixture_kvm_mwait[] = {
	{0, {0xd, 0, 0, 0}}, {1, {0, 0, 0x80000008, 0}}, {0x40000000, KVM}, {0x40000001, {0xaa0, 0, 0, 0}}};
static const struct fixture_leaf fixture_kvm_as_hyperv[] = {GUEST_CPU, {0x40000000, HYPERV},
	{0x40000004, {0x0, 0, 0, 0}}, {0x40000100, KVM}, {0x40000101, {0x220, 0, 0, 0}}};
static const struct fixture_leaf fixture_xen_hvm[] = {GUEST_CPU, {0x40000000, XEN}};
static const struct fixture_leaf fixture_xen_viridian[] = {
	GUEST_CPU, {0x40000000, HYPERV}, {0x40000100, XEN}};
static const struct fixture_leaf fixture_azure[] = {
	GUEST_CPU, {0x40000000, HYPERV}, {0x40000004, {0x00064e24, 0xfff, 0, 0}}};
static const struct fixture_leaf fixture_vmware[] = {GUEST_CPU, {0x40000000, VMWARE}};
static const struct fixture_leaf fixture_tcg[] = {GUEST_CPU, {0x40000000, TCG}};
static const struct fixture_leaf fixture_nobody[] = {GUEST_CPU, {0x40000000, NOBODY}};
static const struct fixture_leaf fixture_unsigned[] = {GUEST_CPU};
static const struct fixture_leaf fixture_amd[] = {{0, {0x10, 0x68747541, 0x444d4163, 0x69746e65}},
	{1, {0, 0, 0x00020008, 0}}, {7, {0, 0x400, 0, 0}}, {0x80000008, {0x3030, 0x8, 0, 0}}};
static const struct fixture_leaf fixture_intel[] = {{0, {0x1f, 0x756e6547, 0x6c65746e, 0x49656e69}},
	{1, {0, 0, 0x00020008, 0}}, {7, {0, 0x400, 0, 0}}, {0x80000008, {0x3030, 0, 0, 0}}};
/* PV guests see the machine's own leaves: here those of an Intel one. */
#define fixture_xen_pv fixture_intel

static const struct fixture_leaf *leaves;
static size_t leaf_count;

static bool ask_fixture(uint32_t leaf, uint32_t subleaf, struct paravirt_leaf *ret_leaf)
{
	bool is_hypervisor = leaf >> 28 == 4;

	for (size_t i = 0; i < leaf_count; i++) {
		if (leaves[i].leaf == leaf) {
			*ret_leaf = leaves[i].out;
			return true;
		}
	}
	if (is_hypervisor)
		*ret_leaf = (struct paravirt_leaf){0};
	return is_hypervisor;
}

static bool ask_none(uint32_t leaf, uint32_t subleaf, struct paravirt_leaf *ret_leaf)
{
	return false;
}

/* ---- fixtures: kernels ---- */

static char root[TEMP_PATH];
static struct paravirt facts;

static int setup(void **state)
{
	temp_make(root);
	return 0;
}

static int teardown(void **state)
{
	temp_remove(root);
	return 0;
}

static void put_kernel(const char *release, const char *cpus, const char *clocks)
{
	temp_put(root, "proc/sys/kernel/osrelease", release);
	temp_put(root, "sys/devices/system/cpu/possible", cpus);
	temp_put(root, "sys/devices/system/clocksource/clocksource0/available_clocksource", clocks);
}

#define put_config(release, text)                                                                            \
	temp_put(root, "boot/config-" release,                                                               \
		"#\n# Automatically generated file; DO NOT EDIT.\n#\nCONFIG_SMP=y\n" text                    \
		"# CONFIG_NONE is not set\n")
#define CONFIG_DISTRIBUTION                                                                                  \
	"CONFIG_PARAVIRT=y\nCONFIG_PARAVIRT_SPINLOCKS=y\nCONFIG_KVM_GUEST=y\nCONFIG_HYPERV=m\n"              \
	"CONFIG_MMU_GATHER_TABLE_FREE=y\nCONFIG_MMU_GATHER_RCU_TABLE_FREE=y\nCONFIG_MMU_LAZY_TLB_REFCOUNT="  \
	"y\n"

static void read_machine(const struct fixture_leaf *fixture, size_t count)
{
	leaves = fixture;
	leaf_count = count;
	paravirt_read(root, ask_fixture, &facts);
}
#define READ(fixture) read_machine(fixture, ARRAY_SIZE(fixture))

static void check_at(const char *name, const char *value, const char *where, int line)
{
	const struct paravirt_fact *fact = paravirt_find_fact(&facts, name);

	if (!fact || strcmp(fact->value, value) != 0 || !strstr(fact->where, where))
		fail_msg("line %d: %s is \"%s\" (%s), not \"%s\" (%s)", line, name,
			fact ? fact->value : "(none)", fact ? fact->where : "", value, where);
}
#define CHECK(name, value, where) check_at(name, value, where, __LINE__)
#define CHECK_NAME(text)          assert_string_equal(paravirt_get_name(&facts), text)

/* ---- who is below ---- */

static void test_kvm(void **state)
{
	put_kernel("6.12.9-cloud\n", "0-3\n", "kvm-clock tsc acpi_pm \n");
	put_config("6.12.9-cloud", CONFIG_DISTRIBUTION);
	READ(fixture_kvm);
	CHECK("hypervisor", "kvm", "cpuid 0x40000000");
	CHECK("signature", "KVMKVMKVM", "cpuid 0x40000000");
	CHECK("kernel_guest", "kvm", "available_clocksource");
	CHECK("pv_tlb_flush", "yes", "cpuid 0x40000001 eax bit 9");
	CHECK("pv_tlb_flush_used", "yes", "/boot/config-6.12.9-cloud");
	CHECK("pv_ipi", "yes", "eax bit 11");
	CHECK("pv_unhalt_used", "yes", "");
	CHECK("steal_time", "yes", "eax bit 5");
	CHECK("cpus", "4", "possible");
	CHECK("lazy_tlb", "refcount", "/boot/config-6.12.9-cloud");
	CHECK("release", "6.12.9-cloud", "osrelease");
	assert_null(paravirt_find_fact(&facts, "enlightenments"));
	CHECK_NAME("kvm:tlb,ipi,steal rcu=paravirt");
}

static void test_kvm_unused(void **state)
{
	put_kernel("6.12.9\n", "0-3\n", "kvm-clock tsc\n");
	put_config("6.12.9", CONFIG_DISTRIBUTION);
	READ(fixture_kvm_alone);
	CHECK("pv_tlb_flush", "yes", "");
	CHECK("pv_tlb_flush_used", "no", "our own");
	CHECK("pv_unhalt_used", "no", "our own");
	CHECK("pv_ipi_used", "yes", "");
	CHECK_NAME("kvm:ipi,steal rcu=paravirt");
	READ(fixture_kvm_without_steal);
	CHECK("steal_time_used", "no", "not offered");
	CHECK("pv_tlb_flush_used", "no", "steal time");
	READ(fixture_kvm_mwait);
	CHECK("pv_tlb_flush_used", "no", "MWAIT");
	temp_put(root, "proc/cmdline", "quiet nopvspin no-steal-acc nopvfoo\n");
	READ(fixture_kvm);
	CHECK("pv_unhalt_used", "no", "nopvspin");
	CHECK("steal_time_used", "yes", "");
	temp_put(root, "proc/cmdline", "nopv\n");
	READ(fixture_kvm);
	CHECK_NAME("kvm rcu=paravirt");
	CHECK("pv_ipi_used", "no", "/proc/cmdline: nopv");
	temp_put(root, "proc/cmdline", "\n");
	put_kernel("6.12.9\n", "0\n", "kvm-clock tsc\n");
	READ(fixture_kvm);
	CHECK("pv_tlb_flush_used", "no", "one CPU");
	CHECK_NAME("kvm:steal rcu=paravirt");
	put_config("6.12.9", "CONFIG_MMU_GATHER_RCU_TABLE_FREE=y\n# CONFIG_KVM_GUEST is not set\n");
	READ(fixture_kvm);
	CHECK("steal_time_used", "no", "not built in");
	CHECK_NAME("kvm rcu=always");
}

static void test_kvm_without_config(void **state)
{
	/* The clock tells that it is built as a guest, but not with which spinlocks. */
	put_kernel("6.12.9\n", "0-1\n", "kvm-clock\n");
	READ(fixture_kvm);
	CHECK("pv_tlb_flush_used", "yes", "available_clocksource");
	CHECK("pv_unhalt_used", "", "no configuration");
	put_kernel("6.12.9\n", "0-1\n", "tsc\n");
	READ(fixture_kvm);
	CHECK("pv_tlb_flush_used", "", "no configuration");
	CHECK("kernel_guest", "", "");
	CHECK_NAME("kvm:? rcu=paravirt");
}

static void test_kvm_as_hyperv(void **state)
{
	put_kernel("6.18.1\n", "0-1\n", "kvm-clock\n");
	READ(fixture_kvm_as_hyperv);
	CHECK("hypervisor", "kvm", "cpuid 0x40000100");
	CHECK("enlightenments", "Microsoft Hv", "below 0x40000100");
	CHECK("pv_tlb_flush", "yes", "cpuid 0x40000101 eax bit 9");
	CHECK("pv_ipi", "no", "eax bit 11");
	CHECK_NAME("kvm:tlb,steal rcu=always");
}

static void test_xen(void **state)
{
	put_kernel("6.1.0-57\n", "0-1\n", "xen tsc\n");
	READ(fixture_xen_hvm);
	CHECK("hypervisor", "xen-hvm", "cpuid 0x40000000");
	CHECK("pv_tlb_flush", "no", "Xen HVM");
	CHECK("steal_time_used", "yes", "");
	CHECK_NAME("xen-hvm:ipi,steal rcu=paravirt");
	READ(fixture_xen_viridian);
	CHECK("hypervisor", "xen-hvm", "cpuid 0x40000100");
	CHECK("enlightenments", "Microsoft Hv", "");
	temp_put(root, "proc/cmdline", "xen_nopv\n");
	READ(fixture_xen_hvm);
	CHECK_NAME("xen-hvm rcu=paravirt");
	/* CPUID says bare metal. */
	temp_put(root, "sys/hypervisor/type", "xen\n");
	temp_put(root, "sys/hypervisor/guest_type", "PV\n");
	READ(fixture_xen_pv);
	CHECK("hypervisor", "xen-pv", "/sys/hypervisor/guest_type");
	CHECK("pv_tlb_flush_used", "yes", "Xen PV");
	CHECK_NAME("xen-pv:tlb,ipi,steal rcu=paravirt");
	/* A kernel of before guest_type. */
	temp_put(root, "sys/hypervisor/guest_type", "\n");
	temp_put(root, "proc/xen/capabilities", "control_d\n");
	READ(fixture_xen_pv);
	CHECK("hypervisor", "xen-pv", "/proc/xen");
	temp_put(root, "sys/hypervisor/guest_type", "HVM\n");
	READ(fixture_xen_hvm);
	CHECK("hypervisor", "xen-hvm", "cpuid");
}

static void test_hyperv(void **state)
{
	put_kernel("6.8.0-azure\n", "0-7\n", "hyperv_clocksource_tsc_page acpi_pm\n");
	READ(fixture_azure);
	CHECK("hypervisor", "hyper-v", "cpuid 0x40000000");
	CHECK("pv_tlb_flush", "yes", "cpuid 0x40000004 eax bit 2");
	CHECK("pv_tlb_flush_used", "yes", "available_clocksource");
	CHECK("pv_ipi", "yes", "eax bit 10");
	CHECK("steal_time", "no", "Hyper-V");
	CHECK_NAME("hyper-v:tlb,ipi rcu=paravirt");
	put_config(
		"6.8.0-azure", "CONFIG_KVM_GUEST=y\nCONFIG_PARAVIRT=y\nCONFIG_MMU_GATHER_RCU_TABLE_FREE=y\n");
	READ(fixture_azure);
	CHECK("pv_tlb_flush_used", "no", "not built in");
}

static void test_others(void **state)
{
	put_kernel("6.15.0\n", "0-1\n", "tsc\n");
	READ(fixture_vmware);
	CHECK("hypervisor", "vmware", "cpuid 0x40000000");
	CHECK("pv_tlb_flush_used", "no", "not offered");
	CHECK("steal_time", "", "hypercall");
	CHECK_NAME("vmware:steal? rcu=always");
	READ(fixture_tcg);
	CHECK("hypervisor", "tcg", "cpuid");
	CHECK("signature", "TCGTCGTCGTCG", "cpuid");
	CHECK_NAME("tcg rcu=always");
	READ(fixture_nobody);
	CHECK("hypervisor", "other", "cpuid");
	CHECK("signature", "Nobody!Nooyd", "cpuid");
	READ(fixture_unsigned);
	CHECK("hypervisor", "other", "bit 31, no signature");
	/* The kernel knows of a hypervisor that CPUID keeps from user space. */
	put_kernel("6.15.0\n", "0-1\n", "kvm-clock\n");
	READ(fixture_tcg);
	CHECK("pv_tlb_flush", "", "cpuid says tcg, the kernel has the clock of kvm");
	CHECK_NAME("tcg/kvm:? rcu=always");
}

static void test_bare_metal(void **state)
{
	put_kernel("6.16.3\n", "0-127\n", "tsc hpet\n");
	put_config("6.16.3", CONFIG_DISTRIBUTION "CONFIG_PT_RECLAIM=y\nCONFIG_BROADCAST_TLB_FLUSH=y\n");
	temp_put(root, "sys/devices/system/cpu/vulnerabilities/meltdown", "Not affected\n");
	READ(fixture_amd);
	CHECK("hypervisor", "none", "ecx bit 31 is 0");
	CHECK("pv_tlb_flush", "no", "no hypervisor");
	CHECK("invlpgb", "yes", "cpuid 0x80000008 ebx bit 3");
	CHECK("invlpgb_used", "yes", "CONFIG_BROADCAST_TLB_FLUSH in /boot/config-6.16.3");
	CHECK("pcid", "yes", "cpuid 0x00000001");
	CHECK("invpcid", "yes", "cpuid 0x00000007");
	CHECK("pti", "no", "meltdown");
	CHECK("cpus", "128", "");
	CHECK_NAME("none rcu=always invlpgb");
	/* The kernel was told to do without PCID. */
	temp_put(root, "proc/cpuinfo", "processor\t: 0\nflags\t\t: fpu invpcid_single sse\n");
	READ(fixture_amd);
	CHECK("pcid", "no", "/proc/cpuinfo");
	CHECK("invpcid", "no", "/proc/cpuinfo");
	CHECK("invlpgb_used", "no", "pcid");
	temp_put(root, "proc/cpuinfo", "processor\t: 0\nflags\t\t: fpu sse invpcid pcid\n");
	put_config("6.16.3", CONFIG_DISTRIBUTION);
	READ(fixture_amd);
	CHECK("invpcid", "yes", "/proc/cpuinfo");
	CHECK("invlpgb_used", "no", "CONFIG_BROADCAST_TLB_FLUSH");
	CHECK_NAME("none rcu=always");
	temp_put(root, "sys/devices/system/cpu/vulnerabilities/meltdown", "Mitigation: PTI\n");
	READ(fixture_intel);
	CHECK("invlpgb", "no", "cpuid 0x80000008");
	CHECK("pti", "yes", "meltdown");
}

/* An ARM machine: CPUID is not there, most is not known, and nothing is made up. */
static void test_no_cpuid(void **state)
{
	paravirt_read(root, ask_none, &facts);
	CHECK("hypervisor", "", "no cpuid");
	CHECK("pv_tlb_flush", "", "no cpuid");
	CHECK("invlpgb", "", "no cpuid");
	CHECK("rcu_table_free", "", "neither");
	CHECK("pmd_unshare_ipi", "", "neither");
	CHECK("cpus", "", "possible");
	CHECK("pti", "", "not there");
	CHECK_NAME("?:? rcu=?");
	paravirt_read(root, NULL, &facts);
	CHECK_NAME("?:? rcu=?");
	put_kernel("6.15.0\n", "0-3\n", "arch_sys_counter\n");
	temp_put(root, "proc/device-tree/hypervisor/compatible", "linux,kvm");
	paravirt_read(root, ask_none, &facts);
	CHECK("hypervisor", "linux", "/proc/device-tree");
	CHECK("rcu_table_free", "", "");
	put_config("6.15.0", "CONFIG_MMU_GATHER_RCU_TABLE_FREE=y\n");
	paravirt_read(root, ask_none, &facts);
	CHECK("rcu_table_free", "always", "/boot/config-6.15.0");
}

/* ---- how page tables are freed ---- */

static void test_tables_by_release(void **state)
{
	static const struct {
		const char *release, *rcu, *pmd;
	} kernels[] = {{"5.10.0-30-amd64\n", "paravirt", ""}, {"6.13.2\n", "paravirt", ""},
		{"6.14.0\n", "", ""}, {"6.15.1\n", "always", ""}, {"6.18.44\n", "always", ""},
		{"6.19.0\n", "always", "fixed"}, {"7.0.0\n", "always", "fixed"}, {"what\n", "", ""}};

	for (size_t i = 0; i < ARRAY_SIZE(kernels); i++) {
		temp_put(root, "proc/sys/kernel/osrelease", kernels[i].release);
		READ(fixture_intel);
		CHECK("rcu_table_free", kernels[i].rcu,
			*kernels[i].rcu ? "not read from anything better" : "");
		CHECK("pmd_unshare_ipi", kernels[i].pmd, *kernels[i].pmd ? "release " : "does not tell");
	}
}

static void test_tables_by_config(void **state)
{
	/* Of another release: it is not this kernel's. */
	put_kernel("6.13.0\n", "0-3\n", "tsc\n");
	put_config("6.12.0", "CONFIG_MMU_GATHER_RCU_TABLE_FREE=y\n");
	READ(fixture_intel);
	CHECK("rcu_table_free", "paravirt", "release 6.13.0");
	/* Not a configuration at all. */
	temp_put(root, "boot/config-6.13.0", "CONFIG\n\x1f\x8b\x08 what\n");
	READ(fixture_intel);
	CHECK("rcu_table_free", "paravirt", "not read from anything better");
	put_config("6.13.0", "# CONFIG_PARAVIRT is not set\n");
	READ(fixture_intel);
	CHECK("rcu_table_free", "never", "/boot/config-6.13.0");
	CHECK("pmd_unshare_ipi", "unaffected", "/boot/config-6.13.0");
	put_config("6.13.0", "CONFIG_MMU_GATHER_RCU_TABLE_FREE=y\n");
	READ(fixture_intel);
	CHECK("rcu_table_free", "always", "");
	CHECK("pmd_unshare_ipi", "", "does not tell");
	put_config("6.13.0", CONFIG_DISTRIBUTION "CONFIG_PT_RECLAIM=y\n");
	READ(fixture_intel);
	CHECK("rcu_table_free", "always", "");
	temp_put(root, "boot/config-6.13.0", "");
	temp_put(root, "usr/lib/modules/6.13.0/config", "CONFIG_MMU_LAZY_TLB_SHOOTDOWN=y\n");
	READ(fixture_intel);
	CHECK("lazy_tlb", "shootdown", "/usr/lib/modules/6.13.0/config");
}

#ifdef HPZ_ZLIB
/* A configuration that is kept compressed, as in /proc/config.gz: of these bytes, by gzip. */
static void test_config_gz(void **state)
{
	char command[512];

	put_kernel("6.13.0\n", "0-3\n", "tsc\n");
	temp_put(root, "proc/config", "CONFIG_MMU_GATHER_RCU_TABLE_FREE=y\nCONFIG_SMP=y\n");
	snprintf(command, sizeof(command), "gzip %s/proc/config", root);
	if (system(command) != 0) // NOLINT
		skip();
	snprintf(command, sizeof(command), "%s/proc/config.gz", root);
	assert_int_equal(access(command, F_OK), 0);
	READ(fixture_intel);
	CHECK("rcu_table_free", "always", "/proc/config.gz");
}
#endif

#ifdef HPZ_BPF
/* ---- fixtures: type information ---- */

static struct btf *btf;

static void start_types(void)
{
	btf = btf__new_empty();
	assert_non_null(btf);
	assert_int_equal(btf__add_int(btf, "int", 4, BTF_INT_SIGNED), 1);
	assert_int_equal(btf__add_func_proto(btf, 0), 2);
}

static void add_function(const char *name)
{
	assert_true(btf__add_func(btf, name, BTF_FUNC_STATIC, 2) > 0);
}

static void add_struct(const char *name, const char *member)
{
	assert_true(btf__add_struct(btf, name, 8) > 0);
	assert_int_equal(btf__add_field(btf, "first", 1, 0, 0), 0);
	assert_int_equal(btf__add_field(btf, member, 1, 32, 0), 0);
}

static void put_types(void)
{
	uint32_t size;
	const void *bytes = btf__raw_data(btf, &size);

	assert_non_null(bytes);
	temp_write(root, "sys/kernel/btf/vmlinux", bytes, size);
	btf__free(btf);
}

static void test_tables_by_types(void **state)
{
	/* A release that says otherwise, and a configuration: both are worse sources. */
	put_kernel("6.19.0\n", "0-3\n", "tsc\n");
	put_config("6.19.0", "CONFIG_MMU_LAZY_TLB_REFCOUNT=y\n");
	start_types();
	add_function("tlb_finish_mmu");
	put_types();
	READ(fixture_intel);
	CHECK("rcu_table_free", "never", "/sys/kernel/btf/vmlinux");
	CHECK("pmd_unshare_ipi", "unaffected", "/sys/kernel/btf/vmlinux");
	CHECK("lazy_tlb_skipped", "no", "/sys/kernel/btf/vmlinux");

	start_types();
	add_function("tlb_finish_mmu");
	add_function("tlb_remove_table_sync_one");
	add_struct("pv_mmu_ops", "tlb_remove_table");
	add_struct("tlb_state_shared", "is_lazy");
	add_struct("mmu_gather", "freed_tables");
	put_types();
	READ(fixture_intel);
	CHECK("rcu_table_free", "paravirt", "/sys/kernel/btf/vmlinux");
	CHECK("pmd_unshare_ipi", "unaffected", "");
	CHECK("lazy_tlb_skipped", "yes", "");

	start_types();
	add_function("tlb_finish_mmu");
	add_function("tlb_remove_table_sync_one");
	add_function("hugetlb_split");
	add_function("try_to_free_pte");
	add_struct("pv_mmu_ops", "tlb_remove_table");
	put_types();
	READ(fixture_intel);
	CHECK("rcu_table_free", "always", "");
	CHECK("pmd_unshare_ipi", "affected", "/sys/kernel/btf/vmlinux");
	CHECK_NAME("none rcu=always pmd-ipi");

	start_types();
	add_function("tlb_finish_mmu");
	add_function("tlb_remove_table_sync_one");
	add_function("hugetlb_split");
	add_struct("pv_mmu_ops", "flush_tlb_multi");
	add_struct("mmu_gather", "fully_unshared_tables");
	put_types();
	READ(fixture_intel);
	CHECK("rcu_table_free", "always", "");
	CHECK("pmd_unshare_ipi", "fixed", "");
}

static int say_nothing(enum libbpf_print_level level, const char *format, va_list args)
{
	return 0;
}

/* Without functions in it, or cut off, or a stranger's: nothing is said from it. */
static void test_types_unreadable(void **state)
{
	libbpf_set_print(say_nothing);
	put_kernel("6.13.0\n", "0-3\n", "tsc\n");
	start_types();
	add_struct("mmu_gather", "fully_unshared_tables");
	add_struct("tlb_finish_mmu", "tlb_finish_mmu");
	put_types();
	READ(fixture_intel);
	CHECK("rcu_table_free", "paravirt", "not read from anything better");
	CHECK("lazy_tlb_skipped", "", "no /sys/kernel/btf");
	temp_put(root, "sys/kernel/btf/vmlinux", "\x9f\xeb\x01 and then something else altogether");
	READ(fixture_intel);
	CHECK("pmd_unshare_ipi", "", "does not tell");
	temp_put(root, "sys/kernel/btf/vmlinux", "");
	READ(fixture_intel);
	CHECK("pmd_unshare_ipi", "", "does not tell");
}
#endif

/* ---- this machine ---- */

static void test_here(void **state)
{
	struct paravirt again;

	paravirt_read("", paravirt_run_cpuid, &facts);
	print_message("# %s\n", paravirt_get_name(&facts));
	assert_true(facts.fact_count > 15 && facts.fact_count < PARAVIRT_FACTS_MAX);
	for (size_t i = 0; i < facts.fact_count; i++) {
		const struct paravirt_fact *fact = &facts.facts[i];
		print_message(
			"# %-18s %-14s %s\n", fact->name, *fact->value ? fact->value : "-", fact->where);
		assert_true(*fact->name && *fact->where);
		/* Each name once. */
		assert_ptr_equal(paravirt_find_fact(&facts, fact->name), fact);
	}
	assert_null(paravirt_find_fact(&facts, "nothing"));
	assert_true(strlen(paravirt_get_name(&facts)) < PARAVIRT_NAME - 1);
	paravirt_read("", paravirt_run_cpuid, &again);
	assert_string_equal(paravirt_get_name(&again), paravirt_get_name(&facts));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_kvm),
		TEST(test_kvm_unused),
		TEST(test_kvm_without_config),
		TEST(test_kvm_as_hyperv),
		TEST(test_xen),
		TEST(test_hyperv),
		TEST(test_others),
		TEST(test_bare_metal),
		TEST(test_no_cpuid),
		TEST(test_tables_by_release),
		TEST(test_tables_by_config),
#ifdef HPZ_ZLIB
		TEST(test_config_gz),
#endif
#ifdef HPZ_BPF
		TEST(test_tables_by_types),
		TEST(test_types_unreadable),
#endif
		cmocka_unit_test(test_here),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
