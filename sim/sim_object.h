/*
 * Memory by handle in the simulated libcuda: the table of handles, virtual memory and multicast
 * objects, memory of other processes and libraries, and arrays.
 */
#pragma once

#include "cuda_abi.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- handle.c */

enum handle_kind {
	HANDLE_MEMORY = 1, /* struct memory_handle */
	HANDLE_ARRAY,      /* these three: struct CUarray_st */
	HANDLE_MIPMAP,
	HANDLE_LEVEL,
	HANDLE_EXTERNAL,
	HANDLE_LIBRARY,
	HANDLE_MODULE, /* of a library; modules of contexts are in the contexts' lists */
	HANDLE_RESOURCES,
	HANDLE_GREEN,
	HANDLE_TEXTURE, /* struct texture of texture.c, also for surfaces */
	HANDLE_SURFACE,
};

bool handle_add(const void *object, enum handle_kind kind);
bool handle_is(const void *object, enum handle_kind kind);
void handle_remove(const void *object);

/* ---- virtual.c, virtual_map.c, multicast.c; all of it under virtual_lock */

struct physical {
	unsigned handles;
	bool on_device;
	unsigned gpu;
	uint64_t bytes, offset; /* in virtual_contents() */
	uint64_t shared;        /* an object of the shared state, 0: none */
	struct physical *next;  /* in the list of those with `shared` */
	CUmemAllocationProp prop;
};

struct memory_handle {
	unsigned references, uses;
	size_t bytes;
	CUmemAllocationHandleType types; /* the types as which it may be exported */
	struct physical *physical;       /* NULL: a multicast object, with the fields below */
	uint64_t shared;                 /* an object of the shared state, 0: none */
	unsigned devices, added;         /* the number it is made for; a bit for each added one */
	struct multicast_binding *bindings;
};

void virtual_lock(void);
void virtual_unlock(void);
int virtual_contents(void); /* the file with the contents of all memory */
struct memory_handle *virtual_handle_new(struct physical *physical, size_t bytes);
/* The struct for an application's handle, or NULL. */
struct memory_handle *virtual_handle(CUmemGenericAllocationHandle value);
struct memory_handle *virtual_mapped(uint64_t address);
void virtual_use(struct memory_handle *handle);
void virtual_unuse(struct memory_handle *handle); /* may free the handle */
void multicast_close(struct memory_handle *handle);
/* Makes the memory an object of the shared state. */
CUresult virtual_share(struct memory_handle *handle, uint64_t *ret_object);
/* Makes a handle to the memory of an object. */
CUresult virtual_import(uint64_t object, struct memory_handle **ret_handle);

/* ---- share.c */

void share_close(CUcontext context);

/* ---- external.c */

CUresult external_give(uint64_t address); /* as memory_give */

/* ---- array_size.c */

enum {
	ARRAY_ALIGNMENT = 64 << 10,
};

/* The size in bytes; 0 if there can be no such array. */
uint64_t array_size(const CUDA_ARRAY3D_DESCRIPTOR *desc, unsigned levels);
/* Changes the descriptor of a mipmapped array to that of one level. */
void array_level(CUDA_ARRAY3D_DESCRIPTOR *desc, unsigned level);

/* ---- array.c; a mipmapped array is a struct CUarray_st too */

/* Takes no memory if `takes` is false, or if memory is mapped later. */
CUresult array_make(CUcontext context, const CUDA_ARRAY3D_DESCRIPTOR *desc, unsigned levels,
		    enum handle_kind kind, bool takes, CUarray *ret_array);
CUresult array_destroy(const void *handle, enum handle_kind kind);
CUresult array_requirements(const void *handle, enum handle_kind kind, uint64_t *ret_bytes);
CUresult array_describe(CUarray handle, CUDA_ARRAY3D_DESCRIPTOR *ret_desc);
CUresult array_part(CUmipmappedArray handle, unsigned level, CUarray *ret_part);
CUresult array_map(const CUarrayMapInfo *info); /* maps or unmaps */
void arrays_close(CUcontext context);
