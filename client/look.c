/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * look.c - one comparison of hpzd's leases with libvirt's domains.
 *
 * Order matters: the leases are listed before the domains. libvirt has a domain active from before its hook
 * is called to start it until after QEMU is gone, so a lease that is in the list had its domain then, and the
 * later list of domains shows it, if it did not end in between.
 *
 * Names need no care: libvirt renames no domain that is active, and one that is not has no lease.
 */
#include "look.h"

#include <inttypes.h>
#include <stdarg.h>

#include "emulators.h"
#include "hpz.h"
#include "hpzctl.h"
#include "lease_key.h"
#include "leases.h"
#include "output.h"

void look_say(enum look_level level, const char *format, ...)
{
	char text[1024];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	flockfile(stderr);
	if (getenv("JOURNAL_STREAM"))
		fprintf(stderr, "<%d>", level);
	else
		fputs("hpz-libvirt: ", stderr);
	output_print_text(stderr, text);
	fputc('\n', stderr);
	funlockfile(stderr);
}

/* Whether a lease is the hook's, as root has it, and for which domain. */
static bool look_is_domains(const struct hpz_lease_info *info, char ret_uuid[LEASE_KEY_UUID_SIZE])
{
	return info->uid == 0 && (info->state == HPZ_STATE_OFFERED || info->state == HPZ_STATE_LEASED) &&
	       lease_key_get_uuid(info->key, ret_uuid);
}

static unsigned look_count(const struct hpz_lease_list *list)
{
	struct hpz_lease_info info = {.struct_size = sizeof(info)};
	char uuid[LEASE_KEY_UUID_SIZE];
	unsigned count = 0;

	for (size_t i = 0; i < hpz_list_get_count(list); i++)
		count += hpz_list_get_lease(list, i, &info) == HPZ_OK && look_is_domains(&info, uuid);
	return count;
}

const char *look_get_missing(enum look_outcome outcome)
{
	static const char *const names[] = {[LOOK_DONE] = "nobody",
		[LOOK_NO_HPZD] = "hpzd",
		[LOOK_NO_LIBVIRT] = "libvirt",
		[LOOK_NO_PROCESSES] = "processes"};

	return names[outcome];
}

static bool look_is_active(const struct virt_domains *domains, const char *uuid)
{
	const struct virt_domain *domain = virt_find_domain(domains, uuid);

	return domain && domain->is_active;
}

/* Whether there is a lease whose domain this libvirt does not run. */
static bool look_has_lost(const struct hpz_lease_list *list, const struct virt_domains *domains)
{
	struct hpz_lease_info info = {.struct_size = sizeof(info)};
	char uuid[LEASE_KEY_UUID_SIZE];

	for (size_t i = 0; i < hpz_list_get_count(list); i++) {
		if (hpz_list_get_lease(list, i, &info) == HPZ_OK && look_is_domains(&info, uuid) &&
			!look_is_active(domains, uuid))
			return true;
	}
	return false;
}

static void look_release(
	struct look *look, struct hpz *hpz, const struct hpz_lease_info *info, const char *uuid)
{
	int error = hpz_release(hpz, info->id, 0, 0);

	if (error) {
		look->report.watched++;
		look_say(LOOK_WARNING, "cannot release lease %" PRIu64 " (%s): %s: %s", info->id, info->label,
			hpz_strerror(error), hpz_get_error_text(hpz));
		return;
	}
	look->report.released++;
	look->report.leases--;
	look_say(LOOK_INFO,
		"released lease %" PRIu64 " (%s): libvirt has no running domain %s, and no process runs it",
		info->id, info->label, uuid);
}

/* Also a domain that this libvirt does not know is used if somebody runs it: another libvirt's, or a lost
 * one.
 */
static void look_judge(struct look *look, struct hpz *hpz, const struct hpz_lease_list *list,
	const struct virt_domains *domains, const struct emulators *emulators)
{
	struct hpz_lease_info info = {.struct_size = sizeof(info)};
	char uuid[LEASE_KEY_UUID_SIZE];

	for (size_t i = 0; i < hpz_list_get_count(list); i++) {
		if (hpz_list_get_lease(list, i, &info) || !look_is_domains(&info, uuid))
			continue;
		switch (suspects_judge(look->suspects, info.id, info.age_ms * NS_PER_MS,
			look_is_active(domains, uuid) || emulators_have(emulators, uuid),
			clock_get_ns(CLOCK_MONOTONIC))) {
		case SUSPECTS_KEEP:
			break;
		case SUSPECTS_WATCH:
			look->report.watched++;
			break;
		case SUSPECTS_RELEASE:
			look_release(look, hpz, &info, uuid);
			break;
		}
	}
}

static enum look_outcome look_fail_hpz(struct look *look, const struct hpz *hpz, int error)
{
	const char *text = hpz_get_error_text(hpz);

	snprintf(look->report.text, sizeof(look->report.text), "%s%s%s", hpz_strerror(error),
		*text ? ": " : "", text);
	return LOOK_NO_HPZD;
}

static enum look_outcome look_fail_processes(struct look *look, int error, pid_t held)
{
	if (error == -ETIMEDOUT && held)
		snprintf(look->report.text, sizeof(look->report.text),
			"process %d lets nobody read its command line", (int)held);
	else
		snprintf(look->report.text, sizeof(look->report.text), "%s", strerror(-error));
	return LOOK_NO_PROCESSES;
}

static enum look_outcome look_decide(struct look *look, struct hpz *hpz, const struct hpz_lease_list *list,
	const struct virt_domains *domains)
{
	struct emulators emulators = {0};
	pid_t held = 0;

	/* Who runs what is asked only when it matters. */
	int r = look_has_lost(list, domains) ? emulators_read(&emulators, &held) : 0;
	if (r < 0)
		return look_fail_processes(look, r, held);
	suspects_begin(look->suspects);
	look_judge(look, hpz, list, domains, &emulators);
	suspects_end(look->suspects);
	emulators_deinit(&emulators);
	return LOOK_DONE;
}

static enum look_outcome look_compare(struct look *look)
{
	_cleanup_hpz_ struct hpz *hpz = NULL;
	_cleanup_list_ struct hpz_lease_list *list = NULL;
	struct virt_domains domains = {0};

	int error = hpz_connect(look->socket_path, &hpz);
	if (!error)
		error = hpz_list(hpz, &list);
	if (error)
		return look_fail_hpz(look, hpz, error);
	look->report.leases = look_count(list);
	if (look->report.leases && virt_list_domains(look->connection, &domains) < 0) {
		snprintf(look->report.text, sizeof(look->report.text), "%s", virt_get_error());
		return LOOK_NO_LIBVIRT;
	}
	enum look_outcome outcome = look_decide(look, hpz, list, &domains);
	virt_free_domains(&domains);
	return outcome;
}

void look_run(struct look *look)
{
	look->report = (struct look_report){.text = ""};
	look->report.outcome = look_compare(look);
}
