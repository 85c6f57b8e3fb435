/*
 * Whether a vgpu run holds a slice, although perhaps no process of the slice uses a GPU. All
 * functions use one list of the machine's locks, so only one thread may call them.
 */
#pragma once

#include <stdbool.h>

#include "slices.h"

/* Begins a look: /proc/locks will be read again when a lock is asked for. may_try: a lock that
 * /proc/locks does not list is also tried, which keeps other processes from it for a moment.
 * Without may_try, such a lock counts as free. */
void held_begin(bool may_try);

/* Whether a vgpu run holds the slice, which must have a state_path. Calls between two calls of
 * held_begin belong to one look. */
bool held_by_run(const struct slices_one *one);

/* Whether the slice is a leftover of vgpu run, which the next vgpu run removes. No process is in
 * the region of a leftover, and no vgpu run holds it. living: the number of processes in its
 * region. Begins a look that may try locks. */
bool held_by_none(const struct slices_one *one, unsigned living);
