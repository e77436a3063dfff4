/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* cmd_lease.c - hpzctl lease, release and leases. */
#include "hpzctl.h"

#include <grp.h>
#include <inttypes.h>
#include <pwd.h>
#include <signal.h>

#include "leases.h"
#include "placement.h"
#include "output.h"
#include "size.h"

/* ---- lease ---- */

/* A number, or -1 when the text is none. */
static int64_t cmd_lease_read_id(const char *text)
{
	char *end;

	if (*text < '0' || *text > '9')
		return -1;
	errno = 0;
	unsigned long long number = strtoull(text, &end, 10);
	return errno || *end || number >= UINT32_MAX ? -1 : (int64_t)number;
}

/* "USER", "USER:GROUP", names or numbers. A user's name alone brings the user's own group along. */
static int cmd_lease_read_owner(const struct hpzctl *ctl, const char *text, struct hpz_lease_request *request)
{
	_cleanup_free_ char *user = strdup(text);
	char *group = user ? strchr(user, ':') : NULL;

	if (!user)
		return hpzctl_fail_usage(ctl, "out of memory");
	if (group)
		*group++ = '\0';
	const struct passwd *known_user = getpwnam(user);
	request->owner_uid = known_user ? (int64_t)known_user->pw_uid : cmd_lease_read_id(user);
	if (request->owner_uid < 0)
		return hpzctl_fail_usage(ctl, "--owner: there is no user '%s'", user);
	if (!group) {
		request->owner_gid = known_user ? (int64_t)known_user->pw_gid : -1;
		return OPTIONS_GO;
	}
	const struct group *known_group = getgrnam(group);
	request->owner_gid = known_group ? (int64_t)known_group->gr_gid : cmd_lease_read_id(group);
	if (request->owner_gid < 0)
		return hpzctl_fail_usage(ctl, "--owner: there is no group '%s'", group);
	return OPTIONS_GO;
}

static void cmd_lease_print_members(
	struct output_json *json, const struct hpz_lease *lease, const char *label)
{
	struct hpz_segment segment = {.struct_size = sizeof(segment), .path = ""};

	output_json_number(json, "id", hpz_lease_get_id(lease));
	output_json_text(json, "label", label ? label : "");
	output_json_number(json, "size", hpz_lease_get_size(lease));
	output_json_number(json, "asked", hpz_lease_get_asked(lease));
	output_json_number(json, "ready", hpz_lease_get_ready(lease));
	output_json_number(json, "zeroed", hpz_lease_get_zeroed(lease));
	output_json_open_list(json, "segments");
	for (size_t i = 0; i < hpz_lease_get_segment_count(lease); i++) {
		hpz_lease_get_segment(lease, i, &segment);
		leases_print_segment_json(json, &segment);
	}
	output_json_close(json);
	/* Of a lease in several segments no one path is all of it. */
	hpz_lease_get_segment(lease, 0, &segment);
	output_json_text_or_null(json, "path", hpz_lease_get_segment_count(lease) == 1 ? segment.path : "");
}

/* One, or a list of them. */
static void cmd_lease_print_json(struct hpz_lease *const *leases, size_t count, const char *label)
{
	struct output_json json;

	output_json_init(&json, stdout);
	output_json_open_object(&json, NULL);
	output_json_text(&json, "schema", count ? "hpz-bulk-1" : "hpz-lease-1");
	if (count == 0)
		cmd_lease_print_members(&json, leases[0], label);
	else
		output_json_open_list(&json, "leases");
	for (size_t i = 0; i < count; i++) {
		output_json_open_object(&json, NULL);
		cmd_lease_print_members(&json, leases[i], label);
		output_json_close(&json);
	}
	if (count > 0)
		output_json_close(&json);
	output_json_close(&json);
}

static void cmd_lease_print(const struct hpz_lease *lease)
{
	struct hpz_segment segment = {.struct_size = sizeof(segment), .path = ""};
	char size[SIZE_TEXT], ready[SIZE_TEXT], zeroed[SIZE_TEXT];

	printf("lease %" PRIu64 ", %s", hpz_lease_get_id(lease),
		size_format(hpz_lease_get_size(lease), size));
	if (hpz_lease_get_zeroed(lease))
		printf(" (%s was ready, %s was zeroed for it)",
			size_format(hpz_lease_get_ready(lease), ready),
			size_format(hpz_lease_get_zeroed(lease), zeroed));
	putchar('\n');
	for (size_t i = 0; i < hpz_lease_get_segment_count(lease); i++) {
		hpz_lease_get_segment(lease, i, &segment);
		output_print_text(stdout, segment.path);
		putchar('\n');
	}
}

/* What the command line asks for. */
static int cmd_lease_parse(struct hpzctl *ctl, int argc, char **argv, struct placement *placement,
	struct hpz_lease_request *request, uint64_t *many)
{
	bool is_path = false, is_kept = false, takes_segments = false;
	const char *owner = NULL;
	const struct options_row rows[] = {
		{"path", OPTIONS_FLAG, &is_path, NULL, "deliver as a path; must be given"},
		{"page-size", OPTIONS_SIZE, &request->page_size, "SIZE",
			"2M or 1G (default: what wastes least)"},
		PLACEMENT_ROWS(placement),
		PLACEMENT_ROWS_OF_SEVERAL(placement),
		{"label", OPTIONS_TEXT, &request->label, "TEXT", "name of the VM, for the lists"},
		{"owner", OPTIONS_TEXT, &owner, "USER[:GROUP]", "owner of the file (default: you)"},
		{"mode", OPTIONS_MODE, &request->mode, "MODE", "mode of the file (default: 0600)"},
		{"owner-pid", OPTIONS_PID, &request->owner_pid, "PID", "process whose death ends the lease"},
		{"open-timeout", OPTIONS_SECONDS, &request->open_timeout_ms, "S",
			"ends unless it is opened within this time"},
		{"keep", OPTIONS_FLAG, &is_kept, NULL, "does not end when nobody has it open any more"},
		{"key", OPTIONS_TEXT, &request->key, "TEXT",
			"asking again with the same key gives the same lease"},
		{"segments", OPTIONS_FLAG, &takes_segments, NULL,
			"several files will do, where no single one is clean"},
		{"wait", OPTIONS_SECONDS, &request->timeout_ms, "S", "wait for clean memory; or: forever"},
		{"reservation", OPTIONS_ID, &request->reservation, "ID",
			"out of what hpzctl reserve keeps under this id"},
		{"count", OPTIONS_COUNT, many, "N", "so many leases of this size at once: all or none"},
		{"priority", OPTIONS_PRIORITY, &request->priority, "N",
			"wait before those of a lower one (default: 0)"},
	};
	char **operands;
	int count;

	int status = options_parse(ctl, rows, ARRAY_SIZE(rows), argc, argv, false, &operands, &count);
	if (status != OPTIONS_GO)
		return status;
	status = placement_apply(ctl, placement, request);
	if (status == OPTIONS_GO)
		status = placement_read_size(
			ctl, placement, operands, count, "how much? As in: hpzctl lease 2G --path", request);
	if (status != OPTIONS_GO)
		return status;
	if (*many > HPZ_MANY_MAX)
		return hpzctl_fail_usage(ctl, "at most %u leases at once", HPZ_MANY_MAX);
	if (!is_path)
		return hpzctl_fail_usage(ctl,
			"a descriptor would end with this command: ask for a path with --path, or start the "
			"program that needs the memory with hpzctl run");
	if (request->open_timeout_ms == HPZ_FOREVER)
		request->open_timeout_ms = 0;
	request->deliver = HPZ_DELIVER_PATH;
	request->flags = (is_kept ? HPZ_LEASE_KEEP : 0) | (takes_segments ? HPZ_LEASE_SEGMENTS : 0);
	return owner ? cmd_lease_read_owner(ctl, owner, request) : OPTIONS_GO;
}

int cmd_lease(struct hpzctl *ctl, int argc, char **argv)
{
	_cleanup_hpz_ struct hpz *hpz = NULL;
	struct hpz_lease_request request = HPZ_LEASE_REQUEST_INIT;
	struct placement placement = PLACEMENT_INIT;
	struct hpz_lease *leases[HPZ_MANY_MAX] = {NULL};
	uint64_t many = 0; /* 0: one, and not as a list */
	char size[SIZE_TEXT];

	int status = cmd_lease_parse(ctl, argc, argv, &placement, &request, &many);
	if (status != OPTIONS_GO)
		return status;
	/* So that a closed pipe is an error that can be answered. */
	signal(SIGPIPE, SIG_IGN);
	status = hpzctl_connect(ctl, &hpz);
	if (status)
		return status;
	int error = many ? hpz_lease_many(hpz, &request, many, leases) : hpz_lease(hpz, &request, leases);
	if (error)
		return hpzctl_fail(ctl, hpz, error, "cannot lease %s",
			request.cell_count ? "the cells" : size_format(request.size, size));
	if (ctl->json)
		cmd_lease_print_json(leases, many, request.label);
	for (uint64_t i = 0; !ctl->json && i < MAX(many, 1); i++)
		cmd_lease_print(leases[i]);
	/* A path that nobody has heard of would be kept for ever. main() says what went wrong. */
	bool is_unheard = fflush(stdout) || ferror(stdout);
	for (uint64_t i = 0; i < MAX(many, 1); i++) {
		if (is_unheard)
			hpz_release(hpz, hpz_lease_get_id(leases[i]), 0, 0);
		hpz_lease_free(leases[i]);
	}
	return HPZCTL_DONE;
}

/* ---- release ---- */

#define CMD_RELEASE_NO_WAIT INT64_MIN

static int cmd_release_read_ids(const struct hpzctl *ctl, char **operands, int count, uint64_t *ids)
{
	for (int i = 0; i < count; i++) {
		char *end;
		errno = 0;
		ids[i] = strtoull(operands[i], &end, 10);
		if (operands[i][0] < '0' || operands[i][0] > '9' || *end || errno || ids[i] == 0)
			return hpzctl_fail_usage(ctl, "'%s' is not a lease id", operands[i]);
	}
	return OPTIONS_GO;
}

/* Releases one and says how it went; returns its exit status. */
static int cmd_release_one(const struct hpzctl *ctl, struct hpz *hpz, uint64_t id, unsigned flags,
	int64_t wait_ms, struct output_json *json)
{
	bool waits = wait_ms != CMD_RELEASE_NO_WAIT;
	int error = hpz_release(hpz, id, flags | (waits ? HPZ_RELEASE_WAIT : 0), waits ? wait_ms : 0);
	int status = error ? hpzctl_fail(ctl, hpz, error, "lease %" PRIu64, id) : HPZCTL_DONE;

	if (!ctl->json)
		return status;
	output_json_open_object(json, NULL);
	output_json_number(json, "id", id);
	/* With a time limit over the lease has ended all the same. */
	output_json_bool(json, "released", !error || error == HPZ_ERR_TIMEOUT);
	if (waits)
		output_json_bool(json, "clean", !error);
	else
		output_json_null(json, "clean");
	output_json_text_or_null(json, "error", error ? hpz_strerror(error) : "");
	output_json_close(json);
	return status;
}

int cmd_release(struct hpzctl *ctl, int argc, char **argv)
{
	_cleanup_hpz_ struct hpz *hpz = NULL;
	_cleanup_free_ uint64_t *ids = NULL;
	int64_t wait_ms = CMD_RELEASE_NO_WAIT;
	bool is_forced = false;
	const struct options_row rows[] = {
		{"wait", OPTIONS_OPTIONAL_SECONDS, &wait_ms, "S", "wait until the memory is clean again"},
		{"force", OPTIONS_FLAG, &is_forced, NULL,
			"do not wait for who still holds it: give it up, it is never reused"},
	};
	struct output_json json;
	char **operands;
	int count;

	int status = options_parse(ctl, rows, ARRAY_SIZE(rows), argc, argv, false, &operands, &count);
	if (status != OPTIONS_GO)
		return status;
	if (count == 0)
		return hpzctl_fail_usage(ctl, "which? hpzctl leases lists their ids");
	ids = calloc((size_t)count, sizeof(*ids));
	status = ids ? cmd_release_read_ids(ctl, operands, count, ids) : HPZCTL_FAILED;
	if (status != OPTIONS_GO)
		return status;
	status = hpzctl_connect(ctl, &hpz);
	if (status)
		return status;
	output_json_init(&json, stdout);
	if (ctl->json) {
		output_json_open_object(&json, NULL);
		output_json_text(&json, "schema", "hpz-release-1");
		output_json_open_list(&json, "leases");
	}
	for (int i = 0; i < count; i++) {
		int one =
			cmd_release_one(ctl, hpz, ids[i], is_forced ? HPZ_RELEASE_FORCE : 0, wait_ms, &json);
		/* A failure that stays outranks one that time may heal. */
		if (!status || (status == HPZCTL_LATER && one))
			status = one;
	}
	if (ctl->json) {
		output_json_close(&json);
		output_json_close(&json);
	}
	return status;
}

/* ---- leases ---- */

int cmd_leases(struct hpzctl *ctl, int argc, char **argv)
{
	_cleanup_hpz_ struct hpz *hpz = NULL;
	_cleanup_list_ struct hpz_lease_list *list = NULL;
	struct output_json json;
	char **operands;
	int count;

	int status = options_parse(ctl, NULL, 0, argc, argv, false, &operands, &count);
	if (status == OPTIONS_GO)
		status = options_refuse_operands(ctl, operands, count);
	if (status != OPTIONS_GO)
		return status;
	status = hpzctl_connect(ctl, &hpz);
	if (status)
		return status;
	int error = hpz_list(hpz, &list);
	if (error)
		return hpzctl_fail(ctl, hpz, error, "cannot list the leases");
	if (ctl->json) {
		output_json_init(&json, stdout);
		output_json_open_object(&json, NULL);
		output_json_text(&json, "schema", "hpz-leases-1");
		leases_print_json(&json, list);
		output_json_close(&json);
	} else if (hpz_list_get_count(list)) {
		leases_print_table(stdout, list, true);
	} else {
		puts("No leases.");
	}
	return HPZCTL_DONE;
}
