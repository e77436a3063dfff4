/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_config.c - what is read, and the exact sentence for everything that is not. */
#include "temp.h"
#include "config.h"

#include <ctype.h>

#define M2   (2ull << 20)
#define G1   (1ull << 30)
#define REST CONFIG_COUNT_REST

#define ACCESS "[access a]\nallow = status\n"

static char dir[TEMP_PATH];
static char path[PATH_MAX];
static struct config config, other;

static int setup(void **state)
{
	temp_make(dir);
	temp_path(dir, "c", path);
	return 0;
}

static int teardown(void **state)
{
	temp_remove(dir);
	return 0;
}

static void read_good(const void *text, size_t length, struct config *ret_config)
{
	char error[512] = "";

	temp_write(dir, "c", text, length);
	if (config_read(path, false, ret_config, error, sizeof error) != 0)
		fail_msg("\n%.*s\n%s", (int)length, (const char *)text, error);
}

static void read_text(const char *text, struct config *ret_config)
{
	read_good(text, strlen(text), ret_config);
}

/* `expected` is what follows FILE: */
static void read_bad(const void *text, size_t length, const char *expected)
{
	static struct config untouched, zero;
	char error[512] = "", whole[PATH_MAX + 512];

	snprintf(whole, sizeof whole, "%s:%s", path, expected);
	temp_write(dir, "c", text, length);
	if (config_read(path, false, &untouched, error, sizeof error) != -EINVAL)
		fail_msg("was read, but should have been: %s", expected);
	assert_string_equal(error, whole);
	assert_memory_equal(&untouched, &zero, sizeof zero);
}

/* ---- good files ---- */

#define POOL "[pool a]\npage_size = 2M\npages = 512\n"

static void test_defaults(void **state)
{
	read_text("", &config);
	assert_string_equal(config.path, path);
	assert_string_equal(config.socket, "/run/hpz/hpzd.sock");
	assert_string_equal(config.socket_group, "");
	assert_string_equal(config.run_dir, "/run/hpz");
	assert_int_equal(config.log_level, LOG_LEVEL_INFO);
	assert_int_equal(config.teardown, CONFIG_TEARDOWN_AUTO);
	assert_int_equal(config.grace_ns, 10 * NS_PER_S);
	assert_string_equal(config.clear.method, "auto");
	assert_int_equal(config.pool_count, 0);
	assert_int_equal(config.socket_line, 0);
}

static void test_qemu(void **state)
{
	const struct config_qemu *qemu = &config.qemu;

	read_text("", &config);
	assert_string_equal(qemu->emulator, "auto");
	assert_true(qemu->on_failure == CONFIG_FAILURE_FALLBACK && !qemu->is_for_ram);
	assert_int_equal(qemu->wait_ns, 0);
	read_text("[qemu]\nemulator = /usr/libexec/qemu-kvm\non_failure = refuse\nwait = 1h\nram = yes\n",
		&config);
	assert_string_equal(qemu->emulator, "/usr/libexec/qemu-kvm");
	assert_true(qemu->on_failure == CONFIG_FAILURE_REFUSE && qemu->is_for_ram);
	assert_int_equal(qemu->wait_ns, 3600 * NS_PER_S);
	read_text("[qemu]\non_failure = fallback\nwait = no\n", &config);
	assert_int_equal(qemu->on_failure, CONFIG_FAILURE_FALLBACK);
	assert_int_equal(qemu->wait_ns, 0);
}

static void test_clear(void **state)
{
	const struct config_clear *clear = &config.clear;

	read_text("", &config);
	assert_true(clear->is_enabled && clear->is_scavenger && clear->is_kernel_zeroing);
	assert_int_equal(clear->workers, 0);
	assert_string_equal(clear->cpus, "all");
	assert_int_equal(clear->rate_bytes_per_s, 0);
	assert_false(clear->psi_cpu.is_on || clear->psi_memory.is_on);
	assert_int_equal(clear->low_percent, 50);
	assert_int_equal(clear->high_percent, 75);
	read_text("[clear]\nenabled = no\nworkers = 3\ncpus = 0-3,8\nrate = 1.5G\npsi_cpu = 40 20\n"
		  "psi_memory = 5 5\nscavenger = no\nhigh = 90\nlow = 80\nkernel_zeroing = no\n",
		&config);
	assert_false(clear->is_enabled || clear->is_scavenger || clear->is_kernel_zeroing);
	assert_int_equal(clear->workers, 3);
	assert_string_equal(clear->cpus, "0-3,8");
	assert_int_equal(clear->rate_bytes_per_s, (uint64_t)3 << 29);
	assert_int_equal(clear->psi_cpu.pause_percent, 40);
	assert_int_equal(clear->psi_cpu.resume_percent, 20);
	assert_int_equal(clear->psi_memory.pause_percent, 5);
	assert_int_equal(clear->low_percent, 80);
	assert_int_equal(clear->high_percent, 90);
}

/* What is shown as in force is what sets it: each key, with its default and with another value. */
/* Key by key: bytes between the members are nobody's. */
static bool is_same_clear(const struct config_clear *a, const struct config_clear *b)
{
	for (size_t i = 0; i < CONFIG_CLEAR_KEYS; i++) {
		char of_a[256], of_b[256];
		config_get_clear(a, i, of_a, sizeof of_a);
		config_get_clear(b, i, of_b, sizeof of_b);
		if (strcmp(of_a, of_b) != 0)
			return false;
	}
	return true;
}

static void test_set_clear(void **state)
{
	static const struct {
		const char *key, *value;
	} others[] = {{"method", "movnti"}, {"enabled", "no"}, {"workers", "7"}, {"cpus", "1,3-4"},
		{"rate", "512M"}, {"psi_cpu", "40 20"}, {"psi_memory", "10 0"}, {"scavenger", "no"},
		{"low", "1"}, {"high", "99"}, {"kernel_zeroing", "no"}, {"reshape", "0"}};
	struct config_clear clear, defaults;
	char value[256], why[256] = "";

	_Static_assert(ARRAY_SIZE(others) == CONFIG_CLEAR_KEYS, "each key");
	read_text("", &config);
	clear = defaults = config.clear;
	assert_null(config_get_clear(&clear, CONFIG_CLEAR_KEYS, value, sizeof value));
	for (size_t i = 0; i < CONFIG_CLEAR_KEYS; i++) {
		assert_string_equal(config_get_clear(&clear, i, value, sizeof value), others[i].key);
		assert_int_equal(config_set_clear(&clear, others[i].key, value, why, sizeof why), 0);
		assert_true(is_same_clear(&clear, &defaults));
		assert_int_equal(
			config_set_clear(&clear, others[i].key, others[i].value, why, sizeof why), 0);
		assert_false(is_same_clear(&clear, &defaults));
		config_get_clear(&clear, i, value, sizeof value);
		assert_string_equal(value, others[i].value);
		clear = defaults;
	}
	/* Refused, and nothing has changed. */
	assert_int_equal(config_set_clear(&clear, "low", "76", why, sizeof why), -EINVAL);
	assert_string_equal(why, "low = 76, `low` is 76 and above `high`, which is 75");
	assert_int_equal(config_set_clear(&clear, "rate", "", why, sizeof why), -EINVAL);
	assert_int_equal(config_set_clear(&clear, "socket", "/a", why, sizeof why), -ENOENT);
	assert_string_equal(why, "there is no key `socket` in [clear]");
	assert_true(is_same_clear(&clear, &defaults));
}

static void test_libvirt(void **state)
{
	const struct config_libvirt *libvirt = &config.libvirt;

	read_text("", &config);
	assert_true(libvirt->is_enabled && !libvirt->user.is_set);
	assert_int_equal(libvirt->on_failure, CONFIG_FAILURE_FALLBACK);
	assert_int_equal(libvirt->deadline_ms, 2000);
	assert_string_equal(libvirt->memory_backing_dir, "auto");
	read_text("[libvirt]\nenabled = no\non_failure = refuse\ndeadline = 500ms\n"
		  "memory_backing_dir = /var/lib/hpz/2M/\nuser = 1000:1001\n",
		&config);
	assert_true(!libvirt->is_enabled && libvirt->user.is_set);
	assert_int_equal(libvirt->on_failure, CONFIG_FAILURE_REFUSE);
	assert_int_equal(libvirt->deadline_ms, 500);
	assert_string_equal(libvirt->memory_backing_dir, "/var/lib/hpz/2M");
	assert_true(libvirt->user.uid == 1000 && libvirt->user.gid == 1001);
	read_text("[libvirt]\nuser = root\ndeadline = 60s\n", &config);
	assert_true(libvirt->user.is_set && libvirt->user.uid == 0 && libvirt->user.gid == 0);
	assert_int_equal(libvirt->deadline_ms, 60000);
}

static void test_access(void **state)
{
	const struct config_access *access = config.access;

	read_text(
		"[hpzd]\nsocket_mode = 0666\n[access a]\nallow = none\n"
		"[access b.2]\nusers = root 1000\t* 4294967294\ngroups = 7 root\nallow = admin status lease\n"
		"quota_bytes = 1.5G\nquota_leases = 0\nmax_connections = 3\nmax_requests = 9\n"
		"max_priority = 1000\n",
		&config);
	assert_int_equal(config.socket_mode, 0666);
	assert_int_equal(config.access_count, 2);
	assert_int_equal(config.pool_count, 0);
	assert_string_equal(access[0].name, "a");
	assert_int_equal(access[0].line, 3);
	assert_int_equal(access[0].allow, 0);
	assert_int_equal(access[0].users.count, 0);
	assert_int_equal(access[0].groups.count, 0);
	assert_false(access[0].users.is_all);
	assert_true(access[0].quota_bytes == CONFIG_NO_LIMIT && access[0].quota_leases == CONFIG_NO_LIMIT);
	assert_true(
		access[0].max_connections == CONFIG_NO_LIMIT && access[0].max_requests == CONFIG_NO_LIMIT);
	assert_string_equal(access[1].name, "b.2");
	assert_int_equal(access[1].allow, CONFIG_ALLOW_STATUS | CONFIG_ALLOW_LEASE | CONFIG_ALLOW_ADMIN);
	assert_int_equal(access[1].users.count, 3);
	assert_int_equal(access[1].users.ids[0], 0);
	assert_int_equal(access[1].users.ids[1], 1000);
	assert_int_equal(access[1].users.ids[2], 4294967294u);
	assert_true(access[1].users.is_all);
	assert_int_equal(access[1].groups.count, 2);
	assert_int_equal(access[1].groups.ids[0], 7);
	assert_int_equal(access[1].groups.ids[1], 0);
	assert_int_equal(access[1].quota_bytes, G1 + G1 / 2);
	assert_int_equal(access[1].quota_leases, 0);
	assert_int_equal(access[1].max_connections, 3);
	assert_int_equal(access[1].max_requests, 9);
	assert_true(access[0].max_priority == 0 && access[1].max_priority == 1000);
	read_text(ACCESS, &config);
	assert_int_equal(config.access_count, 1);
	assert_int_equal(config.socket_mode, 0660);
}

static void test_pool_defaults(void **state)
{
	const struct config_pool *pool = config.pools;

	read_text("[pool main]\npage_size = 2M\npages = 512\n", &config);
	assert_int_equal(config.pool_count, 1);
	assert_int_equal(config.line_count, 3);
	assert_string_equal(pool->name, "main");
	assert_int_equal(pool->line, 1);
	assert_int_equal(pool->page_size, M2);
	assert_int_equal(pool->page_size_line, 2);
	assert_int_equal(pool->node, 0);
	assert_int_equal(pool->node_line, 0);
	assert_int_equal(pool->pages, 512);
	assert_int_equal(pool->max_pages, 512);
	assert_string_equal(pool->mount, "auto");
	assert_int_equal(pool->mount_line, 0);
	assert_true(pool->raise);
	assert_int_equal(pool->stock_count, 0);
	assert_int_equal(pool->stock_line, 0);
	assert_true(pool->is_learning);
	assert_int_equal(pool->stock_share, 80);
	assert_int_equal(pool->stock_half_life_ns, 24 * 3600 * NS_PER_S);
	assert_int_equal(config.clear.reshape_percent, 10);
}

/* Learned, beside what is fixed or alone; the order does not matter. */
static void test_learning(void **state)
{
	const struct config_pool *pool = config.pools;

	read_text(POOL "stock = 64M*2 auto 2M*3\nstock_share = 0\nstock_half_life = 90s\n", &config);
	assert_true(pool->is_learning);
	assert_int_equal(pool->stock_count, 2);
	assert_int_equal(pool->stock[0].bytes, 64 << 20);
	assert_int_equal(pool->stock[1].bytes, 2 << 20);
	assert_int_equal(pool->stock[1].count, 3);
	assert_int_equal(pool->stock_share, 0);
	assert_int_equal(pool->stock_half_life_ns, 90 * NS_PER_S);
	read_text(POOL "stock = auto 2M*1\nstock_half_life = 3650d\n[clear]\nreshape = 33\n", &config);
	assert_true(pool->is_learning && pool->stock_count == 1);
	assert_int_equal(pool->stock_half_life_ns, 3650ull * 86400 * NS_PER_S);
	assert_int_equal(config.clear.reshape_percent, 33);
	read_text(POOL "stock = mixed\nstock_half_life = 1m\n", &config);
	assert_true(!pool->is_learning && pool->stock_count == 0);
	assert_int_equal(pool->stock_half_life_ns, 60 * NS_PER_S);
	read_text(POOL "stock = 2M*rest\nstock_half_life = 2h\n", &config);
	assert_true(!pool->is_learning && pool->stock_count == 1);
}

static void test_everything(void **state)
{
	const struct config_pool *small = &config.pools[0], *large = &config.pools[1];

	read_text("# a comment\n"
		  "; another\n"
		  "   # an indented one\n"
		  "\t\n"
		  "[hpzd]  ; comment\n"
		  "socket = /tmp/x/sock/ ; ours\n"
		  "socket_group=kvm\n"
		  "run_dir : /dev/shm/hpz\n"
		  "log_level = debug\n"
		  "grace = 2m\n"
		  "[pool small-2M_a.b] # comment\n"
		  "stock = 1G*2  64M*8\t2M*rest\n"
		  "max_pages = 4G\n"
		  "pages = 3G\n"
		  "node = 1\n"
		  "page_size = 2MiB\n"
		  "mount = /dev/hugepages///\n"
		  "raise = off\n"
		  "[clear]\n"
		  "method = movnti\n"
		  "[pool 1G]\n"
		  "page_size = 1G\n"
		  "pages = 0\n"
		  "stock = auto\n"
		  "max_pages = pages",
		&config);
	assert_string_equal(config.socket, "/tmp/x/sock");
	assert_int_equal(config.socket_line, 6);
	assert_string_equal(config.socket_group, "kvm");
	assert_int_equal(config.socket_group_line, 7);
	assert_string_equal(config.run_dir, "/dev/shm/hpz");
	assert_int_equal(config.run_dir_line, 8);
	assert_int_equal(config.log_level, LOG_LEVEL_DEBUG);
	assert_int_equal(config.grace_ns, 120 * NS_PER_S);
	assert_string_equal(config.clear.method, "movnti");
	assert_int_equal(config.method_line, 20);
	assert_int_equal(config.pool_count, 2);
	assert_int_equal(config.line_count, 25);
	assert_string_equal(small->name, "small-2M_a.b");
	assert_int_equal(small->line, 11);
	assert_int_equal(small->node, 1);
	assert_int_equal(small->node_line, 15);
	assert_int_equal(small->pages, 1536);
	assert_int_equal(small->max_pages, 2048);
	assert_string_equal(small->mount, "/dev/hugepages");
	assert_int_equal(small->mount_line, 17);
	assert_false(small->raise);
	assert_int_equal(small->stock_count, 3);
	assert_int_equal(small->stock_line, 12);
	assert_int_equal(small->stock[0].bytes, G1);
	assert_int_equal(small->stock[0].count, 2);
	assert_int_equal(small->stock[2].bytes, M2);
	assert_true(small->stock[2].count == REST);
	assert_string_equal(large->name, "1G");
	assert_int_equal(large->pages, 0);
	assert_int_equal(large->max_pages, 0);
	assert_int_equal(large->stock_count, 0);
}

static void test_files_of_others(void **state)
{
	static const char bom[] =
		"\xef\xbb\xbf[hpzd]\r\nlog_level = error\r\nteardown = perf\r\n[clear]\r\nmethod = stosb\r\n";
	char line[400];

	read_text(bom, &config);
	assert_int_equal(config.log_level, LOG_LEVEL_ERROR);
	assert_int_equal(config.teardown, CONFIG_TEARDOWN_PERF);
	assert_string_equal(config.clear.method, "stosb");
	/* The longest line there may be, and the same without its end. */
	memset(line, '#', sizeof line);
	memcpy(line + 197, "\n[hpzd]\n", 9);
	read_text(line, &config);
	snprintf(line, sizeof line, "[pool x]\npage_size=2M\npages=1\nmount=/%0183d", 0);
	read_text(line, &config);
	assert_int_equal(strlen(config.pools[0].mount), 184);
}

/* Two nodes on one mount, two page sizes on two, and both left to hpzd. */
static void test_mounts(void **state)
{
	read_text("[pool a]\npage_size=2M\npages=1\nmount=/m\n"
		  "[pool b]\npage_size=2M\npages=1\nmount=/m\nnode=1\n"
		  "[pool c]\npage_size=1G\npages=1\nmount=/g\n"
		  "[pool d]\npage_size=1G\npages=1\nmount=auto\nnode=1\n"
		  "[pool e]\npage_size=2M\npages=1\nmount=auto\nnode=2\n",
		&config);
	assert_int_equal(config.pool_count, 5);
}

static void test_words(void **state)
{
	static const struct {
		const char *word;
		bool value;
	} words[] = {{"yes", true}, {"no", false}, {"true", true}, {"false", false}, {"on", true},
		{"off", false}, {"1", true}, {"0", false}, {"Yes", true}};

	for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
		char text[128];
		snprintf(text, sizeof text, "[pool a]\npage_size=2M\npages=1\nraise = %s\n", words[i].word);
		read_text(text, &config);
		assert_int_equal(config.pools[0].raise, words[i].value);
	}
}

/* ---- bad files ---- */

#define LONG "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx" /* 64 */

static const struct {
	const char *text, *error;
} bad[] = {
	/* lines */
	{"[hpzd]\nsocket\n", "2: neither [section] nor `key = value` nor a comment"},
	{"[hpzd]\nsocket\nx = 1\n", "2: neither [section] nor `key = value` nor a comment"},
	{"[hpzd]\nsocket\n[\n", "2: neither [section] nor `key = value` nor a comment"},
	{"[hpzd]\nsocket = /a\n  /b\n", "3: begins with a space, a line cannot go on in the next"},
	{" [hpzd]\n", "1: begins with a space, a line cannot go on in the next"},
	{"[hpzd]\n\tsocket = /a\n", "2: begins with a space, a line cannot go on in the next"},
	{"[hpzd]\nsocket = /a\x1b[2J\n", "2: byte 0x1b, this is no text file"},
	{"[hpzd]\nsocket = /a\r/b\n", "2: byte 0x0d, this is no text file"},
	{"[hpzd]\nsocket = /a\x7f\n", "2: byte 0x7f, this is no text file"},
	{"#" LONG LONG LONG "xxxxx\n", "1: 198 bytes, a line has at most 197"},
	{"\n\n[hpzd]\nsocket = /" LONG LONG LONG LONG LONG "\n", "4: 330 bytes, a line has at most 197"},
	/* sections */
	{"socket = /a\n", "1: `socket` above the first section"},
	{"[hpz]\n", "1: unknown section [hpz], did you mean [hpzd]?"},
	{"[pools a]\n", "1: unknown section [pools], did you mean [pool]?"},
	{"[xen]\n", "1: unknown section [xen], there are [hpzd], [clear], [libvirt], [qemu], [pool NAME] and "
		    "[access NAME]"},
	{"[]\n", "1: unknown section [], there are [hpzd], [clear], [libvirt], [qemu], [pool NAME] and "
		 "[access NAME]"},
	{"[HPZD]\n", "1: unknown section [HPZD], there are [hpzd], [clear], [libvirt], [qemu], [pool NAME] "
		     "and [access NAME]"},
	{"[hpzd\n", "1: a section without its `]`"},
	{"[hpzd] socket = /a\n", "1: `socket = /a` behind a section's `]`, only a comment may stand there"},
	{"[hpzd main]\n", "1: [hpzd main], this section has no name"},
	{"[hpzd]\n[hpzd]\n", "2: [hpzd] for the second time, first in line 1"},
	{"[hpzd]\n[clear]\n\n[hpzd]\n", "4: [hpzd] for the second time, first in line 1"},
	{"[pool]\n", "1: [pool] needs a name, as [pool main]"},
	{"[pool ]\n", "1: [pool] needs a name, as [pool main]"},
	{"[pool a b]\n", "1: [pool a b], a name is made of A-Z a-z 0-9 _ . -"},
	{"[pool a/b]\n", "1: [pool a/b], a name is made of A-Z a-z 0-9 _ . -"},
	{"[pool \xc3\xa9]\n", "1: [pool \xc3\xa9], a name is made of A-Z a-z 0-9 _ . -"},
	{"[pool " LONG "]\n", "1: [pool xxxxxxxxxxxxxxxxxxxx...], the name is longer than 63 bytes"},
	{POOL "[pool b]\npage_size=1G\npages=1\n[pool a]\n",
		"7: [pool a] for the second time, first in line 1"},
	/* keys */
	{"[hpzd]\nsockte = /a\n", "2: unknown key `sockte` in [hpzd], did you mean `socket`?"},
	{"[hpzd]\nloglevel = info\n", "2: unknown key `loglevel` in [hpzd], did you mean `log_level`?"},
	{"[pool a]\npagesize = 2M\n", "2: unknown key `pagesize` in [pool], did you mean `page_size`?"},
	{"[pool a]\nmethod = stosb\n", "2: unknown key `method` in [pool], which has page_size, node, pages, "
				       "max_pages, mount, raise, give_back, min_pages, reuse, verify, stock, "
				       "stock_share, stock_half_life"},
	{"[clear]\nratio = 1G\n", "2: unknown key `ratio` in [clear], did you mean `rate`?"},
	{"[clear]\nstock = 1G\n",
		"2: unknown key `stock` in [clear], which has method, enabled, workers, cpus, "
		"rate, psi_cpu, psi_memory, scavenger, low, high, kernel_zeroing, reshape"},
	{"[clear]\nreshape = 101\n", "2: reshape = 101, not a percentage, 0 to 100"},
	{"[clear]\nenabled = never\n", "2: enabled = never, neither yes nor no"},
	{"[clear]\nworkers = 0\n", "2: workers = 0, neither `auto` nor a number from 1 to 64"},
	{"[clear]\nworkers = 65\n", "2: workers = 65, neither `auto` nor a number from 1 to 64"},
	{"[clear]\ncpus = 3-1\n", "2: cpus = 3-1, neither `all` nor a list of CPUs, as 0-3,8"},
	{"[clear]\ncpus =\n", "2: cpus = , neither `all` nor a list of CPUs, as 0-3,8"},
	{"[clear]\ncpus = 8192\n", "2: cpus = 8192, neither `all` nor a list of CPUs, as 0-3,8"},
	{"[clear]\nrate = 1K\n", "2: rate = 1K, neither bytes a second from 1M on, as 2G, nor `none`"},
	{"[clear]\nrate = 0\n", "2: rate = 0, neither bytes a second from 1M on, as 2G, nor `none`"},
	{"[clear]\npsi_cpu = 40\n",
		"2: psi_cpu = 40, neither `none` nor two percentages, PAUSE and RESUME, as 40 20"},
	{"[clear]\npsi_cpu = 40 20 10\n",
		"2: psi_cpu = 40 20 10, neither `none` nor two percentages, PAUSE and RESUME, as 40 20"},
	{"[clear]\npsi_memory = 101 20\n",
		"2: psi_memory = 101 20, PAUSE and RESUME are percentages, 0 to 100"},
	{"[clear]\npsi_memory = 20 40\n", "2: psi_memory = 20 40, RESUME is above PAUSE"},
	{"[clear]\nlow = 101\n", "2: low = 101, not a percentage, 0 to 100"},
	{"[clear]\nlow = 60\nhigh = 50\n", "3: [clear] `low` is 60 and above `high`, which is 50"},
	{"[clear]\nlow = 80\n", "1: [clear] `low` is 80 and above `high`, which is 75"},
	{"[clear]\nkernel_zeroing = yes\n", "2: kernel_zeroing = yes, neither auto nor no"},
	{"[hpzd]\n= 3\n", "2: unknown key `` in [hpzd], which has socket, socket_group, socket_mode, "
			  "run_dir, log_level, teardown, grace"},
	{"[hpzd]\nsocket = /a\nsocket = /a\n", "3: `socket` for the second time, first in line 2"},
	{POOL "pages = 3\n", "4: `pages` for the second time, first in line 3"},
	/* [hpzd] and [clear] */
	{"[hpzd]\nsocket = hpzd.sock\n", "2: socket = hpzd.sock, not an absolute path"},
	{"[hpzd]\nsocket =\n", "2: socket = , not an absolute path"},
	{"[hpzd]\nsocket = /run/../x\n", "2: socket = /run/../x, `.` and `..` have no place in this path"},
	{"[hpzd]\nsocket = /run/./x\n", "2: socket = /run/./x, `.` and `..` have no place in this path"},
	{"[hpzd]\nsocket = /run/..\n", "2: socket = /run/.., `.` and `..` have no place in this path"},
	{"[hpzd]\nsocket = /" LONG "/12345678901234567890123456789012345678901/\n",
		"2: socket = /" LONG
		"/12345678901234567890123456789012345678901/, path longer than 107 bytes"},
	{"[hpzd]\nsocket_group = " LONG "\n", "2: socket_group = " LONG ", longer than 63 bytes"},
	{"[hpzd]\nsocket_group = 4294967295\n", "2: socket_group = 4294967295, more than any group's number"},
	{"[hpzd]\nrun_dir = ~/hpz\n", "2: run_dir = ~/hpz, not an absolute path"},
	{"[hpzd]\nlog_level = loud\n", "2: log_level = loud, not one of error, warning, info, debug"},
	{"[hpzd]\nlog_level = info # loud\n", "2: log_level = info # loud, not one of error, warning, info, "
					      "debug (a comment behind a value begins "
					      "with `;`)"},
	{"[hpzd]\nteardown = ebpf\n", "2: teardown = ebpf, is none of auto, bpf, perf, pidfd, off"},
	{"[hpzd]\ngrace = 10\n", "2: grace = 10, not a time from 1s to 1h, as 10s or 2m"},
	{"[hpzd]\ngrace = 0s\n", "2: grace = 0s, not a time from 1s to 1h, as 10s or 2m"},
	{"[hpzd]\ngrace = 3601s\n", "2: grace = 3601s, not a time from 1s to 1h, as 10s or 2m"},
	{"[hpzd]\nlog_level = x\n[hpzd]\n", "2: log_level = x, not one of error, warning, info, debug"},
	{"[clear]\nmethod =\n", "2: method = , is empty"},
	{"[clear]\nmethod = an_instruction_with_a_very_long_name\n",
		"2: method = an_instruction_with_a_very_long_name, longer than 31 bytes"},
	{"[hpzd]\nsocket_mode = 0777\n", "2: socket_mode = 0777, not a mode of read and write bits, as 0660"},
	{"[hpzd]\nsocket_mode = rw\n", "2: socket_mode = rw, not a mode of read and write bits, as 0660"},
	{"[hpzd]\nsocket_mode = 0668\n", "2: socket_mode = 0668, not a mode of read and write bits, as 0660"},
	{"[hpzd]\nsocket_mode = -1\n", "2: socket_mode = -1, not a mode of read and write bits, as 0660"},
	{"[hpzd]\nsocket_mode = 0060\n", "2: socket_mode = 0060, its owner must be able to read and write"},
	{"[hpzd]\nsocket_mode =\n", "2: socket_mode = , not a mode of read and write bits, as 0660"},
	/* [qemu] */
	{"[qemu]\nemulator = qemu-kvm\n", "2: emulator = qemu-kvm, neither `auto` nor an absolute path"},
	{"[qemu]\non_failure = no\n", "2: on_failure = no, is none of fallback, refuse"},
	{"[qemu]\nwait = 0\n", "2: wait = 0, neither `no` nor a time up to 1h, as 10s or 2m"},
	{"[qemu]\nwait = 61m\n", "2: wait = 61m, neither `no` nor a time up to 1h, as 10s or 2m"},
	{"[qemu]\nram = all\n", "2: ram = all, neither yes nor no"},
	/* [access NAME] */
	{"[access]\n", "1: [access] needs a name, as [access main]"},
	{"[access a/b]\n", "1: [access a/b], a name is made of A-Z a-z 0-9 _ . -"},
	{ACCESS "[access a]\n", "3: [access a] for the second time, first in line 1"},
	{"[access a]\nusers = 7\n", "1: [access a] has no allow, which it needs, as `allow = status lease`"},
	{"[access a]\nallow =\n", "2: allow = , is empty: some of status, lease and admin, or none"},
	{"[access a]\nallow = status, lease\n",
		"2: allow = status, lease, `status,` is none of status, lease, admin"},
	{"[access a]\nallow = none lease\n", "2: allow = none lease, `none` is none of status, lease, admin"},
	{ACCESS "users = root no-such-user-here\n",
		"3: users = root no-such-user-here, there is no user `no-such-user-here`"},
	{ACCESS "users = -1\n", "3: users = -1, there is no user `-1`"},
	{ACCESS "users = 4294967295\n", "3: users = 4294967295, `4294967295` is more than any user's number"},
	{ACCESS "users = 99999999999999999999\n",
		"3: users = 99999999999999999999, `99999999999999999999` is more than any user's number"},
	{ACCESS "users = 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 "
		"1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5\n",
		"3: users = 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 "
		"1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5, more than 64 users"},
	{ACCESS "groups = no-such-group-here\n",
		"3: groups = no-such-group-here, there is no group `no-such-group-here`"},
	{ACCESS "groups = *\n", "3: groups = *, `*` stands for all users and belongs to `users`"},
	{ACCESS "quota_bytes = much\n", "3: quota_bytes = much, neither a size, as 64G, nor `none`"},
	{ACCESS "quota_bytes = -1\n", "3: quota_bytes = -1, neither a size, as 64G, nor `none`"},
	{ACCESS "quota_leases = 1.5\n", "3: quota_leases = 1.5, neither a number nor `none`"},
	{ACCESS "quota_leases =\n", "3: quota_leases = , neither a number nor `none`"},
	{ACCESS "max_connections = 9223372036854775808\n",
		"3: max_connections = 9223372036854775808, neither a number nor `none`"},
	{ACCESS "max_requests = 1K\n", "3: max_requests = 1K, neither a number nor `none`"},
	{ACCESS "max_priority = 1001\n", "3: max_priority = 1001, not a number from 0 to 1000"},
	/* [libvirt] */
	{"[libvirt main]\n", "1: [libvirt main], this section has no name"},
	{"[libvirt]\non_failure = die\n", "2: on_failure = die, is none of fallback, refuse"},
	{"[libvirt]\nenabled = perhaps\n", "2: enabled = perhaps, neither yes nor no"},
	{"[libvirt]\ndeadline = 2\n", "2: deadline = 2, not a time from 100ms to 60s, as 500ms or 2s"},
	{"[libvirt]\ndeadline = -2s\n", "2: deadline = -2s, not a time from 100ms to 60s, as 500ms or 2s"},
	{"[libvirt]\ndeadline = 99ms\n", "2: deadline = 99ms, not a time from 100ms to 60s, as 500ms or 2s"},
	{"[libvirt]\ndeadline = 61s\n", "2: deadline = 61s, not a time from 100ms to 60s, as 500ms or 2s"},
	{"[libvirt]\ndeadline = 99999999999999999999s\n",
		"2: deadline = 99999999999999999999s, not a time from 100ms to 60s, as 500ms or 2s"},
	{"[libvirt]\nmemory_backing_dir = ram\n",
		"2: memory_backing_dir = ram, neither `auto` nor an absolute path"},
	{"[libvirt]\nmemory_backing_dir = /a/../b\n",
		"2: memory_backing_dir = /a/../b, `.` and `..` have no place in this path"},
	{"[libvirt]\nuser = no-such-user-here\n",
		"2: user = no-such-user-here, neither `auto` nor USER or USER:GROUP of this machine"},
	{"[libvirt]\nuser = 4000000000\n",
		"2: user = 4000000000, a number without a name needs its group, as 1000:1000"},
	{"[libvirt]\nuser = root:no-such-group-here\n",
		"2: user = root:no-such-group-here, there is no group `no-such-group-here`"},
	{ACCESS "max_priority = none\n", "3: max_priority = none, not a number from 0 to 1000"},
	{ACCESS "max_request = 1\n",
		"3: unknown key `max_request` in [access], did you mean `max_requests`?"},
	/* [pool NAME] */
	{"\n[pool a]\n", "2: [pool a] has no page_size, which it needs, as `page_size = 2M`"},
	{"[pool a]\npages = 3\n[hpzd]\n",
		"1: [pool a] has no page_size, which it needs, as `page_size = 2M`"},
	{"[pool a]\npage_size = 2M\n", "1: [pool a] has no pages, which it needs, as `pages = 512`"},
	{"[pool a]\npages = 1\npage_size = two\n", "3: page_size = two, not a size, as 2M or 1G"},
	{"[pool a]\npages = 1\npage_size = 3M\n",
		"3: page_size = 3M, not the size of a huge page, as 2M or 1G"},
	{"[pool a]\npages = 1\npage_size = 4K\n",
		"3: page_size = 4K, not the size of a huge page, as 2M or 1G"},
	{"[pool a]\npages = 1\npage_size = 2\n",
		"3: page_size = 2, not the size of a huge page, as 2M or 1G"},
	{"[pool a]\npages = 1\npage_size = 0\n",
		"3: page_size = 0, not the size of a huge page, as 2M or 1G"},
	{POOL "node = -1\n", "4: node = -1, not a NUMA node, 0 to 1023"},
	{POOL "node = 1024\n", "4: node = 1024, not a NUMA node, 0 to 1023"},
	{POOL "node = 0,1\n", "4: node = 0,1, not a NUMA node, 0 to 1023"},
	{POOL "node =\n", "4: node = , not a NUMA node, 0 to 1023"},
	{POOL "node = 99999999999999999999\n", "4: node = 99999999999999999999, not a NUMA node, 0 to 1023"},
	{"[pool a]\npage_size = 2M\npages = -3\n", "3: pages = -3, `-3` is not a size, as 512M or 2G"},
	{"[pool a]\npage_size = 2M\npages = many\n", "3: pages = many, `many` is not a size, as 512M or 2G"},
	{"[pool a]\npage_size = 2M\npages = 3M\n",
		"3: pages = 3M, `3M` is not whole pages of 2M, the next such size is 4M"},
	{"[pool a]\npage_size = 1G\npages = 1.5G\n",
		"3: pages = 1.5G, `1.5G` is not whole pages of 1G, the next such size is 2G"},
	{"[pool a]\npage_size = 2M\npages = 99999999999999999999\n",
		"3: pages = 99999999999999999999, more than any machine has"},
	{"[pool a]\npage_size = 2M\npages = 4398046511104\n",
		"3: pages = 4398046511104, more than any machine has"},
	{"[pool a]\npage_size = 2M\npages = 8388608T\n",
		"3: pages = 8388608T, `8388608T` is more than any machine has"},
	{POOL "max_pages = 511\n", "4: max_pages = 511, 511 pages, less than the 512 of `pages`"},
	{POOL "max_pages = 1022M\n", "4: max_pages = 1022M, 511 pages, less than the 512 of `pages`"},
	{POOL "mount = hugepages\n", "4: mount = hugepages, neither `auto` nor an absolute path"},
	{POOL "mount = Auto\n", "4: mount = Auto, neither `auto` nor an absolute path"},
	{POOL "raise = maybe\n", "4: raise = maybe, neither yes nor no"},
	{POOL "stock =\n", "4: stock = , is empty: `auto`, `mixed`, or SIZE*COUNT as 2G*8"},
	{POOL "stock = 64M\n", "4: stock = 64M, `64M` is not SIZE*COUNT, as 2G*8 or 2M*rest, nor `auto`"},
	{POOL "stock = 64M * 3\n",
		"4: stock = 64M * 3, `64M` is not SIZE*COUNT, as 2G*8 or 2M*rest, nor `auto`"},
	{POOL "stock = 2M*1 mixed\n",
		"4: stock = 2M*1 mixed, `mixed` is not SIZE*COUNT, as 2G*8 or 2M*rest, nor `auto`"},
	{POOL "stock = auto 2M*rest\n",
		"4: stock = auto 2M*rest, `auto` and `rest`: the rest can go to one of them"},
	{POOL "stock = 4M*2 auto auto\n",
		"4: stock = 4M*2 auto auto, `auto` and `auto`: the rest can go to one of them"},
	{POOL "stock = 1G*1 2M*1 auto\n",
		"4: stock = 1G*1 2M*1 auto, 513 pages, more than the 512 of `pages`"},
	{POOL "stock_share = 101\n", "4: stock_share = 101, not a percentage, 0 to 100"},
	{POOL "stock_half_life = 24\n",
		"4: stock_half_life = 24, not a time from 1s to 3650d, as 30m, 24h or 7d"},
	{POOL "stock_half_life = 0h\n",
		"4: stock_half_life = 0h, not a time from 1s to 3650d, as 30m, 24h or 7d"},
	{POOL "stock_half_life = h\n",
		"4: stock_half_life = h, not a time from 1s to 3650d, as 30m, 24h or 7d"},
	{POOL "stock_half_life = -1h\n",
		"4: stock_half_life = -1h, not a time from 1s to 3650d, as 30m, 24h or 7d"},
	{POOL "stock_half_life = 3651d\n",
		"4: stock_half_life = 3651d, not a time from 1s to 3650d, as 30m, 24h or 7d"},
	{POOL "stock_half_life = 213503982334602d\n",
		"4: stock_half_life = 213503982334602d, not a time from 1s to 3650d, as 30m, 24h or 7d"},
	{POOL "stock_half_life =\n", "4: stock_half_life = , not a time from 1s to 3650d, as 30m, 24h or 7d"},
	{POOL "stock = 64M*3,2M*1\n", "4: stock = 64M*3,2M*1, `3,2M*1` is not a count from 1 on or `rest`"},
	{POOL "stock = 64M*0\n", "4: stock = 64M*0, `0` is not a count from 1 on or `rest`"},
	{POOL "stock = 64M*\n", "4: stock = 64M*, `` is not a count from 1 on or `rest`"},
	{POOL "stock = *3\n", "4: stock = *3, `` is not a size, as 512M or 2G"},
	{POOL "stock = 0M*3\n", "4: stock = 0M*3, a segment of no bytes"},
	{POOL "stock = 64M*4 3M*2\n",
		"4: stock = 64M*4 3M*2, `3M` is not whole pages of 2M, the next such size is 4M"},
	{POOL "stock = 64M*4 65536K*2\n", "4: stock = 64M*4 65536K*2, 64M stands there twice"},
	{POOL "stock = 64M*rest 2M*rest\n",
		"4: stock = 64M*rest 2M*rest, `rest` and `rest`: the rest can go to one of them"},
	{POOL "stock = 1G*1 2M*1\n", "4: stock = 1G*1 2M*1, 513 pages, more than the 512 of `pages`"},
	{POOL "stock = 2M*18446744073709551615\n",
		"4: stock = 2M*18446744073709551615, more pages than any machine has"},
	{POOL "stock = 2M*9223372036854775807 4M*9223372036854775807\n",
		"4: stock = 2M*9223372036854775807 4M*9223372036854775807, more pages than any machine has"},
	/* pools together */
	{POOL "[pool b]\npages = 1\npage_size = 2M\n", "4: [pool b] has the node and page size of [pool a] "
						       "in line 1, and a pool is all pages of one node and "
						       "size"},
	{POOL "mount = /m\n[pool b]\npages = 1\npage_size = 1G\nmount = /m/\n",
		"8: mount = /m, [pool a] in line 1 has it with another page size, and a mount has one"},
};

static void test_bad_files(void **state)
{
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		read_bad(bad[i].text, strlen(bad[i].text), bad[i].error);
}

static void test_nul_bytes(void **state)
{
	static const char nul[] = "[hpzd]\nsocket = /a\0b\n", only[] = "\0";

	read_bad(nul, sizeof nul - 1, "2: byte 0x00, this is no text file");
	read_bad(only, 1, "1: byte 0x00, this is no text file");
}

static void test_too_many(void **state)
{
	char text[16384], error[512], *stock;
	size_t length = 0;

	for (int i = 0; i <= CONFIG_POOLS_MAX; i++) {
		if (i == CONFIG_POOLS_MAX)
			read_good(text, length, &config);
		length += (size_t)snprintf(text + length, sizeof text - length,
			"[pool p%d]\npage_size = 2M\npages = 1\nnode = %d\n", i, i);
	}
	assert_int_equal(config.pool_count, CONFIG_POOLS_MAX);
	read_bad(text, length, "257: [pool p64], more than 64 pools");

	/* 33 sizes just fit into a line. */
	length = (size_t)snprintf(text, sizeof text, "[pool a]\npage_size = 1M\npages = 9999\nstock=");
	stock = text + length - strlen("stock=");
	for (int i = 1; i <= CONFIG_STOCK_MAX + 1; i++) {
		length +=
			(size_t)snprintf(text + length, sizeof text - length, "%s%dM*1", i > 1 ? " " : "", i);
		if (i == CONFIG_STOCK_MAX)
			read_good(text, length, &config);
	}
	assert_int_equal(config.pools[0].stock_count, CONFIG_STOCK_MAX);
	snprintf(error, sizeof error, "4: stock = %s, more than 32 sizes", stock + strlen("stock="));
	read_bad(text, length, error);
}

static void test_errors_without_a_line(void **state)
{
	char error[512] = "", expected[PATH_MAX + 64], name[400];

	snprintf(expected, sizeof expected, "%s: No such file or directory", path);
	assert_int_equal(config_read(path, false, &config, error, sizeof error), -ENOENT);
	assert_string_equal(error, expected);
	assert_int_equal(config_read(path, true, &config, error, sizeof error), 0);
	assert_string_equal(config.socket, "/run/hpz/hpzd.sock");
	assert_int_equal(config_read(dir, true, &config, error, sizeof error), -EISDIR);
	snprintf(expected, sizeof expected, "%s: Is a directory", dir);
	assert_string_equal(error, expected);
	memset(name, 'x', sizeof name);
	name[sizeof name - 1] = 0;
	assert_int_equal(config_read(name, true, &config, error, sizeof error), -ENAMETOOLONG);
	/* A message that does not fit is cut, not written beyond. */
	temp_put(dir, "c", "[hpz]\n");
	memset(error, 'x', sizeof error);
	assert_int_equal(config_read(path, false, &config, error, 8), -EINVAL);
	assert_int_equal(strlen(error), 7);
	assert_int_equal(error[8], 'x');
}

/* Random bytes and random lines: never a crash, always a message. */
static void test_noise(void **state)
{
	static const char *const parts[] = {"[hpzd]", "[pool a]", "[pool b]", "[", "]", "=", "page_size",
		"pages", "2M", "512", "\n", "\n", "\n", " ", "stock", "2M*rest", "*", ";", "#", "\r\n",
		"mount", "/", "..", "auto", "\xef\xbb\xbf", "max_pages", "18446744073709551615", "node"};
	unsigned seed = 1;

	for (int round = 0; round < 3000; round++) {
		char text[1024] = "", error[256] = "";
		size_t length = 0;
		int r;
		for (int i = 0; i < 60; i++)
			length += (size_t)snprintf(text + length, sizeof text - length, "%s",
				parts[(unsigned)rand_r(&seed) % ARRAY_SIZE(parts)]);
		if (round % 2)
			text[(unsigned)rand_r(&seed) % length] = (char)rand_r(&seed);
		temp_write(dir, "c", text, length);
		r = config_read(path, false, &config, error, sizeof error);
		assert_true(r == 0 || r == -EINVAL);
		assert_int_equal(r == 0, error[0] == 0);
	}
}

/* ---- reload ---- */

static bool pools_have_pages(const char *pool, void *user)
{
	return strstr(user, pool) != NULL;
}

#define NOW                                                                                                  \
	"[hpzd]\nsocket = /s\nrun_dir = /r\n[pool a]\npage_size = 2M\npages = 512\nmount = /m\nnode = 1\n"   \
	"[pool b]\npage_size = 1G\npages = 2\n"

static const struct {
	const char *next, *with_pages, *error; /* NULL: may be loaded */
} reloads[] = {
	{NOW, "ab", NULL},
	{"#\n" NOW "[clear]\nmethod = stosb\n[pool c]\nnode = 7\npage_size = 2M\npages = 1\n", "ab", NULL},
	{"[hpzd]\nlog_level=debug\nsocket_group = kvm\nsocket = /s/\nrun_dir = /r\n"
	 "[pool b]\npage_size = 1G\npages = 0\nmax_pages = 9\nstock = auto\nraise = no\n"
	 "[pool a]\npage_size = 2048K\npages = 1\nmount = /m/\nnode = 1\n",
		"ab", NULL},
	{"[hpzd]\nsocket = /t\nrun_dir = /r\n", "",
		"2: socket was /s and would be /t, which needs a restart"},
	{"[hpzd]\nrun_dir = /r\n", "",
		"2: socket was /s and would be /run/hpz/hpzd.sock, which needs a restart"},
	{"", "", "1: socket was /s and would be /run/hpz/hpzd.sock, which needs a restart"},
	{"[hpzd]\nsocket = /s\nrun_dir = /q\n", "",
		"3: run_dir was /r and would be /q, which needs a restart"},
	{"[hpzd]\nsocket = /s\nrun_dir = /r\n", "", NULL},
	{"[hpzd]\nsocket = /s\nrun_dir = /r\n", "b",
		"3: [pool b] is gone but has pages, set its pages to 0 first"},
	{"[hpzd]\nsocket = /s\nrun_dir = /r\n[pool a]\npage_size = 1G\npages = 1\nmount = /m\nnode = 1\n", "",
		"5: page_size of [pool a] was 2M and would be 1G, which needs a new pool"},
	{"[hpzd]\nsocket = /s\nrun_dir = /r\n[pool a]\npage_size = 2M\npages = 1\nmount = /m\nnode = 2\n", "",
		"8: node of [pool a] was 1 and would be 2, which needs a new pool"},
	{"[hpzd]\nsocket = /s\nrun_dir = /r\n[pool a]\npage_size = 2M\npages = 1\nmount = /m\n", "",
		"4: node of [pool a] was 1 and would be 0, which needs a new pool"},
	{"[hpzd]\nsocket = /s\nrun_dir = /r\n[pool a]\npage_size = 2M\npages = 1\nmount = /n\nnode = 1\n", "",
		"7: mount of [pool a] was /m and would be /n, which needs a new pool"},
	{"[hpzd]\nsocket = /s\nrun_dir = /r\n[pool a]\npage_size = 2M\npages = 1\nnode = 1\n", "",
		"4: mount of [pool a] was /m and would be auto, which needs a new pool"},
};

static void test_reload(void **state)
{
	read_text(NOW, &config);
	for (size_t i = 0; i < ARRAY_SIZE(reloads); i++) {
		char error[512] = "", expected[PATH_MAX + 512] = "",
		     *with_pages = strdup(reloads[i].with_pages);
		int r;
		if (reloads[i].error)
			snprintf(expected, sizeof expected, "%s:%s", path, reloads[i].error);
		read_text(reloads[i].next, &other);
		r = config_check_reload(&config, &other, pools_have_pages, with_pages, error, sizeof error);
		assert_string_equal(error, expected);
		assert_int_equal(r, reloads[i].error ? -EINVAL : 0);
		free(with_pages);
	}
}

/* ---- stock ---- */

#define CLASSES(...)                                                                                         \
	{                                                                                                    \
		__VA_ARGS__                                                                                  \
	}
static const struct {
	uint64_t page_size, pages;
	const char *stock; /* NULL: none of its own */
	struct config_class classes[8];
} stocks[] = {
	{M2, 0, NULL, {{0}}},
	{M2, 1, NULL, {{1, 1}}},
	{M2, 2, NULL, {{1, 2}}},
	{M2, 3, NULL, {{1, 3}}},
	{M2, 4, NULL, CLASSES({2, 1}, {1, 2})},
	{M2, 5, NULL, CLASSES({2, 1}, {1, 3})},
	{M2, 63, NULL, CLASSES({31, 1}, {1, 32})},
	{M2, 64, NULL, CLASSES({32, 1}, {1, 32})},
	{M2, 128, NULL, CLASSES({64, 1}, {32, 1}, {1, 32})},
	{M2, 512, NULL, CLASSES({256, 1}, {32, 4}, {1, 128})},
	{M2, 513, NULL, CLASSES({256, 1}, {32, 4}, {1, 129})},
	{G1, 1, NULL, {{1, 1}}},
	{G1, 2, NULL, {{1, 2}}},
	{G1, 3, NULL, {{1, 3}}},
	{G1, 8, NULL, CLASSES({4, 1}, {1, 4})},
	{G1, 9, NULL, CLASSES({4, 1}, {1, 5})},
	{M2, 512, "2M*rest", {{1, 512}}},
	{M2, 512, "64M*2 2M*3 512M*1", CLASSES({256, 1}, {32, 2}, {1, 3})},
	{M2, 512, "64M*2 2M*rest 512M*1", CLASSES({256, 1}, {32, 2}, {1, 192})},
	{M2, 512, "2M*2 64M*rest", CLASSES({32, 15}, {1, 32})},
	{M2, 513, "64M*rest", CLASSES({32, 16}, {1, 1})},
	{M2, 31, "64M*rest", {{1, 31}}},
	{M2, 512, "1G*1 64M*rest", {{512, 1}}},
	{M2, 512, "1G*1", {{512, 1}}},
	{G1, 4, "2G*1 1G*rest", CLASSES({2, 1}, {1, 2})},
	{G1, 4, "3G*rest", CLASSES({3, 1}, {1, 1})},
};

static void expect_stock(const struct config_pool *pool, uint64_t pages, const struct config_class *expected)
{
	struct config_class classes[CONFIG_STOCK_MAX + 3];
	size_t count = config_get_stock(pool, pages, classes);

	for (size_t i = 0; i < count; i++) {
		assert_int_equal(classes[i].segment_pages, expected[i].segment_pages);
		assert_int_equal(classes[i].count, expected[i].count);
	}
	assert_int_equal(expected[count].count, 0);
}

static void test_stock(void **state)
{
	for (size_t i = 0; i < ARRAY_SIZE(stocks); i++) {
		char text[256], size[32];
		snprintf(size, sizeof size, "%llu", (unsigned long long)stocks[i].page_size);
		snprintf(text, sizeof text, "[pool a]\npage_size = %s\npages = %llu\n%s%s\n", size,
			(unsigned long long)stocks[i].pages, stocks[i].stock ? "stock = " : "",
			stocks[i].stock ? stocks[i].stock : "");
		read_text(text, &config);
		expect_stock(&config.pools[0], config.pools[0].pages, stocks[i].classes);
	}
}

/* The machine has less than the file says: the large ones first, never more than there is. */
/* As a command line gives it: what is refused changes nothing. */
static void test_set_stock(void **state)
{
	struct config_pool pool = {.page_size = 2 << 20, .pages = 512};
	char why[256], longest[300];

	assert_int_equal(config_set_stock(&pool, "64M*2 2M*rest", why, sizeof why), 0);
	assert_int_equal(pool.stock_count, 2);
	assert_int_equal(pool.stock[0].bytes, 64 << 20);
	assert_int_equal(config_set_stock(&pool, "2G*1", why, sizeof why), -EINVAL);
	assert_non_null(strstr(why, "stock = 2G*1, 1024 pages, more than the 512"));
	memset(longest, '1', sizeof longest - 1);
	longest[sizeof longest - 1] = 0;
	assert_int_equal(config_set_stock(&pool, longest, why, sizeof why), -EINVAL);
	assert_int_equal(pool.stock_count, 2);
}

static void test_stock_of_less(void **state)
{
	static const struct {
		uint64_t pages;
		struct config_class classes[5];
	} less[] = {
		{0, {{0}}},
		{1, {{1, 1}}},
		{31, {{1, 4}}},
		{40, CLASSES({32, 1}, {1, 4})},
		{255, CLASSES({32, 2}, {1, 4})},
		{256, {{256, 1}}},
		{300, CLASSES({256, 1}, {32, 1}, {1, 4})},
		{512, CLASSES({256, 1}, {32, 2}, {1, 4})},
	};

	read_text(POOL "stock = 2M*4 512M*1 64M*2\n", &config);
	for (size_t i = 0; i < ARRAY_SIZE(less); i++)
		expect_stock(&config.pools[0], less[i].pages, less[i].classes);
}

/* Whatever the pool: every class once, from large to small, no more than all pages; with `rest` or by default
 * all. */
static void test_stock_sums(void **state)
{
	static const char *const texts[] = {
		"mixed", "2M*rest", "6M*3 10M*2 4M*rest", "2M*1", "64M*1 32M*1 16M*1"};

	for (size_t t = 0; t < ARRAY_SIZE(texts); t++) {
		char text[256];
		snprintf(text, sizeof text, POOL "stock = %s\n", texts[t]);
		read_text(text, &config);
		for (uint64_t pages = 0; pages < 700; pages++) {
			struct config_class classes[CONFIG_STOCK_MAX + 3];
			size_t count = config_get_stock(&config.pools[0], pages, classes);
			uint64_t sum = 0;
			for (size_t i = 0; i < count; i++) {
				assert_true(classes[i].count > 0 && classes[i].segment_pages > 0);
				assert_true(
					i == 0 || classes[i - 1].segment_pages > classes[i].segment_pages);
				sum += classes[i].count * classes[i].segment_pages;
			}
			assert_true(sum <= pages);
			if (t <= 2)
				assert_int_equal(sum, pages);
		}
	}
}

/* ---- the table, the example file and the manual ---- */

struct row {
	char section[32], key[32], fallback[64], need[16], help[256];
};

static size_t read_reference(struct row rows[64])
{
	char *text, *rest;
	size_t length, count = 0;
	FILE *out = open_memstream(&text, &length);

	assert_non_null(out);
	config_write_reference(out);
	fclose(out);
	rest = text;
	for (char *line; (line = strsep(&rest, "\n")) && *line; count++) {
		char *fields[5];
		for (size_t i = 0; i < 5; i++)
			assert_non_null(fields[i] = strsep(&line, "\t"));
		assert_null(line);
		snprintf(rows[count].section, 32, "%s", fields[0]);
		snprintf(rows[count].key, 32, "%s", fields[1]);
		snprintf(rows[count].fallback, 64, "%s", fields[2]);
		snprintf(rows[count].need, 16, "%s", fields[3]);
		snprintf(rows[count].help, 256, "%s", fields[4]);
	}
	free(text);
	return count;
}

/* Where a key stands in a text, as section and key in the order of the file; -1 none left. */
struct mention {
	char section[32], key[32], fallback[64];
};

/* conf/hpzd.conf: "#[section]" or "[section]", "#key = default". */
static size_t read_example(struct mention mentions[64])
{
	char *text = temp_read(HPZ_SOURCE_ROOT, "conf/hpzd.conf", NULL), *rest = text;
	char section[32] = "";
	size_t count = 0;

	for (char *line; (line = strsep(&rest, "\n"));) {
		if (sscanf(line, "#[%31[a-z]", section) == 1 || sscanf(line, "[%31[a-z]", section) == 1)
			continue;
		if (line[0] != '#' || !islower((unsigned char)line[1]))
			continue;
		mentions[count].fallback[0] = 0;
		if (sscanf(line, "#%31[a-z_] = %63[^\n]", mentions[count].key, mentions[count].fallback) < 1)
			continue;
		strcpy(mentions[count++].section, section);
	}
	free(text);
	return count;
}

static bool is_active(const char *text, char first)
{
	for (const char *line = text; line; line = strchr(line, '\n')) {
		line += *line == '\n';
		if (*line == first)
			return true;
	}
	return false;
}

/* Every key of the table with its default, in its section, and no other; nothing is switched on. */
static void test_example(void **state)
{
	struct mention mentions[64];
	struct row rows[64];
	size_t row_count = read_reference(rows), count = read_example(mentions);
	char *text = temp_read(HPZ_SOURCE_ROOT, "conf/hpzd.conf", NULL);

	assert_int_equal(count, row_count);
	for (size_t i = 0; i < row_count; i++) {
		assert_string_equal(mentions[i].section, rows[i].section);
		assert_string_equal(mentions[i].key, rows[i].key);
		assert_string_equal(mentions[i].fallback, rows[i].fallback);
	}
	read_text(text, &config);
	assert_int_equal(config.pool_count, 0);
	for (const char *c = "abcdefghijklmnopqrstuvwxyz"; *c; c++)
		assert_false(is_active(text, *c));
	free(text);
}

/* Uncommented, the example is a file that works and says what is the default anyway. */
static void test_example_uncommented(void **state)
{
	char *text = temp_read(HPZ_SOURCE_ROOT, "conf/hpzd.conf", NULL), *to = text;

	for (char *from = text; *from; from++)
		if (!(*from == '#' && (from == text || from[-1] == '\n') &&
			    (islower((unsigned char)from[1]) || from[1] == '[')))
			*to++ = *from;
	*to = 0;
	read_text(text, &config);
	read_text(POOL, &other);
	assert_int_equal(config.pool_count, 1);
	assert_string_equal(config.socket, other.socket);
	assert_string_equal(config.socket_group, other.socket_group);
	assert_string_equal(config.run_dir, other.run_dir);
	assert_string_equal(config.clear.method, other.clear.method);
	assert_int_equal(config.log_level, other.log_level);
	assert_int_equal(config.pools[0].pages, 512);
	assert_int_equal(config.pools[0].max_pages, 512);
	assert_int_equal(config.pools[0].page_size, M2);
	assert_string_equal(config.pools[0].mount, "auto");
	assert_int_equal(config.pools[0].stock_count, 0);
	assert_true(config.pools[0].raise);
	free(text);
}

/* man/hpzd.conf.5: ".Ss Li [section]" or so, ".It Ic key" for each key in the order of the table. */
static void test_manual(void **state)
{
	char *text = temp_read(HPZ_SOURCE_ROOT, "man/hpzd.conf.5", NULL), *rest = text;
	struct row rows[64];
	size_t row_count = read_reference(rows), at = 0;
	char section[32] = "", key[32];

	for (char *line; (line = strsep(&rest, "\n"));) {
		if (sscanf(line, ".Ss [%31[a-z]", section) == 1)
			continue;
		if (sscanf(line, ".It Ic %31[a-z_]", key) != 1)
			continue;
		assert_true(at < row_count);
		assert_string_equal(section, rows[at].section);
		assert_string_equal(key, rows[at].key);
		at++;
	}
	assert_int_equal(at, row_count);
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_defaults, setup, teardown),
		cmocka_unit_test_setup_teardown(test_libvirt, setup, teardown),
		cmocka_unit_test_setup_teardown(test_access, setup, teardown),
		cmocka_unit_test_setup_teardown(test_qemu, setup, teardown),
		cmocka_unit_test_setup_teardown(test_clear, setup, teardown),
		cmocka_unit_test_setup_teardown(test_set_clear, setup, teardown),
		cmocka_unit_test_setup_teardown(test_pool_defaults, setup, teardown),
		cmocka_unit_test_setup_teardown(test_learning, setup, teardown),
		cmocka_unit_test_setup_teardown(test_everything, setup, teardown),
		cmocka_unit_test_setup_teardown(test_files_of_others, setup, teardown),
		cmocka_unit_test_setup_teardown(test_mounts, setup, teardown),
		cmocka_unit_test_setup_teardown(test_words, setup, teardown),
		cmocka_unit_test_setup_teardown(test_bad_files, setup, teardown),
		cmocka_unit_test_setup_teardown(test_nul_bytes, setup, teardown),
		cmocka_unit_test_setup_teardown(test_too_many, setup, teardown),
		cmocka_unit_test_setup_teardown(test_errors_without_a_line, setup, teardown),
		cmocka_unit_test_setup_teardown(test_noise, setup, teardown),
		cmocka_unit_test_setup_teardown(test_reload, setup, teardown),
		cmocka_unit_test_setup_teardown(test_stock, setup, teardown),
		cmocka_unit_test_setup_teardown(test_set_stock, setup, teardown),
		cmocka_unit_test_setup_teardown(test_stock_of_less, setup, teardown),
		cmocka_unit_test_setup_teardown(test_stock_sums, setup, teardown),
		cmocka_unit_test_setup_teardown(test_example, setup, teardown),
		cmocka_unit_test_setup_teardown(test_example_uncommented, setup, teardown),
		cmocka_unit_test_setup_teardown(test_manual, setup, teardown),
	};
	return cmocka_run_group_tests_name("config", tests, NULL, NULL);
}
