/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * qemu_args.h - reads and rewrites the command line of a QEMU, so that its memory is a file of ours.
 * Pure: no I/O. What it does not understand for certain it leaves alone, and says why: a VM that starts
 * without hpz must start with it.
 */
#ifndef HPZ_QEMU_ARGS_H
#define HPZ_QEMU_ARGS_H

#include <stdbool.h>
#include <stdint.h>

#define QEMU_ARGS_NAME 128

struct qemu_args {
	const char *left_alone;        /* why it must not be rewritten; static. NULL: it may be */
	uint64_t memory;               /* bytes, as QEMU will count them; 0: cannot be read */
	bool has_memory;               /* -m says so; else it is QEMU's default */
	unsigned backend;              /* a number such that the command names no hpz<backend> */
	char name[QEMU_ARGS_NAME + 1]; /* of the guest, from -name; "" none, or too long */
};

/* Whether the last part of a path is qemu-kvm or begins with qemu-system-. */
bool qemu_args_is_qemu(const char *command);

/* Reads a command line, argv[0] being the program. */
void qemu_args_read(char *const argv[], struct qemu_args *ret_args);

/*
 * A copy with its memory in the file `mem_path`. NULL: no memory. qemu_args_free() frees it.
 */
char **qemu_args_rewrite(char *const argv[], const struct qemu_args *args, const char *mem_path);

/* Whether `marker` is anywhere in the arguments, the program's name included. */
bool qemu_args_contain(char *const argv[], const char *marker);

/* A copy with `text` for each `marker`. NULL: no memory. qemu_args_free() frees it. */
char **qemu_args_expand(char *const argv[], const char *marker, const char *text);

void qemu_args_free(char **argv);

#endif
