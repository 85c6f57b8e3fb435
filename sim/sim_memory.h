/*
 * Device memory by address in the simulated libcuda: granules, allocations, pools, the allocations
 * of graphs, and the map of addresses.
 */
#pragma once

#include "cuda_abi.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- page.c: the free space of one 2 MiB granule, in units of 512 bytes */

enum {
	UNIT_BYTES = 512,
	GRANULE_BYTES = 2 << 20,
	PAGE_UNITS = GRANULE_BYTES / UNIT_BYTES,
	PAGE_WORDS = PAGE_UNITS / 64,
};

struct page {
	struct block *block;
	uint64_t address;
	unsigned index;            /* in its heap's page_index */
	unsigned head_units;       /* taken by the allocation that the block was made for */
	unsigned bound;            /* no free run is longer than this many units */
	unsigned low;              /* no free unit below */
	uint64_t used[PAGE_WORDS]; /* a bit for each unit */
	uint64_t last[PAGE_WORDS]; /* set for the last unit of every allocation */
};

/* Pages by their bounds: the leftmost page that may have a long enough run is found in O(log n). */
struct page_index {
	struct page **pages;
	uint16_t *bounds; /* a tree: [1] is the root, children of n are 2n and 2n+1, leaves are
			     bounds */
	unsigned count, capacity;
};

void page_open(struct page *page, unsigned head_units);
/* Takes a run, and returns its first unit. -1: there is none, and page->bound has been made exact.
 */
int page_take(struct page *page, unsigned units);
/* The units of the allocation that begins at `unit`, or 0. */
unsigned page_length(const struct page *page, unsigned unit);
/* The first unit of the allocation that has this unit, or -1 if the unit is free. */
int page_start(const struct page *page, unsigned unit);
void page_give(struct page *page, unsigned unit, unsigned units);

bool page_index_add(struct page_index *index, struct page *page);
void page_index_remove(struct page_index *index, struct page *page);
void page_index_update(struct page_index *index, const struct page *page);
struct page *page_index_find(const struct page_index *index, unsigned units);

/* ---- memory.c */

enum block_kind {
	BLOCK_DEVICE,  /* small allocations may share its last granule */
	BLOCK_LOW,     /* below 4 GiB, for functions with 32-bit pointers; one allocation only */
	BLOCK_MANAGED, /* of cuMemAllocManaged; one allocation only */
	BLOCK_ARRAY,   /* for arrays; small ones share it */
	BLOCK_SPACE,   /* a struct space's, and likewise of managed and of host memory */
	BLOCK_SPACE_MANAGED,
	BLOCK_SPACE_HOST,
	BLOCK_VARIABLES, /* a module's, which ends with the module; and its managed ones */
	BLOCK_VARIABLES_MANAGED,
};

/* Addresses that a pool or a graph hands out, or of a module's variables. The pool, graph or module
 * accounts for the memory. */
struct space {
	uint64_t address;
	size_t bytes;
	CUdevice device;
	CUmemoryPool pool; /* NULL: the space is of a graph or a module */
};

struct heap {
	struct block *blocks;
	struct page_index index;
};

struct memory_range {
	CUcontext context; /* NULL for a space, which belongs to a device */
	CUdevice device;
	CUmemoryPool pool;   /* the memory is from this pool; or NULL */
	struct space *space; /* valid under the lock of its pool or graph; or NULL */
	enum block_kind kind;
	unsigned access; /* CU_MEM_ACCESS_FLAGS_PROT_… */
	uint64_t address;
	size_t bytes;
};

#define NOWHERE ((CUmemLocation){CU_MEM_LOCATION_TYPE_INVALID, 0})

/* The advice for a managed allocation as a whole. No memory moves. */
struct memory_advice {
	bool read_mostly;
	CUmemLocation preferred, prefetched; /* NOWHERE: not set */
	uint32_t accessed_by;                /* a bit for each device of this process */
	bool accessed_by_host;
};

/* False unless the range lies in one managed allocation. */
bool memory_advice_get(uint64_t address, size_t bytes, struct memory_advice *ret_advice);
void memory_advice_set(uint64_t address, size_t bytes, const struct memory_advice *advice);

/* Address space, zeroed when touched, aligned to a power of two of at least a granule; 0 if there
 * is none. The space that ended last is given again, if it is large enough: a driver may do so. */
uint64_t space_map(uint64_t bytes, uint64_t alignment, bool low);
void space_unmap(uint64_t address, uint64_t bytes);

CUresult memory_take(CUcontext context, size_t bytes, enum block_kind kind, uint64_t *ret_address);
/* CUDA_ERROR_INVALID_VALUE unless an allocation begins at the address that is not a space. */
CUresult memory_give(uint64_t address);
CUresult memory_give_array(uint64_t address);
/* Gives back all memory of the context. */
void memory_give_all(CUcontext context);
/* The allocation that the address lies in. */
bool memory_find(uint64_t address, struct memory_range *ret_range);
/* Finds addresses for a space, whose other members are set. */
CUresult memory_space_open(struct space *space, enum block_kind kind);
void memory_space_close(struct space *space);
/* Makes the granules of an allocation an object of the shared state: which, and where it begins
 * there. Not of managed memory. */
CUresult memory_share(uint64_t address, uint64_t *ret_object, uint64_t *ret_offset);

/* ---- pool.c, pool_list.c */

enum {
	CHUNK_BYTES = 32 << 20, /* pools and graphs take device memory in units of this */
};

/* Rounds up to a multiple of CHUNK_BYTES. A number that is too large for that stays as it is. */
uint64_t chunks_round(uint64_t bytes);

CUresult pool_create(const CUmemPoolProps *properties, CUmemoryPool *ret_pool);
CUresult pool_destroy(CUmemoryPool pool);
/* The default pool for a kind of memory; and the pool that is current for that kind. */
CUresult pool_default(const CUmemLocation *location, CUmemAllocationType type,
		      CUmemoryPool *ret_pool);
CUresult pool_current(const CUmemLocation *location, CUmemAllocationType type,
		      CUmemoryPool *ret_pool);
CUresult pool_set_current(const CUmemLocation *location, CUmemAllocationType type,
			  CUmemoryPool pool);
CUresult pool_properties(CUmemoryPool pool, CUmemPoolProps *ret_properties);
CUresult pool_trim(CUmemoryPool pool, uint64_t keep_bytes);
CUresult pool_get_attribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value);
CUresult pool_set_attribute(CUmemoryPool pool, CUmemPool_attribute attribute, const void *value);
CUresult pool_set_access(CUmemoryPool pool, const CUmemAccessDesc *accesses, size_t count);
CUresult pool_get_access(CUmemoryPool pool, const CUmemLocation *location,
			 CUmemAccess_flags *ret_flags);
CUresult pool_take(CUmemoryPool pool, size_t bytes, CUstream stream, uint64_t *ret_address);
/* Both free device memory of any kind: in stream order, and at once. */
CUresult pool_give_async(uint64_t address, CUstream stream);
CUresult pool_give(uint64_t address);
/* After a synchronisation: frees before until_ns in the stream (NULL: in any stream of the context)
 * have happened, and pools shrink. */
void pools_synchronized(CUcontext context, CUstream stream, uint64_t until_ns);
/* The context ends, and with it the wait for frees in its streams. */
void pools_close(CUcontext context);

/* ---- graph_memory.c */

/* Frees a graph's allocation, in stream order, or at once if stream is NULL. False: no allocation
 * of a graph begins at the address. */
bool graph_give(uint64_t address, CUstream stream, CUresult *ret_result);
void graph_memory_trim(CUdevice device);
CUresult graph_memory_get(CUdevice device, CUgraphMem_attribute attribute, uint64_t *ret_bytes);
/* Sets a high-water mark back to the present amount. */
CUresult graph_memory_reset(CUdevice device, CUgraphMem_attribute attribute);

/* ---- address_map.c */

struct address_range {
	uint64_t address;
	size_t bytes;
	CUcontext context; /* or NULL */
	CUdevice device;
	_Atomic unsigned access;
};

/* False if memory is short, or the ranges of two overlap. */
bool address_map_add(struct address_range *range);
void address_map_remove(struct address_range *range);
/* The entry whose range overlaps this one. The caller sees to it that the entry is not removed
 * meanwhile. */
struct address_range *address_map_at(uint64_t address, size_t bytes);
bool address_map_find(uint64_t address, struct memory_range *ret_range);
