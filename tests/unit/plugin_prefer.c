/* Which GPUs' slices a container gets, by each placement. */
#include "prefer.h"
#include "unit.h"

#define GPUS 4

/* The slices available and taken of four GPUs, two on each NUMA node, and how many are taken then.
 */
static void check(enum config_placement placement, const unsigned available[GPUS],
		  const unsigned taken[GPUS], unsigned size, const unsigned expected[GPUS])
{
	struct prefer_gpu gpus[GPUS];

	for (unsigned i = 0; i < GPUS; i++)
		gpus[i] = (struct prefer_gpu){available[i], taken[i], (int)i / 2};
	prefer(placement, gpus, GPUS, size);
	for (unsigned i = 0; i < GPUS; i++) {
		assert_int_equal(gpus[i].taken, expected[i]);
		assert_int_equal(gpus[i].available + gpus[i].taken, available[i] + taken[i]);
	}
}

#define FOUR(a, b, c, d) ((const unsigned[GPUS]){a, b, c, d})
#define NONE             FOUR(0, 0, 0, 0)

UNIT_TEST(test_spread)
{
	check(CONFIG_SPREAD, FOUR(1, 3, 2, 4), NONE, 1, FOUR(0, 0, 0, 1));
	check(CONFIG_SPREAD, FOUR(1, 3, 2, 4), NONE, 2, FOUR(0, 1, 0, 1));
	check(CONFIG_SPREAD, FOUR(4, 4, 4, 4), NONE, 4, FOUR(1, 1, 1, 1));
	check(CONFIG_SPREAD, FOUR(4, 4, 4, 4), FOUR(0, 1, 0, 0), 1, FOUR(1, 1, 0, 0));
	check(CONFIG_SPREAD, FOUR(1, 0, 0, 4), NONE, 4, FOUR(1, 0, 0, 3));
}

UNIT_TEST(test_pack)
{
	check(CONFIG_PACK, FOUR(4, 3, 2, 4), NONE, 1, FOUR(0, 0, 1, 0));
	check(CONFIG_PACK, FOUR(4, 3, 2, 4), NONE, 3, FOUR(0, 1, 2, 0));
	check(CONFIG_PACK, FOUR(4, 3, 2, 4), FOUR(1, 0, 0, 0), 2, FOUR(3, 0, 0, 0));
	check(CONFIG_PACK, FOUR(0, 0, 2, 4), NONE, 2, FOUR(0, 0, 2, 0));
}

UNIT_TEST(test_same_gpu)
{
	check(CONFIG_SAME_GPU, FOUR(4, 3, 2, 4), NONE, 3, FOUR(0, 3, 0, 0));
	check(CONFIG_SAME_GPU, FOUR(4, 3, 2, 4), FOUR(0, 0, 0, 1), 3, FOUR(0, 0, 0, 4));
	check(CONFIG_SAME_GPU, FOUR(4, 3, 2, 4), NONE, 5, FOUR(0, 3, 2, 0)); /* none has five */
}

UNIT_TEST(test_numa)
{
	check(CONFIG_NUMA, FOUR(2, 2, 1, 2), NONE, 2, FOUR(0, 0, 1, 1));
	check(CONFIG_NUMA, FOUR(2, 2, 1, 2), NONE, 4, FOUR(2, 2, 0, 0));
	check(CONFIG_NUMA, FOUR(2, 2, 1, 2), FOUR(1, 0, 0, 0), 1, FOUR(1, 1, 0, 0));
	check(CONFIG_NUMA, FOUR(1, 1, 1, 2), NONE, 4, FOUR(1, 1, 1, 1)); /* no node has four */
}

UNIT_TEST(test_unknown_nodes_are_apart)
{
	struct prefer_gpu gpus[2] = {{1, 0, -1}, {2, 0, -1}};

	prefer(CONFIG_NUMA, gpus, 2, 2);
	assert_int_equal(gpus[0].taken, 0);
	assert_int_equal(gpus[1].taken, 2);
}

UNIT_TEST(test_takes_no_more_than_there_is)
{
	for (int placement = CONFIG_SPREAD; placement <= CONFIG_NUMA; placement++) {
		check((enum config_placement)placement, FOUR(1, 0, 2, 0), NONE, 100,
		      FOUR(1, 0, 2, 0));
		check((enum config_placement)placement, NONE, NONE, 1, NONE);
		check((enum config_placement)placement, FOUR(1, 1, 1, 1), NONE, 0, NONE);
	}
}
