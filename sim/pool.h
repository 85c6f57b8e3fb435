/*
 * What pool.c, which hands out memory, pool_list.c, which knows what pools there are, and
 * pool_share.c, which has what other processes get, share.
 */
#pragma once

#include "sim.h"

/* Something freed that is done with when the stream has come so far and somebody knows it. */
struct moment {
	CUcontext context; /* NULL: it has ended */
	CUstream stream;
	uint64_t ready_ns;
};

struct piece {
	struct space space; /* bytes: once freed, those that were not yet reused */
	struct moment freed;
	struct piece *next; /* in freed */
};

struct CUmemPoolHandle_st {
	CUmemPoolProps properties;
	unsigned gpu; /* of one of device or managed memory */
	enum block_kind kind;
	bool is_default, destroyed;
	uint64_t exported;    /* its memory is this object of the shared state, 0: none */
	uint64_t imported;    /* it is another process's, whose memory is that object, 0: no */
	CUmemoryPool current; /* of a default one: in use for this kind of memory */
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

extern CUmemoryPool pools; /* the destroyed that still hold something included; pools_lock */

void pools_lock(void);
void pools_unlock(void);
/* Whether it is a pool, and not destroyed. */
bool pool_known_locked(CUmemoryPool pool);
/* Gives back all that it holds, and frees it. */
void pool_forget_locked(CUmemoryPool pool);
/* Gives back what is neither used nor to be kept; the whole pool, if it was only waiting for that.
 */
void pool_shrink_locked(CUmemoryPool pool, uint64_t keep_bytes);
/* One that stands for another process's. */
CUresult pool_import(const CUmemPoolProps *properties, uint64_t object, CUmemoryPool *ret_pool);
/* What was freed in whatever stream, and has happened by now, need not be kept any longer. */
void pool_collect_locked(CUmemoryPool pool);
