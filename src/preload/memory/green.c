/*
 * Green contexts: a part of the device's multiprocessors, in the primary context. The driver takes
 * memory to make one, 4 to 18 MiB on an H200, and frees it with the primary context. Memory that is
 * allocated in a green context belongs to the primary context.
 *
 * A green context retains the primary context, and releases it when it is destroyed. So the driver
 * may make or end the primary context in these calls. The hooks retain it before the call and
 * release it afterwards, through the hooks of context.c: thus it is made and ended in those.
 */
#include "green.h"

#include "context.h"
#include "context_making.h"
#include "cuda.h"
#include "driver_memory.h"
#include "hooks.h"
#include "pace.h"
#include "state.h"
#include "trace.h"

#define LEAST_BYTES ((uint64_t)32 << 20) /* there must be room for this much */
#define MOST_BYTES  ((uint64_t)128 << 20)

static bool any; /* the application has made a green context; atomic */

void green_forked(void)
{
	any = false;
}

/* A context of which quota has no record is that of a green context: hooks have recorded all others
 * when they were made. */
CUcontext green_owner(CUcontext context, CUdevice device)
{
	CUcontext primary;

	if (!__atomic_load_n(&any, __ATOMIC_RELAXED))
		return context;
	primary = context_making_primary(device);
	return !primary || context == primary || quota_knows_context((uintptr_t)context) ? context
											 : primary;
}

/* The primary context is retained. */
static CUresult create(CUgreenCtx *phCtx, CUdevResourceDesc desc, CUdevice dev, unsigned int flags)
{
	struct driver_memory growth;
	CUgreenCtx made = NULL;
	CUresult result;

	trace_call("cuGreenCtxCreate");
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

CUresult cuGreenCtxCreate(CUgreenCtx *phCtx, CUdevResourceDesc desc, CUdevice dev,
			  unsigned int flags)
{
	CUcontext primary;
	bool attached;
	CUresult result = state_attach(&attached);

	if (result != CUDA_SUCCESS)
		return result;
	if (!attached)
		return cuda.cuGreenCtxCreate(phCtx, desc, dev, flags);
	__atomic_store_n(&any, true, __ATOMIC_RELAXED);
	result = cuDevicePrimaryCtxRetain(&primary, dev);
	if (result != CUDA_SUCCESS)
		return result;
	result = create(phCtx, desc, dev, flags);
	cuDevicePrimaryCtxRelease_v2(dev);
	return result;
}

/* Retains the primary contexts that there are, as the device of a green context is not known. A bit
 * for each device. */
static unsigned retain_all(void)
{
	unsigned retained = 0;
	CUcontext primary;

	for (CUdevice device = 0; device < VGPU_DEVICES_MAX; device++)
		if (context_making_primary(device) &&
		    cuDevicePrimaryCtxRetain(&primary, device) == CUDA_SUCCESS)
			retained |= 1u << device;
	return retained;
}

static void release_all(unsigned retained)
{
	for (CUdevice device = 0; retained >> device; device++)
		if (retained >> device & 1)
			cuDevicePrimaryCtxRelease_v2(device);
}

/* Events that the pacer made in the green context end with it. */
CUresult cuGreenCtxDestroy(CUgreenCtx hCtx)
{
	unsigned retained = retain_all();
	CUcontext context = NULL;
	CUresult result;

	trace_call(__func__);
	cuda_bind();
	pace_end_streams();
	if (pace_all_must_enter() && cuda.cuCtxFromGreenCtx(&context, hCtx) == CUDA_SUCCESS &&
	    context)
		pace_end_context(context);
	result = cuda.cuGreenCtxDestroy(hCtx);
	pace_end_streams();
	release_all(retained);
	return result;
}
