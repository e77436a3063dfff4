/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* pool.c - the state of every segment of a pool: names, lists and counts. See pool.h for the law. */
#include <fcntl.h>
#include <inttypes.h>

#include "pool.h"
#include "wants.h"

/* ---- classes and books ---- */

static struct pool_class *find_class(const struct pool *pool, uint64_t pages)
{
	LIST_FOR_EACH (pos, &pool->classes) {
		struct pool_class *class = CONTAINER_OF(pos, struct pool_class, link);
		if (class->pages == pages)
			return class;
	}
	return NULL;
}

static struct pool_class *add_class(struct pool *pool, uint64_t pages)
{
	struct pool_class *class = find_class(pool, pages);
	if (class)
		return class;
	class = calloc(1, sizeof *class);
	if (!class)
		return NULL;
	class->pages = pages;
	for (size_t i = 0; i < SEGMENT_STATE_COUNT; i++)
		list_init(&class->segments[i]);
	struct list *at = pool->classes.next;
	while (at != &pool->classes && CONTAINER_OF(at, struct pool_class, link)->pages < pages)
		at = at->next;
	list_insert_before(at, &class->link);
	return class;
}

static uint64_t count_segments(const struct pool_class *class)
{
	uint64_t count = 0;
	for (size_t i = 0; i < SEGMENT_STATE_COUNT; i++)
		count += class->counts[i];
	return count;
}

void pool_sweep(struct pool *pool)
{
	LIST_FOR_EACH_SAFE (pos, &pool->classes) {
		struct pool_class *class = CONTAINER_OF(pos, struct pool_class, link);
		if (class->want + count_segments(class) > 0)
			continue;
		list_remove(&class->link);
		free(class);
	}
}

static void enter_books(struct pool_segment *segment, enum segment_state state)
{
	struct pool *pool = segment->pool;
	segment->state = state;
	/* Clean segments are handed out last in, first out: what was cleared last is likeliest to be whole.
	 */
	list_prepend(&segment->class->segments[state], &segment->link);
	segment->class->counts[state]++;
	pool->segments[state]++;
	pool->pages[state] += segment->allocated;
}

static void leave_books(struct pool_segment *segment)
{
	struct pool *pool = segment->pool;
	pool_keep(segment, NULL);
	segment->round = 0;
	pool->stranded -= segment->is_stranded;
	segment->is_stranded = false;
	free(segment->parts); /* nobody works on it now */
	segment->parts = NULL;
	list_remove(&segment->link);
	segment->class->counts[segment->state]--;
	pool->segments[segment->state]--;
	pool->pages[segment->state] -= segment->allocated;
}

void pool_keep(struct pool_segment *segment, void *keeper)
{
	if (segment->state == SEGMENT_CLEAN)
		segment->class->kept += (keeper != NULL) - (uint64_t)(segment->keeper != NULL);
	segment->keeper = keeper;
}

static void set_allocated(struct pool_segment *segment, uint64_t allocated)
{
	segment->pool->pages[segment->state] += allocated - segment->allocated;
	segment->allocated = allocated;
}

static struct pool_segment *add_segment(struct pool *pool, const struct segment_name *name, uint64_t pages,
	uint64_t allocated, enum segment_state state)
{
	struct pool_segment *segment = calloc(1, sizeof *segment);
	if (!segment)
		return NULL;
	segment->class = add_class(pool, pages);
	if (!segment->class) {
		free(segment);
		return NULL;
	}
	list_init(&segment->link);
	list_append(&pool->index[name->id % POOL_INDEX], &segment->index_link);
	segment->pool = pool;
	segment->id = name->id;
	segment->generation = name->generation;
	segment->lease = name->lease;
	segment->index = name->index;
	segment->pages = segment->given = pages;
	segment->allocated = allocated;
	if (pool->next_id <= name->id && name->id < UINT64_MAX)
		pool->next_id = name->id + 1;
	enter_books(segment, state);
	return segment;
}

/* ---- demand ---- */

void pool_count_lease(struct pool_segment *segment, uint64_t pages)
{
	if (segment->demanded > 0 || pages == 0)
		return;
	segment->demanded = pages;
	demand_take(&segment->pool->demand, clock_get_ns(CLOCK_BOOTTIME), pages);
}

static void end_demand(struct pool_segment *segment)
{
	if (segment->demanded == 0)
		return;
	demand_give(&segment->pool->demand, clock_get_ns(CLOCK_BOOTTIME), segment->demanded);
	segment->demanded = 0;
}

static void tell_mended(const struct pool_segment *segment, bool is_clean)
{
	const struct pool *pool = segment->pool;
	if (pool->mended && segment->lease > 0)
		pool->mended(segment, is_clean, pool->mended_user);
}

void pool_forget(struct pool_segment *segment)
{
	if (segment->state == SEGMENT_DIRTY)
		tell_mended(segment, false);
	end_demand(segment);
	leave_books(segment);
	list_remove(&segment->index_link);
	free(segment);
}

/* ---- names ---- */

static void format_name(const struct pool_segment *segment, enum segment_state state, uint64_t generation,
	char ret_name[SEGMENT_NAME_MAX])
{
	segment_format_name(&(struct segment_name){segment->id, generation, state == SEGMENT_LEASED,
				    segment->lease, segment->index},
		ret_name);
}

void pool_get_segment_name(const struct pool_segment *segment, char ret_name[SEGMENT_NAME_MAX])
{
	format_name(segment, segment->state, segment->generation, ret_name);
}

/* ---- transitions ---- */

bool pool_is_transition(enum segment_state from, enum segment_state to)
{
	static const bool table[SEGMENT_STATE_COUNT][SEGMENT_STATE_COUNT] = {
		[SEGMENT_FILLING] = {[SEGMENT_CLEAN] = true},
		/* clean -> dirty: found not to be what it must be. clean -> filling: extended. */
		[SEGMENT_CLEAN] = {[SEGMENT_LEASED] = true, [SEGMENT_DIRTY] = true, [SEGMENT_FILLING] = true},
		[SEGMENT_LEASED] = {[SEGMENT_DIRTY] = true},
		[SEGMENT_DIRTY] = {[SEGMENT_CLEAN] = true},
	};
	return table[from][to];
}

int pool_set_state(struct pool_segment *segment, enum segment_state state)
{
	if (!pool_is_transition(segment->state, state))
		return -EINVAL;
	char from[SEGMENT_NAME_MAX], to[SEGMENT_NAME_MAX];
	pool_get_segment_name(segment, from);
	uint64_t generation = segment->generation + (state == SEGMENT_LEASED);
	format_name(segment, state, generation, to);
	int r = segment_rename(&segment->pool->dirs, segment->state, from, state, to);
	if (r < 0)
		return r;
	if (state != SEGMENT_LEASED) {
		end_demand(segment);
		segment->cell = 0;
	}
	bool is_mended = segment->state == SEGMENT_DIRTY;
	leave_books(segment);
	segment->generation = generation;
	enter_books(segment, state);
	if (is_mended) {
		tell_mended(segment, true);
		segment->lease = 0;
	}
	return 0;
}

void pool_strand(struct pool_segment *segment)
{
	segment->pool->stranded += !segment->is_stranded;
	segment->is_stranded = true;
}

uint64_t pool_take_back(struct pool *pool)
{
	LIST_FOR_EACH (pos, &pool->classes) {
		struct pool_class *class = CONTAINER_OF(pos, struct pool_class, link);
		if (pool->stranded == 0)
			break;
		LIST_FOR_EACH_SAFE (at, &class->segments[SEGMENT_LEASED]) {
			struct pool_segment *segment = CONTAINER_OF(at, struct pool_segment, link);
			if (segment->is_stranded && pool_set_state(segment, SEGMENT_DIRTY) == -ENOENT)
				pool_forget(segment);
		}
	}
	return pool->stranded;
}

int pool_set_lease(struct pool_segment *segment, uint64_t lease, uint32_t index)
{
	char from[SEGMENT_NAME_MAX], to[SEGMENT_NAME_MAX];
	pool_get_segment_name(segment, from);
	segment_format_name(&(struct segment_name){segment->id, segment->generation, true, lease, index}, to);
	int r = segment_rename(&segment->pool->dirs, SEGMENT_LEASED, from, SEGMENT_LEASED, to);
	if (r < 0)
		return r;
	segment->lease = lease;
	segment->index = index;
	return 0;
}

int pool_refresh(struct pool_segment *segment)
{
	char name[SEGMENT_NAME_MAX];
	pool_get_segment_name(segment, name);
	struct segment_stat st;
	int r = segment_stat_at(segment->pool->store, &segment->pool->dirs, segment->state, name, &st);
	if (r < 0)
		return r;
	set_allocated(segment, st.allocated);
	return 0;
}

/* What a file must be to lie in clean/. */
static bool is_publishable(const struct segment_stat *st, uint64_t pages)
{
	return st->pages == pages && st->allocated == pages && pages > 0 && st->links == 1 &&
	       st->uid == segment_get_uid() && st->mode == 0;
}

int pool_publish(struct pool_segment *segment)
{
	char name[SEGMENT_NAME_MAX];
	pool_get_segment_name(segment, name);
	struct segment_stat st;
	int r = segment_stat_at(segment->pool->store, &segment->pool->dirs, segment->state, name, &st);
	if (r < 0)
		return r;
	set_allocated(segment, st.allocated);
	if (!is_publishable(&st, segment->pages))
		return -EUCLEAN;
	return pool_set_state(segment, SEGMENT_CLEAN);
}

int pool_cut(struct pool_segment *segment, int fd, uint64_t pages)
{
	if (segment->state != SEGMENT_CLEAN || segment->keeper || pages == 0 || pages >= segment->pages)
		return -EINVAL;
	uint64_t left = segment->pages - pages;
	struct pool_class *class = add_class(segment->pool, left);
	if (!class)
		return -ENOMEM;
	/* No name says how long a file is: dying here, we leave a whole clean one. */
	if (ftruncate(fd, (off_t)(left * segment->pool->config.page_size)) < 0)
		return -errno;
	leave_books(segment);
	segment->class = class;
	segment->pages = segment->given = left;
	segment->allocated = left;
	enter_books(segment, SEGMENT_CLEAN);
	return 0;
}

int pool_discard(struct pool_segment *segment)
{
	char name[SEGMENT_NAME_MAX];
	pool_get_segment_name(segment, name);
	if (segment->state == SEGMENT_LEASED)
		return -EBUSY;
	int r = segment_unlink(&segment->pool->dirs, segment->state, name);
	if (r < 0 && r != -ENOENT)
		return r;
	pool_forget(segment);
	return 0;
}

int pool_create(struct pool *pool, uint64_t pages, struct pool_segment **ret_segment, int *ret_fd)
{
	struct segment_name name = {.id = pool->next_id, .generation = 0};
	char text[SEGMENT_NAME_MAX];
	segment_format_name(&name, text);
	_cleanup_fd_ int fd = segment_create(&pool->dirs, text);
	if (fd < 0) {
		pool->next_id++; /* whatever is wrong with this name, the next is another */
		return fd;
	}
	struct pool_segment *segment = NULL;
	if (ftruncate(fd, (off_t)(pages * pool->config.page_size)) == 0)
		segment = add_segment(pool, &name, pages, 0, SEGMENT_FILLING);
	if (!segment) {
		int error = errno ? -errno : -ENOMEM;
		segment_unlink(&pool->dirs, SEGMENT_FILLING, text);
		return error;
	}
	segment->proof = POOL_PROOF_FULL; /* nobody ever had it */
	*ret_segment = segment;
	*ret_fd = steal_fd(&fd);
	return 0;
}

int pool_set_length(struct pool_segment *segment, uint64_t pages)
{
	struct pool_class *class = add_class(segment->pool, pages);
	if (!class)
		return -ENOMEM;
	leave_books(segment);
	segment->class = class;
	segment->pages = pages;
	enter_books(segment, segment->state);
	return 0;
}

struct pool_segment *pool_find_id(const struct pool *pool, uint64_t id)
{
	LIST_FOR_EACH (pos, &pool->index[id % POOL_INDEX]) {
		struct pool_segment *segment = CONTAINER_OF(pos, struct pool_segment, index_link);
		if (segment->id == id)
			return segment;
	}
	return NULL;
}

struct pool_segment *pool_find_named(const struct pool *pool, enum segment_state state, const char *name)
{
	struct segment_name parsed;
	char exact[SEGMENT_NAME_MAX];
	if (segment_parse_name(name, &parsed) < 0)
		return NULL;
	/* Found on disk, two may have one id: with names of different generations or leases. */
	LIST_FOR_EACH (pos, &pool->index[parsed.id % POOL_INDEX]) {
		struct pool_segment *segment = CONTAINER_OF(pos, struct pool_segment, index_link);
		if (segment->id != parsed.id || segment->state != state)
			continue;
		pool_get_segment_name(segment, exact);
		if (strcmp(exact, name) == 0)
			return segment;
	}
	return NULL;
}

int pool_extend(struct pool_segment *segment, uint64_t pages)
{
	struct pool *pool = segment->pool;
	if (segment->state != SEGMENT_CLEAN || pages <= segment->pages)
		return -EINVAL;
	/* The name first: dying in between, we leave a whole file in filling/, which is true. */
	int r = pool_set_state(segment, SEGMENT_FILLING);
	if (r < 0)
		return r;
	_cleanup_fd_ int fd = pool_open_segment(segment);
	if (fd < 0 || ftruncate(fd, (off_t)(pages * pool->config.page_size)) < 0)
		return -EUCLEAN;
	return pool_set_length(segment, pages) < 0 ? -EUCLEAN : 0;
}

struct pool_segment *pool_find_clean(struct pool *pool, uint64_t segment_pages)
{
	struct pool_class *class = find_class(pool, segment_pages);
	if (!class)
		return NULL;
	LIST_FOR_EACH (pos, &class->segments[SEGMENT_CLEAN]) {
		struct pool_segment *segment = CONTAINER_OF(pos, struct pool_segment, link);
		if (!segment->keeper)
			return segment;
	}
	return NULL;
}

struct pool_segment *pool_find_dirty(struct pool *pool, uint64_t segment_pages)
{
	struct pool_class *class = find_class(pool, segment_pages);
	if (!class)
		return NULL;
	LIST_FOR_EACH (pos, &class->segments[SEGMENT_DIRTY]) {
		struct pool_segment *segment = CONTAINER_OF(pos, struct pool_segment, link);
		if (!segment->is_busy && !segment->is_suspect)
			return segment;
	}
	return NULL;
}

size_t pool_list_kept(
	const struct pool *pool, const void *keeper, struct pool_segment *ret_segments[], size_t most)
{
	size_t count = 0;
	for (struct list *pos = pool->classes.prev; pos != &pool->classes; pos = pos->prev) {
		struct pool_class *class = CONTAINER_OF(pos, struct pool_class, link);
		uint64_t left = class->kept;
		LIST_FOR_EACH (at, &class->segments[SEGMENT_CLEAN]) {
			struct pool_segment *segment = CONTAINER_OF(at, struct pool_segment, link);
			if (left == 0 || count == most) /* what is kept stands near the front */
				break;
			left -= segment->keeper != NULL;
			if (segment->keeper == keeper)
				ret_segments[count++] = segment;
		}
	}
	return count;
}

int pool_open_segment(const struct pool_segment *segment)
{
	char name[SEGMENT_NAME_MAX];
	pool_get_segment_name(segment, name);
	return segment_open(&segment->pool->dirs, segment->state, name);
}

int pool_open_unheld(const struct pool_segment *segment)
{
	char name[SEGMENT_NAME_MAX];
	pool_get_segment_name(segment, name);
	return segment_open_unheld(&segment->pool->dirs, segment->state, name);
}

/* ---- adoption ---- */

struct adoption {
	struct pool *pool;
	enum segment_state state;
	void (*callback)(struct pool_segment *segment, void *user);
	void *user;
};

static int adopt_file(const char *text, void *user)
{
	struct adoption *adoption = user;
	struct pool *pool = adoption->pool;
	struct segment_name name;
	struct segment_stat st;
	char exact[SEGMENT_NAME_MAX];
	if (segment_parse_name(text, &name) < 0 || name.is_leased != (adoption->state == SEGMENT_LEASED) ||
		segment_stat_at(pool->store, &pool->dirs, adoption->state, text, &st) < 0) {
		pool->foreign_files++;
		log_warning("pool %s: %s/%s is no file of ours: left alone", pool->name,
			segment_get_state_name(adoption->state), text);
		return 0;
	}
	segment_format_name(&name, exact);
	if (st.pages == 0 && adoption->state != SEGMENT_LEASED) {
		/* Died between creating it and giving it its length, or somebody cut it: no page, nothing to
		 * keep. */
		segment_unlink(&pool->dirs, adoption->state, exact);
		return 0;
	}
	struct pool_segment *segment = add_segment(pool, &name, st.pages, st.allocated, adoption->state);
	if (!segment)
		return -ENOMEM;
	segment->is_suspect = adoption->state == SEGMENT_DIRTY;
	if (adoption->state == SEGMENT_CLEAN && !is_publishable(&st, st.pages)) {
		log_warning("pool %s: clean segment %s is not as it was left: clearing it again", pool->name,
			exact);
		segment->is_suspect = true;
		if (pool_set_state(segment, SEGMENT_DIRTY) < 0) {
			log_error("pool %s: clean/%s cannot become dirty: left alone", pool->name, exact);
			pool->foreign_files++;
			pool_forget(segment);
		}
		return 0;
	}
	if (adoption->callback)
		adoption->callback(segment, adoption->user);
	return 0;
}

static int adopt_state(struct pool *pool, enum segment_state state,
	void (*callback)(struct pool_segment *segment, void *user), void *user)
{
	struct adoption adoption = {pool, state, callback, user};
	return segment_scan(&pool->dirs, state, adopt_file, &adoption);
}

int pool_adopt_leased(
	struct pool *pool, void (*callback)(struct pool_segment *segment, void *user), void *user)
{
	return adopt_state(pool, SEGMENT_LEASED, callback, user);
}

/* ---- size and stock ---- */

static void want_nothing(struct pool *pool)
{
	LIST_FOR_EACH (pos, &pool->classes)
		CONTAINER_OF(pos, struct pool_class, link)->want = 0;
}

static void want_more(struct pool *pool, uint64_t segment_pages, uint64_t count)
{
	struct pool_class *class = add_class(pool, segment_pages);
	if (class)
		class->want += count;
}

static void want_all(struct pool *pool)
{
	struct demand_class wanted[WANTS_MAX];
	size_t count = wants_list(&pool->config, pool->target, &pool->demand, wanted);
	want_nothing(pool);
	for (size_t i = 0; i < count; i++)
		want_more(pool, wanted[i].segment_pages, wanted[i].count);
}

bool pool_follow_demand(struct pool *pool, uint64_t now_ns)
{
	if (!demand_plan(&pool->demand, now_ns) || !pool->config.is_learning)
		return false;
	want_all(pool);
	pool_sweep(pool);
	return true;
}

void pool_set_size(struct pool *pool, const struct pool_size *size)
{
	struct demand_rules rules;
	pool->size = *size;
	pool->target = size->is_resized ? MIN(size->pages, pool->config.max_pages) : pool->config.pages;
	pool->target -= MIN(pool->target, size->withheld + size->demoting);
	wants_get_rules(&pool->config, pool->target, &rules);
	demand_set_rules(&pool->demand, &rules);
	demand_plan(&pool->demand, clock_get_ns(CLOCK_BOOTTIME));
	want_all(pool);
	pool_sweep(pool);
}

void pool_set_config(struct pool *pool, const struct config_pool *config)
{
	struct pool_size size = pool->size;
	size.is_resized = size.is_resized && pool->config.pages == config->pages;
	if (pool->config.pages != config->pages || config->give_back == CONFIG_GIVE_BACK_NO)
		size.withheld = 0;
	pool->config = *config;
	pool->is_past_known = false;
	pool_set_size(pool, &size);
}

static void free_pool(struct pool *pool)
{
	LIST_FOR_EACH_SAFE (pos, &pool->classes) {
		struct pool_class *class = CONTAINER_OF(pos, struct pool_class, link);
		for (size_t i = 0; i < SEGMENT_STATE_COUNT; i++) {
			LIST_FOR_EACH_SAFE (at, &class->segments[i])
				pool_forget(CONTAINER_OF(at, struct pool_segment, link));
		}
		list_remove(&class->link);
		free(class);
	}
	segment_close_dirs(&pool->dirs);
	segment_close_store(pool->store);
	free(pool);
}

int pool_open(const struct config_pool *config, const char *config_path, const struct host *host,
	struct segment_store *store, struct pool **ret_pool, char *ret_error, size_t capacity)
{
	if (!host_has_page_size(host, config->page_size)) {
		snprintf(ret_error, capacity, "%s:%u: pool %s: this kernel has no huge pages of that size",
			config_path, config->page_size_line, config->name);
		return -EINVAL;
	}
	if (!host_has_node(host, config->node)) {
		snprintf(ret_error, capacity, "%s:%u: pool %s: this machine has no NUMA node %" PRId32,
			config_path, config->node_line ? config->node_line : config->line, config->name,
			config->node);
		return -EINVAL;
	}
	struct pool *pool = calloc(1, sizeof *pool);
	if (!pool)
		return -ENOMEM;
	list_init(&pool->classes);
	for (size_t i = 0; i < POOL_INDEX; i++)
		list_init(&pool->index[i]);
	list_init(&pool->active);
	pool->dirs = (struct segment_dirs){.fds = {-1, -1, -1, -1}};
	pool->host = host;
	pool->store = store;
	store->references++;
	snprintf(pool->name, sizeof pool->name, "%s", config->name);
	/* Unique for the boot like lease ids, so that a name never meets its predecessor. */
	pool->next_id = clock_get_ns(CLOCK_BOOTTIME) / 1000;
	pool->demand.faded_ns = clock_get_ns(CLOCK_BOOTTIME);
	pool_set_config(pool, config);
	int r = segment_open_dirs(store, config->node, &pool->dirs);
	const enum segment_state adopted[] = {SEGMENT_FILLING, SEGMENT_DIRTY, SEGMENT_CLEAN};
	for (size_t i = 0; r >= 0 && i < ARRAY_SIZE(adopted); i++)
		r = adopt_state(pool, adopted[i], NULL, NULL);
	if (r < 0) {
		snprintf(ret_error, capacity, "%s:%u: pool %s: cannot adopt what is on %s: %s", config_path,
			config->line, config->name, store->path, strerror(-r));
		free_pool(pool);
		return r;
	}
	*ret_pool = pool;
	return 0;
}

void pool_close(struct pool *pool)
{
	if (!pool)
		return;
	pool->mended = NULL; /* it is forgotten, not given up */
	free_pool(pool);
}

/* ---- what others want to know ---- */

size_t pool_get_classes(const struct pool *pool, struct policy_class storage[POOL_CLASSES_MAX])
{
	size_t count = 0;
	LIST_FOR_EACH (pos, &pool->classes) {
		const struct pool_class *class = CONTAINER_OF(pos, struct pool_class, link);
		if (count == POOL_CLASSES_MAX)
			break;
		if (class->want == 0 && count_segments(class) == class->counts[SEGMENT_LEASED])
			continue;
		storage[count++] = (struct policy_class){
			.segment_pages = class->pages,
			.want = class->want,
			.clean = class->counts[SEGMENT_CLEAN],
			.leased = class->counts[SEGMENT_LEASED],
			.dirty = class->counts[SEGMENT_DIRTY],
			.filling = class->counts[SEGMENT_FILLING],
			.kept = class->kept,
		};
	}
	return count;
}

void pool_count_holders(struct pool *pool, uint64_t *ret_holes, uint64_t *ret_grown)
{
	uint64_t holes = 0, grown = 0;
	LIST_FOR_EACH (pos, &pool->classes) {
		struct pool_class *class = CONTAINER_OF(pos, struct pool_class, link);
		LIST_FOR_EACH (at, &class->segments[SEGMENT_LEASED]) {
			struct pool_segment *segment = CONTAINER_OF(at, struct pool_segment, link);
			pool_refresh(segment);
			if (segment->allocated < segment->given)
				holes += segment->given - segment->allocated;
			else if (segment->allocated > segment->pages)
				grown += segment->allocated - segment->pages;
		}
	}
	*ret_holes = pool->holes = holes;
	*ret_grown = grown;
}

static uint64_t count_missing(struct pool_class *class, enum segment_state state, bool only_busy)
{
	uint64_t missing = 0;
	LIST_FOR_EACH (at, &class->segments[state]) {
		struct pool_segment *segment = CONTAINER_OF(at, struct pool_segment, link);
		if (only_busy && !segment->is_busy)
			continue;
		pool_refresh(segment);
		if (segment->pages > segment->allocated)
			missing += segment->pages - segment->allocated;
	}
	return missing;
}

void pool_count_promised(struct pool *pool, uint64_t *ret_filling, uint64_t *ret_mending)
{
	*ret_filling = 0;
	*ret_mending = pool->leaving;
	LIST_FOR_EACH (pos, &pool->classes) {
		struct pool_class *class = CONTAINER_OF(pos, struct pool_class, link);
		*ret_filling += count_missing(class, SEGMENT_FILLING, false);
		*ret_mending += count_missing(class, SEGMENT_DIRTY, true);
	}
}

uint64_t pool_get_lengths(const struct pool *pool)
{
	uint64_t pages = 0;
	LIST_FOR_EACH (pos, &pool->classes) {
		const struct pool_class *class = CONTAINER_OF(pos, struct pool_class, link);
		pages += class->pages * count_segments(class);
	}
	return pages;
}

uint64_t pool_get_held(const struct pool *pool)
{
	uint64_t pages = 0;
	LIST_FOR_EACH (pos, &pool->classes) {
		struct pool_class *class = CONTAINER_OF(pos, struct pool_class, link);
		pages += class->pages * (class->counts[SEGMENT_FILLING] + class->counts[SEGMENT_CLEAN] +
						class->counts[SEGMENT_DIRTY]);
		LIST_FOR_EACH (at, &class->segments[SEGMENT_LEASED]) {
			const struct pool_segment *segment = CONTAINER_OF(at, struct pool_segment, link);
			pages += MAX(segment->given, segment->allocated);
		}
	}
	return pages;
}

uint64_t pool_get_total(const struct pool *pool)
{
	uint64_t total = 0;
	for (size_t i = 0; i < SEGMENT_STATE_COUNT; i++)
		total += pool->pages[i];
	return total;
}

uint64_t pool_get_largest_clean(const struct pool *pool)
{
	for (const struct list *pos = pool->classes.prev; pos != &pool->classes; pos = pos->prev) {
		const struct pool_class *class = CONTAINER_OF(pos, struct pool_class, link);
		if (class->counts[SEGMENT_CLEAN] > 0)
			return class->pages;
	}
	return 0;
}
