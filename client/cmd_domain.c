/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * cmd_domain.c - hpzctl domain: becomes hpz-libvirt, the program that knows libvirt.
 * hpzctl itself does not link libvirt, and does without it where it is not installed.
 */
#include "hpzctl.h"

#include <limits.h>

#include "options.h"

#define CMD_DOMAIN_ARGUMENTS_MAX 64

/* Beside hpzctl in a build tree, else where it is installed. */
static void cmd_domain_find_program(char ret_path[PATH_MAX])
{
	ssize_t length = readlink("/proc/self/exe", ret_path, PATH_MAX - sizeof("/hpz-libvirt"));

	ret_path[MAX(length, 0)] = '\0';
	char *slash = strrchr(ret_path, '/');
	if (slash)
		strcpy(slash, "/hpz-libvirt");
	if (!slash || access(ret_path, X_OK) < 0)
		snprintf(ret_path, PATH_MAX, "%s", HPZ_INSTALLED_HPZ_LIBVIRT);
}

int cmd_domain(struct hpzctl *ctl, int argc, char **argv)
{
	char path[PATH_MAX];
	char *words[CMD_DOMAIN_ARGUMENTS_MAX + 6];
	size_t count = 0;

	if (argc > CMD_DOMAIN_ARGUMENTS_MAX)
		return hpzctl_fail_usage(ctl, "so many words make no sense");
	cmd_domain_find_program(path);
	words[count++] = path;
	words[count++] = (char *)"domain";
	/* What stood before the verb. */
	if (ctl->json)
		words[count++] = (char *)"--json";
	if (ctl->socket_path) {
		words[count++] = (char *)"--socket";
		words[count++] = (char *)ctl->socket_path;
	}
	for (int i = 0; i < argc; i++)
		words[count++] = argv[i];
	words[count] = NULL;
	execv(path, words);
	if (errno == ENOENT)
		hpzctl_say("this hpz was built without libvirt: there is no %s", path);
	else
		hpzctl_say("cannot run %s: %s", path, strerror(errno));
	return HPZCTL_FAILED;
}
