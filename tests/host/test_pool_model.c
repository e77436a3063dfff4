/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * test_pool_model.c - the model of tests/model.c on real pages of 2 MiB: worker_run_job() fills and clears
 * them, holders write a pattern, and whatever is clean is read in full. test_pool_model [SEED [STEPS]]
 */
#include "huge.h"
#include "dice.h"
#include "model.h"

#define PAGES 64

static int arg_count;
static char **args;
static char run_dir[TEMP_PATH];

static struct segment_store *open_store(void *user)
{
	return huge_open_store();
}

static void run_model(uint64_t seed, void *user)
{
	const struct model_place place = {
		.host = &huge.host,
		.page_size = HUGE_PAGE,
		.pages_max = huge.pages -
			     4, /* a collision's obstacle takes none; this is for others on the machine */
		.is_real = true,
		.run_dir = run_dir,
		.open_store = open_store,
	};
	char name[PATH_MAX];

	temp_path(run_dir, "journal", name);
	unlink(name);
	model_run(&place, seed, arg_count > 2 ? (unsigned)atoi(args[2]) : 300);
}

static void test_model(void **state)
{
	dice_for_each_seed(arg_count, args, 6, run_model, NULL);
}

int main(int argc, char **argv)
{
	arg_count = argc;
	args = argv;
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_model),
	};
	huge_open(PAGES, 32);
	temp_make(run_dir);
	int r = cmocka_run_group_tests_name("pool_model", tests, NULL, NULL);
	temp_remove(run_dir);
	return r;
}
