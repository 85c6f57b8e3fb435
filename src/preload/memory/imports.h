/* Charges for memory of processes outside the slice, which this process has imported (import.h). */
#pragma once

#include "cuda_abi.h"
#include "headroom.h"
#include "holding.h"

/* The memory is open at the address, and no process of the slice exports it: charges it until it is
 * closed, or until the place's context (NULL: none) ends. */
CUresult imports_charge(CUdeviceptr address, const struct place *place, size_t size_bytes);

/* Imported physical memory is mapped or bound with that reference: charges it, if no process of the
 * slice exports it and it is not charged yet. Called between quota_ending_begin and
 * quota_ending_end. */
CUresult imports_map(const struct holding_reference *reference, size_t size_bytes);
