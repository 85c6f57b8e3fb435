/* Chooses the GPUs for a container's slices. */
#pragma once

#include "config.h"

/* The facts about a GPU that the choice depends on. */
struct prefer_gpu {
	unsigned available; /* free slices of the GPU */
	unsigned taken;     /* slices of the GPU that the container has already */
	int numa;           /* NUMA node; -1: not known */
};

/* Takes `size` slices, or as many as there are: for each slice, raises the GPU's `taken` and
 * lowers its `available` by one. */
void prefer(enum config_placement placement, struct prefer_gpu *gpus, unsigned count,
	    unsigned size);
