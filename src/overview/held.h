/* Whether somebody has a slice of `vgpu run`'s, though no process of it uses a GPU. */
#pragma once

#include <stdbool.h>

#include "slices.h"

/* A look begins. may_try: a lock that /proc/locks does not list may be tried, which keeps others
 * from it for a moment; else what is missing there counts as not held. */
void held_begin(bool may_try);
bool held_by_run(const struct slices_one *one);

/* Whether it is a slice of vgpu run's that nothing keeps: the next vgpu run removes it. living: the
 * processes in its region. */
bool held_by_none(const struct slices_one *one, unsigned living);
