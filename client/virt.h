/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * virt.h - libvirt: a connection that comes back, and its domains.
 * What blocks (opening, listing) is for threads of libuv's pool: a libvirtd that stands still must not stop
 * the loop. Owns what libvirt gave; knows nothing of leases.
 */
#ifndef HPZ_VIRT_H
#define HPZ_VIRT_H

#include <libvirt/libvirt.h>
#include <uv.h>

#include "util.h"

#define VIRT_DEFAULT_URI "qemu:///system"

/* What libvirt said about the last call of this thread that failed; valid until the next one. */
const char *virt_get_error(void);
/* Errors are ours to say, and are not printed by libvirt. */
void virt_silence(void);

/* ---- domains ---- */

struct virt_domain {
	char uuid[VIR_UUID_STRING_BUFLEN]; /* lower case */
	char *name;
	bool is_active; /* starting, running, paused, or ending; or libvirt could not say */
};

struct virt_domains {
	struct virt_domain *items;
	size_t count;
};

/* Blocks. 0 or -EIO; see virt_get_error(). */
int virt_list_domains(virConnectPtr connection, struct virt_domains *ret_domains);
void virt_free_domains(struct virt_domains *domains);
/* NULL: it has none of that uuid. */
const struct virt_domain *virt_find_domain(const struct virt_domains *domains, const char *uuid);

/* ---- the connection, in the loop's thread ---- */

struct virt_handlers {
	void (*connected)(void *user);
	void (*lost)(
		const char *why, void *user); /* or not to be had; said once for each time it was there */
	void (*ended)(void *user);            /* a domain was stopped, crashed or forgotten */
	void *user;
};

struct virt {
	uv_loop_t *loop;
	const char *uri;
	struct virt_handlers handlers;
	virConnectPtr connection; /* NULL: there is none */
	virConnectPtr opened;     /* by the thread that opens */
	virConnectPtr old;        /* lost, to be closed by that thread */
	uv_work_t work;
	uv_timer_t timer;  /* until the next try */
	uv_async_t closed; /* says that a connection may have been */
	uint64_t delay_ms;
	bool is_silent;
	char error[256];
};

/* Connects as soon as it can, and again whenever it was lost, for as long as the process lives: a thread may
 * stand in a call that libvirtd does not answer. virt_loop_init() comes first. `uri` is
 * borrowed. 0 or negative errno. */
int virt_open(struct virt *virt, uv_loop_t *loop, const char *uri, const struct virt_handlers *handlers);
/* A reference for another thread, which gives it back with virConnectClose(); NULL: not connected. */
virConnectPtr virt_dup_connection(struct virt *virt);

#endif
