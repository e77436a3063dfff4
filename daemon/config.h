/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * config.h - /etc/hpz/hpzd.conf as one struct.
 * One table says every section, key, parser and default; conf/hpzd.conf and hpzd.conf(5) list the same keys.
 * Does not look at the machine: whether a node or a mount exists is for pool_* to say, with config_pool.line.
 * But names of users and groups are looked up, so that whoever decides by them has numbers only.
 */
#ifndef HPZ_CONFIG_H
#define HPZ_CONFIG_H

#include "util.h"
#include "log.h"

#define CONFIG_DEFAULT_PATH "/etc/hpz/hpzd.conf"
#define CONFIG_POOLS_MAX    64
#define CONFIG_STOCK_MAX    32
#define CONFIG_COUNT_REST   UINT64_MAX
#define CONFIG_COUNT_AUTO   (UINT64_MAX - 1) /* in the parser only: `auto` among the entries */
#define CONFIG_ACCESS_MAX   64
#define CONFIG_IDS_MAX      64
#define CONFIG_NO_LIMIT     UINT64_MAX
#define CONFIG_WORKERS_MAX  64
#define CONFIG_RATE_MIN     ((uint64_t)1 << 20)

/* When returned memory goes to the next lease. */
enum config_reuse {
	CONFIG_REUSE_PROVEN, /* only when the full proof says that nobody can reach it */
	CONFIG_REUSE_WEAK,   /* also when only F_SETLEASE says so, and never to the same uid */
	CONFIG_REUSE_NEVER,  /* it is unlinked, and the kernel zeroes the pages */
};

/* When a pool gets smaller by itself. */
enum config_give_back {
	CONFIG_GIVE_BACK_NO,
	CONFIG_GIVE_BACK_PRESSURE, /* while others wait for memory */
};

/* How much of a clean segment is read again before it is handed out. */
enum config_verify {
	CONFIG_VERIFY_OFF,
	CONFIG_VERIFY_SAMPLE, /* some cache lines of every page, elsewhere each time */
	CONFIG_VERIFY_FULL,   /* every byte */
};

/* How the ends of processes that had memory are looked at. */
enum config_teardown {
	CONFIG_TEARDOWN_AUTO, /* the best that works here */
	CONFIG_TEARDOWN_BPF,
	CONFIG_TEARDOWN_PERF,
	CONFIG_TEARDOWN_PIDFD,
	CONFIG_TEARDOWN_OFF,
};

/* `2G*8`: bytes and count; count CONFIG_COUNT_REST for `2M*rest`. */
struct config_stock {
	uint64_t bytes;
	uint64_t count;
};

struct config_pool {
	char name[64];
	unsigned line; /* of its section header, for messages */
	uint64_t page_size;
	int32_t node;
	uint64_t pages;     /* target, may be 0; written as a bare number of pages or as a size with a unit */
	uint64_t max_pages; /* default: pages */
	char mount[192];    /* "auto" or an absolute path without a slash at its end */
	uint64_t min_pages; /* never less than that by itself */
	enum config_give_back give_back;
	bool raise; /* may raise nr_hugepages; default yes */
	enum config_reuse reuse;
	enum config_verify verify;
	struct config_stock stock[CONFIG_STOCK_MAX]; /* as written, no size twice; none: `mixed` or `auto` */
	size_t stock_count;
	bool is_learning;            /* auto: what these leave is learned from demand */
	uint32_t stock_share;        /* percent of that: the most that follows demand */
	uint64_t stock_half_life_ns; /* in which what was asked for comes to count half */
	unsigned page_size_line, node_line, mount_line, stock_line; /* 0: not given */
};

/* What a section of access allows. */
#define CONFIG_ALLOW_STATUS 1u /* status, lists, waiting for stock */
#define CONFIG_ALLOW_LEASE  2u /* leases of one's own: lease, adopt, release */
#define CONFIG_ALLOW_ADMIN  4u /* others' leases, owners other than oneself, drain, check */

/* Users or groups, as numbers. */
struct config_ids {
	uint32_t ids[CONFIG_IDS_MAX];
	size_t count;
	bool is_all; /* `*` is among them */
};

#define CONFIG_PRIORITY_MAX 1000

struct config_access {
	char name[64];
	unsigned line; /* of its section header, for messages */
	struct config_ids users, groups;
	unsigned allow;           /* CONFIG_ALLOW_* */
	uint64_t quota_bytes;     /* each of them CONFIG_NO_LIMIT: none */
	uint64_t quota_leases;    /* of one uid, as the bytes */
	uint64_t max_connections; /* of one uid */
	uint64_t max_requests;    /* of one uid, that wait at once */
	uint32_t max_priority;    /* of what waits */
};

/* Shares of time in percent: work pauses above one and goes on below the other. */
struct config_psi {
	bool is_on;
	uint32_t pause_percent, resume_percent;
};

/* [clear]: how memory is cleared and filled. Every key may change at any time, also by `hpzctl set`. */
struct config_clear {
	char method[32];           /* "auto" or a row of zero.c's table, which is for the daemon to look up */
	bool is_enabled;           /* no: nothing is cleared or filled, not even for who waits */
	uint32_t workers;          /* per node; 0: auto */
	char cpus[256];            /* "all" or a list as 0-3,8 */
	uint64_t rate_bytes_per_s; /* per node; 0: none */
	struct config_psi psi_cpu, psi_memory;
	bool is_scavenger;
	/* Percent of a pool's target that is clean: below low it is refilled until high is reached. */
	uint32_t low_percent, high_percent;
	bool is_kernel_zeroing;   /* zeroable_hugepages may be used where it exists */
	uint32_t reshape_percent; /* of clean memory: the most that a learned stock has rebuilt at once */
};

/* What the hook does when a domain's memory cannot come from a pool. */
enum config_failure {
	CONFIG_FAILURE_FALLBACK, /* the domain starts with other memory */
	CONFIG_FAILURE_REFUSE,
};

/* Numbers, or nobody in particular. */
struct config_owner {
	bool is_set;
	uint32_t uid, gid;
};

/* [libvirt]: hpzd itself does nothing with it, hpz-libvirt-hook does. */
struct config_libvirt {
	bool is_enabled;
	enum config_failure on_failure;
	uint32_t deadline_ms;         /* the longest a start is held up */
	char memory_backing_dir[192]; /* "auto", or an absolute path: what qemu.conf says */
	struct config_owner user;     /* of the files; not set: who owns the domain's directory */
};

#define CONFIG_WAIT_MAX_S 3600

/* [qemu]: for hpz-qemu, which reads it by itself; hpzd only says what is wrong with it. */
struct config_qemu {
	char emulator[192]; /* "auto" or an absolute path */
	enum config_failure on_failure;
	uint64_t wait_ns; /* for clean memory; 0: not at all */
	bool is_for_ram;  /* also what does not ask for huge pages */
};

struct config {
	char path[256];
	char socket[108];
	char socket_group[64]; /* name or number; "": root only */
	uint32_t socket_mode;
	char run_dir[128];
	enum log_level log_level;
	enum config_teardown teardown;
	uint64_t grace_ns; /* how long nobody has a path lease open before it ends */
	struct config_clear clear;
	struct config_libvirt libvirt;
	struct config_qemu qemu;
	/* 0: not given */
	unsigned socket_line, socket_group_line, run_dir_line, method_line, cpus_line, high_line;
	unsigned line_count;
	struct config_pool pools[CONFIG_POOLS_MAX];
	size_t pool_count;
	struct config_access access[CONFIG_ACCESS_MAX]; /* in the order of the file, which counts */
	size_t access_count;
};

/*
 * Reads a file. 0; -EINVAL with the reason in ret_error ("FILE:LINE: what, why"); or another negative errno,
 * also with a text. A missing file is an error unless missing_ok, then the defaults.
 */
int config_read(
	const char *path, bool missing_ok, struct config *ret_config, char *ret_error, size_t capacity);

/*
 * Whether `next` may replace `now` without a restart. 0, or -EINVAL with "FILE:LINE: ..." when page_size,
 * node or mount of an existing pool, the socket or the run directory changed, or a pool that has pages
 * (has_pages says) went.
 */
int config_check_reload(const struct config *now, const struct config *next,
	bool (*has_pages)(const char *pool, void *user), void *user, char *ret_error, size_t capacity);

/*
 * One key of [clear] as `hpzctl set` gives it. 0, or -EINVAL with the reason in ret_why ("KEY = VALUE, why"),
 * and nothing has changed. -ENOENT, also with a text: there is no such key.
 */
int config_set_clear(
	struct config_clear *clear, const char *key, const char *value, char *ret_why, size_t capacity);
/* The value in force as one would write it, by row: 0 to CONFIG_CLEAR_KEYS - 1; returns the key's name. */
#define CONFIG_CLEAR_KEYS 12
const char *config_get_clear(const struct config_clear *clear, size_t row, char *ret_value, size_t capacity);

/* A pool that has nothing but these; the rest as by default. */
void config_init_pool(struct config_pool *pool, uint64_t page_size, int32_t node, uint64_t pages);
/*
 * The stock of a pool that has page_size and pages, as `stock =` gives it. 0, or -EINVAL with the reason in
 * ret_why ("stock = VALUE, why"), and nothing has changed.
 */
int config_set_stock(struct config_pool *pool, const char *value, char *ret_why, size_t capacity);

/*
 * The stock of a pool in whole pages, largest segments first, each size once; sums to at most `pages`, which
 * may be less than pool->pages when the machine has less: then the largest come first. With a `rest` all
 * pages are used: what is too small for one more such segment becomes single pages. Without a stock of its
 * own (`mixed`, and `auto` before anything is learned): one segment of half the pages, 64 MiB segments for a
 * quarter, single pages for the rest. Of a stock that is learned beside fixed entries, these. Returns the
 * number of classes; none when pages is 0.
 */
struct config_class {
	uint64_t segment_pages;
	uint64_t count;
};
size_t config_get_stock(const struct config_pool *pool, uint64_t pages,
	struct config_class ret_classes[CONFIG_STOCK_MAX + 3]);

/*
 * The stock of a pool that was resized to `pages`: what the configured one leaves of them, beyond what it
 * leaves of the configured pages, in the shape of the default stock. Returns the new number of classes.
 */
size_t config_add_rest(const struct config_pool *pool, uint64_t pages,
	struct config_class classes[CONFIG_STOCK_MAX + 3], size_t count);

/* A group's number, by its name or its number. 0; -ENOENT: there is none; -ERANGE: no group has that number.
 */
int config_find_group(const char *word, uint32_t *ret_id);

/*
 * One line a key: section, key, default, "required" or "optional", help, separated by tabs. The default of a
 * required key is an example. For --help and for the test that holds the manual and conf/hpzd.conf to the
 * table.
 */
void config_write_reference(FILE *out);

#endif
