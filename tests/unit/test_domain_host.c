/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_domain_host.c - what a host's set-up for libvirt is found to be, and each verdict of it, true and
 * false. */
#include "temp.h"

#include "domain_host.h"

#define HOOK "/etc/libvirt/hooks/qemu.d/hpz"
#define CONF "etc/libvirt/qemu.conf"

static char dir[TEMP_PATH];
static struct hook_settings settings;
static struct domain domain;
static struct domain_host host;

static int setup(void **state)
{
	temp_make(dir);
	settings = (struct hook_settings){.is_enabled = true, .backing_dir = HOOK_DEFAULT_BACKING_DIR};
	domain = (struct domain){.name = "web1"};
	return 0;
}

static int teardown(void **state)
{
	temp_remove(dir);
	return 0;
}

static void make_hook(void)
{
	char path[PATH_MAX];

	temp_put(dir, &HOOK[1], "#!/bin/sh\n");
	temp_path(dir, &HOOK[1], path);
	assert_int_equal(chmod(path, 0755), 0);
}

/* All that is said, a line each, with what it is. */
static const char *judge(bool is_wrapped)
{
	static char said[8192];
	char text[DOMAIN_HOST_TEXT_MAX];
	bool is_problem;
	size_t at = 0, length = 0;

	said[0] = '\0';
	while (domain_host_next(&host, &settings, &domain, is_wrapped, &at, &is_problem, text))
		length += (size_t)snprintf(said + length, sizeof(said) - length, "%s: %s\n",
			is_problem ? "problem" : "note", text);
	return said;
}

static const char *look(bool is_wrapped)
{
	domain_host_read(dir, HOOK, &settings, &host);
	return judge(is_wrapped);
}

static void expect(const char *words, bool is_said)
{
	const char *said = look(false);

	if (!strstr(said, words) == is_said)
		fail_msg("%s: %s", words, said);
}

static void expect_wrapped(const char *words, bool is_said)
{
	const char *said = look(true);

	if (!strstr(said, words) == is_said)
		fail_msg("%s: %s", words, said);
}

static void test_hook(void **state)
{
	char path[PATH_MAX];

	expect("problem: libvirt has no hook " HOOK, true);
	temp_put(dir, &HOOK[1], "");
	temp_path(dir, &HOOK[1], path);
	expect("libvirt has no hook", false);
	expect("problem: libvirt cannot run its hook " HOOK, true);
	make_hook();
	expect("hook " HOOK, false);
	/* Its program was removed. */
	assert_int_equal(unlink(path), 0);
	assert_int_equal(symlink("/nonexistent/hpz-libvirt-hook", path), 0);
	expect("problem: libvirt cannot run its hook " HOOK, true);
	expect_wrapped("hook", false);
	/* None is to be there. */
	domain_host_read(dir, "", &settings, &host);
	assert_null(strstr(judge(false), "hook "));
}

/* Who may not look does not know that there is none. */
static void test_hidden_hook(void **state)
{
	char path[PATH_MAX];

	if (geteuid() != 0)
		return; /* skip() is a failure in the TAP of cmocka 1.1 */
	make_hook();
	temp_path(dir, "etc/libvirt", path);
	assert_int_equal(chmod(dir, 0711), 0);
	assert_int_equal(chmod(path, 0700), 0);
	assert_int_equal(seteuid(65534), 0);
	const char *said = look(false);
	assert_int_equal(seteuid(0), 0);
	assert_non_null(strstr(said, "note: only root can see what libvirt has there"));
	assert_null(strstr(said, "problem: libvirt"));
	expect("only root can see", false);
}

static void test_settings(void **state)
{
	expect("enabled = no", false);
	settings.is_enabled = false;
	expect("problem: [libvirt] of hpzd.conf says enabled = no", true);
	expect_wrapped("enabled", false);
}

static void test_version(void **state)
{
	static const struct {
		unsigned long version;
		bool is_said;
	} rows[] = {{0, false}, {6004999, true}, {6005000, false}, {9000000, false}};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		domain_host_read(dir, HOOK, &settings, &host);
		host.version = rows[i].version;
		assert_true(!strstr(judge(false), "problem: this libvirt looks for no hooks") ==
			    !rows[i].is_said);
	}
}

static void test_backing_dir(void **state)
{
	static const char words[] = "problem: memory_backing_dir of hpzd.conf is not that of qemu.conf, ";

	/* Nobody can say where the one of qemu.conf is. */
	strcpy(settings.backing_dir, "/huge/vm/libvirt/qemu");
	expect(words, false);
	temp_put(dir, CONF, "# memory_backing_dir = \"/other\"\n");
	expect("qemu.conf, which has none", true);
	temp_put(dir, CONF, "memory_backing_dir = \"/huge/vm\"\n");
	expect(words, false);
	temp_put(dir, CONF, "memory_backing_dir = \"/huge/vm/\"\n");
	expect(words, false);
	temp_put(dir, CONF, "memory_backing_dir = \"/huge/v\"\n");
	expect("qemu.conf, /huge/v\n", true);
	temp_put(dir, CONF, "");
	strcpy(settings.backing_dir, HOOK_DEFAULT_BACKING_DIR);
	expect(words, false);
	/* No machine has it on huge pages. */
	snprintf(settings.backing_dir, sizeof(settings.backing_dir), "%.200s/not/there", dir);
	expect("note: memory_backing_dir of qemu.conf is not on hugetlbfs", true);
	assert_false(host.is_on_huge || host.is_on_pool || host.is_the_mount);
	/* What is said where it is on huge pages, the tests with a libvirtd see, too. */
	host.is_on_huge = true;
	assert_null(strstr(judge(false), "mount"));
	settings.pool_count = 1;
	assert_non_null(strstr(judge(false), "note: on the mount of no pool"));
	host.is_on_pool = true;
	assert_null(strstr(judge(false), "mount"));
	host.is_the_mount = true;
	assert_non_null(
		strstr(judge(false), "note: memory_backing_dir of qemu.conf is a pool's mount itself"));
}

/* Where the directory is that pools are mounted at: any two directories will do. */
static void test_places(void **state)
{
	char text[TEMP_PATH + 64];

	settings.pool_count = 1;
	snprintf(settings.pools[0].mount, sizeof(settings.pools[0].mount), "%.200s", dir);
	snprintf(settings.backing_dir, sizeof(settings.backing_dir), "%.200s/vm/libvirt/qemu", dir);
	snprintf(text, sizeof(text), "memory_backing_dir = \"%.200s/vm\"\n", dir);
	temp_put(dir, CONF, text);
	look(false);
	assert_true(host.is_on_pool && !host.is_the_mount);
	snprintf(text, sizeof(text), "memory_backing_dir = \"%.200s\"\n", dir);
	temp_put(dir, CONF, text);
	look(false);
	assert_true(host.is_on_pool && host.is_the_mount);
	strcpy(settings.pools[0].mount, "/proc");
	look(false);
	assert_false(host.is_on_pool || host.is_the_mount);
}

static void test_owner(void **state)
{
	static const char words[] = "problem: dynamic_ownership = 0";

	expect(words, false);
	temp_put(dir, CONF, "dynamic_ownership = 1\n");
	expect(words, false);
	temp_put(dir, CONF, "dynamic_ownership = 0 # ours\n");
	expect(words, true);
	settings.has_user = true;
	expect(words, false);
	settings.has_user = false;
	strcpy(domain.dac_label, "+64055:+64055");
	expect(words, false);
	domain.dac_label[0] = '\0';
	temp_put(dir, CONF, "dynamic_ownership=0\nuser = \"root\"\n");
	expect(words, false);
}

static void test_apparmor(void **state)
{
	static const char hook[] = "problem: AppArmor does not let libvirtd run the hook",
			  guest[] = "problem: AppArmor does not let guests run hpz-qemu";

	expect(hook, false);
	temp_put(dir, "sys/module/apparmor/parameters/enabled", "Y\n");
	temp_put(dir, "sys/kernel/security/apparmor/profiles", "man (enforce)\nlibvirtd (complain)\n");
	expect(hook, false);
	temp_put(dir, "sys/kernel/security/apparmor/profiles", "man (enforce)\nlibvirtd (enforce)\n");
	expect(hook, true);
	expect(guest, false);
	expect_wrapped(guest, true);
	expect_wrapped(hook, false);
	temp_put(dir, "etc/apparmor.d/local/usr.sbin.libvirtd", "# /usr/libexec/hpz/hpz-libvirt-hook PUx,\n");
	expect(hook, true);
	temp_put(dir, "etc/apparmor.d/local/usr.sbin.libvirtd", "/usr/libexec/hpz/hpz-libvirt-hook PUx,\n");
	expect(hook, false);
	temp_put(dir, CONF, "security_default_confined = 0\n");
	expect_wrapped(guest, false);
	temp_put(dir, CONF, "security_driver = \"none\"\n");
	expect_wrapped(guest, false);
	temp_put(dir, CONF, "security_driver = \"apparmor\"\nsecurity_default_confined = 1\n");
	expect_wrapped(guest, true);
	temp_put(dir, "etc/apparmor.d/local/abstractions/libvirt-qemu", "/usr/libexec/hpz/hpz-qemu* rmix,\n");
	expect_wrapped(guest, false);
	temp_put(dir, "sys/module/apparmor/parameters/enabled", "N\n");
	temp_put(dir, "etc/apparmor.d/local/usr.sbin.libvirtd", "");
	expect(hook, false);
}

static void test_selinux(void **state)
{
	expect("SELinux", false);
	temp_put(dir, "sys/fs/selinux/enforce", "0");
	expect("SELinux", false);
	temp_put(dir, "sys/fs/selinux/enforce", "1");
	expect("note: SELinux enforces its policy", true);
	expect_wrapped("note: SELinux enforces its policy", true);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_hook),
		TEST(test_hidden_hook),
		TEST(test_settings),
		TEST(test_version),
		TEST(test_backing_dir),
		TEST(test_places),
		TEST(test_owner),
		TEST(test_apparmor),
		TEST(test_selinux),
	};

	return cmocka_run_group_tests_name("domain_host", tests, NULL, NULL);
}
