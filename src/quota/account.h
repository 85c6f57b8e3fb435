/* Inside quota/: the process's account, which the files of this component share. */
#pragma once

#include "quota.h"
#include "region.h"

/* One GPU of the process. Written by quota_attach, before anyone else looks. */
struct account_device {
	bool in_slice;
	unsigned index; /* in the region */
	struct slice_limits limits;
};

extern struct region account_region;

const struct account_device *account_device(int device); /* NULL: not in the slice */

/* Brackets of every change of the accounts: quota_reconcile lowers them only outside brackets. */
void account_begin(void);
void account_end(void);

/* A stamp that changes with every account_begin; UINT64_MAX while one is open. Values of the
 * accounts that are read between two equal stamps belong to one state of the accounts. */
uint64_t account_stamp(void);

#define SIZE_BYTES_MOST ((uint64_t)1 << 60) /* no device has it, and sums must not wrap round */

/* Whether a bracket is open. */
bool account_is_changing(void);

/* account_charge_as charges a device within its limit: 0, -EDQUOT, -ETIMEDOUT. account_refund_as
 * gives a charge back, in a bracket that was opened before the driver was asked to free the memory.
 */
int account_charge_as(enum region_class class, int device, uint64_t bytes);
void account_refund_as(enum region_class class, int device, uint64_t bytes);
/* The same for the comparison with NVML, without a bracket. */
void account_lower(enum region_class class, int device, uint64_t bytes);

/* account_charge and account_refund: the same for the data class. */
int account_charge(int device, uint64_t bytes);
void account_refund(int device, uint64_t bytes);

/* Both charge memory that the device already holds, whatever the limit. account_charge_anyway does
 * not fail (region_charge_held). account_try_held charges data: 0, -ETIMEDOUT. Then the caller
 * charges the bytes later. */
void account_charge_anyway(enum region_class class, int device, uint64_t bytes);
int account_try_held(int device, uint64_t bytes);

/* Charges memory without a known owner as module memory, until a comparison with NVML finds it
 * freed. */
void account_orphan(int device, uint64_t bytes);

/* Charges managed memory: 0, -EDQUOT, -ETIMEDOUT. */
int account_charge_managed(int device, uint64_t bytes);

/* Refunds managed memory that was freed, or whose context has ended, in chunks as account.c says.
 */
void account_return_managed(int device, uint64_t bytes);

/* The bytes that are charged for managed memory, which NVML does not count for a process. */
uint64_t account_managed_charge(int device);

/* The number of refunds of managed memory. account_managed_returning counts one before it is made,
 * also for pool.c. */
uint64_t account_managed_returns(void);
void account_managed_returning(void);

/* The charges of the process's slot; all 0 if the region is lost. */
struct vgpu_hami_usage account_usage(int device);

/* Starts the records over, in a forked child. */
void account_forked(void);
