/*
 * Memory that the driver keeps in pools: those of stream-ordered allocation (cuMemAllocAsync), and
 * each device's graph memory. A pool is charged for the memory that it reserves of its device, used
 * or not.
 *
 * Seen on an H200 with driver 580: a pool reserves chunks of 32 MiB. An allocation makes the pool
 * grow by its size in whole chunks at most, and often not at all. Whether free memory of the pool
 * suffices depends on the order of streams, and cannot be known in advance. So before an allocation
 * its size in chunks is charged, and counts until the driver is asked how much the pool reserves.
 * Where the slice has room, some chunks are charged ahead, so that the driver and the region are
 * asked once for several allocations. These chunks go back at the next look (quota_pool_correct).
 *
 * Always: charged >= what the pool reserves + what allocations under way may add.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* The driver's figure for the bytes that a pool reserves, and when it was read. For a pool of
 * managed memory it is the highest figure so far, because such a pool gives nothing back. */
struct pool_figure {
	uint64_t ticket; /* quota_pool_ticket, before it was read */
	uint64_t reserved_bytes;
};

#define QUOTA_POOLS_MAX 320

enum pool_flags {
	POOL_MANAGED = 1,   /* NVML does not count it, the driver keeps it until it is destroyed */
	POOL_OF_DRIVER = 2, /* there without the application's doing; some room is kept for these */
};

/* A pool of the device is known from now on. If the driver is being asked to destroy one with that
 * handle, it has done so. 0 or -ENOMEM. */
int quota_pool_open(uint64_t pool, int device, unsigned flags);

/* False: not known. */
bool quota_pool_is_known(uint64_t pool, int *ret_device, unsigned *ret_flags);

/* Which the pools of a device are (-1: of any), at most `most`; how many there are. */
unsigned quota_pools(int device, uint64_t *ret_pools, unsigned most);

/* An allocation under way, and the most that it may add to the pool. */
struct pool_reservation {
	int device;
	uint32_t serial; /* of the pool's record */
	uint32_t resets; /* of the pool's figure, before the allocation */
	uint64_t worst_bytes;
};

/* Before an allocation of size_bytes from the pool. 0: the bytes that it may add are charged.
 * -EAGAIN: read the figure and call quota_pool_grow. -ENOENT: not known. -EBUSY: the pool's figure
 * is being reset; try again later. */
int quota_pool_reserve(uint64_t pool, uint64_t size_bytes,
		       struct pool_reservation *ret_reservation);

/* Returns the ticket of the pool's figure, which the caller takes before it reads the figure.
 * *ret_managed: whether the pool is one of managed memory, whose highest figure is to be read. */
uint64_t quota_pool_ticket(uint64_t pool, bool *ret_managed);

/* Called after quota_pool_reserve has returned -EAGAIN, with the figure: charges the bytes that the
 * allocation may add. Returns 0, -EDQUOT (there is no room), -ETIMEDOUT (the region's lock cannot
 * be had), or -ENOENT or -EBUSY as quota_pool_reserve. */
int quota_pool_grow(uint64_t pool, uint64_t size_bytes, const struct pool_figure *figure,
		    struct pool_reservation *ret_reservation);

/* The driver has answered to the allocation. figure: what the pool reserves now, to which the
 * charge is lowered; NULL: the worst case stays charged. */
void quota_pool_settle(uint64_t pool, const struct pool_reservation *reservation,
		       const struct pool_figure *figure);

/* An allocation of size_bytes is tried without a charge of its own, because the pool has that much
 * free memory. Meanwhile the pool's charge for these bytes stays, and no other allocation may use
 * it. size_bytes 0: the attempt is over. */
void quota_pool_try(uint64_t pool, uint64_t size_bytes);

/* Charges what the figure says. Returns whether the charge changed, or may yet: another figure was
 * entered at the same time. */
bool quota_pool_correct(uint64_t pool, const struct pool_figure *figure);

/*
 * The application resets the figure of a pool of managed memory to what the pool reserves at that
 * moment, although the driver keeps the most that the pool ever reserved. begin: before the driver
 * is asked. Until the end, allocations are refused with -EBUSY and no figure counts, except the one
 * that seen enters. The caller waits until the pool is idle, reads that figure, calls the driver,
 * and ends. One thread at a time resets figures.
 *
 * If allocations were under way after that figure was read, what they may have added is charged
 * until the pool is destroyed.
 */
bool quota_pool_reset_begin(uint64_t pool); /* false: not a known pool of managed memory */
bool quota_pool_is_idle(uint64_t pool);     /* no allocation from it is under way */
void quota_pool_reset_seen(uint64_t pool, const struct pool_figure *figure);
void quota_pool_reset_end(uint64_t pool);
/* An allocation has waited too long: none is refused with -EBUSY until the reset ends. */
void quota_pool_reset_pass(uint64_t pool);

/* A pool that the driver is asked to destroy. */
struct pool_closing {
	uint64_t pool;
	uint32_t serial; /* of its record */
	int device;
};

/* Before that: the pool is not in quota_pools any more, and allocations from it are charged as
 * before. is_empty: nothing is allocated from it. False: not known. */
bool quota_pool_close_begin(uint64_t pool, bool is_empty, struct pool_closing *ret_closing);

/* The driver has destroyed the pool, or keeps it. The driver frees the memory of a destroyed pool
 * with its last allocation, which the library cannot see. Until then it counts as module memory,
 * and is compared with NVML. */
void quota_pool_close_end(const struct pool_closing *closing, bool destroyed);

/* The bytes that are charged on the device for pools of managed memory. */
uint64_t pool_managed_charge(int device);

/* The bytes that are charged on the device and not reserved by the driver: for allocations under
 * way, or kept for the next. */
uint64_t pool_spare_charge(int device);

/* Returns the bytes that pools of the device may take in the tries under way now (quota_pool_try).
 * ret_ever: the sum of all tries so far. */
uint64_t pool_tried(int device, uint64_t *ret_ever);

void quota_pools_forked(void); /* in a forked child */
