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

/* Frees of allocations that share a granule with others. The upper half counts those that have
 * begun, the lower half those that have not ended. The last of the others may give the granule back
 * while the driver still holds it for such a free. Each such free holds at most two granules beyond
 * the accounts. */
uint64_t account_frees_in_part(void);

/* How many tentative reservations have begun and ended: odd while there is one. */
uint64_t account_tentatives(void);

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

/* The bytes that are charged ahead for the next small allocation; account_return_spare gives them
 * back. */
uint64_t account_spare_charge(int device);
void account_return_spare(int device);

/* The charges of the process's slot; all 0 if the region is lost. */
struct vgpu_hami_usage account_usage(int device);

/* These start the records of account.c, allocation.c and context.c over, in a forked child. */
void account_forked(void);
void allocations_forked(void);
void contexts_forked(void);

/*
 * All contexts of the device together take context_bytes. So the context whose cost was a guess
 * takes the bytes that the other contexts do not take. False if that cannot be, because it is less
 * than contexts can take. Then NVML's figure belongs to another process, whose pid in another
 * namespace equals ours.
 */
bool contexts_settle(int device, uint64_t context_bytes);

/* The bytes that the device's contexts take at least. */
uint64_t contexts_least(int device);

/* A context was made whose cost is a guess: the comparison with NVML is due. */
void compare_new_context(int device);
/* The charge of the device's contexts is no guess any more: it was corrected, or no context is
 * left. */
void compare_guess_over(int device, bool none_left);

/* The device's last context ended: nothing is taken later (quota_driver_expect). */
void compare_expect_nothing(int device);

/* The charged data that NVML counts, too. */
uint64_t compare_data(int device, const struct vgpu_hami_usage *usage);

void compare_forked(void); /* in a forked child */

/* -- moved.c: managed memory on other GPUs than its own -- */

/* The allocation, or all of the context, is gone from every GPU. */
void moved_end(uint64_t base);
void moved_end_context(uint64_t context);
void moved_forked(void); /* in a forked child */
