/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* hook_settings.c - what the hook must know of the host. It reads hpzd.conf as hpzd does, with its reader. */
#include "hook_settings.h"

#include "config.h"

#define HOOK_QEMU_CONF "/etc/libvirt/qemu.conf"

/* The value of `KEY = "TEXT"` or `KEY = NUMBER` in one line; false when it is another line. */
static bool hook_settings_take_line(
	const char *line, const char *key, bool is_path, char *ret_value, size_t capacity)
{
	line += strspn(line, " \t");
	if (strncmp(line, key, strlen(key)) != 0)
		return false;
	line += strlen(key);
	line += strspn(line, " \t");
	if (*line++ != '=')
		return false;
	line += strspn(line, " \t");
	bool is_quoted = *line == '"' || *line == '\'';
	const char *end = is_quoted ? strchr(line + 1, *line) : line + strcspn(line, " \t\n#");
	line += is_quoted;
	size_t length = end ? (size_t)(end - line) : 0;
	if (length == 0 || length >= capacity || (is_path && (!is_quoted || *line != '/')))
		return false;
	snprintf(ret_value, capacity, "%.*s", (int)length, line);
	return true;
}

/* The last one counts. */
static void hook_settings_find(
	FILE *qemu_conf, const char *key, bool is_path, char *ret_value, size_t capacity)
{
	_cleanup_free_ char *line = NULL;
	size_t line_capacity = 0;

	*ret_value = '\0';
	while (getline(&line, &line_capacity, qemu_conf) > 0)
		hook_settings_take_line(line, key, is_path, ret_value, capacity);
}

void hook_settings_find_value(FILE *qemu_conf, const char *key, char *ret_value, size_t capacity)
{
	hook_settings_find(qemu_conf, key, false, ret_value, capacity);
}

void hook_settings_find_backing_dir(FILE *qemu_conf, char *ret_path, size_t capacity)
{
	hook_settings_find(qemu_conf, "memory_backing_dir", true, ret_path, capacity);
}

static void hook_settings_find_directory(const struct config_libvirt *libvirt, struct hook_settings *settings)
{
	char path[sizeof(settings->backing_dir) - sizeof("/libvirt/qemu")] = "";

	if (strcmp(libvirt->memory_backing_dir, "auto") != 0) {
		snprintf(path, sizeof(path), "%s", libvirt->memory_backing_dir);
	} else {
		_cleanup_file_ FILE *qemu_conf = fopen(HOOK_QEMU_CONF, "re");
		if (qemu_conf)
			hook_settings_find_backing_dir(qemu_conf, path, sizeof(path));
	}
	if (*path)
		snprintf(settings->backing_dir, sizeof(settings->backing_dir), "%s/libvirt/qemu", path);
	else
		snprintf(settings->backing_dir, sizeof(settings->backing_dir), HOOK_DEFAULT_BACKING_DIR);
}

/* A pool's mount is its own only if hpzd does not mount it: see daemon.c. */
static void hook_settings_take_pool(
	const struct config *config, const struct config_pool *pool, struct hook_settings *settings)
{
	struct hook_pool *to = &settings->pools[settings->pool_count++];

	*to = (struct hook_pool){.page_size = pool->page_size,
		.node = pool->node,
		.may_reuse = pool->reuse == CONFIG_REUSE_PROVEN};
	if (strcmp(pool->mount, "auto") == 0)
		snprintf(to->mount, sizeof(to->mount), "%s/mnt/%s", config->run_dir, pool->name);
	else
		snprintf(to->mount, sizeof(to->mount), "%s", pool->mount);
}

void hook_settings_read(const char *config_path, struct hook_settings *ret_settings)
{
	static struct config config; /* some hundred KiB */
	const char *named = config_path ? config_path : secure_getenv("HPZ_CONFIG");

	_Static_assert(HOOK_POOLS_MAX >= CONFIG_POOLS_MAX, "there is room for each");
	*ret_settings = (struct hook_settings){0};
	if (config_read(named && *named ? named : CONFIG_DEFAULT_PATH, true, &config, ret_settings->mistake,
		    sizeof(ret_settings->mistake)) < 0) {
		/* "" is no file: these are the defaults. */
		char error[64];
		config_read("", true, &config, error, sizeof(error));
	}
	ret_settings->is_enabled = config.libvirt.is_enabled;
	ret_settings->refuses = config.libvirt.on_failure == CONFIG_FAILURE_REFUSE;
	ret_settings->deadline_ms = config.libvirt.deadline_ms;
	ret_settings->is_for_ram = config.qemu.is_for_ram;
	ret_settings->has_user = config.libvirt.user.is_set;
	ret_settings->uid = config.libvirt.user.uid;
	ret_settings->gid = config.libvirt.user.gid;
	snprintf(ret_settings->socket, sizeof(ret_settings->socket), "%s", config.socket);
	snprintf(ret_settings->run_dir, sizeof(ret_settings->run_dir), "%s", config.run_dir);
	hook_settings_find_directory(&config.libvirt, ret_settings);
	for (size_t i = 0; i < config.pool_count; i++)
		hook_settings_take_pool(&config, &config.pools[i], ret_settings);
}

bool hook_settings_has_pool(const struct hook_settings *settings, uint64_t page_size)
{
	for (size_t i = 0; i < settings->pool_count; i++) {
		if (settings->pools[i].page_size == page_size)
			return true;
	}
	return false;
}
