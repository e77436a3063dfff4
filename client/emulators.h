/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * emulators.h - which domains have a process, as the command lines of all processes say.
 * Whoever reads a command line waits for the memory of that process, and for its locks: it can be held there,
 * also beyond SIGKILL. So a child reads, this program again, until a deadline; nobody waits for it longer.
 */
#ifndef HPZ_EMULATORS_H
#define HPZ_EMULATORS_H

#include <sys/types.h>

#include "util.h"

/* A program that calls emulators_read() calls emulators_tell() when this is its first argument. */
#define EMULATORS_WORD "tell-emulators"
/* The child: what it finds goes to standard output. Returns the exit status. */
int emulators_tell(void);

#define EMULATORS_UUID_SIZE 37
struct emulator {
	pid_t pid;
	char uuid[EMULATORS_UUID_SIZE]; /* lower case */
};

struct emulators {
	struct emulator *items;
	size_t count;
};

/*
 * All of them. 0 or negative errno, which is not the same as none; -ETIMEDOUT: *ret_held is the process that
 * let its command line not be read, 0: it is not known. Blocks for some seconds at most; one call at a time.
 */
int emulators_read(struct emulators *ret_emulators, pid_t *ret_held);
void emulators_deinit(struct emulators *emulators);
/* Whether one of them is the domain's. */
bool emulators_have(const struct emulators *emulators, const char *uuid);

/*
 * The words of a command line as /proc has it, each with its NUL: the next domain's uuid at or behind *at,
 * and moves *at behind it; false: there is none.
 */
bool emulators_next_uuid(const char *words, size_t length, size_t *at, char ret_uuid[EMULATORS_UUID_SIZE]);

#endif
