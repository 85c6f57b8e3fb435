/*
 * The driver's functions about contexts, over context.c.
 */
#include "sim.h"

/* The answers of cuCtxGetApiVersion for contexts made by functions of CUDA 3.1, and by newer ones.
 */
enum {
	API_OLD = 3010,
	API_NEW = 3020,
};

static CUresult create(const char *function, CUcontext *pctx, unsigned flags, CUdevice dev,
		       unsigned api)
{
	CUresult result = enter(function);

	return result ? result : leave(function, context_create(pctx, flags, dev, api));
}

CUresult cuCtxCreate(CUcontext *pctx, unsigned int flags, CUdevice dev)
{
	return create(__func__, pctx, flags, dev, API_OLD);
}

CUresult cuCtxCreate_v2(CUcontext *pctx, unsigned int flags, CUdevice dev)
{
	return create(__func__, pctx, flags, dev, API_NEW);
}

CUresult cuCtxCreate_v3(CUcontext *pctx, CUexecAffinityParam *paramsArray, int numParams,
			unsigned int flags, CUdevice dev)
{
	(void)paramsArray;
	(void)numParams;
	return create(__func__, pctx, flags, dev, API_NEW);
}

CUresult cuCtxCreate_v4(CUcontext *pctx, CUctxCreateParams *ctxCreateParams, unsigned int flags,
			CUdevice dev)
{
	(void)ctxCreateParams;
	return create(__func__, pctx, flags, dev, API_NEW);
}

/* A context for OpenGL or VDPAU is an ordinary context here. */
CUresult cuGLCtxCreate(CUcontext *pCtx, unsigned int Flags, CUdevice device)
{
	return create(__func__, pCtx, Flags, device, API_OLD);
}

CUresult cuGLCtxCreate_v2(CUcontext *pCtx, unsigned int Flags, CUdevice device)
{
	return create(__func__, pCtx, Flags, device, API_NEW);
}

CUresult cuVDPAUCtxCreate(CUcontext *pCtx, unsigned int flags, CUdevice device,
			  unsigned int vdpDevice, void *vdpGetProcAddress)
{
	(void)vdpDevice;
	(void)vdpGetProcAddress;
	return create(__func__, pCtx, flags, device, API_OLD);
}

CUresult cuVDPAUCtxCreate_v2(CUcontext *pCtx, unsigned int flags, CUdevice device,
			     unsigned int vdpDevice, void *vdpGetProcAddress)
{
	(void)vdpDevice;
	(void)vdpGetProcAddress;
	return create(__func__, pCtx, flags, device, API_NEW);
}

CUresult cuCtxDestroy(CUcontext ctx)
{
	CUresult result = enter(__func__);

	return result ? result : leave(__func__, context_destroy(ctx));
}

CUresult cuCtxDestroy_v2(CUcontext ctx)
{
	CUresult result = enter(__func__);

	return result ? result : leave(__func__, context_destroy(ctx));
}

CUresult cuCtxAttach(CUcontext *pctx, unsigned int flags)
{
	CUresult result = enter(__func__);

	if (result)
		return result;
	return pctx && !flags ? context_attach(pctx) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuCtxDetach(CUcontext ctx)
{
	CUresult result = enter(__func__);

	return result ? result : leave(__func__, context_detach(ctx));
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *pctx, CUdevice dev)
{
	CUresult result = enter(__func__);

	return result ? result : leave(__func__, primary_retain(pctx, dev));
}

CUresult cuDevicePrimaryCtxRelease(CUdevice dev)
{
	CUresult result = enter(__func__);

	return result ? result : leave(__func__, primary_release(dev));
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice dev)
{
	CUresult result = enter(__func__);

	return result ? result : leave(__func__, primary_release(dev));
}

CUresult cuDevicePrimaryCtxReset(CUdevice dev)
{
	CUresult result = enter(__func__);

	return result ? result : leave(__func__, primary_reset(dev));
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice dev)
{
	CUresult result = enter(__func__);

	return result ? result : leave(__func__, primary_reset(dev));
}

CUresult cuDevicePrimaryCtxGetState(CUdevice dev, unsigned int *flags, int *active)
{
	CUresult result = enter(__func__);

	return result ? result : primary_state(dev, flags, active);
}

CUresult cuDevicePrimaryCtxSetFlags(CUdevice dev, unsigned int flags)
{
	CUresult result = enter(__func__);

	return result ? result : primary_set_flags(dev, flags);
}

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice dev, unsigned int flags)
{
	CUresult result = enter(__func__);

	return result ? result : primary_set_flags(dev, flags);
}

CUresult cuCtxGetCurrent(CUcontext *pctx)
{
	CUresult result = enter(__func__);

	if (result)
		return result;
	if (!pctx)
		return CUDA_ERROR_INVALID_VALUE;
	*pctx = context_current();
	return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext ctx)
{
	CUresult result = enter(__func__);

	return result ? result : context_set(ctx);
}

CUresult cuCtxPushCurrent(CUcontext ctx)
{
	CUresult result = enter(__func__);

	return result ? result : context_push(ctx);
}

CUresult cuCtxPushCurrent_v2(CUcontext ctx)
{
	CUresult result = enter(__func__);

	return result ? result : context_push(ctx);
}

CUresult cuCtxPopCurrent(CUcontext *pctx)
{
	CUresult result = enter(__func__);

	return result ? result : context_pop(pctx);
}

CUresult cuCtxPopCurrent_v2(CUcontext *pctx)
{
	CUresult result = enter(__func__);

	return result ? result : context_pop(pctx);
}

/* Finds the context ctx, or the current one for NULL, and checks that it lives. */
static CUresult enter_either(const char *function, CUcontext ctx, CUcontext *ret_context)
{
	if (!ctx)
		return enter_context(function, ret_context);
	CUresult result = enter(function);
	if (result)
		return result;
	if (!context_known(ctx))
		return CUDA_ERROR_INVALID_CONTEXT;
	*ret_context = ctx;
	return atomic_load(&ctx->alive) ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

CUresult cuCtxGetDevice(CUdevice *device)
{
	CUcontext context;
	CUresult result = enter_context(__func__, &context);

	if (result)
		return result;
	if (!device)
		return CUDA_ERROR_INVALID_VALUE;
	*device = context->device;
	return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice_v2(CUdevice *device, CUcontext ctx)
{
	CUcontext context;
	CUresult result = enter_either(__func__, ctx, &context);

	if (result)
		return result;
	if (!device)
		return CUDA_ERROR_INVALID_VALUE;
	*device = context->device;
	return CUDA_SUCCESS;
}

CUresult cuCtxGetFlags(unsigned int *flags)
{
	CUcontext context;
	CUresult result = enter_context(__func__, &context);

	if (result)
		return result;
	if (!flags)
		return CUDA_ERROR_INVALID_VALUE;
	contexts_lock();
	*flags = context->flags;
	contexts_unlock();
	return CUDA_SUCCESS;
}

CUresult cuCtxGetApiVersion(CUcontext ctx, unsigned int *version)
{
	CUcontext context;
	CUresult result = enter_either(__func__, ctx, &context);

	if (result)
		return result;
	if (!version)
		return CUDA_ERROR_INVALID_VALUE;
	*version = context->api_version;
	return CUDA_SUCCESS;
}

CUresult cuCtxGetId(CUcontext ctx, unsigned long long *ctxId)
{
	CUcontext context;
	CUresult result = enter_either(__func__, ctx, &context);

	if (result)
		return result;
	if (!ctxId)
		return CUDA_ERROR_INVALID_VALUE;
	*ctxId = context->id;
	return CUDA_SUCCESS;
}

CUresult cuCtxGetLimit(size_t *pvalue, CUlimit limit)
{
	CUcontext context;
	CUresult result = enter_context(__func__, &context);

	if (result)
		return result;
	if (!pvalue)
		return CUDA_ERROR_INVALID_VALUE;
	if (limit >= sizeof context->limits / sizeof *context->limits)
		return CUDA_ERROR_UNSUPPORTED_LIMIT;
	contexts_lock();
	*pvalue = context_owner(context)->limits[limit];
	contexts_unlock();
	return CUDA_SUCCESS;
}

CUresult cuCtxSetLimit(CUlimit limit, size_t value)
{
	CUcontext context;
	CUresult result = enter_context(__func__, &context);

	if (result)
		return result;
	if (limit >= sizeof context->limits / sizeof *context->limits)
		return CUDA_ERROR_UNSUPPORTED_LIMIT;
	return leave(__func__, context_set_limit(context, limit, value));
}

static CUresult synchronize(CUcontext context)
{
	CUresult result = capture_refuse_context(context);

	if (result)
		return result;
	context_wait(context);
	pools_synchronized(context, NULL, timeline_now());
	return CUDA_SUCCESS;
}

CUresult cuCtxSynchronize(void)
{
	CUcontext context;
	CUresult result = enter_context(__func__, &context);

	return result ? result : leave(__func__, synchronize(context));
}

CUresult cuCtxSynchronize_v2(CUcontext ctx)
{
	CUcontext context;
	CUresult result = enter_either(__func__, ctx, &context);

	return result ? result : leave(__func__, synchronize(context));
}
