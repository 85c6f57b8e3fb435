/*
 * Memory of other processes that this process has open: through CUDA IPC, VMM handles, pointers of
 * pools, and memory of other APIs (cuImportExternalMemory).
 *
 * If a process of the slice exports the memory (export.h), and it is not larger than what that
 * process is charged for it, the import costs nothing. Otherwise the memory is charged here as long
 * as it is open: as HOLDING_IMPORT (holding.h).
 *
 * `memory` names what is imported: the address, the external memory's pointer, or
 * quota_holding_number of physical memory.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "holding.h"

/*
 * The import of memory that its exporter may free while the driver imports it. begin: before the
 * driver's call; the charge moves to this process if the exporter frees the memory. Then either
 * record, or cancel. In between, a comparison with NVML would take the memory for something that
 * the driver has taken on its own account, so none lowers the accounts.
 */
struct quota_import {
	uint64_t key; /* 0: no process of the slice exports the memory */
	uint64_t bytes;
	unsigned index; /* of the device, in the region */
};
void quota_import_begin(const void *handle, size_t len, struct quota_import *ret_import);
void quota_import_begin_fd(int fd, struct quota_import *ret_import);
/* For memory that is told by neither: no process of the slice exports it. */
void quota_import_begin_unknown(struct quota_import *ret_import);
void quota_import_cancel(const struct quota_import *import);

/* True: a process of the slice has the charge, and the import is recorded until its end, or until
 * the context (0: none) ends. False: the caller charges size_bytes, by one of the next three. */
bool quota_import_record(const struct quota_import *import, uint64_t memory, uint64_t size_bytes,
			 uint64_t context);

/* Records the import of a pool's pointer before the driver's call, under a number, as the pointer
 * may be impossible to give back if the record turns out to have no place. 0: no process of the
 * slice has the charge, or there is no place, and record or cancel follows. Otherwise arrived
 * follows in their place, with what names the memory, or with 0 if the driver has refused. */
uint64_t quota_import_expect(const struct quota_import *import);
void quota_import_arrived(uint64_t number, uint64_t memory);

/* The process has the same memory open already in the context, and pays for it: 1, and the import
 * is recorded. The driver gives memory that is opened again the address that it has, and counts. 0:
 * it does not pay. -ENOMEM: there is no place for the record. */
int quota_import_again(uint64_t memory, uint64_t context);
/* The memory is charged as was reserved. 0, or -ENOMEM: then the reservation is cancelled. */
int quota_import_charge(const struct holding_reservation *reservation, uint64_t memory,
			uint64_t context);
/* Physical memory of unknown size is charged when it is mapped or bound. False: there is no place
 * for the record. */
bool quota_import_later(uint64_t memory);

/* Imported physical memory is mapped or bound, of which size_bytes must be charged. True: they are
 * not charged yet. The caller reserves them, and quota_import_pay charges them: 0, or -ENOMEM,
 * which cancels the reservation. Called between quota_ending_begin and quota_ending_end. */
bool quota_import_is_due(uint64_t memory, uint64_t size_bytes);
int quota_import_pay(const struct holding_reservation *reservation, uint64_t memory);

/* fd is one more descriptor of physical memory that this process has imported. */
void quota_import_exported(uint64_t memory, int fd);

/* Physical memory has lost its last reference. Called between quota_ending_begin and
 * quota_ending_end, or after a function that begins to release. */
void quota_import_ended(uint64_t memory);

/*
 * Memory that is no block's is about to be freed or closed at an address: a pointer of a pool,
 * which may have been exported, or memory of another process. end: the driver has answered. In
 * between, no comparison lowers the accounts, as the driver may have freed what they still have.
 */
struct quota_pointer {
	uint64_t address;
	uint64_t exports; /* exports_leave's number */
	uint64_t import;  /* the number that an import has meanwhile; 0: none */
};
void quota_pointer_free_begin(uint64_t address, struct quota_pointer *ret_pointer);
void quota_pointer_free_end(const struct quota_pointer *pointer, bool is_freed);

/* In place of the end: the driver frees the memory of an import when a stream has come to that. The
 * import stays until quota_pointer_free_late. */
void quota_pointer_free_postpone(const struct quota_pointer *pointer);
void quota_pointer_free_late(uint64_t import);

/* Whether the charge of that import's exporter has moved here, and how much of which device it is.
 */
bool quota_import_has_moved(uint64_t import, int *ret_device, uint64_t *ret_bytes);

/* An import was recorded that ends with the context. quota_context_ends() has returned ends_before
 * before the driver was asked for the memory. If another thread has ended the context since, the
 * import ends. */
void quota_import_made_in(uint64_t context, uint64_t ends_before);

/* Refunds memory that only file descriptors kept (quota_exports_look), and finds out which
 * exporters have died: their charges move here. */
bool quota_shares_look(void);

/* -- inside quota/ -- */

/* The bytes of pools' pointers whose charge has moved here from a process that may live. Its pool
 * may keep the memory, in that process's NVML figure. */
uint64_t imports_moved(int device);

/* The context has ended, and with it the imports that were made in it. */
void imports_end_context(uint64_t context);
void imports_forked(void); /* in a forked child */
