/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * segment.h - one hugetlbfs file, and the directories its name can be in.
 * Owns the layout on disk (contracts: MOUNT/hpz/1/node<N>/<state>/<segment>.<generation>[.<lease>.<index>]
 * and MOUNT/hpz-out/) and the two locks of a mount. Knows nothing of pools, and never maps a byte.
 */
#ifndef HPZ_SEGMENT_H
#define HPZ_SEGMENT_H

#include <dirent.h>
#include <sys/stat.h>
#include <sys/types.h>
#include "util.h"

#define SEGMENT_FORMAT   1
#define SEGMENT_NAME_MAX 96
#define SEGMENT_TOKEN    32

/* What is wrong with a mount, without its path. */
#define SEGMENT_NEWER_FORMAT "holds the files of a newer hpzd, which this one does not understand"

/* The state of a segment is the directory its name is in; pool.h says what each means. */
enum segment_state {
	SEGMENT_FILLING,
	SEGMENT_CLEAN,
	SEGMENT_LEASED,
	SEGMENT_DIRTY,
};
#define SEGMENT_STATE_COUNT 4
const char *segment_get_state_name(enum segment_state state);

/* ---- names ---- */

struct segment_name {
	uint64_t id;
	uint64_t generation;
	bool is_leased;
	uint64_t lease;
	uint32_t index;
};
void segment_format_name(const struct segment_name *name, char ret_text[SEGMENT_NAME_MAX]);
/* 0 or -EINVAL: not a name of ours. */
int segment_parse_name(const char *text, struct segment_name *ret_name);

/* ---- a mount ---- */

struct segment_store {
	struct list link; /* for its owner */
	unsigned references;
	char path[192];
	uint64_t page_size;
	dev_t dev;     /* of the mount: what lies on it is hugetlbfs with those pages */
	int hpz_fd;    /* MOUNT/hpz, holds the lock of the one hpzd of this mount */
	int format_fd; /* MOUNT/hpz/1 */
	int out_fd;    /* MOUNT/hpz-out */
	/*
	 * A second description of hpz/1, locked shared. Every job carries it to its worker, so it stays
	 * locked until the last worker that may touch a file here is done or dead, also when hpzd is gone.
	 */
	int workers_fd;
};

/*
 * Opens a hugetlbfs mount and takes its lock, waiting for it that long at most. 0; -EBUSY another hpzd has
 * it; -EPROTO a newer format is there; -EMEDIUMTYPE not hugetlbfs, or of another page size; or another
 * negative errno. ret_why: a sentence without path.
 */
int segment_open_store(const char *mount, uint64_t page_size, unsigned wait_ms,
	struct segment_store **ret_store, const char **ret_why);
void segment_close_store(struct segment_store *store);
/* Whether what is below a mount is of this format, or nothing: makes, locks and changes nothing. 0; -EPROTO a
 * newer format is there; or another negative errno. */
int segment_check_format(const char *mount);
/* Pages the mount still gives, by its own `size=`, whatever the kernel has; UINT64_MAX: it has no such lid.
 */
uint64_t segment_get_room(const struct segment_store *store);

/*
 * Takes workers_fd's lock if no worker of a dead hpzd holds it. 1: taken, no leftovers; 0: some live on; or
 * negative errno.
 */
int segment_lock_workers(struct segment_store *store);

/* ---- directories of a node ---- */

struct segment_dirs {
	int32_t node;
	int fds[SEGMENT_STATE_COUNT];
};
int segment_open_dirs(struct segment_store *store, int32_t node, struct segment_dirs *ret_dirs);
void segment_close_dirs(struct segment_dirs *dirs);

/* Calls back for each entry but "." and "..". Stops when the callback returns non-zero and returns that. */
int segment_scan(const struct segment_dirs *dirs, enum segment_state state,
	int (*callback)(const char *name, void *user), void *user);

/* The same a few at a time: entries that come or go meanwhile may be seen or not. NULL: errno says why. */
DIR *segment_start_scan(const struct segment_dirs *dirs, enum segment_state state);
/* The next entry; NULL: that was all. */
const char *segment_scan_next(DIR *scan);

/* ---- one file ---- */

struct segment_stat {
	uint64_t pages;     /* length */
	uint64_t allocated; /* pages the kernel has given it */
	uint64_t links;
	uid_t uid;
	mode_t mode; /* permission bits */
	dev_t dev;
	ino_t ino;
	bool is_opened; /* mapped since its last rename, link or chown (atime against ctime) */
};
int segment_stat_at(const struct segment_store *store, const struct segment_dirs *dirs,
	enum segment_state state, const char *name, struct segment_stat *ret_stat);
/*
 * For the life of this process every page of a file counts as allocated (hpzd --simulate): files stay sparse,
 * and what is read of them is zero because it is a hole.
 */
void segment_set_simulated(void);
/* Whatever the descriptor is: -EMEDIUMTYPE no file of a hugetlbfs with those pages. */
int segment_stat_fd(uint64_t page_size, int fd, struct segment_stat *ret_stat);
/* The same of a file that is to lie on this mount, with one system call. */
int segment_stat_on(const struct segment_store *store, int fd, struct segment_stat *ret_stat);
/* Whose our files are: ours, which does not change while we live. */
uid_t segment_get_uid(void);

/* Makes an empty file in filling/, root's, mode 0. Returns the descriptor or negative errno. */
int segment_create(const struct segment_dirs *dirs, const char *name);
/* Never blocks on somebody's file lease (-EWOULDBLOCK): the descriptor has O_NONBLOCK. Returns it or negative
 * errno. */
int segment_open(const struct segment_dirs *dirs, enum segment_state state, const char *name);
/* Only what nobody has open, which is to be proven: a file lease would block. Without O_NONBLOCK. */
int segment_open_unheld(const struct segment_dirs *dirs, enum segment_state state, const char *name);
/* One atomic transition; a name that is taken is -EEXIST. */
int segment_rename(const struct segment_dirs *dirs, enum segment_state from, const char *from_name,
	enum segment_state to, const char *to_name);
int segment_unlink(const struct segment_dirs *dirs, enum segment_state state, const char *name);

/* ---- hand-over directories ---- */

/* Makes hpz-out/<token>, root's, 0711. `token` gets 32 hex digits that cannot be guessed, not terminated. */
int segment_make_out(const struct segment_store *store, char ret_token[SEGMENT_TOKEN]);
/* The directory of the same name on another mount: a lease's files may lie on several. */
int segment_make_out_again(const struct segment_store *store, const char token[SEGMENT_TOKEN]);
/* Links a leased file as hpz-out/<token>/<index> after giving it owner and mode. */
int segment_link_out(const struct segment_store *store, const struct segment_dirs *dirs, const char *name,
	const char token[SEGMENT_TOKEN], uint32_t index, uid_t uid, gid_t gid, mode_t mode);
/* Removes the links and the directory. Takes locks that a client may hold: for helpers. Missing ones are
 * fine. */
int segment_remove_out(int out_fd, const char token[SEGMENT_TOKEN], uint32_t first, uint32_t count);
/*
 * Calls back for each of these directories, with the inode that its first link names (0: it has none). Stops
 * when the callback returns non-zero and returns that.
 */
int segment_scan_out(const struct segment_store *store,
	int (*callback)(const char token[SEGMENT_TOKEN], ino_t ino, void *user), void *user);
/* The same for hpz-out/<token>; "." is hpz-out itself. */
int segment_scan_out_dir(const struct segment_store *store, const char *token,
	int (*callback)(const char *name, void *user), void *user);
void segment_format_out_path(const struct segment_store *store, const char token[SEGMENT_TOKEN],
	uint32_t index, char *ret_path, size_t capacity);

#endif
