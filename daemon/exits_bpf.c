/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * exits_bpf.c - what the program in bpf/tracer.bpf.c has seen of the end of a process.
 *
 * The table is what counts: the ring only says for whom there is something in it, so that a ring that is full
 * loses nothing but the news.
 */
#include "exits_bpf.h"

#ifndef HPZ_BPF

int exits_bpf_open_take(int fds[TRACER_FDS], uint32_t sees, void (*ended)(pid_t, uint64_t, void *user),
	void *user, struct exits_bpf_source **ret_source)
{
	return -EOPNOTSUPP;
}

void exits_bpf_free(struct exits_bpf_source *source)
{
}

int exits_bpf_get_fd(const struct exits_bpf_source *source)
{
	return -1;
}

void exits_bpf_drain(struct exits_bpf_source *source)
{
}

int exits_bpf_watch(struct exits_bpf_source *source, pid_t pid, uint64_t pid_start)
{
	return -EOPNOTSUPP;
}

void exits_bpf_forget(struct exits_bpf_source *source, pid_t pid, uint64_t pid_start)
{
}

enum exits_look exits_bpf_look(
	const struct exits_bpf_source *source, pid_t pid, uint64_t pid_start, struct exits_seen *ret_seen)
{
	return EXITS_LOOK_NOTHING;
}

#else

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include "bpf/tracer_args.h"

/* Kinds that run in whoever needs the flush, see exits.h. */
static const unsigned own_flushes[] = {2, 3, 4};

struct exits_bpf_source {
	int fds[TRACER_FDS]; /* -1: fewer places */
	uint32_t sees;
	struct ring_buffer *ring;
	void (*ended)(pid_t pid, uint64_t pid_start, void *user);
	void *user;
};

static int on_ended(void *user, void *data, size_t bytes)
{
	const struct exits_bpf_source *source = user;
	const struct tracer_key *key = data;
	if (bytes >= sizeof *key)
		source->ended(key->pid, key->start_ticks, source->user);
	return 0;
}

int exits_bpf_open_take(int fds[TRACER_FDS], uint32_t sees, void (*ended)(pid_t, uint64_t, void *user),
	void *user, struct exits_bpf_source **ret_source)
{
	struct exits_bpf_source *source = calloc(1, sizeof *source);
	for (size_t i = 0; i < TRACER_FDS; i++) {
		int fd = steal_fd(&fds[i]);
		if (source)
			source->fds[i] = fd;
		else
			close_fd(fd);
	}
	if (!source)
		return -ENOMEM;
	source->sees = sees;
	source->ended = ended;
	source->user = user;
	source->ring = ring_buffer__new(source->fds[TRACER_ENDED], on_ended, source, NULL);
	if (!source->ring) {
		int error = errno ? -errno : -ENOMEM;
		exits_bpf_free(source);
		return error;
	}
	*ret_source = source;
	return 0;
}

void exits_bpf_free(struct exits_bpf_source *source)
{
	if (!source)
		return;
	ring_buffer__free(source->ring);
	for (size_t i = 0; i < TRACER_FDS; i++)
		close_fd(source->fds[i]);
	free(source);
}

int exits_bpf_get_fd(const struct exits_bpf_source *source)
{
	return ring_buffer__epoll_fd(source->ring);
}

void exits_bpf_drain(struct exits_bpf_source *source)
{
	ring_buffer__consume(source->ring);
}

int exits_bpf_watch(struct exits_bpf_source *source, pid_t pid, uint64_t pid_start)
{
	const struct tracer_key key = {.pid = pid, .start_ticks = pid_start};
	const struct tracer_state state = {0};
	int r = bpf_map_update_elem(source->fds[TRACER_STATES], &key, &state, BPF_NOEXIST);
	return r == -EEXIST ? 0 : r;
}

void exits_bpf_forget(struct exits_bpf_source *source, pid_t pid, uint64_t pid_start)
{
	const struct tracer_key key = {.pid = pid, .start_ticks = pid_start};
	bpf_map_delete_elem(source->fds[TRACER_STATES], &key);
}

static void fill_seen(
	const struct exits_bpf_source *source, const struct tracer_state *state, struct exits_seen *seen)
{
	bool has_begun = state->begun_ns > 0;
	seen->source = EXITS_BPF;
	seen->gone_ns = state->gone_ns;
	if (state->has_code)
		exits_set_code(seen, state->code);
	if (!has_begun)
		return;
	seen->begun_ns = state->begun_ns;
	seen->table_bytes = state->table_bytes;
	seen->table_age_ns = 0;
	if (source->sees & TRACER_SEES_STEAL)
		seen->steal_ns = state->gone_steal_ns - state->begun_steal_ns;
	for (size_t i = 0; source->sees & TRACER_SEES_FLUSHES && i < ARRAY_SIZE(own_flushes); i++)
		seen->flushes[own_flushes[i]] = state->flushes[own_flushes[i]];
}

enum exits_look exits_bpf_look(
	const struct exits_bpf_source *source, pid_t pid, uint64_t pid_start, struct exits_seen *ret_seen)
{
	const struct tracer_key key = {.pid = pid, .start_ticks = pid_start};
	struct tracer_state state;
	if (bpf_map_lookup_elem(source->fds[TRACER_STATES], &key, &state) < 0)
		return EXITS_LOOK_NOTHING;
	if (state.gone_ns == 0)
		return state.begun_ns ? EXITS_LOOK_BEGUN : EXITS_LOOK_NOTHING;
	fill_seen(source, &state, ret_seen);
	return EXITS_LOOK_GONE;
}

#endif
