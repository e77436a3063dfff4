/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * domain_memory.c - hpzctl domain attach-memory and detach-memory.
 *
 * libvirt calls no hook when a memory device is plugged, so this does what the hook does at a start: a lease,
 * its file under the device's name in the domain's directory, and the door closed once QEMU has it. Dying in
 * between leaves a lease that nobody opens, which ends after a minute, or one in use, which ends with QEMU.
 */
#include "domain.h"

#include <inttypes.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "domain_dimm.h"
#include "hook_place.h"
#include "lease_key.h"
#include "leases.h"
#include "output.h"
#include "size.h"

#define DOMAIN_OPEN_TIMEOUT_MS 60000 /* from the lease to QEMU's open() */
#define DOMAIN_DETACH_WAIT_MS  30000 /* a guest moves what is in the memory away first */
#define DOMAIN_DETACH_LOOK_MS  100

struct domain_memory {
	const char *uri, *name;
	uint64_t size, page_size, cell; /* cell: the guest's node */
	int64_t wait_ms;
};

/* A domain that runs, and what libvirt and the hook know of it. */
struct domain_running {
	virConnectPtr connection;
	virDomainPtr domain;
	char *xml;
	struct domain *read;
	struct domain_plan *plan;
	struct hook_settings *settings;
};

static void domain_memory_deinit(struct domain_running *running)
{
	free(running->settings);
	free(running->plan);
	free(running->read);
	free(running->xml);
	domain_cleanup_domain(&running->domain);
	domain_cleanup_connection(&running->connection);
}
#define _cleanup_running_ __attribute__((cleanup(domain_memory_deinit)))

static int domain_memory_open(const struct domain_memory *wanted, struct domain_running *running)
{
	running->read = malloc(sizeof(*running->read));
	running->plan = malloc(sizeof(*running->plan));
	running->settings = malloc(sizeof(*running->settings));
	if (!running->read || !running->plan || !running->settings) {
		hpzctl_say("out of memory");
		return HPZCTL_FAILED;
	}
	int status = domain_connect(wanted->uri, false, &running->connection);
	if (!status)
		status = domain_find(running->connection, wanted->name, &running->domain);
	if (status)
		return status;
	if (virDomainIsActive(running->domain) <= 0) {
		hpzctl_say("domain %s does not run; change its XML instead", wanted->name);
		return HPZCTL_FAILED;
	}
	status = domain_read(running->domain, 0, &running->xml, running->read);
	if (status)
		return status;
	domain_xml_plan(running->read, running->plan);
	hook_settings_read(NULL, running->settings);
	return HPZCTL_DONE;
}

static void domain_memory_report(const struct hpzctl *ctl, const struct domain_running *running,
	const char *what, const char *alias, uint64_t size, uint64_t lease)
{
	struct output_json json;
	char text[SIZE_TEXT];

	if (!ctl->json) {
		printf("%s of domain ", alias);
		output_print_text(stdout, running->read->name);
		printf(": %s %s, lease %" PRIu64 "\n", size_format(size, text), what, lease);
		return;
	}
	output_json_init(&json, stdout);
	output_json_open_object(&json, NULL);
	output_json_text(&json, "schema", "hpz-domain-memory-1");
	output_json_text(&json, "name", running->read->name);
	output_json_text(&json, "uuid", running->read->uuid);
	output_json_text(&json, "dimm", alias);
	output_json_text(&json, "done", what);
	output_json_number(&json, "size", size);
	if (lease)
		output_json_number(&json, "lease", lease);
	else
		output_json_null(&json, "lease");
	output_json_close(&json);
}

/* ---- its place, and its lease ---- */

struct domain_place {
	int directory; /* the domain's */
	char start[LEASE_KEY_START_SIZE];
	unsigned slot;
	char alias[DOMAIN_ALIAS_MAX + 1];
	char key[HPZ_KEY_MAX + 1]; /* of its lease; "": there can be none */
	struct hook_file file;
};

static int domain_memory_open_place(const struct domain_running *running, struct domain_place *place)
{
	place->directory = domain_open_directory(running->settings, running->read);
	if (place->directory < 0) {
		hpzctl_say("cannot open the directory of domain %s in %s: %s; is memory_backing_dir the same "
			   "in hpzd.conf and qemu.conf?",
			running->read->name, running->settings->backing_dir, strerror(-place->directory));
		return HPZCTL_FAILED;
	}
	hook_place_get_start(place->directory, place->start);
	return HPZCTL_DONE;
}

/* A device of an earlier start of the domain has another key. */
static void domain_memory_set_alias(
	const struct domain_running *running, struct domain_place *place, const char *alias)
{
	snprintf(place->alias, sizeof(place->alias), "%s", alias);
	if (!lease_key_format(running->read->uuid, alias, place->start, place->key))
		place->key[0] = '\0';
}

/* 0: there is none. */
static uint64_t domain_memory_find_lease(struct hpz *hpz, const char *key, uint64_t *ret_size)
{
	_cleanup_list_ struct hpz_lease_list *list = NULL;
	struct hpz_lease_info info = {.struct_size = sizeof(info)};

	if (!*key || hpz_list(hpz, &list))
		return 0;
	for (size_t i = 0; i < hpz_list_get_count(list); i++) {
		if (hpz_list_get_lease(list, i, &info) || info.uid != getuid() ||
			strcmp(info.key, key) != 0 ||
			(info.state != HPZ_STATE_LEASED && info.state != HPZ_STATE_OFFERED))
			continue;
		*ret_size = info.size;
		return info.id;
	}
	return 0;
}

/* ---- attach ---- */

/* Of Linux on x86: a memory device that is no multiple of it is not used. */
#define DOMAIN_BLOCK_SIZE (128ull << 20)

static void domain_memory_warn(const struct domain_memory *wanted, const struct domain_running *running)
{
	char size[SIZE_TEXT];

	if (wanted->size % DOMAIN_BLOCK_SIZE && strcmp(running->read->arch, "x86_64") == 0)
		hpzctl_say("a Linux guest uses whole blocks of 128 MiB, in large guests of up to 2 GiB: it "
			   "may leave all of %s alone",
			size_format(wanted->size, size));
}

/* Until the directory is closed no other attach-memory chooses a slot; the XML is as it is from then on. */
static int domain_memory_lock_slots(struct domain_running *running, const struct domain_place *place)
{
	if (flock(place->directory, LOCK_EX | LOCK_NB) < 0) {
		hpzctl_say("somebody else attaches memory to domain %s, or keeps its directory locked: %s",
			running->read->name, strerror(errno));
		return HPZCTL_LATER;
	}
	free(running->xml);
	running->xml = NULL;
	return domain_read(running->domain, 0, &running->xml, running->read);
}

static int domain_memory_choose_slot(struct domain_running *running, struct domain_place *place)
{
	char alias[DOMAIN_ALIAS_MAX + 1];

	int status = domain_memory_lock_slots(running, place);
	if (status)
		return status;
	int slot = domain_dimm_choose_slot(running->xml, strlen(running->xml));
	if (slot < 0) {
		hpzctl_say("domain %s has no free slot for memory", running->read->name);
		return HPZCTL_FAILED;
	}
	place->slot = (unsigned)slot;
	snprintf(alias, sizeof(alias), "dimm%d", slot);
	domain_memory_set_alias(running, place, alias);
	return HPZCTL_DONE;
}

/*
 * The slot is free, so a lease for it is that of a device that was there before, which the guest let go of
 * when nobody waited any more. It would be ours by its key: what was in it, and about to end.
 */
static int domain_memory_release_earlier(
	const struct hpzctl *ctl, struct hpz *hpz, const struct domain_place *place)
{
	uint64_t size, lease = domain_memory_find_lease(hpz, place->key, &size);
	int error = lease ? hpz_release(hpz, lease, 0, 0) : HPZ_OK;

	return error ? hpzctl_fail(ctl, hpz, error, "lease %" PRIu64, lease) : HPZCTL_DONE;
}

/* Where the cell of the guest has its own memory; of several nodes the first. */
static int32_t domain_memory_choose_node(const struct domain *domain, uint64_t cell)
{
	uint64_t mask = domain->settings.nodes;

	for (size_t i = 0; i < domain->cell_count && mask == 0; i++) {
		if (domain->cells[i].id == cell)
			mask = domain->cells[i].nodes.mask;
	}
	if (mask == 0)
		mask = domain->nodes.mask;
	return mask ? __builtin_ctzll(mask) : HPZ_NODE_ANY;
}

/* As the hook does: the domain's own word, else what can be linked where its directory is. */
static uint64_t domain_memory_choose_page_size(const struct domain_memory *wanted,
	const struct domain_running *running, const struct domain_place *place)
{
	uint64_t page_size = hook_place_get_page_size(place->directory);

	if (wanted->page_size || running->plan->page_size)
		return wanted->page_size ? wanted->page_size : running->plan->page_size;
	return hook_settings_has_pool(running->settings, page_size) ? page_size : HPZ_PAGE_SIZE_ANY;
}

static int domain_memory_lease(const struct hpzctl *ctl, const struct domain_memory *wanted,
	const struct domain_running *running, const struct domain_place *place, struct hpz *hpz,
	struct hpz_lease **ret_lease)
{
	struct hpz_lease_request request = HPZ_LEASE_REQUEST_INIT;
	char size[SIZE_TEXT];
	struct stat st;

	if (fstat(place->directory, &st) < 0) {
		hpzctl_say(
			"cannot read the directory of domain %s: %s", running->read->name, strerror(errno));
		return HPZCTL_FAILED;
	}
	request.size = wanted->size;
	request.page_size = domain_memory_choose_page_size(wanted, running, place);
	request.node = domain_memory_choose_node(running->read, wanted->cell);
	request.deliver = HPZ_DELIVER_PATH;
	request.timeout_ms = wanted->wait_ms;
	request.label = strlen(running->read->name) <= HPZ_LABEL_MAX ? running->read->name : NULL;
	request.key = place->key;
	request.owner_uid = running->settings->has_user ? running->settings->uid : st.st_uid;
	request.owner_gid = running->settings->has_user ? running->settings->gid : st.st_gid;
	request.open_timeout_ms = DOMAIN_OPEN_TIMEOUT_MS;
	int error = hpz_lease(hpz, &request, ret_lease);
	return error ? hpzctl_fail(ctl, hpz, error, "cannot lease %s", size_format(wanted->size, size))
		     : HPZCTL_DONE;
}

/*
 * libvirt names the device after its slot; else QEMU has made a file of its own, and ours is not used. 1, 0
 * or negative errno: not to know is not the same as no.
 */
static int domain_memory_is_attached(const struct domain_running *running, const char *alias)
{
	_cleanup_free_ char *xml = virDomainGetXMLDesc(running->domain, 0);
	_cleanup_free_ char *device = NULL;
	int r = xml ? domain_dimm_find(xml, strlen(xml), alias, &device) : -EIO;

	return r == -ENOENT ? 0 : r < 0 ? r : 1;
}

static int domain_memory_plug(const struct domain_memory *wanted, const struct domain_running *running,
	const struct domain_place *place)
{
	char xml[DOMAIN_DIMM_XML_MAX];

	domain_dimm_format(place->slot, wanted->size, (unsigned)wanted->cell, xml);
	if (virDomainAttachDeviceFlags(running->domain, xml, VIR_DOMAIN_AFFECT_LIVE) < 0)
		return domain_fail("libvirt does not attach memory to domain %s", running->read->name);
	/* It was attached, whether that can be seen or not. */
	if (domain_memory_is_attached(running, place->alias))
		return HPZCTL_DONE;
	hpzctl_say("libvirt did not name the device %s: its memory is not from the pool", place->alias);
	return HPZCTL_FAILED;
}

static int domain_memory_use(const struct domain_memory *wanted, const struct domain_running *running,
	struct domain_place *place, const struct hpz_lease *lease)
{
	struct hpz_segment segment = {.struct_size = sizeof(segment), .path = ""};

	hpz_lease_get_segment(lease, 0, &segment);
	snprintf(place->file.alias, sizeof(place->file.alias), "%s", place->alias);
	int r = hook_place_add(place->directory, place->alias, segment.path, wanted->size,
		running->read->selinux_label, &place->file.way);
	if (r < 0) {
		hpzctl_say("cannot put the file into the domain's directory: %s", strerror(-r));
		return HPZCTL_FAILED;
	}
	int status = domain_memory_plug(wanted, running, place);
	r = status ? 0 : hook_place_close_door(segment.path);
	int removed = hook_place_remove(place->directory, &place->file);
	if (r == 0)
		r = removed;
	if (r < 0)
		hpzctl_say("%s stays open to others of its user: %s", place->alias, strerror(-r));
	return status;
}

static int domain_memory_attach(const struct hpzctl *ctl, const struct domain_memory *wanted)
{
	_cleanup_running_ struct domain_running running = {0};
	_cleanup_hpz_ struct hpz *hpz = NULL;
	struct domain_place place = {.directory = -1};
	struct hpz_lease *lease = NULL;

	int status = domain_memory_open(wanted, &running);
	if (!status && *running.plan->why) {
		hpzctl_say("domain %s: %s", running.read->name, running.plan->why);
		status = HPZCTL_FAILED;
	}
	if (!status)
		status = domain_memory_open_place(&running, &place);
	if (!status)
		status = domain_memory_choose_slot(&running, &place);
	if (!status)
		status = hpzctl_connect(ctl, &hpz);
	if (!status)
		status = domain_memory_release_earlier(ctl, hpz, &place);
	if (!status)
		status = domain_memory_lease(ctl, wanted, &running, &place, hpz, &lease);
	if (!status) {
		domain_memory_warn(wanted, &running);
		status = domain_memory_use(wanted, &running, &place, lease);
		/* What is attached for all that was said is in use; what is not, and is forgotten here, ends
		 * by itself. */
		if (status && domain_memory_is_attached(&running, place.alias) == 0)
			hpz_release(hpz, hpz_lease_get_id(lease), 0, 0);
		else if (!status)
			domain_memory_report(ctl, &running, "attached", place.alias,
				hpz_lease_get_size(lease), hpz_lease_get_id(lease));
	}
	hpz_lease_free(lease);
	close_fd(place.directory);
	return status;
}

int domain_attach_memory(struct hpzctl *ctl, int argc, char **argv)
{
	struct domain_memory wanted = {0};
	int32_t cell = 0;
	const struct options_row rows[] = {
		DOMAIN_CONNECT_ROW(&wanted.uri),
		{"node", OPTIONS_NODE, &cell, "N", "the guest's node that gets it (default: 0)"},
		{"page-size", OPTIONS_SIZE, &wanted.page_size, "SIZE",
			"2M or 1G (default: as the domain has)"},
		{"wait", OPTIONS_SECONDS, &wanted.wait_ms, "S", "wait for clean memory; or: forever"},
	};
	char **operands;
	int count;

	int status = options_parse(ctl, rows, ARRAY_SIZE(rows), argc, argv, false, &operands, &count);
	if (status != OPTIONS_GO)
		return status;
	if (count != 2)
		return hpzctl_fail_usage(
			ctl, "a domain and a size, as in: hpzctl domain attach-memory web1 1G");
	wanted.name = operands[0];
	wanted.cell = cell < 0 ? 0 : (uint64_t)cell;
	if (size_parse(operands[1], &wanted.size) < 0 || wanted.size == 0 || wanted.size % 1024)
		return hpzctl_fail_usage(ctl, "'%s' is not a size of whole KiB, as 1G", operands[1]);
	return domain_memory_attach(ctl, &wanted);
}

/* ---- detach ---- */

static int domain_memory_unplug(
	const struct domain_memory *wanted, const struct domain_running *running, const char *alias)
{
	_cleanup_free_ char *device = NULL;
	uint64_t end_ns = clock_get_ns(CLOCK_MONOTONIC) + (uint64_t)wanted->wait_ms * NS_PER_MS;

	int r = domain_dimm_find(running->xml, strlen(running->xml), alias, &device);
	if (r < 0) {
		hpzctl_say("domain %s has no memory device %s", running->read->name, alias);
		return HPZCTL_FAILED;
	}
	if (virDomainDetachDeviceFlags(running->domain, device, VIR_DOMAIN_AFFECT_LIVE) < 0)
		return domain_fail("libvirt does not detach %s", alias);
	int attached;
	while ((attached = domain_memory_is_attached(running, alias)) > 0) {
		if (wanted->wait_ms != HPZ_FOREVER && clock_get_ns(CLOCK_MONOTONIC) >= end_ns) {
			hpzctl_say("the guest has not let go of %s: ask again; when it has, its lease ends "
				   "by itself",
				alias);
			return HPZCTL_LATER;
		}
		nanosleep(&(struct timespec){.tv_nsec = DOMAIN_DETACH_LOOK_MS * NS_PER_MS}, NULL);
	}
	if (attached < 0)
		return domain_fail(
			"cannot see whether %s is detached; when it is, its lease ends by itself", alias);
	return HPZCTL_DONE;
}

static int domain_memory_detach(
	const struct hpzctl *ctl, const struct domain_memory *wanted, const char *alias)
{
	_cleanup_running_ struct domain_running running = {0};
	_cleanup_hpz_ struct hpz *hpz = NULL;
	struct domain_place place = {.directory = -1};
	uint64_t size = 0;

	int status = domain_memory_open(wanted, &running);
	if (!status)
		status = domain_memory_open_place(&running, &place);
	if (!status)
		status = hpzctl_connect(ctl, &hpz);
	close_fd(place.directory);
	if (status)
		return status;
	domain_memory_set_alias(&running, &place, alias);
	uint64_t lease = domain_memory_find_lease(hpz, place.key, &size);
	if (!lease) {
		hpzctl_say(
			"%s of domain %s has no lease of its own: it was there when the domain was started, "
			"or is not from a pool; virsh detach-device detaches it",
			alias, running.read->name);
		return HPZCTL_FAILED;
	}
	status = domain_memory_unplug(wanted, &running, alias);
	if (status)
		return status;
	int error = hpz_release(hpz, lease, 0, 0);
	if (error)
		return hpzctl_fail(ctl, hpz, error, "lease %" PRIu64, lease);
	domain_memory_report(ctl, &running, "detached", alias, size, lease);
	return HPZCTL_DONE;
}

int domain_detach_memory(struct hpzctl *ctl, int argc, char **argv)
{
	struct domain_memory wanted = {.wait_ms = DOMAIN_DETACH_WAIT_MS};
	const struct options_row rows[] = {
		DOMAIN_CONNECT_ROW(&wanted.uri),
		{"wait", OPTIONS_SECONDS, &wanted.wait_ms, "S", "for the guest (default: 30); or: forever"},
	};
	char **operands;
	int count;

	int status = options_parse(ctl, rows, ARRAY_SIZE(rows), argc, argv, false, &operands, &count);
	if (status != OPTIONS_GO)
		return status;
	if (count != 2)
		return hpzctl_fail_usage(
			ctl, "a domain and a device, as in: hpzctl domain detach-memory web1 dimm0");
	if (!domain_xml_is_alias(operands[1]))
		return hpzctl_fail_usage(ctl, "'%s' is not the alias of a device, as dimm0", operands[1]);
	wanted.name = operands[0];
	return domain_memory_detach(ctl, &wanted, operands[1]);
}
