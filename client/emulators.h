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
/* The process of a domain; 0: there is none; or negative errno. */
pid_t emulators_find(const char *uuid);

#endif
