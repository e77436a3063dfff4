/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* sentry.c - notices when somebody else opens clean memory. */
#include <inttypes.h>
#include <sys/inotify.h>

#include "log.h"
#include "sentry.h"

/* Whoever truncates by path opens nothing. */
#define EVENTS (IN_OPEN | IN_MODIFY)

struct post {
	struct list link;
	int descriptor;
	struct pool *pool;
};

struct sentry {
	int fd;
	uv_poll_t poll;
	struct list posts;
	void (*changed)(void *user);
	void *user;
};

/* A segment is handed out or extended between the open and our hearing of it: both are meant, too. */
static bool is_meant(const struct pool_segment *segment, const struct segment_name *name)
{
	if (segment->id != name->id)
		return false;
	if (segment->state == SEGMENT_CLEAN ||
		(segment->state == SEGMENT_FILLING && segment->generation == name->generation))
		return true;
	return segment->state == SEGMENT_LEASED && segment->generation == name->generation + 1;
}

static void suspect(struct sentry *sentry, struct pool_segment *segment, const char *what)
{
	if (segment->is_suspect || segment->is_opening)
		return;
	segment->is_suspect = true;
	log_warning("pool %s: clean segment %" PRIu64 " %s: it is proven free and cleared again",
		segment->pool->name, segment->id, what);
	if (segment->state != SEGMENT_CLEAN)
		return;
	int r = pool_set_state(segment, SEGMENT_DIRTY);
	if (r < 0) {
		log_error("pool %s: segment %" PRIu64 " cannot be made dirty: %s", segment->pool->name,
			segment->id, strerror(-r));
		return;
	}
	sentry->changed(sentry->user);
}

/* `name` NULL: all that are clean. */
static void suspect_all(
	struct sentry *sentry, struct pool *pool, const struct segment_name *name, const char *what)
{
	static const enum segment_state states[] = {SEGMENT_CLEAN, SEGMENT_LEASED, SEGMENT_FILLING};
	POOL_FOR_EACH (pos, pool) {
		struct pool_class *class = CONTAINER_OF(pos, struct pool_class, link);
		for (size_t i = 0; i < (name ? ARRAY_SIZE(states) : 1); i++) {
			LIST_FOR_EACH_SAFE (at, &class->segments[states[i]]) {
				struct pool_segment *segment = CONTAINER_OF(at, struct pool_segment, link);
				if (!name || is_meant(segment, name))
					suspect(sentry, segment, what);
			}
		}
	}
}

static void on_event(struct sentry *sentry, const struct inotify_event *event)
{
	struct segment_name name;
	bool is_lost = event->mask & IN_Q_OVERFLOW;
	bool is_named =
		event->len > 0 && !(event->mask & IN_ISDIR) && segment_parse_name(event->name, &name) == 0;
	if (!is_lost && !is_named)
		return;
	LIST_FOR_EACH (pos, &sentry->posts) {
		struct post *post = CONTAINER_OF(pos, struct post, link);
		if (is_lost)
			suspect_all(sentry, post->pool, NULL, "may have been opened by somebody else");
		else if (post->descriptor == event->wd)
			suspect_all(sentry, post->pool, &name, "was opened or changed by somebody else");
	}
}

void sentry_look(struct sentry *sentry)
{
	char buffer[4096] __attribute__((aligned(__alignof__(struct inotify_event))));
	for (ssize_t length; (length = read(sentry->fd, buffer, sizeof buffer)) > 0;) {
		for (char *at = buffer; at < buffer + length;) {
			struct inotify_event *event = (struct inotify_event *)at;
			at += sizeof *event + event->len;
			on_event(sentry, event);
		}
	}
}

static void on_readable(uv_poll_t *poll, int status, int events)
{
	sentry_look(poll->data);
}

void sentry_add_pool(struct sentry *sentry, struct pool *pool)
{
	char path[64];
	snprintf(path, sizeof path, "/proc/self/fd/%d", pool->dirs.fds[SEGMENT_CLEAN]);
	struct post *post = calloc(1, sizeof *post);
	int descriptor = post ? inotify_add_watch(sentry->fd, path, EVENTS | IN_ONLYDIR) : -1;
	if (descriptor < 0) {
		log_warning("pool %s: clean memory cannot be watched: %s", pool->name, strerror(errno));
		free(post);
		return;
	}
	post->descriptor = descriptor;
	post->pool = pool;
	list_append(&sentry->posts, &post->link);
}

void sentry_remove_pool(struct sentry *sentry, struct pool *pool)
{
	LIST_FOR_EACH_SAFE (pos, &sentry->posts) {
		struct post *post = CONTAINER_OF(pos, struct post, link);
		if (post->pool != pool)
			continue;
		inotify_rm_watch(sentry->fd, post->descriptor);
		list_remove(&post->link);
		free(post);
	}
}

int sentry_init(uv_loop_t *loop, void (*changed)(void *user), void *user, struct sentry **ret_sentry)
{
	struct sentry *sentry = calloc(1, sizeof *sentry);
	if (!sentry)
		return -ENOMEM;
	list_init(&sentry->posts);
	sentry->changed = changed;
	sentry->user = user;
	sentry->poll.data = sentry;
	sentry->fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
	if (sentry->fd < 0 || uv_poll_init(loop, &sentry->poll, sentry->fd) < 0) {
		int error = errno ? -errno : -EIO;
		close_fd(sentry->fd);
		free(sentry);
		return error;
	}
	uv_poll_start(&sentry->poll, UV_READABLE, on_readable);
	*ret_sentry = sentry;
	return 0;
}

void sentry_close(struct sentry *sentry)
{
	uv_close((uv_handle_t *)&sentry->poll, NULL);
}

void sentry_free(struct sentry *sentry)
{
	if (!sentry)
		return;
	LIST_FOR_EACH_SAFE (pos, &sentry->posts)
		free(CONTAINER_OF(pos, struct post, link));
	close_fd(sentry->fd);
	free(sentry);
}
