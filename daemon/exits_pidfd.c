/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* exits_pidfd.c - how a process ended, of one that is no child of ours. */
#include <inttypes.h>
#include <sys/ioctl.h>

#include "exits_pidfd.h"

/* As in linux/pidfd.h since 6.13; the exit code since 6.15. */
struct pidfd_exit_info {
	uint64_t mask, cgroup;
	uint32_t pid, tgid, ppid;
	uint32_t ids[8];
	int32_t exit_code;
};
#define PIDFD_ASK_EXIT 8u /* PIDFD_INFO_EXIT */
#define PIDFD_ASK      _IOWR(0xFF, 11, struct pidfd_exit_info)

/* Fields behind the name, which may hold anything: the state is the third, the start the 22nd, the code the
 * 52nd and last. */
int exits_parse_stat(const char *line, uint64_t pid_start, int *ret_code)
{
	const char *at = strrchr(line, ')');
	uint64_t start = 0;
	int code = 0;
	if (!at || at[1] != ' ')
		return -EINVAL;
	at += 2;
	for (unsigned field = 3; field < 52; field++) {
		if (field == 22 && sscanf(at, "%" SCNu64, &start) != 1)
			return -EINVAL;
		at = strchr(at, ' ');
		if (!at)
			return -EINVAL;
		at++;
	}
	if (sscanf(at, "%d", &code) != 1)
		return -EINVAL;
	if (start != pid_start)
		return -ESRCH;
	*ret_code = code;
	return 0;
}

/* Of a zombie this asks nobody and takes nothing. */
static int look_at_zombie(pid_t pid, uint64_t pid_start, int *ret_code)
{
	char path[64], line[1024];
	snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
	_cleanup_file_ FILE *file = fopen(path, "re");
	if (!file || !fgets(line, sizeof line, file))
		return -ESRCH;
	return exits_parse_stat(line, pid_start, ret_code);
}

static int look_at_pidfd(int pidfd, int *ret_code)
{
	struct pidfd_exit_info info = {.mask = PIDFD_ASK_EXIT};
	if (ioctl(pidfd, PIDFD_ASK, &info) < 0)
		return -errno;
	if (!(info.mask & PIDFD_ASK_EXIT))
		return -ENODATA;
	*ret_code = info.exit_code;
	return 0;
}

void exits_pidfd_look(pid_t pid, uint64_t pid_start, int pidfd, struct exits_seen *seen)
{
	int code;
	if (look_at_zombie(pid, pid_start, &code) == 0 || look_at_pidfd(pidfd, &code) == 0)
		exits_set_code(seen, code);
}
