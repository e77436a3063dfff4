/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * huge.h - real huge pages for a test: a hugetlbfs mount of its own, in a mount namespace of its own, so that
 * neither the mount nor a page outlives the process. What the kernel's page pool was raised by is given back
 * as a difference.
 */
#ifndef HPZ_TEST_HUGE_H
#define HPZ_TEST_HUGE_H

#include "temp.h"
#include <inttypes.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include "host.h"
#include "log.h"
#include "segment.h"

#define HUGE_PAGE ((uint64_t)2 << 20)
#define HUGE_SKIP 77

struct huge {
	struct host host;
	char dir[TEMP_PATH];
	uint64_t pages; /* that may be used */
	uint64_t raised;
};

static struct huge huge;

static inline uint64_t huge_count_free(void)
{
	struct host_counters now = {0};
	host_get_counters(&huge.host, 0, HUGE_PAGE, &now);
	return now.free > now.resv ? now.free - now.resv : 0;
}

static inline void huge_skip(const char *why)
{
	printf("%s\n", why);
	exit(HUGE_SKIP);
}

static inline void huge_close(void)
{
	uint64_t before, after;

	if (!huge.dir[0])
		return;
	umount2(huge.dir, MNT_DETACH);
	rmdir(huge.dir);
	huge.dir[0] = '\0';
	/* The last descriptor of a child may go a moment after the child. */
	for (int i = 0; huge.raised > 0 && i < 100; i++) {
		host_add_nr(&huge.host, 0, HUGE_PAGE, -(int64_t)huge.raised, &before, &after);
		huge.raised -= MIN(huge.raised, before - after);
		if (huge.raised > 0)
			usleep(20000);
	}
	if (huge.raised > 0)
		printf("%" PRIu64 " pages could not be given back\n", huge.raised);
	host_deinit(&huge.host);
}

/* Mounts, and sees to it that so many pages are free; with fewer than `least` the program ends as skipped. */
static inline void huge_open(uint64_t wanted, uint64_t least)
{
	char options[64];
	uint64_t before, after;

	log_init("test");
	log_set_level(LOG_LEVEL_ERROR);
	if (geteuid() != 0)
		huge_skip("only root may mount hugetlbfs");
	if (host_init(&huge.host, NULL) < 0 || !host_has_page_size(&huge.host, HUGE_PAGE))
		huge_skip("the kernel offers no pages of 2 MiB");
	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		huge_skip("no mount namespace of one's own can be had");
	temp_make(huge.dir);
	snprintf(options, sizeof options, "pagesize=%" PRIu64 ",mode=0711", HUGE_PAGE);
	if (mount("hpz-test", huge.dir, "hugetlbfs", 0, options) < 0)
		huge_skip("hugetlbfs cannot be mounted");
	atexit(huge_close);
	uint64_t free_pages = huge_count_free();
	if (free_pages < wanted &&
		host_add_nr(&huge.host, 0, HUGE_PAGE, (int64_t)(wanted - free_pages), &before, &after) == 0)
		huge.raised = after - before;
	huge.pages = MIN(huge_count_free(), wanted);
	if (huge.pages < least) {
		printf("%" PRIu64 " pages of 2 MiB are needed, %" PRIu64 " can be had\n", least, huge.pages);
		exit(HUGE_SKIP);
	}
	if (huge.pages < wanted)
		printf("%" PRIu64 " pages instead of %" PRIu64 "\n", huge.pages, wanted);
}

static inline struct segment_store *huge_open_store(void)
{
	struct segment_store *store = NULL;
	const char *why = "";
	int r = segment_open_store(huge.dir, HUGE_PAGE, 0, &store, &why);

	if (r < 0)
		fail_msg("%s: %s", why, strerror(-r));
	return store;
}

#endif
