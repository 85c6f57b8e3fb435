#include "nesting.h"

#include <dlfcn.h>
#include <stddef.h>

#include "cuda_abi.h"

#define EXPORT __attribute__((visibility("default")))

#define NEXT(name) ((__typeof__(name) *)dlsym(RTLD_NEXT, #name))

EXPORT CUresult cuCtxCreate_v2(CUcontext *pctx, unsigned int flags, CUdevice dev);
EXPORT CUresult cuCtxDestroy_v2(CUcontext ctx);
EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *pctx, CUdevice dev);
CUresult cuGraphExecDestroy(CUgraphExec hGraphExec);

/* As the loader binds them in a program: the library's hooks. */
static __typeof__(cuCtxCreate_v2) *volatile first_create = cuCtxCreate_v2;
static __typeof__(cuCtxDestroy_v2) *volatile first_destroy = cuCtxDestroy_v2;
static __typeof__(cuDevicePrimaryCtxRetain) *volatile first_retain = cuDevicePrimaryCtxRetain;

static enum nesting next;
static __typeof__(cuCtxDestroy_v2) *next_destroy; /* written by nesting_set */

/* The next destroy is looked up here: within a call that makes a context, dlsym may wait for a
 * thread that waits for that call. */
void nesting_set(enum nesting nesting)
{
	next_destroy = NEXT(cuCtxDestroy_v2);
	next = nesting;
}

CUresult nesting_destroy_exec(CUgraphExec exec)
{
	return NEXT(cuGraphExecDestroy)(exec);
}

static enum nesting take(void)
{
	enum nesting nesting = next;

	next = NESTING_NONE;
	return nesting;
}

static CUresult nest(enum nesting nesting)
{
	CUcontext context;
	CUresult result = CUDA_SUCCESS;

	if (nesting == NESTING_PRIMARY)
		return first_retain(&context, 0);
	if (nesting == NESTING_OTHER) {
		result = first_create(&context, 0, 0);
		if (result == CUDA_SUCCESS)
			result = first_destroy(context);
	}
	return result;
}

CUresult cuCtxCreate_v2(CUcontext *pctx, unsigned int flags, CUdevice dev)
{
	enum nesting nesting = take();
	CUresult result = nest(nesting);

	if (result != CUDA_SUCCESS)
		return result;
	return nesting == NESTING_SAME ? first_create(pctx, flags, dev)
				       : NEXT(cuCtxCreate_v2)(pctx, flags, dev);
}

CUresult cuCtxDestroy_v2(CUcontext ctx)
{
	CUresult result = nest(take());

	return result == CUDA_SUCCESS ? next_destroy(ctx) : result;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *pctx, CUdevice dev)
{
	enum nesting nesting = take();
	CUresult result = nest(nesting);

	if (result != CUDA_SUCCESS)
		return result;
	return nesting == NESTING_SAME ? first_retain(pctx, dev)
				       : NEXT(cuDevicePrimaryCtxRetain)(pctx, dev);
}
