/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * virt_loop.h - libvirt's event loop, on libuv.
 * libvirt has one such implementation for a whole process, so this file has state of its own. libvirt may
 * call from any thread; its callbacks run in the loop's thread only.
 */
#ifndef HPZ_VIRT_LOOP_H
#define HPZ_VIRT_LOOP_H

#include <uv.h>

/* Once, from the loop's thread and before anything else of libvirt; for as long as the process lives. 0 or
 * negative errno. */
int virt_loop_init(uv_loop_t *loop);

#endif
