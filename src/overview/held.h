/* Whether somebody has a slice of `vgpu run`'s, though no process of it uses a GPU. */
#pragma once

#include <stdbool.h>

#include "slices.h"

void held_begin(void); /* a look begins */
bool held_by_run(const struct slices_one *one);

/* Whether it is a slice of vgpu run's that nothing keeps: the next vgpu run removes it. living: the
 * processes in its region. */
bool held_by_none(const struct slices_one *one, unsigned living);
