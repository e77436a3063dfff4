/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* top.c - the page that `hpzctl top` shows. */
#include "top.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>

#include "output.h"
#include "size.h"

#define TOP_STALE_MS   3000 /* what was seen longer ago is said to be old */
#define TOP_BAR_LEAST  8
#define TOP_BAR_BESIDE 53 /* columns of a pool's line that are not its bar */

void top_view_free(struct top_view *view)
{
	if (!view)
		return;
	free(view->pools);
	free(view->leases);
	free(view);
}

void top_set_text(char *to, size_t size, const char *text)
{
	size_t at = 0;

	for (; *text; text++) {
		unsigned char byte = (unsigned char)*text;
		if ((byte & 0xc0) == 0x80) /* the rest of a character */
			continue;
		if (at + 1 == size) {
			to[at - 1] = '~';
			break;
		}
		to[at++] = byte >= ' ' && byte < 0x7f ? (char)byte : '?';
	}
	to[at] = '\0';
}

static int top_compare_leases(const void *left, const void *right)
{
	const struct top_lease *a = left, *b = right;

	if (a->size != b->size)
		return a->size < b->size ? 1 : -1;
	return a->id < b->id ? -1 : a->id > b->id;
}

void top_sort_leases(struct top_view *view)
{
	if (view->lease_count)
		qsort(view->leases, view->lease_count, sizeof(*view->leases), top_compare_leases);
}

/* ---- lines ---- */

static char *top_page_get(const struct top_page *page, unsigned row)
{
	return page->text + (size_t)row * (page->columns + 1);
}

const char *top_page_get_line(const struct top_page *page, unsigned row)
{
	return top_page_get(page, row);
}

void top_page_free(struct top_page *page)
{
	free(page->text);
}

/* One more line, if there is room. Formats get ASCII only: a byte is a column. */
static void top_page_add(struct top_page *page, const char *format, ...) PRINTF(2, 3);
static void top_page_add(struct top_page *page, const char *format, ...)
{
	va_list args;

	if (page->used == page->rows)
		return;
	char *line = top_page_get(page, page->used++);
	va_start(args, format);
	int length = vsnprintf(line, page->columns + 1, format, args);
	va_end(args);
	if (length >= 0 && (unsigned)length < page->columns)
		memset(line + length, ' ', page->columns - (unsigned)length);
}

static void top_page_add_message(struct top_page *page, const char *who, const char *message)
{
	if (*message)
		top_page_add(page, "%s: %s", who, message);
}

/* ---- head ---- */

static void top_draw_head(struct top_page *page, const struct top_view *view, uint64_t now_ms)
{
	char uptime[OUTPUT_DURATION], ago[OUTPUT_DURATION], clear[SIZE_TEXT], fill[SIZE_TEXT];
	uint64_t age_ms = now_ms > view->seen_ms ? now_ms - view->seen_ms : 0;
	uint32_t waiting = 0;

	for (size_t i = 0; i < view->pool_count; i++)
		waiting += view->pools[i].waiting;
	top_page_add(page, "hpzd %s, up %s; proof: %s; clears with: %s", view->version,
		output_format_duration(view->uptime_ms, uptime), *view->proof ? view->proof : "?",
		*view->method ? view->method : "not known yet");
	top_page_add(page, "leases: %zu, %" PRIu64 " granted; waiting: %" PRIu32 "; connections: %" PRIu64,
		view->lease_count, view->granted, waiting, view->connections);
	if (view->has_rates)
		top_page_add(page,
			"clearing %s/s, filling %s/s; workers: %" PRIu32 " of %" PRIu32 " busy%s%s",
			size_format(view->clear_rate, clear), size_format(view->fill_rate, fill), view->busy,
			view->workers, *view->hold ? "; " : "", view->hold);
	else
		top_page_add(page, "workers: %" PRIu32 " of %" PRIu32 " busy%s%s", view->busy, view->workers,
			*view->hold ? "; " : "", view->hold);
	if (*view->error)
		top_page_add(page, "%s; as it was %s ago", view->error, output_format_duration(age_ms, ago));
	else if (age_ms > TOP_STALE_MS)
		top_page_add(
			page, "hpzd does not answer; as it was %s ago", output_format_duration(age_ms, ago));
	else
		top_page_add_message(page, "hpzd", view->message);
}

/* ---- pools ---- */

/* One kind behind the other; what there is at all has a column, while there are columns. */
static unsigned top_draw_part(
	char *bar, unsigned width, unsigned at, char letter, uint64_t bytes, uint64_t whole)
{
	if (!bytes || !whole)
		return at;
	unsigned part = (unsigned)((double)bytes / (double)whole * width + 0.5);
	for (part = MAX(part, 1u); part && at < width; part--)
		bar[at++] = letter;
	return at;
}

static void top_draw_bar(char *bar, unsigned width, const struct top_pool *pool)
{
	uint64_t all = pool->leased + pool->dirty + pool->filling + pool->clean;
	uint64_t whole = MAX(pool->target, all);
	unsigned at = 0;

	memset(bar, '.', width);
	bar[width] = '\0';
	at = top_draw_part(bar, width, at, '#', pool->leased, whole);
	at = top_draw_part(bar, width, at, '~', pool->dirty, whole);
	at = top_draw_part(bar, width, at, '>', pool->filling, whole);
	top_draw_part(bar, width, at, '+', pool->clean, whole);
}

static void top_draw_pool(struct top_page *page, const struct top_pool *pool)
{
	char bar[256], size[SIZE_TEXT], clean[SIZE_TEXT], leased[SIZE_TEXT], target[SIZE_TEXT];
	unsigned width = page->columns > TOP_BAR_BESIDE + TOP_BAR_LEAST ? page->columns - TOP_BAR_BESIDE
									: TOP_BAR_LEAST;

	top_draw_bar(bar, MIN(width, (unsigned)sizeof(bar) - 1), pool);
	top_page_add(page, "%-12.12s %3" PRId32 " %3s [%s] %9s %9s %9s", pool->name, pool->node,
		size_format_exact(pool->page_size, size), bar, size_format(pool->leased, leased),
		size_format(pool->clean, clean), size_format(pool->target, target));
}

static void top_draw_pools(struct top_page *page, const struct top_view *view)
{
	char size[SIZE_TEXT];

	top_page_add(page, "%s", "");
	if (!view->pool_count) {
		top_page_add(page, "No pools: /etc/hpz/hpzd.conf makes them.");
		return;
	}
	int width = page->columns > TOP_BAR_BESIDE + TOP_BAR_LEAST ? (int)(page->columns - TOP_BAR_BESIDE)
								   : TOP_BAR_LEAST;
	width = MIN(width, 255);
	top_page_add(page, "%-12s %3s %3s  %-*s  %9s %9s %9s", "POOL", "NOD", "PG", width,
		width < 28 ? "# ~ > + ." : "#leased ~dirty >fill +clean", "LEASED", "CLEAN", "TARGET");
	for (size_t i = 0; i < view->pool_count; i++)
		top_draw_pool(page, &view->pools[i]);
	for (size_t i = 0; i < view->pool_count; i++) {
		const struct top_pool *pool = &view->pools[i];
		if (pool->waiting)
			top_page_add(page, "%s: %" PRIu32 " wait for memory", pool->name, pool->waiting);
		if (pool->lost)
			top_page_add(page, "%s: %s is lost to it: see hpzctl status", pool->name,
				size_format(pool->lost, size));
		top_page_add_message(page, pool->name, pool->message);
	}
}

/* ---- leases ---- */

static void top_draw_leases(struct top_page *page, const struct top_view *view, size_t first)
{
	char size[SIZE_TEXT], age[OUTPUT_DURATION], pid[16];

	top_page_add(page, "%s", "");
	if (!view->lease_count) {
		top_page_add(page, "No leases.");
		return;
	}
	top_page_add(
		page, "%-14s %-9s %9s %8s %-20s %s", "LEASE", "STATE", "SIZE", "AGE", "LABEL", "PROCESS");
	for (size_t i = first; i < view->lease_count; i++) {
		const struct top_lease *lease = &view->leases[i];
		snprintf(pid, sizeof(pid), lease->pid ? "%" PRId32 " " : "-", lease->pid);
		top_page_add(page, "%-14" PRIu64 " %-9.9s %9s %8s %-20.20s %s%s", lease->id, lease->state,
			size_format(lease->size, size), output_format_duration(lease->age_ms, age),
			*lease->label ? lease->label : "-", pid, lease->pid ? lease->comm : "");
	}
}

unsigned top_count_rows(const struct top_view *view)
{
	/* The head, two headings with a blank line before each, and up to four lines for a pool. */
	return (unsigned)(4 + 4 + 4 * MAX(view->pool_count, (size_t)1) + MAX(view->lease_count, (size_t)1));
}

int top_page_draw(struct top_page *ret_page, const struct top_view *view, unsigned columns, unsigned rows,
	size_t first, uint64_t now_ms)
{
	struct top_page page = {.columns = MAX(columns, 1u), .rows = rows};
	size_t size = (size_t)rows * (page.columns + 1);

	page.text = malloc(MAX(size, (size_t)1));
	if (!page.text)
		return -ENOMEM;
	memset(page.text, ' ', size);
	for (unsigned row = 0; row < rows; row++)
		top_page_get(&page, row)[page.columns] = '\0';
	top_draw_head(&page, view, now_ms);
	top_draw_pools(&page, view);
	top_draw_leases(&page, view, MIN(first, view->lease_count));
	*ret_page = page;
	return 0;
}
