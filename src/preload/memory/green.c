/*
 * Green contexts: a share of the device's multiprocessors, over the primary context. Making one
 * takes memory of the driver's own, 4 to 18 MiB seen on an H200, which goes with the primary
 * context. What is allocated in it is the primary context's.
 */
#include "green.h"

#include "context_making.h"
#include "cuda.h"
#include "driver_memory.h"
#include "hooks.h"
#include "pace.h"
#include "quota.h"
#include "trace.h"

#define LEAST_BYTES ((uint64_t)32 << 20) /* what there must be room for */
#define MOST_BYTES  ((uint64_t)128 << 20)

static bool any; /* somebody has asked for the context of one; atomic */

void green_forget(void)
{
	any = false;
}

/* Every other context is one that we have seen being made. */
CUcontext green_owner(CUcontext context, CUdevice device)
{
	CUcontext primary;

	if (!__atomic_load_n(&any, __ATOMIC_RELAXED))
		return context;
	primary = context_making_primary(device);
	return !primary || context == primary || quota_knows_context((uintptr_t)context) ? context
											 : primary;
}

CUresult cuGreenCtxCreate(CUgreenCtx *phCtx, CUdevResourceDesc desc, CUdevice dev,
			  unsigned int flags)
{
	struct driver_memory growth;
	CUgreenCtx made = NULL;
	CUresult result;

	trace_call(__func__);
	cuda_bind();
	result = driver_memory_begin(&growth, dev, LEAST_BYTES, MOST_BYTES);
	if (result != CUDA_SUCCESS)
		return result;
	result = cuda.cuGreenCtxCreate(phCtx ? &made : NULL, desc, dev, flags);
	if (!driver_memory_end(&growth, result)) {
		if (result == CUDA_SUCCESS)
			cuda.cuGreenCtxDestroy(made);
		return driver_memory_refuse(&growth);
	}
	if (result == CUDA_SUCCESS)
		*phCtx = made;
	return result;
}

/* Events that the pacer made in it end with it. */
CUresult cuGreenCtxDestroy(CUgreenCtx hCtx)
{
	CUcontext context = NULL;
	CUresult result;

	trace_call(__func__);
	cuda_bind();
	pace_end_streams();
	if (pace_asks_all() && cuda.cuCtxFromGreenCtx(&context, hCtx) == CUDA_SUCCESS && context)
		pace_end_context(context);
	result = cuda.cuGreenCtxDestroy(hCtx);
	pace_end_streams();
	return result;
}

CUresult cuCtxFromGreenCtx(CUcontext *pContext, CUgreenCtx hCtx)
{
	CUresult result;

	cuda_bind();
	result = cuda.cuCtxFromGreenCtx(pContext, hCtx);
	if (result == CUDA_SUCCESS && quota_attached())
		__atomic_store_n(&any, true, __ATOMIC_RELAXED);
	return result;
}
