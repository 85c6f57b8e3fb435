/*
 * Device memory that goes from process to process (CUDA IPC, shareable handles, pools), for the
 * hooks that export, import and free it. `what` names the memory in this process: the address of a
 * block, quota_holding_number of memory that is exported, the handle of memory that is imported.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "cuda_abi.h"
#include "holding.h"
#include "quota.h"

#define HANDLE_BYTES                                                                \
	64 /* of CUipcMemHandle, CUmemFabricHandle and CUmemPoolPtrExportData alike \
	    */

/* -- exports: `bytes` are charged to this process ---------------------------------------------- */

/* The memory ends with the context, unless that is NULL. */
void share_export_handle(uint64_t what, const void *handle, size_t len, CUdevice device,
			 uint64_t bytes, CUcontext context);
/* The memory is exported as a descriptor. If the export cannot be recorded, the descriptor is
 * closed, and an error is returned. */
CUresult share_export_fd(uint64_t what, int fd, CUdevice device, uint64_t bytes, CUcontext context);

/* The same for a block that another thread may free while the driver exports it. begin: before the
 * driver's call; false: there is no place for the record. end: the driver's result, and the
 * descriptor if that is CUDA_SUCCESS. */
bool share_export_begin(uint64_t what, CUdevice device, CUcontext context, uint32_t *ret_serial);
CUresult share_export_end(uint32_t serial, CUresult result, int fd, uint64_t bytes);

/* fd is one more descriptor of memory that this process has imported itself. */
void share_export_import(uint64_t what, int fd);

/* The driver has freed the block, or the last reference to physical memory is gone. Refunds its
 * charge, unless another process has the memory open or a descriptor keeps it. */
void share_free(const struct quota_release *release);
/* The driver will free the block, and no call will report that (quota_free_orphan). */
void share_free_orphan(const struct quota_release *release);
void share_end_physical(const struct holding_release *release);

/* A pointer of a pool is freed, which may have been exported, or imported from another process. */
void share_end_pointer(CUdeviceptr address);

/* Refunds memory that only file descriptors kept on the device, where the last descriptor is
 * closed. True: there was some. */
bool share_look(void);

/* -- imports ----------------------------------------------------------------------------------- */

/* Whether a process of the slice exports the memory: that process has the charge, and the import is
 * recorded until share_end_import. */
bool share_import_handle(uint64_t what, const void *handle, size_t len, uint64_t size_bytes,
			 CUcontext context);

/* The same for memory that its exporter may free while the driver imports it. begin: before the
 * driver's call; the charge moves to this process if the exporter frees the memory. end: after the
 * call, if it succeeded; else cancel. */
struct share_import {
	uint64_t key; /* 0: no process of the slice exports the memory */
	uint64_t bytes;
};
void share_import_begin(const void *handle, size_t len, struct share_import *ret_import);
void share_import_begin_fd(int fd, struct share_import *ret_import);
bool share_import_end(const struct share_import *import, uint64_t what, uint64_t size_bytes,
		      CUcontext context);
void share_import_cancel(const struct share_import *import);

/* No process of the slice exports the memory: it is charged to this process, until share_end_import
 * or until the context (NULL: none) ends. */
CUresult share_import_outside(uint64_t what, CUdevice device, uint64_t bytes, CUcontext context);

/* As share_import_outside, with a reservation by headroom_reserve_holding, which is returned on
 * failure. */
CUresult share_adopt(const struct holding_reservation *reservation, uint64_t what,
		     CUcontext context);

/* As share_import_outside, for memory of unknown size, which is charged when it is mapped or bound
 * (share_map). False: there is no place for the record. */
bool share_import_later(uint64_t what);
/* Between quota_ending_begin and quota_ending_end, as the reference is counted already. */
CUresult share_map(CUmemGenericAllocationHandle handle, CUdevice device, size_t size_bytes);

/* Whether the memory is charged to a process of the slice. False for memory of share_import_later
 * that is not mapped yet. */
bool share_is_charged(uint64_t what);

/* To be called around a call that may end imports, which quota does not know beforehand. No
 * comparison lowers the accounts until the import has ended in them, too. */
void share_ending(void);
/* Before a free. True: quota_free_begin has found the block. False: the address may be of a pool,
 * or of memory of another process. The caller then calls quota_ending_end, after the driver's call
 * and share_end_pointer. */
bool share_free_begin(CUdeviceptr address, struct quota_release *ret_release);
/* The driver has answered `result`. Returns it. */
CUresult share_ended(CUresult result, uint64_t what);

void share_end_import(uint64_t what); /* between quota_ending_begin and quota_ending_end */

/* The context has ended, and with it the exports and imports that were made in it. */
void share_end_context(CUcontext context);
/* Ends the imports of the context that other threads have recorded meanwhile. The caller has called
 * quota_context_end. */
void share_end_imports_of(CUcontext context);

/* An import was recorded that ends with the context. quota_context_ends() has returned ends_before
 * before the driver was asked for the memory. If another thread has ended the context since, the
 * import ends. */
void share_imported_in(CUcontext context, uint64_t ends_before);

void share_forked(void); /* in a forked child */
