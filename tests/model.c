/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* model.c - a pool and its leases beside a simple model of them. */
#include "model.h"
#include "temp.h"
#include "dice.h"

#include <inttypes.h>
#include <sys/mman.h>

#include "lease.h"
#include "worker.h"

#define SEGMENT_PAGES 6  /* of a new segment, at most */
#define FILE_PAGES    10 /* grown by its holder, at most */
#define FILES_MAX     24
#define LEASE_FILES   3
#define OTHERS_MAX    8
#define BOOT_ID       "01234567-89ab-cdef-0123-456789abcdef"

/* One file as it must be. */
struct file {
	struct list link;
	struct pool_segment *segment;
	enum segment_state state;
	uint64_t id, generation;
	uint64_t length; /* of the segment, in pages */
	uint64_t lease;
	uint32_t index;
	uint64_t given;
	bool is_zero; /* filled, or cleared since it came back */
	/* the file itself, whatever happened to it */
	ino_t ino;
	uint64_t pages;
	bool has[FILE_PAGES];
	unsigned extra_links;
	mode_t mode;
};

/* A file in our directories that is none of ours. */
struct other {
	enum segment_state where;
	char name[SEGMENT_NAME_MAX];
	ino_t ino;
	bool is_stub; /* an hpzd died between making it and giving it its length: goes at the next start */
};

struct model {
	const struct model_place *place;
	struct dice dice;
	unsigned step;
	const char *what; /* the operation of this step */
	struct segment_store *store;
	struct pool *pool;
	struct lease_table leases;
	struct journal *journal;
	struct config_pool config;
	struct list files;
	unsigned file_count;
	struct other others[OTHERS_MAX];
	size_t other_count;
	int links_fd;
	struct worker_control control;
	uint64_t given_leases;
};

#define CHECK(model, condition)                                                                              \
	do {                                                                                                 \
		if (!(condition))                                                                            \
			fail_msg("seed %" PRIu64 ", step %u (%s), line %d: not so: %s", (model)->dice.seed,  \
				(model)->step, (model)->what, __LINE__, #condition);                         \
	} while (0)

#define FILE_OF(pos) CONTAINER_OF(pos, struct file, link)

/* ---- the model ---- */

static uint64_t count_allocated(const struct file *file)
{
	uint64_t count = 0;
	for (size_t i = 0; i < FILE_PAGES; i++)
		count += file->has[i];
	return count;
}

static uint64_t count_all(const struct model *model)
{
	uint64_t count = 0;
	LIST_FOR_EACH (pos, &model->files)
		count += count_allocated(FILE_OF(pos));
	return count;
}

static uint64_t count_room(const struct model *model)
{
	uint64_t used = count_all(model);
	return used < model->place->pages_max ? model->place->pages_max - used : 0;
}

static bool is_whole(const struct file *file)
{
	return file->pages > 0 && count_allocated(file) == file->pages && file->extra_links == 0 &&
	       file->mode == 0;
}

/* One of the files in a state, by chance; NULL: there is none. */
static struct file *pick(struct model *model, enum segment_state state)
{
	size_t count = 0;
	LIST_FOR_EACH (pos, &model->files)
		count += FILE_OF(pos)->state == state;
	if (count == 0)
		return NULL;
	size_t at = dice_roll(&model->dice, count);
	LIST_FOR_EACH (pos, &model->files) {
		if (FILE_OF(pos)->state == state && at-- == 0)
			return FILE_OF(pos);
	}
	return NULL;
}

static void forget(struct model *model, struct file *file)
{
	list_remove(&file->link);
	model->file_count--;
	free(file);
}

static void format_name(const struct file *file, char ret_name[SEGMENT_NAME_MAX])
{
	segment_format_name(&(struct segment_name){file->id, file->generation, file->state == SEGMENT_LEASED,
				    file->lease, file->index},
		ret_name);
}

static int get_dir(const struct model *model, enum segment_state state)
{
	return model->pool->dirs.fds[state];
}

/* As whoever may: root opens a file of mode 0, its owner does not. */
static int open_file(struct model *model, const struct file *file)
{
	char name[SEGMENT_NAME_MAX];
	format_name(file, name);
	CHECK(model, fchmodat(get_dir(model, file->state), name, 0600, 0) == 0);
	int fd = openat(get_dir(model, file->state), name, O_RDWR | O_CLOEXEC);
	CHECK(model, fd >= 0);
	CHECK(model, fchmod(fd, file->mode) == 0);
	return fd;
}

static bool is_name_of(
	struct model *model, const struct file *file, enum segment_state where, const char *name)
{
	char own[SEGMENT_NAME_MAX];
	format_name(file, own);
	return file->state == where && strcmp(own, name) == 0;
}

/* ---- bytes ---- */

static void *map_page(struct model *model, int fd, uint64_t page)
{
	void *start = mmap(NULL, model->place->page_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
		(off_t)(page * model->place->page_size));
	CHECK(model, start != MAP_FAILED);
	return start;
}

static void write_pattern(struct model *model, const struct file *file, int fd)
{
	for (uint64_t i = 0; i < FILE_PAGES; i++) {
		if (!file->has[i])
			continue;
		void *start = map_page(model, fd, i);
		memset(start, 0xa5, model->place->page_size);
		munmap(start, model->place->page_size);
	}
}

/* Every byte of it, through a mapping of our own. */
static void expect_zero(struct model *model, const struct file *file)
{
	int fd = open_file(model, file);
	for (uint64_t i = 0; i < file->pages; i++) {
		void *start = map_page(model, fd, i);
		size_t at = 0;
		if (!zero_is_clear(start, model->place->page_size, &at))
			fail_msg("seed %" PRIu64 ", step %u (%s): segment %" PRIu64 ", page %" PRIu64
				 ", byte %zu is not zero",
				model->dice.seed, model->step, model->what, file->id, i, at);
		munmap(start, model->place->page_size);
	}
	close(fd);
}

/* ---- after every step ---- */

static struct file *find_file(const struct model *model, const struct pool_segment *segment)
{
	LIST_FOR_EACH (pos, &model->files) {
		if (FILE_OF(pos)->segment == segment)
			return FILE_OF(pos);
	}
	return NULL;
}

static void check_segment(struct model *model, struct pool_segment *segment, const struct pool_class *class)
{
	const struct file *file = find_file(model, segment);
	CHECK(model, file != NULL);
	CHECK(model, segment->pool == model->pool && segment->class == class);
	CHECK(model, segment->state == file->state && segment->id == file->id);
	CHECK(model, segment->generation == file->generation);
	CHECK(model, segment->pages == file->length && class->pages == file->length);
	if (file->state == SEGMENT_LEASED)
		CHECK(model, segment->lease == file->lease && segment->index == file->index &&
				     segment->given == file->given);
}

/* The books among themselves, before anything is looked at again. */
static void check_books(struct model *model)
{
	uint64_t pages[SEGMENT_STATE_COUNT] = {0}, segments[SEGMENT_STATE_COUNT] = {0};
	const struct pool_class *last = NULL;
	unsigned count = 0;
	POOL_FOR_EACH (pos, model->pool) {
		struct pool_class *class = CONTAINER_OF(pos, struct pool_class, link);
		CHECK(model, !last || last->pages < class->pages);
		last = class;
		for (size_t state = 0; state < SEGMENT_STATE_COUNT; state++) {
			uint64_t in_class = 0;
			LIST_FOR_EACH (at, &class->segments[state]) {
				struct pool_segment *segment = CONTAINER_OF(at, struct pool_segment, link);
				CHECK(model, segment->state == state);
				check_segment(model, segment, class);
				pages[state] += segment->allocated;
				in_class++;
			}
			CHECK(model, class->counts[state] == in_class);
			segments[state] += in_class;
			count += (unsigned)in_class;
		}
	}
	CHECK(model, count == model->file_count);
	CHECK(model, memcmp(pages, model->pool->pages, sizeof pages) == 0);
	CHECK(model, memcmp(segments, model->pool->segments, sizeof segments) == 0);
}

/* Each file is what the model says, st_blocks included, and after a look so do the books. */
static void check_file(struct model *model, struct file *file)
{
	char name[SEGMENT_NAME_MAX];
	struct segment_stat st;
	format_name(file, name);
	CHECK(model, segment_stat_at(model->store, &model->pool->dirs, file->state, name, &st) == 0);
	CHECK(model, st.ino == file->ino);
	CHECK(model, st.pages == file->pages);
	CHECK(model, st.allocated == count_allocated(file));
	CHECK(model, st.links == 1 + file->extra_links);
	CHECK(model, st.mode == file->mode);
	CHECK(model, pool_refresh(file->segment) == 0);
	CHECK(model, file->segment->allocated == st.allocated);
}

struct scan {
	struct model *model;
	enum segment_state state;
	unsigned count;
};

static int check_name(const char *name, void *user)
{
	struct scan *scan = user;
	struct model *model = scan->model;
	bool is_known = false;
	LIST_FOR_EACH (pos, &model->files)
		is_known = is_known || is_name_of(model, FILE_OF(pos), scan->state, name);
	for (size_t i = 0; i < model->other_count; i++)
		is_known = is_known || (model->others[i].where == scan->state &&
					       strcmp(model->others[i].name, name) == 0);
	if (!is_known)
		fail_msg("seed %" PRIu64 ", step %u (%s): %s/%s should not be there", model->dice.seed,
			model->step, model->what, segment_get_state_name(scan->state), name);
	scan->count++;
	return 0;
}

static void check_directories(struct model *model)
{
	unsigned count = 0;
	for (size_t state = 0; state < SEGMENT_STATE_COUNT; state++) {
		struct scan scan = {model, (enum segment_state)state, 0};
		CHECK(model, segment_scan(&model->pool->dirs, scan.state, check_name, &scan) == 0);
		count += scan.count;
	}
	CHECK(model, count == model->file_count + model->other_count);
	for (size_t i = 0; i < model->other_count; i++) {
		struct stat st;
		CHECK(model, fstatat(get_dir(model, model->others[i].where), model->others[i].name, &st,
				     AT_SYMLINK_NOFOLLOW) == 0);
		CHECK(model, st.st_ino == model->others[i].ino);
	}
}

static uint64_t count_state(const struct model *model, enum segment_state state)
{
	uint64_t count = 0;
	LIST_FOR_EACH (pos, &model->files)
		count += FILE_OF(pos)->state == state ? count_allocated(FILE_OF(pos)) : 0;
	return count;
}

/* What others ask the pool. */
static void check_answers(struct model *model)
{
	struct policy_class classes[POOL_CLASSES_MAX];
	uint64_t holes = 0, grown = 0, is_holes, is_grown, largest = 0;
	LIST_FOR_EACH (pos, &model->files) {
		const struct file *file = FILE_OF(pos);
		uint64_t allocated = count_allocated(file);
		if (file->state == SEGMENT_CLEAN)
			largest = MAX(largest, file->length);
		if (file->state != SEGMENT_LEASED)
			continue;
		holes += allocated < file->given ? file->given - allocated : 0;
		grown += allocated > file->length ? allocated - file->length : 0;
	}
	pool_count_holders(model->pool, &is_holes, &is_grown);
	CHECK(model, is_holes == holes && is_grown == grown);
	CHECK(model, pool_get_largest_clean(model->pool) == largest);
	CHECK(model, pool_get_total(model->pool) == count_all(model));
	CHECK(model, model->pool->pages[SEGMENT_CLEAN] == count_state(model, SEGMENT_CLEAN));
	size_t count = pool_get_classes(model->pool, classes);
	for (size_t i = 0; i < count; i++) {
		struct pool_segment *clean = pool_find_clean(model->pool, classes[i].segment_pages);
		CHECK(model, (clean != NULL) == (classes[i].clean > 0));
		CHECK(model, !clean || clean->pages == classes[i].segment_pages);
	}
}

/* ---- leases and their journal ---- */

static uint64_t count_leases(const struct model *model)
{
	uint64_t count = 0;
	LIST_FOR_EACH (pos, &model->files) {
		bool is_first = FILE_OF(pos)->state == SEGMENT_LEASED;
		for (struct list *at = model->files.next; at != pos; at = at->next)
			is_first = is_first && !(FILE_OF(at)->state == SEGMENT_LEASED &&
						       FILE_OF(at)->lease == FILE_OF(pos)->lease);
		count += is_first;
	}
	return count;
}

static void check_leases(struct model *model)
{
	uint64_t out = 0, leased = 0;
	CHECK(model, model->leases.count == count_leases(model));
	LIST_FOR_EACH (pos, &model->leases.leases) {
		const struct lease *lease = LEASE_OF(pos);
		CHECK(model, lease->segments_out > 0 && lease->segments_out <= lease->segment_count);
		CHECK(model, lease_find(&model->leases, lease->id) == lease);
		CHECK(model, lease_is_known_id(&model->leases, lease->id));
		out += lease->segments_out;
	}
	LIST_FOR_EACH (pos, &model->files) {
		const struct file *file = FILE_OF(pos);
		if (file->state != SEGMENT_LEASED)
			continue;
		const struct lease *lease = lease_find(&model->leases, file->lease);
		CHECK(model, lease != NULL);
		CHECK(model, lease->segments[file->index] == file->segment);
		leased++;
	}
	CHECK(model, out == leased);
}

static void read_shadow(enum journal_type type, const void *payload, size_t bytes, void *user)
{
	lease_read_record(user, type, payload, bytes);
}

static void check_recorded(struct model *model, const struct lease *lease, const struct lease *shadow)
{
	CHECK(model, shadow->state == lease->state && shadow->asked == lease->asked);
	CHECK(model, strcmp(shadow->label, lease->label) == 0 && strcmp(shadow->key, lease->key) == 0);
	CHECK(model, shadow->uid == lease->uid && shadow->pid == lease->pid);
	CHECK(model, shadow->segment_count == lease->segment_count);
	for (size_t i = 0; i < lease->segment_count; i++) {
		const struct pool_segment *segment = lease->segments[i];
		const struct journal_segment *recorded = &shadow->recorded[i];
		if (segment)
			CHECK(model, recorded->segment == segment->id &&
					     recorded->generation == segment->generation &&
					     recorded->pages == segment->given &&
					     recorded->length == segment->pages &&
					     recorded->page_size == model->place->page_size);
	}
}

/* A copy of the journal, read as the next hpzd would. */
static void check_journal(struct model *model)
{
	struct lease_table shadow;
	struct journal *journal = NULL;
	size_t length;
	char *bytes = temp_read(model->place->run_dir, "journal", &length);
	char copy[PATH_MAX];
	temp_write(model->place->run_dir, "copy/journal", bytes, length);
	free(bytes);
	temp_path(model->place->run_dir, "copy", copy);
	CHECK(model, lease_init_table(&shadow) == 0);
	CHECK(model, journal_open(copy, BOOT_ID, read_shadow, &shadow, NULL, &journal) == 0);
	journal_close(journal);
	size_t known = 0;
	LIST_FOR_EACH (pos, &model->leases.leases) {
		const struct lease *lease = LEASE_OF(pos);
		if (lease->is_unknown)
			continue;
		const struct lease *recorded = lease_find(&shadow, lease->id);
		CHECK(model, recorded != NULL);
		check_recorded(model, lease, recorded);
		known++;
	}
	CHECK(model, shadow.count == known);
	lease_deinit_table(&shadow);
}

static void check_all(struct model *model)
{
	check_books(model);
	LIST_FOR_EACH (pos, &model->files)
		check_file(model, FILE_OF(pos));
	check_books(model);
	check_directories(model);
	check_answers(model);
	check_leases(model);
	check_journal(model);
}

/* ---- steps: filling ---- */

static void step_create(struct model *model)
{
	uint64_t pages = dice_between(&model->dice, 1, SEGMENT_PAGES);
	struct pool_segment *segment = NULL;
	struct stat st;
	int fd = -1;
	if (model->file_count == FILES_MAX || count_room(model) < pages)
		return;
	CHECK(model, pool_create(model->pool, pages, &segment, &fd) == 0);
	CHECK(model, fstat(fd, &st) == 0 && fcntl(fd, F_GETFD) == FD_CLOEXEC);
	close(fd);
	struct file *file = calloc(1, sizeof *file);
	CHECK(model, file != NULL);
	*file = (struct file){.segment = segment,
		.state = SEGMENT_FILLING,
		.id = segment->id,
		.length = pages,
		.pages = pages,
		.is_zero = true,
		.ino = st.st_ino};
	list_append(&model->files, &file->link);
	model->file_count++;
}

static struct worker_done run_job(
	struct model *model, const struct file *file, enum worker_op op, bool is_stopped)
{
	static uint64_t id;
	int fds[WORKER_FDS] = {open_file(model, file), -1, -1};
	struct worker_job job = {.id = ++id,
		.op = op,
		.method = (int32_t)dice_roll(&model->dice, zero_method_count),
		.page_size = model->place->page_size,
		.length = file->length};
	struct worker_done done;
	while (!zero_methods[job.method].is_supported())
		job.method++;
	atomic_store(&model->control.stop, is_stopped ? id : 0);
	worker_run_job(&job, fds, &model->control, NULL, &done, NULL, NULL);
	close(fds[0]);
	CHECK(model, done.id == id && done.op == (uint32_t)op);
	return done;
}

static void allocate(struct model *model, struct file *file, uint64_t first, uint64_t count)
{
	int fd = open_file(model, file);
	CHECK(model, fallocate(fd, 0, (off_t)(first * model->place->page_size),
			     (off_t)(count * model->place->page_size)) == 0);
	for (uint64_t i = first; i < first + count; i++)
		file->has[i] = true;
	file->pages = MAX(file->pages, first + count);
	close(fd);
}

static void set_whole(struct file *file)
{
	file->pages = file->length;
	for (uint64_t i = 0; i < FILE_PAGES; i++)
		file->has[i] = i < file->length;
}

static void step_fill(struct model *model)
{
	struct file *file = pick(model, SEGMENT_FILLING);
	if (!file || count_room(model) < file->length)
		return;
	bool is_part = dice_chance(&model->dice, 40);
	if (is_part && file->pages > 0) {
		uint64_t first = dice_roll(&model->dice, file->pages);
		allocate(model, file, first, dice_between(&model->dice, 1, file->pages - first));
		return;
	}
	if (model->place->is_real) {
		bool is_stopped = dice_chance(&model->dice, 20);
		struct worker_done done = run_job(model, file, WORKER_FILL, is_stopped);
		CHECK(model, done.error == (is_stopped ? -ECANCELED : 0));
		if (is_stopped) { /* the length is set, nothing else is */
			for (uint64_t i = file->length; i < FILE_PAGES; i++)
				file->has[i] = false;
			file->pages = file->length;
			return;
		}
		set_whole(file);
		return;
	}
	int fd = open_file(model, file);
	CHECK(model, ftruncate(fd, (off_t)(file->length * model->place->page_size)) == 0);
	close(fd);
	allocate(model, file, 0, file->length);
	set_whole(file);
}

static void publish(struct model *model, struct file *file)
{
	bool is_fit = is_whole(file) && file->pages == file->length;
	int r = pool_publish(file->segment);
	CHECK(model, r == (is_fit ? 0 : -EUCLEAN));
	if (r < 0)
		return;
	file->state = SEGMENT_CLEAN;
	if (model->place->is_real)
		expect_zero(model, file);
}

static void step_publish(struct model *model)
{
	struct file *file = pick(model, dice_chance(&model->dice, 50) ? SEGMENT_FILLING : SEGMENT_DIRTY);
	if (file && file->is_zero)
		publish(model, file);
}

/* ---- steps: out and back ---- */

static void hand_out(struct model *model, struct file *file, uint64_t lease, uint32_t index, uint64_t given)
{
	file->state = SEGMENT_LEASED;
	file->generation++;
	file->lease = lease;
	file->index = index;
	file->given = given;
	file->is_zero = false;
	if (!model->place->is_real)
		return;
	expect_zero(model, file);
	int fd = open_file(model, file);
	write_pattern(model, file, fd);
	close(fd);
}

/* Up to three that are clean and fit to go out. */
static size_t pick_clean(struct model *model, struct file *ret_files[LEASE_FILES])
{
	size_t count = 0, wanted = dice_between(&model->dice, 1, LEASE_FILES);
	for (int tries = 0; tries < 10 && count < wanted; tries++) {
		struct file *file = pick(model, SEGMENT_CLEAN);
		bool is_fit = file && is_whole(file) && file->pages == file->length;
		for (size_t i = 0; i < count; i++)
			is_fit = is_fit && ret_files[i] != file;
		if (is_fit)
			ret_files[count++] = file;
	}
	return count;
}

static void make_draft(struct model *model, struct lease *ret_draft)
{
	*ret_draft = (struct lease){.uid = 7,
		.pid = 77,
		.asked = dice_next(&model->dice),
		.flags = HPZ_LEASE_UNBOUND,
		.deliver = dice_chance(&model->dice, 50) ? HPZ_DELIVER_PATH : HPZ_DELIVER_FD};
	snprintf(ret_draft->label, sizeof ret_draft->label, "vm-%" PRIu64, model->given_leases);
	snprintf(ret_draft->key, sizeof ret_draft->key, "key-%" PRIu64, model->given_leases++);
}

/* Something has the name a transition leads to: the transition fails, and that file lives. */
static struct other block(struct model *model, enum segment_state where, const char *name, int link_to)
{
	struct other other = {.where = where};
	struct stat st;
	snprintf(other.name, sizeof other.name, "%s", name);
	if (link_to >= 0) {
		char path[64];
		snprintf(path, sizeof path, "/proc/self/fd/%d", link_to);
		CHECK(model, linkat(AT_FDCWD, path, get_dir(model, where), name, AT_SYMLINK_FOLLOW) == 0);
	} else {
		int fd = openat(get_dir(model, where), name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0);
		CHECK(model, fd >= 0);
		close(fd);
	}
	CHECK(model, fstatat(get_dir(model, where), name, &st, 0) == 0);
	other.ino = st.st_ino;
	return other;
}

static void unblock(struct model *model, const struct other *other)
{
	struct stat st;
	CHECK(model, fstatat(get_dir(model, other->where), other->name, &st, 0) == 0);
	CHECK(model, st.st_ino == other->ino);
	CHECK(model, unlinkat(get_dir(model, other->where), other->name, 0) == 0);
}

static void step_grant(struct model *model)
{
	struct file *files[LEASE_FILES];
	struct pool_segment *segments[LEASE_FILES];
	uint64_t given[LEASE_FILES];
	size_t count = pick_clean(model, files);
	struct lease draft, *lease = NULL;
	if (count == 0)
		return;
	for (size_t i = 0; i < count; i++) {
		segments[i] = files[i]->segment;
		given[i] = dice_between(&model->dice, 1, files[i]->length);
	}
	make_draft(model, &draft);
	uint64_t id = model->leases.next_id;
	CHECK(model, lease_grant(&model->leases, &draft, segments, given, count, &lease) == 0);
	CHECK(model, lease->id == id && lease->segment_count == count && lease->state == HPZ_STATE_OFFERED);
	for (size_t i = 0; i < count; i++)
		hand_out(model, files[i], id, (uint32_t)i, given[i]);
}

/* The grant fails at one of its renames: what was renamed is dirty, the rest clean, the id is spent. */
static void step_grant_blocked(struct model *model)
{
	struct file *files[LEASE_FILES];
	struct pool_segment *segments[LEASE_FILES];
	uint64_t given[LEASE_FILES];
	size_t count = pick_clean(model, files);
	struct lease draft, before, *lease = NULL;
	if (count == 0)
		return;
	for (size_t i = 0; i < count; i++) {
		segments[i] = files[i]->segment;
		given[i] = files[i]->length;
	}
	size_t at = dice_roll(&model->dice, count);
	uint64_t id = model->leases.next_id;
	char name[SEGMENT_NAME_MAX];
	segment_format_name(
		&(struct segment_name){files[at]->id, files[at]->generation + 1, true, id, (uint32_t)at},
		name);
	bool is_link = dice_chance(&model->dice, 30);
	int fd = is_link ? open_file(model, files[at]) : -1;
	struct other other = block(model, SEGMENT_LEASED, name, fd);
	close_fd(fd);
	make_draft(model, &draft);
	before = draft;
	CHECK(model, lease_grant(&model->leases, &draft, segments, given, count, &lease) == -EEXIST);
	CHECK(model, memcmp(&before, &draft, sizeof draft) == 0 && !lease);
	CHECK(model, !lease_find(&model->leases, id) && lease_is_known_id(&model->leases, id));
	unblock(model, &other);
	for (size_t i = 0; i < at; i++) {
		files[i]->state = SEGMENT_DIRTY;
		files[i]->generation++;
		files[i]->is_zero = false;
	}
}

static void step_release(struct model *model)
{
	struct file *file = pick(model, SEGMENT_LEASED);
	if (!file)
		return;
	static const enum hpz_lease_state states[] = {HPZ_STATE_LEASED, HPZ_STATE_RETURNING};
	struct lease *lease = lease_find(&model->leases, file->lease);
	if (lease->state == HPZ_STATE_RETURNING)
		return;
	if (dice_chance(&model->dice, 20))
		lease_set_opened(&model->leases, lease);
	lease_set_state(&model->leases, lease, states[dice_roll(&model->dice, 2)]);
}

/* What the shields and the probe leave behind them; the rest is the pool's. */
static void step_return(struct model *model)
{
	struct file *file = pick(model, SEGMENT_LEASED);
	if (!file || file->extra_links > 0)
		return;
	struct lease *lease = lease_find(&model->leases, file->lease);
	if (lease->state != HPZ_STATE_RETURNING)
		return;
	char name[SEGMENT_NAME_MAX];
	segment_format_name(&(struct segment_name){file->id, file->generation, false, 0, 0}, name);
	file->mode = 0;
	close(open_file(model, file));
	if (dice_chance(&model->dice, 20)) {
		struct other other = block(model, SEGMENT_DIRTY, name, -1);
		CHECK(model, pool_set_state(file->segment, SEGMENT_DIRTY) == -EEXIST);
		unblock(model, &other);
		return;
	}
	CHECK(model, pool_set_state(file->segment, SEGMENT_DIRTY) == 0);
	lease_drop_segment(&model->leases, lease, file->segment);
	file->state = SEGMENT_DIRTY;
	if (lease->segments_out == 0)
		lease_end(&model->leases, lease);
}

static void step_clear(struct model *model)
{
	struct file *file = pick(model, SEGMENT_DIRTY);
	if (!file || count_room(model) < file->length)
		return;
	if (!model->place->is_real) {
		int fd = open_file(model, file);
		CHECK(model, ftruncate(fd, (off_t)(file->length * model->place->page_size)) == 0);
		close(fd);
		if (file->length > 0)
			allocate(model, file, 0, file->length);
	} else {
		struct worker_done done = run_job(model, file, WORKER_CLEAR, false);
		CHECK(model, done.error == 0);
		CHECK(model, done.bytes == file->length * model->place->page_size);
	}
	set_whole(file);
	file->is_zero = true;
	if (dice_chance(&model->dice, 70))
		publish(model, file);
}

static void remove_links(struct model *model, struct file *file)
{
	char name[32];
	for (; file->extra_links > 0; file->extra_links--) {
		snprintf(name, sizeof name, "%" PRIu64 ".%u", (uint64_t)file->ino, file->extra_links);
		CHECK(model, unlinkat(model->links_fd, name, 0) == 0);
	}
}

static void step_discard(struct model *model)
{
	enum segment_state state = (enum segment_state)dice_roll(&model->dice, SEGMENT_STATE_COUNT);
	struct file *file = pick(model, state);
	if (!file)
		return;
	if (state == SEGMENT_LEASED) {
		CHECK(model, pool_discard(file->segment) == -EBUSY);
		return;
	}
	remove_links(model, file);
	CHECK(model, pool_discard(file->segment) == 0);
	forget(model, file);
}

/* ---- steps: what must not happen, and what others do ---- */

static void step_forbidden(struct model *model)
{
	static const bool allowed[SEGMENT_STATE_COUNT][SEGMENT_STATE_COUNT] = {
		{false, true, false, false},
		{true, false, true, true},
		{false, false, false, true},
		{false, true, false, false},
	};
	for (size_t from = 0; from < SEGMENT_STATE_COUNT; from++) {
		struct file *file = pick(model, (enum segment_state)from);
		for (size_t to = 0; to < SEGMENT_STATE_COUNT; to++) {
			enum segment_state next = (enum segment_state)to;
			CHECK(model, pool_is_transition((enum segment_state)from, next) == allowed[from][to]);
			if (file && !allowed[from][to])
				CHECK(model, pool_set_state(file->segment, next) == -EINVAL);
		}
	}
}

/* Found not to be what it must be, or about to be extended. */
static void step_unclean(struct model *model)
{
	struct file *file = pick(model, SEGMENT_CLEAN);
	if (!file)
		return;
	enum segment_state next = dice_chance(&model->dice, 50) ? SEGMENT_DIRTY : SEGMENT_FILLING;
	CHECK(model, pool_set_state(file->segment, next) == 0);
	file->state = next;
	file->is_zero = next == SEGMENT_FILLING;
}

static void punch(struct model *model, struct file *file, int fd)
{
	uint64_t first = dice_roll(&model->dice, file->pages);
	uint64_t count = dice_between(&model->dice, 1, file->pages - first);
	CHECK(model, fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
			     (off_t)(first * model->place->page_size),
			     (off_t)(count * model->place->page_size)) == 0);
	for (uint64_t i = first; i < first + count; i++)
		file->has[i] = false;
}

static void change_length(struct model *model, struct file *file, int fd)
{
	uint64_t pages = dice_roll(&model->dice, FILE_PAGES + 1);
	CHECK(model, ftruncate(fd, (off_t)(pages * model->place->page_size)) == 0);
	for (uint64_t i = pages; i < FILE_PAGES; i++)
		file->has[i] = false;
	file->pages = pages;
}

static void add_link(struct model *model, struct file *file)
{
	char name[SEGMENT_NAME_MAX], link[32];
	format_name(file, name);
	snprintf(link, sizeof link, "%" PRIu64 ".%u", (uint64_t)file->ino, ++file->extra_links);
	CHECK(model, linkat(get_dir(model, file->state), name, model->links_fd, link, 0) == 0);
}

/* A holder does as it likes with what it was given; root may with everything. */
static void step_meddle(struct model *model)
{
	struct file *file =
		pick(model, dice_chance(&model->dice, 70)
				    ? SEGMENT_LEASED
				    : (enum segment_state)dice_roll(&model->dice, SEGMENT_STATE_COUNT));
	if (!file)
		return;
	int fd = open_file(model, file);
	switch (dice_roll(&model->dice, 8)) {
	case 0:
	case 1:
		if (file->pages > 0)
			punch(model, file, fd);
		break;
	case 2:
		change_length(model, file, fd);
		break;
	case 3:
		if (file->extra_links < 3)
			add_link(model, file);
		break;
	case 4:
		file->mode = dice_chance(&model->dice, 50) ? 0600 : 0;
		CHECK(model, fchmod(fd, file->mode) == 0);
		break;
	case 5:
		remove_links(model, file);
		break;
	default: /* touch what was punched, and more */
		if (file->pages > 0 && count_room(model) >= file->pages)
			allocate(model, file, 0, file->pages);
		if (model->place->is_real && file->state != SEGMENT_FILLING && file->state != SEGMENT_CLEAN) {
			write_pattern(model, file, fd);
			file->is_zero = false;
		}
	}
	close(fd);
}

static void step_foreign(struct model *model)
{
	static const char *const names[] = {"core", "1", "1.2.3", "lost+found", ".nfs1", "01.0", "7.7.x"};
	if (model->other_count == OTHERS_MAX)
		return;
	struct other *other = &model->others[model->other_count];
	enum segment_state where = (enum segment_state)dice_roll(&model->dice, SEGMENT_STATE_COUNT);
	char name[SEGMENT_NAME_MAX];
	snprintf(name, sizeof name, "%s", names[dice_roll(&model->dice, ARRAY_SIZE(names))]);
	bool is_stub = where == SEGMENT_FILLING && dice_chance(&model->dice, 50);
	if (is_stub)
		snprintf(name, sizeof name, "%" PRIu64 ".0", (uint64_t)1 + model->step);
	if (faccessat(get_dir(model, where), name, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
		return;
	*other = block(model, where, name, -1);
	other->is_stub = is_stub;
	model->other_count++;
}

/* ---- death and rebirth ---- */

static void on_record(enum journal_type type, const void *payload, size_t bytes, void *user)
{
	struct model *model = user;
	lease_read_record(&model->leases, type, payload, bytes);
}

static void on_leased(struct pool_segment *segment, void *user)
{
	struct model *model = user;
	CHECK(model, lease_adopt_segment(&model->leases, segment) == 0);
}

static void open_all(struct model *model)
{
	char error[256] = "";
	model->store = model->place->open_store(model->place->user);
	CHECK(model, pool_open(&model->config, "test.conf", model->place->host, model->store, &model->pool,
			     error, sizeof error) == 0);
	CHECK(model, model->store->references == 2);
	segment_close_store(model->store);
	CHECK(model, lease_init_table(&model->leases) == 0);
	CHECK(model,
		journal_open(model->place->run_dir, BOOT_ID, on_record, model, NULL, &model->journal) == 0);
	CHECK(model, pool_adopt_leased(model->pool, on_leased, model) == 0);
	CHECK(model, lease_finish_adoption(&model->leases, model->journal) == 0);
	CHECK(model, journal_compact(model->journal, lease_write_all, &model->leases) == 0);
}

/* The disk stays exactly as it is: a kill at this point would leave the same. */
static void close_all(struct model *model)
{
	lease_deinit_table(&model->leases);
	journal_close(model->journal);
	pool_close(model->pool);
	model->pool = NULL;
}

/* What is remembered of a lease over a restart. */
struct memory {
	uint64_t id, asked;
	char label[HPZ_LABEL_MAX + 1];
	enum hpz_lease_state state;
	bool was_opened, is_unknown;
};

static size_t remember(const struct model *model, bool has_journal, struct memory ret_memories[FILES_MAX])
{
	size_t count = 0;
	LIST_FOR_EACH (pos, &model->leases.leases) {
		const struct lease *lease = LEASE_OF(pos);
		struct memory *memory = &ret_memories[count++];
		*memory = (struct memory){.id = lease->id,
			.asked = lease->asked,
			.state = lease->state,
			.was_opened = lease->was_opened,
			.is_unknown = lease->is_unknown || !has_journal};
		snprintf(memory->label, sizeof memory->label, "%s", lease->label);
	}
	return count;
}

static const struct memory *find_memory(const struct memory *memories, size_t count, uint64_t id)
{
	for (size_t i = 0; i < count; i++) {
		if (memories[i].id == id)
			return &memories[i];
	}
	return NULL;
}

/* What the next hpzd must make of a file that was in no holder's hands; false: it is gone. */
static bool expect_file(struct model *model, struct file *file)
{
	file->length = file->pages;
	if (file->pages == 0)
		return false;
	bool stays_clean = file->state == SEGMENT_CLEAN && is_whole(file);
	if (file->state == SEGMENT_CLEAN && !stays_clean)
		file->state = SEGMENT_DIRTY;
	if (file->state == SEGMENT_DIRTY)
		file->is_zero = false;
	return true;
}

static void expect_adoption(struct model *model, const struct memory *memories, size_t count)
{
	LIST_FOR_EACH_SAFE (pos, &model->files) {
		struct file *file = FILE_OF(pos);
		file->segment = NULL;
		if (file->state == SEGMENT_LEASED) {
			/* What it was given is known from the journal only. */
			if (find_memory(memories, count, file->lease)->is_unknown)
				file->length = file->given = file->pages;
		} else if (!expect_file(model, file)) {
			remove_links(model, file);
			forget(model, file);
		}
	}
	for (size_t i = 0; i < model->other_count;) {
		if (model->others[i].is_stub)
			model->others[i] = model->others[--model->other_count];
		else
			i++;
	}
}

static void find_segments(struct model *model)
{
	POOL_FOR_EACH (pos, model->pool) {
		struct pool_class *class = CONTAINER_OF(pos, struct pool_class, link);
		for (size_t state = 0; state < SEGMENT_STATE_COUNT; state++) {
			LIST_FOR_EACH (at, &class->segments[state]) {
				struct pool_segment *segment = CONTAINER_OF(at, struct pool_segment, link);
				LIST_FOR_EACH (f, &model->files) {
					if (FILE_OF(f)->id == segment->id)
						FILE_OF(f)->segment = segment;
				}
			}
		}
	}
	LIST_FOR_EACH (pos, &model->files)
		CHECK(model, FILE_OF(pos)->segment != NULL);
}

static void expect_leases(struct model *model, const struct memory *memories, size_t count)
{
	CHECK(model, model->leases.count == count);
	LIST_FOR_EACH (pos, &model->leases.leases) {
		const struct lease *lease = LEASE_OF(pos);
		const struct memory *memory = find_memory(memories, count, lease->id);
		CHECK(model, memory != NULL && lease->is_recovered);
		CHECK(model, lease->is_unknown == memory->is_unknown);
		if (lease->is_unknown) {
			bool is_part = lease->segments_out < lease->segment_count;
			CHECK(model, strcmp(lease->label, "?") == 0);
			CHECK(model, lease->state == (is_part ? HPZ_STATE_RETURNING : HPZ_STATE_LEASED));
			continue;
		}
		CHECK(model, strcmp(lease->label, memory->label) == 0 && lease->asked == memory->asked);
		CHECK(model, lease->state == memory->state && lease->was_opened == memory->was_opened);
	}
}

static void step_reopen(struct model *model)
{
	struct memory memories[FILES_MAX];
	bool has_journal = dice_chance(&model->dice, 80);
	size_t count = remember(model, has_journal, memories);
	close_all(model);
	if (!has_journal) {
		char path[PATH_MAX];
		temp_path(model->place->run_dir, "journal", path);
		CHECK(model, unlink(path) == 0);
	}
	expect_adoption(model, memories, count);
	open_all(model);
	CHECK(model, model->pool->foreign_files == model->other_count);
	find_segments(model);
	expect_leases(model, memories, count);
}

static void step_sweep(struct model *model)
{
	pool_sweep(model->pool);
}

static void step_stock(struct model *model)
{
	model->config.pages = dice_roll(&model->dice, 40);
	model->config.stock_count = dice_roll(&model->dice, 4);
	for (size_t i = 0; i < model->config.stock_count; i++)
		model->config.stock[i] = (struct config_stock){
			(i * 2 + 1) * model->place->page_size, dice_roll(&model->dice, 5)};
	pool_set_config(model->pool, &model->config);
}

/* ---- the run ---- */

static const struct {
	const char *name;
	unsigned weight;
	void (*run)(struct model *model);
} steps_table[] = {
	{"create", 14, step_create},
	{"fill", 16, step_fill},
	{"publish", 16, step_publish},
	{"grant", 12, step_grant},
	{"grant blocked", 3, step_grant_blocked},
	{"release", 8, step_release},
	{"return", 12, step_return},
	{"clear", 12, step_clear},
	{"discard", 3, step_discard},
	{"forbidden", 3, step_forbidden},
	{"unclean", 2, step_unclean},
	{"meddle", 12, step_meddle},
	{"foreign", 2, step_foreign},
	{"reopen", 5, step_reopen},
	{"sweep", 3, step_sweep},
	{"stock", 2, step_stock},
};

static void take_step(struct model *model)
{
	unsigned sum = 0;
	for (size_t i = 0; i < ARRAY_SIZE(steps_table); i++)
		sum += steps_table[i].weight;
	uint64_t roll = dice_roll(&model->dice, sum);
	size_t at = 0;
	while (roll >= steps_table[at].weight)
		roll -= steps_table[at++].weight;
	model->what = steps_table[at].name;
	steps_table[at].run(model);
	check_all(model);
}

/* Everything comes back and goes: nothing is left. */
static void wind_up(struct model *model)
{
	model->what = "winding up";
	LIST_FOR_EACH_SAFE (pos, &model->files) {
		struct file *file = FILE_OF(pos);
		remove_links(model, file);
		if (file->state == SEGMENT_LEASED) {
			struct lease *lease = lease_find(&model->leases, file->lease);
			CHECK(model, pool_set_state(file->segment, SEGMENT_DIRTY) == 0);
			lease_drop_segment(&model->leases, lease, file->segment);
			file->state = SEGMENT_DIRTY;
			if (lease->segments_out == 0)
				lease_end(&model->leases, lease);
		}
		CHECK(model, pool_discard(file->segment) == 0);
		forget(model, file);
	}
	check_all(model);
	CHECK(model, pool_get_total(model->pool) == 0);
	for (size_t i = 0; i < model->other_count; i++)
		unblock(model, &model->others[i]);
	model->other_count = 0;
}

void model_run(const struct model_place *place, uint64_t seed, unsigned steps)
{
	struct model *model = calloc(1, sizeof *model);
	assert_non_null(model);
	model->place = place;
	model->what = "start";
	dice_init(&model->dice, seed);
	list_init(&model->files);
	snprintf(model->config.name, sizeof model->config.name, "model");
	model->config.page_size = place->page_size;
	open_all(model);
	CHECK(model, mkdirat(model->store->hpz_fd, "../links", 0700) == 0 || errno == EEXIST);
	model->links_fd = openat(model->store->hpz_fd, "../links", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	CHECK(model, model->links_fd >= 0);
	for (model->step = 1; model->step <= steps; model->step++)
		take_step(model);
	wind_up(model);
	close(model->links_fd);
	close_all(model);
	free(model);
}
