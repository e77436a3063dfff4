/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* virt.c - libvirt: a connection that comes back, and its domains. */
#include "virt.h"

#include <libvirt/virterror.h>

/* From the first try to the last: soon after a restart of libvirtd, seldom where there is none. */
#define VIRT_DELAY_MS     1000u
#define VIRT_DELAY_MAX_MS 60000u

/* ---- errors ---- */

static void virt_ignore_error(void *user, virErrorPtr error)
{
}

void virt_silence(void)
{
	virSetErrorFunc(NULL, virt_ignore_error);
}

const char *virt_get_error(void)
{
	return virGetLastErrorMessage();
}

/* ---- domains ---- */

static bool virt_is_no_domain(void)
{
	const virError *error = virGetLastError();

	return error && error->code == VIR_ERR_NO_DOMAIN;
}

static int virt_read_domain(virDomainPtr from, struct virt_domain *ret_domain)
{
	const char *name = virDomainGetName(from);
	int is_active = virDomainIsActive(from);

	/* It may be gone since it was listed; else not to know is not the same as no. */
	ret_domain->is_active = is_active > 0 || (is_active < 0 && !virt_is_no_domain());
	if (virDomainGetUUIDString(from, ret_domain->uuid) < 0 || !name)
		return -EIO;
	ret_domain->name = strdup(name);
	return ret_domain->name ? 0 : -ENOMEM;
}

int virt_list_domains(virConnectPtr connection, struct virt_domains *ret_domains)
{
	struct virt_domains domains = {0};
	virDomainPtr *list = NULL;
	int count = virConnectListAllDomains(connection, &list, 0);

	if (count < 0)
		return -EIO;
	domains.items = calloc((size_t)count + 1, sizeof(*domains.items));
	int r = domains.items ? 0 : -ENOMEM;
	for (int i = 0; i < count; i++) {
		if (r == 0)
			r = virt_read_domain(list[i], &domains.items[domains.count]);
		domains.count += r == 0;
		virDomainFree(list[i]);
	}
	free(list);
	if (r < 0)
		virt_free_domains(&domains);
	else
		*ret_domains = domains;
	return r;
}

void virt_free_domains(struct virt_domains *domains)
{
	for (size_t i = 0; i < domains->count; i++)
		free(domains->items[i].name);
	free(domains->items);
	*domains = (struct virt_domains){0};
}

const struct virt_domain *virt_find_domain(const struct virt_domains *domains, const char *uuid)
{
	for (size_t i = 0; i < domains->count; i++) {
		if (strcmp(domains->items[i].uuid, uuid) == 0)
			return &domains->items[i];
	}
	return NULL;
}

/* ---- the connection ---- */

static void virt_on_closed(virConnectPtr connection, int reason, void *user);

static int virt_on_lifecycle(virConnectPtr connection, virDomainPtr domain, int event, int detail, void *user)
{
	struct virt *virt = user;

	if (event == VIR_DOMAIN_EVENT_STOPPED || event == VIR_DOMAIN_EVENT_CRASHED ||
		event == VIR_DOMAIN_EVENT_UNDEFINED)
		virt->handlers.ended(virt->handlers.user);
	return 0;
}

/* Reading is all that watching needs, and it is what the sandbox allows. */
static virConnectPtr virt_open_connection(struct virt *virt)
{
	virConnectPtr connection = virConnectOpenReadOnly(virt->uri);

	if (!connection)
		return NULL;
	/* A driver within this process is never lost, and says that it cannot tell. */
	virConnectRegisterCloseCallback(connection, virt_on_closed, virt, NULL);
	if (virConnectDomainEventRegisterAny(connection, NULL, VIR_DOMAIN_EVENT_ID_LIFECYCLE,
		    VIR_DOMAIN_EVENT_CALLBACK(virt_on_lifecycle), virt, NULL) >= 0)
		return connection;
	virConnectClose(connection);
	return NULL;
}

static void virt_work(uv_work_t *work)
{
	struct virt *virt = CONTAINER_OF(work, struct virt, work);

	if (virt->old)
		virConnectClose(virt->old);
	virt->old = NULL;
	virt->opened = virt_open_connection(virt);
	if (!virt->opened)
		snprintf(virt->error, sizeof(virt->error), "%s", virt_get_error());
}

static void virt_on_timer(uv_timer_t *timer);

static void virt_try_later(struct virt *virt)
{
	uv_timer_start(&virt->timer, virt_on_timer, virt->delay_ms, 0);
	virt->delay_ms = MIN(virt->delay_ms * 2, VIRT_DELAY_MAX_MS);
}

static void virt_on_opened(uv_work_t *work, int status)
{
	struct virt *virt = CONTAINER_OF(work, struct virt, work);

	/* Lost before it was ours: nobody was told. */
	if (virt->opened && virConnectIsAlive(virt->opened) != 1) {
		virt->old = steal_pointer(&virt->opened);
		snprintf(virt->error, sizeof(virt->error), "libvirtd closed the connection");
	}
	virt->connection = steal_pointer(&virt->opened);
	if (virt->connection) {
		virt->delay_ms = VIRT_DELAY_MS;
		virt->is_silent = false;
		virt->handlers.connected(virt->handlers.user);
		return;
	}
	if (!virt->is_silent)
		virt->handlers.lost(virt->error, virt->handlers.user);
	virt->is_silent = true;
	virt_try_later(virt);
}

static void virt_on_timer(uv_timer_t *timer)
{
	struct virt *virt = CONTAINER_OF(timer, struct virt, timer);

	if (uv_queue_work(virt->loop, &virt->work, virt_work, virt_on_opened) < 0)
		virt_try_later(virt);
}

/* libvirt calls this in whatever thread reads from the socket, as one that looks: here the loop is only told.
 */
static void virt_on_closed(virConnectPtr connection, int reason, void *user)
{
	struct virt *virt = user;

	uv_async_send(&virt->closed);
}

/* libvirt does not connect again by itself. One that was lost before it was ours virt_on_opened() sees. */
static void virt_on_told(uv_async_t *async)
{
	struct virt *virt = CONTAINER_OF(async, struct virt, closed);

	if (!virt->connection || virConnectIsAlive(virt->connection) == 1)
		return;
	virt->old = steal_pointer(&virt->connection);
	virt->is_silent = true;
	virt->handlers.lost("libvirtd closed the connection", virt->handlers.user);
	virt_try_later(virt);
}

int virt_open(struct virt *virt, uv_loop_t *loop, const char *uri, const struct virt_handlers *handlers)
{
	*virt = (struct virt){.loop = loop, .uri = uri, .handlers = *handlers, .delay_ms = VIRT_DELAY_MS};
	int r = uv_async_init(loop, &virt->closed, virt_on_told);
	if (r < 0)
		return r;
	/* Alone it is no reason to go on. */
	uv_unref((uv_handle_t *)&virt->closed);
	r = uv_timer_init(loop, &virt->timer);
	return r < 0 ? r : uv_timer_start(&virt->timer, virt_on_timer, 0, 0);
}

virConnectPtr virt_dup_connection(struct virt *virt)
{
	return virt->connection && virConnectRef(virt->connection) == 0 ? virt->connection : NULL;
}
