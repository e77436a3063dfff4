/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_doctor.c - what hpzctl doctor reads of a host, and each verdict once good and once not. */
#include "temp.h"

#include "doctor.h"

static struct doctor_host host;
static struct doctor_hpzd hpzd;

#define GIB ((uint64_t)1 << 30)

/* A host that is as it should be: its tree is read, so that judgement and reading agree. */
static const struct {
	const char *path, *text;
} good_files[] = {
	{"proc/sys/kernel/osrelease", "6.12.5\n"},
	{"proc/cmdline", "quiet hugepagesz=2M hugepages=512\n"},
	{"proc/cpuinfo", "flags\t\t: fpu pdpe1gb rdtscp\n"},
	{"sys/kernel/btf/vmlinux", "x"},
	{"sys/kernel/security/lockdown", "none [integrity] confidentiality\n"},
	{"sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n"},
	{"sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "512\n"},
	{"sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "100\n"},
	{"sys/kernel/mm/hugepages/hugepages-2048kB/nr_overcommit_hugepages", "0\n"},
	{"sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages", "0\n"},
	{"sys/devices/system/node/node0/meminfo", "Node 0 MemTotal:  134217728 kB\nNode 0 MemFree: 1 kB\n"},
	{"sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages", "512\n"},
	{"proc/buddyinfo",
		"Node 0, zone      DMA      1      0      0      0      0      0      0      0      1      "
		"1      3\n"
		"Node 0, zone   Normal      9      9      9      9      9      9      9      9      9      "
		"2      4\n"},
	{"proc/self/mountinfo", "20 1 0:4 / /proc rw - proc proc rw\n"
				"41 29 0:38 / /var/lib/hpz/2M rw,relatime - hugetlbfs hugetlbfs "
				"rw,mode=711,pagesize=2M,size=1G\n"},
	{"sys/fs/cgroup/machine.slice/hugetlb.2MB.max", "max\n"},
	{"sys/fs/cgroup/hpz.slice/memory.max", "max\n"},
	{"run/systemd/system/unit", ""},
	{"usr/lib/systemd/system/hpzd.service", ""},
	{"etc/systemd/system/multi-user.target.wants/hpzd.service", ""},
	{"etc/libvirt/qemu.conf",
		"# memory_backing_dir = \"/no\"\nmemory_backing_dir = \"/var/lib/hpz/2M/libvirt\"\n"},
	{"etc/libvirt/hooks/qemu.d/hpz", ""},
	{"etc/apparmor.d/local/usr.sbin.libvirtd", "/usr/libexec/hpz/hpz-libvirt-hook PUx,\n"},
	{"sys/kernel/security/apparmor/profiles", "libvirtd (enforce)\nx (complain)\n"},
	{"sys/fs/selinux/enforce", "0"},
	{"proc/77/comm", "libvirtd\n"},
	{"proc/77/limits", "Limit                     Soft Limit           Hard Limit           Units\n"
			   "Max locked memory         unlimited            unlimited            bytes\n"},
};

static void make_good(void)
{
	char dir[TEMP_PATH], path[PATH_MAX];

	temp_make(dir);
	for (size_t i = 0; i < ARRAY_SIZE(good_files); i++)
		temp_put(dir, good_files[i].path, good_files[i].text);
	snprintf(path, sizeof(path), "%s/etc/libvirt/hooks/qemu.d/hpz", dir);
	assert_int_equal(chmod(path, 0755), 0);
	temp_put(dir, "run/hpz/journal", "");
	doctor_read(dir, &host);
	temp_remove(dir);
	/* Where a test's directory lies is not the host's matter. */
	assert_true(host.is_run_dir_there);
	host.is_run_dir_memory = true;
	hpzd = (struct doctor_hpzd){.is_up = true,
		.version = "1",
		.library = "1",
		.proof = "bpf",
		.unshare = "fixed",
		.pool_count = 1,
		.pools = {{.name = "vm",
			.mount = "/var/lib/hpz/2M",
			.page_size = 2 << 20,
			.target = GIB,
			.total = GIB}}};
}

static void test_read(void **state)
{
	make_good();
	assert_string_equal(host.release, "6.12.5");
	assert_string_equal(host.lockdown, "integrity");
	assert_string_equal(host.thp, "madvise");
	assert_true(host.has_1g_pages);
	assert_int_equal(host.size_count, 2);
	assert_int_equal(host.sizes[0].page_size, 2 << 20);
	assert_int_equal(host.sizes[0].nr, 512);
	assert_int_equal(host.sizes[0].free, 100);
	assert_int_equal(host.node_count, 1);
	assert_int_equal(host.memory, 128 * GIB);
	assert_int_equal(host.nodes[0].free_2m, 1 + 3 * 2 + 2 + 4 * 2);
	assert_int_equal(host.mount_count, 1);
	assert_string_equal(host.mounts[0].path, "/var/lib/hpz/2M");
	assert_int_equal(host.mounts[0].page_size, 2 << 20);
	assert_true(host.mounts[0].has_size);
	assert_int_equal(host.limit_count, 0);
	assert_string_equal(host.backing_dir, "/var/lib/hpz/2M/libvirt");
	assert_true(host.is_memlock_unlimited);
	assert_true(host.is_apparmor && host.has_apparmor_rule && !host.is_selinux);
	assert_true(host.is_systemd && host.is_unit_there && host.is_unit_enabled);
}

/* Nothing is there, or nothing of it makes sense: no crash, and nothing is taken for good that was not seen.
 */
static void test_empty(void **state)
{
	static const char *const rubbish[] = {"", "\n", "x", "-1\n", "99999999999999999999999\n", "[", "Node",
		"Node 7, zone a 1 2", "1 2 3:4 / /x - hugetlbfs", "%s%n", "Max locked memory "};
	struct doctor_finding finding;
	char dir[TEMP_PATH];

	for (size_t i = 0; i <= ARRAY_SIZE(rubbish); i++) {
		temp_make(dir);
		for (size_t j = 0; i && j < ARRAY_SIZE(good_files); j++)
			temp_put(dir, good_files[j].path, rubbish[i - 1]);
		doctor_read(dir, &host);
		temp_remove(dir);
		hpzd = (struct doctor_hpzd){0};
		for (size_t j = 0; doctor_judge(&host, &hpzd, j, &finding); j++)
			assert_true(finding.evidence[0] != '\0');
	}
}

static struct doctor_finding judge(const char *check)
{
	struct doctor_finding finding;

	for (size_t i = 0; doctor_judge(&host, &hpzd, i, &finding); i++) {
		if (strcmp(finding.check, check) == 0)
			return finding;
	}
	fail_msg("there is no check %s", check);
	return finding;
}

/* Each makes one thing wrong. */
#define BREAK(name, ...)                                                                                     \
	static void break_##name(void)                                                                       \
	{                                                                                                    \
		__VA_ARGS__;                                                                                 \
	}
BREAK(hpzd, hpzd.is_up = false)
BREAK(version, strcpy(hpzd.version, "2"))
BREAK(message, strcpy(hpzd.message, "it is late"))
BREAK(service, host.is_unit_enabled = false)
BREAK(unit, host.is_unit_there = false)
BREAK(journal, host.is_run_dir_memory = false)
BREAK(pools, hpzd.pool_count = 0)
BREAK(stock, strcpy(hpzd.pools[0].message, "5 pages are missing"))
BREAK(returning, hpzd.returning = 4 << 20)
BREAK(orphans, hpzd.pools[0].orphans = 4 << 20)
BREAK(not_zero, hpzd.pools[0].not_zero = 1)
BREAK(faults, hpzd.pools[0].faults = 1)
BREAK(alarms, hpzd.alarms = 1)
BREAK(deaths, hpzd.deaths = 1)
BREAK(proof, strcpy(hpzd.proof, "none"))
BREAK(btf, host.has_btf = false)
BREAK(lockdown, strcpy(host.lockdown, "confidentiality"))
BREAK(seven, strcpy(host.release, "7.0.1"))
BREAK(seven_unproven, strcpy(host.release, "7.1"); strcpy(hpzd.proof, "none"))
BREAK(unshare, strcpy(hpzd.unshare, "affected"))
BREAK(unshare_unknown, hpzd.unshare[0] = '\0')
BREAK(pages, host.size_count = 0)
BREAK(gigantic, host.has_1g_pages = false)
BREAK(cmdline, strcpy(host.cmdline, "quiet"))
BREAK(cmdline_1g, strcpy(host.cmdline, "quiet"); hpzd.pools[0].page_size = GIB; hpzd.pools[0].total = 0)
BREAK(overcommit, host.sizes[0].overcommit = 9)
BREAK(fragmentation, hpzd.pools[0].total = 0)
BREAK(thp, strcpy(host.thp, "always"))
BREAK(numa, host.nodes[1] = (struct doctor_node){.id = 1, .memory = GIB}; host.node_count = 2)
BREAK(mounts, strcpy(hpzd.pools[0].mount, "/run/hpz/mnt/vm"))
BREAK(mount_size, host.mounts[0].has_size = false)
BREAK(cgroup_pages,
	host.limits[host.limit_count++] = (struct doctor_limit){"/machine.slice", "hugetlb.2MB.max", GIB})
BREAK(cgroup_memory,
	host.limits[host.limit_count++] = (struct doctor_limit){"/hpz.slice", "memory.max", 1 << 20})
BREAK(memlock, host.is_memlock_unlimited = false; host.memlock = 65536)
BREAK(memlock_unknown, host.memlock = DOCTOR_UNKNOWN)
BREAK(hook, host.is_hook_there = false)
BREAK(hook_mode, host.is_hook_executable = false)
BREAK(backing, host.backing_dir[0] = '\0')
BREAK(backing_is_mount, strcpy(host.backing_dir, "/var/lib/hpz/2M"))
BREAK(backing_beside, strcpy(host.backing_dir, "/var/lib/hpz/2Mx/libvirt"))
BREAK(apparmor, host.has_apparmor_rule = false)
BREAK(selinux, host.is_selinux = true)
BREAK(none, )

static const struct {
	const char *check;
	void (*make_wrong)(void);
	enum doctor_verdict verdict;
	const char *evidence, *cure; /* words of them */
} wrongs[] = {
	{"hpzd", break_hpzd, DOCTOR_FAIL, "does not answer", "systemctl start hpzd"},
	{"stock", break_hpzd, DOCTOR_UNSEEN, "does not tell", ""},
	{"version", break_version, DOCTOR_WARN, "hpzd 2, libhpz 1", "restart hpzd"},
	{"message", break_message, DOCTOR_WARN, "it is late", "hpzctl status"},
	{"service", break_service, DOCTOR_WARN, "does not begin at boot", "systemctl enable"},
	{"service", break_unit, DOCTOR_WARN, "not installed", "systemctl enable"},
	{"journal", break_journal, DOCTOR_WARN, "on a disk", "run_dir"},
	{"pools", break_pools, DOCTOR_NOTE, "no pool", "hpzd.conf"},
	{"stock", break_stock, DOCTOR_WARN, "vm: 5 pages are missing", "hugepages="},
	{"held", break_returning, DOCTOR_NOTE, "4 MiB", "hpzctl leases"},
	{"held", break_orphans, DOCTOR_WARN, "4 MiB of files", "hpzctl leases"},
	{"memory", break_not_zero, DOCTOR_FAIL, "1 times clean memory was not zero", "hpzctl verify"},
	{"memory", break_faults, DOCTOR_FAIL, "1 times memory was broken", "machine checks"},
	{"books", break_alarms, DOCTOR_WARN, "1 differences", "hpzctl check"},
	{"books", break_deaths, DOCTOR_WARN, "1 workers died", "journalctl"},
	{"proof", break_proof, DOCTOR_WARN, "proven by: none", "btf"},
	{"btf", break_btf, DOCTOR_WARN, "not there", "CONFIG_DEBUG_INFO_BTF"},
	{"lockdown", break_lockdown, DOCTOR_WARN, "confidentiality", "lockdown=integrity"},
	{"kernel-leases", break_seven, DOCTOR_NOTE, "7.0.1", "proof"},
	{"kernel-leases", break_seven_unproven, DOCTOR_WARN, "no leases", "proof"},
	{"kernel-unshare", break_unshare, DOCTOR_WARN, "affected", "later one"},
	{"kernel-unshare", break_unshare_unknown, DOCTOR_UNSEEN, "6.12.5", ""},
	{"pages", break_pages, DOCTOR_FAIL, "no huge pages", "CONFIG_HUGETLBFS"},
	{"pages-1g", break_gigantic, DOCTOR_NOTE, "no pages of 1G", "pdpe1gb"},
	{"cmdline", break_cmdline, DOCTOR_NOTE, "reserves no huge pages", "hugepages=N"},
	{"cmdline", break_cmdline_1g, DOCTOR_WARN, "pool vm lacks pages of 1G", "hugetlb_cma"},
	{"overcommit", break_overcommit, DOCTOR_NOTE, "9 pages of 2M", "nr_overcommit_hugepages=0"},
	{"fragmentation", break_fragmentation, DOCTOR_WARN, "pools lack 1 GiB", "compact_memory"},
	{"thp", break_thp, DOCTOR_NOTE, "always", "madvise"},
	{"numa", break_numa, DOCTOR_WARN, "node 1", "node = 1"},
	{"mounts", break_mounts, DOCTOR_WARN, "/run/hpz/mnt/vm", "mount unit"},
	{"mount-size", break_mount_size, DOCTOR_NOTE, "/var/lib/hpz/2M has no size=", "size="},
	{"cgroup-pages", break_cgroup_pages, DOCTOR_WARN, "/machine.slice is 1 GiB", "no limit"},
	{"cgroup-memory", break_cgroup_memory, DOCTOR_WARN, "/hpz.slice is 1 MiB", "64 MiB"},
	{"memlock", break_memlock, DOCTOR_NOTE, "64 KiB", "LimitMEMLOCK"},
	{"memlock", break_memlock_unknown, DOCTOR_UNSEEN, "no libvirt daemon", ""},
	{"libvirt-hook", break_hook, DOCTOR_WARN, "not there", "hpz-libvirt"},
	{"libvirt-hook", break_hook_mode, DOCTOR_WARN, "nothing that can be run", "hpz-libvirt"},
	{"libvirt-backing", break_backing, DOCTOR_WARN, "not said", "\"/var/lib/hpz/2M/libvirt\""},
	{"libvirt-backing", break_backing_is_mount, DOCTOR_WARN, "on no pool's mount", "memory_backing_dir"},
	{"libvirt-backing", break_backing_beside, DOCTOR_WARN, "on no pool's mount", "memory_backing_dir"},
	{"apparmor", break_apparmor, DOCTOR_WARN, "no rule", "usr.sbin.libvirtd"},
	{"selinux", break_selinux, DOCTOR_NOTE, "enforced", "ausearch"},
	{"capacity", break_none, DOCTOR_NOTE, "of 512 pages of 2M the kernel says 100 are free, 512",
		"count:512"},
};

/* What a check says when nothing is wrong; of capacity there is always something to know, once there is a
 * pool. */
static void test_verdicts(void **state)
{
	struct doctor_finding finding;

	make_good();
	for (size_t i = 0; doctor_judge(&host, &hpzd, i, &finding); i++) {
		bool is_tried = false;
		for (size_t j = 0; j < ARRAY_SIZE(wrongs); j++)
			is_tried |= strcmp(wrongs[j].check, finding.check) == 0;
		if (!is_tried)
			fail_msg("%s is never seen to find anything", finding.check);
		if (strcmp(finding.check, "capacity") == 0)
			continue;
		if (finding.verdict != DOCTOR_OK || finding.cure[0])
			fail_msg("%s: %s", finding.check, finding.evidence);
	}
	for (size_t i = 0; i < ARRAY_SIZE(wrongs); i++) {
		make_good();
		wrongs[i].make_wrong();
		finding = judge(wrongs[i].check);
		if (finding.verdict != wrongs[i].verdict || !strstr(finding.evidence, wrongs[i].evidence) ||
			!strstr(finding.cure, wrongs[i].cure))
			fail_msg("%s: %s: %s (%s)", wrongs[i].check, doctor_get_verdict(finding.verdict),
				finding.evidence, finding.cure);
	}
	make_good();
	hpzd.pool_count = 0;
	assert_int_equal(judge("capacity").verdict, DOCTOR_OK);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_read),
		cmocka_unit_test(test_empty),
		cmocka_unit_test(test_verdicts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
