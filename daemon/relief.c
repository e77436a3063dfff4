/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* relief.c - pools get smaller while others wait for memory. */
#include <inttypes.h>

#include "log.h"
#include "pressure_psi.h"
#include "relief.h"

#define PERIOD_MS 2000

static bool takes_part(const struct pool *pool)
{
	return pool->config.give_back == CONFIG_GIVE_BACK_PRESSURE && !pool->is_draining;
}

/* Percent of the time since the last look that somebody waited for memory. False: not known. */
static bool read_pressure(struct relief *relief, uint64_t now_ns, double *ret_percent)
{
	uint64_t total_us, before_us = relief->total_us;
	uint64_t window_us = (now_ns - MIN(now_ns, relief->at_ns)) / 1000;
	bool is_first = relief->at_ns == 0;
	int r = pressure_read_psi(relief->nr->host, "memory", &total_us);
	if (r < 0) {
		if (!relief->was_missed)
			log_warning("/proc/pressure/memory: %s: give_back = pressure has no effect",
				strerror(-r));
		relief->was_missed = true;
		relief->at_ns = 0;
		return false;
	}
	relief->total_us = total_us;
	relief->at_ns = now_ns;
	if (is_first || window_us == 0 || total_us < before_us)
		return false;
	*ret_percent = MIN(100.0, 100.0 * (double)(total_us - before_us) / (double)window_us);
	return true;
}

/* No more than is ours to give, nor below the least. */
static uint64_t count_giveable(const struct pool *pool)
{
	uint64_t step = policy_get_pressure_step(resize_get_base(pool));
	uint64_t beyond = pool->target - MIN(pool->target, pool->config.min_pages);
	return MIN(MIN(step, beyond), pool->raised - MIN(pool->raised, pool->give_back));
}

static void step(struct relief *relief, struct pool *pool, double percent, uint64_t now_ns)
{
	uint64_t pages = 0, withheld = pool->size.withheld;
	switch (policy_judge_pressure(&pool->pressure, percent, withheld > 0, now_ns)) {
	case POLICY_PRESSURE_KEEP:
		return;
	case POLICY_PRESSURE_GIVE:
		pages = count_giveable(pool);
		withheld += pages;
		break;
	case POLICY_PRESSURE_TAKE:
		pages = MIN(policy_get_pressure_step(resize_get_base(pool)), withheld);
		withheld -= pages;
		break;
	}
	if (pages == 0)
		return;
	int r = resize_withhold(relief->nr, pool, withheld);
	if (r < 0)
		log_error("journal: pool %s: %s; it keeps its size", pool->name, strerror(-r));
	else
		log_info("pool %s: others wait for memory %.0f %% of the time: %" PRIu64
			 " pages are given up for them",
			pool->name, percent, withheld);
	relief->changed(relief->user);
}

void relief_look(struct relief *relief, uint64_t now_ns)
{
	double percent;
	if (!read_pressure(relief, now_ns, &percent))
		return;
	for (size_t i = 0; i < relief->pool_count; i++) {
		if (takes_part(relief->pools[i]))
			step(relief, relief->pools[i], percent, now_ns);
	}
}

static void on_timer(uv_timer_t *timer)
{
	relief_look(timer->data, uv_now(timer->loop) * NS_PER_MS);
}

void relief_set_pools(struct relief *relief, struct pool *const *pools, size_t pool_count)
{
	bool is_wanted = false;
	relief->pools = pools;
	relief->pool_count = pool_count;
	for (size_t i = 0; i < pool_count; i++)
		is_wanted = is_wanted || takes_part(pools[i]);
	bool is_active = uv_is_active((uv_handle_t *)&relief->timer);
	if (is_wanted && !is_active) {
		relief->at_ns = 0;
		uv_timer_start(&relief->timer, on_timer, PERIOD_MS, PERIOD_MS);
	} else if (!is_wanted && is_active) {
		uv_timer_stop(&relief->timer);
	}
}

void relief_init(struct relief *relief, struct nr *nr, void (*changed)(void *user), void *user)
{
	*relief = (struct relief){.nr = nr, .changed = changed, .user = user};
	uv_timer_init(nr->loop, &relief->timer);
	relief->timer.data = relief;
}

void relief_close(struct relief *relief)
{
	uv_close((uv_handle_t *)&relief->timer, NULL);
}
