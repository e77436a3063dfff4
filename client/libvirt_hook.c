/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * libvirt_hook.c - hpz-libvirt-hook: what libvirt calls at each step of a domain, with its XML.
 *
 * At `start begin` libvirt has made the domain's directory, empty, and QEMU is not there yet: then the files
 * of its memory are put there. At `started begin` QEMU has them open, and they go again, so that nobody else
 * can open them. At the end the lease is released.
 *
 * The work is done in a child that is killed at the deadline, because a directory, a mount or a log can be
 * held for ever by somebody else, and libvirt waits for us with everything else it does. Nothing is ever
 * printed on standard output, which would replace the XML; a hook that fails at `reconnect` would kill a
 * running domain.
 */
#include <fcntl.h>
#include <poll.h>
#include <pwd.h>
#include <grp.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <syslog.h>

#include "hook_ask.h"
#include "hook_place.h"
#include "hook_settings.h"
#include "hook_state.h"
#include "hook_take.h"
#include "lease_key.h"
#include "hpz.h"

#define HOOK_ASK_AGAIN_MS 50
#define HOOK_SETTINGS_MS  60000 /* the longest deadline there is */
#define HOOK_LOG_MS       100   /* to say that the deadline is over */

struct hook_call {
	struct hook_settings settings;
	struct domain domain;
	struct domain_plan plan;
	bool refuses;     /* what cannot have memory of the pool does not start */
	bool is_ordinary; /* ordinary memory is mounted over its directory */
	uint64_t deadline_ns;
	int base; /* the backing directory */
	char directory[DOMAIN_DIRECTORY_MAX];
	char state_name[HOOK_STATE_NAME_MAX];
};

/* What the child says to its parent. */
struct hook_report {
	bool is_failed;
	char sentence[1024]; /* why it failed */
	char notes[2048];    /* what was done, a line each */
};

typedef void (*hook_operation_fn)(struct hook_call *call, struct hook_report *report);

/* ---- words ---- */

/* In the log, and for who calls us by hand. */
static PRINTF(4, 5) void hook_note(
	const struct hook_call *call, struct hook_report *report, int priority, const char *format, ...)
{
	size_t length = strlen(report->notes);
	char text[512];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	syslog(priority, "domain %s: %s", call->domain.name, text);
	snprintf(report->notes + length, sizeof(report->notes) - length, "domain %s: %s\n", call->domain.name,
		text);
}

static void hook_fill_refusal(const struct hook_call *call, struct hook_report *report, const char *why)
{
	report->is_failed = true;
	snprintf(report->sentence, sizeof(report->sentence),
		"hpz: domain %s gets no memory from the pool and is not to start without it (on-failure is "
		"refuse): %s",
		call->domain.name, why);
}

/* The end of a start that must not go on with other memory. */
static void hook_refuse(const struct hook_call *call, struct hook_report *report, const char *why)
{
	hook_fill_refusal(call, report, why);
	syslog(LOG_ERR, "domain %s: does not start, as on-failure is refuse: %s", call->domain.name, why);
}

/* ---- who and where ---- */

/* "+64055:+108", "libvirt-qemu:kvm" */
static bool hook_parse_label(const char *label, uint32_t *ret_uid, uint32_t *ret_gid)
{
	char copy[sizeof(((struct domain *)0)->dac_label)], *group = copy;
	unsigned uid, gid;

	if (sscanf(label, "+%u:+%u", &uid, &gid) == 2) {
		*ret_uid = uid;
		*ret_gid = gid;
		return true;
	}
	snprintf(copy, sizeof(copy), "%s", label);
	const struct passwd *known_user = getpwnam(strsep(&group, ":"));
	const struct group *known_group = group ? getgrnam(group) : NULL;
	if (!known_user || !known_group)
		return false;
	*ret_uid = known_user->pw_uid;
	*ret_gid = known_group->gr_gid;
	return true;
}

/* Whose QEMU is: of the configuration, of the domain, or of the directory that libvirt made for it. */
static void hook_find_user(const struct hook_call *call, int directory, struct hook_order *order)
{
	struct stat st = {0};

	if (call->settings.has_user) {
		order->uid = call->settings.uid;
		order->gid = call->settings.gid;
	} else if (!*call->domain.dac_label ||
		   !hook_parse_label(call->domain.dac_label, &order->uid, &order->gid)) {
		fstat(directory, &st);
		order->uid = st.st_uid;
		order->gid = st.st_gid;
	}
}

/* The domain's own word, or pages as the directory has: then it takes no more than a link. */
static uint64_t hook_choose_page_size(const struct hook_call *call, int directory)
{
	uint64_t page_size = hook_place_get_page_size(directory);

	if (call->plan.page_size)
		return call->plan.page_size;
	return hook_settings_has_pool(&call->settings, page_size) ? page_size : 0;
}

/* ---- undoing ---- */

/*
 * When a question to hpzd is over that may take so many quarters of the time left: the rest is for what is
 * done without it, as an hpzd that is stopped takes all it gets.
 */
static uint64_t hook_get_ask_end(const struct hook_call *call, unsigned quarters)
{
	uint64_t now_ns = clock_get_ns(CLOCK_MONOTONIC);

	return now_ns + (call->deadline_ns - MIN(now_ns, call->deadline_ns)) / 4 * quarters;
}

/* Takes out what an earlier call put into the domain's directory; the directory, too, if libvirt could not.
 */
static void hook_undo(
	struct hook_call *call, struct hook_report *report, const struct hook_state *state, bool is_over)
{
	_cleanup_fd_ int directory = hook_place_open_directory(call->base, state->directory);
	int r = 0;

	for (size_t i = 0; directory >= 0 && i < state->file_count; i++) {
		int failed = hook_place_remove(directory, &state->files[i]);
		r = r < 0 ? r : failed;
	}
	if (state->is_ordinary && directory >= 0) {
		int failed = hook_place_remove_ordinary(directory);
		r = r < 0 ? r : failed;
	}
	if (r < 0)
		hook_note(call, report, LOG_WARNING, "its directory cannot be tidied up: %s", strerror(-r));
	/* Where something was mounted libvirt found it busy. */
	if (is_over && directory >= 0)
		unlinkat(call->base, state->directory, AT_REMOVEDIR);
}

/* What was put into place and cannot be of use; what is ordinary stays. */
static void hook_take_out(struct hook_call *call, struct hook_report *report, struct hook_state *state)
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
	struct hook_call *call, struct hook_report *report, const struct hook_state *state)
{
	int r = hook_state_write(call->settings.run_dir, call->state_name, state);

	if (r < 0)
		hook_note(call, report, LOG_WARNING, "cannot note what was done for it in %s/libvirt: %s",
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
static bool hook_use_memory(struct hook_call *call, struct hook_report *report, int directory,
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
		hook_note(call, report, LOG_INFO, "its memory is lease %" PRIu64 "%s", memory->lease,
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
static bool hook_get_memory(struct hook_call *call, struct hook_report *report, int directory,
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
static int hook_use_ordinary(
	struct hook_call *call, struct hook_report *report, int directory, const struct hook_order *order)
{
	_cleanup_free_ struct hook_state *state = calloc(1, sizeof(*state));

	if (!state)
		return -ENOMEM;
	strcpy(state->directory, call->directory);
	state->is_ordinary = true;
	hook_write_state(call, report, state);
	int r = hook_place_add_ordinary(directory, order->uid, order->gid, call->domain.selinux_label);
	call->is_ordinary = r == 0;
	return r;
}

/* QEMU makes its files itself; where it could not, ordinary memory is put under them. */
static void hook_fall_back(struct hook_call *call, struct hook_report *report, int directory,
	const struct hook_order *order, const char *why)
{
	bool has_pages = hook_place_has_room(directory, domain_xml_get_own_size(&call->domain)) &&
			 (call->plan.count == 0 || hook_place_has_pages(directory, &call->plan));
	int priority = call->plan.is_wanted ? LOG_WARNING : LOG_INFO;

	if (call->is_ordinary) {
		hook_note(call, report, priority, "no memory from the pool, it runs on ordinary memory: %s",
			why);
	} else if (!hook_place_get_page_size(directory)) {
		hook_note(call, report, priority, "no memory from the pool, QEMU makes files of its own: %s",
			why);
	} else if (has_pages) {
		hook_note(call, report, priority,
			"no memory from the pool, QEMU takes huge pages from the kernel: %s", why);
	} else {
		int r = hook_use_ordinary(call, report, directory, order);
		if (r < 0)
			hook_note(call, report, LOG_ERR,
				"no memory from the pool, the kernel has no huge pages, and ordinary memory "
				"cannot be mounted (%s): %s",
				strerror(-r), why);
		else
			hook_note(call, report, priority,
				"no memory from the pool, it runs on ordinary memory: %s", why);
	}
}

/*
 * Devices whose memory QEMU makes itself are beside the pool's files: where the kernel has no huge pages for
 * them, the directory becomes ordinary memory before the files are put there.
 */
static void hook_make_room(
	struct hook_call *call, struct hook_report *report, int *directory, const struct hook_order *order)
{
	if (!hook_place_get_page_size(*directory) ||
		hook_place_has_room(*directory, call->plan.left_out_size) ||
		hook_use_ordinary(call, report, *directory, order) < 0)
		return;
	hook_note(call, report, LOG_INFO, "memory devices that are not from the pool run on ordinary memory");
	close_fd(*directory);
	*directory = hook_place_open_directory(call->base, call->directory);
}

/* A call that is repeated begins anew; a start whose end nobody told us of is over. */
static void hook_forget_earlier(struct hook_call *call, struct hook_report *report)
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
static void hook_miss_directory(struct hook_call *call, struct hook_report *report, int error)
{
	char why[512];

	if (!call->plan.is_wanted)
		return;
	snprintf(why, sizeof(why),
		"libvirt has made no directory %s/%s (%s): is memory_backing_dir the same in hpzd.conf and "
		"qemu.conf?",
		call->settings.backing_dir, call->directory, strerror(error));
	if (call->refuses)
		hook_refuse(call, report, why);
	else
		hook_note(call, report, LOG_WARNING, "no memory from the pool: %s", why);
}

static void hook_start_in(struct hook_call *call, struct hook_report *report)
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
	hook_find_user(call, directory, &order);
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
		hook_refuse(call, report, why);
	else
		hook_fall_back(call, report, directory, &order, why);
}

static void hook_start(struct hook_call *call, struct hook_report *report)
{
	if (*call->plan.why && call->plan.is_wanted && call->refuses)
		hook_refuse(call, report, call->plan.why);
	/* Also a domain that wants nothing must be able to start where its directory is on huge pages. */
	else if (!*call->plan.why || domain_xml_get_own_size(&call->domain) > 0)
		hook_start_in(call, report);
	else if (call->plan.is_wanted)
		hook_note(call, report, LOG_WARNING, "no memory from the pool: %s", call->plan.why);
}

/* ---- started ---- */

/* QEMU has its memory open: nobody else needs to be able to. */
static void hook_started(struct hook_call *call, struct hook_report *report)
{
	_cleanup_free_ struct hook_state *state = calloc(1, sizeof(*state));

	if (!state || hook_state_read(call->settings.run_dir, call->state_name, state) < 0)
		return;
	for (size_t i = 0; i < state->file_count; i++) {
		int r = hook_place_close_door(state->files[i].path);
		if (r < 0)
			hook_note(call, report, LOG_WARNING, "%s stays open to others of its user: %s",
				state->files[i].alias, strerror(-r));
	}
	hook_undo(call, report, state, false);
}

/* ---- the end ---- */

static bool hook_end(struct hook_call *call, struct hook_report *report)
{
	_cleanup_free_ struct hook_state *state = calloc(1, sizeof(*state));
	_cleanup_free_ struct hook_answer *answer = calloc(1, sizeof(*answer));

	if (!state || !answer || hook_state_read(call->settings.run_dir, call->state_name, state) < 0)
		return true;
	hook_undo(call, report, state, true);
	if (state->lease)
		hook_ask_release(&call->settings, state->lease, hook_get_ask_end(call, 3), answer);
	if (answer->error && answer->error != HPZ_ERR_UNKNOWN_LEASE)
		hook_note(call, report, LOG_WARNING,
			"lease %" PRIu64 " ends by itself, as it cannot be released: %s", state->lease,
			answer->text);
	return answer->error == 0 || answer->error == HPZ_ERR_UNKNOWN_LEASE;
}

/* What fails is tried again at `release`. */
static void hook_stopped(struct hook_call *call, struct hook_report *report)
{
	if (hook_end(call, report))
		hook_state_remove(call->settings.run_dir, call->state_name);
}

static void hook_release(struct hook_call *call, struct hook_report *report)
{
	hook_end(call, report);
	hook_state_remove(call->settings.run_dir, call->state_name);
}

/* libvirtd has been restarted, and the domain runs: hpzd is to know of its memory, too. */
static void hook_reconnect(struct hook_call *call, struct hook_report *report)
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
		hook_note(call, report, LOG_WARNING, "hpzd does not answer for lease %" PRIu64 ": %s",
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
	/* The parent must know it, too: it refuses a start that is late. */
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

/* In the child. */
static void hook_work(
	struct hook_call *call, const struct hook_operation *operation, struct hook_report *report)
{
	struct stat st = {0};

	if (*call->settings.mistake)
		hook_note(call, report, LOG_WARNING,
			"the configuration has a mistake, so the defaults count: %s", call->settings.mistake);
	call->base = hook_place_open_base(call->settings.backing_dir);
	if (call->base >= 0)
		fstat(call->base, &st);
	domain_xml_get_directory(&call->domain, call->directory);
	hook_state_get_name(call->domain.uuid, st.st_dev, st.st_ino, call->state_name);
	operation->run(call, report);
}

static void hook_send(int fd, const struct hook_report *report)
{
	/* Smaller than a pipe: it is written at once. */
	_Static_assert(sizeof(*report) < 4096, "as a whole or not at all");
	if (write(fd, report, sizeof(*report)) != sizeof(*report))
		_exit(1);
}

/* Not ours to keep open: libvirt waits for the end of standard error. */
static void hook_close_standard(void)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	for (int fd = 0; fd < 3 && null >= 0; fd++)
		dup2(null, fd);
	close_fd(null);
}

static bool hook_receive(int fd, uint64_t deadline_ns, struct hook_report *report)
{
	struct pollfd look = {.fd = fd, .events = POLLIN};
	uint64_t now_ns = clock_get_ns(CLOCK_MONOTONIC);
	int left_ms = now_ns < deadline_ns ? (int)((deadline_ns - now_ns) / NS_PER_MS) : 0;

	return poll(&look, 1, left_ms) > 0 && read(fd, report, sizeof(*report)) == sizeof(*report);
}

/* Does the work in a child; false when it does not come to an end in time. */
static bool hook_run(
	struct hook_call *call, const struct hook_operation *operation, struct hook_report *report)
{
	int pipe_fds[2];

	if (pipe2(pipe_fds, O_CLOEXEC) < 0)
		return false;
	_cleanup_fd_ int from = pipe_fds[0], to = pipe_fds[1];
	pid_t parent = getpid(), child = fork();
	if (child < 0)
		return false;
	if (child == 0) {
		hook_ask_follow(parent);
		hook_close_standard();
		hook_work(call, operation, report);
		hook_send(to, report);
		_exit(0);
	}
	to = close_fd(to);
	bool is_done = hook_receive(from, call->deadline_ns, report);
	if (!is_done)
		kill(child, SIGKILL);
	/* One that is held for ever is left behind: init takes it. */
	waitpid(child, NULL, is_done ? 0 : WNOHANG);
	return is_done;
}

static volatile sig_atomic_t hook_status; /* what we exit with when the time is up */

static void hook_give_up(int number)
{
	_exit(hook_status);
}

/* The parent, too, may be held: by the log, or by who knows the names of users. Not a child: it has no timer.
 */
static void hook_set_limit(unsigned ms)
{
	const struct itimerval limit = {.it_value = {.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000}};

	signal(SIGALRM, hook_give_up);
	setitimer(ITIMER_REAL, &limit, NULL);
}

/* The child was not done in time, or died. */
static void hook_report_late(const struct hook_call *call, struct hook_report *report)
{
	snprintf(report->notes, sizeof(report->notes), "domain %s: not done within %u ms\n",
		call->domain.name, call->settings.deadline_ms);
	if (call->refuses && call->plan.is_wanted)
		hook_fill_refusal(call, report, "it was not done in time");
}

/* 0, or 1: the domain is not to start. */
static int hook_serve(const char *name, const struct hook_operation *operation)
{
	static struct hook_call call = {.base = -1};
	static struct hook_report report;
	char why[DOMAIN_WHY_MAX] = "";

	hook_set_limit(HOOK_SETTINGS_MS);
	hook_settings_read(NULL, &call.settings);
	call.deadline_ns = clock_get_ns(CLOCK_MONOTONIC) + call.settings.deadline_ms * NS_PER_MS;
	hook_set_limit(call.settings.deadline_ms + HOOK_LOG_MS);
	if (!hook_read_domain(&call, name, why)) {
		/* What it wants cannot be told, so it is left alone. */
		fprintf(stderr, "hpz: a domain is left as it is: %s\n", why);
		syslog(LOG_WARNING, "a domain is left as it is: %s", why);
		return 0;
	}
	bool is_done = hook_run(&call, operation, &report);
	if (!is_done)
		hook_report_late(&call, &report);
	hook_status = report.is_failed && operation->may_fail;
	if (hook_status)
		fprintf(stderr, "%s\n", report.sentence);
	else
		fputs(report.notes, stderr);
	/* Last: the log may be what held the child. */
	if (!is_done)
		syslog(LOG_ERR, "domain %s: %s %s was not done within %u ms%s", call.domain.name,
			operation->name, operation->step, call.settings.deadline_ms,
			hook_status ? ": it does not start, as on-failure is refuse" : "");
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
	openlog("hpz-libvirt-hook", LOG_PID, LOG_DAEMON);
	for (size_t i = 0; i < ARRAY_SIZE(hook_operations); i++) {
		const struct hook_operation *operation = &hook_operations[i];
		if (strcmp(argv[2], operation->name) == 0 && strcmp(argv[3], operation->step) == 0)
			return hook_serve(argv[1], operation);
	}
	return 0;
}
