/*
 * Slices are taken one after the other, each from the GPU that is best at that time:
 *
 *   spread     the GPU of which the container has the fewest; of these, the one with the most
 *              available
 *   pack       the GPU of which the container has the most; of these, the one with the fewest
 *              available
 *   same-gpu   as pack, among the GPUs that have enough for all; without such a GPU, as pack
 *   numa       as spread, among the GPUs of a NUMA node that has enough for all; without such a
 *              node, as spread. A GPU whose node is not known is a node of its own
 *
 * Of equal GPUs, the first is taken. A GPU or node of which the container has slices already
 * comes first.
 */
#include "prefer.h"

#include <stdint.h>

/* Whether left is better than right; both have slices available. */
static bool is_better(enum config_placement placement, const struct prefer_gpu *left,
		      const struct prefer_gpu *right)
{
	bool spreads = placement == CONFIG_SPREAD || placement == CONFIG_NUMA;

	if (left->taken != right->taken)
		return spreads == (left->taken < right->taken);
	return left->available != right->available &&
	       spreads == (left->available > right->available);
}

/* Takes slices one by one from the GPUs of the set, which has a bit for each GPU. */
static void take(enum config_placement placement, struct prefer_gpu *gpus, unsigned count,
		 uint64_t set, unsigned size)
{
	for (; size > 0; size--) {
		struct prefer_gpu *best = NULL;

		for (unsigned i = 0; i < count; i++)
			if ((set >> i & 1) && gpus[i].available &&
			    (!best || is_better(placement, &gpus[i], best)))
				best = &gpus[i];
		if (!best)
			return;
		best->taken++;
		best->available--;
	}
}

/* The set of GPUs in the same place as GPU i: the GPU itself, or those of its NUMA node. */
static uint64_t place_of(enum config_placement placement, const struct prefer_gpu *gpus,
			 unsigned count, unsigned i)
{
	uint64_t set = (uint64_t)1 << i;

	for (unsigned j = 0; placement == CONFIG_NUMA && gpus[i].numa >= 0 && j < count; j++)
		if (gpus[j].numa == gpus[i].numa)
			set |= (uint64_t)1 << j;
	return set;
}

/* Sums the GPUs of a set. */
static struct prefer_gpu sum_of(const struct prefer_gpu *gpus, unsigned count, uint64_t set)
{
	struct prefer_gpu sum = {0};

	for (unsigned i = 0; i < count; i++)
		if (set >> i & 1) {
			sum.available += gpus[i].available;
			sum.taken += gpus[i].taken;
		}
	return sum;
}

/* The best place that has enough slices; without such a place, all GPUs. */
static uint64_t find_place(enum config_placement placement, const struct prefer_gpu *gpus,
			   unsigned count, unsigned size)
{
	uint64_t best = UINT64_MAX;
	struct prefer_gpu best_sum = {0};

	for (unsigned i = 0; i < count; i++) {
		uint64_t set = place_of(placement, gpus, count, i);
		struct prefer_gpu sum = sum_of(gpus, count, set);

		if (sum.available >= size &&
		    (best == UINT64_MAX || is_better(CONFIG_PACK, &sum, &best_sum))) {
			best = set;
			best_sum = sum;
		}
	}
	return best;
}

void prefer(enum config_placement placement, struct prefer_gpu *gpus, unsigned count, unsigned size)
{
	uint64_t set = UINT64_MAX;

	if (placement == CONFIG_SAME_GPU || placement == CONFIG_NUMA)
		set = find_place(placement, gpus, count, size);
	take(placement, gpus, count, set, size);
}
