/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * config.c - from hpzd.conf to struct config.
 * inih splits lines into names and values; it cuts long lines, glues indented ones to the value above, skips
 * sections without keys and tells no line numbers. So the reader in front of it sees each line first: it
 * counts, refuses, and follows the sections. Values are collected until their section ends and then parsed in
 * the order of the table, so that a parser may rely on the rows above it.
 */
#include "config.h"

#include <ini.h>
#include <stdarg.h>
#include "host.h"
#include "names.h"
#include "size.h"

#define NODES_MAX     1024
#define SMALLEST_PAGE (16ull << 10) /* the smallest huge page Linux knows (powerpc 8xx) */
#define WHY_MAX       160
#define VALUE_MAX     256
#define KEYS_MAX      64
#define DURATION_MAX  (3650 * 86400ull) /* seconds */
#define GRACE_MOST_S  3600

struct config_key;
/* 0 or -EINVAL with a reason. `pool` is the pool so far, NULL outside of one. */
typedef int (*parse_fn)(const struct config_key *key, const char *text, const struct config_pool *pool,
	void *ret_value, char why[WHY_MAX]);

struct config_key {
	const char *section;
	const char *name;
	parse_fn parse;
	size_t offset, size;
	size_t line_offset;   /* 0: nobody wants to know */
	const char *fallback; /* required: an example */
	bool is_required;
	const char *help;
};

static PRINTF(2, 3) int refuse(char why[WHY_MAX], const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(why, WHY_MAX, format, args);
	va_end(args);
	return -EINVAL;
}

/* ---- parsers ---- */

static int parse_text(const struct config_key *key, const char *text, const struct config_pool *pool,
	void *ret_value, char why[WHY_MAX])
{
	if (strlen(text) >= key->size)
		return refuse(why, "longer than %zu bytes", key->size - 1);
	strcpy(ret_value, text);
	return 0;
}

static int parse_word(const struct config_key *key, const char *text, const struct config_pool *pool,
	void *ret_value, char why[WHY_MAX])
{
	if (!*text)
		return refuse(why, "is empty");
	return parse_text(key, text, pool, ret_value, why);
}

static bool has_dots(const char *path)
{
	for (const char *part = path; part; part = strchr(part, '/')) {
		part += *part == '/';
		if (part[0] == '.' && (part[1] == '/' || !part[1]))
			return true;
		if (part[0] == '.' && part[1] == '.' && (part[2] == '/' || !part[2]))
			return true;
	}
	return false;
}

static int parse_path(const struct config_key *key, const char *text, const struct config_pool *pool,
	void *ret_value, char why[WHY_MAX])
{
	char *path = ret_value;

	if (*text != '/')
		return refuse(why, "not an absolute path");
	if (has_dots(text))
		return refuse(why, "`.` and `..` have no place in this path");
	if (strlen(text) >= key->size)
		return refuse(why, "path longer than %zu bytes", key->size - 1);
	strcpy(path, text);
	for (size_t n = strlen(path); n > 1 && path[n - 1] == '/'; n--)
		path[n - 1] = 0;
	return 0;
}

/* `auto`, or a path. */
static int parse_mount(const struct config_key *key, const char *text, const struct config_pool *pool,
	void *ret_value, char why[WHY_MAX])
{
	if (strcmp(text, "auto") == 0)
		return parse_text(key, text, pool, ret_value, why);
	if (*text != '/')
		return refuse(why, "neither `auto` nor an absolute path");
	return parse_path(key, text, pool, ret_value, why);
}

static int parse_reuse(const struct config_key *key, const char *text, const struct config_pool *pool,
	void *ret_value, char why[WHY_MAX])
{
	static const char *const names[] = {[CONFIG_REUSE_PROVEN] = "proven",
		[CONFIG_REUSE_WEAK] = "weak",
		[CONFIG_REUSE_NEVER] = "never"};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		if (strcmp(text, names[i]) != 0)
			continue;
		*(enum config_reuse *)ret_value = (enum config_reuse)i;
		return 0;
	}
	return refuse(why, "is none of proven, weak, never");
}

static int parse_teardown(const struct config_key *key, const char *text, const struct config_pool *pool,
	void *ret_value, char why[WHY_MAX])
{
	static const char *const names[] = {[CONFIG_TEARDOWN_AUTO] = "auto",
		[CONFIG_TEARDOWN_BPF] = "bpf",
		[CONFIG_TEARDOWN_PERF] = "perf",
		[CONFIG_TEARDOWN_PIDFD] = "pidfd",
		[CONFIG_TEARDOWN_OFF] = "off"};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		if (strcmp(text, names[i]) != 0)
			continue;
		*(enum config_teardown *)ret_value = (enum config_teardown)i;
		return 0;
	}
	return refuse(why, "is none of auto, bpf, perf, pidfd, off");
}

static int parse_verify(const struct config_key *key, const char *text, const struct config_pool *pool,
	void *ret_value, char why[WHY_MAX])
{
	static const char *const names[] = {[CONFIG_VERIFY_OFF] = "off",
		[CONFIG_VERIFY_SAMPLE] = "sample",
		[CONFIG_VERIFY_FULL] = "full"};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		if (strcmp(text, names[i]) != 0)
			continue;
		*(enum config_verify *)ret_value = (enum config_verify)i;
		return 0;
	}
	return refuse(why, "is none of off, sample, full");
}

static int parse_level(const struct config_key *key, const char *text, const struct config_pool *pool,
	void *ret_value, char why[WHY_MAX])
{
	if (log_find_level(text, ret_value) < 0)
		return refuse(why, "not one of error, warning, info, debug");
	return 0;
}

static int parse_bool(const struct config_key *key, const char *text, const struct config_pool *pool,
	void *ret_value, char why[WHY_MAX])
{
	static const char *const words[] = {"no", "yes", "off", "on", "false", "true", "0", "1"};

	for (size_t i = 0; i < ARRAY_SIZE(words); i++)
		if (strcasecmp(text, words[i]) == 0) {
			*(bool *)ret_value = i % 2;
			return 0;
		}
	return refuse(why, "neither yes nor no");
}

static bool is_number(const char *text)
{
	return *text && !text[strspn(text, "0123456789")];
}

static int parse_number(const char *text, uint64_t *ret_number)
{
	uint64_t number;

	if (!is_number(text))
		return -EINVAL;
	errno = 0;
	number = strtoull(text, NULL, 10);
	if (errno)
		return -ERANGE;
	*ret_number = number;
	return 0;
}

static int parse_node(const struct config_key *key, const char *text, const struct config_pool *pool,
	void *ret_value, char why[WHY_MAX])
{
	uint64_t node;

	if (parse_number(text, &node) < 0 || node >= NODES_MAX)
		return refuse(why, "not a NUMA node, 0 to %d", NODES_MAX - 1);
	*(int32_t *)ret_value = (int32_t)node;
	return 0;
}

static int parse_page_size(const struct config_key *key, const char *text, const struct config_pool *pool,
	void *ret_value, char why[WHY_MAX])
{
	uint64_t bytes;

	if (size_parse(text, &bytes) < 0)
		return refuse(why, "not a size, as 2M or 1G");
	if (bytes < SMALLEST_PAGE || bytes > (uint64_t)INT64_MAX || (bytes & (bytes - 1)))
		return refuse(why, "not the size of a huge page, as 2M or 1G");
	*(uint64_t *)ret_value = bytes;
	return 0;
}

/* A size to whole pages; a broken one is refused with the next whole size. */
static int parse_whole_pages(const char *text, uint64_t page_size, uint64_t *ret_pages, char why[WHY_MAX])
{
	char next[SIZE_TEXT], page[SIZE_TEXT];
	uint64_t bytes;

	if (size_parse(text, &bytes) < 0)
		return refuse(why, "`%.40s` is not a size, as 512M or 2G", text);
	if (bytes > (uint64_t)INT64_MAX - page_size)
		return refuse(why, "`%.40s` is more than any machine has", text);
	if (bytes % page_size)
		return refuse(why, "`%.40s` is not whole pages of %s, the next such size is %s", text,
			size_format_exact(page_size, page),
			size_format_exact(size_pages(bytes, page_size) * page_size, next));
	*ret_pages = bytes / page_size;
	return 0;
}

static int parse_pages(const struct config_key *key, const char *text, const struct config_pool *pool,
	void *ret_value, char why[WHY_MAX])
{
	uint64_t pages;

	if (!is_number(text))
		return parse_whole_pages(text, pool->page_size, ret_value, why);
	if (parse_number(text, &pages) < 0 || pages > (uint64_t)INT64_MAX / pool->page_size)
		return refuse(why, "more than any machine has");
	*(uint64_t *)ret_value = pages;
	return 0;
}

static int parse_max_pages(const struct config_key *key, const char *text, const struct config_pool *pool,
	void *ret_value, char why[WHY_MAX])
{
	uint64_t pages = pool->pages;
	int r = strcmp(text, "pages") == 0 ? 0 : parse_pages(key, text, pool, &pages, why);

	if (r < 0)
		return r;
	if (pages < pool->pages)
		return refuse(why, "%llu pages, less than the %llu of `pages`", (unsigned long long)pages,
			(unsigned long long)pool->pages);
	*(uint64_t *)ret_value = pages;
	return 0;
}

static int parse_min_pages(const struct config_key *key, const char *text, const struct config_pool *pool,
	void *ret_value, char why[WHY_MAX])
{
	uint64_t pages;
	int r = parse_pages(key, text, pool, &pages, why);

	if (r < 0)
		return r;
	if (pages > pool->pages)
		return refuse(why, "%llu pages, more than the %llu of `pages`", (unsigned long long)pages,
			(unsigned long long)pool->pages);
	*(uint64_t *)ret_value = pages;
	return 0;
}

static int parse_give_back(const struct config_key *key, const char *text, const struct config_pool *pool,
	void *ret_value, char why[WHY_MAX])
{
	bool is_pressure = strcmp(text, "pressure") == 0;

	if (!is_pressure && strcmp(text, "no") != 0)
		return refuse(why, "is none of no, pressure");
	*(enum config_give_back *)ret_value = is_pressure ? CONFIG_GIVE_BACK_PRESSURE : CONFIG_GIVE_BACK_NO;
	return 0;
}

static int parse_count(const char *text, uint64_t *ret_count, char why[WHY_MAX])
{
	uint64_t count = CONFIG_COUNT_REST;

	if (strcmp(text, "rest") != 0) {
		if (parse_number(text, &count) < 0 || !count)
			return refuse(why, "`%.40s` is not a count from 1 on or `rest`", text);
		if (count > (uint64_t)INT64_MAX) /* CONFIG_COUNT_REST among them */
			return refuse(why, "more pages than any machine has");
	}
	*ret_count = count;
	return 0;
}

/* One `SIZE*COUNT`, or `auto`. */
static int parse_stock_entry(
	char *entry, uint64_t page_size, struct config_stock *ret_stock, char why[WHY_MAX])
{
	char *star = strchr(entry, '*');
	uint64_t pages, count = 0;
	int r;

	if (strcmp(entry, "auto") == 0) {
		*ret_stock = (struct config_stock){page_size, CONFIG_COUNT_AUTO};
		return 0;
	}
	if (!star)
		return refuse(why, "`%.40s` is not SIZE*COUNT, as 2G*8 or 2M*rest, nor `auto`", entry);
	*star = 0;
	r = parse_whole_pages(entry, page_size, &pages, why);
	if (r == 0 && !pages)
		r = refuse(why, "a segment of no bytes");
	if (r == 0)
		r = parse_count(star + 1, &count, why);
	if (r < 0)
		return r;
	*ret_stock = (struct config_stock){pages * page_size, count};
	return 0;
}

/* What the others leave, whatever that is. */
static bool takes_rest(const struct config_stock *entry)
{
	return entry->count == CONFIG_COUNT_REST || entry->count == CONFIG_COUNT_AUTO;
}

static const char *get_rest_name(const struct config_stock *entry)
{
	return entry->count == CONFIG_COUNT_AUTO ? "auto" : "rest";
}

/* Adds one entry to those before it; *pages counts up. */
static int add_stock_entry(const struct config_stock *entry, const struct config_pool *pool,
	struct config_stock *stock, size_t count, uint64_t *pages, char why[WHY_MAX])
{
	char size[SIZE_TEXT];
	uint64_t more = entry->bytes / pool->page_size;

	for (size_t i = 0; i < count; i++) {
		if (takes_rest(&stock[i]) && takes_rest(entry))
			return refuse(why, "`%s` and `%s`: the rest can go to one of them",
				get_rest_name(&stock[i]), get_rest_name(entry));
		if (stock[i].bytes == entry->bytes && stock[i].count != CONFIG_COUNT_AUTO &&
			entry->count != CONFIG_COUNT_AUTO)
			return refuse(why, "%s stands there twice", size_format_exact(entry->bytes, size));
	}
	if (count == CONFIG_STOCK_MAX)
		return refuse(why, "more than %d sizes", CONFIG_STOCK_MAX);
	if (takes_rest(entry))
		more = 0;
	else if (__builtin_mul_overflow(more, entry->count, &more))
		more = UINT64_MAX;
	if (__builtin_add_overflow(*pages, more, pages))
		*pages = UINT64_MAX;
	stock[count] = *entry;
	return 0;
}

/* Fills the array only; take_auto() and count_stock() do the rest, because a parser knows one member. */
static int parse_stock(const struct config_key *key, const char *text, const struct config_pool *pool,
	void *ret_value, char why[WHY_MAX])
{
	struct config_stock stock[CONFIG_STOCK_MAX] = {0}, entry;
	char copy[VALUE_MAX], *rest = copy;
	uint64_t pages = 0;
	size_t count = 0;

	snprintf(copy, sizeof copy, "%s", strcmp(text, "mixed") == 0 ? "" : text);
	if (!*text)
		return refuse(why, "is empty: `auto`, `mixed`, or SIZE*COUNT as 2G*8");
	for (char *word; (word = strtok_r(rest, " \t", &rest)); count++) {
		int r = parse_stock_entry(word, pool->page_size, &entry, why);
		if (r == 0)
			r = add_stock_entry(&entry, pool, stock, count, &pages, why);
		if (r < 0)
			return r;
	}
	if (pages == UINT64_MAX)
		return refuse(why, "more pages than any machine has");
	if (pages > pool->pages)
		return refuse(why, "%llu pages, more than the %llu of `pages`", (unsigned long long)pages,
			(unsigned long long)pool->pages);
	memcpy(ret_value, stock, sizeof stock);
	return 0;
}

/* Takes the `auto` out from among the entries; whether there was one. */
static bool take_auto(struct config_stock *stock)
{
	for (size_t i = 0; i < CONFIG_STOCK_MAX; i++) {
		if (stock[i].count != CONFIG_COUNT_AUTO)
			continue;
		memmove(&stock[i], &stock[i + 1], (CONFIG_STOCK_MAX - i - 1) * sizeof *stock);
		stock[CONFIG_STOCK_MAX - 1] = (struct config_stock){0};
		return true;
	}
	return false;
}

static size_t count_stock(const struct config_stock *stock)
{
	size_t count = 0;

	while (count < CONFIG_STOCK_MAX && stock[count].bytes)
		count++;
	return count;
}

/* After parse_stock(). */
static void settle_stock(struct config_pool *pool)
{
	pool->is_learning = take_auto(pool->stock);
	pool->stock_count = count_stock(pool->stock);
}

static int parse_percent(const struct config_key *key, const char *text, const struct config_pool *pool,
	void *ret_value, char why[WHY_MAX])
{
	uint64_t number;

	if (parse_number(text, &number) < 0 || number > 100)
		return refuse(why, "not a percentage, 0 to 100");
	*(uint32_t *)ret_value = (uint32_t)number;
	return 0;
}

/* `90s`, `30m`, `24h`, `7d`: from a second to ten years. */
static int parse_duration(const struct config_key *key, const char *text, const struct config_pool *pool,
	void *ret_value, char why[WHY_MAX])
{
	static const struct {
		char unit;
		uint64_t seconds;
	} units[] = {{'s', 1}, {'m', 60}, {'h', 3600}, {'d', 86400}};
	char digits[16];
	uint64_t number, seconds = 0;
	size_t length = strlen(text);

	snprintf(digits, sizeof digits, "%.*s", (int)(length > 0 ? length - 1 : 0), text);
	for (size_t i = 0; length > 1 && length < sizeof digits && i < ARRAY_SIZE(units); i++) {
		if (text[length - 1] == units[i].unit && parse_number(digits, &number) == 0 &&
			number <= DURATION_MAX)
			seconds = number * units[i].seconds;
	}
	if (seconds < 1 || seconds > DURATION_MAX)
		return refuse(why, "not a time from 1s to 3650d, as 30m, 24h or 7d");
	*(uint64_t *)ret_value = seconds * NS_PER_S;
	return 0;
}

static int parse_grace(const struct config_key *key, const char *text, const struct config_pool *pool,
	void *ret_value, char why[WHY_MAX])
{
	uint64_t grace_ns;
	if (parse_duration(key, text, pool, &grace_ns, why) != 0 || grace_ns > GRACE_MOST_S * NS_PER_S)
		return refuse(why, "not a time from 1s to 1h, as 10s or 2m");
	*(uint64_t *)ret_value = grace_ns;
	return 0;
}

/* ---- parsers of access ---- */

/* Read and write bits: execute means nothing to a socket, and without write nobody connects. */
static int parse_socket_mode(const struct config_key *key, const char *text, const struct config_pool *pool,
	void *ret_value, char why[WHY_MAX])
{
	char *end;
	unsigned long mode = strtoul(text, &end, 8);

	if (*text < '0' || *text > '7' || *end || mode & ~0666ul)
		return refuse(why, "not a mode of read and write bits, as 0660");
	if ((mode & 0600) != 0600)
		return refuse(why, "its owner must be able to read and write");
	*(uint32_t *)ret_value = (uint32_t)mode;
	return 0;
}

/* UINT32_MAX is nobody's number: chown and setresuid take it for "leave it". */
static int parse_id(const char *word, uint32_t *ret_id)
{
	uint64_t number;

	if (!is_number(word))
		return -ENOENT;
	if (parse_number(word, &number) < 0 || number >= UINT32_MAX)
		return -ERANGE;
	*ret_id = (uint32_t)number;
	return 0;
}

static int find_user(const char *word, uint32_t *ret_id)
{
	uint32_t group;
	int r = parse_id(word, ret_id);

	return r == -ENOENT ? names_find_user(word, NAMES_ANYWHERE, ret_id, &group) : r;
}

int config_find_group(const char *word, uint32_t *ret_id)
{
	int r = parse_id(word, ret_id);

	return r == -ENOENT ? names_find_group(word, NAMES_ANYWHERE, ret_id) : r;
}

static int parse_ids(const char *text, const char *what, int (*find)(const char *word, uint32_t *ret_id),
	struct config_ids *ret_ids, char why[WHY_MAX])
{
	struct config_ids ids = {.count = 0};
	char copy[VALUE_MAX], *rest = copy;

	snprintf(copy, sizeof copy, "%s", text);
	for (char *word; (word = strtok_r(rest, " \t", &rest));) {
		if (strcmp(word, "*") == 0) {
			ids.is_all = true;
			continue;
		}
		if (ids.count == CONFIG_IDS_MAX)
			return refuse(why, "more than %d %ss", CONFIG_IDS_MAX, what);
		int r = find(word, &ids.ids[ids.count]);
		if (r == -ERANGE)
			return refuse(why, "`%.40s` is more than any %s's number", word, what);
		if (r < 0)
			return refuse(why, "there is no %s `%.40s`", what, word);
		ids.count++;
	}
	*ret_ids = ids;
	return 0;
}

static int parse_users(const struct config_key *key, const char *text, const struct config_pool *pool,
	void *ret_value, char why[WHY_MAX])
{
	return parse_ids(text, "user", find_user, ret_value, why);
}

static int parse_groups(const struct config_key *key, const char *text, const struct config_pool *pool,
	void *ret_value, char why[WHY_MAX])
{
	if (strchr(text, '*'))
		return refuse(why, "`*` stands for all users and belongs to `users`");
	return parse_ids(text, "group", config_find_group, ret_value, why);
}

static int parse_allow(const struct config_key *key, const char *text, const struct config_pool *pool,
	void *ret_value, char why[WHY_MAX])
{
	static const char *const names[] = {"status", "lease", "admin"};
	char copy[VALUE_MAX], *rest = copy;
	unsigned allow = 0;

	snprintf(copy, sizeof copy, "%s", strcmp(text, "none") == 0 ? "" : text);
	if (!*text)
		return refuse(why, "is empty: some of status, lease and admin, or none");
	for (char *word; (word = strtok_r(rest, " \t", &rest));) {
		size_t i = 0;
		while (i < ARRAY_SIZE(names) && strcmp(word, names[i]) != 0)
			i++;
		if (i == ARRAY_SIZE(names))
			return refuse(why, "`%.40s` is none of status, lease, admin", word);
		allow |= 1u << i;
	}
	*(unsigned *)ret_value = allow;
	return 0;
}

static int parse_limit(const struct config_key *key, const char *text, const struct config_pool *pool,
	void *ret_value, char why[WHY_MAX])
{
	uint64_t limit = CONFIG_NO_LIMIT;

	if (strcmp(text, "none") != 0 && (parse_number(text, &limit) < 0 || limit > (uint64_t)INT64_MAX))
		return refuse(why, "neither a number nor `none`");
	*(uint64_t *)ret_value = limit;
	return 0;
}

static int parse_limit_bytes(const struct config_key *key, const char *text, const struct config_pool *pool,
	void *ret_value, char why[WHY_MAX])
{
	uint64_t limit = CONFIG_NO_LIMIT;

	if (strcmp(text, "none") != 0 && (size_parse(text, &limit) < 0 || limit > (uint64_t)INT64_MAX))
		return refuse(why, "neither a size, as 64G, nor `none`");
	*(uint64_t *)ret_value = limit;
	return 0;
}

static int parse_priority(const struct config_key *key, const char *text, const struct config_pool *pool,
	void *ret_value, char why[WHY_MAX])
{
	uint64_t number;

	if (parse_number(text, &number) < 0 || number > CONFIG_PRIORITY_MAX)
		return refuse(why, "not a number from 0 to %d", CONFIG_PRIORITY_MAX);
	*(uint32_t *)ret_value = (uint32_t)number;
	return 0;
}

/* ---- parsers of clear ---- */

static int parse_workers(const struct config_key *key, const char *text, const struct config_pool *pool,
	void *ret_value, char why[WHY_MAX])
{
	uint64_t number = 0;

	if (strcmp(text, "auto") != 0 &&
		(parse_number(text, &number) < 0 || number < 1 || number > CONFIG_WORKERS_MAX))
		return refuse(why, "neither `auto` nor a number from 1 to %d", CONFIG_WORKERS_MAX);
	*(uint32_t *)ret_value = (uint32_t)number;
	return 0;
}

static int parse_rate(const struct config_key *key, const char *text, const struct config_pool *pool,
	void *ret_value, char why[WHY_MAX])
{
	uint64_t rate = 0;

	if (strcmp(text, "none") != 0 &&
		(size_parse(text, &rate) < 0 || rate < CONFIG_RATE_MIN || rate > (uint64_t)INT64_MAX))
		return refuse(why, "neither bytes a second from 1M on, as 2G, nor `none`");
	*(uint64_t *)ret_value = rate;
	return 0;
}

static int parse_cpus(const struct config_key *key, const char *text, const struct config_pool *pool,
	void *ret_value, char why[WHY_MAX])
{
	struct host_cpus cpus;

	if (strlen(text) >= key->size)
		return refuse(why, "longer than %zu bytes", key->size - 1);
	if (strcmp(text, "all") != 0 && (host_parse_cpulist(text, &cpus) < 0 || host_count_cpus(&cpus) == 0))
		return refuse(why, "neither `all` nor a list of CPUs, as 0-3,8");
	strcpy(ret_value, text);
	return 0;
}

static int parse_kernel_zeroing(const struct config_key *key, const char *text,
	const struct config_pool *pool, void *ret_value, char why[WHY_MAX])
{
	if (strcmp(text, "auto") != 0 && strcmp(text, "no") != 0)
		return refuse(why, "neither auto nor no");
	*(bool *)ret_value = strcmp(text, "auto") == 0;
	return 0;
}

/* `none`, or above which share of time work pauses and below which it goes on. */
static int parse_psi(const struct config_key *key, const char *text, const struct config_pool *pool,
	void *ret_value, char why[WHY_MAX])
{
	struct config_psi psi = {false, 0, 0};
	char copy[VALUE_MAX], *rest = copy;

	snprintf(copy, sizeof copy, "%s", text);
	if (strcmp(text, "none") != 0) {
		const char *pause = strtok_r(rest, " \t", &rest), *resume = strtok_r(rest, " \t", &rest);
		if (!pause || !resume || strtok_r(rest, " \t", &rest))
			return refuse(why, "neither `none` nor two percentages, PAUSE and RESUME, as 40 20");
		if (parse_percent(key, pause, pool, &psi.pause_percent, why) < 0 ||
			parse_percent(key, resume, pool, &psi.resume_percent, why) < 0)
			return refuse(why, "PAUSE and RESUME are percentages, 0 to 100");
		if (psi.resume_percent > psi.pause_percent)
			return refuse(why, "RESUME is above PAUSE");
		psi.is_on = true;
	}
	*(struct config_psi *)ret_value = psi;
	return 0;
}

/* ---- parsers of libvirt ---- */

#define DEADLINE_LEAST_MS 100
#define DEADLINE_MOST_MS  60000

static int parse_failure(const struct config_key *key, const char *text, const struct config_pool *pool,
	void *ret_value, char why[WHY_MAX])
{
	bool is_refuse = strcmp(text, "refuse") == 0;

	if (!is_refuse && strcmp(text, "fallback") != 0)
		return refuse(why, "is none of fallback, refuse");
	*(enum config_failure *)ret_value = is_refuse ? CONFIG_FAILURE_REFUSE : CONFIG_FAILURE_FALLBACK;
	return 0;
}

/* `2s` or `500ms`. */
static int parse_deadline(const struct config_key *key, const char *text, const struct config_pool *pool,
	void *ret_value, char why[WHY_MAX])
{
	size_t length = strspn(text, "0123456789");
	bool is_ms = strcmp(text + length, "ms") == 0;
	char digits[8];
	uint64_t number = 0;

	snprintf(digits, sizeof digits, "%.*s", (int)MIN(length, sizeof digits - 1), text);
	if ((!is_ms && strcmp(text + length, "s") != 0) || length >= sizeof digits ||
		parse_number(digits, &number) < 0 || number * (is_ms ? 1 : 1000) < DEADLINE_LEAST_MS ||
		number * (is_ms ? 1 : 1000) > DEADLINE_MOST_MS)
		return refuse(why, "not a time from 100ms to 60s, as 500ms or 2s");
	*(uint32_t *)ret_value = (uint32_t)(number * (is_ms ? 1 : 1000));
	return 0;
}

/* The socket's. A name is looked up when the socket is made: who only reads the file need not know it. */
static int parse_socket_group(const struct config_key *key, const char *text, const struct config_pool *pool,
	void *ret_value, char why[WHY_MAX])
{
	uint32_t id;

	if (parse_id(text, &id) == -ERANGE)
		return refuse(why, "more than any group's number");
	return parse_text(key, text, pool, ret_value, why);
}

/* `auto`, or USER[:GROUP]; a user's name alone brings its group along. */
static int parse_owner(const struct config_key *key, const char *text, const struct config_pool *pool,
	void *ret_value, char why[WHY_MAX])
{
	struct config_owner owner = {.is_set = strcmp(text, "auto") != 0};
	char copy[VALUE_MAX], *group = copy;

	snprintf(copy, sizeof copy, "%s", text);
	const char *user = strsep(&group, ":");
	if (owner.is_set && find_user(user, &owner.uid) < 0)
		return refuse(why, "neither `auto` nor USER or USER:GROUP of this machine");
	if (owner.is_set && !group && names_find_group_of(owner.uid, NAMES_ANYWHERE, &owner.gid) < 0)
		return refuse(why, "a number without a name needs its group, as 1000:1000");
	if (group && config_find_group(group, &owner.gid) < 0)
		return refuse(why, "there is no group `%.40s`", group);
	*(struct config_owner *)ret_value = owner;
	return 0;
}

/* ---- parsers of qemu ---- */

static int parse_wait(const struct config_key *key, const char *text, const struct config_pool *pool,
	void *ret_value, char why[WHY_MAX])
{
	uint64_t wait_ns = 0;

	if (strcmp(text, "no") != 0 && (parse_duration(key, text, pool, &wait_ns, why) < 0 ||
					       wait_ns > CONFIG_WAIT_MAX_S * NS_PER_S))
		return refuse(why, "neither `no` nor a time up to 1h, as 10s or 2m");
	*(uint64_t *)ret_value = wait_ns;
	return 0;
}

/* ---- the table ---- */

#define MEMBER(type, name)  offsetof(struct type, name), sizeof(((struct type *)NULL)->name)
#define LINE_OF(type, name) offsetof(struct type, name##_line)
#define DEFAULT(text)       text, false
#define EXAMPLE(text)       text, true

static const struct config_key config_keys[] = {
	{"hpzd", "socket", parse_path, MEMBER(config, socket), LINE_OF(config, socket),
		DEFAULT("/run/hpz/hpzd.sock"), "where clients connect"},
	{"hpzd", "socket_group", parse_socket_group, MEMBER(config, socket_group),
		LINE_OF(config, socket_group), DEFAULT(""),
		"group of the socket, by name or number: who may connect at all; empty: root's"},
	{"hpzd", "socket_mode", parse_socket_mode, MEMBER(config, socket_mode), 0, DEFAULT("0660"),
		"mode of the socket; 0666 lets everybody connect, and the access sections decide"},
	{"hpzd", "run_dir", parse_path, MEMBER(config, run_dir), LINE_OF(config, run_dir),
		DEFAULT("/run/hpz"), "directory of the journal; should be on tmpfs"},
	{"hpzd", "log_level", parse_level, MEMBER(config, log_level), 0, DEFAULT("info"),
		"error, warning, info or debug"},
	{"hpzd", "teardown", parse_teardown, MEMBER(config, teardown), 0, DEFAULT("auto"),
		"how the end of a VM is measured: auto (the best that works here), bpf, perf, pidfd or off"},
	{"hpzd", "grace", parse_grace, MEMBER(config, grace_ns), 0, DEFAULT("10s"),
		"how long nobody has a path lease open before it ends, as 10s or 2m"},
	{"clear", "method", parse_word, MEMBER(config, clear.method), LINE_OF(config, method),
		DEFAULT("auto"),
		"how memory is cleared: auto (measured at start), or one of the methods in hpzd.conf(5)"},
	{"clear", "enabled", parse_bool, MEMBER(config, clear.is_enabled), 0, DEFAULT("yes"),
		"no: nothing is cleared or filled, not even for who waits"},
	{"clear", "workers", parse_workers, MEMBER(config, clear.workers), 0, DEFAULT("auto"),
		"processes that clear and fill, for each node; auto: one a CPU, at most 4"},
	{"clear", "cpus", parse_cpus, MEMBER(config, clear.cpus), LINE_OF(config, cpus), DEFAULT("all"),
		"CPUs they run on, as 0-3,8; of these, those of their node"},
	{"clear", "rate", parse_rate, MEMBER(config, clear.rate_bytes_per_s), 0, DEFAULT("none"),
		"the most they touch in a second on each node, as 2G"},
	{"clear", "psi_cpu", parse_psi, MEMBER(config, clear.psi_cpu), 0, DEFAULT("none"),
		"pause when others wait for a CPU more than PAUSE percent of the time, go on below RESUME, "
		"as 40 20"},
	{"clear", "psi_memory", parse_psi, MEMBER(config, clear.psi_memory), 0, DEFAULT("none"),
		"the same for waiting for memory"},
	{"clear", "scavenger", parse_bool, MEMBER(config, clear.is_scavenger), 0, DEFAULT("yes"),
		"whether to back off when somebody else needs the memory bus"},
	{"clear", "low", parse_percent, MEMBER(config, clear.low_percent), 0, DEFAULT("50"),
		"percent of a pool's pages that are clean, below which it is refilled with some force"},
	{"clear", "high", parse_percent, MEMBER(config, clear.high_percent), LINE_OF(config, high),
		DEFAULT("75"), "percent of a pool's pages that are clean, from which on idle time will do"},
	{"clear", "kernel_zeroing", parse_kernel_zeroing, MEMBER(config, clear.is_kernel_zeroing), 0,
		DEFAULT("auto"),
		"auto: have the kernel zero free pages beforehand where it can (zeroable_hugepages); no"},
	{"clear", "reshape", parse_percent, MEMBER(config, clear.reshape_percent), 0, DEFAULT("10"),
		"percent of clean memory: the most that a stock which learns has rebuilt at once"},
	{"pool", "page_size", parse_page_size, MEMBER(config_pool, page_size),
		LINE_OF(config_pool, page_size), EXAMPLE("2M"), "size of the huge pages"},
	{"pool", "node", parse_node, MEMBER(config_pool, node), LINE_OF(config_pool, node), DEFAULT("0"),
		"NUMA node"},
	{"pool", "pages", parse_pages, MEMBER(config_pool, pages), 0, EXAMPLE("512"),
		"how much to keep: a number of pages, or a size as 1G"},
	{"pool", "max_pages", parse_max_pages, MEMBER(config_pool, max_pages), 0, DEFAULT("pages"),
		"the most the pool may ever hold, in pages or as a size; pages: no more than that"},
	{"pool", "mount", parse_mount, MEMBER(config_pool, mount), LINE_OF(config_pool, mount),
		DEFAULT("auto"), "hugetlbfs mount point; auto: hpzd mounts one"},
	{"pool", "raise", parse_bool, MEMBER(config_pool, raise), 0, DEFAULT("yes"),
		"whether hpzd may raise nr_hugepages to get the pages"},
	{"pool", "give_back", parse_give_back, MEMBER(config_pool, give_back), 0, DEFAULT("no"),
		"pressure: while others wait for memory, give up what nr_hugepages was raised by, in steps; "
		"no"},
	{"pool", "min_pages", parse_min_pages, MEMBER(config_pool, min_pages), 0, DEFAULT("0"),
		"the least that give_back leaves, in pages or as a size"},
	{"pool", "reuse", parse_reuse, MEMBER(config_pool, reuse), 0, DEFAULT("proven"),
		"when returned memory is handed out again: proven, weak or never"},
	{"pool", "verify", parse_verify, MEMBER(config_pool, verify), 0, DEFAULT("off"),
		"what is read again before memory is handed out, to see that it is zero: off, sample or "
		"full"},
	{"pool", "stock", parse_stock, MEMBER(config_pool, stock), LINE_OF(config_pool, stock),
		DEFAULT("auto"),
		"segments to keep ready, SIZE*COUNT, as 2G*8 512M*16 2M*rest; auto: learned from what is "
		"asked for, also beside others, as 2G*4 auto; mixed: half, 64M pieces, single pages"},
	{"pool", "stock_share", parse_percent, MEMBER(config_pool, stock_share), 0, DEFAULT("80"),
		"percent of the pool that stock = auto may divide as it has learned; the rest stays mixed"},
	{"pool", "stock_half_life", parse_duration, MEMBER(config_pool, stock_half_life_ns), 0,
		DEFAULT("24h"),
		"after which time a request that was not repeated counts half, as 30m, 24h or 7d"},
	{"access", "users", parse_users, MEMBER(config_access, users), 0, DEFAULT(""),
		"users it is for, by name or number; *: all that no other section names"},
	{"access", "groups", parse_groups, MEMBER(config_access, groups), 0, DEFAULT(""),
		"groups it is for, by name or number"},
	{"access", "allow", parse_allow, MEMBER(config_access, allow), 0, EXAMPLE("status lease"),
		"what they may do: some of status, lease and admin, or none"},
	{"access", "quota_bytes", parse_limit_bytes, MEMBER(config_access, quota_bytes), 0, DEFAULT("none"),
		"the most memory each of these users may have leased, as a size"},
	{"access", "quota_leases", parse_limit, MEMBER(config_access, quota_leases), 0, DEFAULT("none"),
		"the most leases each of these users may have"},
	{"access", "max_connections", parse_limit, MEMBER(config_access, max_connections), 0, DEFAULT("none"),
		"the most connections each of these users may have"},
	{"access", "max_requests", parse_limit, MEMBER(config_access, max_requests), 0, DEFAULT("none"),
		"the most requests of each of these users that may wait at once"},
	{"access", "max_priority", parse_priority, MEMBER(config_access, max_priority), 0, DEFAULT("0"),
		"the highest priority they may give to a request that waits, up to 1000"},
	{"libvirt", "enabled", parse_bool, MEMBER(config, libvirt.is_enabled), 0, DEFAULT("yes"),
		"no: no domain gets memory of a pool"},
	{"libvirt", "on_failure", parse_failure, MEMBER(config, libvirt.on_failure), 0, DEFAULT("fallback"),
		"a domain whose memory cannot come from a pool: fallback (it starts with other memory) or "
		"refuse"},
	{"libvirt", "deadline", parse_deadline, MEMBER(config, libvirt.deadline_ms), 0, DEFAULT("2s"),
		"the longest the hook holds up a start, as 500ms or 2s"},
	{"libvirt", "memory_backing_dir", parse_mount, MEMBER(config, libvirt.memory_backing_dir), 0,
		DEFAULT("auto"), "what it is in libvirt's qemu.conf; auto: look there"},
	{"libvirt", "user", parse_owner, MEMBER(config, libvirt.user), 0, DEFAULT("auto"),
		"USER or USER:GROUP that QEMU runs as; auto: the domain says it"},
	{"qemu", "emulator", parse_mount, MEMBER(config, qemu.emulator), 0, DEFAULT("auto"),
		"the QEMU that hpz-qemu becomes; auto: by the name it is called by"},
	{"qemu", "on_failure", parse_failure, MEMBER(config, qemu.on_failure), 0, DEFAULT("fallback"),
		"without memory from hpzd: fallback, the guest starts as if without hpz; or refuse"},
	{"qemu", "wait", parse_wait, MEMBER(config, qemu.wait_ns), 0, DEFAULT("no"),
		"how long to wait for clean memory, as 10s; no"},
	{"qemu", "ram", parse_bool, MEMBER(config, qemu.is_for_ram), 0, DEFAULT("no"),
		"whether guests that do not ask for huge pages get leased memory, too"},
};
_Static_assert(ARRAY_SIZE(config_keys) <= KEYS_MAX, "struct reader has a place for each");

static const struct config_section {
	const char *name;
	bool has_name;
} config_sections[] = {
	{"hpzd", false},
	{"clear", false},
	{"pool", true},
	{"access", true},
	{"libvirt", false},
	{"qemu", false},
};

void config_write_reference(FILE *out)
{
	for (size_t i = 0; i < ARRAY_SIZE(config_keys); i++) {
		const struct config_key *key = &config_keys[i];
		fprintf(out, "%s\t%s\t%s\t%s\t%s\n", key->section, key->name, key->fallback,
			key->is_required ? "required" : "optional", key->help);
	}
}

/* ---- the reader ---- */

struct reader {
	FILE *file;
	char *line; /* getline's */
	size_t line_capacity;
	unsigned number;
	struct config *config;
	const struct config_section *section; /* NULL above the first */
	unsigned section_line;
	struct config_pool *pool;     /* NULL outside of one */
	struct config_access *access; /* the same */
	unsigned seen[ARRAY_SIZE(config_sections)];
	struct {
		char text[VALUE_MAX];
		unsigned line;
	} given[KEYS_MAX]; /* of this section, by row of the table */
	int status;        /* negative once something is wrong */
	unsigned error_line;
	char *error;
	size_t error_capacity;
};

static void cleanup_reader(struct reader *reader)
{
	cleanup_file(&reader->file);
	free(reader->line);
}

/* Keeps the first error of the file only; returns -EINVAL. */
static PRINTF(3, 4) int fail(struct reader *reader, unsigned line, const char *format, ...)
{
	int n;
	va_list args;

	if (reader->status < 0 && line >= reader->error_line)
		return -EINVAL;
	n = snprintf(reader->error, reader->error_capacity, "%s:%u: ", reader->config->path, line);
	va_start(args, format);
	if (n >= 0 && (size_t)n < reader->error_capacity)
		vsnprintf(reader->error + n, reader->error_capacity - (size_t)n, format, args);
	va_end(args);
	reader->error_line = line;
	return reader->status = -EINVAL;
}

static size_t min3(size_t a, size_t b, size_t c)
{
	return MIN(a, MIN(b, c));
}

/* Levenshtein's distance; words of this file are short. */
static size_t get_distance(const char *a, const char *b)
{
	size_t row[64], columns = strlen(b);

	if (columns >= ARRAY_SIZE(row))
		return SIZE_MAX;
	for (size_t j = 0; j <= columns; j++)
		row[j] = j;
	for (size_t i = 1; a[i - 1]; i++) {
		size_t diagonal = row[0];
		row[0] = i;
		for (size_t j = 1; j <= columns; j++) {
			size_t above = row[j];
			row[j] = min3(row[j] + 1, row[j - 1] + 1, diagonal + (a[i - 1] != b[j - 1]));
			diagonal = above;
		}
	}
	return row[columns];
}

/* Whether `candidate` is so near to what was written that it may be meant, and nearer than any before. */
static bool is_nearer(const char *written, const char *candidate, size_t *best)
{
	size_t distance = get_distance(written, candidate);

	if (distance >= *best || distance > 1 + strlen(candidate) / 3)
		return false;
	*best = distance;
	return true;
}

static int fail_section(struct reader *reader, const char *word)
{
	const char *nearest = NULL;
	size_t best = SIZE_MAX;

	for (size_t i = 0; i < ARRAY_SIZE(config_sections); i++)
		if (is_nearer(word, config_sections[i].name, &best))
			nearest = config_sections[i].name;
	if (nearest)
		return fail(
			reader, reader->number, "unknown section [%.60s], did you mean [%s]?", word, nearest);
	return fail(reader, reader->number,
		"unknown section [%.60s], there are [hpzd], [clear], [libvirt], [qemu], [pool NAME] and "
		"[access NAME]",
		word);
}

static int fail_key(struct reader *reader, const char *name)
{
	char known[512] = "";
	const char *nearest = NULL;
	size_t best = SIZE_MAX, length = 0;

	for (size_t i = 0; i < ARRAY_SIZE(config_keys); i++) {
		if (strcmp(config_keys[i].section, reader->section->name) != 0)
			continue;
		if (is_nearer(name, config_keys[i].name, &best))
			nearest = config_keys[i].name;
		length += (size_t)snprintf(known + length, sizeof known - length, "%s%s", length ? ", " : "",
			config_keys[i].name);
	}
	if (nearest)
		return fail(reader, reader->number, "unknown key `%s` in [%s], did you mean `%s`?", name,
			reader->section->name, nearest);
	return fail(reader, reader->number, "unknown key `%s` in [%s], which has %s", name,
		reader->section->name, known);
}

/* ---- sections ---- */

/* What the section's keys are members of. */
static char *get_base(const struct reader *reader)
{
	if (reader->pool)
		return (char *)reader->pool;
	return reader->access ? (char *)reader->access : (char *)reader->config;
}

static int apply_key(struct reader *reader, size_t row)
{
	const struct config_key *key = &config_keys[row];
	unsigned line = reader->given[row].line;
	char *base = get_base(reader);
	const char *text = line ? reader->given[row].text : key->fallback;
	char why[WHY_MAX];

	if (!line && key->is_required && reader->section->has_name)
		return fail(reader, reader->section_line, "[%s %s] has no %s, which it needs, as `%s = %s`",
			reader->section->name, reader->pool ? reader->pool->name : reader->access->name,
			key->name, key->name, key->fallback);
	if (key->parse(key, text, reader->pool, base + key->offset, why) < 0)
		return fail(reader, line ? line : reader->section_line, "%s = %s, %s%s", key->name, text, why,
			strstr(text, " #") ? " (a comment behind a value begins with `;`)" : "");
	if (key->line_offset)
		*(unsigned *)(void *)(base + key->line_offset) = line;
	return 0;
}

static int check_pool(struct reader *reader)
{
	struct config_pool *pool = reader->pool;

	settle_stock(pool);
	for (struct config_pool *other = reader->config->pools; other < pool; other++) {
		if (other->page_size == pool->page_size && other->node == pool->node)
			return fail(reader, pool->line,
				"[pool %s] has the node and page size of [pool %s] in line %u, and a pool is "
				"all "
				"pages of one node and size",
				pool->name, other->name, other->line);
		if (other->page_size != pool->page_size && strcmp(pool->mount, "auto") != 0 &&
			strcmp(other->mount, pool->mount) == 0)
			return fail(reader, pool->mount_line,
				"mount = %s, [pool %s] in line %u has it with another page size, and a mount "
				"has one",
				pool->mount, other->name, other->line);
	}
	reader->config->pool_count++;
	return 0;
}

static int check_clear(const struct config_clear *clear, char why[WHY_MAX])
{
	if (clear->low_percent > clear->high_percent)
		return refuse(why, "`low` is %u and above `high`, which is %u", clear->low_percent,
			clear->high_percent);
	return 0;
}

/* Values and defaults of the section that ends here. */
static int finish_section(struct reader *reader)
{
	if (!reader->section)
		return 0;
	for (size_t i = 0; i < ARRAY_SIZE(config_keys); i++) {
		int r;
		if (strcmp(config_keys[i].section, reader->section->name) != 0)
			continue;
		r = apply_key(reader, i);
		if (r < 0)
			return r;
	}
	char why[WHY_MAX];
	if (check_clear(&reader->config->clear, why) < 0)
		return fail(reader,
			reader->config->high_line ? reader->config->high_line : reader->section_line,
			"[clear] %s", why);
	if (reader->access)
		reader->config->access_count++;
	return reader->pool ? check_pool(reader) : 0;
}

/* Of the sections that have one. */
static int check_name(struct reader *reader, const char *name)
{
	const char *word = reader->section->name;
	size_t most = sizeof reader->config->pools[0].name - 1;

	_Static_assert(sizeof reader->config->pools[0].name == sizeof reader->config->access[0].name,
		"one rule for both");
	if (name[strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-")])
		return fail(reader, reader->number, "[%s %.60s], a name is made of A-Z a-z 0-9 _ . -", word,
			name);
	if (strlen(name) > most)
		return fail(reader, reader->number, "[%s %.20s...], the name is longer than %zu bytes", word,
			name, most);
	return 0;
}

static int begin_access(struct reader *reader, const char *name)
{
	struct config *config = reader->config;

	for (size_t i = 0; i < config->access_count; i++)
		if (strcmp(config->access[i].name, name) == 0)
			return fail(reader, reader->number,
				"[access %s] for the second time, first in line %u", name,
				config->access[i].line);
	if (config->access_count == CONFIG_ACCESS_MAX)
		return fail(reader, reader->number, "[access %s], more than %d access sections", name,
			CONFIG_ACCESS_MAX);
	reader->access = &config->access[config->access_count];
	strcpy(reader->access->name, name);
	reader->access->line = reader->number;
	return 0;
}

static int begin_pool(struct reader *reader, const char *name)
{
	struct config *config = reader->config;

	for (size_t i = 0; i < config->pool_count; i++)
		if (strcmp(config->pools[i].name, name) == 0)
			return fail(reader, reader->number, "[pool %s] for the second time, first in line %u",
				name, config->pools[i].line);
	if (config->pool_count == CONFIG_POOLS_MAX)
		return fail(reader, reader->number, "[pool %s], more than %d pools", name, CONFIG_POOLS_MAX);
	reader->pool = &config->pools[config->pool_count];
	strcpy(reader->pool->name, name);
	reader->pool->line = reader->number;
	return 0;
}

static int begin_named(struct reader *reader, const char *name)
{
	const char *word = reader->section->name;

	if (!*name)
		return fail(reader, reader->number, "[%s] needs a name, as [%s main]", word, word);
	if (check_name(reader, name) < 0)
		return -EINVAL;
	return strcmp(word, "pool") == 0 ? begin_pool(reader, name) : begin_access(reader, name);
}

static int begin_section(struct reader *reader, const char *word, const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(config_sections); i++) {
		const struct config_section *section = &config_sections[i];
		if (strcmp(section->name, word) != 0)
			continue;
		reader->section = section;
		reader->section_line = reader->number;
		reader->pool = NULL;
		reader->access = NULL;
		memset(reader->given, 0, sizeof reader->given);
		if (section->has_name)
			return begin_named(reader, name);
		if (*name)
			return fail(
				reader, reader->number, "[%s %.60s], this section has no name", word, name);
		if (reader->seen[i])
			return fail(reader, reader->number, "[%s] for the second time, first in line %u",
				word, reader->seen[i]);
		reader->seen[i] = reader->number;
		return 0;
	}
	return fail_section(reader, word);
}

/* `line` begins with '['. Splits a copy of "[word name]". */
static int read_header(struct reader *reader, const char *line)
{
	char copy[VALUE_MAX];
	char *end, *word = copy, *name;
	int r = finish_section(reader);

	if (r < 0)
		return r;
	snprintf(copy, sizeof copy, "%s", line + 1);
	end = strchr(copy, ']');
	if (!end)
		return fail(reader, reader->number, "a section without its `]`");
	*end++ = 0;
	end += strspn(end, " \t\r");
	if (*end && *end != ';' && *end != '#')
		return fail(reader, reader->number,
			"`%.40s` behind a section's `]`, only a comment may stand there", end);
	name = word + strcspn(word, " \t");
	if (*name)
		*name++ = 0;
	name += strspn(name, " \t");
	return begin_section(reader, word, name);
}

/* ---- lines ---- */

/* What inih would cut, glue together or misread. */
static int check_line(struct reader *reader, const char *line, size_t length, size_t most)
{
	for (size_t i = 0; i < length; i++) {
		unsigned char c = (unsigned char)line[i];
		bool is_end = c == '\r' && i + 1 == length;
		if ((c < 0x20 && c != '\t' && !is_end) || c == 0x7f)
			return fail(reader, reader->number, "byte 0x%02x, this is no text file", c);
	}
	if (length > most)
		return fail(reader, reader->number, "%zu bytes, a line has at most %zu", length, most);
	if (*line == ' ' || *line == '\t') {
		const char *first = line + strspn(line, " \t\r");
		if (*first && *first != ';' && *first != '#')
			return fail(reader, reader->number,
				"begins with a space, a line cannot go on in the next");
	}
	return 0;
}

/* inih's fgets. NULL ends the file, also because of an error. */
static char *read_next(char *buffer, int size, void *stream)
{
	struct reader *reader = stream;
	char *line;
	ssize_t n;

	if (reader->status < 0)
		return NULL;
	errno = 0;
	n = getline(&reader->line, &reader->line_capacity, reader->file);
	if (n < 0) {
		if (!feof(reader->file))
			reader->status = errno ? -errno : -EIO;
		return NULL;
	}
	reader->number++;
	line = reader->line;
	if (line[n - 1] == '\n')
		line[--n] = 0;
	if (reader->number == 1 && strncmp(line, "\xef\xbb\xbf", 3) == 0) {
		line += 3;
		n -= 3;
	}
	/* inih wants room for CR, LF and NUL. */
	if (check_line(reader, line, (size_t)n, (size_t)size - 3) < 0)
		return NULL;
	if (*line == '[' && read_header(reader, line) < 0)
		return NULL;
	snprintf(buffer, (size_t)size, "%s\n", line);
	return buffer;
}

/* 1: go on; 0: inih reports the line. */
static int take_value(void *user, const char *section, const char *name, const char *value)
{
	struct reader *reader = user;

	if (!reader->section) {
		fail(reader, reader->number, "`%s` above the first section", name);
		return 0;
	}
	for (size_t i = 0; i < ARRAY_SIZE(config_keys); i++) {
		if (strcmp(config_keys[i].section, reader->section->name) != 0 ||
			strcmp(config_keys[i].name, name) != 0)
			continue;
		if (reader->given[i].line) {
			fail(reader, reader->number, "`%s` for the second time, first in line %u", name,
				reader->given[i].line);
			return 0;
		}
		reader->given[i].line = reader->number;
		snprintf(reader->given[i].text, sizeof reader->given[i].text, "%s", value);
		return 1;
	}
	fail_key(reader, name);
	return 0;
}

/* ---- the file ---- */

static int set_defaults(struct reader *reader)
{
	for (size_t i = 0; i < ARRAY_SIZE(config_sections); i++) {
		int r;
		if (config_sections[i].has_name)
			continue;
		reader->section = &config_sections[i];
		r = finish_section(reader);
		if (r < 0)
			return r;
	}
	reader->section = NULL;
	return 0;
}

static int read_file(struct reader *reader)
{
	int r = ini_parse_stream(read_next, reader, take_value, reader);

	/* inih goes on after a line it does not understand: it may be above the one we stopped at. */
	if (r > 0)
		fail(reader, (unsigned)r, "neither [section] nor `key = value` nor a comment");
	else if (r < 0 && reader->status == 0)
		reader->status = -ENOMEM;
	if (reader->status == 0)
		finish_section(reader);
	reader->config->line_count = reader->number;
	return reader->status;
}

int config_read(
	const char *path, bool missing_ok, struct config *ret_config, char *ret_error, size_t capacity)
{
	_cleanup_free_ struct config *config = calloc(1, sizeof *config);
	__attribute__((cleanup(cleanup_reader))) struct reader reader = {
		.config = config, .error = ret_error, .error_capacity = capacity};
	int r = config ? 0 : -ENOMEM;

	if (r == 0 && strlen(path) >= sizeof config->path)
		r = -ENAMETOOLONG;
	if (r == 0) {
		strcpy(config->path, path);
		r = set_defaults(&reader);
	}
	if (r == 0) {
		reader.file = fopen(path, "re");
		if (reader.file)
			r = read_file(&reader);
		else if (errno != ENOENT || !missing_ok)
			r = -errno;
	}
	if (r == 0)
		*ret_config = *config;
	else if (r != -EINVAL)
		snprintf(ret_error, capacity, "%s: %s", path, strerror(-r));
	return r;
}

/* ---- reload ---- */

static PRINTF(5, 6) int refuse_reload(
	const struct config *next, unsigned line, char *ret_error, size_t capacity, const char *format, ...)
{
	int n = snprintf(ret_error, capacity, "%s:%u: ", next->path, line ? line : MAX(next->line_count, 1u));
	va_list args;

	va_start(args, format);
	if (n >= 0 && (size_t)n < capacity)
		vsnprintf(ret_error + n, capacity - (size_t)n, format, args);
	va_end(args);
	return -EINVAL;
}

static const struct config_pool *find_pool(const struct config *config, const char *name)
{
	for (size_t i = 0; i < config->pool_count; i++)
		if (strcmp(config->pools[i].name, name) == 0)
			return &config->pools[i];
	return NULL;
}

static int check_reload_pool(const struct config *next, const struct config_pool *a,
	const struct config_pool *b, char *ret_error, size_t capacity)
{
	char from[SIZE_TEXT], to[SIZE_TEXT];

	if (a->page_size != b->page_size)
		return refuse_reload(next, b->page_size_line, ret_error, capacity,
			"page_size of [pool %s] was %s and would be %s, which needs a new pool", a->name,
			size_format_exact(a->page_size, from), size_format_exact(b->page_size, to));
	if (a->node != b->node)
		return refuse_reload(next, b->node_line ? b->node_line : b->line, ret_error, capacity,
			"node of [pool %s] was %d and would be %d, which needs a new pool", a->name,
			(int)a->node, (int)b->node);
	if (strcmp(a->mount, b->mount) != 0)
		return refuse_reload(next, b->mount_line ? b->mount_line : b->line, ret_error, capacity,
			"mount of [pool %s] was %s and would be %s, which needs a new pool", a->name,
			a->mount, b->mount);
	return 0;
}

int config_check_reload(const struct config *now, const struct config *next,
	bool (*has_pages)(const char *pool, void *user), void *user, char *ret_error, size_t capacity)
{
	if (strcmp(now->socket, next->socket) != 0)
		return refuse_reload(next, next->socket_line, ret_error, capacity,
			"socket was %s and would be %s, which needs a restart", now->socket, next->socket);
	if (strcmp(now->run_dir, next->run_dir) != 0)
		return refuse_reload(next, next->run_dir_line, ret_error, capacity,
			"run_dir was %s and would be %s, which needs a restart", now->run_dir, next->run_dir);
	for (size_t i = 0; i < now->pool_count; i++) {
		const struct config_pool *a = &now->pools[i], *b = find_pool(next, a->name);
		int r = 0;
		if (b)
			r = check_reload_pool(next, a, b, ret_error, capacity);
		else if (has_pages(a->name, user))
			r = refuse_reload(next, 0, ret_error, capacity,
				"[pool %s] is gone but has pages, set its pages to 0 first", a->name);
		if (r < 0)
			return r;
	}
	return 0;
}

/* ---- one key at a time ---- */

static const struct config_key *find_clear_key(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(config_keys); i++) {
		if (strcmp(config_keys[i].section, "clear") == 0 && strcmp(config_keys[i].name, name) == 0)
			return &config_keys[i];
	}
	return NULL;
}

int config_set_clear(
	struct config_clear *clear, const char *name, const char *value, char *ret_why, size_t capacity)
{
	const struct config_key *key = find_clear_key(name);
	_cleanup_free_ struct config *config = calloc(1, sizeof *config);
	char why[WHY_MAX];

	if (!config) {
		snprintf(ret_why, capacity, "no memory");
		return -ENOMEM;
	}
	if (!key) {
		snprintf(ret_why, capacity, "there is no key `%.60s` in [clear]", name);
		return -ENOENT;
	}
	config->clear = *clear;
	int r = key->parse(key, value, NULL, (char *)config + key->offset, why);
	if (r == 0)
		r = check_clear(&config->clear, why);
	if (r < 0)
		snprintf(ret_why, capacity, "%s = %.80s, %s", name, value, why);
	else
		*clear = config->clear;
	return r;
}

void config_init_pool(struct config_pool *pool, uint64_t page_size, int32_t node, uint64_t pages)
{
	char why[WHY_MAX];

	*pool = (struct config_pool){.page_size = page_size, .pages = pages};
	for (size_t i = 0; i < ARRAY_SIZE(config_keys); i++) {
		const struct config_key *key = &config_keys[i];
		if (strcmp(key->section, "pool") == 0 && !key->is_required)
			key->parse(key, key->fallback, pool, (char *)pool + key->offset, why);
	}
	pool->node = node;
	settle_stock(pool);
}

int config_set_stock(struct config_pool *pool, const char *value, char *ret_why, size_t capacity)
{
	char why[WHY_MAX];

	if (strlen(value) >= VALUE_MAX) {
		snprintf(ret_why, capacity, "longer than %d bytes", VALUE_MAX - 1);
		return -EINVAL;
	}
	int r = parse_stock(NULL, value, pool, pool->stock, why);
	if (r < 0)
		snprintf(ret_why, capacity, "stock = %s, %s", value, why);
	else
		settle_stock(pool);
	return r;
}

static void write_psi(const struct config_psi *psi, char *text, size_t capacity)
{
	if (psi->is_on)
		snprintf(text, capacity, "%u %u", psi->pause_percent, psi->resume_percent);
	else
		snprintf(text, capacity, "none");
}

/* By the parser of a key one knows what its member is. */
static void write_value(const struct config_key *key, const void *member, char *text, size_t capacity)
{
	if (key->parse == parse_bool)
		snprintf(text, capacity, "%s", *(const bool *)member ? "yes" : "no");
	else if (key->parse == parse_kernel_zeroing)
		snprintf(text, capacity, "%s", *(const bool *)member ? "auto" : "no");
	else if (key->parse == parse_workers && *(const uint32_t *)member == 0)
		snprintf(text, capacity, "auto");
	else if (key->parse == parse_workers || key->parse == parse_percent)
		snprintf(text, capacity, "%u", *(const uint32_t *)member);
	else if (key->parse == parse_rate && *(const uint64_t *)member == 0)
		snprintf(text, capacity, "none");
	else if (key->parse == parse_rate)
		size_format_exact(*(const uint64_t *)member, text);
	else if (key->parse == parse_psi)
		write_psi(member, text, capacity);
	else
		snprintf(text, capacity, "%s", (const char *)member);
}

const char *config_get_clear(const struct config_clear *clear, size_t row, char *ret_value, size_t capacity)
{
	char text[VALUE_MAX];

	for (size_t i = 0; i < ARRAY_SIZE(config_keys); i++) {
		const struct config_key *key = &config_keys[i];
		if (strcmp(key->section, "clear") != 0 || row-- > 0)
			continue;
		write_value(key, (const char *)clear + key->offset - offsetof(struct config, clear), text,
			sizeof text);
		snprintf(ret_value, capacity, "%s", text);
		return key->name;
	}
	return NULL;
}

/* ---- stock ---- */

/* Adds segments, as many as `left` allows, to the classes sorted from large to small. */
static void add_class(
	struct config_class *classes, size_t *count, uint64_t segment_pages, uint64_t wanted, uint64_t *left)
{
	uint64_t n = segment_pages ? MIN(wanted, *left / segment_pages) : 0;
	size_t at = 0;

	if (!n)
		return;
	*left -= n * segment_pages;
	while (at < *count && classes[at].segment_pages > segment_pages)
		at++;
	if (at < *count && classes[at].segment_pages == segment_pages) {
		classes[at].count += n;
		return;
	}
	memmove(&classes[at + 1], &classes[at], (*count - at) * sizeof *classes);
	classes[at] = (struct config_class){segment_pages, n};
	++*count;
}

static size_t add_default_stock(
	uint64_t page_size, uint64_t pages, struct config_class *classes, size_t count)
{
	uint64_t piece = MAX((64ull << 20) / page_size, 1ull), left = pages;

	add_class(classes, &count, pages / 2, 1, &left);
	add_class(classes, &count, piece, pages / 4 / piece, &left);
	add_class(classes, &count, 1, left, &left);
	return count;
}

static int compare_stock(const void *a, const void *b)
{
	uint64_t x = ((const struct config_stock *)a)->bytes, y = ((const struct config_stock *)b)->bytes;
	return (x < y) - (x > y);
}

size_t config_get_stock(
	const struct config_pool *pool, uint64_t pages, struct config_class ret_classes[CONFIG_STOCK_MAX + 3])
{
	struct config_stock sorted[CONFIG_STOCK_MAX];
	uint64_t left = pages, rest = 0;
	size_t count = 0;

	if (!pool->stock_count)
		return add_default_stock(pool->page_size, pages, ret_classes, 0);
	memcpy(sorted, pool->stock, sizeof sorted);
	qsort(sorted, pool->stock_count, sizeof sorted[0], compare_stock);
	for (size_t i = 0; i < pool->stock_count; i++) {
		uint64_t segment_pages = sorted[i].bytes / pool->page_size;
		if (sorted[i].count == CONFIG_COUNT_REST)
			rest = segment_pages;
		else
			add_class(ret_classes, &count, segment_pages, sorted[i].count, &left);
	}
	if (rest) {
		add_class(ret_classes, &count, rest, left, &left);
		add_class(ret_classes, &count, 1, left, &left);
	}
	return count;
}

static uint64_t count_class_pages(const struct config_class *classes, size_t count)
{
	uint64_t pages = 0;

	for (size_t i = 0; i < count; i++)
		pages += classes[i].segment_pages * classes[i].count;
	return pages;
}

size_t config_add_rest(const struct config_pool *pool, uint64_t pages,
	struct config_class classes[CONFIG_STOCK_MAX + 3], size_t count)
{
	struct config_class configured[CONFIG_STOCK_MAX + 3];
	size_t configured_count = config_get_stock(pool, pool->pages, configured);
	uint64_t left_out = pool->pages - count_class_pages(configured, configured_count);
	uint64_t rest = pages - count_class_pages(classes, count);

	return rest > left_out ? add_default_stock(pool->page_size, rest - left_out, classes, count) : count;
}
