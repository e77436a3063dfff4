/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* hpz_libvirt.c - the command line of hpz-libvirt: the watcher, and what hpzctl domain becomes. */
#include <getopt.h>

#include "domain.h"
#include "emulators.h"
#include "hpz.h"
#include "virt.h"
#include "watcher.h"

/* As long as hpzd waits before it believes that nobody has a lease's file open any more. */
#define HPZ_LIBVIRT_GRACE_MS     10000u
#define HPZ_LIBVIRT_GRACE_MAX_MS 3600000u

static const char help[] =
	"hpz-libvirt - ends leases of libvirt domains that are no more\n"
	"\n"
	"  hpz-libvirt [OPTION...]          run in the foreground\n"
	"    --connect URI                  libvirt's (default " VIRT_DEFAULT_URI ")\n"
	"    --socket PATH                  where hpzd listens (default $HPZ_SOCKET or " HPZ_DEFAULT_SOCKET
	")\n"
	"    --grace S                      seconds between the two looks that must agree (default 10)\n"
	"  hpz-libvirt domain ...           what hpzctl domain does\n"
	"  hpz-libvirt --version\n"
	"  hpz-libvirt --help\n"
	"\n"
	"SIGTERM ends it; SIGHUP makes it look now. See hpz-libvirt(8), hpzctl(1).\n";

static bool hpz_libvirt_read_grace(const char *text, uint64_t *ret_ms)
{
	char *rest;

	errno = 0;
	double seconds = strtod(text, &rest);
	if (errno || rest == text || *rest || !(seconds > 0 && seconds * 1000 <= HPZ_LIBVIRT_GRACE_MAX_MS))
		return false;
	*ret_ms = MAX((uint64_t)(seconds * 1000), 1);
	return true;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{"connect", required_argument, NULL, 'c'},
		{"socket", required_argument, NULL, 's'},
		{"grace", required_argument, NULL, 'g'},
		{"version", no_argument, NULL, 'v'},
		{"help", no_argument, NULL, 'h'},
		{NULL, 0, NULL, 0},
	};
	struct watcher_options watcher = {.uri = VIRT_DEFAULT_URI, .grace_ms = HPZ_LIBVIRT_GRACE_MS};

	if (argc > 1 && strcmp(argv[1], "domain") == 0)
		return domain_main(argc - 2, argv + 2);
	/* Its own child. */
	if (argc == 2 && strcmp(argv[1], EMULATORS_WORD) == 0)
		return emulators_tell();
	for (int option; (option = getopt_long(argc, argv, "", options, NULL)) != -1;) {
		switch (option) {
		case 'c':
			watcher.uri = optarg;
			break;
		case 's':
			watcher.socket_path = optarg;
			break;
		case 'g':
			if (hpz_libvirt_read_grace(optarg, &watcher.grace_ms))
				break;
			fprintf(stderr, "hpz-libvirt: --grace %s: that is not seconds, up to an hour\n",
				optarg);
			return 2;
		case 'v':
			puts("hpz-libvirt " HPZ_VERSION);
			return 0;
		case 'h':
			fputs(help, stdout);
			return 0;
		default:
			return 2;
		}
	}
	if (optind < argc) {
		fprintf(stderr, "hpz-libvirt: %s: it takes no such argument; see hpz-libvirt --help\n",
			argv[optind]);
		return 2;
	}
	return watcher_run(&watcher);
}
