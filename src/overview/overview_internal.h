/* What the files of src/overview/ that make a look share with each other and nobody else. */
#pragma once

#include "overview.h"

/* Reads the region under guard (guard.h): 0, or a negative errno with a fault. */
int overview_see(const char *path, struct sight *ret_sight, uint64_t *ret_looked_ns,
		 struct fault *fault);

/* Whether the slice itself counts the GPU time that it takes. One that may take all of it while no
 * other slice wants it does not. */
bool overview_is_counted(const struct overview_slice *slice, const struct overview_device *device);
