/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* util.h - cleanup attributes, lists, and the few macros every file needs. Header only, no state. */
#ifndef HPZ_UTIL_H
#define HPZ_UTIL_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/param.h> /* MIN, MAX */
#include <time.h>
#include <unistd.h>

#define ARRAY_SIZE(a)                   (sizeof(a) / sizeof((a)[0]))
#define CONTAINER_OF(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))
#define PRINTF(fmt, args)               __attribute__((format(printf, fmt, args)))
#define MUST_CHECK                      __attribute__((warn_unused_result))

#define NS_PER_MS 1000000ull
#define NS_PER_S  1000000000ull

static inline int close_fd(int fd)
{
	if (fd >= 0) {
		int saved = errno;
		close(fd);
		errno = saved;
	}
	return -1;
}

static inline void cleanup_fd(int *fd)
{
	close_fd(*fd);
}

static inline void cleanup_free(void *pointer)
{
	free(*(void **)pointer);
}

static inline void cleanup_file(FILE **file)
{
	if (*file)
		fclose(*file);
}

#define _cleanup_fd_   __attribute__((cleanup(cleanup_fd)))
#define _cleanup_free_ __attribute__((cleanup(cleanup_free)))
#define _cleanup_file_ __attribute__((cleanup(cleanup_file)))

static inline int steal_fd(int *fd)
{
	int stolen = *fd;
	*fd = -1;
	return stolen;
}

static inline void *steal_pointer_(void **pointer)
{
	void *stolen = *pointer;
	*pointer = NULL;
	return stolen;
}
#define steal_pointer(p) ((__typeof__(*(p)))steal_pointer_((void **)(p)))

static inline uint64_t clock_get_ns(clockid_t clock)
{
	struct timespec t;
	clock_gettime(clock, &t);
	return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

/*
 * A killed process's child holds its locks until it has called exec: who starts anew waits that long. 0;
 * -EWOULDBLOCK: somebody holds it and goes on holding it; or another negative errno.
 */
#define LOCK_WAIT_MS 3000
static inline int lock_fd_exclusive(int fd, unsigned wait_ms)
{
	for (unsigned waited_ms = 0;; waited_ms += 10) {
		if (flock(fd, LOCK_EX | LOCK_NB) == 0)
			return 0;
		if (errno != EWOULDBLOCK || waited_ms >= wait_ms)
			return -errno;
		nanosleep(&(struct timespec){.tv_nsec = 10 * NS_PER_MS}, NULL);
	}
}

/* A circular list with a head; an unlinked entry points to itself. */
struct list {
	struct list *next, *prev;
};

#define LIST_INIT(name)                                                                                      \
	{                                                                                                    \
		&(name), &(name)                                                                             \
	}

static inline void list_init(struct list *l)
{
	l->next = l->prev = l;
}

static inline bool list_is_empty(const struct list *l)
{
	return l->next == l;
}

static inline void list_insert_before(struct list *at, struct list *entry)
{
	entry->prev = at->prev;
	entry->next = at;
	at->prev->next = entry;
	at->prev = entry;
}

static inline void list_append(struct list *head, struct list *entry)
{
	list_insert_before(head, entry);
}

static inline void list_prepend(struct list *head, struct list *entry)
{
	list_insert_before(head->next, entry);
}

static inline void list_remove(struct list *entry)
{
	entry->prev->next = entry->next;
	entry->next->prev = entry->prev;
	list_init(entry);
}

#define LIST_FOR_EACH(pos, head) for (struct list *pos = (head)->next; pos != (head); pos = pos->next)
#define LIST_FOR_EACH_SAFE(pos, head)                                                                        \
	for (struct list *pos = (head)->next, *pos##_next = pos->next; pos != (head);                        \
		pos = pos##_next, pos##_next = pos->next)

#endif
