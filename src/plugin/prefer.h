/* Which GPUs' slices a container had best get. */
#pragma once

#include "config.h"

/* A GPU, as far as the choice goes. */
struct prefer_gpu {
	unsigned available; /* slices of it that may be taken */
	unsigned taken;     /* slices of it that the container has already */
	int numa;           /* -1: not known */
};

/* Takes `size` more slices, or as many as there are: raises each GPU's `taken` and lowers its
 * `available` by as many. */
void prefer(enum config_placement placement, struct prefer_gpu *gpus, unsigned count,
	    unsigned size);
