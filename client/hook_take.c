/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * hook_take.c - clean memory without hpzd. The lock of a mount proves that hpzd is dead, and keeps it and
 * other hooks out until the names are in leased/. Names, directories and renames are segment.c's.
 */
#include "hook_take.h"

#include <sys/stat.h>

#include "hook_place.h"
#include "segment.h"
#include "size.h"

/* A segment's end cannot be given back behind hpzd's back, so much more than is needed stays where it is. */
#define TAKE_LARGEST_FACTOR 2

/* One pool, with its clean directory; pools of one mount share the store. */
struct hook_shelf {
	const struct hook_pool *pool;
	bool is_any_page; /* nobody asked for pages of this size */
	struct segment_store *store;
	struct segment_dirs dirs;
};

struct hook_shelves {
	size_t count;
	struct hook_shelf shelves[HOOK_POOLS_MAX];
};

struct hook_pick {
	const struct hook_shelf *shelf; /* NULL: none */
	struct segment_name name;
	char from[SEGMENT_NAME_MAX], to[SEGMENT_NAME_MAX];
	uint64_t bytes;
};

static void hook_take_cleanup(struct hook_shelves *shelves)
{
	for (size_t i = 0; i < shelves->count; i++) {
		segment_close_dirs(&shelves->shelves[i].dirs);
		segment_close_store(shelves->shelves[i].store);
	}
}

/* ---- the shelves ---- */

/* A store that is open already, or a new one with its lock. */
static int hook_take_open_store(
	const struct hook_shelves *shelves, const struct hook_pool *pool, struct segment_store **ret_store)
{
	char path[HOOK_PATH_MAX + 16];
	const char *why;

	for (size_t i = 0; i < shelves->count; i++) {
		if (strcmp(shelves->shelves[i].pool->mount, pool->mount) != 0)
			continue;
		*ret_store = shelves->shelves[i].store;
		(*ret_store)->references++;
		return 0;
	}
	/* Opening one makes what is missing: not where hpzd has never been. */
	snprintf(path, sizeof(path), "%s/hpz/%d", pool->mount, SEGMENT_FORMAT);
	if (access(path, F_OK) < 0)
		return -ENOENT;
	return segment_open_store(pool->mount, pool->page_size, 0, ret_store, &why);
}

static int hook_take_open_shelf(struct hook_shelves *shelves, const struct hook_pool *pool, bool is_any_page)
{
	struct hook_shelf *shelf = &shelves->shelves[shelves->count];

	*shelf = (struct hook_shelf){.pool = pool, .is_any_page = is_any_page};
	int r = hook_take_open_store(shelves, pool, &shelf->store);
	if (r < 0)
		return r;
	r = segment_open_dirs(shelf->store, pool->node, &shelf->dirs);
	if (r < 0)
		segment_close_store(shelf->store);
	else
		shelves->count++;
	return r;
}

/* Of all pools with such pages that can be opened; -EBUSY when hpzd has one of them. */
static int hook_take_open(
	const struct hook_settings *settings, uint64_t page_size, struct hook_shelves *shelves)
{
	for (size_t i = 0; i < settings->pool_count; i++) {
		const struct hook_pool *pool = &settings->pools[i];
		if (page_size != 0 && pool->page_size != page_size)
			continue;
		if (hook_take_open_shelf(shelves, pool, page_size == 0) == -EBUSY)
			return -EBUSY;
	}
	return shelves->count > 0 ? 0 : -ENOENT;
}

/* ---- which segments ---- */

struct hook_search {
	const struct hook_shelf *shelf;
	const struct domain_file *file;
	const struct hook_pick *picks; /* those before this one */
	size_t pick_count;
	struct hook_pick *best;
};

static bool hook_take_is_picked(const struct hook_search *search, const char *name)
{
	for (size_t i = 0; i < search->pick_count; i++) {
		if (search->picks[i].shelf == search->shelf && strcmp(search->picks[i].from, name) == 0)
			return true;
	}
	return false;
}

/* As whole and as much nobody's as when hpzd hands it out. */
static bool hook_take_is_clean(const struct hook_search *search, const char *name, uint64_t *ret_bytes)
{
	const struct hook_shelf *shelf = search->shelf;
	struct segment_stat st;

	if (segment_stat_at(shelf->store, &shelf->dirs, SEGMENT_CLEAN, name, &st) < 0)
		return false;
	*ret_bytes = st.pages * shelf->pool->page_size;
	return st.pages > 0 && st.allocated == st.pages && st.links == 1 && st.uid == 0 && st.mode == 0;
}

/* Not too large; of pages nobody asked for no more than an eighth is wasted, as with hpzd. */
static bool hook_take_fits(const struct hook_search *search, uint64_t bytes)
{
	uint64_t page_size = search->shelf->pool->page_size, size = search->file->size;
	uint64_t whole = size_pages(size, page_size) * page_size;

	return bytes >= size && bytes / TAKE_LARGEST_FACTOR <= whole &&
	       (!search->shelf->is_any_page || whole - size <= size / 8);
}

/* The smallest that is large enough; a callback of segment_scan(). */
static int hook_take_look(const char *text, void *user)
{
	struct hook_search *search = user;
	struct segment_name name;
	uint64_t bytes;

	if (segment_parse_name(text, &name) < 0 || name.is_leased || hook_take_is_picked(search, text) ||
		(name.generation > 0 && !search->shelf->pool->may_reuse) ||
		!hook_take_is_clean(search, text, &bytes))
		return 0;
	if (!hook_take_fits(search, bytes) || (search->best->shelf && search->best->bytes <= bytes))
		return 0;
	*search->best = (struct hook_pick){.shelf = search->shelf, .name = name, .bytes = bytes};
	snprintf(search->best->from, sizeof(search->best->from), "%s", text);
	return 0;
}

static bool hook_take_pick_from(const struct hook_shelves *shelves, uint64_t nodes,
	const struct domain_file *file, struct hook_pick *picks, size_t count)
{
	for (size_t i = 0; i < shelves->count; i++) {
		const struct hook_shelf *shelf = &shelves->shelves[i];
		struct hook_search search = {shelf, file, picks, count, &picks[count]};
		if (nodes == 0 || (shelf->pool->node < 64 && (nodes >> shelf->pool->node & 1)))
			segment_scan(&shelf->dirs, SEGMENT_CLEAN, hook_take_look, &search);
	}
	return picks[count].shelf != NULL;
}

static int hook_take_pick(
	const struct hook_shelves *shelves, const struct domain_plan *plan, struct hook_pick *picks)
{
	for (size_t i = 0; i < plan->count; i++) {
		const struct domain_file *file = &plan->files[i];
		if (!hook_take_pick_from(shelves, file->nodes, file, picks, i) &&
			!(file->is_preferred && hook_take_pick_from(shelves, 0, file, picks, i)))
			return -ENOENT;
	}
	return 0;
}

/* ---- taking them ---- */

static int hook_take_note_lease(const char *text, void *user)
{
	uint64_t *last = user;
	struct segment_name name;

	if (segment_parse_name(text, &name) == 0 && name.is_leased)
		*last = MAX(*last, name.lease);
	return 0;
}

/*
 * Ids begin at the time since boot at which their hpzd started, so one of now is later than all that a dead
 * one gave, and earlier than all that the next one gives.
 */
static uint64_t hook_take_make_lease(const struct hook_shelves *shelves)
{
	uint64_t last = 0;

	for (size_t i = 0; i < shelves->count; i++)
		segment_scan(&shelves->shelves[i].dirs, SEGMENT_LEASED, hook_take_note_lease, &last);
	return MAX(clock_get_ns(CLOCK_BOOTTIME) / 1000, last + 1);
}

static void hook_take_put_back(const struct hook_pick *picks, size_t count)
{
	while (count-- > 0)
		segment_rename(&picks[count].shelf->dirs, SEGMENT_LEASED, picks[count].to, SEGMENT_CLEAN,
			picks[count].from);
}

static int hook_take_rename(struct hook_pick *picks, size_t count, uint64_t lease)
{
	for (size_t i = 0; i < count; i++) {
		struct segment_name name = picks[i].name;
		name.generation++;
		name.is_leased = true;
		name.lease = lease;
		name.index = (uint32_t)i;
		segment_format_name(&name, picks[i].to);
		int r = segment_rename(
			&picks[i].shelf->dirs, SEGMENT_CLEAN, picks[i].from, SEGMENT_LEASED, picks[i].to);
		if (r < 0) {
			hook_take_put_back(picks, i);
			return r;
		}
	}
	return 0;
}

static int hook_take_set_path(const struct hook_pick *pick, char ret_path[HOOK_PATH_MAX])
{
	int length = snprintf(ret_path, HOOK_PATH_MAX, "%s/hpz/%d/node%d/%s/%s", pick->shelf->pool->mount,
		SEGMENT_FORMAT, (int)pick->shelf->pool->node, segment_get_state_name(SEGMENT_LEASED),
		pick->to);

	return length < HOOK_PATH_MAX ? 0 : -ENAMETOOLONG;
}

/* From here on they may have been seen by somebody: they do not go back to clean. */
static int hook_take_give(const struct hook_order *order, const struct hook_memory *memory)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < memory->count; i++)
		r = hook_place_give(memory->paths[i], order->uid, order->gid);
	return r;
}

static int hook_take_all(
	const struct hook_shelves *shelves, const struct hook_order *order, struct hook_memory *memory)
{
	_cleanup_free_ struct hook_pick *picks = calloc(DOMAIN_FILES_MAX, sizeof(*picks));
	int r = picks ? hook_take_pick(shelves, order->plan, picks) : -ENOMEM;

	memory->count = order->plan->count;
	memory->lease = hook_take_make_lease(shelves);
	if (r == 0)
		r = hook_take_rename(picks, memory->count, memory->lease);
	if (r < 0)
		return r;
	for (size_t i = 0; r == 0 && i < memory->count; i++)
		r = hook_take_set_path(&picks[i], memory->paths[i]);
	if (r < 0) {
		hook_take_put_back(picks, memory->count);
		return r;
	}
	return hook_take_give(order, memory);
}

int hook_take(
	const struct hook_settings *settings, const struct hook_order *order, struct hook_memory *ret_memory)
{
	__attribute__((cleanup(hook_take_cleanup))) struct hook_shelves shelves = {0};
	_cleanup_free_ struct hook_memory *memory = calloc(1, sizeof(*memory));
	int r = memory ? hook_take_open(settings, order->page_size, &shelves) : -ENOMEM;

	if (r == 0)
		r = hook_take_all(&shelves, order, memory);
	if (r == 0)
		*ret_memory = *memory;
	return r;
}
