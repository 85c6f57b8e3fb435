/*
 * Peers: every GPU can use the memory of every other. The permission is recorded for each context,
 * and has no other effect here: every address is valid on every GPU.
 *
 * Also here: preferences of a context for caches, which are recorded and have no effect.
 */
#include "sim.h"

CUresult cuDeviceCanAccessPeer(int *canAccessPeer, CUdevice dev, CUdevice peerDev)
{
	CUresult result = enter(__func__);
	unsigned gpu, peer;

	if (result)
		return result;
	if (!canAccessPeer)
		return CUDA_ERROR_INVALID_VALUE;
	if (!device_gpu(dev, &gpu) || !device_gpu(peerDev, &peer))
		return CUDA_ERROR_INVALID_DEVICE;
	*canAccessPeer = gpu != peer;
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetP2PAttribute(int *value, CUdevice_P2PAttribute attrib, CUdevice srcDevice,
				 CUdevice dstDevice)
{
	CUresult result = enter(__func__);
	unsigned gpu, peer;

	if (result)
		return result;
	if (!value || attrib < CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK ||
	    attrib > CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED)
		return CUDA_ERROR_INVALID_VALUE;
	if (!device_gpu(srcDevice, &gpu) || !device_gpu(dstDevice, &peer) || gpu == peer)
		return CUDA_ERROR_INVALID_DEVICE;
	*value = attrib != CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK;
	return CUDA_SUCCESS;
}

static CUresult enter_peer(const char *function, CUcontext peer, CUcontext *ret_context)
{
	CUresult result = enter_context(function, ret_context);

	if (result)
		return result;
	if (!context_known(peer) || !atomic_load(&peer->alive))
		return CUDA_ERROR_INVALID_CONTEXT;
	return peer->gpu == (*ret_context)->gpu ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

CUresult cuCtxEnablePeerAccess(CUcontext peerContext, unsigned int Flags)
{
	CUcontext context;
	CUresult result = enter_peer(__func__, peerContext, &context);

	if (result)
		return result;
	if (Flags)
		return CUDA_ERROR_INVALID_VALUE;
	uint32_t bit = 1u << peerContext->gpu;
	return atomic_fetch_or(&context->peers, bit) & bit ? CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED
							   : CUDA_SUCCESS;
}

CUresult cuCtxDisablePeerAccess(CUcontext peerContext)
{
	CUcontext context;
	CUresult result = enter_peer(__func__, peerContext, &context);

	if (result)
		return result;
	uint32_t bit = 1u << peerContext->gpu;
	return atomic_fetch_and(&context->peers, ~bit) & bit ? CUDA_SUCCESS
							     : CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
}

/* -- preferences: each takes effect nowhere, and the default is what is asked back -- */

CUresult cuCtxGetCacheConfig(CUfunc_cache *pconfig)
{
	CUcontext context;
	CUresult result = enter_context(__func__, &context);

	if (result)
		return result;
	if (!pconfig)
		return CUDA_ERROR_INVALID_VALUE;
	*pconfig = 0;
	return CUDA_SUCCESS;
}

CUresult cuCtxSetCacheConfig(CUfunc_cache config)
{
	CUcontext context;

	(void)config;
	return enter_context(__func__, &context);
}

CUresult cuCtxGetSharedMemConfig(CUsharedconfig *pConfig)
{
	const CUsharedconfig four_byte_banks = 1;
	CUcontext context;
	CUresult result = enter_context(__func__, &context);

	if (result)
		return result;
	if (!pConfig)
		return CUDA_ERROR_INVALID_VALUE;
	*pConfig = four_byte_banks;
	return CUDA_SUCCESS;
}

CUresult cuCtxSetSharedMemConfig(CUsharedconfig config)
{
	CUcontext context;

	(void)config;
	return enter_context(__func__, &context);
}

CUresult cuCtxGetStreamPriorityRange(int *leastPriority, int *greatestPriority)
{
	CUcontext context;
	CUresult result = enter_context(__func__, &context);

	if (result)
		return result;
	if (leastPriority)
		*leastPriority = 0;
	if (greatestPriority)
		*greatestPriority = STREAM_PRIORITY_GREATEST;
	return CUDA_SUCCESS;
}

CUresult cuCtxResetPersistingL2Cache(void)
{
	CUcontext context;

	return enter_context(__func__, &context);
}

CUresult cuCtxSetFlags(unsigned int flags)
{
	CUcontext context;
	CUresult result = enter_context(__func__, &context);

	if (result)
		return result;
	contexts_lock();
	context->flags = flags;
	contexts_unlock();
	return CUDA_SUCCESS;
}
