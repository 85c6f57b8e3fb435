/* Allocations of cuMemAlloc and its variants: reserved, settled and freed (quota.h has the order).
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "blocks.h"

/* The reservation for an allocation that is being made. */
struct quota_reservation {
	int device;
	bool managed;
	bool tentative; /* nothing is reserved: it may fit into granules already taken. See below */
	uint64_t bytes;
	struct block refused; /* by quota_settle, and the driver still has it; size 0: none */
};

/*
 * Reserves room for an allocation of size_bytes. 0, -EDQUOT (there is none), -ETIMEDOUT (the
 * region's lock cannot be had), or -ESTALE or -EUCLEAN (the region was taken away). When the quota
 * is full, a small allocation may still fit into a granule that is held already, and only the
 * driver knows. Then the reservation is tentative, one at a time in a process, and settling it
 * finds out. So for that moment the device may hold more than the quota, by one granule for each
 * process.
 */
int quota_reserve(int device, bool managed, uint64_t size_bytes,
		  struct quota_reservation *ret_reservation);

/* The driver refused, or has freed the block that quota_settle refused: all of the reservation goes
 * back. */
void quota_cancel(const struct quota_reservation *reservation);

/* The driver gave the block. 0, or -EDQUOT: the block took more than was reserved, and there is no
 * room for it. Then the block is not in the accounts, the reservation stands, and the caller frees
 * the block and cancels. */
int quota_settle(struct quota_reservation *reservation, const struct block *block);

/* A block as another process can import it. */
struct quota_block {
	int device;
	uint64_t context; /* its end frees the block, whatever context is current */
	uint64_t bytes; /* of the granules that it lies in, also of those that other blocks share */
};

/* The block that begins at the address. False: it is not known, is being freed, or is managed
 * memory. After quota_free_orphan, a block is being freed until its context ends, or until another
 * block begins at the address. */
bool quota_find_block(uint64_t address, struct quota_block *ret_block);

/* Whether the block at the address is of the context. False: it is not known, or is being freed, or
 * the context has ended and the driver has given its place to a block of another context. */
bool quota_is_block_of(uint64_t context, uint64_t address);

struct quota_release {
	struct block block;
	uint64_t bytes;   /* to give back, less what exports of the block keep charged */
	uint64_t exports; /* exports_leave's number */
	bool in_part; /* a granule of it is other allocations', too, and stays charged for them */
};

/* False: no settled block begins at the address. The caller passes the address to the driver. */
bool quota_free_begin(uint64_t address, struct quota_release *ret_release);
void quota_free_commit(const struct quota_release *release);
void quota_free_undo(const struct quota_release *release);

/* quota_free_postpone: the driver will free the block later, and the charge stays.
 * quota_free_resume comes before the later quota_free_commit or quota_free_undo. If no call will
 * report the free, quota_free_orphan counts it as module memory until the next comparison with
 * NVML. */
void quota_free_postpone(void);
void quota_free_resume(void);
void quota_free_orphan(const struct quota_release *release);

/* -- inside quota/ -- */

/* Frees of allocations that share a granule with others. The upper half counts those that have
 * begun, the lower half those that have not ended. The last of the others may give the granule back
 * while the driver still holds it for such a free. Each such free holds at most two granules beyond
 * the accounts. */
uint64_t account_frees_in_part(void);

/* How many tentative reservations have begun and ended: odd while there is one. */
uint64_t account_tentatives(void);

/* The bytes that are charged ahead for the next small allocation; account_return_spare gives them
 * back. */
uint64_t account_spare_charge(int device);
void account_return_spare(int device);

void allocations_forked(void); /* in a forked child */
