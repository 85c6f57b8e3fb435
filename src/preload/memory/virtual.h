/* Physical memory (cuMemCreate) and the references to it, for the hooks that make and end them. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "cuda_abi.h"
#include "holding.h"

/*
 * A reference to memory is counted before the driver makes it, so that another thread cannot end
 * the last one meanwhile. begin: false: quota has no record of the memory, and nothing is counted.
 * begin_mapped: the memory that is mapped where the address lies. Then the driver is called, and
 * the reference ends with drop, or stays with keep.
 */
bool virtual_reference_begin(CUmemGenericAllocationHandle memory,
			     struct holding_reference *ret_reference);
bool virtual_reference_begin_mapped(CUdeviceptr address, struct holding_reference *ret_reference);
void virtual_reference_keep(struct holding_reference *reference);
void virtual_reference_drop(const struct holding_reference *reference);

/* The driver has made the reference: to the memory that has the handle now. Returns whether that is
 * other memory than at the begin. */
bool virtual_reference_renew(struct holding_reference *reference);
/* virtual_reference_drop, for a caller that began several references between quota_ending_begin and
 * quota_ending_end. */
void virtual_reference_drop_counted(const struct holding_reference *reference);

/* The driver has answered a call that drops the reference of the release. Returns `result`. */
CUresult virtual_released(struct holding_release *release, CUresult result);
/* The last reference to the memory has ended. */
void virtual_memory_end(struct holding_release *release);

/* cuMemRelease, with its accounts. */
CUresult virtual_release(CUmemGenericAllocationHandle handle);

/* Both count references to a handle for which nothing is charged. virtual_hold_imported: physical
 * memory of another process. *ret_serial names it (quota_holding_number); 0: another thread has
 * released it already. virtual_hold_object: a multicast object, which is on no device, so that the
 * record has any device of the slice. exported: other processes may have the same object. */
CUresult virtual_hold_imported(CUmemGenericAllocationHandle handle, CUdevice device,
			       uint32_t *ret_serial);
CUresult virtual_hold_object(CUmemGenericAllocationHandle handle, bool exported);
