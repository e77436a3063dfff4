/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * emulators.h - which domains have a process, as their command lines say, whatever libvirtd thinks.
 * A domain of another libvirtd, or one that libvirtd lost when it died, has a process that runs it.
 */
#ifndef HPZ_EMULATORS_H
#define HPZ_EMULATORS_H

#include <sys/types.h>

#include "util.h"

/* The words of a command line as /proc has it, each with its NUL. Whether it is a domain's of that uuid. */
bool emulators_has_uuid(const char *words, size_t length, const char *uuid);
/*
 * The directory of the files that it has its memory in: of the first "mem-path" whose last part is `alias`,
 * or any with NULL. False: there is none, or it is too long. Pure, as the other one.
 */
bool emulators_get_directory(
	const char *words, size_t length, const char *alias, char *ret_path, size_t capacity);

/* The process of a domain; 0: there is none; or negative errno. */
pid_t emulators_find(const char *uuid);
/* A process's command line, as above; *ret_words is the caller's. 0 or negative errno. */
int emulators_read(pid_t pid, char **ret_words, size_t *ret_length);

#endif
