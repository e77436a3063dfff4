/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* cmd_top.c - hpzctl top: pools and leases as they change, on the whole terminal. */
#include "hpzctl.h"

#ifdef HPZ_CURSES
#include <curses.h>
#include <signal.h>
#endif

#include "options.h"
#include "top.h"
#include "top_feed.h"

#define CMD_TOP_COLUMNS  80 /* of what is printed once */
#define CMD_TOP_DELAY_MS 1000
#define CMD_TOP_LEAST_MS 100

static uint64_t cmd_top_get_ms(void)
{
	return clock_get_ns(CLOCK_MONOTONIC) / NS_PER_MS;
}

/* ---- once ---- */

static int cmd_top_print(const struct hpzctl *ctl, struct hpz *hpz)
{
	struct top_view *view;
	struct top_page page;

	int error = top_feed_look(hpz, &view);
	if (error)
		return hpzctl_fail(ctl, hpz, error, "cannot get the status");
	int r = top_page_draw(&page, view, CMD_TOP_COLUMNS, top_count_rows(view), 0, cmd_top_get_ms());
	if (r == 0) {
		for (unsigned row = 0; row < page.used; row++) {
			const char *line = top_page_get_line(&page, row);
			int length = (int)page.columns;
			while (length > 0 && line[length - 1] == ' ')
				length--;
			printf("%.*s\n", length, line);
		}
		top_page_free(&page);
	}
	top_view_free(view);
	if (r == 0)
		return HPZCTL_DONE;
	hpzctl_say("%s", strerror(-r));
	return HPZCTL_FAILED;
}

/* ---- the terminal ---- */

#ifdef HPZ_CURSES

#define CMD_TOP_LOOK_MS 100 /* at the keyboard, between two looks whether there is news */

static volatile sig_atomic_t cmd_top_is_over;

static void cmd_top_on_signal(int number)
{
	cmd_top_is_over = 1;
}

static void cmd_top_draw(const struct top_view *view, size_t first)
{
	struct top_page page;

	/* The last column of the last line stays empty: a terminal may scroll behind it. */
	unsigned rows = LINES > 1 ? (unsigned)LINES - 1 : 1, columns = COLS > 0 ? (unsigned)COLS : 1;
	if (top_page_draw(&page, view, columns, rows, first, cmd_top_get_ms()) < 0)
		return;
	erase();
	for (unsigned row = 0; row < page.used; row++)
		mvaddnstr((int)row, 0, top_page_get_line(&page, row), (int)columns);
	if (LINES > 1) {
		attron(A_REVERSE);
		mvaddnstr(LINES - 1, 0, "q quit  up/down scroll", COLS - 1);
		attroff(A_REVERSE);
	}
	refresh();
	top_page_free(&page);
}

static size_t cmd_top_scroll(const struct top_view *view, size_t first, int key)
{
	size_t last = view->lease_count ? view->lease_count - 1 : 0,
	       page = LINES > 12 ? (size_t)LINES - 12 : 1;

	if (key == KEY_DOWN)
		first++;
	else if (key == KEY_NPAGE)
		first += page;
	else if (key == KEY_UP)
		first -= MIN(first, (size_t)1);
	else if (key == KEY_PPAGE)
		first -= MIN(first, page);
	else if (key == KEY_HOME)
		first = 0;
	return MIN(first, last);
}

/* `view` is what to begin with. */
static void cmd_top_follow(struct top_view *view)
{
	uint64_t drawn_ms = 0;
	size_t first = 0;

	while (!cmd_top_is_over) {
		int key = getch();
		if (key == 'q' || key == 'Q')
			break;
		struct top_view *news = top_feed_take();
		if (news) {
			top_view_free(view);
			view = news;
		}
		first = cmd_top_scroll(view, first, key);
		top_feed_get_error(view->error);
		uint64_t now_ms = cmd_top_get_ms();
		if (!news && key == ERR && now_ms - drawn_ms < CMD_TOP_DELAY_MS)
			continue;
		drawn_ms = now_ms;
		cmd_top_draw(view, first);
	}
	top_view_free(view);
}

/* false: it is no terminal that can show more than lines. */
static bool cmd_top_open_screen(SCREEN **ret_screen)
{
	if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO))
		return false;
	*ret_screen = newterm(NULL, stdout, stdin);
	if (!*ret_screen)
		return false;
	intptr_t cup = (intptr_t)tigetstr("cup"); /* 0, or -1: it cannot move its cursor */
	if (cup == 0 || cup == -1) {
		endwin();
		delscreen(*ret_screen);
		return false;
	}
	return true;
}

static int cmd_top_show(const struct hpzctl *ctl, struct hpz **hpz, int64_t delay_ms)
{
	/* curses has handlers of its own, which would leave before we have. */
	const struct sigaction action = {.sa_handler = cmd_top_on_signal};
	struct top_view *view;
	SCREEN *screen;

	int error = top_feed_look(*hpz, &view);
	if (error)
		return hpzctl_fail(ctl, *hpz, error, "cannot get the status");
	if (!cmd_top_open_screen(&screen)) {
		top_view_free(view);
		return cmd_top_print(ctl, *hpz);
	}
	for (size_t i = 0; i < 4; i++)
		sigaction((const int[]){SIGINT, SIGTERM, SIGHUP, SIGQUIT}[i], &action, NULL);
	cbreak();
	noecho();
	curs_set(0);
	keypad(stdscr, true);
	timeout(CMD_TOP_LOOK_MS);
	int r = top_feed_start(*hpz, delay_ms);
	if (r == 0) {
		*hpz = NULL; /* the thread's, as long as there is one */
		cmd_top_follow(view);
	} else {
		top_view_free(view);
	}
	endwin();
	delscreen(screen);
	if (r == 0)
		return HPZCTL_DONE;
	hpzctl_say("cannot start a thread: %s", strerror(-r));
	return HPZCTL_FAILED;
}

#else

static int cmd_top_show(const struct hpzctl *ctl, struct hpz **hpz, int64_t delay_ms)
{
	return cmd_top_print(ctl, *hpz);
}

#endif

int cmd_top(struct hpzctl *ctl, int argc, char **argv)
{
	_cleanup_hpz_ struct hpz *hpz = NULL;
	int64_t delay_ms = CMD_TOP_DELAY_MS;
	bool once = false;
	const struct options_row rows[] = {
		{"delay", OPTIONS_SECONDS, &delay_ms, "SECONDS", "look again after so long (default: 1)"},
		{"once", OPTIONS_FLAG, &once, NULL,
			"print it once, as lines; so it is also where there is no terminal"},
	};
	char **operands;
	int count;

	int status = options_parse(ctl, rows, ARRAY_SIZE(rows), argc, argv, false, &operands, &count);
	if (status == OPTIONS_GO)
		status = options_refuse_operands(ctl, operands, count);
	if (status != OPTIONS_GO)
		return status;
	if (ctl->json)
		return hpzctl_fail_usage(ctl, "top is for people: hpzctl status has --json");
	if (delay_ms < CMD_TOP_LEAST_MS || delay_ms == HPZ_FOREVER)
		return hpzctl_fail_usage(ctl, "--delay is 0.1 seconds at least");
	status = hpzctl_connect(ctl, &hpz);
	if (status)
		return status;
	return once ? cmd_top_print(ctl, hpz) : cmd_top_show(ctl, &hpz, delay_ms);
}
