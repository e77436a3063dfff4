/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* domain_host.c - what of this host's set-up for libvirt matters for pooled memory. */
#include "domain_host.h"

#include <limits.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#define DOMAIN_HOST_CONF "/etc/libvirt/qemu.conf"
/* The first that looks into hooks/qemu.d: 6.5.0. */
#define DOMAIN_HOST_VERSION_MIN 6005000ul

/* ---- files ---- */

static FILE *domain_host_open(const char *root, const char *path)
{
	char name[PATH_MAX];

	snprintf(name, sizeof(name), "%s%s", root, path);
	return fopen(name, "re");
}

/* Whether a line of a file has it in front of any comment. */
static bool domain_host_has(const char *root, const char *path, const char *word)
{
	_cleanup_file_ FILE *file = domain_host_open(root, path);
	_cleanup_free_ char *line = NULL;
	size_t capacity = 0;
	bool is_there = false;

	while (file && !is_there && getline(&line, &capacity, file) > 0) {
		line[strcspn(line, "#")] = '\0';
		is_there = strstr(line, word) != NULL;
	}
	return is_there;
}

static bool domain_host_begins(const char *root, const char *path, const char *text)
{
	_cleanup_file_ FILE *file = domain_host_open(root, path);
	char line[16] = "";

	return file && fgets(line, sizeof(line), file) && strncmp(line, text, strlen(text)) == 0;
}

static void domain_host_find(const char *root, const char *key, char *ret_value, size_t capacity)
{
	_cleanup_file_ FILE *file = domain_host_open(root, DOMAIN_HOST_CONF);

	*ret_value = '\0';
	if (file)
		hook_settings_find_value(file, key, ret_value, capacity);
}

/* ---- where the memory is ---- */

/* Of a path as far as it is there: libvirt's directories come with the first domain. */
static bool domain_host_stat(const char *path, struct stat *ret_stat, struct statfs *ret_system)
{
	char parent[HOOK_PATH_MAX];

	snprintf(parent, sizeof(parent), "%s", path);
	while (stat(parent, ret_stat) < 0) {
		char *slash = strrchr(parent, '/');
		if (errno != ENOENT || !slash || slash == parent)
			return false;
		*slash = '\0';
	}
	return statfs(parent, ret_system) == 0;
}

static void domain_host_read_places(const struct hook_settings *settings, struct domain_host *host)
{
	struct stat directory, backing, mount;
	struct statfs system;

	if (!domain_host_stat(settings->backing_dir, &directory, &system))
		return;
	host->is_on_huge = system.f_type == HUGETLBFS_MAGIC;
	bool has_backing = *host->backing_dir && stat(host->backing_dir, &backing) == 0;
	for (size_t i = 0; i < settings->pool_count; i++) {
		if (stat(settings->pools[i].mount, &mount) < 0)
			continue;
		host->is_on_pool |= mount.st_dev == directory.st_dev;
		host->is_the_mount |=
			has_backing && mount.st_dev == backing.st_dev && mount.st_ino == backing.st_ino;
	}
}

/* ---- what guards it ---- */

/* "libvirtd (enforce)", "/usr/sbin/virtqemud (enforce)" */
static bool domain_host_is_enforced(const char *root)
{
	static const char *const names[] = {"libvirtd (enforce)", "virtqemud (enforce)"};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		if (domain_host_has(root, "/sys/kernel/security/apparmor/profiles", names[i]))
			return true;
	}
	return false;
}

static void domain_host_read_guards(const char *root, struct domain_host *host)
{
	char value[64];

	host->is_apparmor_enforced =
		domain_host_begins(root, "/sys/module/apparmor/parameters/enabled", "Y") &&
		domain_host_is_enforced(root);
	host->has_hook_rule =
		domain_host_has(root, "/etc/apparmor.d/local/usr.sbin.libvirtd", "hpz-libvirt-hook") ||
		domain_host_has(root, "/etc/apparmor.d/local/usr.sbin.virtqemud", "hpz-libvirt-hook");
	host->has_guest_rule =
		domain_host_has(root, "/etc/apparmor.d/local/abstractions/libvirt-qemu", "hpz-qemu");
	host->is_selinux_enforced = domain_host_begins(root, "/sys/fs/selinux/enforce", "1");
	domain_host_find(root, "security_default_confined", value, sizeof(value));
	host->is_unconfined = strcmp(value, "0") == 0;
	domain_host_find(root, "security_driver", value, sizeof(value));
	host->is_unconfined |= strcmp(value, "none") == 0;
	domain_host_find(root, "dynamic_ownership", value, sizeof(value));
	host->is_owner_kept = strcmp(value, "0") == 0;
}

static void domain_host_read_hook(const char *root, struct domain_host *host)
{
	char path[PATH_MAX];
	struct stat st;

	snprintf(path, sizeof(path), "%s%s", root, host->hook_path);
	if (!*host->hook_path)
		host->hook = DOMAIN_HOOK_NOWHERE;
	else if (lstat(path, &st) < 0)
		host->hook = errno == EACCES ? DOMAIN_HOOK_HIDDEN : DOMAIN_HOOK_MISSING;
	else if (stat(path, &st) < 0 && errno == EACCES)
		host->hook = DOMAIN_HOOK_HIDDEN;
	else if (stat(path, &st) < 0 || !S_ISREG(st.st_mode) || access(path, X_OK) < 0)
		host->hook = DOMAIN_HOOK_BROKEN;
	else
		host->hook = DOMAIN_HOOK_THERE;
}

void domain_host_read(const char *root, const char *hook_path, const struct hook_settings *settings,
	struct domain_host *ret_host)
{
	struct domain_host host = {.version = 0};

	snprintf(host.hook_path, sizeof(host.hook_path), "%s", hook_path);
	domain_host_read_hook(root, &host);
	_cleanup_file_ FILE *conf = domain_host_open(root, DOMAIN_HOST_CONF);
	host.has_conf = conf != NULL;
	if (conf)
		hook_settings_find_backing_dir(conf, host.backing_dir, sizeof(host.backing_dir));
	domain_host_find(root, "user", host.user, sizeof(host.user));
	domain_host_read_guards(root, &host);
	domain_host_read_places(settings, &host);
	*ret_host = host;
}

/* ---- what is said ---- */

struct domain_host_case {
	const struct domain_host *host;
	const struct hook_settings *settings;
	const struct domain *domain;
};

static bool domain_host_is_disabled(const struct domain_host_case *it)
{
	return !it->settings->is_enabled;
}

static bool domain_host_has_no_hook(const struct domain_host_case *it)
{
	return it->host->hook == DOMAIN_HOOK_MISSING;
}

static bool domain_host_has_broken_hook(const struct domain_host_case *it)
{
	return it->host->hook == DOMAIN_HOOK_BROKEN;
}

static bool domain_host_hides_hook(const struct domain_host_case *it)
{
	return it->host->hook == DOMAIN_HOOK_HIDDEN;
}

static bool domain_host_is_old(const struct domain_host_case *it)
{
	return it->host->version && it->host->version < DOMAIN_HOST_VERSION_MIN;
}

/* The directory that the hook looks in is libvirt's memory_backing_dir, or below. */
static bool domain_host_looks_elsewhere(const struct domain_host_case *it)
{
	const char *theirs = *it->host->backing_dir ? it->host->backing_dir : HOOK_DEFAULT_BACKING_DIR;
	const char *ours = it->settings->backing_dir;
	size_t length = strlen(theirs);

	while (length > 1 && theirs[length - 1] == '/')
		length--;
	return it->host->has_conf &&
	       (strncmp(ours, theirs, length) != 0 || (ours[length] && ours[length] != '/'));
}

/* Without a user of its own QEMU is libvirt's default one, which is not root. */
static bool domain_host_owns_nothing(const struct domain_host_case *it)
{
	return it->host->is_owner_kept && !it->settings->has_user && !*it->domain->dac_label &&
	       strcmp(it->host->user, "root") != 0;
}

static bool domain_host_forbids_hook(const struct domain_host_case *it)
{
	return it->host->is_apparmor_enforced && !it->host->has_hook_rule;
}

static bool domain_host_forbids_wrapper(const struct domain_host_case *it)
{
	return it->host->is_apparmor_enforced && !it->host->has_guest_rule && !it->host->is_unconfined;
}

static bool domain_host_is_guarded(const struct domain_host_case *it)
{
	return it->host->is_selinux_enforced;
}

static bool domain_host_is_the_mount(const struct domain_host_case *it)
{
	return it->host->is_the_mount;
}

static bool domain_host_is_small(const struct domain_host_case *it)
{
	return !it->host->is_on_huge;
}

static bool domain_host_is_strange(const struct domain_host_case *it)
{
	return it->host->is_on_huge && !it->host->is_on_pool && it->settings->pool_count > 0;
}

static const char *domain_host_get_hook(const struct domain_host_case *it)
{
	return it->host->hook_path;
}

static const char *domain_host_get_backing_dir(const struct domain_host_case *it)
{
	return *it->host->backing_dir ? it->host->backing_dir : "which has none";
}

static const char *domain_host_get_directory(const struct domain_host_case *it)
{
	return it->settings->backing_dir;
}

/* Each with what stands behind its text, if anything does. */
static const struct {
	bool is_problem, is_for_hook, is_for_wrapped;
	bool (*holds)(const struct domain_host_case *it);
	const char *text;
	const char *(*get_word)(const struct domain_host_case *it);
} domain_host_rows[] = {
	{true, true, false, domain_host_is_disabled, "[libvirt] of hpzd.conf says enabled = no", NULL},
	{true, true, false, domain_host_has_no_hook, "libvirt has no hook ", domain_host_get_hook},
	{true, true, false, domain_host_has_broken_hook, "libvirt cannot run its hook ",
		domain_host_get_hook},
	{false, true, false, domain_host_hides_hook,
		"only root can see what libvirt has there: this may be wrong without ", domain_host_get_hook},
	{true, true, false, domain_host_is_old, "this libvirt looks for no hooks in qemu.d: it takes 6.5",
		NULL},
	{true, true, false, domain_host_looks_elsewhere,
		"memory_backing_dir of hpzd.conf is not that of qemu.conf, ", domain_host_get_backing_dir},
	{true, true, false, domain_host_owns_nothing,
		"dynamic_ownership = 0 in qemu.conf: nobody says whose the files are; `user` in [libvirt] of "
		"hpzd.conf does",
		NULL},
	{true, true, false, domain_host_forbids_hook,
		"AppArmor does not let libvirtd run the hook: see hpz-libvirt(7) for its rule", NULL},
	{true, false, true, domain_host_forbids_wrapper,
		"AppArmor does not let guests run hpz-qemu: see hpz-libvirt(7) for its rule", NULL},
	{false, true, true, domain_host_is_guarded,
		"SELinux enforces its policy, which hpz has not been tried with: see hpz-libvirt(7)", NULL},
	{false, true, false, domain_host_is_the_mount,
		"memory_backing_dir of qemu.conf is a pool's mount itself: libvirtd gives it to QEMU's user, "
		"who "
		"can then rename what hpzd has there; make it a directory in it",
		NULL},
	{false, true, false, domain_host_is_small,
		"memory_backing_dir of qemu.conf is not on hugetlbfs: on a pool's mount the files are links, "
		"see "
		"hpz-libvirt(7); now libvirt looks in ",
		domain_host_get_directory},
	{false, true, false, domain_host_is_strange,
		"on the mount of no pool, where files would be links: see hpz-libvirt(7); now each is "
		"mounted in ",
		domain_host_get_directory},
};

bool domain_host_next(const struct domain_host *host, const struct hook_settings *settings,
	const struct domain *domain, bool is_wrapped, size_t *at, bool *ret_is_problem,
	char ret_text[DOMAIN_HOST_TEXT_MAX])
{
	const struct domain_host_case it = {host, settings, domain};

	for (; *at < ARRAY_SIZE(domain_host_rows); (*at)++) {
		bool is_meant =
			is_wrapped ? domain_host_rows[*at].is_for_wrapped : domain_host_rows[*at].is_for_hook;
		if (!is_meant || !domain_host_rows[*at].holds(&it))
			continue;
		snprintf(ret_text, DOMAIN_HOST_TEXT_MAX, "%s%s", domain_host_rows[*at].text,
			domain_host_rows[*at].get_word ? domain_host_rows[*at].get_word(&it) : "");
		*ret_is_problem = domain_host_rows[*at].is_problem;
		(*at)++;
		return true;
	}
	return false;
}
