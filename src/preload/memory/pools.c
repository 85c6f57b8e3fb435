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

#define NAP_NS        (20 * NS_PER_US)
#define IDLE_MOST_NS  (100 * NS_PER_MS) /* a reset waits so long for allocations under way */
#define RESET_MOST_NS (200 * NS_PER_MS) /* an allocation waits so long for a reset */

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
		sys_sleep_ns(NAP_NS);
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

/* The pool's figure is being reset. *until_ns is 0 at the first call for an allocation. */
static void wait_for_reset(uint64_t pool, uint64_t *until_ns)
{
	uint64_t now = clock_now_ns();

	if (!*until_ns)
		*until_ns = now + RESET_MOST_NS;
	if (now < *until_ns)
		sys_sleep_ns(NAP_NS);
	else
		quota_pool_reset_pass(pool);
}

int pool_reserve(uint64_t pool, uint64_t size_bytes, struct pool_reservation *ret_reservation)
{
	uint64_t until_ns = 0;
	int error;

	while ((error = quota_pool_reserve(pool, size_bytes, ret_reservation)) == -EBUSY)
		wait_for_reset(pool, &until_ns);
	return error;
}

static int grow_once(uint64_t pool, uint64_t size_bytes, struct pool_reservation *reservation)
{
	struct pool_figure figure;

	return pool_read(pool, &figure) ? quota_pool_grow(pool, size_bytes, &figure, reservation)
					: grow_unseen(reservation->device, size_bytes);
}

static int grow(uint64_t pool, uint64_t size_bytes, struct pool_reservation *reservation)
{
	uint64_t until_ns = 0;
	int error;

	while ((error = grow_once(pool, size_bytes, reservation)) == -EBUSY)
		wait_for_reset(pool, &until_ns);
	return error;
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

/* -- resets ------------------------------------------------------------------------------------ */

/* The figure is read while no allocation is under way, so that resets do not add up. An allocation
 * that stays long in the driver is not waited for: it is charged in full. */
bool pool_reset_begin(uint64_t pool)
{
	uint64_t until_ns = clock_now_ns() + IDLE_MOST_NS;
	struct pool_figure figure;

	if (!quota_pool_reset_begin(pool))
		return false;
	while (!quota_pool_is_idle(pool) && clock_now_ns() < until_ns)
		sys_sleep_ns(NAP_NS);
	look_begin();
	if (pool_read(pool, &figure))
		quota_pool_reset_seen(pool, &figure);
	look_end();
	return true;
}
