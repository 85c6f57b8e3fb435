/*
 * Memory of this process that other processes can have: through CUDA IPC, VMM handles as file
 * descriptors or fabric handles, pointers of pools, and DMA-BUFs.
 *
 * Within a slice, such memory is charged once. The exporter has the charge, and puts a key into the
 * region's table of shares (region_share_…). The key of a handle is a hash, and that of file
 * descriptors a number that is never used again. An importer finds the key there (import.h). If the
 * exporter frees the memory first, or dies, the charge moves to an importer.
 *
 * A file descriptor by itself keeps the memory on the device, and no process's NVML figure has that
 * memory. So the memory stays charged while any process has a descriptor of it
 * (region/descriptor.c finds out). Where that cannot be found out, the memory stays charged until
 * this process ends. An export as a descriptor that cannot be recorded is refused.
 *
 * `memory` names what is exported: the address of a block or of a pool's pointer, or
 * quota_holding_number of physical memory. While a block is being freed, its exports have a number
 * in place of the address, as the driver may give the address to another block at any time.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "allocation.h"
#include "hash.h"

/* The memory is exported by a handle. It ends with the context, unless that is 0. If there is no
 * place for the record, each importer is charged for the memory itself. */
void quota_export_handle(uint64_t memory, const void *handle, size_t len, int device,
			 uint64_t bytes, uint64_t context);

/* A pointer of the pool is exported by a handle. */
void quota_export_pointer(uint64_t address, const void *handle, size_t len, int device,
			  uint64_t bytes, uint64_t pool);

/* The physical memory is exported as a descriptor. 0, or -ENOMEM: there is no place for the record,
 * and the caller closes the descriptor. */
int quota_export_fd(uint64_t memory, int fd, int device, uint64_t bytes);

/*
 * An export of a block, which another thread may free while the driver exports it. begin: before
 * the driver's call. False: the block is not in the accounts any more, or there is no place for the
 * record (*ret_full). One of the other three follows: end_handle or end_fd if the driver has
 * exported the block, cancel if not.
 */
bool quota_export_begin(uint64_t address, const struct quota_block *block, uint32_t *ret_serial,
			bool *ret_full);
void quota_export_end_handle(uint32_t serial, const struct quota_block *block, const void *handle,
			     size_t len);
/* False: the block was freed meanwhile, or is being freed, and the descriptor may be of another
 * block at its address. The caller closes it. */
bool quota_export_end_fd(uint32_t serial, const struct quota_block *block, int fd);
void quota_export_cancel(uint32_t serial);

/* Refunds memory that only file descriptors kept on the device, where the last descriptor is
 * closed. True: there was some. */
bool quota_exports_look(void);

/* -- inside quota/ -- */

/* The key of an export by a handle. Its lowest bit is set, so it is never 0, and never a key of
 * descriptors, which is even. */
static inline uint64_t export_key(const void *handle, size_t len)
{
	return hash_bytes(handle, len) | 1;
}

/* Names of memory that is being freed have these bits set. Physical memory has the highest one
 * alone (quota_holding_number). */
#define EXPORT_FREED_BITS ((uint64_t)3 << 62)

/* Whether a value that an application frees may be an address, and none of the names above. */
static inline bool export_is_address(uint64_t value)
{
	return value && value < (uint64_t)1 << 62;
}

/* The context's block, or the pointer of a pool (context 0), at the address is about to be freed.
 * Returns the number that its exports have from now on, or 0: it has none. */
uint64_t exports_leave(uint64_t address, uint64_t context);
/* The driver has refused to free it. */
void exports_return(uint64_t number, uint64_t address);

/* The memory is freed: it took `bytes`, of which charged_bytes are its own charge. Other processes
 * or descriptors may keep it. Returns how much of charged_bytes stays charged. Called while the
 * accounts change, as all of the following. */
uint64_t exports_end(uint64_t memory, uint64_t bytes, uint64_t charged_bytes);

/* The same for memory that the accounts do not have any more, as other memory has its place: it
 * took as much as when it was exported, of which nothing is charged. */
void exports_end_replaced(uint64_t memory);

/* The pool is destroyed, and what its pointers take is charged with the pool no more. An importer
 * has the charge for the pointer from now on, although this process has the pointer, too. */
void exports_end_pool(uint64_t pool);

/* Finds the address of an exported block of the context. Blocks that are being freed do not count.
 */
bool exports_find_of(uint64_t context, uint64_t *ret_address);

void exports_forked(void); /* in a forked child */
