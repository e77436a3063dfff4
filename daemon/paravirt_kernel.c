/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * paravirt_kernel.c - what the running kernel says of itself: its type information (BTF), its configuration,
 * some files. Decides nothing. dmesg is not asked: it is a ring, and what it said at boot may be gone.
 */
#include "paravirt_parts.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#ifdef HPZ_ZLIB
#include <zlib.h>
#endif
#ifdef HPZ_BPF
#include <bpf/btf.h>
#include <bpf/libbpf.h>
#endif

#include "host.h"

/* ---- small files ---- */

/* What is there of a file, its first line; "" without one. */
static void read_line(const char *root, const char *path, char *ret_text, size_t capacity)
{
	char full[PATH_MAX];
	ssize_t length = 0;

	snprintf(full, sizeof(full), "%s%s", root, path);
	_cleanup_fd_ int fd = open(full, O_RDONLY | O_CLOEXEC);
	if (fd >= 0)
		length = read(fd, ret_text, capacity - 1);
	ret_text[MAX(length, 0)] = 0;
	ret_text[strcspn(ret_text, "\n")] = 0;
}

bool paravirt_has_word(const char *text, const char *word)
{
	size_t length = strlen(word);

	for (const char *at = text; (at = strstr(at, word)); at += length) {
		if ((at == text || at[-1] == ' ') && (at[length] == 0 || at[length] == ' '))
			return true;
	}
	return false;
}

/* The flags of the first CPU: the kernel takes out what it was told not to use. */
static void read_flags(const char *root, struct paravirt_kernel *kernel)
{
	char path[PATH_MAX];
	_cleanup_free_ char *line = NULL;
	size_t capacity = 0;

	snprintf(path, sizeof(path), "%s/proc/cpuinfo", root);
	_cleanup_file_ FILE *file = fopen(path, "re");
	while (file && getline(&line, &capacity, file) >= 0) {
		char *colon = strchr(line, ':');
		if (strncmp(line, "flags", 5) != 0 || !colon)
			continue;
		colon[strcspn(colon, "\n")] = 0;
		snprintf(kernel->flags, sizeof(kernel->flags), "%s", colon + 1);
		return;
	}
}

static void read_cpus(const char *root, struct paravirt_kernel *kernel)
{
	struct host_cpus cpus;
	char list[PARAVIRT_TEXT];

	read_line(root, "/sys/devices/system/cpu/possible", list, sizeof(list));
	if (*list && host_parse_cpulist(list, &cpus) == 0)
		kernel->cpus = host_count_cpus(&cpus);
}

static void read_xen(const char *root, struct paravirt_kernel *kernel)
{
	char path[PATH_MAX];

	read_line(root, "/sys/hypervisor/type", kernel->xen_type, sizeof(kernel->xen_type));
	read_line(root, "/sys/hypervisor/guest_type", kernel->xen_guest, sizeof(kernel->xen_guest));
	/* The directory is there on any kernel for Xen, and has files in it only on Xen. */
	snprintf(path, sizeof(path), "%s/proc/xen/capabilities", root);
	kernel->has_proc_xen = access(path, F_OK) == 0;
}

/* ---- configuration ---- */

static const char *const option_names[OPTIONS] = {
	[OPTION_PARAVIRT] = "CONFIG_PARAVIRT",
	[OPTION_PARAVIRT_SPINLOCKS] = "CONFIG_PARAVIRT_SPINLOCKS",
	[OPTION_KVM_GUEST] = "CONFIG_KVM_GUEST",
	[OPTION_HYPERV] = "CONFIG_HYPERV",
	[OPTION_RCU_TABLE_FREE] = "CONFIG_MMU_GATHER_RCU_TABLE_FREE",
	[OPTION_PT_RECLAIM] = "CONFIG_PT_RECLAIM",
	[OPTION_BROADCAST_TLB_FLUSH] = "CONFIG_BROADCAST_TLB_FLUSH",
	[OPTION_LAZY_REFCOUNT] = "CONFIG_MMU_LAZY_TLB_REFCOUNT",
	[OPTION_LAZY_SHOOTDOWN] = "CONFIG_MMU_LAZY_TLB_SHOOTDOWN",
};

/* Says whether the line is one of a configuration. */
static bool take_option(struct paravirt_kernel *kernel, const char *line)
{
	size_t length = strcspn(line, "=");

	if (strncmp(line, "CONFIG_", 7) != 0 || line[length] != '=')
		return false;
	for (size_t i = 0; i < OPTIONS; i++) {
		if (strlen(option_names[i]) == length && strncmp(line, option_names[i], length) == 0)
			kernel->options[i] = line[length + 1] == 'y' || line[length + 1] == 'm';
	}
	return true;
}

#ifdef HPZ_ZLIB
/* zlib because a kernel that keeps its configuration keeps it compressed; it reads plain files as well. */
static bool read_options(const char *path, struct paravirt_kernel *kernel)
{
	char line[512];
	bool has_any = false;
	gzFile file = gzopen(path, "re");

	if (!file)
		return false;
	while (gzgets(file, line, sizeof(line)))
		has_any |= take_option(kernel, line);
	gzclose(file);
	return has_any;
}
#else
static bool read_options(const char *path, struct paravirt_kernel *kernel)
{
	char line[512];
	bool has_any = false;
	_cleanup_file_ FILE *file = fopen(path, "re");

	while (file && fgets(line, sizeof(line), file))
		has_any |= take_option(kernel, line);
	return has_any;
}
#endif

static void read_config(const char *root, struct paravirt_kernel *kernel)
{
	/* Of the running kernel: the first is its own, the others bear its release. */
	static const struct {
		const char *before;
		bool has_release;
		const char *after;
	} places[] = {{"/proc/config.gz", false, ""}, {"/boot/config-", true, ""},
		{"/usr/lib/modules/", true, "/config"}, {"/lib/modules/", true, "/config"}};

	for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
		char path[PATH_MAX];
		if (places[i].has_release && !*kernel->release)
			continue;
		snprintf(kernel->config, sizeof(kernel->config), "%s%s%s", places[i].before,
			places[i].has_release ? kernel->release : "", places[i].after);
		snprintf(path, sizeof(path), "%s%s", root, kernel->config);
		if (read_options(path, kernel))
			return;
		memset(kernel->options, 0, sizeof(kernel->options));
	}
	kernel->config[0] = 0;
}

/* ---- type information ---- */

#ifdef HPZ_BPF
/* A function, or a member of a struct. */
static const struct {
	enum paravirt_type type;
	const char *name, *member;
} wanted_types[] = {
	{TYPE_ANCHOR, "tlb_finish_mmu", NULL},
	{TYPE_SYNC_ONE, "tlb_remove_table_sync_one", NULL},
	{TYPE_PT_RECLAIM, "try_to_free_pte", NULL},
	{TYPE_PV_REMOVE_TABLE, "pv_mmu_ops", "tlb_remove_table"},
	{TYPE_HUGETLB_SPLIT, "hugetlb_split", NULL},
	{TYPE_UNSHARED, "mmu_gather", "fully_unshared_tables"},
	{TYPE_SHOOTDOWN, "do_shoot_lazy_tlb", NULL},
	{TYPE_SKIPS_LAZY, "tlb_state_shared", "is_lazy"},
	{TYPE_SKIPS_LAZY, "tlb_state", "is_lazy"},
};

static bool has_member(const struct btf *btf, const struct btf_type *type, const char *name)
{
	const struct btf_member *members = btf_members(type);

	for (uint16_t i = 0; i < btf_vlen(type); i++) {
		if (strcmp(btf__name_by_offset(btf, members[i].name_off), name) == 0)
			return true;
	}
	return false;
}

static void take_type(struct paravirt_kernel *kernel, const struct btf *btf, const struct btf_type *type)
{
	const char *name = btf__name_by_offset(btf, type->name_off);

	for (size_t i = 0; i < ARRAY_SIZE(wanted_types); i++) {
		if (strcmp(name, wanted_types[i].name) != 0)
			continue;
		if (wanted_types[i].member
				? btf_is_struct(type) && has_member(btf, type, wanted_types[i].member)
				: btf_is_func(type))
			kernel->types[wanted_types[i].type] = true;
	}
}

static void read_types(const char *root, struct paravirt_kernel *kernel)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/sys/kernel/btf/vmlinux", root);
	struct btf *btf = access(path, R_OK) == 0 ? btf__parse_raw(path) : NULL;
	if (libbpf_get_error(btf) || !btf)
		return;
	for (uint32_t id = 1; id < btf__type_cnt(btf); id++) {
		const struct btf_type *type = btf__type_by_id(btf, id);
		if (btf_is_struct(type) || btf_is_func(type))
			take_type(kernel, btf, type);
	}
	btf__free(btf);
	kernel->has_types = kernel->types[TYPE_ANCHOR];
}
#else
static void read_types(const char *root, struct paravirt_kernel *kernel)
{
}
#endif

void paravirt_read_kernel(const char *root, struct paravirt_kernel *ret_kernel)
{
	struct paravirt_kernel *kernel = ret_kernel;

	memset(kernel, 0, sizeof(*kernel));
	read_line(root, "/proc/sys/kernel/osrelease", kernel->release, sizeof(kernel->release));
	if (sscanf(kernel->release, "%u.%u", &kernel->major, &kernel->minor) != 2)
		kernel->major = kernel->minor = 0;
	read_line(root, "/proc/cmdline", kernel->cmdline, sizeof(kernel->cmdline));
	read_line(root, "/sys/devices/system/cpu/vulnerabilities/meltdown", kernel->pti, sizeof(kernel->pti));
	read_line(root, "/sys/devices/system/clocksource/clocksource0/available_clocksource", kernel->clocks,
		sizeof(kernel->clocks));
	read_line(root, "/proc/device-tree/hypervisor/compatible", kernel->device_tree,
		sizeof(kernel->device_tree));
	read_flags(root, kernel);
	read_cpus(root, kernel);
	read_xen(root, kernel);
	read_config(root, kernel);
	read_types(root, kernel);
}
