/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * domain_change.c - hpzctl domain enable and disable: what would change is shown before it is done.
 * The domain's persistent XML is edited, through libvirt; a domain that runs goes on as it is.
 */
#include "domain.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "domain_edit.h"
#include "output.h"

struct domain_change {
	enum domain_edit_kind kind;
	const char *uri, *name;
	bool is_agreed; /* --yes */
	bool is_tried;  /* --dry-run */
};

/* ---- the difference ---- */

/* A text as a file that a child of ours can read. -1: errno. */
static int domain_change_open_text(const char *text)
{
	_cleanup_fd_ int fd = memfd_create("hpz-domain", 0);
	size_t left = strlen(text);

	while (fd >= 0 && left > 0) {
		ssize_t r = write(fd, text, left);
		if (r <= 0)
			return -1;
		text += r;
		left -= (size_t)r;
	}
	return steal_fd(&fd);
}

static void domain_change_exec_diff(int before, int after, int out, const char *name)
{
	char labels[2][300], paths[2][32];

	snprintf(labels[0], sizeof(labels[0]), "%s as it is", name);
	snprintf(labels[1], sizeof(labels[1]), "%s as it will be", name);
	snprintf(paths[0], sizeof(paths[0]), "/proc/self/fd/%d", before);
	snprintf(paths[1], sizeof(paths[1]), "/proc/self/fd/%d", after);
	if (dup2(out, STDOUT_FILENO) >= 0)
		execlp("diff", "diff", "-u", "--label", labels[0], "--label", labels[1], paths[0], paths[1],
			NULL);
	_exit(127);
}

/* What diff -u says of the two; NULL: it cannot be had. */
static char *domain_change_compare(const struct domain_edit *edit, const char *name)
{
	_cleanup_fd_ int before = domain_change_open_text(edit->before);
	_cleanup_fd_ int after = domain_change_open_text(edit->after);
	_cleanup_fd_ int out = memfd_create("hpz-difference", MFD_CLOEXEC);
	int status = 0;

	if (before < 0 || after < 0 || out < 0)
		return NULL;
	pid_t child = fork();
	if (child == 0)
		domain_change_exec_diff(before, after, out, name);
	if (child < 0 || waitpid(child, &status, 0) < 0 || !WIFEXITED(status) || WEXITSTATUS(status) != 1)
		return NULL;
	off_t size = lseek(out, 0, SEEK_END);
	char *text = size >= 0 ? calloc(1, (size_t)size + 1) : NULL;
	if (text && pread(out, text, (size_t)size, 0) != size) {
		free(text);
		return NULL;
	}
	return text;
}

/* Line by line: names in it are anybody's. */
static void domain_change_print_text(const char *text)
{
	_cleanup_free_ char *copy = strdup(text);
	char *rest = copy;

	for (char *line; rest && *rest && (line = strsep(&rest, "\n"));) {
		output_print_text(stdout, line);
		putchar('\n');
	}
}

/* ---- what is done ---- */

static bool domain_change_ask(void)
{
	char answer[16];

	fputs("Change it? [y/N] ", stdout);
	fflush(stdout);
	return fgets(answer, sizeof(answer), stdin) && (answer[0] == 'y' || answer[0] == 'Y');
}

/* What somebody else changed since we looked must not be lost. */
static int domain_change_define(
	virConnectPtr connection, virDomainPtr domain, const char *xml, const char *edited)
{
	_cleanup_free_ char *now =
		virDomainGetXMLDesc(domain, VIR_DOMAIN_XML_INACTIVE | VIR_DOMAIN_XML_SECURE);

	if (!now)
		return domain_fail("cannot read domain %s again", virDomainGetName(domain));
	if (strcmp(now, xml) != 0) {
		hpzctl_say("domain %s was changed meanwhile; nothing is done", virDomainGetName(domain));
		return HPZCTL_LATER;
	}
	_cleanup_domain_ virDomainPtr defined = virDomainDefineXML(connection, edited);
	return defined ? HPZCTL_DONE
		       : domain_fail("libvirt does not take the change of %s", virDomainGetName(domain));
}

static void domain_change_report(const struct hpzctl *ctl, virDomainPtr domain,
	const struct domain_edit *edit, const char *difference, bool is_applied)
{
	char uuid[VIR_UUID_STRING_BUFLEN] = "";
	bool is_active = virDomainIsActive(domain) > 0;
	struct output_json json;

	if (ctl->json) {
		virDomainGetUUIDString(domain, uuid);
		output_json_init(&json, stdout);
		output_json_open_object(&json, NULL);
		output_json_text(&json, "schema", "hpz-domain-change-1");
		output_json_text(&json, "name", virDomainGetName(domain));
		output_json_text(&json, "uuid", uuid);
		output_json_bool(&json, "active", is_active);
		output_json_bool(&json, "changes", edit->is_changed);
		output_json_bool(&json, "applied", is_applied);
		output_json_text_or_null(&json, "difference", difference);
		output_json_close(&json);
	} else if (!edit->is_changed) {
		puts("It is so already.");
	} else if (is_applied) {
		printf("Changed%s\n", is_active ? "; it holds from its next start on." : ".");
	}
}

static int domain_change_decide(
	const struct hpzctl *ctl, const struct domain_change *change, bool *ret_is_wanted)
{
	*ret_is_wanted = change->is_agreed && !change->is_tried;
	if (change->is_agreed || change->is_tried)
		return HPZCTL_DONE;
	if (ctl->json || !isatty(STDIN_FILENO)) {
		hpzctl_say("nothing is changed without --yes");
		return HPZCTL_FAILED;
	}
	*ret_is_wanted = domain_change_ask();
	return *ret_is_wanted ? HPZCTL_DONE : HPZCTL_FAILED;
}

static int domain_change_apply(const struct hpzctl *ctl, const struct domain_change *change,
	virConnectPtr connection, virDomainPtr domain, const char *xml, const struct domain_edit *edit)
{
	_cleanup_free_ char *difference =
		edit->is_changed ? domain_change_compare(edit, virDomainGetName(domain)) : NULL;
	bool is_wanted = false;
	int status = HPZCTL_DONE;

	if (edit->is_changed && !difference) {
		hpzctl_say("cannot show what would change: is diff(1) installed?");
		return HPZCTL_FAILED;
	}
	if (difference && !ctl->json)
		domain_change_print_text(difference);
	if (edit->is_changed)
		status = domain_change_decide(ctl, change, &is_wanted);
	if (is_wanted)
		status = domain_change_define(connection, domain, xml, edit->after);
	domain_change_report(
		ctl, domain, edit, difference ? difference : "", is_wanted && status == HPZCTL_DONE);
	return status;
}

static int domain_change_run(const struct hpzctl *ctl, const struct domain_change *change)
{
	_cleanup_connection_ virConnectPtr connection = NULL;
	_cleanup_domain_ virDomainPtr domain = NULL;
	_cleanup_free_ char *xml = NULL;
	struct domain_edit edit = {0};
	char why[DOMAIN_WHY_MAX] = "out of memory";

	int status = domain_connect(change->uri, false, &connection);
	if (!status)
		status = domain_find(connection, change->name, &domain);
	if (status)
		return status;
	if (virDomainIsPersistent(domain) == 0) {
		hpzctl_say("domain %s is transient: change what it is created from", change->name);
		return HPZCTL_FAILED;
	}
	/* With its secrets: they must be there when it is defined again. */
	xml = virDomainGetXMLDesc(domain, VIR_DOMAIN_XML_INACTIVE | VIR_DOMAIN_XML_SECURE);
	if (!xml)
		return domain_fail("cannot read domain %s", change->name);
	if (domain_edit_apply(xml, strlen(xml), change->kind, &edit, why) < 0) {
		hpzctl_say("domain %s: %s", change->name, why);
		return HPZCTL_FAILED;
	}
	status = domain_change_apply(ctl, change, connection, domain, xml, &edit);
	domain_edit_deinit(&edit);
	return status;
}

static int domain_change_main(struct hpzctl *ctl, int argc, char **argv, enum domain_edit_kind kind)
{
	struct domain_change change = {.kind = kind};
	const struct options_row rows[] = {
		DOMAIN_CONNECT_ROW(&change.uri),
		{"yes", OPTIONS_FLAG, &change.is_agreed, NULL, "do it without asking"},
		{"dry-run", OPTIONS_FLAG, &change.is_tried, NULL, "only show what would change"},
	};
	char **operands;
	int count;

	int status = options_parse(ctl, rows, ARRAY_SIZE(rows), argc, argv, false, &operands, &count);
	if (status == OPTIONS_GO)
		status = domain_take_name(ctl, operands, count, &change.name);
	return status == OPTIONS_GO ? domain_change_run(ctl, &change) : status;
}

int domain_enable(struct hpzctl *ctl, int argc, char **argv)
{
	return domain_change_main(ctl, argc, argv, DOMAIN_EDIT_ENABLE);
}

int domain_disable(struct hpzctl *ctl, int argc, char **argv)
{
	return domain_change_main(ctl, argc, argv, DOMAIN_EDIT_DISABLE);
}
