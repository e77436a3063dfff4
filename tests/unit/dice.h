/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * dice.h - random choices that can be made again: everything follows from one seed.
 * A test that uses them runs its fixed seeds and a fresh one, prints each, and takes one as its argument
 * instead.
 */
#ifndef HPZ_TEST_DICE_H
#define HPZ_TEST_DICE_H

#include <inttypes.h>
#include "util.h"

struct dice {
	uint64_t seed, state;
};

static inline void dice_init(struct dice *dice, uint64_t seed)
{
	*dice = (struct dice){seed, seed};
}

/* splitmix64 */
static inline uint64_t dice_next(struct dice *dice)
{
	uint64_t z = dice->state += 0x9e3779b97f4a7c15u;
	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return z ^ z >> 31;
}

/* 0 to sides - 1 */
static inline uint64_t dice_roll(struct dice *dice, uint64_t sides)
{
	return dice_next(dice) % sides;
}

static inline uint64_t dice_between(struct dice *dice, uint64_t least, uint64_t most)
{
	return least + dice_roll(dice, most - least + 1);
}

static inline bool dice_chance(struct dice *dice, unsigned percent)
{
	return dice_roll(dice, 100) < percent;
}

/* The seed that the command line names, or `fixed` of them and one of this moment: calls back with each. */
static inline void dice_for_each_seed(
	int argc, char **argv, uint64_t fixed, void (*callback)(uint64_t seed, void *user), void *user)
{
	if (argc > 1) {
		callback(strtoull(argv[1], NULL, 0), user);
		return;
	}
	uint64_t fresh = clock_get_ns(CLOCK_REALTIME);
	printf("# seeds 1 to %" PRIu64 " and %" PRIu64 "\n", fixed, fresh);
	for (uint64_t seed = 1; seed <= fixed; seed++)
		callback(seed, user);
	callback(fresh, user);
}

#endif
