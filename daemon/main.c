/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* main.c - the command line of hpzd. */
#include <getopt.h>

#include "config.h"
#include "daemon.h"
#include "log.h"
#include "worker.h"

static const char help[] =
	"hpzd - keeps huge pages zero and hands them to virtual machines\n"
	"\n"
	"  hpzd [--config FILE]   run in the foreground (default " CONFIG_DEFAULT_PATH ")\n"
	"  hpzd --check FILE      say what is wrong with a configuration\n"
	"  hpzd --version\n"
	"  hpzd --help\n"
	"\n"
	"SIGTERM ends it and keeps all memory for the next start; SIGHUP reloads the configuration.\n"
	"See hpzd(8), hpzd.conf(5), hpzctl(1).\n";

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{"config", required_argument, NULL, 'c'},
		{"check", required_argument, NULL, 'k'},
		{"version", no_argument, NULL, 'v'},
		{"help", no_argument, NULL, 'h'},
		{"simulate", no_argument, NULL, 's'}, /* for tests and benchmarks, not for people */
		{NULL, 0, NULL, 0},
	};
	const char *config = CONFIG_DEFAULT_PATH;
	bool is_simulated = false;
	if (argc > 1 && strcmp(argv[1], "--worker") == 0) {
		log_init("hpzd worker");
		return worker_main(argc - 2, argv + 2);
	}
	log_init("hpzd");
	for (int option; (option = getopt_long(argc, argv, "", options, NULL)) != -1;) {
		switch (option) {
		case 'c':
			config = optarg;
			break;
		case 'k':
			return daemon_check(optarg);
		case 's':
			is_simulated = true;
			break;
		case 'v':
			puts("hpzd " HPZ_VERSION);
			return 0;
		case 'h':
			fputs(help, stdout);
			return 0;
		default:
			return 2;
		}
	}
	if (optind < argc) {
		fprintf(stderr, "hpzd: %s: hpzd takes no such argument; see hpzd --help\n", argv[optind]);
		return 2;
	}
	return daemon_run(config, "/proc/self/exe", is_simulated);
}
