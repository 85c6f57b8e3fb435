/*
 * Green contexts: a part of a GPU's multiprocessors, and a context that belongs to the primary
 * context. The part is recorded and has no effect: kernels run on the whole GPU, one after the
 * other.
 *
 * On a real driver a green context was measured to cost 4 to 18 MiB in its process's figure. Here
 * the cost depends on the number of multiprocessors. The primary context keeps that memory when the
 * green context is destroyed (context.c).
 */
#include "sim.h"

#include <stdlib.h>
#include <string.h>

enum {
	SHARE_MIN = 8, /* the least multiprocessors of a part, which has a multiple of them */
	COST_MIN_MIB = 4,
	COST_MAX_MIB = 18,
};

struct CUdevResourceDesc_st {
	CUdevice device;
	unsigned multiprocessors;
};

struct CUgreenCtx_st {
	CUcontext context;
};

static void resource_fill(CUdevResource *ret_resource, CUdevice device, unsigned multiprocessors)
{
	const unsigned share[2] = {SHARE_MIN, SHARE_MIN}; /* the minimum, and the granularity */

	memset(ret_resource, 0, sizeof *ret_resource);
	if (!multiprocessors)
		return; /* CU_DEV_RESOURCE_TYPE_INVALID */
	ret_resource->type = CU_DEV_RESOURCE_TYPE_SM;
	ret_resource->smCount = multiprocessors;
	memcpy(ret_resource->internal, &device, sizeof device);
	memcpy(ret_resource->oversize, share, sizeof share);
}

static CUdevice resource_device(const CUdevResource *resource)
{
	CUdevice device;

	memcpy(&device, resource->internal, sizeof device);
	return device;
}

CUresult cuDeviceGetDevResource(CUdevice device, CUdevResource *resource, CUdevResourceType type)
{
	CUresult result = enter(__func__);
	unsigned gpu;

	if (result)
		return result;
	if (!resource)
		return CUDA_ERROR_INVALID_VALUE;
	if (!device_gpu(device, &gpu))
		return CUDA_ERROR_INVALID_DEVICE;
	if (type != CU_DEV_RESOURCE_TYPE_SM)
		return CUDA_ERROR_INVALID_RESOURCE_TYPE;
	resource_fill(resource, device, SIM_MULTIPROCESSORS);
	return CUDA_SUCCESS;
}

CUresult cuDevSmResourceSplitByCount(CUdevResource *result, unsigned int *nbGroups,
				     const CUdevResource *input, CUdevResource *remaining,
				     unsigned int useFlags, unsigned int minCount)
{
	CUresult refused = enter(__func__);

	(void)useFlags;
	if (refused)
		return refused;
	if (!nbGroups || !input)
		return CUDA_ERROR_INVALID_VALUE;
	if (input->type != CU_DEV_RESOURCE_TYPE_SM)
		return CUDA_ERROR_INVALID_RESOURCE_TYPE;
	unsigned all = input->smCount;
	if (minCount > all)
		return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
	unsigned group = minCount ? (minCount + SHARE_MIN - 1) / SHARE_MIN * SHARE_MIN : SHARE_MIN;
	CUdevice device = resource_device(input);
	unsigned groups = all / group;
	if (result && *nbGroups < groups)
		groups = *nbGroups;
	*nbGroups = groups;
	if (!result)
		return CUDA_SUCCESS;
	for (unsigned i = 0; i < groups; i++)
		resource_fill(&result[i], device, group);
	if (remaining)
		resource_fill(remaining, device, all - groups * group);
	return CUDA_SUCCESS;
}

CUresult cuDevResourceGenerateDesc(CUdevResourceDesc *phDesc, CUdevResource *resources,
				   unsigned int nbResources)
{
	CUresult result = enter(__func__);
	struct CUdevResourceDesc_st sum = {0};

	if (result)
		return result;
	if (!phDesc || !resources || !nbResources)
		return CUDA_ERROR_INVALID_VALUE;
	sum.device = resource_device(&resources[0]);
	for (unsigned i = 0; i < nbResources; i++) {
		if (resources[i].type != CU_DEV_RESOURCE_TYPE_SM)
			return CUDA_ERROR_INVALID_RESOURCE_TYPE;
		if (resource_device(&resources[i]) != sum.device)
			return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
		sum.multiprocessors += resources[i].smCount;
	}
	CUdevResourceDesc desc = malloc(sizeof *desc); /* never freed: no function ends it */
	if (!desc || !handle_add(desc, HANDLE_RESOURCES)) {
		free(desc);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*desc = sum;
	*phDesc = desc;
	return CUDA_SUCCESS;
}

/* Without a description, the green context has all multiprocessors (H200, driver 580.159). */
static uint64_t cost_bytes(const struct CUdevResourceDesc_st *desc)
{
	unsigned multiprocessors = desc ? desc->multiprocessors : SIM_MULTIPROCESSORS;
	unsigned more = (COST_MAX_MIB - COST_MIN_MIB) * multiprocessors / SIM_MULTIPROCESSORS;

	return (uint64_t)(COST_MIN_MIB + more / 2 * 2) << 20;
}

CUresult cuGreenCtxCreate(CUgreenCtx *phCtx, CUdevResourceDesc desc, CUdevice dev,
			  unsigned int flags)
{
	const unsigned default_stream = 1; /* CU_GREEN_CTX_DEFAULT_STREAM, required */
	CUresult result = enter(__func__);
	unsigned gpu;

	if (result)
		return result;
	if (!phCtx || flags != default_stream || (desc && !handle_is(desc, HANDLE_RESOURCES)))
		return CUDA_ERROR_INVALID_VALUE;
	if (!device_gpu(dev, &gpu) || (desc && desc->device != dev))
		return CUDA_ERROR_INVALID_DEVICE;
	CUgreenCtx green = malloc(sizeof *green);
	if (!green || !handle_add(green, HANDLE_GREEN)) {
		free(green);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	result = context_create_green(dev, cost_bytes(desc), &green->context);
	if (result) {
		handle_remove(green);
		free(green);
		return result;
	}
	*phCtx = green;
	return leave(__func__, CUDA_SUCCESS);
}

/* The struct is not freed, as that of its context is not. */
CUresult cuGreenCtxDestroy(CUgreenCtx hCtx)
{
	CUresult result = enter(__func__);

	if (result)
		return result;
	if (!handle_is(hCtx, HANDLE_GREEN))
		return CUDA_ERROR_INVALID_HANDLE;
	handle_remove(hCtx);
	return leave(__func__, context_destroy_green(hCtx->context));
}

CUresult cuCtxFromGreenCtx(CUcontext *pContext, CUgreenCtx hCtx)
{
	CUresult result = enter(__func__);

	if (result)
		return result;
	if (!pContext)
		return CUDA_ERROR_INVALID_VALUE;
	if (!handle_is(hCtx, HANDLE_GREEN))
		return CUDA_ERROR_INVALID_HANDLE;
	*pContext = hCtx->context;
	return CUDA_SUCCESS;
}

CUresult cuGreenCtxStreamCreate(CUstream *phStream, CUgreenCtx greenCtx, unsigned int flags,
				int priority)
{
	const unsigned non_blocking = 1; /* required */
	CUresult result = enter(__func__);

	(void)priority;
	if (result)
		return result;
	if (!phStream || flags != non_blocking)
		return CUDA_ERROR_INVALID_VALUE;
	if (!handle_is(greenCtx, HANDLE_GREEN))
		return CUDA_ERROR_INVALID_HANDLE;
	return stream_create(greenCtx->context, flags, phStream);
}
