/* The processes of slices that have ended, and what the GPUs still hold for them. */
#pragma once

#include "overview.h"

struct procs;

/*
 * Takes out of the slices' figures what the GPUs have back from dead processes whose slots nobody
 * has emptied yet, and takes a process out of the list when no GPU holds anything for it. Marks a
 * process for which that cannot be told. After the slices' GPUs were found.
 */
void departed_settle(struct overview *overview, struct procs *procs);
