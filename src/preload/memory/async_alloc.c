/*
 * Stream-ordered allocation: cuMemAllocAsync and its variants. The memory that the pool reserves is
 * charged (quota/pool.h). For most allocations, the growth of the pool is charged ahead, and they
 * take two locks within the process. About every eighth asks the driver for the pool's figure, and
 * charges more in the region.
 *
 * If the worst case does not fit, the pool may still have enough free memory, and only the driver
 * knows whether this stream may use it. Then a tentative allocation is made. If the pool has grown
 * beyond the limit for it, the memory is freed again and the call is refused. The device gets that
 * memory back when the stream comes to the free, which may take long. The application may have
 * forbidden the driver to make one stream wait for another's free. Then pieces are tried before, so
 * that the pool grows by one piece at most.
 *
 * An allocation on a capturing stream becomes a node of a graph, and takes no memory (graph.c): the
 * pool does not grow.
 */
#include <errno.h>

#include "capture.h"
#include "cuda.h"
#include "headroom.h"
#include "hooks.h"
#include "lock.h"
#include "log.h"
#include "oversubscribe.h"
#include "pools.h"
#include "quota.h"
#include "reconcile.h"
#include "state.h"
#include "trace.h"

/* -- which pool -------------------------------------------------------------------------------- */

static bool is_special(CUstream stream) /* NULL, CU_STREAM_LEGACY or CU_STREAM_PER_THREAD */
{
	return (uintptr_t)stream <= 2;
}

static bool device_of_context(CUcontext context, CUdevice *ret_device)
{
	CUcontext current = NULL;
	bool known;

	if (cuda.cuCtxGetCurrent(&current) == CUDA_SUCCESS && current == context)
		return cuda.cuCtxGetDevice(ret_device) == CUDA_SUCCESS;
	if (cuda.cuCtxPushCurrent_v2(context) != CUDA_SUCCESS)
		return false;
	known = cuda.cuCtxGetDevice(ret_device) == CUDA_SUCCESS;
	cuda.cuCtxPopCurrent_v2(&context);
	return known;
}

static bool device_of_stream(CUstream stream, CUdevice *ret_device)
{
	CUcontext context;

	*ret_device = quota_only_device();
	if (*ret_device >= 0)
		return true;
	if (is_special(stream))
		return cuda.cuCtxGetDevice(ret_device) == CUDA_SUCCESS;
	return cuda.cuStreamGetCtx(stream, &context) == CUDA_SUCCESS &&
	       device_of_context(context, ret_device);
}

/* Managed memory without a device may go to any device that uses it. It is charged on the first. */
static void open_managed_pool(CUdevice device, unsigned location_type)
{
	CUmemLocation location = {.type = location_type, .id = device};
	CUmemoryPool pool;

	if (cuda.cuMemGetDefaultMemPool(&pool, &location, CU_MEM_ALLOCATION_TYPE_MANAGED) ==
	    CUDA_SUCCESS)
		quota_pool_open((uintptr_t)pool, device, POOL_MANAGED | POOL_OF_DRIVER);
}

/* A device may have no pools. */
static CUresult without_pools(CUresult result)
{
	return result == CUDA_ERROR_NOT_SUPPORTED ? CUDA_SUCCESS : result;
}

static CUresult open_default_pools_of(CUdevice device)
{
	CUmemoryPool pool;
	CUresult result = cuda.cuDeviceGetDefaultMemPool(&pool, device);

	if (result != CUDA_SUCCESS)
		return without_pools(result);
	quota_pool_open((uintptr_t)pool, device, POOL_OF_DRIVER);
	open_managed_pool(device, CU_MEM_LOCATION_TYPE_DEVICE);
	open_managed_pool(device, CU_MEM_LOCATION_TYPE_INVALID); /* the same number as TYPE_NONE */
	return CUDA_SUCCESS;
}

/* Opens the pools that the driver makes by itself, when a pool is used for the first time. A pool
 * that is not known after that is of host memory, or imported. If the driver does not say which its
 * pools are, its error is returned: memory of an unknown pool is not counted. */
static CUresult open_default_pools(void)
{
	static bool opened; /* release after the pools */
	CUresult result = CUDA_SUCCESS;

	if (__atomic_load_n(&opened, __ATOMIC_ACQUIRE))
		return CUDA_SUCCESS;
	for (CUdevice device = 0; device < VGPU_DEVICES_MAX && result == CUDA_SUCCESS; device++)
		if (quota_has_device(device))
			result = open_default_pools_of(device);
	if (result == CUDA_SUCCESS)
		__atomic_store_n(&opened, true, __ATOMIC_RELEASE);
	return result;
}

/* The current pools of devices. The driver takes 15 ns to say, so it is asked once, and after each
 * change. */
static CUmemoryPool current[VGPU_DEVICES_MAX]; /* atomic */
static unsigned current_changes;               /* atomic */

/* CUDA_SUCCESS and NULL: the device has no pools. */
static CUresult current_pool(CUdevice device, CUmemoryPool *ret_pool)
{
	unsigned changes;
	CUresult result;

	*ret_pool = __atomic_load_n(&current[device], __ATOMIC_ACQUIRE);
	if (*ret_pool)
		return CUDA_SUCCESS;
	changes = __atomic_load_n(&current_changes, __ATOMIC_SEQ_CST);
	result = cuda.cuDeviceGetMemPool(ret_pool, device);
	if (result != CUDA_SUCCESS) {
		*ret_pool = NULL;
		return without_pools(result);
	}
	__atomic_store_n(&current[device], *ret_pool, __ATOMIC_SEQ_CST);
	if (__atomic_load_n(&current_changes, __ATOMIC_SEQ_CST) != changes)
		__atomic_store_n(&current[device], NULL, __ATOMIC_SEQ_CST);
	return CUDA_SUCCESS;
}

static CUresult current_changed(CUresult result)
{
	__atomic_fetch_add(&current_changes, 1, __ATOMIC_SEQ_CST);
	for (CUdevice device = 0; device < VGPU_DEVICES_MAX; device++)
		__atomic_store_n(&current[device], NULL, __ATOMIC_SEQ_CST);
	return result;
}

CUresult cuDeviceSetMemPool(CUdevice dev, CUmemoryPool pool)
{
	cuda_bind();
	return current_changed(cuda.cuDeviceSetMemPool(dev, pool));
}

CUresult cuMemSetMemPool(CUmemLocation *location, CUmemAllocationType type, CUmemoryPool pool)
{
	cuda_bind();
	return current_changed(cuda.cuMemSetMemPool(location, type, pool));
}

/* -- allocations ------------------------------------------------------------------------------- */

/* An allocation between begin and finish. */
struct taking {
	bool counted;   /* finish has to commit or cancel `reservation` */
	bool tentative; /* nothing is reserved */
	uint64_t pool, size_bytes;
	struct pool_reservation reservation;
};

/* Held by the thread whose allocation is tentative, or that resets a pool's figure. */
static struct lock trying = LOCK_INIT;

void async_alloc_forked(void)
{
	lock_init(&trying);
}

static bool is_too_much(const struct taking *taking)
{
	uint64_t limit = quota_limit(taking->reservation.device);

	return limit && quota_used(taking->reservation.device) > limit;
}

#define PIECES      16                   /* of an allocation, at most */
#define PIECE_BYTES ((uint64_t)32 << 20) /* in which pools grow */

/* Allocates pieces of as many bytes as are wanted in the stream, until the pool grows. Returns
 * whether it did not. */
static bool take_pieces(const struct taking *taking, CUstream stream, CUdeviceptr *ret_pieces,
			unsigned *ret_count)
{
	uint64_t before, now, left = taking->size_bytes;
	uint64_t piece = (left + PIECES - 1) / PIECES;

	*ret_count = 0;
	if (piece < PIECE_BYTES)
		piece = PIECE_BYTES;
	if (!pool_reserved(taking->pool, &before))
		return false;
	for (; left; left -= piece < left ? piece : left) {
		if (cuda.cuMemAllocFromPoolAsync(
			    &ret_pieces[*ret_count], piece < left ? piece : left,
			    (CUmemoryPool)(uintptr_t)taking->pool, stream) != CUDA_SUCCESS)
			return false;
		++*ret_count;
		if (!pool_reserved(taking->pool, &now) || now > before)
			return false;
	}
	return true;
}

/* Whether the stream may use that much of what is free in the pool. The pieces are free for the
 * stream afterwards. */
static bool fits_in_pieces(const struct taking *taking, CUstream stream)
{
	CUdeviceptr pieces[PIECES];
	unsigned count;
	bool fits = take_pieces(taking, stream, pieces, &count);

	while (count)
		cuda.cuMemFreeAsync(pieces[--count], stream);
	async_free_note(stream);
	return fits;
}

/* There is one tentative allocation at a time in a process, and only while the slice is within its
 * quota. */
static bool begin_tentative(const struct taking *taking, CUstream stream)
{
	lock_acquire(&trying);
	quota_pool_try(taking->pool, taking->size_bytes);
	if (pool_has_free(taking->pool, taking->size_bytes) && !is_too_much(taking) &&
	    (pool_streams_wait(taking->pool) || fits_in_pieces(taking, stream)))
		return true;
	quota_pool_try(taking->pool, 0);
	pool_correct(taking->pool);
	lock_release(&trying);
	return false;
}

/* Whether the pool has grown beyond the quota for the tentative allocation. */
static bool end_tentative(const struct taking *taking)
{
	bool too_much;

	quota_pool_try(taking->pool, 0);
	pool_correct(taking->pool);
	too_much = is_too_much(taking);
	lock_release(&trying);
	return too_much;
}

/* The memory that was charged ahead is used up: charges more. */
static CUresult grow(struct taking *taking, CUstream stream)
{
	CUdevice device = taking->reservation.device;
	int error;

	if (capture_has(stream, false))
		return CUDA_SUCCESS;
	reconcile_books(device);
	error = pool_grow(taking->pool, taking->size_bytes, &taking->reservation);
	if (error == -EDQUOT)
		taking->tentative = begin_tentative(taking, stream);
	if (error && error != -ENOENT && !taking->tentative)
		return headroom_refuse(device, taking->size_bytes, error);
	taking->counted = error == 0;
	return CUDA_SUCCESS;
}

static int reserve(struct taking *taking)
{
	return pool_reserve(taking->pool, taking->size_bytes, &taking->reservation);
}

/* pool NULL: the current pool of the stream's device. CUDA_SUCCESS: call the driver, then finish.
 */
static CUresult begin(struct taking *taking, CUmemoryPool pool, uint64_t size_bytes,
		      CUstream stream)
{
	bool attached;
	CUdevice device;
	CUresult result = state_attach(&attached);
	int error;

	taking->counted = taking->tentative = false;
	if (result != CUDA_SUCCESS || !attached || !size_bytes)
		return result;
	if (!pool && device_of_stream(stream, &device))
		result = current_pool(device, &pool);
	if (!pool || result != CUDA_SUCCESS)
		return result; /* or the driver refuses, and says why */
	taking->pool = (uintptr_t)pool;
	taking->size_bytes = size_bytes;
	error = reserve(taking);
	if (error == -ENOENT) {
		result = open_default_pools();
		if (result != CUDA_SUCCESS)
			return result;
		error = reserve(taking);
	}
	taking->counted = error == 0;
	return error == -EAGAIN ? grow(taking, stream) : CUDA_SUCCESS;
}

static CUresult finish(const struct taking *taking, CUresult result, CUdeviceptr address,
		       CUstream stream, CUdeviceptr *dptr)
{
	if (taking->counted)
		quota_pool_settle(taking->pool, &taking->reservation, NULL);
	if (taking->tentative && end_tentative(taking) && result == CUDA_SUCCESS) {
		cuda.cuMemFreeAsync(address, stream);
		async_free_note(stream);
		return headroom_refuse(taking->reservation.device, taking->size_bytes, -EDQUOT);
	}
	if (taking->counted)
		headroom_note_answer(taking->reservation.device, taking->size_bytes, result);
	if (result == CUDA_SUCCESS) {
		*dptr = address;
		if (taking->counted || taking->tentative)
			headroom_note_taken(taking->reservation.device, taking->size_bytes);
	}
	return result;
}

/* Whether the driver made the pool. Such a pool does not promise device memory. */
static bool is_of_driver(const struct taking *taking)
{
	unsigned flags;
	int device;

	return quota_pool_is_known(taking->pool, &device, &flags) && (flags & POOL_OF_DRIVER) &&
	       !(flags & POOL_MANAGED);
}

/* The driver has answered to a request for memory of the current pool. If it had no room and the
 * slice oversubscribes, managed memory is allocated. Returns the result of the last of the two
 * tries. */
static CUresult elsewhere(struct taking *taking, CUresult result, CUstream stream,
			  CUdeviceptr *ret_address)
{
	if (result != CUDA_ERROR_OUT_OF_MEMORY || !taking->counted || !oversubscribe_allowed() ||
	    !is_of_driver(taking) || capture_has(stream, false))
		return result;
	quota_pool_settle(taking->pool, &taking->reservation, NULL);
	taking->counted = false;
	pool_correct(taking->pool); /* refunds the pool's charge before the other one is made */
	return oversubscribe_make(taking->reservation.device, taking->size_bytes, ret_address);
}

CUresult cuMemAllocAsync(CUdeviceptr *dptr, size_t bytesize, CUstream hStream)
{
	CUdeviceptr address = 0;
	struct taking taking;
	CUresult result = TRACE_CALLED(begin(&taking, NULL, bytesize, hStream));

	if (result != CUDA_SUCCESS)
		return result;
	result = cuda.cuMemAllocAsync(dptr ? &address : NULL, bytesize, hStream);
	result = elsewhere(&taking, result, hStream, &address);
	return finish(&taking, result, address, hStream, dptr);
}

CUresult cuMemAllocAsync_ptsz(CUdeviceptr *dptr, size_t bytesize, CUstream hStream)
{
	CUdeviceptr address = 0;
	struct taking taking;
	CUresult result = TRACE_CALLED(begin(&taking, NULL, bytesize, per_thread_stream(hStream)));

	if (result != CUDA_SUCCESS)
		return result;
	result = cuda.cuMemAllocAsync_ptsz(dptr ? &address : NULL, bytesize, hStream);
	result = elsewhere(&taking, result, per_thread_stream(hStream), &address);
	return finish(&taking, result, address, per_thread_stream(hStream), dptr);
}

static bool pool_refused; /* oversubscribe_cannot's */

CUresult cuMemAllocFromPoolAsync(CUdeviceptr *dptr, size_t bytesize, CUmemoryPool pool,
				 CUstream hStream)
{
	CUdeviceptr address = 0;
	struct taking taking;
	CUresult result = TRACE_CALLED(begin(&taking, pool, pool ? bytesize : 0, hStream));

	if (result != CUDA_SUCCESS)
		return result;
	result = cuda.cuMemAllocFromPoolAsync(dptr ? &address : NULL, bytesize, pool, hStream);
	if (taking.counted)
		oversubscribe_cannot(result, &pool_refused, "cuMemAllocFromPoolAsync");
	return finish(&taking, result, address, hStream, dptr);
}

CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *dptr, size_t bytesize, CUmemoryPool pool,
				      CUstream hStream)
{
	CUdeviceptr address = 0;
	struct taking taking;
	CUresult result =
		TRACE_CALLED(begin(&taking, pool, pool ? bytesize : 0, per_thread_stream(hStream)));

	if (result != CUDA_SUCCESS)
		return result;
	result = cuda.cuMemAllocFromPoolAsync_ptsz(dptr ? &address : NULL, bytesize, pool, hStream);
	if (taking.counted)
		oversubscribe_cannot(result, &pool_refused, "cuMemAllocFromPoolAsync");
	return finish(&taking, result, address, per_thread_stream(hStream), dptr);
}

/* -- pools ------------------------------------------------------------------------------------- */

static bool first_device(CUdevice *ret_device)
{
	*ret_device = 0;
	while (*ret_device < VGPU_DEVICES_MAX && !quota_has_device(*ret_device))
		++*ret_device;
	return *ret_device < VGPU_DEVICES_MAX;
}

/* Whether a pool takes device memory of the slice, and from which device. Managed memory may move
 * to a device from wherever its pool is, so it is charged like that of cuMemAllocManaged. */
static bool is_counted(const CUmemPoolProps *props, CUdevice *ret_device)
{
	if (props->location.type == CU_MEM_LOCATION_TYPE_DEVICE)
		*ret_device = props->location.id;
	else if (props->allocType != CU_MEM_ALLOCATION_TYPE_MANAGED)
		return false; /* memory of the host */
	else if (cuda.cuCtxGetDevice(ret_device) != CUDA_SUCCESS)
		return first_device(ret_device); /* as for the driver's own pool of that kind */
	return quota_has_device(*ret_device);
}

/* The driver has handed out a pool of that kind. A pool that cannot be counted is refused. */
static CUresult handed_out(CUresult result, const CUmemLocation *location, CUmemAllocationType type,
			   CUmemoryPool pool, CUmemoryPool *ret_pool)
{
	const uint64_t handle = (uintptr_t)pool;
	unsigned flags;
	CUdevice device;

	if (result != CUDA_SUCCESS)
		return result;
	if (type == CU_MEM_ALLOCATION_TYPE_MANAGED && quota_attached() &&
	    !quota_pool_is_known(handle, &device, &flags) &&
	    is_counted(&(CUmemPoolProps){.allocType = type, .location = *location}, &device) &&
	    quota_pool_open(handle, device, POOL_MANAGED | POOL_OF_DRIVER) != 0)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*ret_pool = pool;
	return CUDA_SUCCESS;
}

CUresult cuMemGetDefaultMemPool(CUmemoryPool *pool_out, CUmemLocation *location,
				CUmemAllocationType type)
{
	CUmemoryPool pool = NULL;
	CUresult result;

	trace_call(__func__);
	cuda_bind();
	result = cuda.cuMemGetDefaultMemPool(pool_out ? &pool : NULL, location, type);
	return handed_out(result, location, type, pool, pool_out);
}

CUresult cuMemGetMemPool(CUmemoryPool *pool, CUmemLocation *location, CUmemAllocationType type)
{
	CUmemoryPool current_one = NULL;
	CUresult result;

	trace_call(__func__);
	cuda_bind();
	result = cuda.cuMemGetMemPool(pool ? &current_one : NULL, location, type);
	return handed_out(result, location, type, current_one, pool);
}

CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *poolProps)
{
	CUmemoryPool made = NULL;
	CUdevice device;
	bool attached;
	CUresult result = TRACE_CALLED(state_attach(&attached));

	if (result != CUDA_SUCCESS)
		return result;
	result = cuda.cuMemPoolCreate(pool ? &made : NULL, poolProps);
	if (result == CUDA_SUCCESS && attached && is_counted(poolProps, &device) &&
	    quota_pool_open((uintptr_t)made, device,
			    poolProps->allocType == CU_MEM_ALLOCATION_TYPE_MANAGED ? POOL_MANAGED
										   : 0) != 0) {
		cuda.cuMemPoolDestroy(made);
		log_line(LOG_WARN, "a memory pool is refused: this process has as many as can be "
				   "counted");
		result = CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (result == CUDA_SUCCESS)
		*pool = made;
	return result;
}

/* Other threads may allocate from the pool until the driver has destroyed it, and go on if the
 * driver keeps it, as it keeps its own. */
CUresult cuMemPoolDestroy(CUmemoryPool pool)
{
	uint64_t handle = (uintptr_t)pool;
	struct pool_closing closing;
	CUresult result;

	trace_call(__func__);
	cuda_bind();
	if (!quota_attached() || !quota_pool_close_begin(handle, pool_empty(handle), &closing))
		return current_changed(cuda.cuMemPoolDestroy(pool));
	pools_wait_for_lookers();
	result = current_changed(cuda.cuMemPoolDestroy(pool));
	quota_pool_close_end(&closing, result == CUDA_SUCCESS);
	reconcile_soon(closing.device);
	return result;
}

CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t minBytesToKeep)
{
	CUresult result;

	trace_call(__func__);
	cuda_bind();
	result = cuda.cuMemPoolTrimTo(pool, minBytesToKeep);
	if (result == CUDA_SUCCESS && quota_attached())
		pool_correct((uintptr_t)pool);
	return result;
}

/* Every look at a pool of managed memory, and every allocation from it, comes before the reset or
 * after it. */
static CUresult reset_highest(CUmemoryPool pool, void *value)
{
	const uint64_t handle = (uintptr_t)pool;
	CUresult result;
	bool begun;

	open_default_pools(); /* otherwise an allocation may make the pool known during the reset */
	lock_acquire(&trying);
	begun = pool_reset_begin(handle);
	result = cuda.cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, value);
	if (begun)
		quota_pool_reset_end(handle);
	lock_release(&trying);
	return result;
}

CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value)
{
	trace_call(__func__);
	cuda_bind();
	if (attr == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH && quota_attached())
		return reset_highest(pool, value);
	return cuda.cuMemPoolSetAttribute(pool, attr, value);
}
