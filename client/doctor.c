/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* doctor.c - judges a host: a function for each check, and the table of them. */
#include "doctor.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "size.h"

#define DOCTOR_2M          ((uint64_t)2 << 20)
#define DOCTOR_1G          ((uint64_t)1 << 30)
#define DOCTOR_LARGE       ((uint64_t)64 << 30) /* a host with more memory is one for large guests */
#define DOCTOR_MEMLOCK_MIN ((uint64_t)64 << 20)
#define DOCTOR_MEMORY_MIN  ((uint64_t)64 << 20)

typedef void (*doctor_fn)(
	const struct doctor_host *host, const struct doctor_hpzd *hpzd, struct doctor_finding *finding);

/* ---- what is found ---- */

static void doctor_set(struct doctor_finding *finding, enum doctor_verdict verdict, const char *format, ...)
	PRINTF(3, 4);
static void doctor_set(struct doctor_finding *finding, enum doctor_verdict verdict, const char *format, ...)
{
	va_list args;

	finding->verdict = verdict;
	va_start(args, format);
	vsnprintf(finding->evidence, sizeof(finding->evidence), format, args);
	va_end(args);
}

static void doctor_cure(struct doctor_finding *finding, const char *format, ...) PRINTF(2, 3);
static void doctor_cure(struct doctor_finding *finding, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(finding->cure, sizeof(finding->cure), format, args);
	va_end(args);
}

/* What only hpzd can tell. true: it is said that it does not. */
static bool doctor_is_down(const struct doctor_hpzd *hpzd, struct doctor_finding *finding)
{
	if (hpzd->is_up)
		return false;
	doctor_set(finding, DOCTOR_UNSEEN, "hpzd does not tell");
	return true;
}

static bool doctor_has_no_pools(const struct doctor_hpzd *hpzd, struct doctor_finding *finding)
{
	if (doctor_is_down(hpzd, finding))
		return true;
	if (hpzd->pool_count)
		return false;
	doctor_set(finding, DOCTOR_OK, "there is no pool");
	return true;
}

/* ---- hpzd ---- */

static void doctor_check_hpzd(
	const struct doctor_host *host, const struct doctor_hpzd *hpzd, struct doctor_finding *finding)
{
	if (hpzd->is_up) {
		doctor_set(finding, DOCTOR_OK, "hpzd %s answers", hpzd->version);
		return;
	}
	doctor_set(finding, DOCTOR_FAIL, "hpzd does not answer: %s", hpzd->error);
	doctor_cure(finding, "systemctl start hpzd; journalctl -u hpzd says why not");
}

static void doctor_check_version(
	const struct doctor_host *host, const struct doctor_hpzd *hpzd, struct doctor_finding *finding)
{
	if (doctor_is_down(hpzd, finding))
		return;
	bool is_same = strcmp(hpzd->version, hpzd->library) == 0;
	doctor_set(finding, is_same ? DOCTOR_OK : DOCTOR_WARN, "hpzd %s, libhpz %s", hpzd->version,
		hpzd->library);
	if (!is_same)
		doctor_cure(finding, "systemctl restart hpzd: an update under running guests");
}

static void doctor_check_message(
	const struct doctor_host *host, const struct doctor_hpzd *hpzd, struct doctor_finding *finding)
{
	if (doctor_is_down(hpzd, finding))
		return;
	if (!*hpzd->message) {
		doctor_set(finding, DOCTOR_OK, "hpzd has nothing to say");
		return;
	}
	doctor_set(finding, DOCTOR_WARN, "%s", hpzd->message);
	doctor_cure(finding, "hpzctl status; journalctl -u hpzd");
}

static void doctor_check_pools(
	const struct doctor_host *host, const struct doctor_hpzd *hpzd, struct doctor_finding *finding)
{
	char size[SIZE_TEXT];
	uint64_t bytes = 0;

	if (doctor_is_down(hpzd, finding))
		return;
	for (size_t i = 0; i < hpzd->pool_count; i++)
		bytes += hpzd->pools[i].target;
	if (hpzd->pool_count) {
		doctor_set(finding, DOCTOR_OK, "%zu, to hold %s", hpzd->pool_count, size_format(bytes, size));
		return;
	}
	doctor_set(finding, DOCTOR_NOTE, "hpzd has no pool: nobody gets memory from it");
	doctor_cure(
		finding, "a [pool NAME] with page_size and pages in /etc/hpz/hpzd.conf; see hpzd.conf(5)");
}

static void doctor_check_stock(
	const struct doctor_host *host, const struct doctor_hpzd *hpzd, struct doctor_finding *finding)
{
	if (doctor_has_no_pools(hpzd, finding))
		return;
	for (size_t i = 0; i < hpzd->pool_count; i++) {
		const struct doctor_pool *pool = &hpzd->pools[i];
		if (!*pool->message)
			continue;
		doctor_set(finding, DOCTOR_WARN, "pool %s: %.200s", pool->name, pool->message);
		doctor_cure(finding,
			"as it says; reserved at boot (hugepages= on the kernel's command line) pages are "
			"there for sure");
		return;
	}
	doctor_set(finding, DOCTOR_OK, "nothing is missing to a pool");
}

static void doctor_check_proof(
	const struct doctor_host *host, const struct doctor_hpzd *hpzd, struct doctor_finding *finding)
{
	if (doctor_is_down(hpzd, finding))
		return;
	bool is_full = strcmp(hpzd->proof, "bpf") == 0;
	doctor_set(finding, is_full ? DOCTOR_OK : DOCTOR_WARN,
		"that returned memory is free is proven by: %s", *hpzd->proof ? hpzd->proof : "nothing yet");
	if (!is_full)
		doctor_cure(finding,
			"without bpf memory is not reused but filled anew: see the checks btf and "
			"lockdown, and journalctl -u hpzd");
}

static void doctor_check_held(
	const struct doctor_host *host, const struct doctor_hpzd *hpzd, struct doctor_finding *finding)
{
	char size[SIZE_TEXT];
	uint64_t orphans = 0;

	if (doctor_is_down(hpzd, finding))
		return;
	for (size_t i = 0; i < hpzd->pool_count; i++)
		orphans += hpzd->pools[i].orphans;
	if (orphans)
		doctor_set(finding, DOCTOR_WARN, "%s of files that are gone are held by somebody",
			size_format(orphans, size));
	else if (hpzd->returning)
		doctor_set(finding, DOCTOR_NOTE,
			"%s of leases that have ended are on their way back, or held",
			size_format(hpzd->returning, size));
	else
		doctor_set(finding, DOCTOR_OK, "nobody holds memory of a lease that has ended");
	if (orphans || hpzd->returning)
		doctor_cure(finding, "hpzctl leases names who has it");
}

static void doctor_check_memory(
	const struct doctor_host *host, const struct doctor_hpzd *hpzd, struct doctor_finding *finding)
{
	if (doctor_is_down(hpzd, finding))
		return;
	for (size_t i = 0; i < hpzd->pool_count; i++) {
		const struct doctor_pool *pool = &hpzd->pools[i];
		if (!pool->not_zero && !pool->faults && !pool->retired)
			continue;
		doctor_set(finding, DOCTOR_FAIL,
			"pool %s: %" PRIu32 " times clean memory was not zero, %" PRIu32
			" times memory was broken or missing",
			pool->name, pool->not_zero, pool->faults);
		doctor_cure(finding,
			"journalctl -u hpzd says where; look for machine checks in dmesg; hpzctl verify "
			"reads all clean memory");
		return;
	}
	doctor_set(finding, DOCTOR_OK, "no fault was met since hpzd began");
}

static void doctor_check_books(
	const struct doctor_host *host, const struct doctor_hpzd *hpzd, struct doctor_finding *finding)
{
	if (doctor_is_down(hpzd, finding))
		return;
	if (!hpzd->alarms && !hpzd->deaths) {
		doctor_set(finding, DOCTOR_OK, "books balance, and no worker has died");
		return;
	}
	doctor_set(finding, DOCTOR_WARN, "%" PRIu64 " differences in hpzd's books, %" PRIu64 " workers died",
		hpzd->alarms, hpzd->deaths);
	doctor_cure(finding, "hpzctl check shows where they differ; journalctl -u hpzd");
}

/* ---- the kernel ---- */

static void doctor_check_btf(
	const struct doctor_host *host, const struct doctor_hpzd *hpzd, struct doctor_finding *finding)
{
	doctor_set(finding, host->has_btf ? DOCTOR_OK : DOCTOR_WARN, "/sys/kernel/btf/vmlinux is %s",
		host->has_btf ? "there" : "not there: no full proof");
	if (!host->has_btf)
		doctor_cure(finding, "a kernel with CONFIG_DEBUG_INFO_BTF=y, as distributions have it");
}

static void doctor_check_lockdown(
	const struct doctor_host *host, const struct doctor_hpzd *hpzd, struct doctor_finding *finding)
{
	bool is_strict = strcmp(host->lockdown, "confidentiality") == 0;

	doctor_set(finding, is_strict ? DOCTOR_WARN : DOCTOR_OK, "/sys/kernel/security/lockdown: %s",
		*host->lockdown ? host->lockdown : "not there");
	if (is_strict)
		doctor_cure(finding, "no BPF program may read the kernel: lockdown=integrity, or live "
				     "without the full proof");
}

static void doctor_check_unshare(
	const struct doctor_host *host, const struct doctor_hpzd *hpzd, struct doctor_finding *finding)
{
	if (doctor_is_down(hpzd, finding))
		return;
	if (!*hpzd->unshare) {
		doctor_set(
			finding, DOCTOR_UNSEEN, "hpzd could not read it from the kernel %s", host->release);
		return;
	}
	bool is_affected = strcmp(hpzd->unshare, "affected") == 0;
	doctor_set(finding, is_affected ? DOCTOR_WARN : DOCTOR_OK,
		"an IPI to all CPUs for each shared page table that is given up: %s", hpzd->unshare);
	if (is_affected)
		doctor_cure(finding,
			"the ends of VMs that share memory of hugetlbfs with others disturb all: kernels "
			"of June 2025 to January 2026 have it, take a later one");
}

static void doctor_check_leases(
	const struct doctor_host *host, const struct doctor_hpzd *hpzd, struct doctor_finding *finding)
{
	unsigned major;

	if (sscanf(host->release, "%u.", &major) != 1) {
		doctor_set(finding, DOCTOR_UNSEEN, "the kernel says no release");
		return;
	}
	if (major < 7) {
		doctor_set(finding, DOCTOR_OK, "kernel %s has leases on files of hugetlbfs", host->release);
		return;
	}
	bool is_needed = hpzd->is_up && strcmp(hpzd->proof, "bpf") != 0;
	doctor_set(finding, is_needed ? DOCTOR_WARN : DOCTOR_NOTE,
		"kernel %s has no leases on files of hugetlbfs: without bpf there is no proof",
		host->release);
	doctor_cure(finding, "see the check proof");
}

static void doctor_check_cmdline(
	const struct doctor_host *host, const struct doctor_hpzd *hpzd, struct doctor_finding *finding)
{
	bool has_pages = strstr(host->cmdline, "hugepages=") || strstr(host->cmdline, "hugetlb_cma=");

	for (size_t i = 0; i < hpzd->pool_count; i++) {
		const struct doctor_pool *pool = &hpzd->pools[i];
		if (pool->page_size < DOCTOR_1G || pool->total >= pool->target || has_pages)
			continue;
		doctor_set(finding, DOCTOR_WARN,
			"pool %s lacks pages of 1G, and the kernel's command line reserves none", pool->name);
		doctor_cure(
			finding, "hugepagesz=1G hugepages=N, or hugetlb_cma=SIZE, which keeps room for them");
		return;
	}
	if (has_pages || host->memory < DOCTOR_LARGE) {
		doctor_set(finding, DOCTOR_OK, "%s",
			has_pages ? "the kernel's command line reserves huge pages"
				  : "none is reserved at boot");
		return;
	}
	doctor_set(finding, DOCTOR_NOTE, "the kernel's command line reserves no huge pages");
	doctor_cure(finding,
		"what is taken at boot is there for sure: hugepagesz=2M hugepages=N, or hugetlb_cma=SIZE");
}

static void doctor_check_thp(
	const struct doctor_host *host, const struct doctor_hpzd *hpzd, struct doctor_finding *finding)
{
	bool is_always = strcmp(host->thp, "always") == 0;

	doctor_set(finding, is_always ? DOCTOR_NOTE : DOCTOR_OK, "transparent huge pages: %s",
		*host->thp ? host->thp : "the kernel has none");
	if (is_always)
		doctor_cure(finding,
			"they take the free blocks that hugetlb pages are made of: madvise leaves them to "
			"those who ask");
}

/* ---- pages ---- */

static void doctor_check_pages(
	const struct doctor_host *host, const struct doctor_hpzd *hpzd, struct doctor_finding *finding)
{
	char text[DOCTOR_TEXT] = "", size[SIZE_TEXT];
	size_t length = 0;

	for (size_t i = 0; i < host->size_count && length < sizeof(text) - 80; i++)
		length += (size_t)snprintf(text + length, sizeof(text) - length,
			"%s%s: %" PRIu64 ", %" PRIu64 " free", i ? "; " : "",
			size_format_exact(host->sizes[i].page_size, size), host->sizes[i].nr,
			host->sizes[i].free);
	if (host->size_count) {
		doctor_set(finding, DOCTOR_OK, "%s", text);
		return;
	}
	doctor_set(
		finding, DOCTOR_FAIL, "/sys/kernel/mm/hugepages is not there: this kernel has no huge pages");
	doctor_cure(finding, "a kernel with CONFIG_HUGETLBFS=y");
}

static void doctor_check_gigantic(
	const struct doctor_host *host, const struct doctor_hpzd *hpzd, struct doctor_finding *finding)
{
	doctor_set(finding, host->has_1g_pages ? DOCTOR_OK : DOCTOR_NOTE, "this CPU has %spages of 1G",
		host->has_1g_pages ? "" : "no ");
	if (!host->has_1g_pages)
		doctor_cure(finding,
			"pools have pages of 2M here; in a virtual machine: a CPU model with pdpe1gb");
}

static void doctor_check_overcommit(
	const struct doctor_host *host, const struct doctor_hpzd *hpzd, struct doctor_finding *finding)
{
	for (size_t i = 0; i < host->size_count; i++) {
		char size[SIZE_TEXT];
		if (!host->sizes[i].overcommit)
			continue;
		doctor_set(finding, DOCTOR_NOTE, "%" PRIu64 " pages of %s may be taken beyond nr_hugepages",
			host->sizes[i].overcommit, size_format_exact(host->sizes[i].page_size, size));
		doctor_cure(
			finding, "they compete with what hpzd raises: sysctl vm.nr_overcommit_hugepages=0");
		return;
	}
	doctor_set(finding, DOCTOR_OK, "nobody may take huge pages beyond nr_hugepages");
}

static void doctor_check_fragmentation(
	const struct doctor_host *host, const struct doctor_hpzd *hpzd, struct doctor_finding *finding)
{
	char free_text[SIZE_TEXT], missing_text[SIZE_TEXT];
	uint64_t blocks = 0, missing = 0, spare = 0;

	for (size_t i = 0; i < host->node_count; i++)
		blocks += host->nodes[i].free_2m * DOCTOR_2M;
	for (size_t i = 0; i < host->size_count; i++)
		spare += host->sizes[i].page_size == DOCTOR_2M ? host->sizes[i].free * DOCTOR_2M : 0;
	for (size_t i = 0; i < hpzd->pool_count; i++) {
		const struct doctor_pool *pool = &hpzd->pools[i];
		missing += pool->page_size == DOCTOR_2M ? pool->target - MIN(pool->total, pool->target) : 0;
	}
	if (!host->node_count) {
		doctor_set(finding, DOCTOR_UNSEEN, "/sys/devices/system/node is not there");
		return;
	}
	doctor_set(finding, missing > blocks + spare ? DOCTOR_WARN : DOCTOR_OK,
		"%s free in blocks of 2M and more; pools lack %s", size_format(blocks, free_text),
		size_format(missing, missing_text));
	if (missing > blocks + spare)
		doctor_cure(finding,
			"echo 1 >/proc/sys/vm/compact_memory; for good: hugepages= on the kernel's "
			"command line");
}

static void doctor_check_numa(
	const struct doctor_host *host, const struct doctor_hpzd *hpzd, struct doctor_finding *finding)
{
	size_t with_memory = 0;

	if (doctor_has_no_pools(hpzd, finding))
		return;
	for (size_t i = 0; i < host->node_count; i++) {
		bool has_pool = false;
		with_memory += host->nodes[i].memory != 0;
		for (size_t j = 0; j < hpzd->pool_count; j++)
			has_pool |= hpzd->pools[j].node == host->nodes[i].id;
		if (has_pool || !host->nodes[i].memory)
			continue;
		doctor_set(finding, DOCTOR_WARN,
			"node %" PRId32 " has memory and no pool: guests that are bound to it get none",
			host->nodes[i].id);
		doctor_cure(finding, "a [pool NAME] with node = %" PRId32 " in /etc/hpz/hpzd.conf",
			host->nodes[i].id);
		return;
	}
	doctor_set(
		finding, DOCTOR_OK, "%zu node%s, each with a pool", with_memory, with_memory == 1 ? "" : "s");
}

/* ---- mounts and limits ---- */

static const struct doctor_mount *doctor_find_mount(const struct doctor_host *host, const char *path)
{
	for (size_t i = 0; i < host->mount_count; i++) {
		if (strcmp(host->mounts[i].path, path) == 0)
			return &host->mounts[i];
	}
	return NULL;
}

static void doctor_check_mounts(
	const struct doctor_host *host, const struct doctor_hpzd *hpzd, struct doctor_finding *finding)
{
	if (doctor_has_no_pools(hpzd, finding))
		return;
	for (size_t i = 0; i < hpzd->pool_count; i++) {
		const struct doctor_pool *pool = &hpzd->pools[i];
		const struct doctor_mount *mount = doctor_find_mount(host, pool->mount);
		if (mount)
			continue;
		doctor_set(finding, DOCTOR_WARN, "the mount of pool %s, %s, is not seen from here",
			pool->name, *pool->mount ? pool->mount : "none");
		doctor_cure(finding, "paths of its memory are good for hpzd alone: a mount unit, as in "
				     "/usr/share/doc/hpz/examples, and mount = in the pool");
		return;
	}
	doctor_set(finding, DOCTOR_OK, "each pool's mount is seen from here");
}

static void doctor_check_mount_size(
	const struct doctor_host *host, const struct doctor_hpzd *hpzd, struct doctor_finding *finding)
{
	if (doctor_has_no_pools(hpzd, finding))
		return;
	for (size_t i = 0; i < hpzd->pool_count; i++) {
		const struct doctor_mount *mount = doctor_find_mount(host, hpzd->pools[i].mount);
		if (!mount || mount->has_size)
			continue;
		doctor_set(finding, DOCTOR_NOTE,
			"%s has no size=: a holder may grow its file until the kernel has no more",
			mount->path);
		doctor_cure(finding, "size= of the pool's max_pages among the mount's options");
		return;
	}
	doctor_set(finding, DOCTOR_OK, "no holder can take more than its pool has");
}

static void doctor_check_journal(
	const struct doctor_host *host, const struct doctor_hpzd *hpzd, struct doctor_finding *finding)
{
	if (!host->is_run_dir_there) {
		doctor_set(finding, hpzd->is_up ? DOCTOR_NOTE : DOCTOR_UNSEEN, "/run/hpz is not there");
		doctor_cure(finding, "run_dir of [hpzd] says where the journal is: on a tmpfs, please");
		return;
	}
	doctor_set(finding, host->is_run_dir_memory ? DOCTOR_OK : DOCTOR_WARN, "/run/hpz is %s",
		host->is_run_dir_memory ? "in memory" : "on a disk: each lease waits for it");
	if (!host->is_run_dir_memory)
		doctor_cure(finding,
			"run_dir of [hpzd] on a tmpfs: what it says is good until the next boot only");
}

static void doctor_check_cgroup_pages(
	const struct doctor_host *host, const struct doctor_hpzd *hpzd, struct doctor_finding *finding)
{
	char size[SIZE_TEXT];

	for (size_t i = 0; i < host->limit_count; i++) {
		const struct doctor_limit *limit = &host->limits[i];
		if (strncmp(limit->file, "hugetlb.", 8) != 0)
			continue;
		doctor_set(finding, DOCTOR_WARN, "%s of %s is %s: who is in it gets no more huge pages",
			limit->file, limit->group, size_format(limit->bytes, size));
		doctor_cure(finding,
			"pages count for whoever fills them, hpzd's workers, not the VM: no limit there "
			"(echo max)");
		return;
	}
	doctor_set(finding, DOCTOR_OK, "no control group limits huge pages");
}

static void doctor_check_cgroup_memory(
	const struct doctor_host *host, const struct doctor_hpzd *hpzd, struct doctor_finding *finding)
{
	char size[SIZE_TEXT];

	for (size_t i = 0; i < host->limit_count; i++) {
		const struct doctor_limit *limit = &host->limits[i];
		if (strcmp(limit->file, "memory.max") != 0 || limit->bytes >= DOCTOR_MEMORY_MIN)
			continue;
		doctor_set(finding, DOCTOR_WARN, "memory.max of %s is %s", limit->group,
			size_format(limit->bytes, size));
		doctor_cure(finding, "workers are killed at it: 64 MiB is enough");
		return;
	}
	doctor_set(finding, DOCTOR_OK, "hpzd and its workers have enough memory");
}

static void doctor_check_memlock(
	const struct doctor_host *host, const struct doctor_hpzd *hpzd, struct doctor_finding *finding)
{
	char size[SIZE_TEXT];

	if (host->memlock == DOCTOR_UNKNOWN) {
		doctor_set(finding, DOCTOR_UNSEEN, "no libvirt daemon runs, or its limits may not be read");
		return;
	}
	if (host->is_memlock_unlimited || host->memlock >= DOCTOR_MEMLOCK_MIN) {
		doctor_set(finding, DOCTOR_OK, "libvirt's daemon may lock %s",
			host->is_memlock_unlimited ? "all memory" : size_format(host->memlock, size));
		return;
	}
	doctor_set(finding, DOCTOR_NOTE, "libvirt's daemon may lock %s", size_format(host->memlock, size));
	doctor_cure(finding,
		"a domain with a VFIO device locks all of its memory; libvirt raises its limit if it has "
		"CAP_SYS_RESOURCE, else LimitMEMLOCK=infinity");
}

/* ---- the service ---- */

static void doctor_check_service(
	const struct doctor_host *host, const struct doctor_hpzd *hpzd, struct doctor_finding *finding)
{
	if (!host->is_systemd) {
		doctor_set(finding, DOCTOR_OK, "no systemd runs here");
		return;
	}
	if (host->is_unit_there && host->is_unit_enabled) {
		doctor_set(finding, DOCTOR_OK, "hpzd.service begins at boot");
		return;
	}
	doctor_set(finding, DOCTOR_WARN, "hpzd.service is %s",
		host->is_unit_there ? "there, and does not begin at boot" : "not installed");
	doctor_cure(finding, "systemctl enable hpzd.service hpzd.socket");
}

/* ---- libvirt ---- */

static bool doctor_has_no_libvirt(const struct doctor_host *host, struct doctor_finding *finding)
{
	if (host->has_libvirt)
		return false;
	doctor_set(finding, DOCTOR_OK, "libvirt is not set up here, or only root may look");
	return true;
}

static void doctor_check_hook(
	const struct doctor_host *host, const struct doctor_hpzd *hpzd, struct doctor_finding *finding)
{
	if (doctor_has_no_libvirt(host, finding))
		return;
	bool is_good = host->is_hook_there && host->is_hook_executable;
	doctor_set(finding, is_good ? DOCTOR_OK : DOCTOR_WARN, "/etc/libvirt/hooks/qemu.d/hpz is %s",
		is_good               ? "there"
		: host->is_hook_there ? "nothing that can be run"
				      : "not there: domains get no memory of a pool");
	if (!is_good)
		doctor_cure(finding, "install hpz-libvirt, then systemctl restart libvirtd");
}

/* Below a pool's mount, and not the mount itself. */
static bool doctor_is_below(const char *path, const char *mount)
{
	size_t length = strlen(mount);

	return length && strncmp(path, mount, length) == 0 && path[length] == '/' && path[length + 1] != '\0';
}

static void doctor_check_backing(
	const struct doctor_host *host, const struct doctor_hpzd *hpzd, struct doctor_finding *finding)
{
	if (doctor_has_no_libvirt(host, finding) || doctor_has_no_pools(hpzd, finding))
		return;
	for (size_t i = 0; i < hpzd->pool_count; i++) {
		if (!doctor_is_below(host->backing_dir, hpzd->pools[i].mount))
			continue;
		doctor_set(finding, DOCTOR_OK, "memory_backing_dir is %.200s", host->backing_dir);
		return;
	}
	doctor_set(finding, DOCTOR_WARN, "memory_backing_dir of qemu.conf is %.120s: on no pool's mount",
		*host->backing_dir ? host->backing_dir : "not said");
	doctor_cure(finding,
		"memory_backing_dir = \"%.120s/libvirt\" in /etc/libvirt/qemu.conf, then systemctl restart "
		"libvirtd",
		hpzd->pools[0].mount);
}

static void doctor_check_apparmor(
	const struct doctor_host *host, const struct doctor_hpzd *hpzd, struct doctor_finding *finding)
{
	if (!host->is_apparmor || host->has_apparmor_rule) {
		doctor_set(finding, DOCTOR_OK, "%s",
			host->is_apparmor ? "AppArmor lets libvirtd run the hook"
					  : "AppArmor does not confine libvirtd here");
		return;
	}
	doctor_set(finding, DOCTOR_WARN, "AppArmor confines libvirtd, and has no rule for the hook");
	doctor_cure(finding, "append /usr/share/doc/hpz/examples/apparmor/usr.sbin.libvirtd to "
			     "/etc/apparmor.d/local/usr.sbin.libvirtd; systemctl reload apparmor");
}

static void doctor_check_selinux(
	const struct doctor_host *host, const struct doctor_hpzd *hpzd, struct doctor_finding *finding)
{
	doctor_set(finding, host->is_selinux ? DOCTOR_NOTE : DOCTOR_OK, "SELinux is %s",
		host->is_selinux ? "enforced: hpz has not been tried with it" : "not enforced");
	if (host->is_selinux)
		doctor_cure(finding,
			"hpz-libvirt(7) says what the hook must be allowed; ausearch -m avc -ts recent");
}

/* ---- what others think there is ---- */

static void doctor_check_capacity(
	const struct doctor_host *host, const struct doctor_hpzd *hpzd, struct doctor_finding *finding)
{
	uint64_t nr = 0, free_pages = 0, pool_pages = 0;

	if (doctor_has_no_pools(hpzd, finding))
		return;
	for (size_t i = 0; i < host->size_count; i++) {
		nr += host->sizes[i].page_size == DOCTOR_2M ? host->sizes[i].nr : 0;
		free_pages += host->sizes[i].page_size == DOCTOR_2M ? host->sizes[i].free : 0;
	}
	for (size_t i = 0; i < hpzd->pool_count; i++)
		pool_pages += hpzd->pools[i].page_size == DOCTOR_2M ? hpzd->pools[i].total / DOCTOR_2M : 0;
	doctor_set(finding, DOCTOR_NOTE,
		"of %" PRIu64 " pages of 2M the kernel says %" PRIu64 " are free, %" PRIu64
		" are of pools: kubelet offers all, Nova what is free",
		nr, free_pages, pool_pages);
	doctor_cure(finding,
		"Nova: file_backed_memory, or reserved_huge_pages = node:N,size:2048,count:%" PRIu64
		"; kubelet: no pods with hugepages on this host; see hpz-libvirt(7)",
		pool_pages);
}

/* ---- the table ---- */

static const struct {
	const char *name;
	doctor_fn judge;
} doctor_checks[] = {
	{"hpzd", doctor_check_hpzd},
	{"version", doctor_check_version},
	{"message", doctor_check_message},
	{"service", doctor_check_service},
	{"journal", doctor_check_journal},
	{"pools", doctor_check_pools},
	{"stock", doctor_check_stock},
	{"held", doctor_check_held},
	{"memory", doctor_check_memory},
	{"books", doctor_check_books},
	{"proof", doctor_check_proof},
	{"btf", doctor_check_btf},
	{"lockdown", doctor_check_lockdown},
	{"kernel-leases", doctor_check_leases},
	{"kernel-unshare", doctor_check_unshare},
	{"pages", doctor_check_pages},
	{"pages-1g", doctor_check_gigantic},
	{"cmdline", doctor_check_cmdline},
	{"overcommit", doctor_check_overcommit},
	{"fragmentation", doctor_check_fragmentation},
	{"thp", doctor_check_thp},
	{"numa", doctor_check_numa},
	{"mounts", doctor_check_mounts},
	{"mount-size", doctor_check_mount_size},
	{"cgroup-pages", doctor_check_cgroup_pages},
	{"cgroup-memory", doctor_check_cgroup_memory},
	{"memlock", doctor_check_memlock},
	{"libvirt-hook", doctor_check_hook},
	{"libvirt-backing", doctor_check_backing},
	{"apparmor", doctor_check_apparmor},
	{"selinux", doctor_check_selinux},
	{"capacity", doctor_check_capacity},
};

bool doctor_judge(const struct doctor_host *host, const struct doctor_hpzd *hpzd, size_t index,
	struct doctor_finding *ret_finding)
{
	if (index >= ARRAY_SIZE(doctor_checks))
		return false;
	*ret_finding = (struct doctor_finding){.check = doctor_checks[index].name};
	doctor_checks[index].judge(host, hpzd, ret_finding);
	return true;
}

const char *doctor_get_verdict(enum doctor_verdict verdict)
{
	static const char *const names[] = {[DOCTOR_OK] = "ok",
		[DOCTOR_NOTE] = "note",
		[DOCTOR_WARN] = "warn",
		[DOCTOR_FAIL] = "fail",
		[DOCTOR_UNSEEN] = "unseen"};

	return names[verdict];
}
