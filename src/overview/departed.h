/* Finds out which dead processes of slices still have memory on a GPU. */
#pragma once

#include "overview.h"

struct procs;

/*
 * Corrects the slices' figures for dead processes whose slots are not cleared yet. Subtracts
 * the memory that the GPUs have back. Removes a process from its slice if no GPU holds memory
 * for it. Sets may_be_held of a process for which that is not known. The caller has already
 * found the slices' GPUs (overview_device.gpu).
 */
void departed_settle(struct overview *overview, struct procs *procs);
