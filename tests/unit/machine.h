/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * machine.h - a machine of the test's own with one node and pages of 4096 bytes (or MACHINE_PAGE): its
 * counters are files that the test writes. Set before harness_open(), so that hpzd runs on it.
 */
#ifndef HPZ_TEST_MACHINE_H
#define HPZ_TEST_MACHINE_H

#include "harness.h"

#include <inttypes.h>

#define MACHINE_BOOT_ID "01234567-89ab-cdef-0123-456789abcdef" /* the harness's journal has it, too */
#ifndef MACHINE_PAGE
#define MACHINE_PAGE "4kB"
#endif
#define MACHINE_COUNTERS "sys/kernel/mm/hugepages/hugepages-" MACHINE_PAGE "/"

struct machine {
	char root[TEMP_PATH];
	struct host host;
};

static struct machine machine;

/* In one step: another thread of hpzd's may be reading it. */
static inline void machine_put(const char *counter, uint64_t number)
{
	char name[128], text[32], from[PATH_MAX], to[PATH_MAX];

	snprintf(name, sizeof name, MACHINE_COUNTERS "%s", counter);
	snprintf(text, sizeof text, "%" PRIu64 "\n", number);
	temp_put(machine.root, "number", text);
	temp_path(machine.root, "number", from);
	temp_path(machine.root, name, to);
	assert_int_equal(rename(from, to), 0);
}

static inline uint64_t machine_get(const char *counter)
{
	char name[128];

	snprintf(name, sizeof name, MACHINE_COUNTERS "%s", counter);
	char *text = temp_read(machine.root, name, NULL);
	uint64_t number = strtoull(text, NULL, 10);
	free(text);
	return number;
}

static inline void machine_open(uint64_t nr)
{
	temp_make(machine.root);
	temp_put(machine.root, "proc/sys/kernel/random/boot_id", MACHINE_BOOT_ID "\n");
	machine_put("nr_hugepages", nr);
	machine_put("free_hugepages", nr);
	machine_put("resv_hugepages", 0);
	machine_put("surplus_hugepages", 0);
	assert_int_equal(host_init(&machine.host, machine.root), 0);
	harness_host = &machine.host;
}

static inline void machine_close(void)
{
	harness_host = NULL;
	host_deinit(&machine.host);
	temp_remove(machine.root);
}

#endif
