/*
 * Memory pools. Three files share these declarations: pool.c has the memory of pools, pool_list.c
 * the list of pools, and pool_share.c the pools of other processes.
 */
#pragma once

#include "sim.h"

/* A free in stream order. It is complete when the stream has come to it and a synchronisation has
 * seen that. */
struct moment {
	CUcontext context; /* NULL: it has ended */
	CUstream stream;
	uint64_t ready_ns;
};

struct piece {
	struct space space; /* its `bytes`, once freed: those that are not reused yet */
	struct moment freed;
	struct piece *next; /* in freed */
};

struct CUmemPoolHandle_st {
	CUmemPoolProps properties;
	unsigned gpu; /* for a pool of device or managed memory */
	enum block_kind kind;
	bool is_default, destroyed;
	uint64_t exported;    /* the object of the shared state that its memory is; 0: none */
	uint64_t imported;    /* the object of another process's pool; 0: it is not imported */
	CUmemoryPool current; /* in a default pool: the current pool for this kind of memory */
	CUmemoryPool next;
	uint64_t used_bytes, used_high_bytes;
	uint64_t reserved_bytes, reserved_high_bytes;
	uint64_t freed_bytes, held_bytes, threshold_bytes;
	struct piece *freed;
	int reuse[3]; /* by CU_MEMPOOL_ATTR_REUSE_…, from the first */
	CUmemAccess_flags access[SIM_GPUS_MAX];
};

enum {
	REUSE_FIRST = CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES,
	REUSE_DONE = CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC - REUSE_FIRST,
	REUSE_WAITING = CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES - REUSE_FIRST,
};

extern CUmemoryPool pools; /* also destroyed ones that still have memory; under pools_lock */

void pools_lock(void);
void pools_unlock(void);
/* Whether the handle is that of a pool that is not destroyed. */
bool pool_known_locked(CUmemoryPool pool);
/* Gives back all memory of the pool, and frees the pool. */
void pool_forget_locked(CUmemoryPool pool);
/* Gives back memory beyond the used bytes and keep_bytes. Frees a destroyed pool that has none
 * left. */
void pool_shrink_locked(CUmemoryPool pool, uint64_t keep_bytes);
/* Makes a pool that stands for another process's pool. */
CUresult pool_import(const CUmemPoolProps *properties, uint64_t object, CUmemoryPool *ret_pool);
/* Frees in any stream that have happened by now are complete, and their memory need not be kept. */
void pool_collect_locked(CUmemoryPool pool);
