/*
 * What refers to memory by handle besides handles and mappings: sparse arrays and multicast
 * objects, towards the hooks that end those.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "cuda_abi.h"

/* The array is gone, or the context with all its arrays, and with them what was bound to them. */
void virtual_end_owner(uint64_t owner);
void virtual_end_context(CUcontext context);

/* Counts the references to a handle for which nothing is charged; exported: other processes may
 * have what it is of. A multicast object is of no device, and any of the slice's does for the
 * record. */
CUresult virtual_hold_free(CUmemGenericAllocationHandle handle, CUdevice device, bool exported);
CUresult virtual_hold_object(CUmemGenericAllocationHandle handle, bool exported);
