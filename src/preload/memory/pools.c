/*
 * Reads the figures of the driver's pools, and charges them (quota/pool.h has the rule).
 *
 * Reading a pool's figure while a thread captures a stream would invalidate that capture. So every
 * query stands between relaxed_begin and relaxed_end.
 *
 * Another thread may destroy a pool. So a thread that will ask about pools counts itself in
 * `lookers` before it takes their handles. cuMemPoolDestroy takes the pool off the list, and waits
 * until `lookers` is 0 (pools_wait_for_lookers) before it calls the driver.
 */
#include "pools.h"

#include <errno.h>

#include "clock.h"
#include "cuda.h"
#include "headroom.h"
#include "import.h"
#include "quota.h"
#include "reconcile.h"
#include "sys.h"

#define TRIES 8 /* to be the only thread that reads a pool's figure */
#define LOOKS 8 /* synchronisations that read figures after a free, in case of other streams */

static int looks_left;   /* atomic */
static unsigned lookers; /* threads that have pools' handles; atomic */

void pools_note_free(void)
{
	if (__atomic_load_n(&looks_left, __ATOMIC_RELAXED) != LOOKS)
		__atomic_store_n(&looks_left, LOOKS, __ATOMIC_RELAXED);
}

void pools_forked(void)
{
	looks_left = 0;
	lookers = 0;
}

CUstreamCaptureMode relaxed_begin(void)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;

	cuda.cuThreadExchangeStreamCaptureMode(&mode);
	return mode;
}

void relaxed_end(CUstreamCaptureMode mode)
{
	cuda.cuThreadExchangeStreamCaptureMode(&mode);
}

static void look_begin(void)
{
	__atomic_fetch_add(&lookers, 1, __ATOMIC_SEQ_CST);
}

static void look_end(void)
{
	__atomic_fetch_sub(&lookers, 1, __ATOMIC_SEQ_CST);
}

void pools_wait_for_lookers(void)
{
	while (__atomic_load_n(&lookers, __ATOMIC_SEQ_CST))
		sys_sleep_ns(20 * NS_PER_US);
}

static bool is_graph_pool(uint64_t pool)
{
	return pool <= VGPU_DEVICES_MAX;
}

static CUmemoryPool handle_of(uint64_t pool)
{
	return (CUmemoryPool)(uintptr_t)pool;
}

static bool ask(uint64_t pool, CUmemPool_attribute attribute, uint64_t *ret_bytes)
{
	CUstreamCaptureMode mode = relaxed_begin();
	CUresult result =
		is_graph_pool(pool)
			? cuda.cuDeviceGetGraphMemAttribute((CUdevice)pool - 1,
							    CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT,
							    ret_bytes)
			: cuda.cuMemPoolGetAttribute(handle_of(pool), attribute, ret_bytes);

	relaxed_end(mode);
	return result == CUDA_SUCCESS;
}

bool pool_read(uint64_t pool, struct pool_figure *ret_figure)
{
	bool managed;

	ret_figure->ticket = quota_pool_ticket(pool, &managed);
	return ask(pool,
		   managed ? CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH
			   : CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT,
		   &ret_figure->reserved_bytes);
}

bool pool_reserved(uint64_t pool, uint64_t *ret_bytes)
{
	return ask(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, ret_bytes);
}

bool pool_has_free(uint64_t pool, uint64_t size_bytes)
{
	uint64_t reserved, used;

	return pool_reserved(pool, &reserved) &&
	       ask(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used) && used <= reserved &&
	       size_bytes <= reserved - used;
}

bool pool_streams_wait(uint64_t pool)
{
	int allowed = 1;
	CUstreamCaptureMode mode = relaxed_begin();

	cuda.cuMemPoolGetAttribute(handle_of(pool),
				   CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, &allowed);
	relaxed_end(mode);
	return allowed;
}

static bool correct(uint64_t pool)
{
	struct pool_figure figure;

	return pool_read(pool, &figure) && quota_pool_correct(pool, &figure);
}

bool pool_correct(uint64_t pool)
{
	bool changed, again;

	look_begin();
	changed = again = correct(pool);
	for (unsigned i = 0; i < TRIES && again; i++)
		again = correct(pool);
	look_end();
	return changed;
}

bool pools_correct(CUdevice device)
{
	uint64_t pools[QUOTA_POOLS_MAX];
	bool changed = false;
	unsigned count;

	look_begin();
	count = quota_pools(device, pools, QUOTA_POOLS_MAX);
	for (unsigned i = 0; i < count; i++)
		changed |= correct(pools[i]);
	look_end();
	return changed;
}

void pools_synchronised(void)
{
	int left = __atomic_load_n(&looks_left, __ATOMIC_RELAXED);

	if (left > 0) {
		__atomic_store_n(&looks_left, left - 1, __ATOMIC_RELAXED);
		pools_correct(-1);
	}
}

/* -- giving back ------------------------------------------------------------------------------- */

static void trim(uint64_t pool)
{
	CUstreamCaptureMode mode;

	if (is_graph_pool(pool)) {
		graphs_trim((CUdevice)pool - 1);
		return;
	}
	mode = relaxed_begin();
	cuda.cuMemPoolTrimTo(handle_of(pool), 0);
	relaxed_end(mode);
}

bool pool_empty(uint64_t pool)
{
	uint64_t reserved;

	trim(pool);
	pool_correct(pool);
	return pool_reserved(pool, &reserved) && reserved == 0;
}

bool pools_give_back(CUdevice device)
{
	uint64_t pools[QUOTA_POOLS_MAX];
	bool changed = quota_shares_look();
	unsigned count;

	look_begin();
	count = quota_pools(device, pools, QUOTA_POOLS_MAX);
	for (unsigned i = 0; i < count; i++) {
		if (is_graph_pool(pools[i]) || pool_has_free(pools[i], 1))
			trim(pools[i]);
		changed |= correct(pools[i]);
	}
	look_end();
	return changed;
}

/* -- allocations ------------------------------------------------------------------------------- */

/* The driver does not say what the pool reserves, so nothing can be charged before the allocation.
 * What the device holds by now is charged first. -ENOENT: there is room for the allocation. */
static int grow_unseen(CUdevice device, uint64_t size_bytes)
{
	uint64_t limit = quota_limit(device);

	reconcile_now(device);
	return limit && quota_used(device) + size_bytes > limit ? -EDQUOT : -ENOENT;
}

static int grow(uint64_t pool, uint64_t size_bytes, struct pool_reservation *reservation)
{
	struct pool_figure figure;

	return pool_read(pool, &figure) ? quota_pool_grow(pool, size_bytes, &figure, reservation)
					: grow_unseen(reservation->device, size_bytes);
}

int pool_grow(uint64_t pool, uint64_t size_bytes, struct pool_reservation *reservation)
{
	int error = grow(pool, size_bytes, reservation);

	if (error == -EDQUOT) {
		headroom_make(reservation->device);
		error = grow(pool, size_bytes, reservation);
	}
	if (error == 0)
		pools_note_free(); /* the next look refunds what is charged ahead */
	return error;
}
