/*
 * Device memory that goes from process to process (CUDA IPC, shareable handles, pools), towards the
 * hooks that hand it out, get it, take it and free it. `what` is the address of a block, a VMM
 * handle, or whatever else names it in this process.
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

/* -- what this process hands out, of which so many bytes are charged -- */

/* context: with which it ends; NULL: with none. */
void share_export_handle(uint64_t what, const void *handle, size_t len, CUdevice device,
			 uint64_t bytes, CUcontext context);
/* The same of a descriptor; where it cannot be recorded, it is closed, and an error returned. */
CUresult share_export_fd(uint64_t what, int fd, CUdevice device, uint64_t bytes, CUcontext context);

/* fd is one more descriptor of what this process has imported itself. */
void share_export_import(uint64_t what, int fd);

/* The driver has freed the block, or the last reference to physical memory is gone: refunds it, as
 * far as no other process and no descriptor still has it. */
void share_free(const struct quota_release *release);
void share_end_physical(const struct holding_release *release);

/* A pool's pointer is freed, which may have been handed out, or come from another process. */
void share_end_pointer(CUdeviceptr address);

/* Looks after memory that nothing but file descriptors keep on the device. True: some is gone. */
bool share_look(void);

/* -- what it gets -- */

/* Whether somebody of the slice exports it: then it is charged there, until share_end_import. */
bool share_import_handle(uint64_t what, const void *handle, size_t len, uint64_t size_bytes,
			 CUcontext context);
bool share_import_fd(uint64_t what, int fd);

/* An outsider's: charged here until share_end_import, or the context (NULL: none) ends. */
CUresult share_import_outside(uint64_t what, CUdevice device, uint64_t bytes, CUcontext context);

/* The same with room that is reserved already, by headroom_hold; on failure it is given back. */
CUresult share_adopt(const struct holding_claim *claim, uint64_t what, CUcontext context);

/* The same of unknown size, charged when it is mapped or bound (share_map). False: there is no
 * room for the record. */
bool share_import_later(uint64_t what);
CUresult share_map(CUmemGenericAllocationHandle handle, CUdevice device, size_t size_bytes);

/* Whether it is charged, to whomever; false of an outsider's that has not been mapped yet. */
bool share_is_charged(uint64_t what);

void share_end_import(uint64_t what);

/* The context is gone, and what was exported and imported in it. */
void share_end_context(CUcontext context);

void share_forget(void); /* in a forked child */
