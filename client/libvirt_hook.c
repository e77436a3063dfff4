/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * libvirt_hook.c - hpz-libvirt-hook: what libvirt calls at each step of a domain, with its XML.
 *
 * At `start begin` libvirt has made the domain's directory, empty, and QEMU is not there yet: then the files
 * of its memory are put there. At `started begin` QEMU has them open, and they go again, so that nobody else
 * can open them. At the end the lease is released.
 *
 * All of the work is done in a child that is killed at the deadline, because a directory, a mount or whoever
 * knows the names of users can be held for ever by somebody else, and libvirt waits for us with everything
 * else it does. Its parent does nothing but listen to it and, when it is done, write to the log, which may be
 * held, too. Nothing is ever printed on standard output, which would replace the XML; a hook that fails at
 * `reconnect` would kill a running domain.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <syslog.h>

#include "hook_ask.h"
#include "hook_hold.h"
#include "hook_mounts.h"
#include "hook_names.h"
#include "hook_place.h"
#include "hook_report.h"
#include "hook_settings.h"
#include "hook_state.h"
#include "hook_take.h"
#include "hook_user.h"
#include "lease_key.h"
#include "hpz.h"

#define HOOK_SOURCE_MAX   (HOOK_STATE_NAME_MAX + 8)
#define HOOK_ASK_AGAIN_MS 50
#define HOOK_SETTINGS_MS  2000 /* to read the configuration, which says how long the rest may take */
#define HOOK_LOG_MS       100  /* for all that is to be logged */

#define HOOK_REFUSAL                                                                                         \
	"hpz: domain %s gets no memory from the pool and is not to start without it (on-failure is "         \
	"refuse): "

struct hook_call {
	struct hook_settings settings;
	struct domain domain;
	struct domain_plan plan;
	struct domain_plan own; /* what QEMU makes itself without a pool */
	bool refuses;           /* what cannot have memory of the pool does not start */
	bool is_ordinary;       /* ordinary memory is mounted over its directory */
	uint64_t deadline_ns;
	int base; /* the backing directory */
	char directory[DOMAIN_DIRECTORY_MAX];
	char state_name[HOOK_STATE_NAME_MAX];
};

typedef void (*hook_operation_fn)(struct hook_call *call, const struct hook_report *report);

/* The end of a start that must not go on with other memory. */
static void hook_refuse(const struct hook_report *report, const char *why)
{
	hook_report_refuse(report, HOOK_REFUSAL "%s", report->name, why);
}

/*
 * When a question to somebody else is over that may take so many quarters of the time left: the rest is for
 * what is done without it, as an hpzd that is stopped takes all it gets.
 */
static uint64_t hook_get_ask_end(const struct hook_call *call, unsigned quarters)
{
	uint64_t now_ns = clock_get_ns(CLOCK_MONOTONIC);

	return now_ns + (call->deadline_ns - MIN(now_ns, call->deadline_ns)) / 4 * quarters;
}

/* ---- who and where ---- */

/*
 * Whose QEMU is: of the configuration, of the domain, or of the directory, which libvirt makes for QEMU's
 * user. Where libvirt is not to change owners (dynamic_ownership) that is root's, and says nothing.
 */
static void hook_find_user(const struct hook_call *call, const struct hook_report *report, int directory,
	struct hook_order *order)
{
	const char *label = call->domain.dac_label;
	struct stat st = {0};

	if (call->settings.has_user) {
		order->uid = call->settings.uid;
		order->gid = call->settings.gid;
		return;
	}
	if (hook_user_parse(label, &order->uid, &order->gid) == 0)
		return;
	fstat(directory, &st);
	order->uid = st.st_uid;
	order->gid = st.st_gid;
	if (st.st_uid != 0 || !*label)
		return;
	int r = hook_user_ask(label, hook_get_ask_end(call, 1), &order->uid, &order->gid);
	if (r < 0)
		hook_report_note(report, LOG_WARNING,
			"who its QEMU runs as is not known, so its memory is root's (%s: %s): name it as "
			"`user` of [libvirt] in hpzd.conf, by number",
			label, strerror(-r));
}

/* The domain's own word, or pages as the directory has: then it takes no more than a link. */
static uint64_t hook_choose_page_size(const struct hook_call *call, int directory)
{
	uint64_t page_size = hook_place_get_page_size(directory);

	if (call->plan.page_size)
		return call->plan.page_size;
	return hook_settings_has_pool(&call->settings, page_size) ? page_size : 0;
}

/* What its ordinary memory is called, to be found by. */
static void hook_make_source(const struct hook_call *call, char ret_source[HOOK_SOURCE_MAX])
{
	snprintf(ret_source, HOOK_SOURCE_MAX, "hpz:%s", call->state_name);
}

/* ---- undoing ---- */

/* The name of the lease, and where hpzd lends it one to be linked from. */
static uint64_t hook_count_own_names(const struct hook_state *state)
{
	return state->is_taken ? 1 : 2;
}

/*
 * The names of its files that are not where they were put. That one is left holds nothing up: the lease goes
 * back, and hpzd says what holds its memory until the name is gone.
 */
static void hook_remove_moved(
	struct hook_call *call, const struct hook_report *report, const struct hook_state *state)
{
	for (size_t i = 0; i < state->file_count; i++) {
		if (state->files[i].way != HOOK_WAY_LINK)
			continue;
		int r = hook_names_remove(call->base, state->files[i].path, hook_count_own_names(state));
		if (r < 0)
			hook_report_note(report, LOG_WARNING,
				"%s has been moved and is not found, until it is removed its memory does not "
				"come "
				"back (%s): look for the other names of %s",
				state->files[i].alias, strerror(-r), state->files[i].path);
	}
}

/*
 * Takes out what an earlier call put into the domain's directory; the directory, too, if libvirt could not. 0
 * or negative errno: something is left.
 */
static int hook_undo(struct hook_call *call, const struct hook_report *report, const struct hook_state *state,
	bool is_over)
{
	_cleanup_fd_ int directory = hook_place_open_directory(call->base, state->directory);
	char source[HOOK_SOURCE_MAX];
	int r = 0;

	for (size_t i = 0; i < state->file_count; i++) {
		int failed = hook_place_remove(directory, &state->files[i]);
		r = r < 0 ? r : failed;
	}
	hook_remove_moved(call, report, state);
	if (state->is_ordinary) {
		hook_make_source(call, source);
		int failed = hook_mounts_remove_source(source);
		r = r < 0 ? r : failed;
	}
	if (r < 0)
		hook_report_note(report, LOG_WARNING, "its directory cannot be tidied up: %s", strerror(-r));
	/* Where something was mounted libvirt found it busy. */
	if (is_over && directory >= 0)
		unlinkat(call->base, state->directory, AT_REMOVEDIR);
	return r;
}

/* What was put into place and cannot be of use; what is ordinary stays. */
static void hook_take_out(struct hook_call *call, const struct hook_report *report, struct hook_state *state)
{
	state->is_ordinary = false;
	hook_undo(call, report, state, false);
	state->is_ordinary = call->is_ordinary;
	state->file_count = 0;
	state->lease = 0;
	if (state->is_ordinary)
		hook_state_write(call->settings.run_dir, call->state_name, state);
	else
		hook_state_remove(call->settings.run_dir, call->state_name);
}

/* ---- start ---- */

static int hook_write_state(
	struct hook_call *call, const struct hook_report *report, const struct hook_state *state)
{
	int r = hook_state_write(call->settings.run_dir, call->state_name, state);

	if (r < 0)
		hook_report_note(report, LOG_WARNING, "cannot note what was done for it in %s/libvirt: %s",
			call->settings.run_dir, strerror(-r));
	return r;
}

/* All files, as if they were mounted: whatever there is of such a one can be taken out again. */
static void hook_name_files(
	const struct hook_call *call, const struct hook_memory *memory, struct hook_state *state)
{
	for (size_t i = 0; i < call->plan.count; i++) {
		struct hook_file *file = &state->files[i];
		snprintf(file->alias, sizeof(file->alias), "%s", call->plan.files[i].alias);
		snprintf(file->path, sizeof(file->path), "%s", memory->paths[i]);
		file->way = HOOK_WAY_BIND;
	}
	state->file_count = call->plan.count;
}

/* Puts leased files into place. 0 or negative errno. */
static int hook_place_memory(struct hook_call *call, int directory, struct hook_state *state)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < state->file_count; i++)
		r = hook_place_add(directory, state->files[i].alias, state->files[i].path,
			call->plan.files[i].size, call->domain.selinux_label, &state->files[i].way);
	return r;
}

/* Has memory, so the domain gets it; false: it cannot be put there. */
static bool hook_use_memory(struct hook_call *call, const struct hook_report *report, int directory,
	const struct hook_memory *memory, bool is_taken, char *why, size_t capacity)
{
	_cleanup_free_ struct hook_state *state = calloc(1, sizeof(*state));
	struct hook_answer answer;

	if (!state)
		return false;
	strcpy(state->directory, call->directory);
	state->is_ordinary = call->is_ordinary;
	state->lease = memory->lease;
	state->is_taken = is_taken;
	/* Before anything is done, so that it is known if we die meanwhile. */
	hook_name_files(call, memory, state);
	hook_write_state(call, report, state);
	int r = hook_place_memory(call, directory, state);
	if (r == 0)
		r = hook_write_state(call, report, state);
	if (r == 0) {
		hook_report_note(report, LOG_INFO, "its memory is lease %" PRIu64 "%s", memory->lease,
			is_taken ? ", taken from the pool's clean memory without hpzd, which is dead" : "");
		return true;
	}
	snprintf(why, capacity, "its files cannot be put into %s/%s: %s", call->settings.backing_dir,
		call->directory, strerror(-r));
	hook_take_out(call, report, state);
	if (!is_taken)
		hook_ask_release(&call->settings, memory->lease, hook_get_ask_end(call, 2), &answer);
	return false;
}

static bool hook_is_passing(int error)
{
	return error == HPZ_ERR_NOT_RUNNING || error == HPZ_ERR_LOST;
}

/* From hpzd, or, when that is proven to be dead, from its clean memory. */
static bool hook_get_memory(struct hook_call *call, const struct hook_report *report, int directory,
	const struct hook_order *order, char *why, size_t capacity)
{
	_cleanup_free_ struct hook_answer *answer = calloc(1, sizeof(*answer));
	uint64_t ask_ns = hook_get_ask_end(call, 3);
	bool is_taken = false;

	for (int r = -EBUSY; answer;) {
		hook_ask_lease(&call->settings, order, ask_ns, answer);
		if (hook_is_passing(answer->error))
			r = hook_take(&call->settings, order, &answer->memory);
		is_taken = hook_is_passing(answer->error) && r == 0;
		if (answer->error == 0 || is_taken)
			return hook_use_memory(
				call, report, directory, &answer->memory, is_taken, why, capacity);
		/* It is being started or stopped: a moment later it answers, or is dead. */
		if (!hook_is_passing(answer->error) || r != -EBUSY ||
			clock_get_ns(CLOCK_MONOTONIC) + HOOK_ASK_AGAIN_MS * NS_PER_MS > ask_ns)
			break;
		nanosleep(&(struct timespec){.tv_nsec = HOOK_ASK_AGAIN_MS * NS_PER_MS}, NULL);
	}
	snprintf(why, capacity, "%s", answer ? answer->text : "there is no memory to ask for it");
	return false;
}

/* Ordinary memory over the domain's directory. 0 or negative errno. */
static int hook_use_ordinary(struct hook_call *call, const struct hook_report *report, int directory,
	const struct hook_order *order)
{
	_cleanup_free_ struct hook_state *state = calloc(1, sizeof(*state));
	char source[HOOK_SOURCE_MAX];

	if (!state)
		return -ENOMEM;
	strcpy(state->directory, call->directory);
	state->is_ordinary = true;
	hook_write_state(call, report, state);
	hook_make_source(call, source);
	int r = hook_place_add_ordinary(
		directory, source, order->uid, order->gid, call->domain.selinux_label);
	call->is_ordinary = r == 0;
	return r;
}

/* What is held is taken out again when not all of it can be. */
static int hook_hold_all(
	const struct hook_call *call, int directory, const struct hook_order *order, struct hook_state *state)
{
	uint64_t end_ns = hook_get_ask_end(call, 3), size = domain_xml_get_own_size(&call->domain);
	int r = 0;

	for (size_t i = 0; r == 0 && i < call->own.count; i++)
		r = hook_hold_add(directory, &call->own.files[i], order->uid, order->gid,
			call->domain.selinux_label, end_ns);
	/* What cannot be held, as copies of what is not shared. */
	if (r == 0 && !hook_hold_has_room(directory, size - MIN(size, call->own.size)))
		r = -ENOMEM;
	return r;
}

/* Huge pages of the kernel's in the files that QEMU opens. 0 or negative errno: then nothing is left of it.
 */
static int hook_hold(struct hook_call *call, const struct hook_report *report, int directory,
	const struct hook_order *order)
{
	_cleanup_free_ struct hook_state *state = calloc(1, sizeof(*state));

	if (!state || !hook_hold_has_room(directory, domain_xml_get_own_size(&call->domain)) ||
		!hook_hold_has_pages(directory, &call->own))
		return -ENOMEM;
	strcpy(state->directory, call->directory);
	for (size_t i = 0; i < call->own.count; i++) {
		strcpy(state->files[i].alias, call->own.files[i].alias);
		state->files[i].way = HOOK_WAY_OWN;
	}
	state->file_count = call->own.count;
	hook_write_state(call, report, state);
	int r = hook_hold_all(call, directory, order, state);
	if (r < 0)
		hook_take_out(call, report, state);
	return r;
}

/* Huge pages of the kernel's, and where there are none, or not in time, ordinary memory. */
static void hook_fall_back(struct hook_call *call, const struct hook_report *report, int directory,
	const struct hook_order *order, const char *why)
{
	int priority = call->plan.is_wanted ? LOG_WARNING : LOG_INFO, r;

	if (call->is_ordinary) {
		hook_report_note(
			report, priority, "no memory from the pool, it runs on ordinary memory: %s", why);
	} else if (!hook_place_get_page_size(directory)) {
		hook_report_note(
			report, priority, "no memory from the pool, QEMU makes files of its own: %s", why);
	} else if ((r = hook_hold(call, report, directory, order)) == 0) {
		hook_report_note(report, priority,
			"no memory from the pool, QEMU takes huge pages from the kernel%s: %s",
			call->own.count ? ", which are held for it" : "", why);
	} else if ((r = hook_use_ordinary(call, report, directory, order)) == 0) {
		hook_report_note(
			report, priority, "no memory from the pool, it runs on ordinary memory: %s", why);
	} else {
		hook_report_note(report, LOG_ERR,
			"no memory from the pool, no huge pages from the kernel, and ordinary memory cannot "
			"be mounted (%s): %s",
			strerror(-r), why);
	}
}

/*
 * Devices whose memory QEMU makes itself are beside the pool's files: where the kernel has no huge pages for
 * them, the directory becomes ordinary memory before the files are put there.
 */
static void hook_make_room(struct hook_call *call, const struct hook_report *report, int *directory,
	const struct hook_order *order)
{
	if (!hook_place_get_page_size(*directory) ||
		hook_hold_has_room(*directory, call->plan.left_out_size) ||
		hook_use_ordinary(call, report, *directory, order) < 0)
		return;
	hook_report_note(
		report, LOG_INFO, "memory devices that are not from the pool run on ordinary memory");
	close_fd(*directory);
	*directory = hook_place_open_directory(call->base, call->directory);
}

/* A call that is repeated begins anew; a start whose end nobody told us of is over. */
static void hook_forget_earlier(struct hook_call *call, const struct hook_report *report)
{
	_cleanup_free_ struct hook_state *state = calloc(1, sizeof(*state));
	_cleanup_free_ struct hook_answer *answer = calloc(1, sizeof(*answer));

	if (!state || !answer || hook_state_read(call->settings.run_dir, call->state_name, state) < 0)
		return;
	bool is_over = strcmp(state->directory, call->directory) != 0;
	hook_undo(call, report, state, is_over);
	/* Of the same start it is asked for again, with the same key, and is the same. */
	if (is_over && state->lease)
		hook_ask_release(&call->settings, state->lease, hook_get_ask_end(call, 1), answer);
	hook_state_remove(call->settings.run_dir, call->state_name);
}

/* libvirt's directory is not where it should be. */
static void hook_miss_directory(struct hook_call *call, const struct hook_report *report, int error)
{
	char why[512];

	if (!call->plan.is_wanted)
		return;
	snprintf(why, sizeof(why),
		"libvirt has made no directory %s/%s (%s): is memory_backing_dir the same in hpzd.conf and "
		"qemu.conf?",
		call->settings.backing_dir, call->directory, strerror(error));
	if (call->refuses)
		hook_refuse(report, why);
	else
		hook_report_note(report, LOG_WARNING, "no memory from the pool: %s", why);
}

static void hook_start_in(struct hook_call *call, const struct hook_report *report)
{
	char start[LEASE_KEY_START_SIZE], key[HPZ_KEY_MAX + 1], why[512] = "";
	struct hook_order order = {.plan = &call->plan, .label = call->domain.name, .key = key};

	hook_forget_earlier(call, report);
	_cleanup_fd_ int directory = hook_place_open_directory(call->base, call->directory);
	if (directory < 0) {
		hook_miss_directory(call, report, -directory);
		return;
	}
	order.page_size = hook_choose_page_size(call, directory);
	hook_find_user(call, report, directory, &order);
	hook_place_get_start(directory, start);
	/* Of both the length is known, and there is room. */
	lease_key_format(call->domain.uuid, NULL, start, key);
	if (*call->plan.why) {
		hook_fall_back(call, report, directory, &order, call->plan.why);
		return;
	}
	if (call->plan.left_out_size > 0)
		hook_make_room(call, report, &directory, &order);
	if (hook_get_memory(call, report, directory, &order, why, sizeof(why)))
		return;
	if (call->refuses)
		hook_refuse(report, why);
	else
		hook_fall_back(call, report, directory, &order, why);
}

static void hook_start(struct hook_call *call, const struct hook_report *report)
{
	if (*call->plan.why && call->plan.is_wanted && call->refuses)
		hook_refuse(report, call->plan.why);
	/* Also a domain that wants nothing must be able to start where its directory is on huge pages. */
	else if (!*call->plan.why || domain_xml_get_own_size(&call->domain) > 0)
		hook_start_in(call, report);
	else if (call->plan.is_wanted)
		hook_report_note(report, LOG_WARNING, "no memory from the pool: %s", call->plan.why);
}

/* ---- started ---- */

/* Nothing is noted, perhaps because it could not be: ordinary memory is found without. */
static void hook_undo_unnoted(
	struct hook_call *call, const struct hook_report *report, struct hook_state *state)
{
	*state = (struct hook_state){.is_ordinary = true};
	hook_undo(call, report, state, false);
}

/* QEMU has its memory open: nobody else needs to be able to. */
static void hook_started(struct hook_call *call, const struct hook_report *report)
{
	_cleanup_free_ struct hook_state *state = calloc(1, sizeof(*state));

	if (!state)
		return;
	if (hook_state_read(call->settings.run_dir, call->state_name, state) < 0) {
		hook_undo_unnoted(call, report, state);
		return;
	}
	for (size_t i = 0; i < state->file_count; i++) {
		/* One of its own has no other name than that which goes now. */
		int r = state->files[i].way == HOOK_WAY_OWN ? 0 : hook_place_close_door(state->files[i].path);
		if (r < 0)
			hook_report_note(report, LOG_WARNING, "%s stays open to others of its user: %s",
				state->files[i].alias, strerror(-r));
	}
	hook_undo(call, report, state, false);
}

/* ---- the end ---- */

enum hook_left {
	HOOK_LEFT_NOTHING,
	HOOK_LEFT_LEASE, /* which ends by itself; or it is not known what */
	HOOK_LEFT_MOUNT, /* or a name: in its directory */
};

static enum hook_left hook_end(struct hook_call *call, const struct hook_report *report)
{
	_cleanup_free_ struct hook_state *state = calloc(1, sizeof(*state));
	_cleanup_free_ struct hook_answer *answer = calloc(1, sizeof(*answer));

	if (!state || !answer)
		return HOOK_LEFT_LEASE;
	int r = hook_state_read(call->settings.run_dir, call->state_name, state);
	if (r < 0) {
		hook_undo_unnoted(call, report, state);
		/* Of an earlier boot: it is of no use to anybody. */
		return r == -ESTALE ? HOOK_LEFT_NOTHING : HOOK_LEFT_LEASE;
	}
	r = hook_undo(call, report, state, true);
	/* A mount that is left is found by the lease's link, which goes with the lease. */
	if (r < 0)
		return HOOK_LEFT_MOUNT;
	if (state->lease)
		hook_ask_release(&call->settings, state->lease, hook_get_ask_end(call, 3), answer);
	bool is_over = answer->error == 0 || answer->error == HPZ_ERR_UNKNOWN_LEASE;
	if (!is_over)
		hook_report_note(report, LOG_WARNING,
			"lease %" PRIu64 " ends by itself, as it cannot be released: %s", state->lease,
			answer->text);
	return is_over ? HOOK_LEFT_NOTHING : HOOK_LEFT_LEASE;
}

/* What fails is tried again at `release`. */
static void hook_stopped(struct hook_call *call, const struct hook_report *report)
{
	if (hook_end(call, report) == HOOK_LEFT_NOTHING)
		hook_state_remove(call->settings.run_dir, call->state_name);
}

/* What does not end by itself is tried again at the domain's next start. */
static void hook_release(struct hook_call *call, const struct hook_report *report)
{
	if (hook_end(call, report) != HOOK_LEFT_MOUNT)
		hook_state_remove(call->settings.run_dir, call->state_name);
}

/* libvirtd has been restarted, and the domain runs: hpzd is to know of its memory, too. */
static void hook_reconnect(struct hook_call *call, const struct hook_report *report)
{
	_cleanup_free_ struct hook_state *state = calloc(1, sizeof(*state));
	_cleanup_free_ struct hook_answer *answer = calloc(1, sizeof(*answer));

	/* QEMU runs: a door that was not closed because libvirtd died is closed now, whatever hpzd says. */
	hook_started(call, report);
	if (!state || !answer || hook_state_read(call->settings.run_dir, call->state_name, state) < 0 ||
		!state->lease)
		return;
	hook_ask_adopt(&call->settings, state->lease, hook_get_ask_end(call, 3), answer);
	if (answer->error)
		hook_report_note(report, LOG_WARNING, "hpzd does not answer for lease %" PRIu64 ": %s",
			state->lease, answer->text);
}

static const struct hook_operation {
	const char *name, *step;
	hook_operation_fn run;
	bool may_fail;
} hook_operations[] = {
	{"start", "begin", hook_start, true},
	{"started", "begin", hook_started, false},
	{"stopped", "end", hook_stopped, false},
	{"release", "end", hook_release, false},
	{"reconnect", "begin", hook_reconnect, false},
};

/* ---- one call ---- */

/* Everything up to the end of input, at most one byte more than an XML may have. */
static char *hook_read_input(uint64_t deadline_ns, size_t *ret_length)
{
	_cleanup_free_ char *text = malloc(DOMAIN_XML_MAX + 1);
	struct pollfd look = {.fd = STDIN_FILENO, .events = POLLIN};
	size_t length = 0;

	while (text && length <= DOMAIN_XML_MAX) {
		uint64_t now_ns = clock_get_ns(CLOCK_MONOTONIC);
		if (now_ns >= deadline_ns || poll(&look, 1, (int)((deadline_ns - now_ns) / NS_PER_MS)) <= 0)
			return NULL;
		ssize_t n = read(STDIN_FILENO, text + length, DOMAIN_XML_MAX + 1 - length);
		if (n <= 0)
			break;
		length += (size_t)n;
	}
	*ret_length = length;
	return steal_pointer(&text);
}

/* The domain that libvirt means; false, with why, when it cannot be told. */
static bool hook_read_domain(struct hook_call *call, const char *name, char why[DOMAIN_WHY_MAX])
{
	size_t length = 0;
	_cleanup_free_ char *xml = hook_read_input(call->deadline_ns, &length);

	if (!xml) {
		snprintf(why, DOMAIN_WHY_MAX, "there is no XML on standard input");
		return false;
	}
	if (domain_xml_read(xml, length, &call->domain, why) < 0)
		return false;
	if (strcmp(call->domain.name, name) != 0 || !*call->domain.uuid) {
		snprintf(why, DOMAIN_WHY_MAX, "its XML is that of another domain, or has no uuid");
		return false;
	}
	domain_xml_plan(&call->domain, &call->plan);
	domain_xml_plan_own(&call->domain, &call->own);
	if (!call->settings.is_enabled) {
		snprintf(call->plan.why, sizeof(call->plan.why), "hpzd.conf says enabled = no");
		call->plan.is_wanted = false;
		call->plan.count = 0;
	}
	call->refuses = call->domain.settings.on_failure == DOMAIN_FAILURE_NONE
				? call->settings.refuses
				: call->domain.settings.on_failure == DOMAIN_FAILURE_REFUSE;
	return true;
}

/* What belongs to the other side: libvirt waits for the end of standard error. */
static void hook_close_standard(int first)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	for (int fd = first; fd < 3 && null >= 0; fd++)
		dup2(null, fd);
	close_fd(null);
}

/* What the operation needs to know, and the operation. */
static void hook_operate(
	struct hook_call *call, const struct hook_operation *operation, const struct hook_report *report)
{
	struct stat st = {0};

	if (*call->settings.mistake)
		hook_report_note(report, LOG_WARNING,
			"the configuration has a mistake, so the defaults count: %s", call->settings.mistake);
	call->base = hook_place_open_base(call->settings.backing_dir);
	if (call->base >= 0)
		fstat(call->base, &st);
	domain_xml_get_directory(&call->domain, call->directory);
	hook_state_get_name(call->domain.uuid, st.st_dev, st.st_ino, call->state_name);
	operation->run(call, report);
}

/* The child. */
static void hook_work(const char *name, const struct hook_operation *operation, uint64_t begin_ns, int to)
{
	static struct hook_call call = {.base = -1};
	const struct hook_report report = {.fd = to, .name = call.domain.name};
	char why[DOMAIN_WHY_MAX] = "", text[DOMAIN_WHY_MAX + 64];

	hook_close_standard(STDOUT_FILENO);
	hook_settings_read(NULL, &call.settings);
	call.deadline_ns = begin_ns + call.settings.deadline_ms * NS_PER_MS;
	hook_report_configured(&report, call.settings.deadline_ms);
	bool is_read = hook_read_domain(&call, name, why);
	hook_close_standard(STDIN_FILENO);
	if (is_read) {
		/* The parent refuses a start that is late. */
		hook_report_read(&report, call.refuses && call.plan.is_wanted);
		hook_operate(&call, operation, &report);
	} else {
		/* What it wants cannot be told. */
		snprintf(text, sizeof(text), "hpz: a domain is left as it is: %s", why);
		hook_report_say(&report, LOG_WARNING, text);
	}
	hook_report_done(&report);
}

/* ---- the parent ---- */

/* The child was not done in time, or died. */
static void hook_add_late(
	const char *name, const struct hook_operation *operation, struct hook_result *result)
{
	char text[1024];

	snprintf(text, sizeof(text), "domain %.255s: %s %s was not done within %u ms%s", name,
		operation->name, operation->step, result->deadline_ms,
		result->is_configured ? "" : ", as the configuration could not be read");
	hook_report_add(result, LOG_ERR, false, text);
	if (!result->refuses || !operation->may_fail)
		return;
	snprintf(text, sizeof(text), HOOK_REFUSAL "it was not done in time", name);
	hook_report_add(result, LOG_ERR, true, text);
}

/* Has the work done in a child; false when it is not begun. */
static bool hook_run(const char *name, const struct hook_operation *operation, struct hook_result *result)
{
	uint64_t begin_ns = clock_get_ns(CLOCK_MONOTONIC);
	int pipe_fds[2];

	if (pipe2(pipe_fds, O_CLOEXEC) < 0)
		return false;
	_cleanup_fd_ int from = pipe_fds[0], to = pipe_fds[1];
	pid_t parent = getpid(), child = fork();
	if (child < 0)
		return false;
	if (child == 0) {
		hook_ask_follow(parent);
		hook_work(name, operation, begin_ns, to);
		_exit(0);
	}
	to = close_fd(to);
	hook_report_receive(from, begin_ns, HOOK_SETTINGS_MS, result);
	if (!result->is_done)
		kill(child, SIGKILL);
	/* One that is held for ever is left behind: init takes it. */
	waitpid(child, NULL, result->is_done ? 0 : WNOHANG);
	return true;
}

static volatile sig_atomic_t hook_status; /* what we exit with when the time is up */

static void hook_give_up(int number)
{
	_exit(hook_status);
}

/* Nobody waits for a log that nobody reads. */
static void hook_log(const struct hook_result *result)
{
	const struct itimerval limit = {.it_value = {.tv_usec = HOOK_LOG_MS * 1000}};

	signal(SIGALRM, hook_give_up);
	setitimer(ITIMER_REAL, &limit, NULL);
	openlog("hpz-libvirt-hook", LOG_PID, LOG_DAEMON);
	for (size_t i = 0; i < result->count; i++)
		syslog(result->notes[i].priority, "%s", result->notes[i].text);
}

/* 0, or 1: the domain is not to start. */
static int hook_serve(const char *name, const struct hook_operation *operation)
{
	static struct hook_result result;

	if (!hook_run(name, operation, &result))
		hook_report_add(&result, LOG_ERR, false,
			"hpz: a domain is left as it is: there is no process for it");
	else if (!result.is_done)
		hook_add_late(result.is_read ? result.name : name, operation, &result);
	hook_status = result.is_failed && operation->may_fail;
	/* libvirt shows what a failed start says, so that is the reason and nothing else. */
	for (size_t i = 0; i < result.count; i++) {
		if (!hook_status || result.notes[i].is_refusal)
			fprintf(stderr, "%s\n", result.notes[i].text);
	}
	fflush(stderr);
	hook_log(&result);
	return hook_status;
}

static int hook_print_usage(FILE *to, int status)
{
	fputs("usage: hpz-libvirt-hook DOMAIN OPERATION STEP EXTRA < XML\n"
	      "       hpz-libvirt-hook --help | --version\n"
	      "libvirt calls it, as a link in /etc/libvirt/hooks/qemu.d: see hpz-libvirt-hook(8).\n",
		to);
	return status;
}

int main(int argc, char **argv)
{
	/* Only these stand alone: a domain may be called --help. */
	if (argc == 2 && strcmp(argv[1], "--help") == 0)
		return hook_print_usage(stdout, 0);
	if (argc == 2 && strcmp(argv[1], "--version") == 0)
		return printf("hpz-libvirt-hook %s\n", HPZ_VERSION) < 0;
	if (argc < 4)
		return hook_print_usage(stderr, 2);
	signal(SIGPIPE, SIG_IGN);
	for (size_t i = 0; i < ARRAY_SIZE(hook_operations); i++) {
		const struct hook_operation *operation = &hook_operations[i];
		if (strcmp(argv[2], operation->name) == 0 && strcmp(argv[3], operation->step) == 0)
			return hook_serve(argv[1], operation);
	}
	return 0;
}
