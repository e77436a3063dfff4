/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * domain_run.h - runs hpzctl domain in a child, on libvirt's driver that needs no libvirtd, without hpzd:
 * what it says and how it ends. Header only.
 */
#ifndef HPZ_TEST_DOMAIN_RUN_H
#define HPZ_TEST_DOMAIN_RUN_H

#include "temp.h"

#include <sys/wait.h>

#include "domain.h"

#define DOMAIN_RUN_UUID "11111111-2222-3333-4444-5555555555ab"

static char domain_run_dir[TEMP_PATH], domain_run_said[65536];

static inline int domain_run_setup(void **state)
{
	temp_make(domain_run_dir);
	/* Nobody is there, and nothing is configured. */
	char path[PATH_MAX];
	temp_path(domain_run_dir, "none", path);
	setenv("HPZ_SOCKET", path, 1);
	setenv("HPZ_CONFIG", path, 1);
	return 0;
}

static inline int domain_run_teardown(void **state)
{
	temp_remove(domain_run_dir);
	return 0;
}

/* A URI of a host that has a domain "web1", which runs, with this in it. Valid until the next call. */
static inline const char *domain_run_make(const char *inner)
{
	static char uri[TEMP_PATH + 32];
	char xml[4096];

	snprintf(xml, sizeof(xml),
		"<node><domain type='test'><name>web1</name><uuid>" DOMAIN_RUN_UUID
		"</uuid><memory unit='MiB'>64</memory>%s<os><type>hvm</type></os></domain></node>",
		inner);
	temp_put(domain_run_dir, "node.xml", xml);
	snprintf(uri, sizeof(uri), "test://%s/node.xml", domain_run_dir);
	return uri;
}

/* The words end with NULL. Returns the exit status; in domain_run_said is what was printed, errors included.
 */
static inline int domain_run(char *const words[])
{
	FILE *out = tmpfile();
	int count = 0, status;

	assert_non_null(out);
	while (words[count])
		count++;
	fflush(NULL);
	pid_t child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		dup2(fileno(out), STDOUT_FILENO);
		dup2(fileno(out), STDERR_FILENO);
		dup2(open("/dev/null", O_RDONLY | O_CLOEXEC), STDIN_FILENO);
		status = domain_main(count, (char **)words);
		fflush(NULL);
		_exit(status);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status));
	ssize_t length = pread(fileno(out), domain_run_said, sizeof(domain_run_said) - 1, 0);
	assert_true(length >= 0);
	domain_run_said[length] = '\0';
	fclose(out);
	return WEXITSTATUS(status);
}
#define DOMAIN_RUN(...) domain_run((char *const[]){__VA_ARGS__, NULL})
#define W(text)         ((char *)(text))

static inline void domain_run_expect(const char *words)
{
	if (!strstr(domain_run_said, words))
		fail_msg("%s is not in: %s", words, domain_run_said);
}

#define DOMAIN_RUN_TEST(name) cmocka_unit_test_setup_teardown(name, domain_run_setup, domain_run_teardown)

#endif
