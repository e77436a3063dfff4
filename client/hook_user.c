/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* hook_user.c - who a domain's QEMU runs as. */
#include "hook_user.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>

#include "hook_ask.h"
#include "names.h"

#define USER_LABEL_MAX 128

struct user_ids {
	uint32_t uid, gid;
};

/* "+N" or "N"; the largest number means nobody: chown would leave the owner as it is. 0, -ENOENT: a name. */
static int hook_user_parse_number(const char *word, uint32_t *ret_id)
{
	const char *digits = word + (*word == '+');
	uint64_t number = 0;

	if (!*digits || digits[strspn(digits, "0123456789")])
		return *word == '+' ? -EINVAL : -ENOENT;
	for (; *digits; digits++) {
		number = number * 10 + (uint64_t)(*digits - '0');
		if (number >= UINT32_MAX)
			return -EINVAL;
	}
	*ret_id = (uint32_t)number;
	return 0;
}

static int hook_user_find(const char *label, enum names_where where, struct user_ids *ret_ids)
{
	char copy[USER_LABEL_MAX], *group = copy;
	struct user_ids ids;
	uint32_t unused;

	if (strlen(label) >= sizeof(copy))
		return -EINVAL;
	strcpy(copy, label);
	const char *user = strsep(&group, ":");
	if (!*user || !group || !*group)
		return -EINVAL;
	int r = hook_user_parse_number(user, &ids.uid);
	if (r == -ENOENT)
		r = names_find_user(user, where, &ids.uid, &unused);
	if (r < 0)
		return r;
	r = hook_user_parse_number(group, &ids.gid);
	if (r == -ENOENT)
		r = names_find_group(group, where, &ids.gid);
	if (r == 0)
		*ret_ids = ids;
	return r;
}

int hook_user_parse(const char *label, uint32_t *ret_uid, uint32_t *ret_gid)
{
	struct user_ids ids;
	int r = hook_user_find(label, NAMES_LOCAL, &ids);

	if (r < 0)
		return r;
	*ret_uid = ids.uid;
	*ret_gid = ids.gid;
	return 0;
}

/* What a child finds, which may be held for ever. */
static int hook_user_receive(int fd, uint64_t deadline_ns, struct user_ids *ret_ids)
{
	struct pollfd look = {.fd = fd, .events = POLLIN};
	uint64_t now_ns = clock_get_ns(CLOCK_MONOTONIC);
	int left_ms = now_ns < deadline_ns ? (int)((deadline_ns - now_ns) / NS_PER_MS) : 0;

	if (poll(&look, 1, left_ms) <= 0)
		return -ETIMEDOUT;
	return read(fd, ret_ids, sizeof(*ret_ids)) == sizeof(*ret_ids) ? 0 : -ENOENT;
}

int hook_user_ask(const char *label, uint64_t deadline_ns, uint32_t *ret_uid, uint32_t *ret_gid)
{
	struct user_ids ids;
	int pipe_fds[2], r = hook_user_parse(label, ret_uid, ret_gid);

	if (r != -ENOENT)
		return r;
	if (pipe2(pipe_fds, O_CLOEXEC) < 0)
		return -errno;
	_cleanup_fd_ int from = pipe_fds[0], to = pipe_fds[1];
	pid_t parent = getpid(), child = fork();
	if (child < 0)
		return -errno;
	if (child == 0) {
		hook_ask_follow(parent);
		if (hook_user_find(label, NAMES_ANYWHERE, &ids) == 0 &&
			write(to, &ids, sizeof(ids)) == sizeof(ids))
			_exit(0);
		_exit(1);
	}
	to = close_fd(to);
	r = hook_user_receive(from, deadline_ns, &ids);
	if (r == -ETIMEDOUT)
		kill(child, SIGKILL);
	waitpid(child, NULL, r == -ETIMEDOUT ? WNOHANG : 0);
	if (r == 0) {
		*ret_uid = ids.uid;
		*ret_gid = ids.gid;
	}
	return r;
}
