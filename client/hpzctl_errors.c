/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* hpzctl_errors.c - errors for people and the exit status, for hpzctl and the programs it becomes. */
#include "hpzctl.h"

#include <stdarg.h>

void hpzctl_say(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	fputs("hpzctl: ", stderr);
	vfprintf(stderr, format, args);
	fputc('\n', stderr);
	va_end(args);
}

int hpzctl_fail_usage(const struct hpzctl *ctl, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	fprintf(stderr, "hpzctl%s%s: ", ctl->verb ? " " : "", ctl->verb ? ctl->verb->name : "");
	vfprintf(stderr, format, args);
	fprintf(stderr, "\nhpzctl: see hpzctl %s%s--help\n", ctl->verb ? ctl->verb->name : "",
		ctl->verb ? " " : "");
	va_end(args);
	return HPZCTL_USAGE;
}

struct hpzctl_outcome {
	int status;
	const char *advice; /* NULL: the error says it all */
};

/* The one place that knows which error is which exit status, and what to do about it. */
static struct hpzctl_outcome hpzctl_explain(int error)
{
	switch ((enum hpz_error)error) {
	case HPZ_OK:
		return (struct hpzctl_outcome){HPZCTL_DONE, NULL};
	case HPZ_ERR_NO_MEMORY:
		return (struct hpzctl_outcome){HPZCTL_LATER,
			"wait for clean memory with --wait SECONDS; hpzctl status shows what there is"};
	case HPZ_ERR_TIMEOUT:
		return (struct hpzctl_outcome){
			HPZCTL_LATER, "hpzctl status shows how far it is, hpzctl leases who holds what"};
	case HPZ_ERR_BUSY:
		return (struct hpzctl_outcome){HPZCTL_LATER, "try again later"};
	case HPZ_ERR_IN_USE:
		return (struct hpzctl_outcome){HPZCTL_LATER, "end these leases, or their VMs, and try again"};
	case HPZ_ERR_NOT_RUNNING:
		return (struct hpzctl_outcome){HPZCTL_FAILED, "start it with systemctl start hpzd, or name "
							      "its socket with --socket or $HPZ_SOCKET"};
	case HPZ_ERR_DENIED:
		return (struct hpzctl_outcome){HPZCTL_FAILED,
			"root may do everything; what others may, [access NAME] of hpzd.conf(5) says"};
	case HPZ_ERR_QUOTA:
		return (struct hpzctl_outcome){
			HPZCTL_LATER, "release a lease; hpzctl leases shows who still holds memory"};
	case HPZ_ERR_TOO_LARGE:
		return (struct hpzctl_outcome){HPZCTL_FAILED, "hpzctl status shows how large the pools are"};
	case HPZ_ERR_NO_POOL:
		return (struct hpzctl_outcome){
			HPZCTL_FAILED, "hpzctl status lists the pools; /etc/hpz/hpzd.conf makes them"};
	case HPZ_ERR_UNKNOWN_LEASE:
		return (struct hpzctl_outcome){HPZCTL_FAILED, "hpzctl leases lists those that exist"};
	case HPZ_ERR_DRAINED:
		return (struct hpzctl_outcome){HPZCTL_FAILED, "reload or restart hpzd to fill it again"};
	case HPZ_ERR_WITHHELD:
		return (struct hpzctl_outcome){
			HPZCTL_FAILED, "look at ulimit -n, and at the security module's log"};
	case HPZ_ERR_VERSION:
	case HPZ_ERR_UNSUPPORTED:
		return (struct hpzctl_outcome){
			HPZCTL_FAILED, "hpzctl --version and hpzd --version should be the same"};
	case HPZ_ERR_LOST:
		return (struct hpzctl_outcome){HPZCTL_FAILED, "hpzd's log says why: journalctl -u hpzd"};
	case HPZ_ERR_SYSTEM:
	case HPZ_ERR_INVALID:
	case HPZ_ERR_PROTOCOL:
	case HPZ_ERR_ENDED:
	case HPZ_ERR_KEY_MISMATCH:
	case HPZ_ERR_FORKED:
	case HPZ_ERR_INTERNAL:
		break;
	}
	/* A newer library may know more errors. */
	return (struct hpzctl_outcome){HPZCTL_FAILED, NULL};
}

int hpzctl_fail(const struct hpzctl *ctl, const struct hpz *hpz, int error, const char *format, ...)
{
	struct hpzctl_outcome outcome = hpzctl_explain(error);
	const char *text = hpz_get_error_text(hpz);
	va_list args;

	va_start(args, format);
	fputs("hpzctl: ", stderr);
	vfprintf(stderr, format, args);
	fprintf(stderr, ": %s%s%s\n", hpz_strerror(error), *text ? ": " : "", text);
	va_end(args);
	if (outcome.advice)
		hpzctl_say("%s", outcome.advice);
	return outcome.status;
}

int hpzctl_connect(const struct hpzctl *ctl, struct hpz **ret_hpz)
{
	int error = hpz_connect(ctl->socket_path, ret_hpz);
	int saved = errno;

	if (!error)
		return HPZCTL_DONE;
	const char *named = getenv("HPZ_SOCKET");
	const char *path = ctl->socket_path ? ctl->socket_path : named && *named ? named : HPZ_DEFAULT_SOCKET;
	if (error == HPZ_ERR_SYSTEM) {
		hpzctl_say("cannot connect to %s: %s", path, strerror(saved));
		return HPZCTL_FAILED;
	}
	if (error == HPZ_ERR_INVALID) {
		hpzctl_say("cannot connect to %s: the path of a socket has 1 to 107 bytes", path);
		return HPZCTL_FAILED;
	}
	return hpzctl_fail(ctl, NULL, error, "cannot connect to %s", path);
}

void hpzctl_cleanup_hpz(struct hpz **hpz)
{
	hpz_close(*hpz);
}
